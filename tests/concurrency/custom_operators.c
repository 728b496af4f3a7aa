/* SPDX-License-Identifier: Apache-2.0 */
/* Custom operators under several threads: sessions over one registry are opened, run and closed at once, and one session
 * is run by all. A plain program, so that ThreadSanitizer can watch it; it also checks every result. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "models.h"
#include "custom_operators.h"

enum { THREADS = 4, RUNS = 30 };

static const char model[] = "opset 21\nopset \"test\" 1\ngraph (x: f32[n]) -> (y, k) {\na = onnx Neg@21 x\n"
                            "b, c = onnx \"test\" Scale@1 a {factor = 2.0}\np = onnx \"test\" Positive@1 b\n"
                            "y = onnx Neg@21 p\nk = onnx Neg@21 c\n}\n";
static OnnxfuseRegistry *registry;
static OnnxfuseSession *shared;
static atomic_int failures;

static OnnxfuseSession *open_one(void) {
    OnnxfuseOptions options = {
        .size = sizeof options, .policy_json = "{\"cache\": {\"enable\": false}}", .threads = 2, .registry = registry};
    OnnxfuseSession *session = NULL;
    OnnxfuseStatus status = open_text(model, &options, &session);
    if (status) fprintf(stderr, "FAIL  %s\n", onnxfuse_status_message(status));
    failures += status != NULL;
    onnxfuse_status_free(status);
    return session;
}

/* x = -1, 2, -3, ...: of n elements n / 2 rounded up are negative. */
static void run_one(OnnxfuseSession *session, int n) {
    OnnxfuseValue *x = NULL, *y[2] = {NULL};
    int64_t dims[] = {n};
    OnnxfuseStatus status = onnxfuse_value_tensor(ONNXFUSE_FLOAT32, 1, dims, NULL, &x);
    for (int i = 0; !status && i < n; i++) ((float *)onnxfuse_value_data(x))[i] = (float)(i % 2 ? i + 1 : -(i + 1));
    if (!status) status = onnxfuse_session_run(session, (const OnnxfuseValue *[]){x}, y);
    bool right = !status && onnxfuse_value_count(y[0]) == (n + 1) / 2 && onnxfuse_value_element(y[1], 0) == -n;
    for (int i = 0; right && i < (n + 1) / 2; i++) right = onnxfuse_value_element(y[0], i) == -2 * (2 * i + 1);
    if (!right) fprintf(stderr, "FAIL  %d elements: %s\n", n, onnxfuse_status_message(status));
    failures += !right;
    onnxfuse_status_free(status);
    onnxfuse_value_free(x);
    for (int o = 0; o < 2; o++) onnxfuse_value_free(y[o]);
}

static void *work(void *context) {
    int thread = *(const int *)context;
    for (int i = 0; i < RUNS; i++) run_one(shared, 1 + 37 * (thread + 1) * i % 1000);
    for (int i = 0; i < 3; i++) {
        OnnxfuseSession *own = open_one();
        if (own) run_one(own, 10 + i);
        onnxfuse_session_close(own);
    }
    return NULL;
}

int main(void) {
    pthread_t threads[THREADS];
    int numbers[THREADS];
    registry = custom_operators();
    shared = open_one();
    if (!shared) return 1;
    for (int t = 0; t < THREADS; t++) {
        numbers[t] = t;
        if (pthread_create(&threads[t], NULL, work, &numbers[t])) return 1;
    }
    for (int t = 0; t < THREADS; t++) pthread_join(threads[t], NULL);
    onnxfuse_session_close(shared);
    onnxfuse_registry_free(registry);
    printf("%d failures\n", failures);
    return failures != 0;
}
