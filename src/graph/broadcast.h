/* SPDX-License-Identifier: Apache-2.0 */
/* How a tensor lies over a larger one to which it broadcasts, where that takes two numbers: some leading axes are kept,
 * the axes behind them are repeated, some trailing axes are kept. A bias, a mask of all heads, a scale an image and
 * channel, a column of rows are of this form; a tensor that is repeated in two places is not. */
#ifndef ONNXFUSE_GRAPH_BROADCAST_H
#define ONNXFUSE_GRAPH_BROADCAST_H

#include "graph/graph.h"

/* Element e of the whole (row-major) meets element e / period * inner + e % inner of the part. */
typedef struct Broadcast {
    int64_t period; /* elements of the whole between two changes of a kept leading axis; at least 1 */
    int64_t inner;  /* elements of the kept trailing axes: divides period */
} Broadcast;

/* Axes are matched from the last one on; missing leading ones of the part have size 1. False: not of this form. */
bool broadcast_of(int rank, const int64_t *dims, int whole_rank, const int64_t *whole_dims, Broadcast *out);
/* Whether it holds whatever the symbols are: axes are equal, or the part's is a constant 1. */
bool broadcast_fits(const Value *part, const Value *whole);
bool broadcast_keeps_last(const Value *part); /* its last axis is not a constant 1 */
bool broadcast_is_row(const Value *part);     /* it has elements along the last axis at most */

#endif
