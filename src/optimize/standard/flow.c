/* SPDX-License-Identifier: Apache-2.0 */
/* Control flow (ops/control/control.c says what its nodes mean). What the lowered graph allows and the standard does not is told otherwise:
 *   - A Scan whose states are sequences or change their size, or which may have no step (of which ONNX Runtime, 1.31, makes an error), is a
 *     Loop that takes its slices itself.
 *   - Sequences that a body gives in each step, all of whose elements the node gives one behind the other, are a further carried value: the
 *     sequence of those so far.
 * A node that stands in the target already is not written again (flow_extend.c). */
#include "optimize/standard/flow.h"

Value *written_result(Sweep *body, int index) { return form_of(&body->w, body->lowered->outputs.items[index]); }

void give_result(Sweep *s, Node *node, const Value *lowered) {
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
        if (is_asked(s, n->outputs[i])) give_result(s, node, n->outputs[i]);
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

const Value *output_of(const Steps *t, int index) { return index < t->outputs ? t->node->outputs[index] : NULL; }

const Value *result_of(const Steps *t, int index) { return t->body->outputs.items[t->lead + index]; }

const Value *carried_input(const Steps *t, int index) { return t->body->inputs.items[t->first + index]; }

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

static void need_steps(Sweep *s, const Steps *t) {
    const Node *n = t->node, *there = flow_in_target(s, n);
    Sweep *body = there ? sweep_of_body_in_target(s, t, there) : sweep_of_body(s, n, 0);
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

/* Of a sequence that is told element by element, and written here, these are put in one by one. */
Value *append_elements(Sweep *body, Value *all, const Value *lowered) {
    const Node *made = lowered->producer;
    if (!made || strcmp(made->op, "SequenceConstruct") != 0 || !is_asked(body, lowered))
        return append_each(&body->w, all, form_of(&body->w, lowered));
    for (int i = 0; i < made->input_count; i++)
        all = apply_to_items(&body->w, "SequenceInsert", VALUE_SEQUENCE, lowered->dtype,
                             (Value *[]){all, form_of(&body->w, made->inputs[i])}, 2, NULL, 0);
    return all;
}

bool is_stack(const Sweep *s, const Steps *t, int index, ValueKind kind) {
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
            give_result(s, node, output_of(t, i));
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
        if (so_far[i]) add_result(b, append_elements(body, so_far[i], result_of(t, i)));
    for (int i = 0; i < results; i++)
        if (is_stack(s, t, i, VALUE_TENSOR)) add_result(b, written_result(body, t->lead + i));
    Node *node = add_flow_node(w, "Loop", inputs, count, &b, 1);
    if (!node) return;
    for (int i = 0; i < t->carried; i++) {
        if (is_asked(s, output_of(t, i)))
            give_result(s, node, output_of(t, i));
        else
            add_flow_result(w, node, carried_input(t, i));
    }
    for (int i = 0; i < results; i++)
        if (so_far[i]) give_result(s, node, output_of(t, i));
    for (int i = 0; i < results; i++)
        if (is_stack(s, t, i, VALUE_TENSOR)) give_stack(s, node, t, i);
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
    Node *there = flow_in_target(s, n);
    if (there)
        extend_flow(s, &t, there);
    else if (is_scan(&t))
        write_scan(s, &t);
    else
        write_loop(s, &t);
}
