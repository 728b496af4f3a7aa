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

static bool is_inline_constant(const Value *v) {
    return v->constant && tensor_count(v->constant) == 1 && v->dtype != DT_STRING;
}

static Value *body_value(Making *m, Value *v) {
    Value *mapped = map_get_id(&m->values, MAP_POINTER_KEY(v));
    if (mapped) return mapped;
    if (is_inline_constant(v)) {
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
    const Value *old = node->outputs[0];
    Value *fresh = node_add_output(copy, old->name, old->dtype, old->rank, old->dims);
    map_set_id(&m->values, MAP_POINTER_KEY(old), fresh);
    return fresh;
}

Node *region_make(Graph *graph, Arena *scratch, Node *const *nodes, int count) {
    Making m = {.graph = graph,
                .body = graph_sub(graph, "region"),
                .region = graph_add_node(graph, nodes[0], NODE_REGION, "region", NULL, 0),
                .inside = map_make(scratch),
                .values = map_make(scratch)};
    VEC(Value *) results = {0};
    Origin *origins = ARENA_ARRAY(scratch, Origin, count);
    for (int k = 0; k < count; k++) origins[k] = nodes[k]->origin;
    Origin origin = origin_merge(scratch, origins, count);
    size_t names = (size_t)origin.count * sizeof *origin.names;
    m.region->origin = (Origin){arena_copy(graph->arena, origin.names, names), origin.count};
    node_add_subgraph(m.region, m.body);
    for (int k = 0; k < count; k++) map_set_id(&m.inside, MAP_POINTER_KEY(nodes[k]), nodes[k]);
    for (int k = 0; k < count; k++) {
        Value *copy = copy_node(&m, nodes[k]);
        if (!used_outside(&m, nodes[k]->outputs[0])) continue;
        graph_add_output(m.body, copy);
        VEC_PUSH(scratch, results, nodes[k]->outputs[0]);
    }
    for (int i = 0; i < results.count; i++) {
        Value *old = results.items[i];
        value_replace(graph, old, node_add_output(m.region, NULL, old->dtype, old->rank, old->dims));
    }
    for (int k = count - 1; k >= 0; k--) graph_remove_node(graph, nodes[k]);
    return m.region;
}
