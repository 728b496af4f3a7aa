/* SPDX-License-Identifier: Apache-2.0 */
/* Which nodes of a model each kernel computes: carries the partition of a lowered copy back to the model's own nodes.
 */
#ifndef ONNXFUSE_OPTIMIZE_REGION_FUNCTIONS_H
#define ONNXFUSE_OPTIMIZE_REGION_FUNCTIONS_H

#include "passes/passes.h"

typedef struct KeptOrigin {
    Node *node;
    Origin origin;
} KeptOrigin;

/* The graph's nodes while each has a name of its own, by which it is found in a copy. */
typedef struct RegionNames {
    Arena *arena; /* the graph's */
    Map nodes;    /* name -> Node * */
    VEC(KeptOrigin) kept;
} RegionNames;

typedef struct RegionKind {
    const char *text; /* what its kernel is, for people */
} RegionKind;

typedef VEC(RegionKind) RegionKinds;

typedef struct Regions {
    RegionKinds kinds; /* of the region of number i + 1 */
    int nodes;         /* that stand in regions */
} Regions;

/* Names that nodes have stay where no other node has the same. */
RegionNames regions_name(Graph *graph);
void regions_restore(RegionNames *names);

/* partitioned: what the pipeline made of a copy. Each node's tag becomes the number of its region, from 1; 0 for those
 * of no region, alone in theirs, or with subgraphs. The nodes of a region stand together in the list, in topological
 * order: where something outside lies on a path between two of them, they are two regions. What several kernels compute
 * is of the first. */
void regions_mark(Graph *graph, const RegionNames *names, const Graph *partitioned, Regions *out_regions);

#endif
