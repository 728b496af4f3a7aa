/* SPDX-License-Identifier: Apache-2.0 */
/* Dropped probabilities: which of them is told by their place among all and a seed (philox_half_u32 of graph/prim.h), so that the backward pass
 * draws what the forward one has drawn, and both what a Dropout of its own would. */
#include <string.h>

#include "graph/prim.h"
#include "lowering/sizes.h"
#include "runtime/device/cpu/attention/block.h"

/* row: among all. */
static void draw_row(const Block *b, int64_t row, int64_t first, int64_t count, float *to) {
    const AttentionRun *run = b->run;
    uint64_t index = (uint64_t)(row * run->shape.keys + first);
    for (int64_t done = 0, some; done < count; done += some, index += (uint64_t)some) {
        enum { GROUP = 2 * PHILOX_GROUP };
        float group[GROUP];
        int64_t from = (int64_t)(index % GROUP);
        some = least(GROUP - from, count - done);
        b->isa->score_draw(run->seed, index / GROUP, (uint32_t)run->drop->alpha, run->drop->beta, group);
        memcpy(to + done, group + from, (size_t)some * sizeof *to);
    }
}

void block_draw(const Block *b, int64_t first, int64_t count) {
    const AttentionRun *run = b->run;
    const int64_t row = b->task->matrix * run->rows + b->task->first_row, lanes = b->set->lanes;
    if (run->few) {
        for (int r = 0; r < b->rows; r++) draw_row(b, row + r, first, count, b->values + r * b->stride);
        return;
    }
    for (int64_t r = 0; r < b->columns; r += lanes) {
        for (int64_t i = 0; i < lanes; i++) {
            float *to = b->dense + i * b->keys;
            if (r + i < b->rows)
                draw_row(b, row + r + i, first, count, to);
            else
                memset(to, 0, (size_t)count * sizeof *to);
        }
        block_turn_dense(b, b->keys, 0, count, b->values + r);
    }
}

VECTORISED static void multiply(float *x, const float *by, int64_t count) {
    for (int64_t i = 0; i < count; i++) x[i] *= by[i];
}

void block_drop(const Block *b, float *x, int64_t count) {
    int64_t rows = b->run->few ? b->rows : count, columns = b->run->few ? count : b->columns;
    for (int64_t i = 0; i < rows; i++) multiply(x + i * b->stride, b->values + i * b->stride, columns);
}
