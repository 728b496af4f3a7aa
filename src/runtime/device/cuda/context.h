/* What the files of this folder share: the context of a device, its streams, and the calls behind the driver's table.
 *   driver.c   the table: makes the context current, takes the stream, calls one of these
 *   context.c  contexts opened and closed, errors, programs
 *   memory.c   allocation, copies through pinned memory
 *   graph.c    recordings
 *   blas.c     products by cuBLASLt
 * All functions but cuda_context_open, cuda_context_close and cuda_describe are called with the context current on the
 * thread and, where they take a stream, with its lock held. */
#ifndef ONNXFUSE_RUNTIME_DEVICE_CUDA_CONTEXT_H
#define ONNXFUSE_RUNTIME_DEVICE_CUDA_CONTEXT_H

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
    CuDevicePointer workspace;                 /* for cuBLASLt; 0: none yet */
    bool workspace_recorded;                   /* a product of the recording under way uses it */
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
    bool pools;            /* memory comes from the device's pool */
    CuMemoryPool pool;
    uint64_t pool_threshold; /* as it was */
    CudaStream own;          /* for calls without a stream */
    pthread_mutex_t blas_lock;
    _Atomic(CudaBlas *) blas; /* NULL: not opened, or not there */
    bool blas_tried;
    struct CudaContext *next;
} CudaContext;

/* --- context.c --- */

Status cuda_describe(const Policy *policy, Text *text);
Status cuda_context_open(const Policy *policy, CudaContext **out_context);
void cuda_context_close(CudaContext *context);
/* NULL for CU_OK, else "CUDA: <what>: <the driver's text>". Remembers faults that end the context. */
Status cuda_check(CudaContext *context, CuResult result, const char *format, ...) STATUS_FORMAT(3, 4);
/* Why nothing works any more; NULL while all is well. */
Status cuda_lost(CudaContext *context);
Status cuda_module_load(CudaContext *context, const void *binary, size_t size, CuModule *out_module);

Status cuda_stream_open(CudaContext *context, CudaStream *stream);
void cuda_stream_close(CudaContext *context, CudaStream *stream); /* waits; accepts what was opened in part, zeroed */

/* --- memory.c --- */

Status cuda_allocate(CudaContext *context, CudaStream *stream, size_t bytes, CuDevicePointer *out_data);
void cuda_release(CudaContext *context, CudaStream *stream, CuDevicePointer data); /* accepts 0 */
size_t cuda_free_memory(CudaContext *context);
Status cuda_copy(CudaContext *context, CudaStream *stream, CopyKind kind, void *to, const void *from, size_t bytes);
Status cuda_synchronize(CudaContext *context, CudaStream *stream);
/* Gives the pinned memory back; copies to the host that were not waited for are dropped. The stream is idle. */
void cuda_staging_free(CudaContext *context, CudaStream *stream);

/* --- graph.c --- */

Status cuda_record_begin(CudaContext *context, CudaStream *stream);
Status cuda_record_end(CudaContext *context, CudaStream *stream, void **out_recording);
Status cuda_record_abandon(CudaContext *context, CudaStream *stream);
Status cuda_replay(CudaContext *context, CudaStream *stream, void *recording);
void cuda_record_free(CudaContext *context, void *recording);

/* --- blas.c --- */

enum { CUDA_WORKSPACE_BYTES = 32 << 20 }; /* what NVIDIA recommends for its largest GPUs */

bool cuda_gemm_possible(const GpuGemm *gemm); /* types, sizes, alignment; asks no library */
CudaBlas *cuda_blas(CudaContext *context);    /* opens the library on first use; NULL: not there */
Status cuda_gemm(CudaContext *context, CudaStream *stream, const GpuGemm *gemm);
void cuda_blas_close(CudaContext *context);

#endif
