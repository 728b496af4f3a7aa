/* SPDX-License-Identifier: Apache-2.0 */
/* Loops written by hand with the instructions of AVX-512 or AVX2, of the same formulas as the generated kernels'
 * (codegen/math.c), which have to reach them: rows [from, to) of a pattern. The text serves both widths: it is included
 * with MARK_BITS 256, then with 512. */
#ifndef ONNXFUSE_BENCH_MARKS_H
#define ONNXFUSE_BENCH_MARKS_H

#include <stdbool.h>
#include <stdint.h>
#include "base/math/coefficients.h"
#include "base/math/divide.h"

/* values: the pattern's inputs, then its result; sizes: of its symbols; past: the result is stored past the caches. */
typedef void MarkLoop(void *const *values, const int64_t *sizes, int64_t from, int64_t to, bool past);

typedef struct Mark {
    MarkLoop *loop; /* NULL: none of this width */
    double counted; /* its instructions for 16 elements, in its loops (objdump) */
} Mark;

enum { WIDE = 4096 };       /* columns */
#define MARK_RATIO 1677722u /* of 2^24 are dropped: a tenth */

/* What a Case has of a pattern: a mark of 256 bits, one of 512. */
#if defined(__x86_64__) && defined(__GNUC__)
#include <immintrin.h>
#define MARK_LOOPS 1
#define MARKS(name, of_256, of_512)                                                                                    \
    {                                                                                                                  \
        {mark_##name##_256, of_256}, { mark_##name##_512, of_512 }                                                     \
    }
#else
#define MARK_LOOPS 0
#define MARKS(name, of_256, of_512)                                                                                    \
    {                                                                                                                  \
        {NULL, 0}, { NULL, 0 }                                                                                         \
    }
#endif

#endif

#if MARK_LOOPS

/* ---- what each width has in its own way ---- */

#if MARK_BITS == 512

#define MARK_TARGET __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl")))
#define FLOATS __m512
#define WORDS __m512i
#define EACH_LONG(x) _mm512_set1_epi64(x)
#define OWN(name) mark_##name##_512
#define MM(name) _mm512_##name
#define WORDS_OF(x) _mm512_castps_si512(x)
#define FLOATS_OF(x) _mm512_castsi512_ps(x)
#define MAGNITUDE(x) _mm512_abs_ps(x)
#define SUM_OF_LANES(x) _mm512_reduce_add_ps(x)
#define MOST_OF_LANES(x) _mm512_reduce_max_ps(x)
/* x where a < b, else y */
#define WHERE_LESS(a, b, x, y) _mm512_mask_mov_ps(y, _mm512_cmp_ps_mask(a, b, _CMP_LT_OQ), x)
/* x, which is not negative, with a's sign */
#define WITH_SIGN(x, a)                                                                                                \
    _mm512_castsi512_ps(                                                                                               \
        _mm512_ternarylogic_epi32(_mm512_set1_epi32(INT32_MIN), _mm512_castps_si512(a), _mm512_castps_si512(x), 0xCA))
/* for each word the one of eight entries that its low bits say */
/* x 2^n, n = shifted - EXP_SHIFTER */
#define EXP_SHIFTER 0x1.8p23
#define SCALED(x, shifted, n) _mm512_scalef_ps(x, n)

#else

/* The compiler is to mix the instructions of several vectors, as far as registers last: the loops are 5 to 15 % faster
 * than in the order that is written here (an AMD EPYC of family 25, GCC 12). */
#ifdef __clang__
#define MARK_TARGET __attribute__((target("avx2,fma")))
#else
#define MARK_TARGET __attribute__((target("avx2,fma"), optimize("schedule-insns", "sched-pressure")))
#endif
#define FLOATS __m256
#define WORDS __m256i
#define EACH_LONG(x) _mm256_set1_epi64x(x)
#define OWN(name) mark_##name##_256
#define MM(name) _mm256_##name
#define WORDS_OF(x) _mm256_castps_si256(x)
#define FLOATS_OF(x) _mm256_castsi256_ps(x)
#define MAGNITUDE(x) _mm256_andnot_ps(SET(-0.0), x)
#define SUM_OF_LANES(x) mark_sum_of_lanes(x)
#define MOST_OF_LANES(x) mark_most_of_lanes(x)
#define WHERE_LESS(a, b, x, y) _mm256_blendv_ps(y, x, _mm256_cmp_ps(a, b, _CMP_LT_OQ))
#define WITH_SIGN(x, a) _mm256_or_ps(x, _mm256_and_ps(SET(-0.0), a))
/* for n from -152 to 0: times 2^(n + 32), which is no subnormal, times 2^-32 */
#define EXP_SHIFTER (0x1.8p23 + 127 + 32)
#define SCALED(x, shifted, n) ((x)*OWN(power)(shifted) * SET(0x1p-32))

#endif

#define MARK_INLINE static inline __attribute__((always_inline)) MARK_TARGET
#define LANES (MARK_BITS / 32)
#define SET(x) MM(set1_ps)((float)(x))
#define LOAD(at) MM(loadu_ps)(at)
#define LEAST(a, b) MM(min_ps)(a, b)
#define MOST(a, b) MM(max_ps)(a, b)
#define FMA(a, b, c) MM(fmadd_ps)(a, b, c)
#define EACH(count) _Pragma("GCC unroll 8") for (int c = 0; c < (count); c++)

#if MARK_BITS == 256
MARK_INLINE float mark_sum_of_lanes(__m256 x) {
    __m128 four = _mm256_castps256_ps128(x) + _mm256_extractf128_ps(x, 1), two = four + _mm_movehl_ps(four, four);
    return two[0] + two[1];
}

MARK_INLINE float mark_most_of_lanes(__m256 x) {
    __m128 four = _mm_max_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
    __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_max_ps(two, _mm_movehdup_ps(two)));
}
#endif

/* ---- functions of one vector ---- */

MARK_INLINE void OWN(store)(float *at, FLOATS value, const bool past) {
    if (past)
        MM(stream_ps)(at, value);
    else
        MM(storeu_ps)(at, value);
}

/* The low bits as an exponent's field. */
MARK_INLINE FLOATS OWN(power)(FLOATS shifted) { return FLOATS_OF(MM(slli_epi32)(WORDS_OF(shifted), 23)); }

MARK_INLINE FLOATS OWN(erf)(FLOATS x) {
    const double *over = erf_over_f32, *under = erf_under_f32;
    FLOATS y = LEAST(SET(ERF_MOST), MOST(SET(-ERF_MOST), x)), z = y * y, p = SET(over[5]), q = SET(under[6]);
    for (int i = 4; i >= 0; i--) p = FMA(p, z, SET(over[i]));
    for (int i = 5; i >= 0; i--) q = FMA(q, z, SET(under[i]));
    return FMA(y, p / q, y * SET(0.25));
}

/* by / (1 + e^-x) */
MARK_INLINE FLOATS OWN(sigmoid)(FLOATS x, double by) {
    x = LEAST(SET(40), MOST(SET(-105), x));
    FLOATS shifter = SET(0x1.8p23 + 127 - 32), shifted = FMA(x, SET(-LOG2_E), shifter), n = shifted - shifter;
    FLOATS r = FMA(n, SET(LN2_F32_2), FMA(n, SET(LN2_F32_1), x)), z = r * r;
    const double *c = exp_tail_f32;
    FLOATS low = FMA(SET(-c[1]), r, SET(c[0])), high = FMA(SET(-c[3]), r, SET(c[2]));
    FLOATS tail = FMA(FMA(SET(c[4]), z, high), z, low), power = OWN(power)(shifted);
    return SET(by * 0x1p-32) / (power + FMA(power, MM(fmsub_ps)(z, tail, r), SET(0x1p-32)));
}

MARK_INLINE float OWN(sum)(const FLOATS *parts, const int count) {
    FLOATS all = parts[0];
    for (int i = 1; i < count; i++) all += parts[i];
    return SUM_OF_LANES(all);
}

/* 1/b in two parts: b here is neither large nor small. */
MARK_INLINE void OWN(inverse)(float b, FLOATS *high, FLOATS *low) {
    float r = 1 / b * (float)DIVISOR_BEFORE;
    *high = SET(r);
    *low = SET(fmaf(-r, b, 1) * r);
}

MARK_INLINE FLOATS OWN(quotient)(FLOATS a, FLOATS high, FLOATS low) { return FMA(a, high, a * low); }

MARK_INLINE FLOATS OWN(gelu_erf_of)(FLOATS x) {
    FLOATS high, low;
    OWN(inverse)(1.4142135f, &high, &low);
    return x * (OWN(erf)(OWN(quotient)(x, high, low)) + SET(1)) * SET(0.5);
}

MARK_INLINE FLOATS OWN(gelu_tanh_of)(FLOATS x) {
    FLOATS u = (x + x * (x * x) * SET(0.044715)) * SET(0.7978845608028654);
    return x * OWN(sigmoid)(u + u, 2) * SET(0.5);
}

MARK_INLINE FLOATS OWN(swish_of)(FLOATS x) { return x * OWN(sigmoid)(x, 1); }

/* e^x, x at most 0. */
MARK_INLINE FLOATS OWN(exp_below)(FLOATS x) {
    const double *c = exp_tail_f32;
    x = MOST(SET(-105), x);
    FLOATS shifter = SET(EXP_SHIFTER), shifted = FMA(x, SET(LOG2_E), shifter), n = shifted - shifter;
    FLOATS r = FMA(n, SET(-LN2_F32_2), FMA(n, SET(-LN2_F32_1), x)), p = SET(c[4]);
    for (int i = 3; i >= 0; i--) p = FMA(p, r, SET(c[i]));
    return SCALED(FMA(FMA(p, r, SET(1)), r, SET(1)), shifted, n);
}

MARK_INLINE FLOATS OWN(tanh)(FLOATS x) {
    const double *c = exp_tail_f32, *s = tanh_tail_f32;
    FLOATS a = LEAST(SET(10), MAGNITUDE(x)), z = a * a, u = a + a, near = SET(s[3]), shifter = SET(0x1.8p23 + 127);
    FLOATS shifted = FMA(u, SET(LOG2_E), shifter), n = shifted - shifter;
    FLOATS r = FMA(n, SET(-LN2_F32_2), FMA(n, SET(-LN2_F32_1), u)), q = r * r;
    FLOATS low = FMA(SET(c[1]), r, SET(c[0])), high = FMA(SET(c[3]), r, SET(c[2]));
    FLOATS tail = FMA(FMA(SET(c[4]), q, high), q, low), power = OWN(power)(shifted);
    FLOATS t = FMA(power, FMA(q, tail, r), power - SET(1));
    for (int i = 2; i >= 0; i--) near = FMA(near, z, SET(s[i]));
    near = FMA(a * z, near, a);
    FLOATS result = WHERE_LESS(a, SET(TANH_NEAR), near, t / (t + SET(2)));
    return WITH_SIGN(result, x);
}

/* x = 2^e m, sqrt(1/2) <= m < sqrt(2), x positive and no subnormal. */
MARK_INLINE void OWN(split)(FLOATS x, FLOATS *e, FLOATS *m) {
#if MARK_BITS == 512
    FLOATS exponent = _mm512_getexp_ps(x), mantissa = _mm512_getmant_ps(x, _MM_MANT_NORM_1_2, _MM_MANT_SIGN_zero);
    __mmask16 high = _mm512_cmp_ps_mask(mantissa, SET(0x1.6a09e6p0), _CMP_GE_OQ);
    *e = _mm512_mask_add_ps(exponent, high, exponent, SET(1));
    *m = _mm512_mask_mul_ps(mantissa, high, mantissa, SET(0.5));
#else
    __m256i bits = WORDS_OF(x), above = _mm256_sub_epi32(bits, _mm256_set1_epi32(0x3F3504F3)); /* sqrt(1/2) */
    *e = _mm256_cvtepi32_ps(_mm256_srai_epi32(above, 23));
    *m = FLOATS_OF(_mm256_sub_epi32(bits, _mm256_and_si256(above, _mm256_set1_epi32(INT32_MIN >> 8))));
#endif
}

MARK_INLINE FLOATS OWN(log)(FLOATS x) {
    const double *c = log_tail_f32;
    FLOATS e, m, p = SET(c[8]);
    OWN(split)(x, &e, &m);
    FLOATS f = m - SET(1), z = f * f;
    for (int i = 6; i >= 0; i -= 2) p = FMA(p, z, FMA(SET(c[i + 1]), f, SET(c[i])));
    FLOATS t = FMA(z * f, p, e * SET(LN2_F32_2));
    return FMA(e, SET(LN2_F32_1), f + FMA(z, SET(-0.5), t));
}

/* ---- a bias and an activation ---- */

#define MARK_ACTIVATION(name, vectors)                                                                                 \
    static MARK_TARGET void OWN(name)(void *const *values, const int64_t *sizes, int64_t from, int64_t to,             \
                                      bool past) {                                                                     \
        (void)sizes;                                                                                                   \
        for (int64_t r = from; r < to; r++) {                                                                          \
            const float *x = (const float *)values[0] + r * WIDE, *bias = values[1];                                   \
            float *y = (float *)values[2] + r * WIDE;                                                                  \
            for (int64_t i = 0; i < WIDE; i += LANES * (vectors)) {                                                    \
                FLOATS v[vectors];                                                                                     \
                EACH(vectors) v[c] = LOAD(x + i + LANES * c) + LOAD(bias + i + LANES * c);                             \
                EACH(vectors) v[c] = OWN(name##_of)(v[c]);                                                             \
                EACH(vectors) OWN(store)(y + i + LANES * c, v[c], past);                                               \
            }                                                                                                          \
        }                                                                                                              \
    }

/* Vectors at once: of 256 bits the fastest of 2, 4, 8 (an AMD EPYC of family 25). */
MARK_ACTIVATION(gelu_erf, MARK_BITS == 512 ? 8 : 4)
MARK_ACTIVATION(gelu_tanh, 8)
MARK_ACTIVATION(swish, MARK_BITS == 512 ? 8 : 4)

/* ---- dropout ---- */

#if MARK_BITS == 512

/* Words of 128 elements (codegen/render/random.c): even and odd counters of two groups in 64-bit lanes. keys: of ten
 * rounds. */
MARK_INLINE void OWN(philox)(const __m512i (*keys)[2], uint64_t first, __m512i *out) {
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

#define MARK_DROPPED(v, word)                                                                                          \
    _mm512_maskz_mul_ps(_mm512_cmpge_epu32_mask(word, _mm512_set1_epi32((int)(MARK_RATIO << 8))), v, SET(1.1111112))

#else

/* Words of 64 elements: even and odd counters, the first and the second eight of a group. */
MARK_INLINE void OWN(philox)(const __m256i (*keys)[2], uint64_t first, __m256i *out) {
    const __m256i mul0 = _mm256_set1_epi64x(0xD2511F53), mul1 = _mm256_set1_epi64x(0xCD9E8D57);
    const uint64_t counter = first >> 2;
#pragma GCC unroll 2
    for (int eight = 0; eight < 2; eight++) { /* both at once do not fit into the registers */
        __m256i c[2][4];
#pragma GCC unroll 2
        for (int n = 0; n < 2; n++) {
            c[n][0] = _mm256_or_si256(_mm256_set1_epi64x((int64_t)counter + 8 * eight),
                                      _mm256_setr_epi64x(n, 2 + n, 4 + n, 6 + n));
            c[n][1] = _mm256_set1_epi64x((int64_t)(counter >> 32));
            c[n][2] = c[n][3] = _mm256_setzero_si256();
        }
#pragma GCC unroll 10
        for (int round = 0; round < 10; round++)
#pragma GCC unroll 2
            for (int n = 0; n < 2; n++) {
                __m256i *w = c[n], p0 = _mm256_mul_epu32(w[0], mul0), p1 = _mm256_mul_epu32(w[2], mul1);
                w[0] = _mm256_xor_si256(_mm256_xor_si256(_mm256_srli_epi64(p1, 32), w[1]), keys[round][0]);
                w[2] = _mm256_xor_si256(_mm256_xor_si256(_mm256_srli_epi64(p0, 32), w[3]), keys[round][1]);
                w[1] = p1;
                w[3] = p0;
            }
#pragma GCC unroll 4
        for (int n = 0; n < 4; n++)
            out[2 * n + eight] = _mm256_blend_epi32(c[0][n], _mm256_slli_epi64(c[1][n], 32), 0xAA);
    }
}

/* A word is no less than the bound where the greater of both is the word. */
#define MARK_DROPPED(v, word)                                                                                          \
    _mm256_and_ps((v)*SET(1.1111112), _mm256_castsi256_ps(_mm256_cmpeq_epi32(                                          \
                                          _mm256_max_epu32(word, _mm256_set1_epi32((int)(MARK_RATIO << 8))), word)))

#endif

MARK_INLINE void OWN(keys)(uint64_t seed, WORDS (*keys)[2]) {
    for (uint32_t n = 0; n < 10; n++) {
        keys[n][0] = EACH_LONG((uint32_t)seed + n * 0x9E3779B9);
        keys[n][1] = EACH_LONG((uint32_t)(seed >> 32) + n * 0xBB67AE85);
    }
}

static MARK_TARGET void OWN(gelu_dropout)(void *const *values, const int64_t *sizes, int64_t from, int64_t to,
                                          bool past) {
    (void)sizes;
    enum { BESIDE = 8 };
    WORDS keys[10][2], words[BESIDE];
    OWN(keys)(*(const uint64_t *)values[2], keys);
    for (int64_t r = from; r < to; r++) {
        const float *x = (const float *)values[0] + r * WIDE, *bias = values[1];
        float *y = (float *)values[3] + r * WIDE;
        for (int64_t i = 0; i < WIDE; i += LANES * BESIDE) {
            OWN(philox)(keys, (uint64_t)(r * WIDE + i), words);
            EACH(BESIDE) {
                FLOATS v = OWN(gelu_erf_of)(LOAD(x + i + LANES * c) + LOAD(bias + i + LANES * c));
                OWN(store)(y + i + LANES * c, MARK_DROPPED(v, words[c]), past);
            }
        }
    }
}

/* LayerNorm(dropout(x + bias) + residual) over 1024 columns: x, bias, seed, residual, scale, shift. */
static MARK_TARGET void OWN(norm_dropout)(void *const *values, const int64_t *sizes, int64_t from, int64_t to,
                                          bool past) {
    (void)sizes;
    enum { ROW = 1024, BESIDE = 8 };
    const float *bias = values[1], *scale = values[4], *shift = values[5];
    WORDS keys[10][2], words[BESIDE];
    FLOATS row[ROW / LANES];
    OWN(keys)(*(const uint64_t *)values[2], keys);
    for (int64_t r = from; r < to; r++) {
        const float *x = (const float *)values[0] + r * ROW, *residual = (const float *)values[3] + r * ROW;
        float *y = (float *)values[6] + r * ROW;
        FLOATS sum[BESIDE], square[BESIDE], high, low;
        EACH(BESIDE) sum[c] = square[c] = SET(0);
        for (int64_t i = 0; i < ROW; i += LANES * BESIDE) {
            OWN(philox)(keys, (uint64_t)(r * ROW + i), words);
            EACH(BESIDE) {
                int64_t at = i + LANES * c;
                FLOATS v = MARK_DROPPED(LOAD(x + at) + LOAD(bias + at), words[c]);
                row[at / LANES] = v + LOAD(residual + at);
                sum[c] += row[at / LANES];
            }
        }
        FLOATS mean = SET(OWN(sum)(sum, BESIDE) * (1.0f / ROW));
        for (int64_t i = 0; i < ROW / LANES; i += BESIDE) EACH(BESIDE) {
                FLOATS d = row[i + c] - mean;
                square[c] += d * d;
            }
        OWN(inverse)(sqrtf(OWN(sum)(square, BESIDE) * (1.0f / ROW) + 1e-5f), &high, &low);
        for (int64_t i = 0; i < ROW / LANES; i++) {
            FLOATS v = OWN(quotient)(row[i] - mean, high, low);
            OWN(store)(y + LANES * i, v * LOAD(scale + LANES * i) + LOAD(shift + LANES * i), past);
        }
    }
}

#undef MARK_DROPPED

/* ---- softmax ---- */

/* softmax(x / 8 + mask) over 512 columns; sizes: batches, queries, columns. A NaN reaches the sum. */
static MARK_TARGET void OWN(softmax)(void *const *values, const int64_t *sizes, int64_t from, int64_t to, bool past) {
    enum { ROW = 512, HEADS = 12, BESIDE = 4 }; /* as many sums as the kernels have: so they are the same to the bit */
    FLOATS row[ROW / LANES];
    for (int64_t r = from; r < to; r++) {
        const float *x = (const float *)values[0] + r * ROW;
        const float *mask = (const float *)values[1] + r / (HEADS * sizes[1]) * ROW;
        float *y = (float *)values[2] + r * ROW;
        FLOATS top[BESIDE], sum[BESIDE], high, low;
        EACH(BESIDE) top[c] = SET(-INFINITY), sum[c] = SET(0);
        for (int i = 0; i < ROW / LANES; i += BESIDE) EACH(BESIDE) {
                row[i + c] = LOAD(x + LANES * (i + c)) * SET(0.125) + LOAD(mask + LANES * (i + c));
                top[c] = MOST(row[i + c], top[c]);
            }
        FLOATS most = top[0];
        for (int c = 1; c < BESIDE; c++) most = MOST(most, top[c]);
        most = SET(MOST_OF_LANES(most));
        for (int i = 0; i < ROW / LANES; i += BESIDE) EACH(BESIDE) {
                row[i + c] = OWN(exp_below)(row[i + c] - most);
                sum[c] += row[i + c];
            }
        OWN(inverse)(OWN(sum)(sum, BESIDE), &high, &low);
        for (int i = 0; i < ROW / LANES; i += BESIDE)
            EACH(BESIDE) OWN(store)(y + LANES * (i + c), OWN(quotient)(row[i + c], high, low), past);
    }
}

/* ---- a chain of twenty ---- */

/* A function at a time on eight vectors: the processor's window then holds several of them. With AVX2
 * four take a quarter longer. */
static MARK_TARGET void OWN(chain)(void *const *values, const int64_t *sizes, int64_t from, int64_t to, bool past) {
    (void)sizes;
    enum { BESIDE = 8 };
    const float *x = values[0];
    float *y = values[1];
    for (int64_t i = from * WIDE; i < to * WIDE; i += LANES * BESIDE) {
        FLOATS v[BESIDE];
        EACH(BESIDE) v[c] = OWN(tanh)(LOAD(x + i + LANES * c) + SET(1.05)) - SET(1.15);
        EACH(BESIDE) v[c] = MM(sqrt_ps)(MAGNITUDE(v[c])) + SET(1.3);
        EACH(BESIDE) v[c] = OWN(exp_below)(SET(-0.0) - v[c]) * SET(1.45);
        EACH(BESIDE) v[c] = OWN(log)(v[c] + SET(1.5));
        EACH(BESIDE) v[c] = OWN(sigmoid)(MOST(SET(1.6), v[c]) * SET(1.65), 1);
        EACH(BESIDE) v[c] = MOST(SET(0), (v[c] - SET(1.75)) * SET(1.8));
        EACH(BESIDE) OWN(store)(y + i + LANES * c, SET(1) / (v[c] + SET(1.9)), past);
    }
}

/* ---- a transpose ---- */

/* 8 x 8 floats, `stride` apart, to columns `room` apart; to: aligned. */
MARK_INLINE void OWN(turn)(const float *from, int64_t stride, float *to, int64_t room) {
    __m256d pair[8];
    for (int half = 0; half < 2; half++) {
        __m256 row[4];
        for (int n = 0; n < 4; n++) {
            const float *low = from + n * stride + 4 * half;
            row[n] = _mm256_insertf128_ps(_mm256_castps128_ps256(_mm_loadu_ps(low)), _mm_loadu_ps(low + 4 * stride), 1);
        }
        for (int n = 0; n < 4; n += 2) {
            pair[n] = _mm256_castps_pd(_mm256_unpacklo_ps(row[n], row[n + 1]));
            pair[n + 1] = _mm256_castps_pd(_mm256_unpackhi_ps(row[n], row[n + 1]));
        }
        for (int n = 0; n < 2; n++) {
            float *at = to + (4 * half + 2 * n) * room;
            _mm256_store_ps(at, _mm256_castpd_ps(_mm256_unpacklo_pd(pair[n], pair[n + 2])));
            _mm256_store_ps(at + room, _mm256_castpd_ps(_mm256_unpackhi_pd(pair[n], pair[n + 2])));
        }
    }
}

/* relu(x + z transposed), of 4096 columns: x, z. Blocks of 64 rows and 128 columns, of which z's 128 lines of 256 bytes are turned
 * into memory: of several lines next to each other memory gives each faster. What comes next is prefetched, by eight lines of z and
 * four of x. */
static MARK_TARGET void OWN(transpose_add)(void *const *values, const int64_t *sizes, int64_t from, int64_t to,
                                           bool past) {
    (void)sizes;
    enum { HIGH = 64, LONG = 128, AHEAD = 4 };
    _Alignas(64) float turned[HIGH][LONG];
    for (int64_t across = 0; across < WIDE; across += LONG)
        for (int64_t down = from; down < to; down += HIGH) {
            const float *z = (const float *)values[1] + across * WIDE + down;
            for (int i = 0; i < LONG; i += 8) {
                for (int n = 8; n < 16; n++)
                    for (int k = 0; k < HIGH; k += 16)
                        _mm_prefetch((const char *)(z + (i + n) * WIDE + k), _MM_HINT_T1);
                for (int k = 0; k < HIGH; k += 8) OWN(turn)(z + i * WIDE + k, WIDE, &turned[k][i], LONG);
            }
            for (int k = 0; k < HIGH; k++) {
                int64_t at = (down + k) * WIDE + across;
                const float *x = (const float *)values[0] + at;
                float *y = (float *)values[2] + at;
                for (int i = 0; i < LONG; i += 16) _mm_prefetch((const char *)(x + AHEAD * WIDE + i), _MM_HINT_T1);
                for (int i = 0; i < LONG; i += LANES)
                    OWN(store)(y + i, MOST(LOAD(x + i) + MM(load_ps)(&turned[k][i]), SET(0)), past);
            }
        }
}

#undef MARK_TARGET
#undef FLOATS
#undef WORDS
#undef EACH_LONG
#undef OWN
#undef MM
#undef WORDS_OF
#undef FLOATS_OF
#undef MAGNITUDE
#undef SUM_OF_LANES
#undef MOST_OF_LANES
#undef WHERE_LESS
#undef WITH_SIGN
#undef EXP_SHIFTER
#undef SCALED

#endif

#undef MARK_BITS
