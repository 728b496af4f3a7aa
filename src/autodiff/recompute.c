/* SPDX-License-Identifier: Apache-2.0 */
/* What of the forward pass is kept for the backward one, and what is computed again from that: a minimum cut (Chen et al., "Training Deep Nets
 * with Sublinear Memory Cost", 2016, for recomputation; the cut over fusible operations as in Horace He and Shangdi Yu, "Transcending
 * Runtime-Memory Tradeoffs in Checkpointing by being Fusion Aware", MLSys 2023).
 *
 * Elementwise forward nodes may be repeated beside the backward nodes that read their results, where they cost no memory traffic once they are
 * fused. Products, convolutions, reductions, host steps and gathers are never repeated. The values that are kept cut every path from what is never repeated
 * to what backward nodes read; a value's weight is its bytes. Of all least cuts the one nearest to the readers is taken, so that
 * no chain reaches further back than it must: a residual stream is kept once a layer, not summed up again from the first one, and equal layers
 * are cut equally.
 *
 * In and out: LEVEL_PRIM. */
#include "autodiff/autodiff.h"

#include "graph/cost.h"
#include "graph/space.h"
#include "lowering/prune.h"

enum {
    SMALL_BYTES = 4096, /* what is kept without a thought: rows' means, seeds, scalars */
    USUAL_SIZE = 128,   /* of a symbol that the policy gives no hint of */
    LONGEST_CHAIN = 64, /* nodes that are repeated one behind the other */
};
static const double UNBOUNDED = 1e30;

typedef struct Edge {
    int to, next; /* next: of the same node, -1: none */
    double room;  /* that flow may still take; edge ^ 1 is the way back */
} Edge;

typedef struct Need {
    Value *value;
    int level;   /* of the readers */
    Node *first; /* of the readers */
} Need;

typedef struct Cut {
    Graph *graph;
    Arena *arena;
    int64_t *symbols;
    Map numbers; /* Value -> 1 + its number */
    VEC(Value *) values;
    VEC(int) heads; /* [vertex] its first edge: vertex 2 n is where value n is made, 2 n + 1 where it is read */
    VEC(Edge) edges;
    int source, sink;
    int *depth, *queue, *at; /* [vertices], of the search for flow */
    VEC(Need) needs;
    Map needed; /* those, by value and level */
    Map chains; /* Value -> 1 + how many repeatable nodes stand one behind the other up to it */
    Map clones; /* (value, level) -> Value */
} Cut;

/* --- what may be repeated ------------------------------------------------------------------------------------------------ */

static bool may_repeat(const Node *node) {
    if (!node || node->kind != NODE_PRIM || node->backward || node->group || !space_accepts(node)) return false;
    return prim_is_elementwise(node->prim) || node->prim == PRIM_PHILOX || node->prim == PRIM_IOTA ||
           node->prim == PRIM_EXPAND || node->prim == PRIM_RESHAPE;
}

static double bytes_of(const Cut *c, const Value *value) {
    double count;
    if (!value_count(value, c->symbols, &count)) return UNBOUNDED;
    return count * (double)dtype_size(value->dtype);
}

static int chain_of(const Cut *c, const Value *value) {
    return value ? (int)(intptr_t)map_get_id(&c->chains, MAP_POINTER_KEY(value)) : 0;
}

static void measure_chains(Cut *c) {
    FOR_EACH_NODE(node, c->graph) {
        int longest = 0;
        if (!may_repeat(node)) continue;
        for (int i = 0; i < node->input_count; i++)
            if (chain_of(c, node->inputs[i]) > longest) longest = chain_of(c, node->inputs[i]);
        if (longest < LONGEST_CHAIN)
            map_set_id(&c->chains, MAP_POINTER_KEY(node->outputs[0]), (void *)(intptr_t)(longest + 1));
    }
}

static bool is_repeatable(const Cut *c, const Value *value) { return chain_of(c, value) > 0; }

/* There at no cost: inputs, constants, what is small, and what backward steps that are no kernels read as it is. */
static bool is_kept_anyway(const Cut *c, const Value *value) {
    if (!value->producer || value->constant || value_is_output(value) || bytes_of(c, value) <= SMALL_BYTES) return true;
    for (int i = 0; i < value->uses.count; i++) {
        const Node *user = value->uses.items[i].node;
        if (user->backward && (user->kind != NODE_PRIM || !space_accepts(user))) return true;
    }
    return false;
}

static bool is_in_kernel(const Node *node) { return node->kind == NODE_PRIM && space_accepts(node); }

/* Whether what reads its results is in a later kernel for certain. */
static bool ends_kernel(const Node *node) {
    if (!is_in_kernel(node)) return true;
    if (prim_info(node->prim)->klass != PRIM_CLASS_REDUCE) return false;
    int count, rank = node->inputs[0]->rank;
    const int64_t *axes = attr_ints(node, "axes", &count);
    return count != 1 || axes[0] != rank - 1; /* not along rows */
}

static int level_of(const Value *value) { return value && value->producer ? (int)value->producer->tag : 0; }

/* The level of a node: 1 + how many ends of kernels stand between it and the forward kernels that it depends on; 0: it depends on none. A
 * forward value of a lower level than its reader cannot be in one kernel with it. */
static void number_levels(Graph *graph) {
    FOR_EACH_NODE(node, graph) {
        int level = is_in_kernel(node) && !node->backward;
        for (int i = 0; i < node->input_count; i++) {
            int before = level_of(node->inputs[i]);
            if (before && before + ends_kernel(node->inputs[i]->producer) > level)
                level = before + ends_kernel(node->inputs[i]->producer);
        }
        node->tag = (uint64_t)level;
    }
}

/* --- the network --------------------------------------------------------------------------------------------------------------- */

static int add_vertex(Cut *c) {
    VEC_PUSH(c->arena, c->heads, -1);
    return c->heads.count - 1;
}

static void add_edge(Cut *c, int from, int to, double room) {
    VEC_PUSH(c->arena, c->edges, (Edge){to, c->heads.items[from], room});
    c->heads.items[from] = c->edges.count - 1;
    VEC_PUSH(c->arena, c->edges, (Edge){from, c->heads.items[to], 0});
    c->heads.items[to] = c->edges.count - 1;
}

static int made_at(int number) { return 2 + 2 * number; }
static int read_at(int number) { return 3 + 2 * number; }

/* The value's number; what it is computed of is looked at later. */
static int enter(Cut *c, Value *value) {
    intptr_t known = (intptr_t)map_get_id(&c->numbers, MAP_POINTER_KEY(value));
    if (known) return (int)known - 1;
    VEC_PUSH(c->arena, c->values, value);
    int number = c->values.count - 1;
    map_set_id(&c->numbers, MAP_POINTER_KEY(value), (void *)(intptr_t)(number + 1));
    add_vertex(c);
    add_vertex(c);
    add_edge(c, made_at(number), read_at(number), bytes_of(c, value));
    if (!is_repeatable(c, value)) add_edge(c, c->source, made_at(number), UNBOUNDED);
    return number;
}

static void connect_inputs(Cut *c, int number) {
    const Node *node = c->values.items[number]->producer;
    if (!is_repeatable(c, c->values.items[number])) return;
    for (int i = 0; i < node->input_count; i++)
        if (node->inputs[i] && !is_kept_anyway(c, node->inputs[i]))
            add_edge(c, read_at(enter(c, node->inputs[i])), made_at(number), UNBOUNDED);
}

static uint64_t at_level(const Value *value, int level) {
    return MAP_POINTER_KEY(value) * 0x9e3779b97f4a7c15u + (uint64_t)level;
}

static void add_need(Cut *c, Value *value, Node *reader) {
    uint64_t key = at_level(value, (int)reader->tag);
    if (map_get_id(&c->needed, key)) return;
    map_set_id(&c->needed, key, value);
    VEC_PUSH(c->arena, c->needs, (Need){value, (int)reader->tag, reader});
}

static void find_needs(Cut *c) {
    FOR_EACH_NODE(node, c->graph) {
        if (!node->backward) continue;
        for (int i = 0; i < node->input_count; i++) {
            Value *value = node->inputs[i];
            if (value && value->producer && !value->producer->backward && level_of(value) < (int)node->tag &&
                !is_kept_anyway(c, value))
                add_need(c, value, node);
        }
    }
}

/* --- the largest flow (Dinic, 1970), whose full edges are the least cut (Ford and Fulkerson, 1956) ------------------------------------- */

static bool number_depths(Cut *c) {
    int begin = 0, end = 0;
    for (int i = 0; i < c->heads.count; i++) c->depth[i] = -1;
    c->depth[c->source] = 0;
    c->queue[end++] = c->source;
    while (begin < end) {
        int vertex = c->queue[begin++];
        for (int e = c->heads.items[vertex]; e >= 0; e = c->edges.items[e].next) {
            const Edge *edge = &c->edges.items[e];
            if (edge->room <= 0 || c->depth[edge->to] >= 0) continue;
            c->depth[edge->to] = c->depth[vertex] + 1;
            c->queue[end++] = edge->to;
        }
    }
    return c->depth[c->sink] >= 0;
}

/* One more path along rising depths; c->at [vertex]: the edges before it lead nowhere. `queue` holds the path's edges. */
static bool push_path(Cut *c) {
    int length = 0, vertex = c->source;
    while (vertex != c->sink) {
        int e = c->at[vertex];
        while (e >= 0 && (c->edges.items[e].room <= 0 || c->depth[c->edges.items[e].to] != c->depth[vertex] + 1))
            e = c->edges.items[e].next;
        c->at[vertex] = e;
        if (e >= 0) {
            c->queue[length++] = e;
            vertex = c->edges.items[e].to;
        } else if (vertex == c->source) {
            return false;
        } else { /* back, and not here again */
            int last = c->queue[--length];
            vertex = c->edges.items[last ^ 1].to;
            c->at[vertex] = c->edges.items[last].next;
        }
    }
    double room = UNBOUNDED;
    for (int i = 0; i < length; i++)
        if (c->edges.items[c->queue[i]].room < room) room = c->edges.items[c->queue[i]].room;
    for (int i = 0; i < length; i++) {
        c->edges.items[c->queue[i]].room -= room;
        c->edges.items[c->queue[i] ^ 1].room += room;
    }
    return true;
}

static void fill(Cut *c) {
    int vertices = c->heads.count;
    c->depth = ARENA_ARRAY(c->arena, int, vertices);
    c->queue = ARENA_ARRAY(c->arena, int, vertices);
    c->at = ARENA_ARRAY(c->arena, int, vertices);
    while (number_depths(c)) {
        memcpy(c->at, c->heads.items, (size_t)vertices * sizeof *c->at);
        while (push_path(c)) continue;
    }
}

/* Which vertices can still send flow to the sink: what is made there is made again. */
static bool *made_again(Cut *c) {
    bool *again = ARENA_ARRAY(c->arena, bool, c->heads.count);
    int begin = 0, end = 0;
    again[c->sink] = true;
    c->queue[end++] = c->sink;
    while (begin < end) {
        int vertex = c->queue[begin++];
        for (int e = c->heads.items[vertex]; e >= 0; e = c->edges.items[e].next) {
            int from = c->edges.items[e].to;
            if (c->edges.items[e ^ 1].room <= 0 || again[from]) continue;
            again[from] = true;
            c->queue[end++] = from;
        }
    }
    return again;
}

/* --- repeating --------------------------------------------------------------------------------------------------------------------- */

static bool is_repeated(const Cut *c, const bool *again, const Value *value) {
    intptr_t number = (intptr_t)map_get_id(&c->numbers, MAP_POINTER_KEY(value));
    return number && again[made_at((int)number - 1)];
}

/* The value once more, for readers of that level. Chains are as deep as regions are large, within a bound of the partition's. */
static Value *repeat(Cut *c, const bool *again, Value *value, const Need *need) {
    if (!value || !is_repeated(c, again, value)) return value;
    uint64_t key = at_level(value, need->level);
    Value *known = map_get_id(&c->clones, key);
    if (known) return known;
    const Node *node = value->producer;
    Value **inputs = ARENA_ARRAY(c->graph->arena, Value *, node->input_count);
    for (int i = 0; i < node->input_count; i++) inputs[i] = repeat(c, again, node->inputs[i], need);
    Node *copy = graph_add_prim(c->graph, need->first, node->prim, inputs, node->input_count);
    for (int i = 0; i < node->attrs.count; i++) node_set_attr(copy, node->attrs.items[i]);
    copy->origin = node->origin;
    node_follow_rules(copy, node);
    copy->backward = copy->repeats = true;
    copy->tag = (uint64_t)need->level;
    known = node_add_output(copy, NULL, value->dtype, value->rank, value->dims);
    map_set_id(&c->clones, key, known);
    return known;
}

static void repeat_all(Cut *c, const bool *again) {
    for (int n = 0; n < c->needs.count; n++) {
        Need need = c->needs.items[n];
        if (!is_repeated(c, again, need.value)) continue;
        Value *copy = repeat(c, again, need.value, &need);
        for (int i = need.value->uses.count - 1; i >= 0; i--) {
            Use use = need.value->uses.items[i];
            if (use.node->backward && (int)use.node->tag == need.level) node_set_input(use.node, use.index, copy);
        }
    }
}

static int64_t *usual_sizes(Graph *graph, Arena *arena, const Policy *policy) {
    int count = dim_symbol_count(graph->dims);
    int64_t *sizes = ARENA_ARRAY(arena, int64_t, count + 1);
    for (int i = 0; i < count; i++) sizes[i] = USUAL_SIZE;
    if (!policy->shapes.hint_count) return sizes;
    const ShapeHint *hint = &policy->shapes.hints[0];
    for (int i = 0; i < count; i++)
        for (int k = 0; k < hint->count; k++)
            if (strcmp(dim_symbol_name(graph->dims, i), hint->symbols[k]) == 0) sizes[i] = hint->sizes[k];
    return sizes;
}

Status choose_saved(Graph *graph, const Policy *policy) {
    bool any = false;
    for (const Node *node = graph->last; node && !any; node = node->prev) any = node->backward;
    if (!any || !policy->fusion.enable) return NULL;
    Arena *arena = arena_create_inside(graph->arena);
    Cut c = {.graph = graph,
             .arena = arena,
             .symbols = usual_sizes(graph, arena, policy),
             .numbers = map_make(arena),
             .needed = map_make(arena),
             .chains = map_make(arena),
             .clones = map_make(arena)};
    number_levels(graph);
    measure_chains(&c);
    c.source = add_vertex(&c);
    c.sink = add_vertex(&c);
    find_needs(&c);
    for (int i = 0; i < c.needs.count; i++) {
        int number = enter(&c, c.needs.items[i].value);
        add_edge(&c, read_at(number), c.sink, UNBOUNDED);
    }
    for (int i = 0; i < c.values.count; i++) connect_inputs(&c, i); /* which enters more */
    fill(&c);
    repeat_all(&c, made_again(&c));
    arena_destroy(arena);
    graph_prune(graph);
    return NULL;
}
