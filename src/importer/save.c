/* SPDX-License-Identifier: Apache-2.0 */
/* A graph of ONNX nodes -> a model. Captures become what they are in ONNX: plain uses of outer names. */
#include "importer/build.h"

#include <limits.h>

#define TYPE(name) ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__##name
#define NEW(type, name) ((type *)new_message(e->arena, &onnx__##name##__descriptor))

typedef struct Exporter {
    Arena *arena;
    const Graph *outermost;
    Map names; /* Value * -> the name it has in the file */
    Map taken; /* names in use, of any graph */
    Map nodes; /* names of nodes in use, of the present graph -> 1, or the next number behind it: some runtimes refuse two of one name */
    Map weights; /* Tensor * of the outermost graph's initializers -> name: subgraphs read them from there */
    const ExportOptions *options;
    struct Functions *functions; /* NULL: nodes stand alone */
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

/* Two nodes have one name where a function was put in place of its calls, or where one node has become several. */
static char *node_name_of(Exporter *e, const char *wanted) {
    if (!*wanted) return borrowed(wanted);
    uintptr_t number = (uintptr_t)map_get(&e->nodes, wanted); /* of nodes that wanted this name */
    const char *name = wanted;
    for (; map_get(&e->nodes, name); number++) name = arena_format(e->arena, "%s_%d", wanted, (int)number);
    map_set(&e->nodes, wanted, (void *)(number ? number : 1));
    if (name != wanted) map_set(&e->nodes, name, (void *)1);
    return borrowed(name);
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

static Onnx__TypeProto *map_type(Exporter *e, DType key, Onnx__TypeProto *value) {
    Onnx__TypeProto *type = NEW(Onnx__TypeProto, type_proto);
    type->map_type = NEW(Onnx__TypeProto__Map, type_proto__map);
    type->map_type->has_key_type = 1;
    type->map_type->key_type = (int32_t)key;
    type->map_type->value_type = value;
    return type;
}

/* key: of kinds that have maps. */
static Onnx__TypeProto *type_to_proto(Exporter *e, ValueKind kind, DType dtype, DType key,
                                      Onnx__TensorShapeProto *shape) {
    Onnx__TypeProto *type = tensor_type(e, dtype, shape);
    if (value_kind_has_maps(kind)) type = map_type(e, key, type);
    if (kind == VALUE_SEQUENCE || kind == VALUE_OPTIONAL_SEQUENCE || kind == VALUE_MAP_SEQUENCE) {
        Onnx__TypeProto *sequence = NEW(Onnx__TypeProto, type_proto);
        sequence->sequence_type = NEW(Onnx__TypeProto__Sequence, type_proto__sequence);
        sequence->sequence_type->elem_type = type;
        type = sequence;
    }
    if (value_kind_is_optional(kind)) {
        Onnx__TypeProto *optional = NEW(Onnx__TypeProto, type_proto);
        optional->optional_type = NEW(Onnx__TypeProto__Optional, type_proto__optional);
        optional->optional_type->elem_type = type;
        type = optional;
    }
    return type;
}

static Onnx__ValueInfoProto *untyped_info(Exporter *e, const char *name) {
    Onnx__ValueInfoProto *info = NEW(Onnx__ValueInfoProto, value_info_proto);
    info->name = borrowed(name);
    return info;
}

static Onnx__ValueInfoProto *info_to_proto(Exporter *e, const char *name, const Value *value) {
    Onnx__ValueInfoProto *info = untyped_info(e, name);
    if (value->dtype != DT_NONE)
        info->type = type_to_proto(e, value->kind, value->dtype, value->key, shape_to_proto(e, value));
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

/* The NAME of an attribute NAME_graph, which holds the number of a subgraph of an operator that is not control flow;
 * else NULL. */
static const char *graph_attr_name(Exporter *e, const Node *node, const Attr *attr) {
    size_t length = strlen(attr->name);
    if (attr->kind != ATTR_INT || attr->i < 0 || attr->i >= node->subgraph_count) return NULL;
    if (subgraph_names(node->domain, node->op) || length <= 6 || strcmp(attr->name + length - 6, "_graph") != 0)
        return NULL;
    return arena_string_n(e->arena, attr->name, length - 6);
}

static char *subgraph_name(Exporter *e, const Node *node, int index) {
    const char *const *names = subgraph_names(node->domain, node->op);
    for (int i = 0; names && names[i]; i++)
        if (i == index) return borrowed(names[i]);
    for (int i = 0; !names && i < node->attrs.count; i++) {
        const char *name = graph_attr_name(e, node, &node->attrs.items[i]);
        if (name && node->attrs.items[i].i == index) return borrowed(name);
    }
    return arena_format(e->arena, "graph_%d", index);
}

/* NULL for what is the second half of another attribute. */
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
    if (graph_attr_name(e, node, attr)) return NULL;
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
        proto->tp = type_to_proto(e, kind_of_type(node, attr->name, e->arena), attr->dtype, DT_NONE, NULL);
    return NULL;
}

/* ---- nodes and graphs ---- */

static Status graph_to_proto(Exporter *e, const Graph *graph, int captures, bool named, Onnx__GraphProto **out);
static Status add_nodes_to_proto(Exporter *e, const Graph *graph, Onnx__GraphProto *proto);

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
    Onnx__AttributeProto *proto = *out = NEW(Onnx__AttributeProto, attribute_proto);
    proto->name = subgraph_name(e, node, index);
    proto->has_type = 1;
    proto->type = TYPE(GRAPH);
    TRY(graph_to_proto(e, graph, node->captures, !subgraph_names(node->domain, node->op), &proto->g));
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
    proto->name = node_name_of(e, node->origin.count ? node->origin.names[node->origin.count - 1] : "");
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

/* An output that is not made by a node of its graph under its own name is made by an Identity. named: its readers know it by that name. */
static bool needs_identity(Exporter *e, const Graph *graph, int index, bool named) {
    const Value *value = graph->outputs.items[index];
    if (!named) return !value->producer;
    return strcmp(name_of(e, value), graph->output_names.items[index]) != 0;
}

static Onnx__NodeProto *identity_to_proto(Exporter *e, char *input, char *output) {
    Onnx__NodeProto *proto = NEW(Onnx__NodeProto, node_proto);
    proto->op_type = borrowed("Identity");
    proto->domain = borrowed("");
    proto->name = node_name_of(e, output); /* as any node's that is read and written again */
    proto->n_input = proto->n_output = 1;
    proto->input = arena_copy(e->arena, &input, sizeof input);
    proto->output = arena_copy(e->arena, &output, sizeof output);
    return proto;
}

static void add_output_to_proto(Exporter *e, const Graph *graph, int index, bool named, Onnx__GraphProto *proto) {
    const Value *value = graph->outputs.items[index];
    char *name = name_of(e, value);
    if (needs_identity(e, graph, index, named)) {
        char *input = name;
        name = named ? borrowed(graph->output_names.items[index]) : arena_format(e->arena, "%s_out%d", name, index);
        proto->node[proto->n_node++] = identity_to_proto(e, input, name);
    }
    bool made =
        graph->parent && !value->producer; /* by that node, whose result has no type before the model is lowered */
    proto->output[proto->n_output++] = made ? untyped_info(e, name) : info_to_proto(e, name, value);
}

static void add_constant_to_proto(Exporter *e, const Graph *graph, const Value *value, Onnx__GraphProto *proto) {
    if (!value->constant || value->producer || !value_is_read(value)) return;
    char *outer = map_get_id(&e->weights, MAP_POINTER_KEY(value->constant));
    if (graph->parent && outer) {
        map_set_id(&e->names, MAP_POINTER_KEY(value), outer);
        return;
    }
    proto->initializer[proto->n_initializer++] = tensor_to_proto(e->arena, value->constant, name_of(e, value));
    if (!graph->parent) map_set_id(&e->weights, MAP_POINTER_KEY(value->constant), name_of(e, value));
}

static int count_body_values(const Graph *graph) {
    int count = 0;
    FOR_EACH_NODE(node, graph)
    for (int s = 0; s < node->subgraph_count; s++)
        count += node->subgraphs[s]->values.count + count_body_values(node->subgraphs[s]);
    return count;
}

/* Constants that several subgraphs read and the outermost graph does not are written there all the same, once. */
static void hoist_constants(Exporter *e, const Graph *graph, Map *readers, Onnx__GraphProto *proto) {
    FOR_EACH_NODE(node, graph)
    for (int s = 0; s < node->subgraph_count; s++) {
        const Graph *body = node->subgraphs[s];
        for (int i = 0; i < body->values.count; i++) {
            const Value *value = body->values.items[i];
            if (!value->constant || value->producer || !value_is_read(value)) continue;
            uint64_t key = MAP_POINTER_KEY(value->constant);
            const Graph *first = map_get_id(readers, key);
            if (!first) map_set_id(readers, key, (void *)(uintptr_t)body);
            if (!first || first == body || map_get_id(&e->weights, key)) continue;
            proto->initializer[proto->n_initializer++] = tensor_to_proto(e->arena, value->constant, name_of(e, value));
            map_set_id(&e->weights, key, name_of(e, value));
        }
        hoist_constants(e, body, readers, proto);
    }
}

/* Graphs of an operator that is not control flow stand beside each other, and the operator tells their inputs and outputs by name. */
static void keep_names(Exporter *e, const Graph *graph, int inputs) {
    for (int i = 0; i < inputs; i++) {
        const Value *value = graph->inputs.items[i];
        map_set_id(&e->names, MAP_POINTER_KEY(value), borrowed(value->name));
    }
    for (int i = 0; i < graph->outputs.count; i++) {
        const Value *value = graph->outputs.items[i];
        if (value->producer && strcmp(value->name, graph->output_names.items[i]) == 0)
            map_set_id(&e->names, MAP_POINTER_KEY(value), borrowed(value->name));
    }
}

/* named: its inputs and outputs are known by their names, not by their places. */
static Status graph_to_proto(Exporter *e, const Graph *graph, int captures, bool named, Onnx__GraphProto **out) {
    Onnx__GraphProto *proto = *out = NEW(Onnx__GraphProto, graph_proto);
    int inputs = graph->inputs.count - captures;
    if (named && graph->parent) keep_names(e, graph, inputs);
    proto->name = borrowed(graph->name);
    proto->input = ARENA_ARRAY(e->arena, Onnx__ValueInfoProto *, inputs);
    proto->output = ARENA_ARRAY(e->arena, Onnx__ValueInfoProto *, graph->outputs.count);
    int hoisted = graph->parent ? 0 : count_body_values(graph);
    proto->initializer = ARENA_ARRAY(e->arena, Onnx__TensorProto *, graph->values.count + hoisted);
    proto->node = ARENA_ARRAY(e->arena, Onnx__NodeProto *, graph->node_count + graph->outputs.count);
    for (int i = 0; i < inputs; i++) {
        const Value *value = graph->inputs.items[i];
        proto->input[proto->n_input++] = info_to_proto(e, name_of(e, value), value);
    }
    for (int i = 0; i < graph->values.count; i++) add_constant_to_proto(e, graph, graph->values.items[i], proto);
    if (!graph->parent) {
        Map readers = map_make(e->arena);
        hoist_constants(e, graph, &readers, proto);
    }
    Map outer = e->nodes;
    e->nodes = map_make(e->arena);
    TRY(add_nodes_to_proto(e, graph, proto));
    for (int i = 0; i < graph->outputs.count; i++) add_output_to_proto(e, graph, i, named, proto);
    e->nodes = outer;
    return NULL;
}

/* ---- regions as functions ---- */

typedef struct Body {
    const uint8_t *bytes; /* its nodes, packed, with numbers for names */
    size_t size;
    char *name; /* of the function */
} Body;

typedef struct Functions {
    Map bodies; /* hash -> Body *: regions that are equal up to names share a function */
    Map calls;  /* function's name -> Body *, with how many calls it has in size */
    VEC(Onnx__FunctionProto *) protos;
} Functions;

typedef VEC(char *) Names;

typedef struct Region {
    VEC(const Node *) nodes;
    VEC(Onnx__NodeProto *) protos;
    Names inputs, outputs;
    Map numbered; /* name -> the name that stands for it in a body that is compared */
} Region;

static void number_name(Exporter *e, Region *r, const char *name, char kind) {
    if (*name && !map_get(&r->numbered, name))
        map_set(&r->numbered, name, arena_format(e->arena, "%c%d", kind, r->numbered.count));
}

static bool is_read_outside(const Value *value, uint64_t tag) {
    for (int i = 0; i < value->uses.count; i++)
        if (value->uses.items[i].node->tag != tag) return true;
    return value_is_output(value);
}

/* Inputs in the order in which they are first read; what is read outside becomes an output. */
static void find_interface(Exporter *e, Region *r) {
    for (int i = 0; i < r->protos.count; i++) {
        const Onnx__NodeProto *proto = r->protos.items[i];
        const Node *node = r->nodes.items[i];
        for (size_t k = 0; k < proto->n_input; k++) {
            if (*proto->input[k] && !map_get(&r->numbered, proto->input[k]))
                VEC_PUSH(e->arena, r->inputs, proto->input[k]);
            number_name(e, r, proto->input[k], 'i');
        }
        for (int k = 0; k < node->output_count; k++) {
            number_name(e, r, proto->output[k], 'o');
            if (node->outputs[k] && is_read_outside(node->outputs[k], node->tag))
                VEC_PUSH(e->arena, r->outputs, proto->output[k]);
        }
    }
}

static char **numbered(Exporter *e, const Region *r, char *const *names, size_t count) {
    char **result = ARENA_ARRAY(e->arena, char *, count);
    for (size_t i = 0; i < count; i++) result[i] = *names[i] ? map_get(&r->numbered, names[i]) : borrowed("");
    return result;
}

/* What two regions have in common if one function does for both. */
static Body *pack_body(Exporter *e, const Region *r) {
    Text text = text_make(e->arena);
    for (int i = 0; i < r->protos.count; i++) {
        Onnx__NodeProto node = *r->protos.items[i];
        node.name = NULL;
        node.input = numbered(e, r, node.input, node.n_input);
        node.output = numbered(e, r, node.output, node.n_output);
        size_t size = protobuf_c_message_get_packed_size(&node.base);
        uint8_t *bytes = arena_alloc(e->arena, size + 1);
        protobuf_c_message_pack(&node.base, bytes);
        text_add(&text, "%zu:%d:", size, r->nodes.items[i]->opset);
        text_add_bytes(&text, (const char *)bytes, size);
    }
    for (int i = 0; i < r->outputs.count; i++)
        text_add(&text, " %s", (const char *)map_get(&r->numbered, r->outputs.items[i]));
    Body *body = ARENA_NEW(e->arena, Body);
    *body = (Body){(const uint8_t *)text.data, text.size, NULL};
    return body;
}

/* region_3_MatMul_Add_Gelu; repeated operators once, long names cut. */
static char *function_name(Exporter *e, const Region *r) {
    enum { LONGEST = 60 };
    Text text = text_make(e->arena);
    text_add(&text, "region_%d", e->functions->protos.count + 1);
    const char *last = "";
    for (int i = 0; i < r->nodes.count; i++) {
        const char *op = r->nodes.items[i]->op;
        if (strcmp(op, last) == 0) continue;
        last = op;
        if (text.size + strlen(op) > LONGEST) {
            text_add(&text, "_etc");
            break;
        }
        text_add(&text, "_");
        for (const char *c = op; *c; c++) {
            bool plain = (*c >= '0' && *c <= '9') || (*c >= 'a' && *c <= 'z') || (*c >= 'A' && *c <= 'Z');
            text_add_bytes(&text, plain ? c : "_", 1);
        }
    }
    return text.data;
}

static void import_domains(Exporter *e, const Region *r, Onnx__FunctionProto *function) {
    Map imported = map_make(e->arena);
    function->opset_import = ARENA_ARRAY(e->arena, Onnx__OperatorSetIdProto *, r->nodes.count);
    for (int i = 0; i < r->nodes.count; i++) {
        const Node *node = r->nodes.items[i];
        if (map_get(&imported, node->domain)) continue;
        map_set(&imported, node->domain, (void *)(uintptr_t)node);
        Onnx__OperatorSetIdProto *import = NEW(Onnx__OperatorSetIdProto, operator_set_id_proto);
        import->domain = borrowed(node->domain);
        import->has_version = 1;
        import->version = node->opset;
        function->opset_import[function->n_opset_import++] = import;
    }
}

static void add_function(Exporter *e, const Region *r, const Body *body) {
    Onnx__FunctionProto *function = NEW(Onnx__FunctionProto, function_proto);
    function->name = body->name;
    function->domain = borrowed(REGIONS_DOMAIN);
    function->doc_string = borrowed(e->options->regions[r->nodes.items[0]->tag - 1]);
    function->n_input = (size_t)r->inputs.count;
    function->input = r->inputs.items;
    function->n_output = (size_t)r->outputs.count;
    function->output = r->outputs.items;
    function->n_node = (size_t)r->protos.count;
    function->node = r->protos.items;
    import_domains(e, r, function);
    VEC_PUSH(e->arena, e->functions->protos, function);
}

static Onnx__NodeProto *call_of(Exporter *e, const Region *r, const Body *body) {
    Body *calls = map_get(&e->functions->calls, body->name);
    if (!calls) map_set(&e->functions->calls, body->name, calls = ARENA_NEW(e->arena, Body));
    calls->size++;
    Onnx__NodeProto *call = NEW(Onnx__NodeProto, node_proto);
    call->op_type = body->name;
    call->domain = borrowed(REGIONS_DOMAIN);
    call->name = calls->size == 1 ? body->name : arena_format(e->arena, "%s.%zu", body->name, calls->size);
    call->n_input = (size_t)r->inputs.count;
    call->input = r->inputs.items;
    call->n_output = (size_t)r->outputs.count;
    call->output = r->outputs.items;
    return call;
}

/* The nodes from `first` on that have its tag; *out_next: the one behind them. */
static Status region_to_proto(Exporter *e, const Node *first, const Node **out_next, Onnx__NodeProto **out_call) {
    Region r = {.numbered = map_make(e->arena)};
    const Node *node = first;
    for (; node && node->tag == first->tag; node = node->next) {
        Onnx__NodeProto *proto;
        TRY(node_to_proto(e, node, &proto));
        VEC_PUSH(e->arena, r.nodes, node);
        VEC_PUSH(e->arena, r.protos, proto);
    }
    *out_next = node;
    find_interface(e, &r);
    Body *body = pack_body(e, &r);
    uint64_t hash = hash_bytes(body->bytes, body->size, 0);
    Body *same = map_get_id(&e->functions->bodies, hash);
    bool shared = same && same->size == body->size && memcmp(same->bytes, body->bytes, body->size) == 0;
    if (!shared) {
        body->name = function_name(e, &r);
        map_set_id(&e->functions->bodies, hash, body);
        add_function(e, &r, body);
    }
    *out_call = call_of(e, &r, shared ? same : body);
    return NULL;
}

static Status add_nodes_to_proto(Exporter *e, const Graph *graph, Onnx__GraphProto *proto) {
    const Node *node = graph->first;
    while (node) {
        Onnx__NodeProto **place = &proto->node[proto->n_node];
        if (e->functions && node->tag) {
            TRY(region_to_proto(e, node, &node, place));
        } else {
            TRY(node_to_proto(e, node, place));
            node = node->next;
        }
        proto->n_node++;
    }
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

static void import_domain(Exporter *e, Onnx__ModelProto *model, const char *domain, int64_t version) {
    Onnx__OperatorSetIdProto *import = NEW(Onnx__OperatorSetIdProto, operator_set_id_proto);
    import->domain = borrowed(domain);
    import->has_version = 1;
    import->version = version;
    model->opset_import[model->n_opset_import++] = import;
}

static void add_functions(Exporter *e, Onnx__ModelProto *model) {
    enum { FIRST_WITH_FUNCTIONS = 8 }; /* IR version */
    if (!e->functions || !e->functions->protos.count) return;
    model->functions = e->functions->protos.items;
    model->n_functions = (size_t)e->functions->protos.count;
    if (model->ir_version < FIRST_WITH_FUNCTIONS) model->ir_version = FIRST_WITH_FUNCTIONS;
    import_domain(e, model, REGIONS_DOMAIN, 1);
}

static void add_model_info(Exporter *e, Onnx__ModelProto *model) {
    const ModelInfo *info = e->outermost->info;
    model->has_ir_version = 1;
    model->ir_version = info->ir_version < 4 ? 4 : info->ir_version; /* constants are no inputs from 4 on */
    model->producer_name = borrowed("onnxfuse");
    model->doc_string = borrowed(info->doc);
    model->opset_import = ARENA_ARRAY(e->arena, Onnx__OperatorSetIdProto *, info->opsets.count + 1);
    for (int i = 0; i < info->opsets.count; i++)
        if (strcmp(info->opsets.items[i].domain, REGIONS_DOMAIN) != 0)
            import_domain(e, model, info->opsets.items[i].domain, info->opsets.items[i].version);
    model->metadata_props = ARENA_ARRAY(e->arena, Onnx__StringStringEntryProto *, info->metadata.count);
    for (int i = 0; i < info->metadata.count; i++) {
        Onnx__StringStringEntryProto *entry = NEW(Onnx__StringStringEntryProto, string_string_entry_proto);
        entry->key = borrowed(info->metadata.items[i].key);
        entry->value = borrowed(info->metadata.items[i].value);
        model->metadata_props[model->n_metadata_props++] = entry;
    }
}

/* ---- what the file said and the graph does not ---- */

static Onnx__ValueInfoProto *declared(Onnx__ValueInfoProto *const *infos, size_t count, const char *name) {
    for (size_t i = 0; i < count; i++)
        if (infos[i]->name && strcmp(infos[i]->name, name) == 0) return infos[i];
    return NULL;
}

/* Declared types stand as they were, the unknown and named sizes of outputs among them. */
static void keep_declared(Onnx__ValueInfoProto **infos, size_t count, Onnx__ValueInfoProto *const *originals,
                          size_t original_count) {
    for (size_t i = 0; i < count; i++) {
        Onnx__ValueInfoProto *original = declared(originals, original_count, infos[i]->name);
        if (original) infos[i] = original;
    }
}

/* Types of values inside, where a node still makes a value of that name. */
static void keep_value_infos(Exporter *e, Onnx__GraphProto *graph, const Onnx__GraphProto *original) {
    Map made = map_make(e->arena);
    for (size_t i = 0; i < graph->n_node; i++)
        for (size_t k = 0; k < graph->node[i]->n_output; k++) map_set(&made, graph->node[i]->output[k], graph);
    graph->value_info = ARENA_ARRAY(e->arena, Onnx__ValueInfoProto *, original->n_value_info);
    for (size_t i = 0; i < original->n_value_info; i++) {
        const char *name = original->value_info[i]->name;
        if (name && map_get(&made, name) && !declared(graph->output, graph->n_output, name))
            graph->value_info[graph->n_value_info++] = original->value_info[i];
    }
}

/* Sizes that are told: by name, or of an input's axis without a name, which the importer calls INPUT_AXIS. */
static void fix_sizes(Exporter *e, const Map *fixed, Onnx__ValueInfoProto *const *infos, size_t count) {
    for (size_t i = 0; i < count; i++) {
        const Onnx__TypeProto *type = infos[i]->type;
        const Onnx__TensorShapeProto *shape = type && type->tensor_type ? type->tensor_type->shape : NULL;
        for (size_t k = 0; shape && k < shape->n_dim; k++) {
            Onnx__TensorShapeProto__Dimension *dim = shape->dim[k];
            if (dim->has_dim_value) continue;
            const char *name = dim->dim_param && *dim->dim_param
                                   ? dim->dim_param
                                   : arena_format(e->arena, "%s_%zu", infos[i]->name ? infos[i]->name : "", k);
            const int64_t *size = map_get(fixed, name);
            if (!size) continue;
            dim->has_dim_value = 1;
            dim->dim_value = *size;
            dim->dim_param = NULL;
        }
    }
}

static void fix_graph(Exporter *e, const Map *fixed, const Onnx__GraphProto *graph) {
    fix_sizes(e, fixed, graph->input, graph->n_input);
    fix_sizes(e, fixed, graph->output, graph->n_output);
    fix_sizes(e, fixed, graph->value_info, graph->n_value_info);
}

static void keep_body_types(Exporter *e, Onnx__GraphProto *graph, const Onnx__GraphProto *original);

static void keep_types(Onnx__ValueInfoProto **infos, size_t count, Onnx__ValueInfoProto *const *originals,
                       size_t original_count) {
    for (size_t i = 0; count == original_count && i < count; i++)
        if (originals[i]->type) infos[i]->type = originals[i]->type;
}

static void keep_node_types(Exporter *e, const Onnx__NodeProto *node, const Onnx__NodeProto *original) {
    for (size_t i = 0; i < node->n_attribute; i++)
        for (size_t k = 0; k < original->n_attribute; k++) {
            Onnx__GraphProto *body = node->attribute[i]->g;
            const Onnx__AttributeProto *other = original->attribute[k];
            if (!body || !other->g || !other->name || strcmp(node->attribute[i]->name, other->name) != 0) continue;
            keep_types(body->input, body->n_input, other->g->input, other->g->n_input);
            keep_types(body->output, body->n_output, other->g->output, other->g->n_output);
            keep_body_types(e, body, other->g);
        }
}

/* What bodies declare, for runtimes that do not infer it: of nodes that still make a value of the same name. */
static void keep_body_types(Exporter *e, Onnx__GraphProto *graph, const Onnx__GraphProto *original) {
    Map makers = map_make(e->arena);
    for (size_t i = 0; i < original->n_node; i++)
        for (size_t k = 0; k < original->node[i]->n_output; k++)
            map_set(&makers, original->node[i]->output[k], original->node[i]);
    for (size_t i = 0; i < graph->n_node; i++) {
        const Onnx__NodeProto *node = graph->node[i], *maker = NULL;
        for (size_t k = 0; !maker && k < node->n_output; k++)
            if (*node->output[k]) maker = map_get(&makers, node->output[k]);
        if (maker && maker->op_type && strcmp(maker->op_type, node->op_type) == 0) keep_node_types(e, node, maker);
    }
}

static Status keep_original(Exporter *e, Onnx__ModelProto *model, const ExportOptions *options) {
    if (!options->original) return NULL;
    Onnx__ModelProto *original;
    TRY(wire_unpack(e->arena, e->arena, &onnx__model_proto__descriptor, options->original, options->original_size,
                    &original));
    const Onnx__GraphProto *graph = original->graph;
    if (!graph) return NULL;
    model->domain = original->domain;
    model->has_model_version = original->has_model_version;
    model->model_version = original->model_version;
    model->doc_string = original->doc_string;
    model->producer_name = original->producer_name;
    model->producer_version = original->producer_version;
    model->graph->doc_string = graph->doc_string;
    model->graph->metadata_props = graph->metadata_props;
    model->graph->n_metadata_props = graph->n_metadata_props;
    if (options->fixed) fix_graph(e, options->fixed, graph);
    keep_declared(model->graph->input, model->graph->n_input, graph->input, graph->n_input);
    keep_declared(model->graph->output, model->graph->n_output, graph->output, graph->n_output);
    keep_value_infos(e, model->graph, graph);
    if (!options->fixed) keep_body_types(e, model->graph, graph);
    return NULL;
}

/* ---- external data ---- */

static Onnx__StringStringEntryProto *entry(Exporter *e, const char *key, const char *value) {
    Onnx__StringStringEntryProto *made = NEW(Onnx__StringStringEntryProto, string_string_entry_proto);
    made->key = borrowed(key);
    made->value = borrowed(value);
    return made;
}

static Status move_out(Exporter *e, Onnx__GraphProto *graph, const ExportOptions *options) {
    enum { SMALLEST_EXTERNAL = 1024 }; /* bytes, as other writers have it: shapes and scalars stay in the model */
    for (size_t i = 0; i < graph->n_initializer; i++) {
        Onnx__TensorProto *tensor = graph->initializer[i];
        if (!tensor->has_raw_data || tensor->raw_data.len < SMALLEST_EXTERNAL) continue;
        size_t size = tensor->raw_data.len;
        const char *location;
        int64_t offset;
        TRY(options->write(options->user, tensor->raw_data.data, size, &location, &offset));
        tensor->has_raw_data = 0;
        tensor->raw_data = (ProtobufCBinaryData){0};
        tensor->has_data_location = 1;
        tensor->data_location = ONNX__TENSOR_PROTO__DATA_LOCATION__EXTERNAL;
        tensor->external_data = ARENA_ARRAY(e->arena, Onnx__StringStringEntryProto *, 3);
        tensor->n_external_data = 3;
        tensor->external_data[0] = entry(e, "location", location);
        tensor->external_data[1] = entry(e, "offset", arena_format(e->arena, "%lld", (long long)offset));
        tensor->external_data[2] = entry(e, "length", arena_format(e->arena, "%zu", size));
    }
    return NULL;
}

Status export_model_with(const Graph *graph, Arena *arena, const ExportOptions *options, void **out_bytes,
                         size_t *out_size) {
    Exporter *e = ARENA_NEW(arena, Exporter);
    *e = (Exporter){.arena = arena, .outermost = graph, .options = options};
    e->names = e->taken = e->nodes = e->weights = map_make(arena);
    if (options->region_count) {
        e->functions = ARENA_NEW(arena, Functions);
        *e->functions = (Functions){.bodies = map_make(arena), .calls = map_make(arena)};
    }
    Onnx__ModelProto *model = NEW(Onnx__ModelProto, model_proto);
    take_names(e, graph);
    add_model_info(e, model);
    TRY(graph_to_proto(e, graph, 0, true, &model->graph));
    add_functions(e, model);
    TRY(keep_original(e, model, options));
    *out_size = protobuf_c_message_get_packed_size(&model->base);
    if (options->write && *out_size > options->most_inside) {
        TRY(move_out(e, model->graph, options));
        *out_size = protobuf_c_message_get_packed_size(&model->base);
    }
    if (*out_size > INT_MAX)
        return status_error(STATUS_UNSUPPORTED, "the model takes %zu bytes, more than the 2 GiB of one file",
                            *out_size);
    *out_bytes = arena_alloc(arena, *out_size);
    protobuf_c_message_pack(&model->base, *out_bytes);
    return NULL;
}

Status export_model(const Graph *graph, Arena *arena, void **out_bytes, size_t *out_size) {
    return export_model_with(graph, arena, &(ExportOptions){0}, out_bytes, out_size);
}
