/* SPDX-License-Identifier: Apache-2.0 */
/* Asks a classifier about one row of numbers: classify MODEL NUMBER... prints the best class and its score. */
#include <onnxfuse.h>
#include <stdio.h>
#include <stdlib.h>

static void check(OnnxfuseStatus status) {
    if (!status) return;
    fprintf(stderr, "%s\n", onnxfuse_status_message(status));
    exit(onnxfuse_status_code(status));
}

int main(int argc, char **argv) {
    if (argc < 3) return fprintf(stderr, "usage: classify MODEL NUMBER...\n"), ONNXFUSE_USAGE;
    float numbers[1024];
    int64_t dims[2] = {1, argc - 2 < 1024 ? argc - 2 : 1024};
    for (int i = 0; i < dims[1]; i++) numbers[i] = strtof(argv[i + 2], NULL);

    OnnxfuseSession *session;
    OnnxfuseValue *input, *output = NULL;
    check(onnxfuse_session_open(argv[1], NULL, &session));
    check(onnxfuse_value_tensor(ONNXFUSE_FLOAT32, 2, dims, numbers, &input)); /* borrows numbers */
    check(onnxfuse_session_run(session, (const OnnxfuseValue *const[]){input}, &output));

    const float *scores = onnxfuse_value_data(output);
    int64_t best = 0;
    for (int64_t i = 1; i < onnxfuse_value_count(output); i++)
        if (scores[i] > scores[best]) best = i;
    printf("class %lld, score %.3f\n", (long long)best, scores[best]);

    onnxfuse_value_free(output);
    onnxfuse_value_free(input);
    onnxfuse_session_close(session);
    return 0;
}
