/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of products share. Each calls those above it alone:
 *   product_parts.c   tiles, packs, splits, arguments
 *   product.c         the end of products
 *   product_matmul.c, product_conv.c
 *   product_text.c    programs, around the bodies of the three */
#ifndef ONNXFUSE_CODEGEN_GPU_PRODUCT_PRODUCT_PARTS_H
#define ONNXFUSE_CODEGEN_GPU_PRODUCT_PRODUCT_PARTS_H

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

/* Bits of the argument `flags`: which buffers may be accessed in packs. */
enum { WHOLE_A = 1, WHOLE_B = 2, WHOLE_OUT = 4 };

/* Texts of the bodies. */
extern const char product_tiles_text[], product_matmul_text[], product_narrow_text[], product_conv_text[],
    product_channels_text[], product_finish_text[];

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
    "            const i32 count = NEAR(columns - c);\n"                                                               \
    "            const i64 at = OUT_AT(r) + c * out_column;\n"                                                         \
    "            VALUE v[PACK];\n"                                                                                     \
    "            i64 places[PACK];\n"                                                                                  \
    "            UNROLL\n"                                                                                             \
    "            for (i32 k = 0; k < PACK; k++) places[k] = place0 + c + k;\n"                                         \
    "            read_sums(tiles_a + line * LINE(TILE_COLUMNS) + first, v);\n"                                         \
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

/* The argument that scales sums: the bits of alpha in the type that is added up in. */
int64_t product_scale(DType dtype, double alpha);
static inline int64_t product_ceil_div(int64_t a, int64_t b) { return a / b + (a % b != 0); }
/* In how many parts to cut the depth when there are `blocks` blocks without. */
int64_t product_splits(const GpuLimits *limits, int64_t blocks, int64_t blocks_a_multiprocessor, int64_t depth);
/* Adds the variant when it is new; returns the new count. */
/* product_epilogue.c: the function finish_pack and what passes its arguments on. */
void product_add_epilogue(Text *text, const GpuVariant *variant);
int product_add_variant(GpuVariant *variants, int count, const GpuVariant *variant);
void product_argument(GpuProductLaunch *launch, int64_t value);

#endif
