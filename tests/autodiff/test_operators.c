/* SPDX-License-Identifier: Apache-2.0 */
/* Gradients of operators that host kernels compute, and of what they lower to, against central differences. At kinks: the first of equal
 * maxima under a window has the gradient. */
#include <criterion/criterion.h>

#include "differences.h"

/* v: x doubled. p, q: 1 and -1, which no pass can tell. */
#define RUN_POSITION                                                                                                   \
    "v = onnx Add@14 x, x\nnothing = constant f64[] 0\nnone = onnx Mul@14 x, nothing\nsum = onnx ReduceSum@13 none "   \
    "{keepdims = 0}\nwhole = onnx Cast@13 sum {to = 7}\none = constant i64[] 1\np = onnx Add@14 whole, one\nq = onnx " \
    "Neg@13 p\nzeros = constant i64[1] {0}\ntwo = constant i64[1] {2}\nfour = constant i64[1] {4}\n"

static const Row rows[] = {
    {"MaxPool: windows that overlap, padded, dilated", "x: f64[2, 3, 6, 5]",
     "a = onnx MaxPool@22 x {kernel_shape = [3, 2], strides = [2, 1], pads = [1, 0, 1, 1], dilations = [1, 2]}\ny = "
     "onnx Mul@14 a, a",
     -2, 2, false, false},
    {"MaxPool: the last window hangs over", "x: f64[1, 2, 6]",
     "a = onnx MaxPool@22 x {kernel_shape = [3], strides = [2], ceil_mode = 1}\ny = onnx Mul@14 a, a", -2, 2, false,
     false},
    {"MaxPool: the indices asked for, counted by columns", "x: f64[1, 2, 4, 4]",
     "a, i = onnx MaxPool@22 x {kernel_shape = [2, 2], strides = [2, 2], storage_order = 1}\ny = onnx Mul@14 a, a", -2,
     2, false, false},
    {"MaxPool: of 17 channels", "x: f64[n, 17, 4]", "a = onnx MaxPool@22 x {kernel_shape = [2]}\ny = onnx Mul@14 a, a",
     -2, 2, true, false},
    {"MaxPool: no images", "x: f64[0, 2, 4]", "a = onnx MaxPool@22 x {kernel_shape = [2]}\ny = onnx Mul@14 a, a", -2, 2,
     false, false},
    {"MaxPool: no windows", "x: f64[2, 2, 2]", "a = onnx MaxPool@22 x {kernel_shape = [3]}\ny = onnx Mul@14 a, a", -2,
     2, false, false},
    {"AveragePool: no windows", "x: f64[2, 2, 2]",
     "a = onnx AveragePool@22 x {kernel_shape = [3]}\ny = onnx Mul@14 a, a", -2, 2, false, false},
    {"AveragePool: paddings not counted", "x: f64[2, 3, 5, 4]",
     "a = onnx AveragePool@22 x {kernel_shape = [3, 2], strides = [2, 1], pads = [1, 1, 1, 0]}\ny = onnx Mul@14 a, a",
     -2, 2, false, false},
    {"AveragePool: paddings counted, the last window hangs over", "x: f64[1, 2, 6, 4]",
     "a = onnx AveragePool@22 x {kernel_shape = [3, 3], strides = [2, 2], pads = [1, 1, 1, 1], ceil_mode = 1, "
     "count_include_pad = 1}\ny = onnx Mul@14 a, a",
     -2, 2, false, false},
    {"AveragePool: dilated, three axes", "x: f64[1, 1, 4, 3, 5]",
     "a = onnx AveragePool@22 x {kernel_shape = [2, 1, 2], dilations = [2, 1, 3]}\ny = onnx Mul@14 a, a", -2, 2, false,
     false},
    {"LpPool", "x: f64[1, 2, 5, 4]",
     "a = onnx LpPool@22 x {kernel_shape = [2, 3], strides = [2, 1], pads = [1, 1, 1, 1]}\ny = onnx Mul@14 a, a", -2, 2,
     false, false},
    {"LpPool: sums of cubes", "x: f64[1, 2, 5, 4]",
     "a = onnx LpPool@22 x {kernel_shape = [2, 2], p = 3, dilations = [2, 1]}\ny = onnx Mul@14 a, a", 0.5, 2, false,
     false},
    {"LpPool: sums of absolute values", "x: f64[1, 2, 5]",
     "a = onnx LpPool@22 x {kernel_shape = [2], p = 1, ceil_mode = 1, strides = [3]}\ny = onnx Mul@14 a, a", -2, 2,
     false, false},
    {"GlobalAveragePool, GlobalMaxPool, GlobalLpPool", "x: f64[2, 3, 2, 2]",
     "b = onnx GlobalAveragePool@22 x\nc = onnx GlobalMaxPool@22 x\nd = onnx GlobalLpPool@22 x\ne = onnx Mul@14 b, "
     "c\ny = onnx Mul@14 e, d",
     -2, 2, false, false},
    {"MaxRoiPool", "x: f64[1, 2, 4, 5]",
     "r = constant f32[2, 5] {0, 0, 0, 3, 3, 0, 1, 2, 4, 9}\na = onnx MaxRoiPool@22 x, r {pooled_shape = [2, 2]}\ny = "
     "onnx Mul@14 a, a",
     -2, 2, false, true},
    {"MaxUnpool", "x: f64[1, 1, 2, 2]",
     "i = constant i64[1, 1, 2, 2] {5, 7, 13, 15}\na = onnx MaxUnpool@22 x, i {kernel_shape = [2, 2], strides = [2, "
     "2]}\ny = onnx Mul@14 a, a",
     -2, 2, false, false},
    {"Col2Im", "x: f64[1, 8, 6]",
     "i = constant i64[2] {4, 5}\nb = constant i64[2] {2, 2}\na = onnx Col2Im@18 x, i, b {strides = [2, 2], pads = [0, "
     "1, 0, 1]}\ny = onnx Mul@14 a, a",
     -2, 2, false, false},
    {"Col2Im: blocks that overlap, dilated", "x: f64[2, 4, 6]",
     "i = constant i64[2] {4, 4}\nb = constant i64[2] {2, 2}\na = onnx Col2Im@18 x, i, b {dilations = [1, 2]}\ny = "
     "onnx Mul@14 a, a",
     -2, 2, false, false},
    {"CumSum", "x: f64[2, 4]", "t = constant i64[] 1\na = onnx CumSum@14 x, t\ny = onnx Mul@14 a, a", -2, 2, false,
     false},
    {"CumSum: backwards, without the own element", "x: f64[3, 2]",
     "t = constant i64[] -2\na = onnx CumSum@14 x, t {exclusive = 1, reverse = 1}\ny = onnx Mul@14 a, a", -2, 2, false,
     false},
    {"CumProd", "x: f64[2, 4]", "t = constant i64[] 1\ny = onnx CumProd@26 x, t", 0.5, 2, false, false},
    {"CumProd: backwards, without the own element", "x: f64[3, 2]",
     "t = constant i64[] 0\ny = onnx CumProd@26 x, t {exclusive = 1, reverse = 1}", 0.5, 2, false, false},
    {"CumProd with a zero, and with two", "x: f64[3, 4]",
     "t = constant i64[] 1\nm = constant f64[3, 4] {1, 0, 1, 1, 1, 0, 1, 0, 1, 1, 1, 1}\nb = onnx Mul@14 x, m\nc = "
     "constant f64[3, 4] {0, 1, 0, 0, 0, 1, 0, 1, 0, 0, 0, 0}\nd = onnx Mul@14 x, c\ne = onnx Sub@14 d, d\nf = onnx "
     "Add@14 b, e\ny = onnx CumProd@26 f, t",
     0.5, 2, true, false},
    {"TopK", "x: f64[2, 5]", "k = constant i64[1] {3}\na, i = onnx TopK@11 x, k\ny = onnx Mul@14 a, a", -2, 2, false,
     false},
    {"TopK: the smallest along the first axis", "x: f64[5, 2]",
     "k = constant i64[1] {2}\na, i = onnx TopK@11 x, k {axis = 0, largest = 0}\ny = onnx Mul@14 a, a", -2, 2, false,
     false},
    {"TopK: none", "x: f64[2, 5]", "k = constant i64[1] {0}\na, i = onnx TopK@11 x, k\ny = onnx Mul@14 a, a", -2, 2,
     false, false},
    {"Unique: elements", "x: f64[2, 2]",
     "b = onnx Concat@13 x, x {axis = 1}\na = onnx Unique@11 b\ny = onnx Mul@14 a, a", -2, 2, false, false},
    {"Unique: columns", "x: f64[2, 3]",
     "b = onnx Concat@13 x, x {axis = 1}\na = onnx Unique@11 b {axis = 1, sorted = 0}\ny = onnx Mul@14 a, a", -2, 2,
     false, false},
    {"Det", "x: f64[2, 3, 3]", "y = onnx Det@22 x", -2, 2, true, false},
    {"Det: of one element, of none", "x: f64[2, 1, 1], z: f64[2, 0, 0]",
     "a = onnx Det@22 x\nb = onnx Det@22 z\ny = onnx Mul@14 a, b", -2, 2, true, false},
    {"Det: a singular matrix", "x: f64[2, 3]",
     "b = onnx Concat@13 x, x {axis = 0}\nz = constant i64[1] {0}\nt = constant i64[1] {3}\nc = onnx Slice@13 b, z, t, "
     "z\nd = constant f64[3, 3] {0, 0, 0, 0, 0, 0, 0, 0, 0}\ne = onnx Add@14 c, d\ny = onnx Det@22 e",
     -2, 2, true, false},
    {"DFT: inverse 0, onesided 0, of 4", "x: f64[2, 4, 2]",
     "l = constant i64[] 4\nt = constant i64[] 1\na = onnx DFT@20 x, l, t {inverse = 0, onesided = 0}\ny = onnx Mul@14 "
     "a, a",
     -2, 2, false, false},
    {"DFT: inverse 0, onesided 0, of 5", "x: f64[2, 5, 2]",
     "l = constant i64[] 5\nt = constant i64[] 1\na = onnx DFT@20 x, l, t {inverse = 0, onesided = 0}\ny = onnx Mul@14 "
     "a, a",
     -2, 2, false, false},
    {"DFT: inverse 0, onesided 1, of 4", "x: f64[2, 4, 1]",
     "l = constant i64[] 4\nt = constant i64[] 1\na = onnx DFT@20 x, l, t {inverse = 0, onesided = 1}\ny = onnx Mul@14 "
     "a, a",
     -2, 2, false, false},
    {"DFT: inverse 0, onesided 1, of 5", "x: f64[2, 5, 1]",
     "l = constant i64[] 5\nt = constant i64[] 1\na = onnx DFT@20 x, l, t {inverse = 0, onesided = 1}\ny = onnx Mul@14 "
     "a, a",
     -2, 2, false, false},
    {"DFT: inverse 1, onesided 0, of 4", "x: f64[2, 4, 2]",
     "l = constant i64[] 4\nt = constant i64[] 1\na = onnx DFT@20 x, l, t {inverse = 1, onesided = 0}\ny = onnx Mul@14 "
     "a, a",
     -2, 2, false, false},
    {"DFT: inverse 1, onesided 0, of 5", "x: f64[2, 5, 2]",
     "l = constant i64[] 5\nt = constant i64[] 1\na = onnx DFT@20 x, l, t {inverse = 1, onesided = 0}\ny = onnx Mul@14 "
     "a, a",
     -2, 2, false, false},
    {"DFT: inverse 1, onesided 1, of 4", "x: f64[2, 3, 2]",
     "l = constant i64[] 4\nt = constant i64[] 1\na = onnx DFT@20 x, l, t {inverse = 1, onesided = 1}\ny = onnx Mul@14 "
     "a, a",
     -2, 2, false, false},
    {"DFT: inverse 1, onesided 1, of 5", "x: f64[2, 3, 2]",
     "l = constant i64[] 5\nt = constant i64[] 1\na = onnx DFT@20 x, l, t {inverse = 1, onesided = 1}\ny = onnx Mul@14 "
     "a, a",
     -2, 2, false, false},
    {"DFT: cut off, real, an axis in front", "x: f64[5, 3, 1]",
     "l = constant i64[] 3\nt = constant i64[] 0\na = onnx DFT@20 x, l, t\ny = onnx Mul@14 a, a", -2, 2, false, false},
    {"DFT: zeros added", "x: f64[2, 3, 2]", "l = constant i64[] 7\na = onnx DFT@17 x, l\ny = onnx Mul@14 a, a", -2, 2,
     false, false},
    {"STFT with a window", "x: f64[2, 9, 1], h: f64[4]",
     "s = constant i64[] 2\na = onnx STFT@17 x, s, h\ny = onnx Mul@14 a, a", -2, 2, false, false},
    {"STFT: complex, both sides", "x: f64[1, 7, 2]",
     "s = constant i64[] 3\nl = constant i64[] 3\na = onnx STFT@17 x, s, _, l {onesided = 0}\ny = onnx Mul@14 a, a", -2,
     2, false, false},
    {"ReduceSum: axes of the run, gone", "x: f64[2, 3, 2], s: f64[1]",
     "t = onnx Cast@13 s {to = 7}\ny = onnx ReduceSum@18 x, t {keepdims = 0}", 1.1, 1.9, false, false},
    {"ReduceProd: axes of the run, gone", "x: f64[2, 3, 2], s: f64[1]",
     "t = onnx Cast@13 s {to = 7}\ny = onnx ReduceProd@18 x, t {keepdims = 0}", 1.1, 1.9, false, false},
    {"ReduceMax: axes of the run, gone", "x: f64[2, 3, 2], s: f64[1]",
     "t = onnx Cast@13 s {to = 7}\ny = onnx ReduceMax@18 x, t {keepdims = 0}", 1.1, 1.9, true, false},
    {"ReduceMin: axes of the run, gone", "x: f64[2, 3, 2], s: f64[1]",
     "t = onnx Cast@13 s {to = 7}\ny = onnx ReduceMin@18 x, t {keepdims = 0}", 1.1, 1.9, true, false},
    {"ReduceMean: axes of the run, gone", "x: f64[2, 3, 2], s: f64[1]",
     "t = onnx Cast@13 s {to = 7}\ny = onnx ReduceMean@18 x, t {keepdims = 0}", 1.1, 1.9, false, false},
    {"ReduceL2: axes of the run, gone", "x: f64[2, 3, 2], s: f64[1]",
     "t = onnx Cast@13 s {to = 7}\ny = onnx ReduceL2@18 x, t {keepdims = 0}", 1.1, 1.9, false, false},
    {"ReduceLogSumExp: axes of the run, gone", "x: f64[2, 3, 2], s: f64[1]",
     "t = onnx Cast@13 s {to = 7}\ny = onnx ReduceLogSumExp@18 x, t {keepdims = 0}", 1.1, 1.9, false, false},
    {"ReduceSum: axes of the run, kept", "x: f64[2, 3, 2], s: f64[1]",
     "t = onnx Cast@13 s {to = 7}\na = onnx ReduceSum@13 x, t\ny = onnx Mul@14 a, a", 1.1, 1.9, false, false},
    {"ReduceProd: axes of the run, kept", "x: f64[2, 3, 2], s: f64[2]",
     "t = onnx Cast@13 s {to = 7}\nu = constant i64[2] {-2, -1}\nv = onnx Mul@14 t, u\ny = onnx ReduceProd@18 x, v",
     1.1, 1.9, false, false},
    {"Slice: axes and steps of the run", "x: f64[4, 5], s: f64[1]",
     "t = onnx Cast@13 s {to = 7}\nb = constant i64[1] {4}\ne = constant i64[1] {0}\nu = constant i64[1] {-2}\nv = "
     "onnx Mul@14 t, u\na = onnx Slice@13 x, b, e, t, v\ny = onnx Mul@14 a, a",
     1.1, 1.9, false, false},
    {"Slice: starts of the run", "x: f64[4, 5], s: f64[1]",
     "t = onnx Cast@13 s {to = 7}\ne = constant i64[1] {3}\nu = constant i64[1] {0}\na = onnx Slice@13 x, t, e, u\ny = "
     "onnx Mul@14 a, a",
     1.1, 1.9, false, false},
    {"Pad by numbers of the run", "x: f64[2, 3], s: f64[4]",
     "t = onnx Cast@13 s {to = 7}\na = onnx Pad@13 x, t\ny = onnx Mul@14 a, a", 1.1, 1.9, false, false},
    {"Pad by reflection, by numbers of the run", "x: f64[2, 3], s: f64[4]",
     "t = onnx Cast@13 s {to = 7}\na = onnx Pad@13 x, t {mode = \"reflect\"}\ny = onnx Mul@14 a, a", 1.1, 1.9, false,
     false},
    {"Expand to a size of the run", "x: f64[3, 1], s: f64[2]",
     "t = onnx Cast@13 s {to = 7}\nu = constant i64[2] {3, 2}\nv = onnx Mul@14 t, u\na = onnx Expand@13 x, v\ny = onnx "
     "Mul@14 a, a",
     1.1, 1.9, false, false},
    {"Reshape to a size of the run", "x: f64[3, 2], s: f64[1]",
     "t = onnx Cast@13 s {to = 7}\nu = constant i64[1] {6}\nv = onnx Mul@14 t, u\na = onnx Reshape@13 x, v\ny = onnx "
     "Mul@14 a, a",
     1.1, 1.9, false, false},
    {"Squeeze of an axis of the run", "x: f64[3, 1], s: f64[1]",
     "t = onnx Cast@13 s {to = 7}\na = onnx Squeeze@13 x, t\ny = onnx Mul@14 a, a", 1.1, 1.9, false, false},
    {"Softplus and Mish at 0", "x: f64[3]",
     "o = constant f64[] 1\nz = onnx Sub@14 x, o\na = onnx Softplus@1 z\nb = onnx Mish@18 z\ny = onnx Add@14 a, b", 1,
     1, true, false},
    {"Celu at 0, where its second derivative jumps and differences are rough", "x: f64[3]",
     "o = constant f64[] 1\nz = onnx Sub@14 x, o\ny = onnx Celu@12 z", 1, 1, true, true},
    {"SoftmaxCrossEntropyLoss: the mean", "x: f64[3, 4]",
     "t = constant i64[3] {1, 3, 0}\ny = onnx SoftmaxCrossEntropyLoss@13 x, t", -2, 2, false, false},
    {"SoftmaxCrossEntropyLoss: the sum of weighted losses", "x: f64[3, 4]",
     "t = constant i64[3] {1, 3, 0}\nw = constant f64[4] {0.5, 2, 1, 3}\ny = onnx SoftmaxCrossEntropyLoss@13 x, t, w "
     "{reduction = \"sum\"}",
     -2, 2, false, false},
    {"SoftmaxCrossEntropyLoss: each loss of extra axes, some ignored", "x: f64[2, 4, 3]",
     "t = constant i64[2, 3] {1, -1, 0, 3, 3, -1}\ny = onnx SoftmaxCrossEntropyLoss@13 x, t {reduction = \"none\", "
     "ignore_index = -1}",
     -2, 2, false, false},
    {"SoftmaxCrossEntropyLoss: the weighted mean of what is not ignored", "x: f64[2, 4, 3]",
     "t = constant i64[2, 3] {1, -1, 0, 3, 3, -1}\nw = constant f64[4] {0.5, 2, 1, 3}\ny = onnx "
     "SoftmaxCrossEntropyLoss@13 x, t, w {ignore_index = -1}",
     -2, 2, false, false},
    {"SoftmaxCrossEntropyLoss: weights that are to be learnt", "x: f64[3, 4], w: f64[4]",
     "t = constant i64[3] {1, 3, 0}\ny = onnx SoftmaxCrossEntropyLoss@13 x, t, w", 0.5, 2, false, false},
    {"SoftmaxCrossEntropyLoss and its logarithms", "x: f64[n, 4]",
     "t = constant i64[3] {1, 3, 0}\na, b = onnx SoftmaxCrossEntropyLoss@13 x, t\ny = onnx Mul@14 a, b", -2, 2, false,
     false},
    {"SoftmaxCrossEntropyLoss of one class, of none to classify", "x: f64[3, 1], z: f64[0, 2]",
     "t = constant i64[3] {0, 0, 0}\nu = constant i64[0] {}\na = onnx SoftmaxCrossEntropyLoss@13 x, t\nb = onnx "
     "SoftmaxCrossEntropyLoss@13 z, u {reduction = \"sum\"}\ny = onnx Add@14 a, b",
     -2, 2, false, false},
    {"NegativeLogLikelihoodLoss", "x: f64[3, 4]",
     "t = constant i64[3] {1, 3, 0}\nw = constant f64[4] {0.5, 2, 1, 3}\na = onnx LogSoftmax@13 x {axis = 1}\ny = onnx "
     "NegativeLogLikelihoodLoss@13 a, t, w",
     -2, 2, false, false},
    {"NegativeLogLikelihoodLoss: some ignored", "x: f64[2, 4, 3]",
     "t = constant i64[2, 3] {1, -1, 0, 3, 3, -1}\ny = onnx NegativeLogLikelihoodLoss@13 x, t {ignore_index = -1}", -2,
     2, false, false},
    {"BatchNormalization in training", "x: f64[3, 2, 4], s: f64[2], b: f64[2], m: f64[2], v: f64[2]",
     "y = onnx BatchNormalization@15 x, s, b, m, v {training_mode = 1}", 0.5, 2, false, false},
    {"BatchNormalization in training: the running mean and variance", "x: f64[3, 2, 4], m: f64[2], v: f64[2]",
     "s = constant f64[2] {1, 2}\nc, d, e = onnx BatchNormalization@15 x, s, s, m, v {training_mode = 1, momentum = "
     "0.7}\nf = onnx Mul@14 d, e\ny = onnx Mul@14 f, f",
     0.5, 2, false, false},
    {"BatchNormalization in training, as in version 9", "x: f64[5, 2], s: f64[2]",
     "c = constant f64[2] {1, 2}\ny, d, e, f, g = onnx BatchNormalization@9 x, s, c, c, c", 0.5, 2, false, false},
    {"BatchNormalization with given statistics", "x: f64[2, 2, 3], s: f64[2], b: f64[2], m: f64[2], v: f64[2]",
     "y = onnx BatchNormalization@15 x, s, b, m, v", 0.5, 2, false, false},
    {"Dropout in training", "x: f64[4, 5]",
     "r = constant f32[] 0.4\nt = constant bool[] true\na = onnx Dropout@13 x, r, t {seed = 3}\ny = onnx Mul@14 a, a",
     -2, 2, false, false},
    {"LayerNormalization", "x: f64[3, 5], s: f64[5], b: f64[5]", "y = onnx LayerNormalization@17 x, s, b", 0.5, 2,
     false, false},
    {"LRN", "x: f64[2, 5, 3]", "y = onnx LRN@13 x {size = 3, alpha = 0.5}", 0.5, 2, false, false},
    {"LSTM: all results",
     "x: f64[4, 2, 2], w: f64[1, 12, 2], r: f64[1, 12, 3], b0: f64[1, 24], h0: f64[1, 2, 3], c0: f64[1, 2, 3]",
     "a, b, g = onnx LSTM@22 x, w, r, b0, _, h0, c0 {hidden_size = 3}\nc = onnx Mul@14 a, a\nd = onnx Mul@14 b, b\ne = "
     "onnx ReduceSum@13 d\nf = onnx Mul@14 g, e\nh = onnx ReduceSum@13 f\ny = onnx Add@14 c, h",
     -1, 1, true, false},
    {"LSTM: both directions, short rows, peepholes",
     "x: f64[4, 2, 2], w: f64[2, 12, 2], r: f64[2, 12, 3], b0: f64[2, 24], h0: f64[2, 2, 3], c0: f64[2, 2, 3], p: "
     "f64[2, 9]",
     "l = constant i32[2] {4, 2}\na, b, g = onnx LSTM@22 x, w, r, b0, l, h0, c0, p {hidden_size = 3, direction = "
     "\"bidirectional\"}\nc = onnx Mul@14 a, a\nd = onnx Mul@14 b, b\ne = onnx ReduceSum@13 d\nf = onnx Mul@14 g, e\nh "
     "= onnx ReduceSum@13 f\ny = onnx Add@14 c, h",
     -1, 1, true, false},
    {"LSTM: backwards, coupled gates, clipped, batch first, without initial states",
     "x: f64[2, 4, 2], w: f64[1, 12, 2], r: f64[1, 12, 3], b0: f64[1, 24], p: f64[1, 9]",
     "l = constant i32[2] {0, 3}\na, b = onnx LSTM@22 x, w, r, b0, l, _, _, p {hidden_size = 3, direction = "
     "\"reverse\", input_forget = 1, clip = 0.9, layout = 1}\nc = onnx Mul@14 a, a\nd = onnx Mul@14 b, b\ne = onnx "
     "ReduceSum@13 d\ny = onnx Add@14 c, e",
     -1, 1, true, false},
    {"LSTM: other functions, the last cell alone",
     "x: f64[4, 2, 2], w: f64[1, 12, 2], r: f64[1, 12, 3], h0: f64[1, 2, 3], c0: f64[1, 2, 3]",
     "_, _, a = onnx LSTM@22 x, w, r, _, _, h0, c0 {hidden_size = 3, activations = [\"HardSigmoid\", \"Softsign\", "
     "\"ScaledTanh\"], activation_alpha = [0.3, 0.7], activation_beta = [0.4, 1.2]}\ny = onnx Mul@14 a, a",
     -1, 1, true, false},
    {"GRU: resets first", "x: f64[4, 2, 2], w: f64[1, 9, 2], r: f64[1, 9, 3], b0: f64[1, 18], h0: f64[1, 2, 3]",
     "a, b = onnx GRU@22 x, w, r, b0, _, h0 {hidden_size = 3}\nc = onnx Mul@14 a, a\nd = onnx Mul@14 b, b\ne = onnx "
     "ReduceSum@13 d\ny = onnx Add@14 c, e",
     -1, 1, true, false},
    {"GRU: resets after the product, both directions, short rows",
     "x: f64[4, 2, 2], w: f64[2, 9, 2], r: f64[2, 9, 3], b0: f64[2, 18], h0: f64[2, 2, 3]",
     "l = constant i32[2] {2, 4}\na, b = onnx GRU@22 x, w, r, b0, l, h0 {hidden_size = 3, linear_before_reset = 1, "
     "direction = \"bidirectional\"}\nc = onnx Mul@14 a, a\nd = onnx Mul@14 b, b\ne = onnx ReduceSum@13 d\ny = onnx "
     "Add@14 c, e",
     -1, 1, true, false},
    {"GRU: another function, backwards, without biases", "x: f64[4, 2, 2], w: f64[1, 9, 2], r: f64[1, 9, 3]",
     "l = constant i32[2] {3, 1}\na, b = onnx GRU@22 x, w, r, _, l {hidden_size = 3, activations = [\"Sigmoid\", "
     "\"LeakyRelu\"], activation_alpha = [0.2], direction = \"reverse\"}\nc = onnx Mul@14 a, a\nd = onnx Mul@14 b, "
     "b\ne = onnx ReduceSum@13 d\ny = onnx Add@14 c, e",
     -1, 1, true, false},
    {"RNN: tanh", "x: f64[4, 2, 2], w: f64[1, 3, 2], r: f64[1, 3, 3], b0: f64[1, 6], h0: f64[1, 2, 3]",
     "a, b = onnx RNN@22 x, w, r, b0, _, h0 {hidden_size = 3}\nc = onnx Mul@14 a, a\nd = onnx Mul@14 b, b\ne = onnx "
     "ReduceSum@13 d\ny = onnx Add@14 c, e",
     -1, 1, true, false},
    {"RNN: other functions, both directions",
     "x: f64[4, 2, 2], w: f64[2, 3, 2], r: f64[2, 3, 3], b0: f64[2, 6], h0: f64[2, 2, 3]",
     "l = constant i32[2] {3, 4}\na, b = onnx RNN@22 x, w, r, b0, l, h0 {hidden_size = 3, activations = [\"Softplus\", "
     "\"Elu\"], direction = \"bidirectional\"}\nc = onnx Mul@14 a, a\nd = onnx Mul@14 b, b\ne = onnx ReduceSum@13 d\ny "
     "= onnx Add@14 c, e",
     -1, 1, true, false},
    {"RNN: the last state alone", "x: f64[4, 2, 2], w: f64[1, 3, 2], r: f64[1, 3, 3], b0: f64[1, 6], h0: f64[1, 2, 3]",
     "_, a = onnx RNN@22 x, w, r, b0, _, h0 {hidden_size = 3, activations = [\"Affine\"], activation_alpha = [0.5], "
     "activation_beta = [0.1]}\ny = onnx Mul@14 a, a",
     -1, 1, true, false},
    {"If: the then branch", "x: f64[2, 3], w: f64[3], k: f64[2]",
     "z = constant f64[] 0\ns = onnx ReduceSum@13 k {keepdims = 0}\nc = onnx Greater@13 s, z\ny = onnx If@21 c, x, w "
     "captures 2 graph \"then\" (x: f64[2, 3], w: f64[3]) -> (a) {\na = onnx Mul@14 x, w\n} graph \"else\" (x: f64[2, "
     "3], w: f64[3]) -> (b) {\nb = onnx Mul@14 x, x\n}",
     0.5, 2, false, false},
    {"If: the else branch", "x: f64[2, 3], w: f64[3], k: f64[2]",
     "z = constant f64[] 0\ns = onnx ReduceSum@13 k {keepdims = 0}\nc = onnx Less@13 s, z\ny = onnx If@21 c, x, w "
     "captures 2 graph \"then\" (x: f64[2, 3], w: f64[3]) -> (a) {\na = onnx Mul@14 x, w\n} graph \"else\" (x: f64[2, "
     "3], w: f64[3]) -> (b) {\nb = onnx Mul@14 x, x\n}",
     0.5, 2, false, false},
    {"Loop: a carried value, a capture, a stack", "x: f64[2], w: f64[2]",
     "n = constant i64[] 3\na, b = onnx Loop@21 n, _, x, w captures 1 graph \"body\" (i: i64[], c: bool[], v: f64[2], "
     "w: f64[2]) -> (c, u, e) {\nt = onnx Mul@14 v, w\nd = onnx Cast@13 i {to = 11}\nu = onnx Add@14 t, d\ne = onnx "
     "Mul@14 u, v\n}\nf = onnx ReduceSum@13 b {keepdims = 0}\ny = onnx Mul@14 a, f",
     0.5, 1.2, false, false},
    {"Loop whose condition ends it", "x: f64[2], w: f64[2]",
     "n = constant i64[] 9\na = onnx Loop@21 n, _, x, w captures 1 graph \"body\" (i: i64[], c: bool[], v: f64[2], w: "
     "f64[2]) -> (g, u) {\nu = onnx Mul@14 v, w\nm = constant i64[] 2\ng = onnx Less@13 i, m\n}\ny = onnx Mul@14 a, a",
     0.5, 2, false, false},
    {"Loop of no iterations", "x: f64[2], w: f64[2]",
     "n = constant i64[] 0\na = onnx Loop@21 n, _, x, w captures 1 graph \"body\" (i: i64[], c: bool[], v: f64[2], w: "
     "f64[2]) -> (c, u) {\nu = onnx Mul@14 v, w\n}\ny = onnx Mul@14 a, a",
     0.5, 2, false, false},
    {"Loop without gradients of its own: an integer is carried along", "x: f64[2], w: f64[2]",
     "n = constant i64[] 3\nj = constant i64[] 1\nk, a = onnx Loop@21 n, _, j, x, w captures 1 graph \"body\" (i: "
     "i64[], c: bool[], q: i64[], v: f64[2], w: f64[2]) -> (c, p, u) {\np = onnx Add@14 q, q\nf = onnx Cast@13 p {to = "
     "11}\ng = onnx Mul@14 v, f\nu = onnx Mul@14 g, w\n}\ny = onnx Mul@14 a, a",
     0.5, 1.2, false, false},
    {"Scan: direction 0, along the second axis", "s: f64[2], x: f64[2, 3], w: f64[2]",
     "a, b = onnx Scan@21 s, x, w {num_scan_inputs = 1, scan_input_axes = [1], scan_input_directions = [0], "
     "scan_output_axes = [1], scan_output_directions = [1]} captures 1 graph \"body\" (s: f64[2], x: f64[2], w: "
     "f64[2]) -> (u, e) {\nt = onnx Mul@14 s, x\nu = onnx Add@14 t, w\ne = onnx Mul@14 u, w\n}\nf = onnx Mul@14 b, "
     "x\ng = onnx ReduceSum@13 f {keepdims = 0}\ny = onnx Mul@14 a, g",
     0.5, 1.2, false, false},
    {"Scan: direction 1, along the second axis", "s: f64[2], x: f64[2, 3], w: f64[2]",
     "a, b = onnx Scan@21 s, x, w {num_scan_inputs = 1, scan_input_axes = [1], scan_input_directions = [1], "
     "scan_output_axes = [1], scan_output_directions = [0]} captures 1 graph \"body\" (s: f64[2], x: f64[2], w: "
     "f64[2]) -> (u, e) {\nt = onnx Mul@14 s, x\nu = onnx Add@14 t, w\ne = onnx Mul@14 u, w\n}\nf = onnx Mul@14 b, "
     "x\ng = onnx ReduceSum@13 f {keepdims = 0}\ny = onnx Mul@14 a, g",
     0.5, 1.2, false, false},
    {"Scan in a Loop", "x: f64[2, 3], s: f64[2]",
     "n = constant i64[] 2\ny = onnx Loop@21 n, _, s, x captures 1 graph \"outer\" (i: i64[], c: bool[], v: f64[2], x: "
     "f64[2, 3]) -> (c, u) {\nu = onnx Scan@21 v, x {num_scan_inputs = 1, scan_input_axes = [1]} captures 0 graph "
     "\"inner\" (s: f64[2], x: f64[2]) -> (r) {\nr = onnx Mul@14 s, x\n}\n}",
     0.5, 1.2, false, false},
    {"Resize: nearest", "x: f64[1, 2, 4, 5]",
     "s = constant i64[4] {1, 2, 7, 3}\na = onnx Resize@19 x, _, _, s {mode = \"nearest\"}\ny = onnx Mul@14 a, a", -2,
     2, false, false},
    {"Resize: linear", "x: f64[1, 2, 4, 5]",
     "s = constant i64[4] {1, 2, 7, 3}\na = onnx Resize@19 x, _, _, s {mode = \"linear\"}\ny = onnx Mul@14 a, a", -2, 2,
     false, false},
    {"Resize: cubic", "x: f64[1, 2, 4, 5]",
     "s = constant i64[4] {1, 2, 7, 3}\na = onnx Resize@19 x, _, _, s {mode = \"cubic\"}\ny = onnx Mul@14 a, a", -2, 2,
     false, false},
    {"Resize: linear, antialias = 1", "x: f64[1, 2, 4, 5]",
     "s = constant i64[4] {1, 2, 7, 3}\na = onnx Resize@19 x, _, _, s {mode = \"linear\", antialias = 1}\ny = onnx "
     "Mul@14 a, a",
     -2, 2, false, false},
    {"Resize: cubic, coordinate_transformation_mode = align_corners", "x: f64[1, 2, 4, 5]",
     "s = constant i64[4] {1, 2, 7, 3}\na = onnx Resize@19 x, _, _, s {mode = \"cubic\", "
     "coordinate_transformation_mode = \"align_corners\"}\ny = onnx Mul@14 a, a",
     -2, 2, false, false},
    {"Resize: cubic, exclude_outside = 1, coordinate_transformation_mode = asymmetric", "x: f64[1, 2, 4, 5]",
     "s = constant i64[4] {1, 2, 7, 3}\na = onnx Resize@19 x, _, _, s {mode = \"cubic\", exclude_outside = 1, "
     "coordinate_transformation_mode = \"asymmetric\"}\ny = onnx Mul@14 a, a",
     -2, 2, false, false},
    {"Resize of many channels", "x: f64[1, 9, 3, 2]",
     "s = constant f32[4] {1, 1, 2, 1.5}\na = onnx Resize@19 x, _, s {mode = \"linear\"}\ny = onnx Mul@14 a, a", -2, 2,
     false, false},
    {"Resize of a region, partly outside", "x: f64[1, 1, 4, 4]",
     "s = constant i64[4] {1, 1, 3, 5}\nr = constant f32[8] {0, 0, 0.2, -0.5, 1, 1, 0.8, 1.2}\na = onnx Resize@19 x, "
     "r, _, s {mode = \"linear\", coordinate_transformation_mode = \"tf_crop_and_resize\", extrapolation_value = "
     "3.0}\ny = onnx Mul@14 a, a",
     -2, 2, false, false},
    {"Upsample", "x: f64[1, 1, 2, 3]",
     "s = constant f32[4] {1, 1, 2, 3}\na = onnx Upsample@9 x, s\ny = onnx Mul@14 a, a", -2, 2, false, false},
    {"GridSample: linear, zeros", "x: f64[2, 3, 4, 5], g: f64[2, 2, 3, 2]",
     "k = constant f64[] 1.1\nh = onnx Mul@14 g, k\na = onnx GridSample@20 x, h {mode = \"linear\", padding_mode = "
     "\"zeros\", align_corners = 0}\ny = onnx Mul@14 a, a",
     -1.05, 1.05, true, false},
    {"GridSample: linear, border", "x: f64[2, 3, 4, 5], g: f64[2, 2, 3, 2]",
     "k = constant f64[] 1.1\nh = onnx Mul@14 g, k\na = onnx GridSample@20 x, h {mode = \"linear\", padding_mode = "
     "\"border\", align_corners = 1}\ny = onnx Mul@14 a, a",
     -1.05, 1.05, true, false},
    {"GridSample: linear, reflection", "x: f64[2, 3, 4, 5], g: f64[2, 2, 3, 2]",
     "k = constant f64[] 1.1\nh = onnx Mul@14 g, k\na = onnx GridSample@20 x, h {mode = \"linear\", padding_mode = "
     "\"reflection\", align_corners = 0}\ny = onnx Mul@14 a, a",
     -1.05, 1.05, true, false},
    {"GridSample: cubic, zeros", "x: f64[2, 3, 4, 5], g: f64[2, 2, 3, 2]",
     "k = constant f64[] 1.1\nh = onnx Mul@14 g, k\na = onnx GridSample@20 x, h {mode = \"cubic\", padding_mode = "
     "\"zeros\", align_corners = 0}\ny = onnx Mul@14 a, a",
     -1.05, 1.05, true, false},
    {"GridSample: cubic, border", "x: f64[2, 3, 4, 5], g: f64[2, 2, 3, 2]",
     "k = constant f64[] 1.1\nh = onnx Mul@14 g, k\na = onnx GridSample@20 x, h {mode = \"cubic\", padding_mode = "
     "\"border\", align_corners = 1}\ny = onnx Mul@14 a, a",
     -1.05, 1.05, true, false},
    {"GridSample: cubic, reflection", "x: f64[2, 3, 4, 5], g: f64[2, 2, 3, 2]",
     "k = constant f64[] 1.1\nh = onnx Mul@14 g, k\na = onnx GridSample@20 x, h {mode = \"cubic\", padding_mode = "
     "\"reflection\", align_corners = 0}\ny = onnx Mul@14 a, a",
     -1.05, 1.05, true, false},
    {"GridSample: nearest, zeros", "x: f64[2, 3, 4, 5], g: f64[2, 2, 3, 2]",
     "k = constant f64[] 1.1\nh = onnx Mul@14 g, k\na = onnx GridSample@20 x, h {mode = \"nearest\", padding_mode = "
     "\"zeros\", align_corners = 0}\ny = onnx Mul@14 a, a",
     -1.05, 1.05, true, false},
    {"GridSample: nearest, border", "x: f64[2, 3, 4, 5], g: f64[2, 2, 3, 2]",
     "k = constant f64[] 1.1\nh = onnx Mul@14 g, k\na = onnx GridSample@20 x, h {mode = \"nearest\", padding_mode = "
     "\"border\", align_corners = 1}\ny = onnx Mul@14 a, a",
     -1.05, 1.05, true, false},
    {"GridSample: nearest, reflection", "x: f64[2, 3, 4, 5], g: f64[2, 2, 3, 2]",
     "k = constant f64[] 1.1\nh = onnx Mul@14 g, k\na = onnx GridSample@20 x, h {mode = \"nearest\", padding_mode = "
     "\"reflection\", align_corners = 0}\ny = onnx Mul@14 a, a",
     -1.05, 1.05, true, false},
    {"GridSample: along one axis, 17 channels", "x: f64[1, 17, 4], g: f64[1, 3, 1]", "y = onnx GridSample@20 x, g", -1,
     1, true, false},
    {"AffineGrid", "t: f64[2, 2, 3]",
     "s = constant i64[4] {2, 1, 2, 3}\na = onnx AffineGrid@20 t, s\ny = onnx Mul@14 a, a", -2, 2, false, false},
    {"RoiAlign: averages", "x: f64[2, 2, 5, 6]",
     "r = constant f32[2, 4] {0.3, 0.4, 3.2, 4.1, 1, 1, 7, 2}\ni = constant i64[2] {1, 0}\na = onnx RoiAlign@16 x, r, "
     "i {output_height = 2, output_width = 3, sampling_ratio = 2}\ny = onnx Mul@14 a, a",
     -2, 2, false, true},
    {"RoiAlign: maxima, of 17 channels", "x: f64[2, 17, 2, 3]",
     "r = constant f32[2, 4] {0.3, 0.4, 3.2, 4.1, 1, 1, 7, 2}\ni = constant i64[2] {1, 0}\ny = onnx RoiAlign@10 x, r, "
     "i {output_height = 2, output_width = 1, mode = \"max\"}",
     -2, 2, true, true},
    {"SequenceAt: a position that only the run knows, twice", "x: f64[3], w: f64[2, 2]",
     RUN_POSITION "s = onnx SequenceConstruct@11 x, v, x\na = onnx SequenceAt@11 s, p\nb = onnx SequenceAt@11 s, "
                  "q\nc = onnx Mul@14 a, b\nd = onnx ReduceSum@13 w {keepdims = 0}\ny = onnx Mul@14 c, d",
     -2, 2, true, false},
    {"SequenceInsert, SequenceErase: positions that only the run knows", "x: f64[3], w: f64[3]",
     RUN_POSITION "s = onnx SequenceConstruct@11 x, v\nt = onnx SequenceInsert@11 s, w, p\nu = onnx SequenceInsert@11 "
                  "t, v, q\ne = onnx SequenceErase@11 u, p\na = onnx ConcatFromSequence@11 e {axis = 0}\ny = onnx "
                  "Mul@14 a, a",
     -2, 2, true, false},
    {"SequenceInsert, SequenceErase: at the end", "x: f64[3], w: f64[3]",
     RUN_POSITION "s = onnx SequenceConstruct@11 x, v\nt = onnx SequenceErase@11 s, p\nu = onnx SequenceInsert@11 t, "
                  "w\ne = onnx SequenceInsert@11 u, x\nf = onnx SequenceErase@11 e\na = onnx ConcatFromSequence@11 f "
                  "{axis = 0, new_axis = 1}\ny = onnx Mul@14 a, a",
     -2, 2, true, false},
    {"SplitToSequence: pieces that only the run knows", "x: f64[2, 3]",
     RUN_POSITION "o = onnx Unsqueeze@13 p, zeros\nr = onnx Concat@13 o, two {axis = 0}\ns = onnx SplitToSequence@11 "
                  "x, r {axis = 1}\na = onnx SequenceAt@11 s, p\nb = onnx ConcatFromSequence@11 s {axis = -1}\nc = "
                  "onnx ReduceSum@13 a {keepdims = 0}\nd = onnx Mul@14 b, b\ny = onnx Mul@14 d, c",
     -2, 2, true, false},
    {"SplitToSequence: an axis that only the run knows, left out of the pieces", "x: f64[n, 3]",
     RUN_POSITION "k = onnx Unsqueeze@13 p, zeros\ng = onnx Slice@13 x, k, four, zeros\ns = onnx SplitToSequence@11 g "
                  "{axis = 0, keepdims = 0}\na = onnx ConcatFromSequence@11 s {axis = 1, new_axis = 1}\ny = onnx "
                  "Mul@14 a, a",
     -2, 2, true, false},
};

Test(operators, are_the_limits_of_differences) { check_differences(rows, sizeof rows / sizeof *rows); }
