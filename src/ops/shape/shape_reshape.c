/* SPDX-License-Identifier: Apache-2.0 */
/* Reshape, Squeeze and Unsqueeze: the result's sizes from a vector, known while lowering or computed by a host kernel
 * at run time. */
#include "ops/shape/shape.h"

#include "lowering/build_internal.h"
#include "lowering/sizes.h"

const Dim *const *sizes_at_run_time(Lowering *l, const Node *n, HostFn kernel, Value *const *inputs, int input_count,
                                    const char *hint, int count) {
    Node *host = host_node(l, n, kernel, inputs, input_count);
    if (!host) return NULL;
    node_set_int(host, "result_count", count);
    Value *sizes = host_result(l, host, DT_I64, 1, (const Dim *const[]){dim_const(l->dims, count)});
    return sizes ? bind_sizes(l, sizes, hint, count) : NULL;
}

/* The kernels' frame: the sizes of x, the vector, and room for the result. */
typedef struct SizesCall {
    const int64_t *sizes, *vector;
    int rank, count;
    int64_t *result;
    int result_count;
} SizesCall;

static Status open_sizes(HostCall *call, SizesCall *s) {
    const Tensor *sizes, *vector;
    Tensor *result;
    TRY(host_tensor(call, 0, DT_I64, &sizes));
    TRY(host_tensor(call, 1, DT_I64, &vector));
    int64_t count = attr_int(call->node, "result_count", 0);
    TRY(host_output(call, 0, DT_I64, 1, &count, &result));
    if (!result) return host_error(call, "its sizes are not asked for");
    *s = (SizesCall){sizes->data,  vector->data, (int)tensor_count(sizes), (int)tensor_count(vector),
                     result->data, (int)count};
    return NULL;
}

/* --- Reshape ------------------------------------------------------------------------------------------------------ */

static Status infer_size(HostCall *call, const SizesCall *s, int inferred, bool zero_copies) {
    int64_t elements = 1, others = 1;
    bool overflow = false;
    for (int i = 0; i < s->rank; i++) overflow |= __builtin_mul_overflow(elements, s->sizes[i], &elements);
    for (int i = 0; i < s->count; i++)
        if (i != inferred) overflow |= __builtin_mul_overflow(others, s->result[i], &others);
    if (overflow) return host_error(call, "the number of elements overflows");
    if (inferred >= 0) {
        if (others == 0 ? elements != 0 || !zero_copies : elements % others != 0)
            return host_error(call, "%lld elements do not divide into rows of %lld", (long long)elements,
                              (long long)others);
        s->result[inferred] = others ? elements / others : 0;
    } else if (elements != others) {
        return host_error(call, "%lld elements do not fit a shape of %lld", (long long)elements, (long long)others);
    }
    return NULL;
}

/* Inputs: sizes of the data, the shape (-1: the rest, 0: the data's own size unless allowzero). */
Status reshape_sizes_kernel(HostCall *call) {
    SizesCall s;
    TRY(open_sizes(call, &s));
    bool zero_copies = !attr_int(call->node, "allowzero", 0);
    int inferred = -1;
    for (int i = 0; i < s.count; i++) {
        int64_t size = s.vector[i];
        if (size == 0 && zero_copies) {
            if (i >= s.rank) return host_error(call, "size 0 at axis %d has no axis to copy", i);
            size = s.sizes[i];
        } else if (size == -1) {
            if (inferred >= 0) return host_error(call, "-1 stands at axes %d and %d", inferred, i);
            inferred = i;
        } else if (size < -1) {
            return host_error(call, "size %lld at axis %d", (long long)size, i);
        }
        s.result[i] = size;
    }
    return infer_size(call, &s, inferred, zero_copies);
}

/* The rest of the elements by the other sizes. */
static const Dim *remaining(Lowering *l, const Value *x, const Dim *const *sizes, int count, int inferred) {
    const Dim *others = dim_const(l->dims, 1), *quotient;
    for (int i = 0; i < count; i++)
        if (i != inferred) others = dim_mul(l->dims, others, sizes[i]);
    const Dim *elements = value_elements(l->graph, x);
    if (dim_equals(others, 0)) {
        if (!dim_equals(elements, 0)) invalid(l, "-1 beside a size 0 has no value");
        return dim_const(l->dims, 0);
    }
    if (dim_divides(l->dims, elements, others, &quotient)) return quotient;
    if (dim_is_const(elements, NULL) && dim_is_const(others, NULL))
        invalid(l, "%s does not divide into rows of the other sizes",
                shape_text(l, (const Dim *const *)x->dims, x->rank));
    return dim_div(l->dims, elements, others);
}

static Value *reshape_known(Lowering *l, Value *x, const Dim *const *shape, int count, bool zero_copies) {
    const Dim **sizes = size_array(l, count);
    int inferred = -1;
    int64_t number;
    for (int i = 0; i < count; i++) {
        sizes[i] = shape[i];
        if (!dim_is_const(shape[i], &number)) continue;
        if (number == 0 && zero_copies) {
            if (i >= x->rank)
                invalid(l, "size 0 at axis %d has no axis to copy", i);
            else
                sizes[i] = x->dims[i];
        } else if (number == -1) {
            if (inferred >= 0) invalid(l, "-1 stands at axes %d and %d", inferred, i);
            inferred = i;
        } else if (number < -1) {
            invalid(l, "size %lld at axis %d", (long long)number, i);
        }
    }
    if (l->error) return NULL;
    if (inferred >= 0) sizes[inferred] = remaining(l, x, sizes, count, inferred);
    return reshape(l, x, sizes, count);
}

/* The kernel resolves -1 and 0; sizes that are known keep their form. */
static Value *reshape_at_run_time(Lowering *l, const Node *n, Value *x, Value *shape, int count, bool zero_copies) {
    Value *inputs[] = {dims_value(l, (const Dim *const *)x->dims, x->rank), cast(l, shape, DT_I64)};
    const Dim *const *bound = sizes_at_run_time(l, n, reshape_sizes_kernel, inputs, 2, "size", count);
    const Dim **known = known_elements(l, shape, count);
    if (!bound) return NULL;
    for (int i = 0; i < count; i++) {
        if (known[i] && dim_equals(known[i], 0) && zero_copies) known[i] = i < x->rank ? x->dims[i] : NULL;
        if (!known[i] || !size_is_natural(l, known[i])) known[i] = bound[i];
    }
    return reshape(l, x, known, count);
}

Status lower_reshape(Lowering *l, const Node *n) {
    Value *x = in(l, n, 0);
    if (!x) return l->error;
    int count;
    bool zero_copies = !attr_int(n, "allowzero", 0);
    const int64_t *values = attr_ints(n, "shape", &count);
    Value *shape = n->opset < 5 && values ? vector_i64(l, values, count) : in(l, n, 1);
    if (!present(l, (Value *const[]){x, shape}, 2)) return l->error;
    if (shape->content || shape->constant) {
        const Dim *const *sizes = sizes_of(l, shape, "size", &count);
        return out(l, n, 0, sizes ? reshape_known(l, x, sizes, count, zero_copies) : NULL);
    }
    int64_t length;
    if (shape->rank != 1 || !dim_is_const(shape->dims[0], &length) || length > MAX_RANK)
        return unsupported(l, "the number of axes of the result (length of \"%s\") is not known", shape->name);
    return out(l, n, 0, reshape_at_run_time(l, n, x, shape, (int)length, zero_copies));
}

/* --- Squeeze and Unsqueeze --------------------------------------------------------------------------------------- */

static Status flag_axes(HostCall *call, const SizesCall *s, int rank, bool *flags) {
    for (int i = 0; i < rank; i++) flags[i] = false;
    for (int i = 0; i < s->count; i++) {
        int64_t axis = s->vector[i];
        if (axis < -rank || axis >= rank)
            return host_error(call, "axis %lld is out of range for %d axes", (long long)axis, rank);
        flags[axis < 0 ? axis + rank : axis] = true;
    }
    return NULL;
}

Status squeeze_sizes_kernel(HostCall *call) {
    SizesCall s;
    bool flags[MAX_RANK];
    TRY(open_sizes(call, &s));
    TRY(flag_axes(call, &s, s.rank, flags));
    int filled = 0;
    bool takes_ones = attr_int(call->node, "takes_ones", 0) != 0;
    for (int i = 0; i < s.rank; i++) {
        if (takes_ones && s.sizes[i] == 1)
            return host_error(call, "a size that the model leaves open is 1: Squeeze without axes takes it away, and "
                                    "numbers of axes are fixed when a model is opened; give the size then, or axes");
        if (flags[i] && s.sizes[i] != 1) return host_error(call, "axis %d has size %lld", i, (long long)s.sizes[i]);
        if (!flags[i] && filled < s.result_count) s.result[filled++] = s.sizes[i];
    }
    return filled == s.result_count && s.rank - s.count == filled ? NULL : host_error(call, "an axis is named twice");
}

Status unsqueeze_sizes_kernel(HostCall *call) {
    SizesCall s;
    bool flags[MAX_RANK];
    TRY(open_sizes(call, &s));
    TRY(flag_axes(call, &s, s.result_count, flags));
    int from = 0;
    for (int i = 0; i < s.result_count; i++) {
        if (!flags[i] && from == s.rank) return host_error(call, "an axis is named twice");
        s.result[i] = flags[i] ? 1 : s.sizes[from++];
    }
    return NULL;
}

/* The axes input, when its elements are known only at run time; *out_count: how many there are. */
static Value *axes_at_run_time(Lowering *l, const Node *n, int *out_count) {
    Value *axes = node_attr(n, "axes") ? NULL : optional_in(l, n, 1);
    const int64_t *values;
    int64_t length = 1;
    if (!axes || constant_ints(l, axes, &values, out_count)) return NULL;
    if (!present(l, &axes, 1)) return NULL;
    if (axes->rank > 1 || (axes->rank == 1 && !dim_is_const(axes->dims[0], &length)) || length > MAX_RANK) {
        unsupported(l, "the number of axes (\"%s\") is not known", axes->name);
        return NULL;
    }
    *out_count = (int)length;
    return axes;
}

static Value *reshape_by(Lowering *l, const Node *n, HostFn kernel, Value *x, Value *axes, int rank) {
    if (rank < 0 || rank > MAX_RANK) {
        invalid(l, "the axes do not fit %d axes", x->rank);
        return NULL;
    }
    Value *inputs[] = {dims_value(l, (const Dim *const *)x->dims, x->rank), cast(l, axes, DT_I64)};
    const Dim *const *sizes = sizes_at_run_time(l, n, kernel, inputs, 2, "size", rank);
    return sizes ? reshape(l, x, sizes, rank) : NULL;
}

/* x, whose open sizes are checked at run time: none may be 1. */
static Value *above_one(Lowering *l, const Node *n, Value *x) {
    const Dim *open[MAX_RANK], *sizes[MAX_RANK];
    int count = 0;
    for (int i = 0; x && i < x->rank; i++)
        if (!dim_is_const(x->dims[i], NULL)) open[count++] = x->dims[i];
    if (!x || !count) return x;
    Value *inputs[] = {dims_value(l, open, count), constant(l, tensor_new(l->arena, DT_I64, 1, (int64_t[]){0}))};
    Node *host = host_node(l, n, squeeze_sizes_kernel, inputs, 2);
    if (!host) return NULL;
    node_set_int(host, "result_count", count);
    node_set_int(host, "takes_ones", 1);
    Value *vector = host_result(l, host, DT_I64, 1, (const Dim *const[]){dim_const(l->dims, count)});
    const Dim *const *bound = vector ? bind_sizes(l, vector, "size", count) : NULL;
    if (!bound) return NULL;
    for (int i = 0, k = 0; i < x->rank; i++) sizes[i] = dim_is_const(x->dims[i], NULL) ? x->dims[i] : bound[k++];
    return reshape(l, x, sizes, x->rank);
}

Status lower_squeeze(Lowering *l, const Node *n) {
    Value *x = in(l, n, 0);
    if (!present(l, &x, 1)) return l->error;
    int count, filled = 0, all[MAX_RANK];
    Value *axes = axes_at_run_time(l, n, &count);
    if (l->error) return l->error;
    if (axes) return out(l, n, 0, reshape_by(l, n, squeeze_sizes_kernel, x, axes, x->rank - count));
    const int64_t *values = attr_or_input_ints(l, n, "axes", 1, &count);
    if (count >= 0) {
        int *sorted = axes_of(l, values, count, x->rank, false, &filled);
        return out(l, n, 0, sorted ? squeeze(l, x, sorted, filled) : NULL);
    }
    for (int i = 0; i < x->rank; i++) /* without axes: those of size 1 */
        if (dim_equals(x->dims[i], 1)) all[filled++] = i;
    return out(l, n, 0, above_one(l, n, squeeze(l, x, all, filled)));
}

Status lower_unsqueeze(Lowering *l, const Node *n) {
    Value *x = in(l, n, 0);
    if (!present(l, &x, 1)) return l->error;
    int count, filled;
    Value *axes = axes_at_run_time(l, n, &count);
    if (l->error) return l->error;
    if (axes) return out(l, n, 0, reshape_by(l, n, unsqueeze_sizes_kernel, x, axes, x->rank + count));
    const int64_t *values = attr_or_input_ints(l, n, "axes", 1, &count);
    if (count < 0) return l->error ? l->error : invalid(l, "the axes are missing");
    if (x->rank + count > MAX_RANK) return unsupported(l, "%d axes are more than %d", x->rank + count, MAX_RANK);
    int *sorted = axes_of(l, values, count, x->rank + count, false, &filled);
    if (sorted && filled != count) return invalid(l, "an axis is named twice");
    return out(l, n, 0, sorted ? unsqueeze(l, x, sorted, filled) : NULL);
}
