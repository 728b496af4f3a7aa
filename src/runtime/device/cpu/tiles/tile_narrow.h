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

/* x and, in each lane, that of x which is `step` lanes away. */
TILE_INLINE VF add_away(VF x, const int step) {
    VI other;
    TILE_UNROLL
    for (int l = 0; l < LANES; l++) other[l] = l ^ step;
    return x + (VF)TILE_SHUFFLE((VU)x, (VU)x, other);
}

/* In all lanes: the sum of all. */
TILE_INLINE VF sum_of_lanes(VF x) {
    if (LANES > 8) x = add_away(x, 8);
    if (LANES > 4) x = add_away(x, 4);
    return add_away(add_away(x, 2), 1);
}

/* The weights of depth `index` of words, times weight_up and more by weight_excess. */
TILE_INLINE VF whole_in_words(VU words, int index, const WeightKind kind) {
    if (kind == WEIGHT_INT8) return from_words(words, index, kind);
    const int bits = 32 / weight_word(kind), place = index % 4;
    const uint32_t most = (1u << bits) - 1;
    return __builtin_convertvector((VI)(words >> (uint32_t)(bits * (index - place)) & most << (bits * place)), VF);
}

/* Elements of a row by weight_up. */
TILE_INLINE VF down_in_words(VF x, const WeightKind kind) {
    VF by;
    for (int l = 0; l < LANES; l++) by[l] = 1 / weight_up(kind, l);
    return x * by;
}

enum { MOST_STEP = 16, MOST_CHAINS = 2 };

/* Elements [k, k + step) of a row, 0 from `end` on, as whole_in_words's weights need them. Adds the elements themselves to `all`. */
TILE_INLINE void part_of_row(const float *x, int64_t k, int64_t end, const int step, VF *all, float part[MOST_STEP],
                             const bool whole, const WeightKind kind) {
    TILE_UNROLL
    for (int l = 0; l < step; l += LANES) {
        VF some = {0};
        if (whole || k + l + LANES <= end)
            some = *(const VFLoose *)(x + k + l);
        else if (k + l < end)
            some = (VF)f32_load_part(x + k + l, (int)(end - k - l));
        *all += some;
        *(VFLoose *)(part + l) = down_in_words(some, kind);
    }
}

/* A word's depths, of which part[i] holds the rows' elements. */
TILE_INLINE void add_depths(const char *at, float part[][MOST_STEP], int first,
                            VF sums[][TILE_MAX_ROWS][TILE_MAX_VECTORS], const int m, const int nv, const int chains,
                            const WeightKind kind) {
    VU words[TILE_MAX_VECTORS];
    TILE_UNROLL
    for (int j = 0; j < nv; j++) {
        words[j] = *(const VULoose *)(const void *)(at + j * VECTOR_BYTES);
        __builtin_prefetch(at + j * VECTOR_BYTES + NARROW_AHEAD);
    }
    TILE_UNROLL
    for (int d = 0; d < weight_word(kind); d++) {
        VF weights[TILE_MAX_VECTORS];
        TILE_UNROLL
        for (int j = 0; j < nv; j++) weights[j] = whole_in_words(words[j], d, kind);
        TILE_UNROLL
        for (int i = 0; i < m; i++) {
            VF value = splat(part[i][first + d]);
            TILE_UNROLL
            for (int j = 0; j < nv; j++) sums[d % chains][i][j] += value * weights[j];
        }
    }
}

/* Depths [k, end), of one block, at `at`: all of it, where it has whole steps, or its last part. A block's sums are of its numbers as they
 * stand in their words; what stands for 0, and zero points, are taken off them with the sums of the rows' own elements. So many sums of a
 * result run side by side that they hide the latency of a product. */
TILE_INLINE void add_block(const TileCall *call, const char *at, int64_t k, int64_t end,
                           VF acc[TILE_MAX_ROWS][TILE_MAX_VECTORS], const float *const *x, const int m, const int nv,
                           const bool whole, const WeightKind kind) {
    const int word = weight_word(kind), step = word > LANES ? word : LANES;
    const int chains = m * nv >= 4 ? 1 : MOST_CHAINS;
    const int64_t row = call->weight_stride * (int64_t)sizeof(float);
    const bool zeros = call->form->zeros;
    const char *scales = at;
    VF sums[MOST_CHAINS][TILE_MAX_ROWS][TILE_MAX_VECTORS], all[NARROW_TILE_ROWS];
    TILE_UNROLL
    for (int chain = 0; chain < chains; chain++) f32_clear(sums[chain], m, nv);
    TILE_UNROLL
    for (int i = 0; i < m; i++) all[i] = (VF){0};
    at += row * (1 + zeros);
    TILE_NO_UNROLL
    for (; k < end; k += step) {
        float part[NARROW_TILE_ROWS][MOST_STEP];
        TILE_UNROLL
        for (int i = 0; i < m; i++) part_of_row(x[i], k, end, step, &all[i], part[i], whole, kind);
        __asm__("" : "+m"(part)); /* each is spread from there, not permuted */
        TILE_UNROLL
        for (int w = 0; w < step; w += word)
            if (whole || k + w < end) {
                add_depths(at, part, w, sums, m, nv, chains, kind);
                at += row;
            }
    }
    TILE_UNROLL
    for (int i = 0; i < m; i++) {
        all[i] = sum_of_lanes(all[i]);
        TILE_UNROLL
        for (int j = 0; j < nv; j++) {
            VF zero = splat(weight_excess(kind)), sum = sums[0][i][j];
            if (chains > 1) sum += sums[1][i][j];
            if (zeros) zero += *(const VFLoose *)(const void *)(scales + row + j * VECTOR_BYTES);
            if (zeros || weight_excess(kind) > 0) sum -= all[i] * zero;
            acc[i][j] += sum * *(const VFLoose *)(const void *)(scales + j * VECTOR_BYTES);
        }
    }
}

TILE_INLINE void add_blocks(const TileCall *call, VF acc[TILE_MAX_ROWS][TILE_MAX_VECTORS], const float *const *x,
                            const int m, const int nv, const WeightKind kind) {
    const int64_t depths = call->form->block;
    const int64_t bytes =
        call->weight_stride * (1 + call->form->zeros + depths / weight_word(kind)) * (int64_t)sizeof(float);
    const char *at = call->weight;
    int64_t k = 0;
    if (depths % MOST_STEP == 0)
        for (; k + depths <= call->depth; k += depths, at += bytes)
            add_block(call, at, k, k + depths, acc, x, m, nv, true, kind);
    for (int64_t end; k < call->depth; k = end, at += bytes) {
        end = call->depth - k < depths ? call->depth : k + depths;
        add_block(call, at, k, end, acc, x, m, nv, false, kind);
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
    f32_Limits limits;
    f32_limits(&limits, &call->bounds);
    const int last = call->columns - (nv - 1) * LANES;
    f32_clear(acc, m, nv);
    TILE_UNROLL
    for (int i = 0; i < m; i++) x[i] = (const float *)call->rows[i] + call->offset + call->offsets[0];
    add_narrow(call, acc, x, m, nv, kind);
    f32_finish(call, &limits, call->results, call->column, acc, m, nv, last);
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
