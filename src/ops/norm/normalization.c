/* SPDX-License-Identifier: Apache-2.0 */
/* Normalisations and Dropout. Narrow floats are computed in f32. */
#include "ops/families.h"

#include "lowering/build.h"

#include <math.h>

static Status give(Lowering *l, const Node *n, int index, Value *y) {
    return wants_output(n, index) ? out(l, n, index, cast_like(l, y, in(l, n, 0))) : l->error;
}

static int axes_between(int from, int to, int *axes) {
    for (int i = from; i < to; i++) axes[i - from] = i;
    return to > from ? to - from : 0;
}

static Value *squared(Lowering *l, Value *x) { return mul(l, x, x); }

static Value *inverse_deviation(Lowering *l, Value *variance, double epsilon) {
    return rsqrt(l, add(l, variance, like(l, variance, epsilon)));
}

/* A vector over axis 1 of x, as [C, 1, ...]. */
static Value *per_channel(Lowering *l, Value *vector, const Value *x, Value *model) {
    if (!vector || !x) return NULL;
    const Dim *dims[MAX_RANK];
    if (vector->rank != 1 || x->rank < 2) {
        invalid(l, "\"%s\" must have one number a channel", vector->name);
        return NULL;
    }
    for (int i = 0; i < x->rank - 1; i++) dims[i] = i ? dim_const(l->dims, 1) : vector->dims[0];
    return cast_like(l, reshape(l, vector, dims, x->rank - 1), model);
}

/* --- over the last axes ------------------------------------------------------------------------------------------- */

/* Y = (X - mean) / sqrt(var + epsilon) * Scale + B over axes axis..rank-1 (ONNX LayerNormalization-17). */
static Status lower_layer_norm(Lowering *l, const Node *n) {
    Value *x = widen(l, in(l, n, 0)), *scale = in(l, n, 1), *bias = optional_in(l, n, 2);
    if (!x || !scale) return l->error;
    int axes[MAX_RANK], from = axis_of(l, attr_int(n, "axis", -1), x->rank);
    int count = axes_between(from, x->rank, axes);
    DType stash = (DType)attr_int(n, "stash_type", DT_F32);
    Value *average = mean(l, x, axes, count, true), *d = sub(l, x, average);
    Value *inverse = inverse_deviation(l, mean(l, squared(l, d), axes, count, true), attr_float(n, "epsilon", 1e-5f));
    Value *y = mul(l, mul(l, d, inverse), cast_like(l, scale, x));
    if (bias) y = add(l, y, cast_like(l, bias, x));
    give(l, n, 0, y);
    if (wants_output(n, 1)) out(l, n, 1, cast(l, average, stash));
    if (wants_output(n, 2)) out(l, n, 2, cast(l, inverse, stash));
    return l->error;
}

/* Y = X / sqrt(mean(X^2) + epsilon) * Scale over axes axis..rank-1 (ONNX RMSNormalization-23). */
static Status lower_rms_norm(Lowering *l, const Node *n) {
    Value *x = widen(l, in(l, n, 0)), *scale = in(l, n, 1);
    if (!x || !scale) return l->error;
    int axes[MAX_RANK], from = axis_of(l, attr_int(n, "axis", -1), x->rank);
    int count = axes_between(from, x->rank, axes);
    Value *inverse = inverse_deviation(l, mean(l, squared(l, x), axes, count, true), attr_float(n, "epsilon", 1e-5f));
    return give(l, n, 0, mul(l, mul(l, x, inverse), cast_like(l, scale, x)));
}

/* --- over batch or space --- */

/* (x - mean) / sqrt(var + epsilon) over the axes. */
static Value *standardised(Lowering *l, Value *x, const int *axes, int count, double epsilon) {
    Value *d = sub(l, x, mean(l, x, axes, count, true));
    return mul(l, d, inverse_deviation(l, mean(l, squared(l, d), axes, count, true), epsilon));
}

/* x with its channels apart, [N, groups, channels of a group, ...]. */
static Value *split_channels(Lowering *l, Value *x, const Dim *groups, const Dim *in_group) {
    const Dim *dims[MAX_RANK] = {x->dims[0], groups, in_group};
    for (int i = 2; i < x->rank; i++) dims[i + 1] = x->dims[i];
    return reshape(l, x, dims, x->rank + 1);
}

/* x as it was before its channels and space became groups and all that is in a group, split into groups alone: so exporters write a group
 * normalisation. Its axes stay apart, for what wants them in another order. Else x. */
static Value *in_groups(Lowering *l, Value *x) {
    const Node *node = x->producer;
    const Dim *in_group;
    if (!node || node->kind != NODE_PRIM || node->prim != PRIM_RESHAPE || x->rank != 3) return x;
    Value *whole = node->inputs[0];
    if (whole->rank < 3 || whole->rank == MAX_RANK || whole->dims[0] != x->dims[0] || whole->dims[1] == x->dims[1] ||
        !dim_divides(l->dims, whole->dims[1], x->dims[1], &in_group))
        return x;
    return split_channels(l, whole, x->dims[1], in_group);
}

static Status lower_instance_norm(Lowering *l, const Node *n) {
    Value *flat = in(l, n, 0), *x = flat ? widen(l, in_groups(l, flat)) : NULL;
    if (!x) return l->error;
    int axes[MAX_RANK], count = axes_between(2, x->rank, axes);
    Value *y = standardised(l, x, axes, count, attr_float(n, "epsilon", 1e-5f));
    Value *scale = per_channel(l, in(l, n, 1), x, x), *bias = per_channel(l, in(l, n, 2), x, x);
    return give(l, n, 0, reshape(l, add(l, mul(l, y, scale), bias), flat->dims, flat->rank));
}

/* Axis 1 is split into groups, each normalised over its channels and space. In opset 18 scale and bias have one number
 * a group. */
static Status lower_group_norm(Lowering *l, const Node *n) {
    Value *x = widen(l, in(l, n, 0)), *scale = in(l, n, 1), *bias = in(l, n, 2);
    int64_t groups = attr_int(n, "num_groups", 0);
    if (!x || !scale || !bias) return l->error;
    if (groups < 1 || x->rank < 2 || x->rank >= MAX_RANK)
        return invalid(l, "num_groups %lld on %d axes", (long long)groups, x->rank);
    const Dim *group_count = dim_const(l->dims, groups), *in_group;
    if (!dim_divides(l->dims, x->dims[1], group_count, &in_group)) {
        if (dim_is_const(x->dims[1], NULL))
            return invalid(l, "the channels do not divide into %lld groups", (long long)groups);
        in_group = dim_div(l->dims, x->dims[1], group_count);
    }
    Value *split = split_channels(l, x, group_count, in_group);
    if (!split) return l->error;
    int axes[MAX_RANK], count = axes_between(2, split->rank, axes);
    Value *y = standardised(l, split, axes, count, attr_float(n, "epsilon", 1e-5f));
    if (n->opset < 21) y = add(l, mul(l, y, per_channel(l, scale, split, x)), per_channel(l, bias, split, x));
    y = reshape(l, y, x->dims, x->rank);
    if (n->opset >= 21) y = add(l, mul(l, y, per_channel(l, scale, x, x)), per_channel(l, bias, x, x));
    return give(l, n, 0, y);
}

/* (X - mean) / sqrt(mean((X - mean)^2)); the standard's function adds 1e-9 to the root. */
static Status lower_mean_variance_norm(Lowering *l, const Node *n) {
    static const int64_t by_default[] = {0, 2, 3};
    Value *x = widen(l, in(l, n, 0));
    if (!x) return l->error;
    int given, count;
    const int64_t *list = attr_ints(n, "axes", &given);
    if (!list) list = by_default, given = 3;
    int *axes = axes_of(l, list, given, x->rank, false, &count);
    if (!axes) return l->error;
    Value *d = sub(l, x, mean(l, x, axes, count, true));
    Value *deviation = unary(l, PRIM_SQRT, mean(l, squared(l, d), axes, count, true));
    return give(l, n, 0, divide(l, d, add(l, deviation, like(l, x, 1e-9))));
}

/* x a + b with a = scale / sqrt(var + epsilon), b = B - mean a: constants fold to these two. */
static Value *affine_norm(Lowering *l, Value *x, Value *scale, Value *bias, Value *average, Value *variance,
                          double epsilon) {
    Value *a = mul(l, scale, inverse_deviation(l, variance, epsilon));
    Value *b = sub(l, bias, mul(l, average, a));
    return add(l, mul(l, x, a), b);
}

typedef struct BatchNorm {
    Value *x, *params[4]; /* scale, bias, mean, var: broadcast to x */
    double epsilon, momentum;
} BatchNorm;

/* Normalises with the batch's own statistics; outputs 1 and 2 are the running ones, 3 and 4 (before opset 14) the
 * batch's. */
static Status train_batch_norm(Lowering *l, const Node *n, const BatchNorm *b) {
    int axes[MAX_RANK], count = 1;
    axes[0] = 0;
    for (int i = 2; i < b->x->rank; i++) axes[count++] = i;
    Value *average = mean(l, b->x, axes, count, true), *d = sub(l, b->x, average);
    Value *variance = mean(l, squared(l, d), axes, count, true);
    Value *y = add(l, mul(l, mul(l, d, inverse_deviation(l, variance, b->epsilon)), b->params[0]), b->params[1]);
    give(l, n, 0, y);
    Value *batch[] = {average, variance};
    for (int i = 0; i < 2 && !l->error; i++) {
        Value *model = in(l, n, 3 + i), *own = reshape(l, batch[i], model->dims, model->rank);
        Value *before = cast_like(l, model, b->x), *momentum = like(l, b->x, b->momentum);
        Value *rest = sub(l, like(l, b->x, 1), momentum);
        if (wants_output(n, 1 + i))
            out(l, n, 1 + i, cast_like(l, add(l, mul(l, before, momentum), mul(l, own, rest)), model));
        if (wants_output(n, 3 + i)) out(l, n, 3 + i, cast_like(l, own, model));
    }
    return l->error;
}

static Status lower_batch_norm(Lowering *l, const Node *n) {
    BatchNorm b = {.x = widen(l, in(l, n, 0)),
                   .epsilon = attr_float(n, "epsilon", 1e-5f),
                   .momentum = attr_float(n, "momentum", 0.9f)};
    if (!b.x) return l->error;
    bool spatial = n->opset >= 9 || attr_int(n, "spatial", 1);
    for (int i = 0; i < 4; i++) {
        Value *given = in(l, n, i + 1);
        b.params[i] = spatial ? per_channel(l, given, b.x, b.x) : cast_like(l, given, b.x);
    }
    if (l->error) return l->error;
    bool more = false;
    for (int i = 1; i < 5; i++) more |= wants_output(n, i);
    if (n->opset >= 14 ? attr_int(n, "training_mode", 0) != 0 : more)
        return spatial ? train_batch_norm(l, n, &b) : unsupported(l, "training with spatial = 0");
    return give(l, n, 0, affine_norm(l, b.x, b.params[0], b.params[1], b.params[2], b.params[3], b.epsilon));
}

/* --- along one axis
 * --------------------------------------------------------------------------------------------------- */

/* x / |x|_p; 0 where the norm is 0. */
static Status lower_lp_norm(Lowering *l, const Node *n) {
    Value *x = widen(l, in(l, n, 0));
    if (!x) return l->error;
    int axis = axis_of(l, attr_int(n, "axis", -1), x->rank);
    int64_t p = attr_int(n, "p", 2);
    if (p != 1 && p != 2) return invalid(l, "p must be 1 or 2, not %lld", (long long)p);
    Value *norm = reduce(l, PRIM_REDUCE_SUM, p == 1 ? unary(l, PRIM_ABS, x) : squared(l, x), &axis, 1, true);
    if (p == 2) norm = unary(l, PRIM_SQRT, norm);
    Value *zero = like(l, x, 0), *is_zero = binary(l, PRIM_EQ, norm, zero);
    return give(l, n, 0, where(l, is_zero, zero, divide(l, x, where(l, is_zero, like(l, x, 1), norm))));
}

/* From here on a window is put together from sums over 2, 4, 8, ... elements; below, its elements are added in one
 * kernel. */
enum { LONG_WINDOW = 16 };

/* Sums over `size` elements along axis 1 from each of the first `count` on: x has count + size - 1 of them there. Of
 * sums over powers of two those are taken whose lengths come to size, so that long windows cost no more than log(size)
 * passes, and nothing is subtracted. */
static Value *window_sums(Lowering *l, Value *x, int64_t size, const Dim *count) {
    Value *total = NULL, *run = x; /* run: sums over `length` elements */
    const Dim *runs = dim_add(l->dims, count, dim_const(l->dims, size - 1));
    bool is_long = size > LONG_WINDOW;
    for (int64_t length = 1, from = 0; from < size && !l->error;) {
        if (!is_long || (size & length)) {
            Value *part = slice_axis(l, run, 1, dim_const(l->dims, from), count);
            total = total ? add(l, total, part) : part;
            from += length;
        }
        if (!is_long || from == size) continue;
        runs = dim_sub(l->dims, runs, dim_const(l->dims, length));
        run = add(l, slice_axis(l, run, 1, dim_const(l->dims, 0), runs),
                  slice_axis(l, run, 1, dim_const(l->dims, length), runs));
        length *= 2;
    }
    return total;
}

/* What of a window's elements before or behind its middle may be inside the data. */
static int64_t within(const Dim *channels, int64_t reach) {
    int64_t count;
    return dim_is_const(channels, &count) && reach > count - 1 ? (count > 0 ? count - 1 : 0) : reach;
}

/* x / (bias + alpha / size * sum of x^2 over `size` channels around each) ^ beta: Krizhevsky et al., NIPS 2012,
 * section 3.3. */
static Status lower_lrn(Lowering *l, const Node *n) {
    Value *x = widen(l, in(l, n, 0));
    int64_t size = attr_int(n, "size", 1);
    if (!x) return l->error;
    if (x->rank < 2) return invalid(l, "the data has no channel axis");
    if (size < 1) return invalid(l, "size must be 1 or more, not %lld", (long long)size);
    int64_t back = within(x->dims[1], (size - 1) / 2), ahead = within(x->dims[1], size / 2);
    const Dim *before[MAX_RANK], *after[MAX_RANK];
    for (int i = 0; i < x->rank; i++) before[i] = after[i] = dim_const(l->dims, 0);
    before[1] = dim_const(l->dims, back);
    after[1] = dim_const(l->dims, ahead);
    Value *padded = pad(l, squared(l, x), before, after, like(l, x, 0));
    Value *sum = window_sums(l, padded, back + 1 + ahead, x->dims[1]);
    Value *factor = like(l, x, attr_float(n, "alpha", 1e-4f) / (double)size);
    Value *base = add(l, like(l, x, attr_float(n, "bias", 1)), mul(l, factor, sum));
    return give(l, n, 0, divide(l, x, binary(l, PRIM_POW, base, like(l, x, attr_float(n, "beta", 0.75f)))));
}

/* --- Dropout
 * ------------------------------------------------------------------------------------------------------------ */

static Status pass_through(Lowering *l, const Node *n, Value *x) {
    out(l, n, 0, x);
    if (!wants_output(n, 1)) return l->error;
    DType mask = n->opset < 10 && n->opset >= 7 ? x->dtype : DT_BOOL;
    return out(l, n, 1, expand(l, scalar_int(l, mask, 1), x->dims, x->rank));
}

/* Whether u >= ratio for u in [0, 1) of 24 random bits: compared as whole numbers. */
static Value *draw_keeps(Lowering *l, Value *bits, Value *ratio) {
    Value *numbers = scalar(l, DT_F32, 0x1p24), *scaled = mul(l, cast(l, ratio, DT_F32), numbers);
    Value *limit = cast(l, unary(l, PRIM_CEIL, scaled), DT_U32);
    return binary(l, PRIM_GE, binary(l, PRIM_SHR, bits, scalar_int(l, DT_U32, 8)), limit);
}

/* where(u >= ratio, x / (1 - ratio), 0). training: NULL, or a bool scalar that is known at run time only. */
static Status drop(Lowering *l, const Node *n, Value *x, Value *ratio, Value *training) {
    bool has_seed = node_attr(n, "seed") != NULL;
    Value *wide = widen(l, x), *bits = random_choices(l, x->dims, x->rank, has_seed, (float)attr_float(n, "seed", 0));
    Value *kept = draw_keeps(l, bits, ratio);
    Value *dropped = cast_like(l, ratio, wide), *share = sub(l, like(l, wide, 1), dropped), *zero = like(l, wide, 0);
    Value *inverse = unary(l, PRIM_RECIPROCAL, share);
    Value *scale = where(l, binary(l, PRIM_EQ, share, zero), zero, inverse);
    Value *y = where(l, kept, mul(l, wide, scale), zero);
    if (training) {
        y = where(l, training, y, wide);
        kept = binary(l, PRIM_OR, kept, unary(l, PRIM_NOT, training));
    }
    out(l, n, 0, cast_like(l, y, x));
    return wants_output(n, 1) ? out(l, n, 1, expand(l, kept, x->dims, x->rank)) : l->error;
}

static Status lower_dropout(Lowering *l, const Node *n) {
    Value *x = in(l, n, 0);
    if (!x) return l->error;
    if (n->opset < 12) { /* opsets 7 to 11 describe inference; before, is_test says */
        if (n->opset >= 7 || attr_int(n, "is_test", 0)) return pass_through(l, n, x);
        return drop(l, n, x, scalar(l, DT_F32, attr_float(n, "ratio", 0.5f)), NULL);
    }
    Value *ratio = optional_in(l, n, 1), *training = optional_in(l, n, 2);
    const Tensor *mode = constant_of(training), *known = constant_of(ratio);
    bool off = !training || (mode && tensor_count(mode) == 1 && !dtype_load_int(mode->dtype, mode->data, 0));
    bool none = known && tensor_count(known) == 1 && dtype_load_double(known->dtype, known->data, 0) == 0;
    if (off || none) return pass_through(l, n, x);
    ratio = ratio ? reshape(l, ratio, NULL, 0) : scalar(l, DT_F32, 0.5);
    return drop(l, n, x, ratio, mode ? NULL : reshape(l, training, NULL, 0));
}

/* data + bias + residual; dropout does nothing outside training. */
static Status lower_bias_dropout(Lowering *l, const Node *n) {
    const Tensor *training = constant_of(optional_in(l, n, 4));
    if (optional_in(l, n, 4) &&
        (!training || tensor_count(training) != 1 || dtype_load_int(training->dtype, training->data, 0)))
        return unsupported(l, "training mode");
    Value *y = with_bias(l, n, add(l, in(l, n, 0), in(l, n, 1)), 2);
    out(l, n, 0, y);
    if (wants_output(n, 1) && y)
        out(l, n, 1, expand(l, scalar_int(l, DT_BOOL, 1), (const Dim *const *)y->dims, y->rank));
    return l->error;
}

const OpRow ops_normalization[] = {
    {"", "BatchNormalization", 1, 0, lower_batch_norm},
    {"", "Dropout", 1, 6, lower_dropout, NULL, OP_RANDOM},
    {"", "Dropout", 7, 11, lower_dropout},
    {"", "Dropout", 12, 0, lower_dropout, NULL, OP_RANDOM},
    {"", "GroupNormalization", 18, 0, lower_group_norm},
    {"", "InstanceNormalization", 1, 0, lower_instance_norm},
    {"", "LRN", 1, 0, lower_lrn},
    {"", "LayerNormalization", 1, 0, lower_layer_norm},
    {"", "LpNormalization", 1, 0, lower_lp_norm},
    {"", "MeanVarianceNormalization", 9, 0, lower_mean_variance_norm},
    {"", "RMSNormalization", 23, 0, lower_rms_norm},
    {"com.microsoft", "BiasDropout", 1, 0, lower_bias_dropout},
    {0},
};
