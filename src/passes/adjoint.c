/* SPDX-License-Identifier: Apache-2.0 */
#include "passes/adjoint.h"

#include "passes/pattern/pattern_form.h"

/* --- names ------------------------------------------------------------------------------------------------------------------ */

static const char *name_of(const Pattern *pattern, int value) {
    return value < 0 ? NULL : pattern->values.items[value].name;
}

/* Where among `values` of the pattern the name stands; -1: it does not, or the place has none. */
static int find_named(const Pattern *pattern, const int *values, int count, Value *const *matched, const char *name) {
    for (int i = 0; i < count; i++)
        if (values[i] >= 0 && matched[i] && strcmp(name_of(pattern, values[i]), name) == 0) return i;
    return -1;
}

static int find_input(const Pattern *forward, const PatternMatch *match, const char *name) {
    return find_named(forward, forward->inputs.items, forward->inputs.count, match->inputs, name);
}

static int find_output(const Pattern *forward, const PatternMatch *match, const char *name) {
    return find_named(forward, forward->outputs.items, forward->outputs.count, match->outputs, name);
}

static int gradient_of_output(const Pattern *forward, const PatternMatch *match, const char *name) {
    return *name == 'd' ? find_output(forward, match, name + 1) : -1;
}

static int capture_of(const Pattern *forward, const char *name) {
    for (int i = 0; i < pattern_capture_count(forward); i++)
        if (strcmp(pattern_capture_name(forward, i), name) == 0) return i;
    return -1;
}

static bool is_possible(const Pattern *backward, const Pattern *forward, const PatternMatch *match) {
    bool any = false;
    for (int i = 0; i < backward->inputs.count; i++) {
        const char *name = name_of(backward, backward->inputs.items[i]);
        if (!name) continue;
        bool is_gradient = gradient_of_output(forward, match, name) >= 0;
        any |= is_gradient;
        if (!is_gradient && find_input(forward, match, name) < 0 && find_output(forward, match, name) < 0) return false;
    }
    for (int i = 0; i < backward->outputs.count; i++) {
        const char *name = name_of(backward, backward->outputs.items[i]);
        if (name && (*name != 'd' || find_input(forward, match, name + 1) < 0)) return false;
    }
    for (int i = 0; i < pattern_capture_count(backward); i++)
        if (capture_of(forward, pattern_capture_name(backward, i)) < 0) return false;
    return any;
}

const Pattern *adjoint_choose(const Adjoints *adjoints, const Pattern *forward, const PatternMatch *match) {
    for (int i = 0; i < adjoints->count; i++)
        if (is_possible(adjoints->patterns[i], forward, match)) return adjoints->patterns[i];
    return NULL;
}

/* --- the node --------------------------------------------------------------------------------------------------------------- */

/* The node's inputs: the outputs of the place whose gradients are read, all inputs of the place, other outputs that are read. */
typedef struct Inputs {
    Arena *arena;
    VEC(Value *) values;
} Inputs;

static int input_for(Inputs *inputs, Value *value) {
    for (int i = 0; i < inputs->values.count; i++)
        if (inputs->values.items[i] == value) return i;
    VEC_PUSH(inputs->arena, inputs->values, value);
    return inputs->values.count - 1;
}

static void read_result(Node *node, int index) {
    Value *of = node->inputs[index];
    value_replace(node->graph, of, node_add_output(node, NULL, DT_NONE, -1, NULL));
    node_set_input(node, index, of);
}

Node *adjoint_insert(Graph *graph, Node *before, const char *fusion, const Pattern *backward, const Pattern *forward,
                     const PatternMatch *match, Origin origin) {
    Arena *arena = graph->arena;
    Inputs inputs = {.arena = arena};
    int64_t *reads = ARENA_ARRAY(arena, int64_t, backward->inputs.count + 1),
            *gives = ARENA_ARRAY(arena, int64_t, backward->outputs.count + 1);
    for (int i = 0; i < backward->inputs.count; i++) {
        const char *name = name_of(backward, backward->inputs.items[i]);
        int output = name ? gradient_of_output(forward, match, name) : -1;
        reads[i] = output < 0 ? ADJOINT_NOTHING : ADJOINT_GRADIENT - input_for(&inputs, match->outputs[output]);
    }
    int wrapped = inputs.values.count;
    for (int i = 0; i < forward->inputs.count; i++)
        if (match->inputs[i]) input_for(&inputs, match->inputs[i]);
    int end = inputs.values.count;
    for (int i = 0; i < backward->inputs.count; i++) {
        const char *name = name_of(backward, backward->inputs.items[i]);
        if (!name || reads[i] != ADJOINT_NOTHING) continue;
        int input = find_input(forward, match, name);
        reads[i] =
            input_for(&inputs, input >= 0 ? match->inputs[input] : match->outputs[find_output(forward, match, name)]);
    }
    for (int i = 0; i < backward->outputs.count; i++) {
        const char *name = name_of(backward, backward->outputs.items[i]);
        gives[i] = name ? input_for(&inputs, match->inputs[find_input(forward, match, name + 1)]) : ADJOINT_NOTHING;
    }
    Node *node = graph_add_node(graph, before, NODE_ONNX, "Adjoint", inputs.values.items, inputs.values.count);
    node->domain = INTERNAL_DOMAIN;
    node->opset = 1;
    node->origin = origin;
    node_set_string(node, "fusion", fusion);
    node_set_int(node, "places", end);
    node_set_ints(node, "reads", reads, backward->inputs.count);
    node_set_ints(node, "gives", gives, backward->outputs.count);
    for (int i = 0; i < pattern_capture_count(backward); i++) {
        const char *name = pattern_capture_name(backward, i);
        node_set_float(node, arena_format(arena, "captured.%s", name), match->captures[capture_of(forward, name)]);
    }
    for (int i = 0; i < wrapped; i++) read_result(node, i);
    return node;
}

/* --- what is differentiated --------------------------------------------------------------------------------------------------- */

static void add_names(const Node *node, const char *attribute, Map *names) {
    const Attr *attr = node_attr(node, attribute);
    for (int i = 0; attr && attr->kind == ATTR_STRINGS && i < attr->count; i++)
        map_set(names, arena_string_n(names->arena, attr->strings[i].data, attr->strings[i].size), names);
}

bool adjoint_is_asked(const Graph *graph, Map *out_names) {
    bool any = false;
    FOR_EACH_NODE(node, graph) {
        for (int i = 0; i < node->subgraph_count; i++) any |= adjoint_is_asked(node->subgraphs[i], out_names);
        if (node->kind != NODE_ONNX || strcmp(node->op, "Gradient") != 0 || strcmp(node->domain, TRAINING_DOMAIN) != 0)
            continue;
        any = true;
        add_names(node, "xs", out_names);
        add_names(node, "zs", out_names);
    }
    return any;
}
