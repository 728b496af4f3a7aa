/* SPDX-License-Identifier: Apache-2.0 */
/* Tiles of all sizes that sets have. */
#ifndef ONNXFUSE_TESTS_RUNTIME_EACH_TILE_H
#define ONNXFUSE_TESTS_RUNTIME_EACH_TILE_H

#include <string.h>

#include "runtime/device/cpu/tiles/tile.h"

typedef void (*TileCheck)(const TileSet *set, int index, int vectors, int rows, int columns, uint64_t *state);

/* step: between numbers of columns in the last vector. */
static inline void each_tile(const TileSet *const *sets, int count, int step, TileCheck check) {
    uint64_t state = 1;
    for (int s = 0; s < count; s++)
        for (int vectors = 1; vectors <= sets[s]->vectors; vectors++)
            for (int rows = 1; rows <= sets[s]->rows[vectors]; rows++)
                for (int last = 1; last <= sets[s]->lanes; last += step)
                    check(sets[s], s, vectors, rows, (vectors - 1) * sets[s]->lanes + last, &state);
}

/* A set that leaves out a vector of each row; where vectors have no masks, a row, as else it would read behind a vector. Where one loop takes all
 * sizes (AMX), that of `other`, a set of other numbers. */
static inline TileSet wrong_set(const TileSet *right, const TileSet *other) {
    TileSet wrong = *right;
    if (right->products[2][2] == right->products[1][1])
        memcpy(wrong.products, other->products, sizeof wrong.products);
    else if (wrong.lanes == TILE_MAX_LANES)
        memcpy(wrong.products[2], wrong.products[1], sizeof wrong.products[2]);
    else
        memmove(&wrong.products[2][2], &wrong.products[2][1], (size_t)(wrong.rows[2] - 1) * sizeof(TileFunction));
    return wrong;
}

#endif
