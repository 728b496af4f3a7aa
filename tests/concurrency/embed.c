/* SPDX-License-Identifier: Apache-2.0 */
/* What embedders may do while others run: cancel, let time run out, ask for statistics, trim; on the library's threads
 * and on the embedder's. A plain program, so that ThreadSanitizer can watch it. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "onnxfuse.h"

enum { THREADS = 4, RUNS = 150, WIDTH = 16, TASKS = 3 };

static OnnxfuseSession *session;
static OnnxfuseCancel *cancel;
static atomic_int failures, ended[8], running;

typedef void (*Task)(void *context, int index);

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
    pthread_t handles[TASKS];
    Worker workers[TASKS];
    (void)user;
    for (int i = 1; i < count; i++) {
        workers[i] = (Worker){task, context, i};
        if (pthread_create(&handles[i], NULL, run_worker, &workers[i])) exit(1);
    }
    task(context, 0);
    for (int i = 1; i < count; i++) pthread_join(handles[i], NULL);
}

static void fail(const char *what) {
    fprintf(stderr, "FAIL  %s\n", what);
    atomic_fetch_add(&failures, 1);
}

static void run_one(int64_t batch, double timeout_ms) {
    OnnxfuseValue *input = NULL, *output = NULL;
    OnnxfuseRunOptions options = {.size = sizeof options, .cancel = cancel, .timeout_ms = timeout_ms};
    if (onnxfuse_value_tensor(ONNXFUSE_FLOAT32, 2, (int64_t[]){batch, WIDTH}, NULL, &input)) exit(1);
    OnnxfuseStatus status =
        onnxfuse_session_run_with(session, (const OnnxfuseValue *const[]){input}, &output, &options);
    OnnxfuseCode code = onnxfuse_status_code(status);
    atomic_fetch_add(&ended[code], 1);
    if (code && code != ONNXFUSE_CANCELLED && code != ONNXFUSE_DEADLINE) fail(onnxfuse_status_message(status));
    if (!code && onnxfuse_value_dims(output)[0] != batch) fail("an output has another shape");
    if (!code != (output != NULL)) fail("an output that was not made");
    onnxfuse_status_free(status);
    onnxfuse_value_free(output);
    onnxfuse_value_free(input);
}

static void *serve(void *number) {
    for (int r = 0; r < RUNS; r++) run_one(1 + (r * 37 + *(int *)number) % 3000, r % 3 ? 0 : 0.05);
    atomic_fetch_sub(&running, 1);
    return NULL;
}

static void *disturb(void *unused) {
    (void)unused;
    while (atomic_load(&running)) {
        OnnxfuseStats stats;
        onnxfuse_cancel(cancel);
        onnxfuse_session_stats(session, &stats, sizeof stats);
        if (stats.memory_bytes < 0 || stats.memory_peak_bytes < stats.memory_bytes) fail("statistics");
        usleep(200);
        onnxfuse_cancel_reset(cancel);
        onnxfuse_trim(session);
        usleep(1000);
    }
    return NULL;
}

static void run_on(const OnnxfuseThreadPool *pool) {
    OnnxfuseOptions options = {.size = sizeof options, .device = "cpu", .threads = TASKS, .thread_pool = pool};
    if (onnxfuse_session_open("tests/models/classifier/model.onnx", &options, &session) ||
        onnxfuse_cancel_create(&cancel))
        exit(1);
    pthread_t threads[THREADS + 1];
    int numbers[THREADS];
    atomic_store(&running, THREADS);
    for (int t = 0; t < THREADS; t++) {
        numbers[t] = t;
        if (pthread_create(&threads[t], NULL, serve, &numbers[t])) exit(1);
    }
    if (pthread_create(&threads[THREADS], NULL, disturb, NULL)) exit(1);
    for (int t = 0; t <= THREADS; t++) pthread_join(threads[t], NULL);
    onnxfuse_cancel_reset(cancel);
    int before = atomic_load(&ended[ONNXFUSE_OK]);
    run_one(64, 0);
    if (atomic_load(&ended[ONNXFUSE_OK]) != before + 1) fail("a run after all");
    onnxfuse_cancel_free(cancel);
    onnxfuse_session_close(session);
}

int main(void) {
    run_on(NULL);
    run_on(&(OnnxfuseThreadPool){sizeof(OnnxfuseThreadPool), TASKS, parallel_for, NULL});
    printf("%d runs to their end, %d cancelled, %d late; %d failures\n", atomic_load(&ended[ONNXFUSE_OK]),
           atomic_load(&ended[ONNXFUSE_CANCELLED]), atomic_load(&ended[ONNXFUSE_DEADLINE]), atomic_load(&failures));
    return atomic_load(&failures) != 0;
}
