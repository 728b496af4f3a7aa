/* SPDX-License-Identifier: Apache-2.0 */
/* Algebra on anchors: a product of rows that are given leading axes behind it has these axes itself; scalar factors become a
 * GEMM's alpha; constant factors and summands per channel (batch normalisation) go into constant weights and a bias;
 * convolutions of one input whose results are added become one (join_sums.c).
 *
 * In and out: LEVEL_PRIM. */
#include "passes/simplify.h"

#include "graph/constants/unread.h"
#include "lowering/anchors.h"
#include "lowering/prune.h"
#include "passes/passes.h"

static bool is_anchor(const Node *node, const char *op) {
    return node && node->kind == NODE_ANCHOR && strcmp(node->op, op) == 0;
}

/* --- rows -> leading axes
 * ------------------------------------------------------------------------------------------------ */
enum { MOST_BETWEEN = 8 }; /* elementwise nodes between a product and the reshape of its rows */

/* From the product on to the reshape that gives its rows leading axes: the elementwise nodes between, each the only reader of
 * the one before. NULL: there is no such reshape. */
static Node *reshape_behind(const Node *gemm, Node **between, int *out_count) {
    const Value *y = gemm->outputs[0];
    *out_count = 0;
    for (Node *user; (user = value_only_user(y)) && user->kind == NODE_PRIM && user->fence == gemm->fence;) {
        const Value *next = user->outputs[0];
        if (user->prim == PRIM_RESHAPE) {
            bool keeps = next->rank > 2 && next->dims[next->rank - 1] == y->dims[1];
            return keeps ? user : NULL;
        }
        if (!prim_is_elementwise(user->prim) || !value_same_shape(next, y) || *out_count == MOST_BETWEEN) return NULL;
        between[(*out_count)++] = user;
        y = next;
    }
    return NULL;
}

/* x, which lies over rows, as it lies over their leading axes. */
static Value *over_leading_axes(Lowering *l, Value *x, const Value *whole, const Dim *rows) {
    const Dim *dims[MAX_RANK];
    bool repeated = x->rank < 2 || x->dims[x->rank - 2] != rows;
    if (x->rank < 2) return x;
    for (int i = 0; i < whole->rank - 1; i++) dims[i] = repeated ? dim_const(l->dims, 1) : whole->dims[i];
    dims[whole->rank - 1] = x->dims[x->rank - 1];
    return reshape(l, x, dims, whole->rank);
}

static void give_leading_axes(Value *y, const Value *whole) {
    y->stands_for = NULL;
    y->rank = whole->rank;
    y->dims = whole->dims;
}

/* reshape(f(a b)) becomes f(reshape(a) b), so that what follows the reshape can be the product's epilogue. */
static Status lift_reshape(Lowering *l, Node *gemm, Node **next) {
    Node *between[MOST_BETWEEN], *last;
    int count;
    bool plain = !gemm->subgraph_count && !node_attr(gemm, "perm_a") && !node_attr(gemm, "perm_out");
    if (!plain || gemm->input_count != 2 || gemm->outputs[0]->rank != 2 || !gemm->inputs[1]->constant) return NULL;
    if (!(last = reshape_behind(gemm, between, &count))) return NULL;
    const Dim *rows = gemm->outputs[0]->dims[0];
    Value *whole = last->outputs[0];
    node_set_input(gemm, 0, over_leading_axes(l, gemm->inputs[0], whole, rows));
    give_leading_axes(gemm->outputs[0], whole);
    const Value *from = gemm->outputs[0];
    for (int i = 0; i < count; i++) {
        l->node = between[i];
        for (int k = 0; k < between[i]->input_count; k++)
            if (between[i]->inputs[k] != from)
                node_set_input(between[i], k, over_leading_axes(l, between[i]->inputs[k], whole, rows));
        from = between[i]->outputs[0];
        give_leading_axes(between[i]->outputs[0], whole);
    }
    if (l->error) return l->error;
    if (last == *next) *next = last->next;
    value_replace(l->graph, whole, last->inputs[0]);
    graph_remove_node(l->graph, last);
    return NULL;
}

/* --- scalar factors -> alpha
 * ------------------------------------------------------------------------------------------------ */
/* v == x * factor for a constant scalar; x has v's shape. */
static bool scaled(const Value *v, Value **out_x, double *out_factor) {
    const Node *n = v->producer;
    if (!n || n->kind != NODE_PRIM || (n->prim != PRIM_MUL && n->prim != PRIM_DIV)) return false;
    for (int i = n->prim == PRIM_MUL ? 0 : 1; i < 2; i++) {
        double c;
        Value *x = n->inputs[1 - i];
        if (!value_scalar(n->inputs[i], &c) || !value_same_shape(x, v)) continue;
        *out_x = x;
        *out_factor = n->prim == PRIM_MUL ? c : 1 / c;
        return true;
    }
    return false;
}

static void scale(Node *gemm, double factor) { node_set_float(gemm, "alpha", attr_float(gemm, "alpha", 1) * factor); }

static void fold_factors(Graph *graph, Node *gemm) {
    Value *x;
    double factor;
    if (gemm->outputs[0]->dtype != DT_F32) return;
    for (int i = 0; i < 2; i++)
        while (!gemm->inputs[i]->constant && value_only_user(gemm->inputs[i]) && scaled(gemm->inputs[i], &x, &factor) &&
               gemm->inputs[i]->producer->fence == gemm->fence) {
            scale(gemm, factor);
            node_set_input(gemm, i, x);
        }
    for (Node *user; (user = value_only_user(gemm->outputs[0]));) {
        if (user->kind != NODE_PRIM || user->fence != gemm->fence || !scaled(user->outputs[0], &x, &factor) ||
            x != gemm->outputs[0])
            break;
        scale(gemm, factor);
        gemm->outputs[0]->stands_for = NULL;
        value_replace(graph, user->outputs[0], gemm->outputs[0]);
        graph_remove_node(graph, user);
    }
}

/* --- per-channel affine -> weights and bias
 * ---------------------------------------------------------------------------------- */
bool is_channel_vector(const Value *v, const Value *like) {
    int64_t channels, count = v->constant ? tensor_count(v->constant) : 0;
    if (!v->constant || v->rank > like->rank || !dim_is_const(like->dims[like->rank - 1], &channels)) return false;
    return count == 1 || (count == channels && dim_equals(v->dims[v->rank - 1], channels));
}

Value *channel_vector(Lowering *l, Value *v, const Value *like) {
    if (!is_channel_vector(v, like)) return NULL;
    const Dim *flat = dim_const(l->dims, tensor_count(v->constant)), *whole = like->dims[like->rank - 1];
    return expand(l, reshape(l, v, &flat, 1), &whole, 1);
}

/* Which axis of the weight runs over output channels; -1 when the anchor cannot take a factor. */
static int output_axis(const Node *anchor) {
    if (is_anchor(anchor, "conv")) return 0;
    if (is_anchor(anchor, "conv_transpose")) return attr_int(anchor, "group", 1) == 1 ? 1 : -1;
    bool plain = is_anchor(anchor, "matmul") && !node_attr(anchor, "perm_b") && !node_attr(anchor, "perm_out");
    return plain ? anchor->inputs[1]->rank - 1 : -1;
}

static bool takes_affine(const Node *anchor) {
    if (!anchor || anchor->kind != NODE_ANCHOR || output_axis(anchor) < 0) return false;
    const Value *w = anchor->inputs[1];
    return w->constant && w->rank >= 2 && (w->dtype == DT_F32 || (w->dtype == DT_BF16 && w->wider));
}

/* A weight that others read too would be held twice. */
static Value *scaled_weight(Lowering *l, const Node *anchor, Value *factors) {
    Value *w = anchor->inputs[1];
    const Dim *shape[MAX_RANK];
    for (int d = 0; d < w->rank; d++) shape[d] = d == output_axis(anchor) ? factors->dims[0] : dim_const(l->dims, 1);
    return mul(l, w, reshape(l, factors, shape, w->rank));
}

/* One that the policy wants in bf16 is rounded once, behind the factors, and where it is, unless others read it. */
static Value *scaled_bf16_weight(Lowering *l, const Node *anchor, const Value *factors) {
    Value *w = anchor->inputs[1];
    const char *from = w->wider->data; /* of any alignment */
    const float *factor = factors->constant->data;
    Tensor *t = w->uses.count == 1 ? w->constant : tensor_new_unset(l->arena, DT_BF16, w->rank, w->constant->dims);
    int64_t channels = tensor_count(factors->constant), inner = 1, count = tensor_count(t);
    uint16_t *to = t->data;
    for (int d = output_axis(anchor) + 1; d < w->rank; d++) inner *= t->dims[d];
    for (int64_t at = 0; at < count; at++) {
        float wide;
        memcpy(&wide, from + at * (int64_t)sizeof wide, sizeof wide);
        to[at] = f32_to_bf16(wide * factor[at / inner % channels]);
    }
    graph_forget(l->graph, w->wider);
    if (t != w->constant) {
        graph_note_made(l->graph, t);
        return constant(l, t);
    }
    w->stands_for = NULL;
    w->wider = NULL;
    return w;
}

/* Where affine steps begin: the result, or what it is widened to where the policy wants it narrow; NULL: nowhere. */
static Value *affine_beginning(const Node *anchor) {
    Value *y = anchor->outputs[0];
    if (y->dtype == DT_F32) return y;
    const Node *cast = value_only_user(y);
    return cast && cast->kind == NODE_PRIM && cast->prim == PRIM_CAST && cast->fence == anchor->fence &&
                   cast->outputs[0]->dtype == DT_F32
               ? cast->outputs[0]
               : NULL;
}

/* Folds one user of y, the anchor's result; what is to be added to that so far is in *bias (NULL: nothing). False when it
 * is no affine step. */
static bool fold_affine(Lowering *l, Node *anchor, Value *y, Node *user, Value **bias) {
    if (user->kind != NODE_PRIM || user->outputs[0]->rank != y->rank || !value_same_shape(user->outputs[0], y))
        return false;
    bool product = user->prim == PRIM_MUL || user->prim == PRIM_DIV,
         sum = user->prim == PRIM_ADD || user->prim == PRIM_SUB;
    if ((!product && !sum) || user->fence != anchor->fence) return false;
    int other = user->inputs[0] == y ? 1 : 0;
    if (other == 0 && (user->prim == PRIM_DIV || user->prim == PRIM_SUB)) return false;
    Value *vector = channel_vector(l, user->inputs[other], y);
    if (!vector) return false;
    if (product) {
        if (anchor->inputs[1]->uses.count > 1 && is_anchor(anchor, "matmul")) return false;
        if (user->prim == PRIM_DIV) vector = divide(l, like(l, vector, 1), vector);
        if (l->error || !vector->constant) return false;
        Value *scaled_bias = *bias ? mul(l, *bias, vector) : NULL;
        const Value *w = anchor->inputs[1];
        if (w->dtype == DT_BF16 && !w->wider) return false;
        Value *weight = w->wider ? scaled_bf16_weight(l, anchor, vector) : scaled_weight(l, anchor, vector);
        if (l->error || !weight->constant) return false;
        node_set_input(anchor, 1, weight);
        *bias = scaled_bias;
    } else {
        if (user->prim == PRIM_SUB) vector = unary(l, PRIM_NEG, vector);
        if (*bias) vector = add(l, *bias, vector);
        if (l->error) return false;
        *bias = vector;
    }
    return true;
}

static bool is_affine(const Node *node) {
    return node && node->kind == NODE_PRIM &&
           (node->prim == PRIM_ADD || node->prim == PRIM_SUB || node->prim == PRIM_MUL || node->prim == PRIM_DIV);
}

static bool is_sum(const Node *node) {
    return node->kind == NODE_PRIM && (node->prim == PRIM_ADD || node->prim == PRIM_SUB);
}

/* All affine steps behind the anchor become one addition at most. One that stands alone is that already. */
static Status fold_affines(Lowering *l, Node *anchor, Node **next) {
    Value *y = affine_beginning(anchor), *bias = NULL;
    Node *first = y ? value_only_user(y) : NULL;
    if (!first) return NULL;
    if (first->kind == NODE_PRIM && first->prim == PRIM_ADD && !is_affine(value_only_user(first->outputs[0])))
        return NULL;
    l->node = anchor;
    for (Node *user; (user = value_only_user(y));) {
        bool folded = fold_affine(l, anchor, y, user, &bias);
        if (l->error) return l->error;
        if (!folded) break;
        if (user == *next) *next = user->next;
        node_add_origin(anchor, user->origin);
        anchor->outputs[0]->stands_for = y->stands_for = NULL;
        value_replace(l->graph, user->outputs[0], y);
        graph_remove_node(l->graph, user);
    }
    if (!bias) return NULL;
    Node *sum = graph_add_prim(l->graph, y->producer->next, PRIM_ADD, (Value *[]){y, bias}, 2);
    sum->origin = anchor->origin;
    node_follow_rules(sum, anchor);
    Value *result = node_add_output(sum, NULL, y->dtype, y->rank, y->dims);
    value_replace(l->graph, y, result);
    node_set_input(sum, 0, y);
    return NULL;
}

Status simplify(Graph *graph, const Policy *policy) {
    if (!policy->fusion.enable) return NULL; /* what is folded is a value less to look at */
    Arena *scratch = arena_create_inside(graph->arena);
    Status status = NULL;
    FOR_EACH_NODE_SAFE(node, graph) {
        Lowering l = {.graph = graph,
                      .arena = graph->arena,
                      .scratch = scratch,
                      .dims = graph->dims,
                      .policy = policy,
                      .node = node};
        Node *anchor = node;
        if (is_anchor(node, "matmul")) {
            status = lift_reshape(&l, node, &next_node);
            fold_factors(graph, node);
        } else if (is_sum(node)) {
            status = join_sum(&l, node, &anchor);
        }
        if (!status && takes_affine(anchor)) status = fold_affines(&l, anchor, &next_node);
        if (status) break;
        arena_reset(scratch);
        graph_give_back_many(graph);
    }
    arena_destroy(scratch);
    TRY(status);
    graph_prune(graph);
    return NULL;
}
