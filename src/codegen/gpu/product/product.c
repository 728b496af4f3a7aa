/* SPDX-License-Identifier: Apache-2.0 */
/* The end of products: sums of partial sums, and epilogues of finished results. */
#include <string.h>
#include "codegen/gpu/product/product_parts.h"
#include "codegen/gpu/region/divide.h"

/* clang-format off */
const char product_finish_text[] =
    GPU_QUOTIENT_SOURCE
    "KERNEL_OF(THREADS) NAME(BUFFER_ARG(out_buffer), BUFFER_ARG(partial_buffer) STEP_BUFFERS, i64 elements, i64 splits,\n"
    "    i64 columns, i64 column_stride, i64 flags, i64 alpha STEP_NUMBERS) {\n"
    "    BUFFER(BITS, out, out_buffer);\n"
    "#if PARTIAL\n"
    "    BUFFER(const VALUE, partial, partial_buffer);\n"
    "#elif LINES\n" /* `splits` is from one line to the next */
    "    BUFFER(const BITS, lines, partial_buffer);\n"
    "#endif\n"
    "    STEP_DECLARE\n"
    "    const i32 whole = (i32)flags & 4;\n"
    "    const i64 first = (BLOCK * THREADS + THREAD) * PACK, step = BLOCKS * THREADS * PACK;\n"
    /* Where lines are neighbours, a thread goes on by so many of them and so many columns, without a division. */
    "    const i64 step_rows = quotient(step, columns), step_columns = step - step_rows * columns;\n"
    "    i64 row = quotient(first, columns), column = first - row * columns;\n"
    "    for (i64 at = first; at < elements; at += step) {\n"
    "        const i32 count = NEAR(elements - at);\n"
    "        i64 places[PACK];\n"
    "        VALUE v[PACK];\n"
    "        i64 place = column, left = 1;\n"
    "        if (column_stride != 1) {\n"
    "            const i64 line = quotient(at, column_stride);\n"
    "            place = line - quotient(line, columns) * columns;\n"
    "            left = (line + 1) * column_stride - at;\n"
    "        }\n"
    "#if PARTIAL\n"
    "        UNROLL\n"
    "        for (i32 j = 0; j < PACK; j++) v[j] = 0;\n"
    "        for (i64 s = 0; s < splits; s++) {\n"
    "            UNROLL\n"
    "            for (i32 j = 0; j < PACK; j++)\n"
    "                if (j < count) v[j] += READ(VALUE, partial + s * elements + at + j);\n"
    "        }\n"
    "#elif LINES\n"
    "        GLOBAL const BITS *from = lines + row * splits + column;\n"
    "        if (column + PACK <= columns && count >= PACK) {\n"
    "            UNROLL\n"
    "            for (i32 j = 0; j < PACK; j++) v[j] = FROM_BITS(READ(BITS, from + j));\n"
    "        } else {\n"
    "            UNROLL\n"
    "            for (i32 j = 0; j < PACK; j++) {\n"
    "                if (column + j == columns) from += splits - columns;\n"
    "                v[j] = j < count ? FROM_BITS(READ(BITS, from + j)) : (VALUE)0;\n"
    "            }\n"
    "        }\n"
    "#else\n"
    "        read_pack(out + at, 1, count, whole, v);\n"
    "#endif\n"
    "        row += step_rows;\n"
    "        column += step_columns;\n"
    "        if (column >= columns) { column -= columns; row++; }\n"
    "        UNROLL\n"
    "        for (i32 j = 0; j < PACK; j++) {\n"
    "            v[j] = SCALE(v[j], alpha);\n"
    "            places[j] = place;\n"
    "            if (--left == 0) {\n"
    "                left = column_stride;\n"
    "                place = place + 1 == columns ? 0 : place + 1;\n"
    "            }\n"
    "        }\n"
    "        finish_pack(v, places, at, 1, count, whole STEP_PASSED);\n"
    "        write_pack(out + at, 1, count, whole, v);\n"
    "    }\n"
    "}\n";
/* clang-format on */

void gpu_finish_launch(DType dtype, int64_t elements, int64_t splits, int64_t columns, int64_t column_stride,
                       double alpha, int64_t alignment, const GpuLimits *limits, const GpuEpilogue *epilogue,
                       GpuProductLaunch *l) {
    enum { BLOCKS_A_MULTIPROCESSOR = 8 };
    memset(l, 0, sizeof *l);
    l->variant.epilogue = epilogue;
    l->variant.kind = GPU_PRODUCT_FINISH;
    l->variant.dtype = dtype;
    l->variant.partial = splits > 0;
    int64_t pack = product_pack(dtype), room = (int64_t)limits->multiprocessors * BLOCKS_A_MULTIPROCESSOR;
    l->grid = least(ceil_div(elements, pack * FINISH_THREADS), room);
    l->block = FINISH_THREADS;
    l->splits = 1;
    bool whole = alignment % (pack * (int64_t)dtype_size(dtype)) == 0;
    const int64_t arguments[] = {
        elements, splits, columns, column_stride, whole ? WHOLE_OUT : 0, product_scale(dtype, alpha)};
    for (size_t i = 0; i < sizeof arguments / sizeof *arguments; i++) product_argument(l, arguments[i]);
}

void gpu_lines_launch(DType dtype, int64_t elements, int64_t columns, int64_t line, int64_t alignment,
                      const GpuLimits *limits, const GpuEpilogue *epilogue, GpuProductLaunch *l) {
    gpu_finish_launch(dtype, elements, line, columns, 1, 1, alignment, limits, epilogue, l);
    l->variant.partial = false;
    l->variant.lines = true;
}
