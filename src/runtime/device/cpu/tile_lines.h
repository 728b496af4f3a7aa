/* SPDX-License-Identifier: Apache-2.0 */
/* Included by tile_type.h once an element type: depthwise convolutions along a line of positions (tile.h, LinesCall).
 *
 * Sums of up to LINE_TILE positions stay in registers. Where positions are one or two taps apart, a row of the kernel
 * does, too, and each column of the input is read once and met by all taps that reach it: of a 3x3 kernel, 13 loads for
 * 24 products. Columns in the padding are left out. An element's sum is taken in the order of the taps, wherever in a
 * tile its position falls. */

/* The last vector of a line's elements, as many as the panel has. */
typedef struct NAME(LineTail) {
    int lanes;
#if VECTOR_BYTES == 64
    uint32_t mask;
#endif
} NAME(LineTail);
#define TAIL NAME(LineTail)

TILE_INLINE V NAME(load_line)(const char *from, int j, const int nv, const bool whole, const TAIL *tail) {
    const T *at = (const T *)from + j * TYPE_LANES;
    if (j < nv - 1 || whole) return *(const LOOSE *)at;
#if VECTOR_BYTES == 64
    if (sizeof(T) == 4) return (V)_mm512_maskz_loadu_epi32((__mmask16)tail->mask, at);
    return (V)_mm512_maskz_loadu_epi64((__mmask8)tail->mask, at);
#else
    return NAME(load_part)(at, tail->lanes);
#endif
}

/* Which of up to 32 places, `step` apart, are in [0, limit). */
TILE_INLINE uint32_t NAME(inside)(int64_t first, int64_t step, int64_t limit, const int count) {
    if (first >= 0 && first + (count - 1) * step < limit) return ~0u;
    uint32_t bits = 0;
    for (int i = 0; i < count; i++, first += step) bits |= (uint32_t)(first >= 0 && first < limit) << i;
    return bits;
}

/* Taps are `taps` neighbours, positions `stride` of them apart. */
TILE_INLINE void NAME(shared_columns)(const LinesCall *call, int64_t first, V acc[TILE_MAX_ROWS][TILE_MAX_VECTORS],
                                      const int m, const int nv, const bool whole, const TAIL *tail, const int taps,
                                      const int stride) {
    const int columns = (m - 1) * stride + taps;
    const uint32_t inside = NAME(inside)(first, call->tap_step, call->limit, columns);
    const int64_t step = call->tap_step * (int64_t)sizeof(T), tap_weight = call->ends.weight_stride;
    const LineRow *row = call->rows, *const end = row + call->row_count;
    first = (first + call->ends.column) * (int64_t)sizeof(T);
    for (; row < end; row++) {
        uintptr_t x = (uintptr_t)row->x + (uintptr_t)first;
        const T *w = (const T *)call->ends.weight + row->tap * tap_weight;
        V tap[LINE_TAPS][LINE_VECTORS];
        TILE_UNROLL
        for (int t = 0; t < taps; t++) {
            TILE_UNROLL
            for (int j = 0; j < nv; j++) tap[t][j] = *(const LOOSE *)(w + t * tap_weight + j * TYPE_LANES);
        }
        TILE_UNROLL_COLUMNS
        for (int c = 0; c < columns; c++, x += (uintptr_t)step) {
            if (!(inside >> c & 1)) continue;
            V column[LINE_VECTORS];
            TILE_UNROLL
            for (int j = 0; j < nv; j++) column[j] = NAME(load_line)((const char *)x, j, nv, whole, tail);
            TILE_UNROLL
            for (int t = 0; t < taps; t++) {
                if (t > c || (c - t) % stride || (c - t) / stride >= m) continue;
                TILE_UNROLL
                for (int j = 0; j < nv; j++) acc[(c - t) / stride][j] += column[j] * tap[t][j];
            }
        }
    }
}

TILE_INLINE void NAME(any_columns)(const LinesCall *call, int64_t first, V acc[TILE_MAX_ROWS][TILE_MAX_VECTORS],
                                   const int m, const int nv, const bool whole, const TAIL *tail) {
    const int64_t step = call->position_step * (int64_t)sizeof(T);
    for (int r = 0; r < call->row_count; r++) {
        const T *w = (const T *)call->ends.weight + call->rows[r].tap * call->ends.weight_stride;
        for (int64_t t = 0; t < call->ends.taps; t++, w += call->ends.weight_stride) {
            int64_t at = first + t * call->tap_step;
            uint32_t inside = NAME(inside)(at, call->position_step, call->limit, m);
            uintptr_t x = (uintptr_t)call->rows[r].x + (uintptr_t)((at + call->ends.column) * (int64_t)sizeof(T));
            V tap[LINE_VECTORS];
            TILE_UNROLL
            for (int j = 0; j < nv; j++) tap[j] = *(const LOOSE *)(w + j * TYPE_LANES);
            TILE_UNROLL
            for (int i = 0; i < m; i++, x += (uintptr_t)step) {
                if (!(inside >> i & 1)) continue;
                TILE_UNROLL
                for (int j = 0; j < nv; j++) acc[i][j] += NAME(load_line)((const char *)x, j, nv, whole, tail) * tap[j];
            }
        }
    }
}

TILE_INLINE void NAME(line_sums)(const LinesCall *call, int64_t first, V acc[TILE_MAX_ROWS][TILE_MAX_VECTORS],
                                 const int m, const int nv, const bool whole, const TAIL *tail, const int taps,
                                 const int stride) {
    if (taps)
        NAME(shared_columns)(call, first, acc, m, nv, whole, tail, taps, stride);
    else
        NAME(any_columns)(call, first, acc, m, nv, whole, tail);
}

TILE_INLINE void NAME(line_tile)(const LinesCall *call, int64_t position, const int m, const int nv, const int taps,
                                 const int stride) {
    V acc[TILE_MAX_ROWS][TILE_MAX_VECTORS];
    TAIL tail = {.lanes = call->ends.columns - (nv - 1) * TYPE_LANES};
    int64_t first = call->first + position * call->position_step;
    TileCall ends = call->ends;
    ends.results += position;
    NAME(start)(&ends, acc, m, nv, tail.lanes);
#if VECTOR_BYTES == 64
    tail.mask = (uint32_t)((1u << tail.lanes) - 1);
    NAME(line_sums)(call, first, acc, m, nv, false, &tail, taps, stride);
#else
    if (tail.lanes == TYPE_LANES)
        NAME(line_sums)(call, first, acc, m, nv, true, &tail, taps, stride);
    else
        NAME(line_sums)(call, first, acc, m, nv, false, &tail, taps, stride);
#endif
    NAME(finish)(&ends, acc, m, nv, tail.lanes);
}

/* The line in tiles of one height, but for the last. */
TILE_INLINE void NAME(line)(const LinesCall *call, const int nv, const int taps, const int stride) {
    int64_t tiles = (call->count + LINE_TILE - 1) / LINE_TILE, height = tiles ? (call->count + tiles - 1) / tiles : 1;
    for (int64_t i = 0; i < call->count; i += height) {
        switch (call->count - i < height ? call->count - i : height) {
        case 1: NAME(line_tile)(call, i, 1, nv, taps, stride); break;
        case 2: NAME(line_tile)(call, i, 2, nv, taps, stride); break;
        case 3: NAME(line_tile)(call, i, 3, nv, taps, stride); break;
        case 4: NAME(line_tile)(call, i, 4, nv, taps, stride); break;
        case 5: NAME(line_tile)(call, i, 5, nv, taps, stride); break;
        case 6: NAME(line_tile)(call, i, 6, nv, taps, stride); break;
        case 7: NAME(line_tile)(call, i, 7, nv, taps, stride); break;
        default: NAME(line_tile)(call, i, 8, nv, taps, stride); break;
        }
    }
}

#define LINE(name, nv, taps, stride)                                                                                   \
    static void NAME(line_##name##_##nv)(const LinesCall *call) { NAME(line)(call, nv, taps, stride); }
LINE(any, 1, 0, 0)
#if IS_F32
LINE(3x1, 1, 3, 1)
LINE(3x2, 1, 3, 2)
LINE(5x1, 1, 5, 1)
LINE(5x2, 1, 5, 2)
#if REGISTERS == 32
LINE(any, 2, 0, 0)
LINE(3x1, 2, 3, 1)
LINE(3x2, 2, 3, 2)
LINE(5x1, 2, 5, 1)
LINE(5x2, 2, 5, 2)
#endif
#endif
#undef LINE
#undef TAIL
