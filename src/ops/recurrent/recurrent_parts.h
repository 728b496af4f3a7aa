/* SPDX-License-Identifier: Apache-2.0 */
/* The fast recurrence's parts: what steps over blocks of rows (recurrent_fast.c), and loops on vectors, compiled once an
 * instruction set (recurrent_isa.h). */
#ifndef ONNXFUSE_OPS_RECURRENT_RECURRENT_PARTS_H
#define ONNXFUSE_OPS_RECURRENT_RECURRENT_PARTS_H

#include "ops/recurrent/recurrent.h"

enum {
    /* Units of a panel, by cell: a lone row has eight sums and more in registers then, which hide the latency of FMA. */
    RNN_UNITS = 128,
    GRU_UNITS = 64,
    LSTM_UNITS = 32,
    PANEL = 192, /* most floats that a panel has for each k: all gates of its units */
    PIECE = 32,  /* floats: panels, gates and products are multiples of it */
    ROWS = 4,    /* most batch rows that share one reading of a panel */
};

typedef struct Row {
    const float *input; /* the projection of this step's input, all gates; of any step where the sequence is over */
    float *result;      /* of this step in Y; NULL: not wanted */
    float *gates;       /* likewise, [gates][hidden], of what the activation functions give */
    float *inner;       /* likewise, [hidden] */
    bool over;          /* the row's sequence is: its state stays */
} Row;

/* One direction of some batch rows. */
typedef struct Block {
    const Net *net;
    int direction, rows;
    int64_t first;        /* batch row */
    int64_t width;        /* units in whole panels */
    bool backwards;       /* this step goes through the panels from the last one to the first */
    float limit;          /* of clip; infinite when there is none */
    const float *weights; /* of the direction */
    float *h, *next;      /* [rows][width]: the state, and what it becomes in this step */
    /* [rows][width]: LSTM's cell, GRU's z; GRU: r * h, or with linear_before_reset what r multiplies */
    float *c, *held;
    const float *bias;     /* [width]: GRU's with linear_before_reset */
    const float *peephole; /* [3 * width] in the order i, o, f; NULL without peepholes and coupled gates */
    Row *row;              /* [rows] */
} Block;

/* A product of one to ROWS (1, 2 or 4) rows with a part of a panel:
 *   sums[r][j] += h[r][k] * weights[k][j] for j < columns, for k = 0 .. depth-1 in turn */
typedef struct PanelProduct {
    float *sums; /* [rows][sums_stride] */
    int64_t sums_stride;
    const float *h;
    int64_t h_stride;
    const float *weights;
    int64_t stride, depth; /* stride: floats of the panel for each k */
    int rows, columns;     /* columns: a multiple of PIECE */
} PanelProduct;

/* What the sums of a panel become: of row r, its units from `unit` on; sums: [gates][units]. Where the row keeps its gates, they take the place
 * of the sums. */
typedef void (*FinishFn)(const Block *block, int r, int64_t unit, float *sums);

typedef struct RecurrentIsa {
    void (*product)(const PanelProduct *product);
    FinishFn rnn, lstm, gru_after, gru_gates, gru;
    void (*sigmoids)(float *x, int64_t count), (*tanhs)(float *x, int64_t count); /* in place */
} RecurrentIsa;

extern const RecurrentIsa recurrent_base;
#if defined(__x86_64__)
extern const RecurrentIsa recurrent_avx2, recurrent_avx512;
#endif

const RecurrentIsa *recurrent_isa(void); /* of this machine */

/* A panel's units of a gate of this step's input, from `unit` on: zeros behind the last one. */
void recurrent_input(const Block *block, int r, int gate, int64_t unit, float *out);
#endif
