/* SPDX-License-Identifier: Apache-2.0 */
/* Partitioned graph -> plan: a slot a value and place, a step a node, copies between the places, lifetimes, and all
 * sizes collected as expressions. */
#include <limits.h>

#include "lowering/custom.h"
#include "runtime/plan/planner.h"
#include "runtime/plan/recordings.h"

typedef struct Planner {
    Plan *plan;
    Arena *scratch;
    bool *late_symbols; /* [symbol_count] bound by a step of this plan, or "$run" */
    bool *used;         /* [symbol_count] */
    bool unknown;       /* an expression was so large that a symbol stands for it, which nothing binds */
    Map lists;          /* of expressions that stand in the plan: by hash */
    Shared *shared;     /* with the plans around it and inside it */
} Planner;

static int slot_of(const Value *value) { return value ? (int)value->tag : -1; }

/* --- expressions ------------------------------------------------------------------------------------------------ */
static void mark_used(int symbol, void *context) {
    Planner *planner = context;
    if (symbol < planner->plan->symbol_count)
        planner->used[symbol] = true;
    else
        planner->unknown = true;
}

typedef struct LateSearch {
    const Planner *planner;
    bool found;
} LateSearch;

static void check_late(int symbol, void *context) {
    LateSearch *search = context;
    search->found |= symbol < search->planner->plan->symbol_count && search->planner->late_symbols[symbol];
}

static bool is_late(const Planner *planner, const Dim *dim) {
    LateSearch search = {planner, false};
    dim_each_symbol(dim, check_late, &search);
    return search.found;
}

static void push_expr(Planner *planner, const Dim *dim) {
    Plan *plan = planner->plan;
    dim_each_symbol(dim, mark_used, planner);
    if (is_late(planner, dim)) VEC_PUSH(plan->arena, plan->late_exprs, plan->exprs.count);
    VEC_PUSH(plan->arena, plan->exprs, dim);
}

/* A list that stands in the plan, and the next of the same hash. */
typedef struct List {
    int first, count;
    struct List *next;
} List;

/* Equal lists stand once: thousands of values have one shape, which is then evaluated once a run. */
static int add_exprs(Planner *planner, const Dim *const *dims, int count) {
    Plan *plan = planner->plan;
    size_t bytes = (size_t)count * sizeof *dims;
    if (!count) return plan->exprs.count;
    uint64_t hash = hash_bytes(dims, bytes, 0);
    List *known = map_get_id(&planner->lists, hash);
    for (List *list = known; list; list = list->next)
        if (list->count == count && memcmp(plan->exprs.items + list->first, dims, bytes) == 0) return list->first;
    List *made = ARENA_NEW(planner->scratch, List);
    *made = (List){plan->exprs.count, count, known};
    map_set_id(&planner->lists, hash, made);
    for (int i = 0; i < count; i++) push_expr(planner, dims[i]);
    return made->first;
}

static int add_expr(Planner *planner, const Dim *dim) { return add_exprs(planner, &dim, 1); }

/* --- slots -------------------------------------------------------------------------------------------------------- */
static int add_slot(Planner *planner, Value *value, Storage storage, Place place) {
    Plan *plan = planner->plan;
    int number = plan->slot_count++;
    value->tag = (uint64_t)number;
    Slot *slot = &plan->slots[number];
    *slot = (Slot){.value = value,
                   .storage = storage,
                   .place = place,
                   .twin = -1,
                   .root = number,
                   .inplace = -1,
                   .over = -1,
                   .first = INT_MAX,
                   .last = -1,
                   .output = -1,
                   .device_output = -1,
                   .dims_expr = -1,
                   .bytes_expr = -1};
    bool tensor = value->kind == VALUE_TENSOR && value->rank >= 0;
    if (!tensor) {
        if (storage != STORE_INPUT) slot->storage = STORE_ITEM;
        return number;
    }
    for (int d = 0; d < value->rank; d++) slot->late |= is_late(planner, value->dims[d]);
    slot->dims_expr = add_exprs(planner, value->dims, value->rank);
    const Dim *bytes = dim_mul(plan->graph->dims, value_elements(plan->graph, value),
                               dim_const(plan->graph->dims, (int64_t)dtype_size(value->dtype)));
    slot->bytes_expr = add_expr(planner, bytes);
    if (slot->storage == STORE_PLANNED && (slot->late || value->dtype == DT_STRING)) slot->storage = STORE_DYNAMIC;
    return number;
}

static void add_alias(Planner *planner, Node *node) {
    Plan *plan = planner->plan;
    int from = slot_of(node->inputs[0]);
    int number = add_slot(planner, node->outputs[0], STORE_ALIAS, plan->slots[from].place);
    plan->slots[number].storage = STORE_ALIAS;
    plan->slots[number].root = plan->slots[from].root;
}

void slot_touch(Plan *plan, int slot, int step) {
    Slot *root = &plan->slots[plan->slots[slot].root];
    if (step < root->first) root->first = step;
    if (step > root->last) root->last = step;
}

/* --- symbols bound during the run ------------------------------------------------------------------------------ */
static void mark_late(Planner *planner, const Dim *dim, bool *binds) {
    int symbol = dim_symbol_index(dim);
    if (symbol < 0 || planner->used[symbol]) return; /* here: given by the inputs */
    planner->late_symbols[symbol] = true;
    if (binds) *binds = true;
}

static void find_late(Planner *planner) {
    Plan *plan = planner->plan;
    Graph *graph = plan->graph;
    for (int i = 0; i < graph->inputs.count; i++) {
        const Value *v = graph->inputs.items[i];
        for (int d = 0; v->kind == VALUE_TENSOR && d < v->rank; d++) { /* an optional binds what is read from it */
            int symbol = dim_symbol_index(v->dims[d]);
            if (symbol >= 0) planner->used[symbol] = true;
        }
    }
    if (plan->run_symbol >= 0) planner->late_symbols[plan->run_symbol] = true;
    FOR_EACH_NODE(node, graph) {
        if (node->kind != NODE_HOST) continue;
        int count = 0;
        const Dim *const *bound = strcmp(node->op, "bind_sizes") == 0 ? attr_dims(node, "symbols", &count) : NULL;
        for (int i = 0; i < count; i++) mark_late(planner, bound[i], NULL);
        for (int o = 0; o < node->output_count; o++)
            for (int d = 0; node->outputs[o] && d < node->outputs[o]->rank; d++)
                mark_late(planner, node->outputs[o]->dims[d], NULL);
    }
    memset(planner->used, 0, sizeof(bool) * (size_t)plan->symbol_count);
}

/* --- the same value in the other place --- */
static Step *new_step(Plan *plan, StepKind kind, const Node *node, Place place) {
    Step *step = &plan->steps[plan->step_count];
    *step = (Step){.kind = kind,
                   .place = place,
                   .node = node,
                   .on = place == PLACE_DEVICE ? plan->device : plan->host,
                   .prologue = -1,
                   .within = -1};
    return step;
}

static void add_copy(Plan *plan, int from, int to, const Node *reader) {
    const Node *producer = plan->slots[from].value->producer;
    Step *step = new_step(plan, STEP_COPY, producer ? producer : reader, PLACE_DEVICE);
    int *inputs = ARENA_ARRAY(plan->arena, int, 1), *outputs = ARENA_ARRAY(plan->arena, int, 1);
    inputs[0] = from;
    outputs[0] = to;
    step->inputs = inputs;
    step->outputs = outputs;
    step->input_count = step->output_count = 1;
    slot_touch(plan, from, plan->step_count);
    slot_touch(plan, to, plan->step_count);
    plan->step_count++;
}

/* The slot of a value in a place: its own, or its twin, which is made with the step that copies. Constants are copied
 * once for all runs, and what is an alias here is an alias there. */
static int slot_in(Planner *planner, int number, Place place, const Node *reader) {
    Plan *plan = planner->plan;
    Slot *slot = &plan->slots[number];
    if (slot->place == place) return number;
    if (slot->twin >= 0) return slot->twin;
    int root = slot->root == number ? -1 : slot_in(planner, slot->root, place, reader), twin = plan->slot_count++;
    Slot *made = &plan->slots[twin];
    *made = *slot;
    made->place = place;
    made->twin = number;
    made->root = root < 0 ? twin : root;
    made->first = INT_MAX;
    made->last = -1;
    slot->twin = twin;
    if (root >= 0 || slot->storage == STORE_CONSTANT) return twin;
    made->storage = slot->late ? STORE_DYNAMIC : STORE_PLANNED;
    add_copy(plan, number, twin, reader);
    return twin;
}

/* --- steps --- */
static int *slots_of(Planner *planner, Value *const *values, int count) {
    int *slots = ARENA_ARRAY(planner->plan->arena, int, count ? count : 1);
    for (int i = 0; i < count; i++) {
        Value *v = values[i];
        if (v && v->constant && v->tag == UINT64_MAX) add_slot(planner, v, STORE_CONSTANT, PLACE_HOST);
        slots[i] = slot_of(v);
    }
    return slots;
}

/* The inputs, of the first 64, that are read at the element which is then written alone: bit i for input i. */
static uint64_t inputs_in_place(const Step *step, int output) {
    const DeviceTable *table = step->on->table;
    switch (step->kind) {
    case STEP_KERNEL: return step->region.inplace[output];
    case STEP_ANCHOR:
        if (step->region.kernel) return codegen_tile_inplace(step->node, &step->region, output);
        return table->anchor_inplace && output == 0 ? table->anchor_inplace(step->on, step->node) : 0;
    case STEP_HOST: { /* a custom operator says so itself */
        int input = step->node->custom && output == 0 ? step->node->custom->in_place : 0;
        return input > 0 && input <= 64 ? UINT64_C(1) << (input - 1) : 0;
    }
    case STEP_PRIM: /* what is scattered into stays where it is (device/host_movement.c) */
        return step->place == PLACE_HOST && prim_is_scatter(step->node->prim);
    default: return 0;
    }
}

/* How many of the step's inputs are in the memory of `root`. */
static int inputs_from(const Plan *plan, const Step *step, int root) {
    int count = 0;
    for (int i = 0; i < step->input_count; i++)
        count += step->inputs[i] >= 0 && plan->slots[step->inputs[i]].root == root;
    return count;
}

bool step_may_share(const Plan *plan, const Step *step, int output, int input) {
    if (input >= 64 || step->inputs[input] < 0 || !(inputs_in_place(step, output) >> input & 1)) return false;
    /* Nor is it read in another order: through an alias, or by an anchor that runs within this one. */
    int root = plan->slots[step->inputs[input]].root;
    int readers = inputs_from(plan, step, root);
    if (step->prologue >= 0) readers += inputs_from(plan, &plan->steps[step->prologue], root);
    return readers == 1;
}

static void choose_inplace(Plan *plan, const Step *step, int number) {
    for (int o = 0; o < step->output_count; o++) {
        Slot *to = step->outputs[o] >= 0 ? &plan->slots[step->outputs[o]] : NULL;
        for (int i = 0; to && i < step->input_count && to->inplace < 0; i++) {
            if (step->inputs[i] < 0) continue;
            int root = plan->slots[step->inputs[i]].root;
            Slot *from = &plan->slots[root];
            bool fits = from->storage == STORE_PLANNED && to->storage == STORE_PLANNED && from->last == number &&
                        from->output < 0 && to->output < 0 && from->first < number && !from->shared &&
                        plan->exprs.items[from->bytes_expr] == plan->exprs.items[to->bytes_expr];
            for (int k = 0; k < o; k++) /* not taken by another output of this step */
                fits &= step->outputs[k] < 0 || plan->slots[step->outputs[k]].inplace != root;
            if (fits && step_may_share(plan, step, o, i)) to->inplace = root;
        }
    }
}

/* The result of a STEP_RESOLVE may be its input's memory: that lives as long as the result, and nobody writes over
 * either. Backwards, so that chains add up. */
static void extend_resolved(Plan *plan) {
    for (int s = plan->step_count - 1; s >= 0; s--) {
        const Step *step = &plan->steps[s];
        if (step->kind != STEP_RESOLVE) continue;
        Slot *from = &plan->slots[plan->slots[step->inputs[0]].root], *to = &plan->slots[step->outputs[0]];
        if (from->last < to->last) from->last = to->last;
        from->shared = to->shared = true;
    }
}

typedef VEC(int) Dying;

static void list_dying(const Plan *plan, const int *slots, int count, int number, Dying *dies) {
    for (int i = 0; i < count; i++) {
        if (slots[i] < 0) continue;
        int root = plan->slots[slots[i]].root;
        const Slot *r = &plan->slots[root];
        bool owned = r->storage == STORE_DYNAMIC || r->storage == STORE_ITEM;
        for (int k = 0; k < dies->count; k++) owned &= dies->items[k] != root;
        if (owned && r->last == number && r->output < 0) VEC_PUSH(plan->arena, *dies, root);
    }
}

static void list_deaths(Plan *plan, int number) {
    Step *step = &plan->steps[number];
    const Step *prologue = step->prologue < 0 ? NULL : &plan->steps[step->prologue];
    Dying dies = {0};
    list_dying(plan, step->inputs, step->input_count, number, &dies);
    list_dying(plan, step->outputs, step->output_count, number, &dies);
    if (prologue) list_dying(plan, prologue->inputs, prologue->input_count, number, &dies);
    step->dies = dies.items;
    step->die_count = dies.count;
}

/* The step's inputs, in the place where it runs. */
static const int *inputs_of(Planner *planner, const Node *node, Place place) {
    Plan *plan = planner->plan;
    int *inputs = slots_of(planner, node->inputs, node->input_count);
    if (plan->device == plan->host) return inputs;
    for (int i = 0; i < node->input_count; i++)
        if (inputs[i] >= 0) inputs[i] = slot_in(planner, inputs[i], place, node);
    return inputs;
}

static const int *outputs_of(Planner *planner, Step *step, Place place) {
    Plan *plan = planner->plan;
    const Node *node = step->node;
    int *outputs = ARENA_ARRAY(plan->arena, int, node->output_count + 1);
    for (int o = 0; o < node->output_count; o++) {
        outputs[o] = node->outputs[o] ? add_slot(planner, node->outputs[o], STORE_PLANNED, place) : -1;
        if (node->kind == NODE_HOST && node->outputs[o])
            for (int d = 0; d < node->outputs[o]->rank; d++) {
                int symbol = dim_symbol_index(node->outputs[o]->dims[d]);
                step->binds |= symbol >= 0 && planner->late_symbols[symbol];
            }
    }
    return outputs;
}

static void collect_sizes(Planner *planner, Step *step) {
    const Dim *const *sizes = attr_dims(step->node, step->kind == STEP_DIMS ? "shape" : "symbols", &step->sizes_count);
    step->sizes_expr = add_exprs(planner, sizes, step->sizes_count);
    int *symbols = ARENA_ARRAY(planner->plan->arena, int, step->sizes_count + 1);
    for (int i = 0; i < step->sizes_count; i++) symbols[i] = dim_symbol_index(sizes[i]);
    step->symbols = symbols;
}

const NodeGiven *given_of(const Plan *plan, const Step *step) {
    const NodeGiven *given =
        plan->given->is_compiled ? map_get_id(&plan->given->nodes, MAP_POINTER_KEY(step->node)) : NULL;
    return given && given->place == step->place ? given : NULL;
}

static Status generate_kernel(Planner *planner, Step *step) {
    Plan *plan = planner->plan;
    const NodeGiven *given = given_of(plan, step);
    if (given)
        step->region = given->region;
    else
        TRY(codegen_region_pooled(&planner->shared->kernels, plan->graph->dims, step->node, &step->on->policy->target,
                                  &step->region));
    step->params_expr = add_exprs(planner, step->region.params, step->region.kernel->param_count);
    step->work_expr = add_expr(planner, step->region.work);
    return NULL;
}

static Status generate_finish(Planner *planner, Step *step) {
    const DeviceTable *table = step->on->table;
    const Value *begin = NULL;
    DType raw = step->node->subgraph_count && table->finishes_with ? table->finishes_with(step->on, step->node, &begin)
                                                                   : DT_NONE;
    if (raw == DT_NONE) return NULL;
    const NodeGiven *given = given_of(planner->plan, step);
    if (!given)
        return codegen_tile_pooled(&planner->shared->kernels, step->node, begin, raw, &step->on->policy->target,
                                   &step->region);
    if (!given->region.kernel)
        return status_error(STATUS_INVALID, "node \"%s\" has no kernel for its epilogue", node_origin_name(step->node));
    step->region = given->region;
    return NULL;
}

static void touch_all(Plan *plan, const Step *step, const int *slots, int count) {
    for (int i = 0; i < count; i++) {
        if (slots[i] < 0) continue;
        slot_touch(plan, slots[i], plan->step_count);
        plan->slots[plan->slots[slots[i]].root].on_host |= step->place == PLACE_HOST;
    }
}

/* Whether a host step reads the value, or a view of it. Views of views may be many: no recursion. */
static bool host_reads(const Planner *planner, const Value *v) {
    VEC(const Value *) views = {0};
    VEC_PUSH(planner->scratch, views, v);
    while (views.count) {
        v = views.items[--views.count];
        for (int u = 0; u < v->uses.count; u++) {
            const Node *reader = v->uses.items[u].node;
            if (node_is_alias(reader))
                VEC_PUSH(planner->scratch, views, reader->outputs[0]);
            else if (reader->tag == PLACE_HOST)
                return true;
        }
    }
    return false;
}

/* What host steps read of a device step's results is copied out at once, so that one wait does for several. */
static void bring_results(Planner *planner, const Step *step) {
    for (int o = 0; o < step->output_count; o++)
        if (step->outputs[o] >= 0 && host_reads(planner, step->node->outputs[o]))
            slot_in(planner, step->outputs[o], PLACE_HOST, step->node);
}

static Status add_step(Planner *planner, Node *node) {
    Plan *plan = planner->plan;
    Place place = plan->device == plan->host ? PLACE_HOST : (Place)node->tag;
    const int *inputs = inputs_of(planner, node, place); /* before the step itself: copies may come first */
    StepKind kind = step_kind_of(node);
    Step *step = new_step(plan, kind == STEP_HOST && place == PLACE_DEVICE ? STEP_DEVICE : kind, node, place);
    step->inputs = inputs;
    step->outputs = outputs_of(planner, step, place);
    step->input_count = node->input_count;
    step->output_count = node->output_count;
    if (step->kind == STEP_DIMS || step->kind == STEP_BIND) collect_sizes(planner, step);
    if (step->kind == STEP_HOST) {
        step->host = node->host;
        if (!step->host)
            return status_error(STATUS_FAULT, "node \"%s\" (%s) has no host kernel", node_origin_name(node), node->op);
    }
    if (step->kind == STEP_KERNEL) TRY(generate_kernel(planner, step));
    if (step->kind == STEP_ANCHOR) TRY(generate_finish(planner, step));
    touch_all(plan, step, step->inputs, step->input_count);
    touch_all(plan, step, step->outputs, step->output_count);
    plan->step_count++;
    if (place == PLACE_DEVICE) bring_results(planner, step);
    return NULL;
}

static bool owns_memory(const Slot *root) {
    return root->storage == STORE_PLANNED || root->storage == STORE_DYNAMIC || root->storage == STORE_ITEM;
}

/* A result of the device may stay there, where the caller gives device memory; else it is copied out at the end. */
static int bring_output(Planner *planner, int number, int output) {
    Plan *plan = planner->plan;
    if (plan->slots[number].place == PLACE_HOST) return number;
    int twin = slot_in(planner, number, PLACE_HOST, plan->slots[number].value->producer);
    Slot *root = &plan->slots[plan->slots[number].root];
    if (owns_memory(root) && root->device_output < 0) root->device_output = output;
    return twin;
}

static void assign_outputs(Planner *planner) {
    Plan *plan = planner->plan;
    Graph *graph = plan->graph;
    int count = graph->outputs.count, *outputs = slots_of(planner, graph->outputs.items, count);
    int *on_device = ARENA_ARRAY(plan->arena, int, count + 1);
    for (int o = 0; o < count; o++) {
        on_device[o] = plan->slots[outputs[o]].place == PLACE_DEVICE ? outputs[o] : -1;
        outputs[o] = bring_output(planner, outputs[o], o);
    }
    plan->outputs = outputs;
    plan->device_outputs = on_device;
    for (int o = 0; o < count; o++) { /* once the copies stand: now the count of steps is known */
        Slot *root = &plan->slots[plan->slots[outputs[o]].root];
        root->last = plan->step_count;
        if (on_device[o] >= 0) plan->slots[plan->slots[on_device[o]].root].last = plan->step_count;
        root->on_host |= !owns_memory(root);
        if (owns_memory(root) && root->output < 0) root->output = o;
    }
}

/* Host steps that must wait for copies out of the device. Outputs are waited for at the end. */
static void find_waits(Plan *plan, Arena *scratch) {
    if (plan->device == plan->host) return;
    int *copied = ARENA_ARRAY(scratch, int, plan->slot_count + 1); /* roots: 1 + the wait after which it was copied */
    int waits = 0;
    for (int s = 0; s < plan->step_count; s++) {
        Step *step = &plan->steps[s];
        if (step->kind == STEP_COPY && plan->slots[step->outputs[0]].place == PLACE_HOST)
            copied[plan->slots[step->outputs[0]].root] = waits + 1;
        if (step->place == PLACE_DEVICE) continue;
        for (int i = 0; i < step->input_count; i++)
            step->waits |= step->inputs[i] >= 0 && copied[plan->slots[step->inputs[i]].root] == waits + 1;
        waits += step->waits;
    }
}

static Status make_plan(Graph *graph, Device *device, Device *host, const PlanGiven *given, Shared *shared,
                        Plan **out_plan);

static Status make_nested(Plan *plan, Shared *shared) {
    for (int s = 0; s < plan->step_count; s++) {
        Step *step = &plan->steps[s];
        if (step->kind != STEP_CONTROL) continue;
        step->nested = ARENA_ARRAY(plan->arena, Plan *, step->node->subgraph_count);
        for (; step->nested_count < step->node->subgraph_count; step->nested_count++)
            TRY(make_plan(step->node->subgraphs[step->nested_count], plan->device, plan->host, plan->given, shared,
                          &step->nested[step->nested_count]));
    }
    return NULL;
}

/* Once constants are where they stay. */
static void list_slots(Plan *plan) {
    plan->constants = ARENA_ARRAY(plan->arena, void *, plan->slot_count + 1);
    for (int i = 0; i < plan->slot_count; i++) {
        const Slot *slot = &plan->slots[i];
        plan->has_items |= slot->dims_expr < 0;
        if (slot->storage == STORE_CONSTANT && slot->dims_expr >= 0)
            plan->constants[i] = slot->place == PLACE_HOST ? slot->value->constant->data : slot->uploaded;
        if (slot->storage == STORE_PLANNED) VEC_PUSH(plan->arena, plan->planned[slot->place], i);
        if (slot->storage == STORE_DYNAMIC || slot->storage == STORE_ITEM) VEC_PUSH(plan->arena, plan->owned, i);
    }
}

static Status fill_plan(Plan *plan, Shared *shared, Arena *scratch) {
    Graph *graph = plan->graph;
    Shared own = {kernel_pool(plan->arena)};
    if (!shared) shared = &own; /* this is the outermost plan, which lives longest */
    Planner planner = {.plan = plan, .scratch = scratch, .lists = map_make(scratch), .shared = shared};
    plan->run_symbol = dim_symbol_index(dim_symbol(graph->dims, "$run"));
    plan->symbol_count = dim_symbol_count(graph->dims);
    planner.late_symbols = ARENA_ARRAY(scratch, bool, plan->symbol_count);
    planner.used = ARENA_ARRAY(scratch, bool, plan->symbol_count);
    find_late(&planner);

    bool separate = plan->device != plan->host;
    int values = graph->inputs.count + graph->outputs.count;
    for (int i = 0; i < graph->values.count; i++) graph->values.items[i]->tag = UINT64_MAX;
    FOR_EACH_NODE(node, graph) values += node->input_count + node->output_count;
    if (separate) placement_choose(graph, plan->device, scratch);
    plan->slots = ARENA_ARRAY(plan->arena, Slot, separate ? 2 * values : values);
    plan->steps = ARENA_ARRAY(plan->arena, Step, separate ? graph->node_count + values : graph->node_count);
    int *inputs = ARENA_ARRAY(plan->arena, int, graph->inputs.count + 1);
    for (int i = 0; i < graph->inputs.count; i++)
        inputs[i] = add_slot(&planner, graph->inputs.items[i], STORE_INPUT, PLACE_HOST);
    plan->inputs = inputs;
    FOR_EACH_NODE(node, graph) {
        if (node_is_alias(node)) {
            slots_of(&planner, node->inputs, 1);
            add_alias(&planner, node);
        } else {
            TRY(add_step(&planner, node));
        }
    }
    assign_outputs(&planner);
    if (planner.unknown)
        return status_error(STATUS_UNSUPPORTED, "how many elements a value has is too long an expression");
    states_order(plan, scratch);
    arrange_for_recording(plan, planner.late_symbols, planner.used, scratch);
    states_settle(plan);
    find_prologues(plan, scratch);
    extend_resolved(plan);
    find_waits(plan, scratch);
    for (int s = 0; s < plan->step_count; s++) {
        choose_inplace(plan, &plan->steps[s], s);
        list_deaths(plan, s);
    }
    for (int i = 0; i < plan->symbol_count; i++)
        if (planner.used[i] && !planner.late_symbols[i]) VEC_PUSH(plan->arena, plan->input_symbols, i);
    return make_nested(plan, shared);
}

/* Releases what the plan made, whatever was made so far. */
void plan_destroy(Plan *plan) {
    if (!plan) return;
    recordings_destroy(plan->recordings, plan->device);
    for (int s = 0; s < plan->step_count; s++) {
        Step *step = &plan->steps[s];
        if (step->kernel) step->on->table->release_kernel(step->on, step->kernel);
        if (step->anchor) step->on->table->release_anchor(step->on, step->anchor);
        for (int n = 0; n < step->nested_count; n++) plan_destroy(step->nested[n]);
    }
    for (int i = 0; i < plan->uploads.count; i++)
        plan->device->table->release(plan->device, NULL, NULL, plan->uploads.items[i]);
    sizes_cache_destroy(plan->sizes);
    arena_destroy(plan->arena);
}

static Status make_plan(Graph *graph, Device *device, Device *host, const PlanGiven *given, Shared *shared,
                        Plan **out_plan) {
    Arena *arena = arena_create_inside(graph->arena), *scratch = arena_create_inside(arena);
    Plan *plan = ARENA_NEW(arena, Plan);
    *plan = (Plan){
        .graph = graph, .device = device, .host = host, .given = given, .arena = arena, .sizes = sizes_cache_create()};
    Status volatile status = plan->sizes ? NULL : status_out_of_memory();
    jmp_buf guard, *volatile outer = NULL;               /* of the arena around, which kernels go to */
    jmp_buf *around = arena_guard(graph->arena, &guard); /* sizes are made there */
    if (setjmp(guard)) {
        status = status_out_of_memory();
    } else if (!status) {
        arena_guard(arena, &guard);
        if (shared) outer = arena_guard(shared->kernels.arena, &guard);
        status = fill_plan(plan, shared, scratch);
    }
    if (outer) arena_guard(shared->kernels.arena, outer);
    arena_guard(graph->arena, around);
    arena_guard(arena, NULL);
    arena_destroy(scratch);
    if (status) {
        plan_destroy(plan);
        return status;
    }
    *out_plan = plan;
    return NULL;
}

/* Of a plan and those nested in it. */
static Status place_constants(Plan *plan, const Map *holders, Arena *scratch) {
    TRY(prepare_constants(plan, holders, scratch));
    list_slots(plan);
    plan->given = NULL;
    for (int s = 0; s < plan->step_count; s++)
        for (int n = 0; n < plan->steps[s].nested_count; n++)
            TRY(place_constants(plan->steps[s].nested[n], holders, scratch));
    return NULL;
}

/* Kernels first: a compiler's memory and packed weights are not to be held at once. */
static Status prepare_in(Arena *scratch, Plan *plan, KernelCacheStats *stats) {
    TRY(prepare_kernels(plan, scratch, stats));
    TRY(prepare_prims(plan, stats));
    align_constants(plan);
    Map holders = map_make(scratch);
    count_holders(plan->graph, &holders);
    return place_constants(plan, &holders, scratch);
}

/* What the steps need. */
static Status prepare_all(Plan *plan, KernelCacheStats *stats) {
    const DeviceTable *table = plan->device->table;
    Arena *scratch = arena_create_inside(plan->graph->arena);
    Status status = prepare_in(scratch, plan, stats);
    arena_destroy(scratch);
    TRY(status);
    if (table->count_anchors) table->count_anchors(plan->device, stats);
    if (plan->recorded_end && !(plan->recordings = recordings_create())) return status_out_of_memory();
    return NULL;
}

Status plan_create(Graph *graph, Device *device, Device *host, KernelCacheStats *stats, Plan **out_plan) {
    return plan_create_given(graph, device, host, NULL, stats, out_plan);
}

Status plan_create_given(Graph *graph, Device *device, Device *host, const PlanGiven *given, KernelCacheStats *stats,
                         Plan **out_plan) {
    static const PlanGiven nothing;
    Plan *plan;
    TRY(make_plan(graph, device, host, given ? given : &nothing, NULL, &plan));
    jmp_buf guard, *outer = arena_guard(graph->arena, &guard);
    Status volatile status;
    if (setjmp(guard))
        status = status_out_of_memory();
    else
        status = prepare_all(plan, stats);
    arena_guard(graph->arena, outer);
    if (status) {
        plan_destroy(plan);
        return status;
    }
    *out_plan = plan;
    return NULL;
}
