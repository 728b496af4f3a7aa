/* SPDX-License-Identifier: Apache-2.0 */
/* Which nodes of a graph the provider takes, in as few convex sets as possible. */
#ifndef ONNXFUSE_EP_PARTITION_H
#define ONNXFUSE_EP_PARTITION_H

#include "ep/graph_view.h"

typedef struct Part {
    int *nodes; /* numbers, ascending */
    int node_count;
    int *outputs; /* numbers of values that are read outside */
    int output_count;
} Part;

typedef struct Partition {
    const GraphView *view;
    bool *taken; /* [node_count] */
    int *part;   /* [node_count] which part a taken node belongs to, else -1 */
    Part *parts;
    int part_count;
} Partition;

/* Marks in `taken` the nodes that there are operators for. */
OrtStatus *partition_begin(const GraphView *view, Partition *out_partition);
/* Whether there is an operator for the node and for all nodes inside it. */
OrtStatus *partition_has_operator(const GraphView *view, const ViewNode *node, bool *out_has);
/* Makes the parts out of the taken nodes; gives up nodes whose values cannot cross a part's border. */
OrtStatus *partition_make(Partition *partition);

#endif
