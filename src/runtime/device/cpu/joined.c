/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/device/cpu/joined.h"

#include <string.h>
#include "lowering/sizes.h"

enum {
    MANY_TILES = 64, /* rows and columns make so many: as many threads have work without parts */
    /* Of a part: with a panel of 64 columns 64 kB of weights, which one core reads in some 3 us. What a part costs besides,
     * its sums written and read, is a hundredth of that; of more rows, which have more to compute with what is read, so that
     * a thread has enough to do all the same, twice as much depth is asked for. */
    LEAST_DEPTH = 256,
    FEW_ROWS = 4,
};

int64_t joined_parts(const Product *p, int64_t products) {
    const Weight *w = p->weight;
    if (p->source || w->taps != 1 || w->groups != 1 || w->depthwise || !p->rows) return 1;
    int64_t height = w->set->rows[w->set->vectors], tiles = (p->rows + height - 1) / height * weight_panels(w);
    if (tiles >= MANY_TILES || products >= MANY_TILES) return 1;
    int64_t wanted = (MANY_TILES + tiles * products - 1) / (tiles * products),
            most = w->depth / (p->rows > FEW_ROWS ? 2 * LEAST_DEPTH : LEAST_DEPTH);
    return wanted < most ? wanted : most > 1 ? most : 1;
}

/* From whole blocks of narrow weights on. */
void joined_depths(const Joined *joined, int64_t part, int64_t *out_first, int64_t *out_end) {
    int64_t depth = joined->product->weight->depth, blocks = depth / NARROW_BLOCK;
    *out_first = part * blocks / joined->parts * NARROW_BLOCK;
    *out_end = part + 1 == joined->parts ? depth : (part + 1) * blocks / joined->parts * NARROW_BLOCK;
}

void *joined_row(const Joined *joined, int64_t part, int64_t row) {
    const Weight *w = joined->product->weight;
    return joined->sums + (size_t)((part * joined->product->rows + row) * w->columns) * w->set->size;
}

/* to[j] += from[j]; what may be NULL is left out. */
#define DEFINE_SUMS(T)                                                                                                 \
    static inline void add_##T(T *restrict to, const T *restrict from, int count) {                                    \
        for (int j = 0; from && j < count; j++) to[j] += from[j];                                                      \
    }                                                                                                                  \
    static inline void add_parts_##T(const Joined *joined, int64_t row, int64_t column, int count) {                   \
        T *to = (T *)joined_row(joined, 0, row) + column;                                                              \
        for (int64_t part = 1; part < joined->parts; part++)                                                           \
            add_##T(to, (const T *)joined_row(joined, part, row) + column, count);                                     \
    }                                                                                                                  \
    /* The sums of a row, to where they belong. */                                                                     \
    static inline void finish_##T(const BoundEpilogue *e, T *restrict sums, T *restrict to, int64_t column,            \
                                  int count) {                                                                         \
        add_##T(sums, e->bias ? (const T *)e->bias + column : NULL, count);                                            \
        add_##T(sums, e->addend ? (const T *)e->addend + (to - (const T *)e->result) : NULL, count);                   \
        T low = (T)e->low, high = (T)e->high;                                                                          \
        for (int j = 0; e->clamp && j < count; j++) sums[j] = sums[j] < low ? low : sums[j] > high ? high : sums[j];   \
        memcpy(to, sums, (size_t)count * sizeof(T));                                                                   \
    }                                                                                                                  \
    VECTORISED static void join_##T(const Joined *joined, const Panel *panel, int64_t row, int count,                  \
                                    void *const *results) {                                                            \
        const BoundEpilogue *e = joined->product->epilogue;                                                            \
        for (int i = 0; i < count; i++) {                                                                              \
            add_parts_##T(joined, row + i, panel->first, panel->columns);                                              \
            T *sums = (T *)joined_row(joined, 0, row + i) + panel->first;                                              \
            if (!e->finish) finish_##T(e, sums, (T *)results[i] + panel->first, panel->first, panel->columns);         \
        }                                                                                                              \
    }

DEFINE_SUMS(float)
DEFINE_SUMS(double)
DEFINE_SUMS(uint32_t)
DEFINE_SUMS(uint64_t)

void joined_finish(const Joined *joined, const Panel *panel, int64_t first_row, int count, void *const *results) {
    const Weight *w = joined->product->weight;
    const Finish *finish = joined->product->epilogue->finish;
    if (w->set == tile_set(DT_F32))
        join_float(joined, panel, first_row, count, results);
    else if (w->set == tile_set(DT_F64))
        join_double(joined, panel, first_row, count, results);
    else if (w->set == tile_set(DT_U32))
        join_uint32_t(joined, panel, first_row, count, results);
    else
        join_uint64_t(joined, panel, first_row, count, results);
    if (!finish) return;
    const char *raw = (const char *)joined_row(joined, 0, first_row) + (size_t)panel->first * w->set->size;
    finish_rows(finish, results, count, panel->first, panel->columns, raw, w->columns);
}
