/* SPDX-License-Identifier: Apache-2.0 */
/* Packing of weights into panels. */
#include <string.h>
#include "graph/dtype.h"
#include "runtime/device/cpu/work.h"
#include "runtime/device/cpu/product.h"

static int64_t panel_width(const TileSet *set) { return (int64_t)set->vectors * set->lanes; }

int64_t weight_panels(const Weight *weight) {
    int64_t width = panel_width(weight->set);
    return weight->groups * ((weight->columns + width - 1) / width);
}

static size_t column_bytes(const Weight *weight) {
    int64_t length = weight->taps * weight->depth;
    return weight->form.kind ? narrow_column_bytes(&weight->form, length) : (size_t)length * weight->set->size;
}

Status weight_bytes(const Weight *weight, size_t *out_bytes) {
    int64_t padded, elements, lanes = weight->set->lanes;
    if (__builtin_add_overflow(weight->columns, lanes - 1, &padded) ||
        __builtin_mul_overflow(padded / lanes * lanes, weight->groups, &elements) ||
        __builtin_mul_overflow(elements, weight->taps, &elements) ||
        __builtin_mul_overflow(elements, weight->depth, &elements) || elements > INT64_MAX / 16)
        return status_error(STATUS_INVALID, "the weight is too large");
    *out_bytes = (size_t)(padded / lanes * lanes * weight->groups) * column_bytes(weight);
    return NULL;
}

typedef struct Packing {
    const Weight *weight;
    const WeightSource *source;
    char *wide; /* of a narrow form: a panel a worker, in the work type */
    size_t wide_bytes;
} Packing;

/* `count` elements that are `step` apart, wherever they come from: weights may stand unaligned in a mapped file. halves: of f16. */
static void take_elements(size_t size, bool halves, const char *from, int64_t step, int64_t count, void *to) {
    if (halves && step == 1) {
        tile_isa()->widen_f16(from, to, count);
    } else if (halves) {
        for (int64_t i = 0; i < count; i++) {
            uint16_t half;
            memcpy(&half, from + i * step * (int64_t)sizeof half, sizeof half);
            ((float *)to)[i] = f16_to_f32(half);
        }
    } else if (size == 4) {
        for (int64_t i = 0; i < count; i++) memcpy((char *)to + i * 4, from + i * step * 4, 4);
    } else {
        for (int64_t i = 0; i < count; i++) memcpy((char *)to + i * 8, from + i * step * 8, 8);
    }
}

static int64_t source_size(const Weight *w, const WeightSource *s) {
    return s->halves ? (int64_t)sizeof(uint16_t) : (int64_t)w->set->size;
}

/* lanes rows of as many elements, `stride` elements apart, to columns[i]. */
static void turn_block(const TileSet *set, bool halves, const char *from, int64_t stride, void *const *columns) {
    float wide[TILE_MAX_LANES][TILE_MAX_LANES];
    const int lanes = set->lanes;
    for (int i = 0; halves && i < lanes; i++)
        tile_isa()->widen_f16(from + i * stride * (int64_t)sizeof(uint16_t), wide[0] + i * lanes, lanes);
    set->transpose(halves ? (const void *)wide : from, halves ? lanes : stride, columns);
}

/* A column's depths and taps follow each other in memory (weights of convolutions, transposed matrices): square blocks
 * are turned in registers. The source's index q is depth q / taps, tap q % taps. */
static void pack_turned(const Weight *w, const WeightSource *s, const char *from, int columns, int64_t width,
                        char *to) {
    const TileSet *set = w->set;
    const int64_t size = source_size(w, s), column_stride = s->column;
    int64_t length = w->taps * w->depth, lanes = set->lanes;
    void *rows[TILE_MAX_LANES];
    for (int64_t q = 0; q < length; q += lanes) {
        int64_t some = length - q < lanes ? length - q : lanes;
        for (int64_t i = 0; i < some; i++) {
            int64_t row = w->taps == 1 ? q + i : (q + i) % w->taps * w->depth + (q + i) / w->taps;
            rows[i] = to + row * width * (int64_t)set->size;
        }
        for (int c = 0; c < columns; c += (int)lanes) {
            const char *block = from + (c * column_stride + q) * size;
            if (some == lanes && c + lanes <= columns)
                turn_block(set, s->halves, block, column_stride, rows);
            else
                for (int64_t i = 0; i < some; i++)
                    take_elements(set->size, s->halves, block + i * size, column_stride,
                                  columns - c < lanes ? columns - c : lanes, rows[i]);
            for (int64_t i = 0; i < some; i++) rows[i] = (char *)rows[i] + lanes * (int64_t)set->size;
        }
    }
}

static bool is_turned(const Weight *w, const WeightSource *s) {
    if (!w->set->transpose || s->depth != w->taps) return false;
    for (int64_t t = 0; t < w->taps; t++)
        if (s->taps[t] != t) return false;
    return true;
}

static void scale_panel(const TileSet *set, void *data, int64_t count, double scale) {
    if (set->sums == DT_F32)
        for (int64_t i = 0; i < count; i++) ((float *)data)[i] *= (float)scale;
    else if (set->sums == DT_F64)
        for (int64_t i = 0; i < count; i++) ((double *)data)[i] *= scale;
}

/* Rows that are whole in memory, `step` bytes apart: lines of far pages, which no machine guesses by itself, so they are asked for
 * some rows ahead. */
static inline __attribute__((always_inline)) void copy_rows(const char *from, int64_t step, int64_t count, size_t bytes,
                                                            char *to, int64_t to_step) {
    enum { ROWS_AHEAD = 16 };
    for (int64_t k = 0; k < count; k++, from += step, to += to_step) {
        __builtin_prefetch((const void *)((uintptr_t)from + (uintptr_t)(ROWS_AHEAD * step)));
        memcpy(to, from, bytes);
    }
}

static void take_rows(const char *from, int64_t step, int64_t count, size_t bytes, char *to, int64_t to_step) {
    switch (bytes) { /* whole panels by the width of vectors, without a call for each row */
    case 32: copy_rows(from, step, count, 32, to, to_step); return;
    case 64: copy_rows(from, step, count, 64, to, to_step); return;
    case 256: copy_rows(from, step, count, 256, to, to_step); return;
    default: copy_rows(from, step, count, bytes, to, to_step);
    }
}

void panel_pack(const Weight *w, const WeightSource *s, const Panel *panel, void *data) {
    size_t size = w->set->size;
    int64_t width = (int64_t)panel->vectors * w->set->lanes;
    const int64_t from_size = source_size(w, s);
    const char *from = (const char *)s->data + (panel->group * s->group + panel->first * s->column) * from_size;
    char *to = data;
    if (panel->columns < width) memset(to, 0, (size_t)(w->taps * w->depth * width) * size);
    if (is_turned(w, s)) {
        pack_turned(w, s, from, panel->columns, width, to);
    } else {
        const int64_t row_bytes = width * (int64_t)size;
        for (int64_t t = 0; t < w->taps; t++, to += w->depth * row_bytes) {
            const char *rows = from + s->taps[t] * from_size;
            if (s->column == 1 && !s->halves)
                take_rows(rows, s->depth * from_size, w->depth, (size_t)panel->columns * size, to, row_bytes);
            else
                for (int64_t k = 0; k < w->depth; k++)
                    take_elements(size, s->halves, rows + k * s->depth * from_size, s->column, panel->columns,
                                  to + k * row_bytes);
        }
    }
    if (s->scale != 1) scale_panel(w->set, data, w->taps * w->depth * width, s->scale);
}

Panel weight_panel(const Weight *w, int64_t index) {
    int64_t most = panel_width(w->set), lanes = w->set->lanes, a_group = (w->columns + most - 1) / most;
    Panel p = {.group = w->groups == 1 ? 0 : index / a_group};
    p.first = (index - p.group * a_group) * most;
    int64_t left = w->columns - p.first;
    p.columns = (int)(left < most ? left : most);
    p.vectors = (int)((p.columns + lanes - 1) / lanes);
    p.at = (size_t)(p.group * ((w->columns + lanes - 1) / lanes * lanes) + p.first) * column_bytes(w);
    return p;
}

static void pack_panels(void *context, int64_t begin, int64_t end, int worker) {
    const Packing *packing = context;
    const Weight *w = packing->weight;
    float *wide = (float *)(void *)(packing->wide + packing->wide_bytes * (size_t)worker);
    for (int64_t i = begin; i < end; i++) {
        Panel panel = weight_panel(w, i);
        void *out = (char *)w->data + panel.at;
        int64_t length = w->taps * w->depth, width = (int64_t)panel.vectors * w->set->lanes;
        if (packing->source->blocks) {
            blocks_panel(&w->form, packing->source->blocks, panel.first, panel.columns, width, out);
            continue;
        }
        panel_pack(w, packing->source, &panel, w->form.kind ? wide : out);
        if (w->form.kind == WEIGHT_F16 && packing->source->halves && packing->source->scale == 1) /* as they are */
            tile_isa()->narrow_f16(wide, out, length * width);
        else if (w->form.kind)
            narrow_panel(w->form.kind, wide, length, width, out);
    }
}

Status weight_pack(const Weight *weight, const WeightSource *source, Pool *pool) {
    Packing packing = {.weight = weight, .source = source};
    Scratch scratch = {0};
    int64_t panels = weight_panels(weight), elements = weight->taps * weight->depth * weight->columns * weight->groups;
    if (elements < 16384) pool = NULL;
    if (weight->form.kind && !source->blocks) {
        void *memory;
        int64_t rows = weight->taps * weight->depth;
        packing.wide_bytes = ((size_t)(rows * panel_width(weight->set)) * sizeof(float) + 63) / 64 * 64;
        TRY(scratch_take(&scratch, packing.wide_bytes * (size_t)pool_threads(pool), &memory));
        packing.wide = memory;
    }
    pool_tell((double)elements * MOVING_WORK);
    pool_for(pool, panels, 1, pack_panels, &packing);
    scratch_release(&scratch);
    return NULL;
}
