/* Whole sessions with --device cuda over the doubles of its libraries: products are computed there, other kernels do
 * nothing, and the books tell whether each buffer, copy, stream and program was used as CUDA asks for. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../doubles/cuda/load.h"
#include "models.h"
#include "runtime/device/cuda/loader.h"
#include "runtime/device/gpu/gpu.h"

static char policy[512];

static void set_up(void) {
    double_load(ONNXFUSE_CUDA_DOUBLES "/libcuda.so.1");
    cuda_load_only_from_folder(true);
    double_set_property(DOUBLE_ANY_KERNEL, 1);
    snprintf(policy, sizeof policy, "{\"cache\": {\"enable\": false}, \"cuda\": {\"libraries\": \"%s\"}}",
             ONNXFUSE_CUDA_DOUBLES);
}

TestSuite(cuda_sessions, .init = set_up);

/* x W + b, clipped below: one product of the library. */
static const char product[] = "graph (x: f32[n, 3]) -> (y) {\n"
                              "w = constant f32[3, 2] {1, 2, 3, 4, 5, 6}\n"
                              "b = constant f32[2] {-30, 1}\n"
                              "p = onnx MatMul@21 x, w\n"
                              "s = onnx Add@21 p, b\n"
                              "y = onnx Relu@21 s\n}\n";

/* Kernels, a step of the CPU between (NonZero), sizes known only then, and several outputs. */
static const char mixed[] = "graph (x: f32[n, 4], w: f32[4, 4]) -> (y, z, i) {\n"
                            "p = onnx MatMul@21 x, w\n"
                            "e = onnx Exp@21 p\n"
                            "q = onnx MatMul@21 e, w\n"
                            "y = onnx Softmax@21 q {axis = -1}\n"
                            "i = onnx NonZero@21 x\n"
                            "z = onnx ReduceSum@21 y {keepdims = 0}\n}\n";

static OnnxfuseStatus open_on_double(const char *text, OnnxfuseSession **out_session) {
    OnnxfuseOptions options = {.device = "cuda", .policy_json = policy, .threads = 1};
    return open_text(text, &options, out_session);
}

static OnnxfuseSession *must_open_on_double(const char *text) {
    OnnxfuseSession *session = NULL;
    OnnxfuseStatus status = open_on_double(text, &session);
    cr_assert(!status, "%s", onnxfuse_status_message(status));
    return session;
}

static void close_all(OnnxfuseSession *session, const char *when) {
    onnxfuse_session_close(session);
    gpu_program_trim();
    books_are_even(when);
}

Test(cuda_sessions, a_products_result_is_right_in_every_size) {
    static const struct {
        const char *x, *y;
    } runs[] = {
        {"f32[1, 3] {1, 2, 3}", "f32[1, 2] {0, 29}"},
        {"f32[2, 3] {1, 2, 3, 4, 5, 6}", "f32[2, 2] {0, 29, 19, 65}"},
        {"f32[3, 3] {1, 0, 0, 0, 1, 0, 0, 0, 40}", "f32[3, 2] {0, 3, 0, 5, 170, 241}"},
    };
    OnnxfuseSession *session = must_open_on_double(product);
    for (int turn = 0; turn < 3; turn++)
        for (size_t i = 0; i < sizeof runs / sizeof *runs; i++) {
            char *problem = run_and_compare(session, &runs[i].x, &runs[i].y);
            cr_expect(!problem, "%s", problem);
            free(problem);
        }
    cr_expect(double_heuristic_calls() == 3, "%d, not one a size", double_heuristic_calls());
    close_all(session, "products");
}

Test(cuda_sessions, kernels_cpu_steps_and_late_sizes_leave_the_books_even) {
    static const char *const inputs[] = {"f32[2, 4] {1, 0, 2, 0, 0, 0, 0, 3}",
                                         "f32[4, 4] {1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1}"};
    static const char *const outputs[] = {NULL, NULL, "i64[2, 3] {0, 0, 1, 0, 2, 3}"};
    OnnxfuseSession *session = must_open_on_double(mixed);
    for (int turn = 0; turn < 4; turn++) {
        char *problem = run_and_compare(session, inputs, outputs);
        cr_expect(!problem, "%s", problem);
        free(problem);
    }
    cr_expect(double_launch_count() > 0);
    close_all(session, "mixed");
}

/* Opens, runs twice, closes; whether all went well. */
static bool play(const char *text, const char *const *inputs, const char *const *outputs) {
    OnnxfuseSession *session = NULL;
    OnnxfuseStatus status = open_on_double(text, &session);
    bool good = !status;
    onnxfuse_status_free(status);
    for (int turn = 0; turn < 2 && good; turn++) {
        char *problem = run_and_compare(session, inputs, outputs);
        good = !problem;
        free(problem);
    }
    onnxfuse_session_close(session);
    gpu_program_trim();
    return good;
}

static void fail_each_call(const char *text, const char *const *inputs, const char *const *outputs) {
    double_fail_at(0);
    cr_assert(play(text, inputs, outputs));
    int count = double_calls(), failed = 0;
    for (int i = 1; i <= count; i++) {
        char when[64];
        snprintf(when, sizeof when, "call %d of %d fails", i, count);
        double_reset();
        double_set_property(DOUBLE_ANY_KERNEL, 1);
        double_fail_at(i);
        failed += !play(text, inputs, outputs);
        double_fail_at(0);
        books_are_even(when);
        cr_expect(play(text, inputs, outputs), "after: %s", when);
        books_are_even(when);
    }
    cr_expect(failed > count / 3, "%d of %d", failed, count);
}

Test(cuda_sessions, each_call_that_fails_under_a_product_leaves_nothing) {
    fail_each_call(product, (const char *[]){"f32[2, 3] {1, 2, 3, 4, 5, 6}"}, (const char *[]){NULL});
}

Test(cuda_sessions, each_call_that_fails_under_kernels_leaves_nothing) {
    fail_each_call(mixed,
                   (const char *[]){"f32[2, 4] {1, 0, 2, 0, 0, 0, 0, 3}",
                                    "f32[4, 4] {1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1}"},
                   (const char *[]){NULL, NULL, NULL});
}

Test(cuda_sessions, a_lost_device_fails_a_run_and_serves_the_next_session) {
    static const char *const x[] = {"f32[1, 3] {1, 2, 3}"}, *const y[] = {"f32[1, 2] {0, 29}"};
    double_fail_at(0);
    cr_assert(play(product, x, y));
    int count = double_calls();
    for (int i = 1; i < count; i += 2) {
        double_reset();
        double_set_property(DOUBLE_ANY_KERNEL, 1);
        double_set_property(DOUBLE_LOST_AFTER, i);
        play(product, x, (const char *[]){NULL});
        double_set_property(DOUBLE_LOST_AFTER, 0);
        books_are_even("lost");
        cr_expect(play(product, x, y), "after the loss at call %d", i);
        books_are_even("after the loss");
    }
}
