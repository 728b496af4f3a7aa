/* What an embedder can hand in and ask for: ending runs, memory given back, threads and memory of its own. */
#include <criterion/criterion.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "models.h"

static const char quiet[] = "{\"cache\": {\"enable\": false}}";

static void expect_code(OnnxfuseStatus status, OnnxfuseCode code, const char *part, const char *what) {
    cr_expect_eq(onnxfuse_status_code(status), code, "%s: %s", what, onnxfuse_status_message(status));
    cr_expect(strstr(onnxfuse_status_message(status), part), "%s: %s", what, onnxfuse_status_message(status));
    onnxfuse_status_free(status);
}

static double now_s(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static OnnxfuseValue *square(int64_t n) {
    OnnxfuseValue *value = NULL;
    cr_assert(!onnxfuse_value_tensor(ONNXFUSE_FLOAT32, 2, (int64_t[]){n, n}, NULL, &value));
    for (int64_t i = 0; i < n * n; i++) ((float *)onnxfuse_value_data(value))[i] = (float)(i % 7) - 3;
    return value;
}

/* --- ending runs -------------------------------------------------------------------------------------------------- */
/* Runs that take far longer than the test waits: many steps, one large step, loops of a host kernel. */
typedef struct Long {
    const char *name, *model;
    const char *inputs[2];
    const char *few[2]; /* inputs of a short run, and its output */
    const char *result;
    int64_t size; /* not 0: the input is a square matrix of that size */
} Long;

static const Long long_runs[] = {
    {"many iterations",
     "graph (m: i64[], x: f32[2]) -> (y) {\ny = onnx Loop@21 m, _, x captures 0 graph \"body\" (i: i64[], c: bool[], "
     "v: f32[2]) -> (c, w) {\nw = onnx Neg@21 v\n}\n}\n",
     {"i64[] 1000000000000", "f32[2] {1, 2}"},
     {"i64[] 3", "f32[2] {1, 2}"},
     "f32[2] {-1, -2}",
     0},
    {"one product",
     "graph (x: f32[n, n]) -> (y) {\ny = onnx MatMul@21 x, x\n}\n",
     {0},
     {"f32[1, 1] {3}"},
     "f32[1, 1] {9}",
     6000},
    {"sorting",
     "graph (x: f32[n, n]) -> (y) {\nk = constant i64[1] {1}\ny, z = onnx TopK@21 x, k\n}\n",
     {0},
     {"f32[1, 1] {3}"},
     "f32[1, 1] {3}",
     9000},
};
enum { LONG_RUNS = sizeof long_runs / sizeof *long_runs };

static void *cancel_soon(void *cancel) {
    usleep(30000);
    onnxfuse_cancel(cancel);
    return NULL;
}

static void expect_short_run(const Long *row, OnnxfuseSession *session) {
    char *wrong = run_and_compare(session, row->few, &row->result);
    cr_expect_null(wrong, "%s, a short run after it: %s", row->name, wrong);
    free(wrong);
}

static void end_run(const Long *row, OnnxfuseSession *session, const OnnxfuseRunOptions *options, OnnxfuseCode code) {
    OnnxfuseValue *in[2] = {0}, *out = NULL;
    for (int i = 0; i < 2 && row->inputs[i]; i++) in[i] = value_from(row->inputs[i]);
    if (row->size) in[0] = square(row->size);
    double start = now_s();
    OnnxfuseStatus status = onnxfuse_session_run_with(session, (const OnnxfuseValue *const *)in, &out, options);
    cr_expect_lt(now_s() - start, 20, "%s: took %.2f s", row->name, now_s() - start);
    expect_code(status, code, code == ONNXFUSE_CANCELLED ? "cancelled" : "did not end within", row->name);
    cr_expect_null(out);
    onnxfuse_value_free(in[0]);
    onnxfuse_value_free(in[1]);
}

static void end_runs(const Long *row, const OnnxfuseOptions *options) {
    OnnxfuseSession *session = NULL;
    OnnxfuseStatus status = open_text(row->model, options, &session);
    cr_assert(!status, "%s: %s", row->name, onnxfuse_status_message(status));
    OnnxfuseRunOptions run = {.size = sizeof run};
    cr_assert(!onnxfuse_cancel_create(&run.cancel));
    expect_short_run(row, session);
    bool instant = row->size && row->size > 8000;
    if (!instant) {
        pthread_t thread;
        cr_assert_eq(pthread_create(&thread, NULL, cancel_soon, run.cancel), 0);
        end_run(row, session, &run, ONNXFUSE_CANCELLED);
        pthread_join(thread, NULL);
        expect_short_run(row, session);
    } else {
        onnxfuse_cancel(run.cancel);
    }
    end_run(row, session, &run, ONNXFUSE_CANCELLED); /* ended before it began */
    onnxfuse_cancel_reset(run.cancel);
    run.timeout_ms = instant ? 0.001 : 30;
    end_run(row, session, &run, ONNXFUSE_DEADLINE);
    expect_short_run(row, session);
    run.timeout_ms = 1e9;
    OnnxfuseValue *in[] = {value_from(row->few[0]), row->few[1] ? value_from(row->few[1]) : NULL}, *out = NULL;
    status = onnxfuse_session_run_with(session, (const OnnxfuseValue *const *)in, &out, &run);
    cr_expect_null(status, "%s: neither cancelled nor late: %s", row->name, onnxfuse_status_message(status));
    OnnxfuseValue *expected = value_from(row->result);
    char *text = value_text(out), *wanted = value_text(expected);
    cr_expect_str_eq(text, wanted);
    free(text);
    free(wanted);
    onnxfuse_value_free(expected);
    for (int i = 0; i < 2; i++) onnxfuse_value_free(in[i]);
    onnxfuse_value_free(out);
    onnxfuse_cancel_free(run.cancel);
    onnxfuse_session_close(session);
}

Test(embed, runs_end_when_they_are_told_to, .timeout = 300) {
    for (int i = 0; i < LONG_RUNS; i++)
        for (int threads = 0; threads < 2; threads++)
            end_runs(&long_runs[i], &(OnnxfuseOptions){.policy_json = quiet, .threads = threads});
}

Test(embed, wrong_options_of_a_run) {
    OnnxfuseSession *session = must_open("graph (x: f32[n]) -> (y) {\ny = onnx Neg@21 x\n}\n");
    OnnxfuseValue *x = value_from("f32[1] {1}"), *out = NULL;
    const OnnxfuseValue *const in[] = {x};
    expect_code(onnxfuse_session_run_with(session, in, &out, &(OnnxfuseRunOptions){.timeout_ms = -1}), ONNXFUSE_USAGE,
                "timeout", "a time that is over");
    expect_code(onnxfuse_session_run_with(session, in, &out, &(OnnxfuseRunOptions){.size = 4}), ONNXFUSE_USAGE,
                "another onnxfuse.h", "a structure that is not known");
    cr_expect_null(onnxfuse_session_run_with(session, in, &out, NULL));
    onnxfuse_value_free(out);
    onnxfuse_value_free(x);
    onnxfuse_session_close(session);
    expect_code(open_text("graph (x: f32[n]) -> (y) {\ny = onnx Neg@21 x\n}\n",
                          &(OnnxfuseOptions){.size = sizeof(OnnxfuseOptions) + 8, .policy_json = quiet}, &session),
                ONNXFUSE_USAGE, "OnnxfuseOptions", "options of a newer version");
}

/* --- memory given back -------------------------------------------------------------------------------------------- */
static int64_t resident_bytes(void) {
    long pages = 0, all;
    FILE *file = fopen("/proc/self/statm", "r");
    cr_assert(file && fscanf(file, "%ld %ld", &all, &pages) == 2);
    fclose(file);
    return (int64_t)pages * sysconf(_SC_PAGESIZE);
}

static void run_of(OnnxfuseSession *session, int64_t n) {
    OnnxfuseValue *x = square(n), *out = NULL;
    OnnxfuseStatus status = onnxfuse_session_run(session, (const OnnxfuseValue *const[]){x}, &out);
    cr_assert(!status, "%s", onnxfuse_status_message(status));
    onnxfuse_value_free(out);
    onnxfuse_value_free(x);
}

Test(embed, memory_of_a_huge_request_is_given_back) {
    OnnxfuseSession *session = must_open("graph (x: f32[n, m]) -> (y) {\nk = constant i64[] 0\n"
                                         "a = onnx CumSum@21 x, k\nb = onnx CumSum@21 a, k\nr = constant i64[1] {0}\n"
                                         "y = onnx ReduceMax@21 b, r\n}\n");
    run_of(session, 8);
    onnxfuse_trim(session);
    OnnxfuseStats stats;
    int64_t before = resident_bytes(), arena = (int64_t)3000 * 3000 * 4;
    run_of(session, 3000);
    int64_t kept = resident_bytes();
    onnxfuse_session_stats(session, &stats, sizeof stats);
    cr_expect_geq(stats.memory_bytes, arena);
    cr_expect_geq(stats.memory_peak_bytes, stats.memory_bytes);
    cr_expect_geq(stats.arena_bytes, arena);
    cr_expect_eq(stats.runs, 2);
    cr_expect_geq(stats.threads, 1);
    onnxfuse_trim(session);
    int64_t after = resident_bytes();
#if !defined __SANITIZE_ADDRESS__ /* which keeps what is freed */
    cr_expect_geq(kept - before, arena, "%lld kB more", (long long)(kept - before) / 1024);
    cr_expect_lt(after - before, arena / 4, "%lld kB more", (long long)(after - before) / 1024);
#else
    (void)kept, (void)after, (void)before;
#endif
    onnxfuse_session_stats(session, &stats, sizeof stats);
    cr_expect_eq(stats.memory_bytes, 0);
    run_of(session, 8);
    onnxfuse_trim(NULL);
    onnxfuse_session_close(session);
}

Test(embed, a_program_with_fewer_statistics) {
    OnnxfuseSession *session = must_open("graph (x: f32[n]) -> (y) {\ny = onnx Neg@21 x\n}\n");
    OnnxfuseStats stats;
    memset(&stats, 77, sizeof stats);
    onnxfuse_session_stats(session, &stats, offsetof(OnnxfuseStats, threads));
    cr_expect_eq(stats.nodes, 1);
    cr_expect_eq(*(char *)&stats.threads, 77, "nothing is written behind what the program has");
    struct {
        OnnxfuseStats known;
        int64_t newer;
    } more = {.newer = 5};
    onnxfuse_session_stats(session, &more.known, sizeof more);
    cr_expect(more.newer == 0 && more.known.nodes == 1);
    onnxfuse_session_close(session);
}

/* --- own threads -------------------------------------------------------------------------------------------------- */
typedef void (*Task)(void *context, int index);

typedef struct Threads {
    atomic_int loops, tasks;
    int most; /* tasks in a loop */
} Threads;

typedef struct Worker {
    Task task;
    void *context;
    int index;
} Worker;

static void *run_worker(void *argument) {
    const Worker *worker = argument;
    worker->task(worker->context, worker->index);
    return NULL;
}

static void parallel_for(void *user, int count, Task task, void *context) {
    Threads *threads = user;
    pthread_t handles[8];
    Worker workers[8];
    atomic_fetch_add(&threads->loops, 1);
    atomic_fetch_add(&threads->tasks, count);
    if (count > threads->most) threads->most = count;
    for (int i = 0; i < count; i++) {
        workers[i] = (Worker){task, context, i};
        cr_assert_eq(pthread_create(&handles[i], NULL, run_worker, &workers[i]), 0);
    }
    for (int i = 0; i < count; i++) pthread_join(handles[i], NULL);
}

static int threads_of_this_process(void) {
    int count = 0;
    char line[256];
    FILE *file = fopen("/proc/self/status", "r");
    while (file && fgets(line, sizeof line, file)) sscanf(line, "Threads: %d", &count);
    if (file) fclose(file);
    return count;
}

Test(embed, loops_run_on_the_embedders_threads) {
    Threads threads = {0};
    OnnxfuseThreadPool pool = {sizeof pool, 3, parallel_for, &threads};
    OnnxfuseOptions options = {.size = sizeof options, .policy_json = quiet, .thread_pool = &pool, .threads = 64};
    OnnxfuseSession *session = NULL, *own = must_open(long_runs[1].model);
    int before = threads_of_this_process();
    OnnxfuseStatus status = open_text(long_runs[1].model, &options, &session);
    cr_assert(!status, "%s", onnxfuse_status_message(status));
    pool = (OnnxfuseThreadPool){0}; /* was copied */
    OnnxfuseValue *x = square(300), *out[2] = {0};
    cr_assert_null(onnxfuse_session_run(session, (const OnnxfuseValue *const[]){x}, &out[0]));
    cr_assert_null(onnxfuse_session_run(own, (const OnnxfuseValue *const[]){x}, &out[1]));
    cr_expect(memcmp(onnxfuse_value_data(out[0]), onnxfuse_value_data(out[1]), onnxfuse_value_bytes(out[0])) == 0);
    cr_expect_gt(atomic_load(&threads.loops), 0);
    cr_expect(threads.most > 1 && threads.most <= 3, "%d tasks", threads.most);
    cr_expect_eq(threads_of_this_process(), before);
    OnnxfuseStats stats;
    onnxfuse_session_stats(session, &stats, sizeof stats);
    cr_expect_eq(stats.threads, 3);
    for (int i = 0; i < 2; i++) onnxfuse_value_free(out[i]);
    onnxfuse_value_free(x);
    onnxfuse_session_close(session);
    onnxfuse_session_close(own);
    static const int wrong[] = {0, -1, 1025};
    for (int i = 0; i < 3; i++) {
        pool = (OnnxfuseThreadPool){sizeof pool, wrong[i], parallel_for, NULL};
        expect_code(open_text(long_runs[1].model, &options, &session), ONNXFUSE_USAGE, "thread pool", "wrong threads");
    }
    pool = (OnnxfuseThreadPool){sizeof pool, 2, NULL, NULL};
    expect_code(open_text(long_runs[1].model, &options, &session), ONNXFUSE_USAGE, "parallel_for", "no function");
}

/* --- own memory --------------------------------------------------------------------------------------------------- */
typedef struct Books {
    atomic_llong blocks, bytes, calls;
    atomic_int fail_at; /* that call and all after it fail; 0: none */
} Books;

static void *allocate(void *user, size_t bytes) {
    Books *books = user;
    long long call = atomic_fetch_add(&books->calls, 1) + 1;
    int fail_at = atomic_load(&books->fail_at);
    if (fail_at && call >= fail_at) return NULL;
    void *memory = aligned_alloc(64, (bytes + 63) / 64 * 64);
    if (!memory) return NULL;
    memset(memory, 0xA5, bytes);
    atomic_fetch_add(&books->blocks, 1);
    atomic_fetch_add(&books->bytes, (long long)bytes);
    return memory;
}

static void release(void *user, void *memory, size_t bytes) {
    Books *books = user;
    atomic_fetch_sub(&books->blocks, 1);
    atomic_fetch_sub(&books->bytes, (long long)bytes);
    free(memory);
}

static const char own_memory_model[] =
    "opset 21\ngraph (x: f32[n, 64]) -> (y) {\nk = constant i64[] 0\nw = constant f32[64, 64] zeros\n"
    "a = onnx MatMul@21 x, w\nb = onnx CumSum@21 a, k\ny = onnx Neg@21 b\n}\n";

static OnnxfuseStatus open_and_run(const void *bytes, size_t size) {
    OnnxfuseSession *session = NULL;
    OnnxfuseValue *x = NULL, *y = NULL;
    OnnxfuseOptions options = {.policy_json = quiet, .threads = 2};
    OnnxfuseStatus status = onnxfuse_session_open_memory(bytes, size, NULL, &options, &session);
    if (!status) status = onnxfuse_value_tensor(ONNXFUSE_FLOAT32, 2, (int64_t[]){500, 64}, NULL, &x);
    if (!status) status = onnxfuse_session_run(session, (const OnnxfuseValue *const[]){x}, &y);
    onnxfuse_value_free(x);
    onnxfuse_value_free(y);
    onnxfuse_session_close(session);
    return status;
}

/* Each allocation fails once: a clear status, and nothing is lost. */
Test(embed, memory_from_the_embedder, .timeout = 120) {
    static Books books;
    char *text = strdup(own_memory_model), *zeros = strstr(text, "zeros");
    char *model = calloc(1, 64 * 64 * 3 + 1000), *at = model;
    at += sprintf(at, "%.*s{0", (int)(zeros - text), text);
    for (int i = 1; i < 64 * 64; i++) at += sprintf(at, ", 0");
    strcat(at, "}");
    strcat(at, zeros + 5);
    size_t size;
    void *bytes = model_bytes(model, &size);
    free(text);
    free(model);
    OnnxfuseAllocator allocator = {sizeof allocator, allocate, release, &books};
    OnnxfuseStatus status = onnxfuse_set_allocator(&allocator);
    cr_assert(!status, "%s", onnxfuse_status_message(status));
    status = open_and_run(bytes, size);
    cr_assert(!status, "%s", onnxfuse_status_message(status));
    int64_t calls = atomic_load(&books.calls);
    cr_expect_gt(calls, 5);
    OnnxfuseValue *value = value_from("f32[2] {1, 2}");
    expect_code(onnxfuse_set_allocator(NULL), ONNXFUSE_USAGE, "in use", "not while a value lives");
    onnxfuse_value_free(value);
    onnxfuse_trim(NULL);
    cr_expect(atomic_load(&books.blocks) == 0 && atomic_load(&books.bytes) == 0, "%lld blocks are not given back",
              atomic_load(&books.blocks));
    int refused = 0;
    for (int fail_at = 1; fail_at <= calls; fail_at++) {
        atomic_store(&books.calls, 0);
        atomic_store(&books.fail_at, fail_at);
        status = open_and_run(bytes, size);
        refused += status != NULL;
        cr_expect(!status || onnxfuse_status_code(status) == ONNXFUSE_FAULT, "call %d: %s", fail_at,
                  onnxfuse_status_message(status));
        onnxfuse_status_free(status);
        onnxfuse_trim(NULL);
        cr_expect_eq(atomic_load(&books.blocks), 0, "call %d: %lld blocks are lost", fail_at,
                     atomic_load(&books.blocks));
    }
    cr_expect_gt(refused, calls / 2);
    free(bytes);
    cr_expect_null(onnxfuse_set_allocator(NULL));
    allocator.release = NULL;
    expect_code(onnxfuse_set_allocator(&allocator), ONNXFUSE_USAGE, "both", "half an allocator");
}
