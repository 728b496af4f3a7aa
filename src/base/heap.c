/* SPDX-License-Identifier: Apache-2.0 */
/* Blocks from one of two places. */
#include "base/heap.h"

#include <malloc.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>

static HeapHost host;
static atomic_size_t blocks_in_use;

Status heap_set_host(HeapHost given) {
    size_t blocks = atomic_load(&blocks_in_use);
    if (blocks)
        return status_error(STATUS_USAGE,
                            "the allocator can be set only before the first session, value or other object is made, "
                            "or when all are freed: %zu blocks of memory are in use",
                            blocks);
    host = given;
    return NULL;
}

void *heap_alloc(size_t bytes) {
    if (bytes > SIZE_MAX / 2) return NULL;
    size_t rounded = (bytes + HEAP_ALIGNMENT - 1) / HEAP_ALIGNMENT * HEAP_ALIGNMENT;
    void *memory = host.allocate ? host.allocate(host.user, bytes) : aligned_alloc(HEAP_ALIGNMENT, rounded);
    if (memory) atomic_fetch_add_explicit(&blocks_in_use, 1, memory_order_relaxed);
    return memory;
}

void heap_free(void *memory, size_t bytes) {
    if (!memory) return;
    if (host.allocate)
        host.release(host.user, memory, bytes);
    else
        free(memory);
    atomic_fetch_sub_explicit(&blocks_in_use, 1, memory_order_release);
}

void heap_trim(void) {
#ifdef __GLIBC__
    if (!host.allocate) malloc_trim(0);
#endif
}
