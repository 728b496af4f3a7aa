/* SPDX-License-Identifier: Apache-2.0 */
/* Region nodes, as the partition and the groups of fusions make them. */
#ifndef ONNXFUSE_PASSES_REGION_H
#define ONNXFUSE_PASSES_REGION_H

#include "graph/graph.h"

/* Takes primitives [count], in topological order, out of their graph and puts a NODE_REGION that computes them where
 * the first one stood. Its outputs are the values that anything else reads, in the order of the nodes. */
Node *region_make(Graph *graph, Arena *scratch, Node *const *nodes, int count);

#endif
