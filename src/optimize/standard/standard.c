/* SPDX-License-Identifier: Apache-2.0 */
/* What is asked for: a whole graph, or the results of its nodes Gradient. */
#include "optimize/standard/standard.h"

#include "autodiff/autodiff.h"
#include "lowering/prune.h"
#include "lowering/subgraph.h"
#include "optimize/standard/sweep.h"

/* --- a whole graph -------------------------------------------------------------------------------------------------------- */

static int imported_opset(const Graph *graph) {
    for (int i = 0; i < graph->info->opsets.count; i++)
        if (!*graph->info->opsets.items[i].domain) return (int)graph->info->opsets.items[i].version;
    return 0;
}

static int import_standard(Graph *graph) {
    enum { FIRST_IR = 10 }; /* version of the format that came with STANDARD_OPSET */
    ModelInfo *info = graph->info;
    int opset = imported_opset(graph);
    if (!opset) VEC_PUSH(graph->arena, info->opsets, (OpsetImport){"", STANDARD_OPSET});
    if (opset >= STANDARD_OPSET) return opset;
    for (int i = 0; i < info->opsets.count; i++)
        if (!*info->opsets.items[i].domain) info->opsets.items[i].version = STANDARD_OPSET;
    if (info->ir_version < FIRST_IR) info->ir_version = FIRST_IR;
    return STANDARD_OPSET;
}

Status standard_form(Graph *lowered, Graph **out_graph) {
    Graph *target = graph_sub(lowered, lowered->name);
    target->parent = NULL;
    Sweep s = sweep_of(lowered, target, import_standard(lowered));
    s.w.keeps_names = true;
    for (int i = 0; i < lowered->inputs.count; i++) {
        const Value *input = lowered->inputs.items[i];
        Value *value = graph_add_input(target, input->name, input->dtype, input->rank, input->dims);
        value->kind = input->kind;
        value->key = input->key;
        map_set_id(&s.w.forms, MAP_POINTER_KEY(input), value);
    }
    for (int i = 0; i < lowered->outputs.count; i++) need(&s, lowered->outputs.items[i]);
    mark_needed(&s);
    TRY(write_needed(&s));
    for (int i = 0; i < lowered->outputs.count; i++) {
        Value *value = form_of(&s.w, lowered->outputs.items[i]);
        if (*s.w.error) return *s.w.error;
        graph_add_named_output(target, value, lowered->output_names.items[i]);
    }
    graph_prune(target);
    *out_graph = target;
    return NULL;
}

/* --- gradients ------------------------------------------------------------------------------------------------------------ */

static bool is_gradient(const Node *node) {
    return strcmp(node->op, "Gradient") == 0 && strcmp(node->domain, TRAINING_DOMAIN) == 0;
}

static bool is_training_dropout(const Node *node) {
    return strcmp(node->op, "Dropout") == 0 && !*node->domain && node->input_count > 2 && node->inputs[2];
}

/* Each Dropout that may drop gives its mask, which its gradient reads. In bodies, too. */
static void add_masks(Graph *graph) {
    FOR_EACH_NODE(node, graph) {
        for (int i = 0; i < node->subgraph_count; i++) add_masks(node->subgraphs[i]);
        if (!is_training_dropout(node) || (node->output_count > 1 && node->outputs[1])) continue;
        node->output_count = 1;
        node_add_output(node, arena_format(graph->arena, "%s_mask", node->outputs[0]->name), DT_NONE, -1, NULL);
    }
}

static void drop_unread_masks(Graph *graph) {
    FOR_EACH_NODE(node, graph) {
        for (int i = 0; i < node->subgraph_count; i++) drop_unread_masks(node->subgraphs[i]);
        if (is_training_dropout(node) && node->output_count == 2 && !value_is_read(node->outputs[1]))
            node->output_count = 1;
    }
}

/* A copy with its gradients, in primitives. */
static Status lowered_copy(Graph *graph, const Policy *policy, Graph **out_lowered) {
    Graph *copy = clone_graph(graph, graph);
    copy->parent = NULL;
    graph_name_results(copy);
    TRY(prepare_gradients(copy, policy));
    TRY(lower_graph(copy, policy));
    *out_lowered = copy;
    return expand_gradients(copy, policy);
}

/* Each name of the model -> what has become of its value. */
static Map named_values(Sweep *s) {
    Map names = map_make(s->w.arena);
    for (int i = 0; i < s->lowered->values.count; i++) {
        Value *value = s->lowered->values.items[i];
        for (const ModelValue *m = value_is_read(value) ? value->stands_for : NULL; m; m = m->next)
            if (!m->perm && !map_get(&names, m->name)) map_set(&names, m->name, value);
    }
    return names;
}

/* The node's result is `value` from now on. */
static void put_in_place(Sweep *s, Value *result, Value *value) {
    Graph *model = s->w.target;
    if (value_is_output(result) && (!value->producer || value_is_output(value)))
        value = apply1(&s->w, "Identity", value);
    if (!value) return;
    char *name = result->name;
    result->name = value->name;
    value->name = name;
    map_set(&model->names, result->name, result);
    map_set(&model->names, value->name, value);
    value_replace(model, result, value);
}

static Status write_gradient(Sweep *s, const Map *names, Node *node) {
    s->w.place = node;
    Value **lowered = ARENA_ARRAY(s->w.arena, Value *, node->output_count);
    for (int i = 0; i < node->output_count; i++) {
        Value *result = node->outputs[i];
        if (!result || !value_is_read(result)) continue;
        lowered[i] = map_get(names, result->name);
        if (!lowered[i]) return status_error(STATUS_FAULT, "gradient \"%s\" was not lowered", result->name);
        need(s, lowered[i]);
    }
    mark_needed(s);
    TRY(write_needed(s));
    for (int i = 0; i < node->output_count; i++) {
        if (!lowered[i]) continue;
        Value *value = form_of(&s->w, lowered[i]);
        if (value) put_in_place(s, node->outputs[i], value);
        if (*s->w.error) return *s->w.error;
    }
    graph_remove_node(s->w.target, node);
    return NULL;
}

static Status write_gradients(Graph *graph, const Graph *lowered) {
    Sweep s = sweep_of(lowered, graph, imported_opset(graph));
    for (int i = 0; i < graph->inputs.count; i++)
        map_set_id(&s.w.forms, MAP_POINTER_KEY(lowered->inputs.items[i]), graph->inputs.items[i]);
    for (int i = 0; i < graph->values.count; i++) {
        Value *value = graph->values.items[i];
        if (value->constant && !value->producer) map_set_id(&s.w.constants, MAP_POINTER_KEY(value->constant), value);
    }
    Map names = named_values(&s);
    FOR_EACH_NODE_SAFE(node, graph) {
        if (is_gradient(node)) {
            TRY(write_gradient(&s, &names, node));
            continue;
        }
        add_available(&s, node);
    }
    return NULL;
}

static bool has_domain(const Graph *graph, const char *domain) {
    FOR_EACH_NODE(node, graph) {
        if (strcmp(node->domain, domain) == 0) return true;
        for (int i = 0; i < node->subgraph_count; i++)
            if (has_domain(node->subgraphs[i], domain)) return true;
    }
    return false;
}

static void drop_import(Graph *graph, const char *domain) {
    ModelInfo *info = graph->info;
    int kept = 0;
    for (int i = 0; i < info->opsets.count; i++)
        if (strcmp(info->opsets.items[i].domain, domain) != 0) info->opsets.items[kept++] = info->opsets.items[i];
    info->opsets.count = kept;
}

/* The loss and the gradients: what a file says of an output has to have a type. */
static void type_outputs(Graph *graph, const Graph *lowered) {
    for (int i = 0; i < graph->outputs.count; i++) {
        Value *output = graph->outputs.items[i];
        const Value *known = lowered->outputs.items[i];
        if (output->dtype == DT_NONE) output->dtype = known->dtype;
        if (output->rank >= 0) continue;
        output->rank = known->rank;
        output->dims = known->dims;
    }
}

Policy standard_policy(const Policy *policy) {
    Policy own = *policy;
    own.target.standard = true;
    return own;
}

Status standard_gradients(Graph *graph, const Policy *policy) {
    Graph *lowered;
    Policy own = standard_policy(policy);
    add_masks(graph);
    TRY(lowered_copy(graph, &own, &lowered));
    TRY(write_gradients(graph, lowered));
    type_outputs(graph, lowered);
    drop_unread_masks(graph);
    graph_prune(graph);
    if (!has_domain(graph, TRAINING_DOMAIN)) drop_import(graph, TRAINING_DOMAIN);
    return NULL;
}
