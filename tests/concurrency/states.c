/* SPDX-License-Identifier: Apache-2.0 */
/* One session, several states: each thread runs its own, and all of them try one state that they share, which is one's at a time. A plain
 * program, so that ThreadSanitizer can watch it; it also checks every result. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "models.h"

enum { THREADS = 4, RUNS = 60 };

static const char model[] = "graph (x: f32[s, 2], past: f32[p, 2]) -> (sum, now) {\n"
                            "now = onnx Concat@21 past, x {axis = 0}\nsum = onnx ReduceSum@21 now {keepdims = 0}\n}\n";
static OnnxfuseSession *session;
static atomic_int failures, shared_rows;

static void fail(const char *what, OnnxfuseStatus status) {
    fprintf(stderr, "FAIL  %s: %s\n", what, onnxfuse_status_message(status));
    failures++;
    onnxfuse_status_free(status);
}

/* Rows of ones: the sum tells how many came before. -1: the state was in use. */
static double run_one(OnnxfuseState *state, int64_t rows) {
    OnnxfuseValue *x = NULL, *sum = NULL;
    OnnxfuseStatus status = onnxfuse_value_tensor(ONNXFUSE_FLOAT32, 2, (const int64_t[]){rows, 2}, NULL, &x);
    for (int64_t i = 0; !status && i < rows * 2; i++) ((float *)onnxfuse_value_data(x))[i] = 0.5f;
    OnnxfuseRunOptions options = {.size = sizeof options, .state = state};
    if (!status) status = onnxfuse_session_run_with(session, (const OnnxfuseValue *const[]){x}, &sum, &options);
    double got = sum ? onnxfuse_value_element(sum, 0) : -1;
    if (status && onnxfuse_status_code(status) != ONNXFUSE_USAGE)
        fail("a run", status);
    else
        onnxfuse_status_free(status);
    onnxfuse_value_free(x);
    onnxfuse_value_free(sum);
    return got;
}

static void *work(void *number) {
    OnnxfuseState *own = NULL, *copy = NULL;
    OnnxfuseStatus status = onnxfuse_state_create(session, &own);
    if (status) return fail("a state", status), NULL;
    int64_t rows = 0;
    for (int i = 0; i < RUNS; i++) {
        int64_t more = 1 + (i + (int)(intptr_t)number) % 3;
        rows += more;
        if (run_one(own, more) != (double)rows) fail("rows of a thread's own state", NULL);
        shared_rows += run_one(NULL, 1) > 0;
    }
    status = onnxfuse_state_copy(own, &copy);
    if (status) return fail("a copy", status), NULL;
    if (run_one(copy, 1) != (double)(rows + 1) || run_one(own, 2) != (double)(rows + 2)) fail("a copy's rows", NULL);
    onnxfuse_state_free(copy);
    onnxfuse_state_free(own);
    return NULL;
}

int main(void) {
    pthread_t threads[THREADS];
    OnnxfuseOptions options = {.threads = 2,
                               .policy_json = "{\"cache\": {\"enable\": false}, \"state\": [{\"input\": \"past\", "
                                              "\"output\": \"now\"}]}"};
    OnnxfuseStatus status = open_text(model, &options, &session);
    if (status) return fail("opening", status), 1;
    for (int i = 0; i < THREADS; i++) pthread_create(&threads[i], NULL, work, (void *)(intptr_t)i);
    for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
    if (run_one(NULL, 1) != shared_rows + 1) fail("rows of the shared state", NULL);
    onnxfuse_session_close(session);
    return failures > 0;
}
