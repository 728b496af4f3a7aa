/* SPDX-License-Identifier: Apache-2.0 */
/* Quantization in primitives: QuantizeLinear, DequantizeLinear, DynamicQuantizeLinear and the operators on quantized
 * tensors, whose sums are exact in i32 and then requantized: y = saturate(round_half_even(sum * a_scale * b_scale /
 * y_scale) + y_zero_point). */
#include "ops/quantize/quantize.h"

#include "lowering/sizes.h"
#include "ops/families.h"
#include "ops/linear/linear.h"

typedef struct Range {
    DType dtype;
    double low, high;
} Range;

static const Range ranges[] = {
    {DT_U8, 0, 255},
    {DT_I8, -128, 127},
    {DT_U16, 0, 65535},
    {DT_I16, -32768, 32767},
    {DT_I32, -2147483648.0, 2147483647.0},
    {DT_U4, 0, 15},
    {DT_I4, -8, 7},
    {DT_U2, 0, 3},
    {DT_I2, -2, 1},
};

static const Range *range_of(DType dtype) {
    for (size_t i = 0; i < sizeof ranges / sizeof *ranges; i++)
        if (ranges[i].dtype == dtype) return &ranges[i];
    return NULL;
}

static bool narrow_float(DType dtype) { return dtype_is_float(dtype) && dtype_size(dtype) == 1; }

Value *zero_point_f32(Lowering *l, Value *zero_point) {
    return !zero_point || is_all(constant_of(zero_point), 0) ? NULL : cast(l, zero_point, DT_F32);
}

Value *dequantized_levels(Lowering *l, Value *x, Value *zero, Value *scale) {
    if (zero && zero->dtype == DT_I32) { /* differences of i32 are exact as integers alone */
        x = sub(l, x, zero);
        zero = NULL;
    }
    Value *level = x ? cast(l, x, DT_F32) : NULL;
    return mul(l, zero ? sub(l, level, zero) : level, scale);
}

/* The zero point as dequantized_levels takes it. */
static Value *zero_of_levels(Lowering *l, const Value *x, Value *zero_point) {
    Value *zero = zero_point_f32(l, zero_point);
    return zero && x->dtype == DT_I32 ? zero_point : zero;
}

/* ---- granularity ---- */

/* How scales lie over x: the view of x in which a scale broadcasts. */
typedef struct Grain {
    int axis;
    int64_t block;     /* elements of x along axis that share a scale; 0: per tensor or per axis */
    bool split;        /* x is viewed with axis split to [blocks, block] */
    const Dim *blocks; /* sizes of the scale along axis, in blocked form */
} Grain;

static Status grain_of(Lowering *l, const Node *n, const Value *x, const Value *scale, Grain *grain) {
    *grain = (Grain){0};
    bool vector = scale->rank == 1 && !dim_equals(scale->dims[0], 1);
    grain->block = attr_int(n, "block_size", 0);
    if (scale->rank == 0 || (!vector && scale->rank == 1)) {
        grain->block = 0;
        return NULL;
    }
    grain->axis = axis_of(l, attr_int(n, "axis", 1) == 1 && x->rank == 1 ? 0 : attr_int(n, "axis", 1), x->rank);
    if (l->error) return l->error;
    if (grain->block < 0) return invalid(l, "block_size is %lld", (long long)grain->block);
    if (grain->block == 0) {
        if (scale->rank == 1 && !sizes_agree(scale->dims[0], x->dims[grain->axis]))
            return invalid(l, "the scale does not have one element for each index of axis %d", grain->axis);
        return NULL;
    }
    if (scale->rank != x->rank)
        return invalid(l, "a blocked scale must have the input's rank, but has %d", scale->rank);
    grain->blocks = scale->dims[grain->axis];
    grain->split =
        size_mul(l, grain->blocks, size_const(l, grain->block)) == x->dims[grain->axis] && x->rank < MAX_RANK;
    return NULL;
}

static const Dim *const *split_dims(Lowering *l, const Value *x, const Grain *grain, const Dim *inner) {
    const Dim **dims = size_array(l, x->rank + 1);
    for (int i = 0; i < x->rank; i++) dims[i < grain->axis ? i : i + 1] = x->dims[i];
    dims[grain->axis] = grain->blocks;
    dims[grain->axis + 1] = inner;
    return dims;
}

static Value *view_of(Lowering *l, Value *x, const Grain *grain) {
    if (!x || !grain->split) return x;
    return reshape(l, x, split_dims(l, x, grain, size_const(l, grain->block)), x->rank + 1);
}

/* A scale or zero point made to broadcast with view_of(x). */
static Value *spread(Lowering *l, Value *v, const Value *x, const Grain *grain) {
    if (!v) return NULL;
    if (!grain->block) return along_axis(l, v, grain->axis, x->rank);
    if (v->rank != x->rank) {
        invalid(l, "scale and zero point differ in shape");
        return NULL;
    }
    const Dim *const *with_one = split_dims(l, v, grain, size_const(l, 1));
    Value *split = reshape(l, v, with_one, v->rank + 1);
    if (grain->split || !split) return split;
    /* The last block is cut: every scale is repeated, and the rest left out. */
    const Dim *const *repeated = split_dims(l, v, grain, size_const(l, grain->block));
    const Dim **flat = dims_copy(l, v, v->rank);
    flat[grain->axis] = size_mul(l, grain->blocks, size_const(l, grain->block));
    Value *all = reshape(l, expand(l, split, repeated, v->rank + 1), flat, v->rank);
    return all ? slice_axis(l, all, grain->axis, size_const(l, 0), x->dims[grain->axis]) : NULL;
}

/* ---- QuantizeLinear, DequantizeLinear ---- */

Value *quantized(Lowering *l, Value *q, Value *zero_point, DType to, bool saturate) {
    const Range *range = range_of(to);
    if (!range) {
        if (zero_point) q = add(l, q, zero_point);
        return cast_saturate(l, q, to, saturate);
    }
    Value *whole = unary(l, PRIM_ROUND, q);
    if (zero_point) whole = add(l, whole, zero_point);
    return cast(l, clip(l, whole, scalar(l, DT_F32, range->low), scalar(l, DT_F32, range->high)), to);
}

/* Weights that a model holds in floats and quantizes itself: their formulas' steps are several times what comes out. */
static bool all_constant(const Value *x, const Value *scale, const Value *zero_point) {
    return x->constant && scale->constant && (!zero_point || zero_point->constant);
}

static DType working_type(DType dtype) {
    return dtype == DT_F16 || dtype == DT_BF16 || dtype == DT_F64 ? dtype : DT_F32;
}

/* y = saturate(round(x / y_scale) + y_zero_point) (ONNX QuantizeLinear-25); the scale's type, or `precision`, is that
 * of the division. */
static Status lower_quantize(Lowering *l, const Node *n) {
    Value *x = in(l, n, 0), *scale = in(l, n, 1), *zero_point = optional_in(l, n, 2);
    Grain grain;
    if (!x || !scale) return l->error;
    TRY(grain_of(l, n, x, scale, &grain));
    DType to = attr_dtype(n, "output_dtype", DT_NONE), precision = attr_dtype(n, "precision", DT_NONE);
    if (to == DT_NONE) to = zero_point ? zero_point->dtype : DT_U8;
    if (zero_point && zero_point->dtype != to)
        return invalid(l, "output_dtype is %s, but the zero point is of type %s", dtype_onnx_name(to),
                       dtype_onnx_name(zero_point->dtype));
    if (!range_of(to) && !narrow_float(to)) return invalid(l, "%s is not a type to quantize to", dtype_onnx_name(to));
    if (precision == DT_NONE) precision = scale->dtype;
    DType work = working_type(precision);
    const bool fixed = all_constant(x, scale, zero_point);
    if (fixed) chain_begin(l);
    Value *quotient = divide(l, cast(l, view_of(l, x, &grain), work), spread(l, cast(l, scale, work), x, &grain));
    Value *zero = spread(l, zero_point_f32(l, zero_point), x, &grain);
    Value *y = quantized(l, cast(l, quotient, DT_F32), zero, to, attr_int(n, "saturate", 1) != 0);
    y = y ? reshape(l, y, x->dims, x->rank) : NULL;
    return out(l, n, 0, fixed ? chain_end(l, y) : y);
}

static Status lower_dequantize(Lowering *l, const Node *n) {
    Value *x = in(l, n, 0), *scale = in(l, n, 1), *zero_point = optional_in(l, n, 2);
    Grain grain;
    if (!x || !scale) return l->error;
    TRY(grain_of(l, n, x, scale, &grain));
    DType to = attr_dtype(n, "output_dtype", DT_NONE);
    if (to == DT_NONE) to = scale->dtype;
    if (!dtype_is_float(to)) return invalid(l, "%s is not a type to dequantize to", dtype_onnx_name(to));
    if (zero_point && zero_point->dtype != x->dtype) return invalid(l, "the zero point is not of the input's type");
    const bool fixed = all_constant(x, scale, zero_point);
    if (fixed) chain_begin(l);
    Value *zero = spread(l, zero_of_levels(l, x, zero_point), x, &grain),
          *factor = spread(l, cast(l, scale, DT_F32), x, &grain);
    Value *y = cast(l, dequantized_levels(l, view_of(l, x, &grain), zero, factor), to);
    y = y ? reshape(l, y, x->dims, x->rank) : NULL;
    return out(l, n, 0, fixed ? chain_end(l, y) : y);
}

/* Of all elements: of rows first, which threads share, then of those. */
static Value *extreme(Lowering *l, Prim prim, Value *x) {
    int axes[MAX_RANK], last = x->rank - 1;
    for (int i = 0; i < x->rank; i++) axes[i] = i;
    if (x->rank > 1) x = reduce(l, prim, x, &last, 1, true);
    return reduce(l, prim, x, axes, last + 1, false);
}

/* The range of x with 0 in it is spread over [0, 255] (ONNX DynamicQuantizeLinear-11); where x is all 0 the scale is 1.
 */
Quantized dynamically_quantized(Lowering *l, Value *x) {
    if (!x) return (Quantized){0};
    Value *zero = scalar(l, DT_F32, 0), *one = scalar(l, DT_F32, 1), *most = scalar(l, DT_F32, 255);
    Value *high = maximum(l, extreme(l, PRIM_REDUCE_MAX, x), zero);
    Value *low = minimum(l, extreme(l, PRIM_REDUCE_MIN, x), zero);
    Value *width = divide(l, sub(l, high, low), most);
    Value *scale = where(l, binary(l, PRIM_EQ, width, zero), one, width);
    Value *zero_point = unary(l, PRIM_ROUND, clip(l, divide(l, sub(l, zero, low), scale), zero, most));
    return (Quantized){quantized(l, divide(l, x, scale), zero_point, DT_U8, true), scale, cast(l, zero_point, DT_U8)};
}

static Status lower_dynamic_quantize(Lowering *l, const Node *n) {
    Quantized q = dynamically_quantized(l, in(l, n, 0));
    Value *results[] = {q.x, q.scale, q.zero_point};
    for (int i = 0; i < 3; i++)
        if (wants_output(n, i)) TRY(out(l, n, i, results[i]));
    return l->error;
}

/* ---- operators on quantized tensors ---- */

Quantized quantized_in(Lowering *l, const Node *n, int first) {
    Quantized q = {in(l, n, first), in(l, n, first + 1), optional_in(l, n, first + 2)};
    if (q.scale) q.scale = cast(l, q.scale, DT_F32);
    return q;
}

/* sum * factor + zero_point, rounded and saturated; sum is i32 or f32. */
static Value *requantized(Lowering *l, Value *sum, Value *factor, Value *zero_point, DType to) {
    return quantized(l, mul(l, cast(l, sum, DT_F32), factor), zero_point_f32(l, zero_point), to, true);
}

/* Per row of a, per column of b (ONNX QLinearMatMul-21). */
static Status lower_qlinear_matmul(Lowering *l, const Node *n) {
    Quantized a = quantized_in(l, n, 0), b = quantized_in(l, n, 3);
    Value *y_scale = in(l, n, 6), *y_zero = optional_in(l, n, 7);
    if (l->error) return l->error;
    int row = a.x->rank > 1 ? a.x->rank - 2 : 0, column = b.x->rank - 1;
    bool floats = narrow_float(a.x->dtype);
    Value *sum = floats ? matmul(l, cast(l, a.x, DT_F32), cast(l, b.x, DT_F32))
                        : integer_matmul(l, a.x, a.zero_point, b.x, b.zero_point);
    Value *scales = mul(l, along_axis(l, a.scale, row, a.x->rank), along_axis(l, b.scale, column, b.x->rank));
    DType to = y_zero ? y_zero->dtype : a.x->dtype;
    return out(l, n, 0, requantized(l, sum, divide(l, scales, cast(l, y_scale, DT_F32)), y_zero, to));
}

/* The weight's scale may be per output channel (ONNX QLinearConv-10). com.microsoft's may have its data channels-last, the weight
 * as ever. */
static Status lower_qlinear_conv(Lowering *l, const Node *n) {
    Quantized x = quantized_in(l, n, 0), w = quantized_in(l, n, 3);
    Value *y_scale = in(l, n, 6), *y_zero = optional_in(l, n, 7), *bias = optional_in(l, n, 8);
    bool last = attr_int(n, "channels_last", 0) != 0;
    if (l->error) return l->error;
    if (last) x.x = from_channels_last(l, x.x);
    if (l->error) return l->error;
    Value *sum = integer_conv(l, n, x.x, x.zero_point, w.x, w.zero_point, bias);
    Value *factor = divide(l, mul(l, x.scale, w.scale), cast(l, y_scale, DT_F32));
    DType to = y_zero ? y_zero->dtype : x.x->dtype;
    Value *y = requantized(l, sum, along_axis(l, factor, 1, x.x->rank), y_zero, to);
    return out(l, n, 0, last && y ? to_channels_last(l, y) : y);
}

/* ---- products of dequantized tensors (passes/take_quantized.c) ---- */

/* Inputs 0 to 5 of such a node. */
typedef struct Factors {
    Quantized x, w;
    int x_axis, axis; /* of x and of w: along which their scales and zero points lie */
} Factors;

static Status factors_of(Lowering *l, const Node *n, Factors *f) {
    *f = (Factors){
        {in(l, n, 0), in(l, n, 1), optional_in(l, n, 2)}, {in(l, n, 3), in(l, n, 4), optional_in(l, n, 5)}, 0, 0};
    if (l->error) return l->error;
    const Quantized *both[] = {&f->x, &f->w};
    for (int i = 0; i < 2; i++)
        if (both[i]->zero_point && both[i]->zero_point->dtype != both[i]->x->dtype)
            return invalid(l, "a zero point is not of its tensor's type");
    if (f->x.scale->rank == 1 && !dim_equals(f->x.scale->dims[0], 1))
        f->x_axis = axis_of(l, attr_int(n, QUANTIZED_X_AXIS, 1), f->x.x->rank);
    if (f->w.scale->rank == 1 && !dim_equals(f->w.scale->dims[0], 1))
        f->axis = axis_of(l, attr_int(n, QUANTIZED_AXIS, 1), f->w.x->rank);
    return l->error;
}

static bool is_single(const Value *x) { return !x || x->rank == 0 || (x->rank == 1 && dim_equals(x->dims[0], 1)); }

/* Whether the product is one of integers, scaled: bytes, one scale for x, one for each of w's outputs at most. */
static bool scales_outside(const Factors *f, int outputs) {
    const Quantized *x = &f->x, *w = &f->w;
    return is_byte(x->x) && is_byte(w->x) && x->scale->dtype == DT_F32 && w->scale->dtype == DT_F32 &&
           is_single(x->scale) && is_single(x->zero_point) &&
           ((is_single(w->scale) && is_single(w->zero_point)) || (w->scale->rank == 1 && f->axis == outputs));
}

static Value *dequantized_along(Lowering *l, Quantized q, int axis) {
    Value *zero = zero_of_levels(l, q.x, q.zero_point),
          *scale = along_axis(l, cast(l, q.scale, DT_F32), axis, q.x->rank);
    return cast(l, dequantized_levels(l, q.x, zero ? along_axis(l, zero, axis, q.x->rank) : NULL, scale),
                q.scale->dtype);
}

/* The sums, scaled. */
static Value *scaled_sums(Lowering *l, const Factors *f, Value *sum, int axis) {
    Value *scales = mul(l, along_axis(l, f->x.scale, 0, 1), along_axis(l, f->w.scale, 0, 1));
    return sum ? mul(l, cast(l, sum, DT_F32), along_axis(l, scales, axis, sum->rank)) : NULL;
}

static Value *quantized_product(Lowering *l, const Factors *f) {
    int columns = f->w.x->rank - 1;
    if (f->x.x->rank < 2 || columns < 1 || !scales_outside(f, columns))
        return matmul(l, dequantized_along(l, f->x, f->x_axis), dequantized_along(l, f->w, f->axis));
    Value *sum = integer_matmul(l, f->x.x, f->x.zero_point, f->w.x, f->w.zero_point);
    return sum ? scaled_sums(l, f, sum, sum->rank - 1) : NULL;
}

static Status lower_quantized_matmul(Lowering *l, const Node *n) {
    Factors f;
    TRY(factors_of(l, n, &f));
    return out(l, n, 0, quantized_product(l, &f));
}

/* Y = alpha * A' * B' + beta * C (ONNX Gemm-13). */
static Status lower_quantized_gemm(Lowering *l, const Node *n) {
    Factors f;
    TRY(factors_of(l, n, &f));
    Value *c = optional_in(l, n, 6);
    if (f.x.x->rank != 2 || f.w.x->rank != 2)
        return invalid(l, "both factors must be matrices, but have ranks %d and %d", f.x.x->rank, f.w.x->rank);
    if (attr_int(n, "transA", 0)) f.x.x = swap_last(l, f.x.x), f.x_axis = 1 - f.x_axis;
    if (attr_int(n, "transB", 0)) f.w.x = swap_last(l, f.w.x), f.axis = 1 - f.axis;
    double alpha = attr_float(n, "alpha", 1), beta = attr_float(n, "beta", 1);
    Value *y = quantized_product(l, &f);
    if (y && alpha != 1) y = mul(l, y, like(l, y, alpha));
    if (!y || !c || beta == 0) return out(l, n, 0, y);
    if (c->rank > 2) return invalid(l, "C has rank %d instead of at most 2", c->rank);
    if (beta != 1) c = mul(l, c, like(l, c, beta));
    return out(l, n, 0, add(l, y, c));
}

static Status lower_quantized_conv(Lowering *l, const Node *n) {
    Factors f;
    TRY(factors_of(l, n, &f));
    Value *bias = optional_in(l, n, 6);
    if (!scales_outside(&f, 0))
        return out(l, n, 0,
                   conv_as(l, n, dequantized_along(l, f.x, f.x_axis), dequantized_along(l, f.w, f.axis), bias));
    Value *sum = integer_conv(l, n, f.x.x, f.x.zero_point, f.w.x, f.w.zero_point, NULL);
    Value *y = scaled_sums(l, &f, sum, 1);
    return out(l, n, 0, bias && y ? add(l, y, along_axis(l, bias, 1, y->rank)) : y);
}

const OpRow ops_quantize[] = {
    {"", "QuantizeLinear", 10, 0, lower_quantize, NULL, 0},
    {"", "DequantizeLinear", 10, 0, lower_dequantize, NULL, 0},
    {"", "DynamicQuantizeLinear", 11, 0, lower_dynamic_quantize, NULL, 0},
    {"", "QLinearMatMul", 10, 0, lower_qlinear_matmul, NULL, 0},
    {"", "QLinearConv", 10, 0, lower_qlinear_conv, NULL, 0},
    {"com.microsoft", "QLinearConv", 1, 0, lower_qlinear_conv, NULL, 0},
    {"com.microsoft", "QuantizeLinear", 1, 0, lower_quantize, NULL, 0},
    {"com.microsoft", "DequantizeLinear", 1, 0, lower_dequantize, NULL, 0},
    {INTERNAL_DOMAIN, "QuantizedMatMul", 1, 0, lower_quantized_matmul, NULL, 0},
    {INTERNAL_DOMAIN, "QuantizedGemm", 1, 0, lower_quantized_gemm, NULL, 0},
    {INTERNAL_DOMAIN, "QuantizedConv", 1, 0, lower_quantized_conv, NULL, 0},
    {0},
};
