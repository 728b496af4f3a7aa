/* SPDX-License-Identifier: Apache-2.0 */
/* Runs every point of the kept axes, blocks of LANES along the LANE axis at once; in each, stage after stage over all
 * points of the reduced axes. Integers and bool are held as int64, wrapped after each operation. */
#include "kernel_eval.h"
#include "base/math/divide.h"
#include "graph/prim.h"

#include <math.h>
#include <stdlib.h>

enum { LANES = 256 };

typedef union Block {
    float f[LANES];
    double d[LANES];
    int64_t i[LANES];
} Block;

typedef struct Run {
    const Kernel *k;
    void *const *buffers;
    const int64_t *params;
    int64_t size[KERNEL_MAX_AXES], index[KERNEL_MAX_AXES];
    uint32_t reduced;
    int lane; /* the LANE axis, or -1 */
    int lanes;
    int64_t flat, reduced_count;                 /* row-major position in the reduced axes */
    Block *values, *best;                        /* best: of argmax, the value; values: the position */
    Block **kept;                                /* [instruction][reduced position] */
    double **sums;                               /* of columns: [instruction][element], then the terms' magnitudes */
    bool wide;                                   /* float sums and products in double: */
    double (*exact)[LANES], (*magnitude)[LANES]; /* [instruction] the result so far, the sum of the terms' magnitudes */
    uint64_t seed, draws;
} Run;

static bool is_reduced(const Run *r, int axis) { return r->reduced >> axis & 1; }
static bool is_signed(DType t) { return dtype_class(t) == DTYPE_SIGNED; }

static int64_t wrap(DType t, int64_t x) {
    int unused = 64 - (int)dtype_size(t) * 8;
    if (t == DT_BOOL) return x != 0;
    if (is_signed(t)) return (int64_t)((uint64_t)x << unused) >> unused;
    return (int64_t)((uint64_t)x << unused >> unused);
}

#define EACH for (int n = 0; n < lanes; n++)

/* ---- memory ---- */

static int64_t number(const Run *r, StrideKind kind, int64_t value) {
    switch (kind) {
    case STRIDE_ZERO: return 0;
    case STRIDE_ONE: return 1;
    case STRIDE_CONST: return value;
    default: return r->params[value];
    }
}

static int64_t address(const Run *r, const KernelAccess *a, int64_t *out_step) {
    int64_t at = number(r, a->offset_kind, a->offset);
    for (int i = 0; i < r->k->axis_count; i++) at += number(r, a->kind[i], a->stride[i]) * r->index[i];
    *out_step = r->lane < 0 ? 0 : number(r, a->kind[r->lane], a->stride[r->lane]);
    return at;
}

static void load(const Run *r, const KernelInst *inst, Block *to) {
    int64_t step, at = address(r, inst->access, &step);
    const void *data = r->buffers[inst->buffer];
    DType t = r->k->buffers.items[inst->buffer].dtype;
    int lanes = r->lanes;
    if (t == DT_F64)
        EACH to->d[n] = ((const double *)data)[at + n * step];
    else if (t == DT_F32)
        EACH to->f[n] = ((const float *)data)[at + n * step];
    else if (dtype_is_float(t))
        EACH to->f[n] = (float)dtype_load_double(t, data, at + n * step);
    else
        EACH to->i[n] = wrap(t, dtype_load_int(t, data, at + n * step));
}

static void store(const Run *r, const KernelInst *inst, const Block *from) {
    int64_t step, at = address(r, inst->access, &step);
    void *data = r->buffers[inst->buffer];
    DType t = r->k->buffers.items[inst->buffer].dtype;
    int lanes = r->lanes;
    if (t == DT_F64)
        EACH((double *)data)[at + n * step] = from->d[n];
    else if (t == DT_F32)
        EACH((float *)data)[at + n * step] = from->f[n];
    else if (t == DT_F16)
        EACH((uint16_t *)data)[at + n * step] = f32_to_f16(from->f[n]);
    else if (t == DT_BF16)
        EACH((uint16_t *)data)[at + n * step] = f32_to_bf16(from->f[n]);
    else
        EACH dtype_store_int(t, data, at + n * step, from->i[n]);
}

static void add_to_sum(const Run *r, int index, const Block *from) {
    const KernelInst *inst = &r->k->insts.items[index];
    int64_t step, at = address(r, inst->access, &step);
    double x = inst->dtype == DT_F64 ? from->d[0] : (double)from->f[0];
    r->sums[index][at] += x;
    r->sums[index][r->reduced_count + at] += fabs(x);
}

/* ---- operations ---- */

static int64_t divide(DType t, int64_t x, int64_t y) {
    if (y == 0) return 0;
    if (!is_signed(t)) return (int64_t)((uint64_t)x / (uint64_t)y);
    return y == -1 ? (int64_t)(0 - (uint64_t)x) : x / y;
}

static int64_t remainder_of(DType t, int64_t x, int64_t y) {
    if (y == 0 || (is_signed(t) && y == -1)) return 0;
    return is_signed(t) ? x % y : (int64_t)((uint64_t)x % (uint64_t)y);
}

static bool less(DType t, int64_t x, int64_t y) { return is_signed(t) ? x < y : (uint64_t)x < (uint64_t)y; }

static int64_t shift(KernelOp op, DType t, int64_t x, int64_t y) {
    uint64_t by = (uint64_t)y, width = dtype_size(t) * 8;
    if (op == K_SHL) return by < width ? (int64_t)((uint64_t)x << by) : 0;
    if (is_signed(t)) return x >> (by < width ? by : 63);
    return by < width ? (int64_t)((uint64_t)x >> by) : 0;
}

#define FLOAT_CASES(m, suffix)                                                                                         \
    case K_ADD: EACH to->m[n] = a->m[n] + b->m[n]; break;                                                              \
    case K_SUB: EACH to->m[n] = a->m[n] - b->m[n]; break;                                                              \
    case K_MUL: EACH to->m[n] = a->m[n] * b->m[n]; break;                                                              \
    case K_DIV: EACH to->m[n] = a->m[n] / b->m[n]; break;                                                              \
    case K_REM: EACH to->m[n] = fmod##suffix(a->m[n], b->m[n]); break;                                                 \
    case K_FMA: EACH to->m[n] = fma##suffix(a->m[n], b->m[n], c->m[n]); break;                                         \
    case K_SCALE: EACH to->m[n] = scale##suffix(a->m[n], b->m[n]); break;                                              \
    case K_NEG: EACH to->m[n] = -a->m[n]; break;                                                                       \
    case K_ABS: EACH to->m[n] = fabs##suffix(a->m[n]); break;                                                          \
    case K_MIN: EACH to->m[n] = a->m[n] < b->m[n] ? a->m[n] : b->m[n]; break;                                          \
    case K_MAX: EACH to->m[n] = a->m[n] > b->m[n] ? a->m[n] : b->m[n]; break;                                          \
    case K_SQRT: EACH to->m[n] = sqrt##suffix(a->m[n]); break;                                                         \
    case K_FLOOR: EACH to->m[n] = floor##suffix(a->m[n]); break;                                                       \
    case K_CEIL: EACH to->m[n] = ceil##suffix(a->m[n]); break;                                                         \
    case K_TRUNC: EACH to->m[n] = trunc##suffix(a->m[n]); break;                                                       \
    case K_RINT: EACH to->m[n] = rint##suffix(a->m[n]); break;                                                         \
    case K_SELECT: EACH to->m[n] = a->i[n] ? b->m[n] : c->m[n]; break;

static double scale(double a, double b) { return b == b ? scalbn(a, (int)b) : a; }
static float scalef(float a, float b) { return b == b ? scalbnf(a, (int)b) : a; }

static void float_op(KernelOp op, Block *to, const Block *a, const Block *b, const Block *c, int lanes) {
    switch (op) {
        FLOAT_CASES(f, f)
    case K_ROUND_F16: EACH to->f[n] = f16_to_f32(f32_to_f16(a->f[n])); break;
    case K_ROUND_BF16: EACH to->f[n] = bf16_to_f32(f32_to_bf16(a->f[n])); break;
    default: abort();
    }
}

static void double_op(KernelOp op, Block *to, const Block *a, const Block *b, const Block *c, int lanes) {
    switch (op) {
        FLOAT_CASES(d, )
    default: abort();
    }
}

static void integer_op(const KernelInst *inst, Block *to, const Block *a, const Block *b, const Block *c, int lanes) {
    KernelOp op = inst->op;
    DType t = inst->dtype;
    switch (op) {
    case K_ADD: EACH to->i[n] = (int64_t)((uint64_t)a->i[n] + (uint64_t)b->i[n]); break;
    case K_SUB: EACH to->i[n] = (int64_t)((uint64_t)a->i[n] - (uint64_t)b->i[n]); break;
    case K_MUL: EACH to->i[n] = (int64_t)((uint64_t)a->i[n] * (uint64_t)b->i[n]); break;
    case K_DIV: EACH to->i[n] = divide(t, a->i[n], b->i[n]); break;
    case K_REM: EACH to->i[n] = remainder_of(t, a->i[n], b->i[n]); break;
    case K_NEG: EACH to->i[n] = (int64_t)(0 - (uint64_t)a->i[n]); break;
    case K_ABS: EACH to->i[n] = a->i[n] < 0 ? (int64_t)(0 - (uint64_t)a->i[n]) : a->i[n]; break;
    case K_MIN: EACH to->i[n] = less(t, a->i[n], b->i[n]) ? a->i[n] : b->i[n]; break;
    case K_MAX: EACH to->i[n] = less(t, b->i[n], a->i[n]) ? a->i[n] : b->i[n]; break;
    case K_AND: EACH to->i[n] = a->i[n] & b->i[n]; break;
    case K_OR: EACH to->i[n] = a->i[n] | b->i[n]; break;
    case K_XOR: EACH to->i[n] = a->i[n] ^ b->i[n]; break;
    case K_NOT: EACH to->i[n] = t == DT_BOOL ? !a->i[n] : ~a->i[n]; break;
    case K_SHL:
    case K_SHR: EACH to->i[n] = shift(op, t, a->i[n], wrap(t, b->i[n])); break;
    case K_RANDOM:
        EACH to->i[n] = inst->bits & RANDOM_HALVES ? philox_half_u32((uint64_t)a->i[n], (uint64_t)b->i[n])
                                                   : philox_u32((uint64_t)a->i[n], (uint64_t)b->i[n]);
        break;
    case K_SELECT: EACH to->i[n] = a->i[n] ? b->i[n] : c->i[n]; break;
    default: abort();
    }
    EACH to->i[n] = wrap(t, to->i[n]);
}

#define COMPARE(m)                                                                                                     \
    switch (op) {                                                                                                      \
    case K_EQ: EACH to->i[n] = a->m[n] == b->m[n]; break;                                                              \
    case K_NE: EACH to->i[n] = a->m[n] != b->m[n]; break;                                                              \
    case K_LT: EACH to->i[n] = a->m[n] < b->m[n]; break;                                                               \
    case K_LE: EACH to->i[n] = a->m[n] <= b->m[n]; break;                                                              \
    case K_GT: EACH to->i[n] = a->m[n] > b->m[n]; break;                                                               \
    default: EACH to->i[n] = a->m[n] >= b->m[n]; break;                                                                \
    }

/* Results go through a copy: they may be shorter or longer than the operands. */
static void compare(KernelOp op, DType t, Block *to, const Block *a, const Block *b, int lanes) {
    if (t == DT_F32) {
        COMPARE(f)
    } else if (t == DT_F64) {
        COMPARE(d)
    } else {
        EACH {
            bool below = less(t, a->i[n], b->i[n]), above = less(t, b->i[n], a->i[n]);
            to->i[n] = op == K_EQ   ? !below && !above
                       : op == K_NE ? below || above
                       : op == K_LT ? below
                       : op == K_LE ? !above
                       : op == K_GT ? above
                                    : !below;
        }
    }
}

static double as_double(DType t, const Block *b, int n) {
    if (t == DT_F32) return (double)b->f[n];
    if (t == DT_F64) return b->d[n];
    return t == DT_U64 ? (double)(uint64_t)b->i[n] : (double)b->i[n];
}

static void cast(DType from, DType t, Block *to, const Block *a, int lanes) {
    if (t == DT_F64)
        EACH to->d[n] = as_double(from, a, n);
    else if (t == DT_F32 && from == DT_U64)
        EACH to->f[n] = (float)(uint64_t)a->i[n];
    else if (t == DT_F32 && from == DT_F64)
        EACH to->f[n] = (float)a->d[n];
    else if (t == DT_F32)
        EACH to->f[n] = (float)a->i[n];
    else if (t == DT_BOOL)
        EACH to->i[n] = dtype_is_float(from) ? as_double(from, a, n) != 0 : a->i[n] != 0;
    else if (!dtype_is_float(from))
        EACH to->i[n] = wrap(t, a->i[n]);
    else
        EACH {
            uint64_t cell = 0;
            double x = as_double(from, a, n);
            dtype_store_double(t, &cell, 0, x == x ? x : 0);
            to->i[n] = wrap(t, dtype_load_int(t, &cell, 0));
        }
}

static void bitcast(DType from, DType t, Block *to, const Block *a, int lanes) {
    EACH {
        uint64_t cell = 0;
        uint32_t half;
        if (from == DT_F32) {
            memcpy(&half, &a->f[n], 4);
            cell = half;
        } else {
            memcpy(&cell, &a->i[n], 8);
        }
        half = (uint32_t)cell;
        if (t == DT_F32)
            memcpy(&to->f[n], &half, 4);
        else if (t == DT_F64)
            memcpy(&to->d[n], &cell, 8);
        else
            to->i[n] = wrap(t, (int64_t)cell);
    }
}

/* ---- instructions ---- */

static void constant(const KernelInst *inst, Block *to, int lanes) {
    double x;
    memcpy(&x, &inst->bits, sizeof x);
    if (inst->dtype == DT_F32)
        EACH to->f[n] = (float)x;
    else if (inst->dtype == DT_F64)
        EACH to->d[n] = x;
    else
        EACH to->i[n] = inst->bits;
}

/* An i64, or the number that its low half is. */
static void parameter(const KernelInst *inst, int64_t value, Block *to, int lanes) {
    float x;
    memcpy(&x, &value, sizeof x);
    if (inst->dtype == DT_F32)
        EACH to->f[n] = x;
    else
        EACH to->i[n] = inst->dtype == DT_I32 ? (int32_t)value : value;
}

static void compute(Run *r, int index) {
    const KernelInst *inst = &r->k->insts.items[index];
    const Block *args[3] = {0};
    Block *to = &r->values[index];
    int lanes = r->lanes;
    for (int i = 0; i < kernel_op_args(inst->op); i++) args[i] = &r->values[inst->args[i]];
    DType from = kernel_op_args(inst->op) ? r->k->insts.items[inst->args[0]].dtype : DT_NONE;
    switch (inst->op) {
    case K_CONST: constant(inst, to, lanes); break;
    case K_PARAM: parameter(inst, r->params[inst->bits], to, lanes); break;
    case K_INDEX: EACH to->i[n] = r->index[inst->axis] + (inst->axis == r->lane ? n : 0); break;
    case K_LOAD: load(r, inst, to); break;
    case K_STORE: inst->bits ? add_to_sum(r, index, args[0]) : store(r, inst, args[0]); break;
    case K_EQ:
    case K_NE:
    case K_LT:
    case K_LE:
    case K_GT:
    case K_GE: compare(inst->op, from, to, args[0], args[1], lanes); break;
    case K_CAST: cast(from, inst->dtype, to, args[0], lanes); break;
    case K_BITCAST: bitcast(from, inst->dtype, to, args[0], lanes); break;
    default:
        if (inst->op == K_DIV && inst->bits)
            EACH to->f[n] = divide_by_row(args[0]->f[n], args[1]->f[n]);
        else if (inst->dtype == DT_F32)
            float_op(inst->op, to, args[0], args[1], args[2], lanes);
        else if (inst->dtype == DT_F64)
            double_op(inst->op, to, args[0], args[1], args[2], lanes);
        else
            integer_op(inst, to, args[0], args[1], args[2], lanes);
    }
}

/* ---- reductions ---- */

static void set_double(DType t, Block *to, int n, double x) {
    if (t == DT_F32)
        to->f[n] = (float)x;
    else if (t == DT_F64)
        to->d[n] = x;
}

static void reduce_start(Run *r, int index) {
    const KernelInst *inst = &r->k->insts.items[index];
    DType t = inst->dtype;
    bool most = inst->op == K_REDUCE_MIN, product = inst->op == K_REDUCE_PROD, sum = inst->op == K_REDUCE_SUM;
    int bits = (int)dtype_size(t) * 8;
    int64_t high = (int64_t)(UINT64_MAX >> (64 - bits) >> is_signed(t)), low = is_signed(t) ? -high - 1 : 0;
    for (int n = 0; n < r->lanes; n++) {
        if (r->wide) r->exact[index][n] = product, r->magnitude[index][n] = 0;
        if (dtype_is_float(t))
            set_double(t, &r->values[index], n, sum ? 0 : product ? 1 : most ? (double)INFINITY : -(double)INFINITY);
        else
            r->values[index].i[n] = sum || inst->op >= K_REDUCE_ARGMAX ? 0 : product ? 1 : most ? high : low;
    }
}

static bool beats(const KernelInst *inst, DType t, const Block *x, const Block *best, int n) {
    bool least = inst->op == K_REDUCE_ARGMIN, last = inst->bits;
    if (dtype_is_float(t)) {
        double a = as_double(t, x, n), b = as_double(t, best, n);
        if (b != b) return last && a != a;
        if (a != a || (last && a == b)) return true;
        return least ? a < b : a > b;
    }
    if (x->i[n] == best->i[n]) return last;
    return less(t, x->i[n], best->i[n]) == least;
}

static void add_wide(Run *r, KernelOp op, int index, int n, double x) {
    r->magnitude[index][n] += fabs(x);
    if (op == K_REDUCE_SUM) r->exact[index][n] += x;
    if (op == K_REDUCE_PROD) r->exact[index][n] *= x;
}

/* One way or the other, by what rounding may have done to a sum of so many terms. */
static double pushed(Run *r, DType t, double scale, double count) {
    double unit = t == DT_F64 ? 0x1p-53 : 0x1p-24;
    return r->seed ? (philox_u32(r->seed, r->draws++) & 1 ? 1 : -1) * unit * (8 + sqrt(count)) * scale : 0;
}

static void store_sums(Run *r, int index) {
    const KernelInst *inst = &r->k->insts.items[index];
    double rows = 1;
    for (int i = 0; i < r->k->axis_count; i++) rows *= is_reduced(r, i) ? 1 : (double)r->size[i];
    for (int64_t at = 0; at < r->reduced_count; at++) {
        double x = r->sums[index][at], push = pushed(r, inst->dtype, r->sums[index][r->reduced_count + at], rows);
        DType t = r->k->buffers.items[inst->buffer].dtype;
        x = isfinite(push) ? x + push : x;
        dtype_store_double(t, r->buffers[inst->buffer], at, inst->dtype == DT_F64 ? x : (double)(float)x);
    }
}

/* The result of a sum or product that was kept in double, pushed one way. */
static void reduce_end(Run *r, int index) {
    const KernelInst *inst = &r->k->insts.items[index];
    DType t = inst->dtype;
    if (!r->wide || !dtype_is_float(t) || (inst->op != K_REDUCE_SUM && inst->op != K_REDUCE_PROD)) return;
    double count = (double)r->reduced_count;
    for (int n = 0; n < r->lanes; n++) {
        double x = r->exact[index][n], scale = inst->op == K_REDUCE_SUM ? r->magnitude[index][n] : fabs(x) * count;
        double push = pushed(r, t, scale, count);
        if (inst->op == K_REDUCE_PROD) push = push / (8 + sqrt(count));
        set_double(t, &r->values[index], n, isfinite(push) ? x + push : x);
    }
}

static void reduce_step(Run *r, int index) {
    const KernelInst *inst = &r->k->insts.items[index];
    const Block *x = &r->values[inst->args[0]];
    Block *to = &r->values[index], *best = &r->best[index];
    DType t = r->k->insts.items[inst->args[0]].dtype;
    for (int n = 0; n < r->lanes; n++) {
        if (inst->op == K_REDUCE_ARGMAX || inst->op == K_REDUCE_ARGMIN) {
            if (r->flat && !beats(inst, t, x, best, n)) continue;
            to->i[n] = r->flat;
            if (t == DT_F32)
                best->f[n] = x->f[n];
            else if (t == DT_F64)
                best->d[n] = x->d[n];
            else
                best->i[n] = x->i[n];
        } else if (dtype_is_float(t)) {
            double a = as_double(t, to, n), b = as_double(t, x, n);
            if (r->wide) add_wide(r, inst->op, index, n, b);
            bool takes = b != b || (inst->op == K_REDUCE_MAX ? b > a : b < a);
            set_double(t, to, n, inst->op == K_REDUCE_SUM ? a + b : inst->op == K_REDUCE_PROD ? a * b : takes ? b : a);
        } else {
            int64_t a = to->i[n], b = x->i[n];
            uint64_t ua = (uint64_t)a, ub = (uint64_t)b;
            bool below = less(t, b, a);
            to->i[n] = inst->op == K_REDUCE_SUM              ? wrap(t, (int64_t)(ua + ub))
                       : inst->op == K_REDUCE_PROD           ? wrap(t, (int64_t)(ua * ub))
                       : (inst->op == K_REDUCE_MIN) == below ? b
                                                             : a;
        }
    }
}

/* ---- loops ---- */

static bool varies(const Run *r, int i) { return r->k->insts.items[i].axes & r->reduced; }

/* One point of the reduced axes (or none, for what does not vary along them) in one stage. */
static void run_point(Run *r, int stage, bool inside) {
    for (int i = 0; i < r->k->insts.count; i++) {
        const KernelInst *inst = &r->k->insts.items[i];
        bool reduce = kernel_op_is_reduce(inst->op);
        if (inst->stage > stage) continue;
        if (reduce) {
            if (inside && inst->stage == stage) reduce_step(r, i);
            continue;
        }
        if (varies(r, i) != inside || (inst->op == K_STORE && inst->stage != stage)) continue;
        if (inst->keep && inst->stage < stage) {
            r->values[i] = r->kept[i][r->flat];
            continue;
        }
        compute(r, i);
        if (inst->keep && inst->stage == stage) r->kept[i][r->flat] = r->values[i];
    }
}

static void run_stage(Run *r, int stage) {
    for (int i = 0; i < r->k->insts.count; i++)
        if (kernel_op_is_reduce(r->k->insts.items[i].op) && r->k->insts.items[i].stage == stage) reduce_start(r, i);
    run_point(r, stage, false);
    if (!r->reduced) return;
    for (r->flat = 0; r->flat < r->reduced_count; r->flat++) {
        int64_t rest = r->flat;
        for (int axis = r->k->axis_count - 1; axis >= 0; axis--) {
            if (!is_reduced(r, axis)) continue;
            r->index[axis] = rest % r->size[axis];
            rest /= r->size[axis];
        }
        run_point(r, stage, true);
    }
    for (int axis = 0; axis < r->k->axis_count; axis++)
        if (is_reduced(r, axis)) r->index[axis] = 0;
    for (int i = 0; i < r->k->insts.count; i++)
        if (kernel_op_is_reduce(r->k->insts.items[i].op) && r->k->insts.items[i].stage == stage) reduce_end(r, i);
}

static void run_kept(Run *r, int axis) {
    if (axis == r->k->axis_count) {
        for (int stage = 0; stage < r->k->stage_count; stage++) run_stage(r, stage);
        return;
    }
    if (is_reduced(r, axis)) {
        run_kept(r, axis + 1);
        return;
    }
    int step = axis == r->lane ? LANES : 1;
    for (r->index[axis] = 0; r->index[axis] < r->size[axis]; r->index[axis] += step) {
        if (axis == r->lane) {
            int64_t left = r->size[axis] - r->index[axis];
            r->lanes = left < LANES ? (int)left : LANES;
        }
        run_kept(r, axis + 1);
    }
    r->index[axis] = 0;
}

static void evaluate(const Kernel *kernel, void *const *buffers, const int64_t *params, bool wide, uint64_t seed) {
    Run r = {.k = kernel, .buffers = buffers, .params = params, .lane = -1, .lanes = 1, .reduced_count = 1};
    r.wide = wide;
    r.seed = seed;
    for (int i = 0; i < kernel->axis_count; i++) {
        const KernelAxis *a = &kernel->axes[i];
        r.size[i] = a->param < 0 ? a->size : params[a->param];
        if (a->role == AXIS_LANE) r.lane = i;
        if (a->role != AXIS_REDUCE && a->role != AXIS_REDUCE_LANE) continue;
        r.reduced |= 1u << i;
        r.reduced_count *= r.size[i];
    }
    size_t count = (size_t)kernel->insts.count + 1;
    r.values = calloc(count, sizeof *r.values);
    r.best = calloc(count, sizeof *r.best);
    r.kept = calloc(count, sizeof *r.kept);
    r.sums = calloc(count, sizeof *r.sums);
    for (size_t i = 0; i + 1 < count; i++) {
        if (kernel->insts.items[i].keep) r.kept[i] = calloc((size_t)r.reduced_count + 1, sizeof **r.kept);
        if (kernel_is_sum(&kernel->insts.items[i]))
            r.sums[i] = calloc((size_t)r.reduced_count + 1, 2 * sizeof **r.sums);
    }
    if (wide) {
        r.exact = calloc(count, sizeof *r.exact);
        r.magnitude = calloc(count, sizeof *r.magnitude);
    }
    run_kept(&r, 0);
    for (size_t i = 0; i + 1 < count; i++)
        if (r.sums[i]) store_sums(&r, (int)i);
    free(r.magnitude);
    free(r.exact);
    for (size_t i = 0; i + 1 < count; i++) free(r.kept[i]), free(r.sums[i]);
    free(r.kept);
    free(r.sums);
    free(r.best);
    free(r.values);
}

void kernel_eval(const Kernel *kernel, void *const *buffers, const int64_t *params) {
    evaluate(kernel, buffers, params, false, 0);
}

void kernel_eval_perturbed(const Kernel *kernel, void *const *buffers, const int64_t *params, uint64_t seed) {
    evaluate(kernel, buffers, params, true, seed);
}
