/* SPDX-License-Identifier: Apache-2.0 */
/* Graphs, nodes, subgraphs with their captures, and calls of functions. Names are resolved here and nowhere else. */
#include "importer/build.h"

#include <limits.h>
#include "graph/constants/unread.h"

enum {
    MOST_DEPTH = 200,      /* subgraphs and calls inside each other */
    MOST_ATTRIBUTES = 256, /* of a node; they are searched one by one */
    MOST_SUBGRAPHS = 16,   /* of a node; each gets what any of them captures */
    NODE_BYTES = 512,      /* what a node costs besides its names, for the budget of inlining */
    EDGE_BYTES = 64,
    LONGEST_PREFIX = 200,
};

/* An optional input of a function that its call leaves out. */
static Value left_out;
#define LEFT_OUT (&left_out)

const char *domain_of(const char *name) { return !name || strcmp(name, "ai.onnx") == 0 ? "" : name; }

const char *shown(Importer *im, const char *name) {
    enum { LONGEST = 160 };
    if (!name) return "";
    size_t size = strlen(name);
    bool cut = size > LONGEST;
    char *text = arena_format(im->scratch, "%.*s%s", LONGEST, name, cut ? "..." : "");
    for (char *c = text; *c; c++)
        if ((unsigned char)*c < ' ' || *c == 127) *c = '?';
    return text;
}

static bool given(const char *name) { return name && *name; }

Status charge(Importer *im, const Frame *frame, size_t bytes) {
    if (!frame) return NULL;
    if (bytes > INT_MAX || (im->budget -= (int64_t)bytes) < 0)
        return status_error(STATUS_UNSUPPORTED, "the model's functions are too large when put in place of their calls");
    return NULL;
}

/* ---- names ---- */

static Status define(Importer *im, Scope *scope, const char *name, Value *value) {
    if (map_get(&scope->names, name)) return status_error(STATUS_INVALID, "\"%s\" is defined twice", shown(im, name));
    map_set(&scope->names, name, value);
    return NULL;
}

/* The value inside `scope`'s graph that stands for an outer graph's. */
static Value *capture(Scope *scope, const char *name, Value *outer) {
    if (outer->constant) return graph_add_constant(scope->graph, name, outer->constant);
    Value *inner = graph_add_value(scope->graph, name, outer->dtype, outer->rank, outer->dims);
    inner->kind = outer->kind;
    inner->key = outer->key;
    VEC_PUSH(scope->graph->arena, scope->captured, name);
    VEC_PUSH(scope->graph->arena, scope->captured_outer, outer);
    VEC_PUSH(scope->graph->arena, scope->captured_inner, inner);
    return inner;
}

/* NULL in *out_value when the name is not known. */
static Status find(Importer *im, Scope *scope, const char *name, Value **out_value) {
    Value *value = map_get(&scope->names, name);
    if (!value && scope->outer) {
        TRY(find(im, scope->outer, name, &value));
        if (value && value != LEFT_OUT) {
            TRY(charge(im, scope->frame, NODE_BYTES + strlen(name)));
            value = capture(scope, name, value);
        }
        if (value) map_set(&scope->names, name, value);
    }
    *out_value = value;
    return NULL;
}

/* An input of a node: NULL when it is left out. */
static Status find_input(Importer *im, Scope *scope, const char *name, Value **out_value) {
    *out_value = NULL;
    if (!given(name)) return NULL;
    TRY(find(im, scope, name, out_value));
    if (!*out_value) return status_error(STATUS_INVALID, "input \"%s\" is not defined", shown(im, name));
    if (*out_value == LEFT_OUT) *out_value = NULL;
    return NULL;
}

static Status find_inputs(Importer *im, Scope *scope, const Onnx__NodeProto *proto, Value ***out_values,
                          int *out_count) {
    int count = 0;
    Value **values = ARENA_ARRAY(im->scratch, Value *, proto->n_input);
    for (size_t i = 0; i < proto->n_input; i++) {
        TRY(find_input(im, scope, proto->input[i], &values[i]));
        if (values[i]) count = (int)i + 1;
    }
    *out_values = values;
    *out_count = count;
    return NULL;
}

/* What an output of a node is called in the graph: the model's name; in a function the call's, or one with the call
 * before it. */
static const char *output_name(Importer *im, const Scope *scope, const char *name) {
    if (!scope->frame || scope->outer) return name;
    const char *called = map_get(&scope->frame->outputs, name);
    return called ? called : arena_format(im->scratch, "%s%s", scope->frame->prefix, name);
}

/* ---- opset versions ---- */

static Status read_opsets(Importer *im, Onnx__OperatorSetIdProto *const *imports, size_t count, Map *out) {
    *out = map_make(im->scratch);
    for (size_t i = 0; i < count; i++) {
        const char *domain = domain_of(imports[i]->domain);
        int64_t version = imports[i]->version, newest = *domain ? INT_MAX : NEWEST_OPSET;
        if (version < 1)
            return status_error(STATUS_INVALID, "opset %lld of domain \"%s\" is no version", (long long)version,
                                shown(im, domain));
        if (version > newest)
            return status_error(STATUS_UNSUPPORTED,
                                "opset %lld of domain \"%s\" is newer than %lld, the newest supported",
                                (long long)version, shown(im, domain), (long long)newest);
        uintptr_t before = (uintptr_t)map_get(out, domain);
        if (before && before != (uintptr_t)version)
            return status_error(STATUS_INVALID, "domain \"%s\" is imported with two versions", shown(im, domain));
        map_set(out, domain, (void *)(uintptr_t)version);
    }
    return NULL;
}

/* A function's own imports come first; some exporters leave them out where they are the model's. */
static Status opset_of(Importer *im, const Frame *frame, const char *domain, int *out_version) {
    uintptr_t version = 0;
    if (frame) {
        const Onnx__FunctionProto *f = frame->function;
        Map *own = map_get_id(&im->opsets, MAP_POINTER_KEY(f));
        if (!own) {
            own = ARENA_NEW(im->scratch, Map);
            TRY(read_opsets(im, f->opset_import, f->n_opset_import, own));
            map_set_id(&im->opsets, MAP_POINTER_KEY(f), own);
        }
        version = (uintptr_t)map_get(own, domain);
    }
    if (!version) version = (uintptr_t)map_get(map_get_id(&im->opsets, MAP_POINTER_KEY(im->model)), domain);
    if (!version)
        return status_error(STATUS_INVALID, "the model imports no opset of its domain \"%s\"", shown(im, domain));
    *out_version = (int)version;
    return NULL;
}

/* ---- nodes ---- */

static Status build_nodes(Importer *im, Scope *scope, Onnx__NodeProto *const *nodes, size_t count);
static Status build_body(Importer *im, Scope *scope, const Onnx__GraphProto *proto, bool outermost);

const char *node_name(Importer *im, const Onnx__NodeProto *proto, int index) {
    return given(proto->name) ? proto->name : arena_format(im->arena, "%s#%d", proto->op_type, index);
}

static Origin origin_within(Importer *im, const Frame *frame, const char *name) {
    int outer = frame ? frame->origin.count : 0;
    const char **names = ARENA_ARRAY(im->arena, const char *, outer + 1);
    for (int i = 0; i < outer; i++) names[i] = frame->origin.names[i];
    names[outer] = name;
    return (Origin){names, outer + 1};
}

static Status enter(Importer *im) {
    if (++im->depth > MOST_DEPTH)
        return status_error(STATUS_UNSUPPORTED, "subgraphs and functions nest deeper than %d", MOST_DEPTH);
    return NULL;
}

static Status build_subgraph(Importer *im, Scope *outer, Node *node, const Onnx__GraphProto *proto, Scope *scope) {
    *scope = (Scope){.outer = outer,
                     .frame = outer->frame,
                     .names = map_make(im->scratch),
                     .shapes_hold = !subgraph_names(node->domain, node->op)};
    scope->graph = graph_sub(outer->graph, proto->name);
    node_add_subgraph(node, scope->graph);
    TRY(enter(im));
    TRY(build_body(im, scope, proto, false));
    im->depth--;
    return NULL;
}

/* The graphs of a node in the operator's order, whatever the file's. */
typedef struct Bodies {
    const Onnx__GraphProto *graphs[MOST_SUBGRAPHS];
    int count;
} Bodies;

const char *const *subgraph_names(const char *domain, const char *op) {
    static const struct {
        const char *op;
        const char *names[3];
    } rows[] = {
        {"If", {"then_branch", "else_branch"}},
        {"Loop", {"body"}},
        {"Scan", {"body"}},
        {"SequenceMap", {"body"}},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (!*domain_of(domain) && strcmp(op, rows[i].op) == 0) return rows[i].names;
    return NULL;
}

static Status too_many_graphs(void) {
    return status_error(STATUS_UNSUPPORTED, "it has more than %d subgraphs", MOST_SUBGRAPHS);
}

static Status add_body(Importer *im, const char *const *names, const Onnx__AttributeProto *attribute, Bodies *bodies) {
    int place = bodies->count;
    if (names) {
        place = -1;
        for (int i = 0; names[i]; i++)
            if (strcmp(names[i], attribute->name) == 0) place = i;
        if (place < 0 || bodies->graphs[place])
            return status_error(STATUS_INVALID, "graph \"%s\" is given twice or is not the operator's",
                                shown(im, attribute->name));
    }
    if (place >= MOST_SUBGRAPHS) return too_many_graphs();
    bodies->graphs[place] = attribute->g;
    if (place >= bodies->count) bodies->count = place + 1;
    return NULL;
}

static Status find_bodies(Importer *im, const Onnx__NodeProto *proto, Bodies *bodies) {
    const char *const *names = subgraph_names(proto->domain, proto->op_type);
    for (size_t i = 0; i < proto->n_attribute; i++) {
        const Onnx__AttributeProto *attribute = proto->attribute[i];
        if (attribute_type(attribute) == ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__GRAPH && attribute->g)
            TRY(add_body(im, names, attribute, bodies));
        for (size_t k = 0; k < attribute->n_graphs && !names; k++) {
            if (bodies->count == MOST_SUBGRAPHS) return too_many_graphs();
            bodies->graphs[bodies->count++] = attribute->graphs[k];
        }
    }
    for (int i = 0; names && names[i]; i++)
        if (!bodies->graphs[i]) return status_error(STATUS_INVALID, "its graph \"%s\" is missing", names[i]);
    return NULL;
}

/* Every subgraph gets what any of them reads from outside, in one order, as its last inputs. */
static Status join_captures(Importer *im, Node *node, Scope *scopes, int count) {
    Map places = map_make(im->scratch); /* outer value -> its place + 1 */
    VEC(Value *) outer = {0};
    VEC(const char *) names = {0};
    for (int s = 0; s < count; s++)
        for (int i = 0; i < scopes[s].captured.count; i++) {
            Value *value = scopes[s].captured_outer.items[i];
            if (map_get_id(&places, MAP_POINTER_KEY(value))) continue;
            VEC_PUSH(im->scratch, outer, value);
            VEC_PUSH(im->scratch, names, scopes[s].captured.items[i]);
            map_set_id(&places, MAP_POINTER_KEY(value), (void *)(uintptr_t)outer.count);
        }
    for (int s = 0; s < count; s++) {
        Graph *graph = scopes[s].graph;
        Value **inner = ARENA_ARRAY(im->scratch, Value *, outer.count);
        for (int i = 0; i < scopes[s].captured.count; i++) {
            Value *value = scopes[s].captured_outer.items[i];
            inner[(uintptr_t)map_get_id(&places, MAP_POINTER_KEY(value)) - 1] = scopes[s].captured_inner.items[i];
        }
        for (int i = 0; i < outer.count; i++) {
            Value *value = outer.items[i];
            if (!inner[i]) {
                TRY(charge(im, scopes[s].frame, NODE_BYTES + strlen(names.items[i])));
                inner[i] = graph_add_value(graph, names.items[i], value->dtype, value->rank, value->dims);
                inner[i]->kind = value->kind;
                inner[i]->key = value->key;
            }
            VEC_PUSH(graph->arena, graph->inputs, inner[i]);
        }
    }
    for (int i = 0; i < outer.count; i++) node_append_input(node, outer.items[i]);
    node->captures = outer.count;
    return NULL;
}

static Status add_subgraphs(Importer *im, Scope *scope, Node *node, const Onnx__NodeProto *proto) {
    Bodies bodies = {0};
    TRY(find_bodies(im, proto, &bodies));
    if (!bodies.count) return NULL;
    Scope *scopes = ARENA_ARRAY(im->scratch, Scope, bodies.count);
    for (int i = 0; i < bodies.count; i++) TRY(build_subgraph(im, scope, node, bodies.graphs[i], &scopes[i]));
    return join_captures(im, node, scopes, bodies.count);
}

/* Graphs are subgraphs; of an operator that is not control flow, attribute NAME_graph holds the number of the one
 * called NAME. */
static Status add_attributes(Importer *im, Scope *scope, Node *node, const Onnx__NodeProto *proto) {
    int graphs = 0;
    for (size_t i = 0; i < proto->n_attribute; i++) {
        const Onnx__AttributeProto *attribute;
        TRY(resolve_attribute(im, scope->frame, proto->attribute[i], &attribute));
        if (!attribute) continue;
        int type = attribute_type(attribute);
        if (type == ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__GRAPH ||
            type == ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__GRAPHS) {
            int count = attribute->g ? 1 : (int)attribute->n_graphs;
            if (!subgraph_names(proto->domain, proto->op_type))
                node_set_int(node, arena_format(im->arena, "%s_graph", proto->attribute[i]->name), graphs);
            graphs += count;
            continue;
        }
        TRY(charge(im, scope->frame, attribute->s.len + attribute->n_strings * EDGE_BYTES));
        for (size_t k = 0; k < attribute->n_strings; k++) TRY(charge(im, scope->frame, attribute->strings[k].len));
        TRY(set_attribute(im, node, proto->attribute[i]->name, attribute));
    }
    return NULL;
}

static Status add_outputs(Importer *im, Scope *scope, Node *node, const Onnx__NodeProto *proto) {
    for (size_t i = 0; i < proto->n_output; i++) {
        const char *name = proto->output[i];
        if (!given(name)) {
            node_attach_output(node, NULL);
            continue;
        }
        TRY(charge(im, scope->frame, strlen(name) + EDGE_BYTES));
        Value *value = node_add_output(node, output_name(im, scope, name), DT_NONE, -1, NULL);
        TRY(define(im, scope, name, value));
    }
    return NULL;
}

static Status build_constant(Importer *im, Scope *scope, const Onnx__NodeProto *proto) {
    if (proto->n_input || proto->n_output != 1)
        return status_error(STATUS_INVALID, "a constant has no inputs and one output");
    Tensor *tensor;
    im->tensors.unaligned = im->unaligned_weights; /* as an initializer's; settle_constants */
    Status status = read_constant(im, scope->frame, proto, &tensor);
    im->tensors.unaligned = false;
    const char *name = proto->output[0];
    if (status || !given(name)) return status;
    return define(im, scope, name, graph_add_constant(scope->graph, output_name(im, scope, name), tensor));
}

static Status build_operator(Importer *im, Scope *scope, const Onnx__NodeProto *proto, const char *name) {
    const char *domain = domain_of(proto->domain);
    int opset = 0, input_count;
    Value **inputs;
    TRY(opset_of(im, scope->frame, domain, &opset));
    if (!*domain && strcmp(proto->op_type, "Constant") == 0) return build_constant(im, scope, proto);
    TRY(find_inputs(im, scope, proto, &inputs, &input_count));
    Node *node = graph_add_node(scope->graph, NULL, NODE_ONNX, proto->op_type, inputs, input_count);
    node->domain = domain;
    node->opset = opset;
    node_add_origin(node, origin_within(im, scope->frame, name));
    TRY(add_attributes(im, scope, node, proto));
    TRY(add_subgraphs(im, scope, node, proto));
    return add_outputs(im, scope, node, proto);
}

/* ---- calls of functions ---- */

static char *function_key(Arena *arena, const char *domain, const char *name, const char *overload) {
    return arena_format(arena, "%s\n%s\n%s", domain_of(domain), name ? name : "", overload ? overload : "");
}

static const Onnx__FunctionProto *called_function(Importer *im, const Onnx__NodeProto *proto) {
    if (!im->functions.count) return NULL;
    return map_get(&im->functions, function_key(im->scratch, proto->domain, proto->op_type, proto->overload));
}

/* The call's attributes, which may refer to those of a function around it, then the function's defaults. */
static Status bind_attributes(Importer *im, const Scope *scope, const Onnx__NodeProto *call, Frame *frame) {
    const Onnx__FunctionProto *f = frame->function;
    frame->attributes = map_make(im->scratch);
    for (size_t i = 0; i < call->n_attribute; i++) {
        const Onnx__AttributeProto *proto;
        TRY(resolve_attribute(im, scope->frame, call->attribute[i], &proto));
        const char *name = call->attribute[i]->name;
        if (map_get(&frame->attributes, name))
            return status_error(STATUS_INVALID, "attribute \"%s\" is given twice", shown(im, name));
        if (proto) map_set(&frame->attributes, name, (void *)(uintptr_t)proto);
    }
    for (size_t i = 0; i < f->n_attribute_proto; i++) {
        const Onnx__AttributeProto *proto;
        TRY(resolve_attribute(im, NULL, f->attribute_proto[i], &proto));
        if (!map_get(&frame->attributes, proto->name))
            map_set(&frame->attributes, proto->name, (void *)(uintptr_t)proto);
    }
    return NULL;
}

static Status bind_inputs(Importer *im, Scope *scope, const Onnx__NodeProto *call, const Onnx__FunctionProto *f,
                          Scope *body) {
    if (call->n_input > f->n_input || call->n_output > f->n_output)
        return status_error(STATUS_INVALID, "it has more inputs or outputs than its function");
    for (size_t i = 0; i < f->n_input; i++) {
        Value *value = NULL;
        if (i < call->n_input) TRY(find_input(im, scope, call->input[i], &value));
        if (!given(f->input[i])) return status_error(STATUS_INVALID, "an input of its function has no name");
        TRY(define(im, body, f->input[i], value ? value : LEFT_OUT));
    }
    return NULL;
}

static Status bind_outputs(Importer *im, Scope *scope, const Onnx__NodeProto *call, const Onnx__FunctionProto *f,
                           Scope *body) {
    for (size_t i = 0; i < call->n_output; i++) {
        if (!given(call->output[i])) continue;
        Value *value;
        TRY(find(im, body, f->output[i], &value));
        if (!value || value == LEFT_OUT)
            return status_error(STATUS_INVALID, "its function does not define its output \"%s\"",
                                shown(im, f->output[i]));
        TRY(define(im, scope, call->output[i], value));
    }
    return NULL;
}

static Status check_no_recursion(Importer *im, const Frame *frame) {
    const Onnx__FunctionProto *f = frame->function;
    for (const Frame *around = frame->caller; around; around = around->caller)
        if (around->function == f)
            return status_error(STATUS_INVALID, "function \"%s\" of domain \"%s\" calls itself", shown(im, f->name),
                                shown(im, domain_of(f->domain)));
    return NULL;
}

static Status inline_call(Importer *im, Scope *scope, const Onnx__NodeProto *call, const char *name,
                          const Onnx__FunctionProto *f) {
    Frame *frame = ARENA_NEW(im->scratch, Frame);
    frame->caller = scope->frame;
    frame->function = f;
    frame->origin = origin_within(im, scope->frame, name);
    frame->prefix =
        arena_format(im->scratch, "%.*s/", LONGEST_PREFIX,
                     scope->frame ? arena_format(im->scratch, "%s%.64s", scope->frame->prefix, name) : name);
    frame->outputs = map_make(im->scratch);
    TRY(check_no_recursion(im, frame));
    TRY(charge(im, frame, NODE_BYTES + EDGE_BYTES * (f->n_input + f->n_attribute_proto + call->n_attribute)));
    TRY(bind_attributes(im, scope, call, frame));
    Scope *body = ARENA_NEW(im->scratch, Scope);
    *body = (Scope){.graph = scope->graph, .frame = frame, .names = map_make(im->scratch)};
    TRY(bind_inputs(im, scope, call, f, body));
    for (size_t i = 0; i < call->n_output; i++)
        if (given(call->output[i]))
            map_set(&frame->outputs, f->output[i], (void *)(uintptr_t)output_name(im, scope, call->output[i]));
    TRY(enter(im));
    TRY(build_nodes(im, body, f->node, f->n_node));
    im->depth--;
    return bind_outputs(im, scope, call, f, body);
}

static Status build_node(Importer *im, Scope *scope, const Onnx__NodeProto *proto, const char *name) {
    if (proto->n_attribute > MOST_ATTRIBUTES)
        return status_error(STATUS_UNSUPPORTED, "it has %zu attributes, more than %d", proto->n_attribute,
                            MOST_ATTRIBUTES);
    size_t edges =
        proto->n_input + proto->n_output + proto->n_attribute + (size_t)(scope->frame ? scope->frame->origin.count : 0);
    TRY(charge(im, scope->frame, NODE_BYTES + EDGE_BYTES * edges + 2 * strlen(proto->op_type)));
    const Onnx__FunctionProto *function = called_function(im, proto);
    return function ? inline_call(im, scope, proto, name, function) : build_operator(im, scope, proto, name);
}

static Status build_nodes(Importer *im, Scope *scope, Onnx__NodeProto *const *nodes, size_t count) {
    const int *order;
    TRY(order_nodes(im, nodes, count, &order));
    for (size_t i = 0; i < count; i++) {
        int index = order ? order[i] : (int)i;
        const Onnx__NodeProto *proto = nodes[index];
        if (!given(proto->op_type))
            return status_error(STATUS_INVALID, "node #%d \"%s\" names no operator", index, shown(im, proto->name));
        const char *name = node_name(im, proto, index);
        Status status = build_node(im, scope, proto, name);
        if (status) return status_at(status, "node \"%s\" (%s)", shown(im, name), shown(im, proto->op_type));
    }
    return NULL;
}

/* ---- graphs ---- */

static Status add_initializer(Importer *im, Scope *scope, const char *name, const Onnx__TensorProto *dense,
                              const Onnx__SparseTensorProto *sparse) {
    if (!given(name)) return status_error(STATUS_INVALID, "an initializer has no name");
    const Value *known = map_get(&scope->names, name);
    if (known && scope->outer && !known->constant)
        return NULL; /* the default of a subgraph's input, which is always given */
    TRY(charge(im, scope->frame, NODE_BYTES + strlen(name)));
    Tensor *tensor;
    im->tensors.unaligned = im->unaligned_weights;
    Status status = dense ? read_tensor(im, dense, &tensor) : read_sparse(im, sparse, &tensor);
    im->tensors.unaligned = false;
    if (status) return status_at(status, "initializer \"%s\"", shown(im, name));
    return define(im, scope, name, graph_add_constant(scope->graph, name, tensor));
}

static Status add_initializers(Importer *im, Scope *scope, const Onnx__GraphProto *proto) {
    for (size_t i = 0; i < proto->n_initializer; i++)
        TRY(add_initializer(im, scope, proto->initializer[i]->name, proto->initializer[i], NULL));
    for (size_t i = 0; i < proto->n_sparse_initializer; i++) {
        const Onnx__SparseTensorProto *sparse = proto->sparse_initializer[i];
        TRY(add_initializer(im, scope, sparse->values ? sparse->values->name : NULL, NULL, sparse));
    }
    return NULL;
}

static Status add_input(Importer *im, Scope *scope, const Onnx__ValueInfoProto *proto, bool outermost) {
    const char *name = proto->name;
    if (!given(name)) return status_error(STATUS_INVALID, "an input has no name");
    if (outermost && map_get(&scope->names, name)) {
        Value *value = map_get(&scope->names, name);
        return value->constant ? NULL : define(im, scope, name, value);
    }
    DeclaredType type;
    TRY(charge(im, scope->frame, NODE_BYTES + strlen(name)));
    TRY(status_at(read_type(im, proto->type, name, &type), "input \"%s\"", shown(im, name)));
    if (outermost && type.dtype == DT_NONE)
        return status_error(STATUS_INVALID, "input \"%s\" has no type", shown(im, name));
    bool container = type.kind == VALUE_SEQUENCE || value_kind_is_optional(type.kind);
    bool shaped = outermost || scope->shapes_hold || container;
    for (int i = 0; !outermost && container && i < type.rank; i++) /* the sizes are those of what comes */
        type.dims[i] = dim_symbol(im->graph->dims, "$any");
    Value *value = graph_add_input(scope->graph, name, type.dtype, shaped ? type.rank : -1, type.dims);
    value->kind = type.kind;
    value->key = type.key;
    return define(im, scope, name, value);
}

static Status add_output(Importer *im, Scope *scope, const char *name) {
    Value *value = NULL;
    if (given(name)) TRY(find(im, scope, name, &value));
    if (!value || value == LEFT_OUT)
        return status_error(STATUS_INVALID, "output \"%s\" of graph \"%s\" is not defined", shown(im, name),
                            shown(im, scope->graph->name));
    TRY(charge(im, scope->frame, EDGE_BYTES + strlen(name)));
    graph_add_named_output(scope->graph, value, name);
    return NULL;
}

/* Of the model's own graph initializers come first, because an input of the same name is none; of a subgraph its
 * inputs, because they are told apart by position. */
static Status build_body(Importer *im, Scope *scope, const Onnx__GraphProto *proto, bool outermost) {
    map_reserve(&scope->names, (int)(proto->n_initializer + proto->n_input + proto->n_node));
    if (outermost) {
        map_reserve(&scope->graph->names, scope->names.capacity);
        TRY(add_initializers(im, scope, proto));
        for (size_t i = 0; i < proto->n_input; i++) declare_dims(im, proto->input[i]->type);
    }
    for (size_t i = 0; i < proto->n_input; i++) TRY(add_input(im, scope, proto->input[i], outermost));
    if (!outermost) TRY(add_initializers(im, scope, proto));
    TRY(build_nodes(im, scope, proto->node, proto->n_node));
    for (size_t i = 0; i < proto->n_output; i++) TRY(add_output(im, scope, proto->output[i]->name));
    return NULL;
}

/* Whether all that reads a value takes it as it lies in the file; what becomes of these operators aligns it where not. */
static bool is_weight(const Value *value) {
    static const struct {
        const char *domain, *op;
        int input;
    } readers[] = {{"", "MatMul", 1},
                   {"", "Gemm", 1},
                   {"", "Conv", 1},
                   {"", "ConvTranspose", 1},
                   {"", "Gather", 0},
                   {"com.microsoft", "MatMulNBits", 2},
                   {"com.microsoft", "MatMulNBits", 3}};
    bool all = !value_is_output(value);
    for (int u = 0; u < value->uses.count && all; u++) {
        const Use *use = &value->uses.items[u];
        all = false;
        for (size_t i = 0; i < sizeof readers / sizeof *readers && !all; i++)
            all = use->index == readers[i].input && strcmp(use->node->domain, readers[i].domain) == 0 &&
                  strcmp(use->node->op, readers[i].op) == 0;
    }
    return all;
}

static void settle_constants(Importer *im, const Graph *graph) {
    for (int i = 0; i < graph->values.count; i++) {
        const Value *value = graph->values.items[i];
        if (!value->constant || is_weight(value)) continue;
        const void *before = value->constant->data;
        tensor_settle(&im->tensors, value->constant);
        if (value->constant->data != before) graph_note_pages(im->graph, value->constant);
    }
    FOR_EACH_NODE(node, graph)
    for (int s = 0; s < node->subgraph_count; s++) settle_constants(im, node->subgraphs[s]);
}

static Status register_functions(Importer *im) {
    for (size_t i = 0; i < im->model->n_functions; i++) {
        const Onnx__FunctionProto *f = im->model->functions[i];
        char *key = function_key(im->scratch, f->domain, f->name, f->overload);
        if (!given(f->name)) return status_error(STATUS_INVALID, "a function has no name");
        if (f->n_attribute_proto > MOST_ATTRIBUTES)
            return status_error(STATUS_UNSUPPORTED, "function \"%s\" has %zu attributes, more than %d",
                                shown(im, f->name), f->n_attribute_proto, MOST_ATTRIBUTES);
        if (map_get(&im->functions, key))
            return status_error(STATUS_INVALID, "function \"%s\" is defined twice", shown(im, f->name));
        map_set(&im->functions, key, (void *)(uintptr_t)f);
    }
    return NULL;
}

Status build_graph(Importer *im) {
    const Onnx__ModelProto *model = im->model;
    Map *opsets = ARENA_NEW(im->scratch, Map);
    TRY(read_opsets(im, model->opset_import, model->n_opset_import, opsets));
    map_set_id(&im->opsets, MAP_POINTER_KEY(model), opsets);
    TRY(register_functions(im));
    Scope *scope = ARENA_NEW(im->scratch, Scope);
    *scope = (Scope){.graph = im->graph, .names = map_make(im->scratch)};
    TRY(build_body(im, scope, model->graph, true));
    if (im->unaligned_weights) settle_constants(im, im->graph);
    return NULL;
}
