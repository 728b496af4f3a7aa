/* SPDX-License-Identifier: Apache-2.0 */
/* Rows rounded to i8 in blocks, and all tiles that multiply them by weights in blocks. */
#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

#include "runtime/device/cpu/product.h"
#include "runtime/device/cpu/matmul/rounded.h"

enum { ROWS = TILE_BLOCKS_MOST, DEPTH = 200, COLUMNS = 48, ROOM = 1800 }; /* ROOM: bytes of a row in blocks */

static uint64_t draw(uint64_t *state) {
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return *state >> 33;
}

/* Where in its block the number of depth k is; words: two bytes. */
static int64_t place_of(WeightKind kind, bool words, int64_t k) {
    int word = weight_word(kind), quads = word / 4, in = (int)(k % word);
    if (words) return 8 + 2 * (k / 4 * 4 + (in % 2 ? 2 : 0) + in / 2);
    return 8 + k / word * word + 4 * (in % quads) + in / quads;
}

static int number_at(WeightKind kind, bool words, const char *block, int64_t k) {
    const char *at = block + place_of(kind, words, k);
    int16_t word;
    memcpy(&word, at, sizeof word);
    return words ? word : (int8_t)*at;
}

static bool in_words(const TileBlocks *set, WeightKind kind) { return set->words && kind == WEIGHT_INT8; }

/* As this machine's tiles take it. */
static int byte_at(WeightKind kind, const char *block, int64_t k) {
    return number_at(kind, in_words(tile_blocks(), kind), block, k);
}

Test(rounded, a_block_has_a_scale_and_a_sum) {
    static const WeightKind kinds[] = {WEIGHT_INT8, WEIGHT_INT4, WEIGHT_INT2};
    for (int t = 0; t < 3; t++) {
        WeightForm form = {kinds[t], 32, false};
        float row[70];
        const bool words = in_words(tile_blocks(), form.kind);
        const int each = words ? 72 : 40;
        char bytes[3 * 72];
        for (int k = 0; k < 70; k++) row[k] = (float)(k % 32 - 16) * (k < 32 ? 1 : k < 64 ? 0x1p-140f : 0x1p100f);
        row[3] = 254, row[4] = 1, row[5] = 3, row[6] = -254; /* quotients of .5, 1.5 */
        cr_assert_eq(rounded_row_bytes(&form, 70), 3 * each);
        rounded_row(&form, row, 70, bytes);
        const int wanted[] = {-8, -8, -7, 127, 0, 2, -127}; /* -16 / 2, -7.5, -7 */
        for (int k = 0; k < 7; k++) cr_expect_eq(byte_at(form.kind, bytes, k), wanted[k], "%d", k);
        for (int b = 0; b < 3; b++) {
            RoundedHead head;
            memcpy(&head, bytes + each * b, sizeof head);
            int sum = 0;
            float most = 0;
            for (int k = 0; k < 32; k++) {
                float x = 32 * b + k < 70 ? row[32 * b + k] : 0,
                      found = (float)byte_at(form.kind, bytes + each * b, k) * head.scale;
                sum += byte_at(form.kind, bytes + each * b, k);
                most = fmaxf(most, fabsf(x));
                cr_expect_leq(fabsf(found - x), 0.5001f * head.scale + 0x1p-149f * 64, "block %d, depth %d: %g, not %g",
                              b, k, (double)found, (double)x);
            }
            cr_expect_eq(head.start, -sum * (t == 0 ? 128 : t == 1 ? 8 : 2));
            cr_expect_eq(head.scale, most / 127);
        }
    }
}

Test(rounded, what_is_not_finite_makes_its_block_nan) {
    WeightForm form = {WEIGHT_INT4, 16, false};
    const float wrong[] = {NAN, INFINITY, -INFINITY};
    for (int t = 0; t < 3; t++) {
        float row[32] = {1, 2, 3};
        char bytes[2 * 24];
        RoundedHead heads[2];
        row[31] = wrong[t];
        rounded_row(&form, row, 32, bytes);
        memcpy(&heads[0], bytes, 8), memcpy(&heads[1], bytes + 24, 8);
        cr_expect(heads[0].scale == 3.0f / 127 && heads[0].start == -8 * (42 + 85 + 127), "%d", t);
        cr_expect(isnan(heads[1].scale) && heads[1].start == 0, "%d", t);
    }
    float zeros[16] = {0, -0.0f};
    char bytes[24];
    RoundedHead head;
    rounded_row(&form, zeros, 16, bytes);
    memcpy(&head, bytes, 8);
    cr_expect(head.scale == 0 && head.start == 0 && byte_at(form.kind, bytes, 1) == 0);
}

static double element_of(const WeightForm *form, const char *blocks, int64_t k) {
    double sum = 0;
    for (int d = 0; d < ROW_DIGITS; d++) {
        const char *block = blocks + (k / form->block * ROW_DIGITS + d) * rounded_block_bytes(form->block, false);
        RoundedHead head;
        memcpy(&head, block, sizeof head);
        sum += (double)number_at(form->kind, false, block, k % form->block) * (double)head.scale;
    }
    return sum;
}

Test(rounded, digits_add_up_to_the_row) {
    static const WeightKind kinds[] = {WEIGHT_INT4, WEIGHT_INT2};
    enum { LENGTH = 5 * 32 - 3 };
    uint64_t state = 3;
    for (int t = 0; t < 2; t++) {
        WeightForm form = {kinds[t], 32, false};
        static const float sizes[] = {1, 0x1p-149f * 300, 0x1p127f, 0, 0x1.fffffep-61f};
        float row[LENGTH];
        char bytes[5 * ROW_DIGITS * 40 + 1]; /* number_at reads two */
        for (int k = 0; k < LENGTH; k++)
            row[k] = ((float)draw(&state) * 0x1p-30f - 1) * sizes[k / 32] * (k % 32 ? 1 : 0.99f);
        cr_assert_leq(rounded_row_bytes(&form, LENGTH) * ROW_DIGITS, (int64_t)sizeof bytes);
        digits_row(&form, row, LENGTH, bytes);
        for (int b = 0; b < 5; b++) {
            double most = 0;
            for (int k = 32 * b; k < 32 * b + 32 && k < LENGTH; k++) most = fmax(most, fabs((double)row[k]));
            for (int k = 32 * b; k < 32 * b + 32; k++) {
                double found = element_of(&form, bytes, k), x = k < LENGTH ? (double)row[k] : 0;
                cr_expect_leq(fabs(found - x), most * 0x1p-22 + 0x1p-150, "block %d, depth %d: %.9g, not %.9g", b, k,
                              found, x);
            }
            for (int d = 0; d < ROW_DIGITS; d++) {
                const char *block = bytes + (b * ROW_DIGITS + d) * 40;
                RoundedHead head;
                int sum = 0;
                memcpy(&head, block, sizeof head);
                for (int k = 0; k < 32; k++) sum += number_at(form.kind, false, block, k);
                cr_expect_eq(head.start, -sum * weight_zero(form.kind));
            }
        }
        row[40] = t ? INFINITY : NAN;
        digits_row(&form, row, LENGTH, bytes);
        cr_expect(isfinite(element_of(&form, bytes, 3)) && isnan(element_of(&form, bytes, 41)) &&
                  isfinite(element_of(&form, bytes, 64)));
    }
}

/* Scales are powers of two, so that all is exact, whatever order it is done in. extreme: all factors are the largest that there are,
 * whose sums a set may not saturate. digits: one row of digits. */
static void check_tile(const TileBlocks *set, int index, WeightKind kind, bool zeros, bool extreme, bool digits,
                       int rows, int columns, int64_t depth, uint64_t *state) {
    const int block_size = 16 << draw(state) % 4;
    const WeightForm form = {kind, block_size, zeros};
    const bool apart = draw(state) % 2; /* rows are not equally spaced */
    const int word = weight_word(kind), middle = 1 << (32 / word - 1);
    static char x[2 * ROWS][ROOM];
    static _Alignas(64) float panel[2 * COLUMNS * DEPTH], results[ROWS][COLUMNS];
    static int values[DEPTH][COLUMNS];
    const void *from[ROWS];
    void *to[ROWS];
    const bool words = in_words(set, kind);
    const int each = digits ? ROW_DIGITS : 1, bytes = 8 + block_size * (1 + words);
    cr_assert_leq(each * bytes * ((DEPTH + block_size - 1) / block_size), ROOM);
    int64_t blocks = (depth + block_size - 1) / block_size;
    for (int i = 0; i < rows; i++) {
        char *row = x[apart ? 2 * i + i % 2 : i];
        memset(row, 0, ROOM);
        from[i] = row, to[i] = results[i];
        for (int64_t b = 0; b < blocks * each; b++) {
            char *block = row + b * bytes;
            RoundedHead head = {ldexpf(1, (int)(draw(state) % 3)), 0};
            for (int64_t k = 0; k < block_size && b / each * block_size + k < depth; k++) {
                int16_t byte = extreme  ? (int16_t)(digits ? -128 : 127)
                               : digits ? (int16_t)((int)(draw(state) % 256) - 128)
                                        : (int16_t)((int)(draw(state) % 255) - 127);
                memcpy(block + place_of(kind, words, k), &byte, 1 + words); /* the lower byte first */
                head.start -= byte * middle;
            }
            memcpy(block, &head, sizeof head);
        }
        for (int j = 0; j < COLUMNS; j++) results[i][j] = -1;
    }
    float *at = panel;
    static float scales[DEPTH][COLUMNS], points[DEPTH][COLUMNS];
    for (int64_t b = 0; b < blocks; b++) {
        int64_t count = depth - b * block_size < block_size ? depth - b * block_size : block_size;
        for (int j = 0; j < COLUMNS; j++)
            at[j] = scales[b][j] = ldexpf(draw(state) % 2 ? 1 : -1, (int)(draw(state) % 3));
        at += COLUMNS;
        for (int j = 0; j < COLUMNS; j++) points[b][j] = zeros ? (float)((int)(draw(state) % 9) - 4) : 0;
        if (zeros) memcpy(at, points[b], sizeof points[b]), at += COLUMNS;
        for (int64_t k = 0; k < count; k += word, at += COLUMNS)
            for (int j = 0; j < COLUMNS; j++) {
                uint32_t bits = extreme ? UINT32_MAX : (uint32_t)draw(state) ^ (uint32_t)draw(state) << 8;
                memcpy(at + j, &bits, sizeof bits);
                for (int64_t i = 0; i < word && k + i < count; i++)
                    values[b * block_size + k + i][j] =
                        (int)(bits >> (32 / word * i) & (uint32_t)(2 * middle - 1)) - middle;
            }
    }
    TileCall call = {.rows = from,
                     .row_count = rows,
                     .taps = 1,
                     .depth = depth,
                     .weight = panel,
                     .weight_stride = COLUMNS,
                     .form = &form,
                     .results = to,
                     .columns = columns};
    (digits ? set->digits[kind] : set->products[kind][rows])(&call);
    for (int i = 0; i < rows; i++)
        for (int j = 0; j < COLUMNS; j++) {
            double wanted = 0;
            for (int64_t n = 0; n < depth * each; n++) {
                RoundedHead head;
                const int64_t k = n / each;
                const char *block = (const char *)from[i] + (k / block_size * each + n % each) * bytes;
                memcpy(&head, block, sizeof head);
                wanted += (double)number_at(kind, words, block, k % block_size) * (double)head.scale *
                          ((double)values[k][j] - (double)points[k / block_size][j]) *
                          (double)scales[k / block_size][j];
            }
            cr_assert_eq((double)results[i][j], j < columns ? wanted : -1,
                         "set %d, kind %d, %d rows, %d columns, depth %d: [%d, %d] is %g, not %g", index, kind, rows,
                         columns, (int)depth, i, j, (double)results[i][j], wanted);
        }
}

Test(rounded, all_sets_give_what_the_formula_says) {
    static const int64_t depths[] = {1, 16, 33, 64, 100, DEPTH};
    static const int heights[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 15, 16, 17, 31, 32};
    static const WeightKind kinds[] = {WEIGHT_INT8, WEIGHT_INT4, WEIGHT_INT2};
    extern const TileBlocks tile_blocks_amx_plain;
    const TileBlocks *sets[6];
    uint64_t state = 1;
    int count = tile_sets_of_blocks(sets);
    cr_assert_eq(tile_blocks(), sets[0]);
    sets[count++] = &tile_blocks_amx_plain;
    for (int s = 0; s < count; s++)
        for (size_t h = 0; h < sizeof heights / sizeof *heights && heights[h] <= sets[s]->rows; h++)
            for (int columns = 1; columns <= COLUMNS; columns += 1 + columns % 5)
                for (size_t d = 0; d < sizeof depths / sizeof *depths; d++)
                    for (int t = 0; t < 9; t++)
                        check_tile(sets[s], s, kinds[t % 3], t / 3 == 1, t / 3 == 2, false, heights[h], columns,
                                   depths[d], &state);
}

/* How many rows a tile has depends on how many threads there are. */
Test(rounded, few_and_many_rows_have_the_same_bits) {
    extern const TileBlocks tile_blocks_amx_plain;
    enum { SIZE = 32, BLOCKS = 3, BYTES = BLOCKS * (8 + SIZE), LINES = BLOCKS * (2 + SIZE / 8) };
    static char x[ROWS][BYTES];
    static float panel[LINES][COLUMNS], few[ROWS][COLUMNS], many[ROWS][COLUMNS];
    const WeightForm form = {WEIGHT_INT4, SIZE, true};
    uint64_t state = 5;
    const void *from[ROWS];
    void *to[2][ROWS];
    for (int i = 0; i < ROWS; i++) {
        from[i] = x[i], to[0][i] = few[i], to[1][i] = many[i];
        for (int b = 0; b < BLOCKS; b++) {
            RoundedHead head = {(float)draw(&state) * 0x1p-31f, 0};
            char *block = x[i] + b * (8 + SIZE);
            for (int k = 0; k < SIZE; k++) {
                block[8 + k] = (char)((int)(draw(&state) % 255) - 127);
                head.start -= 8 * block[8 + k];
            }
            memcpy(block, &head, sizeof head);
        }
    }
    for (int k = 0; k < LINES; k++)
        for (int j = 0; j < COLUMNS; j++) {
            uint32_t bits = (uint32_t)draw(&state) * 3;
            panel[k][j] = (float)draw(&state) * 0x1p-30f - 1;
            if (k % (LINES / BLOCKS) > 1) memcpy(&panel[k][j], &bits, sizeof bits);
        }
    TileCall call = {.taps = 1, .depth = BLOCKS * SIZE, .weight = panel, .weight_stride = COLUMNS, .form = &form};
    call.columns = COLUMNS;
    for (int way = 0; way < 2; way++) {
        call.row_count = way ? ROWS : 4;
        for (int i = 0; i < ROWS; i += call.row_count) {
            call.rows = from + i, call.results = to[way] + i;
            tile_blocks_amx_plain.products[form.kind][call.row_count](&call);
        }
    }
    cr_expect_eq(memcmp(few, many, sizeof few), 0);
}

/* The one with AMX's registers in memory cannot be used, but must be judged rightly. */
Test(rounded, sets_agree_with_plain_c) {
    extern const TileBlocks tile_blocks_amx_plain;
    TileBlocks wrong = tile_blocks_amx_plain;
    cr_expect(tile_blocks_agree(&tile_blocks_amx_plain));
    wrong.products[WEIGHT_INT4][wrong.rows] = wrong.products[WEIGHT_INT2][wrong.rows];
    cr_expect_not(tile_blocks_agree(&wrong));
}

Test(rounded, all_sets_add_up_the_digits_of_a_row) {
    static const int64_t depths[] = {1, 16, 33, 64, 100, DEPTH};
    const TileBlocks *sets[5];
    uint64_t state = 2;
    int count = tile_sets_of_blocks(sets), with = 0;
    for (int s = 0; s < count; s++)
        for (int t = 0; t < 9; t++) {
            WeightKind kind = (const WeightKind[]){WEIGHT_INT8, WEIGHT_INT4, WEIGHT_INT2}[t % 3];
            with += sets[s]->digits[kind] != NULL;
            for (int columns = 1; sets[s]->digits[kind] && columns <= COLUMNS; columns += 1 + columns % 5)
                for (size_t d = 0; d < sizeof depths / sizeof *depths; d++)
                    check_tile(sets[s], s, kind, t / 3 == 1, t / 3 == 2, true, 1, columns, depths[d], &state);
        }
    cr_expect(with > 0 || count == 1); /* plain C has none */
}
