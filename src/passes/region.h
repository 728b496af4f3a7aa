/* SPDX-License-Identifier: Apache-2.0 */
/* Bodies of primitives: regions, as the partition and the groups of fusions make them, and epilogues of anchors. */
#ifndef ONNXFUSE_PASSES_REGION_H
#define ONNXFUSE_PASSES_REGION_H

#include "graph/graph.h"

/* Whether the value stands in the body of who reads it: a constant of one element. */
bool region_holds(const Value *value);
/* Takes primitives [count], in topological order, out of their graph and puts a NODE_REGION that computes them where
 * the first one stood. Its outputs are the values that anything else reads, in the order of the nodes. */
Node *region_make(Graph *graph, Arena *scratch, Node *const *nodes, int count);
/* Likewise, but they become the epilogue of an anchor without one, of whose result and of what is there before it they
 * are made: the anchor with its epilogue, which takes the old one's place and tag. The raw result is among its outputs
 * (the first) where anything else reads it. */
Node *epilogue_make(Graph *graph, Arena *scratch, Node *anchor, Node *const *nodes, int count);

#endif
