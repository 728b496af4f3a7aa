/* SPDX-License-Identifier: Apache-2.0 */
/* Products of 8-bit tensors as the anchors of u8 by i8 (lowering/anchors.h). Other signs are moved by 128, zero points with
 * them: what both leave is taken off the exact sums,
 *
 *     sum (a - za)(b - zb) = sum a b - za (sum b - K zb) - zb sum a
 *
 * and of constant weights it is a bias. */
#include "ops/linear/linear.h"

#include "lowering/sizes.h"

/* A tensor of bytes with its zero point in i32, NULL where that is known to be 0. */
typedef struct Bytes {
    Value *data, *zero;
} Bytes;

/* The other sign: x and its zero point move by 128. */
static Bytes signed_as(Lowering *l, Value *x, Value *zero_point, DType to) {
    Bytes b = {x, zero_point ? cast(l, zero_point, DT_I32) : NULL};
    if (x->dtype != to) {
        Value *shift = scalar_int(l, DT_I32, to == DT_U8 ? 128 : -128);
        b.data = cast(l, add(l, cast(l, x, DT_I32), shift), to);
        b.zero = b.zero ? add(l, b.zero, shift) : shift;
    }
    if (b.zero && is_all(constant_of(b.zero), 0)) b.zero = NULL;
    return b;
}

/* Sums of a constant weight's bytes, without a copy of it in i32: over `inner` of [outer][inner][columns]. */
static Value *sums_of_constant(Lowering *l, const Tensor *w, int64_t outer, int64_t inner, int64_t columns, int rank,
                               const int64_t *dims) {
    Tensor *sums = ARENA_NEW(l->arena, Tensor);
    *sums = (Tensor){.dtype = DT_I32, .rank = rank};
    for (int i = 0; i < rank; i++) sums->dims[i] = dims[i];
    int32_t *to = sums->data = arena_array(l->arena, (size_t)(outer * columns), sizeof(int32_t));
    const int8_t *from = w->data;
    for (int64_t o = 0; o < outer; o++, to += columns) {
        for (int64_t c = 0; c < columns; c++) to[c] = 0;
        for (int64_t k = 0; k < inner; k++, from += columns)
            for (int64_t c = 0; c < columns; c++) to[c] += from[c];
    }
    return constant(l, sums);
}

/* Over the rows of matrices: [..., 1, N], of one matrix [N]. */
static Value *column_sums(Lowering *l, Value *b) {
    const Tensor *known = constant_of(b);
    int axis = b->rank - 2;
    if (!known) {
        Value *sums = reduce(l, PRIM_REDUCE_SUM, cast(l, b, DT_I32), &axis, 1, b->rank > 2);
        return sums;
    }
    int64_t dims[MAX_RANK], outer = 1, columns = known->dims[b->rank - 1];
    int rank = b->rank > 2 ? b->rank : 1;
    for (int i = 0; i < axis; i++) outer *= dims[i] = known->dims[i];
    if (rank > 1) dims[axis] = 1;
    dims[rank - 1] = columns;
    return sums_of_constant(l, known, outer, known->dims[axis], columns, rank, dims);
}

Value *byte_matmul(Lowering *l, Value *a, Value *a_zero, Value *b, Value *b_zero) {
    if (!l->policy || !l->policy->target.anchors.bytes || !is_byte(a) || !is_byte(b) || a->rank < 2 || b->rank < 2)
        return NULL;
    Value *row_zero = along_axis(l, a_zero, a->rank - 2, a->rank),
          *column_zero = along_axis(l, b_zero, b->rank - 1, b->rank);
    if (l->error) return NULL;
    Bytes x = signed_as(l, a, row_zero, DT_U8), w = signed_as(l, b, column_zero, DT_I8);
    Value *sum = bytes_matmul(l, x.data, w.data);
    if (x.zero) {
        Value *columns = column_sums(l, w.data);
        if (w.zero) columns = sub(l, columns, mul(l, w.zero, cast(l, dim_scalar(l, b->dims[b->rank - 2]), DT_I32)));
        sum = sub(l, sum, mul(l, x.zero, columns));
    }
    if (w.zero) {
        int last = a->rank - 1;
        sum = sub(l, sum, mul(l, reduce(l, PRIM_REDUCE_SUM, cast(l, x.data, DT_I32), &last, 1, true), w.zero));
    }
    return sum;
}

/* Whether the node pads nowhere. */
static bool pads_nothing(const Node *n) {
    int count;
    const int64_t *pads = attr_ints(n, "pads", &count);
    const char *mode = attr_string(n, "auto_pad", "NOTSET");
    for (int i = 0; i < count; i++)
        if (pads[i]) return false;
    return strcmp(mode, "NOTSET") == 0 || strcmp(mode, "VALID") == 0;
}

/* The padding stands for the zero point, which therefore has to be known where there is some. */
Value *byte_conv(Lowering *l, const Node *n, Value *x, Value *x_zero, Value *w, Value *w_zero, Value *bias) {
    if (!l->policy || !l->policy->target.anchors.bytes || !is_byte(x) || !is_byte(w) || w->rank < 3) return NULL;
    const Tensor *known = constant_of(w), *zero = constant_of(x_zero), *weight_zero = constant_of(w_zero);
    if (!known || (x_zero && (x_zero->rank > 1 || !dim_equals(value_elements(l->graph, x_zero), 1)))) return NULL;
    if (x_zero && !zero && !pads_nothing(n)) return NULL;
    if (w_zero ? !is_all(weight_zero, w->dtype == DT_U8 ? 128 : 0) : w->dtype == DT_U8) return NULL;
    if (attr_int(n, "group", 1) != 1 && known->dims[1] % 4) return NULL; /* bytes are multiplied four at a time */
    int64_t inner = 1, dims[] = {known->dims[0]};
    for (int i = 1; i < known->rank; i++) inner *= known->dims[i];
    Bytes data = signed_as(l, x, along_axis(l, x_zero, 0, 1), DT_U8), kernel = signed_as(l, w, w_zero, DT_I8);
    if (l->error || !constant_of(kernel.data)) return NULL;
    const Tensor *pad = constant_of(data.zero);
    int64_t pad_value = pad ? dtype_load_int(pad->dtype, pad->data, 0) : 0;
    Value *start = bias ? cast(l, bias, DT_I32) : NULL;
    if (data.zero) {
        Value *sums = sums_of_constant(l, constant_of(kernel.data), dims[0], inner, 1, 1, dims);
        Value *less = mul(l, data.zero, sums);
        start = start ? sub(l, start, less) : unary(l, PRIM_NEG, less);
    }
    return conv_padded(l, n, data.data, kernel.data, start, pad_value);
}
