/* SPDX-License-Identifier: Apache-2.0 */
/* What the runtime asks of a device. A device is one folder behind this table; it renders, launches and copies, and
 * holds no schedule.
 *
 * Buffers are in the device's own memory (`allocate`); for the CPU that is the process's. Calls that take a `Stream`
 * may return before the work is done on devices that are asynchronous; `synchronize` waits. The CPU does everything in
 * the call and has no streams. */
#ifndef ONNXFUSE_RUNTIME_DEVICE_DEVICE_H
#define ONNXFUSE_RUNTIME_DEVICE_DEVICE_H

#include "base/pool.h"
#include "codegen/codegen.h"
#include "graph/graph.h"
#include "policy/policy.h"
#include "runtime/device/session_memory.h"
#include "runtime/device/packed.h"

typedef struct Device Device;
typedef struct Stream Stream;             /* of a device; NULL on the CPU */
typedef struct DeviceKernel DeviceKernel; /* a compiled region */
typedef struct DeviceAnchor DeviceAnchor; /* a prepared anchor, with its packed weights */
typedef struct DeviceRecording DeviceRecording;

typedef enum CopyKind {
    COPY_IN,
    COPY_OUT,
    COPY_WITHIN
} CopyKind; /* host to device, device to host, inside the device */

/* Where a launch takes its workspace from: memory of the device that is its own until it is done, uninitialised and
 * aligned for all accesses. It asks once, when it knows what it launches. */
typedef struct Workspace {
    Status (*take)(void *owner, size_t bytes, void **out_data);
    void *owner;
} Workspace;

/* An anchor's epilogue as a kernel. */
typedef struct AnchorFinish {
    const RegionKernel *region; /* in tile form */
    const DeviceKernel *kernel;
} AnchorFinish;

/* An anchor, or a concat, whose result another anchor reads, its first input, and makes or finds as it needs it: it is nowhere as a
 * whole. */
typedef struct AnchorPrologue {
    DeviceAnchor *anchor;        /* NULL: a concat along the last axis */
    const AnchorFinish *finish;  /* as run_anchor's */
    const Tensor *const *inputs; /* [input_count] of its node */
    int input_count;
    const Tensor *output; /* without data */
} AnchorPrologue;

typedef struct DeviceTable {
    DeviceKind kind;
    const char *name;
    struct EpilogueLimits epilogue; /* of its anchors */
    bool separate_memory;           /* its memory is not the host's: the plan copies between them */
    struct AnchorLimits anchors;
    /* A line for `onnxfuse devices`; STATUS_USAGE with the reason and what to install when the device cannot be used.
     */
    Status (*describe)(const Policy *policy, Text *text);
    /* With policy->device DEVICE_AUTO, a device that computes on the host's own cores (OpenCL on the CPU) refuses. */
    Status (*open)(const Policy *policy, Device **out_device);
    void (*close)(Device *device);

    /* Whether a region, an anchor or a primitive outside regions runs on the device; what does not runs on the CPU.
     * NULL: all do. */
    bool (*runs)(const Device *device, const Node *node);
    /* Whether the device has a kernel of its own for what a host node computes: then its first output is made by
     * prepare_prim and run_prim, as a primitive's is. Its dims are known before it runs, and of its inputs the device
     * reads the first; others are constants. NULL: none. */
    bool (*runs_host)(const Device *device, const Node *node);
    /* Whether constant input `index` of this anchor or primitive may be unaligned (tensor_is_aligned): it is packed, or
     * moved by bytes. NULL: none may. */
    bool (*takes_unaligned)(const Node *node, int index);
    /* Compiles all kernels of a plan at once; out_kernels[i] is released with release_kernel. */
    Status (*compile)(Device *device, const RegionKernel *const *kernels, int count, KernelCacheStats *stats,
                      DeviceKernel **out_kernels);
    void (*release_kernel)(Device *device, DeviceKernel *kernel);
    /* As cpu_anchor_prepare: constants [input_count], NULL where not constant, in host memory; out_released bit i:
     * constants[i] is no longer read. */
    Status (*prepare_anchor)(Device *device, const Node *node, const Tensor *const *constants,
                             DeviceAnchor **out_anchor, uint32_t *out_released);
    /* For compiled models: what an anchor has packed, in the order in which it was made, and as prepare_anchor's
     * out_released. NULL: the device packs nothing that could be kept. */
    int (*anchor_packed)(const DeviceAnchor *anchor, const Packed **out_packed, uint32_t *out_released);
    /* As prepare_anchor, of what was packed before: it stays where it is as long as the anchor; the data of constants
     * that were released then is NULL. STATUS_INVALID when it does not fit the node. */
    Status (*restore_anchor)(Device *device, const Node *node, const Tensor *const *constants, const Packed *packed,
                             int count, DeviceAnchor **out_anchor, uint32_t *out_released);
    void (*release_anchor)(Device *device, DeviceAnchor *anchor);
    size_t (*anchor_bytes)(const DeviceAnchor *anchor);
    const char *(*anchor_how)(const DeviceAnchor *anchor);
    /* The type in which the results of this anchor meet a kernel in tile form (codegen_tile) that is compiled for its
     * epilogue, DT_NONE where it needs none; *out_begin: of which value of the epilogue's body on. NULL: no anchor
     * does. */
    DType (*finishes_with)(const Device *device, const Node *node, const Value **out_begin);
    /* For an anchor without such a kernel: the inputs (bit i for input i) whose buffer its first result may share, since
     * they are read at the element that is written, before it is. NULL: none. */
    uint64_t (*anchor_inplace)(const Device *device, const Node *node);
    /* Before the first run_prim of this node (a primitive, or what runs_host takes): compiles what it needs. NULL:
     * nothing. */
    Status (*prepare_prim)(Device *device, const Node *node, KernelCacheStats *stats);
    /* Adds what prepare_anchor has compiled, or found, since the last call. NULL: nothing. */
    void (*count_anchors)(Device *device, KernelCacheStats *stats);
    /* Bytes of workspace that a launch of these sizes may take, wherever its buffers begin. */
    size_t (*kernel_scratch)(const Device *device, const DeviceKernel *kernel, const int64_t *params);

    /* buffers and params as the kernel's; work: instructions in all, for the choice of the grain; workspace NULL: the
     * launch is counted alone (base/pool.h). */
    Status (*launch)(Device *device, Stream *stream, const DeviceKernel *kernel, void *const *buffers,
                     const int64_t *params, int64_t work, const Workspace *workspace);
    /* symbols: this run's values, as dim_eval takes them, for sizes in the node's attributes. outputs: [output_count].
     * finish: NULL where finishes_with says that there is none. */
    Status (*run_anchor)(Device *device, Stream *stream, DeviceAnchor *anchor, const AnchorFinish *finish,
                         const Tensor *const *inputs, const int64_t *symbols, Tensor *outputs);
    /* Whether the anchor or concat `maker` may run as the prologue of `reader`; of an anchor that alone reads its result, of a concat
     * all do that read it. NULL: none may. */
    bool (*is_prologue)(const Device *device, const Node *maker, const Node *reader);
    /* Whether such a one is to, where its result has this shape (its data is not looked at); else each runs by itself. */
    bool (*takes_prologue)(const Device *device, const Node *maker, const Tensor *between);
    /* As run_anchor, where both say so: inputs[0] has no data. */
    Status (*run_behind)(Device *device, Stream *stream, const AnchorPrologue *prologue, DeviceAnchor *anchor,
                         const AnchorFinish *finish, const Tensor *const *inputs, const int64_t *symbols,
                         Tensor *outputs);
    /* A primitive outside regions (runtime/device/host_movement.h); scratch: of this call. */
    Status (*run_prim)(Device *device, Stream *stream, const Node *node, const Tensor *const *inputs,
                       const int64_t *symbols, Tensor *output, Arena *scratch);
    /* memory: counts host memory; devices of their own memory count it themselves. With a stream, allocate and release
     * are ordered after its work so far. */
    Status (*allocate)(Device *device, Stream *stream, Memory *memory, size_t bytes, void **out_data);
    void (*release)(Device *device, Stream *stream, Memory *memory, void *data);
    /* COPY_IN returns when `from` may be written again; the result of COPY_OUT is there after `synchronize`. */
    Status (*copy)(Device *device, Stream *stream, CopyKind kind, void *to, const void *from, size_t bytes);
    /* Work on a stream is done in the order of the calls. NULL pointers: the device has no streams. */
    Status (*stream_create)(Device *device, Stream **out_stream);
    void (*stream_destroy)(Device *device, Stream *stream); /* accepts NULL; waits */
    /* Waits; gives the errors of work that failed on the device since the last call (an index out of range, say). */
    Status (*synchronize)(Device *device, Stream *stream);

    /* Recorded work that is replayed with one call; all NULL where there is none. Between record_begin and record_end
     * the calls on the stream (launch, run_anchor, run_prim) are recorded, not done; what they need memory for they
     * have when the same calls were made on the stream just before. Copies from or to the host, allocate, release and
     * synchronize on it are refused meanwhile. */
    bool (*records)(const Device *device);
    Status (*record_begin)(Device *device, Stream *stream);
    Status (*record_end)(Device *device, Stream *stream, DeviceRecording **out_recording);
    void (*record_abandon)(Device *device, Stream *stream); /* after a failure between the two */
    Status (*replay)(Device *device, Stream *stream, DeviceRecording *recording);
    void (*record_free)(Device *device, DeviceRecording *recording); /* accepts NULL; its work is done */

    /* Gives back memory and programs that are kept for coming runs and that nobody uses: the process's and, where a
     * device is given, that device's own. */
    void (*trim)(Device *device);
} DeviceTable;

struct Device {
    const DeviceTable *table;
    const Policy *policy;
    Pool *pool; /* host threads */
};

extern const DeviceTable cpu_device, cuda_device, opencl_device; /* each in its folder */

#endif
