/* SPDX-License-Identifier: Apache-2.0 */
/* The set of a plan's recordings, kept within bounds. */
#include "runtime/plan/recordings.h"

#include <pthread.h>
#include <stdlib.h>

/* A recording costs about what a few runs cost, so a second one for the same shapes is made only after the first was
 * found busy CROWDED times. */
enum { MOST_RECORDINGS = 16, MOST_FOR_SIZES = 2, CROWDED = 8 };
/* Of all arenas together, but that the newest may be of any size: the larger the tensors, the less a launch costs. */
static const size_t most_bytes = (size_t)1 << 30;

struct Recordings {
    pthread_mutex_t lock;
    Recording *items[MOST_RECORDINGS];
    uint64_t clock;
};

struct Recordings *recordings_create(void) {
    struct Recordings *recordings = calloc(1, sizeof *recordings);
    if (recordings) pthread_mutex_init(&recordings->lock, NULL);
    return recordings;
}

void recording_destroy(Recording *r, Device *device) {
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

/* --- the set, with its lock held --- */
static void take_out(struct Recordings *all, const Recording *r) {
    for (int i = 0; i < MOST_RECORDINGS; i++)
        if (all->items[i] == r) all->items[i] = NULL;
}

static int place_for_one(const struct Recordings *all) {
    for (int i = 0; i < MOST_RECORDINGS; i++)
        if (!all->items[i]) return i;
    return -1;
}

/* The idle one that was used longest ago; sizes 0: of any. */
static Recording *oldest(const struct Recordings *all, uint64_t sizes) {
    Recording *found = NULL;
    for (int i = 0; i < MOST_RECORDINGS; i++) {
        Recording *r = all->items[i];
        if (r && !r->busy && (!sizes || r->sizes == sizes) && (!found || r->age < found->age)) found = r;
    }
    return found;
}

static bool same_given(const Recording *r, void *const *given, int count) {
    if (!given || !r->given) return !given && !r->given;
    return memcmp(r->given, given, sizeof *given * (size_t)count) == 0;
}

static Recording *idle_one(const struct Recordings *all, uint64_t sizes, void *const *given, int count) {
    for (int i = 0; i < MOST_RECORDINGS; i++) {
        Recording *r = all->items[i];
        if (r && !r->busy && r->sizes == sizes && same_given(r, given, count)) return r;
    }
    return NULL;
}

typedef struct Evicted {
    Recording *items[MOST_RECORDINGS];
    int count;
} Evicted;

static bool evict(struct Recordings *all, Recording *r, Evicted *evicted) {
    if (!r) return false;
    take_out(all, r);
    evicted->items[evicted->count++] = r;
    return true;
}

static size_t bytes_of(const struct Recordings *all) {
    size_t bytes = 0;
    for (int i = 0; i < MOST_RECORDINGS; i++) bytes += all->items[i] ? all->items[i]->bytes : 0;
    return bytes;
}

/* Enters `made` for these sizes, where the bounds allow it. */
static bool enter(struct Recordings *all, Sizes *sizes, Recording *made, Evicted *evicted) {
    int own = 0, busy = 0;
    for (int i = 0; i < MOST_RECORDINGS; i++) {
        const Recording *r = all->items[i];
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

Recording *recordings_take(struct Recordings *all, uint64_t sizes, void *const *given, int count) {
    pthread_mutex_lock(&all->lock);
    Recording *r = idle_one(all, sizes, given, count);
    if (r) r->busy = true;
    pthread_mutex_unlock(&all->lock);
    return r;
}

bool recordings_enter(struct Recordings *all, Device *device, Sizes *sizes, Recording *made) {
    Evicted evicted = {.count = 0};
    pthread_mutex_lock(&all->lock);
    bool entered = enter(all, sizes, made, &evicted);
    pthread_mutex_unlock(&all->lock);
    for (int i = 0; i < evicted.count; i++) recording_destroy(evicted.items[i], device);
    return entered;
}

void recordings_drop(struct Recordings *all, Device *device, Recording *r) {
    pthread_mutex_lock(&all->lock);
    take_out(all, r);
    pthread_mutex_unlock(&all->lock);
    recording_destroy(r, device);
}

void recordings_give(struct Recordings *all, Device *device, Recording *r, bool sound) {
    pthread_mutex_lock(&all->lock);
    bool keep = sound && r->recording && !r->doomed;
    r->busy = false;
    r->age = ++all->clock;
    if (!keep) take_out(all, r);
    pthread_mutex_unlock(&all->lock);
    if (!keep) recording_destroy(r, device);
}

/* --- freeing --- */
/* Takes out those that no run uses; sizes 0: of any. Those in use go when their run ends. */
static bool drop(struct Recordings *all, Device *device, uint64_t sizes, bool doom) {
    Recording *dropped[MOST_RECORDINGS];
    int count = 0;
    pthread_mutex_lock(&all->lock);
    for (int i = 0; i < MOST_RECORDINGS; i++) {
        Recording *r = all->items[i];
        if (!r || (sizes && r->sizes != sizes)) continue;
        if (r->busy) {
            r->doomed |= doom;
        } else {
            dropped[count++] = r;
            all->items[i] = NULL;
        }
    }
    pthread_mutex_unlock(&all->lock);
    for (int i = 0; i < count; i++) recording_destroy(dropped[i], device);
    return count > 0;
}

bool recordings_trim(struct Recordings *recordings, Device *device) {
    return recordings && drop(recordings, device, 0, false);
}

void recordings_forget(struct Recordings *recordings, Device *device, uint64_t sizes) {
    if (recordings) drop(recordings, device, sizes, true);
}

void recordings_destroy(struct Recordings *recordings, Device *device) {
    if (!recordings) return;
    drop(recordings, device, 0, true);
    pthread_mutex_destroy(&recordings->lock);
    free(recordings);
}
