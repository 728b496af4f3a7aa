/* SPDX-License-Identifier: Apache-2.0 */
/* Pooling and resizing on GPUs: the programs, and the launch that a run takes. Semantics are those of the host kernels
 * (ops/window/pooling.c, ops/image/image_resize.c), in their order of additions.
 *
 * A program sees pools as [outer, 3 axes, lanes] and resizes as [outer, 1 to 4 axes, lanes]; axes that a pool lacks
 * have size 1. A thread takes one element of the result, or 16 bytes of neighbouring lanes where addresses and the
 * number of lanes allow it, and reads its window from memory: neighbouring windows overlap in the caches. Where a
 * result lies in the source is computed by every thread again, so a run needs no tables.
 *
 * Sizes are run-time arguments. "Near" programs are for fewer than 2^31 results and coordinates below 2^30, where an
 * index is taken apart by multiplications; "far" ones for all else. */
#ifndef ONNXFUSE_CODEGEN_GPU_WINDOW_WINDOW_H
#define ONNXFUSE_CODEGEN_GPU_WINDOW_WINDOW_H

#include "codegen/gpu/gpu.h"
#include "graph/graph.h"

/* Of a node: which host kernel's work it is. */
typedef enum GpuWindowOp {
    GPU_WINDOW_NONE,
    GPU_WINDOW_MAX_POOL,
    GPU_WINDOW_AVERAGE_POOL,
    GPU_WINDOW_LP_POOL,
    GPU_WINDOW_RESIZE,
} GpuWindowOp;

typedef enum GpuWindowKind {
    GPU_WINDOW_MAX,
    GPU_WINDOW_AVERAGE,
    GPU_WINDOW_LP1, /* sum of |x| */
    GPU_WINDOW_LP2, /* square root of the sum of x^2 */
    GPU_WINDOW_NEAREST,
    GPU_WINDOW_LINEAR,
    GPU_WINDOW_CUBIC,
    GPU_WINDOW_KINDS,
} GpuWindowKind;

typedef struct GpuWindowProgram {
    GpuWindowKind kind;
    DType dtype; /* one of gpu_window_types; NEAREST: u8, u16, u32, i64 for all of their size */
    int axes;    /* resized ones with what lies between them; of pools 3 */
    bool wide;   /* a thread takes 16 bytes */
    bool far;
} GpuWindowProgram;

enum { GPU_WINDOW_TYPES = 10, GPU_WINDOW_AXES = 4, GPU_WINDOW_PROGRAMS = 2 };
enum { GPU_WINDOW_NUMBERS = GPU_WINDOW_KINDS * GPU_WINDOW_TYPES * GPU_WINDOW_AXES * 4 };

/* The programs that a node's runs ask for, but for rare alignments and sizes; none where it does not run on such a
 * device. */
int gpu_window_programs(GpuWindowOp op, const Node *node, const GpuLimits *limits, GpuWindowProgram *out_programs);
/* A number below GPU_WINDOW_NUMBERS, for tables. */
int gpu_window_number(GpuWindowProgram program);
int gpu_window_type_number(DType dtype); /* -1: no program has this type */
/* A program with the function "window". Complete: nothing is included. */
void gpu_window_source(Text *text, GpuDialect dialect, GpuWindowProgram program);

enum { GPU_WINDOW_ARGUMENTS = 48 };
typedef struct GpuWindowArgument {
    bool real; /* f32, else i64 */
    int64_t i64;
    float f32;
} GpuWindowArgument;

/* One launch: the buffers of source and result, then the arguments. */
typedef struct GpuWindowLaunch {
    GpuWindowProgram program;
    int64_t grid; /* 0: there is nothing to compute */
    int block, count;
    GpuWindowArgument arguments[GPU_WINDOW_ARGUMENTS];
} GpuWindowLaunch;

/* inputs and output have their data in device memory; constants among the node's inputs are read on the host.
 * STATUS_INVALID when sizes do not fit or are out of range. */
Status gpu_window_launch(GpuWindowOp op, const Node *node, const Tensor *const *inputs, const int64_t *symbols,
                         const Tensor *output, GpuWindowLaunch *out_launch);

#endif
