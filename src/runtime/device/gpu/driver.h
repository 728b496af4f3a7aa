/* SPDX-License-Identifier: Apache-2.0 */
/* What the GPU device (gpu.h) asks of a driver: memory, programs, launches, streams. A driver is one
 * table in a folder of its own. A driver knows nothing of ONNX, graphs or schedules.
 *
 * Device memory is named by pointers that the host never follows. Pointers into an allocation may be computed (arenas,
 * views), and every call takes such. A GpuContext is one device, opened once a process and shared by all sessions; all
 * calls may come from several threads at once. Work on a stream is done in the order of the calls. */
#ifndef ONNXFUSE_RUNTIME_DEVICE_GPU_DRIVER_H
#define ONNXFUSE_RUNTIME_DEVICE_GPU_DRIVER_H

#include "codegen/gpu/gpu.h"
#include "graph/graph.h"
#include "policy/policy.h"
#include "runtime/device/device.h"

typedef struct GpuContext GpuContext;   /* a driver's own */
typedef struct GpuModule GpuModule;     /* a loaded program */
typedef struct GpuFunction GpuFunction; /* of a module, lives as long */

/* GPU_ARG_SHARED: the memory of a block that a kernel declares with SHARED_ARG (codegen/gpu/dialect.h), at most
 * GpuLimits.shared_most bytes; i64: how many. */
typedef enum GpuArgumentKind { GPU_ARG_BUFFER, GPU_ARG_I64, GPU_ARG_F32, GPU_ARG_SHARED } GpuArgumentKind;
typedef struct GpuArgument {
    GpuArgumentKind kind;
    void *buffer; /* device memory; may be NULL */
    int64_t i64;
    float f32;
} GpuArgument;

typedef enum GpuActivation { GPU_ACTIVATION_NONE, GPU_ACTIVATION_RELU, GPU_ACTIVATION_GELU_TANH } GpuActivation;

/* A matrix product for a library (cuBLASLt, CLBlast), all row-major:
 * d[b] = epilogue(alpha * op(a[b]) op(b[b]) + beta * c[b] + bias), b < batch. c may be d's own memory or other. */
typedef struct GpuGemm {
    DType dtype; /* f32, f16, bf16, f64; accumulated in f32 (f64) */
    int64_t m, n, k, batch;
    bool transpose_a, transpose_b;        /* a is [k, m], b is [n, k] in memory */
    int64_t lda, ldb, ldc;                /* elements a row takes in memory; ldc of d, and of c */
    int64_t stride_a, stride_b, stride_c; /* elements from one batch to the next; 0: the same for all */
    float alpha, beta;
    const void *a, *b, *c;    /* device memory; c NULL with beta 0 */
    const void *bias;         /* [n], or NULL */
    GpuActivation activation; /* applied last */
    void *d;
    void
        *workspace; /* device memory that the product may use until the stream has done it, 256-byte aligned, or NULL */
    size_t workspace_bytes;
} GpuGemm;

typedef struct GpuDriver {
    GpuDialect dialect;
    /* One line on the device for `onnxfuse devices`; STATUS_USAGE with what is missing and what to install. */
    Status (*describe)(const Policy *policy, Text *text);
    /* The process-wide context, opened on first use; counted: each open needs a close. */
    Status (*open)(const Policy *policy, GpuContext **out_context);
    void (*close)(GpuContext *context);
    const GpuLimits *(*limits)(const GpuContext *context);
    /* Part of the kernel cache's key: device and compiler, their versions. Lives as long as the context. */
    const char *(*target)(const GpuContext *context);

    /* Source -> binary for this device (malloc'ed, the caller's). Failures name the compiler's first messages. */
    Status (*compile)(GpuContext *context, const char *source, void **out_binary, size_t *out_size);
    Status (*load)(GpuContext *context, const void *binary, size_t size, GpuModule **out_module);
    void (*unload)(GpuContext *context, GpuModule *module);
    Status (*function)(GpuContext *context, GpuModule *module, const char *name, const GpuFunction **out_function);

    Status (*stream_create)(GpuContext *context, Stream **out_stream);
    void (*stream_destroy)(GpuContext *context, Stream *stream); /* accepts NULL; waits */
    Status (*synchronize)(GpuContext *context, Stream *stream);

    /* At least 256-byte aligned, not initialised. With a stream: ordered after its work so far. */
    Status (*allocate)(GpuContext *context, Stream *stream, size_t bytes, void **out_data);
    void (*release)(GpuContext *context, Stream *stream,
                    void *data);                /* accepts NULL; a stream's pending work is safe */
    size_t (*free_memory)(GpuContext *context); /* bytes that may still be allocated, about; 0: unknown */
    /* COPY_IN returns when `from` may be written again; COPY_OUT is complete after `synchronize`. */
    /* Gives back what is kept for coming calls: free device memory, host memory for copies. NULL: nothing is kept. */
    void (*trim)(GpuContext *context);
    Status (*copy)(GpuContext *context, Stream *stream, CopyKind kind, void *to, const void *from, size_t bytes);
    Status (*fill_zero)(GpuContext *context, Stream *stream, void *data, size_t bytes);
    Status (*launch)(GpuContext *context, Stream *stream, const GpuFunction *function, int64_t grid, int block,
                     const GpuArgument *arguments, int count);

    /* The library for matrix products; all NULL where there is none. gemm_supports: whether the library takes it
     * (types, alignment); gemm: STATUS_UNSUPPORTED, with the reason, means that nothing was done and our own kernel
     * should run instead. *out_workspace: 0, or nothing was done either and the product needs so many bytes of
     * workspace. */
    bool (*gemm_supports)(GpuContext *context, const GpuGemm *gemm);
    Status (*gemm)(GpuContext *context, Stream *stream, const GpuGemm *gemm, size_t *out_workspace);
    const char *gemm_name; /* for profiles: "cublasLt" */

    /* Recorded work that is replayed with one call; all NULL where there is none. Between begin and end the calls on
     * the stream are recorded, not run; allocate, release and synchronize on it are not allowed then. */
    Status (*record_begin)(GpuContext *context, Stream *stream);
    Status (*record_end)(GpuContext *context, Stream *stream, void **out_recording);
    Status (*record_abandon)(GpuContext *context, Stream *stream); /* after a failure between the two */
    Status (*replay)(GpuContext *context, Stream *stream, void *recording);
    void (*record_free)(GpuContext *context, void *recording); /* accepts NULL */
} GpuDriver;

#endif
