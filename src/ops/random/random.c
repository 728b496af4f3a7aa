/* Random operators. Every draw is a function of the element's index, the node's stream and the run (build.h,
 * random_bits). */
#include "ops/families.h"

#include "lowering/build_internal.h"

#include <math.h>

/* The shape that a node draws: attribute `shape`, or its input's. */
static bool shape_from(Lowering *l, const Node *n, const Dim *const **out_dims, int *out_rank) {
    if (n->input_count > 0) {
        Value *x = in(l, n, 0);
        if (!present(l, &x, 1)) return false;
        *out_dims = (const Dim *const *)x->dims;
        *out_rank = x->rank;
        return true;
    }
    int count;
    const int64_t *sizes = attr_ints(n, "shape", &count);
    if (!sizes || count > MAX_RANK) {
        invalid(l, "attribute shape is missing or has more than %d sizes", MAX_RANK);
        return false;
    }
    const Dim **dims = ARENA_ARRAY(l->arena, const Dim *, count ? count : 1);
    for (int i = 0; i < count; i++) dims[i] = dim_const(l->dims, sizes[i]);
    *out_dims = dims;
    *out_rank = count;
    return true;
}

/* dtype: attribute, else the input's where that is a float, else f32. */
static DType type_from(const Node *n) {
    const Value *x = n->input_count > 0 ? n->inputs[0] : NULL;
    return attr_dtype(n, "dtype", x && dtype_is_float(x->dtype) ? x->dtype : DT_F32);
}

static uint64_t base_from(Lowering *l, const Node *n) {
    return random_base(l, node_attr(n, "seed") != NULL, (float)attr_float(n, "seed", 0));
}

/* In [0, 1) with 24 bits; in (0, 1] when `above`. */
static Value *unit(Lowering *l, Value *bits, bool above) {
    Value *top = binary(l, PRIM_SHR, bits, scalar_int(l, DT_U32, 8));
    if (above) top = add(l, top, scalar_int(l, DT_U32, 1));
    return mul(l, cast(l, top, DT_F32), scalar(l, DT_F32, 0x1p-24));
}

static Status lower_uniform(Lowering *l, const Node *n) {
    const Dim *const *dims;
    int rank;
    if (!shape_from(l, n, &dims, &rank)) return l->error;
    double low = attr_float(n, "low", 0), high = attr_float(n, "high", 1);
    Value *u = unit(l, random_draw(l, dims, rank, base_from(l, n), 0), false);
    Value *y = add(l, mul(l, u, scalar(l, DT_F32, high - low)), scalar(l, DT_F32, low));
    return out(l, n, 0, cast(l, y, type_from(n)));
}

/* sqrt(-2 ln u) cos(2 pi v): Box and Muller, "A Note on the Generation of Random Normal Deviates", 1958. */
static Status lower_normal(Lowering *l, const Node *n) {
    const Dim *const *dims;
    int rank;
    if (!shape_from(l, n, &dims, &rank)) return l->error;
    uint64_t base = base_from(l, n);
    Value *u = unit(l, random_draw(l, dims, rank, base, 0), true),
          *v = unit(l, random_draw(l, dims, rank, base, 1), false);
    Value *radius = unary(l, PRIM_SQRT, mul(l, scalar(l, DT_F32, -2), unary(l, PRIM_LOG, u)));
    Value *z = mul(l, radius, unary(l, PRIM_COS, mul(l, scalar(l, DT_F32, 2 * M_PI), v)));
    Value *scaled = mul(l, z, scalar(l, DT_F32, attr_float(n, "scale", 1)));
    return out(l, n, 0, cast(l, add(l, scaled, scalar(l, DT_F32, attr_float(n, "mean", 0))), type_from(n)));
}

static Status lower_bernoulli(Lowering *l, const Node *n) {
    Value *p = in(l, n, 0);
    if (!p) return l->error;
    if (!present(l, &p, 1)) return l->error;
    Value *u = unit(l, random_draw(l, (const Dim *const *)p->dims, p->rank, base_from(l, n), 0), false);
    Value *hit = binary(l, PRIM_LT, u, cast(l, p, DT_F32));
    return out(l, n, 0, cast(l, hit, attr_dtype(n, "dtype", p->dtype)));
}

/* Samples of the distribution exp(x) / sum(exp(x)) over the last axis, as argmax(x - ln(-ln u)): Gumbel, "Statistical
 * Theory of Extreme Values", 1954. x: [N, C]; result [N, samples]. */
static Status lower_multinomial(Lowering *l, const Node *n) {
    Value *x = widen(l, in(l, n, 0));
    if (!x) return l->error;
    int64_t samples = attr_int(n, "sample_size", 1);
    if (x->rank != 2 || samples < 0) return invalid(l, "%d axes and %lld samples", x->rank, (long long)samples);
    const Dim *dims[] = {x->dims[0], dim_const(l->dims, samples), x->dims[1]};
    Value *u = unit(l, random_draw(l, dims, 3, base_from(l, n), 0), true);
    /* u = 1 would give +inf: the largest number below it stands for it. */
    u = minimum(l, u, scalar(l, DT_F32, 1 - 0x1p-24));
    Value *gumbel = unary(l, PRIM_NEG, unary(l, PRIM_LOG, unary(l, PRIM_NEG, unary(l, PRIM_LOG, u))));
    Value *rows = unsqueeze(l, x, (const int[]){1}, 1);
    Value *at = arg_reduce(l, PRIM_ARGMAX, add(l, rows, cast_like(l, gumbel, x)), 2, false, false);
    return out(l, n, 0, cast(l, at, attr_dtype(n, "dtype", DT_I32)));
}

const OpRow ops_random[] = {
    {"", "Bernoulli", 15, 0, lower_bernoulli, NULL, OP_RANDOM},
    {"", "Multinomial", 7, 0, lower_multinomial, NULL, OP_RANDOM},
    {"", "RandomNormal", 1, 0, lower_normal, NULL, OP_RANDOM},
    {"", "RandomNormalLike", 1, 0, lower_normal, NULL, OP_RANDOM},
    {"", "RandomUniform", 1, 0, lower_uniform, NULL, OP_RANDOM},
    {"", "RandomUniformLike", 1, 0, lower_uniform, NULL, OP_RANDOM},
    {0},
};
