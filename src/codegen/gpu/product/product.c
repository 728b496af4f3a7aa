/* SPDX-License-Identifier: Apache-2.0 */
/* The end of products: sums of partial sums, epilogues of finished results; and samples of all kinds of products. */
#include <string.h>
#include "codegen/gpu/product/product_parts.h"

/* clang-format off */
const char product_finish_text[] =
    "KERNEL_OF(THREADS) NAME(BUFFER_ARG(out_buffer), BUFFER_ARG(partial_buffer) STEP_BUFFERS, i64 elements, i64 splits,\n"
    "    i64 columns, i64 column_stride, i64 flags, i64 alpha STEP_NUMBERS) {\n"
    "    BUFFER(BITS, out, out_buffer);\n"
    "#if PARTIAL\n"
    "    BUFFER(const VALUE, partial, partial_buffer);\n"
    "#endif\n"
    "    STEP_DECLARE\n"
    "    const i32 whole = (i32)flags & 4;\n"
    "    for (i64 at = (BLOCK * THREADS + THREAD) * PACK; at < elements; at += BLOCKS * THREADS * PACK) {\n"
    "        const i32 count = NEAR(elements - at);\n"
    "        i64 places[PACK];\n"
    "        VALUE v[PACK];\n"
    "#if PARTIAL\n"
    "        UNROLL\n"
    "        for (i32 j = 0; j < PACK; j++) v[j] = 0;\n"
    "        for (i64 s = 0; s < splits; s++) {\n"
    "            UNROLL\n"
    "            for (i32 j = 0; j < PACK; j++)\n"
    "                if (j < count) v[j] += READ(VALUE, partial + s * elements + at + j);\n"
    "        }\n"
    "#else\n"
    "        read_pack(out + at, 1, count, whole, v);\n"
    "#endif\n"
    "        const i64 first = at / column_stride % columns;\n"
    "        UNROLL\n"
    "        for (i32 j = 0; j < PACK; j++) {\n"
    "            v[j] = SCALE(v[j], alpha);\n"
    "            if (column_stride == 1)\n"
    "                places[j] = columns < PACK ? (first + j) % columns : first + j < columns ? first + j : first + j - columns;\n"
    "            else\n"
    "                places[j] = (at + j) / column_stride % columns;\n"
    "        }\n"
    "        finish_pack(v, places, at, 1, count, whole STEP_PASSED);\n"
    "        write_pack(out + at, 1, count, whole, v);\n"
    "    }\n"
    "}\n";
/* clang-format on */

void gpu_finish_launch(DType dtype, int64_t elements, int64_t splits, int64_t columns, int64_t column_stride,
                       double alpha, int64_t alignment, const GpuLimits *limits, const GpuVariant *steps,
                       GpuProductLaunch *l) {
    enum { BLOCKS_A_MULTIPROCESSOR = 8 };
    memset(l, 0, sizeof *l);
    l->variant = *steps;
    l->variant.kind = GPU_PRODUCT_FINISH;
    l->variant.dtype = dtype;
    l->variant.partial = splits > 0;
    int64_t pack = product_pack(dtype), most = (int64_t)limits->multiprocessors * BLOCKS_A_MULTIPROCESSOR;
    l->grid = product_ceil_div(elements, pack * FINISH_THREADS);
    if (l->grid > most) l->grid = most;
    l->block = FINISH_THREADS;
    l->splits = 1;
    bool whole = alignment % (pack * (int64_t)dtype_size(dtype)) == 0;
    const int64_t arguments[] = {
        elements, splits, columns, column_stride, whole ? WHOLE_OUT : 0, product_scale(dtype, alpha)};
    for (size_t i = 0; i < sizeof arguments / sizeof *arguments; i++) product_argument(l, arguments[i]);
}

/* ---- samples ---- */

typedef struct Sample {
    const char *name;
    GpuVariant variant;
} Sample;

#define SAMPLE_STEPS(...)                                                                                              \
    .step_count = (int)(sizeof((GpuStep[]){__VA_ARGS__}) / sizeof(GpuStep)), .steps = {__VA_ARGS__}
static const Sample samples[] = {
    {"large tiles of f32",
     {.kind = GPU_PRODUCT_MATMUL,
      .tile = GPU_TILE_LARGE,
      .dtype = DT_F32,
      .b_outer = true,
      SAMPLE_STEPS(GPU_STEP_BIAS, GPU_STEP_GELU_ERF, GPU_STEP_ADD)}},
    {"large tiles of f32, both factors turned",
     {.kind = GPU_PRODUCT_MATMUL, .tile = GPU_TILE_LARGE, .dtype = DT_F32, .a_outer = true}},
    {"large tiles of bf16",
     {.kind = GPU_PRODUCT_MATMUL,
      .tile = GPU_TILE_LARGE,
      .dtype = DT_BF16,
      .b_outer = true,
      SAMPLE_STEPS(GPU_STEP_BIAS, GPU_STEP_RELU)}},
    {"medium tiles of f32",
     {.kind = GPU_PRODUCT_MATMUL,
      .tile = GPU_TILE_MEDIUM,
      .dtype = DT_F32,
      .b_outer = true,
      SAMPLE_STEPS(GPU_STEP_BIAS, GPU_STEP_SWISH, GPU_STEP_HARD_SWISH)}},
    {"medium tiles of f64",
     {.kind = GPU_PRODUCT_MATMUL,
      .tile = GPU_TILE_MEDIUM,
      .dtype = DT_F64,
      .b_outer = true,
      SAMPLE_STEPS(GPU_STEP_BIAS, GPU_STEP_GELU_TANH, GPU_STEP_SIGMOID)}},
    {"medium tiles of f16",
     {.kind = GPU_PRODUCT_MATMUL,
      .tile = GPU_TILE_MEDIUM,
      .dtype = DT_F16,
      .a_outer = true,
      .b_outer = true,
      SAMPLE_STEPS(GPU_STEP_CLIP)}},
    {"medium tiles of i8",
     {.kind = GPU_PRODUCT_MATMUL,
      .tile = GPU_TILE_MEDIUM,
      .dtype = DT_I8,
      .b_outer = true,
      SAMPLE_STEPS(GPU_STEP_BIAS, GPU_STEP_RELU)}},
    {"medium tiles of i64",
     {.kind = GPU_PRODUCT_MATMUL, .tile = GPU_TILE_MEDIUM, .dtype = DT_I64, SAMPLE_STEPS(GPU_STEP_ADD)}},
    {"tall tiles of f32",
     {.kind = GPU_PRODUCT_MATMUL,
      .tile = GPU_TILE_TALL,
      .dtype = DT_F32,
      .b_outer = true,
      SAMPLE_STEPS(GPU_STEP_TANH)}},
    {"a row of f32",
     {.kind = GPU_PRODUCT_NARROW,
      .tile = GPU_TILE_ROW,
      .dtype = DT_F32,
      .b_outer = true,
      SAMPLE_STEPS(GPU_STEP_BIAS, GPU_STEP_LEAKY_RELU)}},
    {"a row of f32 by a turned factor", {.kind = GPU_PRODUCT_NARROW, .tile = GPU_TILE_ROW, .dtype = DT_F32}},
    {"eight rows of bf16",
     {.kind = GPU_PRODUCT_NARROW,
      .tile = GPU_TILE_ROWS,
      .dtype = DT_BF16,
      .b_outer = true,
      SAMPLE_STEPS(GPU_STEP_BIAS, GPU_STEP_ADD)}},
    {"eight rows of f16 by a turned factor", {.kind = GPU_PRODUCT_NARROW, .tile = GPU_TILE_ROWS, .dtype = DT_F16}},
    {"eight rows of u64 by a turned factor", {.kind = GPU_PRODUCT_NARROW, .tile = GPU_TILE_ROWS, .dtype = DT_U64}},
    {"a convolution by large tiles",
     {.kind = GPU_PRODUCT_CONV,
      .tile = GPU_TILE_LARGE,
      .dtype = DT_F32,
      .b_outer = true,
      SAMPLE_STEPS(GPU_STEP_BIAS, GPU_STEP_ADD, GPU_STEP_RELU)}},
    {"a convolution of f16 by large tiles",
     {.kind = GPU_PRODUCT_CONV,
      .tile = GPU_TILE_LARGE,
      .dtype = DT_F16,
      .b_outer = true,
      SAMPLE_STEPS(GPU_STEP_BIAS, GPU_STEP_RELU)}},
    {"a convolution by medium tiles",
     {.kind = GPU_PRODUCT_CONV,
      .tile = GPU_TILE_MEDIUM,
      .dtype = DT_F32,
      .b_outer = true,
      SAMPLE_STEPS(GPU_STEP_BIAS, GPU_STEP_HARD_SIGMOID)}},
    {"a convolution of f64", {.kind = GPU_PRODUCT_CONV, .tile = GPU_TILE_MEDIUM, .dtype = DT_F64, .b_outer = true}},
    {"a convolution by tall tiles",
     {.kind = GPU_PRODUCT_CONV,
      .tile = GPU_TILE_TALL,
      .dtype = DT_F32,
      .b_outer = true,
      SAMPLE_STEPS(GPU_STEP_LINEAR)}},
    {"a transposed convolution by large tiles",
     {.kind = GPU_PRODUCT_CONV,
      .tile = GPU_TILE_LARGE,
      .dtype = DT_F32,
      .b_outer = true,
      .transposed = true,
      SAMPLE_STEPS(GPU_STEP_BIAS)}},
    {"a transposed convolution of i32",
     {.kind = GPU_PRODUCT_CONV, .tile = GPU_TILE_MEDIUM, .dtype = DT_I32, .b_outer = true, .transposed = true}},
    {"a depthwise convolution",
     {.kind = GPU_PRODUCT_CHANNELS, .dtype = DT_F32, .depthwise = true, SAMPLE_STEPS(GPU_STEP_BIAS, GPU_STEP_CLIP)}},
    {"a depthwise transposed convolution of f16",
     {.kind = GPU_PRODUCT_CHANNELS, .dtype = DT_F16, .depthwise = true, .transposed = true}},
    {"a convolution of small groups",
     {.kind = GPU_PRODUCT_CHANNELS, .dtype = DT_F32, SAMPLE_STEPS(GPU_STEP_BIAS, GPU_STEP_RELU)}},
    {"the sum of partial sums",
     {.kind = GPU_PRODUCT_FINISH,
      .dtype = DT_F32,
      .partial = true,
      SAMPLE_STEPS(GPU_STEP_BIAS, GPU_STEP_ADD, GPU_STEP_RELU)}},
    {"the sum of partial sums of u16", {.kind = GPU_PRODUCT_FINISH, .dtype = DT_U16, .partial = true}},
    {"the epilogue of a result of bf16",
     {.kind = GPU_PRODUCT_FINISH, .dtype = DT_BF16, SAMPLE_STEPS(GPU_STEP_BIAS, GPU_STEP_GELU_ERF)}},
};

bool gpu_product_sample(int i, GpuVariant *out_variant, const char **out_name) {
    if (i < 0 || i >= (int)(sizeof samples / sizeof *samples)) return false;
    *out_variant = samples[i].variant;
    *out_name = samples[i].name;
    return true;
}
