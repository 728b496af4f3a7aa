/* SPDX-License-Identifier: Apache-2.0 */
/* The sweep backwards: each node between what gradients are asked for and what is differentiated gives the gradients of its inputs from
 * those of its results. */
#include "autodiff/autodiff.h"

#include "autodiff/rules.h"

BackwardFn rule_of_prim(Prim prim) {
    BackwardFn (*const kinds[])(Prim) = {rule_elementwise, rule_reduction, rule_movement, rule_indexed};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (kinds[i](prim)) return kinds[i](prim);
    return NULL;
}

static BackwardFn rule_of(const Node *node) {
    if (node->kind == NODE_PRIM) return rule_of_prim(node->prim);
    if (node->kind == NODE_ANCHOR) return node->subgraph_count ? NULL : rule_of_anchor(node->op);
    if (node->kind != NODE_HOST) return NULL;
    return node->subgraph_count ? rule_of_control(node->op) : host_gradient(node);
}

static bool cancels(const Node *maximum, Value *const *ys, int count) {
    for (int i = 0; i < count; i++)
        if (!shift_cancels(maximum, ys[i])) return false;
    return true;
}

static bool passes_gradients(const Node *node, Value *const *ys, int count) {
    if (node->kind != NODE_PRIM) return true;
    if (node->prim == PRIM_REDUCE_MAX || node->prim == PRIM_REDUCE_MIN) return !cancels(node, ys, count);
    return !is_constant_almost_everywhere(node->prim);
}

static bool depends_on_inputs(const Backward *w, const Node *node) {
    for (int i = 0; i < node->input_count; i++)
        if (wants(w, node, i)) return true;
    return false;
}

/* Sequences too: that what goes through one has no gradient shows where it comes out. */
static void set_depends(Backward *w, Value *value) {
    if (dtype_is_float(value->dtype)) map_set_id(&w->depends, MAP_POINTER_KEY(value), value);
}

static void mark_dependent(Backward *w, const Differentiation *d, const Node *end) {
    for (int i = 0; i < d->of_count; i++) set_depends(w, d->of[i]);
    for (const Node *node = w->l->graph->first; node != end; node = node->next)
        if (depends_on_inputs(w, node) && passes_gradients(node, d->ys, d->y_count))
            for (int i = 0; i < node->output_count; i++)
                if (node->outputs[i]) set_depends(w, node->outputs[i]);
}

static bool has_any_dy(const Backward *w, const Node *node) {
    for (int i = 0; i < node->output_count; i++)
        if (has_dy(w, node, i)) return true;
    return false;
}

static Status differentiate_node(Backward *w, const Node *node) {
    BackwardFn rule = rule_of(node);
    Lowering *l = w->l;
    if (!rule)
        return status_error(STATUS_UNSUPPORTED, "node \"%s\": %s has no gradient", node_origin_name(node), node->op);
    l->node = node;
    rule(w, node);
    l->node = NULL;
    Status status = l->error;
    l->error = NULL;
    return status_at(status, "gradient of node \"%s\" (%s)", node_origin_name(node), node->op);
}

static Status no_gradient_by(const Value *x) {
    return status_error(STATUS_UNSUPPORTED, "there is no gradient with respect to \"%s\": it is no tensor of floats",
                        x->name);
}

static bool is_container(const Value *value) {
    return value->kind != VALUE_TENSOR && !value_kind_has_maps(value->kind);
}

static Status check_arguments(const Value *y, const Value *seed, Value *const *of, int count) {
    bool container = is_container(y) && seed && seed->kind == y->kind;
    if ((y->kind != VALUE_TENSOR && !container) || !dtype_is_float(y->dtype))
        return status_error(STATUS_UNSUPPORTED, "\"%s\" cannot be differentiated: it is no tensor of floats", y->name);
    if (seed && (seed->dtype != y->dtype || (!container && !value_same_shape(seed, y))))
        return status_error(STATUS_INVALID, "the gradient given for \"%s\" has another type or shape", y->name);
    for (int i = 0; i < count; i++)
        if ((of[i]->kind != VALUE_TENSOR && !is_container(of[i])) || !dtype_is_float(of[i]->dtype))
            return no_gradient_by(of[i]);
    return NULL;
}

static Status taken_error(Lowering *l) {
    Status status = l->error;
    l->error = NULL;
    return status;
}

Status differentiate_all(Lowering *l, const Differentiation *d, Value **out_gradients) {
    Arena *arena = l->scratch ? l->scratch : l->arena;
    Backward w = {.l = l, .gradients = map_make(arena), .depends = map_make(arena)};
    Node *end = l->place;
    for (int i = 0; i < d->y_count; i++) TRY(check_arguments(d->ys[i], d->seeds[i], d->of, d->of_count));
    mark_dependent(&w, d, end);
    Node *last = end ? end->prev : l->graph->last; /* behind it stands what the sweep makes */
    for (int i = 0; i < d->y_count; i++)
        give_value(&w, d->ys[i], d->seeds[i] ? d->seeds[i] : full_like(l, d->ys[i], 1));
    TRY(taken_error(l));
    for (Node *node = last; node; node = node->prev)
        if (has_any_dy(&w, node) && depends_on_inputs(&w, node)) TRY(differentiate_node(&w, node));
    for (int i = 0; i < d->of_count; i++) {
        out_gradients[i] = map_get_id(&w.gradients, MAP_POINTER_KEY(d->of[i]));
        if (!out_gradients[i]) out_gradients[i] = zeros_like(l, d->of[i]);
    }
    return taken_error(l);
}

Status differentiate(Lowering *l, Value *y, Value *seed, Value *const *of, int count, Value **out_gradients) {
    for (int i = 0; i < count; i++)
        if (of[i]->kind != VALUE_TENSOR) return no_gradient_by(of[i]);
    return differentiate_all(l, &(Differentiation){&y, &seed, 1, of, count}, out_gradients);
}
