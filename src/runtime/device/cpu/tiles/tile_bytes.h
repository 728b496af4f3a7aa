/* SPDX-License-Identifier: Apache-2.0 */
/* Included by tile_type.h for products of quads on AVX2. Its product of bytes (vpmaddubsw) adds up pairs in 16 bits, where they saturate: two
 * weights of one sign, of which a row's bytes up to 255 make more than 32,767. So the quads of a weight are sorted, once for all tiles of a
 * call: those whose pairs' sums are within 128 are multiplied as they lie, by seven instructions for 64 products; the others are widened to
 * words of 16 bits (vpmaddwd) and take eleven. All sums are exact.
 *
 * How many are others depends on the scales. Of a small BERT, quantized as ONNX Runtime does, quads of 16 columns: .4 % with a scale a
 * tensor, 37 % with one a column, none with `reduce_range`. */

enum {
    BYTES_DEPTH = 128, /* quads of a block: 8 kB of two vectors of weights stay in the first-level cache */
    BYTES_TILES = 16,  /* whose sums wait for the next block */
    BYTES_ROWS = 8,    /* the highest tile */
    BYTES_VECTORS = 2,
    /* Rows of a call from which on this is faster; below, the weight is sorted for too few. */
    BYTES_LEAST_ROWS = 12,
    PAIR_LIMIT = 128, /* 255 * 128 and -255 * 128 are words; pairs of two signs are always within it */
};

typedef int16_t NAME(Words) __attribute__((vector_size(VECTOR_BYTES)));
typedef uint16_t NAME(BareWords) __attribute__((vector_size(VECTOR_BYTES)));

/* A quad of the weight. */
typedef struct NAME(Quad) {
    int64_t row;     /* bytes from where its tap's rows begin */
    const T *weight; /* as it lies; or words: first and third bytes of all vectors, then second and fourth */
} NAME(Quad);

/* Where in a row a block of the depth begins. */
typedef struct NAME(Place) {
    int64_t tap, depth;
} NAME(Place);

/* What a block has of a tap. */
typedef struct NAME(Part) {
    NAME(Place) place;
    int fits, others; /* quads up to its end */
} NAME(Part);

typedef struct NAME(Sorted) {
    V words[BYTES_DEPTH][2][BYTES_VECTORS];
    NAME(Quad) fits[BYTES_DEPTH], others[BYTES_DEPTH];
    NAME(Part) parts[BYTES_DEPTH];
    int count; /* of parts */
} NAME(Sorted);

TILE_INLINE bool NAME(fits)(const T *weight, const int nv) {
    const __m256i ones = _mm256_set1_epi8(1);
    __m256i beyond = _mm256_setzero_si256();
    TILE_UNROLL
    for (int j = 0; j < nv; j++) {
        __m256i sums = _mm256_maddubs_epi16(ones, (__m256i)(*(const LOOSE *)(weight + j * TYPE_LANES)));
        beyond = _mm256_or_si256(beyond, _mm256_cmpgt_epi16(_mm256_abs_epi16(sums), _mm256_set1_epi16(PAIR_LIMIT)));
    }
    return _mm256_testz_si256(beyond, beyond);
}

/* Quads [place, place + count) of the call, whose weight begins at `weight`. */
TILE_INLINE void NAME(sort)(NAME(Sorted) * to, const TileCall *call, const T *weight, NAME(Place) place, int64_t count,
                            const int nv) {
    const int64_t step = (1 + call->depth_gap) * (int64_t)sizeof(T);
    int fits = 0, others = 0;
    for (to->count = 0; count > 0; place.tap++, place.depth = 0) {
        const int64_t some = call->depth - place.depth < count ? call->depth - place.depth : count;
        for (int64_t q = 0; q < some; q++, weight += call->weight_stride) {
            NAME(Quad) quad = {q * step, weight};
            if (NAME(fits)(weight, nv)) {
                to->fits[fits++] = quad;
                continue;
            }
            TILE_UNROLL
            for (int j = 0; j < nv; j++) {
                NAME(Words) bytes = (NAME(Words)) * (const LOOSE *)(weight + j * TYPE_LANES);
                to->words[others][0][j] = (V)(bytes << 8 >> 8);
                to->words[others][1][j] = (V)(bytes >> 8);
            }
            quad.weight = (const T *)to->words[others];
            to->others[others++] = quad;
        }
        to->parts[to->count++] = (NAME(Part)){place, fits, others};
        count -= some;
    }
}

/* low, high += the products of the quad at `row` + `at` by the two vectors at `weight`. By hand, as TILE_ADD_TO_PAIR (tile_isa.h). */
#define ADD_BYTES(low, high, row, at, weight, ones)                                                                    \
    do {                                                                                                               \
        V spread, product;                                                                                             \
        __asm__ volatile("vpbroadcastd (%4,%5), %2\n\t"                                                                \
                         "vpmaddubsw (%6), %2, %3\n\t"                                                                 \
                         "vpmaddubsw 32(%6), %2, %2\n\t"                                                               \
                         "vpmaddwd %7, %3, %3\n\t"                                                                     \
                         "vpmaddwd %7, %2, %2\n\t"                                                                     \
                         "vpaddd %3, %0, %0\n\t"                                                                       \
                         "vpaddd %2, %1, %1"                                                                           \
                         : "+x"(low), "+x"(high), "=&x"(spread), "=&x"(product)                                        \
                         : "r"(row), "r"(at), "r"(weight), "x"(ones)                                                   \
                         : "memory");                                                                                  \
    } while (0)

/* Likewise of words. */
#define ADD_WORDS(low, high, row, at, weight, mask)                                                                    \
    do {                                                                                                               \
        V spread, even, product;                                                                                       \
        __asm__ volatile("vpbroadcastd (%5,%6), %2\n\t"                                                                \
                         "vpand %8, %2, %3\n\t"                                                                        \
                         "vpsrlw $8, %2, %2\n\t"                                                                       \
                         "vpmaddwd (%7), %3, %4\n\t"                                                                   \
                         "vpaddd %4, %0, %0\n\t"                                                                       \
                         "vpmaddwd 32(%7), %3, %3\n\t"                                                                 \
                         "vpaddd %3, %1, %1\n\t"                                                                       \
                         "vpmaddwd 64(%7), %2, %4\n\t"                                                                 \
                         "vpaddd %4, %0, %0\n\t"                                                                       \
                         "vpmaddwd 96(%7), %2, %2\n\t"                                                                 \
                         "vpaddd %2, %1, %1"                                                                           \
                         : "+x"(low), "+x"(high), "=&x"(spread), "=&x"(even), "=&x"(product)                           \
                         : "r"(row), "r"(at), "r"(weight), "x"(mask)                                                   \
                         : "memory");                                                                                  \
    } while (0)

/* The products of one vector. */
TILE_INLINE V NAME(dot_of_bytes)(V quad, const V *weight, V ones) {
    __m256i pairs = _mm256_maddubs_epi16((__m256i)quad, (__m256i)(*(const LOOSE *)weight));
    return (V)_mm256_madd_epi16(pairs, (__m256i)ones);
}

TILE_INLINE V NAME(dot_of_words)(V quad, const V *words, V mask) {
    return (V)_mm256_madd_epi16((__m256i)(quad & mask), (__m256i)words[0]) +
           (V)_mm256_madd_epi16((__m256i)((NAME(BareWords))quad >> 8), (__m256i)words[BYTES_VECTORS]);
}

/* Quads [first, end) of a list for m rows; fit: as they lie, else as words. */
TILE_INLINE void NAME(add_list)(V acc[TILE_MAX_ROWS][TILE_MAX_VECTORS], const NAME(Quad) * list, int first, int end,
                                const char *const x[TILE_MAX_ROWS], const int m, const int nv, const bool fit) {
    const V ones = (V)_mm256_set1_epi16(1), mask = 0x00ff00ff - (V){0};
    TILE_NO_UNROLL
    for (int e = first; e < end; e++) {
        const T *weight = list[e].weight;
        const int64_t at = list[e].row;
        TILE_UNROLL
        for (int i = 0; i < m; i++) {
            if (nv == BYTES_VECTORS && fit) {
                ADD_BYTES(acc[i][0], acc[i][1], x[i], at, weight, ones);
            } else if (nv == BYTES_VECTORS) {
                ADD_WORDS(acc[i][0], acc[i][1], x[i], at, weight, mask);
            } else {
                const V quad = TILE_SPREAD((const T *)(const void *)(x[i] + at)), *w = (const V *)weight;
                acc[i][0] += fit ? NAME(dot_of_bytes)(quad, w, ones) : NAME(dot_of_words)(quad, w, mask);
            }
        }
    }
}

#undef ADD_BYTES
#undef ADD_WORDS

/* A tile's products by a block of the weight. */
TILE_INLINE void NAME(add_sorted)(V acc[TILE_MAX_ROWS][TILE_MAX_VECTORS], const NAME(Sorted) * sorted,
                                  const TileCall *call, const void *const *rows, const int m, const int nv) {
    int fits = 0, others = 0;
    for (int p = 0; p < sorted->count; p++) {
        const NAME(Part) *part = &sorted->parts[p];
        const int64_t shift = call->offset + call->offsets[part->place.tap] + part->place.depth * (1 + call->depth_gap);
        const char *x[TILE_MAX_ROWS];
        TILE_UNROLL
        for (int i = 0; i < m; i++) {
            x[i] = (const char *)((const T *)rows[part->place.tap * call->row_stride + i] + shift);
            TILE_HOLD_ADDRESS(x[i]);
        }
        NAME(add_list)(acc, sorted->fits, fits, part->fits, x, m, nv, true);
        NAME(add_list)(acc, sorted->others, others, part->others, x, m, nv, false);
        fits = part->fits;
        others = part->others;
    }
}

/* The call's share of what is read next, a tile's. */
static void NAME(ask)(const TileCall *call, int tile, int64_t first, int64_t count) {
    enum { LINE = 64 };
    const char *from = call->ahead + (tile * call->taps * call->depth + first) * call->ahead_step;
    for (int64_t at = 0; at < count * call->ahead_step; at += LINE) __builtin_prefetch(from + at, 0, 2);
}

TILE_INLINE void NAME(product_of_bytes)(const TileCall *call, const int m, const int nv) {
    NAME(Sorted) sorted;
    V sums[BYTES_TILES][BYTES_ROWS][BYTES_VECTORS];
    const int last = call->columns - (nv - 1) * TYPE_LANES;
    const int64_t total = call->taps * call->depth, blocks = (total + BYTES_DEPTH - 1) / BYTES_DEPTH;
    const int64_t block = blocks ? (total + blocks - 1) / blocks : 0; /* as long as each other */
    for (int first = 0; first < call->tiles; first += BYTES_TILES) {
        const int tiles = call->tiles - first < BYTES_TILES ? call->tiles - first : BYTES_TILES;
        NAME(Place) place = {0, 0};
        int64_t at = 0, count;
        do { /* at least once: without taps or depth the sums are 0 */
            count = total - at < block ? total - at : block;
            NAME(sort)(&sorted, call, (const T *)call->weight + at * call->weight_stride, place, count, nv);
            for (int tile = 0; tile < tiles; tile++) {
                V acc[TILE_MAX_ROWS][TILE_MAX_VECTORS];
                NAME(clear)(acc, m, nv);
                NAME(ask)(call, first + tile, at, count);
                NAME(add_sorted)(acc, &sorted, call, call->rows + (first + tile) * m, m, nv);
                TILE_UNROLL
                for (int i = 0; i < m && at; i++) {
                    TILE_UNROLL
                    for (int j = 0; j < nv; j++) acc[i][j] += sums[tile][i][j];
                }
                if (at + count == total) {
                    NAME(finish)(call, NULL, call->results + (first + tile) * m, call->column, acc, m, nv, last);
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
