/* SPDX-License-Identifier: Apache-2.0 */
/* A result has the same bits on any number of threads, fewer and more than there are cores: whole plans, of sizes at which
 * work is cut in every way there is. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/plain.h"
#include "models.h"

typedef struct Constant {
    const char *name, *type, *shape; /* "f32", "1024, 64" */
    int count;
} Constant;

enum { MOST_CONSTANTS = 3 };

typedef struct Case {
    const char *name, *policy; /* members of the policy's JSON beside the cache; NULL: none */
    Constant constants[MOST_CONSTANTS];
    OnnxfuseDType dtype; /* of x */
    int rank;
    int64_t dims[4];
    const char *before, *body; /* "x: f32[n, 8]"; nodes that make y */
} Case;

#define F32 ONNXFUSE_FLOAT32
#define LONG_WEIGHT                                                                                                    \
    { "w", "f32", "1024, 64", 1 << 16 }
#define WEIGHT_RULE(form) "\"rules\": [{\"match\": {\"operator\": \"MatMul\"}, \"weights\": \"" form "\"}]"

static const Case cases[] = {
    {"a row by a long sum", NULL, {LONG_WEIGHT}, F32, 2, {1, 1024}, "x: f32[n, 1024]", "y = onnx MatMul@21 x, w\n"},
    {"few rows", NULL, {LONG_WEIGHT}, F32, 2, {5, 1024}, "x: f32[n, 1024]", "y = onnx MatMul@21 x, w\n"},
    {"rows beyond a tile", NULL, {LONG_WEIGHT}, F32, 2, {40, 1024}, "x: f32[n, 1024]", "y = onnx MatMul@21 x, w\n"},
    {"a sum of several blocks",
     NULL,
     {{"w", "f32", "5003, 16", 5003 * 16}},
     F32,
     2,
     {3, 5003},
     "x: f32[n, 5003]",
     "y = onnx MatMul@21 x, w\n"},
    {"columns that are no whole vector",
     NULL,
     {{"w", "f32", "700, 37", 700 * 37}},
     F32,
     2,
     {2, 700},
     "x: f32[n, 700]",
     "y = onnx MatMul@21 x, w\n"},
    {"with bias and bounds",
     NULL,
     {LONG_WEIGHT, {"b", "f32", "64", 64}},
     F32,
     2,
     {2, 1024},
     "x: f32[n, 1024]",
     "m = onnx MatMul@21 x, w\ns = onnx Add@21 m, b\ny = onnx Relu@21 s\n"},
    {"with bias and a kernel that finishes",
     NULL,
     {LONG_WEIGHT, {"b", "f32", "64", 64}},
     F32,
     2,
     {2, 1024},
     "x: f32[n, 1024]",
     "m = onnx MatMul@21 x, w\ns = onnx Add@21 m, b\ny = onnx Gelu@21 s\n"},
    {"with a residual",
     NULL,
     {LONG_WEIGHT, {"v", "f32", "64, 64", 4096}},
     F32,
     2,
     {2, 1024},
     "x: f32[n, 1024]",
     "a = onnx MatMul@21 x, w\nr = onnx MatMul@21 a, v\ny = onnx Add@21 a, r\n"},
    {"f64",
     NULL,
     {{"w", "f64", "1024, 24", 1024 * 24}},
     ONNXFUSE_FLOAT64,
     2,
     {3, 1024},
     "x: f64[n, 1024]",
     "y = onnx MatMul@21 x, w\n"},
    {"f16",
     NULL,
     {{"w", "f16", "1024, 24", 1024 * 24}},
     ONNXFUSE_FLOAT16,
     2,
     {3, 1024},
     "x: f16[n, 1024]",
     "y = onnx MatMul@21 x, w\n"},
    {"weights f16",
     WEIGHT_RULE("f16"),
     {LONG_WEIGHT},
     F32,
     2,
     {2, 1024},
     "x: f32[n, 1024]",
     "y = onnx MatMul@21 x, w\n"},
    {"weights int8",
     WEIGHT_RULE("int8"),
     {LONG_WEIGHT},
     F32,
     2,
     {2, 1024},
     "x: f32[n, 1024]",
     "y = onnx MatMul@21 x, w\n"},
    {"weights int4",
     WEIGHT_RULE("int4"),
     {LONG_WEIGHT},
     F32,
     2,
     {2, 1024},
     "x: f32[n, 1024]",
     "y = onnx MatMul@21 x, w\n"},
    {"weights int8, many rows",
     WEIGHT_RULE("int8"),
     {LONG_WEIGHT},
     F32,
     2,
     {30, 1024},
     "x: f32[n, 1024]",
     "y = onnx MatMul@21 x, w\n"},
    {"a convolution of few positions and many channels",
     NULL,
     {{"w", "f32", "16, 600, 1, 1", 9600}},
     F32,
     4,
     {1, 600, 3, 3},
     "x: f32[n, 600, 3, 3]",
     "y = onnx Conv@21 x, w {kernel_shape = [1, 1]}\n"},
    {"the same with padding around",
     NULL,
     {{"w", "f32", "16, 600, 1, 1", 9600}},
     F32,
     4,
     {1, 600, 3, 3},
     "x: f32[n, 600, 3, 3]",
     "y = onnx Conv@21 x, w {kernel_shape = [1, 1], pads = [1, 0, 2, 1]}\n"},
    {"a convolution of 3x3",
     NULL,
     {{"w", "f32", "8, 40, 3, 3", 8 * 360}},
     F32,
     4,
     {2, 40, 9, 9},
     "x: f32[n, 40, 9, 9]",
     "y = onnx Conv@21 x, w {kernel_shape = [3, 3], pads = [1, 1, 1, 1]}\n"},
    {"a depthwise one",
     NULL,
     {{"w", "f32", "40, 1, 3, 3", 360}},
     F32,
     4,
     {2, 40, 19, 9},
     "x: f32[n, 40, 19, 9]",
     "y = onnx Conv@21 x, w {kernel_shape = [3, 3], pads = [1, 1, 1, 1], group = 40}\n"},
    {"one within the pointwise one that reads it, and the same with other ends",
     NULL,
     {{"w", "f32", "40, 1, 3, 3", 360}, {"v", "f32", "24, 40, 1, 1", 960}},
     F32,
     4,
     {1, 40, 130, 131},
     "x: f32[n, 40, 130, 131]",
     "a = onnx Conv@21 x, w {kernel_shape = [3, 3], pads = [1, 1, 1, 1], group = 40}\nb = onnx Conv@21 a, v "
     "{kernel_shape = [1, 1]}\nc = onnx Conv@21 x, w {kernel_shape = [3, 3], pads = [1, 1, 1, 1], group = 40}\nd = "
     "onnx "
     "Sigmoid@21 c\ne = onnx Mul@21 c, d\nf = onnx Conv@21 e, v {kernel_shape = [1, 1]}\ng = onnx Tanh@21 f\ny = onnx "
     "Add@21 b, g\n"},
    {"one of joined channels, and the next one",
     NULL,
     {{"v", "f32", "24, 80, 1, 1", 1920}},
     F32,
     4,
     {1, 32, 30, 31},
     "x: f32[n, 32, h, 31]",
     "p = onnx MaxPool@21 x {kernel_shape = [3, 3], pads = [1, 1, 1, 1]}\nq = onnx AveragePool@21 x {kernel_shape = "
     "[1, 1]}\nr, s = onnx Split@21 q {axis = 1, num_outputs = 2}\nc = onnx Concat@21 p, r, s, r {axis = 1}\nd = onnx "
     "Concat@21 p, x, s {axis = 1}\na = onnx Conv@21 c, v\nb = onnx Conv@21 d, v\ny = onnx Add@21 a, b\n"},
    {"products of activations",
     NULL,
     {{0}},
     F32,
     4,
     {2, 3, 50, 40},
     "x: f32[n, 3, 50, 40]",
     "t = onnx Transpose@21 x {perm = [0, 1, 3, 2]}\ns = onnx MatMul@21 x, t\np = onnx Softmax@21 s {axis = -1}\ny = "
     "onnx MatMul@21 p, x\n"},
    {"a sum of rows", NULL, {{"a", "i64", "1", 0}}, F32, 2, {300, 700}, "x: f32[n, m]", "y = onnx ReduceSum@21 x, a\n"},
    {"a sum of columns",
     NULL,
     {{"a", "i64", "1", 1}},
     F32,
     2,
     {900, 300},
     "x: f32[n, m]",
     "y = onnx ReduceSum@21 x, a\n"},
    {"a sum of all", NULL, {{0}}, F32, 2, {500, 700}, "x: f32[n, m]", "y = onnx ReduceSum@21 x {keepdims = 0}\n"},
    {"a normalization",
     NULL,
     {{"g", "f32", "700", 700}},
     F32,
     2,
     {60, 700},
     "x: f32[n, 700]",
     "l = onnx LayerNormalization@21 x, g {axis = -1}\ny = onnx Gelu@21 l\n"},
    {"random numbers",
     NULL,
     {{0}},
     F32,
     2,
     {300, 500},
     "x: f32[n, m]",
     "r = onnx RandomUniformLike@21 x {seed = 3.0}\ny = onnx Mul@21 r, x\n"},
    {"the largest of each row", NULL, {{0}}, F32, 2, {300, 500}, "x: f32[n, m]", "y = onnx ArgMax@21 x {axis = 1}\n"},
    {"running sums", NULL, {{"a", "i64", "", 1}}, F32, 2, {300, 500}, "x: f32[n, m]", "y = onnx CumSum@21 x, a\n"},
};

/* --- models and inputs --- */
static uint32_t next_word(uint32_t *state) { return *state = *state * 1664525u + 1013904223u; }

/* Numbers of many sizes, so that the order of a sum shows. Axes are their count. */
static void add_constant(FILE *out, const Constant *c) {
    uint32_t state = (uint32_t)c->count;
    fprintf(out, "%s = constant %s[%s] ", c->name, c->type, c->shape);
    if (!strcmp(c->type, "i64")) {
        fprintf(out, *c->shape ? "{%d}\n" : "%d\n", c->count);
        return;
    }
    for (int i = 0; i < c->count; i++) {
        double x = ((double)next_word(&state) / 4294967296.0 - 0.5) * (i % 7 == 3 ? 8 : 0.125);
        char number[32];
        plain_print(number, sizeof number, "%.5f", x);
        fprintf(out, "%s%s", i ? ", " : "{", number);
    }
    fprintf(out, "}\n");
}

static char *text_of(const Case *c) {
    char *text;
    size_t size;
    FILE *out = open_memstream(&text, &size);
    fprintf(out, "graph (%s) -> (y) {\n", c->before);
    for (int i = 0; i < MOST_CONSTANTS && c->constants[i].name; i++) add_constant(out, &c->constants[i]);
    fprintf(out, "%s}\n", c->body);
    fclose(out);
    return text;
}

static OnnxfuseValue *input_of(const Case *c) {
    OnnxfuseValue *value = NULL;
    cr_assert(!onnxfuse_value_tensor(c->dtype, c->rank, c->dims, NULL, &value));
    void *data = onnxfuse_value_data(value);
    uint32_t state = 12345;
    for (int64_t i = 0; i < onnxfuse_value_count(value); i++) {
        double x = ((double)next_word(&state) / 4294967296.0 - 0.5) * (i % 5 == 2 ? 4 : 0.25);
        if (c->dtype == F32) ((float *)data)[i] = (float)x;
        if (c->dtype == ONNXFUSE_FLOAT64) ((double *)data)[i] = x;
        if (c->dtype == ONNXFUSE_FLOAT16)
            ((uint16_t *)data)[i] = (uint16_t)(0x2c00 + (next_word(&state) >> 20 & 0x8fff));
    }
    return value;
}

/* Two runs: memory that a run finds used must not show either. */
static OnnxfuseValue *run_on(const Case *c, const char *text, int threads) {
    char policy[400];
    snprintf(policy, sizeof policy, "{\"cache\": {\"enable\": false}%s%s}", c->policy ? ", " : "",
             c->policy ? c->policy : "");
    OnnxfuseOptions options = {.size = sizeof options, .policy_json = policy, .threads = threads};
    OnnxfuseSession *session = NULL;
    OnnxfuseStatus status = open_text(text, &options, &session);
    cr_assert(!status, "%s: %s", c->name, onnxfuse_status_message(status));
    OnnxfuseValue *input = input_of(c), *output = NULL;
    for (int run = 0; run < 2; run++) {
        onnxfuse_value_free(output);
        output = NULL;
        status = onnxfuse_session_run(session, (const OnnxfuseValue *const[]){input}, &output);
        cr_assert(!status, "%s: %s", c->name, onnxfuse_status_message(status));
    }
    onnxfuse_value_free(input);
    onnxfuse_session_close(session);
    return output;
}

Test(threads, do_not_change_a_bit) {
    static const int counts[] = {2, 3, 16, 64};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char *text = text_of(&cases[i]);
        OnnxfuseValue *one = run_on(&cases[i], text, 1);
        for (size_t t = 0; t < sizeof counts / sizeof *counts; t++) {
            OnnxfuseValue *many = run_on(&cases[i], text, counts[t]);
            cr_assert(onnxfuse_value_bytes(one) == onnxfuse_value_bytes(many) && onnxfuse_value_bytes(one) > 0);
            cr_expect(!memcmp(onnxfuse_value_data(one), onnxfuse_value_data(many), onnxfuse_value_bytes(one)),
                      "%s: %d threads give other bits than one", cases[i].name, counts[t]);
            onnxfuse_value_free(many);
        }
        onnxfuse_value_free(one);
        free(text);
    }
}

/* --- how they share the work, by count --- */
static double number_in(const char *json, const char *key) {
    const char *at = strstr(json, key);
    cr_assert(at, "no %s in %s", key, json);
    return atof(at + strlen(key));
}

static char *roofline_of(const Case *c, int threads) {
    char *text = text_of(c), *json = NULL;
    OnnxfuseOptions options = {
        .size = sizeof options, .policy_json = "{\"cache\": {\"enable\": false}}", .threads = threads};
    OnnxfuseSession *session = NULL;
    OnnxfuseValue *input = input_of(c);
    cr_assert(!open_text(text, &options, &session));
    cr_assert(!onnxfuse_session_roofline_json(session, (const OnnxfuseValue *const[]){input}, false, &json));
    onnxfuse_value_free(input);
    onnxfuse_session_close(session);
    free(text);
    return json;
}

static const struct {
    const char *name;
    int threads;
    double slices, serial, idle; /* idle: at most */
} shares[] = {
    /* [1, 1024] by [1024, 64]: one panel of 64 columns (two of 32, four of 16 with narrower vectors), by its depth */
    {"a row by a long sum", 1, 1, 1, 0},
    {"a sum of several blocks", 16, 16, 0, 0.5},
};

Test(threads, have_work_that_is_counted_as_it_is_cut) {
    for (size_t i = 0; i < sizeof shares / sizeof *shares; i++) {
        const Case *c = cases;
        while (strcmp(c->name, shares[i].name)) c++;
        char *json = roofline_of(c, shares[i].threads);
        cr_expect(number_in(json, "\"slices\":") >= shares[i].slices &&
                      number_in(json, "\"serial\":") == shares[i].serial &&
                      number_in(json, "\"idle\":") <= shares[i].idle,
                  "%s on %d threads: %s", c->name, shares[i].threads, json);
        onnxfuse_free(json);
    }
}

/* The estimate makes no run, whatever it is asked for. */
Test(threads, an_estimate_says_what_it_cannot_know) {
    OnnxfuseSession *session = must_open("graph (x: f32[n]) -> (y) {\nz = onnx NonZero@21 x\ny = onnx Neg@21 z\n}\n");
    OnnxfuseValue *input = value_from("f32[3] {1, 0, 2}"), *wrong = value_from("f32[1, 3] {1, 0, 2}");
    char *json = NULL;
    cr_assert(!onnxfuse_session_roofline_json(session, (const OnnxfuseValue *const[]){input}, false, &json));
    cr_expect(number_in(json, "\"unknown\":") >= 1, "%s", json);
    onnxfuse_free(json);
    OnnxfuseStatus status =
        onnxfuse_session_roofline_json(session, (const OnnxfuseValue *const[]){wrong}, false, &json);
    cr_expect_eq(onnxfuse_status_code(status), ONNXFUSE_INVALID);
    onnxfuse_status_free(status);
    status = onnxfuse_session_roofline_json(session, (const OnnxfuseValue *const[]){NULL}, false, &json);
    cr_expect_eq(onnxfuse_status_code(status), ONNXFUSE_INVALID);
    onnxfuse_status_free(status);
    status = onnxfuse_session_roofline_json(session, NULL, false, &json);
    cr_expect_eq(onnxfuse_status_code(status), ONNXFUSE_USAGE, "no run was profiled");
    onnxfuse_status_free(status);
    OnnxfuseStats stats;
    onnxfuse_session_stats(session, &stats, sizeof stats);
    cr_expect_eq(stats.runs, 0);
    onnxfuse_value_free(input);
    onnxfuse_value_free(wrong);
    onnxfuse_session_close(session);
}
