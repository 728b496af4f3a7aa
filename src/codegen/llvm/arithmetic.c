/* SPDX-License-Identifier: Apache-2.0 */
/* Instructions that compute: one function a family, for scalars and vectors alike. No fast-math: results are those of
 * kernel.h to the bit. */
#include "codegen/llvm/render.h"

typedef enum Kind { KIND_FLOAT, KIND_SIGNED, KIND_UNSIGNED } Kind;

static Kind kind_of(DType dtype) {
    return dtype_is_float(dtype) ? KIND_FLOAT : dtype_class(dtype) == DTYPE_SIGNED ? KIND_SIGNED : KIND_UNSIGNED;
}

static const KernelInst *argument(const Render *r, const KernelInst *inst, int n) {
    return r->slots[inst->args[n]].inst;
}

LLVMValueRef vector_index(Render *r, int axis, int copy) {
    LLVMValueRef base = r->index[axis];
    if (axis != r->vector_axis || r->lanes == 1) return base;
    base = LLVMBuildAdd(r->builder, base, constant_i64(r, (int64_t)copy * r->lanes), "");
    return LLVMBuildAdd(r->builder, splat(r, base, r->lanes), iota(r, r->i64, r->lanes), "");
}

static LLVMValueRef constant_of(Render *r, const KernelInst *inst, int lanes) {
    LLVMTypeRef type = type_compute(r, inst->dtype, lanes);
    if (!dtype_is_float(inst->dtype)) return constant_int(type, inst->dtype == DT_BOOL ? inst->bits != 0 : inst->bits);
    double value;
    memcpy(&value, &inst->bits, sizeof value);
    if (value == value) return constant_real(type, value);
    /* a NaN's payload survives as bits: f64 to f32 drops low bits of the payload, as a conversion does */
    uint64_t bits = (uint64_t)inst->bits;
    if (inst->dtype == DT_F64) return LLVMConstBitCast(constant_int(type_integer(r, 64, type), inst->bits), type);
    uint32_t narrow = (uint32_t)(bits >> 63 << 31) | 0x7fc00000u | (uint32_t)(bits >> 29 & 0x3fffff);
    return LLVMConstBitCast(constant_int(type_integer(r, 32, type), (int32_t)narrow), type);
}

static LLVMValueRef compare(Render *r, KernelOp op, DType dtype, LLVMValueRef a, LLVMValueRef b) {
    static const struct {
        LLVMRealPredicate real;
        LLVMIntPredicate with_sign, without;
    } table[] = {
        {LLVMRealOEQ, LLVMIntEQ, LLVMIntEQ},   {LLVMRealUNE, LLVMIntNE, LLVMIntNE},
        {LLVMRealOLT, LLVMIntSLT, LLVMIntULT}, {LLVMRealOLE, LLVMIntSLE, LLVMIntULE},
        {LLVMRealOGT, LLVMIntSGT, LLVMIntUGT}, {LLVMRealOGE, LLVMIntSGE, LLVMIntUGE},
    };
    int row = op - K_EQ;
    if (kind_of(dtype) == KIND_FLOAT) return LLVMBuildFCmp(r->builder, table[row].real, a, b, "");
    bool is_signed = kind_of(dtype) == KIND_SIGNED;
    return LLVMBuildICmp(r->builder, is_signed ? table[row].with_sign : table[row].without, a, b, "");
}

/* Quotient of integers of at most 32 bits through floats: exact, since the quotient's distance from the next integer is
 * at least 1/|divisor|, far above the rounding error (24 bits serve operands of 16 bits, 53 those of 32). */
static LLVMValueRef divide_by_floats(Render *r, LLVMValueRef a, LLVMValueRef b, bool is_signed, int bits) {
    LLVMTypeRef type = LLVMTypeOf(a);
    LLVMTypeRef real = type_lanes(bits <= 16 ? LLVMFloatTypeInContext(r->context) : LLVMDoubleTypeInContext(r->context),
                                  type_lane_count(type));
    LLVMTypeRef wide = type_integer(r, 32, type);
    LLVMValueRef x = is_signed ? LLVMBuildSIToFP(r->builder, a, real, "") : LLVMBuildUIToFP(r->builder, a, real, "");
    LLVMValueRef y = is_signed ? LLVMBuildSIToFP(r->builder, b, real, "") : LLVMBuildUIToFP(r->builder, b, real, "");
    LLVMValueRef q = LLVMBuildFDiv(r->builder, x, y, "");
    q = is_signed || bits <= 16 ? LLVMBuildFPToSI(r->builder, q, wide, "") : LLVMBuildFPToUI(r->builder, q, wide, "");
    return LLVMTypeOf(q) == type ? q : LLVMBuildTrunc(r->builder, q, type, "");
}

/* x / 0 = 0, x % 0 = 0, MIN / -1 = MIN, MIN % -1 = 0: such divisors become 1. */
static LLVMValueRef divide_integers(Render *r, const KernelInst *inst, LLVMValueRef a, LLVMValueRef b) {
    bool is_signed = kind_of(inst->dtype) == KIND_SIGNED, quotient = inst->op == K_DIV;
    LLVMTypeRef type = LLVMTypeOf(a);
    const KernelInst *divisor = argument(r, inst, 1);
    LLVMOpcode op = quotient ? (is_signed ? LLVMSDiv : LLVMUDiv) : is_signed ? LLVMSRem : LLVMURem;
    bool constant = divisor->op == K_CONST, trap = is_signed && divisor->bits == -1;
    if (constant && divisor->bits == 0) return constant_int(type, 0);
    if (constant && !trap) return LLVMBuildBinOp(r->builder, op, a, b, "");
    LLVMValueRef zero = constant_int(type, 0), is_zero = LLVMBuildICmp(r->builder, LLVMIntEQ, b, zero, ""),
                 bad = is_zero;
    int bits = 8 * (int)dtype_size(inst->dtype);
    if (is_signed) {
        LLVMValueRef least = constant_int(type, (int64_t)((uint64_t)-1 << (bits - 1)));
        LLVMValueRef edge = LLVMBuildAnd(r->builder, LLVMBuildICmp(r->builder, LLVMIntEQ, a, least, ""),
                                         LLVMBuildICmp(r->builder, LLVMIntEQ, b, constant_int(type, -1), ""), "");
        bad = LLVMBuildOr(r->builder, bad, edge, "");
    }
    LLVMValueRef safe = LLVMBuildSelect(r->builder, bad, constant_int(type, 1), b, ""), q;
    if (bits <= 32 && type_lane_count(type) > 1) {
        q = divide_by_floats(r, a, safe, is_signed, bits);
        if (!quotient) return LLVMBuildSub(r->builder, a, LLVMBuildMul(r->builder, q, safe, ""), "");
    } else {
        q = LLVMBuildBinOp(r->builder, op, a, safe, "");
        if (!quotient) return q;
    }
    return LLVMBuildSelect(r->builder, is_zero, zero, q, "");
}

static LLVMValueRef arithmetic(Render *r, const KernelInst *inst, LLVMValueRef a, LLVMValueRef b) {
    bool real = kind_of(inst->dtype) == KIND_FLOAT;
    switch (inst->op) {
    case K_ADD: return real ? LLVMBuildFAdd(r->builder, a, b, "") : LLVMBuildAdd(r->builder, a, b, "");
    case K_SUB: return real ? LLVMBuildFSub(r->builder, a, b, "") : LLVMBuildSub(r->builder, a, b, "");
    case K_MUL: return real ? LLVMBuildFMul(r->builder, a, b, "") : LLVMBuildMul(r->builder, a, b, "");
    case K_DIV: return real ? LLVMBuildFDiv(r->builder, a, b, "") : divide_integers(r, inst, a, b);
    case K_REM: return real ? convert_fmod(r, a, b) : divide_integers(r, inst, a, b);
    case K_MIN: return LLVMBuildSelect(r->builder, compare(r, K_LT, inst->dtype, a, b), a, b, "");
    case K_MAX: return LLVMBuildSelect(r->builder, compare(r, K_GT, inst->dtype, a, b), a, b, "");
    case K_AND: return LLVMBuildAnd(r->builder, a, b, "");
    case K_OR: return LLVMBuildOr(r->builder, a, b, "");
    case K_XOR: return LLVMBuildXor(r->builder, a, b, "");
    default: return NULL;
    }
}

typedef struct Pair {
    LLVMValueRef hi, lo; /* unevaluated sum */
} Pair;

/* x in two halves of 26 bits; beyond 2^996 the second is NaN. Dekker, "A floating-point technique for extending the
 * available precision", 1971. */
static Pair halves(Render *r, LLVMValueRef x) {
    LLVMBuilderRef at = r->builder;
    LLVMValueRef big = LLVMBuildFMul(at, x, constant_real(LLVMTypeOf(x), 0x1p27 + 1), "");
    LLVMValueRef hi = LLVMBuildFSub(at, big, LLVMBuildFSub(at, big, x, ""), "");
    return (Pair){hi, LLVMBuildFSub(at, x, hi, "")};
}

/* a b = hi + lo exactly. */
static Pair product_of(Render *r, LLVMValueRef a, LLVMValueRef b) {
    LLVMBuilderRef at = r->builder;
    Pair x = halves(r, a), y = halves(r, b);
    LLVMValueRef hi = LLVMBuildFMul(at, a, b, "");
    LLVMValueRef lo = LLVMBuildFSub(at, LLVMBuildFMul(at, x.hi, y.hi, ""), hi, "");
    lo = LLVMBuildFAdd(at, lo, LLVMBuildFMul(at, x.hi, y.lo, ""), "");
    lo = LLVMBuildFAdd(at, lo, LLVMBuildFMul(at, x.lo, y.hi, ""), "");
    return (Pair){hi, LLVMBuildFAdd(at, lo, LLVMBuildFMul(at, x.lo, y.lo, ""), "")};
}

/* a + b = hi + lo exactly (Knuth). */
static Pair sum_of(Render *r, LLVMValueRef a, LLVMValueRef b) {
    LLVMBuilderRef at = r->builder;
    LLVMValueRef hi = LLVMBuildFAdd(at, a, b, ""), second = LLVMBuildFSub(at, hi, a, "");
    LLVMValueRef first = LLVMBuildFSub(at, hi, second, "");
    return (Pair){hi, LLVMBuildFAdd(at, LLVMBuildFSub(at, a, first, ""), LLVMBuildFSub(at, b, second, ""), "")};
}

/* Without FMA hardware, and without a call: f32 through f64, whose product is exact and whose sum is rounded twice (to
 * 53, then to 24 bits; wrong in the last place for about one in 2^29 sums); f64 by the exact product and what the sum
 * loses, rounded twice too, and where the product is too large for its halves, or subnormal, without what it loses. */
LLVMValueRef fused(Render *r, LLVMValueRef *v) {
    LLVMTypeRef type = LLVMTypeOf(v[0]);
    LLVMBuilderRef at = r->builder;
    if (r->isa.fma) return intrinsic(r, "llvm.fma", &type, 1, v, 3);
    LLVMTypeRef wide = type_lanes(LLVMDoubleTypeInContext(r->context), type_lane_count(type));
    if (type == wide) {
        Pair product = product_of(r, v[0], v[1]), sum = sum_of(r, product.hi, v[2]);
        LLVMValueRef lost = LLVMBuildFAdd(at, sum.lo, product.lo, "");
        LLVMValueRef some = LLVMBuildFCmp(at, LLVMRealONE, lost, constant_real(type, 0), "");
        return LLVMBuildSelect(at, some, LLVMBuildFAdd(at, sum.hi, lost, ""), sum.hi, "");
    }
    LLVMValueRef w[3];
    for (int i = 0; i < 3; i++) w[i] = LLVMBuildFPExt(at, v[i], wide, "");
    LLVMValueRef sum = LLVMBuildFAdd(at, LLVMBuildFMul(at, w[0], w[1], ""), w[2], "");
    return LLVMBuildFPTrunc(at, sum, type, "");
}

static LLVMValueRef shift(Render *r, const KernelInst *inst, LLVMValueRef a, LLVMValueRef b) {
    LLVMTypeRef type = LLVMTypeOf(a);
    int bits = 8 * (int)dtype_size(inst->dtype);
    bool arithmetic_shift = inst->op == K_SHR && kind_of(inst->dtype) == KIND_SIGNED;
    LLVMOpcode op = inst->op == K_SHL ? LLVMShl : arithmetic_shift ? LLVMAShr : LLVMLShr;
    const KernelInst *distance = argument(r, inst, 1);
    bool constant = distance->op == K_CONST, inside = constant && distance->bits >= 0 && distance->bits < bits;
    if (inside) return LLVMBuildBinOp(r->builder, op, a, b, "");
    LLVMValueRef fits = LLVMBuildICmp(r->builder, LLVMIntULT, b, constant_int(type, bits), "");
    LLVMValueRef far = constant_int(type, arithmetic_shift ? bits - 1 : 0);
    LLVMValueRef shifted = LLVMBuildBinOp(r->builder, op, a, LLVMBuildSelect(r->builder, fits, b, far, ""), "");
    return arithmetic_shift ? shifted : LLVMBuildSelect(r->builder, fits, shifted, constant_int(type, 0), "");
}

static LLVMValueRef negate(Render *r, const KernelInst *inst, LLVMValueRef a) {
    return kind_of(inst->dtype) == KIND_FLOAT ? LLVMBuildFNeg(r->builder, a, "") : LLVMBuildNeg(r->builder, a, "");
}

static LLVMValueRef absolute(Render *r, const KernelInst *inst, LLVMValueRef a) {
    Kind kind = kind_of(inst->dtype);
    if (kind == KIND_UNSIGNED) return a;
    if (kind == KIND_FLOAT) return intrinsic_1(r, "llvm.fabs", a);
    LLVMValueRef below = LLVMBuildICmp(r->builder, LLVMIntSLT, a, constant_int(LLVMTypeOf(a), 0), "");
    return LLVMBuildSelect(r->builder, below, LLVMBuildNeg(r->builder, a, ""), a, "");
}

static LLVMValueRef round_narrow(Render *r, LLVMValueRef a, DType narrow) {
    return convert_from_memory(r, convert_to_memory(r, a, narrow), narrow);
}

LLVMValueRef render_arithmetic(Render *r, const KernelInst *inst, LLVMValueRef *v) {
    switch (inst->op) {
    case K_CONST: return constant_of(r, inst, r->lanes);
    case K_PARAM: return r->params[inst->bits];
    case K_FMA: return fused(r, v);
    case K_SCALE: return special_scale(r, inst, v[0], v[1]);
    case K_TABLE: return special_table(r, inst, v[0]);
    case K_NEG: return negate(r, inst, v[0]);
    case K_ABS: return absolute(r, inst, v[0]);
    case K_SQRT: return intrinsic_1(r, "llvm.sqrt", v[0]);
    case K_FLOOR:
    case K_CEIL:
    case K_TRUNC:
    case K_RINT: return convert_round(r, v[0], inst->op);
    case K_NOT: return LLVMBuildNot(r->builder, v[0], "");
    case K_SHL:
    case K_SHR: return shift(r, inst, v[0], v[1]);
    case K_EQ:
    case K_NE:
    case K_LT:
    case K_LE:
    case K_GT:
    case K_GE: return compare(r, inst->op, argument(r, inst, 0)->dtype, v[0], v[1]);
    case K_SELECT: return LLVMBuildSelect(r->builder, v[0], v[1], v[2], "");
    case K_CAST: return convert_cast(r, v[0], argument(r, inst, 0)->dtype, inst->dtype);
    case K_BITCAST: return LLVMBuildBitCast(r->builder, v[0], type_compute(r, inst->dtype, r->lanes), "");
    case K_ROUND_F16: return round_narrow(r, v[0], DT_F16);
    case K_ROUND_BF16: return round_narrow(r, v[0], DT_BF16);
    default: return arithmetic(r, inst, v[0], v[1]);
    }
}
