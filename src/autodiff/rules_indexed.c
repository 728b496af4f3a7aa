/* SPDX-License-Identifier: Apache-2.0 */
/* Gradients of gathers and scatters: what was read from a place is added up there. Indices have none. */
#include "autodiff/rules.h"

/* dx[i] += g at i: the indexed axis goes first, so that whole rows are added. */
static void back_gather(Backward *w, const Node *n) {
    Lowering *l = w->l;
    const Value *data = n->inputs[0], *indices = n->inputs[1];
    int axis = (int)attr_int(n, "axis", 0), lead = indices->rank, rank = data->rank, order[MAX_RANK], back[MAX_RANK];
    const Dim *dims[MAX_RANK];
    for (int i = 0; i < lead; i++) order[i] = axis + i;
    for (int i = 0; i < rank - 1; i++) order[lead + i] = i < axis ? i : lead + i;
    for (int i = 0; i < rank; i++) {
        back[i] = i < axis ? i + 1 : i == axis ? 0 : i;
        dims[back[i]] = data->dims[i];
    }
    Value *rows = permute(l, dy(w, n, 0), order), *zeros = expand(l, like(l, data, 0), dims, rank);
    Value *sums = scatter_nd(l, zeros, unsqueeze(l, n->inputs[1], &lead, 1), rows, "add");
    give(w, n, 0, permute(l, sums, back));
}

/* Whether each line along the axis is read once. */
static bool takes_one(const Value *data, const Value *indices, int axis) {
    for (int i = 0; i < data->rank; i++)
        if (i != axis && indices->dims[i] != data->dims[i]) return false;
    return dim_equals(indices->dims[axis], 1);
}

/* Where one element of a line is read, a comparison makes the gradient in one pass, which fuses with its neighbours'. */
static void back_gather_elements(Backward *w, const Node *n) {
    Lowering *l = w->l;
    Value *data = n->inputs[0], *at = n->inputs[1];
    int axis = (int)attr_int(n, "axis", 0);
    if (!takes_one(data, at, axis)) {
        Value *sum = scatter_elements(l, full_like(l, data, 0), at, dy(w, n, 0), axis, "add");
        const char *labels = attr_string(n, "labels", NULL); /* a wrong one may be met here first */
        if (sum && sum->producer && labels) node_set_string(sum->producer, "labels", labels);
        give(w, n, 0, sum);
        return;
    }
    Value *size = cast_like(l, dim_scalar(l, data->dims[axis]), at);
    at = where(l, binary(l, PRIM_LT, at, scalar_int(l, at->dtype, 0)), add(l, at, size), at);
    Value *own = iota(l, (const Dim *const *)data->dims, data->rank, axis, at->dtype);
    give(w, n, 0, where(l, binary(l, PRIM_EQ, own, at), dy(w, n, 0), like(l, data, 0)));
}

/* --- scatters: both kinds are one, with their own way to read and write at the indices ----------------------------------- */

static Value *get(Lowering *l, const Node *n, Value *from) {
    if (n->prim == PRIM_SCATTER_ND) return gather_nd(l, from, n->inputs[1], 0);
    return gather_elements(l, from, n->inputs[1], (int)attr_int(n, "axis", 0));
}

static Value *put(Lowering *l, const Node *n, Value *data, Value *updates, const char *reduction) {
    if (n->prim == PRIM_SCATTER_ND) return scatter_nd(l, data, n->inputs[1], updates, reduction);
    return scatter_elements(l, data, n->inputs[1], updates, (int)attr_int(n, "axis", 0), reduction);
}

/* The product of all other factors of an element where `x` is one: as that of a reduction. */
static Value *others(Lowering *l, Value *x, Value *zeros, Value *product) {
    Value *zero = like(l, x, 0), *one = like(l, x, 1);
    Value *of_zero = where(l, binary(l, PRIM_EQ, zeros, one), product, zero);
    Value *of_others = where(l, binary(l, PRIM_EQ, zeros, zero), divide(l, product, x), zero);
    return where(l, binary(l, PRIM_EQ, x, zero), of_zero, of_others);
}

static void back_scatter_mul(Backward *w, const Node *n) {
    Lowering *l = w->l;
    Value *data = n->inputs[0], *updates = n->inputs[2], *one = like(l, data, 1), *zero = like(l, data, 0);
    Value *empty = binary(l, PRIM_EQ, data, zero), *none = binary(l, PRIM_EQ, updates, zero);
    Value *zeros = put(l, n, cast_like(l, empty, data), cast_like(l, none, data), "add");
    Value *product = put(l, n, where(l, empty, one, data), where(l, none, one, updates), "mul");
    give(w, n, 0, mul(l, dy(w, n, 0), others(l, data, zeros, product)));
    if (wants(w, n, 2))
        give(w, n, 2, mul(l, get(l, n, dy(w, n, 0)), others(l, updates, get(l, n, zeros), get(l, n, product))));
}

/* All that equal the extreme share its gradient. */
static void back_scatter_extreme(Backward *w, const Node *n) {
    Lowering *l = w->l;
    Value *data = n->inputs[0], *updates = n->inputs[2], *y = n->outputs[0];
    Value *stayed = cast_like(l, binary(l, PRIM_EQ, data, y), data);
    Value *taken = cast_like(l, binary(l, PRIM_EQ, updates, get(l, n, y)), data);
    Value *share = divide(l, dy(w, n, 0), put(l, n, stayed, taken, "add"));
    give(w, n, 0, mul(l, stayed, share));
    if (wants(w, n, 2)) give(w, n, 2, mul(l, taken, get(l, n, share)));
}

static void back_scatter(Backward *w, const Node *n) {
    Lowering *l = w->l;
    const char *reduction = attr_string(n, "reduction", "none");
    bool adds = strcmp(reduction, "add") == 0, replaces = strcmp(reduction, "none") == 0;
    if (strcmp(reduction, "mul") == 0) {
        back_scatter_mul(w, n);
    } else if (!adds && !replaces) {
        back_scatter_extreme(w, n);
    } else {
        if (wants(w, n, 0))
            give(w, n, 0, adds ? dy(w, n, 0) : put(l, n, dy(w, n, 0), full_like(l, n->inputs[2], 0), "none"));
        if (wants(w, n, 2)) give(w, n, 2, get(l, n, dy(w, n, 0)));
    }
}

BackwardFn rule_indexed(Prim prim) {
    switch (prim) {
    case PRIM_GATHER: return back_gather;
    case PRIM_GATHER_ELEMENTS: return back_gather_elements;
    case PRIM_SCATTER_ELEMENTS:
    case PRIM_SCATTER_ND: return back_scatter;
    default: return NULL;
    }
}
