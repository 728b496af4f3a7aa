/* SPDX-License-Identifier: Apache-2.0 */
/* Nodes with bodies: what a body captures becomes inputs of its node, and small loops that one node of the lowered graph becomes. */
#include "lowering/prune.h"
#include "optimize/standard/writer.h"

Writer writer_of_body(Writer *outer, const char *name) {
    Writer w = writer_make(graph_sub(outer->target, name), outer->opset);
    w.node = outer->node;
    w.outer = outer;
    w.error = outer->error;
    return w;
}

Value *add_body_input(Writer *body, const Value *like, bool any_shape) {
    bool shaped = like->kind == VALUE_TENSOR && like->rank >= 0 && !any_shape;
    Value *input = graph_add_input(body->target, like->name, like->dtype, shaped ? like->rank : -1,
                                   shaped ? (const Dim *const *)like->dims : NULL);
    input->kind = like->kind;
    input->key = like->key;
    return input;
}

/* A result of its own for each output: what is handed on, or twice a result, is copied. */
void add_result(Writer *body, Value *value) {
    if (!value || *body->error) return;
    Value *own = value->producer && !value_is_output(value) ? value : copied(body, value);
    if (own) graph_add_output(body->target, own);
}

/* As an input of the body, also where it does not read it. */
static Value *captured_input(const Writer *body, const Value *outside) {
    Value *inner = map_get_id(&body->inner, MAP_POINTER_KEY(outside));
    if (inner) return inner;
    return graph_add_value(body->target, outside->name, outside->dtype, -1, NULL);
}

/* What one of the bodies reads of the outer values. */
static void find_captures(Writer *const *bodies, int count, Map *seen, Node *node) {
    for (int b = 0; b < count; b++)
        for (int i = 0; i < bodies[b]->captures.count; i++) {
            Value *outside = bodies[b]->captures.items[i];
            const Value *inner = map_get_id(&bodies[b]->inner, MAP_POINTER_KEY(outside));
            if (!value_is_read(inner) || map_get_id(seen, MAP_POINTER_KEY(outside))) continue;
            map_set_id(seen, MAP_POINTER_KEY(outside), outside);
            node_append_input(node, outside);
            node->captures++;
        }
}

Node *add_flow_node(Writer *w, const char *op, Value *const *own, int own_count, Writer *const *bodies, int count) {
    Map seen = map_make(w->arena);
    if (*w->error) return NULL;
    Node *node = write_new_node(w, op, own, own_count);
    for (int b = 0; b < count; b++) graph_prune(bodies[b]->target);
    find_captures(bodies, count, &seen, node);
    for (int b = 0; b < count; b++) {
        Graph *graph = bodies[b]->target;
        for (int i = own_count; i < node->input_count; i++)
            VEC_PUSH(graph->arena, graph->inputs, captured_input(bodies[b], node->inputs[i]));
        node_add_subgraph(node, graph);
    }
    return node;
}

Value *add_flow_result(Writer *w, Node *node, const Value *like) {
    Value *result = write_new_result(w, node, like->dtype);
    result->kind = like->kind;
    result->key = like->key;
    return result;
}

/* --- small loops -------------------------------------------------------------------------------------------------------------- */

Repeat *begin_repeat(Writer *w, Value *times, Value *start) {
    if (!times || !start || *w->error) return NULL;
    Repeat *r = ARENA_NEW(w->arena, Repeat);
    *r = (Repeat){.body = writer_of_body(w, "steps"), .times = times, .start = start};
    r->number = graph_add_input(r->body.target, "step", DT_I64, 0, NULL);
    Value *condition = graph_add_input(r->body.target, "condition", DT_BOOL, 0, NULL);
    r->carried = add_body_input(&r->body, start, true);
    add_result(&r->body, condition);
    return r;
}

Value *end_repeat(Writer *w, Repeat *r, Value *next) {
    if (!r) return NULL;
    add_result(&r->body, next);
    Node *node = add_flow_node(w, "Loop", (Value *[]){r->times, NULL, r->start}, 3, (Writer *[]){&r->body}, 1);
    return node ? add_flow_result(w, node, r->start) : NULL;
}
