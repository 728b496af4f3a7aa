/* SPDX-License-Identifier: Apache-2.0 */
/* The operator Gradient of ai.onnx.preview.training: its attributes name values of the graph it stands in, xs and zs, and y, which is
 * computed of them; its inputs are where the derivatives of y with respect to xs are taken (xs and zs themselves, or others of their
 * types).
 *
 * Before lowering names become inputs: what y is, and for each x a barrier, the operator Variable, that keeps constants from being
 * folded and what follows x from being simplified together with what makes it. Behind lowering the node becomes what differentiate
 * makes, and barriers go. */
#include "autodiff/autodiff.h"

#include "lowering/prune.h"
#include "lowering/subgraph.h"

static bool is_gradient(const Node *node) {
    return strcmp(node->op, "Gradient") == 0 && node->domain && strcmp(node->domain, TRAINING_DOMAIN) == 0;
}

static bool is_internal(const Node *node, const char *op) {
    return strcmp(node->op, op) == 0 && node->domain && strcmp(node->domain, INTERNAL_DOMAIN) == 0;
}

static bool is_variable(const Node *node) { return is_internal(node, "Variable"); }
static bool is_adjoint(const Node *node) { return is_internal(node, "Adjoint"); }

/* --- before lowering ------------------------------------------------------------------------------------------------------ */

typedef struct Operator {
    Graph *graph;
    Arena *scratch;
    Node *node;
    Value **named; /* [count] what xs and zs name */
    int count, xs;
    Value *y;
} Operator;

static Status named_value(const Operator *o, StringView name, const char *attribute, Value **out_value) {
    *out_value = map_get(&o->graph->names, arena_string_n(o->scratch, name.data, name.size));
    if (*out_value) return NULL;
    return status_error(STATUS_INVALID, "node \"%s\" (Gradient): %s names \"%.*s\", which the graph does not have",
                        node_origin_name(o->node), attribute, (int)name.size, name.data);
}

static Status read_attributes(Operator *o) {
    const Attr *xs = node_attr(o->node, "xs"), *zs = node_attr(o->node, "zs"), *y = node_attr(o->node, "y");
    if (!xs || xs->kind != ATTR_STRINGS || !xs->count || !y || y->kind != ATTR_STRING ||
        (zs && zs->kind != ATTR_STRINGS))
        return status_error(STATUS_INVALID, "node \"%s\" (Gradient): attributes xs (strings), y (a string) are missing",
                            node_origin_name(o->node));
    o->xs = xs->count;
    o->count = xs->count + (zs ? zs->count : 0);
    if (o->node->input_count != o->count || o->node->output_count > o->xs)
        return status_error(STATUS_INVALID, "node \"%s\" (Gradient): %d inputs and %d outputs for %d xs and %d zs",
                            node_origin_name(o->node), o->node->input_count, o->node->output_count, o->xs,
                            o->count - o->xs);
    o->named = ARENA_ARRAY(o->scratch, Value *, o->count);
    for (int i = 0; i < o->count; i++) {
        bool is_x = i < o->xs;
        TRY(named_value(o, is_x ? xs->strings[i] : zs->strings[i - o->xs], is_x ? "xs" : "zs", &o->named[i]));
        if (!o->node->inputs[i])
            return status_error(STATUS_INVALID, "node \"%s\" (Gradient): input %d is left out",
                                node_origin_name(o->node), i);
    }
    return named_value(o, y->s, "y", &o->y);
}

static bool reads_marked(const Map *marked, const Node *node) {
    for (int i = 0; i < node->input_count; i++)
        if (node->inputs[i] && map_get_id(marked, MAP_POINTER_KEY(node->inputs[i]))) return true;
    return false;
}

static void mark_outputs(Map *marked, const Node *node) {
    for (int i = 0; i < node->output_count; i++)
        if (node->outputs[i]) map_set_id(marked, MAP_POINTER_KEY(node->outputs[i]), node->outputs[i]);
}

/* The node and what reads its results go behind y's producer, which it does not read as the file has it. */
static Status move_behind_y(Operator *o) {
    Node *last = o->y->producer, *end = last ? last->next : NULL;
    bool later = false;
    for (const Node *n = o->node; n && !later; n = n->next) later = n == last;
    if (!later) return NULL;
    Map marked = map_make(o->scratch);
    mark_outputs(&marked, o->node);
    VEC(Node *) moved = {0};
    for (Node *n = o->node; n != end; n = n->next) {
        if (n != o->node && !reads_marked(&marked, n)) continue;
        if (n == last)
            return status_error(STATUS_INVALID, "node \"%s\" (Gradient): y, \"%s\", is computed of its results",
                                node_origin_name(o->node), o->y->name);
        mark_outputs(&marked, n);
        VEC_PUSH(o->scratch, moved, n);
    }
    for (int i = 0; i < moved.count; i++) graph_move_before(o->graph, moved.items[i], end);
    return NULL;
}

static Value *add_variable(Operator *o, Node *before, Value *x) {
    Node *node = graph_add_node(o->graph, before, NODE_ONNX, "Variable", &x, 1);
    node->domain = INTERNAL_DOMAIN;
    node->opset = 1;
    node->origin = o->node->origin;
    return node_add_output(node, NULL, DT_NONE, -1, NULL);
}

static Value *unbarred(Value *x) { return x->producer && is_variable(x->producer) ? x->producer->inputs[0] : x; }

/* x as all of its graph read it from now on. */
static Value *vary(Operator *o, Value *x) {
    if (!x->producer && !x->constant) return x; /* an input of the graph */
    if (x->constant) {
        Map constants = map_make(o->scratch);
        map_set_id(&constants, MAP_POINTER_KEY(x->constant), x);
        capture_constants(o->graph, &constants);
    }
    for (int i = 0; i < x->uses.count; i++)
        if (is_variable(x->uses.items[i].node)) return x->uses.items[i].node->outputs[0];
    Value *variable = add_variable(o, x->producer ? x->producer->next : o->graph->first, x);
    for (int i = x->uses.count - 1; i >= 0; i--) {
        Use use = x->uses.items[i];
        if (!is_variable(use.node)) node_set_input(use.node, use.index, variable);
    }
    return variable;
}

/* Whether y needs one of its results, for which nothing stands yet. */
static bool makes_needed(const Node *node, const Map *needed, const Map *values) {
    for (int i = 0; i < node->output_count; i++)
        if (node->outputs[i] && map_get_id(needed, MAP_POINTER_KEY(node->outputs[i])) &&
            !map_get_id(values, MAP_POINTER_KEY(node->outputs[i])))
            return true;
    return false;
}

/* y computed once more, where inputs stand for what xs and zs name. */
static void compute_elsewhere(Operator *o) {
    Map values = map_make(o->scratch), needed = map_make(o->scratch), changed = map_make(o->scratch);
    for (int i = 0; i < o->count; i++) {
        Value *fed = o->node->inputs[i];
        if (i < o->xs) node_set_input(o->node, i, fed = add_variable(o, o->node, fed));
        map_set_id(&values, MAP_POINTER_KEY(o->named[i]), fed);
        map_set_id(&changed, MAP_POINTER_KEY(o->named[i]), fed);
    }
    map_set_id(&needed, MAP_POINTER_KEY(o->y), o->y);
    for (Node *n = o->node->prev; n; n = n->prev) { /* what y is made of */
        bool makes = makes_needed(n, &needed, &values);
        for (int i = 0; makes && i < n->input_count; i++)
            if (n->inputs[i]) map_set_id(&needed, MAP_POINTER_KEY(n->inputs[i]), n->inputs[i]);
    }
    for (Node *n = o->graph->first; n != o->node; n = n->next) {
        bool makes = makes_needed(n, &needed, &values);
        if (!makes || is_variable(n) || !reads_marked(&changed, n)) continue;
        for (int i = 0; i < n->input_count; i++) /* what does not change is read where it is */
            if (n->inputs[i] && !map_get_id(&values, MAP_POINTER_KEY(n->inputs[i])))
                map_set_id(&values, MAP_POINTER_KEY(n->inputs[i]), n->inputs[i]);
        mark_outputs(&changed, n);
        copy_node_to(o->graph, o->node, n, &values);
        for (int i = 0; i < n->output_count; i++) { /* the copies are no values of the model */
            Value *made = n->outputs[i] ? map_get_id(&values, MAP_POINTER_KEY(n->outputs[i])) : NULL;
            if (made) made->stands_for = NULL;
        }
    }
    Value *again = map_get_id(&values, MAP_POINTER_KEY(o->y));
    if (again) o->y = again;
}

static Status prepare_node(Graph *graph, Arena *scratch, Node *node) {
    Operator o = {.graph = graph, .scratch = scratch, .node = node};
    TRY(read_attributes(&o));
    TRY(move_behind_y(&o));
    bool here = true;
    for (int i = 0; i < o.count; i++) here &= unbarred(node->inputs[i]) == o.named[i];
    if (here) {
        for (int i = 0; i < o.xs; i++) {
            Value *x = o.named[i], *variable = vary(&o, x);
            if (x == o.y) o.y = variable;
            node_set_input(node, i, variable);
        }
    } else {
        compute_elsewhere(&o);
    }
    node_append_input(node, o.y);
    return NULL;
}

static Status prepare_graph(Graph *graph, Arena *scratch) {
    VEC(Node *) nodes = {0};
    FOR_EACH_NODE(node, graph) {
        for (int i = 0; i < node->subgraph_count; i++) TRY(prepare_graph(node->subgraphs[i], scratch));
        if (node->kind == NODE_ONNX && is_gradient(node)) VEC_PUSH(scratch, nodes, node);
    }
    for (int i = 0; i < nodes.count; i++) TRY(prepare_node(graph, scratch, nodes.items[i]));
    return NULL;
}

Status prepare_gradients(Graph *graph, const Policy *policy) {
    (void)policy;
    Arena *scratch = arena_create_inside(graph->arena);
    Status status = prepare_graph(graph, scratch);
    arena_destroy(scratch);
    return status;
}

/* --- questions ------------------------------------------------------------------------------------------------------------ */

bool differentiated_once(const Graph *graph, Map *out) {
    Map made = map_make(out->arena);
    bool any = false;
    FOR_EACH_NODE(node, graph) {
        if (!is_gradient(node)) continue;
        any = true;
        for (int i = 0; i < node->output_count; i++) map_set_id(out, MAP_POINTER_KEY(node->inputs[i]), node->inputs[i]);
    }
    FOR_EACH_NODE(node, graph) {
        bool later = reads_marked(&made, node);
        if (is_gradient(node) && later) return false;
        if (is_gradient(node) || later) mark_outputs(&made, node);
        if (any && reads_marked(out, node)) mark_outputs(out, node);
    }
    return any;
}

/* --- behind lowering ------------------------------------------------------------------------------------------------------- */

static Status expand_node(Graph *graph, Arena *scratch, const Policy *policy, Node *node) {
    Lowering l = {.graph = graph,
                  .arena = graph->arena,
                  .scratch = scratch,
                  .dims = graph->dims,
                  .policy = policy,
                  .elsewhere = true,
                  .place = node};
    int count = node->output_count;
    Value **gradients = ARENA_ARRAY(scratch, Value *, count), *y = node->inputs[node->input_count - 1];
    TRY(status_at(differentiate(&l, y, NULL, node->inputs, count, gradients), "node \"%s\" (Gradient)",
                  node_origin_name(node)));
    for (int i = 0; i < count; i++)
        if (node->outputs[i]) value_replace(graph, node->outputs[i], gradients[i]);
    graph_remove_node(graph, node);
    return NULL;
}

static bool is_differentiated_again(const Graph *graph) {
    bool any = false;
    Map of = map_make(graph->arena);
    FOR_EACH_NODE(node, graph) any |= is_gradient(node);
    return any && !differentiated_once(graph, &of);
}

/* Its results are its first inputs. */
static void take_out(Graph *graph, Node *node) {
    for (int i = 0; i < node->output_count; i++)
        if (node->outputs[i]) value_replace(graph, node->outputs[i], node->inputs[i]);
    graph_remove_node(graph, node);
}

static void take_out_adjoints(Graph *graph) {
    FOR_EACH_NODE_SAFE(node, graph) {
        for (int i = 0; i < node->subgraph_count; i++) take_out_adjoints(node->subgraphs[i]);
        if (is_adjoint(node)) take_out(graph, node);
    }
}

Status expand_gradients(Graph *graph, const Policy *policy) {
    bool any = false;
    if (is_differentiated_again(graph)) take_out_adjoints(graph); /* kernels of gradients have none themselves */
    FOR_EACH_NODE_SAFE(node, graph) {
        if (node->kind != NODE_HOST || node->host) continue;
        any |= is_variable(node) || is_adjoint(node);
        if (!is_gradient(node)) continue;
        Arena *scratch = arena_create_inside(graph->arena);
        Status status = expand_node(graph, scratch, policy, node);
        arena_destroy(scratch);
        TRY(status);
    }
    FOR_EACH_NODE_SAFE(node, graph)
    if (any && node->kind == NODE_HOST && (is_variable(node) || is_adjoint(node))) take_out(graph, node);
    if (any) graph_prune(graph);
    return NULL;
}
