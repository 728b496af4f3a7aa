/* SPDX-License-Identifier: Apache-2.0 */
/* com.microsoft's operators on quantized tensors: what is not a product is computed in f32 between dequantizing and quantizing,
 * which become one kernel; products are exact in i32. */
#include "ops/quantize/quantize.h"

#include "ops/families.h"
#include "ops/linear/linear.h"
#include "ops/window/window.h"

/* ---- elementwise, reductions ---- */

Value *dequantized(Lowering *l, Quantized q) {
    return dequantized_levels(l, q.x, zero_point_f32(l, q.zero_point), q.scale);
}

/* Quantizes the f32 `y` with the scale and zero point of inputs first and first + 1. */
static Status out_quantized(Lowering *l, const Node *n, Value *y, int first, DType otherwise) {
    Value *scale = in(l, n, first), *zero = optional_in(l, n, first + 1);
    if (l->error) return l->error;
    return out(l, n, 0,
               quantized(l, divide(l, y, cast(l, scale, DT_F32)), zero_point_f32(l, zero),
                         zero ? zero->dtype : otherwise, true));
}

static Status lower_qlinear_pair(Lowering *l, const Node *n, Prim prim) {
    Quantized a = quantized_in(l, n, 0), b = quantized_in(l, n, 3);
    if (l->error) return l->error;
    return out_quantized(l, n, binary(l, prim, dequantized(l, a), dequantized(l, b)), 6, a.x->dtype);
}

static Status lower_qlinear_add(Lowering *l, const Node *n) { return lower_qlinear_pair(l, n, PRIM_ADD); }
static Status lower_qlinear_mul(Lowering *l, const Node *n) { return lower_qlinear_pair(l, n, PRIM_MUL); }

static Status lower_qlinear_sigmoid(Lowering *l, const Node *n) {
    Quantized x = quantized_in(l, n, 0);
    if (l->error) return l->error;
    return out_quantized(l, n, unary(l, PRIM_SIGMOID, dequantized(l, x)), 3, x.x->dtype);
}

static Status lower_qlinear_leaky_relu(Lowering *l, const Node *n) {
    Quantized q = quantized_in(l, n, 0);
    if (l->error) return l->error;
    Value *x = dequantized(l, q), *below = mul(l, x, scalar(l, DT_F32, attr_float(n, "alpha", 0.01f)));
    return out_quantized(l, n, where(l, binary(l, PRIM_LT, x, scalar(l, DT_F32, 0)), below, x), 3, q.x->dtype);
}

static Status lower_qlinear_global_average(Lowering *l, const Node *n) {
    Quantized q = quantized_in(l, n, 0);
    int axes[MAX_RANK], last = attr_int(n, "channels_last", 0) != 0;
    if (l->error) return l->error;
    if (q.x->rank < 3)
        return invalid(l, "the input has rank %d; a batch, channels and at least one more axis are needed", q.x->rank);
    for (int i = 0; i < q.x->rank - 2; i++) axes[i] = i + 2 - last;
    return out_quantized(l, n, mean(l, dequantized(l, q), axes, q.x->rank - 2, true), 3, q.x->dtype);
}

/* Inputs: the result's scale and zero point, then each part with its own (com.microsoft QLinearConcat). */
static Status lower_qlinear_concat(Lowering *l, const Node *n) {
    int count = (n->input_count - 2) / 3;
    if (count < 1) return invalid(l, "has no part to concatenate");
    Value **parts = ARENA_ARRAY(l->arena, Value *, count);
    for (int i = 0; i < count; i++) parts[i] = dequantized(l, quantized_in(l, n, 2 + 3 * i));
    if (l->error) return l->error;
    int axis = axis_of(l, attr_int(n, "axis", 0), parts[0]->rank);
    if (l->error) return l->error;
    return out_quantized(l, n, concat(l, parts, count, axis), 0, in(l, n, 2)->dtype);
}

/* Of the standard's opset `opset`: along one axis, before 13 over all axes from it on. */
static Status lower_qlinear_softmax(Lowering *l, const Node *n) {
    Quantized q = quantized_in(l, n, 0);
    bool last_axes = attr_int(n, "opset", 13) < 13;
    if (l->error) return l->error;
    int axis = axis_of(l, attr_int(n, "axis", last_axes ? 1 : -1), q.x->rank);
    if (l->error) return l->error;
    Value *x = dequantized(l, q), *y;
    if (last_axes && x) x = flatten_to(l, x, axis, x->rank);
    y = softmax(l, x, axis);
    return out_quantized(l, n, y ? reshape(l, y, q.x->dims, q.x->rank) : NULL, 3, q.x->dtype);
}

static Status lower_qlinear_reduce_mean(Lowering *l, const Node *n) {
    Quantized q = quantized_in(l, n, 0);
    int given, count;
    if (l->error) return l->error;
    const int64_t *list = attr_ints(n, "axes", &given);
    int *axes = axes_of(l, list, given, q.x->rank, true, &count);
    if (!axes) return l->error;
    return out_quantized(l, n, mean(l, dequantized(l, q), axes, count, attr_int(n, "keepdims", 1) != 0), 3, q.x->dtype);
}

/* Inputs: the condition, x and y with their scales and zero points, the result's. */
static Status lower_qlinear_where(Lowering *l, const Node *n) {
    Quantized x = quantized_in(l, n, 1), y = quantized_in(l, n, 4);
    if (l->error) return l->error;
    return out_quantized(l, n, where(l, in(l, n, 0), dequantized(l, x), dequantized(l, y)), 7, x.x->dtype);
}

static Status lower_qlinear_average_pool(Lowering *l, const Node *n) {
    Quantized q = quantized_in(l, n, 0);
    bool last = attr_int(n, "channels_last", 0) != 0;
    if (l->error) return l->error;
    Value *x = dequantized(l, q), *y = average_pool(l, n, last ? from_channels_last(l, x) : x);
    return out_quantized(l, n, y && last ? to_channels_last(l, y) : y, 3, q.x->dtype);
}

/* ---- products ---- */

Value *scaled_product(Lowering *l, Quantized a, Quantized b, Value *bias) {
    if (l->error || !a.x || !b.x) return NULL;
    int row = a.x->rank > 1 ? a.x->rank - 2 : 0, column = b.x->rank - 1;
    Value *sum = integer_matmul(l, a.x, a.zero_point, b.x, b.zero_point);
    Value *scales = mul(l, along_axis(l, a.scale, row, a.x->rank), along_axis(l, b.scale, column, b.x->rank));
    Value *y = sum ? mul(l, cast(l, sum, DT_F32), scales) : NULL;
    return bias && y ? add(l, y, bias) : y;
}

static Status lower_matmul_integer_to_float(Lowering *l, const Node *n) {
    Quantized a = {in(l, n, 0), in(l, n, 2), optional_in(l, n, 4)},
              b = {in(l, n, 1), in(l, n, 3), optional_in(l, n, 5)};
    return out(l, n, 0, scaled_product(l, a, b, optional_in(l, n, 6)));
}

/* A is quantized at run time. */
static Status lower_dynamic_quantize_matmul(Lowering *l, const Node *n) {
    Quantized b = {in(l, n, 1), in(l, n, 2), optional_in(l, n, 3)};
    return out(l, n, 0, scaled_product(l, dynamically_quantized(l, in(l, n, 0)), b, optional_in(l, n, 4)));
}

/* alpha * (A' B' + C), C in i32 by the scale of the products; in f32 where the result has no scale. */
static Status lower_qgemm(Lowering *l, const Node *n) {
    Quantized a = quantized_in(l, n, 0), b = quantized_in(l, n, 3);
    Value *c = optional_in(l, n, 6);
    if (l->error) return l->error;
    if (a.x->rank != 2 || b.x->rank != 2)
        return invalid(l, "both factors must be matrices, but have ranks %d and %d", a.x->rank, b.x->rank);
    if (attr_int(n, "transA", 0)) a.x = swap_last(l, a.x);
    if (attr_int(n, "transB", 0)) b.x = swap_last(l, b.x);
    Value *sum = integer_matmul(l, a.x, a.zero_point, b.x, b.zero_point);
    if (c && sum) sum = add(l, cast(l, sum, DT_I32), c);
    Value *scale = mul(l, along_axis(l, a.scale, 0, 1), along_axis(l, b.scale, 0, 1));
    double alpha = attr_float(n, "alpha", 1);
    if (alpha != 1) scale = mul(l, scale, scalar(l, DT_F32, alpha));
    Value *y = sum ? mul(l, cast(l, sum, DT_F32), scale) : NULL;
    return optional_in(l, n, 7) ? out_quantized(l, n, y, 7, a.x->dtype) : out(l, n, 0, y);
}

const OpRow ops_qlinear[] = {
    {"com.microsoft", "DynamicQuantizeMatMul", 1, 0, lower_dynamic_quantize_matmul},
    {"com.microsoft", "MatMulIntegerToFloat", 1, 0, lower_matmul_integer_to_float},
    {"com.microsoft", "QGemm", 1, 0, lower_qgemm},
    {"com.microsoft", "QLinearAdd", 1, 0, lower_qlinear_add},
    {"com.microsoft", "QLinearAveragePool", 1, 0, lower_qlinear_average_pool, host_average_pool},
    {"com.microsoft", "QLinearConcat", 1, 0, lower_qlinear_concat},
    {"com.microsoft", "QLinearGlobalAveragePool", 1, 0, lower_qlinear_global_average},
    {"com.microsoft", "QLinearLeakyRelu", 1, 0, lower_qlinear_leaky_relu},
    {"com.microsoft", "QLinearMul", 1, 0, lower_qlinear_mul},
    {"com.microsoft", "QLinearReduceMean", 1, 0, lower_qlinear_reduce_mean},
    {"com.microsoft", "QLinearSigmoid", 1, 0, lower_qlinear_sigmoid},
    {"com.microsoft", "QLinearSoftmax", 1, 0, lower_qlinear_softmax},
    {"com.microsoft", "QLinearWhere", 1, 0, lower_qlinear_where},
    {0},
};
