/* SPDX-License-Identifier: Apache-2.0 */
/* The GPU device over a driver that is not there: programs, launches, memory, streams, and each driver call failing in
 * turn. The driver's device memory is the host's behind an offset, so that following such a pointer crashes; a binary
 * is a copy of its source; launches are recorded. */
#include <criterion/criterion.h>
#include <dirent.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "runtime/device/gpu/gpu.h"

/* --- the driver --- */

enum { MOST_LAUNCHES = 64, MOST_ARGUMENTS = 512 };
static const uintptr_t offset = (uintptr_t)1 << 50;

struct GpuContext {
    int opens;
};
struct GpuFunction {
    char name[32];
    struct GpuFunction *next;
};
struct GpuModule {
    char *source;
    GpuFunction *functions;
};
struct Stream {
    int unused;
};

typedef struct Launch {
    char name[32];
    int64_t grid;
    int block, count;
    GpuArgument arguments[MOST_ARGUMENTS];
} Launch;

static struct {
    pthread_mutex_t lock;
    pthread_cond_t begun;
    GpuContext context;
    GpuLimits limits;
    int modules, streams, blocks; /* alive */
    size_t free_bytes;
    int compiled, loaded, released_unknown;
    int compile_ms;
    int meet, compiling; /* a compilation that begins while fewer than meet have begun waits for the others */
    const char *version; /* what this driver's binaries begin with */
    const char *refuse;  /* a source with this text does not compile */
    int calls, fail_at;  /* the call of this number fails, counted from 1; 0: none */
    int launch_count;
    Launch launches[MOST_LAUNCHES];
    char target[32];
} fake = {.lock = PTHREAD_MUTEX_INITIALIZER, .begun = PTHREAD_COND_INITIALIZER};

static Status step(void) {
    pthread_mutex_lock(&fake.lock);
    bool fails = ++fake.calls == fake.fail_at;
    pthread_mutex_unlock(&fake.lock);
    return fails ? status_error(STATUS_FAULT, "call %d fails", fake.fail_at) : NULL;
}

static void add(int *counter, int by) {
    pthread_mutex_lock(&fake.lock);
    *counter += by;
    pthread_mutex_unlock(&fake.lock);
}

static void *on_host(const void *data) { return (void *)((uintptr_t)data - offset); }

static Status fake_open(const Policy *policy, GpuContext **out_context) {
    (void)policy;
    TRY(step());
    add(&fake.context.opens, 1);
    *out_context = &fake.context;
    return NULL;
}
static void fake_close(GpuContext *context) { add(&context->opens, -1); }
static const GpuLimits *fake_limits(const GpuContext *context) { return (void)context, &fake.limits; }
static const char *fake_target(const GpuContext *context) { return (void)context, fake.target; }

static Status fake_compile(GpuContext *context, const char *source, void **out_binary, size_t *out_size) {
    (void)context;
    TRY(step());
    add(&fake.compiled, 1);
    if (fake.compile_ms) usleep((useconds_t)fake.compile_ms * 1000);
    pthread_mutex_lock(&fake.lock);
    fake.compiling++;
    pthread_cond_broadcast(&fake.begun);
    while (fake.compiling < fake.meet) pthread_cond_wait(&fake.begun, &fake.lock);
    pthread_mutex_unlock(&fake.lock);
    if (fake.refuse && strstr(source, fake.refuse)) return status_error(STATUS_FAULT, "line 1: %s", fake.refuse);
    size_t before = strlen(fake.version);
    *out_size = before + strlen(source) + 1;
    char *binary = malloc(*out_size);
    memcpy(binary, fake.version, before);
    strcpy(binary + before, source);
    *out_binary = binary;
    return NULL;
}

static Status fake_load(GpuContext *context, const void *binary, size_t size, GpuModule **out_module) {
    (void)context;
    TRY(step());
    size_t before = strlen(fake.version);
    if (size < before || memcmp(binary, fake.version, before)) return status_error(STATUS_FAULT, "of another version");
    GpuModule *module = calloc(1, sizeof *module);
    module->source = strdup((const char *)binary + before);
    add(&fake.modules, 1);
    add(&fake.loaded, 1);
    *out_module = module;
    return NULL;
}

static void fake_unload(GpuContext *context, GpuModule *module) {
    cr_assert(context->opens > 0, "a program outlives its context");
    for (GpuFunction *f = module->functions, *next; f; f = next) {
        next = f->next;
        free(f);
    }
    free(module->source);
    free(module);
    add(&fake.modules, -1);
}

static Status fake_function(GpuContext *context, GpuModule *module, const char *name,
                            const GpuFunction **out_function) {
    (void)context;
    TRY(step());
    GpuFunction *f = calloc(1, sizeof *f);
    snprintf(f->name, sizeof f->name, "%s", name);
    f->next = module->functions;
    module->functions = f;
    *out_function = f;
    return NULL;
}

static Status fake_stream_create(GpuContext *context, Stream **out_stream) {
    (void)context;
    TRY(step());
    add(&fake.streams, 1);
    *out_stream = calloc(1, sizeof **out_stream);
    return NULL;
}
static void fake_stream_destroy(GpuContext *context, Stream *stream) {
    (void)context;
    if (stream) add(&fake.streams, -1);
    free(stream);
}
static Status fake_synchronize(GpuContext *context, Stream *stream) { return (void)context, (void)stream, step(); }

static Status fake_allocate(GpuContext *context, Stream *stream, size_t bytes, void **out_data) {
    (void)context, (void)stream;
    TRY(step());
    if (bytes > fake.free_bytes) return status_error(STATUS_FAULT, "no memory");
    add(&fake.blocks, 1);
    char *data = aligned_alloc(256, (bytes + 255) / 256 * 256);
    memset(data, 0xa5, bytes);
    *out_data = (void *)((uintptr_t)data + offset);
    return NULL;
}
static void fake_release(GpuContext *context, Stream *stream, void *data) {
    (void)context, (void)stream;
    if (!data) return;
    add(&fake.blocks, -1);
    free(on_host(data));
}
static size_t fake_free_memory(GpuContext *context) { return (void)context, fake.free_bytes; }

static Status fake_copy(GpuContext *context, Stream *stream, CopyKind kind, void *to, const void *from, size_t bytes) {
    (void)context, (void)stream;
    TRY(step());
    memcpy(kind == COPY_OUT ? to : on_host(to), kind == COPY_IN ? from : on_host(from), bytes);
    return NULL;
}
static Status fake_fill_zero(GpuContext *context, Stream *stream, void *data, size_t bytes) {
    (void)context, (void)stream;
    TRY(step());
    memset(on_host(data), 0, bytes);
    return NULL;
}

static Status fake_launch(GpuContext *context, Stream *stream, const GpuFunction *function, int64_t grid, int block,
                          const GpuArgument *arguments, int count) {
    (void)context, (void)stream;
    TRY(step());
    Launch *l = &fake.launches[fake.launch_count++ % MOST_LAUNCHES];
    *l = (Launch){.grid = grid, .block = block, .count = count};
    snprintf(l->name, sizeof l->name, "%s", function->name);
    memcpy(l->arguments, arguments, sizeof *arguments * (size_t)count);
    return NULL;
}

static const GpuDriver driver = {
    .dialect = GPU_CUDA,
    .open = fake_open,
    .close = fake_close,
    .limits = fake_limits,
    .target = fake_target,
    .compile = fake_compile,
    .load = fake_load,
    .unload = fake_unload,
    .function = fake_function,
    .stream_create = fake_stream_create,
    .stream_destroy = fake_stream_destroy,
    .synchronize = fake_synchronize,
    .allocate = fake_allocate,
    .release = fake_release,
    .free_memory = fake_free_memory,
    .copy = fake_copy,
    .fill_zero = fake_fill_zero,
    .launch = fake_launch,
};

static Status open_device(const Policy *policy, Device **out_device);
static const DeviceTable fake_device = {.kind = DEVICE_CUDA, .name = "fake", .open = open_device, GPU_DEVICE_FUNCTIONS};
static Status open_device(const Policy *policy, Device **out_device) {
    return gpu_open(&fake_device, &driver, policy, out_device);
}

/* --- set-up --- */

static char directory[64];
static Policy policy;
static Arena *arena;

static void setup(void) {
    strcpy(directory, "/tmp/onnxfuse-gpu-XXXXXX");
    cr_assert(mkdtemp(directory));
    arena = arena_create(0);
    policy = policy_default();
    policy.cache.directory = directory;
    policy.threads = 4;
    fake.limits = (GpuLimits){.multiprocessors = 4, .block_threads = 1024, .shared_bytes = 48 << 10, .fp64 = true};
    fake.free_bytes = (size_t)1 << 30;
    fake.version = "v1:";
    strcpy(fake.target, "fake one");
}

/* Everything is given back, once programs that nobody holds are dropped. */
static void expect_nothing_held(const char *after) {
    gpu_program_trim();
    cr_expect(!fake.modules && !fake.streams && !fake.blocks && !fake.context.opens && !gpu_memory_used_by_all(),
              "%s: %d modules, %d streams, %d blocks, %d contexts, %zu bytes are left", after, fake.modules,
              fake.streams, fake.blocks, fake.context.opens, gpu_memory_used_by_all());
}

static void teardown(void) {
    char command[128];
    snprintf(command, sizeof command, "rm -rf %s", directory);
    cr_assert_eq(system(command), 0);
    arena_destroy(arena);
    expect_nothing_held("at the end");
}

TestSuite(gpu_device, .init = setup, .fini = teardown);

static void must(Status status) { cr_assert(!status, "%s", status_message(status)); }

static Device *must_open(void) {
    Device *device;
    must(open_device(&policy, &device));
    return device;
}

/* Fails as expected: the code, and what its message says. */
static void expect_failure(Status status, StatusCode code, const char *says) {
    cr_expect_eq(status_code(status), code);
    cr_expect(strstr(status_message(status), says), "\"%s\" does not say \"%s\"", status_message(status), says);
    status_free(status);
}

/* Regions of a graph's text as kernels. */
static int kernels_of(const char *text, const RegionKernel **out_kernels) {
    Graph *graph;
    Target target = {.device = DEVICE_CUDA};
    int count = 0;
    must(graph_parse(text, &graph));
    arena_defer(arena, (void (*)(void *))graph_destroy, graph);
    FOR_EACH_NODE(node, graph) {
        RegionKernel *kernel = ARENA_NEW(arena, RegionKernel);
        must(codegen_region(arena, graph->dims, node, &target, kernel));
        out_kernels[count++] = kernel;
    }
    return count;
}

static const char three_regions[] =
    "graph (x: f32[n, 64]) -> (a, b, c) {\n"
    "  a: f32[n, 64] = region x graph (p: f32[n, 64]) -> (q) {\n    q: f32[n, 64] = neg p\n  }\n"
    "  b: f32[n, 1] = region x graph (p: f32[n, 64]) -> (q) {\n    q: f32[n, 1] = reduce_sum p {axes = [1]}\n  }\n"
    "  c: f32[n, 64] = region x graph (p: f32[n, 64]) -> (q) {\n    q: f32[n, 64] = neg p\n  }\n"
    "}\n";

/* --- programs --- */

enum { THREADS = 8 };

typedef struct Asking {
    GpuDevice *device;
    const char *source;
    GpuProgram *program;
    KernelCacheStats stats;
    Status status;
} Asking;

static void *ask(void *context) {
    Asking *a = context;
    a->status = gpu_program_get(a->device, a->source, &a->stats, &a->program);
    return NULL;
}

static void ask_all(Asking *asking, Device *device, const char *source) {
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++) {
        asking[i] = (Asking){.device = gpu_device(device), .source = source};
        cr_assert(!pthread_create(&threads[i], NULL, ask, &asking[i]));
    }
    for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
}

Test(gpu_device, threads_that_ask_at_once_share_one_compilation) {
    Device *device = must_open();
    Asking asking[THREADS];
    int from_memory = 0;
    double compile_ms = 0;
    fake.compile_ms = 30;
    ask_all(asking, device, "source");
    for (int i = 0; i < THREADS; i++) {
        must(asking[i].status);
        cr_expect_eq(asking[i].program, asking[0].program);
        from_memory += asking[i].stats.from_memory;
        compile_ms += asking[i].stats.compile_ms;
        gpu_program_release(asking[i].program);
    }
    cr_expect_eq(fake.compiled, 1);
    cr_expect_eq(from_memory, THREADS - 1);
    cr_expect(compile_ms >= 30 && compile_ms < 10000);
    gpu_close(device);
}

Test(gpu_device, threads_that_ask_for_what_does_not_compile_all_hear_why) {
    Device *device = must_open();
    Asking asking[THREADS];
    fake.compile_ms = 30;
    fake.refuse = "wrong";
    ask_all(asking, device, "wrong");
    for (int i = 0; i < THREADS; i++) {
        cr_expect(!asking[i].program);
        expect_failure(asking[i].status, STATUS_FAULT, "line 1: wrong");
    }
    fake.refuse = NULL;
    GpuProgram *program;
    must(gpu_program_get(gpu_device(device), "wrong", NULL, &program));
    gpu_program_release(program);
    for (int i = 0; i < 2; i++) {
        KernelCacheStats stats = {0};
        gpu_count_anchors(device, &stats);
        cr_expect_eq(stats.compiled, !i, "what was asked for without stats is counted by the device, once");
    }
    gpu_close(device);
}

Test(gpu_device, many_programs_are_compiled_on_several_threads_and_equal_ones_once) {
    Device *device = must_open();
    const char *sources[] = {"a", "b", "c", "a", "d", "b"};
    GpuProgram *programs[6];
    KernelCacheStats stats = {0};
    fake.meet = 2; /* the first one ends when another has begun */
    must(gpu_programs_get(gpu_device(device), sources, 6, &stats, programs));
    cr_expect_eq(stats.compiled, 4);
    cr_expect_eq(stats.from_memory, 2);
    cr_expect(programs[0] == programs[3] && programs[1] == programs[5] && programs[0] != programs[1]);
    for (int i = 0; i < 6; i++) gpu_program_release(programs[i]);
    fake.refuse = "new and wrong";
    const char *half[] = {"a", "new and wrong", "new"};
    GpuProgram *none[3];
    expect_failure(gpu_programs_get(gpu_device(device), half, 3, NULL, none), STATUS_FAULT, "new and wrong");
    cr_expect(!none[0] && !none[1] && !none[2]);
    must(gpu_programs_get(gpu_device(device), NULL, 0, NULL, NULL));
    gpu_close(device);
}

static KernelCacheStats get_and_forget(Device *device, const char *source) {
    KernelCacheStats stats = {0};
    GpuProgram *program;
    must(gpu_program_get(gpu_device(device), source, &stats, &program));
    gpu_program_release(program);
    gpu_program_trim();
    return stats;
}

Test(gpu_device, programs_come_from_memory_after_a_session_and_from_disk_after_the_process) {
    KernelCacheStats stats = {0};
    GpuProgram *program;
    Device *device = must_open();
    cr_expect_eq(get_and_forget(device, "source").compiled, 1);
    cr_expect_eq(get_and_forget(device, "source").from_disk, 1);
    must(gpu_program_get(gpu_device(device), "source", NULL, &program));
    gpu_program_release(program);
    gpu_close(device);
    cr_expect(fake.context.opens == 1 && fake.modules == 1, "the program holds its context");
    device = must_open();
    must(gpu_program_get(gpu_device(device), "source", &stats, &program));
    cr_expect(stats.from_memory == 1 && fake.compiled == 1);
    gpu_program_trim();
    cr_expect_eq(fake.modules, 1, "a program that is held is not trimmed");
    gpu_program_release(program);
    gpu_program_trim();
    cr_expect_eq(fake.modules, 0);
    strcpy(fake.target, "fake two");
    cr_expect_eq(get_and_forget(device, "source").compiled, 1, "another target is another program");
    policy.cache.enable = false;
    cr_expect_eq(get_and_forget(device, "source").compiled, 1, "nothing comes from a disk cache that is off");
    gpu_close(device);
}

static void damage_entries(void) {
    DIR *d = opendir(directory);
    char path[512];
    for (struct dirent *e; (e = readdir(d));) {
        if (e->d_name[0] == '.') continue;
        snprintf(path, sizeof path, "%s/%s", directory, e->d_name);
        FILE *file = fopen(path, "r+");
        cr_assert(file && !fseek(file, -3, SEEK_END) && fputc('#', file) != EOF && !fclose(file));
    }
    closedir(d);
}

Test(gpu_device, what_is_damaged_or_of_another_version_on_disk_is_compiled_afresh) {
    Device *device = must_open();
    cr_expect_eq(get_and_forget(device, "source").compiled, 1);
    damage_entries();
    cr_expect_eq(get_and_forget(device, "source").compiled, 1);
    cr_expect_eq(get_and_forget(device, "source").from_disk, 1, "and replaced");
    fake.version = "v2:";
    cr_expect_eq(get_and_forget(device, "source").compiled, 1, "the driver refuses the entry");
    cr_expect_eq(get_and_forget(device, "source").from_disk, 1, "and it is replaced");
    gpu_close(device);
}

Test(gpu_device, functions_of_a_program_are_asked_for_once) {
    Device *device = must_open();
    GpuProgram *program;
    const GpuFunction *f[3];
    must(gpu_program_get(gpu_device(device), "source", NULL, &program));
    must(gpu_program_function(program, "one", &f[0]));
    must(gpu_program_function(program, "two", &f[1]));
    int before = fake.calls;
    must(gpu_program_function(program, "one", &f[2]));
    cr_expect(f[0] == f[2] && f[0] != f[1] && fake.calls == before);
    gpu_program_release(program);
    gpu_close(device);
}

/* --- launches --- */

typedef struct Given {
    void *memory;
    int times; /* that it was taken */
    size_t bytes;
} Given;

static Status give(void *owner, size_t bytes, void **out_data) {
    Given *given = owner;
    given->times++;
    given->bytes = bytes;
    *out_data = given->memory;
    return NULL;
}

static Status launch_with(Device *device, Stream *stream, DeviceKernel *kernel, void *const *buffers,
                          const int64_t *params, Given *given) {
    const Workspace workspace = {give, given};
    return gpu_launch(device, stream, kernel, buffers, params, 0, &workspace);
}

static Status launch_plain(Device *device, DeviceKernel *kernel, void *const *buffers, const int64_t *params) {
    Given given = {0};
    return launch_with(device, NULL, kernel, buffers, params, &given);
}

/* Every launch that the schedule asks for, with the arguments in order; what they share is taken once. */
static void expect_launches(const RegionKernel *region, const int64_t *params, void *const *buffers,
                            const Given *given) {
    GpuLaunches expected;
    const Kernel *kernel = region->kernel;
    GpuSchedule schedule = gpu_schedule(kernel);
    gpu_launches(kernel, &schedule, &fake.limits, params, &expected);
    cr_assert_eq(fake.launch_count, expected.count);
    cr_expect(given->times == (expected.scratch_bytes > 0) && given->bytes == expected.scratch_bytes, "%d x %zu bytes",
              given->times, given->bytes);
    for (int n = 0; n < expected.count; n++) {
        const GpuLaunch *e = &expected.items[n];
        const Launch *l = &fake.launches[n];
        const GpuArgument *a = l->arguments;
        cr_expect(strlen(l->name) > strlen(e->suffix) &&
                      strcmp(l->name + strlen(l->name) - strlen(e->suffix), e->suffix) == 0,
                  "%s", l->name);
        cr_expect(l->grid == e->grid && l->block == e->block);
        cr_assert_eq(l->count, kernel->buffers.count + 1 + kernel->param_count + e->extra_count);
        for (int i = 0; i < kernel->buffers.count; i++, a++)
            cr_expect(a->kind == GPU_ARG_BUFFER && a->buffer == buffers[i]);
        cr_expect(a->kind == GPU_ARG_BUFFER && a->buffer == (expected.scratch_bytes ? given->memory : NULL));
        a++;
        for (int i = 0; i < kernel->param_count; i++, a++) cr_expect(a->kind == GPU_ARG_I64 && a->i64 == params[i]);
        for (int i = 0; i < e->extra_count; i++, a++) cr_expect(a->kind == GPU_ARG_I64 && a->i64 == e->extra[i]);
    }
}

static void *device_pointer(uintptr_t number) { return (void *)(offset + number * 256); }

Test(gpu_device, launches_carry_buffers_scratch_params_and_extra_in_order) {
    Device *device = must_open();
    const RegionKernel *regions[3];
    DeviceKernel *kernels[3];
    KernelCacheStats stats = {0};
    int count = kernels_of(three_regions, regions);
    must(gpu_compile(device, regions, count, &stats, kernels));
    cr_expect(stats.compiled == 2 && stats.from_memory == 1);
    for (int i = 0; i < count; i++)
        for (int64_t n = 1; n < 300; n *= 17) {
            int64_t params[16];
            void *buffers[] = {device_pointer(1), device_pointer(2)};
            Given given = {.memory = device_pointer(3)};
            for (int p = 0; p < regions[i]->kernel->param_count; p++) params[p] = n * 64;
            fake.launch_count = 0;
            must(launch_with(device, NULL, kernels[i], buffers, params, &given));
            cr_expect_gt(fake.launch_count, 0);
            expect_launches(regions[i], params, buffers, &given);
            cr_expect_leq(given.bytes, gpu_kernel_scratch(device, kernels[i], params));
        }
    int64_t zero[16] = {0};
    fake.launch_count = 0;
    must(launch_plain(device, kernels[0], (void *[]){NULL, NULL}, zero));
    cr_expect(fake.launch_count == 0 && gpu_kernel_scratch(device, kernels[0], zero) == 0, "nothing to compute");
    int64_t far[16];
    for (int p = 0; p < 16; p++) far[p] = 1 << 20;
    must(launch_plain(device, kernels[0], (void *[]){device_pointer(1), device_pointer(2)}, far));
    cr_assert_eq(fake.launch_count, 1);
    cr_expect(strstr(fake.launches[0].name, "_even") == NULL, "indices beyond 32 bits: %s", fake.launches[0].name);
    for (int i = 0; i < count; i++) gpu_release_kernel(device, kernels[i]);
    gpu_close(device);
}

Test(gpu_device, blocks_that_share_columns_take_their_scratch_once) {
    Device *device = must_open();
    const RegionKernel *region;
    DeviceKernel *kernel;
    kernels_of("graph (x: f32[65536, 64]) -> (y) {\n  y: f32[1, 64] = region x graph (p: f32[65536, 64]) -> (q) {\n"
               "    q: f32[1, 64] = reduce_sum p {axes = [0]}\n  }\n}\n",
               &region);
    must(gpu_compile(device, &region, 1, NULL, &kernel));
    void *buffers[] = {device_pointer(1), device_pointer(2)};
    Given given = {.memory = device_pointer(3)};
    int64_t params[16];
    for (int i = 0; i < region->kernel->param_count; i++) cr_assert(dim_is_const(region->params[i], &params[i]));
    must(launch_with(device, NULL, kernel, buffers, params, &given));
    cr_expect(given.bytes > 0 && given.bytes <= gpu_kernel_scratch(device, kernel, params));
    expect_launches(region, params, buffers, &given);
    gpu_release_kernel(device, kernel);
    gpu_close(device);
}

Test(gpu_device, a_kernel_of_hundreds_of_buffers_launches) {
    enum { INPUTS = 200 };
    Device *device = must_open();
    Text text = text_make(arena);
    const RegionKernel *region;
    DeviceKernel *kernel;
    text_add(&text, "graph (x: f32[n, 64]) -> (y) {\n  y: f32[n, 64] = region");
    for (int i = 0; i < INPUTS; i++) text_add(&text, "%s x", i ? "," : "");
    text_add(&text, " graph (");
    for (int i = 0; i < INPUTS; i++) text_add(&text, "%sp%d: f32[n, 64]", i ? ", " : "", i);
    text_add(&text, ") -> (q%d) {\n", INPUTS - 1);
    for (int i = 1; i < INPUTS; i++)
        text_add(&text, "    q%d: f32[n, 64] = add %s%d, p%d\n", i, i > 1 ? "q" : "p", i - 1, i);
    text_add(&text, "  }\n}\n");
    cr_assert_eq(kernels_of(text.data, &region), 1);
    must(gpu_compile(device, &region, 1, NULL, &kernel));
    int64_t params[4] = {640, 640, 640, 640};
    void *buffers[INPUTS + 1];
    cr_assert_eq(region->kernel->buffers.count, INPUTS + 1);
    for (int i = 0; i <= INPUTS; i++) buffers[i] = device_pointer((uintptr_t)i + 1);
    Given given = {0};
    must(launch_with(device, NULL, kernel, buffers, params, &given));
    expect_launches(region, params, buffers, &given);
    gpu_release_kernel(device, kernel);
    gpu_close(device);
}

Test(gpu_device, buffers_that_vectors_cannot_access_are_accessed_by_element) {
    Device *device = must_open();
    const RegionKernel *regions[3];
    DeviceKernel *kernels[3];
    int64_t params[4] = {640, 640, 640, 640};
    kernels_of(three_regions, regions);
    must(gpu_compile(device, regions, 2, NULL, kernels));
    char *start = device_pointer(1);
    void *aligned[] = {start, device_pointer(2)}, *any[] = {start + 4, device_pointer(2)},
         *input[] = {start + 2, device_pointer(2)}, *result[] = {device_pointer(2), start + 9};
    for (int i = 0; i < 2; i++) {
        Launch with;
        fake.launch_count = 0;
        must(launch_plain(device, kernels[i], aligned, params));
        with = fake.launches[0];
        int compiled = fake.compiled;
        fake.launch_count = 0;
        must(launch_plain(device, kernels[i], any, params));
        must(launch_plain(device, kernels[i], any, params));
        cr_expect_eq(fake.compiled, compiled + 1, "a program of its own, made once");
        cr_expect(fake.launches[0].arguments[0].buffer == any[0]);
        cr_expect(fake.launches[0].grid != with.grid || memcmp(fake.launches[0].arguments, with.arguments, 500),
                  "in more and smaller accesses");
        fake.launch_count = 0;
        expect_failure(launch_plain(device, kernels[i], input, params), STATUS_INVALID, "input 0 of a kernel");
        expect_failure(launch_plain(device, kernels[i], result, params), STATUS_INVALID,
                       "a tensor of f32 must begin at a multiple of 4");
        cr_expect_eq(fake.launch_count, 0);
        gpu_release_kernel(device, kernels[i]);
    }
    gpu_close(device);
}

/* --- what runs --- */

static bool region_runs(const Device *device, const char *dtype, const char *computes, int inputs) {
    Graph *graph;
    Text text = text_make(arena);
    text_add(&text, "graph (x: %s[n, 64]) -> (y) {\n  y: %s[n, 64] = region", dtype, dtype);
    for (int i = 0; i < inputs; i++) text_add(&text, "%s x", i ? "," : "");
    text_add(&text, " graph (");
    for (int i = 0; i < inputs; i++) text_add(&text, "%sp%d: %s[n, 64]", i ? ", " : "", i, dtype);
    text_add(&text, ") -> (q) {\n    q: %s[n, 64] = %s p0\n  }\n}\n", dtype, computes);
    must(graph_parse(text.data, &graph));
    bool runs = gpu_runs(device, graph->first);
    graph_destroy(graph);
    return runs;
}

Test(gpu_device, regions_run_where_the_device_can) {
    Device *device = must_open();
    cr_expect(region_runs(device, "f64", "neg", 1));
    cr_expect(region_runs(device, "f32", "sin", 1));
    cr_expect(region_runs(device, "f32", "neg", 100));
    cr_expect(!region_runs(device, "f32", "neg", 1000), "more arguments than a launch takes");
    fake.limits.fp64 = false;
    cr_expect(!region_runs(device, "f64", "neg", 1), "needs double precision");
    cr_expect(!region_runs(device, "f32", "sin", 1), "computes in double precision inside");
    cr_expect(region_runs(device, "f32", "exp", 1));
    fake.limits.argument_bytes = 64;
    cr_expect(!region_runs(device, "f32", "exp", 8));
    gpu_close(device);
}

/* --- memory --- */

Test(gpu_device, memory_is_limited_and_counted) {
    policy.memory_limit_megabytes = 1;
    Device *device = must_open();
    void *a, *b, *none;
    must(gpu_allocate(device, NULL, NULL, 1 << 19, &a));
    must(gpu_allocate(device, NULL, NULL, 0, &b));
    cr_expect(a != b && (uintptr_t)b % 256 == 0);
    expect_failure(gpu_allocate(device, NULL, NULL, 1 << 19, &none), STATUS_FAULT,
                   "device memory: 524288 bytes asked, 524287 free, limit 1048576");
    expect_failure(gpu_allocate(device, NULL, NULL, SIZE_MAX, &none), STATUS_FAULT, "device memory: ");
    gpu_release(device, NULL, NULL, b);
    must(gpu_allocate(device, NULL, NULL, 1 << 19, &b));
    cr_expect_eq(gpu_memory_used(device), 1 << 20);
    cr_expect_eq(gpu_memory_used_by_all(), 1 << 20);
    gpu_release(device, NULL, NULL, a);
    gpu_release(device, NULL, NULL, b);
    gpu_release(device, NULL, NULL, NULL);
    cr_expect_eq(gpu_memory_used(device), 0);
    fake.free_bytes = 1000;
    expect_failure(gpu_allocate(device, NULL, NULL, 2000, &none), STATUS_FAULT,
                   "device memory: 2000 bytes asked, 1000 free, limit 1048576: no memory");
    cr_expect_eq(gpu_memory_used(device), 0);
    gpu_close(device);
}

static void *allocate_and_release(void *context) {
    enum { BLOCKS = 300, ROUNDS = 20000 };
    Device *device = context;
    void *blocks[BLOCKS] = {0};
    uint32_t state = 1;
    for (int i = 0; i < ROUNDS; i++) {
        state = state * 1664525 + 1013904223;
        int at = (int)((state >> 16) % BLOCKS);
        if (blocks[at]) {
            gpu_release(device, NULL, NULL, blocks[at]);
            blocks[at] = NULL;
        } else {
            must(gpu_allocate(device, NULL, NULL, (state >> 8) % 1000, &blocks[at]));
        }
    }
    for (int i = 0; i < BLOCKS; i++) gpu_release(device, NULL, NULL, blocks[i]);
    return NULL;
}

Test(gpu_device, blocks_are_found_in_any_order_from_several_threads) {
    Device *device = must_open();
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++) cr_assert(!pthread_create(&threads[i], NULL, allocate_and_release, device));
    for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
    cr_expect_eq(gpu_memory_used(device), 0);
    gpu_close(device);
}

/* --- streams --- */

Test(gpu_device, a_fault_is_reported_once_and_cleared) {
    Device *device = must_open();
    Stream *stream;
    Graph *graph;
    must(graph_parse("graph (x: f32[4], i: i64[2]) -> (y) {\n  y: f32[2] = gather x, i {axis = 0} # from look_up\n}\n",
                     &graph));
    must(gpu_stream_create(device, &stream));
    GpuStream *s = gpu_stream(stream);
    int64_t *words = on_host(s->faults);
    for (int i = 0; i < GPU_FAULT_WORDS; i++) cr_expect_eq(words[i], 0);
    must(gpu_synchronize(device, stream));
    s->may_fault = true;
    s->suspect = graph->first;
    must(gpu_synchronize(device, stream));
    cr_expect(!s->may_fault);
    memcpy(words, (int64_t[]){1, -9, 4}, 24);
    s->may_fault = true;
    expect_failure(gpu_synchronize(device, stream), STATUS_INVALID,
                   "node \"look_up\": index -9 is out of range for an axis of size 4");
    s->may_fault = true;
    must(gpu_synchronize(device, stream));
    gpu_stream_destroy(device, stream);
    gpu_stream_destroy(device, NULL);
    graph_destroy(graph);
    gpu_close(device);
}

/* --- failures --- */

Test(gpu_device, a_context_that_has_failed_is_not_kept_open) {
    Device *device = must_open();
    GpuProgram *program;
    must(gpu_program_get(gpu_device(device), "source", NULL, &program));
    gpu_program_release(program);
    Stream *stream;
    must(gpu_stream_create(device, &stream));
    fake.fail_at = fake.calls + 1;
    expect_failure(gpu_synchronize(device, stream), STATUS_FAULT, "fails");
    gpu_stream_destroy(device, stream);
    gpu_close(device);
    cr_expect(!fake.context.opens && !fake.modules);
}

static Status use_stream(Device *device, Stream *stream, DeviceKernel *const *kernels, void **memory) {
    int64_t params[16], host[64] = {0};
    for (int i = 0; i < 16; i++) params[i] = 64;
    TRY(gpu_allocate(device, stream, NULL, 1 << 16, &memory[0]));
    TRY(gpu_allocate(device, stream, NULL, 1 << 16, &memory[1]));
    TRY(gpu_copy(device, stream, COPY_IN, memory[0], host, sizeof host));
    TRY(gpu_copy(device, stream, COPY_WITHIN, memory[1], memory[0], sizeof host));
    Given given = {.memory = memory[1]};
    for (int i = 0; i < 3; i++) TRY(launch_with(device, stream, kernels[i], memory, params, &given));
    void *unaligned[] = {memory[0], (char *)memory[1] + 4};
    TRY(launch_with(device, stream, kernels[0], unaligned, params, &given));
    TRY(gpu_copy(device, stream, COPY_OUT, host, memory[1], sizeof host));
    gpu_stream(stream)->may_fault = true;
    return gpu_synchronize(device, stream);
}

static Status use_device(Device *device, const RegionKernel *const *regions) {
    DeviceKernel *kernels[3] = {0};
    Stream *stream = NULL;
    void *memory[2] = {0};
    Status status = gpu_compile(device, regions, 3, NULL, kernels);
    if (!status) status = gpu_stream_create(device, &stream);
    if (!status) status = use_stream(device, stream, kernels, memory);
    for (int i = 0; i < 2; i++) gpu_release(device, stream, NULL, memory[i]);
    gpu_stream_destroy(device, stream);
    for (int i = 0; i < 3; i++) gpu_release_kernel(device, kernels[i]);
    return status;
}

Test(gpu_device, any_call_may_fail_and_nothing_is_lost) {
    const RegionKernel *regions[3];
    char after[64];
    kernels_of(three_regions, regions);
    policy.cache.enable = false;
    for (int n = 1;; n++) {
        Device *device = NULL;
        fake.calls = 0;
        fake.fail_at = n;
        Status status = open_device(&policy, &device);
        if (!status) status = use_device(device, regions);
        int calls = fake.calls;
        if (device) gpu_close(device);
        snprintf(after, sizeof after, "after call %d failed", n);
        expect_nothing_held(after);
        if (calls < n) {
            must(status);
            cr_expect_gt(n, 20);
            break;
        }
        char says[64];
        snprintf(says, sizeof says, "call %d fails", n);
        expect_failure(status, STATUS_FAULT, says);
    }
    fake.fail_at = 0;
}
