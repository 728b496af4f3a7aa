/* Replays: chosen and made (from the second run of the same shapes on), recorded, kept within bounds. */
#include "runtime/run/replay.h"

#include <pthread.h>
#include <stdlib.h>

#include "base/log.h"

/* A recording costs about what a few runs cost, so a second one for the same shapes is made only after the first was
 * found busy CROWDED times. */
enum { MOST_REPLAYS = 16, MOST_FOR_SIZES = 2, CROWDED = 8 };
/* Of all arenas together, but that the newest may be of any size: the larger the tensors, the less a launch costs. */
static const size_t most_bytes = (size_t)1 << 30;

typedef struct Position {
    int slot;
    void *data;
} Position;

typedef struct Replay {
    uint64_t sizes; /* id of the sizes that it holds for */
    uint64_t age;   /* of the latest use */
    size_t bytes;   /* of the arena */
    bool busy, doomed;
    Stream *stream;
    Block arena, scratch;
    DeviceRecording *recording; /* NULL: none yet */
    Position *positions;        /* [position_count] of the device slots that the steps around the recording need */
    int position_count;
    void **given; /* [inputs + outputs] the caller's device memory; NULL: none */
} Replay;

struct Replays {
    pthread_mutex_t lock;
    Replay *items[MOST_REPLAYS];
    uint64_t clock;
};

struct Replays *replays_create(void) {
    struct Replays *replays = calloc(1, sizeof *replays);
    if (replays) pthread_mutex_init(&replays->lock, NULL);
    return replays;
}

static void destroy(Replay *r, Device *device) {
    const DeviceTable *table = device->table;
    if (!r) return;
    table->stream_destroy(device, r->stream); /* waits */
    table->record_free(device, r->recording);
    table->release(device, NULL, NULL, r->arena.data);
    table->release(device, NULL, NULL, r->scratch.data);
    free(r->positions);
    free(r->given);
    free(r);
}

/* --- the set, with its lock held -----------------------------------------------------------------------------------
 */
static void take_out(struct Replays *all, const Replay *r) {
    for (int i = 0; i < MOST_REPLAYS; i++)
        if (all->items[i] == r) all->items[i] = NULL;
}

static int place_for_one(const struct Replays *all) {
    for (int i = 0; i < MOST_REPLAYS; i++)
        if (!all->items[i]) return i;
    return -1;
}

/* The idle one that was used longest ago; sizes 0: of any. */
static Replay *oldest(const struct Replays *all, uint64_t sizes) {
    Replay *found = NULL;
    for (int i = 0; i < MOST_REPLAYS; i++) {
        Replay *r = all->items[i];
        if (r && !r->busy && (!sizes || r->sizes == sizes) && (!found || r->age < found->age)) found = r;
    }
    return found;
}

static bool same_given(const Replay *r, void *const *given, int count) {
    if (!given || !r->given) return !given && !r->given;
    return memcmp(r->given, given, sizeof *given * (size_t)count) == 0;
}

static Replay *find_idle(const struct Replays *all, uint64_t sizes, void *const *given, int count) {
    for (int i = 0; i < MOST_REPLAYS; i++) {
        Replay *r = all->items[i];
        if (r && !r->busy && r->sizes == sizes && same_given(r, given, count)) return r;
    }
    return NULL;
}

typedef struct Evicted {
    Replay *items[MOST_REPLAYS];
    int count;
} Evicted;

static bool evict(struct Replays *all, Replay *r, Evicted *evicted) {
    if (!r) return false;
    take_out(all, r);
    evicted->items[evicted->count++] = r;
    return true;
}

static size_t bytes_of(const struct Replays *all) {
    size_t bytes = 0;
    for (int i = 0; i < MOST_REPLAYS; i++) bytes += all->items[i] ? all->items[i]->bytes : 0;
    return bytes;
}

/* Enters `made` for these sizes, where the bounds allow it. */
static bool enter(struct Replays *all, Sizes *sizes, Replay *made, Evicted *evicted) {
    int own = 0, busy = 0;
    for (int i = 0; i < MOST_REPLAYS; i++) {
        const Replay *r = all->items[i];
        own += r && r->sizes == sizes->id;
        busy += r && r->sizes == sizes->id && r->busy;
    }
    if (busy && atomic_fetch_add(&sizes->crowded, 1) + 1 < CROWDED) return false;
    if (own >= MOST_FOR_SIZES && !evict(all, oldest(all, sizes->id), evicted)) return false;
    if (place_for_one(all) < 0 && !evict(all, oldest(all, 0), evicted)) return false;
    while (bytes_of(all) + made->bytes > most_bytes && evict(all, oldest(all, 0), evicted)) continue;
    if (busy && bytes_of(all) + made->bytes > most_bytes) return false;
    atomic_store(&sizes->crowded, 0);
    all->items[place_for_one(all)] = made;
    return true;
}

/* --- freeing -------------------------------------------------------------------------------------------------------
 */
/* Takes out those that no run uses; sizes 0: of any. Those in use go when their run ends. */
static bool drop(struct Replays *all, Device *device, uint64_t sizes, bool doom) {
    Replay *dropped[MOST_REPLAYS];
    int count = 0;
    pthread_mutex_lock(&all->lock);
    for (int i = 0; i < MOST_REPLAYS; i++) {
        Replay *r = all->items[i];
        if (!r || (sizes && r->sizes != sizes)) continue;
        if (r->busy) {
            r->doomed |= doom;
        } else {
            dropped[count++] = r;
            all->items[i] = NULL;
        }
    }
    pthread_mutex_unlock(&all->lock);
    for (int i = 0; i < count; i++) destroy(dropped[i], device);
    return count > 0;
}

bool replays_trim(struct Replays *replays, Device *device) { return replays && drop(replays, device, 0, false); }

void replays_forget(struct Replays *replays, Device *device, uint64_t sizes) {
    if (replays) drop(replays, device, sizes, true);
}

void replays_destroy(struct Replays *replays, Device *device) {
    if (!replays) return;
    drop(replays, device, 0, true);
    pthread_mutex_destroy(&replays->lock);
    free(replays);
}

/* --- choosing ------------------------------------------------------------------------------------------------------
 */
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
static Status equip(const State *s, Replay *r, void *const *given) {
    Device *device = s->plan->device;
    const Plan *plan = s->plan;
    int around = plan->recorded_first + plan->step_count - plan->recorded_end;
    r->positions = calloc((size_t)(around + 2 * plan->graph->outputs.count) + 1, sizeof *r->positions);
    if (given) r->given = copy_of(given, sizeof *given * (size_t)given_count(s));
    if (!r->positions || (given && !r->given)) return status_out_of_memory();
    TRY(device->table->stream_create(device, &r->stream));
    return r->bytes ? run_memory_take(s->run->buffers, PLACE_DEVICE, r->bytes, &r->arena) : NULL;
}

static void use(State *s, Replay *r) {
    s->replay = r;
    s->recorded = r->recording != NULL;
    s->plain_stream = s->run->stream;
    s->run->stream = r->stream;
    s->arenas[PLACE_DEVICE] = r->arena;
    s->scratch[PLACE_DEVICE] = r->scratch;
}

static void give_up(State *s, Replay *r, Status reason) {
    struct Replays *all = s->plan->replays;
    LOG(1, "runs of these shapes are not replayed: %s", status_message(reason));
    status_free(reason);
    atomic_store(&sizes_of(s)->impossible, true);
    if (!r) return;
    pthread_mutex_lock(&all->lock);
    take_out(all, r);
    pthread_mutex_unlock(&all->lock);
    destroy(r, s->plan->device);
}

/* Without one the run goes its plain way, and says itself what is wrong with the device. */
static void make_one(State *s, void *const *given) {
    struct Replays *all = s->plan->replays;
    Replay *r = calloc(1, sizeof *r);
    Evicted evicted = {.count = 0};
    if (!r) return;
    *r = (Replay){.sizes = s->sizes->id, .busy = true, .bytes = s->sizes->arena_bytes[PLACE_DEVICE]};
    pthread_mutex_lock(&all->lock);
    bool entered = enter(all, sizes_of(s), r, &evicted);
    pthread_mutex_unlock(&all->lock);
    for (int i = 0; i < evicted.count; i++) destroy(evicted.items[i], s->plan->device);
    if (!entered) {
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
    struct Replays *all = s->plan->replays;
    if (!all || s->watch || s->sizes->alone || s->run->profile || log_level() >= 2 ||
        atomic_load(&s->sizes->impossible))
        return;
    void **given = given_addresses(s);
    int count = given_count(s);
    bool again = comes_again(sizes_of(s), hash_of(given, count));
    pthread_mutex_lock(&all->lock);
    Replay *r = find_idle(all, s->sizes->id, given, count);
    if (r) r->busy = true;
    pthread_mutex_unlock(&all->lock);
    if (r)
        use(s, r);
    else if (again)
        make_one(s, given);
}

/* --- running -------------------------------------------------------------------------------------------------------
 */
/* The caller's memory for results is where it was, but it may have become smaller. */
static Status check_given_outputs(State *s) {
    for (int o = 0; s->output_on_device && o < s->plan->graph->outputs.count; o++) {
        int there = s->plan->device_outputs[o], root = there < 0 ? -1 : slot_at(s, there)->root;
        if (root >= 0 && slot_at(s, root)->storage == STORE_PLANNED) TRY(place_planned(s, root));
    }
    return NULL;
}

Status replay_places(State *s) {
    const Replay *r = s->replay;
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

/* --- recording -----------------------------------------------------------------------------------------------------
 */
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
    Replay *r = s->replay;
    Device *device = s->plan->device;
    TRY(device->table->record_begin(device, r->stream));
    Status status = record_guarded(s);
    s->run->busy = false;
    if (!status) return device->table->record_end(device, r->stream, &r->recording);
    device->table->record_abandon(device, r->stream);
    return status;
}

static void keep_position(const State *s, Replay *r, int slot) {
    if (slot_at(s, slot)->storage != STORE_CONSTANT)
        r->positions[r->position_count++] = (Position){slot, s->data[slot]};
}

static void keep_positions(const State *s, Replay *r) {
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
    Replay *r = s->replay;
    if (!r || r->recording) return;
    Stop *stop = s->run->stop;
    keep_positions(s, r);
    s->run->stop = NULL; /* its results are there: what ends the run must not spoil the recording */
    Status status = record(s);
    s->run->stop = stop;
    if (status) give_up(s, NULL, status);
}

void replay_give_back(State *s, Status failure) {
    Replay *r = s->replay;
    struct Replays *all = s->plan->replays;
    if (!r) return;
    /* The memory of a Replay may be what was too much; wrong inputs are no reason. */
    if (status_code(failure) == STATUS_FAULT && !r->recording) atomic_store(&sizes_of(s)->impossible, true);
    r->scratch = s->scratch[PLACE_DEVICE];
    s->scratch[PLACE_DEVICE] = s->arenas[PLACE_DEVICE] = (Block){0};
    s->run->stream = s->plain_stream;
    s->replay = NULL;
    pthread_mutex_lock(&all->lock);
    bool keep = !failure && r->recording && !r->doomed;
    r->busy = false;
    r->age = ++all->clock;
    if (!keep) take_out(all, r);
    pthread_mutex_unlock(&all->lock);
    if (!keep) destroy(r, s->plan->device);
}
