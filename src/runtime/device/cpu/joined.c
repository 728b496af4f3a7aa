/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/device/cpu/joined.h"

#include <string.h>
#include "lowering/sizes.h"

enum {
    TILE_MAX_COLUMNS = 64, /* a panel's: four vectors of 16 lanes */
    MANY_TILES = 64,       /* rows and columns make so many: as many threads have work without parts */
    /* Of a part: with a panel of 64 columns 64 kB of weights, which one core reads in some 3 us. */
    LEAST_DEPTH = 256,
    LARGEST_JOINT = 1024, /* product.c's BLOCK_DEPTH: a part is one block */
};

/* How many are wanted. */
static int64_t parts_for(const Product *p, int64_t products) {
    const Weight *w = p->weight;
    if (p->source || w->taps != 1 || w->groups != 1 || !p->rows || products >= MANY_TILES) return 1;
    int64_t height = w->set->rows[w->set->vectors], tiles = (p->rows + height - 1) / height * weight_panels(w);
    if (tiles * products >= MANY_TILES) return 1;
    int64_t wanted = (MANY_TILES + tiles * products - 1) / (tiles * products), most = w->depth / LEAST_DEPTH;
    return wanted < most ? wanted : most;
}

Joined joined_of(const Product *product, int64_t products) {
    int64_t parts = parts_for(product, products), depth = product->weight->depth;
    if (parts < 2) return (Joined){.product = product, .parts = 1};
    const WeightForm *form = &product->weight->form;
    int64_t block = weight_in_blocks(form) ? form->block : NARROW_BLOCK,
            joint = ((depth + parts - 1) / parts + block - 1) / block * block;
    if (joint > LARGEST_JOINT) joint = LARGEST_JOINT;
    return (Joined){.product = product, .parts = (depth + joint - 1) / joint, .joint = joint};
}

void *joined_row(const Joined *joined, int64_t part, int64_t row) {
    const Weight *w = joined->product->weight;
    return joined->sums + (size_t)((part * joined->product->rows + row) * w->columns) * w->set->size;
}

/* In the order in which tiles add: the first part, bias and addend, then part after part. */
#define DEFINE_SUMS(T)                                                                                                 \
    static inline void add_##T(T *restrict to, const T *restrict from, int count) {                                    \
        for (int j = 0; j < count; j++) to[j] += from[j];                                                              \
    }                                                                                                                  \
    /* A row's sums, to where they belong, or, for a kernel that finishes, in the place of the first part. */          \
    static inline void join_row_##T(const Joined *joined, int64_t row, int64_t column, int count, void *result) {      \
        const BoundEpilogue *e = joined->product->epilogue;                                                            \
        T sums[TILE_MAX_COLUMNS], *to = (T *)(e->finish ? joined_row(joined, 0, row) : result) + column;               \
        memcpy(sums, (const T *)joined_row(joined, 0, row) + column, (size_t)count * sizeof(T));                       \
        if (e->bias) add_##T(sums, (const T *)e->bias + column, count);                                                \
        if (e->addend) add_##T(sums, (const T *)e->addend + (to - (const T *)e->result), count);                       \
        for (int64_t part = 1; part < joined->parts; part++)                                                           \
            add_##T(sums, (const T *)joined_row(joined, part, row) + column, count);                                   \
        if (e->bounds.clamp) joined->product->weight->set->bound(sums, count, &e->bounds);                             \
        memcpy(to, sums, (size_t)count * sizeof(T));                                                                   \
    }                                                                                                                  \
    VECTORISED static void join_##T(const Joined *joined, const Panel *panel, int64_t row, int count,                  \
                                    void *const *results) {                                                            \
        for (int i = 0; i < count; i++) join_row_##T(joined, row + i, panel->first, panel->columns, results[i]);       \
    }

DEFINE_SUMS(float)
DEFINE_SUMS(double)
DEFINE_SUMS(uint32_t)
DEFINE_SUMS(uint64_t)

void joined_finish(const Joined *joined, const Panel *panel, int64_t first_row, int count, void *const *results) {
    const Weight *w = joined->product->weight;
    const Finish *finish = joined->product->epilogue->finish;
    if (w->set->sums == DT_F32)
        join_float(joined, panel, first_row, count, results);
    else if (w->set->sums == DT_F64)
        join_double(joined, panel, first_row, count, results);
    else if (w->set->sums == DT_U64)
        join_uint64_t(joined, panel, first_row, count, results);
    else
        join_uint32_t(joined, panel, first_row, count, results);
    if (!finish) return;
    const char *raw = (const char *)joined_row(joined, 0, first_row) + (size_t)panel->first * w->set->size;
    finish_rows(finish, results, count, panel->first, panel->columns, raw, w->columns);
}
