/* SPDX-License-Identifier: Apache-2.0 */
/* One task of attention: block after block of keys, scores, their steps, the exponentials with a running maximum and sum
 * (Milakov and Gimelshein, "Online normalizer calculation for softmax", 2018), strip after strip of the block, and the weighted values,
 * which are scaled when the maximum has grown (Dao et al., "FlashAttention", 2022). Both products are the tiles of tile.h.
 *
 * Results are [query][element]. Many rows: scores are [key][query], the product of keys, read where they are by their
 * strides, with the queries turned once, so that the softmax goes along vectors; the weights of the second product are
 * the values where they are, its rows the scores, read down their columns. So nothing is packed, whatever the head's
 * size is, but values whose elements lie apart, and those whose rows lie so far apart that each is on a page of its own: a
 * worker copies such a matrix once, for all its tasks.
 * Few rows: scores are [query][key]; rows of several matrices stand behind each other.
 * Of bf16 with many rows both products are those of pairs: exponentials are rounded to bf16 before the second one, their sums
 * are not. */
#include <math.h>
#include <string.h>

#include "lowering/sizes.h"
#include "runtime/device/cpu/attention/block.h"
#include "runtime/device/cpu/quads.h"

/* Of few rows. A step of a block's keys stays in the first-level cache while all rows, and all tiles of columns, meet
 * it, and what comes next is asked for meanwhile. Steps of 4, 8, 16 and 32 keys and 8 and 16 ahead were measured at 1501
 * keys of 4 heads of 64 floats, 4 queries each, in caches of 48 MB, by one thread of an AMD EPYC of family 25 (Zen 3):
 * heads one after the other take 4.7 ms by these numbers and up to 5.2 by others, interleaved ones 5.6 and up to 6.5; by
 * whole blocks, row by row and head by head, it was 7.7 and 9.2. */
enum {
    FEW_KEYS = 4,       /* that are scored at a time: a tile of dots; of fewer rows a vector of them */
    FEW_VALUES = 8,     /* that are added up at a time */
    FEW_AHEAD = 8,      /* from those that are multiplied to those that are asked for */
    FEW_KEYS_STEP = 16, /* keys of a block are a multiple of it: whole vectors of scores */
};

/* Of many rows: keys that are scored and become exponentials at a time, while those of 64 queries stay in the first-level cache. Whole
 * tiles of 6, 8, 12 and 32 keys. */
enum { STRIP_KEYS = 96 };

/* ---- memory ---- */

int64_t attention_block_keys(const AttentionRun *run) {
    if (!run->few) return ATTENTION_KEYS;
    return most(FEW_KEYS_STEP, ATTENTION_FEW_KEYS / run->together / FEW_KEYS_STEP * FEW_KEYS_STEP);
}

Block block_make(const AttentionRun *run, int rows, char **memory) {
    const TileIsa *isa = tile_isa();
    const TileSet *set = &isa->f32;
    const int64_t lanes = set->lanes, size = (int64_t)sizeof(float);
    Block b = {.run = run, .isa = isa, .set = set, .rows = rows, .columns = (int)round_up(rows, lanes)};
    b.keys = attention_block_keys(run);
    b.size = round_up(run->shape.size, lanes);
    b.width = round_up(run->shape.width, lanes);
    b.stride = run->few ? b.keys : b.columns;
    int64_t lines = run->few ? rows : b.columns, pointers = most(b.keys, most(b.width, rows));
    b.queries = block_take(memory, b.size * lines * size);
    b.scores = block_take(memory, b.keys * lines * size);
    b.results = block_take(memory, b.width * rows * size);
    b.values = block_take(memory, b.keys * lines * size);
    b.dense = block_take(memory, lanes * most(b.keys, most(b.size, b.width)) * size);
    const int64_t matrices = run->few ? run->together : 1;
    b.k = block_take(memory, matrices * b.keys * b.size * size);
    b.v = block_take(memory, matrices * b.keys * b.width * size);
    b.top = block_take(memory, b.columns * size);
    b.sum = block_take(memory, b.columns * size);
    b.factor = block_take(memory, b.columns * size);
    b.last = block_take(memory, b.columns * size);
    b.offsets = block_take(memory, rows * (int64_t)sizeof(int64_t));
    b.k_matrices = block_take(memory, matrices * (int64_t)sizeof(int64_t));
    b.v_matrices = block_take(memory, matrices * (int64_t)sizeof(int64_t));
    b.score_rows = block_take(memory, b.keys * (int64_t)sizeof(void *));
    b.result_rows = block_take(memory, pointers * (int64_t)sizeof(void *));
    b.read_rows = block_take(memory, pointers * (int64_t)sizeof(void *));
    return b;
}

static int64_t key_blocks(const AttentionRun *run) { return ceil_div(run->shape.keys, attention_block_keys(run)); }

/* A task's block, with what its worker holds before it. */
static Block make_task(const AttentionRun *run, int rows, char **memory) {
    HeldValues *held = NULL;
    float *panels = NULL;
    if (run->packs) {
        const int64_t blocks = key_blocks(run), width = round_up(run->shape.width, tile_isa()->f32.lanes);
        held = block_take(memory, blocks * (int64_t)sizeof *held);
        panels = block_take(memory, blocks * attention_block_keys(run) * width * (int64_t)sizeof *panels);
    }
    Block b = block_make(run, rows, memory);
    b.held = held;
    b.panels = panels;
    return b;
}

size_t attention_task_bytes(const AttentionRun *run, int rows) {
    char *end = NULL;
    make_task(run, rows, &end);
    return (size_t)(uintptr_t)end;
}

void attention_task_begin(const AttentionRun *run, void *memory) {
    HeldValues *held = memory; /* as make_task takes them */
    for (int64_t i = 0; run->packs && i < key_blocks(run); i++) held[i].matrix = -1;
}

/* ---- pairs of bf16 ---- */

static bool is_even(const AttentionStrides *s) {
    bool even = s->column == 1 && s->row % 2 == 0;
    for (int i = 0; i < ATTENTION_LEAD; i++) even &= s->lead[i] % 2 == 0;
    return even;
}

/* Elements of queries and keys are pairs where they lie; values are paired key by key. */
static bool takes_pairs(const AttentionRun *run) {
    const AttentionShape *s = &run->shape;
    for (int i = 0; i < 3; i++)
        if (run->inputs[i]->dtype != DT_BF16 || (i < 2 && (uintptr_t)run->inputs[i]->data % QUAD)) return false;
    return !run->few && s->size % 2 == 0 && is_even(&s->q) && is_even(&s->k) && s->v.column == 1;
}

static AttentionStrides in_pairs(const AttentionStrides *s) {
    AttentionStrides pairs = *s;
    pairs.row /= 2;
    for (int i = 0; i < ATTENTION_LEAD; i++) pairs.lead[i] /= 2;
    return pairs;
}

/* odd NULL: zeros. */
VECTORISED static void pair_halves(const uint16_t *even, const uint16_t *odd, int64_t count, uint32_t *to) {
    if (odd)
        for (int64_t i = 0; i < count; i++) to[i] = (uint32_t)even[i] | (uint32_t)odd[i] << 16;
    else
        for (int64_t i = 0; i < count; i++) to[i] = even[i];
}

/* To nearest even, as dtype_store_double. */
static inline uint32_t rounded_half(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    uint32_t rounded = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
    return (bits & 0x7fffffff) > 0x7f800000 ? bits >> 16 | 0x40 : rounded;
}

/* `to` may be the row `even`. */
VECTORISED static void pair_floats(const float *even, const float *odd, int64_t count, float *to) {
    for (int64_t i = 0; i < count; i++) {
        uint32_t pair = rounded_half(even[i]) | rounded_half(odd[i]) << 16;
        memcpy(to + i, &pair, sizeof pair);
    }
}

/* ---- rows that are read ---- */

void attention_gather(DType dtype, const void *data, int64_t first, int64_t stride, int64_t count, float *to) {
    const uint16_t *narrow = (const uint16_t *)data + first;
    if (dtype == DT_F32) {
        const float *from = (const float *)data + first;
        if (stride == 1)
            memcpy(to, from, (size_t)count * sizeof *to);
        else
            for (int64_t i = 0; i < count; i++) to[i] = from[i * stride];
    } else if (dtype == DT_BOOL) {
        const uint8_t *from = (const uint8_t *)data + first;
        for (int64_t i = 0; i < count; i++) to[i] = from[i * stride] ? 1 : 0;
    } else if (stride == 1) {
        (dtype == DT_F16 ? tile_isa()->widen_f16 : tile_isa()->widen_bf16)(narrow, to, count);
    } else {
        for (int64_t i = 0; i < count; i++)
            to[i] = dtype == DT_F16 ? f16_to_f32(narrow[i * stride]) : bf16_to_f32(narrow[i * stride]);
    }
}

/* Where the task's rows begin. */
const int64_t *block_find_rows(const Block *b, const AttentionStrides *s) {
    attention_rows(b->run, s, b->task->matrix, b->task->first_row, b->rows, b->offsets);
    return b->offsets;
}

static bool evenly_spaced(const int64_t *offsets, int64_t count) {
    for (int64_t i = 2; i < count; i++)
        if (offsets[i] - offsets[i - 1] != offsets[1] - offsets[0]) return false;
    return true;
}

void block_turn_dense(const Block *b, int64_t stride, int64_t first, int64_t length, float *to) {
    const int64_t lanes = b->set->lanes;
    for (int64_t i = first; i < length; i += lanes) {
        void *columns[TILE_MAX_LANES];
        float spare[TILE_MAX_LANES];
        for (int64_t j = 0; j < lanes; j++) columns[j] = i + j < length ? to + (i + j) * b->columns : spare;
        b->set->transpose(b->dense + i, stride, columns);
    }
}

/* A vector of rows as columns: to[i * columns] and what follows, first <= i < length. Rows beyond the task's are zeros.
 */
static void turn_some(const Block *b, const Tensor *t, const AttentionStrides *s, const int64_t *offsets, int64_t count,
                      int64_t first, int64_t length, float *to) {
    const int64_t lanes = b->set->lanes, whole = round_up(length, lanes);
    for (int64_t i = 0; i < lanes; i++) {
        float *row = b->dense + i * whole;
        if (i < count)
            attention_gather(t->dtype, t->data, offsets[i] + first * s->column, s->column, length - first, row + first);
        else
            memset(row + first, 0, (size_t)(length - first) * sizeof *row);
    }
    block_turn_dense(b, whole, first, length, to);
}

/* The task's rows of an input, of strides s, as columns: to[i * columns + row] is element `shift` + i, i < length. */
void block_turn_rows(const Block *b, const Tensor *t, const AttentionStrides *s, int64_t shift, int64_t length,
                     float *to) {
    const int64_t lanes = b->set->lanes;
    int64_t *offsets = b->offsets;
    block_find_rows(b, s);
    for (int r = 0; r < b->rows; r++) offsets[r] += shift * s->column;
    for (int64_t r = 0; r < b->columns; r += lanes) {
        int64_t done = 0, count = least(lanes, b->rows - r);
        if (t->dtype == DT_F32 && s->column == 1 && count == lanes && evenly_spaced(offsets + r, lanes))
            for (; done + lanes <= length; done += lanes) {
                void *columns[TILE_MAX_LANES];
                for (int64_t j = 0; j < lanes; j++) columns[j] = to + (done + j) * b->columns + r;
                b->set->transpose((const float *)t->data + offsets[r] + done, offsets[r + 1] - offsets[r], columns);
            }
        if (done < length) turn_some(b, t, s, offsets + r, count, done, length, to + r);
    }
}

/* Asks for the task's rows of the queries, and of the result, which is written at the end: rows of one head are apart in
 * memory, so that no machine guesses them. */
static void ask_for_rows(const Block *b) {
    const AttentionRun *run = b->run;
    const AttentionShape *shape = &run->shape;
    const Tensor *q = run->inputs[0];
    const int64_t size = (int64_t)dtype_size(run->dtype), *offsets = block_find_rows(b, &shape->q);
    if (shape->q.column == 1)
        for (int r = 0; r < b->rows; r++)
            for (int64_t i = 0; i < shape->size * size; i += 64)
                __builtin_prefetch((const char *)q->data + offsets[r] * size + i);
    block_find_rows(b, &shape->out);
    if (shape->out.column == 1)
        for (int r = 0; r < b->rows; r++)
            for (int64_t i = 0; i < shape->width * size; i += 64)
                __builtin_prefetch(run->output + offsets[r] * size + i, 1, 2);
}

static void take_queries(const Block *b) {
    const AttentionRun *run = b->run;
    const AttentionStrides *s = &run->shape.q;
    const Tensor *q = run->inputs[0];
    ScoreCall call = {.x = b->queries, .kind = SCORE_SCALE, .alpha = run->scale};
    call.rows = run->few ? b->rows : run->shape.size;
    call.columns = call.stride = run->few ? b->size : b->columns;
    if (b->pairs) {
        AttentionStrides pairs = in_pairs(s);
        Tensor words = *q;
        words.dtype = DT_F32;
        block_turn_rows(b, &words, &pairs, 0, run->shape.size / 2, b->queries);
        return;
    }
    if (run->few) {
        const int64_t *offsets = block_find_rows(b, s);
        for (int r = 0; r < b->rows; r++)
            attention_gather(q->dtype, q->data, offsets[r], s->column, run->shape.size, b->queries + r * b->size);
    } else {
        block_turn_rows(b, q, s, 0, run->shape.size, b->queries);
    }
    b->isa->score_step(&call);
}

/* `count` keys of length `length`, from element `at` on. Floats are read where they are; others are widened along the axis
 * that is contiguous. */
static Side take_side(const Block *b, const Tensor *t, const AttentionStrides *s, int64_t at, int64_t count,
                      int64_t length, float *copy) {
    const int64_t step = round_up(length, b->set->lanes);
    if (t->dtype == DT_F32) return (Side){(const float *)t->data + at, s->row, s->column};
    if (s->row == 1 && s->column != 1) {
        for (int64_t e = 0; e < length; e++)
            attention_gather(t->dtype, t->data, at + e * s->column, 1, count, copy + e * b->keys);
        return (Side){copy, 1, b->keys};
    }
    for (int64_t i = 0; i < count; i++)
        attention_gather(t->dtype, t->data, at + i * s->row, s->column, length, copy + i * step);
    return (Side){copy, step, 1};
}

/* A vector of keys of `length` elements `apart` from each other, which begin beside each other at `from`, to rows `step` apart. */
static void turn_keys(const Block *b, const float *from, int64_t apart, int64_t length, int64_t step, float *to) {
    const int64_t lanes = b->set->lanes;
    int64_t e = 0;
    for (; e + lanes <= length; e += lanes) {
        void *rows[TILE_MAX_LANES];
        for (int64_t j = 0; j < lanes; j++) rows[j] = to + j * step + e;
        b->set->transpose(from + e * apart, apart, rows);
    }
    for (int64_t j = 0; e < length && j < lanes; j++)
        attention_gather(DT_F32, from, e * apart + j, apart, length - e, to + j * step + e);
}

/* Likewise values, whose elements are to lie beside each other, and to be readable in whole vectors: what lies behind a
 * row is read with it where the tensor goes on. */
static Side take_weights(const Block *b, const Tensor *t, const AttentionStrides *s, int64_t at, int64_t count,
                         int64_t length, float *copy) {
    const int64_t lanes = b->set->lanes, step = round_up(length, lanes);
    const float *floats = t->dtype == DT_F32 ? (const float *)t->data + at : NULL;
    if (floats && s->column <= 1 && at + (count - 1) * s->row + step <= tensor_count(t))
        return (Side){floats, s->row, 1};
    int64_t done = 0;
    for (; floats && s->row == 1 && done + lanes <= count; done += lanes)
        turn_keys(b, floats + done, s->column, length, step, copy + done * step);
    for (; done < count; done++)
        attention_gather(t->dtype, t->data, at + done * s->row, s->column, length, copy + done * step);
    return (Side){copy, step, 1};
}

/* ---- products ---- */

/* results[i][j] (+)= sum over k of rows[i][k * (1 + call->depth_gap)] * weight[k][j], i < count, j < columns. panels: the
 * weight is panels of columns, one behind the other (panel_pack), and call->weight_stride theirs.
 * What is read next is not asked for: the machine guesses it, and at so short depths asking took 3 to 4 % of the whole
 * (512 to 2048 keys, heads of 64, one thread of an AMD EPYC of family 26). */
static void multiply(const TileSet *set, TileCall *call, const void *const *rows, void *const *results, int64_t count,
                     const float *weight, bool panels, int64_t columns) {
    static const int64_t no_offset[1] = {0};
    const int64_t lanes = set->lanes, widest = set->vectors * lanes;
    call->offsets = no_offset;
    call->taps = 1;
    for (int64_t j = 0; j < columns; j += widest) {
        int64_t some = least(columns - j, widest);
        call->weight = weight + (panels ? j * call->depth : j);
        if (panels) call->weight_stride = round_up(some, lanes);
        call->column = j;
        call->columns = (int)some;
        call->rows = rows;
        call->results = results;
        tile_products(set, (int)((some + lanes - 1) / lanes), (int)count, call, weight, 0);
    }
}

void block_multiply(const Block *b, TileCall *call, const void *const *rows, void *const *results, int64_t count,
                    const float *weight, int64_t columns) {
    multiply(b->set, call, rows, results, count, weight, false, columns);
}

void block_score_keys(const Block *b, const Side *k, int64_t at, int64_t count) {
    int64_t size = b->run->shape.size;
    for (int64_t i = 0; i < count; i++) b->read_rows[i] = k->data + i * k->row;
    TileCall call = {.depth = size, .depth_gap = k->column - 1, .weight_stride = b->columns};
    if (size == 1) call.depth_gap = 0;
    block_multiply(b, &call, b->read_rows, b->score_rows + at, count, b->queries, b->columns);
}

/* Likewise of pairs, where keys lie; they are scaled here, since queries are as they came. */
static void score_pairs(const Block *b, int64_t first, int64_t at, int64_t count) {
    const AttentionRun *run = b->run;
    const AttentionShape *shape = &run->shape;
    const uint16_t *keys = (const uint16_t *)run->inputs[1]->data + b->k_matrices[0] + first * shape->k.row;
    for (int64_t i = 0; i < count; i++) b->read_rows[i] = keys + i * shape->k.row;
    TileCall call = {.depth = shape->size / 2, .weight_stride = b->columns, .scales = true, .scale = run->scale};
    multiply(b->pairs, &call, b->read_rows, b->score_rows + at, count, b->queries, false, b->columns);
}

/* Probabilities become pairs of neighbouring keys, in place, and values beside them. */
static void add_pairs(const Block *b, int64_t first, int64_t count, bool begins) {
    const AttentionRun *run = b->run;
    const AttentionShape *shape = &run->shape;
    const int64_t width = shape->width, columns = b->columns, pairs = (count + 1) / 2;
    int64_t at = b->v_matrices[0] + first * shape->v.row;
    const uint16_t *values = (const uint16_t *)run->inputs[2]->data + at;
    if (count % 2) memset(b->scores + count * columns, 0, (size_t)columns * sizeof *b->scores);
    for (int64_t p = 0; p < pairs; p++, values += 2 * shape->v.row) {
        float *scores = b->scores + 2 * p * columns;
        pair_floats(scores, scores + columns, columns, b->scores + p * columns);
        pair_halves(values, 2 * p + 1 < count ? values + shape->v.row : NULL, width,
                    (uint32_t *)(void *)(b->v + p * width));
    }
    for (int r = 0; r < b->rows; r++) b->read_rows[r] = b->scores + r;
    TileCall call = {.depth = pairs, .has_addend = !begins, .weight_stride = width};
    call.depth_gap = pairs == 1 ? 0 : columns - 1;
    multiply(b->pairs, &call, b->read_rows, b->result_rows, b->rows, b->v, false, width);
}

/* The values of keys [first, first + count) in panels, which the worker's next tasks find there. */
static const float *held_panels(const Block *b, int64_t first, int64_t count) {
    const AttentionShape *shape = &b->run->shape;
    const int64_t block = first / b->keys, matrix = b->v_matrices[0];
    float *panels = b->panels + block * b->keys * b->width;
    HeldValues *held = &b->held[block];
    if (held->matrix != matrix || held->first != first || held->count != count) {
        static const int64_t no_tap[1] = {0};
        const Weight weight = {.set = b->set, .groups = 1, .taps = 1, .depth = count, .columns = shape->width};
        WeightSource source = {.column = 1, .depth = shape->v.row, .taps = no_tap, .scale = 1};
        source.data = (const float *)b->run->inputs[2]->data + matrix + first * shape->v.row;
        for (int64_t i = 0; i < weight_panels(&weight); i++) {
            const Panel panel = weight_panel(&weight, i);
            panel_pack(&weight, &source, &panel, (char *)panels + panel.at);
        }
        *held = (HeldValues){matrix, first, count};
    }
    return panels;
}

static void add_values(const Block *b, int64_t first, int64_t count, bool begins) {
    const AttentionShape *shape = &b->run->shape;
    TileCall call = {.depth = count, .has_addend = !begins};
    call.depth_gap = count == 1 ? 0 : b->columns - 1;
    for (int r = 0; r < b->rows; r++) b->read_rows[r] = b->scores + r;
    if (b->held) {
        const float *panels = held_panels(b, first, count);
        multiply(b->set, &call, b->read_rows, b->result_rows, b->rows, panels, true, shape->width);
        return;
    }
    int64_t at = b->v_matrices[0] + first * shape->v.row;
    Side v = take_weights(b, b->run->inputs[2], &shape->v, at, count, shape->width, b->v);
    call.weight_stride = v.row;
    block_multiply(b, &call, b->read_rows, b->result_rows, b->rows, v.data, shape->width);
}

/* ---- products of few rows ---- */

/* How many keys of all matrices are scored at a time. */
static int64_t few_keys(const Block *b, int64_t rows) { return rows < FEW_KEYS ? b->set->lanes : FEW_KEYS; }

/* take_side or take_weights */
typedef Side Take(const Block *b, const Tensor *t, const AttentionStrides *s, int64_t at, int64_t count, int64_t length,
                  float *copy);

/* The task's keys or values [first, first + count) of each of its matrices. */
static void take_sides(const Block *b, const Tensor *t, const AttentionStrides *s, const int64_t *matrices,
                       int64_t first, int64_t count, int64_t length, Take *take, float *copy, Side *sides) {
    for (int64_t m = 0; m < b->run->together; m++, copy += b->keys * round_up(length, b->set->lanes))
        sides[m] = take(b, t, s, matrices[m] + first * s->row, count, length, copy);
}

/* Asks for part `part` of as many as there are matrices, of keys or values [first, first + count) of all these, in the
 * order in which they lie: interleaved heads are read one after the other, and no machine guesses what comes next. */
static void ask_for_few(const Block *b, const Tensor *t, const AttentionStrides *s, const int64_t *matrices,
                        int64_t first, int64_t count, int64_t length, int64_t part) {
    const int64_t parts = b->run->together, line = 64 / sizeof(float);
    count = least(count, b->task->end_key - first);
    if (t->dtype != DT_F32 || count <= 0) return; /* all else is widened before */
    for (int64_t i = first + part * count / parts; i < first + (part + 1) * count / parts; i++)
        for (int64_t m = 0; m < parts; m++)
            for (int64_t e = 0; e < length; e += line)
                __builtin_prefetch((const float *)t->data + matrices[m] + i * s->row + e);
    __asm__ volatile(""); /* else GCC drops calls of what does no more than this */
}

static void ask_for_keys(const Block *b, int64_t first, int64_t count, int64_t part) {
    const AttentionShape *shape = &b->run->shape;
    ask_for_few(b, b->run->inputs[1], &shape->k, b->k_matrices, first, count, shape->size, part);
}

static void ask_for_values(const Block *b, int64_t first, int64_t count, int64_t part) {
    const AttentionShape *shape = &b->run->shape;
    ask_for_few(b, b->run->inputs[2], &shape->v, b->v_matrices, first, count, shape->width, part);
}

static void score_few(const Block *b, int64_t first, int64_t count) {
    const AttentionShape *shape = &b->run->shape;
    const int64_t rows = least(b->rows, b->run->rows), some = few_keys(b, rows);
    Side sides[ATTENTION_ROWS];
    take_sides(b, b->run->inputs[1], &shape->k, b->k_matrices, first, count, shape->size, take_side, b->k, sides);
    for (int64_t at = 0; at < count; at += some)
        for (int64_t m = 0; m < b->run->together; m++) {
            Dots call = {.row_stride = b->size, .stride = sides[m].row, .result_stride = b->stride};
            call.rows = b->queries + m * rows * b->size;
            call.row_count = (int)rows;
            call.weight = sides[m].data + at * sides[m].row;
            call.depth = shape->size;
            call.columns = least(some, count - at);
            call.results = b->scores + m * rows * b->stride + at;
            if (at + FEW_AHEAD < count) ask_for_keys(b, first + at + FEW_AHEAD, call.columns, m);
            b->isa->dots(&call);
        }
    for (int64_t m = 0; m < b->run->together; m++) ask_for_values(b, first, least(FEW_AHEAD, count), m);
}

static void add_few(const Block *b, int64_t first, int64_t count, bool begins) {
    const AttentionShape *shape = &b->run->shape;
    const int64_t rows = least(b->rows, b->run->rows), some = FEW_VALUES;
    Side sides[ATTENTION_ROWS];
    take_sides(b, b->run->inputs[2], &shape->v, b->v_matrices, first, count, shape->width, take_weights, b->v, sides);
    for (int64_t at = 0; at < count; at += some)
        for (int64_t m = 0; m < b->run->together; m++) {
            TileCall call = {.has_addend = !begins || at, .weight_stride = sides[m].row};
            call.depth = least(some, count - at);
            for (int64_t r = 0; r < rows; r++) b->read_rows[r] = b->scores + (m * rows + r) * b->stride + at;
            if (at + FEW_AHEAD < count)
                ask_for_values(b, first + at + FEW_AHEAD, call.depth, m);
            else
                ask_for_keys(b, first + at + FEW_AHEAD, call.depth, m);
            block_multiply(b, &call, b->read_rows, b->result_rows + m * rows, rows, sides[m].data + at * sides[m].row,
                           shape->width);
        }
}

/* ---- steps ---- */

static int64_t query_of(const Block *b, int row) { return (b->task->first_row + row) % b->run->shape.queries; }

static void hide_later(const Block *b, const AttentionStep *step, float *scores, int64_t first, int64_t count) {
    bool adds = step->kind == SCORE_CAUSAL_ADD, all_seen = true;
    for (int r = 0; r < b->columns; r++) {
        int64_t seen = r < b->rows ? query_of(b, r) + b->run->shape.offset - first : count;
        seen = most(-1, least(seen, count));
        b->last[r] = (int32_t)seen;
        all_seen &= seen >= count - 1;
    }
    if (all_seen) return;
    if (!b->run->few) {
        ScoreCall call = {.x = scores, .rows = count, .columns = b->columns, .stride = b->stride};
        call.alpha = step->alpha;
        b->isa->score_limit(&call, b->last, adds);
        return;
    }
    for (int r = 0; r < b->rows; r++) {
        float *x = scores + r * b->stride;
        for (int64_t i = b->last[r] + 1; i < count; i++) x[i] = adds ? x[i] + step->alpha : step->alpha;
    }
}

/* What a step reads for this block, in the scores' form: along the axes that it has. */
static void take_values(const Block *b, const AttentionStrides *s, const Tensor *t, int64_t first, int64_t count,
                        ScoreCall *call) {
    const AttentionRun *run = b->run;
    bool same_rows = !s->row && (!s->lead[ATTENTION_HEADS] || (run->group == 1 && b->rows <= run->rows));
    call->values = b->values;
    if (run->few) {
        call->value_column = s->column != 0;
        call->value_row = same_rows ? 0 : b->stride;
        const int64_t *offsets = block_find_rows(b, s);
        for (int r = 0; r < (same_rows ? 1 : b->rows); r++)
            attention_gather(t->dtype, t->data, offsets[r] + first * s->column, s->column, s->column ? count : 1,
                             b->values + r * b->stride);
    } else if (same_rows) {
        call->value_row = s->column != 0;
        attention_gather(t->dtype, t->data, block_find_rows(b, s)[0] + first * s->column, s->column,
                         s->column ? count : 1, b->values);
    } else {
        call->value_row = s->column ? b->columns : 0;
        call->value_column = 1;
        block_turn_rows(b, t, s, first, s->column ? count : 1, b->values);
    }
}

void block_step(const Block *b, const AttentionStep *step, int index, float *x, int64_t first, int64_t count) {
    const AttentionRun *run = b->run;
    if (score_step_is_causal(step->kind)) {
        hide_later(b, step, x, first, count);
        return;
    }
    ScoreCall call = {.x = x, .stride = b->stride, .kind = step->kind};
    call.alpha = step->alpha;
    call.beta = step->beta;
    call.rows = run->few ? b->rows : count;
    call.columns = run->few ? count : b->columns;
    if (step->input >= 0) take_values(b, &run->shape.steps[index], run->inputs[step->input], first, count, &call);
    b->isa->score_step(&call);
}

/* ---- the task ---- */

static void scale_results(const Block *b) {
    b->isa->score_scale(b->results, b->rows, b->width, b->factor, b->result_rows);
}

/* Exponentials of keys [first, first + count), row `at` of the block's scores and what follows. */
static void score(const Block *b, int64_t first, int64_t at, int64_t count, bool begins) {
    const AttentionRun *run = b->run;
    const AttentionShape *shape = &run->shape;
    ScoreBlock scores = {.x = b->scores + at * b->columns, .keys = count, .stride = b->stride, .earlier = at};
    if (run->few) {
        score_few(b, first, count);
    } else if (b->pairs) {
        score_pairs(b, first, at, count);
    } else {
        Side k =
            take_side(b, run->inputs[1], &shape->k, b->k_matrices[0] + first * shape->k.row, count, shape->size, b->k);
        block_score_keys(b, &k, at, count);
    }
    for (int i = 0; i < run->step_count; i++) block_step(b, &run->steps[i], i, scores.x, first, count);
    scores.columns = run->few ? b->rows : b->columns;
    scores.top = b->top;
    scores.sum = b->sum;
    scores.factor = b->factor;
    bool grows = run->few ? b->isa->score_softmax_rows(&scores) : b->isa->score_softmax_columns(&scores);
    if (grows && !begins) scale_results(b);
}

static void run_block(const Block *b, int64_t first, int64_t count, bool begins) {
    const AttentionRun *run = b->run;
    const int64_t step = run->few ? count : STRIP_KEYS;
    for (int64_t at = 0; at < count; at += step) score(b, first + at, at, least(step, count - at), begins);
    if (run->drop) {
        block_draw(b, first, count);
        block_drop(b, b->scores, count);
    }
    if (run->few)
        add_few(b, first, count, begins);
    else if (b->pairs)
        add_pairs(b, first, count, begins);
    else
        add_values(b, first, count, begins);
}

/* The number of the task's first row among all. */
static int64_t first_of(const Block *b) { return b->task->matrix * b->run->rows + b->task->first_row; }

/* The results of some of the keys, for who joins them with those of the others. */
static void keep_part(const Block *b) {
    float *to = b->task->partial;
    for (int r = 0; r < b->rows; r++, to += b->task->partial_stride) {
        to[0] = b->top[r];
        to[1] = b->sum[r];
        memcpy(to + 2, b->results + r * b->width, (size_t)b->run->shape.width * sizeof *to);
    }
}

/* Whether scaled results are the output's rows as they are. Rows of no key, or with a NaN, are attention_store's matter. */
static bool ends_in_output(const Block *b) {
    const AttentionRun *run = b->run;
    const AttentionShape *shape = &run->shape;
    bool ends = run->dtype == DT_F32 && shape->out.column == 1 && shape->width == b->width && !run->logarithms;
    for (int r = 0; r < b->rows; r++) ends &= b->sum[r] > 0;
    return ends;
}

static void finish(const Block *b) {
    const AttentionRun *run = b->run;
    const int64_t *offsets = block_find_rows(b, &run->shape.out), first = first_of(b);
    for (int r = 0; r < b->rows; r++) {
        b->sum[r] = attention_whole_sum(run, first + r, b->top[r], b->sum[r]);
        b->factor[r] = 1 / b->sum[r];
    }
    const bool ends = ends_in_output(b);
    for (int r = 0; r < b->rows && ends; r++) b->result_rows[r] = (float *)(void *)run->output + offsets[r];
    scale_results(b);
    for (int r = 0; r < b->rows && !ends; r++)
        attention_store(run, offsets[r], b->results + r * b->width, b->sum[r], b->top[r], first + r);
}

void attention_task(const AttentionRun *run, const AttentionTask *task, void *memory) {
    char *end = memory;
    Block b = make_task(run, task->rows, &end);
    b.task = task;
    if (takes_pairs(run)) b.pairs = tile_set_pairs();
    for (int i = 0; i < b.columns; i++) b.top[i] = -INFINITY, b.sum[i] = 0;
    for (int64_t i = 0; i < least(b.keys, run->shape.keys) && !run->few; i++)
        b.score_rows[i] = b.scores + i * b.columns;
    for (int r = 0; r < b.rows; r++) b.result_rows[r] = b.results + r * b.width;
    if (task->first_key >= task->end_key) memset(b.results, 0, (size_t)(b.width * b.rows) * sizeof *b.results);
    for (int64_t m = 0; m < (run->few ? run->together : 1); m++) {
        b.k_matrices[m] = attention_matrix(run, &run->shape.k, run->shape.k_heads, task->matrix + m);
        b.v_matrices[m] = attention_matrix(run, &run->shape.v, run->shape.v_heads, task->matrix + m);
    }
    ask_for_rows(&b);
    take_queries(&b);
    for (int64_t at = task->first_key; at < task->end_key && !pool_is_stopped(); at += b.keys)
        run_block(&b, at, least(b.keys, task->end_key - at), at == task->first_key);
    if (task->partial)
        keep_part(&b);
    else
        finish(&b);
}
