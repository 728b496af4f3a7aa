/* SPDX-License-Identifier: Apache-2.0 */
/* Matrix products and convolutions as programs for GPUs: which variant suits which sizes, its text, and its launch.
 *
 * A product is rows x columns over a depth. Blocks compute tiles of it from tiles of both factors in shared memory,
 * loaded one ahead; a convolution gathers its rows from the input's positions on the way (the taps of the kernel times
 * the input's channels are the depth), a transposed one is, for each remainder of the positions by the strides, such a
 * convolution of those taps that meet the input there. Products of few rows read their weights once, coalesced, and
 * split the depth over the threads of a block. Where there are fewer tiles than the device has room for, the depth is
 * also split over blocks: partial sums go to memory, a second launch adds them up in order, so that results are the
 * same each time.
 *
 * All sizes, strides and numbers are arguments of the launch: a new shape compiles nothing. f16 and bf16 are multiplied
 * on matrix units where the device has them, and so is f32 as tf32 where that is allowed; else in f32. */
#ifndef ONNXFUSE_CODEGEN_GPU_PRODUCT_PRODUCT_H
#define ONNXFUSE_CODEGEN_GPU_PRODUCT_PRODUCT_H

#include "codegen/gpu/gpu.h"
#include "codegen/codegen.h"

/* How a tensor that an epilogue reads lies over the result. */
typedef enum GpuOperandForm {
    GPU_OPERAND_WHOLE,  /* as the result */
    GPU_OPERAND_COLUMN, /* an element a column */
    GPU_OPERAND_SCALAR,
    GPU_OPERAND_SPREAD, /* as graph/broadcast.h says, by two numbers of the launch */
} GpuOperandForm;

/* An anchor's epilogue: one result, and all tensors of the products' type; between them there may be others. */
typedef struct GpuEpilogue {
    const Kernel *kernel; /* in tile form (codegen_tile); its text is printed where sums are finished */
    const int *operand;   /* [buffers of the kernel]: the operand's number; -1: the raw result, or the result */
    int operand_count;
    GpuOperandForm forms[EPILOGUE_INPUTS];
    int inputs[EPILOGUE_INPUTS]; /* of the node: what the operand is */
} GpuEpilogue;

/* Of an anchor with a body as its epilogue, whose sums are of type `raw`; memory from the arena. */
Status gpu_epilogue_of(Arena *arena, const Node *anchor, DType raw, GpuDialect dialect, GpuEpilogue **out_epilogue);

typedef enum GpuProductKind {
    GPU_PRODUCT_MATMUL,   /* tiles of any number of rows */
    GPU_PRODUCT_NARROW,   /* few rows */
    GPU_PRODUCT_CONV,     /* convolution by tiles */
    GPU_PRODUCT_CHANNELS, /* convolution of few channels a group, a thread a few of them: depthwise ones above all */
    GPU_PRODUCT_FINISH,   /* the sum of what splits left, or a library's result, and the epilogue */
} GpuProductKind;

typedef enum GpuTile {
    GPU_TILE_LARGE,  /* 128 x 128 */
    GPU_TILE_MEDIUM, /* 64 x 64 */
    GPU_TILE_TALL,   /* 128 x 16 */
    GPU_TILE_ROW,    /* narrow: 1 row */
    GPU_TILE_ROWS,   /* narrow: 8 rows */
    GPU_TILE_HALF,   /* 128 x 64, on matrix units alone */
} GpuTile;

enum { GPU_BATCH_AXES = 3, GPU_PRODUCT_ARGUMENTS = 48, GPU_MAX_VARIANTS = 12 };

/* What a program's text depends on. Zeroed where unused, so that variants compare as bytes. */
typedef struct GpuVariant {
    GpuProductKind kind;
    GpuTile tile;
    DType dtype;
    bool a_outer, b_outer;       /* matmul: rows of a (columns of b) are neighbours in memory; else the depth is */
    bool matrix;                 /* MATMUL, CONV: on matrix units; f32 as tf32 */
    bool exact;                  /* `matrix`: its copies and tiles, but f32 as it is, on ordinary units */
    bool gather;                 /* `matrix`: lines of a factor do not begin at multiples of 16 bytes */
    bool transposed;             /* convolution */
    bool depthwise;              /* CHANNELS: one channel a group on both sides */
    int window, stride;          /* `depthwise`: its taps and strides, the same along the last two axes; 0: any */
    bool partial;                /* FINISH: of split sums; else of a result, in place */
    bool lines;                  /* FINISH: of a result elsewhere, whose lines are longer than those of the whole */
    const GpuEpilogue *epilogue; /* NULL: none */
} GpuVariant;

/* The program's one function is `name`. Complete: nothing is included. */
void gpu_product_render(Text *text, const GpuVariant *variant, GpuDialect dialect, const char *name);
/* The types that products are made for; f64 where the device has it. */
bool gpu_product_type(const GpuLimits *limits, DType dtype);
/* Bytes of what a type is added up in. */
size_t gpu_product_sum_bytes(DType dtype);

/* r[i, j] = alpha * sum over d of a[i, d] b[d, j] for each batch; strides in elements. */
typedef struct GpuMatmul {
    DType dtype;
    int64_t rows, columns, depth;
    int64_t a_row, a_depth, b_depth, b_column, out_row, out_column;
    /* Outermost first; 1 and 0 where unused. The strides of a broadcast factor are 0. */
    int64_t batch[GPU_BATCH_AXES], a_batch[GPU_BATCH_AXES], b_batch[GPU_BATCH_AXES], out_batch[GPU_BATCH_AXES];
    double alpha;
    int64_t elements; /* of the result's tensor: dense, whatever its strides */
    bool a_outer, b_outer;
    /* Bytes that divide the addresses of a, b, and of the result and all tensors that the epilogue adds. */
    int64_t a_alignment, b_alignment, out_alignment;
} GpuMatmul;

enum { GPU_CONV_AXES = 3 }; /* spatial axes; missing leading ones have extent 1 */
typedef struct GpuConv {
    DType dtype;
    bool transposed;
    int64_t images, in[GPU_CONV_AXES], out[GPU_CONV_AXES], kernel[GPU_CONV_AXES], strides[GPU_CONV_AXES],
        dilations[GPU_CONV_AXES], pads[GPU_CONV_AXES]; /* pads: before */
    int64_t group, inputs, outputs;                    /* channels of a group */
    int64_t w_tap, w_input, w_output, w_group;         /* strides of the weight, elements */
    int64_t x_alignment, w_alignment, out_alignment;   /* as above */
} GpuConv;

/* Arguments in order: buffers a (x), b (w), the result, partial sums (NULL without splits), the epilogue's operands
 * in order; then i64: `arguments`, then, with an epilogue, the number in the whole result of the element that the result
 * given begins with, and of each operand period and inner (graph/broadcast.h). FINISH has no a and b. */
typedef struct GpuProductLaunch {
    GpuVariant variant;
    int64_t grid;
    int block;
    int64_t splits; /* more than 1: partial sums, splits x elements of the result, finished by gpu_finish_launch */
    int count;
    int64_t arguments[GPU_PRODUCT_ARGUMENTS];
} GpuProductLaunch;

/* epilogue: NULL for none. Sizes of 0 give a grid of 0: nothing to do; a depth of 0 is taken. A grid
 * above GPU_MAX_GRID cannot be launched at once. */
#define GPU_MAX_GRID 0x7fffffff
void gpu_matmul_launch(const GpuMatmul *matmul, const GpuLimits *limits, const GpuEpilogue *epilogue,
                       GpuProductLaunch *out_launch);
void gpu_conv_launch(const GpuConv *conv, const GpuLimits *limits, const GpuEpilogue *epilogue,
                     GpuProductLaunch *out_launch);
/* splits 0: of a result in place. Bias element (i / column_stride) % columns belongs to element i. */
void gpu_finish_launch(DType dtype, int64_t elements, int64_t splits, int64_t columns, int64_t column_stride,
                       double alpha, int64_t alignment, const GpuLimits *limits, const GpuEpilogue *epilogue,
                       GpuProductLaunch *out_launch);

/* Of a result of lines of `columns` elements, at least four, that stand `line` apart in the buffer of partial sums, in its own type. */
void gpu_lines_launch(DType dtype, int64_t elements, int64_t columns, int64_t line, int64_t alignment,
                      const GpuLimits *limits, const GpuEpilogue *epilogue, GpuProductLaunch *out_launch);

/* All variants that launches may ask for where sizes of -1 are not known yet; at most GPU_MAX_VARIANTS. */
int gpu_matmul_variants(const GpuMatmul *matmul, const GpuLimits *limits, const GpuEpilogue *epilogue, GpuVariant *out);
int gpu_conv_variants(const GpuConv *conv, const GpuLimits *limits, const GpuEpilogue *epilogue, GpuVariant *out);

/* Variants that together hold every line of the texts, for tests: the i-th, with an epilogue in the arena where it has
 * one, its name in out_name. False behind the last. */
bool gpu_product_sample(Arena *arena, int i, GpuVariant *out_variant, const char **out_name);

#endif
