/* SPDX-License-Identifier: Apache-2.0 */
/* What operators share about sizes: inputs that give them while lowering, and checks at run time. */
#include "lowering/sizes.h"

Value *with_length(Lowering *l, Value *vector, int count) {
    if (!vector || vector->rank != 1 || dim_is_const(vector->dims[0], NULL)) return vector;
    const Dim *length = size_const(l, count);
    return reshape(l, vector, &length, 1);
}

const Dim *size_from(Lowering *l, Value *number, const char *hint) {
    int count = 0;
    if (!number) return NULL;
    const Dim *const *sizes = sizes_of(l, with_length(l, cast(l, number, DT_I64), 1), hint, &count);
    if (!sizes) return NULL;
    if (count == 1) return sizes[0];
    invalid(l, "%s must be one number, but has %d elements", hint, count);
    return NULL;
}

int64_t *hinted_sizes(const Graph *graph, const Policy *policy, Arena *arena) {
    enum { USUAL = 64 };
    int count = dim_symbol_count(graph->dims);
    int64_t *sizes = ARENA_ARRAY(arena, int64_t, count + 1);
    const ShapeHint *hint = policy->shapes.hint_count ? &policy->shapes.hints[0] : NULL;
    for (int i = 0; i < count; i++) {
        sizes[i] = USUAL;
        for (int h = 0; hint && h < hint->count; h++)
            if (strcmp(hint->symbols[h], dim_symbol_name(graph->dims, i)) == 0) sizes[i] = hint->sizes[h];
    }
    return sizes;
}

Status host_sizes(const HostCall *call, const char *name, int count, int64_t *out) {
    int given;
    const Dim *const *dims = attr_dims(call->node, name, &given);
    if (given != count) return host_error(call, "has %d sizes in %s where %d are needed", given, name, count);
    for (int i = 0; i < count; i++) {
        out[i] = dim_eval(dims[i], call->symbols);
        if (out[i] == UNBOUND_DIM) return host_error(call, "the size %s[%d] is not known or overflows", name, i);
    }
    return NULL;
}

Status host_tensor(const HostCall *call, int index, DType dtype, const Tensor **out_tensor) {
    const Tensor *tensor = host_input(call, index);
    if (!tensor) return host_error(call, "lacks the tensor of input %d", index);
    if (dtype != DT_NONE && tensor->dtype != dtype)
        return host_error(call, "input %d is of type %s instead of %s", index, dtype_onnx_name(tensor->dtype),
                          dtype_onnx_name(dtype));
    *out_tensor = tensor;
    return NULL;
}

const Tensor *host_widened(HostCall *call, const Tensor *x) {
    if (x->dtype != DT_F16 && x->dtype != DT_BF16) return x;
    Tensor *wide = tensor_new(call->arena, DT_F32, x->rank, x->dims);
    const uint16_t *from = x->data;
    float *to = wide->data;
    for (int64_t i = 0, count = tensor_count(x); i < count; i++)
        to[i] = x->dtype == DT_F16 ? f16_to_f32(from[i]) : bf16_to_f32(from[i]);
    return wide;
}

void host_narrow(const Tensor *wide, Tensor *y) {
    const float *from = wide->data;
    uint16_t *to = y->data;
    for (int64_t i = 0, count = tensor_count(y); i < count; i++)
        to[i] = y->dtype == DT_F16 ? f32_to_f16(from[i]) : f32_to_bf16(from[i]);
}
