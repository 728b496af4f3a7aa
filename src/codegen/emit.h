/* SPDX-License-Identifier: Apache-2.0 */
/* Builds a kernel's instructions: equal ones once, constants folded, what costs nothing left out. Internal to codegen.
 */
#ifndef ONNXFUSE_CODEGEN_EMIT_H
#define ONNXFUSE_CODEGEN_EMIT_H

#include "codegen/kernel.h"

typedef struct EmitPair {
    int result, argument; /* instructions */
} EmitPair;

typedef struct Emit {
    Arena *arena;
    Kernel *kernel;                  /* its axes stand already */
    uint32_t reduced;                /* bit i: kernel axis i is reduced */
    uint32_t lanes;                  /* bit i: kernel axis i is LANE or REDUCE_LANE */
    bool for_gpu;                    /* where a thread has few elements of a row (is_by_row) */
    VEC(EmitPair) tanhs;             /* tanh(y) and y: 1 + tanh(y) has a form of its own */
    VEC(EmitPair) widened, narrowed; /* numbers of small floats and their codes; codes and what was rounded to them */
    int *slots;                      /* open addressing over the instructions; -1: free */
    int slot_count;                  /* a power of two */
} Emit;

void emit_begin(Emit *e, Arena *arena, Kernel *kernel);
/* Any instruction; axes and stage are set here. Returns its number. */
int emit_inst(Emit *e, KernelInst inst);
int emit_op(Emit *e, KernelOp op, DType dtype, int a, int b, int c); /* unused arguments: 0 */
static inline int emit1(Emit *e, KernelOp op, DType dtype, int a) { return emit_op(e, op, dtype, a, 0, 0); }
static inline int emit2(Emit *e, KernelOp op, DType dtype, int a, int b) { return emit_op(e, op, dtype, a, b, 0); }
int emit_float(Emit *e, DType dtype, double value); /* rounded to f32 for f32 */
int emit_int(Emit *e, DType dtype, int64_t value);  /* wrapped to the type; bool too */
int emit_cast(Emit *e, DType dtype, int a);
DType emit_dtype(const Emit *e, int inst);
/* The value of a constant instruction. */
bool emit_is_float(const Emit *e, int inst, double *out_value);
bool emit_is_int(const Emit *e, int inst, int64_t *out_value);
/* Whether a float is never above 0, as the few instructions before it tell: what softmax takes the exponential of is not.
 * It may be NaN. */
bool emit_never_positive(const Emit *e, int inst);
/* Likewise whether it is never below the least normal number, as what has an epsilon added is not. */
bool emit_never_small(const Emit *e, int inst);
/* Leaves out what no store needs and puts the rest in an order that does not depend on that of emission: stores last,
 * as they were emitted, before them what they need, first arguments first. Nothing can be emitted afterwards. */
void emit_sweep(Emit *e);

#endif
