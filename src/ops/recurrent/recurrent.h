/* SPDX-License-Identifier: Apache-2.0 */
/* Recurrent nets (RNN, GRU, LSTM) as the parts of their host kernel see them.
 *
 * The projection of all time steps, X * W^T with every bias that does not depend on the state, is a matmul before the
 * kernel; what is left is the recurrence. It reads recurrent weights packed as [direction, panel, hidden, gate, unit]: a
 * panel is a few units with all their gates, so that one pass over it, front to back, adds gates[p] += h[k] * panel[k]
 * for k = 0 .. hidden-1, and the state of these units follows at once. A GRU that resets before the product makes two
 * passes: there a panel is [hidden, 2, unit] of the first two gates, and then [hidden, 1, unit] of the third.
 *
 * The kernel's inputs: projection [T, B, D * G * H], packed weights, sequence_lens [B], initial h [D, B, H], initial c,
 * peepholes [D, 3 * H] (LSTM), recurrent bias of the hidden gate [D, H] (GRU with linear_before_reset); all but the
 * first two may be NULL. Outputs: Y [T, D, B, H], Y_h [D, B, H], Y_c [D, B, H]; and where a gradient is asked for that reads them
 * (recurrent_keeps), what the activation functions gave, [T, B, D * G * H], and [T, B, D * H]: an LSTM's cell behind each step, what a
 * GRU with linear_before_reset multiplies by its reset gate. */
#ifndef ONNXFUSE_OPS_RECURRENT_RECURRENT_H
#define ONNXFUSE_OPS_RECURRENT_RECURRENT_H

#include "lowering/ops.h"

typedef enum Cell { CELL_RNN, CELL_GRU, CELL_LSTM } Cell;

enum { MOST_FUNCTIONS = 6 };
enum { KEPT_GATES = 3, KEPT_INNER }; /* outputs */

/* By Cell: gates of W and R, activation functions a direction, units of a panel (recurrent_parts.h). */
extern const struct CellInfo { int gates, functions, units; } recurrent_cells[];

typedef enum Activation {
    ACT_RELU,
    ACT_TANH,
    ACT_SIGMOID,
    ACT_AFFINE,
    ACT_LEAKY_RELU,
    ACT_THRESHOLDED_RELU,
    ACT_SCALED_TANH,
    ACT_HARD_SIGMOID,
    ACT_ELU,
    ACT_SOFTSIGN,
    ACT_SOFTPLUS,
    ACT_COUNT,
} Activation;

typedef struct Function {
    Activation kind;
    double alpha, beta;
} Function;

typedef struct Net {
    Cell cell;
    DType dtype;                         /* f32 or f64 */
    int64_t time, batch, hidden, panels; /* panels: of a direction */
    int gates, directions, units;        /* units: of a panel */
    int first_gates;                     /* of the first pass */
    bool reverse[2];
    bool coupled, linear_before_reset;
    double limit;                       /* of clip; infinite when there is none */
    Function functions[MOST_FUNCTIONS]; /* [directions][functions of the cell] */
    bool usual;                         /* the default activation functions */
    const Tensor *projection, *weights, *lengths, *h0, *c0, *peepholes, *bias;
    Tensor *y, *y_h, *y_c, *kept_gates, *kept_inner;
    Pool *pool;
    Arena *arena;
} Net;

/* linear_before_reset: of a GRU. */
static inline int recurrent_first_gates(Cell cell, bool linear_before_reset) {
    return cell == CELL_GRU && !linear_before_reset ? 2 : recurrent_cells[cell].gates;
}

static inline int64_t recurrent_length(const Net *net, int64_t b) {
    return net->lengths ? dtype_load_int(net->lengths->dtype, net->lengths->data, b) : net->time;
}

static inline int64_t recurrent_time(const Net *net, int direction, int64_t length, int64_t step) {
    return net->reverse[direction] ? length - 1 - step : step;
}

/* Y is zero after a sequence's end. */
void recurrent_clear_tail(const Net *net, int direction, int64_t row);

/* The kernel's inputs and attributes, checked. */
Status recurrent_read(HostCall *call, Net *net);
/* Whether the kernel of that node can keep what its gradient on vectors reads: in f32, with the usual functions, nothing clipped. */
bool recurrent_keeps(const Node *node);
/* A tensor's numbers, in the arena; NULL of NULL. */
double *recurrent_doubles(Arena *arena, const Tensor *tensor);
double recurrent_apply(const Function *f, double x);

/* recurrent_gradient.c: the inputs of the kernel, then the gradients of Y, Y_h and Y_c, any of which may be NULL; where the kernel keeps them,
 * its gates instead of the projection, and Y and the last output behind the gradients. Outputs: the gradient of the projection; of a GRU with
 * linear_before_reset that of the products of the state by the recurrent weights, likewise [T, B, D * G * H], which is the same else; the
 * states that were multiplied, [T, B, D * H], and what a GRU that resets first has multiplied by its third gate's weights; the gradients of
 * initial h and c; and of each row's peepholes, [D, B, 3 * H]. */
Status host_recurrent_gradient(HostCall *call);

/* recurrent_back.c: the same of what was kept, on vectors; results but that of the peepholes, zeroed (outputs 0 to 5, NULL: not asked for).
 * net: with the kept gates as projection; given: the gradients of the outputs. */
void recurrent_back_fast(const Net *net, const Tensor *const *given, const Tensor *y, const Tensor *inner,
                         Tensor *const *results);
/* Where, in the packed weights, row `row` of R begins, counted over all directions, and how far apart its numbers are. */
int64_t recurrent_packed_row(const Net *net, int64_t row, int64_t *out_stride);

/* recurrent_fast.c: in f32 with the usual functions, on vectors and threads. */
void recurrent_run_fast(const Net *net);
/* recurrent_plain.c: in double precision, for f64 and for other activation functions: plain loops. */
void recurrent_run_plain(const Net *net);

#endif
