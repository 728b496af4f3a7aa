/* SPDX-License-Identifier: Apache-2.0 */
#include "optimize/quantize/quantize.h"

#include <float.h>
#include <limits.h>
#include <math.h>

#include "lowering/prune.h"
#include "optimize/rewrite.h"

enum {
    OPSET_PER_CHANNEL = 13, /* DequantizeLinear with an axis; Cast to bf16 */
    OPSET_BLOCKED = 21,     /* with block_size, and of i4 */
    IR_INT4 = 10,           /* first IR version that knows i4 */
};

int quantize_opset(QuantForm form) { return form == QUANT_INT4 ? OPSET_BLOCKED : OPSET_PER_CHANNEL; }

/* --- which layers --- */

static const Tensor *weight_in(const Node *node, int index) {
    const Value *value = node_in(node, index);
    const Tensor *w = value ? value->constant : NULL;
    return w && w->dtype == DT_F32 && w->rank >= 2 && tensor_count(w) ? w : NULL;
}

/* The input that is the weight, and which axis counts; -1: it is no layer of this form. */
static int weight_of(const Node *node, QuantForm form, int *out_axis) {
    bool product = is_standard(node, "MatMul") || is_standard(node, "Gemm"), conv = is_standard(node, "Conv");
    bool other = is_standard(node, "ConvTranspose") || is_standard(node, "Gather");
    *out_axis = 0;
    if (form == QUANT_BF16) {
        int index = is_standard(node, "Gather") ? 0 : 1;
        return (product || conv || other) && weight_in(node, index) ? index : -1;
    }
    const Tensor *w = weight_in(node, 1);
    if (!w || !node_in(node, 0) || node_in(node, 0)->constant) return -1;
    bool turned = is_standard(node, "Gemm") && attr_int(node, "transB", 0);
    if (product && w->rank == 2) *out_axis = (form == QUANT_INT8) != turned;
    return (product && w->rank == 2) || (conv && w->rank > 2 && form == QUANT_INT8) ? 1 : -1;
}

static Activation *activation_of(Quantization *q, Value *value) {
    for (int i = 0; i < q->activations.count; i++)
        if (q->activations.items[i]->value == value) return q->activations.items[i];
    Activation *activation = ARENA_NEW(q->graph->arena, Activation);
    *activation = (Activation){.value = value, .low = INFINITY, .high = -INFINITY};
    VEC_PUSH(q->graph->arena, q->activations, activation);
    return activation;
}

/* What a convolution gives becomes bytes, too, behind the bounds that are applied to it, so that other runtimes also see a
 * convolution of integers. */
static Activation *result_of(Quantization *q, const Node *conv) {
    Value *y = conv->outputs[0];
    const Node *next = value_only_user(y);
    if (next && (is_standard(next, "Relu") || (is_standard(next, "Clip") && next->inputs[0] == y)))
        y = next->outputs[0];
    return value_is_output(y) || !y->uses.count ? NULL : activation_of(q, y);
}

static void add_layer(Quantization *q, Node *node) {
    int axis, weight = weight_of(node, q->form, &axis);
    if (weight < 0 || node->output_count != 1 || !node->outputs[0]) return;
    Layer *layer = ARENA_NEW(q->graph->arena, Layer);
    *layer = (Layer){.node = node,
                     .name = node_origin_name(node),
                     .weight_name = node->inputs[weight]->name,
                     .weight = weight,
                     .axis = axis,
                     .bytes_before = (int64_t)tensor_bytes(node->inputs[weight]->constant)};
    VEC_PUSH(q->graph->arena, q->layers, layer);
    if (q->form != QUANT_INT8) return;
    layer->input = activation_of(q, node->inputs[0]);
    if (is_standard(node, "Conv")) layer->result = result_of(q, node);
}

Status quantize_find(Quantization *q, Graph *graph, QuantForm form, int64_t block) {
    *q = (Quantization){.graph = graph, .form = form, .block = block, .own_outputs = graph->outputs.count};
    for (int i = 0; i < graph->info->opsets.count; i++)
        if (!*graph->info->opsets.items[i].domain) q->opset = (int)graph->info->opsets.items[i].version;
    FOR_EACH_NODE(node, graph) add_layer(q, node);
    if (q->layers.count) return NULL;
    return status_error(STATUS_UNSUPPORTED, "there is nothing to quantize: no %s with a constant weight of float32",
                        form == QUANT_INT8   ? "MatMul, Gemm or Conv"
                        : form == QUANT_INT4 ? "MatMul or Gemm"
                                             : "MatMul, Gemm, Conv, ConvTranspose or Gather");
}

/* --- nodes --- */

/* A node before `at` (NULL: at the end) with one result, called NAME_SUFFIX. */
static Value *add(const Quantization *q, Node *at, const char *op, Value *const *inputs, int count, const char *name,
                  const char *suffix) {
    Graph *graph = q->graph;
    Node *node = graph_add_node(graph, at, NODE_ONNX, op, inputs, count);
    const char *called = arena_format(graph->arena, "%s_%s", name, suffix);
    node->domain = "";
    node->opset = q->opset;
    node->origin = (Origin){arena_copy(graph->arena, &called, sizeof called), 1};
    return node_add_output(node, called, DT_NONE, -1, NULL);
}

static Value *add_tensor(const Quantization *q, Tensor *tensor, const char *name, const char *suffix) {
    return graph_add_constant(q->graph, arena_format(q->graph->arena, "%s_%s", name, suffix), tensor);
}

/* The weight as floats again; of one that several layers share, once. */
static Value *stored_weight(const Quantization *q, const Layer *layer) {
    const Stored *s = &layer->stored;
    const char *name = layer->weight_name;
    Value *inputs[3] = {add_tensor(q, s->data, name, "quantized")};
    if (q->form == QUANT_BF16) {
        Value *y = add(q, layer->node, "Cast", inputs, 1, name, "cast");
        node_set_int(y->producer, "to", DT_F32);
        return y;
    }
    inputs[1] = add_tensor(q, s->scale, name, "scale");
    if (s->zero_point) inputs[2] = add_tensor(q, s->zero_point, name, "zero_point");
    Value *y = add(q, layer->node, "DequantizeLinear", inputs, s->zero_point ? 3 : 2, name, "dequantized");
    node_set_int(y->producer, "axis", layer->axis);
    if (q->form == QUANT_INT4) node_set_int(y->producer, "block_size", q->block);
    return y;
}

static Value *stored_bias(const Quantization *q, const Layer *layer) {
    const char *name = layer->node->inputs[2]->name;
    Value *inputs[] = {add_tensor(q, layer->bias, name, "quantized"), add_tensor(q, layer->bias_scale, name, "scale")};
    Value *y = add(q, layer->node, "DequantizeLinear", inputs, 2, name, "dequantized");
    node_set_int(y->producer, "axis", 0);
    return y;
}

static Levels levels_for(const Activation *a) {
    double low = fmin(a->low, 0), high = fmax(a->high, 0), largest = fmax(-low, high);
    if (a->histogram) {
        double cut = entropy_cut(a->histogram, largest, low < 0 ? 128 : 256);
        low = fmax(low, -cut);
        high = fmin(high, cut);
    }
    return levels_of(low, high);
}

/* Where the value is there: behind the node that makes it. */
static Node *behind(const Quantization *q, const Value *value) {
    return value->producer ? value->producer->next : q->graph->first;
}

static Value *as_bytes(const Quantization *q, Activation *a) {
    if (a->bytes_as_floats) return a->bytes_as_floats;
    Arena *arena = q->graph->arena;
    Node *at = behind(q, a->value);
    const char *name = a->value->name;
    Value *inputs[] = {a->value, add_tensor(q, tensor_scalar_double(arena, DT_F32, a->levels.scale), name, "scale"),
                       add_tensor(q, tensor_scalar_int(arena, DT_U8, a->levels.zero_point), name, "zero_point")};
    inputs[0] = add(q, at, "QuantizeLinear", inputs, 3, name, "quantized");
    return a->bytes_as_floats = add(q, at, "DequantizeLinear", inputs, 3, name, "dequantized");
}

/* --- weights --- */

/* A bias in i32 with the scales of the sums it is added to, as other runtimes want it. NULL: it is none of constants, one a
 * channel. */
static const Tensor *bias_in(const Quantization *q, const Layer *layer) {
    const Node *node = layer->node;
    const Value *bias = node_in(node, 2);
    const Tensor *weight = node->inputs[layer->weight]->constant;
    bool plain = attr_float(node, "alpha", 1) == 1 && attr_float(node, "beta", 1) == 1;
    if (q->form != QUANT_INT8 || !plain || !bias || !bias->constant || is_standard(node, "MatMul")) return NULL;
    const Tensor *b = bias->constant;
    return b->dtype == DT_F32 && b->rank == 1 && b->dims[0] == weight->dims[layer->axis] ? b : NULL;
}

static void store_int8(Quantization *q, Layer *layer) {
    Arena *arena = q->graph->arena;
    const Tensor *w = layer->node->inputs[layer->weight]->constant, *bias = bias_in(q, layer);
    float x_scale = layer->input->levels.scale;
    int64_t channels = w->dims[layer->axis];
    float *least = bias ? ARENA_ARRAY(arena, float, channels) : NULL;
    /* The bias must fit in i32, of a channel whose weights are next to nothing, too. */
    for (int64_t c = 0; bias && c < channels; c++) least[c] = fabsf(((float *)bias->data)[c]) / (x_scale * 0x1p30f);
    layer->stored = weight_as_i8(arena, w, layer->axis, least);
    if (!bias) return;
    layer->bias = tensor_new(arena, DT_I32, 1, &channels);
    layer->bias_scale = tensor_new(arena, DT_F32, 1, &channels);
    for (int64_t c = 0; c < channels; c++) {
        float step = ((float *)layer->bias_scale->data)[c] = x_scale * ((float *)layer->stored.scale->data)[c];
        double level = nearbyint((double)((float *)bias->data)[c] / step);
        ((int32_t *)layer->bias->data)[c] = (int32_t)fmin(fmax(level, INT_MIN), INT_MAX);
    }
}

void quantize_weights(Quantization *q) {
    for (int i = 0; i < q->activations.count; i++)
        q->activations.items[i]->levels = levels_for(q->activations.items[i]);
    for (int i = 0; i < q->layers.count; i++) {
        Layer *layer = q->layers.items[i];
        const Tensor *w = layer->node->inputs[layer->weight]->constant;
        if (q->form == QUANT_INT8) store_int8(q, layer);
        if (q->form == QUANT_INT4) layer->stored = weight_as_i4(q->graph->arena, w, layer->axis, q->block);
        if (q->form == QUANT_BF16) layer->stored = weight_as_bf16(q->graph->arena, w);
        const Stored *s = &layer->stored;
        layer->noise = s->noise;
        layer->signal = s->signal;
        layer->worst = s->worst;
        layer->bytes_after = tensor_count(s->data) * dtype_file_bits(s->data->dtype) / 8;
        if (s->scale) layer->bytes_after += (int64_t)tensor_bytes(s->scale);
        if (s->zero_point) layer->bytes_after += (int64_t)tensor_bytes(s->zero_point);
    }
}

/* --- what recorded inputs tell --- */

static void add_output(Quantization *q, Value *value) { graph_add_named_output(q->graph, value, value->name); }

/* Over all axes, to a scalar: a form that all versions of these operators have. */
static Value *reduced(const Quantization *q, const char *op, Value *x, const char *name, const char *suffix) {
    Value *y = add(q, NULL, op, &x, 1, name, suffix);
    node_set_int(y->producer, "keepdims", 0);
    return y;
}

void quantize_watch(Quantization *q, bool histograms) {
    for (int i = 0; i < q->activations.count; i++) {
        Value *x = q->activations.items[i]->value;
        if (histograms) {
            add_output(q, add(q, NULL, "Abs", &x, 1, x->name, "size"));
        } else {
            add_output(q, reduced(q, "ReduceMin", x, x->name, "low"));
            add_output(q, reduced(q, "ReduceMax", x, x->name, "high"));
        }
    }
}

static void set_inputs(const Quantization *q, const Layer *layer, Node *node) {
    node_set_input(node, layer->weight, stored_weight(q, layer));
    if (layer->bias) node_set_input(node, 2, stored_bias(q, layer));
    if (layer->input) node_set_input(node, 0, as_bytes(q, layer->input));
}

void quantize_try(Quantization *q) {
    for (int i = 0; i < q->layers.count; i++) {
        const Layer *layer = q->layers.items[i];
        const Node *node = layer->node;
        Value *y = node->outputs[0];
        Value *other = add(q, node->next, node->op, node->inputs, node->input_count, y->name, "tried");
        for (int k = 0; k < node->attrs.count; k++) node_set_attr(other->producer, node->attrs.items[k]);
        set_inputs(q, layer, other->producer);
        Value *difference = add(q, NULL, "Sub", (Value *[]){y, other}, 2, y->name, "difference");
        Value *size = add(q, NULL, "Abs", &difference, 1, y->name, "distance");
        add_output(q, reduced(q, "ReduceSumSquare", difference, y->name, "noise"));
        add_output(q, reduced(q, "ReduceSumSquare", y, y->name, "signal"));
        add_output(q, reduced(q, "ReduceMax", size, y->name, "worst"));
    }
}

void quantize_restore(Quantization *q) {
    graph_truncate_outputs(q->graph, q->own_outputs);
    graph_prune(q->graph);
    for (int i = 0; i < q->activations.count; i++) q->activations.items[i]->bytes_as_floats = NULL;
}

/* --- the new graph --- */

static Value *same_weight(const Quantization *q, int index) {
    const Layer *layer = q->layers.items[index];
    for (int i = 0; i < index; i++) {
        const Layer *other = q->layers.items[i];
        if (!other->left_alone && other->weight_name == layer->weight_name && other->axis == layer->axis &&
            !layer->bias && !other->bias)
            return other->node->inputs[other->weight];
    }
    return NULL;
}

static bool is_left_alone(const Quantization *q, const Node *node) {
    for (int i = 0; i < q->layers.count; i++)
        if (q->layers.items[i]->node == node) return q->layers.items[i]->left_alone;
    return false;
}

/* Everything that reads the value reads its bytes from now on: what one convolution reads as bytes, a residual sum need not read as
 * floats. */
static void all_read_bytes(const Quantization *q, Activation *a) {
    Value *y = as_bytes(q, a);
    const Node *quantizes = y->producer->inputs[0]->producer;
    for (int i = a->value->uses.count - 1; i >= 0; i--) {
        Use use = a->value->uses.items[i];
        if (use.node != quantizes && !use.node->subgraph_count && !is_left_alone(q, use.node))
            node_set_input(use.node, use.index, y);
    }
}

void quantize_apply(Quantization *q) {
    ModelInfo *info = q->graph->info;
    if (q->form == QUANT_INT4 && info->ir_version < IR_INT4) info->ir_version = IR_INT4;
    for (int i = 0; i < q->layers.count; i++) {
        Layer *layer = q->layers.items[i];
        if (layer->left_alone) continue;
        Value *weight = same_weight(q, i);
        Value *bias = layer->bias ? stored_bias(q, layer) : NULL;
        node_set_input(layer->node, layer->weight, weight ? weight : stored_weight(q, layer));
        if (bias) node_set_input(layer->node, 2, bias);
        if (layer->input) node_set_input(layer->node, 0, as_bytes(q, layer->input));
    }
    for (int i = 0; i < q->layers.count; i++) {
        const Layer *layer = q->layers.items[i];
        if (layer->left_alone || q->form != QUANT_INT8 || !is_standard(layer->node, "Conv")) continue;
        all_read_bytes(q, layer->input);
        if (layer->result) all_read_bytes(q, layer->result);
    }
    graph_prune(q->graph);
}
