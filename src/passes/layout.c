/* SPDX-License-Identifier: Apache-2.0 */
/* Moves permutes towards the outputs, through everything that does not care about the order of axes, so that the turns
 * around channels-last convolutions and pools meet and cancel; and lets GEMMs read and write through the permutes next
 * to them, so that attention moves no data.
 *
 * In and out: LEVEL_PRIM. One forward sweep: when a node is visited, its inputs have already been moved as far as they
 * go. */
#include "graph/constants/unread.h"
#include "lowering/anchors.h"
#include "lowering/build.h"
#include "lowering/prune.h"
#include "passes/passes.h"

typedef struct Permuted {
    Value *source; /* value == permute(source, perm) */
    int64_t perm[MAX_RANK];
    int rank;
} Permuted;

static bool is_unit(const Value *v, int axis) { return dim_equals(v->dims[axis], 1); }

static bool permuted(const Value *v, Permuted *out) {
    if (!v || !v->producer || v->producer->kind != NODE_PRIM || v->producer->prim != PRIM_PERMUTE) return false;
    out->source = v->producer->inputs[0];
    const int64_t *perm = attr_ints(v->producer, "perm", &out->rank);
    memcpy(out->perm, perm, sizeof *perm * (size_t)out->rank);
    return true;
}

/* A reshape that keeps the rank and the order of all axes but those of size 1 is a permute too. */
static bool permuted_units(const Value *v, Permuted *out) {
    if (!v || !v->producer || v->producer->kind != NODE_PRIM || v->producer->prim != PRIM_RESHAPE) return false;
    const Value *x = v->producer->inputs[0];
    if (x->rank != v->rank) return false;
    int real = 0, unit = 0;
    for (int i = 0; i < v->rank; i++) {
        int *next = is_unit(v, i) ? &unit : &real;
        while (*next < x->rank && is_unit(x, *next) != is_unit(v, i)) ++*next;
        if (*next == x->rank || x->dims[*next] != v->dims[i]) return false;
        out->perm[i] = (*next)++;
    }
    out->source = v->producer->inputs[0];
    out->rank = v->rank;
    return true;
}

static bool same_perm(const Permuted *a, const Permuted *b) {
    return a->rank == b->rank && memcmp(a->perm, b->perm, sizeof *a->perm * (size_t)a->rank) == 0;
}

static void invert(const Permuted *p, int *inverse) {
    for (int i = 0; i < p->rank; i++) inverse[p->perm[i]] = i;
}

static Value *permute_back(Lowering *l, Value *x, const Permuted *p) {
    int perm[MAX_RANK];
    for (int i = 0; i < p->rank; i++) perm[i] = (int)p->perm[i];
    return permute(l, x, perm);
}

/* Whether permuting x only moves axes of size 1, which is a reshape. */
static bool moves_only_units(const Value *x, const int *perm) {
    int last = -1;
    for (int i = 0; i < x->rank; i++) {
        if (is_unit(x, perm[i])) continue;
        if (perm[i] < last) return false;
        last = perm[i];
    }
    return true;
}

static Value *permute_units(Lowering *l, Value *x, const int *perm) {
    const Dim *dims[MAX_RANK];
    for (int i = 0; i < x->rank; i++) dims[i] = x->dims[perm[i]];
    return reshape(l, x, dims, x->rank);
}

static bool is_read_by_anchor(const Value *v) {
    for (int i = 0; i < v->uses.count; i++)
        if (v->uses.items[i].node->kind == NODE_ANCHOR) return true;
    return false;
}

/* permute(x, perm) where it is made before the node anyway, since an anchor reads it. The nodes' tags number them in their
 * order; what the sweep has made has none and stands before the node that it looks at. */
static Value *permuted_before(const Lowering *l, const Value *x, const int *perm) {
    for (int i = 0; i < x->uses.count; i++) {
        const Node *user = x->uses.items[i].node;
        Permuted own;
        if (user->kind != NODE_PRIM || user->prim != PRIM_PERMUTE || user->tag >= l->node->tag) continue;
        bool same = permuted(user->outputs[0], &own);
        for (int a = 0; same && a < x->rank; a++) same = own.perm[a] == perm[a];
        if (same && is_read_by_anchor(user->outputs[0])) return user->outputs[0];
    }
    return NULL;
}

/* x as it stands before the permute p; NULL when that would move data. */
static Value *before_permute(Lowering *l, Value *x, const Permuted *p) {
    Permuted own;
    int inverse[MAX_RANK];
    if (x->rank == 0) return x;
    if (x->rank > p->rank) return NULL;
    if (permuted(x, &own) && same_perm(&own, p)) return own.source;
    if (x->rank < p->rank) {
        int axes[MAX_RANK], count = p->rank - x->rank;
        for (int i = 0; i < count; i++) axes[i] = i;
        x = unsqueeze(l, x, axes, count);
        if (!x) return NULL;
    }
    invert(p, inverse);
    if (moves_only_units(x, inverse)) return permute_units(l, x, inverse);
    return x->constant ? permute(l, x, inverse) : permuted_before(l, x, inverse);
}

/* --- the kinds of nodes that a permute passes
 * --------------------------------------------------------------------------- */
static Value *rebuild(Lowering *l, const Node *node, Value *const *in) {
    switch (prim_info(node->prim)->klass) {
    case PRIM_CLASS_UNARY:
    case PRIM_CLASS_TEST: return unary(l, node->prim, in[0]);
    case PRIM_CLASS_BINARY:
    case PRIM_CLASS_COMPARE: return binary(l, node->prim, in[0], in[1]);
    case PRIM_CLASS_SELECT: return where(l, in[0], in[1], in[2]);
    default: break;
    }
    return node->prim == PRIM_BITCAST ? bitcast(l, in[0], attr_dtype(node, "to", DT_NONE)) : cast_as(l, in[0], node);
}

static Value *pass_elementwise(Lowering *l, const Node *node) {
    Permuted p;
    int first = 0;
    while (first < node->input_count && !permuted(node->inputs[first], &p)) first++;
    for (int i = 0; first == node->input_count && i < node->input_count; i++)
        if (permuted_units(node->inputs[i], &p)) first = i;
    if (first == node->input_count || p.rank != node->outputs[0]->rank) return NULL;
    Value *in[3];
    for (int i = 0; i < node->input_count; i++)
        if (!(in[i] = before_permute(l, node->inputs[i], &p))) return NULL;
    return permute_back(l, rebuild(l, node, in), &p);
}

/* How many of the rising axes stand before an axis that stays, while others stand behind it: these are reduced by themselves, whole
 * rows at a time, and the others' short pieces of rows afterwards. */
static int reduced_apart(const Value *x, const int *axes, int count) {
    for (int i = count - 1; i > 0; i--)
        for (int a = axes[i - 1] + 1; a < axes[i]; a++)
            if (!is_unit(x, a)) return i;
    return 0;
}

static Value *pass_reduce(Lowering *l, const Node *node) {
    Permuted p;
    if (!permuted(node->inputs[0], &p)) return NULL;
    int count, axes[MAX_RANK], sorted = 0;
    const int64_t *from = attr_ints(node, "axes", &count);
    if (node->prim == PRIM_ARGMAX || node->prim == PRIM_ARGMIN)
        return NULL; /* the first along one axis stays the first */
    for (int a = 0; a < p.rank; a++)
        for (int i = 0; i < count; i++)
            if (p.perm[from[i]] == a) axes[sorted++] = a;
    const int outer = reduced_apart(p.source, axes, count);
    Value *x = outer ? reduce(l, node->prim, p.source, axes, outer, true) : p.source;
    return permute_back(l, reduce(l, node->prim, x, axes + outer, count - outer, true), &p);
}

static Value *pass_concat(Lowering *l, const Node *node) {
    Permuted p;
    if (!permuted(node->inputs[0], &p)) return NULL;
    Value **in = ARENA_ARRAY(l->arena, Value *, node->input_count);
    for (int i = 0; i < node->input_count; i++)
        if (node->inputs[i]->rank != p.rank || !(in[i] = before_permute(l, node->inputs[i], &p))) return NULL;
    return permute_back(l, concat(l, in, node->input_count, (int)p.perm[attr_int(node, "axis", 0)]), &p);
}

static Value *pass_slice(Lowering *l, const Node *node) {
    Permuted p;
    int count, steps;
    if (!permuted(node->inputs[0], &p)) return NULL;
    const Dim *const *from = attr_dims(node, "start", &count), *start[MAX_RANK], *size[MAX_RANK];
    const int64_t *by = attr_ints(node, "step", &steps);
    int64_t step[MAX_RANK];
    for (int i = 0; i < p.rank; i++) {
        start[p.perm[i]] = from[i];
        size[p.perm[i]] = node->outputs[0]->dims[i];
        step[p.perm[i]] = steps ? by[i] : 1;
    }
    return permute_back(l, slice(l, p.source, start, size, step), &p);
}

static Value *pass_pad(Lowering *l, const Node *node) {
    Permuted p;
    int count;
    if (!permuted(node->inputs[0], &p)) return NULL;
    const Dim *const *before = attr_dims(node, "before", &count), *const *after = attr_dims(node, "after", &count);
    const Dim *b[MAX_RANK], *a[MAX_RANK];
    for (int i = 0; i < p.rank; i++) b[p.perm[i]] = before[i], a[p.perm[i]] = after[i];
    return permute_back(l, pad(l, p.source, b, a, node->inputs[1]), &p);
}

/* An expand that is resolved at run time, or of axes of size 1. */
static Value *pass_expand(Lowering *l, const Node *node) {
    Permuted p;
    const Dim *shape[MAX_RANK];
    if (!permuted(node->inputs[0], &p)) return NULL;
    for (int i = 0; i < p.rank; i++) shape[p.perm[i]] = node->outputs[0]->dims[i];
    return permute_back(l, expand(l, p.source, shape, p.rank), &p);
}

/* Where in `fine` the axes begin that make up each axis of `coarse`; [coarse->rank + 1]. Whether all do. */
static bool axis_runs(Lowering *l, const Value *coarse, const Value *fine, int *first) {
    int next = 0;
    for (int a = 0; a < coarse->rank; a++) {
        first[a] = next;
        if (next == fine->rank) return false;
        const Dim *joined = fine->dims[next++];
        while (joined != coarse->dims[a]) {
            if (next == fine->rank) return false;
            joined = dim_mul(l->dims, joined, fine->dims[next++]);
        }
    }
    first[coarse->rank] = next;
    return next == fine->rank;
}

/* A reshape that only joins axes which were neighbours in this order before the permute, too: a picture's lines and columns to
 * one axis, say. */
static Value *pass_joining_reshape(Lowering *l, const Node *node, const Permuted *p) {
    const Value *x = node->inputs[0], *y = node->outputs[0];
    const Dim *dims[MAX_RANK];
    int first[MAX_RANK + 1], perm[MAX_RANK];
    if (!axis_runs(l, y, x, first)) return NULL;
    for (int a = 0; a < y->rank; a++)
        for (int i = first[a] + 1; i < first[a + 1]; i++)
            if (p->perm[i] != p->perm[i - 1] + 1) return NULL;
    for (int a = 0; a < y->rank; a++) {
        perm[a] = 0;
        for (int b = 0; b < y->rank; b++) perm[a] += p->perm[first[b]] < p->perm[first[a]];
        dims[perm[a]] = y->dims[a];
    }
    return permute(l, reshape(l, p->source, dims, y->rank), perm);
}

/* A reshape that only splits axes: channels to groups of channels, say. */
static Value *pass_splitting_reshape(Lowering *l, const Node *node, const Permuted *p) {
    const Value *x = node->inputs[0], *y = node->outputs[0];
    const Dim *dims[MAX_RANK];
    int first[MAX_RANK + 1], perm[MAX_RANK], n = 0;
    if (!axis_runs(l, x, y, first)) return NULL;
    for (int s = 0; s < p->rank; s++)
        for (int a = 0; a < x->rank; a++)
            for (int i = first[a]; p->perm[a] == s && i < first[a + 1]; i++) {
                dims[n] = y->dims[i];
                perm[i] = n++;
            }
    return permute(l, reshape(l, p->source, dims, y->rank), perm);
}

/* A reshape that only adds or drops axes of size 1 leaves the order of the others, so the permute can come after it. */
static Value *pass_reshape(Lowering *l, const Node *node) {
    Permuted p;
    const Value *y = node->outputs[0];
    if (!permuted(node->inputs[0], &p)) return NULL;
    const Value *x = node->inputs[0];
    int real_x[MAX_RANK], real_y[MAX_RANK], nx = 0, ny = 0;
    for (int i = 0; i < x->rank; i++)
        if (!is_unit(x, i)) real_x[nx++] = i;
    for (int i = 0; i < y->rank; i++)
        if (!is_unit(y, i)) real_y[ny++] = i;
    if (nx == 0) return NULL;
    if (nx < ny) return pass_splitting_reshape(l, node, &p);
    if (nx > ny) return pass_joining_reshape(l, node, &p);
    for (int i = 0; i < nx; i++)
        if (x->dims[real_x[i]] != y->dims[real_y[i]]) return NULL;
    /* z = reshape(source): y's axes in the order in which the source has them; units stay where they are relative to
     * the end. */
    int axis_of_y[MAX_RANK], order[MAX_RANK], perm[MAX_RANK], n = 0;
    for (int s = 0; s < p.rank; s++)
        for (int i = 0; i < nx; i++)
            if (p.perm[real_x[i]] == s) order[n++] = real_y[i];
    for (int i = 0, k = 0; i < y->rank; i++) axis_of_y[i] = is_unit(y, i) ? i : order[k++];
    const Dim *dims[MAX_RANK];
    for (int i = 0; i < y->rank; i++) {
        dims[i] = y->dims[axis_of_y[i]];
        perm[axis_of_y[i]] = i;
    }
    return permute(l, reshape(l, p.source, dims, y->rank), perm);
}

static Value *pass_permute(Lowering *l, const Node *node) {
    Permuted inner, outer;
    permuted(node->outputs[0], &outer);
    return permuted(node->inputs[0], &inner) ? permute_back(l, node->inputs[0], &outer)
                                             : NULL; /* the builder joins them */
}

static Value *pass(Lowering *l, const Node *node) {
    if (prim_is_elementwise(node->prim)) return pass_elementwise(l, node);
    switch (node->prim) {
    case PRIM_REDUCE_SUM:
    case PRIM_REDUCE_PROD:
    case PRIM_REDUCE_MAX:
    case PRIM_REDUCE_MIN: return pass_reduce(l, node);
    case PRIM_CONCAT: return pass_concat(l, node);
    case PRIM_SLICE: return pass_slice(l, node);
    case PRIM_PAD: return pass_pad(l, node);
    case PRIM_EXPAND: return pass_expand(l, node);
    case PRIM_RESHAPE: return pass_reshape(l, node);
    case PRIM_PERMUTE: return pass_permute(l, node);
    default: return NULL;
    }
}

/* --- GEMMs read and write through permutes
 * ------------------------------------------------------------------------------ */
static void compose(const Node *node, const char *name, const Permuted *p, int64_t *out) {
    int count;
    const int64_t *own = attr_ints(node, name, &count);
    for (int i = 0; i < p->rank; i++) out[i] = p->perm[own ? own[i] : i];
}

/* A GEMM needs one of the matrix axes contiguous. */
static bool keeps_contiguous(const int64_t *perm, int rank) {
    return perm[rank - 1] == rank - 1 || perm[rank - 2] == rank - 1;
}

static bool in_floats(const Node *node) { return dtype_is_float(node->inputs[0]->dtype); }

/* A convolution reads an input of one channel by any strides, and a weight whose outputs are neighbours. */
static bool conv_reads(const Node *node, int index, const int64_t *perm, int rank) {
    if (!in_floats(node) || attr_int(node, "group", 1) != 1) return false;
    return index == 0 ? is_unit(node->inputs[0], rank - 1) : perm[0] == rank - 1;
}

static bool reads_by_strides(const Node *node, int index, const int64_t *perm, int rank) {
    return strcmp(node->op, "conv") == 0 ? conv_reads(node, index, perm, rank) : keeps_contiguous(perm, rank);
}

static void absorb_input(Node *node, int index, const char *name) {
    Permuted p;
    int64_t perm[MAX_RANK];
    if (node->inputs[index]->constant || !permuted(node->inputs[index], &p) || p.rank < 2) return;
    if (node->inputs[index]->producer->fence != node->fence) return;
    compose(node, name, &p, perm);
    if (!reads_by_strides(node, index, perm, p.rank)) return;
    node_set_ints(node, name, perm, p.rank);
    node_set_input(node, index, p.source);
}

static bool is_permute(const Node *node) { return node->kind == NODE_PRIM && node->prim == PRIM_PERMUTE; }

static bool is_product(const Node *node) {
    return node->kind == NODE_ANCHOR && (strcmp(node->op, "matmul") == 0 || strcmp(node->op, MATMUL_BITS) == 0);
}

static void absorb_output(Graph *graph, Node *node) {
    Value *y = node->outputs[0];
    if (y->uses.count != 1 || value_is_output(y) || !is_permute(y->uses.items[0].node) ||
        y->uses.items[0].node->fence != node->fence || node->subgraph_count)
        return;
    Node *after = y->uses.items[0].node;
    int count, rank = y->rank;
    const int64_t *q = attr_ints(after, "perm", &count), *own = attr_ints(node, "perm_out", &count);
    int64_t perm[MAX_RANK];
    for (int i = 0; i < rank; i++) perm[i] = own ? own[q[i]] : q[i];
    if (perm[rank - 1] != rank - 1) return;
    Value *turned = after->outputs[0];
    Node *copy = graph_add_node(graph, node, NODE_ANCHOR, node->op, node->inputs, node->input_count);
    for (int i = 0; i < node->attrs.count; i++) node_set_attr(copy, node->attrs.items[i]);
    node_set_ints(copy, "perm_out", perm, rank);
    copy->origin = node->origin;
    node_follow_rules(copy, node);
    int64_t back[MAX_RANK]; /* y is permute(turned, back) */
    for (int i = 0; i < rank; i++) back[q[i]] = i;
    value_hand_on(graph, y, turned, back);
    value_replace(graph, turned, node_add_output(copy, NULL, turned->dtype, rank, turned->dims));
    graph_remove_node(graph, after);
    graph_remove_node(graph, node);
}

/* What is left of the permutes and moves only axes of size 1 is a reshape: free. */
static Status free_permutes(Graph *graph, const Policy *policy) {
    FOR_EACH_NODE_SAFE(node, graph) {
        int count, perm[MAX_RANK];
        if (!is_permute(node)) continue;
        const int64_t *from = attr_ints(node, "perm", &count);
        for (int i = 0; i < count; i++) perm[i] = (int)from[i];
        if (!moves_only_units(node->inputs[0], perm)) continue;
        Lowering l = {.graph = graph, .arena = graph->arena, .dims = graph->dims, .policy = policy, .node = node};
        Value *moved = permute_units(&l, node->inputs[0], perm);
        if (l.error) return l.error;
        value_replace(graph, node->outputs[0], moved);
        graph_remove_node(graph, node);
    }
    return NULL;
}

/* What stands behind permutes comes before them, node by node. */
static Status pass_permutes(Graph *graph, const Policy *policy) {
    Arena *scratch = arena_create_inside(graph->arena);
    Status status = NULL;
    FOR_EACH_NODE_SAFE(node, graph) {
        if (is_product(node)) {
            absorb_input(node, 0, "perm_a");
            absorb_input(node, 1, "perm_b"); /* no constant, which that of few bits is */
            continue;
        }
        if (node->kind == NODE_ANCHOR && strcmp(node->op, "conv") == 0 && policy->target.anchors.turned_conv) {
            absorb_input(node, 0, "perm_x");
            absorb_input(node, 1, "perm_w");
            continue;
        }
        if (node->kind != NODE_PRIM) continue;
        Lowering l = {.graph = graph,
                      .arena = graph->arena,
                      .scratch = scratch,
                      .dims = graph->dims,
                      .policy = policy,
                      .node = node};
        Value *moved = pass(&l, node);
        if ((status = l.error)) break;
        arena_reset(scratch);
        if (!moved || moved == node->outputs[0]) continue;
        value_replace(graph, node->outputs[0], moved);
        graph_remove_node(graph, node);
        graph_give_back_many(graph);
    }
    arena_destroy(scratch);
    return status;
}

Status layout(Graph *graph, const Policy *policy) {
    if (!policy->fusion.enable) return NULL; /* every value as the model has it */
    uint64_t number = 0;
    FOR_EACH_NODE(node, graph) node->tag = ++number;
    TRY(pass_permutes(graph, policy));
    graph_prune(graph);
    for (Node *node = graph->first, *next; node; node = next) {
        next = node->next;
        if (is_product(node)) {
            if (next && next == (node->outputs[0]->uses.count == 1 ? node->outputs[0]->uses.items[0].node : NULL))
                next = next->next;
            absorb_output(graph, node);
        }
    }
    return free_permutes(graph, policy);
}
