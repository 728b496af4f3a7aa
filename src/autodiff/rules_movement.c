/* SPDX-License-Identifier: Apache-2.0 */
/* Gradients of movement: each is undone by its counterpart. What was repeated is summed, what was left out is zero. */
#include "autodiff/rules.h"

#include "lowering/sizes.h"

static void back_reshape(Backward *w, const Node *n) {
    give(w, n, 0, reshape(w->l, dy(w, n, 0), n->inputs[0]->dims, n->inputs[0]->rank));
}

static void back_permute(Backward *w, const Node *n) {
    int count, inverse[MAX_RANK];
    const int64_t *perm = attr_ints(n, "perm", &count);
    for (int i = 0; i < count; i++) inverse[perm[i]] = i;
    give(w, n, 0, permute(w->l, dy(w, n, 0), inverse));
}

static void back_expand(Backward *w, const Node *n) {
    const Value *x = n->inputs[0];
    give(w, n, 0, sum_if_repeated(w->l, dy(w, n, 0), x, x->rank)); /* sums over the axes of size 1 */
}

/* An axis of g with `step` - 1 zeros behind each element but the last, so that it is `1 + step (size - 1)` long. */
static Value *spread(Lowering *l, Value *g, int axis, int64_t step) {
    if (step == 1 || !present(l, &g, 1)) return g;
    const Dim *split[MAX_RANK + 1], *joined[MAX_RANK], *none[MAX_RANK + 1], *after[MAX_RANK + 1];
    if (g->rank == MAX_RANK)
        return unsupported(l, "the gradient of a slice in steps takes more than %d axes", MAX_RANK), NULL;
    for (int i = 0; i <= g->rank; i++) {
        split[i] = i <= axis ? g->dims[i] : i == axis + 1 ? size_const(l, 1) : g->dims[i - 1];
        none[i] = size_const(l, 0);
        after[i] = size_const(l, i == axis + 1 ? step - 1 : 0);
    }
    for (int i = 0; i < g->rank; i++) joined[i] = i == axis ? size_mul(l, g->dims[i], size_const(l, step)) : g->dims[i];
    Value *wide = pad(l, reshape(l, g, split, g->rank + 1), none, after, like(l, g, 0));
    wide = reshape(l, wide, joined, g->rank);
    if (dim_equals(g->dims[axis], 0)) return wide;
    return slice_axis(l, wide, axis, size_const(l, 0), size_sub(l, joined[axis], size_const(l, step - 1)));
}

static Value *reversed(Lowering *l, Value *g, int axis) {
    if (!present(l, &g, 1)) return NULL;
    const Dim *start[MAX_RANK];
    int64_t step[MAX_RANK];
    for (int i = 0; i < g->rank; i++) {
        start[i] = i == axis ? size_sub(l, g->dims[i], size_const(l, 1)) : size_const(l, 0);
        step[i] = i == axis ? -1 : 1;
    }
    return slice(l, g, start, g->dims, step);
}

/* dx is 0 but at the elements that were taken. */
static void back_slice(Backward *w, const Node *n) {
    Lowering *l = w->l;
    const Value *x = n->inputs[0];
    Value *g = dy(w, n, 0);
    int count;
    const Dim *const *start = attr_dims(n, "start", &count);
    const int64_t *step = attr_ints(n, "step", &count);
    const Dim *before[MAX_RANK], *after[MAX_RANK];
    for (int i = 0; g && i < x->rank; i++) {
        const Dim *first = start[i], *size = g->dims[i];
        if (step[i] < 0) { /* the last of those taken is the first in memory */
            g = reversed(l, g, i);
            first = size_add(l, first, size_mul(l, size_sub(l, size, size_const(l, 1)), size_const(l, step[i])));
        }
        g = spread(l, g, i, step[i] < 0 ? -step[i] : step[i]);
        if (!g) break;
        if (dim_equals(size, 0)) first = size_const(l, 0);
        before[i] = first;
        after[i] = size_sub(l, x->dims[i], size_add(l, first, g->dims[i]));
    }
    give(w, n, 0, g ? reshape(l, pad(l, g, before, after, like(l, g, 0)), x->dims, x->rank) : NULL);
}

/* Negative paddings, which had cut off, put zeros there; the fill takes what lies outside. */
static void back_pad(Backward *w, const Node *n) {
    Lowering *l = w->l;
    const Value *x = n->inputs[0];
    int count;
    const Dim *const *before = attr_dims(n, "before", &count), *const *after = attr_dims(n, "after", &count);
    const Dim *less[MAX_RANK], *fewer[MAX_RANK];
    for (int i = 0; i < x->rank; i++) {
        less[i] = size_sub(l, size_const(l, 0), before[i]);
        fewer[i] = size_sub(l, size_const(l, 0), after[i]);
    }
    Value *inside = pad(l, dy(w, n, 0), less, fewer, like(l, n->outputs[0], 0));
    give(w, n, 0, inside ? reshape(l, inside, x->dims, x->rank) : NULL);
    if (wants(w, n, 1)) {
        Value *kept = pad(l, full_like(l, x, 0), before, after, like(l, x, 1));
        int axes[MAX_RANK];
        for (int i = 0; i < x->rank; i++) axes[i] = i;
        give(w, n, 1, reduce(l, PRIM_REDUCE_SUM, mul(l, dy(w, n, 0), kept), axes, x->rank, false));
    }
}

static void back_concat(Backward *w, const Node *n) {
    Lowering *l = w->l;
    int axis = (int)attr_int(n, "axis", 0);
    const Dim *start = size_const(l, 0);
    for (int i = 0; i < n->input_count; i++) {
        const Dim *size = n->inputs[i]->dims[axis];
        if (wants(w, n, i)) give(w, n, i, slice_axis(l, dy(w, n, 0), axis, start, size));
        start = size_add(l, start, size);
    }
}

BackwardFn rule_movement(Prim prim) {
    switch (prim) {
    case PRIM_RESHAPE: return back_reshape;
    case PRIM_PERMUTE: return back_permute;
    case PRIM_EXPAND: return back_expand;
    case PRIM_SLICE: return back_slice;
    case PRIM_PAD: return back_pad;
    case PRIM_CONCAT: return back_concat;
    default: return NULL;
    }
}
