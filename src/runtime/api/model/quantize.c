/* SPDX-License-Identifier: Apache-2.0 */
/* A model in, the same model with weights and activations in narrow numbers out, in the standard's operators. What it needs to
 * know about activations and about the error of each layer are further outputs of the model, which sessions compute for
 * recorded inputs. */
#include "runtime/api/session.h"

#include <math.h>
#include <stdlib.h>

#include "importer/files.h"
#include "optimize/quantize/quantize.h"
#include "optimize/rewrite.h"
#include "runtime/api/model/model_file.h"

typedef struct Work {
    Arena *arena;
    const char *path, *out_path;
    const OnnxfuseQuantizeOptions *options;
    Graph *graph, *twin;
    Quantization q;
    OnnxfuseSession *session; /* of a pass over the recorded inputs */
    OnnxfuseValue **outputs;  /* [output_count] of a run that is being looked at */
    int output_count, samples;
    ModelFile file;
    char **out_report; /* or NULL */
} Work;

/* --- passes over the recorded inputs --- */

typedef Status (*TakeFn)(Work *w, OnnxfuseValue *const *outputs); /* the further outputs of a run */

static void free_outputs(Work *w) {
    for (int i = 0; i < w->output_count; i++) {
        onnxfuse_value_free(w->outputs[i]);
        w->outputs[i] = NULL;
    }
}

static Status run_samples(Work *w, TakeFn take) {
    int inputs = onnxfuse_session_input_count(w->session);
    const OnnxfuseValue **sample = ARENA_ARRAY(w->arena, const OnnxfuseValue *, inputs + 1);
    w->output_count = onnxfuse_session_output_count(w->session);
    w->outputs = ARENA_ARRAY(w->arena, OnnxfuseValue *, w->output_count + 1);
    for (w->samples = 0;; w->samples++) {
        bool there = true;
        for (int i = 0; i < inputs; i++) sample[i] = NULL;
        TRY(w->options->sample(w->options->sample_user, w->session, w->samples, sample, &there));
        if (!there) break;
        TRY(status_at(onnxfuse_session_run(w->session, sample, w->outputs), "recorded inputs %d", w->samples));
        TRY(take(w, w->outputs + w->q.own_outputs));
        free_outputs(w);
    }
    return w->samples ? NULL : status_error(STATUS_INVALID, "there are no recorded inputs");
}

static void close_pass(Work *w) {
    if (w->outputs) free_outputs(w);
    onnxfuse_session_close(w->session);
    w->session = NULL;
}

/* Of the graph with its further outputs. */
static Status pass(Work *w, TakeFn take) {
    KeptModel *kept;
    TRY(kept_model(w->arena, w->graph, NULL, &kept));
    OnnxfuseOptions options = {
        .policy_json = "{}", .device = "cpu", .external_data = kept_data, .external_data_user = kept};
    TRY(onnxfuse_session_open_memory(kept->model.bytes, kept->model.size, NULL, &options, &w->session));
    TRY(run_samples(w, take));
    close_pass(w);
    quantize_restore(&w->q);
    return NULL;
}

static Status take_ranges(Work *w, OnnxfuseValue *const *outputs) {
    for (int i = 0; i < w->q.activations.count; i++) {
        Activation *a = w->q.activations.items[i];
        double low = onnxfuse_value_element(outputs[2 * i], 0), high = onnxfuse_value_element(outputs[2 * i + 1], 0);
        if (low > high)
            return status_error(STATUS_INVALID, "recorded inputs %d: \"%s\" has no elements", w->samples,
                                a->value->name);
        if (!isfinite(low) || !isfinite(high))
            return status_error(STATUS_INVALID, "recorded inputs %d: \"%s\" is not finite", w->samples, a->value->name);
        a->low = fmin(a->low, low);
        a->high = fmax(a->high, high);
    }
    return NULL;
}

static Status take_histograms(Work *w, OnnxfuseValue *const *outputs) {
    for (int i = 0; i < w->q.activations.count; i++) {
        Activation *a = w->q.activations.items[i];
        const float *x = onnxfuse_value_data(outputs[i]);
        double scale = HISTOGRAM_BINS / fmax(-a->low, a->high);
        for (int64_t k = 0, n = onnxfuse_value_count(outputs[i]); k < n; k++)
            if (x[k] > 0) a->histogram[(int)fmin(x[k] * scale, HISTOGRAM_BINS - 1)]++;
    }
    return NULL;
}

static Status take_errors(Work *w, OnnxfuseValue *const *outputs) {
    for (int i = 0; i < w->q.layers.count; i++, outputs += 3) {
        Layer *layer = w->q.layers.items[i];
        layer->noise += onnxfuse_value_element(outputs[0], 0);
        layer->signal += onnxfuse_value_element(outputs[1], 0);
        layer->worst = fmax(layer->worst, onnxfuse_value_element(outputs[2], 0));
        if (!isfinite(layer->noise) || !isfinite(layer->signal))
            return status_error(STATUS_INVALID, "recorded inputs %d: the output of \"%s\" is not finite", w->samples,
                                layer->name);
    }
    return NULL;
}

/* --- the report --- */

/* Root mean square error, relative to the root mean square of what there should be. */
static double relative_error(const Layer *layer) { return layer->noise > 0 ? sqrt(layer->noise / layer->signal) : 0; }

static void report_layer(Text *text, const Layer *layer) {
    text_add(text, "{\"node\":");
    text_add_json(text, layer->name, strlen(layer->name));
    text_add(text, ",\"operator\":");
    text_add_json(text, layer->node->op, strlen(layer->node->op));
    text_add(text, ",\"weight\":");
    text_add_json(text, layer->weight_name, strlen(layer->weight_name));
    text_add(text, ",\"quantized\":%s,\"bytes_before\":%lld,\"bytes_after\":%lld", layer->left_alone ? "false" : "true",
             (long long)layer->bytes_before, (long long)(layer->left_alone ? layer->bytes_before : layer->bytes_after));
    if (isfinite(relative_error(layer))) text_add(text, ",\"error\":%.6g", relative_error(layer));
    if (layer->noise > 0 && layer->signal > 0)
        text_add(text, ",\"sqnr_db\":%.6g", 10 * log10(layer->signal / layer->noise));
    text_add(text, ",\"largest_error\":%.6g}", layer->worst);
}

static Status report(const Work *w, size_t bytes_before, char **out_report) {
    static const char *const forms[] = {"int8", "int4", "bf16"};
    Text text = text_make(w->arena);
    text_add(&text, "{\"form\":\"%s\",\"samples\":%d,\"error_of\":\"%s\",", forms[w->q.form], w->samples,
             w->options->sample ? "output" : "weight");
    text_add(&text, "\"bytes_before\":%lld,\"bytes_after\":%lld,\"external_bytes\":%lld,\"opset\":%d,\"layers\":[",
             (long long)bytes_before, (long long)w->file.model.size, (long long)w->file.data.size, w->q.opset);
    for (int i = 0; i < w->q.layers.count; i++) {
        if (i) text_add(&text, ",");
        report_layer(&text, w->q.layers.items[i]);
    }
    text_add(&text, "]");
    model_file_report_unread(&w->file, &text);
    text_add(&text, "}");
    char *copy = strdup(text.data);
    if (!copy) return status_out_of_memory();
    *out_report = copy;
    return NULL;
}

/* --- all of it --- */

/* The layers that the tolerance forbids. */
static Status leave_alone(Work *w) {
    double tolerance = w->options->tolerance;
    const Layer *nearest = NULL;
    int left = 0;
    for (int i = 0; tolerance > 0 && i < w->q.layers.count; i++) {
        Layer *layer = w->q.layers.items[i];
        layer->left_alone = !(relative_error(layer) <= tolerance);
        left += layer->left_alone;
        if (!nearest || relative_error(layer) < relative_error(nearest)) nearest = layer;
    }
    if (left < w->q.layers.count) return NULL;
    return status_error(STATUS_DIFFERENT, "no layer stays within a relative error of %g; \"%s\" is nearest with %.3g",
                        tolerance, nearest->name, relative_error(nearest));
}

static Status find_ranges(Work *w) {
    quantize_watch(&w->q, false);
    TRY(pass(w, take_ranges));
    if (!w->options->entropy) return NULL;
    for (int i = 0; i < w->q.activations.count; i++)
        w->q.activations.items[i]->histogram = ARENA_ARRAY(w->arena, double, HISTOGRAM_BINS);
    quantize_watch(&w->q, true);
    return pass(w, take_histograms);
}

static Status find_errors(Work *w) {
    for (int i = 0; i < w->q.layers.count; i++) {
        Layer *layer = w->q.layers.items[i];
        layer->noise = layer->signal = layer->worst = 0;
    }
    quantize_try(&w->q);
    return pass(w, take_errors);
}

static int imported_opset(const Graph *graph) {
    for (int i = 0; i < graph->info->opsets.count; i++)
        if (!*graph->info->opsets.items[i].domain) return (int)graph->info->opsets.items[i].version;
    return 0;
}

static Status quantize_graph(Work *w) {
    QuantForm form = (QuantForm)w->options->form;
    Policy policy = policy_default();
    int needed = quantize_opset(form);
    TRY(rewrite_onnx(w->graph, w->twin, &policy, imported_opset(w->graph) < needed ? needed : 0));
    TRY(quantize_find(&w->q, w->graph, form, w->options->block ? w->options->block : 32));
    if (form == QUANT_INT8) TRY(find_ranges(w));
    quantize_weights(&w->q);
    if (w->options->sample) TRY(find_errors(w));
    TRY(leave_alone(w));
    quantize_apply(&w->q);
    return NULL;
}

static Status quantize(Work *w) {
    MappedFile original;
    jmp_buf guard;
    if (setjmp(guard)) return status_out_of_memory();
    arena_guard(w->arena, &guard);
    arena_guard(w->graph->arena, &guard);
    arena_guard(w->twin->arena, &guard);
    TRY(quantize_graph(w));
    TRY(file_map(w->arena, w->path, &original));
    ExportOptions options = {.original = original.bytes, .original_size = original.size};
    TRY(model_file_write(&w->file, w->graph, w->options->external_data, options));
    char *text = NULL;
    if (w->out_report) TRY(report(w, original.size, &text));
    return model_file_publish_with(&w->file, text, w->out_report);
}

static Status quantize_guarded(Work *w) {
    jmp_buf guard;
    if (setjmp(guard)) return status_out_of_memory();
    arena_guard(w->arena, &guard);
    model_file_at(&w->file, w->arena, w->out_path);
    TRY(model_file_import(w->path, NULL, &w->graph));
    TRY(model_file_import(w->path, NULL, &w->twin));
    return quantize(w);
}

static Status quantize_in_call(Arena *arena, void *context) {
    Work *w = context;
    w->arena = arena;
    Status status = quantize_guarded(w);
    close_pass(w);
    model_file_abandon(&w->file);
    graph_destroy(w->twin);
    graph_destroy(w->graph);
    return status;
}

static Status check_options(const OnnxfuseQuantizeOptions *options) {
    if ((int)options->form < ONNXFUSE_QUANTIZE_INT8 || (int)options->form > ONNXFUSE_QUANTIZE_BF16)
        return status_error(STATUS_USAGE, "there is no form %d to quantize to", (int)options->form);
    if (options->form == ONNXFUSE_QUANTIZE_INT8 && !options->sample)
        return status_error(STATUS_USAGE, "int8 needs recorded inputs, which tell the ranges of activations");
    if (options->block && (options->block < 16 || options->block & (options->block - 1) || options->block > 1 << 16))
        return status_error(STATUS_USAGE, "a block of %lld: it must be a power of two from 16 to 65536",
                            (long long)options->block);
    if (!(options->tolerance >= 0) || isinf(options->tolerance))
        return status_error(STATUS_USAGE, "a tolerance of %g is no number of 0 or more", options->tolerance);
    return NULL;
}

OnnxfuseStatus onnxfuse_quantize(const char *path, const char *out_path, const OnnxfuseQuantizeOptions *options,
                                 char **out_report) {
    static const OnnxfuseQuantizeOptions defaults = {.size = sizeof defaults};
    TRY(check_struct("OnnxfuseQuantizeOptions", options ? options->size : 0, sizeof *options));
    if (!options) options = &defaults;
    TRY(check_options(options));
    Work w = {
        .path = path, .out_path = out_path, .options = options, .file = model_file_none(), .out_report = out_report};
    return call_with_arena(quantize_in_call, &w);
}
