/* SPDX-License-Identifier: Apache-2.0 */
/* Bandwidth of rendered kernels against a plain streaming loop of the same traffic, on two threads, and of those that
 * compute much against a loop written by hand (marks.h): the numbers by which the renderer's choices are tuned.
 * kernels [LEVEL] [NAME] */
#include "../tests/codegen/handmade.h"
#include "codegen/codegen.h"
#include "codegen/object.h"
#include "codegen/llvm_plugin.h"
#include "codegen/math.h"
#include "marks.h"

#ifdef __SSE2__
#include <xmmintrin.h>
#endif
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { THREADS = 2, MOST_BUFFERS = 6 };

typedef struct Case {
    const char *name;
    Kernel *(*make)(Arena *);
    size_t bytes[MOST_BUFFERS]; /* of each buffer */
    int64_t params[4];
    double flops;
    Mark mark; /* computes the last buffer from the first; NULL: none */
} Case;

static Kernel *make_axpb(Arena *arena) { /* x * 2 + 1 */
    Maker m = maker(arena, 16384);
    axis(&m, AXIS_LANE, -1, 1);
    int x = load(&m, buffer(&m, DT_F32, false), STRIDES(&m, 1));
    int y = op(&m, K_FMA, DT_F32, x, constant(&m, DT_F32, 2), constant(&m, DT_F32, 1));
    store(&m, buffer(&m, DT_F32, true), STRIDES(&m, 1), y);
    return m.kernel;
}

/* tanh-like: a dozen multiply-adds and a division an element, in cache. */
static Kernel *make_polynomial(Arena *arena) {
    Maker m = maker(arena, 4096);
    axis(&m, AXIS_LANE, -1, 1);
    int x = load(&m, buffer(&m, DT_F32, false), STRIDES(&m, 1)), p = constant(&m, DT_F32, 0.125);
    for (int n = 0; n < 20; n++) p = op(&m, K_FMA, DT_F32, p, x, constant(&m, DT_F32, 0.1 * n));
    store(&m, buffer(&m, DT_F32, true), STRIDES(&m, 1), p);
    return m.kernel;
}

/* As long as several transcendental functions one after the other: a hundred dependent instructions. */
static Kernel *make_chain(Arena *arena) {
    Maker m = maker(arena, 4096);
    axis(&m, AXIS_LANE, -1, 1);
    int x = load(&m, buffer(&m, DT_F32, false), STRIDES(&m, 1)), y = x;
    for (int n = 0; n < 100; n++)
        y = n % 8 == 7 ? op(&m, K_MAX, DT_F32, y, x, 0) : op(&m, K_FMA, DT_F32, y, x, constant(&m, DT_F32, 0.01 * n));
    store(&m, buffer(&m, DT_F32, true), STRIDES(&m, 1), y);
    return m.kernel;
}

/* y = norm(x + residual + bias) * scale + shift over rows. */
static Kernel *make_norm(Arena *arena) {
    Maker m = maker(arena, 0);
    axis(&m, AXIS_TASK, -1, 1);
    axis(&m, AXIS_REDUCE_LANE, -2, 1);
    KernelAccess rows = STRIDES(&m, -2, 1), line = STRIDES(&m, 0, 1);
    int x = load(&m, buffer(&m, DT_F32, false), rows), b = load(&m, buffer(&m, DT_F32, false), line);
    int r = load(&m, buffer(&m, DT_F32, false), rows);
    int s = op(&m, K_ADD, DT_F32, op(&m, K_ADD, DT_F32, x, b, 0), r, 0);
    keep(&m, s);
    int n = op(&m, K_CAST, DT_F32, inst(&m, (KernelInst){.op = K_PARAM, .dtype = DT_I64, .bits = 1}), 0, 0);
    int mean = op(&m, K_DIV, DT_F32, op(&m, K_REDUCE_SUM, DT_F32, s, 0, 0), n, 0);
    int d = op(&m, K_SUB, DT_F32, s, mean, 0);
    int var = op(&m, K_DIV, DT_F32, op(&m, K_REDUCE_SUM, DT_F32, op(&m, K_MUL, DT_F32, d, d, 0), 0, 0), n, 0);
    int inverse = op(&m, K_DIV, DT_F32, constant(&m, DT_F32, 1),
                     op(&m, K_SQRT, DT_F32, op(&m, K_ADD, DT_F32, var, constant(&m, DT_F32, 1e-5), 0), 0, 0), 0);
    int scale = load(&m, buffer(&m, DT_F32, false), line), shift = load(&m, buffer(&m, DT_F32, false), line);
    int y = op(&m, K_FMA, DT_F32, op(&m, K_MUL, DT_F32, d, inverse, 0), scale, shift);
    store(&m, buffer(&m, DT_F32, true), rows, y);
    return m.kernel;
}

static Kernel *make_row_sums(Arena *arena) {
    Maker m = maker(arena, 0);
    axis(&m, AXIS_TASK, -1, 1);
    axis(&m, AXIS_REDUCE_LANE, -2, 1);
    int x = load(&m, buffer(&m, DT_F32, false), STRIDES(&m, -2, 1));
    store(&m, buffer(&m, DT_F32, true), STRIDES(&m, 1, 0), op(&m, K_REDUCE_SUM, DT_F32, x, 0, 0));
    return m.kernel;
}

static Kernel *make_row_max(Arena *arena) {
    Maker m = maker(arena, 0);
    axis(&m, AXIS_TASK, -1, 1);
    axis(&m, AXIS_REDUCE_LANE, -2, 1);
    int x = load(&m, buffer(&m, DT_F32, false), STRIDES(&m, -2, 1));
    store(&m, buffer(&m, DT_F32, true), STRIDES(&m, 1, 0), op(&m, K_REDUCE_MAX, DT_F32, x, 0, 0));
    return m.kernel;
}

static int column_block = 1024, column_band = 64;
static Kernel *make_column_sums(Arena *arena) {
    Maker m = maker(arena, column_block);
    axis(&m, AXIS_LANE, -1, 1);
    axis(&m, AXIS_REDUCE, -2, 1);
    int x = load(&m, buffer(&m, DT_F32, false), STRIDES(&m, 1, -1));
    store(&m, buffer(&m, DT_F32, true), STRIDES(&m, 1, 0), op(&m, K_REDUCE_SUM, DT_F32, x, 0, 0));
    m.kernel->band = column_band;
    return m.kernel;
}

static int tile_rows = 256, tile_lanes = 128;
static Kernel *make_transpose_add(Arena *arena) {
    Maker m = maker(arena, tile_lanes);
    m.kernel->tile_axis = axis(&m, AXIS_TASK, -1, 1);
    m.kernel->tile_block = tile_rows;
    axis(&m, AXIS_LANE, -2, 1);
    int a = load(&m, buffer(&m, DT_F32, false), STRIDES(&m, 1, -1)),
        b = load(&m, buffer(&m, DT_F32, false), STRIDES(&m, -2, 1));
    store(&m, buffer(&m, DT_F32, true), STRIDES(&m, -2, 1), op(&m, K_ADD, DT_F32, a, b, 0));
    return m.kernel;
}

typedef enum Activation { GELU_ERF, GELU_TANH, SWISH } Activation;

static int activation(Emit *e, int x, Activation which) {
    int half = emit_float(e, DT_F32, 0.5), one = emit_float(e, DT_F32, 1), y;
    if (which == SWISH) return emit2(e, K_MUL, DT_F32, x, math_expand(e, PRIM_SIGMOID, x, 0));
    if (which == GELU_ERF) {
        y = emit2(e, K_DIV, DT_F32, x, emit_float(e, DT_F32, 1.41421356));
        y = emit2(e, K_ADD, DT_F32, math_expand(e, PRIM_ERF, y, 0), one);
    } else {
        int cube = emit2(e, K_MUL, DT_F32, x, emit2(e, K_MUL, DT_F32, x, x));
        y = emit2(e, K_ADD, DT_F32, x, emit2(e, K_MUL, DT_F32, cube, emit_float(e, DT_F32, 0.044715)));
        y = math_one_plus_tanh(e, emit2(e, K_MUL, DT_F32, y, emit_float(e, DT_F32, 0.7978845608028654)));
    }
    return emit2(e, K_MUL, DT_F32, emit2(e, K_MUL, DT_F32, x, y), half);
}

static Kernel *make_activation(Arena *arena, Activation which) {
    Maker m = maker(arena, 1024);
    Emit e;
    axis(&m, AXIS_LANE, -1, 64);
    int x = load(&m, buffer(&m, DT_F32, false), STRIDES(&m, 1));
    emit_begin(&e, arena, m.kernel);
    int y = activation(&e, x, which);
    store(&m, buffer(&m, DT_F32, true), STRIDES(&m, 1), y);
    return m.kernel;
}

static Kernel *make_gelu_erf(Arena *arena) { return make_activation(arena, GELU_ERF); }
static Kernel *make_gelu_tanh(Arena *arena) { return make_activation(arena, GELU_TANH); }
static Kernel *make_swish(Arena *arena) { return make_activation(arena, SWISH); }

#define MB ((size_t)1 << 20)
static const Case cases[] = {
    {"x*2+1 of 32M", make_axpb, {128 * MB, 128 * MB}, {32 << 20}, 0},
    {"x*2+1 of 64K (L2)", make_axpb, {256 << 10, 256 << 10}, {64 << 10}, 0},
    {"20 fma of 8K (L1)", make_polynomial, {32 << 10, 32 << 10}, {8 << 10}, 40.0 * (8 << 10)},
    {"100 dependent of 64K (L2)", make_chain, {256 << 10, 256 << 10}, {64 << 10}, 188.0 * (64 << 10)},
    {"GELU by erf of 64K (L2)", make_gelu_erf, {256 << 10, 256 << 10}, {64 << 10}, 0, mark_gelu_erf},
    {"GELU by tanh of 64K (L2)", make_gelu_tanh, {256 << 10, 256 << 10}, {64 << 10}, 0, mark_gelu_tanh},
    {"swish of 64K (L2)", make_swish, {256 << 10, 256 << 10}, {64 << 10}, 0, mark_swish},
    {"bias+residual+LayerNorm [8192,1024]", make_norm, {32 * MB, 4096, 32 * MB, 4096, 4096, 32 * MB}, {8192, 1024}, 0},
    {"bias+residual+LayerNorm [512,768] (L2)",
     make_norm,
     {1536 << 10, 3072, 1536 << 10, 3072, 3072, 1536 << 10},
     {512, 768},
     0},
    {"row sums 4096x4096", make_row_sums, {64 * MB, 16384}, {4096, 4096}, 0},
    {"row max 4096x4096", make_row_max, {64 * MB, 16384}, {4096, 4096}, 0},
    {"row max 128x1024 (L2)", make_row_max, {512 << 10, 512}, {128, 1024}, 0},
    {"column sums 4096x4096", make_column_sums, {64 * MB, 16384}, {4096, 4096}, 0},
    {"transpose-add 4096x4096", make_transpose_add, {64 * MB, 64 * MB, 64 * MB}, {4096, 4096}, 0},
    {"transpose-add 512x512 (L2)", make_transpose_add, {1 * MB, 1 * MB, 1 * MB}, {512, 512}, 0},
};

static double own_time(void) {
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

/* --- two threads that start together --- */

typedef struct Job {
    KernelFunction function;
    bool by_hand; /* the mark runs in its place */
    void *buffers[MOST_BUFFERS], *scratch[THREADS];
    const int64_t *params;
    int64_t tasks, bands;
    const Case *what; /* with function NULL: the streaming loop */
    bool past;        /* its stores go past the caches */
    int repeats;
} Job;

typedef float Line __attribute__((vector_size(64), aligned(64)));

static void store_past(Line *at, Line value) {
#ifdef __SSE2__
    __m128 quarter[4];
    memcpy(quarter, &value, sizeof value);
    for (int n = 0; n < 4; n++) _mm_stream_ps((float *)at + 4 * n, quarter[n]);
#else
    *at = value;
#endif
}

/* Reads and writes the case's buffers abreast, as shared/limits do: the least that any kernel must move. */
static void stream(const Job *job, int part) {
    Line sum = {0};
    size_t longest = 0;
    for (int b = 0; b < MOST_BUFFERS; b++)
        if (job->what->bytes[b] > longest) longest = job->what->bytes[b];
    long blocks = (long)((longest + 8191) / 8192);
    int last = 0;
    while (last + 1 < MOST_BUFFERS && job->what->bytes[last + 1]) last++;
    for (long k = blocks * part / THREADS; k < blocks * (part + 1) / THREADS; k++)
        for (int b = 0; b <= last; b++) {
            long lines = (long)(job->what->bytes[b] / 64), from = lines * k / blocks, to = lines * (k + 1) / blocks;
            Line *at = job->buffers[b];
            if (b < last)
                for (long i = from; i < to; i++) sum += at[i];
            else if (job->past)
                for (long i = from; i < to; i++) store_past(&at[i], sum);
            else
                for (long i = from; i < to; i++) at[i] = sum;
        }
    if (sum[0] == 42) puts("");
}

typedef struct Part {
    const Job *job;
    int part;
    pthread_barrier_t *barrier, *among; /* among: the threads alone */
    double taken;                       /* of processor time: what others take of the machine's time does not count */
} Part;

/* This thread's tasks; those over bands, whose scratch memory is shared, come before the rest. */
static void run_part(const Job *job, const Part *p) {
    if (job->bands) {
        job->function(job->buffers, job->params, job->bands * p->part / THREADS, job->bands * (p->part + 1) / THREADS,
                      job->scratch[0]);
        pthread_barrier_wait(p->among);
    }
    job->function(job->buffers, job->params, job->bands + job->tasks * p->part / THREADS,
                  job->bands + job->tasks * (p->part + 1) / THREADS, job->scratch[job->bands ? 0 : p->part]);
    if (job->bands) pthread_barrier_wait(p->among);
}

static void run_mark(const Job *job, int part) {
    int64_t share = job->params[0] / 64 / THREADS * 64;
    job->what->mark((const float *)job->buffers[0] + part * share, (float *)job->buffers[1] + part * share, share);
}

static void *work(void *argument) {
    Part *p = argument;
    const Job *job = p->job;
    pthread_barrier_wait(p->barrier);
    double start = own_time();
    for (int n = 0; n < job->repeats; n++)
        if (job->by_hand)
            run_mark(job, p->part);
        else if (job->function)
            run_part(job, p);
        else
            stream(job, p->part);
    p->taken = own_time() - start;
    pthread_barrier_wait(p->barrier);
    return NULL;
}

static double time_job(Job *job) {
    pthread_barrier_t barrier, among;
    pthread_barrier_init(&barrier, NULL, THREADS + 1);
    pthread_barrier_init(&among, NULL, THREADS);
    pthread_t threads[THREADS];
    Part parts[THREADS];
    for (int i = 0; i < THREADS; i++) {
        parts[i] = (Part){job, i, &barrier, &among, 0};
        pthread_create(&threads[i], NULL, work, &parts[i]);
    }
    double taken = 0;
    pthread_barrier_wait(&barrier);
    pthread_barrier_wait(&barrier);
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
        if (parts[i].taken > taken) taken = parts[i].taken;
    }
    pthread_barrier_destroy(&barrier);
    pthread_barrier_destroy(&among);
    return taken / job->repeats;
}

/* The shortest of many runs, the ways in turn: other load on the machine then meets all of them. */
static void best_times(Job *job, KernelFunction function, double *out_stream, double *out_kernel, double *out_mark) {
    *out_stream = *out_kernel = *out_mark = 1e9;
    for (int n = 0; n < 160; n++) {
        job->function = n % 4 ? NULL : function;
        job->past = n % 4 == 1;
        job->by_hand = n % 4 == 3;
        if (job->by_hand && (!job->what->mark || !marks_run())) continue;
        double t = time_job(job), *best = job->by_hand ? out_mark : n % 4 ? out_stream : out_kernel;
        if (t < *best) *best = t;
    }
}

static void must(Status status) {
    if (!status) return;
    fprintf(stderr, "%s\n", status_message(status));
    exit(5);
}

static void run_case(const LlvmPlugin *plugin, const Target *target, const Case *c) {
    Arena *arena = arena_create(0);
    Kernel *kernel = c->make(arena);
    must(kernel_verify(kernel));
    void *object;
    size_t size, total = 0;
    ObjectCode code;
    double start = own_time();
    must(plugin->compile(kernel, target, &object, &size));
    double compiled = own_time() - start;
    must(object_load(object, size, KERNEL_SYMBOL, &code));
    if (getenv("DUMP")) {
        char *text;
        must(plugin->listing(kernel, target, getenv("DUMP")[0] == 'i' ? LISTING_LLVM : LISTING_ASSEMBLY, &text));
        puts(text);
        free(text);
    }
    Job job = {.params = c->params,
               .what = c,
               .tasks = kernel_tasks(kernel, c->params),
               .bands = kernel_band_tasks(kernel, c->params)};
    for (int b = 0; b < MOST_BUFFERS && c->bytes[b]; b++) {
        job.buffers[b] = aligned_alloc(64, (c->bytes[b] + 63) / 64 * 64);
        memset(job.buffers[b], 0, c->bytes[b]);
        total += c->bytes[b];
    }
    for (int t = 0; t < THREADS; t++) job.scratch[t] = aligned_alloc(64, kernel_scratch_bytes(kernel, c->params) + 64);
    job.repeats = (int)(((size_t)32 << 20) / total) + 1;
    double limit, taken, mark;
    KernelFunction function;
    memcpy(&function, &code.function, sizeof function);
    best_times(&job, function, &limit, &taken, &mark);
    printf("%-40s %8.4f ms %6.1f GB/s  stream %8.4f ms  ratio %.2f", c->name, taken, (double)total / taken * 1e-6,
           limit, limit / taken);
    if (c->flops > 0) printf("  %.0f GFLOP/s", c->flops / taken * 1e-6);
    if (mark < 1e9) printf("  by hand %.4f ms, ratio %.2f", mark, mark / taken);
    printf("  compiled in %.1f ms to %zu bytes\n", compiled, size);
    for (int b = 0; b < MOST_BUFFERS; b++) free(job.buffers[b]);
    for (int t = 0; t < THREADS; t++) free(job.scratch[t]);
    object_unload(&code);
    free(object);
    arena_destroy(arena);
}

int main(int argc, char **argv) {
    Target target = {.device = DEVICE_CPU, .level = argc > 1 ? argv[1] : "host"};
    Arena *arena = arena_create(0);
    must(target_resolve(arena, &target));
    if (getenv("CACHE")) target.cache_bytes = (size_t)atol(getenv("CACHE"));
    const LlvmPlugin *plugin;
    must(llvm_plugin_get(&plugin));
    if (getenv("TILE")) sscanf(getenv("TILE"), "%dx%d", &tile_rows, &tile_lanes);
    if (getenv("COLUMNS_BLOCK")) sscanf(getenv("COLUMNS_BLOCK"), "%dx%d", &column_block, &column_band);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        if (argc < 3 || strstr(cases[i].name, argv[2])) run_case(plugin, &target, &cases[i]);
    arena_destroy(arena);
    return 0;
}
