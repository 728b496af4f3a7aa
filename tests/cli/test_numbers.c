/* SPDX-License-Identifier: Apache-2.0 */
/* Numbers stored as elements, and drawn. */
#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

#include "cli/value/numbers.h"

typedef struct Case {
    OnnxfuseDType dtype;
    double value;
    uint16_t bits;
} Case;

/* numpy's float16, and bfloat16 by the definition. */
static const Case cases[] = {
    {ONNXFUSE_FLOAT16, 1, 0x3c00},
    {ONNXFUSE_FLOAT16, -2, 0xc000},
    {ONNXFUSE_FLOAT16, 65504, 0x7bff},
    {ONNXFUSE_FLOAT16, 65519.9, 0x7bff}, /* just below the middle of the largest number and what would be the next */
    {ONNXFUSE_FLOAT16, 65520, 0x7c00},
    {ONNXFUSE_FLOAT16, 1e300, 0x7c00},
    {ONNXFUSE_FLOAT16, 0x1p-14, 0x0400},
    {ONNXFUSE_FLOAT16, 0x1p-24, 0x0001},
    {ONNXFUSE_FLOAT16, 0x1p-25, 0x0000}, /* a tie, to even */
    {ONNXFUSE_FLOAT16, 0x1.8p-24, 0x0002},
    {ONNXFUSE_FLOAT16, 0x1.ffep-15, 0x0400}, /* rounds up into the normal numbers */
    {ONNXFUSE_FLOAT16, 1 + 0x1p-11, 0x3c00},
    {ONNXFUSE_FLOAT16, 1 + 0x3p-11, 0x3c02},
    {ONNXFUSE_FLOAT16, 0x1.ffep0, 0x4000}, /* rounds up into the next power of two */
    {ONNXFUSE_FLOAT16, -0.0, 0x8000},
    {ONNXFUSE_FLOAT16, -INFINITY, 0xfc00},
    {ONNXFUSE_BFLOAT16, 1, 0x3f80},
    {ONNXFUSE_BFLOAT16, 1 + 0x1p-8, 0x3f80},
    {ONNXFUSE_BFLOAT16, 1 + 0x3p-8, 0x3f82},
    {ONNXFUSE_BFLOAT16, 0x1p127, 0x7f00},
    {ONNXFUSE_BFLOAT16, 0x1p128, 0x7f80},
    {ONNXFUSE_BFLOAT16, 0x1p-133, 0x0001},
};

Test(numbers, are_rounded_to_the_nearest) {
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        uint16_t bits = 0;
        cr_assert(number_store(cases[i].dtype, &bits, 0, cases[i].value));
        cr_expect_eq(bits, cases[i].bits, "%a: %04x, not %04x", cases[i].value, bits, cases[i].bits);
    }
}

Test(numbers, what_is_no_plain_number_is_told) {
    uint64_t element;
    OnnxfuseDType others[] = {ONNXFUSE_STRING, ONNXFUSE_COMPLEX64, ONNXFUSE_FLOAT8E4M3FN, ONNXFUSE_INT4};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) cr_expect_not(number_store(others[i], &element, 0, 1));
}

static Loaded drawn(OnnxfuseDType dtype, uint64_t seed) {
    Loaded loaded = {0};
    cr_assert_null(loaded_tensor(dtype, 2, (int64_t[]){100, 7}, &loaded));
    cr_assert_null(numbers_draw(seed, &loaded));
    return loaded;
}

Test(numbers, of_all_types_are_drawn_within_range_and_repeat) {
    for (int dtype = ONNXFUSE_FLOAT32; dtype <= ONNXFUSE_INT2; dtype++) {
        if (dtype == ONNXFUSE_STRING) continue;
        Loaded a = drawn((OnnxfuseDType)dtype, 1), b = drawn((OnnxfuseDType)dtype, 1),
               c = drawn((OnnxfuseDType)dtype, 2);
        const char *name = onnxfuse_dtype_name((OnnxfuseDType)dtype);
        size_t bytes = onnxfuse_value_bytes(a.value);
        bool whole = strstr(name, "int") || dtype == ONNXFUSE_BOOL;
        cr_expect_eq(memcmp(a.data, b.data, bytes), 0, "%s repeats", name);
        cr_expect_neq(memcmp(a.data, c.data, bytes), 0, "%s differs by seed", name);
        for (int64_t i = 0; i < onnxfuse_value_count(a.value); i++) {
            double element = onnxfuse_value_element(a.value, i);
            cr_expect(whole ? element == 0 || element == 1 : fabs(element) <= 1, "%s: %g", name, element);
            cr_expect(!whole || i % 7 || element == 1, "%s: a row begins with 1", name);
        }
        loaded_free(&a);
        loaded_free(&b);
        loaded_free(&c);
    }
}

Test(numbers, strings_are_words) {
    Loaded words = drawn(ONNXFUSE_STRING, 3);
    const OnnxfuseString *strings = words.data;
    for (int i = 0; i < 700; i++) {
        cr_expect(strings[i].size >= 1 && strings[i].size <= 8);
        for (size_t k = 0; k < strings[i].size; k++) cr_expect(strings[i].data[k] >= 'a' && strings[i].data[k] <= 'z');
    }
    loaded_free(&words);
}
