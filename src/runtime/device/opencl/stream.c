/* SPDX-License-Identifier: Apache-2.0 */
/* A stream is an in-order command queue, with host memory for short copies. */
#include "runtime/device/opencl/context.h"

#include <stdlib.h>
#include <string.h>

/* Commands between two calls of clFlush: drivers may hold back what is queued until then. The first command after a
 * wait is sent at once, so that the device is not idle while more are queued. */
enum { FLUSH_EVERY = 16 };

Status opencl_stream_create(GpuContext *context, Stream **out_stream) {
    Stream *stream = calloc(1, sizeof *stream);
    if (!stream) return status_out_of_memory();
    cl_int error;
    stream->queue = context->cl->clCreateCommandQueue(context->context, context->device.id, 0, &error);
    Status status = opencl_check(error, "OpenCL device \"%s\" gives no command queue", context->device.name);
    if (status) {
        free(stream);
        return status;
    }
    pthread_mutex_init(&stream->staging.lock, NULL);
    *out_stream = stream;
    return NULL;
}

static void free_staging(GpuContext *context, Staging *staging) {
    const OpenClLibrary *cl = context->cl;
    for (int half = 0; half < 2; half++)
        if (staging->last[half]) cl->clReleaseEvent(staging->last[half]);
    if (staging->data) {
        cl->clEnqueueUnmapMemObject(context->service, staging->memory, staging->data, 0, NULL, NULL);
        cl->clFinish(context->service);
    }
    if (staging->memory) cl->clReleaseMemObject(staging->memory);
    pthread_mutex_destroy(&staging->lock);
}

void opencl_stream_destroy(GpuContext *context, Stream *stream) {
    if (!stream) return;
    context->cl->clFinish(stream->queue);
    free_staging(context, &stream->staging);
    context->cl->clReleaseCommandQueue(stream->queue);
    free(stream);
}

Status opencl_synchronize(GpuContext *context, Stream *stream) {
    atomic_store_explicit(&stream->commands, 0, memory_order_relaxed);
    return opencl_check(context->cl->clFinish(stream->queue), "OpenCL device \"%s\" failed", context->device.name);
}

Status opencl_submitted(GpuContext *context, Stream *stream) {
    unsigned before = atomic_fetch_add_explicit(&stream->commands, 1, memory_order_relaxed);
    if (before % FLUSH_EVERY != 0) return NULL;
    return opencl_check(context->cl->clFlush(stream->queue), "OpenCL device \"%s\" takes no more work",
                        context->device.name);
}

/* ---- short copies ---- */

static Status make_staging(GpuContext *context, Staging *staging) {
    const OpenClLibrary *cl = context->cl;
    size_t bytes = 2 * (size_t)STAGING_HALF;
    cl_int error = CL_SUCCESS;
    if (!staging->memory)
        staging->memory =
            cl->clCreateBuffer(context->context, CL_MEM_READ_WRITE | CL_MEM_ALLOC_HOST_PTR, bytes, NULL, &error);
    if (error == CL_SUCCESS)
        staging->data = cl->clEnqueueMapBuffer(context->service, staging->memory, CL_TRUE, CL_MAP_READ | CL_MAP_WRITE,
                                               0, bytes, 0, NULL, NULL, &error);
    return opencl_check(error, "OpenCL device \"%s\" has no memory for copies", context->device.name);
}

/* Room in the half that is in use, or in the other one once nothing reads it any more. */
static Status reserve(GpuContext *context, Stream *stream, size_t bytes, char **out_room) {
    const OpenClLibrary *cl = context->cl;
    Staging *staging = &stream->staging;
    if (!staging->data) TRY(make_staging(context, staging));
    if (staging->used + bytes > STAGING_HALF) {
        int other = !staging->half;
        if (staging->last[other]) {
            TRY(opencl_check(cl->clWaitForEvents(1, &staging->last[other]), "copying to OpenCL device \"%s\"",
                             context->device.name));
            cl->clReleaseEvent(staging->last[other]);
            staging->last[other] = NULL;
        }
        staging->half = other;
        staging->used = 0;
    }
    *out_room = staging->data + staging->half * STAGING_HALF + staging->used;
    return NULL;
}

static Status staged_write(GpuContext *context, Stream *stream, cl_mem memory, size_t offset, const void *from,
                           size_t bytes) {
    const OpenClLibrary *cl = context->cl;
    Staging *staging = &stream->staging;
    char *room;
    cl_event event;
    TRY(reserve(context, stream, bytes, &room));
    memcpy(room, from, bytes);
    TRY(opencl_check(cl->clEnqueueWriteBuffer(stream->queue, memory, CL_FALSE, offset, bytes, room, 0, NULL, &event),
                     "copying %zu bytes to OpenCL device \"%s\"", bytes, context->device.name));
    if (staging->last[staging->half]) cl->clReleaseEvent(staging->last[staging->half]);
    staging->last[staging->half] = event;
    staging->used += (bytes + 63) / 64 * 64;
    return NULL;
}

Status opencl_staged_write(GpuContext *context, Stream *stream, cl_mem memory, size_t offset, const void *from,
                           size_t bytes) {
    pthread_mutex_lock(&stream->staging.lock);
    Status status = staged_write(context, stream, memory, offset, from, bytes);
    pthread_mutex_unlock(&stream->staging.lock);
    return status;
}
