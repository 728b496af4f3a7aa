/* SPDX-License-Identifier: Apache-2.0 */
/* What matrix products (matmul.c) and those of rows by the matrices of their groups (grouped.c) share: their constant factors. */
#ifndef ONNXFUSE_RUNTIME_DEVICE_CPU_MATMUL_H
#define ONNXFUSE_RUNTIME_DEVICE_CPU_MATMUL_H

#include "runtime/device/cpu/parts.h"

/* anchor->kind_data. */
typedef struct Matmul {
    float alpha;
    Weight *weights; /* [weight_count], when b is constant; else NULL */
    int64_t weight_count;
    WeightBlocks blocks; /* of what came in few bits; its tensors are constant, or those of no run */
    bool rounds;         /* rows may be rounded to i8 in blocks */
} Matmul;

/* The weight of a matrix, without its data. */
Weight matmul_weight(const CpuAnchor *anchor, int64_t columns, int64_t depth);
/* As AnchorKind has them. A constant b is packed, matrix after matrix. */
Status matmul_prepare(CpuAnchor *anchor, const Tensor *const *constants, Pool *pool);
bool matmul_packs(const Node *node);

#endif
