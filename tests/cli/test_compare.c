/* SPDX-License-Identifier: Apache-2.0 */
/* Which values count as equal, and how the first difference is named. */
#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

#include "cli/value/compare.h"

typedef struct Case {
    const char *must; /* what must hold */
    OnnxfuseDType dtype;
    double got[2], expected[2];
    double rtol, atol;
    const char *says; /* NULL: equal */
    double step;
} Case;

static const Case cases[] = {
    {"equal numbers", ONNXFUSE_FLOAT32, {1, 2}, {1, 2}, 0, 0, NULL},
    {"within the relative bound", ONNXFUSE_FLOAT32, {1.0009, 2}, {1, 2}, 1e-3, 0, NULL},
    {"beyond the relative bound", ONNXFUSE_FLOAT32, {1, 2.1}, {1, 2}, 1e-3, 0, "[1]: got 2.1, expected 2 (1 of 2"},
    {"within the absolute bound", ONNXFUSE_FLOAT64, {1e-8, 0}, {0, 0}, 0, 1e-7, NULL},
    {"not-a-number equals itself", ONNXFUSE_FLOAT32, {NAN, 0}, {NAN, 0}, 0, 0, NULL},
    {"not-a-number is no number", ONNXFUSE_FLOAT32, {NAN, 0}, {0, 0}, 1, 1, "[0]: got nan"},
    {"infinity equals itself", ONNXFUSE_FLOAT64, {INFINITY, 0}, {INFINITY, 0}, 0, 0, NULL},
    {"infinities of other signs differ", ONNXFUSE_FLOAT64, {-INFINITY, 0}, {INFINITY, 0}, 1, 1, "[0]: got -inf"},
    {"a number is not close to infinity", ONNXFUSE_FLOAT64, {1, 0}, {INFINITY, 0}, 1, 1, "[0]: got 1"},
    {"integers must be equal", ONNXFUSE_INT32, {1000, 1}, {1001, 1}, 1e-3, 1, "[0]: got 1000, expected 1001"},
    {"large integers must be equal", ONNXFUSE_INT64, {0x1p53, 1}, {0x1p53 - 1, 1}, 1, 1, "[0]: got 9007199254740992"},
    {"a step is allowed to integers", ONNXFUSE_UINT8, {200, 1}, {201, 0}, 0, 0, NULL, 1},
    {"but one alone", ONNXFUSE_UINT8, {200, 1}, {202, 1}, 1, 1, "[0]: got 200, expected 202", 1},
    {"a step is nothing to bools", ONNXFUSE_BOOL, {1, 0}, {0, 0}, 1, 1, "[0]: got true, expected false", 1},
    {"nor to floating-point numbers", ONNXFUSE_FLOAT32, {1, 0}, {2, 0}, 1e-3, 0, "[0]: got 1, expected 2", 1},
    {"integers differ", ONNXFUSE_INT64, {1, 2}, {1, 3}, 1e-3, 1e-7, "[1]: got 2, expected 3"},
    {"bools differ", ONNXFUSE_BOOL, {1, 1}, {1, 0}, 1e-3, 1e-7, "[1]: got true, expected false"},
};

static OnnxfuseValue *make(OnnxfuseDType dtype, const double numbers[2], double memory[2]) {
    for (int i = 0; i < 2; i++) switch (dtype) {
        case ONNXFUSE_FLOAT32: ((float *)memory)[i] = (float)numbers[i]; break;
        case ONNXFUSE_FLOAT64: memory[i] = numbers[i]; break;
        case ONNXFUSE_INT32: ((int32_t *)memory)[i] = (int32_t)numbers[i]; break;
        case ONNXFUSE_INT64: ((int64_t *)memory)[i] = (int64_t)numbers[i]; break;
        default: ((uint8_t *)memory)[i] = (uint8_t)numbers[i]; break;
        }
    OnnxfuseValue *value = NULL;
    cr_assert_null(onnxfuse_value_tensor(dtype, 1, (int64_t[]){2}, memory, &value));
    return value;
}

Test(compare, numbers) {
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const Case *c = &cases[i];
        double a[2], b[2];
        OnnxfuseValue *got = make(c->dtype, c->got, a), *expected = make(c->dtype, c->expected, b);
        Problem *found = compare_values(got, expected, (Tolerance){c->rtol, c->atol, c->step}, false);
        if (c->says)
            cr_expect(strstr(problem_text(found), c->says) && problem_code(found) == ONNXFUSE_DIFFERENT, "%s: %s",
                      c->must, problem_text(found));
        else
            cr_expect_null(found, "%s: %s", c->must, problem_text(found));
        problem_free(found);
        onnxfuse_value_free(got);
        onnxfuse_value_free(expected);
    }
}

Test(compare, bfloat16_has_a_bound_of_its_own) {
    uint16_t a = 0x3f80, b = 0x3f81, far = 0x3f90; /* 1, the next one, 1.125 */
    OnnxfuseValue *got, *near_value, *far_value;
    cr_assert_null(onnxfuse_value_tensor(ONNXFUSE_BFLOAT16, 0, NULL, &a, &got));
    cr_assert_null(onnxfuse_value_tensor(ONNXFUSE_BFLOAT16, 0, NULL, &b, &near_value));
    cr_assert_null(onnxfuse_value_tensor(ONNXFUSE_BFLOAT16, 0, NULL, &far, &far_value));
    cr_expect_null(compare_values(got, near_value, (Tolerance){0, 0}, false));
    Problem *found = compare_values(got, far_value, (Tolerance){0, 0}, false);
    cr_expect_not_null(found);
    problem_free(found);
    onnxfuse_value_free(got);
    onnxfuse_value_free(near_value);
    onnxfuse_value_free(far_value);
}

Test(compare, types_and_shapes_always_count) {
    float a[2] = {1, 2}, b[2] = {3, 4};
    int32_t c[2] = {1, 2};
    OnnxfuseValue *row, *column, *other, *ints;
    cr_assert_null(onnxfuse_value_tensor(ONNXFUSE_FLOAT32, 2, (int64_t[]){1, 2}, a, &row));
    cr_assert_null(onnxfuse_value_tensor(ONNXFUSE_FLOAT32, 2, (int64_t[]){2, 1}, a, &column));
    cr_assert_null(onnxfuse_value_tensor(ONNXFUSE_FLOAT32, 2, (int64_t[]){1, 2}, b, &other));
    cr_assert_null(onnxfuse_value_tensor(ONNXFUSE_INT32, 2, (int64_t[]){1, 2}, c, &ints));
    cr_expect_null(compare_values(row, other, (Tolerance){0, 0}, true), "random outputs: the numbers do not count");
    Problem *shapes = compare_values(row, column, (Tolerance){1, 1}, true);
    Problem *types = compare_values(row, ints, (Tolerance){1, 1}, true);
    cr_expect(strstr(problem_text(shapes), "[1, 2], expected float32[2, 1]"), "%s", problem_text(shapes));
    cr_expect(strstr(problem_text(types), "expected int32[1, 2]"), "%s", problem_text(types));
    problem_free(shapes);
    problem_free(types);
    onnxfuse_value_free(row);
    onnxfuse_value_free(column);
    onnxfuse_value_free(other);
    onnxfuse_value_free(ints);
}

/* Of two keys and their values. */
static OnnxfuseValue *a_map(int64_t first, int64_t second, float of_first, float of_second) {
    OnnxfuseValue *keys, *values, *map;
    int64_t two = 2;
    cr_assert_null(onnxfuse_value_tensor(ONNXFUSE_INT64, 1, &two, NULL, &keys));
    cr_assert_null(onnxfuse_value_tensor(ONNXFUSE_FLOAT32, 1, &two, NULL, &values));
    memcpy(onnxfuse_value_data(keys), (int64_t[]){first, second}, 2 * sizeof(int64_t));
    memcpy(onnxfuse_value_data(values), (float[]){of_first, of_second}, 2 * sizeof(float));
    cr_assert_null(onnxfuse_value_map(keys, values, &map));
    return map;
}

Test(compare, maps) {
    OnnxfuseValue *got = a_map(1, 2, 10, 20), *turned = a_map(2, 1, 20.5f, 10), *other = a_map(1, 3, 10, 20), *nothing;
    cr_assert_null(onnxfuse_value_absent(&nothing));
    cr_expect_null(compare_values(got, turned, (Tolerance){0, 1, 1}, false));
    cr_expect_eq(compare_rules(got, (Tolerance){0, 1, 1}, false), RULE_EXACT | RULE_CLOSE);
    const struct {
        const OnnxfuseValue *expected;
        Tolerance tolerance;
        const char *message;
    } rows[] = {
        {turned, {0, 0}, "values: [1]: got 20, expected 20.5"},
        {other, {0, 5, 5}, "keys: [1]: got 2, expected 3"},
        {nothing, {0, 5}, "got a map of 2, expected nothing"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        Problem *found = compare_values(got, rows[i].expected, rows[i].tolerance, false);
        cr_expect(found && strstr(problem_text(found), rows[i].message), "%zu: %s", i, problem_text(found));
        problem_free(found);
    }
    Difference values = compare_measure(got, turned, (Tolerance){0, 0}),
               keys = compare_measure(got, other, (Tolerance){0, 5, 5});
    cr_expect(values.comparable && values.different == 1 && values.distance == 0.5);
    cr_expect(keys.comparable && keys.different == 1 && onnxfuse_value_dtype(keys.got) == ONNXFUSE_INT64);
    OnnxfuseValue *all[] = {got, turned, other, nothing};
    for (int i = 0; i < 4; i++) onnxfuse_value_free(all[i]);
}

Test(compare, strings_and_sequences) {
    OnnxfuseString a = {"one", 3}, b = {"two", 3};
    OnnxfuseValue *first[2], *second[2], *got, *expected;
    for (int i = 0; i < 2; i++) {
        cr_assert_null(onnxfuse_value_tensor(ONNXFUSE_STRING, 0, NULL, &a, &first[i]));
        cr_assert_null(onnxfuse_value_tensor(ONNXFUSE_STRING, 0, NULL, i ? &b : &a, &second[i]));
    }
    cr_assert_null(onnxfuse_value_sequence(first, 2, &got));
    cr_assert_null(onnxfuse_value_sequence(second, 2, &expected));
    cr_expect_null(compare_values(got, got, (Tolerance){0, 0}, false));
    Problem *found = compare_values(got, expected, (Tolerance){0, 0}, false);
    cr_expect(strstr(problem_text(found), "item 1: []: got \"one\", expected \"two\""), "%s", problem_text(found));
    problem_free(found);
    onnxfuse_value_free(got);
    onnxfuse_value_free(expected);
}
