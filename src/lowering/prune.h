/* SPDX-License-Identifier: Apache-2.0 */
/* Takes out the nodes whose results nothing reads. */
#ifndef ONNXFUSE_LOWERING_PRUNE_H
#define ONNXFUSE_LOWERING_PRUNE_H

#include "graph/graph.h"

/* A host step also lives while a symbol that it binds stands in what lives: the symbols of bind_sizes, the sizes of a
 * host kernel's outputs. */
void graph_prune(Graph *graph);

#endif
