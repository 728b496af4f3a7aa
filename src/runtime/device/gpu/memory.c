/* SPDX-License-Identifier: Apache-2.0 */
/* What a device holds of its memory: every block with its size, counted against the policy's limit. Blocks stand in a
 * hash table by address (linear probing), since device memory has no room for a header that the host could read. */
#include <pthread.h>
#include <stdlib.h>

#include "runtime/device/gpu/gpu.h"

typedef struct Block {
    void *data; /* NULL: the place is free */
    size_t bytes;
} Block;

struct GpuBlocks {
    pthread_mutex_t lock;
    size_t used, limit; /* bytes */
    Block *blocks;      /* [capacity], a power of two, at most half full */
    size_t count, capacity;
};

static atomic_size_t used_by_all;

Status gpu_blocks_create(int64_t limit_megabytes, struct GpuBlocks **out_blocks) {
    struct GpuBlocks *b = calloc(1, sizeof *b);
    if (!b) return status_out_of_memory();
    pthread_mutex_init(&b->lock, NULL);
    bool limited = limit_megabytes > 0 && (uint64_t)limit_megabytes < SIZE_MAX >> 20;
    b->limit = limited ? (size_t)limit_megabytes << 20 : SIZE_MAX;
    *out_blocks = b;
    return NULL;
}

void gpu_blocks_destroy(struct GpuBlocks *b) {
    if (!b) return;
    pthread_mutex_destroy(&b->lock);
    free(b->blocks);
    free(b);
}

size_t gpu_memory_used(const Device *device) {
    struct GpuBlocks *b = gpu_device(device)->blocks;
    pthread_mutex_lock(&b->lock);
    size_t used = b->used;
    pthread_mutex_unlock(&b->lock);
    return used;
}

size_t gpu_memory_used_by_all(void) { return atomic_load(&used_by_all); }

/* --- the table, with its lock held --- */

/* Addresses are multiples of 256. */
static size_t home(const struct GpuBlocks *b, const void *data) {
    uint64_t key = (uint64_t)(uintptr_t)data >> 8;
    return (size_t)((key * 0x9e3779b97f4a7c15u) >> 32) & (b->capacity - 1);
}

static size_t find(const struct GpuBlocks *b, const void *data) {
    size_t at = home(b, data);
    while (b->blocks[at].data && b->blocks[at].data != data) at = (at + 1) & (b->capacity - 1);
    return at;
}

static bool make_room(struct GpuBlocks *b) {
    if (b->count * 2 < b->capacity) return true;
    struct GpuBlocks grown = *b;
    grown.capacity = b->capacity ? b->capacity * 2 : 64;
    grown.blocks = calloc(grown.capacity, sizeof *grown.blocks);
    if (!grown.blocks) return false;
    for (size_t i = 0; i < b->capacity; i++)
        if (b->blocks[i].data) grown.blocks[find(&grown, b->blocks[i].data)] = b->blocks[i];
    free(b->blocks);
    b->blocks = grown.blocks;
    b->capacity = grown.capacity;
    return true;
}

/* Later blocks of the run move up, so that each is still found from its home. */
static void remove_at(struct GpuBlocks *b, size_t hole) {
    size_t mask = b->capacity - 1;
    for (size_t at = (hole + 1) & mask; b->blocks[at].data; at = (at + 1) & mask)
        if (((at - home(b, b->blocks[at].data)) & mask) >= ((at - hole) & mask)) {
            b->blocks[hole] = b->blocks[at];
            hole = at;
        }
    b->blocks[hole] = (Block){0};
    b->count--;
}

/* --- allocating --- */

static Status no_room(const GpuDevice *d, size_t bytes, size_t used, Status reason) {
    size_t most = d->blocks->limit, left = most > used ? most - used : 0;
    size_t on_device = d->driver->free_memory(d->context);
    if (on_device && on_device < left) left = on_device;
    const char *why = status_message(reason);
    Status status = most == SIZE_MAX
                        ? status_error(STATUS_FAULT, "device memory: %zu bytes asked, %zu free, no limit%s%s", bytes,
                                       left == SIZE_MAX - used ? 0 : left, *why ? ": " : "", why)
                        : status_error(STATUS_FAULT, "device memory: %zu bytes asked, %zu free, limit %zu%s%s", bytes,
                                       left, most, *why ? ": " : "", why);
    status_free(reason);
    return status;
}

/* Takes `bytes` of the limit. */
static bool reserve(struct GpuBlocks *b, size_t bytes, size_t *out_used) {
    pthread_mutex_lock(&b->lock);
    *out_used = b->used;
    bool fits = bytes <= b->limit && b->used <= b->limit - bytes && bytes < SIZE_MAX / 2 && make_room(b);
    if (fits) {
        b->used += bytes;
        b->count++; /* its place in the table is kept for it */
    }
    pthread_mutex_unlock(&b->lock);
    return fits;
}

static void settle(struct GpuBlocks *b, void *data, size_t bytes) {
    pthread_mutex_lock(&b->lock);
    if (data) {
        b->blocks[find(b, data)] = (Block){data, bytes};
    } else {
        b->used -= bytes;
        b->count--;
    }
    pthread_mutex_unlock(&b->lock);
}

Status gpu_allocate(Device *device, Stream *stream, Memory *memory, size_t bytes, void **out_data) {
    (void)memory; /* the host's */
    GpuDevice *d = gpu_device(device);
    size_t used, taken = bytes ? bytes : 1;
    if (stream && gpu_stream(stream)->recording) return gpu_not_recorded("an allocation");
    if (!reserve(d->blocks, taken, &used)) return no_room(d, bytes, used, NULL);
    void *data = NULL;
    Status status = d->driver->allocate(d->context, stream ? gpu_stream(stream)->stream : NULL, taken, &data);
    if (status) data = NULL;
    settle(d->blocks, data, taken);
    if (status) return no_room(d, bytes, used, status);
    atomic_fetch_add(&used_by_all, taken);
    *out_data = data;
    return NULL;
}

void gpu_release(Device *device, Stream *stream, Memory *memory, void *data) {
    (void)memory;
    if (!data) return;
    GpuDevice *d = gpu_device(device);
    struct GpuBlocks *b = d->blocks;
    pthread_mutex_lock(&b->lock);
    size_t at = b->capacity ? find(b, data) : 0, bytes = b->capacity ? b->blocks[at].bytes : 0;
    if (bytes) {
        remove_at(b, at);
        b->used -= bytes;
    }
    pthread_mutex_unlock(&b->lock);
    atomic_fetch_sub(&used_by_all, bytes);
    d->driver->release(d->context, stream ? gpu_stream(stream)->stream : NULL, data);
}
