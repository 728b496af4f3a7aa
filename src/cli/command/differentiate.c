/* SPDX-License-Identifier: Apache-2.0 */
/* onnxfuse differentiate: a model with its loss and gradients as further outputs. */
#include <stdlib.h>
#include <string.h>
#include "cli/command/commands.h"
#include "cli/value/files.h"
#include "cli/value/show.h"

typedef struct DifferentiateOptions {
    Options common;
    const char *output, *loss;
    TextList of;
    bool external_data;
} DifferentiateOptions;

static const Flag differentiate_flags[] = {
    {"output", "FILE", FLAG_TEXT, offsetof(DifferentiateOptions, output), "the new model; may be the old one"},
    {"loss", "LOSS", FLAG_TEXT, offsetof(DifferentiateOptions, loss),
     "a value's name, cross_entropy:LOGITS,LABELS or mse:PREDICTION,TARGET; default: the only output that is a number"},
    {"of", "NAMES", FLAG_LIST, offsetof(DifferentiateOptions, of),
     "weights and inputs, commas between or the flag again, * for any letters; default: all weights"},
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

/* With commas between; NULL: there is no memory. The caller frees it. */
static char *joined(const TextList *list) {
    size_t size = 1;
    for (int i = 0; i < list->count; i++) size += strlen(list->items[i]) + 1;
    char *text = malloc(size), *at = text;
    for (int i = 0; text && i < list->count; i++) at = stpcpy(stpcpy(at, i ? "," : ""), list->items[i]);
    if (text) *at = 0;
    return text;
}

static Problem *differentiate(void *given) {
    const DifferentiateOptions *options = given;
    if (!options->output) return problem(ONNXFUSE_USAGE, "differentiate needs --output FILE");
    TRY(file_may_be_written(options->output));
    char *text, *of = joined(&options->of);
    if (!of) return problem_out_of_memory();
    OnnxfuseDifferentiateOptions how = {sizeof how, options->loss, options->of.count ? of : NULL,
                                        options->external_data};
    OnnxfuseStatus status = onnxfuse_differentiate(options->common.arguments.items[0], options->output, &how, &text);
    free(of);
    TRY(problem_from(status));
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
