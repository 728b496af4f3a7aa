/* What the files of products share. */
#ifndef ONNXFUSE_CODEGEN_GPU_PRODUCT_PARTS_H
#define ONNXFUSE_CODEGEN_GPU_PRODUCT_PARTS_H

#include "codegen/gpu/product.h"

/* A tile, and what a thread computes of it. Rows and columns of a thread come in groups of 4 neighbours. */
typedef struct TileShape {
    int rows, columns, depth;
    int thread_rows, thread_columns;
} TileShape;

TileShape product_tile(GpuTile tile, DType dtype);
int product_threads(const TileShape *shape);
int product_pack(DType dtype); /* neighbours that a thread reads at once: 16 bytes, or 4 elements */

/* Bits of the argument `flags`: which buffers may be accessed in packs. */
enum { WHOLE_A = 1, WHOLE_B = 2, WHOLE_OUT = 4 };

/* Texts of the bodies. */
extern const char product_tiles_text[], product_matmul_text[], product_narrow_text[], product_conv_text[],
    product_channels_text[], product_finish_text[];

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
int product_add_variant(GpuVariant *variants, int count, const GpuVariant *variant);
void product_argument(GpuProductLaunch *launch, int64_t value);

#endif
