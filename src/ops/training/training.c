/* SPDX-License-Identifier: Apache-2.0 */
/* One step of an optimizer, and derivatives (domain ai.onnx.preview.training): inputs R (rate), T (count of updates), then the tensors
 * X..., their gradients G... and the states; outputs the new X... and states. */
#include "ops/families.h"

#include "lowering/build.h"

/* What one tensor's update reads; a step replaces x and the states by their new values. */
typedef struct Update {
    Value *rate, *count;
    Value *x, *gradient, *states[2];
} Update;

typedef void (*StepFn)(Lowering *l, const Node *n, Update *u);

static Value *attr_scalar(Lowering *l, const Node *n, const Value *x, const char *name, double otherwise) {
    return like(l, x, attr_float(n, name, otherwise));
}

/* The gradient with that of the regularization term: norm_coefficient x + g. */
static Value *regularized(Lowering *l, const Node *n, const Update *u) {
    return add(l, mul(l, attr_scalar(l, n, u->x, "norm_coefficient", 0), u->x), u->gradient);
}

/* Duchi, Hazan and Singer, "Adaptive Subgradient Methods", JMLR 2011. */
static void step_adagrad(Lowering *l, const Node *n, Update *u) {
    Value *decay = mul(l, u->count, attr_scalar(l, n, u->x, "decay_factor", 0));
    Value *rate = divide(l, u->rate, add(l, like(l, u->x, 1), decay)), *g = regularized(l, n, u);
    u->states[0] = add(l, u->states[0], mul(l, g, g));
    Value *divisor = add(l, unary(l, PRIM_SQRT, u->states[0]), attr_scalar(l, n, u->x, "epsilon", 0));
    u->x = sub(l, u->x, divide(l, mul(l, rate, g), divisor));
}

/* coefficient old + (1 - coefficient) new */
static Value *average(Lowering *l, Value *coefficient, Value *old, Value *new) {
    return add(l, mul(l, coefficient, old), mul(l, sub(l, like(l, old, 1), coefficient), new));
}

/* Kingma and Ba, "Adam", ICLR 2015; the bias corrections stand in the rate, and are left out at T = 0. */
static void step_adam(Lowering *l, const Node *n, Update *u) {
    Value *alpha = attr_scalar(l, n, u->x, "alpha", 0.9f), *beta = attr_scalar(l, n, u->x, "beta", 0.999f);
    Value *one = like(l, u->x, 1), *g = regularized(l, n, u);
    u->states[0] = average(l, alpha, u->states[0], g);
    u->states[1] = average(l, beta, u->states[1], mul(l, g, g));
    Value *divisor = add(l, unary(l, PRIM_SQRT, u->states[1]), attr_scalar(l, n, u->x, "epsilon", 0));
    Value *later = binary(l, PRIM_GT, u->count, like(l, u->x, 0));
    Value *count = where(l, later, u->count, one); /* what is not chosen has a derivative, too */
    Value *second = unary(l, PRIM_SQRT, sub(l, one, binary(l, PRIM_POW, beta, count)));
    Value *corrected = divide(l, mul(l, u->rate, second), sub(l, one, binary(l, PRIM_POW, alpha, count)));
    Value *rate = where(l, later, corrected, u->rate);
    Value *x = sub(l, u->x, divide(l, mul(l, rate, u->states[0]), divisor));
    u->x = mul(l, sub(l, one, attr_scalar(l, n, u->x, "norm_coefficient_post", 0)), x);
}

/* Sutskever et al., "On the Importance of Initialization and Momentum", ICML 2013, for the Nesterov form. */
static void step_momentum(Lowering *l, const Node *n, Update *u) {
    Value *alpha = attr_scalar(l, n, u->x, "alpha", 0), *beta = attr_scalar(l, n, u->x, "beta", 0);
    Value *first = binary(l, PRIM_GT, u->count, like(l, u->x, 0)), *g = regularized(l, n, u);
    Value *share = where(l, first, beta, like(l, u->x, 1));
    u->states[0] = add(l, mul(l, alpha, u->states[0]), mul(l, share, g));
    bool nesterov = strcmp(attr_string(n, "mode", "standard"), "nesterov") == 0;
    Value *direction = nesterov ? add(l, g, mul(l, alpha, u->states[0])) : u->states[0];
    u->x = sub(l, u->x, mul(l, u->rate, direction));
}

static Value *scalar_as(Lowering *l, Value *value, const Value *x) {
    return cast_like(l, reshape(l, value, NULL, 0), x);
}

/* Steps all tensors; each has 2 + `states` inputs and 1 + `states` outputs, grouped by role. */
static Status step_all(Lowering *l, const Node *n, StepFn step, int states) {
    int count = (n->input_count - 2) / (2 + states);
    if (count < 1 || n->input_count != 2 + count * (2 + states))
        return invalid(l, "%d inputs are not R, T and %d for each tensor", n->input_count, 2 + states);
    for (int i = 0; i < count && !l->error; i++) {
        Update u = {.x = in(l, n, 2 + i), .gradient = in(l, n, 2 + count + i)};
        u.rate = scalar_as(l, in(l, n, 0), u.x);
        u.count = scalar_as(l, in(l, n, 1), u.x);
        for (int s = 0; s < states; s++) u.states[s] = in(l, n, 2 + (2 + s) * count + i);
        if (l->error) break;
        step(l, n, &u);
        out(l, n, i, u.x);
        for (int s = 0; s < states && !l->error; s++) out(l, n, (1 + s) * count + i, u.states[s]);
    }
    return l->error;
}

static Status lower_adagrad(Lowering *l, const Node *n) { return step_all(l, n, step_adagrad, 1); }
static Status lower_adam(Lowering *l, const Node *n) { return step_all(l, n, step_adam, 2); }
static Status lower_momentum(Lowering *l, const Node *n) { return step_all(l, n, step_momentum, 1); }

/* --- derivatives -------------------------------------------------------------------------------------------------- */

/* Its results have the types of its first inputs; what it computes is built when all is lowered (autodiff/gradient_operator.c). */
static Status lower_for_differentiation(Lowering *l, const Node *n) {
    Node *node = host_node(l, n, NULL, n->inputs, n->input_count);
    for (int i = 0; i < n->output_count && !l->error; i++) {
        const Value *x = n->inputs[i];
        if (!x || x->kind != VALUE_TENSOR || x->rank < 0)
            return unsupported(l, "input %d is no tensor of known rank", i);
        Value *result = host_result_like(l, node, x);
        if (n->outputs[i]) out(l, n, i, result);
    }
    return l->error;
}

const OpRow ops_training[] = {
    {TRAINING_DOMAIN, "Adagrad", 1, 0, lower_adagrad},
    {TRAINING_DOMAIN, "Adam", 1, 0, lower_adam},
    {TRAINING_DOMAIN, "Momentum", 1, 0, lower_momentum},
    {TRAINING_DOMAIN, "Gradient", 1, 0, lower_for_differentiation},
    {INTERNAL_DOMAIN, "Variable", 1, 0, lower_for_differentiation},
    {INTERNAL_DOMAIN, "Adjoint", 1, 0, lower_for_differentiation},
    {0},
};
