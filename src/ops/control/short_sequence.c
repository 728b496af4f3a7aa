/* SPDX-License-Identifier: Apache-2.0 */
/* Slices before a Scan and pads behind it, as ONNX nodes of a body that is lowered later. */
#include "ops/control/short_sequence.h"

Status host_sequence_ends(HostCall *call) {
    const Tensor *ends = host_input(call, 0), *x = host_input(call, 1);
    Tensor *result;
    if (!ends || !x || ends->dtype != DT_I64 || ends->rank != 1 || x->rank < 2)
        return host_error(call, "sequence_lens: expected int64 [batch]");
    if (ends->dims[0] != x->dims[0])
        return host_error(call, "sequence_lens: %lld lengths for a batch of %lld", (long long)ends->dims[0],
                          (long long)x->dims[0]);
    for (int64_t i = 0; i < ends->dims[0]; i++) {
        int64_t end = ((const int64_t *)ends->data)[i];
        if (end < 0 || end > x->dims[1])
            return host_error(call, "sequence_lens[%lld] is %lld, and the sequences have %lld elements", (long long)i,
                              (long long)end, (long long)x->dims[1]);
    }
    TRY(host_output(call, 0, DT_I64, 1, ends->dims, &result));
    if (result && ends->dims[0]) memcpy(result->data, ends->data, tensor_bytes(ends));
    return NULL;
}

static Value *int_constant(Graph *graph, int64_t number) {
    Tensor *tensor = tensor_new(graph->arena, DT_I64, 1, (const int64_t[]){1});
    *(int64_t *)tensor->data = number;
    return graph_add_constant(graph, NULL, tensor);
}

static Value *body_op(Graph *body, const char *op, int opset, Value *const *inputs, int count) {
    Node *node = graph_add_node(body, NULL, NODE_ONNX, op, inputs, count);
    node->opset = opset;
    return node_add_output(node, NULL, DT_NONE, -1, NULL);
}

ShortSequence short_sequence(Graph *body, Value *length, Value *x) {
    Value *zero = int_constant(body, 0), *end = body_op(body, "Unsqueeze", 13, (Value *[]){length, zero}, 2);
    Node *shape = graph_add_node(body, NULL, NODE_ONNX, "Shape", &x, 1);
    shape->opset = 15;
    node_set_int(shape, "end", 1);
    Value *whole = node_add_output(shape, NULL, DT_NONE, -1, NULL);
    return (ShortSequence){zero, end, body_op(body, "Sub", 14, (Value *[]){whole, end}, 2)};
}

Value *up_to_end(Graph *body, const ShortSequence *s, Value *x) {
    return body_op(body, "Slice", 13, (Value *[]){x, s->zero, s->end, s->zero}, 4);
}

Value *zeros_behind(Graph *body, const ShortSequence *s, Value *y) {
    Node *pads = graph_add_node(body, NULL, NODE_ONNX, "Concat", (Value *[]){s->zero, s->rest}, 2);
    pads->opset = 13;
    node_set_int(pads, "axis", 0);
    Value *amounts = node_add_output(pads, NULL, DT_NONE, -1, NULL);
    return body_op(body, "Pad", 18, (Value *[]){y, amounts, NULL, s->zero}, 4);
}
