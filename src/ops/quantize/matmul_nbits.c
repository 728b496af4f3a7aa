/* SPDX-License-Identifier: Apache-2.0 */
/* MatMulNBits (com.microsoft): a product with weights quantized in blocks. */
#include "lowering/anchors.h"
#include "lowering/build.h"
#include "lowering/gradient.h"
#include "ops/families.h"
#include "lowering/sizes.h"
#include "ops/linear/linear.h"
#include "ops/quantize/quantize.h"

/* What the attributes say, and the tensors that are constants. */
static Status read_blocks(Lowering *l, const Node *n, WeightBlocks *b) {
    *b = (WeightBlocks){.packed = constant_of(optional_in(l, n, 1)),
                        .scales = constant_of(optional_in(l, n, 2)),
                        .zeros = constant_of(optional_in(l, n, 3)),
                        .n = attr_int(n, "N", 0),
                        .k = attr_int(n, "K", 0),
                        .block = attr_int(n, "block_size", 32)};
    int64_t bits = attr_int(n, "bits", 4);
    static const Unfollowed unfollowed[] = {{"weight_prepacked"}, {0}};
    if (!follows_all(l, n, unfollowed, 6)) return l->error;
    if (bits != 2 && bits != 3 && bits != 4 && bits != 8) return unsupported(l, "%lld bits", (long long)bits);
    if (b->block > 0 && b->block % 16) return unsupported(l, "a block_size that is not a multiple of 16");
    b->bits = (int)bits;
    if (b->k < 1 || b->n < 1 || b->block < 16) return invalid(l, "K, N or block_size is out of range");
    b->count = (b->k + b->block - 1) / b->block;
    b->block_bytes = b->block * b->bits / 8;
    return NULL;
}

/* Whether index k of the depth is in block k / block, as it is where nothing says otherwise. */
static bool in_order(const Tensor *groups, const WeightBlocks *b) {
    if (!groups || groups->dtype != DT_I32 || tensor_count(groups) != b->k) return false;
    for (int64_t k = 0; k < b->k; k++)
        if (((const int32_t *)groups->data)[k] != k / b->block) return false;
    return true;
}

static Value *matrix(Lowering *l, Value *x, int64_t rows, int64_t columns) {
    const Dim *dims[] = {dim_const(l->dims, rows), dim_const(l->dims, columns)};
    return reshape(l, x, dims, 2);
}

/* The packed weight as the anchor wants it, whatever axes it came with. */
static Value *packed_blocks(Lowering *l, const Node *n, const WeightBlocks *b) {
    Value *packed = in(l, n, 1);
    const Dim *dims[] = {dim_const(l->dims, b->n), dim_const(l->dims, b->count), dim_const(l->dims, b->block_bytes)};
    return packed && packed->rank != 3 ? reshape(l, packed, dims, 3) : packed;
}

static Value *shaped(Lowering *l, Value *x, int64_t rows, int64_t middle, int64_t last) {
    const Dim *dims[] = {dim_const(l->dims, rows), dim_const(l->dims, middle), dim_const(l->dims, last)};
    return reshape(l, x, dims, 3);
}

/* The first `count` numbers of `bits` bits of each row of bytes [rows, bytes], as i32 [rows, count]. Three bytes have eight numbers of
 * three bits. */
static Value *unpacked(Lowering *l, Value *bytes, int64_t rows, int64_t width, int bits, int64_t count) {
    int64_t group = bits == 3 ? 3 : 1, each = group * 8 / bits, powers[8], places[] = {1, 256, 65536};
    const Dim *zero = dim_const(l->dims, 0), *none[] = {zero, zero, zero},
              *filled[] = {zero, zero, dim_const(l->dims, (group - width % group) % group)};
    Value *x = shaped(l, bytes, rows, 1, width);
    if (width % group) x = x ? pad(l, x, none, filled, like(l, x, 0)) : NULL;
    width = (width + group - 1) / group;
    int last = 2;
    x = x ? cast(l, shaped(l, x, rows, width, group), DT_I32) : NULL;
    if (group > 1) x = mul(l, x, cast(l, vector_i64(l, places, 3), DT_I32));
    x = reduce(l, PRIM_REDUCE_SUM, x, &last, 1, true);
    for (int64_t i = 0; i < each; i++) powers[i] = (int64_t)1 << (bits * i);
    x = divide(l, x, cast(l, vector_i64(l, powers, (int)each), DT_I32));
    x = binary(l, PRIM_AND, x, scalar_int(l, DT_I32, ((int64_t)1 << bits) - 1));
    x = x ? matrix(l, x, rows, width * each) : NULL;
    return x ? slice_axis(l, x, 1, zero, dim_const(l->dims, count)) : NULL;
}

/* f32 [n, k] of weights that come with a run, or whose blocks g_idx names: each depth has its scale and zero point beside it. */
static Value *widened_blocks(Lowering *l, const Node *n, const WeightBlocks *b, Value *groups) {
    Value *packed = in(l, n, 1), *scales = in(l, n, 2), *zeros = optional_in(l, n, 3);
    const Dim *rows = dim_const(l->dims, b->n), *depth = dim_const(l->dims, b->k),
              *count = dim_const(l->dims, b->count), *of_blocks[] = {rows, count},
              *whole[] = {rows, dim_const(l->dims, b->count * b->block)};
    if (l->error) return NULL;
    if (packed->dtype != DT_U8) return invalid(l, "the weights are no bytes"), NULL;
    Value *levels = cast(l, unpacked(l, packed, b->n * b->count, b->block_bytes, b->bits, b->block), DT_F32), *parts[2];
    levels = slice_axis(l, reshape(l, levels, whole, 2), 1, dim_const(l->dims, 0), depth);
    parts[0] = reshape(l, cast(l, scales, DT_F32), of_blocks, 2);
    parts[1] = !zeros ? scalar(l, DT_F32, weight_middle(b))
               : zeros->dtype == DT_U8
                   ? cast(l, unpacked(l, zeros, b->n, (b->count * b->bits + 7) / 8, b->bits, b->count), DT_F32)
                   : reshape(l, cast(l, zeros, DT_F32), of_blocks, 2);
    for (int i = 0; i < 2 && !l->error; i++) {
        if (parts[i]->rank == 0) continue;
        if (groups) {
            parts[i] = gather(l, parts[i], reshape(l, groups, &depth, 1), 1);
            continue;
        }
        const Dim *repeated[] = {rows, count, dim_const(l->dims, b->block)};
        parts[i] = reshape(l, expand(l, shaped(l, parts[i], b->n, b->count, 1), repeated, 3), whole, 2);
        parts[i] = slice_axis(l, parts[i], 1, dim_const(l->dims, 0), depth);
    }
    return dequantized_levels(l, levels, parts[1], parts[0]);
}

/* The product by weights that come with the run, as they lie there. It has no gradient, which one by unpacked weights has. */
static Value *product_of_run(Lowering *l, const Node *n, Value *a, const WeightBlocks *b) {
    Value *packed = packed_blocks(l, n, b), *scales = matrix(l, in(l, n, 2), b->n, b->count),
          *zeros = optional_in(l, n, 3);
    if (l->error) return NULL;
    if (packed->dtype != DT_U8) return invalid(l, "the weights are no bytes"), NULL;
    if (zeros) zeros = matrix(l, zeros, b->n, zeros->dtype == DT_U8 ? (b->count * b->bits + 7) / 8 : b->count);
    return blocks_matmul(l, a, packed, scales, zeros, b);
}

/* A * dequantized(B)^T + bias. A device that multiplies by the blocks gets them as they lie in the file; for others, or where
 * the policy wants another form of the weights, they are unpacked to f32, at load. */
static Status lower_matmul_bits(Lowering *l, const Node *n) {
    WeightBlocks b;
    Value *a = in(l, n, 0), *groups = optional_in(l, n, 4), *y;
    if (!a) return l->error;
    TRY(read_blocks(l, n, &b));
    bool known = b.packed && b.scales && (b.zeros || !optional_in(l, n, 3));
    if (in_order(constant_of(groups), &b)) groups = NULL;
    const char *wrong = known ? weight_blocks_check(&b) : NULL;
    if (wrong) return invalid(l, "%s", wrong);
    bool whole = a->rank >= 2 && dtype_size(a->dtype) <= 4 && !attr_int(n, WEIGHT_PRECISION, 0);
    const bool holds = l->policy && l->policy->target.anchors.bits && whole;
    if (!known && !groups && holds && !lowers_trained(l)) {
        y = product_of_run(l, n, widen(l, a), &b);
    } else if (!known || groups) {
        y = matmul(l, widen(l, a), swap_last(l, widened_blocks(l, n, &b, groups)));
    } else if (holds) {
        y = bits_matmul(l, widen(l, a), packed_blocks(l, n, &b), &b);
        /* accuracy_level: the least that the exporter asks of A; 4 is int8 */
        if (y && attr_int(n, ROWS_INT8, attr_int(n, "accuracy_level", 0) == 4)) node_set_int(y->producer, ROWS_INT8, 1);
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
