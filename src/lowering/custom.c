/* SPDX-License-Identifier: Apache-2.0 */
/* Custom operators of an application in a graph: a node becomes a host step whose types the application says while the
 * model is lowered, and whose results it computes while the plan runs. */
#include "lowering/custom.h"

#include "base/log.h"
#include "lowering/gradient.h"

/* --- messages: "node "scale" (my.domain.Scale; inputs float32[n, 3], int64[2]): ..." ---------------------------- */

static const char *operator_name(Arena *arena, const Node *n) {
    bool standard = !n->domain || !*n->domain;
    return arena_format(arena, "%s%s%s", standard ? "" : n->domain, standard ? "" : ".", n->op);
}

static void add_type(Text *text, int index, const Value *value) {
    text_add(text, "%s", index ? ", " : "; inputs ");
    if (!value) {
        text_add(text, "none");
        return;
    }
    const char *kinds[] = {"", "sequence of ", "optional ", "optional sequence of ", "map to ", "sequence of maps to "};
    text_add(text, "%s%s", kinds[value->kind], dtype_onnx_name(value->dtype));
    if (value->kind != VALUE_TENSOR) return;
    text_add(text, "[");
    for (int d = 0; d < value->rank; d++) {
        if (d) text_add(text, ", ");
        dim_print(text, value->dims[d]);
    }
    text_add(text, value->rank < 0 ? "...]" : "]");
}

static Status lowering_error(Lowering *l, const Node *n, Status status) {
    Text inputs = text_make(l->arena);
    for (int i = 0; i < n->input_count; i++) add_type(&inputs, i, n->inputs[i]);
    return l->error =
               status_at(status, "node \"%s\" (%s%s)", node_origin_name(n), operator_name(l->arena, n), inputs.data);
}

static void add_item(Text *text, int index, const Item *item) {
    text_add(text, "%s", index ? ", " : "; inputs ");
    if (!item || item->kind == ITEM_NONE) {
        text_add(text, "none");
    } else if (item->kind == ITEM_SEQUENCE) {
        text_add(text, "sequence of %d", item->count);
    } else {
        text_add(text, "%s[", dtype_onnx_name(item->tensor.dtype));
        for (int d = 0; d < item->tensor.rank; d++)
            text_add(text, "%s%lld", d ? ", " : "", (long long)item->tensor.dims[d]);
        text_add(text, "]");
    }
}

static Status running_error(HostCall *call, Status status) {
    const Node *n = call->node;
    Text inputs = text_make(call->arena);
    for (int i = 0; i < n->input_count; i++) add_item(&inputs, i, call->inputs[i]);
    return status_at(status, "node \"%s\" (%s%s)", node_origin_name(n), operator_name(call->arena, n), inputs.data);
}

/* --- running ---------------------------------------------------------------------------------------------------- */

static Status compute(HostCall *host) {
    const CustomOperator *op = host->node->custom;
    CustomCall call = {.node = host->node, .op = op, .host = host};
    TRY(op->compute(op->user, &call));
    if (call.exhausted) return status_out_of_memory();
    for (int o = 0; o < host->node->output_count; o++)
        if (host->outputs[o] && host->outputs[o]->kind != ITEM_TENSOR)
            return status_error(STATUS_INVALID, "compute has not made output %d", o);
    return NULL;
}

Status host_custom(HostCall *host) {
    Status status = compute(host);
    return status ? running_error(host, status) : NULL;
}

/* --- lowering --------------------------------------------------------------------------------------------------- */

static Status types_of_first_input(const Node *n, CustomType *types) {
    const Value *first = n->input_count ? n->inputs[0] : NULL;
    if (!first || first->kind != VALUE_TENSOR)
        return status_error(STATUS_INVALID, "it has no `infer`, and no first input that is a tensor");
    for (int o = 0; o < n->output_count; o++) types[o] = (CustomType){true, first->dtype, first->rank, first->dims};
    return NULL;
}

static Status infer(Lowering *l, const Node *n, const CustomOperator *op, CustomType *types) {
    if (!op->infer) return types_of_first_input(n, types);
    CustomCall call = {.node = n, .op = op, .lowering = l, .types = types};
    TRY(op->infer(op->user, &call));
    if (call.exhausted) return status_out_of_memory();
    for (int o = 0; o < n->output_count; o++)
        if (n->outputs[o] && !types[o].set)
            return status_error(STATUS_INVALID, "infer has not said the type of output %d", o);
    return NULL;
}

/* The host node's next output. */
static Status add_result(Lowering *l, const Node *n, Node *host, int index, const CustomType *type) {
    if (!n->outputs[index]) {
        node_attach_output(host, NULL);
        return l->error;
    }
    const Dim **dims = ARENA_ARRAY(l->arena, const Dim *, type->rank > 0 ? type->rank : 1);
    for (int d = 0; d < type->rank; d++) dims[d] = type->dims[d] ? type->dims[d] : dim_fresh(l->dims, "size");
    return out(l, n, index, host_result(l, host, type->dtype, type->rank, dims));
}

Status lower_custom(Lowering *l, const Node *n, const CustomOperator *op) {
    if (n->subgraph_count) return unsupported(l, "a custom operator takes no graphs as attributes");
    CustomType *types = ARENA_ARRAY(l->arena, CustomType, n->output_count + 1);
    Status status = infer(l, n, op, types);
    if (status) return lowering_error(l, n, status);
    Node *host = host_node(l, n, host_custom, n->inputs, n->input_count);
    if (!host) return l->error;
    host->custom = op;
    for (int o = 0; o < n->output_count; o++) TRY(add_result(l, n, host, o, &types[o]));
    return NULL;
}

/* --- gradients -------------------------------------------------------------------------------------------------- */

static const CustomOperator *gradient_of(Lowering *l, const Node *n) {
    const CustomOperator *op = n->custom, *gradient = NULL;
    if (!op->gradient)
        unsupported(l, "its registration names no operator for its gradient");
    else if (!(gradient = registry_find(policy_registry(l->policy), op->domain, op->gradient, n->opset)))
        unsupported(l, "the operator %s, which its registration names for its gradient, is not in the registry",
                    op->gradient);
    return gradient;
}

static bool is_float_tensor(const Value *value) {
    return value && value->kind == VALUE_TENSOR && value->rank >= 0 && dtype_is_float(value->dtype);
}

/* A step of the operator that the registration names: of the gradients of the results, the inputs and the results. What it makes has the
 * inputs' types, so that it is not asked for them. */
static void back_custom(Backward *w, const Node *n) {
    Lowering *l = w->l;
    const CustomOperator *op = gradient_of(l, n);
    int results = n->output_count, count = 0;
    Value **inputs = ARENA_ARRAY(l->arena, Value *, 2 * results + n->input_count);
    for (int i = 0; i < results; i++) inputs[count++] = is_float_tensor(n->outputs[i]) ? dy(w, n, i) : NULL;
    for (int i = 0; i < n->input_count; i++) inputs[count++] = n->inputs[i];
    for (int i = 0; i < results; i++) inputs[count++] = n->outputs[i];
    Node *node = op ? backward_host(w, n, op->name, host_custom, inputs, count) : NULL;
    if (!node) return;
    node->custom = op;
    for (int i = 0; i < n->input_count; i++) {
        if (wants(w, n, i) && is_float_tensor(n->inputs[i]))
            give(w, n, i, host_result_like(l, node, n->inputs[i]));
        else
            node_attach_output(node, NULL);
    }
}

/* --- gradients of a place by a fusion of phase backward ---------------------------------------------------------- */

static const CustomOperator *backward_kernel(const Registry *registry, const char *name) {
    for (int i = 0; registry && i < registry->fusions.count; i++) {
        const CustomFusion *fusion = registry->fusions.items[i];
        if (fusion->phase == FUSION_BACKWARD && strcmp(fusion->name, name) == 0) return fusion->kernel;
    }
    return NULL;
}

static bool is_given(const Attr *gives, int input) {
    for (int i = 0; i < gives->count; i++)
        if (gives->ints[i] == input) return true;
    return false;
}

/* Whether the kernel makes all gradients that are asked for. */
static bool gives_all(const Backward *w, const Node *n, const Attr *gives) {
    int64_t inputs = attr_int(n, "places", 0);
    for (int i = n->output_count; i < inputs; i++)
        if (wants(w, n, i) && !is_given(gives, i)) return false;
    return true;
}

/* A node of the kernel, as a model would have it. */
static Node *kernel_node(Backward *w, const Node *n, const CustomOperator *op, const Attr *gives) {
    static const char captured[] = "captured.";
    Lowering *l = w->l;
    const Attr *reads = node_attr(n, "reads");
    Value **inputs = ARENA_ARRAY(l->arena, Value *, reads->count + 1);
    for (int i = 0; i < reads->count; i++) {
        int64_t from = reads->ints[i];
        inputs[i] = from >= 0                 ? n->inputs[from]
                    : from == ADJOINT_NOTHING ? NULL
                                              : dy(w, n, (int)(ADJOINT_GRADIENT - from));
    }
    Node *node = graph_add_node(l->graph, l->place, NODE_ONNX, op->name, inputs, reads->count);
    node->domain = op->domain;
    node->opset = op->since > 0 ? op->since : 1;
    node->custom = op;
    node->origin = n->origin;
    node_follow_rules(node, n);
    for (int i = 0; i < n->attrs.count; i++) {
        Attr attr = n->attrs.items[i];
        if (strncmp(attr.name, captured, sizeof captured - 1) != 0) continue;
        attr.name += sizeof captured - 1;
        node_set_attr(node, attr);
    }
    for (int i = 0; i < gives->count; i++) {
        if (gives->ints[i] >= 0 && wants(w, n, (int)gives->ints[i]))
            node_add_output(node, NULL, DT_NONE, -1, NULL);
        else
            node_attach_output(node, NULL);
    }
    return node;
}

/* False: the kernel's `infer` does not take these inputs. */
static bool give_by_kernel(Backward *w, const Node *n, const CustomOperator *op, const Attr *gives) {
    Lowering *l = w->l;
    Node *call = kernel_node(w, n, op, gives);
    l->node = call;
    Status status = lower_custom(l, call, op);
    l->node = n;
    Node *host = l->place ? l->place->prev : l->graph->last;
    graph_remove_node(l->graph, call);
    if (status && status_code(status) == STATUS_UNSUPPORTED) {
        LOG(1, "fusion %s.backward is not made: %s", attr_string(n, "fusion", ""), status_message(status));
        status_free(status);
        l->error = NULL;
        return false;
    }
    for (int i = 0; i < gives->count && !l->error; i++)
        if (host->outputs[i]) give(w, n, (int)gives->ints[i], host->outputs[i]);
    return true;
}

/* Where the kernel makes the gradients, none goes through the place; else all does. */
static void back_adjoint(Backward *w, const Node *n) {
    const Policy *policy = w->l->policy;
    const char *name = attr_string(n, "fusion", "");
    const Attr *gives = node_attr(n, "gives");
    const CustomOperator *op = backward_kernel(policy_registry(policy), name);
    if (!op) op = backward_kernel(policy->builtins, name);
    if (op && gives_all(w, n, gives) && give_by_kernel(w, n, op, gives)) return;
    for (int i = 0; i < n->output_count; i++)
        if (has_dy(w, n, i)) give(w, n, i, dy(w, n, i));
}

const HostRow hosts_custom[] = {
    {"custom", host_custom, back_custom},
    {"Adjoint", NULL, back_adjoint},
    {0},
};
