/* SPDX-License-Identifier: Apache-2.0 */
/* Indexing: the Gather and Scatter families, OneHot, NonZero, Compress, EyeLike, ReverseSequence, TensorScatter.
 * All but the search for non-zero elements are told in gathers, scatters and comparisons of index ramps. */
#include "lowering/sizes.h"
#include "ops/families.h"

/* ---- Gather, Scatter ---- */

static Status lower_gather(Lowering *l, const Node *n) {
    Value *data = in(l, n, 0), *indices = in(l, n, 1);
    if (!data || !indices) return l->error;
    int axis = axis_of(l, attr_int(n, "axis", 0), data->rank);
    return out(l, n, 0, l->error ? NULL : gather(l, data, indices, axis));
}

static Status lower_gather_elements(Lowering *l, const Node *n) {
    Value *data = in(l, n, 0), *indices = in(l, n, 1);
    if (!data || !indices) return l->error;
    if (data->rank != indices->rank) return invalid(l, "data has rank %d, the indices %d", data->rank, indices->rank);
    int axis = axis_of(l, attr_int(n, "axis", 0), data->rank);
    return out(l, n, 0, l->error ? NULL : gather_elements(l, data, indices, axis));
}

static Status lower_scatter_elements(Lowering *l, const Node *n) {
    Value *data = in(l, n, 0), *indices = in(l, n, 1), *updates = in(l, n, 2);
    if (!data || !indices || !updates) return l->error;
    if (data->rank != indices->rank || data->rank != updates->rank)
        return invalid(l, "data, indices and updates have ranks %d, %d and %d", data->rank, indices->rank,
                       updates->rank);
    int axis = axis_of(l, attr_int(n, "axis", 0), data->rank);
    if (l->error) return l->error;
    return out(l, n, 0, scatter_elements(l, data, indices, updates, axis, attr_string(n, "reduction", "none")));
}

static Status lower_scatter_nd(Lowering *l, const Node *n) {
    return out(l, n, 0, scatter_nd(l, in(l, n, 0), in(l, n, 1), in(l, n, 2), attr_string(n, "reduction", "none")));
}

/* Column `k` of index tuples [..., K], with negative indices made positive; what is out of range becomes `outside`, so
 * that the gather that follows refuses it. */
static Value *index_column(Lowering *l, Value *indices, int k, const Dim *extent, Value **outside) {
    int last = indices->rank - 1;
    Value *column = slice_axis(l, indices, last, size_const(l, k), size_const(l, 1));
    Value *i = column ? squeeze(l, column, &last, 1) : NULL, *size = dim_scalar(l, extent),
          *zero = scalar_int(l, DT_I64, 0);
    Value *at = where(l, binary(l, PRIM_LT, i, zero), add(l, i, size), i);
    Value *bad = binary(l, PRIM_OR, binary(l, PRIM_LT, at, zero), binary(l, PRIM_GE, at, size));
    *outside = *outside ? binary(l, PRIM_OR, *outside, bad) : bad;
    return at;
}

/* The tuples become indices into data with its indexed axes made one, [batch and tuple axes, rest...]. */
Value *gather_nd(Lowering *l, Value *data, Value *indices, int b) {
    int64_t tuple;
    if (!present(l, (Value *[]){data, indices}, 2)) return NULL;
    if (indices->rank < 1 || !dim_is_const(indices->dims[indices->rank - 1], &tuple))
        return unsupported(l, "the length of the index tuples is not known"), NULL;
    if (b < 0 || b >= indices->rank || tuple < 1 || b + tuple > data->rank)
        return invalid(l, "index tuples of %lld do not fit data of rank %d with %d batch dimensions", (long long)tuple,
                       data->rank, b),
               NULL;
    int k = (int)tuple, places = indices->rank - 1;
    indices = cast(l, indices, DT_I64);
    if (!indices) return NULL;
    Value *flat = NULL, *outside = NULL;
    for (int i = 0; i < k; i++) {
        Value *at = index_column(l, indices, i, data->dims[b + i], &outside);
        flat = flat ? add(l, mul(l, flat, dim_scalar(l, data->dims[b + i])), at) : at;
    }
    if (b) {
        const Dim **shape = size_array(l, places);
        for (int i = 0; i < places; i++) shape[i] = i < b ? indices->dims[i] : size_const(l, 1);
        Value *block = NULL;
        for (int i = 0; i < b; i++) {
            Value *ramp = iota(l, shape, places, i, DT_I64);
            block = block ? add(l, mul(l, block, dim_scalar(l, data->dims[i])), ramp) : ramp;
        }
        flat = add(l, mul(l, block, dim_scalar(l, dim_product(l->dims, data->dims + b, k))), flat);
    }
    flat = where(l, outside, scalar_int(l, DT_I64, INT64_MAX), flat);
    const Dim **rows = size_array(l, data->rank - b - k + 1);
    rows[0] = dim_product(l->dims, data->dims, b + k);
    for (int i = b + k; i < data->rank; i++) rows[i - b - k + 1] = data->dims[i];
    return gather(l, reshape(l, data, rows, data->rank - b - k + 1), flat, 0);
}

static Status lower_gather_nd(Lowering *l, const Node *n) {
    int64_t batch = attr_int(n, "batch_dims", 0);
    if (batch < 0 || batch > MAX_RANK) return invalid(l, "batch_dims is %lld", (long long)batch);
    return out(l, n, 0, gather_nd(l, in(l, n, 0), in(l, n, 1), (int)batch));
}

/* present[.., (write[b] + s) mod L, ..] = update[.., s, ..], the modulus in circular mode alone (ONNX
 * TensorScatter-24). */
static Status lower_tensor_scatter(Lowering *l, const Node *n) {
    Value *cache = in(l, n, 0), *update = in(l, n, 1), *write = optional_in(l, n, 2);
    const char *mode = attr_string(n, "mode", "linear");
    bool circular = strcmp(mode, "circular") == 0;
    if (!cache || !update) return l->error;
    if (!circular && strcmp(mode, "linear") != 0) return invalid(l, "mode \"%s\" is not known", mode);
    int rank = cache->rank, axis = axis_of(l, attr_int(n, "axis", -2), rank);
    if (l->error) return l->error;
    if (update->rank != rank || axis == 0)
        return invalid(l, "update has rank %d, the cache %d, the axis is %d", update->rank, rank, axis);
    const Dim **line = size_array(l, rank);
    for (int i = 0; i < rank; i++) line[i] = i == axis ? update->dims[i] : size_const(l, 1);
    Value *at = iota(l, line, rank, axis, DT_I64);
    if (write) {
        if (write->rank != 1) return invalid(l, "write_indices has rank %d instead of 1", write->rank);
        line[axis] = size_const(l, 1);
        line[0] = write->dims[0];
        at = add(l, reshape(l, cast(l, write, DT_I64), line, rank), at);
    }
    if (circular) at = binary(l, PRIM_MOD, at, dim_scalar(l, cache->dims[axis]));
    return out(l, n, 0, scatter_elements(l, cache, expand(l, at, update->dims, rank), update, axis, "none"));
}

/* ---- OneHot, EyeLike ---- */

/* values[1] where the index (counted from the end when negative) is the position along the new axis, else values[0]
 * (ONNX OneHot-11). */
static Status lower_one_hot(Lowering *l, const Node *n) {
    Value *indices = in(l, n, 0), *depth = in(l, n, 1), *values = in(l, n, 2);
    if (!indices || !depth || !values) return l->error;
    int rank = indices->rank + 1, axis = axis_of(l, attr_int(n, "axis", -1), rank);
    const Dim *size = size_from(l, depth, "depth");
    if (l->error) return l->error;
    if (values->rank != 1) return invalid(l, "values has rank %d instead of 1", values->rank);
    const Dim **line = size_array(l, rank);
    for (int i = 0; i < rank; i++) line[i] = i == axis ? size : size_const(l, 1);
    Value *index = cast(l, indices, DT_I64), *zero = scalar_int(l, DT_I64, 0);
    index = where(l, binary(l, PRIM_LT, index, zero), add(l, index, dim_scalar(l, size)), index);
    Value *hot = binary(l, PRIM_EQ, unsqueeze(l, index, &axis, 1), iota(l, line, rank, axis, DT_I64));
    Value *off = slice_axis(l, values, 0, size_const(l, 0), size_const(l, 1));
    Value *on = slice_axis(l, values, 0, size_const(l, 1), size_const(l, 1));
    return out(l, n, 0, where(l, hot, on, off));
}

/* column - row of the last two axes of x, as i64 [.., rows, columns] with leading axes of size 1. */
static Value *diagonal_number(Lowering *l, const Value *x) {
    const Dim *rows[] = {x->dims[x->rank - 2], size_const(l, 1)}, *columns[] = {size_const(l, 1), x->dims[x->rank - 1]};
    return sub(l, iota(l, columns, 2, 1, DT_I64), iota(l, rows, 2, 0, DT_I64));
}

static Status lower_eye_like(Lowering *l, const Node *n) {
    Value *x = in(l, n, 0);
    if (!x) return l->error;
    if (x->rank != 2) return invalid(l, "the input has rank %d instead of 2", x->rank);
    DType dtype = attr_dtype(n, "dtype", x->dtype);
    return out(l, n, 0,
               cast(l, binary(l, PRIM_EQ, diagonal_number(l, x), scalar_int(l, DT_I64, attr_int(n, "k", 0))), dtype));
}

/* ---- ReverseSequence ---- */

/* The first two axes are batch and time in either order; element t of a sequence of length n comes from n - 1 - t while
 * t < n. */
static Status lower_reverse_sequence(Lowering *l, const Node *n) {
    Value *x = in(l, n, 0), *lengths = in(l, n, 1);
    if (!x || !lengths) return l->error;
    int64_t batch_axis = attr_int(n, "batch_axis", 1), time_axis = attr_int(n, "time_axis", 0);
    if (x->rank < 2 || lengths->rank != 1)
        return invalid(l, "the input has rank %d, the lengths %d", x->rank, lengths->rank);
    if (!(batch_axis == 0 && time_axis == 1) && !(batch_axis == 1 && time_axis == 0))
        return invalid(l, "batch_axis and time_axis must be 0 and 1");
    int t = (int)time_axis, b = (int)batch_axis;
    if (!sizes_agree(lengths->dims[0], x->dims[b])) return invalid(l, "there is not one length for each sequence");
    const Dim *times[2], *batches[2];
    times[t] = x->dims[t], times[b] = size_const(l, 1);
    batches[b] = x->dims[b], batches[t] = size_const(l, 1);
    Value *time = iota(l, times, 2, t, DT_I64), *length = reshape(l, cast(l, lengths, DT_I64), batches, 2);
    Value *mirrored = sub(l, sub(l, length, scalar_int(l, DT_I64, 1)), time);
    Value *from = where(l, binary(l, PRIM_LT, time, length), mirrored, time), *batch = iota(l, batches, 2, b, DT_I64);
    Value *major = t == 0 ? from : batch, *minor = t == 0 ? batch : from;
    Value *flat = add(l, mul(l, major, dim_scalar(l, x->dims[1])), minor);
    return out(l, n, 0, gather(l, flatten_to(l, x, 0, 2), flat, 0));
}

/* ---- NonZero, Compress ---- */

/* Whether an element is a byte that is 0 where the element is. */
static bool is_bytes(const Tensor *x) { return dtype_size(x->dtype) == 1 && !dtype_is_float(x->dtype); }

static bool is_zero(const Tensor *x, int64_t i) {
    if (is_bytes(x)) return ((const uint8_t *)x->data)[i] == 0;
    if (x->dtype == DT_F32) return ((const float *)x->data)[i] == 0;
    return dtype_is_float(x->dtype) ? dtype_load_double(x->dtype, x->data, i) == 0
                                    : dtype_load_int(x->dtype, x->data, i) == 0;
}

/* The first of elements [from, end) that is not 0, or end. Masks are mostly bytes, and mostly 0. */
static int64_t next_nonzero(const Tensor *x, int64_t from, int64_t end) {
    if (is_bytes(x))
        for (uint64_t eight; end - from >= (int64_t)sizeof eight; from += (int64_t)sizeof eight) {
            memcpy(&eight, (const uint8_t *)x->data + from, sizeof eight);
            if (eight) break;
        }
    while (from < end && is_zero(x, from)) from++;
    return from;
}

static int64_t count_nonzero(const Tensor *x) {
    int64_t elements = tensor_count(x), found = 0;
    if (is_bytes(x))
        for (int64_t i = 0; i < elements; i++) found += ((const uint8_t *)x->data)[i] != 0;
    else
        for (int64_t i = 0; i < elements; i++) found += !is_zero(x, i);
    return found;
}

/* The coordinates of the elements that are not 0, one column each, in row-major order. A number has none. */
static Status host_nonzero(HostCall *call) {
    const Tensor *x;
    Tensor *y;
    TRY(host_tensor(call, 0, DT_NONE, &x));
    int64_t elements = tensor_count(x), found = count_nonzero(x), k = 0;
    int rank = x->rank;
    TRY(host_output(call, 0, DT_I64, 2, (int64_t[]){rank, found}, &y));
    if (!y || !rank) return NULL;
    int64_t *to = y->data, length = x->dims[rank - 1];
    for (int64_t i = 0; (i = next_nonzero(x, i, elements)) < elements;) {
        int64_t row = i / length, end = (row + 1) * length, at[MAX_RANK];
        for (int axis = rank - 2; axis >= 0; row /= x->dims[axis--]) at[axis] = row % x->dims[axis];
        for (; i < end; i = next_nonzero(x, i + 1, end), k++) {
            for (int axis = 0; axis < rank - 1; axis++) to[axis * found + k] = at[axis];
            to[(rank - 1) * found + k] = length - (end - i);
        }
    }
    return NULL;
}

static Status lower_nonzero(Lowering *l, const Node *n) {
    Value *x = in(l, n, 0);
    if (!x) return l->error;
    const Dim *dims[] = {size_const(l, x->rank), dim_fresh(l->dims, "nonzero")};
    return out(l, n, 0, host_result(l, host_node(l, n, host_nonzero, &x, 1), DT_I64, 2, dims));
}

/* The positions of the condition's true elements. */
static Status host_true_positions(HostCall *call) {
    const Tensor *condition;
    Tensor *y;
    TRY(host_tensor(call, 0, DT_BOOL, &condition));
    const uint8_t *on = condition->data;
    int64_t count = tensor_count(condition), found = 0;
    for (int64_t i = 0; i < count; i++) found += on[i] != 0;
    TRY(host_output(call, 0, DT_I64, 1, &found, &y));
    for (int64_t i = 0, k = 0; y && i < count; i++)
        if (on[i]) ((int64_t *)y->data)[k++] = i;
    return NULL;
}

static Status lower_compress(Lowering *l, const Node *n) {
    Value *x = in(l, n, 0), *condition = in(l, n, 1);
    if (!x || !condition) return l->error;
    if (condition->rank != 1 || condition->dtype != DT_BOOL)
        return invalid(l, "the condition must be a vector of bool");
    bool flat = !node_attr(n, "axis");
    int axis = flat ? 0 : axis_of(l, attr_int(n, "axis", 0), x->rank);
    if (l->error) return l->error;
    const Dim *found = dim_fresh(l->dims, "selected");
    Value *indices = host_result(l, host_node(l, n, host_true_positions, &condition, 1), DT_I64, 1, &found);
    return out(l, n, 0, gather(l, flat ? flatten_to(l, x, 0, x->rank) : x, indices, axis));
}

const OpRow ops_index[] = {
    {"", "Gather", 1, 0, lower_gather, NULL, 0},
    {"", "GatherElements", 11, 0, lower_gather_elements, NULL, 0},
    {"", "GatherND", 11, 0, lower_gather_nd, NULL, 0},
    {"com.microsoft", "GatherND", 1, 0, lower_gather_nd, NULL, 0},
    {"", "Scatter", 9, 0, lower_scatter_elements, NULL, 0},
    {"", "ScatterElements", 11, 0, lower_scatter_elements, NULL, 0},
    {"", "ScatterND", 11, 0, lower_scatter_nd, NULL, 0},
    {"", "TensorScatter", 24, 0, lower_tensor_scatter, NULL, 0},
    {"", "OneHot", 9, 0, lower_one_hot, NULL, 0},
    {"", "EyeLike", 9, 0, lower_eye_like, NULL, 0},
    {"", "ReverseSequence", 10, 0, lower_reverse_sequence, NULL, 0},
    {"", "NonZero", 9, 0, lower_nonzero, host_nonzero, 0},
    {"", "Compress", 9, 0, lower_compress, host_true_positions, 0},
    {0},
};
