/* SPDX-License-Identifier: Apache-2.0 */
/* A model in, the same model with its loss and the gradients of weights as further outputs out, in the standard's operators. */
#include "runtime/api/session.h"

#include <stdlib.h>

#include "importer/files.h"
#include "optimize/convert.h"
#include "optimize/standard/standard.h"
#include "optimize/training.h"
#include "runtime/api/model/model_file.h"

typedef struct Work {
    Arena *arena;
    const char *path, *out_path;
    const OnnxfuseDifferentiateOptions *options;
    Graph *graph, *twin,
        *other; /* the same model three times: twin for what is known of its values, other for the loss */
    Policy policy;
    TrainingStep step;
    ModelFile file;
    char **out_report; /* or NULL */
} Work;

/* --- the loss --- */

static bool is_scalar(const Value *fact) {
    int64_t size;
    if (!fact || !dtype_is_float(fact->dtype)) return false;
    for (int i = 0; i < fact->rank; i++)
        if (!dim_is_const(fact->dims[i], &size) || size != 1) return false;
    return true;
}

static void list_output(Text *text, const char *name, const Value *fact) {
    text_add(text, "%s\"%s\"", text->size ? ", " : "", name);
    if (!fact) return;
    text_add(text, " %s[", dtype_name(fact->dtype));
    for (int i = 0; i < fact->rank; i++) {
        if (i) text_add(text, ", ");
        dim_print(text, fact->dims[i]);
    }
    text_add(text, "]");
}

/* The only output of one floating-point element. */
static Status find_loss(const Work *w, const Rewrite *r, const char **out_loss) {
    Text others = text_make(w->arena);
    int found = 0;
    for (int i = 0; i < w->graph->outputs.count; i++) {
        const Value *fact = fact_of(r, w->graph->outputs.items[i]);
        list_output(&others, w->graph->output_names.items[i], fact);
        if (!is_scalar(fact)) continue;
        *out_loss = w->graph->outputs.items[i]->name;
        found++;
    }
    if (found == 1) return NULL;
    return status_error(STATUS_USAGE,
                        "%s of the model's outputs is a single number: which loss is meant? A value's name, "
                        "cross_entropy:LOGITS,LABELS or mse:PREDICTION,TARGET. Outputs are %s",
                        found ? "more than one" : "none", others.data);
}

/* Of one that is named, and of whose shape enough is known. */
static Status check_loss(const Rewrite *r, const Graph *graph, const char *loss) {
    const Value *value = map_get(&graph->names, loss);
    const Value *fact = value ? fact_of(r, value) : NULL;
    if (!fact || fact->dtype == DT_NONE || fact->rank < 0 || is_scalar(fact)) return NULL;
    Text text = text_make(r->arena);
    list_output(&text, loss, fact);
    return status_error(STATUS_USAGE, "the loss %s is no single number (reduce it, or name another)", text.data);
}

/* --- what gradients are of --- */

static const char *const *names_in(Arena *arena, const char *text) {
    VEC(const char *) names = {0};
    if (!text) return NULL;
    for (;;) {
        size_t length = strcspn(text, ",");
        if (length) VEC_PUSH(arena, names, arena_string_n(arena, text, length));
        if (!text[length]) break;
        text += length + 1;
    }
    VEC_PUSH(arena, names, NULL);
    return names.items;
}

/* --- the report --- */

static Status report(const Work *w, const char *loss, char **out_report) {
    Text text = text_make(w->arena);
    const Graph *graph = w->graph;
    text_add(&text, "{\"loss\":");
    text_add_json(&text, loss, strlen(loss));
    text_add(&text, ",\"gradients\":[");
    for (int i = 0; i < w->step.tensor_count; i++) {
        const char *of = w->step.tensors[i].name, *name = graph->output_names.items[w->step.gradients + i];
        text_add(&text, "%s{\"of\":", i ? "," : "");
        text_add_json(&text, of, strlen(of));
        text_add(&text, ",\"output\":");
        text_add_json(&text, name, strlen(name));
        text_add(&text, "}");
    }
    text_add(&text, "],\"nodes\":%d,\"bytes\":%lld,\"external_bytes\":%lld", count_nodes(graph),
             (long long)w->file.model.size, (long long)w->file.data.size);
    model_file_report_unread(&w->file, &text);
    text_add(&text, "}");
    char *copy = strdup(text.data);
    if (!copy) return status_out_of_memory();
    *out_report = copy;
    return NULL;
}

/* --- all of it --- */

static Status add_gradients(Work *w) {
    Rewrite r = {.arena = w->graph->arena, .facts = map_make(w->graph->arena)};
    const char *loss = w->options->loss;
    TRY(rewrite_facts(&r, w->graph, w->twin, &w->policy));
    TRY(loss ? check_loss(&r, w->graph, loss) : find_loss(w, &r, &loss));
    TRY(rewrite_version(&r, w->graph, STANDARD_OPSET));
    w->policy.training.loss = loss;
    w->policy.training.of = names_in(w->arena, w->options->of);
    TrainingOptions options = {.wanted = &w->policy.training, .kind = TRAIN_GRADIENTS, .twin = w->other};
    TRY(training_step(w->graph, &options, &w->step));
    return standard_gradients(w->graph, &w->policy);
}

static Status publish(Work *w) {
    char *text = NULL;
    if (w->out_report) TRY(report(w, w->graph->output_names.items[w->step.loss], &text));
    return model_file_publish_with(&w->file, text, w->out_report);
}

static Status differentiate_graph(Work *w) {
    jmp_buf guard;
    MappedFile original;
    if (setjmp(guard)) return status_out_of_memory();
    arena_guard(w->arena, &guard);
    arena_guard(w->graph->arena, &guard);
    arena_guard(w->twin->arena, &guard);
    arena_guard(w->other->arena, &guard);
    TRY(add_gradients(w));
    TRY(file_map(w->arena, w->path, &original));
    ExportOptions options = {.original = original.bytes, .original_size = original.size};
    TRY(model_file_write(&w->file, w->graph, w->options->external_data, options));
    return publish(w);
}

static Status differentiate_guarded(Work *w) {
    jmp_buf guard;
    if (setjmp(guard)) return status_out_of_memory();
    arena_guard(w->arena, &guard);
    model_file_at(&w->file, w->arena, w->out_path);
    w->policy = policy_default();
    TRY(model_file_import(w->path, NULL, &w->graph));
    TRY(model_file_import(w->path, NULL, &w->twin));
    TRY(model_file_import(w->path, NULL, &w->other));
    return differentiate_graph(w);
}

static Status differentiate_in_call(Arena *arena, void *context) {
    Work *w = context;
    w->arena = arena;
    Status status = differentiate_guarded(w);
    model_file_abandon(&w->file);
    graph_destroy(w->other);
    graph_destroy(w->twin);
    graph_destroy(w->graph);
    return status;
}

OnnxfuseStatus onnxfuse_differentiate(const char *path, const char *out_path,
                                      const OnnxfuseDifferentiateOptions *options, char **out_report) {
    static const OnnxfuseDifferentiateOptions defaults = {.size = sizeof defaults};
    TRY(check_struct("OnnxfuseDifferentiateOptions", options ? options->size : 0, sizeof *options));
    Work w = {.path = path,
              .out_path = out_path,
              .options = options ? options : &defaults,
              .file = model_file_none(),
              .out_report = out_report};
    return call_with_arena(differentiate_in_call, &w);
}
