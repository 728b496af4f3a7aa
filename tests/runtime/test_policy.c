/* SPDX-License-Identifier: Apache-2.0 */
/* What a policy asks for when a session opens and runs: tolerances on recorded inputs, fallbacks, hints and buckets of
 * shapes. */
#include <criterion/criterion.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "importer/importer.h"
#include "models.h"
#include "runtime/api/session.h"
#include "skip.h"

static OnnxfuseStatus try_open(const char *text, const char *policy, OnnxfuseSession **out_session) {
    OnnxfuseOptions options = {.policy_json = policy};
    *out_session = NULL;
    return open_text(text, &options, out_session);
}

static OnnxfuseSession *open_with(const char *text, const char *policy) {
    OnnxfuseSession *session;
    OnnxfuseStatus status = try_open(text, policy, &session);
    cr_assert(!status, "%s: %s", policy, onnxfuse_status_message(status));
    return session;
}

static void expect_refused(const char *text, const char *policy, OnnxfuseCode code, const char *message) {
    OnnxfuseSession *session;
    OnnxfuseStatus status = try_open(text, policy, &session);
    cr_expect(status && onnxfuse_status_code(status) == code && strstr(onnxfuse_status_message(status), message),
              "%s: \"%s\", expected \"%s\"", policy, status ? onnxfuse_status_message(status) : "opened", message);
    onnxfuse_status_free(status);
    onnxfuse_session_close(session);
}

/* --- options over a policy --- */
Test(policy, overrides_go_before_it, .timeout = 30) {
    static const char model[] = "opset 17\ngraph (x: f32[3]) -> (y) {\n  y = onnx Exp@17 x # from e\n}\n";
    static const struct Row {
        const char *policy, *overrides, *message; /* message NULL: the session opens */
    } rows[] = {
        {"{\"shapes\": {\"buckets\": {}}}", "{\"cpu\": {\"threads\": 2}}", "options: cpu: unknown key"},
        {"{\"threads\": 0.5}", "{\"threads\": 2}", "policy: threads: 0.5 is not a whole number"},
        {"{\"threads\": 2}", "{\"threads\": 0.5}", "options: threads: 0.5 is not a whole number"},
        {NULL, "{\"threads\": 0.5}", "options: threads: 0.5 is not a whole number"},
        {"{\"threads\": 2}", "{", "options: line 1"},
        {"{\"threads\": 2}", "[]", "options: expected an object"},
        {"{\"fusion\": {\"enable\": true}}", "{\"fusion\": {\"enable\": false}}", NULL},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const struct Row *row = &rows[i];
        OnnxfuseOptions options = {
            .size = sizeof options, .policy_json = row->policy, .overrides = row->overrides, .threads = 1};
        OnnxfuseSession *session = NULL;
        OnnxfuseStatus status = open_text(model, &options, &session);
        const char *found = status ? onnxfuse_status_message(status) : NULL;
        cr_expect(row->message ? found && strstr(found, row->message) : !found, "%s: %s", row->overrides, found);
        if (!row->message) cr_expect(!session->policy.fusion.enable);
        onnxfuse_status_free(status);
        onnxfuse_session_close(session);
    }
}

/* --- tolerances --- */
static void write_file(const char *path, const void *bytes, size_t size) {
    FILE *file = fopen(path, "wb");
    cr_assert(file && fwrite(bytes, 1, size, file) == size, "%s", path);
    fclose(file);
}

static void write_input(const char *folder, int number, const char *text) {
    Arena *arena = arena_create(0);
    OnnxfuseValue *value = value_from(text);
    void *bytes;
    size_t size;
    Status status = item_to_memory(arena, &value->item, VALUE_TENSOR, "x", &bytes, &size);
    cr_assert(!status, "%s", status_message(status));
    write_file(arena_format(arena, "%s/input_%d.pb", folder, number), bytes, size);
    onnxfuse_value_free(value);
    arena_destroy(arena);
}

static void remove_folder(const char *path) {
    Arena *arena = arena_create(0);
    DIR *directory = opendir(path);
    for (struct dirent *entry; directory && (entry = readdir(directory));) {
        const char *inner = arena_format(arena, "%s/%s", path, entry->d_name);
        if (entry->d_name[0] == '.') continue;
        if (unlink(inner) != 0) remove_folder(inner);
    }
    if (directory) closedir(directory);
    rmdir(path);
    arena_destroy(arena);
}

static const char *const model = "graph (x: f32[n]) -> (y) {\nk = constant f32[] 3\ny = onnx Mul@21 x, k\n}\n";

Test(tolerance, inputs_that_agree_and_that_do_not) {
    char folder[] = "/tmp/onnxfuse_check_XXXXXX";
    cr_assert_not_null(mkdtemp(folder));
    Arena *arena = arena_create(0);
    const char *set = arena_format(arena, "%s/test_data_set_0", folder),
               *other = arena_format(arena, "%s/test_data_set_1", folder);
    cr_assert(mkdir(set, 0700) == 0 && mkdir(other, 0700) == 0);
    write_input(set, 0, "f32[2] {1, 2}");
    write_input(other, 0, "f32[2] {1.01, 1}");
    const char *policies[2];
    for (int i = 0; i < 2; i++)
        policies[i] =
            arena_format(arena, "{\"precision\": \"bf16\", \"tolerance\": %s, \"check\": {\"inputs\": \"%s\"}}",
                         i ? "1e-4" : "0.01", folder);
    const char *loose = policies[0], *strict = policies[1];
    onnxfuse_session_close(open_with(model, loose));
    expect_refused(model, strict, ONNXFUSE_DIFFERENT, "test_data_set_1\" output \"y\" differs by");
    expect_refused(model, strict, ONNXFUSE_DIFFERENT, "(precision bf16); the tolerance is 0.0001");
    const char *rule =
        arena_format(arena,
                     "{\"rules\": [{\"match\": {\"name\": \"*\"}, \"precision\": \"bf16\", \"tolerance\": "
                     "1e-4}], \"check\": {\"inputs\": \"%s\"}}",
                     other);
    expect_refused(model, rule, ONNXFUSE_DIFFERENT, "(rules[0]: precision bf16); rules[0].tolerance is 0.0001");
    write_file(arena_format(arena, "%s/input_0.pb", other), "\xff\xff\xff", 3);
    expect_refused(model, loose, ONNXFUSE_INVALID, "input_0.pb");
    write_input(other, 0, "f32[1, 2] {1, 2}");
    expect_refused(model, loose, ONNXFUSE_INVALID, "test_data_set_1");
    write_input(other, 0, "i64[2] {1, 2}");
    expect_refused(model, loose, ONNXFUSE_INVALID, "input \"x\"");
    unlink(arena_format(arena, "%s/input_0.pb", other));
    expect_refused(model, loose, ONNXFUSE_INVALID, "input_0.pb\", for input \"x\", is missing");
    remove_folder(set), remove_folder(other);
    expect_refused(model, loose, ONNXFUSE_INVALID, "has neither input_0.pb nor test_data_set_K");
    remove_folder(folder);
    expect_refused(model, loose, ONNXFUSE_INVALID, "cannot be read");
    arena_destroy(arena);
}

/* --- fallbacks --- */
Test(fallback, a_device_that_is_not_there) {
#define NOWHERE "\"device\": \"opencl\", \"opencl\": {\"library\": \"/nowhere/libOpenCL.so\"}"
    OnnxfuseSession *session;
    OnnxfuseStatus status = try_open(model, "{" NOWHERE "}", &session);
    cr_expect(status && !session, "without a fallback it is an error");
    onnxfuse_status_free(status);
    session = open_with(model, "{" NOWHERE ", \"fallback\": {\"device\": \"cpu\"}}");
    cr_expect_str_eq(onnxfuse_session_device_name(session), "cpu");
    char *wrong =
        run_and_compare(session, (const char *const[]){"f32[2] {1, 2}"}, (const char *const[]){"f32[2] {3, 6}"});
    cr_expect(!wrong, "%s", wrong);
    free(wrong);
    onnxfuse_session_close(session);
}

Test(fallback, steps_on_the_cpu) {
    static const char *const unique =
        "graph (x: f32[n]) -> (y, z) {\ny = onnx Exp@21 x\nz, _, _, _ = onnx Unique@21 x\n}\n";
    OnnxfuseSession *session;
    OnnxfuseStatus status =
        try_open(model, "{\"device\": \"opencl\", \"fallback\": {\"steps\": \"forbid\"}}", &session);
    skip_without_device(status);
    onnxfuse_session_close(session);
    session = open_with(unique, "{\"device\": \"opencl\"}");
    onnxfuse_session_close(session);
    expect_refused(unique, "{\"device\": \"opencl\", \"fallback\": {\"steps\": \"forbid\"}}", ONNXFUSE_UNSUPPORTED,
                   "policy: fallback.steps forbids steps on the CPU, but opencl has none for 1 node: \"Unique#1\"");
    session =
        open_with(unique, "{\"device\": \"opencl\", \"fallback\": {\"steps\": \"forbid\"}, \"rules\": [{\"match\": "
                          "{\"operator\": \"Unique\"}, \"device\": \"cpu\"}]}");
    onnxfuse_session_close(session);
    session = open_with(unique, "{\"device\": \"cpu\", \"fallback\": {\"steps\": \"forbid\"}}");
    onnxfuse_session_close(session);
}

/* --- hints --- */
static const char *const normal = "graph (x: f32[n, s]) -> (y) {\na = onnx Softmax@21 x {axis = 0}\n"
                                  "b = onnx Softmax@21 a {axis = -1}\nc = onnx Softmax@21 b {axis = 0}\n"
                                  "y = onnx Softmax@21 c {axis = -1}\n}\n";

static int64_t memory_of(const OnnxfuseSession *session) {
    OnnxfuseStats stats;
    onnxfuse_session_stats(session, &stats, sizeof stats);
    return stats.memory_bytes;
}

static void run_shape(OnnxfuseSession *session, int64_t n, int64_t s) {
    OnnxfuseValue *input, *output;
    cr_assert(!onnxfuse_value_tensor(ONNXFUSE_FLOAT32, 2, (int64_t[]){n, s}, NULL, &input));
    cr_assert(!onnxfuse_value_tensor(ONNXFUSE_FLOAT32, 2, (int64_t[]){n, s}, NULL, &output));
    OnnxfuseStatus status = onnxfuse_session_run(session, (const OnnxfuseValue *const[]){input}, &output);
    cr_assert(!status, "%s", onnxfuse_status_message(status));
    onnxfuse_value_free(input);
    onnxfuse_value_free(output);
}

Test(hints, the_first_run_takes_no_memory) {
    OnnxfuseSession *plain = open_with(normal, "{}"),
                    *hinted = open_with(normal, "{\"shapes\": {\"hints\": [{\"n\": 64, \"s\": 32}, {\"n\": 640, \"s\": "
                                                "320}, {\"n\": 641, \"s\": 320}]}}");
    cr_expect_eq(memory_of(plain), 0);
    int64_t before = memory_of(hinted);
    cr_expect(before > 0, "memory is there when the session opens");
    run_shape(hinted, 64, 32);
    run_shape(hinted, 640, 320);
    run_shape(hinted, 641, 320);
    cr_expect_eq(memory_of(hinted), before, "%ld bytes before the runs, %ld after", (long)before,
                 (long)memory_of(hinted));
    onnxfuse_session_close(plain);
    onnxfuse_session_close(hinted);
}

Test(hints, mistakes) {
    expect_refused(model, "{\"shapes\": {\"hints\": [{\"n\": 4}, {\"m\": 4}]}}", ONNXFUSE_INVALID,
                   "policy: shapes.hints[1].m: no input of the model has such a size");
    static const char *const two = "graph (x: f32[n, s]) -> (y) {\ny = onnx Exp@21 x\n}\n";
    expect_refused(two, "{\"shapes\": {\"hints\": [{\"n\": 4}]}}", ONNXFUSE_INVALID,
                   "policy: shapes.hints[0]: the size \"s\" is missing");
    expect_refused(normal, "{\"shapes\": {\"hints\": [{\"n\": 1000000000, \"s\": 1000000000}]}}", ONNXFUSE_FAULT,
                   "policy: shapes.hints[0]: out of memory");
}

/* --- buckets --- */
/* The sum shows the padding, the product is cropped. */
static const char *const padded_model = "graph (x: f32[n, s], w: i32[s]) -> (p, t) {\n"
                                        "k = constant i64[1] {1}\n"
                                        "f = onnx Cast@21 w {to = 1}\n"
                                        "p = onnx Mul@21 x, f\n"
                                        "t = onnx ReduceSum@21 p, k {keepdims = 0}\n"
                                        "}\n";
#define BUCKETS "{\"shapes\": {\"buckets\": {\"s\": {\"sizes\": [2, 4], \"pad\": {\"x\": 10, \"w\": 1}}}}}"

static const struct {
    const char *name, *x, *w, *p, *t;
} bucket_rows[] = {
    {"a size of a bucket", "f32[1, 2] {1, 2}", "i32[2] {3, 4}", "f32[1, 2] {3, 8}", "f32[1] {11}"},
    {"a size below the first", "f32[1, 1] {1}", "i32[1] {3}", "f32[1, 1] {3}", "f32[1] {13}"},
    {"a size between", "f32[2, 3] {1, 2, 3, 4, 5, 6}", "i32[3] {1, 2, 3}", "f32[2, 3] {1, 4, 9, 4, 10, 18}",
     "f32[2] {24, 42}"},
    {"a size above the largest", "f32[1, 5] {1, 1, 1, 1, 1}", "i32[5] {1, 1, 1, 1, 1}", "f32[1, 5] {1, 1, 1, 1, 1}",
     "f32[1] {5}"},
    {"nothing", "f32[1, 0] {}", "i32[0] {}", "f32[1, 0] {}", "f32[1] {20}"},
};

Test(buckets, inputs_are_padded_and_outputs_cropped) {
    OnnxfuseSession *session = open_with(padded_model, BUCKETS);
    for (size_t i = 0; i < sizeof bucket_rows / sizeof *bucket_rows; i++) {
        char *wrong = run_and_compare(session, (const char *const[]){bucket_rows[i].x, bucket_rows[i].w},
                                      (const char *const[]){bucket_rows[i].p, bucket_rows[i].t});
        cr_expect(!wrong, "%s: %s", bucket_rows[i].name, wrong);
        free(wrong);
    }
    cr_expect(memory_of(session) < 4096, "padded inputs go when their run is over");
    onnxfuse_session_close(session);
}

Test(buckets, given_outputs) {
    OnnxfuseSession *session = open_with(padded_model, BUCKETS);
    OnnxfuseValue *inputs[] = {value_from("f32[1, 3] {1, 2, 3}"), value_from("i32[3] {1, 1, 2}")};
    float result[4] = {-1, -1, -1, -1};
    OnnxfuseValue *outputs[2] = {NULL, NULL};
    cr_assert(!onnxfuse_value_tensor(ONNXFUSE_FLOAT32, 2, (int64_t[]){1, 3}, result, &outputs[0]));
    OnnxfuseStatus status = onnxfuse_session_run(session, (const OnnxfuseValue *const *)inputs, outputs);
    cr_assert(!status, "%s", onnxfuse_status_message(status));
    cr_expect(result[0] == 1 && result[1] == 2 && result[2] == 6 && result[3] == -1);
    onnxfuse_value_free(outputs[0]);
    onnxfuse_value_free(outputs[1]);
    outputs[1] = NULL;
    cr_assert(!onnxfuse_value_tensor(ONNXFUSE_FLOAT32, 2, (int64_t[]){1, 4}, result, &outputs[0]));
    status = onnxfuse_session_run(session, (const OnnxfuseValue *const *)inputs, outputs);
    cr_expect(status && strstr(onnxfuse_status_message(status), "output \"p\": the given buffer has another shape"));
    cr_expect_null(outputs[1]);
    onnxfuse_status_free(status);
    for (int i = 0; i < 2; i++) onnxfuse_value_free(inputs[i]);
    onnxfuse_value_free(outputs[0]);
    onnxfuse_session_close(session);
}

/* Sizes that disagree must not agree once they are padded. */
Test(buckets, inputs_that_disagree) {
    OnnxfuseSession *session = open_with(padded_model, BUCKETS);
    OnnxfuseValue *inputs[] = {value_from("f32[1, 3] {1, 2, 3}"), value_from("i32[4] {1, 1, 2, 2}")}, *outputs[2] = {0};
    OnnxfuseStatus status = onnxfuse_session_run(session, (const OnnxfuseValue *const *)inputs, outputs);
    cr_expect(status && strstr(onnxfuse_status_message(status), "input \"w\": axis 0 has 4 elements, but \"s\" is 3"),
              "%s", status ? onnxfuse_status_message(status) : "");
    onnxfuse_status_free(status);
    for (int i = 0; i < 2; i++) onnxfuse_value_free(inputs[i]);
    onnxfuse_session_close(session);
}

Test(buckets, mistakes) {
#define BUCKET(pad) "{\"shapes\": {\"buckets\": {\"s\": {\"sizes\": [2], \"pad\": {" pad "}}}}}"
    expect_refused(padded_model, BUCKET("\"x\": 0"), ONNXFUSE_INVALID,
                   "policy: shapes.buckets.s.pad: input \"w\" has this size too, and is not named");
    expect_refused(padded_model, BUCKET("\"x\": 0, \"w\": 0, \"v\": 1"), ONNXFUSE_INVALID,
                   "policy: shapes.buckets.s.pad.v: no input of this name has this size");
    expect_refused(padded_model, BUCKET("\"x\": 0, \"w\": 0.5"), ONNXFUSE_INVALID,
                   "policy: shapes.buckets.s.pad.w: 0.5 is no int32");
    expect_refused(padded_model, BUCKET("\"x\": 0, \"w\": 3000000000"), ONNXFUSE_INVALID,
                   "policy: shapes.buckets.s.pad.w: 3e+09 is no int32");
    expect_refused(model, BUCKET("\"x\": 0"), ONNXFUSE_INVALID,
                   "policy: shapes.buckets.s: no input of the model has such a size");
    expect_refused("graph (x: f32[s]) -> (y) {\ny = onnx Concat@21 x, x {axis = 0}\n}\n", BUCKET("\"x\": 0"),
                   ONNXFUSE_INVALID,
                   "policy: shapes.buckets.s: output \"y\" has the size s*2, which cannot be cropped");
    expect_refused("graph (x: string[s]) -> (y) {\ny = onnx Identity@21 x\n}\n", BUCKET("\"x\": 0"), ONNXFUSE_INVALID,
                   "policy: shapes.buckets.s.pad.x: an input of string cannot be padded");
}

/* --- the order of least memory ------------------------------------------------------------------------------------ */
/* All products first, then what is left of each: the order of the file holds every product at once. */
static const char *branched(Arena *arena, int branches) {
    Text text = text_make(arena);
    text_add(&text, "graph (x: f32[n, 4], z: f32[4, n]) -> (y) {\nk = constant i64[2] {0, 1}\n");
    for (int i = 0; i < branches; i++)
        text_add(
            &text,
            "c%d = constant f32[] %d.5\na%d = onnx Exp@21 x\nm%d = onnx Mul@21 a%d, c%d\np%d = onnx MatMul@21 m%d, z\n",
            i, i + 1, i, i, i, i, i, i);
    for (int i = 0; i < branches; i++) text_add(&text, "r%d = onnx ReduceMax@21 p%d, k {keepdims = 1}\n", i, i);
    text_add(&text, "s0 = onnx Neg@21 r0\n");
    for (int i = 1; i < branches; i++) text_add(&text, "s%d = onnx Add@21 s%d, r%d\n", i, i - 1, i);
    text_add(&text, "y = onnx Neg@21 s%d\n}\n", branches - 1);
    return text.data;
}

static int64_t planned(const char *text, const char *policy, float *out_result) {
    OnnxfuseSession *session = open_with(text, policy);
    enum { N = 96 };
    float x[N * 4];
    for (int i = 0; i < N * 4; i++) x[i] = (float)(i % 7) / 8;
    OnnxfuseValue *inputs[2], *output = NULL;
    cr_assert(!onnxfuse_value_tensor(ONNXFUSE_FLOAT32, 2, (int64_t[]){N, 4}, x, &inputs[0]));
    cr_assert(!onnxfuse_value_tensor(ONNXFUSE_FLOAT32, 2, (int64_t[]){4, N}, x, &inputs[1]));
    OnnxfuseStatus status = onnxfuse_session_run(session, (const OnnxfuseValue *const *)inputs, &output);
    cr_assert(!status, "%s", onnxfuse_status_message(status));
    *out_result = *(const float *)onnxfuse_value_data(output);
    OnnxfuseStats stats;
    onnxfuse_session_stats(session, &stats, sizeof stats);
    for (int i = 0; i < 2; i++) onnxfuse_value_free(inputs[i]);
    onnxfuse_value_free(output);
    onnxfuse_session_close(session);
    return stats.arena_bytes;
}

Test(memory_efficient, lowers_the_planned_peak) {
    Arena *arena = arena_create(0);
    const char *text = branched(arena, 8);
    float results[3];
    int64_t usual = planned(text, "{}", &results[0]),
            least = planned(text, "{\"fusion\": {\"memory_efficient\": true}}", &results[1]),
            unfused = planned(text, "{\"fusion\": {\"memory_efficient\": true, \"enable\": false}}", &results[2]);
    cr_expect(least * 3 < usual && unfused * 3 < usual, "%ld bytes, memory-efficient %ld, unfused %ld", (long)usual,
              (long)least, (long)unfused);
    cr_expect(results[0] == results[1] && results[0] == results[2]);
    arena_destroy(arena);
}

/* --- inspect ---------------------------------------------------------------------------------------------------- */
static char *inspected(const char *text, const char *policy, const char *stage) {
    char path[] = "/tmp/onnxfuse_policy_XXXXXX.onnx", *out = NULL;
    size_t size;
    void *bytes = model_bytes(text, &size);
    int file = mkstemps(path, 5);
    cr_assert(file >= 0 && write(file, bytes, size) == (ssize_t)size);
    close(file);
    OnnxfuseOptions options = {.policy_json = policy, .threads = 2};
    OnnxfuseStatus status = onnxfuse_inspect(path, &options, stage, "text", &out);
    cr_assert(!status, "%s: %s", policy, onnxfuse_status_message(status));
    unlink(path);
    free(bytes);
    return out;
}

static void expect_lines(const char *text, const char *policy, const char *const *lines) {
    char *out = inspected(text, policy, "policy");
    for (; *lines; lines++) cr_expect(strstr(out, *lines), "\"%s\" is missing in\n%s", *lines, out);
    onnxfuse_free(out);
}

Test(inspect, what_each_switch_did) {
    static const char *const norm =
        "graph (x: f32[n, 64]) -> (y) {\ng = constant f32[64] {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, "
        "1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, "
        "1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1}\n"
        "e = constant f32[] 1e-6\nb = constant i64[1] {-1}\n"
        "s = onnx Mul@21 x, x\nm = onnx ReduceMean@21 s, b {keepdims = 1}\n"
        "a = onnx Add@21 m, e\nr = onnx Sqrt@21 a\nd = onnx Div@21 x, r\n"
        "y = onnx Mul@21 d, g\n}\n";
    expect_lines(
        norm,
        "{\"kernel_fusion\": {\"enable\": true, \"memory_efficient_fusion\": true, \"custom_cuda_kernels\": "
        "[\"FusedRMSNorm\", \"FusedNoRepeatNGram\"]}}",
        (const char *const[]){"file     fusion.enable            true\n", "file     fusion.memory_efficient  true\n",
                              "file     fusion.custom_kernels    FusedRMSNorm, FusedNoRepeatNGram\n",
                              "flag     threads                  2\n", "default  seed                     0\n",
                              "\nfusion FusedRMSNorm: 6 nodes\n    Mul#0\n", "\nfusion FusedNoRepeatNGram: no node\n",
                              ": FusedRMSNorm, one kernel\n", "# it runs on: cpu\n", NULL});
    expect_lines(norm,
                 "{\"fusion\": {\"enable\": false}, \"rules\": [{\"match\": {\"operator\": \"Sqrt\"}, \"precision\": "
                 "\"f16\"}, {\"match\": {\"operator\": \"Conv\"}, \"fuse\": false, \"optional\": true}]}",
                 (const char *const[]){
                     "file     fusion.enable            false\n", "rules[0]: operator \"Sqrt\" -> precision f16\n",
                     "\nrules[0]: precision f16: 1 node\n    Sqrt#3\n", "\nrules[1]: no node\n", NULL});
}

static long planned_in(const char *text, const char *policy, const char *before) {
    char *out = inspected(text, policy, "policy"), *at = strstr(out, before);
    cr_assert_not_null(at, "\"%s\" is missing in\n%s", before, out);
    long bytes = strtol(at + strlen(before), NULL, 10);
    onnxfuse_free(out);
    return bytes;
}

Test(inspect, planned_memory) {
    Arena *arena = arena_create(0);
    const char *text = branched(arena, 8), *line = "# planned memory of a run of shapes.hints[0]: ";
    long usual = planned_in(text, "{\"shapes\": {\"hints\": [{\"n\": 128}]}}", line),
         least = planned_in(text, "{\"shapes\": {\"hints\": [{\"n\": 128}]}, \"fusion\": {\"memory_efficient\": true}}",
                            line);
    cr_expect(usual >= 8 * 128 * 128 * 4 && least * 3 < usual, "%ld and %ld bytes", usual, least);
    cr_expect(
        planned_in("graph (x: f32[300, 300]) -> (y) {\na = onnx Softmax@21 x {axis = 0}\ny = onnx Softmax@21 a {axis = "
                   "1}\n}\n",
                   "{}", "# planned memory of a run: ") >= 300 * 300 * 4);
    arena_destroy(arena);
}

/* --- results in the memory of what the epilogue reads --------------------------------------------------------------- */
#define TWO_PRODUCTS                                                                                                   \
    "graph (x: f32[n, 64], w: f32[64, 64], v: f32[64, 64]) -> (y) {\n"                                                 \
    "a = onnx MatMul@21 x, w\nb = onnx MatMul@21 x, v\n"

#define ONES_8 "1, 1, 1, 1, 1, 1, 1, 1"
#define ONES_64 ONES_8 ", " ONES_8 ", " ONES_8 ", " ONES_8 ", " ONES_8 ", " ONES_8 ", " ONES_8 ", " ONES_8

typedef struct Sharing {
    const char *name, *text;
    bool shares; /* a result is in an input's memory */
} Sharing;

static const Sharing sharings[] = {
    {"an addend", TWO_PRODUCTS "c = onnx Add@21 a, b\ny = onnx MatMul@21 c, w\n}\n", true},
    {"a gate", TWO_PRODUCTS "s = onnx Sigmoid@21 a\nc = onnx Mul@21 s, b\ny = onnx MatMul@21 c, w\n}\n", true},
    {"an addend that is read later",
     TWO_PRODUCTS "c = onnx Add@21 a, b\nd = onnx MatMul@21 c, w\ny = onnx MatMul@21 d, a\n}\n", false},
    {"an addend that is also a factor",
     "graph (x: f32[n, 64], w: f32[64, 64]) -> (y) {\n"
     "a = onnx MatMul@21 x, w\nb = onnx MatMul@21 a, w\nc = onnx Add@21 a, b\ny = onnx MatMul@21 c, w\n}\n",
     false},
    {"one row for all",
     "graph (x: f32[n, 64], z: f32[1, 64], w: f32[64, 64]) -> (y) {\n"
     "a = onnx MatMul@21 z, w\nb = onnx MatMul@21 x, w\nc = onnx Add@21 a, b\ny = onnx MatMul@21 c, w\n}\n",
     false},
    {"another result for the caller", TWO_PRODUCTS "y = onnx Add@21 a, b\n}\n", false},
    /* The convolution of channels one by one runs within the next, and reads what that adds around the element. */
    {"an addend that a prologue reads",
     "graph (x: f32[1, 8, 96, 96]) -> (y) {\n"
     "w = constant f32[8, 8, 1, 1] {" ONES_64 "}\nd = constant f32[8, 1, 3, 3] {" ONES_64 ", " ONES_8 "}\n"
     "a = onnx Conv@21 x, w\nb = onnx Conv@21 a, d {pads = [1, 1, 1, 1], group = 8}\nc = onnx Conv@21 b, w\n"
     "e = onnx Add@21 c, a\ny = onnx Conv@21 e, w\n}\n",
     false},
};

#define TWO_PARTS(channels)                                                                                            \
    "graph (x: f32[n, 16, h, 9], w: f32[16, 16, 1, 1]) -> (y) {\n"                                                     \
    "a = onnx Conv@21 x, w\nb = onnx Relu@21 a\nc = onnx MaxPool@21 a {kernel_shape = [1, 1]}\n"                       \
    "d = onnx Concat@21 " channels "\n"
#define ONES_512 ONES_64 ", " ONES_64 ", " ONES_64 ", " ONES_64 ", " ONES_64 ", " ONES_64 ", " ONES_64 ", " ONES_64
#define OVER_32 "v = constant f32[16, 32, 1, 1] {" ONES_512 "}\n"

/* Concats of channels that a convolution of 1x1 reads where its parts stand. */
static const struct {
    const char *name, *text;
    bool within;
} joined[] = {
    {"one reader", TWO_PARTS("b, c {axis = 1}") OVER_32 "y = onnx Conv@21 d, v\n}\n", true},
    {"two readers",
     TWO_PARTS("b, c {axis = 1}") OVER_32 "e = onnx Conv@21 d, v\nf = onnx Sigmoid@21 e\ng = onnx Conv@21 d, v\n"
                                          "y = onnx Mul@21 f, g\n}\n",
     true},
    {"another reader",
     TWO_PARTS("b, c {axis = 1}") OVER_32
     "e = onnx Conv@21 d, v\nf = onnx Sigmoid@21 d\ng = onnx Conv@21 f, v\ny = onnx Add@21 e, g\n}\n",
     false},
    {"a result of the model too",
     "graph (x: f32[n, 16, h, 9], z: f32[n, 16, h, 9]) -> (y, d) {\n" OVER_32 "d = onnx Concat@21 x, z {axis = 1}\n"
     "y = onnx Conv@21 d, v\n}\n",
     false},
    {"lines", TWO_PARTS("b, c {axis = 2}") "y = onnx Conv@21 d, w\n}\n", false},
    {"a weight of the run",
     "graph (x: f32[n, 16, h, 9], z: f32[n, 16, h, 9], v: f32[16, 32, 1, 1]) -> (y) {\n"
     "d = onnx Concat@21 x, z {axis = 1}\ny = onnx Conv@21 d, v\n}\n",
     false},
    {"a convolution by strides", TWO_PARTS("b, c {axis = 1}") OVER_32 "y = onnx Conv@21 d, v {strides = [2, 2]}\n}\n",
     false},
};

Test(inspect, concats_by_pointers) {
    for (size_t i = 0; i < sizeof joined / sizeof *joined; i++) {
        char *out = inspected(joined[i].text, "{}", "plan");
        cr_expect(!!strstr(out, "concat within") == joined[i].within, "%s:\n%s", joined[i].name, out);
        onnxfuse_free(out);
    }
}

/* Ranges of one value that follow each other are joined to a longer range, which is all of it or is copied once. */
Test(inspect, joined_ranges) {
    static const struct {
        const char *parts;
        bool joined, sliced;
    } cases[] = {{"a, b, c", false, false},
                 {"b, c", false, true},
                 {"a, c", true, true},
                 {"c, a, b", true, true},
                 {"x, a, b, c, c", true, true}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[400];
        snprintf(text, sizeof text,
                 "graph (x: f32[n, 24, h]) -> (y) {\na, b, c = onnx Split@21 x {axis = 1, num_outputs = 3}\n"
                 "d = onnx Concat@21 %s {axis = 1}\ny = onnx CumSum@21 d, e\n}\n",
                 cases[i].parts);
        char *at = strstr(text, "d = "), with[480];
        snprintf(with, sizeof with, "%.*se = constant i64[] 1\n%s", (int)(at - text), text, at);
        char *out = inspected(with, "{}", "lower");
        cr_expect(!!strstr(out, "concat") == cases[i].joined && !!strstr(out, "slice") == cases[i].sliced, "%s:\n%s",
                  cases[i].parts, out);
        onnxfuse_free(out);
    }
}

Test(inspect, results_in_place) {
    for (size_t i = 0; i < sizeof sharings / sizeof *sharings; i++) {
        char *out = inspected(sharings[i].text, "{}", "plan");
        cr_expect(!!strchr(out, '@') == sharings[i].shares, "%s:\n%s", sharings[i].name, out);
        onnxfuse_free(out);
    }
}
