/* SPDX-License-Identifier: Apache-2.0 */
/* The policy's "state": pairs of an input and the output that is its value in the next run become the graph's last inputs and outputs,
 * which a session keeps. What kind of state each is follows from the graph:
 *
 *     present = concat(past, new, ...) along an axis    appended: both are held with that axis first, where the past is the beginning of
 *                                                       the present, so that the concat has the new rows to write and no more
 *     present as long as past, or as max(past, total)   room: rows are placed in a cache of fixed room, whose size is the input's
 *     anything else                                     whole
 *
 * Permutes around a turned state are left to "layout", and to products and attention, which read by strides. */
#include "lowering/build.h"
#include "lowering/prune.h"
#include "passes/passes.h"

typedef struct Pair {
    const PolicyState *from;
    int input, output; /* in the model's order */
    GraphKept kept;
} Pair;

typedef struct Pairs {
    Graph *graph;
    const Policy *policy;
    Arena *scratch;
    VEC(Pair) list;
    int *pair_of_input, *pair_of_output; /* 1 + its number in the list; 0: none */
} Pairs;

/* ---- names ---- */

/* Whether the glob is the name; *out_parts: what each * stands for, the first as short as can be, and so on. */
static bool matches(Arena *arena, const char *glob, const char *name, const char **out_parts) {
    const char *star = strchr(glob, '*');
    size_t before = star ? (size_t)(star - glob) : strlen(glob);
    if (strncmp(glob, name, before) != 0) return false;
    if (!star) return !name[before];
    for (const char *end = name + before;; end++) {
        if (matches(arena, star + 1, end, out_parts + 1)) {
            *out_parts = arena_string_n(arena, name + before, (size_t)(end - name) - before);
            return true;
        }
        if (!*end) return false;
    }
}

static const char *with_parts(Arena *arena, const char *glob, const char *const *parts) {
    Text text = text_make(arena);
    text_add(&text, "%s", "");
    for (const char *c = glob; *c; c++) {
        if (*c == '*')
            text_add(&text, "%s", *parts++);
        else
            text_add_bytes(&text, c, 1);
    }
    return text.data;
}

static int output_called(const Graph *graph, const char *name) {
    for (int o = 0; o < graph->outputs.count; o++)
        if (strcmp(graph->output_names.items[o], name) == 0) return o;
    return -1;
}

static const char *type_text(Arena *arena, const Value *v) {
    return v->kind != VALUE_TENSOR ? "no tensor" : arena_format(arena, "%s of rank %d", dtype_name(v->dtype), v->rank);
}

static Status add_pair(Pairs *p, const PolicyState *state, int input, const char *called) {
    const Graph *graph = p->graph;
    const Value *in = graph->inputs.items[input];
    int output = output_called(graph, called);
    const char *where = state->where;
    if (output < 0)
        return status_error(STATUS_INVALID, "%s: input \"%s\" has no output \"%s\"", where, in->name, called);
    const Value *out = graph->outputs.items[output];
    if (p->pair_of_input[input])
        return status_error(STATUS_INVALID, "%s: input \"%s\" has an output already, by %s", where, in->name,
                            p->list.items[p->pair_of_input[input] - 1].from->where);
    if (p->pair_of_output[output])
        return status_error(STATUS_INVALID, "%s: output \"%s\" is the next value of input \"%s\" already, by %s", where,
                            called, graph->inputs.items[p->list.items[p->pair_of_output[output] - 1].input]->name,
                            p->list.items[p->pair_of_output[output] - 1].from->where);
    bool tensors = in->kind == VALUE_TENSOR && out->kind == VALUE_TENSOR;
    if (!tensors || in->dtype != out->dtype || in->rank != out->rank || in->dtype == DT_STRING || in->rank < 0)
        return status_error(STATUS_INVALID, "%s: input \"%s\" is %s, output \"%s\" is %s: %s", where, in->name,
                            type_text(p->scratch, in), called, type_text(p->scratch, out),
                            in->dtype == DT_STRING ? "strings cannot be a state"
                                                   : "a state needs tensors of one type and rank");
    VEC_PUSH(p->scratch, p->list, (Pair){state, input, output, {0}});
    p->pair_of_input[input] = p->pair_of_output[output] = p->list.count;
    return NULL;
}

static Status find_pairs(Pairs *p) {
    for (int s = 0; s < p->policy->state_count; s++) {
        const PolicyState *state = &p->policy->states[s];
        int before = p->list.count;
        const char **parts = ARENA_ARRAY(p->scratch, const char *, strlen(state->input) + 1);
        for (int i = 0; i < p->graph->inputs.count; i++)
            if (matches(p->scratch, state->input, p->graph->inputs.items[i]->name, parts))
                TRY(add_pair(p, state, i, with_parts(p->scratch, state->output, parts)));
        if (p->list.count == before)
            return status_error(STATUS_INVALID, "%s: no input of the model is called \"%s\"", state->where,
                                state->input);
    }
    return NULL;
}

/* ---- what kind of state ---- */

typedef struct Search {
    int symbol;
    bool found;
} Search;

static void look(int index, void *context) {
    Search *search = context;
    search->found |= index == search->symbol;
}

static bool depends(const Dim *dim, int symbol) {
    Search search = {symbol, false};
    dim_each_symbol(dim, look, &search);
    return search.found;
}

/* Whether some input that callers give has this size. */
static bool is_given(const Pairs *p, int symbol) {
    for (int i = 0; i < p->graph->inputs.count; i++)
        for (int d = 0; !p->pair_of_input[i] && d < p->graph->inputs.items[i]->rank; d++)
            if (dim_symbol_index(p->graph->inputs.items[i]->dims[d]) == symbol) return true;
    return false;
}

/* `dim` as max(x, y): its parts; false: it is none. */
static bool is_max(const Dim *dim, const Dim *parts[2]) {
    int factors;
    if (dim_term_count(dim) != 1 || dim_term(dim, 0, &factors) != 1 || factors != 1) return false;
    DimFactor f = dim_factor(dim, 0, 0);
    parts[0] = f.a;
    parts[1] = f.b;
    return f.function == DIM_MAX;
}

/* `out` is the room itself, or the longer of it and of what does not depend on it: max(room, x), room + max(0, x - room). */
static bool is_room(DimTable *dims, const Dim *room, const Dim *out) {
    int symbol = dim_symbol_index(room);
    const Dim *parts[2];
    if (out == room) return true;
    for (int i = 0; is_max(out, parts) && i < 2; i++)
        if (parts[i] == room) return !depends(parts[1 - i], symbol);
    for (int i = 0; is_max(dim_sub(dims, out, room), parts) && i < 2; i++)
        if (dim_equals(parts[i], 0)) return !depends(dim_add(dims, parts[1 - i], room), symbol);
    return false;
}

static Node *growing_concat(const Value *in, const Value *out) {
    Node *node = out->producer;
    if (!node || node->kind != NODE_PRIM || node->prim != PRIM_CONCAT || node->group || node->inputs[0] != in ||
        value_is_output(in))
        return NULL;
    for (int i = 1; i < node->input_count; i++)
        if (node->inputs[i] == in) return NULL;
    return node;
}

static Status classify(const Pairs *p, Pair *pair) {
    const Value *in = p->graph->inputs.items[pair->input], *out = p->graph->outputs.items[pair->output];
    const Node *grows = growing_concat(in, out);
    int wanted = pair->from->axis;
    pair->kept = (GraphKept){.axis = -1, .capacity = pair->from->capacity};
    if (wanted != NO_AXIS && (wanted < -in->rank || wanted >= in->rank))
        return status_error(STATUS_INVALID, "%s.axis: %d, but input \"%s\" has rank %d", pair->from->where, wanted,
                            in->name, in->rank);
    if (wanted < 0) wanted += in->rank;
    if (grows && (pair->from->axis == NO_AXIS || wanted == (int)attr_int(grows, "axis", 0))) {
        pair->kept.form = KEPT_APPENDED;
        pair->kept.axis = (int)attr_int(grows, "axis", 0);
        return NULL;
    }
    for (int d = 0; d < in->rank; d++) {
        int symbol = dim_symbol_index(in->dims[d]);
        if (pair->from->axis != NO_AXIS ? d != wanted : symbol < 0 || is_given(p, symbol)) continue;
        if (symbol < 0 || !is_room(p->graph->dims, in->dims[d], out->dims[d])) continue;
        pair->kept.form = KEPT_ROOM;
        pair->kept.axis = d;
        if (in->dims[d] != out->dims[d] || pair->kept.capacity) return NULL;
        return status_error(STATUS_INVALID,
                            "%s: input \"%s\" needs a capacity: nothing else says how long its axis %d is",
                            pair->from->where, in->name, d);
    }
    if (!pair->kept.capacity) return NULL;
    return status_error(STATUS_INVALID,
                        "%s.capacity: input \"%s\" does not grow: output \"%s\" is neither a Concat of it and "
                        "more nor a cache with room for more%s",
                        pair->from->where, in->name, p->graph->output_names.items[pair->output],
                        pair->from->axis != NO_AXIS ? " along that axis" : "");
}

/* ---- turning ---- */

/* `v` and what it is computed to be read as, permute(v, back). */
static void read_through(Value *v, Value *turned) {
    for (int u = v->uses.count - 1; u >= 0; u--) {
        Use use = v->uses.items[u];
        if (use.node != turned->producer) node_set_input(use.node, use.index, turned);
    }
    turned->stands_for = v->stands_for;
    v->stands_for = NULL;
}

/* *out_present: the new value, with its axis first. */
static Status turn(const Pairs *p, const Pair *pair, Value **out_present) {
    Graph *graph = p->graph;
    Value *past = graph->inputs.items[pair->input], *present = graph->outputs.items[pair->output];
    Node *grows = growing_concat(past, present);
    int axis = pair->kept.axis, first[MAX_RANK], back[MAX_RANK], rank = past->rank;
    for (int d = 0; d < rank; d++) first[d] = d == 0 ? axis : d <= axis ? d - 1 : d;
    for (int d = 0; d < rank; d++) back[first[d]] = d;
    *out_present = present;
    if (axis == 0) return NULL;
    const Dim *dims[MAX_RANK];
    for (int d = 0; d < rank; d++) dims[d] = past->dims[first[d]];
    memcpy(past->dims, dims, sizeof *dims * (size_t)rank);
    Lowering l = {
        .graph = graph, .arena = graph->arena, .dims = graph->dims, .policy = p->policy, .node = graph->first};
    Value *read = permute(&l, past, back);
    if (l.error) return l.error;
    read_through(past, read);
    l.node = grows;
    Value **parts = ARENA_ARRAY(p->scratch, Value *, grows->input_count);
    parts[0] = past;
    for (int i = 1; i < grows->input_count; i++) parts[i] = permute(&l, grows->inputs[i], first);
    *out_present = concat(&l, parts, grows->input_count, 0);
    Value *as_before = permute(&l, *out_present, back);
    if (l.error) return l.error;
    value_replace(graph, present, as_before);
    graph_remove_node(graph, grows);
    return NULL;
}

/* ---- the graph's inputs and outputs ---- */

static void put_last(Pairs *p, Value *const *turned) {
    Graph *graph = p->graph;
    int inputs = graph->inputs.count, outputs = graph->outputs.count, at = 0;
    Value **in = ARENA_ARRAY(p->scratch, Value *, inputs), **out = ARENA_ARRAY(p->scratch, Value *, outputs);
    const char **names = ARENA_ARRAY(p->scratch, const char *, outputs);
    memcpy(in, graph->inputs.items, sizeof *in * (size_t)inputs);
    memcpy(out, graph->outputs.items, sizeof *out * (size_t)outputs);
    memcpy(names, graph->output_names.items, sizeof *names * (size_t)outputs);
    for (int i = 0; i < inputs; i++)
        if (!p->pair_of_input[i]) graph->inputs.items[at++] = in[i];
    for (int i = 0; i < p->list.count; i++) graph->inputs.items[at++] = in[p->list.items[i].input];
    graph_truncate_outputs(graph, 0);
    for (int o = 0; o < outputs; o++)
        if (!p->pair_of_output[o]) graph_add_named_output(graph, out[o], names[o]);
    for (int i = 0; i < p->list.count; i++) {
        GraphKept kept = p->list.items[i].kept;
        kept.input = inputs - p->list.count + i;
        kept.output = graph->outputs.count;
        VEC_PUSH(graph->arena, graph->kept, kept);
        graph_add_named_output(graph, turned[i], names[p->list.items[i].output]);
    }
}

static Status take(Pairs *p) {
    Graph *graph = p->graph;
    p->pair_of_input = ARENA_ARRAY(p->scratch, int, graph->inputs.count + 1);
    p->pair_of_output = ARENA_ARRAY(p->scratch, int, graph->outputs.count + 1);
    TRY(status_at(find_pairs(p), "%s", policy_source(p->policy)));
    Value **turned = ARENA_ARRAY(p->scratch, Value *, p->list.count + 1);
    for (int i = 0; i < p->list.count; i++)
        TRY(status_at(classify(p, &p->list.items[i]), "%s", policy_source(p->policy)));
    for (int i = 0; i < p->list.count; i++) {
        turned[i] = graph->outputs.items[p->list.items[i].output];
        if (p->list.items[i].kept.form == KEPT_APPENDED) TRY(turn(p, &p->list.items[i], &turned[i]));
    }
    put_last(p, turned);
    graph_prune(graph); /* permutes that nothing reads */
    return NULL;
}

Status take_states(Graph *graph, const Policy *policy) {
    if (graph->parent || !policy->state_count) return NULL;
    if (graph->states.count || graph->seeds)
        return status_error(STATUS_INVALID, "%s: state: models that are trained keep no states of runs",
                            policy_source(policy));
    Arena *scratch = arena_create_inside(graph->arena);
    Pairs pairs = {.graph = graph, .policy = policy, .scratch = scratch};
    Status status = take(&pairs);
    arena_destroy(scratch);
    return status;
}
