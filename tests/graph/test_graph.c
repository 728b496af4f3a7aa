/* SPDX-License-Identifier: Apache-2.0 */
/* The graph's edits, and the verifier that tells when one went wrong. */
#include <criterion/criterion.h>

#include "graph/graph.h"

static Graph *parsed(const char *text) {
    Graph *graph = NULL;
    Status status = graph_parse(text, &graph);
    cr_assert(!status, "%s", status_message(status));
    return graph;
}

static Value *named(const Graph *graph, const char *name) { return map_get(&graph->names, name); }

static void expect_text(Graph *graph, const char *expected) {
    Text text = text_make(graph->arena);
    graph_print(&text, graph);
    cr_expect_str_eq(text.data, expected);
}

Test(graph, names_are_unique) {
    Graph *graph = graph_create(0);
    static const char *const wanted[][2] = {{"x", "x"},   {"x", "x_1"}, {"x", "x_2"}, {"x_1", "x_1_1"},
                                            {NULL, "v0"}, {"v1", "v1"}, {NULL, "v2"}};
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++)
        cr_expect_str_eq(graph_add_value(graph, wanted[i][0], DT_F32, 0, NULL)->name, wanted[i][1]);
    graph_destroy(graph);
}

Test(graph, replaced_outputs_keep_their_names) {
    Graph *graph = parsed(
        "graph (x: f32[2]) -> (y, y as again) {\n  a: f32[2] = neg x\n  y: f32[2] = neg a\n  z: f32[2] = abs y\n}\n");
    Value *y = named(graph, "y");
    value_replace(graph, y, named(graph, "x"));
    graph_remove_node(graph, y->producer);
    graph_remove_node(graph, graph->first);
    expect_text(graph, "graph (x: f32[2]) -> (x as y, x as again) {\n  z: f32[2] = abs x\n}\n");
    cr_expect(!graph_verify(graph, LEVEL_PRIM));
    graph_destroy(graph);
}

Test(graph, inputs_change_and_grow) {
    Graph *graph = parsed("graph (x: f32[2], y: f32[2]) -> (s) {\n  s: f32[4] = concat x, x {axis = 0}\n}\n");
    Node *concat = graph->first;
    Value *x = named(graph, "x"), *y = named(graph, "y");
    node_set_input(concat, 0, y);
    for (int i = 0; i < 20; i++) node_append_input(concat, i % 2 ? x : y);
    cr_expect(value_use_count(x) == 11 && value_use_count(y) == 11);
    for (int i = 0; i < concat->input_count; i++) node_set_input(concat, i, x);
    cr_expect(value_use_count(x) == 22 && value_use_count(y) == 0);
    named(graph, "s")->dims[0] = dim_const(graph->dims, 44);
    Status status = graph_verify(graph, LEVEL_PRIM);
    cr_expect(!status, "%s", status_message(status));
    graph_destroy(graph);
}

Test(graph, nodes_move) {
    Graph *graph =
        parsed("graph (x: f32[2]) -> () {\n  a: f32[2] = neg x\n  b: f32[2] = neg x\n  c: f32[2] = neg x\n}\n");
    Node *a = graph->first, *c = graph->last;
    graph_move_before(graph, c, a);
    graph_move_before(graph, a, NULL);
    graph_move_before(graph, a, NULL);
    expect_text(graph, "graph (x: f32[2]) -> () {\n  c: f32[2] = neg x\n  b: f32[2] = neg x\n  a: f32[2] = neg x\n}\n");
    cr_expect(!graph_verify(graph, LEVEL_PRIM));
    graph_destroy(graph);
}

Test(graph, origins_merge_without_repeats) {
    Graph *graph =
        parsed("graph (x: f32[2]) -> () {\n  a: f32[2] = neg x # from A, B\n  b: f32[2] = neg a # from B, C\n}\n");
    node_add_origin(graph->last, graph->first->origin);
    expect_text(graph,
                "graph (x: f32[2]) -> () {\n  a: f32[2] = neg x # from A, B\n  b: f32[2] = neg a # from B, C, A\n}\n");
    graph_destroy(graph);
}

Test(graph, constants_know_their_content) {
    Graph *graph = parsed("graph () -> (a, b, c) {\n  a = constant i64[2] {3, -1}\n  b = constant i32[] 7\n  c = "
                          "constant f32[1] {1}\n}\n");
    cr_expect(dim_equals(named(graph, "a")->content[0], 3) && dim_equals(named(graph, "a")->content[1], -1));
    cr_expect(dim_equals(named(graph, "b")->content[0], 7));
    cr_expect(!named(graph, "c")->content);
    graph_destroy(graph);
}

/* A use of a widely shared constant is found without a search: this would take minutes otherwise. */
Test(graph, edits_of_shared_values_are_cheap, .timeout = 20) {
    enum { COUNT = 200000 };
    Graph *graph = graph_create(0);
    Value *shared = graph_add_constant(graph, "c", tensor_scalar_double(graph->arena, DT_F32, 1));
    for (int i = 0; i < COUNT; i++)
        node_add_output(graph_add_prim(graph, NULL, PRIM_ADD, (Value *[]){shared, shared}, 2), "same", DT_F32, 0, NULL);
    Status status = graph_verify(graph, LEVEL_PRIM);
    cr_expect(!status, "%s", status_message(status));
    FOR_EACH_NODE_SAFE(node, graph) graph_remove_node(graph, node);
    cr_expect(value_use_count(shared) == 0 && graph->node_count == 0 && !graph->first && !graph->last);
    graph_destroy(graph);
}

static const struct {
    const char *name, *body, *message; /* the inputs: x f32[b, 4], i i64[2], c bool[] */
    GraphLevel level;
} violations[] = {
    {"a broadcast that does not fit", "y: f32[b, 4] = add x, k", "axis 1 of input 1 does not broadcast", LEVEL_PRIM},
    {"a result with a size of its own", "y: f32[9, 4] = neg x", "axis 0 of input 0 does not broadcast", LEVEL_PRIM},
    {"types that differ", "y: f32[b, 4] = add x, c", "inputs of types f32 and bool", LEVEL_PRIM},
    {"a comparison that is not bool", "y: f32[b, 4] = lt x, x", "a result of type f32, not bool", LEVEL_PRIM},
    {"a wrong number of inputs", "y: f32[b, 4] = add x", "1 inputs", LEVEL_PRIM},
    {"exp of integers", "y: i64[2] = exp i", "not defined on i64", LEVEL_PRIM},
    {"cast without a target", "y: f32[b, 4] = cast x", "attribute to is none", LEVEL_PRIM},
    {"axes out of order", "y: f32[1, 1] = reduce_sum x {axes = [1, 0]}", "axes are not sorted", LEVEL_PRIM},
    {"a reduced axis that is gone", "y: f32[b] = reduce_sum x {axes = [1]}", "do not stay with size 1", LEVEL_PRIM},
    {"a perm that repeats", "y: f32[b, b] = permute x {perm = [0, 0]}", "not a permutation", LEVEL_PRIM},
    {"a shape attribute that differs", "y: f32[4, b] = reshape x {shape = (b, 4)}", "attribute shape differs",
     LEVEL_PRIM},
    {"a reshape that changes the count", "y: i64[3] = reshape i {shape = (3)}", "number of elements changes",
     LEVEL_PRIM},
    {"a slice out of range", "y: i64[2] = slice i {shape = (2), start = (1), step = [1]}", "axis 0 is out of range",
     LEVEL_PRIM},
    {"a concat that does not add up", "y: i64[5] = concat i, i {axis = 0}", "not the sum", LEVEL_PRIM},
    {"a gather of the wrong rank", "y: f32[2] = gather x, i {axis = 0}", "a result of rank 1", LEVEL_PRIM},
    {"an unknown rank of what a primitive reads", "v: f32[*] = host Foo@1 x\ny: f32[b, 4] = neg v",
     "type or rank of output 0 is unknown", LEVEL_PRIM},
    {"an unknown type", "y: none[*] = host Foo@1 x", "type or rank of output 0 is unknown", LEVEL_PRIM},
    {"an ONNX node after lowering", "y: f32[b, 4] = onnx Foo@1 x", "not lowered", LEVEL_PRIM},
    {"a primitive in an imported graph", "y: f32[b, 4] = neg x", "not an ONNX node", LEVEL_ONNX},
    {"a fusible primitive outside regions", "y: f32[b, 4] = neg x", "a fusible primitive outside regions",
     LEVEL_PARTITIONED},
    {"a region before the partition", "y: f32[b, 4] = region x graph (p: f32[b, 4]) -> (p) {\n}", "a region before",
     LEVEL_PRIM},
    {"a body of another type", "y: f32[b, 4] = region x graph (p: f32[b, 5]) -> (p) {\n}", "input 0 is not the body's",
     LEVEL_PARTITIONED},
    {"a host node in a region",
     "y: f32[b, 4] = region x graph (p: f32[b, 4]) -> (q) {\n  q: f32[b, 4] = host Foo@1 p\n}",
     "only primitives may stand in a region", LEVEL_PARTITIONED},
    {"a mistake in a subgraph",
     "y: f32[b, 4] = host If@1 c graph \"then\" () -> (t) {\n  t: f32[b, 4] = iota {shape = (b, 4), axis = 2, dtype = "
     "f32}\n}",
     "graph \"then\": t = iota (from iota): attribute axis is not in [0, 2)", LEVEL_PRIM},
};

/* Messages of one graph; what is wrong is in its body. */
static void expect_fault(const char *name, Graph *graph, GraphLevel level, const char *message) {
    Status status = graph_verify(graph, level);
    cr_expect(status_code(status) == STATUS_FAULT, "%s", name);
    cr_expect(status && strstr(status_message(status), message), "%s: %s", name, status ? status_message(status) : "");
    status_free(status);
    graph_destroy(graph);
}

Test(verify, violations_are_named) {
    for (size_t i = 0; i < sizeof violations / sizeof *violations; i++) {
        Arena *arena = arena_create(0);
        expect_fault(violations[i].name,
                     parsed(arena_format(arena, "graph (x: f32[b, 4], k: f32[3], i: i64[2], c: bool[]) -> (y) {\n%s\n}",
                                         violations[i].body)),
                     violations[i].level, violations[i].message);
        arena_destroy(arena);
    }
}

/* An anchor of x f32[b, n, 8] and w, with an epilogue that reads further inputs: of the result's sizes f32[b, n, 4]. */
static const struct {
    const char *name, *node, *message; /* message NULL: it is right */
} epilogues[] = {
    {"one that is right",
     "y: f32[b, n, 4] = anchor matmul x, w, k graph (r: f32[b, n, 4], k: f32[4]) -> (t) {\n t: f32[b, n, 4] = add r, "
     "k\n}",
     NULL},
    {"two results, one of another type, and constants",
     "y: f32[b, n, 4], z: f16[b, n, 4] = anchor matmul x, w graph (r: f32[b, n, 4]) -> (t, u) {\n h = constant f32[] "
     "0.5\n t: f32[b, n, 4] = mul r, h\n u: f16[b, n, 4] = cast t {to = f16}\n}",
     NULL},
    {"a reduction",
     "y: f32[b, n, 4] = anchor matmul x, w graph (r: f32[b, n, 4]) -> (t) {\n s: f32[b, n, 1] = reduce_sum r {axes = "
     "[2]}\n t: f32[b, n, 4] = sub r, s\n}",
     "reduce_sum in an epilogue is not of the result's elements"},
    {"a permute",
     "y: f32[b, 4, n] = anchor matmul x, w graph (r: f32[b, n, 4]) -> (t) {\n t: f32[b, 4, n] = permute r "
     "{perm = [0, 2, 1]}\n}",
     "permute in an epilogue is not of the result's elements"},
    {"a value of operands alone, of another shape",
     "y: f32[b, n, 4] = anchor matmul x, w, k graph (r: f32[b, n, 4], k: f32[4]) -> (t) {\n e: f32[4] = exp k\n t: "
     "f32[b, n, 4] = add r, e\n}",
     "exp in an epilogue is not of the result's elements"},
    {"an anchor in it",
     "y: f32[b, n, 4] = anchor matmul x, w graph (r: f32[b, n, 4]) -> (t) {\n t: f32[b, n, 4] = anchor matmul r, r\n}",
     "matmul in an epilogue is not of the result's elements"},
    {"a primitive without a result",
     "y: f32[b, n, 4] = anchor matmul x, w graph (r: f32[b, n, 4]) -> (t) {\n _ = exp r\n t: f32[b, n, 4] = exp r\n}",
     "exp in an epilogue"},
    {"a result of another shape",
     "y: f32[b, n, 8] = anchor matmul x, w graph (r: f32[b, n, 4]) -> (t) {\n t: f32[b, n, 4] = exp r\n}",
     "output 0 is not the epilogue's"},
    {"a result of another type",
     "y: f16[b, n, 4] = anchor matmul x, w graph (r: f32[b, n, 4]) -> (t) {\n t: f32[b, n, 4] = exp r\n}",
     "output 0 is not the epilogue's"},
    {"the second result of another type",
     "y: f32[b, n, 4], z: f16[b, n, 4] = anchor matmul x, w graph (r: f32[b, n, 4]) -> (t, u) {\n t: f32[b, n, 4] = "
     "exp "
     "r\n u: f32[b, n, 4] = neg r\n}",
     "output 1 is not the epilogue's"},
    {"a raw result of a type that no product has",
     "y: f16[b, n, 4] = anchor matmul x, w graph (r: f16[b, n, 4]) -> (t) {\n t: f16[b, n, 4] = neg r\n}",
     "the epilogue's result is none"},
    {"a raw result of no axes", "y: f32[] = anchor matmul x, w graph (r: f32[]) -> (t) {\n t: f32[] = exp r\n}",
     "the epilogue's result is none"},
    {"an operand of the middle axis",
     "y: f32[b, n, 4] = anchor matmul x, w, m graph (r: f32[b, n, 4], m: f32[n, 1]) -> (t) {\n t: f32[b, n, 4] = add "
     "r, "
     "m\n}",
     "input 2 does not lie over the result"},
    {"an operand of a size that is the result's at run time alone",
     "y: f32[b, n, 4] = anchor matmul x, w, l graph (r: f32[b, n, 4], l: f32[o]) -> (t) {\n t: f32[b, n, 4] = exp r\n}",
     "input 2 does not lie over the result"},
    {"an operand of a higher rank than the result",
     "y: f32[b, n, 4] = anchor matmul x, w, q graph (r: f32[b, n, 4], q: f32[1, b, n, 4]) -> (t) {\n t: f32[b, n, 4] = "
     "exp r\n}",
     "input 2 does not lie over the result"},
    {"an operand that the node has in another shape",
     "y: f32[b, n, 4] = anchor matmul x, w, m graph (r: f32[b, n, 4], k: f32[4]) -> (t) {\n t: f32[b, n, 4] = add r, "
     "k\n}",
     "input 2 is not the epilogue's"},
    {"an operand that the node has in another type",
     "y: f32[b, n, 4] = anchor matmul x, w, k graph (r: f32[b, n, 4], k: f16[4]) -> (t) {\n c: f16[b, n, 4] = cast r "
     "{to "
     "= f16}\n d: f16[b, n, 4] = add c, k\n t: f32[b, n, 4] = cast d {to = f32}\n}",
     "input 2 is not the epilogue's"},
    {"an operand too few",
     "y: f32[b, n, 4] = anchor matmul x, w graph (r: f32[b, n, 4], k: f32[4]) -> (t) {\n t: f32[b, n, 4] = add r, k\n}",
     "inputs or outputs are not the epilogue's"},
    {"an operand too many",
     "y: f32[b, n, 4] = anchor matmul x, w, k, k graph (r: f32[b, n, 4], k: f32[4]) -> (t) {\n t: f32[b, n, 4] = add "
     "r, "
     "k\n}",
     "inputs or outputs are not the epilogue's"},
    {"an absent operand",
     "y: f32[b, n, 4] = anchor matmul x, w, _ graph (r: f32[b, n, 4], k: f32[4]) -> (t) {\n t: f32[b, n, 4] = add r, "
     "k\n}",
     "input 2 is not the epilogue's"},
    {"no weight", "y: f32[b, n, 4] = anchor matmul x graph () -> (t) {\n t = constant f32[] 1\n}",
     "inputs or outputs are not the epilogue's"},
    {"a result too few",
     "y: f32[b, n, 4] = anchor matmul x, w graph (r: f32[b, n, 4]) -> (t, u) {\n t: f32[b, n, 4] = exp r\n u: f32[b, "
     "n, "
     "4] = neg r\n}",
     "inputs or outputs are not the epilogue's"},
    {"a result too many",
     "y: f32[b, n, 4], z: f32[b, n, 4] = anchor matmul x, w graph (r: f32[b, n, 4]) -> (t) {\n t: f32[b, n, 4] = exp "
     "r\n}",
     "inputs or outputs are not the epilogue's"},
    {"two bodies",
     "y: f32[b, n, 4] = anchor matmul x, w graph \"one\" (r: f32[b, n, 4]) -> (t) {\n t: f32[b, n, 4] = exp r\n} graph "
     "\"two\" (r: f32[b, n, 4]) -> (t) {\n t: f32[b, n, 4] = exp r\n}",
     "2 epilogues"},
    {"a mistake in the body",
     "y: f32[b, n, 4] = anchor matmul x, w graph \"late\" (r: f32[b, n, 4]) -> (t) {\n t: f32[b, n, 4] = add r\n}",
     "graph \"late\": t = add"},
};

static Graph *with_anchor(Arena *arena, const char *node) {
    return parsed(arena_format(arena,
                               "graph (x: f32[b, n, 8], w: f32[8, 4], k: f32[4], m: f32[n, 1], l: f32[o], q: f32[1, b, "
                               "n, 4]) -> (y) {\n%s\n}",
                               node));
}

Test(verify, epilogues_are_of_the_result_s_elements) {
    static const GraphLevel levels[] = {LEVEL_PRIM, LEVEL_PARTITIONED};
    for (size_t i = 0; i < sizeof epilogues / sizeof *epilogues; i++)
        for (int l = 0; l < 2; l++) {
            Arena *arena = arena_create(0);
            Graph *graph = with_anchor(arena, epilogues[i].node);
            if (epilogues[i].message) {
                expect_fault(epilogues[i].name, graph, levels[l], epilogues[i].message);
            } else {
                Status status = graph_verify(graph, levels[l]);
                cr_expect(!status, "%s: %s", epilogues[i].name, status_message(status));
                graph_destroy(graph);
            }
            arena_destroy(arena);
        }
}

Test(verify, attention_has_no_epilogue) {
    expect_fault(
        "attention",
        parsed("graph (q: f32[b, h, s, 8], k: f32[b, h, t, 8], v: f32[b, h, t, 8]) -> (y) {\n"
               "y: f32[b, h, s, 8] = anchor attention q, k, v graph (r: f32[b, h, s, 8], v: f32[b, h, t, 8]) -> "
               "(e) {\n e: f32[b, h, s, 8] = exp r\n}\n}"),
        LEVEL_PRIM, "1 epilogues");
}

Test(verify, rows_in_groups) {
    static const struct {
        const char *name, *node, *message;
    } rows[] = {
        {"no numbers of groups", "y: f32[t, 2, 5] = anchor matmul_grouped x, w", "not 3 or 4 inputs"},
        {"an input too many", "y: f32[t, 2, 5] = anchor matmul_grouped x, w, g, c, c", "not 3 or 4 inputs"},
        {"one matrix", "y: f32[t, 2, 5] = anchor matmul_grouped x, c, g", "the second factor is no matrix a group"},
        {"bits that come with a run", "y: f32[t, 2, 5] = anchor matmul_grouped x, u, g {weight_bits = 4}",
         "the second factor is no matrix a group"},
        {"numbers that are floats", "y: f32[t, 2, 5] = anchor matmul_grouped x, w, c", "not a group a row"},
        {"a result of fewer axes", "y: f32[t, 5] = anchor matmul_grouped x, w, g",
         "rows and result do not go together"},
        {"integers", "y: i64[t, 2, 5] = anchor matmul_grouped g, w, g", "the result is neither f32 nor f64"},
        {"a bias of one vector", "y: f32[t, 2, 5] = anchor matmul_grouped x, w, g, d", "the bias is no vector a group"},
        {"a permute of two axes", "y: f32[t, 2, 5] = anchor matmul_grouped x, w, g {perm_b = [1, 0]}", "perm_b"},
        {"an epilogue",
         "y: f32[t, 2, 5] = anchor matmul_grouped x, w, g graph (r: f32[t, 2, 5], g: i64[t, 2]) -> (e) {\n e: f32[t, "
         "2, "
         "5] = exp r\n}",
         "1 epilogues"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        Arena *arena = arena_create(0);
        expect_fault(
            rows[i].name,
            parsed(arena_format(arena,
                                "graph (x: f32[t, 1, 8], w: f32[16, 8, 5], u: u8[16, 5, 1, 16], g: i64[t, 2], c: "
                                "f32[16, 5], d: f32[5]) -> (y) {\n%s\n}",
                                rows[i].node)),
            LEVEL_PRIM, rows[i].message);
        arena_destroy(arena);
    }
}

#define OF_4 "weight_bits = 4, weight_block = 16, weight_depth = 20"
#define SCALES ", weight_scales = tensor f32[6] {1, 2, 3, 4, 5, 6}"

Test(verify, weights_in_blocks) {
    static const struct {
        const char *name, *node, *message; /* NULL: nothing is wrong */
    } rows[] = {
        {"constant weights", "y: f32[t, 3] = anchor matmul_bits x, k {" OF_4 SCALES "}", NULL},
        {"constant weights, zero points packed",
         "y: f32[t, 3] = anchor matmul_bits x, k {" OF_4 SCALES ", weight_zeros = tensor u8[3] {1, 2, 3}}", NULL},
        {"constant weights, zero points of floats, permuted",
         "y: f32[3, t] = anchor matmul_bits z, k {" OF_4 SCALES
         ", weight_zeros = tensor f32[6] {1, 2, 3, 4, 5, 6}, perm_a = [1, 0], perm_out = [1, 0]}",
         NULL},
        {"constant weights, an epilogue of another type",
         "y: f64[t, 3] = anchor matmul_bits x, k {" OF_4 SCALES
         "} graph (r: f32[t, 3]) -> (e) {\n e: f64[t, 3] = cast r {to = f64}\n}",
         NULL},
        {"weights of the run", "y: f32[t, 3] = anchor matmul_blocks x, w, s {" OF_4 "}", NULL},
        {"weights of the run, zero points packed", "y: f32[t, 3] = anchor matmul_blocks x, w, s, u {" OF_4 "}", NULL},
        {"weights of the run, of unknown columns", "y: f32[t, n] = anchor matmul_blocks x, o, s, s {" OF_4 "}", NULL},
        {"no second factor", "y: f32[t, 3] = anchor matmul_bits x {" OF_4 SCALES "}", "1 inputs"},
        {"an input too many", "y: f32[t, 3] = anchor matmul_bits x, k, s {" OF_4 SCALES "}", "3 inputs"},
        {"scales that do not come with the run", "y: f32[t, 3] = anchor matmul_blocks x, w {" OF_4 "}", "2 inputs"},
        {"two results", "y: f32[t, 3], q: f32[t, 3] = anchor matmul_bits x, k {" OF_4 SCALES "}", "2 outputs"},
        {"rows of doubles", "y: f32[t, 3] = anchor matmul_bits d, k {" OF_4 SCALES "}",
         "rows and result do not go together"},
        {"a result of another type", "y: f64[t, 3] = anchor matmul_bits x, k {" OF_4 SCALES "}",
         "rows and result do not go together"},
        {"a result of fewer axes", "y: f32[3] = anchor matmul_bits x, k {" OF_4 SCALES "}",
         "rows and result do not go together"},
        {"constant weights that come with the run", "y: f32[t, 3] = anchor matmul_bits x, w {" OF_4 SCALES "}",
         "the second factor is no matrix in blocks"},
        {"weights that are floats", "y: f32[t, 3] = anchor matmul_blocks x, s, s {" OF_4 "}",
         "the second factor is no matrix in blocks"},
        {"five bits",
         "y: f32[t, 3] = anchor matmul_bits x, k {weight_bits = 5, weight_block = 16, weight_depth = 20" SCALES "}",
         "weight_bits is 5"},
        {"a block of 24",
         "y: f32[t, 3] = anchor matmul_bits x, k {weight_bits = 4, weight_block = 24, weight_depth = 20" SCALES "}",
         "weight_block is 24"},
        {"no depth", "y: f32[t, 3] = anchor matmul_bits x, k {weight_bits = 4, weight_block = 16" SCALES "}",
         "weight_depth is 0"},
        {"a block too many",
         "y: f32[t, 3] = anchor matmul_bits x, k {weight_bits = 4, weight_block = 16, weight_depth = 16" SCALES "}",
         "the second factor has not the blocks of its depth"},
        {"blocks of too few bytes",
         "y: f32[t, 3] = anchor matmul_blocks x, w, s {weight_bits = 8, weight_block = 16, weight_depth = 20}",
         "the second factor has not the blocks of its depth"},
        {"no scales", "y: f32[t, 3] = anchor matmul_bits x, k {" OF_4 "}", "it has no scales"},
        {"scales of columns",
         "y: f32[t, 3] = anchor matmul_bits x, k {" OF_4 ", weight_scales = tensor f32[3] {1, 2, 3}}",
         "weight_scales are no number a block"},
        {"scales that are bytes", "y: f32[t, 3] = anchor matmul_blocks x, w, u {" OF_4 "}",
         "scales are no number a block"},
        {"zero points of too few bytes",
         "y: f32[t, 3] = anchor matmul_bits x, k {" OF_4 SCALES ", weight_zeros = tensor u8[2] {1, 2}}",
         "weight_zeros are no number a block"},
        {"zero points of the run, of columns", "y: f32[t, 3] = anchor matmul_blocks x, w, s, c {" OF_4 "}",
         "zero points are no number a block"},
        {"scales said twice", "y: f32[t, 3] = anchor matmul_blocks x, w, s {" OF_4 SCALES "}",
         "scales or zero points of weights of the run are no inputs"},
        {"a permute of three axes", "y: f32[t, 3] = anchor matmul_bits x, k {" OF_4 SCALES ", perm_a = [0, 1, 2]}",
         "perm_a"},
        {"a permuted result, of the run", "y: f32[3, t] = anchor matmul_blocks x, w, s {" OF_4 ", perm_out = [1, 0]}",
         "permutes of weights of the run"},
        {"an epilogue, of the run",
         "y: f32[t, 3] = anchor matmul_blocks x, w, s {" OF_4
         "} graph (r: f32[t, 3], s: f32[3, 2]) -> (e) {\n e: f32[t, 3] = exp r\n}",
         "1 epilogues"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        Arena *arena = arena_create(0);
        Graph *graph = parsed(arena_format(
            arena,
            "graph (x: f32[t, 20], z: f32[20, t], d: f64[t, 20], w: u8[3, 2, 8], o: u8[n, 2, 8], s: f32[3, 2], u: "
            "u8[3], c: f32[3]) -> (y) {\nk = constant u8[3, 2, 8] {1, 2, 3, 4, 5, 6, 7, 8, 1, 2, 3, 4, 5, 6, 7, 8, 1, "
            "2, 3, 4, 5, 6, 7, 8, 1, 2, 3, 4, 5, 6, 7, 8, 1, 2, 3, 4, 5, 6, 7, 8, 1, 2, 3, 4, 5, 6, 7, 8}\n%s\n}",
            rows[i].node));
        if (rows[i].message) {
            expect_fault(rows[i].name, graph, LEVEL_PRIM, rows[i].message);
        } else {
            Status status = graph_verify(graph, LEVEL_PRIM);
            cr_expect(!status, "%s: %s", rows[i].name, status_message(status));
            status_free(status);
            graph_destroy(graph);
        }
        arena_destroy(arena);
    }
}

typedef void (*Damage)(Graph *graph);

static void swap_nodes(Graph *graph) { graph_move_before(graph, graph->last, graph->first); }
static void lose_use(Graph *graph) { named(graph, "x")->uses.count = 0; }
static void stale_use(Graph *graph) { VEC_PUSH(graph->arena, named(graph, "b")->uses, (Use){graph->first, 0}); }
static void same_name(Graph *graph) { named(graph, "b")->name = named(graph, "a")->name; }
static void wrong_producer(Graph *graph) { named(graph, "b")->producer = graph->first; }
static void wrong_count(Graph *graph) { graph->node_count++; }
static void foreign_value(Graph *graph) {
    node_set_input(
        graph->first, 0,
        graph_add_input(graph_sub(graph, ""), "f", DT_F32, named(graph, "x")->rank, named(graph, "x")->dims));
}

static const struct {
    Damage damage;
    const char *message;
} damages[] = {
    {swap_nodes, "input 0 (a) is computed later or never"},
    {lose_use, "input 0 (x) does not list this use"},
    {stale_use, "3 uses are listed for 2 inputs"},
    {same_name, "two values are called a"},
    {wrong_producer, "names another producer"},
    {wrong_count, "the list of nodes is broken"},
    {foreign_value, "belongs to another graph"},
};

Test(verify, damage_is_found) {
    for (size_t i = 0; i < sizeof damages / sizeof *damages; i++) {
        Graph *graph = parsed("graph (x: f32[2]) -> (b) {\n  a: f32[2] = neg x\n  b: f32[2] = neg a\n}\n");
        damages[i].damage(graph);
        Status status = graph_verify(graph, LEVEL_PRIM);
        cr_expect(strstr(status_message(status), damages[i].message), "%s: %s", damages[i].message,
                  status_message(status));
        status_free(status);
        graph_destroy(graph);
    }
}

/* Which values are outputs is known without a look at all of them, whatever has been replaced. */
Test(graph, outputs_of_a_value_follow_it) {
    Graph *graph =
        parsed("graph (x: f32[2]) -> (a, b, a as c, b as d, x as e) {\n  a: f32[2] = neg x\n  b: f32[2] = abs x\n}\n");
    Value *a = named(graph, "a"), *b = named(graph, "b"), *x = named(graph, "x");
    value_replace(graph, b, a);
    cr_expect(value_is_output(a) && !value_is_output(b) && value_is_output(x));
    for (int i = 0; i < 4; i++) cr_expect(graph->outputs.items[i] == a, "output %d", i);
    value_replace(graph, x, b); /* and back, with one more */
    value_replace(graph, a, b);
    cr_expect(!value_is_output(a) && !value_is_output(x) && value_is_output(b));
    graph_truncate_outputs(graph, 1);
    cr_expect(value_is_output(b) && graph->outputs.count == 1 && graph->output_names.count == 1);
    graph_truncate_outputs(graph, 0);
    cr_expect(!value_is_output(b));
    graph_destroy(graph);
}
