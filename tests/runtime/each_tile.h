/* SPDX-License-Identifier: Apache-2.0 */
/* Tiles of all sizes that sets have. */
#ifndef ONNXFUSE_TESTS_RUNTIME_EACH_TILE_H
#define ONNXFUSE_TESTS_RUNTIME_EACH_TILE_H

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

#endif
