/* SPDX-License-Identifier: Apache-2.0 */
/* The sweeps over a lowered graph, or a body in it: backwards to find which of its nodes make what is asked for, forwards to write them. A body
 * has a sweep of its own, which asks the one around it for what comes from outside: captured values and sizes. */
#ifndef ONNXFUSE_OPTIMIZE_STANDARD_SWEEP_H
#define ONNXFUSE_OPTIMIZE_STANDARD_SWEEP_H

#include "optimize/standard/writer.h"

typedef struct Sweep {
    Writer w;
    const Graph *lowered;
    struct Sweep *outer; /* of the graph that `flow` stands in; NULL: `lowered` is no body */
    const Node *flow;    /* the lowered node whose body it is */
    Map needed;          /* Node * of the lowered graph -> itself */
    Map asked;           /* Value * of the lowered graph -> itself: results of needed nodes that are read */
    Map available;       /* name -> Value * of the target that stood there before */
    Map bodies;          /* Graph * of a node of the lowered graph -> Sweep * */
} Sweep;

/* Of a graph. Its inputs have no forms yet. */
Sweep sweep_of(const Graph *lowered, Graph *target, int opset);
/* Of a body of n, which stands in the outer's lowered graph: the same at each call. What it captures has forms. */
Sweep *sweep_of_body(Sweep *outer, const Node *n, int index);
/* What stands in the target already is read there, by the names that lowered values stand for. */
void add_available(Sweep *s, const Node *node);

void need(Sweep *s, const Value *lowered);
void need_sizes(Sweep *s, const Dim *const *dims, int count);
bool is_asked(const Sweep *s, const Value *lowered); /* accepts NULL */
/* Whether a run has the size before it comes to the node. */
bool has_size_before(const Sweep *s, const Dim *dim, const Node *node);

/* Once all is asked for: finds what is needed for it; then writes that. */
void mark_needed(Sweep *s);
Status write_needed(Sweep *s);

/* --- flow.c: nodes with bodies --- */
void need_flow(Sweep *s, const Node *n);
void write_flow(Sweep *s, const Node *n);

#endif
