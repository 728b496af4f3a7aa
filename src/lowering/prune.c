/* SPDX-License-Identifier: Apache-2.0 */
/* Dead nodes, found in one sweep from the last to the first. Sizes are uses too. What is kept of symbols and sizes is kept
 * by those that the graph holds, not by all of the model's: a model may have thousands of small subgraphs. */
#include "lowering/prune.h"

typedef struct Prune {
    Graph *graph;
    Map definers; /* symbol -> the host node of this graph that binds it */
    Map used;     /* symbols */
    Map seen;     /* expressions looked at */
    bool hosts;   /* there are host nodes, which alone live for the symbols that they bind */
} Prune;

static void use_symbol(int symbol, void *context) {
    Prune *p = context;
    map_set_id(&p->used, (uint64_t)symbol, p);
}

static void use_dim(Prune *p, const Dim *dim) {
    if (!dim || dim_is_const(dim, NULL) || map_get_id(&p->seen, MAP_POINTER_KEY(dim))) return;
    map_set_id(&p->seen, MAP_POINTER_KEY(dim), p);
    dim_each_symbol(dim, use_symbol, p);
}

static void use_value(Prune *p, const Value *value) {
    for (int i = 0; value && value->dims && i < value->rank; i++) use_dim(p, value->dims[i]);
}

static void use_node(Prune *p, const Node *node) {
    if (!p->hosts) return;
    for (int i = 0; i < node->output_count; i++) use_value(p, node->outputs[i]);
    for (int i = 0; i < node->attrs.count; i++) {
        const Attr *attr = &node->attrs.items[i];
        for (int k = 0; attr->kind == ATTR_DIMS && k < attr->count; k++) use_dim(p, attr->dims[k]);
    }
    for (int i = 0; i < node->subgraph_count; i++) {
        const Graph *body = node->subgraphs[i];
        for (int k = 0; k < body->inputs.count; k++) use_value(p, body->inputs.items[k]);
        FOR_EACH_NODE(inner, body) use_node(p, inner);
    }
}

static void define(Prune *p, const Dim *dim, Node *node) {
    int symbol = dim_symbol_index(dim);
    if (symbol >= 0 && !map_get_id(&p->definers, (uint64_t)symbol)) map_set_id(&p->definers, (uint64_t)symbol, node);
}

/* Symbols of the graph's inputs are taken as defined by the first node, which then need not live for them. */
static void find_definers(Prune *p, Node *of_inputs) {
    for (int i = 0; i < p->graph->inputs.count; i++) {
        const Value *input = p->graph->inputs.items[i];
        for (int k = 0; input->dims && k < input->rank; k++) define(p, input->dims[k], of_inputs);
    }
    FOR_EACH_NODE(node, p->graph) {
        if (node->kind != NODE_HOST) continue;
        p->hosts = true;
        int count;
        const Dim *const *symbols = attr_dims(node, "symbols", &count);
        for (int i = 0; i < count; i++) define(p, symbols[i], node);
        for (int i = 0; i < node->output_count; i++) {
            const Value *value = node->outputs[i];
            for (int k = 0; value && value->dims && k < value->rank; k++) define(p, value->dims[k], node);
        }
    }
}

static bool is_read(const Node *node) {
    for (int i = 0; i < node->output_count; i++) {
        const Value *value = node->outputs[i];
        if (value && (value->uses.count > 0 || value_is_output(value))) return true;
    }
    return false;
}

static bool binds(const Prune *p, const Dim *dim, const Node *node) {
    int symbol = dim_symbol_index(dim);
    return symbol >= 0 && map_get_id(&p->used, (uint64_t)symbol) && map_get_id(&p->definers, (uint64_t)symbol) == node;
}

static bool binds_used(const Prune *p, const Node *node) {
    if (node->kind != NODE_HOST) return false;
    int count;
    const Dim *const *symbols = attr_dims(node, "symbols", &count);
    for (int i = 0; i < count; i++)
        if (binds(p, symbols[i], node)) return true;
    for (int i = 0; i < node->output_count; i++) {
        const Value *value = node->outputs[i];
        for (int k = 0; value && value->dims && k < value->rank; k++)
            if (binds(p, value->dims[k], node)) return true;
    }
    return false;
}

/* A permute that is not needed leaves its result in another order, which is still the model's value. */
static void keep_names(Graph *graph, const Node *node) {
    if (node->kind != NODE_PRIM || node->prim != PRIM_PERMUTE) return;
    int count;
    const int64_t *perm = attr_ints(node, "perm", &count);
    if (count == node->inputs[0]->rank) value_hand_on(graph, node->outputs[0], node->inputs[0], perm);
}

void graph_prune(Graph *graph) {
    Arena *scratch = arena_create_inside(graph->arena);
    Node of_inputs = {0};
    Prune p = {graph, map_make(scratch), map_make(scratch), map_make(scratch), false};
    find_definers(&p, &of_inputs);
    for (int i = 0; i < graph->outputs.count; i++) use_value(&p, graph->outputs.items[i]);
    for (Node *node = graph->last, *before; node; node = before) {
        before = node->prev;
        if (is_read(node) || binds_used(&p, node)) {
            use_node(&p, node);
            continue;
        }
        keep_names(graph, node);
        graph_remove_node(graph, node);
    }
    arena_destroy(scratch);
}
