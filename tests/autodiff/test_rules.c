/* SPDX-License-Identifier: Apache-2.0 */
/* The rules of primitives and anchors against central differences. */
#include <criterion/criterion.h>

#include "autodiff/autodiff.h"
#include "differences.h"
#include "interpret.h"

#define UNARY(name, low, high)                                                                                         \
    { name, "x: f64[2, 3]", "y: f64[2, 3] = " name " x", low, high, false }

static const Row rows[] = {
    UNARY("neg", -2, 2),
    UNARY("abs", -2, -0.1),
    UNARY("sign", 0.1, 2),
    UNARY("floor", 0.1, 0.9),
    UNARY("ceil", 0.1, 0.9),
    UNARY("round", 0.6, 1.4),
    UNARY("trunc", 0.1, 0.9),
    UNARY("sqrt", 0.5, 2),
    UNARY("reciprocal", 0.5, 2),
    UNARY("exp", -2, 2),
    UNARY("log", 0.5, 2),
    UNARY("log1p", -0.5, 2),
    UNARY("expm1", -2, 2),
    UNARY("sin", -2, 2),
    UNARY("cos", -2, 2),
    UNARY("tan", -1, 1),
    UNARY("asin", -0.8, 0.8),
    UNARY("acos", -0.8, 0.8),
    UNARY("atan", -2, 2),
    UNARY("sinh", -2, 2),
    UNARY("cosh", -2, 2),
    UNARY("tanh", -2, 2),
    UNARY("asinh", -2, 2),
    UNARY("acosh", 1.5, 3),
    UNARY("atanh", -0.8, 0.8),
    UNARY("erf", -2, 2),
    UNARY("sigmoid", -2, 2),
    {"add broadcasts a row", "a: f64[2, 3], b: f64[3]", "y: f64[2, 3] = add a, b", -2, 2, false},
    {"sub broadcasts a column", "a: f64[2, 1], b: f64[2, 3]", "y: f64[2, 3] = sub a, b", -2, 2, false},
    {"mul of a value by itself", "a: f64[2, 3]", "y: f64[2, 3] = mul a, a", -2, 2, false},
    {"mul by a scalar and a batch", "a: f64[], b: f64[n, 2, 3]", "y: f64[n, 2, 3] = mul a, b", -2, 2, false},
    {"div broadcasts both ways", "a: f64[2, 1], b: f64[3]", "y: f64[2, 3] = div a, b", 0.5, 2, false},
    {"mod", "a: f64[2, 3], b: f64[2, 3]", "c = constant f64[] 3.3\nd: f64[2, 3] = mul a, c\ny: f64[2, 3] = mod d, b",
     1.0, 1.05, false},
    {"fmod of a negative dividend", "a: f64[2, 3], b: f64[2, 3]",
     "c = constant f64[] -3.3\nd: f64[2, 3] = mul a, c\ny: f64[2, 3] = fmod d, b", 1.0, 1.05, false},
    {"pow", "a: f64[2, 3], b: f64[3]", "y: f64[2, 3] = pow a, b", 0.5, 2, false},
    {"pow of a negative base by a whole number", "a: f64[2, 3]", "b = constant f64[] 4\ny: f64[2, 3] = pow a, b", -2,
     -0.5, false},
    {"min and max", "a: f64[2, 3], b: f64[2, 3]",
     "c: f64[2, 3] = max a, b\nd = constant f64[3] {0.1, 0.2, 0.3}\ny: f64[2, 3] = min c, d", -2, 2, false},
    {"where broadcasts its branches", "a: f64[2, 3], b: f64[3]",
     "c = constant bool[2, 1] {true, false}\ny: f64[2, 3] = where c, a, b", -2, 2, false},
    {"cast there and back", "a: f64[2, 3]", "b: f64[2, 3] = mul a, a\ny: f64[2, 3] = cast b {to = f64}", -2, 2, false},
    {"reduce_sum", "x: f64[2, 3, 2]", "s: f64[2, 1, 2] = reduce_sum x {axes = [1]}\ny: f64[2, 1, 2] = mul s, s", -2, 2,
     false},
    {"reduce_prod", "x: f64[2, 3]", "y: f64[2, 1] = reduce_prod x {axes = [1]}", -2, 2, false},
    {"reduce_max and reduce_min", "x: f64[2, 3]",
     "a: f64[2, 1] = reduce_max x {axes = [1]}\nb: f64[1, 3] = reduce_min x {axes = [0]}\ny: f64[2, 3] = mul a, b", -2,
     2, false},
    {"two elements that share the maximum or the minimum share its gradient", "x: f64[3, 2]",
     "a: f64[3, 1] = reduce_max x {axes = [1]}\nb: f64[3, 1] = reduce_min x {axes = [1]}\ny: f64[3, 1] = mul a, b", 1.5,
     1.5, true},
    {"softmax with its maximum", "x: f64[2, 3]",
     "m: f64[2, 1] = reduce_max x {axes = [1]}\nd: f64[2, 3] = sub x, m\ne: f64[2, 3] = exp d\ns: f64[2, 1] = "
     "reduce_sum e "
     "{axes = [1]}\ny: f64[2, 3] = div e, s",
     -2, 2, false},
    {"log_softmax with its maximum", "x: f64[2, 3]",
     "m: f64[2, 1] = reduce_max x {axes = [1]}\nd: f64[2, 3] = sub x, m\ne: f64[2, 3] = exp d\ns: f64[2, 1] = "
     "reduce_sum e "
     "{axes = [1]}\nt: f64[2, 1] = log s\ny: f64[2, 3] = sub d, t",
     -2, 2, false},
    {"logarithm of a sum, the maximum added again", "x: f64[2, 3]",
     "m: f64[2, 1] = reduce_max x {axes = [1]}\nd: f64[2, 3] = sub x, m\ne: f64[2, 3] = exp d\ns: f64[2, 1] = "
     "reduce_sum e "
     "{axes = [1]}\nt: f64[2, 1] = log s\ny: f64[2, 1] = add t, m",
     -2, 2, false},
    {"a maximum that does not cancel", "x: f64[2, 3]",
     "m: f64[2, 1] = reduce_max x {axes = [1]}\nd: f64[2, 3] = sub x, m\ny: f64[2, 3] = exp d", -2, 2, false},
    {"a maximum over other axes than the sum", "x: f64[2, 3]",
     "m: f64[1, 3] = reduce_max x {axes = [0]}\nd: f64[2, 3] = sub x, m\ne: f64[2, 3] = exp d\ns: f64[2, 1] = "
     "reduce_sum e "
     "{axes = [1]}\ny: f64[2, 3] = div e, s",
     -2, 2, false},
    {"reshape and permute", "x: f64[2, 3]",
     "a: f64[3, 2] = permute x {perm = [1, 0]}\nb: f64[6] = reshape a {shape = (6)}\ny: f64[6] = mul b, b", -2, 2,
     false},
    {"permute of three axes", "x: f64[2, 3, 4]",
     "a: f64[4, 2, 3] = permute x {perm = [2, 0, 1]}\ny: f64[4, 2, 3] = mul a, a", -2, 2, false},
    {"expand", "x: f64[2, 1]", "a: f64[2, 3] = expand x {shape = (2, 3)}\ny: f64[2, 3] = mul a, a", -2, 2, false},
    {"expand that repeats nothing at this size", "x: f64[n], z: f64[m]",
     "a: f64[max(n, m)] = expand x {shape = (max(n, m))}\ny: f64[max(n, m)] = mul a, a", -2, 2, false},
    {"expand of what is 1 at this size", "x: f64[one], z: f64[m]",
     "a: f64[max(one, m)] = expand x {shape = (max(one, m))}\ny: f64[max(one, m)] = mul a, a", -2, 2, false},
    {"slice", "x: f64[5, 3]",
     "a: f64[2, 3] = slice x {shape = (2, 3), start = (1, 0), step = [1, 1]}\ny: f64[2, 3] = mul a, a", -2, 2, false},
    {"slice in steps, backwards", "x: f64[7, 3]",
     "a: f64[3, 2] = slice x {shape = (3, 2), start = (6, 0), step = [-3, 2]}\ny: f64[3, 2] = mul a, a", -2, 2, false},
    {"slice of a symbolic size", "x: f64[n, 2]",
     "a: f64[n - 1, 2] = slice x {shape = (n - 1, 2), start = (1, 0), step = [1, 1]}\ny: f64[n - 1, 2] = mul a, a", -2,
     2, false},
    {"slice of nothing", "x: f64[3, 2]", "y: f64[0, 2] = slice x {shape = (0, 2), start = (1, 0), step = [1, 1]}", -2,
     2, false},
    {"slices that fit together, and one beside them", "x: f64[2, 7]",
     "a: f64[2, 2] = slice x {shape = (2, 2), start = (0, 1), step = [1, 1]}\nb: f64[2, 1] = slice x {shape = (2, 1), "
     "start = (0, 6), step = [1, 1]}\nc: f64[2, 3] = slice x {shape = (2, 3), start = (0, 3), step = [1, 1]}\nd: "
     "f64[2, 2] = mul a, a\ne: f64[2, 1] = exp b\nf: f64[2, 3] = sin c\ny: f64[2, 6] = concat d, e, f {axis = 1}",
     -2, 2, false},
    {"slices that overlap", "x: f64[4]",
     "a: f64[3] = slice x {shape = (3), start = (0), step = [1]}\nb: f64[3] = slice x {shape = (3), start = (1), step "
     "= "
     "[1]}\ny: f64[3] = mul a, b",
     -2, 2, false},
    {"corners of a matrix", "x: f64[4, 4]",
     "a: f64[2, 2] = slice x {shape = (2, 2), start = (0, 0), step = [1, 1]}\nb: f64[2, 2] = slice x {shape = (2, 2), "
     "start = (2, 2), step = [1, 1]}\ny: f64[2, 2] = mul a, b",
     -2, 2, false},
    {"halves of a symbolic size", "x: f64[n]",
     "a: f64[2] = slice x {shape = (2), start = (0), step = [1]}\nb: f64[n - 2] = slice x {shape = (n - 2), start = "
     "(2), step = [1]}\nc: f64[n - 2] = exp b\nd: f64[2] = mul a, a\ny: f64[n] = concat c, d {axis = 0}",
     -2, 2, false},
    {"pad", "x: f64[2, 3], f: f64[]",
     "a: f64[5, 4] = pad x, f {before = (1, 0), after = (2, 1)}\ny: f64[5, 4] = mul a, a", -2, 2, false},
    {"pad that cuts off", "x: f64[4, 3], f: f64[]",
     "a: f64[4, 2] = pad x, f {before = (-1, 0), after = (1, -1)}\ny: f64[4, 2] = mul a, a", -2, 2, false},
    {"concat, one part twice", "a: f64[2, 1], b: f64[2, 3]",
     "c: f64[2, 5] = concat a, b, a {axis = 1}\ny: f64[2, 5] = mul c, c", -2, 2, false},
    {"gather of rows, one twice, one from the end", "x: f64[4, 2]",
     "i = constant i64[3] {1, -1, 1}\na: f64[3, 2] = gather x, i {axis = 0}\ny: f64[3, 2] = mul a, a", -2, 2, false},
    {"gather in the middle by a matrix", "x: f64[2, 4, 3]",
     "i = constant i64[2, 2] {1, 0, 3, 1}\na: f64[2, 2, 2, 3] = gather x, i {axis = 1}\ny: f64[2, 2, 2, 3] = mul a, a",
     -2, 2, false},
    {"gather of one", "x: f64[2, 4]", "i = constant i64[] 2\na: f64[2] = gather x, i {axis = 1}\ny: f64[2] = mul a, a",
     -2, 2, false},
    {"gather_elements", "x: f64[3, 2]",
     "i = constant i64[2, 2] {1, 0, 1, -1}\na: f64[2, 2] = gather_elements x, i {axis = 0}\ny: f64[2, 2] = mul a, a",
     -2, 2, false},
    {"scatter_elements replaces", "x: f64[3, 2], u: f64[2, 2]",
     "i = constant i64[2, 2] {1, 0, 2, 1}\na: f64[3, 2] = scatter_elements x, i, u {axis = 0, reduction = "
     "\"none\"}\ny: f64[3, "
     "2] = mul a, a",
     -2, 2, false},
    {"scatter_elements adds, one place twice", "x: f64[3, 2], u: f64[2, 2]",
     "i = constant i64[2, 2] {1, 0, 1, 1}\na: f64[3, 2] = scatter_elements x, i, u {axis = 0, reduction = \"add\"}\ny: "
     "f64[3, "
     "2] = mul a, a",
     -2, 2, false},
    {"scatter_elements multiplies", "x: f64[3, 2], u: f64[2, 2]",
     "i = constant i64[2, 2] {1, 0, 1, 1}\na: f64[3, 2] = scatter_elements x, i, u {axis = 0, reduction = \"mul\"}\ny: "
     "f64[3, "
     "2] = mul a, a",
     0.5, 2, false},
    {"scatter_elements takes the larger", "x: f64[3, 2], u: f64[2, 2]",
     "i = constant i64[2, 2] {1, 0, 1, 1}\na: f64[3, 2] = scatter_elements x, i, u {axis = 0, reduction = \"max\"}\ny: "
     "f64[3, "
     "2] = mul a, a",
     -2, 2, false},
    {"scatter_nd replaces rows", "x: f64[4, 2], u: f64[2, 2]",
     "i = constant i64[2, 1] {3, 0}\na: f64[4, 2] = scatter_nd x, i, u {reduction = \"none\"}\ny: f64[4, 2] = mul a, a",
     -2, 2, false},
    {"scatter_nd adds elements", "x: f64[4, 2], u: f64[3]",
     "i = constant i64[3, 2] {3, 0, 1, 1, 3, 0}\na: f64[4, 2] = scatter_nd x, i, u {reduction = \"add\"}\ny: f64[4, 2] "
     "= mul a, a",
     -2, 2, false},
    {"scatter_nd multiplies", "x: f64[4, 2], u: f64[3, 2]",
     "i = constant i64[3, 1] {3, 1, 3}\na: f64[4, 2] = scatter_nd x, i, u {reduction = \"mul\"}\ny: f64[4, 2] = mul a, "
     "a",
     0.5, 2, false},
    {"scatter_nd takes the smaller", "x: f64[4, 2], u: f64[3, 2]",
     "i = constant i64[3, 1] {3, 1, 3}\na: f64[4, 2] = scatter_nd x, i, u {reduction = \"min\"}\ny: f64[4, 2] = mul a, "
     "a",
     -2, 2, false},
    {"matmul", "a: f64[2, 3], b: f64[3, 4]", "y: f64[2, 4] = anchor matmul a, b", -2, 2, false},
    {"matmul of a batch by one matrix", "a: f64[n, 2, 3], b: f64[3, 4]", "y: f64[n, 2, 4] = anchor matmul a, b", -2, 2,
     false},
    {"matmul of batches that repeat", "a: f64[2, 1, 2, 3], b: f64[3, 3, 2]", "y: f64[2, 3, 2, 2] = anchor matmul a, b",
     -2, 2, false},
    {"matmul of one matrix by a batch", "a: f64[2, 3], b: f64[2, 3, 2]", "y: f64[2, 2, 2] = anchor matmul a, b", -2, 2,
     false},
    {"matmul through permutes, scaled", "a: f64[3, 2, 2], b: f64[4, 3]",
     "y: f64[4, 2, 2] = anchor matmul a, b {perm_a = [1, 2, 0], perm_b = [1, 0], perm_out = [2, 0, 1], alpha = 0.5}",
     -2, 2, false},
    {"matmul without rows", "a: f64[0, 3], b: f64[3, 4]", "y: f64[0, 4] = anchor matmul a, b", -2, 2, false},
    {"matmul by a matrix of few bits", "x: f64[2, 20]",
     "b = constant u8[3, 2, 4] {11, 48, 85, 122, 159, 196, 233, 14, 51, 88, 125, 162, 199, 236, 17, 54, 91, 128, 165, "
     "202, 239, 20, 57, 94}\n"
     "a: f32[2, 20] = cast x {to = f32}\nr: f32[2, 3] = anchor matmul_bits a, b {weight_bits = 2, weight_block = 16, "
     "weight_depth = 20, "
     "weight_scales = tensor f32[6] {0.5, 1, 0.25, 0.75, 1.5, 1}, weight_zeros = tensor f32[6] {0, 1, 2, 3, 1.5, "
     "2}}\ny: f64[2, 3] = cast r {to = f64}",
     -2, 2, false, true},
    {"conv", "x: f64[2, 5, 4, 3], w: f64[2, 3, 3, 2]",
     "y: f64[2, 3, 3, 2] = anchor conv x, w {strides = [1, 1], dilations = [1, 1], pads = (0, 0, 0, 0), group = 1}", -2,
     2, false},
    {"conv with strides, dilations, pads and groups", "x: f64[1, 7, 6, 4], w: f64[6, 2, 3, 2]",
     "y: f64[1, 4, 3, 6] = anchor conv x, w {strides = [2, 2], dilations = [1, 2], pads = (1, 0, 2, 1), group = 2}", -2,
     2, false},
    {"conv that leaves a row unread", "x: f64[1, 6, 1], w: f64[1, 1, 3]",
     "y: f64[1, 2, 1] = anchor conv x, w {strides = [2], dilations = [1], pads = (0, 0), group = 1}", -2, 2, false},
    {"conv, depthwise", "x: f64[n, 4, 5, 3], w: f64[3, 1, 3, 3]",
     "y: f64[n, 4, 5, 3] = anchor conv x, w {strides = [1, 1], dilations = [1, 1], pads = (1, 1, 1, 1), group = 3}", -2,
     2, false},
    {"conv_transpose", "x: f64[1, 3, 2, 4], w: f64[4, 2, 3, 2]",
     "y: f64[1, 7, 5, 4] = anchor conv_transpose x, w {strides = [2, 3], dilations = [1, 1], pads = (0, 0, 0, 0), "
     "group = 2}",
     -2, 2, false},
    {"attention", "q: f64[2, 3, 2], k: f64[2, 4, 2], v: f64[2, 4, 3]",
     "y: f64[2, 3, 3] = anchor attention q, k, v {scale = 0.5}", -2, 2, true},
    {"attention through permutes, heads that share keys", "q: f64[2, 3, 4, 2], k: f64[2, 2, 2, 5], v: f64[5, 2, 2, 3]",
     "y: f64[2, 3, 4, 3] = anchor attention q, k, v {perm_q = [0, 2, 1, 3], perm_k = [0, 1, 3, 2], perm_v = [1, 2, 0, "
     "3], perm_out = [0, 2, 1, 3]}",
     -2, 2, true},
    {"attention, a result whose elements are not last", "q: f64[n, 4, 2], k: f64[n, 3, 2], v: f64[n, 3, 2]",
     "y: f64[2, 4, n] = anchor attention q, k, v {perm_out = [2, 1, 0]}", -2, 2, true},
    {"attention with a soft cap, bounds and masks", "q: f64[2, 3, 2], k: f64[2, 4, 2], v: f64[2, 4, 2]",
     "b = constant f64[4] {0.5, -1, 0, 2}\nc = constant bool[3, 4] {true, false, true, true, true, true, false, true, "
     "false, true, true, true}\ny: f64[2, 3, "
     "2] = anchor attention q, k, v, b, c, c {steps = [3, 0, 1, 0, 2, 5, 6], steps_alpha = [0.0, 0.5, 0.0, 2.0, -1.4, "
     "-3.0, -2.0], steps_beta = [0.0, 0.0, 0.0, 0.0, 1.3, 0.0, 0.0]}",
     -2, 2, true},
    {"attention, causal by -inf, a row that sees nothing is zero", "q: f64[3, 2], k: f64[3, 2], v: f64[3, 2]",
     "y: f64[3, 2] = anchor attention q, k, v {empty = 1, steps = [7], steps_alpha = [-inf], steps_beta = [0.0], "
     "offset "
     "= (-1)}",
     -2, 2, true},
    {"attention, causal by finite numbers", "q: f64[3, 2], k: f64[3, 2], v: f64[3, 2]",
     "c = constant f64[1, 3] {0, -inf, 0}\na: f64[3, 2] = anchor attention q, k, v, c {steps = [7, 4], steps_alpha = "
     "[-1.0, 0.0], steps_beta = [0.0, 0.0], offset = (0)}\nb: f64[3, 2] = anchor attention q, k, v {steps = [8], "
     "steps_alpha = [-1.0], steps_beta = [0.0], offset = (1)}\ny: f64[3, 2] = mul a, b",
     -2, 2, true},
    {"attention, a part of whose probabilities is dropped", "q: f64[2, 3, 2], k: f64[2, 4, 2], v: f64[2, 4, 3]",
     "s = constant u64[] 42\ny: f64[2, 3, 3] = anchor attention q, k, v, s {scale = 0.5, steps = [9], steps_alpha = "
     "[4194304.0], steps_beta = [1.3333334]}",
     -2, 2, true},
    {"attention of a key by itself", "x: f64[1, 1, 2]", "y: f64[1, 1, 2] = anchor attention x, x, x", -2, 2, true},
    {"attention without queries", "q: f64[2, 0, 2], k: f64[2, 4, 2], v: f64[2, 4, 3]",
     "y: f64[2, 0, 3] = anchor attention q, k, v", -2, 2, true},
    {"an integer path gives nothing", "x: f64[3], k: f64[3]",
     "i: i64[3] = cast k {to = i64}\nj: f64[3] = cast i {to = f64}\ny: f64[3] = mul x, j", 0.1, 0.9, false},
};

Test(rules, are_the_limits_of_differences) { check_differences(rows, sizeof rows / sizeof *rows); }

/* Parts that fit together are joined, where zeros of the whole size a part would be added. */
Test(rules, gradients_of_slices_are_joined) {
    Graph *graph = NULL;
    Status status =
        graph_parse("graph (x: f32[4, n + 3]) -> (y) {\n"
                    "a: f32[4, 1] = slice x {shape = (4, 1), start = (0, 0), step = [1, 1]}\n"
                    "b: f32[4, n] = slice x {shape = (4, n), start = (0, 1), step = [1, 1]}\n"
                    "c: f32[4, 2] = slice x {shape = (4, 2), start = (0, n + 1), step = [1, 1]}\n"
                    "e: f32[4, n] = exp b\ns: f32[4, 2] = sin c\ny: f32[4, n + 3] = concat e, a, s {axis = 1}\n}\n",
                    &graph);
    cr_assert_null(status, "%s", status_message(status));
    Lowering l = {.graph = graph, .arena = graph->arena, .dims = graph->dims, .elsewhere = true};
    Value *gradient;
    status = differentiate(&l, graph->outputs.items[0], NULL, graph->inputs.items, 1, &gradient);
    cr_assert_null(status, "%s", status_message(status));
    cr_assert(gradient->producer && gradient->producer->prim == PRIM_CONCAT);
    cr_expect_eq(gradient->producer->input_count, 3);
    graph_destroy(graph);
}
