/* SPDX-License-Identifier: Apache-2.0 */
/* What nodes cost, counted by hand. In all graphs the first symbol, b, is 3. */
#include <criterion/criterion.h>
#include <string.h>
#include "graph/cost.h"
#include "lowering/anchor/anchor_cost.h"

typedef struct Case {
    const char *name, *text; /* the graph's first node is what is looked at */
    double read, written, products, others;
    WorkType type;
    double weight_bytes; /* as the device says of an anchor */
} Case;

#define REGION(input, body, output)                                                                                    \
    "graph (x: " input ") -> (y) {\n y: f32[1] = region x graph (x: " input ") -> (" output ") {\n" body "}\n}\n"

static const Case cases[] = {
    {"an addition", REGION("f32[b, 8]", "y: f32[b, 8] = add x, x\n", "y"), 96, 96, 0, 24},
    {"exp is what its kernel does", REGION("f32[8]", "y: f32[8] = exp x\n", "y"), 32, 32, 0, 13 * 8},
    {"f16 is computed in f32 and moved as it is", REGION("f16[b, 8]", "y: f16[b, 8] = mul x, x\n", "y"), 48, 48, 0, 24},
    {"f64", REGION("f64[b, 8]", "y: f64[b, 8] = mul x, x\n", "y"), 192, 192, 0, 24, WORK_F64},
    {"integers", REGION("i64[4]", "y: i64[4] = add x, x\n", "y"), 32, 32, 0, 4, WORK_INTEGER},
    {"a reduction takes its input's elements", REGION("f32[b, 8]", "y: f32[b, 1] = reduce_sum x {axes = [1]}\n", "y"),
     96, 12, 0, 24},
    {"what stays inside costs no bytes", REGION("f32[b, 8]", "a: f32[b, 8] = abs x\n y: f32[b, 8] = sqrt a\n", "y"), 96,
     96, 0, 48},
    {"a constant of one element costs none",
     REGION("f32[b, 8]", "c = constant f32[] 2\n y: f32[b, 8] = mul x, c\n", "y"), 96, 96, 0, 24},
    {"two outputs", REGION("f32[8]", "a: f32[8] = abs x\n y: f32[8] = sqrt a\n", "a, y"), 32, 64, 0, 16},
    {"a slice reads its part",
     REGION("f32[b, 8]",
            "s: f32[b, 2] = slice x {shape = (b, 2), start = (0, 6), step = [1, 1]}\n y: f32[b, 2] = abs s\n", "y"),
     24, 24, 0, 6},
    {"two slices read theirs",
     REGION("f32[b, 8]",
            "s: f32[b, 2] = slice x {shape = (b, 2), start = (0, 6), step = [1, 1]}\n t: f32[b, 2] = slice x {shape = "
            "(b, 2), start = (0, 0), step = [1, 1]}\n y: f32[b, 2] = add s, t\n",
            "y"),
     48, 24, 0, 6},
    {"slices and a reader of all read all once",
     REGION("f32[b, 8]",
            "s: f32[b, 1] = slice x {shape = (b, 1), start = (0, 6), step = [1, 1]}\n y: f32[b, 8] = add s, x\n", "y"),
     96, 96, 0, 24},
    {"random words",
     "graph (s: u64[]) -> (y) {\n y: u32[4] = region s graph (s: u64[]) -> (y) {\n y: u32[4] = philox s {shape = "
     "(4)}\n}\n}\n",
     8, 16, 0, 100, WORK_INTEGER},
    {"halves of random words",
     "graph (s: u64[]) -> (y) {\n y: u32[4] = region s graph (s: u64[]) -> (y) {\n y: u32[4] = philox s {shape = "
     "(4), halves = 1}\n}\n}\n",
     8, 16, 0, 50, WORK_INTEGER},
    {"casts and permutes compute nothing",
     REGION("f32[b, 8]", "p: f32[8, b] = permute x {perm = [1, 0]}\n y: f64[8, b] = cast p {to = f64}\n", "y"), 96, 192,
     0, 0},
    {"a lookup reads the rows that it hands on",
     "graph (t: f32[1000, 8], i: i64[b]) -> (y) {\n y: f32[b, 8] = gather t, i {axis = 0}\n}\n", 24 + 96, 96, 0, 0},
    {"a scatter copies all",
     "graph (t: f32[10, 8], i: i64[b, 1], u: f32[b, 8]) -> (y) {\n y: f32[10, 8] = scatter_nd t, i, u {reduction = "
     "\"none\"}\n}\n",
     320 + 24 + 96, 320, 0, 0},
    {"a concat", "graph (t: f32[b, 8], u: f32[b, 4]) -> (y) {\n y: f32[b, 16] = concat t, u, u {axis = 1}\n}\n",
     96 + 48, 192, 0, 0},
    {"a product", "graph (x: f32[b, 8], w: f32[8, 5]) -> (y) {\n y: f32[b, 5] = anchor matmul x, w\n}\n", 96 + 160, 60,
     2 * 3 * 8 * 5, 0},
    {"a product behind permutes",
     "graph (x: f32[8, b], w: f32[5, 8]) -> (y) {\n y: f32[5, b] = anchor matmul x, w {perm_a = [1, 0], perm_b = [1, "
     "0], perm_out = [1, 0]}\n}\n",
     96 + 160, 60, 240, 0},
    {"a product of one value by itself reads it once",
     "graph (x: f32[4, 4]) -> (y) {\n y: f32[4, 4] = anchor matmul x, x\n}\n", 64, 64, 128, 0},
    {"heads share one matrix",
     "graph (x: f32[2, b, 8], w: f32[8, 5]) -> (y) {\n y: f32[2, b, 5] = anchor matmul x, w\n}\n", 192 + 160, 120, 480,
     0},
    {"an epilogue: bias and ReLU",
     "graph (x: f32[b, 8], w: f32[8, 5], c: f32[5]) -> (y) {\n y: f32[b, 5] = anchor matmul x, w, c graph (r: f32[b, "
     "5], "
     "c: f32[5]) -> (m) {\n s: f32[b, 5] = add r, c\n z = constant f32[] 0\n m: f32[b, 5] = max s, z\n}\n}\n",
     96 + 160 + 20, 60, 240, 30},
    {"an epilogue of two results, one of them narrower",
     "graph (x: f32[b, 8], w: f32[8, 5]) -> (y, n) {\n y: f32[b, 5], n: f16[b, 5] = anchor matmul x, w graph (r: "
     "f32[b, "
     "5]) -> (m, n) {\n m: f32[b, 5] = exp r\n n: f16[b, 5] = cast m {to = f16}\n}\n}\n",
     96 + 160, 60 + 30, 240, 15 * 13},
    {"a weight that is held narrower",
     "graph (x: f32[b, 8], w: f32[8, 5]) -> (y) {\n y: f32[b, 5] = anchor matmul x, w\n}\n", 96 + 40, 60, 240, 0,
     WORK_F32, 40},
    {"a weight that is packed with room beside it",
     "graph (x: f32[b, 8], w: f32[8, 5]) -> (y) {\n y: f32[b, 5] = anchor matmul x, w\n}\n", 96 + 160, 60, 240, 0,
     WORK_F32, 512},
    {"integers multiply as such",
     "graph (x: i32[b, 8], w: i32[8, 5]) -> (y) {\n y: i32[b, 5] = anchor matmul x, w\n}\n", 96 + 160, 60, 240, 0,
     WORK_INTEGER},
    {"bytes have instructions of their own",
     "graph (x: u8[b, 8], w: i8[8, 5]) -> (y) {\n y: i32[b, 5] = anchor matmul x, w\n}\n", 24 + 40, 60, 240, 0,
     WORK_BYTES},
    {"bf16, too", "graph (x: bf16[b, 8], w: bf16[8, 5]) -> (y) {\n y: bf16[b, 5] = anchor matmul x, w\n}\n", 48 + 80,
     30, 240, 0, WORK_BF16},
    {"f16 is multiplied in f32", "graph (x: f16[b, 8], w: f16[8, 5]) -> (y) {\n y: f16[b, 5] = anchor matmul x, w\n}\n",
     48 + 80, 30, 240, 0},
    {"a convolution",
     "graph (x: f32[b, 6, 6, 2], w: f32[4, 2, 3, 3]) -> (y) {\n y: f32[b, 4, 4, 4] = anchor conv x, w {strides = [1, "
     "1], dilations = [1, 1], pads = (0, 0, 0, 0), group = 1}\n}\n",
     3 * 72 * 4 + 72 * 4, 3 * 64 * 4, 2 * 3 * 16 * 72, 0},
    {"in groups",
     "graph (x: f32[b, 6, 6, 4], w: f32[4, 1, 3, 3]) -> (y) {\n y: f32[b, 4, 4, 4] = anchor conv x, w {strides = [1, "
     "1], dilations = [1, 1], pads = (0, 0, 0, 0), group = 4}\n}\n",
     3 * 144 * 4 + 36 * 4, 3 * 64 * 4, 2 * 3 * 64 * 9, 0},
    {"strides that leave positions out",
     "graph (x: f32[b, 8, 8, 2], w: f32[4, 2, 1, 1]) -> (y) {\n y: f32[b, 4, 4, 4] = anchor conv x, w {strides = [2, "
     "2], dilations = [1, 1], pads = (0, 0, 0, 0), group = 1}\n}\n",
     3 * 32 * 4 + 8 * 4, 3 * 64 * 4, 2 * 3 * 64 * 2, 0},
    {"a transposed convolution",
     "graph (x: f32[b, 4, 4, 2], w: f32[2, 5, 2, 2]) -> (y) {\n y: f32[b, 8, 8, 5] = anchor conv_transpose x, w "
     "{strides = [2, 2], dilations = [1, 1], pads = (0, 0, 0, 0), group = 1}\n}\n",
     3 * 32 * 4 + 40 * 4, 3 * 320 * 4, 2 * 3 * 32 * 20, 0},
    {"rows in groups, of which each reads a matrix at most",
     "graph (x: f32[b, 1, 8], w: f32[16, 8, 5], g: i64[b, 2], c: f32[16, 5]) -> (y) {\n y: f32[b, 2, 5] = anchor "
     "matmul_grouped x, w, g, c\n}\n",
     96 + 6 * 160 + 48 + 320, 120, 2 * 6 * 8 * 5, 0},
    {"more rows in groups than there are",
     "graph (x: f32[b, 1, 8], w: f32[4, 8, 5], g: i64[b, 2]) -> (y) {\n y: f32[b, 2, 5] = anchor matmul_grouped x, w, "
     "g\n}\n",
     96 + 4 * 160 + 48, 120, 2 * 6 * 8 * 5, 0},
    {"attention",
     "graph (q: f32[b, 2, 4, 8], k: f32[b, 2, 6, 8], v: f32[b, 2, 6, 16]) -> (y) {\n y: f32[b, 2, 4, 16] = anchor "
     "attention q, k, v\n}\n",
     4 * 3 * 2 * (32 + 48 + 96), 4 * 3 * 2 * 64, 2 * 3 * 2 * 4 * 6 * (8 + 16), 0},
};

static bool cost_of(const Node *node, const int64_t *symbols, double weight_bytes, Cost *out) {
    if (node->kind == NODE_REGION) return region_cost(node, symbols, out);
    return node->kind == NODE_PRIM ? prim_cost(node, symbols, out) : anchor_cost(node, symbols, weight_bytes, out);
}

Test(cost, as_counted_by_hand) {
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const Case *c = &cases[i];
        Graph *graph = NULL;
        Status status = graph_parse(c->text, &graph);
        cr_assert(!status, "%s: %s", c->name, status_message(status));
        Cost cost;
        cr_expect(cost_of(graph->first, (int64_t[]){3, 3, 3}, c->weight_bytes, &cost), "%s", c->name);
        cr_expect(cost.read == c->read && cost.written == c->written, "%s: %g read, %g written", c->name, cost.read,
                  cost.written);
        cr_expect(cost.products[c->type] == c->products && cost.others[c->type] == c->others,
                  "%s: %g in products, %g others", c->name, cost.products[c->type], cost.others[c->type]);
        cr_expect(cost_all_work(&cost) == c->products + c->others, "%s: work of another type", c->name);
        graph_destroy(graph);
    }
}

Test(cost, is_not_known_without_all_sizes) {
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        if (!strstr(cases[i].text, "[b") && !strstr(cases[i].text, ", b")) continue;
        Graph *graph = NULL;
        Status status = graph_parse(cases[i].text, &graph);
        cr_assert(!status);
        Cost cost;
        cr_expect(!cost_of(graph->first, (int64_t[]){UNBOUND_DIM, UNBOUND_DIM, UNBOUND_DIM}, 0, &cost), "%s",
                  cases[i].name);
        graph_destroy(graph);
    }
}
