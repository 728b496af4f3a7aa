/* SPDX-License-Identifier: Apache-2.0 */
/* Runs a plan: binds the inputs' sizes, finds each slot's memory, then takes the steps one after the other. */
#include "runtime/run/state.h"

#include "base/log.h"
#include "graph/eval/eval.h"
#include "graph/maps/map_value.h"
#include "runtime/device/host_movement.h"
#include "runtime/plan/recordings.h"
#include "runtime/run/replay.h"

/* --- the other steps
 * --------------------------------------------------------------------------------------------------- */
Status take_block(State *s, Place place, size_t bytes, Block *out_block) {
    Status status = run_memory_take(s->run->buffers, place, bytes, out_block);
    if (!status || place == PLACE_HOST || !recordings_trim(s->run->recordings, s->plan->device)) return status;
    status_free(status);
    return run_memory_take(s->run->buffers, place, bytes, out_block);
}

/* Launches on a device follow each other, so they share scratch memory; but what has become too small is kept until
 * they are done. */
typedef struct Launch {
    State *state;
    Place place;
} Launch;

static Status take_scratch(void *owner, size_t bytes, void **out_data) {
    State *s = ((const Launch *)owner)->state;
    Place place = ((const Launch *)owner)->place;
    Block *scratch = &s->scratch[place];
    *out_data = scratch->data;
    if (bytes <= scratch->bytes) return NULL;
    if (place == PLACE_HOST)
        run_memory_give(s->run->buffers, place, *scratch);
    else if (scratch->data)
        VEC_PUSH(s->memory, s->outgrown, *scratch);
    *scratch = (Block){0};
    TRY(take_block(s, place, bytes, scratch));
    *out_data = scratch->data;
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
    Launch launch = {s, step->place};
    const Workspace workspace = {take_scratch, &launch};
    return step->on->table->launch(step->on, stream_of(s, step), step->kernel, buffers, params,
                                   s->values[step->work_expr], &workspace);
}

/* What an anchor is given. */
enum { MOST_INPUTS = 16 }; /* EPILOGUE_INPUTS and what anchors have besides */
typedef struct AnchorCall {
    Tensor tensors[MOST_INPUTS], outputs[EPILOGUE_OUTPUTS];
    const Tensor *inputs[MOST_INPUTS];
    AnchorFinish finish;
} AnchorCall;

static Status make_call(const State *s, const Step *step, AnchorCall *call) {
    const Node *node = step->node;
    if (node->input_count > MOST_INPUTS || node->output_count > EPILOGUE_OUTPUTS)
        return status_error(STATUS_FAULT, "an anchor of %d inputs and %d outputs", node->input_count,
                            node->output_count);
    for (int o = 0; o < node->output_count; o++) tensor_at(s, step->outputs[o], &call->outputs[o]);
    for (int i = 0; i < node->input_count; i++) {
        if (step->inputs[i] >= 0) tensor_at(s, step->inputs[i], &call->tensors[i]);
        call->inputs[i] = step->inputs[i] >= 0 ? &call->tensors[i] : NULL;
    }
    call->finish = (AnchorFinish){&step->region, step->kernel};
    return NULL;
}

static const AnchorFinish *finish_of(const Step *step, const AnchorCall *call) {
    return step->kernel ? &call->finish : NULL;
}

static Status anchor_failed(const Step *step, Status status) {
    return status ? status_at(status, "node \"%s\" (%s)", node_origin_name(step->node), step->node->op) : NULL;
}

static Status run_behind(State *s, const Step *step, const Step *maker, const AnchorCall *call, Tensor *outputs) {
    AnchorCall before;
    TRY(make_call(s, maker, &before));
    const AnchorPrologue prologue = {maker->anchor, finish_of(maker, &before), before.inputs, maker->input_count,
                                     before.outputs};
    return step->on->table->run_behind(step->on, stream_of(s, step), &prologue, step->anchor, finish_of(step, call),
                                       call->inputs, s->symbols, outputs);
}

/* Who shows values wants all of them. */
static const Step *prologue_of(const State *s, const Step *step) {
    if (step->prologue < 0 || s->watch) return NULL;
    Tensor between;
    tensor_at(s, step->inputs[0], &between);
    return plan_prologue(s->plan, step, &between);
}

static bool runs_within(const State *s, const Step *step) {
    return step->within >= 0 && prologue_of(s, &s->plan->steps[step->within]);
}

static Status run_anchor(State *s, const Step *step, const Step *prologue) {
    AnchorCall call;
    TRY(make_call(s, step, &call));
    if (prologue) return anchor_failed(step, run_behind(s, step, prologue, &call, call.outputs));
    return anchor_failed(step,
                         step->on->table->run_anchor(step->on, stream_of(s, step), step->anchor, finish_of(step, &call),
                                                     call.inputs, s->symbols, call.outputs));
}

static Status run_prim(State *s, const Step *step, Arena *arena) {
    int count = step->node->input_count;
    Tensor *tensors = ARENA_ARRAY(arena, Tensor, count), output;
    tensor_at(s, step->outputs[0], &output);
    const Tensor **inputs = ARENA_ARRAY(arena, const Tensor *, count);
    for (int i = 0; i < count; i++) {
        if (step->inputs[i] < 0) continue;
        tensor_at(s, step->inputs[i], &tensors[i]);
        inputs[i] = &tensors[i];
    }
    if (output.dtype != DT_STRING)
        return step->on->table->run_prim(step->on, stream_of(s, step), step->node, inputs, s->symbols, &output, arena);
    Tensor *made;
    TRY(eval_prim(step->node, (Tensor *const *)inputs, s->symbols, arena, &made));
    Item item = {.kind = ITEM_TENSOR, .tensor = *made};
    return keep_strings(s, step->outputs[0], &item);
}

static Status run_resolve(State *s, const Step *step, Arena *arena) {
    Tensor from, to;
    tensor_at(s, step->inputs[0], &from);
    tensor_at(s, step->outputs[0], &to);
    if (to.dtype == DT_STRING) return run_prim(s, step, arena);
    const Slot *slot = slot_at(s, step->outputs[0]);
    if (tensor_same_shape(&from, &to) && slot->storage == STORE_PLANNED && slot->output < 0 && !given_output(s, slot)) {
        s->data[step->outputs[0]] = from.data; /* the planner has extended the life of that memory */
        return NULL;
    }
    if (step->place == PLACE_DEVICE || step->node->prim != PRIM_EXPAND) return run_prim(s, step, arena);
    Status status = move_broadcast(&from, &to, step->on->pool);
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
    Tensor sizes;
    tensor_at(s, step->inputs[0], &sizes);
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

static Status make_ready(State *s, const Step *step) {
    for (int i = 0; i < step->input_count; i++)
        if (step->inputs[i] >= 0) TRY(ready(s, step->inputs[i]));
    return NULL;
}

static Status take_step(State *s, const Step *step) {
    if (step->kind == STEP_COPY) return run_copy(s, step);
    const Step *prologue = prologue_of(s, step);
    if (runs_within(s, step)) return NULL;
    if (step->waits) TRY(wait_for_device(s));
    s->run->busy |= step->place == PLACE_DEVICE;
    if (prologue) TRY(make_ready(s, prologue));
    TRY(make_ready(s, step));
    for (int o = 0; o < step->output_count; o++)
        if (step->outputs[o] >= 0 && !s->data[step->outputs[o]] && !allocates_itself(s, step, step->outputs[o]))
            TRY(ensure_data(s, step->outputs[o]));
    switch (step->kind) {
    case STEP_KERNEL: return run_kernel(s, step);
    case STEP_ANCHOR: return run_anchor(s, step, prologue);
    case STEP_DIMS: return run_dims(s, step);
    case STEP_BIND: return run_bind(s, step);
    default: break;
    }
    Arena *arena = run_memory_take_arena(s->run->buffers);
    if (!arena) return status_out_of_memory();
    jmp_buf guard;
    if (setjmp(guard)) {
        run_memory_give_arena(s->run->buffers, arena);
        return status_out_of_memory();
    }
    arena_guard(arena, &guard);
    Status status = step->kind == STEP_HOST      ? run_host_step(s, step, arena)
                    : step->kind == STEP_CONTROL ? run_nested_step(s, step, arena)
                    : step->kind == STEP_RESOLVE ? run_resolve(s, step, arena)
                                                 : run_prim(s, step, arena);
    run_memory_give_arena(s->run->buffers, arena);
    return status;
}

/* --- timing --- */
static const char *how_of(const Step *step) {
    return step->kind == STEP_ANCHOR ? step->on->table->anchor_how(step->anchor) : step_kind_name(step->kind);
}

static void record(const State *s, const Step *step, double start, double end) {
    if (runs_within(s, step)) return;
    Cost cost;
    step_cost(s->plan, step, s->symbols, &cost);
    const char *name = step_name(s->plan, step), *how = how_of(step);
    if (s->run->profile) profile_add(s->run->profile, step, name, how, start, end, &cost);
    LOG(2, "step %d %s %s %.1f us %.2f GB/s %s", (int)(step - s->plan->steps), how, name, end - start,
        cost_bytes(&cost) / (end - start) * 1e-3, node_origin_name(step->node));
}

/* A device does its work later: for times that are true, each of its steps is waited for. So a profile shows what the
 * steps take, not how they overlap. */
static Status take_timed(State *s, const Step *step) {
    double start = profile_now();
    TRY(take_step(s, step));
    if (step->place == PLACE_DEVICE) TRY(wait_for_device(s));
    record(s, step, start, profile_now());
    return NULL;
}

/* Loops on the CPU end between pieces. What such a loop leaves goes nowhere: the status says why. A device's steps are
 * handed over whole, and its host loops prepare programs that others may wait for. */
static Status take_stoppable(State *s, const Step *step, bool timed) {
    Stop *stop = s->run->stop;
    TRY(stop_status(stop));
    pool_stop_with(step->place == PLACE_HOST ? stop : NULL);
    Status status = timed ? take_timed(s, step) : take_step(s, step);
    pool_stop_with(NULL);
    if (!stop_is_reached(stop)) return status;
    status_free(status);
    return stop_status(stop);
}

Status take_steps(State *s, int first, int end) {
    bool timed = s->run->profile || log_level() >= 2;
    for (int number = first; number < end; number++) {
        const Step *step = &s->plan->steps[number];
        bool last = number >= s->plan->last_writes;
        TRY(s->run->stop && !last ? take_stoppable(s, step, timed) : timed ? take_timed(s, step) : take_step(s, step));
        if (s->watch && !last) TRY(watch_step(s, step));
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

/* A recorded map without entries does not say of what type its values are. */
static Status check_map(const Value *v, const Item *item, const char *what) {
    if (!item || item->kind != ITEM_MAP)
        return status_error(STATUS_INVALID, "input \"%s\": a map is expected%s", v->name, what);
    DType key = map_keys(item)->dtype, value = map_values(item)->dtype;
    if (key == v->key && (value == v->dtype || !tensor_count(map_values(item)))) return NULL;
    return status_error(STATUS_INVALID, "input \"%s\": a map from %s to %s is expected%s, one from %s to %s was given",
                        v->name, dtype_onnx_name(v->key), dtype_onnx_name(v->dtype), what, dtype_onnx_name(key),
                        dtype_onnx_name(value));
}

/* Sequences and optionals: their tensors have the declared type and rank, and sizes of their own. nested: of a body or branch, where
 * the gradient of a sequence has no tensor where it is zero. */
static Status check_item(const Value *v, const Item *item, bool nested) {
    bool needed = v->kind == VALUE_SEQUENCE || v->kind == VALUE_MAP_SEQUENCE,
         sequence = needed || v->kind == VALUE_OPTIONAL_SEQUENCE;
    if (v->kind == VALUE_TENSOR) return check_tensor(v, item, "");
    if (v->kind == VALUE_MAP) return check_map(v, item, "");
    if (!item || item->kind == ITEM_NONE) {
        if (!needed) return NULL;
        return status_error(STATUS_INVALID, "input \"%s\": a sequence is expected", v->name);
    }
    if (sequence && item->kind != ITEM_SEQUENCE)
        return status_error(STATUS_INVALID, "input \"%s\": a sequence is expected", v->name);
    const Item *items = sequence ? item->items : item;
    for (int i = 0; i < (sequence ? item->count : 1); i++) {
        if (v->kind == VALUE_MAP_SEQUENCE) {
            TRY(check_map(v, &items[i], " in the sequence"));
            continue;
        }
        if (nested && sequence && items[i].kind == ITEM_NONE) continue;
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
        TRY(check_item(v, inputs[i], s->run->depth > 1));
        bool on_device = s->input_on_device && s->input_on_device[i];
        if (on_device && (v->kind != VALUE_TENSOR || v->dtype == DT_STRING))
            return status_error(STATUS_INVALID, "input \"%s\": only tensors of numbers can be in device memory",
                                v->name);
        if (!is_tensor_slot(slot_at(s, number))) continue;
        const Tensor *t = &inputs[i]->tensor;
        TRY(bind_dims(graph->dims, v, t->rank, t->dims, s->symbols));
        s->data[number] = t->data;
        if (on_device) TRY(bind_device_input(s, number, inputs[i]));
    }
    return wait_for_device(s);
}

/* Where results without elements are when there is no arena: a pointer that is not NULL. */
static _Alignas(64) char no_elements[64];

/* Every plan of a run, the iterations of loops among them, draws afresh: "$run" differs. */
enum { PLANS_A_RUN = 1000003 };

static Status take_arenas(State *s) {
    size_t all = 0, before = atomic_load(s->run->peak_arena);
    s->arenas[PLACE_HOST].data = no_elements;
    for (int place = 0; place < PLACES; place++) {
        size_t bytes = s->sizes->arena_bytes[place];
        if (bytes && !s->arenas[place].bytes) TRY(take_block(s, (Place)place, bytes, &s->arenas[place]));
        all += bytes;
    }
    if (before < all) atomic_store(s->run->peak_arena, all);
    return NULL;
}

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
    replay_choose(s);
    TRY(take_arenas(s));
    for (int i = 0; i < plan->planned[PLACE_HOST].count; i++) TRY(place_planned(s, plan->planned[PLACE_HOST].items[i]));
    if (replay_is_recorded(s)) return replay_places(s);
    for (int i = 0; i < plan->planned[PLACE_DEVICE].count; i++)
        TRY(place_planned(s, plan->planned[PLACE_DEVICE].items[i]));
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
    if (is_device_output(s, o)) {
        TRY(finish_device_output(s, o));
    } else if (root->output != o) {
        const Item *from =
            root->output >= 0 && !is_tensor_slot(slot) ? &s->outputs[root->output].item : item_at(s, number, &storage);
        static const Item absent = {.kind = ITEM_NONE};
        Item *own = dying_output(s, number);
        if (own && from == own && !output->given) {
            output->item = *own;
            *own = absent;
            return NULL;
        }
        if (!from) from = &absent;
        if (!output->given) return item_copy(s->run->memory, from, &output->item);
        if (from->kind != ITEM_TENSOR || tensor_bytes(&from->tensor) != tensor_bytes(&output->item.tensor) ||
            from->tensor.dtype == DT_STRING)
            return status_error(STATUS_INVALID, "output \"%s\": the given buffer does not fit",
                                plan->graph->output_names.items[o]);
        if (tensor_bytes(&from->tensor) && output->item.tensor.data != from->tensor.data)
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
    if (s->watch) TRY(watch_inputs(s));
    TRY(s->replay ? replay_steps(s) : take_steps(s, 0, s->plan->step_count));
    TRY(wait_for_device(s));
    for (int o = 0; o < s->plan->graph->outputs.count; o++) TRY(finish_output(s, o));
    return NULL;
}

/* The device's work is done by now: memory that it used may go to other runs. */
static void release_state(State *s, Status failure) {
    struct RunMemory *buffers = s->run->buffers;
    for (int i = 0; i < s->plan->owned.count; i++) free_slot(s, s->plan->owned.items[i]);
    replay_give_back(s, failure);
    if (s->arenas[PLACE_HOST].data == no_elements) s->arenas[PLACE_HOST] = (Block){0};
    for (int place = 0; place < PLACES; place++) {
        run_memory_give(buffers, (Place)place, s->arenas[place]);
        run_memory_give(buffers, (Place)place, s->scratch[place]);
    }
    for (int i = 0; i < s->outgrown.count; i++) run_memory_give(buffers, PLACE_DEVICE, s->outgrown.items[i]);
    free_staged(s);
    if (s->sizes) sizes_release(s->plan, s->sizes);
}

static State *new_state(const Plan *plan, Run *run, RunOutput *outputs, Arena *memory) {
    State *s = ARENA_NEW(memory, State);
    *s = (State){.plan = plan, .run = run, .outputs = outputs, .memory = memory};
    s->symbols = ARENA_ARRAY(memory, int64_t, plan->symbol_count);
    s->data = arena_copy(memory, plan->constants, sizeof *s->data * (size_t)plan->slot_count);
    s->items = ARENA_ARRAY(memory, const Item *, plan->slot_count);
    if (plan->has_items) s->owned = ARENA_ARRAY(memory, Item, plan->slot_count);
    if (run->depth == 1) {
        s->input_on_device = run->input_on_device;
        s->output_on_device = run->output_on_device;
    }
    return s;
}

/* The first failure counts; a wait is also needed after one. */
static Status wait_after(State *s, Status status) {
    Status waited = wait_for_device(s);
    if (!status) return waited;
    status_free(waited);
    return status;
}

static Status run_with_memory(const Plan *plan, Run *run, const int64_t *outer, const Item *const *inputs,
                              Item *const *given_up, RunOutput *outputs, Arena *memory) {
    State *volatile state = NULL;
    jmp_buf guard;
    Status status;
    if (setjmp(guard)) {
        status = status_out_of_memory();
    } else {
        arena_guard(memory, &guard);
        state = new_state(plan, run, outputs, memory);
        state->given_up = given_up;
        if (run->observer) watch_begin(state);
        status = run_state(state, outer, inputs);
    }
    if (!state) return status;
    status = wait_after(state, status);
    if (!status) replay_record(state);
    release_state(state, status);
    return status;
}

enum { DEEPEST_NESTING = 64 };

Status plan_run(const Plan *plan, Run *run, const int64_t *outer, const Item *const *inputs, RunOutput *outputs) {
    return plan_run_taking(plan, run, outer, inputs, NULL, outputs);
}

Status plan_run_taking(const Plan *plan, Run *run, const int64_t *outer, const Item *const *inputs,
                       Item *const *given_up, RunOutput *outputs) {
    if (run->depth >= DEEPEST_NESTING)
        return status_error(STATUS_UNSUPPORTED, "control flow nested deeper than %d", DEEPEST_NESTING);
    bool outermost = run->depth == 0;
    if (outermost && plan->device != plan->host) TRY(run_memory_take_stream(run->buffers, &run->stream));
    if (outermost) run->recordings = plan->recordings;
    Arena *memory = run_memory_take_arena(run->buffers);
    run->depth++;
    Status status =
        memory ? run_with_memory(plan, run, outer, inputs, given_up, outputs, memory) : status_out_of_memory();
    run->depth--;
    run_memory_give_arena(run->buffers, memory);
    if (outermost) {
        run_memory_give_stream(run->buffers, run->stream, !status);
        run->stream = NULL;
    }
    if (status)
        for (int o = 0; o < plan->graph->outputs.count; o++)
            if (!outputs[o].given) item_free(run->memory, &outputs[o].item);
    return status;
}
