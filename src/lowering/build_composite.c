/* SPDX-License-Identifier: Apache-2.0 */
/* What several operators are made of: means, softmax, GELU, random draws. */
#include "lowering/build_internal.h"

#include <math.h>

/* --- composites -------------------------------------------------------------------------------------------------- */

Value *widen(Lowering *l, Value *x) {
    if (!present(l, &x, 1)) return NULL;
    return dtype_is_float(x->dtype) && dtype_size(x->dtype) < 4 ? cast(l, x, DT_F32) : x;
}

Value *mean(Lowering *l, Value *x, const int *axes, int count, bool keepdims) {
    if (!present(l, &x, 1)) return NULL;
    const Dim *elements = dim_const(l->dims, 1);
    for (int i = 0; i < count; i++) elements = dim_mul(l->dims, elements, x->dims[axes[i]]);
    Value *wide = widen(l, x), *sum = reduce(l, PRIM_REDUCE_SUM, wide, axes, count, keepdims);
    return cast_like(l, divide(l, sum, cast_like(l, dim_scalar(l, elements), wide)), x);
}

Value *softmax(Lowering *l, Value *x, int axis) {
    Value *wide = widen(l, x);
    Value *e = unary(l, PRIM_EXP, sub(l, wide, reduce(l, PRIM_REDUCE_MAX, wide, &axis, 1, true)));
    return cast_like(l, divide(l, e, reduce(l, PRIM_REDUCE_SUM, e, &axis, 1, true)), x);
}

Value *log_softmax(Lowering *l, Value *x, int axis) {
    Value *wide = widen(l, x), *d = sub(l, wide, reduce(l, PRIM_REDUCE_MAX, wide, &axis, 1, true));
    Value *sum = reduce(l, PRIM_REDUCE_SUM, unary(l, PRIM_EXP, d), &axis, 1, true);
    return cast_like(l, sub(l, d, unary(l, PRIM_LOG, sum)), x);
}

Value *root_mean_square(Lowering *l, Value *x, double epsilon) {
    int last = x ? x->rank - 1 : 0;
    Value *square = mean(l, mul(l, x, x), &last, 1, true);
    return mul(l, x, rsqrt(l, add(l, square, square ? like(l, square, epsilon) : NULL)));
}

/* x/2 (1 + erf(x / sqrt 2)), or x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))): Hendrycks and Gimpel, "Gaussian Error
 * Linear Units", 2016. */
Value *gelu(Lowering *l, Value *x, bool tanh_form) {
    Value *w = widen(l, x), *inner;
    if (tanh_form) {
        Value *cube = mul(l, mul(l, w, w), w);
        Value *sum = add(l, w, mul(l, like(l, w, 0.044715), cube));
        inner = unary(l, PRIM_TANH, mul(l, like(l, w, M_2_SQRTPI * M_SQRT1_2), sum));
    } else {
        inner = unary(l, PRIM_ERF, mul(l, w, like(l, w, M_SQRT1_2)));
    }
    return cast_like(l, mul(l, mul(l, w, like(l, w, 0.5)), add(l, like(l, w, 1), inner)), x);
}

Value *clip(Lowering *l, Value *x, Value *low, Value *high) {
    if (low) x = maximum(l, x, low);
    return high ? minimum(l, x, high) : x;
}

/* --- random draws --- */

/* A step of SplitMix64: Steele, Lea and Flood, "Fast Splittable Pseudorandom Number Generators", OOPSLA 2014. */
static uint64_t mix_seed(uint64_t z) {
    z += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

uint64_t random_base(Lowering *l, bool has_seed, float seed) {
    uint32_t bits;
    memcpy(&bits, &seed, sizeof bits);
    uint64_t own = has_seed ? (uint64_t)bits << 32 | 1 : l->graph->info->next_seed++ << 1;
    return mix_seed(mix_seed(own) ^ (l->policy ? l->policy->seed : 0));
}

static Value *drawn(Lowering *l, const Dim *const *shape, int rank, uint64_t base, int draw, bool halves) {
    if (l->error) return NULL;
    uint64_t start = mix_seed(base + (uint64_t)draw * 0x9e3779b97f4a7c15u);
    Value *run = cast(l, dim_scalar(l, dim_symbol(l->dims, "$run")), DT_U64);
    Value *step = scalar_int(l, DT_U64, (int64_t)0x9e3779b97f4a7c15u); /* odd: no two runs share a seed */
    Value *turn = mul(l, run, step), *seed = add(l, scalar_int(l, DT_U64, (int64_t)start), turn);
    NodeSpec spec = {.prim = PRIM_PHILOX, .inputs = &seed, .input_count = 1, .dtype = DT_U32};
    spec_shape(&spec, rank, shape);
    spec_dims(&spec, "shape", shape, rank);
    if (halves) spec_int(&spec, "halves", 1);
    return emit(l, &spec);
}

Value *random_draw(Lowering *l, const Dim *const *shape, int rank, uint64_t base, int draw) {
    return drawn(l, shape, rank, base, draw, false);
}

Value *random_choices(Lowering *l, const Dim *const *shape, int rank, bool has_seed, float seed) {
    return l->error ? NULL : drawn(l, shape, rank, random_base(l, has_seed, seed), 0, true);
}

Value *with_bias(Lowering *l, const Node *n, Value *x, int index) {
    Value *bias = optional_in(l, n, index);
    return bias ? add(l, x, bias) : x;
}
