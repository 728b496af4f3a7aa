/* SPDX-License-Identifier: Apache-2.0 */
/* Loops written by hand with AVX-512's instructions, of the same formulas as the generated kernels' (codegen/math.c):
 * the marks that these have to reach. Four vectors at a time. */
#ifndef ONNXFUSE_BENCH_MARKS_H
#define ONNXFUSE_BENCH_MARKS_H

#include <stdint.h>

typedef void (*Mark)(const float *x, float *y, int64_t count); /* count: a multiple of 64 */

#if defined(__x86_64__) && defined(__GNUC__)
#include <immintrin.h>
#include "base/math/coefficients.h"

#define MARK_TARGET __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl")))
#define MARK_INLINE static inline __attribute__((always_inline)) MARK_TARGET
#define SET(x) _mm512_set1_ps((float)(x))

static inline int marks_run(void) { return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq"); }

MARK_INLINE __m512 mark_erf(__m512 x) {
    __m512 y = _mm512_min_ps(SET(ERF_MOST), _mm512_max_ps(SET(-ERF_MOST), x)), t = _mm512_abs_ps(y);
    __m512 shifted = _mm512_fmadd_ps(t, SET(1 / ERF_STEP), SET(0x1.8p23));
    __m512 d = _mm512_fmadd_ps(_mm512_sub_ps(shifted, SET(0x1.8p23)), SET(-ERF_STEP), t), q = _mm512_setzero_ps();
    for (int i = 6; i >= 0; i--) {
        const double *e = erf_table_f32[i];
        __m256 half = _mm256_setr_ps((float)e[0], (float)e[1], (float)e[2], (float)e[3], (float)e[4], (float)e[5],
                                     (float)e[6], (float)e[7]);
        __m512 term = _mm512_permutexvar_ps(_mm512_castps_si512(shifted), _mm512_broadcast_f32x8(half));
        q = i == 6 ? term : _mm512_fmadd_ps(q, d, term);
    }
    return _mm512_fmadd_ps(y, q, _mm512_mul_ps(y, SET(0.5)));
}

/* by / (1 + e^-x) */
MARK_INLINE __m512 mark_sigmoid(__m512 x, double by) {
    x = _mm512_min_ps(SET(40), _mm512_max_ps(SET(-104), x));
    __m512 shifter = SET(0x1.8p23 + 127 - 32), shifted = _mm512_fmadd_ps(x, SET(-LOG2_E), shifter);
    __m512 n = _mm512_sub_ps(shifted, shifter), one = SET(0x1p-32);
    __m512 r = _mm512_fmadd_ps(n, SET(LN2_F32_2), _mm512_fmadd_ps(n, SET(LN2_F32_1), x)), z = _mm512_mul_ps(r, r);
    const double *c = exp_tail_f32;
    __m512 low = _mm512_fmadd_ps(SET(-c[1]), r, SET(c[0])), high = _mm512_fmadd_ps(SET(-c[3]), r, SET(c[2]));
    __m512 tail = _mm512_fmadd_ps(_mm512_fmadd_ps(SET(c[4]), z, high), z, low);
    __m512 power = _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_castps_si512(shifted), 23));
    __m512 t = _mm512_fmsub_ps(z, tail, r);
    return _mm512_div_ps(SET(by * 0x1p-32), _mm512_add_ps(power, _mm512_fmadd_ps(power, t, one)));
}

MARK_INLINE __m512 mark_gelu_erf_of(__m512 x) {
    __m512 y = _mm512_fmadd_ps(x, SET(0x1.6a09e4p-1), _mm512_mul_ps(x, SET(0x1.9fcef2p-26)));
    return _mm512_mul_ps(_mm512_mul_ps(x, _mm512_add_ps(mark_erf(y), SET(1))), SET(0.5));
}

MARK_INLINE __m512 mark_gelu_tanh_of(__m512 x) {
    __m512 cube = _mm512_mul_ps(x, _mm512_mul_ps(x, x));
    __m512 u = _mm512_mul_ps(_mm512_add_ps(x, _mm512_mul_ps(cube, SET(0.044715))), SET(0.7978845608028654));
    return _mm512_mul_ps(_mm512_mul_ps(x, mark_sigmoid(_mm512_add_ps(u, u), 2)), SET(0.5));
}

MARK_INLINE __m512 mark_swish_of(__m512 x) { return _mm512_mul_ps(x, mark_sigmoid(x, 1)); }

#define MARK(name)                                                                                                     \
    static MARK_TARGET void mark_##name(const float *x, float *y, int64_t count) {                                     \
        for (int64_t i = 0; i < count; i += 64) {                                                                      \
            __m512 v[4];                                                                                               \
            for (int c = 0; c < 4; c++) v[c] = mark_##name##_of(_mm512_loadu_ps(x + i + 16 * c));                      \
            for (int c = 0; c < 4; c++) _mm512_storeu_ps(y + i + 16 * c, v[c]);                                        \
        }                                                                                                              \
    }
MARK(gelu_erf)
MARK(gelu_tanh)
MARK(swish)

#else
static inline int marks_run(void) { return 0; }
#define mark_gelu_erf NULL
#define mark_gelu_tanh NULL
#define mark_swish NULL
#endif

#endif
