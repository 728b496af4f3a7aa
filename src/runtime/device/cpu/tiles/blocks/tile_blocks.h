/* SPDX-License-Identifier: Apache-2.0 */
/* Included once an instruction set that multiplies bytes: defines the TileBlocks tile_blocks_<ISA>, products of rows rounded to i8 in
 * blocks (runtime/device/cpu/matmul/rounded.h) by weights of 8, 4 or 2 bits in blocks. Within a block all is exact: an element of the weight is
 * multiplied as its bits, u8, and what stands for 0 in them is taken off with the sum of the row's. Wants
 *   ISA, ISA_TARGET, VECTOR_BYTES, REGISTERS   as tile_isa.h
 *   BLOCK_DOT     how four products of u8 by i8 are added: BLOCK_PLAIN, any vectors; BLOCK_PAIRS, AVX2's sums of pairs, which 16 bits
 *                 hold for ROUNDED_STEP depths of weights of 4 bits, and of 8 bits its sums of pairs of 16 bits (TileBlocks.words);
 *                 BLOCK_VNNI, the instruction for it; BLOCK_SIGNED, aarch64's of bytes that are both signed, as those of a weight may be taken where they
 *                 are less than 16, and bytes are less what stands for 0 in them
 *   BLOCK_AMX     defined: so for few rows, AMX for more (tile_blocks_amx.h) */
#define BLOCK_PLAIN 0
#define BLOCK_PAIRS 1
#define BLOCK_VNNI 2
#define BLOCK_SIGNED 3

#include <string.h>
#include "runtime/device/cpu/tiles/tile_unit.h"

enum { LANES = VECTOR_BYTES / 4 };

#define T float
#define NAME(word) TILE_JOIN(f32, word)
#define IS_FLOAT 1
#define IS_F32 1
#define WIDE (REGISTERS == 32)
#define TILE_WITHOUT_LINES
#define TILE_WITHOUT_PRODUCTS
#define TILE_WITHOUT_BOUND_ROW
#include "runtime/device/cpu/tiles/tile_type.h"

/* AVX-512's product takes what it multiplies all lanes by from memory; others load that first, for two vectors of columns. */
#if VECTOR_BYTES == 64
#define BLOCK_VECTORS 1
#else
#define BLOCK_VECTORS 2
#endif
/* BLOCK_AHEAD: bytes behind the weight that few rows meet, from where more is asked for meanwhile: they are done with it before it comes. */
enum { BLOCK_ROWS = REGISTERS == 32 ? 8 : 4, BLOCK_AHEAD = 2048 };
/* Without an instruction for them products are long enough for a loop over words. */
#if BLOCK_DOT == BLOCK_PLAIN
#define BLOCK_UNROLL TILE_NO_UNROLL
#else
#define BLOCK_UNROLL TILE_UNROLL
#endif

_Static_assert((int)BLOCK_ROWS <= (int)TILE_BLOCK_ROWS, "all heights have a place in the table");
_Static_assert(ROUNDED_STEP / 2 * 15 * 128 <= INT16_MAX, "a lane of 16 bits adds up half of a step's products");
_Static_assert(MOST_BLOCK * 255 * 127 <= INT32_MAX && MOST_BLOCK * 128 * 127 <= 1 << 24,
               "the sum of a block's bytes is exact, and in f32 what it is without that of zeros");

typedef uint32_t VULoose __attribute__((vector_size(VECTOR_BYTES), aligned(4), may_alias));

/* Whether numbers are multiplied as words of 16 bits, whose sums of pairs have 32. */
TILE_INLINE bool blocks_in_words(const WeightKind kind) { return BLOCK_DOT == BLOCK_PAIRS && kind == WEIGHT_INT8; }

/* The bits of a quad in a word, at their lowest place. */
TILE_INLINE uint32_t blocks_mask(const WeightKind kind) {
    return kind == WEIGHT_INT8 ? 0xffffffff : kind == WEIGHT_INT4 ? 0x0f0f0f0f : 0x03030303;
}

/* sum + w[0] x[0] + ... + w[3] x[3] in each lane; of BLOCK_PAIRS w[0] x[0] + w[1] x[1] in its lower half, the others in its upper one. */
TILE_INLINE VU blocks_add(VU sum, VU w, VU x, const WeightKind kind) {
#if BLOCK_DOT == BLOCK_PAIRS
    if (blocks_in_words(kind)) return (VU)_mm256_add_epi32((__m256i)sum, _mm256_madd_epi16((__m256i)w, (__m256i)x));
#endif
    (void)kind;
#if BLOCK_DOT == BLOCK_VNNI && VECTOR_BYTES == 64
    return (VU)_mm512_dpbusd_epi32((__m512i)sum, (__m512i)w, (__m512i)x);
#elif BLOCK_DOT == BLOCK_VNNI
    return (VU)_mm256_dpbusd_avx_epi32((__m256i)sum, (__m256i)w, (__m256i)x);
#elif BLOCK_DOT == BLOCK_SIGNED
    return (VU)vdotq_laneq_s32((int32x4_t)sum, (int8x16_t)w, (int8x16_t)x, 0);
#elif BLOCK_DOT == BLOCK_PAIRS
    return (VU)_mm256_add_epi16((__m256i)sum, _mm256_maddubs_epi16((__m256i)w, (__m256i)x));
#else
    VI wide = (VI)x;
    sum += (w & 255) * (VU)(wide << 24 >> 24);
    sum += (w >> 8 & 255) * (VU)(wide << 16 >> 24);
    sum += (w >> 16 & 255) * (VU)(wide << 8 >> 24);
    return sum + (w >> 24) * (VU)(wide >> 24);
#endif
}

/* Whether what stands for 0 is taken off the weight's elements, and not off the sums. */
TILE_INLINE bool blocks_signed(const WeightKind kind) { return BLOCK_DOT == BLOCK_SIGNED && kind == WEIGHT_INT8; }

/* A step's sums in 32 bits. */
TILE_INLINE VU blocks_widened(VU step, const WeightKind kind) {
#if BLOCK_DOT == BLOCK_PAIRS
    if (!blocks_in_words(kind)) return (VU)_mm256_madd_epi16((__m256i)step, _mm256_set1_epi16(1));
#endif
    (void)kind;
    return step;
}

TILE_INLINE VU blocks_spread(const char *x) {
    typedef uint32_t Bits __attribute__((may_alias));
    return *(const Bits *)(const void *)x - (VU){0};
}

/* A word of each column by the numbers of so many rows that it meets, those of the block from depth `at` on. */
TILE_INLINE void blocks_word(VU step[TILE_BLOCK_ROWS][BLOCK_VECTORS], const char *words, const char *const *x,
                             int64_t at, const int m, const int nv, const WeightKind kind) {
    const bool wide = blocks_in_words(kind);
    const int quads = wide ? 2 : weight_word(kind) / 4; /* of words: pairs */
    const uint32_t mask = wide ? 0x00ff00ff : blocks_mask(kind);
    VU word[BLOCK_VECTORS];
    TILE_UNROLL
    for (int j = 0; j < nv; j++) {
        word[j] = *(const VULoose *)(const void *)(words + j * VECTOR_BYTES);
        if (m <= ROW_DIGITS && j * VECTOR_BYTES % LINE_BYTES == 0)
            __builtin_prefetch(words + j * VECTOR_BYTES + BLOCK_AHEAD);
        TILE_HOLD(word[j]); /* else it is loaded once for each of its quads */
    }
    TILE_UNROLL
    for (int q = 0; q < quads; q++) {
        VU w[BLOCK_VECTORS];
        TILE_UNROLL
        for (int j = 0; j < nv; j++) {
            w[j] = word[j] >> (uint32_t)(wide ? 8 * q : 8 / quads * q) & mask;
            if (blocks_signed(kind)) w[j] ^= 0x80808080;
        }
        TILE_UNROLL
        for (int i = 0; i < m; i++) {
            VU value = blocks_spread(x[i] + sizeof(RoundedHead) + at * (1 + wide) + 4 * q);
            TILE_UNROLL
            for (int j = 0; j < nv; j++) {
                step[i][j] = blocks_add(step[i][j], w[j], value, kind);
                TILE_HOLD(
                    step[i]
                        [j]); /* else GCC adds all of a step up in pairs, which are far more than there are registers */
            }
        }
    }
}

/* `words` words of the columns at `weight` by rows: added to sums. */
TILE_INLINE const char *blocks_step(const char *weight, int64_t row, VU sums[TILE_BLOCK_ROWS][BLOCK_VECTORS],
                                    const char *const *x, int64_t at, const int words, const int m, const int nv,
                                    const WeightKind kind) {
    VU step[TILE_BLOCK_ROWS][BLOCK_VECTORS];
    TILE_UNROLL
    for (int i = 0; i < m; i++) {
        TILE_UNROLL
        for (int j = 0; j < nv; j++) step[i][j] = (VU){0};
    }
    BLOCK_UNROLL
    for (int s = 0; s < words; s++, weight += row)
        blocks_word(step, weight, x, at + s * weight_word(kind), m, nv, kind);
    TILE_UNROLL
    for (int i = 0; i < m; i++) {
        TILE_UNROLL
        for (int j = 0; j < nv; j++) sums[i][j] += blocks_widened(step[i][j], kind);
    }
    return weight;
}

/* Vectors of columns. steps: all blocks are one whole step. digits: the rows are those of one, block by block in turn. */
TILE_INLINE void blocks_columns(const TileCall *call, int first, const char *const *rows, const int m, const int nv,
                                const WeightKind kind, const bool steps, const bool digits) {
    const int64_t row = call->weight_stride * (int64_t)sizeof(float), block = steps ? ROUNDED_STEP : call->form->block;
    const int word = weight_word(kind), last = call->columns - first - (nv - 1) * LANES;
    const float zero = (float)weight_zero(kind);
    const bool zeros = call->form->zeros;
    const char *at = (const char *)call->weight + first * (int64_t)sizeof(float), *x[TILE_BLOCK_ROWS];
    VF acc[TILE_MAX_ROWS][TILE_MAX_VECTORS];
    f32_clear(acc, m, nv);
    TILE_UNROLL
    for (int i = 0; i < m; i++) x[i] = rows[i];
    for (int64_t left = call->depth; left > 0; left -= block) {
        const VFLoose *scales = (const VFLoose *)(const void *)at, *points = (const VFLoose *)(const void *)(at + row);
        VU sums[TILE_BLOCK_ROWS][BLOCK_VECTORS];
        at += row * (1 + zeros);
        TILE_UNROLL
        for (int i = 0; i < m; i++) {
            TILE_HOLD_ADDRESS(x[i]);
            TILE_UNROLL
            for (int j = 0; j < nv; j++)
                sums[i][j] = blocks_signed(kind) ? (VU){0} : blocks_spread(x[i] + offsetof(RoundedHead, start));
        }
        if (steps) {
            at = blocks_step(at, row, sums, x, 0, ROUNDED_STEP / word, m, nv, kind);
        } else {
            const int64_t end = left < block ? left : block;
            int64_t k = 0;
            for (; k + ROUNDED_STEP <= end; k += ROUNDED_STEP)
                at = blocks_step(at, row, sums, x, k, ROUNDED_STEP / word, m, nv, kind);
            for (; k < end; k += word) at = blocks_step(at, row, sums, x, k, 1, m, nv, kind);
        }
        TILE_UNROLL
        for (int i = 0; i < m; i++) {
            VF scale = (VF)blocks_spread(x[i]);
            TILE_UNROLL
            for (int j = 0; j < nv; j++) {
                VF sum = __builtin_convertvector((VI)sums[i][j], VF);
                if (zeros) {
                    VI start = (VI)blocks_spread(x[i] + offsetof(RoundedHead, start));
                    sum += __builtin_convertvector(start, VF) * (points[j] / zero);
                }
                acc[i][j] += sum * (scales[j] * scale);
            }
            x[i] += rounded_block_bytes(block, blocks_in_words(kind)) * (digits ? m : 1);
        }
    }
    TILE_UNROLL
    for (int i = 1; digits && i < m; i++) {
        TILE_UNROLL
        for (int j = 0; j < nv; j++) acc[0][j] += acc[i][j];
    }
    f32_Limits limits;
    f32_limits(&limits, &call->bounds);
    f32_finish(call, &limits, call->results, call->column + first, acc, digits ? 1 : m, nv,
               last < LANES ? last : LANES);
}

TILE_INLINE void blocks_product(const TileCall *call, const int m, const WeightKind kind, const bool digits) {
    const char *x[TILE_BLOCK_ROWS];
    const int64_t block = call->form->block, bytes = rounded_block_bytes(block, blocks_in_words(kind)),
                  from = call->offset / block * bytes * (digits ? m : 1);
    const bool steps = block == ROUNDED_STEP && call->depth % ROUNDED_STEP == 0;
    int first = 0;
    TILE_UNROLL
    for (int i = 0; i < m; i++)
        x[i] = digits ? (const char *)call->rows[0] + from + i * bytes : (const char *)call->rows[i] + from;
#if BLOCK_VECTORS == 2
    for (; first + LANES < call->columns; first += 2 * LANES)
        if (steps)
            blocks_columns(call, first, x, m, 2, kind, true, digits);
        else
            blocks_columns(call, first, x, m, 2, kind, false, digits);
#endif
    for (; first < call->columns; first += LANES)
        if (steps)
            blocks_columns(call, first, x, m, 1, kind, true, digits);
        else
            blocks_columns(call, first, x, m, 1, kind, false, digits);
}

#define BLOCKS_ONE(word, kind, m)                                                                                      \
    static void blocks_##word##_##m(const TileCall *call) { blocks_product(call, m, kind, false); }
#define BLOCKS_DIGITS(word, kind)                                                                                      \
    static void blocks_##word##_digits(const TileCall *call) { blocks_product(call, ROW_DIGITS, kind, true); }
#define BLOCKS_FOUR(word, kind, a, b, c, d)                                                                            \
    BLOCKS_ONE(word, kind, a) BLOCKS_ONE(word, kind, b) BLOCKS_ONE(word, kind, c) BLOCKS_ONE(word, kind, d)
#define BLOCKS_NAMES(word) NULL, blocks_##word##_1, blocks_##word##_2, blocks_##word##_3, blocks_##word##_4
#define BLOCKS_MORE_NAMES(word) blocks_##word##_5, blocks_##word##_6, blocks_##word##_7, blocks_##word##_8
BLOCKS_FOUR(int8, WEIGHT_INT8, 1, 2, 3, 4)
BLOCKS_FOUR(int4, WEIGHT_INT4, 1, 2, 3, 4)
BLOCKS_FOUR(int2, WEIGHT_INT2, 1, 2, 3, 4)
#if REGISTERS == 32
BLOCKS_FOUR(int8, WEIGHT_INT8, 5, 6, 7, 8)
BLOCKS_FOUR(int4, WEIGHT_INT4, 5, 6, 7, 8)
BLOCKS_FOUR(int2, WEIGHT_INT2, 5, 6, 7, 8)
#define BLOCKS_FEW(word) BLOCKS_NAMES(word), BLOCKS_MORE_NAMES(word)
#else
#define BLOCKS_FEW(word) BLOCKS_NAMES(word)
#endif
#ifdef BLOCK_AMX
#include "runtime/device/cpu/tiles/blocks/tile_blocks_amx.h"
#define BLOCKS_MOST AMX_HIGH
#define BLOCKS_ALL(word)                                                                                               \
    { BLOCKS_FEW(word), [BLOCK_ROWS + 1 ... BLOCKS_MOST] = amx_blocks_##word }
#else
#define BLOCKS_MOST BLOCK_ROWS
#define BLOCKS_ALL(word)                                                                                               \
    { BLOCKS_FEW(word) }
#endif

#if BLOCK_DOT != BLOCK_PLAIN
BLOCKS_DIGITS(int4, WEIGHT_INT4)
BLOCKS_DIGITS(int2, WEIGHT_INT2)
#endif

const TileBlocks TILE_JOIN(tile_blocks, ISA) = {
    .rows = BLOCKS_MOST,
    .words = BLOCK_DOT == BLOCK_PAIRS,
    .products = {[WEIGHT_INT8] = BLOCKS_ALL(int8), [WEIGHT_INT4] = BLOCKS_ALL(int4), [WEIGHT_INT2] = BLOCKS_ALL(int2)},
#if BLOCK_DOT != BLOCK_PLAIN
    .digits = {[WEIGHT_INT4] = blocks_int4_digits, [WEIGHT_INT2] = blocks_int2_digits},
#endif
#ifdef BLOCK_AMX
    .parts = {[WEIGHT_INT8] = amx_parts_int8, [WEIGHT_INT4] = amx_parts_int4, [WEIGHT_INT2] = amx_parts_int2},
#endif
};

VECTOR_END
