/* SPDX-License-Identifier: Apache-2.0 */
/* The epilogues that libraries and tiles have built in: bias, residual, bounds, gates of bounds. */
#ifndef ONNXFUSE_LOWERING_PLAIN_EPILOGUE_H
#define ONNXFUSE_LOWERING_PLAIN_EPILOGUE_H

#include "graph/graph.h"

/* What becomes of t: min(max(t, low), high), or with a gate p = t * min(max(t * scale + shift, low), high), as HardSwish is; and
 * then, where more follows, q = p / divisor and q * factor + addend. Each is rounded; NaN stays NaN. A division is of f32, by a number that
 * has an inverse in two parts, and is p * inverse + p * rest, rounded once (base/math/divide.h). */
typedef struct Bounds {
    bool clamp, gate, then; /* gate: clamp is set, too; then: gate is, and more follows */
    double low, high;       /* where clamp: low <= high; infinite where only one bounds */
    double scale, shift;
    double inverse, rest;  /* 1 and what changes no f32 where nothing is divided */
    double factor, addend; /* 1 and -0 where there is none */
} Bounds;

/* What of an epilogue may be taken, beside each other. */
enum {
    PLAIN_SUMS = 1,    /* bias and bounds: the bias at most once and before the bounds */
    PLAIN_ADDEND = 2,  /* with these: an addend, likewise, on either side of the bias */
    PLAIN_GATE = 4,    /* with these: bounds that have a gate */
    PLAIN_OF_BF16 = 8, /* with these: steps in f32 between bf16, where rounding is not asked for */
};

/* y = what the bounds make of r + bias + addend. */
typedef struct PlainEpilogue {
    bool whole; /* this is all of it, of one result (of bf16, as the addend is, with PLAIN_OF_BF16), or there is none */
    int bias;   /* the node's input that is added along the last axis, of one element a column; -1: none */
    int addend; /* the node's input of the result's shape that is added; -1: none */
    Bounds bounds;
    const Value *end; /* the value of its body that is reached; NULL: the anchor has no epilogue */
} PlainEpilogue;

/* How much of the anchor's epilogue from its beginning on is of these forms (a sum of PLAIN_*; 0: nothing is). */
void plain_epilogue_of(const Node *anchor, int forms, PlainEpilogue *out);

#endif
