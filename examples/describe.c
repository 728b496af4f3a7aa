/* SPDX-License-Identifier: Apache-2.0 */
/* Tells what a model takes and gives, and how it runs: describe MODEL */
#include <onnxfuse.h>
#include <stdio.h>

static void show(const char *what, const OnnxfuseValueInfo *info) {
    printf("%s %s: %s", what, info->name, onnxfuse_dtype_name(info->dtype));
    for (int i = 0; i < info->rank; i++) {
        if (info->symbols[i])
            printf("%s%s", i ? ", " : " [", info->symbols[i]);
        else
            printf("%s%lld", i ? ", " : " [", (long long)info->dims[i]);
    }
    printf("%s\n", info->rank > 0 ? "]" : "");
}

int main(int argc, char **argv) {
    OnnxfuseSession *session;
    OnnxfuseOptions options = {.size = sizeof options, .device = "cpu"};
    OnnxfuseStatus status = onnxfuse_session_open(argc > 1 ? argv[1] : "model.onnx", &options, &session);
    if (status) {
        fprintf(stderr, "%s\n", onnxfuse_status_message(status));
        int code = onnxfuse_status_code(status);
        onnxfuse_status_free(status);
        return code;
    }
    for (int i = 0; i < onnxfuse_session_input_count(session); i++) show("input", onnxfuse_session_input(session, i));
    for (int i = 0; i < onnxfuse_session_output_count(session); i++)
        show("output", onnxfuse_session_output(session, i));
    OnnxfuseStats stats;
    onnxfuse_session_stats(session, &stats, sizeof stats);
    printf("%d operators became %d kernels, %d products and %d other steps on %s; %lld bytes of weights\n", stats.nodes,
           stats.regions, stats.anchors, stats.host_steps, stats.device, (long long)stats.weight_bytes);
    onnxfuse_session_close(session);
    return 0;
}
