/* SPDX-License-Identifier: Apache-2.0 */
/* Epilogues of tests' anchors: a recipe of steps becomes a body of primitives (lowering/anchors.h). */
#ifndef ONNXFUSE_TESTS_RUNTIME_ANCHOR_BODY_H
#define ONNXFUSE_TESTS_RUNTIME_ANCHOR_BODY_H

#include "anchor_cases.h"

typedef enum AnchorStep {
    ANCHOR_BIAS,     /* plus an element a column */
    ANCHOR_ADD,      /* plus a tensor of the result's shape */
    ANCHOR_RELU,     /* these three are of integers too */
    ANCHOR_ROWS,     /* times an element a row */
    ANCHOR_CHANNELS, /* times an element an image and channel: [first, 1..., last] */
    ANCHOR_SCALAR,   /* times one element, an input */
    ANCHOR_BOUNDS,
    ANCHOR_GELU,        /* by erf */
    ANCHOR_SWISH,       /* x sigmoid(x) */
    ANCHOR_HARD_SWISH,  /* x min(max(x / 6 + 1/2, 0), 1) */
    ANCHOR_WRITTEN_OUT, /* the same as x min(max(x + 3, 0), 6) / 6, and of that 0.75 times less 0.125 */
    ANCHOR_TANH,
    ANCHOR_LEAKY, /* 0.2 x below 0, by where */
    ANCHOR_DROPOUT,
    ANCHOR_WIDENED, /* a HardSwish in f32 */
    ANCHOR_ONE_RESULT_STEPS,
    ANCHOR_OUTPUT = ANCHOR_ONE_RESULT_STEPS, /* the value so far is a result too */
    ANCHOR_CAST,                             /* so it is in another type */
    ANCHOR_STEPS,
} AnchorStep;

enum { ANCHOR_MOST_STEPS = 4 };

/* Gives c->node its results of these sizes, and the epilogue that the steps make, with the inputs that it reads, before
 * them. No steps: no epilogue. */
void anchor_case_results(AnchorCase *c, DType dtype, int rank, const Dim *const *sizes, const AnchorStep *steps,
                         int count);
/* Steps of a recipe, the same for each number: so that cases share kernels. Returns their count. */
int anchor_draw_steps(uint64_t number, DType dtype, AnchorDraw draw, AnchorStep *out_steps);

#endif
