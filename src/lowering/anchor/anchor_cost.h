/* SPDX-License-Identifier: Apache-2.0 */
/* What anchors cost (graph/cost.h): products as the formula has them, with padding's zeros counted, and
 * what the epilogue computes. */
#ifndef ONNXFUSE_LOWERING_COST_ANCHOR_COST_H
#define ONNXFUSE_LOWERING_COST_ANCHOR_COST_H

#include "graph/cost.h"

/* weight_bytes: in which a device holds the second input, where that is less than the constant has; 0: not known. False:
 * some size is not known. */
bool anchor_cost(const Node *node, const int64_t *symbols, double weight_bytes, Cost *out_cost);

#endif
