/* SPDX-License-Identifier: Apache-2.0 */
/* What a set of input shapes comes to: every size evaluated, every planned slot given its place in the arena.
 * Remembered for the last few shapes, so that a run with known shapes evaluates nothing.
 *
 * Other shapes take over the places of remembered ones, where they fit there without wasting much; and where a few small slots have grown
 * since the run before (those of a context that gets longer by a token a run), they are given room to go on. So such runs place nothing.
 *
 * Memory planning: slots are placed in the order of their first step into the smallest hole that fits, and leave it
 * after their last; neighbouring holes merge. Each place has an arena of its own; device memory may be handed on as
 * early as host memory, since a stream does its work in order. A slot that takes over the memory of an input that dies
 * in the same step shares its place. */
#include "runtime/plan/recordings.h"

#include <pthread.h>
#include <stdlib.h>

#include "base/integer.h"

enum { REMEMBERED = 16 };
/* Whole vectors on the CPU; on devices what their own allocation gives. */
static const int64_t alignments[PLACES] = {64, 256};

struct SizesCache {
    pthread_mutex_t lock;
    Sizes *entries[REMEMBERED];
    char *store;              /* of REMEMBERED entries; NULL: not yet */
    Sizes *spare[REMEMBERED]; /* those that are neither remembered nor being made */
    int spare_count;
    uint64_t clock, made;
    uint64_t placed; /* how often slots were placed */
};

struct SizesCache *sizes_cache_create(void) {
    struct SizesCache *cache = calloc(1, sizeof *cache);
    if (cache) pthread_mutex_init(&cache->lock, NULL);
    return cache;
}

void sizes_cache_destroy(struct SizesCache *cache) {
    if (!cache) return;
    free(cache->store);
    pthread_mutex_destroy(&cache->lock);
    free(cache);
}

/* --- placing --- */
typedef struct Hole {
    size_t at, size;
} Hole;

typedef struct Placement {
    Arena *arena;
    VEC(Hole) holes; /* by address */
    size_t end;
} Placement;

static void leave(Placement *p, size_t at, size_t size) {
    int i = 0;
    while (i < p->holes.count && p->holes.items[i].at < at) i++;
    VEC_PUSH(p->arena, p->holes, (Hole){0});
    memmove(p->holes.items + i + 1, p->holes.items + i, sizeof(Hole) * (size_t)(p->holes.count - 1 - i));
    p->holes.items[i] = (Hole){at, size};
    int kept = 0;
    for (int k = 0; k < p->holes.count; k++) { /* merge neighbours, drop empty ones */
        Hole hole = p->holes.items[k];
        if (!hole.size) continue;
        Hole *before = kept ? &p->holes.items[kept - 1] : NULL;
        if (before && before->at + before->size == hole.at)
            before->size += hole.size;
        else
            p->holes.items[kept++] = hole;
    }
    p->holes.count = kept;
}

typedef struct Order {
    int slot, step;
    size_t size;
} Order;

/* Where a slot may begin, from `at` on. Neighbours in the order of steps begin at different places of their pages. */
static size_t begin_of(size_t at, Place where, const Order *order) {
    if (where == PLACE_HOST && order->size >= SPREAD_LEAST) return memory_spread(at, (size_t)order->slot);
    return (size_t)round_up((int64_t)at, alignments[where]);
}

static size_t place(Placement *p, Place where, const Order *order) {
    size_t size = order->size;
    int best = -1;
    for (int i = 0; i < p->holes.count; i++) {
        const Hole *hole = &p->holes.items[i];
        bool fits = hole->at + hole->size >= begin_of(hole->at, where, order) + size;
        if (fits && (best < 0 || hole->size < p->holes.items[best].size)) best = i;
    }
    Hole hole = {p->end, 0};
    if (best < 0 && p->holes.count) { /* a last hole that touches the end grows */
        Hole last = p->holes.items[p->holes.count - 1];
        if (last.at + last.size == p->end) best = p->holes.count - 1;
    }
    if (best >= 0) {
        hole = p->holes.items[best];
        p->holes.items[best].size = 0; /* what is left of it comes back */
    }
    size_t at = begin_of(hole.at, where, order), end = hole.at + hole.size;
    if (at + size > end) p->end = end = at + size;
    leave(p, hole.at, at - hole.at);
    leave(p, at + size, end - at - size);
    return at;
}

static int by_step_then_size(const void *a, const void *b) {
    const Order *x = a, *y = b;
    if (x->step != y->step) return x->step < y->step ? -1 : 1;
    if (x->size != y->size) return x->size > y->size ? -1 : 1;
    return x->slot - y->slot;
}

static bool in_arena(const Slot *slot, int number) {
    return slot->root == number && slot->storage == STORE_PLANNED && slot->output < 0;
}

/* Slots that are given a place of their own; those that take over an input's share it. */
static bool has_place(const Plan *plan, int number) {
    const Slot *slot = &plan->slots[number];
    return in_arena(slot, number) && slot->inplace < 0;
}

/* Bytes that the slot needs, whole vectors. */
static size_t need_of(const Plan *plan, const Sizes *sizes, int number) {
    const Slot *slot = &plan->slots[number];
    return (size_t)round_up(sizes->values[slot->bytes_expr], alignments[slot->place]);
}

static Status place_all(const Plan *plan, Sizes *sizes, Place where, Arena *scratch) {
    int *head = ARENA_ARRAY(scratch, int, plan->slot_count + 1),
        *last = ARENA_ARRAY(scratch, int, plan->slot_count + 1);
    VEC(Order) begins = {0};
    VEC(Order) ends = {0};
    Placement p = {.arena = scratch};
    for (int i = 0; i < plan->slot_count; i++) { /* slots are numbered in the order of steps, so heads come first */
        const Slot *slot = &plan->slots[i];
        head[i] = in_arena(slot, i) && slot->inplace >= 0 ? head[slot->inplace] : i;
        last[head[i]] = slot->last > last[head[i]] || head[i] == i ? slot->last : last[head[i]];
    }
    for (int i = 0; i < plan->slot_count; i++) {
        const Slot *slot = &plan->slots[i];
        if (!has_place(plan, i) || slot->place != where) continue;
        VEC_PUSH(scratch, begins, (Order){i, slot->first, sizes->rooms[i]});
        VEC_PUSH(scratch, ends, (Order){i, last[i], sizes->rooms[i]});
    }
    if (begins.count) {
        qsort(begins.items, (size_t)begins.count, sizeof(Order), by_step_then_size);
        qsort(ends.items, (size_t)ends.count, sizeof(Order), by_step_then_size);
    }
    for (int b = 0, e = 0; b < begins.count; b++) {
        for (; e < ends.count && ends.items[e].step < begins.items[b].step; e++)
            leave(&p, sizes->offsets[ends.items[e].slot], ends.items[e].size);
        sizes->offsets[begins.items[b].slot] = place(&p, where, &begins.items[b]);
        if (p.end > SIZE_MAX / 4)
            return status_error(STATUS_INVALID, "the model needs more memory than there are addresses");
    }
    for (int i = 0; i < plan->slot_count; i++) sizes->offsets[i] = sizes->offsets[head[i]];
    /* On a device, results without elements need an address too. */
    sizes->arena_bytes[where] = where == PLACE_DEVICE && begins.count && !p.end ? (size_t)alignments[where] : p.end;
    return NULL;
}

static Status check_sizes(const Plan *plan, const Sizes *sizes) {
    for (int i = 0; i < plan->slot_count; i++) {
        const Slot *slot = &plan->slots[i];
        if (slot->dims_expr < 0 || slot->late) continue;
        const int64_t *dims = &sizes->values[slot->dims_expr];
        Status status = tensor_size_of(slot->value->dtype, slot->value->rank, dims, NULL, NULL);
        const Node *maker = slot->value->producer;
        if (status && maker) return status_at(status, "node \"%s\": its result", node_origin_name(maker));
        if (status) return status_at(status, "value \"%s\"", slot->value->name);
    }
    return NULL;
}

/* --- places of other shapes --- */
static size_t total_need(const Plan *plan, const Sizes *sizes) {
    size_t total = 0;
    for (int i = 0; i < plan->slot_count; i++) total += has_place(plan, i) ? need_of(plan, sizes, i) : 0;
    return total;
}

enum { SMALL = 256 << 10 }; /* bytes that are not saved: pages that nobody writes to cost nothing */

/* Whether the sizes fit where those of `other` are placed, and take at least a quarter of it: as arenas are kept (run/buffers.c). */
static bool fits(const Plan *plan, const Sizes *sizes, const Sizes *other) {
    size_t rooms = 0;
    for (int i = 0; i < plan->slot_count; i++) {
        if (!has_place(plan, i)) continue;
        if (need_of(plan, sizes, i) > other->rooms[i]) return false;
        rooms += other->rooms[i];
    }
    return rooms / 4 <= total_need(plan, sizes) + SMALL;
}

/* Under the cache's lock: the places of the latest entry in which the sizes fit. */
static bool take_places(const Plan *plan, Sizes *sizes) {
    const Sizes *best = NULL;
    for (int i = 0; i < REMEMBERED; i++) {
        const Sizes *s = plan->sizes->entries[i];
        if (s && (!best || s->age > best->age) && fits(plan, sizes, s)) best = s;
    }
    if (!best) return false;
    memcpy(sizes->offsets, best->offsets, sizeof *sizes->offsets * (size_t)plan->slot_count);
    memcpy(sizes->rooms, best->rooms, sizeof *sizes->rooms * (size_t)plan->slot_count);
    memcpy(sizes->arena_bytes, best->arena_bytes, sizeof sizes->arena_bytes);
    return true;
}

/* Sizes that are larger than in the latest run are made half as large again. False: there are none. */
static bool go_on(const Plan *plan, const Sizes *sizes, int64_t *symbols) {
    const Sizes *latest = NULL;
    bool any = false;
    pthread_mutex_lock(&plan->sizes->lock);
    for (int i = 0; i < REMEMBERED; i++) {
        const Sizes *s = plan->sizes->entries[i];
        if (s && (!latest || s->age > latest->age)) latest = s;
    }
    for (int k = 0; latest && k < plan->input_symbols.count; k++) {
        if (sizes->key[k] <= latest->key[k]) continue;
        symbols[plan->input_symbols.items[k]] += sizes->key[k] / 2 + 64;
        any = true;
    }
    pthread_mutex_unlock(&plan->sizes->lock);
    return any;
}

/* The room that each slot is to have. What will be larger if it goes on as since the latest run is given as many times what it needs as an
 * eighth of the whole pays for, or SMALL: nothing more, if that is not twice. */
static void choose_rooms(const Plan *plan, Sizes *sizes, const int64_t *symbols, Arena *scratch) {
    enum { MOST_TIMES = 1024 };
    int64_t *later = arena_copy(scratch, symbols, sizeof *symbols * (size_t)plan->symbol_count);
    bool *grows = ARENA_ARRAY(scratch, bool, plan->slot_count + 1), goes_on = go_on(plan, sizes, later);
    size_t grown = 0, budget = total_need(plan, sizes) / 8, times = 1;
    if (budget < SMALL) budget = SMALL;
    for (int i = 0; i < plan->slot_count; i++) {
        int bytes = plan->slots[i].bytes_expr;
        if (!has_place(plan, i)) continue;
        sizes->rooms[i] = need_of(plan, sizes, i);
        grows[i] = goes_on && dim_eval(plan->exprs.items[bytes], later) > sizes->values[bytes];
        grown += grows[i] ? sizes->rooms[i] : 0;
    }
    while (grown && times < MOST_TIMES && grown <= budget / (2 * times - 1)) times *= 2;
    for (int i = 0; i < plan->slot_count; i++)
        if (grows[i]) sizes->rooms[i] *= times;
}

static Status place_guarded(const Plan *plan, const int64_t *symbols, Sizes *sizes) {
    Arena *scratch = arena_create(0);
    if (!scratch) return status_out_of_memory();
    Status volatile status = NULL;
    jmp_buf guard;
    if (setjmp(guard)) {
        status = status_out_of_memory();
    } else {
        arena_guard(scratch, &guard);
        choose_rooms(plan, sizes, symbols, scratch);
        status = place_all(plan, sizes, PLACE_HOST, scratch);
        if (!status && plan->device != plan->host) status = place_all(plan, sizes, PLACE_DEVICE, scratch);
    }
    arena_destroy(scratch);
    return status;
}

static Status fill(const Plan *plan, const int64_t *symbols, Sizes *sizes) {
    size_t keys = (size_t)plan->input_symbols.count, values = (size_t)plan->exprs.count;
    for (size_t i = 0; i < keys; i++) sizes->key[i] = symbols[plan->input_symbols.items[i]];
    for (size_t i = 0; i < values; i++) sizes->values[i] = dim_eval(plan->exprs.items[i], symbols);
    for (int i = 0; i < plan->late_exprs.count; i++) sizes->values[plan->late_exprs.items[i]] = UNBOUND_DIM;
    TRY(check_sizes(plan, sizes));
    pthread_mutex_lock(&plan->sizes->lock);
    bool placed = take_places(plan, sizes);
    plan->sizes->placed += !placed;
    pthread_mutex_unlock(&plan->sizes->lock);
    return placed ? NULL : place_guarded(plan, symbols, sizes);
}

/* --- remembering --- */
static size_t entry_bytes(const Plan *plan) {
    size_t keys = (size_t)plan->input_symbols.count, values = (size_t)plan->exprs.count,
           slots = (size_t)plan->slot_count;
    return sizeof(Sizes) + (keys + values) * sizeof(int64_t) + 2 * slots * sizeof(size_t);
}

static Sizes *as_new(const Plan *plan, Sizes *sizes, bool alone) {
    if (!sizes) return NULL;
    memset(sizes, 0, entry_bytes(plan));
    sizes->alone = alone;
    sizes->key = (int64_t *)(sizes + 1);
    sizes->values = sizes->key + plan->input_symbols.count;
    sizes->offsets = (size_t *)(sizes->values + plan->exprs.count);
    sizes->rooms = sizes->offsets + plan->slot_count;
    return sizes;
}

static Sizes *find(const Plan *plan, const int64_t *symbols) {
    for (int i = 0; i < REMEMBERED; i++) {
        Sizes *s = plan->sizes->entries[i];
        bool same = s != NULL;
        for (int k = 0; same && k < plan->input_symbols.count; k++)
            same = s->key[k] == symbols[plan->input_symbols.items[k]];
        if (same) {
            s->age = ++plan->sizes->clock;
            atomic_fetch_add(&s->users, 1);
            return s;
        }
    }
    return NULL;
}

/* For the next entry; what stands alone goes. */
static void give_spare(const Plan *plan, Sizes *sizes) {
    if (sizes->alone)
        free(sizes);
    else
        plan->sizes->spare[plan->sizes->spare_count++] = sizes;
}

/* All entries have their memory from the first run on, so that no later one asks for any. */
static void fill_spare(const Plan *plan) {
    struct SizesCache *cache = plan->sizes;
    size_t bytes = (entry_bytes(plan) + 63) / 64 * 64;
    int count = plan->input_symbols.count ? REMEMBERED : 1;
    if (cache->store || !(cache->store = calloc((size_t)count, bytes))) return;
    while (cache->spare_count < count)
        give_spare(plan, (Sizes *)(void *)(cache->store + (size_t)cache->spare_count * bytes));
}

/* Memory for an entry: a spare one's, or that of the one unused for the longest, whose id is *out_forgotten; NULL when all are in use. */
static Sizes *take_spare(const Plan *plan, uint64_t *out_forgotten) {
    struct SizesCache *cache = plan->sizes;
    int victim = -1;
    fill_spare(plan);
    if (cache->spare_count) return cache->spare[--cache->spare_count];
    for (int i = 0; i < REMEMBERED; i++) {
        const Sizes *s = cache->entries[i];
        if (!s || atomic_load(&s->users)) continue;
        if (victim < 0 || s->age < cache->entries[victim]->age) victim = i;
    }
    if (victim < 0) return NULL;
    Sizes *found = cache->entries[victim];
    *out_forgotten = found->id;
    cache->entries[victim] = NULL;
    return found;
}

/* The entry that another thread has made meanwhile, else this one, which is remembered from now on unless it stands alone. */
static Sizes *publish(const Plan *plan, const int64_t *symbols, Sizes *made) {
    struct SizesCache *cache = plan->sizes;
    Sizes *sizes = find(plan, symbols);
    if (sizes) {
        give_spare(plan, made);
        return sizes;
    }
    made->id = ++cache->made;
    made->age = ++cache->clock;
    atomic_store(&made->users, 1);
    for (int i = 0; i < REMEMBERED && !made->alone; i++) {
        if (cache->entries[i]) continue;
        cache->entries[i] = made;
        break;
    }
    return made;
}

/* New shapes are planned without the lock, so that runs of known ones go on meanwhile. Of several threads that plan the
 * same shapes at once all but the first find its entry when they are done. */
Status sizes_get(const Plan *plan, const int64_t *symbols, const Sizes **out_sizes) {
    struct SizesCache *cache = plan->sizes;
    uint64_t forgotten = 0;
    Sizes *made = NULL;
    pthread_mutex_lock(&cache->lock);
    *out_sizes = find(plan, symbols);
    if (!*out_sizes) made = take_spare(plan, &forgotten);
    pthread_mutex_unlock(&cache->lock);
    if (*out_sizes) return NULL;
    made = made ? as_new(plan, made, false) : as_new(plan, malloc(entry_bytes(plan)), true);
    Status status = made ? fill(plan, symbols, made) : status_out_of_memory();
    pthread_mutex_lock(&cache->lock);
    if (!status)
        *out_sizes = publish(plan, symbols, made);
    else if (made)
        give_spare(plan, made);
    pthread_mutex_unlock(&cache->lock);
    if (forgotten) recordings_forget(plan->recordings, plan->device, forgotten);
    return status;
}

void sizes_release(const Plan *plan, const Sizes *sizes) {
    (void)plan;
    Sizes *s = (Sizes *)(uintptr_t)sizes;
    bool alone = s->alone; /* read first: another thread may take what nobody uses */
    if (atomic_fetch_sub(&s->users, 1) == 1 && alone) free(s);
}

uint64_t sizes_placed(const Plan *plan) {
    pthread_mutex_lock(&plan->sizes->lock);
    uint64_t placed = plan->sizes->placed;
    pthread_mutex_unlock(&plan->sizes->lock);
    return placed;
}

bool sizes_latest(const Plan *plan, int64_t *symbols, int64_t *values, size_t *offsets, size_t arena_bytes[PLACES]) {
    struct SizesCache *cache = plan->sizes;
    const Sizes *latest = NULL;
    pthread_mutex_lock(&cache->lock);
    for (int i = 0; i < REMEMBERED; i++)
        if (cache->entries[i] && (!latest || cache->entries[i]->age > latest->age)) latest = cache->entries[i];
    for (int i = 0; i < plan->symbol_count; i++) symbols[i] = UNBOUND_DIM;
    if (latest) {
        for (int k = 0; k < plan->input_symbols.count; k++) symbols[plan->input_symbols.items[k]] = latest->key[k];
        memcpy(values, latest->values, sizeof *values * (size_t)plan->exprs.count);
        memcpy(offsets, latest->offsets, sizeof *offsets * (size_t)plan->slot_count);
        memcpy(arena_bytes, latest->arena_bytes, sizeof latest->arena_bytes);
    }
    pthread_mutex_unlock(&cache->lock);
    return latest != NULL;
}
