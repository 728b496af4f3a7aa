/* SPDX-License-Identifier: Apache-2.0 */
/* Products of 8-bit tensors, exact: products of bytes where the device has them (byte_product.c). Other libraries multiply f32 far faster than i32, and f32 sums of whole numbers are exact
 * in any order as long as no partial sum can reach 2^24. That bound is worked out from the zero points and, where it is
 * constant, from the weight itself; a product that may exceed it is split along the summed axis, and the parts are
 * added in i32. */
#include "ops/linear/linear.h"

#include <math.h>
#include "lowering/anchors.h"
#include "lowering/sizes.h"

static const double EXACT = 1 << 24; /* f32 holds all whole numbers up to here */

enum { MOST_PARTS = 64 };

/* The largest |x - zero_point| that an 8-bit type allows. */
static double most_of(DType dtype, const Value *zero_point) {
    double low = dtype == DT_I8 ? -128 : 0, high = dtype == DT_I8 ? 127 : 255, most = 0;
    const Tensor *known = constant_of(zero_point);
    if (zero_point && !known) return high - low;
    for (int64_t i = 0; known && i < tensor_count(known); i++) {
        double zero = dtype_load_double(known->dtype, known->data, i);
        most = fmax(most, fmax(high - zero, zero - low));
    }
    return known ? most : fmax(high, -low);
}

/* x - zero_point in f32. */
static Value *centred_f32(Lowering *l, Value *x, Value *zero_point, int axis) {
    return cast(l, centred(l, x, zero_point, axis), DT_F32);
}

/* The weight as [outer, summed, inner] where constant; else only `most` bounds its elements. */
typedef struct Weight {
    const float *data; /* NULL when not constant */
    int64_t outer, summed, inner;
    bool sums_inner; /* inner belongs to the sum (a convolution's kernel) rather than to the outputs (a matrix' columns)
                      */
    double most;
} Weight;

/* The largest sum of |w| that an output has over summed indices [from, to). */
static double weight_sum(const Weight *w, int64_t from, int64_t to) {
    double most = 0;
    if (!w->data) return w->most * (double)(to - from) * (double)(w->sums_inner ? w->inner : 1);
    for (int64_t o = 0; o < w->outer; o++) {
        const float *plane = w->data + o * w->summed * w->inner;
        double all = 0;
        for (int64_t i = 0; i < w->inner; i++) {
            double sum = 0;
            for (int64_t k = from; k < to; k++) sum += (double)fabsf(plane[k * w->inner + i]);
            all += sum;
            if (!w->sums_inner) most = fmax(most, sum);
        }
        if (w->sums_inner) most = fmax(most, all);
    }
    return most;
}

/* Into how many equal parts the summed axis must be split; 0 when that does not help. */
static int parts_needed(const Weight *w, double most_input, double extra) {
    for (int parts = 1; parts <= MOST_PARTS && parts <= w->summed; parts *= 2) {
        int64_t each = (w->summed + parts - 1) / parts;
        bool fits = true;
        for (int64_t from = 0; fits && from < w->summed; from += each) {
            int64_t to = from + each < w->summed ? from + each : w->summed;
            fits = most_input * weight_sum(w, from, to) + (parts == 1 ? extra : 0) < EXACT;
        }
        if (fits) return parts;
    }
    return 0;
}

/* Sizes that are not known matter only where they are summed: summed or inner is 0 then. */
static Weight weight_of(const Value *w, int axis, bool sums_inner, double most) {
    Weight weight = {.outer = 1, .inner = 1, .sums_inner = sums_inner, .most = most};
    const Tensor *known = constant_of(w);
    if (known && known->dtype == DT_F32) weight.data = known->data;
    for (int i = 0; i < w->rank; i++) {
        int64_t size = 0;
        if (!dim_is_const(w->dims[i], &size) && i != axis && !sums_inner) size = 1;
        if (i == axis)
            weight.summed = size;
        else if (i > axis)
            weight.inner *= size;
        else
            weight.outer *= size;
    }
    return weight;
}

/* Part `part` of `parts` along an axis of known size. */
static Value *part_of(Lowering *l, Value *x, int axis, int64_t size, int part, int parts) {
    int64_t each = (size + parts - 1) / parts, from = part * each, to = from + each < size ? from + each : size;
    if (parts == 1) return x;
    return from < to ? slice_axis(l, x, axis, size_const(l, from), size_const(l, to - from)) : NULL;
}

/* Whole numbers would be rounded. */
static bool keeps_weights(Lowering *l) {
    if (l->node && attr_int(l->node, WEIGHT_PRECISION, 0))
        unsupported(l, "weights of a product of integers in another form");
    return !l->error;
}

Value *integer_matmul(Lowering *l, Value *a, Value *a_zero, Value *b, Value *b_zero) {
    if (!a || !b || !keeps_weights(l)) return NULL;
    Value *bytes = byte_matmul(l, a, a_zero, b, b_zero);
    if (bytes || l->error) return bytes;
    int row = a->rank > 1 ? a->rank - 2 : 0, column = b->rank - 1;
    if (is_byte(a) && is_byte(b) && a->rank >= 2 && b->rank >= 2) {
        Value *left = centred_f32(l, a, a_zero, row), *right = centred_f32(l, b, b_zero, column), *sum = NULL;
        if (!left || !right) return NULL;
        Weight w = weight_of(right, right->rank - 2, false, most_of(b->dtype, b_zero));
        int parts = w.summed ? parts_needed(&w, most_of(a->dtype, a_zero), 0) : 0;
        for (int i = 0; i < parts; i++) {
            Value *x = part_of(l, left, left->rank - 1, w.summed, i, parts);
            Value *y = part_of(l, right, right->rank - 2, w.summed, i, parts);
            if (!x && !l->error) break; /* the parts before have it all */
            Value *product = matmul(l, x, y);
            if (parts > 1) product = cast(l, product, DT_I32);
            sum = sum ? add(l, sum, product) : product;
        }
        if (parts || l->error) return sum;
    }
    return matmul(l, centred(l, a, a_zero, row), centred(l, b, b_zero, column));
}

/* The largest |bias| where it is known, else what rules f32 out. */
static double most_bias(const Value *bias) {
    const Tensor *known = constant_of(bias);
    double most = 0;
    if (!bias) return 0;
    for (int64_t i = 0; known && i < tensor_count(known); i++)
        most = fmax(most, fabs(dtype_load_double(known->dtype, known->data, i)));
    return known ? most : EXACT;
}

Value *integer_conv(Lowering *l, const Node *n, Value *x, Value *x_zero, Value *w, Value *w_zero, Value *bias) {
    if (!x || !w || !keeps_weights(l)) return NULL;
    Value *bytes = byte_conv(l, n, x, x_zero, w, w_zero, bias);
    if (bytes || l->error) return bytes;
    if (is_byte(x) && is_byte(w) && w->rank >= 3) {
        Value *data = centred_f32(l, x, x_zero, 1), *kernel = centred_f32(l, w, w_zero, 0), *sum = NULL;
        if (!data || !kernel) return NULL;
        Weight weight = weight_of(kernel, 1, true, most_of(w->dtype, w_zero));
        double most = most_of(x->dtype, x_zero), extra = most_bias(bias);
        bool known = weight.summed > 0 && weight.inner > 0, whole = attr_int(n, "group", 1) == 1;
        int parts = known ? parts_needed(&weight, most, extra) : 0;
        if (known && parts != 1 && parts_needed(&weight, most, 0) == 1) parts = 1; /* the bias alone needs i32 */
        if (parts > 1 && !whole) parts = 0;
        bool inside = parts == 1 && most * weight_sum(&weight, 0, weight.summed) + extra < EXACT;
        for (int i = 0; i < parts; i++) {
            Value *some = part_of(l, data, 1, weight.summed, i, parts),
                  *taps = part_of(l, kernel, 1, weight.summed, i, parts);
            if (!some && !l->error) break;
            Value *product = conv_as(l, n, some, taps, inside && bias ? cast(l, bias, DT_F32) : NULL);
            if (parts > 1) product = cast(l, product, DT_I32);
            sum = sum ? add(l, sum, product) : product;
        }
        if (parts || l->error) {
            if (inside || !bias || !sum) return sum;
            return add(l, cast(l, sum, DT_I32), along_axis(l, cast(l, bias, DT_I32), 1, x->rank));
        }
    }
    return conv_as(l, n, centred(l, x, x_zero, 1), centred(l, w, w_zero, 0), bias);
}
