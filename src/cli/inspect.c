/* onnxfuse inspect: a model as text at each stage of its way to a plan. */
#include "commands.h"
#include "session.h"
#include "show.h"

#include <string.h>

typedef struct InspectOptions {
    Options common;
    const char *stage;
    bool dot;
} InspectOptions;

static const Flag inspect_flags[] = {
    {"after", "STAGE", FLAG_TEXT, offsetof(InspectOptions, stage), "which stage; default: summary, with --policy: policy"},
    {"stage", "STAGE", FLAG_TEXT, offsetof(InspectOptions, stage), "the same"},
    {"plan", NULL, FLAG_SET, offsetof(InspectOptions, stage), "--stage plan: the steps of a run", .set = "plan"},
    {"kernels", NULL, FLAG_SET, offsetof(InspectOptions, stage), "--stage kernels: the regions' loops",
     .set = "kernels"},
    {"llvm", NULL, FLAG_SET, offsetof(InspectOptions, stage), "--stage llvm: LLVM IR of the kernels", .set = "llvm"},
    {"assembly", NULL, FLAG_SET, offsetof(InspectOptions, stage), "--stage assembly: the kernels' machine code",
     .set = "assembly"},
    {"dot", NULL, FLAG_SWITCH, offsetof(InspectOptions, dot), "a graph as Graphviz input"},
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
    fputc('\n', out);
}

static Problem *inspect(void *given) {
    const InspectOptions *options = given;
    const char *stage = options->stage ? options->stage : options->common.policy ? "policy" : "summary";
    OnnxfuseOptions session = session_options(&options->common);
    char *text;
    TRY(problem_from(
        onnxfuse_inspect(options->common.arguments.items[0], &session, stage, options->dot ? "dot" : "text", &text)));
    if (options->common.json) {
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
    .flag_tables = (const Flag *const[]){inspect_flags, model_flags, common_flags, NULL},
    .options_size = sizeof(InspectOptions),
    .least = 1,
    .most = 1,
    .run = inspect,
};
