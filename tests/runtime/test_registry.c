/* SPDX-License-Identifier: Apache-2.0 */
/* Custom operators of an application, through the public interface: what they compute, in models and in bodies of loops,
 * and that wrong ones end in a status that names node, operator and shapes. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "models.h"
#include "custom_operators.h"
#include "skip.h"

static const char quiet[] = "{\"cache\": {\"enable\": false}}";

static OnnxfuseOptions options_with(const OnnxfuseRegistry *registry) {
    return (OnnxfuseOptions){.size = sizeof(OnnxfuseOptions), .policy_json = quiet, .registry = registry};
}

static void expect_code(OnnxfuseStatus status, OnnxfuseCode code, const char *part, const char *what) {
    cr_expect_eq(onnxfuse_status_code(status), code, "%s: %s", what, onnxfuse_status_message(status));
    cr_expect(strstr(onnxfuse_status_message(status), part), "%s: %s", what, onnxfuse_status_message(status));
    onnxfuse_status_free(status);
}

#define TEST "opset 21\nopset \"test\" 1\n"

#define GRADIENT TEST "opset \"ai.onnx.preview.training\" 1\n"
#define DERIVATIVE "onnx \"ai.onnx.preview.training\" Gradient@1"

typedef struct Row {
    const char *name, *model;
    const char *inputs[MOST_VALUES], *outputs[MOST_VALUES];
} Row;

#define LOOP                                                                                                           \
    TEST "graph (m: i64[], x: f32[1, 2]) -> (y, s) {\n"                                                                \
         "y, s = onnx Loop@21 m, _, x captures 0 graph \"body\" (i: i64[], c: bool[], v: f32[r, 2]) -> (c, w, u) {\n"  \
         "t = onnx Neg@21 v\nu = onnx \"test\" Scale@1 t {factor = 2.0}\n"                                             \
         "f = onnx Cast@21 i {to = 1}\nn = onnx \"test\" Scale@1 v, f {factor = 3.0}\n"                                \
         "p = onnx \"test\" Positive@1 n\nk = onnx Size@21 p\nz = onnx Cast@21 k {to = 1}\nw = onnx Add@21 v, z\n}\n}" \
         "\n"

static const Row rows[] = {
    {"attributes, an input and an output left out",
     TEST "graph (x: f32[n]) -> (y) {\ny = onnx \"test\" Scale@1 x {factor = 2.5}\n}\n",
     {"f32[2] {1, -2}"},
     {"f32[2] {2.5, -5}"}},
    {"all inputs and outputs",
     TEST "graph (x: f32[n, 2], b: f32[]) -> (y, k) {\ny, k = onnx \"test\" Scale@1 x, b {factor = 2.0}\n}\n",
     {"f32[2, 2] {1, 2, 3, 4}", "f32[] 10"},
     {"f32[2, 2] {12, 14, 16, 18}", "i64[] 4"}},
    {"the first output left out",
     TEST "graph (x: f32[n]) -> (k) {\n_, k = onnx \"test\" Scale@1 x\n}\n",
     {"f32[3] {1, 2, 3}"},
     {"i64[] 3"}},
    {"the gradient that its registration names",
     GRADIENT
     "graph (x: f32[n], b: f32[]) -> (g, h) {\nt = onnx Mul@21 x, x\ns, k = onnx \"test\" Scale@1 t, b {factor = 2.5}\n"
     "y = onnx Mul@21 s, x\ng, h = " DERIVATIVE " x, b {xs = [\"x\", \"b\"], y = \"y\"}\n}\n",
     {"f32[2] {1, 2}", "f32[] 4"},
     {"f32[2] {11.5, 34}", "f32[] 3"}},
    {"the gradient with respect to one input",
     GRADIENT "graph (x: f32[n]) -> (g) {\ny, k = onnx \"test\" Scale@1 x {factor = 2.5}\n"
              "g = " DERIVATIVE " x {xs = [\"x\"], y = \"y\"}\n}\n",
     {"f32[2] {1, 2}"},
     {"f32[2] {2.5, 2.5}"}},
    {"between kernels, in place",
     TEST "graph (x: f32[n]) -> (y) {\na = onnx Exp@21 x\nb = onnx \"test\" Scale@1 a {factor = 3.0}\n"
          "y = onnx Add@21 b, b\n}\n",
     {"f32[2] {0, 0}"},
     {"f32[2] {6, 6}"}},
    {"not in place where the input is read again",
     TEST "graph (x: f32[n]) -> (y) {\na = onnx Exp@21 x\nb = onnx \"test\" Scale@1 a {factor = 3.0}\n"
          "y = onnx Sub@21 b, a\n}\n",
     {"f32[2] {0, 0}"},
     {"f32[2] {2, 2}"}},
    {"symbolic sizes that are computed",
     TEST "graph (a: f32[n, w], b: f32[m, w]) -> (y) {\nj = onnx \"test\" Join@1 a, b\ny = onnx Neg@21 j\n}\n",
     {"f32[1, 2] {1, 2}", "f32[2, 2] {3, 4, 5, 6}"},
     {"f32[3, 2] {-1, -2, -3, -4, -5, -6}"}},
    {"sizes that are known after it",
     TEST "graph (x: f32[n]) -> (y, k) {\np = onnx \"test\" Positive@1 x\ny = onnx Add@21 p, p\nk = onnx Shape@21 "
          "p\n}\n",
     {"f32[4] {1, -1, 0, 3}"},
     {"f32[2] {2, 6}", "i64[1] {2}"}},
    {"no elements",
     TEST "graph (x: f32[n]) -> (y) {\np = onnx \"test\" Positive@1 x\ny = onnx \"test\" Scale@1 p {factor = 2.0}\n}\n",
     {"f32[1] {-1}"},
     {"f32[0] {}"}},
    {"a rank that is not known",
     TEST "graph (x: i64[*]) -> (y) {\na = onnx \"test\" Any@1 x\ny = onnx \"test\" Any@1 a\n}\n",
     {"i64[2, 1, 2] {1, 2, 3, 4}"},
     {"i64[2, 1, 2] {1, 2, 3, 4}"}},
    {"a rank that is not known, into the body of a loop",
     TEST
     "graph (m: i64[], x: f32[*]) -> (y, s) {\na = onnx \"test\" Any@1 x\n"
     "y, s = onnx Loop@21 m, _, m, a captures 1 graph \"body\" (i: i64[], c: bool[], v: i64[], a: f32[*]) -> (c, w, t) "
     "{\nw = onnx Add@21 v, i\nb = onnx \"test\" Any@1 a\nt = onnx \"test\" Positive@1 b\n}\n}\n",
     {"i64[] 2", "f32[1, 2] {-1, 3}"},
     {"i64[] 3", "f32[2, 1] {3, 3}"}},
    {"strings out of scratch memory",
     TEST "graph (x: f32[n]) -> (y) {\nt = onnx \"test\" Text@1 x\ny = onnx \"test\" Any@1 t\n}\n",
     {"f32[2] {1.5, -2}"},
     {"string[2] {\"1.5\", \"-2\"}"}},
    {"a sequence",
     TEST "graph (q: seq(f32[p])) -> (y) {\ny = onnx \"test\" Total@1 q\n}\n",
     {"seq f32[1] {1} | f32[2] {2, 3}"},
     {"f32[] 6"}},
    {"a constant that infer reads, ints and floats",
     TEST "graph () -> (y) {\nc = constant f32[] 2\n"
          "y = onnx \"test\" Fill@1 c {dims = [2, 2], more = [1.0, 0.5]}\n}\n",
     {NULL},
     {"f32[2, 2] {3, 2.5, 2, 2}"}},
    {"before the standard's operator of that name",
     "graph (x: f32[n]) -> (y) {\ny = onnx Relu@21 x\n}\n",
     {"f32[2] {-1, 2}"},
     {"f32[2] {7, 2}"}},
    {"called like a step of the runtime",
     TEST "graph (x: f32[n]) -> (y) {\ny = onnx \"test\" bind_sizes@1 x\n}\n",
     {"f32[2] {-1, 2}"},
     {"f32[2] {7, 2}"}},
    {"in the body of a loop",
     LOOP,
     {"i64[] 3", "f32[1, 2] {1, -1}"},
     {"f32[1, 2] {6, 4}", "f32[3, 1, 2] {-2, 2, -4, 0, -8, -4}"}},
};

Test(registry, computes) {
    OnnxfuseRegistry *registry = custom_operators();
    OnnxfuseOptions options = options_with(registry);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        OnnxfuseSession *session = NULL;
        OnnxfuseStatus status = open_text(rows[i].model, &options, &session);
        cr_expect_null(status, "%s: %s", rows[i].name, onnxfuse_status_message(status));
        onnxfuse_status_free(status);
        for (int again = 0; session && again < 2; again++) {
            char *difference = run_and_compare(session, rows[i].inputs, rows[i].outputs);
            cr_expect_null(difference, "%s: %s", rows[i].name, difference);
            free(difference);
        }
        onnxfuse_session_close(session);
    }
    onnxfuse_registry_free(registry);
}

/* OpenCL runs on the processor where a driver is installed (PoCL). */
Test(registry, beside_a_device) {
    OnnxfuseRegistry *registry = custom_operators();
    OnnxfuseOptions options = options_with(registry);
    options.device = "opencl";
    OnnxfuseSession *session = NULL;
    OnnxfuseStatus status = open_text(rows[3].model, &options, &session);
    skip_without_device(status);
    char *difference = run_and_compare(session, rows[3].inputs, rows[3].outputs);
    cr_expect_null(difference, "%s", difference);
    free(difference);
    onnxfuse_session_close(session);
    onnxfuse_registry_free(registry);
}

/* --- wrong operators ---------------------------------------------------------------------------------------------- */
typedef struct Wrong {
    const char *how;
    OnnxfuseCode code;
    const char *message;
    bool runs; /* the session opens, the run fails */
} Wrong;

static const Wrong wrongs[] = {
    {"no type", ONNXFUSE_INVALID, "infer has not said the type of output 0", false},
    {"infer fails", ONNXFUSE_UNSUPPORTED, "(test.Bad; inputs float32[n]): not today", false},
    {"dtype", ONNXFUSE_INVALID, "element type 99", false},
    {"rank", ONNXFUSE_INVALID, "rank 17", false},
    {"negative size", ONNXFUSE_INVALID, "size -3", false},
    {"output in infer", ONNXFUSE_USAGE, "outside of compute", false},
    {"compute fails", ONNXFUSE_INVALID, "(test.Bad; inputs float32[2]): no luck", true},
    {"a code of none", ONNXFUSE_FAULT, "strange", true},
    {"no output", ONNXFUSE_INVALID, "compute has not made output 0", true},
    {"other dims", ONNXFUSE_INVALID, "output 0 gets dims [3], where infer has said [n = 2]", true},
    {"other rank", ONNXFUSE_INVALID, "output 0 gets dims [2, 1], where infer has said [n = 2]", true},
    {"negative dims", ONNXFUSE_INVALID, "output 0 gets dims [-4]", true},
    {"type in compute", ONNXFUSE_USAGE, "outside of infer", true},
    {"asked twice", ONNXFUSE_INVALID, "output 0 gets dims [3]", true},
};

Test(registry, wrong_operators) {
    OnnxfuseRegistry *registry = custom_operators();
    OnnxfuseOptions options = options_with(registry);
    for (size_t i = 0; i < sizeof wrongs / sizeof *wrongs; i++) {
        char model[300];
        snprintf(model, sizeof model,
                 TEST "graph (x: f32[n]) -> (y) {\na = onnx Neg@21 x\ny = onnx \"test\" Bad@1 a {how = \"%s\"}\n}\n",
                 wrongs[i].how);
        OnnxfuseSession *session = NULL;
        OnnxfuseStatus status = open_text(model, &options, &session);
        if (wrongs[i].runs && !status) {
            OnnxfuseValue *x = value_from("f32[2] {1, 2}"), *y = NULL;
            status = onnxfuse_session_run(session, (const OnnxfuseValue *[]){x}, &y);
            cr_expect_null(y);
            onnxfuse_value_free(x);
        }
        expect_code(status, wrongs[i].code, wrongs[i].message, wrongs[i].how);
        onnxfuse_session_close(session);
    }
    onnxfuse_registry_free(registry);
}

/* --- what a session says of them ---------------------------------------------------------------------------------- */
Test(registry, draws) {
    OnnxfuseRegistry *registry = custom_operators();
    OnnxfuseOptions options = options_with(registry);
    OnnxfuseSession *session = NULL;
    cr_assert_null(open_text(TEST "graph (x: f32[n]) -> (y, z) {\na = onnx \"test\" Draw@1 x\nb = onnx \"test\" Draw@1 "
                                  "x\ny = onnx Sub@21 a, b\nz = onnx Neg@21 x\n}\n",
                             &options, &session));
    cr_expect(onnxfuse_session_output(session, 0)->random);
    cr_expect_not(onnxfuse_session_output(session, 1)->random);
    OnnxfuseValue *x = value_from("f32[1] {0}"), *y[2] = {NULL};
    cr_assert_null(onnxfuse_session_run(session, (const OnnxfuseValue *[]){x}, y));
    cr_expect_neq(onnxfuse_value_element(y[0], 0), 0, "both nodes drew the same");
    onnxfuse_value_free(x);
    for (int i = 0; i < 2; i++) onnxfuse_value_free(y[i]);
    onnxfuse_session_close(session);
    onnxfuse_registry_free(registry);
}

Test(registry, an_open_rank_is_for_custom_operators) {
    OnnxfuseRegistry *registry = custom_operators();
    OnnxfuseOptions options = options_with(registry);
    OnnxfuseSession *session = NULL;
    expect_code(open_text(TEST "graph (x: f32[n]) -> (y) {\na = onnx \"test\" Any@1 x\ny = onnx Neg@21 a\n}\n",
                          &options, &session),
                ONNXFUSE_UNSUPPORTED, "the number of axes", "an operator of the standard");
    onnxfuse_registry_free(registry);
}

Test(registry, gradients_that_are_missing) {
    static const struct {
        const char *body, *message;
    } cases[] = {
        {"p = onnx \"test\" Positive@1 x\ny = onnx Mul@21 p, p\ng = " DERIVATIVE " x {xs = [\"x\"], y = \"y\"}",
         "its registration names no operator for its gradient"},
        {"y, k = onnx \"test\" ScaleGradient@1 x\ng = " DERIVATIVE " x {xs = [\"x\"], y = \"y\"}",
         "the operator Nowhere, which its registration names for its gradient, is not in the registry"},
    };
    OnnxfuseRegistry *registry = custom_operators();
    OnnxfuseOptions options = options_with(registry);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char model[400];
        snprintf(model, sizeof model, GRADIENT "graph (x: f32[n]) -> (g) {\n%s\n}\n", cases[i].body);
        OnnxfuseSession *session = NULL;
        expect_code(open_text(model, &options, &session), ONNXFUSE_UNSUPPORTED, cases[i].message, cases[i].body);
        onnxfuse_session_close(session);
    }
    onnxfuse_registry_free(registry);
}

Test(registry, check_memory_knows_them) {
    OnnxfuseRegistry *registry = custom_operators();
    OnnxfuseOptions with = options_with(registry), without = options_with(NULL);
    char *node = NULL;
    size_t size;
    void *bytes = model_bytes(TEST "graph (x: f32[n]) -> (y) {\ny = onnx \"test\" Scale@1 x\n}\n", &size);
    cr_expect_null(onnxfuse_check_memory(bytes, size, NULL, &with, &node));
    expect_code(onnxfuse_check_memory(bytes, size, NULL, &without, &node), ONNXFUSE_UNSUPPORTED,
                "operator Scale of domain test", "without the registry");
    cr_expect_not_null(node);
    onnxfuse_free(node);
    free(bytes);
    onnxfuse_registry_free(registry);
}

/* --- the registry ------------------------------------------------------------------------------------------------- */
static OnnxfuseStatus compute_nothing(void *user, OnnxfuseCall *call) {
    (void)user, (void)call;
    return NULL;
}

#define OPERATOR .size = sizeof(OnnxfuseOperator), .domain = "d", .compute = compute_nothing

Test(registry, operators_that_are_refused) {
    static const struct {
        const char *name;
        OnnxfuseOperator op;
        const char *message; /* NULL: taken */
    } ops[] = {
        {"one", {OPERATOR, .name = "A", .since = 2, .until = 4}, NULL},
        {"the same in later versions", {OPERATOR, .name = "A", .since = 5}, NULL},
        {"the same in an earlier version", {OPERATOR, .name = "A", .since = 1, .until = 1}, NULL},
        {"versions that overlap", {OPERATOR, .name = "A", .since = 4, .until = 4}, "d.A is in the registry already"},
        {"versions without end", {OPERATOR, .name = "A", .since = 9}, "since version 5, until 0"},
        {"no size", {.domain = "d", .name = "B", .since = 1, .compute = compute_nothing}, "size is not set"},
        {"another size", {.size = 8, .domain = "d", .name = "B", .since = 1, .compute = compute_nothing}, "8 bytes"},
        {"no name", {OPERATOR, .since = 1}, "without a name"},
        {"no compute", {.size = sizeof(OnnxfuseOperator), .domain = "d", .name = "B", .since = 1}, "compute"},
        {"no version", {OPERATOR, .name = "B"}, "d.B: since 0, until 0"},
        {"versions backwards", {OPERATOR, .name = "B", .since = 3, .until = 2}, "d.B: since 3, until 2"},
        {"in place of what", {OPERATOR, .name = "B", .since = 1, .in_place = -1}, "in_place is -1"},
    };
    OnnxfuseRegistry *registry;
    cr_assert_null(onnxfuse_registry_create(&registry));
    for (size_t i = 0; i < sizeof ops / sizeof *ops; i++) {
        OnnxfuseStatus status = onnxfuse_registry_add_operator(registry, &ops[i].op);
        if (ops[i].message)
            expect_code(status, ONNXFUSE_USAGE, ops[i].message, ops[i].name);
        else
            cr_expect_null(status, "%s: %s", ops[i].name, onnxfuse_status_message(status));
    }
    onnxfuse_registry_free(registry);
    onnxfuse_registry_free(NULL);
}

Test(registry, fusions_that_are_refused) {
    static const char *const none[] = {NULL}, *const some[] = {"(x) -> (y) {\n y = Neg(x)\n}\n", NULL};
    static const OnnxfuseOperator nameless = {.size = sizeof nameless, .compute = compute_nothing};
#define FUSION .size = sizeof(OnnxfuseFusion), .name = "F"
    static const struct {
        const char *name;
        OnnxfuseFusion fusion;
        const char *message; /* NULL: taken */
    } fusions[] = {
        {"one", {FUSION, .phase = ONNXFUSE_FORWARD, .patterns = some}, NULL},
        {"its backward", {FUSION, .phase = ONNXFUSE_BACKWARD, .patterns = some}, NULL},
        {"the same again", {FUSION, .phase = ONNXFUSE_BACKWARD, .patterns = some}, "F is in the registry already"},
        {"no size", {.name = "G", .phase = ONNXFUSE_FORWARD, .patterns = some}, "size is not set"},
        {"no name", {.size = sizeof(OnnxfuseFusion), .phase = ONNXFUSE_FORWARD, .patterns = some}, "without a name"},
        {"no phase", {FUSION, .patterns = some}, "phase 0"},
        {"no patterns", {FUSION, .phase = ONNXFUSE_FORWARD}, "no pattern"},
        {"an empty list", {FUSION, .phase = ONNXFUSE_FORWARD, .patterns = none}, "no pattern"},
        {"a bad kernel",
         {.size = sizeof(OnnxfuseFusion),
          .name = "G",
          .phase = ONNXFUSE_FORWARD,
          .patterns = some,
          .kernel = &nameless},
         "fusion G: an operator without a name"},
    };
    OnnxfuseRegistry *registry;
    cr_assert_null(onnxfuse_registry_create(&registry));
    for (size_t i = 0; i < sizeof fusions / sizeof *fusions; i++) {
        OnnxfuseStatus status = onnxfuse_registry_add_fusion(registry, &fusions[i].fusion);
        if (fusions[i].message)
            expect_code(status, ONNXFUSE_USAGE, fusions[i].message, fusions[i].name);
        else
            cr_expect_null(status, "%s: %s", fusions[i].name, onnxfuse_status_message(status));
    }
    onnxfuse_registry_free(registry);
}
