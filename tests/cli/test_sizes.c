/* SPDX-License-Identifier: Apache-2.0 */
/* --size and --shape: what their text comes to. A case is the text of one flag, and the names with their numbers, or what the message
 * says. */
#include <criterion/criterion.h>
#include <string.h>

#include "cli/value/sizes.h"
#undef TRY /* the command line's and the library's */
#include "graph/graph.h"
#include "importer/importer.h"

typedef struct Case {
    const char *text;
    const char *result; /* "NAME: 1 2; NAME: 3"; of a failure: part of the message */
    bool fails;
} Case;

static const Case sizes[] = {
    {"batch=8", "batch: 8", false},
    {"batch=8,sequence=128", "batch: 8; sequence: 128", false},
    {"batch=0", "batch: 0", false},
    {"a=b=8", "a=b: 8", false},               /* names are the model's: they may hold '=' */
    {"a,b=8", "a,b: 8", false},               /* and commas */
    {"a=x,b=8,c=9", "a=x,b: 8; c: 9", false}, /* whatever comes before the first "=NUMBER" */
    {"p2o.Dim.0=3", "p2o.Dim.0: 3", false},
    {"batch", "NAME=8", true},
    {"=8", "NAME=8", true},
    {"batch=", "NAME=8", true},
    {"batch=-1", "NAME=8", true},
    {"batch=8x", "NAME=8", true},
    {"batch=8,", "NAME=8", true},
    {"batch=99999999999999999999", "NAME=8", true},
    {"batch=8,batch=8", "given twice", true},
    {"", "NAME=8", true},
};

static const Case shapes[] = {
    {"x=1x3x224x224", "x: 1 3 224 224", false},
    {"x=1,3", "x: 1 3", false},
    {"x=", "x:", false},
    {"a=b=2", "a=b: 2", false},
    {"x", "NAME=1x3x224x224", true},
    {"x=1x-3", "NAME=1x3x224x224", true},
    {"x=1 3", "NAME=1x3x224x224", true},
    {"x=1x1x1x1x1x1x1x1x1x1x1x1x1x1x1x1x1", "more than 16", true},
};

static void describe(const Shapes *got, char *text, size_t size) {
    FILE *out = fmemopen(text, size, "w");
    for (int i = 0; i < got->count; i++) {
        fprintf(out, "%s%s:", i ? "; " : "", got->items[i].name);
        for (int d = 0; d < got->items[i].rank; d++) fprintf(out, " %lld", (long long)got->items[i].dims[d]);
    }
    fclose(out);
}

static void check(const Case *c, Problem *(*parse)(const TextList *, Shapes *)) {
    TextList arguments = {(const char *[]){c->text}, 1};
    Shapes got;
    char text[256] = "";
    Problem *found = parse(&arguments, &got);
    cr_assert_eq(found != NULL, c->fails, "%s: %s", c->text, problem_text(found));
    if (found) {
        cr_expect_eq(problem_code(found), ONNXFUSE_USAGE, "%s", c->text);
        cr_expect_not_null(strstr(problem_text(found), c->result), "%s: %s", c->text, problem_text(found));
    } else {
        describe(&got, text, sizeof text);
        cr_expect_str_eq(text, c->result, "%s: %s", c->text, text);
    }
    problem_free(found);
    if (!c->fails) shapes_free(&got);
}

Test(sizes, are_read) {
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) check(&sizes[i], shapes_parse_sizes);
}

Test(sizes, shapes_are_read) {
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) check(&shapes[i], shapes_parse);
}

Test(sizes, of_one_name_in_two_flags_are_refused) {
    TextList arguments = {(const char *[]){"batch=8", "batch=9"}, 2};
    Shapes got;
    Problem *found = shapes_parse_sizes(&arguments, &got);
    cr_expect_eq(problem_code(found), ONNXFUSE_USAGE);
    problem_free(found);
}

/* --- what nothing says --- */
static OnnxfuseSession *session_of(const char *inputs) {
    Arena *arena = arena_create(0);
    Graph *graph;
    void *bytes;
    size_t size;
    Status status =
        graph_parse(arena_format(arena, "opset 21\ngraph (%s) -> (y) {\ny = onnx Neg@21 x\n}\n", inputs), &graph);
    cr_assert(!status, "%s", status_message(status));
    graph->info->ir_version = 10;
    status = export_model(graph, arena, &bytes, &size);
    OnnxfuseSession *session = NULL;
    OnnxfuseOptions options = {
        .policy_json =
            "{\"cache\": {\"enable\": false}, \"shapes\": {\"hints\": [{\"n\": 2, \"h\": 5, \"hinted\": 7}]}}"};
    if (strstr(inputs, "hinted") == NULL) options.policy_json = "{\"cache\": {\"enable\": false}}";
    if (!status) status = onnxfuse_session_open_memory(bytes, size, NULL, &options, &session);
    cr_assert(!status, "%s", status_message(status));
    graph_destroy(graph);
    arena_destroy(arena);
    return session;
}

Test(sizes, are_assumed_where_nothing_says_them) {
    static const struct {
        const char *inputs, *sizes;
    } rows[] = {
        {"x: f32[n, m]", "n=1 m=1"},
        {"x: f32[n, 3, h, w]", "n=1 h=224 w=224"},
        {"x: f32[n, 3, 48, w]", "n=1 w=224"},
        {"x: u8[n, h, w, 3]", "n=1 h=224 w=224"},
        {"x: f32[n, 3, h, hinted]", "n=2 h=5 hinted=7"},
        {"x: f32[n, 12, s, s]", "n=1 s=1"}, /* heads and a sequence */
        {"x: f32[n, c, h, w]", "n=1 c=1 h=1 w=1"},
        {"x: f32[n, 3, t]", "n=1 t=1"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        OnnxfuseSession *session = session_of(rows[i].inputs);
        Sizes found;
        char text[256] = "";
        cr_assert_null(sizes_begin(session, &(Shapes){0}, &(Shapes){0}, &found));
        sizes_settle(&found);
        for (int s = 0; s < found.count; s++)
            snprintf(text + strlen(text), sizeof text - strlen(text), "%s%s=%lld", s ? " " : "", found.items[s].name,
                     (long long)found.items[s].value);
        cr_expect_str_eq(text, rows[i].sizes, "%s: %s", rows[i].inputs, text);
        sizes_free(&found);
        onnxfuse_session_close(session);
    }
}
