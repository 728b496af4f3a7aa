/* SPDX-License-Identifier: Apache-2.0 */
/* What If, Loop, Scan and SequenceMap share while they are lowered: bodies, what these capture, and the host node that
 * runs them. */
#ifndef ONNXFUSE_OPS_CONTROL_BODIES_H
#define ONNXFUSE_OPS_CONTROL_BODIES_H

#include "lowering/build.h"
#include "lowering/item_type.h"
#include "lowering/subgraph.h"

/* Nodes that copies within copies may come to: each If whose branches differ in rank doubles what follows it, and each sequence
 * of open rank has its SequenceMap's body copied for every rank. Exporters write x.squeeze(axis) of an axis of unknown size as
 * If(size == 1, Squeeze, Identity), so that a model may have many. */
enum { MOST_COPIES = 1 << 11 };

/* The node's inputs but for the captured ones. */
static inline int own_inputs(const Node *n) { return n->input_count - n->captures; }
static inline Value *own_input(const Node *n, int index) { return index < own_inputs(n) ? n->inputs[index] : NULL; }

Status check_control(Lowering *l, const Node *n, int subgraphs);
Status check_body(Lowering *l, const Node *n, const Graph *body, int inputs, int least_outputs);
/* None of the `count` inputs from `first` on is left out. */
Status check_given(Lowering *l, const Node *n, int first, int count);

/* Gives the body's last inputs the captured values' types; constants are copied in and their inputs taken out. */
void pass_captures(const Node *n, Graph *body);
/* The captures that stay inputs, parallel to the last inputs of a body. */
Value **passed_captures(Lowering *l, const Node *n, int *out_count);
/* Takes out of the lowered bodies, whose inputs correspond, those from `first` on that none of them reads. given: what is passed
 * for these; inputs: for those that stay. Returns their number. */
int pass_read(Graph *const *bodies, int count, int first, Value *const *given, Value **inputs);
/* The host node: own inputs, then the captures that the lowered bodies still read. */
Node *control_node(Lowering *l, const Node *n, Value *const *own, int own_count, Graph *const *bodies, int count);
/* A body's result as seen from outside: sizes whose symbols were made since there were `base` become fresh symbols of the
 * outer graph. */
ItemType outer_type(Lowering *l, const Value *result, int base);
/* Adds the host node's next output, or a gap when the operator's output `index` is not asked for. */
Status control_result(Lowering *l, const Node *n, Node *host, int index, const ItemType *type);

/* Whether a body that cannot be lowered for this reason may become one that fails when it is taken. */
bool may_be_refused(Status failure);
/* Such a body, with the inputs of another, and outputs of these types. */
Graph *refusal(Lowering *l, const Node *n, const Graph *other, const ItemType *types, const char *message);
Status host_refuse(HostCall *call);

#endif
