/* SPDX-License-Identifier: Apache-2.0 */
/* A block of scores on its way: what block.c (the result) and backward.c (its gradients) share. */
#ifndef ONNXFUSE_RUNTIME_DEVICE_CPU_ATTENTION_BLOCK_H
#define ONNXFUSE_RUNTIME_DEVICE_CPU_ATTENTION_BLOCK_H

#include "base/integer.h"
#include "runtime/device/cpu/attention/attention.h"

/* Keys or values of a block, of one matrix: element e of key t is data[t * row + e * column]. */
typedef struct Side {
    const float *data;
    int64_t row, column;
} Side;

/* Which values stand in a block of panels. */
typedef struct HeldValues {
    int64_t matrix; /* where they begin; -1: none */
    int64_t first, count;
} HeldValues;

typedef struct Block {
    const AttentionRun *run;
    const AttentionTask *task;
    const TileIsa *isa;
    const TileSet *set;
    const TileSet *pairs; /* not NULL: bf16 are multiplied in pairs (quads.h); the queries are pairs of elements then */
    int rows, columns;    /* columns: rows in whole vectors, where queries are columns */
    int64_t keys, stride; /* most keys of a block; from one row of scores to the next */
    int64_t size, width;  /* of a head, in whole vectors */
    float *queries;       /* [size][columns], or [rows][size] */
    float *scores;        /* [keys][columns], or [rows][keys] */
    float *results;       /* [rows][width] */
    float *values;        /* of a step: as scores */
    float *dense;         /* [lanes][size, width or keys]: rows that are to be turned */
    float *k, *v;         /* a block of keys and of values, matrix after matrix, where they are not read in place */
    HeldValues *held;     /* [blocks of all keys]; NULL: values are not held in panels */
    float *panels;        /* [blocks][keys * width] */
    float *top, *sum, *factor;        /* [columns], as ScoreBlock's */
    int32_t *last;                    /* [columns] */
    int64_t *offsets;                 /* [rows] of a tensor's rows */
    int64_t *k_matrices, *v_matrices; /* where the task's matrices begin; of attention_task alone */
    void **score_rows, **result_rows;
    const void **read_rows;
} Block;

static inline void *block_take(char **memory, int64_t bytes) {
    char *at = *memory;
    *memory += round_up(bytes, 64);
    return at;
}

/* `memory` is moved behind what the block takes; NULL: counts it. */
Block block_make(const AttentionRun *run, int rows, char **memory);
/* Where the task's rows begin. */
const int64_t *block_find_rows(const Block *b, const AttentionStrides *s);
/* The task's rows of an input, of strides s, as columns: to[i * columns + row] is element `shift` + i, i < length. */
void block_turn_rows(const Block *b, const Tensor *t, const AttentionStrides *s, int64_t shift, int64_t length,
                     float *to);
/* A vector of rows that stand in b->dense, `stride` apart, likewise, from element `first` on. */
void block_turn_dense(const Block *b, int64_t stride, int64_t first, int64_t length, float *to);
/* results[i][j] (+)= sum over k of rows[i][k * (1 + call->depth_gap)] * weight[k][j], i < count, j < columns. `next`:
 * bytes that are read after these, of `step` bytes a row. */
void block_multiply(const Block *b, TileCall *call, const void *const *rows, void *const *results, int64_t count,
                    const float *weight, int64_t columns);
/* Scores of `count` keys, before their steps, to rows of b->scores from `at` on. */
void block_score_keys(const Block *b, const Side *k, int64_t at, int64_t count);
/* A step on the scores, or on x of their form, of keys [first, first + count). index: among the anchor's. */
void block_step(const Block *b, const AttentionStep *step, int index, float *x, int64_t first, int64_t count);
/* drop.c. What the probabilities of keys [first, first + count) are multiplied by where some are dropped, to b->values. */
void block_draw(const Block *b, int64_t first, int64_t count);
/* Probabilities, or x of their form, of `count` keys times b->values. */
void block_drop(const Block *b, float *x, int64_t count);

#endif
