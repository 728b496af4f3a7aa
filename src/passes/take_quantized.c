/* SPDX-License-Identifier: Apache-2.0 */
/* Products of dequantized tensors, DequantizeLinear before MatMul, Gemm or Conv, become one node that is given the bytes and
 * their scales: lowered as a product of integers where that says the same (ops/quantize/quantized_product.c), so that no weight
 * is expanded. What picks elements goes before DequantizeLinear. */
#include "passes/passes.h"

#include "lowering/anchors.h"
#include "lowering/gradient.h"

static bool is_operator(const Node *node, const char *op) {
    return node && node->kind == NODE_ONNX && !node->custom && strcmp(node->op, op) == 0 &&
           (!node->domain || !*node->domain);
}

/* The DequantizeLinear that makes the value: a scale for all, or one an index of an axis. */
static const Node *dequantized(const Value *value, const Node *reader) {
    const Node *node = value ? value->producer : NULL;
    bool microsoft = node && node->kind == NODE_ONNX && !node->custom && node->domain &&
                     strcmp(node->domain, "com.microsoft") == 0 && strcmp(node->op, "DequantizeLinear") == 0;
    if (!microsoft && !is_operator(node, "DequantizeLinear")) return NULL;
    if (node->input_count < 2 || !node->inputs[0] || !node->inputs[1] || attr_int(node, "block_size", 0) ||
        node_attr(node, "output_dtype") || node->wanted || node->group != reader->group ||
        node->fence != reader->fence || node->on_host != reader->on_host)
        return NULL;
    return node;
}

static Value *optional_input(const Node *node, int index) {
    return index < node->input_count ? node->inputs[index] : NULL;
}

static void set_input(Node *node, int index, Value *value) {
    if (index < node->input_count)
        node_set_input(node, index, value);
    else
        node_append_input(node, value);
}

/* The node itself, whose inputs are now x, x_scale, x_zero_point, w, w_scale, w_zero_point and what else it had. */
static void take(Node *node, const Node *x, const Node *w, const char *op) {
    Value *inputs[] = {x->inputs[0], x->inputs[1],         optional_input(x, 2),   w->inputs[0],
                       w->inputs[1], optional_input(w, 2), optional_input(node, 2)};
    for (int i = 0; i < (int)(sizeof inputs / sizeof *inputs); i++) set_input(node, i, inputs[i]);
    node->op = op;
    node->domain = INTERNAL_DOMAIN;
    node->opset = 1;
    if (node_attr(x, "axis")) node_set_int(node, QUANTIZED_X_AXIS, attr_int(x, "axis", 1));
    node_set_int(node, QUANTIZED_AXIS, attr_int(w, "axis", 1));
}

static void take_product(Node *node) {
    static const struct {
        const char *op, *taken;
    } products[] = {{"MatMul", "QuantizedMatMul"}, {"Gemm", "QuantizedGemm"}, {"Conv", "QuantizedConv"}};
    for (size_t i = 0; i < sizeof products / sizeof *products; i++) {
        if (!is_operator(node, products[i].op) || node->input_count < 2 || node->output_count != 1 || node->wanted ||
            node_attr(node, WEIGHT_PRECISION))
            continue;
        const Node *x = dequantized(node->inputs[0], node), *w = dequantized(node->inputs[1], node);
        if (x && w) take(node, x, w, products[i].taken);
        return;
    }
}

/* What picks elements commutes with one scale for all: MaxPool keeps their order where that is positive, Gather reads a few of
 * many. Done on the bytes, before DequantizeLinear, which is made anew behind it. */
static bool picks_elements(const Node *node, const Value *scale) {
    bool all = scale->constant && tensor_count(scale->constant) == 1;
    if (!all || node->output_count != 1 || node->wanted) return false;
    if (is_operator(node, "Gather")) return true;
    return is_operator(node, "MaxPool") && node->opset >= 12 &&
           dtype_load_double(scale->constant->dtype, scale->constant->data, 0) > 0;
}

static void move_before(Graph *graph, Node *node) {
    const Node *x = node->input_count ? dequantized(node->inputs[0], node) : NULL;
    if (!x || !picks_elements(node, x->inputs[1])) return;
    Node *picks = graph_add_node(graph, node, NODE_ONNX, node->op, node->inputs, node->input_count);
    picks->domain = node->domain;
    picks->opset = node->opset;
    for (int i = 0; i < node->attrs.count; i++) node_set_attr(picks, node->attrs.items[i]);
    node_add_origin(picks, node->origin);
    node_follow_rules(picks, node);
    picks->group = node->group;
    node_set_input(picks, 0, x->inputs[0]);
    node_set_input(node, 0, node_add_output(picks, NULL, DT_NONE, -1, NULL));
    for (int i = 1; i < 3; i++) set_input(node, i, optional_input(x, i));
    node->op = x->op;
    node->domain = x->domain;
    node->opset = x->opset;
    node->attrs.count = 0;
    for (int i = 0; i < x->attrs.count; i++) node_set_attr(node, x->attrs.items[i]);
}

static void take_all(Graph *graph) {
    FOR_EACH_NODE(node, graph) {
        move_before(graph, node);
        take_product(node);
        for (int i = 0; i < node->subgraph_count; i++) take_all(node->subgraphs[i]);
    }
}

/* Integers have no gradients: what is differentiated stays as it is. */
Status take_quantized(Graph *graph, const Policy *policy) {
    if (policy->target.anchors.bytes && policy->fusion.enable && !is_trained(graph)) take_all(graph);
    return NULL;
}
