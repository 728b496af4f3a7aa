/* SPDX-License-Identifier: Apache-2.0 */
/* Included once an instruction set: defines the TileIsa tile_<ISA>. Wants
 *   ISA           the set's name
 *   ISA_TARGET    the compiler's feature string; not defined for the architecture's least
 *   VECTOR_BYTES  a register's size
 *   REGISTERS     how many there are */
#include <math.h>
#include <string.h>
#include "runtime/device/cpu/tile.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

/* All functions below are compiled for the set, whatever the compiler's flags. */
#ifdef ISA_TARGET
#define TILE_PRAGMA(text) _Pragma(#text)
#ifdef __clang__
#define TILE_TARGET(features) TILE_PRAGMA(clang attribute push(__attribute__((target(features))), apply_to = function))
#else
#define TILE_TARGET(features) TILE_PRAGMA(GCC target(features))
#endif
TILE_TARGET(ISA_TARGET)
#endif

#define TILE_JOIN_(a, b) a##_##b
#define TILE_JOIN(a, b) TILE_JOIN_(a, b)
#define TILE_INLINE static inline __attribute__((always_inline))
#ifdef __clang__
#define TILE_UNROLL _Pragma("clang loop unroll(full)")
#define TILE_UNROLL_COLUMNS TILE_UNROLL
#define TILE_NO_UNROLL _Pragma("clang loop unroll(disable)")
#else
#define TILE_UNROLL _Pragma("GCC unroll 16")
#define TILE_UNROLL_COLUMNS _Pragma("GCC unroll 32")
#define TILE_NO_UNROLL _Pragma("GCC unroll 1")
#endif

/* The value is in a register from here on. */
#if defined(__x86_64__)
#define TILE_HOLD(value) __asm__("" : "+v"(value))
#else
#define TILE_HOLD(value) __asm__("" : "+w"(value))
#endif

typedef float VF __attribute__((vector_size(VECTOR_BYTES)));
typedef float VFLoose __attribute__((vector_size(VECTOR_BYTES), aligned(4), may_alias));
typedef int32_t VI __attribute__((vector_size(VECTOR_BYTES)));
typedef uint32_t VU __attribute__((vector_size(VECTOR_BYTES)));

enum { LANES = VECTOR_BYTES / 4 };

/* To [low, high]; NaN stays: x86's min and max give their second operand then. */
#define SELECT(mask, yes, no) (((mask) & (yes)) | (~(mask) & (no)))
typedef double VD __attribute__((vector_size(VECTOR_BYTES)));
typedef int64_t VL __attribute__((vector_size(VECTOR_BYTES)));

TILE_INLINE VF f32_clamp(VF x, VF low, VF high) {
#if VECTOR_BYTES == 64
    return _mm512_min_ps(high, _mm512_max_ps(low, x));
#elif VECTOR_BYTES == 32
    return _mm256_min_ps(high, _mm256_max_ps(low, x));
#elif defined(__x86_64__)
    return _mm_min_ps(high, _mm_max_ps(low, x));
#else
    x = (VF)SELECT((VI)(x < low), (VI)low, (VI)x);
    return (VF)SELECT((VI)(x > high), (VI)high, (VI)x);
#endif
}

TILE_INLINE VD f64_clamp(VD x, VD low, VD high) {
    x = (VD)SELECT((VL)(x < low), (VL)low, (VL)x);
    return (VD)SELECT((VL)(x > high), (VL)high, (VL)x);
}

#define T float
#define NAME(word) TILE_JOIN(f32, word)
#define IS_FLOAT 1
#define IS_F32 1
#if REGISTERS == 32
#define WIDE 1
#else
#define WIDE 0
#endif
#include "runtime/device/cpu/tile_type.h"
#define T double
#define NAME(word) TILE_JOIN(f64, word)
#define IS_FLOAT 1
#define IS_F32 0
#define WIDE 0
#include "runtime/device/cpu/tile_type.h"
#define T uint32_t
#define NAME(word) TILE_JOIN(u32, word)
#define IS_FLOAT 0
#define IS_F32 0
#define WIDE 0
#include "runtime/device/cpu/tile_type.h"
#define T uint64_t
#define NAME(word) TILE_JOIN(u64, word)
#define IS_FLOAT 0
#define IS_F32 0
#define WIDE 0
#include "runtime/device/cpu/tile_type.h"

/* Square blocks turned in registers: in round `step`, rows i and i + step exchange their off-diagonal sub-blocks of
 * `step` lanes. */

#ifdef __clang__
#define TILE_SHUFFLE(a, b, mask) shuffle_lanes(a, b, mask)
TILE_INLINE VU shuffle_lanes(VU a, VU b, VI mask) {
    VU out;
    for (int i = 0; i < LANES; i++) out[i] = mask[i] < LANES ? a[mask[i]] : b[mask[i] - LANES];
    return out;
}
#else
#define TILE_SHUFFLE(a, b, mask) __builtin_shuffle(a, b, mask)
#endif

static void transpose_block(const void *rows, int64_t row_stride, void *const *columns) {
    typedef uint32_t Loose __attribute__((vector_size(VECTOR_BYTES), aligned(4), may_alias));
    VU r[LANES];
    TILE_UNROLL
    for (int i = 0; i < LANES; i++) r[i] = *(const Loose *)((const uint32_t *)rows + i * row_stride);
    TILE_UNROLL
    for (int step = 1; step < LANES; step *= 2) {
        VI low, high;
        for (int j = 0; j < LANES; j++) {
            low[j] = j & step ? LANES + j - step : j;
            high[j] = j & step ? LANES + j : j + step;
        }
        TILE_UNROLL
        for (int i = 0; i < LANES; i++) {
            if (i & step) continue;
            VU a = r[i], b = r[i + step];
            r[i] = TILE_SHUFFLE(a, b, low);
            r[i + step] = TILE_SHUFFLE(a, b, high);
        }
    }
    TILE_UNROLL
    for (int i = 0; i < LANES; i++) *(Loose *)columns[i] = r[i];
}

/* Activations, on vectors of floats. Selects keep NaN: a comparison with it is false. */

TILE_INLINE VF choose(VI mask, VF yes, VF no) { return (VF)SELECT(mask, (VI)yes, (VI)no); }
TILE_INLINE VF splat(float x) { return x - (VF){0}; }

/* exp to 1 ulp or so on [-87.3, 88.7], clamped beyond: 2^n * e^r with |r| <= ln 2 / 2, e^r by its Taylor series to r^7
 * / 7!. */
TILE_INLINE VF exp_vector(VF x) {
    x = f32_clamp(x, splat(-87.33f), splat(88.72f));
    VF shift = splat(0x1.8p23f), n = (x * splat(1.44269504f) + shift) - shift; /* rounds to nearest */
    VF r = x - n * splat(0.693359375f);                                        /* ln 2 in two parts, the first exact */
    r = r - n * splat(-2.12194440e-4f);
    VF p = splat(1.0f / 5040);
    p = p * r + splat(1.0f / 720);
    p = p * r + splat(1.0f / 120);
    p = p * r + splat(1.0f / 24);
    p = p * r + splat(1.0f / 6);
    p = p * r + splat(0.5f);
    p = p * r + splat(1);
    p = p * r + splat(1);
    /* n reaches 128, whose power is no float: half of it at a time */
    VI whole = __builtin_convertvector(n, VI), half = whole >> 1;
    return p * (VF)((half + 127) << 23) * (VF)((whole - half + 127) << 23);
}

/* S. Moshier, Cephes tanhf: an odd polynomial below 0.625, else 1 - 2 / (e^2x + 1). */
TILE_INLINE VF tanh_vector(VF x) {
    VF sign = (VF)((VI)x & (VI)splat(-0.0f)), a = (VF)((VI)x ^ (VI)sign), z = x * x;
    VF p = splat(-5.70498872745e-3f);
    p = p * z + splat(2.06390887954e-2f);
    p = p * z + splat(-5.37397155531e-2f);
    p = p * z + splat(1.33314422036e-1f);
    p = p * z + splat(-3.33332819422e-1f);
    VF large = splat(1) - splat(2) / (exp_vector(a + a) + splat(1));
    return choose(a < splat(0.625f), x + x * z * p, (VF)((VI)large | (VI)sign));
}

TILE_INLINE VF sigmoid_vector(VF x) { return splat(1) / (splat(1) + exp_vector(-x)); }

/* x * Phi(x) with Phi(-|x|) = erfc(z) / 2, z = |x| / sqrt 2, and erfc(z) = e^(-z z) t P(t), t = 1 / (1 + 0.3275911 z)
 * (the form of Abramowitz and Stegun 7.1.26; P is a fit of degree 7 by weighted least squares, relative error 1.1e-7
 * for z < 9.5). */
TILE_INLINE VF gelu_vector(VF x) {
    VF a = (VF)((VI)x & 0x7fffffff), z = a * splat(0.707106781f), t = splat(1) / (splat(1) + splat(0.3275911f) * z);
    VF p = splat(-0.141667885f);
    p = p * t + splat(0.498902728f);
    p = p * t + splat(-0.409645553f);
    p = p * t + splat(0.456607546f);
    p = p * t + splat(0.023690023f);
    p = p * t + splat(0.2064066f);
    p = p * t + splat(0.180648456f);
    p = p * t + splat(0.185058196f);
    VF tail = splat(0.5f) * t * p * exp_vector(splat(-0.5f) * x * x);
    return x * choose(x < splat(0), tail, splat(1) - tail);
}

TILE_INLINE VF activate_vector(VF x, const EpilogueKind kind, VF alpha, VF beta) {
    switch (kind) {
    case EPILOGUE_RELU: return choose(x < splat(0), splat(0), x);
    case EPILOGUE_LEAKY_RELU: return choose(x < splat(0), x * alpha, x);
    case EPILOGUE_CLIP: return f32_clamp(x, alpha, beta);
    case EPILOGUE_GELU_ERF: return gelu_vector(x);
    case EPILOGUE_GELU_TANH:
        return x * sigmoid_vector(splat(1.59576912f) * (x + splat(0.044715f) * x * x * x)); /* 2 sqrt(2 / pi) */
    case EPILOGUE_SIGMOID: return sigmoid_vector(x);
    case EPILOGUE_TANH: return tanh_vector(x);
    case EPILOGUE_SWISH: return x * sigmoid_vector(alpha * x);
    case EPILOGUE_HARD_SWISH: return x * f32_clamp(alpha * x + beta, splat(0), splat(1));
    case EPILOGUE_HARD_SIGMOID: return f32_clamp(alpha * x + beta, splat(0), splat(1));
    case EPILOGUE_LINEAR: return alpha * x + beta;
    default: return x;
    }
}

TILE_INLINE void activate_rows(void *const *rows, int m, int64_t column, int64_t count, const EpilogueKind kind,
                               float alpha, float beta) {
    VF a = splat(alpha), b = splat(beta);
    for (int row = 0; row < m; row++) {
        float *values = (float *)rows[row] + column;
        int64_t i = 0;
        for (; i + LANES <= count; i += LANES)
            *(VFLoose *)(values + i) = activate_vector(*(VFLoose *)(values + i), kind, a, b);
        if (i < count)
            f32_store_part(values + i, (int)(count - i),
                           activate_vector(f32_load_part(values + i, (int)(count - i)), kind, a, b));
    }
}

static void activate(void *const *rows, int m, int64_t column, int64_t count, EpilogueKind kind, float alpha,
                     float beta) {
    switch (kind) {
#define CASE(which)                                                                                                    \
    case which: activate_rows(rows, m, column, count, which, alpha, beta); break;
        CASE(EPILOGUE_RELU)
        CASE(EPILOGUE_LEAKY_RELU)
        CASE(EPILOGUE_CLIP)
        CASE(EPILOGUE_GELU_ERF)
        CASE(EPILOGUE_GELU_TANH)
        CASE(EPILOGUE_SIGMOID)
        CASE(EPILOGUE_TANH)
        CASE(EPILOGUE_SWISH)
        CASE(EPILOGUE_HARD_SWISH)
        CASE(EPILOGUE_HARD_SIGMOID)
        CASE(EPILOGUE_LINEAR)
#undef CASE
    default: break;
    }
}

/* Four columns at a time, a vector of partial sums each. */
static void dot(const float *row, const float *columns, int64_t stride, int64_t depth, float *result, int64_t count) {
    for (int64_t j = 0; j < count; j += 4) {
        const float *at[4];
        VF sums[4];
        float rest[4] = {0};
        TILE_UNROLL
        for (int c = 0; c < 4; c++) {
            at[c] = columns + (j + c < count ? j + c : j) * stride;
            sums[c] = splat(0);
        }
        int64_t k = 0;
        for (; k + LANES <= depth; k += LANES) {
            VF x = *(const VFLoose *)(row + k);
            TILE_UNROLL
            for (int c = 0; c < 4; c++) sums[c] += x * *(const VFLoose *)(at[c] + k);
        }
        for (; k < depth; k++)
            for (int c = 0; c < 4; c++) rest[c] += row[k] * at[c][k];
        for (int c = 0; c < 4 && j + c < count; c++) {
            float total = rest[c];
            for (int l = 0; l < LANES; l++) total += sums[c][l];
            result[j + c] = total;
        }
    }
}

#include "runtime/device/cpu/tile_narrow.h"

/* Conversions. */

/* Exponent and fraction moved to their places make the value times 2^-112, subnormals included; infinity and NaN get
 * the largest exponent. */
static void widen_f16(const uint16_t *from, float *to, int64_t count) {
    for (int64_t i = 0; i < count; i++) {
        uint32_t sign = (uint32_t)(from[i] & 0x8000) << 16, rest = (uint32_t)(from[i] & 0x7fff) << 13, bits;
        float scaled;
        memcpy(&scaled, &rest, sizeof scaled);
        scaled *= 0x1p112f;
        memcpy(&bits, &scaled, sizeof bits);
        bits |= sign | (rest >= 0x0f800000 ? 0x7f800000 : 0);
        memcpy(to + i, &bits, sizeof bits);
    }
}

/* To nearest even: normal numbers in integers; subnormals by adding 0.5, whose last place is 2^-24, the least f16. */
static void narrow_f16(const float *from, uint16_t *to, int64_t count) {
    for (int64_t i = 0; i < count; i++) {
        uint32_t bits, small;
        memcpy(&bits, from + i, sizeof bits);
        uint32_t sign = bits >> 16 & 0x8000;
        bits &= 0x7fffffff;
        float value;
        memcpy(&value, &bits, sizeof value);
        value += 0.5f;
        memcpy(&small, &value, sizeof small);
        uint32_t normal = (bits + 0xfff + (bits >> 13 & 1) - 0x38000000) >> 13;
        uint32_t half = bits < 0x38800000 ? small - 0x3f000000 : bits >= 0x477ff000 ? 0x7c00 : normal;
        to[i] = (uint16_t)(sign | (bits > 0x7f800000 ? 0x7e00 : half));
    }
}

static void widen_bf16(const uint16_t *from, float *to, int64_t count) {
    for (int64_t i = 0; i < count; i++) {
        uint32_t bits = (uint32_t)from[i] << 16;
        memcpy(to + i, &bits, sizeof bits);
    }
}

static void narrow_bf16(const float *from, uint16_t *to, int64_t count) {
    for (int64_t i = 0; i < count; i++) {
        uint32_t bits;
        memcpy(&bits, from + i, sizeof bits);
        uint32_t rounded = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
        to[i] = (uint16_t)((bits & 0x7fffffff) > 0x7f800000 ? (bits >> 16 | 0x40) : rounded);
    }
}

const TileIsa TILE_JOIN(tile, ISA) = {
    .name = VECTOR_BYTES == 64   ? "512-bit"
            : VECTOR_BYTES == 32 ? "256-bit"
                                 : "128-bit",
    .f32 = SET_WIDE(f32, float, transpose_block),
    .f64 = SET_NARROW(f64, double, NULL),
    .u32 = SET_NARROW(u32, uint32_t, transpose_block),
    .u64 = SET_NARROW(u64, uint64_t, NULL),
    .narrow = NARROW_SETS,
    .widen = widen,
    .activate = activate,
    .dot = dot,
    .widen_f16 = widen_f16,
    .narrow_f16 = narrow_f16,
    .widen_bf16 = widen_bf16,
    .narrow_bf16 = narrow_bf16,
};

#if defined(ISA_TARGET) && defined(__clang__)
#pragma clang attribute pop
#endif
