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
