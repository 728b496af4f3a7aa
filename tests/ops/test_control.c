/* SPDX-License-Identifier: Apache-2.0 */
/* Control flow, sequences, optionals and text, told as text: a model, data for its inputs, and what must come out. */
#include <criterion/criterion.h>

#include "interpret.h"
#include "lowering/ops.h"
#include "skip.h"

/* data: constants called as the model's inputs, in their order, and one `want` for the model's one output. */
typedef struct Row {
    const char *name, *source, *data;
} Row;

static const Row rows[] = {
    {"if: a run-time condition takes one of two branches of other sizes",
     "graph (c: bool[], x: f32[4]) -> (y) {\n"
     "y = onnx If@21 c, x captures 1 graph \"then\" (x: f32[4]) -> (a) {\n"
     "s = constant i64[1] {1}\ne = constant i64[1] {3}\na = onnx Slice@13 x, s, e\n} graph \"else\" (x: f32[4]) -> (b) "
     "{\n"
     "b = onnx Neg@13 x\n}\n}\n",
     "c = constant bool[] true\nx = constant f32[4] {1, 2, 3, 4}\nwant = constant f32[2] {2, 3}"},
    {"if: the other one",
     "graph (c: bool[], x: f32[4]) -> (y) {\n"
     "y = onnx If@21 c, x captures 1 graph \"then\" (x: f32[4]) -> (a) {\n"
     "s = constant i64[1] {1}\ne = constant i64[1] {3}\na = onnx Slice@13 x, s, e\n} graph \"else\" (x: f32[4]) -> (b) "
     "{\n"
     "b = onnx Neg@13 x\n}\n}\n",
     "c = constant bool[] false\nx = constant f32[4] {1, 2, 3, 4}\nwant = constant f32[4] {-1, -2, -3, -4}"},
    {"if: branches of other ranks, and the one taken for good is the right one",
     "graph (x: f32[n, m]) -> (y) {\n"
     "sh = onnx Shape@15 x\none = constant i64[] 1\nm = onnx Gather@13 sh, one\nc = onnx Equal@13 m, one\n"
     "s = onnx If@21 c, x captures 1 graph \"then\" (x: f32[n, m]) -> (a) {\n"
     "axis = constant i64[1] {1}\na = onnx Squeeze@13 x, axis\n} graph \"else\" (x: f32[n, m]) -> (b) {\n"
     "b = onnx Identity@16 x\n}\ny = onnx Neg@13 s\n}\n",
     "x = constant f32[3, 1] {1, 2, 3}\nwant = constant f32[3] {-1, -2, -3}"},
    {"loop: a carried value that grows, its trip count known at run time",
     "graph (n: i64[], x: i64[1]) -> (y) {\n"
     "y = onnx Loop@21 n, _, x captures 0 graph \"body\" (i: i64[], c: bool[], v: i64[1]) -> (c, w) {\n"
     "axis = constant i64[1] {0}\nlast = onnx Unsqueeze@13 i, axis\nw = onnx Concat@13 v, last {axis = 0}\n}\n}\n",
     "n = constant i64[] 3\nx = constant i64[1] {9}\nwant = constant i64[4] {9, 0, 1, 2}"},
    {"loop: no iteration leaves the carried value as it is",
     "graph (n: i64[], x: i64[1]) -> (y) {\n"
     "y = onnx Loop@21 n, _, x captures 0 graph \"body\" (i: i64[], c: bool[], v: i64[1]) -> (c, w) {\n"
     "axis = constant i64[1] {0}\nlast = onnx Unsqueeze@13 i, axis\nw = onnx Concat@13 v, last {axis = 0}\n}\n}\n",
     "n = constant i64[] 0\nx = constant i64[1] {9}\nwant = constant i64[1] {9}"},
    {"loop: the condition that the body returns ends it; scan values are stacked",
     "graph (limit: i64[], x: f32[2]) -> (y) {\n"
     "_, y = onnx Loop@21 _, _, x, limit captures 1 graph \"body\" (i: i64[], c: bool[], v: f32[2], limit: i64[]) -> "
     "(d, w, v) {\n"
     "w = onnx Add@14 v, v\nd = onnx Less@13 i, limit\n}\n}\n",
     "limit = constant i64[] 1\nx = constant f32[2] {1, 3}\nwant = constant f32[2, 2] {1, 3, 2, 6}"},
    {"loop: nothing but a trip count",
     "graph (n: i64[]) -> (y) {\ny = onnx Loop@21 n captures 0 graph \"body\" (i: i64[], c: bool[]) -> (c, i) "
     "{\n}\n}\n",
     "n = constant i64[] 3\nwant = constant i64[3] {0, 1, 2}"},
    {"loop: scan values of no iteration keep their sizes",
     "graph (n: i64[], x: f32[2]) -> (y) {\n"
     "_, y = onnx Loop@21 n, _, x captures 0 graph \"body\" (i: i64[], c: bool[], v: f32[2]) -> (c, w, v) {\n"
     "w = onnx Add@14 v, v\n}\n}\n",
     "n = constant i64[] 0\nx = constant f32[2] {1, 3}\nwant = constant f32[0, 2] {}"},
    {"loop in a loop: the inner body sees the outer's carried size",
     "graph (n: i64[], x: f32[1]) -> (y) {\n"
     "y = onnx Loop@21 n, _, x, n captures 1 graph \"outer\" (i: i64[], c: bool[], v: f32[1], n: i64[]) -> (c, w) {\n"
     "w = onnx Loop@21 n, _, v, v captures 1 graph \"inner\" (k: i64[], d: bool[], u: f32[1], v: f32[1]) -> (d, t) {\n"
     "t = onnx Concat@13 u, v {axis = 0}\n}\n}\n}\n",
     "n = constant i64[] 2\nx = constant f32[1] {7}\nwant = constant f32[9] {7, 7, 7, 7, 7, 7, 7, 7, 7}"},
    {"scan: running sums, backward, stacked along the last axis",
     "graph (s: f32[2], x: f32[t, 2]) -> (y) {\n"
     "_, y = onnx Scan@21 s, x {num_scan_inputs = 1, scan_input_directions = [1], scan_output_axes = [-1]} captures 0 "
     "graph \"body\" (a: f32[2], b: f32[2]) -> (c, c) {\nc = onnx Add@14 a, b\n}\n}\n",
     "s = constant f32[2] {0, 0}\nx = constant f32[3, 2] {1, 2, 3, 4, 5, 6}\nwant = constant f32[2, 3] {5, 8, 9, 6, "
     "10, 12}"},
    {"scan of opset 8: each batch element on its own",
     "graph (s: f32[2, 1], x: f32[2, 3, 1]) -> (y) {\n"
     "_, y = onnx Scan@8 _, s, x {num_scan_inputs = 1} captures 0 graph \"body\" (a: f32[1], b: f32[1]) -> (c, c) {\n"
     "c = onnx Add@7 a, b\n}\n}\n",
     "s = constant f32[2, 1] {0, 10}\nx = constant f32[2, 3, 1] {1, 2, 3, 4, 5, 6}\n"
     "want = constant f32[2, 3, 1] {1, 3, 6, 14, 19, 25}"},
    {"sequences: elements of known place need no sequence",
     "graph (a: f32[2], b: f32[2]) -> (y) {\n"
     "s = onnx SequenceConstruct@11 a, b\nt = onnx SequenceInsert@11 s, a\nz = constant i64[] 0\nu = onnx "
     "SequenceErase@11 t, z\n"
     "y = onnx ConcatFromSequence@11 u {axis = 0, new_axis = 1}\n}\n",
     "a = constant f32[2] {1, 2}\nb = constant f32[2] {3, 4}\nwant = constant f32[2, 2] {3, 4, 1, 2}"},
    {"sequences: a place known at run time, counted from the end",
     "graph (a: f32[2], b: f32[3], p: i64[]) -> (y) {\n"
     "s = onnx SequenceConstruct@11 a, b\ny = onnx SequenceAt@11 s, p\n}\n",
     "a = constant f32[2] {1, 2}\nb = constant f32[3] {3, 4, 5}\np = constant i64[] -1\nwant = constant f32[3] {3, 4, "
     "5}"},
    {"sequences: gathered in a loop from none, then joined",
     "graph (n: i64[], x: f32[2]) -> (y) {\ne = onnx SequenceEmpty@11 {dtype = 1}\n"
     "s = onnx Loop@21 n, _, e, x captures 1 graph \"body\" (i: i64[], c: bool[], q: seq(f32[*]), x: f32[2]) -> (c, r) "
     "{\n"
     "f = onnx Cast@21 i {to = 1}\nv = onnx Add@14 x, f\nr = onnx SequenceInsert@11 q, v\n}\n"
     "y = onnx ConcatFromSequence@11 s {axis = 0}\n}\n",
     "n = constant i64[] 2\nx = constant f32[2] {1, 5}\nwant = constant f32[4] {1, 5, 2, 6}"},
    {"split into pieces of a run-time size, mapped and joined",
     "graph (x: f32[n], k: i64[]) -> (y) {\ns = onnx SplitToSequence@11 x, k\n"
     "t = onnx SequenceMap@17 s captures 0 graph \"body\" (e: f32[*]) -> (r) {\naxis = constant i64[1] {0}\n"
     "r = onnx ReduceSum@13 e, axis {keepdims = 1}\n}\ny = onnx ConcatFromSequence@11 t {axis = 0}\n}\n",
     "x = constant f32[5] {1, 2, 3, 4, 5}\nk = constant i64[] 2\nwant = constant f32[3] {3, 7, 5}"},
    {"an optional without an element says so",
     "graph () -> (y) {\no = onnx Optional@15 {type = f32, type_kind = 0}\ny = onnx OptionalHasElement@18 o\n}\n",
     "want = constant bool[] false"},
    {"strings: split at white space, padded", "graph (x: string[2]) -> (y) {\ny, _ = onnx StringSplit@20 x\n}\n",
     "x = constant string[2] {\" a  b\", \"c\"}\nwant = constant string[2, 2] {\"a\", \"b\", \"c\", \"\"}"},
    {"strings: a stop word in any case goes, the rest becomes upper case",
     "graph (x: string[3]) -> (y) {\ny = onnx StringNormalizer@10 x {case_change_action = \"UPPER\", stopwords = "
     "[\"The\"]}\n}\n",
     "x = constant string[3] {\"tHE\", \"cat\", \"sat\"}\nwant = constant string[2] {\"CAT\", \"SAT\"}"},
    {"patterns match whole strings",
     "graph (x: string[4]) -> (y) {\ny = onnx RegexFullMatch@20 x {pattern = \"(a|b){2,3}c?\"}\n}\n",
     "x = constant string[4] {\"ab\", \"abac\", \"a\", \"xab\"}\nwant = constant bool[4] {true, true, false, false}"},
    {"patterns know Unicode, its classes and its cases",
     "graph (x: string[5]) -> (y) {\ny = onnx RegexFullMatch@20 x {pattern = \"(?i)\\\\p{Greek}+\\\\PL.\"}\n}\n",
     "x = constant string[5] {\"\u03a9\u03c9-\u00e9\", \"\u03c9-\", \"o--\", \"\u03a9--\", \"\"}\n"
     "want = constant bool[5] {true, false, false, true, false}"},
    {"an empty pattern matches the empty text alone",
     "graph (x: string[2]) -> (y) {\ny = onnx RegexFullMatch@20 x {pattern = \"\"}\n}\n",
     "x = constant string[2] {\"\", \"a\"}\nwant = constant bool[2] {true, false}"},
    {"a byte that is no UTF-8 matches as a byte alone",
     "graph (x: string[3]) -> (y) {\ny = onnx RegexFullMatch@20 x {pattern = \".*|\\\\C\"}\n}\n",
     "x = constant string[3] {\"\xff\", \"a\xff\", \"a\"}\nwant = constant bool[3] {true, false, true}"},
    {"patterns of nested repeats take linear time",
     "graph (x: string[1]) -> (y) {\ny = onnx RegexFullMatch@20 x {pattern = \"((a*)*)*b\"}\n}\n",
     "x = constant string[1] {\"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\"}\nwant = constant bool[1] "
     "{false}"},
};

/* What must be refused while lowering (or, with data, when run), and a part of what is said. */
static const struct {
    const char *name, *source, *data, *message;
} errors[] = {
    {"branches of different element types",
     "graph (c: bool[], x: f32[1]) -> (y) {\ny = onnx If@21 c, x captures 1 graph \"then\" (x: f32[1]) -> (x) {\n} "
     "graph \"else\" "
     "(x: f32[1]) -> (b) {\nb = onnx Cast@21 x {to = 7}\n}\n}\n",
     NULL, "different types"},
    {"a body with too few inputs",
     "graph (n: i64[], x: f32[1]) -> (y) {\ny = onnx Loop@21 n, _, x captures 0 graph \"b\" (i: i64[], c: bool[]) -> "
     "(c, i) {\n}\n}\n",
     NULL, "2 inputs where 3 are passed"},
    {"a number of iterations that is none",
     "graph (n: f32[], x: f32[1]) -> (y) {\ny = onnx Loop@21 n, _, x captures 0 graph \"b\" (i: i64[], c: bool[], v: "
     "f32[1]) -> (c, v) {\n}\n}\n",
     NULL, "the number of iterations is not int64, \"n\" is float32"},
    {"a condition that is a number",
     "graph (c: f32[], x: f32[1]) -> (y) {\ny = onnx Loop@21 _, c, x captures 0 graph \"b\" (i: i64[], d: bool[], v: "
     "f32[1]) -> (d, v) {\n}\n}\n",
     NULL, "the condition is not bool, \"c\" is float32"},
    {"a condition of two elements",
     "graph (c: bool[2], x: f32[1]) -> (y) {\ny = onnx If@21 c, x captures 1 graph \"then\" (x: f32[1]) -> (x) {\n} "
     "graph \"else\" (x: f32[1]) -> (x) {\n}\n}\n",
     NULL, "the condition is one element, \"c\" has 2 in axis 0"},
    {"a carried value that changes its type",
     "graph (n: i64[], x: f32[1]) -> (y) {\ny = onnx Loop@21 n, _, x captures 0 graph \"b\" (i: i64[], c: bool[], v: "
     "f32[1]) -> (c, w) {\n"
     "w = onnx Cast@21 v {to = 7}\n}\n}\n",
     NULL, "becomes i64"},
    {"the branch for which what follows makes no sense",
     "graph (x: f32[n, m]) -> (y) {\n"
     "sh = onnx Shape@15 x\none = constant i64[] 1\nm = onnx Gather@13 sh, one\nc = onnx Equal@13 m, one\n"
     "r = onnx If@21 c, x captures 1 graph \"then\" (x: f32[n, m]) -> (a) {\n"
     "axis = constant i64[1] {1}\na = onnx Squeeze@13 x, axis\n} graph \"else\" (x: f32[n, m]) -> (b) {\n"
     "b = onnx Identity@16 x\n}\ny = onnx Transpose@13 r {perm = [0]}\n}\n",
     "x = constant f32[1, 2] {1, 2}", "else branch"},
    {"what follows makes sense for neither branch",
     "graph (x: f32[n, m]) -> (y) {\n"
     "sh = onnx Shape@15 x\none = constant i64[] 1\nm = onnx Gather@13 sh, one\nc = onnx Equal@13 m, one\n"
     "r = onnx If@21 c, x captures 1 graph \"then\" (x: f32[n, m]) -> (a) {\n"
     "axis = constant i64[1] {1}\na = onnx Squeeze@13 x, axis\n} graph \"else\" (x: f32[n, m]) -> (b) {\n"
     "b = onnx Identity@16 x\n}\ny = onnx Transpose@13 r {perm = [2, 1, 0]}\n}\n",
     NULL, "perm has 3 axes"},
    {"branches of different ranks and element types",
     "graph (x: f32[n, m]) -> (y) {\n"
     "sh = onnx Shape@15 x\none = constant i64[] 1\nm = onnx Gather@13 sh, one\nc = onnx Equal@13 m, one\n"
     "r = onnx If@21 c, x captures 1 graph \"then\" (x: f32[n, m]) -> (a) {\n"
     "axis = constant i64[1] {1}\na = onnx Squeeze@13 x, axis\n} graph \"else\" (x: f32[n, m]) -> (b) {\n"
     "b = onnx IsNaN@16 x\n}\ny = onnx Shape@15 r\n}\n",
     NULL, "different types"},
    {"a place outside the sequence",
     "graph (a: f32[2], p: i64[]) -> (y) {\ns = onnx SequenceConstruct@11 a\ny = onnx SequenceAt@11 s, p\n}\n",
     "a = constant f32[2] {1, 2}\np = constant i64[] 1", "position 1"},
    {"a pattern without its end", "graph (x: string[1]) -> (y) {\ny = onnx RegexFullMatch@20 x {pattern = \"(a\"}\n}\n",
     NULL, "missing ): (a"},
    {"a pattern that RE2 has not: what a group has matched",
     "graph (x: string[1]) -> (y) {\ny = onnx RegexFullMatch@20 x {pattern = \"(a)\\\\1\"}\n}\n", NULL,
     "invalid escape sequence"},
    {"a pattern that grows without bound",
     "graph (x: string[1]) -> (y) {\ny = onnx RegexFullMatch@20 x {pattern = \"((a{1000}){1000}){1000}\"}\n}\n", NULL,
     "invalid repetition size"},
    {"a pattern whose automaton grows without bound",
     "graph (x: string[1]) -> (y) {\ny = onnx RegexFullMatch@20 x {pattern = \"\\\\pL{1000}\"}\n}\n", NULL,
     "too large"},
    {"a pattern that is no UTF-8",
     "graph (x: string[1]) -> (y) {\ny = onnx RegexFullMatch@20 x {pattern = \"a\xff\"}\n}\n", NULL, "UTF-8"},
};

static bool is_left_out(const char *source) { return !HAS_PLUGIN && strstr(source, "RegexFullMatch"); }

static void tell_what_is_left_out(void) {
    if (!HAS_PLUGIN) skip_part("regular expressions: this build has no libonnxfuse-regex.so");
}

static Status lower(const char *source, Graph **out_graph) {
    Policy policy = {0};
    TRY(graph_parse(source, out_graph));
    TRY(lower_graph(*out_graph, &policy));
    return graph_verify(*out_graph, LEVEL_PRIM);
}

/* The constants of `data`, in their order. */
static Status read_data(const char *data, Graph **out_graph) { return graph_parse(data, out_graph); }

static const Tensor *constant_at(const Graph *data, int index) {
    for (int i = 0; i < data->values.count; i++)
        if (data->values.items[i]->constant && index-- == 0) return data->values.items[i]->constant;
    return NULL;
}

/* Lowers and runs; the result and the data live until the graphs are destroyed. */
static Status run(const char *source, const char *data_text, Arena *arena, Graph **graph, Graph **data,
                  Item *out_result) {
    TRY(lower(source, graph));
    TRY(read_data(arena_format(arena, "graph () -> () {\n%s\n}\n", data_text), data));
    Item *inputs = ARENA_ARRAY(arena, Item, (*graph)->inputs.count);
    for (int i = 0; i < (*graph)->inputs.count; i++)
        inputs[i] = (Item){.kind = ITEM_TENSOR, .tensor = *constant_at(*data, i)};
    return interpret(*graph, inputs, arena, out_result);
}

static bool same_element(const Tensor *a, const Tensor *b, int64_t i) {
    if (a->dtype != DT_STRING)
        return dtype_load_double(a->dtype, a->data, i) == dtype_load_double(b->dtype, b->data, i);
    StringView x = ((const StringView *)a->data)[i], y = ((const StringView *)b->data)[i];
    return x.size == y.size && memcmp(x.data, y.data, x.size) == 0;
}

static void compare(const char *name, const Tensor *y, const Tensor *want) {
    cr_expect(y->dtype == want->dtype && tensor_same_shape(y, want), "%s: the type or the shape differs", name);
    if (y->dtype != want->dtype || !tensor_same_shape(y, want)) return;
    for (int64_t i = 0; i < tensor_count(y); i++)
        cr_expect(same_element(y, want, i), "%s: element %lld differs", name, (long long)i);
}

Test(control, values) {
    tell_what_is_left_out();
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        if (is_left_out(rows[i].source)) continue;
        Arena *arena = arena_create(0);
        Graph *graph = NULL, *data = NULL;
        Item result = {0};
        Status status = run(rows[i].source, rows[i].data, arena, &graph, &data, &result);
        cr_expect(!status, "%s: %s", rows[i].name, status_message(status));
        if (!status) compare(rows[i].name, &result.tensor, constant_at(data, graph->inputs.count));
        status_free(status);
        graph_destroy(graph);
        graph_destroy(data);
        arena_destroy(arena);
    }
}

Test(control, errors) {
    tell_what_is_left_out();
    for (size_t i = 0; i < sizeof errors / sizeof *errors; i++) {
        if (is_left_out(errors[i].source)) continue;
        Arena *arena = arena_create(0);
        Graph *graph = NULL, *data = NULL;
        Item result = {0};
        Status status = errors[i].data ? run(errors[i].source, errors[i].data, arena, &graph, &data, &result)
                                       : lower(errors[i].source, &graph);
        cr_expect(status_code(status) == STATUS_INVALID, "%s: code %d", errors[i].name, status_code(status));
        cr_expect(strstr(status_message(status), errors[i].message), "%s: %s", errors[i].name, status_message(status));
        status_free(status);
        graph_destroy(graph);
        graph_destroy(data);
        arena_destroy(arena);
    }
}

/* A body is copied for every rank that an element may have: for two sequences, in a body that is itself copied, and so on. */
Test(control, copies_for_ranks_are_bounded) {
    static const struct {
        const char *name, *source;
        bool fits;
    } bodies[] = {
        {"a long body, once",
         "graph (q: seq(f32[*])) -> (r) {\nr = onnx SequenceMap@17 q captures 0 graph \"b\" (a: f32[*]) -> (y) {\n"
         "c = onnx Neg@13 a\nd = onnx Exp@13 c\ne = onnx Neg@13 d\nf = onnx Exp@13 e\ng = onnx Neg@13 f\n"
         "h = onnx Exp@13 g\ni = onnx Neg@13 h\ny = onnx Exp@13 i\n}\n}\n",
         true},
        {"two sequences",
         "graph (q: seq(f32[*]), p: seq(f32[*])) -> (r) {\nr = onnx SequenceMap@17 q, p captures 0 graph \"b\" (a: "
         "f32[*], b: f32[*]) -> (c) {\nc = onnx Add@14 a, b\n}\n}\n",
         true},
        {"three sequences",
         "graph (q: seq(f32[*]), p: seq(f32[*]), o: seq(f32[*])) -> (r) {\nr = onnx SequenceMap@17 q, p, o captures 0 "
         "graph \"b\" (a: f32[*], b: f32[*], c: f32[*]) -> (d) {\nd = onnx Sum@13 a, b, c\n}\n}\n",
         false},
        {"a body in a body in a body",
         "graph (q: seq(f32[*])) -> (r) {\nr = onnx SequenceMap@17 q, q captures 1 graph \"b\" (a: f32[*], q: "
         "seq(f32[*])) -> (y) {\ns = onnx SequenceMap@17 q, q captures 1 graph \"c\" (b: f32[*], q: seq(f32[*])) -> "
         "(z) {\nt = onnx SequenceMap@17 q captures 0 graph \"d\" (c: f32[*]) -> (d) {\nd = onnx Neg@13 c\n}\n"
         "z = onnx SequenceLength@11 t\n}\ny = onnx SequenceLength@11 s\n}\n}\n",
         false},
    };
    for (size_t i = 0; i < sizeof bodies / sizeof *bodies; i++) {
        Graph *graph = NULL;
        Status status = lower(bodies[i].source, &graph);
        cr_expect(bodies[i].fits ? !status
                                 : status_code(status) == STATUS_UNSUPPORTED &&
                                       strstr(status_message(status), "would be copied too often"),
                  "%s: %s", bodies[i].name, status_message(status));
        status_free(status);
        graph_destroy(graph);
    }
}

/* An If of a known condition leaves no trace of itself, nor of the branch that is not taken. */
Test(control, known_condition) {
    Graph *graph = NULL;
    Status status = lower(
        "graph (x: f32[2]) -> (y) {\nc = constant bool[] true\n"
        "y = onnx If@21 c, x captures 1 graph \"then\" (x: f32[2]) -> (a) {\na = onnx Neg@13 x\n} graph \"else\" (x: "
        "f32[2]) -> (b) {\nb = onnx NoSuchOperator@13 x\n}\n}\n",
        &graph);
    cr_assert(!status, "%s", status_message(status));
    cr_expect(graph->node_count == 1 && graph->first->prim == PRIM_NEG);
    graph_destroy(graph);
}
