/* SPDX-License-Identifier: Apache-2.0 */
/* Products of one input by constant weights become one, whose results are parts of its own: queries, keys and values of a
 * layer, a gate and what it opens. On a GPU a product of few rows costs a launch and its latency whatever its columns, and
 * attention and kernels read parts where they lie. Where something else reads a result, the part would be copied: then it stays.
 *
 * In and out: LEVEL_PRIM. */
#include "graph/broadcast.h"
#include "lowering/anchors.h"
#include "lowering/build.h"
#include "lowering/prune.h"
#include "passes/passes.h"

enum {
    MOST_JOINED = 8,
    COLUMN_UNIT = 8,       /* so that parts begin at whole 16 bytes */
    MOST_BYTES = 32 << 20, /* of weights that are copied: reading more takes longer than the launches saved */
};

/* One of the products: its result, behind its bias where it has one. */
typedef struct Member {
    Node *gemm;
    Value *bias, *end; /* bias: NULL: none */
    int64_t columns;
} Member;

static bool is_product(const Node *n) {
    if (n->kind != NODE_ANCHOR || strcmp(n->op, "matmul") != 0 || n->input_count != 2 || n->subgraph_count)
        return false;
    const Value *w = n->inputs[1], *y = n->outputs[0];
    return w->constant && w->rank == 2 && w->uses.count == 1 && !n->inputs[0]->constant && dtype_is_float(y->dtype) &&
           y->rank == n->inputs[0]->rank && !node_attr(n, "perm_a") && !node_attr(n, "perm_out");
}

/* A constant of one number a column. */
static bool is_bias(const Value *v, const Value *y) {
    return v->constant && v->dtype == y->dtype && v->rank >= 1 && v->rank <= y->rank && broadcast_is_row(v) &&
           v->dims[v->rank - 1] == y->dims[y->rank - 1];
}

static bool member_of(Node *gemm, Member *m) {
    if (!is_product(gemm)) return false;
    Value *y = gemm->outputs[0];
    *m = (Member){.gemm = gemm, .end = y};
    if (!dim_is_const(y->dims[y->rank - 1], &m->columns) || m->columns % COLUMN_UNIT) return false;
    Node *user = value_only_user(y);
    if (!user || user->kind != NODE_PRIM || user->prim != PRIM_ADD || user->fence != gemm->fence) return true;
    Value *other = user->inputs[user->inputs[0] == y];
    if (!is_bias(other, y) || !value_same_shape(user->outputs[0], y)) return true;
    m->bias = other;
    m->end = user->outputs[0];
    return true;
}

/* Whether all that reads the value reads a part of a larger one where it lies: kernels, and attention, which is still two products
 * of which no factor is constant. */
static bool is_read_in_place(const Value *v, int depth) {
    if (value_is_output(v) || !v->uses.count || !depth) return false;
    for (int i = 0; i < v->uses.count; i++) {
        const Node *n = v->uses.items[i].node;
        if (n->kind == NODE_ANCHOR && strcmp(n->op, "matmul") == 0 && !n->inputs[0]->constant &&
            !n->inputs[1]->constant)
            continue;
        if (n->kind != NODE_PRIM) return false;
        bool moves =
            n->prim == PRIM_RESHAPE || n->prim == PRIM_PERMUTE || n->prim == PRIM_SLICE || n->prim == PRIM_EXPAND;
        if (moves ? !is_read_in_place(n->outputs[0], depth - 1) : !prim_is_elementwise(n->prim)) return false;
    }
    return true;
}

static bool goes_with(const Member *first, const Member *m) {
    const Node *a = first->gemm, *b = m->gemm;
    return a->inputs[0] == b->inputs[0] && a->fence == b->fence && a->inputs[1]->dtype == b->inputs[1]->dtype &&
           !first->bias == !m->bias && node_same_attrs(a, b);
}

/* The weights beside each other: where b' is permuted, its columns are the first axis. */
static Value *joined_weight(Lowering *l, const Member *members, int count) {
    Value *weights[MOST_JOINED];
    int perm_count;
    const int64_t *perm = attr_ints(members[0].gemm, "perm_b", &perm_count);
    for (int i = 0; i < count; i++) weights[i] = members[i].gemm->inputs[1];
    return concat(l, weights, count, perm && perm[1] == 0 ? 0 : 1);
}

static Value *joined_bias(Lowering *l, const Member *members, int count) {
    Value *biases[MOST_JOINED];
    for (int i = 0; i < count; i++) {
        const Dim *columns = dim_const(l->dims, members[i].columns);
        biases[i] = reshape(l, members[i].bias, &columns, 1);
    }
    return concat(l, biases, count, 0);
}

static Status join(Graph *graph, const Policy *policy, Member *members, int count) {
    Node *first = members[0].gemm;
    Value *y = first->outputs[0];
    const Dim *dims[MAX_RANK];
    int64_t columns = 0, at = 0;
    Lowering l = {.graph = graph, .arena = graph->arena, .dims = graph->dims, .policy = policy, .node = first};
    for (int i = 0; i < count; i++) columns += members[i].columns;
    for (int i = 0; i < y->rank; i++) dims[i] = i == y->rank - 1 ? dim_const(graph->dims, columns) : y->dims[i];
    Value *inputs[] = {first->inputs[0], joined_weight(&l, members, count)};
    if (l.error) return l.error;
    if (!inputs[1]->constant) return NULL;
    Node *gemm = graph_add_node(graph, first, NODE_ANCHOR, "matmul", inputs, 2);
    for (int i = 0; i < first->attrs.count; i++) node_set_attr(gemm, first->attrs.items[i]);
    node_follow_rules(gemm, first);
    for (int i = 0; i < count; i++) node_add_origin(gemm, members[i].gemm->origin);
    Value *whole = node_add_output(gemm, NULL, y->dtype, y->rank, dims);
    if (members[0].bias) whole = add(&l, whole, joined_bias(&l, members, count));
    for (int i = 0; i < count && !l.error; i++) {
        const Dim *size = dim_const(graph->dims, members[i].columns);
        Value *part = slice_axis(&l, whole, y->rank - 1, dim_const(graph->dims, at), size);
        at += members[i].columns;
        if (part) value_replace(graph, members[i].end, part);
    }
    return l.error;
}

Status join_products(Graph *graph, const Policy *policy) {
    if (!policy->target.anchors.joined_products || !policy->fusion.enable) return NULL;
    FOR_EACH_NODE(node, graph) node->tag = 0;
    for (Node *node = graph->first; node; node = node->next) {
        Member members[MOST_JOINED];
        if (node->tag || !member_of(node, &members[0]) || !is_read_in_place(members[0].end, 6)) continue;
        int count = 1;
        size_t bytes = tensor_bytes(node->inputs[1]->constant);
        const Value *a = node->inputs[0];
        for (int i = 0; i < a->uses.count && count < MOST_JOINED; i++) {
            Node *other = a->uses.items[i].node;
            Member *m = &members[count];
            if (other == node || other->tag || !member_of(other, m) || !goes_with(&members[0], m) ||
                !is_read_in_place(m->end, 6) || bytes + tensor_bytes(other->inputs[1]->constant) > MOST_BYTES)
                continue;
            bytes += tensor_bytes(other->inputs[1]->constant);
            count++;
        }
        for (int i = 0; i < count; i++) members[i].gemm->tag = 1;
        if (count > 1) TRY(join(graph, policy, members, count));
    }
    graph_prune(graph);
    return NULL;
}
