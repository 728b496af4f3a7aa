/* SPDX-License-Identifier: Apache-2.0 */
/* Gradients of elementwise primitives: the derivatives of calculus (Abramowitz and Stegun, "Handbook of Mathematical
 * Functions", 3.3, 4.2 to 4.6, 7.1.19), written with the result where it is at hand. */
#include "autodiff/rules.h"

#include <math.h>

static Value *negative(Lowering *l, Value *x) { return unary(l, PRIM_NEG, x); }
static Value *inverse(Lowering *l, Value *x) { return unary(l, PRIM_RECIPROCAL, x); }
static Value *square(Lowering *l, Value *x) { return mul(l, x, x); }
/* number + x, number - x */
static Value *plus(Lowering *l, double number, Value *x) { return add(l, like(l, x, number), x); }
static Value *minus(Lowering *l, double number, Value *x) { return sub(l, like(l, x, number), x); }
static Value *times(Lowering *l, double number, Value *x) { return mul(l, like(l, x, number), x); }

/* --- one argument: the factor of dy -------------------------------------------------------------------------------------- */

typedef Value *(*DerivativeFn)(Lowering *l, Value *x, Value *y);

static Value *d_abs(Lowering *l, Value *x, Value *y) { return (void)y, unary(l, PRIM_SIGN, x); }
static Value *d_sqrt(Lowering *l, Value *x, Value *y) { return (void)x, divide(l, like(l, y, 0.5), y); }
static Value *d_reciprocal(Lowering *l, Value *x, Value *y) { return (void)x, negative(l, square(l, y)); }
static Value *d_exp(Lowering *l, Value *x, Value *y) { return (void)l, (void)x, y; }
static Value *d_log(Lowering *l, Value *x, Value *y) { return (void)y, inverse(l, x); }
static Value *d_log1p(Lowering *l, Value *x, Value *y) { return (void)y, inverse(l, plus(l, 1, x)); }
static Value *d_expm1(Lowering *l, Value *x, Value *y) { return (void)x, plus(l, 1, y); }
static Value *d_sin(Lowering *l, Value *x, Value *y) { return (void)y, unary(l, PRIM_COS, x); }
static Value *d_cos(Lowering *l, Value *x, Value *y) { return (void)y, negative(l, unary(l, PRIM_SIN, x)); }
static Value *d_tan(Lowering *l, Value *x, Value *y) { return (void)x, plus(l, 1, square(l, y)); }
static Value *d_asin(Lowering *l, Value *x, Value *y) {
    return (void)y, rsqrt(l, mul(l, minus(l, 1, x), plus(l, 1, x)));
}
static Value *d_acos(Lowering *l, Value *x, Value *y) { return negative(l, d_asin(l, x, y)); }
static Value *d_atan(Lowering *l, Value *x, Value *y) { return (void)y, inverse(l, plus(l, 1, square(l, x))); }
static Value *d_sinh(Lowering *l, Value *x, Value *y) { return (void)y, unary(l, PRIM_COSH, x); }
static Value *d_cosh(Lowering *l, Value *x, Value *y) { return (void)y, unary(l, PRIM_SINH, x); }
static Value *d_tanh(Lowering *l, Value *x, Value *y) { return (void)x, minus(l, 1, square(l, y)); }
static Value *d_asinh(Lowering *l, Value *x, Value *y) { return (void)y, rsqrt(l, plus(l, 1, square(l, x))); }
static Value *d_acosh(Lowering *l, Value *x, Value *y) {
    return (void)y, rsqrt(l, mul(l, sub(l, x, like(l, x, 1)), plus(l, 1, x)));
}
static Value *d_atanh(Lowering *l, Value *x, Value *y) {
    return (void)y, inverse(l, mul(l, minus(l, 1, x), plus(l, 1, x)));
}
static Value *d_erf(Lowering *l, Value *x, Value *y) {
    return (void)y, times(l, M_2_SQRTPI, unary(l, PRIM_EXP, negative(l, square(l, x))));
}
static Value *d_sigmoid(Lowering *l, Value *x, Value *y) { return (void)x, mul(l, y, minus(l, 1, y)); }

static const DerivativeFn derivatives[PRIM_COUNT] = {
    [PRIM_ABS] = d_abs,     [PRIM_SQRT] = d_sqrt,   [PRIM_RECIPROCAL] = d_reciprocal,
    [PRIM_EXP] = d_exp,     [PRIM_LOG] = d_log,     [PRIM_LOG1P] = d_log1p,
    [PRIM_EXPM1] = d_expm1, [PRIM_SIN] = d_sin,     [PRIM_COS] = d_cos,
    [PRIM_TAN] = d_tan,     [PRIM_ASIN] = d_asin,   [PRIM_ACOS] = d_acos,
    [PRIM_ATAN] = d_atan,   [PRIM_SINH] = d_sinh,   [PRIM_COSH] = d_cosh,
    [PRIM_TANH] = d_tanh,   [PRIM_ASINH] = d_asinh, [PRIM_ACOSH] = d_acosh,
    [PRIM_ATANH] = d_atanh, [PRIM_ERF] = d_erf,     [PRIM_SIGMOID] = d_sigmoid,
};

static void back_unary(Backward *w, const Node *n) {
    give(w, n, 0, mul(w->l, dy(w, n, 0), derivatives[n->prim](w->l, n->inputs[0], n->outputs[0])));
}

static void back_neg(Backward *w, const Node *n) { give(w, n, 0, negative(w->l, dy(w, n, 0))); }

/* --- two arguments ---------------------------------------------------------------------------------------------------------- */

static void back_add(Backward *w, const Node *n) {
    give(w, n, 0, dy(w, n, 0));
    give(w, n, 1, dy(w, n, 0));
}

static void back_sub(Backward *w, const Node *n) {
    give(w, n, 0, dy(w, n, 0));
    if (wants(w, n, 1)) give(w, n, 1, negative(w->l, dy(w, n, 0)));
}

static void back_mul(Backward *w, const Node *n) {
    if (wants(w, n, 0)) give(w, n, 0, mul(w->l, dy(w, n, 0), n->inputs[1]));
    if (wants(w, n, 1)) give(w, n, 1, mul(w->l, dy(w, n, 0), n->inputs[0]));
}

/* y = a / b: da = dy / b, db = -y dy / b */
static void back_div(Backward *w, const Node *n) {
    Value *part = divide(w->l, dy(w, n, 0), n->inputs[1]);
    give(w, n, 0, part);
    if (wants(w, n, 1)) give(w, n, 1, negative(w->l, mul(w->l, part, n->outputs[0])));
}

/* y = a - b q, q = floor(a / b) or trunc(a / b), which jumps: da = dy, db = -q dy */
static void back_mod(Backward *w, const Node *n) {
    Lowering *l = w->l;
    give(w, n, 0, dy(w, n, 0));
    if (!wants(w, n, 1)) return;
    Value *quotient = divide(l, sub(l, n->inputs[0], n->outputs[0]), n->inputs[1]);
    give(w, n, 1, negative(l, mul(l, dy(w, n, 0), unary(l, PRIM_ROUND, quotient))));
}

/* y = a^b: da = b a^(b-1) dy, 0 where b is; db = y log(a) dy, 0 where a is 0, whose every power is 0 or 1 around b. */
static void back_pow(Backward *w, const Node *n) {
    Lowering *l = w->l;
    Value *a = n->inputs[0], *b = n->inputs[1], *zero = like(l, a, 0);
    if (wants(w, n, 0)) {
        Value *slope = mul(l, b, binary(l, PRIM_POW, a, sub(l, b, like(l, b, 1))));
        give(w, n, 0, mul(l, dy(w, n, 0), where(l, binary(l, PRIM_EQ, b, zero), zero, slope)));
    }
    if (wants(w, n, 1)) {
        Value *slope = mul(l, n->outputs[0], unary(l, PRIM_LOG, a));
        give(w, n, 1, mul(l, dy(w, n, 0), where(l, binary(l, PRIM_EQ, a, zero), zero, slope)));
    }
}

/* The larger (smaller) of two takes the gradient. Where they are equal, each of two that take one has half of it, and one beside a
 * bound has none: relu'(0) = 0. */
static void back_extreme(Backward *w, const Node *n) {
    Lowering *l = w->l;
    Prim beats = n->prim == PRIM_MAX ? PRIM_GT : PRIM_LT;
    bool both = wants(w, n, 0) && wants(w, n, 1);
    Value *equal = both ? binary(l, PRIM_EQ, n->inputs[0], n->inputs[1]) : NULL;
    Value *tied = both ? mul(l, dy(w, n, 0), like(l, n->outputs[0], 0.5)) : like(l, n->outputs[0], 0);
    for (int i = 0; i < 2; i++) {
        if (!wants(w, n, i)) continue;
        Value *other = both ? where(l, equal, tied, like(l, tied, 0)) : tied;
        give(w, n, i, where(l, binary(l, beats, n->inputs[i], n->inputs[1 - i]), dy(w, n, 0), other));
    }
}

static void back_where(Backward *w, const Node *n) {
    Value *zero = like(w->l, n->outputs[0], 0);
    if (wants(w, n, 1)) give(w, n, 1, where(w->l, n->inputs[0], dy(w, n, 0), zero));
    if (wants(w, n, 2)) give(w, n, 2, where(w->l, n->inputs[0], zero, dy(w, n, 0)));
}

static void back_cast(Backward *w, const Node *n) { give(w, n, 0, cast_like(w->l, dy(w, n, 0), n->inputs[0])); }

BackwardFn rule_elementwise(Prim prim) {
    if (derivatives[prim]) return back_unary;
    switch (prim) {
    case PRIM_NEG: return back_neg;
    case PRIM_ADD: return back_add;
    case PRIM_SUB: return back_sub;
    case PRIM_MUL: return back_mul;
    case PRIM_DIV: return back_div;
    case PRIM_MOD:
    case PRIM_FMOD: return back_mod;
    case PRIM_POW: return back_pow;
    case PRIM_MIN:
    case PRIM_MAX: return back_extreme;
    case PRIM_WHERE: return back_where;
    case PRIM_CAST: return back_cast;
    default: return NULL;
    }
}

bool is_constant_almost_everywhere(Prim prim) {
    return prim == PRIM_SIGN || prim == PRIM_FLOOR || prim == PRIM_CEIL || prim == PRIM_ROUND || prim == PRIM_TRUNC;
}
