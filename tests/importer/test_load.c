/* SPDX-License-Identifier: Apache-2.0 */
/* Models -> graphs: each case makes a message and says what the graph prints as, or which error names what. */
#include "messages.h"

#include <criterion/criterion.h>

#define TYPE(name) ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__##name

typedef struct Case {
    const char *must; /* what must hold */
    Model *(*make)(void);
    StatusCode code;
    const char *wanted; /* the graph's text from its first line on, or what the message says */
} Case;

static const float ones[4] = {1, 1, 1, 1};

static Model *simple(void) {
    Model *m = make_model(10, "=21");
    add_input(m->graph, "x", DT_F32, "N, 2");
    add_output(m->graph, "y");
    return m;
}

/* ---- what must load ---- */

static Model *in_order(void) {
    Model *m = simple();
    add_initializer(m->graph, make_floats("w", "2, 2", ones, 4));
    add_node(m->graph, "MatMul", "x, w", "y")->name = "fc";
    return m;
}

static Model *unsorted(void) {
    Model *m = simple();
    add_node(m->graph, "Neg", "t", "y");
    add_node(m->graph, "ai.onnx:Abs", "x", "t");
    return m;
}

static Model *initializer_as_input(void) {
    Model *m = make_model(3, "ai.onnx=7");
    add_input(m->graph, "x", DT_F32, "N, 2");
    add_input(m->graph, "w", DT_F32, "2");
    add_initializer(m->graph, make_floats("w", "2", ones, 2));
    add_node(m->graph, "Add", "x, w", "y");
    add_output(m->graph, "y");
    return m;
}

static Model *unknown_dims(void) {
    Model *m = make_model(10, "=21");
    add_input(m->graph, "a", DT_I64, "?, x_1, -1");
    add_input(m->graph, "x", DT_F32, "?, ?");
    add_input(m->graph, "r", DT_F16, NULL);
    add_node(m->graph, "Identity", "x", "y");
    add_output(m->graph, "y");
    return m;
}

static Model *left_out(void) {
    Model *m = simple();
    add_node(m->graph, "Clip", "x, , x, , ", "y");
    add_node(m->graph, "LSTM", "x", ", h");
    return m;
}

static Model *constants(void) {
    Model *m = simple();
    Attribute *a = add_attribute(add_node(m->graph, "Constant", NULL, "c"), "value_floats", TYPE(FLOATS));
    a->floats = (float *)(uintptr_t)ones;
    a->n_floats = 2;
    a = add_attribute(add_node(m->graph, "Constant", NULL, "k"), "value_int", 0);
    a->has_i = 1;
    a->i = 7;
    add_node(m->graph, "Foo", "x, c, k", "y");
    return m;
}

static Model *branches(void) {
    Model *m = simple();
    add_input(m->graph, "c", DT_BOOL, "");
    add_initializer(m->graph, make_floats("k", "", ones, 1));
    GraphMessage *a = make_graph("a"), *b = make_graph("b");
    add_node(a, "Mul", "x, k", "p");
    add_output(a, "p");
    add_node(b, "Add", "z, x", "q");
    add_output(b, "q");
    NodeMessage *node = add_node(m->graph, "If", "c", "y");
    add_branch(node, "else_branch", b);
    add_branch(node, "then_branch", a);
    add_node(m->graph, "Neg", "x", "z"); /* read by the branch alone: must come first */
    return m;
}

static Model *nested(void) {
    Model *m = simple();
    GraphMessage *outer = make_graph("outer"), *inner = make_graph("inner"), *other = make_graph("other");
    add_input(outer, "i", DT_I64, "");
    add_input(outer, "go", DT_BOOL, "");
    add_node(inner, "Neg", "x", "x1");
    add_output(inner, "x1");
    add_output(other, "i");
    NodeMessage *branch = add_node(outer, "If", "go", "r");
    add_branch(branch, "then_branch", inner);
    add_branch(branch, "else_branch", other);
    add_output(outer, "go, r");
    add_branch(add_node(m->graph, "Loop", ", ", "y"), "body", outer);
    return m;
}

static Model *functions(void) {
    Model *m = make_model(10, "=21, my=1");
    add_input(m->graph, "x", DT_F32, "2");
    Function *f = add_function(m, "my", "F", "a, b", "o");
    NodeMessage *node = make_node("LeakyRelu", "a", "t");
    add_reference(node, "alpha", "slope");
    add_reference(node, "beta", "nowhere");
    add_function_node(f, node);
    add_function_node(f, make_node("Max", "t, b", "o"));
    Function *g = add_function(m, "my", "G", "a", "o");
    node = make_node("my:F", "a", "o");
    add_attribute(node, "slope", TYPE(FLOAT))->f = 0.5f;
    node->attribute[0]->has_f = 1;
    node->name = (char *)(uintptr_t) "inner";
    add_function_node(g, node);
    add_node(m->graph, "my:G", "x", "y")->name = (char *)(uintptr_t) "call";
    add_output(m->graph, "y");
    return m;
}

static Model *passthrough(void) {
    Model *m = make_model(10, "=21, my=1");
    add_input(m->graph, "x", DT_F32, "2");
    add_function(m, "my", "Same", "a", "a");
    add_node(m->graph, "my:Same", "x", "y");
    add_output(m->graph, "y");
    return m;
}

/* ---- what must not ---- */

static Model *old_ir(void) { return make_model(2, "=7"); }
static Model *new_ir(void) { return make_model(99, "=7"); }
static Model *new_opset(void) { return make_model(10, "=1000"); }

static Model *one_node(const char *op, const char *inputs, const char *outputs) {
    Model *m = simple();
    add_node(m->graph, op, inputs, outputs)->name = (char *)(uintptr_t) "n";
    return m;
}
static Model *unknown_input(void) { return one_node("Conv", "x, w", "y"); }
static Model *unknown_output(void) { return one_node("Neg", "x", "z"); }
static Model *no_operator(void) { return one_node("", "x", "y"); }
static Model *no_opset(void) { return one_node("com.foo:Bar", "x", "y"); }
static Model *cycle(void) {
    Model *m = one_node("Add", "x, q", "p");
    add_node(m->graph, "Neg", "p", "q");
    return m;
}
static Model *nameless_cycle(void) {
    Model *m = cycle();
    m->graph->node[0]->name = "";
    return m;
}
static Model *defined_twice(void) {
    Model *m = one_node("Neg", "x", "y");
    add_node(m->graph, "Abs", "x", "y");
    return m;
}
static Model *no_else(void) {
    Model *m = one_node("If", "x", "y");
    add_branch(m->graph->node[0], "then_branch", make_graph("a"));
    return m;
}
static Model *two_values(void) {
    Model *m = one_node("Neg", "x", "y");
    add_attribute(m->graph->node[0], "axis", TYPE(INT))->has_f = 1;
    return m;
}
static Model *short_data(void) {
    Model *m = one_node("Neg", "x", "y");
    add_initializer(m->graph, make_floats("w", "3, 2", ones, 4));
    return m;
}
static Model *negative_dim(void) {
    Model *m = one_node("Neg", "x", "y");
    add_initializer(m->graph, make_floats("w", "-1", ones, 1));
    return m;
}
static Model *huge_dims(void) {
    Model *m = one_node("Neg", "x", "y");
    add_initializer(m->graph, make_floats("w", "4294967296, 4294967296", ones, 0));
    return m;
}
static Model *high_rank(void) {
    Model *m = one_node("Neg", "x", "y");
    add_initializer(m->graph, make_floats("w", "1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1", ones, 1));
    return m;
}
static Model *recursion(void) {
    Model *m = make_model(10, "=21, my=1");
    add_input(m->graph, "x", DT_F32, "2");
    Function *f = add_function(m, "my", "F", "a", "o");
    add_function_node(f, make_node("my:F", "a", "o"));
    add_node(m->graph, "my:F", "x", "y");
    return m;
}
/* Each function calls the next twice: 2^30 nodes. */
static Model *explosion(void) {
    Model *m = make_model(10, "=21, my=1");
    add_input(m->graph, "x", DT_F32, "2");
    for (int i = 0; i < 30; i++) {
        Function *f = add_function(m, "my", arena_format(test_arena, "F%d", i), "a", "o");
        const char *next = arena_format(test_arena, "my:F%d", i + 1);
        add_function_node(f, make_node(next, "a", "t"));
        add_function_node(f, make_node(next, "t", "o"));
    }
    add_function_node(add_function(m, "my", "F30", "a", "o"), make_node("Neg", "a", "o"));
    add_node(m->graph, "my:F0", "x", "y");
    return m;
}
static Model *deep(void) {
    Model *m = simple();
    GraphMessage *graph = m->graph;
    for (int i = 0; i < 60; i++) {
        GraphMessage *body = make_graph("b");
        add_branch(add_node(graph, "Foo", "x", NULL), "body", body);
        graph = body;
    }
    return m;
}
static Model *reference_outside(void) {
    Model *m = one_node("Neg", "x", "y");
    add_reference(m->graph->node[0], "alpha", "beta");
    return m;
}

static Model *maps(void) {
    Model *m = make_model(10, "=21, ai.onnx.ml=1");
    add_map_input(m->graph, "m", DT_I64, DT_F32, false);
    add_map_input(m->graph, "s", DT_STRING, DT_I64, true);
    add_node(m->graph, "ai.onnx.ml:CastMap", "m", "y");
    add_output(m->graph, "y, s");
    return m;
}
static Model *map_of(DType key, DType value) {
    Model *m = maps();
    add_map_input(m->graph, "other", key, value, true);
    return m;
}
static Model *map_from_floats(void) { return map_of(DT_F32, DT_F32); }
static Model *map_to_bytes(void) { return map_of(DT_STRING, DT_U8); }
static Model *map_to_unknown(void) { return map_of(DT_STRING, (DType)99); }
static Model *map_to_maps(void) {
    Model *m = maps();
    m->graph->input[0]->type->map_type->value_type = m->graph->input[1]->type;
    return m;
}
static Model *optional_map(void) {
    Model *m = maps();
    Onnx__TypeProto *map = m->graph->input[0]->type;
    m->graph->input[0]->type = ARENA_NEW(test_arena, Onnx__TypeProto);
    onnx__type_proto__init(m->graph->input[0]->type);
    m->graph->input[0]->type->optional_type = ARENA_NEW(test_arena, Onnx__TypeProto__Optional);
    onnx__type_proto__optional__init(m->graph->input[0]->type->optional_type);
    m->graph->input[0]->type->optional_type->elem_type = map;
    return m;
}

static const Case cases[] = {
    {"maps", maps, STATUS_OK,
     "graph \"g\" (m: map(i64, f32[*]), s: mapseq(string, i64[*])) -> (y, s) {\n"
     "  y = onnx \"ai.onnx.ml\" CastMap@1 m # from CastMap#0\n}\n"},
    {"maps from floats", map_from_floats, STATUS_UNSUPPORTED, "input \"other\": maps from float32 to float32"},
    {"maps to bytes", map_to_bytes, STATUS_UNSUPPORTED, "input \"other\": maps from string to uint8"},
    {"maps to an element type that does not exist", map_to_unknown, STATUS_INVALID, "input \"other\": "},
    {"maps to maps", map_to_maps, STATUS_UNSUPPORTED, "input \"m\": maps to anything but tensors"},
    {"optional maps", optional_map, STATUS_UNSUPPORTED, "input \"m\": optional maps"},
    {"a model loads with its names, shapes and origins", in_order, STATUS_OK,
     "graph \"g\" (x: f32[N, 2]) -> (y) {\n  w = constant f32[2, 2] {1, 1, 1, 1}\n  y = onnx MatMul@21 x, w # from "
     "fc\n}\n"},
    {"unsorted nodes are sorted, ai.onnx is the standard's domain", unsorted, STATUS_OK,
     "graph \"g\" (x: f32[N, 2]) -> (y) {\n  t = onnx Abs@21 x # from Abs#1\n  y = onnx Neg@21 t # from Neg#0\n}\n"},
    {"an initializer that is also an input is a constant", initializer_as_input, STATUS_OK,
     "graph \"g\" (x: f32[N, 2]) -> (y) {\n  w = constant f32[2] {1, 1}\n  y = onnx Add@7 x, w # from Add#0\n}\n"},
    {"unknown dims get symbols that no named dim has", unknown_dims, STATUS_OK,
     "graph \"g\" (a: i64[a_0, x_1, a_2], x: f32[x_0, x_1_1], r: f16[*]) -> (y) {\n"
     "  y = onnx Identity@21 x # from Identity#0\n}\n"},
    {"empty names are left out, trailing inputs dropped", left_out, STATUS_OK,
     "graph \"g\" (x: f32[N, 2]) -> (y) {\n  y = onnx Clip@21 x, _, x # from Clip#0\n"
     "  _, h = onnx LSTM@21 x # from LSTM#1\n}\n"},
    {"Constant nodes are constants", constants, STATUS_OK,
     "graph \"g\" (x: f32[N, 2]) -> (y) {\n  c = constant f32[2] {1, 1}\n  k = constant i64[] 7\n"
     "  y = onnx Foo@21 x, c, k # from Foo#2\n}\n"},
    {"branches share their captures, outer constants are constants inside", branches, STATUS_OK,
     "graph \"g\" (x: f32[N, 2], c: bool[]) -> (y) {\n"
     "  z = onnx Neg@21 x # from Neg#1\n"
     "  y = onnx If@21 c, x, z captures 2 graph \"a\" (x: f32[N, 2], z: none[*]) -> (p) { # from If#0\n"
     "    k = constant f32[] 1\n    p = onnx Mul@21 x, k # from Mul#0\n"
     "  } graph \"b\" (x: f32[N, 2], z: none[*]) -> (q) {\n"
     "    q = onnx Add@21 z, x # from Add#0\n  }\n}\n"},
    {"captures pass through nested subgraphs", nested, STATUS_OK,
     "graph \"g\" (x: f32[N, 2]) -> (y) {\n"
     "  y = onnx Loop@21 x captures 1 graph \"outer\" (i: i64[*], go: bool[*], x: f32[N, 2]) -> (go, r) { # from "
     "Loop#0\n"
     "    r = onnx If@21 go, x, i captures 2 graph \"inner\" (x: f32[N, 2], i: i64[*]) -> (x1) { # from If#0\n"
     "      x1 = onnx Neg@21 x # from Neg#0\n"
     "    } graph \"other\" (x: f32[N, 2], i: i64[*]) -> (i) {\n    }\n  }\n}\n"},
    {"functions take their calls' places", functions, STATUS_OK,
     "graph \"g\" (x: f32[2]) -> (y) {\n"
     "  call/inner/t = onnx LeakyRelu@21 x {alpha = 0.5} # from call, inner, LeakyRelu#0\n"
     "  y = onnx Max@21 call/inner/t # from call, inner, Max#1\n}\n"},
    {"a function may return its input, under the call's name", passthrough, STATUS_OK,
     "graph \"g\" (x: f32[2]) -> (x as y) {\n}\n"},
    {"an IR version before 3 is not supported", old_ir, STATUS_UNSUPPORTED, "IR version 2"},
    {"an IR version of the future is not supported", new_ir, STATUS_UNSUPPORTED, "IR version 99"},
    {"an opset of the future is not supported", new_opset, STATUS_UNSUPPORTED, "opset 1000"},
    {"an unknown input is named", unknown_input, STATUS_INVALID,
     "model: node \"n\" (Conv): input \"w\" is not defined"},
    {"an unknown output is named", unknown_output, STATUS_INVALID, "output \"y\" of graph \"g\" is not defined"},
    {"a node without operator is an error", no_operator, STATUS_INVALID, "\"n\" names no operator"},
    {"a domain must be imported", no_opset, STATUS_INVALID, "\"com.foo\""},
    {"a cycle names a node on it", cycle, STATUS_INVALID, "node \"n\" (Add): its inputs depend on its own outputs"},
    {"one without a name by its operator and place", nameless_cycle, STATUS_INVALID,
     "node \"Add#0\" (Add): its inputs"},
    {"a name is defined once", defined_twice, STATUS_INVALID, "\"y\" is defined twice"},
    {"If has two branches", no_else, STATUS_INVALID, "graph \"else_branch\" is missing"},
    {"an attribute has one value, of its type", two_values, STATUS_INVALID, "attribute \"axis\""},
    {"an initializer holds what its shape asks for", short_data, STATUS_INVALID, "initializer \"w\": its shape"},
    {"sizes are not negative", negative_dim, STATUS_INVALID, "initializer \"w\""},
    {"sizes do not overflow", huge_dims, STATUS_INVALID, "initializer \"w\""},
    {"a rank above the limit is not supported", high_rank, STATUS_UNSUPPORTED, "17 dimensions"},
    {"a function that calls itself is named", recursion, STATUS_INVALID,
     "function \"F\" of domain \"my\" calls itself"},
    {"functions that grow without bound are refused", explosion, STATUS_UNSUPPORTED, "too large"},
    {"nesting is bounded", deep, STATUS_UNSUPPORTED, "nests deeper"},
    {"references stand in functions alone", reference_outside, STATUS_INVALID, "does not stand in a function"},
};

static void check_text(const Case *c, Graph *graph) {
    Text printed = text_make(graph->arena);
    graph_print(&printed, graph);
    const char *from = strstr(printed.data, "graph ");
    cr_expect_str_eq(from, c->wanted, "%s\n%s", c->must, from);
    Status status = graph_verify(graph, LEVEL_ONNX);
    cr_expect_null(status, "%s: %s", c->must, status_message(status));
    status_free(status);
}

Test(importer, models) {
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const Case *c = &cases[i];
        test_arena = arena_create(0);
        size_t size;
        const void *bytes = pack(&c->make()->base, &size);
        Graph *graph;
        Status status = import_memory(bytes, size, NULL, NULL, &graph);
        cr_expect_eq(status_code(status), c->code, "%s: %s", c->must, status_message(status));
        if (!status)
            check_text(c, graph);
        else
            cr_expect(strstr(status_message(status), c->wanted), "%s: %s", c->must, status_message(status));
        status_free(status);
        graph_destroy(graph);
        arena_destroy(test_arena);
    }
}

Test(importer, any_cut_of_a_model_is_refused_or_loads) {
    test_arena = arena_create(0);
    size_t size;
    const char *bytes = pack(&functions()->base, &size);
    for (size_t cut = 0; cut < size; cut++) {
        Graph *graph;
        Status status = import_memory(bytes, cut, NULL, NULL, &graph);
        cr_expect(status_code(status) == STATUS_OK || status_code(status) == STATUS_INVALID, "cut at %zu: %s", cut,
                  status_message(status));
        status_free(status);
        graph_destroy(graph);
    }
    arena_destroy(test_arena);
}

Test(importer, a_small_arena_gives_out_of_memory) {
    test_arena = arena_create(0);
    size_t size;
    const char *bytes = pack(&functions()->base, &size);
    int loaded = 0;
    for (size_t limit = 256; limit <= 1 << 20; limit *= 2) {
        Graph *graph;
        ImportOptions options = {.arena_limit = limit};
        Status status = import_memory(bytes, size, NULL, &options, &graph);
        loaded += !status;
        cr_expect(!status || status_code(status) == STATUS_FAULT);
        status_free(status);
        graph_destroy(graph);
    }
    cr_expect_gt(loaded, 0);
    arena_destroy(test_arena);
}
