/* Dead nodes, found in one sweep from the last to the first. Sizes are uses too: which symbols an expression holds is
 * asked of dim_eval, by leaving symbols unbound. */
#include "lowering/prune.h"

typedef struct Prune {
    Graph *graph;
    int symbols;     /* dim_symbol_count */
    Node **definers; /* [symbols] the host node of this graph that binds it */
    bool *used;      /* [symbols] */
    int64_t *values; /* [symbols] scratch for dim_eval */
    Map seen;        /* expressions looked at */
} Prune;

static void set_values(Prune *p, int from, int to, int64_t value) {
    for (int i = from; i < to; i++) p->values[i] = value;
}

/* Marks the symbols of [from, to) that the expression holds; all are bound to 1 on entry and on return. */
static void mark_symbols(Prune *p, const Dim *dim, int from, int to) {
    if (from == to) return;
    set_values(p, from, to, UNBOUND_DIM);
    bool holds = dim_eval(dim, p->values) == UNBOUND_DIM;
    set_values(p, from, to, 1);
    if (!holds) return;
    if (to - from == 1) {
        p->used[from] = true;
        return;
    }
    int middle = from + (to - from) / 2;
    mark_symbols(p, dim, from, middle);
    mark_symbols(p, dim, middle, to);
}

static void use_dim(Prune *p, const Dim *dim) {
    if (!dim || dim_is_const(dim, NULL) || map_get_id(&p->seen, MAP_POINTER_KEY(dim))) return;
    map_set_id(&p->seen, MAP_POINTER_KEY(dim), p->graph);
    int lone = dim_symbol_index(dim);
    if (lone >= 0)
        p->used[lone] = true;
    else
        mark_symbols(p, dim, 0, p->symbols);
}

static void use_value(Prune *p, const Value *value) {
    for (int i = 0; value && value->dims && i < value->rank; i++) use_dim(p, value->dims[i]);
}

static void use_node(Prune *p, const Node *node) {
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
    if (symbol >= 0 && !p->definers[symbol]) p->definers[symbol] = node;
}

/* Symbols of the graph's inputs are taken as defined by the first node, which then need not live for them. */
static void find_definers(Prune *p, Node *of_inputs) {
    for (int i = 0; i < p->graph->inputs.count; i++) {
        const Value *input = p->graph->inputs.items[i];
        for (int k = 0; input->dims && k < input->rank; k++) define(p, input->dims[k], of_inputs);
    }
    FOR_EACH_NODE(node, p->graph) {
        if (node->kind != NODE_HOST) continue;
        int count;
        const Dim *const *symbols = attr_dims(node, "symbols", &count);
        for (int i = 0; i < count; i++) define(p, symbols[i], node);
        for (int i = 0; i < node->output_count; i++) {
            const Value *value = node->outputs[i];
            for (int k = 0; value && value->dims && k < value->rank; k++) define(p, value->dims[k], node);
        }
    }
}

enum { TAG_OUTPUT = 1 };

static bool is_read(const Node *node) {
    for (int i = 0; i < node->output_count; i++) {
        const Value *value = node->outputs[i];
        if (value && (value->uses.count > 0 || value->tag == TAG_OUTPUT)) return true;
    }
    return false;
}

static bool binds_used(const Prune *p, const Node *node) {
    if (node->kind != NODE_HOST) return false;
    int count;
    const Dim *const *symbols = attr_dims(node, "symbols", &count);
    for (int i = 0; i < count; i++) {
        int symbol = dim_symbol_index(symbols[i]);
        if (symbol >= 0 && p->used[symbol] && p->definers[symbol] == node) return true;
    }
    for (int i = 0; i < node->output_count; i++) {
        const Value *value = node->outputs[i];
        for (int k = 0; value && value->dims && k < value->rank; k++) {
            int symbol = dim_symbol_index(value->dims[k]);
            if (symbol >= 0 && p->used[symbol] && p->definers[symbol] == node) return true;
        }
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
    Node of_inputs = {0};
    Prune p = {.graph = graph, .symbols = dim_symbol_count(graph->dims), .seen = map_make(graph->arena)};
    p.definers = ARENA_ARRAY(graph->arena, Node *, p.symbols);
    p.used = ARENA_ARRAY(graph->arena, bool, p.symbols);
    p.values = ARENA_ARRAY(graph->arena, int64_t, p.symbols);
    set_values(&p, 0, p.symbols, 1);
    find_definers(&p, &of_inputs);
    for (int i = 0; i < graph->values.count; i++) graph->values.items[i]->tag = 0;
    for (int i = 0; i < graph->outputs.count; i++) {
        graph->outputs.items[i]->tag = TAG_OUTPUT;
        use_value(&p, graph->outputs.items[i]);
    }
    for (Node *node = graph->last, *before; node; node = before) {
        before = node->prev;
        if (is_read(node) || binds_used(&p, node)) {
            use_node(&p, node);
            continue;
        }
        keep_names(graph, node);
        graph_remove_node(graph, node);
    }
}
