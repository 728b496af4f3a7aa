/* The GPU device that all drivers share: a DeviceTable's functions over a GpuDriver.
 *   device.c     open, compile, launch, memory, streams
 *   anchor.c     matrix products and convolutions: the driver's library or our own kernels (codegen/gpu/product.h)
 *   attention.c  blockwise attention (codegen/gpu/attention.h)
 *   movement.c   concat, gather, pad, strided copies (codegen/gpu/movement.h) */
#ifndef ONNXFUSE_RUNTIME_GPU_GPU_H
#define ONNXFUSE_RUNTIME_GPU_GPU_H

#include "runtime/device.h"
#include "runtime/gpu/driver.h"

/* `stream` of a DeviceTable's functions is a GpuStream (below); the driver's own is inside. */
typedef struct GpuDevice {
    Device base;
    const GpuDriver *driver;
    GpuContext *context;
    const GpuLimits *limits;
} GpuDevice;

static inline GpuDevice *gpu_device(const Device *device) { return (GpuDevice *)(uintptr_t)device; }

/* For the tables of runtime/cuda and runtime/opencl. */
Status gpu_open(const DeviceTable *table, const GpuDriver *driver, const Policy *policy, Device **out_device);

/* The functions of such a table that do not depend on the driver. */
extern const DeviceTable gpu_device_table;

/* A program by its source: from memory, the disk cache, or compiled; shared by all devices of the context and kept
 * until gpu_program_trim or the end of the process. Thread-safe. stats may be NULL. */
typedef struct GpuProgram GpuProgram;
Status gpu_program_get(GpuDevice *device, const char *source, KernelCacheStats *stats, GpuProgram **out_program);
void gpu_program_release(GpuProgram *program); /* accepts NULL */
Status gpu_program_function(GpuProgram *program, const char *name, const GpuFunction **out_function);

/* anchor.c: anchors "matmul", "conv", "conv_transpose" (ops/anchors.h). Weights that are constant are copied to the
 * device when they are prepared. Inputs and output of a run are in device memory. */
bool gpu_anchor_runs(const Device *device, const Node *node);
Status gpu_anchor_prepare(Device *device, const Node *node, const Tensor *const *constants, DeviceAnchor **out_anchor,
                          uint32_t *out_released);
void gpu_anchor_release(Device *device, DeviceAnchor *anchor);
size_t gpu_anchor_bytes(const DeviceAnchor *anchor);
const char *gpu_anchor_how(const DeviceAnchor *anchor);
Status gpu_anchor_run(Device *device, Stream *stream, DeviceAnchor *anchor, const Tensor *const *inputs,
                      const int64_t *symbols, Tensor *output);

/* movement.c: primitives outside regions. An index out of range is reported by the next gpu_faults_check. */
bool gpu_prim_runs(const Device *device, const Node *node);
Status gpu_prim_prepare(Device *device, const Node *node, KernelCacheStats *stats);
Status gpu_prim_run(Device *device, Stream *stream, const Node *node, const Tensor *const *inputs,
                    const int64_t *symbols, Tensor *output, Arena *scratch);

/* Streams of the GPU device: the driver's stream and a small block of device memory in which kernels report faults. */
typedef struct GpuStream {
    Stream *stream;      /* the driver's */
    void *faults;        /* device memory, GPU_FAULT_WORDS x i64, zero when there is none */
    bool may_fault;      /* something that reports was launched since the last check */
    const Node *suspect; /* the last such node, for the message */
} GpuStream;
enum { GPU_FAULT_WORDS = 4 }; /* [0]: 1 after a fault, [1]: the index, [2]: the size of the axis */
static inline GpuStream *gpu_stream(Stream *stream) { return (GpuStream *)stream; }

#endif
