/* SPDX-License-Identifier: Apache-2.0 */
/* What the rules of the optimizer share: looking at nodes, and changing them. */
#include "optimize/rewrite.h"

bool is_standard(const Node *node, const char *op) {
    return node->kind == NODE_ONNX && !*node->domain && strcmp(node->op, op) == 0;
}

bool may_become(const Rewrite *r, const Node *node, int since) { return (r->opset ? r->opset : node->opset) >= since; }

Value *node_in(const Node *node, int index) {
    return index < node->input_count - node->captures ? node->inputs[index] : NULL;
}

void node_put_input(Node *node, int index, Value *value) {
    while (node->input_count <= index) node_append_input(node, NULL);
    node_set_input(node, index, value);
}

Node *sole_producer(const Node *node, int input, const char *op) {
    const Value *value = node_in(node, input);
    if (!value || !value->producer || value->uses.count != 1 || value->output_index) return NULL;
    return is_standard(value->producer, op) && !value_is_output(value) ? value->producer : NULL;
}

Value *add_ints(Rewrite *r, Graph *graph, const char *name, const int64_t *values, int count) {
    Tensor *tensor = tensor_new(r->arena, DT_I64, 1, (const int64_t[]){count});
    if (count) memcpy(tensor->data, values, (size_t)count * sizeof *values);
    return graph_add_constant(graph, name, tensor);
}

static void swap_names(Graph *graph, Value *a, Value *b) {
    char *name = a->name;
    a->name = b->name;
    b->name = name;
    map_set(&graph->names, a->name, a);
    map_set(&graph->names, b->name, b);
}

bool rewrite_replace(Rewrite *r, Graph *graph, Value *from, Value *to) {
    if (value_is_output(from)) {
        if (!to->producer || value_is_output(to)) return false; /* it would become an Identity */
        if (!graph->parent) swap_names(graph, from, to);
    }
    value_replace(graph, from, to);
    r->changes++;
    return true;
}

/* --- constants and equal values, as lowering found them ---------------------------------------------------------- */

/* Integers whose elements are known sizes, as data. */
static Tensor *content_tensor(const Rewrite *r, const Value *fact) {
    int64_t count = 1, values[256];
    if (!fact->content || (fact->dtype != DT_I64 && fact->dtype != DT_I32) || fact->rank > 1) return NULL;
    if (fact->rank == 1 && (!dim_is_const(fact->dims[0], &count) || count > 256)) return NULL;
    for (int i = 0; i < count; i++)
        if (!dim_is_const(fact->content[i], &values[i])) return NULL;
    Tensor *tensor = tensor_new(r->arena, fact->dtype, fact->rank, &count);
    for (int i = 0; i < count; i++)
        if (fact->dtype == DT_I64)
            ((int64_t *)tensor->data)[i] = values[i];
        else
            ((int32_t *)tensor->data)[i] = (int32_t)values[i];
    return tensor;
}

Tensor *rewrite_constant(const Rewrite *r, const Value *fact) {
    return fact->constant ? fact->constant : content_tensor(r, fact);
}
