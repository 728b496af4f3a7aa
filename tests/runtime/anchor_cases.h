/* SPDX-License-Identifier: Apache-2.0 */
/* Random configurations of the anchors "matmul", "conv" and "conv_transpose", the same for all devices, and how near to
 * the exact result a device's must be. */
#ifndef ONNXFUSE_TESTS_RUNTIME_ANCHOR_CASES_H
#define ONNXFUSE_TESTS_RUNTIME_ANCHOR_CASES_H

#include "graph/graph.h"

enum { ANCHOR_CASE_INPUTS = 8 };

/* A node in a graph of its own, with its inputs' data, and which of them are constant. */
typedef struct AnchorCase {
    Graph *graph; /* the caller destroys it */
    Node *node;
    Tensor *tensors[ANCHOR_CASE_INPUTS];
    bool constant[ANCHOR_CASE_INPUTS];
    int count;
    int64_t terms;       /* of the longest sum */
    bool stored_between; /* a library stores its product, rounded, before steps of the epilogue read it */
    uint64_t state, seed;
    const char *what;
} AnchorCase;

/* plain: of f32 with a bias and a ReLU, only sizes and layouts are drawn. */
AnchorCase anchor_case_matmul(uint64_t seed, bool plain);
AnchorCase anchor_case_conv(uint64_t seed, bool transposed, bool plain);

/* A case made by hand: a new graph, then inputs in order, then c->node, then the output. */
AnchorCase anchor_case_new(const char *what, uint64_t seed);
Value *anchor_case_input(AnchorCase *c, DType dtype, int rank, const int64_t *dims);
void anchor_case_output(AnchorCase *c, DType dtype, int rank, const int64_t *dims);

uint64_t anchor_case_bits(uint64_t *state);
int anchor_case_below(uint64_t *state, int count); /* 0 to count - 1 */
Tensor *anchor_case_tensor(Arena *arena, uint64_t *state, DType dtype, int rank, const int64_t *dims);
/* Whether `got` is what the case's node makes of these tensors: NULL, or where it differs, in the arena. Integers must be
 * equal; floating-point numbers are within what rounding may do to each element's sum in the type that it is added in,
 * and then to the epilogue (numeric/rounding.h). */
const char *anchor_difference(const AnchorCase *c, Tensor *const *tensors, const Tensor *got, Arena *arena);
void anchor_case_expect(const AnchorCase *c, Tensor *const *tensors, const Tensor *got);

/* Sizes that an anchor must refuse: a 3x3 convolution with a padding of 1. */
typedef struct AnchorMisfit {
    const char *name;
    int64_t x[4], w[4], y[4];
} AnchorMisfit;
extern const AnchorMisfit anchor_misfits[];
extern const int anchor_misfit_count;
AnchorCase anchor_case_misfit(const AnchorMisfit *m);

#endif
