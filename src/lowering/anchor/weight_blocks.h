/* SPDX-License-Identifier: Apache-2.0 */
/* Weights that came quantized in blocks, as the anchors "matmul_bits", "matmul_blocks" and "matmul_grouped" have them (lowering/anchors.h). */
#ifndef ONNXFUSE_LOWERING_ANCHOR_WEIGHT_BLOCKS_H
#define ONNXFUSE_LOWERING_ANCHOR_WEIGHT_BLOCKS_H

#include "graph/graph.h"

/* Column n's depths are cut into blocks, each with a scale and a zero point. All tensors may stand unaligned in a mapped file. */
typedef struct WeightBlocks {
    const Tensor *
        packed; /* u8 [n, count, block_bytes]: the bits of a block, lowest first, the last block of a column filled up */
    const Tensor *scales; /* a float type, [n * count] */
    const Tensor
        *zeros; /* u8 [n * ceil(count * bits / 8)], packed alike, or a float type [n * count]; NULL: the middle */
    int64_t n, k, block, count, block_bytes; /* count: blocks a column */
    int64_t first; /* 0, or of a part of the columns, [first, first + n) of the tensors', where they begin */
    int bits;      /* 2, 3, 4 or 8 */
} WeightBlocks;

/* What such a node says, with its inputs' data: the second's alone, of "matmul_blocks" all behind the first. Of "matmul_grouped" n are the
 * columns of all groups. STATUS_INVALID where it does not go together. */
Status weight_blocks_of(const Node *node, const Tensor *const *inputs, WeightBlocks *out);
/* Derives count and block_bytes, and checks the tensors' types and sizes: what is wrong, or NULL. */
const char *weight_blocks_check(WeightBlocks *blocks);
/* f32 [n, k]. */
void weight_blocks_unpack(const WeightBlocks *blocks, float *to);

static inline int weight_middle(const WeightBlocks *b) { return 1 << (b->bits - 1); }

static inline int weight_bits(const uint8_t *bytes, int64_t index, int bits) {
    int64_t at = index * bits;
    int low = bytes[at / 8] >> at % 8, left = 8 - (int)(at % 8);
    return (left < bits ? low | bytes[at / 8 + 1] << left : low) & ((1 << bits) - 1);
}

static inline const uint8_t *weight_block_bits(const WeightBlocks *b, int64_t column, int64_t block) {
    return (const uint8_t *)b->packed->data + ((b->first + column) * b->count + block) * b->block_bytes;
}

static inline double weight_block_scale(const WeightBlocks *b, int64_t column, int64_t block) {
    return dtype_load_double(b->scales->dtype, b->scales->data, (b->first + column) * b->count + block);
}

static inline double weight_block_zero(const WeightBlocks *b, int64_t column, int64_t block) {
    if (!b->zeros) return weight_middle(b);
    column += b->first;
    if (b->zeros->dtype != DT_U8) return dtype_load_double(b->zeros->dtype, b->zeros->data, column * b->count + block);
    return weight_bits((const uint8_t *)b->zeros->data + column * ((b->count * b->bits + 7) / 8), block, b->bits);
}

#endif
