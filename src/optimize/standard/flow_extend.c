/* SPDX-License-Identifier: Apache-2.0 */
/* Further results of a Loop or Scan that stands in the target: of the model's own, what a gradient reads of its steps. So it is neither written nor
 * run twice, and what it draws is drawn once. */
#include "lowering/prune.h"
#include "optimize/standard/flow.h"

Node *flow_in_target(const Sweep *s, const Node *n) {
    for (int i = 0; i < n->output_count && !n->backward; i++)
        for (const ModelValue *m = n->outputs[i] ? n->outputs[i]->stands_for : NULL; m; m = m->next) {
            const Value *value = m->perm ? NULL : map_get(&s->available, m->name);
            if (value && value->producer && strcmp(value->producer->op, n->op) == 0) return value->producer;
        }
    return NULL;
}

Sweep *sweep_of_body_in_target(Sweep *s, const Steps *t, const Node *there) {
    Sweep *body = sweep_of_body(s, t->node, 0);
    Graph *graph = there->subgraphs[0];
    if (body->w.target == graph) return body;
    body->w.target = graph;
    for (int i = 0; i < t->body->inputs.count - t->node->captures; i++)
        map_set_id(&body->w.forms, MAP_POINTER_KEY(t->body->inputs.items[i]), graph->inputs.items[i]);
    for (int i = 0; i < there->captures; i++)
        map_set_id(&body->w.inner, MAP_POINTER_KEY(there->inputs[there->input_count - there->captures + i]),
                   graph->inputs.items[graph->inputs.count - there->captures + i]);
    FOR_EACH_NODE(node, graph) add_available(body, node);
    return body;
}

typedef VEC(Value *) Values;

/* What the node at `at` reads is moved before it. `before`: nodes that stand there. */
static void move_before(Writer *w, Node *node, Node *at, Map *before) {
    if (map_get_id(before, MAP_POINTER_KEY(node))) return;
    map_set_id(before, MAP_POINTER_KEY(node), node);
    for (int i = 0; i < node->input_count; i++) {
        Node *maker = node->inputs[i] ? node->inputs[i]->producer : NULL;
        if (maker == at && !*w->error)
            *w->error = status_error(STATUS_FAULT, "\"%s\" would be computed of itself", node->inputs[i]->name);
        if (maker && maker != at) move_before(w, maker, at, before);
    }
    if (node != at) graph_move_before(w->target, node, at);
}

static void move_inputs_before(Writer *w, Node *at) {
    Map before = map_make(w->arena);
    for (Node *node = w->target->first; node != at; node = node->next) map_set_id(&before, MAP_POINTER_KEY(node), node);
    move_before(w, at, at, &before);
}

/* In the place of `there`, with its body. Results that had no name get one, as others come behind them. */
static Node *replace_node(Writer *w, Node *there, const Values *inputs, int captures) {
    Node *node = graph_add_node(w->target, there, NODE_ONNX, there->op, inputs->items, inputs->count);
    node->domain = there->domain;
    node->opset = there->opset;
    node->origin = there->origin;
    node->wanted = there->wanted;
    node->captures = captures;
    node_follow_rules(node, there);
    for (int i = 0; i < there->attrs.count; i++) node_set_attr(node, there->attrs.items[i]);
    node_add_subgraph(node, there->subgraphs[0]);
    return node;
}

static void move_result(Writer *w, Node *node, const Node *there, int index, const Value *like) {
    Value *value = index < there->output_count ? there->outputs[index] : NULL;
    if (value) {
        value->producer = NULL;
        node_attach_output(node, value);
    } else
        add_flow_result(w, node, like);
}

/* Of a Scan, whose further results are stacked in the order of the steps. */
static void add_axes(Writer *w, Node *node, const char *name, int count) {
    int given;
    const int64_t *old = attr_ints(node, name, &given);
    int64_t *all = ARENA_ARRAY(w->arena, int64_t, count);
    for (int i = 0; i < given; i++) all[i] = old[i];
    node_set_ints(node, name, all, count);
}

/* The body's outputs: as they were up to `carried`, sequences that are carried, the rest, further stacks. */
static void add_body_results(Sweep *body, const Steps *t, int carried, Value *const *so_far) {
    Writer *b = &body->w;
    Graph *graph = b->target;
    int count = graph->outputs.count, results = t->body->outputs.count - t->lead;
    Value **old = arena_copy(b->arena, graph->outputs.items, (size_t)count * sizeof *old);
    const char **names = arena_copy(b->arena, graph->output_names.items, (size_t)count * sizeof *names);
    Values added = {0};
    for (int i = 0; i < results; i++)
        if (so_far[i]) VEC_PUSH(b->arena, added, append_elements(body, so_far[i], result_of(t, i)));
    graph_truncate_outputs(graph, 0);
    for (int i = 0; i < carried; i++) graph_add_named_output(graph, old[i], names[i]);
    for (int i = 0; i < added.count; i++) add_result(b, added.items[i]);
    for (int i = carried; i < count; i++) graph_add_named_output(graph, old[i], names[i]);
    for (int i = 0; i < results; i++)
        if (is_stack(body->outer, t, i, VALUE_TENSOR)) add_result(b, written_result(body, t->lead + i));
    graph_prune(graph);
}

void extend_flow(Sweep *s, const Steps *t, Node *there) {
    Sweep *body = sweep_of_body_in_target(s, t, there);
    Writer *w = &s->w, *b = &body->w;
    Graph *graph = b->target;
    int own = there->input_count - there->captures, own_inside = graph->inputs.count - there->captures;
    int results = t->body->outputs.count - t->lead, before = graph->outputs.count - t->lead;
    Values inputs = {0}, inside = {0};
    Value **so_far = ARENA_ARRAY(w->arena, Value *, results);
    if (write_needed(body)) return;
    for (int i = 0; i < t->first + t->carried + t->scanned; i++)
        VEC_PUSH(w->arena, inputs, i < own ? there->inputs[i] : NULL);
    for (int i = 0; i < own_inside; i++) VEC_PUSH(w->arena, inside, graph->inputs.items[i]);
    for (int i = 0; i < results; i++) {
        if (!is_stack(s, t, i, VALUE_SEQUENCE)) continue;
        if (!t->is_loop) return refuse(w, "its Scan would have to carry a sequence, which the standard does not allow");
        Value *start = no_elements(w, result_of(t, i)->dtype);
        if (!start) return;
        so_far[i] = graph_add_value(graph, NULL, start->dtype, -1, NULL);
        so_far[i]->kind = VALUE_SEQUENCE;
        VEC_PUSH(w->arena, inputs, start);
        VEC_PUSH(w->arena, inside, so_far[i]);
    }
    add_body_results(body, t, t->lead + t->carried, so_far);
    if (*w->error) return;
    for (int i = 0; i < there->captures; i++) {
        VEC_PUSH(w->arena, inputs, there->inputs[own + i]);
        VEC_PUSH(w->arena, inside, graph->inputs.items[own_inside + i]);
    }
    for (int i = 0; i < b->captures.count; i++) {
        VEC_PUSH(w->arena, inputs, b->captures.items[i]);
        VEC_PUSH(w->arena, inside, map_get_id(&b->inner, MAP_POINTER_KEY(b->captures.items[i])));
    }
    graph->inputs.count = 0;
    for (int i = 0; i < inside.count; i++) VEC_PUSH(graph->arena, graph->inputs, inside.items[i]);

    Node *node = replace_node(w, there, &inputs, there->captures + b->captures.count);
    for (int i = 0; i < t->carried; i++) {
        move_result(w, node, there, i, carried_input(t, i));
        if (is_asked(s, output_of(t, i))) set_form(w, output_of(t, i), node->outputs[i]);
    }
    for (int i = 0; i < results; i++)
        if (so_far[i]) give_result(s, node, output_of(t, i));
    for (int i = t->carried; i < before; i++) move_result(w, node, there, i, result_of(t, i));
    for (int i = 0; i < results; i++)
        if (is_stack(s, t, i, VALUE_TENSOR)) give_result(s, node, output_of(t, i));
    if (!t->is_loop) {
        add_axes(w, node, "scan_output_axes", graph->outputs.count - t->carried);
        add_axes(w, node, "scan_output_directions", graph->outputs.count - t->carried);
    }
    there->output_count = there->subgraph_count = 0;
    graph_remove_node(w->target, there);
    move_inputs_before(w, node);
}
