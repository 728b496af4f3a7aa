/* SPDX-License-Identifier: Apache-2.0 */
/* Included by tile_pairs.h and tile_quads.h: products of pairs or quads in AMX's registers of 16 rows of 64 bytes. Wants
 *   AMX_SET, AMX_SUM, AMX_BOUND       pairs, float, how a row is bounded; quads, uint32_t, NULL
 *   AMX_PRODUCT(c, a, b)              the instruction
 *   amx_add_product(sums, a, b)       where TILE_AMX_PLAIN: what it adds to a sum for a row of pairs or quads
 *
 * 32 rows by 32 columns of sums are four registers, so that two loads of rows and two of weights feed four products; a
 * packed weight's rows are what the second factor wants. Rows that are not equally spaced, and a rest of the depth, go
 * through memory first, filled up with zeros.
 *
 * TILE_AMX_PLAIN: with the registers in plain memory, which tests run on any machine. */

enum { AMX_ROWS = 16, AMX_PAIRS = 16 }; /* AMX_PAIRS: elements of four bytes */
#define AMX_NAME(word) TILE_JOIN(AMX_SET, word)

#ifdef TILE_AMX_PLAIN
typedef struct AmxPlain {
    int rows;
    uint32_t data[AMX_ROWS][AMX_PAIRS];
} AmxPlain;
static _Thread_local AmxPlain amx_plain[8];

static void amx_shape(int even, int odd) {
    for (int t = 0; t < 8; t++) amx_plain[t].rows = t > 5 ? AMX_PAIRS : t % 2 ? odd : even;
}

static void amx_zero(int t) { memset(amx_plain[t].data, 0, sizeof amx_plain[t].data); }

static void amx_load(int t, const void *from, int64_t stride) {
    amx_zero(t);
    for (int i = 0; i < amx_plain[t].rows; i++)
        memcpy(amx_plain[t].data[i], (const char *)from + i * stride, sizeof amx_plain[t].data[i]);
}

static void amx_store(int t, void *to, int64_t stride) {
    for (int i = 0; i < amx_plain[t].rows; i++)
        memcpy((char *)to + i * stride, amx_plain[t].data[i], sizeof amx_plain[t].data[i]);
}

static void amx_dot(int c, int a, int b) {
    for (int i = 0; i < amx_plain[c].rows; i++)
        for (int j = 0; j < AMX_PAIRS; j++) {
            uint32_t column[AMX_PAIRS];
            for (int k = 0; k < AMX_PAIRS; k++) column[k] = amx_plain[b].data[k][j];
            amx_add_product(&amx_plain[c].data[i][j], amx_plain[a].data[i], column);
        }
}

#define AMX_ZERO(t) amx_zero(t)
#define AMX_LOAD(t, from, stride) amx_load(t, from, stride)
#define AMX_STORE(t, to, stride) amx_store(t, to, stride)
#define AMX_DOT(c, a, b) amx_dot(c, a, b)
#else
typedef struct AmxShape {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
} AmxShape;
_Static_assert(sizeof(AmxShape) == 64, "as LDTILECFG reads it");

/* 0 to 3: sums; 4, 5: rows, of the same heights; 6, 7: weights. Whoever else uses them in this thread shapes them, too. */
static void amx_shape(int even, int odd) {
    AmxShape shape = {.palette = 1};
    for (int t = 0; t < 8; t++) {
        shape.row_bytes[t] = AMX_PAIRS * 4;
        shape.rows[t] = (uint8_t)(t > 5 ? AMX_PAIRS : t % 2 ? odd : even);
    }
    _tile_loadconfig(&shape);
}

#define AMX_ZERO(t) _tile_zero(t)
#define AMX_LOAD(t, from, stride) _tile_loadd(t, from, (size_t)(stride))
#define AMX_STORE(t, to, stride) _tile_stored(t, to, (size_t)(stride))
#define AMX_DOT(c, a, b) AMX_PRODUCT(c, a, b)
#endif

/* Pairs that go through memory. */
typedef struct AmxRest {
    uint32_t rows[2 * AMX_ROWS][AMX_PAIRS], weight[AMX_PAIRS][2 * AMX_PAIRS];
} AmxRest;

/* How far apart, in bytes, rows that follow each other in memory as they are begin; 0: they do not. */
static int64_t amx_spacing(const TileCall *call, const void *const *rows) {
    int64_t step = call->row_count > 1 ? (const char *)rows[1] - (const char *)rows[0] : 64;
    if (call->depth_gap) return 0;
    for (int i = 1; i < call->row_count; i++)
        if ((const char *)rows[i] - (const char *)rows[0] != i * step) return 0;
    return step;
}

/* Pairs [k, k + count) of the rows, filled up with zeros. */
static void amx_gather(const TileCall *call, const void *const *rows, int64_t shift, int64_t k, int64_t count,
                       AmxRest *rest) {
    int64_t step = 1 + call->depth_gap;
    for (int i = 0; i < call->row_count; i++) {
        const char *from = (const char *)rows[i] + (shift + k * step) * 4;
        if (count < AMX_PAIRS) memset(rest->rows[i], 0, sizeof rest->rows[i]);
        if (step == 1)
            memcpy(rest->rows[i], from, (size_t)count * 4);
        else
            for (int64_t p = 0; p < count; p++) memcpy(&rest->rows[i][p], from + p * step * 4, 4);
    }
}

/* 16 pairs of one or two heights of rows by one or two widths of columns. */
TILE_INLINE void amx_step(const char *rows, int64_t row_step, const char *weight, int64_t weight_step, bool high,
                          bool wide) {
    AMX_LOAD(4, rows, row_step);
    AMX_LOAD(6, weight, weight_step);
    AMX_DOT(0, 4, 6);
    if (high) {
        AMX_LOAD(5, rows + AMX_ROWS * row_step, row_step);
        AMX_DOT(1, 5, 6);
    }
    if (wide) {
        AMX_LOAD(7, weight + AMX_PAIRS * 4, weight_step);
        AMX_DOT(2, 4, 7);
    }
    if (high && wide) AMX_DOT(3, 5, 7);
}

/* Sums of two vectors of columns, from `first` on. */
static void amx_columns(const TileCall *call, int first, bool high, bool wide,
                        AMX_SUM sums[2 * AMX_ROWS][2 * AMX_PAIRS]) {
    AmxRest rest;
    const void *const *rows = call->rows;
    const char *weight = (const char *)((const uint32_t *)call->weight + first);
    const int64_t weight_step = call->weight_stride * 4, sum_step = (int64_t)sizeof sums[0];
    AMX_ZERO(0);
    AMX_ZERO(1);
    AMX_ZERO(2);
    AMX_ZERO(3);
    for (int64_t t = 0; t < call->taps; t++, rows += call->row_stride) {
        const int64_t shift = call->offset + call->offsets[t], spacing = amx_spacing(call, rows);
        const char *x = (const char *)rows[0] + shift * 4;
        for (int64_t k = 0; k < call->depth; k += AMX_PAIRS, weight += AMX_PAIRS * weight_step) {
            int64_t count = call->depth - k < AMX_PAIRS ? call->depth - k : AMX_PAIRS;
            if (spacing && count == AMX_PAIRS) {
                amx_step(x + k * 4, spacing, weight, weight_step, high, wide);
                continue;
            }
            amx_gather(call, rows, shift, k, count, &rest);
            if (count == AMX_PAIRS) {
                amx_step((const char *)rest.rows, sizeof rest.rows[0], weight, weight_step, high, wide);
                continue;
            }
            size_t width = wide ? sizeof rest.weight[0] : sizeof rest.weight[0] / 2;
            memset(rest.weight, 0, sizeof rest.weight);
            for (int64_t p = 0; p < count; p++) memcpy(rest.weight[p], weight + p * weight_step, width);
            amx_step((const char *)rest.rows, sizeof rest.rows[0], (const char *)rest.weight, sizeof rest.weight[0],
                     high, wide);
            weight -= (AMX_PAIRS - count) * weight_step;
        }
    }
    AMX_STORE(0, sums[0], sum_step);
    if (high) AMX_STORE(1, sums[AMX_ROWS], sum_step);
    if (wide) AMX_STORE(2, &sums[0][AMX_PAIRS], sum_step);
    if (high && wide) AMX_STORE(3, &sums[AMX_ROWS][AMX_PAIRS], sum_step);
}

static void amx_tile(const TileCall *call) {
    _Alignas(64) AMX_SUM sums[2 * AMX_ROWS][2 * AMX_PAIRS];
    AMX_NAME(V) acc[TILE_MAX_ROWS][TILE_MAX_VECTORS];
    const int rows = call->row_count, odd = rows > AMX_ROWS ? rows - AMX_ROWS : 0;
    amx_shape(rows - odd, odd ? odd : AMX_ROWS);
    for (int first = 0; first < call->columns; first += 2 * AMX_PAIRS) {
        int left = call->columns - first;
        bool wide = left > AMX_PAIRS;
        amx_columns(call, first, odd > 0, wide, sums);
        for (int i = 0; i < rows; i++) {
            int64_t column = call->column + first;
            acc[0][0] = *(const AMX_NAME(Loose) *)sums[i];
            if (wide) {
                acc[0][1] = *(const AMX_NAME(Loose) *)(sums[i] + AMX_PAIRS);
                AMX_NAME(finish)
                (call, call->results + i, column, acc, 1, 2, left < 2 * AMX_PAIRS ? left - AMX_PAIRS : AMX_PAIRS);
            } else {
                AMX_NAME(finish)(call, call->results + i, column, acc, 1, 1, left);
            }
        }
    }
}

static void amx_product(const TileCall *call) {
    TileCall tile = *call;
    int left = call->tiles;
    do {
        amx_tile(&tile);
        tile.rows += tile.row_count;
        tile.results += tile.row_count;
    } while (--left > 0);
}

#define AMX_COMMON(set, sum, turn, bound) SET_COMMON(set, sum, turn, bound)
#define AMX_TILES                                                                                                      \
    { [1 ... 2 * AMX_ROWS] = amx_product }
const TileSet TILE_JOIN(TILE_JOIN(tile, AMX_SET), ISA) = {
    AMX_COMMON(AMX_SET, AMX_SUM, NULL, AMX_BOUND),
    .vectors = 4,
    .rows = {0, 2 * AMX_ROWS, 2 * AMX_ROWS, 2 * AMX_ROWS, 2 * AMX_ROWS},
    .products = {{NULL}, AMX_TILES, AMX_TILES, AMX_TILES, AMX_TILES},
};
