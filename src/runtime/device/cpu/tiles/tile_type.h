/* SPDX-License-Identifier: Apache-2.0 */
/* Included by tile_isa.h once an element type: the tiles' loops. Wants T, NAME(word), IS_FLOAT, IS_F32 and WIDE (32
 * registers are there: tiles of up to four vectors; else of two). */

typedef T NAME(V) __attribute__((vector_size(VECTOR_BYTES)));
typedef T NAME(Loose) __attribute__((vector_size(VECTOR_BYTES), aligned(sizeof(T)), may_alias));
#ifndef TILE_ADD_PRODUCT
#define TILE_ADD_PRODUCT(sum, x, w) ((sum) + (x) * (w))
#define TILE_SPREAD(x) (*(x) - (V){0}) /* one element of a row in all lanes */
#define TILE_OWN_PRODUCT
#endif
#define V NAME(V)
#define LOOSE NAME(Loose)
#define TYPE_LANES ((int)(VECTOR_BYTES / sizeof(T)))

/* The first `count` lanes alone are touched; the others read as 0. */
#if VECTOR_BYTES == 64
TILE_INLINE V NAME(load_part)(const T *from, int count) {
    if (sizeof(T) == 4) return (V)_mm512_maskz_loadu_epi32((__mmask16)((1u << count) - 1), from);
    return (V)_mm512_maskz_loadu_epi64((__mmask8)((1u << count) - 1), from);
}

TILE_INLINE void NAME(store_part)(T *to, int count, V value) {
    if (sizeof(T) == 4)
        _mm512_mask_storeu_epi32(to, (__mmask16)((1u << count) - 1), (__m512i)value);
    else
        _mm512_mask_storeu_epi64(to, (__mmask8)((1u << count) - 1), (__m512i)value);
}
#else
static __attribute__((noinline)) void NAME(copy_lanes)(T *to, const T *from, int count) {
    for (int i = 0; i < count; i++) to[i] = from[i];
}

TILE_INLINE V NAME(load_part)(const T *from, int count) {
    V part = {0};
    NAME(copy_lanes)((T *)&part, from, count);
    return part;
}

TILE_INLINE void NAME(store_part)(T *to, int count, V value) {
    V part = value;
    NAME(copy_lanes)(to, (const T *)&part, count);
}
#endif

/* Vector j of nv: the last holds `last` lanes. */
TILE_INLINE V NAME(load)(const T *from, int j, const int nv, int last) {
    if (j < nv - 1 || last == TYPE_LANES) return *(const LOOSE *)(from + j * TYPE_LANES);
    return NAME(load_part)(from + j * TYPE_LANES, last);
}

TILE_INLINE void NAME(store)(T *to, int j, const int nv, int last, V value) {
    if (j < nv - 1 || last == TYPE_LANES)
        *(LOOSE *)(to + j * TYPE_LANES) = value;
    else
        NAME(store_part)(to + j * TYPE_LANES, last, value);
}

/* The numbers of bounds in all lanes. */
typedef struct NAME(Limits) {
    V low, high, scale, shift, inverse, rest, factor, addend;
} NAME(Limits);

#if IS_FLOAT
static __attribute__((noinline)) void NAME(fill_limits)(NAME(Limits) * out, const Bounds *b) {
    *out = (NAME(Limits)){.low = (T)b->low - (V){0},
                          .high = (T)b->high - (V){0},
                          .scale = (T)b->scale - (V){0},
                          .shift = (T)b->shift - (V){0},
                          .inverse = (T)b->inverse - (V){0},
                          .rest = (T)b->rest - (V){0},
                          .factor = (T)b->factor - (V){0},
                          .addend = (T)b->addend - (V){0}};
}
#endif

/* Made once a call, in memory: `out` is left as it is where there are no bounds. */
TILE_INLINE void NAME(limits)(NAME(Limits) * out, const Bounds *b) {
    (void)out, (void)b;
#if IS_FLOAT
    if (b->clamp) NAME(fill_limits)(out, b);
#endif
}

#if IS_FLOAT

TILE_INLINE V NAME(bounded)(V x, const NAME(Limits) * b, const BoundKind kind) {
    if (kind == BOUND_NOT) return x;
#if IS_F32
    if (kind != BOUND_CLAMP) {
#ifdef TILE_GATE
        TILE_GATE(x, b);
        if (kind == BOUND_LONG_GATE) TILE_GATE_END(x, b);
        return x;
#else
        V gate = x * b->scale;
        TILE_HOLD(gate); /* else it would not be rounded before the sum */
        x *= f32_clamp(gate + b->shift, b->low, b->high);
        if (kind == BOUND_GATE) return x;
        x = fused(x, b->inverse, x * b->rest) * b->factor;
        TILE_HOLD(x);
        return x + b->addend;
#endif
    }
#endif
    return NAME(clamp)(x, b->low, b->high);
}

TILE_INLINE void NAME(bound_tile)(const Bounds *bounds, const NAME(Limits) * limits,
                                  V acc[TILE_MAX_ROWS][TILE_MAX_VECTORS], const int m, const int nv) {
#define EACH(kind)                                                                                                     \
    case kind:                                                                                                         \
        TILE_UNROLL                                                                                                    \
        for (int i = 0; i < m; i++) {                                                                                  \
            TILE_UNROLL                                                                                                \
            for (int j = 0; j < nv; j++) acc[i][j] = NAME(bounded)(acc[i][j], limits, kind);                           \
        }                                                                                                              \
        break;
    switch (bound_kind(bounds)) {
        EACH(BOUND_CLAMP)
#if IS_F32
        EACH(BOUND_GATE)
        EACH(BOUND_LONG_GATE)
#endif
    default: break;
    }
#undef EACH
}

#ifndef TILE_WITHOUT_BOUND_ROW
static void NAME(bound_row)(void *row, int64_t count, const Bounds *bounds) {
    NAME(Limits) limits;
    NAME(limits)(&limits, bounds);
    const BoundKind kind = bound_kind(bounds);
    T *x = row;
    for (int64_t j = 0; j < count; j += TYPE_LANES) {
        int last = count - j < TYPE_LANES ? (int)(count - j) : TYPE_LANES;
        NAME(store)(x + j, 0, 1, last, NAME(bounded)(NAME(load)(x + j, 0, 1, last), &limits, kind));
    }
}
#endif
#endif

#ifdef TILE_ENDS
typedef uint16_t NAME(Halves) __attribute__((vector_size(VECTOR_BYTES / 2)));
typedef uint16_t NAME(LooseHalves) __attribute__((vector_size(VECTOR_BYTES / 2), aligned(2), may_alias));

TILE_INLINE V NAME(load_halves)(const uint16_t *from, int count) {
    NAME(Halves) part = {0};
    if (count == TYPE_LANES)
        part = *(const NAME(LooseHalves) *)from;
    else
        memcpy(&part, from, (size_t)count * sizeof *from);
    return (V)(__builtin_convertvector(part, VU) << 16);
}

TILE_INLINE void NAME(store_halves)(uint16_t *to, int count, V value) {
    NAME(Halves) halves = TILE_ENDS(value);
    if (count == TYPE_LANES)
        *(NAME(LooseHalves) *)to = halves;
    else
        memcpy(to, &halves, (size_t)count * sizeof *to);
}

TILE_INLINE void NAME(end)(const TileEnds *ends, const NAME(Limits) * limits, void *const *results, int64_t column,
                           V acc[TILE_MAX_ROWS][TILE_MAX_VECTORS], const int m, const int nv, int last) {
    if (ends->bias) {
        TILE_UNROLL
        for (int j = 0; j < nv; j++) {
            V bias = *(const LOOSE *)(ends->bias + column + j * TYPE_LANES);
            TILE_UNROLL
            for (int i = 0; i < m; i++) acc[i][j] += bias;
        }
    }
    if (ends->addend) {
        TILE_UNROLL
        for (int i = 0; i < m; i++) {
            const uint16_t *from = (const uint16_t *)(ends->addend + (uintptr_t)results[i] / 2) + column;
            TILE_UNROLL
            for (int j = 0; j < nv; j++)
                acc[i][j] += NAME(load_halves)(from + j * TYPE_LANES, j < nv - 1 ? TYPE_LANES : last);
        }
    }
    if (ends->bounds.clamp) NAME(bound_tile)(&ends->bounds, limits, acc, m, nv);
    TILE_UNROLL
    for (int i = 0; i < m; i++) {
        uint16_t *to = (uint16_t *)(ends->to + (uintptr_t)results[i] / 2) + column;
        TILE_HOLD_ADDRESS(to);
        TILE_UNROLL
        for (int j = 0; j < nv; j++) NAME(store_halves)(to + j * TYPE_LANES, j < nv - 1 ? TYPE_LANES : last, acc[i][j]);
    }
}

static void NAME(end_row)(const TileEnds *ends, const float *sums, const void *result, int64_t column, int64_t count) {
    NAME(Limits) limits;
    NAME(limits)(&limits, &ends->bounds);
    for (int64_t j = 0; j < count; j += TYPE_LANES) {
        int last = count - j < TYPE_LANES ? (int)(count - j) : TYPE_LANES;
        V acc[TILE_MAX_ROWS][TILE_MAX_VECTORS];
        acc[0][0] = NAME(load)(sums + j, 0, 1, last);
        NAME(end)(ends, &limits, (void *[]){(void *)(uintptr_t)result}, column + j, acc, 1, 1, last);
    }
}
#endif

/* What happens to sums at the end: results[i] is row i, from column `column` on. The sums begin at 0 and all else is added
 * here, where a register at a time is enough: what begins in registers has gone through memory before the first product. limits: of
 * the call's bounds; whole numbers have none. */
TILE_INLINE void NAME(finish)(const TileCall *call, const NAME(Limits) * limits, void *const *results, int64_t column,
                              V acc[TILE_MAX_ROWS][TILE_MAX_VECTORS], const int m, const int nv, int last) {
#ifdef TILE_SCALES
    if (call->scales) {
        TILE_UNROLL
        for (int i = 0; i < m; i++) {
            TILE_UNROLL
            for (int j = 0; j < nv; j++) acc[i][j] *= call->scale - (V){0};
        }
    }
#endif
#ifdef TILE_ENDS
    if (call->ends) {
        NAME(end)(call->ends, limits, results, column, acc, m, nv, last);
        return;
    }
#endif
    if (call->bias) {
        TILE_UNROLL
        for (int j = 0; j < nv; j++) {
            V bias = *(const LOOSE *)((const T *)call->bias + column + j * TYPE_LANES);
            TILE_UNROLL
            for (int i = 0; i < m; i++) acc[i][j] += bias;
        }
    }
    if (call->has_addend) {
        TILE_UNROLL
        for (int i = 0; i < m; i++) {
            const T *from = (const T *)((intptr_t)results[i] + call->addend_shift) + column;
            TILE_UNROLL
            for (int j = 0; j < nv; j++) acc[i][j] += NAME(load)(from, j, nv, last);
        }
    }
    (void)limits;
#if IS_FLOAT
    if (call->bounds.clamp) NAME(bound_tile)(&call->bounds, limits, acc, m, nv);
#endif
    TILE_UNROLL
    for (int i = 0; i < m; i++) {
        T *to = results[i];
        TILE_HOLD_ADDRESS(to);
        to += column;
        TILE_UNROLL
        for (int j = 0; j < nv; j++) NAME(store)(to, j, nv, last, acc[i][j]);
    }
}

TILE_INLINE void NAME(clear)(V acc[TILE_MAX_ROWS][TILE_MAX_VECTORS], const int m, const int nv) {
    TILE_UNROLL
    for (int i = 0; i < m; i++) {
        TILE_UNROLL
        for (int j = 0; j < nv; j++) acc[i][j] = (V){0};
    }
}

#ifndef TILE_WITHOUT_PRODUCTS
/* TILE_ADD_WEIGHT(sum, w): what a column's weights take off all its sums, whatever the rows are: the row of sums behind the tile's. */
#ifdef TILE_ADD_WEIGHT
#define TILE_OWN_ROWS 1
#else
#define TILE_OWN_ROWS 0
#endif

/* How far ahead weights are asked for by tiles of one or two rows, which are bound by reading them: elements. Not with vectors of 32
 * bytes: there it delays what a processor asks for by itself (Zen 3, weights from memory, one thread: 19 GB/s, 16 with it). Tiles of
 * up to eight rows ask for the next block (TileCall.ahead); higher ones have no registers left for it, and are for few
 * columns, whose weights stay in the caches. */
#define AHEAD (2048 / (int64_t)sizeof(T))

#if IS_F32 && defined(TILE_ADD_TO_PAIR)
/* As many depths of rows x, which are `step` elements apart, as are whole rounds, against two vectors each; where the next stands in a row.
 * Where weight and `ahead` go on is theirs afterwards. */
TILE_INLINE int64_t NAME(add_pairs)(const TileCall *call, V acc[TILE_MAX_ROWS][TILE_MAX_VECTORS],
                                    const T *const x[TILE_MAX_ROWS], const T **weight, const char **ahead, const int m,
                                    const int64_t stride, const int64_t step, const bool dense, const bool asks) {
    const int64_t end = (call->depth - call->depth % TILE_PAIR_DEPTHS) * step,
                  ahead_step = TILE_PAIR_DEPTHS * call->ahead_step;
    const T *w = *weight;
    const char *next = *ahead;
    int64_t k = 0;
#define DEPTH(number)                                                                                                  \
    {                                                                                                                  \
        const V first = *(const LOOSE *)w, second = *(const LOOSE *)(w + TYPE_LANES);                                  \
        w += stride;                                                                                                   \
        TILE_UNROLL                                                                                                    \
        for (int i = 0; i < m; i++)                                                                                    \
            if (dense)                                                                                                 \
                TILE_ADD_TO_PAIR(acc[i][0], acc[i][1], x[i], k, number, first, second);                                \
            else                                                                                                       \
                TILE_ADD_TO_PAIR(acc[i][0], acc[i][1], x[i], k, 0, first, second);                                     \
        if (!dense) k += step;                                                                                         \
    }
    while (k < end) {
        if (asks) {
            __builtin_prefetch(next, 0, 2);
            next += ahead_step;
        }
        DEPTH(0)
        DEPTH(1)
        DEPTH(2)
        DEPTH(3)
        if (dense) k += TILE_PAIR_DEPTHS;
    }
#undef DEPTH
    *weight = w;
    *ahead = next;
    return end;
}
#endif

/* Adds the products of `end` / step depths of rows x. asks: for what is read next, too. */
TILE_INLINE void NAME(add_depths)(const TileCall *call, V acc[TILE_MAX_ROWS][TILE_MAX_VECTORS],
                                  const T *const x[TILE_MAX_ROWS], const T *weight, const char *ahead, const int m,
                                  const int nv, const bool asks, const int pairs) {
    const int64_t stride = call->weight_stride, step = 1 + call->depth_gap, end = call->depth * step,
                  ahead_step = call->ahead_step;
    int64_t k = 0;
    (void)pairs;
#if IS_F32 && defined(TILE_ADD_TO_PAIR)
    if (pairs != NO_PAIRS && (!asks || ahead_step * TILE_PAIR_DEPTHS <= LINE_BYTES))
        k = NAME(add_pairs)(call, acc, x, &weight, &ahead, m, pairs > ANY_STRIDE ? pairs : stride,
                            pairs == ANY_STEP ? step : 1, pairs != ANY_STEP, asks);
#endif
    for (; k < end; k += step, weight += stride) {
        V w[TILE_MAX_VECTORS];
        if (asks) {
            __builtin_prefetch(ahead, 0, 2);
            ahead += ahead_step;
        }
        TILE_UNROLL
        for (int j = 0; j < nv; j++) {
            w[j] = *(const LOOSE *)(weight + j * TYPE_LANES);
#ifdef TILE_ADD_WEIGHT
            acc[m][j] = TILE_ADD_WEIGHT(acc[m][j], w[j]);
#endif
            if (m <= 2 && VECTOR_BYTES != 32) __builtin_prefetch(weight + j * TYPE_LANES + AHEAD);
        }
        TILE_UNROLL
        for (int i = 0; i < m; i++) {
            V value = TILE_SPREAD(x[i] + k);
            TILE_UNROLL
            for (int j = 0; j < nv; j++) acc[i][j] = TILE_ADD_PRODUCT(acc[i][j], value, w[j]);
        }
    }
}

TILE_INLINE void NAME(product)(const TileCall *call, const int m, const int nv, const int pairs) {
    const int last = call->columns - (nv - 1) * TYPE_LANES;
    const int64_t depth = call->depth;
    const char *ahead = call->ahead;
    const bool asks = m > 2 && m <= 8 && call->ahead_step;
    NAME(Limits) limits;
    NAME(limits)(&limits, tile_bounds(call));
    int tile = 0;
    do {
        V acc[TILE_MAX_ROWS + TILE_OWN_ROWS][TILE_MAX_VECTORS];
        const T *weight = call->weight;
        NAME(clear)(acc, m + TILE_OWN_ROWS, nv);
        for (int64_t t = 0; t < call->taps; t++, weight += depth * call->weight_stride) {
            const T *x[TILE_MAX_ROWS];
            const int64_t shift = call->offset + call->offsets[t];
            const void *const *rows = call->rows + tile * m + t * call->row_stride;
            TILE_UNROLL
            for (int i = 0; i < m; i++) {
                x[i] = (const T *)rows[i] + shift;
                if (m <= 8) TILE_HOLD_ADDRESS(x[i]);
            }
            if (asks) {
                NAME(add_depths)(call, acc, x, weight, ahead, m, nv, true, pairs);
                ahead += depth * call->ahead_step;
            } else {
                NAME(add_depths)(call, acc, x, weight, ahead, m, nv, false, pairs);
            }
            TILE_HOLD_ADDRESS(call);
        }
#ifdef TILE_ADD_WEIGHT
        TILE_UNROLL
        for (int i = 0; i < m; i++) {
            TILE_UNROLL
            for (int j = 0; j < nv; j++) acc[i][j] -= acc[m][j];
        }
#endif
        NAME(finish)(call, &limits, call->results + tile * m, call->column, acc, m, nv, last);
    } while (++tile < call->tiles);
}
#endif

#if IS_F32 && defined(TILE_PAIR_LOOP)
/* Whether `product_by_rounds` can do it: one tap of dense rows by a panel of two vectors, and no more asked for than a line a round. */
TILE_INLINE bool NAME(is_by_rounds)(const TileCall *call) {
    return call->taps == 1 && !call->depth_gap && call->weight_stride == 2 * TYPE_LANES &&
           call->depth >= TILE_PAIR_DEPTHS && call->ahead_step * TILE_PAIR_DEPTHS <= LINE_BYTES;
}

TILE_INLINE void NAME(product_by_rounds)(const TileCall *call, const int m) {
    const int last = call->columns - TYPE_LANES;
    const int64_t rounds = call->depth / TILE_PAIR_DEPTHS, step = call->ahead_step * TILE_PAIR_DEPTHS,
                  shift = call->offset + call->offsets[0];
    /* Who asks for nothing asks for what is there. */
    const char *ahead = step ? call->ahead : call->weight;
    NAME(Limits) limits;
    NAME(limits)(&limits, tile_bounds(call));
    int tile = 0;
    do {
        V acc[TILE_MAX_ROWS][TILE_MAX_VECTORS];
        const T *weight = call->weight, *x[TILE_MAX_ROWS];
        TILE_UNROLL
        for (int i = 0; i < m; i++) x[i] = (const T *)call->rows[tile * m + i] + shift;
        if (m == 3)
            TILE_PAIR_LOOP(3, acc, x, weight, ahead, step, rounds);
        else if (m == 4)
            TILE_PAIR_LOOP(4, acc, x, weight, ahead, step, rounds);
        else if (m == 5)
            TILE_PAIR_LOOP(5, acc, x, weight, ahead, step, rounds);
        else
            TILE_PAIR_LOOP(6, acc, x, weight, ahead, step, rounds);
        for (int64_t k = rounds * TILE_PAIR_DEPTHS; k < call->depth; k++, weight += 2 * TYPE_LANES) {
            const V first = *(const LOOSE *)weight, second = *(const LOOSE *)(weight + TYPE_LANES);
            TILE_UNROLL
            for (int i = 0; i < m; i++) TILE_ADD_TO_PAIR(acc[i][0], acc[i][1], x[i], k, 0, first, second);
        }
        NAME(finish)(call, &limits, call->results + tile * m, call->column, acc, m, 2, last);
        TILE_HOLD_ADDRESS(call);
    } while (++tile < call->tiles);
}
#endif

#ifndef TILE_WITHOUT_LINES
#include "runtime/device/cpu/tiles/tile_lines.h"
#endif

#ifdef TILE_ADD_SQUARE
#include "runtime/device/cpu/tiles/tile_squares.h"
#define ONE(m, nv)                                                                                                     \
    static void NAME(product_##m##x##nv)(const TileCall *call) {                                                       \
        if (call->depth_gap)                                                                                           \
            NAME(product)(call, m, nv, NO_PAIRS);                                                                      \
        else                                                                                                           \
            NAME(product_of_squares)(call, m, nv);                                                                     \
    }
#elif defined(TILE_BYTES)
#include "runtime/device/cpu/tiles/tile_bytes.h"
#define ONE(m, nv)                                                                                                     \
    static void NAME(product_##m##x##nv)(const TileCall *call) {                                                       \
        if (call->tiles * m >= BYTES_LEAST_ROWS)                                                                       \
            NAME(product_of_bytes)(call, m, nv);                                                                       \
        else                                                                                                           \
            NAME(product)(call, m, nv, NO_PAIRS);                                                                      \
    }
#elif IS_F32 && defined(TILE_ADD_TO_PAIR)
#define ONE(m, nv)                                                                                                     \
    static void NAME(product_##m##x##nv)(const TileCall *call) {                                                       \
        if (m <= 2 || nv != 2)                                                                                         \
            NAME(product)(call, m, nv, NO_PAIRS);                                                                      \
        else if (NAME(is_by_rounds)(call))                                                                             \
            NAME(product_by_rounds)(call, m);                                                                          \
        else if (call->depth_gap)                                                                                      \
            NAME(product)(call, m, nv, ANY_STEP);                                                                      \
        else if (call->weight_stride == 2 * TYPE_LANES)                                                                \
            NAME(product)(call, m, nv, 2 * TYPE_LANES);                                                                \
        else                                                                                                           \
            NAME(product)(call, m, nv, ANY_STRIDE);                                                                    \
    }
#else
#define ONE(m, nv)                                                                                                     \
    static void NAME(product_##m##x##nv)(const TileCall *call) { NAME(product)(call, m, nv, NO_PAIRS); }
#endif
#ifndef TILE_ROWS
enum { TILE_SUMS_float = DT_F32, TILE_SUMS_double = DT_F64, TILE_SUMS_uint32_t = DT_U32, TILE_SUMS_uint64_t = DT_U64 };
#define TILE_ROWS(X, nv) X(1, nv) X(2, nv) X(3, nv) X(4, nv) X(5, nv) X(6, nv)
#define TILE_MORE_ROWS(X, nv) X(7, nv) X(8, nv)
#define TILE_MOST_ROWS(X, nv) X(9, nv) X(10, nv) X(11, nv) X(12, nv)
#define TILE_NAMES(set, what, nv)                                                                                      \
    set##_##what##_1x##nv, set##_##what##_2x##nv, set##_##what##_3x##nv, set##_##what##_4x##nv, set##_##what##_5x##nv, \
        set##_##what##_6x##nv
#define TILE_MORE_NAMES(set, what, nv) set##_##what##_7x##nv, set##_##what##_8x##nv
#define TILE_MOST_NAMES(set, what, nv)                                                                                 \
    set##_##what##_9x##nv, set##_##what##_10x##nv, set##_##what##_11x##nv, set##_##what##_12x##nv
#define SET_COMMON(set, type, turn, bounds)                                                                            \
    .size = sizeof(type), .sums = (DType)TILE_SUMS_##type, .lanes = (int)(VECTOR_BYTES / sizeof(type)),                \
    .transpose = turn, .bound = bounds, .end_row = TILE_END_ROW_##set
#define TILE_END_ROW_f32 NULL
#define TILE_END_ROW_f64 NULL
#define TILE_END_ROW_u32 NULL
#define TILE_END_ROW_u64 NULL
#define TILE_END_ROW_quads NULL
#define TILE_END_ROW_words NULL
#define TILE_END_ROW_pairs pairs_end_row
#define SET_0_TILES(set, what)                                                                                         \
    {                                                                                                                  \
        {NULL}, {NULL, TILE_NAMES(set, what, 1), TILE_MORE_NAMES(set, what, 1)}, { NULL, TILE_NAMES(set, what, 2) }    \
    }
#define SET_1_TILES(set, what)                                                                                         \
    {                                                                                                                  \
        {NULL}, {NULL, TILE_NAMES(set, what, 1), TILE_MORE_NAMES(set, what, 1), TILE_MOST_NAMES(set, what, 1)},        \
            {NULL, TILE_NAMES(set, what, 2), TILE_MORE_NAMES(set, what, 2), TILE_MOST_NAMES(set, what, 2)},            \
            {NULL, TILE_NAMES(set, what, 3), TILE_MORE_NAMES(set, what, 3)}, {                                         \
            NULL, TILE_NAMES(set, what, 4)                                                                             \
        }                                                                                                              \
    }
#define SET_0(set, type, turn, bounds, lines_of, most_line_vectors)                                                    \
    {                                                                                                                  \
        SET_COMMON(set, type, turn, bounds), .vectors = 2, .rows = {0, 8, 6}, .products = SET_0_TILES(set, product),   \
                                             .line_vectors = most_line_vectors, .lines = lines_of(set)                 \
    }
#ifndef SET_1_ROWS
#define SET_1_ROWS 0, 12, 12, 8, 6
#endif
#define SET_1(set, type, turn, bounds, lines_of)                                                                       \
    {                                                                                                                  \
        SET_COMMON(set, type, turn, bounds), .vectors = 4, .rows = {SET_1_ROWS},                                       \
                                             .products = SET_1_TILES(set, product), .line_vectors = 2,                 \
                                             .lines = lines_of(set)                                                    \
    }
#define LINES_0(set)                                                                                                   \
    {                                                                                                                  \
        [LINE_ANY] = { NULL, set##_line_any_1 }                                                                        \
    }
#if VECTOR_BYTES == 32
#define LINES_EIGHTS(set) [LINE_EIGHTS] = {NULL, set##_line_eights_1, set##_line_eights_2},
#else
#define LINES_EIGHTS(set)
#endif
#define LINES_2(set)                                                                                                   \
    {                                                                                                                  \
        [LINE_ANY] = {NULL, set##_line_any_1, set##_line_any_2},                                                       \
        [LINE_3X1] = {NULL, set##_line_3x1_1, set##_line_3x1_2},                                                       \
        [LINE_3X2] = {NULL, set##_line_3x2_1, set##_line_3x2_2},                                                       \
        [LINE_5X1] = {NULL, set##_line_5x1_1, set##_line_5x1_2},                                                       \
        [LINE_5X2] = {NULL, set##_line_5x2_1, set##_line_5x2_2},                                                       \
        [LINE_7X1] = {NULL, set##_line_7x1_1, set##_line_7x1_2},                                                       \
        [LINE_PAIRS] = {NULL, set##_line_pairs_1, set##_line_pairs_2},                                                 \
        [LINE_FOURS] = {NULL, set##_line_fours_1, set##_line_fours_2}, LINES_EIGHTS(set)                               \
    }
#define LINES_NONE(set)                                                                                                \
    {                                                                                                                  \
        { NULL }                                                                                                       \
    }
#define SET_NARROW(set, type, turn, bounds) SET_0(set, type, turn, bounds, LINES_0, 1)
#if REGISTERS == 32
#define SET_WIDE(set, type, turn, bounds) SET_1(set, type, turn, bounds, LINES_2)
#define SET_WITHOUT_LINES(set, type, turn, bounds) SET_1(set, type, turn, bounds, LINES_NONE)
#else
#define SET_WIDE(set, type, turn, bounds) SET_0(set, type, turn, bounds, LINES_2, 2)
#define SET_WITHOUT_LINES(set, type, turn, bounds) SET_0(set, type, turn, bounds, LINES_NONE, 1)
#endif
#endif

#ifndef TILE_WITHOUT_PRODUCTS
TILE_ROWS(ONE, 1)
TILE_MORE_ROWS(ONE, 1)
TILE_ROWS(ONE, 2)
#if WIDE
TILE_MOST_ROWS(ONE, 1)
TILE_MORE_ROWS(ONE, 2)
TILE_MOST_ROWS(ONE, 2)
TILE_ROWS(ONE, 3)
TILE_MORE_ROWS(ONE, 3)
TILE_ROWS(ONE, 4)
#endif
#endif

#undef ONE
#undef AHEAD
#undef TILE_OWN_ROWS
#undef V
#undef LOOSE
#undef TYPE_LANES
#undef T
#undef NAME
#undef IS_FLOAT
#undef IS_F32
#undef WIDE
#ifdef TILE_OWN_PRODUCT
#undef TILE_OWN_PRODUCT
#undef TILE_ADD_PRODUCT
#undef TILE_SPREAD
#endif
