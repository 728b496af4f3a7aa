/* SPDX-License-Identifier: Apache-2.0 */
/* Narrow numbers that are multiplied several at a time (tile_set_quads, tile_set_pairs): a quad is four bytes of memory that
 * hold neighbours along the summed axis, four bytes or a pair of halves, the first in its lowest bits. So a product of
 * bytes is a product of quads over a quarter of the depth, one of bf16 over half of it, and all that finds rows, cuts
 * slices and packs panels treats a quad as an element. */
#ifndef ONNXFUSE_RUNTIME_DEVICE_CPU_QUADS_H
#define ONNXFUSE_RUNTIME_DEVICE_CPU_QUADS_H

#include "base/pool.h"
#include "graph/tensor.h"
#include "runtime/device/cpu/scratch.h"

enum { QUAD = 4 };

/* size: bytes of a number, 1 or 2. */
static inline int64_t quads_in(int64_t depth, int size) { return (depth * size + QUAD - 1) / QUAD; }

/* Numbers from[... + k * depth_stride + i * inner_stride]; ... of outer axes. */
typedef struct QuadSource {
    const void *from;                          /* of any alignment */
    int size;                                  /* bytes of a number, 1 or 2 */
    int rank;                                  /* of the outer axes */
    int64_t dims[MAX_RANK], strides[MAX_RANK]; /* all strides count numbers */
    int64_t depth, depth_stride, inner, inner_stride;
} QuadSource;

/* In scratch memory: *out_data is as quads_gather writes it. */
Status quads_take(const QuadSource *source, Pool *pool, Scratch *scratch, const void **out_data);
/* to: [outer...][quads_in(depth)][inner], zeros beyond the depth. */
void quads_gather(const QuadSource *source, uint32_t *to, Pool *pool);

#endif
