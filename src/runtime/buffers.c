/* Arenas and scratch memory that runs give back for the next: fresh pages cost more than what a small model computes.
 */
#include "runtime/plan.h"

#include <pthread.h>
#include <stdlib.h>

enum { KEPT = 16 };

struct RunMemory {
    pthread_mutex_t lock;
    Device *device;
    Memory *memory;
    void *blocks[KEPT];
};

struct RunMemory *run_memory_create(Device *device, Memory *memory) {
    struct RunMemory *buffers = calloc(1, sizeof *buffers);
    if (!buffers) return NULL;
    pthread_mutex_init(&buffers->lock, NULL);
    buffers->device = device;
    buffers->memory = memory;
    return buffers;
}

static void release(struct RunMemory *buffers, void *data) {
    buffers->device->table->release(buffers->device, NULL, buffers->memory, data);
}

void run_memory_destroy(struct RunMemory *buffers) {
    if (!buffers) return;
    for (int i = 0; i < KEPT; i++)
        if (buffers->blocks[i]) release(buffers, buffers->blocks[i]);
    pthread_mutex_destroy(&buffers->lock);
    free(buffers);
}

Status run_memory_take(struct RunMemory *buffers, size_t bytes, void **out_data) {
    void *found = NULL, *stale = NULL;
    pthread_mutex_lock(&buffers->lock);
    int best = -1, any = -1;
    for (int i = 0; i < KEPT; i++) {
        if (!buffers->blocks[i]) continue;
        any = i;
        size_t size = memory_size(buffers->blocks[i]);
        if (size >= bytes && size / 4 <= bytes + 4096 && (best < 0 || size < memory_size(buffers->blocks[best])))
            best = i;
    }
    if (best >= 0) {
        found = buffers->blocks[best];
        buffers->blocks[best] = NULL;
    } else if (any >= 0) { /* the shapes have changed: do not keep both sizes */
        stale = buffers->blocks[any];
        buffers->blocks[any] = NULL;
    }
    pthread_mutex_unlock(&buffers->lock);
    if (stale) release(buffers, stale);
    *out_data = found;
    return found ? NULL : buffers->device->table->allocate(buffers->device, NULL, buffers->memory, bytes, out_data);
}

void run_memory_give(struct RunMemory *buffers, void *data) {
    if (!data) return;
    pthread_mutex_lock(&buffers->lock);
    for (int i = 0; i < KEPT && data; i++)
        if (!buffers->blocks[i]) {
            buffers->blocks[i] = data;
            data = NULL;
        }
    pthread_mutex_unlock(&buffers->lock);
    if (data) release(buffers, data);
}
