/* Control flow: If, Loop, Scan and SequenceMap as runs of nested plans. What each means in terms of inputs and outputs
 * stands at the head of ops/control.c. */
#include "runtime/run/run.h"

typedef struct Control {
    const Step *step;
    const Node *node;
    const Plan *body;
    Run *run;
    const int64_t *symbols;
    const Item *const *inputs;
    int captures, first_capture; /* of the node's inputs */
    Arena *arena;
} Control;

static Status control_error(const Control *c, const char *what) {
    return status_error(STATUS_INVALID, "node \"%s\" (%s): %s", node_origin_name(c->node), c->node->op, what);
}

static void free_outputs(Control *c, RunOutput *outputs, int count) {
    for (int i = 0; i < count; i++) item_free(c->run->memory, &outputs[i].item);
}

static Status read_bool(const Control *c, const Item *item, bool *out_value) {
    if (!item || item->kind != ITEM_TENSOR || item->tensor.dtype != DT_BOOL || tensor_count(&item->tensor) != 1)
        return control_error(c, "the condition is not one bool");
    *out_value = *(const uint8_t *)item->tensor.data != 0;
    return NULL;
}

/* --- stacking scan values
 * --------------------------------------------------------------------------------------------- */
typedef struct Stack {
    VEC(Item) parts; /* tensors that own their memory */
} Stack;

static void free_stack(Control *c, Stack *stack) {
    for (int i = 0; i < stack->parts.count; i++) item_free(c->run->memory, &stack->parts.items[i]);
    stack->parts.count = 0;
}

/* A tensor whose strings are another's gets characters of its own. */
static Status own_strings(Control *c, Item *item) {
    if (item->tensor.dtype != DT_STRING) return NULL;
    Item borrowed = *item;
    Status status = item_copy(c->run->memory, &borrowed, item);
    item_free(c->run->memory, &borrowed);
    return status;
}

/* All parts along a new axis; `empty` gives dtype and dims when there are none. */
static Status join_stack(Control *c, const Stack *stack, const Value *empty, int axis, bool backward, Item *out_item) {
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
    RunOutput *made = ARENA_ARRAY(c->arena, RunOutput, count);
    TRY(plan_run(branch, c->run, c->symbols, c->inputs + c->first_capture, made));
    for (int i = 0; i < count; i++) {
        if (i < c->node->output_count)
            outputs[i].item = made[i].item;
        else
            item_free(c->run->memory, &made[i].item);
    }
    return NULL;
}

typedef struct LoopState {
    Item *carried; /* [N] owned */
    Stack *stacks; /* [K] */
    int n, k;
    RunOutput *made;   /* [1 + N + K] of the latest iteration */
    const Item **body; /* [2 + N + C] */
} LoopState;

static Status loop_body(Control *c, LoopState *l, int64_t iteration, bool *condition) {
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
    l->body[0] = &counter;
    l->body[1] = &test;
    for (int i = 0; i < l->n; i++) l->body[2 + i] = l->carried[i].kind == ITEM_NONE ? NULL : &l->carried[i];
    for (int i = 0; i < c->captures; i++) l->body[2 + l->n + i] = c->inputs[c->first_capture + i];
    memset(l->made, 0, sizeof *l->made * (size_t)(1 + l->n + l->k));
    TRY(plan_run(c->body, c->run, c->symbols, l->body, l->made));
    Status status = read_bool(c, &l->made[0].item, condition);
    item_free(c->run->memory, &l->made[0].item);
    for (int i = 0; i < l->n; i++) {
        item_free(c->run->memory, &l->carried[i]);
        l->carried[i] = l->made[1 + i].item;
    }
    for (int i = 0; i < l->k; i++) VEC_PUSH(c->arena, l->stacks[i].parts, l->made[1 + l->n + i].item);
    return status;
}

static Status loop_iterations(Control *c, LoopState *l) {
    int64_t trips = INT64_MAX;
    bool condition = true;
    if (c->inputs[0]) {
        const Tensor *t = &c->inputs[0]->tensor;
        if (tensor_count(t) != 1) return control_error(c, "the trip count is not one number");
        trips = dtype_load_int(t->dtype, t->data, 0);
    }
    if (c->inputs[1]) TRY(read_bool(c, c->inputs[1], &condition));
    for (int i = 0; i < l->n; i++)
        if (c->inputs[2 + i]) TRY(item_copy(c->run->memory, c->inputs[2 + i], &l->carried[i]));
    for (int64_t i = 0; i < trips && condition; i++) TRY(loop_body(c, l, i, &condition));
    return NULL;
}

static Status run_loop(Control *c, RunOutput *outputs) {
    int n = (int)attr_int(c->node, "carried", 0), k = c->body->graph->outputs.count - 1 - n;
    LoopState l = {.n = n, .k = k};
    l.carried = ARENA_ARRAY(c->arena, Item, n + 1);
    l.stacks = ARENA_ARRAY(c->arena, Stack, k + 1);
    l.made = ARENA_ARRAY(c->arena, RunOutput, 1 + n + k);
    l.body = ARENA_ARRAY(c->arena, const Item *, 2 + n + c->captures);
    Status status = loop_iterations(c, &l);
    for (int i = 0; i < k; i++) {
        if (!status && n + i < c->node->output_count && c->node->outputs[n + i])
            status =
                join_stack(c, &l.stacks[i], c->body->graph->outputs.items[1 + n + i], 0, false, &outputs[n + i].item);
        free_stack(c, &l.stacks[i]);
    }
    for (int i = 0; i < n; i++) {
        if (!status && i < c->node->output_count)
            outputs[i].item = l.carried[i];
        else
            item_free(c->run->memory, &l.carried[i]);
    }
    return status;
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
    int states, scans, values;
    const int64_t *in_axes, *in_back, *out_axes, *out_back;
    Item *carried, *slices;
    Stack *stacks;
    RunOutput *made;
    const Item **body;
    int64_t steps;
} ScanState;

static Status scan_step(Control *c, ScanState *s, int64_t t) {
    for (int i = 0; i < s->scans; i++) {
        const Tensor *from = &c->inputs[s->states + i]->tensor;
        TRY(take_slice(c, from, (int)s->in_axes[i], s->in_back[i] ? s->steps - 1 - t : t, &s->slices[i]));
        s->body[s->states + i] = &s->slices[i];
    }
    for (int i = 0; i < s->states; i++) s->body[i] = &s->carried[i];
    for (int i = 0; i < c->captures; i++) s->body[s->states + s->scans + i] = c->inputs[c->first_capture + i];
    memset(s->made, 0, sizeof *s->made * (size_t)(s->states + s->values));
    TRY(plan_run(c->body, c->run, c->symbols, s->body, s->made));
    for (int i = 0; i < s->states; i++) {
        item_free(c->run->memory, &s->carried[i]);
        s->carried[i] = s->made[i].item;
    }
    for (int i = 0; i < s->values; i++) VEC_PUSH(c->arena, s->stacks[i].parts, s->made[s->states + i].item);
    for (int i = 0; i < s->scans; i++) item_free(c->run->memory, &s->slices[i]);
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
        TRY(item_copy(c->run->memory, c->inputs[i], &s->carried[i]));
    }
    for (int64_t t = 0; t < s->steps; t++) TRY(scan_step(c, s, t));
    return NULL;
}

static Status run_scan(Control *c, RunOutput *outputs) {
    int scans = (int)attr_int(c->node, "num_scan_inputs", 0), count = 0;
    ScanState s = {.scans = scans, .states = c->first_capture - scans};
    s.values = c->body->graph->outputs.count - s.states;
    s.in_axes = attr_ints(c->node, "scan_input_axes", &count);
    s.in_back = attr_ints(c->node, "scan_input_directions", &count);
    s.out_axes = attr_ints(c->node, "scan_output_axes", &count);
    s.out_back = attr_ints(c->node, "scan_output_directions", &count);
    s.carried = ARENA_ARRAY(c->arena, Item, s.states + 1);
    s.slices = ARENA_ARRAY(c->arena, Item, scans + 1);
    s.stacks = ARENA_ARRAY(c->arena, Stack, s.values + 1);
    s.made = ARENA_ARRAY(c->arena, RunOutput, s.states + s.values + 1);
    s.body = ARENA_ARRAY(c->arena, const Item *, s.states + scans + c->captures + 1);
    Status status = scan_steps(c, &s);
    for (int i = 0; i < scans; i++) item_free(c->run->memory, &s.slices[i]);
    for (int i = 0; i < s.values; i++) {
        int o = s.states + i;
        if (!status && o < c->node->output_count && c->node->outputs[o])
            status = join_stack(c, &s.stacks[i], c->body->graph->outputs.items[o], (int)s.out_axes[i],
                                s.out_back[i] != 0, &outputs[o].item);
        free_stack(c, &s.stacks[i]);
    }
    for (int i = 0; i < s.states; i++) {
        if (!status && i < c->node->output_count)
            outputs[i].item = s.carried[i];
        else
            item_free(c->run->memory, &s.carried[i]);
    }
    return status;
}

static Status map_elements(Control *c, RunOutput *outputs, int length) {
    int results = c->body->graph->outputs.count, inputs = c->first_capture;
    const Item **body = ARENA_ARRAY(c->arena, const Item *, inputs + c->captures + 1);
    RunOutput *made = ARENA_ARRAY(c->arena, RunOutput, results + 1);
    for (int o = 0; o < results && o < c->node->output_count; o++) {
        void *items;
        TRY(memory_alloc(c->run->memory, sizeof(Item) * (size_t)length, &items));
        outputs[o].item = (Item){.kind = ITEM_SEQUENCE, .items = items};
    }
    for (int e = 0; e < length; e++) {
        for (int i = 0; i < inputs; i++)
            body[i] = c->inputs[i]->kind == ITEM_SEQUENCE ? &c->inputs[i]->items[e] : c->inputs[i];
        for (int i = 0; i < c->captures; i++) body[inputs + i] = c->inputs[inputs + i];
        memset(made, 0, sizeof *made * (size_t)results);
        TRY(plan_run(c->body, c->run, c->symbols, body, made));
        for (int o = 0; o < results; o++) {
            if (o < c->node->output_count)
                outputs[o].item.items[outputs[o].item.count++] = made[o].item;
            else
                item_free(c->run->memory, &made[o].item);
        }
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

Status run_control(const Step *step, Run *run, const int64_t *symbols, const Item *const *inputs, RunOutput *outputs) {
    const Node *node = step->node;
    Arena *arena = arena_create(0);
    if (!arena) return status_out_of_memory();
    Control c = {.step = step,
                 .node = node,
                 .body = step->nested[0],
                 .run = run,
                 .symbols = symbols,
                 .inputs = inputs,
                 .captures = node->captures,
                 .first_capture = node->input_count - node->captures,
                 .arena = arena};
    jmp_buf guard;
    Status volatile status;
    if (setjmp(guard)) {
        status = status_out_of_memory();
    } else {
        arena_guard(arena, &guard);
        status = strcmp(node->op, "If") == 0     ? run_if(&c, outputs)
                 : strcmp(node->op, "Loop") == 0 ? run_loop(&c, outputs)
                 : strcmp(node->op, "Scan") == 0 ? run_scan(&c, outputs)
                                                 : run_sequence_map(&c, outputs);
    }
    if (status) free_outputs(&c, outputs, node->output_count);
    arena_destroy(arena);
    return status;
}
