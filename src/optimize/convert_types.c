/* SPDX-License-Identifier: Apache-2.0 */
/* Types of values, as far as the operators' schemas tell them: where lowering has not been, in bodies of loops above
 * all. */
#include "optimize/convert.h"
#include "optimize/schema.h"

enum { MOST_VARIABLES = 32 };

static void set_type(Convert *c, const Value *value, ValueType type) {
    if (!value || type.dtype == DT_NONE || convert_type(c, value).dtype != DT_NONE) return;
    map_set_id(&c->types, MAP_POINTER_KEY(value), arena_copy(c->arena, &type, sizeof type));
}

static ValueType without_rank(ValueType type) {
    type.rank = -1;
    return type;
}

static ValueType as_kind(ValueType type, ValueKind kind) { return (ValueType){kind, type.dtype, -1}; }

static ValueType optional_of(ValueType type) {
    return as_kind(type, type.kind == VALUE_SEQUENCE ? VALUE_OPTIONAL_SEQUENCE : VALUE_OPTIONAL);
}

static ValueType held_by(ValueType type) {
    if (type.kind == VALUE_OPTIONAL) return as_kind(type, VALUE_TENSOR);
    return type.kind == VALUE_OPTIONAL_SEQUENCE ? as_kind(type, VALUE_SEQUENCE) : type;
}

static ValueType from_attr(const Node *node, const char *name, DType otherwise) {
    return (ValueType){VALUE_TENSOR, attr_dtype(node, name, otherwise), -1};
}

/* Operators whose result's type no other value has. */
static ValueType special(const Convert *c, const Node *node) {
    const char *op = node->op;
    ValueType first = node_in(node, 0) ? convert_type(c, node_in(node, 0)) : (ValueType){0};
    const Attr *attr = node_attr(node, "value");
    if (strcmp(op, "Cast") == 0) return from_attr(node, "to", DT_NONE);
    if (strcmp(op, "ConstantOfShape") == 0)
        return (ValueType){VALUE_TENSOR, attr && attr->kind == ATTR_TENSOR ? attr->tensor->dtype : DT_F32, -1};
    if (strcmp(op, "SequenceAt") == 0 || strcmp(op, "ConcatFromSequence") == 0) return as_kind(first, VALUE_TENSOR);
    if (strcmp(op, "SequenceConstruct") == 0 || strcmp(op, "SplitToSequence") == 0)
        return as_kind(first, VALUE_SEQUENCE);
    if (strcmp(op, "SequenceEmpty") == 0) return as_kind(from_attr(node, "dtype", DT_F32), VALUE_SEQUENCE);
    if (strcmp(op, "Optional") == 0) return optional_of(first);
    if (strcmp(op, "OptionalGetElement") == 0) return held_by(first);
    if (strcmp(op, "QuantizeLinear") == 0) return from_attr(node, "output_dtype", DT_U8);
    if (strcmp(op, "EyeLike") == 0 || strncmp(op, "Random", 6) == 0 || strcmp(op, "Bernoulli") == 0) {
        DType otherwise = node_in(node, 0) ? first.dtype : DT_F32;
        return from_attr(node, "dtype", otherwise);
    }
    if (strcmp(op, "Multinomial") == 0) return from_attr(node, "dtype", DT_I32);
    if (strstr(op, "Window")) return from_attr(node, "output_datatype", DT_F32);
    if (strcmp(op, "MelWeightMatrix") == 0) return from_attr(node, "output_datatype", DT_F32);
    return (ValueType){0};
}

/* The body's inputs before its captures: those of the node, from `from` on. */
static void bind_body(Convert *c, const Node *node, const Graph *body, int to, int from) {
    int own = body->inputs.count - node->captures;
    for (int i = 0; to + i < own && from + i < node->input_count - node->captures; i++)
        if (node->inputs[from + i])
            set_type(c, body->inputs.items[to + i], without_rank(convert_type(c, node->inputs[from + i])));
    for (int i = 0; i < node->captures; i++) {
        const Value *outer = node->inputs[node->input_count - node->captures + i];
        if (outer && own + i >= 0) set_type(c, body->inputs.items[own + i], convert_type(c, outer));
    }
}

static void give_outputs(Convert *c, const Node *node, const Graph *body, int skip, ValueKind kind) {
    for (int i = 0; i < node->output_count && i + skip < body->outputs.count; i++) {
        ValueType type = without_rank(convert_type(c, body->outputs.items[i + skip]));
        set_type(c, node->outputs[i], kind == VALUE_SEQUENCE ? as_kind(type, kind) : type);
    }
}

static void infer_control_flow(Convert *c, const Node *node) {
    bool loop = strcmp(node->op, "Loop") == 0, map = strcmp(node->op, "SequenceMap") == 0;
    for (int i = 0; i < node->subgraph_count; i++) {
        Graph *body = node->subgraphs[i];
        int own = body->inputs.count - node->captures;
        if (loop && own > 0) set_type(c, body->inputs.items[0], (ValueType){VALUE_TENSOR, DT_I64, -1});
        if (loop && own > 1) set_type(c, body->inputs.items[1], (ValueType){VALUE_TENSOR, DT_BOOL, -1});
        bind_body(c, node, body, loop ? 2 : 0, loop ? 2 : 0);
        for (int k = 0; map && k < own && k < node->input_count; k++) /* elements of sequences */
            if (node->inputs[k])
                set_type(c, body->inputs.items[k], as_kind(convert_type(c, node->inputs[k]), VALUE_TENSOR));
        convert_infer(c, body);
        give_outputs(c, node, body, loop, map ? VALUE_SEQUENCE : VALUE_TENSOR);
    }
}

static void infer_node(Convert *c, const Node *node) {
    const Schema *schema = *node->domain ? NULL : schema_find(node->op, node->opset);
    ValueType bound[MOST_VARIABLES] = {{0}};
    if (node->subgraph_count) infer_control_flow(c, node);
    if (!schema) return;
    for (int i = 0; i < node->input_count - node->captures; i++) {
        const SchemaValue *input = schema_input(schema, i);
        if (input && input->variable >= 0 && input->variable < MOST_VARIABLES && node->inputs[i])
            bound[input->variable] = without_rank(convert_type(c, node->inputs[i]));
    }
    for (int i = 0; i < node->output_count; i++) {
        const SchemaValue *output = schema_output(schema, i);
        ValueType type = {.rank = -1};
        if (!output || !node->outputs[i]) continue;
        if (output->variable >= 0 && output->variable < MOST_VARIABLES) type = bound[output->variable];
        if (type.dtype == DT_NONE) type.dtype = schema_only_type(output, &type.kind);
        if (type.dtype == DT_NONE && i == 0) type = special(c, node);
        set_type(c, node->outputs[i], type);
    }
}

void convert_infer(Convert *c, Graph *graph) { FOR_EACH_NODE(node, graph) infer_node(c, node); }
