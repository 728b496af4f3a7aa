/* SPDX-License-Identifier: Apache-2.0 */
/* Runs a kernel by the words of kernel.h: each store over its whole index space, its value by recursion, reductions by
 * plain loops whose results are remembered. Slow and simple. Values are held as bits of their own type: float and
 * double exactly, integers sign- or zero-extended. */
#ifndef ONNXFUSE_TESTS_KERNEL_ORACLE_H
#define ONNXFUSE_TESTS_KERNEL_ORACLE_H

#include <math.h>
#include "base/math/divide.h"
#include "codegen/kernel.h"
#include "graph/prim.h"

typedef union Number {
    double f; /* of f32 too: every float is a double */
    int64_t i;
} Number;

typedef struct Oracle {
    const Kernel *kernel;
    void *const *buffers;
    const int64_t *params;
    int64_t size[KERNEL_MAX_AXES], index[KERNEL_MAX_AXES];
    Number **results; /* of reductions, over the kept axes row-major */
    bool **known;
} Oracle;

static bool reduced(const Kernel *k, int a) {
    return k->axes[a].role == AXIS_REDUCE || k->axes[a].role == AXIS_REDUCE_LANE;
}

static double to_type(DType t, double v) { return t == DT_F32 ? (double)(float)v : v; }

static int64_t wrap(DType t, int64_t v) {
    switch (t) {
    case DT_BOOL: return v != 0;
    case DT_I8: return (int8_t)v;
    case DT_U8: return (uint8_t)v;
    case DT_I16: return (int16_t)v;
    case DT_U16: return (uint16_t)v;
    case DT_I32: return (int32_t)v;
    case DT_U32: return (uint32_t)v;
    default: return v;
    }
}

static bool is_signed(DType t) { return dtype_class(t) == DTYPE_SIGNED; }

static int64_t element(const Oracle *o, const KernelAccess *access) {
    int64_t at = access->offset_kind == STRIDE_PARAM   ? o->params[access->offset]
                 : access->offset_kind == STRIDE_CONST ? access->offset
                                                       : 0;
    for (int a = 0; a < o->kernel->axis_count; a++) {
        int64_t s = access->stride[a];
        at += o->index[a] * (access->kind[a] == STRIDE_ONE     ? 1
                             : access->kind[a] == STRIDE_CONST ? s
                             : access->kind[a] == STRIDE_PARAM ? o->params[s]
                                                               : 0);
    }
    return at;
}

static Number fetch(const Oracle *o, const KernelInst *inst) {
    DType t = o->kernel->buffers.items[inst->buffer].dtype;
    const void *data = o->buffers[inst->buffer];
    int64_t at = element(o, inst->access);
    if (dtype_is_float(t)) return (Number){.f = dtype_load_double(t, data, at)};
    return (Number){.i = dtype_load_int(t, data, at)};
}

static Number evaluate(Oracle *o, int i);

static int64_t divide(DType t, int64_t a, int64_t b, bool remainder) {
    if (b == 0) return 0;
    if (!is_signed(t)) return (int64_t)(remainder ? (uint64_t)a % (uint64_t)b : (uint64_t)a / (uint64_t)b);
    if (b == -1) return remainder ? 0 : wrap(t, (int64_t)(0 - (uint64_t)a));
    return remainder ? a % b : a / b;
}

static int compare(DType t, Number a, Number b) { /* -1, 0, 1; 2 unordered */
    if (dtype_is_float(t)) return a.f < b.f ? -1 : a.f > b.f ? 1 : a.f == b.f ? 0 : 2;
    if (is_signed(t)) return a.i < b.i ? -1 : a.i > b.i;
    return (uint64_t)a.i < (uint64_t)b.i ? -1 : (uint64_t)a.i > (uint64_t)b.i;
}

static int64_t shifted(DType t, KernelOp op, int64_t a, int64_t b) {
    int bits = 8 * (int)dtype_size(t);
    bool far = (uint64_t)b >= (uint64_t)bits;
    if (op == K_SHL) return far ? 0 : wrap(t, (int64_t)((uint64_t)a << b));
    if (is_signed(t)) return a >> (far ? 63 : b);
    return far ? 0 : (int64_t)((uint64_t)a >> b);
}

static Number cast(DType from, DType to, Number v) {
    if (dtype_is_float(from)) {
        if (to == DT_BOOL) return (Number){.i = v.f != 0};
        if (dtype_is_float(to)) return (Number){.f = to_type(to, v.f)};
        if (v.f != v.f) return (Number){.i = 0};
        int bits = 8 * (int)dtype_size(to);
        double low = is_signed(to) ? -ldexp(1, bits - 1) : 0, beyond = ldexp(1, is_signed(to) ? bits - 1 : bits);
        if (v.f <= low) return (Number){.i = (int64_t)low};
        if (v.f >= beyond)
            return (Number){.i = is_signed(to) ? (int64_t)(((uint64_t)1 << (bits - 1)) - 1) : wrap(to, -1)};
        return (Number){.i = is_signed(to) ? (int64_t)v.f : (int64_t)(uint64_t)v.f};
    }
    if (to == DT_F32) return (Number){.f = is_signed(from) ? (float)v.i : (float)(uint64_t)v.i};
    if (to == DT_F64) return (Number){.f = is_signed(from) ? (double)v.i : (double)(uint64_t)v.i};
    return (Number){.i = wrap(to, v.i)};
}

static Number bitcast(DType from, DType to, Number v) {
    uint64_t bits = (uint64_t)v.i;
    float narrow = (float)v.f;
    if (from == DT_F32) {
        uint32_t word;
        memcpy(&word, &narrow, 4);
        bits = word;
    }
    if (from == DT_F64) memcpy(&bits, &v.f, 8);
    if (to == DT_F32) {
        uint32_t word = (uint32_t)bits;
        memcpy(&narrow, &word, 4);
        return (Number){.f = narrow};
    }
    Number result = {.i = (int64_t)bits};
    if (to != DT_F64) result.i = wrap(to, result.i);
    return result;
}

static Number on_floats(KernelOp op, DType t, bool by_row, Number *v) {
    double a = v[0].f, b = v[1].f, c = v[2].f, r = 0;
    switch (op) {
    case K_ADD: r = a + b; break;
    case K_SUB: r = a - b; break;
    case K_MUL: r = a * b; break;
    case K_DIV: r = by_row ? (double)divide_by_row((float)a, (float)b) : a / b; break;
    case K_REM: r = fmod(a, b); break;
    case K_FMA: r = t == DT_F32 ? (double)fmaf((float)a, (float)b, (float)c) : fma(a, b, c); break;
    case K_SCALE: r = t == DT_F32 ? (double)scalbnf((float)a, (int)b) : scalbn(a, (int)b); break;
    case K_NEG: r = -a; break;
    case K_ABS: r = fabs(a); break;
    case K_MIN: r = a < b ? a : b; break;
    case K_MAX: r = a > b ? a : b; break;
    case K_SQRT: r = t == DT_F32 ? (double)sqrtf((float)a) : sqrt(a); break;
    case K_FLOOR: r = floor(a); break;
    case K_CEIL: r = ceil(a); break;
    case K_TRUNC: r = trunc(a); break;
    case K_RINT: r = rint(a); break;
    case K_ROUND_F16: r = f16_to_f32(f32_to_f16((float)a)); break;
    case K_ROUND_BF16: r = bf16_to_f32(f32_to_bf16((float)a)); break;
    default: break;
    }
    return (Number){.f =
                        to_type(t, r)}; /* f32 sums, products and quotients rounded twice are right: 53 >= 2 * 24 + 2 */
}

static Number on_integers(KernelOp op, DType t, Number *v) {
    int64_t a = v[0].i, b = v[1].i, r = 0;
    switch (op) {
    case K_ADD: r = (int64_t)((uint64_t)a + (uint64_t)b); break;
    case K_SUB: r = (int64_t)((uint64_t)a - (uint64_t)b); break;
    case K_MUL: r = (int64_t)((uint64_t)a * (uint64_t)b); break;
    case K_DIV: r = divide(t, a, b, false); break;
    case K_REM: r = divide(t, a, b, true); break;
    case K_NEG: r = (int64_t)(0 - (uint64_t)a); break;
    case K_ABS: r = is_signed(t) && a < 0 ? (int64_t)(0 - (uint64_t)a) : a; break;
    case K_MIN: r = compare(t, v[0], v[1]) < 0 ? a : b; break;
    case K_MAX: r = compare(t, v[0], v[1]) > 0 ? a : b; break;
    case K_AND: r = a & b; break;
    case K_OR: r = a | b; break;
    case K_XOR: r = a ^ b; break;
    case K_NOT: r = t == DT_BOOL ? !a : ~a; break;
    case K_SHL:
    case K_SHR: r = shifted(t, op, a, b); break;
    default: break;
    }
    return (Number){.i = wrap(t, r)};
}

static bool comparison(KernelOp op, int order) {
    switch (op) {
    case K_EQ: return order == 0;
    case K_NE: return order != 0;
    case K_LT: return order == -1;
    case K_LE: return order == -1 || order == 0;
    case K_GT: return order == 1;
    default: return order == 1 || order == 0;
    }
}

static Number neutral(const KernelInst *inst, DType t) {
    bool most = inst->op == K_REDUCE_MIN || inst->op == K_REDUCE_ARGMIN;
    int bits = 8 * (int)dtype_size(t);
    if (inst->op == K_REDUCE_SUM) return dtype_is_float(t) ? (Number){.f = 0} : (Number){.i = 0};
    if (inst->op == K_REDUCE_PROD) return dtype_is_float(t) ? (Number){.f = 1} : (Number){.i = 1};
    if (dtype_is_float(t)) return (Number){.f = most ? INFINITY : -INFINITY};
    int64_t low = is_signed(t) ? (int64_t)((uint64_t)-1 << (bits - 1)) : 0;
    return (Number){.i = most ? wrap(t, is_signed(t) ? ~low : -1) : low};
}

static bool nan_of(DType t, Number v) { return dtype_is_float(t) && v.f != v.f; }

/* Loops over the reduced axes; plain sums of floats in double, whose rounding the comparison allows for. */
static Number reduce(Oracle *o, const KernelInst *inst) {
    DType t = o->kernel->insts.items[inst->args[0]].dtype;
    Number best = neutral(inst, t);
    int64_t total = 1, saved[KERNEL_MAX_AXES], at = -1;
    bool arg = inst->op >= K_REDUCE_ARGMAX, greater = inst->op == K_REDUCE_MAX || inst->op == K_REDUCE_ARGMAX;
    memcpy(saved, o->index, sizeof saved);
    for (int a = 0; a < o->kernel->axis_count; a++)
        if (reduced(o->kernel, a)) total *= o->size[a];
    for (int64_t n = 0; n < total; n++) {
        int64_t rest = n;
        for (int a = o->kernel->axis_count - 1; a >= 0; a--)
            if (reduced(o->kernel, a)) {
                o->index[a] = rest % o->size[a];
                rest /= o->size[a];
            }
        Number v = evaluate(o, inst->args[0]);
        if (inst->op == K_REDUCE_SUM || inst->op == K_REDUCE_PROD) {
            bool sum = inst->op == K_REDUCE_SUM;
            if (dtype_is_float(t))
                best.f = sum ? best.f + v.f : best.f * v.f;
            else
                best.i = wrap(t, (int64_t)(sum ? (uint64_t)best.i + (uint64_t)v.i : (uint64_t)best.i * (uint64_t)v.i));
            continue;
        }
        int order = compare(t, v, best);
        bool wins = order == (greater ? 1 : -1) || (nan_of(t, v) && !nan_of(t, best));
        bool tie = order == 0 || (nan_of(t, v) && nan_of(t, best));
        if (wins || (tie && (at < 0 || (arg && inst->bits)))) {
            best = v;
            at = n;
        }
    }
    memcpy(o->index, saved, sizeof saved);
    if (arg) return (Number){.i = at < 0 ? 0 : at};
    if (dtype_is_float(t)) best.f = to_type(t, best.f);
    return best;
}

static Number reduction(Oracle *o, int i) {
    const KernelInst *inst = &o->kernel->insts.items[i];
    int64_t at = 0;
    for (int a = 0; a < o->kernel->axis_count; a++)
        if (!reduced(o->kernel, a)) at = at * o->size[a] + o->index[a];
    if (!o->known[i][at]) {
        o->results[i][at] = reduce(o, inst);
        o->known[i][at] = true;
    }
    return o->results[i][at];
}

static Number param_of(const KernelInst *inst, int64_t value) {
    float x;
    memcpy(&x, &value, sizeof x);
    if (inst->dtype == DT_F32) return (Number){.f = x};
    return (Number){.i = inst->dtype == DT_I32 ? (int32_t)value : value};
}

static Number evaluate(Oracle *o, int i) {
    const KernelInst *inst = &o->kernel->insts.items[i];
    Number v[3] = {{0}, {0}, {0}};
    if (kernel_op_is_reduce(inst->op)) return reduction(o, i);
    for (int n = 0; n < kernel_op_args(inst->op); n++) v[n] = evaluate(o, inst->args[n]);
    DType from = kernel_op_args(inst->op) ? o->kernel->insts.items[inst->args[0]].dtype : inst->dtype;
    switch (inst->op) {
    case K_CONST:
        if (!dtype_is_float(inst->dtype)) return (Number){.i = inst->bits};
        memcpy(&v[0].f, &inst->bits, 8);
        v[0].f = to_type(inst->dtype, v[0].f);
        return v[0];
    case K_PARAM: return param_of(inst, o->params[inst->bits]);
    case K_INDEX: return (Number){.i = o->index[inst->axis]};
    case K_LOAD: return fetch(o, inst);
    case K_STORE: return v[0];
    case K_RANDOM:
        return (Number){.i = inst->bits & RANDOM_HALVES ? philox_half_u32((uint64_t)v[0].i, (uint64_t)v[1].i)
                                                        : philox_u32((uint64_t)v[0].i, (uint64_t)v[1].i)};
    case K_SELECT: return v[0].i ? v[1] : v[2];
    case K_CAST: return cast(from, inst->dtype, v[0]);
    case K_BITCAST: return bitcast(from, inst->dtype, v[0]);
    default: break;
    }
    if (inst->op >= K_EQ && inst->op <= K_GE) return (Number){.i = comparison(inst->op, compare(from, v[0], v[1]))};
    return dtype_is_float(inst->dtype) ? on_floats(inst->op, inst->dtype, inst->bits, v)
                                       : on_integers(inst->op, inst->dtype, v);
}

static void put(Oracle *o, const KernelInst *inst, Number v) {
    DType t = o->kernel->buffers.items[inst->buffer].dtype;
    if (dtype_is_float(t))
        dtype_store_double(t, o->buffers[inst->buffer], element(o, inst->access), v.f);
    else
        dtype_store_int(t, o->buffers[inst->buffer], element(o, inst->access), v.i);
}

/* buffers: in the kernel's order; outputs are written. */
static void kernel_oracle(Arena *arena, const Kernel *k, void *const *buffers, const int64_t *params) {
    Oracle o = {.kernel = k, .buffers = buffers, .params = params};
    int64_t kept = 1, columns = 1;
    for (int a = 0; a < k->axis_count; a++) {
        o.size[a] = k->axes[a].param < 0 ? k->axes[a].size : params[k->axes[a].param];
        *(reduced(k, a) ? &columns : &kept) *= o.size[a];
    }
    o.results = ARENA_ARRAY(arena, Number *, k->insts.count);
    o.known = ARENA_ARRAY(arena, bool *, k->insts.count);
    for (int i = 0; i < k->insts.count; i++)
        if (kernel_op_is_reduce(k->insts.items[i].op)) {
            o.results[i] = ARENA_ARRAY(arena, Number, kept);
            o.known[i] = ARENA_ARRAY(arena, bool, kept);
        }
    for (int i = 0; i < k->insts.count; i++) {
        const KernelInst *inst = &k->insts.items[i];
        int64_t total = 1;
        if (inst->op != K_STORE) continue;
        double *sums = inst->bits ? ARENA_ARRAY(arena, double, columns + 1) : NULL; /* of columns */
        for (int a = 0; a < k->axis_count; a++)
            if (inst->access->kind[a] != STRIDE_ZERO || !reduced(k, a)) total *= o.size[a];
        for (int64_t n = 0; n < total; n++) {
            int64_t rest = n;
            for (int a = k->axis_count - 1; a >= 0; a--) {
                bool counts = inst->access->kind[a] != STRIDE_ZERO || !reduced(k, a);
                o.index[a] = counts ? rest % o.size[a] : 0;
                if (counts) rest /= o.size[a];
            }
            Number v = evaluate(&o, i);
            if (sums)
                sums[element(&o, inst->access)] += v.f;
            else
                put(&o, inst, v);
        }
        for (int64_t n = 0; sums && n < columns; n++)
            dtype_store_double(k->buffers.items[inst->buffer].dtype, buffers[inst->buffer], n, sums[n]);
    }
}

#endif
