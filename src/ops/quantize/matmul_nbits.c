/* SPDX-License-Identifier: Apache-2.0 */
/* MatMulNBits (com.microsoft): a product with weights quantized in blocks. */
#include "lowering/anchors.h"
#include "lowering/build.h"
#include "ops/families.h"

/* Blockwise quantized weights: row n of the transposed matrix [N, K] is cut into blocks of K; each has a scale and a
 * zero point. */
typedef struct Blocks {
    const Tensor *packed, *scales,
        *zeros; /* u8 [N, blocks, block * bits / 8], [N * blocks], u8 [N * ceil(blocks * bits / 8)] or like scales */
    int64_t n, k, block, count, bits; /* count: blocks a row */
} Blocks;

static int bits_at(const uint8_t *bytes, int64_t index, int64_t bits) {
    return bits == 8 ? bytes[index] : bytes[index / 2] >> (index % 2 * 4) & 15;
}

static double zero_point(const Blocks *b, int64_t row, int64_t block) {
    if (!b->zeros) return 1 << (b->bits - 1);
    if (b->zeros->dtype != DT_U8) return dtype_load_double(b->zeros->dtype, b->zeros->data, row * b->count + block);
    int64_t row_bytes = (b->count * b->bits + 7) / 8;
    return bits_at((const uint8_t *)b->zeros->data + row * row_bytes, block, b->bits);
}

static Tensor *unpack_blocks(Lowering *l, const Blocks *b) {
    Tensor *w = tensor_new(l->arena, DT_F32, 2, (const int64_t[]){b->n, b->k});
    int64_t block_bytes = b->block * b->bits / 8;
    for (int64_t row = 0; row < b->n; row++)
        for (int64_t at = 0; at < b->k; at++) {
            int64_t block = at / b->block;
            const uint8_t *bytes = (const uint8_t *)b->packed->data + (row * b->count + block) * block_bytes;
            double scale = dtype_load_double(b->scales->dtype, b->scales->data, row * b->count + block);
            ((float *)w->data)[row * b->k + at] =
                (float)((bits_at(bytes, at % b->block, b->bits) - zero_point(b, row, block)) * scale);
        }
    return w;
}

static Status read_blocks(Lowering *l, const Node *n, Blocks *b) {
    b->packed = constant_of(optional_in(l, n, 1));
    b->scales = constant_of(optional_in(l, n, 2));
    b->zeros = constant_of(optional_in(l, n, 3));
    b->k = attr_int(n, "K", 0), b->n = attr_int(n, "N", 0);
    b->bits = attr_int(n, "bits", 4), b->block = attr_int(n, "block_size", 32);
    if (!b->packed || !b->scales || (optional_in(l, n, 3) && !b->zeros))
        return unsupported(l, "weights that are no constants");
    static const Unfollowed unfollowed[] = {{"weight_prepacked"}, {0}};
    if (!follows_all(l, n, unfollowed, 6)) return l->error;
    if (optional_in(l, n, 4)) return unsupported(l, "g_idx");
    if (b->bits != 4 && b->bits != 8) return unsupported(l, "%lld bits", (long long)b->bits);
    if (b->k < 1 || b->n < 1 || b->block < 16 || b->k > INT32_MAX || b->n > INT32_MAX || b->block > INT32_MAX ||
        b->block % 2)
        return invalid(l, "K, N or block_size is out of range");
    b->count = (b->k + b->block - 1) / b->block;
    bool fits = b->packed->dtype == DT_U8 && tensor_count(b->packed) == b->n * b->count * (b->block * b->bits / 8) &&
                dtype_is_float(b->scales->dtype) && tensor_count(b->scales) == b->n * b->count;
    if (b->zeros) {
        int64_t needed = b->zeros->dtype == DT_U8 ? b->n * ((b->count * b->bits + 7) / 8) : b->n * b->count;
        fits &= (b->zeros->dtype == DT_U8 || dtype_is_float(b->zeros->dtype)) && tensor_count(b->zeros) == needed;
    }
    return fits ? NULL : invalid(l, "the weights do not have the size that K, N and block_size ask for");
}

/* The product may be held as it came. */
static void keep_scales(Lowering *l, const Blocks *b, Value *y) {
    Node *product = y ? y->producer : NULL;
    if (!product || product->kind != NODE_ANCHOR) return;
    Tensor *scales = tensor_new(l->arena, DT_F32, 2, (const int64_t[]){b->n, b->count});
    for (int64_t i = 0; i < b->n * b->count; i++)
        ((float *)scales->data)[i] = (float)dtype_load_double(b->scales->dtype, b->scales->data, i);
    node_set_attr(product, (Attr){.name = WEIGHT_SCALES, .kind = ATTR_TENSOR, .tensor = scales});
    node_set_int(product, WEIGHT_BLOCK, b->block);
}

/* A * dequantized(B)^T + bias; the weights are unpacked to f32 once, at load. */
static Status lower_matmul_bits(Lowering *l, const Node *n) {
    Blocks b = {0};
    Value *a = in(l, n, 0);
    if (!a) return l->error;
    TRY(read_blocks(l, n, &b));
    Value *y = matmul(l, widen(l, a), swap_last(l, constant(l, unpack_blocks(l, &b))));
    keep_scales(l, &b, y);
    if (optional_in(l, n, 5)) y = add(l, y, cast_like(l, optional_in(l, n, 5), y));
    return out(l, n, 0, cast_like(l, y, a));
}

const OpRow ops_matmul_nbits[] = {
    {"com.microsoft", "MatMulNBits", 1, 0, lower_matmul_bits, NULL, OP_WEIGHTED | OP_ONE_PRODUCT},
    {0},
};
