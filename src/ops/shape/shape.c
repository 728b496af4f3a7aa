/* SPDX-License-Identifier: Apache-2.0 */
/* Shapes and movement: Transpose, Concat, Expand, Tile, Shape, Constant, Range, ... */
#include "ops/shape/shape.h"

#include "lowering/build_internal.h"
#include "lowering/sizes.h"
#include "ops/families.h"

#include <math.h>

static Status lower_identity(Lowering *l, const Node *n) { return out(l, n, 0, in(l, n, 0)); }

/* What is read as a shape is >= 0, whatever its form. */
static void note_sizes(Lowering *l, const Value *x) {
    for (int i = 0; i < x->rank; i++) note_size(l, x->dims[i]);
}

static Status lower_shape(Lowering *l, const Node *n) {
    Value *x = in(l, n, 0);
    if (!present(l, &x, 1)) return l->error;
    note_sizes(l, x);
    int64_t start = attr_int(n, "start", 0), end = attr_int(n, "end", x->rank);
    if (start < 0) start += x->rank;
    if (end < 0) end += x->rank;
    start = start < 0 ? 0 : start > x->rank ? x->rank : start;
    end = end < start ? start : end > x->rank ? x->rank : end;
    return out(l, n, 0, dims_value(l, (const Dim *const *)x->dims + start, (int)(end - start)));
}

static Status lower_size(Lowering *l, const Node *n) {
    Value *x = in(l, n, 0);
    return present(l, &x, 1) ? out(l, n, 0, dim_scalar(l, value_elements(l->graph, x))) : l->error;
}

static Status lower_flatten(Lowering *l, const Node *n) {
    Value *x = in(l, n, 0);
    if (!present(l, &x, 1)) return l->error;
    int64_t axis = attr_int(n, "axis", 1);
    if (axis < -x->rank || axis > x->rank) return invalid(l, "axis %lld is out of range", (long long)axis);
    if (axis < 0) axis += x->rank;
    const Dim *dims[] = {value_elements_between(l->graph, x, 0, (int)axis),
                         value_elements_between(l->graph, x, (int)axis, x->rank)};
    return out(l, n, 0, reshape(l, x, dims, 2));
}

static Status lower_transpose(Lowering *l, const Node *n) {
    Value *x = in(l, n, 0);
    if (!present(l, &x, 1)) return l->error;
    int count, perm[MAX_RANK];
    bool seen[MAX_RANK] = {false};
    const int64_t *given = attr_ints(n, "perm", &count);
    if (given && count != x->rank) return invalid(l, "perm has %d axes, the data %d", count, x->rank);
    for (int i = 0; i < x->rank; i++) {
        perm[i] = given ? axis_of(l, given[i], x->rank) : x->rank - 1 - i;
        if (l->error || seen[perm[i]]) return l->error ? l->error : invalid(l, "perm names axis %d twice", perm[i]);
        seen[perm[i]] = true;
    }
    return out(l, n, 0, permute(l, x, perm));
}

static Status lower_concat(Lowering *l, const Node *n) {
    Value *first = in(l, n, 0);
    if (!present(l, &first, 1)) return l->error;
    int axis = axis_of(l, attr_int(n, "axis", n->opset < 4 ? 1 : 0), first->rank);
    return l->error ? l->error : out(l, n, 0, concat(l, n->inputs, n->input_count - n->captures, axis));
}

/* numpy's broadcast of x's sizes with the given ones. */
static Status lower_expand(Lowering *l, const Node *n) {
    Value *x = in(l, n, 0);
    int count;
    const Dim *const *shape = sizes_of(l, in(l, n, 1), "size", &count);
    if (!present(l, &x, 1) || !shape) return l->error;
    int rank = count > x->rank ? count : x->rank;
    if (rank > MAX_RANK) return unsupported(l, "%d axes are more than %d", rank, MAX_RANK);
    const Dim *dims[MAX_RANK], *one = dim_const(l->dims, 1);
    for (int i = 0; i < rank; i++) {
        int of_x = i - (rank - x->rank), of_shape = i - (rank - count);
        dims[i] = size_broadcast(l, of_x < 0 ? one : x->dims[of_x], of_shape < 0 ? one : shape[of_shape]);
        if (!dims[i])
            return invalid(l, "%s and %s do not broadcast", shape_text(l, (const Dim *const *)x->dims, x->rank),
                           shape_text(l, shape, count));
    }
    return out(l, n, 0, expand(l, x, dims, rank));
}

/* Axes of size 1 are expanded as they are; others as a pair [repeats, size] that is merged again. */
static Value *tile(Lowering *l, Value *x, const Dim *const *repeats) {
    const Dim *split[2 * MAX_RANK], *wide[2 * MAX_RANK], *merged[MAX_RANK];
    int rank = 0;
    for (int i = 0; i < x->rank; i++) {
        bool ones = dim_equals(x->dims[i], 1);
        if (!ones && !dim_equals(repeats[i], 1)) {
            split[rank] = dim_const(l->dims, 1);
            wide[rank++] = repeats[i];
        }
        split[rank] = x->dims[i];
        wide[rank++] = ones ? repeats[i] : x->dims[i];
        merged[i] = dim_mul(l->dims, x->dims[i], repeats[i]);
    }
    if (rank > MAX_RANK) {
        unsupported(l, "repeating %d axes needs more than %d", x->rank, MAX_RANK);
        return NULL;
    }
    return reshape(l, expand(l, reshape(l, x, split, rank), wide, rank), merged, x->rank);
}

/* Tile-1 repeats one axis: inputs tiles and axis are scalars. */
static Status lower_tile(Lowering *l, const Node *n) {
    Value *x = in(l, n, 0), *vector = whole_numbers(l, in(l, n, 1));
    if (!present(l, (Value *const[]){x, vector}, 2)) return l->error;
    int count = x->rank;
    bool counted = vector->rank != 1 || dim_is_const(vector->dims[0], NULL) || n->opset < 6;
    const Dim *const *given =
        counted ? sizes_of(l, vector, "repeats", &count) : bind_sizes(l, vector, "repeats", count);
    if (!given) return l->error;
    if (n->opset >= 6) {
        if (count != x->rank) return invalid(l, "%d repeats for %d axes", count, x->rank);
        return out(l, n, 0, tile(l, x, given));
    }
    const int64_t *axis;
    int axis_count;
    if (count != 1 || !constant_ints(l, whole_numbers(l, in(l, n, 2)), &axis, &axis_count) || axis_count != 1)
        return l->error ? l->error : unsupported(l, "tiles and axis must be scalars, the axis a constant");
    const Dim *repeats[MAX_RANK];
    int at = axis_of(l, axis[0], x->rank);
    for (int i = 0; i < x->rank; i++) repeats[i] = i == at ? given[0] : dim_const(l->dims, 1);
    return l->error ? l->error : out(l, n, 0, tile(l, x, repeats));
}

/* --- constants ---------------------------------------------------------------------------------------------------- */

static Tensor *attr_tensor(Lowering *l, const Attr *attr) {
    Tensor *t;
    switch (attr->kind) {
    case ATTR_TENSOR: return (Tensor *)attr->tensor;
    case ATTR_INT: return tensor_scalar_int(l->arena, DT_I64, attr->i);
    case ATTR_FLOAT: return tensor_scalar_double(l->arena, DT_F32, attr->f);
    case ATTR_INTS:
        t = tensor_new(l->arena, DT_I64, 1, (const int64_t[]){attr->count});
        if (attr->count) memcpy(t->data, attr->ints, (size_t)attr->count * sizeof *attr->ints);
        return t;
    case ATTR_FLOATS:
        t = tensor_new(l->arena, DT_F32, 1, (const int64_t[]){attr->count});
        if (attr->count) memcpy(t->data, attr->floats, (size_t)attr->count * sizeof *attr->floats);
        return t;
    case ATTR_STRING:
        t = tensor_new(l->arena, DT_STRING, 0, NULL);
        *(StringView *)t->data = attr->s;
        return t;
    case ATTR_STRINGS:
        t = tensor_new(l->arena, DT_STRING, 1, (const int64_t[]){attr->count});
        if (attr->count) memcpy(t->data, attr->strings, (size_t)attr->count * sizeof *attr->strings);
        return t;
    default: return NULL;
    }
}

static Status lower_constant(Lowering *l, const Node *n) {
    static const char *const names[] = {"value",      "value_float",  "value_floats",  "value_int",
                                        "value_ints", "value_string", "value_strings", "sparse_value"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const Attr *attr = node_attr(n, names[i]);
        Tensor *tensor = attr ? attr_tensor(l, attr) : NULL;
        if (tensor) return out(l, n, 0, constant(l, tensor));
    }
    return invalid(l, "it has no value");
}

static Status lower_constant_of_shape(Lowering *l, const Node *n) {
    int count;
    const Dim *const *shape = sizes_of(l, in(l, n, 0), "size", &count);
    if (!shape) return l->error;
    const Attr *attr = node_attr(n, "value");
    if (attr && (attr->kind != ATTR_TENSOR || tensor_count(attr->tensor) != 1))
        return invalid(l, "attribute value must be a tensor of one element");
    Value *fill = attr ? reshape(l, constant(l, (Tensor *)attr->tensor), NULL, 0) : scalar(l, DT_F32, 0);
    return out(l, n, 0, expand(l, fill, shape, count));
}

/* --- Range --- */

/* max(ceil((limit - start) / delta), 0), of f32 in f32; -1 for no number. */
static int64_t range_count(DType dtype, const Tensor *start, const Tensor *limit, const Tensor *delta) {
    if (dtype_is_float(dtype)) {
        double a = dtype_load_double(dtype, start->data, 0), b = dtype_load_double(dtype, limit->data, 0);
        double count = ceil((b - a) / dtype_load_double(dtype, delta->data, 0));
        return count <= 0 ? 0 : count < 0x1p62 ? (int64_t)count : -1;
    }
    int64_t a = dtype_load_int(dtype, start->data, 0), b = dtype_load_int(dtype, limit->data, 0);
    int64_t step = dtype_load_int(dtype, delta->data, 0);
    if (step == 0) return -1;
    if (step > 0 ? b <= a : a <= b) return 0;
    uint64_t distance = step > 0 ? (uint64_t)b - (uint64_t)a : (uint64_t)a - (uint64_t)b;
    uint64_t count = (distance - 1) / (step > 0 ? (uint64_t)step : (uint64_t)0 - (uint64_t)step) + 1;
    return count <= INT64_MAX ? (int64_t)count : -1;
}

static Status range_kernel(HostCall *call) {
    const Tensor *ends[3];
    for (int i = 0; i < 3; i++) {
        TRY(host_tensor(call, i, DT_NONE, &ends[i]));
        if (tensor_count(ends[i]) != 1 || ends[i]->dtype != ends[0]->dtype)
            return host_error(call, "start, limit and delta must be scalars of one type");
    }
    Tensor *result;
    TRY(host_output(call, 0, DT_I64, 1, (const int64_t[]){1}, &result));
    int64_t count = range_count(ends[0]->dtype, ends[0], ends[1], ends[2]);
    if (count < 0) return host_error(call, "the number of elements is not finite");
    if (result) *(int64_t *)result->data = count;
    return NULL;
}

/* The number of elements: by the constants, by the sizes that they are, or counted at run time. */
static const Dim *range_size(Lowering *l, const Node *n, Value *const *ends) {
    DimTable *t = l->dims;
    if (ends[0]->constant && ends[1]->constant && ends[2]->constant) {
        int64_t count = range_count(ends[0]->dtype, ends[0]->constant, ends[1]->constant, ends[2]->constant);
        if (count < 0) invalid(l, "the number of elements is not finite");
        return dim_const(t, count);
    }
    int64_t delta;
    if (ends[0]->content && ends[1]->content && ends[2]->content && dim_is_const(ends[2]->content[0], &delta) &&
        delta && delta != INT64_MIN) {
        const Dim *low = ends[delta > 0 ? 0 : 1]->content[0], *high = ends[delta > 0 ? 1 : 0]->content[0];
        const Dim *steps = dim_ceil_div(t, dim_sub(t, high, low), dim_const(t, delta > 0 ? delta : -delta));
        return size_is_natural(l, steps) ? steps : dim_max(t, steps, dim_const(t, 0));
    }
    const Dim *const *bound = sizes_at_run_time(l, n, range_kernel, ends, 3, "count", 1);
    return bound ? bound[0] : NULL;
}

static Status lower_range(Lowering *l, const Node *n) {
    Value *ends[3];
    for (int i = 0; i < 3; i++) {
        Value *given = i < 2 || optional_in(l, n, 2) || !*n->domain ? in(l, n, i)
                       : ends[0]                                    ? like(l, ends[0], 1)
                                                                    : NULL;
        if (!present(l, &given, 1) || !(ends[i] = reshape(l, given, NULL, 0))) return l->error;
        if (ends[i]->dtype != ends[0]->dtype) return invalid(l, "start, limit and delta must be of one type");
    }
    const Dim *size = range_size(l, n, ends);
    if (!size || l->error) return l->error;
    Value *start = widen(l, ends[0]), *delta = widen(l, ends[2]);
    if (!start || !delta) return l->error;
    Value *index = iota(l, &size, 1, 0, dtype_is_float(start->dtype) ? DT_I64 : start->dtype);
    return out(l, n, 0, cast_like(l, add(l, start, mul(l, cast_like(l, index, start), delta)), ends[0]));
}

/* --- Trilu --- */

/* x where column - row >= k (upper) or <= k (lower), 0 elsewhere. */
static Status lower_trilu(Lowering *l, const Node *n) {
    Value *x = in(l, n, 0), *k = optional_in(l, n, 1);
    if (!present(l, &x, 1)) return l->error;
    if (x->rank < 2) return invalid(l, "the data needs two axes at least");
    const Dim *rows = x->dims[x->rank - 2], *columns = x->dims[x->rank - 1];
    Value *row = unsqueeze(l, iota(l, &rows, 1, 0, DT_I64), (const int[]){1}, 1);
    Value *column = iota(l, &columns, 1, 0, DT_I64);
    k = k ? cast(l, reshape(l, k, NULL, 0), DT_I64) : scalar_int(l, DT_I64, 0);
    Prim side = attr_int(n, "upper", 1) ? PRIM_GE : PRIM_LE;
    Value *kept = binary(l, side, column, add(l, row, k));
    return out(l, n, 0, where(l, kept, x, like(l, x, 0)));
}

/* --- com.microsoft's --- */

/* One axis of size 1 more, before `axis` of the input; a negative one counts from the end of the result. */
static Status lower_expand_dims(Lowering *l, const Node *n) {
    Value *x = in(l, n, 0), *given = in(l, n, 1);
    const int64_t *values;
    int count;
    if (!present(l, &x, 1) || !given) return l->error;
    if (!constant_ints(l, given, &values, &count)) return unsupported(l, "an axis that is not known beforehand");
    if (count != 1 || x->rank == MAX_RANK) return invalid(l, "%d axes for an input of %d", count, x->rank);
    int axis = axis_of(l, values[0], x->rank + 1);
    return l->error ? l->error : out(l, n, 0, unsqueeze(l, x, &axis, 1));
}

/* All slices of `size` elements along axis `dim`, `step` apart; what is in a slice stands in a last axis (PyTorch's unfold). */
static Status lower_unfold(Lowering *l, const Node *n) {
    Value *x = in(l, n, 0);
    int64_t size = attr_int(n, "size", 0), step = attr_int(n, "step", 1), known;
    int perm[MAX_RANK];
    if (!present(l, &x, 1)) return l->error;
    int axis = axis_of(l, attr_int(n, "dim", -1), x->rank);
    if (l->error) return l->error;
    if (size < 1 || step < 1) return invalid(l, "slices of %lld, %lld apart", (long long)size, (long long)step);
    if (dim_is_const(x->dims[axis], &known) && size > known)
        return invalid(l, "slices of %lld of an axis of %lld", (long long)size, (long long)known);
    if (x->rank == MAX_RANK) return unsupported(l, "%d axes", x->rank);
    /* An axis that turns out to be too short makes the count negative, which is refused. */
    const Dim *room = size_sub(l, x->dims[axis], size_const(l, size)),
              *missing = dim_min(l->dims, room, size_const(l, 0)),
              *last = size_add(l, dim_div(l->dims, room, size_const(l, step)), missing),
              *count = size_add(l, last, size_const(l, 1)), *dims[] = {count, size_const(l, size)};
    Value *from = mul(l, iota(l, dims, 2, 0, DT_I64), scalar_int(l, DT_I64, step));
    Value *y = gather(l, x, add(l, from, iota(l, dims, 2, 1, DT_I64)), axis);
    for (int i = 0; i <= x->rank; i++) perm[i] = i <= axis ? i : i == x->rank ? axis + 1 : i + 1;
    return out(l, n, 0, y ? permute(l, y, perm) : NULL);
}

const OpRow ops_shape[] = {
    {"", "Concat", 1, 0, lower_concat},
    {"", "Constant", 1, 0, lower_constant},
    {"", "ConstantOfShape", 9, 0, lower_constant_of_shape},
    {"", "Expand", 8, 0, lower_expand},
    {"", "Flatten", 1, 0, lower_flatten},
    {"", "Identity", 1, 0, lower_identity},
    {"", "Pad", 1, 0, lower_pad, pad_sizes_kernel},
    {"", "Range", 11, 0, lower_range, range_kernel},
    {"", "Reshape", 1, 0, lower_reshape, reshape_sizes_kernel},
    {"", "Shape", 1, 0, lower_shape},
    {"", "Size", 1, 0, lower_size},
    {"", "Slice", 1, 0, lower_slice, slice_kernel, 0, slice_sizes_kernel},
    {"", "Split", 1, 0, lower_split},
    {"", "Squeeze", 1, 0, lower_squeeze, squeeze_sizes_kernel},
    {"", "Tile", 1, 0, lower_tile},
    {"", "Transpose", 1, 0, lower_transpose},
    {"", "Trilu", 14, 0, lower_trilu},
    {"", "Unsqueeze", 1, 0, lower_unsqueeze, unsqueeze_sizes_kernel},
    {"com.microsoft", "ExpandDims", 1, 0, lower_expand_dims},
    {"com.microsoft", "Pad", 1, 0, lower_pad, pad_sizes_kernel},
    {"com.microsoft", "Range", 1, 0, lower_range, range_kernel},
    {"com.microsoft", "SampleOp", 1, 0, lower_identity},
    {"com.microsoft", "Trilu", 1, 0, lower_trilu},
    {"com.microsoft", "UnfoldTensor", 1, 0, lower_unfold},
    {0},
};

const HostRow hosts_shape[] = {
    {"Slice", slice_kernel, back_slice_kernel},
    {0},
};
