/* SPDX-License-Identifier: Apache-2.0 */
/* Loops written by hand with AVX-512's instructions, of the same formulas as the generated kernels' (codegen/math.c),
 * which have to reach them: rows [from, to) of a pattern. */
#ifndef ONNXFUSE_BENCH_MARKS_H
#define ONNXFUSE_BENCH_MARKS_H

#include <stdbool.h>
#include <stdint.h>

/* values: the pattern's inputs, then its result; sizes: of its symbols; past: the result is stored past the caches. */
typedef void (*Mark)(void *const *values, const int64_t *sizes, int64_t from, int64_t to, bool past);

#if defined(__x86_64__) && defined(__GNUC__)
#include <immintrin.h>
#include "base/math/coefficients.h"
#include "codegen/divide.h"

#define MARK_TARGET __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl")))
#define MARK_INLINE static inline __attribute__((always_inline)) MARK_TARGET
#define SET(x) _mm512_set1_ps((float)(x))

/* Vectors at once. */
#define MARK_VECTORS 8
#define EACH_VECTOR _Pragma("GCC unroll 8") for (int c = 0; c < MARK_VECTORS; c++)

static inline int marks_run(void) { return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq"); }

MARK_INLINE void mark_store(float *at, __m512 value, const bool past) {
    if (past)
        _mm512_stream_ps(at, value);
    else
        _mm512_storeu_ps(at, value);
}

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
    x = _mm512_min_ps(SET(40), _mm512_max_ps(SET(-105), x));
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

/* 1/b in two parts: b here is neither large nor small. */
MARK_INLINE void mark_inverse(float b, __m512 *high, __m512 *low) {
    float r = 1 / b * (float)DIVISOR_BEFORE;
    *high = SET(r);
    *low = SET(fmaf(-r, b, 1) * r);
}

MARK_INLINE __m512 mark_quotient(__m512 a, __m512 high, __m512 low) {
    return _mm512_fmadd_ps(a, high, _mm512_mul_ps(a, low));
}

MARK_INLINE __m512 mark_gelu_erf_of(__m512 x) {
    __m512 high, low;
    mark_inverse(1.4142135f, &high, &low);
    __m512 y = mark_quotient(x, high, low);
    return _mm512_mul_ps(_mm512_mul_ps(x, _mm512_add_ps(mark_erf(y), SET(1))), SET(0.5));
}

MARK_INLINE __m512 mark_gelu_tanh_of(__m512 x) {
    __m512 cube = _mm512_mul_ps(x, _mm512_mul_ps(x, x));
    __m512 u = _mm512_mul_ps(_mm512_add_ps(x, _mm512_mul_ps(cube, SET(0.044715))), SET(0.7978845608028654));
    return _mm512_mul_ps(_mm512_mul_ps(x, mark_sigmoid(_mm512_add_ps(u, u), 2)), SET(0.5));
}

MARK_INLINE __m512 mark_swish_of(__m512 x) { return _mm512_mul_ps(x, mark_sigmoid(x, 1)); }

/* e^x, x at most 0. */
MARK_INLINE __m512 mark_exp_below(__m512 x) {
    const double *c = exp_tail_f32;
    x = _mm512_max_ps(SET(-105), x);
    __m512 shifter = SET(0x1.8p23), n = _mm512_sub_ps(_mm512_fmadd_ps(x, SET(LOG2_E), shifter), shifter);
    __m512 r = _mm512_fmadd_ps(n, SET(-LN2_F32_2), _mm512_fmadd_ps(n, SET(-LN2_F32_1), x)), p = SET(c[4]);
    for (int i = 3; i >= 0; i--) p = _mm512_fmadd_ps(p, r, SET(c[i]));
    p = _mm512_fmadd_ps(_mm512_fmadd_ps(p, r, SET(1)), r, SET(1));
    return _mm512_scalef_ps(p, n);
}

MARK_INLINE __m512 mark_tanh(__m512 x) {
    const double *c = exp_tail_f32, *s = tanh_tail_f32;
    __m512 a = _mm512_min_ps(SET(10), _mm512_abs_ps(x)), z = _mm512_mul_ps(a, a), u = _mm512_add_ps(a, a);
    __m512 near = SET(s[3]), shifter = SET(0x1.8p23 + 127), shifted = _mm512_fmadd_ps(u, SET(LOG2_E), shifter);
    __m512 n = _mm512_sub_ps(shifted, shifter);
    __m512 r = _mm512_fmadd_ps(n, SET(-LN2_F32_2), _mm512_fmadd_ps(n, SET(-LN2_F32_1), u)), q = _mm512_mul_ps(r, r);
    __m512 low = _mm512_fmadd_ps(SET(c[1]), r, SET(c[0])), high = _mm512_fmadd_ps(SET(c[3]), r, SET(c[2]));
    __m512 tail = _mm512_fmadd_ps(_mm512_fmadd_ps(SET(c[4]), q, high), q, low);
    __m512 power = _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_castps_si512(shifted), 23));
    __m512 t = _mm512_fmadd_ps(power, _mm512_fmadd_ps(q, tail, r), _mm512_sub_ps(power, SET(1)));
    for (int i = 2; i >= 0; i--) near = _mm512_fmadd_ps(near, z, SET(s[i]));
    near = _mm512_fmadd_ps(_mm512_mul_ps(a, z), near, a);
    __m512 far = _mm512_div_ps(t, _mm512_add_ps(t, SET(2)));
    far = _mm512_mask_mov_ps(far, _mm512_cmp_ps_mask(a, SET(TANH_NEAR), _CMP_LT_OQ), near);
    __m512i sign = _mm512_set1_epi32(INT32_MIN); /* x where it is set, else the result */
    return _mm512_castsi512_ps(_mm512_ternarylogic_epi32(sign, _mm512_castps_si512(x), _mm512_castps_si512(far), 0xCA));
}

/* log(x), x positive and no subnormal. */
MARK_INLINE __m512 mark_log(__m512 x) {
    const double *c = log_tail_f32;
    __m512 e = _mm512_getexp_ps(x), m = _mm512_getmant_ps(x, _MM_MANT_NORM_1_2, _MM_MANT_SIGN_zero);
    __mmask16 high = _mm512_cmp_ps_mask(m, SET(0x1.6a09e6p0), _CMP_GE_OQ);
    e = _mm512_mask_add_ps(e, high, e, SET(1));
    m = _mm512_mask_mul_ps(m, high, m, SET(0.5));
    __m512 f = _mm512_sub_ps(m, SET(1)), z = _mm512_mul_ps(f, f), p = SET(c[8]);
    for (int i = 6; i >= 0; i -= 2) p = _mm512_fmadd_ps(p, z, _mm512_fmadd_ps(SET(c[i + 1]), f, SET(c[i])));
    __m512 t = _mm512_fmadd_ps(_mm512_mul_ps(z, f), p, _mm512_mul_ps(e, SET(LN2_F32_2)));
    return _mm512_fmadd_ps(e, SET(LN2_F32_1), _mm512_add_ps(f, _mm512_fmadd_ps(z, SET(-0.5), t)));
}

/* ---- a bias and an activation ---- */

enum { WIDE = 4096 }; /* columns */

#define MARK_ACTIVATION(name)                                                                                          \
    static MARK_TARGET void mark_##name(void *const *values, const int64_t *sizes, int64_t from, int64_t to,           \
                                        bool past) {                                                                   \
        (void)sizes;                                                                                                   \
        for (int64_t r = from; r < to; r++) {                                                                          \
            const float *x = (const float *)values[0] + r * WIDE, *bias = values[1];                                   \
            float *y = (float *)values[2] + r * WIDE;                                                                  \
            for (int64_t i = 0; i < WIDE; i += 16 * MARK_VECTORS) {                                                    \
                __m512 v[MARK_VECTORS];                                                                                \
                EACH_VECTOR v[c] = _mm512_add_ps(_mm512_loadu_ps(x + i + 16 * c), _mm512_loadu_ps(bias + i + 16 * c)); \
                EACH_VECTOR v[c] = mark_##name##_of(v[c]);                                                             \
                EACH_VECTOR mark_store(y + i + 16 * c, v[c], past);                                                    \
            }                                                                                                          \
        }                                                                                                              \
    }
MARK_ACTIVATION(gelu_erf)
MARK_ACTIVATION(gelu_tanh)
MARK_ACTIVATION(swish)

/* ---- dropout ---- */

/* Words of 128 elements (codegen/llvm/random.c): even and odd counters of two groups in 64-bit lanes. keys: of ten
 * rounds. */
MARK_INLINE void mark_philox(const __m512i (*keys)[2], uint64_t first, __m512i *out) {
    __m512i c[4][4], mul0 = _mm512_set1_epi64(0xD2511F53), mul1 = _mm512_set1_epi64(0xCD9E8D57);
#pragma GCC unroll 4
    for (int n = 0; n < 4; n++) {
        uint64_t counter = (first + (uint64_t)(n / 2 * 64)) >> 2;
        __m512i own = _mm512_add_epi64(_mm512_setr_epi64(0, 2, 4, 6, 8, 10, 12, 14), _mm512_set1_epi64(n & 1));
        c[n][0] = _mm512_or_si512(_mm512_set1_epi64((int64_t)counter), own);
        c[n][1] = _mm512_set1_epi64((int64_t)(counter >> 32));
        c[n][2] = c[n][3] = _mm512_setzero_si512();
    }
#pragma GCC unroll 10
    for (int round = 0; round < 10; round++)
#pragma GCC unroll 4
        for (int n = 0; n < 4; n++) {
            __m512i *w = c[n], p0 = _mm512_mul_epu32(w[0], mul0), p1 = _mm512_mul_epu32(w[2], mul1);
            w[0] = _mm512_ternarylogic_epi64(_mm512_srli_epi64(p1, 32), w[1], keys[round][0], 0x96);
            w[2] = _mm512_ternarylogic_epi64(_mm512_srli_epi64(p0, 32), w[3], keys[round][1], 0x96);
            w[1] = p1;
            w[3] = p0;
        }
#pragma GCC unroll 8
    for (int n = 0; n < 8; n++)
        out[n] = _mm512_mask_shuffle_epi32(c[n / 4 * 2][n % 4], 0xAAAA, c[n / 4 * 2 + 1][n % 4], _MM_PERM_CCAA);
}

MARK_INLINE void mark_keys(uint64_t seed, __m512i (*keys)[2]) {
    for (uint32_t n = 0; n < 10; n++) {
        keys[n][0] = _mm512_set1_epi64((uint32_t)seed + n * 0x9E3779B9);
        keys[n][1] = _mm512_set1_epi64((uint32_t)(seed >> 32) + n * 0xBB67AE85);
    }
}

#define MARK_RATIO 1677722u /* of 2^24 are dropped: a tenth */
#define MARK_KEPT(word) _mm512_cmpge_epu32_mask(word, _mm512_set1_epi32((int)(MARK_RATIO << 8)))

static MARK_TARGET void mark_gelu_dropout(void *const *values, const int64_t *sizes, int64_t from, int64_t to,
                                          bool past) {
    (void)sizes;
    __m512i keys[10][2], words[MARK_VECTORS];
    mark_keys(*(const uint64_t *)values[2], keys);
    for (int64_t r = from; r < to; r++) {
        const float *x = (const float *)values[0] + r * WIDE, *bias = values[1];
        float *y = (float *)values[3] + r * WIDE;
        for (int64_t i = 0; i < WIDE; i += 16 * MARK_VECTORS) {
            mark_philox(keys, (uint64_t)(r * WIDE + i), words);
            EACH_VECTOR {
                __m512 v = _mm512_add_ps(_mm512_loadu_ps(x + i + 16 * c), _mm512_loadu_ps(bias + i + 16 * c));
                v = _mm512_maskz_mul_ps(MARK_KEPT(words[c]), mark_gelu_erf_of(v), SET(1.1111112));
                mark_store(y + i + 16 * c, v, past);
            }
        }
    }
}

/* ---- rows ---- */

MARK_INLINE float mark_sum(const __m512 *parts, const int count) {
    __m512 all = parts[0];
    for (int i = 1; i < count; i++) all = _mm512_add_ps(all, parts[i]);
    return _mm512_reduce_add_ps(all);
}

/* LayerNorm(dropout(x + bias) + residual) over 1024 columns: x, bias, seed, residual, scale, shift. */
static MARK_TARGET void mark_norm_dropout(void *const *values, const int64_t *sizes, int64_t from, int64_t to,
                                          bool past) {
    (void)sizes;
    enum { ROW = 1024 };
    const float *bias = values[1], *scale = values[4], *shift = values[5];
    __m512i keys[10][2], words[MARK_VECTORS];
    __m512 row[ROW / 16];
    mark_keys(*(const uint64_t *)values[2], keys);
    for (int64_t r = from; r < to; r++) {
        const float *x = (const float *)values[0] + r * ROW, *residual = (const float *)values[3] + r * ROW;
        float *y = (float *)values[6] + r * ROW;
        __m512 sum[MARK_VECTORS], square[MARK_VECTORS], high, low;
        EACH_VECTOR sum[c] = square[c] = SET(0);
        for (int64_t i = 0; i < ROW; i += 16 * MARK_VECTORS) {
            mark_philox(keys, (uint64_t)(r * ROW + i), words);
            EACH_VECTOR {
                int64_t at = i + 16 * c;
                __m512 v = _mm512_add_ps(_mm512_loadu_ps(x + at), _mm512_loadu_ps(bias + at));
                v = _mm512_maskz_mul_ps(MARK_KEPT(words[c]), v, SET(1.1111112));
                row[at / 16] = _mm512_add_ps(v, _mm512_loadu_ps(residual + at));
                sum[c] = _mm512_add_ps(sum[c], row[at / 16]);
            }
        }
        __m512 mean = SET(mark_sum(sum, MARK_VECTORS) * (1.0f / ROW));
        for (int64_t i = 0; i < ROW / 16; i += MARK_VECTORS) EACH_VECTOR {
                __m512 d = _mm512_sub_ps(row[i + c], mean);
                square[c] = _mm512_add_ps(square[c], _mm512_mul_ps(d, d));
            }
        mark_inverse(sqrtf(mark_sum(square, MARK_VECTORS) * (1.0f / ROW) + 1e-5f), &high, &low);
        for (int64_t i = 0; i < ROW / 16; i++) {
            __m512 v = mark_quotient(_mm512_sub_ps(row[i], mean), high, low);
            v = _mm512_add_ps(_mm512_mul_ps(v, _mm512_loadu_ps(scale + 16 * i)), _mm512_loadu_ps(shift + 16 * i));
            mark_store(y + 16 * i, v, past);
        }
    }
}

/* softmax(x / 8 + mask) over 512 columns; sizes: batches, queries, columns. A NaN reaches the sum. */
static MARK_TARGET void mark_softmax(void *const *values, const int64_t *sizes, int64_t from, int64_t to, bool past) {
    enum { ROW = 512, HEADS = 12 };
    __m512 row[ROW / 16];
    for (int64_t r = from; r < to; r++) {
        const float *x = (const float *)values[0] + r * ROW;
        const float *mask = (const float *)values[1] + r / (HEADS * sizes[1]) * ROW;
        float *y = (float *)values[2] + r * ROW;
        __m512 top[4], sum[4], high, low;
        for (int c = 0; c < 4; c++) top[c] = SET(-INFINITY), sum[c] = SET(0);
        for (int i = 0; i < ROW / 16; i += 4)
            for (int c = 0; c < 4; c++) {
                __m512 v = _mm512_mul_ps(_mm512_loadu_ps(x + 16 * (i + c)), SET(0.125));
                row[i + c] = _mm512_add_ps(v, _mm512_loadu_ps(mask + 16 * (i + c)));
                top[c] = _mm512_max_ps(row[i + c], top[c]);
            }
        __m512 most = _mm512_max_ps(_mm512_max_ps(top[0], top[1]), _mm512_max_ps(top[2], top[3]));
        most = SET(_mm512_reduce_max_ps(most));
        for (int i = 0; i < ROW / 16; i += 4)
            for (int c = 0; c < 4; c++) {
                row[i + c] = mark_exp_below(_mm512_sub_ps(row[i + c], most));
                sum[c] = _mm512_add_ps(sum[c], row[i + c]);
            }
        mark_inverse(mark_sum(sum, 4), &high, &low);
        for (int i = 0; i < ROW / 16; i++) mark_store(y + 16 * i, mark_quotient(row[i], high, low), past);
    }
}

/* ---- a chain of twenty ---- */

/* A function at a time on all of eight vectors: the processor's window then holds several of them. */
static MARK_TARGET void mark_chain(void *const *values, const int64_t *sizes, int64_t from, int64_t to, bool past) {
    (void)sizes;
    const float *x = values[0];
    float *y = values[1];
    for (int64_t i = from * WIDE; i < to * WIDE; i += 16 * MARK_VECTORS) {
        __m512 v[MARK_VECTORS];
        EACH_VECTOR v[c] = _mm512_add_ps(_mm512_loadu_ps(x + i + 16 * c), SET(1.05));
        EACH_VECTOR v[c] = _mm512_sub_ps(mark_tanh(v[c]), SET(1.15));
        EACH_VECTOR v[c] = _mm512_add_ps(_mm512_sqrt_ps(_mm512_abs_ps(v[c])), SET(1.3));
        EACH_VECTOR v[c] = _mm512_mul_ps(mark_exp_below(_mm512_sub_ps(SET(-0.0), v[c])), SET(1.45));
        EACH_VECTOR v[c] = mark_log(_mm512_add_ps(v[c], SET(1.5)));
        EACH_VECTOR v[c] = mark_sigmoid(_mm512_mul_ps(_mm512_max_ps(SET(1.6), v[c]), SET(1.65)), 1);
        EACH_VECTOR v[c] = _mm512_max_ps(SET(0), _mm512_mul_ps(_mm512_sub_ps(v[c], SET(1.75)), SET(1.8)));
        EACH_VECTOR mark_store(y + i + 16 * c, _mm512_div_ps(SET(1), _mm512_add_ps(v[c], SET(1.9))), past);
    }
}

#else
static inline int marks_run(void) { return 0; }
#define mark_gelu_erf NULL
#define mark_gelu_tanh NULL
#define mark_swish NULL
#define mark_gelu_dropout NULL
#define mark_norm_dropout NULL
#define mark_softmax NULL
#define mark_chain NULL
#endif

#endif
