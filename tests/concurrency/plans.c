/* SPDX-License-Identifier: Apache-2.0 */
/* One plan run from several threads at once, each with a shape of its own that changes from run to run, so that
 * remembered sizes are evicted and run memory changes hands; and plans made from several threads while others run, so
 * that they meet in the kernel cache. A plain program, for ThreadSanitizer; it checks every result. */
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "passes/passes.h"
#include "runtime/plan/plan.h"
#include "runtime/api/devices.h"
#include "runtime/run/run.h"

enum { THREADS = 4, RUNS = 60, SHAPES = 40, COLUMNS = 24, WIDTH = 16 };

/* softmax(tanh(x) w) stacked twice: two regions, a GEMM, a concat, planned memory and an expression of n. */
static const char text[] = "graph (x: f32[n, 24], w: f32[24, 16]) -> (y) {\n"
                           "  h: f32[n, 24] = tanh x\n"
                           "  a: f32[n, 16] = anchor matmul h, w\n"
                           "  m: f32[n, 1] = reduce_max a {axes = [1]}\n"
                           "  d: f32[n, 16] = sub a, m\n"
                           "  e: f32[n, 16] = exp d\n"
                           "  s: f32[n, 1] = reduce_sum e {axes = [1]}\n"
                           "  p: f32[n, 16] = div e, s\n"
                           "  y: f32[n*2, 16] = concat p, p {axis = 0}\n"
                           "}\n";

static atomic_int failures;

static void fail(const char *what) {
    fprintf(stderr, "FAIL  %s\n", what);
    atomic_fetch_add(&failures, 1);
}

static void require(Status status, const char *what) {
    if (!status) return;
    fprintf(stderr, "FAIL  %s: %s\n", what, status_message(status));
    exit(1);
}

typedef struct Loaded {
    Graph *graph;
    Policy policy;
    Device *device;
    Plan *plan;
    Memory memory;
    struct RunMemory *buffers;
    atomic_size_t peak;
    atomic_ullong runs;
} Loaded;

static void load(Loaded *l, int threads) {
    *l = (Loaded){.policy = policy_default()};
    l->policy.cache.enable = false;
    l->policy.threads = threads;
    l->policy.device = DEVICE_CPU;
    require(graph_parse(text, &l->graph), "parse");
    require(target_resolve(l->graph->arena, &l->policy.target), "target");
    for (const Pass *p = pipeline(); p->name; p++)
        if (strcmp(p->name, "lower")) require(p->run(l->graph, &l->policy), p->name);
    KernelCacheStats stats = {0};
    require(device_open(&l->policy, &l->device), "device");
    require(plan_create(l->graph, l->device, l->device, &stats, &l->plan), "plan");
    memory_init(&l->memory, 0);
    if (!(l->buffers = run_memory_create(l->device, l->device, &l->memory))) exit(1);
}

static void unload(Loaded *l) {
    run_memory_destroy(l->buffers);
    plan_destroy(l->plan);
    l->device->table->close(l->device);
    if (atomic_load(&l->memory.used)) fail("memory is not given back");
    graph_destroy(l->graph);
}

/* --- one run, checked -------------------------------------------------------------------------------------------- */
static float input_at(int64_t i, int salt) { return (float)((i * 37 + salt) % 23) / 16 - 0.5f; }

static void check(const float *y, int64_t n, int salt, const float *w) {
    for (int64_t row = 0; row < n; row++) {
        double a[WIDTH] = {0}, sum = 0;
        for (int c = 0; c < WIDTH; c++) {
            for (int k = 0; k < COLUMNS; k++)
                a[c] += tanh((double)input_at(row * COLUMNS + k, salt)) * (double)w[k * WIDTH + c];
            sum += exp(a[c]);
        }
        for (int c = 0; c < WIDTH; c++)
            for (int half = 0; half < 2; half++)
                if (!(fabs((double)y[(half * n + row) * WIDTH + c] - exp(a[c]) / sum) < 1e-5)) {
                    fail("a result is wrong");
                    return;
                }
    }
}

static void run_one(Loaded *l, int64_t n, int salt) {
    float *x = malloc(sizeof(float) * (size_t)(n * COLUMNS + 1)), w[COLUMNS * WIDTH];
    for (int64_t i = 0; i < n * COLUMNS; i++) x[i] = input_at(i, salt);
    for (int i = 0; i < COLUMNS * WIDTH; i++) w[i] = input_at(i, salt + 3);
    Item items[] = {{.kind = ITEM_TENSOR, .tensor = {DT_F32, 2, {n, COLUMNS}, x}},
                    {.kind = ITEM_TENSOR, .tensor = {DT_F32, 2, {COLUMNS, WIDTH}, w}}};
    RunOutput output = {0};
    Run run = {.memory = &l->memory,
               .run_number = atomic_fetch_add(&l->runs, 1),
               .buffers = l->buffers,
               .peak_arena = &l->peak};
    Status status = plan_run(l->plan, &run, NULL, (const Item *const[]){&items[0], &items[1]}, &output);
    if (status) {
        fail(status_message(status));
        status_free(status);
    } else {
        if (output.item.tensor.dims[0] != 2 * n) fail("a shape is wrong");
        check(output.item.tensor.data, n, salt, w);
        item_free(&l->memory, &output.item);
    }
    free(x);
}

/* --- threads --- */
typedef struct Work {
    Loaded *shared;
    int number;
} Work;

static void *use_shared(void *given) {
    const Work *work = given;
    unsigned seed = (unsigned)work->number + 1;
    for (int r = 0; r < RUNS; r++) run_one(work->shared, rand_r(&seed) % SHAPES, work->number);
    return NULL;
}

static void *use_own(void *given) {
    const Work *work = given;
    for (int r = 0; r < 4; r++) {
        Loaded own;
        load(&own, 1 + (work->number + r) % 3);
        for (int i = 0; i < 3; i++) run_one(&own, i * 7, work->number);
        unload(&own);
    }
    return NULL;
}

static void *use_either(void *given) { return ((Work *)given)->number % 2 ? use_own(given) : use_shared(given); }

static void run_threads(void *(*body)(void *), Loaded *shared) {
    pthread_t threads[THREADS];
    Work works[THREADS];
    for (int t = 0; t < THREADS; t++) {
        works[t] = (Work){shared, t};
        if (pthread_create(&threads[t], NULL, body, &works[t])) exit(1);
    }
    for (int t = 0; t < THREADS; t++) pthread_join(threads[t], NULL);
}

int main(void) {
    Loaded shared;
    run_threads(use_own, NULL); /* the kernel cache is empty */
    load(&shared, 2);
    run_threads(use_shared, &shared);
    run_threads(use_either, &shared);
    unload(&shared);
    kernel_cache_trim();
    printf("%d failures\n", atomic_load(&failures));
    return atomic_load(&failures) != 0;
}
