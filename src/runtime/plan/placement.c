/* SPDX-License-Identifier: Apache-2.0 */
/* Where each node runs: on the device what the device can do, on the host the rest; and on the host also small work
 * between host values, where a trip over the bus would take longer than the work.
 *
 * A value that only the host has costs a copy and a launch on the device, and a wait for the stream when the host needs
 * the result. So primitives and tiny kernels all of whose inputs the host has stay there when they are tiny primitives
 * (graph/space.h: shapes, axes, scalars), or when only host steps read what they make. All else is the
 * device's: the user asked for it. */
#include "graph/space.h"
#include "runtime/plan/planner.h"

/* What the passes over the nodes know of a node; kept in its tag until the end. */
typedef enum Leaning {
    LEANS_HOST,   /* the device cannot, or it is decided */
    LEANS_DEVICE, /* decided */
    LEANS_EITHER, /* the host has all inputs */
} Leaning;

/* A pad behind the data by sizes known at run time alone: of a cache that has room, by nothing. */
static bool may_pad_nothing(const Node *node) {
    const Value *x = node->inputs[0], *y = node->outputs[0];
    int count;
    const Dim *const *before = attr_dims(node, "before", &count);
    bool may = node->prim == PRIM_PAD && count == x->rank;
    for (int i = 0; may && i < count; i++)
        may = dim_equals(before[i], 0) &&
              (x->dims[i] == y->dims[i] || !(dim_is_const(x->dims[i], NULL) && dim_is_const(y->dims[i], NULL)));
    return may;
}

StepKind step_kind_of(const Node *node) {
    switch (node->kind) {
    case NODE_REGION: return STEP_KERNEL;
    case NODE_ANCHOR: return STEP_ANCHOR;
    case NODE_HOST:
        if (!node->host && strcmp(node->op, "bind_sizes") == 0) return STEP_BIND;
        return node->subgraph_count && !node->host ? STEP_CONTROL : STEP_HOST;
    default:
        if (node->prim == PRIM_DIMS) return STEP_DIMS;
        return node->prim == PRIM_EXPAND || may_pad_nothing(node) ? STEP_RESOLVE : STEP_PRIM;
    }
}

bool node_is_alias(const Node *node) { return node->kind == NODE_PRIM && node->prim == PRIM_RESHAPE; }

static bool is_number_tensor(const Value *v) {
    return !v || (v->kind == VALUE_TENSOR && v->rank >= 0 && v->dtype != DT_STRING);
}

static bool device_can(const Device *device, const Node *node) {
    StepKind kind = step_kind_of(node);
    if (node->on_host) return false;
    if (kind == STEP_HOST) return device->table->runs_host && device->table->runs_host(device, node);
    if (kind != STEP_KERNEL && kind != STEP_ANCHOR && kind != STEP_PRIM && kind != STEP_RESOLVE) return false;
    for (int i = 0; i < node->input_count; i++)
        if (!is_number_tensor(node->inputs[i])) return false;
    for (int o = 0; o < node->output_count; o++)
        if (!is_number_tensor(node->outputs[o])) return false;
    return !device->table->runs || device->table->runs(device, node);
}

bool placement_is_forced(const Device *device, const Step *step) {
    StepKind kind = step->kind;
    bool computes =
        kind == STEP_HOST || kind == STEP_KERNEL || kind == STEP_ANCHOR || kind == STEP_PRIM || kind == STEP_RESOLVE;
    bool tiny = kind == STEP_PRIM && is_tiny(step->node);
    return computes && !tiny && !step->node->on_host && !device_can(device, step->node);
}

/* Constants are in both places, at no cost a run. */
static bool host_has_inputs(const Node *node) {
    for (int i = 0; i < node->input_count; i++) {
        const Value *v = node->inputs[i];
        if (v && !v->constant && v->producer && v->producer->tag == LEANS_DEVICE) return false;
    }
    return true;
}

static void lean(const Graph *graph, const Device *device) {
    FOR_EACH_NODE(node, graph) {
        bool moves = node->kind == NODE_PRIM, here = host_has_inputs(node);
        if (node_is_alias(node)) { /* goes with its input: of an input that leans either way, so does the alias */
            const Node *producer = node->inputs[0]->producer;
            node->tag = producer ? producer->tag : LEANS_HOST;
        } else if (!device_can(device, node)) {
            node->tag = LEANS_HOST;
        } else {
            node->tag = here && (moves || (node->kind == NODE_REGION && is_tiny(node))) ? LEANS_EITHER : LEANS_DEVICE;
        }
    }
}

/* Whether steps read the node's results, and all of them on the host. */
static bool only_host_reads(const Node *node, Arena *scratch) {
    int readers = 0;
    VEC(const Node *) views = {0}; /* it and the views of its results: no recursion, they may be many */
    VEC_PUSH(scratch, views, node);
    while (views.count) {
        node = views.items[--views.count];
        bool read = false;
        for (int o = 0; o < node->output_count; o++) {
            const Value *v = node->outputs[o];
            if (v && value_is_output(v)) return false;
            for (int u = 0; v && u < v->uses.count; u++) {
                const Node *reader = v->uses.items[u].node;
                read = true;
                if (node_is_alias(reader))
                    VEC_PUSH(scratch, views, reader);
                else if (reader->tag != LEANS_HOST)
                    return false;
                else
                    readers++;
            }
        }
        if (!read) return false;
    }
    return readers > 0;
}

/* Backwards, so that readers are decided first. */
static void settle(const Graph *graph, Arena *scratch) {
    for (Node *node = graph->last; node; node = node->prev) {
        if (node->tag != LEANS_EITHER || node_is_alias(node)) continue;
        bool tiny_move = node->kind == NODE_PRIM && is_tiny(node);
        node->tag = tiny_move || only_host_reads(node, scratch) ? LEANS_HOST : LEANS_DEVICE;
    }
}

/* What stays on the host for the sake of inputs that have gone to the device after all follows them. */
static void follow(const Graph *graph, const Device *device, const Map *either) {
    FOR_EACH_NODE(node, graph) {
        if (node_is_alias(node)) {
            const Node *producer = node->inputs[0]->producer;
            node->tag = producer ? producer->tag : LEANS_HOST;
        } else if (map_get_id(either, MAP_POINTER_KEY(node)) && node->tag == LEANS_HOST && !host_has_inputs(node) &&
                   device_can(device, node)) {
            node->tag = LEANS_DEVICE;
        }
    }
}

void placement_choose(const Graph *graph, const Device *device, Arena *scratch) {
    Map either = map_make(scratch);
    lean(graph, device);
    FOR_EACH_NODE(node, graph)
    if (node->tag == LEANS_EITHER) map_set_id(&either, MAP_POINTER_KEY(node), node);
    settle(graph, scratch);
    follow(graph, device, &either);
    FOR_EACH_NODE(node, graph) node->tag = node->tag == LEANS_DEVICE ? PLACE_DEVICE : PLACE_HOST;
}
