/* SPDX-License-Identifier: Apache-2.0 */
/* The order of least memory; a part of the partition. */
#ifndef ONNXFUSE_PASSES_MEMORY_ORDER_H
#define ONNXFUSE_PASSES_MEMORY_ORDER_H

#include "graph/graph.h"
#include "policy/policy.h"

/* A node and those that must run before it, each once. */
typedef struct Waits {
    Node *node;
    Node *const *before;
    int count;
} Waits;

/* Puts the graph's nodes [count], which are in topological order, into the one that holds least at once. Overwrites the
 * tags of nodes and values. */
void order_for_memory(Graph *graph, const Policy *policy, const Waits *nodes, int count);

#endif
