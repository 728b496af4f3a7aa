/* SPDX-License-Identifier: Apache-2.0 */
/* Included by tile_type.h for products of quads on AVX2, whose instruction multiplies words of 16 bits (vpmaddwd): tiles of so many rows
 * that it pays to widen their numbers before. Split in registers for each product, four bytes take three instructions a row and as many a
 * vector of weights beside the four that multiply and add, and more registers than there are.
 *
 * The first and third bytes of quads stand apart from the second and fourth, as pairs of words: a loop over one kind, then over the other,
 * has a product of pairs and a sum for each vector, and nothing else. What is widened, a block of the depth, stays in the first-level cache;
 * the weight's for all tiles of a call, a tile's rows for that tile, where they are not widened yet for all panels (TileCall.words). The sums
 * are those of the loop in registers: they are exact. */

enum {
    WORDS_DEPTH = 128, /* quads of a block: 16 kB of two vectors of weights beside 6 kB of rows */
    WORDS_TILES = 16,  /* whose sums wait for the next block */
    WORDS_ROWS = 8,    /* the highest tile */
    WORDS_VECTORS = 2,
    /* Rows of a call from which on this is faster; below, widened weights are read too few times. */
    WORDS_LEAST_ROWS = 12,
};

typedef int16_t NAME(Words) __attribute__((vector_size(VECTOR_BYTES)));
typedef uint16_t NAME(BareWords) __attribute__((vector_size(VECTOR_BYTES)));

/* [0]: first and third bytes of each quad, [1]: second and fourth. */
typedef struct NAME(Widened) {
    V weight[2][WORDS_DEPTH][WORDS_VECTORS];
    T rows[2][WORDS_ROWS][WORDS_DEPTH + TYPE_LANES]; /* written in whole vectors */
} NAME(Widened);

/* Where in a row a block of the depth begins. */
typedef struct NAME(Place) {
    int64_t tap, depth;
} NAME(Place);

TILE_INLINE void NAME(widen_weight)(NAME(Widened) * to, const T *weight, int64_t stride, int64_t count, const int nv) {
    for (int64_t q = 0; q < count; q++, weight += stride) {
        TILE_UNROLL
        for (int j = 0; j < nv; j++) {
            NAME(Words) quads = (NAME(Words)) * (const LOOSE *)(weight + j * TYPE_LANES);
            to->weight[0][q][j] = (V)(quads << 8 >> 8);
            to->weight[1][q][j] = (V)(quads >> 8);
        }
    }
}

/* `count` quads of a row, `step` apart. Nothing behind them is read. */
TILE_INLINE void NAME(widen_run)(const T *from, int64_t step, int64_t count, T *even, T *odd) {
    const VI lanes = {0, 1, 2, 3, 4, 5, 6, 7};
    for (int64_t k = 0; k < count; k += TYPE_LANES) {
        V quads;
        if (step != 1)
            for (int i = 0; i < TYPE_LANES; i++) quads[i] = k + i < count ? from[(k + i) * step] : 0;
        else if (count - k < TYPE_LANES)
            quads = (V)_mm256_maskload_epi32((const int *)(const void *)(from + k),
                                             (__m256i)(lanes < (VI)((int)(count - k) - (VI){0})));
        else
            quads = *(const LOOSE *)(from + k);
        *(LOOSE *)(even + k) = quads & 0x00ff00ff;
        *(LOOSE *)(odd + k) = (V)((NAME(BareWords))quads >> 8);
    }
}

/* Depths [place, place + count) of a tile's rows. */
static void NAME(widen_rows)(NAME(Widened) * to, const TileCall *call, const void *const *rows, int m,
                             NAME(Place) place, int64_t count) {
    const int64_t step = 1 + call->depth_gap;
    for (int64_t done = 0, some; done < count; done += some, place.tap++, place.depth = 0) {
        const int64_t shift = call->offset + call->offsets[place.tap] + place.depth * step;
        some = call->depth - place.depth < count - done ? call->depth - place.depth : count - done;
        for (int i = 0; i < m; i++) NAME(widen_run)
        ((const T *)rows[place.tap * call->row_stride + i] + shift, step, some, to->rows[0][i] + done,
         to->rows[1][i] + done);
    }
}

static void NAME(widen_words)(const void *row, int64_t count, void *even, void *odd) {
    NAME(widen_run)(row, 1, count, even, odd);
}

/* As TILE_ADD_TO_PAIR (tile_isa.h), of pairs of words. */
#define ADD_WORDS_TO_PAIR(low, high, row, at, number, first, second)                                                   \
    do {                                                                                                               \
        V spread, product;                                                                                             \
        __asm__ volatile("vpbroadcastd 4*" #number "(%4,%5,4), %2\n\t"                                                 \
                         "vpmaddwd %6, %2, %3\n\t"                                                                     \
                         "vpaddd %3, %0, %0\n\t"                                                                       \
                         "vpmaddwd %7, %2, %2\n\t"                                                                     \
                         "vpaddd %2, %1, %1"                                                                           \
                         : "+x"(low), "+x"(high), "=&x"(spread), "=&x"(product)                                        \
                         : "r"(row), "r"(at), "x"(first), "x"(second)                                                  \
                         : "memory");                                                                                  \
    } while (0)

#define DEPTH(number)                                                                                                  \
    {                                                                                                                  \
        const V first_vector = weight[number * WORDS_VECTORS], second_vector = weight[number * WORDS_VECTORS + 1];     \
        TILE_UNROLL                                                                                                    \
        for (int i = 0; i < m; i++)                                                                                    \
            ADD_WORDS_TO_PAIR(acc[i][0], acc[i][1], x[i], q, number, first_vector, second_vector);                     \
    }

/* Depths [first, first + count) of a block. What is odd of a row is `half_step` elements behind what is even. */
TILE_INLINE void NAME(add_words)(V acc[TILE_MAX_ROWS][TILE_MAX_VECTORS], const NAME(Widened) * from, int64_t first,
                                 const T *const rows[TILE_MAX_ROWS], int64_t half_step, int64_t count, const int m,
                                 const int nv) {
    for (int half = 0; half < 2; half++) {
        const V *weight = from->weight[half][first];
        const T *x[TILE_MAX_ROWS];
        TILE_UNROLL
        for (int i = 0; i < m; i++) {
            x[i] = rows[i] + half * half_step;
            TILE_HOLD_ADDRESS(x[i]);
        }
        TILE_HOLD_ADDRESS(weight);
        int64_t q = 0;
        if (m > 2 && nv == WORDS_VECTORS)
            for (; q + TILE_PAIR_DEPTHS <= count; q += TILE_PAIR_DEPTHS, weight += TILE_PAIR_DEPTHS * WORDS_VECTORS) {
                DEPTH(0)
                DEPTH(1)
                DEPTH(2)
                DEPTH(3)
            }
        TILE_NO_UNROLL
        for (; q < count; q++, weight += WORDS_VECTORS) {
            TILE_UNROLL
            for (int i = 0; i < m; i++) {
                V value = TILE_SPREAD(x[i] + q);
                TILE_UNROLL
                for (int j = 0; j < nv; j++) acc[i][j] += (V)_mm256_madd_epi16((__m256i)value, (__m256i)weight[j]);
            }
        }
    }
}

#undef DEPTH
#undef ADD_WORDS_TO_PAIR

/* Depths [place, place + count) of a tile's rows, by a block of the weight. Rows that are words already are taken tap by tap from where
 * they lie. */
TILE_INLINE void NAME(add_block)(V acc[TILE_MAX_ROWS][TILE_MAX_VECTORS], NAME(Widened) * wide, const TileCall *call,
                                 const void *const *rows, NAME(Place) place, int64_t count, const int m, const int nv) {
    if (!call->words) NAME(widen_rows)(wide, call, rows, m, place, count);
    for (int64_t done = 0, some; done < count; done += some, place.tap++, place.depth = 0) {
        const T *x[TILE_MAX_ROWS];
        some = call->words && call->depth - place.depth < count - done ? call->depth - place.depth : count - done;
        TILE_UNROLL
        for (int i = 0; i < m; i++)
            x[i] = call->words ? (const T *)rows[place.tap * call->row_stride + i] + call->offset +
                                     call->offsets[place.tap] + place.depth
                               : wide->rows[0][i];
        NAME(add_words)
        (acc, wide, done, x, call->words ? call->words : WORDS_ROWS * (WORDS_DEPTH + TYPE_LANES), some, m, nv);
    }
}

/* The call's share of what is read next, a tile's. */
static void NAME(ask)(const TileCall *call, int tile, int64_t first, int64_t count) {
    enum { LINE = 64 };
    const char *from = call->ahead + (tile * call->taps * call->depth + first) * call->ahead_step;
    for (int64_t at = 0; at < count * call->ahead_step; at += LINE) __builtin_prefetch(from + at, 0, 2);
}

TILE_INLINE void NAME(product_of_words)(const TileCall *call, const int m, const int nv) {
    NAME(Widened) wide;
    V sums[WORDS_TILES][WORDS_ROWS][WORDS_VECTORS];
    const int last = call->columns - (nv - 1) * TYPE_LANES;
    const int64_t total = call->taps * call->depth, blocks = (total + WORDS_DEPTH - 1) / WORDS_DEPTH;
    const int64_t block = blocks ? (total + blocks - 1) / blocks : 0; /* as long as each other */
    for (int first = 0; first < call->tiles; first += WORDS_TILES) {
        const int tiles = call->tiles - first < WORDS_TILES ? call->tiles - first : WORDS_TILES;
        NAME(Place) place = {0, 0};
        int64_t at = 0, count;
        do { /* at least once: without taps or depth the sums are 0 */
            count = total - at < block ? total - at : block;
            NAME(widen_weight)
            (&wide, (const T *)call->weight + at * call->weight_stride, call->weight_stride, count, nv);
            for (int tile = 0; tile < tiles; tile++) {
                V acc[TILE_MAX_ROWS][TILE_MAX_VECTORS];
                NAME(clear)(acc, m, nv);
                NAME(ask)(call, first + tile, at, count);
                NAME(add_block)(acc, &wide, call, call->rows + (first + tile) * m, place, count, m, nv);
                TILE_UNROLL
                for (int i = 0; i < m && at; i++) {
                    TILE_UNROLL
                    for (int j = 0; j < nv; j++) acc[i][j] += sums[tile][i][j];
                }
                if (at + count == total) {
                    NAME(finish)(call, call->results + (first + tile) * m, call->column, acc, m, nv, last);
                    continue;
                }
                TILE_UNROLL
                for (int i = 0; i < m; i++) {
                    TILE_UNROLL
                    for (int j = 0; j < nv; j++) sums[tile][i][j] = acc[i][j];
                }
            }
            at += count;
            place.depth += count;
            while (call->depth && place.depth >= call->depth) place.tap++, place.depth -= call->depth;
        } while (at < total);
    }
}
