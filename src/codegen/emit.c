/* SPDX-License-Identifier: Apache-2.0 */
/* Instructions are found again by the hash of their bytes, so every unused field is zero. */
#include "codegen/emit.h"

#include <float.h>
#include <math.h>
#include "base/map.h"

void emit_begin(Emit *e, Arena *arena, Kernel *kernel) {
    *e = (Emit){.arena = arena, .kernel = kernel, .slot_count = 256};
    e->slots = ARENA_ARRAY(arena, int, e->slot_count);
    memset(e->slots, -1, (size_t)e->slot_count * sizeof *e->slots);
    for (int i = 0; i < kernel->axis_count; i++) {
        AxisRole role = kernel->axes[i].role;
        if (role == AXIS_REDUCE || role == AXIS_REDUCE_LANE) e->reduced |= 1u << i;
        if (role == AXIS_LANE || role == AXIS_REDUCE_LANE) e->lanes |= 1u << i;
    }
}

DType emit_dtype(const Emit *e, int inst) { return e->kernel->insts.items[inst].dtype; }

/* ---- instructions once each ---- */

static uint64_t hash_inst(const KernelInst *i) {
    int64_t key[7] = {(int64_t)i->op * 64 + i->dtype, i->args[0], i->args[1], i->args[2], i->bits, i->axis, i->buffer};
    return hash_bytes(key, sizeof key, 0);
}

static int *slot_of(Emit *e, const KernelInst *inst) {
    for (uint64_t h = hash_inst(inst);; h++) {
        int *slot = &e->slots[h & (uint64_t)(e->slot_count - 1)];
        if (*slot < 0 || kernel_same_inst(e->kernel, &e->kernel->insts.items[*slot], inst)) return slot;
    }
}

static void grow(Emit *e) {
    e->slot_count *= 2;
    e->slots = ARENA_ARRAY(e->arena, int, e->slot_count);
    memset(e->slots, -1, (size_t)e->slot_count * sizeof *e->slots);
    for (int i = 0; i < e->kernel->insts.count; i++)
        if (e->kernel->insts.items[i].op != K_STORE) *slot_of(e, &e->kernel->insts.items[i]) = i;
}

static void set_axes(const Emit *e, KernelInst *inst) {
    const Kernel *k = e->kernel;
    inst->axes = 0;
    inst->stage = 0;
    for (int i = 0; i < kernel_op_args(inst->op); i++) {
        const KernelInst *arg = &k->insts.items[inst->args[i]];
        int ready = arg->stage + kernel_op_is_reduce(arg->op);
        inst->axes |= arg->axes;
        if (ready > inst->stage) inst->stage = ready;
    }
    if (inst->op == K_INDEX) inst->axes = 1u << inst->axis;
    if (inst->op == K_LOAD || inst->op == K_STORE)
        for (int i = 0; i < k->axis_count; i++)
            if (inst->access->kind[i] != STRIDE_ZERO) inst->axes |= 1u << i;
    if (kernel_op_is_reduce(inst->op)) inst->axes &= ~e->reduced;
}

int emit_inst(Emit *e, KernelInst inst) {
    if (e->kernel->insts.count * 2 >= e->slot_count) grow(e);
    int *slot = NULL;
    if (inst.op != K_STORE) {
        slot = slot_of(e, &inst);
        if (*slot >= 0) return *slot;
        *slot = e->kernel->insts.count;
    }
    set_axes(e, &inst);
    VEC_PUSH(e->arena, e->kernel->insts, inst);
    return e->kernel->insts.count - 1;
}

/* ---- constants ---- */

static int64_t wrap(DType t, int64_t x) {
    switch (t) {
    case DT_BOOL: return x != 0;
    case DT_I8: return (int8_t)x;
    case DT_I16: return (int16_t)x;
    case DT_I32: return (int32_t)x;
    case DT_U8: return (uint8_t)x;
    case DT_U16: return (uint16_t)x;
    case DT_U32: return (uint32_t)x;
    default: return x;
    }
}

int emit_float(Emit *e, DType dtype, double value) {
    KernelInst inst = {.op = K_CONST, .dtype = dtype};
    if (dtype == DT_F32) value = (double)(float)value;
    if (value != value) value = (double)NAN;
    memcpy(&inst.bits, &value, sizeof value);
    return emit_inst(e, inst);
}

int emit_int(Emit *e, DType dtype, int64_t value) {
    return emit_inst(e, (KernelInst){.op = K_CONST, .dtype = dtype, .bits = wrap(dtype, value)});
}

bool emit_is_float(const Emit *e, int inst, double *out_value) {
    const KernelInst *i = &e->kernel->insts.items[inst];
    if (i->op != K_CONST || !dtype_is_float(i->dtype)) return false;
    memcpy(out_value, &i->bits, sizeof *out_value);
    return true;
}

bool emit_is_int(const Emit *e, int inst, int64_t *out_value) {
    const KernelInst *i = &e->kernel->insts.items[inst];
    if (i->op != K_CONST || dtype_is_float(i->dtype)) return false;
    *out_value = i->bits;
    return true;
}

/* ---- signs ---- */

enum { MOST_STEPS = 4 }; /* back from an instruction */

/* Whether one of two arguments is a constant of at least `least`, times the sign. The greater of it and anything is so then, the less likewise;
 * the greater of two that may be NaN need not be either. */
static bool is_bounded(const Emit *e, const KernelInst *i, int sign, double least) {
    double value;
    for (int n = 0; n < 2; n++)
        if (emit_is_float(e, i->args[n], &value) && value * sign >= least) return true;
    return false;
}

/* sign: 1, never below 0, or -1, never above. */
static bool has_sign(const Emit *e, int inst, int sign, int steps) {
    const KernelInst *i = &e->kernel->insts.items[inst], *second = &e->kernel->insts.items[i->args[1]];
    double value;
    if (!dtype_is_float(i->dtype) || steps == 0) return false;
    if (emit_is_float(e, inst, &value)) return value * sign >= 0;
    steps--;
    switch (i->op) {
    case K_SCALE: /* e^x alone is made by it (math.c) */
    case K_ABS:
    case K_SQRT: return sign > 0;
    case K_NEG: return has_sign(e, i->args[0], -sign, steps);
    case K_ROUND_F16:
    case K_ROUND_BF16: return has_sign(e, i->args[0], sign, steps);
    case K_ADD: return has_sign(e, i->args[0], sign, steps) && has_sign(e, i->args[1], sign, steps);
    case K_SUB:
        if (second->op == K_REDUCE_MAX && second->args[0] == i->args[0]) return sign < 0;
        return has_sign(e, i->args[0], sign, steps) && has_sign(e, i->args[1], -sign, steps);
    case K_MUL:
        for (int s = -1; s <= 1; s += 2)
            if (has_sign(e, i->args[0], s, steps) && has_sign(e, i->args[1], s * sign, steps)) return true;
        return false;
    case K_MIN: return sign < 0 && is_bounded(e, i, sign, 0);
    case K_MAX: return sign > 0 && is_bounded(e, i, sign, 0);
    default: return false;
    }
}

bool emit_never_positive(const Emit *e, int inst) { return has_sign(e, inst, -1, MOST_STEPS); }

bool emit_never_small(const Emit *e, int inst) {
    const KernelInst *i = &e->kernel->insts.items[inst];
    const double least = i->dtype == DT_F32 ? (double)FLT_MIN : DBL_MIN;
    double value;
    if (emit_is_float(e, inst, &value)) return value >= least;
    if (i->op == K_MAX) return is_bounded(e, i, 1, least);
    return i->op == K_ADD && is_bounded(e, i, 1, least) && has_sign(e, inst, 1, MOST_STEPS);
}

/* ---- what folds ---- */

/* Integers and bool. */
static bool fold_int(KernelOp op, DType t, int64_t x, int64_t y, int64_t *out) {
    uint64_t a = (uint64_t)x, b = (uint64_t)y, width = dtype_size(t) * 8;
    switch (op) {
    case K_ADD: *out = (int64_t)(a + b); return true;
    case K_SUB: *out = (int64_t)(a - b); return true;
    case K_MUL: *out = (int64_t)(a * b); return true;
    case K_AND: *out = (int64_t)(a & b); return true;
    case K_OR: *out = (int64_t)(a | b); return true;
    case K_XOR: *out = (int64_t)(a ^ b); return true;
    case K_SHL: *out = b < width ? (int64_t)(a << b) : 0; return true;
    case K_SHR:
        if (dtype_class(t) == DTYPE_SIGNED)
            *out = x >> (b < width ? b : 63);
        else
            *out = b < width ? (int64_t)(a >> b) : 0;
        return true;
    default: return false;
    }
}

/* Where one operand alone decides: -1 when it does not. */
static int simplify_int(Emit *e, KernelOp op, DType t, int a, int b) {
    int64_t x, y;
    bool left = emit_is_int(e, a, &x), right = emit_is_int(e, b, &y);
    int64_t folded;
    if (left && right && fold_int(op, t, x, y, &folded)) return emit_int(e, t, folded);
    bool shift = op == K_SHL || op == K_SHR;
    if (right && y == 0 && (op == K_ADD || op == K_SUB || op == K_OR || op == K_XOR || shift)) return a;
    if (left && x == 0 && (op == K_ADD || op == K_OR || op == K_XOR)) return b;
    if (right && y == 0 && (op == K_MUL || op == K_AND)) return b;
    if (left && x == 0 && (op == K_MUL || op == K_AND || shift)) return a;
    if (right && y == 1 && (op == K_MUL || op == K_DIV)) return a;
    if (left && x == 1 && op == K_MUL) return b;
    return -1;
}

/* x >> n < y is x < y << n, where that is no overflow: bits that leave decide nothing. Likewise of >=. */
static int compare_unshifted(Emit *e, KernelOp op, int a, int b) {
    const KernelInst *shift = &e->kernel->insts.items[a];
    int64_t by, bound;
    if ((op != K_LT && op != K_GE) || shift->op != K_SHR || dtype_class(shift->dtype) != DTYPE_UNSIGNED) return -1;
    if (!emit_is_int(e, shift->args[1], &by) || !emit_is_int(e, b, &bound)) return -1;
    const int64_t bits = 8 * (int64_t)dtype_size(shift->dtype);
    if (bits == 64 || by < 0 || by >= bits || bound < 0 || bound >> (bits - by)) return -1;
    const int value = shift->args[0];
    return emit2(e, op, DT_BOOL, value, emit_int(e, emit_dtype(e, value), bound << by));
}

static bool is_power_of_two(double x) {
    int exponent;
    return fabs(frexp(x, &exponent)) == 0.5 && fabs(x) > 1e-30 && fabs(x) < 1e30;
}

/* Results that hold for every other operand, NaN and signed zeros included. */
static int simplify_float(Emit *e, KernelOp op, DType t, int a, int b) {
    double x, y;
    bool left = emit_is_float(e, a, &x), right = emit_is_float(e, b, &y);
    if (left && right && (op == K_ADD || op == K_SUB || op == K_MUL || op == K_DIV)) {
        /* double rounding of one such operation on floats is the float's own rounding (Figueroa, 1995) */
        return emit_float(e, t, op == K_ADD ? x + y : op == K_SUB ? x - y : op == K_MUL ? x * y : x / y);
    }
    if (right && y == 1 && (op == K_MUL || op == K_DIV)) return a;
    if (left && x == 1 && op == K_MUL) return b;
    if (right && y == 0 && ((op == K_ADD && signbit(y)) || (op == K_SUB && !signbit(y)))) return a;
    if (right && op == K_DIV && is_power_of_two(y)) return emit2(e, K_MUL, t, a, emit_float(e, t, 1 / y));
    return -1;
}

/* ---- emission ---- */

static bool commutes(KernelOp op) {
    return op == K_ADD || op == K_MUL || op == K_AND || op == K_OR || op == K_XOR || op == K_EQ || op == K_NE;
}

static int simplify(Emit *e, KernelOp op, DType t, int a, int b, int c) {
    int64_t condition;
    if (op == K_SELECT && b == c) return b;
    if (op == K_SELECT && emit_is_int(e, a, &condition)) return condition ? b : c;
    if (kernel_op_args(op) != 2) return -1;
    DType operands = emit_dtype(e, a);
    if (operands != t) return compare_unshifted(e, op, a, b);
    return dtype_is_float(t) ? simplify_float(e, op, t, a, b) : simplify_int(e, op, t, a, b);
}

/* Whether many elements are divided by one (divide.h): the divisor stays the same along the lanes, or from row to row
 * of a reduction. Without reductions a thread of a GPU has few elements of a row: it gains by constants alone. */
static bool is_by_row(const Emit *e, int a, int b) {
    const KernelInst *insts = e->kernel->insts.items;
    bool varies = insts[a].axes & e->lanes, lanes = !(insts[b].axes & e->lanes);
    if (e->for_gpu && !e->reduced && insts[b].op != K_CONST) return false;
    return varies && (lanes || insts[a].axes & e->reduced & ~insts[b].axes);
}

int emit_op(Emit *e, KernelOp op, DType dtype, int a, int b, int c) {
    int simple = simplify(e, op, dtype, a, b, c);
    if (simple >= 0) return simple;
    if (commutes(op) && e->kernel->insts.items[a].op == K_CONST) {
        int swap = a;
        a = b;
        b = swap;
    }
    bool by_row = op == K_DIV && dtype == DT_F32 && is_by_row(e, a, b);
    return emit_inst(e, (KernelInst){.op = op, .dtype = dtype, .args = {a, b, c}, .bits = by_row});
}

/* Of 8 or 16 bits, and not of fewer that are held so. */
static bool is_narrow(DType dtype) { return dtype == DT_U8 || dtype == DT_I8 || dtype == DT_U16 || dtype == DT_I16; }

/* What is between bounds no narrower than the type's own: casts to it saturate by themselves. */
static int without_bounds(const Emit *e, DType dtype, int a) {
    const KernelInst *insts = e->kernel->insts.items, *least = &insts[a], *most = &insts[least->args[1]];
    int bits = 8 * (int)dtype_size(dtype), is_signed = dtype_class(dtype) == DTYPE_SIGNED;
    double low, high;
    if (!is_narrow(dtype) || least->op != K_MIN || most->op != K_MAX) return a;
    if (!emit_is_float(e, least->args[0], &high) || !emit_is_float(e, most->args[0], &low)) return a;
    bool wide = low <= (is_signed ? -ldexp(1, bits - 1) : 0) && high >= ldexp(1, bits - is_signed) - 1;
    return wide ? most->args[1] : a;
}

/* Whether a float is a whole number, infinite or NaN. */
static bool is_whole(const Emit *e, int a) {
    const KernelInst *i = &e->kernel->insts.items[a];
    double x;
    if (i->op == K_ADD || i->op == K_SUB)
        return emit_is_float(e, i->args[1], &x) && x == rint(x) && is_whole(e, i->args[0]);
    return i->op == K_RINT || i->op == K_FLOOR || i->op == K_CEIL || i->op == K_TRUNC;
}

/* To a narrow type without sign and back, as a quantization and its inverse do: bounds are all that it comes to, of which the lower one
 * takes NaN and -0 to 0, as the cast does. -1: it is something else. */
static int cast_and_back(Emit *e, DType dtype, int cast) {
    const KernelInst *i = &e->kernel->insts.items[cast];
    DType narrow = i->dtype;
    int a = i->args[0];
    if (i->op != K_CAST || (narrow != DT_U8 && narrow != DT_U16)) return -1;
    if (!dtype_is_float(dtype) || emit_dtype(e, a) != dtype || !is_whole(e, a)) return -1;
    int raised = emit2(e, K_MAX, dtype, a, emit_float(e, dtype, 0));
    return emit2(e, K_MIN, dtype, emit_float(e, dtype, ldexp(1, 8 * (int)dtype_size(narrow)) - 1), raised);
}

int emit_cast(Emit *e, DType dtype, int a) {
    DType from = emit_dtype(e, a);
    double x;
    int64_t i;
    if (from == dtype) return a;
    if (emit_is_int(e, a, &i)) {
        if (!dtype_is_float(dtype)) return emit_int(e, dtype, i);
        if (from != DT_U64 || i >= 0) {
            if (dtype == DT_F64 || (i > -(1 << 24) && i < 1 << 24)) return emit_float(e, dtype, (double)i);
        }
    }
    if (emit_is_float(e, a, &x) && dtype_is_float(dtype)) return emit_float(e, dtype, x);
    if (dtype_is_float(from)) a = without_bounds(e, dtype, a);
    int back = cast_and_back(e, dtype, a);
    return back >= 0 ? back : emit1(e, K_CAST, dtype, a);
}

/* ---- what is needed ---- */

typedef struct Sweep {
    Arena *arena;
    const KernelInst *from;
    int *number; /* new number + 1, of instructions that stand already */
    VEC(int) stack;
    VEC(KernelInst) to;
} Sweep;

static void place(Sweep *s, int index) {
    KernelInst inst = s->from[index];
    for (int n = 0; n < kernel_op_args(inst.op); n++) inst.args[n] = s->number[inst.args[n]] - 1;
    VEC_PUSH(s->arena, s->to, inst);
    s->number[index] = s->to.count;
}

/* Places `index` behind all that it needs, first arguments first. */
static void place_tree(Sweep *s, int index) {
    VEC_PUSH(s->arena, s->stack, index);
    while (s->stack.count) {
        int top = s->stack.items[s->stack.count - 1], missing = -1;
        const KernelInst *inst = &s->from[top];
        for (int n = 0; missing < 0 && n < kernel_op_args(inst->op); n++)
            if (!s->number[inst->args[n]]) missing = inst->args[n];
        if (missing >= 0) {
            VEC_PUSH(s->arena, s->stack, missing);
            continue;
        }
        if (!s->number[top]) place(s, top);
        s->stack.count--;
    }
}

void emit_sweep(Emit *e) {
    Kernel *k = e->kernel;
    Sweep s = {.arena = e->arena, .from = k->insts.items};
    s.number = ARENA_ARRAY(e->arena, int, k->insts.count + 1);
    for (int i = 0; i < k->insts.count; i++)
        if (s.from[i].op == K_STORE) place_tree(&s, s.from[i].args[0]);
    for (int i = 0; i < k->insts.count; i++)
        if (s.from[i].op == K_STORE) place(&s, i);
    k->insts.items = s.to.items;
    k->insts.count = s.to.count;
    k->insts.capacity = s.to.capacity;
}
