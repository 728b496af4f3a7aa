/* A graph of ONNX nodes -> a model. Captures become what they are in ONNX: plain uses of outer names. */
#include "importer/build.h"

#include <limits.h>

#define TYPE(name) ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__##name
#define NEW(type, name) ((type *)new_message(e->arena, &onnx__##name##__descriptor))

typedef struct Exporter {
    Arena *arena;
    const Graph *outermost;
    Map names;   /* Value * -> the name it has in the file */
    Map taken;   /* names in use, of any graph */
    Map weights; /* Tensor * of the outermost graph's initializers -> name: subgraphs read them from there */
} Exporter;

static void *new_message(Arena *arena, const ProtobufCMessageDescriptor *type) {
    ProtobufCMessage *message = arena_alloc(arena, type->sizeof_message);
    protobuf_c_message_init(type, message);
    return message;
}

static char *borrowed(const char *text) { return (char *)(uintptr_t)text; } /* packing only reads */

/* ---- names ---- */

static char *name_of(Exporter *e, const Value *value) {
    if (!value) return borrowed("");
    char *name = map_get_id(&e->names, MAP_POINTER_KEY(value));
    if (name) return name;
    name = value->name;
    for (int i = 1; map_get(&e->taken, name); i++) name = arena_format(e->arena, "%s_%d", value->name, i);
    map_set(&e->taken, name, name);
    map_set_id(&e->names, MAP_POINTER_KEY(value), name);
    return name;
}

static char **names_of(Exporter *e, Value *const *values, int count) {
    char **names = ARENA_ARRAY(e->arena, char *, count);
    for (int i = 0; i < count; i++) names[i] = name_of(e, values[i]);
    return names;
}

/* ---- types ---- */

static Onnx__TensorShapeProto *shape_to_proto(Exporter *e, const Value *value) {
    if (value->rank < 0) return NULL;
    Onnx__TensorShapeProto *shape = NEW(Onnx__TensorShapeProto, tensor_shape_proto);
    shape->n_dim = (size_t)value->rank;
    shape->dim = ARENA_ARRAY(e->arena, Onnx__TensorShapeProto__Dimension *, value->rank);
    for (int i = 0; i < value->rank; i++) {
        Onnx__TensorShapeProto__Dimension *dim = shape->dim[i] =
            NEW(Onnx__TensorShapeProto__Dimension, tensor_shape_proto__dimension);
        int symbol = dim_symbol_index(value->dims[i]);
        dim->has_dim_value = dim_is_const(value->dims[i], &dim->dim_value);
        if (symbol >= 0)
            dim->dim_param = borrowed(dim_symbol_name(e->outermost->dims, symbol));
        else if (!dim->has_dim_value) {
            Text text = text_make(e->arena);
            dim_print(&text, value->dims[i]);
            dim->dim_param = text.data;
        }
    }
    return shape;
}

static Onnx__TypeProto *tensor_type(Exporter *e, DType dtype, Onnx__TensorShapeProto *shape) {
    Onnx__TypeProto *type = NEW(Onnx__TypeProto, type_proto);
    type->tensor_type = NEW(Onnx__TypeProto__Tensor, type_proto__tensor);
    type->tensor_type->has_elem_type = 1;
    type->tensor_type->elem_type = (int32_t)dtype;
    type->tensor_type->shape = shape;
    return type;
}

static Onnx__TypeProto *type_to_proto(Exporter *e, ValueKind kind, DType dtype, Onnx__TensorShapeProto *shape) {
    Onnx__TypeProto *type = tensor_type(e, dtype, shape);
    if (kind == VALUE_SEQUENCE || kind == VALUE_OPTIONAL_SEQUENCE) {
        Onnx__TypeProto *sequence = NEW(Onnx__TypeProto, type_proto);
        sequence->sequence_type = NEW(Onnx__TypeProto__Sequence, type_proto__sequence);
        sequence->sequence_type->elem_type = type;
        type = sequence;
    }
    if (kind == VALUE_OPTIONAL || kind == VALUE_OPTIONAL_SEQUENCE) {
        Onnx__TypeProto *optional = NEW(Onnx__TypeProto, type_proto);
        optional->optional_type = NEW(Onnx__TypeProto__Optional, type_proto__optional);
        optional->optional_type->elem_type = type;
        type = optional;
    }
    return type;
}

static Onnx__ValueInfoProto *info_to_proto(Exporter *e, const char *name, const Value *value) {
    Onnx__ValueInfoProto *info = NEW(Onnx__ValueInfoProto, value_info_proto);
    info->name = borrowed(name);
    if (value->dtype != DT_NONE) info->type = type_to_proto(e, value->kind, value->dtype, shape_to_proto(e, value));
    return info;
}

/* ---- attributes ---- */

static ProtobufCBinaryData bytes_of(StringView view) {
    return (ProtobufCBinaryData){view.size, (uint8_t *)borrowed(view.data)};
}

static void set_strings(Exporter *e, Onnx__AttributeProto *proto, const Attr *attr) {
    proto->n_strings = (size_t)attr->count;
    proto->strings = ARENA_ARRAY(e->arena, ProtobufCBinaryData, attr->count);
    for (int i = 0; i < attr->count; i++) proto->strings[i] = bytes_of(attr->strings[i]);
}

static void set_tensors(Exporter *e, Onnx__AttributeProto *proto, const Attr *attr) {
    proto->n_tensors = (size_t)attr->count;
    proto->tensors = ARENA_ARRAY(e->arena, Onnx__TensorProto *, attr->count);
    for (int i = 0; i < attr->count; i++) proto->tensors[i] = tensor_to_proto(e->arena, attr->tensors[i], NULL);
}

static ValueKind kind_of_type(const Node *node, const char *name, Arena *arena) {
    return (ValueKind)attr_int(node, arena_format(arena, "%s_kind", name), VALUE_TENSOR);
}

/* NULL for the second half of a type attribute. */
static Status attribute_to_proto(Exporter *e, const Node *node, const Attr *attr, Onnx__AttributeProto **out) {
    static const int types[] = {
        [ATTR_INT] = TYPE(INT),       [ATTR_FLOAT] = TYPE(FLOAT),     [ATTR_STRING] = TYPE(STRING),
        [ATTR_INTS] = TYPE(INTS),     [ATTR_FLOATS] = TYPE(FLOATS),   [ATTR_STRINGS] = TYPE(STRINGS),
        [ATTR_TENSOR] = TYPE(TENSOR), [ATTR_TYPE] = TYPE(TYPE_PROTO), [ATTR_TENSORS] = TYPE(TENSORS),
    };
    size_t length = strlen(attr->name);
    *out = NULL;
    if (attr->kind == ATTR_INT && length > 5 && strcmp(attr->name + length - 5, "_kind") == 0) {
        const Attr *type = node_attr(node, arena_string_n(e->arena, attr->name, length - 5));
        if (type && type->kind == ATTR_TYPE) return NULL;
    }
    if (attr->kind == ATTR_DIMS)
        return status_error(STATUS_UNSUPPORTED, "node \"%s\" has sizes as an attribute, which ONNX has not",
                            node_origin_name(node));
    Onnx__AttributeProto *proto = *out = NEW(Onnx__AttributeProto, attribute_proto);
    proto->name = borrowed(attr->name);
    proto->has_type = 1;
    proto->type = (Onnx__AttributeProto__AttributeType)types[attr->kind];
    proto->has_i = attr->kind == ATTR_INT;
    proto->has_f = attr->kind == ATTR_FLOAT;
    proto->has_s = attr->kind == ATTR_STRING;
    if (proto->has_i) proto->i = attr->i;
    if (proto->has_f) proto->f = attr->f;
    if (proto->has_s) proto->s = bytes_of(attr->s);
    if (attr->kind == ATTR_INTS) {
        proto->n_ints = (size_t)attr->count;
        proto->ints = (int64_t *)(uintptr_t)attr->ints;
    }
    if (attr->kind == ATTR_FLOATS) {
        proto->n_floats = (size_t)attr->count;
        proto->floats = (float *)(uintptr_t)attr->floats;
    }
    if (attr->kind == ATTR_STRINGS) set_strings(e, proto, attr);
    if (attr->kind == ATTR_TENSORS) set_tensors(e, proto, attr);
    if (attr->kind == ATTR_TENSOR) proto->t = tensor_to_proto(e->arena, attr->tensor, NULL);
    if (attr->kind == ATTR_TYPE)
        proto->tp = type_to_proto(e, kind_of_type(node, attr->name, e->arena), attr->dtype, NULL);
    return NULL;
}

/* ---- nodes and graphs ---- */

static Status graph_to_proto(Exporter *e, const Graph *graph, int captures, Onnx__GraphProto **out);

/* Some runtimes ask for the shape of what every loop has: the iteration's number and the condition. */
static void set_loop_shapes(Exporter *e, Onnx__GraphProto *body) {
    for (size_t i = 0; i < body->n_input && i < 2; i++) {
        Onnx__TypeProto *type = body->input[i]->type;
        if (type && type->tensor_type && !type->tensor_type->shape)
            type->tensor_type->shape = NEW(Onnx__TensorShapeProto, tensor_shape_proto);
    }
}

static Status subgraph_to_proto(Exporter *e, const Node *node, int index, Onnx__AttributeProto **out) {
    const Graph *graph = node->subgraphs[index];
    for (int i = 0; i < node->captures; i++) {
        const Value *inner = graph->inputs.items[graph->inputs.count - node->captures + i];
        const Value *outer = node->inputs[node->input_count - node->captures + i];
        map_set_id(&e->names, MAP_POINTER_KEY(inner), name_of(e, outer));
    }
    const char *const *names = subgraph_names(node->domain, node->op);
    int known = 0;
    while (names && names[known]) known++;
    Onnx__AttributeProto *proto = *out = NEW(Onnx__AttributeProto, attribute_proto);
    proto->name = index < known ? borrowed(names[index]) : arena_format(e->arena, "graph_%d", index);
    proto->has_type = 1;
    proto->type = TYPE(GRAPH);
    TRY(graph_to_proto(e, graph, node->captures, &proto->g));
    if (!*node->domain && strcmp(node->op, "Loop") == 0) set_loop_shapes(e, proto->g);
    return NULL;
}

static Status check_opset(const Exporter *e, const Node *node) {
    const ModelInfo *info = e->outermost->info;
    for (int i = 0; i < info->opsets.count; i++)
        if (strcmp(info->opsets.items[i].domain, node->domain) == 0 && info->opsets.items[i].version == node->opset)
            return NULL;
    return status_error(STATUS_UNSUPPORTED, "node \"%s\" (%s) is of opset %d, which the model does not import",
                        node_origin_name(node), node->op, node->opset);
}

static Status node_to_proto(Exporter *e, const Node *node, Onnx__NodeProto **out) {
    if (node->kind != NODE_ONNX && node->kind != NODE_HOST)
        return status_error(STATUS_UNSUPPORTED, "node \"%s\" (%s) is no ONNX operator", node_origin_name(node),
                            node->op);
    TRY(check_opset(e, node));
    Onnx__NodeProto *proto = *out = NEW(Onnx__NodeProto, node_proto);
    proto->op_type = borrowed(node->op);
    proto->domain = borrowed(node->domain);
    proto->name = borrowed(node->origin.count ? node->origin.names[node->origin.count - 1] : "");
    proto->n_input = (size_t)(node->input_count - node->captures);
    proto->input = names_of(e, node->inputs, node->input_count - node->captures);
    proto->n_output = (size_t)node->output_count;
    proto->output = names_of(e, node->outputs, node->output_count);
    proto->attribute = ARENA_ARRAY(e->arena, Onnx__AttributeProto *, node->attrs.count + node->subgraph_count);
    for (int i = 0; i < node->attrs.count; i++) {
        Onnx__AttributeProto *attribute;
        TRY(attribute_to_proto(e, node, &node->attrs.items[i], &attribute));
        if (attribute) proto->attribute[proto->n_attribute++] = attribute;
    }
    for (int i = 0; i < node->subgraph_count; i++)
        TRY(subgraph_to_proto(e, node, i, &proto->attribute[proto->n_attribute++]));
    return NULL;
}

/* An output that is not made by a node of its graph under its own name is made by an Identity. */
static bool needs_identity(Exporter *e, const Graph *graph, int index) {
    const Value *value = graph->outputs.items[index];
    if (graph->parent) return !value->producer;
    return strcmp(name_of(e, value), graph->output_names.items[index]) != 0;
}

static Onnx__NodeProto *identity_to_proto(Exporter *e, char *input, char *output) {
    Onnx__NodeProto *proto = NEW(Onnx__NodeProto, node_proto);
    proto->op_type = borrowed("Identity");
    proto->n_input = proto->n_output = 1;
    proto->input = arena_copy(e->arena, &input, sizeof input);
    proto->output = arena_copy(e->arena, &output, sizeof output);
    return proto;
}

static void add_output_to_proto(Exporter *e, const Graph *graph, int index, Onnx__GraphProto *proto) {
    const Value *value = graph->outputs.items[index];
    char *name = name_of(e, value);
    if (needs_identity(e, graph, index)) {
        char *input = name;
        name = graph->parent ? arena_format(e->arena, "%s_out%d", name, index)
                             : borrowed(graph->output_names.items[index]);
        proto->node[proto->n_node++] = identity_to_proto(e, input, name);
    }
    proto->output[proto->n_output++] = info_to_proto(e, name, value);
}

static bool is_used(const Graph *graph, const Value *value) {
    return value->uses.count > 0 || value_is_output(graph, value);
}

static void add_constant_to_proto(Exporter *e, const Graph *graph, const Value *value, Onnx__GraphProto *proto) {
    if (!value->constant || value->producer || !is_used(graph, value)) return;
    char *outer = map_get_id(&e->weights, MAP_POINTER_KEY(value->constant));
    if (graph->parent && outer) {
        map_set_id(&e->names, MAP_POINTER_KEY(value), outer);
        return;
    }
    proto->initializer[proto->n_initializer++] = tensor_to_proto(e->arena, value->constant, name_of(e, value));
    if (!graph->parent) map_set_id(&e->weights, MAP_POINTER_KEY(value->constant), name_of(e, value));
}

static Status graph_to_proto(Exporter *e, const Graph *graph, int captures, Onnx__GraphProto **out) {
    Onnx__GraphProto *proto = *out = NEW(Onnx__GraphProto, graph_proto);
    int inputs = graph->inputs.count - captures;
    proto->name = borrowed(graph->name);
    proto->input = ARENA_ARRAY(e->arena, Onnx__ValueInfoProto *, inputs);
    proto->output = ARENA_ARRAY(e->arena, Onnx__ValueInfoProto *, graph->outputs.count);
    proto->initializer = ARENA_ARRAY(e->arena, Onnx__TensorProto *, graph->values.count);
    proto->node = ARENA_ARRAY(e->arena, Onnx__NodeProto *, graph->node_count + graph->outputs.count);
    for (int i = 0; i < inputs; i++) {
        const Value *value = graph->inputs.items[i];
        proto->input[proto->n_input++] = info_to_proto(e, name_of(e, value), value);
    }
    for (int i = 0; i < graph->values.count; i++) add_constant_to_proto(e, graph, graph->values.items[i], proto);
    FOR_EACH_NODE(node, graph) {
        TRY(node_to_proto(e, node, &proto->node[proto->n_node]));
        proto->n_node++;
    }
    for (int i = 0; i < graph->outputs.count; i++) add_output_to_proto(e, graph, i, proto);
    return NULL;
}

/* The outermost graph's names are taken first, so that they stay as they are. */
static void take_names(Exporter *e, const Graph *graph) {
    for (int i = 0; i < graph->outputs.count; i++) {
        const Value *value = graph->outputs.items[i];
        const char *name = graph->output_names.items[i];
        if (strcmp(value->name, name) == 0) name_of(e, value);
        map_set(&e->taken, name, borrowed(name));
    }
    for (int i = 0; i < graph->values.count; i++) name_of(e, graph->values.items[i]);
}

static void add_model_info(Exporter *e, Onnx__ModelProto *model) {
    const ModelInfo *info = e->outermost->info;
    model->has_ir_version = 1;
    model->ir_version = info->ir_version < 4 ? 4 : info->ir_version; /* constants are no inputs from 4 on */
    model->producer_name = borrowed("onnxfuse");
    model->doc_string = borrowed(info->doc);
    model->opset_import = ARENA_ARRAY(e->arena, Onnx__OperatorSetIdProto *, info->opsets.count);
    for (int i = 0; i < info->opsets.count; i++) {
        Onnx__OperatorSetIdProto *import = NEW(Onnx__OperatorSetIdProto, operator_set_id_proto);
        import->domain = borrowed(info->opsets.items[i].domain);
        import->has_version = 1;
        import->version = info->opsets.items[i].version;
        model->opset_import[model->n_opset_import++] = import;
    }
    model->metadata_props = ARENA_ARRAY(e->arena, Onnx__StringStringEntryProto *, info->metadata.count);
    for (int i = 0; i < info->metadata.count; i++) {
        Onnx__StringStringEntryProto *entry = NEW(Onnx__StringStringEntryProto, string_string_entry_proto);
        entry->key = borrowed(info->metadata.items[i].key);
        entry->value = borrowed(info->metadata.items[i].value);
        model->metadata_props[model->n_metadata_props++] = entry;
    }
}

Status export_model(const Graph *graph, Arena *arena, void **out_bytes, size_t *out_size) {
    Exporter *e = ARENA_NEW(arena, Exporter);
    *e = (Exporter){arena, graph, map_make(arena), map_make(arena), map_make(arena)};
    Onnx__ModelProto *model = NEW(Onnx__ModelProto, model_proto);
    take_names(e, graph);
    add_model_info(e, model);
    TRY(graph_to_proto(e, graph, 0, &model->graph));
    *out_size = protobuf_c_message_get_packed_size(&model->base);
    if (*out_size > INT_MAX)
        return status_error(STATUS_UNSUPPORTED, "the model takes %zu bytes, more than the 2 GiB of one file",
                            *out_size);
    *out_bytes = arena_alloc(arena, *out_size);
    protobuf_c_message_pack(&model->base, *out_bytes);
    return NULL;
}
