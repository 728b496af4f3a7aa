/* SPDX-License-Identifier: Apache-2.0 */
/* Gradients of control flow (ops/control/control.c says what its nodes mean). Of an If: an If over the same condition, whose branches are the
 * forward ones with their gradients behind them. Of a Loop or Scan: a Scan backwards over the steps, whose body is the forward one, run
 * again from the values with which each step began, with its gradient behind it (Griewank and Walther, "Evaluating Derivatives", 2008, 4);
 * those values are stacked as further outputs of the forward node. Tensors whose size differs between steps become one sequence. Of a sequence
 * that a Loop carries hardly more than its length is read again (ops/sequence/sequence_gradient.c), so that is stacked, and the elements that the
 * body takes out are kept; where the body reads it otherwise, the sequences with which all steps began are, one behind the other. An optional is
 * kept in the same way: whether it holds something is stacked, and what it holds is a sequence. Of a SequenceMap: a Loop over the
 * elements of its sequences and of the gradients of its results. */
#include "autodiff/rules.h"

#include "lowering/item_type.h"
#include "lowering/prune.h"
#include "lowering/sizes.h"
#include "lowering/subgraph.h"

static Status taken_error(Lowering *l) {
    Status status = l->error;
    l->error = NULL;
    return status;
}

static bool is_differentiable(const Value *value) {
    if (!value || !dtype_is_float(value->dtype)) return false;
    return !value_kind_has_maps(value->kind) && (value->kind != VALUE_TENSOR || value->rank >= 0);
}

static Status no_gradient(const Node *n, const Value *value) {
    return status_error(STATUS_UNSUPPORTED, "node \"%s\": the gradient of \"%s\", %s", node_origin_name(n), value->name,
                        value->kind == VALUE_TENSOR ? "a tensor of an unknown number of axes" : "a map");
}

/* A body under construction: a copy of a forward one, and what is asked of it. */
typedef struct Body {
    Graph *graph;
    const Graph *forward;
    Map values;                /* of the forward body -> of this one */
    Value **ys, **seeds, **of; /* in this one */
    int y_count, of_count;
    Value **gradients; /* [of_count] */
} Body;

static Body body_of(Lowering *l, const Graph *forward) {
    int inputs = forward->inputs.count, ys = forward->outputs.count + inputs;
    return (Body){.graph = graph_sub(l->graph, forward->name),
                  .forward = forward,
                  .values = map_make(l->arena),
                  .ys = ARENA_ARRAY(l->arena, Value *, ys),
                  .seeds = ARENA_ARRAY(l->arena, Value *, ys),
                  .of = ARENA_ARRAY(l->arena, Value *, inputs),
                  .gradients = ARENA_ARRAY(l->arena, Value *, inputs)};
}

static Value *add_input(Body *b, const Value *model) {
    Value *input = graph_add_input(b->graph, NULL, model->dtype, model->rank, (const Dim *const *)model->dims);
    pass_type(input, model);
    input->content = NULL;
    return input;
}

/* An input of the body that stands for the forward body's. */
static Value *add_same(Body *b, const Value *forward) {
    Value *input = add_input(b, forward);
    map_set_id(&b->values, MAP_POINTER_KEY(forward), input);
    return input;
}

static Value *now(const Body *b, const Value *forward) { return map_get_id(&b->values, MAP_POINTER_KEY(forward)); }

/* Whether the body's output can have a gradient: it is computed, not a constant. */
static bool is_computed(const Value *output) { return is_differentiable(output) && !output->constant; }

static void ask_for(Body *b, Value *y, Value *seed) {
    b->ys[b->y_count] = y;
    b->seeds[b->y_count++] = seed;
}

static void copy_nodes(Body *b) { FOR_EACH_NODE(node, b->forward) copy_node_to(b->graph, NULL, node, &b->values); }

static Lowering inside(const Lowering *l, Graph *graph) {
    return (Lowering){.graph = graph, .arena = l->arena, .dims = l->dims, .policy = l->policy, .elsewhere = true};
}

static Status differentiate_body(const Lowering *l, Body *b) {
    Lowering own = inside(l, b->graph);
    for (int i = 0; i < b->y_count; i++) { /* of the same sizes, which may be written in other symbols */
        b->seeds[i] = gradient_as(&own, b->seeds[i], b->ys[i]);
        if (b->ys[i]->kind == VALUE_TENSOR)
            b->seeds[i] = reshape(&own, b->seeds[i], (const Dim *const *)b->ys[i]->dims, b->ys[i]->rank);
    }
    TRY(taken_error(&own));
    return differentiate_all(&own, &(Differentiation){b->ys, b->seeds, b->y_count, b->of, b->of_count}, b->gradients);
}

/* ---- If ---- */

/* The branch's gradients of the captures that are wanted. Its inputs: the captures, then the gradients of the node's results that have one. */
static Status back_branch(Backward *w, const Node *n, const Graph *branch, Graph **out_graph) {
    Body b = body_of(w->l, branch);
    int first = n->input_count - n->captures;
    for (int i = 0; i < n->captures; i++) {
        Value *input = add_same(&b, branch->inputs.items[i]);
        if (wants(w, n, first + i)) b.of[b.of_count++] = input;
    }
    copy_nodes(&b);
    for (int i = 0; i < n->output_count; i++) {
        if (!has_dy(w, n, i)) continue;
        const Value *result = branch->outputs.items[i];
        /* where one branch gives an optional, the node does, and the other may give what such a one holds */
        Value *seed = add_input(&b, result->kind == n->outputs[i]->kind ? result : n->outputs[i]);
        if (is_computed(result)) ask_for(&b, now(&b, result), seed);
    }
    TRY(differentiate_body(w->l, &b));
    for (int i = 0; i < b.of_count; i++) graph_add_output(b.graph, b.gradients[i]);
    graph_prune(b.graph);
    *out_graph = b.graph;
    return NULL;
}

/* What neither branch reads is not passed to them: a sequence that a loop carries need not be kept for that. */
static int drop_unread_captures(Graph *const *branches, Value **captured, int count) {
    int kept = 0;
    for (int i = 0; i < count; i++) {
        if (!value_is_read(branches[0]->inputs.items[i]) && !value_is_read(branches[1]->inputs.items[i])) continue;
        for (int k = 0; k < 2; k++) branches[k]->inputs.items[kept] = branches[k]->inputs.items[i];
        captured[kept++] = captured[i];
    }
    for (int k = 0; k < 2; k++) branches[k]->inputs.count = kept;
    return kept;
}

static void back_if(Backward *w, const Node *n) {
    Lowering *l = w->l;
    int first = n->input_count - n->captures, count = n->input_count;
    Value **inputs = ARENA_ARRAY(l->arena, Value *, n->input_count + n->output_count);
    for (int i = 0; i < n->input_count; i++) inputs[i] = n->inputs[i];
    for (int i = 0; i < n->output_count; i++)
        if (has_dy(w, n, i)) inputs[count++] = dy(w, n, i);
    for (int i = first; i < n->input_count; i++)
        if (wants(w, n, i) && !is_differentiable(n->inputs[i]) && !l->error) l->error = no_gradient(n, n->inputs[i]);
    Graph *branches[2];
    for (int i = 0; i < 2 && !l->error; i++) l->error = back_branch(w, n, n->subgraphs[i], &branches[i]);
    if (l->error) return;
    count = first + drop_unread_captures(branches, inputs + first, count - first);
    Node *node = backward_host(w, n, n->op, NULL, inputs, count);
    if (!node) return;
    node->captures = count - first;
    for (int i = 0; i < 2; i++) node_add_subgraph(node, branches[i]);
    for (int i = first; i < n->input_count; i++)
        if (wants(w, n, i)) give(w, n, i, result_like(l, node, n->inputs[i]));
}

/* ---- Loop and Scan ---- */

/* Both as one: `lead` inputs and outputs of the body, carried values, slices of scanned inputs, captures; and stacked outputs. */
typedef struct Steps {
    const Node *node;
    Graph *body;
    bool loop;
    int lead, carried, scanned, stacked;
    int first; /* of the node's inputs: the first carried value */
    const int64_t *in_axes, *in_directions, *out_axes, *out_directions; /* of a Scan */
} Steps;

static Steps steps_of(const Node *n) {
    Steps s = {.node = n, .body = n->subgraphs[0], .loop = strcmp(n->op, "Loop") == 0};
    int own = n->input_count - n->captures, count;
    s.scanned = s.loop ? 0 : (int)attr_int(n, "num_scan_inputs", 0);
    s.first = s.loop ? 2 : 0;
    s.lead = s.loop ? 2 : 0;
    s.carried = own - s.first - s.scanned;
    s.stacked = s.body->outputs.count - s.loop - s.carried;
    s.in_axes = attr_ints(n, "scan_input_axes", &count);
    s.in_directions = attr_ints(n, "scan_input_directions", &count);
    s.out_axes = attr_ints(n, "scan_output_axes", &count);
    s.out_directions = attr_ints(n, "scan_output_directions", &count);
    return s;
}

static Value *body_result(const Steps *s, int index) { return s->body->outputs.items[s->loop + index]; }

/* Whether the carried value has another size along the axis in each step, as far as lowering can tell. */
static bool varies(const Steps *s, int index, int axis) {
    return s->body->inputs.items[s->lead + index]->dims[axis] != s->node->inputs[s->first + index]->dims[axis];
}

/* Whether the carried values of all steps can be stacked: tensors of one shape. Where lowering takes them for that, the run may still refuse. */
static bool can_be_stacked(const Steps *s, int index) {
    const Value *inner = s->body->inputs.items[s->lead + index];
    for (int i = 0; inner->kind == VALUE_TENSOR && i < inner->rank; i++)
        if (varies(s, index, i)) return false;
    return inner->kind == VALUE_TENSOR;
}

/* The type of a carried value in one step or behind the last, written in sizes of its own. */
static void set_type(const Lowering *l, const Steps *s, int index, Value *value) {
    const Value *inner = s->body->inputs.items[s->lead + index];
    pass_type(value, inner);
    value->content = NULL;
    if (inner->kind != VALUE_TENSOR || inner->rank <= 0) return;
    value->dims = ARENA_ARRAY(l->arena, const Dim *, inner->rank);
    for (int i = 0; i < inner->rank; i++)
        value->dims[i] = varies(s, index, i) ? dim_fresh(l->dims, "size") : inner->dims[i];
}

/* The carried value behind the last step, which nothing may have asked for. */
static Value *last_value(const Lowering *l, const Steps *s, int index) {
    Node *node = (Node *)s->node; /* of the graph that is being differentiated */
    if (index < node->output_count && node->outputs[index]) return node->outputs[index];
    Value *last = node_output_at(node, index, DT_NONE, -1, NULL);
    set_type(l, s, index, last);
    return last;
}

/* What the backward Scan scans, and where from. */
typedef struct Slices {
    Value **inner, **outer; /* outer: NULL where the forward node is yet to stack `saved`, of its body */
    Value **saved;
    int64_t *axes, *directions;
    int count;
} Slices;

static Slices slices_make(Arena *arena, int most) {
    return (Slices){ARENA_ARRAY(arena, Value *, most), ARENA_ARRAY(arena, Value *, most),
                    ARENA_ARRAY(arena, Value *, most), ARENA_ARRAY(arena, int64_t, most),
                    ARENA_ARRAY(arena, int64_t, most), 0};
}

static void add_slice(Slices *s, Value *inner, Value *outer, Value *saved, int64_t axis, bool backwards) {
    int i = s->count++;
    s->inner[i] = inner;
    s->outer[i] = outer;
    s->saved[i] = saved;
    s->axes[i] = axis;
    s->directions[i] = backwards;
}

/* How long the stacks are. */
static const Dim *step_count(Lowering *l, const Steps *s) {
    const Node *n = s->node;
    if (!s->loop) return n->inputs[s->first + s->carried]->dims[s->in_axes[0]];
    for (int i = s->carried; i < n->output_count; i++)
        if (n->outputs[i] && n->outputs[i]->kind == VALUE_TENSOR) return n->outputs[i]->dims[0];
    return dim_fresh(l->dims, "iterations");
}

/* Makes the forward node stack a value of its body: a tensor along axis 0, of sequences all elements one behind the other. */
static Value *stack(Lowering *l, const Steps *s, Value *saved) {
    Node *node = (Node *)s->node;
    const Dim *dims[MAX_RANK], *count = step_count(l, s);
    if (saved->kind == VALUE_TENSOR && saved->rank >= MAX_RANK)
        return unsupported(l, "a stack of more than %d axes", MAX_RANK), NULL;
    while (node->output_count < s->body->outputs.count - s->loop) node_attach_output(node, NULL);
    graph_add_output(s->body, saved);
    dims[0] = count;
    for (int i = 0; saved->kind == VALUE_TENSOR && i < saved->rank; i++) dims[1 + i] = saved->dims[i];
    if (!s->loop) {
        int total = s->body->outputs.count - s->carried;
        int64_t *axes = ARENA_ARRAY(l->arena, int64_t, total), *directions = ARENA_ARRAY(l->arena, int64_t, total);
        int given;
        const int64_t *old = attr_ints(node, "scan_output_axes", &given);
        for (int i = 0; i < given; i++) axes[i] = old[i];
        old = attr_ints(node, "scan_output_directions", &given);
        for (int i = 0; i < given; i++) directions[i] = old[i];
        node_set_ints(node, "scan_output_axes", axes, total);
        node_set_ints(node, "scan_output_directions", directions, total);
    }
    if (saved->kind == VALUE_SEQUENCE) return result_like(l, node, saved);
    return node_add_output(node, NULL, saved->dtype, 1 + saved->rank, dims);
}

static Value *true_for(Body *b, const Value *input) {
    int64_t one = 1;
    Tensor *tensor = tensor_new(b->graph->arena, DT_BOOL, input->rank, &one);
    *(bool *)tensor->data = true;
    return graph_add_constant(b->graph, NULL, tensor);
}

/* What the backward Scan captures. outer: NULL where the forward node is yet to keep `saved`, a tensor of its body, step by step. */
typedef struct Capture {
    Value *inner, *outer, *saved;
} Capture;

/* The parts of the backward Scan, in the order of its inputs: the gradients of carried values that are floats, the sums of those of captures,
 * slices, captures: those of the forward node, then what its steps began with and cannot be stacked. */
typedef struct Reverse {
    Steps s;
    Body b;
    Slices slices;
    int *states;                    /* [carried]: the state that is the gradient of each; -1: none */
    Value **state_inputs, **starts; /* inside and outside */
    int state_count;
    int first_sum; /* of the states */
    VEC(Capture) captures;
    Value *number; /* of the step, where the forward body has none: a slice */
} Reverse;

static Value *add_state(Reverse *r, const Value *model, Value *start) {
    r->starts[r->state_count] = start;
    return r->state_inputs[r->state_count++] = add_input(&r->b, model);
}

static Status add_states(Backward *w, Reverse *r) {
    const Steps *s = &r->s;
    const Node *n = s->node;
    for (int i = 0; i < n->output_count; i++)
        if (has_dy(w, n, i) && !is_differentiable(n->outputs[i])) return no_gradient(n, n->outputs[i]);
    for (int i = 0; i < s->carried; i++) {
        Value *model = s->body->inputs.items[s->lead + i];
        r->states[i] = -1;
        if (!is_differentiable(model)) continue;
        r->states[i] = r->state_count;
        bool given = i < n->output_count && n->outputs[i] && has_dy(w, n, i);
        Value *last = can_be_stacked(s, i) ? n->inputs[s->first + i] : last_value(w->l, s, i); /* of its shape */
        Value *start = gradient_as(w->l, given ? dy(w, n, i) : zeros_like(w->l, last), model);
        set_type(w->l, s, i, add_state(r, model, start));
    }
    r->first_sum = r->state_count;
    for (int i = n->input_count - n->captures; i < n->input_count; i++) {
        if (!wants(w, n, i)) continue;
        if (!is_differentiable(n->inputs[i])) return no_gradient(n, n->inputs[i]);
        add_state(r, n->inputs[i], zeros_like(w->l, n->inputs[i]));
    }
    return taken_error(w->l);
}

/* Forward slices, stacked values and gradients of stacked results, all from the last step to the first. */
static void add_slices(Reverse *r) {
    const Steps *s = &r->s;
    const Node *n = s->node;
    int scanned = s->lead + s->carried;
    for (int i = 0; i < s->scanned; i++)
        add_slice(&r->slices, add_same(&r->b, s->body->inputs.items[scanned + i]), n->inputs[s->first + s->carried + i],
                  NULL, s->in_axes[i], !s->in_directions[i]);
    for (int i = 0; i < s->lead + s->carried; i++) {
        Value *input = s->body->inputs.items[i];
        if (s->loop && i == 1)
            map_set_id(&r->b.values, MAP_POINTER_KEY(input), true_for(&r->b, input)); /* the step was taken */
        else
            add_slice(&r->slices, add_same(&r->b, input), NULL, input, 0, true);
    }
}

/* ---- what steps begin with and cannot be stacked ---- */

static bool is_step(const Node *node, const char *op) {
    return node->kind == NODE_HOST && node->host == ops_host_named(op);
}

static bool has_known_sizes(const Value *element) {
    if (element->kind != VALUE_TENSOR || element->rank < 0) return false;
    for (int i = 0; i < element->rank; i++)
        if (!dim_is_const(element->dims[i], NULL)) return false;
    return true;
}

/* Reads of a container that need none of it but one number: how long it is, or whether it holds something. */
static bool asks_number(const Node *node) {
    return is_step(node, "SequenceLength") || is_step(node, "OptionalHasElement");
}

/* Whether nothing of the sequence or optional is read but such numbers, and tensors that it holds. */
static bool is_read_apart(const Value *container) {
    for (int i = 0; i < container->uses.count; i++) {
        const Node *node = container->uses.items[i].node;
        bool element = (is_step(node, "SequenceAt") || is_step(node, "OptionalGetElement")) &&
                       node->outputs[0]->kind == VALUE_TENSOR;
        if (!element && !asks_number(node)) return false;
    }
    return !value_is_output(container);
}

static Node *behind(const Steps *s, const Value *value) {
    return value->producer ? value->producer->next : s->body->first;
}

/* In the forward body, before all other readers: what changes the container in place has to be the last. */
static Value *number_of(const Steps *s, Value *container) {
    bool optional = value_kind_is_optional(container->kind);
    for (int i = 0; i < container->uses.count; i++)
        if (asks_number(container->uses.items[i].node)) return container->uses.items[i].node->outputs[0];
    const char *op = optional ? "OptionalHasElement" : "SequenceLength";
    Node *node = sequence_step(s->body, behind(s, container), op, &container, 1);
    node->origin = s->node->origin;
    return node_add_output(node, NULL, optional ? DT_BOOL : DT_I64, 0, NULL);
}

static Value *forward_of(const Reverse *r, const Value *copy) {
    FOR_EACH_NODE(node, r->s.body)
    if (node->output_count && node->outputs[0] && now(&r->b, node->outputs[0]) == copy) return node->outputs[0];
    return NULL;
}

/* What a step of the forward node has made, as it is stacked. */
static Value *slice_of(Reverse *r, Value *saved) {
    for (int i = 0; i < r->slices.count; i++)
        if (r->slices.saved[i] == saved) return r->slices.inner[i];
    Value *slice = add_input(&r->b, saved);
    add_slice(&r->slices, slice, NULL, saved, 0, true);
    return slice;
}

static Value *capture(Reverse *r, Value *outer) {
    Value *inner = add_input(&r->b, outer);
    VEC_PUSH(r->b.graph->arena, r->captures, (Capture){.inner = inner, .outer = outer});
    return inner;
}

/* The step's number in the forward node. */
static Value *step_number(Lowering *l, Reverse *r) {
    if (r->s.loop) return slice_of(r, r->s.body->inputs.items[0]);
    if (r->number) return r->number;
    const Dim *count = step_count(l, &r->s);
    Value *numbers = iota(l, &count, 1, 0, DT_I64);
    r->number = graph_add_input(r->b.graph, NULL, DT_I64, 0, NULL);
    add_slice(&r->slices, r->number, numbers, NULL, 0, true);
    return r->number;
}

/* Computes what a step has of what all steps have, before all else in the backward body, but for its first input. */
static Value *found_again(Lowering *l, Reverse *r, const char *op, Value *const *inputs, int count, const Value *like) {
    Node *made = inputs[0]->producer, *before = made ? made->next : r->b.graph->first;
    Node *node = sequence_step(r->b.graph, before, op, inputs, count);
    node->origin = r->s.node->origin;
    node->backward = true;
    return result_like(l, node, like);
}

/* A tensor whose size differs between steps is kept as an element of a sequence, if what reads it, or has its sizes, stays. */
static Value *element_of(Lowering *l, Reverse *r, Value *saved, const Value *like) {
    ItemType type = item_type_held(l, item_type_of(saved), VALUE_SEQUENCE);
    Value *all = graph_add_input(r->b.graph, NULL, DT_NONE, -1, NULL);
    item_type_set(l, all, &type);
    VEC_PUSH(r->b.graph->arena, r->captures, (Capture){.inner = all, .saved = saved});
    return found_again(l, r, "SequenceAt", (Value *[]){all, step_number(l, r)}, 2, like);
}

/* In the forward body: the sequence of what the value holds, or of it alone. */
static Value *as_sequence(Lowering *l, const Steps *s, const char *op, Value *value) {
    Node *node = sequence_step(s->body, behind(s, value), op, &value, 1);
    node->origin = s->node->origin;
    ItemType type = item_type_held(l, item_type_of(value), VALUE_SEQUENCE);
    return item_result(l, node, &type);
}

static void replace(Reverse *r, Value *value, Value *found) {
    if (found) value_replace(r->b.graph, value, found);
}

static void read_apart(Lowering *l, Reverse *r, Value *container, const Value *inner) {
    while (inner->uses.count && !l->error) {
        Node *node = inner->uses.items[0].node;
        Value *result = node->outputs[0];
        Value *saved = asks_number(node) ? number_of(&r->s, container) : forward_of(r, result);
        replace(r, result, has_known_sizes(result) ? slice_of(r, saved) : element_of(l, r, saved, result));
        graph_remove_node(r->b.graph, node);
    }
}

/* A step's part of `all`, which holds as many elements for each as `saved` had there. */
static Value *sequence_of(Lowering *l, Reverse *r, Value *all, Value *saved) {
    Value *lengths = stack(l, &r->s, number_of(&r->s, saved));
    Value *inputs[] = {capture(r, all), capture(r, lengths), step_number(l, r)};
    return found_again(l, r, "SequenceOfIteration", inputs, 3, saved);
}

/* The sequence or optional with which a step began. */
static Value *container_of(Lowering *l, Reverse *r, Value *carried) {
    if (carried->kind == VALUE_SEQUENCE) return sequence_of(l, r, stack(l, &r->s, carried), carried);
    Value *held = as_sequence(l, &r->s, "OptionalItems", carried), *has = slice_of(r, number_of(&r->s, carried));
    Value *inputs[] = {sequence_of(l, r, stack(l, &r->s, held), held), has};
    return found_again(l, r, "OptionalOfItems", inputs, 2, carried);
}

/* Its sizes are those of what is found in its place. */
static void drop_input(Graph *graph, const Value *input) {
    int kept = 0;
    for (int i = 0; i < graph->inputs.count; i++)
        if (graph->inputs.items[i] != input) graph->inputs.items[kept++] = graph->inputs.items[i];
    graph->inputs.count = kept;
}

static void read_unstacked(Lowering *l, Reverse *r) {
    for (int i = 0; i < r->s.carried && !l->error; i++) {
        Value *carried = r->s.body->inputs.items[r->s.lead + i], *inner = now(&r->b, carried);
        if (can_be_stacked(&r->s, i)) continue;
        if (carried->kind == VALUE_TENSOR) {
            drop_input(r->b.graph, inner);
            replace(r, inner, element_of(l, r, carried, inner));
        } else if (!value_is_read(inner))
            continue;
        else if (is_read_apart(inner))
            read_apart(l, r, carried, inner);
        else
            replace(r, inner, container_of(l, r, carried));
    }
    graph_prune(r->b.graph); /* positions of elements */
}

/* ---- what steps have drawn, where no operator draws the same numbers again (lowers_to_standard) ---- */

typedef struct Outside {
    const Node *node;
    bool all;
} Outside;

static void look_outside(int symbol, void *context) {
    Outside *o = context;
    bool found = false;
    for (int i = 0; i < o->node->input_count && !found; i++)
        for (int axis = 0; o->node->inputs[i] && axis < o->node->inputs[i]->rank && !found; axis++)
            found = dim_symbol_index(o->node->inputs[i]->dims[axis]) == symbol;
    o->all &= found;
}

/* Whether the tensor's sizes follow from those of what the node reads, which no step changes. */
static bool has_sizes_of_inputs(const Node *n, const Value *value) {
    Outside outside = {n, value->kind == VALUE_TENSOR};
    for (int i = 0; i < value->rank; i++) dim_each_symbol(value->dims[i], look_outside, &outside);
    return outside.all;
}

/* The first values made of a drawn one that the model names are kept of the forward steps: these the written model has. */
static void keep_drawn(Lowering *l, Reverse *r, Value *value, Map *seen) {
    Value *saved = forward_of(r, value);
    if (!saved || map_get_id(seen, MAP_POINTER_KEY(value))) return; /* a gradient has no forward value */
    map_set_id(seen, MAP_POINTER_KEY(value), value);
    if (saved->stands_for) {
        replace(r, value, has_sizes_of_inputs(r->s.node, saved) ? slice_of(r, saved) : element_of(l, r, saved, value));
        return;
    }
    for (int i = 0; i < value->uses.count; i++) {
        const Node *reader = value->uses.items[i].node;
        for (int k = 0; k < reader->output_count; k++)
            if (reader->outputs[k]) keep_drawn(l, r, reader->outputs[k], seen);
    }
}

static void keep_draws(Lowering *l, Reverse *r) {
    if (!lowers_to_standard(l)) return;
    Map seen = map_make(l->arena);
    FOR_EACH_NODE(node, r->b.graph)
    if (node->kind == NODE_PRIM && node->prim == PRIM_PHILOX) keep_drawn(l, r, node->outputs[0], &seen);
}

/* ---- what the backward Scan is made of ---- */

static void add_seeds(Backward *w, Reverse *r) {
    const Steps *s = &r->s;
    const Node *n = s->node;
    for (int i = 0; i < s->carried; i++)
        if (r->states[i] >= 0 && is_computed(body_result(s, i)))
            ask_for(&r->b, now(&r->b, body_result(s, i)), r->state_inputs[r->states[i]]);
    for (int i = 0, sum = r->first_sum; i < n->captures; i++) /* so the body adds to the sum */
        if (wants(w, n, n->input_count - n->captures + i))
            ask_for(&r->b, now(&r->b, s->body->inputs.items[s->body->inputs.count - n->captures + i]),
                    r->state_inputs[sum++]);
    for (int i = 0; i < s->stacked; i++) {
        Value *result = body_result(s, s->carried + i);
        bool given = s->carried + i < n->output_count && n->outputs[s->carried + i] && has_dy(w, n, s->carried + i);
        if (!given || !is_computed(result)) continue;
        if (result->kind == VALUE_SEQUENCE) {
            ask_for(&r->b, now(&r->b, result), sequence_of(w->l, r, dy(w, n, s->carried + i), result));
            continue;
        }
        Value *slice = add_input(&r->b, result);
        add_slice(&r->slices, slice, dy(w, n, s->carried + i), NULL, s->loop ? 0 : s->out_axes[i],
                  s->loop || !s->out_directions[i]);
        ask_for(&r->b, now(&r->b, result), slice);
    }
}

/* What the body's gradients are asked of: carried floats, wanted captures, wanted slices. */
static void add_targets(Backward *w, Reverse *r) {
    const Steps *s = &r->s;
    const Node *n = s->node;
    Body *b = &r->b;
    int own = n->input_count - n->captures;
    for (int i = 0; i < s->carried; i++)
        if (r->states[i] >= 0) b->of[b->of_count++] = now(b, s->body->inputs.items[s->lead + i]);
    for (int i = 0; i < n->captures; i++)
        if (wants(w, n, own + i))
            b->of[b->of_count++] = now(b, s->body->inputs.items[s->lead + s->carried + s->scanned + i]);
    for (int i = 0; i < s->scanned; i++)
        if (wants(w, n, s->first + s->carried + i))
            b->of[b->of_count++] = now(b, s->body->inputs.items[s->lead + s->carried + i]);
}

/* Leaves out the slices that nothing reads, but for one: it says how many steps there are. */
static void drop_unread(Lowering *l, Reverse *r) {
    Slices *s = &r->slices;
    int kept = 0, least = 0;
    for (int i = 0; i < s->count; i++) least += value_is_read(s->inner[i]);
    for (int i = 0; i < s->count; i++) {
        if (!value_is_read(s->inner[i]) && (least || kept)) continue;
        s->inner[kept] = s->inner[i];
        s->outer[kept] = s->outer[i];
        s->saved[kept] = s->saved[i];
        s->axes[kept] = s->axes[i];
        s->directions[kept++] = s->directions[i];
    }
    s->count = kept;
    for (int i = 0; i < kept && !l->error; i++) {
        if (!s->outer[i]) s->outer[i] = stack(l, &r->s, s->saved[i]);
    }
}

static void emit_scan(Backward *w, Reverse *r) {
    Lowering *l = w->l;
    const Node *n = r->s.node;
    const Slices *slices = &r->slices;
    int own = n->input_count - n->captures, count = 0, captures = 0;
    Graph *graph = r->b.graph;
    Value **inputs = ARENA_ARRAY(l->arena, Value *, r->state_count + slices->count + r->captures.count);
    graph->inputs.count = 0; /* in the Scan's order */
    for (int i = 0; i < r->state_count; i++) {
        VEC_PUSH(graph->arena, graph->inputs, r->state_inputs[i]);
        inputs[count++] = r->starts[i];
    }
    for (int i = 0; i < slices->count; i++) {
        VEC_PUSH(graph->arena, graph->inputs, slices->inner[i]);
        inputs[count++] = slices->outer[i];
    }
    for (int i = 0; i < r->captures.count; i++) {
        const Capture *c = &r->captures.items[i];
        if (!value_is_read(c->inner)) continue;
        VEC_PUSH(graph->arena, graph->inputs, c->inner);
        inputs[count++] = c->outer ? c->outer : stack(l, &r->s, as_sequence(l, &r->s, "SequenceConstruct", c->saved));
        captures++;
    }
    Node *node = backward_host(w, n, "Scan", NULL, inputs, count);
    if (!node) return;
    node->domain = "";
    node->captures = captures;
    node_add_subgraph(node, graph);
    int64_t *axes = ARENA_ARRAY(l->arena, int64_t, r->s.scanned),
            *directions = ARENA_ARRAY(l->arena, int64_t, r->s.scanned);
    int stacked = 0;
    for (int i = r->s.first; i < r->s.first + r->s.carried; i++)
        if (r->states[i - r->s.first] >= 0) {
            const Value *inner = r->s.body->inputs.items[r->s.lead + i - r->s.first];
            give(w, n, i, result_like(l, node, inner->kind == n->inputs[i]->kind ? n->inputs[i] : inner));
        }
    for (int i = own; i < n->input_count; i++)
        if (wants(w, n, i)) give(w, n, i, result_like(l, node, n->inputs[i]));
    for (int i = 0; i < r->s.scanned; i++) {
        int input = r->s.first + r->s.carried + i;
        if (!wants(w, n, input)) continue;
        axes[stacked] = r->s.in_axes[i];
        directions[stacked++] = !r->s.in_directions[i];
        give(w, n, input, host_result_like(l, node, n->inputs[input]));
    }
    node_set_int(node, "num_scan_inputs", slices->count);
    node_set_ints(node, "scan_input_axes", slices->axes, slices->count);
    node_set_ints(node, "scan_input_directions", slices->directions, slices->count);
    node_set_ints(node, "scan_output_axes", axes, stacked);
    node_set_ints(node, "scan_output_directions", directions, stacked);
}

static void back_steps(Backward *w, const Node *n) {
    Lowering *l = w->l;
    Steps s = steps_of(n);
    int inputs = s.body->inputs.count, most = inputs + s.stacked + s.body->node_count + 2 * s.carried;
    Reverse r = {.s = s, .b = body_of(l, s.body), .slices = slices_make(l->arena, most)};
    r.states = ARENA_ARRAY(l->arena, int, s.carried);
    r.state_inputs = ARENA_ARRAY(l->arena, Value *, inputs);
    r.starts = ARENA_ARRAY(l->arena, Value *, inputs);
    Status status = add_states(w, &r);
    if (!status) {
        add_slices(&r);
        for (int i = 0; i < n->captures; i++) {
            Value *inner = add_same(&r.b, s.body->inputs.items[inputs - n->captures + i]);
            VEC_PUSH(r.b.graph->arena, r.captures, (Capture){inner, n->inputs[n->input_count - n->captures + i], NULL});
        }
        copy_nodes(&r.b);
        add_seeds(w, &r);
        add_targets(w, &r);
        status = differentiate_body(l, &r.b);
    }
    if (status) {
        status_free(l->error);
        l->error = status;
        return;
    }
    for (int i = 0; i < r.b.of_count; i++) graph_add_output(r.b.graph, r.b.gradients[i]);
    graph_prune(r.b.graph);
    keep_draws(l, &r);
    read_unstacked(l, &r);
    drop_unread(l, &r);
    if (!l->error) emit_scan(w, &r);
}

/* ---- SequenceMap ---- */

/* A Loop over the elements: it carries sums, the gradients of what all elements share, and stacks those of elements to sequences. */
typedef struct Elements {
    const Node *node;
    Body b;
    Value *number;  /* of the element: the Loop's own input */
    Value **sums;   /* [node's inputs] in the body; NULL: none is wanted, or it gives elements */
    Value **inputs; /* of the Loop */
    int count, sum_count;
} Elements;

static bool gives_elements(const Node *n, int input) {
    return input < n->input_count - n->captures && n->inputs[input]->kind == VALUE_SEQUENCE;
}

static void add_sums(Backward *w, Elements *e) {
    const Node *n = e->node;
    for (int i = 0; i < n->input_count; i++) {
        if (!wants(w, n, i) || gives_elements(n, i)) continue;
        e->sums[i] = add_input(&e->b, e->b.forward->inputs.items[i]);
        e->inputs[e->count++] = zeros_like(w->l, n->inputs[i]);
        e->sum_count++;
    }
}

/* The forward body, run again. */
static void add_forward(Lowering *own, Elements *e) {
    const Node *n = e->node;
    for (int i = 0; i < n->input_count; i++) {
        Value *model = e->b.forward->inputs.items[i];
        Value *input = add_input(&e->b, gives_elements(n, i) ? n->inputs[i] : model);
        if (gives_elements(n, i))
            input = backward_step(own, "SequenceAt", model, (Value *const[]){input, e->number}, 2);
        map_set_id(&e->b.values, MAP_POINTER_KEY(model), input);
        e->inputs[e->count++] = n->inputs[i];
    }
    copy_nodes(&e->b);
}

static void add_gradients_of_results(Backward *w, Lowering *own, Elements *e) {
    const Node *n = e->node;
    for (int i = 0; i < n->output_count && !own->error; i++) {
        const Value *result = e->b.forward->outputs.items[i];
        if (!n->outputs[i] || !has_dy(w, n, i) || !is_computed(result)) continue;
        Value *y = now(&e->b, result), *all = add_input(&e->b, n->outputs[i]);
        Value *parts[] = {all, e->number, dims_value(own, (const Dim *const *)y->dims, y->rank)};
        ask_for(&e->b, y, backward_step(own, "SequenceElement", y, parts, 3));
        e->inputs[e->count++] = dy(w, n, i);
    }
}

/* In the order of the body's results: sums, then elements. */
static void add_wanted(Backward *w, Elements *e) {
    const Node *n = e->node;
    Body *b = &e->b;
    for (int i = 0; i < n->input_count; i++) {
        Value *x = now(b, b->forward->inputs.items[i]);
        if (!e->sums[i]) continue;
        ask_for(b, x, e->sums[i]); /* so the body adds to the sum */
        b->of[b->of_count++] = x;
    }
    for (int i = 0; i < n->input_count; i++)
        if (wants(w, n, i) && gives_elements(n, i)) b->of[b->of_count++] = now(b, b->forward->inputs.items[i]);
}

static void emit_loop(Backward *w, Elements *e) {
    Lowering *l = w->l, own = inside(l, e->b.graph);
    const Node *n = e->node;
    int result = 0;
    for (int i = 0; i < n->input_count; i++)
        if (e->sums[i]) graph_add_output(e->b.graph, e->b.gradients[result++]);
    for (int i = 0; i < n->input_count; i++)
        if (wants(w, n, i) && gives_elements(n, i))
            graph_add_output(e->b.graph,
                             backward_step(&own, "SequenceConstruct", n->inputs[i], &e->b.gradients[result++], 1));
    l->error = taken_error(&own);
    graph_prune(e->b.graph);
    Node *node = backward_host(w, n, "Loop", NULL, e->inputs, e->count);
    if (!node) return;
    node->captures = e->count - 2 - e->sum_count;
    node_set_int(node, "carried", e->sum_count);
    node_add_subgraph(node, e->b.graph);
    for (int i = 0; i < n->input_count; i++)
        if (e->sums[i]) give(w, n, i, result_like(l, node, n->inputs[i]));
    for (int i = 0; i < n->input_count; i++)
        if (wants(w, n, i) && gives_elements(n, i)) give(w, n, i, result_like(l, node, n->inputs[i]));
}

static void back_map(Backward *w, const Node *n) {
    Lowering *l = w->l;
    Elements e = {.node = n, .b = body_of(l, n->subgraphs[0]), .count = 2};
    e.inputs = ARENA_ARRAY(l->arena, Value *, 2 + 2 * n->input_count + n->output_count);
    e.sums = ARENA_ARRAY(l->arena, Value *, n->input_count);
    for (int i = 0; i < n->input_count; i++)
        if (wants(w, n, i) && !is_differentiable(n->inputs[i]) && !l->error) l->error = no_gradient(n, n->inputs[i]);
    if (l->error) return;
    e.inputs[0] = backward_step_of(l, "SequenceLength", DT_I64, n->inputs, 1); /* and no condition */
    e.number = graph_add_input(e.b.graph, NULL, DT_I64, 0, NULL);
    graph_add_output(e.b.graph, graph_add_input(e.b.graph, NULL, DT_BOOL, 0, NULL));
    Lowering own = inside(l, e.b.graph);
    add_sums(w, &e);
    add_forward(&own, &e);
    add_gradients_of_results(w, &own, &e);
    add_wanted(w, &e);
    if (!own.error) own.error = differentiate_body(l, &e.b);
    if (!l->error) l->error = taken_error(&own);
    if (!l->error) emit_loop(w, &e);
}

BackwardFn rule_of_control(const char *op) {
    if (strcmp(op, "If") == 0) return back_if;
    if (strcmp(op, "SequenceMap") == 0) return back_map;
    return strcmp(op, "Loop") == 0 || strcmp(op, "Scan") == 0 ? back_steps : NULL;
}
