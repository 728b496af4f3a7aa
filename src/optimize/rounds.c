/* SPDX-License-Identifier: Apache-2.0 */
/* The rounds of simplification: constants, equal values, rules, equal nodes, until none holds. */
#include "optimize/convert.h"
#include "lowering/ops.h"
#include "lowering/prune.h"

enum {
    MOST_ROUNDS = 32,     /* each makes the graph smaller, so this is a bound for graphs that are all one chain */
    FREE_GROWTH = 64,     /* KiB that folding may add to a file of any size, beyond a twentieth of its weights */
    COMPARED_HEAD = 4096, /* bytes of a constant that are hashed: the rest is compared where these agree */
};

static int64_t constant_input_bytes(const Node *node) {
    int64_t bytes = 0;
    for (int i = 0; i < node->input_count; i++)
        if (node->inputs[i] && node->inputs[i]->constant && node->inputs[i]->uses.count == 1)
            bytes += (int64_t)tensor_bytes(node->inputs[i]->constant);
    return bytes;
}

/* A tensor in narrow numbers, as it is or moved: folded, however small it is, no runtime would multiply it as such any more. */
static bool is_dequantized(const Node *node) {
    static const char *const moves[] = {"Identity", "Reshape", "Flatten", "Squeeze", "Unsqueeze", "Transpose"};
    while (node && !is_standard(node, "DequantizeLinear")) {
        bool is_moved = false;
        for (size_t i = 0; i < sizeof moves / sizeof *moves; i++) is_moved |= is_standard(node, moves[i]);
        const Value *from = is_moved ? node_in(node, 0) : NULL;
        node = from ? from->producer : NULL;
    }
    return node != NULL;
}

static bool fold(Rewrite *r, Node *node, Value *value, const Value *fact) {
    if (value_is_output(value) || is_dequantized(node)) return false;
    Tensor *tensor = rewrite_constant(r, fact);
    if (!tensor) return false;
    int64_t growth = (int64_t)tensor_bytes(tensor) - constant_input_bytes(node);
    if (growth > r->growth) return false;
    if (growth > 0) r->growth -= growth;
    Value *constant = graph_add_constant(node->graph, value->name, tensor);
    map_set_id(&r->facts, MAP_POINTER_KEY(constant), (void *)(uintptr_t)fact);
    return rewrite_replace(r, node->graph, value, constant);
}

static const OpRow *row_of(const Node *node) { return ops_find(node->domain, node->op, node->opset); }

/* Whether a second run of the node gives what the first one gave; not known of operators that are not ours. */
static bool is_pure(const Node *node) {
    const OpRow *row = row_of(node);
    return node->kind == NODE_ONNX && !node->subgraph_count && row && !(row->flags & OP_RANDOM);
}

static bool is_input_of(const Node *node, const Value *value) {
    for (int i = 0; i < node->input_count; i++)
        if (node->inputs[i] == value) return true;
    return false;
}

static void merge_node(Rewrite *r, Node *node, Map *seen) {
    for (int i = 0; i < node->output_count; i++) {
        Value *value = node->outputs[i];
        const Value *fact = fact_of(r, value);
        if (!fact || is_standard(node, "Optional") || fold(r, node, value, fact)) continue;
        Value *equal = map_get_id(seen, MAP_POINTER_KEY(fact));
        if (!equal)
            map_set_id(seen, MAP_POINTER_KEY(fact), value);
        else if (!node->subgraph_count && (is_pure(node) || is_input_of(node, equal)))
            rewrite_replace(r, node->graph, value, equal);
    }
}

static void merge_equal(Rewrite *r, Graph *graph) {
    Map seen = map_make(r->arena);
    for (int i = 0; i < graph->inputs.count; i++) {
        const Value *fact = fact_of(r, graph->inputs.items[i]);
        if (fact && !map_get_id(&seen, MAP_POINTER_KEY(fact)))
            map_set_id(&seen, MAP_POINTER_KEY(fact), graph->inputs.items[i]);
    }
    FOR_EACH_NODE(node, graph) {
        for (int i = 0; i < node->subgraph_count; i++) merge_equal(r, node->subgraphs[i]);
        merge_node(r, node, &seen);
    }
}

/* --- equal nodes --- */

static bool same_node(const Node *a, const Node *b) {
    if (strcmp(a->op, b->op) != 0 || strcmp(a->domain, b->domain) != 0 || a->opset != b->opset) return false;
    if (a->input_count != b->input_count || a->output_count != b->output_count) return false;
    for (int i = 0; i < a->input_count; i++)
        if (a->inputs[i] != b->inputs[i]) return false;
    for (int i = 0; i < a->output_count; i++)
        if (a->outputs[i] && !b->outputs[i]) return false;
    return node_same_attrs(a, b);
}

static void merge_nodes(Rewrite *r, Graph *graph) {
    Map seen = map_make(r->arena);
    FOR_EACH_NODE(node, graph) {
        for (int i = 0; i < node->subgraph_count; i++) merge_nodes(r, node->subgraphs[i]);
        if (!is_pure(node)) continue;
        uint64_t hash = hash_bytes(node->op, strlen(node->op), (uint64_t)node->attrs.count);
        hash = hash_bytes(node->inputs, (size_t)node->input_count * sizeof *node->inputs, hash);
        Node *twin = map_get_id(&seen, hash);
        if (!twin) map_set_id(&seen, hash, node);
        if (!twin || !same_node(node, twin)) continue;
        for (int i = 0; i < node->output_count; i++)
            if (node->outputs[i] && value_is_read(node->outputs[i]))
                rewrite_replace(r, graph, node->outputs[i], twin->outputs[i]);
    }
}

/* --- initializers --- */

static bool same_tensor(const Tensor *a, const Tensor *b) {
    if (a == b) return true;
    if (a->dtype != b->dtype || a->dtype == DT_STRING || !tensor_same_shape(a, b)) return false;
    size_t bytes = tensor_bytes(a);
    return !bytes || memcmp(a->data, b->data, bytes) == 0;
}

static uint64_t hash_tensor(const Tensor *tensor) {
    size_t bytes = tensor_bytes(tensor);
    uint64_t hash = hash_bytes(tensor->dims, (size_t)tensor->rank * sizeof *tensor->dims, (uint64_t)tensor->dtype);
    if (tensor->dtype == DT_STRING || !bytes) return hash;
    return hash_bytes(tensor->data, bytes < COMPARED_HEAD ? bytes : COMPARED_HEAD, hash);
}

/* Equal constants of a graph become one; those of its subgraphs share the data, so that they are written once. */
static void share_constants(Rewrite *r, Graph *graph, Map *tensors) {
    Map values = map_make(r->arena);
    for (int i = 0; i < graph->values.count; i++) {
        Value *value = graph->values.items[i];
        if (!value->constant || value->producer || !value->uses.count) continue;
        uint64_t hash = hash_tensor(value->constant);
        Tensor *first = map_get_id(tensors, hash);
        if (!first) map_set_id(tensors, hash, value->constant);
        if (first && same_tensor(first, value->constant)) value->constant = first;
        Value *equal = map_get_id(&values, MAP_POINTER_KEY(value->constant));
        if (!equal)
            map_set_id(&values, MAP_POINTER_KEY(value->constant), value);
        else if (!value_is_output(value))
            value_replace(graph, value, equal);
    }
    FOR_EACH_NODE(node, graph)
    for (int i = 0; i < node->subgraph_count; i++) share_constants(r, node->subgraphs[i], tensors);
}

static int64_t bytes_of_constants(const Graph *graph) {
    int64_t bytes = 0;
    for (int i = 0; i < graph->values.count; i++)
        if (graph->values.items[i]->constant) bytes += (int64_t)tensor_bytes(graph->values.items[i]->constant);
    return bytes;
}

/* --- what nothing reads --- */

/* An outer value that no body reads any more must not keep its producer. */
static void drop_captures(Node *node) {
    for (int i = 0; i < node->captures; i++) {
        bool read = false;
        for (int s = 0; s < node->subgraph_count && !read; s++) {
            const Graph *body = node->subgraphs[s];
            const Value *inner = body->inputs.items[body->inputs.count - node->captures + i];
            read = value_is_read(inner);
        }
        int index = node->input_count - node->captures + i;
        if (!read && node->inputs[index]) node_set_input(node, index, NULL);
    }
}

static void prune_all(Graph *graph) {
    graph_prune(graph);
    FOR_EACH_NODE(node, graph) {
        for (int i = 0; i < node->subgraph_count; i++) prune_all(node->subgraphs[i]);
        if (node->captures) drop_captures(node);
    }
    graph_prune(graph);
}

/* --- the rounds --- */

static void apply_rewrites(Rewrite *r, Graph *graph) {
    static const RewriteRule rules[] = {rewrite_shape, rewrite_weights, rewrite_neighbour, rewrite_formula};
    FOR_EACH_NODE(node, graph) {
        for (int i = 0; i < node->subgraph_count; i++) apply_rewrites(r, node->subgraphs[i]);
        if (!node->output_count || !node->outputs[0]) continue; /* rules are about the first one */
        for (size_t i = 0; i < sizeof rules / sizeof *rules; i++)
            if (rules[i](r, node)) {
                r->changes++;
                break;
            }
    }
}

/* Whether a node of the standard's has another version than this. */
static bool has_other_version(const Graph *graph, int opset) {
    FOR_EACH_NODE(node, graph) {
        if (node->kind == NODE_ONNX && !*node->domain && node->opset != opset) return true;
        for (int i = 0; i < node->subgraph_count; i++)
            if (has_other_version(node->subgraphs[i], opset)) return true;
    }
    return false;
}

static int imported_opset(const Graph *graph) {
    for (int i = 0; i < graph->info->opsets.count; i++)
        if (!*graph->info->opsets.items[i].domain) return (int)graph->info->opsets.items[i].version;
    return 0;
}

/* The version that the graph will be in; 0: the one that it imports. */
static Status write_in_opset(Rewrite *r, Graph *graph, int opset) {
    if (!opset) opset = imported_opset(graph);
    if (!opset || !has_other_version(graph, opset)) return NULL;
    TRY(convert_opset(r, graph, opset));
    Map tensors = map_make(r->arena);
    share_constants(r, graph, &tensors);
    prune_all(graph);
    return NULL;
}

Status rewrite_version(Rewrite *r, Graph *graph, int oldest) {
    int opset = imported_opset(graph);
    r->opset = opset > oldest ? opset : oldest;
    return write_in_opset(r, graph, r->opset);
}

Status rewrite_onnx(Graph *graph, Graph *twin, const Policy *policy, int opset) {
    Rewrite r = {.arena = graph->arena, .facts = map_make(graph->arena), .opset = opset};
    r.growth = bytes_of_constants(graph) / 20 + (int64_t)FREE_GROWTH * 1024;
    TRY(rewrite_facts(&r, graph, twin, policy));
    prune_all(graph);
    merge_equal(&r, graph);
    prune_all(graph);
    for (int round = 0, before = -1; round < MOST_ROUNDS && r.changes != before; round++) {
        before = r.changes;
        Map tensors = map_make(r.arena);
        share_constants(&r, graph, &tensors);
        apply_rewrites(&r, graph);
        merge_nodes(&r, graph);
        prune_all(graph);
    }
    return write_in_opset(&r, graph, opset);
}
