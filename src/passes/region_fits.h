/* SPDX-License-Identifier: Apache-2.0 */
/* Whether primitives make one region: the partition's question at each join. An answer is kept by all that it depends on
 * (primitives, attributes, types, sizes, who reads whom), so that of equal layers one is analysed. */
#ifndef ONNXFUSE_PASSES_REGION_FITS_H
#define ONNXFUSE_PASSES_REGION_FITS_H

#include "graph/graph.h"

typedef struct Fits Fits;

/* `scratch` keeps the answers. Uses the tags of values; those of nodes are their topological numbers, below node_count. columns:
 * as space_analyse has it. */
Fits *fits_create(Arena *scratch, Graph *graph, int node_count, bool columns);

/* `nodes`, topologically ordered, as one region made of `parts` parts (part_of[i]: which one nodes[i] comes from), of which
 * the last is a node that joins the others. NULL when they fit; else why they do not. */
const char *fits_region(Fits *fits, Node *const *nodes, const int *part_of, int count, int parts);

#endif
