/* SPDX-License-Identifier: Apache-2.0 */
#include "lowering/anchor/weight_blocks.h"

#include <string.h>
#include "lowering/anchors.h"

const char *weight_blocks_check(WeightBlocks *b) {
    if (b->bits != 2 && b->bits != 3 && b->bits != 4 && b->bits != 8) return "bits is not 2, 3, 4 or 8";
    if (b->k < 1 || b->n < 1 || b->k > INT32_MAX || b->n > INT32_MAX) return "K or N is out of range";
    if (b->block < 16 || b->block % 16 || b->block > INT32_MAX) return "block_size is not a multiple of 16";
    b->count = (b->k + b->block - 1) / b->block;
    b->block_bytes = (b->block * b->bits + 7) / 8;
    const Tensor *zeros = b->zeros;
    int64_t blocks = b->n * b->count, zero_bytes = b->n * ((b->count * b->bits + 7) / 8);
    bool fits = b->packed->dtype == DT_U8 && tensor_count(b->packed) == blocks * b->block_bytes &&
                dtype_is_float(b->scales->dtype) && tensor_count(b->scales) == blocks;
    if (zeros)
        fits &= zeros->dtype == DT_U8 ? tensor_count(zeros) == zero_bytes
                                      : dtype_is_float(zeros->dtype) && tensor_count(zeros) == blocks;
    return fits ? NULL : "the weights do not have the size that K, N and block_size ask for";
}

static const Tensor *tensor_attr(const Node *node, const char *name) {
    const Attr *attr = node_attr(node, name);
    return attr && attr->kind == ATTR_TENSOR ? attr->tensor : NULL;
}

static const Tensor *run_input(const Node *node, const Tensor *const *inputs, int i) {
    return i < node->input_count ? inputs[i] : NULL;
}

Status weight_blocks_of(const Node *node, const Tensor *const *inputs, WeightBlocks *out) {
    const bool grouped = strcmp(node->op, MATMUL_GROUPED) == 0, of_run = strcmp(node->op, MATMUL_BLOCKS) == 0;
    const Tensor *packed = inputs[1];
    *out =
        (WeightBlocks){.packed = packed,
                       .scales = of_run ? run_input(node, inputs, 2) : tensor_attr(node, WEIGHT_SCALES),
                       .zeros = of_run ? run_input(node, inputs, 3) : tensor_attr(node, WEIGHT_ZEROS),
                       .n = packed->rank == (grouped ? 4 : 3) ? packed->dims[0] * (grouped ? packed->dims[1] : 1) : 0,
                       .k = attr_int(node, WEIGHT_DEPTH, 0),
                       .block = attr_int(node, WEIGHT_BLOCK, 0),
                       .bits = (int)attr_int(node, WEIGHT_BITS, 0)};
    const char *wrong = out->scales ? weight_blocks_check(out) : "it has no scales";
    return wrong ? status_error(STATUS_INVALID, "%s (%s): %s", node_origin_name(node), node->op, wrong) : NULL;
}

void weight_blocks_unpack(const WeightBlocks *b, float *to) {
    for (int64_t column = 0; column < b->n; column++)
        for (int64_t block = 0; block < b->count; block++) {
            const uint8_t *bits = weight_block_bits(b, column, block);
            double scale = weight_block_scale(b, column, block), zero = weight_block_zero(b, column, block);
            for (int64_t k = block * b->block, i = 0; i < b->block && k < b->k; k++, i++)
                to[column * b->k + k] = (float)((weight_bits(bits, i, b->bits) - zero) * scale);
        }
}
