/* SPDX-License-Identifier: Apache-2.0 */
/* Gradients of reductions. Results keep their axes with size 1, so that broadcasting repeats dy along them. */
#include "autodiff/rules.h"

static void back_sum(Backward *w, const Node *n) {
    const Value *x = n->inputs[0];
    give(w, n, 0, expand(w->l, dy(w, n, 0), x->dims, x->rank));
}

static int axes_to(const Node *n, int *axes) {
    int count;
    const int64_t *list = attr_ints(n, "axes", &count);
    for (int i = 0; i < count; i++) axes[i] = (int)list[i];
    return count;
}

/* The product of all others: y / x_i without zeros, that of the others for the only zero, else 0. */
static void back_product(Backward *w, const Node *n) {
    Lowering *l = w->l;
    int axes[MAX_RANK], count = axes_to(n, axes);
    Value *x = n->inputs[0], *zero = like(l, x, 0), *one = like(l, x, 1);
    Value *is_zero = binary(l, PRIM_EQ, x, zero), *others = where(l, is_zero, one, x);
    Value *zeros = reduce(l, PRIM_REDUCE_SUM, cast_like(l, is_zero, x), axes, count, true);
    Value *product = reduce(l, PRIM_REDUCE_PROD, others, axes, count, true);
    Value *of_zero = where(l, binary(l, PRIM_EQ, zeros, one), product, zero);
    Value *of_others = where(l, binary(l, PRIM_EQ, zeros, zero), divide(l, product, others), zero);
    give(w, n, 0, mul(l, dy(w, n, 0), where(l, is_zero, of_zero, of_others)));
}

/* Elements that share the maximum share its gradient. */
static void back_extreme(Backward *w, const Node *n) {
    Lowering *l = w->l;
    int axes[MAX_RANK], count = axes_to(n, axes);
    Value *hits = cast_like(l, binary(l, PRIM_EQ, n->inputs[0], n->outputs[0]), n->inputs[0]);
    Value *share = divide(l, dy(w, n, 0), reduce(l, PRIM_REDUCE_SUM, hits, axes, count, true));
    give(w, n, 0, mul(l, hits, share));
}

BackwardFn rule_reduction(Prim prim) {
    switch (prim) {
    case PRIM_REDUCE_SUM: return back_sum;
    case PRIM_REDUCE_PROD: return back_product;
    case PRIM_REDUCE_MAX:
    case PRIM_REDUCE_MIN: return back_extreme;
    default: return NULL;
    }
}
