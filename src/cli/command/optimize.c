/* SPDX-License-Identifier: Apache-2.0 */
/* onnxfuse optimize: a model with fewer nodes that computes the same. */
#include "cli/command/commands.h"
#include "cli/value/files.h"
#include "cli/value/show.h"

#include <string.h>

typedef struct OptimizeOptions {
    Options common;
    const char *output, *fix_shapes, *extract;
    bool external_data, regions;
    int convert_opset;
} OptimizeOptions;

static const Flag optimize_flags[] = {
    {"output", "FILE", FLAG_TEXT, offsetof(OptimizeOptions, output), "the new model; may be the old one"},
    {"external-data", NULL, FLAG_SWITCH, offsetof(OptimizeOptions, external_data),
     "put weights into FILE.data; models above 1.8 GB do so anyway"},
    {"fix-shapes", "SHAPES", FLAG_TEXT, offsetof(OptimizeOptions, fix_shapes),
     "shapes of inputs from now on: NAME=1x3x224x224,NAME=..."},
    {"extract", "INPUTS:OUTPUTS", FLAG_TEXT, offsetof(OptimizeOptions, extract),
     "only the part that makes these values from those; commas between names"},
    {"convert-opset", "N", FLAG_INTEGER, offsetof(OptimizeOptions, convert_opset),
     "write it in version N of the standard's operator set", 7, 1000},
    {"regions", NULL, FLAG_SWITCH, offsetof(OptimizeOptions, regions),
     "each region that would be one kernel becomes a function"},
    {"policy", "FILE", FLAG_TEXT, offsetof(OptimizeOptions, common.policy),
     "of the regions; default: MODEL.policy.json beside the model, if there"},
    {0},
};

static int number(const cJSON *object, const char *name) { return (int)json_number(object, name); }

static void print_report(const cJSON *report, const char *output) {
    const cJSON *row;
    cJSON_ArrayForEach(row, cJSON_GetObjectItemCaseSensitive(report, "operators")) {
        int before = number(row, "before"), after = number(row, "after");
        if (before == after) continue;
        printf("%6d -> %-6d ", before, after);
        print_safe(stdout, row->string);
        putchar('\n');
    }
    if (cJSON_GetObjectItemCaseSensitive(report, "regions"))
        printf("%d regions hold %d nodes\n", number(report, "regions"), number(report, "nodes_in_regions"));
    printf("%d nodes became %d: ", number(report, "nodes_before"), number(report, "nodes_after"));
    print_safe(stdout, output);
    putchar('\n');
}

static Problem *optimize(void *given) {
    const OptimizeOptions *options = given;
    if (!options->output) return problem(ONNXFUSE_USAGE, "optimize needs --output FILE");
    if (options->common.policy && !options->regions) return problem(ONNXFUSE_USAGE, "--policy is for --regions");
    TRY(file_may_be_written(options->output));
    OnnxfuseOptimizeOptions how = {sizeof how,       options->external_data, options->fix_shapes,   options->extract,
                                   options->regions, options->convert_opset, options->common.policy};
    char *text;
    TRY(problem_from(onnxfuse_optimize(options->common.arguments.items[0], options->output, &how, &text)));
    return print_report_of(text, options->common.json, print_report, options->output);
}

const Command optimize_command = {
    .name = "optimize",
    .arguments = "MODEL -o FILE",
    .summary = "write a model that computes the same with fewer nodes",
    .flag_tables = (const Flag *const[]){optimize_flags, common_flags, NULL},
    .options_size = sizeof(OptimizeOptions),
    .least = 1,
    .most = 1,
    .run = optimize,
};
