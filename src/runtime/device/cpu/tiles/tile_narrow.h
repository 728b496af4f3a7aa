/* SPDX-License-Identifier: Apache-2.0 */
/* Included by tile_isa.h: f32 products with weights in a narrow form (WeightForm), widened in registers where rows are
 * few, and the widening of a part of a panel for all others. */

typedef uint16_t VH __attribute__((vector_size(VECTOR_BYTES / 2)));
typedef uint16_t VHLoose __attribute__((vector_size(VECTOR_BYTES / 2), aligned(2), may_alias));
typedef uint32_t VULoose __attribute__((vector_size(VECTOR_BYTES), aligned(4), may_alias));

/* ---- one vector ---- */

TILE_INLINE VF from_f16(const void *from) {
#if VECTOR_BYTES == 64
    return _mm512_cvtph_ps(_mm256_loadu_si256(from));
#elif VECTOR_BYTES == 32
    return _mm256_cvtph_ps(_mm_loadu_si128(from));
#else
    /* as widen_f16 */
    VU bits = __builtin_convertvector((VH) * (const VHLoose *)from, VU), rest = (bits & 0x7fff) << 13;
    VF scaled = (VF)rest * splat(0x1p112f);
    return (VF)((VU)scaled | (bits & 0x8000) << 16 | ((VU)(rest >= 0x0f800000) & 0x7f800000));
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

/* The values of depth `index` of words. */
TILE_INLINE VF from_words(VU words, int index, const WeightKind kind) {
    const int bits = 32 / weight_word(kind), middle = weight_zero(kind);
    if (kind == WEIGHT_INT8) /* without the middle, which one operation takes off a whole word, they are signed bytes */
        return __builtin_convertvector((VI)((words ^ 0x80808080) << (uint32_t)(24 - 8 * index)) >> 24, VF);
#if VECTOR_BYTES ==                                                                                                    \
    64 /* the permutation reads the lowest four bits of a lane alone, of which the table may leave out two */
    VF values;
    for (int l = 0; l < LANES; l++) values[l] = (float)((l & (2 * middle - 1)) - middle);
    return _mm512_permutexvar_ps((__m512i)(words >> (uint32_t)(bits * index)), values);
#else
    /* in the lowest bits of 2^23's fraction */
    VU lowest = (words >> (uint32_t)(bits * index) & (uint32_t)(2 * middle - 1)) | 0x4b000000;
    return (VF)lowest - splat(0x1p23f + (float)middle);
#endif
}

TILE_INLINE VF narrow_half(const WeightKind kind, const void *from) {
    return kind == WEIGHT_F16 ? from_f16(from) : from_bf16(from);
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
                            const int m, const int nv, const WeightKind kind) {
    const uint16_t *at = call->weight;
    for (int64_t k = 0; k < call->depth; k++, at += call->weight_stride) {
        VF w[TILE_MAX_VECTORS];
        TILE_UNROLL
        for (int j = 0; j < nv; j++) {
            w[j] = narrow_half(kind, at + j * LANES);
            if (j % 2 == 0) __builtin_prefetch((const char *)(at + j * LANES) + NARROW_AHEAD);
        }
        add_products(acc, x, k, w, m, nv);
    }
}

/* In all lanes: the sum of x[0, count). */
TILE_INLINE VF sum_of_depths(const float *x, int64_t count) {
    VF sum = {0};
    int64_t k = 0;
    for (; k + LANES <= count; k += LANES) sum += *(const VFLoose *)(x + k);
    if (k < count) sum += f32_load_part(x + k, (int)(count - k));
    TILE_UNROLL
    for (int step = LANES / 2; step; step /= 2) {
        VI other;
        for (int l = 0; l < LANES; l++) other[l] = l ^ step;
        sum += (VF)TILE_SHUFFLE((VU)sum, (VU)sum, other);
    }
    return sum;
}

/* Depths [k, end) of a block, whose numbers begin at `at`. Returns where they end. */
TILE_INLINE const char *add_block(const char *at, int64_t width, VF sums[TILE_MAX_ROWS][TILE_MAX_VECTORS],
                                  const float *const *x, int64_t k, int64_t end, const int m, const int nv,
                                  const WeightKind kind) {
    VF w[TILE_MAX_VECTORS];
    const int word = weight_word(kind);
    for (; k < end; k += word, at += width * (int64_t)sizeof(uint32_t)) {
        VU words[TILE_MAX_VECTORS];
        TILE_UNROLL
        for (int j = 0; j < nv; j++) {
            words[j] = *(const VULoose *)(const void *)(at + j * VECTOR_BYTES);
            __builtin_prefetch(at + j * VECTOR_BYTES + NARROW_AHEAD);
        }
        if (end - k >= word) {
            TILE_UNROLL
            for (int i = 0; i < word; i++) {
                TILE_UNROLL
                for (int j = 0; j < nv; j++) w[j] = from_words(words[j], i, kind);
                add_products(sums, x, k + i, w, m, nv);
            }
        } else {
            for (int i = 0; i < end - k; i++) {
                TILE_UNROLL
                for (int j = 0; j < nv; j++) w[j] = from_words(words[j], i, kind);
                add_products(sums, x, k + i, w, m, nv);
            }
        }
    }
    return at;
}

/* A block's sums are of its whole numbers; zero points are taken off them with the sums of the rows' own elements. */
TILE_INLINE void add_blocks(const TileCall *call, VF acc[TILE_MAX_ROWS][TILE_MAX_VECTORS], const float *const *x,
                            const int m, const int nv, const WeightKind kind) {
    const char *at = call->weight;
    const int64_t width = call->weight_stride, depths = call->form->block, row = width * (int64_t)sizeof(float);
    const bool zeros = call->form->zeros;
    for (int64_t k = 0; k < call->depth; k += depths) {
        int64_t end = call->depth - k < depths ? call->depth : k + depths;
        const char *scales = at;
        VF sums[TILE_MAX_ROWS][TILE_MAX_VECTORS];
        f32_clear(sums, m, nv);
        at = add_block(at + row * (1 + zeros), width, sums, x, k, end, m, nv, kind);
        TILE_UNROLL
        for (int i = 0; i < m; i++) {
            if (zeros) {
                VF all = sum_of_depths(x[i] + k, end - k);
                TILE_UNROLL
                for (int j = 0; j < nv; j++)
                    sums[i][j] -= all * *(const VFLoose *)(const void *)(scales + row + j * VECTOR_BYTES);
            }
            TILE_UNROLL
            for (int j = 0; j < nv; j++)
                acc[i][j] += sums[i][j] * *(const VFLoose *)(const void *)(scales + j * VECTOR_BYTES);
        }
    }
}

TILE_INLINE void add_narrow(const TileCall *call, VF acc[TILE_MAX_ROWS][TILE_MAX_VECTORS], const float *const *x,
                            const int m, const int nv, const WeightKind kind) {
    if (kind >= WEIGHT_INT8)
        add_blocks(call, acc, x, m, nv, kind);
    else
        add_halves(call, acc, x, m, nv, kind);
}

TILE_INLINE void narrow_product(const TileCall *call, const int m, const int nv, const WeightKind kind) {
    VF acc[TILE_MAX_ROWS][TILE_MAX_VECTORS];
    const float *x[NARROW_TILE_ROWS];
    const int last = call->columns - (nv - 1) * LANES;
    f32_clear(acc, m, nv);
    TILE_UNROLL
    for (int i = 0; i < m; i++) x[i] = (const float *)call->rows[i] + call->offset + call->offsets[0];
    add_narrow(call, acc, x, m, nv, kind);
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
NARROW_FORM(WEIGHT_INT2, narrow_int2_product)
#define NARROW_SETS                                                                                                    \
    {                                                                                                                  \
        [WEIGHT_F16] = NARROW_SET(narrow_f16_product), [WEIGHT_BF16] = NARROW_SET(narrow_bf16_product),                \
        [WEIGHT_INT8] = NARROW_SET(narrow_int8_product), [WEIGHT_INT4] = NARROW_SET(narrow_int4_product),              \
        [WEIGHT_INT2] = NARROW_SET(narrow_int2_product)                                                                \
    }

/* ---- widening ---- */

TILE_INLINE void widen_halves(const WidenCall *call, const WeightKind kind) {
    const uint16_t *from = (const uint16_t *)call->panel + call->first * call->width;
    int64_t count = (call->end - call->first) * call->width;
    for (int64_t i = 0; i < count; i += LANES) *(VFLoose *)(call->to + i) = narrow_half(kind, from + i);
}

/* (value - zero point) * scale */
TILE_INLINE VF scaled(VF value, const char *scales, int64_t row, bool zeros) {
    if (zeros) value -= *(const VFLoose *)(const void *)(scales + row);
    return value * *(const VFLoose *)(const void *)scales;
}

/* Depths [first, end) of the block at `from`, counted from its own first. */
TILE_INLINE void widen_block(const WidenCall *call, const char *from, int64_t first, int64_t end, float *to,
                             const WeightKind kind) {
    const int64_t width = call->width, row = width * (int64_t)sizeof(float);
    const bool zeros = call->form->zeros;
    const char *numbers = from + row * (1 + zeros);
    const int word = weight_word(kind);
    for (int64_t k = first / word * word; k < end; k += word) {
        int low = k < first ? (int)(first - k) : 0, high = end - k < word ? (int)(end - k) : word;
        for (int64_t j = 0; j < width; j += LANES) {
            VU words = *(const VULoose *)(const void *)(numbers + k / word * row + j * (int64_t)sizeof(uint32_t));
            float *at = to + j;
            for (int i = low; i < high; i++, at += width)
                *(VFLoose *)at = scaled(from_words(words, i, kind), from + j * (int64_t)sizeof(float), row, zeros);
        }
        to += (high - low) * width;
    }
}

TILE_INLINE void widen_blocks(const WidenCall *call, const WeightKind kind) {
    const int64_t depths = call->form->block, word = weight_word(kind);
    int64_t block_bytes = call->width * (1 + call->form->zeros + depths / word) * (int64_t)sizeof(uint32_t);
    float *to = call->to;
    for (int64_t k = call->first; k < call->end;) {
        int64_t block = k / depths, base = block * depths;
        int64_t end = call->end - base < depths ? call->end : base + depths;
        widen_block(call, (const char *)call->panel + block * block_bytes, k - base, end - base, to, kind);
        to += (end - k) * call->width;
        k = end;
    }
}

static void widen(const WidenCall *call) {
    switch (call->form->kind) {
    case WEIGHT_F16: widen_halves(call, WEIGHT_F16); return;
    case WEIGHT_BF16: widen_halves(call, WEIGHT_BF16); return;
    case WEIGHT_INT8: widen_blocks(call, WEIGHT_INT8); return;
    case WEIGHT_INT4: widen_blocks(call, WEIGHT_INT4); return;
    case WEIGHT_INT2: widen_blocks(call, WEIGHT_INT2); return;
    case WEIGHT_WORK:
    case WEIGHT_KINDS: return;
    }
}
