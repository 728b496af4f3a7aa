/* SPDX-License-Identifier: Apache-2.0 */
/* Products of pairs of bf16: the loops of every instruction set that this machine runs, against sums in f64. */
#include <criterion/criterion.h>
#include <math.h>
#include <string.h>
#include "anchor_cases.h"
#include "each_tile.h"
#include "base/vectors/vector_isa.h"
#include "graph/tensor.h"
#include "runtime/device/cpu/quads.h"
#include "runtime/device/cpu/tiles/tile.h"

enum { DEPTH = 19, PAIR = 2, MOST_COLUMNS = TILE_MAX_VECTORS * TILE_MAX_LANES };

typedef struct Numbers {
    const char *what;
    int least, range; /* magnitudes are 2^least and up, `range` exponents; 0: nothing but zeros and ones */
} Numbers;

static const Numbers numbers[] = {
    {"around one", -2, 4},   {"of all magnitudes", -60, 120}, {"whose products are subnormal", -70, 14},
    {"subnormal", -133, 10}, {"zeros and ones", 0, 0},
};

static uint16_t half_of(float x) {
    uint16_t half;
    dtype_store_double(DT_BF16, &half, 0, (double)x);
    return half;
}

static double number_of(const uint16_t *half) { return dtype_load_double(DT_BF16, half, 0); }

static void fill(uint16_t *to, int64_t count, const Numbers *n, uint64_t *state) {
    for (int64_t i = 0; i < count; i++) {
        float fraction = 1 + (float)anchor_case_below(state, 128) / 128, sign = anchor_case_below(state, 2) ? 1 : -1;
        to[i] = n->range ? half_of(sign * ldexpf(fraction, n->least + anchor_case_below(state, n->range)))
                         : half_of((float)anchor_case_below(state, 2));
    }
}

/* A tile's factors and results. */
typedef struct Tile {
    uint16_t x[TILE_MOST_ROWS][DEPTH * PAIR], weight[DEPTH][MOST_COLUMNS][PAIR];
    uint32_t packed[DEPTH * MOST_COLUMNS];
    float results[TILE_MOST_ROWS][MOST_COLUMNS + 1], bias[MOST_COLUMNS];
    float scale;
} Tile;

static void multiply_to(Tile *t, const TileSet *set, int vectors, int rows, int columns, const TileEnds *ends) {
    const void *row_of[TILE_MOST_ROWS];
    void *result_of[TILE_MOST_ROWS];
    int64_t offset = 0, stride = vectors * set->lanes;
    memset(t->results, 0x55, sizeof t->results);
    for (int k = 0; k < DEPTH; k++)
        for (int64_t j = 0; j < stride; j++) memcpy(&t->packed[k * stride + j], t->weight[k][j], QUAD);
    for (int i = 0; i < rows; i++) row_of[i] = t->x[i], result_of[i] = t->results[i];
    TileCall call = {.rows = row_of,
                     .row_count = rows,
                     .offsets = &offset,
                     .taps = 1,
                     .depth = DEPTH,
                     .weight = t->packed,
                     .weight_stride = stride,
                     .ahead = (const char *)t->packed,
                     .results = result_of,
                     .columns = columns,
                     .scales = t->scale != 1,
                     .scale = t->scale,
                     .bias = t->bias,
                     .ends = ends};
    set->products[vectors][rows](&call);
}

static void multiply(Tile *t, const TileSet *set, int vectors, int rows, int columns) {
    multiply_to(t, set, vectors, rows, columns, NULL);
}

/* Products of bf16 are exact in f32, so that each addition rounds once, or less where two are added at once; scale and
 * bias round once each. A subnormal number, read or made, may be taken for 0: a factor's product, and 2^-126 for each
 * product, sum and result. aarch64's instruction rounds the sum of two products, and what that is added to, to odd: by up to a whole place. */
static double allowed(const Tile *t, int row, int column, double *out_exact) {
    double exact = 0, magnitude = 0, lost = 0, roundings = DEPTH * PAIR + 2;
#if defined(__aarch64__)
    roundings += 2;
#endif
    for (int k = 0; k < DEPTH * PAIR; k++) {
        double x = number_of(&t->x[row][k]), w = number_of(&t->weight[k / PAIR][column][k % PAIR]);
        exact += x * w;
        magnitude += fabs(x * w);
        if (fabs(x) < 0x1p-126 || fabs(w) < 0x1p-126) lost += fabs(x * w);
        lost += 2 * 0x1p-126;
    }
    *out_exact = exact * (double)t->scale + (double)t->bias[column];
    magnitude = magnitude * (double)t->scale + fabs((double)t->bias[column]);
    return roundings * 0x1p-24 / (1 - roundings * 0x1p-24) * magnitude + lost * (double)t->scale + 0x1p-126;
}

static void check_tile(const TileSet *set, int index, int vectors, int rows, int columns, uint64_t *state) {
    static Tile t;
    const Numbers *n = &numbers[(rows + columns) % (int)(sizeof numbers / sizeof *numbers)];
    t.scale = columns % 2 ? 1 : 0.3f;
    fill(t.x[0], TILE_MOST_ROWS * DEPTH * PAIR, n, state);
    fill(t.weight[0][0], DEPTH * MOST_COLUMNS * PAIR, n, state);
    for (int j = 0; j < MOST_COLUMNS; j++) t.bias[j] = rows % 2 ? 0 : (float)anchor_case_below(state, 9) - 4;
    multiply(&t, set, vectors, rows, columns);
    for (int i = 0; i < rows; i++) {
        for (int j = 0; j < columns; j++) {
            double exact, most = allowed(&t, i, j, &exact), got = (double)t.results[i][j];
            cr_assert_leq(fabs(got - exact), most, "set %d, %s, %d rows, %d columns, at [%d, %d]: %g for %g", index,
                          n->what, rows, columns, i, j, got, exact);
        }
        uint32_t beyond;
        memcpy(&beyond, &t.results[i][columns], sizeof beyond);
        cr_assert_eq(beyond, 0x55555555, "set %d writes beyond its columns", index);
    }
}

enum { SETS = 6 };

/* All that this machine runs, AMX in plain memory among them. */
static int sets_here(const TileSet *sets[SETS]) {
    int count = tile_sets_of_pairs(sets);
    cr_assert_eq(sets[0], tile_set_pairs());
#if defined(__x86_64__)
    extern const TileSet tile_pairs_amx_plain;
    if (vector_isa() == VECTOR_AVX512) sets[count++] = &tile_pairs_amx_plain;
#endif
    return count;
}

Test(pairs, every_tile_of_every_instruction_set_sums_within_its_roundings) {
    const TileSet *sets[SETS];
    each_tile(sets, sets_here(sets), 1, check_tile);
}

Test(pairs, all_sets_agree_on_sums_that_are_exact) {
    const TileSet *sets[SETS];
    int count = sets_here(sets);
    for (int s = 0; s < count; s++) cr_expect(tile_pairs_agree(sets[s]), "set %d", s);
    TileSet wrong = wrong_set(tile_set_pairs(), tile_set_quads());
    cr_expect_not(tile_pairs_agree(&wrong));
}

/* ---- results in bf16 ---- */

typedef struct Halves {
    uint16_t in_registers[TILE_MOST_ROWS][MOST_COLUMNS + 1], in_memory[TILE_MOST_ROWS][MOST_COLUMNS + 1],
        addend[TILE_MOST_ROWS][MOST_COLUMNS + 1];
} Halves;

/* Where the halves of a row would have to begin for its floats at `results`. */
static char *beginning_of(const void *halves, const void *results) {
    return (char *)(uintptr_t)halves - (uintptr_t)results / 2;
}

static void check_ends(const TileSet *set, int index, int vectors, int rows, int columns, uint64_t *state) {
    static Tile t;
    static Halves h;
    fill(t.x[0], TILE_MOST_ROWS * DEPTH * PAIR, &numbers[0], state);
    fill(t.weight[0][0], DEPTH * MOST_COLUMNS * PAIR, &numbers[0], state);
    fill(h.addend[0], sizeof h.addend / sizeof h.addend[0][0], &numbers[0], state);
    t.scale = rows % 3 ? 1 : 0.3f;
    float bias[MOST_COLUMNS];
    for (int j = 0; j < MOST_COLUMNS; j++) bias[j] = (float)anchor_case_below(state, 9) / 3 - 1, t.bias[j] = 0;
    memset(&h.in_registers, 0x55, sizeof h.in_registers);
    TileEnds ends = {.to = beginning_of(h.in_registers, t.results), .bias = rows % 2 ? bias : NULL};
    if (columns % 2) ends.addend = beginning_of(h.addend, t.results);
    if (columns % 3) ends.bounds = (Bounds){.clamp = true, .low = 0, .high = 6, .scale = 1};
    multiply_to(&t, set, vectors, rows, columns, &ends);
    multiply(&t, set, vectors, rows, columns);
    ends.to = beginning_of(h.in_memory, t.results);
    for (int i = 0; i < rows; i++) {
        set->end_row(&ends, t.results[i], t.results[i], 0, columns);
        for (int j = 0; j < columns; j++) {
            float x = t.results[i][j];
            if (ends.bias) x += bias[j];
            if (ends.addend) x += (float)number_of(&h.addend[i][j]);
            if (ends.bounds.clamp) x = x < 0 ? 0 : x > 6 ? 6 : x;
            cr_assert(h.in_registers[i][j] == f32_to_bf16(x) && h.in_memory[i][j] == f32_to_bf16(x),
                      "set %d, %d rows, %d columns, at [%d, %d]: %04x and %04x for %g", index, rows, columns, i, j,
                      h.in_registers[i][j], h.in_memory[i][j], (double)x);
        }
        cr_assert_eq(h.in_registers[i][columns], 0x5555, "set %d writes beyond its columns", index);
    }
}

Test(pairs, sums_end_as_bf16_in_registers_as_in_memory) {
    const TileSet *sets[SETS];
    each_tile(sets, sets_here(sets), 3, check_ends);
}

/* ---- what is no finite number ---- */

typedef struct Special {
    const char *what;
    float x[2], w[2], result; /* two products of a sum of which all else is 0 */
} Special;

static const Special specials[] = {
    {"infinity", {INFINITY, 1}, {2, 1}, INFINITY},
    {"minus infinity in the second place", {1, -INFINITY}, {2, 1}, -INFINITY},
    {"infinities of one sign", {INFINITY, INFINITY}, {1, 2}, INFINITY},
    {"infinities of two signs", {INFINITY, -INFINITY}, {1, 2}, NAN},
    {"infinity times zero", {INFINITY, 1}, {0, 1}, NAN},
    {"not a number", {NAN, 1}, {1, 1}, NAN},
    {"not a number in the second place of the weight", {1, 1}, {1, NAN}, NAN},
    {"not a number times zero", {NAN, 1}, {0, 1}, NAN},
    {"beyond the largest", {0x1p100f, 0}, {0x1p100f, 1}, INFINITY},
    {"the largest", {0x1.fep127f, 0}, {1, 1}, 0x1.fep127f},
    {"zero", {0, -0.0f}, {1, 1}, 0},
};

Test(pairs, infinities_and_not_a_numbers_go_through_sums) {
    static Tile t;
    const TileSet *sets[SETS];
    int count = sets_here(sets);
    t.scale = 1;
    for (int s = 0; s < count; s++)
        for (size_t i = 0; i < sizeof specials / sizeof *specials; i++)
            for (int k = 0; k < DEPTH; k += DEPTH - 1) {
                memset(t.x, 0, sizeof t.x);
                memset(t.weight, 0, sizeof t.weight);
                for (int p = 0; p < PAIR; p++) {
                    t.x[1][k * PAIR + p] = half_of(specials[i].x[p]);
                    t.weight[k][2][p] = half_of(specials[i].w[p]);
                }
                multiply(&t, sets[s], 1, 3, 3);
                float got = t.results[1][2], want = specials[i].result;
                cr_assert(isnan(want) ? isnan(got) : got == want, "set %d, %s: %g for %g", s, specials[i].what,
                          (double)got, (double)want);
                if (isfinite(specials[i].w[0]) && isfinite(specials[i].w[1])) cr_assert_eq(t.results[0][2], 0);
            }
}
