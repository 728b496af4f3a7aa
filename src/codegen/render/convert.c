/* SPDX-License-Identifier: Apache-2.0 */
/* Conversions between types and roundings, without calls of any library: what the instruction set lacks is done by
 * integer arithmetic. */
#include "codegen/render/render.h"

static IrValue bits_of(Render *r, IrValue value, int bits) {
    return build_cast(r->builder, IR_BITS, value, type_integer(r, bits, ir_type(value)));
}

static IrValue pick(Render *r, IrValue condition, IrValue a, IrValue b) {
    return build_select(r->builder, condition, a, b);
}

static IrValue and_bits(Render *r, IrValue a, int64_t mask) {
    return build_and(r->builder, a, constant_int(r, ir_type(a), mask));
}

static IrValue shift_right(Render *r, IrValue a, int by) {
    return build_lshr(r->builder, a, constant_int(r, ir_type(a), by));
}

static IrValue shift_left(Render *r, IrValue a, int by) {
    return build_shl(r->builder, a, constant_int(r, ir_type(a), by));
}

static IrValue above(Render *r, IrValue a, int64_t limit) {
    return build_compare(r->builder, IR_UGT, a, constant_int(r, ir_type(a), limit));
}

static IrType float_like(IrType like) { return type_lanes(IR_F32, type_lane_count(like)); }

/* --- f16, bf16 --- */

/* The half's exponent and fraction, read as a float, are 2^112 too small: a multiplication mends that, subnormals
 * included. */
static IrValue half_to_float(Render *r, IrValue half) {
    IrType i32 = type_integer(r, 32, ir_type(half)), real = float_like(i32);
    IrValue wide = build_cast(r->builder, IR_ZEXT, half, i32), size = and_bits(r, wide, 0x7fff);
    IrValue small = build_cast(r->builder, IR_BITS, shift_left(r, size, 13), real);
    IrValue scaled = bits_of(r, build_fmul(r->builder, small, constant_real(r, real, 0x1p112)), 32);
    IrValue special = build_or(r->builder, scaled, constant_int(r, i32, 0x7f800000));
    IrValue quiet = build_or(r->builder, special, constant_int(r, i32, 0x400000));
    special = pick(r, above(r, size, 0x7c00), quiet, special);
    IrValue result = pick(r, above(r, size, 0x7bff), special, scaled);
    IrValue sign = shift_left(r, and_bits(r, wide, 0x8000), 16);
    return build_cast(r->builder, IR_BITS, build_or(r->builder, result, sign), real);
}

/* To nearest even: normal numbers by adding half of the last place, subnormal ones by a float addition that aligns
 * their last place. */
static IrValue float_to_half(Render *r, IrValue value) {
    IrValue bits = bits_of(r, value, 32), size = and_bits(r, bits, 0x7fffffff);
    IrType i32 = ir_type(bits), real = ir_type(value);
    IrValue odd = and_bits(r, shift_right(r, size, 13), 1);
    IrValue bias = build_add(r->builder, odd, constant_int(r, i32, (int32_t)0xc8000fff));
    IrValue normal = shift_right(r, build_add(r->builder, size, bias), 13);
    IrValue aligned = build_fadd(r->builder, build_cast(r->builder, IR_BITS, size, real), constant_real(r, real, 0.5));
    IrValue subnormal = build_sub(r->builder, bits_of(r, aligned, 32), constant_int(r, i32, 0x3f000000));
    IrValue payload = and_bits(r, shift_right(r, size, 13), 0x3ff);
    IrValue nan = build_or(r->builder, payload, constant_int(r, i32, 0x7e00));
    IrValue special = pick(r, above(r, size, 0x7f800000), nan, constant_int(r, i32, 0x7c00));
    IrValue finite = pick(r, above(r, size, 0x387fffff), normal, subnormal);
    IrValue result = pick(r, above(r, size, 0x477fffff), special, finite);
    result = build_or(r->builder, result, and_bits(r, shift_right(r, bits, 16), 0x8000));
    return build_cast(r->builder, IR_CUT, result, type_integer(r, 16, i32));
}

static IrValue float_to_bfloat(Render *r, IrValue value) {
    IrValue bits = bits_of(r, value, 32), high = shift_right(r, bits, 16);
    IrType i32 = ir_type(bits);
    IrValue bias = build_add(r->builder, and_bits(r, high, 1), constant_int(r, i32, 0x7fff));
    IrValue rounded = shift_right(r, build_add(r->builder, bits, bias), 16);
    IrValue nan = build_compare(r->builder, IR_FUNO, value, value);
    IrValue result = pick(r, nan, build_or(r->builder, high, constant_int(r, i32, 0x40)), rounded);
    return build_cast(r->builder, IR_CUT, result, type_integer(r, 16, i32));
}

IrValue convert_from_memory(Render *r, IrValue value, DType dtype) {
    IrType type = ir_type(value);
    if (dtype == DT_BOOL) return build_compare(r->builder, IR_NE, value, constant_int(r, type, 0));
    if (dtype == DT_F16 && r->isa.half) return build_cast(r->builder, IR_FEXT, value, float_like(type));
    if (dtype == DT_F16) return half_to_float(r, value);
    if (dtype != DT_BF16) return value;
    IrValue wide = build_cast(r->builder, IR_ZEXT, value, type_integer(r, 32, type));
    return build_cast(r->builder, IR_BITS, shift_left(r, wide, 16), float_like(type));
}

IrValue convert_to_memory(Render *r, IrValue value, DType dtype) {
    int lanes = type_lane_count(ir_type(value));
    if (dtype == DT_BOOL) return build_cast(r->builder, IR_ZEXT, value, type_memory(r, dtype, lanes));
    if (dtype == DT_F16 && r->isa.half) return build_cast(r->builder, IR_FCUT, value, type_memory(r, dtype, lanes));
    if (dtype == DT_F16) return float_to_half(r, value);
    return dtype == DT_BF16 ? float_to_bfloat(r, value) : value;
}

/* --- casts --- */

/* Toward zero, saturating, NaN 0. The limits are powers of two (or one less than them where the float holds that), so
 * that comparing is exact. */
static IrValue float_to_integer(Render *r, IrValue value, DType to) {
    int bits = 8 * (int)dtype_size(to);
    bool is_signed = dtype_class(to) == DTYPE_SIGNED;
    IrType real = ir_type(value), type = type_integer(r, bits, real);
    double low = is_signed ? -__builtin_ldexp(1, bits - 1) : 0,
           beyond = __builtin_ldexp(1, is_signed ? bits - 1 : bits);
    IrValue least = constant_real(r, real, low),
            raised = pick(r, build_compare(r->builder, IR_FOGT, value, least), value, least);
    IrValue nan = build_compare(r->builder, IR_FUNO, value, value);
    if (bits <= 16) {
        IrValue high = constant_real(r, real, beyond - 1);
        IrValue bound = pick(r, build_compare(r->builder, IR_FOLT, raised, high), raised, high);
        IrValue wide = build_cast(r->builder, IR_FTOSI, bound, type_integer(r, 32, real));
        wide = is_signed ? pick(r, nan, constant_int(r, ir_type(wide), 0), wide)
                         : wide; /* unsigned: NaN was raised to 0 */
        return build_cast(r->builder, IR_CUT, wide, type);
    }
    IrValue over = build_compare(r->builder, IR_FOGE, value, constant_real(r, real, beyond));
    IrValue safe = pick(r, build_or(r->builder, over, nan), constant_real(r, real, 0), raised);
    IrValue result =
        is_signed ? build_cast(r->builder, IR_FTOSI, safe, type) : build_cast(r->builder, IR_FTOUI, safe, type);
    int64_t most = is_signed ? (int64_t)(((uint64_t)1 << (bits - 1)) - 1) : -1;
    return pick(r, over, constant_int(r, type, most), result);
}

static IrValue integer_to_integer(Render *r, IrValue value, bool is_signed, IrType type) {
    int from = ir_bits(ir_type(value)), to = ir_bits(type);
    if (to < from) return build_cast(r->builder, IR_CUT, value, type);
    if (to == from) return value;
    return is_signed ? build_cast(r->builder, IR_SEXT, value, type) : build_cast(r->builder, IR_ZEXT, value, type);
}

IrValue render_cast(Render *r, IrValue value, DType from, DType to) {
    IrType have = ir_type(value), want = type_compute(r, to, type_lane_count(have));
    bool is_signed = dtype_class(from) == DTYPE_SIGNED;
    if (have == want && (from == to || !dtype_is_float(from))) return value;
    if (dtype_is_float(from)) {
        if (to == DT_BOOL) return build_compare(r->builder, IR_FUNE, value, constant_real(r, have, 0));
        if (to == DT_F64) return build_cast(r->builder, IR_FEXT, value, want);
        if (dtype_is_float(to)) return build_cast(r->builder, IR_FCUT, value, want);
        return float_to_integer(r, value, to);
    }
    if (to == DT_BOOL) return build_compare(r->builder, IR_NE, value, constant_int(r, have, 0));
    if (!dtype_is_float(to)) return integer_to_integer(r, value, is_signed, want);
    return is_signed ? build_cast(r->builder, IR_SITOF, value, want) : build_cast(r->builder, IR_UITOF, value, want);
}

/* --- roundings to integers --- */

/* Adding and taking away 2^23 (2^52) rounds to nearest even; larger numbers, infinities and NaN are integers as they
 * are. */
static IrValue nearest_by_addition(Render *r, IrValue size, double magic) {
    IrValue m = constant_real(r, ir_type(size), magic);
    return build_fsub(r->builder, build_fadd(r->builder, size, m), m);
}

IrValue render_round(Render *r, IrValue x, KernelOp op) {
    static const IrUnary roundings[] = {IR_FLOOR, IR_CEIL, IR_TRUNC, IR_RINT};
    if (!r->isa.x86 || r->isa.sse41) return build_unary(r->builder, roundings[op - K_FLOOR], x);
    IrType type = ir_type(x);
    double magic = type_element(type) == IR_F64 ? 0x1p52 : 0x1p23;
    IrValue size = build_unary(r->builder, IR_FABS, x), near = nearest_by_addition(r, size, magic);
    IrValue one = constant_real(r, type, 1), zero = constant_real(r, type, 0);
    IrValue negative = build_compare(r->builder, IR_FOLT, x, zero);
    IrValue down = build_compare(r->builder, IR_FOGT, near, size), up = build_compare(r->builder, IR_FOLT, near, size);
    IrValue cut = build_fsub(r->builder, near, pick(r, down, one, zero)); /* |x| toward zero */
    IrValue grown = build_fadd(r->builder, near, pick(r, up, one, zero)); /* |x| away from zero */
    IrValue result = op == K_RINT    ? near
                     : op == K_TRUNC ? cut
                     : op == K_FLOOR ? pick(r, negative, grown, cut)
                                     : pick(r, negative, cut, grown);
    result = build_binop(r->builder, IR_COPYSIGN, result, x);
    return pick(r, build_compare(r->builder, IR_FOLT, size, constant_real(r, type, magic)), result, x);
}

/* --- fmod: exact, by shifting and subtracting significands (as long division)
 * ----------------------------------------- */

typedef struct Parts {
    IrValue fraction,
        exponent; /* value = fraction * 2^(exponent - bias - digits); exponent >= 1 unless normalised below it */
} Parts;

typedef struct Format {
    int bits, digits; /* digits: of the fraction field */
    IrType integer;
} Format;

static Parts take_apart(Render *r, Format f, IrValue size) {
    IrValue exponent = shift_right(r, size, f.digits), zero = constant_int(r, f.integer, 0),
            one = constant_int(r, f.integer, 1);
    IrValue fraction = and_bits(r, size, ((int64_t)1 << f.digits) - 1);
    IrValue normal = build_compare(r->builder, IR_NE, exponent, zero);
    IrValue leading = build_or(r->builder, fraction, constant_int(r, f.integer, (int64_t)1 << f.digits));
    return (Parts){pick(r, normal, leading, fraction), pick(r, normal, exponent, one)};
}

static IrValue leading_zeros(Render *r, IrValue value) { return build_unary(r->builder, IR_CTLZ, value); }

/* Shifts the fraction up to its leading bit's place. */
static Parts normalised(Render *r, Format f, Parts p) {
    IrValue most = constant_int(r, f.integer, f.bits - 1);
    IrValue by = build_sub(r->builder, leading_zeros(r, p.fraction), constant_int(r, f.integer, f.bits - 1 - f.digits));
    by = pick(r, build_compare(r->builder, IR_ULT, by, most), by, most);
    return (Parts){build_shl(r->builder, p.fraction, by), build_sub(r->builder, p.exponent, by)};
}

static IrValue put_together(Render *r, Format f, Parts p) {
    IrValue zero = constant_int(r, f.integer, 0), one = constant_int(r, f.integer, 1);
    p = normalised(r, f, p);
    IrValue low = build_compare(r->builder, IR_SLT, p.exponent, one);
    IrValue by = pick(r, low, build_sub(r->builder, one, p.exponent), zero),
            most = constant_int(r, f.integer, f.bits - 1);
    by = pick(r, build_compare(r->builder, IR_ULT, by, most), by, most);
    IrValue subnormal = build_lshr(r->builder, p.fraction, by);
    IrValue normal = build_or(r->builder, and_bits(r, p.fraction, ((int64_t)1 << f.digits) - 1),
                              shift_left(r, p.exponent, f.digits));
    IrValue value = pick(r, low, subnormal, normal);
    return pick(r, build_compare(r->builder, IR_EQ, p.fraction, zero), zero, value);
}

static IrValue reduced(Render *r, IrValue fraction, IrValue divisor) {
    IrValue below = build_compare(r->builder, IR_ULT, fraction, divisor);
    return pick(r, below, fraction, build_sub(r->builder, fraction, divisor));
}

/* While any lane has exponents left: one bit of the quotient. */
static IrValue long_division(Render *r, Format f, IrValue fraction, IrValue divisor, IrValue count) {
    IrBlock before = build_block(r->builder);
    IrBlock test = build_block_new(r->builder, "divide");
    IrBlock body = build_block_new(r->builder, "bit");
    IrBlock done = build_block_new(r->builder, "divided");
    IrValue zero = constant_int(r, f.integer, 0);
    build_br(r->builder, test);
    build_at(r->builder, test);
    IrValue rest = build_phi(r->builder, f.integer), left = build_phi(r->builder, f.integer);
    IrValue more = build_compare(r->builder, IR_SGT, left, zero);
    build_condbr(r->builder, any_lane(r, more), body, done);
    build_at(r->builder, body);
    IrValue shifted = shift_left(r, reduced(r, rest, divisor), 1);
    IrValue next = pick(r, more, shifted, rest), fewer = build_sub(r->builder, left, constant_int(r, f.integer, 1));
    build_br(r->builder, test);
    IrValue rests[] = {fraction, next}, lefts[] = {count, fewer};
    IrBlock from[] = {before, body};
    for (int n = 0; n < 2; n++) {
        phi_add(rest, rests[n], from[n]);
        phi_add(left, lefts[n], from[n]);
    }
    build_at(r->builder, done);
    return reduced(r, rest, divisor);
}

IrValue convert_fmod(Render *r, IrValue x, IrValue y) {
    IrType type = ir_type(x);
    bool wide = type_element(type) == IR_F64;
    Format f = {wide ? 64 : 32, wide ? 52 : 23, type_integer(r, wide ? 64 : 32, type)};
    int64_t infinity = wide ? 0x7ff0000000000000 : 0x7f800000, sign_bit = wide ? INT64_MIN : (int64_t)INT32_MIN;
    IrValue bits_x = bits_of(r, x, f.bits), size_x = and_bits(r, bits_x, ~sign_bit);
    IrValue size_y = and_bits(r, bits_of(r, y, f.bits), ~sign_bit), zero = constant_int(r, f.integer, 0);
    IrValue invalid = build_or(r->builder, above(r, size_x, infinity - 1), above(r, size_y, infinity));
    invalid = build_or(r->builder, invalid, build_compare(r->builder, IR_EQ, size_y, zero));
    IrValue same = build_compare(r->builder, IR_ULT, size_x, size_y);
    Parts a = take_apart(r, f, size_x), b = normalised(r, f, take_apart(r, f, size_y));
    IrValue count = build_sub(r->builder, a.exponent, b.exponent);
    count = pick(r, build_or(r->builder, invalid, same), zero, count);
    IrValue rest = long_division(r, f, a.fraction, b.fraction, count);
    IrValue result = put_together(r, f, (Parts){rest, b.exponent});
    result = build_or(r->builder, result, and_bits(r, bits_x, sign_bit));
    result = pick(r, same, bits_x, result);
    IrValue value = build_cast(r->builder, IR_BITS, result, type);
    return pick(r, invalid, constant_real(r, type, __builtin_nan("")), value);
}
