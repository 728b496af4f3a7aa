/* SPDX-License-Identifier: Apache-2.0 */
/* Control flow (ops/control/control.c says what its nodes mean). What the lowered graph allows and the standard does not is told otherwise:
 *   - A Scan whose states are sequences or change their size, or which may have no step (of which ONNX Runtime, 1.31, makes an error), is a
 *     Loop that takes its slices itself.
 *   - Sequences that a body gives in each step, all of whose elements the node gives one behind the other, are a further carried value: the
 *     sequence of those so far.
 * A node that stands in the target already, and of which a gradient asks more than it gives, is not written again: its body gets the further
 * results. */
#include "lowering/prune.h"
#include "optimize/standard/sweep.h"

static Value *written_result(Sweep *body, int index) { return form_of(&body->w, body->lowered->outputs.items[index]); }

static void give(Sweep *s, Node *node, const Value *lowered) {
    Value *value = add_flow_result(&s->w, node, lowered);
    set_form(&s->w, lowered, value);
}

/* --- If and SequenceMap: results that nothing reads are left out --------------------------------------------------------------- */

static void need_bodies(Sweep *s, const Node *n) {
    for (int i = 0; i < n->input_count - n->captures; i++) need(s, n->inputs[i]);
    for (int b = 0; b < n->subgraph_count; b++) {
        Sweep *body = sweep_of_body(s, n, b);
        for (int i = 0; i < n->output_count; i++)
            if (is_asked(s, n->outputs[i])) need(body, body->lowered->outputs.items[i]);
        mark_needed(body);
    }
}

static void write_bodies(Sweep *s, const Node *n) {
    int own = n->input_count - n->captures, bodies = n->subgraph_count;
    Writer *w = &s->w, **writers = ARENA_ARRAY(w->arena, Writer *, bodies);
    Value **inputs = ARENA_ARRAY(w->arena, Value *, own);
    for (int i = 0; i < own; i++) inputs[i] = form_of(w, n->inputs[i]);
    for (int b = 0; b < bodies; b++) {
        Sweep *body = sweep_of_body(s, n, b);
        writers[b] = &body->w;
        for (int i = 0; i < body->lowered->inputs.count - n->captures; i++) {
            const Value *input = body->lowered->inputs.items[i];
            set_form(&body->w, input, add_body_input(&body->w, input, false));
        }
        if (write_needed(body)) return;
        for (int i = 0; i < n->output_count; i++)
            if (is_asked(s, n->outputs[i])) add_result(&body->w, written_result(body, i));
    }
    Node *node = add_flow_node(w, n->op, inputs, own, writers, bodies);
    for (int i = 0; node && i < n->output_count; i++)
        if (is_asked(s, n->outputs[i])) give(s, node, n->outputs[i]);
}

/* In a branch that fails when it is taken: an element behind the only one of a tensor, at a place that the condition says, so that nothing before
 * the run finds it to be wrong. */
static Value *failing_number(Writer *w) {
    Value *condition = capture(w, form_of(w->outer, w->outer->node->inputs[0]));
    Value *place = apply2(w, "Add", convert(w, to_scalar(w, condition), DT_I64), whole(w, DT_I64, 1));
    return place ? apply(w, "Gather", DT_I64, (Value *[]){vector_of(w, 0), place}, 2, NULL, 0) : NULL;
}

void write_refusal(Writer *w, const Node *n) {
    Value *number = failing_number(w);
    for (int i = 0; i < n->output_count && !*w->error; i++) {
        const Value *output = n->outputs[i];
        int rank = output->rank > 0 ? output->rank : 0;
        int64_t sizes[MAX_RANK];
        for (int k = 0; k < rank; k++)
            if (!dim_is_const(output->dims[k], &sizes[k])) sizes[k] = 1;
        Value *value = convert(w, number, output->dtype);
        if (rank) value = apply(w, "Expand", output->dtype, (Value *[]){value, ints_value(w, sizes, rank)}, 2, NULL, 0);
        if (output->kind == VALUE_SEQUENCE)
            value = apply_to_items(w, "SequenceConstruct", VALUE_SEQUENCE, output->dtype, &value, 1, NULL, 0);
        else if (output->kind != VALUE_TENSOR)
            refuse(w, "a branch that fails gives an optional");
        set_form(w, output, value);
    }
}

/* --- Loop and Scan ------------------------------------------------------------------------------------------------------------- */

/* Both as one. The node's own inputs: `first`, carried values, scanned tensors; the body's outputs: `lead`, carried values, results of each step. */
typedef struct Steps {
    const Node *node;
    const Graph *body;
    bool is_loop;
    int first, lead, carried, scanned, outputs;
    const int64_t *in_axes, *in_directions, *out_axes, *out_directions; /* of a Scan */
} Steps;

static Steps steps_of(const Node *n) {
    Steps t = {.node = n, .body = n->subgraphs[0], .is_loop = strcmp(n->op, "Loop") == 0};
    int own = n->input_count - n->captures, count;
    t.first = t.is_loop ? 2 : 0;
    t.lead = t.is_loop;
    t.scanned = (int)attr_int(n, "num_scan_inputs", 0);
    t.carried = own > t.first ? own - t.first - t.scanned : 0;
    t.outputs = n->output_count;
    t.in_axes = attr_ints(n, "scan_input_axes", &count);
    t.in_directions = attr_ints(n, "scan_input_directions", &count);
    t.out_axes = attr_ints(n, "scan_output_axes", &count);
    t.out_directions = attr_ints(n, "scan_output_directions", &count);
    return t;
}

static const Value *output_of(const Steps *t, int index) { return index < t->outputs ? t->node->outputs[index] : NULL; }

/* Of one step: what it makes of carried value `index`, or gives beside these. */
static const Value *result_of(const Steps *t, int index) { return t->body->outputs.items[t->lead + index]; }

static const Value *carried_input(const Steps *t, int index) { return t->body->inputs.items[t->first + index]; }

static bool keeps_shape(const Steps *t, int index) {
    const Value *start = t->node->inputs[t->first + index], *inner = carried_input(t, index);
    if (inner->kind != VALUE_TENSOR) return false;
    for (int i = 0; i < inner->rank; i++)
        if (inner->dims[i] != start->dims[i]) return false;
    return true;
}

static bool has_steps(const Steps *t) {
    int64_t length;
    for (int i = 0; i < t->scanned; i++)
        if (dim_is_const(t->node->inputs[t->carried + i]->dims[t->in_axes[i]], &length)) return length > 0;
    return !t->node->backward; /* that of the model is told as it is */
}

static bool is_scan(const Steps *t) {
    if (t->is_loop || !has_steps(t)) return false;
    for (int i = 0; i < t->carried; i++)
        if (!keeps_shape(t, i)) return false;
    for (int i = t->carried; i < t->outputs; i++)
        if (output_of(t, i) && output_of(t, i)->kind != VALUE_TENSOR) return false;
    return true;
}

/* A stack of a Loop without steps has no size along its other axes where the body alone knows them; these are known outside. */
static bool has_known_shape(const Sweep *s, const Node *n, const Value *stack) {
    bool open = false;
    for (int i = 0; i < stack->rank; i++) {
        if (!has_size_before(s, stack->dims[i], n)) return false;
        open |= i > 0 && !dim_is_const(stack->dims[i], NULL);
    }
    return open;
}

/* The node of the target that this one was lowered from. */
static Node *existing_node(const Sweep *s, const Node *n) {
    for (int i = 0; i < n->output_count && !n->backward; i++)
        for (const ModelValue *m = n->outputs[i] ? n->outputs[i]->stands_for : NULL; m; m = m->next) {
            const Value *value = m->perm ? NULL : map_get(&s->available, m->name);
            if (value && value->producer && strcmp(value->producer->op, n->op) == 0) return value->producer;
        }
    return NULL;
}

/* The body that stands in the target is the one to which results are added. */
static Sweep *sweep_of_existing_body(Sweep *s, const Steps *t, const Node *there) {
    Sweep *body = sweep_of_body(s, t->node, 0);
    Graph *graph = there->subgraphs[0];
    if (body->w.target == graph) return body;
    body->w.target = graph;
    for (int i = 0; i < t->body->inputs.count - t->node->captures; i++)
        map_set_id(&body->w.forms, MAP_POINTER_KEY(t->body->inputs.items[i]), graph->inputs.items[i]);
    for (int i = 0; i < there->captures; i++)
        map_set_id(&body->w.inner, MAP_POINTER_KEY(there->inputs[there->input_count - there->captures + i]),
                   graph->inputs.items[graph->inputs.count - there->captures + i]);
    FOR_EACH_NODE(node, graph) add_available(body, node);
    return body;
}

static void need_steps(Sweep *s, const Steps *t) {
    const Node *n = t->node, *there = existing_node(s, n);
    Sweep *body = there ? sweep_of_existing_body(s, t, there) : sweep_of_body(s, n, 0);
    for (int i = 0; i < n->input_count - n->captures && !there; i++) need(s, n->inputs[i]);
    if (t->is_loop && !there) need(body, t->body->outputs.items[0]);
    for (int i = 0; i < t->body->outputs.count - t->lead; i++) {
        const Value *output = output_of(t, i);
        bool asked = is_asked(s, output);
        if (i < t->carried ? !there : asked) need(body, result_of(t, i));
        if (asked && i >= t->carried && output->kind == VALUE_TENSOR && has_known_shape(s, n, output))
            need_sizes(s, output->dims, output->rank);
    }
    mark_needed(body);
}

/* --- sequences that all steps give, one behind the other --- */

/* `all` with the elements of `more` at its end. */
static Value *append_each(Writer *w, Value *all, Value *more) {
    Value *length = more ? apply(w, "SequenceLength", DT_I64, &more, 1, NULL, 0) : NULL;
    Repeat *r = begin_repeat(w, length, all);
    if (!r) return NULL;
    Writer *b = &r->body;
    Value *element = apply(b, "SequenceAt", more->dtype, (Value *[]){capture(b, more), r->number}, 2, NULL, 0);
    Value *next =
        apply_to_items(b, "SequenceInsert", VALUE_SEQUENCE, all->dtype, (Value *[]){r->carried, element}, 2, NULL, 0);
    return end_repeat(w, r, next);
}

/* Of a sequence that is told element by element these are put in one by one. */
static Value *append(Sweep *body, Value *all, const Value *lowered) {
    const Node *made = lowered->producer;
    if (!made || strcmp(made->op, "SequenceConstruct") != 0)
        return append_each(&body->w, all, form_of(&body->w, lowered));
    for (int i = 0; i < made->input_count; i++)
        all = apply_to_items(&body->w, "SequenceInsert", VALUE_SEQUENCE, lowered->dtype,
                             (Value *[]){all, form_of(&body->w, made->inputs[i])}, 2, NULL, 0);
    return all;
}

static Value *no_elements(Writer *w, DType dtype) {
    Attr attr = int_attr("dtype", dtype);
    return apply_to_items(w, "SequenceEmpty", VALUE_SEQUENCE, dtype, NULL, 0, &attr, 1);
}

static bool is_stack(const Sweep *s, const Steps *t, int index, ValueKind kind) {
    const Value *output = index < t->carried ? NULL : output_of(t, index);
    return is_asked(s, output) && output->kind == kind;
}

/* --- as a Scan --- */

typedef VEC(int64_t) Numbers;

static void write_scan(Sweep *s, const Steps *t) {
    const Node *n = t->node;
    Writer *w = &s->w;
    Sweep *body = sweep_of_body(s, n, 0);
    int own = t->carried + t->scanned;
    Value **inputs = ARENA_ARRAY(w->arena, Value *, own);
    Numbers axes = {0}, directions = {0};
    for (int i = 0; i < own; i++) {
        inputs[i] = form_of(w, n->inputs[i]);
        set_form(&body->w, t->body->inputs.items[i], add_body_input(&body->w, t->body->inputs.items[i], false));
    }
    if (write_needed(body)) return;
    for (int i = 0; i < t->body->outputs.count; i++) {
        if (i >= t->carried && !is_asked(s, output_of(t, i))) continue;
        add_result(&body->w, written_result(body, i));
        if (i < t->carried) continue;
        VEC_PUSH(w->arena, axes, t->out_axes[i - t->carried]);
        VEC_PUSH(w->arena, directions, t->out_directions[i - t->carried]);
    }
    Node *node = add_flow_node(w, "Scan", inputs, own, (Writer *[]){&body->w}, 1);
    if (!node) return;
    node_set_int(node, "num_scan_inputs", t->scanned);
    node_set_ints(node, "scan_input_axes", t->in_axes, t->scanned);
    node_set_ints(node, "scan_input_directions", t->in_directions, t->scanned);
    node_set_ints(node, "scan_output_axes", axes.items, axes.count);
    node_set_ints(node, "scan_output_directions", directions.items, directions.count);
    for (int i = 0; i < t->body->outputs.count; i++) {
        if (is_asked(s, output_of(t, i)))
            give(s, node, output_of(t, i));
        else if (i < t->carried)
            add_flow_result(w, node, carried_input(t, i));
    }
}

/* --- as a Loop --- */

/* How many steps a Scan has. */
static Value *count_steps(Writer *w, const Steps *t) {
    Value *scanned = form_of(w, t->node->inputs[t->carried]);
    Attr attrs[] = {int_attr("start", t->in_axes[0]), int_attr("end", t->in_axes[0] + 1)};
    return to_scalar(w, scanned ? apply(w, "Shape", DT_I64, &scanned, 1, attrs, 2) : NULL);
}

static void take_slices(Sweep *s, Sweep *body, const Steps *t, Value *number, Value *times) {
    Writer *b = &body->w;
    Value *back = NULL;
    for (int i = 0; i < t->scanned; i++) {
        const Value *slice = t->body->inputs.items[t->carried + i];
        Value *place = number, *all = capture(b, form_of(&s->w, t->node->inputs[t->carried + i]));
        if (t->in_directions[i] && !back)
            back = apply2(b, "Sub", apply2(b, "Sub", capture(b, times), whole(b, DT_I64, 1)), number);
        if (t->in_directions[i]) place = back;
        Attr axis = int_attr("axis", t->in_axes[i]);
        if (!all || !place) return;
        set_form(b, slice, apply(b, "Gather", slice->dtype, (Value *[]){all, place}, 2, &axis, 1));
    }
}

/* A stack along axis 0, in the order of the steps, as the Scan has it. */
static Value *as_scanned(Writer *w, Value *stack, int rank, int64_t axis, bool backwards) {
    int64_t perm[MAX_RANK];
    if (backwards) {
        static const int64_t last = -1, first = INT64_MIN + 1, along = 0;
        Value *list[] = {stack, ints_value(w, &last, 1), ints_value(w, &first, 1), ints_value(w, &along, 1),
                         ints_value(w, &last, 1)};
        stack = apply(w, "Slice", stack->dtype, list, 5, NULL, 0);
    }
    for (int i = 0; i < rank; i++) perm[i] = i < axis ? i + 1 : i == axis ? 0 : i;
    return transpose(w, stack, perm, rank);
}

static void give_stack(Sweep *s, Node *node, const Steps *t, int index) {
    const Value *lowered = output_of(t, index);
    Writer *w = &s->w;
    Value *stack = add_flow_result(w, node, lowered);
    int64_t axis = t->is_loop ? 0 : t->out_axes[index - t->carried];
    bool backwards = !t->is_loop && t->out_directions[index - t->carried];
    if (axis || backwards) stack = as_scanned(w, stack, lowered->rank, axis, backwards);
    if (has_known_shape(s, t->node, lowered))
        stack = reshape_to(w, stack, (const Dim *const *)lowered->dims, lowered->rank);
    set_form(w, lowered, stack);
}

static void write_loop(Sweep *s, const Steps *t) {
    const Node *n = t->node;
    Writer *w = &s->w;
    Sweep *body = sweep_of_body(s, n, 0);
    Writer *b = &body->w;
    int results = t->body->outputs.count - t->lead, count = 2;
    Value **inputs = ARENA_ARRAY(w->arena, Value *, 2 + t->carried + results);
    for (int i = 0; i < 2 && t->is_loop; i++)
        if (i < n->input_count - n->captures && n->inputs[i]) inputs[i] = to_scalar(w, form_of(w, n->inputs[i]));
    if (!t->is_loop) inputs[0] = count_steps(w, t);
    Value *number = graph_add_input(b->target, "step", DT_I64, 0, NULL);
    Value *condition = graph_add_input(b->target, "condition", DT_BOOL, 0, NULL);
    for (int i = 0; i < t->carried; i++) {
        inputs[count++] = form_of(w, n->inputs[t->first + i]);
        set_form(b, carried_input(t, i), add_body_input(b, carried_input(t, i), false));
    }
    Value **so_far = ARENA_ARRAY(w->arena, Value *, results);
    for (int i = 0; i < results; i++) {
        if (!is_stack(s, t, i, VALUE_SEQUENCE)) continue;
        inputs[count] = no_elements(w, result_of(t, i)->dtype);
        if (inputs[count]) so_far[i] = add_body_input(b, inputs[count++], true);
    }
    if (t->is_loop) {
        set_form(b, t->body->inputs.items[0], number);
        set_form(b, t->body->inputs.items[1], condition);
    } else
        take_slices(s, body, t, number, inputs[0]);
    if (*w->error || write_needed(body)) return;
    add_result(b, t->is_loop ? to_scalar(b, written_result(body, 0)) : condition);
    for (int i = 0; i < t->carried; i++) add_result(b, written_result(body, t->lead + i));
    for (int i = 0; i < results; i++)
        if (so_far[i]) add_result(b, append(body, so_far[i], result_of(t, i)));
    for (int i = 0; i < results; i++)
        if (is_stack(s, t, i, VALUE_TENSOR)) add_result(b, written_result(body, t->lead + i));
    Node *node = add_flow_node(w, "Loop", inputs, count, &b, 1);
    if (!node) return;
    for (int i = 0; i < t->carried; i++) {
        if (is_asked(s, output_of(t, i)))
            give(s, node, output_of(t, i));
        else
            add_flow_result(w, node, carried_input(t, i));
    }
    for (int i = 0; i < results; i++)
        if (so_far[i]) give(s, node, output_of(t, i));
    for (int i = 0; i < results; i++)
        if (is_stack(s, t, i, VALUE_TENSOR)) give_stack(s, node, t, i);
}

/* --- further results of a node that is there --- */

typedef VEC(Value *) Values;

/* What the node at `at` reads is moved before it. `before`: nodes that stand there. */
static void move_before(Writer *w, Node *node, Node *at, Map *before) {
    if (map_get_id(before, MAP_POINTER_KEY(node))) return;
    map_set_id(before, MAP_POINTER_KEY(node), node);
    for (int i = 0; i < node->input_count; i++) {
        Node *maker = node->inputs[i] ? node->inputs[i]->producer : NULL;
        if (maker == at && !*w->error)
            *w->error = status_error(STATUS_FAULT, "\"%s\" would be computed of itself", node->inputs[i]->name);
        if (maker && maker != at) move_before(w, maker, at, before);
    }
    if (node != at) graph_move_before(w->target, node, at);
}

static void move_inputs_before(Writer *w, Node *at) {
    Map before = map_make(w->arena);
    for (Node *node = w->target->first; node != at; node = node->next) map_set_id(&before, MAP_POINTER_KEY(node), node);
    move_before(w, at, at, &before);
}

/* In the place of `there`, with its body. Results that had no name get one, as others come behind them. */
static Node *replace_node(Writer *w, Node *there, const Values *inputs, int captures) {
    Node *node = graph_add_node(w->target, there, NODE_ONNX, there->op, inputs->items, inputs->count);
    node->domain = there->domain;
    node->opset = there->opset;
    node->origin = there->origin;
    node->wanted = there->wanted;
    node->captures = captures;
    node_follow_rules(node, there);
    for (int i = 0; i < there->attrs.count; i++) node_set_attr(node, there->attrs.items[i]);
    node_add_subgraph(node, there->subgraphs[0]);
    return node;
}

static void move_result(Writer *w, Node *node, const Node *there, int index, const Value *like) {
    Value *value = index < there->output_count ? there->outputs[index] : NULL;
    if (value) {
        value->producer = NULL;
        node_attach_output(node, value);
    } else
        add_flow_result(w, node, like);
}

/* Of a Scan, whose further results are stacked in the order of the steps. */
static void add_axes(Writer *w, Node *node, const char *name, int count) {
    int given;
    const int64_t *old = attr_ints(node, name, &given);
    int64_t *all = ARENA_ARRAY(w->arena, int64_t, count);
    for (int i = 0; i < given; i++) all[i] = old[i];
    node_set_ints(node, name, all, count);
}

/* The body's outputs: as they were up to `carried`, sequences that are carried, the rest, further stacks. */
static void add_body_results(Sweep *body, const Steps *t, int carried, Value *const *so_far) {
    Writer *b = &body->w;
    Graph *graph = b->target;
    int count = graph->outputs.count, results = t->body->outputs.count - t->lead;
    Value **old = arena_copy(b->arena, graph->outputs.items, (size_t)count * sizeof *old);
    const char **names = arena_copy(b->arena, graph->output_names.items, (size_t)count * sizeof *names);
    Values added = {0};
    for (int i = 0; i < results; i++)
        if (so_far[i]) VEC_PUSH(b->arena, added, append(body, so_far[i], result_of(t, i)));
    graph_truncate_outputs(graph, 0);
    for (int i = 0; i < carried; i++) graph_add_named_output(graph, old[i], names[i]);
    for (int i = 0; i < added.count; i++) add_result(b, added.items[i]);
    for (int i = carried; i < count; i++) graph_add_named_output(graph, old[i], names[i]);
    for (int i = 0; i < results; i++)
        if (is_stack(body->outer, t, i, VALUE_TENSOR)) add_result(b, written_result(body, t->lead + i));
    graph_prune(graph);
}

static void extend(Sweep *s, const Steps *t, Node *there) {
    Sweep *body = sweep_of_existing_body(s, t, there);
    Writer *w = &s->w, *b = &body->w;
    Graph *graph = b->target;
    int own = there->input_count - there->captures, own_inside = graph->inputs.count - there->captures;
    int results = t->body->outputs.count - t->lead, before = graph->outputs.count - t->lead;
    Values inputs = {0}, inside = {0};
    Value **so_far = ARENA_ARRAY(w->arena, Value *, results);
    if (write_needed(body)) return;
    for (int i = 0; i < t->first + t->carried + t->scanned; i++)
        VEC_PUSH(w->arena, inputs, i < own ? there->inputs[i] : NULL);
    for (int i = 0; i < own_inside; i++) VEC_PUSH(w->arena, inside, graph->inputs.items[i]);
    for (int i = 0; i < results; i++) {
        if (!is_stack(s, t, i, VALUE_SEQUENCE)) continue;
        if (!t->is_loop) return refuse(w, "its Scan would have to carry a sequence, which the standard does not allow");
        Value *start = no_elements(w, result_of(t, i)->dtype);
        if (!start) return;
        so_far[i] = graph_add_value(graph, NULL, start->dtype, -1, NULL);
        so_far[i]->kind = VALUE_SEQUENCE;
        VEC_PUSH(w->arena, inputs, start);
        VEC_PUSH(w->arena, inside, so_far[i]);
    }
    add_body_results(body, t, t->lead + t->carried, so_far);
    if (*w->error) return;
    for (int i = 0; i < there->captures; i++) {
        VEC_PUSH(w->arena, inputs, there->inputs[own + i]);
        VEC_PUSH(w->arena, inside, graph->inputs.items[own_inside + i]);
    }
    for (int i = 0; i < b->captures.count; i++) {
        VEC_PUSH(w->arena, inputs, b->captures.items[i]);
        VEC_PUSH(w->arena, inside, map_get_id(&b->inner, MAP_POINTER_KEY(b->captures.items[i])));
    }
    graph->inputs.count = 0;
    for (int i = 0; i < inside.count; i++) VEC_PUSH(graph->arena, graph->inputs, inside.items[i]);

    Node *node = replace_node(w, there, &inputs, there->captures + b->captures.count);
    for (int i = 0; i < t->carried; i++) {
        move_result(w, node, there, i, carried_input(t, i));
        if (is_asked(s, output_of(t, i))) set_form(w, output_of(t, i), node->outputs[i]);
    }
    for (int i = 0; i < results; i++)
        if (so_far[i]) give(s, node, output_of(t, i));
    for (int i = t->carried; i < before; i++) move_result(w, node, there, i, result_of(t, i));
    for (int i = 0; i < results; i++)
        if (is_stack(s, t, i, VALUE_TENSOR)) give(s, node, output_of(t, i));
    if (!t->is_loop) {
        add_axes(w, node, "scan_output_axes", graph->outputs.count - t->carried);
        add_axes(w, node, "scan_output_directions", graph->outputs.count - t->carried);
    }
    there->output_count = there->subgraph_count = 0;
    graph_remove_node(w->target, there);
    move_inputs_before(w, node);
}

/* --- all ----------------------------------------------------------------------------------------------------------------------- */

static bool has_steps_of(const Node *n) { return strcmp(n->op, "Loop") == 0 || strcmp(n->op, "Scan") == 0; }

void need_flow(Sweep *s, const Node *n) {
    if (!has_steps_of(n)) {
        need_bodies(s, n);
        return;
    }
    Steps t = steps_of(n);
    need_steps(s, &t);
}

void write_flow(Sweep *s, const Node *n) {
    for (int b = 0; b < n->subgraph_count; b++) sweep_of_body(s, n, b)->w.node = n;
    if (!has_steps_of(n)) {
        write_bodies(s, n);
        return;
    }
    Steps t = steps_of(n);
    Node *there = existing_node(s, n);
    if (there)
        extend(s, &t, there);
    else if (is_scan(&t))
        write_scan(s, &t);
    else
        write_loop(s, &t);
}
