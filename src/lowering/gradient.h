/* SPDX-License-Identifier: Apache-2.0 */
/* How gradients are told: with the builder, one rule a primitive, anchor or host kernel (reverse mode: Linnainmaa 1976;
 * Griewank and Walther, "Evaluating Derivatives", 2008). A rule reads the gradients of its node's results and gives those of its inputs:
 *
 *     y = a * b: da = b dy, db = a dy
 *     static void back_mul(Backward *w, const Node *n) {
 *         give(w, n, 0, mul(w->l, n->inputs[1], dy(w, n, 0)));
 *         give(w, n, 1, mul(w->l, n->inputs[0], dy(w, n, 0)));
 *     }
 *
 * The builder keeps the first error, so a formula needs no check a line. What nothing asks for is built and dies unread, but
 * a rule may ask `wants` before it builds what is large. Rules of primitives and anchors are made of these alone, so gradients have
 * gradients; that of a host kernel stands in its operator's family and may emit a host kernel of its own (a HostRow). */
#ifndef ONNXFUSE_LOWERING_GRADIENT_H
#define ONNXFUSE_LOWERING_GRADIENT_H

#include "lowering/build.h"

/* Whether the graph, or a body in it, has operators of training: the gradient of what stands there is asked for, or may be. Of the outermost
 * graph this holds before, while and after it is lowered, up to "differentiate". */
bool is_trained(const Graph *graph);
/* The same of the whole model that is being lowered: then no anchor is made that has no gradient. */
bool lowers_trained(const Lowering *l);

struct Backward {
    Lowering *l;   /* it puts its nodes elsewhere: behind the forward ones */
    Map gradients; /* Value -> its gradient so far, a Value of the same type and shape */
    Map depends;   /* Value -> itself, where it depends on what gradients are asked for */
};

/* The gradient of the node's result: zeros where what is differentiated does not depend on it. */
Value *dy(Backward *w, const Node *n, int output);
/* Whether what is differentiated depends on the result. */
bool has_dy(const Backward *w, const Node *n, int output);
/* Whether the gradient of that input is asked for, itself or on the way to others. */
bool wants(const Backward *w, const Node *n, int input);
/* Adds a part of the input's gradient: summed over the axes along which numpy's rule had repeated the input, then of its
 * shape and type; of a sequence, element by element; an optional where the input is one. Ignored where it is not asked for. */
void give(Backward *w, const Node *n, int input, Value *gradient);
/* The same for any value that `depends`. */
void give_value(Backward *w, Value *value, Value *gradient);
/* The sum of what has been given for the input, zeros where nothing was, for a rule that adds its part itself and gives the whole: to one
 * element of a sequence, say. */
Value *take_gradient(Backward *w, const Node *n, int input);
/* A host step of the rule of n: with its attributes. */
Node *backward_host(Backward *w, const Node *n, const char *op, HostFn host, Value *const *inputs, int count);
/* A tensor of zeros of x's shape and type, to which `updates` are added at the places (i64, of the elements in their order; as many as
 * updates, in any shape): the gradient of what was read there. */
Value *added_at(Lowering *l, const Value *x, Value *places, Value *updates);
/* The number of each element of x, i64 of its shape: moved as x is, they say where added_at adds. */
Value *places_of(Lowering *l, const Value *x);
/* g summed over the axes along which x was repeated to g's shape: those that it lacks, and those of size 1. Of x's shape. */
Value *sum_to(Lowering *l, Value *g, const Value *x);
/* g summed along those of x's first `axes` axes of which only the run knows whether x was repeated along them to g's size. */
Value *sum_if_repeated(Lowering *l, Value *g, const Value *x, int axes);
/* A tensor of x's shape and type that holds one number. */
Value *full_like(Lowering *l, const Value *x, double number);
/* Zeros of x's type: of a tensor's shape, as many as a sequence has elements, an empty optional. */
Value *zeros_like(Lowering *l, const Value *x);
/* The host node's next result, of x's type, which may be a sequence. */
Value *result_like(Lowering *l, Node *host, const Value *x);
/* A step of the backward pass, of a HostRow of ops/sequence; its result is of x's type. */
Value *backward_step(Lowering *l, const char *op, const Value *x, Value *const *inputs, int count);
/* The same whose result is one number. */
Value *backward_step_of(Lowering *l, const char *op, DType dtype, Value *const *inputs, int count);
/* A gradient as x has one: of an optional where x is one, else of what such a one holds. */
Value *gradient_as(Lowering *l, Value *gradient, const Value *x);
/* The same in any graph, without a result. before: NULL: the graph's last node. */
Node *sequence_step(Graph *graph, Node *before, const char *op, Value *const *inputs, int count);

#endif
