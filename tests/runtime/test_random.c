/* SPDX-License-Identifier: Apache-2.0 */
/* Drawn numbers: how many bits they carry, what they add up to, and that neither threads nor fusion changes them. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "models.h"

static OnnxfuseSession *open_policy(const char *text, const char *policy) {
    OnnxfuseSession *session = NULL;
    OnnxfuseStatus status = open_text(text, &(OnnxfuseOptions){.policy_json = policy}, &session);
    cr_assert(!status, "%s", onnxfuse_status_message(status));
    return session;
}

static OnnxfuseValue *draw(const char *text, const char *policy) {
    OnnxfuseSession *session = open_policy(text, policy);
    OnnxfuseValue *out = NULL;
    OnnxfuseStatus status = onnxfuse_session_run(session, NULL, &out);
    cr_assert(!status, "%s", onnxfuse_status_message(status));
    onnxfuse_session_close(session);
    return out;
}

static const char *const plain = "{\"threads\": 1, \"fusion\": {\"enable\": false}, \"cache\": {\"enable\": false}}",
                         *const fused = "{\"threads\": 2, \"cache\": {\"enable\": false}}";

#define SHAPE "shape = [100003]"
enum { COUNT = 100003 };

static const struct {
    const char *name, *text;
    double mean, deviation; /* of what is drawn */
    double low, high;
    double smallest; /* all draws are multiples of it, and not all of its double; 0: not looked at */
} rows[] = {
    {"uniform in f32", "graph () -> (y) {\ny = onnx RandomUniform@21 {" SHAPE "}\n}\n", 0.5, 0.28868, 0, 1, 0x1p-24},
    {"uniform in f64", "graph () -> (y) {\ny = onnx RandomUniform@21 {dtype = 11, " SHAPE "}\n}\n", 0.5, 0.28868, 0, 1,
     0x1p-53},
    {"uniform in f64 between bounds",
     "graph () -> (y) {\ny = onnx RandomUniform@21 {dtype = 11, low = -3.0, high = 5.0, " SHAPE "}\n}\n", 1, 2.3094, -3,
     5, 0},
    {"normal in f32", "graph () -> (y) {\ny = onnx RandomNormal@21 {" SHAPE "}\n}\n", 0, 1, -9, 9, 0},
    {"normal in f64",
     "graph () -> (y) {\ny = onnx RandomNormal@21 {dtype = 11, mean = 2.0, scale = 3.0, " SHAPE "}\n}\n", 2, 3, -25, 29,
     0},
};

Test(random, bits_and_moments) {
    for (size_t r = 0; r < sizeof rows / sizeof *rows; r++) {
        OnnxfuseValue *y = draw(rows[r].text, plain), *again = draw(rows[r].text, fused);
        double sum = 0, squares = 0;
        bool whole = true, halves = true, singles = true;
        cr_assert_eq(onnxfuse_value_count(y), COUNT);
        for (int64_t i = 0; i < COUNT; i++) {
            double x = onnxfuse_value_element(y, i), units = x / rows[r].smallest;
            cr_assert(x >= rows[r].low && x <= rows[r].high, "%s: %g", rows[r].name, x);
            sum += x - rows[r].mean;
            squares += (x - rows[r].mean) * (x - rows[r].mean);
            whole &= units == floor(units);
            halves &= fmod(units, 2) == 0;
            singles &= x == (double)(float)x;
        }
        /* Six standard deviations of the mean, and of the variance (whose own is at most sqrt(2 / n) here). */
        double most = 6 / sqrt(COUNT), variance = squares / COUNT / (rows[r].deviation * rows[r].deviation);
        cr_expect(fabs(sum / COUNT) < most * rows[r].deviation, "%s: the mean is off by %g", rows[r].name, sum / COUNT);
        cr_expect(fabs(variance - 1) < most * sqrt(2), "%s: the variance is %g of what it is to be", rows[r].name,
                  variance);
        if (rows[r].smallest) cr_expect(whole && !halves, "%s", rows[r].name);
        cr_expect_eq(singles, onnxfuse_value_dtype(y) == ONNXFUSE_FLOAT32, "%s", rows[r].name);
        size_t bytes = (size_t)COUNT * (onnxfuse_value_dtype(y) == ONNXFUSE_FLOAT32 ? 4 : 8);
        /* A cosine or a logarithm of a compiled kernel may differ in its last bits from the evaluator's. */
        if (rows[r].smallest)
            cr_expect(!memcmp(onnxfuse_value_data(y), onnxfuse_value_data(again), bytes), "%s: fused", rows[r].name);
        onnxfuse_value_free(y);
        onnxfuse_value_free(again);
    }
}

Test(random, multinomial_draws_by_share) {
    /* exp: 1, 2, 0, 5 of 8 */
    static const char text[] = "graph () -> (y) {\n"
                               "x = constant f64[2, 4] {0, 0.6931471805599453, -inf, 1.6094379124341003, 1000, "
                               "1000.6931471805599, -inf, 1001.6094379124341}\n"
                               "y = onnx Multinomial@21 x {sample_size = 40000, dtype = 7}\n}\n";
    static const double shares[] = {0.125, 0.25, 0, 0.625};
    OnnxfuseValue *y = draw(text, plain), *again = draw(text, fused);
    const int64_t *data = onnxfuse_value_data(y);
    cr_assert_eq(onnxfuse_value_count(y), 80000);
    cr_expect(!memcmp(data, onnxfuse_value_data(again), 80000 * sizeof *data));
    cr_expect(memcmp(data, data + 40000, 40000 * sizeof *data), "rows draw apart");
    for (int row = 0; row < 2; row++) {
        int64_t counts[4] = {0};
        for (int i = 0; i < 40000; i++) counts[data[row * 40000 + i]]++;
        for (int c = 0; c < 4; c++) {
            double most = 6 * sqrt(40000 * shares[c] * (1 - shares[c]));
            cr_expect(fabs((double)counts[c] - 40000 * shares[c]) <= most, "class %d: %d", c, (int)counts[c]);
        }
    }
    onnxfuse_value_free(y);
    onnxfuse_value_free(again);
}

/* 16 GB, were there a number for each class of each sample. */
Test(random, multinomial_of_many_classes_takes_little_memory) {
    OnnxfuseValue *y = draw("graph () -> (y) {\nx = onnx RandomNormal@21 {shape = [4, 20000]}\n"
                            "y = onnx Multinomial@21 x {sample_size = 50000}\n}\n",
                            "{\"memory_limit_megabytes\": 64, \"cache\": {\"enable\": false}}");
    cr_expect_eq(onnxfuse_value_count(y), 200000);
    onnxfuse_value_free(y);
}

Test(random, multinomial_of_what_is_no_distribution) {
    static const char *const rows_of[] = {"f32[1, 2] {-inf, -inf}", "f32[1, 2] {nan, 1}", "f32[1, 2] {1, nan}",
                                          "f32[1, 2] {inf, 1}"};
    OnnxfuseSession *session = must_open("graph (x: f32[n, c]) -> (y) {\ny = onnx Multinomial@21 x\n}\n");
    for (size_t i = 0; i < sizeof rows_of / sizeof *rows_of; i++) {
        char *problem = run_and_compare(session, (const char *const[]){rows_of[i]}, (const char *const[]){NULL});
        cr_expect(problem && strstr(problem, "no distribution"), "%s: %s", rows_of[i], problem ? problem : "no error");
        free(problem);
    }
    char *problem = run_and_compare(session, (const char *const[]){"f32[1, 0] {}"}, (const char *const[]){NULL});
    cr_expect(problem && strstr(problem, "no class"), "%s", problem ? problem : "no error");
    free(problem);
    onnxfuse_session_close(session);
}
