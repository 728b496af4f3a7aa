/* SPDX-License-Identifier: Apache-2.0 */
/* The GPU device that all drivers share: a DeviceTable's functions over a GpuDriver.
 *   device.c     open, streams, copies, faults
 *   recording.c  recordings, and the memory that steps share on a stream
 *   kernel.c     regions: what runs, compile, launch
 *   memory.c     device memory, counted
 *   program.c    programs by their source: compiled once a process, kept on disk
 *   anchor.c     matrix products and convolutions: the driver's library or our own kernels (codegen/gpu/product/product.h)
 *   anchor_attention.c  blockwise attention (codegen/gpu/attention/attention.h)
 *   movement.c   concat, gather, pad, strided copies (codegen/gpu/movement/movement.h)
 *   window.c     pools and resizes (codegen/gpu/window/window.h) */
#ifndef ONNXFUSE_RUNTIME_DEVICE_GPU_GPU_H
#define ONNXFUSE_RUNTIME_DEVICE_GPU_GPU_H

#include <pthread.h>
#include "lowering/anchors.h"
#include "runtime/device/device.h"
#include "runtime/device/gpu/driver.h"

/* `stream` of a DeviceTable's functions is a GpuStream (below); the driver's own is inside. */
typedef struct GpuDevice {
    Device base;
    const GpuDriver *driver;
    GpuContext *context;
    const GpuLimits *limits;
    atomic_bool failed;           /* some call of the driver has */
    KernelCacheStats uncounted;   /* of programs asked for without stats; under program.c's lock */
    struct GpuBlocks *blocks;     /* what the session holds of the device's memory, and its limit */
    struct GpuMovement *movement; /* movement.c: the programs that it holds */
    struct GpuWindows *windows;   /* window.c: likewise */
    bool strict;                  /* what the driver's library refuses is an error */
    pthread_mutex_t setup_lock;   /* of setup */
    Stream *setup;                /* a GpuStream for what is done once, when anchors are prepared; NULL: none yet */
} GpuDevice;

static inline GpuDevice *gpu_device(const Device *device) { return (GpuDevice *)(uintptr_t)device; }

/* device.c, kernel.c, memory.c: the functions of a driver's table. */
Status gpu_open(const DeviceTable *table, const GpuDriver *driver, const Policy *policy, Device **out_device);
void gpu_close(Device *device);
Status gpu_watch(GpuDevice *device, Status status); /* the driver's status of a call, noted in `failed` */
bool gpu_runs(const Device *device, const Node *node);
Status gpu_copy(Device *device, Stream *stream, CopyKind kind, void *to, const void *from, size_t bytes);
Status gpu_stream_create(Device *device, Stream **out_stream);
void gpu_stream_destroy(Device *device, Stream *stream);
Status gpu_synchronize(Device *device, Stream *stream);
/* A stream that is the caller's until gpu_setup_end, which waits for it: one a device, since each has pinned memory. */
Status gpu_setup_begin(GpuDevice *device, Stream **out_stream);
Status gpu_setup_end(GpuDevice *device);
/* device NULL: of the process alone. */
void gpu_trim(Device *device);
/* A table's prepare_prim and run_prim: movement.c's or window.c's. */
Status gpu_step_prepare(Device *device, const Node *node, KernelCacheStats *stats);
Status gpu_step_run(Device *device, Stream *stream, const Node *node, const Tensor *const *inputs,
                    const int64_t *symbols, Tensor *output, Arena *scratch);

bool gpu_region_runs(const Device *device, const Node *region);
Status gpu_compile(Device *device, const RegionKernel *const *kernels, int count, KernelCacheStats *stats,
                   DeviceKernel **out_kernels);
void gpu_release_kernel(Device *device, DeviceKernel *kernel); /* accepts NULL */
size_t gpu_kernel_scratch(const Device *device, const DeviceKernel *kernel, const int64_t *params);
Status gpu_launch(Device *device, Stream *stream, const DeviceKernel *kernel, void *const *buffers,
                  const int64_t *params, int64_t work, const Workspace *workspace);

/* stream: a GpuStream or NULL. 256-byte aligned, not initialised; counted against the policy's memory limit: weights of
 * anchors and constants too go through these two. */
Status gpu_allocate(Device *device, Stream *stream, Memory *memory, size_t bytes, void **out_data);
void gpu_release(Device *device, Stream *stream, Memory *memory, void *data); /* accepts NULL */
Status gpu_blocks_create(int64_t limit_megabytes, struct GpuBlocks **out_blocks);
void gpu_blocks_destroy(struct GpuBlocks *blocks); /* accepts NULL */
/* Bytes of device memory that this device holds, and that all GPU devices of the process hold. */
size_t gpu_memory_used(const Device *device);
size_t gpu_memory_used_by_all(void);

/* A table's entries that are the same for all drivers; it adds kind, name, describe, open:
 *     const DeviceTable cuda_device = {.kind = DEVICE_CUDA, ..., GPU_DEVICE_FUNCTIONS}; */
#define GPU_DEVICE_FUNCTIONS                                                                                           \
    .epilogue = {.outputs = 1}, .anchors = {.attention = true, .joined_products = true}, .separate_memory = true,      \
    .close = gpu_close, .runs = gpu_runs, .runs_host = gpu_window_runs, .compile = gpu_compile,                        \
    .release_kernel = gpu_release_kernel, .kernel_scratch = gpu_kernel_scratch, .launch = gpu_launch,                  \
    .prepare_anchor = gpu_anchor_prepare, .release_anchor = gpu_anchor_release, .anchor_bytes = gpu_anchor_bytes,      \
    .anchor_how = gpu_anchor_how, .run_anchor = gpu_anchor_run, .count_anchors = gpu_count_anchors,                    \
    .prepare_prim = gpu_step_prepare, .run_prim = gpu_step_run, .allocate = gpu_allocate, .release = gpu_release,      \
    .copy = gpu_copy, .stream_create = gpu_stream_create, .stream_destroy = gpu_stream_destroy,                        \
    .synchronize = gpu_synchronize, .records = gpu_records, .record_begin = gpu_record_begin,                          \
    .record_end = gpu_record_end, .record_abandon = gpu_record_abandon, .replay = gpu_replay,                          \
    .record_free = gpu_record_free, .trim = gpu_trim

/* program.c: a program by its source: from memory, the disk cache, or compiled; shared by all devices of the context
 * and kept until gpu_program_trim or the end of the process. Thread-safe. stats NULL: counted by the device until
 * gpu_count_anchors. */
typedef struct GpuProgram GpuProgram;
Status gpu_program_get(GpuDevice *device, const char *source, KernelCacheStats *stats, GpuProgram **out_program);
/* Many at once, compiled on the device's host threads; equal ones share. All or, on failure, none: out_programs[i] is
 * NULL then. */
Status gpu_programs_get(GpuDevice *device, const char *const *sources, int count, KernelCacheStats *stats,
                        GpuProgram **out_programs);
GpuProgram *gpu_program_hold(GpuProgram *program); /* counts one reference more */
void gpu_program_release(GpuProgram *program);     /* accepts NULL */
/* Lives as long as the program is held. */
Status gpu_program_function(GpuProgram *program, const char *name, const GpuFunction **out_function);
void gpu_count_anchors(Device *device, KernelCacheStats *stats);
/* Unloads programs that nobody holds, and closes contexts that were open for them alone. */
void gpu_program_trim(void);

/* anchor.c: anchors "matmul", "conv", "conv_transpose" (lowering/anchors.h). Weights that are constant are copied to the
 * device when they are prepared. Inputs and output of a run are in device memory. */
bool gpu_anchor_runs(const Device *device, const Node *node);
Status gpu_anchor_prepare(Device *device, const Node *node, const Tensor *const *constants, DeviceAnchor **out_anchor,
                          uint32_t *out_released);
void gpu_anchor_release(Device *device, DeviceAnchor *anchor);
size_t gpu_anchor_bytes(const DeviceAnchor *anchor);
/* What its products have run on; before the first run, what they are expected to. */
const char *gpu_anchor_how(const DeviceAnchor *anchor);
Status gpu_anchor_run(Device *device, Stream *stream, DeviceAnchor *anchor, const AnchorFinish *finish,
                      const Tensor *const *inputs, const int64_t *symbols, Tensor *outputs);

/* movement.c: primitives outside regions. An index out of range is reported by the next gpu_synchronize. */
Status gpu_movement_create(struct GpuMovement **out_movement);
void gpu_movement_destroy(struct GpuMovement *movement); /* accepts NULL */
bool gpu_prim_runs(const Device *device, const Node *node);
Status gpu_prim_prepare(Device *device, const Node *node, KernelCacheStats *stats);
Status gpu_prim_run(Device *device, Stream *stream, const Node *node, const Tensor *const *inputs,
                    const int64_t *symbols, Tensor *output, Arena *scratch);

/* window.c: host kernels' work. */
Status gpu_windows_create(struct GpuWindows **out_windows);
void gpu_windows_destroy(struct GpuWindows *windows); /* accepts NULL */
bool gpu_window_runs(const Device *device, const Node *node);
Status gpu_window_prepare(Device *device, const Node *node, KernelCacheStats *stats);
Status gpu_window_run(Device *device, Stream *stream, const Node *node, const Tensor *const *inputs,
                      const int64_t *symbols, Tensor *outputs);

/* Streams of the GPU device: the driver's stream and a small block of device memory in which kernels report faults. */
typedef struct GpuStream {
    Stream *stream;      /* the driver's */
    void *faults;        /* device memory, GPU_FAULT_WORDS x i64, zero when there is none */
    bool may_fault;      /* something that reports was launched since the last check */
    const Node *suspect; /* the last such node, for the message */
    bool recording;
    void *scratch; /* device memory for steps, one after the other; NULL: none yet */
    size_t scratch_bytes;
} GpuStream;
enum { GPU_FAULT_WORDS = 4 }; /* [0]: 1 after a fault, [1]: the index, [2]: the size of the axis */
static inline GpuStream *gpu_stream(Stream *stream) { return (GpuStream *)stream; }

/* recording.c. Memory for what a step computes on the way, until the next step on the stream asks; the stream keeps it, or
 * the recording that uses it. */
Status gpu_stream_scratch(Device *device, Stream *stream, size_t bytes, void **out_data);
Status gpu_not_recorded(const char *what);
bool gpu_records(const Device *device);
Status gpu_record_begin(Device *device, Stream *stream);
Status gpu_record_end(Device *device, Stream *stream, DeviceRecording **out_recording);
void gpu_record_abandon(Device *device, Stream *stream);
Status gpu_replay(Device *device, Stream *stream, DeviceRecording *recording);
void gpu_record_free(Device *device, DeviceRecording *recording); /* accepts NULL */

#endif
