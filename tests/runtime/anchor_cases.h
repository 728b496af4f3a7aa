/* SPDX-License-Identifier: Apache-2.0 */
/* Random configurations of the anchors "matmul", "conv" and "conv_transpose", the same for all devices, and how near to
 * the exact result a device's must be. */
#ifndef ONNXFUSE_TESTS_RUNTIME_ANCHOR_CASES_H
#define ONNXFUSE_TESTS_RUNTIME_ANCHOR_CASES_H

#include "graph/graph.h"

enum { ANCHOR_CASE_INPUTS = 2 + EPILOGUE_INPUTS };

/* A node in a graph of its own, with its inputs' data, and which of them are constant. */
typedef struct AnchorCase {
    Graph *graph; /* the caller destroys it */
    Node *node;
    Tensor *tensors[ANCHOR_CASE_INPUTS];
    bool constant[ANCHOR_CASE_INPUTS];
    int count;
    int64_t terms; /* of the longest sum */
    /* What the raw result's rounding errors are in proportion to, an element each; NULL: its terms' magnitudes, summed. */
    const double *magnitudes;
    uint64_t state, seed;
    const char *what;
} AnchorCase;

typedef enum AnchorDraw {
    ANCHOR_PLAIN,      /* of f32 with a bias and a ReLU: only sizes and layouts are drawn */
    ANCHOR_ONE_RESULT, /* any type, an epilogue of one result of the anchor's type */
    ANCHOR_ANY,
    ANCHOR_HALVES, /* as ANCHOR_ANY, of f16 */
    ANCHOR_UNITS,  /* as ANCHOR_PLAIN, of f16 or bf16, most sizes multiples of 8 */
    ANCHOR_TF32,   /* the same of f32 whose factors have 10 bits of mantissa */
} AnchorDraw;

AnchorCase anchor_case_matmul(uint64_t seed, AnchorDraw draw);
AnchorCase anchor_case_conv(uint64_t seed, bool transposed, AnchorDraw draw);

/* A case made by hand: a new graph, then inputs in order, then c->node, then the output, or the results of an epilogue
 * (anchor_body.h). */
AnchorCase anchor_case_new(const char *what, uint64_t seed);
Value *anchor_case_input(AnchorCase *c, DType dtype, int rank, const int64_t *dims);
void anchor_case_output(AnchorCase *c, DType dtype, int rank, const int64_t *dims);

uint64_t anchor_case_bits(uint64_t *state);
int anchor_case_below(uint64_t *state, int count); /* 0 to count - 1 */
Tensor *anchor_case_tensor(Arena *arena, uint64_t *state, DType dtype, int rank, const int64_t *dims);
/* Room for the node's results, filled with bytes that are no result; shape: of all of them. [output_count] */
Tensor *anchor_case_room(const AnchorCase *c, Arena *arena, const Tensor *shape);
/* Whether got [output_count] is what the case's node makes of these tensors: NULL, or where it differs, in the arena.
 * Integers must be equal; floating-point numbers are within what rounding may do to each element's sum in the type that
 * it is added in, and then to the epilogue (anchor_oracle.c). */
const char *anchor_difference(const AnchorCase *c, Tensor *const *tensors, const Tensor *got, Arena *arena);
/* Of each raw result the sum of its products' magnitudes, in f64, in the graph's arena; NULL where it cannot be evaluated. */
const double *anchor_magnitudes(const AnchorCase *c, Tensor *const *tensors);
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
