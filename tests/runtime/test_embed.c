/* SPDX-License-Identifier: Apache-2.0 */
/* What an embedder can hand in and ask for: ending runs, memory given back, threads and memory of its own. */
#include <criterion/criterion.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/plain.h"
#include "models.h"

static const char quiet[] = "{\"cache\": {\"enable\": false}}";

static void expect_code(OnnxfuseStatus status, OnnxfuseCode code, const char *part, const char *what) {
    cr_expect_eq(onnxfuse_status_code(status), code, "%s: %s", what, onnxfuse_status_message(status));
    cr_expect(strstr(onnxfuse_status_message(status), part), "%s: %s", what, onnxfuse_status_message(status));
    onnxfuse_status_free(status);
}

static OnnxfuseValue *square(int64_t n) {
    OnnxfuseValue *value = NULL;
    cr_assert(!onnxfuse_value_tensor(ONNXFUSE_FLOAT32, 2, (int64_t[]){n, n}, NULL, &value));
    for (int64_t i = 0; i < n * n; i++) ((float *)onnxfuse_value_data(value))[i] = (float)(i % 7) - 3;
    return value;
}

/* --- ending runs -------------------------------------------------------------------------------------------------- */
/* Many steps, one large step, loops of a host kernel. That nothing is begun after the call is counted where it can be:
 * in pieces of a loop by tests/base/test_pool_host.c, in steps by test_api.c. */
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
    OnnxfuseStatus status = onnxfuse_session_run_with(session, (const OnnxfuseValue *const *)in, &out, options);
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
    atomic_llong fail_at; /* that call alone fails; 0: none */
} Books;

static void *allocate(void *user, size_t bytes) {
    Books *books = user;
    if (atomic_fetch_add(&books->calls, 1) + 1 == atomic_load(&books->fail_at)) return NULL;
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

/* One of each kind of work that takes memory. # stands for 4096 numbers. */
static const struct {
    const char *name, *model, *inputs[2], *result;
} memory_rows[] = {
    {"a product, a host kernel, a region",
     "graph (x: f32[n, 64]) -> (y) {\nk = constant i64[] 0\nw = constant f32[64, 64] {#}\n"
     "a = onnx MatMul@21 x, w\nb = onnx CumSum@21 a, k\nc = onnx Exp@21 b\nr = constant i64[2] {0, 1}\n"
     "y = onnx ReduceSum@21 c, r {keepdims = 0}\n}\n",
     {"f32[500, 64] ones"},
     NULL},
    {"a convolution, pooled",
     "graph (x: f32[n, 4, h, h]) -> (y) {\nw = constant f32[4, 4, 16, 16] {#}\n"
     "a = onnx Conv@21 x, w\nb = onnx Relu@21 a\nc = onnx MaxPool@21 b {kernel_shape = [2, 2]}\n"
     "y = onnx GlobalAveragePool@21 c\n}\n",
     {"f32[1, 4, 24, 24] ones"},
     NULL},
    {"a loop with a branch",
     "graph (m: i64[], x: f32[n]) -> (y) {\ny, s = onnx Loop@21 m, _, x captures 0 graph \"body\" "
     "(i: i64[], c: bool[], v: f32[n]) -> (c, w, v) {\ntwo = constant i64[] 2\nr = onnx Mod@21 i, two\n"
     "odd = onnx Cast@21 r {to = 9}\nw = onnx If@21 odd, v captures 1 graph \"then\" (v: f32[n]) -> (t) "
     "{\nt = onnx Neg@21 v\n} graph \"else\" (v: f32[n]) -> (e) {\ne = onnx Exp@21 v\n}\n}\n}\n",
     {"i64[] 4", "f32[3] {0, 0, 0}"},
     NULL},
    {"sequences, indices, sizes that come with the data",
     "graph (x: f32[n]) -> (y) {\nz = constant f32[] 0.0\np = onnx Greater@21 x, z\nk = onnx NonZero@21 p\n"
     "q = onnx SequenceConstruct@21 k, k\nl = constant i64[] 1\ni = onnx SequenceAt@21 q, l\n"
     "j = onnx Squeeze@21 i\ng = onnx Gather@21 x, j\nu = onnx Unique@21 g {sorted = 1}\ny = onnx Identity@21 u\n}\n",
     {"f32[6] {3, -1, 2, 3, 0, 5}"},
     "f32[3] {2, 3, 5}"},
    {"a recurrence",
     "graph (x: f32[s, 1, 16]) -> (h) {\nw = constant f32[1, 256, 16] {#}\nr = constant f32[1, 64, 64] {#}\n"
     "rr = onnx Concat@21 r, r, r, r {axis = 1}\ny, h, c = onnx LSTM@21 x, w, rr {hidden_size = 64}\n}\n",
     {"f32[3, 1, 16] ones"},
     NULL},
};
enum { MEMORY_ROWS = sizeof memory_rows / sizeof *memory_rows };

/* The text with numbers for each #, small and not all the same. */
static char *with_numbers(const char *text) {
    char *made = NULL;
    size_t size;
    FILE *out = open_memstream(&made, &size);
    cr_assert(out);
    for (; *text; text++) {
        if (*text != '#')
            fputc(*text, out);
        else
            for (int i = 0; i < 4096; i++) {
                char number[32]; /* as in the C locale, whatever this program's is */
                plain_print(number, sizeof number, "%s%g", i ? ", " : "", (double)(i % 13 - 6) / 1024);
                fputs(number, out);
            }
    }
    fclose(out);
    return made;
}

static OnnxfuseValue *ones_or(const char *text) {
    static const char all[] = " ones";
    const char *at = strstr(text, all);
    if (!at) return value_from(text);
    int64_t dims[4];
    int rank = 0;
    for (const char *size = strchr(text, '[') + 1; size < at; size = strpbrk(size, ",]") + 1) {
        if (*size == ' ') size++;
        dims[rank++] = atoll(size);
    }
    OnnxfuseValue *value = NULL;
    if (onnxfuse_value_tensor(ONNXFUSE_FLOAT32, rank, dims, NULL, &value)) return NULL;
    for (int64_t i = 0; i < onnxfuse_value_count(value); i++) ((float *)onnxfuse_value_data(value))[i] = 1;
    return value;
}

static OnnxfuseStatus open_and_run(const void *bytes, size_t size, OnnxfuseValue *const *inputs,
                                   OnnxfuseValue **out_y) {
    OnnxfuseSession *session = NULL;
    OnnxfuseOptions options = {.policy_json = quiet, .threads = 1};
    OnnxfuseStatus status = onnxfuse_session_open_memory(bytes, size, NULL, &options, &session);
    if (!status) status = onnxfuse_session_run(session, (const OnnxfuseValue *const *)inputs, out_y);
    onnxfuse_session_close(session);
    return status;
}

/* The nth allocation alone fails, for each n until a run needs fewer: it ends with a status, or with the result of a run
 * in which none fails; and nothing is lost. */
static void fail_each(int row, Books *books) {
    size_t size;
    char *text = with_numbers(memory_rows[row].model);
    const char *name = memory_rows[row].name;
    void *bytes = model_bytes(text, &size);
    free(text);
    OnnxfuseValue *in[2] = {0}, *wanted = NULL, *y = NULL;
    for (int i = 0; i < 2 && memory_rows[row].inputs[i]; i++) in[i] = ones_or(memory_rows[row].inputs[i]);
    OnnxfuseStatus status = open_and_run(bytes, size, in, &wanted);
    cr_assert(!status, "%s: %s", name, onnxfuse_status_message(status));
    if (memory_rows[row].result) {
        OnnxfuseValue *expected = value_from(memory_rows[row].result);
        char *is = value_text(wanted), *was = value_text(expected);
        cr_expect_str_eq(is, was, "%s: %s", name, is);
        free(is);
        free(was);
        onnxfuse_value_free(expected);
    }
    onnxfuse_trim(NULL);
    long long blocks = atomic_load(&books->blocks), held = atomic_load(&books->bytes);
    int refused = 0;
    for (long long n = 1;; n++) {
        atomic_store(&books->calls, 0);
        atomic_store(&books->fail_at, n);
        status = open_and_run(bytes, size, in, &y);
        bool reached = atomic_load(&books->calls) >= n;
        atomic_store(&books->fail_at, 0);
        if (status) {
            cr_expect(reached, "%s: %s", name, onnxfuse_status_message(status));
            expect_code(status, ONNXFUSE_FAULT, "memory", name);
            cr_expect_null(y, "%s, call %lld", name, n);
            refused++;
        } else {
            cr_expect(onnxfuse_value_bytes(y) == onnxfuse_value_bytes(wanted) &&
                          memcmp(onnxfuse_value_data(y), onnxfuse_value_data(wanted), onnxfuse_value_bytes(y)) == 0,
                      "%s: another result after call %lld failed", name, n);
        }
        onnxfuse_value_free(y);
        y = NULL;
        onnxfuse_trim(NULL);
        cr_expect(atomic_load(&books->blocks) == blocks && atomic_load(&books->bytes) == held,
                  "%s, call %lld: %lld blocks of %lld bytes are lost", name, n, atomic_load(&books->blocks) - blocks,
                  atomic_load(&books->bytes) - held);
        if (!reached) break;
        cr_assert_lt(n, 10000, "%s: no end", name);
    }
    cr_expect_gt(refused, 5, "%s: %d calls are refused", name, refused);
    onnxfuse_value_free(wanted);
    for (int i = 0; i < 2; i++) onnxfuse_value_free(in[i]);
    free(bytes);
}

static Books memory_books;

static OnnxfuseAllocator use_books(void) {
    OnnxfuseAllocator allocator = {sizeof allocator, allocate, release, &memory_books};
    OnnxfuseStatus status = onnxfuse_set_allocator(&allocator);
    cr_assert(!status, "%s", onnxfuse_status_message(status));
    return allocator;
}

Test(embed, memory_from_the_embedder) {
    OnnxfuseAllocator allocator = use_books();
    OnnxfuseValue *value = value_from("f32[2] {1, 2}");
    cr_expect_gt(atomic_load(&memory_books.blocks), 0);
    expect_code(onnxfuse_set_allocator(NULL), ONNXFUSE_USAGE, "in use", "not while a value lives");
    onnxfuse_value_free(value);
    onnxfuse_trim(NULL);
    cr_expect(atomic_load(&memory_books.blocks) == 0 && atomic_load(&memory_books.bytes) == 0, "%lld blocks",
              atomic_load(&memory_books.blocks));
    cr_expect_null(onnxfuse_set_allocator(NULL));
    allocator.release = NULL;
    expect_code(onnxfuse_set_allocator(&allocator), ONNXFUSE_USAGE, "both", "half an allocator");
}

Test(embed, each_allocation_fails_once, .timeout = 300) {
    use_books();
    for (int i = 0; i < MEMORY_ROWS; i++) fail_each(i, &memory_books);
    onnxfuse_trim(NULL);
    cr_expect(atomic_load(&memory_books.blocks) == 0 && atomic_load(&memory_books.bytes) == 0, "%lld blocks",
              atomic_load(&memory_books.blocks));
    cr_expect_null(onnxfuse_set_allocator(NULL));
}

/* Each allocation of a run fails once: what iterations have made and what is carried between them is not lost. */
Test(embed, control_flow_gives_back_what_it_holds, .timeout = 300) {
    static const char *const models[] = {
        "graph (m: i64[], c: bool[], x: f32[2]) -> (y, s) {\n"
        "y, s = onnx Loop@21 m, c, x captures 0 graph \"body\" (i: i64[], c: bool[], v: f32[2]) -> (c, w, w) {\n"
        "w = onnx Add@21 v, v\n}\n}\n",
        "graph (m: f32[k], c: bool[], s: f32[2]) -> (y, z) {\n"
        "y, z = onnx Scan@21 s, m {num_scan_inputs = 1} captures 0 graph \"body\" (a: f32[2], b: f32[]) -> (c, d) {\n"
        "c = onnx Add@21 a, b\nd = onnx Identity@21 c\n}\n}\n"};
    static Books books;
    enum { TRIPS = 100 };
    OnnxfuseAllocator allocator = {sizeof allocator, allocate, release, &books};
    OnnxfuseStatus status = onnxfuse_set_allocator(&allocator);
    cr_assert(!status, "%s", onnxfuse_status_message(status));
    for (size_t m = 0; m < sizeof models / sizeof *models; m++) {
        OnnxfuseSession *session = must_open(models[m]);
        int64_t trips = TRIPS, refused = 0, calls = 0;
        static float numbers[TRIPS];
        bool go = true;
        OnnxfuseValue *in[3], *out[2];
        status = m ? onnxfuse_value_tensor(ONNXFUSE_FLOAT32, 1, &trips, numbers, &in[0])
                   : onnxfuse_value_tensor(ONNXFUSE_INT64, 0, NULL, &trips, &in[0]);
        if (!status) status = onnxfuse_value_tensor(ONNXFUSE_BOOL, 0, NULL, &go, &in[1]);
        if (!status) status = onnxfuse_value_tensor(ONNXFUSE_FLOAT32, 1, (int64_t[]){2}, numbers, &in[2]);
        cr_assert(!status, "%s", onnxfuse_status_message(status));
        for (int fail_at = 0; fail_at <= calls; fail_at++) {
            onnxfuse_trim(session);
            long long before = atomic_load(&books.blocks);
            out[0] = out[1] = NULL;
            atomic_store(&books.calls, 0);
            atomic_store(&books.fail_at, fail_at);
            status = onnxfuse_session_run(session, (const OnnxfuseValue *const *)in, out);
            if (!fail_at) calls = atomic_load(&books.calls);
            atomic_store(&books.fail_at, 0);
            refused += status != NULL;
            cr_expect(!status || onnxfuse_status_code(status) == ONNXFUSE_FAULT, "call %d: %s", fail_at,
                      onnxfuse_status_message(status));
            onnxfuse_status_free(status);
            onnxfuse_value_free(out[0]);
            onnxfuse_value_free(out[1]);
            onnxfuse_trim(session);
            if (fail_at > 1) /* the first run keeps what later ones use */
                cr_expect_leq(atomic_load(&books.blocks), before, "model %zu, call %d: %lld blocks are lost", m,
                              fail_at, atomic_load(&books.blocks) - before);
        }
        cr_expect_gt(refused, TRIPS);
        for (int i = 0; i < 3; i++) onnxfuse_value_free(in[i]);
        onnxfuse_session_close(session);
        onnxfuse_trim(NULL);
        cr_expect_eq(atomic_load(&books.blocks), 0, "model %zu: %lld blocks are lost", m, atomic_load(&books.blocks));
    }
    cr_expect_null(onnxfuse_set_allocator(NULL));
}
