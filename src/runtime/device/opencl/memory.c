/* SPDX-License-Identifier: Apache-2.0 */
/* OpenCL 1.2 names memory by handles, the driver's table by pointers. Each buffer gets a range of addresses that no
 * buffer had before it, in a part of the address space that no process can use: an address is looked up among the
 * ranges, and one that the host follows by mistake faults. */
#include "runtime/device/opencl/context.h"

#include <stdlib.h>
#include <string.h>

#define FIRST_ADDRESS ((uintptr_t)1 << 55)

/* Drivers may put off making a buffer until its first use. Buffers from TOUCHED bytes on are used at once, so that a
 * lack of memory shows where it is asked for: one word behind the caller's bytes is written, on a queue of its own, and
 * waited for: about 20 us, and such buffers are few, since the runtime keeps and reuses them. */
enum { ALIGNMENT = 256, TOUCHED = 1 << 20 };

/* ---- addresses ---- */

static size_t round_up(size_t bytes) { return (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT; }

/* Of the ranges that begin at or before the address, the last; count when there is none. */
static size_t index_of(const Allocations *all, uintptr_t address) {
    size_t low = 0, high = all->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (all->items[middle].begin <= address)
            low = middle + 1;
        else
            high = middle;
    }
    return low ? low - 1 : all->count;
}

Status opencl_find_locked(const GpuContext *context, const void *address, Place *out_place) {
    const Allocations *all = &context->allocations;
    uintptr_t at = (uintptr_t)address;
    size_t i = index_of(all, at);
    if (i == all->count || at - all->items[i].begin > all->items[i].bytes)
        return status_error(STATUS_FAULT, "%p is no memory of OpenCL device \"%s\"", address, context->device.name);
    size_t offset = at - all->items[i].begin;
    *out_place = (Place){all->items[i].memory, offset, all->items[i].bytes - offset};
    return NULL;
}

Status opencl_find(GpuContext *context, const void *address, Place *out_place) {
    pthread_rwlock_rdlock(&context->allocations.lock);
    Status status = opencl_find_locked(context, address, out_place);
    pthread_rwlock_unlock(&context->allocations.lock);
    return status;
}

static Status find_bytes(GpuContext *context, const void *address, size_t bytes, Place *out_place) {
    TRY(opencl_find(context, address, out_place));
    if (out_place->left < bytes)
        return status_error(STATUS_FAULT, "%zu bytes at %p reach beyond a buffer of OpenCL device \"%s\"", bytes,
                            address, context->device.name);
    return NULL;
}

/* ---- allocation ---- */

static double mebibytes(size_t bytes) { return (double)bytes / (1 << 20); }

/* Counts the bytes before they are taken: devices that share the host's memory give more than there is. */
static Status reserve(GpuContext *context, size_t bytes) {
    const OpenClDevice *d = &context->device;
    Allocations *all = &context->allocations;
    if (bytes > d->largest)
        return status_error(
            STATUS_FAULT,
            "a buffer of %.0f MiB is larger than OpenCL device \"%s\" allows: %.0f MiB each, %.0f MiB in all",
            mebibytes(bytes), d->name, mebibytes(d->largest), mebibytes(d->memory));
    Status status = NULL;
    pthread_rwlock_wrlock(&all->lock);
    if (all->bytes > d->memory || bytes > d->memory - all->bytes)
        status = status_error(STATUS_FAULT,
                              "out of memory on OpenCL device \"%s\": %.1f MiB wanted, %.0f of %.0f MiB in use",
                              d->name, mebibytes(bytes), mebibytes(all->bytes), mebibytes(d->memory));
    else
        all->bytes += bytes;
    pthread_rwlock_unlock(&all->lock);
    return status;
}

static void unreserve(GpuContext *context, size_t bytes) {
    pthread_rwlock_wrlock(&context->allocations.lock);
    context->allocations.bytes -= bytes;
    pthread_rwlock_unlock(&context->allocations.lock);
}

static Status add_range(Allocations *all, cl_mem memory, size_t bytes, void **out_data) {
    if (all->count == all->capacity) {
        size_t capacity = all->capacity ? all->capacity * 2 : 64;
        Allocation *items = realloc(all->items, capacity * sizeof *items);
        if (!items) return status_out_of_memory();
        all->items = items;
        all->capacity = capacity;
    }
    if (!all->next) all->next = FIRST_ADDRESS;
    all->items[all->count++] = (Allocation){all->next, bytes, memory};
    *out_data = (void *)all->next;
    all->next += round_up(bytes) + ALIGNMENT; /* so that the end of one is not the begin of the next */
    return NULL;
}

static cl_int touch(GpuContext *context, cl_mem memory, size_t offset) {
    const OpenClLibrary *cl = context->cl;
    cl_uint zero = 0;
    cl_event event;
    cl_int error =
        cl->clEnqueueFillBuffer(context->service, memory, &zero, sizeof zero, offset, sizeof zero, 0, NULL, &event);
    if (error != CL_SUCCESS) return error;
    error = cl->clWaitForEvents(1, &event);
    cl->clReleaseEvent(event);
    return error;
}

static Status make_buffer(GpuContext *context, size_t bytes, cl_mem *out_memory) {
    const OpenClLibrary *cl = context->cl;
    size_t size = round_up(bytes ? bytes : 1);
    bool touched = bytes >= TOUCHED && size + ALIGNMENT <= context->device.largest;
    cl_int error;
    cl_mem memory =
        cl->clCreateBuffer(context->context, CL_MEM_READ_WRITE, touched ? size + ALIGNMENT : size, NULL, &error);
    if (error == CL_SUCCESS && touched) {
        error = touch(context, memory, size);
        if (error != CL_SUCCESS) cl->clReleaseMemObject(memory);
    }
    if (error != CL_SUCCESS)
        return status_error(
            STATUS_FAULT, "out of memory on OpenCL device \"%s\": %.1f MiB wanted, about %.0f MiB free: %s",
            context->device.name, mebibytes(bytes), mebibytes(opencl_free_memory(context)), opencl_error_name(error));
    *out_memory = memory;
    return NULL;
}

Status opencl_allocate(GpuContext *context, Stream *stream, size_t bytes, void **out_data) {
    (void)stream; /* a new buffer shares memory with none in use */
    TRY(reserve(context, bytes));
    cl_mem memory;
    Status status = make_buffer(context, bytes, &memory);
    if (!status) {
        pthread_rwlock_wrlock(&context->allocations.lock);
        status = add_range(&context->allocations, memory, bytes, out_data);
        pthread_rwlock_unlock(&context->allocations.lock);
        if (status) context->cl->clReleaseMemObject(memory);
    }
    if (status) unreserve(context, bytes);
    return status;
}

/* OpenCL frees a buffer once the commands in all queues that use it are done. */
void opencl_release(GpuContext *context, Stream *stream, void *data) {
    (void)stream;
    Allocations *all = &context->allocations;
    cl_mem memory = NULL;
    if (!data) return;
    pthread_rwlock_wrlock(&all->lock);
    size_t i = index_of(all, (uintptr_t)data);
    if (i < all->count && all->items[i].begin == (uintptr_t)data) {
        memory = all->items[i].memory;
        all->bytes -= all->items[i].bytes;
        memmove(all->items + i, all->items + i + 1, (--all->count - i) * sizeof *all->items);
    }
    pthread_rwlock_unlock(&all->lock);
    if (memory) context->cl->clReleaseMemObject(memory);
}

/* OpenCL 1.2 does not tell what others use. */
size_t opencl_free_memory(GpuContext *context) {
    pthread_rwlock_rdlock(&context->allocations.lock);
    size_t used = context->allocations.bytes;
    pthread_rwlock_unlock(&context->allocations.lock);
    return used < context->device.memory ? (size_t)context->device.memory - used : 1;
}

/* ---- copies ---- */

static Status copy_in(GpuContext *context, Stream *stream, void *to, const void *from, size_t bytes) {
    Place place;
    TRY(find_bytes(context, to, bytes, &place));
    if (bytes <= STAGED_COPY) return opencl_staged_write(context, stream, place.memory, place.offset, from, bytes);
    return opencl_check(context->cl->clEnqueueWriteBuffer(stream->queue, place.memory, CL_TRUE, place.offset, bytes,
                                                          from, 0, NULL, NULL),
                        "copying %zu bytes to OpenCL device \"%s\"", bytes, context->device.name);
}

static Status copy_out(GpuContext *context, Stream *stream, void *to, const void *from, size_t bytes) {
    Place place;
    TRY(find_bytes(context, from, bytes, &place));
    return opencl_check(
        context->cl->clEnqueueReadBuffer(stream->queue, place.memory, CL_FALSE, place.offset, bytes, to, 0, NULL, NULL),
        "copying %zu bytes from OpenCL device \"%s\"", bytes, context->device.name);
}

static Status copy_within(GpuContext *context, Stream *stream, void *to, const void *from, size_t bytes) {
    Place source, target;
    TRY(find_bytes(context, from, bytes, &source));
    TRY(find_bytes(context, to, bytes, &target));
    if (to == from) return NULL;
    return opencl_check(context->cl->clEnqueueCopyBuffer(stream->queue, source.memory, target.memory, source.offset,
                                                         target.offset, bytes, 0, NULL, NULL),
                        "copying %zu bytes within OpenCL device \"%s\"", bytes, context->device.name);
}

Status opencl_copy(GpuContext *context, Stream *stream, CopyKind kind, void *to, const void *from, size_t bytes) {
    if (!bytes) return NULL;
    switch (kind) {
    case COPY_IN: TRY(copy_in(context, stream, to, from, bytes)); break;
    case COPY_OUT: TRY(copy_out(context, stream, to, from, bytes)); break;
    case COPY_WITHIN: TRY(copy_within(context, stream, to, from, bytes)); break;
    }
    return opencl_submitted(context, stream);
}

/* Begin and size of a fill are multiples of its pattern; drivers write longer patterns faster. */
Status opencl_fill_zero(GpuContext *context, Stream *stream, void *data, size_t bytes) {
    static const char zeros[16];
    Place place;
    if (!bytes) return NULL;
    TRY(find_bytes(context, data, bytes, &place));
    size_t pattern = sizeof zeros;
    while ((place.offset | bytes) % pattern) pattern /= 2;
    TRY(opencl_check(context->cl->clEnqueueFillBuffer(stream->queue, place.memory, zeros, pattern, place.offset, bytes,
                                                      0, NULL, NULL),
                     "filling %zu bytes of OpenCL device \"%s\"", bytes, context->device.name));
    return opencl_submitted(context, stream);
}
