/* SPDX-License-Identifier: Apache-2.0 */
/* Vectors of one instruction set, and functions on them. Included by a unit that is compiled for the set, after all other
 * headers; wants
 *   ISA_TARGET    the compiler's feature string; not defined for the architecture's least
 *   VECTOR_BYTES  a register's size
 * What stands between this and VECTOR_END is compiled for the set, whatever the compiler's flags. */
#ifndef ONNXFUSE_BASE_VECTORS_VECTOR_MATH_H
#define ONNXFUSE_BASE_VECTORS_VECTOR_MATH_H

#include <stdint.h>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#ifdef ISA_TARGET
#define VECTOR_PRAGMA(text) _Pragma(#text)
#ifdef __clang__
#define VECTOR_TARGET(features)                                                                                        \
    VECTOR_PRAGMA(clang attribute push(__attribute__((target(features))), apply_to = function))
#else
#define VECTOR_TARGET(features) VECTOR_PRAGMA(GCC target(features))
#endif
VECTOR_TARGET(ISA_TARGET)
#endif
#if defined(ISA_TARGET) && defined(__clang__)
#define VECTOR_END VECTOR_PRAGMA(clang attribute pop)
#else
#define VECTOR_END
#endif

#define VECTOR_INLINE static inline __attribute__((always_inline))
#ifdef __clang__
#define VECTOR_UNROLL _Pragma("clang loop unroll(full)")
#else
#define VECTOR_UNROLL _Pragma("GCC unroll 16")
#endif

typedef float VF __attribute__((vector_size(VECTOR_BYTES)));
typedef float VFLoose __attribute__((vector_size(VECTOR_BYTES), aligned(4), may_alias)); /* in memory */
typedef int32_t VI __attribute__((vector_size(VECTOR_BYTES)));
typedef uint32_t VU __attribute__((vector_size(VECTOR_BYTES)));

/* Selects keep NaN: a comparison with it is false. */
VECTOR_INLINE VF choose(VI mask, VF yes, VF no) { return (VF)((mask & (VI)yes) | (~mask & (VI)no)); }
VECTOR_INLINE VF splat(float x) { return x - (VF){0}; }

/* To [low, high]; NaN stays: x86's min and max give their second operand then. */
VECTOR_INLINE VF f32_clamp(VF x, VF low, VF high) {
#if VECTOR_BYTES == 64
    return _mm512_min_ps(high, _mm512_max_ps(low, x));
#elif VECTOR_BYTES == 32
    return _mm256_min_ps(high, _mm256_max_ps(low, x));
#elif defined(__x86_64__)
    return _mm_min_ps(high, _mm_max_ps(low, x));
#else
    x = choose(x < low, low, x);
    return choose(x > high, high, x);
#endif
}

/* exp to 1 ulp or so on [-87.3, 88.7], clamped beyond: 2^n * e^r with |r| <= ln 2 / 2, e^r by its Taylor series to r^7
 * / 7!. */
VECTOR_INLINE VF exp_vector(VF x) {
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

/* e^d for d <= 0, to 1 ulp: 2^n * 2^f with |f| <= 1/2, 2^f by a polynomial that is 1 at 0 (fitted to the least relative
 * error, 2e-9). Below 2^-126 it is 0, so that what attention hides counts as nothing and no denormal slows what follows. NaN
 * stays. */
VECTOR_INLINE VF exp_below_vector(VF d) {
    VF log2e = splat(1.44269504f), t = d * log2e;
#if VECTOR_BYTES == 64
    VF n = _mm512_roundscale_ps(t, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
#else
    VF shift = splat(0x1.8p23f), n = (t + shift) - shift;
#endif
    VF f = d * log2e - n;
    VF p = splat(1.5353362e-4f);
    p = p * f + splat(1.3398875e-3f);
    p = p * f + splat(9.618437e-3f);
    p = p * f + splat(5.5503324e-2f);
    p = p * f + splat(0.24022648f);
    p = p * f + splat(0.6931472f);
    p = p * f + splat(1);
#if VECTOR_BYTES == 64
    return _mm512_maskz_scalef_ps(_mm512_cmp_ps_mask(t, splat(-126), _CMP_NLT_UQ), p, n);
#else
    VI seen = (VI) ~(t < splat(-126)), power = (__builtin_convertvector(n, VI) + 127) << 23;
    return (VF)((VI)(p * (VF)power) & seen);
#endif
}

/* S. Moshier, Cephes tanhf: an odd polynomial below 0.625, else 1 - 2 / (e^2x + 1). */
VECTOR_INLINE VF tanh_vector(VF x) {
    VF sign = (VF)((VI)x & (VI)splat(-0.0f)), a = (VF)((VI)x ^ (VI)sign), z = x * x;
    VF p = splat(-5.70498872745e-3f);
    p = p * z + splat(2.06390887954e-2f);
    p = p * z + splat(-5.37397155531e-2f);
    p = p * z + splat(1.33314422036e-1f);
    p = p * z + splat(-3.33332819422e-1f);
    VF large = splat(1) - splat(2) / (exp_vector(a + a) + splat(1));
    return choose(a < splat(0.625f), x + x * z * p, (VF)((VI)large | (VI)sign));
}

VECTOR_INLINE VF sigmoid_vector(VF x) { return splat(1) / (splat(1) + exp_vector(-x)); }

#endif
