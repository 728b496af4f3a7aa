/* SPDX-License-Identifier: Apache-2.0 */
/* Runs that are watched: which values are shown, under which names, in which layout; and the report of a plan. Inputs
 * are small whole numbers, so that all results are exact, whatever is fused. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cjson/cJSON.h>

#include "models.h"
#include "skip.h"

static const char fused[] = "{\"cache\": {\"enable\": false}}";
static const char unfused[] = "{\"cache\": {\"enable\": false}, \"fusion\": {\"enable\": false}}";

enum { MOST_SEEN = 256 };

typedef struct Seen {
    char *lines[MOST_SEEN]; /* "name: value" */
    char *nodes[MOST_SEEN];
    int count, fail_at; /* fail_at: the value at which the run is ended, from 1; 0: none */
} Seen;

static OnnxfuseStatus see(void *user, const char *name, const char *node, const OnnxfuseValue *value) {
    Seen *seen = user;
    char *text = value_text(value);
    cr_assert_lt(seen->count, MOST_SEEN);
    cr_assert(asprintf(&seen->lines[seen->count], "%s: %s", name, text) >= 0);
    seen->nodes[seen->count++] = strdup(node);
    free(text);
    return seen->count == seen->fail_at ? onnxfuse_error(ONNXFUSE_DIFFERENT, "seen enough") : NULL;
}

static void forget(Seen *seen) {
    for (int i = 0; i < seen->count; i++) {
        free(seen->lines[i]);
        free(seen->nodes[i]);
    }
    seen->count = 0;
}

static OnnxfuseStatus watch(OnnxfuseSession *session, const char *const *inputs, Seen *seen) {
    OnnxfuseValue *in[MOST_VALUES] = {0}, *out[MOST_VALUES] = {0};
    int count = onnxfuse_session_input_count(session), outputs = onnxfuse_session_output_count(session);
    for (int i = 0; i < count; i++) in[i] = value_from(inputs[i]);
    OnnxfuseRunOptions options = {.size = sizeof options, .observe = see, .observe_user = seen};
    OnnxfuseStatus status = onnxfuse_session_run_with(session, (const OnnxfuseValue *const *)in, out, &options);
    for (int i = 0; i < count; i++) onnxfuse_value_free(in[i]);
    for (int o = 0; o < outputs; o++) onnxfuse_value_free(out[o]);
    return status;
}

/* Whether a line is "name: value" with a value as the tests write it. */
static bool is_line(const char *line, const char *expected) {
    const char *colon = strstr(expected, ": ") + 2;
    OnnxfuseValue *value = value_from(colon);
    char *text = value_text(value);
    bool same =
        strncmp(line, expected, (size_t)(colon - expected)) == 0 && strcmp(line + (colon - expected), text) == 0;
    free(text);
    onnxfuse_value_free(value);
    return same;
}

static bool has_line(const Seen *seen, const char *expected) {
    for (int i = 0; i < seen->count; i++)
        if (is_line(seen->lines[i], expected)) return true;
    return false;
}

/* --- what is shown --- */
typedef struct Case {
    const char *must, *model;
    const char *inputs[4];
    const char *unfused[12]; /* all of these are seen when nothing is fused, and nothing else */
} Case;

static const Case cases[] = {
    {"every value, in order",
     "graph (x: f32[3]) -> (d) {\na = onnx Neg@21 x\nb = onnx Relu@21 a\nc = onnx Add@21 b, x\n"
     "d = onnx Abs@21 c\n}\n",
     {"f32[3] {-1, 2, -3}"},
     {"a: f32[3] {1, -2, 3}", "b: f32[3] {1, 0, 3}", "c: f32[3] {0, 2, 0}", "d: f32[3] {0, 2, 0}"}},
    {"a convolution's values are [N, C, ...]",
     "graph (x: f32[1, 2, 2]) -> (c) {\nw = constant f32[3, 2, 1] {1, 0, 0, 1, 1, 1}\n"
     "a = onnx Conv@21 x, w\nb = onnx Relu@21 a\nv = constant f32[1, 3, 1] {1, 1, 1}\n"
     "c = onnx Conv@21 b, v\n}\n",
     {"f32[1, 2, 2] {1, 2, -3, 4}"},
     {"a: f32[1, 3, 2] {1, 2, -3, 4, -2, 6}", "b: f32[1, 3, 2] {1, 2, 0, 4, 0, 6}", "c: f32[1, 1, 2] {1, 12}"}},
    {"permutes that a product takes in",
     "graph (x: f32[2, 3], y: f32[2, 2]) -> (d) {\na = onnx Transpose@21 x {perm = [1, 0]}\n"
     "b = onnx MatMul@21 a, y\nc = onnx Transpose@21 b {perm = [1, 0]}\nd = onnx Neg@21 c\n}\n",
     {"f32[2, 3] {1, 2, 3, 4, 5, 6}", "f32[2, 2] {1, 0, 0, 1}"},
     {"a: f32[3, 2] {1, 4, 2, 5, 3, 6}", "b: f32[3, 2] {1, 4, 2, 5, 3, 6}", "c: f32[2, 3] {1, 2, 3, 4, 5, 6}",
      "d: f32[2, 3] {-1, -2, -3, -4, -5, -6}"}},
    {"factors that could go into a product",
     "graph (x: f32[2, 2]) -> (c) {\nw = constant f32[2, 2] {1, 2, 3, 4}\nk = constant f32[] 2\n"
     "a = onnx MatMul@21 x, w\nb = onnx Mul@21 a, k\nc = onnx Add@21 b, w\n}\n",
     {"f32[2, 2] {1, 0, 0, 1}"},
     {"a: f32[2, 2] {1, 2, 3, 4}", "b: f32[2, 2] {2, 4, 6, 8}", "c: f32[2, 2] {3, 6, 9, 12}"}},
    {"views, of an input too",
     "graph (x: f32[2, 3]) -> (c) {\ns = constant i64[2] {3, 2}\na = onnx Reshape@21 x, s\n"
     "b = onnx Neg@21 a\nt = constant i64[1] {6}\nc = onnx Reshape@21 b, t\n}\n",
     {"f32[2, 3] {1, 2, 3, 4, 5, 6}"},
     {"a: f32[3, 2] {1, 2, 3, 4, 5, 6}", "b: f32[3, 2] {-1, -2, -3, -4, -5, -6}",
      "c: f32[6] {-1, -2, -3, -4, -5, -6}"}},
    {"two names of one value",
     "graph (x: f32[2]) -> (c) {\na = onnx Neg@21 x\nb = onnx Neg@21 x\nc = onnx Add@21 a, b\n}\n",
     {"f32[2] {1, 2}"},
     {"a: f32[2] {-1, -2}", "b: f32[2] {-1, -2}", "c: f32[2] {-2, -4}"}},
    {"a loop's values, an iteration at a time",
     "graph (m: i64[], x: f32[2]) -> (y) {\ny = onnx Loop@21 m, _, x captures 0 graph \"body\" (i: i64[], c: bool[], "
     "v: f32[2]) -> (c, w) {\nw = onnx Neg@21 v\n}\n}\n",
     {"i64[] 3", "f32[2] {1, 2}"},
     {"c_out0: bool[] true", "c_out0: bool[] true", "c_out0: bool[] true", "w: f32[2] {-1, -2}", "w: f32[2] {1, 2}",
      "w: f32[2] {-1, -2}", "y: f32[2] {-1, -2}"}},
    {"sequences, and sizes that are found on the way",
     "graph (x: f32[n]) -> (d, b) {\na = onnx NonZero@21 x\nb = onnx SequenceConstruct@21 x, x\n"
     "k = constant f32[] 1\ne = onnx Cast@21 a {to = 1}\nd = onnx Add@21 e, k\n}\n",
     {"f32[3] {0, 5, 6}"},
     {"a: i64[1, 2] {1, 2}", "b: seq f32[3] {0, 5, 6} | f32[3] {0, 5, 6}", "e: f32[1, 2] {1, 2}",
      "d: f32[1, 2] {2, 3}"}},
};

static OnnxfuseSession *open_with(const Case *c, const char *policy, const char *device) {
    OnnxfuseSession *session = NULL;
    OnnxfuseOptions options = {.size = sizeof options, .policy_json = policy, .device = device};
    OnnxfuseStatus status = open_text(c->model, &options, &session);
    if (device) {
        skip_without_device(status);
        return session;
    }
    cr_assert_null(status, "%s: %s", c->must, onnxfuse_status_message(status));
    return session;
}

static void expect_all(const Case *c, const Seen *seen, const char *what) {
    int count = 0;
    for (; c->unfused[count]; count++)
        cr_expect(has_line(seen, c->unfused[count]), "%s, %s: \"%s\" was not seen", c->must, what, c->unfused[count]);
    for (int i = 0; i < seen->count; i++) {
        bool known = false;
        for (int k = 0; k < count; k++) known |= is_line(seen->lines[i], c->unfused[k]);
        cr_expect(known, "%s, %s: \"%s\" was seen", c->must, what, seen->lines[i]);
    }
    cr_expect_eq(seen->count, count, "%s, %s: %d values", c->must, what, seen->count);
}

/* What is fused hides values; it changes none. */
static void expect_some(const Case *c, const Seen *seen, const char *what) {
    cr_expect_gt(seen->count, 0, "%s, %s", c->must, what);
    for (int i = 0; i < seen->count; i++) {
        bool known = false;
        for (int k = 0; c->unfused[k]; k++) known |= is_line(seen->lines[i], c->unfused[k]);
        cr_expect(known, "%s, %s: \"%s\" was seen", c->must, what, seen->lines[i]);
    }
}

static void check_device(const char *device) {
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        Seen seen = {0};
        OnnxfuseSession *session = open_with(&cases[i], unfused, device);
        for (int again = 0; again < 3; again++) { /* also runs of shapes that are known */
            cr_expect_null(watch(session, cases[i].inputs, &seen), "%s", cases[i].must);
            expect_all(&cases[i], &seen, device);
            forget(&seen);
        }
        onnxfuse_session_close(session);
        session = open_with(&cases[i], fused, device);
        cr_expect_null(watch(session, cases[i].inputs, &seen), "%s", cases[i].must);
        expect_some(&cases[i], &seen, device);
        forget(&seen);
        onnxfuse_session_close(session);
    }
}

Test(observe, cpu) { check_device("cpu"); }
Test(observe, opencl) { check_device("opencl"); }

Test(observe, in_the_order_in_which_they_are_made) {
    Seen seen = {0};
    OnnxfuseSession *session = open_with(&cases[0], unfused, NULL);
    cr_expect_null(watch(session, cases[0].inputs, &seen));
    static const char *const nodes[] = {"Neg#0", "Relu#1", "Add#2", "Abs#3"};
    for (int i = 0; i < seen.count; i++) {
        cr_expect(is_line(seen.lines[i], cases[0].unfused[i]), "%s", seen.lines[i]);
        cr_expect_str_eq(seen.nodes[i], nodes[i]);
    }
    forget(&seen);
    onnxfuse_session_close(session);
}

/* A value whose meaning changed when something was folded into what makes it is not shown under its old name. */
Test(observe, folded_values_are_not_claimed) {
    Seen seen = {0};
    OnnxfuseSession *session = open_with(&cases[3], fused, NULL);
    cr_expect_null(watch(session, cases[3].inputs, &seen));
    cr_expect(!has_line(&seen, "a: f32[2, 2] {2, 4, 6, 8}"));
    for (int i = 0; i < seen.count; i++) cr_expect_neq(seen.lines[i][0], 'a', "%s", seen.lines[i]);
    forget(&seen);
    onnxfuse_session_close(session);
}

Test(observe, a_status_ends_the_run) {
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        OnnxfuseSession *session = open_with(&cases[i], unfused, NULL);
        for (int at = 1; cases[i].unfused[at - 1]; at++) {
            Seen seen = {.fail_at = at};
            OnnxfuseStatus status = watch(session, cases[i].inputs, &seen);
            cr_expect_eq(onnxfuse_status_code(status), ONNXFUSE_DIFFERENT, "%s", cases[i].must);
            cr_expect(strstr(onnxfuse_status_message(status), "seen enough"), "%s", onnxfuse_status_message(status));
            cr_expect_eq(seen.count, at, "%s", cases[i].must);
            onnxfuse_status_free(status);
            forget(&seen);
        }
        Seen seen = {0};
        cr_expect_null(watch(session, cases[i].inputs, &seen));
        expect_all(&cases[i], &seen, "after runs that were ended");
        forget(&seen);
        onnxfuse_session_close(session);
    }
}

/* --- the report --- */
static cJSON *report_of(OnnxfuseSession *session) {
    char *text = NULL;
    cr_assert_null(onnxfuse_session_report_json(session, &text));
    cJSON *report = cJSON_Parse(text);
    cr_assert(report, "%s", text);
    onnxfuse_free(text);
    return report;
}

static const cJSON *get(const cJSON *object, const char *key) { return cJSON_GetObjectItemCaseSensitive(object, key); }

static void check_plan(const Case *c, const cJSON *plan, int kernels) {
    const cJSON *step, *inner, *buffers = get(plan, "buffers");
    int number = 0, count = cJSON_GetArraySize(buffers);
    cJSON_ArrayForEach(step, get(plan, "steps")) {
        cr_expect_eq(get(step, "step")->valueint, number++, "%s", c->must);
        cr_expect_gt(cJSON_GetArraySize(get(step, "nodes")), 0, "%s", c->must);
        bool kernel = strcmp(get(step, "kind")->valuestring, "kernel") == 0;
        cr_expect(!kernel || (get(step, "kernel")->valueint < kernels && cJSON_GetArraySize(get(step, "body"))));
        for (int side = 0; side < 2; side++) {
            const cJSON *slot;
            cJSON_ArrayForEach(slot, get(step, side ? "outputs" : "inputs"))
                cr_expect(slot->valueint >= -1 && slot->valueint < count, "%s", c->must);
        }
        cJSON_ArrayForEach(inner, get(step, "plans")) check_plan(c, inner, kernels);
    }
}

Test(observe, reports) {
    static const char *const policies[] = {fused, unfused};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int p = 0; p < 2; p++) {
            OnnxfuseSession *session = open_with(&cases[i], policies[p], NULL);
            cJSON *before = report_of(session); /* no run yet: no sizes */
            cr_expect_null(get(get(before, "plan"), "arena"), "%s", cases[i].must);
            cr_expect_gt(cJSON_GetArraySize(get(before, "model")), 0, "%s", cases[i].must);
            cJSON_Delete(before);
            onnxfuse_session_profile(session, true);
            Seen seen = {0};
            for (int run = 0; run < 3; run++) {
                cr_expect_null(watch(session, cases[i].inputs, &seen));
                forget(&seen);
            }
            cJSON *report = report_of(session);
            const cJSON *plan = get(report, "plan"), *step;
            cr_expect(get(plan, "arena"), "%s", cases[i].must);
            check_plan(&cases[i], plan, cJSON_GetArraySize(get(report, "kernels")));
            cJSON_ArrayForEach(step, get(plan, "steps")) {
                const cJSON *time = get(step, "time");
                cr_assert(time, "%s", cases[i].must);
                cr_expect_eq(get(time, "count")->valueint, 3, "%s", cases[i].must);
            }
            cJSON_Delete(report);
            onnxfuse_session_close(session);
        }
}

Test(observe, work_of_products) {
    OnnxfuseSession *session = open_with(&cases[3], unfused, NULL);
    Seen seen = {0};
    cr_expect_null(watch(session, cases[3].inputs, &seen));
    forget(&seen);
    cJSON *report = report_of(session);
    const cJSON *step = cJSON_GetArrayItem(get(get(report, "plan"), "steps"), 0);
    cr_expect_str_eq(get(step, "name")->valuestring, "matmul");
    cr_expect_eq(get(step, "work")->valueint, 2 * 2 * 2 * 2);
    cr_expect_eq(get(step, "bytes")->valueint, 3 * 4 * 4);
    cJSON_Delete(report);
    onnxfuse_session_close(session);
}
