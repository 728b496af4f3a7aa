/* SPDX-License-Identifier: Apache-2.0 */
/* Gradients of matrix products and convolutions: more of the same (Goodfellow, Bengio and Courville, "Deep Learning", 2016, 6.5.6
 * and 9.5); and of attention, an anchor of its own. */
#include "autodiff/rules.h"

#include "lowering/anchor/weight_blocks.h"
#include "lowering/anchors.h"
#include "lowering/sizes.h"

/* An anchor of the rule of n: with its attributes. */
static Node *anchor_node(Lowering *l, const Node *n, const char *op, Value *const *inputs, int count) {
    Node *node = graph_add_node(l->graph, builder_place(l), NODE_ANCHOR, op, inputs, count);
    for (int i = 0; i < n->attrs.count; i++) node_set_attr(node, n->attrs.items[i]);
    node_add_origin(node, n->origin);
    node_follow_rules(node, n);
    node->backward = true;
    return node;
}

/* --- products ------------------------------------------------------------------------------------------------------------ */

static Value *by_perm(Lowering *l, Value *x, const Node *n, const char *name, bool inverse) {
    int count, order[MAX_RANK];
    const int64_t *perm = attr_ints(n, name, &count);
    if (!perm || !x) return x;
    for (int i = 0; i < count; i++) order[inverse ? perm[i] : i] = (int)(inverse ? i : perm[i]);
    return permute(l, x, order);
}

/* All axes but the last become one. */
static Value *rows_of(Lowering *l, Value *x) { return x ? flatten_to(l, x, 0, x->rank - 1) : NULL; }

static bool is_one_matrix(const Value *b) {
    for (int i = 0; i < b->rank - 2; i++)
        if (!dim_equals(b->dims[i], 1)) return false;
    return true;
}

/* g summed over the matrices that one of x's was multiplied with. */
static Value *sum_batches(Lowering *l, Value *g, const Value *x) {
    return sum_to(l, sum_if_repeated(l, g, x, x->rank - 2), x);
}

/* r = alpha a b: da = alpha dr b^T, db = alpha a^T dr. Where b is one matrix for all of a's, their rows are one long column of rows. */
static void back_matmul(Backward *w, const Node *n) {
    Lowering *l = w->l;
    Value *a = by_perm(l, n->inputs[0], n, "perm_a", false), *b = by_perm(l, n->inputs[1], n, "perm_b", false);
    Value *dr = by_perm(l, dy(w, n, 0), n, "perm_out", true);
    double alpha = attr_float(n, "alpha", 1);
    if (!a || !b || !dr) return;
    if (alpha != 1) dr = mul(l, dr, like(l, dr, alpha));
    if (wants(w, n, 0)) {
        Value *da = sum_batches(l, matmul(l, dr, swap_last(l, b)), a);
        give(w, n, 0, by_perm(l, da, n, "perm_a", true));
    }
    if (wants(w, n, 1)) {
        Value *db =
            is_one_matrix(b) ? matmul(l, swap_last(l, rows_of(l, a)), rows_of(l, dr)) : matmul(l, swap_last(l, a), dr);
        db = is_one_matrix(b) && db ? reshape(l, db, b->dims, b->rank) : sum_batches(l, db, b);
        give(w, n, 1, by_perm(l, db, n, "perm_b", true));
    }
}

/* Of the matrix that b stands for, which is constant. */
static void back_matmul_bits(Backward *w, const Node *n) {
    Lowering *l = w->l;
    Value *dr = by_perm(l, dy(w, n, 0), n, "perm_out", true);
    WeightBlocks blocks;
    if (!dr || !wants(w, n, 0)) return;
    Status status = weight_blocks_of(n, (const Tensor *[]){NULL, n->inputs[1]->constant}, &blocks);
    if (status) {
        l->error = status;
        return;
    }
    Tensor *columns = tensor_new(l->arena, DT_F32, 2, (const int64_t[]){blocks.n, blocks.k});
    weight_blocks_unpack(&blocks, columns->data);
    give(w, n, 0, by_perm(l, matmul(l, dr, constant(l, columns)), n, "perm_a", true));
}

/* --- convolutions ---------------------------------------------------------------------------------------------------------- */

static ConvAttrs conv_attrs_of(const Node *n) {
    int count;
    ConvAttrs attrs = {.spatial = n->inputs[0]->rank - 2, .group = attr_int(n, "group", 1)};
    attrs.strides = attr_ints(n, "strides", &count);
    attrs.dilations = attr_ints(n, "dilations", &count);
    attrs.pads = attr_dims(n, "pads", &count);
    return attrs;
}

/* What tap `tap` (row-major over the kernel) of the convolution reads: [M, C], M positions of the result, the batch's in a row. */
static Value *tap_rows(Lowering *l, Value *padded, const Value *g, const ConvAttrs *a, const int64_t *kernel,
                       int64_t tap) {
    if (!present(l, &padded, 1)) return NULL;
    const Dim *start[MAX_RANK], *size[MAX_RANK];
    int64_t step[MAX_RANK];
    for (int i = a->spatial - 1; i >= 0; tap /= kernel[i--]) {
        start[1 + i] = size_const(l, tap % kernel[i] * a->dilations[i]);
        size[1 + i] = g->dims[1 + i];
        step[1 + i] = a->strides[i];
    }
    int last = a->spatial + 1;
    start[0] = start[last] = size_const(l, 0);
    size[0] = padded->dims[0];
    size[last] = padded->dims[last];
    step[0] = step[last] = 1;
    return rows_of(l, slice(l, padded, start, size, step));
}

/* One matrix a group, [group, M, C / group], of [M, C]. */
static Value *by_group(Lowering *l, Value *rows, int64_t group) {
    if (!present(l, &rows, 1)) return NULL;
    const Dim *count = size_const(l, group);
    Value *split = reshape(l, rows, (const Dim *[]){rows->dims[0], count, dim_div(l->dims, rows->dims[1], count)}, 3);
    return permute(l, split, (int[]){1, 0, 2});
}

enum { KERNEL_AXES = 3 }; /* that devices run */

/* The same sums are a convolution of x by g: x's channels are its batch, batch and positions of g the kernel, whose dilations are the
 * strides, and the kernel's elements are the positions of its result. Of x as much is padded or cut off as makes them so many. */
static Value *conv_by_result(Lowering *l, Value *x, Value *g, const Value *w, const ConvAttrs *a) {
    int rank = a->spatial + 2, first[MAX_RANK], back[MAX_RANK], batch = 1;
    int64_t strides[MAX_RANK] = {1}, dilations[MAX_RANK] = {1};
    const Dim *none[2 * MAX_RANK], *before[MAX_RANK], *after[MAX_RANK], *one = size_const(l, 1);
    for (int i = 0; i < rank; i++) first[i] = back[i] = i ? i - 1 : rank - 1; /* the channels */
    for (int i = 0; i < 2 * (a->spatial + 1); i++) none[i] = size_const(l, 0);
    before[0] = before[rank - 1] = after[0] = after[rank - 1] = none[0];
    for (int i = 0; i < a->spatial; i++) {
        strides[1 + i] = a->dilations[i], dilations[1 + i] = a->strides[i];
        const Dim *positions = size_mul(l, size_sub(l, g->dims[1 + i], one), size_const(l, a->strides[i]));
        const Dim *taps = size_mul(l, size_sub(l, w->dims[2 + i], one), size_const(l, a->dilations[i]));
        before[1 + i] = a->pads[i];
        after[1 + i] =
            size_sub(l, size_add(l, size_add(l, positions, taps), one), size_add(l, a->pads[i], x->dims[1 + i]));
    }
    Value *padded = pad(l, x, before, after, like(l, x, 0));
    Value *images = unsqueeze(l, permute(l, padded, first), &rank, 1); /* [C, N, positions..., 1] */
    Value *kernels = unsqueeze(l, permute(l, g, first), &batch, 1);    /* [O, 1, N, positions...] */
    ConvAttrs attrs = {a->spatial + 1, strides, dilations, none, 1, 0};
    Value *y = conv(l, images, kernels, NULL, &attrs); /* [C, 1, kernel..., O] */
    y = y ? permute(l, squeeze(l, y, &batch, 1), back) : NULL;
    return y ? reshape(l, y, w->dims, w->rank) : NULL;
}

/* dw[o, c, tap] = sum over batch and positions p of g[p, o] x[p * stride + tap * dilation - pad, c]: of groups a product a tap. Where
 * a group is one channel in and one out, the product is a sum of elementwise products. */
static Value *conv_weight(Lowering *l, Value *x, Value *g, const Value *w, const ConvAttrs *a) {
    int64_t kernel[MAX_RANK], taps = 1;
    const Dim *before[MAX_RANK], *after[MAX_RANK];
    int rank = a->spatial + 2;
    for (int i = 0; i < a->spatial; i++) {
        if (!dim_is_const(w->dims[2 + i], &kernel[i]))
            return unsupported(l, "the gradient of a kernel whose size is not known"), NULL;
        taps *= kernel[i];
    }
    for (int i = 0; i < rank; i++) {
        bool inside = i > 0 && i < rank - 1;
        before[i] = inside ? a->pads[i - 1] : size_const(l, 0);
        after[i] = inside ? a->pads[a->spatial + i - 1] : size_const(l, 0);
    }
    if (a->group == 1 && taps > 1 && a->spatial < KERNEL_AXES) return conv_by_result(l, x, g, w, a);
    Value *padded = pad(l, x, before, after, like(l, x, 0)), *rows = rows_of(l, g);
    bool depthwise = dim_equals(w->dims[1], 1) && dim_equals(w->dims[0], a->group);
    Value *columns = depthwise ? rows : swap_last(l, a->group == 1 ? rows : by_group(l, rows, a->group));
    Value **parts = ARENA_ARRAY(l->arena, Value *, taps);
    const Dim *part_dims[] = {w->dims[0], w->dims[1], size_const(l, 1)};
    for (int64_t t = 0; t < taps && !l->error; t++) {
        Value *read = tap_rows(l, padded, g, a, kernel, t), *product;
        if (depthwise)
            product = reduce(l, PRIM_REDUCE_SUM, mul(l, columns, read), (int[]){0}, 1, true);
        else
            product = matmul(l, columns, a->group == 1 ? read : by_group(l, read, a->group));
        parts[t] = product ? reshape(l, product, part_dims, 3) : NULL;
    }
    Value *all = l->error ? NULL : concat(l, parts, (int)taps, 2);
    return all ? reshape(l, all, w->dims, w->rank) : NULL;
}

/* dx is the transposed convolution of dy. */
static void back_conv(Backward *w, const Node *n) {
    Lowering *l = w->l;
    ConvAttrs attrs = conv_attrs_of(n);
    Value *x = n->inputs[0], *weight = n->inputs[1], *g = dy(w, n, 0);
    if (wants(w, n, 0)) give(w, n, 0, conv_transpose(l, g, weight, NULL, &attrs, x->dims + 1));
    if (wants(w, n, 1)) give(w, n, 1, conv_weight(l, x, g, weight, &attrs));
}

/* It is the gradient of a convolution, whose own gradient is that convolution. */
static void back_conv_transpose(Backward *w, const Node *n) {
    Lowering *l = w->l;
    ConvAttrs attrs = conv_attrs_of(n);
    Value *x = n->inputs[0], *weight = n->inputs[1], *g = dy(w, n, 0);
    if (wants(w, n, 0)) {
        Value *dx = conv(l, g, weight, NULL, &attrs);
        give(w, n, 0, dx ? reshape(l, dx, x->dims, x->rank) : NULL);
    }
    if (wants(w, n, 1)) give(w, n, 1, conv_weight(l, g, x, weight, &attrs));
}

/* --- attention ------------------------------------------------------------------------------------------------------------- */

/* Where axis `axis` of r stands in the result. */
static int place_in_result(const Node *n, int axis) {
    int count;
    const int64_t *perm = attr_ints(n, "perm_out", &count);
    for (int i = 0; perm && i < count; i++)
        if (perm[i] == axis) return i;
    return axis;
}

/* A number for each row of r, [lead..., s_q], of a tensor of the result's axes in which the elements' axis has size 1. */
static Value *a_row(Lowering *l, const Node *n, Value *x) {
    const Value *r = n->outputs[0];
    int order[MAX_RANK], elements = place_in_result(n, r->rank - 1);
    Value *rows = squeeze(l, x, &elements, 1);
    for (int i = 0; i < r->rank - 1; i++) {
        int at = place_in_result(n, i);
        order[i] = at - (at > elements);
    }
    return permute(l, rows, order);
}

/* The logarithms of the forward sums, which the node gives from now on. */
static Value *logarithms_of(const Node *n) {
    const Dim *dims[MAX_RANK];
    Value *r = n->outputs[0];
    for (int i = 0; i < r->rank - 1; i++) dims[i] = r->dims[place_in_result(n, i)];
    if (n->output_count > 1) return n->outputs[1];
    return node_add_output(r->producer, NULL, anchor_work_type(r->dtype), r->rank - 1, dims);
}

/* p = softmax(x), r = p v: with g = dr, dp = g v^T and dx = p (dp - sum over keys of p dp), a sum that is that over elements of g r
 * (Dao et al., "FlashAttention", 2022, appendix B.2). What the steps read has no gradient here: the pass that makes the
 * anchor before differentiation sees to that. */
static void back_attention(Backward *w, const Node *n) {
    Lowering *l = w->l;
    Value *g = dy(w, n, 0), *r = n->outputs[0], *inputs[ATTENTION_BACKWARD_INPUTS + ATTENTION_STEPS];
    int elements = place_in_result(n, r->rank - 1), count = ATTENTION_BACKWARD_INPUTS;
    DType type = anchor_work_type(r->dtype);
    for (int i = ATTENTION_INPUTS; i < n->input_count; i++)
        if (wants(w, n, i)) {
            unsupported(l, "a mask of attention has no gradient here");
            return;
        }
    Value *products = mul(l, cast(l, g, type), cast(l, r, type));
    inputs[3] = g;
    inputs[4] = logarithms_of(n);
    inputs[5] = a_row(l, n, reduce(l, PRIM_REDUCE_SUM, products, &elements, 1, true));
    if (!present(l, &g, 1) || !present(l, &inputs[5], 1)) return;
    for (int i = 0; i < n->input_count; i++) inputs[i < ATTENTION_INPUTS ? i : count++] = n->inputs[i];
    Node *node = anchor_node(l, n, ATTENTION_BACKWARD, inputs, count);
    for (int i = 0; i < ATTENTION_INPUTS; i++) {
        const Value *x = n->inputs[i];
        give(w, n, i, node_add_output(node, NULL, x->dtype, x->rank, (const Dim *const *)x->dims));
    }
}

BackwardFn rule_of_anchor(const char *op) {
    static const struct {
        const char *op;
        BackwardFn rule;
    } rules[] = {{"matmul", back_matmul},
                 {MATMUL_BITS, back_matmul_bits},
                 {"conv", back_conv},
                 {"conv_transpose", back_conv_transpose},
                 {ATTENTION, back_attention}};
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++)
        if (strcmp(rules[i].op, op) == 0) return rules[i].rule;
    return NULL;
}
