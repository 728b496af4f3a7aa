/* SPDX-License-Identifier: Apache-2.0 */
/* Eight threads, one session, a second for each request: requests MODEL WIDTH, for a model of one input [batch, WIDTH].
 */
#include <onnxfuse.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

enum { THREADS = 8, REQUESTS = 20 };
static OnnxfuseSession *session;
static int64_t width;

static void check(OnnxfuseStatus status) {
    if (!status) return;
    fprintf(stderr, "%s\n", onnxfuse_status_message(status));
    exit(onnxfuse_status_code(status));
}

static void *serve(void *argument) {
    OnnxfuseRunOptions options = {.size = sizeof options, .timeout_ms = *(double *)argument};
    for (int64_t batch = 1; batch <= REQUESTS; batch++) {
        OnnxfuseValue *input, *output = NULL;
        check(onnxfuse_value_tensor(ONNXFUSE_FLOAT32, 2, (int64_t[]){batch, width}, NULL, &input)); /* zeros */
        check(onnxfuse_session_run_with(session, (const OnnxfuseValue *const[]){input}, &output, &options));
        onnxfuse_value_free(output);
        onnxfuse_value_free(input);
    }
    return NULL;
}

int main(int argc, char **argv) {
    pthread_t threads[THREADS];
    double timeout_ms = argc > 3 ? atof(argv[3]) : 1000;
    width = argc > 2 ? atoi(argv[2]) : 16;
    check(onnxfuse_session_open(argc > 1 ? argv[1] : "model.onnx", NULL, &session));
    for (int i = 0; i < THREADS; i++) pthread_create(&threads[i], NULL, serve, &timeout_ms);
    for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
    printf("%d requests were answered\n", THREADS * REQUESTS);
    onnxfuse_session_close(session);
    return 0;
}
