/* SPDX-License-Identifier: Apache-2.0 */
/* What a set of input shapes comes to: every size evaluated, every planned slot given its place in the arena.
 * Remembered for the last few shapes, so that a run with known shapes evaluates nothing.
 *
 * Memory planning: slots are placed in the order of their first step into the smallest hole that fits, and leave it
 * after their last; neighbouring holes merge. Each place has an arena of its own; device memory may be handed on as
 * early as host memory, since a stream does its work in order. A slot that takes over the memory of an input that dies
 * in the same step shares its place. */
#include "runtime/plan/recordings.h"

#include <pthread.h>
#include <stdlib.h>

enum { REMEMBERED = 16 };
/* Whole vectors on the CPU; on devices what their own allocation gives. */
static const size_t alignments[PLACES] = {64, 256};

struct SizesCache {
    pthread_mutex_t lock;
    Sizes *entries[REMEMBERED];
    uint64_t clock, made;
};

struct SizesCache *sizes_cache_create(void) {
    struct SizesCache *cache = calloc(1, sizeof *cache);
    if (cache) pthread_mutex_init(&cache->lock, NULL);
    return cache;
}

void sizes_cache_destroy(struct SizesCache *cache) {
    if (!cache) return;
    for (int i = 0; i < REMEMBERED; i++) free(cache->entries[i]);
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

static size_t place(Placement *p, size_t size) {
    int best = -1;
    for (int i = 0; i < p->holes.count; i++)
        if (p->holes.items[i].size >= size && (best < 0 || p->holes.items[i].size < p->holes.items[best].size))
            best = i;
    if (best >= 0) {
        Hole *hole = &p->holes.items[best];
        size_t at = hole->at;
        hole->at += size;
        hole->size -= size;
        return at;
    }
    size_t at = p->end; /* a last hole that touches the end grows */
    if (p->holes.count) {
        Hole *last = &p->holes.items[p->holes.count - 1];
        if (last->at + last->size == p->end) {
            at = last->at;
            p->holes.count--;
        }
    }
    p->end = at + size;
    return at;
}

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

static int by_step_then_size(const void *a, const void *b) {
    const Order *x = a, *y = b;
    if (x->step != y->step) return x->step < y->step ? -1 : 1;
    if (x->size != y->size) return x->size > y->size ? -1 : 1;
    return x->slot - y->slot;
}

static bool in_arena(const Slot *slot, int number) {
    return slot->root == number && slot->storage == STORE_PLANNED && slot->output < 0;
}

static Status place_all(const Plan *plan, Sizes *sizes, Place where, Arena *scratch) {
    size_t alignment = alignments[where];
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
        if (!in_arena(slot, i) || head[i] != i || slot->place != where) continue;
        size_t size = ((size_t)sizes->values[slot->bytes_expr] + alignment - 1) / alignment * alignment;
        VEC_PUSH(scratch, begins, (Order){i, slot->first, size});
        VEC_PUSH(scratch, ends, (Order){i, last[i], size});
    }
    if (begins.count) {
        qsort(begins.items, (size_t)begins.count, sizeof(Order), by_step_then_size);
        qsort(ends.items, (size_t)ends.count, sizeof(Order), by_step_then_size);
    }
    for (int b = 0, e = 0; b < begins.count; b++) {
        for (; e < ends.count && ends.items[e].step < begins.items[b].step; e++)
            leave(&p, sizes->offsets[ends.items[e].slot], ends.items[e].size);
        sizes->offsets[begins.items[b].slot] = place(&p, begins.items[b].size);
        if (p.end > SIZE_MAX / 4)
            return status_error(STATUS_INVALID, "the model needs more memory than there are addresses");
    }
    for (int i = 0; i < plan->slot_count; i++) sizes->offsets[i] = sizes->offsets[head[i]];
    /* On a device, results without elements need an address too. */
    sizes->arena_bytes[where] = where == PLACE_DEVICE && begins.count && !p.end ? alignment : p.end;
    return NULL;
}

static Status check_sizes(const Plan *plan, const Sizes *sizes) {
    for (int i = 0; i < plan->slot_count; i++) {
        const Slot *slot = &plan->slots[i];
        if (slot->dims_expr < 0 || slot->late) continue;
        const int64_t *dims = &sizes->values[slot->dims_expr];
        Status status = tensor_size_of(slot->value->dtype, slot->value->rank, dims, NULL, NULL);
        if (status) return status_at(status, "value \"%s\"", slot->value->name);
    }
    return NULL;
}

static Status make_sizes(const Plan *plan, const int64_t *symbols, Sizes **out_sizes) {
    size_t keys = (size_t)plan->input_symbols.count, values = (size_t)plan->exprs.count,
           slots = (size_t)plan->slot_count;
    Sizes *sizes = calloc(1, sizeof *sizes + (keys + values) * sizeof(int64_t) + slots * sizeof(size_t));
    Arena *scratch = arena_create(0);
    if (!sizes || !scratch) {
        free(sizes);
        arena_destroy(scratch);
        return status_out_of_memory();
    }
    sizes->key = (int64_t *)(sizes + 1);
    sizes->values = sizes->key + keys;
    sizes->offsets = (size_t *)(sizes->values + values);
    for (size_t i = 0; i < keys; i++) sizes->key[i] = symbols[plan->input_symbols.items[i]];
    for (size_t i = 0; i < values; i++) sizes->values[i] = dim_eval(plan->exprs.items[i], symbols);
    for (int i = 0; i < plan->late_exprs.count; i++) sizes->values[plan->late_exprs.items[i]] = UNBOUND_DIM;
    Status volatile status = check_sizes(plan, sizes);
    jmp_buf guard;
    if (setjmp(guard)) {
        status = status_out_of_memory();
    } else {
        arena_guard(scratch, &guard);
        if (!status) status = place_all(plan, sizes, PLACE_HOST, scratch);
        if (!status && plan->device != plan->host) status = place_all(plan, sizes, PLACE_DEVICE, scratch);
    }
    arena_destroy(scratch);
    if (status) {
        free(sizes);
        return status;
    }
    *out_sizes = sizes;
    return NULL;
}

/* --- remembering --- */
static Sizes *find(const Plan *plan, const int64_t *symbols) {
    for (int i = 0; i < REMEMBERED; i++) {
        Sizes *s = plan->sizes->entries[i];
        bool same = s != NULL;
        for (int k = 0; same && k < plan->input_symbols.count; k++)
            same = s->key[k] == symbols[plan->input_symbols.items[k]];
        if (same) return s;
    }
    return NULL;
}

/* Puts the entry in place of an empty or the oldest unused one, whose id is *out_forgotten; false when all are in use.
 */
static bool remember(struct SizesCache *cache, Sizes *sizes, uint64_t *out_forgotten) {
    int victim = -1;
    for (int i = 0; i < REMEMBERED; i++) {
        const Sizes *s = cache->entries[i];
        if (s && atomic_load(&s->users)) continue;
        if (victim < 0 || !s || (cache->entries[victim] && s->age < cache->entries[victim]->age)) victim = i;
        if (!s) break;
    }
    if (victim < 0) return false;
    if (cache->entries[victim]) *out_forgotten = cache->entries[victim]->id;
    free(cache->entries[victim]);
    cache->entries[victim] = sizes;
    return true;
}

/* The remembered entry for the symbols, else `made`, which is remembered from now on; NULL where there is neither. What
 * is returned has one more user. */
static Sizes *take(const Plan *plan, const int64_t *symbols, Sizes *made, uint64_t *out_forgotten) {
    struct SizesCache *cache = plan->sizes;
    pthread_mutex_lock(&cache->lock);
    Sizes *sizes = find(plan, symbols);
    if (!sizes && made) {
        sizes = made;
        sizes->id = ++cache->made;
        sizes->alone = !remember(cache, sizes, out_forgotten);
    }
    if (sizes) {
        sizes->age = ++cache->clock;
        atomic_fetch_add(&sizes->users, 1);
    }
    pthread_mutex_unlock(&cache->lock);
    return sizes;
}

/* New shapes are planned without the lock, so that runs of known ones go on meanwhile. Of several threads that plan the
 * same shapes at once all but the first find its entry when they are done. */
Status sizes_get(const Plan *plan, const int64_t *symbols, const Sizes **out_sizes) {
    uint64_t forgotten = 0;
    Sizes *made = NULL;
    if ((*out_sizes = take(plan, symbols, NULL, &forgotten))) return NULL;
    TRY(make_sizes(plan, symbols, &made));
    *out_sizes = take(plan, symbols, made, &forgotten);
    if (*out_sizes != made) free(made);
    if (forgotten) recordings_forget(plan->recordings, plan->device, forgotten);
    return NULL;
}

void sizes_release(const Plan *plan, const Sizes *sizes) {
    (void)plan;
    Sizes *s = (Sizes *)(uintptr_t)sizes;
    bool alone = s->alone; /* read first: another thread may free what nobody uses */
    if (atomic_fetch_sub(&s->users, 1) == 1 && alone) free(s);
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
