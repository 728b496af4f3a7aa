/* SPDX-License-Identifier: Apache-2.0 */
/* onnxfuse inspect: a model as text at each stage of its way to a plan, or as a page about the plan. */
#include "cli/command/commands.h"
#include "cli/value/inputs.h"
#include "cli/report/page.h"
#include "cli/report/roofline.h"
#include "cli/base/session.h"
#include "cli/value/show.h"

#include <string.h>

typedef struct InspectOptions {
    InputOptions base;
    const char *stage, *html;
    bool dot, roofline;
} InspectOptions;

static const Flag inspect_flags[] = {
    {"after", "STAGE", FLAG_TEXT, offsetof(InspectOptions, stage),
     "which stage; default: summary, with --policy or --precision: policy"},
    {"stage", "STAGE", FLAG_TEXT, offsetof(InspectOptions, stage), "the same"},
    {"plan", NULL, FLAG_SET, offsetof(InspectOptions, stage), "--stage plan: the steps of a run", .set = "plan"},
    {"kernels", NULL, FLAG_SET, offsetof(InspectOptions, stage), "--stage kernels: the regions' loops",
     .set = "kernels"},
    {"llvm", NULL, FLAG_SET, offsetof(InspectOptions, stage), "--stage llvm: LLVM IR of the kernels", .set = "llvm"},
    {"assembly", NULL, FLAG_SET, offsetof(InspectOptions, stage), "--stage assembly: the kernels' machine code",
     .set = "assembly"},
    {"dot", NULL, FLAG_SWITCH, offsetof(InspectOptions, dot), "a graph as Graphviz input"},
    {"html", "FILE", FLAG_TEXT, offsetof(InspectOptions, html),
     "runs the model and writes a page: steps, times, roofline, memory, kernels"},
    {"roofline", NULL, FLAG_SWITCH, offsetof(InspectOptions, roofline),
     "what each step must move and compute, the least time for it here, and how --threads share it"},
    {0},
};

static void list_stages(FILE *out) {
    enum { WIDTH = 100 };
    fputs("\nStages, in order:\n ", out);
    int column = 1;
    for (const char *const *stage = onnxfuse_inspect_stages(); *stage; stage++) {
        if (column + (int)strlen(*stage) > WIDTH) fputs("\n ", out), column = 1;
        column += fprintf(out, " %s", *stage);
    }
    fputs(
        "\n\n--input, --size and --shape are for --html, which runs the model, and --roofline, which does not; "
        "`onnxfuse "
        "run\n--help` tells of them. With --threads of more than the machine's cores, --roofline counts for a machine "
        "of "
        "that\nmany such cores: how many slices a step has, which part of it one thread does alone, and which share of "
        "the\nthreads' time passes in waiting for the one with most to do.\n",
        out);
}

static Problem *print_roofline(const InspectOptions *options, cJSON *roofline, const Inputs *inputs) {
    if (options->base.common.json) {
        inputs_json(inputs, roofline);
        print_json(roofline);
        return NULL;
    }
    roofline_print_machine(stdout, roofline);
    roofline_print_least(stdout, roofline);
    cJSON_Delete(roofline);
    return NULL;
}

static Problem *inspect_roofline(const InspectOptions *options) {
    InputRequest request;
    OnnxfuseSession *session = NULL;
    Inputs inputs = {0};
    cJSON *roofline;
    TRY(request_read(&options->base, &request));
    request.shapes_only = true;
    Problem *found = session_open(&options->base.common, options->base.common.arguments.items[0], &session);
    if (!found) found = inputs_make(session, &request, NULL, &inputs);
    if (!found) found = inputs_explain(&inputs, roofline_take(session, inputs.values, false, &roofline));
    if (!found) found = print_roofline(options, roofline, &inputs);
    inputs_free(&inputs);
    onnxfuse_session_close(session);
    request_free(&request);
    return found;
}

static Problem *inspect(void *given) {
    const InspectOptions *options = given;
    const Options *common = &options->base.common;
    const char *stage = options->stage ? options->stage : common->policy || common->precision ? "policy" : "summary";
    OnnxfuseOptions session = session_options(common);
    char *text;
    if ((options->html != NULL) + (options->stage != NULL) + options->roofline > 1)
        return problem(ONNXFUSE_USAGE, "--html, --roofline and a stage: one of them at a time");
    if (options->roofline) return inspect_roofline(options);
    if (options->html) TRY(file_may_stand_beside(common->arguments.items[0], "html", options->html));
    if (options->html) return page_write(&options->base, options->html);
    if (options->base.inputs.count || options->base.shapes.count || options->base.sizes.count)
        return problem(ONNXFUSE_USAGE, "--input, --size and --shape are for --html and --roofline");
    TRY(problem_from(
        onnxfuse_inspect(common->arguments.items[0], &session, stage, options->dot ? "dot" : "text", &text)));
    if (common->json) {
        cJSON *object = cJSON_CreateObject();
        cJSON_AddStringToObject(object, "stage", stage);
        cJSON_AddStringToObject(object, "text", text);
        print_json(object);
    } else {
        fputs(text, stdout);
    }
    onnxfuse_free(text);
    return NULL;
}

const Command inspect_command = {
    .name = "inspect",
    .arguments = "MODEL",
    .summary = "print what a model becomes, stage by stage",
    .more = list_stages,
    .flag_tables = (const Flag *const[]){inspect_flags, input_flags, model_flags, common_flags, NULL},
    .options_size = sizeof(InspectOptions),
    .least = 1,
    .most = 1,
    .run = inspect,
};
