/* SPDX-License-Identifier: Apache-2.0 */
/* Arenas, scratch memory and streams that runs give back for the next: fresh pages cost more than what a small model
 * computes, and a device's memory is dearer still. */
#include "runtime/run/run.h"

#include <pthread.h>
#include <stdlib.h>

enum { KEPT = 16 };

struct RunMemory {
    pthread_mutex_t lock;
    Device *devices[PLACES]; /* whose memory a place is */
    Memory *memory;
    Block blocks[PLACES][KEPT];
    uint64_t given[PLACES][KEPT]; /* when: the number of the latest take */
    uint64_t takes[PLACES];
    Stream *streams[KEPT];
    Arena *arenas[KEPT];
};

struct RunMemory *run_memory_create(Device *device, Device *host, Memory *memory) {
    struct RunMemory *buffers = calloc(1, sizeof *buffers);
    if (!buffers) return NULL;
    pthread_mutex_init(&buffers->lock, NULL);
    buffers->devices[PLACE_HOST] = host;
    buffers->devices[PLACE_DEVICE] = device;
    buffers->memory = memory;
    return buffers;
}

static void release(struct RunMemory *buffers, Place place, void *data) {
    Device *device = buffers->devices[place];
    if (data) device->table->release(device, NULL, buffers->memory, data);
}

static void release_all(struct RunMemory *buffers, Place place) {
    for (int i = 0; i < KEPT; i++) {
        pthread_mutex_lock(&buffers->lock);
        void *data = buffers->blocks[place][i].data;
        buffers->blocks[place][i] = (Block){0};
        pthread_mutex_unlock(&buffers->lock);
        release(buffers, place, data);
    }
}

/* A stream has memory of its own, on the device and pinned on the host. */
static void destroy_streams(struct RunMemory *buffers) {
    Device *device = buffers->devices[PLACE_DEVICE];
    for (int i = 0; i < KEPT; i++) {
        pthread_mutex_lock(&buffers->lock);
        Stream *stream = buffers->streams[i];
        buffers->streams[i] = NULL;
        pthread_mutex_unlock(&buffers->lock);
        if (stream) device->table->stream_destroy(device, stream);
    }
}

static Arena *kept_arena(struct RunMemory *buffers) {
    Arena *arena = NULL;
    pthread_mutex_lock(&buffers->lock);
    for (int i = 0; i < KEPT && !arena; i++) {
        arena = buffers->arenas[i];
        buffers->arenas[i] = NULL;
    }
    pthread_mutex_unlock(&buffers->lock);
    return arena;
}

void run_memory_trim(struct RunMemory *buffers) {
    for (Arena *arena; (arena = kept_arena(buffers));) arena_destroy(arena);
    for (int place = 0; place < PLACES; place++) release_all(buffers, (Place)place);
    destroy_streams(buffers);
}

void run_memory_destroy(struct RunMemory *buffers) {
    if (!buffers) return;
    run_memory_trim(buffers);
    pthread_mutex_destroy(&buffers->lock);
    free(buffers);
}

/* A block is used for what needs between a quarter of it and all of it. So shapes whose arenas are further apart each keep
 * one of their own, and what a row of kept blocks takes is at most a third more than the largest. */
static bool is_of_size(const Block *block, size_t bytes) { return block->bytes / 4 <= bytes + 4096; }

/* The smallest kept block that fits without wasting much. When none does, one goes that a new one will stand for: too
 * small, but not by much, or long unused. */
static Block find_block(struct RunMemory *buffers, Place place, size_t bytes, void **out_stale) {
    enum { LONG = 32 }; /* takes */
    Block *blocks = buffers->blocks[place], found = {0};
    int best = -1, stale = -1;
    uint64_t now = ++buffers->takes[place];
    for (int i = 0; i < KEPT; i++) {
        if (!blocks[i].data) continue;
        size_t size = blocks[i].bytes;
        if (size >= bytes && is_of_size(&blocks[i], bytes) && (best < 0 || size < blocks[best].bytes)) best = i;
        if ((size < bytes && bytes / 4 <= size) || now - buffers->given[place][i] > LONG) stale = i;
    }
    if (best >= 0) {
        found = blocks[best];
        blocks[best] = (Block){0};
    } else if (stale >= 0) {
        *out_stale = blocks[stale].data;
        blocks[stale] = (Block){0};
    }
    return found;
}

Status run_memory_take(struct RunMemory *buffers, Place place, size_t bytes, Block *out_block) {
    void *stale = NULL;
    pthread_mutex_lock(&buffers->lock);
    *out_block = find_block(buffers, place, bytes, &stale);
    pthread_mutex_unlock(&buffers->lock);
    release(buffers, place, stale);
    if (out_block->data) return NULL;
    Device *device = buffers->devices[place];
    void *data;
    Status status = device->table->allocate(device, NULL, buffers->memory, bytes, &data);
    if (status) { /* once more, without what is only kept */
        release_all(buffers, place);
        status_free(status);
        TRY(device->table->allocate(device, NULL, buffers->memory, bytes, &data));
    }
    *out_block = (Block){data, bytes};
    return NULL;
}

void run_memory_give(struct RunMemory *buffers, Place place, Block block) {
    if (!block.data) return;
    pthread_mutex_lock(&buffers->lock);
    for (int i = 0; i < KEPT && block.data; i++)
        if (!buffers->blocks[place][i].data) {
            buffers->blocks[place][i] = block;
            buffers->given[place][i] = buffers->takes[place];
            block = (Block){0};
        }
    pthread_mutex_unlock(&buffers->lock);
    release(buffers, place, block.data);
}

Arena *run_memory_take_arena(struct RunMemory *buffers) {
    Arena *arena = kept_arena(buffers);
    return arena ? arena : arena_create(0);
}

void run_memory_give_arena(struct RunMemory *buffers, Arena *arena) {
    if (!arena) return;
    arena_recycle(arena);
    pthread_mutex_lock(&buffers->lock);
    for (int i = 0; i < KEPT && arena; i++)
        if (!buffers->arenas[i]) {
            buffers->arenas[i] = arena;
            arena = NULL;
        }
    pthread_mutex_unlock(&buffers->lock);
    arena_destroy(arena);
}

Status run_memory_take_stream(struct RunMemory *buffers, Stream **out_stream) {
    Device *device = buffers->devices[PLACE_DEVICE];
    *out_stream = NULL;
    if (!device->table->stream_create) return NULL;
    pthread_mutex_lock(&buffers->lock);
    for (int i = 0; i < KEPT && !*out_stream; i++) {
        *out_stream = buffers->streams[i];
        buffers->streams[i] = NULL;
    }
    pthread_mutex_unlock(&buffers->lock);
    return *out_stream ? NULL : device->table->stream_create(device, out_stream);
}

void run_memory_give_stream(struct RunMemory *buffers, Stream *stream, bool sound) {
    if (!stream) return;
    Device *device = buffers->devices[PLACE_DEVICE];
    pthread_mutex_lock(&buffers->lock);
    for (int i = 0; i < KEPT && stream && sound; i++)
        if (!buffers->streams[i]) {
            buffers->streams[i] = stream;
            stream = NULL;
        }
    pthread_mutex_unlock(&buffers->lock);
    if (stream) device->table->stream_destroy(device, stream);
}
