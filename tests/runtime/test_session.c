/* SPDX-License-Identifier: Apache-2.0 */
/* Sessions through the public interface alone: opening, describing, running, and every way in which a caller can be
 * wrong. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "models.h"

#define CHAIN                                                                                                          \
    "graph (x: f32[n, 4], b: f32[4]) -> (y, z) {\n"                                                                    \
    "a = onnx Add@21 x, b\ny = onnx Relu@21 a\nz = onnx ReduceSum@21 y {keepdims = 0}\n}\n"

/* What must be an error: its code and a part of its message. */
static void expect_error(OnnxfuseStatus status, OnnxfuseCode code, const char *part, const char *name) {
    cr_expect(status && onnxfuse_status_code(status) == code && strstr(onnxfuse_status_message(status), part),
              "%s: code %d, expected %d; \"%s\" should hold \"%s\"", name, onnxfuse_status_code(status), code,
              onnxfuse_status_message(status), part);
    onnxfuse_status_free(status);
}

static void expect_result(OnnxfuseSession *session, const char *const *inputs, const char *const *outputs) {
    char *problem = run_and_compare(session, inputs, outputs);
    cr_expect(!problem, "%s", problem);
    free(problem);
}

/* --- opening -------------------------------------------------------------------------------------------------- */
Test(session, files) {
    OnnxfuseSession *session = NULL;
    char path[] = "/tmp/onnxfuse_session_XXXXXX";
    int file = mkstemp(path);
    size_t size;
    void *bytes = model_bytes(CHAIN, &size);
    cr_assert(file >= 0 && write(file, bytes, size) == (ssize_t)size);
    OnnxfuseOptions options = {.policy_json = "{\"cache\": {\"enable\": false}}"};
    OnnxfuseStatus status = onnxfuse_session_open(path, &options, &session);
    cr_assert(!status, "%s", onnxfuse_status_message(status));
    expect_result(session, (const char *[]){"f32[1, 4] {1, -2, 3, -4}", "f32[4] {1, 1, 1, 1}"},
                  (const char *[]){"f32[1, 4] {2, 0, 4, 0}", "f32[] 6"});
    onnxfuse_session_close(session);
    cr_assert(ftruncate(file, (off_t)size / 2) == 0);
    expect_error(onnxfuse_session_open(path, &options, &session), ONNXFUSE_INVALID, path, "half a file");
    cr_assert(ftruncate(file, 0) == 0);
    expect_error(onnxfuse_session_open(path, &options, &session), ONNXFUSE_INVALID, "", "an empty file");
    close(file);
    unlink(path);
    expect_error(onnxfuse_session_open(path, &options, &session), ONNXFUSE_INVALID, path, "no file");
    expect_error(onnxfuse_session_open("/tmp", &options, &session), ONNXFUSE_INVALID, "/tmp", "a folder");
    free(bytes);
}

Test(session, wrong_models) {
    static const struct {
        const char *name, *text;
        OnnxfuseCode code;
        const char *part;
    } rows[] = {
        {"an operator that does not exist", "graph (x: f32[1]) -> (y) {\ny = onnx Frobnicate@21 x # from here\n}",
         ONNXFUSE_UNSUPPORTED, "Frobnicate"},
        {"a foreign domain", "opset 21\nopset \"acme\" 1\ngraph (x: f32[1]) -> (y) {\ny = onnx \"acme\" Foo@1 x\n}",
         ONNXFUSE_UNSUPPORTED, "acme"},
        {"shapes that do not broadcast", "graph (x: f32[3], z: f32[2]) -> (y) {\ny = onnx Add@21 x, z\n}",
         ONNXFUSE_INVALID, "Add"},
        {"a carried value of several ranks",
         "graph (t: i64[], c: bool[], x: f32[n, 1]) -> (y) {\n"
         "y = onnx Loop@21 t, _, x, c captures 1 graph \"body\" (i: i64[], k: bool[], v: f32[n, 1], c: bool[]) -> (k, "
         "r) {\n"
         "r = onnx If@21 c, v captures 1 graph \"then\" (x: f32[n, 1]) -> (a) {\n"
         "axis = constant i64[1] {1}\na = onnx Squeeze@21 x, axis\n} graph \"else\" (x: f32[n, 1]) -> (b) {\n"
         "b = onnx Identity@21 x\n}\n}\n}\n",
         ONNXFUSE_UNSUPPORTED, "number of axes is not the same in every iteration"},
        {"types that differ", "graph (x: f32[3], z: i64[3]) -> (y) {\ny = onnx Add@21 x, z\n}", ONNXFUSE_INVALID,
         "Add"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        OnnxfuseSession *session = NULL;
        expect_error(open_text(rows[i].text, NULL, &session), rows[i].code, rows[i].part, rows[i].name);
        cr_expect(!session, "%s", rows[i].name);
    }
}

Test(session, wrong_options) {
    static const struct {
        const char *name;
        OnnxfuseOptions options;
        OnnxfuseCode code;
        const char *part;
    } rows[] = {
        {"a device that does not exist", {.device = "abacus"}, ONNXFUSE_USAGE, "abacus"},
        {"a GPU library that is not there",
         {.device = "cuda", .policy_json = "{\"cuda\": {\"libraries\": \"/nonexistent\"}}"},
         ONNXFUSE_USAGE,
         "cuda"},
        {"an OpenCL library that is not there",
         {.device = "opencl", .policy_json = "{\"opencl\": {\"library\": \"/nonexistent.so\"}}"},
         ONNXFUSE_USAGE,
         "/nonexistent.so"},
        {"threads below 0", {.threads = -1}, ONNXFUSE_USAGE, "threads"},
        {"absurdly many threads", {.threads = 1 << 20}, ONNXFUSE_USAGE, "threads"},
        {"a policy that is no JSON", {.policy_json = "{"}, ONNXFUSE_INVALID, "JSON"},
        {"a policy key that does not exist", {.policy_json = "{\"fussion\": {}}"}, ONNXFUSE_INVALID, "fussion"},
        {"a policy file that is missing", {.policy_file = "/nonexistent.json"}, ONNXFUSE_INVALID, "/nonexistent.json"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        OnnxfuseSession *session = NULL;
        expect_error(open_text(CHAIN, &rows[i].options, &session), rows[i].code, rows[i].part, rows[i].name);
    }
    onnxfuse_session_close(NULL);
}

/* --- describing ----------------------------------------------------------------------------------------------- */
Test(session, names_and_shapes) {
    OnnxfuseSession *session = must_open("graph (x: f32[n, 4], %\"odd name\": i64[2]) -> (y, z) {\n"
                                         "y = onnx Concat@21 x, x {axis = 0}\n"
                                         "z = onnx Neg@21 %\"odd name\"\n}\n");
    cr_assert(onnxfuse_session_input_count(session) == 2 && onnxfuse_session_output_count(session) == 2);
    const OnnxfuseValueInfo *x = onnxfuse_session_input(session, 0), *odd = onnxfuse_session_input(session, 1);
    cr_expect_str_eq(x->name, "x");
    cr_expect(x->dtype == ONNXFUSE_FLOAT32 && x->rank == 2 && x->dims[0] == -1 && x->dims[1] == 4);
    cr_expect_str_eq(x->symbols[0], "n");
    cr_expect(!x->symbols[1] && !x->random && x->kind == ONNXFUSE_PROTO_TENSOR);
    cr_expect_str_eq(odd->name, "odd name");
    cr_expect(odd->dtype == ONNXFUSE_INT64 && odd->dims[0] == 2);
    const OnnxfuseValueInfo *y = onnxfuse_session_output(session, 0);
    cr_expect_str_eq(y->name, "y");
    cr_expect(y->dims[0] == -1 && y->dims[1] == 4);
    cr_expect_str_eq(y->symbols[0], "n*2");
    cr_expect_str_eq(onnxfuse_session_output(session, 1)->name, "z");
    cr_expect(!onnxfuse_session_input(session, 2) && !onnxfuse_session_input(session, -1) &&
              !onnxfuse_session_output(session, 2));
    onnxfuse_session_close(session);
}

Test(session, random_outputs_are_told) {
    OnnxfuseSession *session = must_open("graph (x: f32[8]) -> (y, z) {\n"
                                         "r = onnx RandomNormalLike@21 x\ny = onnx Add@21 r, x\nz = onnx Neg@21 x\n}");
    cr_expect(onnxfuse_session_output(session, 0)->random && !onnxfuse_session_output(session, 1)->random);
    onnxfuse_session_close(session);
}

/* --- wrong inputs --------------------------------------------------------------------------------------------- */
Test(session, wrong_inputs) {
    static const struct {
        const char *name, *inputs[2], *part;
    } rows[] = {
        {"another element type", {"f64[1, 4] {1, 2, 3, 4}", "f32[4] {1, 1, 1, 1}"}, "\"x\""},
        {"a rank too low", {"f32[4] {1, 2, 3, 4}", "f32[4] {1, 1, 1, 1}"}, "\"x\""},
        {"a rank too high", {"f32[1, 1, 4] {1, 2, 3, 4}", "f32[4] {1, 1, 1, 1}"}, "\"x\""},
        {"a declared size that differs", {"f32[1, 3] {1, 2, 3}", "f32[4] {1, 1, 1, 1}"}, "\"x\""},
        {"the second input's size", {"f32[1, 4] {1, 2, 3, 4}", "f32[3] {1, 1, 1}"}, "\"b\""},
        {"a missing input", {"f32[1, 4] {1, 2, 3, 4}", NULL}, "\"b\""},
        {"a sequence for a tensor", {"seq f32[1] {1}", "f32[4] {1, 1, 1, 1}"}, "\"x\""},
        {"an absent optional for a tensor", {"none", "f32[4] {1, 1, 1, 1}"}, "\"x\""},
    };
    OnnxfuseSession *session = must_open(CHAIN);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        OnnxfuseValue *in[2] = {NULL}, *out[2] = {NULL};
        for (int k = 0; k < 2; k++) in[k] = rows[i].inputs[k] ? value_from(rows[i].inputs[k]) : NULL;
        expect_error(onnxfuse_session_run(session, (const OnnxfuseValue *const *)in, out), ONNXFUSE_INVALID,
                     rows[i].part, rows[i].name);
        cr_expect(!out[0] && !out[1], "%s: outputs stay NULL", rows[i].name);
        for (int k = 0; k < 2; k++) onnxfuse_value_free(in[k]);
    }
    expect_result(session, (const char *[]){"f32[2, 4] {1, 2, 3, 4, -5, -6, -7, -8}", "f32[4] {0, 0, 0, 0}"},
                  (const char *[]){"f32[2, 4] {1, 2, 3, 4, 0, 0, 0, 0}", "f32[] 10"});
    onnxfuse_session_close(session);
}

Test(session, sizes_shared_by_inputs_must_agree) {
    OnnxfuseSession *session = must_open("graph (x: f32[n], y: f32[n]) -> (z) {\nz = onnx Mul@21 x, y\n}");
    OnnxfuseValue *in[2] = {value_from("f32[2] {1, 2}"), value_from("f32[3] {1, 2, 3}")}, *out = NULL;
    expect_error(onnxfuse_session_run(session, (const OnnxfuseValue *const *)in, &out), ONNXFUSE_INVALID, "\"y\"",
                 "n is 2 and 3");
    onnxfuse_value_free(in[0]);
    onnxfuse_value_free(in[1]);
    onnxfuse_session_close(session);
}

/* What would change how many axes there are, or leave some over. */
Test(session, open_sizes_that_do_not_fit) {
    static const struct {
        const char *text, *inputs[3], *part;
    } rows[] = {
        {"graph (x: f32[n, 1]) -> (y) {\na = onnx Neg@21 x\ny = onnx Squeeze@21 a\n}",
         {"f32[1, 1] {1}"},
         "Squeeze without axes"},
        {"opset 23\ngraph (q: f32[b, h, s, 1], k: f32[b, g, t, 1], v: f32[b, g, t, 1]) -> (y) {\ny = onnx Attention@23 "
         "q, k, v\n}",
         {"f32[1, 3, 1, 1] {1, 2, 3}", "f32[1, 2, 1, 1] {1, 1}", "f32[1, 2, 1, 1] {5, 7}"},
         "reshaped"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        OnnxfuseSession *session = must_open(rows[i].text);
        OnnxfuseValue *in[3] = {NULL}, *out = NULL;
        for (int k = 0; k < 3; k++) in[k] = rows[i].inputs[k] ? value_from(rows[i].inputs[k]) : NULL;
        expect_error(onnxfuse_session_run(session, (const OnnxfuseValue *const *)in, &out), ONNXFUSE_INVALID,
                     rows[i].part, rows[i].text);
        for (int k = 0; k < 3; k++) onnxfuse_value_free(in[k]);
        onnxfuse_session_close(session);
    }
}

/* What is declared of a sequence's or optional's tensors holds too. */
Test(session, wrong_sequences) {
    static const char *const models[] = {
        "graph (q: seq(f32[p])) -> (y) {\nz = constant i64[] 0\ny = onnx SequenceAt@21 q, z\n}",
        "graph (q: seq(f32[p])) -> (y) {\ny = onnx ConcatFromSequence@21 q {axis = 0}\n}",
        "graph (q: seq(f32[p])) -> (y) {\nz = constant i64[] 0\na = onnx SequenceAt@21 q, z\ny = onnx Exp@21 a\n}",
        "graph (q: seq(f32[p])) -> (r) {\nr = onnx SequenceMap@21 q captures 0 graph \"body\" (a: f32[p]) -> (c) {\n"
        "c = onnx Neg@21 a\n}\n}",
        "graph (q: opt(f32[p])) -> (y) {\na = onnx OptionalGetElement@21 q\ny = onnx Neg@21 a\n}",
    };
    static const char *const inputs[] = {"seq i8[3] {1, 2, 3}",
                                         "seq f64[3] {1, 2, 3} | f64[1] {2}",
                                         "seq f32[1] {1} | i64[2] {1, 2}",
                                         "seq string[2] {\"a\", \"b\"}",
                                         "seq f32[] 1 | f32[2, 2] {1, 2, 3, 4}",
                                         "i64[3] {1, 2, 3}",
                                         "string[1] {\"a\"}",
                                         "f32[] 1"};
    for (size_t m = 0; m < sizeof models / sizeof *models; m++) {
        OnnxfuseSession *session = must_open(models[m]);
        bool optional = strstr(models[m], "opt(") != NULL;
        for (size_t i = 0; i < sizeof inputs / sizeof *inputs; i++) {
            if (optional == (strncmp(inputs[i], "seq", 3) == 0)) continue;
            OnnxfuseValue *in = value_from(inputs[i]), *out = NULL;
            expect_error(onnxfuse_session_run(session, (const OnnxfuseValue *[]){in}, &out), ONNXFUSE_INVALID, "\"q\"",
                         inputs[i]);
            onnxfuse_value_free(out);
            onnxfuse_value_free(in);
        }
        onnxfuse_session_close(session);
    }
}

/* --- outputs that are not simply results ---------------------------------------------------------------------- */
Test(session, outputs_of_every_kind) {
    static const struct {
        const char *name, *text;
        const char *inputs[MOST_VALUES], *outputs[MOST_VALUES];
    } rows[] = {
        {"an input is an output", "graph (x: f32[n]) -> (x) {\n}", {"f32[2] {1, 2}"}, {"f32[2] {1, 2}"}},
        {"an input through Identity",
         "graph (x: f32[n]) -> (y) {\ny = onnx Identity@21 x\n}",
         {"f32[2] {1, 2}"},
         {"f32[2] {1, 2}"}},
        {"a constant is an output",
         "graph (x: f32[n]) -> (c, y) {\nc = constant i64[2] {5, 6}\ny = onnx Neg@21 x\n}",
         {"f32[1] {3}"},
         {"i64[2] {5, 6}", "f32[1] {-3}"}},
        {"one value is two outputs",
         "graph (x: f32[n]) -> (y, z) {\ny = onnx Neg@21 x\nz = onnx Identity@21 y\n}",
         {"f32[2] {3, 4}"},
         {"f32[2] {-3, -4}", "f32[2] {-3, -4}"}},
        {"a reshape of another output",
         "graph (x: f32[2, 3]) -> (y, z) {\ny = onnx Neg@21 x\ns = constant i64[1] {-1}\nz = onnx Reshape@21 y, s\n}",
         {"f32[2, 3] {1, 2, 3, 4, 5, 6}"},
         {"f32[2, 3] {-1, -2, -3, -4, -5, -6}", "f32[6] {-1, -2, -3, -4, -5, -6}"}},
        {"a reshape of an input",
         "graph (x: f32[2, 3]) -> (z) {\ns = constant i64[1] {-1}\nz = onnx Reshape@21 x, s\n}",
         {"f32[2, 3] {1, 2, 3, 4, 5, 6}"},
         {"f32[6] {1, 2, 3, 4, 5, 6}"}},
        {"a shape is an output",
         "graph (x: f32[n, 3]) -> (s) {\ns = onnx Shape@21 x\n}",
         {"f32[0, 3] {}"},
         {"i64[2] {0, 3}"}},
        {"tensors without elements",
         "graph (x: f32[n, 3]) -> (y, z) {\ny = onnx Exp@21 x\nz = onnx ReduceSum@21 x {keepdims = 0}\n}",
         {"f32[0, 3] {}"},
         {"f32[0, 3] {}", "f32[] 0"}},
        {"a size known only at run time",
         "graph (x: f32[n]) -> (y, e) {\ny = onnx NonZero@21 x\nc = onnx Cast@21 y {to = 1}\ne = onnx Neg@21 c\n}",
         {"f32[4] {0, 2, 0, 3}"},
         {"i64[1, 2] {1, 3}", "f32[1, 2] {-1, -3}"}},
        {"no size at all at run time",
         "graph (x: f32[n]) -> (y, e) {\ny = onnx NonZero@21 x\nc = onnx Cast@21 y {to = 1}\ne = onnx Neg@21 c\n}",
         {"f32[2] {0, 0}"},
         {"i64[1, 0] {}", "f32[1, 0] {}"}},
        {"a shape given as data",
         "graph (x: f32[n], s: i64[2]) -> (y) {\nr = onnx Reshape@21 x, s\ny = onnx Neg@21 r\n}",
         {"f32[6] {1, 2, 3, 4, 5, 6}", "i64[2] {3, 2}"},
         {"f32[3, 2] {-1, -2, -3, -4, -5, -6}"}},
        {"an expand to sizes given as data",
         "graph (x: f32[1, 2], s: i64[2]) -> (y) {\nr = onnx Expand@21 x, s\ny = onnx Neg@21 r\n}",
         {"f32[1, 2] {1, 2}", "i64[2] {3, 1}"},
         {"f32[3, 2] {-1, -2, -1, -2, -1, -2}"}},
        {"two symbols that broadcast, equal",
         "graph (x: f32[n], y: f32[m]) -> (z) {\nz = onnx Add@21 x, y\n}",
         {"f32[2] {1, 2}", "f32[2] {10, 20}"},
         {"f32[2] {11, 22}"}},
        {"two symbols that broadcast, one is 1",
         "graph (x: f32[n], y: f32[m]) -> (z) {\nz = onnx Add@21 x, y\n}",
         {"f32[1] {1}", "f32[2] {10, 20}"},
         {"f32[2] {11, 21}"}},
        {"two symbols that broadcast, one is 1, the other 0",
         "graph (x: f32[n], y: f32[m]) -> (z, q) {\nz = onnx Add@21 x, y\nq = onnx Add@21 z, x\n}",
         {"f32[1] {1}", "f32[0] {}"},
         {"f32[0] {}", "f32[0] {}"}},
        {"an expand of 1 to a size of 0 given as data",
         "graph (x: f32[n, 2], s: i64[2]) -> (y) {\nr = onnx Expand@21 x, s\ny = onnx Neg@21 r\n}",
         {"f32[1, 2] {1, 2}", "i64[2] {0, 1}"},
         {"f32[0, 2] {}"}},
        {"matrices of open batches, one of 1, the other 0",
         "graph (x: f32[n, 2, 2], y: f32[m, 2, 2]) -> (z) {\nz = onnx MatMul@21 x, y\n}",
         {"f32[0, 2, 2] {}", "f32[1, 2, 2] {1, 2, 3, 4}"},
         {"f32[0, 2, 2] {}"}},
        {"a squeeze of all axes of 1, where none that is open is 1",
         "graph (x: f32[n, 1, m, 1]) -> (z) {\ny = onnx Squeeze@21 x\nz = onnx Neg@21 y\n}",
         {"f32[2, 1, 2, 1] {1, 2, 3, 4}"},
         {"f32[2, 2] {-1, -2, -3, -4}"}},
        {"attention of as many heads as come",
         "opset 23\ngraph (q: f32[b, h, s, 1], k: f32[b, g, t, 1], v: f32[b, g, t, 1]) -> (y) {\ny = onnx Attention@23 "
         "q, k, v\n}",
         {"f32[1, 4, 1, 1] {1, 2, 3, 4}", "f32[1, 2, 1, 1] {1, 1}", "f32[1, 2, 1, 1] {5, 7}"},
         {"f32[1, 4, 1, 1] {5, 5, 7, 7}"}},
        {"strings",
         "graph (x: string[n]) -> (y) {\ny = onnx StringConcat@20 x, x\n}",
         {"string[2] {\"a\", \"\"}"},
         {"string[2] {\"aa\", \"\"}"}},
        {"a size known when an optional is read",
         "graph (q: opt(f32[p])) -> (y) {\na = onnx OptionalGetElement@21 q\nc = onnx Concat@21 a, a {axis = 0}\n"
         "y = onnx Neg@21 c\n}",
         {"f32[2] {1, 2}"},
         {"f32[4] {-1, -2, -1, -2}"}},
        {"a sequence and what is in it",
         "graph (x: f32[n], y: f32[m]) -> (q, s) {\nq = onnx SequenceConstruct@21 x, y\nz = constant i64[] 1\ns = onnx "
         "SequenceAt@21 q, z\n}",
         {"f32[1] {1}", "f32[2] {2, 3}"},
         {"seq f32[1] {1} | f32[2] {2, 3}", "f32[2] {2, 3}"}},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        OnnxfuseSession *session = NULL;
        char *text = NULL;
        cr_assert(asprintf(&text, "%s%s", strstr(rows[i].text, "@20") ? "opset 20\n" : "", rows[i].text) > 0);
        OnnxfuseStatus status = open_text(text, NULL, &session);
        cr_expect(!status, "%s: %s", rows[i].name, onnxfuse_status_message(status));
        onnxfuse_status_free(status);
        for (int again = 0; session && again < 2; again++) {
            char *problem = run_and_compare(session, rows[i].inputs, rows[i].outputs);
            cr_expect(!problem, "%s: %s", rows[i].name, problem);
            free(problem);
        }
        onnxfuse_session_close(session);
        free(text);
    }
}

/* --- given output buffers ------------------------------------------------------------------------------------- */
static OnnxfuseStatus run_into(OnnxfuseSession *session, const char *input, const char *buffer, OnnxfuseValue **out) {
    OnnxfuseValue *x = value_from(input);
    *out = value_from(buffer);
    OnnxfuseStatus status = onnxfuse_session_run(session, (const OnnxfuseValue *[]){x}, out);
    onnxfuse_value_free(x);
    return status;
}

Test(session, given_buffers_are_written_in_place) {
    static const char *const models[] = {
        "graph (x: f32[n]) -> (y) {\ny = onnx Neg@21 x\n}",
        "graph (x: f32[n]) -> (y) {\na = onnx Abs@21 x\nb = onnx Concat@21 a {axis = 0}\ny = onnx Neg@21 b\n}",
        "graph (x: f32[n]) -> (y) {\na = onnx Neg@21 x\nd = constant i64[1] {-1}\ny = onnx Reshape@21 a, d\n}"};
    for (int i = 0; i < 3; i++) {
        OnnxfuseSession *session = must_open(models[i]);
        OnnxfuseValue *out;
        OnnxfuseStatus status = run_into(session, "f32[2] {1, 2}", "f32[2] {9, 9}", &out);
        cr_assert(!status, "%d: %s", i, onnxfuse_status_message(status));
        const float *data = onnxfuse_value_data(out);
        cr_expect(data[0] == -1 && data[1] == -2, "%d", i);
        onnxfuse_value_free(out);
        onnxfuse_session_close(session);
    }
}

/* An output in an input's memory, or across it, is what it is in memory of its own. */
Test(session, outputs_in_the_memory_of_inputs) {
    enum { ROWS = 6, COLUMNS = 40, COUNT = ROWS * COLUMNS, SHIFT = 7 };
    static const struct {
        const char *name, *nodes;
    } rows[] = {
        {"rows are scattered into it", "i = constant i64[2, 1] {1, 4}\nu = onnx Slice@21 w, s, e\ny = onnx "
                                       "ScatterND@21 x, i, u\nz = onnx Neg@21 y\n"},
        {"what is scattered into is read later",
         "i = constant i64[2, 1] {1, 4}\nu = onnx Slice@21 w, s, e\ny = onnx ScatterND@21 x, i, u\nk = onnx MatMul@21 "
         "y, t\nz = onnx Add@21 x, k\n"},
        {"what is scattered comes from it", "i = constant i64[2, 1] {4, 1}\nu = onnx Slice@21 x, s, e\ny = onnx "
                                            "ScatterND@21 x, i, u\nz = onnx Neg@21 w\n"},
        {"elementwise", "y = onnx Sub@21 x, w\nz = onnx Neg@21 w\n"},
        {"elementwise, read again", "y = onnx Sub@21 x, w\nk = onnx MatMul@21 y, t\nz = onnx Add@21 x, k\n"},
        {"a product", "y = onnx MatMul@21 x, t\nz = onnx Neg@21 x\n"},
        {"turned around", "v = constant i64[2] {-1, -1}\nf = constant i64[2] {-100, -100}\na = constant i64[2] {0, 1}\n"
                          "y = onnx Slice@21 x, v, f, a, v\nz = onnx Neg@21 x\n"},
        {"the input itself", "y = onnx Identity@21 x\nz = onnx Neg@21 w\n"},
    };
    for (size_t r = 0; r < sizeof rows / sizeof *rows; r++) {
        char text[2048];
        snprintf(text, sizeof text,
                 "graph (x: f32[n, 40], w: f32[n, 40], t: f32[40, 40]) -> (y, z) {\ns = constant i64[1] {2}\ne = "
                 "constant i64[1] {4}\n%s}",
                 rows[r].nodes);
        OnnxfuseSession *session = must_open(text);
        float apart[2][COUNT];
        for (int way = 0; way < 4; way++) { /* apart; the same memory; across it, before and behind */
            static float memory[COUNT + 2 * SHIFT], w[COUNT], t[COLUMNS * COLUMNS], y[COUNT], z[COUNT];
            const int64_t dims[] = {ROWS, COLUMNS}, square[] = {COLUMNS, COLUMNS};
            float *to = way == 0 ? y : memory + SHIFT + (way == 2 ? -SHIFT : way == 3 ? SHIFT : 0);
            for (int i = 0; i < COUNT; i++) memory[SHIFT + i] = (float)(i * 37 % 101), w[i] = (float)(i * 11 % 53);
            for (int i = 0; i < COLUMNS * COLUMNS; i++) t[i] = (float)(i * 7 % 5 - 2);
            OnnxfuseValue *in[3], *out[2];
            cr_assert_null(onnxfuse_value_tensor(ONNXFUSE_FLOAT32, 2, dims, memory + SHIFT, &in[0]));
            cr_assert_null(onnxfuse_value_tensor(ONNXFUSE_FLOAT32, 2, dims, w, &in[1]));
            cr_assert_null(onnxfuse_value_tensor(ONNXFUSE_FLOAT32, 2, square, t, &in[2]));
            cr_assert_null(onnxfuse_value_tensor(ONNXFUSE_FLOAT32, 2, dims, to, &out[0]));
            cr_assert_null(onnxfuse_value_tensor(ONNXFUSE_FLOAT32, 2, dims, z, &out[1]));
            OnnxfuseStatus status = onnxfuse_session_run(session, (const OnnxfuseValue *const *)in, out);
            cr_assert(!status, "%s: %s", rows[r].name, onnxfuse_status_message(status));
            if (way == 0) memcpy(apart[0], to, sizeof apart[0]), memcpy(apart[1], z, sizeof apart[1]);
            cr_expect(memcmp(apart[0], to, sizeof apart[0]) == 0, "%s, way %d", rows[r].name, way);
            cr_expect(memcmp(apart[1], z, sizeof apart[1]) == 0, "%s, way %d: the other output", rows[r].name, way);
            for (int i = 0; i < 3; i++) onnxfuse_value_free(in[i]);
            for (int i = 0; i < 2; i++) onnxfuse_value_free(out[i]);
        }
        onnxfuse_session_close(session);
    }
}

Test(session, buffers_that_do_not_fit) {
    static const struct {
        const char *name, *buffer;
    } rows[] = {
        {"another type", "f64[2] {9, 9}"},    {"the type's size alone is right", "i32[2] {9, 9}"},
        {"too small", "f32[1] {9}"},          {"too large", "f32[3] {9, 9, 9}"},
        {"another rank", "f32[1, 2] {9, 9}"}, {"a sequence", "seq f32[2] {9, 9}"},
        {"an absent optional", "none"},
    };
    static const char *const models[] = {"graph (x: f32[n]) -> (y) {\ny = onnx Neg@21 x\n}",
                                         "graph (x: f32[n]) -> (y) {\ny = onnx Identity@21 x\n}",
                                         "graph (x: f32[2]) -> (y) {\nm = onnx NonZero@21 x\nc = onnx Cast@21 m {to = "
                                         "1}\nd = constant i64[1] {-1}\ny = onnx Reshape@21 c, d\n}"};
    for (int m = 0; m < 3; m++) {
        OnnxfuseSession *session = must_open(models[m]);
        for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
            OnnxfuseValue *out;
            OnnxfuseStatus status = run_into(session, "f32[2] {1, 2}", rows[i].buffer, &out);
            expect_error(status, ONNXFUSE_INVALID, "\"y\"", rows[i].name);
            onnxfuse_value_free(out);
        }
        onnxfuse_session_close(session);
    }
}

Test(session, one_value_into_two_buffers) {
    OnnxfuseSession *session = must_open("graph (x: f32[n]) -> (y, z) {\ny = onnx Neg@21 x\nz = onnx Identity@21 y\n}");
    OnnxfuseValue *x = value_from("f32[2] {1, 2}"),
                  *out[2] = {value_from("f32[2] {0, 0}"), value_from("f32[2] {0, 0}")};
    OnnxfuseStatus status = onnxfuse_session_run(session, (const OnnxfuseValue *[]){x}, out);
    cr_assert(!status, "%s", onnxfuse_status_message(status));
    for (int o = 0; o < 2; o++) {
        cr_expect(((float *)onnxfuse_value_data(out[o]))[1] == -2);
        onnxfuse_value_free(out[o]);
    }
    onnxfuse_value_free(x);
    onnxfuse_session_close(session);
}

/* --- shapes ----------------------------------------------------------------------------------------------------- */
#define NORM                                                                                                           \
    "graph (x: f32[n, s, 24], g: f32[24], b: f32[24], w: f32[24, 8]) -> (y) {\n"                                       \
    "a = onnx LayerNormalization@21 x, g, b {axis = -1}\nm = onnx MatMul@21 a, w\ny = onnx Softmax@21 m {axis = "      \
    "-1}\n}\n"

static OnnxfuseValue *filled(int rank, const int64_t *dims) {
    OnnxfuseValue *value = NULL;
    cr_assert(!onnxfuse_value_tensor(ONNXFUSE_FLOAT32, rank, dims, NULL, &value));
    float *data = onnxfuse_value_data(value);
    for (int64_t i = 0; i < onnxfuse_value_count(value); i++) data[i] = (float)(i * 7919 % 17) / 8 - 1;
    return value;
}

Test(session, new_shapes_compile_nothing) {
    OnnxfuseSession *session = must_open(NORM);
    OnnxfuseStats before, after;
    onnxfuse_session_stats(session, &before, sizeof before);
    cr_expect(before.kernels > 0 && before.regions > 0 && before.anchors == 1 && before.weight_bytes == 0);
    static const int64_t shapes[][2] = {{1, 1}, {2, 7}, {3, 128}, {0, 5}, {1, 1}, {16, 1}};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        const int64_t dims[] = {shapes[i][0], shapes[i][1], 24}, weight[] = {24, 8};
        OnnxfuseValue *in[] = {filled(3, dims), filled(1, weight), filled(1, weight), filled(2, weight)}, *out = NULL;
        OnnxfuseStatus status = onnxfuse_session_run(session, (const OnnxfuseValue *const *)in, &out);
        cr_assert(!status, "%s", onnxfuse_status_message(status));
        cr_expect(onnxfuse_value_dims(out)[0] == dims[0] && onnxfuse_value_dims(out)[1] == dims[1]);
        for (int64_t row = 0; row < dims[0] * dims[1]; row++) {
            double sum = 0;
            for (int k = 0; k < 8; k++) sum += onnxfuse_value_element(out, row * 8 + k);
            cr_expect(sum > 0.9999 && sum < 1.0001, "row %lld sums to %g", (long long)row, sum);
        }
        onnxfuse_value_free(out);
        for (int k = 0; k < 4; k++) onnxfuse_value_free(in[k]);
    }
    onnxfuse_session_stats(session, &after, sizeof after);
    cr_expect(after.kernels_compiled == before.kernels_compiled && after.compile_ms == before.compile_ms);
    cr_expect(after.arena_bytes > 0);
    onnxfuse_session_close(session);
}

/* A GEMM with bias and ReLU is one step. */
Test(session, epilogues_are_part_of_their_anchor) {
    OnnxfuseSession *session = must_open("graph (x: f32[n, 2]) -> (y) {\nw = constant f32[2, 2] {1, 2, 3, 4}\n"
                                         "b = constant f32[2] {-5, 5}\nm = onnx MatMul@21 x, w\n"
                                         "a = onnx Add@21 m, b\ny = onnx Relu@21 a\n}\n");
    OnnxfuseStats stats;
    onnxfuse_session_stats(session, &stats, sizeof stats);
    cr_expect(stats.anchors == 1 && stats.regions == 0 && stats.host_steps == 0, "%d anchors, %d regions",
              stats.anchors, stats.regions);
    expect_result(session, (const char *[]){"f32[1, 2] {1, 1}"}, (const char *[]){"f32[1, 2] {0, 11}"});
    onnxfuse_session_close(session);
}

/* More tensors than a kernel usually reads. */
Test(session, a_sum_of_many) {
    enum { COUNT = 90 };
    char text[8192] = "graph (";
    OnnxfuseValue *in[COUNT], *out = NULL;
    for (int i = 0; i < COUNT; i++) sprintf(text + strlen(text), "%sx%d: f32[n]", i ? ", " : "", i);
    strcat(text, ") -> (y) {\ny = onnx Sum@21 ");
    for (int i = 0; i < COUNT; i++) sprintf(text + strlen(text), "%sx%d", i ? ", " : "", i);
    OnnxfuseSession *session = must_open(strcat(text, "\n}"));
    for (int i = 0; i < COUNT; i++)
        in[i] = value_from("f32[20] {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, "
                           "18, 19, 20}");
    OnnxfuseStatus status = onnxfuse_session_run(session, (const OnnxfuseValue *const *)in, &out);
    cr_expect(!status, "%s", onnxfuse_status_message(status));
    if (!status) cr_expect(onnxfuse_value_element(out, 19) == 20 * COUNT);
    onnxfuse_value_free(out);
    for (int i = 0; i < COUNT; i++) onnxfuse_value_free(in[i]);
    onnxfuse_session_close(session);
}

Test(session, equal_layers_compile_once) {
    char text[8192] = "graph (x: f32[n, 24], g: f32[24]) -> (y) {\nk = constant i64[] 0\nz0 = onnx Neg@21 x\n";
    char *at = text + strlen(text);
    for (int i = 0; i < 12; i++)
        at += sprintf(at,
                      "a%d = onnx LayerNormalization@21 z%d, g {axis = -1}\nc%d = onnx Concat@21 a%d {axis = 0}\n"
                      "z%d = onnx CumSum@21 c%d, k\n",
                      i, i, i, i, i + 1, i);
    sprintf(at, "y = onnx Neg@21 z12\n}\n");
    OnnxfuseSession *session = NULL;
    OnnxfuseStatus status = open_text(text, NULL, &session);
    cr_assert(!status, "%s", onnxfuse_status_message(status));
    OnnxfuseStats stats;
    onnxfuse_session_stats(session, &stats, sizeof stats);
    cr_expect(stats.regions >= 12 && stats.kernels < stats.regions, "%d kernels of %d regions", stats.kernels,
              stats.regions);
    onnxfuse_session_close(session);
}

/* --- memory, profile, inspection --------------------------------------------------------------------------------- */
Test(session, memory_limit) {
    OnnxfuseOptions options = {.policy_json = "{\"memory_limit_megabytes\": 4, \"cache\": {\"enable\": false}}"};
    OnnxfuseSession *session = NULL;
    OnnxfuseStatus status = open_text("graph (x: f32[n]) -> (y) {\nk = constant i64[] 0\na = onnx CumSum@21 x, k\nb = "
                                      "onnx CumSum@21 a, k\ny = onnx Neg@21 b\n"
                                      "}\n",
                                      &options, &session);
    cr_assert(!status, "%s", onnxfuse_status_message(status));
    static const int64_t small[] = {1000}, large[] = {1 << 20};
    for (int again = 0; again < 3; again++) {
        OnnxfuseValue *x = filled(1, large), *out = NULL;
        expect_error(onnxfuse_session_run(session, (const OnnxfuseValue *[]){x}, &out), ONNXFUSE_FAULT, "memory",
                     "4 MB an array");
        onnxfuse_value_free(x);
        x = filled(1, small);
        status = onnxfuse_session_run(session, (const OnnxfuseValue *[]){x}, &out);
        cr_expect(!status, "after it, what fits runs: %s", onnxfuse_status_message(status));
        onnxfuse_value_free(out);
        onnxfuse_value_free(x);
    }
    onnxfuse_session_close(session);
}

Test(session, profile) {
    OnnxfuseSession *session = must_open(CHAIN);
    char *json = NULL;
    expect_error(onnxfuse_session_profile_json(session, &json), ONNXFUSE_USAGE, "profil", "never switched on");
    onnxfuse_session_profile(session, true);
    expect_result(session, (const char *[]){"f32[1, 4] {1, -2, 3, -4}", "f32[4] {1, 1, 1, 1}"},
                  (const char *[]){NULL, "f32[] 6"});
    onnxfuse_session_profile(session, false);
    OnnxfuseStatus status = onnxfuse_session_profile_json(session, &json);
    cr_assert(!status, "%s", onnxfuse_status_message(status));
    cr_expect(strstr(json, "\"ph\"") && strstr(json, "kernel"), "%s", json);
    onnxfuse_free(json);
    onnxfuse_session_close(session);
}

Test(session, every_stage_can_be_inspected) {
    char path[] = "/tmp/onnxfuse_inspect_XXXXXX", *text = NULL;
    int file = mkstemp(path);
    size_t size;
    void *bytes = model_bytes(NORM, &size);
    cr_assert(file >= 0 && write(file, bytes, size) == (ssize_t)size);
    OnnxfuseOptions options = {.policy_json = "{\"cache\": {\"enable\": false}}"};
    for (const char *const *stage = onnxfuse_inspect_stages(); *stage; stage++) {
        OnnxfuseStatus status = onnxfuse_inspect(path, &options, *stage, "text", &text);
        cr_expect(!status && text && *text, "%s: %s", *stage, onnxfuse_status_message(status));
        onnxfuse_status_free(status);
        onnxfuse_free(text);
        text = NULL;
    }
    OnnxfuseStatus status = onnxfuse_inspect(path, &options, "partition", "dot", &text);
    cr_expect(!status && strstr(text, "digraph"), "%s", onnxfuse_status_message(status));
    onnxfuse_free(text);
    expect_error(onnxfuse_inspect(path, &options, "soup", "text", &text), ONNXFUSE_USAGE, "soup", "no such stage");
    expect_error(onnxfuse_inspect(path, &options, "lower", "html", &text), ONNXFUSE_USAGE, "html", "no such format");
    close(file);
    unlink(path);
    free(bytes);
}

/* --- values --- */
Test(session, wrong_values) {
    static const int64_t dims[] = {2, -1}, huge[] = {INT64_MAX, 4};
    OnnxfuseValue *value = NULL;
    expect_error(onnxfuse_value_tensor(ONNXFUSE_FLOAT32, 17, dims, NULL, &value), ONNXFUSE_INVALID, "rank 17", "rank");
    expect_error(onnxfuse_value_tensor(ONNXFUSE_FLOAT32, -1, dims, NULL, &value), ONNXFUSE_INVALID, "rank -1", "rank");
    expect_error(onnxfuse_value_tensor((OnnxfuseDType)99, 1, dims, NULL, &value), ONNXFUSE_INVALID, "99", "type");
    expect_error(onnxfuse_value_tensor(ONNXFUSE_FLOAT32, 2, dims, NULL, &value), ONNXFUSE_INVALID, "", "negative");
    expect_error(onnxfuse_value_tensor(ONNXFUSE_FLOAT32, 2, huge, NULL, &value), ONNXFUSE_INVALID, "", "overflow");
    expect_error(onnxfuse_value_sequence(NULL, -1, &value), ONNXFUSE_INVALID, "", "sequence");
    expect_error(onnxfuse_value_from_proto(ONNXFUSE_PROTO_TENSOR, "\xff\xff", 2, &value, NULL), ONNXFUSE_INVALID, "",
                 "no message");
    onnxfuse_value_free(NULL);
}

Test(session, values_round_trip) {
    static const char *const texts[] = {"f32[2] {1, 2}",
                                        "i64[] 5",
                                        "seq f32[1] {1} | i64[2] {1, 2}",
                                        "none",
                                        "string[2] {\"a\", \"\"}",
                                        "bool[1] {true}",
                                        "f32[0, 3] {}",
                                        "map i64[2] {1, 2} to string[2] {\"a\", \"\"}"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        OnnxfuseValue *value = value_from(texts[i]);
        const OnnxfuseValue *item = onnxfuse_value_item(value, 0);
        bool sequence = onnxfuse_value_kind(value) == ONNXFUSE_SEQUENCE;
        cr_expect(sequence == (item != NULL) && item == onnxfuse_value_item(value, 0), "%s", texts[i]);
        cr_expect(!onnxfuse_value_item(value, 2) && !onnxfuse_value_item(value, -1));
        bool map = onnxfuse_value_kind(value) == ONNXFUSE_MAP;
        cr_expect((onnxfuse_value_dtype(value) == ONNXFUSE_NONE) == (sequence || map || i == 3), "%s", texts[i]);
        cr_expect(map == (onnxfuse_value_keys(value) && onnxfuse_value_values(value)), "%s", texts[i]);
        onnxfuse_value_free(value);
    }
    cr_expect_str_eq(onnxfuse_dtype_name(ONNXFUSE_FLOAT16), "float16");
    cr_expect(onnxfuse_dtype_size(ONNXFUSE_INT64) == 8);
}

/* Each axis is as long as four numbers say that come with a run: how many elements there are is a long product. */
Test(session, all_axes_are_padded_by_as_much_as_a_run_says) {
    static const char model[] = "graph (p: i64[14]) -> (y) {\nw = constant f32[2, 1, 1, 1, 1, 2, 1] {1, 2, 3, 4}\n"
                                "d = onnx Pad@21 w, p {mode = \"reflect\"}\ny = onnx Mul@21 d, d\n}\n";
    OnnxfuseSession *session = must_open(model);
    char *wrong = run_and_compare(session, (const char *const[]){"i64[14] {0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0}"},
                                  (const char *const[]){"f32[3, 1, 1, 1, 1, 2, 1] {1, 4, 9, 16, 1, 4}"});
    cr_expect_null(wrong, "%s", wrong);
    free(wrong);
    onnxfuse_session_close(session);
}

/* A thousand sizes added up, twice: longer than expressions are kept, and nothing says at run time what it is. */
Test(session, a_number_of_elements_that_is_too_long_to_say_is_refused) {
    enum { INPUTS = 1000, ROOM = 60 * INPUTS };
    char *model = malloc(ROOM), *at = model, *end = model + ROOM;
    for (int i = 0; i < INPUTS; i++)
        at += snprintf(at, (size_t)(end - at), "%sx%d: f32[n%d]", i ? ", " : "graph (", i, i);
    at += snprintf(at, (size_t)(end - at), ") -> (y) {\none = constant i64[1] {1}\nc = onnx Concat@21 ");
    for (int i = 0; i < INPUTS; i++) at += snprintf(at, (size_t)(end - at), "%sx%d", i ? ", " : "", i);
    snprintf(at, (size_t)(end - at), " {axis = 0}\nu = onnx Unsqueeze@21 c, one\ny = onnx Add@21 u, c\n}\n");
    OnnxfuseSession *session = NULL;
    OnnxfuseStatus status = open_text(model, NULL, &session);
    cr_expect(!session && onnxfuse_status_code(status) == ONNXFUSE_UNSUPPORTED, "%s", onnxfuse_status_message(status));
    cr_expect(strstr(onnxfuse_status_message(status), "too long an expression"), "%s", onnxfuse_status_message(status));
    onnxfuse_status_free(status);
    free(model);
}
