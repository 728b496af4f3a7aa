/* SPDX-License-Identifier: Apache-2.0 */
/* Random operators. Every draw is a function of the element's index, the node's stream and the run (build.h,
 * random_bits). */
#include "ops/families.h"

#include "lowering/build_internal.h"
#include "lowering/sizes.h"

#include <math.h>
#include <stdatomic.h>

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

/* What numbers of a node's type are drawn and computed in. */
static DType drawn_in(DType dtype) { return dtype == DT_F64 ? DT_F64 : DT_F32; }

/* Draws of a shape; each number of draws from a node has a stream of its own. */
typedef struct Draws {
    const Dim *const *dims;
    int rank;
    uint64_t base;
    DType dtype; /* f32 or f64 */
} Draws;

enum { DRAWS = 2 }; /* of one node, at most; the words for their lower halves follow them */

static Value *word(Lowering *l, const Draws *d, int draw) { return random_draw(l, d->dims, d->rank, d->base, draw); }

/* In [0, 1), in (0, 1] when `above`, with all the bits that the type holds between 1/2 and 1: 24, or 53 of two words as
 * Python's random() puts them together. */
static Value *unit(Lowering *l, const Draws *d, int draw, bool above) {
    if (d->dtype == DT_F32) {
        Value *top = binary(l, PRIM_SHR, word(l, d, draw), scalar_int(l, DT_U32, 8));
        if (above) top = add(l, top, scalar_int(l, DT_U32, 1));
        return mul(l, cast(l, top, DT_F32), scalar(l, DT_F32, 0x1p-24));
    }
    Value *high = binary(l, PRIM_SHR, word(l, d, draw), scalar_int(l, DT_U32, 5)),
          *low = binary(l, PRIM_SHR, word(l, d, DRAWS + draw), scalar_int(l, DT_U32, 6));
    if (above) low = add(l, low, scalar_int(l, DT_U32, 1));
    Value *all = add(l, mul(l, cast(l, high, DT_F64), scalar(l, DT_F64, 0x1p26)), cast(l, low, DT_F64));
    return mul(l, all, scalar(l, DT_F64, 0x1p-53));
}

static Status lower_uniform(Lowering *l, const Node *n) {
    Draws d = {.dtype = drawn_in(type_from(n))};
    if (!shape_from(l, n, &d.dims, &d.rank)) return l->error;
    d.base = base_from(l, n);
    double low = attr_float(n, "low", 0), high = attr_float(n, "high", 1);
    Value *u = unit(l, &d, 0, false);
    Value *y = add(l, mul(l, u, scalar(l, d.dtype, high - low)), scalar(l, d.dtype, low));
    return out(l, n, 0, cast(l, y, type_from(n)));
}

/* sqrt(-2 ln u) cos(2 pi v): Box and Muller, "A Note on the Generation of Random Normal Deviates", 1958. */
static Status lower_normal(Lowering *l, const Node *n) {
    Draws d = {.dtype = drawn_in(type_from(n))};
    if (!shape_from(l, n, &d.dims, &d.rank)) return l->error;
    d.base = base_from(l, n);
    Value *u = unit(l, &d, 0, true), *v = unit(l, &d, 1, false);
    Value *radius = unary(l, PRIM_SQRT, mul(l, scalar(l, d.dtype, -2), unary(l, PRIM_LOG, u)));
    Value *z = mul(l, radius, unary(l, PRIM_COS, mul(l, scalar(l, d.dtype, 2 * M_PI), v)));
    Value *scaled = mul(l, z, scalar(l, d.dtype, attr_float(n, "scale", 1)));
    return out(l, n, 0, cast(l, add(l, scaled, scalar(l, d.dtype, attr_float(n, "mean", 0))), type_from(n)));
}

static Status lower_bernoulli(Lowering *l, const Node *n) {
    Value *p = in(l, n, 0);
    if (!present(l, &p, 1)) return l->error;
    Draws d = {(const Dim *const *)p->dims, p->rank, base_from(l, n), drawn_in(p->dtype)};
    Value *hit = binary(l, PRIM_LT, unit(l, &d, 0, false), cast(l, p, d.dtype));
    return out(l, n, 0, cast(l, hit, attr_dtype(n, "dtype", p->dtype)));
}

/* ---- Multinomial ---- */

typedef struct Sampling {
    const Tensor *x, *u;
    Tensor *y;
    int64_t classes, samples;
    double *sums;          /* [threads][classes] */
    _Atomic int64_t wrong; /* a row that is no distribution; -1: none */
} Sampling;

static double number_at(const Tensor *t, int64_t i) {
    return t->dtype == DT_F64 ? ((const double *)t->data)[i] : (double)((const float *)t->data)[i];
}

/* Running sums of exp(x - the row's largest); their total, which no row of numbers with a finite largest one lacks, or
 * not-a-number. */
static double add_up(const Sampling *s, int64_t row, double *sums) {
    double largest = -INFINITY, total = 0;
    for (int64_t c = 0; c < s->classes; c++) {
        double x = number_at(s->x, row * s->classes + c);
        if (!(x <= largest)) largest = x;
    }
    if (!isfinite(largest)) return NAN;
    for (int64_t c = 0; c < s->classes; c++) sums[c] = total += exp(number_at(s->x, row * s->classes + c) - largest);
    return total;
}

/* The first class whose sum is above the target, so none of probability zero. */
static int64_t class_at(const double *sums, int64_t classes, double target) {
    int64_t low = 0, high = classes - 1;
    while (low < high) {
        int64_t middle = low + (high - low) / 2;
        if (sums[middle] > target)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

static void sample_rows(void *context, int64_t begin, int64_t end, int worker) {
    Sampling *s = context;
    double *sums = s->sums + worker * s->classes;
    for (int64_t row = begin; row < end; row++) {
        double total = add_up(s, row, sums);
        if (isnan(total)) s->wrong = row;
        for (int64_t i = row * s->samples; i < (row + 1) * s->samples && total > 0; i++)
            dtype_store_int(s->y->dtype, s->y->data, i,
                            class_at(sums, s->classes, fmin(number_at(s->u, i) * total, nextafter(total, 0))));
    }
}

/* x [N, C], u [N, samples] in [0, 1) -> y [N, samples]: the class c that u falls to where each has a share exp(x[c]) of
 * the sum. */
static Status host_multinomial(HostCall *call) {
    const Tensor *x, *u;
    Sampling s = {.wrong = -1};
    TRY(host_tensor(call, 0, DT_NONE, &x));
    TRY(host_tensor(call, 1, DT_NONE, &u));
    if (x->rank != 2 || u->rank != 2 || x->dims[0] != u->dims[0] || (x->dtype != DT_F32 && x->dtype != DT_F64) ||
        u->dtype != DT_F64)
        return host_error(call, "the inputs do not fit each other");
    s.x = x, s.u = u, s.classes = x->dims[1], s.samples = u->dims[1];
    TRY(host_output(call, 0, attr_dtype(call->node, "dtype", DT_I32), 2, u->dims, &s.y));
    if (!s.y || !tensor_count(s.y)) return NULL;
    if (!s.classes) return host_error(call, "there is no class to draw");
    s.sums = ARENA_ARRAY(call->arena, double, pool_threads(call->pool) * s.classes);
    pool_for(call->pool, x->dims[0], 1 + 4096 / (s.classes + s.samples), sample_rows, &s);
    return s.wrong < 0
               ? NULL
               : host_error(call, "row %lld is no distribution: it has a NaN or an infinity, or no finite number",
                            (long long)s.wrong);
}

/* Samples of the distribution exp(x) / sum(exp(x)) over the last axis. x: [N, C]; result [N, samples]. */
static Status lower_multinomial(Lowering *l, const Node *n) {
    Value *x = widen(l, in(l, n, 0));
    if (!x) return l->error;
    int64_t samples = attr_int(n, "sample_size", 1);
    DType dtype = attr_dtype(n, "dtype", DT_I32);
    if (x->rank != 2 || samples < 0) return invalid(l, "%d axes and %lld samples", x->rank, (long long)samples);
    if (dtype != DT_I32 && dtype != DT_I64) return invalid(l, "results of type %s", dtype_name(dtype));
    const Dim *dims[] = {x->dims[0], dim_const(l->dims, samples)};
    Draws d = {dims, 2, base_from(l, n), DT_F64};
    Node *host = host_node(l, n, host_multinomial, (Value *const[]){x, unit(l, &d, 0, false)}, 2);
    return host ? out(l, n, 0, host_result(l, host, dtype, 2, dims)) : l->error;
}

const OpRow ops_random[] = {
    {"", "Bernoulli", 15, 0, lower_bernoulli, NULL, OP_RANDOM},
    {"", "Multinomial", 7, 0, lower_multinomial, host_multinomial, OP_RANDOM},
    {"", "RandomNormal", 1, 0, lower_normal, NULL, OP_RANDOM},
    {"", "RandomNormalLike", 1, 0, lower_normal, NULL, OP_RANDOM},
    {"", "RandomUniform", 1, 0, lower_uniform, NULL, OP_RANDOM},
    {"", "RandomUniformLike", 1, 0, lower_uniform, NULL, OP_RANDOM},
    {0},
};
