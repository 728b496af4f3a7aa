/* SPDX-License-Identifier: Apache-2.0 */
/* Operators whose work is done by anchors and host kernels: what they compute, told as text. Every row is a graph whose
 * first output must equal its second, `want`, in type and shape, and in value: to the bit, but where a row says how many
 * roundings of a number of its size lie behind a result. */
#include <criterion/criterion.h>

#include <math.h>
#include "interpret.h"
#include "lowering/ops.h"
#include "rounding.h"

typedef struct Row {
    const char *name, *body;
    int roundings;
} Row;

static const Row values[] = {
    {"matmul broadcasts batches and keeps vectors vectors",
     "a = constant f32[2, 1, 2] {1, 2, 3, 4}\nb = constant f32[2] {10, 1}\ny = onnx MatMul@13 a, b\n"
     "want = constant f32[2, 1] {12, 34}"},
    {"integer products wrap in their own type",
     "a = constant i32[1, 2] {65536, 1}\nb = constant i32[2, 1] {65536, 7}\ny = onnx MatMul@13 a, b\n"
     "want = constant i32[1, 1] {7}"},
    {"gemm: alpha A' B + beta C, C a row",
     "a = constant f32[2, 1] {1, 2}\nb = constant f32[2, 2] {1, 2, 3, 4}\nc = constant f32[2] {10, 20}\n"
     "y = onnx Gemm@13 a, b, c {transA = 1, alpha = 2.0, beta = 0.5}\nwant = constant f32[1, 2] {19, 30}"},
    {"zero points per row of A and per column of B",
     "a = constant u8[2, 1] {3, 5}\nb = constant u8[1, 2] {10, 20}\nza = constant u8[2] {1, 2}\nzb = constant u8[2] "
     "{0, 10}\n"
     "y = onnx MatMulInteger@10 a, b, za, zb\nwant = constant i32[2, 2] {20, 20, 30, 30}"},
    {"sums of bytes beyond 2^24 are exact",
     "x = constant u8[1, 1] {255}\ns = constant i64[2] {1, 1031}\nt = constant i64[2] {1031, 1}\n"
     "a = onnx Expand@13 x, s\nb = onnx Expand@13 x, t\ny = onnx MatMulInteger@10 a, b\nwant = constant i32[1, 1] "
     "{67040775}"},
    {"einsum: a diagonal",
     "a = constant f32[2, 2] {1, 2, 3, 4}\ny = onnx Einsum@12 a {equation = \"ii->i\"}\nwant = constant f32[2] {1, 4}"},
    {"einsum: without an arrow, letters that stand once remain in alphabetical order",
     "a = constant f32[1, 2] {1, 2}\nb = constant f32[2, 1] {3, 4}\ny = onnx Einsum@12 a, b {equation = \"cb,ba\"}\n"
     "want = constant f32[1, 1] {11}"},
    {"einsum: an ellipsis broadcasts",
     "a = constant f32[2, 1, 2] {1, 2, 3, 4}\nb = constant f32[2, 1] {1, 1}\ny = onnx Einsum@12 a, b {equation = "
     "\"...ij,...jk->...ik\"}\nwant = constant f32[2, 1, 1] {3, 7}"},
    {"determinant with a zero pivot",
     "a = constant f32[2, 2] {0, 2, 3, 4}\ny = onnx Det@11 a\nwant = constant f32[] -6"},
    {"SAME_UPPER puts the odd padding after",
     "x = constant f32[1, 1, 4] {1, 2, 3, 4}\nw = constant f32[1, 1, 2] {1, 10}\n"
     "y = onnx Conv@11 x, w {auto_pad = \"SAME_UPPER\"}\nwant = constant f32[1, 1, 4] {21, 32, 43, 4}"},
    {"SAME_LOWER puts it before",
     "x = constant f32[1, 1, 4] {1, 2, 3, 4}\nw = constant f32[1, 1, 2] {1, 10}\n"
     "y = onnx Conv@11 x, w {auto_pad = \"SAME_LOWER\"}\nwant = constant f32[1, 1, 4] {10, 21, 32, 43}"},
    {"grouped convolution in i32 after the zero point is taken off",
     "x = constant u8[1, 2, 2] {2, 3, 4, 5}\nw = constant u8[2, 1, 2] {1, 1, 2, 0}\nz = constant u8[] 1\n"
     "y = onnx ConvInteger@10 x, w, z {group = 2}\nwant = constant i32[1, 2, 1] {3, 6}"},
    {"transposed convolution overlaps and adds",
     "x = constant f32[1, 1, 2] {1, 2}\nw = constant f32[1, 1, 3] {1, 1, 1}\n"
     "y = onnx ConvTranspose@11 x, w {strides = [2]}\nwant = constant f32[1, 1, 5] {1, 1, 3, 2, 2}"},
    {"gathered tuples may be negative and batched",
     "x = constant f32[2, 2] {1, 2, 3, 4}\ni = constant i64[2, 1] {-1, 0}\ny = onnx GatherND@13 x, i {batch_dims = 1}\n"
     "want = constant f32[2] {2, 3}"},
    {"one-hot: out of range is all off",
     "i = constant i64[3] {-1, 0, 5}\nd = constant i64[] 2\nv = constant f32[2] {0, 1}\ny = onnx OneHot@11 i, d, v\n"
     "want = constant f32[3, 2] {0, 1, 1, 0, 0, 0}"},
    {"non-zero coordinates by columns",
     "x = constant i32[2, 2] {0, 1, 2, 0}\ny = onnx NonZero@13 x\nwant = constant i64[2, 2] {0, 1, 1, 0}"},
    {"a number has no coordinates", "x = constant f32[] 3\ny = onnx NonZero@13 x\nwant = constant i64[0, 1] {}"},
    {"odd powers of negative numbers that f32 would make even",
     "x = constant f32[3] {-1, -1, 0.5}\ne = constant u32[3] {4294967295, 4294967294, 4294967295}\ny = onnx Pow@15 x, "
     "e\n"
     "want = constant f32[3] {-1, 1, 0}"},
    {"bounds that a Clip of version 6 has of its own",
     "x = constant f64[3] {1e300, -1e300, 2}\ny = onnx Clip@6 x\nwant = constant f64[3] {3.4028234663852886e38, "
     "-3.4028234663852886e38, 2}"},
    {"powers that a base's type does not hold", "x = constant i8[3] {0, -1, 1}\ne = constant i32[3] {128, 255, "
                                                "-128}\ny = onnx Pow@15 x, e\nwant = constant i8[3] {0, -1, 1}"},
    {"compress along an axis", "x = constant f32[2, 3] {1, 2, 3, 4, 5, 6}\nc = constant bool[3] {false, true, true}\n"
                               "y = onnx Compress@11 x, c {axis = 1}\nwant = constant f32[2, 2] {2, 3, 5, 6}"},
    {"sequences are reversed up to their length",
     "x = constant f32[3, 2] {1, 2, 3, 4, 5, 6}\nn = constant i64[2] {2, 3}\n"
     "y = onnx ReverseSequence@10 x, n {time_axis = 0, batch_axis = 1}\nwant = constant f32[3, 2] {3, 6, 1, 4, 5, 2}"},
    {"circular cache update",
     "c = constant f32[1, 3, 1] {1, 2, 3}\nu = constant f32[1, 2, 1] {8, 9}\nw = constant i64[1] {2}\n"
     "y = onnx TensorScatter@24 c, u, w {mode = \"circular\"}\nwant = constant f32[1, 3, 1] {9, 2, 8}"},
    {"a last window may hang over the end but not start in the padding",
     "x = constant f32[1, 1, 4] {1, 2, 3, 4}\ny = onnx MaxPool@12 x {kernel_shape = [1], strides = [2], pads = [0, 1], "
     "ceil_mode = 1}\nwant = constant f32[1, 1, 2] {1, 3}"},
    {"an average leaves paddings out",
     "x = constant f32[1, 1, 2] {2, 4}\ny = onnx AveragePool@19 x {kernel_shape = [2], pads = [1, 1]}\n"
     "want = constant f32[1, 1, 3] {2, 3, 4}"},
    {"or counts them", "x = constant f32[1, 1, 2] {2, 4}\ny = onnx AveragePool@19 x {kernel_shape = [2], pads = [1, "
                       "1], count_include_pad = 1}\n"
                       "want = constant f32[1, 1, 3] {1, 3, 2}"},
    {"pooling of bytes", "x = constant u8[1, 1, 3] {1, 250, 3}\ny = onnx MaxPool@12 x {kernel_shape = [2]}\n"
                         "want = constant u8[1, 1, 2] {250, 250}"},
    {"transform of a length with a large prime",
     "x = constant f64[1, 37, 1] {1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, "
     "0, 0, 0, 0, 0, "
     "0, 0, 0, 0}\nl = constant i64[] 37\nf = onnx DFT@17 x, l {axis = 1}\nr = onnx DFT@17 f {axis = 1, inverse = 1}\n"
     "s = constant i64[1] {0}\ne = constant i64[1] {2}\na = constant i64[1] {1}\ny = onnx Slice@13 r, s, e, a\n"
     "want = constant f64[1, 2, 2] {1, 0, 0, 0}",
     .roundings = 42 /* there and back by three transforms of length 128, of 7 levels each */},
    {"transform of nothing: no numbers, or the 0 of one side",
     "x = constant f32[2, 0, 1] {}\nf = onnx DFT@17 x {axis = 1}\nh = onnx DFT@17 x {axis = 1, onesided = 1}\ny = "
     "onnx Concat@13 f, h {axis = 1}\nwant = constant f32[2, 1, 2] {0, 0, 0, 0}"},
    {"resize by 2, half-pixel centres",
     "x = constant f32[1, 1, 2] {0, 4}\nr = constant f32[0] {}\ns = constant f32[3] {1, 1, 2}\n"
     "y = onnx Resize@13 x, r, s {mode = \"linear\"}\nwant = constant f32[1, 1, 4] {0, 1, 3, 4}"},
    {"f64 is resized at places of f64",
     "x = constant f64[1, 1, 2] {0, 3}\nr = constant f32[0] {}\ns = constant f32[0] {}\nn = constant i64[3] {1, 1, 6}\n"
     "y = onnx Resize@13 x, r, s, n {mode = \"linear\", coordinate_transformation_mode = \"align_corners\"}\n"
     "want = constant f64[1, 1, 6] {0, 0.6, 1.2, 1.8, 2.4, 3}",
     .roundings = 4},
    {"f64 is pooled at places of f64",
     "x = constant f64[1, 1, 1, 3] {0, 1, 2}\nr = constant f64[1, 4] {0.3, 0, 1.7, 1}\ni = constant i64[1] {0}\n"
     "y = onnx RoiAlign@16 x, r, i {output_height = 1, output_width = 2, sampling_ratio = 1, "
     "coordinate_transformation_mode = "
     "\"output_half_pixel\"}\nwant = constant f64[1, 1, 1, 2] {0.65, 1.35}",
     .roundings = 4},
    {"resize of bytes rounds",
     "x = constant u8[1, 1, 2] {0, 3}\nr = constant f32[0] {}\ns = constant f32[3] {1, 1, 2}\n"
     "y = onnx Resize@13 x, r, s {mode = \"linear\"}\nwant = constant u8[1, 1, 4] {0, 1, 2, 3}"},
    {"nearest of old upsampling takes the lower neighbour",
     "x = constant f32[1, 1, 1, 2] {1, 2}\ny = onnx Upsample@7 x {scales = [1.0, 1.0, 1.0, 1.5]}\n"
     "want = constant f32[1, 1, 1, 3] {1, 1, 2}"},
    {"grid samples between two cells; outside is zero",
     "x = constant f32[1, 1, 1, 2] {2, 4}\ng = constant f32[1, 1, 2, 2] {0, 0, 5, 0}\ny = onnx GridSample@20 x, g\n"
     "want = constant f32[1, 1, 1, 2] {3, 0}"},
    {"grid samples next to a border: cubic takes border elements for those outside, as ONNX Runtime does",
     "x = constant f32[1, 1, 1, 4] {1, 2, 4, 8}\ng = constant f32[1, 1, 3, 2] {-1.1, 0, 1.2, 0, 9, 0}\n"
     "y = onnx GridSample@20 x, g {mode = \"cubic\", padding_mode = \"border\"}\n"
     "want = constant f32[1, 1, 1, 3] {0.95275, 8.027, 8}",
     .roundings = 16 /* as many products */},
    {"heads packed in one tensor get their bias",
     "q = constant f32[1, 2, 1, 3, 1] {0.5, 1, 3, -1, 2, 5}\nb = constant f32[3] {1, 0.5, -2}\n"
     "y = onnx \"com.microsoft\" MultiHeadAttention@1 q, _, _, b {num_heads = 1}\nwant = constant f32[1, 2, 1] "
     "{2.6351488, 2}"},
    {"keys and values packed in one tensor get their bias",
     "q = constant f32[1, 2, 1] {0.5, -1}\nk = constant f32[1, 2, 1, 2, 1] {1, 3, 2, 5}\n"
     "b = constant f32[3] {1, 0.5, -2}\n"
     "y = onnx \"com.microsoft\" MultiHeadAttention@1 q, k, _, b {num_heads = 1}\nwant = constant f32[1, 2, 1] "
     "{2.6351488, 2}"},
    {"scores that are handed out have the mask in them",
     "q = constant f32[1, 2, 1] {0.5, -1}\nk = constant f32[1, 2, 1] {1, 2}\n"
     "m = constant f32[1, 1, 2, 2] {1, -1, 0, 2}\n"
     "_, _, _, y = onnx \"com.microsoft\" MultiHeadAttention@1 q, k, k, _, _, m {num_heads = 1}\nwant = constant "
     "f32[1, 1, 2, 2] {1.5, 0, -1, 0}"},
    {"a mask of numbers for packed kernels begins with the keys' ends",
     "q = constant f32[1, 1, 1] {1}\nk = constant f32[1, 3, 1] {0, 0, 0}\nv = constant f32[1, 3, 1] {3, 5, 70}\n"
     "m = constant i32[5] {2, 0, 1, 0, 2}\n"
     "y = onnx \"com.microsoft\" MultiHeadAttention@1 q, k, v, _, m {num_heads = 1}\nwant = constant f32[1, 1, 1] {4}"},
    {"boxes that overlap a better one are suppressed",
     "b = constant f32[1, 3, 4] {0, 0, 1, 1, 0, 0, 1, 0.9, 2, 2, 3, 3}\ns = constant f32[1, 1, 3] {0.5, 0.9, 0.1}\n"
     "m = constant i64[] 9\ni = constant f32[] 0.5\ny = onnx NonMaxSuppression@11 b, s, m, i\n"
     "want = constant i64[2, 3] {0, 0, 1, 0, 0, 2}"},
    {"a grey image becomes red, green and blue",
     "x = constant u8[13] {80, 53, 32, 50, 32, 49, 32, 50, 53, 53, 10, 7, 9}\ny = onnx ImageDecoder@20 x\n"
     "want = constant u8[1, 2, 3] {7, 7, 7, 9, 9, 9}"},
    {"centred crop and pad",
     "x = constant f32[3, 1] {1, 2, 3}\ns = constant i64[2] {2, 3}\ny = onnx CenterCropPad@18 x, s\n"
     "want = constant f32[2, 3] {0, 1, 0, 0, 2, 0}"},
    {"top-k: equal elements in their order, NaN above all",
     "x = constant f32[5] {1, 3, nan, 3, -1}\nk = constant i64[1] {3}\nv, y = onnx TopK@11 x, k\n"
     "want = constant i64[3] {2, 1, 3}"},
    {"smallest of unsigned 64-bit", "x = constant u64[3] {18446744073709551615, 1, 2}\nk = constant i64[1] {2}\ny, i = "
                                    "onnx TopK@11 x, k {largest = 0}\n"
                                    "want = constant u64[2] {1, 2}"},
    {"unique in order of appearance: where each element went",
     "x = constant i32[4] {5, 2, 5, 9}\nu, f, y, c = onnx Unique@11 x {sorted = 0}\nwant = constant i64[4] {0, 1, 0, "
     "2}"},
    {"unique rows", "x = constant f32[3, 2] {3, 4, 1, 2, 3, 4}\ny = onnx Unique@11 x {axis = 0}\n"
                    "want = constant f32[2, 2] {1, 2, 3, 4}"},
    {"quantization rounds half to even and saturates",
     "x = constant f32[4] {0.5, 1.5, 300, -9}\ns = constant f32[] 1\nz = constant u8[] 0\n"
     "y = onnx QuantizeLinear@13 x, s, z\nwant = constant u8[4] {0, 2, 255, 0}"},
    {"blocks of two share a scale, the last block is cut",
     "x = constant i8[1, 3] {1, 2, 3}\ns = constant f32[1, 2] {10, 100}\n"
     "y = onnx DequantizeLinear@21 x, s {axis = 1, block_size = 2}\nwant = constant f32[1, 3] {10, 20, 300}"},
    {"letters change, bytes that are no UTF-8 stay: too long forms of a, a half of a pair, what is cut short",
     "x = constant string[5] {\"a\\xc3\\xa9\", \"\\xc1\\xa1\", \"\\xe0\\x81\\xa1\", \"\\xed\\xa0\\x80\", \"z\\xc3\"}\n"
     "y = onnx StringNormalizer@10 x {case_change_action = \"UPPER\"}\n"
     "want = constant string[5] {\"A\\xc3\\x89\", \"\\xc1\\xa1\", \"\\xe0\\x81\\xa1\", \"\\xed\\xa0\\x80\", "
     "\"Z\\xc3\"}"},
    {"all zeros quantize with scale 1",
     "x = constant f32[2] {0, 0}\nq, y, z = onnx DynamicQuantizeLinear@11 x\nwant = constant f32[] 1"},
};

/* What must be refused, and a part of what is said. */
static const struct {
    const char *name, *source, *message;
} errors[] = {
    {"an image that is cut short",
     "graph () -> (y) {\nx = constant u8[12] {80, 53, 32, 50, 32, 49, 32, 50, 53, 53, 10, 7}\n"
     "y = onnx ImageDecoder@20 x\n}\n",
     "(ImageDecoder): a PNM picture that cannot be decoded: its 2 x 1 pixels need more than the 1 bytes"},
    {"factors that do not fit", "graph (a: f32[2, 3], b: f32[4, 2]) -> (y) {\ny = onnx MatMul@13 a, b\n}\n", "3 and 4"},
    {"channels that do not fit", "graph (x: f32[1, 3, 5], w: f32[2, 2, 3]) -> (y) {\ny = onnx Conv@11 x, w\n}\n",
     "3 channels"},
    {"a window larger than the input",
     "graph (x: f32[1, 1, 2]) -> (y) {\ny = onnx MaxPool@12 x {kernel_shape = [5]}\n}\n",
     "larger than the padded input"},
    {"a stride of 0",
     "graph (x: f32[1, 1, 2]) -> (y) {\ny = onnx MaxPool@12 x {kernel_shape = [1], strides = [0]}\n}\n", "strides"},
    {"an equation with more terms than inputs",
     "graph (x: f32[2, 2]) -> (y) {\ny = onnx Einsum@12 x {equation = \"ij,jk\"}\n}\n", "2 terms"},
    {"an equation with letters beyond ASCII, which locales of one byte a character know",
     "graph (x: f32[2, 2]) -> (y) {\ny = onnx Einsum@12 x {equation = \"\\xe9\\xe8\"}\n}\n", "cannot be read from"},
    {"more elements than there are",
     "graph (x: f32[3]) -> (y) {\nk = constant i64[1] {4}\ny, i = onnx TopK@11 x, k\n}\n", "4 elements"},
};

static void compare(const Row *row, const Tensor *y, const Tensor *want) {
    cr_expect(y->dtype == want->dtype && tensor_same_shape(y, want), "%s: the type or the shape differs", row->name);
    if (y->dtype != want->dtype || !tensor_same_shape(y, want)) return;
    size_t item = dtype_size(y->dtype);
    for (int64_t i = 0; i < tensor_count(y); i++) {
        if (y->dtype == DT_STRING) {
            StringView got = ((StringView *)y->data)[i], wanted = ((StringView *)want->data)[i];
            cr_expect(got.size == wanted.size && memcmp(got.data, wanted.data, got.size) == 0,
                      "%s: string %lld is \"%.*s\"", row->name, (long long)i, (int)got.size, got.data);
            continue;
        }
        bool same = memcmp((char *)y->data + (size_t)i * item, (char *)want->data + (size_t)i * item, item) == 0;
        double a = dtype_load_double(y->dtype, y->data, i), b = dtype_load_double(want->dtype, want->data, i);
        if (!same && dtype_is_float(y->dtype))
            same = rounding_agrees(y->dtype, a, b, rounding_gamma(y->dtype, row->roundings) * fmax(1, fabs(b)));
        cr_expect(same, "%s: element %lld is %.9g instead of %.9g", row->name, (long long)i, a, b);
    }
}

static Status lower(const char *source, Graph **out_graph) {
    Policy policy = {0};
    TRY(graph_parse(source, out_graph));
    return lower_graph(*out_graph, &policy);
}

Test(host, values) {
    for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
        Arena *arena = arena_create(0);
        Graph *graph = NULL;
        Item outputs[2] = {0};
        Status status = lower(arena_format(arena, "graph () -> (y, want) {\n%s\n}\n", values[i].body), &graph);
        if (!status) status = interpret(graph, NULL, arena, outputs);
        cr_expect(!status, "%s: %s", values[i].name, status_message(status));
        if (!status) compare(&values[i], &outputs[0].tensor, &outputs[1].tensor);
        status_free(status);
        graph_destroy(graph);
        arena_destroy(arena);
    }
}

Test(host, errors) {
    for (size_t i = 0; i < sizeof errors / sizeof *errors; i++) {
        Arena *arena = arena_create(0);
        Graph *graph = NULL;
        Item outputs[2] = {0};
        Status status = lower(errors[i].source, &graph);
        if (!status) status = interpret(graph, NULL, arena, outputs);
        cr_expect(status_code(status) == STATUS_INVALID, "%s: code %d", errors[i].name, status_code(status));
        cr_expect(strstr(status_message(status), errors[i].message), "%s: %s", errors[i].name, status_message(status));
        status_free(status);
        graph_destroy(graph);
        arena_destroy(arena);
    }
}
