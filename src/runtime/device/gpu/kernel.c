/* SPDX-License-Identifier: Apache-2.0 */
/* Regions' kernels: the program of each distinct kernel of a plan, and its launches. What a launch computes from the
 * kernel alone is decided when it is compiled; at run time only sizes are looked at. */
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "codegen/math.h"
#include "runtime/device/gpu/gpu.h"

enum { FEW_ARGUMENTS = 64, VECTOR_BYTES = 16 };
static const char region_name[] = "region";

/* The same kernel without vectors and with long indices, for buffers of callers that begin anywhere, and for tensors of
 * 2^30 elements and more. */
typedef struct General {
    Kernel kernel;
    GpuSchedule schedule;
    DeviceKernel *_Atomic compiled; /* when first needed */
    int access_count;
    const KernelAccess *accesses[]; /* gpu_accesses's */
} General;

struct DeviceKernel {
    const Kernel *kernel; /* the plan's */
    GpuSchedule schedule;
    General *general; /* NULL: it is that already */
    GpuProgram *program;
    int function_count;
    const char *suffixes[GPU_MOST_FUNCTIONS];
    const GpuFunction *functions[GPU_MOST_FUNCTIONS];
    unsigned char alignments[]; /* [2][the kernel's buffers]: what their accesses need; then, of `even` functions */
};

/* --- what runs --- */

/* Bytes that a launch's arguments take at most: CUDA's 4 kB; OpenCL 1.2 promises 1 kB (CL_DEVICE_MAX_PARAMETER_SIZE). A
 * buffer is a pointer, in OpenCL with its offset. */
static int argument_bytes(const GpuDevice *d) {
    return d->limits->argument_bytes ? d->limits->argument_bytes : d->driver->dialect == GPU_CUDA ? 4096 : 1024;
}

static int buffer_bytes(const GpuDevice *d) { return d->driver->dialect == GPU_CUDA ? 8 : 16; }

/* Before codegen the number of parameters is bounded: at most one a size that is known only at run time. */
static int64_t most_argument_bytes(const GpuDevice *d, const Node *region) {
    int64_t buffers = 1, params = GPU_MAX_EXTRA;
    for (int pass = 0; pass < 2; pass++) {
        Value *const *values = pass ? region->outputs : region->inputs;
        int count = pass ? region->output_count : region->input_count;
        for (int i = 0; i < count; i++) {
            if (!values[i]) continue;
            buffers++;
            for (int axis = 0; axis < values[i]->rank; axis++) params += !dim_is_const(values[i]->dims[axis], NULL);
        }
    }
    return buffers * buffer_bytes(d) + params * 8;
}

static bool needs_double(const Node *node) {
    for (int i = 0; i < node->input_count; i++)
        if (node->inputs[i] && node->inputs[i]->dtype == DT_F64) return true;
    for (int i = 0; i < node->output_count; i++)
        if (node->outputs[i] && node->outputs[i]->dtype == DT_F64) return true;
    return node->kind == NODE_PRIM && math_through_double(node->prim) &&
           dtype_is_float(node->outputs[0]->dtype); /* integer powers need none */
}

bool gpu_region_runs(const Device *device, const Node *region) {
    const GpuDevice *d = gpu_device(device);
    if (most_argument_bytes(d, region) > argument_bytes(d)) return false;
    if (d->limits->fp64) return true;
    FOR_EACH_NODE(node, region->subgraphs[0])
    if (needs_double(node)) return false;
    return true;
}

/* --- compiling --- */

typedef struct Batch {
    GpuDevice *device;
    const RegionKernel *const *regions;
    int count;
    int *program_of;      /* [count]: the distinct kernel that it is */
    int *first;           /* [distinct]: a region of that kernel */
    const char **sources; /* [distinct] */
    GpuProgram **programs;
    int distinct;
} Batch;

static void render_distinct(Arena *arena, Batch *b) {
    Map seen = map_make(arena);
    b->program_of = ARENA_ARRAY(arena, int, b->count + 1);
    b->first = ARENA_ARRAY(arena, int, b->count + 1);
    for (int i = 0; i < b->count; i++) {
        intptr_t number = (intptr_t)map_get_id(&seen, MAP_POINTER_KEY(b->regions[i]->kernel));
        if (!number) {
            b->first[b->distinct] = i;
            number = ++b->distinct;
            map_set_id(&seen, MAP_POINTER_KEY(b->regions[i]->kernel), (void *)number);
        }
        b->program_of[i] = (int)number - 1;
    }
    b->sources = ARENA_ARRAY(arena, const char *, b->distinct + 1);
    b->programs = ARENA_ARRAY(arena, GpuProgram *, b->distinct + 1);
    for (int n = 0; n < b->distinct; n++) {
        Text text = text_make(arena);
        gpu_render(&text, b->regions[b->first[n]]->kernel, b->device->driver->dialect, region_name);
        b->sources[n] = text.data;
    }
}

/* Buffers that are read or written along an axis element by element may be accessed in vectors. */
static void find_alignments(const Kernel *kernel, int vector, unsigned char *alignments) {
    for (int i = 0; i < kernel->buffers.count; i++)
        alignments[i] = (unsigned char)dtype_size(kernel->buffers.items[i].dtype);
    for (int i = 0; i < kernel->insts.count; i++) {
        const KernelInst *inst = &kernel->insts.items[i];
        bool runs_along = false;
        if (inst->op != K_LOAD && inst->op != K_STORE) continue;
        for (int a = 0; a < kernel->axis_count; a++) runs_along = runs_along || inst->access->kind[a] == STRIDE_ONE;
        if (!runs_along) continue;
        size_t bytes = dtype_size(kernel->buffers.items[inst->buffer].dtype) * (size_t)(vector ? vector : 1);
        alignments[inst->buffer] = (unsigned char)(bytes < VECTOR_BYTES ? bytes : VECTOR_BYTES);
    }
}

static Status add_functions(DeviceKernel *k) {
    char name[64];
    for (int i = 0; gpu_suffix(&k->schedule, i); i++) {
        k->suffixes[i] = gpu_suffix(&k->schedule, i);
        snprintf(name, sizeof name, "%s%s", region_name, k->suffixes[i]);
        TRY(gpu_program_function(k->program, name, &k->functions[i]));
        k->function_count++;
    }
    return NULL;
}

static Status add_general(DeviceKernel *k) {
    if (k->kernel->general) return NULL;
    General *g = calloc(1, sizeof *g + sizeof *g->accesses * (size_t)k->kernel->insts.count);
    if (!g) return status_out_of_memory();
    k->general = g;
    g->kernel = *k->kernel;
    g->kernel.general = true;
    g->schedule = gpu_schedule(&g->kernel);
    g->access_count = gpu_accesses(k->kernel, g->accesses);
    return NULL;
}

static Status kernel_new(const Kernel *kernel, GpuProgram *program, DeviceKernel **out_kernel) {
    size_t buffers = (size_t)kernel->buffers.count;
    DeviceKernel *k = calloc(1, sizeof *k + 2 * buffers);
    if (!k) return status_out_of_memory();
    k->kernel = kernel;
    k->program = gpu_program_hold(program);
    k->schedule = gpu_schedule(kernel);
    find_alignments(kernel, k->schedule.vector, k->alignments);
    find_alignments(kernel, k->schedule.even.vector, k->alignments + buffers);
    *out_kernel = k;
    TRY(add_general(k));
    return add_functions(k);
}

void gpu_release_kernel(Device *device, DeviceKernel *kernel) {
    if (!kernel) return;
    if (kernel->general) gpu_release_kernel(device, atomic_load(&kernel->general->compiled));
    gpu_program_release(kernel->program);
    free(kernel->general);
    free(kernel);
}

static Status compile_batch(Batch *b, KernelCacheStats *stats, DeviceKernel **out_kernels) {
    TRY(gpu_programs_get(b->device, b->sources, b->distinct, stats, b->programs));
    Status status = NULL;
    for (int i = 0; !status && i < b->count; i++)
        status = kernel_new(b->regions[i]->kernel, b->programs[b->program_of[i]], &out_kernels[i]);
    for (int n = 0; n < b->distinct; n++) gpu_program_release(b->programs[n]);
    for (int i = 0; status && i < b->count; i++) {
        gpu_release_kernel(&b->device->base, out_kernels[i]);
        out_kernels[i] = NULL;
    }
    if (!status && stats) stats->from_memory += b->count - b->distinct;
    return status;
}

Status gpu_compile(Device *device, const RegionKernel *const *kernels, int count, KernelCacheStats *stats,
                   DeviceKernel **out_kernels) {
    for (int i = 0; i < count; i++) out_kernels[i] = NULL;
    Arena *arena = arena_create(0);
    if (!arena) return status_out_of_memory();
    Batch batch = {.device = gpu_device(device), .regions = kernels, .count = count};
    jmp_buf guard;
    Status volatile status = NULL;
    if (setjmp(guard)) {
        status = status_out_of_memory();
    } else {
        arena_guard(arena, &guard);
        render_distinct(arena, &batch);
        arena_guard(arena, NULL); /* nothing is allocated there from here on */
        status = compile_batch(&batch, stats, out_kernels);
    }
    arena_destroy(arena);
    return status;
}

/* --- launching --- */

static GpuSchedule without_even(const GpuSchedule *schedule) {
    GpuSchedule plain = *schedule;
    plain.even = (GpuEven){0};
    return plain;
}

static size_t scratch_of(const Device *device, const Kernel *kernel, const GpuSchedule *schedule,
                         const int64_t *params) {
    GpuLaunches launches;
    gpu_launches(kernel, schedule, gpu_device(device)->limits, params, &launches);
    return launches.count ? launches.scratch_bytes : 0;
}

/* Whichever of its functions the buffers' addresses then allow. */
size_t gpu_kernel_scratch(const Device *device, const DeviceKernel *kernel, const int64_t *params) {
    const GpuSchedule plain = without_even(&kernel->schedule);
    size_t bytes[] = {
        scratch_of(device, kernel->kernel, &kernel->schedule, params),
        scratch_of(device, kernel->kernel, &plain, params),
        kernel->general ? scratch_of(device, &kernel->general->kernel, &kernel->general->schedule, params) : 0,
    };
    size_t most = bytes[0] > bytes[1] ? bytes[0] : bytes[1];
    return most > bytes[2] ? most : bytes[2];
}

static const GpuFunction *function_of(const DeviceKernel *k, const char *suffix) {
    for (int i = 0; i < k->function_count; i++)
        if (k->suffixes[i] == suffix) return k->functions[i];
    for (int i = 0; i < k->function_count; i++)
        if (strcmp(k->suffixes[i], suffix) == 0) return k->functions[i];
    return NULL;
}

static Status launch_all(GpuDevice *d, Stream *stream, const DeviceKernel *k, const GpuLaunches *launches,
                         GpuArgument *arguments, int before) {
    for (int n = 0; n < launches->count; n++) {
        const GpuLaunch *l = &launches->items[n];
        const GpuFunction *function = function_of(k, l->suffix);
        if (!function) return status_error(STATUS_FAULT, "a kernel has no function \"%s%s\"", region_name, l->suffix);
        for (int e = 0; e < l->extra_count; e++)
            arguments[before + e] = (GpuArgument){.kind = GPU_ARG_I64, .i64 = l->extra[e]};
        TRY(d->driver->launch(d->context, stream, function, l->grid, l->block, arguments, before + l->extra_count));
    }
    return NULL;
}

/* Threads that need it at once may each make one; the first stays. */
static Status compile_general(GpuDevice *d, const DeviceKernel *k, const DeviceKernel **out_kernel) {
    General *g = k->general;
    DeviceKernel *made = NULL, *first = atomic_load(&g->compiled);
    *out_kernel = first;
    if (first) return NULL;
    const RegionKernel region = {.kernel = &g->kernel}, *regions = &region;
    TRY(gpu_compile(&d->base, &regions, 1, NULL, &made));
    *out_kernel = made;
    if (atomic_compare_exchange_strong(&g->compiled, &first, made)) return NULL;
    gpu_release_kernel(&d->base, made);
    *out_kernel = first;
    return NULL;
}

/* The planned memory, constants and what the device allocates are aligned for all accesses; what a caller brings may
 * not be. -1, or the first such buffer. */
static int first_misaligned(const DeviceKernel *k, const unsigned char *alignments, void *const *buffers) {
    for (int i = 0; i < k->kernel->buffers.count; i++)
        if ((uintptr_t)buffers[i] % alignments[i]) return i;
    return -1;
}

static Status misaligned(const DeviceKernel *k, int buffer, const void *data) {
    const KernelBuffer *b = &k->kernel->buffers.items[buffer];
    return status_error(STATUS_INVALID,
                        "%s %d of a kernel is at device address %p: a tensor of %s must begin at a multiple of %d",
                        b->output ? "result" : "input", buffer, data, dtype_name(b->dtype), k->alignments[buffer]);
}

static Status launch_kernel(GpuDevice *d, Stream *stream, const DeviceKernel *kernel, void *const *buffers,
                            const int64_t *params, const Workspace *workspace) {
    const Kernel *k = kernel->kernel;
    bool even = first_misaligned(kernel, kernel->alignments + k->buffers.count, buffers) < 0;
    const GpuSchedule schedule = even ? kernel->schedule : without_even(&kernel->schedule);
    GpuLaunches launches;
    gpu_launches(k, &schedule, d->limits, params, &launches);
    void *scratch = NULL;
    if (launches.scratch_bytes) TRY(workspace->take(workspace->owner, launches.scratch_bytes, &scratch));
    int count = 0, most = k->buffers.count + 1 + k->param_count + GPU_MAX_EXTRA;
    GpuArgument few[FEW_ARGUMENTS], *arguments = few;
    if (most > FEW_ARGUMENTS) arguments = malloc(sizeof *arguments * (size_t)most);
    if (!arguments) return status_out_of_memory();
    for (int i = 0; i < k->buffers.count; i++)
        arguments[count++] = (GpuArgument){.kind = GPU_ARG_BUFFER, .buffer = buffers[i]};
    arguments[count++] = (GpuArgument){.kind = GPU_ARG_BUFFER, .buffer = scratch};
    for (int i = 0; i < k->param_count; i++) arguments[count++] = (GpuArgument){.kind = GPU_ARG_I64, .i64 = params[i]};
    Status status = launch_all(d, stream, kernel, &launches, arguments, count);
    if (arguments != few) free(arguments);
    return gpu_watch(d, status);
}

Status gpu_launch(Device *device, Stream *stream, const DeviceKernel *kernel, void *const *buffers,
                  const int64_t *params, int64_t work, const Workspace *workspace) {
    (void)work;
    GpuDevice *d = gpu_device(device);
    int bad = first_misaligned(kernel, kernel->alignments, buffers);
    const General *g = kernel->general;
    if (g && (bad >= 0 || !gpu_is_small(kernel->kernel, g->accesses, g->access_count, params))) {
        TRY(compile_general(d, kernel, &kernel));
        bad = first_misaligned(kernel, kernel->alignments, buffers);
    }
    if (bad >= 0) return misaligned(kernel, bad, buffers[bad]);
    return launch_kernel(d, stream ? gpu_stream(stream)->stream : NULL, kernel, buffers, params, workspace);
}
