/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of products share. Each calls those above it alone:
 *   product_parts.c   tiles, packs, splits, arguments
 *   product.c         the end of products
 *   product_matrix.c  tiles on matrix units
 *   product_depthwise.c
 *   product_matmul.c, product_conv.c
 *   product_text.c    programs, around the bodies of these */
#ifndef ONNXFUSE_CODEGEN_GPU_PRODUCT_PRODUCT_PARTS_H
#define ONNXFUSE_CODEGEN_GPU_PRODUCT_PRODUCT_PARTS_H

#include "base/integer.h"
#include "codegen/gpu/product/product.h"

/* A tile, and what a thread computes of it. Rows and columns of a thread come in groups of 4 neighbours. */
typedef struct TileShape {
    int rows, columns, depth;
    int thread_rows, thread_columns;
    int beside; /* blocks that a multiprocessor should hold at once, which bounds the registers of a thread */
} TileShape;

TileShape product_tile(GpuTile tile, DType dtype);
int product_threads(const TileShape *shape);
int product_pack(DType dtype); /* neighbours that a thread reads at once: 16 bytes, or 4 elements */

/* A tile on matrix units, a warp's part of it, and how many blocks a multiprocessor should hold at once. */
typedef struct MatrixShape {
    int rows, columns, warp_rows, warp_columns;
    int beside;
    int weight; /* time for an element of a tile, in tenths of a large one's */
} MatrixShape;

bool product_on_matrix(const GpuLimits *limits, DType dtype); /* or by the same copies, as product_exact */
bool product_exact(const GpuLimits *limits, DType dtype);
MatrixShape product_matrix_shape(GpuTile tile);
int product_matrix_threads(const MatrixShape *shape);
/* times: products of these sizes that are launched at once. */
GpuTile product_matrix_tile(const GpuLimits *limits, int64_t rows, int64_t columns, int64_t times, bool no_large);
bool product_without_large(const GpuVariant *variant);
/* Adds the variant, not gathered, with each of the tiles that it may get with other sizes. */
int product_add_matrix_tiles(GpuVariant *variants, int count, const GpuVariant *variant);

/* Bits of the argument `flags`: which buffers may be accessed in packs. */
enum { WHOLE_A = 1, WHOLE_B = 2, WHOLE_OUT = 4 };

/* Texts of the bodies. */
extern const char product_tiles_text[], product_matmul_text[], product_narrow_text[], product_conv_text[],
    product_channels_text[], product_depthwise_text[], product_finish_text[], product_matrix_matmul_text[],
    product_matrix_conv_text[];

/* clang-format off */
/* Tiles that run at the same time stand in bands of 8 rows of tiles, so that both factors are found in the cache. */
#define TILE_AT                                                                                                        \
    "FUNCTION void tile_at(u32 tile, u32 row_tiles, u32 column_tiles, i64 *row, i64 *column) {\n"                      \
    "    const u32 band = tile / (8 * column_tiles), rest = tile % (8 * column_tiles);\n"                              \
    "    const u32 height = row_tiles - band * 8 < 8 ? row_tiles - band * 8 : 8;\n"                                    \
    "    *row = (i64)(band * 8 + rest % height) * TILE_ROWS;\n"                                                        \
    "    *column = (i64)(rest / height) * TILE_COLUMNS;\n"                                                               \
    "}\n"

#define MATMUL_HEAD                                                                                                    \
    "KERNEL_BESIDE(THREADS, BLOCKS_BESIDE) NAME(BUFFER_ARG(a_buffer), BUFFER_ARG(b_buffer), BUFFER_ARG(out_buffer),\n"                    \
    "    BUFFER_ARG(partial_buffer) STEP_BUFFERS, i64 rows, i64 columns, i64 depth, i64 a_row, i64 a_depth,\n"         \
    "    i64 b_depth, i64 b_column, i64 out_row, i64 out_column, i64 batch1, i64 batch2, i64 a_batch0, i64 a_batch1,\n" \
    "    i64 a_batch2, i64 b_batch0, i64 b_batch1, i64 b_batch2, i64 out_batch0, i64 out_batch1, i64 out_batch2,\n"    \
    "    i64 row_tiles, i64 column_tiles, i64 splits, i64 elements, i64 flags, i64 alpha STEP_NUMBERS) {\n"            \
    "    BUFFER(const BITS, a, a_buffer);\n"                                                                           \
    "    BUFFER(const BITS, b, b_buffer);\n"                                                                           \
    "    BUFFER(BITS, out, out_buffer);\n"                                                                             \
    "    BUFFER(VALUE, partial, partial_buffer);\n"                                                                    \
    "    STEP_DECLARE\n"

/* Which tile, part of the depth and batch a block has; begin and end: of its part of the depth. */
#define MATMUL_PLACE                                                                                                   \
    "    const i32 thread = (i32)THREAD;\n"                                                                            \
    "    const i32 whole_a = (i32)flags & 1, whole_b = (i32)flags & 2, whole_out = (i32)flags & 4;\n"                  \
    "    const u32 tile = (u32)BLOCK % (u32)(row_tiles * column_tiles), part = (u32)BLOCK / (u32)(row_tiles * column_tiles);\n" \
    "    const u32 batch = part / (u32)splits, n1 = (u32)batch1, n2 = (u32)batch2;\n"                                   \
    "    const i64 i2 = batch % n2, i1 = batch / n2 % n1, i0 = batch / n2 / n1;\n"                                    \
    "    i64 split = part % (u32)splits, out_at = i0 * out_batch0 + i1 * out_batch1 + i2 * out_batch2;\n"                   \
    "    const i64 length = (depth + splits * UNIT_DEPTH - 1) / (splits * UNIT_DEPTH) * UNIT_DEPTH;\n"                 \
    "    const i64 begin = split * length, end = begin + length < depth ? begin + length : depth;\n"                   \
    "    a += i0 * a_batch0 + i1 * a_batch1 + i2 * a_batch2;\n"                                                        \
    "    b += i0 * b_batch0 + i1 * b_batch1 + i2 * b_batch2;\n"
/* clang-format on */

/* The end of a product by tiles, in its body: sums go through shared memory, a row of each thread at a time, so that
 * rows are stored whole and the epilogue's text stands once. Wants OUT_AT(r), where row r begins in the result, and
 * place0, the index of column 0 in a bias; `row` and `column` are the thread's, `tiles_a` is free. */
/* clang-format off */
/* The two tiles twice, at multiples of 16 bytes. */
#define TILES_DECLARED                                                                                                 \
    "    SHARED u128 words_a[2 * TILE_DEPTH * LINE(TILE_ROWS) / PACK];\n"                                              \
    "    SHARED u128 words_b[2 * TILE_DEPTH * LINE(TILE_COLUMNS) / PACK];\n"
#define TILES_NAMED                                                                                                    \
    "    SHARED_POINTER VALUE *tiles_a = (SHARED_POINTER VALUE *)words_a;\n"                                           \
    "    SHARED_POINTER VALUE *tiles_b = (SHARED_POINTER VALUE *)words_b;\n"

/* The end of a tile's store, element by element of the lines that stand in shared memory from `sums` on: r and c are set. */
#define PRODUCT_STORE_PACK(sums)                                                                                       \
    "            const i32 count = NEAR(columns - c);\n"                                                               \
    "            const i64 at = OUT_AT(r) + c * out_column;\n"                                                         \
    "            VALUE v[PACK];\n"                                                                                     \
    "            i64 places[PACK];\n"                                                                                  \
    "            UNROLL\n"                                                                                             \
    "            for (i32 k = 0; k < PACK; k++) places[k] = place0 + c + k;\n"                                         \
    "            read_sums(" sums ", v);\n"                                                                            \
    "            if (splits > 1) {\n"                                                                                  \
    "                UNROLL\n"                                                                                         \
    "                for (i32 k = 0; k < PACK; k++)\n"                                                                 \
    "                    if (k < count) WRITE(VALUE, partial + split * elements + at + k * out_column, v[k]);\n"       \
    "                continue;\n"                                                                                      \
    "            }\n"                                                                                                  \
    "            UNROLL\n"                                                                                             \
    "            for (i32 k = 0; k < PACK; k++) v[k] = SCALE(v[k], alpha);\n"                                          \
    "            finish_pack(v, places, at, out_column, count, whole_out STEP_PASSED);\n"                              \
    "            write_pack(out + at, out_column, count, whole_out, v);\n"                                             \
    "        }\n"                                                                                                      \
    "        BARRIER;\n"                                                                                               \
    "    }\n"

#define PRODUCT_STORE                                                                                                  \
    "    for (i32 pass = 0; pass < THREAD_ROWS; pass++) {\n"                                                           \
    "        UNROLL\n"                                                                                                 \
    "        for (i32 i = 0; i < THREAD_ROWS; i++) {\n"                                                                \
    "            UNROLL\n"                                                                                             \
    "            for (i32 j = 0; j < THREAD_COLUMNS; j++)\n"                                                           \
    "                if (i == pass)\n"                                                                                 \
    "                    tiles_a[row / 4 * LINE(TILE_COLUMNS) + column + COLUMN_AT(j)] = sums[i * THREAD_COLUMNS + j];\n" \
    "        }\n"                                                                                                      \
    "        BARRIER;\n"                                                                                               \
    "        for (i32 e = thread; e < TILE_ROWS / THREAD_ROWS * (TILE_COLUMNS / PACK); e += THREADS) {\n"              \
    "            const i32 line = e / (TILE_COLUMNS / PACK), first = e % (TILE_COLUMNS / PACK) * PACK;\n"              \
    "            const i64 r = row0 + line * 4 + ROW_AT(pass), c = column0 + first;\n"                                 \
    "            if (r >= rows || c >= columns) continue;\n"                                                           \
    PRODUCT_STORE_PACK("tiles_a + line * LINE(TILE_COLUMNS) + first")
/* clang-format on */

/* Sizes that the narrow kernel is written for. */
enum {
    NARROW_THREADS = 256,
    NARROW_PARTS = 16, /* of the depth, over threads */
    NARROW_UNIT = 64,  /* splits of the depth start at multiples */
    NARROW_MOST_ROWS = 16
};
int product_narrow_columns(const GpuVariant *v); /* of a block */
enum { CHANNELS_THREADS = 256, CHANNELS_ROWS = 4 /* positions a thread */ };
enum { FINISH_THREADS = 256 };

/* product_depthwise.c: depthwise convolutions by programs that know their taps and strides. */
extern const int product_windows[], product_window_count;
int product_window(const GpuConv *conv); /* which of them are the convolution's taps; 0: none, or it is another one */
/* Completes a launch that has its variant. whole: all memory may be accessed in packs. */
void product_depthwise_launch(const GpuConv *conv, bool whole, GpuProductLaunch *launch);

/* The argument that scales sums: the bits of alpha in the type that is added up in. */
int64_t product_scale(DType dtype, double alpha);
/* In how many parts to cut the depth when there are `blocks` blocks without. */
int64_t product_splits(const GpuLimits *limits, int64_t blocks, int64_t blocks_a_multiprocessor, int64_t depth);
/* Adds the variant when it is new; returns the new count. */
/* product_epilogue.c: the function finish_pack and what passes its arguments on. */
void product_add_epilogue(Text *text, const GpuVariant *variant);
int product_add_variant(GpuVariant *variants, int count, const GpuVariant *variant);
void product_argument(GpuProductLaunch *launch, int64_t value);

#endif
