/* SPDX-License-Identifier: Apache-2.0 */
/* Instructions that compute: one function a family, for scalars and vectors alike. No fast-math: results are those of
 * kernel.h to the bit. */
#include "codegen/render/render.h"

typedef enum Kind { KIND_FLOAT, KIND_SIGNED, KIND_UNSIGNED } Kind;

static Kind kind_of(DType dtype) {
    return dtype_is_float(dtype) ? KIND_FLOAT : dtype_class(dtype) == DTYPE_SIGNED ? KIND_SIGNED : KIND_UNSIGNED;
}

static const KernelInst *argument(const Render *r, const KernelInst *inst, int n) {
    return r->slots[inst->args[n]].inst;
}

IrValue vector_index(Render *r, int axis, int copy) {
    IrValue base = r->index[axis];
    if (axis != r->vector_axis || r->lanes == 1) return base;
    base = build_add(r->builder, base, constant_i64(r, (int64_t)copy * r->lanes));
    return build_add(r->builder, splat(r, base, r->lanes), lane_iota(r, IR_I64, r->lanes));
}

static IrValue constant_of(Render *r, const KernelInst *inst, int lanes) {
    IrType type = type_compute(r, inst->dtype, lanes);
    if (!dtype_is_float(inst->dtype))
        return constant_int(r, type, inst->dtype == DT_BOOL ? inst->bits != 0 : inst->bits);
    double value;
    memcpy(&value, &inst->bits, sizeof value);
    if (value == value) return constant_real(r, type, value);
    /* a NaN's payload survives as bits: f64 to f32 drops low bits of the payload, as a conversion does */
    uint64_t bits = (uint64_t)inst->bits;
    if (inst->dtype == DT_F64)
        return build_cast(r->builder, IR_BITS, constant_int(r, type_integer(r, 64, type), inst->bits), type);
    uint32_t narrow = (uint32_t)(bits >> 63 << 31) | 0x7fc00000u | (uint32_t)(bits >> 29 & 0x3fffff);
    return build_cast(r->builder, IR_BITS, constant_int(r, type_integer(r, 32, type), (int32_t)narrow), type);
}

static IrValue compare(Render *r, KernelOp op, DType dtype, IrValue a, IrValue b) {
    static const struct {
        IrCompare real;
        IrCompare with_sign, without;
    } table[] = {
        {IR_FOEQ, IR_EQ, IR_EQ},   {IR_FUNE, IR_NE, IR_NE},   {IR_FOLT, IR_SLT, IR_ULT},
        {IR_FOLE, IR_SLE, IR_ULE}, {IR_FOGT, IR_SGT, IR_UGT}, {IR_FOGE, IR_SGE, IR_UGE},
    };
    int row = op - K_EQ;
    if (kind_of(dtype) == KIND_FLOAT) return build_compare(r->builder, table[row].real, a, b);
    bool is_signed = kind_of(dtype) == KIND_SIGNED;
    return build_compare(r->builder, is_signed ? table[row].with_sign : table[row].without, a, b);
}

/* Quotient of integers of at most 32 bits through floats: exact, since the quotient's distance from the next integer is
 * at least 1/|divisor|, far above the rounding error (24 bits serve operands of 16 bits, 53 those of 32). */
static IrValue divide_by_floats(Render *r, IrValue a, IrValue b, bool is_signed, int bits) {
    IrType type = ir_type(a);
    IrType real = type_lanes(bits <= 16 ? IR_F32 : IR_F64, type_lane_count(type));
    IrType wide = type_integer(r, 32, type);
    IrValue x = is_signed ? build_cast(r->builder, IR_SITOF, a, real) : build_cast(r->builder, IR_UITOF, a, real);
    IrValue y = is_signed ? build_cast(r->builder, IR_SITOF, b, real) : build_cast(r->builder, IR_UITOF, b, real);
    IrValue q = build_fdiv(r->builder, x, y);
    q = is_signed || bits <= 16 ? build_cast(r->builder, IR_FTOSI, q, wide) : build_cast(r->builder, IR_FTOUI, q, wide);
    return ir_type(q) == type ? q : build_cast(r->builder, IR_CUT, q, type);
}

/* x / 0 = 0, x % 0 = 0, MIN / -1 = MIN, MIN % -1 = 0: such divisors become 1. */
static IrValue divide_integers(Render *r, const KernelInst *inst, IrValue a, IrValue b) {
    bool is_signed = kind_of(inst->dtype) == KIND_SIGNED, quotient = inst->op == K_DIV;
    IrType type = ir_type(a);
    const KernelInst *divisor = argument(r, inst, 1);
    IrOp op = quotient ? (is_signed ? IR_SDIV : IR_UDIV) : is_signed ? IR_SREM : IR_UREM;
    bool constant = divisor->op == K_CONST, trap = is_signed && divisor->bits == -1;
    if (constant && divisor->bits == 0) return constant_int(r, type, 0);
    if (constant && !trap) return build_binop(r->builder, op, a, b);
    IrValue zero = constant_int(r, type, 0), is_zero = build_compare(r->builder, IR_EQ, b, zero), bad = is_zero;
    int bits = 8 * (int)dtype_size(inst->dtype);
    if (is_signed) {
        IrValue least = constant_int(r, type, (int64_t)((uint64_t)-1 << (bits - 1)));
        IrValue edge = build_and(r->builder, build_compare(r->builder, IR_EQ, a, least),
                                 build_compare(r->builder, IR_EQ, b, constant_int(r, type, -1)));
        bad = build_or(r->builder, bad, edge);
    }
    IrValue safe = build_select(r->builder, bad, constant_int(r, type, 1), b), q;
    if (bits <= 32 && type_lane_count(type) > 1) {
        q = divide_by_floats(r, a, safe, is_signed, bits);
        if (!quotient) return build_sub(r->builder, a, build_mul(r->builder, q, safe));
    } else {
        q = build_binop(r->builder, op, a, safe);
        if (!quotient) return q;
    }
    return build_select(r->builder, is_zero, zero, q);
}

static IrValue arithmetic(Render *r, const KernelInst *inst, IrValue a, IrValue b) {
    bool real = kind_of(inst->dtype) == KIND_FLOAT;
    switch (inst->op) {
    case K_ADD: return real ? build_fadd(r->builder, a, b) : build_add(r->builder, a, b);
    case K_SUB: return real ? build_fsub(r->builder, a, b) : build_sub(r->builder, a, b);
    case K_MUL: return real ? build_fmul(r->builder, a, b) : build_mul(r->builder, a, b);
    case K_DIV: return real ? build_fdiv(r->builder, a, b) : divide_integers(r, inst, a, b);
    case K_REM: return real ? convert_fmod(r, a, b) : divide_integers(r, inst, a, b);
    case K_MIN: return build_select(r->builder, compare(r, K_LT, inst->dtype, a, b), a, b);
    case K_MAX: return build_select(r->builder, compare(r, K_GT, inst->dtype, a, b), a, b);
    case K_AND: return build_and(r->builder, a, b);
    case K_OR: return build_or(r->builder, a, b);
    case K_XOR: return build_xor(r->builder, a, b);
    default: return NULL;
    }
}

typedef struct Pair {
    IrValue hi, lo; /* unevaluated sum */
} Pair;

/* x in two halves of 26 bits; beyond 2^996 the second is NaN. Dekker, "A floating-point technique for extending the
 * available precision", 1971. */
static Pair halves(Render *r, IrValue x) {
    IrBuilder *at = r->builder;
    IrValue big = build_fmul(at, x, constant_real(r, ir_type(x), 0x1p27 + 1));
    IrValue hi = build_fsub(at, big, build_fsub(at, big, x));
    return (Pair){hi, build_fsub(at, x, hi)};
}

/* a b = hi + lo exactly. */
static Pair product_of(Render *r, IrValue a, IrValue b) {
    IrBuilder *at = r->builder;
    Pair x = halves(r, a), y = halves(r, b);
    IrValue hi = build_fmul(at, a, b);
    IrValue lo = build_fsub(at, build_fmul(at, x.hi, y.hi), hi);
    lo = build_fadd(at, lo, build_fmul(at, x.hi, y.lo));
    lo = build_fadd(at, lo, build_fmul(at, x.lo, y.hi));
    return (Pair){hi, build_fadd(at, lo, build_fmul(at, x.lo, y.lo))};
}

/* a + b = hi + lo exactly (Knuth). */
static Pair sum_of(Render *r, IrValue a, IrValue b) {
    IrBuilder *at = r->builder;
    IrValue hi = build_fadd(at, a, b), second = build_fsub(at, hi, a);
    IrValue first = build_fsub(at, hi, second);
    return (Pair){hi, build_fadd(at, build_fsub(at, a, first), build_fsub(at, b, second))};
}

/* Without FMA hardware, and without a call: f32 through f64, whose product is exact and whose sum is rounded twice (to
 * 53, then to 24 bits; wrong in the last place for about one in 2^29 sums); f64 by the exact product and what the sum
 * loses, rounded twice too, and where the product is too large for its halves, or subnormal, without what it loses. */
IrValue fused(Render *r, IrValue *v) {
    IrType type = ir_type(v[0]);
    IrBuilder *at = r->builder;
    if (r->isa.fma) return build_fma(at, v[0], v[1], v[2]);
    IrType wide = type_lanes(IR_F64, type_lane_count(type));
    if (type == wide) {
        Pair product = product_of(r, v[0], v[1]), sum = sum_of(r, product.hi, v[2]);
        IrValue lost = build_fadd(at, sum.lo, product.lo);
        IrValue some = build_compare(at, IR_FONE, lost, constant_real(r, type, 0));
        return build_select(at, some, build_fadd(at, sum.hi, lost), sum.hi);
    }
    IrValue w[3];
    for (int i = 0; i < 3; i++) w[i] = build_cast(at, IR_FEXT, v[i], wide);
    IrValue sum = build_fadd(at, build_fmul(at, w[0], w[1]), w[2]);
    return build_cast(at, IR_FCUT, sum, type);
}

static IrValue shift(Render *r, const KernelInst *inst, IrValue a, IrValue b) {
    IrType type = ir_type(a);
    int bits = 8 * (int)dtype_size(inst->dtype);
    bool arithmetic_shift = inst->op == K_SHR && kind_of(inst->dtype) == KIND_SIGNED;
    IrOp op = inst->op == K_SHL ? IR_SHL : arithmetic_shift ? IR_ASHR : IR_LSHR;
    const KernelInst *distance = argument(r, inst, 1);
    bool constant = distance->op == K_CONST, inside = constant && distance->bits >= 0 && distance->bits < bits;
    if (inside) return build_binop(r->builder, op, a, b);
    IrValue fits = build_compare(r->builder, IR_ULT, b, constant_int(r, type, bits));
    IrValue far = constant_int(r, type, arithmetic_shift ? bits - 1 : 0);
    IrValue shifted = build_binop(r->builder, op, a, build_select(r->builder, fits, b, far));
    return arithmetic_shift ? shifted : build_select(r->builder, fits, shifted, constant_int(r, type, 0));
}

static IrValue negate(Render *r, const KernelInst *inst, IrValue a) {
    return kind_of(inst->dtype) == KIND_FLOAT ? build_unary(r->builder, IR_FNEG, a) : build_neg(r->builder, a);
}

static IrValue absolute(Render *r, const KernelInst *inst, IrValue a) {
    Kind kind = kind_of(inst->dtype);
    if (kind == KIND_UNSIGNED) return a;
    if (kind == KIND_FLOAT) return build_unary(r->builder, IR_FABS, a);
    IrValue below = build_compare(r->builder, IR_SLT, a, constant_int(r, ir_type(a), 0));
    return build_select(r->builder, below, build_neg(r->builder, a), a);
}

static IrValue round_narrow(Render *r, IrValue a, DType narrow) {
    return convert_from_memory(r, convert_to_memory(r, a, narrow), narrow);
}

IrValue render_arithmetic(Render *r, const KernelInst *inst, IrValue *v) {
    switch (inst->op) {
    case K_CONST: return constant_of(r, inst, r->lanes);
    case K_PARAM: return r->params[inst->bits];
    case K_FMA: return fused(r, v);
    case K_SCALE: return special_scale(r, inst, v[0], v[1]);
    case K_NEG: return negate(r, inst, v[0]);
    case K_ABS: return absolute(r, inst, v[0]);
    case K_SQRT: return build_unary(r->builder, IR_SQRT, v[0]);
    case K_FLOOR:
    case K_CEIL:
    case K_TRUNC:
    case K_RINT: return render_round(r, v[0], inst->op);
    case K_NOT: return build_not(r->builder, v[0]);
    case K_SHL:
    case K_SHR: return shift(r, inst, v[0], v[1]);
    case K_EQ:
    case K_NE:
    case K_LT:
    case K_LE:
    case K_GT:
    case K_GE: return compare(r, inst->op, argument(r, inst, 0)->dtype, v[0], v[1]);
    case K_SELECT: return build_select(r->builder, v[0], v[1], v[2]);
    case K_CAST: return render_cast(r, v[0], argument(r, inst, 0)->dtype, inst->dtype);
    case K_BITCAST: return build_cast(r->builder, IR_BITS, v[0], type_compute(r, inst->dtype, r->lanes));
    case K_ROUND_F16: return round_narrow(r, v[0], DT_F16);
    case K_ROUND_BF16: return round_narrow(r, v[0], DT_BF16);
    default: return arithmetic(r, inst, v[0], v[1]);
    }
}
