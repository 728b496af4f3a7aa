/* SPDX-License-Identifier: Apache-2.0 */
/* What flow.c and flow_extend.c share of a Loop or Scan. */
#ifndef ONNXFUSE_OPTIMIZE_STANDARD_FLOW_H
#define ONNXFUSE_OPTIMIZE_STANDARD_FLOW_H

#include "optimize/standard/sweep.h"

/* Both as one. The node's own inputs: `first`, carried values, scanned tensors; the body's outputs: `lead`, carried values, results of each step. */
typedef struct Steps {
    const Node *node;
    const Graph *body;
    bool is_loop;
    int first, lead, carried, scanned, outputs;
    const int64_t *in_axes, *in_directions, *out_axes, *out_directions; /* of a Scan */
} Steps;

/* NULL: the node does not have it. */
const Value *output_of(const Steps *t, int index);
/* Of one step: what it makes of carried value `index`, or gives beside these. */
const Value *result_of(const Steps *t, int index);
const Value *carried_input(const Steps *t, int index);
/* Whether the node gives of all steps, and is asked for, that result, of such a kind. */
bool is_stack(const Sweep *s, const Steps *t, int index, ValueKind kind);

Value *written_result(Sweep *body, int index);                /* output `index` of the lowered body */
void give_result(Sweep *s, Node *node, const Value *lowered); /* the node's next result is the form of this one */
/* In the body: `all` with the elements of the body's sequence at its end. */
Value *append_elements(Sweep *body, Value *all, const Value *lowered);

/* The node of the target that this one was lowered from; NULL: none. */
Node *flow_in_target(const Sweep *s, const Node *n);
/* Of its body, to which results are added. */
Sweep *sweep_of_body_in_target(Sweep *s, const Steps *t, const Node *there);
/* Its body gets the results that are asked for and not there; its node is another one afterwards. */
void extend_flow(Sweep *s, const Steps *t, Node *there);

#endif
