/* SPDX-License-Identifier: Apache-2.0 */
/* Gradients of control flow (ops/control/control.c says what its nodes mean). Of an If: an If over the same condition, whose branches are the
 * forward ones with their gradients behind them. Of a Loop or Scan: a Scan backwards over the steps, whose body is the forward one, run
 * again from the values with which each step began, with its gradient behind it (Griewank and Walther, "Evaluating Derivatives", 2008, 4);
 * those values are stacked as further outputs of the forward node. */
#include "autodiff/rules.h"

#include "lowering/prune.h"
#include "lowering/sizes.h"
#include "lowering/subgraph.h"

static Status taken_error(Lowering *l) {
    Status status = l->error;
    l->error = NULL;
    return status;
}

static bool is_differentiable(const Value *value) {
    return value && value->kind == VALUE_TENSOR && value->rank >= 0 && dtype_is_float(value->dtype);
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
    int outputs = forward->outputs.count, inputs = forward->inputs.count;
    return (Body){.graph = graph_sub(l->graph, forward->name),
                  .forward = forward,
                  .values = map_make(l->arena),
                  .ys = ARENA_ARRAY(l->arena, Value *, outputs),
                  .seeds = ARENA_ARRAY(l->arena, Value *, outputs),
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
    for (int i = 0; i < b->y_count; i++) /* of the same sizes, which may be written in other symbols */
        if (is_differentiable(b->ys[i]))
            b->seeds[i] = reshape(&own, b->seeds[i], (const Dim *const *)b->ys[i]->dims, b->ys[i]->rank);
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
        Value *seed = add_input(&b, result);
        if (is_computed(result) || result->kind == VALUE_SEQUENCE) ask_for(&b, now(&b, result), seed);
    }
    TRY(differentiate_body(w->l, &b));
    for (int i = 0; i < b.of_count; i++) graph_add_output(b.graph, b.gradients[i]);
    *out_graph = b.graph;
    return NULL;
}

static void back_if(Backward *w, const Node *n) {
    Lowering *l = w->l;
    int first = n->input_count - n->captures, count = n->input_count;
    Value **inputs = ARENA_ARRAY(l->arena, Value *, n->input_count + n->output_count);
    for (int i = 0; i < n->input_count; i++) inputs[i] = n->inputs[i];
    for (int i = 0; i < n->output_count; i++)
        if (has_dy(w, n, i)) inputs[count++] = dy(w, n, i);
    for (int i = first; i < n->input_count; i++)
        if (wants(w, n, i) && !is_differentiable(n->inputs[i])) {
            unsupported(l, "the gradient of \"%s\", a sequence", n->inputs[i]->name);
            return;
        }
    Graph *branches[2];
    for (int i = 0; i < 2 && !l->error; i++) l->error = back_branch(w, n, n->subgraphs[i], &branches[i]);
    Node *node = backward_host(w, n, n->op, NULL, inputs, count);
    if (!node) return;
    node->captures = count - first;
    for (int i = 0; i < 2; i++) node_add_subgraph(node, branches[i]);
    for (int i = first; i < n->input_count; i++)
        if (wants(w, n, i)) give(w, n, i, host_result_like(l, node, n->inputs[i]));
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

/* A carried value can be stacked: it is a tensor, whose sizes stay as they are. Where lowering cannot tell, the run does, and refuses. */
static bool can_be_stacked(const Steps *s, int index) {
    const Value *inner = s->body->inputs.items[s->lead + index];
    return inner->kind == VALUE_TENSOR && s->node->inputs[s->first + index]->kind == VALUE_TENSOR;
}

/* What the backward Scan scans, and where from. */
typedef struct Slices {
    Value **inner, **outer; /* outer: NULL where the forward node is yet to stack what the body's input `saved` is */
    int *saved;
    int64_t *axes, *directions;
    int count;
} Slices;

static Slices slices_make(Arena *arena, int most) {
    return (Slices){ARENA_ARRAY(arena, Value *, most), ARENA_ARRAY(arena, Value *, most), ARENA_ARRAY(arena, int, most),
                    ARENA_ARRAY(arena, int64_t, most), ARENA_ARRAY(arena, int64_t, most), 0};
}

static void add_slice(Slices *s, Value *inner, Value *outer, int saved, int64_t axis, bool backwards) {
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
        if (n->outputs[i]) return n->outputs[i]->dims[0];
    return dim_fresh(l->dims, "iterations");
}

/* Makes the forward node stack its body's input `index`, along axis 0. */
static Value *stack(Lowering *l, const Steps *s, int index) {
    Node *node = (Node *)s->node; /* of the graph that is being differentiated */
    Value *input = s->body->inputs.items[index];
    const Dim *dims[MAX_RANK], *count = step_count(l, s);
    if (input->rank >= MAX_RANK) return unsupported(l, "a stack of more than %d axes", MAX_RANK), NULL;
    while (node->output_count < s->body->outputs.count - s->loop) node_attach_output(node, NULL);
    graph_add_output(s->body, input);
    dims[0] = count;
    for (int i = 0; i < input->rank; i++) dims[1 + i] = input->dims[i];
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
    return node_add_output(node, NULL, input->dtype, 1 + input->rank, dims);
}

static Value *true_for(Body *b, const Value *input) {
    int64_t one = 1;
    Tensor *tensor = tensor_new(b->graph->arena, DT_BOOL, input->rank, &one);
    *(bool *)tensor->data = true;
    return graph_add_constant(b->graph, NULL, tensor);
}

/* The parts of the backward Scan, in the order of its inputs: the gradients of carried values that are floats, the sums of those of captures,
 * slices, captures. */
typedef struct Reverse {
    Steps s;
    Body b;
    Slices slices;
    int *states;                    /* [carried]: the state that is the gradient of each; -1: none */
    Value **state_inputs, **starts; /* inside and outside */
    int state_count;
    int first_sum; /* of the states */
} Reverse;

static void add_state(Reverse *r, const Value *model, Value *start) {
    r->state_inputs[r->state_count] = add_input(&r->b, model);
    r->starts[r->state_count++] = start;
}

static Status add_states(Backward *w, Reverse *r) {
    const Steps *s = &r->s;
    const Node *n = s->node;
    for (int i = 0; i < n->output_count; i++)
        if (has_dy(w, n, i) && !is_differentiable(n->outputs[i]))
            return status_error(STATUS_UNSUPPORTED, "node \"%s\": the gradient of \"%s\", a sequence",
                                node_origin_name(n), n->outputs[i]->name);
    for (int i = 0; i < s->carried; i++) {
        Value *model = s->body->inputs.items[s->lead + i];
        r->states[i] = -1;
        if (!is_differentiable(model)) continue;
        if (!can_be_stacked(s, i))
            return status_error(STATUS_UNSUPPORTED,
                                "node \"%s\": the gradient of a %s whose carried value %d is no tensor",
                                node_origin_name(n), n->op, i);
        r->states[i] = r->state_count;
        bool given = i < n->output_count && n->outputs[i] && has_dy(w, n, i);
        add_state(r, model, given ? dy(w, n, i) : full_like(w->l, n->inputs[s->first + i], 0));
    }
    r->first_sum = r->state_count;
    for (int i = n->input_count - n->captures; i < n->input_count; i++) {
        if (!wants(w, n, i)) continue;
        if (!is_differentiable(n->inputs[i]))
            return status_error(STATUS_UNSUPPORTED, "node \"%s\": the gradient of \"%s\", a sequence",
                                node_origin_name(n), n->inputs[i]->name);
        add_state(r, n->inputs[i], full_like(w->l, n->inputs[i], 0));
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
                  -1, s->in_axes[i], !s->in_directions[i]);
    for (int i = 0; i < s->lead + s->carried; i++) {
        Value *input = s->body->inputs.items[i];
        if (s->loop && i == 1)
            map_set_id(&r->b.values, MAP_POINTER_KEY(input), true_for(&r->b, input)); /* the step was taken */
        else
            add_slice(&r->slices, add_same(&r->b, input), NULL, i, 0, true);
    }
}

static void add_seeds(Backward *w, Reverse *r) {
    const Steps *s = &r->s;
    const Node *n = s->node;
    for (int i = 0; i < s->carried; i++)
        if (r->states[i] >= 0 && is_computed(body_result(s, i)))
            ask_for(&r->b, now(&r->b, body_result(s, i)), r->state_inputs[r->states[i]]);
    for (int i = 0; i < s->stacked; i++) {
        const Value *result = body_result(s, s->carried + i);
        bool given = s->carried + i < n->output_count && n->outputs[s->carried + i] && has_dy(w, n, s->carried + i);
        if (!given || !is_computed(result)) continue;
        Value *slice = add_input(&r->b, result);
        add_slice(&r->slices, slice, dy(w, n, s->carried + i), -1, s->loop ? 0 : s->out_axes[i],
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

static void add_outputs(Backward *w, Reverse *r) {
    Lowering own = inside(w->l, r->b.graph);
    for (int i = 0; i < r->b.of_count; i++) {
        Value *g = r->b.gradients[i];
        if (i >= r->first_sum && i < r->state_count) g = add(&own, r->state_inputs[i], g);
        if (g) graph_add_output(r->b.graph, g);
    }
    if (own.error) w->l->error = own.error;
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
        int saved = s->saved[i];
        if (s->outer[i]) continue;
        if (saved >= r->s.lead && !can_be_stacked(&r->s, saved - r->s.lead))
            unsupported(l, "a carried value that is no tensor");
        else
            s->outer[i] = stack(l, &r->s, saved);
    }
}

static void emit_scan(Backward *w, Reverse *r) {
    Lowering *l = w->l;
    const Node *n = r->s.node;
    const Slices *slices = &r->slices;
    int own = n->input_count - n->captures, before = r->s.lead + r->s.carried + r->s.scanned, count = 0, captures = 0;
    Graph *graph = r->b.graph;
    Value **inputs = ARENA_ARRAY(l->arena, Value *, r->state_count + slices->count + n->captures);
    graph->inputs.count = 0; /* in the Scan's order */
    for (int i = 0; i < r->state_count; i++) {
        VEC_PUSH(graph->arena, graph->inputs, r->state_inputs[i]);
        inputs[count++] = r->starts[i];
    }
    for (int i = 0; i < slices->count; i++) {
        VEC_PUSH(graph->arena, graph->inputs, slices->inner[i]);
        inputs[count++] = slices->outer[i];
    }
    for (int i = 0; i < n->captures; i++) {
        Value *input = now(&r->b, r->s.body->inputs.items[before + i]);
        if (!value_is_read(input)) continue;
        VEC_PUSH(graph->arena, graph->inputs, input);
        inputs[count++] = n->inputs[own + i];
        captures++;
    }
    Node *node = backward_host(w, n, "Scan", NULL, inputs, count);
    if (!node) return;
    node->domain = "";
    node->captures = captures;
    node_add_subgraph(node, graph);
    int64_t *axes = ARENA_ARRAY(l->arena, int64_t, r->s.scanned),
            *directions = ARENA_ARRAY(l->arena, int64_t, r->s.scanned);
    int stacked = 0, state = 0;
    for (int i = 0; i < r->s.carried; i++) {
        if (r->states[i] < 0) continue;
        give(w, n, r->s.first + i, host_result_like(l, node, r->starts[state++]));
    }
    for (int i = own; i < n->input_count; i++)
        if (wants(w, n, i)) give(w, n, i, host_result_like(l, node, r->starts[state++]));
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
    int inputs = s.body->inputs.count, most = inputs + s.stacked;
    Reverse r = {.s = s, .b = body_of(l, s.body), .slices = slices_make(l->arena, most)};
    r.states = ARENA_ARRAY(l->arena, int, s.carried);
    r.state_inputs = ARENA_ARRAY(l->arena, Value *, inputs);
    r.starts = ARENA_ARRAY(l->arena, Value *, inputs);
    Status status = add_states(w, &r);
    if (!status) {
        add_slices(&r);
        for (int i = inputs - n->captures; i < inputs; i++) add_same(&r.b, s.body->inputs.items[i]);
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
    add_outputs(w, &r);
    if (l->error) return;
    graph_prune(r.b.graph);
    drop_unread(l, &r);
    if (!l->error) emit_scan(w, &r);
}

BackwardFn rule_of_control(const char *op) {
    if (strcmp(op, "If") == 0) return back_if;
    return strcmp(op, "Loop") == 0 || strcmp(op, "Scan") == 0 ? back_steps : NULL;
}
