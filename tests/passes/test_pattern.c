/* SPDX-License-Identifier: Apache-2.0 */
/* Patterns: what the parser refuses and where, and at which places of graphs a pattern holds. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>

#include "passes/pattern/pattern.h"

/* --- parsing ------------------------------------------------------------------------------------------------------ */
typedef struct Refused {
    const char *name, *text, *message;
} Refused;

static const Refused refused[] = {
    {"nothing", "", "p: line 1, column 1: the text ends where \"(\" is expected"},
    {"no nodes", "(x) -> (y) {}", "p: line 1, column 1: a pattern without nodes"},
    {"no end", "(x) -> (y) {\n  y = Relu(x)", "p: line 2, column 14: the text ends where \"}\" or a node is expected"},
    {"text behind it", "(x) -> (y) { y = Relu(x) } z", "p: line 1, column 28: the end of the pattern is expected"},
    {"a value that is not there", "(x) -> (y) {\n  y = Add(x, z)\n}",
     "p: line 2, column 14: \"z\" is neither an input nor made before"},
    {"read before it is made", "(x) -> (y) { y = Relu(z) z = Relu(x) }",
     "p: line 1, column 23: \"z\" is neither an input nor made before"},
    {"made twice", "(x) -> (y) { y = Relu(x) y = Abs(x) }", "p: line 1, column 26: \"y\" is made twice"},
    {"an output that is an input", "(x) -> (x) { y = Relu(x) }",
     "p: line 1, column 9: output \"x\" is made by no node"},
    {"an output that nothing makes", "(x) -> (y, z) { y = Relu(x) }",
     "p: line 1, column 12: output \"z\" is made by no node"},
    {"an output twice", "(x) -> (y, y) { y = Relu(x) }", "p: line 1, column 12: output \"y\" stands here twice"},
    {"an input that nothing reads", "(x, z) -> (y) { y = Relu(x) }",
     "p: line 1, column 5: input \"z\" is read by no node"},
    {"a value that nothing reads", "(x) -> (y) { z = Abs(x) y = Relu(x) }",
     "p: line 1, column 14: \"z\" is neither read nor an output"},
    {"nodes apart", "(x, z) -> (y, v) { y = Relu(x) v = Relu(z) }",
     "p: line 1, column 20: this node has no value in common with those after it"},
    {"no result", "(x) -> (y) { _ = Relu(x) }", "p: line 1, column 14: a node without a result"},
    {"a bad attribute", "(x) -> (y) { y = Relu<axis=x>(x) }",
     "p: line 1, column 28: a number, a list of numbers, a string or \"$NAME\" is expected"},
    {"an attribute twice", "(x) -> (y) { y = Softmax<axis=1, axis=2>(x) }",
     "p: line 1, column 34: attribute \"axis\" is given twice"},
    {"a string without an end", "(x) -> (y) { y = Gelu<approximate=\"tanh>(x) }",
     "p: line 1, column 35: a string that does not end on its line"},
    {"a number that is none", "(x) -> (y) { y = Add(x, 1.2.3) }", "p: line 1, column 25: \"1.2.3\" is not a number"},
    {"a capture without a name", "(x) -> (y) { y = Add(x, $) }",
     "p: line 1, column 25: a name is expected behind \"$\""},
    {"a condition on what is no input", "(x) -> (y) { t = Relu(x) t != Abs y = Abs(t) }",
     "p: line 1, column 26: \"t\" is no input of the pattern"},
    {"no operator", "(x) -> (y) { y = (x) }", "p: line 1, column 18: an operator is expected"},
    {"a domain without an operator", "(x) -> (y) { y = com.(x) }", "p: line 1, column 22: an operator is expected"},
};

Test(pattern, refused_with_the_place) {
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        Arena *arena = arena_create(0);
        const Pattern *pattern;
        Status status = pattern_parse(arena, refused[i].text, "p", &pattern);
        cr_assert(status, "%s: accepted", refused[i].name);
        cr_expect_str_eq(status_message(status), refused[i].message, "%s: %s", refused[i].name, status_message(status));
        cr_expect_eq(status_code(status), STATUS_INVALID);
        status_free(status);
        arena_destroy(arena);
    }
}

Test(pattern, limits) {
    Arena *arena = arena_create(0);
    const Pattern *pattern;
    Text text = text_make(arena);
    text_add(&text, "(v0) -> (v65) {");
    for (int i = 0; i < 65; i++) text_add(&text, "v%d = Relu(v%d)\n", i + 1, i);
    text_add(&text, "}");
    Status status = pattern_parse(arena, text.data, "p", &pattern);
    cr_assert(status);
    cr_expect_str_eq(status_message(status), "p: line 65, column 1: more than 64 nodes");
    status_free(status);
    char *large = arena_alloc(arena, 70000);
    memset(large, ' ', 69999);
    status = pattern_parse(arena, large, "p", &pattern);
    cr_assert(status);
    cr_expect_str_eq(status_message(status), "p: more than 65536 bytes");
    status_free(status);
    arena_destroy(arena);
}

/* --- matching --- */
typedef struct Held {
    const char *name, *pattern, *graph;
    const char *found; /* "NODES: INPUTS -> OUTPUTS; CAPTURES" of each place in the order of the last nodes */
} Held;

#define G(body) "opset 17\ngraph (x: f32[b, 8], w: f32[8], v: f32[b, 8]) -> (y) {\n" body "\n}\n"
#define TWO "two = constant f32[] 2\n"

static const Held held[] = {
    {"one node", "(a) -> (r) { r = Relu(a) }", G("y = onnx Relu@17 x"), "1: x -> y;"},
    {"of another operator", "(a) -> (r) { r = Relu(a) }", G("y = onnx Abs@17 x"), ""},
    {"of another domain", "(a) -> (r) { r = Gelu(a) }", G("y = onnx \"com.microsoft\" Gelu@1 x"), ""},
    {"with a domain", "(a) -> (r) { r = com.microsoft.Gelu(a) }", G("y = onnx \"com.microsoft\" Gelu@1 x"),
     "1: x -> y;"},
    {"with the standard's domain", "(a) -> (r) { r = ai.onnx.Relu(a) }", G("y = onnx Relu@17 x"), "1: x -> y;"},
    {"several places", "(a) -> (r) { r = Relu(a) }", G("t = onnx Relu@17 x\ny = onnx Relu@17 t"),
     "1: x -> t; 1: t -> y;"},
    {"a chain", "(a) -> (r) { t = Abs(a) r = Relu(t) }", G("t = onnx Abs@17 x\ny = onnx Relu@17 t"), "2: x -> y;"},
    {"what is inside is read outside", "(a) -> (r) { t = Abs(a) r = Relu(t) }",
     G("t = onnx Abs@17 x\nr = onnx Relu@17 t\ny = onnx Add@17 r, t"), ""},
    {"what is offered may be read outside", "(a) -> (r, t) { t = Abs(a) r = Relu(t) }",
     G("t = onnx Abs@17 x\nr = onnx Relu@17 t\ny = onnx Add@17 r, t"), "2: x -> r, t;"},
    {"what is inside is the graph's output", "(a) -> (r) { t = Abs(a) r = Relu(t) }",
     "graph (x: f32[8]) -> (y, t) {\nt = onnx Abs@17 x\ny = onnx Relu@17 t\n}", ""},
    {"operands swapped", "(a, b) -> (r) { t = Relu(a) r = Add(t, b) }", G("t = onnx Relu@17 x\ny = onnx Add@17 v, t"),
     "2: x, v -> y;"},
    {"operands that do not swap", "(a, b) -> (r) { t = Relu(a) r = Sub(t, b) }",
     G("t = onnx Relu@17 x\ny = onnx Sub@17 v, t"), ""},
    {"swapped twice, with a choice that is gone back on",
     "(a, b) -> (r) { s = Abs(a) t = Neg(b) u = Mul(s, t) r = Add(u, s) }",
     G("t = onnx Neg@17 v\ns = onnx Abs@17 x\nu = onnx Mul@17 t, s\ny = onnx Add@17 s, u"), "4: x, v -> y;"},
    {"the same value twice", "(a) -> (r) { r = Mul(a, a) }", G("y = onnx Mul@17 x, x"), "1: x -> y;"},
    {"not the same value", "(a) -> (r) { r = Mul(a, a) }", G("y = onnx Mul@17 x, v"), ""},
    {"two inputs may be one value", "(a, b) -> (r) { r = Mul(a, b) }", G("y = onnx Mul@17 x, x"), "1: x, x -> y;"},
    {"an input that is made inside", "(a, b) -> (r) { t = Relu(a) r = Add(t, b) }",
     G("t = onnx Relu@17 x\ny = onnx Add@17 t, t"), ""},
    {"a number", "(a) -> (r) { r = Pow(a, 2) }", G(TWO "y = onnx Pow@17 x, two"), "1: x -> y;"},
    {"another number", "(a) -> (r) { r = Pow(a, 3) }", G(TWO "y = onnx Pow@17 x, two"), ""},
    {"a number that is no constant", "(a) -> (r) { r = Pow(a, 2) }", G("y = onnx Pow@17 x, w"), ""},
    {"a number in the type of the graph", "(a) -> (r) { r = Mul(a, 0.1) }",
     G("c = constant f16[1, 1] {0.1}\ny = onnx Mul@17 x, c"), "1: x -> y;"},
    {"a whole number does not round", "(a) -> (r) { r = Add(a, 2.5) }", G("c = constant i64[] 2\ny = onnx Add@17 x, c"),
     ""},
    {"a list", "(a) -> (r) { r = Reshape(a, [0, -1]) }", G("c = constant i64[2] {0, -1}\ny = onnx Reshape@17 x, c"),
     "1: x -> y;"},
    {"a Constant node", "(a) -> (r) { r = Mul(a, 0.5) }",
     G("c = onnx Constant@17 {value_float = 0.5}\ny = onnx Mul@17 x, c"), "1: x -> y;"},
    {"infinity", "(a) -> (r) { r = Max(a, -inf) }", G("c = constant f32[] -inf\ny = onnx Max@17 x, c"), "1: x -> y;"},
    {"a capture", "(a) -> (r) { r = Mul($c, a) }", G("c = constant f32[1] {0.25}\ny = onnx Mul@17 x, c"),
     "1: x -> y; c=0.25"},
    {"no capture of several elements", "(a) -> (r) { r = Mul(a, $c) }",
     G("c = constant f32[2] {1, 2}\ny = onnx Mul@17 x, c"), ""},
    {"a capture twice, equal", "(a) -> (r) { t = Mul(a, $c) r = Add(t, $c) }",
     G(TWO "c = constant f32[1] {2}\nt = onnx Mul@17 x, c\ny = onnx Add@17 t, two"), "2: x -> y; c=2"},
    {"a capture twice, not equal", "(a) -> (r) { t = Mul(a, $c) r = Add(t, $c) }",
     G(TWO "c = constant f32[1] {3}\nt = onnx Mul@17 x, c\ny = onnx Add@17 t, two"), ""},
    {"an input that is not made by an operator", "(a) -> (r) { a != Sub r = Relu(a) }",
     G("t = onnx Sub@17 x, v\nu = onnx Relu@17 t\ny = onnx Relu@17 u"), "1: u -> y;"},
    {"nor by one of a domain", "(a) -> (r) { r = Relu(a) a != com.microsoft.Gelu }",
     G("t = onnx \"com.microsoft\" Gelu@1 x\ny = onnx Relu@17 t"), ""},
    {"an attribute", "(a) -> (r) { r = Softmax<axis=1>(a) }", G("y = onnx Softmax@17 x {axis = 1}"), "1: x -> y;"},
    {"an axis from the end", "(a) -> (r) { r = Softmax<axis=-1>(a) }", G("y = onnx Softmax@17 x {axis = 1}"),
     "1: x -> y;"},
    {"another axis", "(a) -> (r) { r = Softmax<axis=-1>(a) }", G("y = onnx Softmax@17 x {axis = 0}"), ""},
    {"an attribute left out in the graph", "(a) -> (r) { r = Softmax<axis=-1>(a) }", G("y = onnx Softmax@17 x"),
     "1: x -> y;"},
    {"its default was another once", "(a) -> (r) { r = Softmax<axis=-1>(a) }", G("y = onnx Softmax@11 x"), ""},
    {"an attribute left out in the pattern", "(a) -> (r) { r = Softmax(a) }", G("y = onnx Softmax@17 x {axis = 0}"),
     "1: x -> y;"},
    {"a captured attribute", "(a, s) -> (r) { r = RMSNormalization<epsilon=$e>(a, s) }",
     G("y = onnx RMSNormalization@23 x, w {epsilon = 0.5}"), "1: x, w -> y; e=0.5"},
    {"a captured default", "(a, s) -> (r) { r = RMSNormalization<epsilon=$e>(a, s) }",
     G("y = onnx RMSNormalization@23 x, w"), "1: x, w -> y; e=1e-05"},
    {"a string", "(a) -> (r) { r = Gelu<approximate=\"tanh\">(a) }", G("y = onnx Gelu@20 x {approximate = \"tanh\"}"),
     "1: x -> y;"},
    {"another string", "(a) -> (r) { r = Gelu<approximate=\"tanh\">(a) }", G("y = onnx Gelu@20 x"), ""},
    {"a type by its name", "(a) -> (r) { r = Cast<to=\"float16\">(a) }", G("y = onnx Cast@17 x {to = 10}"),
     "1: x -> y;"},
    {"axes as an attribute", "(a) -> (r) { r = ReduceMean<axes=[-1]>(a) }", G("y = onnx ReduceMean@17 x {axes = [1]}"),
     "1: x -> y;"},
    {"axes as an input", "(a) -> (r) { r = ReduceMean<axes=[-1], keepdims=1>(a) }",
     G("c = constant i64[1] {-1}\ny = onnx ReduceMean@18 x, c"), "1: x -> y;"},
    {"any axes as an input", "(a) -> (r) { r = ReduceMean(a) }",
     G("c = constant i64[1] {0}\ny = onnx ReduceMean@18 x, c"), "1: x -> y;"},
    {"axes that are not constant", "(a) -> (r) { r = ReduceMean(a) }",
     "graph (x: f32[8], c: i64[1]) -> (y) {\ny = onnx ReduceMean@18 x, c\n}", ""},
    {"an input as an attribute", "(a) -> (r) { r = Clip(a, 0, 6) }", G("y = onnx Clip@6 x {min = 0.0, max = 6.0}"),
     "1: x -> y;"},
    {"an input left out", "(a) -> (r) { r = Clip(a, _, 6) }", G("c = constant f32[] 6\ny = onnx Clip@17 x, _, c"),
     "1: x -> y;"},
    {"an input left out, with nothing there", "(a) -> (r) { r = Clip(a, , 6) }",
     G("c = constant f32[] 6\ny = onnx Clip@17 x, _, c"), "1: x -> y;"},
    {"an input too many", "(a) -> (r) { r = d.Foo(a) }", G("y = onnx \"d\" Foo@1 x, v"), ""},
    {"an input too few", "(a, b) -> (r) { r = d.Foo(a, b) }", G("y = onnx \"d\" Foo@1 x"), ""},
    {"several outputs", "(a) -> (r) { s, t = Split(a) r = Add(t, s) }",
     G("s, t = onnx Split@17 x\ny = onnx Add@17 s, t"), "2: x -> y;"},
    {"the second output alone", "(a) -> (r) { _, t = Split(a) r = Relu(t) }",
     G("s, t = onnx Split@17 x\ny = onnx Relu@17 t"), "2: x -> y;"},
    {"an unnamed output that is read", "(a) -> (r) { _, t = Split(a) r = Relu(t) }",
     G("s, t = onnx Split@17 x\nu = onnx Relu@17 t\ny = onnx Add@17 s, u"), ""},
    {"an output that is not asked for", "(a, s) -> (r, i) { r, i = SimplifiedLayerNormalization(a, s) }",
     G("y = onnx SimplifiedLayerNormalization@1 x, w"), "1: x, w -> y, _;"},
    {"inputs and outputs that this pattern lacks", "(_, a) -> (_, r) { r = Relu(a) }", G("y = onnx Relu@17 x"),
     "1: _, x -> _, y;"},
    {"two results side by side", "(a) -> (p, q) { p = Relu(a) q = Abs(a) }",
     G("q = onnx Abs@17 x\np = onnx Relu@17 x\ny = onnx Add@17 p, q"), "2: x -> p, q;"},
    {"comments, any line ends", "# one\n(a) -> (r) {\r\n\tr = Relu(a); # two\n}\n", G("y = onnx Relu@17 x"),
     "1: x -> y;"},
    {"no node with a body", "(a, c) -> (r) { r = If(c, a) }",
     "graph (x: f32[8], c: bool[]) -> (y) {\ny = onnx If@17 c, x captures 1 graph (x: f32[8]) -> (x) {\n} graph (x: "
     "f32[8]) -> (x) {\n}\n}",
     ""},
};

static void add_values(Text *text, Value *const *values, int count) {
    for (int i = 0; i < count; i++) text_add(text, "%s%s", i ? ", " : "", values[i] ? values[i]->name : "_");
}

static const char *places(Arena *arena, const Pattern *pattern, Graph *graph) {
    Text text = text_make(arena);
    FOR_EACH_NODE(node, graph) {
        PatternMatch match;
        if (!pattern_match(pattern, arena, node, &match)) continue;
        text_add(&text, "%s%d: ", text.size ? " " : "", match.node_count);
        add_values(&text, match.inputs, pattern_input_count(pattern));
        text_add(&text, " -> ");
        add_values(&text, match.outputs, pattern_output_count(pattern));
        text_add(&text, ";");
        for (int i = 0; i < pattern_capture_count(pattern); i++)
            text_add(&text, " %s=%g", pattern_capture_name(pattern, i), match.captures[i]);
    }
    return text.data;
}

static void check(const Held *c) {
    Graph *graph;
    Arena *arena = arena_create(0);
    const Pattern *pattern;
    Status status = graph_parse(c->graph, &graph);
    cr_assert_null(status, "%s: graph: %s", c->name, status_message(status));
    status = pattern_parse(arena, c->pattern, "pattern", &pattern);
    cr_assert_null(status, "%s: %s", c->name, status_message(status));
    const char *found = places(arena, pattern, graph);
    cr_expect_str_eq(found, c->found, "%s: found \"%s\", not \"%s\"", c->name, found, c->found);
    arena_destroy(arena);
    graph_destroy(graph);
}

Test(pattern, holds_where_it_should) {
    for (size_t i = 0; i < sizeof held / sizeof *held; i++) check(&held[i]);
}

/* --- hostile graphs --- */

/* Every sum may be read either way round, and nowhere is there the Relu that the pattern ends in: 2^30 ways. */
Test(pattern, many_ways_are_not_all_tried, .timeout = 60) {
    Arena *arena = arena_create(0);
    Graph *graph;
    Text text = text_make(arena), ways = text_make(arena);
    text_add(&text, "graph (x0: f32[8]) -> (x40) {\n");
    for (int i = 0; i < 40; i++) text_add(&text, "x%d = onnx Add@17 x%d, x%d\n", i + 1, i, i);
    text_add(&text, "}");
    text_add(&ways, "(a, b) -> (r) { v0 = Relu(a)\n");
    for (int i = 0; i < 30; i++) text_add(&ways, "v%d = Add(v%d, b)\n", i + 1, i);
    text_add(&ways, "r = Add(v30, b) }");
    const Pattern *pattern;
    cr_assert_null(graph_parse(text.data, &graph));
    Status status = pattern_parse(arena, ways.data, "pattern", &pattern);
    cr_assert_null(status, "%s", status_message(status));
    cr_expect_str_eq(places(arena, pattern, graph), "");
    graph_destroy(graph);
    arena_destroy(arena);
}

/* A value with very many readers, one of which is sought. */
Test(pattern, many_readers, .timeout = 60) {
    Arena *arena = arena_create(0);
    Graph *graph;
    Text text = text_make(arena);
    text_add(&text, "graph (x: f32[8]) -> (y) {\n");
    for (int i = 0; i < 20000; i++) text_add(&text, "a%d = onnx Abs@17 x\n", i);
    text_add(&text, "y = onnx Relu@17 x\n}");
    const Pattern *pattern;
    cr_assert_null(graph_parse(text.data, &graph));
    cr_assert_null(pattern_parse(arena, "(a) -> (p, q) { p = Exp(a) q = Abs(a) }", "pattern", &pattern));
    cr_expect_str_eq(places(arena, pattern, graph), "");
    graph_destroy(graph);
    arena_destroy(arena);
}
