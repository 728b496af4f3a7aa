/* SPDX-License-Identifier: Apache-2.0 */
#include "../base/share.h"
#include "random_graph.h"
#include "rounding.h"

#include <math.h>
#include <stdlib.h>

#include "graph/eval/eval.h"
#include "lowering/anchor/anchor_eval.h"

/* --- numbers --------------------------------------------------------------------------------------------- */
/* Steele, Lea, Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014 (SplitMix64). */
static uint64_t next_random(uint64_t *state) {
    uint64_t z = *state += 0x9E3779B97F4A7C15u;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
}

static int below(uint64_t *state, int count) { return (int)(next_random(state) % (uint64_t)count); }

/* --- what is known of a value ---------------------------------------------------------------------------- */
/* Exact values (error 0) are multiples of `step`, or anything when step is 0. */
typedef struct Known {
    Value *value;
    double bound; /* of the magnitude; infinite: may hold NaN and infinities */
    double error;
    double step;
} Known;

enum {
    LARGEST_SYMBOL = 40,
    LARGEST_OF_LARGE = 4099,
    MOST_ELEMENTS = 40000,
    MOST_OF_LARGE = 500000,
    SYMBOLS = 4,
    MOST_RANK = 5
};
/* "u" is 1 or what n is, so that expands from it to n are resolved at run time. */
static const char *const symbol_names[SYMBOLS] = {"n", "s", "k", "u"};

typedef struct Maker {
    uint64_t state;
    RandomOptions options;
    Graph *graph;
    Arena *arena;
    DimTable *dims;
    int64_t *largest; /* symbol values */
    VEC(Known) known;
    RandomGraph *made;
    VEC(double) low;
    VEC(double) high;
} Maker;

static int pick(Maker *m, int count) {
    if (!m->options.choice_count) return below(&m->state, count);
    m->options.choice_count--;
    return *m->options.choices++ % count;
}
static bool chance(Maker *m, int percent) { return pick(m, 100) < percent; }

/* Relative error of one step, in unit roundoffs: f16 and bf16 are rounded when stored, on one side or on both; in f32 and
 * f64 a function is computed in several steps. */
static double unit_error(DType t) {
    if (!dtype_is_float(t)) return 0;
    return (rounding_work_type(t) == t ? 10 : 2) * rounding_unit(t);
}

static double mantissa(DType t) {
    return t == DT_F64 ? 9007199254740992.0 : t == DT_F16 ? 2048 : t == DT_BF16 ? 256 : 16777216;
}

static double integer_bound(DType t) { return t == DT_BOOL ? 1 : ldexp(1, (int)dtype_size(t) * 8); }

static bool is_exact(const Known *k) { return k->error == 0; }

/* A float result that may be large or far off says little, so such steps are not taken. */
static bool worth_it(DType t, double bound, double error) {
    if (!dtype_is_float(t)) return true;
    double most = t == DT_F16 || t == DT_BF16 ? 2000 : 1e5;
    return bound <= most && error <= 0.05 && error <= 0.05 * (bound > 1 ? bound : 1);
}

/* The error of a float result that is computed exactly apart from rounding: none when all its values have a mantissa
 * that is short enough. */
static double rounding(DType t, double bound, double step) {
    return step > 0 && bound / step <= mantissa(t) ? 0 : unit_error(t) * bound;
}

static const Dim *constant_dim(Maker *m, int64_t size) { return dim_const(m->dims, size); }

static double largest_count(const Maker *m, const Dim *const *dims, int rank) {
    double count = 1;
    for (int d = 0; d < rank; d++) count *= (double)dim_eval(dims[d], m->largest);
    return count;
}

static bool small_enough(const Maker *m, const Dim *const *dims, int rank) {
    for (int d = 0; d < rank; d++)
        if (dim_eval(dims[d], m->largest) < 0) return false;
    return rank <= MOST_RANK && largest_count(m, dims, rank) <= (m->options.large ? MOST_OF_LARGE : MOST_ELEMENTS);
}

static Known *remember(Maker *m, Value *value, double bound, double error, double step) {
    if (value->rank == 0 && value->constant) step = 0;
    VEC_PUSH(m->arena, m->known, (Known){value, bound, error, step});
    return &m->known.items[m->known.count - 1];
}

static const Dim *random_dim(Maker *m) {
    static const int sizes[] = {1, 1, 2, 3, 4, 5, 7, 8, 16, 17, 24, 33, 64};
    if (!m->options.no_symbols && chance(m, 40)) return dim_symbol(m->dims, symbol_names[pick(m, SYMBOLS)]);
    return constant_dim(m, sizes[pick(m, sizeof sizes / sizeof *sizes)]);
}

static DType random_dtype(Maker *m) {
    static const DType types[] = {DT_F32, DT_F32, DT_F32, DT_F32, DT_F32,  DT_F32, DT_F64, DT_F16, DT_BF16, DT_I32,
                                  DT_I64, DT_I64, DT_U8,  DT_I8,  DT_BOOL, DT_U32, DT_I16, DT_U64, DT_U16};
    return types[pick(m, sizeof types / sizeof *types)];
}

/* --- tensors --------------------------------------------------------------------------------------------- */
/* Multiples of 1/8 in the range; integers of a range above 2^31 take all bits. */
static void fill_random(Tensor *t, uint64_t *state, double low, double high) {
    int64_t count = tensor_count(t);
    for (int64_t i = 0; i < count; i++) {
        if (t->dtype == DT_BOOL)
            ((uint8_t *)t->data)[i] = next_random(state) & 1;
        else if (isinf(high))
            dtype_store_int(t->dtype, t->data, i, (int64_t)next_random(state));
        else if (dtype_is_float(t->dtype))
            dtype_store_double(t->dtype, t->data, i, low + below(state, (int)((high - low) * 8) + 1) / 8.0);
        else
            dtype_store_int(t->dtype, t->data, i, (int64_t)low + below(state, (int)(high - low) + 1));
    }
}

typedef struct Range {
    double low, high, bound;
} Range;

static Range random_range(Maker *m, DType t) {
    if (t == DT_BOOL) return (Range){0, 1, 1};
    if (dtype_is_float(t)) {
        double high = chance(m, 50) ? 1 : 4;
        return (Range){-high, high, high};
    }
    if (chance(m, 40)) return (Range){0, INFINITY, integer_bound(t)};
    return (Range){dtype_class(t) == DTYPE_SIGNED ? -9 : 0, 9, 9};
}

static Known *add_input(Maker *m, DType dtype, int rank, const Dim *const *dims) {
    Range range = random_range(m, dtype);
    Value *v = graph_add_input(m->graph, NULL, dtype, rank, dims);
    VEC_PUSH(m->arena, m->low, range.low);
    VEC_PUSH(m->arena, m->high, range.high);
    return remember(m, v, range.bound, 0, 0.125);
}

static Value *constant_of(Maker *m, DType dtype, int rank, const int64_t *dims, double low, double high) {
    Tensor *t = tensor_new(m->arena, dtype, rank, dims);
    fill_random(t, &m->state, low, high);
    return graph_add_constant(m->graph, NULL, t);
}

static Value *scalar_constant(Maker *m, DType dtype, double value) {
    return graph_add_constant(m->graph, NULL,
                              dtype_is_float(dtype) ? tensor_scalar_double(m->arena, dtype, value)
                                                    : tensor_scalar_int(m->arena, dtype, (int64_t)value));
}

/* --- nodes ----------------------------------------------------------------------------------------------- */
static Value *add_node(Maker *m, Prim prim, Value *const *inputs, int count, DType dtype, int rank,
                       const Dim *const *dims) {
    Node *node = graph_add_prim(m->graph, NULL, prim, inputs, count);
    return node_add_output(node, NULL, dtype, rank, dims);
}

static Value *unary_node(Maker *m, Prim prim, Value *x) {
    return add_node(m, prim, &x, 1, prim_info(prim)->klass == PRIM_CLASS_TEST ? DT_BOOL : x->dtype, x->rank, x->dims);
}

/* The numpy shape of two values whose dims are equal or 1; false when they do not fit. */
static bool broadcast_shape(const Value *a, const Value *b, int *out_rank, const Dim **out_dims) {
    int rank = a->rank > b->rank ? a->rank : b->rank;
    for (int i = 0; i < rank; i++) {
        int ia = i - (rank - a->rank), ib = i - (rank - b->rank);
        const Dim *da = ia < 0 ? NULL : a->dims[ia], *db = ib < 0 ? NULL : b->dims[ib];
        if (da && db && da != db && !dim_equals(da, 1) && !dim_equals(db, 1)) return false;
        out_dims[i] = !da || (db && dim_equals(da, 1)) ? db : da;
    }
    *out_rank = rank;
    return true;
}

static Value *binary_node(Maker *m, Prim prim, Value *a, Value *b) {
    int rank = 0;
    const Dim *dims[MAX_RANK];
    broadcast_shape(a, b, &rank, dims);
    DType dtype = prim_info(prim)->klass == PRIM_CLASS_COMPARE ? DT_BOOL : a->dtype;
    return add_node(m, prim, (Value *[]){a, b}, 2, dtype, rank, dims);
}

static Value *reduce_node(Maker *m, Prim prim, Value *x, const int64_t *axes, int count) {
    const Dim *dims[MAX_RANK];
    for (int d = 0; d < x->rank; d++) dims[d] = x->dims[d];
    for (int i = 0; i < count; i++) dims[axes[i]] = constant_dim(m, 1);
    bool index = prim == PRIM_ARGMAX || prim == PRIM_ARGMIN;
    Value *y = add_node(m, prim, &x, 1, index ? DT_I64 : x->dtype, x->rank, dims);
    node_set_ints(y->producer, "axes", axes, count);
    return y;
}

/* Recent values are taken more often, so that chains grow. */
static Known any_value(Maker *m) {
    int count = m->known.count, recent = count < 6 ? count : 6;
    return m->known.items[chance(m, 60) ? count - 1 - pick(m, recent) : pick(m, count)];
}

static bool any_float(Maker *m, Known *out) {
    for (int tries = 0; tries < 12; tries++) {
        *out = any_value(m);
        if (dtype_is_float(out->value->dtype) && isfinite(out->bound)) return true;
    }
    return false;
}

/* A second operand of the same type that broadcasts with the first; a constant or a new input when there is none. */
static Known partner(Maker *m, const Known *a) {
    int rank;
    const Dim *dims[MAX_RANK];
    DType dtype = a->value->dtype;
    for (int tries = 0; tries < 20; tries++) {
        Known b = any_value(m);
        if (b.value->dtype == dtype && broadcast_shape(a->value, b.value, &rank, dims) && small_enough(m, dims, rank))
            return b;
    }
    Range range = random_range(m, dtype);
    if (a->value->rank && chance(m, 50)) { /* along the trailing axes, some of them 1 */
        int from = pick(m, a->value->rank);
        for (int d = from; d < a->value->rank; d++)
            dims[d - from] = chance(m, 30) ? constant_dim(m, 1) : a->value->dims[d];
        return *add_input(m, dtype, a->value->rank - from, dims);
    }
    Value *v = constant_of(m, dtype, 0, NULL, range.low, range.high);
    return (Known){v, range.bound, 0, 0.125};
}

/* --- elementwise ----------------------------------------------------------------------------------------- */
static bool add_exact_unary(Maker *m) {
    static const Prim prims[] = {PRIM_NEG,   PRIM_ABS,   PRIM_SIGN, PRIM_FLOOR, PRIM_CEIL,
                                 PRIM_ROUND, PRIM_TRUNC, PRIM_NOT,  PRIM_ISNAN, PRIM_ISINF};
    Prim prim = prims[pick(m, sizeof prims / sizeof *prims)];
    Known x = any_value(m);
    if (!prim_accepts(prim, x.value->dtype)) return false;
    bool jumps = prim != PRIM_NEG && prim != PRIM_ABS;
    if (jumps && !is_exact(&x)) return false;
    Value *y = unary_node(m, prim, x.value);
    double bound = y->dtype == DT_BOOL ? 1 : dtype_is_float(y->dtype) ? x.bound : integer_bound(y->dtype);
    if (prim == PRIM_SIGN && isfinite(x.bound)) bound = 1;
    remember(m, y, bound, x.error, x.step);
    return true;
}

typedef struct Smooth {
    Prim prim;
    double domain; /* largest magnitude taken */
    double slope;  /* largest derivative; 0: that of exp at the bound */
    double bound;  /* of the result; 0: that of exp, negative: the argument's own */
} Smooth;

static bool add_smooth_unary(Maker *m) {
    static const Smooth table[] = {
        {PRIM_EXP, 5, 0, 0},          {PRIM_EXPM1, 5, 0, 0},     {PRIM_SINH, 5, 0, 0},     {PRIM_COSH, 5, 0, 0},
        {PRIM_SIN, 100, 1, 1},        {PRIM_COS, 100, 1, 1},     {PRIM_TANH, 1e4, 1, 1},   {PRIM_ERF, 1e4, 1.13, 1},
        {PRIM_SIGMOID, 1e4, 0.25, 1}, {PRIM_ATAN, 1e4, 1, 1.58}, {PRIM_ASINH, 1e4, 1, -1}, {PRIM_TAN, 1, 3.5, 1.6},
    };
    const Smooth *s = &table[pick(m, sizeof table / sizeof *table)];
    Known x;
    if (!any_float(m, &x) || x.bound > s->domain) return false;
    DType t = x.value->dtype;
    double bound = s->bound > 0 ? s->bound : s->bound < 0 ? x.bound : exp(x.bound);
    double slope = s->slope > 0 ? s->slope : exp(x.bound);
    double error = slope * x.error + 2 * unit_error(t) * bound;
    if (!worth_it(t, bound, error)) return false;
    remember(m, unary_node(m, s->prim, x.value), bound, error, 0);
    return true;
}

/* |x| + 1/2, where logarithms, roots and quotients are smooth. */
static Known positive(Maker *m, const Known *x) {
    Value *p = binary_node(m, PRIM_ADD, unary_node(m, PRIM_ABS, x->value), scalar_constant(m, x->value->dtype, 0.5));
    double bound = x->bound + 0.5;
    return (Known){p, bound, x->error + unit_error(x->value->dtype) * bound, 0};
}

static bool add_positive(Maker *m) {
    Known x;
    if (!any_float(m, &x) || !worth_it(x.value->dtype, x.bound + 1, 4 * x.error)) return false;
    DType t = x.value->dtype;
    Known p = positive(m, &x), other;
    double eps = 2 * unit_error(t);
    switch (pick(m, 7)) {
    case 0: remember(m, unary_node(m, PRIM_SQRT, p.value), sqrt(p.bound), p.error + eps * sqrt(p.bound), 0); break;
    case 1: {
        double bound = fmax(0.7, log(p.bound));
        remember(m, unary_node(m, PRIM_LOG, p.value), bound, 2 * p.error + eps * bound, 0);
        break;
    }
    case 2: remember(m, unary_node(m, PRIM_LOG1P, p.value), log1p(p.bound), p.error + eps * log1p(p.bound), 0); break;
    case 3: remember(m, unary_node(m, PRIM_RECIPROCAL, p.value), 2, 4 * p.error + 2 * eps, 0); break;
    case 4: {
        Value *y = binary_node(m, PRIM_POW, p.value, scalar_constant(m, t, 1.5));
        double bound = pow(p.bound, 1.5), error = 1.5 * sqrt(p.bound) * p.error + 2 * eps * bound;
        if (worth_it(t, bound, error)) remember(m, y, bound, error, 0);
        break;
    }
    case 5: {
        Value *y = unary_node(m, PRIM_ACOSH, binary_node(m, PRIM_ADD, p.value, scalar_constant(m, t, 1)));
        double bound = acosh(p.bound + 1);
        remember(m, y, bound, p.error + eps * (bound + p.bound), 0);
        break;
    }
    default:
        other = partner(m, &p);
        if (isfinite(other.bound) && worth_it(t, 2 * other.bound, 2 * other.error + 4 * other.bound * p.error))
            remember(m, binary_node(m, PRIM_DIV, other.value, p.value), 2 * other.bound,
                     2 * other.error + 4 * other.bound * p.error + eps * 2 * other.bound, 0);
    }
    return true;
}

/* asin, acos, atanh of tanh(x) / 2. */
static bool add_inverse(Maker *m) {
    static const Prim prims[] = {PRIM_ASIN, PRIM_ACOS, PRIM_ATANH};
    Known x;
    if (!any_float(m, &x)) return false;
    DType t = x.value->dtype;
    Value *half = binary_node(m, PRIM_MUL, unary_node(m, PRIM_TANH, x.value), scalar_constant(m, t, 0.5));
    remember(m, unary_node(m, prims[pick(m, 3)], half), 2.2, 1.4 * (x.error + 2 * unit_error(t)) + 5 * unit_error(t),
             0);
    return true;
}

static double product_error(const Known *a, const Known *b) {
    return a->error * b->bound + b->error * a->bound + a->error * b->error;
}

static bool add_float_binary(Maker *m, const Known *a, const Known *b) {
    static const Prim prims[] = {PRIM_ADD, PRIM_SUB, PRIM_MUL, PRIM_ADD, PRIM_MUL, PRIM_MIN, PRIM_MAX};
    Prim prim = prims[pick(m, sizeof prims / sizeof *prims)];
    DType t = a->value->dtype;
    bool known_steps = is_exact(a) && is_exact(b) && a->step > 0 && b->step > 0;
    double bound, error, step = 0;
    if (prim == PRIM_MIN || prim == PRIM_MAX) {
        bound = fmax(a->bound, b->bound);
        error = fmax(a->error, b->error);
        step = known_steps ? fmin(a->step, b->step) : 0;
    } else {
        if (!isfinite(a->bound) || !isfinite(b->bound)) return false;
        bound = prim == PRIM_MUL ? a->bound * b->bound : a->bound + b->bound;
        step = !known_steps ? 0 : prim == PRIM_MUL ? a->step * b->step : fmin(a->step, b->step);
        error = prim == PRIM_MUL ? product_error(a, b) : a->error + b->error;
        error += known_steps ? rounding(t, bound, step) : unit_error(t) * bound;
        if (error > 0) step = 0;
        if (!worth_it(t, bound, error)) return false;
    }
    remember(m, binary_node(m, prim, a->value, b->value), bound, error, step);
    return true;
}

/* Sums of at most this magnitude do not wrap, so magnitudes stay known. */
static double wrapped(DType t, double bound) { return bound < integer_bound(t) / 4 ? bound : integer_bound(t); }

static bool add_integer_binary(Maker *m, const Known *a, const Known *b) {
    static const Prim prims[] = {PRIM_ADD, PRIM_SUB, PRIM_MUL, PRIM_DIV, PRIM_MOD, PRIM_FMOD, PRIM_MIN,
                                 PRIM_MAX, PRIM_AND, PRIM_OR,  PRIM_XOR, PRIM_SHL, PRIM_SHR,  PRIM_POW};
    Prim prim = prims[pick(m, sizeof prims / sizeof *prims)];
    DType t = a->value->dtype;
    if (!prim_accepts(prim, t)) return false;
    double bound = prim == PRIM_ADD || prim == PRIM_SUB   ? wrapped(t, a->bound + b->bound)
                   : prim == PRIM_MUL                     ? wrapped(t, a->bound * b->bound)
                   : prim == PRIM_MIN || prim == PRIM_MAX ? fmax(a->bound, b->bound)
                                                          : integer_bound(t);
    if (prim == PRIM_SUB && dtype_class(t) == DTYPE_UNSIGNED) bound = integer_bound(t);
    remember(m, binary_node(m, prim, a->value, b->value), bound, 0, 1);
    return true;
}

static bool add_binary(Maker *m) {
    Known a = any_value(m), b = partner(m, &a);
    if (chance(m, 50)) {
        Known swap = a;
        a = b, b = swap;
    }
    return dtype_is_float(a.value->dtype) ? add_float_binary(m, &a, &b) : add_integer_binary(m, &a, &b);
}

static bool add_compare(Maker *m) {
    static const Prim prims[] = {PRIM_EQ, PRIM_NE, PRIM_LT, PRIM_LE, PRIM_GT, PRIM_GE};
    Known a = any_value(m);
    if (!is_exact(&a)) return false;
    Known b = partner(m, &a);
    if (!is_exact(&b)) return false;
    remember(m, binary_node(m, prims[pick(m, 6)], a.value, b.value), 1, 0, 1);
    return true;
}

static bool add_where(Maker *m) {
    Known a = any_value(m), b = partner(m, &a), c = {0};
    int rank, all;
    const Dim *dims[MAX_RANK], *whole[MAX_RANK];
    if (!broadcast_shape(a.value, b.value, &rank, dims)) return false;
    for (int tries = 0; tries < 20 && !c.value; tries++) {
        Known k = any_value(m);
        Value like = {.rank = rank, .dims = dims};
        if (k.value->dtype == DT_BOOL && broadcast_shape(k.value, &like, &all, whole) && small_enough(m, whole, all))
            c = k;
    }
    if (!c.value) return false;
    Value *y = add_node(m, PRIM_WHERE, (Value *[]){c.value, a.value, b.value}, 3, a.value->dtype, all, whole);
    remember(m, y, fmax(a.bound, b.bound), fmax(a.error, b.error), a.step > 0 && b.step > 0 ? fmin(a.step, b.step) : 0);
    return true;
}

/* fmod and mod of floats by a constant. */
static bool add_remainder(Maker *m) {
    Known x;
    if (!any_float(m, &x) || !is_exact(&x) || x.step <= 0) return false;
    double divisor = (chance(m, 50) ? -1 : 1) * (0.5 + pick(m, 4));
    Value *y =
        binary_node(m, chance(m, 50) ? PRIM_MOD : PRIM_FMOD, x.value, scalar_constant(m, x.value->dtype, divisor));
    remember(m, y, fabs(divisor), 0, fmin(x.step, 0.5));
    return true;
}

static bool add_cast(Maker *m) {
    Known x = any_value(m);
    DType from = x.value->dtype, to = random_dtype(m);
    double error = x.error, bound = x.bound, step = x.step;
    if (dtype_is_float(from) && dtype_is_float(to)) {
        if (isfinite(bound)) {
            error += is_exact(&x) ? rounding(to, bound, step) : unit_error(to) * bound;
            if (!worth_it(to, bound, error)) return false;
            if (error > 0) step = 0;
        } else if (dtype_size(to) < dtype_size(from)) {
            return false;
        }
    } else if (dtype_is_float(from)) {
        if (!is_exact(&x)) return false;
        /* Integers of less than 32 bits have no saturating form that all machines share with NaN. */
        bound = to == DT_BOOL ? 1 : isfinite(bound) ? bound : integer_bound(to);
        if (dtype_class(to) == DTYPE_UNSIGNED || bound > integer_bound(to)) bound = integer_bound(to);
        step = 1;
    } else if (dtype_is_float(to)) {
        if (bound > (to == DT_BF16 ? 200 : 1000)) return false;
        step = 1;
    } else {
        bound = to == DT_BOOL                                                      ? 1
                : bound < integer_bound(to) / 4 && dtype_class(to) == DTYPE_SIGNED ? bound
                                                                                   : integer_bound(to);
        step = 1;
    }
    Value *y = add_node(m, PRIM_CAST, &x.value, 1, to, x.value->rank, x.value->dims);
    node_set_dtype(y->producer, "to", to);
    remember(m, y, bound, error, step);
    return true;
}

static bool add_bitcast(Maker *m) {
    static const DType pairs[][2] = {{DT_F32, DT_I32}, {DT_F32, DT_U32}, {DT_F64, DT_I64}, {DT_F16, DT_U16},
                                     {DT_I8, DT_U8},   {DT_U32, DT_I32}, {DT_BF16, DT_I16}};
    Known x = any_value(m);
    if (!is_exact(&x)) return false;
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        if (pairs[i][0] != x.value->dtype) continue;
        /* Which of 0 and -0 is the larger, and the bits of a NaN, are nobody's promise. */
        if (!isfinite(x.bound)) return false;
        if (dtype_is_float(pairs[i][0])) x.value = unary_node(m, PRIM_ABS, x.value);
        Value *y = add_node(m, PRIM_BITCAST, &x.value, 1, pairs[i][1], x.value->rank, x.value->dims);
        node_set_dtype(y->producer, "to", pairs[i][1]);
        remember(m, y, integer_bound(y->dtype), 0, 1);
        return true;
    }
    return false;
}

/* --- reductions ------------------------------------------------------------------------------------------ */
static int random_axes(Maker *m, int rank, int64_t *axes) {
    int count = 0;
    if (chance(m, 50)) {
        axes[0] = rank - 1;
        return 1;
    }
    for (int d = 0; d < rank; d++)
        if (chance(m, 50)) axes[count++] = d;
    if (!count) axes[count++] = pick(m, rank);
    return count;
}

static double reduced_count(const Maker *m, const Value *x, const int64_t *axes, int count) {
    double n = 1;
    for (int i = 0; i < count; i++) n *= (double)dim_eval(x->dims[axes[i]], m->largest);
    return n;
}

static bool add_reduce(Maker *m) {
    static const Prim prims[] = {PRIM_REDUCE_SUM,  PRIM_REDUCE_SUM, PRIM_REDUCE_MAX, PRIM_REDUCE_MIN,
                                 PRIM_REDUCE_PROD, PRIM_ARGMAX,     PRIM_ARGMIN};
    Prim prim = prims[pick(m, sizeof prims / sizeof *prims)];
    Known x = any_value(m);
    DType t = x.value->dtype;
    int64_t axes[MAX_RANK];
    if (!x.value->rank || !prim_accepts(prim, t)) return false;
    int count = random_axes(m, x.value->rank, axes);
    bool index = prim == PRIM_ARGMAX || prim == PRIM_ARGMIN, picks = prim == PRIM_REDUCE_MAX || prim == PRIM_REDUCE_MIN;
    if (index) {
        int64_t size;
        if (!is_exact(&x) || !dim_is_const(x.value->dims[axes[0]], &size) || size < 1) return false;
        Value *y = reduce_node(m, prim, x.value, axes, 1);
        if (chance(m, 50)) node_set_int(y->producer, "last", 1);
        remember(m, y, 64, 0, 1);
        return true;
    }
    double n = reduced_count(m, x.value, axes, count), bound = x.bound, error = x.error, step = x.step;
    if (!dtype_is_float(t)) {
        bound = picks ? integer_bound(t) : wrapped(t, prim == PRIM_REDUCE_SUM ? x.bound * n : integer_bound(t));
    } else if (picks) {
        bool may_be_empty = false;
        for (int i = 0; i < count; i++) {
            int64_t size;
            may_be_empty |= !dim_is_const(x.value->dims[axes[i]], &size) || size == 0;
        }
        if (may_be_empty && chance(m, 50)) bound = INFINITY;
    } else if (!isfinite(bound)) {
        return false;
    } else if (prim == PRIM_REDUCE_SUM) {
        bound = x.bound * n;
        /* Sums of f16 and bf16 are f32 inside; in any order the error grows with the count. */
        double inner = is_exact(&x) && step > 0 && bound / step <= mantissa(t == DT_F64 ? DT_F64 : DT_F32)
                           ? 0
                           : unit_error(t == DT_F64 ? DT_F64 : DT_F32) * bound * sqrt(n);
        error = x.error * n + inner + (dtype_size(t) == 2 ? rounding(t, bound, step) : 0);
    } else {
        bound = pow(fmax(x.bound, 1), n);
        if (n > 64 || bound > 1000) return false;
        error = n * bound * (x.error + unit_error(t));
    }
    if (dtype_is_float(t) && isfinite(bound) && !worth_it(t, bound, error)) return false;
    if (error > 0) step = 0;
    remember(m, reduce_node(m, prim, x.value, axes, count), bound, error, step);
    return true;
}

/* exp(x - max(x)) / sum(exp(x - max(x))) over the axes. */
static bool add_softmax(Maker *m) {
    Known x;
    if (!any_float(m, &x) || !x.value->rank || x.bound > 50) return false;
    DType t = x.value->dtype;
    int64_t axes[MAX_RANK];
    int count = random_axes(m, x.value->rank, axes);
    double error = 4 * x.error + unit_error(t) * (8 + 2 * x.bound);
    if (!worth_it(t, 1, error)) return false;
    Value *d = binary_node(m, PRIM_SUB, x.value, reduce_node(m, PRIM_REDUCE_MAX, x.value, axes, count));
    Value *e = unary_node(m, PRIM_EXP, d), *sum = reduce_node(m, PRIM_REDUCE_SUM, e, axes, count);
    if (chance(m, 30)) remember(m, d, 2 * x.bound, 2 * x.error + unit_error(t) * 2 * x.bound, 0);
    remember(m, binary_node(m, PRIM_DIV, e, sum), 1, error, 0);
    return true;
}

/* (x - mean) / sqrt(mean((x - mean)^2) + 1/2), the mean as sum times a constant or divided by one. */
static bool add_normalization(Maker *m) {
    Known x;
    int64_t axes[MAX_RANK], size = 1, total = 1;
    if (!any_float(m, &x) || !x.value->rank) return false;
    DType t = x.value->dtype;
    int count = random_axes(m, x.value->rank, axes);
    for (int i = 0; i < count; i++) {
        if (!dim_is_const(x.value->dims[axes[i]], &size)) return false;
        total *= size;
    }
    double bound = 3 * x.bound, scale = 2 + x.bound * x.bound;
    double error = 10 * scale * (x.error + 4 * unit_error(t) * fmax(1, x.bound));
    if (t == DT_F16 && x.bound * x.bound * (double)total > 10000) return false;
    if (!worth_it(t, bound, error)) return false;
    Value *by = scalar_constant(m, t, (double)total);
    Value *mean = binary_node(m, PRIM_DIV, reduce_node(m, PRIM_REDUCE_SUM, x.value, axes, count), by);
    Value *d = binary_node(m, PRIM_SUB, x.value, mean), *square = binary_node(m, PRIM_MUL, d, d);
    Value *variance = binary_node(m, PRIM_DIV, reduce_node(m, PRIM_REDUCE_SUM, square, axes, count), by);
    Value *root = unary_node(m, PRIM_SQRT, binary_node(m, PRIM_ADD, variance, scalar_constant(m, t, 0.5)));
    remember(m, binary_node(m, PRIM_DIV, d, root), bound, error, 0);
    return true;
}

/* --- movement -------------------------------------------------------------------------------------------- */
static void follow(Maker *m, const Known *x, Value *y) { remember(m, y, x->bound, x->error, x->step); }

static bool add_reshape(Maker *m) {
    Known x = any_value(m);
    const Value *v = x.value;
    const Dim *dims[MAX_RANK + 2];
    int rank = 0, at = v->rank ? pick(m, v->rank) : 0, how = pick(m, 4);
    for (int d = 0; d < v->rank; d++) {
        const Dim *quotient;
        if (how == 0 && d == at && d + 1 < v->rank) { /* merges two axes */
            dims[rank++] = dim_mul(m->dims, v->dims[d], v->dims[d + 1]);
            d++;
        } else if (how == 1 && d == at && !dim_equals(v->dims[d], 0)) { /* splits one */
            int by = 2 + pick(m, 3);
            bool splits = dim_divides(m->dims, v->dims[d], constant_dim(m, by), &quotient);
            if (splits) dims[rank++] = chance(m, 50) ? quotient : constant_dim(m, by);
            dims[rank] = !splits ? v->dims[d] : dims[rank - 1] == quotient ? constant_dim(m, by) : quotient;
            rank++;
        } else if (how == 2 && dim_equals(v->dims[d], 1)) { /* drops units */
        } else {
            if (how == 3 && d == at) dims[rank++] = constant_dim(m, 1);
            dims[rank++] = v->dims[d];
        }
    }
    if (how == 3 && !v->rank) dims[rank++] = constant_dim(m, 1);
    if (rank > MOST_RANK) return false;
    Value *y = add_node(m, PRIM_RESHAPE, &x.value, 1, v->dtype, rank, dims);
    node_set_dims(y->producer, "shape", dims, rank);
    follow(m, &x, y);
    return true;
}

static Value *permute_node(Maker *m, Value *x) {
    int64_t perm[MAX_RANK];
    const Dim *dims[MAX_RANK];
    for (int d = 0; d < x->rank; d++) perm[d] = d;
    for (int d = x->rank - 1; d > 0; d--) {
        int other = pick(m, d + 1);
        int64_t swap = perm[d];
        perm[d] = perm[other], perm[other] = swap;
    }
    for (int d = 0; d < x->rank; d++) dims[d] = x->dims[perm[d]];
    Value *y = add_node(m, PRIM_PERMUTE, &x, 1, x->dtype, x->rank, dims);
    node_set_ints(y->producer, "perm", perm, x->rank);
    return y;
}

static bool add_permute(Maker *m) {
    Known x = any_value(m);
    if (x.value->rank < 2) return false;
    follow(m, &x, permute_node(m, x.value));
    return true;
}

static bool add_expand(Maker *m) {
    Known x = any_value(m);
    const Dim *dims[MAX_RANK];
    bool any = false;
    for (int d = 0; d < x.value->rank; d++) {
        bool one = dim_equals(x.value->dims[d], 1);
        dims[d] = one ? random_dim(m) : x.value->dims[d];
        any |= one;
    }
    if (!any || !small_enough(m, dims, x.value->rank)) return false;
    Value *y = add_node(m, PRIM_EXPAND, &x.value, 1, x.value->dtype, x.value->rank, dims);
    node_set_dims(y->producer, "shape", dims, x.value->rank);
    follow(m, &x, y);
    return true;
}

/* What broadcasting makes of sizes u and n, of which nobody knows that they are equal. */
static bool add_resolve(Maker *m) {
    Known x = any_value(m);
    const Dim *n = dim_symbol(m->dims, "n"), *u = dim_symbol(m->dims, "u"), *dims[MAX_RANK];
    bool any = false;
    for (int tries = 0; tries < 30 && !any; tries++) {
        x = any_value(m);
        for (int d = 0; d < x.value->rank; d++) any |= x.value->dims[d] == u || x.value->dims[d] == n;
    }
    if (!any) return false;
    for (int d = 0; d < x.value->rank; d++) {
        const Dim *dim = x.value->dims[d];
        dims[d] = dim == u || dim == n ? dim_max(m->dims, u, n) : dim;
    }
    if (!small_enough(m, dims, x.value->rank)) return false;
    Value *y = add_node(m, PRIM_EXPAND, &x.value, 1, x.value->dtype, x.value->rank, dims);
    node_set_dims(y->producer, "shape", dims, x.value->rank);
    follow(m, &x, y);
    return true;
}

static bool add_slice(Maker *m) {
    Known x = any_value(m);
    const Dim *start[MAX_RANK], *size[MAX_RANK];
    int64_t step[MAX_RANK], n;
    if (!x.value->rank) return false;
    for (int d = 0; d < x.value->rank; d++) {
        const Dim *whole = x.value->dims[d];
        start[d] = constant_dim(m, 0);
        size[d] = whole;
        step[d] = 1;
        if (chance(m, 50)) continue;
        if (dim_is_const(whole, &n) && n > 0) {
            int64_t from = pick(m, (int)n);
            bool back = chance(m, 30);
            step[d] = back ? -1 - pick(m, 2) : 1 + pick(m, 2);
            int64_t most = back ? from / -step[d] + 1 : (n - 1 - from) / step[d] + 1;
            start[d] = constant_dim(m, from);
            size[d] = constant_dim(m, chance(m, 5) ? 0 : 1 + pick(m, (int)most));
        } else if (chance(m, 30)) { /* the axis backwards */
            start[d] = dim_sub(m->dims, whole, constant_dim(m, 1));
            step[d] = -1;
        } else {
            size[d] = dim_min(m->dims, whole, constant_dim(m, 1 + pick(m, 9)));
        }
    }
    Value *y = add_node(m, PRIM_SLICE, &x.value, 1, x.value->dtype, x.value->rank, size);
    node_set_dims(y->producer, "shape", size, x.value->rank);
    node_set_dims(y->producer, "start", start, x.value->rank);
    node_set_ints(y->producer, "step", step, x.value->rank);
    follow(m, &x, y);
    return true;
}

static bool add_pad(Maker *m) {
    Known x = any_value(m);
    const Dim *before[MAX_RANK], *after[MAX_RANK], *dims[MAX_RANK];
    if (!x.value->rank) return false;
    for (int d = 0; d < x.value->rank; d++) {
        int64_t size = 0, b = pick(m, 3), a = pick(m, 3);
        if (dim_is_const(x.value->dims[d], &size) && size > 4 && chance(m, 30)) b = -b, a = -a;
        before[d] = constant_dim(m, b);
        after[d] = chance(m, 10) && !m->options.no_symbols ? dim_symbol(m->dims, symbol_names[pick(m, SYMBOLS)])
                                                           : constant_dim(m, a);
        dims[d] = dim_add(m->dims, x.value->dims[d], dim_add(m->dims, before[d], after[d]));
    }
    if (!small_enough(m, dims, x.value->rank)) return false;
    Value *fill = scalar_constant(m, x.value->dtype, 1);
    Value *y = add_node(m, PRIM_PAD, (Value *[]){x.value, fill}, 2, x.value->dtype, x.value->rank, dims);
    node_set_dims(y->producer, "before", before, x.value->rank);
    node_set_dims(y->producer, "after", after, x.value->rank);
    remember(m, y, fmax(x.bound, 1), x.error, x.step);
    return true;
}

static bool add_concat(Maker *m) {
    Known x = any_value(m);
    int rank = x.value->rank, count = 1, wanted = 1 + pick(m, 3);
    if (!rank) return false;
    int axis = pick(m, rank);
    Value *inputs[4] = {x.value};
    const Dim *dims[MAX_RANK];
    for (int d = 0; d < rank; d++) dims[d] = x.value->dims[d];
    double bound = x.bound, error = x.error, step = x.step;
    for (int tries = 0; tries < 30 && count < wanted; tries++) {
        Known k = any_value(m);
        bool fits = k.value->dtype == x.value->dtype && k.value->rank == rank;
        for (int d = 0; fits && d < rank; d++) fits = d == axis || k.value->dims[d] == dims[d];
        if (!fits) continue;
        inputs[count++] = k.value;
        dims[axis] = dim_add(m->dims, dims[axis], k.value->dims[axis]);
        bound = fmax(bound, k.bound), error = fmax(error, k.error);
        step = step > 0 && k.step > 0 ? fmin(step, k.step) : 0;
    }
    if (!small_enough(m, dims, rank)) return false;
    Value *y = add_node(m, PRIM_CONCAT, inputs, count, x.value->dtype, rank, dims);
    node_set_int(y->producer, "axis", axis);
    remember(m, y, bound, error, step);
    return true;
}

static bool add_gather(Maker *m) {
    Known x = any_value(m);
    int64_t size, dims_of_indices[2];
    int rank = x.value->rank, axis = rank ? pick(m, rank) : 0, indices_rank = pick(m, 3);
    const Dim *dims[MAX_RANK];
    if (!rank || !dim_is_const(x.value->dims[axis], &size) || size < 1) return false;
    for (int d = 0; d < indices_rank; d++) dims_of_indices[d] = 1 + pick(m, 5);
    Value *indices =
        constant_of(m, chance(m, 50) ? DT_I64 : DT_I32, indices_rank, dims_of_indices, -(double)size, (double)size - 1);
    int n = 0;
    for (int d = 0; d < axis; d++) dims[n++] = x.value->dims[d];
    for (int d = 0; d < indices_rank; d++) dims[n++] = constant_dim(m, dims_of_indices[d]);
    for (int d = axis + 1; d < rank; d++) dims[n++] = x.value->dims[d];
    if (n > MOST_RANK || !small_enough(m, dims, n)) return false;
    Value *y = add_node(m, PRIM_GATHER, (Value *[]){x.value, indices}, 2, x.value->dtype, n, dims);
    node_set_int(y->producer, "axis", axis);
    follow(m, &x, y);
    return true;
}

static bool add_scatter(Maker *m) {
    Known x = any_value(m);
    int64_t dims[MAX_RANK], size;
    int rank = x.value->rank;
    if (!rank || rank > 3) return false;
    for (int d = 0; d < rank; d++)
        if (!dim_is_const(x.value->dims[d], &dims[d]) || dims[d] < 1) return false;
    int axis = pick(m, rank);
    size = dims[axis];
    dims[axis] = 1 + pick(m, (int)(size < 5 ? size : 5));
    bool gathers = chance(m, 50);
    Value *indices = constant_of(m, DT_I64, rank, dims, -(double)size, (double)size - 1);
    if (gathers) {
        Value *y =
            add_node(m, PRIM_GATHER_ELEMENTS, (Value *[]){x.value, indices}, 2, x.value->dtype, rank, indices->dims);
        node_set_int(y->producer, "axis", axis);
        follow(m, &x, y);
        return true;
    }
    Range range = random_range(m, x.value->dtype);
    Value *updates = constant_of(m, x.value->dtype, rank, dims, range.low, range.high);
    Value *y = add_node(m, PRIM_SCATTER_ELEMENTS, (Value *[]){x.value, indices, updates}, 3, x.value->dtype, rank,
                        x.value->dims);
    node_set_int(y->producer, "axis", axis);
    node_set_string(y->producer, "reduction", "none");
    remember(m, y, fmax(x.bound, range.bound), x.error, x.step);
    return true;
}

static bool add_generated(Maker *m) {
    const Dim *dims[MAX_RANK];
    int rank = 1 + pick(m, 3);
    for (int d = 0; d < rank; d++) dims[d] = random_dim(m);
    if (!small_enough(m, dims, rank)) return false;
    if (chance(m, 30)) {
        Value *seed = constant_of(m, DT_U64, 0, NULL, 0, INFINITY);
        Value *y = add_node(m, PRIM_PHILOX, &seed, 1, DT_U32, rank, dims);
        node_set_dims(y->producer, "shape", dims, rank);
        if (rank & 1) node_set_int(y->producer, "halves", 1);
        remember(m, y, integer_bound(DT_U32), 0, 1);
        return true;
    }
    static const DType types[] = {DT_I64, DT_I32, DT_F32, DT_F64, DT_U8, DT_I16};
    DType t = types[pick(m, 6)];
    Value *y = add_node(m, PRIM_IOTA, NULL, 0, t, rank, dims);
    node_set_dims(y->producer, "shape", dims, rank);
    node_set_int(y->producer, "axis", pick(m, rank));
    node_set_dtype(y->producer, "dtype", t);
    remember(m, y, 64, 0, 1);
    return true;
}

/* --- GEMM ------------------------------------------------------------------------------------------------ */
/* x [.., K] times a constant or new input [K, N], sometimes turned before and after, with what often follows one. */
static Known add_matmul_of(Maker *m, const Known *x, const Dim *depth, double k) {
    DType t = x->value->dtype;
    int64_t size, columns = 1 + pick(m, 40);
    Range range = dtype_is_float(t) ? (Range){-1, 1, 1} : (Range){dtype_class(t) == DTYPE_SIGNED ? -3 : 0, 3, 3};
    Value *w;
    if (dim_is_const(depth, &size) && chance(m, 60)) {
        bool turned = chance(m, 50);
        int64_t dims[2] = {turned ? columns : size, turned ? size : columns};
        w = constant_of(m, t, 2, dims, range.low, range.high);
        if (turned) {
            const Dim *back[2] = {depth, constant_dim(m, columns)};
            Value *y = add_node(m, PRIM_PERMUTE, &w, 1, t, 2, back);
            node_set_ints(y->producer, "perm", (int64_t[]){1, 0}, 2);
            w = y;
        }
    } else {
        const Dim *dims[2] = {depth, constant_dim(m, columns)};
        w = graph_add_input(m->graph, NULL, t, 2, dims);
        VEC_PUSH(m->arena, m->low, range.low);
        VEC_PUSH(m->arena, m->high, range.high);
    }
    const Dim *dims[MAX_RANK];
    for (int d = 0; d + 1 < x->value->rank; d++) dims[d] = x->value->dims[d];
    dims[x->value->rank - 1] = constant_dim(m, columns);
    Node *node = graph_add_node(m->graph, NULL, NODE_ANCHOR, "matmul", (Value *[]){x->value, w}, 2);
    Value *y = node_add_output(node, NULL, t, x->value->rank, dims);
    double bound = x->bound * k, step = is_exact(x) && x->step > 0 ? x->step * 0.125 : 0;
    double inner = step > 0 && bound / step <= mantissa(t == DT_F64 ? DT_F64 : DT_F32)
                       ? 0
                       : unit_error(t == DT_F64 ? DT_F64 : DT_F32) * bound * sqrt(k);
    double error = x->error * k + inner + (dtype_size(t) == 2 ? rounding(t, bound, step) : 0);
    if (!dtype_is_float(t)) return (Known){y, integer_bound(t), 0, 1};
    return (Known){y, bound, error, error > 0 ? 0 : step};
}

static void follow_matmul(Maker *m, Known *y) {
    DType t = y->value->dtype;
    if (chance(m, 60)) {
        int64_t columns = 1;
        dim_is_const(y->value->dims[y->value->rank - 1], &columns);
        Value *bias = constant_of(m, t, 1, &columns, dtype_is_float(t) ? -1 : 0, 1);
        double bound = y->bound + 1;
        y->error += dtype_is_float(t) ? unit_error(t) * bound : 0;
        y->value = binary_node(m, PRIM_ADD, y->value, bias);
        *y = (Known){y->value, dtype_is_float(t) ? bound : y->bound, y->error, 0};
    }
    if (!dtype_is_float(t)) return;
    Value *v = y->value;
    double eps = 3 * unit_error(t);
    switch (pick(m, 8)) {
    case 0: *y = (Known){binary_node(m, PRIM_MAX, v, scalar_constant(m, t, 0)), y->bound, y->error, y->step}; break;
    case 1:
        v = binary_node(m, PRIM_MIN, binary_node(m, PRIM_MAX, v, scalar_constant(m, t, 0)), scalar_constant(m, t, 6));
        *y = (Known){v, fmin(y->bound, 6), y->error, 0};
        break;
    case 2:
        *y = (Known){binary_node(m, PRIM_MUL, v, unary_node(m, PRIM_SIGMOID, v)), y->bound,
                     1.2 * y->error + eps * y->bound, 0};
        break;
    case 3: { /* x * clip(x / 6 + 1/2, 0, 1) */
        Value *gate = binary_node(m, PRIM_ADD, binary_node(m, PRIM_MUL, v, scalar_constant(m, t, 1.0 / 6)),
                                  scalar_constant(m, t, 0.5));
        gate = binary_node(m, PRIM_MIN, binary_node(m, PRIM_MAX, gate, scalar_constant(m, t, 0)),
                           scalar_constant(m, t, 1));
        *y = (Known){binary_node(m, PRIM_MUL, v, gate), y->bound,
                     (1.5 + y->bound / 6) * y->error + 2 * eps * y->bound * (1 + y->bound), 0};
        break;
    }
    case 4:
        v = binary_node(m, PRIM_ADD, binary_node(m, PRIM_MUL, v, scalar_constant(m, t, 0.25)),
                        scalar_constant(m, t, 1));
        *y = (Known){v, y->bound / 4 + 1, y->error + eps * (y->bound + 1), 0};
        break;
    case 5: *y = (Known){unary_node(m, PRIM_TANH, v), 1, y->error + eps, 0}; break;
    default: break;
    }
}

static bool add_matmul(Maker *m) {
    Known x = any_value(m);
    DType t = x.value->dtype;
    if (t == DT_BOOL || !isfinite(x.bound) || x.value->rank < 2 || (!dtype_is_float(t) && t != DT_I32 && t != DT_I64))
        return false;
    if (chance(m, 40)) x.value = permute_node(m, x.value);
    const Dim *depth = x.value->dims[x.value->rank - 1];
    double k = (double)dim_eval(depth, m->largest);
    if (!worth_it(t, x.bound * k * 3, x.error * k * 3) ||
        largest_count(m, x.value->dims, x.value->rank) * 40 / k > MOST_ELEMENTS)
        return false;
    Known y = add_matmul_of(m, &x, depth, k);
    follow_matmul(m, &y);
    remember(m, y.value, y.bound, y.error, y.step);
    if (chance(m, 30)) follow(m, &y, permute_node(m, y.value));
    return true;
}

/* --- a graph --------------------------------------------------------------------------------------------- */
typedef struct Step {
    bool (*add)(Maker *);
    int weight;
} Step;

static void add_step(Maker *m) {
    static const Step steps[] = {
        {add_binary, 24}, {add_smooth_unary, 10}, {add_exact_unary, 6},   {add_positive, 5}, {add_inverse, 1},
        {add_compare, 5}, {add_where, 6},         {add_remainder, 2},     {add_cast, 6},     {add_bitcast, 1},
        {add_reduce, 10}, {add_softmax, 4},       {add_normalization, 4}, {add_reshape, 6},  {add_permute, 6},
        {add_expand, 4},  {add_slice, 5},         {add_pad, 2},           {add_concat, 3},   {add_gather, 2},
        {add_scatter, 1}, {add_generated, 3},     {add_matmul, 6},        {add_resolve, 3},
    };
    int total = 0, chosen;
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) total += steps[i].weight;
    chosen = pick(m, total);
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
        if ((chosen -= steps[i].weight) >= 0) continue;
        if (steps[i].add != add_matmul || m->options.anchors) steps[i].add(m);
        return;
    }
}

static void add_first_inputs(Maker *m) {
    const Dim *dims[MAX_RANK];
    int count = 1 + pick(m, 4);
    for (int i = 0; i < count; i++) {
        int rank = i ? pick(m, MOST_RANK + 1) : 1 + pick(m, 4);
        if (i && m->known.items[0].value->rank && chance(m, 60)) { /* a shape that broadcasts with the first input's */
            const Value *first = m->known.items[0].value;
            rank = 1 + pick(m, first->rank);
            for (int d = 0; d < rank; d++)
                dims[d] = chance(m, 20) ? constant_dim(m, 1) : first->dims[first->rank - rank + d];
        } else {
            do {
                for (int d = 0; d < rank; d++) dims[d] = random_dim(m);
            } while (!small_enough(m, dims, rank));
        }
        add_input(m, i ? random_dtype(m) : DT_F32, rank, dims);
    }
}

static const Known *known_of(const Maker *m, const Value *v) {
    for (int i = m->known.count - 1; i >= 0; i--)
        if (m->known.items[i].value == v) return &m->known.items[i];
    return NULL;
}

static void add_outputs(Maker *m) {
    VEC(double) tolerance = {0};
    for (int i = 0; i < m->known.count; i++) {
        const Known *k = &m->known.items[i];
        bool input = !k->value->producer;
        if (input ? !chance(m, 3) : k->value->uses.count && !chance(m, 8)) continue;
        int times = chance(m, 3) ? 2 : 1;
        for (int t = 0; t < times; t++) {
            graph_add_output(m->graph, k->value);
            VEC_PUSH(m->arena, tolerance, k->error > 0 ? 4 * k->error : 0);
        }
    }
    if (!m->graph->outputs.count) {
        const Known *k = known_of(m, m->known.items[m->known.count - 1].value);
        graph_add_output(m->graph, k->value);
        VEC_PUSH(m->arena, tolerance, 4 * k->error);
    }
    m->made->tolerance = tolerance.items;
}

RandomGraph *random_graph(uint64_t seed, RandomOptions options) {
    Graph *graph = graph_create(0);
    Maker m = {.state = seed * 0x632BE59BD9B4E019u + 1,
               .options = options,
               .graph = graph,
               .arena = graph->arena,
               .dims = graph->dims};
    m.made = ARENA_NEW(graph->arena, RandomGraph);
    *m.made = (RandomGraph){.seed = seed, .options = options, .graph = graph};
    m.made->options.choices = NULL; /* the caller's, and used up */
    for (int i = 0; i < SYMBOLS; i++) dim_symbol(graph->dims, symbol_names[i]);
    m.largest = ARENA_ARRAY(graph->arena, int64_t, SYMBOLS);
    for (int i = 0; i < SYMBOLS; i++) m.largest[i] = options.large ? LARGEST_OF_LARGE : LARGEST_SYMBOL;
    add_first_inputs(&m);
    for (int i = 0; i < options.nodes; i++) add_step(&m);
    add_outputs(&m);
    /* Every symbol is some input's size, so that a run can bind it. */
    for (int i = 0; i < SYMBOLS && !options.no_symbols; i++) {
        const Dim *dim = dim_symbol(graph->dims, symbol_names[i]);
        graph_add_input(graph, NULL, DT_F32, 1, &dim);
        VEC_PUSH(m.arena, m.low, -1);
        VEC_PUSH(m.arena, m.high, 1);
    }
    m.made->low = m.low.items;
    m.made->high = m.high.items;
    return m.made;
}

int64_t *random_sizes(const RandomGraph *random, int round, Arena *arena) {
    static const int sizes[] = {7, 16, 1, 33, 40, 0, 3, 8};
    DimTable *dims = random->graph->dims;
    int count = dim_symbol_count(dims);
    uint64_t state = random->seed + (uint64_t)round * 7919;
    int64_t *symbols = ARENA_ARRAY(arena, int64_t, count + 1);
    for (int i = 0; i < count; i++) symbols[i] = UNBOUND_DIM;
    for (int i = 0; i < SYMBOLS; i++) {
        static const int large[] = {257, 1000, 4099, 640, 1, 2048, 3, 33};
        int64_t size = (random->options.large ? large : sizes)[below(&state, sizeof sizes / sizeof *sizes)];
        if (round == 0 && size == 0) size = 5;
        symbols[dim_symbol_index(dim_symbol(dims, symbol_names[i]))] = size;
    }
    int64_t n = symbols[dim_symbol_index(dim_symbol(dims, "n"))];
    symbols[dim_symbol_index(dim_symbol(dims, "u"))] = n && below(&state, 2) ? 1 : n;
    return symbols;
}

Tensor **random_inputs(const RandomGraph *random, int round, const int64_t *symbols, Arena *arena) {
    const Graph *graph = random->graph;
    Tensor **inputs = ARENA_ARRAY(arena, Tensor *, graph->inputs.count);
    uint64_t state = random->seed * 31 + (uint64_t)round;
    for (int i = 0; i < graph->inputs.count; i++) {
        const Value *v = graph->inputs.items[i];
        int64_t dims[MAX_RANK];
        for (int d = 0; d < v->rank; d++) dims[d] = dim_eval(v->dims[d], symbols);
        inputs[i] = tensor_new(arena, v->dtype, v->rank, dims);
        fill_random(inputs[i], &state, random->low[i], random->high[i]);
    }
    return inputs;
}

/* --- meaning --------------------------------------------------------------------------------------------- */
static Status evaluate_node(const Node *node, Tensor **inputs, const int64_t *symbols, Arena *arena, Tensor **outputs) {
    if (node->kind == NODE_PRIM) return eval_prim(node, inputs, symbols, arena, outputs);
    if (node->kind == NODE_ANCHOR) return eval_anchor(node, inputs, symbols, arena, outputs);
    if (node->kind == NODE_REGION) return evaluate_graph(node->subgraphs[0], inputs, symbols, arena, outputs);
    return status_error(STATUS_FAULT, "%s has no meaning here", node->op);
}

Status evaluate_graph(const Graph *graph, Tensor *const *inputs, const int64_t *symbols, Arena *arena,
                      Tensor **out_outputs) {
    Map tensors = map_make(arena);
    for (int i = 0; i < graph->inputs.count; i++)
        map_set_id(&tensors, MAP_POINTER_KEY(graph->inputs.items[i]), inputs[i]);
    FOR_EACH_NODE(node, graph) {
        Tensor **in = ARENA_ARRAY(arena, Tensor *, node->input_count + 1);
        Tensor **out = ARENA_ARRAY(arena, Tensor *, node->output_count + 1);
        for (int i = 0; i < node->input_count; i++) {
            const Value *v = node->inputs[i];
            if (v) in[i] = v->constant ? v->constant : map_get_id(&tensors, MAP_POINTER_KEY(v));
            if (!in[i]) return status_error(STATUS_FAULT, "%s: input %d has no value", node->op, i);
        }
        TRY(status_at(evaluate_node(node, in, symbols, arena, out), "%s", node->op));
        for (int o = 0; o < node->output_count; o++) map_set_id(&tensors, MAP_POINTER_KEY(node->outputs[o]), out[o]);
    }
    for (int o = 0; o < graph->outputs.count; o++) {
        const Value *v = graph->outputs.items[o];
        out_outputs[o] = v->constant ? v->constant : map_get_id(&tensors, MAP_POINTER_KEY(v));
        if (!out_outputs[o]) return status_error(STATUS_FAULT, "output %d has no value", o);
    }
    return NULL;
}

static bool close_enough(const Tensor *a, const Tensor *b, int64_t i, double tolerance) {
    size_t size = dtype_size(a->dtype);
    if (!dtype_is_float(a->dtype))
        return memcmp((char *)a->data + i * (int64_t)size, (char *)b->data + i * (int64_t)size, size) == 0;
    double x = dtype_load_double(a->dtype, a->data, i), y = dtype_load_double(b->dtype, b->data, i);
    if (isnan(x) || isnan(y)) return isnan(x) && isnan(y);
    return x == y || fabs(x - y) <= tolerance;
}

const char *tensor_difference(const Tensor *expected, const Tensor *got, double tolerance, Arena *arena) {
    if (expected->dtype != got->dtype)
        return arena_format(arena, "type %s, expected %s", dtype_name(got->dtype), dtype_name(expected->dtype));
    if (!tensor_same_shape(expected, got)) return "another shape";
    int64_t count = tensor_count(expected), wrong = 0, first = -1;
    for (int64_t i = 0; i < count; i++)
        if (!close_enough(expected, got, i, tolerance)) {
            if (first < 0) first = i;
            wrong++;
        }
    if (!wrong) return NULL;
    return arena_format(arena, "%lld of %lld elements differ, element %lld is %.9g, expected %.9g within %g",
                        (long long)wrong, (long long)count, (long long)first,
                        dtype_load_double(got->dtype, got->data, first),
                        dtype_load_double(expected->dtype, expected->data, first), tolerance);
}

const char *graph_text(const Graph *graph, Arena *arena) {
    Text text = text_make(arena);
    graph_print(&text, graph);
    return text.data;
}

void random_seeds(int count, uint64_t *out_first, uint64_t *out_last) {
    const char *one = getenv("ONNXFUSE_TEST_SEED"), *many = getenv("ONNXFUSE_TEST_SEEDS");
    *out_first = one ? strtoull(one, NULL, 10) : 1;
    *out_last = one ? *out_first : many ? strtoull(many, NULL, 10) : share_count((uint64_t)count);
}
