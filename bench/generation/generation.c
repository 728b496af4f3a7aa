/* SPDX-License-Identifier: Apache-2.0 */
/* One model under several policies in one process, side by side: `generation MODEL BATCH LENGTH STEPS VOCABULARY ROUNDS
 * POLICY...` runs each policy's session in turn, ROUNDS times, and prints a line a policy: the median and the least
 * milliseconds of a run, the planned memory of a run in bytes, and a sum over the tokens, which must be the same for
 * all. Models of one output: tokens (prompt, steps), or with STEPS 0 anything with one input of tokens. */
#include <onnxfuse.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { MOST_POLICIES = 8, MOST_ROUNDS = 100 };

static void check(OnnxfuseStatus status) {
    if (!status) return;
    fprintf(stderr, "%s\n", onnxfuse_status_message(status));
    exit((int)onnxfuse_status_code(status));
}

static double now_ms(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

static int by_size(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The milliseconds of one run. */
static double run(OnnxfuseSession *session, const OnnxfuseValue *const *inputs, double *out_sum) {
    OnnxfuseValue *output = NULL;
    double begin = now_ms();
    check(onnxfuse_session_run(session, inputs, &output));
    double end = now_ms();
    *out_sum = 0;
    for (int64_t i = 0; i < onnxfuse_value_count(output); i++)
        *out_sum += onnxfuse_value_element(output, i) * (double)(i % 97 + 1);
    onnxfuse_value_free(output);
    return end - begin;
}

int main(int argc, char **argv) {
    if (argc < 8 || argc > 7 + MOST_POLICIES) return fprintf(stderr, "see the head of generation.c\n"), 2;
    int64_t dims[] = {atoll(argv[2]), atoll(argv[3])}, steps = atoll(argv[4]), vocabulary = atoll(argv[5]);
    int policies = argc - 7, rounds = atoi(argv[6]);
    if (rounds < 1 || rounds > MOST_ROUNDS || vocabulary < 1) return 2;
    OnnxfuseValue *inputs[2];
    check(onnxfuse_value_tensor(ONNXFUSE_INT64, 2, dims, NULL, &inputs[0]));
    check(onnxfuse_value_tensor(ONNXFUSE_INT64, 0, NULL, &steps, &inputs[1]));
    uint64_t state = 1;
    for (int64_t i = 0; i < dims[0] * dims[1]; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        ((int64_t *)onnxfuse_value_data(inputs[0]))[i] = (int64_t)((state >> 33) % (uint64_t)vocabulary);
    }
    OnnxfuseSession *sessions[MOST_POLICIES];
    double times[MOST_POLICIES][MOST_ROUNDS], sums[MOST_POLICIES];
    const OnnxfuseValue *const *given = (const OnnxfuseValue *const *)inputs;
    for (int p = 0; p < policies; p++) {
        OnnxfuseOptions options = {.size = sizeof options, .policy_json = argv[7 + p]};
        check(onnxfuse_session_open(argv[1], &options, &sessions[p]));
        run(sessions[p], given, &sums[p]);
    }
    for (int r = 0; r < rounds; r++)
        for (int p = 0; p < policies; p++) times[p][r] = run(sessions[p], given, &sums[p]);
    for (int p = 0; p < policies; p++) {
        OnnxfuseStats stats;
        onnxfuse_session_stats(sessions[p], &stats, sizeof stats);
        qsort(times[p], (size_t)rounds, sizeof(double), by_size);
        printf("%.3f %.3f %lld %.17g\n", times[p][rounds / 2], times[p][0], (long long)stats.arena_bytes, sums[p]);
        onnxfuse_session_close(sessions[p]);
    }
    for (int i = 0; i < 2; i++) onnxfuse_value_free(inputs[i]);
    return 0;
}
