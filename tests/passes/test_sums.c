/* SPDX-License-Identifier: Apache-2.0 */
/* Sums of convolutions of one input, of whole numbers, so that what they become has the very same results. */
#include <criterion/criterion.h>

#include "lowering/build.h"
#include "passes/passes.h"
#include "random_graph.h"

enum { SIZE = 7, MOST_AXES = 3, SEEDS = 400 };

typedef struct Net {
    Lowering l;
    Value *x;
    int spatial;
    int64_t group, channels, filters; /* channels, filters: of the input, of the result */
    int64_t stride;
    const Dim *dims[MAX_RANK]; /* of the result */
    uint64_t state;
} Net;

static int64_t below(Net *n, int64_t limit) {
    n->state = n->state * 6364136223846793005u + 1442695040888963407u; /* Knuth's MMIX */
    return (int64_t)((n->state >> 33) % (uint64_t)limit);
}

static Value *whole_numbers(Net *n, int rank, const int64_t *dims) {
    Tensor *t = tensor_new(n->l.arena, DT_F32, rank, dims);
    for (int64_t i = 0; i < tensor_count(t); i++) ((float *)t->data)[i] = (float)(below(n, 7) - 3);
    return constant(&n->l, t);
}

static Value *per_channel(Net *n) { return whole_numbers(n, 1, (int64_t[]){below(n, 2) ? n->filters : 1}); }

/* Kernels of one to three taps an axis, one or two apart, that begin anywhere. */
static Value *convolution(Net *n) {
    int64_t dims[MAX_RANK] = {n->filters, n->channels / n->group}, strides[MOST_AXES], dilations[MOST_AXES];
    const Dim *pads[2 * MOST_AXES];
    for (int i = 0; i < n->spatial; i++) {
        dims[2 + i] = 1 + below(n, 3);
        strides[i] = n->stride;
        dilations[i] = 1 + below(n, 2);
        const int64_t reach = (dims[2 + i] - 1) * dilations[i], before = below(n, reach + 1);
        pads[i] = dim_const(n->l.dims, before);
        pads[n->spatial + i] = dim_const(n->l.dims, reach - before);
    }
    Value *inputs[] = {n->x, whole_numbers(n, n->spatial + 2, dims)};
    Node *conv = graph_add_node(n->l.graph, NULL, NODE_ANCHOR, "conv", inputs, 2);
    node_set_ints(conv, "strides", strides, n->spatial);
    node_set_ints(conv, "dilations", dilations, n->spatial);
    node_set_dims(conv, "pads", pads, 2 * n->spatial);
    node_set_int(conv, "group", n->group);
    return node_add_output(conv, NULL, DT_F32, n->spatial + 2, n->dims);
}

static Value *branch(Net *n) {
    const bool takes_input = n->stride == 1 && n->channels == n->filters;
    Value *v = takes_input && !below(n, 3) ? n->x : convolution(n);
    if (below(n, 2)) v = mul(&n->l, v, per_channel(n));
    if (below(n, 2)) v = add(&n->l, v, per_channel(n));
    return v;
}

static Graph *random_sum(uint64_t seed) {
    Graph *graph = graph_create(0);
    Net n = {.state = seed * 0x9e3779b97f4a7c15u, .l = {.graph = graph, .arena = graph->arena, .dims = graph->dims}};
    const Dim *dims[MAX_RANK];
    n.spatial = 1 + (int)below(&n, MOST_AXES);
    n.group = 1 + below(&n, 3);
    n.channels = n.group * (1 + below(&n, 2));
    n.filters = below(&n, 2) ? n.channels : n.group * 2;
    n.stride = 1 + below(&n, 2);
    for (int i = 0; i < n.spatial + 2; i++) {
        dims[i] = dim_const(graph->dims, i ? SIZE : 2);
        n.dims[i] = dim_const(graph->dims, i ? (SIZE + n.stride - 1) / n.stride : 2);
    }
    dims[n.spatial + 1] = dim_const(graph->dims, n.channels);
    n.dims[n.spatial + 1] = dim_const(graph->dims, n.filters);
    n.x = graph_add_input(graph, "x", DT_F32, n.spatial + 2, dims);
    Value *s = branch(&n);
    for (int64_t i = 1 + below(&n, 3); i > 0; i--) {
        Value *other = branch(&n), *a = below(&n, 2) ? s : other;
        s = binary(&n.l, below(&n, 3) ? PRIM_ADD : PRIM_SUB, a, a == s ? other : s);
    }
    if (below(&n, 2)) s = mul(&n.l, s, per_channel(&n));
    cr_assert_null(n.l.error);
    graph_add_output(graph, s);
    return graph;
}

static int convolutions(const Graph *graph) {
    int count = 0;
    FOR_EACH_NODE(node, graph) count += node->kind == NODE_ANCHOR;
    return count;
}

Test(sums, of_convolutions_become_one_with_the_same_result) {
    uint64_t first, last;
    int fewer = 0, alone = 0;
    random_seeds(SEEDS, &first, &last);
    for (uint64_t seed = first; seed <= last; seed++) {
        Arena *arena = arena_create(0);
        Graph *graph = random_sum(seed);
        const char *text = graph_text(graph, arena);
        const Value *x = graph->inputs.items[0];
        int64_t dims[MAX_RANK];
        for (int i = 0; i < x->rank; i++) dim_is_const(x->dims[i], &dims[i]);
        Tensor *in = tensor_new(arena, DT_F32, x->rank, dims), *before, *after;
        for (int64_t i = 0; i < tensor_count(in); i++) ((float *)in->data)[i] = (float)(i * 37 % 11 - 5);
        const int were = convolutions(graph);
        const Policy policy = policy_default();
        cr_assert_null(evaluate_graph(graph, &in, NULL, arena, &before));
        cr_assert_null(simplify(graph, &policy));
        cr_assert_null(graph_verify(graph, LEVEL_PRIM));
        cr_assert_null(evaluate_graph(graph, &in, NULL, arena, &after));
        const char *wrong = tensor_difference(before, after, 0, arena);
        cr_assert_null(wrong, "seed %d: %s\n%s\nbecame\n%s", (int)seed, wrong, text, graph_text(graph, arena));
        fewer += convolutions(graph) < were;
        alone += were > 1 && convolutions(graph) == 1;
        graph_destroy(graph);
        arena_destroy(arena);
    }
    if (last - first + 1 == SEEDS) cr_expect(fewer > SEEDS / 4 && alone > SEEDS / 8, "%d, %d", fewer, alone);
}
