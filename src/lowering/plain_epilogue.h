/* SPDX-License-Identifier: Apache-2.0 */
/* The epilogues that libraries and tiles have built in: bias, residual, bounds. */
#ifndef ONNXFUSE_LOWERING_PLAIN_EPILOGUE_H
#define ONNXFUSE_LOWERING_PLAIN_EPILOGUE_H

#include "graph/graph.h"

/* y = min(max(r + bias + addend, low), high); NaN stays NaN. */
typedef struct PlainEpilogue {
    int bias;   /* the node's input that is added along the last axis, of one element a column; -1: none */
    int addend; /* the node's input of the result's shape that is added; -1: none */
    bool clamp;
    double low, high; /* where clamp: low <= high; infinite where only one bounds */
} PlainEpilogue;

/* Whether the anchor's epilogue, or that it has none, is of this form: one output, bias and addend at most once, in
 * either order, and before the bounds. */
bool plain_epilogue_of(const Node *anchor, PlainEpilogue *out);

#endif
