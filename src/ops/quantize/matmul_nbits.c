/* SPDX-License-Identifier: Apache-2.0 */
/* MatMulNBits (com.microsoft): a product with weights quantized in blocks. */
#include "lowering/anchors.h"
#include "lowering/build.h"
#include "ops/families.h"
#include "ops/linear/linear.h"

static Status read_blocks(Lowering *l, const Node *n, WeightBlocks *b) {
    *b = (WeightBlocks){.packed = constant_of(optional_in(l, n, 1)),
                        .scales = constant_of(optional_in(l, n, 2)),
                        .zeros = constant_of(optional_in(l, n, 3)),
                        .n = attr_int(n, "N", 0),
                        .k = attr_int(n, "K", 0),
                        .block = attr_int(n, "block_size", 32)};
    int64_t bits = attr_int(n, "bits", 4);
    if (!b->packed || !b->scales || (optional_in(l, n, 3) && !b->zeros))
        return unsupported(l, "weights that are no constants");
    static const Unfollowed unfollowed[] = {{"weight_prepacked"}, {0}};
    if (!follows_all(l, n, unfollowed, 6)) return l->error;
    if (optional_in(l, n, 4)) return unsupported(l, "g_idx");
    if (bits != 2 && bits != 3 && bits != 4 && bits != 8) return unsupported(l, "%lld bits", (long long)bits);
    if (b->block > 0 && b->block % 16) return unsupported(l, "a block_size that is not a multiple of 16");
    b->bits = (int)bits;
    const char *wrong = weight_blocks_check(b);
    return wrong ? invalid(l, "%s", wrong) : NULL;
}

/* The packed weight as the anchor wants it, whatever axes it came with. */
static Value *packed_blocks(Lowering *l, const Node *n, const WeightBlocks *b) {
    Value *packed = in(l, n, 1);
    const Dim *dims[] = {dim_const(l->dims, b->n), dim_const(l->dims, b->count), dim_const(l->dims, b->block_bytes)};
    return packed && packed->rank != 3 ? reshape(l, packed, dims, 3) : packed;
}

/* A * dequantized(B)^T + bias. A device that multiplies by the blocks gets them as they lie in the file; for others, or where
 * the policy wants another form of the weights, they are unpacked to f32, at load. */
static Status lower_matmul_bits(Lowering *l, const Node *n) {
    WeightBlocks b;
    Value *a = in(l, n, 0), *y;
    if (!a) return l->error;
    TRY(read_blocks(l, n, &b));
    bool whole = a->rank >= 2 && dtype_size(a->dtype) <= 4 && !attr_int(n, WEIGHT_PRECISION, 0);
    if (l->policy && l->policy->target.anchors.bits && whole) {
        y = bits_matmul(l, widen(l, a), packed_blocks(l, n, &b), &b);
    } else {
        Tensor *w = tensor_new(l->arena, DT_F32, 2, (const int64_t[]){b.n, b.k});
        weight_blocks_unpack(&b, w->data);
        y = matmul(l, widen(l, a), swap_last(l, constant(l, w)));
    }
    if (optional_in(l, n, 5)) y = add(l, y, cast_like(l, optional_in(l, n, 5), y));
    return out(l, n, 0, cast_like(l, y, a));
}

const OpRow ops_matmul_nbits[] = {
    {"com.microsoft", "MatMulNBits", 1, 0, lower_matmul_bits, NULL, OP_WEIGHTED | OP_ONE_PRODUCT},
    {0},
};
