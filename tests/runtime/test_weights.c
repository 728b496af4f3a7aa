/* SPDX-License-Identifier: Apache-2.0 */
/* Weights of reduced precision: what they are rounded to, against an independent rounding; products with them, which
 * must have the bits of f32 products with the rounded weight; and what is refused. */
#include <criterion/criterion.h>

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../base/share.h"
#include "anchor_body.h"
#include "anchor_kernel.h"
#include "models.h"
#include "importer/importer.h"
#include "lowering/anchor/anchor_eval.h"
#include "lowering/anchors.h"
#include "passes/passes.h"
#include "policy/policy.h"
#include "runtime/device/cpu/anchor.h"
#include "runtime/device/cpu/product.h"
#include "skip.h"

static const Precision forms[] = {PRECISION_F16, PRECISION_BF16, PRECISION_INT8, PRECISION_INT4};
static const char *const form_names[] = {"f16", "bf16", "int8", "int4"};
enum { FORMS = 4 };

static Pool *pool_of(int threads) {
    Pool *pool;
    cr_assert_null(pool_shared(threads, &pool));
    return pool;
}

/* ---- the rounding, told another way ---- */

/* To `bits` of fraction from 2^least on: to nearest even, saturating. */
static double round_float(double x, int bits, int least, double most) {
    int exponent;
    frexp(x, &exponent);
    double unit = ldexp(1, (exponent - 1 < least ? least : exponent - 1) - bits);
    double y = nearbyint(x / unit) * unit;
    return y > most ? most : y < -most ? -most : y;
}

/* values[0, stride, 2 stride...], `length` of them: a column. */
static void round_column(Precision form, float *values, int64_t stride, int64_t length) {
    float most = form == PRECISION_INT8 ? 127 : 7;
    for (int64_t k = 0; k < length; k++) {
        float *x = &values[k * stride];
        if (form == PRECISION_F16) *x = (float)round_float((double)*x, 10, -14, 65504);
        if (form == PRECISION_BF16) *x = (float)round_float((double)*x, 7, -126, (double)0x1.fep127f);
    }
    for (int64_t k = 0; k < length && (form == PRECISION_INT8 || form == PRECISION_INT4); k += NARROW_BLOCK) {
        float largest = 0;
        int64_t end = k + NARROW_BLOCK < length ? k + NARROW_BLOCK : length;
        for (int64_t i = k; i < end; i++) largest = fmaxf(largest, fabsf(values[i * stride]));
        float scale = largest / most;
        for (int64_t i = k; i < end; i++) {
            float whole = scale > 0 ? nearbyintf(values[i * stride] / scale) : 0;
            values[i * stride] = (fminf(fmaxf(whole, -most), most) + 0.0f) * scale; /* there is one zero */
        }
    }
}

/* ---- tiles of all instruction sets ---- */

/* A product with narrow weights has the bits of that with wide ones, or of blocks their rounding errors; largest: what a column's elements
 * are at most before what stands for 0 is taken off, NULL: as they are. */
static void check_products(const TileIsa *isa, const WeightForm *form, const char *name, int vectors, int m,
                           int64_t depth, const float *wide, const float *largest, const void *narrow,
                           uint64_t *state) {
    enum { MOST_WIDTH = 64, MOST_DEPTH = 200 };
    static float x[NARROW_TILE_ROWS][MOST_DEPTH], y[2][NARROW_TILE_ROWS][MOST_WIDTH];
    int64_t width = (int64_t)vectors * isa->f32.lanes, offset = 0;
    const void *rows[NARROW_TILE_ROWS];
    void *results[2][NARROW_TILE_ROWS];
    for (int i = 0; i < m; i++) {
        rows[i] = x[i];
        for (int64_t k = 0; k < depth; k++) x[i][k] = (float)(anchor_case_bits(state) >> 40) * 0x1p-23f - 1;
        for (int side = 0; side < 2; side++) results[side][i] = memset(y[side][i], 0, sizeof y[side][i]);
    }
    TileCall call = {.rows = rows, .offsets = &offset, .taps = 1, .depth = depth, .weight_stride = width, .form = form};
    call.columns = (int)width - anchor_case_below(state, isa->f32.lanes);
    call.weight = wide, call.ahead = (const char *)wide, call.results = results[0];
    isa->f32.products[vectors][m](&call);
    call.weight = narrow, call.results = results[1];
    isa->narrow[form->kind][vectors][m](&call);
    for (int i = 0; i < m; i++)
        for (int64_t j = 0; j < width; j++) {
            double bound = 0;
            for (int64_t k = 0; weight_in_blocks(form) && k < depth; k++)
                bound += fabs((double)x[i][k] * (double)(largest ? largest[j] : wide[k * width + j]));
            bound = bound * 0x1p-23 * (double)(depth + 2) + (weight_in_blocks(form) ? 0x1p-120 : 0);
            cr_assert(fabs((double)y[0][i][j] - (double)y[1][i][j]) <= bound,
                      "%s %s, %d vectors, %d rows, depth %lld: %g, not %g", isa->name, name, vectors, m,
                      (long long)depth, (double)y[1][i][j], (double)y[0][i][j]);
        }
}

static void check_tile(const TileIsa *isa, int form, int vectors, int m, int64_t depth, uint64_t *state) {
    static const WeightKind kinds[] = {WEIGHT_F16, WEIGHT_BF16, WEIGHT_INT8, WEIGHT_INT4};
    enum { MOST_WIDTH = 64, MOST_DEPTH = 200 };
    static float wide[MOST_DEPTH * MOST_WIDTH], want[MOST_DEPTH * MOST_WIDTH], got[MOST_DEPTH * MOST_WIDTH],
        narrow[MOST_DEPTH * MOST_WIDTH * 2];
    int64_t width = (int64_t)vectors * isa->f32.lanes;
    WeightForm kept = {kinds[form], NARROW_BLOCK, false};
    for (int64_t i = 0; i < depth * width; i++) {
        float number = (float)(anchor_case_bits(state) >> 40) * 0x1p-23f - 1;
        wide[i] = ldexpf(number, anchor_case_below(state, 24) - 20);
        if (!anchor_case_below(state, 40)) wide[i] = 0;
        if (!anchor_case_below(state, 200)) wide[i] *= 1e30f;
        if (!anchor_case_below(state, 200)) wide[i] *= 1e-36f;
        want[i] = wide[i];
    }
    for (int64_t j = 0; j < width; j++) round_column(forms[form], want + j, width, depth);
    cr_assert_leq(narrow_column_bytes(&kept, depth) * (size_t)width, sizeof narrow);
    narrow_panel(kept.kind, wide, depth, width, narrow);
    int64_t first = anchor_case_below(state, (int)depth + 1),
            end = first + anchor_case_below(state, (int)(depth - first) + 1);
    isa->widen(&(WidenCall){&kept, narrow, width, 0, depth, got});
    cr_assert_arr_eq(got, want, (size_t)(depth * width) * sizeof *got, "%s %s, %d vectors, depth %lld", isa->name,
                     form_names[form], vectors, (long long)depth);
    isa->widen(&(WidenCall){&kept, narrow, width, first, end, got});
    cr_assert_arr_eq(got, want + first * width, (size_t)((end - first) * width) * sizeof *got,
                     "%s %s, depths %lld to %lld", isa->name, form_names[form], (long long)first, (long long)end);
    float largest[MOST_WIDTH] = {0}; /* of -7..7 times a scale, which stand there as 1..15 */
    for (int64_t i = 0; i < depth * width; i++) largest[i % width] = fmaxf(largest[i % width], fabsf(want[i]) * 15 / 7);
    check_products(isa, &kept, form_names[form], vectors, m, depth, want, kept.kind == WEIGHT_INT4 ? largest : NULL,
                   narrow, state);
}

/* Weights as they came: the panel's numbers, exactly, and products with them. */
static void check_blocks(const TileIsa *isa, int bits, int64_t block, int zeros, int vectors, int64_t depth,
                         uint64_t *state) {
    enum { MOST_WIDTH = 64, MOST_DEPTH = 200, MOST_BYTES = 512 * MOST_WIDTH };
    static uint8_t packed[MOST_BYTES], zero_bits[MOST_BYTES];
    static float scales[MOST_DEPTH * MOST_WIDTH], zero_floats[MOST_DEPTH * MOST_WIDTH], want[MOST_DEPTH * MOST_WIDTH],
        got[MOST_DEPTH * MOST_WIDTH], panel[MOST_DEPTH * MOST_WIDTH];
    int64_t width = (int64_t)vectors * isa->f32.lanes, columns = width - anchor_case_below(state, 3);
    int64_t count = (depth + block - 1) / block;
    Tensor tensors[] = {
        {.dtype = DT_U8, .rank = 3, .dims = {columns, count, (block * bits + 7) / 8}, .data = packed},
        {.dtype = DT_F32, .rank = 1, .dims = {columns * count}, .data = scales},
        {.dtype = DT_U8, .rank = 1, .dims = {columns * ((count * bits + 7) / 8)}, .data = zero_bits},
        {.dtype = DT_F32, .rank = 1, .dims = {columns * count}, .data = zero_floats},
    };
    WeightBlocks b = {
        .packed = &tensors[0], .scales = &tensors[1], .n = columns, .k = depth, .block = block, .bits = bits};
    b.zeros = zeros ? &tensors[1 + zeros] : NULL;
    cr_assert_null(weight_blocks_check(&b));
    for (int i = 0; i < MOST_BYTES; i++)
        packed[i] = (uint8_t)anchor_case_bits(state), zero_bits[i] = (uint8_t)anchor_case_bits(state);
    for (int64_t i = 0; i < columns * count; i++) {
        scales[i] = (float)(anchor_case_below(state, 2000) - 1000) * 1.1e-4f;
        zero_floats[i] = (float)anchor_case_below(state, 1 << bits);
    }
    float largest[MOST_WIDTH];
    for (int64_t j = 0; j < width; j++)
        largest[j] = (float)(2 << bits) * 0.11f; /* the greatest scale is 1000 * 1.1e-4 */
    memset(want, 0, sizeof want);
    for (int64_t c = 0; c < columns; c++)
        for (int64_t k = 0; k < depth; k++) {
            float number = (float)(weight_bits(packed + (c * count + k / block) * b.block_bytes, k % block, bits));
            want[k * width + c] = (number - (float)weight_block_zero(&b, c, k / block)) * scales[c * count + k / block];
        }
    WeightForm form = blocks_form(&b);
    cr_assert_leq(narrow_column_bytes(&form, depth) * (size_t)width, sizeof panel);
    blocks_panel(&form, &b, 0, (int)columns, width, panel);
    int64_t first = anchor_case_below(state, (int)depth + 1),
            end = first + anchor_case_below(state, (int)(depth - first) + 1);
    isa->widen(&(WidenCall){&form, panel, width, 0, depth, got});
    for (int64_t i = 0; i < depth * width; i++) /* 0 where there are no columns, of whatever sign */
        cr_assert(got[i] == want[i], "%s %d bits, blocks of %lld, depth %lld: element %lld is %g, not %g", isa->name,
                  bits, (long long)block, (long long)depth, (long long)i, (double)got[i], (double)want[i]);
    isa->widen(&(WidenCall){&form, panel, width, first, end, got});
    for (int64_t i = 0; i < (end - first) * width; i++) cr_assert(got[i] == want[first * width + i]);
    for (int m = 1; m <= NARROW_TILE_ROWS; m++)
        check_products(isa, &form, "blocks", vectors, m, depth, want, largest, panel, state);
}

static int all_sets(const TileIsa *sets[3]) {
    int count = 0;
    sets[count++] = &tile_base;
#if defined(__x86_64__)
    if (tile_isa() != &tile_base) sets[count++] = &tile_avx2;
    if (tile_isa() == &tile_avx512) sets[count++] = &tile_avx512;
#endif
    return count;
}

/* Any number of rows, as tiles of several heights: whole numbers, whose sums are exact. */
static void check_rows(const TileSet *set, const char *name, int vectors, int count, uint64_t *state) {
    enum { ROWS = 40, TAPS = 2, DEPTH = 3, GAP = 1, LENGTH = DEPTH * (1 + GAP), MOST_WIDTH = 64 };
    static float x[TAPS][ROWS + 1][LENGTH], weight[TAPS * DEPTH * MOST_WIDTH], y[ROWS][MOST_WIDTH];
    const int width = vectors * set->lanes, columns = width - anchor_case_below(state, set->lanes);
    const int64_t offsets[TAPS] = {0, 1};
    const void *rows[TAPS * ROWS];
    void *results[ROWS];
    for (int t = 0; t < TAPS; t++)
        for (int i = 0; i < ROWS; i++) {
            rows[t * ROWS + i] = x[t][i];
            for (int k = 0; k < LENGTH; k++) x[t][i][k] = (float)(anchor_case_below(state, 200) - 100);
        }
    for (int k = 0; k < TAPS * DEPTH * width; k++) weight[k] = (float)(anchor_case_below(state, 200) - 100);
    for (int i = 0; i < ROWS; i++) results[i] = memset(y[i], 0, sizeof y[i]);
    TileCall call = {.rows = rows,
                     .row_stride = ROWS,
                     .offsets = offsets,
                     .taps = TAPS,
                     .depth = DEPTH,
                     .depth_gap = GAP,
                     .weight = weight,
                     .weight_stride = width,
                     .results = results,
                     .columns = columns};
    tile_products(set, vectors, count, &call, weight, anchor_case_below(state, 2) * (int64_t)sizeof weight);
    for (int i = 0; i < ROWS; i++)
        for (int j = 0; j < MOST_WIDTH; j++) {
            float sum = 0;
            for (int k = 0; i < count && j < columns && k < TAPS * DEPTH; k++)
                sum += x[k / DEPTH][i][offsets[k / DEPTH] + k % DEPTH * (1 + GAP)] * weight[k * width + j];
            cr_assert(y[i][j] == sum, "%s, %d vectors, %d rows: %g at [%d, %d], not %g", name, vectors, count,
                      (double)y[i][j], i, j, (double)sum);
        }
}

Test(weights, tiles_of_all_heights_share_rows) {
    const TileIsa *sets[3];
    uint64_t state = 5;
    int count = all_sets(sets);
    for (int s = 0; s < count; s++)
        for (int vectors = 1; vectors <= sets[s]->f32.vectors; vectors++)
            for (int rows = 0; rows <= 40; rows++) check_rows(&sets[s]->f32, sets[s]->name, vectors, rows, &state);
}

Test(weights, tiles_of_all_instruction_sets_take_blocks_as_they_came) {
    const TileIsa *sets[3];
    int count = all_sets(sets);
    uint64_t state = 9;
    static const int bits[] = {2, 3, 4, 8};
    static const int64_t blocks[] = {16, 32, 48, 128, 256}, depths[] = {1, 17, 32, 50, 96, 130, 200};
    for (int s = 0; s < count; s++)
        for (int i = 0; i < 4; i++)
            for (int b = 0; b < 5; b++)
                for (int zeros = 0; zeros < 3; zeros++)
                    for (int d = 0; d < 7; d++)
                        check_blocks(sets[s], bits[i], blocks[b], zeros, 1 + (d + b) % sets[s]->f32.vectors, depths[d],
                                     &state);
}

/* Weights that are multiplied where they lie: small whole numbers by powers of two, so that sums are exact. Columns end where memory does. */
static void check_block_dots(const TileIsa *isa, WeightKind kind, int block, bool zeros, int m, int columns, int depth,
                             uint64_t *state) {
    enum {
        MOST_DEPTH = 600,
        ROOM = MOST_DEPTH / 16 + 2 * TILE_MAX_LANES,
        LENGTH = 2 * (MOST_DEPTH + 16 * TILE_MAX_LANES)
    };
    static float x[NARROW_TILE_ROWS][MOST_DEPTH], arranged[NARROW_TILE_ROWS][LENGTH], sums[NARROW_TILE_ROWS][ROOM],
        scales[BLOCK_DOT_COLUMNS][ROOM], points[BLOCK_DOT_COLUMNS][ROOM], y[NARROW_TILE_ROWS][BLOCK_DOT_COLUMNS];
    const int word = weight_word(kind), bits = 32 / word, lanes = isa->f32.lanes, words = (depth + word - 1) / word;
    uint8_t *bytes[BLOCK_DOT_COLUMNS];
    const float *rows[NARROW_TILE_ROWS], *row_sums[NARROW_TILE_ROWS], *zero[BLOCK_DOT_COLUMNS];
    const char *weights[BLOCK_DOT_COLUMNS], *scale[BLOCK_DOT_COLUMNS];
    float *results[NARROW_TILE_ROWS];
    memset(arranged, 0, sizeof arranged), memset(sums, 0, sizeof sums), memset(y, 0, sizeof y);
    for (int i = 0; i < m; i++) {
        rows[i] = arranged[i], row_sums[i] = sums[i], results[i] = y[i];
        for (int k = 0; k < depth; k++) {
            x[i][k] = (float)(anchor_case_below(state, 17) - 8);
            sums[i][k / block] += x[i][k];
        }
        cr_assert(tile_arranged(kind, lanes, depth) <= LENGTH);
        tile_arrange_row(kind, lanes, x[i], depth, arranged[i]);
    }
    memset(scales, 0, sizeof scales), memset(points, 0, sizeof points);
    for (int c = 0; c < columns; c++) {
        cr_assert(bytes[c] = malloc((size_t)words * 4 + 1));
        for (int i = 0; i <= words * 4; i++) bytes[c][i] = (uint8_t)anchor_case_bits(state);
        weights[c] = (const char *)bytes[c] + 1, scale[c] = (const char *)scales[c], zero[c] = points[c];
        for (int b = 0; b * block < depth; b++) {
            scales[c][b] = ldexpf(1, anchor_case_below(state, 3));
            points[c][b] = (float)(anchor_case_below(state, 9) - 4);
        }
    }
    isa->block_dots[kind][m](&(BlockDots){.rows = rows,
                                          .sums = zeros ? row_sums : NULL,
                                          .weights = weights,
                                          .scales = scale,
                                          .zeros = zeros ? zero : NULL,
                                          .words = words,
                                          .block_words = block / word,
                                          .blocks = (depth + block - 1) / block,
                                          .results = results,
                                          .columns = columns});
    for (int i = 0; i < m; i++)
        for (int c = 0; c < BLOCK_DOT_COLUMNS; c++) {
            float sum = 0;
            for (int k = 0; c < columns && k < depth; k++)
                sum += x[i][k] * scales[c][k / block] *
                       ((float)(weight_bits(bytes[c] + 1, k, bits) - (1 << (bits - 1))) -
                        (zeros ? points[c][k / block] : 0));
            cr_assert(y[i][c] == sum,
                      "%s, %d bits, blocks of %d, %d rows, %d columns, depth %d: %g at [%d, %d], not %g", isa->name,
                      bits, block, m, columns, depth, (double)y[i][c], i, c, (double)sum);
        }
    for (int c = 0; c < columns; c++) free(bytes[c]);
}

Test(weights, tiles_of_all_instruction_sets_multiply_blocks_where_they_lie) {
    static const WeightKind kinds[] = {WEIGHT_INT8, WEIGHT_INT4, WEIGHT_INT2};
    static const int depths[] = {1, 31, 32, 64, 100, 256, 384, 600};
    const TileIsa *sets[3];
    uint64_t state = 11;
    int count = all_sets(sets);
    for (int s = 0; s < count; s++)
        for (int kind = 0; kind < 3; kind++)
            for (int block = 16; block <= 512; block *= 2)
                for (int m = 1; m <= NARROW_TILE_ROWS; m++)
                    for (int columns = 1; columns <= BLOCK_DOT_COLUMNS; columns++)
                        for (size_t d = 0; d < sizeof depths / sizeof *depths; d++)
                            check_block_dots(sets[s], kinds[kind], block, d % 2 == (size_t)m % 2, m, columns, depths[d],
                                             &state);
}

Test(weights, tiles_of_all_instruction_sets_widen_what_was_rounded) {
    const TileIsa *sets[3];
    int count = all_sets(sets);
    uint64_t state = 7;
    static const int64_t depths[] = {1, 7, 8, 9, 31, 32, 33, 40, 64, 95, 130, 200};
    for (int s = 0; s < count; s++)
        for (int form = 0; form < FORMS; form++)
            for (int vectors = 1; vectors <= sets[s]->f32.vectors; vectors++)
                for (int m = 1; m <= NARROW_TILE_ROWS; m++)
                    for (size_t d = 0; d < sizeof depths / sizeof *depths; d++)
                        check_tile(sets[s], form, vectors, m, depths[d], &state);
}

/* ---- anchors ---- */

static Tensor *copy_tensor(Arena *arena, const Tensor *t) {
    Tensor *copy = tensor_new(arena, t->dtype, t->rank, t->dims);
    if (tensor_bytes(t)) memcpy(copy->data, t->data, tensor_bytes(t));
    return copy;
}

/* The offset of each column's first element, and the elements of the column in the order in which they are packed. */
typedef struct Columns {
    int64_t count, length;
    const int64_t *starts, *steps; /* [count], [length] */
} Columns;

static Columns matmul_columns(const AnchorCase *c) {
    const Tensor *b = c->tensors[1];
    int rank = b->rank, count;
    const int64_t *perm = attr_ints(c->node, "perm_b", &count);
    int64_t strides[MAX_RANK], dims[MAX_RANK], own[MAX_RANK], step = 1;
    for (int i = rank - 1; i >= 0; i--) own[i] = step, step *= b->dims[i];
    for (int i = 0; i < rank; i++) {
        int axis = perm ? (int)perm[i] : i;
        dims[i] = b->dims[axis], strides[i] = own[axis];
    }
    int64_t columns = 1, length = dims[rank - 2];
    for (int i = 0; i < rank; i++) columns *= i == rank - 2 ? 1 : dims[i];
    int64_t *starts = arena_array(c->graph->arena, (size_t)columns + 1, sizeof *starts),
            *steps = arena_array(c->graph->arena, (size_t)length + 1, sizeof *steps);
    for (int64_t i = 0; i < columns; i++) {
        int64_t rest = i;
        starts[i] = 0;
        for (int axis = rank - 1; axis >= 0; axis--) {
            if (axis == rank - 2) continue;
            starts[i] += rest % dims[axis] * strides[axis];
            rest /= dims[axis];
        }
    }
    for (int64_t k = 0; k < length; k++) steps[k] = k * strides[rank - 2];
    return (Columns){columns, length, starts, steps};
}

/* Of an ordinary convolution's weight [O, C/group, kernel...]: kernel elements outside, channels inside. */
static Columns conv_columns(const AnchorCase *c) {
    const Tensor *w = c->tensors[1];
    int64_t outputs = w->dims[0], inputs = w->dims[1], kernel = 1;
    for (int i = 2; i < w->rank; i++) kernel *= w->dims[i];
    int64_t *starts = arena_array(c->graph->arena, (size_t)outputs + 1, sizeof *starts),
            *steps = arena_array(c->graph->arena, (size_t)(inputs * kernel) + 1, sizeof *steps);
    for (int64_t o = 0; o < outputs; o++) starts[o] = o * inputs * kernel;
    for (int64_t t = 0; t < kernel; t++)
        for (int64_t i = 0; i < inputs; i++) steps[t * inputs + i] = i * kernel + t;
    return (Columns){outputs, inputs * kernel, starts, steps};
}

/* The weight as it is held, divided by the factor that is folded into it; in the case's dtype where that holds it. */
static Tensor *rounded(const AnchorCase *c, const Columns *columns, Precision form, float factor) {
    Tensor *w = copy_tensor(c->graph->arena, c->tensors[1]);
    float *column = arena_array(c->graph->arena, (size_t)columns->length + 1, sizeof *column);
    for (int64_t j = 0; j < columns->count; j++) {
        for (int64_t k = 0; k < columns->length; k++)
            column[k] = (float)dtype_load_double(w->dtype, w->data, columns->starts[j] + columns->steps[k]) * factor;
        round_column(form, column, 1, columns->length);
        for (int64_t k = 0; k < columns->length; k++)
            dtype_store_double(w->dtype, w->data, columns->starts[j] + columns->steps[k], (double)(column[k] / factor));
    }
    return w;
}

static Tensor *run_case(const AnchorCase *c, Tensor *weight, Pool *pool, int64_t precision, const char *how) {
    const Tensor *constants[ANCHOR_CASE_INPUTS], *inputs[ANCHOR_CASE_INPUTS];
    Tensor hidden[ANCHOR_CASE_INPUTS];
    CpuAnchor *anchor;
    uint32_t released;
    Value *out = c->node->outputs[0];
    node_set_int(c->node, WEIGHT_PRECISION, precision);
    for (int i = 0; i < c->count; i++) {
        inputs[i] = i == 1 ? weight : c->tensors[i];
        constants[i] = c->constant[i] ? inputs[i] : NULL;
    }
    Status status = cpu_anchor_prepare(c->node, constants, pool, NULL, &anchor, &released);
    cr_assert_null(status, "%s, seed %llu: %s", c->what, (unsigned long long)c->seed, status_message(status));
    if (how && tensor_count(weight))
        cr_assert(strstr(cpu_anchor_how(anchor), how), "%s, not %s", cpu_anchor_how(anchor), how);
    for (int i = 0; i < c->count; i++)
        if (released >> i & 1) {
            hidden[i] = *inputs[i];
            hidden[i].data = NULL;
            inputs[i] = &hidden[i];
        }
    Tensor shape = {.rank = out->rank};
    for (int i = 0; i < out->rank; i++) cr_assert(dim_is_const(out->dims[i], &shape.dims[i]));
    Tensor *results = anchor_case_room(c, c->graph->arena, &shape);
    status = anchor_run_once(anchor, c->node, inputs, results, pool);
    cr_assert_null(status, "%s, seed %llu: %s", c->what, (unsigned long long)c->seed, status_message(status));
    cpu_anchor_destroy(anchor);
    return results;
}

/* Few rows are multiplied by numbers that are up to 8 more than -7..7 times a scale, which is taken off again. */
static const double *magnitudes_of_places(const AnchorCase *c, const Columns *columns, Tensor *const *tensors) {
    Tensor *larger[ANCHOR_CASE_INPUTS], *w = larger[1] = copy_tensor(c->graph->arena, tensors[1]);
    larger[0] = tensors[0];
    for (int64_t j = 0; j < columns->count; j++) {
        double most = 0;
        for (int64_t k = 0; k < columns->length; k++)
            most = fmax(most, fabs(dtype_load_double(w->dtype, w->data, columns->starts[j] + columns->steps[k])));
        for (int64_t k = 0; k < columns->length; k++) {
            int64_t at = columns->starts[j] + columns->steps[k];
            double size = fabs(dtype_load_double(w->dtype, w->data, at));
            dtype_store_double(w->dtype, w->data, at, size + 2 * most * 8 / 7);
        }
    }
    return anchor_magnitudes(c, larger);
}

/* The bits of the f32 product with the rounded weight, where products are not summed block by block; the same on any
 * number of threads; and the evaluator's result. */
static void check_exact(AnchorCase c, Columns (*columns_of)(const AnchorCase *), int form) {
    bool fits = c.tensors[0]->dtype == DT_F32 || (c.tensors[0]->dtype == DT_F16 && forms[form] == PRECISION_F16) ||
                (c.tensors[0]->dtype == DT_BF16 && forms[form] == PRECISION_BF16);
    c.constant[1] = true;
    if (fits) {
        Columns columns = columns_of(&c);
        /* products of bf16 are multiplied by the factor themselves */
        double factor = c.tensors[0]->dtype == DT_BF16 ? 1 : attr_float(c.node, "alpha", 1);
        Tensor *held = rounded(&c, &columns, forms[form], (float)factor);
        Tensor *got = run_case(&c, c.tensors[1], pool_of(1 + (int)(c.seed % 3)), forms[form], form_names[form]);
        Tensor *again = run_case(&c, c.tensors[1], pool_of(1 + (int)((c.seed + 1) % 3)), forms[form], NULL);
        Tensor *wide = run_case(&c, held, pool_of(1), PRECISION_AS_IS, NULL);
        bool sums_blocks = forms[form] == PRECISION_INT8 || forms[form] == PRECISION_INT4; /* where rows are few */
        cr_assert(!tensor_bytes(got) || sums_blocks || memcmp(got->data, wide->data, tensor_bytes(got)) == 0,
                  "%s %s, seed %llu: not what f32 gives", c.what, form_names[form], (unsigned long long)c.seed);
        cr_assert(!tensor_bytes(got) || memcmp(got->data, again->data, tensor_bytes(got)) == 0,
                  "%s %s, seed %llu: not the same on more threads", c.what, form_names[form],
                  (unsigned long long)c.seed);
        Tensor *tensors[ANCHOR_CASE_INPUTS];
        memcpy(tensors, c.tensors, sizeof tensors);
        tensors[1] = held;
        if (forms[form] == PRECISION_INT4) c.magnitudes = magnitudes_of_places(&c, &columns, tensors);
        /* many rows may be parts, each a term of the sum; beside that their scale and the weight's element were rounded */
        if (sums_blocks && tile_blocks()->parts[WEIGHT_INT8]) c.terms = ROW_PARTS * c.terms + 2;
        anchor_case_expect(&c, tensors, got);
    }
    graph_destroy(c.graph);
}

Test(weights, matmuls_have_the_bits_of_f32_with_the_rounded_weight) {
    for (uint64_t seed = 0; seed < 1600; seed += share_step())
        check_exact(anchor_case_matmul(seed, ANCHOR_ANY), matmul_columns, (int)(seed % FORMS));
}

Test(weights, convolutions_have_the_bits_of_f32_with_the_rounded_weight) {
    for (uint64_t seed = 0; seed < 800; seed += share_step())
        check_exact(anchor_case_conv(seed, false, ANCHOR_ANY), conv_columns, (int)(seed % FORMS));
}

/* All that the sizes of tiles and blocks bring up: few rows and many, long sums, columns beside the panel's, factors.
 */
Test(weights, ragged_sizes) {
    static const int64_t rows[] = {1, 2, 3, 4, 5, 7, 8, 9, 13, 100}, depths[] = {1, 31, 33, 1023, 1024, 1030, 2100},
                         columns[] = {1, 15, 16, 17, 63, 64, 65, 200};
    uint64_t seed = 0;
    for (size_t r = 0; r < sizeof rows / sizeof *rows; r++)
        for (size_t d = 0; d < sizeof depths / sizeof *depths; d++)
            for (size_t n = r % 2; n < sizeof columns / sizeof *columns; n += 2) {
                AnchorCase c = anchor_case_new("matmul", ++seed);
                bool turned = seed % 3 == 0;
                Value *a = anchor_case_input(&c, DT_F32, 2, (int64_t[]){rows[r], depths[d]}),
                      *b = anchor_case_input(&c, DT_F32, 2,
                                             turned ? (int64_t[]){columns[n], depths[d]}
                                                    : (int64_t[]){depths[d], columns[n]});
                c.node = graph_add_node(c.graph, NULL, NODE_ANCHOR, "matmul", (Value *[]){a, b}, 2);
                if (turned) node_set_ints(c.node, "perm_b", (int64_t[]){1, 0}, 2);
                if (seed % 2) node_set_float(c.node, "alpha", 0.25);
                const Dim *sizes[] = {dim_const(c.graph->dims, rows[r]), dim_const(c.graph->dims, columns[n])};
                anchor_case_results(&c, DT_F32, 2, sizes, (AnchorStep[]){ANCHOR_BIAS, ANCHOR_GELU}, 2);
                c.terms = depths[d];
                c.constant[2] = seed % 5 == 0;
                check_exact(c, matmul_columns, (int)(seed % FORMS));
            }
}

/* The rounding is of the matrix with the factor in it. */
Test(weights, a_factor_is_rounded_with_the_weight) {
    for (int form = 0; form < FORMS; form++) {
        AnchorCase c = anchor_case_new("matmul", 5);
        Value *a = anchor_case_input(&c, DT_F32, 2, (int64_t[]){3, 100}),
              *b = anchor_case_input(&c, DT_F32, 2, (int64_t[]){100, 70});
        c.node = graph_add_node(c.graph, NULL, NODE_ANCHOR, "matmul", (Value *[]){a, b}, 2);
        anchor_case_output(&c, DT_F32, 2, (int64_t[]){3, 70});
        c.constant[1] = true;
        Columns columns = matmul_columns(&c);
        Tensor *scaled = copy_tensor(c.graph->arena, c.tensors[1]);
        for (int64_t i = 0; i < tensor_count(scaled); i++) ((float *)scaled->data)[i] *= 0.3f;
        AnchorCase other = c;
        other.tensors[1] = scaled;
        node_set_float(c.node, "alpha", 0.3f);
        Tensor *got = run_case(&c, c.tensors[1], NULL, forms[form], form_names[form]);
        node_set_float(c.node, "alpha", 1);
        Tensor *tensors[ANCHOR_CASE_INPUTS];
        memcpy(tensors, c.tensors, sizeof tensors);
        tensors[1] = rounded(&other, &columns, forms[form], 1);
        c.terms = 100;
        anchor_case_expect(&c, tensors, got);
        graph_destroy(c.graph);
    }
}

/* Blocks lie along taps that depend on strides: here the rounding is bounded rather than told again. A weight
 * is off by less than a step and so is its product with an input, both as evenly spread as in anchor_case_conv: the sum of n of them
 * has a standard deviation of step sqrt(n) / 3, nine of which are allowed. */
Test(weights, transposed_convolutions_are_near_those_of_f32) {
    static const double steps[] = {0x1p-12, 0x1p-9, 0.5 / 127, 0.5 / 7};
    for (uint64_t seed = 0; seed < 600; seed += share_step()) {
        AnchorCase c = anchor_case_conv(seed, true, ANCHOR_PLAIN);
        int form = (int)(seed % FORMS);
        c.constant[1] = true;
        Tensor *got = run_case(&c, c.tensors[1], pool_of(1 + (int)(seed % 2)), forms[form], form_names[form]);
        Tensor *want = run_case(&c, c.tensors[1], pool_of(1), PRECISION_AS_IS, NULL);
        double terms = (double)c.terms, bound = 1.01 * steps[form] * fmin(terms, 3 * sqrt(terms)) + 1e-5;
        for (int64_t i = 0; i < tensor_count(got); i++) {
            double a = (double)((float *)got->data)[i], b = (double)((float *)want->data)[i];
            cr_assert_leq(fabs(a - b), bound, "%s, seed %llu: element %lld is %g, not %g", form_names[form],
                          (unsigned long long)seed, (long long)i, a, b);
        }
        graph_destroy(c.graph);
    }
}

/* ---- weights that came in few bits ---- */

typedef struct Bits {
    int bits;
    int64_t rows, depth, columns, block;
    bool zeros;
    const char *how;
} Bits;

static const Bits all_bits[] = {
    {4, 1, 64, 40, 32, false, "packed, weights int4"},     {4, 3, 200, 70, 64, true, "packed, weights int4"},
    {4, 9, 130, 17, 128, false, "packed, weights int4"},   {4, 100, 1100, 200, 32, true, "packed, weights int4"},
    {2, 33, 1030, 24, 256, true, "packed, weights int2"},  {4, 13, 2100, 31, 16, false, "packed, weights int4"},
    {3, 10, 96, 33, 48, true, "packed, weights int4"},     {4, 1, 3000, 66, 256, true, "packed, weights int4"},
    {4, 8, 1040, 65, 16, true, "packed, weights int4"},    {3, 2, 96, 33, 32, true, "packed, weights int4"},
    {2, 5, 100, 33, 16, true, "packed, weights int2"},     {2, 40, 96, 33, 64, false, "packed, weights int2"},
    {8, 1, 96, 70, 32, false, "packed, weights int8"},     {8, 20, 96, 70, 48, true, "packed, weights int8"},
    {4, 1, 4096, 8, 2048, false, "packed, weights int4"},  {8, 100, 1100, 200, 32, true, "packed, weights int8"},
    {8, 9, 2100, 31, 16, false, "packed, weights int8"},   {8, 5, 1000, 131, 16, true, "packed, weights int8"},
    {4, 7, 2048, 130, 32, true, "packed, weights int4"},   {2, 1, 2048, 67, 64, true, "packed, weights int2"},
    {8, 40, 3000, 66, 1024, true, "packed, weights int8"},
};

/* As rounded.h says, told again: elements of a row in blocks as long as those that the weight is held in. */
static Tensor *rounded_rows(const AnchorCase *c, const WeightBlocks *b) {
    Tensor *x = copy_tensor(c->graph->arena, c->tensors[0]);
    int64_t rows = tensor_count(x) / b->k, block = 1024;
    while (b->block % block) block /= 2;
    for (int64_t i = 0; i < rows; i++)
        for (int64_t first = 0; first < b->k; first += block) {
            float *at = (float *)x->data + i * b->k + first, most = 0;
            int64_t count = b->k - first < block ? b->k - first : block;
            for (int64_t k = 0; k < count; k++) most = fmaxf(most, fabsf(at[k]));
            for (int64_t k = 0; most > 0 && k < count; k++) at[k] = nearbyintf(at[k] * (127 / most)) * (most / 127);
        }
    return x;
}

/* The evaluator has the bits of the product with the matrix that the bits stand for, and the anchor what f32 allows: zero points are
 * taken off sums, which are as large as the numbers before that. */
static void expect_unpacked(const AnchorCase *bits, int64_t rows, bool rounds, const Tensor *got) {
    WeightBlocks b;
    cr_assert_null(weight_blocks_of(bits->node, (const Tensor *const *)bits->tensors, &b));
    AnchorCase c = anchor_case_new("matmul", bits->seed);
    Value *x = anchor_case_input(&c, DT_F32, 2, (int64_t[]){rows, b.k}),
          *w = anchor_case_input(&c, DT_F32, 2, (int64_t[]){b.n, b.k});
    c.node = graph_add_node(c.graph, NULL, NODE_ANCHOR, "matmul", (Value *[]){x, w}, 2);
    node_set_ints(c.node, "perm_b", (int64_t[]){1, 0}, 2);
    anchor_case_output(&c, DT_F32, 2, (int64_t[]){rows, b.n});
    c.tensors[0] = bits->tensors[0];
    weight_blocks_unpack(&b, c.tensors[1]->data);
    Tensor *evaluated[2];
    cr_assert_null(eval_anchor(bits->node, bits->tensors, NULL, c.graph->arena, &evaluated[0]));
    cr_assert_null(eval_anchor(c.node, c.tensors, NULL, c.graph->arena, &evaluated[1]));
    cr_expect(memcmp(evaluated[0]->data, evaluated[1]->data, tensor_bytes(got)) == 0, "seed %llu",
              (unsigned long long)bits->seed);
    if (rounds) c.tensors[0] = rounded_rows(bits, &b);
    double *magnitudes = arena_array(c.graph->arena, (size_t)(rows * b.n), sizeof *magnitudes);
    for (int64_t i = 0; i < rows * b.n; i++) {
        magnitudes[i] = 0;
        for (int64_t k = 0; k < b.k; k++) {
            double scale = weight_block_scale(&b, i % b.n, k / b.block), most = (double)(2 << b.bits) * fabs(scale);
            magnitudes[i] += most * fabs((double)((float *)c.tensors[0]->data)[i / b.n * b.k + k]);
        }
    }
    c.magnitudes = magnitudes;
    c.terms = b.k + 2;
    anchor_case_expect(&c, c.tensors, got);
    graph_destroy(c.graph);
}

/* of_run: scales and zero points are inputs, and nothing is constant. */
static AnchorCase bits_case(const Bits *m, uint64_t seed, bool of_run) {
    AnchorCase c = anchor_case_new(of_run ? MATMUL_BLOCKS : MATMUL_BITS, seed);
    int64_t blocks = (m->depth + m->block - 1) / m->block, count = m->columns * blocks;
    Value *inputs[4] = {anchor_case_input(&c, DT_F32, 2, (int64_t[]){m->rows, m->depth}),
                        anchor_case_input(&c, DT_U8, 3, (int64_t[]){m->columns, blocks, (m->block * m->bits + 7) / 8})};
    uint8_t *bytes = c.tensors[1]->data;
    for (int64_t i = 0; i < tensor_count(c.tensors[1]); i++) bytes[i] = (uint8_t)anchor_case_bits(&c.state);
    Tensor *scales = tensor_new(c.graph->arena, DT_F32, 1, &count),
           *zeros = tensor_new(c.graph->arena, DT_F32, 1, &count);
    for (int64_t i = 0; i < count; i++) {
        ((float *)scales->data)[i] = (float)(anchor_case_below(&c.state, 2000) - 1000) * 1e-3f / (float)(1 << m->bits);
        ((float *)zeros->data)[i] = (float)anchor_case_below(&c.state, 1 << m->bits);
    }
    for (int i = 0; of_run && i < (m->zeros ? 2 : 1); i++) {
        inputs[2 + i] = anchor_case_input(&c, DT_F32, 1, &count);
        c.tensors[2 + i] = i ? zeros : scales;
    }
    c.node = graph_add_node(c.graph, NULL, NODE_ANCHOR, of_run ? MATMUL_BLOCKS : MATMUL_BITS, inputs, c.count);
    if (!of_run) node_set_attr(c.node, (Attr){.name = WEIGHT_SCALES, .kind = ATTR_TENSOR, .tensor = scales});
    if (!of_run && m->zeros) node_set_attr(c.node, (Attr){.name = WEIGHT_ZEROS, .kind = ATTR_TENSOR, .tensor = zeros});
    node_set_int(c.node, WEIGHT_BITS, m->bits);
    node_set_int(c.node, WEIGHT_BLOCK, m->block);
    node_set_int(c.node, WEIGHT_DEPTH, m->depth);
    anchor_case_output(&c, DT_F32, 2, (int64_t[]){m->rows, m->columns});
    c.constant[1] = !of_run;
    return c;
}

/* On any number of threads, and from what was packed before. */
static void check_bits(bool rounds) {
    for (size_t r = 0; r < sizeof all_bits / sizeof *all_bits; r++) {
        const Bits *m = &all_bits[r];
        char how[64];
        snprintf(how, sizeof how, "%s%s", m->how, rounds ? ", rows int8" : "");
        AnchorCase c = bits_case(m, r + 1, false);
        if (rounds) node_set_int(c.node, ROWS_INT8, 1);
        Tensor *got = run_case(&c, c.tensors[1], NULL, PRECISION_AS_IS, how);
        expect_unpacked(&c, m->rows, rounds, got);
        for (int threads = 2; threads <= 3; threads++) {
            Tensor *again = run_case(&c, c.tensors[1], pool_of(threads), PRECISION_AS_IS, how);
            cr_expect(memcmp(got->data, again->data, tensor_bytes(got)) == 0, "row %zu on %d threads", r, threads);
        }
        CpuAnchor *anchor, *restored;
        uint32_t released;
        const Packed *packed;
        Tensor absent = *c.tensors[1], *again = copy_tensor(c.graph->arena, got);
        absent.data = NULL;
        cr_assert_null(
            cpu_anchor_prepare(c.node, (const Tensor *[]){NULL, c.tensors[1]}, NULL, NULL, &anchor, &released));
        int count = cpu_anchor_packed(anchor, &packed, &released);
        cr_expect_eq(released, 2u);
        cr_assert_null(
            cpu_anchor_restore(c.node, (const Tensor *[]){NULL, &absent}, packed, count, NULL, &restored, &released));
        memset(again->data, 0, tensor_bytes(again));
        cr_assert_null(anchor_run_once(restored, c.node, (const Tensor *[]){c.tensors[0], &absent}, again, NULL));
        cr_expect(memcmp(got->data, again->data, tensor_bytes(got)) == 0, "row %zu, restored", r);
        cpu_anchor_destroy(restored);
        cpu_anchor_destroy(anchor);
        graph_destroy(c.graph);
    }
}

Test(weights, few_bits_are_held_as_they_came) { check_bits(false); }

/* On any number of threads; and a weight of another size than the node says is refused. */
Test(weights, few_bits_may_come_with_the_run) {
    for (size_t r = 0; r < sizeof all_bits / sizeof *all_bits; r++) {
        AnchorCase c = bits_case(&all_bits[r], r + 1, true);
        Tensor *got = run_case(&c, c.tensors[1], NULL, PRECISION_AS_IS, "packed at run");
        expect_unpacked(&c, all_bits[r].rows, false, got);
        for (int threads = 2; threads <= 3; threads++) {
            Tensor *again = run_case(&c, c.tensors[1], pool_of(threads), PRECISION_AS_IS, NULL);
            cr_expect(memcmp(got->data, again->data, tensor_bytes(got)) == 0, "row %zu on %d threads", r, threads);
        }
        CpuAnchor *anchor;
        uint32_t released;
        cr_assert_null(cpu_anchor_prepare(c.node, (const Tensor *[4]){NULL}, NULL, NULL, &anchor, &released));
        Tensor fewer = *c.tensors[2];
        fewer.dims[0]--;
        const Tensor *inputs[] = {c.tensors[0], c.tensors[1], &fewer, c.tensors[3]};
        Status status = anchor_run_once(anchor, c.node, inputs, got, NULL);
        cr_assert(status, "row %zu", r);
        cr_expect(strstr(status_message(status), "the weights do not have the size"), "%s", status_message(status));
        status_free(status);
        cpu_anchor_destroy(anchor);
        graph_destroy(c.graph);
    }
}

Test(weights, rows_are_rounded_where_they_may_be) { check_bits(true); }

/* ---- sizes ---- */

Test(weights, held_bytes) {
    static const double a_weight[] = {2, 2, 1 + 4.0 / 32, 0.5 + 4.0 / 32};
    for (int form = 0; form < FORMS; form++) {
        AnchorCase c = anchor_case_new("matmul", 1);
        Value *a = anchor_case_input(&c, DT_F32, 2, (int64_t[]){1, 256}),
              *b = anchor_case_input(&c, DT_F32, 2, (int64_t[]){256, 128});
        c.node = graph_add_node(c.graph, NULL, NODE_ANCHOR, "matmul", (Value *[]){a, b}, 2);
        anchor_case_output(&c, DT_F32, 2, (int64_t[]){1, 128});
        node_set_int(c.node, WEIGHT_PRECISION, forms[form]);
        CpuAnchor *anchor;
        uint32_t released;
        cr_assert_null(
            cpu_anchor_prepare(c.node, (const Tensor *[]){NULL, c.tensors[1]}, NULL, NULL, &anchor, &released));
        cr_expect_eq(cpu_anchor_bytes(anchor), (size_t)(256 * 128 * a_weight[form]), "%s", form_names[form]);
        cr_expect_eq(released, 2u);
        cpu_anchor_destroy(anchor);
        graph_destroy(c.graph);
    }
}

/* ---- what is refused ---- */

typedef struct Refusal {
    const char *name;
    DType dtype;
    int64_t precision;
    bool constant;
    double element, alpha; /* of element [2, 1]; 0: as drawn */
    int code;
    const char *part;
} Refusal;

static const Refusal refusals[] = {
    {"a NaN", DT_F32, PRECISION_INT8, true, (double)NAN, 1, STATUS_INVALID,
     "element [2, 1] of the weight \"v1\" is nan"},
    {"an infinity", DT_F32, PRECISION_F16, true, (double)INFINITY, 1, STATUS_INVALID,
     "element [2, 1] of the weight \"v1\" is inf"},
    {"an infinity in f16", DT_F16, PRECISION_INT4, true, (double)INFINITY, 1, STATUS_INVALID, "element [2, 1]"},
    {"infinite with the factor", DT_F32, PRECISION_BF16, true, 3e38, 10, STATUS_INVALID, "element [2, 1]"},
    {"a weight that is no constant", DT_F32, PRECISION_INT8, false, 0, 1, STATUS_INVALID, "not constant"},
    {"f32 of a weight that is no constant", DT_F32, PRECISION_F32, false, 0, 1, STATUS_INVALID, "not constant"},
    {"doubles", DT_F64, PRECISION_INT8, true, 0, 1, STATUS_UNSUPPORTED, "f64"},
    {"integers", DT_I32, PRECISION_INT8, true, 0, 1, STATUS_UNSUPPORTED, "i32"},
    {"no such precision", DT_F32, 17, true, 0, 1, STATUS_INVALID, "weight_precision"},
    {"a negative precision", DT_F32, -1, true, 0, 1, STATUS_INVALID, "weight_precision"},
};

Test(weights, refusals) {
    for (size_t i = 0; i < sizeof refusals / sizeof *refusals; i++) {
        const Refusal *r = &refusals[i];
        AnchorCase c = anchor_case_new("matmul", 1);
        Value *a = anchor_case_input(&c, r->dtype, 2, (int64_t[]){4, 5}),
              *b = anchor_case_input(&c, r->dtype, 2, (int64_t[]){5, 3});
        c.node = graph_add_node(c.graph, NULL, NODE_ANCHOR, "matmul", (Value *[]){a, b}, 2);
        anchor_case_output(&c, r->dtype, 2, (int64_t[]){4, 3});
        node_set_int(c.node, WEIGHT_PRECISION, r->precision);
        if (r->alpha != 1) node_set_float(c.node, "alpha", r->alpha);
        if (r->element != 0) dtype_store_double(r->dtype, c.tensors[1]->data, 2 * 3 + 1, r->element);
        CpuAnchor *anchor;
        uint32_t released;
        Status status = cpu_anchor_prepare(c.node, (const Tensor *[]){NULL, r->constant ? c.tensors[1] : NULL}, NULL,
                                           NULL, &anchor, &released);
        cr_expect_eq(status_code(status), r->code, "%s: %s", r->name, status_message(status));
        cr_expect(strstr(status_message(status), r->part), "%s: %s", r->name, status_message(status));
        status_free(status);
        cpu_anchor_destroy(anchor);
        graph_destroy(c.graph);
    }
}

/* At the ends of the range: what is too large for the form is its largest number, what is too small is 0. */
Test(weights, ends_of_the_range) {
    static const float values[] = {1e30f, -1e30f, FLT_MAX, -FLT_MAX, 65519, 65520, 1e-45f, -1e-45f, FLT_MIN, 0, -0.0f};
    enum { COUNT = sizeof values / sizeof *values };
    for (int form = 0; form < FORMS; form++) {
        AnchorCase c = anchor_case_new("matmul", 1);
        Value *a = anchor_case_input(&c, DT_F32, 2, (int64_t[]){1, 1}),
              *b = anchor_case_input(&c, DT_F32, 2, (int64_t[]){1, COUNT});
        c.node = graph_add_node(c.graph, NULL, NODE_ANCHOR, "matmul", (Value *[]){a, b}, 2);
        anchor_case_output(&c, DT_F32, 2, (int64_t[]){1, COUNT});
        c.constant[1] = true;
        memcpy(c.tensors[1]->data, values, sizeof values);
        *(float *)c.tensors[0]->data = 1;
        Tensor *y = run_case(&c, c.tensors[1], NULL, forms[form], form_names[form]);
        for (int i = 0; i < COUNT; i++) {
            float got = ((float *)y->data)[i], most = forms[form] == PRECISION_F16    ? 65504
                                                      : forms[form] == PRECISION_BF16 ? 0x1.fep127f
                                                                                      : FLT_MAX;
            float want = fminf(fmaxf(values[i], -most), most);
            cr_expect(isfinite(got) && fabsf(got - want) <= fabsf(want) * 0x1p-8f + 0x1p-24f, "%s: %g is held as %g",
                      form_names[form], (double)values[i], (double)got);
        }
        graph_destroy(c.graph);
    }
}

/* ---- whole models ---- */

/* 4 is PRECISION_INT8: of each column's block of depths, the largest is 127 scales. */
#define MODEL(attribute)                                                                                               \
    "graph (x: f32[n, 2]) -> (y) {\n"                                                                                  \
    "w = constant f32[2, 2] {127, 1, 1.25, -127}\n"                                                                    \
    "b = constant f32[2] {10, 20}\n"                                                                                   \
    "h = onnx MatMul@21 x, w {" attribute "}\n"                                                                        \
    "z = onnx Add@21 h, b\ny = onnx Relu@21 z\n}\n"

Test(weights, an_attribute_of_the_node_reaches_the_product) {
    static const struct {
        const char *text, *result;
    } rows[] = {{MODEL("weight_precision = 4"), "f32[1, 2] {138, 0}"}, {MODEL(""), "f32[1, 2] {138.25, 0}"}};
    _Static_assert(PRECISION_INT8 == 4, "the models' attribute");
    for (int i = 0; i < 2; i++) {
        OnnxfuseSession *session = must_open(rows[i].text);
        char *wrong = run_and_compare(session, (const char *[]){"f32[1, 2] {1, 1}"}, (const char *[]){rows[i].result});
        cr_expect_null(wrong, "%s", wrong);
        free(wrong);
        onnxfuse_session_close(session);
    }
}

Test(weights, models_that_cannot_hold_them_are_refused_with_the_node) {
    static const struct {
        const char *text, *part;
    } rows[] = {
        {"graph (x: f32[2, 2], w: f32[2, 2]) -> (y) {\ny = onnx MatMul@21 x, w {weight_precision = 4}\n}\n",
         "not constant"},
        {"graph (x: i8[2, 2]) -> (y) {\nw = constant i8[2, 2] {1, 2, 3, 4}\n"
         "y = onnx MatMulInteger@21 x, w {weight_precision = 5}\n}\n",
         "integers"},
        {"graph (x: f64[2, 2]) -> (y) {\nw = constant f64[2, 2] {1, 2, 3, 4}\n"
         "y = onnx MatMul@21 x, w {weight_precision = 2}\n}\n",
         "f64"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        OnnxfuseSession *session = NULL;
        OnnxfuseStatus status = open_text(rows[i].text, NULL, &session);
        cr_expect(status && strstr(onnxfuse_status_message(status), rows[i].part) &&
                      strstr(onnxfuse_status_message(status), "MatMul"),
                  "%s: %s", rows[i].part, status ? onnxfuse_status_message(status) : "was opened");
        onnxfuse_status_free(status);
        onnxfuse_session_close(session);
    }
}

Test(weights, a_device_that_does_not_hold_them_says_so) {
    OnnxfuseOptions options = {.policy_json = "{\"device\": \"opencl\", \"cache\": {\"enable\": false}}"};
    OnnxfuseSession *session = NULL;
    OnnxfuseStatus status = open_text(MODEL(""), &options, &session);
    onnxfuse_session_close(session);
    skip_without_device(status);
    status = open_text(MODEL("weight_precision = 4"), &options, &session);
    cr_assert(status);
    cr_expect_eq(onnxfuse_status_code(status), ONNXFUSE_UNSUPPORTED);
    cr_expect(strstr(onnxfuse_status_message(status), "MatMul") && strstr(onnxfuse_status_message(status), "opencl"),
              "%s", onnxfuse_status_message(status));
    onnxfuse_status_free(status);
}

/* ---- memory of what a weight was before ---- */

/* How much of the file at `path` is in this process's memory, in kB. */
static long resident(const char *path) {
    FILE *maps = fopen("/proc/self/smaps", "r");
    char line[1024];
    long all = 0, some;
    bool inside = false;
    cr_assert(maps);
    while (fgets(line, sizeof line, maps)) {
        if (strchr(line, '-') && strchr(line, '-') < strchr(line, ' ')) inside = strstr(line, path) != NULL;
        if (inside && sscanf(line, "Rss: %ld", &some) == 1) all += some;
    }
    fclose(maps);
    return all;
}

typedef struct Narrowing {
    const char *name, *policy, *nodes;
} Narrowing;

enum { NARROWED_ROWS = 64, NARROWED_COLUMNS = 4096 };

/* The sum of the weight is 0. */
static void *narrowed_model(const Narrowing *row, size_t *out_size) {
    Arena *arena = arena_create(0);
    Text text = text_make(arena);
    text_add(&text, "graph (x: f32[2, %d]) -> (y) {\nw = constant f32[%d, %d] {", NARROWED_ROWS, NARROWED_ROWS,
             NARROWED_COLUMNS);
    for (int i = 0; i < NARROWED_ROWS * NARROWED_COLUMNS; i++)
        text_add(&text, "%s%s", i ? ", " : "", i % 2 ? "-3" : "3");
    text_add(&text, "}\nb = constant f32[1, 1] {2}\n%s}\n", row->nodes);
    void *bytes = model_bytes(text.data, out_size);
    arena_destroy(arena);
    return bytes;
}

static void check_narrowing(const Narrowing *row) {
    char path[] = "/tmp/onnxfuse_narrowed_XXXXXX";
    int file = mkstemp(path);
    size_t size;
    void *bytes = narrowed_model(row, &size);
    cr_assert(file >= 0 && write(file, bytes, size) == (ssize_t)size);
    close(file);
    Graph *graph = NULL;
    Policy policy = policy_default();
    Arena *arena = arena_create(0);
    ImportOptions options = {.unaligned_weights = true};
    cr_assert_null(policy_parse(row->policy, strlen(row->policy), "p", arena, &policy));
    cr_assert_null(import_file(path, &options, &graph));
    double sum = 0;
    for (int i = 0; i < graph->values.count; i++) {
        const Tensor *t = graph->values.items[i]->constant;
        for (int64_t k = 0, count = t ? tensor_count(t) : 0; k < count; k++) {
            float x;
            memcpy(&x, (const char *)t->data + k * (int64_t)sizeof x, sizeof x);
            sum += (double)x;
        }
    }
    cr_expect(sum == 0 || sum == 2, "%g", sum); /* without or with b */
    long held = resident(path), whole = (long)size / 1024;
    cr_expect_geq(held, whole / 2, "%s: the weight was read, but of %ld kB %ld are there", row->name, whole, held);
    Status status = pipeline_run(graph, &policy, NULL, NULL);
    cr_assert(!status, "%s: %s", row->name, status_message(status));
    held = resident(path);
    cr_expect_leq(held, whole / 4, "%s: of %ld kB of the file %ld are held", row->name, whole, held);
    graph_destroy(graph);
    arena_destroy(arena);
    free(bytes);
    unlink(path);
}

/* A weight that has become another leaves memory before the next one does, and not when all have. */
Test(weights, what_a_weight_was_before_leaves_memory) {
    static const Narrowing rows[] = {
        {"bf16 by the policy", "{\"precision\": \"bf16\"}", "y = onnx MatMul@21 x, w\n"},
        {"f16 by the policy", "{\"precision\": \"f16\"}", "y = onnx MatMul@21 x, w\n"},
        {"factors of a channel, too", "{\"precision\": \"bf16\"}", "h = onnx MatMul@21 x, w\ny = onnx Mul@21 h, b\n"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) check_narrowing(&rows[i]);
}
