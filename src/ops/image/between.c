/* SPDX-License-Identifier: Apache-2.0 */
/* Taps of positions in an image: which elements they read, and with what weights (between.h). */
#include "ops/image/between.h"

#include "lowering/sizes.h"

/* --- along one axis --------------------------------------------------------------------------------------------------------- */

Value *axis_end(Lowering *l, const Dim *size) {
    return cast(l, dim_scalar(l, size_sub(l, size, size_const(l, 1))), DT_F64);
}

Value *bounded_position(Lowering *l, Value *x) {
    Value *low = scalar(l, DT_F64, -1e9), *high = scalar(l, DT_F64, 1e9);
    return clip(l, where(l, unary(l, PRIM_ISNAN, x), low, x), low, high);
}

/* From low, x is as far along a way that goes to high and back again; without length it stays at low. */
Value *mirrored(Lowering *l, Value *x, const ImageAxis *axis) {
    Value *low = scalar(l, DT_F64, -axis->edge), *high = add(l, axis_end(l, axis->size), scalar(l, DT_F64, axis->edge));
    Value *length = sub(l, high, low), *both = maximum(l, add(l, length, length), scalar(l, DT_F64, 1));
    Value *from_high = unary(l, PRIM_ABS, sub(l, binary(l, PRIM_MOD, sub(l, x, low), both), length));
    return where(l, binary(l, PRIM_GT, high, low), sub(l, high, from_high), low);
}

/* Along a new last axis. */
static Value *stacked(Lowering *l, Value *const *parts, int count) {
    Value *wide[MOST_TAPS];
    if (!present(l, parts, count)) return NULL;
    int axis = parts[0]->rank;
    for (int i = 0; i < count; i++) wide[i] = unsqueeze(l, parts[i], &axis, 1);
    return concat(l, wide, count, axis);
}

Taps neighbours(Lowering *l, Value *first, Value *const *weights, int count, const ImageAxis *axis, DType dtype) {
    Value *zero = scalar(l, DT_F64, 0), *end = axis_end(l, axis->size);
    const Dim *taps = size_const(l, count);
    Value *number = add(l, stacked(l, &first, 1), iota(l, &taps, 1, 0, DT_F64));
    Value *inside = binary(l, PRIM_AND, binary(l, PRIM_GE, number, zero), binary(l, PRIM_LE, number, end));
    if (axis->outside == OUTSIDE_REFLECTION) number = mirrored(l, number, axis);
    return (Taps){.index = cast(l, clip(l, number, zero, end), DT_I64),
                  .weight = cast(l, stacked(l, weights, count), dtype),
                  .inside = axis->outside == OUTSIDE_ZEROS ? inside : NULL};
}

Taps linear_taps(Lowering *l, Value *x, const ImageAxis *axis, DType dtype) {
    Value *whole = unary(l, PRIM_FLOOR, x), *rest = sub(l, x, whole);
    return neighbours(l, whole, (Value *[]){sub(l, scalar(l, DT_F64, 1), rest), rest}, 2, axis, dtype);
}

/* --- of all axes ------------------------------------------------------------------------------------------------------------- */

/* The taps of spatial axis i, with axes of size 1 for those of the others. */
static Value *aligned(Lowering *l, const Between *b, Value *taps, int i) {
    int axes[MAX_RANK], count = 0;
    for (int k = 0; k < b->axes; k++)
        if (k != i) axes[count++] = b->first + k;
    return unsqueeze(l, taps, axes, count);
}

Between between(Lowering *l, Value *x, Value *image, const Taps *taps) {
    if (!present(l, (Value *[]){x, image}, 2)) return (Between){0};
    Between b = {.first = image->rank, .axes = x->rank - 2, .rows = flatten_to(l, x, 0, x->rank - 1)};
    int axes[MAX_RANK];
    for (int i = 0; i < b.axes; i++) axes[i] = b.first + i;
    b.place = unsqueeze(l, image, axes, b.axes);
    for (int i = 0; i < b.axes; i++) {
        Value *weight = aligned(l, &b, taps[i].weight, i);
        Value *inside = taps[i].inside ? aligned(l, &b, taps[i].inside, i) : NULL;
        b.place = add(l, mul(l, b.place, dim_scalar(l, x->dims[1 + i])), aligned(l, &b, taps[i].index, i));
        b.weight = b.weight ? mul(l, b.weight, weight) : weight;
        b.inside = b.inside && inside ? binary(l, PRIM_AND, b.inside, inside) : inside ? inside : b.inside;
    }
    return b;
}

Value *weighed(Lowering *l, const Between *b, double otherwise) {
    int channels = b->first + b->axes;
    Value *value = mul(l, gather(l, b->rows, b->place, 0), unsqueeze(l, b->weight, &channels, 1));
    if (!b->inside || !value) return value;
    return where(l, unsqueeze(l, b->inside, &channels, 1), value, like(l, value, otherwise));
}

Value *blended(Lowering *l, const Between *b) {
    int axes[MAX_RANK];
    for (int i = 0; i < b->axes; i++) axes[i] = b->first + i;
    return reduce(l, PRIM_REDUCE_SUM, weighed(l, b, 0), axes, b->axes, false);
}

Value *added_to_rows(Lowering *l, const Value *x, const Between *b, Value *parts) {
    int channels = b->first + b->axes;
    if (!present(l, &b->rows, 1)) return NULL;
    Value *zeros = expand(l, like(l, x, 0), (const Dim *const *)b->rows->dims, 2);
    Value *sums = scatter_nd(l, zeros, unsqueeze(l, b->place, &channels, 1), parts, "add");
    return sums ? reshape(l, sums, x->dims, x->rank) : NULL;
}
