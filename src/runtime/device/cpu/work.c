/* SPDX-License-Identifier: Apache-2.0 */
/* Conversions between stored element types and work types, and copies that make a permuted tensor dense. */
#include "runtime/device/cpu/work.h"

#include <string.h>
#include "lowering/anchors.h"
#include "runtime/device/cpu/tiles/tile.h"

enum { PIECE = 1 << 14 }; /* elements: 10 us or so of the slower conversions */

bool is_work(DType dtype) { return dtype_size(dtype) == dtype_size(anchor_work_type(dtype)); }

typedef struct Conversion {
    DType dtype;
    const char *from;
    char *to;
} Conversion;

static void widen_piece(void *context, int64_t begin, int64_t end, int worker) {
    (void)worker;
    const Conversion *c = context;
    int64_t count = end - begin;
    const char *from = c->from + begin * (int64_t)dtype_size(c->dtype);
    float *to = (float *)(void *)c->to + begin;
    if (is_work(c->dtype))
        memcpy(c->to + begin * (int64_t)dtype_size(c->dtype), from, (size_t)count * dtype_size(c->dtype));
    else if (c->dtype == DT_F16)
        tile_isa()->widen_f16(from, to, count);
    else if (c->dtype == DT_BF16)
        tile_isa()->widen_bf16(from, to, count);
    else if (anchor_work_type(c->dtype) == DT_F32)
        for (int64_t i = 0; i < count; i++) to[i] = (float)dtype_load_double(c->dtype, from, i);
    else
        for (int64_t i = 0; i < count; i++)
            ((uint32_t *)(void *)c->to)[begin + i] = (uint32_t)dtype_load_int(c->dtype, from, i);
}

void work_widen(DType from, const void *data, void *out, int64_t count, Pool *pool) {
    Conversion c = {from, data, out};
    pool_tell((double)count * MOVING_WORK);
    pool_for(pool, count, PIECE, widen_piece, &c);
}

static void narrow_piece(void *context, int64_t begin, int64_t end, int worker) {
    (void)worker;
    const Conversion *c = context;
    int64_t count = end - begin;
    const float *from = (const float *)(const void *)c->from + begin;
    const uint32_t *integers = (const uint32_t *)(const void *)c->from + begin;
    char *to = c->to + begin * (int64_t)dtype_size(c->dtype);
    if (is_work(c->dtype))
        memcpy(to, c->from + begin * (int64_t)dtype_size(c->dtype), (size_t)count * dtype_size(c->dtype));
    else if (c->dtype == DT_F16)
        tile_isa()->narrow_f16(from, (uint16_t *)(void *)to, count);
    else if (c->dtype == DT_BF16)
        tile_isa()->narrow_bf16(from, (uint16_t *)(void *)to, count);
    else if (anchor_work_type(c->dtype) == DT_F32)
        for (int64_t i = 0; i < count; i++) dtype_store_double(c->dtype, to, i, (double)from[i]);
    else if (dtype_size(c->dtype) == 2) /* the low bits of a wrapped integer */
        for (int64_t i = 0; i < count; i++) ((uint16_t *)(void *)to)[i] = (uint16_t)integers[i];
    else
        for (int64_t i = 0; i < count; i++) ((uint8_t *)to)[i] = (uint8_t)integers[i];
}

void work_narrow(DType to, const void *work, void *out, int64_t count, Pool *pool) {
    Conversion c = {to, work, out};
    pool_tell((double)count * MOVING_WORK);
    pool_for(pool, count, PIECE, narrow_piece, &c);
}

Status work_take(DType dtype, const void *data, int64_t count, int64_t slack, Pool *pool, Scratch *scratch,
                 const void **out_data) {
    size_t size = dtype_size(anchor_work_type(dtype)), bytes;
    void *copy;
    *out_data = data;
    if (is_work(dtype) && !slack) return NULL;
    if (__builtin_mul_overflow((size_t)count + (size_t)slack, size, &bytes)) return status_out_of_memory();
    TRY(scratch_take(scratch, bytes, &copy));
    work_widen(dtype, data, copy, count, pool);
    if (slack) memset((char *)copy + (size_t)count * size, 0, (size_t)slack * size);
    *out_data = copy;
    return NULL;
}

/* ---- strided copies ---- */

typedef struct StridedCopy {
    size_t size;
    int outer; /* axes before the last two */
    int64_t dims[MAX_RANK];
    int64_t strides[MAX_RANK];
    int64_t rows, columns; /* the last two axes */
    int64_t row_stride, column_stride;
    const char *in;
    char *out;
} StridedCopy;

enum {
    BAND = 16,          /* rows of the last two axes that are copied together: a line of f32 */
    COLUMNS_AHEAD = 32, /* far lines, which no machine guesses by itself, are asked for so many columns ahead */
};

/* BAND rows by as many columns, whose elements follow each other along the rows in memory: whole lines of a few rows are written
 * at a time, since the same place of several rows is mostly the same set of the cache. */
static void turn_square(const StridedCopy *c, const TileSet *set, const char *in, char *out) {
    const int64_t step = c->column_stride * 4;
    for (int64_t k = 0; k < BAND; k++)
        __builtin_prefetch((const void *)((uintptr_t)in + (uintptr_t)((COLUMNS_AHEAD + k) * step)));
    for (int64_t i = 0; i < BAND; i += set->lanes)
        for (int64_t j = 0; j < BAND; j += set->lanes) {
            void *to[BAND];
            for (int64_t r = 0; r < set->lanes; r++) to[r] = out + ((i + r) * c->columns + j) * 4;
            set->transpose(in + i * 4 + j * step, c->column_stride, to);
        }
}

static void copy_rows(const StridedCopy *c, const char *in, char *out, int64_t rows) {
    const bool turns = c->size == 4 && c->row_stride == 1 && rows == BAND;
    for (int64_t j = 0, end; j < c->columns; j = end) {
        end = j + BAND < c->columns ? j + BAND : c->columns;
        if (turns && end - j == BAND) {
            turn_square(c, tile_set(DT_F32), in + j * c->column_stride * 4, out + j * 4);
            continue;
        }
        for (int64_t i = 0; i < rows; i++)
            for (int64_t k = j; k < end; k++) {
                int64_t from = i * c->row_stride + k * c->column_stride, to = i * c->columns + k;
                if (c->size == 4)
                    memcpy(out + to * 4, in + from * 4, 4);
                else
                    memcpy(out + to * 8, in + from * 8, 8);
            }
    }
}

static void copy_bands(void *context, int64_t begin, int64_t end, int worker) {
    (void)worker;
    const StridedCopy *c = context;
    int64_t bands = (c->rows + BAND - 1) / BAND;
    for (int64_t b = begin; b < end; b++) {
        int64_t matrix = b / bands, row = b % bands * BAND, from = row * c->row_stride, rest = matrix;
        for (int i = c->outer - 1; i >= 0; i--) {
            from += rest % c->dims[i] * c->strides[i];
            rest /= c->dims[i];
        }
        int64_t rows = c->rows - row < BAND ? c->rows - row : BAND;
        copy_rows(c, c->in + from * (int64_t)c->size, c->out + (matrix * c->rows + row) * c->columns * (int64_t)c->size,
                  rows);
    }
}

void strided_copy(size_t size, int rank, const int64_t *dims, const int64_t *strides, const void *in, void *out,
                  Pool *pool) {
    StridedCopy c = {.size = size, .in = in, .out = out};
    int64_t matrices = 1;
    c.outer = rank > 2 ? rank - 2 : 0;
    for (int i = 0; i < c.outer; i++) {
        c.dims[i] = dims[i];
        c.strides[i] = strides[i];
        matrices *= dims[i];
    }
    c.rows = rank > 1 ? dims[rank - 2] : 1;
    c.columns = rank > 0 ? dims[rank - 1] : 1;
    c.row_stride = rank > 1 ? strides[rank - 2] : 0;
    c.column_stride = rank > 0 ? strides[rank - 1] : 1;
    int64_t bands = matrices * ((c.rows + BAND - 1) / BAND), band = BAND * c.columns;
    if (!bands || !c.columns) return;
    pool_tell((double)matrices * (double)(c.rows * c.columns) * MOVING_WORK);
    pool_for(pool, bands, band < PIECE ? PIECE / band : 1, copy_bands, &c);
}
