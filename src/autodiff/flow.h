/* SPDX-License-Identifier: Apache-2.0 */
/* The least cut of a network: of all sets of edges whose removal parts the source from the sink, one of the least total room. */
#ifndef ONNXFUSE_AUTODIFF_FLOW_H
#define ONNXFUSE_AUTODIFF_FLOW_H

#include "base/arena.h"

#define FLOW_UNBOUNDED 1e30

typedef struct FlowEdge {
    int to, next; /* next: of the same vertex, -1: none */
    double room;  /* that flow may still take; edge ^ 1 is the way back */
} FlowEdge;

typedef struct Flow {
    Arena *arena;
    VEC(int) heads; /* [vertex] its first edge */
    VEC(FlowEdge) edges;
    int *depth, *queue, *at; /* [vertices], of the search */
} Flow;

enum { FLOW_SOURCE, FLOW_SINK };

Flow flow_make(Arena *arena); /* with these two vertices */
int flow_add_vertex(Flow *flow);
/* room: a whole number, so that sums are exact, or FLOW_UNBOUNDED. Unbounded edges alone must not lead from source to sink. */
void flow_add_edge(Flow *flow, int from, int to, double room);
/* The sink's side of the least cut whose sink's side is smallest: [vertex]. It depends on the network alone, not on the order of its edges. */
bool *flow_cut(Flow *flow);

#endif
