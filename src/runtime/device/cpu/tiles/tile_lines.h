/* SPDX-License-Identifier: Apache-2.0 */
/* Included by tile_type.h once an element type: depthwise convolutions along a line of positions (tile.h, LinesCall).
 *
 * Sums of up to LINE_TILE positions stay in registers. Where positions are one or two taps apart, a row of the kernel
 * does, too, and each column of the input is read once and met by all taps that reach it: of a 3x3 kernel, 13 loads for
 * 24 products. Longer rows, of positions one tap apart, are met three taps at a time. Columns in the padding are left
 * out. Of groups of channels each is met in turn, spread over its group's lanes. An element's sum is taken in
 * the order of the taps, wherever in a tile its position falls. */

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

/* rest: of fewer positions than a whole tile has, or of a partial vector where vectors have no masks. */
TILE_INLINE V NAME(load_line)(uintptr_t from, int j, const int nv, const bool rest, const COLUMNS *c) {
    const T *at = (const T *)from + j * TYPE_LANES;
#if VECTOR_BYTES == 64
    (void)rest;
    if (j < nv - 1) return *(const LOOSE *)at;
    if (sizeof(T) == 4) return (V)_mm512_maskz_loadu_epi32((__mmask16)c->mask, at);
    return (V)_mm512_maskz_loadu_epi64((__mmask8)c->mask, at);
#elif VECTOR_BYTES == 32
    if (!rest || j < nv - 1) return *(const LOOSE *)at;
    if (sizeof(T) == 4) return (V)_mm256_maskload_epi32((const void *)at, (__m256i)c->mask);
    return (V)_mm256_maskload_epi64((const void *)at, (__m256i)c->mask);
#else
    if (rest) return NAME(load)(at, j, nv, c->last);
    return *(const LOOSE *)at;
#endif
}

/* Steps that lead over `distance`: mostly none or one, and a division takes as long as a few columns. */
TILE_INLINE int64_t NAME(steps_over)(int64_t distance, int64_t step) {
    return distance <= 0 ? 0 : distance <= step ? 1 : ceil_div(distance, step);
}

/* Which of up to 32 places, `step` apart, are in [0, limit). */
TILE_INLINE uint32_t NAME(inside)(int64_t first, int64_t step, int64_t limit, const int count) {
    const int64_t before = NAME(steps_over)(-first, step),
                  behind = NAME(steps_over)(first + (count - 1) * step - (limit - 1), step);
    if (before + behind >= count) return 0;
    return (~0u << before) & (~0u >> (32 - count + behind));
}

/* Taps of a row that are met together, and the columns of the input that they meet. */
typedef struct NAME(Part) {
    uintptr_t x;           /* the first column */
    int64_t step;          /* bytes from a column to the next */
    const T *weight;       /* of the first tap */
    int64_t weight_stride; /* elements between taps */
    uint32_t inside;       /* columns that are not in the padding */
} NAME(Part);
#define PART NAME(Part)

#if IS_F32
#if VECTOR_BYTES == 64
#define LINE_SPREAD(x, lanes) ((V)_mm512_permute_ps((__m512)(x), lanes))
#elif VECTOR_BYTES == 32
#define LINE_SPREAD(x, lanes) ((V)_mm256_permute_ps((__m256)(x), lanes))
#else
#define LINE_SPREAD(x, lanes) __builtin_shufflevector(x, x, (lanes)&3, (lanes) >> 2 & 3, (lanes) >> 4 & 3, (lanes) >> 6)
#endif
#endif

/* Lane `lane` of each `width` lanes in all of them. */
TILE_INLINE V NAME(spread)(V x, const int width, const int lane) {
#if IS_F32
    if (width == 2) return lane ? LINE_SPREAD(x, 0xF5) : LINE_SPREAD(x, 0xA0);
    if (width == 4 && lane < 2) return lane ? LINE_SPREAD(x, 0x55) : LINE_SPREAD(x, 0x00);
    if (width == 4) return lane == 2 ? LINE_SPREAD(x, 0xAA) : LINE_SPREAD(x, 0xFF);
#endif
    (void)width, (void)lane;
    return x;
}
#undef LINE_SPREAD

/* Positions are `stride` columns apart; channel `lane` of groups of `width`, or, where such a group is a vector, the channel at part.x. */
TILE_INLINE void NAME(meet_taps)(PART part, const COLUMNS *c, V acc[TILE_MAX_ROWS][TILE_MAX_VECTORS], const int m,
                                 const int nv, const Padded padded, const bool rest, const int taps, const int stride,
                                 const int width, const int lane) {
    if (padded) TILE_HOLD_ADDRESS(part.inside); /* else each bit waits in memory by itself */
    V tap[LINE_TAPS][LINE_VECTORS];
    TILE_UNROLL
    for (int t = 0; t < taps; t++) {
        TILE_UNROLL
        for (int j = 0; j < nv; j++)
            tap[t][j] = *(const LOOSE *)(part.weight + t * part.weight_stride + j * TYPE_LANES);
    }
    TILE_UNROLL_COLUMNS
    for (int q = 0; q < (m - 1) * stride + taps; q++, part.x += (uintptr_t)part.step) {
        if (may_be_padding(padded, q, (m - 1) * stride + taps, taps) && !(part.inside >> q & 1)) continue;
        V column[LINE_VECTORS];
        TILE_UNROLL
        for (int j = 0; j < nv; j++) {
            column[j] = width > LINE_SPREAD_LANES ? *(const T *)part.x - (V){0}
                                                  : NAME(spread)(NAME(load_line)(part.x, j, nv, rest, c), width, lane);
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

/* Asks for what the next tile reads of the one line that the result's line before did not meet: of lines that are far apart, each
 * in pieces of a vector or two, machines guess too little. */
TILE_INLINE void NAME(ask_ahead)(uintptr_t x, int64_t step, const int columns) {
    x += (uintptr_t)(columns * step);
    TILE_UNROLL
    for (int q = 0; q < columns; q++, x += (uintptr_t)step) __builtin_prefetch((const void *)x);
}

/* Taps are `taps` neighbours, positions `stride` of them apart. */
TILE_INLINE void NAME(shared_columns)(const LinesCall *call, int64_t first, const COLUMNS *c,
                                      V acc[TILE_MAX_ROWS][TILE_MAX_VECTORS], const int m, const int nv,
                                      const Padded padded, const bool rest, const int taps, const int stride) {
    PART part = {.step = call->tap_step * (int64_t)sizeof(T), .weight_stride = call->ends.weight_stride};
    if (padded) part.inside = NAME(inside)(first, call->tap_step, call->limit, (m - 1) * stride + taps);
    const LineRow *row = call->rows, *const end = row + call->row_count;
    first = (first + c->column) * (int64_t)sizeof(T);
    if (!padded && row < end) NAME(ask_ahead)((uintptr_t)end[-1].x + (uintptr_t)first, part.step, m * stride);
    for (; row < end; row++) {
        part.x = (uintptr_t)row->x + (uintptr_t)first;
        part.weight = (const T *)call->ends.weight + row->tap * part.weight_stride + c->weight;
        NAME(meet_taps)(part, c, acc, m, nv, padded, rest, taps, stride, 1, 0);
    }
}

/* `taps` taps of the row from its tap t on, where positions are one column apart, by each channel of groups of `width`. The tap
 * behind them. */
TILE_INLINE int64_t NAME(part_of_row)(const LinesCall *call, const LineRow *row, int64_t t, int64_t first,
                                      const COLUMNS *c, V acc[TILE_MAX_ROWS][TILE_MAX_VECTORS], const int m,
                                      const int nv, const Padded padded, const bool rest, const int taps,
                                      const int width) {
    const int64_t row_elements = call->ends.weight_stride; /* of a channel's weights at a tap */
    PART part = {.step = call->position_step * (int64_t)sizeof(T), .weight_stride = width * row_elements};
    first += t * call->tap_step;
    if (padded) part.inside = NAME(inside)(first, call->position_step, call->limit, m - 1 + taps);
    part.x = (uintptr_t)row->x + (uintptr_t)((first + c->column) * (int64_t)sizeof(T));
    part.weight = (const T *)call->ends.weight + (row->tap + t) * part.weight_stride + c->weight;
    if (width > LINE_SPREAD_LANES) {
        TILE_NO_UNROLL
        for (int lane = 0; lane < width; lane++, part.weight += row_elements, part.x += sizeof(T))
            NAME(meet_taps)(part, c, acc, m, nv, padded, rest, taps, 1, width, 0);
        return t + taps;
    }
    TILE_UNROLL
    for (int lane = 0; lane < width; lane++, part.weight += row_elements)
        NAME(meet_taps)(part, c, acc, m, nv, padded, rest, taps, 1, width, lane);
    return t + taps;
}

/* Any number of taps: where positions are one tap apart, three taps of f32 share columns. */
TILE_INLINE void NAME(any_columns)(const LinesCall *call, int64_t first, const COLUMNS *c,
                                   V acc[TILE_MAX_ROWS][TILE_MAX_VECTORS], const int m, const int nv,
                                   const Padded padded, const bool rest, const int width) {
    const int64_t taps = call->ends.taps, threes = IS_F32 && call->position_step == call->tap_step ? taps / 3 * 3 : 0;
    for (int r = 0; r < call->row_count; r++) {
        int64_t t = 0;
        while (t < threes) t = NAME(part_of_row)(call, &call->rows[r], t, first, c, acc, m, nv, padded, rest, 3, width);
        while (t < taps) t = NAME(part_of_row)(call, &call->rows[r], t, first, c, acc, m, nv, padded, rest, 1, width);
    }
}

TILE_INLINE void NAME(finish_rest_of)(const LinesCall *call, void *const *results, const COLUMNS *c,
                                      V sums[LINE_LOW][LINE_VECTORS], int m, int nv, const NAME(Limits) * limits,
                                      const BoundKind kind) {
    const TileCall *ends = &call->ends;
    (void)kind, (void)limits;
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
            x = NAME(bounded)(x, limits, kind);
#endif
            NAME(store)((T *)results[i] + column, 0, 1, last, x);
        }
    }
}

/* As `finish`, whatever the height: all tiles of fewer positions share this code, which else is most of theirs. */
static __attribute__((noinline)) void NAME(finish_rest)(const LinesCall *call, void *const *results, const COLUMNS *c,
                                                        V sums[LINE_LOW][LINE_VECTORS], int m, int nv,
                                                        const NAME(Limits) * limits) {
    switch (IS_FLOAT ? bound_kind(&call->ends.bounds) : BOUND_NOT) {
    case BOUND_NOT: NAME(finish_rest_of)(call, results, c, sums, m, nv, limits, BOUND_NOT); break;
#if IS_F32
    case BOUND_GATE: NAME(finish_rest_of)(call, results, c, sums, m, nv, limits, BOUND_GATE); break;
    case BOUND_LONG_GATE: NAME(finish_rest_of)(call, results, c, sums, m, nv, limits, BOUND_LONG_GATE); break;
#endif
    default: NAME(finish_rest_of)(call, results, c, sums, m, nv, limits, BOUND_CLAMP); break;
    }
}

TILE_INLINE void NAME(add_columns)(const LinesCall *call, int64_t first, const COLUMNS *c,
                                   V acc[TILE_MAX_ROWS][TILE_MAX_VECTORS], const int m, const int nv,
                                   const Padded padded, const bool rest, const int taps, const int stride) {
    if (taps)
        NAME(shared_columns)(call, first, c, acc, m, nv, padded, rest, taps, stride);
    else
        NAME(any_columns)(call, first, c, acc, m, nv, padded, rest, stride);
}

/* m positions from `position` on. Of tiles of fewer than LINE_TILE one copy serves those in the middle of a line, too: that tests
 * a few columns more, but most such tiles are at an end. */
TILE_INLINE void NAME(line_tile)(const LinesCall *call, const NAME(Limits) * limits, int64_t position, const COLUMNS *c,
                                 const int m, const int nv, const bool rest, const int taps, const int stride) {
    V acc[TILE_MAX_ROWS][TILE_MAX_VECTORS];
    const int64_t first = call->first + position * call->position_step;
    void *const *results = call->ends.results + position;
    NAME(clear)(acc, m, nv);
    const int64_t reach = (call->ends.taps - 1) * call->tap_step + (m - 1) * call->position_step;
    if (rest || m < LINE_TILE || first < 0 || first + reach >= call->limit)
        NAME(add_columns)(call, first, c, acc, m, nv, rest || !taps ? PADDED : PADDED_ENDS, rest, taps, stride);
    else
        NAME(add_columns)(call, first, c, acc, m, nv, NOT_PADDED, rest, taps, stride);
    if (!rest) {
        NAME(finish)(&call->ends, limits, results, c->column, acc, m, nv, VECTOR_BYTES == 64 ? c->last : TYPE_LANES);
        return;
    }
    V sums[LINE_LOW][LINE_VECTORS];
    TILE_UNROLL
    for (int i = 0; i < m; i++) {
        TILE_UNROLL
        for (int j = 0; j < nv; j++) sums[i][j] = acc[i][j];
    }
    NAME(finish_rest)(call, results, c, sums, m, nv, limits);
}

/* All positions, LINE_LOW at a time: code of which there is the less, for few lines come this way. */
TILE_INLINE void NAME(line_rest)(const LinesCall *call, const NAME(Limits) * limits, const COLUMNS *c, const int nv,
                                 const int taps, const int stride) {
    for (int64_t i = 0; i < call->count; i += LINE_LOW) {
        switch (call->count - i) {
        case 1: NAME(line_tile)(call, limits, i, c, 1, nv, true, taps, stride); break;
        case 2: NAME(line_tile)(call, limits, i, c, 2, nv, true, taps, stride); break;
        case 3: NAME(line_tile)(call, limits, i, c, 3, nv, true, taps, stride); break;
        default: NAME(line_tile)(call, limits, i, c, LINE_LOW, nv, true, taps, stride); break;
        }
    }
}

/* Whether more columns are in the padding, at one end of the line, than PADDED_ENDS looks at. */
TILE_INLINE bool NAME(pads_more)(const LinesCall *call, const int taps) {
    const int64_t most = (taps - 1) * call->tap_step,
                  end = call->first + (call->count - 1) * call->position_step + taps * call->tap_step;
    return call->first < -most || end - most > call->limit;
}

/* What a line has beside tiles of LINE_TILE positions, as code apart from the loop over these. */
typedef struct NAME(Shorter) {
    void (*tile)(const LinesCall *call, const NAME(Limits) * limits, int64_t position, int height, const COLUMNS *c);
    void (*rest)(const LinesCall *call, const NAME(Limits) * limits, const COLUMNS *c); /* the whole line */
} NAME(Shorter);

/* The height of the next tile of a line that has `left` positions yet, LINE_LOW or more: what is left then is none or as many. */
TILE_INLINE int64_t NAME(next_height)(int64_t left) {
    if (left <= LINE_TILE) return left;
    return left < LINE_TILE + LINE_LOW ? (left + 1) / 2 : LINE_TILE;
}

/* passes: over each tile, one behind the other, so that the second meets in the first-level cache what the first has read of the input's
 * lines of 64 bytes. */
TILE_INLINE void NAME(line)(const LinesCall *call, const NAME(Shorter) shorter, const int passes, const int nv,
                            const int taps, const int stride) {
    /* Without masks a partial vector has no whole tiles; it is the last. */
    const int masked = VECTOR_BYTES != 64 && call->ends.columns % TYPE_LANES ? passes - 1 : passes,
              whole = call->count < LINE_LOW || (taps && NAME(pads_more)(call, taps)) ? 0 : masked;
    COLUMNS c[LINE_VECTORS];
    NAME(Limits) kept;
    const NAME(Limits) *limits = &kept;
    NAME(limits)(&kept, &call->ends.bounds);
    for (int p = 0; p < passes; p++) c[p] = NAME(columns_of)(call, p * nv, nv);
    for (int64_t i = 0, height; whole && i < call->count; i += height) {
        height = NAME(next_height)(call->count - i);
        TILE_NO_UNROLL
        for (int p = 0; p < whole; p++) {
            if (height == LINE_TILE)
                NAME(line_tile)(call, limits, i, &c[p], LINE_TILE, nv, false, taps, stride);
            else
                shorter.tile(call, limits, i, (int)height, &c[p]);
        }
    }
    TILE_NO_UNROLL
    for (int p = whole; p < passes; p++) shorter.rest(call, limits, &c[p]);
}

TILE_INLINE void NAME(lower_tile)(const LinesCall *call, const NAME(Limits) * limits, int64_t position, int height,
                                  const COLUMNS *c, const int nv, const int taps, const int stride) {
    switch (height) {
    case LINE_LOW: NAME(line_tile)(call, limits, position, c, LINE_LOW, nv, false, taps, stride); break;
    case 5: NAME(line_tile)(call, limits, position, c, 5, nv, false, taps, stride); break;
    case 6: NAME(line_tile)(call, limits, position, c, 6, nv, false, taps, stride); break;
    default: NAME(line_tile)(call, limits, position, c, 7, nv, false, taps, stride); break;
    }
}

#define LINE_SHORTER(name, nv, taps, stride)                                                                           \
    static __attribute__((noinline)) void NAME(lower_##name##_##nv)(                                                   \
        const LinesCall *call, const NAME(Limits) * limits, int64_t position, int height, const COLUMNS *c) {          \
        NAME(lower_tile)(call, limits, position, height, c, nv, taps, stride);                                         \
    }                                                                                                                  \
    static __attribute__((noinline)) void NAME(rest_##name##_##nv)(const LinesCall *call, const NAME(Limits) * limits, \
                                                                   const COLUMNS *c) {                                 \
        NAME(line_rest)(call, limits, c, nv, taps, stride);                                                            \
    }
#define LINE(name, vectors, passes, nv, taps, stride)                                                                  \
    static void NAME(line_##name##_##vectors)(const LinesCall *call) {                                                 \
        NAME(line)                                                                                                     \
        (call, (NAME(Shorter)){NAME(lower_##name##_##nv), NAME(rest_##name##_##nv)}, passes, nv, taps, stride);        \
    }
#define LINE_ONE(name, taps, stride) LINE_SHORTER(name, 1, taps, stride) LINE(name, 1, 1, 1, taps, stride)
/* Two vectors: in registers where there are enough of them. */
#if REGISTERS == 32
#define LINE_PAIR(name, taps, stride) LINE_SHORTER(name, 2, taps, stride) LINE(name, 2, 1, 2, taps, stride)
#else
#define LINE_PAIR(name, taps, stride) LINE(name, 2, 2, 1, taps, stride)
#endif
/* taps 0: any; then stride is how many channels a group has. */
LINE_ONE(any, 0, 1)
#if IS_F32
LINE_ONE(3x1, 3, 1)
LINE_ONE(3x2, 3, 2)
LINE_ONE(5x1, 5, 1)
LINE_ONE(5x2, 5, 2)
LINE_ONE(7x1, 7, 1)
LINE_ONE(pairs, 0, 2)
LINE_ONE(fours, 0, 4)
LINE_PAIR(any, 0, 1)
LINE_PAIR(3x1, 3, 1)
LINE_PAIR(3x2, 3, 2)
LINE_PAIR(5x1, 5, 1)
LINE_PAIR(5x2, 5, 2)
LINE_PAIR(7x1, 7, 1)
LINE_PAIR(pairs, 0, 2)
LINE_PAIR(fours, 0, 4)
#if VECTOR_BYTES == 32
LINE_ONE(eights, 0, 8)
LINE_PAIR(eights, 0, 8)
#endif
#endif
#undef LINE_SHORTER
#undef LINE_ONE
#undef LINE_PAIR
#undef LINE
#undef COLUMNS
#undef PART
