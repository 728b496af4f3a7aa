/* SPDX-License-Identifier: Apache-2.0 */
/* Tensors that came quantized in blocks along an axis, as numbers: packed ones taken apart, scales and zero points beside them; and the
 * operators that are no product of them. */
#include "ops/families.h"
#include "lowering/build.h"
#include "lowering/sizes.h"
#include "ops/quantize/quantize.h"

Value *unpacked_last(Lowering *l, Value *bytes, int bits) {
    int64_t powers[8];
    int each = 8 / bits;
    if (!present(l, &bytes, 1) || each == 1) return bytes;
    const Dim *dims[MAX_RANK];
    int rank = bytes->rank, last = rank;
    if (rank == 0 || rank == MAX_RANK) return invalid(l, "packed numbers of %d axes", rank), NULL;
    for (int i = 0; i < rank; i++) dims[i] = bytes->dims[i];
    for (int i = 0; i < each; i++) powers[i] = (int64_t)1 << (bits * i);
    Value *x = unsqueeze(l, cast(l, bytes, DT_I32), &last, 1);
    x = divide(l, x, cast(l, vector_i64(l, powers, each), DT_I32));
    x = binary(l, PRIM_AND, x, scalar_int(l, DT_I32, (1 << bits) - 1));
    dims[rank - 1] = size_mul(l, dims[rank - 1], size_const(l, each));
    return x ? reshape(l, x, dims, rank) : NULL;
}

/* One number a block along the axis, repeated for each of its elements, to `size` of them; x itself where one is for all. */
static Value *over_blocks(Lowering *l, Value *x, int axis, int64_t block, const Dim *size) {
    int64_t count;
    const Dim *dims[MAX_RANK], *zero = size_const(l, 0);
    if (!present(l, &x, 1) || (dim_is_const(x->dims[axis], &count) && count == 1)) return x;
    int rank = x->rank, inner = axis + 1;
    if (rank == MAX_RANK) return invalid(l, "scales of %d axes", rank), NULL;
    Value *y = unsqueeze(l, x, &inner, 1);
    for (int i = 0; i <= rank; i++)
        dims[i] = i <= axis ? x->dims[i] : i == inner ? size_const(l, block) : x->dims[i - 1];
    y = expand(l, y, dims, rank + 1);
    for (int i = 0; i < rank; i++) dims[i] = x->dims[i];
    dims[axis] = size_mul(l, x->dims[axis], size_const(l, block));
    return y ? slice_axis(l, reshape(l, y, dims, rank), axis, zero, size) : NULL;
}

Value *dequantized_blocks(Lowering *l, Value *levels, Value *scales, Value *zeros, double middle, int axis,
                          int64_t block) {
    Value *all[] = {levels, scales};
    if (!present(l, all, 2)) return NULL;
    const Dim *size = levels->dims[axis];
    int64_t elements, count;
    Value *parts[] = {scales, zeros};
    for (int i = 0; i < 2; i++) {
        if (!parts[i]) continue;
        bool known = present(l, &parts[i], 1) && parts[i]->rank == levels->rank &&
                     dim_is_const(parts[i]->dims[axis], &count) && dim_is_const(size, &elements);
        if (!known || (count != 1 && count != (elements + block - 1) / block))
            return invalid(l, "scales or zero points are not one a block of %lld", (long long)block), NULL;
    }
    Value *zero = zeros         ? over_blocks(l, cast(l, zeros, DT_F32), axis, block, size)
                  : middle != 0 ? scalar(l, DT_F32, middle)
                                : NULL;
    return dequantized_levels(l, levels, zero, over_blocks(l, cast(l, scales, DT_F32), axis, block, size));
}

/* Elements along gather_axis, then what they stand for: the table stays as narrow as it came. */
static Status lower_gather_blocks(Lowering *l, const Node *n) {
    Value *data = in(l, n, 0), *indices = in(l, n, 1), *scales = in(l, n, 2), *zeros = optional_in(l, n, 3);
    Value *all[] = {data, indices, scales};
    static const Unfollowed unfollowed[] = {{0}};
    if (!present(l, all, 3) || !follows_all(l, n, unfollowed, 4)) return l->error;
    int64_t block = attr_int(n, "block_size", 128), bits = attr_int(n, "bits", 4);
    bool bytes = data->dtype == DT_U8, whole = data->dtype == DT_I4 || data->dtype == DT_U4;
    if (!bytes && !whole) return unsupported(l, "data of type %s", dtype_name(data->dtype));
    if (block < 16 || (block & (block - 1))) return invalid(l, "block_size %lld", (long long)block);
    if (bytes && bits != 2 && bits != 4 && bits != 8) return invalid(l, "%lld bits", (long long)bits);
    int rank = data->rank, along = axis_of(l, attr_int(n, "gather_axis", 0), rank),
        axis = axis_of(l, attr_int(n, "quantize_axis", 1), rank);
    if (l->error) return l->error;
    if (scales->rank != rank || (zeros && zeros->rank != rank))
        return invalid(l, "scales or zero points have not the data's axes");
    if (bytes && bits < 8 && (along == rank - 1 || axis != rank - 1))
        return unsupported(l, "packed data that is not gathered by rows and quantized along them");
    if (along == axis) { /* each element has its own block's scale */
        const Dim *size = data->dims[axis];
        Value *index = cast(l, indices, DT_I64), *none = scalar_int(l, DT_I64, 0);
        index = where(l, binary(l, PRIM_LT, index, none), add(l, index, dim_scalar(l, size)), index);
        indices = index;
        index = divide(l, index, scalar_int(l, DT_I64, block));
        scales = gather(l, scales, index, along);
        zeros = zeros ? gather(l, zeros, index, along) : NULL;
    } else {
        scales = gather(l, scales, indices, along);
        zeros = zeros ? gather(l, zeros, indices, along) : NULL;
    }
    Value *levels = gather(l, data, indices, along), *y;
    double middle = bytes ? (double)(1 << (bits - 1)) : 0;
    if (l->error) return l->error;
    if (along == axis) {
        Value *zero = zeros ? cast(l, zeros, DT_F32) : middle != 0 ? scalar(l, DT_F32, middle) : NULL;
        y = dequantized_levels(l, levels, zero, cast(l, scales, DT_F32));
    } else {
        int at = axis > along ? axis + indices->rank - 1 : axis;
        if (bytes) {
            levels = unpacked_last(l, levels, (int)bits);
            zeros = zeros ? unpacked_last(l, zeros, (int)bits) : NULL;
            if (zeros && scales) zeros = slice_axis(l, zeros, at, size_const(l, 0), scales->dims[at]);
        }
        y = dequantized_blocks(l, levels, scales, zeros, middle, at, block);
    }
    return out(l, n, 0, cast_like(l, y, scales));
}

/* A product by a weight [N, K] whose elements, in one row, are numbers of a table of 16, two a byte, the first in the high bits, times the
 * largest number of their block (Dettmers et al., "QLoRA", 2023). At load; the table of FP4 is that of its sign, two bits of exponent and
 * one of mantissa as bitsandbytes has them. */
static Status lower_matmul_bnb4(Lowering *l, const Node *n) {
    static const float tables[2][16] = {
        {0, 0.00520833333F, 0.66666667F, 1, 0.33333333F, 0.5F, 0.16666667F, 0.25F, -0.0F, -0.00520833333F, -0.66666667F,
         -1, -0.33333333F, -0.5F, -0.16666667F, -0.25F},
        {-1, -0.6961928F, -0.52507305F, -0.3949175F, -0.28444138F, -0.18477343F, -0.091050036F, 0, 0.0795803F,
         0.1609302F, 0.2461123F, 0.33791524F, 0.44070983F, 0.562617F, 0.72295684F, 1}};
    static const Unfollowed unfollowed[] = {{"transB", NULL, 1}, {0}};
    Value *a = in(l, n, 0);
    const Tensor *packed = constant_of(in(l, n, 1)), *largest = constant_of(in(l, n, 2));
    int64_t rows = attr_int(n, "N", 0), depth = attr_int(n, "K", 0), block = attr_int(n, "block_size", 0),
            type = attr_int(n, "quant_type", 0);
    if (!present(l, &a, 1) || !follows_all(l, n, unfollowed, 3)) return l->error;
    if (type != 0 && type != 1) return invalid(l, "quant_type %lld", (long long)type);
    if (!packed || !largest) return unsupported(l, "weights that come with a run");
    if (rows < 1 || depth < 1 || block < 1 || rows > INT32_MAX || depth > INT32_MAX)
        return invalid(l, "K, N or block_size is out of range");
    int64_t count = rows * depth;
    if (packed->dtype != DT_U8 || tensor_count(packed) != (count + 1) / 2 || !dtype_is_float(largest->dtype) ||
        tensor_count(largest) != (count + block - 1) / block)
        return invalid(l, "the weight or its largest numbers are not as many as K, N and block_size say");
    Tensor *w = tensor_new_unset(l->arena, DT_F32, 2, (const int64_t[]){rows, depth});
    for (int64_t i = 0; i < count; i++) {
        int byte = ((const uint8_t *)packed->data)[i / 2], level = i % 2 ? byte & 15 : byte >> 4;
        ((float *)w->data)[i] =
            tables[type][level] * (float)dtype_load_double(largest->dtype, largest->data, i / block);
    }
    return out(l, n, 0, cast_like(l, matmul(l, widen(l, a), swap_last(l, constant(l, w))), a));
}

const OpRow ops_block_weights[] = {
    {"com.microsoft", "GatherBlockQuantized", 1, 0, lower_gather_blocks, NULL, 0},
    {"com.microsoft", "MatMulBnb4", 1, 0, lower_matmul_bnb4, NULL, 0},
    {0},
};
