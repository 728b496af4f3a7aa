/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of this folder share: the context of a device, streams, and the addresses of buffers. */
#ifndef ONNXFUSE_RUNTIME_DEVICE_OPENCL_CONTEXT_H
#define ONNXFUSE_RUNTIME_DEVICE_OPENCL_CONTEXT_H

#include <pthread.h>
#include <stdatomic.h>
#include "runtime/device/gpu/driver.h"
#include "runtime/device/opencl/choose.h"

/* A buffer and its range of addresses. */
typedef struct Allocation {
    uintptr_t begin;
    size_t bytes; /* that were asked for */
    cl_mem memory;
} Allocation;

typedef struct Allocations {
    pthread_rwlock_t lock;
    Allocation *items; /* by address: new ones come last, since addresses are never used again */
    size_t count, capacity;
    uintptr_t next;
    size_t bytes; /* of all */
} Allocations;

struct GpuContext {
    const OpenClLibrary *cl;
    OpenClDevice device;
    cl_context context;
    cl_command_queue service; /* for what belongs to no stream */
    Allocations allocations;
    GpuLimits limits;
    const char *options; /* of the compiler */
    char *target;
    int references; /* under the lock of the list of contexts */
    GpuContext *next;
};

Status opencl_describe(const Policy *policy, Text *text);
Status opencl_open(const Policy *policy, GpuContext **out_context);
/* before_last: called when nobody else has the context, before it goes. */
void opencl_close(GpuContext *context, void (*before_last)(void));
const GpuLimits *opencl_limits(const GpuContext *context);
const char *opencl_target(const GpuContext *context);

/* stream.c. Copies to the device that are short go through host memory of the stream, so that nobody waits; two halves
 * take turns. */
enum { STAGED_COPY = 64 << 10, STAGING_HALF = 512 << 10 };
typedef struct Staging {
    pthread_mutex_t lock;
    cl_mem memory; /* made on first use: memory that the device reads at full speed where the driver has such */
    char *data;
    int half;
    size_t used;      /* bytes of the half in use */
    cl_event last[2]; /* of each half, the last copy that reads it */
} Staging;

struct Stream {
    cl_command_queue queue;
    Staging staging;
    atomic_uint commands; /* since the last wait */
};

Status opencl_stream_create(GpuContext *context, Stream **out_stream);
void opencl_stream_destroy(GpuContext *context, Stream *stream);
Status opencl_synchronize(GpuContext *context, Stream *stream);
/* After each command: sends what is queued to the device, now and then. */
Status opencl_submitted(GpuContext *context, Stream *stream);
/* A copy of at most STAGED_COPY bytes that returns at once. */
Status opencl_staged_write(GpuContext *context, Stream *stream, cl_mem memory, size_t offset, const void *from,
                           size_t bytes);

/* memory.c: the buffer that an address lies in (its end counts as inside), how far behind its begin, how many bytes
 * follow. The lock is held by the caller in opencl_find_locked. */
typedef struct Place {
    cl_mem memory;
    size_t offset, left;
} Place;
Status opencl_find(GpuContext *context, const void *address, Place *out_place);
Status opencl_find_locked(const GpuContext *context, const void *address, Place *out_place);
Status opencl_allocate(GpuContext *context, Stream *stream, size_t bytes, void **out_data);
void opencl_release(GpuContext *context, Stream *stream, void *data);
size_t opencl_free_memory(GpuContext *context);
Status opencl_copy(GpuContext *context, Stream *stream, CopyKind kind, void *to, const void *from, size_t bytes);
Status opencl_fill_zero(GpuContext *context, Stream *stream, void *data, size_t bytes);

/* program.c */
Status opencl_compile(GpuContext *context, const char *source, void **out_binary, size_t *out_size);
Status opencl_load(GpuContext *context, const void *binary, size_t size, GpuModule **out_module);
void opencl_unload(GpuContext *context, GpuModule *module);
Status opencl_function(GpuContext *context, GpuModule *module, const char *name, const GpuFunction **out_function);
Status opencl_launch(GpuContext *context, Stream *stream, const GpuFunction *function, int64_t grid, int block,
                     const GpuArgument *arguments, int count);

#endif
