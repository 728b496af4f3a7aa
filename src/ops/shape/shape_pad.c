/* SPDX-License-Identifier: Apache-2.0 */
/* Pad: constants through the primitive, the other modes as a gather of computed indices along each padded axis. */
#include "ops/shape/shape.h"

#include "lowering/sizes.h"

/* Inputs: rank as the length of input 0, pads, axes (or NULL). Result [4][rank]: how much is added before, cut off
 * before, added after, cut off after each axis; all >= 0. */
Status pad_sizes_kernel(HostCall *call) {
    const Tensor *sizes, *pads, *axes = host_input(call, 2);
    Tensor *result;
    TRY(host_tensor(call, 0, DT_I64, &sizes));
    TRY(host_tensor(call, 1, DT_I64, &pads));
    int64_t rank = tensor_count(sizes), count = axes ? tensor_count(axes) : rank;
    TRY(host_output(call, 0, DT_I64, 1, (const int64_t[]){4 * rank}, &result));
    if (!result) return NULL;
    if (tensor_count(pads) != 2 * count)
        return host_error(call, "%lld pads for %lld axes", (long long)tensor_count(pads), (long long)count);
    int64_t *values = result->data;
    memset(values, 0, (size_t)(4 * rank) * sizeof *values);
    for (int64_t i = 0; i < count; i++) {
        int64_t axis = axes ? dtype_load_int(axes->dtype, axes->data, i) : i;
        if (axis < -rank || axis >= rank)
            return host_error(call, "axis %lld is out of range for %lld axes", (long long)axis, (long long)rank);
        if (axis < 0) axis += rank;
        for (int side = 0; side < 2; side++) {
            int64_t amount = ((const int64_t *)pads->data)[side * count + i];
            if (amount == INT64_MIN) return host_error(call, "pads overflow");
            values[(2 * side) * rank + axis] = amount > 0 ? amount : 0;
            values[(2 * side + 1) * rank + axis] = amount < 0 ? -amount : 0;
        }
    }
    return NULL;
}

typedef struct Pads {
    const Dim *before[MAX_RANK], *after[MAX_RANK]; /* negative ones crop */
} Pads;

static bool pads_at_run_time(Lowering *l, const Node *n, Value *x, Value *vector, Value *axes, Pads *pads) {
    Value *inputs[] = {dims_value(l, (const Dim *const *)x->dims, x->rank), cast(l, vector, DT_I64), axes};
    Node *host = host_node(l, n, pad_sizes_kernel, inputs, axes ? 3 : 2);
    Value *result =
        host ? host_result(l, host, DT_I64, 1, (const Dim *const[]){dim_const(l->dims, 4 * x->rank)}) : NULL;
    const Dim *const *bound = result ? bind_sizes(l, result, "pad", 4 * x->rank) : NULL;
    for (int i = 0; bound && i < x->rank; i++) {
        pads->before[i] = dim_sub(l->dims, bound[i], bound[x->rank + i]);
        pads->after[i] = dim_sub(l->dims, bound[2 * x->rank + i], bound[3 * x->rank + i]);
    }
    return bound != NULL;
}

/* com.microsoft's is as the standard's of opset 11, but for the pads, which may be a row. */
static bool is_contributed(const Node *n) { return strcmp(n->domain, "com.microsoft") == 0; }

/* The vector of pads: an attribute ("paddings" in opset 1) or input 1. */
static Value *pads_vector(Lowering *l, const Node *n) {
    int count;
    const int64_t *values = attr_ints(n, n->opset < 2 ? "paddings" : "pads", &count);
    if (values) return vector_i64(l, values, count);
    Value *pads = in(l, n, 1);
    return pads && pads->rank == 2 && is_contributed(n) ? flatten_to(l, pads, 0, 2) : pads;
}

static bool read_pads(Lowering *l, const Node *n, Value *x, Pads *pads) {
    Value *vector = pads_vector(l, n), *axes = n->opset >= 18 ? optional_in(l, n, 3) : NULL;
    const int64_t *axis_values = NULL;
    int axis_count = x->rank, count;
    if (!present(l, &vector, 1)) return false;
    for (int i = 0; i < x->rank; i++) pads->before[i] = pads->after[i] = dim_const(l->dims, 0);
    bool known_axes = !axes || constant_ints(l, axes, &axis_values, &axis_count);
    if (!known_axes || (!vector->content && !vector->constant)) return pads_at_run_time(l, n, x, vector, axes, pads);
    const Dim *const *sizes = sizes_of(l, vector, "pad", &count);
    if (sizes && count != 2 * axis_count) invalid(l, "%d pads for %d axes", count, axis_count);
    for (int i = 0; i < axis_count && !l->error; i++) {
        int axis = axis_of(l, axes ? axis_values[i] : i, x->rank);
        if (l->error) break;
        pads->before[axis] = sizes[i];
        pads->after[axis] = sizes[axis_count + i];
    }
    return !l->error;
}

/* Which element of an axis stands at each place of the padded one. x mod 0 is 0, so an axis of size 1 reflects onto
 * itself. */
static Value *source_indices(Lowering *l, const char *mode, const Dim *length, const Dim *before, const Dim *size) {
    Value *at = sub(l, iota(l, &size, 1, 0, DT_I64), dim_scalar(l, before)), *count = dim_scalar(l, length);
    Value *one = scalar_int(l, DT_I64, 1), *zero = scalar_int(l, DT_I64, 0);
    if (strcmp(mode, "wrap") == 0) return binary(l, PRIM_MOD, at, count);
    Value *last = sub(l, count, one);
    if (strcmp(mode, "edge") == 0) return minimum(l, maximum(l, at, zero), last);
    Value *period = mul(l, last, scalar_int(l, DT_I64, 2)), *phase = binary(l, PRIM_MOD, at, period);
    return minimum(l, phase, sub(l, period, phase));
}

static Value *pad_by_index(Lowering *l, Value *x, const Pads *pads, const char *mode) {
    Value *y = x;
    for (int i = 0; y && i < x->rank; i++) {
        const Dim *before = pads->before[i], *after = pads->after[i];
        if (dim_equals(before, 0) && dim_equals(after, 0)) continue;
        const Dim *size = dim_add(l->dims, dim_add(l->dims, before, x->dims[i]), after);
        if (dim_equals(x->dims[i], 0) && !dim_equals(size, 0)) {
            invalid(l, "mode %s has nothing to repeat along axis %d", mode, i);
            return NULL;
        }
        y = gather(l, y, source_indices(l, mode, x->dims[i], before, size), i);
    }
    return y;
}

static Value *fill_value(Lowering *l, const Node *n, const Value *x) {
    if (n->opset < 11 && !is_contributed(n)) return like(l, x, attr_float(n, "value", 0));
    Value *given = optional_in(l, n, 2);
    if (given) return reshape(l, given, NULL, 0);
    if (x->dtype == DT_STRING) return constant(l, tensor_new(l->arena, DT_STRING, 0, NULL));
    return like(l, x, 0);
}

Status lower_pad(Lowering *l, const Node *n) {
    Value *x = in(l, n, 0);
    const char *mode = attr_string(n, "mode", "constant");
    Pads pads;
    if (!present(l, &x, 1) || !read_pads(l, n, x, &pads)) return l->error;
    if (strcmp(mode, "constant") == 0) return out(l, n, 0, pad(l, x, pads.before, pads.after, fill_value(l, n, x)));
    if (strcmp(mode, "reflect") != 0 && strcmp(mode, "edge") != 0 && strcmp(mode, "wrap") != 0)
        return invalid(l, "mode \"%s\" is unknown", mode);
    return out(l, n, 0, pad_by_index(l, x, &pads, mode));
}
