/* SPDX-License-Identifier: Apache-2.0 */
/* The epilogues that libraries and tiles have built in: bias, residual, bounds, gates of bounds. */
#ifndef ONNXFUSE_LOWERING_PLAIN_EPILOGUE_H
#define ONNXFUSE_LOWERING_PLAIN_EPILOGUE_H

#include "graph/graph.h"

/* What becomes of t: min(max(t, low), high), or with a gate t * min(max(t * scale + shift, low), high), as HardSwish is. The
 * product and the sum are rounded each; NaN stays NaN. */
typedef struct Bounds {
    bool clamp, gate; /* gate: clamp is set, too */
    double low, high; /* where clamp: low <= high; infinite where only one bounds */
    double scale, shift;
} Bounds;

/* y = what the bounds make of r + bias + addend. */
typedef struct PlainEpilogue {
    int bias;   /* the node's input that is added along the last axis, of one element a column; -1: none */
    int addend; /* the node's input of the result's shape that is added; -1: none */
    Bounds bounds;
} PlainEpilogue;

/* How much of the anchor's epilogue from its beginning on is of this form: bias and addend at most once, in either
 * order, and before the bounds, which have no gate. takes_addend: else an addend is not. The value of its body that is reached; NULL: the
 * anchor has no epilogue. */
const Value *plain_beginning_of(const Node *anchor, bool takes_addend, PlainEpilogue *out);
/* Whether all of it is of this form, gates included, or there is none. */
bool plain_epilogue_of(const Node *anchor, PlainEpilogue *out);
/* Of an anchor whose results are bf16: whether its epilogue is of this form in f32 up to where its one result, bf16 again, is
 * stored (or there is none). The addend is bf16, too. */
bool plain_epilogue_of_bf16(const Node *anchor, PlainEpilogue *out);

#endif
