/* SPDX-License-Identifier: Apache-2.0 */
/* Reverse-mode differentiation of a lowered graph: behind the forward nodes come those that compute gradients, so that both are
 * one graph, and every pass works on both. */
#ifndef ONNXFUSE_AUTODIFF_AUTODIFF_H
#define ONNXFUSE_AUTODIFF_AUTODIFF_H

#include "lowering/gradient.h"

/* The gradients of the sum of y's elements, or, with `seed` (of y's type and shape), of the sum of seed * y, with respect to
 * `of` [count], to out_gradients [count]: each of its value's type and shape, zeros where y does not depend on it. The
 * builder's nodes go where it says (Lowering.place); y and `of` stand before that place. LEVEL_PRIM, without anchors' epilogues.
 * STATUS_UNSUPPORTED names the node that has no gradient. */
Status differentiate(Lowering *l, Value *y, Value *seed, Value *const *of, int count, Value **out_gradients);
/* The same of the sum over several ys, which may be sequences or optionals where they have seeds of their kind; so may be what it is differentiated by. */
typedef struct Differentiation {
    Value *const *ys, *const *seeds; /* [y_count]; a seed may be NULL: ones */
    int y_count;
    Value *const *of;
    int of_count;
} Differentiation;
Status differentiate_all(Lowering *l, const Differentiation *d, Value **out_gradients);

/* gradient_operator.c: passes for the operator Gradient of TRAINING_DOMAIN, before and behind `lower`; bodies of control flow too, the second
 * leaves them to the pipeline. */
Status prepare_gradients(Graph *graph, const Policy *policy);
Status expand_gradients(Graph *graph, const Policy *policy);

/* Values whose gradients are asked for by the graph's operators Gradient, or that depend on some, to `out` (Value -> itself). False: there is
 * none, or one of them differentiates what another has made. */
bool differentiated_once(const Graph *graph, Map *out);

/* recompute.c: a pass before fuse_epilogues: which forward values are kept for the backward nodes, and which are computed again. */
Status choose_saved(Graph *graph, const Policy *policy);

/* saved.c. Behind partition: what is in memory from the forward to the backward steps, without inputs, constants and outputs of the graph. */
typedef struct Saved {
    double bytes;         /* at the policy's hinted sizes */
    int values, repeated; /* repeated: nodes that compute again what a forward one has computed */
    bool any;             /* whether there is a backward step */
} Saved;
Saved saved_by(const Graph *graph, const Policy *policy, Arena *arena);
bool is_of_forward_pass(const Value *v); /* whether a forward node makes it; false for inputs and constants */

/* The rules. NULL: the primitive, anchor or control flow has no gradient. */
BackwardFn rule_of_prim(Prim prim);
BackwardFn rule_of_anchor(const char *op);
BackwardFn rule_of_control(const char *op);
/* Whether its result does not change, or jumps, as its inputs do: the gradient is zero. */
bool is_constant_almost_everywhere(Prim prim);

/* shift.c. Whether y stays the same when a maximum (a REDUCE_MAX or REDUCE_MIN node) that it is computed of is shifted: softmax and its
 * kin subtract it for the range's sake alone. Then no gradient flows through it. */
bool shift_cancels(const Node *maximum, const Value *y);

#endif
