/* SPDX-License-Identifier: Apache-2.0 */
/* Rendered GPU kernels against the oracle, on whatever OpenCL device is here: every instruction on every type, every
 * schedule class, all tail sizes, random programs; each as it is and, with sizes that are multiples of 8, in vectors.
 * Many kernels make one program, since an OpenCL compiler takes its time. */
#define RANDOM_PROGRAMS 40
#include "../base/share.h"
#include "render_cases.h"

#include <stdio.h>
#include <stdlib.h>

#include "codegen/gpu/gpu.h"
#include "runtime/device/opencl/driver.h"
#include "skip.h"

enum { QUEUED = 24, MOST_SETS = 20, SCALE = 8, GUARD = 256 };

typedef struct Queued {
    Arena *arena; /* the last that was finished holds the kernels before it */
    Kernel kernel;
    int64_t *params;
    int sets, width;
    bool wild, near_one;
    double loosest;
    char name[16];
} Queued;

static Queued queue[QUEUED + 2];
static int queued;
static Arena *finished[2 * QUEUED + 4];
static int finished_count;
static GpuContext *context;
static Stream *stream;
static const GpuDriver *const driver = &opencl_driver;

static void must(Status status, const char *what) { cr_assert(!status, "%s: %s", what, status_message(status)); }

static void open_device(void) {
    static Policy policy;
    policy = policy_default();
    skip_without_device(driver->open(&policy, &context));
    must(driver->stream_create(context, &stream), "stream");
}

/* --- one run --- */
typedef struct Buffers {
    char *host[MOST_BUFFERS + 1], *want[MOST_BUFFERS + 1];
    int64_t count[MOST_BUFFERS + 1];
    size_t bytes[MOST_BUFFERS + 1];
    void *device[MOST_BUFFERS + 1]; /* one more: scratch */
} Buffers;

static void fill_buffers(Arena *arena, const Kernel *k, const int64_t *params, Buffers *b) {
    for (int i = 0; i < k->insts.count; i++) {
        const KernelInst *inst = &k->insts.items[i];
        if (inst->op != K_LOAD && inst->op != K_STORE) continue;
        int64_t extent = extent_of(k, inst->access, params);
        if (extent > b->count[inst->buffer]) b->count[inst->buffer] = extent;
    }
    for (int n = 0; n < k->buffers.count; n++) {
        DType t = k->buffers.items[n].dtype;
        b->bytes[n] = (size_t)b->count[n] * dtype_size(t);
        b->host[n] = arena_alloc(arena, b->bytes[n] + GUARD);
        b->want[n] = arena_alloc(arena, b->bytes[n] + GUARD);
        memset(b->host[n], 0x5a, b->bytes[n] + GUARD);
        memset(b->want[n], 0x5a, b->bytes[n] + GUARD);
        if (k->buffers.items[n].output) continue;
        fill(t, b->host[n], b->count[n]);
        memcpy(b->want[n], b->host[n], b->bytes[n]);
    }
}

static void launch_all(Arena *arena, const Queued *q, GpuModule *module, const int64_t *params,
                       const GpuLaunches *launches, Buffers *b) {
    const Kernel *k = &q->kernel;
    int count = 0;
    GpuArgument *arguments = ARENA_ARRAY(arena, GpuArgument, MOST_BUFFERS + 1 + k->param_count + GPU_MAX_EXTRA);
    for (int n = 0; n <= k->buffers.count; n++)
        arguments[count++] = (GpuArgument){.kind = GPU_ARG_BUFFER, .buffer = b->device[n]};
    for (int p = 0; p < k->param_count; p++) arguments[count++] = (GpuArgument){.kind = GPU_ARG_I64, .i64 = params[p]};
    for (int l = 0; l < launches->count; l++) {
        const GpuLaunch *launch = &launches->items[l];
        const GpuFunction *function;
        int all = count;
        for (int e = 0; e < launch->extra_count; e++)
            arguments[all++] = (GpuArgument){.kind = GPU_ARG_I64, .i64 = launch->extra[e]};
        must(driver->function(context, module, arena_format(arena, "%s%s", q->name, launch->suffix), &function),
             "function");
        must(driver->launch(context, stream, function, launch->grid, launch->block, arguments, all), "launch");
    }
    must(driver->synchronize(context, stream), "run");
}

static void run_set(const Queued *q, GpuModule *module, const int64_t *params, int multiprocessors) {
    const Kernel *k = &q->kernel;
    Arena *arena = arena_create(0);
    Buffers b = {0};
    GpuLimits limits = {
        .multiprocessors = multiprocessors, .block_threads = 1024, .shared_bytes = 48 << 10, .fp64 = true};
    GpuSchedule schedule = gpu_schedule(k);
    GpuLaunches launches;
    fill_buffers(arena, k, params, &b);
    kernel_oracle(arena, k, (void **)b.want, params);
    gpu_launches(k, &schedule, &limits, params, &launches);
    for (int n = 0; n < k->buffers.count; n++) {
        must(driver->allocate(context, stream, b.bytes[n] + GUARD, &b.device[n]), "allocate");
        must(driver->copy(context, stream, COPY_IN, b.device[n], b.host[n], b.bytes[n] + GUARD), "copy");
    }
    must(driver->allocate(context, stream, launches.scratch_bytes + GUARD, &b.device[k->buffers.count]), "allocate");
    launch_all(arena, q, module, params, &launches, &b);
    char what[64];
    snprintf(what, sizeof what, "%d multiprocessors, first parameter %lld", multiprocessors,
             (long long)(k->param_count ? params[0] : 0));
    for (int n = 0; n < k->buffers.count; n++) {
        must(driver->copy(context, stream, COPY_OUT, b.host[n], b.device[n], b.bytes[n] + GUARD), "copy");
        must(driver->synchronize(context, stream), "copy");
        DType t = k->buffers.items[n].dtype;
        if (k->buffers.items[n].output) compare_outputs(k, t, n, b.host[n], b.want[n], b.count[n], what);
        for (int i = 0; i < GUARD; i++)
            cr_assert(b.host[n][b.bytes[n] + (size_t)i] == 0x5a, "%s: written beyond buffer %d", what, n);
    }
    for (int n = 0; n <= k->buffers.count; n++) driver->release(context, stream, b.device[n]);
    arena_destroy(arena);
}

/* --- the queue --- */
static void run_queue(void) {
    Arena *arena = arena_create(0);
    const Kernel *kernels[QUEUED + 2];
    const char *names[QUEUED + 2];
    for (int i = 0; i < queued; i++) kernels[i] = &queue[i].kernel, names[i] = queue[i].name;
    Text source = text_make(arena);
    gpu_render_all(&source, kernels, names, queued, GPU_OPENCL);
    void *binary;
    size_t size;
    GpuModule *module;
    Status status = driver->compile(context, source.data, &binary, &size);
    cr_assert(!status, "%s\n%s", status_message(status), source.data);
    must(driver->load(context, binary, size, &module), "load");
    free(binary);
    for (int i = 0; i < queued; i++) {
        const Queued *q = &queue[i];
        wild = q->wild, near_one = q->near_one, loosest = q->loosest;
        int step = q->sets > MOST_SETS ? q->sets / MOST_SETS : 1;
        for (int s = 0; s < q->sets; s += step) {
            run_set(q, module, q->params + (ptrdiff_t)s * q->width, 1);
            run_set(q, module, q->params + (ptrdiff_t)s * q->width, 400);
        }
    }
    driver->unload(context, module);
    arena_destroy(arena);
}

static void flush(void) {
    if (queued) run_queue();
    for (int i = 0; i < finished_count; i++) arena_destroy(finished[i]);
    queued = finished_count = 0;
}

static void add(Arena *arena, const Kernel *k, const int64_t *params, int sets, int width, int64_t scale) {
    Queued *q = &queue[queued];
    *q = (Queued){.kernel = *k, .sets = sets, .width = width, .wild = wild, .near_one = near_one, .loosest = loosest};
    q->params = ARENA_ARRAY(arena, int64_t, sets * width + 1);
    for (int i = 0; i < sets * width; i++) q->params[i] = params[i] * scale;
    int64_t *multiples = ARENA_ARRAY(arena, int64_t, k->param_count + 1);
    for (int i = 0; i < k->param_count; i++) multiples[i] = scale;
    if (scale > 1) q->kernel.param_multiples = multiples;
    for (int i = 0; i < k->axis_count && scale > 1; i++)
        if (k->axes[i].role == AXIS_LANE || k->axes[i].role == AXIS_REDUCE_LANE) q->kernel.axes[i].multiple = scale;
    snprintf(q->name, sizeof q->name, "k%d_", queued++);
}

static void check(const Kernel *k, const int64_t *params, int sets, int width) {
    Status bad = kernel_verify(k);
    cr_assert(!bad, "%s", status_message(bad));
    if (!share_turn()) return;
    Arena *arena = arena_create(0);
    finished[finished_count++] = arena;
    add(arena, k, params, sets, width, 1);
    int lane = 0;
    while (k->axes[lane].role != AXIS_LANE && k->axes[lane].role != AXIS_REDUCE_LANE) lane++;
    if (k->axes[lane].param >= 0 && k->tile_axis < 0) add(arena, k, params, sets < 24 ? sets : 24, width, SCALE);
}

static void finish(Arena *arena) {
    finished[finished_count++] = arena;
    /* Of kernels whose turn it is not there is the memory alone. */
    if (queued >= QUEUED || finished_count >= 2 * QUEUED) flush();
}

#define RUN(name)                                                                                                      \
    Test(gpu_kernels, name) {                                                                                          \
        open_device();                                                                                                 \
        name();                                                                                                        \
        flush();                                                                                                       \
        driver->stream_destroy(context, stream);                                                                       \
        driver->close(context);                                                                                        \
    }

RUN(each_instruction_on_each_type)
RUN(scaling)
RUN(fused_multiply_add_rounds_once_where_the_hardware_does)
RUN(casts_between_all_types)
RUN(divisors_and_distances_that_are_constants)
RUN(pointwise_tails_and_broadcasts)
RUN(pointwise_of_constant_sizes)
RUN(large_programs_use_one_masked_loop)
RUN(inner_reductions_of_each_type_and_tail)
RUN(inner_reductions_of_constant_rows)
RUN(outer_reductions_of_each_type_and_tail)
RUN(outer_reductions_of_constant_columns)
RUN(reductions_in_stages)
RUN(tiles_of_each_size_of_element)
RUN(tiles_of_elements_of_two_sizes)
RUN(random_programs)
