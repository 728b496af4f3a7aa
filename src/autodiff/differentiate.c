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
    return node->kind == NODE_HOST ? host_gradient(node) : NULL;
}

static bool passes_gradients(const Node *node, const Value *y) {
    if (node->kind != NODE_PRIM) return true;
    if (node->prim == PRIM_REDUCE_MAX || node->prim == PRIM_REDUCE_MIN) return !shift_cancels(node, y);
    return !is_constant_almost_everywhere(node->prim);
}

static bool depends_on_inputs(const Backward *w, const Node *node) {
    for (int i = 0; i < node->input_count; i++)
        if (wants(w, node, i)) return true;
    return false;
}

static void set_depends(Backward *w, Value *value) {
    if (value->kind == VALUE_TENSOR && dtype_is_float(value->dtype))
        map_set_id(&w->depends, MAP_POINTER_KEY(value), value);
}

static void mark_dependent(Backward *w, const Value *y, Value *const *of, int count, const Node *end) {
    for (int i = 0; i < count; i++) set_depends(w, of[i]);
    for (const Node *node = w->l->graph->first; node != end; node = node->next)
        if (depends_on_inputs(w, node) && passes_gradients(node, y))
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

static Status check_arguments(const Value *y, const Value *seed, Value *const *of, int count) {
    if (y->kind != VALUE_TENSOR || !dtype_is_float(y->dtype))
        return status_error(STATUS_UNSUPPORTED, "\"%s\" cannot be differentiated: it is no tensor of floats", y->name);
    if (seed && (seed->dtype != y->dtype || !value_same_shape(seed, y)))
        return status_error(STATUS_INVALID, "the gradient given for \"%s\" has another type or shape", y->name);
    for (int i = 0; i < count; i++)
        if (of[i]->kind != VALUE_TENSOR || !dtype_is_float(of[i]->dtype))
            return status_error(STATUS_UNSUPPORTED,
                                "there is no gradient with respect to \"%s\": it is no tensor of floats", of[i]->name);
    return NULL;
}

Status differentiate(Lowering *l, Value *y, Value *seed, Value *const *of, int count, Value **out_gradients) {
    TRY(check_arguments(y, seed, of, count));
    Arena *arena = l->scratch ? l->scratch : l->arena;
    Backward w = {.l = l, .gradients = map_make(arena), .depends = map_make(arena)};
    Node *end = l->place;
    mark_dependent(&w, y, of, count, end);
    Node *last = end ? end->prev : l->graph->last; /* behind it stands what the sweep makes */
    give_value(&w, y, seed ? seed : full_like(l, y, 1));
    Status status = l->error;
    l->error = NULL;
    TRY(status);
    for (Node *node = last; node; node = node->prev)
        if (has_any_dy(&w, node) && depends_on_inputs(&w, node)) TRY(differentiate_node(&w, node));
    for (int i = 0; i < count; i++) {
        out_gradients[i] = map_get_id(&w.gradients, MAP_POINTER_KEY(of[i]));
        if (!out_gradients[i]) out_gradients[i] = full_like(l, of[i], 0);
    }
    status = l->error;
    l->error = NULL;
    return status;
}
