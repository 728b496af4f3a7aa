/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of this folder share: the context of a device and its streams as data, and the errors of the driver.
 * Each file stands on those above it, and its header shows what it adds:
 *   state.h    this
 *   memory.h   allocation from a pool of ours, copies through pinned memory
 *   graph.h    recordings
 *   stream.h   streams
 *   blas.h     products by cuBLASLt
 *   context.h  contexts opened and closed, programs
 *   driver.h   the table: makes the context current, takes the stream, calls one of these
 * All functions but those of context.h that open, close and describe are called with the context current on the thread
 * and, where they take a stream, with its lock held. */
#ifndef ONNXFUSE_RUNTIME_DEVICE_CUDA_STATE_H
#define ONNXFUSE_RUNTIME_DEVICE_CUDA_STATE_H

#include <pthread.h>
#include <stdatomic.h>
#include "runtime/device/cuda/api.h"
#include "runtime/device/gpu/driver.h"

typedef struct CudaBlas CudaBlas; /* blas.c */

/* A copy to the host whose data still stands in pinned memory. */
typedef struct CudaArrival {
    void *to;
    const void *from;
    size_t bytes;
} CudaArrival;

enum { CUDA_STAGING_SLOTS = 4 };

typedef struct CudaStagingSlot {
    char *pinned;   /* NULL until first used */
    CuEvent event;  /* after the slot's last copy, once it is full */
    bool in_flight; /* the event was recorded and not waited for */
    size_t used;
    CudaArrival *arrivals; /* [arrival_capacity] */
    int arrival_count, arrival_capacity;
} CudaStagingSlot;

typedef struct CudaStream {
    CuStream handle;
    pthread_mutex_t lock;
    bool recording;
    CudaStagingSlot slots[CUDA_STAGING_SLOTS]; /* a ring */
    int slot;                                  /* the one being filled */
} CudaStream;

typedef struct CudaContext {
    const CudaDriver *api;
    const CudaNvrtc *nvrtc;
    CuDevice device;
    CuContext handle;
    int users;       /* opens without their close */
    atomic_int lost; /* CuResult of the fault that ended the context; 0: none */
    char *folder;    /* as in the policy; NULL: none */
    int ordinal;     /* as in the policy */
    bool tf32, deterministic;
    int arch, driver_version, nvrtc_version[2];
    GpuLimits limits;
    char name[128], target[320];
    char *cache_directory; /* NULL: nothing is kept on disk */
    bool has_pools;        /* the device does */
    CuMemoryPool pool;     /* ours alone; NULL: memory is allocated without */
    CudaStream own;        /* for calls without a stream */
    pthread_mutex_t blas_lock;
    _Atomic(CudaBlas *) blas; /* NULL: not opened, or not there */
    bool blas_tried;
    char no_blas[400]; /* why it is not there; written before blas_tried is set */
    struct CudaContext *next;
} CudaContext;

/* "CUDA: <what>: <the driver's text>". */
Status cuda_error(const CudaDriver *api, StatusCode code, CuResult result, const char *what);
/* NULL for CU_OK, else cuda_error. Remembers faults that end the context. */
Status cuda_check(CudaContext *context, CuResult result, const char *format, ...) STATUS_FORMAT(3, 4);
/* Why nothing works any more; NULL while all is well. */
Status cuda_lost(CudaContext *context);

#endif
