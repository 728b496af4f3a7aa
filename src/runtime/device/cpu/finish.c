/* SPDX-License-Identifier: Apache-2.0 */
/* Cuts a block of raw results into pieces along which every tensor of the epilogue has one row stride, and calls the
 * epilogue's kernel on each. Mostly the block is one piece. */
#include "runtime/device/cpu/finish.h"

#include <string.h>

/* Whether the kernel meets one element of the buffer, wherever it is, or else goes on in it along a row: it does not
 * where the last axis was known to be 1. */
static void how_met(const Kernel *k, int buffer, bool *out_scalar, bool *out_along) {
    *out_scalar = *out_along = true;
    for (int i = 0; i < k->insts.count; i++) {
        const KernelInst *inst = &k->insts.items[i];
        if ((inst->op != K_LOAD && inst->op != K_STORE) || inst->buffer != buffer) continue;
        *out_scalar &= !inst->axes;
        *out_along &= inst->access->kind[1] != STRIDE_ZERO;
    }
}

bool finish_bind(Finish *f, KernelFunction function, const RegionKernel *region, int64_t size,
                 const Tensor *const *inputs, const Tensor *outputs) {
    const Kernel *k = region->kernel;
    int rank = outputs[0].rank;
    *f = (Finish){.function = function, .region = region, .columns = outputs[0].dims[rank - 1], .size = size};
    f->base = (const char *)(uintptr_t)4096; /* never read or written */
    f->flat = f->alone = true;
    if (region->buffer_count > FINISH_BUFFERS) return false;
    for (int i = 0; i < region->buffer_count; i++) {
        FinishBuffer *b = &f->buffers[i];
        const Tensor *t = region->buffer_output[i] >= 0 ? &outputs[region->buffer_output[i]]
                          : region->buffer_input[i] > 0 ? inputs[region->buffer_input[i] + 1]
                                                        : NULL;
        if (!t) continue;
        b->data = t->data;
        b->size = (int64_t)dtype_size(k->buffers.items[i].dtype);
        if (dtype_of_code(t->dtype) != k->buffers.items[i].dtype ||
            !broadcast_of(t->rank, t->dims, rank, outputs[0].dims, &b->over))
            return false;
        b->wide = b->over.inner % f->columns == 0 && b->over.inner >= f->columns;
        bool scalar, along;
        how_met(k, i, &scalar, &along);
        f->flat &= scalar || (along && b->over.inner == b->over.period);
        f->alone &= scalar || region->buffer_output[i] >= 0;
    }
    for (int i = 0; i < k->insts.count; i++) f->alone &= k->insts.items[i].op != K_RANDOM;
    return true;
}

void finish_bind_rounding(Finish *f, const Tensor *output, const PlainEpilogue *plain, const Tensor *addend) {
    *f = (Finish){.rounded = output, .columns = output->dims[output->rank - 1], .size = sizeof(float)};
    f->base = (const char *)(uintptr_t)4096;
    f->ends = (TileEnds){.bounds = plain->bounds, .to = (char *)output->data - (uintptr_t)f->base / 2};
    if (addend) f->ends.addend = (const char *)addend->data - (uintptr_t)f->base / 2;
}

void finish_move(Finish *f, int64_t row, void *to) {
    for (int i = 0; i < f->region->buffer_count; i++) {
        FinishBuffer *b = &f->buffers[i];
        if (f->region->buffer_output[i] >= 0)
            b->data = (char *)((uintptr_t)to - (uintptr_t)(row * f->columns * b->size));
    }
}

/* Rows from `row` on that are `*out_stride` elements apart in the buffer. */
static int64_t even_rows(const Finish *f, const FinishBuffer *b, int64_t row, int64_t *out_stride) {
    int64_t columns = f->columns, rows = b->over.period / columns;
    if (b->over.inner == b->over.period) { /* not repeated */
        *out_stride = columns;
        return INT64_MAX;
    }
    if (!b->wide) { /* one element for all columns of so many rows */
        *out_stride = rows == 1;
        return rows == 1 ? INT64_MAX : rows - row % rows;
    }
    int64_t inner = b->over.inner / columns;
    *out_stride = inner == 1 ? 0 : columns;
    return inner == 1 ? rows - row % rows : inner - row % inner;
}

typedef struct Piece {
    int64_t row, column, rows, columns; /* of the result */
    const char *raw;
    int64_t raw_stride;
    char *const *outputs; /* not NULL: results go here, each by its number, one row after the other */
} Piece;

/* Calls the kernel on as many rows as have one stride in all buffers: their number. */
static int64_t call_kernel(const Finish *f, const Piece *p) {
    const RegionKernel *region = f->region;
    void *buffers[FINISH_BUFFERS];
    int64_t strides[FINISH_BUFFERS], params[FINISH_BUFFERS + TILE_PARAM_KINDS + KERNEL_NUMBERS];
    int64_t first = p->row * f->columns, rows = p->rows;
    for (int i = 0; i < region->buffer_count; i++) {
        const FinishBuffer *b = &f->buffers[i];
        strides[i] = p->raw_stride;
        buffers[i] = (void *)(uintptr_t)p->raw;
        if (!b->data) continue;
        int64_t even = even_rows(f, b, p->row, &strides[i]);
        int64_t at = first / b->over.period * b->over.inner + first % b->over.inner + (b->wide ? p->column : 0);
        if (even < rows) rows = even;
        buffers[i] = b->data + at * b->size;
        if (p->outputs && region->buffer_output[i] >= 0) buffers[i] = p->outputs[region->buffer_output[i]];
    }
    for (int i = 0; i < region->kernel->param_count; i++) {
        const TileParam *t = &region->tile[i];
        params[i] = t->kind == TILE_PARAM_ROWS         ? rows
                    : t->kind == TILE_PARAM_COLUMNS    ? p->columns
                    : t->kind == TILE_PARAM_ROW_STRIDE ? strides[t->buffer]
                    : t->kind == TILE_PARAM_INDEX_STEP ? f->columns
                    : t->kind == TILE_PARAM_NUMBER     ? t->number
                                                       : first + p->column;
    }
    f->function(buffers, params, 0, rows, NULL);
    return rows;
}

/* Sizes are powers of two, and rows are many. */
static int64_t element_of(const Finish *f, const void *result, int64_t column) {
    return (((const char *)result - f->base) >> __builtin_ctzll((unsigned long long)f->size)) + column;
}

static Piece piece_at(const Finish *f, int64_t element, int64_t rows, int64_t columns, const void *raw,
                      int64_t raw_stride) {
    return (Piece){.row = element / f->columns,
                   .column = element % f->columns,
                   .rows = rows,
                   .columns = columns,
                   .raw = raw,
                   .raw_stride = raw_stride};
}

/* How many rows from the first on begin `line` bytes apart. */
static int run_of(void *const *results, int m, int64_t line) {
    int rows = 1;
    while (rows < m && (const char *)results[rows] - (const char *)results[0] == rows * line) rows++;
    return rows;
}

/* ---- short rows far apart ---- */

/* Each would be a call of a few elements: they are finished as one row, and then put where they belong. */
enum { SHORT_COLUMNS = 8, SHORT_ROWS = 64 };

/* `bytes` of each row from where the rows lie close together to where each belongs. */
static inline __attribute__((always_inline)) void scatter(const Finish *f, const FinishBuffer *b, void *const *results,
                                                          int rows, int64_t column, const char *from, size_t bytes) {
    for (int i = 0; i < rows; i++, from += bytes)
        memcpy(b->data + element_of(f, results[i], column) * b->size, from, bytes);
}

static void finish_apart(const Finish *f, void *const *results, int m, int64_t column, int64_t count, const char *raw) {
    char memory[EPILOGUE_OUTPUTS][SHORT_ROWS * SHORT_COLUMNS * sizeof(double)];
    char *outputs[EPILOGUE_OUTPUTS];
    for (int o = 0; o < EPILOGUE_OUTPUTS; o++) outputs[o] = memory[o];
    for (int first = 0, rows; first < m; first += rows) {
        rows = m - first < SHORT_ROWS ? m - first : SHORT_ROWS;
        Piece p = piece_at(f, 0, 1, rows * count, raw + first * count * f->size, rows * count);
        p.outputs = outputs;
        call_kernel(f, &p);
        for (int b = 0; b < f->region->buffer_count; b++) {
            int o = f->region->buffer_output[b];
            const FinishBuffer *buffer = &f->buffers[b];
            size_t bytes = (size_t)(count * buffer->size);
            if (o < 0) continue;
            if (bytes == 8) /* two f32, as where a picture is made twice as large: by a move, not by a call */
                scatter(f, buffer, results + first, rows, column, memory[o], 8);
            else
                scatter(f, buffer, results + first, rows, column, memory[o], bytes);
        }
    }
}

/* ---- blocks ---- */

int64_t finish_stride(const Finish *f, int64_t columns, int64_t width) {
    return columns % f->columns == 0 || (f->alone && columns <= SHORT_COLUMNS) ? columns : width;
}

void finish_raw_rows(void *raw, int m, int64_t stride, int64_t column, int64_t size, void **rows) {
    for (int i = 0; i < m; i++) rows[i] = (void *)((uintptr_t)raw + (uintptr_t)((i * stride - column) * size));
}

static void finish_piece(const Finish *f, const Piece *piece) {
    Piece p = *piece;
    while (p.rows > 0) {
        int64_t rows = call_kernel(f, &p);
        p.rows -= rows;
        p.row += rows;
        p.raw += rows * p.raw_stride * f->size;
    }
}

static void round_rows(const Finish *f, void *const *results, int m, int64_t column, int64_t count, const float *raw,
                       int64_t raw_stride) {
    uint16_t *to = f->rounded->data;
    for (int i = 0; i < m; i++, raw += raw_stride) {
        if (f->rounded->dtype == DT_F16)
            tile_isa()->narrow_f16(raw, to + element_of(f, results[i], column), count);
        else
            tile_set_pairs()->end_row(&f->ends, raw, results[i], column, count);
    }
}

void finish_rows(const Finish *f, void *const *results, int m, int64_t column, int64_t count, const void *raw,
                 int64_t raw_stride) {
    if (f->rounded) {
        round_rows(f, results, m, column, count, raw, raw_stride);
        return;
    }
    bool dense = raw_stride == count;
    /* A row of the block may be several of the result, which then follow each other. */
    int64_t whole = dense && count % f->columns == 0 && column % f->columns == 0 ? count / f->columns : 0;
    int64_t line = (whole ? count : f->columns) * f->size;
    if (dense && f->alone && count <= SHORT_COLUMNS && m > 1 && run_of(results, m, line) < m) {
        finish_apart(f, results, m, column, count, raw);
        return;
    }
    for (int i = 0, rows; i < m; i += rows) {
        rows = run_of(results + i, m - i, line);
        Piece p = piece_at(f, element_of(f, results[i], column), rows, 0, (const char *)raw + i * raw_stride * f->size,
                           raw_stride);
        if (whole && f->flat) { /* all the same wherever they stand: one long row */
            p.columns = p.raw_stride = rows * count;
            p.rows = 1;
            call_kernel(f, &p);
            continue;
        }
        if (whole) {
            p.rows = rows * whole;
            p.columns = p.raw_stride = f->columns;
            finish_piece(f, &p);
            continue;
        }
        for (int64_t left = count; left > 0; left -= p.columns) {
            p.rows = rows;
            p.columns = left < f->columns - p.column ? left : f->columns - p.column;
            finish_piece(f, &p);
            p.raw += p.columns * f->size;
            p.column += p.columns;
            if (p.column == f->columns) p.column = 0, p.row++;
        }
    }
}
