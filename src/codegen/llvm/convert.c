/* SPDX-License-Identifier: Apache-2.0 */
/* Conversions between types and roundings, without calls of any library: what the instruction set lacks is done by
 * integer arithmetic. */
#include "codegen/llvm/render.h"

static LLVMValueRef bits_of(Render *r, LLVMValueRef value, int bits) {
    return LLVMBuildBitCast(r->builder, value, type_integer(r, bits, LLVMTypeOf(value)), "");
}

static LLVMValueRef pick(Render *r, LLVMValueRef condition, LLVMValueRef a, LLVMValueRef b) {
    return LLVMBuildSelect(r->builder, condition, a, b, "");
}

static LLVMValueRef and_bits(Render *r, LLVMValueRef a, int64_t mask) {
    return LLVMBuildAnd(r->builder, a, constant_int(LLVMTypeOf(a), mask), "");
}

static LLVMValueRef shift_right(Render *r, LLVMValueRef a, int by) {
    return LLVMBuildLShr(r->builder, a, constant_int(LLVMTypeOf(a), by), "");
}

static LLVMValueRef shift_left(Render *r, LLVMValueRef a, int by) {
    return LLVMBuildShl(r->builder, a, constant_int(LLVMTypeOf(a), by), "");
}

static LLVMValueRef above(Render *r, LLVMValueRef a, int64_t limit) {
    return LLVMBuildICmp(r->builder, LLVMIntUGT, a, constant_int(LLVMTypeOf(a), limit), "");
}

static LLVMTypeRef float_like(Render *r, LLVMTypeRef like) {
    return type_lanes(LLVMFloatTypeInContext(r->context), type_lane_count(like));
}

/* --- f16, bf16 --- */

/* The half's exponent and fraction, read as a float, are 2^112 too small: a multiplication mends that, subnormals
 * included. */
static LLVMValueRef half_to_float(Render *r, LLVMValueRef half) {
    LLVMTypeRef i32 = type_integer(r, 32, LLVMTypeOf(half)), real = float_like(r, i32);
    LLVMValueRef wide = LLVMBuildZExt(r->builder, half, i32, ""), size = and_bits(r, wide, 0x7fff);
    LLVMValueRef small = LLVMBuildBitCast(r->builder, shift_left(r, size, 13), real, "");
    LLVMValueRef scaled = bits_of(r, LLVMBuildFMul(r->builder, small, constant_real(real, 0x1p112), ""), 32);
    LLVMValueRef special = LLVMBuildOr(r->builder, scaled, constant_int(i32, 0x7f800000), "");
    LLVMValueRef quiet = LLVMBuildOr(r->builder, special, constant_int(i32, 0x400000), "");
    special = pick(r, above(r, size, 0x7c00), quiet, special);
    LLVMValueRef result = pick(r, above(r, size, 0x7bff), special, scaled);
    LLVMValueRef sign = shift_left(r, and_bits(r, wide, 0x8000), 16);
    return LLVMBuildBitCast(r->builder, LLVMBuildOr(r->builder, result, sign, ""), real, "");
}

/* To nearest even: normal numbers by adding half of the last place, subnormal ones by a float addition that aligns
 * their last place. */
static LLVMValueRef float_to_half(Render *r, LLVMValueRef value) {
    LLVMValueRef bits = bits_of(r, value, 32), size = and_bits(r, bits, 0x7fffffff);
    LLVMTypeRef i32 = LLVMTypeOf(bits), real = LLVMTypeOf(value);
    LLVMValueRef odd = and_bits(r, shift_right(r, size, 13), 1);
    LLVMValueRef bias = LLVMBuildAdd(r->builder, odd, constant_int(i32, (int32_t)0xc8000fff), "");
    LLVMValueRef normal = shift_right(r, LLVMBuildAdd(r->builder, size, bias, ""), 13);
    LLVMValueRef aligned =
        LLVMBuildFAdd(r->builder, LLVMBuildBitCast(r->builder, size, real, ""), constant_real(real, 0.5), "");
    LLVMValueRef subnormal = LLVMBuildSub(r->builder, bits_of(r, aligned, 32), constant_int(i32, 0x3f000000), "");
    LLVMValueRef payload = and_bits(r, shift_right(r, size, 13), 0x3ff);
    LLVMValueRef nan = LLVMBuildOr(r->builder, payload, constant_int(i32, 0x7e00), "");
    LLVMValueRef special = pick(r, above(r, size, 0x7f800000), nan, constant_int(i32, 0x7c00));
    LLVMValueRef finite = pick(r, above(r, size, 0x387fffff), normal, subnormal);
    LLVMValueRef result = pick(r, above(r, size, 0x477fffff), special, finite);
    result = LLVMBuildOr(r->builder, result, and_bits(r, shift_right(r, bits, 16), 0x8000), "");
    return LLVMBuildTrunc(r->builder, result, type_integer(r, 16, i32), "");
}

static LLVMValueRef float_to_bfloat(Render *r, LLVMValueRef value) {
    LLVMValueRef bits = bits_of(r, value, 32), high = shift_right(r, bits, 16);
    LLVMTypeRef i32 = LLVMTypeOf(bits);
    LLVMValueRef bias = LLVMBuildAdd(r->builder, and_bits(r, high, 1), constant_int(i32, 0x7fff), "");
    LLVMValueRef rounded = shift_right(r, LLVMBuildAdd(r->builder, bits, bias, ""), 16);
    LLVMValueRef nan = LLVMBuildFCmp(r->builder, LLVMRealUNO, value, value, "");
    LLVMValueRef result = pick(r, nan, LLVMBuildOr(r->builder, high, constant_int(i32, 0x40), ""), rounded);
    return LLVMBuildTrunc(r->builder, result, type_integer(r, 16, i32), "");
}

LLVMValueRef convert_from_memory(Render *r, LLVMValueRef value, DType dtype) {
    LLVMTypeRef type = LLVMTypeOf(value);
    if (dtype == DT_BOOL) return LLVMBuildICmp(r->builder, LLVMIntNE, value, constant_int(type, 0), "");
    if (dtype == DT_F16 && r->isa.half) return LLVMBuildFPExt(r->builder, value, float_like(r, type), "");
    if (dtype == DT_F16) return half_to_float(r, value);
    if (dtype != DT_BF16) return value;
    LLVMValueRef wide = LLVMBuildZExt(r->builder, value, type_integer(r, 32, type), "");
    return LLVMBuildBitCast(r->builder, shift_left(r, wide, 16), float_like(r, type), "");
}

LLVMValueRef convert_to_memory(Render *r, LLVMValueRef value, DType dtype) {
    int lanes = type_lane_count(LLVMTypeOf(value));
    if (dtype == DT_BOOL) return LLVMBuildZExt(r->builder, value, type_memory(r, dtype, lanes), "");
    if (dtype == DT_F16 && r->isa.half) return LLVMBuildFPTrunc(r->builder, value, type_memory(r, dtype, lanes), "");
    if (dtype == DT_F16) return float_to_half(r, value);
    return dtype == DT_BF16 ? float_to_bfloat(r, value) : value;
}

/* --- casts --- */

/* Toward zero, saturating, NaN 0. The limits are powers of two (or one less than them where the float holds that), so
 * that comparing is exact. */
static LLVMValueRef float_to_integer(Render *r, LLVMValueRef value, DType to) {
    int bits = 8 * (int)dtype_size(to);
    bool is_signed = dtype_class(to) == DTYPE_SIGNED;
    LLVMTypeRef real = LLVMTypeOf(value), type = type_integer(r, bits, real);
    double low = is_signed ? -__builtin_ldexp(1, bits - 1) : 0,
           beyond = __builtin_ldexp(1, is_signed ? bits - 1 : bits);
    LLVMValueRef raised = pick(r, LLVMBuildFCmp(r->builder, LLVMRealOGT, value, constant_real(real, low), ""), value,
                               constant_real(real, low));
    LLVMValueRef nan = LLVMBuildFCmp(r->builder, LLVMRealUNO, value, value, "");
    if (bits <= 16) {
        LLVMValueRef high = constant_real(real, beyond - 1);
        LLVMValueRef bound = pick(r, LLVMBuildFCmp(r->builder, LLVMRealOLT, raised, high, ""), raised, high);
        LLVMValueRef wide = LLVMBuildFPToSI(r->builder, bound, type_integer(r, 32, real), "");
        wide = is_signed ? pick(r, nan, constant_int(LLVMTypeOf(wide), 0), wide)
                         : wide; /* unsigned: NaN was raised to 0 */
        return LLVMBuildTrunc(r->builder, wide, type, "");
    }
    LLVMValueRef over = LLVMBuildFCmp(r->builder, LLVMRealOGE, value, constant_real(real, beyond), "");
    LLVMValueRef safe = pick(r, LLVMBuildOr(r->builder, over, nan, ""), constant_real(real, 0), raised);
    LLVMValueRef result =
        is_signed ? LLVMBuildFPToSI(r->builder, safe, type, "") : LLVMBuildFPToUI(r->builder, safe, type, "");
    int64_t most = is_signed ? (int64_t)(((uint64_t)1 << (bits - 1)) - 1) : -1;
    return pick(r, over, constant_int(type, most), result);
}

static LLVMValueRef integer_to_integer(Render *r, LLVMValueRef value, bool is_signed, LLVMTypeRef type) {
    unsigned from = LLVMGetIntTypeWidth(type_element(LLVMTypeOf(value))), to = LLVMGetIntTypeWidth(type_element(type));
    if (to < from) return LLVMBuildTrunc(r->builder, value, type, "");
    if (to == from) return value;
    return is_signed ? LLVMBuildSExt(r->builder, value, type, "") : LLVMBuildZExt(r->builder, value, type, "");
}

LLVMValueRef convert_cast(Render *r, LLVMValueRef value, DType from, DType to) {
    LLVMTypeRef have = LLVMTypeOf(value), want = type_compute(r, to, type_lane_count(have));
    bool is_signed = dtype_class(from) == DTYPE_SIGNED;
    if (have == want && (from == to || !dtype_is_float(from))) return value;
    if (dtype_is_float(from)) {
        if (to == DT_BOOL) return LLVMBuildFCmp(r->builder, LLVMRealUNE, value, constant_real(have, 0), "");
        if (to == DT_F64) return LLVMBuildFPExt(r->builder, value, want, "");
        if (dtype_is_float(to)) return LLVMBuildFPTrunc(r->builder, value, want, "");
        return float_to_integer(r, value, to);
    }
    if (to == DT_BOOL) return LLVMBuildICmp(r->builder, LLVMIntNE, value, constant_int(have, 0), "");
    if (!dtype_is_float(to)) return integer_to_integer(r, value, is_signed, want);
    return is_signed ? LLVMBuildSIToFP(r->builder, value, want, "") : LLVMBuildUIToFP(r->builder, value, want, "");
}

/* --- roundings to integers --- */

/* Adding and taking away 2^23 (2^52) rounds to nearest even; larger numbers, infinities and NaN are integers as they
 * are. */
static LLVMValueRef nearest_by_addition(Render *r, LLVMValueRef size, double magic) {
    LLVMValueRef m = constant_real(LLVMTypeOf(size), magic);
    return LLVMBuildFSub(r->builder, LLVMBuildFAdd(r->builder, size, m, ""), m, "");
}

LLVMValueRef convert_round(Render *r, LLVMValueRef x, KernelOp op) {
    static const char *const names[] = {"llvm.floor", "llvm.ceil", "llvm.trunc", "llvm.rint"};
    if (!r->isa.x86 || r->isa.sse41) return intrinsic_1(r, names[op - K_FLOOR], x);
    LLVMTypeRef type = LLVMTypeOf(x);
    double magic = LLVMGetTypeKind(type_element(type)) == LLVMDoubleTypeKind ? 0x1p52 : 0x1p23;
    LLVMValueRef size = intrinsic_1(r, "llvm.fabs", x), near = nearest_by_addition(r, size, magic);
    LLVMValueRef one = constant_real(type, 1), zero = constant_real(type, 0);
    LLVMValueRef negative = LLVMBuildFCmp(r->builder, LLVMRealOLT, x, zero, "");
    LLVMValueRef down = LLVMBuildFCmp(r->builder, LLVMRealOGT, near, size, ""),
                 up = LLVMBuildFCmp(r->builder, LLVMRealOLT, near, size, "");
    LLVMValueRef cut = LLVMBuildFSub(r->builder, near, pick(r, down, one, zero), ""); /* |x| toward zero */
    LLVMValueRef grown = LLVMBuildFAdd(r->builder, near, pick(r, up, one, zero), ""); /* |x| away from zero */
    LLVMValueRef result = op == K_RINT    ? near
                          : op == K_TRUNC ? cut
                          : op == K_FLOOR ? pick(r, negative, grown, cut)
                                          : pick(r, negative, cut, grown);
    LLVMValueRef args[] = {result, x};
    result = intrinsic(r, "llvm.copysign", &type, 1, args, 2);
    return pick(r, LLVMBuildFCmp(r->builder, LLVMRealOLT, size, constant_real(type, magic), ""), result, x);
}

/* --- fmod: exact, by shifting and subtracting significands (as long division)
 * ----------------------------------------- */

typedef struct Parts {
    LLVMValueRef fraction,
        exponent; /* value = fraction * 2^(exponent - bias - digits); exponent >= 1 unless normalised below it */
} Parts;

typedef struct Format {
    int bits, digits; /* digits: of the fraction field */
    LLVMTypeRef integer;
} Format;

static Parts take_apart(Render *r, Format f, LLVMValueRef size) {
    LLVMValueRef exponent = shift_right(r, size, f.digits), zero = constant_int(f.integer, 0),
                 one = constant_int(f.integer, 1);
    LLVMValueRef fraction = and_bits(r, size, ((int64_t)1 << f.digits) - 1);
    LLVMValueRef normal = LLVMBuildICmp(r->builder, LLVMIntNE, exponent, zero, "");
    LLVMValueRef leading = LLVMBuildOr(r->builder, fraction, constant_int(f.integer, (int64_t)1 << f.digits), "");
    return (Parts){pick(r, normal, leading, fraction), pick(r, normal, exponent, one)};
}

static LLVMValueRef leading_zeros(Render *r, LLVMValueRef value) {
    LLVMTypeRef type = LLVMTypeOf(value);
    LLVMValueRef args[] = {value, LLVMConstInt(r->i1, 0, 0)};
    return intrinsic(r, "llvm.ctlz", &type, 1, args, 2);
}

/* Shifts the fraction up to its leading bit's place. */
static Parts normalised(Render *r, Format f, Parts p) {
    LLVMValueRef most = constant_int(f.integer, f.bits - 1);
    LLVMValueRef by =
        LLVMBuildSub(r->builder, leading_zeros(r, p.fraction), constant_int(f.integer, f.bits - 1 - f.digits), "");
    by = pick(r, LLVMBuildICmp(r->builder, LLVMIntULT, by, most, ""), by, most);
    return (Parts){LLVMBuildShl(r->builder, p.fraction, by, ""), LLVMBuildSub(r->builder, p.exponent, by, "")};
}

static LLVMValueRef put_together(Render *r, Format f, Parts p) {
    LLVMValueRef zero = constant_int(f.integer, 0), one = constant_int(f.integer, 1);
    p = normalised(r, f, p);
    LLVMValueRef low = LLVMBuildICmp(r->builder, LLVMIntSLT, p.exponent, one, "");
    LLVMValueRef by = pick(r, low, LLVMBuildSub(r->builder, one, p.exponent, ""), zero),
                 most = constant_int(f.integer, f.bits - 1);
    by = pick(r, LLVMBuildICmp(r->builder, LLVMIntULT, by, most, ""), by, most);
    LLVMValueRef subnormal = LLVMBuildLShr(r->builder, p.fraction, by, "");
    LLVMValueRef normal = LLVMBuildOr(r->builder, and_bits(r, p.fraction, ((int64_t)1 << f.digits) - 1),
                                      shift_left(r, p.exponent, f.digits), "");
    LLVMValueRef value = pick(r, low, subnormal, normal);
    return pick(r, LLVMBuildICmp(r->builder, LLVMIntEQ, p.fraction, zero, ""), zero, value);
}

static LLVMValueRef reduced(Render *r, LLVMValueRef fraction, LLVMValueRef divisor) {
    LLVMValueRef below = LLVMBuildICmp(r->builder, LLVMIntULT, fraction, divisor, "");
    return pick(r, below, fraction, LLVMBuildSub(r->builder, fraction, divisor, ""));
}

/* While any lane has exponents left: one bit of the quotient. */
static LLVMValueRef long_division(Render *r, Format f, LLVMValueRef fraction, LLVMValueRef divisor,
                                  LLVMValueRef count) {
    LLVMBasicBlockRef before = LLVMGetInsertBlock(r->builder);
    LLVMBasicBlockRef test = LLVMAppendBasicBlockInContext(r->context, r->function, "divide");
    LLVMBasicBlockRef body = LLVMAppendBasicBlockInContext(r->context, r->function, "bit");
    LLVMBasicBlockRef done = LLVMAppendBasicBlockInContext(r->context, r->function, "divided");
    LLVMValueRef zero = constant_int(f.integer, 0);
    LLVMBuildBr(r->builder, test);
    LLVMPositionBuilderAtEnd(r->builder, test);
    LLVMValueRef rest = LLVMBuildPhi(r->builder, f.integer, ""), left = LLVMBuildPhi(r->builder, f.integer, "");
    LLVMValueRef more = LLVMBuildICmp(r->builder, LLVMIntSGT, left, zero, "");
    LLVMBuildCondBr(r->builder, any_lane(r, more), body, done);
    LLVMPositionBuilderAtEnd(r->builder, body);
    LLVMValueRef shifted = shift_left(r, reduced(r, rest, divisor), 1);
    LLVMValueRef next = pick(r, more, shifted, rest),
                 fewer = LLVMBuildSub(r->builder, left, constant_int(f.integer, 1), "");
    LLVMBuildBr(r->builder, test);
    LLVMValueRef rests[] = {fraction, next}, lefts[] = {count, fewer};
    LLVMBasicBlockRef from[] = {before, body};
    LLVMAddIncoming(rest, rests, from, 2);
    LLVMAddIncoming(left, lefts, from, 2);
    LLVMPositionBuilderAtEnd(r->builder, done);
    return reduced(r, rest, divisor);
}

LLVMValueRef convert_fmod(Render *r, LLVMValueRef x, LLVMValueRef y) {
    LLVMTypeRef type = LLVMTypeOf(x);
    bool wide = LLVMGetTypeKind(type_element(type)) == LLVMDoubleTypeKind;
    Format f = {wide ? 64 : 32, wide ? 52 : 23, type_integer(r, wide ? 64 : 32, type)};
    int64_t infinity = wide ? 0x7ff0000000000000 : 0x7f800000, sign_bit = wide ? INT64_MIN : (int64_t)INT32_MIN;
    LLVMValueRef bits_x = bits_of(r, x, f.bits), size_x = and_bits(r, bits_x, ~sign_bit);
    LLVMValueRef size_y = and_bits(r, bits_of(r, y, f.bits), ~sign_bit), zero = constant_int(f.integer, 0);
    LLVMValueRef invalid = LLVMBuildOr(r->builder, above(r, size_x, infinity - 1), above(r, size_y, infinity), "");
    invalid = LLVMBuildOr(r->builder, invalid, LLVMBuildICmp(r->builder, LLVMIntEQ, size_y, zero, ""), "");
    LLVMValueRef same = LLVMBuildICmp(r->builder, LLVMIntULT, size_x, size_y, "");
    Parts a = take_apart(r, f, size_x), b = normalised(r, f, take_apart(r, f, size_y));
    LLVMValueRef count = LLVMBuildSub(r->builder, a.exponent, b.exponent, "");
    count = pick(r, LLVMBuildOr(r->builder, invalid, same, ""), zero, count);
    LLVMValueRef rest = long_division(r, f, a.fraction, b.fraction, count);
    LLVMValueRef result = put_together(r, f, (Parts){rest, b.exponent});
    result = LLVMBuildOr(r->builder, result, and_bits(r, bits_x, sign_bit), "");
    result = pick(r, same, bits_x, result);
    LLVMValueRef value = LLVMBuildBitCast(r->builder, result, type, "");
    return pick(r, invalid, constant_real(type, __builtin_nan("")), value);
}
