/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/device/cpu/matmul/dots.h"

#include <string.h>
#include "lowering/sizes.h"

/* DOT_ROWS: by columns of f32 or f16, each of which reads them again. BLOCK_DOT_ROWS: by columns in blocks. DOT_COLUMNS: of a task. */
enum { DOT_ROWS = 4, BLOCK_DOT_ROWS = 8, DOT_COLUMNS = 64 };

typedef struct DotLoop {
    const MatmulShape *shape;
    const char *a, *b;
    float *out;
    float *wide; /* not NULL: a and b are of f16; a worker's room for a row and a part's columns, widened */
    float alpha;
    const BoundEpilogue *epilogue;
    int64_t parts; /* of the columns */
} DotLoop;

static int64_t columns_parts(const MatmulShape *s) { return (s->columns + DOT_COLUMNS - 1) / DOT_COLUMNS; }

/* Parts of so many rows that are worth a task. */
static int64_t parts_a_task(const MatmulShape *s, int64_t rows) {
    return 32768 / (rows * (s->depth + 16) * DOT_COLUMNS);
}

/* Columns [first, first + count) of the row `out`, whose sums stand at `raw`. */
static void finish_dots(const BoundEpilogue *e, float alpha, float *out, int64_t first, int64_t count, float *raw) {
    for (int64_t j = 0; alpha != 1 && j < count; j++) raw[j] *= alpha;
    const float *bias = e->bias;
    const float *addend =
        e->addend ? (const float *)((const char *)raw + ((const char *)e->addend - (const char *)e->result)) : NULL;
    for (int64_t j = 0; bias && j < count; j++) raw[j] += bias[first + j];
    for (int64_t j = 0; addend && j < count; j++) raw[j] += addend[j];
    if (e->bounds.clamp) tile_set(DT_F32)->bound(raw, count, &e->bounds);
    if (e->finish) finish_rows(e->finish, (void *[]){out}, 1, first, count, raw, count);
}

static void run_dots(void *context, int64_t begin, int64_t end, int worker) {
    const DotLoop *loop = context;
    const MatmulShape *s = loop->shape;
    for (int64_t i = begin; i < end; i++) {
        int64_t batch = i / loop->parts, part = i % loop->parts;
        int64_t first = part * s->columns / loop->parts, count = (part + 1) * s->columns / loop->parts - first;
        const int64_t size = loop->wide ? (int64_t)sizeof(uint16_t) : (int64_t)sizeof(float);
        const char *a = loop->a + matmul_batch_offset(s, s->a_batch, batch) * size,
                   *b = loop->b + (matmul_batch_offset(s, s->b_batch, batch) + first * s->b_column) * size;
        float *out = loop->out + matmul_batch_offset(s, s->out_batch, batch);
        float *wide = loop->wide ? loop->wide + worker * (1 + DOT_COLUMNS) * s->depth : NULL;
        for (int64_t j = 0; wide && j < count; j++)
            tile_isa()->widen_f16(b + j * s->b_column * size, wide + (1 + j) * s->depth, s->depth);
        for (int64_t row = 0; row < s->rows; row++, a += s->a_row * size, out += s->out_row) {
            float raw[DOT_COLUMNS], *to = loop->epilogue->finish ? raw : out + first;
            if (wide) tile_isa()->widen_f16(a, wide, s->depth);
            const void *x = wide ? (const void *)wide : a, *columns = wide ? (const void *)(wide + s->depth) : b;
            tile_isa()->dot(x, columns, wide ? s->depth : s->b_column, s->depth, to, count);
            finish_dots(loop->epilogue, loop->alpha, out, first, count, to);
        }
    }
}

bool dots_take(const MatmulShape *s) {
    return s->b_depth == 1 && s->b_column != 1 && s->depth > 1 && s->rows <= DOT_ROWS;
}

Status dots_run(AnchorRun *run, const MatmulShape *s, const void *a, const void *b, bool halves, void *result,
                float alpha) {
    void *wide = NULL;
    size_t bytes = (size_t)(1 + DOT_COLUMNS) * (size_t)s->depth * sizeof(float);
    if (halves) TRY(scratch_take(&run->scratch, bytes * (size_t)pool_threads(run->pool), &wide));
    DotLoop loop = {s, a, b, result, wide, alpha, &run->epilogue, 1};
    loop.parts = columns_parts(s);
    double work = (double)s->batches * (double)s->rows * (double)s->columns * (double)s->depth;
    pool_tell(work);
    pool_for(work < 65536 ? NULL : run->pool, s->batches * loop.parts, parts_a_task(s, s->rows), run_dots, &loop);
    return NULL;
}

/* ---- weights in blocks ---- */

typedef struct BlocksLoop {
    const MatmulShape *shape;
    const WeightBlocks *blocks;
    WeightKind kind;
    float *const *rows, *const *sums; /* as BlockDots; of each row a result */
    float *const *out;                /* [rows] */
    int64_t row_count;
    char *memory; /* a worker's: of so many columns their scales, and behind these zero points */
    int64_t room; /* floats of a column's scales */
    float alpha;
    const BoundEpilogue *epilogue;
    int64_t parts;
} BlocksLoop;

static void sum_blocks(const float *row, int64_t depth, int64_t block, float *to) {
    for (int64_t k = 0; k < depth; k += block, to++) {
        int64_t end = depth - k < block ? depth : k + block;
        *to = 0;
        for (int64_t i = k; i < end; i++) *to += row[i];
    }
}

/* Zero points of `count` blocks, packed as bits, less what stands for 0. Numbers of a last byte that are more are written, too. */
VECTORISED static void unpack_zeros(const uint8_t *from, int64_t count, int bits, float *to) {
    if (bits == 8)
        for (int64_t i = 0; i < count; i++) to[i] = (float)(from[i] - 128);
    else if (bits == 4)
        for (int64_t i = 0; i < (count + 1) / 2; i++) {
            to[2 * i] = (float)((from[i] & 15) - 8);
            to[2 * i + 1] = (float)((from[i] >> 4) - 8);
        }
    else
        for (int64_t i = 0; i < (count + 3) / 4; i++)
            for (int q = 0; q < 4; q++) to[4 * i + q] = (float)((from[i] >> 2 * q & 3) - 2);
}

static void widen_floats(DType dtype, const void *data, int64_t first, int64_t count, float *to) {
    const char *from = (const char *)data + first * (int64_t)dtype_size(dtype);
    if (dtype == DT_F32)
        memcpy(to, from, (size_t)count * sizeof *to);
    else if (dtype == DT_F16)
        tile_isa()->widen_f16(from, to, count);
    else if (dtype == DT_BF16)
        tile_isa()->widen_bf16(from, to, count);
    else
        for (int64_t i = 0; i < count; i++) to[i] = (float)dtype_load_double(dtype, data, first + i);
}

/* The scales of a column: where they are, if whole vectors can be read of them, else with zeros behind them in `room`. */
static const char *scales_of(const BlocksLoop *loop, int64_t column, int lanes, float *room) {
    const WeightBlocks *b = loop->blocks;
    const int64_t first = column * b->count, words = loop->shape->depth / weight_word(loop->kind);
    const bool whole =
        b->k % weight_word(loop->kind) == 0 && words % lanes == 0 && (!b->zeros || b->count % lanes == 0);
    if (b->scales->dtype == DT_F32 && whole && first + b->count + lanes <= tensor_count(b->scales))
        return (const char *)b->scales->data + first * (int64_t)sizeof(float);
    widen_floats(b->scales->dtype, b->scales->data, first, b->count, room);
    memset(room + b->count, 0, (size_t)(loop->room - b->count) * sizeof *room);
    return (const char *)room;
}

static const float *zeros_of(const BlocksLoop *loop, int64_t column, float *room) {
    const WeightBlocks *b = loop->blocks;
    if (b->zeros->dtype == DT_U8) {
        const int64_t bytes = (b->count * b->bits + 7) / 8;
        unpack_zeros((const uint8_t *)b->zeros->data + column * bytes, b->count, b->bits, room);
    } else {
        widen_floats(b->zeros->dtype, b->zeros->data, column * b->count, b->count, room);
        for (int64_t i = 0; i < b->count; i++) room[i] -= (float)weight_middle(b);
    }
    memset(room + b->count, 0, (size_t)(loop->room - b->count) * sizeof *room);
    return room;
}

/* Columns [first, first + count), of all rows, to results[row][0, count). */
static void dot_columns(const BlocksLoop *loop, int64_t first, int64_t count, float *room, float *const *results) {
    const WeightBlocks *b = loop->blocks;
    const int lanes = tile_isa()->f32.lanes;
    const int64_t word = weight_word(loop->kind), bytes = b->count * b->block_bytes;
    const char *weights[BLOCK_DOT_COLUMNS], *scales[BLOCK_DOT_COLUMNS];
    const float *zeros[BLOCK_DOT_COLUMNS];
    float *to[NARROW_TILE_ROWS];
    BlockDots call = {.weights = weights,
                      .scales = scales,
                      .zeros = b->zeros ? zeros : NULL,
                      .words = (b->k + word - 1) / word,
                      .block_words = b->block / word,
                      .blocks = b->count,
                      .ahead = bytes * BLOCK_DOT_COLUMNS,
                      .results = to};
    for (int64_t j = 0; j < count; j += call.columns) {
        call.columns = (int)(count - j < BLOCK_DOT_COLUMNS ? count - j : BLOCK_DOT_COLUMNS);
        for (int c = 0; c < call.columns; c++) {
            float *own = room + c * 2 * loop->room;
            weights[c] = (const char *)weight_block_bits(b, first + j + c, 0);
            scales[c] = scales_of(loop, first + j + c, lanes, own);
            if (b->zeros) zeros[c] = zeros_of(loop, first + j + c, own + loop->room);
        }
        int64_t row = 0, left = loop->row_count;
        for (int64_t tiles = (left + NARROW_TILE_ROWS - 1) / NARROW_TILE_ROWS, m; tiles > 0;
             tiles--, left -= m, row += m) {
            m = (left + tiles - 1) / tiles;
            for (int64_t i = 0; i < m; i++) to[i] = results[row + i] + j;
            call.rows = (const float *const *)loop->rows + row;
            call.sums = b->zeros ? (const float *const *)loop->sums + row : NULL;
            tile_isa()->block_dots[loop->kind][m](&call);
        }
    }
}

static void run_block_dots(void *context, int64_t begin, int64_t end, int worker) {
    const BlocksLoop *loop = context;
    const MatmulShape *s = loop->shape;
    float *room = (float *)(void *)loop->memory + worker * 2 * BLOCK_DOT_COLUMNS * loop->room;
    for (int64_t part = begin; part < end; part++) {
        int64_t first = part * s->columns / loop->parts, count = (part + 1) * s->columns / loop->parts - first;
        float raw[BLOCK_DOT_ROWS][DOT_COLUMNS], *to[BLOCK_DOT_ROWS];
        for (int64_t i = 0; i < loop->row_count; i++) to[i] = loop->epilogue->finish ? raw[i] : loop->out[i] + first;
        dot_columns(loop, first, count, room, to);
        for (int64_t i = 0; i < loop->row_count; i++)
            finish_dots(loop->epilogue, loop->alpha, loop->out[i], first, count, to[i]);
    }
}

bool dots_take_blocks(const MatmulShape *s, const WeightBlocks *b) {
    return s->rows * s->batches <= BLOCK_DOT_ROWS && b->bits != 3 && (b->block & (b->block - 1)) == 0;
}

Status dots_run_blocks(AnchorRun *run, const MatmulShape *s, const float *a, const WeightBlocks *b, void *result,
                       float alpha) {
    const int lanes = tile_isa()->f32.lanes;
    BlocksLoop loop = {.shape = s, .blocks = b, .kind = blocks_form(b).kind, .row_count = s->rows * s->batches};
    const int64_t length = tile_arranged(loop.kind, lanes, b->k);
    float *rows[BLOCK_DOT_ROWS], *sums[BLOCK_DOT_ROWS], *out[BLOCK_DOT_ROWS];
    void *memory;
    loop.room = round_up(b->count, lanes) + lanes;
    /* rows and their sums, and behind these what workers have */
    size_t row_floats = (size_t)(length + (b->zeros ? loop.room : 0)), own = (size_t)loop.room * 2 * BLOCK_DOT_COLUMNS;
    TRY(scratch_take(&run->scratch,
                     (row_floats * (size_t)loop.row_count + own * (size_t)pool_threads(run->pool)) * sizeof(float),
                     &memory));
    for (int64_t i = 0; i < loop.row_count; i++) {
        int64_t batch = i / s->rows, row = i % s->rows;
        const float *from = a + matmul_batch_offset(s, s->a_batch, batch) + row * s->a_row;
        rows[i] = (float *)memory + (size_t)i * row_floats;
        sums[i] = rows[i] + length;
        out[i] = (float *)result + matmul_batch_offset(s, s->out_batch, batch) + row * s->out_row;
        tile_arrange_row(loop.kind, lanes, from, b->k, rows[i]);
        if (!b->zeros) continue;
        memset(sums[i], 0, (size_t)loop.room * sizeof(float));
        sum_blocks(from, b->k, b->block, sums[i]);
    }
    loop.rows = rows, loop.sums = sums, loop.out = out;
    loop.memory = (char *)memory + row_floats * (size_t)loop.row_count * sizeof(float);
    loop.alpha = alpha, loop.epilogue = &run->epilogue;
    loop.parts = columns_parts(s);
    double work = (double)loop.row_count * (double)s->columns * (double)s->depth;
    pool_tell(work);
    pool_for(work < 65536 ? NULL : run->pool, loop.parts, parts_a_task(s, loop.row_count), run_block_dots, &loop);
    return NULL;
}
