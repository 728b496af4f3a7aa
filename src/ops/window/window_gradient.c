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

/* ---- how many elements a window counts ---- */

/* Those along one spatial axis, of the image or with its padding: i64 [1, ..., size, ..., 1]. */
static Value *counted_along(Lowering *l, const Node *n, int axis, const Dim *image, bool with_pads, const Value *y) {
    int count;
    int64_t kernel = attr_ints(n, "kernel_shape", &count)[axis], step = attr_ints(n, "dilations", &count)[axis];
    const Dim *const *pads = attr_dims(n, "pads", &count), *dims[MAX_RANK];
    const Dim *end = with_pads ? size_add(l, image, pads[count / 2 + axis]) : image;
    for (int i = 0; i < y->rank; i++) dims[i] = i == 1 + axis ? y->dims[i] : size_const(l, 1);
    Value *start = iota(l, dims, y->rank, 1 + axis, DT_I64), *zero = scalar_int(l, DT_I64, 0);
    start = mul(l, start, scalar_int(l, DT_I64, attr_ints(n, "strides", &count)[axis]));
    start = sub(l, start, dim_scalar(l, pads[axis]));
    /* taps [first, end): those from `low` on are up(low - start) and more */
    Value *dilation = scalar_int(l, DT_I64, step), *round = scalar_int(l, DT_I64, step - 1);
    Value *to_first = with_pads ? zero : maximum(l, sub(l, zero, start), zero);
    Value *to_end = maximum(l, sub(l, dim_scalar(l, end), start), zero);
    Value *first = divide(l, add(l, to_first, round), dilation), *last = divide(l, add(l, to_end, round), dilation);
    return maximum(l, sub(l, minimum(l, last, scalar_int(l, DT_I64, kernel)), first), zero);
}

/* What AveragePool n divides each element of y, of its result's shape, by. image: the sizes that are pooled, spatial first. */
static Value *divisors(Lowering *l, const Node *n, const Dim *const *image, const Value *y) {
    int spatial, count;
    const int64_t *kernel = attr_ints(n, "kernel_shape", &spatial);
    const Dim *const *pads = attr_dims(n, "pads", &count);
    bool with_pads = attr_int(n, "count_include_pad", 0), inside = !attr_int(n, "ceil_mode", 0);
    int64_t all = 1;
    Value *product = NULL;
    for (int i = 0; i < spatial; i++) {
        all *= kernel[i];
        inside &= with_pads || (dim_equals(pads[i], 0) && dim_equals(pads[spatial + i], 0));
    }
    if (inside) return like(l, y, (double)all);
    for (int i = 0; i < spatial; i++) {
        Value *along = counted_along(l, n, i, image[i], with_pads, y);
        product = product ? mul(l, product, along) : along;
    }
    return cast_like(l, maximum(l, product, scalar_int(l, DT_I64, 1)), y);
}

/* ---- AveragePool ---- */

/* The sum, for each element of x, of g over the windows that it lies in. */
static Value *spread(Backward *w, const Node *n, const Value *x, Value *g) {
    Node *node = backward_host(w, n, "SpreadWindows", host_spread_windows, &g, 1);
    if (node) node_set_dims(node, "image", (const Dim *const *)x->dims, x->rank);
    return host_result_like(w->l, node, x);
}

void back_average_pool(Backward *w, const Node *n) {
    const Value *x = n->inputs[0];
    Value *part = divide(w->l, dy(w, n, 0), divisors(w->l, n, (const Dim *const *)x->dims + 1, n->outputs[0]));
    give(w, n, 0, spread(w, n, x, part));
}

/* The sums of windows: AveragePool without its division. */
void back_spread_windows(Backward *w, const Node *n) {
    Value *g = dy(w, n, 0), *averages = like_input(w, n, "AveragePool", host_average_pool, &g, 1);
    int count;
    if (averages) give(w, n, 0, mul(w->l, averages, divisors(w->l, n, attr_dims(n, "image", &count) + 1, averages)));
}

/* ---- LpPool ---- */

/* y = (sum |x|^p)^(1/p): dx = |x|^(p-1) sign(x) times the sum over the windows of y^(1-p) dy; 0 where y is, at the kink. */
void back_lp_pool(Backward *w, const Node *n) {
    Lowering *l = w->l;
    Value *x = n->inputs[0], *y = n->outputs[0], *g = dy(w, n, 0), *zero = like(l, x, 0);
    double p = attr_float(n, "p", 2);
    if (p != 1) {
        Value *power = p == 2 ? divide(l, g, y) : mul(l, g, binary(l, PRIM_POW, y, like(l, y, 1 - p)));
        g = where(l, binary(l, PRIM_EQ, y, zero), zero, power);
    }
    Value *sum = spread(w, n, x, g), *size = unary(l, PRIM_ABS, x), *slope = p == 2 ? x : unary(l, PRIM_SIGN, x);
    if (p != 1 && p != 2) slope = mul(l, slope, binary(l, PRIM_POW, size, like(l, x, p - 1)));
    give(w, n, 0, mul(l, slope, sum));
}
