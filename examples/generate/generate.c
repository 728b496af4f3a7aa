/* SPDX-License-Identifier: Apache-2.0 */
/* Generates tokens with a model that holds the whole loop (scripts/generation_model.py writes one).
 *
 *     generate MODEL [--steps N] [--no-kernel] TOKEN TOKEN...
 *
 * Prints the prompt and what follows it. What keeps n-grams from coming twice is the built-in kernel, switched on by
 * the policy, or with --no-kernel what onnxfuse makes of the model's nodes. */
#include <onnxfuse.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_TOKENS = 1024 };

static const char kernels[] = "{\"fusion\": {\"custom_kernels\": [\"FusedRMSNorm\", \"FusedNoRepeatNGram\"]}}";

static void check(OnnxfuseStatus status) {
    if (!status) return;
    fprintf(stderr, "generate: %s\n", onnxfuse_status_message(status));
    exit((int)onnxfuse_status_code(status));
}

static int64_t number(const char *text) {
    char *end;
    long long value = strtoll(text, &end, 10);
    if (*text && !*end && value >= 0) return value;
    fprintf(stderr, "generate: \"%s\" is no token\n", text);
    exit(ONNXFUSE_USAGE);
}

int main(int argc, char **argv) {
    int64_t tokens[MOST_TOKENS], count = 0, steps = 16;
    OnnxfuseOptions options = {.size = sizeof options, .policy_json = kernels};
    for (int i = 2; i < argc; i++) {
        if (strcmp(argv[i], "--no-kernel") == 0)
            options.policy_json = "{}";
        else if (strcmp(argv[i], "--steps") == 0 && i + 1 < argc)
            steps = number(argv[++i]);
        else if (count < MOST_TOKENS)
            tokens[count++] = number(argv[i]);
    }
    if (count < 2) {
        fprintf(stderr, "usage: generate MODEL [--steps N] [--no-kernel] TOKEN TOKEN...\n");
        return ONNXFUSE_USAGE;
    }

    OnnxfuseSession *session;
    OnnxfuseValue *inputs[2], *text = NULL;
    check(onnxfuse_session_open(argv[1], &options, &session));
    if (onnxfuse_session_input_count(session) != 2 || onnxfuse_session_output_count(session) != 1) {
        fprintf(stderr, "generate: a model of two inputs, prompt and steps, and one output is needed\n");
        return ONNXFUSE_USAGE;
    }
    check(onnxfuse_value_tensor(ONNXFUSE_INT64, 2, (int64_t[]){1, count}, tokens, &inputs[0]));
    check(onnxfuse_value_tensor(ONNXFUSE_INT64, 0, NULL, &steps, &inputs[1]));
    check(onnxfuse_session_run(session, (const OnnxfuseValue *const *)inputs, &text));

    const int64_t *all = onnxfuse_value_data(text);
    for (int64_t i = 0; i < onnxfuse_value_count(text); i++)
        printf("%lld%s", (long long)all[i], i + 1 < onnxfuse_value_count(text) ? " " : "\n");

    onnxfuse_value_free(text);
    for (int i = 0; i < 2; i++) onnxfuse_value_free(inputs[i]);
    onnxfuse_session_close(session);
    return 0;
}
