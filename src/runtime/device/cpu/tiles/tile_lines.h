/* SPDX-License-Identifier: Apache-2.0 */
/* Included by tile_type.h once an element type: depthwise convolutions along a line of positions (tile.h, LinesCall).
 *
 * Sums of up to LINE_TILE positions stay in registers. Where positions are one or two taps apart, a row of the kernel
 * does, too, and each column of the input is read once and met by all taps that reach it: of a 3x3 kernel, 13 loads for
 * 24 products. Columns in the padding are left out. An element's sum is taken in the order of the taps, wherever in a
 * tile its position falls. */

/* Vectors of a panel's columns at one place of the input; the last may be partial. */
typedef struct NAME(Columns) {
    int64_t column; /* of the result, the input and the bias */
    int64_t weight; /* elements from ends.weight */
    int last;       /* lanes of the last vector */
#if VECTOR_BYTES == 64
    uint32_t mask; /* of them */
#elif VECTOR_BYTES == 32
    VI mask; /* all bits of each of them */
#endif
} NAME(Columns);
#define COLUMNS NAME(Columns)

TILE_INLINE COLUMNS NAME(columns_of)(const LinesCall *call, int from, const int nv) {
    int left = call->ends.columns - from * TYPE_LANES;
    COLUMNS c = {.column = call->ends.column + from * TYPE_LANES, .weight = from * TYPE_LANES};
    c.last = left < nv * TYPE_LANES ? left - (nv - 1) * TYPE_LANES : TYPE_LANES;
#if VECTOR_BYTES == 64
    c.mask = (uint32_t)((1u << c.last) - 1);
#elif VECTOR_BYTES == 32
    for (int i = 0; i < LANES; i++) c.mask[i] = -(i * 4 < c.last * (int)sizeof(T));
#endif
    return c;
}

/* edge: the last vector may be partial where vectors have no masks. */
TILE_INLINE V NAME(load_line)(uintptr_t from, int j, const int nv, const bool edge, const COLUMNS *c) {
    const T *at = (const T *)from + j * TYPE_LANES;
#if VECTOR_BYTES == 64
    (void)edge;
    if (j < nv - 1) return *(const LOOSE *)at;
    if (sizeof(T) == 4) return (V)_mm512_maskz_loadu_epi32((__mmask16)c->mask, at);
    return (V)_mm512_maskz_loadu_epi64((__mmask8)c->mask, at);
#elif VECTOR_BYTES == 32
    if (!edge || j < nv - 1) return *(const LOOSE *)at;
    if (sizeof(T) == 4) return (V)_mm256_maskload_epi32((const void *)at, (__m256i)c->mask);
    return (V)_mm256_maskload_epi64((const void *)at, (__m256i)c->mask);
#else
    if (edge) return NAME(load)(at, j, nv, c->last);
    return *(const LOOSE *)at;
#endif
}

/* Which of up to 32 places, `step` apart, are in [0, limit). */
TILE_INLINE uint32_t NAME(inside)(int64_t first, int64_t step, int64_t limit, const int count) {
    uint32_t bits = 0;
    if (first >= 0 && first + (count - 1) * step < limit) return ~0u;
    for (int i = 0; i < count; i++, first += step) bits |= (uint32_t)(first >= 0 && first < limit) << i;
    return bits;
}

/* Taps are `taps` neighbours, positions `stride` of them apart. */
TILE_INLINE void NAME(shared_columns)(const LinesCall *call, int64_t first, const COLUMNS *c,
                                      V acc[TILE_MAX_ROWS][TILE_MAX_VECTORS], const int m, const int nv,
                                      const bool edge, const int taps, const int stride) {
    const int columns = (m - 1) * stride + taps;
    const uint32_t inside = edge ? NAME(inside)(first, call->tap_step, call->limit, columns) : ~0u;
    const int64_t step = call->tap_step * (int64_t)sizeof(T), tap_weight = call->ends.weight_stride,
                  ahead = LINE_TILE * call->position_step * (int64_t)sizeof(T);
    const LineRow *row = call->rows, *const end = row + call->row_count;
    first = (first + c->column) * (int64_t)sizeof(T);
    for (; row < end; row++) {
        uintptr_t x = (uintptr_t)row->x + (uintptr_t)first;
        const T *w = (const T *)call->ends.weight + row->tap * tap_weight + c->weight;
        V tap[LINE_TAPS][LINE_VECTORS];
        TILE_UNROLL
        for (int t = 0; t < taps; t++) {
            TILE_UNROLL
            for (int j = 0; j < nv; j++) tap[t][j] = *(const LOOSE *)(w + t * tap_weight + j * TYPE_LANES);
        }
        TILE_UNROLL_COLUMNS
        for (int q = 0; q < columns; q++, x += (uintptr_t)step) {
            if (!(inside >> q & 1)) continue;
            V column[LINE_VECTORS];
            /* The next tile's: of lines that are far apart, each in pieces of a vector or two, machines guess too little. */
            if (!edge) __builtin_prefetch((const void *)(x + (uintptr_t)ahead));
            TILE_UNROLL
            for (int j = 0; j < nv; j++) {
                column[j] = NAME(load_line)(x, j, nv, edge, c);
                TILE_HOLD(column[j]); /* else each product would load it again */
            }
            TILE_UNROLL
            for (int t = 0; t < taps; t++) {
                if (t > q || (q - t) % stride || (q - t) / stride >= m) continue;
                TILE_UNROLL
                for (int j = 0; j < nv; j++) acc[(q - t) / stride][j] += column[j] * tap[t][j];
            }
        }
    }
}

TILE_INLINE void NAME(any_columns)(const LinesCall *call, int64_t first, const COLUMNS *c,
                                   V acc[TILE_MAX_ROWS][TILE_MAX_VECTORS], const int m, const int nv, const bool edge) {
    const int64_t step = call->position_step * (int64_t)sizeof(T), tap_weight = call->ends.weight_stride;
    for (int r = 0; r < call->row_count; r++) {
        const T *w = (const T *)call->ends.weight + call->rows[r].tap * tap_weight + c->weight;
        for (int64_t t = 0; t < call->ends.taps; t++, w += tap_weight) {
            int64_t at = first + t * call->tap_step;
            const uint32_t inside = edge ? NAME(inside)(at, call->position_step, call->limit, m) : ~0u;
            uintptr_t x = (uintptr_t)call->rows[r].x + (uintptr_t)((at + c->column) * (int64_t)sizeof(T));
            V tap[LINE_VECTORS];
            TILE_UNROLL
            for (int j = 0; j < nv; j++) tap[j] = *(const LOOSE *)(w + j * TYPE_LANES);
            TILE_UNROLL
            for (int i = 0; i < m; i++, x += (uintptr_t)step) {
                if (!(inside >> i & 1)) continue;
                TILE_UNROLL
                for (int j = 0; j < nv; j++) acc[i][j] += NAME(load_line)(x, j, nv, edge, c) * tap[j];
            }
        }
    }
}

TILE_INLINE void NAME(finish_edge_of)(const LinesCall *call, void *const *results, const COLUMNS *c,
                                      V sums[LINE_TILE][LINE_VECTORS], int m, int nv, const BoundKind kind) {
    const TileCall *ends = &call->ends;
#if IS_FLOAT
    const NAME(Limits) bounds = NAME(limits)(&ends->bounds);
#endif
    (void)kind;
    TILE_NO_UNROLL
    for (int j = 0; j < nv; j++) {
        const int64_t column = c->column + j * TYPE_LANES;
        const int last = j < nv - 1 ? TYPE_LANES : c->last;
        V bias = {0};
        if (ends->bias) bias = *(const LOOSE *)((const T *)ends->bias + column);
        TILE_NO_UNROLL
        for (int i = 0; i < m; i++) {
            V x = sums[i][j];
            if (ends->bias) x += bias;
            if (ends->has_addend)
                x += NAME(load)((const T *)((intptr_t)results[i] + ends->addend_shift) + column, 0, 1, last);
#if IS_FLOAT
            x = NAME(bounded)(x, &bounds, kind);
#endif
            NAME(store)((T *)results[i] + column, 0, 1, last, x);
        }
    }
}

/* The end of an edge's sums, whatever its height: all tiles of edges share this code, which else is most of theirs. As `finish`. */
static __attribute__((noinline)) void NAME(finish_edge)(const LinesCall *call, void *const *results, const COLUMNS *c,
                                                        V sums[LINE_TILE][LINE_VECTORS], int m, int nv) {
    switch (IS_FLOAT ? bound_kind(&call->ends.bounds) : BOUND_NOT) {
    case BOUND_NOT: NAME(finish_edge_of)(call, results, c, sums, m, nv, BOUND_NOT); break;
#if IS_F32
    case BOUND_GATE: NAME(finish_edge_of)(call, results, c, sums, m, nv, BOUND_GATE); break;
    case BOUND_LONG_GATE: NAME(finish_edge_of)(call, results, c, sums, m, nv, BOUND_LONG_GATE); break;
#endif
    default: NAME(finish_edge_of)(call, results, c, sums, m, nv, BOUND_CLAMP); break;
    }
}

/* m positions from `position` on. edge: taps may meet the padding. */
TILE_INLINE void NAME(line_tile)(const LinesCall *call, int64_t position, const COLUMNS *c, const int m, const int nv,
                                 const bool edge, const int taps, const int stride) {
    V acc[TILE_MAX_ROWS][TILE_MAX_VECTORS];
    const int64_t first = call->first + position * call->position_step;
    void *const *results = call->ends.results + position;
    NAME(clear)(acc, m, nv);
    if (taps)
        NAME(shared_columns)(call, first, c, acc, m, nv, edge, taps, stride);
    else
        NAME(any_columns)(call, first, c, acc, m, nv, edge);
    if (!edge) {
        NAME(finish)(&call->ends, results, c->column, acc, m, nv, VECTOR_BYTES == 64 ? c->last : TYPE_LANES);
        return;
    }
    V sums[LINE_TILE][LINE_VECTORS];
    TILE_UNROLL
    for (int i = 0; i < m; i++) {
        TILE_UNROLL
        for (int j = 0; j < nv; j++) sums[i][j] = acc[i][j];
    }
    NAME(finish_edge)(call, results, c, sums, m, nv);
}

/* Positions [from, to) in tiles of one height, but for the last. */
TILE_INLINE void NAME(line_edge)(const LinesCall *call, int64_t from, int64_t to, const COLUMNS *c, const int nv,
                                 const int taps, const int stride) {
    int64_t count = to - from, tiles = (count + LINE_TILE - 1) / LINE_TILE;
    if (count <= 0) return;
    int64_t height = (count + tiles - 1) / tiles;
    for (int64_t i = from; i < to; i += height) {
        switch (to - i < height ? to - i : height) {
        case 1: NAME(line_tile)(call, i, c, 1, nv, true, taps, stride); break;
        case 2: NAME(line_tile)(call, i, c, 2, nv, true, taps, stride); break;
        case 3: NAME(line_tile)(call, i, c, 3, nv, true, taps, stride); break;
        case 4: NAME(line_tile)(call, i, c, 4, nv, true, taps, stride); break;
        case 5: NAME(line_tile)(call, i, c, 5, nv, true, taps, stride); break;
        case 6: NAME(line_tile)(call, i, c, 6, nv, true, taps, stride); break;
        case 7: NAME(line_tile)(call, i, c, 7, nv, true, taps, stride); break;
        default: NAME(line_tile)(call, i, c, 8, nv, true, taps, stride); break;
        }
    }
}

typedef void NAME(Edge)(const LinesCall *call, int64_t from, int64_t to, const COLUMNS *c);

/* Whole tiles where all taps meet the input, what is left on both sides of them by `edge`. A tile of few positions takes
 * as long as one of LINE_TILE, so there are no more tiles in all than positions need: where there is padding, a whole one
 * less on its side. passes: over each tile, one behind the other, so that the second meets in the first-level cache what
 * the first has read of the input's lines of 64 bytes. */
TILE_INLINE void NAME(line)(const LinesCall *call, NAME(Edge) *const edge, const int passes, const int nv,
                            const int taps, const int stride) {
    const int64_t step = call->position_step, reach = call->first + (call->ends.taps - 1) * call->tap_step;
    int64_t low = call->first < 0 ? (-call->first + step - 1) / step : 0,
            high = reach < call->limit ? (call->limit - reach + step - 1) / step : 0;
    if (high > call->count) high = call->count;
    const int64_t needed = (call->count + LINE_TILE - 1) / LINE_TILE - (low > 0) - (high < call->count);
    int64_t tiles = high > low ? (high - low) / LINE_TILE : 0;
    /* Without masks a partial vector has no whole tiles; it is the last. */
    const int whole = VECTOR_BYTES != 64 && call->ends.columns % TYPE_LANES ? passes - 1 : passes;
    if (tiles > needed) tiles = needed;
    if (tiles < 0 || !whole) tiles = 0;
    int64_t around = call->count - tiles * LINE_TILE, before = low == 0 ? 0 : high < call->count ? around / 2 : around;
    if (before > around - (call->count - high)) before = around - (call->count - high);
    if (before < low) before = low;
    if (!tiles) before = call->count;
    COLUMNS c[LINE_VECTORS];
    for (int p = 0; p < passes; p++) c[p] = NAME(columns_of)(call, p * nv, nv);
    for (int64_t i = 0; i < tiles; i++) {
        TILE_NO_UNROLL
        for (int p = 0; p < whole; p++)
            NAME(line_tile)(call, before + i * LINE_TILE, &c[p], LINE_TILE, nv, false, taps, stride);
    }
    const int64_t edges[2][2] = {{0, before}, {before + tiles * LINE_TILE, call->count}};
    TILE_NO_UNROLL
    for (int side = 0; side < 2; side++) {
        TILE_NO_UNROLL
        for (int p = 0; p < whole; p++) edge(call, edges[side][0], edges[side][1], &c[p]);
    }
    if (whole < passes) edge(call, 0, call->count, &c[whole]);
}

#define LINE_EDGE(name, nv, taps, stride)                                                                              \
    static __attribute__((noinline)) void NAME(edge_##name##_##nv)(const LinesCall *call, int64_t from, int64_t to,    \
                                                                   const COLUMNS *c) {                                 \
        NAME(line_edge)(call, from, to, c, nv, taps, stride);                                                          \
    }
#define LINE(name, vectors, passes, nv, taps, stride)                                                                  \
    static void NAME(line_##name##_##vectors)(const LinesCall *call) {                                                 \
        NAME(line)(call, NAME(edge_##name##_##nv), passes, nv, taps, stride);                                          \
    }
#define LINE_ONE(name, taps, stride) LINE_EDGE(name, 1, taps, stride) LINE(name, 1, 1, 1, taps, stride)
/* Two vectors: in registers where there are enough of them. */
#if REGISTERS == 32
#define LINE_PAIR(name, taps, stride) LINE_EDGE(name, 2, taps, stride) LINE(name, 2, 1, 2, taps, stride)
#else
#define LINE_PAIR(name, taps, stride) LINE(name, 2, 2, 1, taps, stride)
#endif
LINE_ONE(any, 0, 0)
#if IS_F32
LINE_ONE(3x1, 3, 1)
LINE_ONE(3x2, 3, 2)
LINE_ONE(5x1, 5, 1)
LINE_ONE(5x2, 5, 2)
LINE_ONE(7x1, 7, 1)
LINE_PAIR(any, 0, 0)
LINE_PAIR(3x1, 3, 1)
LINE_PAIR(3x2, 3, 2)
LINE_PAIR(5x1, 5, 1)
LINE_PAIR(5x2, 5, 2)
LINE_PAIR(7x1, 7, 1)
#endif
#undef LINE_EDGE
#undef LINE_ONE
#undef LINE_PAIR
#undef LINE
#undef COLUMNS
