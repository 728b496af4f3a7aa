/* SPDX-License-Identifier: Apache-2.0 */
/* The plain evaluator of anchors: the oracle for the devices' libraries, and what runs the element types that they
 * lack. */
#ifndef ONNXFUSE_LOWERING_ANCHOR_EVAL_H
#define ONNXFUSE_LOWERING_ANCHOR_EVAL_H

#include "graph/graph.h"

/* Computes a NODE_ANCHOR (anchors.h) on dense tensors, epilogue and permutes included, to outputs [output_count].
 * symbols: bindings for dims attributes and the result's dims (may be NULL when all are constant). The results and all
 * scratch memory are put in `arena`. STATUS_INVALID when the tensors' shapes do not fit, naming the node's origin. */
Status eval_anchor(const Node *node, Tensor *const *inputs, const int64_t *symbols, Arena *arena, Tensor **outputs);

#endif
