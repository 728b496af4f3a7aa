/* SPDX-License-Identifier: Apache-2.0 */
/* One text serves all formats of sign, exponent and mantissa (SmallFloat of graph/dtype.h). No step makes or takes subnormal
 * floats where that could matter: some devices flush them, and some processors are slow with them. */
#include "codegen/small_types.h"

#include <math.h>

enum { MANTISSA = 23, BIAS = 127, INFINITE = 0x7f800000, QUIET_NAN = 0x7fc00000, TOP_CODE = 0xff };

/* On i32: words and codes have no use for its sign. */
static int word(Emit *e, KernelOp op, int a, int64_t b) { return emit2(e, op, DT_I32, a, emit_int(e, DT_I32, b)); }

/* a <test> limit ? yes : no */
static int pick(Emit *e, int a, KernelOp test, int64_t limit, int yes, int no) {
    return emit_op(e, K_SELECT, DT_I32, emit2(e, test, DT_BOOL, a, emit_int(e, DT_I32, limit)), yes, no);
}

static int pick_int(Emit *e, int a, KernelOp test, int64_t limit, int64_t yes, int no) {
    return pick(e, a, test, limit, emit_int(e, DT_I32, yes), no);
}

static int word_of(Emit *e, int number) { return emit1(e, K_BITCAST, DT_I32, number); }
static int float_of(Emit *e, int bits) { return emit1(e, K_BITCAST, DT_F32, bits); }

/* ---- to f32 ---- */

/* 2^(code - 127), of which the least is a subnormal float; the last is NaN. */
static int power_to_word(Emit *e, int code) {
    int bits = pick_int(e, code, K_EQ, 0, 1 << (MANTISSA - 1), word(e, K_SHL, code, MANTISSA));
    return pick_int(e, code, K_EQ, TOP_CODE, QUIET_NAN, bits);
}

/* Normal numbers lack nothing but the difference of the biases; subnormal ones are counted in their last place. */
static int float_to_word(Emit *e, const SmallFloat *f, int code) {
    int most = f->sign - 1, to_sign = 32 - __builtin_popcount((unsigned)most) - 1, size = word(e, K_AND, code, most);
    int normal = word(e, K_SHL, size, MANTISSA - f->mantissa_bits);
    normal = word(e, K_ADD, normal, (int64_t)(BIAS - f->bias) << MANTISSA);
    int last_place = emit_float(e, DT_F32, ldexp(1, 1 - f->bias - f->mantissa_bits));
    int small = word_of(e, emit2(e, K_MUL, DT_F32, emit_cast(e, DT_F32, size), last_place));
    int bits = pick(e, size, K_LT, INT64_C(1) << f->mantissa_bits, small, normal);
    if (f->largest < most) {
        int special = emit_int(e, DT_I32, QUIET_NAN);
        if (f->beyond != f->nan) special = pick_int(e, size, K_EQ, f->beyond, INFINITE, special);
        bits = pick(e, size, K_GT, f->largest, special, bits);
    }
    int sign = word(e, K_SHL, word(e, K_AND, code, f->sign), to_sign);
    bits = emit2(e, K_OR, DT_I32, bits, sign);
    return f->unsigned_nan ? pick_int(e, code, K_EQ, f->nan, QUIET_NAN, bits) : bits;
}

int small_to_f32(Emit *e, DType from, int code) {
    int64_t known;
    if (emit_is_int(e, code, &known)) return emit_float(e, DT_F32, (double)small_float_to_f32(from, (uint8_t)known));
    int wide = emit_cast(e, DT_I32, code);
    int bits = from == DT_F8E8M0 ? power_to_word(e, wide) : float_to_word(e, small_float(from), wide);
    EmitPair widened = {float_of(e, bits), code};
    VEC_PUSH(e->arena, e->widened, widened);
    return widened.result;
}

/* ---- from numbers ---- */

/* To f32 with the last bit set when inexact ("round to odd"), so that rounding on is rounding the number itself (narrow_to_odd of
 * graph/dtype.c). Infinity stays what is beyond all floats. */
static int rounded_to_odd(Emit *e, int x) {
    int near = emit_cast(e, DT_F32, x), back = emit_cast(e, DT_F64, near), size = emit1(e, K_ABS, DT_F64, back);
    int finite = emit2(e, K_LT, DT_BOOL, size, emit_float(e, DT_F64, (double)INFINITY));
    int inexact = emit2(e, K_AND, DT_BOOL, emit2(e, K_NE, DT_BOOL, back, x), finite);
    int beyond = emit2(e, K_GT, DT_BOOL, size, emit1(e, K_ABS, DT_F64, x)), bits = word_of(e, near);
    int cut = emit_op(e, K_SELECT, DT_I32, beyond, word(e, K_SUB, bits, 1), bits);
    return float_of(e, emit_op(e, K_SELECT, DT_I32, inexact, word(e, K_OR, cut, 1), bits));
}

/* A number in f32 that is rounded on as the number itself: integers that are no floats are beyond all formats but that of
 * powers. */
static int number_to_f32(Emit *e, DType to, int number) {
    DType from = emit_dtype(e, number);
    bool wide = to == DT_F8E8M0 && dtype_is_integer(from) && dtype_size(from) >= sizeof(float);
    if (from != DT_F64 && !wide) return emit_cast(e, DT_F32, number);
    return rounded_to_odd(e, emit_cast(e, DT_F64, number));
}

/* The next power of two from below on; the sign goes. */
static int word_to_power(Emit *e, int size, bool saturate) {
    int code = word(e, K_SHR, word(e, K_ADD, size, (1 << MANTISSA) - 1), MANTISSA);
    if (saturate) code = pick_int(e, code, K_GE, TOP_CODE, TOP_CODE - 1, code);
    return pick_int(e, size, K_GE, INFINITE, TOP_CODE, code);
}

/* To nearest even: normal numbers by adding half of the last place, or one less where it is even; subnormal ones by a float addition
 * that aligns their last place. */
static int word_to_float(Emit *e, const SmallFloat *f, int bits, int size, bool saturate) {
    int cut = MANTISSA - f->mantissa_bits, odd = word(e, K_AND, word(e, K_SHR, size, cut), 1);
    int64_t half = (INT64_C(1) << (cut - 1)) - 1, align = (int64_t)(BIAS + 1 + cut - f->bias) << MANTISSA;
    int normal = word(e, K_ADD, size, half - ((int64_t)(BIAS - f->bias) << MANTISSA));
    normal = word(e, K_SHR, emit2(e, K_ADD, DT_I32, normal, odd), cut);
    int aligned =
        emit2(e, K_ADD, DT_F32, float_of(e, size), emit_float(e, DT_F32, ldexp(1, (int)(align >> MANTISSA) - BIAS)));
    int small = word(e, K_SUB, word_of(e, aligned), align);
    int code = pick(e, size, K_LT, (int64_t)(BIAS + 1 - f->bias) << MANTISSA, small, normal);
    code = pick_int(e, code, K_GT, f->largest, saturate ? f->largest : f->beyond, code);
    code = pick_int(e, size, K_GT, INFINITE, f->nan, code);
    int sign = word(e, K_AND, word(e, K_SHR, bits, 32 - __builtin_popcount(f->sign - 1u) - 1), f->sign);
    if (!f->unsigned_nan) return emit2(e, K_XOR, DT_I32, code, sign);
    return emit2(e, K_OR, DT_I32, code, pick_int(e, code, K_EQ, 0, 0, sign)); /* NaN is the sign itself */
}

static int number_to_float(Emit *e, DType to, int number, bool saturate) {
    double known;
    int real = number_to_f32(e, to, number);
    if (emit_is_float(e, real, &known)) return emit_int(e, DT_U8, f32_to_small_float(to, (float)known, saturate));
    int bits = word_of(e, real), size = word(e, K_AND, bits, INT32_MAX);
    int code =
        to == DT_F8E8M0 ? word_to_power(e, size, saturate) : word_to_float(e, small_float(to), bits, size, saturate);
    EmitPair narrowed = {emit_cast(e, DT_U8, code), number};
    VEC_PUSH(e->arena, e->narrowed, narrowed);
    return narrowed.result;
}

static int number_to_integer(Emit *e, DType to, int number) {
    DType held = dtype_of_code(to);
    bool is_signed = dtype_class(to) == DTYPE_SIGNED, real = dtype_is_float(emit_dtype(e, number));
    int code = emit_cast(e, held, number), half = 1 << (dtype_file_bits(to) - 1);
    if (real) { /* what is cut to a byte, saturating, is cut on */
        code = emit2(e, K_MIN, held, code, emit_int(e, held, is_signed ? half - 1 : 2 * half - 1));
        return is_signed ? emit2(e, K_MAX, held, code, emit_int(e, held, -half)) : code;
    }
    code = emit2(e, K_AND, held, code, emit_int(e, held, 2 * half - 1));
    if (!is_signed) return code;
    code = emit2(e, K_XOR, held, code, emit_int(e, held, half)); /* the upper half is the negative numbers */
    return emit2(e, K_SUB, held, code, emit_int(e, held, half));
}

int small_from(Emit *e, DType to, int number, bool saturate) {
    return dtype_is_float(to) ? number_to_float(e, to, number, saturate) : number_to_integer(e, to, number);
}
