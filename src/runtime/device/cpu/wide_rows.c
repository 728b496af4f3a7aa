/* SPDX-License-Identifier: Apache-2.0 */
/* Of one tap, row after row. Of several, whose rows share most of what they read, all that lies between the first and the last
 * element that a chunk reaches, so that offsets between taps stay what they are. */
#include "runtime/device/cpu/wide_rows.h"

enum { HALF = 2 };

/* Elements behind a row's pointer: all groups'. */
static int64_t row_length(const Product *p) { return p->weight->groups * p->weight->depth; }

static int64_t halves_reach(const Product *p, int64_t first, int64_t count) {
    const char *begin, *end;
    p->reach(p->context, first, count, &begin, &end);
    return (end - begin) / HALF;
}

int64_t wide_rows_room(const Product *p, int64_t chunk) {
    if (p->maker) return chunk * row_length(p);
    if (!p->halves) return 0;
    if (p->weight->taps == 1) return chunk * row_length(p);
    int64_t most = 0;
    for (int64_t first = 0; first < p->rows; first += chunk) {
        int64_t room = halves_reach(p, first, p->rows - first < chunk ? p->rows - first : chunk);
        most = room > most ? room : most;
    }
    return most;
}

/* What lies elsewhere, the padding, is of floats. */
static bool is_half(const Product *p, const void *at) {
    return (const char *)at >= p->halves && (const char *)at < p->halves_end;
}

/* Neighbours at once. Parts of the depth are of products of one group. */
static void take_rows(const Product *p, int64_t first_depth, int64_t end_depth, bool held, RowBlock *block, float *to) {
    const int64_t length = row_length(p);
    const bool whole = end_depth - first_depth == p->weight->depth;
    for (int i = 0, rows; i < block->count; i += rows, to += rows * length) {
        const char *from = block->rows[i];
        rows = 1;
        if (!is_half(p, from)) continue;
        while (whole && i + rows < block->count && block->rows[i + rows] == from + rows * length * HALF) rows++;
        if (!held)
            tile_isa()->widen_f16(from + first_depth * HALF, to + first_depth,
                                  whole ? rows * length : end_depth - first_depth);
        for (int r = 0; r < rows; r++) block->rows[i + r] = to + r * length;
    }
}

static void move_pointers(const Product *p, const void **rows, int count, const char *begin, const float *to) {
    for (int i = 0; i < count; i++)
        if (is_half(p, rows[i])) rows[i] = to + ((const char *)rows[i] - begin) / HALF;
}

void wide_rows_take(const Product *p, int64_t first, int64_t first_depth, int64_t end_depth, bool held, RowBlock *block,
                    float *to) {
    const char *begin, *end;
    if (p->weight->taps == 1) {
        take_rows(p, first_depth, end_depth, held, block, to);
        return;
    }
    p->reach(p->context, first, block->count, &begin, &end);
    if (!held) tile_isa()->widen_f16(begin, to, (end - begin) / HALF);
    move_pointers(p, block->rows, block->interior, begin, to);
    for (int64_t t = 0; t < p->weight->taps; t++)
        move_pointers(p, block->rows + t * block->capacity + block->count - block->edges, block->edges, begin, to);
}
