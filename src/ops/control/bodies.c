/* SPDX-License-Identifier: Apache-2.0 */
/* Bodies of control flow: what goes in, what comes out, and what stands for one that cannot be lowered. */
#include "ops/control/bodies.h"

Status check_control(Lowering *l, const Node *n, int subgraphs) {
    if (n->captures < 0 || own_inputs(n) < 0 || n->subgraph_count != subgraphs)
        return invalid(l, "expected %d subgraphs, found %d", subgraphs, n->subgraph_count);
    return NULL;
}

Status check_body(Lowering *l, const Node *n, const Graph *body, int inputs, int least_outputs) {
    if (body->inputs.count - n->captures != inputs)
        return invalid(l, "the body has %d inputs where %d are passed", body->inputs.count - n->captures, inputs);
    if (body->outputs.count < least_outputs)
        return invalid(l, "the body has %d outputs where at least %d are needed", body->outputs.count, least_outputs);
    return NULL;
}

Status check_given(Lowering *l, const Node *n, int first, int count) {
    for (int i = 0; i < count; i++)
        if (!own_input(n, first + i)) return invalid(l, "input %d is left out", first + i);
    return NULL;
}

/* Constants among the captures go into the bodies, the others stay inputs. */
static bool is_passed(const Node *n, int capture) {
    const Value *outer = n->inputs[own_inputs(n) + capture];
    return !outer || !outer->constant;
}

void pass_captures(const Node *n, Graph *body) {
    int first = body->inputs.count - n->captures, kept = first;
    for (int i = 0; i < n->captures; i++) {
        const Value *outer = n->inputs[own_inputs(n) + i];
        Value *inner = body->inputs.items[first + i];
        if (is_passed(n, i)) {
            if (outer) pass_type(inner, outer);
            body->inputs.items[kept++] = inner;
        } else {
            value_replace(body, inner, graph_add_constant(body, outer->name, outer->constant));
        }
    }
    body->inputs.count = kept;
}

Value **passed_captures(Lowering *l, const Node *n, int *out_count) {
    Value **captured = ARENA_ARRAY(l->arena, Value *, n->captures);
    *out_count = 0;
    for (int i = 0; i < n->captures; i++)
        if (is_passed(n, i)) captured[(*out_count)++] = n->inputs[own_inputs(n) + i];
    return captured;
}

/* Whether any of the lowered bodies reads its input number `index`. */
static bool bodies_read(Graph *const *bodies, int count, int index) {
    for (int i = 0; i < count; i++) {
        const Value *input = bodies[i]->inputs.items[index];
        if (value_is_read(input)) return true;
    }
    return false;
}

int pass_read(Graph *const *bodies, int count, int first, Value *const *given, Value **inputs) {
    int to = first, end = bodies[0]->inputs.count;
    for (int from = first; from < end; from++) {
        if (!bodies_read(bodies, count, from)) continue;
        for (int b = 0; b < count; b++) bodies[b]->inputs.items[to] = bodies[b]->inputs.items[from];
        inputs[to++ - first] = given[from - first];
    }
    for (int b = 0; b < count; b++) bodies[b]->inputs.count = to;
    return to - first;
}

Node *control_node(Lowering *l, const Node *n, Value *const *own, int own_count, Graph *const *bodies, int count) {
    Value **inputs = ARENA_ARRAY(l->arena, Value *, own_count + n->captures);
    for (int i = 0; i < own_count; i++) inputs[i] = own[i];
    int passed;
    Value *const *captured = passed_captures(l, n, &passed);
    passed = pass_read(bodies, count, bodies[0]->inputs.count - passed, captured, inputs + own_count);
    Node *host = host_node(l, n, NULL, inputs, own_count + passed);
    if (!host) return NULL;
    host->captures = passed;
    for (int i = 0; i < count; i++) node_add_subgraph(host, bodies[i]);
    return host;
}

static void note_newest(int symbol, void *context) {
    int *newest = context;
    if (symbol > *newest) *newest = symbol;
}

/* Whether an expression holds a symbol made since there were `base` symbols: one that is bound inside a body alone. */
static bool is_local(const Dim *dim, int base) {
    int newest = -1;
    dim_each_symbol(dim, note_newest, &newest);
    return newest >= base;
}

ItemType outer_type(Lowering *l, const Value *result, int base) {
    ItemType type = item_type_of(result);
    if (type.rank <= 0) return type;
    const Dim **dims = ARENA_ARRAY(l->arena, const Dim *, type.rank);
    for (int i = 0; i < type.rank; i++)
        dims[i] = is_local(type.dims[i], base) ? dim_fresh(l->dims, "size") : type.dims[i];
    type.dims = dims;
    return type;
}

Status control_result(Lowering *l, const Node *n, Node *host, int index, const ItemType *type) {
    if (!wants_output(n, index)) {
        node_attach_output(host, NULL);
        return NULL;
    }
    Value *value = item_result(l, host, type);
    return value ? out(l, n, index, value) : l->error;
}

Status host_refuse(HostCall *call) { return host_error(call, "%s", attr_string(call->node, "message", "")); }

bool may_be_refused(Status failure) {
    return !failure || status_code(failure) == STATUS_INVALID || status_code(failure) == STATUS_UNSUPPORTED;
}

Graph *refusal(Lowering *l, const Node *n, const Graph *other, const ItemType *types, const char *message) {
    Graph *graph = graph_sub(l->graph, other->name);
    for (int i = 0; i < other->inputs.count; i++)
        pass_type(graph_add_input(graph, NULL, DT_NONE, -1, NULL), other->inputs.items[i]);
    Node *node = graph_add_node(graph, NULL, NODE_HOST, n->op, NULL, 0);
    node->host = host_refuse;
    node->domain = "";
    node->opset = n->opset;
    node->origin = n->origin;
    node_set_string(node, "message", message);
    for (int i = 0; i < other->outputs.count; i++) {
        Value *value = node_add_output(node, NULL, DT_NONE, -1, NULL);
        item_type_set(l, value, &types[i]);
        if (value->kind == VALUE_TENSOR && value->rank < 0) value->rank = 0; /* it is never made */
        graph_add_output(graph, value);
    }
    return graph;
}
