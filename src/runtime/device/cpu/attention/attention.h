/* SPDX-License-Identifier: Apache-2.0 */
/* What attention.c (one run cut into tasks), block.c (one task) and backward.c (gradients) share.
 *
 * A matrix is one key matrix and one value matrix with all queries that read them: of the heads of a group, one head
 * after the other. A task is some of these rows and some of the keys; or all rows of a few matrices, whose keys lie
 * beside each other. */
#ifndef ONNXFUSE_RUNTIME_DEVICE_CPU_ATTENTION_ATTENTION_H
#define ONNXFUSE_RUNTIME_DEVICE_CPU_ATTENTION_ATTENTION_H

#include "runtime/device/attention_shape.h"
#include "runtime/device/cpu/parts.h"

enum {
    ATTENTION_ROWS = 64, /* most rows of a task */
    /* Up to so many rows of a matrix, a query is a row and keys are columns: keys and values are read once, as they
     * are, for a vector of partial sums a key. Above, a query is a column: nothing is summed within a vector. */
    ATTENTION_FEW = 8,
    ATTENTION_KEYS = 384,     /* keys of a block: scores of 64 queries are 96 kB then, in the second-level cache */
    ATTENTION_FEW_KEYS = 512, /* likewise, where queries are rows; of all matrices of a task */
};

typedef struct AttentionRun {
    AttentionShape shape;
    int step_count;
    AttentionStep steps[ATTENTION_STEPS];
    AttentionInputs operands;
    const Tensor *const *inputs; /* its */
    DType dtype;                 /* of q, k, v and the result */
    char *output;
    float *logarithms; /* [matrices][rows] of the sums; NULL: nobody asks for them */
    float scale;
    AttentionEmpty empty;
    uint64_t seed;
    const AttentionStep *drop; /* of the probabilities, behind the steps; NULL: none are dropped */
    const AttentionStep *sink; /* likewise, what the sums have beside the keys'; NULL: nothing */
    int64_t group;             /* heads of a matrix */
    int64_t matrices, rows;    /* rows: of a matrix */
    bool few;
    bool packs;          /* a worker holds the values of a matrix in panels, for all its tasks */
    int64_t together;    /* matrices of a task: a divisor of those that differ in their heads alone; 1 unless few */
    int causal;          /* which step leaves the keys behind it unseen, whatever they are; -1: none does */
    const float *bounds; /* [matrices] not NULL: that step hides by a finite number; what scores are at most */
} AttentionRun;

typedef struct AttentionTask {
    int64_t matrix, first_row;
    int rows;
    int64_t first_key, end_key;
    /* Not NULL: results go here, not yet divided by their sums: a row is its greatest score, its sum, its elements */
    float *partial;
    int64_t partial_stride;
} AttentionTask;

/* What a run is: its shape, steps and how they hide. result: of the anchor's, or its gradient, by which the shape goes. */
Status attention_describe(AnchorRun *anchor_run, const Tensor *result, AttentionRun *out_run);
/* Of both anchors: whether the CPU runs the node. */
Status attention_prepare(CpuAnchor *anchor, const Tensor *const *constants, Pool *pool);
/* Leaves of the task's keys those that one of its rows sees, at the front and the back. */
void attention_leave_hidden(const AttentionRun *run, AttentionTask *task);
/* Whether what the causal step hides is lost in the sums, or -inf. */
bool attention_outweighs(const AttentionRun *run, int64_t matrix);

/* Most keys of a block. */
int64_t attention_block_keys(const AttentionRun *run);
/* Bytes of memory that attention_task wants, of a task of up to `rows` rows. */
size_t attention_task_bytes(const AttentionRun *run, int rows);
/* Before a worker's first task. */
void attention_task_begin(const AttentionRun *run, void *memory);
void attention_task(const AttentionRun *run, const AttentionTask *task, void *memory);

/* Where rows [first, first + count) of a matrix, and of those behind it, begin in a tensor of these strides. */
void attention_rows(const AttentionRun *run, const AttentionStrides *s, int64_t matrix, int64_t first, int count,
                    int64_t *out_offsets);
/* Where the matrix of keys or values begins; own_heads: how many the tensor has. */
int64_t attention_matrix(const AttentionRun *run, const AttentionStrides *s, int64_t own_heads, int64_t matrix);

/* count elements, `stride` apart, as floats; a bool is 0 or 1. */
void attention_gather(DType dtype, const void *data, int64_t first, int64_t stride, int64_t count, float *to);
/* The other way round: to data[first + i * stride]. */
void attention_scatter(DType dtype, void *data, int64_t first, int64_t stride, int64_t count, const float *values);
/* The sum of e^(x - top) over a row, with the sink beside the keys; row: its number among all. A row that sees nothing has none. */
float attention_whole_sum(const AttentionRun *run, int64_t row, float top, float sum);
/* A finished row, to where it begins in the result; zeros where its sum tells that it sees nothing and is to be so. top: its greatest
 * score; row: its number among all. */
void attention_store(const AttentionRun *run, int64_t offset, const float *values, float sum, float top, int64_t row);

#endif
