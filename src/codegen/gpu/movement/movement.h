/* SPDX-License-Identifier: Apache-2.0 */
/* Primitives outside regions on a GPU: the programs, and the launches that a run takes. Sizes are run-time arguments:
 * one program of a kind serves all shapes.
 *
 * Everything is moved in units of 1 to 16 bytes, the widest that addresses, rows and strides allow. A program is for
 * one unit, and for up to 4 axes after merging and fewer than 2^31 units ("near"), where an index is taken apart by
 * multiplications, or for all else ("far").
 *
 * Scatters are ordered: an element that several updates meet takes them in the order of the indices, as on the CPU, so
 * results are the same each time. */
#ifndef ONNXFUSE_CODEGEN_GPU_MOVEMENT_MOVEMENT_H
#define ONNXFUSE_CODEGEN_GPU_MOVEMENT_MOVEMENT_H

#include "codegen/gpu/gpu.h"
#include "graph/graph.h"

typedef enum GpuMoveKind {
    GPU_MOVE_NONE,
    GPU_MOVE_COPY, /* permute, slice, expand */
    GPU_MOVE_PAD,
    GPU_MOVE_CONCAT,
    GPU_MOVE_GATHER,
    GPU_MOVE_GATHER_ELEMENTS,
    GPU_MOVE_SCATTER_ELEMENTS,
    GPU_MOVE_SCATTER_ND,
} GpuMoveKind;

typedef struct GpuMoveProgram {
    GpuMoveKind kind;
    bool far;
    int unit;     /* bytes */
    Prim combine; /* of scatters with a reduction, with their dtype; else PRIM_NONE */
    DType dtype;
} GpuMoveProgram;

/* The programs that a node's runs ask for, but for rare alignments and sizes; none where it does not run on such a
 * device. */
enum { GPU_MOVE_PROGRAMS = 6 };
int gpu_move_programs(const Node *node, const GpuLimits *limits, GpuMoveProgram *out_programs);
/* Complete: nothing is included. */
void gpu_move_source(Text *text, GpuDialect dialect, GpuMoveProgram program);
bool gpu_move_combines(DType dtype); /* whether scatters have arithmetic for it */

enum { GPU_MOVE_BUFFERS = 9, GPU_MOVE_PARAMS = 68 };
/* One launch: the buffers, then i64 params. Without a function: `bytes` are copied from buffers[0] to buffers[1]. */
typedef struct GpuMove {
    const char *function; /* NULL for a plain copy */
    GpuMoveProgram program;
    size_t bytes;
    int64_t grid;
    int block;
    int buffer_count, param_count;
    const void *buffers[GPU_MOVE_BUFFERS]; /* device memory */
    int64_t params[GPU_MOVE_PARAMS];
} GpuMove;

typedef struct GpuMoves {
    VEC(GpuMove) items; /* one after the other; none: there is nothing to do */
    bool may_fault;     /* an index may be out of range; the device tells through `faults` */
} GpuMoves;

/* What computes the node. inputs and output have their data in device memory; faults: GPU_FAULT_WORDS of device memory
 * (runtime/device/gpu/gpu.h). STATUS_INVALID when shapes do not fit or a slice is out of range. */
Status gpu_moves(Arena *arena, const Node *node, const Tensor *const *inputs, const int64_t *symbols,
                 const Tensor *output, void *faults, GpuMoves *out_moves);

#endif
