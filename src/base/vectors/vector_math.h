/* SPDX-License-Identifier: Apache-2.0 */
/* Vectors of one instruction set, and functions on them. Included by a unit that is compiled for the set, after all other
 * headers; wants
 *   ISA_TARGET    the compiler's feature string; not defined for the architecture's least
 *   VECTOR_BYTES  a register's size
 * What stands between this and VECTOR_END is compiled for the set, whatever the compiler's flags. */
#ifndef ONNXFUSE_BASE_VECTORS_VECTOR_MATH_H
#define ONNXFUSE_BASE_VECTORS_VECTOR_MATH_H

#include <stdint.h>

#include "base/math/coefficients.h"

#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

/* Clang's intrinsics for aarch64 are there where the whole unit is compiled for the set (cmake/folders.cmake). */
#if defined(ISA_TARGET) && defined(__clang__) && defined(__aarch64__)
#undef ISA_TARGET
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

/* The greater of both; `than` where one is NaN. */
VECTOR_INLINE VF greater(VF x, VF than) {
#if VECTOR_BYTES == 64
    return _mm512_max_ps(x, than);
#elif VECTOR_BYTES == 32
    return _mm256_max_ps(x, than);
#elif defined(__x86_64__)
    return _mm_max_ps(x, than);
#else
    return choose(x > than, x, than);
#endif
}

/* To [low, high]; NaN stays: x86's min gives its second operand then. */
VECTOR_INLINE VF f32_clamp(VF x, VF low, VF high) {
#if VECTOR_BYTES == 64
    return _mm512_min_ps(high, greater(low, x));
#elif VECTOR_BYTES == 32
    return _mm256_min_ps(high, greater(low, x));
#elif defined(__x86_64__)
    return _mm_min_ps(high, greater(low, x));
#else
    x = greater(low, x);
    return choose(x > high, high, x);
#endif
}

/* a * b + c rounded once; without FMA hardware through f64, as kernels do it. */
VECTOR_INLINE VF fused(VF a, VF b, VF c) {
#if VECTOR_BYTES == 64
    return _mm512_fmadd_ps(a, b, c);
#elif VECTOR_BYTES == 32
    return _mm256_fmadd_ps(a, b, c);
#elif defined(__aarch64__)
    return (VF)vfmaq_f32((float32x4_t)c, (float32x4_t)a, (float32x4_t)b);
#else
    VF sum;
    for (int i = 0; i < VECTOR_BYTES / 4; i++) sum[i] = (float)((double)a[i] * (double)b[i] + (double)c[i]);
    return sum;
#endif
}
VECTOR_INLINE VF fused_by(VF a, double b, VF c) { return fused(a, splat((float)b), c); }

/* ---- functions ----------------------------------------------------------------------------------------------------
 * Those of kernels, to the bit (codegen/math.c has the reasons; tests/codegen/test_vectors.c compares all), so that an
 * operator gives the same whether it is fused or not. Kernels are compiled while a model is opened, for what they
 * compute; these are parts of loops that the C compiler has to see whole. */

/* x = n log(2) + r with 2^n in the exponent field of `power`, by as much as `order` more. */
typedef struct Reduced {
    VF r, power;
} Reduced;

VECTOR_INLINE Reduced reduced(VF x, const int order) {
    VF shifter = splat(0x1.8p23f + 127 + (float)order), shifted = fused_by(x, LOG2_E, shifter), n = shifted - shifter;
    return (Reduced){fused_by(n, -LN2_F32_2, fused_by(n, -LN2_F32_1, x)), (VF)((VI)shifted << 23)};
}

/* (e^r - 1 - r) / r^2, given r^2. */
VECTOR_INLINE VF exp_tail(VF r, VF square) {
    const double *c = exp_tail_f32;
    VF low = fused_by(r, c[1], splat((float)c[0])), high = fused_by(r, c[3], splat((float)c[2]));
    return fused(fused_by(square, c[4], high), square, low);
}

/* t / (t + 2) with t = e^(2|x|) - 1; a series near 0. */
VECTOR_INLINE VF tanh_vector(VF x) {
    const double *c = tanh_tail_f32;
    VF sign = (VF)((VI)x & (VI)splat(-0.0f)), magnitude = (VF)((VI)x ^ (VI)sign);
    VF a = f32_clamp(magnitude, splat(0), splat(10)), z = a * a, near = splat((float)c[3]);
    Reduced e = reduced(a + a, 0);
    VF square = e.r * e.r, t = fused(e.power, fused(square, exp_tail(e.r, square), e.r), e.power - splat(1));
    for (int i = 2; i >= 0; i--) near = fused(near, z, splat((float)c[i]));
    VF result = choose(a < splat((float)TANH_NEAR), fused(a * z, near, a), t / (t + splat(2)));
    return (VF)((VI)result | (VI)sign);
}

/* 1 / (1 + e^-x), all by 2^-32 against overflow. */
VECTOR_INLINE VF sigmoid_vector(VF x) {
    VF one = splat(0x1p-32f);
    Reduced e = reduced(-f32_clamp(x, splat(-105), splat(40)), -32);
    VF square = e.r * e.r, t = fused(square, exp_tail(e.r, square), e.r);
    return one / (e.power + fused(e.power, t, one));
}

/* Each of `count` vectors x <= 64, four at most, becomes e^x, for the weights of a softmax, of which the greatest is about 1: 2^(x log2(e)),
 * whose relative error grows with -x, by 2^-24 of x log2(e), as what it is an error of falls. Of 0 it is 1; below 2^-125.5 it is 0, so
 * that what attention hides counts as nothing and no denormal slows what follows; NaN stays. The vectors go step by step beside each
 * other: one alone is a chain of ten instructions, and processors do not look far enough ahead to fill it. 2^(n - 1) times twice the
 * polynomial, so that the exponent's field is 0 where the result is. */
VECTOR_INLINE void exp_below_vectors(VF *x, const int count) {
    enum { MOST = 4, LEAST = -126 };
    const double *c = exp2_tail_f32;
    VF shifter = splat(0x1.8p23f - LEAST), shifted[MOST], p[MOST];
#define EACH_VECTOR                                                                                                    \
    VECTOR_UNROLL                                                                                                      \
    for (int v = 0; v < count; v++)
    EACH_VECTOR x[v] *= splat((float)LOG2_E);
    EACH_VECTOR x[v] = greater(splat(LEAST), x[v]);
    EACH_VECTOR shifted[v] = x[v] + shifter;
    EACH_VECTOR x[v] -= shifted[v] - shifter;
    EACH_VECTOR p[v] = fused_by(x[v], 2 * c[4], splat((float)(2 * c[3])));
    for (int i = 2; i >= 0; i--) EACH_VECTOR p[v] = fused(p[v], x[v], splat((float)(2 * c[i])));
    EACH_VECTOR p[v] = fused(p[v], x[v], splat(2));
    EACH_VECTOR x[v] = p[v] * (VF)((VI)shifted[v] << 23);
#undef EACH_VECTOR
}

#endif
