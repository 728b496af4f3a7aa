/* SPDX-License-Identifier: Apache-2.0 */
/* Node by node, each value once. Constants are copied where they are read; their data is shared. */
#include "lowering/subgraph.h"

typedef struct Copy {
    Graph *target;
    Node *before; /* in target; NULL: at the end */
    Map values;   /* source Value * -> target Value * */
    Map groups;   /* source Node.group -> target's */
} Copy;

void pass_type(Value *to, const Value *from) {
    to->kind = from->kind;
    to->dtype = from->dtype;
    to->key = from->key;
    to->rank = from->rank;
    to->dims = from->dims;
    to->content = from->content;
}

/* The copy of a value that a node or output reads: made on demand for constants. */
static Value *copied(Copy *copy, const Value *value) {
    if (!value) return NULL;
    Value *known = map_get_id(&copy->values, MAP_POINTER_KEY(value));
    if (known) return known;
    Value *made = value->constant ? graph_add_constant(copy->target, value->name, value->constant)
                                  : graph_add_value(copy->target, value->name, value->dtype, -1, NULL);
    pass_type(made, value);
    made->stands_for = value->stands_for;
    map_set_id(&copy->values, MAP_POINTER_KEY(value), made);
    return made;
}

/* Each copy of a group is a group: a body may stand several times in one graph. */
static int copied_group(Copy *copy, int group) {
    ModelInfo *info = copy->target->info;
    if (!group) return 0;
    intptr_t known = (intptr_t)map_get_id(&copy->groups, (uint64_t)group);
    if (known) return (int)known;
    NodeGroup again = info->groups.items[group - 1];
    if (!again.original) again.original = group;
    VEC_PUSH(copy->target->arena, info->groups, again);
    map_set_id(&copy->groups, (uint64_t)group, (void *)(intptr_t)info->groups.count);
    return info->groups.count;
}

static void copy_node(Copy *copy, const Node *node) {
    Arena *arena = copy->target->arena;
    Value **inputs = ARENA_ARRAY(arena, Value *, node->input_count);
    for (int i = 0; i < node->input_count; i++) inputs[i] = copied(copy, node->inputs[i]);
    Node *made = graph_add_node(copy->target, copy->before, node->kind, node->op, inputs, node->input_count);
    made->domain = node->domain;
    made->opset = node->opset;
    made->host = node->host;
    made->custom = node->custom;
    made->group = copied_group(copy, node->group);
    made->captures = node->captures;
    made->origin = node->origin;
    made->wanted = node->wanted;
    node_follow_rules(made, node);
    for (int i = 0; i < node->attrs.count; i++) node_set_attr(made, node->attrs.items[i]);
    for (int i = 0; i < node->subgraph_count; i++)
        node_add_subgraph(made, clone_graph(copy->target, node->subgraphs[i]));
    for (int i = 0; i < node->output_count; i++) node_attach_output(made, copied(copy, node->outputs[i]));
}

void copy_node_to(Graph *target, Node *before, const Node *node, Map *values) {
    Copy copy = {target, before, *values, map_make(target->arena)};
    copy_node(&copy, node);
    *values = copy.values;
}

Graph *clone_graph(Graph *parent, const Graph *source) {
    Graph *target = graph_sub(parent, source->name);
    Copy copy = {target, NULL, map_make(target->arena), map_make(target->arena)};
    for (int i = 0; i < source->inputs.count; i++) {
        const Value *input = source->inputs.items[i];
        Value *made = graph_add_input(target, input->name, input->dtype, -1, NULL);
        pass_type(made, input);
        map_set_id(&copy.values, MAP_POINTER_KEY(input), made);
    }
    FOR_EACH_NODE(node, source) copy_node(&copy, node);
    for (int i = 0; i < source->outputs.count; i++)
        graph_add_named_output(target, copied(&copy, source->outputs.items[i]), source->output_names.items[i]);
    return target;
}

void inline_graph_in(Graph *target, Node *before, const Graph *body, Value *const *inputs, Value **outputs) {
    Copy copy = {target, before, map_make(target->arena), map_make(target->arena)};
    for (int i = 0; i < body->inputs.count; i++)
        map_set_id(&copy.values, MAP_POINTER_KEY(body->inputs.items[i]), inputs[i]);
    FOR_EACH_NODE(node, body) copy_node(&copy, node);
    for (int i = 0; i < body->outputs.count; i++) outputs[i] = copied(&copy, body->outputs.items[i]);
}

void inline_graph(Lowering *l, const Graph *body, Value *const *inputs, Value **outputs) {
    inline_graph_in(l->graph, (Node *)l->node, body, inputs, outputs);
}

void inline_graph_behind(Lowering *l, const Graph *body, Value *const *inputs, Value **outputs) {
    inline_graph_in(l->graph, l->node->next, body, inputs, outputs);
}

typedef VEC(const Tensor *) Tensors;

/* Of the constants those that a body holds, each once. */
static void add_held(Arena *arena, const Graph *body, const Map *constants, Tensors *held) {
    for (int i = 0; i < body->values.count; i++) {
        const Value *inner = body->values.items[i];
        const Tensor *tensor = inner->constant;
        bool known = !tensor || !value_is_read(inner) || !map_get_id(constants, MAP_POINTER_KEY(tensor));
        for (int k = 0; k < held->count && !known; k++) known = held->items[k] == tensor;
        if (!known) VEC_PUSH(arena, *held, tensor);
    }
    FOR_EACH_NODE(node, body)
    for (int i = 0; i < node->subgraph_count; i++) add_held(arena, node->subgraphs[i], constants, held);
}

/* The body's further inputs are what it held; copies of them are replaced, deeper ones too. */
static void read_from_outside(Graph *body, const Tensors *held, const Map *constants) {
    Map inner = map_make(body->arena);
    int own = body->values.count;
    for (int i = 0; i < held->count; i++) {
        const Tensor *tensor = held->items[i];
        Value *input = graph_add_input(body, NULL, tensor->dtype, -1, NULL);
        pass_type(input, map_get_id(constants, MAP_POINTER_KEY(tensor)));
        input->content = NULL;
        map_set_id(&inner, MAP_POINTER_KEY(tensor), input);
    }
    for (int i = 0; i < own; i++) {
        Value *copy = body->values.items[i];
        Value *input = copy->constant ? map_get_id(&inner, MAP_POINTER_KEY(copy->constant)) : NULL;
        if (input) value_replace(body, copy, input);
    }
    capture_constants(body, &inner);
}

void capture_constants(Graph *graph, const Map *constants) {
    FOR_EACH_NODE(node, graph) {
        Tensors held = {0};
        for (int i = 0; i < node->subgraph_count; i++) add_held(graph->arena, node->subgraphs[i], constants, &held);
        for (int i = 0; i < held.count; i++)
            node_append_input(node, map_get_id(constants, MAP_POINTER_KEY(held.items[i])));
        node->captures += held.count;
        for (int i = 0; held.count && i < node->subgraph_count; i++)
            read_from_outside(node->subgraphs[i], &held, constants);
    }
}

/* ---- constants of bodies that become the graph's ---- */

typedef struct Lift {
    Graph *graph;
    WantedFn wanted;
    void *context;
    Map *constants;
    Map seen, names; /* Tensor; name -> what has it inside */
} Lift;

static const char *name_outside(Lift *lift, const Value *inside) {
    const char *name = inside->name;
    for (int i = 2; map_get(&lift->graph->names, name) || map_get(&lift->names, name); i++)
        name = arena_format(lift->graph->arena, "%s.%d", inside->name, i);
    map_set(&lift->names, name, (void *)(uintptr_t)inside);
    return name;
}

static void lift_from(Lift *lift, const Graph *body) {
    for (int i = 0; i < body->values.count; i++) {
        const Value *inside = body->values.items[i];
        uint64_t key = MAP_POINTER_KEY(inside->constant);
        if (!inside->constant || map_get_id(&lift->seen, key)) continue;
        map_set_id(&lift->seen, key, (void *)(uintptr_t)inside);
        const char *name = name_outside(lift, inside);
        if (lift->wanted(lift->context, inside, name))
            map_set_id(lift->constants, key, graph_add_constant(lift->graph, name, inside->constant));
    }
    FOR_EACH_NODE(node, body)
    for (int i = 0; i < node->subgraph_count; i++) lift_from(lift, node->subgraphs[i]);
}

void lift_constants(Graph *graph, WantedFn wanted, void *context, Map *constants) {
    Lift lift = {graph, wanted, context, constants, map_make(graph->arena), map_make(graph->arena)};
    for (int i = 0, own = graph->values.count; i < own; i++)
        if (graph->values.items[i]->constant)
            map_set_id(&lift.seen, MAP_POINTER_KEY(graph->values.items[i]->constant), &lift);
    FOR_EACH_NODE(node, graph)
    for (int i = 0; i < node->subgraph_count; i++) lift_from(&lift, node->subgraphs[i]);
}

/* --- Scans that lowering makes ------------------------------------------------------------------------------------------------ */

ScanBody scan_begin(Lowering *l, const char *name) {
    return (ScanBody){
        .in = {.graph = graph_sub(l->graph, name), .arena = l->arena, .dims = l->dims, .policy = l->policy}};
}

static Value *scan_input(ScanBody *s, Value *outside, int *count, int first_axis) {
    if (!outside) return NULL;
    s->inputs[s->states + s->scanned + s->captured] = outside;
    ++*count;
    return graph_add_input(s->in.graph, NULL, outside->dtype, outside->rank - first_axis,
                           (const Dim *const *)outside->dims + first_axis);
}

Value *scan_state(ScanBody *s, Value *first) { return scan_input(s, first, &s->states, 0); }

Value *scan_element(ScanBody *s, Value *all) { return scan_input(s, all, &s->scanned, 1); }

Value *scan_captured(ScanBody *s, Value *value) {
    if (value && value->constant) return graph_add_constant(s->in.graph, value->name, value->constant);
    return scan_input(s, value, &s->captured, 0);
}

void scan_end(Lowering *l, const Node *n, ScanBody *s, const Dim *length, bool backwards, Value *const *given,
              int count, Value **out_results) {
    static const int64_t zeros[MOST_SCAN_INPUTS];
    int64_t directions[MOST_SCAN_INPUTS];
    if (!l->error) l->error = s->in.error;
    if (l->error) return;
    for (int i = 0; i < MOST_SCAN_INPUTS; i++) directions[i] = backwards;
    for (int i = 0; i < count; i++) graph_add_output(s->in.graph, given[i]);
    FOR_EACH_NODE(node, s->in.graph) {
        node->origin = n->origin;
        node_follow_rules(node, n);
    }
    Node *scan = host_node(l, n, NULL, s->inputs, s->states + s->scanned + s->captured);
    scan->op = "Scan";
    scan->attrs.count = 0; /* those of n */
    scan->captures = s->captured;
    node_add_subgraph(scan, s->in.graph);
    node_set_int(scan, "num_scan_inputs", s->scanned);
    node_set_ints(scan, "scan_input_axes", zeros, s->scanned);
    node_set_ints(scan, "scan_input_directions", directions, s->scanned);
    node_set_ints(scan, "scan_output_axes", zeros, count - s->states);
    node_set_ints(scan, "scan_output_directions", directions, count - s->states);
    for (int i = 0; i < count; i++) {
        const Dim *dims[MAX_RANK] = {length};
        if (i >= s->states) memcpy(dims + 1, given[i]->dims, (size_t)given[i]->rank * sizeof *dims);
        out_results[i] = i < s->states ? host_result_like(l, scan, s->inputs[i])
                                       : host_result(l, scan, given[i]->dtype, given[i]->rank + 1, dims);
    }
}
