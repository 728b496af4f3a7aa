/* SPDX-License-Identifier: Apache-2.0 */
/* Rows rounded to i8 in blocks, and all tiles that multiply them by weights in blocks. */
#include <criterion/criterion.h>
#include <float.h>
#include <math.h>
#include <stdlib.h>
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

/* A weight in blocks and what it holds, of COLUMNS. */
static _Alignas(64) float panel[2 * COLUMNS * DEPTH];
static int values[DEPTH][COLUMNS];
static float scales[DEPTH][COLUMNS], points[DEPTH][COLUMNS]; /* [block] */

/* Scales are powers of two, so that all is exact, whatever order it is done in. extreme: all numbers are the largest. */
static void draw_panel(const WeightForm *form, bool extreme, int64_t depth, uint64_t *state) {
    const int word = weight_word(form->kind), middle = 1 << (32 / word - 1), size = form->block;
    float *at = panel;
    for (int64_t b = 0; b * size < depth; b++) {
        int64_t count = depth - b * size < size ? depth - b * size : size;
        for (int j = 0; j < COLUMNS; j++)
            at[j] = scales[b][j] = ldexpf(draw(state) % 2 ? 1 : -1, (int)(draw(state) % 3));
        at += COLUMNS;
        for (int j = 0; j < COLUMNS; j++) points[b][j] = form->zeros ? (float)((int)(draw(state) % 9) - 4) : 0;
        if (form->zeros) memcpy(at, points[b], sizeof points[b]), at += COLUMNS;
        for (int64_t k = 0; k < count; k += word, at += COLUMNS)
            for (int j = 0; j < COLUMNS; j++) {
                uint32_t bits = extreme ? UINT32_MAX : (uint32_t)draw(state) ^ (uint32_t)draw(state) << 8;
                memcpy(at + j, &bits, sizeof bits);
                for (int64_t i = 0; i < word && k + i < count; i++)
                    values[b * size + k + i][j] = (int)(bits >> (32 / word * i) & (uint32_t)(2 * middle - 1)) - middle;
            }
    }
}

/* What a row's number at depth k is multiplied by. */
static double factor_of(int64_t k, int column, int block) {
    return ((double)values[k][column] - (double)points[k / block][column]) * (double)scales[k / block][column];
}

/* All is exact. extreme: all factors are the largest that there are, whose sums a set may not saturate. digits: one row of digits. */
static void check_tile(const TileBlocks *set, int index, WeightKind kind, bool zeros, bool extreme, bool digits,
                       int rows, int columns, int64_t depth, uint64_t *state) {
    const int block_size = 16 << draw(state) % 4;
    const WeightForm form = {kind, block_size, zeros};
    const bool apart = draw(state) % 2; /* rows are not equally spaced */
    const int middle = 1 << (32 / weight_word(kind) - 1);
    static char x[2 * ROWS][ROOM];
    static float results[ROWS][COLUMNS];
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
    draw_panel(&form, extreme, depth, state);
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
                          factor_of(k, j, block_size);
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
    static float lines[LINES][COLUMNS], few[ROWS][COLUMNS], many[ROWS][COLUMNS];
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
            lines[k][j] = (float)draw(&state) * 0x1p-30f - 1;
            if (k % (LINES / BLOCKS) > 1) memcpy(&lines[k][j], &bits, sizeof bits);
        }
    TileCall call = {.taps = 1, .depth = BLOCKS * SIZE, .weight = lines, .weight_stride = COLUMNS, .form = &form};
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

/* ---- rows in parts ---- */

/* Where in its block a part has depth k. */
static int64_t part_place(const WeightForm *form, int part, int64_t k) {
    const int64_t half = weight_word(form->kind) / 2, in = k % (2 * half);
    return 2 * (part * form->block + k - in + in % half * 2 + in / half);
}

static float part_at(const WeightForm *form, const char *row, int part, int64_t k) {
    uint16_t bits;
    memcpy(&bits, row + k / form->block * parts_block_bytes(form) + part_place(form, part, k % form->block),
           sizeof bits);
    return bf16_to_f32(bits);
}

static float sum_at(const WeightForm *form, const char *row, int64_t block) {
    float sum;
    memcpy(&sum, row + block * parts_block_bytes(form) + parts_sum_at(form->block), sizeof sum);
    return sum;
}

Test(rounded, parts_add_up_to_the_row) {
    static const WeightKind kinds[] = {WEIGHT_INT8, WEIGHT_INT4, WEIGHT_INT2};
    enum { LENGTH = 3 * 32 - 5, MOST_BYTES = 4 * 256 };
    uint64_t state = 4;
    for (int t = 0; t < 6; t++) {
        const WeightForm form = {kinds[t % 3], 32, t / 3};
        float row[LENGTH];
        char bytes[MOST_BYTES];
        for (int k = 0; k < LENGTH; k++) {
            const float size = k % 3 ? ldexpf(1, (int)(draw(&state) % 200) - 100) : 0x1p127f;
            row[k] = ((float)draw(&state) * 0x1p-30f - 1) * size;
        }
        row[1] = -FLT_MAX, row[2] = -0.0f, row[40] = INFINITY, row[41] = -INFINITY, row[42] = NAN;
        uint32_t bits = 0xff800001; /* not a number, but by its last bit alone */
        memcpy(&row[43], &bits, sizeof bits);
        const int64_t size = parts_row_bytes(&form, LENGTH);
        cr_assert(size <= MOST_BYTES && size >= 3 * parts_block_bytes(&form) && size % 64 == 0);
        parts_row(&form, row, LENGTH, bytes);
        for (int64_t k = 0; k < 96; k++) {
            float p[ROW_PARTS];
            for (int i = 0; i < ROW_PARTS; i++) p[i] = part_at(&form, bytes, i, k);
            const float x = k < LENGTH ? row[k] : 0;
            if (isfinite(x))
                cr_expect_eq(p[0] + (p[1] + p[2]), x, "%d: %a, not %a", (int)k, (double)(p[0] + p[1] + p[2]),
                             (double)x);
            else
                cr_expect((isnan(x) ? isnan(p[0]) : p[0] == x) && p[1] == 0 && p[2] == 0, "%d", (int)k);
        }
        for (int b = 0; b < 3 && form.zeros; b += 2) {
            double wanted = 0;
            for (int k = 32 * b; k < 32 * b + 32 && k < LENGTH; k++) wanted += (double)row[k];
            cr_expect_eq(sum_at(&form, bytes, b), (float)wanted);
        }
        cr_expect(!form.zeros || isnan(sum_at(&form, bytes, 1)));
    }
}

/* Rows whose parts are any small numbers, of which all sums are exact. */
static void check_parts(const TileBlocks *set, WeightKind kind, bool zeros, int rows, int columns, int64_t depth,
                        uint64_t *state) {
    enum { BYTES = 7 * DEPTH * 2 + 1024 };
    const WeightForm form = {kind, 16 << draw(state) % 4, zeros};
    const bool apart = draw(state) % 2;
    static _Alignas(64) char x[2 * ROWS][BYTES];
    static float results[ROWS][COLUMNS];
    const void *from[ROWS];
    void *to[ROWS];
    cr_assert_leq((depth + form.block - 1) / form.block * parts_block_bytes(&form), BYTES);
    draw_panel(&form, false, depth, state);
    for (int i = 0; i < rows; i++) {
        char *row = x[apart ? 2 * i + i % 2 : i];
        memset(row, 0, BYTES);
        from[i] = row, to[i] = results[i];
        for (int64_t b = 0; b * form.block < depth; b++) {
            char *block = row + b * parts_block_bytes(&form);
            float sum = 0;
            for (int64_t k = 0; k < form.block && b * form.block + k < depth; k++)
                for (int p = 0; p < ROW_PARTS; p++) {
                    const float part = (float)((int)(draw(state) % 33) - 16);
                    const uint16_t bits = f32_to_bf16(part);
                    memcpy(block + part_place(&form, p, k), &bits, sizeof bits);
                    sum += part;
                }
            if (zeros) memcpy(block + parts_sum_at(form.block), &sum, sizeof sum);
        }
        for (int j = 0; j < COLUMNS; j++) results[i][j] = -1;
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
    set->parts[kind](&call);
    for (int i = 0; i < rows; i++)
        for (int j = 0; j < COLUMNS; j++) {
            double wanted = 0;
            for (int64_t k = 0; k < depth; k++)
                for (int p = 0; p < ROW_PARTS; p++)
                    wanted += (double)part_at(&form, from[i], p, k) * factor_of(k, j, form.block);
            cr_assert_eq((double)results[i][j], j < columns ? wanted : -1,
                         "kind %d, %d rows, %d columns, depth %d: [%d, %d] is %g, not %g", kind, rows, columns,
                         (int)depth, i, j, (double)results[i][j], wanted);
        }
}

Test(rounded, rows_in_parts_give_what_the_formula_says) {
    static const int64_t depths[] = {1, 16, 33, 64, 100, DEPTH};
    static const int heights[] = {1, 2, 9, 15, 16, 17, 31, 32};
    static const WeightKind kinds[] = {WEIGHT_INT8, WEIGHT_INT4, WEIGHT_INT2};
    extern const TileBlocks tile_blocks_amx_plain;
    const TileBlocks *sets[6];
    uint64_t state = 6;
    int count = tile_sets_of_blocks(sets);
    sets[count++] = &tile_blocks_amx_plain;
    for (int s = 0; s < count; s++)
        for (size_t h = 0; sets[s]->parts[WEIGHT_INT4] && h < sizeof heights / sizeof *heights; h++)
            for (int columns = 1; columns <= COLUMNS; columns += 1 + columns % 5)
                for (size_t d = 0; d < sizeof depths / sizeof *depths; d++)
                    for (int t = 0; t < 6; t++)
                        check_parts(sets[s], kinds[t % 3], t / 3 == 1, heights[h], columns, depths[d], &state);
}

/* A whole product of such rows, on all threads, in blocks of the depth. */
typedef struct PartRows {
    const char *rows;
    int64_t row_bytes, columns;
    float *results;
} PartRows;

static void fill_part_rows(const void *context, int64_t first, RowBlock *block) {
    const PartRows *p = context;
    for (int i = row_block_interior(block, block->count); i < block->count; i++) {
        block->rows[i] = p->rows + (first + i) * p->row_bytes;
        block->results[i] = p->results + (first + i) * p->columns;
    }
}

Test(rounded, a_product_of_rows_in_parts_is_as_near_as_f32) {
    extern const TileBlocks tile_blocks_amx_plain;
    enum { LONG = 1500, WIDE = 70, HIGH = 45 };
    static const int64_t no_offset[1] = {0};
    const WeightForm form = {WEIGHT_INT4, 32, false};
    Weight weight = {.set = tile_set(DT_F32), .form = form, .groups = 1, .columns = WIDE, .taps = 1, .depth = LONG};
    uint64_t state = 7;
    size_t bytes;
    cr_assert_null(weight_bytes(&weight, &bytes));
    float *full = calloc((size_t)LONG * WIDE, sizeof *full), *x = calloc((size_t)HIGH * LONG, sizeof *x),
          *results = calloc((size_t)HIGH * WIDE, sizeof *results);
    const int64_t row_bytes = parts_row_bytes(&form, LONG);
    char *rows = aligned_alloc(64, (size_t)(HIGH * row_bytes));
    weight.data = aligned_alloc(64, (bytes + 63) / 64 * 64);
    for (int64_t i = 0; i < LONG * WIDE; i++) full[i] = (float)draw(&state) * 0x1p-30f - 1;
    for (int64_t i = 0; i < HIGH * LONG; i++) x[i] = (float)draw(&state) * 0x1p-30f - 1;
    const WeightSource source = {.data = full, .column = 1, .depth = WIDE, .taps = no_offset, .scale = 1};
    cr_assert_null(weight_pack(&weight, &source, NULL));
    for (int64_t i = 0; i < HIGH; i++) parts_row(&form, x + i * LONG, LONG, rows + i * row_bytes);
    const PartRows parts = {rows, row_bytes, WIDE, results};
    const BoundEpilogue epilogue = {.result = results};
    const Product product = {.rows = HIGH,
                             .line = 1,
                             .fill = fill_part_rows,
                             .context = &parts,
                             .weight = &weight,
                             .offsets = no_offset,
                             .zeros = no_offset,
                             .merged = 1,
                             .inside = true,
                             .row_kind = ROWS_PARTS,
                             .blocks = tile_blocks()->parts[form.kind] ? tile_blocks() : &tile_blocks_amx_plain,
                             .epilogue = &epilogue};
    Scratch scratch = {0};
    cr_assert_null(product_run(&product, 1, NULL, &scratch));
    for (int64_t index = 0; index < weight_panels(&weight); index++) {
        const Panel p = weight_panel(&weight, index);
        const int64_t width = (int64_t)p.vectors * weight.set->lanes;
        float *wide = calloc((size_t)(LONG * width), sizeof *wide);
        tile_isa()->widen(&(WidenCall){&form, (char *)weight.data + p.at, width, 0, LONG, wide});
        for (int64_t i = 0; i < HIGH; i++)
            for (int j = 0; j < p.columns; j++) {
                double wanted = 0, sizes = 0;
                for (int64_t k = 0; k < LONG; k++) {
                    const double each = (double)x[i * LONG + k] * (double)wide[k * width + j];
                    wanted += each, sizes += fabs(each);
                }
                const double found = (double)results[i * WIDE + p.first + j];
                cr_expect_leq(fabs(found - wanted), sizes * 0x1p-22, "[%d, %d]: %.9g, not %.9g", (int)i, j, found,
                              wanted);
            }
        free(wide);
    }
    scratch_release(&scratch);
    free(full), free(x), free(results), free(rows), free(weight.data);
}
