/* SPDX-License-Identifier: Apache-2.0 */
/* Activation functions, each as its formula. Narrow floats are computed in f32. */
#include "ops/math/activation.h"

#include <math.h>

#include "ops/families.h"

static Value *number(Lowering *l, const Value *x, double value) { return like(l, x, value); }
static Value *less(Lowering *l, Value *a, Value *b) { return binary(l, PRIM_LT, a, b); }
static Value *greater(Lowering *l, Value *a, Value *b) { return binary(l, PRIM_GT, a, b); }

/* A unary function's frame: x in f32 at least, the result back in the input's type. */
static Status give(Lowering *l, const Node *n, Value *y) { return out(l, n, 0, cast_like(l, y, in(l, n, 0))); }

static Value *wide_in(Lowering *l, const Node *n) { return widen(l, in(l, n, 0)); }

/* max(x, 0) + log(1 + exp(-|x|)): neither overflows nor loses small x. By one choice of a side, so that at 0 the slopes of both parts are
 * those of x >= 0, and their sum is 1/2. */
static Value *softplus(Lowering *l, Value *x) {
    Value *zero = number(l, x, 0), *below = greater(l, zero, x);
    Value *tail = unary(l, PRIM_LOG1P, unary(l, PRIM_EXP, where(l, below, x, unary(l, PRIM_NEG, x))));
    return add(l, where(l, below, zero, x), tail);
}

/* Functions with up to two numbers, p. */

static Value *relu(Lowering *l, Value *x, const double *p) {
    (void)p;
    return maximum(l, x, number(l, x, 0));
}

static Value *leaky_relu(Lowering *l, Value *x, const double *p) {
    return where(l, less(l, x, number(l, x, 0)), mul(l, number(l, x, p[0]), x), x);
}

static Value *elu(Lowering *l, Value *x, const double *p) {
    Value *low = mul(l, number(l, x, p[0]), unary(l, PRIM_EXPM1, x));
    return where(l, less(l, x, number(l, x, 0)), low, x);
}

/* gamma (x, or alpha (exp(x) - 1) where x <= 0): Klambauer et al., "Self-Normalizing Neural Networks", 2017. */
static Value *selu(Lowering *l, Value *x, const double *p) {
    Value *low = mul(l, number(l, x, p[0]), unary(l, PRIM_EXPM1, x));
    return mul(l, number(l, x, p[1]), where(l, greater(l, x, number(l, x, 0)), x, low));
}

/* max(0, x) + min(0, alpha (exp(x / alpha) - 1)) */
static Value *celu(Lowering *l, Value *x, const double *p) {
    Value *alpha = number(l, x, p[0]), *low = mul(l, alpha, unary(l, PRIM_EXPM1, divide(l, x, alpha)));
    return where(l, greater(l, x, number(l, x, 0)), x, low);
}

static Value *thresholded_relu(Lowering *l, Value *x, const double *p) {
    return where(l, greater(l, x, number(l, x, p[0])), x, number(l, x, 0));
}

static Value *hard_sigmoid(Lowering *l, Value *x, const double *p) {
    Value *line = add(l, mul(l, number(l, x, p[0]), x), number(l, x, p[1]));
    return maximum(l, number(l, x, 0), minimum(l, number(l, x, 1), line));
}

static Value *between(Lowering *l, Value *x, const double *p) {
    return clip(l, x, number(l, x, p[0]), number(l, x, p[1]));
}

static Value *softplus_of(Lowering *l, Value *x, const double *p) {
    (void)p;
    return softplus(l, x);
}

static Value *softsign(Lowering *l, Value *x, const double *p) {
    (void)p;
    Value *magnitude = unary(l, PRIM_ABS, x);
    return divide(l, x, add(l, number(l, x, 1), magnitude));
}

static Value *sigmoid(Lowering *l, Value *x, const double *p) {
    (void)p;
    return unary(l, PRIM_SIGMOID, x);
}

static Value *tanh_of(Lowering *l, Value *x, const double *p) {
    (void)p;
    return unary(l, PRIM_TANH, x);
}

static Value *affine(Lowering *l, Value *x, const double *p) {
    return add(l, mul(l, number(l, x, p[0]), x), number(l, x, p[1]));
}

static Value *scaled_tanh(Lowering *l, Value *x, const double *p) {
    return mul(l, number(l, x, p[0]), unary(l, PRIM_TANH, mul(l, number(l, x, p[1]), x)));
}

#define PREFIX "activation_"

/* By the operator's name: its numbers' attributes, as they are called where the function is a part of another operator, and what they
 * are where left out. */
static const struct Activating {
    const char *name, *attrs[2];
    double defaults[2];
    Value *(*apply)(Lowering *l, Value *x, const double *p);
} activating[] = {
    {"Affine", {PREFIX "alpha", PREFIX "beta"}, {1, 0}, affine},
    {"Celu", {PREFIX "alpha"}, {1}, celu},
    {"Clip", {PREFIX "min", PREFIX "max"}, {-INFINITY, INFINITY}, between},
    {"Elu", {PREFIX "alpha"}, {1}, elu},
    {"HardSigmoid", {PREFIX "alpha", PREFIX "beta"}, {0.2f, 0.5f}, hard_sigmoid},
    {"LeakyRelu", {PREFIX "alpha"}, {0.01f}, leaky_relu},
    {"Relu", {NULL}, {0}, relu},
    {"ScaledTanh", {PREFIX "alpha", PREFIX "beta"}, {1, 1}, scaled_tanh},
    {"Selu", {PREFIX "alpha", PREFIX "gamma"}, {1.67326319217681884765625f, 1.05070102214813232421875f}, selu},
    {"Sigmoid", {NULL}, {0}, sigmoid},
    {"Softplus", {NULL}, {0}, softplus_of},
    {"Softsign", {NULL}, {0}, softsign},
    {"Tanh", {NULL}, {0}, tanh_of},
    {"ThresholdedRelu", {PREFIX "alpha"}, {1}, thresholded_relu},
};

static const struct Activating *activating_named(const char *name) {
    for (size_t i = 0; i < sizeof activating / sizeof *activating; i++)
        if (strcmp(activating[i].name, name) == 0) return &activating[i];
    return NULL;
}

Value *activated(Lowering *l, const Node *n, Value *x) {
    const Attr *name = node_attr(n, "activation");
    if (!x || !name) return x;
    const struct Activating *f = activating_named(attr_string(n, "activation", ""));
    if (!f) return unsupported(l, "activation \"%s\"", attr_string(n, "activation", "")), NULL;
    const Attr *list = node_attr(n, "activation_params");
    double p[2];
    for (int i = 0; i < 2; i++) {
        bool listed = list && list->kind == ATTR_FLOATS && i < list->count;
        p[i] = listed ? list->floats[i] : f->attrs[i] ? attr_float(n, f->attrs[i], f->defaults[i]) : 0;
    }
    return f->apply(l, x, p);
}

Value *activation(Lowering *l, const char *name, Value *x, const double *numbers) {
    const struct Activating *f = activating_named(name);
    if (!present(l, &x, 1)) return NULL;
    if (!f) return unsupported(l, "activation \"%s\"", name), NULL;
    return f->apply(l, x, numbers);
}

/* The operator of that name itself. */
static Status lower_activating(Lowering *l, const Node *n) {
    const struct Activating *f = activating_named(n->op);
    double p[2];
    for (int i = 0; i < 2; i++) p[i] = f->attrs[i] ? attr_float(n, f->attrs[i] + strlen(PREFIX), f->defaults[i]) : 0;
    Value *x = wide_in(l, n);
    return x ? give(l, n, f->apply(l, x, p)) : l->error;
}

static Status lower_relu(Lowering *l, const Node *n) {
    Value *x = in(l, n, 0);
    return x ? out(l, n, 0, relu(l, x, NULL)) : l->error;
}

/* The slope is broadcast to x; before opset 7 one slope a channel stands in a vector. */
static Status lower_prelu(Lowering *l, const Node *n) {
    Value *x = in(l, n, 0), *slope = in(l, n, 1);
    if (!x || !slope) return l->error;
    if (n->opset < 7 && slope->rank == 1 && x->rank > 2 && !dim_equals(slope->dims[0], 1)) {
        const Dim *dims[MAX_RANK];
        for (int i = 0; i < x->rank - 1; i++) dims[i] = i ? dim_const(l->dims, 1) : slope->dims[0];
        slope = reshape(l, slope, dims, x->rank - 1);
    }
    return out(l, n, 0, where(l, less(l, x, number(l, x, 0)), mul(l, slope, x), x));
}

/* Before opset 6 the numbers had fewer digits. */
static Status lower_selu(Lowering *l, const Node *n) {
    if (n->opset >= 6) return lower_activating(l, n);
    const double p[] = {attr_float(n, "alpha", 1.6732f), attr_float(n, "gamma", 1.0507f)};
    return give(l, n, selu(l, wide_in(l, n), p));
}

static Status lower_hard_swish(Lowering *l, const Node *n) {
    Value *x = wide_in(l, n);
    return give(l, n, mul(l, x, hard_sigmoid(l, x, (const double[]){1.0 / 6, 0.5})));
}

static Status lower_mish(Lowering *l, const Node *n) {
    Value *x = wide_in(l, n);
    return give(l, n, mul(l, x, unary(l, PRIM_TANH, softplus(l, x))));
}

/* x + bias below -lambd, x - bias above lambd, 0 between. */
static Status lower_shrink(Lowering *l, const Node *n) {
    Value *x = in(l, n, 0);
    x = x && dtype_is_integer(x->dtype) ? cast(l, x, DT_F64) : widen(l, x);
    double lambd = attr_float(n, "lambd", 0.5f);
    Value *bias = number(l, x, attr_float(n, "bias", 0)), *zero = number(l, x, 0);
    Value *high = where(l, greater(l, x, number(l, x, lambd)), sub(l, x, bias), zero);
    return give(l, n, where(l, less(l, x, number(l, x, -lambd)), add(l, x, bias), high));
}

static Status lower_gelu(Lowering *l, const Node *n) {
    return out(l, n, 0, gelu(l, in(l, n, 0), strcmp(attr_string(n, "approximate", "none"), "tanh") == 0));
}

static Status lower_swish(Lowering *l, const Node *n) {
    Value *x = wide_in(l, n);
    Value *scaled = mul(l, number(l, x, attr_float(n, "alpha", 1)), x);
    return give(l, n, mul(l, x, unary(l, PRIM_SIGMOID, scaled)));
}

/* a sigmoid(alpha a) b: Shazeer, "GLU Variants Improve Transformer", 2020. */
static Status lower_swiglu(Lowering *l, const Node *n) {
    Value *a = wide_in(l, n), *b = widen(l, in(l, n, 1));
    Value *scaled = mul(l, number(l, a, attr_float(n, "alpha", 1)), a);
    return give(l, n, mul(l, mul(l, a, unary(l, PRIM_SIGMOID, scaled)), b));
}

/* --- along axes --------------------------------------------------------------------------------------------------- */

/* The axes that softmax and the like run over: the one of attribute `axis`, and before opset 13 (default axis 1) all
 * from there on. */
static int axes_from(Lowering *l, const Node *n, const Value *x, int *axes) {
    int64_t given = attr_int(n, "axis", n->opset < 13 ? 1 : -1);
    if (x->rank == 0) return 0;
    if (n->opset < 13 && given == x->rank) return 0; /* one element a row */
    int first = axis_of(l, given, x->rank), count = 0;
    for (int i = first; i < (n->opset < 13 ? x->rank : first + 1); i++) axes[count++] = i;
    return count;
}

static Value *less_max(Lowering *l, Value *x, const int *axes, int count) {
    return sub(l, x, reduce(l, PRIM_REDUCE_MAX, x, axes, count, true));
}

static Status lower_softmax(Lowering *l, const Node *n) {
    int axes[MAX_RANK];
    Value *x = wide_in(l, n);
    if (!x) return l->error;
    int count = axes_from(l, n, x, axes);
    Value *e = unary(l, PRIM_EXP, less_max(l, x, axes, count));
    return give(l, n, divide(l, e, reduce(l, PRIM_REDUCE_SUM, e, axes, count, true)));
}

static Status lower_log_softmax(Lowering *l, const Node *n) {
    int axes[MAX_RANK];
    Value *x = wide_in(l, n);
    if (!x) return l->error;
    int count = axes_from(l, n, x, axes);
    Value *d = less_max(l, x, axes, count);
    Value *sum = reduce(l, PRIM_REDUCE_SUM, unary(l, PRIM_EXP, d), axes, count, true);
    return give(l, n, sub(l, d, unary(l, PRIM_LOG, sum)));
}

/* 1 at the first largest element, else 0. */
static Status lower_hardmax(Lowering *l, const Node *n) {
    int axes[MAX_RANK];
    Value *x = in(l, n, 0), *rows = x;
    if (!x) return l->error;
    int count = axes_from(l, n, x, axes);
    if (count == 0) return out(l, n, 0, expand(l, like(l, x, 1), x->dims, x->rank));
    int axis = axes[0];
    if (count > 1) rows = flatten_to(l, x, axis, x->rank);
    if (!rows) return l->error;
    Value *at = arg_reduce(l, PRIM_ARGMAX, rows, axis, true, false);
    Value *index = iota(l, &rows->dims[axis], 1, 0, DT_I64);
    const Dim *dims[MAX_RANK];
    for (int i = 0; i < rows->rank - axis; i++) dims[i] = i ? dim_const(l->dims, 1) : rows->dims[axis];
    Value *hit = binary(l, PRIM_EQ, reshape(l, index, dims, rows->rank - axis), at);
    return out(l, n, 0, reshape(l, cast_like(l, hit, x), x->dims, x->rank));
}

/* ---- com.microsoft's ---- */

static Status lower_exact_gelu(Lowering *l, const Node *n) { return out(l, n, 0, gelu(l, in(l, n, 0), false)); }

static Status lower_bias_gelu(Lowering *l, const Node *n) {
    return out(l, n, 0, gelu(l, add(l, in(l, n, 0), in(l, n, 1)), false));
}

static Status lower_fast_gelu(Lowering *l, const Node *n) {
    return out(l, n, 0, gelu(l, with_bias(l, n, in(l, n, 0), 1), true));
}

/* x * sigmoid(alpha * x). */
static Status lower_quick_gelu(Lowering *l, const Node *n) {
    Value *x = in(l, n, 0), *wide = widen(l, x);
    Value *y = mul(l, wide, unary(l, PRIM_SIGMOID, mul(l, wide, like(l, wide, attr_float(n, "alpha", 1.702f)))));
    return out(l, n, 0, cast_like(l, y, x));
}

/* The two halves of x + bias along the last axis: first * gelu(second). */
static Status lower_bias_split_gelu(Lowering *l, const Node *n) {
    Value *x = add(l, in(l, n, 0), in(l, n, 1));
    if (!x) return l->error;
    if (x->rank < 1) return invalid(l, "X is a scalar");
    const Dim *half = dim_div(l->dims, x->dims[x->rank - 1], dim_const(l->dims, 2)), *zero = dim_const(l->dims, 0);
    Value *first = slice_axis(l, x, x->rank - 1, zero, half), *second = slice_axis(l, x, x->rank - 1, half, half);
    return out(l, n, 0, mul(l, first, gelu(l, second, false)));
}

/* z sigmoid(z), z = scale x, each rounded to x's type. */
static Status lower_scaled_silu(Lowering *l, const Node *n) {
    Value *x = in(l, n, 0), *wide = widen(l, x), *scale = optional_in(l, n, 1);
    if (!x || !wide) return l->error;
    Value *factor = scale ? reshape(l, cast_like(l, scale, wide), NULL, 0) : number(l, wide, attr_float(n, "alpha", 1));
    Value *z = cast_like(l, mul(l, wide, factor), x), *s = unary(l, PRIM_SIGMOID, widen(l, z));
    return out(l, n, 0, cast_like(l, mul(l, widen(l, z), widen(l, cast_like(l, s, x))), x));
}

/* x + bias + skip. */
static Status lower_bias_add(Lowering *l, const Node *n) {
    return out(l, n, 0, add(l, add(l, in(l, n, 0), in(l, n, 1)), in(l, n, 2)));
}

/* x + y gate, a gate a row. */
static Status lower_gated_add(Lowering *l, const Node *n) {
    return out(l, n, 0, add(l, in(l, n, 0), mul(l, in(l, n, 1), in(l, n, 2))));
}

/* decay_scale * softplus(a + dt_bias), and sigmoid(b): what opens and closes the state of linear attention. */
static Status lower_linear_attention_gate(Lowering *l, const Node *n) {
    Value *a = in(l, n, 0), *b = optional_in(l, n, 3);
    if (!a) return l->error;
    Value *y = mul(l, softplus(l, add(l, widen(l, a), widen(l, in(l, n, 1)))), widen(l, in(l, n, 2)));
    TRY(out(l, n, 0, y ? cast_like(l, y, a) : NULL));
    if (!wants_output(n, 1)) return NULL;
    if (!b) return invalid(l, "beta is asked for without b");
    return out(l, n, 1, cast_like(l, unary(l, PRIM_SIGMOID, widen(l, b)), b));
}

const OpRow ops_activation[] = {
    {"", "Celu", 12, 0, lower_activating},
    {"", "Elu", 1, 0, lower_activating},
    {"", "Gelu", 20, 0, lower_gelu},
    {"", "HardSigmoid", 1, 0, lower_activating},
    {"", "HardSwish", 14, 0, lower_hard_swish},
    {"", "Hardmax", 1, 0, lower_hardmax},
    {"", "LeakyRelu", 1, 0, lower_activating},
    {"", "LogSoftmax", 1, 0, lower_log_softmax},
    {"", "Mish", 18, 0, lower_mish},
    {"", "PRelu", 1, 0, lower_prelu},
    {"", "Relu", 1, 0, lower_relu},
    {"", "Selu", 1, 0, lower_selu},
    {"", "Shrink", 9, 0, lower_shrink},
    {"", "Softmax", 1, 0, lower_softmax},
    {"", "Softplus", 1, 0, lower_activating},
    {"", "Softsign", 1, 0, lower_activating},
    {"", "SwiGLU", 28, 0, lower_swiglu},
    {"", "Swish", 24, 0, lower_swish},
    {"", "ThresholdedRelu", 10, 0, lower_activating},
    {"com.microsoft", "LinearAttentionGate", 1, 0, lower_linear_attention_gate},
    {"com.microsoft", "BiasAdd", 1, 0, lower_bias_add},
    {"com.microsoft", "BiasGelu", 1, 0, lower_bias_gelu},
    {"com.microsoft", "BiasSplitGelu", 1, 0, lower_bias_split_gelu},
    {"com.microsoft", "FastGelu", 1, 0, lower_fast_gelu},
    {"com.microsoft", "GatedAdd", 1, 0, lower_gated_add},
    {"com.microsoft", "Gelu", 1, 0, lower_exact_gelu},
    {"com.microsoft", "QuickGelu", 1, 0, lower_quick_gelu},
    {"com.microsoft", "ScaledSiLU", 1, 0, lower_scaled_silu},
    {0},
};
