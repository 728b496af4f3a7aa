/* SPDX-License-Identifier: Apache-2.0 */
/* Primitives to a region node with a body of its own. Constants of one element stand in the body, all else that comes
 * from outside is an input. */
#include "passes/region.h"

enum { MOST_INPUTS = 16 }; /* of a primitive that may stand in a region */

typedef struct Making {
    Graph *graph, *body;
    Node *region;
    Map inside; /* Node * that become the body */
    Map values; /* Value * of the graph -> Value * of the body */
} Making;

static bool used_outside(const Making *m, const Value *v) {
    for (int i = 0; i < v->uses.count; i++)
        if (!map_get_id(&m->inside, MAP_POINTER_KEY(v->uses.items[i].node))) return true;
    return value_is_output(v);
}

bool region_holds(const Value *v) { return v->constant && tensor_count(v->constant) == 1 && v->dtype != DT_STRING; }

static Value *body_value(Making *m, Value *v) {
    Value *mapped = map_get_id(&m->values, MAP_POINTER_KEY(v));
    if (mapped) return mapped;
    if (region_holds(v)) {
        mapped = graph_add_constant(m->body, v->name, v->constant);
    } else {
        mapped = graph_add_input(m->body, v->name, v->dtype, v->rank, v->dims);
        node_append_input(m->region, v);
    }
    map_set_id(&m->values, MAP_POINTER_KEY(v), mapped);
    return mapped;
}

static Value *copy_node(Making *m, const Node *node) {
    Value *inputs[MOST_INPUTS];
    for (int i = 0; i < node->input_count; i++) inputs[i] = body_value(m, node->inputs[i]);
    Node *copy = graph_add_prim(m->body, NULL, node->prim, inputs, node->input_count);
    for (int i = 0; i < node->attrs.count; i++) node_set_attr(copy, node->attrs.items[i]);
    copy->origin = node->origin;
    copy->backward = node->backward;
    copy->repeats = node->repeats;
    const Value *old = node->outputs[0];
    Value *fresh = node_add_output(copy, old->name, old->dtype, old->rank, old->dims);
    map_set_id(&m->values, MAP_POINTER_KEY(old), fresh);
    return fresh;
}

static void merge_origins(Making *m, Arena *scratch, Node *const *nodes, int count, const Node *first) {
    Origin *origins = ARENA_ARRAY(scratch, Origin, count + 1);
    int total = 0;
    if (first) origins[total++] = first->origin;
    for (int k = 0; k < count; k++) origins[total++] = nodes[k]->origin;
    Origin origin = origin_merge(scratch, origins, total);
    size_t names = (size_t)origin.count * sizeof *origin.names;
    m->region->origin = (Origin){arena_copy(m->graph->arena, origin.names, names), origin.count};
}

/* The body's nodes and outputs; the node's outputs take the place of what they stand for. */
static void fill_body(Making *m, Arena *scratch, Node *const *nodes, int count, Value *raw) {
    VEC(Value *) results = {0};
    for (int k = 0; k < count; k++) map_set_id(&m->inside, MAP_POINTER_KEY(nodes[k]), nodes[k]);
    if (raw && used_outside(m, raw)) {
        graph_add_output(m->body, map_get_id(&m->values, MAP_POINTER_KEY(raw)));
        VEC_PUSH(scratch, results, raw);
    }
    for (int k = 0; k < count; k++) {
        Value *copy = copy_node(m, nodes[k]);
        if (!used_outside(m, nodes[k]->outputs[0])) continue;
        graph_add_output(m->body, copy);
        VEC_PUSH(scratch, results, nodes[k]->outputs[0]);
    }
    for (int i = 0; i < results.count; i++) {
        Value *old = results.items[i];
        value_replace(m->graph, old, node_add_output(m->region, NULL, old->dtype, old->rank, old->dims));
    }
    for (int k = count - 1; k >= 0; k--) graph_remove_node(m->graph, nodes[k]);
}

Node *region_make(Graph *graph, Arena *scratch, Node *const *nodes, int count) {
    Making m = {.graph = graph,
                .body = graph_sub(graph, "region"),
                .region = graph_add_node(graph, nodes[0], NODE_REGION, "region", NULL, 0),
                .inside = map_make(scratch),
                .values = map_make(scratch)};
    merge_origins(&m, scratch, nodes, count, NULL);
    m.region->backward = true;
    for (int k = 0; k < count; k++) m.region->backward &= nodes[k]->backward;
    node_add_subgraph(m.region, m.body);
    fill_body(&m, scratch, nodes, count, NULL);
    return m.region;
}

Node *epilogue_make(Graph *graph, Arena *scratch, Node *anchor, Node *const *nodes, int count) {
    Node *copy = graph_add_node(graph, anchor, NODE_ANCHOR, anchor->op, anchor->inputs, anchor->input_count);
    Making m = {.graph = graph,
                .body = graph_sub(graph, "epilogue"),
                .region = copy,
                .inside = map_make(scratch),
                .values = map_make(scratch)};
    Value *raw = anchor->outputs[0];
    for (int i = 0; i < anchor->attrs.count; i++) node_set_attr(copy, anchor->attrs.items[i]);
    node_follow_rules(copy, anchor);
    copy->tag = anchor->tag;
    merge_origins(&m, scratch, nodes, count, anchor);
    node_add_subgraph(copy, m.body);
    map_set_id(&m.values, MAP_POINTER_KEY(raw), graph_add_input(m.body, raw->name, raw->dtype, raw->rank, raw->dims));
    fill_body(&m, scratch, nodes, count, raw);
    graph_remove_node(graph, anchor);
    return copy;
}
