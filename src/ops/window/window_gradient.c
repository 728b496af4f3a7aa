/* SPDX-License-Identifier: Apache-2.0 */
/* Gradients of pooling: a maximum's goes where it was found, an average's in equal parts to what it was made of (Goodfellow, Bengio and
 * Courville, "Deep Learning", 2016, 9.3 and 6.5.2). */
#include "ops/window/window.h"

#include "lowering/gradient.h"
#include "lowering/sizes.h"

static Value *like_input(Backward *w, const Node *n, const char *op, HostFn host, Value *const *inputs, int count) {
    Node *node = backward_host(w, n, op, host, inputs, count);
    return host_result_like(w->l, node, n->inputs[0]);
}

/* ---- MaxPool ---- */

/* Of ties the first has it all, as it is the one that the indices name. */
void back_max_pool(Backward *w, const Node *n) {
    Value *inputs[] = {n->inputs[0], dy(w, n, 0)};
    give(w, n, 0, like_input(w, n, "MaxPoolGradient", host_max_pool_gradient, inputs, 2));
}

/* dx = sum of dy at the places of the maxima: its gradient with respect to dy is read there. Where these are does not change. */
void back_max_pool_gradient(Backward *w, const Node *n) {
    Lowering *l = w->l;
    Value *x = n->inputs[0], *y = n->inputs[1];
    Node *pool = backward_host(w, n, "MaxPool", host_max_pool, &x, 1);
    if (pool) node_set_int(pool, "storage_order", 0);
    host_result_like(l, pool, y);
    Value *places = host_result(l, pool, DT_I64, y->rank, (const Dim *const *)y->dims);
    Value *planes = from_channels_last(l, dy(w, n, 0)); /* the places count as if channels came second */
    if (!planes) return;
    Value *read = gather(l, flatten_to(l, planes, 0, planes->rank), places, 0);
    give(w, n, 1, read);
}

/* ---- AveragePool ---- */

static Value *spread(Backward *w, const Node *n, const Value *x, Value *g) {
    Node *node = backward_host(w, n, "AveragePoolGradient", host_average_pool_gradient, &g, 1);
    if (node) node_set_dims(node, "image", (const Dim *const *)x->dims, x->rank);
    return host_result_like(w->l, node, x);
}

void back_average_pool(Backward *w, const Node *n) { give(w, n, 0, spread(w, n, n->inputs[0], dy(w, n, 0))); }

/* It is linear, and the gradient of AveragePool: so its own is AveragePool. */
void back_average_pool_gradient(Backward *w, const Node *n) {
    Value *g = dy(w, n, 0);
    give(w, n, 0, like_input(w, n, "AveragePool", host_average_pool, &g, 1));
}

/* ---- LpPool ---- */

/* How many taps of a window lie in the image, along one spatial axis: [1, ..., size, ..., 1] of y's rank. */
static Value *taps_along(Lowering *l, const Node *n, const Value *x, const Value *y, int axis) {
    int count;
    int64_t kernel = attr_ints(n, "kernel_shape", &count)[axis], step = attr_ints(n, "dilations", &count)[axis];
    const Dim *before = attr_dims(n, "pads", &count)[axis], *dims[MAX_RANK];
    for (int i = 0; i < y->rank; i++) dims[i] = i == 1 + axis ? y->dims[i] : size_const(l, 1);
    Value *start = iota(l, dims, y->rank, 1 + axis, DT_I64), *zero = scalar_int(l, DT_I64, 0);
    start = mul(l, start, scalar_int(l, DT_I64, attr_ints(n, "strides", &count)[axis]));
    start = sub(l, start, dim_scalar(l, before));
    /* taps [first, end): those from `low` on are up(low - start) and more */
    Value *dilation = scalar_int(l, DT_I64, step), *round = scalar_int(l, DT_I64, step - 1);
    Value *to_first = maximum(l, sub(l, zero, start), zero);
    Value *to_end = maximum(l, sub(l, dim_scalar(l, x->dims[1 + axis]), start), zero);
    Value *first = divide(l, add(l, to_first, round), dilation), *end = divide(l, add(l, to_end, round), dilation);
    return maximum(l, sub(l, minimum(l, end, scalar_int(l, DT_I64, kernel)), first), zero);
}

/* y = (sum |x|^p)^(1/p): dx = |x|^(p-1) sign(x) times the sum over the windows of y^(1-p) dy; 0 where y is, at the kink. The sum is the
 * gradient of AveragePool without its divisor. */
void back_lp_pool(Backward *w, const Node *n) {
    Lowering *l = w->l;
    Value *x = n->inputs[0], *y = n->outputs[0], *g = dy(w, n, 0);
    double p = attr_float(n, "p", 2);
    Value *taps = NULL, *zero = like(l, x, 0);
    if (p != 1) {
        Value *power = p == 2 ? divide(l, g, y) : mul(l, g, binary(l, PRIM_POW, y, like(l, y, 1 - p)));
        g = where(l, binary(l, PRIM_EQ, y, zero), zero, power);
    }
    for (int i = 0; i < x->rank - 2 && !l->error; i++) {
        Value *along = taps_along(l, n, x, y, i);
        taps = taps ? mul(l, taps, along) : along;
    }
    Value *sum = spread(w, n, x, mul(l, g, cast_like(l, taps, x))), *size = unary(l, PRIM_ABS, x);
    Value *slope = p == 2 ? x : unary(l, PRIM_SIGN, x);
    if (p != 1 && p != 2) slope = mul(l, slope, binary(l, PRIM_POW, size, like(l, x, p - 1)));
    give(w, n, 0, mul(l, slope, sum));
}
