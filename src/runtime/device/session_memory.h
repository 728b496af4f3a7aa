/* SPDX-License-Identifier: Apache-2.0 */
/* The memory of a session: counted against the policy's limit, and the items (tensors, sequences) that own such memory.
 */
#ifndef ONNXFUSE_RUNTIME_DEVICE_SESSION_MEMORY_H
#define ONNXFUSE_RUNTIME_DEVICE_SESSION_MEMORY_H

#include <stdatomic.h>
#include "graph/tensor.h"

typedef struct Memory {
    atomic_size_t used, peak;
    size_t limit; /* bytes; never 0: the machine's memory when the policy sets none */
} Memory;

/* Tensors of at least so many bytes begin at places of their pages that differ from one to the next, whatever their sizes. Where a
 * kernel's tensors all begin at the same place of a page, as large blocks from the C library do, what it reads and writes at a time lies
 * in the same sets of the caches; and a load waits for an earlier store whose address has the same last twelve bits, as those of
 * the elements before have if the result begins a little later in its page. (AVX2 on an AMD EPYC of family 25, one thread, two vectors a step,
 * 2026-11-26: bias, GELU and dropout with their gradients 147.9 ms where results began 64 bytes later than inputs, 50.0 where all began
 * at the same place, 38.5 at places 1024 bytes apart; bias, dropout, residual and RMSNorm 57.0, 21.5 and 14.4.) */
enum { SPREAD_PAGE = 4096, SPREAD_STEP = 960, SPREAD_LEAST = 32 << 10 };

/* The first address from `at` on that is at the `number`th of these places. */
static inline size_t memory_spread(size_t at, size_t number) {
    size_t place = number * SPREAD_STEP % SPREAD_PAGE;
    return at + (place - at) % SPREAD_PAGE;
}

void memory_init(Memory *memory, int64_t limit_megabytes);
/* 64-byte aligned, not zeroed; at least 64 bytes. STATUS_FAULT with the size and the limit when there is no room.
 * `memory` may be NULL: not counted. memory_free takes the same `memory`. */
Status memory_alloc(Memory *memory, size_t bytes, void **out_data);
void memory_free(Memory *memory, void *data); /* accepts NULL */
size_t memory_size(const void *data);         /* as allocated */

/* A tensor item over new memory; strings zeroed, all else not initialised. */
Status item_new_tensor(Memory *memory, DType dtype, int rank, const int64_t *dims, Item *out_item);
/* Deep copy, characters of strings included. */
Status item_copy(Memory *memory, const Item *from, Item *out_item);
void item_free(Memory *memory, Item *item); /* leaves ITEM_NONE */

#endif
