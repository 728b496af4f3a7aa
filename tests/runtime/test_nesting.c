/* SPDX-License-Identifier: Apache-2.0 */
/* Inputs that nest 100,000 deep, or as deep as is taken, on a stack of 256 KB: a clear error, or it works. Nothing recurses as
 * deep as an input says without a bound. What is not nested but long is in test_growth.c. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "graph/store.h"
#include "importer/importer.h"
#include "models.h"
#include "passes/pattern/pattern.h"
#include "policy/policy.h"
#include "small_stack.h"

enum { DEEP = 100000 };

/* `opening` so many times, then `middle`, then `closing` as many times. */
static char *nested_text(Arena *arena, const char *opening, const char *middle, const char *closing, int times) {
    Text text = text_make(arena);
    for (int i = 0; i < times; i++) text_add(&text, "%s", opening);
    text_add(&text, "%s", middle);
    for (int i = 0; i < times; i++) text_add(&text, "%s", closing);
    return text.data;
}

/* --- texts ------------------------------------------------------------------------------------------------------- */
static Status read_policy(Arena *arena, const char *text) {
    Policy policy = policy_default();
    return policy_parse(text, strlen(text), "policy", arena, &policy);
}

static Status read_pattern(Arena *arena, const char *text) {
    const Pattern *pattern;
    return pattern_parse(arena, text, "pattern", &pattern);
}

static Status read_graph(Arena *arena, const char *text) {
    (void)arena;
    Graph *graph = NULL;
    Status status = graph_parse(text, &graph);
    if (!status) graph_destroy(graph);
    return status;
}

/* A size is told to be wrong by whoever asked for it. */
static Status read_dim(Arena *arena, const char *text) {
    DimTable *table = dim_table_create(arena);
    const Dim *dim = dim_parse(table, &text);
    if (!dim) return status_error(STATUS_INVALID, "no size");
    int64_t *sizes = ARENA_ARRAY(arena, int64_t, dim_symbol_count(table));
    for (int i = 0; i < dim_symbol_count(table); i++) sizes[i] = 3;
    dim_eval(dim, sizes);
    Text printed = text_make(arena);
    dim_print(&printed, dim);
    return NULL;
}

typedef struct TextCase {
    const char *name;
    Status (*read)(Arena *arena, const char *text);
    const char *opening, *middle, *closing;
    int times;
    const char *error; /* a part of the message; NULL: it is read */
} TextCase;

static const TextCase texts[] = {
    {"arrays in a policy", read_policy, "[", "", "]", DEEP, "policy"},
    {"arrays in a policy that do not end", read_policy, "[", "", "", DEEP, "policy"},
    {"objects in a policy", read_policy, "{\"fusion\":", "1", "}", DEEP, "policy"},
    {"a section of a policy in itself", read_policy, "{\"fusion\":", "1", "}", 900, "fusion.fusion"},
    {"arrays in a policy as deep as JSON is read", read_policy, "[", "", "]", 1000, "expected an object"},
    {"rules in rules", read_policy, "{\"rules\":[", "", "]}", DEEP, "policy"},
    {"rules in a rule", read_policy, "{\"rules\":[", "", "]}", 450, "rules[0].rules"},
    {"brackets in a pattern", read_pattern, "(", "", ")", 30000, "pattern"},
    {"calls in a pattern", read_pattern, "(x) -> (y) { y = Neg(", "x", ") }", 2000, "pattern"},
    {"lists in a pattern", read_pattern, "(x) -> (y) { y = Clip<a=[", "1", "]>(x) }", 2000, "pattern"},
    {"a pattern of many bytes", read_pattern, "(", "", ")", DEEP, "more than"},
    {"graphs in a text", read_graph, "graph () -> () {\n= onnx A@1 ", "", "}", DEEP, "nested more than"},
    {"as many graphs in a text as are read", read_graph, "graph () -> () {\n= onnx A@1 ", "graph () -> () {\n}", "}",
     255, NULL},
    {"brackets in a text", read_graph, "graph (x: f32[(", "n", ")]", DEEP, "1:"},
    {"sizes in brackets", read_dim, "(", "n", ")", DEEP, "no size"},
    {"sizes in as many brackets as are read", read_dim, "(", "n", ")", 200, NULL},
    {"signs", read_dim, "-", "n", "", DEEP, "no size"},
    {"signs in brackets", read_dim, "-(", "n", ")", DEEP, "no size"},
    {"floors", read_dim, "floor((", "n", ")/2)", DEEP, "no size"},
    {"floors as deep as are read", read_dim, "floor((p + ", "n", ")/q)", 80, NULL},
    {"remainders", read_dim, "mod(", "n", ", 3)", DEEP, "no size"},
    {"remainders as deep as are read", read_dim, "mod(p + ", "n", ", q)", 250, NULL},
    {"the larger of sizes", read_dim, "max(p * ", "n", ", q)", DEEP, "no size"},
    {"the larger of as many sizes as are read", read_dim, "max(p * ", "n", ", q)", 250, NULL},
    {"products of sums", read_dim, "(n + p*", "q", ")", 250, NULL},
    {"a sum of many terms", read_dim, "n*n + floor(n/2) + ", "n", "", DEEP, NULL},
};

static void *read_text(void *argument) {
    const TextCase *c = argument;
    Arena *arena = arena_create(0);
    Status status = c->read(arena, nested_text(arena, c->opening, c->middle, c->closing, c->times));
    if (c->error)
        cr_expect(status_code(status) == STATUS_INVALID && strstr(status_message(status), c->error),
                  "%s: \"%s\", expected \"%s\"", c->name, status_message(status), c->error);
    else
        cr_expect(!status, "%s: %s", c->name, status_message(status));
    status_free(status);
    arena_destroy(arena);
    return NULL;
}

Test(nesting, texts, .timeout = 120) {
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) on_small_stack(read_text, (void *)(uintptr_t)(texts + i));
}

/* --- models ------------------------------------------------------------------------------------------------------ */
/* A message that is written from its end to its beginning, so that one that is wrapped in others 100,000 times is put together in
 * one walk: protobuf's own writer recurses. */
typedef struct Writer {
    uint8_t *room, *at, *end;
} Writer;

static Writer writer_make(size_t size) {
    uint8_t *room = malloc(size);
    cr_assert(room);
    return (Writer){room, room + size, room + size};
}

static void put_varint(Writer *w, uint64_t number) {
    uint8_t bytes[10];
    int count = 0;
    do bytes[count++] = (uint8_t)((number & 127) | (number > 127 ? 128 : 0));
    while (number >>= 7);
    cr_assert(w->at - w->room >= count);
    memcpy(w->at -= count, bytes, (size_t)count);
}

static void put_number(Writer *w, int field, uint64_t number) {
    put_varint(w, number);
    put_varint(w, (uint64_t)field << 3);
}

/* Makes what stands between w->at and `end` a field. */
static void wrap(Writer *w, int field, const uint8_t *end) {
    put_varint(w, (uint64_t)(end - w->at));
    put_varint(w, (uint64_t)field << 3 | 2);
}

static void put_text(Writer *w, int field, const char *text) {
    const uint8_t *end = w->at;
    size_t size = strlen(text);
    cr_assert((size_t)(w->at - w->room) >= size);
    memcpy(w->at -= size, text, size);
    wrap(w, field, end);
}

/* What is there is a graph of a model of this opset. */
static void finish_model(Writer *w, bool has_graph) {
    if (has_graph) wrap(w, 7, w->end);
    const uint8_t *end = w->at;
    put_number(w, 2, 21);
    wrap(w, 8, end);
    put_number(w, 1, 10);
}

/* A graph that holds a node with a branch that is a graph, and so on. */
static void *deep_graphs(void *unused) {
    (void)unused;
    Writer w = writer_make((size_t)DEEP * 64);
    put_text(&w, 2, "g");
    for (int i = 0; i < DEEP; i++) {
        wrap(&w, 6, w.end); /* AttributeProto.g */
        put_number(&w, 20, 5);
        put_text(&w, 1, "body");
        wrap(&w, 5, w.end); /* NodeProto.attribute */
        put_text(&w, 4, "Loop");
        wrap(&w, 1, w.end); /* GraphProto.node */
    }
    finish_model(&w, true);
    OnnxfuseSession *session = NULL;
    Status status = onnxfuse_session_open_memory(w.at, (size_t)(w.end - w.at), NULL, NULL, &session);
    cr_expect(status_code(status) == STATUS_UNSUPPORTED && strstr(status_message(status), "nests deeper"), "%s",
              status_message(status));
    status_free(status);
    free(w.room);
    return NULL;
}

/* An input that is a sequence of sequences (field 4), or optionals of optionals (field 9), of so many levels. */
static void *deep_types(void *unused) {
    (void)unused;
    static const struct {
        int field, levels;
        const char *error;
    } rows[] = {{4, DEEP, "nests deeper"},
                {9, DEEP, "nests deeper"},
                {4, 30, "sequences of anything"},
                {9, 30, "optionals of optionals"},
                {4, 2, "sequences of anything"}};
    for (size_t r = 0; r < sizeof rows / sizeof *rows; r++) {
        Writer w = writer_make((size_t)DEEP * 16 + 100);
        put_number(&w, 1, 1);
        wrap(&w, 1, w.end); /* TypeProto.tensor_type: floats */
        for (int i = 0; i < rows[r].levels; i++) {
            wrap(&w, 1, w.end); /* Sequence.elem_type */
            wrap(&w, rows[r].field, w.end);
        }
        wrap(&w, 2, w.end); /* ValueInfoProto.type */
        put_text(&w, 1, "x");
        wrap(&w, 11, w.end); /* GraphProto.input */
        finish_model(&w, true);
        OnnxfuseSession *session = NULL;
        Status status = onnxfuse_session_open_memory(w.at, (size_t)(w.end - w.at), NULL, NULL, &session);
        cr_expect(status_code(status) == STATUS_UNSUPPORTED && strstr(status_message(status), rows[r].error),
                  "row %zu: %s", r, status_message(status));
        status_free(status);
        free(w.room);
    }
    return NULL;
}

/* f0 calls f1 calls f2 ...; with `branches` each from a branch of an If. */
static void put_function(Writer *w, int number, bool last, bool branches) {
    char name[32], next[32];
    const uint8_t *function = w->at;
    snprintf(name, sizeof name, "f%d", number);
    snprintf(next, sizeof next, "f%d", number + 1);
    put_text(w, 10, "my"); /* FunctionProto.domain */
    const uint8_t *opset = w->at;
    put_number(w, 2, 21);
    wrap(w, 9, opset);
    opset = w->at;
    put_number(w, 2, 1);
    put_text(w, 1, "my");
    wrap(w, 9, opset);
    const uint8_t *node = w->at;
    for (int branch = 0; branches && !last && branch < 2; branch++) {
        const uint8_t *attribute = w->at;
        put_text(w, 1, "t"); /* ValueInfoProto.name */
        wrap(w, 12, attribute);
        const uint8_t *inner = w->at;
        put_text(w, 7, branch ? "my" : "");
        put_text(w, 4, branch ? next : "Neg");
        put_text(w, 2, "t");
        put_text(w, 1, "a");
        wrap(w, 1, inner);
        put_text(w, 2, "b");
        wrap(w, 6, attribute); /* AttributeProto.g */
        put_number(w, 20, 5);
        put_text(w, 1, branch ? "then_branch" : "else_branch");
        wrap(w, 5, attribute); /* NodeProto.attribute */
    }
    bool is_if = branches && !last;
    if (!is_if && !last) put_text(w, 7, "my");
    put_text(w, 4, is_if ? "If" : last ? "Neg" : next);
    put_text(w, 2, "y");
    put_text(w, 1, is_if ? "c" : "a");
    wrap(w, 7, node); /* FunctionProto.node */
    if (is_if) {      /* c = ReduceSum(a) != 0, so that nothing is folded */
        node = w->at;
        const uint8_t *attribute = w->at;
        put_number(w, 20, 2);
        put_number(w, 3, 9); /* bool */
        put_text(w, 1, "to");
        wrap(w, 5, attribute);
        put_text(w, 4, "Cast");
        put_text(w, 2, "c");
        put_text(w, 1, "s");
        wrap(w, 7, node);
        node = w->at;
        attribute = w->at;
        put_number(w, 20, 2);
        put_number(w, 3, 0);
        put_text(w, 1, "keepdims");
        wrap(w, 5, attribute);
        put_text(w, 4, "ReduceSum");
        put_text(w, 2, "s");
        put_text(w, 1, "a");
        wrap(w, 7, node);
    }
    put_text(w, 5, "y");
    put_text(w, 4, "a");
    put_text(w, 1, name);
    wrap(w, 25, function); /* ModelProto.functions */
}

static Writer functions(int count, bool branches) {
    Writer w = writer_make((size_t)count * 500 + 1000);
    for (int i = 0; i < count; i++) put_function(&w, i, i + 1 == count, branches);
    const uint8_t *graph = w.at, *part = w.at;
    put_text(&w, 1, "y");
    wrap(&w, 12, part);
    part = w.at;
    const uint8_t *type = w.at, *dim = w.at;
    put_text(&w, 2, "n");
    wrap(&w, 1, dim); /* TensorShapeProto.dim */
    wrap(&w, 2, dim); /* Tensor.shape */
    put_number(&w, 1, 1);
    wrap(&w, 1, type); /* TypeProto.tensor_type */
    wrap(&w, 2, type); /* ValueInfoProto.type */
    put_text(&w, 1, "a");
    wrap(&w, 11, part);
    part = w.at;
    put_text(&w, 7, "my");
    put_text(&w, 4, "f0");
    put_text(&w, 2, "y");
    put_text(&w, 1, "a");
    wrap(&w, 1, part);
    put_text(&w, 2, "g");
    wrap(&w, 7, graph);
    part = w.at;
    put_number(&w, 2, 1);
    put_text(&w, 1, "my");
    wrap(&w, 8, part);
    finish_model(&w, false);
    return w;
}

/* Opens and runs it; returns the failure of the first that fails. */
static Status open_and_run(const void *bytes, size_t size) {
    static const OnnxfuseOptions options = {.policy_json = "{\"cache\": {\"enable\": false}, \"threads\": 1}"};
    OnnxfuseSession *session = NULL;
    TRY(onnxfuse_session_open_memory(bytes, size, NULL, &options, &session));
    OnnxfuseValue *x = value_from("f32[2] {1, 2}"), *y = NULL;
    const OnnxfuseValue *inputs[] = {x};
    Status status = onnxfuse_session_run(session, inputs, &y);
    if (!status) {
        char *text = value_text(y);
        cr_expect_str_eq(text, "f32[2] [-1, -2]");
        free(text);
    }
    onnxfuse_value_free(y);
    onnxfuse_value_free(x);
    onnxfuse_session_close(session);
    return status;
}

static void *deep_functions(void *unused) {
    (void)unused;
    static const struct {
        int count;
        bool branches;
        const char *error; /* NULL: it runs */
    } rows[] = {{DEEP, false, "nest deeper than"},
                {190, false, NULL},
                {DEEP, true, "nest deeper than"},
                {60, true, NULL},
                {90, true, "control flow"}};
    for (size_t r = 0; r < sizeof rows / sizeof *rows; r++) {
        Writer w = functions(rows[r].count, rows[r].branches);
        Status status = open_and_run(w.at, (size_t)(w.end - w.at));
        if (rows[r].error)
            cr_expect(status_code(status) == STATUS_UNSUPPORTED && strstr(status_message(status), rows[r].error),
                      "row %zu: %s", r, status_message(status));
        else
            cr_expect(!status, "row %zu: %s", r, status_message(status));
        status_free(status);
        free(w.room);
    }
    return NULL;
}

/* What is compiled opens, and runs as the model does: whichever of the calls refuses it, the reason is told. */
static void *deep_compiled(void *unused) {
    (void)unused;
    static const OnnxfuseOptions options = {.policy_json = "{\"cache\": {\"enable\": false}, \"threads\": 1}"};
    static const struct {
        int count;
        bool runs;
    } rows[] = {{50, true}, {63, true}, {64, true}, {65, false}, {90, false}};
    for (size_t r = 0; r < sizeof rows / sizeof *rows; r++) {
        Writer w = functions(rows[r].count, true);
        void *bytes;
        size_t size;
        Status status = onnxfuse_compile_memory(w.at, (size_t)(w.end - w.at), NULL, &options, &bytes, &size);
        if (!status) {
            status = open_and_run(bytes, size);
            onnxfuse_free(bytes);
        }
        if (rows[r].runs)
            cr_expect(!status, "%d functions: %s", rows[r].count, status_message(status));
        else
            cr_expect(status_code(status) == STATUS_UNSUPPORTED && strstr(status_message(status), "nest"),
                      "%d functions: %s", rows[r].count, status_message(status));
        status_free(status);
        free(w.room);
    }
    return NULL;
}

Test(nesting, compiled_models, .timeout = 300) { on_small_stack(deep_compiled, NULL); }
Test(nesting, graphs_in_a_model, .timeout = 60) { on_small_stack(deep_graphs, NULL); }
Test(nesting, types_in_a_model, .timeout = 60) { on_small_stack(deep_types, NULL); }
Test(nesting, functions_in_a_model, .timeout = 300) { on_small_stack(deep_functions, NULL); }
