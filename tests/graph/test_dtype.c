/* SPDX-License-Identifier: Apache-2.0 */
/* Element types: names, the narrow floats' codes, rounding and range, and stores that would be undefined in C; tensors'
 * sizes and text. */
#include <criterion/criterion.h>
#include <math.h>

#include "graph/tensor.h"

Test(dtype, names_read_back) {
    for (int i = 1; i < DTYPE_COUNT; i++) {
        const char *name = dtype_name((DType)i);
        cr_expect_eq(dtype_from_name(name, strlen(name)), (DType)i, "%s", name);
        cr_expect_gt(strlen(dtype_onnx_name((DType)i)), 0, "%s", name);
    }
    cr_expect_eq(dtype_from_name("f3", 2), DT_NONE);
    cr_expect_str_eq(dtype_name((DType)99), "none");
    cr_expect_eq(dtype_size((DType)-1), 0);
    cr_expect_eq(dtype_file_bits(DT_I4), 4);
    cr_expect_eq(dtype_file_bits(DT_U2), 2);
    cr_expect_eq(dtype_file_bits(DT_C128), 128);
}

static const struct {
    const char *what;
    DType dtype;
    int code;
    float value;
} codes[] = {
    {"largest", DT_F8E4M3FN, 0x7e, 448},
    {"NaN", DT_F8E4M3FN, 0x7f, NAN},
    {"smallest", DT_F8E4M3FN, 0x01, 0x1p-9f},
    {"minus zero", DT_F8E4M3FN, 0x80, -0.0f},
    {"largest", DT_F8E4M3FNUZ, 0x7f, 240},
    {"NaN", DT_F8E4M3FNUZ, 0x80, NAN},
    {"smallest", DT_F8E4M3FNUZ, 0x01, 0x1p-10f},
    {"largest", DT_F8E5M2, 0x7b, 57344},
    {"infinity", DT_F8E5M2, 0xfc, -INFINITY},
    {"NaN", DT_F8E5M2, 0x7d, NAN},
    {"smallest", DT_F8E5M2, 0x01, 0x1p-16f},
    {"largest", DT_F8E5M2FNUZ, 0xff, -57344},
    {"NaN", DT_F8E5M2FNUZ, 0x80, NAN},
    {"largest", DT_F4E2M1, 0x7, 6},
    {"half", DT_F4E2M1, 0x9, -0.5f},
    {"one", DT_F8E8M0, 127, 1},
    {"smallest", DT_F8E8M0, 0, 0x1p-127f},
    {"NaN", DT_F8E8M0, 255, NAN},
};

static bool same(float a, float b) { return isnan(a) ? isnan(b) : a == b && signbit(a) == signbit(b); }

Test(dtype, codes_have_the_standards_values) {
    for (size_t i = 0; i < sizeof codes / sizeof *codes; i++)
        cr_expect(same(small_float_to_f32(codes[i].dtype, (uint8_t)codes[i].code), codes[i].value), "%s of %s",
                  codes[i].what, dtype_name(codes[i].dtype));
}

static const DType small_types[] = {DT_F8E4M3FN, DT_F8E4M3FNUZ, DT_F8E5M2, DT_F8E5M2FNUZ, DT_F4E2M1};
enum { SMALL_COUNT = sizeof small_types / sizeof *small_types };

/* Every code is what its value converts to; halfway between two neighbours the even code wins, beyond it the nearer
 * one. */
Test(dtype, every_code_rounds_to_nearest_even) {
    for (int t = 0; t < SMALL_COUNT; t++) {
        DType dtype = small_types[t];
        int count = dtype == DT_F4E2M1 ? 8 : 128;
        for (int code = 0; code < count; code++) {
            float value = small_float_to_f32(dtype, (uint8_t)code);
            if (!isfinite(value)) continue;
            cr_expect_eq(f32_to_small_float(dtype, value, false), code, "%s %d", dtype_name(dtype), code);
            float next = code + 1 < count ? small_float_to_f32(dtype, (uint8_t)(code + 1)) : NAN;
            if (!isfinite(next)) continue;
            float middle = (value + next) / 2;
            int even = code % 2 ? code + 1 : code;
            cr_expect_eq(f32_to_small_float(dtype, middle, false), even, "%s %d", dtype_name(dtype), code);
            cr_expect_eq(f32_to_small_float(dtype, nextafterf(middle, 0), false), code, "%s", dtype_name(dtype));
            cr_expect_eq(f32_to_small_float(dtype, nextafterf(middle, next), false), code + 1, "%s", dtype_name(dtype));
        }
    }
}

static const struct {
    DType dtype;
    float value;
    int saturated, plain;
} beyond[] = {
    {DT_F8E4M3FN, 464, 0x7e, 0x7e},         {DT_F8E4M3FN, 465, 0x7e, 0x7f},
    {DT_F8E4M3FN, -INFINITY, 0xfe, 0xff},   {DT_F8E4M3FNUZ, 248, 0x7f, 0x80},
    {DT_F8E4M3FNUZ, -INFINITY, 0xff, 0x80}, {DT_F8E4M3FNUZ, -0.0f, 0x00, 0x00},
    {DT_F8E4M3FNUZ, -0x1p-20f, 0x00, 0x00}, {DT_F8E5M2, 61440, 0x7b, 0x7c},
    {DT_F8E5M2, INFINITY, 0x7b, 0x7c},      {DT_F8E5M2FNUZ, 1e30f, 0x7f, 0x80},
    {DT_F4E2M1, 1e30f, 0x7, 0x7},           {DT_F8E8M0, 3, 129, 129},
    {DT_F8E8M0, 3.0e38f, 254, 255},
};

Test(dtype, out_of_range) {
    for (size_t i = 0; i < sizeof beyond / sizeof *beyond; i++) {
        const char *name = dtype_name(beyond[i].dtype);
        double value = (double)beyond[i].value;
        cr_expect_eq(f32_to_small_float(beyond[i].dtype, beyond[i].value, true), beyond[i].saturated, "%s %g", name,
                     value);
        cr_expect_eq(f32_to_small_float(beyond[i].dtype, beyond[i].value, false), beyond[i].plain, "%s %g", name,
                     value);
    }
    for (int t = 0; t < SMALL_COUNT - 1; t++) {
        uint8_t code = f32_to_small_float(small_types[t], NAN, true);
        cr_expect(isnan(small_float_to_f32(small_types[t], code)), "%s", dtype_name(small_types[t]));
    }
}

Test(dtype, power_of_two_scales_round_as_asked) {
    static const int expected[][3] = {
        [POWER_UP] = {128, 129, 129}, [POWER_DOWN] = {127, 128, 128}, [POWER_NEAREST] = {127, 129, 129}};
    static const float values[] = {1.25f, 3, 3.5f};
    for (int mode = POWER_UP; mode <= POWER_NEAREST; mode++)
        for (int i = 0; i < 3; i++)
            cr_expect_eq(f32_to_f8e8m0(values[i], true, (PowerRounding)mode), expected[mode][i], "mode %d, %d", mode,
                         i);
}

Test(dtype, every_half_reads_back_and_rounds_to_nearest_even) {
    for (uint32_t code = 0; code < 0x10000; code++) {
        float value = f16_to_f32((uint16_t)code), wide = bf16_to_f32((uint16_t)code);
        cr_assert(isnan(value) ? isnan(f16_to_f32(f32_to_f16(value))) : f32_to_f16(value) == code, "f16 %04x", code);
        cr_assert(isnan(wide) ? isnan(bf16_to_f32(f32_to_bf16(wide))) : f32_to_bf16(wide) == code, "bf16 %04x", code);
        if ((code & 0x7fff) >= 0x7bff) continue;
        float next = f16_to_f32((uint16_t)(code + 1)), middle = (value + next) / 2;
        cr_assert_eq(f32_to_f16(middle), code + code % 2, "f16 after %04x", code);
        cr_assert_eq(f32_to_f16(nextafterf(middle, value)), code, "f16 %04x", code);
        cr_assert_eq(f32_to_f16(nextafterf(middle, next)), code + 1, "f16 %04x", code);
    }
    cr_expect_eq(f32_to_f16(65519.9f), 0x7bff);
    cr_expect_eq(f32_to_f16(65520), 0x7c00);
    cr_expect_eq(f32_to_bf16(3.4e38f), 0x7f80);
}

static const struct {
    const char *what;
    DType dtype;
    double value;
    int64_t stored; /* as read by dtype_load_int */
} stores[] = {
    {"toward zero", DT_I32, -2.9, -2},
    {"above the range", DT_I8, 1e9, 127},
    {"below the range", DT_I16, -1e9, -32768},
    {"below an unsigned range", DT_U8, -1, 0},
    {"above int64", DT_I64, 0x1p63, INT64_MAX},
    {"below int64", DT_I64, -1e300, INT64_MIN},
    {"above uint64", DT_U64, 1e300, -1},
    {"within uint64", DT_U64, 0x1p63, INT64_MIN},
    {"infinity", DT_U32, INFINITY, UINT32_MAX},
    {"NaN", DT_I32, NAN, 0},
    {"NaN is true", DT_BOOL, NAN, 1},
    {"zero is false", DT_BOOL, -0.0, 0},
    {"4 bits", DT_I4, 100, 7},
    {"4 bits unsigned", DT_U4, 100, 15},
    {"2 bits", DT_I2, -100, -2},
    {"a double above a half's midpoint by less than a float tells", DT_F16, 2049 + 0x1p-40, 2050},
    {"a half's midpoint", DT_F16, 2049, 2048},
};

Test(dtype, stores_saturate) {
    for (size_t i = 0; i < sizeof stores / sizeof *stores; i++) {
        char data[32] = {0};
        void *unaligned = data + 1;
        dtype_store_double(stores[i].dtype, unaligned, 1, stores[i].value);
        cr_expect_eq(dtype_load_int(stores[i].dtype, unaligned, 1), stores[i].stored, "%s", stores[i].what);
        cr_expect_eq(dtype_load_int(stores[i].dtype, unaligned, 0), 0, "%s: its neighbour", stores[i].what);
    }
}

Test(dtype, integers_wrap_into_narrower_ones) {
    char data[8];
    dtype_store_int(DT_U8, data, 0, 257);
    cr_expect_eq(dtype_load_int(DT_U8, data, 0), 1);
    dtype_store_int(DT_I4, data, 0, 9);
    cr_expect_eq(dtype_load_int(DT_I4, data, 0), -7);
    dtype_store_int(DT_BF16, data, 0, INT64_C(0x1010000000000001)); /* just above a midpoint */
    cr_expect_eq(dtype_load_int(DT_BF16, data, 0), INT64_C(0x1020000000000000));
}

static const struct {
    const char *what;
    int rank;
    int64_t dims[3], count, bytes; /* count -1: refused */
} sizes[] = {
    {"a scalar", 0, {0}, 1, 4},
    {"a matrix", 2, {3, 5}, 15, 60},
    {"no elements", 3, {3, 0, 5}, 0, 0},
    {"a negative size", 1, {-1}, -1, 0},
    {"too many elements", 3, {INT64_C(1) << 30, INT64_C(1) << 30, 16}, -1, 0},
    {"too many bytes", 2, {INT64_C(1) << 31, INT64_C(1) << 31}, -1, 0},
    {"too many elements beside none", 3, {0, INT64_MAX, INT64_MAX}, -1, 0},
    {"too many axes", 17, {1}, -1, 0},
};

Test(tensor, sizes_are_checked) {
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        int64_t count = -1;
        size_t bytes = 0;
        Status status = tensor_size_of(DT_F32, sizes[i].rank, sizes[i].dims, &count, &bytes);
        cr_expect_eq(status != NULL, sizes[i].count < 0, "%s", sizes[i].what);
        cr_expect(count == sizes[i].count && bytes == (size_t)sizes[i].bytes, "%s", sizes[i].what);
        status_free(status);
    }
}

Test(tensor, prints_as_nested_brackets) {
    Arena *arena = arena_create(0);
    Tensor *x = tensor_new(arena, DT_F32, 2, (int64_t[]){2, 3});
    for (int i = 0; i < 6; i++) dtype_store_double(DT_F32, x->data, i, i / 4.0);
    Tensor *names = tensor_new(arena, DT_STRING, 1, (int64_t[]){1});
    *(StringView *)names->data = (StringView){"a\"b", 3};
    Tensor *complex = tensor_new(arena, DT_C64, 0, NULL);
    dtype_store_double(DT_F32, complex->data, 1, -2.5);
    const struct {
        const Tensor *tensor;
        int64_t most;
        const char *text;
    } cases[] = {
        {x, 6, "[[0, 0.25, 0.5], [0.75, 1, 1.25]]"},
        {x, 4, "[[0, 0.25, 0.5], [0.75, ...]]"},
        {names, 9, "[\"a\\\"b\"]"},
        {complex, 9, "0-2.5i"},
        {tensor_scalar_int(arena, DT_U64, -1), 1, "18446744073709551615"},
        {tensor_scalar_int(arena, DT_BOOL, 5), 1, "true"},
        {tensor_scalar_double(arena, DT_F32, 0.1), 1, "0.1"},
        {tensor_new(arena, DT_I32, 2, (int64_t[]){2, 0}), 9, "[]"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        Text text = text_make(arena);
        tensor_print(&text, cases[i].tensor, cases[i].most);
        cr_expect_str_eq(text.data, cases[i].text);
    }
    arena_destroy(arena);
}

Test(tensor, an_impossible_size_unwinds_to_the_guard) {
    Arena *arena = arena_create(0);
    jmp_buf guard;
    bool unwound = setjmp(guard);
    if (!unwound) {
        arena_guard(arena, &guard);
        tensor_new(arena, DT_F64, 2, (int64_t[]){INT64_MAX, 2});
    }
    cr_expect(unwound);
    arena_destroy(arena);
}
