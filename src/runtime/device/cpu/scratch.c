/* SPDX-License-Identifier: Apache-2.0 */
/* A block has a line before its data that says how large it is. Released blocks are kept while they are few and small
 * together. */
#include "runtime/device/cpu/scratch.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include "base/heap.h"

enum { LINE = HEAP_ALIGNMENT, MOST_KEPT = 32, LEAST = 128 << 10 };
static const size_t MOST_BYTES_KEPT = (size_t)256 << 20;

typedef struct Block {
    size_t bytes; /* of data, which begins LINE bytes further */
} Block;

static struct {
    pthread_mutex_t lock;
    Block *blocks[MOST_KEPT];
    int count;
    size_t bytes;
} kept = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* The smallest that is large enough, unless most of it would lie idle. */
static Block *take_kept(size_t bytes) {
    int best = -1;
    Block *block = NULL;
    pthread_mutex_lock(&kept.lock);
    for (int i = 0; i < kept.count; i++)
        if (kept.blocks[i]->bytes >= bytes && kept.blocks[i]->bytes / 8 <= bytes + LEAST / 8 &&
            (best < 0 || kept.blocks[i]->bytes < kept.blocks[best]->bytes))
            best = i;
    if (best >= 0) {
        block = kept.blocks[best];
        kept.blocks[best] = kept.blocks[--kept.count];
        kept.bytes -= block->bytes;
    }
    pthread_mutex_unlock(&kept.lock);
    return block;
}

/* Room for one more is made by giving up the smallest, which is the cheapest to make again. */
static void keep(Block *block) {
    Block *freed = NULL;
    pthread_mutex_lock(&kept.lock);
    if (kept.bytes + block->bytes > MOST_BYTES_KEPT) {
        freed = block;
    } else {
        if (kept.count == MOST_KEPT) {
            int least = 0;
            for (int i = 1; i < kept.count; i++)
                if (kept.blocks[i]->bytes < kept.blocks[least]->bytes) least = i;
            freed = kept.blocks[least];
            kept.bytes -= freed->bytes;
            kept.blocks[least] = kept.blocks[--kept.count];
        }
        kept.blocks[kept.count++] = block;
        kept.bytes += block->bytes;
    }
    pthread_mutex_unlock(&kept.lock);
    if (freed) heap_free(freed, freed->bytes + LINE);
}

/* What a longer context asks for is there already, mostly: pages that nobody writes to cost nothing. */
static size_t rounded(size_t bytes) {
    size_t power = LEAST, step;
    while (power < bytes) power *= 2;
    step = power > 1 << 20 ? power / 8 : power;
    return (bytes + step - 1) / step * step;
}

static Status take_block(Scratch *scratch, size_t bytes) {
    if (scratch->count == MAX_SCRATCH) return status_out_of_memory();
    Block *block = take_kept(bytes);
    if (!block) {
        bytes = rounded(bytes);
        block = heap_alloc(bytes + LINE);
        if (!block) return status_out_of_memory();
        block->bytes = bytes;
    }
    scratch->blocks[scratch->count++] = block;
    scratch->rest = (char *)block + LINE;
    scratch->rest_bytes = block->bytes;
    return NULL;
}

Status scratch_take(Scratch *scratch, size_t bytes, void **out_data) {
    *out_data = NULL;
    if (bytes > SIZE_MAX / 4) return status_out_of_memory();
    bytes = bytes ? (bytes + LINE - 1) / LINE * LINE : LINE;
    if (bytes > scratch->rest_bytes) TRY(take_block(scratch, bytes));
    *out_data = scratch->rest;
    scratch->rest += bytes;
    scratch->rest_bytes -= bytes;
    return NULL;
}

void scratch_release(Scratch *scratch) {
    while (scratch->count) keep(scratch->blocks[--scratch->count]);
    scratch->rest = NULL;
    scratch->rest_bytes = 0;
}

void scratch_trim(void) {
    pthread_mutex_lock(&kept.lock);
    while (kept.count) {
        Block *block = kept.blocks[--kept.count];
        heap_free(block, block->bytes + LINE);
    }
    kept.bytes = 0;
    pthread_mutex_unlock(&kept.lock);
}
