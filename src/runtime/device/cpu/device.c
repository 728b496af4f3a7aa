/* SPDX-License-Identifier: Apache-2.0 */
/* The CPU as a device: kernels are functions called over slices of their tasks, anchors run on tiles (tile.h), memory
 * is the process's. */
#include "runtime/device/device.h"

#include <stdlib.h>

#include "runtime/device/cpu/anchor.h"
#include "runtime/device/cpu/scratch.h"
#include "runtime/device/host_movement.h"

typedef struct CpuDevice {
    Device base;
    PackStore *packs;
} CpuDevice;

struct DeviceKernel {
    KernelCode *code;
    KernelFunction function;
    const Kernel *kernel;
    bool needs_scratch;
};

/* A piece of a kernel should run for about 8 us, so that waking a worker (2-5 us) pays; measured instruction rates of
 * generated kernels are 5-15 elementwise instructions a nanosecond a core with 512-bit vectors. */
enum { PIECE_WORK = 65536 };

static Status cpu_describe(const Policy *policy, Text *text) {
    (void)policy;
    Pool *pool;
    TRY(pool_shared(0, &pool));
    Target target = {.device = DEVICE_CPU, .level = "host"};
    TRY(target_resolve(text->arena, &target));
    text_add(text, "%s, %d threads, %d-bit vectors", target.cpu, pool_threads(pool), target.vector_bytes * 8);
    return NULL;
}

static void cpu_close(Device *device) {
    pack_store_destroy(((CpuDevice *)device)->packs);
    free(device);
}

static Status cpu_open(const Policy *policy, Device **out_device) {
    CpuDevice *device = calloc(1, sizeof *device);
    if (!device) return status_out_of_memory();
    device->base = (Device){.table = &cpu_device, .policy = policy};
    Status status = policy_pool(policy, &device->base.pool);
    if (!status) status = pack_store_create(&device->packs);
    if (status) {
        cpu_close(&device->base);
        return status;
    }
    *out_device = &device->base;
    return NULL;
}

static void cpu_release_kernel(Device *device, DeviceKernel *kernel) {
    (void)device;
    kernel_code_release(kernel->code);
    free(kernel);
}

/* Code that is there already is taken as it is, all other from the cache: a compiled model has all, a model none. */
static Status find_codes(const Device *device, const RegionKernel *const *regions, const Kernel *const *kernels,
                         int count, KernelCacheStats *stats, KernelCode **codes) {
    bool all = true;
    for (int i = 0; i < count; i++) all = all && regions[i]->code;
    if (!all) return kernel_cache_get(kernels, count, device->policy, stats, codes);
    for (int i = 0; i < count; i++) codes[i] = kernel_code_hold(regions[i]->code);
    return NULL;
}

static Status cpu_compile(Device *device, const RegionKernel *const *regions, int count, KernelCacheStats *stats,
                          DeviceKernel **out_kernels) {
    const Kernel **kernels = calloc((size_t)count, sizeof *kernels);
    KernelCode **codes = calloc((size_t)count, sizeof *codes);
    Status status = kernels && codes ? NULL : status_out_of_memory();
    for (int i = 0; !status && i < count; i++) {
        kernels[i] = regions[i]->kernel;
        out_kernels[i] = calloc(1, sizeof **out_kernels);
        if (!out_kernels[i]) status = status_out_of_memory();
    }
    if (!status) status = find_codes(device, regions, kernels, count, stats, codes);
    for (int i = 0; i < count; i++) {
        if (status) {
            free(out_kernels[i]);
            out_kernels[i] = NULL;
            continue;
        }
        *out_kernels[i] = (DeviceKernel){codes[i], kernel_code_function(codes[i]), kernels[i],
                                         kernels[i]->stage_count > 1 || kernels[i]->tile_axis >= 0 || kernels[i]->band};
    }
    free(kernels);
    free(codes);
    return status;
}

static Status cpu_prepare_anchor(Device *device, const Node *node, const Tensor *const *constants,
                                 DeviceAnchor **out_anchor, uint32_t *out_released) {
    return cpu_anchor_prepare(node, constants, device->pool, ((CpuDevice *)device)->packs, (CpuAnchor **)out_anchor,
                              out_released);
}

static Status cpu_restore_anchor(Device *device, const Node *node, const Tensor *const *constants, const Packed *packed,
                                 int count, DeviceAnchor **out_anchor, uint32_t *out_released) {
    return cpu_anchor_restore(node, constants, packed, count, device->pool, (CpuAnchor **)out_anchor, out_released);
}

static int cpu_anchor_parts(const DeviceAnchor *anchor, const Packed **out_packed, uint32_t *out_released) {
    return cpu_anchor_packed((const CpuAnchor *)anchor, out_packed, out_released);
}

static void cpu_release_anchor(Device *device, DeviceAnchor *anchor) {
    (void)device;
    cpu_anchor_destroy((CpuAnchor *)anchor);
}

static size_t cpu_bytes(const DeviceAnchor *anchor) { return cpu_anchor_bytes((const CpuAnchor *)anchor); }
static const char *cpu_how(const DeviceAnchor *anchor) { return cpu_anchor_how((const CpuAnchor *)anchor); }

/* Scratch of one worker, kept apart from the next one's by whole cache lines. */
static size_t worker_scratch(const Kernel *kernel, const int64_t *params) {
    return (kernel_scratch_bytes(kernel, params) + 127) / 128 * 128;
}

static size_t all_scratch(const Device *device, const DeviceKernel *kernel, size_t of_worker) {
    return kernel->kernel->band ? of_worker : of_worker * (size_t)pool_threads(device->pool); /* bands share it */
}

static size_t cpu_kernel_scratch(const Device *device, const DeviceKernel *kernel, const int64_t *params) {
    return kernel->needs_scratch ? all_scratch(device, kernel, worker_scratch(kernel->kernel, params)) : 0;
}

typedef struct LaunchCall {
    KernelFunction function;
    void *const *buffers;
    const int64_t *params;
    char *scratch;
    size_t scratch_bytes; /* of one worker; 0: all share it */
    int64_t first;        /* the number of the loop's first task */
} LaunchCall;

static void launch_piece(void *context, int64_t begin, int64_t end, int worker) {
    const LaunchCall *call = context;
    call->function(call->buffers, call->params, call->first + begin, call->first + end,
                   call->scratch + call->scratch_bytes * (size_t)worker);
}

static int64_t grain_of(int64_t per_task) {
    int64_t grain = per_task > 0 ? PIECE_WORK / per_task : PIECE_WORK;
    return grain < 1 ? 1 : grain;
}

static Status cpu_launch(Device *device, Stream *stream, const DeviceKernel *kernel, void *const *buffers,
                         const int64_t *params, int64_t work, const Workspace *workspace) {
    (void)stream;
    const Kernel *k = kernel->kernel;
    int64_t tasks = kernel_tasks(k, params), bands = kernel_band_tasks(k, params);
    if (tasks <= 0) return NULL;
    LaunchCall call = {.function = kernel->function, .buffers = buffers, .params = params};
    size_t own = kernel->needs_scratch ? worker_scratch(k, params) : 0;
    void *scratch = NULL;
    if (own && workspace) TRY(workspace->take(workspace->owner, all_scratch(device, kernel, own), &scratch));
    call.scratch = scratch;
    call.scratch_bytes = k->band ? 0 : own;
    if (bands) {
        pool_for(device->pool, bands, grain_of(work / bands), launch_piece, &call);
        call.first = bands;
        work /= k->band;
    }
    pool_for(device->pool, tasks, grain_of(work / tasks), launch_piece, &call);
    return NULL;
}

static DType cpu_finishes_with(const Device *device, const Node *node, const Value **out_begin) {
    (void)device;
    return cpu_anchor_finishes_with(node, out_begin);
}

static uint64_t cpu_inplace(const Device *device, const Node *node) {
    (void)device;
    return cpu_anchor_inplace(node);
}

static KernelFunction finish_function(const AnchorFinish *finish) { return finish ? finish->kernel->function : NULL; }
static const RegionKernel *finish_region(const AnchorFinish *finish) { return finish ? finish->region : NULL; }

static Status cpu_run_anchor(Device *device, Stream *stream, DeviceAnchor *anchor, const AnchorFinish *finish,
                             const Tensor *const *inputs, const int64_t *symbols, Tensor *outputs) {
    (void)stream;
    return cpu_anchor_run((CpuAnchor *)anchor, finish_function(finish), finish_region(finish), inputs, symbols, outputs,
                          device->pool);
}

static Status cpu_run_behind(Device *device, Stream *stream, const AnchorPrologue *prologue, DeviceAnchor *anchor,
                             const AnchorFinish *finish, const Tensor *const *inputs, const int64_t *symbols,
                             Tensor *outputs) {
    (void)stream;
    const CpuPrologue before = {(CpuAnchor *)prologue->anchor,   finish_function(prologue->finish),
                                finish_region(prologue->finish), prologue->inputs,
                                prologue->input_count,           prologue->output};
    return cpu_anchor_run_behind(&before, (CpuAnchor *)anchor, finish_function(finish), finish_region(finish), inputs,
                                 symbols, outputs, device->pool);
}

static bool cpu_is_prologue(const Device *device, const Node *maker, const Node *reader) {
    (void)device;
    return cpu_anchor_is_prologue(maker, reader);
}

static bool cpu_takes_prologue(const Device *device, const Node *maker, const Tensor *between) {
    return cpu_anchor_takes_prologue(maker, between, device->pool);
}

static bool cpu_takes_unaligned(const Node *node, int index) {
    if (node->kind == NODE_ANCHOR) return index == 1 && cpu_anchor_packs_weight(node);
    return node->kind == NODE_PRIM && node->prim == PRIM_GATHER && index == 0;
}

static Status cpu_allocate(Device *device, Stream *stream, Memory *memory, size_t bytes, void **out_data) {
    (void)device, (void)stream;
    return memory_alloc(memory, bytes, out_data);
}

static void cpu_release(Device *device, Stream *stream, Memory *memory, void *data) {
    (void)device, (void)stream;
    memory_free(memory, data);
}

static Status cpu_copy(Device *device, Stream *stream, CopyKind kind, void *to, const void *from, size_t bytes) {
    (void)device, (void)stream, (void)kind;
    if (bytes) memcpy(to, from, bytes);
    return NULL;
}

static Status cpu_run_prim(Device *device, Stream *stream, const Node *node, const Tensor *const *inputs,
                           const int64_t *symbols, Tensor *output, Arena *scratch) {
    (void)stream;
    return move_prim(node, inputs, symbols, output, device->pool, scratch);
}

static void cpu_trim(Device *device) {
    (void)device;
    scratch_trim();
    kernel_cache_trim();
}

static Status cpu_synchronize(Device *device, Stream *stream) {
    (void)device, (void)stream;
    return NULL;
}

const DeviceTable cpu_device = {
    .kind = DEVICE_CPU,
    .name = "cpu",
    .epilogue = {.outputs = EPILOGUE_OUTPUTS, .any_types = true},
    .finishes_with = cpu_finishes_with,
    .anchor_inplace = cpu_inplace,
    .anchors = {.attention = true,
                .attention_backward = true,
                .attention_drop = true,
                .attention_sink = true,
                .bytes = true,
                .bits = true,
                .grouped = true,
                .turned_conv = true},
    .describe = cpu_describe,
    .open = cpu_open,
    .takes_unaligned = cpu_takes_unaligned,
    .close = cpu_close,
    .compile = cpu_compile,
    .release_kernel = cpu_release_kernel,
    .prepare_anchor = cpu_prepare_anchor,
    .restore_anchor = cpu_restore_anchor,
    .anchor_packed = cpu_anchor_parts,
    .release_anchor = cpu_release_anchor,
    .anchor_bytes = cpu_bytes,
    .anchor_how = cpu_how,
    .kernel_scratch = cpu_kernel_scratch,
    .launch = cpu_launch,
    .run_anchor = cpu_run_anchor,
    .is_prologue = cpu_is_prologue,
    .takes_prologue = cpu_takes_prologue,
    .run_behind = cpu_run_behind,
    .run_prim = cpu_run_prim,
    .allocate = cpu_allocate,
    .release = cpu_release,
    .copy = cpu_copy,
    .synchronize = cpu_synchronize,
    .trim = cpu_trim,
};
