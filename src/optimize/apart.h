/* SPDX-License-Identifier: Apache-2.0 */
/* A joint graph of forward and backward pass, lowered and simplified (LEVEL_PRIM), -> one of the two, with what the backward pass reads of
 * the forward one between them. Both halves come from graphs that were made alike. */
#ifndef ONNXFUSE_OPTIMIZE_APART_H
#define ONNXFUSE_OPTIMIZE_APART_H

#include "graph/graph.h"

typedef struct Apart {
    int seeds;     /* the first of the inputs that are gradients of outputs; they are the last inputs */
    int gradients; /* the first of the outputs that are gradients; they are the last outputs */
    bool backward; /* the half that is wanted */
    int saved; /* out: values between the halves: the last outputs of the forward, the last inputs of the backward half */
} Apart;

/* Forward: inputs are the graph's but for the seeds, outputs those before `gradients`, then what is saved. Backward: inputs are the graph's,
 * then what is saved; outputs the gradients. What only moves data, and masks of random numbers, the backward pass makes again. */
void split_apart(Graph *graph, Apart *apart);

#endif
