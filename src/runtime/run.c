/* Runs a plan: binds the inputs' sizes, finds each slot's memory, then takes the steps one after the other. */
#include "runtime/plan.h"

#include "base/log.h"
#include "graph/eval.h"
#include "runtime/movement.h"

typedef struct State {
    const Plan *plan;
    Run *run;
    const Sizes *sizes;
    int64_t *symbols;      /* [symbol_count] */
    const int64_t *values; /* of plan->exprs: the sizes', or an own copy where some are late */
    int64_t *own_values;   /* that copy, or NULL */
    void **data;           /* [slot_count]: memory of tensor slots, NULL where not there yet */
    const Item **items;    /* [slot_count]: of STORE_ITEM and item inputs */
    Item *owned;           /* [slot_count]: what STORE_ITEM slots own */
    char *arena;
    void *scratch;
    size_t scratch_bytes;
    RunOutput *outputs;
    Arena *memory; /* of this structure, freed after the run */
} State;

static const Slot *slot_at(const State *s, int number) { return &s->plan->slots[number]; }

static bool is_tensor_slot(const Slot *slot) { return slot->dims_expr >= 0; }

static const int64_t *dims_of(const State *s, int number) { return s->values + slot_at(s, number)->dims_expr; }

static Tensor tensor_at(const State *s, int number) {
    const Slot *slot = slot_at(s, number);
    Tensor t = {.dtype = slot->value->dtype, .rank = slot->value->rank, .data = s->data[number]};
    if (t.rank) memcpy(t.dims, dims_of(s, number), sizeof(int64_t) * (size_t)t.rank);
    return t;
}

/* --- late sizes
 * ------------------------------------------------------------------------------------------------------- */
/* Evaluates the expressions that have become known. */
static void update_late(State *s) {
    for (int i = 0; i < s->plan->late_exprs.count; i++) {
        int e = s->plan->late_exprs.items[i];
        if (s->own_values[e] == UNBOUND_DIM) s->own_values[e] = dim_eval(s->plan->exprs.items[e], s->symbols);
    }
}

static Status check_known(const State *s, int number, size_t *out_bytes) {
    const Slot *slot = slot_at(s, number);
    for (int d = 0; d < slot->value->rank; d++)
        if (dims_of(s, number)[d] == UNBOUND_DIM)
            return status_error(STATUS_FAULT, "value \"%s\": size of axis %d is not known when it is needed",
                                slot->value->name, d);
    return status_at(tensor_size_of(slot->value->dtype, slot->value->rank, dims_of(s, number), NULL, out_bytes),
                     "value \"%s\"", slot->value->name);
}

/* --- memory of a result
 * ----------------------------------------------------------------------------------------------- */
static void set_data(State *s, int number, void *data) { s->data[number] = data; }

static Status allocate_output(State *s, int root, int rank, const int64_t *dims) {
    const Slot *slot = slot_at(s, root);
    RunOutput *output = &s->outputs[slot->output];
    if (output->given) {
        const Tensor *t = &output->item.tensor;
        size_t have = tensor_bytes(t), need;
        TRY(tensor_size_of(slot->value->dtype, rank, dims, NULL, &need));
        if (have != need || t->dtype != slot->value->dtype)
            return status_error(STATUS_INVALID,
                                "output \"%s\": the given buffer does not fit: it has %zu bytes, the result %zu",
                                s->plan->graph->output_names.items[slot->output], have, need);
    } else {
        TRY(item_new_tensor(s->run->memory, slot->value->dtype, rank, dims, &output->item));
    }
    set_data(s, root, output->item.tensor.data);
    return NULL;
}

/* Memory for a result whose dims are known by now. */
static Status ensure_data(State *s, int number) {
    const Slot *slot = slot_at(s, number);
    if (s->data[number]) return NULL;
    size_t bytes;
    TRY(check_known(s, number, &bytes));
    if (slot->output >= 0) return allocate_output(s, number, slot->value->rank, dims_of(s, number));
    void *data;
    TRY(memory_alloc(s->run->memory, bytes, &data));
    set_data(s, number, data);
    return NULL;
}

/* An alias gets its pointer when it is read, since its root may be allocated late. */
static Status ready(State *s, int number) {
    const Slot *slot = slot_at(s, number);
    if (slot->storage == STORE_ALIAS) {
        size_t bytes;
        if (slot->late) TRY(check_known(s, number, &bytes));
        const Slot *root = slot_at(s, slot->root);
        if (s->values[slot->bytes_expr] != s->values[root->bytes_expr])
            return status_error(STATUS_INVALID, "value \"%s\": %lld bytes cannot be reshaped to %lld",
                                slot->value->name, (long long)s->values[root->bytes_expr],
                                (long long)s->values[slot->bytes_expr]);
        s->data[number] = s->data[slot->root];
    }
    return NULL;
}

static void free_slot(State *s, int root) {
    const Slot *slot = slot_at(s, root);
    if (slot->storage == STORE_DYNAMIC && slot->output < 0) {
        memory_free(s->run->memory, s->data[root]);
        s->data[root] = NULL;
    } else if (slot->storage == STORE_ITEM) {
        item_free(s->run->memory, &s->owned[root]);
        s->items[root] = NULL;
    }
}

/* --- host steps
 * ----------------------------------------------------------------------------------------------------------- */
typedef struct HostState {
    State *s;
    const Step *step;
} HostState;

static Status too_large(const Step *step, int64_t size) {
    return status_error(STATUS_UNSUPPORTED, "node \"%s\" (%s): a size of %lld (at most %d are supported)",
                        node_origin_name(step->node), step->node->op, (long long)size, LARGEST_SIZE);
}

static Status bind_output(State *s, const Step *step, int index, int rank, const int64_t *dims) {
    const Value *v = step->node->outputs[index];
    if (rank != v->rank)
        return status_error(STATUS_FAULT, "node \"%s\" (%s): output %d has rank %d, expected %d",
                            node_origin_name(step->node), step->node->op, index, rank, v->rank);
    for (int d = 0; d < rank; d++) {
        int symbol = dim_symbol_index(v->dims[d]);
        if (symbol >= 0 && s->symbols[symbol] == UNBOUND_DIM) {
            if (dims[d] > LARGEST_SIZE) return too_large(step, dims[d]);
            s->symbols[symbol] = dims[d];
        }
        int64_t expected = dim_eval(v->dims[d], s->symbols);
        if (expected != dims[d])
            return status_error(STATUS_INVALID, "node \"%s\" (%s): axis %d of output %d has size %lld, expected %lld",
                                node_origin_name(step->node), step->node->op, d, index, (long long)dims[d],
                                (long long)expected);
    }
    if (s->own_values) update_late(s);
    return NULL;
}

static Status host_allocate(HostCall *call, int index, DType dtype, int rank, const int64_t *dims, void **out_data) {
    HostState *h = call->user;
    int number = h->step->outputs[index];
    const Slot *slot = slot_at(h->s, number);
    if (!is_tensor_slot(slot)) { /* a tensor in an optional: copied afterwards */
        size_t bytes;
        TRY(tensor_size_of(dtype, rank, dims, NULL, &bytes));
        *out_data = arena_alloc(call->arena, bytes);
        return NULL;
    }
    if (dtype != slot->value->dtype)
        return status_error(STATUS_FAULT, "host kernel %s gave %s for %s", call->node->op, dtype_name(dtype),
                            dtype_name(slot->value->dtype));
    TRY(bind_output(h->s, h->step, index, rank, dims));
    if (dtype == DT_STRING) {
        size_t bytes;
        TRY(tensor_size_of(dtype, rank, dims, NULL, &bytes));
        *out_data = arena_alloc(call->arena, bytes);
        return NULL;
    }
    TRY(ensure_data(h->s, number));
    *out_data = h->s->data[number];
    return NULL;
}

/* Strings leave the call's scratch memory for a block of their own. */
static Status keep_strings(State *s, int number, const Item *made) {
    const Slot *slot = slot_at(s, number);
    Item copy;
    TRY(item_copy(s->run->memory, made, &copy));
    if (slot->output < 0) {
        set_data(s, number, copy.tensor.data);
        return NULL;
    }
    RunOutput *output = &s->outputs[slot->output];
    if (output->given) {
        item_free(s->run->memory, &copy);
        return status_error(STATUS_INVALID, "output \"%s\": strings cannot be written to a given buffer",
                            s->plan->graph->output_names.items[slot->output]);
    }
    output->item = copy;
    set_data(s, number, copy.tensor.data);
    return NULL;
}

static Status keep_item(State *s, int number, const Item *made) {
    const Slot *slot = slot_at(s, number);
    if (slot->output >= 0) return item_copy(s->run->memory, made, &s->outputs[slot->output].item);
    TRY(item_copy(s->run->memory, made, &s->owned[number]));
    s->items[number] = &s->owned[number];
    return NULL;
}

static const Item *item_at(State *s, int number, Item *storage) {
    const Slot *slot = slot_at(s, number);
    if (!is_tensor_slot(slot))
        return slot->storage == STORE_ITEM && slot->output >= 0 ? &s->outputs[slot->output].item : s->items[number];
    if (!s->data[number]) return NULL;
    *storage = (Item){.kind = ITEM_TENSOR, .tensor = tensor_at(s, number)};
    return storage;
}

static const Item *const *gather_items(State *s, const Step *step, Arena *arena) {
    int count = step->node->input_count;
    Item *storage = ARENA_ARRAY(arena, Item, count);
    const Item **items = ARENA_ARRAY(arena, const Item *, count);
    for (int i = 0; i < count; i++) items[i] = step->inputs[i] < 0 ? NULL : item_at(s, step->inputs[i], &storage[i]);
    return items;
}

static Status run_host(State *s, const Step *step, Arena *arena) {
    int count = step->node->output_count;
    HostState h = {s, step};
    Item *made = ARENA_ARRAY(arena, Item, count), **outputs = ARENA_ARRAY(arena, Item *, count);
    for (int o = 0; o < count; o++) outputs[o] = step->outputs[o] < 0 ? NULL : &made[o];
    HostCall call = {.node = step->node,
                     .inputs = gather_items(s, step, arena),
                     .outputs = outputs,
                     .symbols = s->symbols,
                     .pool = s->plan->device->pool,
                     .arena = arena,
                     .allocate = host_allocate,
                     .user = &h};
    TRY(step->host(&call));
    for (int o = 0; o < count; o++) {
        if (step->outputs[o] < 0) continue;
        const Slot *slot = slot_at(s, step->outputs[o]);
        if (!is_tensor_slot(slot))
            TRY(keep_item(s, step->outputs[o], &made[o]));
        else if (slot->value->dtype == DT_STRING)
            TRY(keep_strings(s, step->outputs[o], &made[o]));
        else if (!s->data[step->outputs[o]])
            return status_error(STATUS_FAULT, "node \"%s\" (%s) made no output %d", node_origin_name(step->node),
                                step->node->op, o);
    }
    return NULL;
}

static Status run_nested(State *s, const Step *step, Arena *arena) {
    int count = step->node->output_count;
    RunOutput *outputs = ARENA_ARRAY(arena, RunOutput, count);
    Status status = run_control(step, s->run, s->symbols, gather_items(s, step, arena), outputs);
    for (int o = 0; o < count; o++) {
        Item *made = &outputs[o].item;
        int number = step->outputs[o];
        if (!status && number >= 0) {
            const Slot *slot = slot_at(s, number);
            if (!is_tensor_slot(slot)) {
                if (slot->output >= 0) {
                    s->outputs[slot->output].item = *made;
                } else {
                    s->owned[number] = *made;
                    s->items[number] = &s->owned[number];
                }
                *made = (Item){.kind = ITEM_NONE};
            } else {
                if (made->kind != ITEM_TENSOR)
                    status = status_error(STATUS_INVALID, "node \"%s\" (%s): output %d is no tensor",
                                          node_origin_name(step->node), step->node->op, o);
                if (!status) status = bind_output(s, step, o, made->tensor.rank, made->tensor.dims);
                bool moved =
                    !status && slot->storage == STORE_DYNAMIC && (slot->output < 0 || !s->outputs[slot->output].given);
                if (moved) {
                    if (slot->output >= 0) s->outputs[slot->output].item = *made;
                    set_data(s, number, made->tensor.data);
                    *made = (Item){.kind = ITEM_NONE};
                } else if (!status) {
                    status = ensure_data(s, number);
                    size_t bytes = tensor_bytes(&made->tensor);
                    if (!status && bytes) memcpy(s->data[number], made->tensor.data, bytes);
                }
            }
        }
        item_free(s->run->memory, made);
    }
    return status;
}

/* --- the other steps
 * --------------------------------------------------------------------------------------------------- */
static Status ensure_scratch(State *s, size_t bytes) {
    if (bytes <= s->scratch_bytes) return NULL;
    run_memory_give(s->run->buffers, s->scratch);
    s->scratch = NULL;
    s->scratch_bytes = 0;
    TRY(run_memory_take(s->run->buffers, bytes, &s->scratch));
    s->scratch_bytes = bytes;
    return NULL;
}

static Status run_kernel(State *s, const Step *step) {
    const RegionKernel *region = &step->region;
    void *few[64], **buffers = few;
    if (region->buffer_count > 64) buffers = ARENA_ARRAY(s->memory, void *, region->buffer_count);
    for (int b = 0; b < region->buffer_count; b++)
        buffers[b] = s->data[region->buffer_input[b] >= 0 ? step->inputs[region->buffer_input[b]]
                                                          : step->outputs[region->buffer_output[b]]];
    const int64_t *params = s->values + step->params_expr;
    const DeviceTable *table = s->plan->device->table;
    size_t scratch = table->kernel_scratch(s->plan->device, step->kernel, params);
    if (scratch) TRY(ensure_scratch(s, scratch));
    return table->launch(s->plan->device, NULL, step->kernel, buffers, params, s->values[step->work_expr], s->scratch);
}

static Status run_anchor(State *s, const Step *step) {
    Tensor tensors[16], output = tensor_at(s, step->outputs[0]);
    const Tensor *inputs[16];
    if (step->node->input_count > 16)
        return status_error(STATUS_FAULT, "an anchor of %d inputs", step->node->input_count);
    for (int i = 0; i < step->node->input_count; i++) {
        if (step->inputs[i] >= 0) tensors[i] = tensor_at(s, step->inputs[i]);
        inputs[i] = step->inputs[i] >= 0 ? &tensors[i] : NULL;
    }
    return status_at(
        s->plan->device->table->run_anchor(s->plan->device, NULL, step->anchor, inputs, s->symbols, &output),
        "node \"%s\" (%s)", node_origin_name(step->node), step->node->op);
}

static Status run_prim(State *s, const Step *step, Arena *arena) {
    int count = step->node->input_count;
    Tensor *tensors = ARENA_ARRAY(arena, Tensor, count), output = tensor_at(s, step->outputs[0]);
    const Tensor **inputs = ARENA_ARRAY(arena, const Tensor *, count);
    for (int i = 0; i < count; i++) {
        if (step->inputs[i] < 0) continue;
        tensors[i] = tensor_at(s, step->inputs[i]);
        inputs[i] = &tensors[i];
    }
    if (output.dtype != DT_STRING)
        return s->plan->device->table->run_prim(s->plan->device, NULL, step->node, inputs, s->symbols, &output, arena);
    Tensor *made;
    TRY(eval_prim(step->node, (Tensor *const *)inputs, s->symbols, arena, &made));
    Item item = {.kind = ITEM_TENSOR, .tensor = *made};
    return keep_strings(s, step->outputs[0], &item);
}

static Status run_resolve(State *s, const Step *step, Arena *arena) {
    Tensor from = tensor_at(s, step->inputs[0]), to = tensor_at(s, step->outputs[0]);
    if (to.dtype == DT_STRING) return run_prim(s, step, arena);
    const Slot *slot = slot_at(s, step->outputs[0]);
    if (tensor_same_shape(&from, &to) && slot->storage == STORE_PLANNED && slot->output < 0) {
        s->data[step->outputs[0]] = from.data; /* the planner has extended the life of that memory */
        return NULL;
    }
    Status status = move_broadcast(&from, &to, s->plan->device->pool);
    return status_at(status, "node \"%s\"", node_origin_name(step->node));
}

static Status run_dims(State *s, const Step *step) {
    const Slot *slot = slot_at(s, step->outputs[0]);
    for (int i = 0; i < step->sizes_count; i++) {
        int64_t size = s->values[step->sizes_expr + i];
        if (size == UNBOUND_DIM)
            return status_error(STATUS_INVALID, "node \"%s\": a size cannot be computed from these inputs",
                                node_origin_name(step->node));
        dtype_store_int(slot->value->dtype, s->data[step->outputs[0]], i, size);
    }
    return NULL;
}

static Status run_bind(State *s, const Step *step) {
    Tensor sizes = tensor_at(s, step->inputs[0]);
    if (tensor_count(&sizes) != step->sizes_count)
        return status_error(STATUS_INVALID, "node \"%s\": a shape of %lld sizes, expected %d",
                            node_origin_name(step->node), (long long)tensor_count(&sizes), step->sizes_count);
    for (int i = 0; i < step->sizes_count; i++)
        s->symbols[step->symbols[i]] = dtype_load_int(sizes.dtype, sizes.data, i);
    update_late(s);
    return NULL;
}

static bool allocates_itself(const State *s, const Step *step, int number) {
    return step->kind == STEP_HOST || step->kind == STEP_CONTROL || !is_tensor_slot(slot_at(s, number)) ||
           slot_at(s, number)->value->dtype == DT_STRING;
}

static Status take_step(State *s, const Step *step) {
    for (int i = 0; i < step->node->input_count; i++)
        if (step->inputs[i] >= 0) TRY(ready(s, step->inputs[i]));
    for (int o = 0; o < step->node->output_count; o++)
        if (step->outputs[o] >= 0 && !allocates_itself(s, step, step->outputs[o]))
            TRY(ensure_data(s, step->outputs[o]));
    switch (step->kind) {
    case STEP_KERNEL: return run_kernel(s, step);
    case STEP_ANCHOR: return run_anchor(s, step);
    case STEP_DIMS: return run_dims(s, step);
    case STEP_BIND: return run_bind(s, step);
    default: break;
    }
    Arena *arena = arena_create(0);
    if (!arena) return status_out_of_memory();
    jmp_buf guard;
    if (setjmp(guard)) {
        arena_destroy(arena);
        return status_out_of_memory();
    }
    arena_guard(arena, &guard);
    Status status = step->kind == STEP_HOST      ? run_host(s, step, arena)
                    : step->kind == STEP_CONTROL ? run_nested(s, step, arena)
                    : step->kind == STEP_RESOLVE ? run_resolve(s, step, arena)
                                                 : run_prim(s, step, arena);
    arena_destroy(arena);
    return status;
}

static const char *how_of(const State *s, const Step *step) {
    return step->kind == STEP_ANCHOR ? s->plan->device->table->anchor_how(step->anchor) : step_kind_name(step->kind);
}

static Status take_steps(State *s) {
    bool timed = s->run->profile || log_level() >= 2;
    for (int number = 0; number < s->plan->step_count; number++) {
        const Step *step = &s->plan->steps[number];
        double start = timed ? profile_now() : 0;
        TRY(take_step(s, step));
        if (timed) {
            double end = profile_now();
            int64_t bytes = step->kind == STEP_KERNEL ? s->values[step->moved_expr] : 0;
            int64_t work = step->kind == STEP_KERNEL ? s->values[step->work_expr] : 0;
            if (s->run->profile) profile_add(s->run->profile, step, how_of(s, step), start, end, bytes, work);
            LOG(2, "step %d %s %s %.1f us %.2f GB/s %s", number, how_of(s, step), step->node->op, end - start,
                bytes ? (double)bytes / (end - start) * 1e-3 : 0.0, node_origin_name(step->node));
        }
        for (int i = 0; i < step->die_count; i++) free_slot(s, step->dies[i]);
    }
    return NULL;
}

/* --- the frame around the steps
 * --------------------------------------------------------------------------------------- */
static Status check_tensor(const Value *v, const Item *item, const char *what) {
    if (!item || item->kind != ITEM_TENSOR)
        return status_error(STATUS_INVALID, "input \"%s\": a tensor is expected%s", v->name, what);
    if (v->dtype != DT_NONE && item->tensor.dtype != v->dtype)
        return status_error(STATUS_INVALID, "input \"%s\": %s is expected%s, %s was given", v->name,
                            dtype_onnx_name(v->dtype), what, dtype_onnx_name(item->tensor.dtype));
    return NULL;
}

/* Sequences and optionals: their tensors have the declared type and rank, and sizes of their own. */
static Status check_item(const Value *v, const Item *item) {
    bool sequence = v->kind == VALUE_SEQUENCE || v->kind == VALUE_OPTIONAL_SEQUENCE;
    if (v->kind == VALUE_TENSOR) return check_tensor(v, item, "");
    if (!item || item->kind == ITEM_NONE) {
        if (v->kind != VALUE_SEQUENCE) return NULL;
        return status_error(STATUS_INVALID, "input \"%s\": a sequence is expected", v->name);
    }
    if (sequence && item->kind != ITEM_SEQUENCE)
        return status_error(STATUS_INVALID, "input \"%s\": a sequence is expected", v->name);
    const Item *items = sequence ? item->items : item;
    for (int i = 0; i < (sequence ? item->count : 1); i++) {
        TRY(check_tensor(v, &items[i], sequence ? " in the sequence" : ""));
        if (v->rank >= 0 && items[i].tensor.rank != v->rank)
            return status_error(STATUS_INVALID, "input \"%s\": tensors of rank %d are expected, one has rank %d",
                                v->name, v->rank, items[i].tensor.rank);
    }
    return NULL;
}

static Status bind_inputs(State *s, const Item *const *inputs) {
    const Graph *graph = s->plan->graph;
    for (int i = 0; i < graph->inputs.count; i++) {
        const Value *v = graph->inputs.items[i];
        int number = s->plan->inputs[i];
        s->items[number] = inputs[i];
        TRY(check_item(v, inputs[i]));
        if (!is_tensor_slot(slot_at(s, number))) continue;
        const Tensor *t = &inputs[i]->tensor;
        TRY(bind_dims(graph->dims, v, t->rank, t->dims, s->symbols));
        s->data[number] = t->data;
    }
    return NULL;
}

/* Where results without elements are when there is no arena: a pointer that is not NULL. */
static _Alignas(64) char no_elements[64];

/* Every plan of a run, the iterations of loops among them, draws afresh: "$run" differs. */
enum { PLANS_A_RUN = 1000003 };

static Status prepare(State *s, const int64_t *outer, const Item *const *inputs) {
    const Plan *plan = s->plan;
    for (int i = 0; i < plan->symbol_count; i++) s->symbols[i] = outer ? outer[i] : UNBOUND_DIM;
    TRY(bind_inputs(s, inputs));
    TRY(sizes_get(plan, s->symbols, &s->sizes));
    s->values = s->sizes->values;
    if (plan->run_symbol >= 0)
        s->symbols[plan->run_symbol] =
            (int64_t)((s->run->run_number * PLANS_A_RUN + s->run->plans_run++) % LARGEST_SIZE);
    if (plan->late_exprs.count) {
        s->own_values = arena_copy(s->memory, s->sizes->values, sizeof(int64_t) * (size_t)plan->exprs.count);
        s->values = s->own_values;
        update_late(s);
    }
    s->arena = no_elements;
    if (s->sizes->arena_bytes) {
        void *arena;
        TRY(run_memory_take(s->run->buffers, s->sizes->arena_bytes, &arena));
        s->arena = arena;
        size_t before = atomic_load(s->run->peak_arena);
        if (before < s->sizes->arena_bytes) atomic_store(s->run->peak_arena, s->sizes->arena_bytes);
    }
    for (int i = 0; i < plan->slot_count; i++) {
        const Slot *slot = &plan->slots[i];
        if (slot->storage == STORE_CONSTANT && is_tensor_slot(slot)) s->data[i] = slot->value->constant->data;
        if (slot->storage != STORE_PLANNED) continue;
        if (slot->output >= 0)
            TRY(allocate_output(s, i, slot->value->rank, dims_of(s, i)));
        else
            s->data[i] = s->arena + s->sizes->offsets[i];
    }
    return NULL;
}

/* Outputs that are no slot's own memory (inputs, constants, one value twice) are copied; all get the dims of their own
 * value. */
static Status finish_output(State *s, int o) {
    const Plan *plan = s->plan;
    int number = plan->outputs[o];
    const Slot *slot = slot_at(s, number);
    RunOutput *output = &s->outputs[o];
    TRY(ready(s, number));
    Item storage;
    const Slot *root = slot_at(s, slot->root);
    if (root->output != o) {
        const Item *from =
            root->output >= 0 && !is_tensor_slot(slot) ? &s->outputs[root->output].item : item_at(s, number, &storage);
        static const Item absent = {.kind = ITEM_NONE};
        if (!from) from = &absent;
        if (!output->given) return item_copy(s->run->memory, from, &output->item);
        if (from->kind != ITEM_TENSOR || tensor_bytes(&from->tensor) != tensor_bytes(&output->item.tensor) ||
            from->tensor.dtype == DT_STRING)
            return status_error(STATUS_INVALID, "output \"%s\": the given buffer does not fit",
                                plan->graph->output_names.items[o]);
        if (tensor_bytes(&from->tensor))
            memcpy(output->item.tensor.data, from->tensor.data, tensor_bytes(&from->tensor));
    }
    if (!is_tensor_slot(slot)) return NULL;
    Tensor *t = &output->item.tensor;
    const int64_t *dims = dims_of(s, number);
    if (output->given) {
        bool same =
            t->rank == slot->value->rank && (!t->rank || memcmp(t->dims, dims, sizeof *dims * (size_t)t->rank) == 0);
        if (!same)
            return status_error(STATUS_INVALID, "output \"%s\": the given buffer has another shape than the result",
                                plan->graph->output_names.items[o]);
    }
    t->rank = slot->value->rank;
    if (t->rank) memcpy(t->dims, dims, sizeof *dims * (size_t)t->rank);
    return NULL;
}

static Status run_state(State *s, const int64_t *outer, const Item *const *inputs) {
    TRY(prepare(s, outer, inputs));
    TRY(take_steps(s));
    for (int o = 0; o < s->plan->graph->outputs.count; o++) TRY(finish_output(s, o));
    return NULL;
}

static void release_state(State *s) {
    for (int i = 0; i < s->plan->slot_count; i++) free_slot(s, i);
    if (s->arena != no_elements) run_memory_give(s->run->buffers, s->arena);
    run_memory_give(s->run->buffers, s->scratch);
    if (s->sizes) sizes_release(s->plan, s->sizes);
    arena_destroy(s->memory);
}

enum { DEEPEST_NESTING = 64 };

Status plan_run(const Plan *plan, Run *run, const int64_t *outer, const Item *const *inputs, RunOutput *outputs) {
    if (run->depth >= DEEPEST_NESTING)
        return status_error(STATUS_UNSUPPORTED, "control flow nested deeper than %d", DEEPEST_NESTING);
    Arena *memory = arena_create(0);
    if (!memory) return status_out_of_memory();
    jmp_buf guard;
    if (setjmp(guard)) {
        arena_destroy(memory);
        return status_out_of_memory();
    }
    arena_guard(memory, &guard);
    State s = {.plan = plan, .run = run, .outputs = outputs, .memory = memory};
    s.symbols = ARENA_ARRAY(memory, int64_t, plan->symbol_count);
    s.data = ARENA_ARRAY(memory, void *, plan->slot_count);
    s.items = ARENA_ARRAY(memory, const Item *, plan->slot_count);
    s.owned = ARENA_ARRAY(memory, Item, plan->slot_count);
    run->depth++;
    Status status = run_state(&s, outer, inputs);
    run->depth--;
    release_state(&s);
    if (status)
        for (int o = 0; o < plan->graph->outputs.count; o++)
            if (!outputs[o].given) item_free(run->memory, &outputs[o].item);
    return status;
}
