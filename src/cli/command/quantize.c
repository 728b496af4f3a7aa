/* SPDX-License-Identifier: Apache-2.0 */
/* onnxfuse quantize: a model with weights and activations in narrow numbers. */
#include <string.h>
#include "cli/command/commands.h"
#include "cli/value/samples.h"
#include "cli/value/show.h"

typedef struct QuantizeOptions {
    Options common;
    const char *output, *inputs, *calibration;
    bool int8, int4, bf16, external_data;
    int block;
    double tolerance;
} QuantizeOptions;

static const Flag quantize_flags[] = {
    {"output", "FILE", FLAG_TEXT, offsetof(QuantizeOptions, output), "the new model; may be the old one"},
    {"int8", NULL, FLAG_SWITCH, offsetof(QuantizeOptions, int8),
     "weights in int8 with a scale a channel, activations in uint8: MatMul, Gemm, Conv"},
    {"int4", NULL, FLAG_SWITCH, offsetof(QuantizeOptions, int4),
     "weights of MatMul and Gemm in int4 with a scale a block"},
    {"bf16", NULL, FLAG_SWITCH, offsetof(QuantizeOptions, bf16), "weights in bfloat16"},
    {"inputs", "FOLDER|NPZ", FLAG_TEXT, offsetof(QuantizeOptions, inputs),
     "recorded inputs, which --int8 needs; see below"},
    {"calibration", "NAME", FLAG_TEXT, offsetof(QuantizeOptions, calibration),
     "ranges of activations: minmax (all that was seen; the default) or entropy (outliers are cut off)"},
    {"block", "N", FLAG_INTEGER, offsetof(QuantizeOptions, block),
     "weights that share a scale in --int4, a power of two; default: 32", 16, 65536},
    {"tolerance", "X", FLAG_REAL, offsetof(QuantizeOptions, tolerance),
     "leave layers alone whose output would have a larger relative error (root mean square)", 0, 1e6},
    {"external-data", NULL, FLAG_SWITCH, offsetof(QuantizeOptions, external_data),
     "put weights into FILE.data; models above 1.8 GB do so anyway"},
    {0},
};

static const cJSON *item(const cJSON *object, const char *name) {
    return cJSON_GetObjectItemCaseSensitive(object, name);
}

static void print_layer(const cJSON *layer) {
    const cJSON *error = item(layer, "error"), *sqnr = item(layer, "sqnr_db");
    printf("%10.1f -> %9.1f KB ", json_number(layer, "bytes_before") / 1e3, json_number(layer, "bytes_after") / 1e3);
    if (error)
        printf("%9.3g ", error->valuedouble);
    else
        printf("%9s ", "-");
    if (sqnr)
        printf("%6.1f dB ", sqnr->valuedouble);
    else
        printf("%6s    ", "-");
    printf("%9.3g  %-8s ", json_number(layer, "largest_error"), cJSON_GetStringValue(item(layer, "operator")));
    print_safe(stdout, cJSON_GetStringValue(item(layer, "node")));
    puts(cJSON_IsTrue(item(layer, "quantized")) ? "" : "  (left alone)");
}

static void print_report(const cJSON *report, const char *output) {
    const cJSON *layer, *layers = item(report, "layers");
    int quantized = 0;
    double before = 0, after = 0;
    printf("error of each layer's %s, quantized alone\n", cJSON_GetStringValue(item(report, "error_of")));
    printf("%27s %9s %9s %9s\n", "weight", "relative", "SQNR", "largest");
    cJSON_ArrayForEach(layer, layers) {
        print_layer(layer);
        quantized += cJSON_IsTrue(item(layer, "quantized"));
        before += json_number(layer, "bytes_before");
        after += json_number(layer, "bytes_after");
    }
    printf("%d of %d layers in %s, weights %.4g -> %.4g MB, the model %.4g -> %.4g MB: ", quantized,
           cJSON_GetArraySize(layers), cJSON_GetStringValue(item(report, "form")), before / 1e6, after / 1e6,
           json_number(report, "bytes_before") / 1e6,
           (json_number(report, "bytes_after") + json_number(report, "external_bytes")) / 1e6);
    print_safe(stdout, output);
    putchar('\n');
}

static OnnxfuseStatus next_sample(void *user, const OnnxfuseSession *session, int number_of,
                                  const OnnxfuseValue **out_inputs, bool *out_there) {
    Problem *found = samples_next(user, session, number_of, out_inputs, out_there);
    if (!found) return NULL;
    OnnxfuseStatus status = onnxfuse_error(problem_code(found), problem_text(found));
    problem_free(found);
    return status;
}

static Problem *options_of(const QuantizeOptions *o, OnnxfuseQuantizeOptions *how) {
    if (!o->output) return problem(ONNXFUSE_USAGE, "quantize needs --output FILE");
    if (o->int8 + o->int4 + o->bf16 != 1)
        return problem(ONNXFUSE_USAGE, "quantize needs one of --int8, --int4, --bf16");
    if (o->int8 && !o->inputs)
        return problem(ONNXFUSE_USAGE, "--int8 needs --inputs FOLDER: recorded inputs tell the ranges of activations");
    if (o->block && !o->int4) return problem(ONNXFUSE_USAGE, "--block is for --int4");
    if (o->calibration && !o->int8) return problem(ONNXFUSE_USAGE, "--calibration is for --int8");
    bool entropy = o->calibration && strcmp(o->calibration, "entropy") == 0;
    if (o->calibration && !entropy && strcmp(o->calibration, "minmax") != 0)
        return problem(ONNXFUSE_USAGE, "--calibration is minmax or entropy, not \"%s\"", o->calibration);
    *how = (OnnxfuseQuantizeOptions){.size = sizeof *how,
                                     .form = o->int8   ? ONNXFUSE_QUANTIZE_INT8
                                             : o->int4 ? ONNXFUSE_QUANTIZE_INT4
                                                       : ONNXFUSE_QUANTIZE_BF16,
                                     .entropy = entropy,
                                     .block = o->block,
                                     .tolerance = o->tolerance,
                                     .external_data = o->external_data};
    return NULL;
}

static Problem *quantize(void *given) {
    const QuantizeOptions *o = given;
    OnnxfuseQuantizeOptions how;
    Samples samples = {0};
    char *text = NULL;
    TRY(options_of(o, &how));
    TRY(file_may_be_written(o->output));
    if (o->inputs) {
        TRY(samples_open(o->inputs, &samples));
        how.sample = next_sample;
        how.sample_user = &samples;
    }
    Problem *found = problem_from(onnxfuse_quantize(o->common.arguments.items[0], o->output, &how, &text));
    samples_free(&samples);
    return found ? found : print_report_of(text, o->common.json, print_report, o->output);
}

const Command quantize_command = {
    .name = "quantize",
    .arguments = "MODEL -o FILE --int8|--int4|--bf16",
    .summary = "write the model with narrow weights and activations",
    .details =
        "Recorded inputs are folders test_data_set_N with input_J.pb or NAME.npy, archives NAME.npz, or NAME.npy "
        "in the folder itself; an\n"
        "array whose first axis is a multiple of the model's holds several. Some dozens that are like those to "
        "come are enough.\n"
        "The new model runs in any runtime. See docs/quantize.md.\n",
    .flag_tables = (const Flag *const[]){quantize_flags, common_flags, NULL},
    .options_size = sizeof(QuantizeOptions),
    .least = 1,
    .most = 1,
    .run = quantize,
};
