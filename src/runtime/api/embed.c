/* SPDX-License-Identifier: Apache-2.0 */
/* What an embedder hands in: threads, memory, the wish to end a run. */
#include "runtime/api/session.h"

#include <stdlib.h>

#include "base/heap.h"

Status check_struct(const char *name, size_t given, size_t known) {
    if (given == 0 || given == known) return NULL;
    return status_error(STATUS_USAGE,
                        "%s has %zu bytes, and this library, onnxfuse " ONNXFUSE_VERSION ", knows %zu: "
                        "the program was built with another onnxfuse.h, or has not set the member size",
                        name, given, known);
}

enum { MOST_THREADS = 1024 };

Status embedded_pool(const OnnxfuseThreadPool *threads, Pool **out_pool) {
    TRY(check_struct("OnnxfuseThreadPool", threads->size, sizeof *threads));
    if (threads->threads < 1 || threads->threads > MOST_THREADS || !threads->parallel_for)
        return status_error(STATUS_USAGE, "a thread pool of %d threads: 1 to %d are possible, and a parallel_for",
                            threads->threads, MOST_THREADS);
    return pool_create_over((PoolHost){threads->parallel_for, threads->user}, threads->threads, out_pool);
}

OnnxfuseStatus onnxfuse_set_allocator(const OnnxfuseAllocator *given) {
    cpu_device.trim(NULL); /* what is kept for coming runs is no reason to refuse */
    if (!given) return heap_set_host((HeapHost){0});
    TRY(check_struct("OnnxfuseAllocator", given->size, sizeof *given));
    if (!given->allocate || !given->release) return status_error(STATUS_USAGE, "an allocator needs both its functions");
    return heap_set_host((HeapHost){given->allocate, given->release, given->user});
}

/* --- ending runs -------------------------------------------------------------------------------------------------- */
struct OnnxfuseCancel {
    atomic_int raised;
};

OnnxfuseStatus onnxfuse_cancel_create(OnnxfuseCancel **out_cancel) {
    *out_cancel = calloc(1, sizeof **out_cancel);
    return *out_cancel ? NULL : status_out_of_memory();
}

void onnxfuse_cancel(OnnxfuseCancel *cancel) { atomic_store(&cancel->raised, 1); }
void onnxfuse_cancel_reset(OnnxfuseCancel *cancel) { atomic_store(&cancel->raised, 0); }
void onnxfuse_cancel_free(OnnxfuseCancel *cancel) { free(cancel); }

Status embedded_stop(const OnnxfuseRunOptions *options, Stop *out_stop) {
    TRY(check_struct("OnnxfuseRunOptions", options->size, sizeof *options));
    if (!(options->timeout_ms >= 0)) return status_error(STATUS_USAGE, "a timeout of %g ms", options->timeout_ms);
    *out_stop =
        (Stop){.cancelled = options->cancel ? &options->cancel->raised : NULL, .timeout_ms = options->timeout_ms};
    if (options->timeout_ms > 0) out_stop->deadline_ns = stop_deadline(options->timeout_ms);
    return NULL;
}

/* --- watching runs ------------------------------------------------------------------------------------------------ */
static void free_views(OnnxfuseValue *value) {
    for (int i = 0; value->items && i < value->item.count; i++) free(value->items[i]);
    free(value->items);
}

static Status see(void *user, const ModelValue *what, const Item *item) {
    const OnnxfuseRunOptions *options = user;
    OnnxfuseValue value = {.item = *item};
    Status status = options->observe(options->observe_user, what->name, what->node, &value);
    free_views(&value);
    return status;
}

Observer embedded_observer(const OnnxfuseRunOptions *options) { return (Observer){see, (void *)(uintptr_t)options}; }
