/* SPDX-License-Identifier: Apache-2.0 */
/* Slice and Split. Starts and ends may be sizes followed symbolically, or tensors of the run: then a host kernel
 * resolves them to a start and a size an axis; only axes or steps of the run make the whole slice a host kernel. */
#include "ops/shape/shape.h"

#include "lowering/build_internal.h"
#include "lowering/gradient.h"
#include "lowering/sizes.h"

static int64_t clamp(int64_t x, int64_t low, int64_t high) { return x < low ? low : x > high ? high : x; }

/* ONNX's rules for one axis of known length: first index and number of elements. */
static void resolve_range(int64_t length, int64_t start, int64_t end, int64_t step, int64_t *out_start,
                          int64_t *out_size) {
    if (start < 0) start = start < -length ? -1 : start + length;
    if (end < 0) end = end < -length ? -1 : end + length;
    start = step > 0 ? clamp(start, 0, length) : clamp(start, -1, length - 1);
    end = step > 0 ? clamp(end, 0, length) : clamp(end, -1, length - 1);
    uint64_t distance = step > 0 ? (uint64_t)end - (uint64_t)start : (uint64_t)start - (uint64_t)end;
    uint64_t stride = step > 0 ? (uint64_t)step : (uint64_t)0 - (uint64_t)step;
    bool empty = step > 0 ? end <= start : start <= end;
    *out_size = empty ? 0 : (int64_t)((distance - 1) / stride + 1);
    *out_start = empty ? 0 : start;
}

/* Inputs: sizes of the data, starts, ends; attrs slice_axes, slice_steps. Result: starts, then sizes, of those axes. */
Status slice_sizes_kernel(HostCall *call) {
    const Tensor *sizes, *starts, *ends;
    Tensor *result;
    int count, step_count;
    TRY(host_tensor(call, 0, DT_I64, &sizes));
    TRY(host_tensor(call, 1, DT_I64, &starts));
    TRY(host_tensor(call, 2, DT_I64, &ends));
    const int64_t *axes = attr_ints(call->node, "slice_axes", &count);
    const int64_t *steps = attr_ints(call->node, "slice_steps", &step_count);
    TRY(host_output(call, 0, DT_I64, 1, (const int64_t[]){2 * count}, &result));
    if (!result) return NULL;
    if (tensor_count(starts) != count || tensor_count(ends) != count || step_count != count)
        return host_error(call, "starts, ends and axes differ in number");
    int64_t *values = result->data;
    for (int i = 0; i < count; i++)
        resolve_range(((const int64_t *)sizes->data)[axes[i]], ((const int64_t *)starts->data)[i],
                      ((const int64_t *)ends->data)[i], steps[i], &values[i], &values[count + i]);
    return NULL;
}

typedef struct SliceCopy {
    int64_t start[MAX_RANK], step[MAX_RANK], stride[MAX_RANK]; /* stride of the data, in elements */
} SliceCopy;

static void copy_slice(const Tensor *x, Tensor *y, const SliceCopy *s) {
    size_t size = dtype_size(x->dtype);
    int64_t count = tensor_count(y), at[MAX_RANK] = {0}, from = 0;
    for (int i = 0; i < x->rank; i++) from += s->start[i] * s->stride[i];
    for (int64_t k = 0; k < count; k++) {
        memcpy((char *)y->data + (size_t)k * size, (const char *)x->data + (size_t)from * size, size);
        for (int axis = x->rank - 1; axis >= 0; axis--) {
            from += s->step[axis] * s->stride[axis];
            if (++at[axis] < y->dims[axis]) break;
            from -= at[axis] * s->step[axis] * s->stride[axis];
            at[axis] = 0;
        }
    }
}

/* The whole operator, for axes and steps of the run. Inputs: data, starts, ends, axes (or NULL), steps (or NULL). */
Status slice_kernel(HostCall *call) {
    const Tensor *x, *starts, *ends, *axes = host_input(call, 3), *steps = host_input(call, 4);
    TRY(host_tensor(call, 0, DT_NONE, &x));
    TRY(host_tensor(call, 1, DT_NONE, &starts));
    TRY(host_tensor(call, 2, DT_NONE, &ends));
    int64_t count = tensor_count(starts), dims[MAX_RANK], stride = 1;
    if (tensor_count(ends) != count || (axes && tensor_count(axes) != count) ||
        (steps && tensor_count(steps) != count) || count > x->rank)
        return host_error(call, "starts, ends, axes and steps differ in number");
    SliceCopy s = {0};
    for (int i = x->rank - 1; i >= 0; i--) {
        dims[i] = x->dims[i];
        s.step[i] = 1;
        s.stride[i] = stride;
        stride *= x->dims[i];
    }
    for (int64_t i = 0; i < count; i++) {
        int64_t axis = axes ? dtype_load_int(axes->dtype, axes->data, i) : i;
        if (axis < -x->rank || axis >= x->rank)
            return host_error(call, "axis %lld is out of range for %d axes", (long long)axis, x->rank);
        if (axis < 0) axis += x->rank;
        s.step[axis] = steps ? dtype_load_int(steps->dtype, steps->data, i) : 1;
        if (s.step[axis] == 0) return host_error(call, "a step of 0");
        resolve_range(x->dims[axis], dtype_load_int(starts->dtype, starts->data, i),
                      dtype_load_int(ends->dtype, ends->data, i), s.step[axis], &s.start[axis], &dims[axis]);
    }
    Tensor *y;
    TRY(host_output(call, 0, x->dtype, x->rank, dims, &y));
    if (y) copy_slice(x, y, &s);
    return NULL;
}

/* The numbers of the elements, sliced the same way, say where each came from. */
void back_slice_kernel(Backward *w, const Node *n) {
    Lowering *l = w->l;
    const Value *x = n->inputs[0], *y = n->outputs[0];
    Value **inputs = ARENA_ARRAY(l->arena, Value *, n->input_count);
    for (int i = 1; i < n->input_count; i++) inputs[i] = n->inputs[i];
    inputs[0] = places_of(l, x);
    Node *node = backward_host(w, n, n->op, slice_kernel, inputs, n->input_count);
    Value *places = host_result(l, node, DT_I64, y->rank, (const Dim *const *)y->dims);
    give(w, n, 0, added_at(l, x, places, dy(w, n, 0)));
}

static Status slice_on_host(Lowering *l, const Node *n, Value *x, int count) {
    const Dim *dims[MAX_RANK];
    for (int i = 0; i < x->rank; i++) dims[i] = dim_fresh(l->dims, "size");
    Node *host = host_node(l, n, slice_kernel, n->inputs, count);
    return out(l, n, 0, host_result(l, host, x->dtype, x->rank, dims));
}

/* --- symbolic ---------------------------------------------------------------------------------------------------- */

enum { BEYOND = INT32_MAX }; /* no axis is that long: "to the end" */

/* Where an end (or a start) lies on an axis: negative constants count from the end. NULL when the sign is not known. */
static const Dim *position(Lowering *l, const Dim *at, const Dim *length) {
    int64_t number;
    if (dim_is_const(at, &number)) {
        if (number <= -(int64_t)BEYOND) return dim_const(l->dims, -1);
        return number < 0 ? dim_add(l->dims, length, at) : at;
    }
    return size_is_natural(l, at) ? at : NULL;
}

/* Forwards: from max(start, 0) up to min(end, length); nothing is read where the size is 0, so the start needs no upper
 * bound. */
static bool forward_range(Lowering *l, const Dim *start, const Dim *end, int64_t step, const Dim *length,
                          const Dim **out_start, const Dim **out_size) {
    DimTable *t = l->dims;
    const Dim *zero = dim_const(t, 0), *from = position(l, start, length), *to = position(l, end, length);
    int64_t number;
    if (!from || !to) return false;
    bool to_end = dim_is_const(end, &number) && number >= BEYOND;
    to = to_end ? length : dim_min(t, to, length);
    bool from_end = dim_is_const(start, &number) && number < 0;
    if (from_end && to == length && step == 1) { /* the last few */
        *out_size = dim_min(t, dim_const(t, number <= -(int64_t)BEYOND ? BEYOND : -number), length);
        if (number <= -(int64_t)BEYOND) *out_size = length;
        *out_start = dim_sub(t, length, *out_size);
        return true;
    }
    *out_start = dim_max(t, from, zero);
    *out_size = dim_max(t, dim_ceil_div(t, dim_sub(t, to, *out_start), dim_const(t, step)), zero);
    return true;
}

/* Backwards: from min(start, length - 1) down to max(end, -1), exclusive. */
static bool backward_range(Lowering *l, const Dim *start, const Dim *end, int64_t step, const Dim *length,
                           const Dim **out_start, const Dim **out_size) {
    DimTable *t = l->dims;
    const Dim *last = dim_sub(t, length, dim_const(t, 1)), *minus_one = dim_const(t, -1);
    const Dim *from = position(l, start, length), *to = position(l, end, length);
    int64_t number;
    if (!from || !to) return false;
    bool from_last = dim_is_const(start, &number) && number >= BEYOND;
    from = from_last ? last : dim_min(t, from, last);
    bool to_first = dim_is_const(end, &number) && number <= -(int64_t)BEYOND;
    to = to_first ? minus_one : dim_max(t, to, minus_one);
    *out_start = from;
    *out_size = dim_max(t, dim_ceil_div(t, dim_sub(t, from, to), dim_const(t, -step)), dim_const(t, 0));
    return true;
}

static bool symbolic_range(Lowering *l, const Dim *start, const Dim *end, int64_t step, const Dim *length,
                           const Dim **out_start, const Dim **out_size) {
    int64_t known, first, last, from, size;
    if (dim_is_const(length, &known) && dim_is_const(start, &first) && dim_is_const(end, &last)) {
        resolve_range(known, first, last, step, &from, &size);
        *out_start = dim_const(l->dims, from);
        *out_size = dim_const(l->dims, size);
        return true;
    }
    return step > 0 ? forward_range(l, start, end, step, length, out_start, out_size)
                    : backward_range(l, start, end, step, length, out_start, out_size);
}

typedef struct SliceSpec {
    int axes[MAX_RANK], count;
    int64_t steps[MAX_RANK];
    Value *starts, *ends; /* i64 [count] */
} SliceSpec;

static Value *apply_slice(Lowering *l, Value *x, const SliceSpec *s, const Dim *const *starts,
                          const Dim *const *sizes) {
    const Dim *start[MAX_RANK], *size[MAX_RANK];
    int64_t step[MAX_RANK];
    for (int i = 0; i < x->rank; i++) {
        start[i] = dim_const(l->dims, 0);
        size[i] = x->dims[i];
        step[i] = 1;
    }
    for (int i = 0; i < s->count; i++) {
        start[s->axes[i]] = starts[i];
        size[s->axes[i]] = sizes[i];
        step[s->axes[i]] = s->steps[i];
    }
    return slice(l, x, start, size, step);
}

/* What can be told symbolically; true when that is all. Else starts and sizes are NULL where it cannot. */
static bool slice_symbolically(Lowering *l, Value *x, const SliceSpec *s, const Dim **starts, const Dim **sizes) {
    const Dim **first = known_elements(l, s->starts, s->count), **last = known_elements(l, s->ends, s->count);
    bool all = true;
    for (int i = 0; i < s->count; i++) {
        starts[i] = NULL;
        if (!first[i] || !last[i] ||
            !symbolic_range(l, first[i], last[i], s->steps[i], x->dims[s->axes[i]], &starts[i], &sizes[i])) {
            starts[i] = NULL;
            all = false;
        }
    }
    return all;
}

static Value *slice_by(Lowering *l, const Node *n, Value *x, const SliceSpec *s) {
    const Dim *starts[MAX_RANK], *sizes[MAX_RANK];
    if (slice_symbolically(l, x, s, starts, sizes)) return apply_slice(l, x, s, starts, sizes);
    int64_t axes[MAX_RANK];
    for (int i = 0; i < s->count; i++) axes[i] = s->axes[i];
    Value *inputs[] = {dims_value(l, (const Dim *const *)x->dims, x->rank), s->starts, s->ends};
    Node *host = host_node(l, n, slice_sizes_kernel, inputs, 3);
    if (!host) return NULL;
    node_set_ints(host, "slice_axes", axes, s->count);
    node_set_ints(host, "slice_steps", s->steps, s->count);
    Value *result = host_result(l, host, DT_I64, 1, (const Dim *const[]){dim_const(l->dims, 2 * s->count)});
    const Dim *const *bound = result ? bind_sizes(l, result, "size", 2 * s->count) : NULL;
    for (int i = 0; bound && i < s->count; i++) {
        if (starts[i]) continue;
        starts[i] = bound[i];
        sizes[i] = bound[s->count + i];
    }
    return bound ? apply_slice(l, x, s, starts, sizes) : NULL;
}

/* An input or (before opset 10) an attribute, as an i64 vector; NULL when left out. */
static Value *slice_vector(Lowering *l, const Node *n, const char *name, int index) {
    int count;
    const int64_t *values = n->opset < 10 ? attr_ints(n, name, &count) : NULL;
    if (values) return vector_i64(l, values, count);
    Value *value = n->opset < 10 ? NULL : optional_in(l, n, index);
    if (!value) return NULL;
    value = cast(l, value, DT_I64);
    return value && value->rank == 0 ? reshape(l, value, (const Dim *const[]){dim_const(l->dims, 1)}, 1) : value;
}

static bool read_axes_and_steps(Lowering *l, const Value *x, Value *axes, Value *steps, SliceSpec *s) {
    const int64_t *axis_values = NULL, *step_values = NULL;
    int axis_count, step_count;
    if (axes && !constant_ints(l, axes, &axis_values, &axis_count)) return false;
    if (steps && !constant_ints(l, steps, &step_values, &step_count)) return false;
    if ((axes && axis_count != s->count) || (steps && step_count != s->count) || s->count > x->rank) {
        invalid(l, "starts, ends, axes and steps differ in number");
        return false;
    }
    for (int i = 0; i < s->count && !l->error; i++) {
        s->axes[i] = axis_of(l, axes ? axis_values[i] : i, x->rank);
        s->steps[i] = steps ? step_values[i] : 1;
        if (s->steps[i] == 0 || s->steps[i] == INT64_MIN) invalid(l, "a step of %lld", (long long)s->steps[i]);
    }
    return !l->error;
}

Status lower_slice(Lowering *l, const Node *n) {
    Value *x = in(l, n, 0);
    Value *axes = slice_vector(l, n, "axes", 3), *steps = slice_vector(l, n, "steps", 4);
    SliceSpec s = {.starts = slice_vector(l, n, "starts", 1), .ends = slice_vector(l, n, "ends", 2)};
    if (!present(l, (Value *const[]){x, s.starts, s.ends}, 3)) return l->error;
    int64_t count, end_count;
    bool counted = s.starts->rank == 1 && s.ends->rank == 1 && dim_is_const(s.starts->dims[0], &count) &&
                   dim_is_const(s.ends->dims[0], &end_count);
    if (!counted) return slice_on_host(l, n, x, n->input_count);
    if (count != end_count || count > MAX_RANK)
        return invalid(l, "%lld starts and %lld ends", (long long)count, (long long)end_count);
    s.count = (int)count;
    if (!read_axes_and_steps(l, x, axes, steps, &s))
        return l->error ? l->error : slice_on_host(l, n, x, n->input_count);
    return out(l, n, 0, slice_by(l, n, x, &s));
}

/* --- Split ------------------------------------------------------------------------------------------------------- */

/* The sizes of equal parts; the last is smaller where they do not divide. */
static const Dim **equal_parts(Lowering *l, const Dim *length, int parts) {
    DimTable *t = l->dims;
    const Dim **sizes = size_array(l, parts), *each;
    bool divides = dim_divides(t, length, dim_const(t, parts), &each);
    if (!divides) each = dim_ceil_div(t, length, dim_const(t, parts));
    const Dim *left = length, *zero = dim_const(t, 0);
    for (int i = 0; i < parts; i++) {
        sizes[i] = divides ? each : dim_max(t, dim_min(t, each, left), zero);
        left = dim_sub(t, left, each);
    }
    return sizes;
}

static bool parts_fit(Lowering *l, const Dim *length, const Dim *const *sizes, int parts) {
    const Dim *sum = dim_const(l->dims, 0);
    for (int i = 0; i < parts; i++) sum = dim_add(l->dims, sum, sizes[i]);
    if (sizes_agree(sum, length)) return true;
    invalid(l, "the parts %s do not add up to the axis", shape_text(l, sizes, parts));
    return false;
}

Status lower_split(Lowering *l, const Node *n) {
    Value *x = in(l, n, 0);
    if (!present(l, &x, 1)) return l->error;
    int parts = n->output_count, count, axis = axis_of(l, attr_int(n, "axis", 0), x->rank);
    if (l->error) return l->error;
    const Dim *length = x->dims[axis], *const *sizes = NULL;
    const int64_t *values = attr_ints(n, "split", &count);
    Value *split = values ? vector_i64(l, values, count) : whole_numbers(l, optional_in(l, n, 1));
    if (split) {
        bool counted = split->rank != 1 || dim_is_const(split->dims[0], NULL);
        count = parts;
        sizes = counted ? sizes_of(l, split, "part", &count) : bind_sizes(l, split, "part", parts);
        if (!sizes) return l->error;
        if (count != parts) return invalid(l, "%d sizes for %d outputs", count, parts);
        if (!parts_fit(l, length, sizes, parts)) return l->error;
    } else {
        int64_t asked = attr_int(n, "num_outputs", parts);
        if (asked < parts || asked > 1 << 20)
            return invalid(l, "num_outputs is %lld for %d outputs", (long long)asked, parts);
        sizes = equal_parts(l, length, (int)asked);
    }
    const Dim *start = dim_const(l->dims, 0);
    for (int i = 0; i < parts && !l->error; i++) {
        if (wants_output(n, i)) out(l, n, i, slice_axis(l, x, axis, start, sizes[i]));
        start = dim_add(l->dims, start, sizes[i]);
    }
    return l->error;
}
