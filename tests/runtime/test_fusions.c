/* SPDX-License-Identifier: Apache-2.0 */
/* Fusions by pattern through the public interface: the built-in FusedRMSNorm in all the forms that exporters write,
 * forward and backward in any combination, and an application's custom fusions. A fused model must give what it gives
 * without, in steps of the fusion's name. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "models.h"
#include "skip.h"

/* --- runs --------------------------------------------------------------------------------------------------------- */
enum { MOST_OUTPUTS = 4 };

typedef struct Form {
    const char *name, *model; /* "@V": of the version */
    int opset;
    bool is_half;
} Form;

typedef struct Run {
    OnnxfuseValue *outputs[MOST_OUTPUTS];
    int count;
    char *profile; /* of all runs so far: */
    int64_t runs;
} Run;

/* Numbers in [-1, 1] that depend on `seed` and their place alone; in the types of the models. */
static OnnxfuseValue *numbers(const OnnxfuseValueInfo *info, const int64_t *dims, unsigned seed) {
    OnnxfuseValue *value = NULL;
    OnnxfuseStatus status = onnxfuse_value_tensor(info->dtype, info->rank, dims, NULL, &value);
    cr_assert(!status, "%s", onnxfuse_status_message(status));
    for (int64_t i = 0; i < onnxfuse_value_count(value); i++) {
        seed = seed * 1664525u + 1013904223u;
        double number = (double)(seed >> 8) / (1 << 23) - 1;
        void *data = onnxfuse_value_data(value);
        if (info->dtype == ONNXFUSE_FLOAT16) { /* a multiple of 1/8 in [1, 2), or minus that */
            ((uint16_t *)data)[i] = (uint16_t)((seed >> 16 & 0x8000) | 0x3c00 | (seed >> 10 & 7) << 7);
        } else if (info->dtype == ONNXFUSE_FLOAT64) {
            ((double *)data)[i] = number;
        } else if (info->dtype == ONNXFUSE_INT64) {
            ((int64_t *)data)[i] = 3;
        } else {
            ((float *)data)[i] = (float)number;
        }
    }
    return value;
}

/* Symbols stand for `size`. */
static Run run(OnnxfuseSession *session, int64_t size) {
    Run result = {.count = onnxfuse_session_output_count(session)};
    OnnxfuseValue *inputs[MOST_VALUES] = {0};
    for (int i = 0; i < onnxfuse_session_input_count(session); i++) {
        const OnnxfuseValueInfo *info = onnxfuse_session_input(session, i);
        int64_t dims[ONNXFUSE_MAX_RANK];
        for (int d = 0; d < info->rank; d++) dims[d] = info->dims[d] < 0 ? size : info->dims[d];
        inputs[i] = numbers(info, dims, 17u * (unsigned)i + 1);
    }
    onnxfuse_session_profile(session, true);
    OnnxfuseStatus status = onnxfuse_session_run(session, (const OnnxfuseValue *const *)inputs, result.outputs);
    cr_assert(!status, "%s", onnxfuse_status_message(status));
    status = onnxfuse_session_profile_json(session, &result.profile);
    cr_assert(!status, "%s", onnxfuse_status_message(status));
    onnxfuse_session_profile(session, false);
    OnnxfuseStats stats;
    onnxfuse_session_stats(session, &stats, sizeof stats);
    result.runs = stats.runs;
    for (int i = 0; i < MOST_VALUES; i++) onnxfuse_value_free(inputs[i]);
    return result;
}

static void forget(Run *result) {
    for (int o = 0; o < result->count; o++) onnxfuse_value_free(result->outputs[o]);
    onnxfuse_free(result->profile);
}

/* How many steps of a run have this member. */
static int steps_with(const Run *result, const char *key, const char *text) {
    char wanted[100];
    int count = 0;
    snprintf(wanted, sizeof wanted, "\"%s\": \"%s\"", key, text);
    for (const char *at = result->profile; (at = strstr(at, wanted)); at++) count++;
    return count / (int)result->runs;
}

/* The names of the steps, for messages. */
static const char *names(const Run *result) {
    static char text[1000];
    size_t n = 0;
    text[0] = 0;
    for (const char *at = result->profile; (at = strstr(at, "\"name\": \"")) && n + 60 < sizeof text;) {
        at += strlen("\"name\": \"");
        n += (size_t)snprintf(text + n, sizeof text - n, " %.*s", (int)strcspn(at, "\""), at);
    }
    return text;
}

static int steps_called(const Run *result, const char *name) { return steps_with(result, "name", name); }
static int steps_of_kind(const Run *result, const char *kind) { return steps_with(result, "cat", kind); }

static void expect_same(const char *name, const Run *a, const Run *b, double tolerance) {
    cr_assert_eq(a->count, b->count);
    for (int o = 0; o < a->count; o++) {
        int64_t count = onnxfuse_value_count(a->outputs[o]);
        cr_assert_eq(count, onnxfuse_value_count(b->outputs[o]), "%s: output %d has another size", name, o);
        cr_assert_eq(onnxfuse_value_dtype(a->outputs[o]), onnxfuse_value_dtype(b->outputs[o]), "%s", name);
        for (int64_t i = 0; i < count; i++) {
            double x = onnxfuse_value_element(a->outputs[o], i), y = onnxfuse_value_element(b->outputs[o], i);
            if (fabs(x - y) <= tolerance * (1 + fabs(x))) continue;
            cr_assert_fail("%s: output %d, element %lld: %.9g, fused %.9g", name, o, (long long)i, x, y);
        }
    }
}

/* "@V" in the text becomes the version of the operator set. */
static void put_version(char *out, size_t size, const char *text, int opset) {
    size_t n = (size_t)snprintf(out, size, "opset %d\nopset \"com.microsoft\" 1\n", opset);
    for (const char *c = text; *c && n + 8 < size; c++) {
        if (c[0] == '@' && c[1] == 'V')
            n += (size_t)snprintf(out + n, size - n, "@%d", opset), c++;
        else
            out[n++] = *c;
    }
    out[n] = 0;
}

/* NULL where the device is not there. */
static OnnxfuseSession *open_form(const Form *form, const char *policy, const char *device,
                                  const OnnxfuseRegistry *registry) {
    OnnxfuseSession *session = NULL;
    char json[2000], model[4000];
    const char *name = form->name;
    put_version(model, sizeof model, form->model, form->opset);
    snprintf(json, sizeof json, "{\"cache\": {\"enable\": false}%s%s}", *policy ? ", " : "", policy);
    OnnxfuseOptions options = {
        .size = sizeof options, .policy_json = json, .device = device, .threads = 2, .registry = registry};
    OnnxfuseStatus status = open_text(model, &options, &session);
    if (device) {
        skip_without_device(status);
        return session;
    }
    cr_assert(!status, "%s: %s", name, onnxfuse_status_message(status));
    return session;
}

static OnnxfuseSession *open_with(const char *name, const char *model, const char *policy, const char *device,
                                  const OnnxfuseRegistry *registry) {
    return open_form(&(Form){name, model, 17, false}, policy, device, registry);
}

/* --- FusedRMSNorm, forward --- */

#define NORM(type, nodes)                                                                                              \
    "graph (x: " type "[b, 3, 40], w: " type "[40]) -> (y) {\n"                                                        \
    "two = constant f32[] 2\none = constant f32[1] {1}\nhalf = constant f32[] -0.5\neps = constant f32[] 0.001\n"      \
    "three = constant f32[] 3\nlast = constant i64[1] {-1}\n" nodes "\n}\n"
#define MEAN(x) "q = onnx Pow@V " x ", two\nm = onnx ReduceMean@V q {axes = [-1]}\ns = onnx Add@V m, eps\n"
#define MEAN_18(x) "q = onnx Mul@V " x ", " x "\nm = onnx ReduceMean@V q, last\ns = onnx Add@V eps, m\n"
#define ROOT "r = onnx Sqrt@V s\n"
#define WIDE "d = onnx Cast@V x {to = 1}\n"

static const Form forms[] = {
    {"Pow, 1 / root", NORM("f32", MEAN("x") ROOT "i = onnx Div@V one, r\nn = onnx Mul@V x, i\ny = onnx Mul@V w, n"), 17,
     false},
    {"Pow, Reciprocal", NORM("f32", MEAN("x") ROOT "i = onnx Reciprocal@V r\nn = onnx Mul@V i, x\ny = onnx Mul@V n, w"),
     17, false},
    {"Pow, quotient", NORM("f32", MEAN("x") ROOT "n = onnx Div@V x, r\ny = onnx Mul@V n, w"), 17, false},
    {"Pow, power", NORM("f32", MEAN("x") "i = onnx Pow@V s, half\nn = onnx Mul@V x, i\ny = onnx Mul@V n, w"), 17,
     false},
    {"Mul, axes as an input", NORM("f32", MEAN_18("x") ROOT "n = onnx Div@V x, r\ny = onnx Mul@V w, n"), 18, false},
    {"casts that do nothing", NORM("f32", WIDE MEAN("d") ROOT "n = onnx Div@V x, r\ny = onnx Mul@V w, n"), 17, false},
    {"half, narrowed before the scale",
     NORM("f16", WIDE MEAN("d") ROOT "n = onnx Div@V d, r\nc = onnx Cast@V n {to = 10}\ny = onnx Mul@V w, c"), 17,
     true},
    {"half, narrowed after the scale",
     NORM("f16", WIDE MEAN_18("d") ROOT "i = onnx Reciprocal@V r\nn = onnx Mul@V d, i\nv = onnx Cast@V w {to = 1}\n"
                                        "p = onnx Mul@V n, v\ny = onnx Cast@V p {to = 10}"),
     18, true},
    {"RMSNormalization", NORM("f32", "y = onnx RMSNormalization@V x, w {epsilon = 0.001}"), 23, false},
    {"SimplifiedLayerNormalization", NORM("f32", "y = onnx SimplifiedLayerNormalization@V x, w {epsilon = 0.001}"), 17,
     false},
    {"SimplifiedLayerNormalization of ONNX Runtime's domain",
     NORM("f32", "y = onnx \"com.microsoft\" SimplifiedLayerNormalization@1 x, w"), 17, false},
    {"SkipSimplifiedLayerNormalization",
     NORM("f32", "y, _, _, t = onnx \"com.microsoft\" SkipSimplifiedLayerNormalization@1 x, x, w"), 17, false},
    {"SkipSimplifiedLayerNormalization with a bias",
     NORM("f32", "y = onnx \"com.microsoft\" SkipSimplifiedLayerNormalization@1 x, x, w, w"), 17, false},
};

static const char *const policies[] = {
    "\"fusion\": {\"custom_kernels\": [\"FusedRMSNorm\"]}",
    "\"fusion\": {\"custom_kernels\": [\"FusedRMSNorm.forward\"], \"enable\": false}",
    "\"fusion\": {\"custom_kernels\": [\"FusedRMSNorm\"], \"memory_efficient\": true}",
};

static void check_forms(const char *device) {
    for (size_t f = 0; f < sizeof forms / sizeof *forms; f++) {
        const Form *form = &forms[f];
        OnnxfuseSession *plain = open_form(form, "", device, NULL);
        for (size_t p = 0; p < sizeof policies / sizeof *policies; p++) {
            OnnxfuseSession *fused = open_form(form, policies[p], device, NULL);
            for (int64_t size = 1; size < 10; size += 4) {
                Run a = run(plain, size), b = run(fused, size);
                expect_same(form->name, &a, &b, form->is_half ? 4 * 0x1p-11 : 2e-6);
                cr_expect_eq(steps_called(&a, "FusedRMSNorm"), 0);
                cr_expect_eq(steps_called(&b, "FusedRMSNorm"), 1, "%s, %s: %s", form->name, policies[p], names(&b));
                cr_expect_eq(steps_of_kind(&b, "kernel"), 1, "%s, %s: %s", form->name, policies[p], names(&b));
                forget(&a);
                forget(&b);
            }
            onnxfuse_session_close(fused);
        }
        onnxfuse_session_close(plain);
    }
}

Test(fusions, rms_norm_forms) { check_forms("cpu"); }
Test(fusions, rms_norm_forms_on_opencl) { check_forms("opencl"); }
Test(fusions, rms_norm_forms_on_cuda) { check_forms("cuda"); }

/* --- what is no RMSNorm --- */
static const Form others[] = {
    {"another power",
     NORM("f32", "q = onnx Pow@V x, three\nm = onnx ReduceMean@V q {axes = [-1]}\n"
                 "s = onnx Add@V m, eps\nr = onnx Sqrt@V s\nn = onnx Div@V x, r\ny = onnx Mul@V n, w"),
     17, false},
    {"another axis",
     NORM("f32", "q = onnx Pow@V x, two\nm = onnx ReduceMean@V q {axes = [1]}\n"
                 "s = onnx Add@V m, eps\nr = onnx Sqrt@V s\nn = onnx Div@V x, r\ny = onnx Mul@V n, w"),
     17, false},
    {"another value is divided",
     NORM("f32", "z = onnx Neg@V x\n" MEAN("x") ROOT "n = onnx Div@V z, r\ny = onnx Mul@V n, w"), 17, false},
    {"a layer normalisation",
     NORM("f32", "e = onnx ReduceMean@V x {axes = [-1]}\nd = onnx Sub@V x, e\n" MEAN("d") ROOT
          "n = onnx Div@V d, r\ny = onnx Mul@V n, w"),
     17, false},
    {"the mean is read elsewhere",
     NORM("f32", MEAN("x") ROOT "n = onnx Div@V x, r\nv = onnx Mul@V n, w\n"
                                "y = onnx Add@V v, m"),
     17, false},
};

Test(fusions, what_is_no_rms_norm) {
    for (size_t f = 0; f < sizeof others / sizeof *others; f++) {
        OnnxfuseSession *session = open_form(&others[f], policies[0], NULL, NULL);
        Run result = run(session, 2);
        cr_expect_eq(steps_called(&result, "FusedRMSNorm"), 0, "%s", others[f].name);
        forget(&result);
        onnxfuse_session_close(session);
    }
}

/* --- training: forward and backward, fused or not
 * --------------------------------------------------------------------- */
#define FORWARD                                                                                                        \
    "q = onnx Mul@V x, x\nm = onnx ReduceMean@V q {axes = [-1]}\ns = onnx Add@V m, eps\nr = onnx Sqrt@V s\n"           \
    "i = onnx Reciprocal@V r\nn = onnx Mul@V x, i\ny = onnx Mul@V n, w\n"
#define BACKWARD(n, axes)                                                                                              \
    "p = onnx Mul@V dy, " n "\ndw = onnx ReduceSum@V p, " axes " {keepdims = 0}\ng = onnx Mul@V w, dy\n"               \
    "u = onnx Mul@V g, " n "\na = onnx ReduceMean@V u {axes = [-1]}\nb = onnx Mul@V a, " n "\n"                        \
    "c = onnx Sub@V g, b\ndx = onnx Mul@V c, i\n"
#define FROZEN                                                                                                         \
    "graph (x: f32[t, 40], w: f32[40], dy: f32[t, 40]) -> (y, dx) {\neps = constant f32[] 0.001\n" FORWARD             \
    "o = onnx Mul@V x, i\ng = onnx Mul@V w, dy\nu = onnx Mul@V g, o\na = onnx ReduceMean@V u {axes = [-1]}\n"          \
    "b = onnx Mul@V a, o\nc = onnx Sub@V g, b\ndx = onnx Mul@V c, i\n}\n"
#define TRAINING(type, shape, rest)                                                                                    \
    "graph (x: " type shape ", w: " type "[40], dy: " type shape ") -> (y, dx, dw) {\n"                                \
    "eps = constant " type "[] 0.001\nfirst = constant i64[1] {0}\nfirst_two = constant i64[2] {0, 1}\n" FORWARD rest  \
    "}\n"

static const Form trained[] = {
    {"the normalised x is made again",
     TRAINING("f32", "[t, 3, 40]", "o = onnx Mul@V x, i\n" BACKWARD("o", "first_two")), 17, false},
    {"the normalised x is kept", TRAINING("f32", "[t, 3, 40]", BACKWARD("n", "first_two")), 17, false},
    {"two axes", TRAINING("f32", "[t, 40]", "o = onnx Mul@V x, i\n" BACKWARD("o", "first")), 17, false},
    {"a scale that is not trained", FROZEN, 17, false},
    {"in double", TRAINING("f64", "[t, 40]", "o = onnx Mul@V x, i\n" BACKWARD("o", "first")), 17, false},
    {"in half", TRAINING("f16", "[t, 40]", BACKWARD("n", "first")), 17, true},
};

static void check_trained(const Form *form, const char *device) {
    static const struct {
        const char *kernels;
        int forward, backward;
    } combinations[] = {{"\"FusedRMSNorm.forward\"", 1, 0},
                        {"\"FusedRMSNorm.backward\"", 0, 1},
                        {"\"FusedRMSNorm\"", 1, 1},
                        {"\"FusedRMSNorm.backward\", \"FusedRMSNorm.forward\"", 1, 1}};
    OnnxfuseSession *plain = open_form(form, "", device, NULL);
    for (size_t c = 0; c < sizeof combinations / sizeof *combinations; c++) {
        char policy[200];
        snprintf(policy, sizeof policy, "\"fusion\": {\"custom_kernels\": [%s]}", combinations[c].kernels);
        OnnxfuseSession *fused = open_form(form, policy, device, NULL);
        for (int64_t size = 0; size < 200; size += 67) {
            Run a = run(plain, size), b = run(fused, size);
            expect_same(form->name, &a, &b, form->is_half ? 8 * 0x1p-11 : 4e-6);
            cr_expect_eq(steps_called(&b, "FusedRMSNorm"), combinations[c].forward, "%s, %s: %s", form->name, policy,
                         names(&b));
            cr_expect_eq(steps_called(&b, "FusedRMSNormBackward"), combinations[c].backward, "%s, %s: %s", form->name,
                         policy, names(&b));
            forget(&a);
            forget(&b);
        }
        onnxfuse_session_close(fused);
    }
    onnxfuse_session_close(plain);
}

Test(fusions, forward_and_backward) {
    for (size_t f = 0; f < sizeof trained / sizeof *trained; f++) check_trained(&trained[f], "cpu");
}

Test(fusions, forward_and_backward_on_opencl) {
    for (size_t f = 0; f < 2; f++) check_trained(&trained[f], "opencl");
}

Test(fusions, forward_and_backward_on_cuda) {
    for (size_t f = 0; f < 2; f++) check_trained(&trained[f], "cuda");
}

/* --- derivatives: the backward fusion makes what differentiating the forward nodes would give --- */
#define DERIVATIVE "onnx \"ai.onnx.preview.training\" Gradient@1 "
#define LOSS(of) "p = onnx Mul@V " of ", k\nl = onnx ReduceSum@V p {keepdims = 0}\n"
#define OF_BOTH "dx, dw = " DERIVATIVE "x, w {xs = [\"x\", \"w\"], y = \"l\"}\n"
#define DERIVED(type, scale, body)                                                                                     \
    "opset \"ai.onnx.preview.training\" 1\ngraph (x: " type "[t, 40], w: " type "[" scale "], k: " type                \
    "[t, 40]) -> (l, dx, dw) {\neps = constant " type "[] 0.001\n" body "}\n"
#define ROOTED "q = onnx Mul@V x, x\nm = onnx ReduceMean@V q {axes = [-1]}\ns = onnx Add@V m, eps\nr = onnx Sqrt@V s\n"
#define INVERTED ROOTED "i = onnx Reciprocal@V r\nn = onnx Mul@V x, i\ny = onnx Mul@V n, w\n"
#define OPERATOR "y = onnx RMSNormalization@V x, w {axis = -1, epsilon = 0.01}\n"

static const struct {
    Form form;
    int backward, both; /* steps of the backward kernel, by itself and with the forward one */
} derived[] = {
    {{"a reciprocal root", DERIVED("f32", "40", INVERTED LOSS("y") OF_BOTH), 17, false}, 1, 1},
    {{"divided", DERIVED("f32", "40", ROOTED "n = onnx Div@V x, r\ny = onnx Mul@V n, w\n" LOSS("y") OF_BOTH), 17,
      false},
     1,
     1},
    {{"in double", DERIVED("f64", "40", ROOTED "n = onnx Div@V x, r\ny = onnx Mul@V n, w\n" LOSS("y") OF_BOTH), 17,
      false},
     1,
     1},
    {{"the operator", DERIVED("f32", "40", OPERATOR LOSS("y") OF_BOTH), 23, false}, 1, 1},
    {{"another reads x", DERIVED("f32", "40", INVERTED "z = onnx Add@V y, x\n" LOSS("z") OF_BOTH), 17, false}, 1, 1},
    {{"another reads the root", DERIVED("f32", "40", INVERTED "z = onnx Mul@V y, i\n" LOSS("z") OF_BOTH), 17, false},
     1,
     1},
    {{"two of them",
      DERIVED("f32", "40", INVERTED "z = onnx RMSNormalization@V y, w {epsilon = 0.01}\n" LOSS("z") OF_BOTH), 23,
      false},
     2,
     2},
    {{"x alone",
      DERIVED("f32", "40", OPERATOR LOSS("y") "dx = " DERIVATIVE "x {xs = [\"x\"], y = \"l\"}\ndw = onnx Neg@V w\n"),
      23, false},
     1,
     1},
    {{"with respect to what is inside",
      DERIVED("f32", "40", INVERTED LOSS("y") "dx, dw = " DERIVATIVE "n, w {xs = [\"n\", \"w\"], y = \"l\"}\n"), 17,
      false},
     0,
     0},
    {{"a scale that the kernel does not take", DERIVED("f32", "1, 40", INVERTED LOSS("y") OF_BOTH), 17, false}, 0, 0},
    {{"derivatives of derivatives",
      DERIVED("f32", "40",
              INVERTED LOSS("y") "g = " DERIVATIVE "x {xs = [\"x\"], y = \"l\"}\nh = onnx Mul@V g, g\n"
                                 "e = onnx ReduceSum@V h {keepdims = 0}\ndx, dw = " DERIVATIVE
                                 "x, w {xs = [\"x\", \"w\"], y = \"e\"}\n"),
      17, false},
     0,
     0},
    {{"in a loop",
      DERIVED("f32", "40",
              "two = constant i64[] 2\ny = onnx Loop@V two, _, x, w captures 1 graph \"body\" (j: i64[], c: bool[], x: "
              "f32[t, 40], w: f32[40]) -> (c, v) {\neps = constant f32[] 0.001\n" ROOTED
              "n = onnx Div@V x, r\nv = onnx Mul@V n, w\n}\n" LOSS("y") OF_BOTH),
      17, false},
     2,
     2},
};

Test(fusions, derivatives) {
    for (size_t d = 0; d < sizeof derived / sizeof *derived; d++) {
        const Form *form = &derived[d].form;
        OnnxfuseSession *plain = open_form(form, "", NULL, NULL);
        OnnxfuseSession *alone =
            open_form(form, "\"fusion\": {\"custom_kernels\": [\"FusedRMSNorm.backward\"]}", NULL, NULL);
        OnnxfuseSession *both = open_form(form, policies[0], NULL, NULL);
        for (int64_t size = 1; size < 200; size += 67) {
            Run a = run(plain, size), b = run(alone, size), c = run(both, size);
            expect_same(form->name, &a, &b, 4e-6);
            expect_same(form->name, &a, &c, 4e-6);
            cr_expect_eq(steps_called(&b, "FusedRMSNormBackward"), derived[d].backward, "%s: %s", form->name,
                         names(&b));
            cr_expect_eq(steps_called(&c, "FusedRMSNormBackward"), derived[d].both, "%s: %s", form->name, names(&c));
            forget(&a);
            forget(&b);
            forget(&c);
        }
        onnxfuse_session_close(plain);
        onnxfuse_session_close(alone);
        onnxfuse_session_close(both);
    }
}

/* An application's: forward and backward have a kernel each, which capture the factor. */
static OnnxfuseStatus scaled_back(void *user, OnnxfuseCall *call) {
    const OnnxfuseValue *dy = onnxfuse_call_input(call, 0);
    void *dx;
    double factor = 0;
    ++*(int *)user;
    if (!onnxfuse_call_float(call, "factor", &factor)) return onnxfuse_error(ONNXFUSE_FAULT, "attributes are missing");
    OnnxfuseStatus status = onnxfuse_call_output(call, 0, onnxfuse_value_rank(dy), onnxfuse_value_dims(dy), &dx);
    for (int64_t i = 0; !status && i < onnxfuse_value_count(dy); i++)
        ((float *)dx)[i] = ((const float *)onnxfuse_value_data(dy))[i] * (float)factor;
    return status;
}

/* --- loops -------------------------------------------------------------------------------------------------------- */
#define LOOP                                                                                                           \
    "graph (m: i64[], x: f32[b, 40], w: f32[40]) -> (y) {\ny = onnx Loop@V m, _, x, w captures 1 graph "               \
    "\"body\" (k: i64[], c: bool[], x: f32[b, 40], w: f32[40]) -> (c, v) {\ntwo = constant f32[] 2\n"                  \
    "eps = constant f32[] 0.001\n" MEAN("x") ROOT "n = onnx Div@V x, r\nv = onnx Mul@V n, w\n}\n}\n"

Test(fusions, in_loops) {
    OnnxfuseSession *plain = open_with("loop", LOOP, "", NULL, NULL);
    OnnxfuseSession *fused = open_with("loop", LOOP, policies[0], NULL, NULL);
    Run a = run(plain, 5), b = run(fused, 5);
    expect_same("loop", &a, &b, 2e-6);
    cr_expect_eq(steps_called(&b, "FusedRMSNorm"), 3, "%s", names(&b));
    forget(&a);
    forget(&b);
    onnxfuse_session_close(plain);
    onnxfuse_session_close(fused);
}

/* --- fusion off: a step a node but for what is named --- */
#define MORE                                                                                                           \
    NORM("f32", "h = onnx Abs@V x\n" MEAN("h") ROOT "n = onnx Div@V h, r\nv = onnx Mul@V n, w\n"                       \
                                                    "z = onnx Sigmoid@V v\ny = onnx Add@V z, x")

Test(fusions, the_named_step_alone) {
    OnnxfuseSession *off = open_with("off", MORE, "\"fusion\": {\"enable\": false}", NULL, NULL);
    OnnxfuseSession *named = open_with("named", MORE, policies[1], NULL, NULL);
    OnnxfuseSession *whole = open_with("whole", MORE, "", NULL, NULL);
    Run a = run(off, 4), b = run(named, 4), c = run(whole, 4);
    expect_same("off", &a, &b, 2e-6);
    expect_same("whole", &a, &c, 2e-6);
    cr_expect_eq(steps_called(&b, "FusedRMSNorm"), 1);
    cr_expect_eq(steps_of_kind(&b, "kernel"), 4, "%s", names(&b));
    cr_expect_gt(steps_of_kind(&a, "kernel"), 8, "%s", names(&a));
    cr_expect_eq(steps_of_kind(&c, "kernel"), 1, "%s", names(&c));
    forget(&a);
    forget(&b);
    forget(&c);
    onnxfuse_session_close(off);
    onnxfuse_session_close(named);
    onnxfuse_session_close(whole);
}

/* --- an application's own ----------------------------------------------------------------------------------------- */
static OnnxfuseStatus affine(void *user, OnnxfuseCall *call) {
    const OnnxfuseValue *x = onnxfuse_call_input(call, 0);
    void *y;
    double factor = 0, summand = 0;
    ++*(int *)user;
    if (!onnxfuse_call_float(call, "factor", &factor) || !onnxfuse_call_float(call, "summand", &summand))
        return onnxfuse_error(ONNXFUSE_FAULT, "attributes are missing");
    OnnxfuseStatus status = onnxfuse_call_output(call, 0, onnxfuse_value_rank(x), onnxfuse_value_dims(x), &y);
    for (int64_t i = 0; !status && i < onnxfuse_value_count(x); i++)
        ((float *)y)[i] = ((const float *)onnxfuse_value_data(x))[i] * (float)factor + (float)summand;
    return status;
}

static const char own_model[] =
    "graph (x: f32[b, 6]) -> (y) {\nc = constant f32[] 3\nd = constant f32[1] {0.5}\nh = onnx Abs@V x\n"
    "p = onnx Mul@V c, h\nq = onnx Add@V p, d\ny = onnx Sqrt@V q\n}\n";
static const char *const affine_patterns[] = {"(x) -> (y) { p = Mul(x, $factor) y = Add(p, $summand) }", NULL};
static const char *const broken_patterns[] = {"(x) -> (y) { y = Mul(x, p) }", NULL};

static void check_own(const char *name, const OnnxfuseRegistry *registry, const char *policy, const char *device,
                      const char *step, int count) {
    OnnxfuseSession *plain = open_with(name, own_model, "", device, NULL);
    OnnxfuseSession *fused = open_with(name, own_model, policy, device, registry);
    for (int64_t size = 1; size < 8; size += 3) {
        Run a = run(plain, size), b = run(fused, size);
        expect_same(name, &a, &b, 2e-6);
        cr_expect_eq(steps_called(&b, step), count, "%s: %s", name, names(&b));
        forget(&a);
        forget(&b);
    }
    onnxfuse_session_close(plain);
    onnxfuse_session_close(fused);
}

Test(fusions, an_applications_kernel) {
    int calls = 0;
    OnnxfuseOperator kernel = {.size = sizeof kernel, .name = "Affine", .since = 1, .compute = affine, .user = &calls};
    OnnxfuseFusion fusion = {.size = sizeof fusion,
                             .name = "FusedAffine",
                             .phase = ONNXFUSE_FORWARD,
                             .patterns = affine_patterns,
                             .kernel = &kernel};
    OnnxfuseRegistry *registry;
    cr_assert(!onnxfuse_registry_create(&registry));
    cr_assert(!onnxfuse_registry_add_fusion(registry, &fusion));
    check_own("kernel", registry, "", "cpu", "Affine", 1);
    cr_expect_eq(calls, 3);
    check_own("kernel, named", registry, "\"fusion\": {\"custom_kernels\": [\"FusedAffine\"]}", "cpu", "Affine", 1);
    check_own("kernel, not named", registry, "\"fusion\": {\"custom_kernels\": [\"FusedRMSNorm\"]}", "cpu", "Affine",
              0);
    check_own("kernel, another device", registry, "", "opencl", "Affine", 1);
    onnxfuse_registry_free(registry);
}

Test(fusions, an_applications_gradient) {
    static const char *const patterns[] = {"(dy) -> (dx) { dx = Mul(dy, $factor) }", NULL};
    static const Form form = {"own",
                              "opset \"ai.onnx.preview.training\" 1\ngraph (x: f32[b, 6]) -> (l, g) {\n"
                              "c = constant f32[] 3\nd = constant f32[1] {0.5}\nh = onnx Abs@V x\np = onnx Mul@V c, h\n"
                              "q = onnx Add@V p, d\ny = onnx Sqrt@V q\nl = onnx ReduceSum@V y {keepdims = 0}\n"
                              "g = " DERIVATIVE "x {xs = [\"x\"], y = \"l\"}\n}\n",
                              17, false};
    int forward = 0, backward = 0;
    OnnxfuseOperator kernels[] = {
        {.size = sizeof *kernels, .name = "Affine", .since = 1, .compute = affine, .user = &forward},
        {.size = sizeof *kernels, .name = "AffineBackward", .since = 1, .compute = scaled_back, .user = &backward}};
    OnnxfuseFusion fusions[] = {{.size = sizeof *fusions,
                                 .name = "A",
                                 .phase = ONNXFUSE_FORWARD,
                                 .patterns = affine_patterns,
                                 .kernel = &kernels[0]},
                                {.size = sizeof *fusions,
                                 .name = "A",
                                 .phase = ONNXFUSE_BACKWARD,
                                 .patterns = patterns,
                                 .kernel = &kernels[1]}};
    OnnxfuseRegistry *registry;
    cr_assert(!onnxfuse_registry_create(&registry));
    for (int i = 0; i < 2; i++) cr_assert(!onnxfuse_registry_add_fusion(registry, &fusions[i]));
    OnnxfuseSession *plain = open_form(&form, "", NULL, NULL), *fused = open_form(&form, "", NULL, registry);
    Run a = run(plain, 5), b = run(fused, 5);
    expect_same(form.name, &a, &b, 2e-6);
    cr_expect_eq(forward, 1);
    cr_expect_eq(backward, 1);
    forget(&a);
    forget(&b);
    onnxfuse_session_close(plain);
    onnxfuse_session_close(fused);
    onnxfuse_registry_free(registry);
}

Test(fusions, an_applications_region) {
    OnnxfuseFusion fusion = {
        .size = sizeof fusion, .name = "FusedAffine", .phase = ONNXFUSE_FORWARD, .patterns = affine_patterns};
    OnnxfuseRegistry *registry;
    cr_assert(!onnxfuse_registry_create(&registry));
    cr_assert(!onnxfuse_registry_add_fusion(registry, &fusion));
    check_own("region", registry, "", "cpu", "FusedAffine", 1);
    check_own("region, fusion off", registry, "\"fusion\": {\"enable\": false}", "cpu", "FusedAffine", 1);
    check_own("region, another device", registry, "", "opencl", "FusedAffine", 1);
    onnxfuse_registry_free(registry);
}

Test(fusions, a_policys_own) {
    const char *policy = "\"fusions\": [{\"name\": \"Mine\", \"patterns\": [\"(x) -> (y) { p = Mul(x, $factor) "
                         "y = Add(p, $summand) }\"]}]";
    check_own("policy", NULL, policy, "cpu", "Mine", 1);
    check_own("policy, another device", NULL, policy, "opencl", "Mine", 1);
}

Test(fusions, wrong_ones) {
    OnnxfuseFusion fusion = {
        .size = sizeof fusion, .name = "Broken", .phase = ONNXFUSE_FORWARD, .patterns = broken_patterns};
    OnnxfuseRegistry *registry;
    OnnxfuseSession *session = NULL;
    cr_assert(!onnxfuse_registry_create(&registry));
    OnnxfuseStatus status = onnxfuse_registry_add_fusion(registry, &fusion);
    cr_assert(status);
    cr_expect(strstr(onnxfuse_status_message(status), "line 1, column 25"), "%s", onnxfuse_status_message(status));
    onnxfuse_status_free(status);
    OnnxfuseOptions options = {.policy_json =
                                   "{\"fusion\": {\"custom_kernels\": [\"FusedRMSNorm\", \"FusedRMSnorm\"]}}"};
    status = open_text("graph (x: f32[2]) -> (y) {\ny = onnx Relu@21 x\n}\n", &options, &session);
    cr_assert(status);
    cr_expect(strstr(onnxfuse_status_message(status), "fusion.custom_kernels[1]: there is no fusion \"FusedRMSnorm\""),
              "%s", onnxfuse_status_message(status));
    onnxfuse_status_free(status);
    onnxfuse_registry_free(registry);
}
