/* SPDX-License-Identifier: Apache-2.0 */
/* Bulk memory: what arenas, tensors, packed weights and scratch memory are made of. It comes from the C library, or
 * from the embedder's allocator, which can only be set while no block is in use. */
#ifndef ONNXFUSE_BASE_HEAP_H
#define ONNXFUSE_BASE_HEAP_H

#include <stddef.h>
#include "base/status.h"

enum { HEAP_ALIGNMENT = 64 };

typedef struct HeapHost {
    void *(*allocate)(void *user, size_t bytes); /* aligned to HEAP_ALIGNMENT; NULL when there is no room */
    void (*release)(void *user, void *memory, size_t bytes);
    void *user;
} HeapHost;

/* allocate NULL: the C library's. STATUS_USAGE while blocks are in use. No other call may be going on. */
Status heap_set_host(HeapHost host);
/* Not zeroed; NULL when there is no room. Of the C library's, large ones come in huge pages, where the system has them at hand: a
 * first run that writes 128 MB took 150 ms with small pages and 42 without (an AMD EPYC of family 25, Linux 6.18, one thread,
 * 2026-11-28, five first runs of x * sigmoid(x + bias) in turn); where it has not, as long as before. */
void *heap_alloc(size_t bytes);
void heap_free(void *memory, size_t bytes); /* bytes: as allocated; accepts NULL */
/* For what is kept for long and written soon: beyond the first LASTING_PLAIN bytes of a process it shares mappings of
 * huge pages, where the system has them. A fault of a small page costs 1.3 us: stack_128 opened in 52 ms with them and
 * in 31 without, resnet50 in 139 and 59 (an AMD EPYC of family 26, Linux 6.18, 3 to 5 openings in turn). */
enum { LASTING_PLAIN = 2 << 20 };
void *heap_alloc_lasting(size_t bytes);
void heap_free_lasting(void *memory, size_t bytes); /* bytes: as allocated; accepts NULL */
/* Gives pages that the C library keeps back to the system. */
void heap_trim(void);

/* Says that these bytes of a mapped file, or of private memory, are not needed any more: the pages wholly inside leave the
 * process's resident memory. If they are read after all, they come back from the file, or as zeros. */
void bytes_forget(const void *bytes, size_t size);

#endif
