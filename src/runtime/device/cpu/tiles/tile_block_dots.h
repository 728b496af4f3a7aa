/* SPDX-License-Identifier: Apache-2.0 */
/* Included by tile_isa.h: few rows by columns of weights in blocks that are multiplied where a model has them (BlockDots).
 *
 * A column's words follow each other in memory, so that a vector holds neighbouring words of one column, and the depths that stand i-th in
 * them are a vector of its weights. Rows are arranged to meet these, and nothing is turned: a column's sum is a vector of sums until it ends. */

typedef uint32_t VUAnywhere __attribute__((vector_size(VECTOR_BYTES), aligned(1), may_alias));
typedef float VFAnywhere __attribute__((vector_size(VECTOR_BYTES), aligned(1), may_alias));

/* Words of a group, of which so many are left: what is behind them is 0. */
TILE_INLINE VU group_of_words(const char *from, int64_t left) {
    VU part = {0};
    if (left >= LANES) return *(const VUAnywhere *)(const void *)from;
    memcpy(&part, from, (size_t)left * sizeof(uint32_t));
    return part;
}

/* The group of words from w on, of columns [first, first + n). */
TILE_INLINE void add_group(const BlockDots *call, int first, int64_t w, VF acc[NARROW_TILE_ROWS][BLOCK_DOT_COLUMNS],
                           const int m, const int n, const bool whole, const WeightKind kind) {
    const int word = weight_word(kind);
    const int shift = __builtin_ctzll((unsigned long long)call->block_words);
    VU words[BLOCK_DOT_COLUMNS];
    VF sums[NARROW_TILE_ROWS][BLOCK_DOT_COLUMNS];
    const float *x[NARROW_TILE_ROWS];
    TILE_UNROLL
    for (int c = 0; c < n; c++) {
        const char *from = call->weights[first + c] + w * (int64_t)sizeof(uint32_t);
        words[c] = group_of_words(from, whole ? LANES : call->words - w);
        __builtin_prefetch(from + call->ahead);
    }
    TILE_UNROLL
    for (int i = 0; i < m; i++) {
        x[i] = call->rows[i] + w * (1 + word);
        TILE_UNROLL
        for (int c = 0; c < n; c++) sums[i][c] = *(const VFLoose *)x[i];
    }
    TILE_UNROLL
    for (int k = 0; k < word; k++) {
        TILE_UNROLL
        for (int c = 0; c < n; c++) {
            VF value = whole_in_words(words[c], k, kind);
            TILE_UNROLL
            for (int i = 0; i < m; i++) sums[i][c] += *(const VFLoose *)(x[i] + (1 + k) * LANES) * value;
        }
    }
    TILE_UNROLL
    for (int c = 0; c < n; c++) {
        const char *at = call->scales[first + c] + (w >> shift) * (int64_t)sizeof(float);
        VF scale;
        if (call->block_words >= LANES) { /* a group's words have one scale */
            float one;
            memcpy(&one, at, sizeof one);
            scale = splat(one);
        } else {
            VU several = (VU) * (const VFAnywhere *)(const void *)at;
            VI lanes;
            for (int l = 0; l < LANES; l++) lanes[l] = l;
            scale = (VF)TILE_SHUFFLE(several, several, lanes >> shift);
        }
        TILE_UNROLL
        for (int i = 0; i < m; i++) acc[i][c] += sums[i][c] * scale;
    }
}

/* Columns [first, first + n). */
TILE_INLINE void dots_of_blocks(const BlockDots *call, int first, const int m, const int n, const WeightKind kind) {
    VF acc[NARROW_TILE_ROWS][BLOCK_DOT_COLUMNS];
    TILE_UNROLL
    for (int i = 0; i < m; i++) {
        TILE_UNROLL
        for (int c = 0; c < n; c++) acc[i][c] = (VF){0};
    }
    int64_t w = 0;
    for (; w + LANES <= call->words; w += LANES) add_group(call, first, w, acc, m, n, true, kind);
    if (w < call->words) add_group(call, first, w, acc, m, n, false, kind);
    for (int64_t b = 0; call->zeros && b < call->blocks; b += LANES) {
        TILE_UNROLL
        for (int c = 0; c < n; c++) {
            VF zero = *(const VFLoose *)(call->zeros[first + c] + b) *
                      *(const VFAnywhere *)(const void *)(call->scales[first + c] + b * (int64_t)sizeof(float));
            TILE_UNROLL
            for (int i = 0; i < m; i++) acc[i][c] -= zero * *(const VFLoose *)(call->sums[i] + b);
        }
    }
    TILE_UNROLL
    for (int i = 0; i < m; i++) {
        TILE_UNROLL
        for (int c = 0; c < n; c++) call->results[i][first + c] = sum_of_lanes(acc[i][c])[0];
    }
}

/* So many columns at a time that their sums, a row each, hide the latency of a product, and that there are registers for them. */
TILE_INLINE void block_dots(const BlockDots *call, const int m, const WeightKind kind) {
    const int some = m == 1 || REGISTERS == 32 ? BLOCK_DOT_COLUMNS : BLOCK_DOT_COLUMNS / 2;
    int c = 0;
    for (; c + some <= call->columns; c += some) dots_of_blocks(call, c, m, some, kind);
    for (; c < call->columns; c++) dots_of_blocks(call, c, m, 1, kind);
}

#define BLOCK_DOTS_ONE(word, kind, m)                                                                                  \
    static void block_dots_##word##_##m(const BlockDots *call) { block_dots(call, m, kind); }
#define BLOCK_DOTS(word, kind)                                                                                         \
    BLOCK_DOTS_ONE(word, kind, 1)                                                                                      \
    BLOCK_DOTS_ONE(word, kind, 2) BLOCK_DOTS_ONE(word, kind, 3) BLOCK_DOTS_ONE(word, kind, 4)
#define BLOCK_DOTS_NAMES(word)                                                                                         \
    { NULL, block_dots_##word##_1, block_dots_##word##_2, block_dots_##word##_3, block_dots_##word##_4 }
BLOCK_DOTS(int8, WEIGHT_INT8)
BLOCK_DOTS(int4, WEIGHT_INT4)
BLOCK_DOTS(int2, WEIGHT_INT2)
