/* SPDX-License-Identifier: Apache-2.0 */
/* Bytes that are multiplied four at a time (TileSet of tile_quads): a quad is four neighbours along the summed axis, the
 * first in its lowest bits. So a product of bytes is a product of quads over a quarter of the depth, and all that finds
 * rows, cuts slices and packs panels treats a quad as an element. */
#ifndef ONNXFUSE_RUNTIME_DEVICE_CPU_QUADS_H
#define ONNXFUSE_RUNTIME_DEVICE_CPU_QUADS_H

#include "base/pool.h"
#include "graph/tensor.h"
#include "runtime/device/cpu/scratch.h"

enum { QUAD = 4 };

static inline int64_t quads_in(int64_t depth) { return (depth + QUAD - 1) / QUAD; }

/* Bytes from[... + k * depth_stride + i * inner_stride]; ... of outer axes. */
typedef struct QuadSource {
    const void *from; /* of any alignment */
    int rank;         /* of the outer axes */
    int64_t dims[MAX_RANK], strides[MAX_RANK];
    int64_t depth, depth_stride, inner, inner_stride;
} QuadSource;

/* In scratch memory: *out_data is as quads_gather writes it. */
Status quads_take(const QuadSource *source, Pool *pool, Scratch *scratch, const void **out_data);
/* to: [outer...][quads_in(depth)][inner], zeros beyond the depth. */
void quads_gather(const QuadSource *source, uint32_t *to, Pool *pool);

#endif
