/* SPDX-License-Identifier: Apache-2.0 */
/* The kernel of an anchor's epilogue, with the tensors of one run: called on block after block of raw results. */
#ifndef ONNXFUSE_RUNTIME_DEVICE_CPU_FINISH_H
#define ONNXFUSE_RUNTIME_DEVICE_CPU_FINISH_H

#include "codegen/codegen.h"
#include "graph/broadcast.h"
#include "graph/tensor.h"
#include "lowering/anchors.h"
#include "runtime/device/cpu/tiles/tile.h"

enum { FINISH_BUFFERS = 1 + EPILOGUE_INPUTS + EPILOGUE_OUTPUTS };

/* What a buffer of the kernel is. */
typedef struct FinishBuffer {
    char *data;     /* NULL: the block of raw results */
    int64_t size;   /* bytes an element */
    Broadcast over; /* how it lies over the result */
    bool wide;      /* it varies along the columns */
} FinishBuffer;

/* The raw result as a whole is nowhere in memory: an element is known by where it would stand, `base` + its number *
 * `size`. */
typedef struct Finish {
    KernelFunction function;
    const RegionKernel *region; /* in tile form */
    const Tensor *rounded; /* not NULL: there is no kernel, raw results are rounded to this one's type, f16 or bf16 */
    TileEnds ends;         /* of bf16: what is done to them before that */
    const char *base;
    int64_t columns, size; /* of the result's last axis; bytes of an element as it is computed */
    bool flat; /* no buffer is repeated but single elements: neighbours may be finished as one row, wherever they are */
    bool alone; /* nothing but the raw result and single elements goes into a result */
    FinishBuffer buffers[FINISH_BUFFERS];
} Finish;

/* size: bytes of an element as it is computed; inputs: the anchor's; outputs: with their memory, all of the result's
 * shape. False where a tensor does not lie over the result. */
bool finish_bind(Finish *finish, KernelFunction function, const RegionKernel *region, int64_t size,
                 const Tensor *const *inputs, const Tensor *outputs);

/* Without a kernel. plain, addend: of bf16 alone, with the addend's tensor; its bias is finish->ends.bias. */
void finish_bind_rounding(Finish *finish, const Tensor *output, const PlainEpilogue *plain, const Tensor *addend);

/* The results of a kernel with one output, rows from `row` on, go to `to` instead, one after the other. */
void finish_move(Finish *finish, int64_t row, void *to);

/* How far apart rows of `columns` raw results are to be, `width` at least where they cannot follow each other. */
int64_t finish_stride(const Finish *finish, int64_t columns, int64_t width);
/* Row i of a block of raw results at `raw`, as a pointer whose element `column` begins it. */
void finish_raw_rows(void *raw, int m, int64_t stride, int64_t column, int64_t size, void **rows);

/* `count` neighbours of each of m rows, which begin where results[i] + column elements say; raw: theirs, rows
 * raw_stride elements apart. */
void finish_rows(const Finish *finish, void *const *results, int m, int64_t column, int64_t count, const void *raw,
                 int64_t raw_stride);

#endif
