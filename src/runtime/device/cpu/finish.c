/* SPDX-License-Identifier: Apache-2.0 */
/* Cuts a block of raw results into pieces along which every tensor of the epilogue has one row stride, and calls the
 * epilogue's kernel on each. Mostly the block is one piece. */
#include "runtime/device/cpu/finish.h"

bool finish_bind(Finish *f, KernelFunction function, const RegionKernel *region, int64_t size,
                 const Tensor *const *inputs, const Tensor *outputs) {
    const Kernel *k = region->kernel;
    int rank = outputs[0].rank;
    *f = (Finish){.function = function, .region = region, .columns = outputs[0].dims[rank - 1], .size = size};
    f->base = (const char *)(uintptr_t)4096; /* never read or written */
    if (region->buffer_count > FINISH_BUFFERS) return false;
    for (int i = 0; i < region->buffer_count; i++) {
        FinishBuffer *b = &f->buffers[i];
        const Tensor *t = region->buffer_output[i] >= 0  ? &outputs[region->buffer_output[i]]
                          : region->buffer_input[i] > 0 ? inputs[region->buffer_input[i] + 1]
                                                         : NULL;
        if (!t) continue;
        b->data = t->data;
        b->size = (int64_t)dtype_size(k->buffers.items[i].dtype);
        if (t->dtype != k->buffers.items[i].dtype ||
            !broadcast_of(t->rank, t->dims, rank, outputs[0].dims, &b->over))
            return false;
        b->wide = b->over.inner % f->columns == 0 && b->over.inner >= f->columns;
    }
    return true;
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
} Piece;

static void finish_piece(const Finish *f, const Piece *piece) {
    const RegionKernel *region = f->region;
    Piece p = *piece;
    for (int64_t left = p.rows; left > 0; left -= p.rows, p.row += p.rows) {
        void *buffers[FINISH_BUFFERS];
        int64_t strides[FINISH_BUFFERS], params[FINISH_BUFFERS + TILE_PARAM_KINDS];
        p.rows = left;
        for (int i = 0; i < region->buffer_count; i++) {
            const FinishBuffer *b = &f->buffers[i];
            strides[i] = p.raw_stride;
            buffers[i] = (void *)(uintptr_t)p.raw;
            if (!b->data) continue;
            int64_t even = even_rows(f, b, p.row, &strides[i]), first = p.row * f->columns;
            int64_t at = first / b->over.period * b->over.inner + first % b->over.inner + (b->wide ? p.column : 0);
            if (even < p.rows) p.rows = even;
            buffers[i] = b->data + at * b->size;
        }
        for (int i = 0; i < region->kernel->param_count; i++) {
            const TileParam *t = &region->tile[i];
            params[i] = t->kind == TILE_PARAM_ROWS         ? p.rows
                        : t->kind == TILE_PARAM_COLUMNS    ? p.columns
                        : t->kind == TILE_PARAM_ROW_STRIDE ? strides[t->buffer]
                        : t->kind == TILE_PARAM_INDEX_STEP ? f->columns
                                                     : p.row * f->columns + p.column;
        }
        f->function(buffers, params, 0, p.rows, NULL);
        p.raw += p.rows * p.raw_stride * f->size;
    }
}

void finish_rows(const Finish *f, void *const *results, int m, int64_t column, int64_t count, const void *raw,
                 int64_t raw_stride) {
    int64_t line = f->columns * f->size;
    for (int i = 0, rows; i < m; i += rows) {
        const char *first = results[i];
        for (rows = 1; i + rows < m && (const char *)results[i + rows] - first == rows * line;) rows++;
        int64_t element = (first - f->base) / f->size + column;
        Piece p = {.row = element / f->columns,
                   .column = element % f->columns,
                   .rows = rows,
                   .raw = (const char *)raw + i * raw_stride * f->size,
                   .raw_stride = raw_stride};
        for (int64_t left = count; left > 0; left -= p.columns) { /* a row of the block may be several of the result */
            p.columns = left < f->columns - p.column ? left : f->columns - p.column;
            finish_piece(f, &p);
            p.raw += p.columns * f->size;
            p.column += p.columns;
            if (p.column == f->columns) p.column = 0, p.row++;
        }
    }
}
