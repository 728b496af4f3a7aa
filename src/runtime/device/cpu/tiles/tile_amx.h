/* SPDX-License-Identifier: Apache-2.0 */
/* Included by tile_pairs.h and tile_quads.h: products of pairs or quads in AMX's registers of 16 rows of 64 bytes. Wants
 *   AMX_SET, AMX_SUM, AMX_BOUND       pairs, float, how a row is bounded; quads, uint32_t, NULL
 * and what amx_registers.h does. A packed weight's rows are what the second factor wants. Rows that are not equally spaced, and a rest of the
 * depth, go through memory first, filled up with zeros. */
#include "runtime/device/cpu/tiles/amx_registers.h"

#define AMX_NAME(word) TILE_JOIN(AMX_SET, word)

/* Pairs that go through memory. */
typedef struct AmxRest {
    uint32_t rows[2 * AMX_ROWS][AMX_PAIRS], weight[AMX_PAIRS][2 * AMX_PAIRS];
} AmxRest;

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

/* Sums of two vectors of columns, from `first` on. */
static void amx_columns(const TileCall *call, int first, bool high, bool wide,
                        AMX_SUM sums[2 * AMX_ROWS][2 * AMX_PAIRS]) {
    AmxRest rest;
    const void *const *rows = call->rows;
    const char *weight = (const char *)((const uint32_t *)call->weight + first);
    const int64_t weight_step = call->weight_stride * 4;
    amx_begin();
    for (int64_t t = 0; t < call->taps; t++, rows += call->row_stride) {
        const int64_t shift = call->offset + call->offsets[t],
                      spacing = call->depth_gap ? 0 : amx_spacing(rows, call->row_count);
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
    amx_end(sums, high, wide);
}

static void amx_tile(const TileCall *call) {
    _Alignas(64) AMX_SUM sums[2 * AMX_ROWS][2 * AMX_PAIRS];
    AMX_NAME(V) acc[TILE_MAX_ROWS][TILE_MAX_VECTORS];
    AMX_NAME(Limits) limits;
    AMX_NAME(limits)(&limits, tile_bounds(call));
    const int rows = call->row_count;
    amx_shape(rows, AMX_PAIRS);
    for (int first = 0; first < call->columns; first += 2 * AMX_PAIRS) {
        int left = call->columns - first;
        bool wide = left > AMX_PAIRS;
        amx_columns(call, first, rows > AMX_ROWS, wide, sums);
        for (int i = 0; i < rows; i++) {
            int64_t column = call->column + first;
            acc[0][0] = *(const AMX_NAME(Loose) *)sums[i];
            if (wide) {
                acc[0][1] = *(const AMX_NAME(Loose) *)(sums[i] + AMX_PAIRS);
                AMX_NAME(finish)
                (call, &limits, call->results + i, column, acc, 1, 2,
                 left < 2 * AMX_PAIRS ? left - AMX_PAIRS : AMX_PAIRS);
            } else {
                AMX_NAME(finish)(call, &limits, call->results + i, column, acc, 1, 1, left);
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
