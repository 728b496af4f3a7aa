/* SPDX-License-Identifier: Apache-2.0 */
/* Included by tile_isa.h: f32 products with weights in a narrow form (WeightForm), widened in registers where rows are
 * few, and the widening of a part of a panel for all others. */

typedef uint16_t VH __attribute__((vector_size(VECTOR_BYTES / 2)));
typedef uint16_t VHLoose __attribute__((vector_size(VECTOR_BYTES / 2), aligned(2), may_alias));
typedef int8_t VB __attribute__((vector_size(VECTOR_BYTES / 4)));
typedef int8_t VBLoose __attribute__((vector_size(VECTOR_BYTES / 4), aligned(1), may_alias));
typedef uint32_t VULoose __attribute__((vector_size(VECTOR_BYTES), aligned(4), may_alias));

/* ---- one vector ---- */

TILE_INLINE VF from_f16(const void *from) {
#if VECTOR_BYTES == 64
    return _mm512_cvtph_ps(_mm256_loadu_si256(from));
#elif VECTOR_BYTES == 32
    return _mm256_cvtph_ps(_mm_loadu_si128(from));
#else
    /* as widen_f16; infinity and NaN do not occur */
    VU bits = __builtin_convertvector((VH) * (const VHLoose *)from, VU);
    VF scaled = (VF)((bits & 0x7fff) << 13) * splat(0x1p112f);
    return (VF)((VU)scaled | (bits & 0x8000) << 16);
#endif
}

TILE_INLINE VF from_bf16(const void *from) {
#if VECTOR_BYTES == 64
    return (VF)_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256(from)), 16);
#elif VECTOR_BYTES == 32
    return (VF)_mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128(from)), 16);
#else
    return (VF)(__builtin_convertvector((VH) * (const VHLoose *)from, VU) << 16);
#endif
}

TILE_INLINE VF from_int8(const void *from) {
#if VECTOR_BYTES == 64
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(from)));
#elif VECTOR_BYTES == 32
    return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64(from)));
#else
    return __builtin_convertvector(__builtin_convertvector((VB) * (const VBLoose *)from, VI), VF);
#endif
}

/* The values of depth `index` of words. */
TILE_INLINE VF from_int4(VU words, int index) {
#if VECTOR_BYTES == 64 /* the permutation reads the lowest four bits of a lane alone */
    const VF values = {-8, -7, -6, -5, -4, -3, -2, -1, 0, 1, 2, 3, 4, 5, 6, 7};
    return _mm512_permutexvar_ps((__m512i)(words >> (uint32_t)(4 * index)), values);
#else
    /* in the lowest bits of 2^23's fraction */
    VU bits = (words >> (uint32_t)(4 * index) & 15) | 0x4b000000;
    return (VF)bits - splat(0x1p23f + 8);
#endif
}

TILE_INLINE VF narrow_half(const WeightForm form, const void *from) {
    return form == WEIGHT_F16 ? from_f16(from) : from_bf16(from);
}

/* ---- products ---- */

/* How far ahead the weights are asked for: bytes. A narrow row takes longer to compute with than to read. */
enum { NARROW_AHEAD = 4096 };

TILE_INLINE void add_products(VF acc[TILE_MAX_ROWS][TILE_MAX_VECTORS], const float *const *x, int64_t k, const VF *w,
                              const int m, const int nv) {
    TILE_UNROLL
    for (int i = 0; i < m; i++) {
        VF value = splat(x[i][k]);
        TILE_UNROLL
        for (int j = 0; j < nv; j++) acc[i][j] += value * w[j];
    }
}

TILE_INLINE void add_halves(const TileCall *call, VF acc[TILE_MAX_ROWS][TILE_MAX_VECTORS], const float *const *x,
                            const int m, const int nv, const WeightForm form) {
    const uint16_t *at = call->weight;
    for (int64_t k = 0; k < call->depth; k++, at += call->weight_stride) {
        VF w[TILE_MAX_VECTORS];
        TILE_UNROLL
        for (int j = 0; j < nv; j++) {
            w[j] = narrow_half(form, at + j * LANES);
            if (j % 2 == 0) __builtin_prefetch((const char *)(at + j * LANES) + NARROW_AHEAD);
        }
        add_products(acc, x, k, w, m, nv);
    }
}

TILE_INLINE void add_int8(const TileCall *call, VF acc[TILE_MAX_ROWS][TILE_MAX_VECTORS], const float *const *x,
                          const int m, const int nv) {
    const char *at = call->weight;
    const int64_t width = call->weight_stride;
    for (int64_t block = 0; block < call->depth; block += NARROW_BLOCK) {
        int64_t end = call->depth - block < NARROW_BLOCK ? call->depth : block + NARROW_BLOCK;
        VF scales[TILE_MAX_VECTORS], w[TILE_MAX_VECTORS];
        TILE_UNROLL
        for (int j = 0; j < nv; j++) scales[j] = *(const VFLoose *)(const void *)(at + j * VECTOR_BYTES);
        at += width * (int64_t)sizeof(float);
        for (int64_t k = block; k < end; k++, at += width) {
            __builtin_prefetch(at + NARROW_AHEAD);
            TILE_UNROLL
            for (int j = 0; j < nv; j++) w[j] = from_int8(at + j * LANES) * scales[j];
            add_products(acc, x, k, w, m, nv);
        }
    }
}

TILE_INLINE void add_int4(const TileCall *call, VF acc[TILE_MAX_ROWS][TILE_MAX_VECTORS], const float *const *x,
                          const int m, const int nv) {
    const char *at = call->weight;
    const int64_t row = call->weight_stride * (int64_t)sizeof(float);
    for (int64_t block = 0; block < call->depth; block += NARROW_BLOCK) {
        int64_t end = call->depth - block < NARROW_BLOCK ? call->depth : block + NARROW_BLOCK;
        VF scales[TILE_MAX_VECTORS], w[TILE_MAX_VECTORS];
        TILE_UNROLL
        for (int j = 0; j < nv; j++) scales[j] = *(const VFLoose *)(const void *)(at + j * VECTOR_BYTES);
        at += row;
        for (int64_t k = block; k < end; k += NARROW_WORD, at += row) {
            VU words[TILE_MAX_VECTORS];
            TILE_UNROLL
            for (int j = 0; j < nv; j++) {
                words[j] = *(const VULoose *)(const void *)(at + j * VECTOR_BYTES);
                __builtin_prefetch(at + j * VECTOR_BYTES + NARROW_AHEAD);
            }
            if (end - k >= NARROW_WORD) {
                TILE_UNROLL
                for (int i = 0; i < NARROW_WORD; i++) {
                    TILE_UNROLL
                    for (int j = 0; j < nv; j++) w[j] = from_int4(words[j], i) * scales[j];
                    add_products(acc, x, k + i, w, m, nv);
                }
            } else {
                for (int i = 0; i < end - k; i++) {
                    TILE_UNROLL
                    for (int j = 0; j < nv; j++) w[j] = from_int4(words[j], i) * scales[j];
                    add_products(acc, x, k + i, w, m, nv);
                }
            }
        }
    }
}

TILE_INLINE void add_narrow(const TileCall *call, VF acc[TILE_MAX_ROWS][TILE_MAX_VECTORS], const float *const *x,
                            const int m, const int nv, const WeightForm form) {
    if (form == WEIGHT_INT8)
        add_int8(call, acc, x, m, nv);
    else if (form == WEIGHT_INT4)
        add_int4(call, acc, x, m, nv);
    else
        add_halves(call, acc, x, m, nv, form);
}

TILE_INLINE void narrow_product(const TileCall *call, const int m, const int nv, const WeightForm form) {
    VF acc[TILE_MAX_ROWS][TILE_MAX_VECTORS];
    const float *x[NARROW_TILE_ROWS];
    const int last = call->columns - (nv - 1) * LANES;
    f32_clear(acc, m, nv);
    TILE_UNROLL
    for (int i = 0; i < m; i++) x[i] = (const float *)call->rows[i] + call->offset + call->offsets[0];
    add_narrow(call, acc, x, m, nv, form);
    f32_finish(call, call->results, call->column, acc, m, nv, last);
}

#define NARROW_ONE(form, word, m, nv)                                                                                  \
    static void word##_##m##x##nv(const TileCall *call) { narrow_product(call, m, nv, form); }
#define NARROW_ROWS(form, word, nv)                                                                                    \
    NARROW_ONE(form, word, 1, nv)                                                                                      \
    NARROW_ONE(form, word, 2, nv) NARROW_ONE(form, word, 3, nv) NARROW_ONE(form, word, 4, nv)
#define NARROW_NAMES(word, nv)                                                                                         \
    { NULL, word##_1x##nv, word##_2x##nv, word##_3x##nv, word##_4x##nv }
#if REGISTERS == 32
#define NARROW_FORM(form, word)                                                                                        \
    NARROW_ROWS(form, word, 1) NARROW_ROWS(form, word, 2) NARROW_ROWS(form, word, 3) NARROW_ROWS(form, word, 4)
#define NARROW_SET(word)                                                                                               \
    { {NULL}, NARROW_NAMES(word, 1), NARROW_NAMES(word, 2), NARROW_NAMES(word, 3), NARROW_NAMES(word, 4) }
#else
#define NARROW_FORM(form, word) NARROW_ROWS(form, word, 1) NARROW_ROWS(form, word, 2)
#define NARROW_SET(word)                                                                                               \
    { {NULL}, NARROW_NAMES(word, 1), NARROW_NAMES(word, 2) }
#endif
NARROW_FORM(WEIGHT_F16, narrow_f16_product)
NARROW_FORM(WEIGHT_BF16, narrow_bf16_product)
NARROW_FORM(WEIGHT_INT8, narrow_int8_product)
NARROW_FORM(WEIGHT_INT4, narrow_int4_product)
#define NARROW_SETS                                                                                                    \
    {                                                                                                                  \
        [WEIGHT_F16] = NARROW_SET(narrow_f16_product), [WEIGHT_BF16] = NARROW_SET(narrow_bf16_product),                \
        [WEIGHT_INT8] = NARROW_SET(narrow_int8_product), [WEIGHT_INT4] = NARROW_SET(narrow_int4_product)               \
    }

/* ---- widening ---- */

TILE_INLINE void widen_halves(const WidenCall *call, const WeightForm form) {
    const uint16_t *from = (const uint16_t *)call->panel + call->first * call->width;
    int64_t count = (call->end - call->first) * call->width;
    for (int64_t i = 0; i < count; i += LANES) *(VFLoose *)(call->to + i) = narrow_half(form, from + i);
}

/* Depths [first, end) of the block at `from`, counted from its own first. */
static void widen_int8_block(const char *from, int64_t width, int64_t first, int64_t end, float *to) {
    const char *scales = from;
    from += (width * (int64_t)sizeof(float)) + first * width;
    for (int64_t k = first; k < end; k++)
        for (int64_t j = 0; j < width; j += LANES, from += LANES, to += LANES)
            *(VFLoose *)to = from_int8(from) * *(const VFLoose *)(const void *)(scales + j * (int64_t)sizeof(float));
}

static void widen_int4_block(const char *from, int64_t width, int64_t first, int64_t end, float *to) {
    for (int64_t k = first / NARROW_WORD * NARROW_WORD; k < end; k += NARROW_WORD) {
        const char *row = from + (1 + k / NARROW_WORD) * width * (int64_t)sizeof(float);
        int low = k < first ? (int)(first - k) : 0, high = end - k < NARROW_WORD ? (int)(end - k) : NARROW_WORD;
        for (int64_t j = 0; j < width; j += LANES) {
            VF scale = *(const VFLoose *)(const void *)(from + j * (int64_t)sizeof(float));
            VU words = *(const VULoose *)(const void *)(row + j * (int64_t)sizeof(float));
            float *at = to + j;
            for (int i = low; i < high; i++, at += width) *(VFLoose *)at = from_int4(words, i) * scale;
        }
        to += (high - low) * width;
    }
}

static void widen_blocks(const WidenCall *call) {
    int64_t rows = call->form == WEIGHT_INT8 ? NARROW_BLOCK : NARROW_BLOCK / 2;
    int64_t block_bytes = call->width * ((int64_t)sizeof(float) + rows);
    float *to = call->to;
    for (int64_t k = call->first; k < call->end;) {
        int64_t block = k / NARROW_BLOCK, base = block * NARROW_BLOCK;
        int64_t end = call->end - base < NARROW_BLOCK ? call->end : base + NARROW_BLOCK;
        const char *from = (const char *)call->panel + block * block_bytes;
        (call->form == WEIGHT_INT8 ? widen_int8_block : widen_int4_block)(from, call->width, k - base, end - base, to);
        to += (end - k) * call->width;
        k = end;
    }
}

static void widen(const WidenCall *call) {
    if (call->form == WEIGHT_F16)
        widen_halves(call, WEIGHT_F16);
    else if (call->form == WEIGHT_BF16)
        widen_halves(call, WEIGHT_BF16);
    else
        widen_blocks(call);
}
