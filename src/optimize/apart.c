/* SPDX-License-Identifier: Apache-2.0 */
/* Nodes that depend on a gradient of an output are the backward pass's, and so are those that were made for it alone; the rest is the forward's. */
#include "optimize/apart.h"

#include "lowering/prune.h"

/* Tags of nodes. AGAIN: of the forward pass, and made once more behind it. */
enum { FORWARD, RANDOM, AGAIN, BACKWARD };

static bool depends(const Map *seeds, const Node *node) {
    for (int i = 0; i < node->input_count; i++) {
        const Value *v = node->inputs[i];
        if (v && (v->producer ? v->producer->tag == BACKWARD : map_get_id(seeds, MAP_POINTER_KEY(v)) != NULL))
            return true;
    }
    return false;
}

/* Random words, and what is computed of them and constants alone. */
static bool is_random(const Node *node) {
    bool words = node->prim == PRIM_PHILOX;
    for (int i = 0; i < node->input_count; i++) {
        const Value *v = node->inputs[i];
        bool random = v && v->producer && v->producer->tag == RANDOM;
        if (!random && !(v && v->constant)) return false;
        words |= random;
    }
    return words;
}

/* Another view of what it reads. */
static bool is_view(const Node *node) {
    return node->prim == PRIM_RESHAPE || node->prim == PRIM_PERMUTE || node->prim == PRIM_EXPAND;
}

/* Whether it computes for gradients alone: what they need of forward values, which may as well be made behind the split. Where the gradient of a
 * sequence is zero it has no tensors (ops/sequence/sequence_gradient.c), which only the backward graph may hold; so may optionals of such. */
static bool is_of_gradients(const Node *node) {
    bool container =
        node->kind == NODE_HOST && node->output_count && node->outputs[0] && node->outputs[0]->kind != VALUE_TENSOR;
    return node->backward && (node->kind == NODE_PRIM || container);
}

static void mark(Graph *graph, const Apart *apart, Arena *scratch) {
    Map seeds = map_make(scratch), needed = map_make(scratch);
    for (int i = apart->seeds; i < graph->inputs.count; i++)
        map_set_id(&seeds, MAP_POINTER_KEY(graph->inputs.items[i]), graph->inputs.items[i]);
    FOR_EACH_NODE(node, graph) {
        bool prim = node->kind == NODE_PRIM;
        node->tag = depends(&seeds, node) || is_of_gradients(node) ? BACKWARD
                    : prim && is_random(node)                      ? RANDOM
                                                                   : FORWARD;
    }
    for (Node *node = graph->last; node; node = node->prev) {
        bool reads = node->tag == BACKWARD;
        for (int o = 0; o < node->output_count && !reads; o++)
            reads = node->outputs[o] && map_get_id(&needed, MAP_POINTER_KEY(node->outputs[o])) &&
                    node->kind == NODE_PRIM && (node->tag == RANDOM || is_view(node));
        if (!reads) continue;
        if (node->tag != BACKWARD) node->tag = AGAIN;
        for (int i = 0; i < node->input_count; i++)
            if (node->inputs[i]) map_set_id(&needed, MAP_POINTER_KEY(node->inputs[i]), node->inputs[i]);
    }
}

static bool is_saved(const Graph *graph, const Apart *apart, const Value *value) {
    for (int i = 0; i < value->uses.count; i++)
        if (value->uses.items[i].node->tag >= AGAIN) return true;
    for (int o = apart->gradients; o < graph->outputs.count; o++)
        if (graph->outputs.items[o] == value) return true;
    return false;
}

typedef VEC(Value *) Values;

static Values find_saved(const Graph *graph, const Apart *apart, Arena *scratch) {
    Values saved = {0};
    FOR_EACH_NODE(node, graph)
    for (int o = 0; o < node->output_count && node->tag < AGAIN; o++)
        if (node->outputs[o] && is_saved(graph, apart, node->outputs[o])) VEC_PUSH(scratch, saved, node->outputs[o]);
    return saved;
}

static void keep_forward(Graph *graph, const Apart *apart, const Values *saved) {
    graph_truncate_outputs(graph, apart->gradients);
    for (int i = 0; i < saved->count; i++)
        graph_add_named_output(graph, saved->items[i], arena_format(graph->arena, "saved.%d", i));
    graph_prune(graph);
    graph->inputs.count = apart->seeds;
}

static void keep_backward(Graph *graph, const Apart *apart, const Values *saved, Arena *scratch) {
    int count = graph->outputs.count - apart->gradients;
    for (int i = 0; i < saved->count; i++) {
        Value *from = saved->items[i];
        Value *input =
            graph_add_input(graph, arena_format(graph->arena, "saved.%d", i), from->dtype, from->rank, from->dims);
        input->kind = from->kind;
        input->key = from->key;
        value_replace(graph, from, input);
    }
    Value **gradients = ARENA_ARRAY(scratch, Value *, count + 1);
    const char **names = ARENA_ARRAY(scratch, const char *, count + 1);
    for (int i = 0; i < count; i++) {
        gradients[i] = graph->outputs.items[apart->gradients + i];
        names[i] = graph->output_names.items[apart->gradients + i];
    }
    graph_truncate_outputs(graph, 0);
    for (int i = 0; i < count; i++) graph_add_named_output(graph, gradients[i], names[i]);
    graph_prune(graph);
}

void split_apart(Graph *graph, Apart *apart) {
    Arena *scratch = arena_create_inside(graph->arena);
    mark(graph, apart, scratch);
    Values saved = find_saved(graph, apart, scratch);
    apart->saved = saved.count;
    if (apart->backward)
        keep_backward(graph, apart, &saved, scratch);
    else
        keep_forward(graph, apart, &saved);
    arena_destroy(scratch);
}
