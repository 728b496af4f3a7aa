/* What host kernels share: sizes and inputs checked at run time. */
#include "ops/sizes.h"

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
