/* SPDX-License-Identifier: Apache-2.0 */
/* onnxfuse differentiate: a model with its loss and gradients as further outputs. */
#include "cli/command/commands.h"
#include "cli/value/show.h"

typedef struct DifferentiateOptions {
    Options common;
    const char *output, *loss, *of;
    bool external_data;
} DifferentiateOptions;

static const Flag differentiate_flags[] = {
    {"output", "FILE", FLAG_TEXT, offsetof(DifferentiateOptions, output), "the new model; may be the old one"},
    {"loss", "LOSS", FLAG_TEXT, offsetof(DifferentiateOptions, loss),
     "a value's name, cross_entropy:LOGITS,LABELS or mse:PREDICTION,TARGET; default: the only output that is a number"},
    {"of", "NAMES", FLAG_TEXT, offsetof(DifferentiateOptions, of),
     "weights and inputs, commas between, * for any letters; default: all weights"},
    {"external-data", NULL, FLAG_SWITCH, offsetof(DifferentiateOptions, external_data),
     "put weights into FILE.data; models above 1.8 GB do so anyway"},
    {0},
};

static void print_text(const cJSON *object, const char *name) {
    print_safe(stdout, cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(object, name)));
}

static void print_report(const cJSON *report, const char *output) {
    const cJSON *row, *gradients = cJSON_GetObjectItemCaseSensitive(report, "gradients");
    cJSON_ArrayForEach(row, gradients) {
        print_text(row, "of");
        fputs(" -> ", stdout);
        print_text(row, "output");
        putchar('\n');
    }
    fputs("loss ", stdout);
    print_text(report, "loss");
    printf(", %d gradients, %d nodes: ", cJSON_GetArraySize(gradients),
           cJSON_GetObjectItemCaseSensitive(report, "nodes")->valueint);
    print_safe(stdout, output);
    putchar('\n');
}

static Problem *differentiate(void *given) {
    const DifferentiateOptions *options = given;
    if (!options->output) return problem(ONNXFUSE_USAGE, "differentiate needs --output FILE");
    OnnxfuseDifferentiateOptions how = {sizeof how, options->loss, options->of, options->external_data};
    char *text;
    TRY(problem_from(onnxfuse_differentiate(options->common.arguments.items[0], options->output, &how, &text)));
    return print_report_of(text, options->common.json, print_report, options->output);
}

const Command differentiate_command = {
    .name = "differentiate",
    .arguments = "MODEL -o FILE",
    .summary = "write a model that also gives its loss and gradients",
    .flag_tables = (const Flag *const[]){differentiate_flags, common_flags, NULL},
    .options_size = sizeof(DifferentiateOptions),
    .least = 1,
    .most = 1,
    .run = differentiate,
};
