/* SPDX-License-Identifier: Apache-2.0 */
/* Control flow: If, Loop, Scan and SequenceMap as runs of nested plans. What each means in terms of inputs and outputs
 * stands at the head of ops/control/control.c. */
#include "runtime/run/run.h"

#include <inttypes.h>

/* Tensors that are stacked to one when the last iteration is over. */
typedef struct Stack {
    VEC(Item) parts; /* own their memory */
} Stack;

/* Everything that a run of the operator owns until it hands it over stands in these lists, so that it is freed whatever
 * ends the run: an error, a cancellation, or an arena that runs out and unwinds to run_control. */
typedef struct Control {
    const Step *step;
    const Node *node;
    const Plan *body;
    Run *run;
    const int64_t *symbols;
    const Item *const *inputs;
    Item *const *given_up;       /* [inputs]: what nobody reads after the operator; else NULL */
    int captures, first_capture; /* of the node's inputs */
    Arena *arena;
    Item *carried, *slices; /* from one iteration to the next; of scan inputs */
    Stack *stacks;
    RunOutput *made; /* of the latest iteration */
    int carried_count, slice_count, stack_count, made_count;
} Control;

static Status control_error(const Control *c, const char *what) {
    return status_error(STATUS_INVALID, "node \"%s\" (%s): %s", node_origin_name(c->node), c->node->op, what);
}

static void free_outputs(Control *c, RunOutput *outputs, int count) {
    for (int i = 0; i < count; i++) item_free(c->run->memory, &outputs[i].item);
}

static void make_lists(Control *c, int carried, int slices, int stacks, int made) {
    c->carried = ARENA_ARRAY(c->arena, Item, carried);
    c->slices = ARENA_ARRAY(c->arena, Item, slices);
    c->stacks = ARENA_ARRAY(c->arena, Stack, stacks);
    c->made = ARENA_ARRAY(c->arena, RunOutput, made);
    c->carried_count = carried; /* once all stand */
    c->slice_count = slices;
    c->stack_count = stacks;
    c->made_count = made;
}

static void free_lists(Control *c) {
    Memory *memory = c->run->memory;
    for (int i = 0; i < c->carried_count; i++) item_free(memory, &c->carried[i]);
    for (int i = 0; i < c->slice_count; i++) item_free(memory, &c->slices[i]);
    for (int i = 0; i < c->stack_count; i++)
        for (int k = 0; k < c->stacks[i].parts.count; k++) item_free(memory, &c->stacks[i].parts.items[k]);
    free_outputs(c, c->made, c->made_count);
}

/* The item changes hands. */
static void move(Item *from, Item *to) {
    *to = *from;
    *from = (Item){.kind = ITEM_NONE};
}

/* The first value of one that is carried. */
static Status carry(Control *c, int input, Item *to) {
    if (!c->given_up[input]) return item_copy(c->run->memory, c->inputs[input], to);
    move(c->given_up[input], to);
    return NULL;
}

/* What an iteration has made of carried values takes their place; the others go on the stacks. */
static void keep_made(Control *c, int first) {
    for (int i = 0; i < c->carried_count; i++) {
        item_free(c->run->memory, &c->carried[i]);
        move(&c->made[first + i].item, &c->carried[i]);
    }
    for (int i = 0; i < c->stack_count; i++) {
        Item *part = &c->made[first + c->carried_count + i].item;
        VEC_PUSH(c->arena, c->stacks[i].parts, *part);
        *part = (Item){.kind = ITEM_NONE}; /* not before the list has it */
    }
}

static void hand_over_carried(Control *c, RunOutput *outputs) {
    for (int i = 0; i < c->carried_count && i < c->node->output_count; i++) move(&c->carried[i], &outputs[i].item);
}

static Status read_bool(const Control *c, const Item *item, bool *out_value) {
    if (!item || item->kind != ITEM_TENSOR || item->tensor.dtype != DT_BOOL || tensor_count(&item->tensor) != 1)
        return control_error(c, "the condition is not one bool");
    *out_value = *(const uint8_t *)item->tensor.data != 0;
    return NULL;
}

/* --- stacking scan values
 * --------------------------------------------------------------------------------------------- */
/* A tensor whose strings are another's gets characters of its own. */
static Status own_strings(Control *c, Item *item) {
    if (item->tensor.dtype != DT_STRING) return NULL;
    Item borrowed = *item;
    Status status = item_copy(c->run->memory, &borrowed, item);
    item_free(c->run->memory, &borrowed);
    return status;
}

/* All elements of all parts, sequences, one behind the other. */
static Status join_sequences(Control *c, Stack *stack, Item *out_item) {
    size_t count = 0;
    void *items;
    for (int i = 0; i < stack->parts.count; i++) count += (size_t)stack->parts.items[i].count;
    if (count > INT32_MAX) return control_error(c, "its sequences have too many elements");
    TRY(memory_alloc(c->run->memory, sizeof(Item) * count, &items));
    *out_item = (Item){.kind = ITEM_SEQUENCE, .items = items};
    for (int i = 0; i < stack->parts.count; i++)
        for (int k = 0; k < stack->parts.items[i].count; k++)
            move(&stack->parts.items[i].items[k], &out_item->items[out_item->count++]);
    return NULL;
}

/* All parts along a new axis; `empty` gives dtype and dims when there are none. */
static Status join_stack(Control *c, Stack *stack, const Value *empty, int axis, bool backward, Item *out_item) {
    if (empty->kind == VALUE_SEQUENCE) return join_sequences(c, stack, out_item);
    int count = stack->parts.count;
    Tensor shape = {.dtype = empty->dtype, .rank = empty->rank < 0 ? 0 : empty->rank};
    if (count) {
        shape = stack->parts.items[0].tensor;
    } else {
        for (int d = 0; d < shape.rank; d++) {
            int64_t size = dim_eval(empty->dims[d], c->symbols);
            shape.dims[d] = size == UNBOUND_DIM ? 0 : size;
        }
    }
    for (int i = 1; i < count; i++)
        if (!tensor_same_shape(&shape, &stack->parts.items[i].tensor))
            return control_error(c, "a scan output changes its shape");
    if (shape.rank + 1 > MAX_RANK || axis > shape.rank) return control_error(c, "a scan output has too many axes");
    int64_t dims[MAX_RANK], outer = 1;
    for (int d = 0; d < axis; d++) outer *= dims[d] = shape.dims[d];
    dims[axis] = count;
    for (int d = axis; d < shape.rank; d++) dims[d + 1] = shape.dims[d];
    TRY(item_new_tensor(c->run->memory, shape.dtype, shape.rank + 1, dims, out_item));
    size_t row = outer ? tensor_bytes(&shape) / (size_t)outer : 0;
    char *to = out_item->tensor.data;
    for (int64_t o = 0; o < outer; o++)
        for (int i = 0; i < count; i++, to += row)
            if (row)
                memcpy(to, (const char *)stack->parts.items[backward ? count - 1 - i : i].tensor.data + (size_t)o * row,
                       row);
    return own_strings(c, out_item);
}

/* --- the four operators
 * ------------------------------------------------------------------------------------------------- */
static Status run_if(Control *c, RunOutput *outputs) {
    bool condition;
    TRY(read_bool(c, c->inputs[0], &condition));
    const Plan *branch = c->step->nested[condition ? 0 : 1];
    int count = branch->graph->outputs.count;
    make_lists(c, 0, 0, 0, count);
    TRY(plan_run_taking(branch, c->run, c->symbols, c->inputs + c->first_capture, c->given_up + c->first_capture,
                        c->made));
    for (int i = 0; i < count && i < c->node->output_count; i++) move(&c->made[i].item, &outputs[i].item);
    return NULL;
}

static Status loop_body(Control *c, const Item **body, Item **given_up, int64_t iteration, bool *condition) {
    const Graph *graph = c->body->graph;
    int64_t one[MAX_RANK];
    for (int i = 0; i < MAX_RANK; i++) one[i] = 1;
    uint8_t flag = *condition;
    Item counter = {.kind = ITEM_TENSOR,
                    .tensor = {.dtype = DT_I64, .rank = graph->inputs.items[0]->rank, .data = &iteration}};
    Item test = {.kind = ITEM_TENSOR,
                 .tensor = {.dtype = DT_BOOL, .rank = graph->inputs.items[1]->rank, .data = &flag}};
    memcpy(counter.tensor.dims, one, sizeof one);
    memcpy(test.tensor.dims, one, sizeof one);
    int n = c->carried_count;
    body[0] = &counter;
    body[1] = &test;
    for (int i = 0; i < n; i++) body[2 + i] = c->carried[i].kind == ITEM_NONE ? NULL : &c->carried[i];
    for (int i = 0; i < c->captures; i++) body[2 + n + i] = c->inputs[c->first_capture + i];
    memset(c->made, 0, sizeof *c->made * (size_t)c->made_count);
    TRY(plan_run_taking(c->body, c->run, c->symbols, body, given_up, c->made));
    Status status = read_bool(c, &c->made[0].item, condition);
    item_free(c->run->memory, &c->made[0].item);
    keep_made(c, 1);
    return status;
}

/* After the first iteration of a loop that its condition cannot end: scan outputs for which there is no memory are
 * refused before the work, which might take years. */
static Status check_stacks(const Control *c, int64_t trips) {
    const Graph *graph = c->body->graph;
    size_t bytes = 0, limit = c->run->memory ? c->run->memory->limit : SIZE_MAX;
    if (graph->outputs.items[0] != graph->inputs.items[1]) return NULL;
    for (int i = 0; i < c->stack_count; i++) {
        const Item *part = &c->stacks[i].parts.items[0];
        if (part->kind == ITEM_TENSOR) bytes += tensor_bytes(&part->tensor);
    }
    if (!bytes || (uint64_t)trips <= limit / bytes) return NULL;
    return status_error(STATUS_FAULT,
                        "node \"%s\" (%s): out of memory: %" PRId64
                        " iterations with scan outputs of %zu bytes each are asked for, limit %zu",
                        node_origin_name(c->node), c->node->op, trips, bytes, limit);
}

static Status loop_iterations(Control *c) {
    int64_t trips = INT64_MAX;
    bool condition = true;
    int inputs = 2 + c->carried_count + c->captures;
    const Item **body = ARENA_ARRAY(c->arena, const Item *, inputs);
    Item **given_up = ARENA_ARRAY(c->arena, Item *, inputs); /* what is carried: each iteration makes it anew */
    for (int i = 0; i < c->carried_count; i++) given_up[2 + i] = &c->carried[i];
    if (c->inputs[0]) {
        const Tensor *t = &c->inputs[0]->tensor;
        if (tensor_count(t) != 1) return control_error(c, "the trip count is not one number");
        trips = dtype_load_int(t->dtype, t->data, 0);
    }
    if (c->inputs[1]) TRY(read_bool(c, c->inputs[1], &condition));
    for (int i = 0; i < c->carried_count; i++)
        if (c->inputs[2 + i]) TRY(carry(c, 2 + i, &c->carried[i]));
    for (int64_t i = 0; i < trips && condition; i++) {
        TRY(loop_body(c, body, given_up, i, &condition));
        if (i == 0) TRY(check_stacks(c, trips));
    }
    return NULL;
}

static Status run_loop(Control *c, RunOutput *outputs) {
    int n = (int)attr_int(c->node, "carried", 0), k = c->body->graph->outputs.count - 1 - n;
    make_lists(c, n, 0, k, 1 + n + k);
    TRY(loop_iterations(c));
    for (int i = 0; i < k; i++)
        if (n + i < c->node->output_count && c->node->outputs[n + i])
            TRY(join_stack(c, &c->stacks[i], c->body->graph->outputs.items[1 + n + i], 0, false, &outputs[n + i].item));
    hand_over_carried(c, outputs);
    return NULL;
}

/* The slice [.., index, ..] of a tensor along an axis, copied. */
static Status take_slice(Control *c, const Tensor *from, int axis, int64_t index, Item *out_item) {
    int64_t dims[MAX_RANK], outer = 1;
    for (int d = 0, r = 0; d < from->rank; d++) {
        if (d < axis) outer *= from->dims[d];
        if (d != axis) dims[r++] = from->dims[d];
    }
    TRY(item_new_tensor(c->run->memory, from->dtype, from->rank - 1, dims, out_item));
    size_t row = outer ? tensor_bytes(&out_item->tensor) / (size_t)outer : 0;
    for (int64_t o = 0; o < outer && row; o++)
        memcpy((char *)out_item->tensor.data + (size_t)o * row,
               (const char *)from->data + (size_t)(o * from->dims[axis] + index) * row, row);
    return own_strings(c, out_item);
}

typedef struct ScanState {
    int states, scans;
    const int64_t *in_axes, *in_back, *out_axes, *out_back;
    const Item **body;
    Item **given_up; /* of the body: its states, which each step makes anew */
    int64_t steps;
} ScanState;

static Status scan_step(Control *c, ScanState *s, int64_t t) {
    for (int i = 0; i < s->scans; i++) {
        const Tensor *from = &c->inputs[s->states + i]->tensor;
        TRY(take_slice(c, from, (int)s->in_axes[i], s->in_back[i] ? s->steps - 1 - t : t, &c->slices[i]));
        s->body[s->states + i] = &c->slices[i];
    }
    for (int i = 0; i < s->states; i++) s->body[i] = &c->carried[i];
    for (int i = 0; i < c->captures; i++) s->body[s->states + s->scans + i] = c->inputs[c->first_capture + i];
    memset(c->made, 0, sizeof *c->made * (size_t)c->made_count);
    TRY(plan_run_taking(c->body, c->run, c->symbols, s->body, s->given_up, c->made));
    keep_made(c, 0);
    for (int i = 0; i < s->scans; i++) item_free(c->run->memory, &c->slices[i]);
    return NULL;
}

static Status scan_steps(Control *c, ScanState *s) {
    for (int i = 0; i < s->scans; i++) {
        const Item *item = c->inputs[s->states + i];
        if (!item || item->kind != ITEM_TENSOR || s->in_axes[i] >= item->tensor.rank)
            return control_error(c, "a scan input is missing or has too few axes");
        int64_t size = item->tensor.dims[s->in_axes[i]];
        if (i && size != s->steps) return control_error(c, "scan inputs differ in length");
        s->steps = size;
    }
    for (int i = 0; i < s->states; i++) {
        if (!c->inputs[i]) return control_error(c, "a state has no initial value");
        TRY(carry(c, i, &c->carried[i]));
        s->given_up[i] = &c->carried[i];
    }
    for (int64_t t = 0; t < s->steps; t++) TRY(scan_step(c, s, t));
    return NULL;
}

static Status run_scan(Control *c, RunOutput *outputs) {
    int scans = (int)attr_int(c->node, "num_scan_inputs", 0), count = 0;
    ScanState s = {.scans = scans, .states = c->first_capture - scans};
    int values = c->body->graph->outputs.count - s.states;
    s.in_axes = attr_ints(c->node, "scan_input_axes", &count);
    s.in_back = attr_ints(c->node, "scan_input_directions", &count);
    s.out_axes = attr_ints(c->node, "scan_output_axes", &count);
    s.out_back = attr_ints(c->node, "scan_output_directions", &count);
    s.body = ARENA_ARRAY(c->arena, const Item *, s.states + scans + c->captures + 1);
    s.given_up = ARENA_ARRAY(c->arena, Item *, s.states + scans + c->captures + 1);
    make_lists(c, s.states, scans, values, s.states + values);
    TRY(scan_steps(c, &s));
    for (int i = 0; i < values; i++) {
        int o = s.states + i;
        if (o < c->node->output_count && c->node->outputs[o])
            TRY(join_stack(c, &c->stacks[i], c->body->graph->outputs.items[o], (int)s.out_axes[i], s.out_back[i] != 0,
                           &outputs[o].item));
    }
    hand_over_carried(c, outputs);
    return NULL;
}

static Status map_elements(Control *c, RunOutput *outputs, int length) {
    int results = c->body->graph->outputs.count, inputs = c->first_capture;
    const Item **body = ARENA_ARRAY(c->arena, const Item *, inputs + c->captures + 1);
    make_lists(c, 0, 0, 0, results);
    for (int o = 0; o < results && o < c->node->output_count; o++) {
        void *items;
        TRY(memory_alloc(c->run->memory, sizeof(Item) * (size_t)length, &items));
        outputs[o].item = (Item){.kind = ITEM_SEQUENCE, .items = items};
    }
    for (int e = 0; e < length; e++) {
        for (int i = 0; i < inputs; i++)
            body[i] = c->inputs[i]->kind == ITEM_SEQUENCE ? &c->inputs[i]->items[e] : c->inputs[i];
        for (int i = 0; i < c->captures; i++) body[inputs + i] = c->inputs[inputs + i];
        free_outputs(c, c->made, results); /* those that nobody asked for */
        memset(c->made, 0, sizeof *c->made * (size_t)results);
        TRY(plan_run(c->body, c->run, c->symbols, body, c->made));
        for (int o = 0; o < results && o < c->node->output_count; o++)
            move(&c->made[o].item, &outputs[o].item.items[outputs[o].item.count++]);
    }
    return NULL;
}

static Status run_sequence_map(Control *c, RunOutput *outputs) {
    int length = -1;
    for (int i = 0; i < c->first_capture; i++) {
        if (!c->inputs[i]) return control_error(c, "an input is missing");
        if (c->inputs[i]->kind != ITEM_SEQUENCE) continue;
        if (length >= 0 && c->inputs[i]->count != length) return control_error(c, "sequences differ in length");
        length = c->inputs[i]->count;
    }
    return map_elements(c, outputs, length < 0 ? 0 : length);
}

typedef Status (*Operator)(Control *c, RunOutput *outputs);

static Operator operator_of(const Node *node) {
    return strcmp(node->op, "If") == 0     ? run_if
           : strcmp(node->op, "Loop") == 0 ? run_loop
           : strcmp(node->op, "Scan") == 0 ? run_scan
                                           : run_sequence_map;
}

static Status run_guarded(Control *c, Operator run, RunOutput *outputs) {
    jmp_buf guard;
    if (setjmp(guard)) return status_out_of_memory();
    arena_guard(c->arena, &guard);
    return run(c, outputs);
}

Status run_control(const Step *step, Run *run, const int64_t *symbols, const Item *const *inputs, Item *const *given_up,
                   RunOutput *outputs) {
    const Node *node = step->node;
    Control c = {.step = step,
                 .node = node,
                 .body = step->nested[0],
                 .run = run,
                 .symbols = symbols,
                 .inputs = inputs,
                 .given_up = given_up,
                 .captures = node->captures,
                 .first_capture = node->input_count - node->captures,
                 .arena = arena_create(0)};
    if (!c.arena) return status_out_of_memory();
    Status status = run_guarded(&c, operator_of(node), outputs);
    free_lists(&c);
    if (status) free_outputs(&c, outputs, node->output_count);
    arena_destroy(c.arena);
    return status;
}
