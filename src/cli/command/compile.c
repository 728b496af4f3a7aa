/* SPDX-License-Identifier: Apache-2.0 */
/* onnxfuse compile: a model as one file that opens at once. */
#include "cli/base/session.h"
#include "cli/command/commands.h"
#include "cli/value/files.h"
#include "cli/value/show.h"

typedef struct CompileOptions {
    Options common;
    const char *output;
} CompileOptions;

static const Flag compile_flags[] = {
    {"output", "FILE", FLAG_TEXT, offsetof(CompileOptions, output), "the compiled model, NAME.ofx by custom"},
    {0},
};

static void print_report(const cJSON *report, const char *output) {
    const cJSON *part;
    cJSON_ArrayForEach(part, cJSON_GetObjectItemCaseSensitive(report, "parts"))
        printf("%12.0f bytes  %s\n", part->valuedouble, part->string);
    printf("%12.0f bytes, %.0f kernels for %s (%s): ", json_number(report, "bytes"), json_number(report, "kernels"),
           cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(report, "device")),
           cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(report, "target")));
    print_safe(stdout, output);
    putchar('\n');
}

static Problem *compile(void *given) {
    const CompileOptions *options = given;
    const char *model = options->common.arguments.items[0];
    if (!options->output) return problem(ONNXFUSE_USAGE, "compile needs --output FILE");
    TRY(file_may_stand_beside(model, "output", options->output));
    OnnxfuseOptions how = session_options(&options->common);
    char *text;
    TRY(problem_from(onnxfuse_compile(model, &how, options->output, &text)));
    return print_report_of(text, options->common.json, print_report, options->output);
}

const Command compile_command = {
    .name = "compile",
    .arguments = "MODEL -o FILE",
    .summary = "write a model as one file that opens at once, for this machine",
    .details = "The file holds the plan, packed weights and machine code. All commands that run a model take it;\n"
               "it fits this version of onnxfuse, the device, and processors of the same kind. It is code: open only\n"
               "files that you would run as a program.\n",
    .flag_tables = (const Flag *const[]){compile_flags, model_flags, common_flags, NULL},
    .options_size = sizeof(CompileOptions),
    .least = 1,
    .most = 1,
    .run = compile,
};
