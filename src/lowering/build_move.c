/* SPDX-License-Identifier: Apache-2.0 */
/* Primitives that move or index data: the result's dims, the simplifications, then emit(). */
#include "lowering/build_internal.h"

static const Dim *one(Lowering *l) { return dim_const(l->dims, 1); }
static const Dim *zero(Lowering *l) { return dim_const(l->dims, 0); }

bool rank_is_supported(Lowering *l, int rank) {
    if (rank > MAX_RANK) unsupported(l, "%d axes are more than the %d supported", rank, MAX_RANK);
    return !l->error;
}

/* --- movement --------------------------------------------------------------------------------------------------- */

static Value *movement(Lowering *l, NodeSpec *spec) { return rank_is_supported(l, spec->rank) ? emit(l, spec) : NULL; }

Value *reshape(Lowering *l, Value *x, const Dim *const *shape, int rank) {
    if (!present(l, &x, 1) || !rank_is_supported(l, rank)) return NULL;
    if (has_dims(x, shape, rank)) return x;
    int64_t before, after;
    if (dim_is_const(value_elements(l->graph, x), &before) && dim_is_const(dim_product(l->dims, shape, rank), &after) &&
        before != after) {
        const char *from = shape_text(l, x->dims, x->rank);
        invalid(l, "shape %s cannot become %s: %lld elements are not %lld", from, shape_text(l, shape, rank),
                (long long)before, (long long)after);
        return NULL;
    }
    while (is_made_by(x, PRIM_RESHAPE) && !x->content) x = x->producer->inputs[0];
    if (has_dims(x, shape, rank)) return x;
    NodeSpec spec = {.prim = PRIM_RESHAPE, .inputs = &x, .input_count = 1, .dtype = x->dtype};
    spec_shape(&spec, rank, shape);
    spec_dims(&spec, "shape", shape, rank);
    return movement(l, &spec);
}

/* Whether the permutation keeps the order of all axes that are not of size 1: then it is a reshape. */
static bool moves_ones_only(const Value *x, const int64_t *perm) {
    int last = -1;
    for (int i = 0; i < x->rank; i++) {
        if (dim_equals(x->dims[perm[i]], 1)) continue;
        if (perm[i] < last) return false;
        last = (int)perm[i];
    }
    return true;
}

Value *permute(Lowering *l, Value *x, const int *perm) {
    if (!present(l, &x, 1)) return NULL;
    int64_t order[MAX_RANK];
    NodeSpec spec = {.prim = PRIM_PERMUTE, .input_count = 1, .dtype = x->dtype, .rank = x->rank};
    for (int i = 0; i < x->rank; i++) {
        order[i] = perm[i];
        spec.dims[i] = x->dims[perm[i]];
    }
    if (moves_ones_only(x, order)) return reshape(l, x, spec.dims, spec.rank);
    if (is_made_by(x, PRIM_PERMUTE)) {
        int inner_count;
        const int64_t *inner = attr_ints(x->producer, "perm", &inner_count);
        x = x->producer->inputs[0];
        for (int i = 0; i < spec.rank; i++) order[i] = inner[order[i]];
        if (moves_ones_only(x, order)) return reshape(l, x, spec.dims, spec.rank);
    }
    double number;
    if (is_splat(x, &number)) return reshape(l, x, spec.dims, spec.rank);
    spec.inputs = &x;
    spec_ints(&spec, "perm", order, spec.rank);
    return movement(l, &spec);
}

Value *swap_last(Lowering *l, Value *x) {
    int perm[MAX_RANK];
    if (!present(l, &x, 1)) return NULL;
    if (x->rank < 2) {
        invalid(l, "\"%s\" needs two axes at least, it has %d", x->name, x->rank);
        return NULL;
    }
    for (int i = 0; i < x->rank; i++) perm[i] = i;
    perm[x->rank - 1] = x->rank - 2;
    perm[x->rank - 2] = x->rank - 1;
    return permute(l, x, perm);
}

static Value *add_leading_axes(Lowering *l, Value *x, int rank) {
    const Dim *dims[MAX_RANK];
    for (int i = 0; i < rank; i++) dims[i] = i < rank - x->rank ? one(l) : x->dims[i - (rank - x->rank)];
    return reshape(l, x, dims, rank);
}

Value *expand(Lowering *l, Value *x, const Dim *const *shape, int rank) {
    if (!present(l, &x, 1) || !rank_is_supported(l, rank)) return NULL;
    if (rank < x->rank) {
        invalid(l, "%d axes cannot be broadcast to %d", x->rank, rank);
        return NULL;
    }
    for (int i = 0; i < x->rank; i++) {
        const Dim *from = x->dims[i], *to = shape[i + rank - x->rank];
        if (from == to || dim_equals(from, 1) || !dim_is_const(from, NULL) || !dim_is_const(to, NULL)) continue;
        const char *text = shape_text(l, x->dims, x->rank);
        invalid(l, "shape %s cannot be broadcast to %s", text, shape_text(l, shape, rank));
        return NULL;
    }
    if (x->rank < rank) x = add_leading_axes(l, x, rank);
    if (!x || has_dims(x, shape, rank)) return x;
    if (is_static_expand(x)) x = x->producer->inputs[0];
    NodeSpec spec = {.prim = PRIM_EXPAND, .inputs = &x, .input_count = 1, .dtype = x->dtype};
    spec_shape(&spec, rank, shape);
    spec_dims(&spec, "shape", shape, rank);
    return movement(l, &spec);
}

Value *unsqueeze(Lowering *l, Value *x, const int *axes, int count) {
    if (!present(l, &x, 1) || !rank_is_supported(l, x->rank + count)) return NULL;
    const Dim *dims[MAX_RANK];
    int rank = x->rank + count, next = 0, from = 0;
    for (int i = 0; i < rank; i++) {
        bool added = next < count && axes[next] == i;
        if (!added && from == x->rank) {
            invalid(l, "axes to add are out of range for %d axes", rank);
            return NULL;
        }
        dims[i] = added ? one(l) : x->dims[from++];
        next += added;
    }
    return reshape(l, x, dims, rank);
}

Value *squeeze(Lowering *l, Value *x, const int *axes, int count) {
    if (!present(l, &x, 1)) return NULL;
    const Dim *dims[MAX_RANK];
    int rank = 0, next = 0;
    for (int i = 0; i < x->rank; i++) {
        if (next < count && axes[next] == i) {
            next++;
            if (!dim_is_const(x->dims[i], NULL) || dim_equals(x->dims[i], 1)) continue;
            invalid(l, "axis %d of %s is not of size 1", i, shape_text(l, x->dims, x->rank));
            return NULL;
        }
        dims[rank++] = x->dims[i];
    }
    return reshape(l, x, dims, rank);
}

Value *flatten_to(Lowering *l, Value *x, int from, int to) {
    if (!present(l, &x, 1)) return NULL;
    const Dim *dims[MAX_RANK + 1];
    int rank = 0;
    for (int i = 0; i < from; i++) dims[rank++] = x->dims[i];
    dims[rank++] = value_elements_between(l->graph, x, from, to);
    for (int i = to; i < x->rank; i++) dims[rank++] = x->dims[i];
    return reshape(l, x, dims, rank);
}

static bool slice_is_in_range(Lowering *l, const Value *x, int axis, const Dim *start, const Dim *size, int64_t step) {
    int64_t length, first, count;
    if (!dim_is_const(x->dims[axis], &length) || !dim_is_const(start, &first) || !dim_is_const(size, &count))
        return true;
    int64_t last, distance;
    bool fits = count == 0 || (count > 0 && !__builtin_mul_overflow(count - 1, step, &distance) &&
                               !__builtin_add_overflow(first, distance, &last) && first >= 0 && first < length &&
                               last >= 0 && last < length);
    if (!fits)
        invalid(l, "%lld elements from %lld in steps of %lld are not in axis %d of %s", (long long)count,
                (long long)first, (long long)step, axis, shape_text(l, x->dims, x->rank));
    return fits;
}

Value *slice(Lowering *l, Value *x, const Dim *const *start, const Dim *const *size, const int64_t *step) {
    if (!present(l, &x, 1)) return NULL;
    int64_t steps[MAX_RANK];
    bool whole = true;
    for (int i = 0; i < x->rank; i++) {
        steps[i] = step ? step[i] : 1;
        if (!slice_is_in_range(l, x, i, start[i], size[i], steps[i])) return NULL;
        whole &= size[i] == x->dims[i] && dim_equals(start[i], 0) && (steps[i] == 1 || dim_equals(size[i], 1));
    }
    if (whole) return x;
    NodeSpec spec = {.prim = PRIM_SLICE, .inputs = &x, .input_count = 1, .dtype = x->dtype};
    spec_shape(&spec, x->rank, size);
    spec_dims(&spec, "shape", size, x->rank);
    spec_dims(&spec, "start", start, x->rank);
    spec_ints(&spec, "step", steps, x->rank);
    return movement(l, &spec);
}

Value *slice_axis(Lowering *l, Value *x, int axis, const Dim *start, const Dim *size) {
    if (!present(l, &x, 1)) return NULL;
    const Dim *starts[MAX_RANK], *sizes[MAX_RANK];
    for (int i = 0; i < x->rank; i++) {
        starts[i] = i == axis ? start : zero(l);
        sizes[i] = i == axis ? size : x->dims[i];
    }
    return slice(l, x, starts, sizes, NULL);
}

Value *pad(Lowering *l, Value *x, const Dim *const *before, const Dim *const *after, Value *fill) {
    Value *inputs[] = {x, fill};
    if (!present(l, inputs, 2)) return NULL;
    if (fill->dtype != x->dtype) {
        invalid(l, "the fill value is %s, the data %s", dtype_onnx_name(fill->dtype), dtype_onnx_name(x->dtype));
        return NULL;
    }
    inputs[1] = fill = reshape(l, fill, NULL, 0);
    NodeSpec spec = {.prim = PRIM_PAD, .inputs = inputs, .input_count = 2, .dtype = x->dtype, .rank = x->rank};
    bool none = true;
    for (int i = 0; i < x->rank; i++) {
        spec.dims[i] = dim_add(l->dims, dim_add(l->dims, before[i], x->dims[i]), after[i]);
        none &= dim_equals(before[i], 0) && dim_equals(after[i], 0);
    }
    if (none || !fill) return fill ? x : NULL;
    spec_dims(&spec, "before", before, x->rank);
    spec_dims(&spec, "after", after, x->rank);
    return movement(l, &spec);
}

/* The dims that all parts share, a known size before a symbolic one; those of `axis` are added up. */
static bool concat_dims(Lowering *l, Value *const *parts, int count, int axis, const Dim **dims) {
    const Value *first = parts[0];
    for (int i = 0; i < first->rank; i++) dims[i] = first->dims[i];
    for (int p = 1; p < count; p++) {
        bool fits = parts[p]->rank == first->rank && parts[p]->dtype == first->dtype;
        for (int i = 0; fits && i < first->rank; i++) {
            const Dim *size = parts[p]->dims[i];
            if (i == axis)
                dims[i] = dim_add(l->dims, dims[i], size);
            else if (!dim_is_const(dims[i], NULL) && dim_is_const(size, NULL))
                dims[i] = size;
            else
                fits = dims[i] == size || !dim_is_const(size, NULL);
        }
        if (fits) continue;
        const char *text = shape_text(l, first->dims, first->rank);
        invalid(l, "%s%s and %s%s cannot be joined along axis %d", dtype_name(first->dtype), text,
                dtype_name(parts[p]->dtype), shape_text(l, parts[p]->dims, parts[p]->rank), axis);
        return false;
    }
    return true;
}

bool is_range(const Node *slice, int *out_axis, int64_t *out_start) {
    int count, found = 0;
    const Value *x = slice->inputs[0], *y = slice->outputs[0];
    const int64_t *step = attr_ints(slice, "step", &count);
    const Dim *const *start = attr_dims(slice, "start", &count);
    for (int i = 0; i < x->rank; i++) {
        if (step && step[i] != 1) return false;
        if (x->dims[i] == y->dims[i]) continue;
        found++;
        *out_axis = i;
    }
    return found == 1 && dim_is_const(start[*out_axis], out_start);
}

/* -1 or 1 for each of the two halves, which lie along `axis` of as many axes as x has, and one more. */
static Value *signs_of(Lowering *l, const Value *x, int axis, const bool negative[2]) {
    const Dim *dims[MAX_RANK];
    Value *both[2];
    for (int i = 0; i < 2; i++) both[i] = reshape(l, like(l, x, negative[i] ? -1 : 1), (const Dim *const[]){one(l)}, 1);
    if (l->error) return NULL;
    for (int i = 0; i <= x->rank; i++) dims[i] = i == axis ? dim_const(l->dims, 2) : one(l);
    return reshape(l, concat(l, both, 2, 0), dims, x->rank + 1);
}

Value *turn_halves(Lowering *l, Value *x, int axis, const Dim *half, const bool negative[2]) {
    int64_t steps[MAX_RANK];
    const Dim *dims[MAX_RANK], *start[MAX_RANK];
    if (!present(l, &x, 1) || !rank_is_supported(l, x->rank + 1)) return NULL;
    for (int i = 0; i <= x->rank; i++) {
        dims[i] = x->dims[i > axis ? i - 1 : i];
        start[i] = dim_const(l->dims, i == axis);
        steps[i] = i == axis ? -1 : 1;
    }
    dims[axis] = dim_const(l->dims, 2);
    dims[axis + 1] = half;
    Value *turned = slice(l, reshape(l, x, dims, x->rank + 1), start, dims, steps);
    return negative[0] || negative[1] ? mul(l, turned, signs_of(l, x, axis, negative)) : turned;
}

/* A range of a value along an axis and where it begins. */
static Value *range_of(const Value *part, int axis, int64_t *out_start) {
    int of;
    bool is = is_made_by(part, PRIM_SLICE) && is_range(part->producer, &of, out_start) && of == axis;
    return is ? part->producer->inputs[0] : NULL;
}

/* A half of a value along an axis, or the negative of one: that value, whether it is the second half, and the sign. NULL: it is
 * no such. */
static Value *half_of(const Value *part, int axis, bool *out_second, bool *out_negative) {
    int64_t half, whole, start;
    *out_negative = is_made_by(part, PRIM_NEG) && dtype_is_float(part->dtype);
    const Value *slice = *out_negative ? part->producer->inputs[0] : part;
    Value *x = range_of(slice, axis, &start);
    if (!x || !dim_is_const(slice->dims[axis], &half) || !dim_is_const(x->dims[axis], &whole) || whole != 2 * half ||
        (start != 0 && start != half))
        return NULL;
    *out_second = start != 0;
    return x;
}

/* The second half of a value before its first, or their negatives, as angles are turned by: a region can read that where it
 * computes, and needs no joined copy. NULL: the parts are others. */
static Value *turned_halves(Lowering *l, Value *const *parts, int axis) {
    bool second[2], negative[2];
    Value *x = half_of(parts[0], axis, &second[0], &negative[0]);
    if (!x || x->rank == MAX_RANK || half_of(parts[1], axis, &second[1], &negative[1]) != x || !second[0] || second[1])
        return NULL;
    Value *turned = turn_halves(l, x, axis, parts[0]->dims[axis], negative);
    return reshape(l, turned, (const Dim *const *)x->dims, x->rank);
}

/* Ranges of one value that follow each other are one range, often all of it: what a split has parted is not copied to be joined. NULL: the
 * two are others. */
static Value *joined_ranges(Lowering *l, const Value *a, const Value *b, int axis) {
    int64_t first, second, size;
    Value *x = range_of(a, axis, &first);
    if (!x || range_of(b, axis, &second) != x || !dim_is_const(a->dims[axis], &size) || second - first != size)
        return NULL;
    return slice_axis(l, x, axis, dim_const(l->dims, first), dim_add(l->dims, a->dims[axis], b->dims[axis]));
}

Value *concat(Lowering *l, Value *const *parts, int count, int axis) {
    if (count < 1 && !l->error) invalid(l, "nothing to join");
    if (l->error || !present(l, parts, count)) return NULL;
    NodeSpec spec = {.prim = PRIM_CONCAT, .dtype = parts[0]->dtype, .rank = parts[0]->rank};
    if (axis < 0 || axis >= spec.rank) {
        invalid(l, "axis %d is out of range for %d axes", axis, spec.rank);
        return NULL;
    }
    if (!concat_dims(l, parts, count, axis, spec.dims)) return NULL;
    Value **kept = ARENA_ARRAY(l->arena, Value *, count);
    int filled = 0;
    for (int i = 0; i < count; i++) {
        if (dim_equals(parts[i]->dims[axis], 0) && (filled || i + 1 < count)) continue; /* adds nothing */
        const Dim *dims[MAX_RANK]; /* sizes that must agree are checked at run time where they are not known to */
        for (int k = 0; k < spec.rank; k++) dims[k] = k == axis ? parts[i]->dims[k] : spec.dims[k];
        Value *part = align_to(l, parts[i], dims, spec.rank);
        Value *longer = part && filled ? joined_ranges(l, kept[filled - 1], part, axis) : NULL;
        if (longer)
            kept[filled - 1] = longer;
        else
            kept[filled++] = part;
    }
    if (l->error) return NULL;
    if (filled == 1) return kept[0];
    Value *turned = filled == 2 ? turned_halves(l, kept, axis) : NULL;
    if (turned || l->error) return turned;
    spec.inputs = kept;
    spec.input_count = filled;
    spec_int(&spec, "axis", axis);
    return emit(l, &spec);
}

/* --- indexing ----------------------------------------------------------------------------------------------------- */

static bool indices_fit(Lowering *l, const Value *indices) {
    if (indices->dtype != DT_I64 && indices->dtype != DT_I32)
        invalid(l, "indices must be int32 or int64, \"%s\" is %s", indices->name, dtype_onnx_name(indices->dtype));
    return !l->error;
}

static bool axis_fits(Lowering *l, int axis, int rank) {
    if (axis < 0 || axis >= rank) invalid(l, "axis %d is out of range for %d axes", axis, rank);
    return !l->error;
}

/* One known index of an axis of known size is a slice. */
static Value *gather_one(Lowering *l, Value *data, const Value *indices, int axis, const NodeSpec *spec) {
    int64_t length, at;
    if (!indices->content || indices->rank > 1 || (indices->rank == 1 && !dim_equals(indices->dims[0], 1)) ||
        !dim_is_const(indices->content[0], &at) || !dim_is_const(data->dims[axis], &length) || at < -length ||
        at >= length)
        return NULL;
    Value *part = slice_axis(l, data, axis, dim_const(l->dims, at < 0 ? at + length : at), one(l));
    return part ? reshape(l, part, spec->dims, spec->rank) : NULL;
}

/* Steps from one index to the next along each axis of the indices, where they are a grid from 0 on, below `length`. */
static bool is_grid(const Tensor *indices, int64_t length, int64_t *steps) {
    int64_t inner = tensor_count(indices), value;
    for (int i = 0; i < indices->rank; i++) {
        inner /= indices->dims[i];
        steps[i] = indices->dims[i] > 1 ? dtype_load_int(indices->dtype, indices->data, inner) : 0;
        if (steps[i] < 0 || steps[i] >= length) return false;
    }
    for (int64_t n = 0; n < tensor_count(indices); n++) {
        value = dtype_load_int(indices->dtype, indices->data, n);
        if (value < 0 || value >= length) return false;
        for (int64_t i = indices->rank - 1, rest = n; i >= 0; rest /= indices->dims[i--])
            value -= rest % indices->dims[i] * steps[i];
        if (value) return false;
    }
    return true;
}

/* Known indices of which each of the axis is there once, on a grid, are an order of parts of the axis: so exporters write the columns of
 * an image that is cut into blocks. */
static Value *gather_all(Lowering *l, Value *data, const Value *indices, int axis, const NodeSpec *spec) {
    const Tensor *t = indices->constant;
    int64_t steps[MAX_RANK], length, step = 1;
    if (!t || !dim_is_const(data->dims[axis], &length) || tensor_count(t) != length || length < 1 ||
        length > INT32_MAX || !is_grid(t, length, steps))
        return NULL;
    const Dim *dims[MAX_RANK];
    int order[MAX_RANK], perm[MAX_RANK], parts = 0, rank = 0; /* order: the indices' axes from the finest step on */
    for (int next = 0; next < t->rank && step < length; parts++) {
        for (next = 0; next < t->rank && (t->dims[next] == 1 || steps[next] != step);) next++;
        if (next == t->rank) return NULL;
        order[parts] = next;
        step *= t->dims[next];
    }
    if (step != length) return NULL;
    for (int i = 0; i < axis; i++, rank++) dims[rank] = data->dims[i], perm[rank] = rank;
    for (int i = parts - 1; i >= 0; i--) dims[rank++] = dim_const(l->dims, t->dims[order[i]]);
    for (int i = 0, at = axis; i < t->rank; i++)
        for (int k = 0; k < parts; k++)
            if (order[k] == i) perm[at++] = axis + parts - 1 - k;
    for (int i = axis + 1; i < data->rank; i++, rank++) dims[rank] = data->dims[i], perm[rank] = rank;
    return reshape(l, permute(l, reshape(l, data, dims, rank), perm), spec->dims, spec->rank);
}

Value *gather(Lowering *l, Value *data, Value *indices, int axis) {
    return gather_at_labels(l, data, indices, axis, NULL);
}

Value *gather_at_labels(Lowering *l, Value *data, Value *indices, int axis, const char *loss) {
    Value *inputs[] = {data, indices};
    if (!present(l, inputs, 2) || !indices_fit(l, indices) || !axis_fits(l, axis, data->rank) ||
        !rank_is_supported(l, data->rank + indices->rank - 1))
        return NULL;
    NodeSpec spec = {.prim = PRIM_GATHER, .inputs = inputs, .input_count = 2, .dtype = data->dtype};
    for (int i = 0; i < axis; i++) spec.dims[spec.rank++] = data->dims[i];
    for (int i = 0; i < indices->rank; i++) spec.dims[spec.rank++] = indices->dims[i];
    for (int i = axis + 1; i < data->rank; i++) spec.dims[spec.rank++] = data->dims[i];
    Value *part = gather_one(l, data, indices, axis, &spec);
    if (!part && !loss && !l->error) part = gather_all(l, data, indices, axis, &spec);
    if (part || l->error) return part;
    spec_int(&spec, "axis", axis);
    if (loss) spec_string(&spec, "labels", loss);
    return emit(l, &spec);
}

Value *gather_elements(Lowering *l, Value *data, Value *indices, int axis) {
    return gather_elements_at_labels(l, data, indices, axis, NULL);
}

Value *gather_elements_at_labels(Lowering *l, Value *data, Value *indices, int axis, const char *loss) {
    Value *inputs[] = {data, indices};
    if (!present(l, inputs, 2) || !indices_fit(l, indices) || !axis_fits(l, axis, data->rank)) return NULL;
    if (indices->rank != data->rank) {
        invalid(l, "data has %d axes, the indices %d", data->rank, indices->rank);
        return NULL;
    }
    NodeSpec spec = {.prim = PRIM_GATHER_ELEMENTS, .inputs = inputs, .input_count = 2, .dtype = data->dtype};
    spec_shape(&spec, indices->rank, indices->dims);
    spec_int(&spec, "axis", axis);
    if (loss) spec_string(&spec, "labels", loss);
    return emit(l, &spec);
}

static Value *scatter(Lowering *l, Prim prim, Value *const *inputs, int axis, const char *reduction) {
    if (!present(l, inputs, 3) || !indices_fit(l, inputs[1])) return NULL;
    if (inputs[0]->dtype != inputs[2]->dtype) {
        invalid(l, "data is %s, the updates are %s", dtype_onnx_name(inputs[0]->dtype),
                dtype_onnx_name(inputs[2]->dtype));
        return NULL;
    }
    NodeSpec spec = {.prim = prim, .inputs = inputs, .input_count = 3, .dtype = inputs[0]->dtype};
    spec_shape(&spec, inputs[0]->rank, inputs[0]->dims);
    if (prim == PRIM_SCATTER_ELEMENTS) spec_int(&spec, "axis", axis);
    spec_string(&spec, "reduction", reduction ? reduction : "none");
    return emit(l, &spec);
}

Value *scatter_elements(Lowering *l, Value *data, Value *indices, Value *updates, int axis, const char *reduction) {
    Value *inputs[] = {data, indices, updates};
    if (!present(l, inputs, 3) || !axis_fits(l, axis, data->rank)) return NULL;
    if (indices->rank != data->rank || updates->rank != data->rank) {
        invalid(l, "data, indices and updates have %d, %d and %d axes", data->rank, indices->rank, updates->rank);
        return NULL;
    }
    return scatter(l, PRIM_SCATTER_ELEMENTS, inputs, axis, reduction);
}

Value *scatter_nd(Lowering *l, Value *data, Value *indices, Value *updates, const char *reduction) {
    Value *inputs[] = {data, indices, updates};
    if (!present(l, inputs, 3)) return NULL;
    int64_t depth;
    if (indices->rank < 1 || !dim_is_const(indices->dims[indices->rank - 1], &depth)) {
        unsupported(l, "the length of an index of \"%s\" is not known", indices->name);
        return NULL;
    }
    if (depth > data->rank || updates->rank != indices->rank - 1 + data->rank - (int)depth) {
        invalid(l, "indices %s do not fit data %s and updates of %d axes", shape_text(l, indices->dims, indices->rank),
                shape_text(l, data->dims, data->rank), updates->rank);
        return NULL;
    }
    return scatter(l, PRIM_SCATTER_ND, inputs, 0, reduction);
}
