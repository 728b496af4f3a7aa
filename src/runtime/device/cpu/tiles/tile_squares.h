/* SPDX-License-Identifier: Apache-2.0 */
/* Included by tile_type.h for aarch64's products of small matrices, of bytes (USMMLA) and of bf16 (BFMMLA): one instruction adds a 2x2 matrix
 * of sums for two rows and two columns, over two elements of the depth, twice what a product of vectors does. A register holds two rows' two
 * elements, or two columns', behind each other: rows are loaded so, and of two neighbouring depths of a vector of weights the lanes are zipped.
 * Where the depth of a tap is odd, the last element stands beside a 0. Wants
 *   TILE_ADD_SQUARE(sum, x, w)   sum[2 i + j] + x[2 i] w[2 j] + x[2 i + 1] w[2 j + 1] in lane 2 i + j
 * Elements lie without gaps. A row's sums are the same whatever tile it is in. */
typedef uint64_t NAME(Halfs) __attribute__((vector_size(VECTOR_BYTES)));
_Static_assert(VECTOR_BYTES == 16 && sizeof(T) == 4, "a vector is two rows' two elements");

/* Two elements of rows a and b; one: what stands behind it counts as 0, and is not read. */
TILE_INLINE V NAME(two_rows)(const T *a, const T *b, const bool one) {
    typedef uint64_t Two __attribute__((aligned(4), may_alias));
    typedef uint32_t Bits __attribute__((may_alias));
    if (one) return (V)(NAME(Halfs)){*(const Bits *)a, *(const Bits *)b};
    return (V)(NAME(Halfs)){*(const Two *)(const void *)a, *(const Two *)(const void *)b};
}

/* sums[p][2 j + h]: rows 2 p and 2 p + 1 by columns 2 h and 2 h + 1 of vector j; one: the depth's last element, alone. */
TILE_INLINE void NAME(add_squares)(V sums[TILE_MAX_ROWS / 2][2 * TILE_MAX_VECTORS], const T *const x[TILE_MAX_ROWS],
                                   const T *weight, int64_t stride, int64_t k, const int m, const int nv,
                                   const bool one) {
    const int pairs = (m + 1) / 2;
    /* What there are fewer registers of is held, and the other loaded one after the other. */
    const bool holds_rows = nv > pairs;
    V held[2 * TILE_MAX_VECTORS];
    if (holds_rows) {
        TILE_UNROLL
        for (int p = 0; p < pairs; p++)
            held[p] = NAME(two_rows)(x[2 * p] + k, x[2 * p + 1 < m ? 2 * p + 1 : 2 * p] + k, one);
    }
    TILE_UNROLL
    for (int j = 0; j < nv; j++) {
        V first = *(const LOOSE *)(weight + j * TYPE_LANES), second = {0};
        if (!one) second = *(const LOOSE *)(weight + stride + j * TYPE_LANES);
        V low = (V)vzip1q_u32((uint32x4_t)first, (uint32x4_t)second),
          high = (V)vzip2q_u32((uint32x4_t)first, (uint32x4_t)second);
        if (m <= 2) __builtin_prefetch(weight + j * TYPE_LANES + AHEAD);
        if (!holds_rows) {
            held[2 * j] = low;
            held[2 * j + 1] = high;
            continue;
        }
        TILE_UNROLL
        for (int p = 0; p < pairs; p++) {
            sums[p][2 * j] = TILE_ADD_SQUARE(sums[p][2 * j], held[p], low);
            sums[p][2 * j + 1] = TILE_ADD_SQUARE(sums[p][2 * j + 1], held[p], high);
        }
    }
    if (holds_rows) return;
    TILE_UNROLL
    for (int p = 0; p < pairs; p++) {
        V rows = NAME(two_rows)(x[2 * p] + k, x[2 * p + 1 < m ? 2 * p + 1 : 2 * p] + k, one);
        TILE_UNROLL
        for (int h = 0; h < 2 * nv; h++) sums[p][h] = TILE_ADD_SQUARE(sums[p][h], rows, held[h]);
    }
}

TILE_INLINE void NAME(product_of_squares)(const TileCall *call, const int m, const int nv) {
    const int last = call->columns - (nv - 1) * TYPE_LANES, pairs = (m + 1) / 2;
    const int64_t depth = call->depth, stride = call->weight_stride,
                  ahead_step = m > 2 && m <= 8 ? call->ahead_step : 0;
    const char *ahead = call->ahead;
    int tile = 0;
    do {
        V sums[TILE_MAX_ROWS / 2][2 * TILE_MAX_VECTORS], acc[TILE_MAX_ROWS][TILE_MAX_VECTORS];
        const T *weight = call->weight;
        TILE_UNROLL
        for (int p = 0; p < pairs; p++) {
            TILE_UNROLL
            for (int h = 0; h < 2 * nv; h++) sums[p][h] = (V){0};
        }
        for (int64_t t = 0; t < call->taps; t++) {
            const T *x[TILE_MAX_ROWS];
            const int64_t shift = call->offset + call->offsets[t];
            const void *const *rows = call->rows + tile * m + t * call->row_stride;
            int64_t k = 0;
            TILE_UNROLL
            for (int i = 0; i < m; i++) {
                x[i] = (const T *)rows[i] + shift;
                TILE_HOLD_ADDRESS(x[i]);
            }
            for (; k + 1 < depth; k += 2, weight += 2 * stride) {
                if (ahead_step) {
                    __builtin_prefetch(ahead, 0, 2);
                    __builtin_prefetch(ahead + ahead_step, 0, 2);
                    ahead += 2 * ahead_step;
                }
                NAME(add_squares)(sums, x, weight, stride, k, m, nv, false);
            }
            if (k < depth) {
                NAME(add_squares)(sums, x, weight, stride, k, m, nv, true);
                weight += stride;
                ahead += ahead_step;
            }
            TILE_HOLD_ADDRESS(call);
        }
        TILE_UNROLL
        for (int i = 0; i < m; i++) {
            TILE_UNROLL
            for (int j = 0; j < nv; j++) {
                NAME(Halfs) low = (NAME(Halfs))sums[i / 2][2 * j], high = (NAME(Halfs))sums[i / 2][2 * j + 1];
                acc[i][j] = (V)(NAME(Halfs)){low[i % 2], high[i % 2]};
            }
        }
        NAME(finish)(call, NULL, call->results + tile * m, call->column, acc, m, nv, last);
    } while (++tile < call->tiles);
}
