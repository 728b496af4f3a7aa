/* SPDX-License-Identifier: Apache-2.0 */
/* Products of quads: the loops of every instruction set that this machine runs, against sums one by one; bytes and
 * halves gathered to quads from wherever they lie. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>
#include "anchor_cases.h"
#include "each_tile.h"
#include "base/vectors/vector_isa.h"
#include "runtime/device/cpu/quads.h"
#include "runtime/device/cpu/tiles/tile.h"

enum { DEPTH = 19, MOST_COLUMNS = TILE_MAX_VECTORS * TILE_MAX_LANES };

typedef enum Numbers {
    ANY,
    ENDS,  /* the least and greatest of both signs */
    SMALL, /* so that a pair of weights times bytes fits a word */
    EDGE,  /* pairs of weights that just fit, and that just do not, with rows of the greatest */
    MIXED, /* 64 of one kind after the other */
    NUMBERS
} Numbers;

static uint8_t drawn(Numbers kind, uint64_t *state) {
    static const uint8_t ends[] = {0, 255, 127, 128}, edges[] = {64, 192, 65, 191, 63, 0, 127, 129};
    switch (kind) {
    case ENDS: return ends[anchor_case_below(state, 4)];
    case SMALL: return (uint8_t)(anchor_case_below(state, 129) - 64);
    case EDGE: return edges[anchor_case_below(state, 8)];
    default: return (uint8_t)anchor_case_bits(state);
    }
}

static void fill(void *data, size_t size, uint64_t *state, Numbers numbers) {
    uint8_t *to = data;
    Numbers kind = numbers;
    for (size_t i = 0; i < size; i++) {
        if (numbers == MIXED && i % 64 == 0) kind = anchor_case_below(state, 3) ? SMALL : ANY;
        to[i] = drawn(kind, state);
    }
}

static void check_tile(const TileSet *set, int index, int vectors, int rows, int columns, uint64_t *state) {
    static uint8_t x[TILE_MOST_ROWS][DEPTH * QUAD];
    static int8_t weight[DEPTH][MOST_COLUMNS][QUAD];
    static int32_t results[TILE_MOST_ROWS][MOST_COLUMNS + 1], bias[MOST_COLUMNS];
    const void *row_of[TILE_MOST_ROWS];
    void *result_of[TILE_MOST_ROWS];
    int64_t offset = 0, stride = vectors * set->lanes;
    static int32_t packed[DEPTH * MOST_COLUMNS];
    fill(x, sizeof x, state, rows % 2 ? ENDS : ANY);
    fill(weight, sizeof weight, state, rows % 3 ? ANY : ENDS);
    fill(bias, sizeof bias, state, ANY);
    memset(results, 0x55, sizeof results);
    for (int k = 0; k < DEPTH; k++)
        for (int64_t j = 0; j < stride; j++) memcpy(&packed[k * stride + j], weight[k][j], QUAD);
    for (int i = 0; i < rows; i++) row_of[i] = x[i], result_of[i] = results[i];
    TileCall call = {.rows = row_of,
                     .row_count = rows,
                     .offsets = &offset,
                     .taps = 1,
                     .depth = DEPTH,
                     .weight = packed,
                     .weight_stride = stride,
                     .ahead = (const char *)packed,
                     .results = result_of,
                     .columns = columns,
                     .bias = bias};
    set->products[vectors][rows](&call);
    for (int i = 0; i < rows; i++) {
        for (int j = 0; j < columns; j++) {
            uint32_t sum = (uint32_t)bias[j];
            for (int k = 0; k < DEPTH * QUAD; k++) sum += (uint32_t)(x[i][k] * weight[k / QUAD][j][k % QUAD]);
            cr_assert_eq((uint32_t)results[i][j], sum, "set %d, %d rows, %d columns, at [%d, %d]", index, rows, columns,
                         i, j);
        }
        cr_assert_eq(results[i][columns], 0x55555555, "set %d writes beyond its columns", index);
    }
}

enum { SETS = 6 };

/* All that this machine runs, AMX in plain memory among them. */
static int sets_here(const TileSet *sets[SETS]) {
    int count = tile_sets_of_quads(sets);
    cr_assert_eq(sets[0], tile_set_quads());
#if defined(__x86_64__)
    extern const TileSet tile_quads_amx_plain;
    if (vector_isa() == VECTOR_AVX512) sets[count++] = &tile_quads_amx_plain;
#endif
    return count;
}

Test(quads, every_tile_of_every_instruction_set_sums_exactly) {
    const TileSet *sets[SETS];
    each_tile(sets, sets_here(sets), 1, check_tile);
}

Test(quads, all_sets_agree) {
    const TileSet *sets[SETS];
    int count = sets_here(sets);
    for (int s = 0; s < count; s++) cr_expect(tile_quads_agree(sets[s]), "set %d", s);
    TileSet wrong = wrong_set(tile_set_quads(), tile_set_pairs());
    cr_expect_not(tile_quads_agree(&wrong));
}

/* Calls of several tiles: a set may do more rows, and longer sums, another way. */
typedef struct Tall {
    const char *what;
    int rows, taps, depth, gap, columns;
    bool scattered; /* a tap has rows of its own */
} Tall;

static const Tall talls[] = {
    {"two tiles", 12, 1, 16, 0, 16, false},
    {"a few rows", 5, 1, 17, 0, 16, false},
    {"tiles of two heights", 35, 1, 24, 0, 13, false},
    {"one vector", 31, 1, 9, 0, 5, false},
    {"more tiles than wait at a time", 131, 1, 200, 0, 16, false},
    {"blocks of the depth and a rest", 40, 1, 300, 0, 16, false},
    {"a block exactly", 24, 1, 128, 0, 9, false},
    {"taps within a row", 30, 9, 16, 0, 16, false},
    {"taps of their own rows", 30, 9, 5, 0, 16, true},
    {"taps across blocks", 26, 25, 11, 0, 12, true},
    {"a gap between depths", 26, 3, 7, 2, 16, false},
    {"no depth", 18, 1, 0, 0, 16, false},
    {"no taps", 18, 0, 4, 0, 16, false},
};

static uint32_t quad_product(uint32_t x, uint32_t w) {
    uint32_t sum = 0;
    for (int b = 0; b < 32; b += 8) sum += (uint32_t)((int)(x >> b & 255) * (int8_t)(uint8_t)(w >> b & 255));
    return sum;
}

enum { ROWS = 160, TAPS = 32 };

static void check_tall(const TileSet *set, int index, const Tall *at, Numbers numbers, uint64_t *state) {
    const int panel = set->vectors * set->lanes, step = 1 + at->gap;
    const int64_t width = (at->columns + panel - 1) / panel * panel, total = (int64_t)at->taps * at->depth;
    const int64_t reach = at->scattered ? at->depth : total, length = reach ? (reach - 1) * step + 1 : 0;
    const int kinds = at->scattered ? at->taps : 1;
    /* No more than is read: a sanitizer sees what goes beyond. */
    uint32_t *x = malloc((size_t)(ROWS * kinds * length + 1) * 4), *weight = malloc((size_t)(total * width + 1) * 4);
    uint32_t *results = malloc((size_t)at->rows * (size_t)(at->columns + 1) * 4), bias[MOST_COLUMNS];
    const void *row_of[ROWS * TAPS];
    void *result_of[ROWS];
    int64_t offsets[TAPS];
    cr_assert(x && weight && results);
    fill(x, (size_t)(ROWS * kinds * length) * 4, state, numbers == ENDS ? ENDS : ANY);
    if (numbers == EDGE) memset(x, 255, (size_t)(ROWS * kinds * length) * 4);
    fill(weight, (size_t)(total * width) * 4, state, numbers);
    fill(bias, sizeof bias, state, ANY);
    memset(results, 0x55, (size_t)at->rows * (size_t)(at->columns + 1) * 4);
    for (int t = 0; t < at->taps; t++) {
        offsets[t] = at->scattered ? 0 : (int64_t)t * at->depth * step;
        for (int i = 0; i < at->rows; i++) row_of[t * ROWS + i] = x + (at->scattered ? t * ROWS + i : i) * length;
    }
    for (int i = 0; i < at->rows; i++) result_of[i] = results + i * (at->columns + 1);
    if (!at->scattered)
        for (int i = 0; i < at->rows; i++) row_of[i] = x + i * length;
    for (int first = 0; first < at->columns; first += panel) {
        int columns = at->columns - first < panel ? at->columns - first : panel;
        TileCall call = {.rows = row_of,
                         .row_stride = at->scattered ? ROWS : 0,
                         .offsets = offsets,
                         .taps = at->taps,
                         .depth = at->depth,
                         .depth_gap = at->gap,
                         .weight = weight + first,
                         .weight_stride = width,
                         .results = result_of,
                         .column = first,
                         .columns = columns,
                         .bias = bias};
        tile_products(set, (columns + set->lanes - 1) / set->lanes, at->rows, &call, weight, total * width * 4);
    }
    for (int i = 0; i < at->rows; i++) {
        for (int j = 0; j < at->columns; j++) {
            uint32_t sum = bias[j];
            for (int64_t q = 0; q < total; q++) {
                int64_t tap = q / at->depth, k = q % at->depth;
                const uint32_t *row = row_of[at->scattered ? tap * ROWS + i : i];
                sum += quad_product(row[offsets[tap] + k * step], weight[q * width + j]);
            }
            cr_assert_eq(results[i * (at->columns + 1) + j], sum, "set %d, %s: at [%d, %d]", index, at->what, i, j);
        }
        cr_assert_eq(results[i * (at->columns + 1) + at->columns], 0x55555555, "set %d, %s: written beyond", index,
                     at->what);
    }
    free(x);
    free(weight);
    free(results);
}

Test(quads, calls_of_many_tiles_sum_exactly) {
    uint64_t state = 3;
    const TileSet *sets[SETS];
    int count = sets_here(sets);
    for (int s = 0; s < count; s++)
        for (size_t t = 0; t < sizeof talls / sizeof *talls; t++)
            for (int numbers = 0; numbers < NUMBERS; numbers++)
                check_tall(sets[s], s, &talls[t], (Numbers)numbers, &state);
}

typedef struct Place {
    const char *what;
    int64_t outer, depth, inner, outer_stride, depth_stride, inner_stride;
} Place;

static const Place places[] = {
    {"rows as they lie", 3, 8, 1, 8, 1, 0},     {"rows with a rest", 5, 7, 1, 7, 1, 0},
    {"rows apart", 4, 6, 1, 50, 1, 0},          {"pixels of three", 9, 3, 1, 3, 1, 0},
    {"pixels of one, apart", 7, 1, 1, 5, 1, 0}, {"pixels of eight, apart", 6, 8, 1, 11, 1, 0},
    {"a matrix", 1, 12, 33, 0, 33, 1},          {"a matrix with a rest", 2, 13, 9, 200, 9, 1},
    {"a matrix turned", 1, 10, 17, 0, 1, 10},   {"kernels of taps", 6, 5, 9, 45, 9, 1},
    {"one number", 1, 1, 1, 0, 1, 1},           {"no depth", 2, 0, 3, 0, 3, 1},
};

static int64_t number_at(const uint8_t *from, int size) { return size == 1 ? from[0] : from[0] | from[1] << 8; }

/* size: bytes of a number */
static void check_gathering(const Place *at, int size, uint64_t *state) {
    static uint32_t to[4096];
    const int64_t most = QUAD / size, quads = quads_in(at->depth, size), count = at->outer * quads * at->inner;
    const int64_t last = (at->outer - 1) * at->outer_stride + (at->depth ? at->depth - 1 : 0) * at->depth_stride +
                         (at->inner - 1) * at->inner_stride;
    uint8_t *from = malloc((size_t)(size * (last + 2))); /* no more than is read */
    fill(from, (size_t)(size * (last + 2)), state, 0);
    QuadSource source = {.from = from + size,
                         .size = size,
                         .rank = 1,
                         .dims = {at->outer},
                         .strides = {at->outer_stride},
                         .depth = at->depth,
                         .depth_stride = at->depth_stride,
                         .inner = at->inner,
                         .inner_stride = at->inner_stride};
    memset(to, 0xee, sizeof to);
    quads_gather(&source, to, NULL);
    for (int64_t i = 0; i < count; i++)
        for (int64_t n = 0; n < most; n++) {
            int64_t k = i / at->inner % quads * most + n;
            int64_t place =
                i / at->inner / quads * at->outer_stride + k * at->depth_stride + i % at->inner * at->inner_stride;
            int64_t want = k < at->depth ? number_at(from + size * (1 + place), size) : 0;
            cr_assert_eq(to[i] >> 8 * size * n & (size == 1 ? 255 : 0xffff), want,
                         "%s, of %d bytes, quad %d, number %d", at->what, size, (int)i, (int)n);
        }
    cr_assert_eq(to[count], 0xeeeeeeee, "%s, of %d bytes: written beyond", at->what, size);
    free(from);
}

Test(quads, numbers_are_gathered_from_wherever_they_lie) {
    uint64_t state = 2;
    for (size_t p = 0; p < sizeof places / sizeof *places; p++)
        for (int size = 1; size <= 2; size++) check_gathering(&places[p], size, &state);
}
