/* SPDX-License-Identifier: Apache-2.0 */
#include "messages.h"

#include <stdlib.h>

Arena *test_arena;

#define NEW(type, name) ((type *)new_message(&onnx__##name##__descriptor))
#define APPEND(list, count, item) append((void **)(void *)&(list), &(count), item)

static void *new_message(const ProtobufCMessageDescriptor *type) {
    ProtobufCMessage *message = arena_alloc(test_arena, type->sizeof_message);
    protobuf_c_message_init(type, message);
    return message;
}

static void append(void **list, size_t *count, const void *item) {
    void **grown = ARENA_ARRAY(test_arena, void *, *count + 1);
    if (*count) memcpy(grown, *list, *count * sizeof *grown);
    grown[(*count)++] = (void *)(uintptr_t)item;
    *list = grown;
}

static char *text(const char *s) { return arena_string(test_arena, s); }

/* The next name of a list, trimmed; NULL at its end. */
static char *next_name(const char **list) {
    if (!*list || !**list) return NULL;
    const char *from = *list, *to = strchr(from, ',');
    *list = to ? to + 1 : "";
    size_t size = to ? (size_t)(to - from) : strlen(from);
    while (size && *from == ' ') from++, size--;
    while (size && from[size - 1] == ' ') size--;
    return arena_string_n(test_arena, from, size);
}

static void append_names(char ***list, size_t *count, const char *names) {
    for (char *name; (name = next_name(&names));) append((void **)(void *)list, count, name);
}

Model *make_model(int64_t ir_version, const char *domains_and_versions) {
    Model *model = NEW(Model, model_proto);
    model->has_ir_version = 1;
    model->ir_version = ir_version;
    for (char *entry; (entry = next_name(&domains_and_versions));) {
        Onnx__OperatorSetIdProto *import = NEW(Onnx__OperatorSetIdProto, operator_set_id_proto);
        char *version = strchr(entry, '=');
        *version++ = 0;
        import->domain = entry;
        import->has_version = 1;
        import->version = atoll(version);
        APPEND(model->opset_import, model->n_opset_import, import);
    }
    model->graph = make_graph("g");
    return model;
}

GraphMessage *make_graph(const char *name) {
    GraphMessage *graph = NEW(GraphMessage, graph_proto);
    graph->name = text(name);
    return graph;
}

static Onnx__TensorShapeProto *make_shape(const char *dims) {
    Onnx__TensorShapeProto *shape = NEW(Onnx__TensorShapeProto, tensor_shape_proto);
    for (char *dim; (dim = next_name(&dims));) {
        Onnx__TensorShapeProto__Dimension *d = NEW(Onnx__TensorShapeProto__Dimension, tensor_shape_proto__dimension);
        d->has_dim_value = (*dim >= '0' && *dim <= '9') || *dim == '-';
        if (d->has_dim_value)
            d->dim_value = atoll(dim);
        else if (*dim && *dim != '?')
            d->dim_param = dim;
        APPEND(shape->dim, shape->n_dim, d);
    }
    return shape;
}

void add_input(GraphMessage *graph, const char *name, DType dtype, const char *dims_or_null) {
    Onnx__ValueInfoProto *info = NEW(Onnx__ValueInfoProto, value_info_proto);
    info->name = text(name);
    info->type = NEW(Onnx__TypeProto, type_proto);
    info->type->tensor_type = NEW(Onnx__TypeProto__Tensor, type_proto__tensor);
    info->type->tensor_type->has_elem_type = 1;
    info->type->tensor_type->elem_type = (int32_t)dtype;
    if (dims_or_null) info->type->tensor_type->shape = make_shape(dims_or_null);
    APPEND(graph->input, graph->n_input, info);
}

void add_map_input(GraphMessage *graph, const char *name, DType key, DType value, bool sequence) {
    add_input(graph, name, value, NULL);
    Onnx__ValueInfoProto *info = graph->input[graph->n_input - 1];
    Onnx__TypeProto *map = NEW(Onnx__TypeProto, type_proto), *list = NEW(Onnx__TypeProto, type_proto);
    map->map_type = NEW(Onnx__TypeProto__Map, type_proto__map);
    map->map_type->has_key_type = 1;
    map->map_type->key_type = (int32_t)key;
    map->map_type->value_type = info->type;
    list->sequence_type = NEW(Onnx__TypeProto__Sequence, type_proto__sequence);
    list->sequence_type->elem_type = map;
    info->type = sequence ? list : map;
}

void add_output(GraphMessage *graph, const char *names) {
    for (char *name; (name = next_name(&names));) {
        Onnx__ValueInfoProto *info = NEW(Onnx__ValueInfoProto, value_info_proto);
        info->name = name;
        APPEND(graph->output, graph->n_output, info);
    }
}

NodeMessage *make_node(const char *op, const char *inputs, const char *outputs) {
    NodeMessage *node = NEW(NodeMessage, node_proto);
    const char *dot = strchr(op, ':'); /* "domain:Op" */
    if (dot) node->domain = arena_string_n(test_arena, op, (size_t)(dot - op));
    node->op_type = text(dot ? dot + 1 : op);
    append_names(&node->input, &node->n_input, inputs);
    append_names(&node->output, &node->n_output, outputs);
    return node;
}

NodeMessage *add_node(GraphMessage *graph, const char *op, const char *inputs, const char *outputs) {
    NodeMessage *node = make_node(op, inputs, outputs);
    APPEND(graph->node, graph->n_node, node);
    return node;
}

Attribute *add_attribute(NodeMessage *node, const char *name, int type) {
    Attribute *attribute = NEW(Attribute, attribute_proto);
    attribute->name = text(name);
    attribute->has_type = type != 0;
    attribute->type = (Onnx__AttributeProto__AttributeType)type;
    APPEND(node->attribute, node->n_attribute, attribute);
    return attribute;
}

void add_branch(NodeMessage *node, const char *name, GraphMessage *graph) {
    add_attribute(node, name, ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__GRAPH)->g = graph;
}

void add_reference(NodeMessage *node, const char *name, const char *of) {
    add_attribute(node, name, ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__FLOAT)->ref_attr_name = text(of);
}

Onnx__TensorProto *make_floats(const char *name, const char *dims, const float *values, size_t count) {
    Onnx__TensorProto *tensor = NEW(Onnx__TensorProto, tensor_proto);
    tensor->name = text(name);
    tensor->has_data_type = 1;
    tensor->data_type = DT_F32;
    tensor->dims = ARENA_ARRAY(test_arena, int64_t, 32);
    for (char *dim; (dim = next_name(&dims));) tensor->dims[tensor->n_dims++] = atoll(dim);
    tensor->float_data = arena_copy(test_arena, values, count * sizeof *values);
    tensor->n_float_data = count;
    return tensor;
}

void add_initializer(GraphMessage *graph, Onnx__TensorProto *tensor) {
    APPEND(graph->initializer, graph->n_initializer, tensor);
}

Function *add_function(Model *model, const char *domain, const char *name, const char *inputs, const char *outputs) {
    Function *function = NEW(Function, function_proto);
    function->domain = text(domain);
    function->name = text(name);
    append_names(&function->input, &function->n_input, inputs);
    append_names(&function->output, &function->n_output, outputs);
    APPEND(model->functions, model->n_functions, function);
    return function;
}

void add_function_node(Function *function, NodeMessage *node) { APPEND(function->node, function->n_node, node); }

void *pack(const ProtobufCMessage *message, size_t *out_size) {
    *out_size = protobuf_c_message_get_packed_size(message);
    void *bytes = arena_alloc(test_arena, *out_size);
    protobuf_c_message_pack(message, bytes);
    return bytes;
}
