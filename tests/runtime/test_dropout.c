/* SPDX-License-Identifier: Apache-2.0 */
/* Dropout in training: a mask is a function of seed, run and element alone, so it is the same fused or not, on any
 * number of threads and at any vector width; it drops the right share, and what it keeps is scaled by 1 / (1 - ratio).
 */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "models.h"

enum { ROWS = 96, COLUMNS = 260 }; /* no multiple of a vector */

/* Inputs x, r [n, d] and vectors b, g, c [d]; outputs y and the mask. */
#define HEAD "opset 23\ngraph (x: f32[n, d], r: f32[n, d], b: f32[d], g: f32[d], c: f32[d]) -> (y, m) {\n"
#define DROP(from) "ratio = constant f32[] 0.25\nt = constant bool[] true\np, m = onnx Dropout@23 " from ", ratio, t\n"

static const struct {
    const char *name, *text;
} models[] = {
    {"bias, GELU, dropout", HEAD "a = onnx Add@23 x, b\nq = onnx Gelu@23 a\n" DROP("q") "y = onnx Identity@23 p\n}\n"},
    {"bias, dropout, residual, layer normalisation",
     HEAD "a = onnx Add@23 x, b\n" DROP("a") "s = onnx Add@23 p, r\ny = onnx LayerNormalization@23 s, g, c\n}\n"},
    {"dropout, residual, root mean square",
     HEAD DROP("x") "s = onnx Add@23 p, r\ny = onnx RMSNormalization@23 s, g\n}\n"},
};
enum { MODELS = sizeof models / sizeof *models };

static const char *const variants[] = {
    "{\"threads\": 1, \"cache\": {\"enable\": false}}",
    "{\"threads\": 2, \"cache\": {\"enable\": false}}",
    "{\"threads\": 1, \"fusion\": {\"enable\": false}, \"cache\": {\"enable\": false}}",
    "{\"threads\": 2, \"fusion\": {\"enable\": false}, \"cache\": {\"enable\": false}}",
#if defined(__x86_64__)
    "{\"threads\": 2, \"target\": \"x86-64\", \"cache\": {\"enable\": false}}",
#endif
};
enum { VARIANTS = sizeof variants / sizeof *variants };

typedef struct Result {
    OnnxfuseValue *y, *mask;
} Result;

static OnnxfuseValue *filled(int rank, const int64_t *dims, int salt) {
    OnnxfuseValue *value = NULL;
    cr_assert(!onnxfuse_value_tensor(ONNXFUSE_FLOAT32, rank, dims, NULL, &value));
    float *data = onnxfuse_value_data(value);
    for (int64_t i = 0; i < onnxfuse_value_count(value); i++) data[i] = (float)((i * 7919 + salt) % 41 + 1) / 16;
    return value;
}

static OnnxfuseSession *open_policy(const char *text, const char *policy) {
    OnnxfuseSession *session = NULL;
    OnnxfuseStatus status = open_text(text, &(OnnxfuseOptions){.policy_json = policy}, &session);
    cr_assert(!status, "%s", onnxfuse_status_message(status));
    return session;
}

static Result run(OnnxfuseSession *session) {
    static const int64_t matrix[] = {ROWS, COLUMNS};
    OnnxfuseValue *in[] = {filled(2, matrix, 1), filled(2, matrix, 2), filled(1, matrix + 1, 3),
                           filled(1, matrix + 1, 4), filled(1, matrix + 1, 5)};
    OnnxfuseValue *out[2] = {NULL};
    OnnxfuseStatus status = onnxfuse_session_run(session, (const OnnxfuseValue *const *)in, out);
    cr_assert(!status, "%s", onnxfuse_status_message(status));
    for (int i = 0; i < 5; i++) onnxfuse_value_free(in[i]);
    return (Result){out[0], out[1]};
}

static void release(Result *result) {
    onnxfuse_value_free(result->y);
    onnxfuse_value_free(result->mask);
}

static bool same_mask(const Result *a, const Result *b) {
    return memcmp(onnxfuse_value_data(a->mask), onnxfuse_value_data(b->mask), ROWS * COLUMNS) == 0;
}

static double largest_difference(const Result *a, const Result *b) {
    double largest = 0;
    for (int64_t i = 0; i < ROWS * COLUMNS; i++)
        largest = fmax(largest, fabs(onnxfuse_value_element(a->y, i) - onnxfuse_value_element(b->y, i)));
    return largest;
}

static int kept(const Result *result) {
    int count = 0;
    for (int i = 0; i < ROWS * COLUMNS; i++) count += ((const uint8_t *)onnxfuse_value_data(result->mask))[i];
    return count;
}

Test(dropout, masks_do_not_depend_on_how_they_are_computed) {
    for (int m = 0; m < MODELS; m++) {
        Result first[2];
        for (int v = 0; v < VARIANTS; v++) {
            OnnxfuseSession *session = open_policy(models[m].text, variants[v]);
            for (int number = 0; number < 2; number++) {
                Result now = run(session);
                if (v == 0) {
                    first[number] = now;
                    continue;
                }
                cr_expect(same_mask(&first[number], &now), "%s, run %d: the mask of %s differs", models[m].name, number,
                          variants[v]);
                double difference = largest_difference(&first[number], &now);
                cr_expect(difference < 1e-5, "%s, run %d: %s differs by %g", models[m].name, number, variants[v],
                          difference);
                release(&now);
            }
            onnxfuse_session_close(session);
        }
        cr_expect(!same_mask(&first[0], &first[1]), "%s: each run draws afresh", models[m].name);
        release(&first[0]);
        release(&first[1]);
    }
}

/* Of elements that share a word, and of others, both are kept as often as chance has it. */
static void check_neighbours(const Result *result) {
    const uint8_t *mask = onnxfuse_value_data(result->mask);
    static const int apart[] = {1, 8, 16, 64, 128};
    for (size_t d = 0; d < sizeof apart / sizeof *apart; d++) {
        int pairs = 0, both = 0;
        for (int i = 0; i + apart[d] < ROWS * COLUMNS; i += apart[d] == 1 ? 2 : 1, pairs++)
            both += mask[i] & mask[i + apart[d]];
        double share = (double)both / pairs, expected = 0.75 * 0.75;
        cr_expect(fabs(share - expected) < 4 * sqrt(expected * (1 - expected) / pairs) * (apart[d] == 1 ? 1 : 2),
                  "of elements %d apart both are kept in %g", apart[d], share);
    }
}

Test(dropout, share_and_scale) {
    OnnxfuseSession *session = open_policy(models[0].text, variants[1]);
    Result result = run(session);
    double share = (double)kept(&result) / (ROWS * COLUMNS), deviation = sqrt(0.25 * 0.75 / (ROWS * COLUMNS));
    cr_expect(fabs(share - 0.75) < 4 * deviation, "%g of the elements are kept", share);
    check_neighbours(&result);
    static const int64_t matrix[] = {ROWS, COLUMNS};
    OnnxfuseValue *x = filled(2, matrix, 1), *b = filled(1, matrix + 1, 3);
    for (int64_t i = 0; i < ROWS * COLUMNS; i++) {
        double v = onnxfuse_value_element(x, i) + onnxfuse_value_element(b, i % COLUMNS);
        double gelu = v * 0.5 * (1 + erf(v / sqrt(2))), y = onnxfuse_value_element(result.y, i);
        double expected = ((const uint8_t *)onnxfuse_value_data(result.mask))[i] ? gelu / 0.75 : 0;
        cr_assert(fabs(y - expected) < 1e-5, "element %lld is %g, expected %g", (long long)i, y, expected);
    }
    onnxfuse_value_free(x);
    onnxfuse_value_free(b);
    release(&result);
    onnxfuse_session_close(session);
}

Test(dropout, seeds) {
    static const char *const policies[] = {"{\"seed\": 1, \"cache\": {\"enable\": false}}",
                                           "{\"seed\": 2, \"cache\": {\"enable\": false}}",
                                           "{\"seed\": 1, \"cache\": {\"enable\": false}}"};
    Result results[3];
    for (int i = 0; i < 3; i++) {
        OnnxfuseSession *session = open_policy(models[0].text, policies[i]);
        results[i] = run(session);
        onnxfuse_session_close(session);
    }
    cr_expect(!same_mask(&results[0], &results[1]), "the policy's seed changes the mask");
    cr_expect(same_mask(&results[0], &results[2]), "the same seed gives the same mask");
    for (int i = 0; i < 3; i++) release(&results[i]);
}

Test(dropout, two_nodes_draw_two_masks) {
    OnnxfuseSession *session = open_policy("opset 23\ngraph (x: f32[n, d], r: f32[n, d], b: f32[d], g: f32[d], c: "
                                           "f32[d]) -> (m, k) {\nratio = constant f32[] 0.5\nt = constant bool[] "
                                           "true\np, m = onnx Dropout@23 x, ratio, t\nq, k = onnx Dropout@23 x, ratio, "
                                           "t\n}\n",
                                           variants[0]);
    Result result = run(session);
    cr_expect(memcmp(onnxfuse_value_data(result.y), onnxfuse_value_data(result.mask), ROWS * COLUMNS));
    release(&result);
    onnxfuse_session_close(session);
}

Test(dropout, ends_of_the_ratio) {
    static const struct {
        const char *ratio;
        int kept;
    } rows[] = {{"0", ROWS * COLUMNS}, {"0.0", ROWS * COLUMNS}};
    for (int i = 0; i < 2; i++) {
        char text[512];
        snprintf(text, sizeof text,
                 HEAD "ratio = constant f32[] %s\nt = constant bool[] true\ny, m = onnx Dropout@23 x, "
                      "ratio, t\n}\n",
                 rows[i].ratio);
        OnnxfuseSession *session = open_policy(text, variants[0]);
        Result result = run(session);
        cr_expect(kept(&result) == rows[i].kept, "ratio %s keeps %d", rows[i].ratio, kept(&result));
        release(&result);
        onnxfuse_session_close(session);
    }
}

/* Softmax, Dropout, MatMul, as exporters write attention in training: one step in each direction, that drops what a Dropout by itself does. */
static const char probabilities[] =
    "opset 23\nopset \"ai.onnx.preview.training\" 1\ngraph (q: f32[b, h, s, 16], k: f32[b, h, t, 16], v: f32[b, h, t, "
    "24], w: f32[b, h, s, 24]) -> (y, dq, "
    "dk, dv) {\nturned = onnx Transpose@23 k {perm = [0, 1, 3, 2]}\na = onnx MatMul@23 q, turned\nquarter = constant "
    "f32[] 0.25\nx = onnx Mul@23 a, quarter\np = onnx Softmax@23 x\nratio = constant f32[] 0.25\nt = constant bool[] "
    "true\nd = onnx Dropout@23 p, ratio, t\ny = onnx MatMul@23 d, v\nz = onnx Mul@23 y, w\nsum = onnx ReduceSum@23 z "
    "{keepdims = 0}\ndq, dk, dv = onnx \"ai.onnx.preview.training\" Gradient@1 q, k, v {xs = [\"q\", \"k\", \"v\"], y "
    "= \"sum\"}\n}\n";

Test(dropout, of_probabilities_is_a_part_of_attention) {
    enum { QUERIES = 70, KEYS = 75, RUNS = 2, RESULTS = 4 };
    const int64_t dims[RESULTS][4] = {{2, 3, QUERIES, 16}, {2, 3, KEYS, 16}, {2, 3, KEYS, 24}, {2, 3, QUERIES, 24}};
    OnnxfuseValue *in[RESULTS], *first[RUNS][RESULTS] = {{NULL}};
    for (int i = 0; i < RESULTS; i++) in[i] = filled(4, dims[i], i + 1);
    for (int variant = 0; variant < VARIANTS; variant++) {
        OnnxfuseSession *session = open_policy(probabilities, variants[variant]);
        char *report;
        cr_assert(!onnxfuse_session_report_json(session, &report));
        bool fused = strstr(report, "attention_backward") != NULL, apart = strstr(variants[variant], "fusion") != NULL;
        cr_expect(fused != apart, "%s: attention is %s step", variants[variant], fused ? "one" : "no");
        free(report);
        for (int number = 0; number < RUNS; number++) {
            OnnxfuseValue *out[RESULTS] = {NULL};
            OnnxfuseStatus status = onnxfuse_session_run(session, (const OnnxfuseValue *const *)in, out);
            cr_assert(!status, "%s", onnxfuse_status_message(status));
            for (int r = 0; r < RESULTS; r++) {
                if (!variant) {
                    first[number][r] = out[r];
                    continue;
                }
                for (int64_t i = 0; i < onnxfuse_value_count(out[r]); i++) {
                    double x = onnxfuse_value_element(first[number][r], i), y = onnxfuse_value_element(out[r], i);
                    cr_assert(fabs(x - y) <= 1e-4, "%s, run %d, result %d: element %lld is %g, not %g",
                              variants[variant], number, r, (long long)i, y, x);
                }
                onnxfuse_value_free(out[r]);
            }
        }
        onnxfuse_session_close(session);
    }
    double change = 0;
    for (int64_t i = 0; i < onnxfuse_value_count(first[0][0]); i++)
        change = fmax(change, fabs(onnxfuse_value_element(first[0][0], i) - onnxfuse_value_element(first[1][0], i)));
    cr_expect(change > 1e-3, "each run draws afresh");
    for (int r = 0; r < RESULTS; r++) {
        for (int number = 0; number < RUNS; number++) onnxfuse_value_free(first[number][r]);
        onnxfuse_value_free(in[r]);
    }
}
