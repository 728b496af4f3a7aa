/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels written by hand, for tests and benchmarks of the renderer: a few constructors that fill in what follows from
 * the rest. */
#ifndef ONNXFUSE_TESTS_HANDMADE_H
#define ONNXFUSE_TESTS_HANDMADE_H

#include <string.h>
#include "codegen/kernel.h"

typedef struct Maker {
    Arena *arena;
    Kernel *kernel;
} Maker;

static inline Maker maker(Arena *arena, int lane_block) {
    Maker m = {arena, ARENA_NEW(arena, Kernel)};
    m.kernel->lane_block = lane_block;
    m.kernel->tile_axis = -1;
    m.kernel->stage_count = 1;
    return m;
}

/* size >= 0: constant; below: parameter -1 - size. */
static inline int axis(Maker *m, AxisRole role, int64_t size, int64_t multiple) {
    Kernel *k = m->kernel;
    int param = size < 0 ? (int)(-1 - size) : -1;
    if (param >= k->param_count) k->param_count = param + 1;
    k->axes[k->axis_count] = (KernelAxis){role, size < 0 ? 0 : size, param, multiple};
    return k->axis_count++;
}

static inline int buffer(Maker *m, DType dtype, bool output) {
    VEC_PUSH(m->arena, m->kernel->buffers, (KernelBuffer){dtype, output});
    return m->kernel->buffers.count - 1;
}

/* One stride an axis: 0, 1, another constant, or -1 - parameter; large constants stand for themselves. */
static inline KernelAccess strides(Maker *m, const int64_t *values) {
    KernelAccess access = {0};
    for (int a = 0; a < m->kernel->axis_count; a++) {
        int64_t v = values[a];
        access.kind[a] = v == 0 ? STRIDE_ZERO : v == 1 ? STRIDE_ONE : v > 0 ? STRIDE_CONST : STRIDE_PARAM;
        access.stride[a] = v < 0 ? -1 - v : v;
        if (v < 0 && -v > m->kernel->param_count) m->kernel->param_count = (int)-v;
    }
    return access;
}
#define STRIDES(m, ...) strides(m, (int64_t[KERNEL_MAX_AXES]){__VA_ARGS__})

static inline int inst(Maker *m, KernelInst i) {
    Kernel *k = m->kernel;
    uint32_t reduced = 0;
    for (int a = 0; a < k->axis_count; a++)
        if (k->axes[a].role == AXIS_REDUCE || k->axes[a].role == AXIS_REDUCE_LANE) reduced |= 1u << a;
    for (int n = 0; n < kernel_op_args(i.op); n++) {
        const KernelInst *arg = &k->insts.items[i.args[n]];
        int ready = arg->stage + kernel_op_is_reduce(arg->op);
        i.axes |= arg->axes;
        if (ready > i.stage) i.stage = ready;
    }
    if (i.op == K_INDEX) i.axes = 1u << i.axis;
    if (i.op == K_LOAD || i.op == K_STORE)
        for (int a = 0; a < k->axis_count; a++)
            if (i.access->kind[a] != STRIDE_ZERO) i.axes |= 1u << a;
    if (kernel_op_is_reduce(i.op)) i.axes &= ~reduced;
    if (i.stage >= k->stage_count) k->stage_count = i.stage + 1;
    VEC_PUSH(m->arena, k->insts, i);
    return k->insts.count - 1;
}

static inline int op(Maker *m, KernelOp o, DType t, int a, int b, int c) {
    return inst(m, (KernelInst){.op = o, .dtype = t, .args = {a, b, c}});
}
static inline DType computed(DType t) { return t == DT_F16 || t == DT_BF16 ? DT_F32 : t; }
static inline int load(Maker *m, int b, KernelAccess access) {
    return inst(m, (KernelInst){.op = K_LOAD,
                                .dtype = computed(m->kernel->buffers.items[b].dtype),
                                .buffer = b,
                                .access = arena_copy(m->arena, &access, sizeof access)});
}
static inline void store(Maker *m, int b, KernelAccess access, int value) {
    inst(m, (KernelInst){.op = K_STORE,
                         .dtype = computed(m->kernel->buffers.items[b].dtype),
                         .args = {value},
                         .buffer = b,
                         .access = arena_copy(m->arena, &access, sizeof access)});
}
static inline int constant(Maker *m, DType t, double value) {
    int64_t bits = (int64_t)value;
    if (dtype_is_float(t)) memcpy(&bits, &value, 8);
    return inst(m, (KernelInst){.op = K_CONST, .dtype = t, .bits = bits});
}
static inline void keep(Maker *m, int value) { m->kernel->insts.items[value].keep = true; }

#endif
