/* SPDX-License-Identifier: Apache-2.0 */
/* The walk from version to version, the attributes' defaults, the check of what came out, and what rules share. */
#include "optimize/convert.h"
#include "optimize/schema.h"
#include "base/plain.h"

#include <stdlib.h>

/* --- what rules ask --- */

ValueType convert_type(const Convert *c, const Value *value) {
    const ValueType *known = map_get_id(&c->types, MAP_POINTER_KEY(value));
    const Value *fact = map_get_id(&c->rewrite->facts, MAP_POINTER_KEY(value));
    if (value->constant) return (ValueType){VALUE_TENSOR, value->constant->dtype, value->constant->rank};
    if (known) return *known;
    if (fact && fact->dtype != DT_NONE) return (ValueType){fact->kind, fact->dtype, fact->rank < 0 ? -1 : fact->rank};
    return (ValueType){value->kind, value->dtype, value->rank < 0 ? -1 : value->rank};
}

int convert_rank(const Convert *c, const Value *value) { return value ? convert_type(c, value).rank : -1; }

bool convert_size(const Convert *c, const Value *value, int axis, int64_t *out_size) {
    const Value *fact = fact_of(c->rewrite, value);
    if (value && value->constant && axis >= 0 && axis < value->constant->rank) {
        *out_size = value->constant->dims[axis];
        return true;
    }
    return fact && axis >= 0 && axis < fact->rank && dim_is_const(fact->dims[axis], out_size);
}

const Tensor *convert_constant(const Convert *c, const Value *value) {
    const Value *fact = fact_of(c->rewrite, value);
    if (!value || value->constant) return value ? value->constant : NULL;
    return fact ? rewrite_constant(c->rewrite, fact) : NULL;
}

bool convert_ints(const Convert *c, const Value *value, int64_t *out_values, int *out_count) {
    enum { MOST = 64 };
    const Tensor *tensor = convert_constant(c, value);
    if (!tensor || !dtype_is_integer(tensor->dtype) || tensor->rank > 1 || tensor_count(tensor) > MOST) return false;
    *out_count = (int)tensor_count(tensor);
    for (int i = 0; i < *out_count; i++) out_values[i] = dtype_load_int(tensor->dtype, tensor->data, i);
    return true;
}

bool convert_number(const Convert *c, const Value *value, double *out_number) {
    const Tensor *tensor = convert_constant(c, value);
    if (!tensor || tensor_count(tensor) != 1 || dtype_class(tensor->dtype) == DTYPE_OTHER) return false;
    *out_number = dtype_load_double(tensor->dtype, tensor->data, 0);
    return true;
}

bool convert_is_used(const Node *node, int output) {
    const Value *value = output < node->output_count ? node->outputs[output] : NULL;
    return value && value_is_read(value);
}

bool convert_axis(const Convert *c, const Value *value, int64_t *axis) {
    if (*axis >= 0) return true;
    int rank = convert_rank(c, value);
    if (rank < 0) return false;
    *axis += rank;
    return *axis >= 0;
}

/* --- what rules do --- */

void convert_drop_attr(Node *node, const char *name) {
    int kept = 0;
    for (int i = 0; i < node->attrs.count; i++)
        if (strcmp(node->attrs.items[i].name, name) != 0) node->attrs.items[kept++] = node->attrs.items[i];
    node->attrs.count = kept;
}

void convert_drop_input(Node *node, int index) {
    if (index < node->input_count - node->captures) node_set_input(node, index, NULL);
    while (!node->captures && node->input_count && !node->inputs[node->input_count - 1]) node->input_count--;
}

void convert_attr_to_input(Convert *c, Node *node, const char *name, int input) {
    int count;
    const int64_t *values = attr_ints(node, name, &count);
    if (!values) return;
    node_put_input(node, input, convert_ints_value(c, node, values, count));
    convert_drop_attr(node, name);
}

const char *convert_input_to_attr(Convert *c, Node *node, int input, const char *name) {
    int64_t values[64];
    int count;
    if (!node_in(node, input)) return NULL;
    if (!convert_ints(c, node_in(node, input), values, &count))
        return arena_format(c->arena, "its %s are computed, and an attribute in older versions", name);
    node_set_ints(node, name, values, count);
    convert_drop_input(node, input);
    return NULL;
}

/* A name that no other node has, as some runtimes demand. */
static Origin origin_for(Convert *c, const Node *at, const char *op) {
    const char *base =
        at->origin.count ? arena_format(c->arena, "%s/%s", at->origin.names[at->origin.count - 1], op) : op;
    const char *name = base;
    for (int i = 2; map_get(&c->names, name); i++) name = arena_format(c->arena, "%s_%d", base, i);
    map_set(&c->names, name, (void *)(uintptr_t)at);
    return (Origin){arena_copy(c->arena, &name, sizeof name), 1};
}

static void take_names(Convert *c, Graph *graph) {
    FOR_EACH_NODE(node, graph) {
        if (node->origin.count) map_set(&c->names, node->origin.names[node->origin.count - 1], node);
        for (int i = 0; i < node->subgraph_count; i++) take_names(c, node->subgraphs[i]);
    }
}

static Node *add_node(Convert *c, Node *at, const char *op, int form) {
    Node *node = graph_add_node(at->graph, at, NODE_ONNX, op, NULL, 0);
    node->domain = "";
    node->opset = form;
    node->origin = origin_for(c, at, op);
    return node;
}

Value *convert_typed(Convert *c, Value *value, DType dtype, int rank) {
    ValueType type = {VALUE_TENSOR, dtype, rank};
    map_set_id(&c->types, MAP_POINTER_KEY(value), arena_copy(c->arena, &type, sizeof type));
    return value;
}

static Value *add_output(Convert *c, Node *node, ValueType type) {
    const char *name = node->origin.count ? node->origin.names[0] : node->op;
    return convert_typed(c, node_add_output(node, name, DT_NONE, -1, NULL), type.dtype, type.rank);
}

static void set_inputs(Node *node, Value *a, Value *b, Value *d) {
    Value *given[] = {a, b, d};
    int count = d ? 3 : b ? 2 : 1;
    for (int i = 0; i < count; i++) node_put_input(node, i, given[i]);
    for (int i = count; i < node->input_count; i++) node_set_input(node, i, NULL);
    node->input_count = count;
}

Value *convert_add(Convert *c, Node *at, const char *op, int form, Value *a, Value *b, Value *d) {
    Node *node = add_node(c, at, op, form);
    set_inputs(node, a, b, d);
    ValueType type = convert_type(c, a), other = b ? convert_type(c, b) : type;
    if (type.rank >= 0 && (other.rank < 0 || other.rank > type.rank)) type.rank = other.rank;
    return add_output(c, node, type);
}

Value *convert_cast(Convert *c, Node *at, Value *a, DType to) {
    ValueType type = convert_type(c, a);
    if (type.dtype == to) return a;
    Value *made = convert_add(c, at, "Cast", 13, a, NULL, NULL);
    node_set_int(made->producer, "to", to);
    return convert_typed(c, made, to, type.rank);
}

Value *convert_ints_value(Convert *c, Node *at, const int64_t *values, int count) {
    return add_ints(c->rewrite, at->graph, arena_format(c->arena, "%s_ints", node_origin_name(at)), values, count);
}

Value *convert_int_value(Convert *c, Node *at, int64_t value) { return convert_ints_value(c, at, &value, 1); }

Value *convert_number_value(Convert *c, Node *at, DType dtype, double value) {
    return graph_add_constant(at->graph, arena_format(c->arena, "%s_number", node_origin_name(at)),
                              tensor_scalar_double(c->arena, dtype, value));
}

Value *convert_transpose(Convert *c, Node *at, Value *a, const int64_t *perm, int rank) {
    Value *made = convert_add(c, at, "Transpose", 1, a, NULL, NULL);
    node_set_ints(made->producer, "perm", perm, rank);
    return made;
}

Value *convert_reduce(Convert *c, Node *at, const char *op, Value *a, const int64_t *axes, int count, bool keep) {
    enum { AXES_ARE_ATTRIBUTE = 11 };
    ValueType type = convert_type(c, a);
    Value *made = convert_add(c, at, op, AXES_ARE_ATTRIBUTE, a, NULL, NULL);
    node_set_ints(made->producer, "axes", axes, count);
    node_set_int(made->producer, "keepdims", keep);
    if (keep) return made;
    return convert_typed(c, made, type.dtype, type.rank < 0 ? -1 : type.rank - count);
}

Value *convert_reshape(Convert *c, Node *at, Value *a, const int64_t *shape, int rank) {
    DType dtype = convert_type(c, a).dtype;
    Value *made = convert_add(c, at, "Reshape", 13, a, convert_ints_value(c, at, shape, rank), NULL);
    return convert_typed(c, made, dtype, rank);
}

void convert_become(Node *node, const char *op, int form, Value *a, Value *b, Value *d) {
    node->op = op;
    node->opset = form;
    node->attrs.count = 0;
    set_inputs(node, a, b, d);
}

static void move_output(Node *from, int output, Node *to) {
    Value *value = from->outputs[output];
    from->outputs[output] = NULL;
    node_attach_output(to, value);
}

void convert_give(Convert *c, Node *node, int output, Value *value) {
    if (!convert_is_used(node, output)) return;
    Node *identity = add_node(c, node, "Identity", 1);
    node_append_input(identity, value);
    move_output(node, output, identity);
    while (node->output_count && !node->outputs[node->output_count - 1]) node->output_count--;
}

Node *convert_copy(Convert *c, Node *node) {
    Node *copy = add_node(c, node, node->op, node->opset);
    for (int i = 0; i < node->input_count; i++) node_append_input(copy, node->inputs[i]);
    for (int i = 0; i < node->attrs.count; i++) node_set_attr(copy, node->attrs.items[i]);
    for (int i = 0; i < node->output_count; i++)
        if (convert_is_used(node, i))
            add_output(c, copy, convert_type(c, node->outputs[i]));
        else
            node_attach_output(copy, NULL);
    return copy;
}

/* --- attributes --- */

/* A list whose neutral value is the same for each axis, which schemas do not say. */
static bool is_neutral(const Attr *attr) {
    if (attr->kind != ATTR_INTS || strcmp(attr->name, "dilations") != 0) return false;
    for (int i = 0; i < attr->count; i++)
        if (attr->ints[i] != 1) return false;
    return true;
}

static bool is_type_kind(const Node *node, const char *name) {
    size_t length = strlen(name);
    for (int i = 0; i < node->attrs.count; i++) {
        const char *other = node->attrs.items[i].name;
        if (strncmp(name, other, strlen(other)) == 0 && strlen(other) + 5 == length &&
            node->attrs.items[i].kind == ATTR_TYPE && strcmp(name + length - 5, "_kind") == 0)
            return true;
    }
    return false;
}

static void set_default(Node *node, const SchemaAttr *attr) {
    if (attr->kind == IS_INT) node_set_int(node, attr->name, strtoll(attr->otherwise, NULL, 10));
    if (attr->kind == IS_FLOAT) node_set_float(node, attr->name, plain_double(attr->otherwise, NULL));
    if (attr->kind == IS_STRING) node_set_string(node, attr->name, attr->otherwise);
}

/* What is said by default, or is new, is said so that it means the same in the other version. */
static const char *carry_attributes(Convert *c, Node *node, const Schema *from, const Schema *to) {
    for (int i = 0; i < node->attrs.count; i++) {
        const Attr *attr = &node->attrs.items[i];
        const SchemaAttr *known = schema_attr(from, attr->name);
        if (!known || schema_attr(to, attr->name)) continue;
        if (!schema_is_default(known, attr) && !is_neutral(attr))
            return arena_format(c->arena, "attribute \"%s\" has no counterpart", attr->name);
        convert_drop_attr(node, attr->name);
        i--;
    }
    for (int i = 0; i < to->attr_count; i++) {
        const SchemaAttr *other = schema_attr_at(to, i), *own = schema_attr(from, other->name);
        if (!own || !own->otherwise || !other->otherwise || strcmp(own->otherwise, other->otherwise) == 0) continue;
        if (!node_attr(node, own->name)) set_default(node, own);
    }
    return NULL;
}

/* --- from version to version --- */

static const ConvertRule *find_rule(const char *op, int since) {
    const ConvertRule *const lists[] = {convert_rules, convert_images, convert_formulas, convert_attention};
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++)
        for (const ConvertRule *rule = lists[i]; rule->op; rule++)
            if (rule->since == since && strcmp(rule->op, op) == 0) return rule;
    return NULL;
}

/* Names the first failure; the nearest version is that of all of them. */
static void fail(Convert *c, const Node *node, const char *reason, int nearest) {
    bool down = nearest > c->target;
    if (!c->nearest || (down ? nearest > c->nearest : nearest < c->nearest)) c->nearest = nearest;
    if (!c->first)
        c->first = status_error(STATUS_UNSUPPORTED, "node \"%s\" (%s): %s", node_origin_name(node), node->op, reason);
}

/* One change of the operator; *out_done: no change is left. */
static const char *step_up(Convert *c, Node *node, bool *out_done) {
    const Schema *from = schema_find(node->op, node->opset);
    const Schema *to = from ? schema_after(from) : schema_find(node->op, SCHEMA_OLDEST);
    *out_done = !to || to->since > c->target;
    if (!from && !to) return "no version of the standard has it";
    if (*out_done) return NULL;
    const char *op = node->op;
    const ConvertRule *rule = find_rule(op, to->since);
    if (!from && !rule) return arena_format(c->arena, "what it was before version %d is not known", to->since);
    const char *reason = rule && rule->up ? rule->up(c, node) : NULL;
    if (reason || c->gone) return reason;
    if (strcmp(op, node->op) != 0) return NULL; /* a formula, or another name */
    node->opset = to->since;
    return from ? carry_attributes(c, node, from, to) : NULL;
}

static const char *step_down(Convert *c, Node *node, bool *out_done) {
    const Schema *from = schema_find(node->op, node->opset);
    *out_done = from && from->since <= c->target;
    if (!from) return "no version of the standard has it";
    if (*out_done) return NULL;
    const char *op = node->op;
    const Schema *to = schema_before(from);
    const ConvertRule *rule = find_rule(op, from->since);
    if (!to && !(rule && rule->down))
        return arena_format(c->arena, "the operator exists from version %d on", from->since);
    const char *reason = rule && rule->down ? rule->down(c, node) : NULL;
    if (reason || c->gone) return reason;
    if (strcmp(op, node->op) != 0) return NULL;
    if (!to) return "it stays as it is"; /* a formula has another operator */
    node->opset = from->since - 1;
    return carry_attributes(c, node, from, to);
}

/* The version at which a step fails, seen from where the node came from: it stands there as it is. */
static int stands_at(const Node *node, bool up) {
    const Schema *from = schema_find(node->op, node->opset);
    const Schema *next = from && up ? schema_after(from) : NULL;
    if (!from) return node->opset;
    return up ? (next ? next->since - 1 : node->opset) : from->since;
}

static bool walk(Convert *c, Node *node) {
    enum { MOST_STEPS = 100 };
    c->gone = false;
    for (int i = 0; i < MOST_STEPS; i++) {
        bool done = false, up = node->opset < c->target;
        int stands = stands_at(node, up);
        const char *reason = up ? step_up(c, node, &done) : step_down(c, node, &done);
        if (reason) {
            fail(c, node, reason, stands);
            return false;
        }
        if (c->gone) return false;
        if (done) break;
    }
    node->opset = c->target;
    return true;
}

/* --- the check --- */

static const char *check_attributes(const Convert *c, const Node *node, const Schema *schema) {
    for (int i = 0; i < node->attrs.count; i++) {
        const Attr *attr = &node->attrs.items[i];
        if (is_type_kind(node, attr->name)) continue;
        const SchemaAttr *known = schema_attr(schema, attr->name);
        if (!known) return arena_format(c->arena, "attribute \"%s\" is not known", attr->name);
        bool sparse = known->kind == IS_SPARSE_TENSOR && attr->kind == ATTR_TENSOR;
        if ((int)known->kind != (int)attr->kind && !sparse)
            return arena_format(c->arena, "attribute \"%s\" is of another kind", attr->name);
    }
    for (int i = 0; i < schema->attr_count; i++) {
        const SchemaAttr *attr = schema_attr_at(schema, i);
        if (attr->required && attr->kind != IS_GRAPH && !node_attr(node, attr->name))
            return arena_format(c->arena, "attribute \"%s\" is needed", attr->name);
    }
    return NULL;
}

typedef struct Bound {
    const Convert *c;
    const Schema *before; /* NULL: not known */
    ValueType types[32];  /* [variable] */
} Bound;

static const char *check_type(Bound *b, const Value *value, const SchemaValue *allowed, const SchemaValue *before,
                              const char *role, int index) {
    const Convert *c = b->c;
    ValueType type = convert_type(c, value);
    if (type.dtype == DT_NONE) {
        if (before && schema_covers(allowed, before)) return NULL;
        return arena_format(c->arena, "the type of %s %d is not known", role, index);
    }
    if (!schema_allows(allowed, type.kind, type.dtype))
        return arena_format(c->arena, "%s %d is of type %s, which is not allowed", role, index,
                            dtype_onnx_name(type.dtype));
    if (allowed->variable < 0 || allowed->variable >= 32) return NULL;
    ValueType *bound = &b->types[allowed->variable];
    if (bound->dtype != DT_NONE && (bound->dtype != type.dtype || bound->kind != type.kind))
        return arena_format(c->arena, "%s %d is of type %s, that of others is %s", role, index,
                            dtype_onnx_name(type.dtype), dtype_onnx_name(bound->dtype));
    *bound = type;
    return NULL;
}

static const char *check_values(Bound *b, const Node *node, const Schema *schema) {
    int inputs = node->input_count - node->captures;
    for (int i = 0; i < inputs; i++) {
        const SchemaValue *input = schema_input(schema, i), *before = b->before ? schema_input(b->before, i) : NULL;
        if (!input) return arena_format(b->c->arena, "it takes no input %d", i);
        if (!node->inputs[i] && input->option != MAYBE)
            return arena_format(b->c->arena, "input %d cannot be left out", i);
        const char *wrong = node->inputs[i] ? check_type(b, node->inputs[i], input, before, "input", i) : NULL;
        if (wrong) return wrong;
    }
    if (inputs < schema->least_inputs) return arena_format(b->c->arena, "input %d cannot be left out", inputs);
    for (int i = 0; i < node->output_count; i++) {
        const SchemaValue *output = schema_output(schema, i), *before = b->before ? schema_output(b->before, i) : NULL;
        if (!node->outputs[i] || !convert_is_used(node, i)) continue;
        if (!output) return arena_format(b->c->arena, "it gives no output %d", i);
        const char *wrong = check_type(b, node->outputs[i], output, before, "output", i);
        if (wrong) return wrong;
    }
    return NULL;
}

static void drop_unused_outputs(Node *node, const Schema *schema) {
    while (node->output_count > 1 && !schema_output(schema, node->output_count - 1) &&
           !convert_is_used(node, node->output_count - 1))
        node->output_count--;
}

static const char *check_as(const Convert *c, const Node *node, const Schema *schema, const Schema *before) {
    Bound bound = {.c = c, .before = before};
    if (!schema) return "no version of the standard has it";
    if (schema->since > c->target)
        return arena_format(c->arena, "the operator exists from version %d on", schema->since);
    if (schema->deprecated && (!before || !before->deprecated)) return "the operator has been withdrawn";
    const char *wrong = check_attributes(c, node, schema);
    return wrong ? wrong : check_values(&bound, node, schema);
}

/* The version nearest to the target, on the way back to the node's own, in which its inputs' and outputs' types stand.
 */
static int nearest_for_types(const Convert *c, const Node *node, int opset) {
    bool up = opset < c->target;
    for (const Schema *schema = schema_find(node->op, c->target); schema;) {
        Bound bound = {.c = c};
        const Schema *next = up ? schema_before(schema) : schema_after(schema);
        int edge = up ? schema->since - 1 : next ? next->since : opset;
        if (!next || (up ? edge <= opset : edge >= opset)) return opset;
        if (!check_values(&bound, node, next)) return edge;
        schema = next;
    }
    return opset;
}

/* --- all nodes --- */

static void convert_node(Convert *c, Node *node);

static void convert_between(Convert *c, Graph *graph, Node *before, const Node *after) {
    for (Node *node = before ? before->next : graph->first; node && node != after;) {
        Node *next = node->next;
        convert_node(c, node);
        node = next;
    }
}

static void convert_node(Convert *c, Node *node) {
    Graph *graph = node->graph;
    for (int i = 0; i < node->subgraph_count; i++) convert_between(c, node->subgraphs[i], NULL, NULL);
    if (*node->domain || node->kind != NODE_ONNX) return;
    Node *before = node->prev, *after = node->next;
    int opset = node->opset;
    const char *op = node->op;
    const Schema *own = schema_find(op, opset);
    bool stands = walk(c, node);
    if (!stands && !c->gone) return;
    if (c->gone) graph_remove_node(graph, node);
    c->gone = false;
    convert_between(c, graph, before, stands ? node : after);
    if (!stands) return;
    const Schema *schema = schema_find(node->op, c->target);
    if (schema) drop_unused_outputs(node, schema);
    const char *wrong = check_as(c, node, schema, op == node->op ? own : NULL);
    if (wrong) fail(c, node, wrong, nearest_for_types(c, node, opset));
}

static void set_import(Graph *graph, int version) {
    for (int i = 0; i < graph->info->opsets.count; i++) {
        OpsetImport *import = &graph->info->opsets.items[i];
        if (!*import->domain) import->version = version;
    }
}

Status convert_opset(Rewrite *r, Graph *graph, int target) {
    Convert c = {.rewrite = r, .arena = graph->arena, .target = target, .types = map_make(graph->arena)};
    c.names = map_make(graph->arena);
    take_names(&c, graph);
    convert_infer(&c, graph);
    convert_between(&c, graph, NULL, NULL);
    if (c.first)
        return status_at(c.first, "the model cannot be written in version %d of the operator set (the nearest is %d)",
                         target, c.nearest);
    set_import(graph, target);
    return NULL;
}
