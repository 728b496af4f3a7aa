/* SPDX-License-Identifier: Apache-2.0 */
/* A GPU as a device: what it runs, its streams, copies and faults. Kernels, memory, anchors and movement have files of
 * their own (gpu.h). */
#include <stdio.h>
#include <stdlib.h>

#include "graph/eval/eval.h"
#include "runtime/device/gpu/gpu.h"

Status gpu_open(const DeviceTable *table, const GpuDriver *driver, const Policy *policy, Device **out_device) {
    GpuDevice *d = calloc(1, sizeof *d);
    if (!d) return status_out_of_memory();
    *d = (GpuDevice){.base = {.table = table, .policy = policy}, .driver = driver};
    Status status = policy_pool(policy, &d->base.pool);
    if (!status) status = gpu_blocks_create(policy->memory_limit_megabytes, &d->blocks);
    if (!status) status = gpu_movement_create(&d->movement);
    if (!status) status = gpu_windows_create(&d->windows);
    if (!status) status = driver->open(policy, &d->context);
    if (status) {
        gpu_windows_destroy(d->windows);
        gpu_movement_destroy(d->movement);
        gpu_blocks_destroy(d->blocks);
        free(d);
        return status;
    }
    d->limits = driver->limits(d->context);
    d->strict = driver->dialect == GPU_CUDA && policy->cuda.strict;
    pthread_mutex_init(&d->setup_lock, NULL);
    *out_device = &d->base;
    return NULL;
}

void gpu_close(Device *device) {
    GpuDevice *d = gpu_device(device);
    gpu_stream_destroy(device, d->setup);
    pthread_mutex_destroy(&d->setup_lock);
    gpu_windows_destroy(d->windows);
    gpu_movement_destroy(d->movement);
    if (atomic_load(&d->failed)) gpu_program_trim(); /* a context may work again once nobody has it open */
    d->driver->close(d->context);
    gpu_blocks_destroy(d->blocks);
    free(d);
}

bool gpu_runs(const Device *device, const Node *node) {
    switch (node->kind) {
    case NODE_REGION: return gpu_region_runs(device, node);
    case NODE_PRIM: return gpu_prim_runs(device, node);
    case NODE_ANCHOR: return gpu_anchor_runs(device, node);
    default: return false;
    }
}

Status gpu_step_prepare(Device *device, const Node *node, KernelCacheStats *stats) {
    return node->kind == NODE_HOST ? gpu_window_prepare(device, node, stats) : gpu_prim_prepare(device, node, stats);
}

Status gpu_step_run(Device *device, Stream *stream, const Node *node, const Tensor *const *inputs,
                    const int64_t *symbols, Tensor *output, Arena *scratch) {
    return node->kind == NODE_HOST ? gpu_window_run(device, stream, node, inputs, symbols, output)
                                   : gpu_prim_run(device, stream, node, inputs, symbols, output, scratch);
}

Status gpu_watch(GpuDevice *d, Status status) {
    if (status) atomic_store(&d->failed, true);
    return status;
}

Status gpu_copy(Device *device, Stream *stream, CopyKind kind, void *to, const void *from, size_t bytes) {
    GpuDevice *d = gpu_device(device);
    if (!bytes) return NULL;
    if (stream && kind != COPY_WITHIN && gpu_stream(stream)->recording) return gpu_not_recorded("a copy");
    return gpu_watch(d, d->driver->copy(d->context, stream ? gpu_stream(stream)->stream : NULL, kind, to, from, bytes));
}

/* --- streams --- */

enum { FAULT_BYTES = GPU_FAULT_WORDS * sizeof(int64_t) };

void gpu_stream_destroy(Device *device, Stream *stream) {
    if (!stream) return;
    GpuDevice *d = gpu_device(device);
    GpuStream *s = gpu_stream(stream);
    if (s->faults) gpu_release(device, stream, NULL, s->faults);
    gpu_release(device, stream, NULL, s->scratch);
    d->driver->stream_destroy(d->context, s->stream);
    free(s);
}

static Status clear_faults(GpuDevice *d, GpuStream *s) {
    return d->driver->fill_zero(d->context, s->stream, s->faults, FAULT_BYTES);
}

Status gpu_stream_create(Device *device, Stream **out_stream) {
    GpuDevice *d = gpu_device(device);
    GpuStream *s = calloc(1, sizeof *s);
    if (!s) return status_out_of_memory();
    Status status = d->driver->stream_create(d->context, &s->stream);
    if (status) s->stream = NULL;
    if (!status) status = gpu_allocate(device, (Stream *)s, NULL, FAULT_BYTES, &s->faults);
    if (!status) status = clear_faults(d, s);
    if (status) {
        gpu_stream_destroy(device, (Stream *)s);
        return status;
    }
    *out_stream = (Stream *)s;
    return NULL;
}

static Status fault(const GpuStream *s, const int64_t *words) {
    static const Node unknown;
    const Node *node = s->suspect ? s->suspect : &unknown;
    return status_at(eval_index_error(node, words[1], words[2], NULL, 0), "node \"%s\"",
                     s->suspect ? node_origin_name(node) : "?");
}

Status gpu_synchronize(Device *device, Stream *stream) {
    GpuDevice *d = gpu_device(device);
    GpuStream *s = gpu_stream(stream);
    int64_t words[GPU_FAULT_WORDS] = {0};
    if (!s) return NULL; /* without a stream calls are done when they return */
    if (s->recording) return gpu_not_recorded("a wait");
    if (!s->may_fault) return gpu_watch(d, d->driver->synchronize(d->context, s->stream));
    s->may_fault = false;
    Status status = d->driver->copy(d->context, s->stream, COPY_OUT, words, s->faults, FAULT_BYTES);
    Status waited = d->driver->synchronize(d->context, s->stream); /* also after a failure: `words` is ours */
    if (status)
        status_free(waited);
    else
        status = waited;
    if (status || !words[0]) return gpu_watch(d, status);
    status = clear_faults(d, s);
    return status ? status : fault(s, words);
}

/* --- what is done once --- */

Status gpu_setup_begin(GpuDevice *d, Stream **out_stream) {
    pthread_mutex_lock(&d->setup_lock);
    Status status = d->setup ? NULL : gpu_stream_create(&d->base, &d->setup);
    if (status) pthread_mutex_unlock(&d->setup_lock);
    *out_stream = d->setup;
    return status;
}

Status gpu_setup_end(GpuDevice *d) {
    Status status = gpu_synchronize(&d->base, d->setup);
    if (status) { /* it may have failed before it waited, and what was copied to is about to be released */
        gpu_stream_destroy(&d->base, d->setup);
        d->setup = NULL;
    }
    pthread_mutex_unlock(&d->setup_lock);
    return status;
}

void gpu_trim(Device *device) {
    gpu_program_trim();
    if (!device) return;
    GpuDevice *d = gpu_device(device);
    pthread_mutex_lock(&d->setup_lock);
    gpu_stream_destroy(device, d->setup);
    d->setup = NULL;
    pthread_mutex_unlock(&d->setup_lock);
    if (d->driver->trim) d->driver->trim(d->context);
}
