/* SPDX-License-Identifier: Apache-2.0 */
/* A part of a graph as a graph of its own: from some values to others. */
#include "lowering/prune.h"
#include "optimize/rewrite.h"

typedef struct Extract {
    Rewrite rewrite; /* facts alone */
    Graph *graph;
    VEC(Value *) inputs, outputs;
} Extract;

static Status wrong(const char *text) {
    return status_error(
        STATUS_USAGE, "extract \"%s\": expected INPUTS:OUTPUTS, names of the model's values with commas between", text);
}

/* Names up to `end`; false when one is none of a value. */
static bool read_names(Extract *x, const char *text, const char *end, bool outputs) {
    while (text < end) {
        size_t length = 0;
        while (text + length < end && text[length] != ',') length++;
        Value *value = map_get(&x->graph->names, arena_string_n(x->graph->arena, text, length));
        if (!value) return false;
        if (outputs)
            VEC_PUSH(x->graph->arena, x->outputs, value);
        else
            VEC_PUSH(x->graph->arena, x->inputs, value);
        text += length + 1;
    }
    return true;
}

/* Names may hold colons: the first one that leaves names on both sides parts inputs from outputs. */
static Status read_both(Extract *x, const char *text) {
    for (const char *colon = strchr(text, ':'); colon; colon = strchr(colon + 1, ':')) {
        x->inputs.count = x->outputs.count = 0;
        if (read_names(x, text, colon, false) && read_names(x, colon + 1, text + strlen(text), true) &&
            x->outputs.count)
            return NULL;
    }
    return wrong(text);
}

/* Gives a value of the graph the type that lowering has found; sizes that are expressions become names. */
static Status set_type(Extract *x, Value *value) {
    const Value *fact = typed_fact_of(&x->rewrite, value);
    if (!fact) {
        if (!value->producer && !value->constant) return NULL; /* an input's own type */
        return status_error(STATUS_UNSUPPORTED, "the type of \"%s\" is not known, so it cannot be extracted",
                            value->name);
    }
    DimTable *table = x->graph->dims;
    value->kind = fact->kind;
    value->key = fact->key;
    value->dtype = fact->dtype;
    value->rank = fact->rank;
    value->dims = fact->rank > 0 ? ARENA_ARRAY(x->graph->arena, const Dim *, fact->rank) : NULL;
    for (int i = 0; i < fact->rank; i++) {
        int64_t size;
        if (dim_is_const(fact->dims[i], &size)) {
            value->dims[i] = dim_const(table, size);
            continue;
        }
        if (fact->kind != VALUE_TENSOR) { /* its tensors may differ there */
            value->dims[i] = dim_fresh(table, "size");
            continue;
        }
        Text text = text_make(x->graph->arena);
        dim_print(&text, fact->dims[i]);
        value->dims[i] = dim_symbol(table, text.data);
    }
    return NULL;
}

static bool contains(Value *const *values, int count, const Value *value) {
    for (int i = 0; i < count; i++)
        if (values[i] == value) return true;
    return false;
}

static Status become_input(Extract *x, int index) {
    Value *value = x->inputs.items[index];
    if (contains(x->inputs.items, index, value))
        return status_error(STATUS_USAGE, "extract: \"%s\" is given twice", value->name);
    TRY(set_type(x, value));
    if (value->producer) value->producer->outputs[value->output_index] = NULL;
    value->producer = NULL;
    value->constant = NULL;
    value->content = NULL;
    return NULL;
}

static Status become_output(Extract *x, int index) {
    Value *value = x->outputs.items[index];
    if (contains(x->outputs.items, index, value))
        return status_error(STATUS_USAGE, "extract: \"%s\" is given twice", value->name);
    if (value->constant) return status_error(STATUS_USAGE, "extract: \"%s\" is a constant", value->name);
    return set_type(x, value);
}

/* Lowering takes out what nothing reads, and then finds no type for it. */
static Status keep_in_twin(Graph *twin, const Value *value) {
    Value *same = map_get(&twin->names, value->name);
    if (!same) return status_error(STATUS_FAULT, "the model changed while it was read");
    if (same->producer && !value_is_read(same)) graph_add_named_output(twin, same, same->name);
    return NULL;
}

Status extract_graph(Graph *graph, Graph *twin, const Policy *policy, const char *from_to) {
    Extract x = {.rewrite = {.arena = graph->arena, .facts = map_make(graph->arena)}, .graph = graph};
    TRY(read_both(&x, from_to));
    for (int i = 0; i < x.outputs.count; i++) TRY(keep_in_twin(twin, x.outputs.items[i]));
    for (int i = 0; i < x.inputs.count; i++) TRY(keep_in_twin(twin, x.inputs.items[i]));
    TRY(rewrite_facts(&x.rewrite, graph, twin, policy));
    for (int i = 0; i < x.outputs.count; i++) TRY(become_output(&x, i));
    for (int i = 0; i < x.inputs.count; i++) TRY(become_input(&x, i));
    graph_truncate_outputs(graph, 0);
    for (int i = 0; i < x.outputs.count; i++)
        graph_add_named_output(graph, x.outputs.items[i], x.outputs.items[i]->name);
    graph_prune(graph);
    for (int i = 0; i < graph->inputs.count; i++) {
        const Value *input = graph->inputs.items[i];
        if (!contains(x.inputs.items, x.inputs.count, input) && value_is_read(input))
            return status_error(STATUS_USAGE, "extract: input \"%s\" is needed as well", input->name);
    }
    graph->inputs.count = 0;
    for (int i = 0; i < x.inputs.count; i++) VEC_PUSH(graph->arena, graph->inputs, x.inputs.items[i]);
    return NULL;
}
