/* SPDX-License-Identifier: Apache-2.0 */
/* The OpenCL driver through its table, on whatever device the machine has (PoCL, where there is no GPU). Without any,
 * the tests say so and are skipped. */
#include <criterion/criterion.h>
#include <criterion/logging.h>

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include "runtime/device/opencl/driver.h"
#include "skip.h"

static const GpuDriver *const driver = &opencl_driver;

static const char source[] =
    "#pragma OPENCL FP_CONTRACT OFF\n"
    "#define AT(type, p, offset) ((__global type *)((__global char *)p + offset))\n"
    "__kernel void scale(__global float *x, long x_offset, __global float *y, long y_offset, long n, float factor) {\n"
    "    for (long i = get_global_id(0); i < n; i += get_global_size(0))\n"
    "        AT(float, y, y_offset)[i] = AT(float, x, x_offset)[i] * factor;\n"
    "}\n"
    "__kernel void slow_count(__global int *y, long y_offset, long steps) {\n"
    "    volatile int count = 0;\n"
    "    for (long i = 0; i < steps; i++) count++;\n"
    "    if (get_global_id(0) == 0) AT(int, y, y_offset)[0] += count;\n"
    "}\n"
    "__kernel void is_null(__global int *x, long x_offset, __global int *y, long y_offset) {\n"
    "    AT(int, y, y_offset)[0] = x == 0 && x_offset == 0;\n"
    "}\n"
    "__kernel void reversed(__global int *y, long y_offset) {\n"
    "    __local int tile[1024];\n"
    "    int here = get_local_id(0), size = get_local_size(0);\n"
    "    tile[here] = get_global_id(0);\n"
    "    barrier(CLK_LOCAL_MEM_FENCE);\n"
    "    AT(int, y, y_offset)[get_global_id(0)] = tile[size - 1 - here];\n"
    "}\n"
    "__kernel void quotient(__global float *x, long x_offset, __global float *y, long y_offset, long n) {\n"
    "    for (long i = get_global_id(0); i < n; i += get_global_size(0))\n"
    "        AT(float, y, y_offset)[i] = AT(float, x, x_offset)[2 * i] / AT(float, x, x_offset)[2 * i + 1];\n"
    "}\n";

/* ---- one open device ---- */

typedef struct Bench {
    Policy policy;
    GpuContext *context;
    GpuModule *module;
    Stream *stream;
} Bench;

#define DONE(call)                                                                                                     \
    do {                                                                                                               \
        Status status_ = (call);                                                                                       \
        cr_assert(!status_, "%s: %s", #call, status_message(status_));                                                 \
    } while (0)

/* Fails with the code, and the message has the words. */
#define FAILS(call, code, words)                                                                                       \
    do {                                                                                                               \
        Status status_ = (call);                                                                                       \
        cr_assert(status_, "%s did not fail", #call);                                                                  \
        cr_expect_eq(status_code(status_), code, "%s: %s", #call, status_message(status_));                            \
        cr_expect(strstr(status_message(status_), words), "%s: \"%s\" lacks \"%s\"", #call, status_message(status_),   \
                  words);                                                                                              \
        status_free(status_);                                                                                          \
    } while (0)

static void open_context(Bench *bench) {
    *bench = (Bench){.policy = policy_default()};
    skip_without_device(driver->open(&bench->policy, &bench->context));
}

static GpuModule *module_of(GpuContext *context, const char *text) {
    void *binary;
    size_t size;
    GpuModule *module;
    DONE(driver->compile(context, text, &binary, &size));
    DONE(driver->load(context, binary, size, &module));
    free(binary);
    return module;
}

#define OPEN(bench)                                                                                                    \
    Bench bench;                                                                                                       \
    open_context(&bench);                                                                                              \
    bench.module = module_of(bench.context, source);                                                                   \
    DONE(driver->stream_create(bench.context, &bench.stream))

static void end(Bench *bench) {
    driver->stream_destroy(bench->context, bench->stream);
    driver->unload(bench->context, bench->module);
    driver->close(bench->context);
}

static const GpuFunction *function_of(const Bench *bench, const char *name) {
    const GpuFunction *function;
    DONE(driver->function(bench->context, bench->module, name, &function));
    return function;
}

static void *memory_of(const Bench *bench, size_t bytes) {
    void *data;
    DONE(driver->allocate(bench->context, bench->stream, bytes, &data));
    return data;
}

static void get(const Bench *bench, void *to, const void *from, size_t bytes) {
    DONE(driver->copy(bench->context, bench->stream, COPY_OUT, to, from, bytes));
    DONE(driver->synchronize(bench->context, bench->stream));
}

static void put(const Bench *bench, void *to, const void *from, size_t bytes) {
    DONE(driver->copy(bench->context, bench->stream, COPY_IN, to, from, bytes));
}

static GpuArgument buffer(void *data) { return (GpuArgument){.kind = GPU_ARG_BUFFER, .buffer = data}; }
static GpuArgument i64(int64_t value) { return (GpuArgument){.kind = GPU_ARG_I64, .i64 = value}; }
static GpuArgument f32(float value) { return (GpuArgument){.kind = GPU_ARG_F32, .f32 = value}; }

static Status scale(const Bench *bench, Stream *stream, void *x, void *y, int64_t n, float factor) {
    GpuArgument arguments[] = {buffer(x), buffer(y), i64(n), f32(factor)};
    return driver->launch(bench->context, stream, function_of(bench, "scale"), 4, 64, arguments, 4);
}

/* ---- devices ---- */

Test(opencl, is_described_in_one_line) {
    Bench bench;
    open_context(&bench);
    Arena *arena = arena_create(0);
    Text text = text_make(arena);
    DONE(driver->describe(&bench.policy, &text));
    cr_expect(strstr(text.data, "OpenCL ") && strstr(text.data, "compute units") && !strchr(text.data, '\n'), "%s",
              text.data);
    const GpuLimits *limits = driver->limits(bench.context);
    cr_expect(limits->multiprocessors >= 1 && limits->block_threads >= 256 && limits->block_threads <= 1024 &&
              limits->shared_bytes >= 16384);
    cr_expect(strstr(driver->target(bench.context), "OpenCL "), "%s", driver->target(bench.context));
    arena_destroy(arena);
    driver->close(bench.context);
}

Test(opencl, context_is_one_for_all_that_open_it) {
    Bench bench;
    open_context(&bench);
    GpuContext *second;
    DONE(driver->open(&bench.policy, &second));
    cr_expect_eq(second, bench.context);
    driver->close(second);
    void *data;
    DONE(driver->allocate(bench.context, NULL, 64, &data));
    driver->release(bench.context, NULL, data);
    driver->close(bench.context);
    DONE(driver->open(&bench.policy, &bench.context));
    driver->close(bench.context);
}

Test(opencl, device_is_found_by_part_of_its_name_in_any_case) {
    Bench bench;
    open_context(&bench);
    Arena *arena = arena_create(0);
    Text text = text_make(arena), again = text_make(arena);
    DONE(driver->describe(&bench.policy, &text));
    char part[8] = "";
    for (int i = 0; i < 7 && text.data[i] && text.data[i] != ' '; i++)
        part[i] = text.data[i] >= 'a' && text.data[i] <= 'z' ? (char)(text.data[i] - 'a' + 'A') : text.data[i];
    Policy policy = bench.policy;
    policy.opencl.device = part;
    DONE(driver->describe(&policy, &again));
    policy.opencl.device = "no such accelerator";
    FAILS(driver->describe(&policy, &again), STATUS_USAGE, "no such accelerator");
    GpuContext *context;
    FAILS(driver->open(&policy, &context), STATUS_USAGE, "there are \"");
    arena_destroy(arena);
    driver->close(bench.context);
}

Test(opencl, library_that_is_missing_or_another_is_named) {
    Policy policy = policy_default();
    GpuContext *context;
    policy.opencl.library = "/nowhere/libOpenCL.so";
    FAILS(driver->open(&policy, &context), STATUS_USAGE, "/nowhere/libOpenCL.so");
    policy.opencl.library = "libutil.so.1";
    FAILS(driver->open(&policy, &context), STATUS_USAGE, "lacks the function clGetPlatformIDs");
}

/* The loader reads its variables when it is first used, hence a process of its own. */
Test(opencl, loader_without_drivers_says_what_to_install) {
    pid_t child = fork();
    if (child == 0) {
        setenv("OCL_ICD_VENDORS", "/nowhere/", 1);
        setenv("OCL_ICD_FILENAMES", "", 1);
        Policy policy = policy_default();
        GpuContext *context;
        Status status = driver->open(&policy, &context);
        bool told = strstr(status_message(status), "install") && status_code(status) == STATUS_USAGE;
        if (!told) fprintf(stderr, "without drivers: \"%s\"\n", status_message(status));
        _exit(told ? 0 : 1);
    }
    int state = 1;
    waitpid(child, &state, 0);
    cr_assert_eq(state, 0);
}

/* ---- memory ---- */

Test(opencl, copies_go_round_at_any_size_and_offset) {
    OPEN(bench);
    static const size_t sizes[] = {1, 3, 64, 65535, 65536, 65537, 3 << 20};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (size_t offset = 0; offset < 515; offset += 257) {
            size_t bytes = sizes[i];
            unsigned char *host = malloc(2 * bytes), *back = host + bytes;
            for (size_t b = 0; b < bytes; b++) host[b] = (unsigned char)(b * 7 + i);
            char *data = memory_of(&bench, bytes + offset), *copy = memory_of(&bench, bytes + offset);
            put(&bench, data + offset, host, bytes);
            DONE(driver->copy(bench.context, bench.stream, COPY_WITHIN, copy, data + offset, bytes));
            get(&bench, back, copy, bytes);
            cr_expect_eq(memcmp(host, back, bytes), 0, "%zu bytes at %zu", bytes, offset);
            driver->release(bench.context, bench.stream, data);
            driver->release(bench.context, bench.stream, copy);
            free(host);
        }
    end(&bench);
}

Test(opencl, addresses_are_aligned_and_apart) {
    OPEN(bench);
    enum { COUNT = 300 };
    char *data[COUNT];
    for (int i = 0; i < COUNT; i++) {
        data[i] = memory_of(&bench, (size_t)(i * 37 % 1000));
        cr_assert(data[i] && (uintptr_t)data[i] % 256 == 0);
    }
    for (int i = 0; i < COUNT; i += 2) driver->release(bench.context, bench.stream, data[i]);
    for (int i = 1; i < COUNT; i += 2) {
        size_t bytes = (size_t)(i * 37 % 1000);
        for (int j = 1; j < COUNT; j += 2) cr_assert(i == j || data[j] < data[i] || data[j] > data[i] + bytes);
        DONE(driver->fill_zero(bench.context, bench.stream, data[i], bytes));
        if (bytes)
            FAILS(driver->fill_zero(bench.context, bench.stream, data[i] + 1, bytes), STATUS_FAULT, "reach beyond");
    }
    FAILS(driver->fill_zero(bench.context, bench.stream, data[0], 1), STATUS_FAULT, "no memory of OpenCL device");
    int here;
    FAILS(driver->copy(bench.context, bench.stream, COPY_OUT, &here, &here, sizeof here), STATUS_FAULT, "no memory");
    for (int i = 1; i < COUNT; i += 2) driver->release(bench.context, bench.stream, data[i]);
    driver->release(bench.context, bench.stream, NULL);
    end(&bench);
}

Test(opencl, zeroes_fill_exactly_their_range) {
    OPEN(bench);
    enum { SIZE = 4096 };
    static unsigned char ones[SIZE], back[SIZE];
    memset(ones, 1, SIZE);
    unsigned char *data = memory_of(&bench, SIZE);
    for (size_t begin = 0; begin < 40; begin += 3)
        for (size_t bytes = 1; bytes < SIZE - begin; bytes = bytes * 3 + 1) {
            put(&bench, data, ones, SIZE);
            DONE(driver->fill_zero(bench.context, bench.stream, data + begin, bytes));
            get(&bench, back, data, SIZE);
            for (size_t i = 0; i < SIZE; i++)
                cr_assert_eq(back[i], i < begin || i >= begin + bytes, "byte %zu of %zu+%zu", i, begin, bytes);
        }
    driver->release(bench.context, bench.stream, data);
    end(&bench);
}

/* More bytes than the staging memory holds, through one variable. */
Test(opencl, source_of_a_copy_may_change_at_once) {
    OPEN(bench);
    enum { PIECE = 40000 / 4, PIECES = 100 };
    static int32_t piece[PIECE], back[PIECE * PIECES];
    int32_t *data = memory_of(&bench, sizeof back);
    for (int i = 0; i < PIECES; i++) {
        for (int j = 0; j < PIECE; j++) piece[j] = i * PIECE + j;
        put(&bench, data + i * PIECE, piece, sizeof piece);
        memset(piece, 0xff, sizeof piece);
    }
    get(&bench, back, data, sizeof back);
    for (int i = 0; i < PIECE * PIECES; i++) cr_assert_eq(back[i], i);
    driver->release(bench.context, bench.stream, data);
    end(&bench);
}

Test(opencl, lack_of_memory_is_told_where_it_is_asked_for) {
    OPEN(bench);
    void *data;
    size_t before = driver->free_memory(bench.context);
    FAILS(driver->allocate(bench.context, bench.stream, SIZE_MAX / 2, &data), STATUS_FAULT,
          "is larger than OpenCL device");
    enum { PARTS = 5 };
    void *parts[2 * PARTS];
    int count = 0;
    Status status = NULL;
    while (count < 2 * PARTS &&
           !(status = driver->allocate(bench.context, bench.stream, before / PARTS, &parts[count])))
        count++;
    cr_assert(status, "ten fifths of the memory were given");
    cr_expect(strstr(status_message(status), "out of memory on OpenCL device"), "%s", status_message(status));
    status_free(status);
    for (int i = 0; i < count; i++) driver->release(bench.context, bench.stream, parts[i]);
    cr_expect_eq(driver->free_memory(bench.context), before);
    data = memory_of(&bench, 1 << 20);
    driver->release(bench.context, bench.stream, data);
    end(&bench);
}

/* ---- programs ---- */

Test(opencl, views_inside_an_allocation_reach_kernels) {
    OPEN(bench);
    enum { N = 1000, GAP = 52 };
    static float x[N], y[N];
    for (int i = 0; i < N; i++) x[i] = (float)i;
    float *arena = memory_of(&bench, sizeof(float) * (2 * N + GAP));
    put(&bench, arena + GAP, x, sizeof x);
    DONE(scale(&bench, bench.stream, arena + GAP, arena + GAP + N, N, 0.5f));
    get(&bench, y, arena + GAP + N, sizeof y);
    for (int i = 0; i < N; i++) cr_assert_eq(y[i], (float)i * 0.5f);
    driver->release(bench.context, bench.stream, arena);
    end(&bench);
}

Test(opencl, missing_buffer_is_a_null_pointer) {
    OPEN(bench);
    int32_t *y = memory_of(&bench, 4), result = -1;
    for (int given = 0; given < 2; given++) {
        GpuArgument arguments[] = {buffer(given ? y : NULL), buffer(y)};
        DONE(driver->launch(bench.context, bench.stream, function_of(&bench, "is_null"), 1, 1, arguments, 2));
        get(&bench, &result, y, sizeof result);
        cr_expect_eq(result, !given);
    }
    driver->release(bench.context, bench.stream, y);
    end(&bench);
}

Test(opencl, block_shares_memory_and_meets_at_barriers) {
    OPEN(bench);
    enum { GRID = 3 };
    static int32_t back[GRID * 1024];
    int32_t *y = memory_of(&bench, sizeof back);
    for (int block = 32; block <= driver->limits(bench.context)->block_threads; block *= 2) {
        GpuArgument argument = buffer(y);
        DONE(driver->launch(bench.context, bench.stream, function_of(&bench, "reversed"), GRID, block, &argument, 1));
        get(&bench, back, y, sizeof back);
        for (int i = 0; i < GRID * block; i++)
            cr_assert_eq(back[i], i / block * block + block - 1 - i % block, "block of %d, element %d", block, i);
    }
    driver->release(bench.context, bench.stream, y);
    end(&bench);
}

Test(opencl, division_rounds_as_on_the_host) {
    OPEN(bench);
    if (!strstr(driver->target(bench.context), "correctly-rounded")) skip_test("the device does not round so", NULL);
    enum { N = 20000 };
    static float x[2 * N], y[N];
    uint64_t state = 1;
    for (int i = 0; i < 2 * N; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        uint32_t bits = (uint32_t)(state >> 32);
        memcpy(&x[i], &bits, 4);
    }
    float *data = memory_of(&bench, sizeof x + sizeof y);
    put(&bench, data, x, sizeof x);
    GpuArgument arguments[] = {buffer(data), buffer(data + 2 * N), i64(N)};
    DONE(driver->launch(bench.context, bench.stream, function_of(&bench, "quotient"), 8, 64, arguments, 3));
    get(&bench, y, data + 2 * N, sizeof y);
    for (int i = 0; i < N; i++) {
        volatile float want = x[2 * i] / x[2 * i + 1];
        float expected = want;
        cr_assert(memcmp(&y[i], &expected, 4) == 0 || (y[i] != y[i] && expected != expected), "%a / %a is %a, not %a",
                  x[2 * i], x[2 * i + 1], y[i], expected);
    }
    driver->release(bench.context, bench.stream, data);
    end(&bench);
}

Test(opencl, wrong_source_gives_the_compilers_words) {
    Bench bench;
    open_context(&bench);
    void *binary;
    size_t size;
    FAILS(driver->compile(bench.context, "__kernel void f(__global int *x) {\n    x[0] = undeclared_thing;\n}\n",
                          &binary, &size),
          STATUS_FAULT, "undeclared_thing");
    driver->close(bench.context);
}

Test(opencl, damaged_binary_is_refused) {
    Bench bench;
    open_context(&bench);
    unsigned char *binary;
    size_t size;
    GpuModule *module;
    DONE(driver->compile(bench.context, source, (void **)&binary, &size));
    for (size_t cut = 0; cut < size; cut = cut * 3 + 1)
        FAILS(driver->load(bench.context, binary, cut, &module), STATUS_INVALID, "is damaged");
    for (size_t at = 0; at < size; at = at * 3 + 1) {
        binary[at] ^= 0x10;
        FAILS(driver->load(bench.context, binary, size, &module), STATUS_INVALID, "is damaged");
        binary[at] ^= 0x10;
    }
    DONE(driver->load(bench.context, binary, size, &module));
    driver->unload(bench.context, module);
    free(binary);
    driver->close(bench.context);
}

Test(opencl, wrong_launches_are_named) {
    OPEN(bench);
    const GpuFunction *function, *reversed = function_of(&bench, "reversed");
    FAILS(driver->function(bench.context, bench.module, "nothing", &function), STATUS_FAULT, "CL_INVALID_KERNEL_NAME");
    cr_expect_eq(reversed, function_of(&bench, "reversed"));
    int32_t *y = memory_of(&bench, 4 << 20);
    GpuArgument arguments[] = {buffer(y), i64(1)};
    FAILS(driver->launch(bench.context, bench.stream, reversed, 1, 1 << 20, arguments, 1), STATUS_FAULT,
          "kernel \"reversed\": 1 work-groups of 1048576");
    FAILS(driver->launch(bench.context, bench.stream, reversed, 1, 64, arguments, 2), STATUS_FAULT,
          "has 2 arguments and is given 3");
    FAILS(driver->launch(bench.context, bench.stream, reversed, -1, 64, arguments, 1), STATUS_FAULT, "a grid of -1");
    arguments[0].buffer = &bench;
    FAILS(driver->launch(bench.context, bench.stream, reversed, 1, 64, arguments, 1), STATUS_FAULT, "no memory");
    arguments[0].buffer = y;
    DONE(driver->launch(bench.context, bench.stream, reversed, 0, 64, arguments, 1));
    DONE(driver->launch(bench.context, bench.stream, reversed, 1, 64, arguments, 1));
    DONE(driver->synchronize(bench.context, bench.stream));
    driver->release(bench.context, bench.stream, y);
    end(&bench);
}

/* ---- streams ---- */

Test(opencl, memory_released_under_pending_work_stays_until_it_is_done) {
    OPEN(bench);
    enum { N = 1 << 16 };
    static float x[N], y[N];
    for (int i = 0; i < N; i++) x[i] = (float)i;
    float *result = memory_of(&bench, sizeof y);
    float *data = memory_of(&bench, sizeof x), *between = memory_of(&bench, sizeof x);
    int32_t *count = memory_of(&bench, 4);
    GpuArgument arguments[] = {buffer(count), i64(20000000)};
    put(&bench, data, x, sizeof x);
    DONE(driver->launch(bench.context, bench.stream, function_of(&bench, "slow_count"), 1, 1, arguments, 2));
    DONE(scale(&bench, bench.stream, data, between, N, 2));
    DONE(scale(&bench, bench.stream, between, result, N, 2));
    driver->release(bench.context, bench.stream, data);
    driver->release(bench.context, bench.stream, between);
    driver->release(bench.context, bench.stream, count);
    float *other = memory_of(&bench, sizeof x);
    DONE(driver->fill_zero(bench.context, bench.stream, other, sizeof x));
    get(&bench, y, result, sizeof y);
    for (int i = 0; i < N; i++) cr_assert_eq(y[i], 4 * x[i]);
    driver->release(bench.context, bench.stream, other);
    driver->release(bench.context, bench.stream, result);
    end(&bench);
}

Test(opencl, streams_are_in_order_and_independent) {
    OPEN(bench);
    enum { N = 5000, ROUNDS = 40 };
    static float x[N], y[2][N];
    for (int i = 0; i < N; i++) x[i] = (float)i;
    Stream *streams[2] = {bench.stream};
    DONE(driver->stream_create(bench.context, &streams[1]));
    float *data[2];
    for (int s = 0; s < 2; s++) {
        DONE(driver->allocate(bench.context, streams[s], sizeof x, (void **)&data[s]));
        DONE(driver->copy(bench.context, streams[s], COPY_IN, data[s], x, sizeof x));
    }
    for (int round = 0; round < ROUNDS; round++)
        for (int s = 0; s < 2; s++) DONE(scale(&bench, streams[s], data[s], data[s], N, (round + s) % 2 ? 0.5f : 2));
    for (int s = 0; s < 2; s++) {
        DONE(driver->copy(bench.context, streams[s], COPY_OUT, y[s], data[s], sizeof x));
        DONE(driver->synchronize(bench.context, streams[s]));
        for (int i = 0; i < N; i++) cr_assert_eq(y[s][i], x[i]);
    }
    DONE(scale(&bench, streams[1], data[0], data[1], N, 3)); /* what one has finished, the other sees */
    DONE(driver->copy(bench.context, streams[1], COPY_OUT, y[1], data[1], sizeof x));
    DONE(driver->synchronize(bench.context, streams[1]));
    for (int i = 0; i < N; i++) cr_assert_eq(y[1][i], 3 * x[i]);
    for (int s = 0; s < 2; s++) driver->release(bench.context, streams[s], data[s]);
    driver->stream_destroy(bench.context, streams[1]);
    driver->stream_destroy(bench.context, NULL);
    end(&bench);
}

enum { THREADS = 8, THREAD_ROUNDS = 30, THREAD_N = 3000 };

typedef struct Worker {
    const Bench *bench;
    int number;
    char failure[256];
} Worker;

static Status worker_round(const Worker *w, Stream *stream, int round, float *x, float *y) {
    GpuContext *context = w->bench->context;
    const GpuFunction *function;
    void *data;
    size_t bytes = sizeof *x * THREAD_N;
    for (int i = 0; i < THREAD_N; i++) x[i] = (float)(i * (w->number + 1) + round);
    TRY(driver->function(context, w->bench->module, "scale", &function));
    TRY(driver->allocate(context, stream, 2 * bytes, &data));
    GpuArgument arguments[] = {buffer(data), buffer((char *)data + bytes), i64(THREAD_N), f32((float)w->number)};
    TRY(driver->copy(context, stream, COPY_IN, data, x, bytes));
    TRY(driver->launch(context, stream, function, 4, 64, arguments, 4));
    TRY(driver->copy(context, stream, COPY_OUT, y, (char *)data + bytes, bytes));
    TRY(driver->synchronize(context, stream));
    driver->release(context, stream, data);
    for (int i = 0; i < THREAD_N; i++)
        if (y[i] != x[i] * (float)w->number)
            return status_error(STATUS_FAULT, "thread %d, round %d: element %d is %g", w->number, round, i, y[i]);
    return NULL;
}

static void *work(void *given) {
    Worker *w = given;
    Stream *stream = NULL;
    float *x = malloc(2 * sizeof *x * THREAD_N);
    Status status = driver->stream_create(w->bench->context, &stream);
    for (int round = 0; !status && round < THREAD_ROUNDS; round++)
        status = worker_round(w, stream, round, x, x + THREAD_N);
    snprintf(w->failure, sizeof w->failure, "%s", status_message(status));
    status_free(status);
    driver->stream_destroy(w->bench->context, stream);
    free(x);
    return NULL;
}

Test(opencl, eight_threads_use_one_function_at_once) {
    OPEN(bench);
    pthread_t threads[THREADS];
    Worker workers[THREADS] = {0};
    for (int i = 0; i < THREADS; i++) {
        workers[i] = (Worker){.bench = &bench, .number = i};
        cr_assert_eq(pthread_create(&threads[i], NULL, work, &workers[i]), 0);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
        cr_expect_str_empty(workers[i].failure);
    }
    end(&bench);
}

/* ---- products by a library ---- */

typedef struct ProductRow {
    const char *name;
    DType dtype;
    int64_t m, n, k, batch;
    bool transpose_a, transpose_b;
    int64_t pad;       /* elements that a row takes more than it has */
    bool shared_b;     /* the same for all of the batch */
    float alpha, beta; /* beta: c is d's own memory */
} ProductRow;

static const ProductRow product_rows[] = {
    {"one product", DT_F32, 17, 33, 65, 1, false, false, 0, false, 1, 0},
    {"both transposed", DT_F32, 17, 33, 65, 1, true, true, 0, false, 1, 0},
    {"a batch with padded rows", DT_F32, 8, 24, 16, 5, false, true, 3, false, 1, 0},
    {"a batch with one weight", DT_F32, 32, 16, 48, 4, false, false, 0, true, 1, 0},
    {"alpha and beta", DT_F32, 64, 64, 64, 2, true, false, 0, false, 0.5f, 2},
    {"large enough for its other kernel", DT_F32, 256, 256, 128, 1, false, false, 0, false, 1, 0},
    {"double precision", DT_F64, 40, 24, 31, 3, false, true, 1, false, 1.5f, 1},
};

static double at(DType dtype, const void *data, int64_t i) {
    return dtype == DT_F64 ? ((const double *)data)[i] : ((const float *)data)[i];
}

static void set(DType dtype, void *data, int64_t i, double value) {
    if (dtype == DT_F64)
        ((double *)data)[i] = value;
    else
        ((float *)data)[i] = (float)value;
}

/* Small integers: products and sums are exact in either type. */
static void *random_integers(DType dtype, int64_t count, unsigned *state) {
    void *data = malloc((size_t)count * 8);
    for (int64_t i = 0; i < count; i++) {
        *state = *state * 1664525u + 1013904223u;
        set(dtype, data, i, (double)(int)(*state >> 28) - 8);
    }
    return data;
}

static double expected(const GpuGemm *g, const void *a, const void *b, const void *c, int64_t batch, int64_t i,
                       int64_t j) {
    double sum = 0;
    for (int64_t k = 0; k < g->k; k++)
        sum += at(g->dtype, a, batch * g->stride_a + (g->transpose_a ? k * g->lda + i : i * g->lda + k)) *
               at(g->dtype, b, batch * g->stride_b + (g->transpose_b ? j * g->ldb + k : k * g->ldb + j));
    return g->alpha * sum + g->beta * at(g->dtype, c, batch * g->stride_c + i * g->ldc + j);
}

/* False where the library is not installed. */
static bool check_product(const Bench *bench, const ProductRow *row) {
    size_t size = row->dtype == DT_F64 ? 8 : 4;
    int64_t rows_a = row->transpose_a ? row->k : row->m, rows_b = row->transpose_b ? row->n : row->k;
    GpuGemm g = {.dtype = row->dtype, .m = row->m, .n = row->n, .k = row->k, .batch = row->batch, .activation = -1};
    g.transpose_a = row->transpose_a, g.transpose_b = row->transpose_b, g.alpha = row->alpha, g.beta = row->beta;
    g.lda = (row->transpose_a ? row->m : row->k) + row->pad, g.stride_a = rows_a * g.lda;
    g.ldb = (row->transpose_b ? row->k : row->n) + row->pad, g.stride_b = row->shared_b ? 0 : rows_b * g.ldb;
    g.ldc = row->n + row->pad, g.stride_c = row->m * g.ldc;
    int64_t count_a = rows_a * g.lda * g.batch, count_b = rows_b * g.ldb * g.batch, count_c = g.stride_c * g.batch;
    unsigned state = 7;
    void *a = random_integers(g.dtype, count_a, &state), *b = random_integers(g.dtype, count_b, &state),
         *c = random_integers(g.dtype, count_c, &state), *got = malloc((size_t)count_c * size);
    char *memory = memory_of(bench, (size_t)(count_a + count_b + count_c) * size);
    g.a = memory, g.b = memory + (size_t)count_a * size, g.d = memory + (size_t)(count_a + count_b) * size, g.c = g.d;
    put(bench, memory, a, (size_t)count_a * size);
    put(bench, memory + (size_t)count_a * size, b, (size_t)count_b * size);
    put(bench, g.d, c, (size_t)count_c * size);
    size_t workspace;
    Status status = driver->gemm(bench->context, bench->stream, &g, &workspace);
    bool here = status_code(status) != STATUS_UNSUPPORTED;
    cr_assert(!status || !here, "%s: %s", row->name, status_message(status));
    status_free(status);
    get(bench, got, g.d, (size_t)count_c * size);
    for (int64_t i = 0; here && i < count_c; i++) {
        int64_t batch = i / g.stride_c, in = i % g.stride_c, column = in % g.ldc;
        double want = column < g.n ? expected(&g, a, b, c, batch, in / g.ldc, column) : at(g.dtype, c, i);
        cr_assert_eq(at(g.dtype, got, i), want, "%s: element %lld is %g, not %g", row->name, (long long)i,
                     at(g.dtype, got, i), want);
    }
    driver->release(bench->context, bench->stream, memory);
    free(a), free(b), free(c), free(got);
    return here;
}

/* CLBlast compiles its kernels for two minutes on PoCL: there they are tested only when asked for. */
Test(opencl, library_computes_products) {
    OPEN(bench);
    GpuGemm usual = {DT_F32, 4, 4, 4, 1, .lda = 4, .ldb = 4, .ldc = 4, .alpha = 1, .activation = -1};
    if (!driver->gemm_supports(bench.context, &usual) && !getenv("ONNXFUSE_TEST_CLBLAST")) {
        end(&bench);
        skip_test("CLBlast is not used here; ONNXFUSE_TEST_CLBLAST=1 runs it all the same", NULL);
    }
    bool here = true;
    for (size_t i = 0; here && i < sizeof product_rows / sizeof *product_rows; i++)
        if (product_rows[i].dtype != DT_F64 || driver->limits(bench.context)->fp64)
            here = check_product(&bench, &product_rows[i]);
    end(&bench);
    if (!here) skip_test("CLBlast is not installed", NULL);
}

Test(opencl, library_takes_no_product_with_an_epilogue) {
    OPEN(bench);
    float *data = memory_of(&bench, 1024);
    GpuGemm plain = {DT_F32,   4, 4, 4, 1, false, false,     4,    4,    4,
                     0,        0, 0, 1, 0, data,  data + 16, NULL, NULL, GPU_ACTIVATION_NONE,
                     data + 32};
    GpuGemm with_bias = plain, activated = plain, half = plain, empty = plain;
    with_bias.bias = data;
    activated.activation = GPU_ACTIVATION_RELU;
    half.dtype = DT_F16;
    empty.k = 0;
    size_t workspace;
    const GpuGemm *gemms[] = {&with_bias, &activated, &half, &empty};
    for (size_t i = 0; i < sizeof gemms / sizeof *gemms; i++) {
        cr_expect(!driver->gemm_supports(bench.context, gemms[i]));
        FAILS(driver->gemm(bench.context, bench.stream, gemms[i], &workspace), STATUS_UNSUPPORTED, "CLBlast");
    }
    driver->release(bench.context, bench.stream, data);
    end(&bench);
}

/* ---- from process to process ---- */

static void no_failure(Status status) {
    if (!status) return;
    fprintf(stderr, "%s\n", status_message(status));
    _exit(2);
}

/* Process 1 writes the binary to the pipe; process 2 reads it and runs a kernel of it. The exit code is 0, or 3 without
 * OpenCL. */
static void compile_into(int pipe_end) {
    Policy policy = policy_default();
    GpuContext *context;
    void *binary;
    size_t size;
    Status status = driver->open(&policy, &context);
    if (status) _exit(3);
    no_failure(driver->compile(context, source, &binary, &size));
    for (size_t done = 0; done < size;) {
        ssize_t written = write(pipe_end, (char *)binary + done, size - done);
        if (written <= 0) _exit(4);
        done += (size_t)written;
    }
    _exit(0);
}

static void run_binary(const void *binary, size_t size) {
    Bench bench = {.policy = policy_default()};
    const GpuFunction *function;
    float x[100], y[100];
    void *data;
    for (int i = 0; i < 100; i++) x[i] = (float)i;
    no_failure(driver->open(&bench.policy, &bench.context));
    no_failure(driver->load(bench.context, binary, size, &bench.module));
    no_failure(driver->stream_create(bench.context, &bench.stream));
    no_failure(driver->function(bench.context, bench.module, "scale", &function));
    no_failure(driver->allocate(bench.context, bench.stream, sizeof x, &data));
    no_failure(driver->copy(bench.context, bench.stream, COPY_IN, data, x, sizeof x));
    no_failure(scale(&bench, bench.stream, data, data, 100, 2));
    no_failure(driver->copy(bench.context, bench.stream, COPY_OUT, y, data, sizeof x));
    no_failure(driver->synchronize(bench.context, bench.stream));
    for (int i = 0; i < 100; i++)
        if (y[i] != 2 * x[i]) _exit(5);
    _exit(0);
}

static int wait_for(pid_t child) {
    int state = 0;
    waitpid(child, &state, 0);
    return WIFEXITED(state) ? WEXITSTATUS(state) : 100;
}

Test(opencl, binary_of_one_process_runs_in_another) {
    int ends[2];
    cr_assert_eq(pipe(ends), 0);
    pid_t compiler = fork();
    if (compiler == 0) compile_into(ends[1]);
    close(ends[1]);
    enum { MOST = 64 << 20 };
    char *binary = malloc(MOST);
    size_t size = 0;
    for (ssize_t got; size < MOST && (got = read(ends[0], binary + size, MOST - size)) > 0;) size += (size_t)got;
    close(ends[0]);
    int code = wait_for(compiler);
    if (code == 3) skip_test("no OpenCL platform", NULL);
    cr_assert_eq(code, 0);
    pid_t runner = fork();
    if (runner == 0) run_binary(binary, size);
    cr_expect_eq(wait_for(runner), 0);
    free(binary);
}
