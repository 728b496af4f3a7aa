/* SPDX-License-Identifier: Apache-2.0 */
/* Packing of weights into panels. */
#include <string.h>
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

/* One element, wherever it comes from: weights may stand unaligned in a mapped file. */
static void copy_element(size_t size, void *to, int64_t to_index, const void *from, int64_t from_index) {
    if (size == 4)
        memcpy((char *)to + to_index * 4, (const char *)from + from_index * 4, 4);
    else
        memcpy((char *)to + to_index * 8, (const char *)from + from_index * 8, 8);
}

/* A column's depths and taps follow each other in memory (weights of convolutions, transposed matrices): square blocks
 * are turned in registers. The source's index q is depth q / taps, tap q % taps. */
static void pack_turned(const Weight *w, const char *from, int64_t column_stride, int columns, int64_t width,
                        char *to) {
    const TileSet *set = w->set;
    int64_t length = w->taps * w->depth, lanes = set->lanes;
    void *rows[64 / 4];
    for (int64_t q = 0; q < length; q += lanes) {
        int64_t some = length - q < lanes ? length - q : lanes;
        for (int64_t i = 0; i < some; i++) {
            int64_t row = w->taps == 1 ? q + i : (q + i) % w->taps * w->depth + (q + i) / w->taps;
            rows[i] = to + row * width * (int64_t)set->size;
        }
        for (int c = 0; c < columns; c += (int)lanes) {
            const char *block = from + (size_t)(c * column_stride + q) * set->size;
            if (some == lanes && c + lanes <= columns) {
                set->transpose(block, column_stride, rows);
            } else {
                for (int64_t j = 0; j < lanes && c + j < columns; j++)
                    for (int64_t i = 0; i < some; i++)
                        copy_element(set->size, rows[i], j, block, j * column_stride + i);
            }
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

void panel_pack(const Weight *w, const WeightSource *s, const Panel *panel, void *data) {
    size_t size = w->set->size;
    int64_t width = (int64_t)panel->vectors * w->set->lanes;
    const char *from = (const char *)s->data + (panel->group * s->group + panel->first * s->column) * (int64_t)size;
    char *to = data;
    if (panel->columns < width) memset(to, 0, (size_t)(w->taps * w->depth * width) * size);
    if (is_turned(w, s)) {
        pack_turned(w, from, s->column, panel->columns, width, to);
    } else {
        for (int64_t t = 0; t < w->taps; t++)
            for (int64_t k = 0; k < w->depth; k++, to += width * (int64_t)size) {
                const char *row = from + (s->taps[t] + k * s->depth) * (int64_t)size;
                if (s->column == 1)
                    memcpy(to, row, (size_t)panel->columns * size);
                else
                    for (int c = 0; c < panel->columns; c++) copy_element(size, to, c, row, c * s->column);
            }
    }
    if (s->scale != 1) scale_panel(w->set, data, w->taps * w->depth * width, s->scale);
}

Panel weight_panel(const Weight *w, int64_t index) {
    int64_t most = panel_width(w->set), lanes = w->set->lanes, a_group = (w->columns + most - 1) / most;
    Panel p = {.group = index / a_group, .first = index % a_group * most};
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
        if (w->form.kind) narrow_panel(w->form.kind, wide, length, width, out);
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
