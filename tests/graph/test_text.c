/* SPDX-License-Identifier: Apache-2.0 */
/* The text form: what must read back as it was printed, and what must be refused with its place. */
#include <criterion/criterion.h>

#include "graph/graph.h"

static const struct {
    const char *name, *text;
} round_trips[] = {
    {"the empty graph", "graph () -> () {\n}\n"},
    {"inputs, outputs and symbolic sizes",
     "graph \"net\" (x: f32[b, s, 1024], r: f32[b*s, 3]) -> (x, r as out) {\n}\n"},
    {"opsets", "opset 17\nopset \"com.microsoft\" 1\ngraph () -> () {\n}\n"},
    {"names that need quotes", "graph \"a\\\"b\\n\" (%\"x:0\": f32[2], %\"graph\": f32[2], %\"\": f32[]) -> (/y/z.1) "
                               "{\n  /y/z.1: f32[2] = add %\"x:0\", %\"graph\"\n}\n"},
    {"primitives with attributes and origins",
     "graph (x: f32[b, 4]) -> (v3) {\n  c0 = constant f32[] 1e-05\n  v1: f32[b, 4] = add x, c0 # from Add_3\n"
     "  v2: f32[b, 1] = reduce_sum v1 {axes = [1]} # from /m/Mean#2, \"odd, name\"\n"
     "  v3: f32[2, b] = reshape v2 {shape = (2, b)}\n}\n"},
    {"every kind of attribute",
     "graph () -> () {\n  a: f32[1] = onnx Foo@1 {i = -3, f = 1.0, g = 1e-05, inf = inf, n = nan, s = \"q\\\"\\x00\", "
     "is = [1, 2], none = [], "
     "fs = [1.0, 2.5], nofs = floats [], ss = [\"a\", \"b\"], noss = strings [], t = tensor i64[2] {1, 2}, ts = "
     "[tensor f32[] 1, "
     "tensor bool[1] {true}], nots = tensors [], d = (2, b*3), nod = (), to = f32, %\"odd name\" = 1}\n}\n"},
    {"literals of every class",
     "graph () -> (a, b, c, d, e, f, g, h) {\n  a = constant u64[1] {18446744073709551615}\n  b = constant i4[2] {-8, "
     "7}\n"
     "  c = constant bool[2] {true, false}\n  d = constant string[2] {\"\", \"x\\xff\"}\n  e = constant c64[1] {(1, "
     "-2.5)}\n"
     "  f = constant f64[3] {0.1, -inf, nan}\n  g = constant f16[2] {1.5, 65504}\n  h = constant f32[0, 3] {}\n}\n"},
    {"absent operands and outputs, unknown types",
     "graph (x: none[*]) -> (y) {\n  y, _, z: f32[*] = onnx \"com.microsoft\" Foo@1 x, _, x\n  = onnx Sink@2 z\n  w = "
     "onnx Source@1\n}\n"},
    {"sequences, optionals and known elements", "graph (q: seq(f32[*]), o: opt(i64[2]), p: optseq(string[])) -> (n) "
                                                "{\n  n: i64[2]<b, 768> = onnx Shape@13 q\n}\n"},
    {"anchors, hosts and regions",
     "graph (x: f32[b, 4]) -> (t, n) {\n  y: f32[b, 4] = anchor matmul x, x {trans_b = 1} # from MatMul_0\n"
     "  t: f32[b, 4] = region x, y graph (p0: f32[b, 4], p1: f32[b, 4]) -> (q) { # from Add_1, Relu_2\n    q: f32[b, "
     "4] = add p0, p1\n  }\n"
     "  n: i64[2, n_0] = host NonZero@13 t\n}\n"},
    {"states", "graph (x: f32[2], w: f32[2], h: f32[2], k: f32[p, 3], c: f32[r, 2]) -> (x, w over w, h keeps h, k "
               "keeps k appended "
               "1 capacity 64, c keeps c room 0) {\n}\n"},
    {"control flow with captures", "graph (c: bool[], x: f32[2]) -> (y) {\n  y: f32[2] = host If@13 c, x captures 1 "
                                   "graph \"then\" (x: f32[2]) -> (t) { # from If_0\n"
                                   "    t: f32[2] = neg x\n  } graph \"else\" (x: f32[2]) -> (x) {\n  }\n}\n"},
    {"maps", "graph (m: map(i64, f32[*]), s: mapseq(string, string[*])) -> (s, z) {\n"
             "  z: mapseq(i64, f32[*]) = onnx ZipMap@1 m\n}\n"},
};

static char *printed(Graph *graph) {
    Text text = text_make(graph->arena);
    graph_print(&text, graph);
    return text.data;
}

Test(text, round_trips) {
    for (size_t i = 0; i < sizeof round_trips / sizeof *round_trips; i++) {
        Graph *graph = NULL;
        Status status = graph_parse(round_trips[i].text, &graph);
        cr_assert(!status, "%s: %s", round_trips[i].name, status_message(status));
        cr_expect_str_eq(printed(graph), round_trips[i].text, "%s", round_trips[i].name);
        graph_destroy(graph);
    }
}

Test(text, comments_and_line_breaks_are_free_inside_brackets) {
    Graph *graph = NULL;
    Status status = graph_parse("# a test\n\ngraph (\n  x: f32[2], # in\n  z: f32[2]\n) -> (\n  y) {\n\n  y: f32[2] = "
                                "add x, z {\n    a = 1,\n    b = [1,\n 2]} # why\n  # done\n}\n# end\n",
                                &graph);
    cr_assert(!status, "%s", status_message(status));
    cr_expect_str_eq(printed(graph),
                     "graph (x: f32[2], z: f32[2]) -> (y) {\n  y: f32[2] = add x, z {a = 1, b = [1, 2]}\n}\n");
    graph_destroy(graph);
}

static const struct {
    const char *text, *message;
} mistakes[] = {
    {"", "1:1: \"graph\" is expected"},
    {"graph", "1:6: the text ends where \"(\" is expected"},
    {"graph () -> () {", "1:17: the text ends inside a graph"},
    {"graph () -> () {\n} x", "2:3: the end of the text is expected"},
    {"graph () -> (y) {\n}", "1:14: output y is not defined"},
    {"graph () -> () {\n  y: f32[2] = add x, x\n}", "2:19: value x is not defined before"},
    {"graph () -> () {\n  y: f32[2] = neg y\n}", "2:19: value y is not defined before"},
    {"graph (x: f32[2], x: f32[2]) -> () {\n}", "1:19: value x is defined twice"},
    {"graph (x: f32[2]) -> () {\n  y, y = onnx A@1 x\n}", "2:6: value y is defined twice"},
    {"graph (x: f32[2]) -> () {\n  y: f32[2] = frobnicate x\n}", "2:15: no primitive is called frobnicate"},
    {"graph (x: f99[2]) -> () {\n}", "1:11: a type is expected"},
    {"graph (x: f32[2) -> () {\n}", "1:16: \",\" is expected"},
    {"graph (x: f32[,]) -> () {\n}", "1:15: a size is expected"},
    {"graph (x: f32[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1]) -> () {\n}", "a rank of 17 is above 16"},
    {"graph (x: i64[2]<1>) -> () {\n}", "1:17: elements that do not fit the type"},
    {"graph (x: map(f32, f32[*])) -> () {\n}", "1:15: the type of a map's keys is expected"},
    {"graph (x: map(i64)) -> () {\n}", "1:18: \",\" is expected"},
    {"graph (x: mapseq(i64, i8[*])) -> () {\n}", "1:22: the type of a map's values is expected"},
    {"graph (x: map(i64, f32[2])) -> () {\n}", "1:19: the type of a map's values is expected"},
    {"graph () -> () {\n  c = constant f32[65] {... 0x0123456789abcdef}\n}",
     "2:16: the elements of this constant were left out"},
    {"graph () -> () {\n  c = constant f32[99999999999] {1}\n}", "2:16: fewer than 99999999999 elements"},
    {"graph () -> () {\n  c = constant f32[9223372036854775807, 9] {1}\n}", "2:16: an impossible shape"},
    {"graph () -> () {\n  c = constant f32[-1] {1}\n}", "2:16: an impossible shape"},
    {"graph () -> () {\n  c = constant i8[1] {128}\n}", "2:23: out of range for i8"},
    {"graph () -> () {\n  c = constant i8[2] {1}\n}", "2:24: \",\" is expected"},
    {"graph () -> () {\n  c = constant string[1] {\"a\n}", "2:27: a string that does not end"},
    {"graph () -> () {\n  c = constant string[1] {\"\\q\"}\n}", "2:28: an unknown escape"},
    {"graph () -> () {\n  a, b = constant i8[] 1\n}", "a constant has one name"},
    {"graph (x: f32[2]) -> () {\n  y = onnx A@1 x {a = 1, a = 2}\n}", "2:26: attribute a is given twice"},
    {"graph (x: f32[2]) -> () {\n  y = onnx A@1 x {a = [1, 2.0]}\n}", "2:27: a list of one kind"},
    {"graph (x: f32[2]) -> () {\n  y = onnx A@1 x captures 2\n}", "more captures than inputs"},
    {"graph (%\"a\\x00\": f32[2]) -> () {\n}", "1:9: a zero byte in a name"},
    {"graph (x: f32[2]) -> () {\n  y = onnx A@99999999999 x\n}", "2:14: out of range"},
    {"graph (x: f32[2]) -> () {\n  y = onnx A@1 x z = neg x\n}", "2:18: the end of the line is expected"},
};

Test(text, mistakes_are_named_with_their_place) {
    for (size_t i = 0; i < sizeof mistakes / sizeof *mistakes; i++) {
        Graph *graph = NULL;
        Status status = graph_parse(mistakes[i].text, &graph);
        cr_expect(status_code(status) == STATUS_INVALID, "%s", mistakes[i].text);
        cr_expect(strstr(status_message(status), mistakes[i].message), "%s: %s", mistakes[i].text,
                  status_message(status));
        status_free(status);
    }
}

Test(text, nesting_is_bounded) {
    Arena *arena = arena_create(0);
    Text text = text_make(arena);
    for (int i = 0; i < 5000; i++) text_add(&text, i ? "= onnx A@1 graph () -> () {\n" : "graph () -> () {\n");
    Graph *graph = NULL;
    Status status = graph_parse(text.data, &graph);
    cr_expect(strstr(status_message(status), "nested more than"), "%s", status_message(status));
    status_free(status);
    arena_destroy(arena);
}

/* Every cut and many single-byte changes of a text with all constructs either parse or fail; the sanitizers watch. */
Test(text, damaged_texts_never_crash) {
    static const char bytes[] = "\"%(){}[]<>,:=#@-_\n \\0a.";
    for (size_t i = 0; i < sizeof round_trips / sizeof *round_trips; i++) {
        size_t size = strlen(round_trips[i].text);
        for (size_t at = 0; at < size; at++) {
            for (size_t k = 0; k < sizeof bytes; k++) {
                char *text = strdup(round_trips[i].text);
                text[at] = bytes[k]; /* the last one is the terminator: a cut */
                Graph *graph = NULL;
                Status status = graph_parse(text, &graph);
                if (!status) {
                    status_free(graph_verify(graph, LEVEL_PARTITIONED));
                    printed(graph);
                    graph_destroy(graph);
                }
                status_free(status);
                free(text);
            }
        }
    }
}

Test(text, large_constants_differ_by_their_hash) {
    char *texts[2];
    Graph *graphs[2];
    for (int i = 0; i < 2; i++) {
        graphs[i] = graph_create(0);
        Tensor *t = tensor_new(graphs[i]->arena, DT_F32, 1, (int64_t[]){100});
        ((float *)t->data)[50] = (float)i;
        graph_add_output(graphs[i], graph_add_constant(graphs[i], "c", t));
        texts[i] = printed(graphs[i]);
        cr_expect(strstr(texts[i], "c = constant f32[100] {... 0x"), "%s", texts[i]);
    }
    cr_expect_str_neq(texts[0], texts[1]);
    for (int i = 0; i < 2; i++) graph_destroy(graphs[i]);
}

Test(text, dot_names_nodes_and_escapes) {
    Graph *graph = NULL;
    cr_assert(!graph_parse(round_trips[9].text, &graph));
    Text text = text_make(graph->arena);
    graph_print_dot(&text, graph);
    cr_expect(strstr(text.data, "digraph"));
    cr_expect(strstr(text.data, "matmul\\nMatMul_0"));
    cr_expect(strstr(text.data, "subgraph cluster_"));
    graph_destroy(graph);
}
