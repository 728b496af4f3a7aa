/* SPDX-License-Identifier: Apache-2.0 */
/* Host kernels that a GPU has kernels of its own for: pools and resizes (codegen/gpu/window/window.h). */
#include <stdatomic.h>
#include <stdlib.h>

#include "codegen/gpu/window/window.h"
#include "ops/image/image.h"
#include "ops/window/window.h"
#include "runtime/device/gpu/gpu.h"

/* The programs that a device has used so far, by gpu_window_number; it holds them until it is closed. */
struct GpuWindows {
    _Atomic(GpuProgram *) programs[GPU_WINDOW_NUMBERS];
};

Status gpu_windows_create(struct GpuWindows **out_windows) {
    *out_windows = calloc(1, sizeof **out_windows);
    return *out_windows ? NULL : status_out_of_memory();
}

void gpu_windows_destroy(struct GpuWindows *windows) {
    if (!windows) return;
    for (int i = 0; i < GPU_WINDOW_NUMBERS; i++) gpu_program_release(atomic_load(&windows->programs[i]));
    free(windows);
}

static GpuWindowOp op_of(const Node *node) {
    static const struct {
        HostFn host;
        GpuWindowOp op;
    } ops[] = {{host_max_pool, GPU_WINDOW_MAX_POOL},
               {host_average_pool, GPU_WINDOW_AVERAGE_POOL},
               {host_lp_pool, GPU_WINDOW_LP_POOL},
               {host_resize, GPU_WINDOW_RESIZE}};
    for (size_t i = 0; i < sizeof ops / sizeof *ops; i++)
        if (node->kind == NODE_HOST && node->host == (const void *)ops[i].host) return ops[i].op;
    return GPU_WINDOW_NONE;
}

bool gpu_window_runs(const Device *device, const Node *node) {
    GpuWindowProgram programs[GPU_WINDOW_PROGRAMS];
    return gpu_window_programs(op_of(node), node, gpu_device(device)->limits, programs) > 0;
}

/* Several threads may make the same program at once: one of them gives it back. */
static Status make_program(GpuDevice *d, Arena *arena, GpuWindowProgram key, KernelCacheStats *stats,
                           GpuProgram **out_program) {
    _Atomic(GpuProgram *) *slot = &d->windows->programs[gpu_window_number(key)];
    GpuProgram *none = NULL;
    jmp_buf guard, *outer = arena_guard(arena, &guard);
    if (setjmp(guard)) {
        arena_guard(arena, outer);
        return status_out_of_memory();
    }
    Text text = text_make(arena);
    gpu_window_source(&text, d->driver->dialect, key);
    arena_guard(arena, outer);
    TRY(gpu_program_get(d, text.data, stats, out_program));
    if (atomic_compare_exchange_strong(slot, &none, *out_program)) return NULL;
    gpu_program_release(*out_program);
    *out_program = none;
    return NULL;
}

static Status find_program(GpuDevice *d, GpuWindowProgram key, KernelCacheStats *stats, GpuProgram **out_program) {
    *out_program = atomic_load(&d->windows->programs[gpu_window_number(key)]);
    if (*out_program) return NULL;
    Arena *arena = arena_create(0);
    if (!arena) return status_out_of_memory();
    Status status = make_program(d, arena, key, stats, out_program);
    arena_destroy(arena);
    return status;
}

Status gpu_window_prepare(Device *device, const Node *node, KernelCacheStats *stats) {
    GpuDevice *d = gpu_device(device);
    GpuWindowProgram programs[GPU_WINDOW_PROGRAMS];
    GpuProgram *program;
    int count = gpu_window_programs(op_of(node), node, d->limits, programs);
    for (int i = 0; i < count; i++)
        TRY(status_at(find_program(d, programs[i], stats, &program), "node \"%s\"", node_origin_name(node)));
    return NULL;
}

Status gpu_window_run(Device *device, Stream *stream, const Node *node, const Tensor *const *inputs,
                      const int64_t *symbols, Tensor *output) {
    GpuDevice *d = gpu_device(device);
    GpuWindowLaunch launch;
    GpuProgram *program;
    const GpuFunction *function;
    GpuArgument arguments[2 + GPU_WINDOW_ARGUMENTS] = {
        {.kind = GPU_ARG_BUFFER, .buffer = inputs[0]->data},
        {.kind = GPU_ARG_BUFFER, .buffer = output->data},
    };
    TRY(gpu_window_launch(op_of(node), node, inputs, symbols, output, &launch));
    if (!launch.grid) return NULL;
    TRY(find_program(d, launch.program, NULL, &program)); /* what gpu_window_prepare did not foresee */
    TRY(gpu_program_function(program, "window", &function));
    for (int i = 0; i < launch.count; i++) {
        const GpuWindowArgument *a = &launch.arguments[i];
        arguments[2 + i] = (GpuArgument){.kind = a->real ? GPU_ARG_F32 : GPU_ARG_I64, .i64 = a->i64, .f32 = a->f32};
    }
    return gpu_watch(d, d->driver->launch(d->context, gpu_stream(stream)->stream, function, launch.grid, launch.block,
                                          arguments, 2 + launch.count));
}
