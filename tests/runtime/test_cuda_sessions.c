/* SPDX-License-Identifier: Apache-2.0 */
/* Whole sessions with --device cuda over the doubles of its libraries: products are computed there, other kernels do
 * nothing, and the books tell whether each buffer, copy, stream and program was used as CUDA asks for. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../doubles/cuda/load.h"
#include "base/log.h"
#include "models.h"
#include "runtime/device/cuda/loader.h"
#include "runtime/device/gpu/gpu.h"
#include "threads.h"

static void set_up(void) {
    double_load(ONNXFUSE_CUDA_DOUBLES "/libcuda.so.1");
    cuda_load_only_from_folder(true);
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

/* more: keys of "cuda" and what follows it, in front of the libraries' folder. */
static OnnxfuseStatus open_with(const char *more, const char *text, OnnxfuseSession **out_session) {
    char json[1024];
    snprintf(json, sizeof json, "{\"cache\": {\"enable\": false}, %s \"libraries\": \"%s\"}}", more,
             ONNXFUSE_CUDA_DOUBLES);
    OnnxfuseOptions options = {.device = "cuda", .policy_json = json, .threads = 1};
    return open_text(text, &options, out_session);
}

static OnnxfuseStatus open_on_double(const char *text, OnnxfuseSession **out_session) {
    return open_with("\"cuda\": {", text, out_session);
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

static bool is_loaded(const char *file) {
    FILE *maps = fopen("/proc/self/maps", "re");
    char line[4096];
    bool found = false;
    cr_assert(maps);
    while (!found && fgets(line, sizeof line, maps)) found = strstr(line, file) != NULL;
    fclose(maps);
    return found;
}

/* A device that takes all of a model needs its own compiler alone: the plug-in on LLVM may be missing. */
Test(cuda_sessions, the_cpus_compiler_is_not_opened_for_what_the_device_takes) {
    setenv("ONNXFUSE_GENERATOR", "llvm", 1); /* else there are CPUs that need none */
    OnnxfuseSession *session = must_open_on_double(product);
    char *problem =
        run_and_compare(session, (const char *[]){"f32[1, 3] {1, 2, 3}"}, (const char *[]){"f32[1, 2] {0, 29}"});
    cr_expect_null(problem, "%s", problem);
    cr_expect(!is_loaded("libonnxfuse-llvm"), "it is opened");
    close_all(session, "a model that the device takes");
    session = must_open("graph (x: f32[n]) -> (y) {\na = onnx Exp@21 x\ny = onnx Neg@21 a\n}\n");
    cr_expect(is_loaded("libonnxfuse-llvm"), "it is not opened for the CPU");
    onnxfuse_session_close(session);
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
        double_set_property(DOUBLE_LOST_AFTER, i);
        play(product, x, (const char *[]){NULL});
        double_set_property(DOUBLE_LOST_AFTER, 0);
        books_are_even("lost");
        cr_expect(play(product, x, y), "after the loss at call %d", i);
        books_are_even("after the loss");
    }
}

/* --- what the library refuses ----------------------------------------------------------------------------------------
 */

static const char *const one_row[] = {"f32[1, 3] {1, 2, 3}"}, *const one_result[] = {"f32[1, 2] {0, 29}"},
                         *const any_result[] = {NULL};

static OnnxfuseSession *must_open_with(const char *more, const char *text) {
    OnnxfuseSession *session = NULL;
    OnnxfuseStatus status = open_with(more, text, &session);
    cr_assert(!status, "%s", onnxfuse_status_message(status));
    return session;
}

static void expect_profile(OnnxfuseSession *session, const char *part) {
    char *json = NULL;
    onnxfuse_session_profile(session, true);
    char *problem = run_and_compare(session, one_row, any_result);
    cr_expect(!problem, "%s", problem);
    OnnxfuseStatus status = onnxfuse_session_profile_json(session, &json);
    cr_assert(!status, "%s", onnxfuse_status_message(status));
    cr_expect(strstr(json, part), "no \"%s\" in %s", part, json);
    onnxfuse_free(json);
    free(problem);
}

/* A mistake of ours in a call (INVALID_VALUE) must not hide behind our own kernels. */
static const struct {
    DoubleProperty property;
    int64_t value;
} refusals[] = {{DOUBLE_BLAS_REFUSES, 1}, {DOUBLE_BLAS_MATMUL, 7}, {DOUBLE_BLAS_MATMUL, 15}, {DOUBLE_MEMORY, 6 << 20}};

static void refuse(size_t i) {
    double_reset();
    if (refusals[i].property == DOUBLE_MEMORY) double_set_property(DOUBLE_BLAS_WORKSPACE, 8 << 20);
    double_set_property(refusals[i].property, refusals[i].value);
}

static char *last_log;
static void keep_log(void *user, int level, const char *message) {
    (void)user, (void)level;
    if (!strstr(message, "product")) return;
    free(last_log);
    last_log = strdup(message);
}

Test(cuda_sessions, a_refused_product_is_logged_and_the_profile_says_what_ran) {
    OnnxfuseSession *session = must_open_with("\"cuda\": {", product);
    expect_profile(session, "cublasLt");
    close_all(session, "not refused");
    for (size_t i = 0; i < sizeof refusals / sizeof *refusals; i++) {
        refuse(i);
        log_set_level(1);
        log_set_sink(keep_log, NULL);
        session = must_open_with("\"cuda\": {", product);
        expect_profile(session, "\"own\"");
        log_set_sink(NULL, NULL);
        log_set_level(0);
        cr_expect(last_log && (strstr(last_log, "cuBLASLt does not compute") || strstr(last_log, "no workspace")),
                  "case %zu: %s", i, last_log ? last_log : "no log");
        free(last_log);
        last_log = NULL;
        close_all(session, "refused");
    }
}

Test(cuda_sessions, strict_makes_a_refused_product_an_error) {
    OnnxfuseSession *session = must_open_with("\"cuda\": {\"strict\": true,", product);
    char *problem = run_and_compare(session, one_row, one_result);
    cr_expect(!problem, "nothing is refused: %s", problem);
    free(problem);
    close_all(session, "strict");
    for (size_t i = 0; i < sizeof refusals / sizeof *refusals; i++) {
        refuse(i);
        session = must_open_with("\"cuda\": {\"strict\": true,", product);
        problem = run_and_compare(session, one_row, any_result);
        cr_expect(problem && strstr(problem, "cuda.strict"), "case %zu: %s", i, problem ? problem : "runs");
        free(problem);
        close_all(session, "strict and refused");
    }
    double_reset();
    double_set_property(DOUBLE_BLAS_CREATE, 1);
    session = NULL;
    OnnxfuseStatus status = open_with("\"cuda\": {\"strict\": true,", product, &session);
    cr_expect(status && strstr(onnxfuse_status_message(status), "cuBLASLt cannot be used"), "%s",
              onnxfuse_status_message(status));
    onnxfuse_status_free(status);
    gpu_program_trim();
    books_are_even("strict without the library");
}

/* --- memory ----------------------------------------------------------------------------------------------------------
 */

/* All that is allocated on the device stands in the session's books, workspaces and recordings of runs too. */
Test(cuda_sessions, all_device_memory_is_counted) {
    double_set_property(DOUBLE_BLAS_WORKSPACE, 8 << 20);
    OnnxfuseSession *session = must_open_with("\"cuda\": {", product);
    for (int turn = 0; turn < 4; turn++) {
        char *problem = run_and_compare(session, one_row, one_result);
        cr_expect(!problem, "%s", problem);
        free(problem);
        cr_expect(double_memory_used() >= (size_t)8 << 20);
        cr_expect_eq(gpu_memory_used_by_all(), double_memory_used(), "turn %d: %zu bytes of %zu", turn,
                     gpu_memory_used_by_all(), double_memory_used());
    }
    close_all(session, "counted");
}

Test(cuda_sessions, a_workspace_beyond_the_limit_is_left_away) {
    double_set_property(DOUBLE_BLAS_WORKSPACE, 8 << 20);
    OnnxfuseSession *session = must_open_with("\"memory_limit_megabytes\": 4, \"cuda\": {", product);
    expect_profile(session, "\"own\"");
    cr_expect(double_memory_used() <= (size_t)4 << 20, "%zu bytes", double_memory_used());
    close_all(session, "limited");
}

Test(cuda_sessions, trim_gives_the_device_its_memory_back) {
    double_set_property(DOUBLE_POOL_KEEPS, 1);
    double_set_property(DOUBLE_BLAS_WORKSPACE, 8 << 20);
    OnnxfuseSession *session = must_open_with("\"cuda\": {", product);
    for (int turn = 0; turn < 3; turn++) free(run_and_compare(session, one_row, one_result));
    cr_expect(double_memory_held() >= (size_t)8 << 20);
    onnxfuse_trim(session);
    cr_expect(double_memory_held() < 4096, "%zu bytes are held", double_memory_held());
    char *problem = run_and_compare(session, one_row, one_result);
    cr_expect(!problem, "after a trim: %s", problem);
    free(problem);
    close_all(session, "trimmed");
}

/* Pinned memory is dear: the anchors of a session fetch their constants through one stream. */
Test(cuda_sessions, anchors_share_a_stream_for_their_constants) {
    char text[4096] =
        "graph (x: f32[n, 2]) -> (y) {\nw0 = constant f32[2, 2] {1, 2, 3, 4}\np0 = onnx MatMul@21 x, w0\n";
    for (int i = 1; i < 12; i++)
        snprintf(text + strlen(text), sizeof text - strlen(text),
                 "w%d = constant f32[2, 2] {1, 2, 3, %d}\ne%d = onnx Exp@21 p%d\np%d = onnx MatMul@21 e%d, w%d\n", i, i,
                 i, i - 1, i, i, i);
    strcat(text, "y = onnx Exp@21 p11\n}\n");
    OnnxfuseSession *session = must_open_on_double(text);
    cr_expect(double_made("stream") <= 3, "%d streams for 12 products", double_made("stream"));
    cr_expect(double_made("pinned") <= 3, "%d pieces of pinned memory", double_made("pinned"));
    close_all(session, "many anchors");
}

/* --- every kind of kernel, at every address -------------------------------------------------------------------------
 */

/* %1$s: the type. Inputs x and w and the output y are on the device, behind the given elements of their allocation. */
typedef struct Placed {
    const char *name, *text;
    int64_t x[4], w[4], y[4]; /* dims; w[0] 0: there is none */
    bool plain;               /* no product of the library: our own kernels alone */
} Placed;

#define X(dims) "opset 23\ngraph (x: %1$s" dims ") -> (y) {\n"
#define XW(dims, more) "opset 23\ngraph (x: %1$s" dims ", w: %1$s" more ") -> (y) {\n"
static const Placed placed[] = {
    {"pointwise", X("[n, 24]") "a = onnx Exp@23 x\ny = onnx Mul@23 a, x\n}\n", {5, 24}, {0}, {5, 24}},
    {"rows", X("[n, 24]") "y = onnx Softmax@23 x {axis = -1}\n}\n", {5, 24}, {0}, {5, 24}},
    {"long rows", X("[n, 20000]") "y = onnx Softmax@23 x {axis = -1}\n}\n", {3, 20000}, {0}, {3, 20000}},
    {"columns", X("[n, 24]") "y = onnx Softmax@23 x {axis = 0}\n}\n", {50, 24}, {0}, {50, 24}},
    {"a sum of everything", X("[n, 4096]") "y = onnx ReduceSum@23 x {keepdims = 1}\n}\n", {64, 4096}, {0}, {1, 1}},
    {"transpose", X("[n, 24]") "y = onnx Transpose@23 x {perm = [1, 0]}\n}\n", {40, 24}, {0}, {24, 40}},
    {"one row's product", XW("[n, 24]", "[24, 40]") "y = onnx MatMul@23 x, w\n}\n", {1, 24}, {24, 40}, {1, 40}, true},
    {"few rows' product", XW("[n, 24]", "[24, 40]") "y = onnx MatMul@23 x, w\n}\n", {5, 24}, {24, 40}, {5, 40}, true},
    {"a product",
     XW("[n, 24]", "[24, 40]") "p = onnx MatMul@23 x, w\ny = onnx Relu@23 p\n}\n",
     {70, 24},
     {24, 40},
     {70, 40},
     true},
    {"a long product",
     XW("[n, 4096]", "[4096, 16]") "y = onnx MatMul@23 x, w\n}\n",
     {40, 4096},
     {4096, 16},
     {40, 16},
     true},
    {"a product by the library",
     XW("[n, 24]", "[24, 40]") "p = onnx MatMul@23 x, w\ny = onnx Sigmoid@23 p\n}\n",
     {70, 24},
     {24, 40},
     {70, 40}},
    {"a convolution",
     XW("[n, 8, 12, 12]", "[16, 8, 3, 3]") "y = onnx Conv@23 x, w {pads = [1, 1, 1, 1]}\n}\n",
     {1, 8, 12, 12},
     {16, 8, 3, 3},
     {1, 16, 12, 12}},
    {"a depthwise convolution",
     XW("[n, 8, 12, 12]", "[8, 1, 3, 3]") "y = onnx Conv@23 x, w {group = 8}\n}\n",
     {1, 8, 12, 12},
     {8, 1, 3, 3},
     {1, 8, 10, 10}},
    {"a transposed convolution",
     XW("[n, 8, 6, 6]", "[8, 4, 2, 2]") "y = onnx ConvTranspose@23 x, w {strides = [2, 2]}\n}\n",
     {1, 8, 6, 6},
     {8, 4, 2, 2},
     {1, 4, 12, 12}},
    {"attention", X("[n, 2, 40, 64]") "y = onnx Attention@23 x, x, x\n}\n", {1, 2, 40, 64}, {0}, {1, 2, 40, 64}},
    {"attention of one query",
     XW("[n, 2, 1, 64]", "[1, 2, 700, 64]") "y = onnx Attention@23 x, w, w\n}\n",
     {1, 2, 1, 64},
     {1, 2, 700, 64},
     {1, 2, 1, 64}},
    {"concat", XW("[n, 24]", "[5, 8]") "y = onnx Concat@23 x, w {axis = 1}\n}\n", {5, 24}, {5, 8}, {5, 32}},
    {"slice",
     X("[n, 24]") "b = constant i64[1] {3}\ne = constant i64[1] {11}\na = constant i64[1] {1}\n"
                  "y = onnx Slice@23 x, b, e, a\n}\n",
     {5, 24},
     {0},
     {5, 8}},
    {"gather", X("[n, 24]") "i = constant i64[3] {4, 0, 2}\ny = onnx Gather@23 x, i\n}\n", {5, 24}, {0}, {3, 24}},
    {"scatter",
     XW("[n, 24]", "[2, 24]") "i = constant i64[2, 1] {4, 0}\ny = onnx ScatterND@23 x, i, w\n}\n",
     {5, 24},
     {2, 24},
     {5, 24}},
    {"pad", X("[n, 24]") "p = constant i64[4] {1, 0, 2, 8}\ny = onnx Pad@23 x, p\n}\n", {5, 24}, {0}, {8, 32}},
    {"pool",
     X("[n, 8, 12, 12]") "y = onnx MaxPool@23 x {kernel_shape = [2, 2], strides = [2, 2]}\n}\n",
     {1, 8, 12, 12},
     {0},
     {1, 8, 6, 6}},
    {"resize",
     X("[n, 8, 6, 6]") "s = constant f32[4] {1, 1, 2, 2}\ny = onnx Resize@23 x, _, s {mode = \"linear\"}\n}\n",
     {1, 8, 6, 6},
     {0},
     {1, 8, 12, 12}},
};

static int rank_of(const int64_t *dims) {
    int rank = 0;
    while (rank < 4 && dims[rank]) rank++;
    return rank;
}

static OnnxfuseValue *place_on_device(const CudaDriver *api, OnnxfuseDType dtype, const int64_t *dims, size_t lead,
                                      CuDevicePointer *out_memory) {
    size_t item = dtype == ONNXFUSE_FLOAT16 ? 2 : 4, count = 1;
    OnnxfuseValue *value = NULL;
    int rank = rank_of(dims);
    for (int i = 0; i < rank; i++) count *= (size_t)dims[i];
    cr_assert(!api->allocate(out_memory, (count + lead) * item));
    OnnxfuseStatus status =
        onnxfuse_value_tensor_on_device(dtype, rank, dims, (void *)(uintptr_t)(*out_memory + lead * item), &value);
    cr_assert(!status, "%s", onnxfuse_status_message(status));
    return value;
}

static void run_placed(const Placed *p, OnnxfuseDType dtype) {
    char text[1024], when[128];
    const CudaDriver *api;
    CuContext primary;
    snprintf(text, sizeof text, p->text, dtype == ONNXFUSE_FLOAT16 ? "f16" : "f32");
    double_reset();
    double_set_property(DOUBLE_BLAS_REFUSES, p->plain);
    OnnxfuseSession *session = must_open_on_double(text);
    cr_assert(!cuda_load_driver(ONNXFUSE_CUDA_DOUBLES, &api) && !api->context_retain(&primary, 0));
    for (size_t lead = 0; lead <= 8; lead += lead ? lead : 1) {
        CuDevicePointer memory[3] = {0};
        double_set_context(primary);
        OnnxfuseValue *inputs[2] = {place_on_device(api, dtype, p->x, lead, &memory[0])};
        if (p->w[0]) inputs[1] = place_on_device(api, dtype, p->w, lead, &memory[1]);
        OnnxfuseValue *output = place_on_device(api, dtype, p->y, lead, &memory[2]);
        double_set_context(NULL);
        int before = double_launch_count();
        OnnxfuseStatus status = onnxfuse_session_run(session, (const OnnxfuseValue *const *)inputs, &output);
        snprintf(when, sizeof when, "%s of %s behind %zu elements", p->name, dtype == ONNXFUSE_FLOAT16 ? "f16" : "f32",
                 lead);
        cr_expect(!status, "%s: %s", when, onnxfuse_status_message(status));
        onnxfuse_status_free(status);
        cr_expect(double_launch_count() > before, "%s: no kernel ran", when);
        cr_expect(double_violations() == 0, "%s: %s", when, double_first_violation());
        double_set_context(primary);
        for (int i = 0; i < 3; i++)
            if (memory[i]) cr_expect(!api->release(memory[i]));
        double_set_context(NULL);
        for (int i = 0; i < 2; i++) onnxfuse_value_free(inputs[i]);
        onnxfuse_value_free(output);
    }
    api->context_release(0);
    close_all(session, p->name);
}

Test(cuda_sessions, kernels_are_launched_as_they_are_compiled_at_every_address, .timeout = 300) {
    for (size_t i = 0; i < sizeof placed / sizeof *placed; i++) {
        run_placed(&placed[i], ONNXFUSE_FLOAT32);
        run_placed(&placed[i], ONNXFUSE_FLOAT16);
    }
}

/* --- a forked child -------------------------------------------------------------------------------------------------- */
static bool says(OnnxfuseStatus status, const char *part) {
    bool good = onnxfuse_status_code(status) == ONNXFUSE_USAGE && strstr(onnxfuse_status_message(status), part);
    if (!good) fprintf(stderr, "the child: \"%s\"\n", onnxfuse_status_message(status));
    onnxfuse_status_free(status);
    return good;
}

/* The driver knows nothing of the child: no call of it must be made there. */
static int in_child(OnnxfuseSession *session) {
    OnnxfuseSession *own = NULL;
    OnnxfuseValue *x = value_from("f32[1, 3] {1, 2, 3}"), *y = NULL;
    int calls = double_calls();
    bool good =
        says(onnxfuse_session_run(session, (const OnnxfuseValue *const *)&x, &y), "before the process was forked");
    good &= says(open_on_double(product, &own), "used before the process was forked");
    onnxfuse_trim(session);
    onnxfuse_trim(NULL);
    onnxfuse_session_close(session);
    char *list = NULL;
    good &= !onnxfuse_devices(&list) && strstr(list, "used before the process was forked");
    onnxfuse_free(list);
    good &= double_calls() == calls;
    OnnxfuseStatus status = open_text("graph (x: f32[2]) -> (y) {\ny = onnx Neg@21 x\n}\n", NULL, &own);
    char *problem =
        status ? NULL : run_and_compare(own, &(const char *){"f32[2] {1, 2}"}, &(const char *){"f32[2] {-1, -2}"});
    good &= !status && !problem;
    onnxfuse_session_close(own);
    return good ? 0 : 1;
}

Test(cuda_sessions, a_forked_child_is_refused_and_leaves_the_device_alone) {
    OnnxfuseSession *session = must_open_on_double(product);
    char *problem =
        run_and_compare(session, &(const char *){"f32[1, 3] {1, 2, 3}"}, &(const char *){"f32[1, 2] {0, 29}"});
    cr_expect(!problem, "%s", problem);
    pid_t child = fork_at_rest();
    if (!child) {
        alarm(60);
        _exit(in_child(session));
    }
    int state = 1;
    waitpid(child, &state, 0);
    cr_expect_eq(state, 0, "status %x", (unsigned)state);
    problem = run_and_compare(session, &(const char *){"f32[1, 3] {1, 2, 3}"}, &(const char *){"f32[1, 2] {0, 29}"});
    cr_expect(!problem, "%s", problem);
    close_all(session, "a forked child");
}
