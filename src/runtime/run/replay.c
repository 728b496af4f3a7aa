/* SPDX-License-Identifier: Apache-2.0 */
/* Replays: chosen and made (from the second run of the same shapes on), run, recorded. */
#include "runtime/run/replay.h"

#include <stdlib.h>

#include "base/log.h"
#include "runtime/plan/recordings.h"

/* --- choosing --- */
static Sizes *sizes_of(const State *s) { return (Sizes *)(uintptr_t)s->sizes; }

static int given_count(const State *s) { return s->plan->graph->inputs.count + s->plan->graph->outputs.count; }

/* The caller's device memory of this run; NULL: none. */
static void **given_addresses(State *s) {
    const Graph *graph = s->plan->graph;
    int count = 0;
    if (!s->given && !s->output_on_device) return NULL;
    void **given = ARENA_ARRAY(s->memory, void *, given_count(s));
    for (int i = 0; i < graph->inputs.count; i++) given[count++] = s->given ? s->given[s->plan->inputs[i]] : NULL;
    for (int o = 0; o < graph->outputs.count; o++)
        given[count++] = is_device_output(s, o) ? s->outputs[o].item.tensor.data : NULL;
    return given;
}

/* 0 for none; FNV-1a over the addresses, by words. */
static unsigned long long hash_of(void *const *given, int count) {
    unsigned long long hash = 0xcbf29ce484222325u;
    for (int i = 0; given && i < count; i++) hash = (hash ^ (uintptr_t)given[i]) * 0x100000001b3u;
    return given ? hash | 1 : 0;
}

/* Whether these sizes were used before, with the same memory of the caller's: who gives other memory each time gains
 * nothing by a recording. */
static bool comes_again(Sizes *sizes, unsigned long long hash) {
    bool used = atomic_fetch_add(&sizes->uses, 1) > 0;
    unsigned long long before = atomic_exchange(&sizes->addresses, hash);
    return used && (!hash || hash == before);
}

static void *copy_of(const void *data, size_t bytes) {
    void *copy = malloc(bytes ? bytes : 1);
    if (copy && bytes) memcpy(copy, data, bytes);
    return copy;
}

/* Stream and memory; what is there of them when something fails is freed by destroy. */
static Status equip(const State *s, Recording *r, void *const *given) {
    Device *device = s->plan->device;
    const Plan *plan = s->plan;
    int around = plan->recorded_first + plan->step_count - plan->recorded_end;
    r->positions = calloc((size_t)(around + 2 * plan->graph->outputs.count) + 1, sizeof *r->positions);
    if (given) r->given = copy_of(given, sizeof *given * (size_t)given_count(s));
    if (!r->positions || (given && !r->given)) return status_out_of_memory();
    TRY(device->table->stream_create(device, &r->stream));
    return r->bytes ? run_memory_take(s->run->buffers, PLACE_DEVICE, r->bytes, &r->arena) : NULL;
}

static void use(State *s, Recording *r) {
    s->replay = r;
    s->recorded = r->recording != NULL;
    s->plain_stream = s->run->stream;
    s->run->stream = r->stream;
    s->arenas[PLACE_DEVICE] = r->arena;
    s->scratch[PLACE_DEVICE] = r->scratch;
}

static void give_up(State *s, Recording *r, Status reason) {
    struct Recordings *all = s->plan->recordings;
    LOG(1, "runs of these shapes are not replayed: %s", status_message(reason));
    status_free(reason);
    atomic_store(&sizes_of(s)->impossible, true);
    if (r) recordings_drop(all, s->plan->device, r);
}

/* Without one the run goes its plain way, and says itself what is wrong with the device. */
static void make_one(State *s, void *const *given) {
    struct Recordings *all = s->plan->recordings;
    Recording *r = calloc(1, sizeof *r);
    if (!r) return;
    *r = (Recording){.sizes = s->sizes->id, .busy = true, .bytes = s->sizes->arena_bytes[PLACE_DEVICE]};
    if (!recordings_enter(all, s->plan->device, sizes_of(s), r)) {
        free(r);
        return;
    }
    Status status = equip(s, r, given);
    if (status)
        give_up(s, r, status);
    else
        use(s, r);
}

void replay_choose(State *s) {
    struct Recordings *all = s->plan->recordings;
    if (!all || s->watch || s->sizes->alone || s->run->profile || log_level() >= 2 ||
        atomic_load(&s->sizes->impossible))
        return;
    void **given = given_addresses(s);
    int count = given_count(s);
    bool again = comes_again(sizes_of(s), hash_of(given, count));
    Recording *r = recordings_take(all, s->sizes->id, given, count);
    if (r)
        use(s, r);
    else if (again)
        make_one(s, given);
}

/* --- running --- */
/* The caller's memory for results is where it was, but it may have become smaller. */
static Status check_given_outputs(State *s) {
    for (int o = 0; s->output_on_device && o < s->plan->graph->outputs.count; o++) {
        int there = s->plan->device_outputs[o], root = there < 0 ? -1 : slot_at(s, there)->root;
        if (root >= 0 && slot_at(s, root)->storage == STORE_PLANNED) TRY(place_planned(s, root));
    }
    return NULL;
}

Status replay_places(State *s) {
    const Recording *r = s->replay;
    TRY(check_given_outputs(s));
    for (int i = 0; i < r->position_count; i++) s->data[r->positions[i].slot] = r->positions[i].data;
    return NULL;
}

static Status replay(State *s) {
    Device *device = s->plan->device;
    if (s->run->stop) TRY(stop_status(s->run->stop));
    s->run->busy = true;
    return device->table->replay(device, s->replay->stream, s->replay->recording);
}

Status replay_steps(State *s) {
    const Plan *plan = s->plan;
    TRY(take_steps(s, 0, plan->recorded_first));
    TRY(s->recorded ? replay(s) : take_steps(s, plan->recorded_first, plan->recorded_end));
    return take_steps(s, plan->recorded_end, plan->step_count);
}

/* --- recording --- */
/* Scratch that a step needs now it needed before, so it has not changed. */
static Status record_steps(State *s) {
    const Plan *plan = s->plan;
    const void *scratch = s->scratch[PLACE_DEVICE].data;
    TRY(take_steps(s, plan->recorded_first, plan->recorded_end));
    return s->scratch[PLACE_DEVICE].data == scratch ? NULL : status_error(STATUS_FAULT, "a step took more memory");
}

static Status record_guarded(State *s) {
    jmp_buf guard;
    Status status = NULL;
    if (setjmp(guard)) {
        status = status_out_of_memory();
    } else {
        arena_guard(s->memory, &guard);
        status = record_steps(s);
    }
    arena_guard(s->memory, NULL); /* the run is over: nothing is allocated there any more */
    return status;
}

static Status record(State *s) {
    Recording *r = s->replay;
    Device *device = s->plan->device;
    TRY(device->table->record_begin(device, r->stream));
    Status status = record_guarded(s);
    s->run->busy = false;
    if (!status) return device->table->record_end(device, r->stream, &r->recording);
    device->table->record_abandon(device, r->stream);
    return status;
}

static void keep_position(const State *s, Recording *r, int slot) {
    if (slot_at(s, slot)->storage != STORE_CONSTANT)
        r->positions[r->position_count++] = (Position){slot, s->data[slot]};
}

static void keep_positions(const State *s, Recording *r) {
    const Plan *plan = s->plan;
    for (int n = 0; n < plan->step_count; n++) {
        const Step *step = &plan->steps[n];
        bool around = n < plan->recorded_first || n >= plan->recorded_end;
        if (!around || step->kind != STEP_COPY) continue;
        bool in = slot_at(s, step->outputs[0])->place == PLACE_DEVICE;
        keep_position(s, r, in ? step->outputs[0] : step->inputs[0]);
    }
    for (int o = 0; o < plan->graph->outputs.count; o++) {
        int there = plan->device_outputs[o];
        if (there < 0) continue;
        keep_position(s, r, slot_at(s, there)->root);
        keep_position(s, r, there);
    }
}

void replay_record(State *s) {
    Recording *r = s->replay;
    if (!r || r->recording) return;
    Stop *stop = s->run->stop;
    keep_positions(s, r);
    s->run->stop = NULL; /* its results are there: what ends the run must not spoil the recording */
    Status status = record(s);
    s->run->stop = stop;
    if (status) give_up(s, NULL, status);
}

void replay_give_back(State *s, Status failure) {
    Recording *r = s->replay;
    struct Recordings *all = s->plan->recordings;
    if (!r) return;
    /* The memory of a Replay may be what was too much; wrong inputs are no reason. */
    if (status_code(failure) == STATUS_FAULT && !r->recording) atomic_store(&sizes_of(s)->impossible, true);
    r->scratch = s->scratch[PLACE_DEVICE];
    s->scratch[PLACE_DEVICE] = s->arenas[PLACE_DEVICE] = (Block){0};
    s->run->stream = s->plain_stream;
    s->replay = NULL;
    recordings_give(all, s->plan->device, r, !failure);
}
