/* SPDX-License-Identifier: Apache-2.0 */
/* Sessions of models of all kinds, shared by eight threads of which each does something at random, again and again: runs, runs that are
 * cancelled or out of time, opening, closing, compiling, trimming, statistics. Whatever happens beside it, a run gives the bits that it
 * gives alone, or says why not. A plain program, so that ThreadSanitizer can watch it. An argument says for how many seconds, a second one
 * the seed. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "models.h"

enum { THREADS = 8, ACTIONS = 60, SIZES = 4, COLUMNS = 8 };

static const char *const texts[] = {
    "graph (x: f32[n, 8]) -> (y) {\nr = onnx Relu@21 x\ns = onnx Softmax@21 r {axis = -1}\ny = onnx Exp@21 s\n}\n",
    "graph (x: f32[n, 8]) -> (y) {\nt = onnx Transpose@21 x {perm = [1, 0]}\np = onnx MatMul@21 x, t\n"
    "s = onnx Softmax@21 p {axis = -1}\ny = onnx MatMul@21 s, x\n}\n",
    "graph (x: f32[n, 8]) -> (y) {\nt = constant i64[] 5\nlimit = constant f32[] 4\n"
    "y = onnx Loop@21 t, _, x, limit captures 1 graph \"body\" (i: i64[], k: bool[], v: f32[n, 8], limit: f32[]) -> "
    "(k, u) {\n"
    "m = onnx ReduceMax@21 v {keepdims = 0}\nc = onnx Less@21 m, limit\n"
    "u = onnx If@21 c, v captures 1 graph \"then\" (v: f32[n, 8]) -> (a) {\na = onnx Add@21 v, v\n"
    "} graph \"else\" (v: f32[n, 8]) -> (b) {\nb = onnx Tanh@21 v\n}\n}\n}\n",
    "graph (x: f32[n, 8]) -> (y) {\nzero = constant f32[8] {0, 0, 0, 0, 0, 0, 0, 0}\n"
    "l, z = onnx Scan@21 zero, x {num_scan_inputs = 1} captures 0 graph \"body\" (a: f32[8], row: f32[8]) -> (c, d) {\n"
    "c = onnx Add@21 a, row\nd = onnx Tanh@21 c\n}\ny = onnx Add@21 z, l\n}\n",
    "graph (x: f32[n, 8]) -> (y) {\none = constant i64[] 1\nq = onnx SplitToSequence@21 x, one {axis = 0}\n"
    "r = onnx SequenceMap@21 q captures 0 graph \"body\" (a: f32[1, 8]) -> (c) {\nc = onnx Neg@21 a\n}\n"
    "y = onnx ConcatFromSequence@21 r {axis = 0}\n}\n",
};
enum { MODELS = sizeof texts / sizeof *texts };

typedef struct Shared {
    pthread_rwlock_t lock; /* held to use the session; alone, to put another one in its place */
    OnnxfuseSession *session;
    void *bytes;
    size_t size;
    OnnxfuseValue *wanted[SIZES];
} Shared;

static Shared shared[MODELS];
static OnnxfuseValue *inputs[SIZES];
static OnnxfuseCancel *cancel;
static atomic_int failures, good, stopped;
static double end; /* 0: each thread does ACTIONS */

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void fail(int model, const char *what, const char *why) {
    fprintf(stderr, "FAIL  model %d, %s: %s\n", model, what, why);
    atomic_fetch_add(&failures, 1);
}

/* Whether it succeeds; may_stop: or ends early. */
static bool succeeds(int model, const char *what, OnnxfuseStatus status, bool may_stop) {
    if (!status) return true;
    OnnxfuseCode code = onnxfuse_status_code(status);
    if (may_stop && (code == ONNXFUSE_CANCELLED || code == ONNXFUSE_DEADLINE))
        atomic_fetch_add(&stopped, 1);
    else
        fail(model, what, onnxfuse_status_message(status));
    onnxfuse_status_free(status);
    return false;
}

static void run(int model, OnnxfuseSession *session, int size, const OnnxfuseRunOptions *options) {
    OnnxfuseValue *y = NULL;
    const OnnxfuseValue *wanted = shared[model].wanted[size];
    if (!succeeds(model, "run",
                  onnxfuse_session_run_with(session, (const OnnxfuseValue *const[]){inputs[size]}, &y, options),
                  options))
        return;
    if (onnxfuse_value_bytes(y) != onnxfuse_value_bytes(wanted) ||
        memcmp(onnxfuse_value_data(y), onnxfuse_value_data(wanted), onnxfuse_value_bytes(y)))
        fail(model, "run", "other bits than alone");
    atomic_fetch_add(&good, 1);
    onnxfuse_value_free(y);
}

static OnnxfuseSession *open_bytes(int model, const void *bytes, size_t size, int threads) {
    OnnxfuseSession *session = NULL;
    OnnxfuseOptions options = {.size = sizeof options, .device = "cpu", .threads = threads};
    succeeds(model, "open", onnxfuse_session_open_memory(bytes, size, NULL, &options, &session), false);
    return session;
}

static unsigned below(uint64_t *state, unsigned count) {
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (unsigned)(*state >> 33) % count;
}

static void act(uint64_t *state) {
    int model = (int)below(state, MODELS), size = (int)below(state, SIZES), kind = (int)below(state, 20);
    Shared *s = &shared[model];
    OnnxfuseRunOptions options = {.size = sizeof options, .cancel = cancel};
    void *bytes = NULL;
    size_t count = 0;
    if (kind == 0) { /* another session in the place of the shared one */
        OnnxfuseSession *session = open_bytes(model, s->bytes, s->size, 1 + (int)below(state, 3)), *old = session;
        if (!session) return;
        pthread_rwlock_wrlock(&s->lock);
        old = s->session;
        s->session = session;
        pthread_rwlock_unlock(&s->lock);
        onnxfuse_session_close(old);
    } else if (kind == 1) { /* one of its own */
        OnnxfuseSession *session = open_bytes(model, s->bytes, s->size, 1 + (int)below(state, 3));
        for (int i = 0; session && i < SIZES; i++) run(model, session, i, NULL);
        onnxfuse_session_close(session);
    } else if (kind == 2) {
        OnnxfuseOptions compiled = {.size = sizeof compiled, .device = "cpu"};
        if (!succeeds(model, "compile", onnxfuse_compile_memory(s->bytes, s->size, NULL, &compiled, &bytes, &count),
                      false))
            return;
        OnnxfuseSession *session = open_bytes(model, bytes, count, 1);
        if (session) run(model, session, size, NULL);
        onnxfuse_session_close(session);
        onnxfuse_free(bytes);
    } else if (kind == 3) {
        onnxfuse_trim(NULL);
    } else if (kind == 4) {
        onnxfuse_cancel(cancel);
        onnxfuse_cancel_reset(cancel);
    } else {
        pthread_rwlock_rdlock(&s->lock);
        OnnxfuseStats stats;
        if (kind == 5) onnxfuse_trim(s->session);
        if (kind == 6) onnxfuse_session_stats(s->session, &stats, sizeof stats);
        if (kind == 7) options.timeout_ms = 0.001 * (double)below(state, 200);
        run(model, s->session, size, kind < 12 ? &options : NULL);
        pthread_rwlock_unlock(&s->lock);
    }
}

static void *work(void *seed) {
    uint64_t state = *(uint64_t *)seed;
    for (int i = 0; end ? now() < end && !atomic_load(&failures) : i < ACTIONS; i++) act(&state);
    return NULL;
}

static void prepare(void) {
    for (int n = 0; n < SIZES; n++) {
        static float numbers[SIZES][(1 + SIZES * SIZES) * COLUMNS]; /* which values borrow */
        float *x = numbers[n];
        int rows = 1 + n * n;
        for (int i = 0; i < rows * COLUMNS; i++) x[i] = (float)(i * 7 % 23) / 16 - 0.5f;
        succeeds(-1, "input", onnxfuse_value_tensor(ONNXFUSE_FLOAT32, 2, (int64_t[]){rows, COLUMNS}, x, &inputs[n]),
                 false);
    }
    for (int m = 0; m < MODELS; m++) {
        Shared *s = &shared[m];
        pthread_rwlock_init(&s->lock, NULL);
        s->bytes = model_bytes(texts[m], &s->size);
        if (!(s->session = open_bytes(m, s->bytes, s->size, 2))) exit(1);
        for (int n = 0; n < SIZES; n++)
            if (!succeeds(m, "alone",
                          onnxfuse_session_run(s->session, (const OnnxfuseValue *const[]){inputs[n]}, &s->wanted[n]),
                          false))
                exit(1);
    }
    succeeds(-1, "cancel", onnxfuse_cancel_create(&cancel), false);
}

static void tidy_up(void) {
    for (int m = 0; m < MODELS; m++) {
        onnxfuse_session_close(shared[m].session);
        free(shared[m].bytes);
        for (int n = 0; n < SIZES; n++) onnxfuse_value_free(shared[m].wanted[n]);
        pthread_rwlock_destroy(&shared[m].lock);
    }
    for (int n = 0; n < SIZES; n++) onnxfuse_value_free(inputs[n]);
    onnxfuse_cancel_free(cancel);
}

int main(int count, char **arguments) {
    uint64_t seed = count > 2 ? strtoull(arguments[2], NULL, 10) : (uint64_t)time(NULL), seeds[THREADS];
    pthread_t threads[THREADS];
    char cache[] = "/tmp/onnxfuse-storm-XXXXXX", remove[64];
    if (!mkdtemp(cache)) return 1;
    setenv("XDG_CACHE_HOME", cache, 1);
    printf("seed %llu\n", (unsigned long long)seed);
    prepare();
    if (count > 1) end = now() + atof(arguments[1]);
    for (int t = 0; t < THREADS; t++) {
        seeds[t] = (seed + (uint64_t)t) * 0x9e3779b97f4a7c15u;
        if (pthread_create(&threads[t], NULL, work, &seeds[t])) return 1;
    }
    for (int t = 0; t < THREADS; t++) pthread_join(threads[t], NULL);
    tidy_up();
    snprintf(remove, sizeof remove, "rm -rf '%s'", cache);
    if (system(remove)) fail(-1, cache, "cannot be removed");
    printf("%d runs, %d more stopped, %d failures\n", atomic_load(&good), atomic_load(&stopped),
           atomic_load(&failures));
    return atomic_load(&failures) ? 1 : 0;
}
