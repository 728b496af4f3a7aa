/* SPDX-License-Identifier: Apache-2.0 */
/* Reductions. Sums and products of floats of every width accumulate in double. */
#include "graph/eval/eval_kernels.h"

#include <math.h>
#include <stdlib.h>

static Status reduced_dims(const Eval *e, bool reduced[MAX_RANK], int64_t *dims) {
    const Tensor *in = e->inputs[0];
    int count;
    const int64_t *axes = attr_ints(e->node, "axes", &count);
    memset(reduced, 0, MAX_RANK * sizeof *reduced);
    for (int i = 0; i < count; i++) {
        if (axes[i] < 0 || axes[i] >= in->rank)
            return status_error(STATUS_INVALID, "axis %lld of rank %d", (long long)axes[i], in->rank);
        reduced[axes[i]] = true;
    }
    for (int i = 0; i < in->rank; i++) dims[i] = reduced[i] ? 1 : in->dims[i];
    return NULL;
}

/* The neutral element: what an empty reduction gives. */
static Lane identity(Prim prim, DType dtype) {
    LaneClass klass = lane_class(dtype);
    int bits = dtype == DT_BOOL ? 1 : dtype_file_bits(dtype);
    bool highest = prim == PRIM_REDUCE_MIN;
    if (prim == PRIM_REDUCE_SUM) return (Lane){.u = 0}; /* also 0.0 */
    if (prim == PRIM_REDUCE_PROD) return klass == LANE_FLOAT ? (Lane){.f = 1} : (Lane){.u = 1};
    if (klass == LANE_FLOAT) return (Lane){.f = highest ? INFINITY : -INFINITY};
    if (klass == LANE_UNSIGNED) return (Lane){.u = highest ? UINT64_MAX >> (64 - bits) : 0};
    int64_t most = (int64_t)(UINT64_MAX >> 1 >> (64 - bits));
    return (Lane){.i = highest ? most : -most - 1};
}

/* Folds a run of lanes into sums, `stride` apart; stride 0 is the inner reduction. */
#define FOLD(member, type, expression)                                                                                 \
    do {                                                                                                               \
        if (stride == 0) {                                                                                             \
            type acc = sums[0].member;                                                                                 \
            for (int64_t k = 0; k < count; k++) {                                                                      \
                type x = lanes[k].member;                                                                              \
                acc = (expression);                                                                                    \
            }                                                                                                          \
            sums[0].member = acc;                                                                                      \
        } else {                                                                                                       \
            for (int64_t k = 0; k < count; k++) {                                                                      \
                type x = lanes[k].member, acc = sums[k * stride].member;                                               \
                sums[k * stride].member = (expression);                                                                \
            }                                                                                                          \
        }                                                                                                              \
    } while (0)
#define FOLD_EXTREME(member, type)                                                                                     \
    do {                                                                                                               \
        if (prim == PRIM_REDUCE_MAX)                                                                                   \
            FOLD(member, type, x > acc ? x : acc);                                                                     \
        else                                                                                                           \
            FOLD(member, type, x < acc ? x : acc);                                                                     \
    } while (0)

static void fold(Prim prim, LaneClass klass, const Lane *lanes, Lane *sums, int64_t stride, int64_t count) {
    if (prim == PRIM_REDUCE_SUM && klass == LANE_FLOAT)
        FOLD(f, double, acc + x);
    else if (prim == PRIM_REDUCE_SUM)
        FOLD(u, uint64_t, acc + x);
    else if (prim == PRIM_REDUCE_PROD && klass == LANE_FLOAT)
        FOLD(f, double, acc *x);
    else if (prim == PRIM_REDUCE_PROD)
        FOLD(u, uint64_t, acc * x);
    else if (klass == LANE_SIGNED)
        FOLD_EXTREME(i, int64_t);
    else if (klass == LANE_UNSIGNED)
        FOLD_EXTREME(u, uint64_t);
    else if (prim == PRIM_REDUCE_MAX)
        FOLD(f, double, x > acc || isnan(x) ? x : acc);
    else
        FOLD(f, double, x < acc || isnan(x) ? x : acc);
}

static void fold_tensor(const Eval *e, const bool *reduced, Lane *sums) {
    const Tensor *in = e->inputs[0];
    LaneClass klass = lane_class(in->dtype);
    Walk w = {.operands = 2, .rank = in->rank};
    memcpy(w.dims, in->dims, sizeof w.dims);
    dense_strides(in->rank, in->dims, w.strides[0]);
    dense_strides(in->rank, e->out->dims, w.strides[1]);
    for (int i = 0; i < in->rank; i++)
        if (reduced[i]) w.strides[1][i] = 0;
    Lane lanes[LANES];
    for (bool more = walk_begin(&w); more; more = walk_next(&w)) {
        for (int64_t at = 0; at < w.length; at += LANES) {
            int64_t count = w.length - at < LANES ? w.length - at : LANES;
            lanes_load(lanes, in->dtype, in->data, w.offsets[0] + at * w.step[0], w.step[0], count);
            fold(e->node->prim, klass, lanes, sums + w.offsets[1] + at * w.step[1], w.step[1], count);
        }
    }
}

static Status reduce(Eval *e) {
    bool reduced[MAX_RANK];
    int64_t dims[MAX_RANK];
    DType dtype = e->inputs[0]->dtype;
    TRY(reduced_dims(e, reduced, dims));
    TRY(eval_output(e, dtype, e->inputs[0]->rank, dims));
    int64_t count = tensor_count(e->out);
    Lane *sums = calloc(count > 0 ? (size_t)count : 1, sizeof *sums);
    if (!sums) return status_out_of_memory();
    Lane start = identity(e->node->prim, dtype);
    for (int64_t i = 0; i < count; i++) sums[i] = start;
    fold_tensor(e, reduced, sums);
    lanes_store(sums, lane_class(dtype), dtype, false, e->out->data, 0, count);
    free(sums);
    return NULL;
}

/* ---- argmax, argmin ---- */

#define BEST(member, better)                                                                                           \
    for (int64_t k = 0; k < count; k++)                                                                                \
        if ((at + k == 0) || (better)) best = lanes[k], where = at + k

typedef struct ArgRule {
    bool least, last;
} ArgRule;

/* NaN beats every number, and another NaN only by coming last. */
static bool beats(ArgRule rule, double x, double best) {
    if (isnan(best)) return rule.last && isnan(x);
    if (isnan(x) || (rule.last && x == best)) return true;
    return rule.least ? x < best : x > best;
}

static int64_t arg_of_line(ArgRule rule, const Tensor *in, int64_t offset, int64_t stride, int64_t length) {
    Lane lanes[LANES], best = {0};
    int64_t where = 0;
    for (int64_t at = 0; at < length; at += LANES) {
        int64_t count = length - at < LANES ? length - at : LANES;
        lanes_load(lanes, in->dtype, in->data, offset + at * stride, stride, count);
        switch (lane_class(in->dtype)) {
        case LANE_FLOAT: BEST(f, beats(rule, lanes[k].f, best.f)); break;
        case LANE_SIGNED:
            BEST(i, (rule.last && lanes[k].i == best.i) || (rule.least ? lanes[k].i < best.i : lanes[k].i > best.i));
            break;
        case LANE_UNSIGNED:
            BEST(u, (rule.last && lanes[k].u == best.u) || (rule.least ? lanes[k].u < best.u : lanes[k].u > best.u));
            break;
        }
    }
    return where;
}

static Status reduce_to_index(Eval *e) {
    const Tensor *in = e->inputs[0];
    bool reduced[MAX_RANK];
    int64_t dims[MAX_RANK], outer = 1, inner = 1;
    int axes;
    const int64_t *axis = attr_ints(e->node, "axes", &axes);
    TRY(reduced_dims(e, reduced, dims));
    if (axes != 1) return status_error(STATUS_INVALID, "%d axes, not one", axes);
    TRY(eval_output(e, DT_I64, in->rank, dims));
    if (tensor_count(e->out) == 0) return NULL;
    int64_t length = in->dims[*axis];
    if (length == 0) return status_error(STATUS_INVALID, "axis %lld is empty", (long long)*axis);
    for (int i = 0; i < in->rank; i++) *(i < *axis ? &outer : &inner) *= i == *axis ? 1 : in->dims[i];
    ArgRule rule = {e->node->prim == PRIM_ARGMIN, attr_int(e->node, "last", 0) != 0};
    int64_t *out = e->out->data;
    for (int64_t o = 0; o < outer; o++)
        for (int64_t i = 0; i < inner; i++)
            out[o * inner + i] = arg_of_line(rule, in, o * length * inner + i, inner, length);
    return NULL;
}

Status eval_reduce(Eval *e) {
    if (!prim_accepts(e->node->prim, e->inputs[0]->dtype))
        return status_error(STATUS_INVALID, "not defined on %s", dtype_name(e->inputs[0]->dtype));
    bool index = e->node->prim == PRIM_ARGMAX || e->node->prim == PRIM_ARGMIN;
    return index ? reduce_to_index(e) : reduce(e);
}
