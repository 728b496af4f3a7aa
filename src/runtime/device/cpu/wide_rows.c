/* SPDX-License-Identifier: Apache-2.0 */
/* Of one tap, row after row. Of several, whose rows share most of what they read, all that lies between the first and the last
 * element that a chunk reaches, so that offsets between taps stay what they are. */
#include "runtime/device/cpu/wide_rows.h"

#include "runtime/device/cpu/quads.h"

enum {
    HALF = 2,
    /* Elements of a chunk's words at most: 512 kB, as the second-level caches of processors with AVX2 alone are; tiles read them in their
     * order, 3 bytes a cycle. */
    MOST_WORDS = 1 << 17,
    LEAST_WORD_ROWS = 12, /* of a chunk: fewer are multiplied as they are */
    LEAST_CUT_ROWS = 48,  /* chunks are not cut to fewer rows than that to be widened: each widens the weight anew */
};

/* Elements behind a row's pointer: all groups'. */
static int64_t row_length(const Product *p) { return p->weight->groups * p->weight->depth; }

static int64_t whole_vectors(const Product *p, int64_t count) {
    const int lanes = p->weight->set->lanes;
    return (count + lanes - 1) / lanes * lanes;
}

/* What is even of a row, in whole vectors, and what is odd, likewise; 0: rows are not multiplied as words, or have several taps. */
static int64_t words_length(const Product *p) {
    return p->weight->set->widen_words && p->weight->taps == 1 ? whole_vectors(p, row_length(p)) : 0;
}

static bool fits_words(const Product *p, int64_t chunk) {
    int64_t length = words_length(p);
    return length && chunk >= LEAST_WORD_ROWS && chunk <= MOST_WORDS / 2 / length;
}

/* ---- words of several taps ---- */

/* First what is even of a row of padding and of all that `count` rows from `first` on reach, then what is odd. */
typedef struct Reach {
    const char *begin, *end;
    int64_t padding, length; /* elements of the padding; of either half, 0: the rows stay as they are */
} Reach;

static Reach words_reach(const Product *p, int64_t first, int64_t count) {
    Reach r = {0};
    if (!p->weight->set->widen_words || p->weight->taps < 2 || !p->reach || count < LEAST_WORD_ROWS) return r;
    p->reach(p->context, first, count, &r.begin, &r.end);
    r.padding = whole_vectors(p, row_length(p));
    r.length = r.padding + whole_vectors(p, (r.end - r.begin) / QUAD);
    if (r.length > MOST_WORDS / 2) r.length = 0;
    return r;
}

static const void *word_of(const Product *p, const Reach *r, const char *row, bool *held_padding, uint32_t *to) {
    if (row >= r->begin && row < r->end) return to + r->padding + (row - r->begin) / QUAD;
    if (!*held_padding) p->weight->set->widen_words(row, row_length(p), to, to + r->length);
    *held_padding = true;
    return to;
}

static int64_t take_reach(const Product *p, int64_t first, bool held, RowBlock *block, uint32_t *to) {
    const Reach r = words_reach(p, first, block->count);
    if (!r.length) return 0;
    if (!held)
        p->weight->set->widen_words(r.begin, (r.end - r.begin) / QUAD, to + r.padding, to + r.length + r.padding);
    for (int i = 0; i < block->interior; i++) block->rows[i] = word_of(p, &r, block->rows[i], &held, to);
    for (int64_t t = 0; block->edges && t < p->weight->taps; t++) {
        const void **rows = block->rows + t * block->capacity + block->count - block->edges;
        for (int i = 0; i < block->edges; i++) rows[i] = word_of(p, &r, rows[i], &held, to);
    }
    return r.length;
}

/* ---- words ---- */

int64_t wide_rows_chunk(const Product *p, int64_t rows) {
    int64_t length = words_length(p), most = length ? MOST_WORDS / 2 / length : rows;
    return rows <= most || most < LEAST_CUT_ROWS ? rows : most;
}

int64_t wide_rows_take_words(const Product *p, int64_t first, int64_t chunk, bool held, RowBlock *block, void *to) {
    const int64_t length = words_length(p), from = p->offsets ? p->offsets[0] : 0;
    if (!length) return take_reach(p, first, held, block, to);
    if (!fits_words(p, chunk) || block->edges || block->count < LEAST_WORD_ROWS) return 0;
    uint32_t *even = to;
    for (int i = 0; i < block->count; i++, even += 2 * length) {
        if (!held)
            p->weight->set->widen_words((const uint32_t *)block->rows[i] + from, row_length(p), even, even + length);
        block->rows[i] = (const void *)((uintptr_t)even - (uintptr_t)from * sizeof *even);
    }
    return length;
}

/* ---- all ---- */

static int64_t halves_reach(const Product *p, int64_t first, int64_t count) {
    const char *begin, *end;
    p->reach(p->context, first, count, &begin, &end);
    return (end - begin) / HALF;
}

int64_t wide_rows_room(const Product *p, int64_t chunk) {
    if (p->maker) return chunk * row_length(p);
    if (words_length(p)) return fits_words(p, chunk) ? chunk * 2 * words_length(p) : 0;
    if (p->halves && p->weight->taps == 1) return chunk * row_length(p);
    int64_t most = 0;
    for (int64_t first = 0; p->reach && first < p->rows; first += chunk) {
        int64_t count = p->rows - first < chunk ? p->rows - first : chunk;
        int64_t room = p->halves ? halves_reach(p, first, count) : 2 * words_reach(p, first, count).length;
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
