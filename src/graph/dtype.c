/* SPDX-License-Identifier: Apache-2.0 */
/* Names, sizes and classes of the element types, and the conversions of single elements. The narrow floats are
 * converted in integer arithmetic, so results do not depend on the machine; values are those of the ONNX standard's
 * float8 and float4 pages. */
#include "graph/dtype.h"

#include <math.h>
#include <string.h>

#ifdef __F16C__
#include <immintrin.h>
#endif

typedef struct DTypeInfo {
    const char *name;
    size_t size;
    DTypeClass class;
} DTypeInfo;

static const DTypeInfo infos[DTYPE_COUNT] = {
#define X(enumerator, number, name, size, class) [enumerator] = {name, size, class},
    DTYPES(X)
#undef X
};

static const char *const onnx_names[DTYPE_COUNT] = {
    [DT_NONE] = "undefined",
    [DT_F32] = "float32",
    [DT_U8] = "uint8",
    [DT_I8] = "int8",
    [DT_U16] = "uint16",
    [DT_I16] = "int16",
    [DT_I32] = "int32",
    [DT_I64] = "int64",
    [DT_STRING] = "string",
    [DT_BOOL] = "bool",
    [DT_F16] = "float16",
    [DT_F64] = "float64",
    [DT_U32] = "uint32",
    [DT_U64] = "uint64",
    [DT_C64] = "complex64",
    [DT_C128] = "complex128",
    [DT_BF16] = "bfloat16",
    [DT_F8E4M3FN] = "float8e4m3fn",
    [DT_F8E4M3FNUZ] = "float8e4m3fnuz",
    [DT_F8E5M2] = "float8e5m2",
    [DT_F8E5M2FNUZ] = "float8e5m2fnuz",
    [DT_U4] = "uint4",
    [DT_I4] = "int4",
    [DT_F4E2M1] = "float4e2m1",
    [DT_F8E8M0] = "float8e8m0",
    [DT_U2] = "uint2",
    [DT_I2] = "int2",
};

static DType known(DType dtype) { return (unsigned)dtype < DTYPE_COUNT ? dtype : DT_NONE; }

const char *dtype_name(DType dtype) { return infos[known(dtype)].name; }
const char *dtype_onnx_name(DType dtype) { return onnx_names[known(dtype)]; }
size_t dtype_size(DType dtype) { return infos[known(dtype)].size; }
DTypeClass dtype_class(DType dtype) { return infos[known(dtype)].class; }

DType dtype_from_name(const char *name, size_t size) {
    for (int i = 1; i < DTYPE_COUNT; i++)
        if (strlen(infos[i].name) == size && memcmp(infos[i].name, name, size) == 0) return (DType)i;
    return DT_NONE;
}

int dtype_file_bits(DType dtype) {
    switch (dtype) {
    case DT_U4:
    case DT_I4:
    case DT_F4E2M1: return 4;
    case DT_U2:
    case DT_I2: return 2;
    default: return (int)dtype_size(dtype) * 8;
    }
}

/* Narrow floats. */

static uint32_t bits_of(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static float from_bits(uint32_t bits) {
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* The magnitude of a finite float, rounded to nearest even, as biased exponent and mantissa of a format with gradual
 * underflow. The exponent may exceed the format's: the caller compares the code with the largest finite one. */
static uint32_t round_magnitude(uint32_t magnitude, int mantissa_bits, int bias) {
    int exponent = (int)(magnitude >> 23), shift = 23 - mantissa_bits;
    uint32_t significand = magnitude & 0x7fffff, base = 0;
    if (exponent)
        significand |= 0x800000;
    else
        exponent = 1;
    exponent += bias - 127;
    if (exponent >= 1)
        base = (uint32_t)(exponent - 1) << mantissa_bits; /* the significand's leading bit adds the last one */
    else
        shift += 1 - exponent;
    if (shift > 25) return 0;
    uint32_t kept = significand >> shift, lost = significand & ((1u << shift) - 1), half = 1u << (shift - 1);
    return base + kept + (lost > half || (lost == half && (kept & 1)));
}

float f16_to_f32(uint16_t bits) {
#ifdef __F16C__
    return _cvtsh_ss(bits);
#else
    uint32_t sign = (uint32_t)(bits & 0x8000) << 16, exponent = bits >> 10 & 31, mantissa = bits & 0x3ff;
    if (exponent == 31) return from_bits(sign | 0x7f800000 | mantissa << 13 | (mantissa ? 0x400000 : 0));
    if (exponent) return from_bits(sign | (exponent + 112) << 23 | mantissa << 13);
    float value = (float)mantissa * 0x1p-24f;
    return sign ? -value : value;
#endif
}

uint16_t f32_to_f16(float value) {
#ifdef __F16C__
    return _cvtss_sh(value, _MM_FROUND_TO_NEAREST_INT);
#else
    uint32_t bits = bits_of(value), magnitude = bits & 0x7fffffff, sign = bits >> 16 & 0x8000;
    if (magnitude > 0x7f800000) return (uint16_t)(sign | 0x7e00 | (magnitude >> 13 & 0x3ff));
    uint32_t code = magnitude == 0x7f800000 ? 0x7c00 : round_magnitude(magnitude, 10, 15);
    return (uint16_t)(sign | (code > 0x7c00 ? 0x7c00 : code));
#endif
}

float bf16_to_f32(uint16_t bits) { return from_bits((uint32_t)bits << 16); }

uint16_t f32_to_bf16(float value) {
    uint32_t bits = bits_of(value);
    if ((bits & 0x7fffffff) > 0x7f800000) return (uint16_t)(bits >> 16 | 0x40);
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

/* f4e2m1 has no NaN; the standard leaves its conversion open, zero (of the other sign) is what the ml_dtypes library
 * gives. */
const SmallFloat *small_float(DType dtype) {
    static const SmallFloat e4m3fn = {3, 7, 0x80, 0x7e, 0x7f, 0x7f, false},
                            e4m3fnuz = {3, 8, 0x80, 0x7f, 0x80, 0x80, true},
                            e5m2 = {2, 15, 0x80, 0x7b, 0x7c, 0x7e, false},
                            e5m2fnuz = {2, 16, 0x80, 0x7f, 0x80, 0x80, true},
                            e2m1 = {1, 1, 0x08, 0x07, 0x07, 0x08, false};
    switch (dtype) {
    case DT_F8E4M3FN: return &e4m3fn;
    case DT_F8E4M3FNUZ: return &e4m3fnuz;
    case DT_F8E5M2: return &e5m2;
    case DT_F8E5M2FNUZ: return &e5m2fnuz;
    case DT_F4E2M1: return &e2m1;
    default: return NULL;
    }
}

float small_float_to_f32(DType dtype, uint8_t bits) {
    if (dtype == DT_F8E8M0) return bits == 0xff ? NAN : ldexpf(1, bits - 127);
    const SmallFloat *f = small_float(dtype);
    if (!f) return 0;
    bits &= (uint8_t)(f->sign | (f->sign - 1));
    int magnitude = bits & (f->sign - 1);
    if (f->unsigned_nan && bits == f->nan) return NAN;
    float value;
    if (magnitude > f->largest)
        value = magnitude == f->beyond && f->beyond != f->nan ? INFINITY : NAN;
    else {
        int exponent = magnitude >> f->mantissa_bits, mantissa = magnitude & ((1 << f->mantissa_bits) - 1);
        if (exponent) mantissa |= 1 << f->mantissa_bits;
        value = ldexpf((float)mantissa, (exponent ? exponent : 1) - f->bias - f->mantissa_bits);
    }
    return bits & f->sign ? -value : value;
}

/* The standard's reference drops the sign; infinity has no code but that of NaN. */
uint8_t f32_to_f8e8m0(float value, bool saturate, PowerRounding rounding) {
    uint32_t bits = bits_of(value), exponent = bits >> 23 & 0xff, fraction = bits & 0x7fffff;
    if (exponent == 0xff) return 0xff;
    bool up = rounding == POWER_UP && fraction;
    if (rounding == POWER_NEAREST) up = fraction > 0x400000 || (fraction == 0x400000 && exponent > 0);
    if (up && !(saturate && exponent == 0xfe)) exponent++;
    return (uint8_t)exponent;
}

uint8_t f32_to_small_float(DType dtype, float value, bool saturate) {
    if (dtype == DT_F8E8M0) return f32_to_f8e8m0(value, saturate, POWER_UP);
    const SmallFloat *f = small_float(dtype);
    if (!f) return 0;
    uint32_t magnitude = bits_of(value) & 0x7fffffff, code;
    uint8_t sign = signbit(value) ? f->sign : 0;
    if (magnitude > 0x7f800000)
        code = f->nan;
    else {
        code = magnitude == 0x7f800000 ? UINT32_MAX : round_magnitude(magnitude, f->mantissa_bits, f->bias);
        if (code > f->largest) code = saturate ? f->largest : f->beyond;
    }
    if (f->unsigned_nan && (code == 0 || code == f->nan)) return (uint8_t)code;
    return (uint8_t)(code ^ sign);
}

/* Single elements. */

/* To float with the last bit set when inexact ("round to odd"): rounding that again to fewer than 22 bits is rounding
 * the double itself (Boldo and Melquiond, "Emulation of FMA and correctly rounded sums: proved algorithms using
 * rounding to odd", 2008). */
static float narrow_to_odd(double value) {
    float nearest = (float)value;
    if ((double)nearest == value || isnan(value)) return nearest;
    uint32_t bits = bits_of(nearest);
    if (fabs((double)nearest) > fabs(value)) bits--; /* toward zero; from infinity this is the largest float */
    return from_bits(bits | 1);
}

/* Likewise int64 to double. */
static double widen_to_odd(int64_t value) {
    uint64_t magnitude = value < 0 ? -(uint64_t)value : (uint64_t)value;
    if (magnitude >> 53) magnitude = (magnitude & ~UINT64_C(0x7ff)) | (magnitude & 0x7ff ? 0x800 : 0);
    return value < 0 ? -(double)magnitude : (double)magnitude;
}

/* x, toward zero, within [low, high]; NaN gives 0. The bounds' doubles may lie one beyond the integers: >= and <= leave
 * those. */
static int64_t truncate_within(double x, int64_t low, int64_t high) {
    if (isnan(x)) return 0;
    if (x <= (double)low) return low;
    return x >= (double)high ? high : (int64_t)x;
}

static uint64_t truncate_unsigned(double x) {
    if (!(x > 0)) return 0;
    return x >= 0x1p64 ? UINT64_MAX : (uint64_t)x;
}

/* Elements may stand unaligned in a mapped file. */
#define LOAD(type)                                                                                                     \
    static type load_##type(const void *data, int64_t index) {                                                         \
        type value;                                                                                                    \
        memcpy(&value, (const char *)data + index * (int64_t)sizeof value, sizeof value);                              \
        return value;                                                                                                  \
    }
LOAD(float)
LOAD(double)
LOAD(int8_t)
LOAD(uint8_t)
LOAD(int16_t)
LOAD(uint16_t)
LOAD(int32_t)
LOAD(uint32_t)
LOAD(int64_t)
LOAD(uint64_t)

double dtype_load_double(DType dtype, const void *data, int64_t index) {
    switch (dtype) {
    case DT_F64: return load_double(data, index);
    case DT_F32: return (double)load_float(data, index);
    case DT_F16: return (double)f16_to_f32(load_uint16_t(data, index));
    case DT_BF16: return (double)bf16_to_f32(load_uint16_t(data, index));
    case DT_F8E4M3FN:
    case DT_F8E4M3FNUZ:
    case DT_F8E5M2:
    case DT_F8E5M2FNUZ:
    case DT_F8E8M0:
    case DT_F4E2M1: return (double)small_float_to_f32(dtype, load_uint8_t(data, index));
    case DT_U64: return (double)load_uint64_t(data, index);
    default: return (double)dtype_load_int(dtype, data, index);
    }
}

int64_t dtype_load_int(DType dtype, const void *data, int64_t index) {
    switch (dtype) {
    case DT_I8:
    case DT_I4:
    case DT_I2: return load_int8_t(data, index);
    case DT_U8:
    case DT_U4:
    case DT_U2: return load_uint8_t(data, index);
    case DT_BOOL: return load_uint8_t(data, index) != 0;
    case DT_I16: return load_int16_t(data, index);
    case DT_U16: return load_uint16_t(data, index);
    case DT_I32: return load_int32_t(data, index);
    case DT_U32: return load_uint32_t(data, index);
    case DT_I64: return load_int64_t(data, index);
    case DT_U64: return (int64_t)load_uint64_t(data, index);
    default:
        if (!dtype_is_float(dtype)) return 0;
        return truncate_within(dtype_load_double(dtype, data, index), INT64_MIN, INT64_MAX);
    }
}

/* Least and greatest value of an integer type that fits int64. */
static bool integer_bounds(DType dtype, int64_t *out_low, int64_t *out_high) {
    int bits = dtype_file_bits(dtype);
    if (!dtype_is_integer(dtype) || dtype == DT_U64) return false;
    bool is_signed = dtype_class(dtype) == DTYPE_SIGNED;
    *out_high = is_signed ? (int64_t)(UINT64_MAX >> (65 - bits)) : (int64_t)(UINT64_MAX >> (64 - bits));
    *out_low = is_signed ? -*out_high - 1 : 0;
    return true;
}

#define STORE(type, value) memcpy((char *)data + index * (int64_t)sizeof(type), &(type){(type)(value)}, sizeof(type))

void dtype_store_double(DType dtype, void *data, int64_t index, double value) {
    int64_t low, high;
    switch (dtype) {
    case DT_F64: STORE(double, value); return;
    case DT_F32: STORE(float, (float)value); return;
    case DT_F16: STORE(uint16_t, f32_to_f16(narrow_to_odd(value))); return;
    case DT_BF16: STORE(uint16_t, f32_to_bf16(narrow_to_odd(value))); return;
    case DT_U64: STORE(uint64_t, truncate_unsigned(value)); return;
    case DT_BOOL: STORE(uint8_t, value != 0); return;
    default:
        if (dtype_is_float(dtype))
            STORE(uint8_t, f32_to_small_float(dtype, narrow_to_odd(value), true));
        else if (integer_bounds(dtype, &low, &high))
            dtype_store_int(dtype, data, index, truncate_within(value, low, high));
    }
}

void dtype_store_int(DType dtype, void *data, int64_t index, int64_t value) {
    switch (dtype) {
    case DT_I8:
    case DT_U8: STORE(uint8_t, (uint8_t)value); return;
    case DT_U4: STORE(uint8_t, value & 15); return;
    case DT_I4: STORE(int8_t, (int8_t)(((value & 15) ^ 8) - 8)); return;
    case DT_U2: STORE(uint8_t, value & 3); return;
    case DT_I2: STORE(int8_t, (int8_t)(((value & 3) ^ 2) - 2)); return;
    case DT_I16:
    case DT_U16: STORE(uint16_t, (uint16_t)value); return;
    case DT_I32:
    case DT_U32: STORE(uint32_t, (uint32_t)value); return;
    case DT_I64:
    case DT_U64: STORE(uint64_t, (uint64_t)value); return;
    case DT_BOOL: STORE(uint8_t, value != 0); return;
    case DT_F32: STORE(float, (float)value); return;
    case DT_F64: STORE(double, (double)value); return;
    default: dtype_store_double(dtype, data, index, widen_to_odd(value));
    }
}
