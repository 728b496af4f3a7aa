/* SPDX-License-Identifier: Apache-2.0 */
/* Lowering, told as text before and after: what each operator becomes, and what is said of a model that is wrong. */
#include <criterion/criterion.h>

#include <stdio.h>
#include <string.h>

#include "lowering/ops.h"
#include "policy/policy.h"

/* expected: the lowered graph, or the error. */
static const struct {
    const char *name, *source, *expected;
} cases[] = {
    {"equal nodes are made once",
     "graph (x: f32[2], y: f32[2]) -> (c) {\n"
     "a = onnx Add@14 x, y\n"
     "b = onnx Add@14 x, y\n"
     "c = onnx Mul@14 a, b\n"
     "}\n",
     "graph (x: f32[2], y: f32[2]) -> (c) {\n"
     "  a: f32[2] = add x, y\n"
     "  c: f32[2] = mul a, a\n"
     "}\n"},
    {"an instance normalisation of groups of channels keeps the picture's axes apart",
     "graph (x: f32[n, 12, 5, 7], scale: f32[3], bias: f32[3]) -> (d) {\n"
     "a = constant i64[3] {0, 3, -1}\n"
     "b = onnx Reshape@14 x, a\n"
     "c = onnx InstanceNormalization@6 b, scale, bias {epsilon = 0.5}\n"
     "e = onnx Shape@15 x\n"
     "d = onnx Reshape@14 c, e\n"
     "}\n",
     "graph (x: f32[n, 12, 5, 7], scale: f32[3], bias: f32[3]) -> (d) {\n"
     "  v4 = constant f32[] 140\n"
     "  v10 = constant f32[] 0.5\n"
     "  v1: f32[n, 3, 4, 5, 7] = reshape x {shape = (n, 3, 4, 5, 7)}\n"
     "  v2: f32[n, 3, 1, 1, 1] = reduce_sum v1 {axes = [2, 3, 4]}\n"
     "  v5: f32[n, 3, 1, 1, 1] = div v2, v4\n"
     "  v6: f32[n, 3, 4, 5, 7] = sub v1, v5\n"
     "  v7: f32[n, 3, 4, 5, 7] = mul v6, v6\n"
     "  v8: f32[n, 3, 1, 1, 1] = reduce_sum v7 {axes = [2, 3, 4]}\n"
     "  v9: f32[n, 3, 1, 1, 1] = div v8, v4\n"
     "  v11: f32[n, 3, 1, 1, 1] = add v9, v10\n"
     "  v12: f32[n, 3, 1, 1, 1] = sqrt v11\n"
     "  v13: f32[n, 3, 1, 1, 1] = reciprocal v12\n"
     "  v14: f32[n, 3, 4, 5, 7] = mul v6, v13\n"
     "  v15: f32[3, 1, 1, 1] = reshape scale {shape = (3, 1, 1, 1)}\n"
     "  v16: f32[3, 1, 1, 1] = reshape bias {shape = (3, 1, 1, 1)}\n"
     "  v17: f32[n, 3, 4, 5, 7] = mul v14, v15\n"
     "  v18: f32[n, 3, 4, 5, 7] = add v17, v16\n"
     "  d: f32[n, 12, 5, 7] = reshape v18 {shape = (n, 12, 5, 7)}\n"
     "}\n"},
    {"but not where the batch is joined",
     "graph (x: f32[2, 4, 6], scale: f32[2], bias: f32[2]) -> (c) {\n"
     "a = constant i64[3] {1, 2, 24}\n"
     "b = onnx Reshape@14 x, a\n"
     "c = onnx InstanceNormalization@6 b, scale, bias {epsilon = 0.5}\n"
     "}\n",
     "graph (x: f32[2, 4, 6], scale: f32[2], bias: f32[2]) -> (c) {\n"
     "  v3 = constant f32[] 24\n"
     "  v9 = constant f32[] 0.5\n"
     "  b: f32[1, 2, 24] = reshape x {shape = (1, 2, 24)}\n"
     "  v1: f32[1, 2, 1] = reduce_sum b {axes = [2]}\n"
     "  v4: f32[1, 2, 1] = div v1, v3\n"
     "  v5: f32[1, 2, 24] = sub b, v4\n"
     "  v6: f32[1, 2, 24] = mul v5, v5\n"
     "  v7: f32[1, 2, 1] = reduce_sum v6 {axes = [2]}\n"
     "  v8: f32[1, 2, 1] = div v7, v3\n"
     "  v10: f32[1, 2, 1] = add v8, v9\n"
     "  v11: f32[1, 2, 1] = sqrt v10\n"
     "  v12: f32[1, 2, 1] = reciprocal v11\n"
     "  v13: f32[1, 2, 24] = mul v5, v12\n"
     "  v14: f32[2, 1] = reshape scale {shape = (2, 1)}\n"
     "  v15: f32[2, 1] = reshape bias {shape = (2, 1)}\n"
     "  v16: f32[1, 2, 24] = mul v13, v14\n"
     "  c: f32[1, 2, 24] = add v16, v15\n"
     "}\n"},
    {"known indices that are a grid of all of an axis put its parts in order",
     "graph (x: f32[n, 12, 2]) -> (y, z) {\n"
     "a = constant i64[2, 3] {0, 2, 4, 1, 3, 5}\n"
     "b = constant i64[3, 2] {0, 1, 2, 3, 4, 6}\n"
     "s = constant i64[4] {0, 2, 6, 2}\n"
     "r = onnx Reshape@14 x, s\n"
     "y = onnx Gather@13 r, a {axis = 2}\n"
     "z = onnx Gather@13 x, b {axis = 1}\n"
     "}\n",
     "graph (x: f32[n, 12, 2]) -> (y, z) {\n"
     "  b = constant i64[3, 2] {0, 1, 2, 3, 4, 6}\n"
     "  v1: f32[n, 2, 3, 2, 2] = reshape x {shape = (n, 2, 3, 2, 2)}\n"
     "  y: f32[n, 2, 2, 3, 2] = permute v1 {perm = [0, 1, 3, 2, 4]}\n"
     "  z: f32[n, 3, 2, 2] = gather x, b {axis = 1}\n"
     "}\n"},
    {"indices of any size are no grid",
     "graph (x: f32[4]) -> (y) {\n"
     "a = constant i64[2, 2] {0, 4611686018427387905, 2, -9223372036854775808}\n"
     "y = onnx Gather@13 x, a\n"
     "}\n",
     "graph (x: f32[4]) -> (y) {\n"
     "  a = constant i64[2, 2] {0, 4611686018427387905, 2, -9223372036854775808}\n"
     "  y: f32[2, 2] = gather x, a {axis = 0}\n"
     "}\n"},
    {"what nothing reads is gone",
     "graph (x: f32[2]) -> (a) {\n"
     "a = onnx Neg@13 x\n"
     "b = onnx Exp@13 x\n"
     "}\n",
     "graph (x: f32[2]) -> (a) {\n"
     "  a: f32[2] = neg x\n"
     "}\n"},
    {"constants are folded",
     "graph () -> (c) {\n"
     "a = constant f32[2] {1, 2}\n"
     "b = constant f32[2] {10, 20}\n"
     "c = onnx Add@14 a, b\n"
     "}\n",
     "graph () -> (v0 as c) {\n"
     "  v0 = constant f32[2] {11, 22}\n"
     "}\n"},
    {"shape arithmetic dies: x reshaped by its own sizes",
     "graph (x: f32[b, s, 768]) -> (y) {\n"
     "sh = onnx Shape@15 x\n"
     "i = constant i64[1] {0}\n"
     "b = onnx Gather@13 sh, i\n"
     "t = constant i64[2] {-1, 64}\n"
     "n = onnx Concat@13 b, t {axis = 0}\n"
     "y = onnx Reshape@14 x, n\n"
     "}\n",
     "graph (x: f32[b, s, 768]) -> (y) {\n"
     "  y: f32[b, s*12, 64] = reshape x {shape = (b, s*12, 64)}\n"
     "}\n"},
    {"an inferred size divides exactly",
     "graph (x: f32[b, s, 768]) -> (y) {\n"
     "n = constant i64[4] {0, 0, 12, -1}\n"
     "y = onnx Reshape@14 x, n\n"
     "}\n",
     "graph (x: f32[b, s, 768]) -> (y) {\n"
     "  y: f32[b, s, 12, 64] = reshape x {shape = (b, s, 12, 64)}\n"
     "}\n"},
    {"a shape known at run time only is resolved and bound",
     "graph (x: f32[b, 6], n: i64[2]) -> (y) {\n"
     "y = onnx Reshape@14 x, n\n"
     "}\n",
     "graph (x: f32[b, 6], n: i64[2]) -> (y) {\n"
     "  v0: i64[2]<b, 6> = dims {shape = (b, 6)}\n"
     "  v1: i64[2] = host Reshape@14 v0, n {result_count = 2}\n"
     "  = host bind_sizes@14 v1 {symbols = (size, size_1)}\n"
     "  y: f32[size, size_1] = reshape x {shape = (size, size_1)}\n"
     "}\n"},
    {"sizes that are known in part keep their form",
     "graph (x: f32[b, 6], k: i64[1]) -> (y) {\n"
     "c = constant i64[1] {3}\n"
     "n = onnx Concat@13 c, k {axis = 0}\n"
     "y = onnx Reshape@14 x, n\n"
     "}\n",
     "graph (x: f32[b, 6], k: i64[1]) -> (y) {\n"
     "  c = constant i64[1] {3}\n"
     "  n: i64[2] = concat c, k {axis = 0}\n"
     "  v1: i64[2]<b, 6> = dims {shape = (b, 6)}\n"
     "  v2: i64[2] = host Reshape@14 v1, n {result_count = 2}\n"
     "  = host bind_sizes@14 v2 {symbols = (size, size_1)}\n"
     "  y: f32[3, size_1] = reshape x {shape = (3, size_1)}\n"
     "}\n"},
    {"different symbols are broadcast at run time",
     "graph (x: f32[n, 4], y: f32[m, 4]) -> (z) {\n"
     "z = onnx Add@14 x, y\n"
     "}\n",
     "graph (x: f32[n, 4], y: f32[m, 4]) -> (z) {\n"
     "  v0: f32[broadcast(m, n), 4] = expand x {shape = (broadcast(m, n), 4)}\n"
     "  v1: f32[broadcast(m, n), 4] = expand y {shape = (broadcast(m, n), 4)}\n"
     "  z: f32[broadcast(m, n), 4] = add v0, v1\n"
     "}\n"},
    {"sizes exceed negative numbers, so the choice is known",
     "graph (x: f32[s, 4], y: f32[1, 4]) -> (z) {\n"
     "n = onnx Shape@15 x\n"
     "m = constant i64[] -1\n"
     "e = onnx Equal@13 n, m\n"
     "o = constant i64[2] {1, 1}\n"
     "w = onnx Where@9 e, o, n\n"
     "z = onnx Expand@13 y, w\n"
     "}\n",
     "graph (x: f32[s, 4], y: f32[1, 4]) -> (z) {\n"
     "  z: f32[s, 4] = expand y {shape = (s, 4)}\n"
     "}\n"},
    {"slice to one before the end",
     "graph (x: f32[s, 4]) -> (y) {\n"
     "b = constant i64[1] {0}\n"
     "e = constant i64[1] {-1}\n"
     "y = onnx Slice@13 x, b, e\n"
     "}\n",
     "graph (x: f32[s, 4]) -> (y) {\n"
     "  y: f32[max(0, s - 1), 4] = slice x {shape = (max(0, s - 1), 4), start = (0, 0), step = [1, 1]}\n"
     "}\n"},
    {"slice of the last element",
     "graph (x: f32[s, 4]) -> (y) {\n"
     "b = constant i64[1] {-1}\n"
     "e = constant i64[1] {9223372036854775807}\n"
     "y = onnx Slice@13 x, b, e\n"
     "}\n",
     "graph (x: f32[s, 4]) -> (y) {\n"
     "  y: f32[min(s, 1), 4] = slice x {shape = (min(s, 1), 4), start = (s - min(s, 1), 0), step = [1, 1]}\n"
     "}\n"},
    {"slice backwards",
     "graph () -> (y) {\n"
     "x = constant i64[5] {0, 1, 2, 3, 4}\n"
     "b = constant i64[1] {-1}\n"
     "e = constant i64[1] {-9223372036854775808}\n"
     "a = constant i64[1] {0}\n"
     "s = constant i64[1] {-2}\n"
     "y = onnx Slice@13 x, b, e, a, s\n"
     "}\n",
     "graph () -> (v0 as y) {\n"
     "  v0 = constant i64[3] {4, 2, 0}\n"
     "}\n"},
    {"slice by tensors of the run",
     "graph (x: f32[s, 4], b: i64[1], e: i64[1]) -> (y) {\n"
     "y = onnx Slice@13 x, b, e\n"
     "}\n",
     "graph (x: f32[s, 4], b: i64[1], e: i64[1]) -> (y) {\n"
     "  v0: i64[2]<s, 4> = dims {shape = (s, 4)}\n"
     "  v1: i64[2] = host Slice@13 v0, b, e {slice_axes = [0], slice_steps = [1]}\n"
     "  = host bind_sizes@13 v1 {symbols = (size, size_1)}\n"
     "  y: f32[size_1, 4] = slice x {shape = (size_1, 4), start = (size, 0), step = [1, 1]}\n"
     "}\n"},
    {"split into unequal parts",
     "graph (x: f32[7, 2]) -> (a, b, c) {\n"
     "a, b, c = onnx Split@18 x {num_outputs = 3}\n"
     "}\n",
     "graph (x: f32[7, 2]) -> (a, b, c) {\n"
     "  a: f32[3, 2] = slice x {shape = (3, 2), start = (0, 0), step = [1, 1]}\n"
     "  b: f32[3, 2] = slice x {shape = (3, 2), start = (3, 0), step = [1, 1]}\n"
     "  c: f32[1, 2] = slice x {shape = (1, 2), start = (6, 0), step = [1, 1]}\n"
     "}\n"},
    {"padding by reflection",
     "graph () -> (y) {\n"
     "x = constant i64[3] {1, 2, 3}\n"
     "p = constant i64[2] {2, 4}\n"
     "y = onnx Pad@18 x, p {mode = \"reflect\"}\n"
     "}\n",
     "graph () -> (v10 as y) {\n"
     "  v10 = constant i64[9] {3, 2, 1, 2, 3, 2, 1, 2, 3}\n"
     "}\n"},
    {"padding that crops",
     "graph () -> (y) {\n"
     "x = constant i64[4] {1, 2, 3, 4}\n"
     "p = constant i64[2] {-1, 2}\n"
     "y = onnx Pad@18 x, p\n"
     "}\n",
     "graph () -> (v1 as y) {\n"
     "  v1 = constant i64[5] {2, 3, 4, 0, 0}\n"
     "}\n"},
    {"tiling by a size",
     "graph (x: f32[2, 3], y: f32[n]) -> (z) {\n"
     "s = onnx Shape@15 y\n"
     "o = constant i64[1] {1}\n"
     "r = onnx Concat@13 o, s {axis = 0}\n"
     "z = onnx Tile@13 x, r\n"
     "}\n",
     "graph (x: f32[2, 3], y: f32[n]) -> (z) {\n"
     "  v2: f32[2, 1, 3] = reshape x {shape = (2, 1, 3)}\n"
     "  v3: f32[2, n, 3] = expand v2 {shape = (2, n, 3)}\n"
     "  z: f32[2, n*3] = reshape v3 {shape = (2, n*3)}\n"
     "}\n"},
    {"a range of a size",
     "graph (x: f32[s, 4]) -> (r) {\n"
     "n = onnx Shape@15 x {start = 0, end = 1}\n"
     "m = onnx Squeeze@11 n\n"
     "z = constant i64[] 0\n"
     "o = constant i64[] 1\n"
     "r = onnx Range@11 z, m, o\n"
     "}\n",
     "graph (x: f32[s, 4]) -> (r) {\n"
     "  r: i64[s] = iota {shape = (s), axis = 0, dtype = i64}\n"
     "}\n"},
    {"the lower triangle",
     "graph () -> (y) {\n"
     "x = constant i64[2, 3] {1, 2, 3, 4, 5, 6}\n"
     "y = onnx Trilu@14 x {upper = 0}\n"
     "}\n",
     "graph () -> (v5 as y) {\n"
     "  v5 = constant i64[2, 3] {1, 0, 0, 4, 5, 0}\n"
     "}\n"},
    {"softmax subtracts the largest",
     "graph (x: f32[b, 8]) -> (y) {\n"
     "y = onnx Softmax@13 x\n"
     "}\n",
     "graph (x: f32[b, 8]) -> (y) {\n"
     "  v0: f32[b, 1] = reduce_max x {axes = [1]}\n"
     "  v1: f32[b, 8] = sub x, v0\n"
     "  v2: f32[b, 8] = exp v1\n"
     "  v3: f32[b, 1] = reduce_sum v2 {axes = [1]}\n"
     "  y: f32[b, 8] = div v2, v3\n"
     "}\n"},
    {"softmax before opset 13 runs over all axes from axis on",
     "graph (x: f32[b, 8, 3]) -> (y) {\n"
     "y = onnx Softmax@11 x\n"
     "}\n",
     "graph (x: f32[b, 8, 3]) -> (y) {\n"
     "  v0: f32[b, 1, 1] = reduce_max x {axes = [1, 2]}\n"
     "  v1: f32[b, 8, 3] = sub x, v0\n"
     "  v2: f32[b, 8, 3] = exp v1\n"
     "  v3: f32[b, 1, 1] = reduce_sum v2 {axes = [1, 2]}\n"
     "  y: f32[b, 8, 3] = div v2, v3\n"
     "}\n"},
    {"half precision is widened inside",
     "graph (x: f16[b, 8]) -> (y) {\n"
     "y = onnx Softsign@1 x\n"
     "}\n",
     "graph (x: f16[b, 8]) -> (y) {\n"
     "  v2 = constant f32[] 1\n"
     "  v0: f32[b, 8] = cast x {to = f32}\n"
     "  v1: f32[b, 8] = abs v0\n"
     "  v3: f32[b, 8] = add v2, v1\n"
     "  v4: f32[b, 8] = div v0, v3\n"
     "  y: f16[b, 8] = cast v4 {to = f16}\n"
     "}\n"},
    {"layer normalization",
     "graph (x: f32[b, 4], w: f32[4], c: f32[4]) -> (y) {\n"
     "y = onnx LayerNormalization@17 x, w, c\n"
     "}\n",
     "graph (x: f32[b, 4], w: f32[4], c: f32[4]) -> (y) {\n"
     "  v3 = constant f32[] 0.25\n"
     "  v9 = constant f32[] 1e-05\n"
     "  v0: f32[b, 1] = reduce_sum x {axes = [1]}\n"
     "  v4: f32[b, 1] = mul v0, v3\n"
     "  v5: f32[b, 4] = sub x, v4\n"
     "  v6: f32[b, 4] = mul v5, v5\n"
     "  v7: f32[b, 1] = reduce_sum v6 {axes = [1]}\n"
     "  v8: f32[b, 1] = mul v7, v3\n"
     "  v10: f32[b, 1] = add v8, v9\n"
     "  v11: f32[b, 1] = sqrt v10\n"
     "  v12: f32[b, 1] = reciprocal v11\n"
     "  v13: f32[b, 4] = mul v5, v12\n"
     "  v14: f32[b, 4] = mul v13, w\n"
     "  y: f32[b, 4] = add v14, c\n"
     "}\n"},
    {"batch normalization of constants is one product and one sum",
     "graph (x: f32[b, 2, s]) -> (y) {\n"
     "w = constant f32[2] {1, 4}\n"
     "c = constant f32[2] {0, 1}\n"
     "m = constant f32[2] {0, 4}\n"
     "v = constant f32[2] {1, 4}\n"
     "y = onnx BatchNormalization@15 x, w, c, m, v {epsilon = 0.0}\n"
     "}\n",
     "graph (x: f32[b, 2, s]) -> (y) {\n"
     "  v4 = constant f32[2, 1] {1, 2}\n"
     "  v7 = constant f32[2, 1] {0, -7}\n"
     "  v8: f32[b, 2, s] = mul x, v4\n"
     "  y: f32[b, 2, s] = add v8, v7\n"
     "}\n"},
    {"dropout outside training passes on",
     "graph (x: f32[b, 4]) -> (y) {\n"
     "r = constant f32[] 0.5\n"
     "y = onnx Dropout@13 x, r\n"
     "}\n",
     "graph (x: f32[b, 4]) -> (x as y) {\n"
     "}\n"},
    {"dropout in training draws from the run's stream",
     "graph (x: f32[b, 4]) -> (y) {\n"
     "r = constant f32[] 0.5\n"
     "t = constant bool[] true\n"
     "y = onnx Dropout@13 x, r, t\n"
     "}\n",
     "graph (x: f32[b, 4]) -> (y) {\n"
     "  v3 = constant u64[] 11400714819323198485\n"
     "  v5 = constant u64[] 2558736989570252433\n"
     "  v10 = constant u32[] 8388608\n"
     "  v11 = constant u32[] 8\n"
     "  v16 = constant f32[] 0\n"
     "  v17 = constant f32[] 2\n"
     "  v0: i64[1]<\"$run\"> = dims {shape = (\"$run\")}\n"
     "  v1: i64[]<\"$run\"> = reshape v0 {shape = ()}\n"
     "  v2: u64[] = cast v1 {to = u64}\n"
     "  v4: u64[] = mul v2, v3\n"
     "  v6: u64[] = add v5, v4\n"
     "  v7: u32[b, 4] = philox v6 {shape = (b, 4), halves = 1}\n"
     "  v12: u32[b, 4] = shr v7, v11\n"
     "  v13: bool[b, 4] = ge v12, v10\n"
     "  v19: f32[b, 4] = mul x, v17\n"
     "  y: f32[b, 4] = where v13, v19, v16\n"
     "}\n"},
    {"old broadcasting by axis",
     "graph (x: f32[2, 3, 4], y: f32[3]) -> (z) {\n"
     "z = onnx Add@6 x, y {axis = 1, broadcast = 1}\n"
     "}\n",
     "graph (x: f32[2, 3, 4], y: f32[3]) -> (z) {\n"
     "  v0: f32[3, 1] = reshape y {shape = (3, 1)}\n"
     "  z: f32[2, 3, 4] = add x, v0\n"
     "}\n"},
    {"logarithm of a sum of exponentials without overflow",
     "graph () -> (y) {\n"
     "x = constant f32[2] {1000, -inf}\n"
     "y = onnx ReduceLogSumExp@18 x {keepdims = 0}\n"
     "}\n",
     "graph () -> (v7 as y) {\n"
     "  v7 = constant f32[] 1000\n"
     "}\n"},
    {"axes known at run time only",
     "graph (x: f32[2, 3], a: i64[1]) -> (y) {\n"
     "y = onnx ReduceSum@13 x, a {keepdims = 0}\n"
     "}\n",
     "graph (x: f32[2, 3], a: i64[1]) -> (y) {\n"
     "  y: f32[reduced] = host ReduceSum@13 x, a {keepdims = 0, reduce_prim = \"reduce_sum\", reduce_keepdims = 0}\n"
     "}\n"},
    {"integers wrap between integer types",
     "graph () -> (y) {\n"
     "x = constant i32[2] {300, -1}\n"
     "y = onnx Cast@13 x {to = u8}\n"
     "}\n",
     "graph () -> (v0 as y) {\n"
     "  v0 = constant u8[2] {44, 255}\n"
     "}\n"},
    {"loss with an ignored class",
     "graph () -> (y) {\n"
     "x = constant f32[2, 2] {-1, -2, -3, -4}\n"
     "t = constant i64[2] {1, -1}\n"
     "y = onnx NegativeLogLikelihoodLoss@13 x, t {ignore_index = -1}\n"
     "}\n",
     "graph () -> (v16 as y) {\n"
     "  v16 = constant f32[] 2\n"
     "}\n"},
    {"a label below the classes does not count from their end",
     "graph () -> (y) {\n"
     "x = constant f32[2, 2] {-1, -2, -3, -4}\n"
     "t = constant i64[2] {1, -1}\n"
     "y = onnx NegativeLogLikelihoodLoss@13 x, t\n"
     "}\n",
     "NegativeLogLikelihoodLoss: sample 1 has the label -1, and there are 2 classes, 0 to 1"},
    {"a label above the classes, of one place of a sample",
     "graph () -> (y) {\n"
     "x = constant f32[1, 2, 2, 3] {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}\n"
     "t = constant i32[1, 2, 3] {0, 1, 1, 0, 0, 2}\n"
     "y = onnx SoftmaxCrossEntropyLoss@13 x, t\n"
     "}\n",
     "SoftmaxCrossEntropyLoss: sample 0, place [1, 2] has the label 2, and there are 2 classes, 0 to 1"},
    {"a loss of conditions, with an ignored class",
     "graph (x: bool[3, 5], t: i64[3]) -> (y) {\n"
     "y = onnx SoftmaxCrossEntropyLoss@13 x, t {ignore_index = -1}\n"
     "}\n",
     "node \"SoftmaxCrossEntropyLoss\" (SoftmaxCrossEntropyLoss, opset 13): sub does not work on bool (\"x\")"},
    {"an unknown operator",
     "graph (x: f32[2]) -> (y) {\n"
     "y = onnx Frobnicate@13 x\n"
     "}\n",
     "node \"Frobnicate\": operator Frobnicate of domain ai.onnx in opset 13 is not supported"},
    {"an operator of a later opset",
     "graph (x: f32[2]) -> (y) {\n"
     "y = onnx Gelu@13 x\n"
     "}\n",
     "node \"Gelu\": operator Gelu of domain ai.onnx in opset 13 is not supported (opsets from 20 are)"},
    {"different types",
     "graph (x: f32[2], y: f64[2]) -> (z) {\n"
     "z = onnx Add@14 x, y\n"
     "}\n",
     "node \"Add\" (Add, opset 14): add of float32 (\"x\") and float64 (\"y\"): the types must be equal"},
    {"shapes that do not broadcast",
     "graph (x: f32[2], y: f32[3]) -> (z) {\n"
     "z = onnx Add@14 x, y\n"
     "}\n",
     "node \"Add\" (Add, opset 14): shapes [2] and [3] do not broadcast"},
    {"an axis out of range",
     "graph (x: f32[2]) -> (z) {\n"
     "z = onnx ReduceMax@13 x {axes = [3]}\n"
     "}\n",
     "node \"ReduceMax\" (ReduceMax, opset 13): axis 3 is out of range for 1 axes"},
    {"a reshape of another number of elements",
     "graph (x: f32[2, 3]) -> (z) {\n"
     "n = constant i64[1] {7}\n"
     "z = onnx Reshape@14 x, n\n"
     "}\n",
     "node \"Reshape\" (Reshape, opset 14): shape [2, 3] cannot become [7]: 6 elements are not 7"},
    {"a missing input",
     "graph (x: f32[2]) -> (z) {\n"
     "z = onnx Add@14 x\n"
     "}\n",
     "node \"Add\" (Add, opset 14): input 1 is missing"},
    {"an index out of range in a constant",
     "graph () -> (z) {\n"
     "x = constant f32[2] {1, 2}\n"
     "i = constant i64[2] {0, 5}\n"
     "z = onnx Gather@13 x, i\n"
     "}\n",
     "gather: index 5 (element 1 of the indices) is out of range for size 2"},
};

static const char *lowered(Graph *graph) {
    Policy policy = {0};
    Text text = text_make(graph->arena);
    Status status = lower_graph(graph, &policy);
    if (status)
        text_add(&text, "%s", status_message(status));
    else
        graph_print(&text, graph);
    if (!status) {
        Status wrong = graph_verify(graph, LEVEL_PRIM);
        cr_expect(!wrong, "%s", status_message(wrong));
        status_free(wrong);
    }
    status_free(status);
    return text.data;
}

Test(lower, cases) {
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        Graph *graph = NULL;
        Status status = graph_parse(cases[i].source, &graph);
        cr_assert(!status, "%s: %s", cases[i].name, status_message(status));
        cr_expect_str_eq(lowered(graph), cases[i].expected, "%s", cases[i].name);
        graph_destroy(graph);
    }
}

static int count_nodes(const Graph *graph, const char *op) {
    int count = 0;
    FOR_EACH_NODE(node, graph) count += node->kind == NODE_ANCHOR && strcmp(node->op, op) == 0;
    return count;
}

/* Where the device multiplies rows by their experts' matrices alone, and nothing asks for a gradient. */
Test(lower, experts_see_their_own_rows) {
    static const struct {
        const char *name, *gradient;
        bool grouped;
        int sparse, dense;
    } rows[] = {
        {"on a device that can", "", true, 2, 0},
        {"on one that cannot", "", false, 0, 2},
        {"where it is differentiated", "g = onnx \"ai.onnx.preview.training\" Gradient@1 x {xs = [\"x\"], y = \"y\"}\n",
         true, 0, 2},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        Graph *graph = NULL;
        char source[1024];
        snprintf(source, sizeof source,
                 "opset 17\nopset \"com.microsoft\" 1\nopset \"ai.onnx.preview.training\" 1\n"
                 "graph (x: f32[t, 8], r: f32[t, 4], v: f32[4, 6, 8], w: f32[4, 8, 6]) -> (y%s) {\n"
                 "y = onnx \"com.microsoft\" MoE@1 x, r, v, _, w {k = 2}\n%s}\n",
                 *rows[i].gradient ? ", g" : "", rows[i].gradient);
        Status status = graph_parse(source, &graph);
        cr_assert(!status, "%s: %s", rows[i].name, status_message(status));
        Policy policy = policy_default();
        policy.target.anchors.grouped = rows[i].grouped;
        status = lower_graph(graph, &policy);
        cr_assert(!status, "%s: %s", rows[i].name, status_message(status));
        cr_expect_eq(count_nodes(graph, "matmul_grouped"), rows[i].sparse, "%s", rows[i].name);
        cr_expect_eq(count_nodes(graph, "matmul"), rows[i].dense, "%s", rows[i].name);
        graph_destroy(graph);
    }
}
