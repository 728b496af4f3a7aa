/* SPDX-License-Identifier: Apache-2.0 */
/* Replays in whole sessions with --device cuda, over the doubles of its libraries: what a run asks of the driver, which
 * launches are recorded with which arguments, and that the books are even whatever fails. Products are computed there,
 * so results of replays are seen; other kernels do nothing. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../doubles/cuda/load.h"
#include "models.h"
#include "runtime/device/cuda/loader.h"
#include "runtime/device/gpu/gpu.h"

static char policy[512], policy_off[512];

static void write_policy(char *text, size_t size, const char *graphs) {
    snprintf(text, size, "{\"cache\": {\"enable\": false}, \"cuda\": {\"graphs\": %s, \"libraries\": \"%s\"}}", graphs,
             ONNXFUSE_CUDA_DOUBLES);
}

static void set_up(void) {
    double_load(ONNXFUSE_CUDA_DOUBLES "/libcuda.so.1");
    cuda_load_only_from_folder(true);
    write_policy(policy, sizeof policy, "true");
    write_policy(policy_off, sizeof policy_off, "false");
}

TestSuite(replay_cuda, .init = set_up);

/* Two products, one after the other: both are the library's, so that results are computed. */
static const char products[] = "graph (x: f32[n, 3]) -> (y) {\n"
                               "w = constant f32[3, 3] {1, 0, 0, 0, 2, 0, 0, 0, 3}\n"
                               "v = constant f32[3, 2] {1, 2, 3, 4, 5, 6}\n"
                               "p = onnx MatMul@21 x, w\ny = onnx MatMul@21 p, v\n}\n";

/* Kernels, products, movement, and a step of the CPU at the end. */
static const char mixed[] = "graph (x: f32[n, 4], w: f32[4, 4]) -> (y, z, i) {\n"
                            "p = onnx MatMul@21 x, w\ns = onnx Softmax@21 p {axis = -1}\n"
                            "c = onnx Concat@21 s, x {axis = 0}\nq = onnx MatMul@21 c, w\n"
                            "y = onnx Softmax@21 q {axis = -1}\ni = onnx NonZero@21 x\n"
                            "z = onnx ReduceSum@21 y {keepdims = 0}\n}\n";

static const char *const mixed_inputs[] = {"f32[2, 4] {1, 0, 2, 0, 0, 0, 0, 3}",
                                           "f32[4, 4] {1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1}"};
static const char *const mixed_outputs[] = {NULL, NULL, "i64[2, 3] {0, 0, 1, 0, 2, 3}"};

static OnnxfuseStatus open_with(const char *text, const char *json, OnnxfuseSession **out_session) {
    OnnxfuseOptions options = {.device = "cuda", .policy_json = json, .threads = 1};
    return open_text(text, &options, out_session);
}

static OnnxfuseSession *must_open_with(const char *text, const char *json) {
    OnnxfuseSession *session = NULL;
    OnnxfuseStatus status = open_with(text, json, &session);
    cr_assert(!status, "%s", onnxfuse_status_message(status));
    return session;
}

static void must_run(OnnxfuseSession *session, const char *const *inputs, const char *const *outputs) {
    char *problem = run_and_compare(session, inputs, outputs);
    cr_expect(!problem, "%s", problem);
    free(problem);
}

static void close_all(OnnxfuseSession *session, const char *when) {
    onnxfuse_session_close(session);
    gpu_program_trim();
    books_are_even(when);
}

/* x of one row and what the products make of it. */
static char *run_row(OnnxfuseSession *session, int a, int b, int c) {
    char x[64], y[64];
    snprintf(x, sizeof x, "f32[1, 3] {%d, %d, %d}", a, b, c);
    snprintf(y, sizeof y, "f32[1, 2] {%d, %d}", a + 6 * b + 15 * c, 2 * a + 8 * b + 18 * c);
    return run_and_compare(session, (const char *[]){x}, (const char *[]){y});
}

/* n rows of the same number. */
static char *run_rows(OnnxfuseSession *session, int n, int number) {
    char x[1024], y[1024];
    int at = snprintf(x, sizeof x, "f32[%d, 3] {", n), to = snprintf(y, sizeof y, "f32[%d, 2] {", n);
    for (int i = 0; i < n; i++) {
        const char *end = i + 1 < n ? ", " : "}";
        at += snprintf(x + at, sizeof x - (size_t)at, "%d, %d, %d%s", number, number, number, end);
        to += snprintf(y + to, sizeof y - (size_t)to, "%d, %d%s", 22 * number, 28 * number, end);
    }
    return run_and_compare(session, (const char *[]){x}, (const char *[]){y});
}

static void expect_none(char *problem) {
    cr_expect(!problem, "%s", problem);
    free(problem);
}

Test(replay_cuda, results_follow_the_inputs) {
    OnnxfuseSession *session = must_open_with(products, policy);
    for (int r = 0; r < 8; r++) expect_none(run_row(session, r, 2 * r + 1, 5 - r));
    cr_expect(double_replay_count() == 6, "%d replays of 8 runs", double_replay_count());
    close_all(session, "products");
}

Test(replay_cuda, shapes_in_turn) {
    OnnxfuseSession *session = must_open_with(products, policy);
    for (int r = 0; r < 60; r++) expect_none(run_rows(session, r % 3 + 1, r + 1));
    cr_expect(double_replay_count() == 60 - 3 * 2, "%d replays", double_replay_count());
    for (int r = 0; r < 100; r++) expect_none(run_rows(session, r % 25 + 1, r + 1));
    for (int r = 0; r < 100; r++) expect_none(run_rows(session, r / 4 + 1, r + 1));
    close_all(session, "25 shapes");
}

/* With the policy off the same runs launch each time. */
Test(replay_cuda, off) {
    OnnxfuseSession *session = must_open_with(products, policy_off);
    for (int r = 0; r < 6; r++) expect_none(run_row(session, r, 1, 2));
    cr_expect(double_replay_count() == 0);
    close_all(session, "off");
    session = must_open_with(mixed, policy_off);
    must_run(session, mixed_inputs, mixed_outputs);
    int once = double_launch_count();
    for (int r = 0; r < 4; r++) must_run(session, mixed_inputs, mixed_outputs);
    cr_expect(double_launch_count() == 5 * once && double_replay_count() == 0);
    close_all(session, "off");
}

/* The second run does its work and records it; from the third on nothing is launched. */
Test(replay_cuda, what_is_recorded_is_what_a_run_launches) {
    OnnxfuseSession *session = must_open_with(mixed, policy);
    int ends[5];
    for (int r = 0; r < 5; r++) {
        must_run(session, mixed_inputs, mixed_outputs);
        ends[r] = double_launch_count();
    }
    int count = ends[0];
    cr_assert(count > 1 && ends[1] == 3 * count && ends[4] == ends[1], "%d, %d, %d", ends[0], ends[1], ends[4]);
    cr_expect(double_replay_count() == 3);
    for (int i = 0; i < count; i++) {
        const DoubleLaunch *plain = double_launch(i), *before = double_launch(count + i),
                           *recorded = double_launch(2 * count + i);
        cr_expect(memcmp(before, recorded, sizeof *before) == 0, "launch %d (%s) is recorded otherwise", i,
                  before->name);
        cr_expect(!strcmp(plain->name, recorded->name) && plain->grid == recorded->grid &&
                      plain->block == recorded->block && plain->count == recorded->count,
                  "launch %d", i);
    }
    close_all(session, "mixed");
}

/* Device calls of a run of so many layers, once they are replayed. */
static int calls_of_a_run(int layers) {
    size_t room = 256 + 128 * (size_t)layers;
    char *text = malloc(room);
    int at = snprintf(text, room, "graph (x: f32[n, 8], w: f32[8, 8]) -> (y) {\nv0 = onnx Identity@21 x\n");
    for (int i = 0; i < layers; i++)
        at += snprintf(text + at, room - (size_t)at,
                       "m%d = onnx MatMul@21 v%d, w\nv%d = onnx Softmax@21 m%d {axis = 1}\n", i, i, i + 1, i);
    snprintf(text + at, room - (size_t)at, "y = onnx Neg@21 v%d\n}", layers);
    OnnxfuseSession *session = must_open_with(text, policy);
    float x[16] = {0}, w[64] = {0};
    int64_t x_dims[] = {2, 8}, w_dims[] = {8, 8};
    OnnxfuseValue *in[2];
    cr_assert(!onnxfuse_value_tensor(ONNXFUSE_FLOAT32, 2, x_dims, x, &in[0]));
    cr_assert(!onnxfuse_value_tensor(ONNXFUSE_FLOAT32, 2, w_dims, w, &in[1]));
    int calls = 0;
    for (int r = 0; r < 5; r++) {
        OnnxfuseValue *out = NULL;
        double_fail_at(0);
        OnnxfuseStatus status = onnxfuse_session_run(session, (const OnnxfuseValue *const *)in, &out);
        cr_assert(!status, "%s", onnxfuse_status_message(status));
        calls = double_calls();
        onnxfuse_value_free(out);
    }
    onnxfuse_value_free(in[0]);
    onnxfuse_value_free(in[1]);
    free(text);
    close_all(session, "layers");
    return calls;
}

Test(replay_cuda, calls_do_not_grow_with_the_steps) {
    int few = calls_of_a_run(2), many = calls_of_a_run(40);
    cr_expect(few == many && few < 40, "%d calls, %d", few, many);
}

/* --- threads --- */
static void *run_many(void *session) {
    for (int r = 0; r < 60; r++) {
        char *problem = run_rows(session, r < 30 ? 2 : r % 3 + 1, r + 1);
        if (problem) return problem;
    }
    return NULL;
}

Test(replay_cuda, threads) {
    OnnxfuseSession *session = must_open_with(products, policy);
    pthread_t threads[4];
    for (int t = 0; t < 4; t++) pthread_create(&threads[t], NULL, run_many, session);
    for (int t = 0; t < 4; t++) {
        void *problem;
        pthread_join(threads[t], &problem);
        expect_none(problem);
    }
    cr_expect(double_replay_count() > 60, "%d replays", double_replay_count());
    close_all(session, "threads");
}

/* --- each call fails in turn --- */
enum { RUNS = 5 };

/* Where the library cannot be had, kernels of our own run, whose results the double does not compute: so results are
 * not compared while something fails.
 *
 * Runs that failed, -1 when the session did not open. */
static int play(const char *text, const char *const *inputs, const char *const *outputs) {
    OnnxfuseSession *session = NULL;
    OnnxfuseStatus status = open_with(text, policy, &session);
    int failed = status ? -1 : 0;
    onnxfuse_status_free(status);
    for (int r = 0; r < RUNS && session; r++) {
        char *problem = run_and_compare(session, inputs, outputs);
        failed += problem != NULL;
        free(problem);
    }
    onnxfuse_session_close(session);
    gpu_program_trim();
    return failed;
}

static void again(void) { double_reset(); }

static void fail_each_call(const char *text, const char *const *inputs, const char *const *outputs) {
    static const char *const nothing[3];
    double_fail_at(0);
    cr_assert(play(text, inputs, outputs) == 0);
    int count = double_calls(), unharmed = 0;
    for (int i = 1; i <= count; i++) {
        char when[64];
        snprintf(when, sizeof when, "call %d of %d fails", i, count);
        again();
        double_fail_at(i);
        int failed = play(text, inputs, nothing);
        cr_expect(failed <= 1, "%s: %d runs failed", when, failed);
        unharmed += !failed;
        books_are_even(when);
        again();
        cr_expect(play(text, inputs, outputs) == 0, "after: %s", when);
        books_are_even(when);
    }
    cr_expect(unharmed > 5, "%d of %d", unharmed, count);
}

Test(replay_cuda, each_call_that_fails_under_products_leaves_nothing) {
    fail_each_call(products, (const char *[]){"f32[2, 3] {1, 2, 3, 4, 5, 6}"},
                   (const char *[]){"f32[2, 2] {58, 72, 124, 156}"});
}

Test(replay_cuda, each_call_that_fails_under_kernels_leaves_nothing) {
    fail_each_call(mixed, mixed_inputs, mixed_outputs);
}

Test(replay_cuda, a_device_that_is_lost) {
    static const char *const x[] = {"f32[1, 3] {1, 2, 3}"}, *const y[] = {"f32[1, 2] {58, 72}"};
    double_fail_at(0);
    cr_assert(play(products, x, y) == 0);
    int count = double_calls();
    for (int i = 1; i < count; i += 2) {
        again();
        double_set_property(DOUBLE_LOST_AFTER, i);
        play(products, x, (const char *[]){NULL});
        double_set_property(DOUBLE_LOST_AFTER, 0);
        books_are_even("lost");
        cr_expect(play(products, x, y) == 0, "after the loss at call %d", i);
        books_are_even("after the loss");
    }
}

/* --- memory --- */
/* Runs of eight shapes in turn, which all at once would not fit: recordings give way. */
Test(replay_cuda, little_memory) {
    static const char wide[] = "graph (x: f32[n, 65536]) -> (y) {\n"
                               "s = onnx Softmax@21 x {axis = 1}\nc = onnx Concat@21 s, x {axis = 0}\n"
                               "y = onnx Softmax@21 c {axis = 1}\n}\n";
    OnnxfuseSession *session = must_open_with(wide, policy);
    float *x = calloc(16 * 65536, sizeof *x);
    double_set_property(DOUBLE_MEMORY, 64 << 20);
    for (int r = 0; r < 96; r++) {
        int64_t dims[] = {8 + (r < 48 ? r / 6 : r % 8), 65536};
        OnnxfuseValue *in, *out = NULL;
        cr_assert(!onnxfuse_value_tensor(ONNXFUSE_FLOAT32, 2, dims, x, &in));
        OnnxfuseStatus status = onnxfuse_session_run(session, (const OnnxfuseValue *const *)&in, &out);
        cr_expect(!status, "run %d: %s", r, onnxfuse_status_message(status));
        onnxfuse_status_free(status);
        onnxfuse_value_free(in);
        onnxfuse_value_free(out);
    }
    cr_expect(double_replay_count() >= 32, "%d replays", double_replay_count());
    free(x);
    close_all(session, "little memory");
}

Test(replay_cuda, trim_frees_what_no_run_uses) {
    OnnxfuseSession *session = must_open_with(products, policy);
    for (int r = 0; r < 30; r++) expect_none(run_rows(session, r % 10 + 1, r + 1));
    size_t before = double_memory_used();
    onnxfuse_trim(session);
    expect_none(run_rows(session, 11, 1)); /* releases are done when somebody waits */
    cr_expect(double_memory_used() < before / 2, "%zu bytes, %zu before", double_memory_used(), before);
    int replays = double_replay_count();
    for (int r = 0; r < 30; r++) expect_none(run_rows(session, r % 10 + 1, r + 1));
    cr_expect(double_replay_count() == replays + 20, "%d replays", double_replay_count() - replays);
    close_all(session, "trimmed");
}

/* A run that is ended early is nobody's fault: the same shapes are replayed later. */
Test(replay_cuda, runs_that_are_cancelled) {
    OnnxfuseSession *session = must_open_with(products, policy);
    float x[3] = {1, 2, 3};
    int64_t dims[] = {1, 3};
    OnnxfuseValue *in;
    OnnxfuseCancel *cancel;
    cr_assert(!onnxfuse_cancel_create(&cancel));
    OnnxfuseRunOptions options = {.size = sizeof options, .cancel = cancel};
    cr_assert(!onnxfuse_value_tensor(ONNXFUSE_FLOAT32, 2, dims, x, &in));
    for (int r = 0; r < 12; r++) {
        OnnxfuseValue *out = NULL;
        bool cancelled = r % 3 == 1;
        if (cancelled)
            onnxfuse_cancel(cancel);
        else
            onnxfuse_cancel_reset(cancel);
        OnnxfuseStatus status = onnxfuse_session_run_with(session, (const OnnxfuseValue *const *)&in, &out, &options);
        cr_expect(!status == !cancelled, "run %d: %s", r, onnxfuse_status_message(status));
        onnxfuse_status_free(status);
        onnxfuse_value_free(out);
    }
    cr_expect(double_replay_count() >= 3, "%d replays", double_replay_count());
    onnxfuse_value_free(in);
    onnxfuse_cancel_free(cancel);
    close_all(session, "cancelled");
}
