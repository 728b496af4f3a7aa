/* SPDX-License-Identifier: Apache-2.0 */
/* Scales and zero points become parameters: they are what differs from layer to layer of a quantized model, whose kernels are the same
 * else.
 *
 * They are found by where they stand: beside a rounding (x / scale rounded, plus the zero point; to a small float, too), beside a
 * conversion from integers and small floats (less the zero point, times the scale), and beside sums of integers. Which of them
 * happen to be equal differs from layer to layer, too, so each rounding and each tensor has parameters of its own. */
#include <math.h>

#include "base/math/divide.h"
#include "codegen/lower/lower_region.h"

typedef struct Number {
    int constant, root; /* instructions: the constant, and the rounding or tensor that it is for */
    bool zero_point;    /* it is added or taken off, no factor */
    int param;          /* the instruction that takes its place */
} Number;

typedef struct Numbers {
    Lowered *l;
    VEC(Number) found;
} Numbers;

static const KernelInst *at(const Numbers *n, int inst) { return &n->l->kernel->insts.items[inst]; }

/* Numbers that divisions treat alike (divide.h); of integers all. */
static bool may_be_param(const KernelInst *i) {
    double value;
    memcpy(&value, &i->bits, sizeof value);
    if (i->op != K_CONST) return false;
    return i->dtype == DT_I32 || (i->dtype == DT_F32 && fabs(value) >= DIVISOR_LEAST && fabs(value) <= DIVISOR_MOST);
}

static int64_t param_value(const KernelInst *constant) {
    double value;
    if (constant->dtype == DT_I32) return (uint32_t)constant->bits;
    memcpy(&value, &constant->bits, sizeof value);
    return kernel_param_of_number((float)value);
}

static int param_for(Numbers *n, int constant, int root, bool zero_point) {
    for (int i = 0; i < n->found.count; i++)
        if (n->found.items[i].constant == constant && n->found.items[i].root == root &&
            n->found.items[i].zero_point == zero_point)
            return n->found.items[i].param;
    if (n->found.count == KERNEL_NUMBERS) return constant;
    Lowered *l = n->l;
    VEC_PUSH(l->arena, l->params, dim_const(l->dims, param_value(at(n, constant))));
    KernelInst param = {.op = K_PARAM, .dtype = at(n, constant)->dtype, .bits = l->params.count - 1};
    Number number = {constant, root, zero_point, emit_inst(&l->emit, param)};
    VEC_PUSH(l->arena, n->found, number);
    return number.param;
}

/* The constants among an instruction's arguments. */
static void replace(Numbers *n, int inst, int root) {
    for (int i = 0; i < kernel_op_args(at(n, inst)->op); i++) {
        int constant = at(n, inst)->args[i];
        if (!may_be_param(at(n, constant))) continue;
        int param = param_for(n, constant, root, at(n, inst)->op == K_ADD || at(n, inst)->op == K_SUB);
        n->l->kernel->insts.items[inst].args[i] = param;
    }
}

/* Of a number that is one of a small float's: its code; else -1. */
static int code_of(const Numbers *n, int inst) {
    const Emit *e = &n->l->emit;
    for (int i = 0; i < e->widened.count; i++)
        if (e->widened.items[i].result == inst) return e->widened.items[i].argument;
    return -1;
}

static bool is_narrowed(const Numbers *n, int inst) {
    const Emit *e = &n->l->emit;
    for (int i = 0; i < e->narrowed.count; i++)
        if (e->narrowed.items[i].result == inst) return true;
    return false;
}

/* The rounding or the tensor that an integer or a small float comes from, past bounds and zero points; -1: neither. */
static int root_of(const Numbers *n, int inst) {
    for (;;) {
        const KernelInst *i = at(n, inst);
        if (i->op == K_RINT || i->op == K_LOAD || is_narrowed(n, inst)) return inst;
        int code = code_of(n, inst);
        if (code >= 0) {
            inst = code;
            continue;
        }
        bool bound = i->op == K_MIN || i->op == K_MAX, sum = i->op == K_ADD || i->op == K_SUB;
        if (i->op != K_CAST && !bound && !sum) return -1;
        inst = bound && at(n, i->args[0])->op == K_CONST ? i->args[1] : i->args[0];
    }
}

/* From an integer or a small float; an integer that was made on the spot is a whole number between bounds (emit_cast). */
static bool is_converted(const Numbers *n, int inst) {
    const KernelInst *i = at(n, inst);
    if (i->op == K_MIN) return root_of(n, inst) >= 0 && at(n, root_of(n, inst))->op == K_RINT;
    if (code_of(n, inst) >= 0) return true;
    return i->op == K_CAST && i->dtype == DT_F32 && dtype_is_integer(at(n, i->args[0])->dtype);
}

/* Integers loaded, widened, summed up, or a sum or product of such. */
static bool is_integer_sum(const Numbers *n, int inst) {
    const KernelInst *i = at(n, inst);
    while (i->dtype == DT_I32 && (i->op == K_ADD || i->op == K_SUB || i->op == K_MUL)) i = at(n, i->args[0]);
    bool widened = i->op == K_CAST && dtype_is_integer(at(n, i->args[0])->dtype) && at(n, i->args[0])->op == K_LOAD;
    return i->dtype == DT_I32 && (i->op == K_LOAD || i->op == K_REDUCE_SUM || widened);
}

static bool is_scaled(const Numbers *n, int inst) { return at(n, inst)->op == K_DIV || at(n, inst)->op == K_MUL; }

static void look_at(Numbers *n, int inst) {
    const KernelInst *i = at(n, inst);
    if (i->dtype == DT_I32 && (i->op == K_ADD || i->op == K_SUB || i->op == K_MUL) && is_integer_sum(n, i->args[0]))
        replace(n, inst, inst);
    if (i->dtype != DT_F32) return;
    if (i->op == K_RINT && is_scaled(n, i->args[0])) replace(n, i->args[0], inst);
    if (i->op == K_ADD && at(n, i->args[0])->op == K_RINT) replace(n, inst, i->args[0]);
    if (i->op != K_SUB && i->op != K_MUL) return;
    bool less_zero = i->op == K_MUL && at(n, i->args[0])->op == K_SUB && is_converted(n, at(n, i->args[0])->args[0]);
    int root = less_zero || is_converted(n, i->args[0]) ? root_of(n, i->args[0]) : -1;
    if (root >= 0) replace(n, inst, root);
}

void numbers_as_params(Lowered *l) {
    Numbers n = {.l = l};
    for (int i = 0, count = l->kernel->insts.count; i < count; i++) look_at(&n, i);
    for (int i = 0; i < l->emit.narrowed.count; i++) {
        EmitPair narrowed = l->emit.narrowed.items[i];
        if (is_scaled(&n, narrowed.argument)) replace(&n, narrowed.argument, narrowed.result);
    }
}
