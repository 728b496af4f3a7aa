/* SPDX-License-Identifier: Apache-2.0 */
/* Values from and to DLPack 1.0 (dmlc.github.io/dlpack: type codes, device types, strides in elements, ownership by the
 * deleter). */
#include "runtime/api/session.h"

#include <stdlib.h>

enum { DL_CPU = 1, DL_CUDA = 2, DL_CUDA_HOST = 3 };

typedef struct TypeRow {
    DType dtype;
    uint8_t code, bits;
} TypeRow;

/* 4-bit and 2-bit types are packed there and take a byte here, so they are not exchanged. */
static const TypeRow types[] = {
    {DT_I8, 0, 8},        {DT_I16, 0, 16},        {DT_I32, 0, 32},    {DT_I64, 0, 64},        {DT_U8, 1, 8},
    {DT_U16, 1, 16},      {DT_U32, 1, 32},        {DT_U64, 1, 64},    {DT_F16, 2, 16},        {DT_F32, 2, 32},
    {DT_F64, 2, 64},      {DT_BF16, 4, 16},       {DT_C64, 5, 64},    {DT_C128, 5, 128},      {DT_BOOL, 6, 8},
    {DT_F8E4M3FN, 10, 8}, {DT_F8E4M3FNUZ, 11, 8}, {DT_F8E5M2, 12, 8}, {DT_F8E5M2FNUZ, 13, 8}, {DT_F8E8M0, 14, 8},
};
enum { TYPE_COUNT = sizeof types / sizeof *types };

/* --- from --------------------------------------------------------------------------------------------------------- */
static Status dtype_of(const OnnxfuseDlpack *d, DType *out_dtype) {
    for (int i = 0; i < TYPE_COUNT; i++)
        if (types[i].code == d->tensor.dtype.code && types[i].bits == d->tensor.dtype.bits &&
            d->tensor.dtype.lanes == 1) {
            *out_dtype = types[i].dtype;
            return NULL;
        }
    return status_error(STATUS_UNSUPPORTED, "a DLPack tensor of type code %d, %d bits and %d lanes",
                        d->tensor.dtype.code, d->tensor.dtype.bits, d->tensor.dtype.lanes);
}

static bool is_dense(const OnnxfuseDlpack *d, int64_t count) {
    int64_t expected = 1;
    for (int i = d->tensor.rank - 1; d->tensor.strides && count > 0 && i >= 0; i--) {
        if (d->tensor.shape[i] != 1 && d->tensor.strides[i] != expected) return false;
        expected *= d->tensor.shape[i];
    }
    return true;
}

static void copy_strided(const OnnxfuseDlpack *d, const char *from, size_t size, int64_t count, char *to) {
    int64_t at[MAX_RANK] = {0};
    if (is_dense(d, count)) {
        memcpy(to, from, size * (size_t)count);
        return;
    }
    for (int64_t i = 0; i < count; i++, to += size) {
        memcpy(to, from, size);
        for (int k = d->tensor.rank - 1; k >= 0; k--) {
            from += d->tensor.strides[k] * (int64_t)size;
            if (++at[k] < d->tensor.shape[k]) break;
            from -= at[k] * d->tensor.strides[k] * (int64_t)size;
            at[k] = 0;
        }
    }
}

static Status make_value(OnnxfuseDlpack *d, DType dtype, OnnxfuseValue **out_value) {
    int rank = d->tensor.rank;
    int64_t count;
    size_t bytes;
    TRY(tensor_size_of(dtype, rank, d->tensor.shape, &count, &bytes));
    if (!d->tensor.data && bytes)
        return status_error(STATUS_INVALID, "a DLPack tensor of %zu bytes without data", bytes);
    char *data = bytes ? (char *)d->tensor.data + d->tensor.byte_offset : NULL;
    bool on_device = d->tensor.device.type == DL_CUDA, dense = is_dense(d, count);
    if (on_device) {
        if (!dense)
            return status_error(STATUS_UNSUPPORTED, "a DLPack tensor in device memory whose rows are not dense");
        TRY(onnxfuse_value_tensor_on_device((OnnxfuseDType)dtype, rank, d->tensor.shape, data, out_value));
        (*out_value)->device = DEVICE_CUDA;
        (*out_value)->ordinal = d->tensor.device.id;
        return NULL;
    }
    bool kept = dense && (uintptr_t)data % dtype_size(dtype) == 0;
    TRY(onnxfuse_value_tensor((OnnxfuseDType)dtype, rank, d->tensor.shape, kept ? data : NULL, out_value));
    if (!kept && count) copy_strided(d, data, dtype_size(dtype), count, (*out_value)->item.tensor.data);
    return NULL;
}

OnnxfuseStatus onnxfuse_value_from_dlpack(OnnxfuseDlpack *d, OnnxfuseValue **out_value) {
    if (d->version.major != 1)
        return status_error(STATUS_UNSUPPORTED, "DLPack version %u.%u (1 is read)", d->version.major, d->version.minor);
    if (d->tensor.rank < 0 || d->tensor.rank > MAX_RANK)
        return status_error(STATUS_INVALID, "a DLPack tensor of rank %d (at most %d are possible)", d->tensor.rank,
                            MAX_RANK);
    int32_t device = d->tensor.device.type;
    if (device != DL_CPU && device != DL_CUDA && device != DL_CUDA_HOST)
        return status_error(STATUS_UNSUPPORTED, "a DLPack tensor on a device of type %d (CPU and CUDA are read)",
                            device);
    DType dtype;
    OnnxfuseValue *value;
    TRY(dtype_of(d, &dtype));
    TRY(make_value(d, dtype, &value));
    value->managed = d;
    *out_value = value;
    return NULL;
}

/* --- to --- */
typedef struct Exported {
    OnnxfuseDlpack dlpack; /* first: the deleter gets its address */
    OnnxfuseValue *value;
    int64_t shape[MAX_RANK], strides[MAX_RANK];
} Exported;

static void delete_exported(OnnxfuseDlpack *self) {
    Exported *e = self->manager;
    onnxfuse_value_free(e->value);
    free(e);
}

static Status find_type(const Tensor *t, const TypeRow **out_row) {
    for (int i = 0; i < TYPE_COUNT; i++)
        if (types[i].dtype == t->dtype) {
            *out_row = &types[i];
            return NULL;
        }
    return status_error(STATUS_UNSUPPORTED, "tensors of %s cannot be handed on as DLPack", dtype_onnx_name(t->dtype));
}

OnnxfuseStatus onnxfuse_value_to_dlpack(OnnxfuseValue *value, OnnxfuseDlpack **out_dlpack) {
    if (value->item.kind != ITEM_TENSOR) return status_error(STATUS_INVALID, "only tensors can be handed on as DLPack");
    if (value->on_device && value->device != DEVICE_CUDA)
        return status_error(STATUS_USAGE, "the device of this tensor's memory is not known");
    const Tensor *t = &value->item.tensor;
    const TypeRow *type;
    TRY(find_type(t, &type));
    Exported *e = calloc(1, sizeof *e);
    if (!e) return status_out_of_memory();
    e->value = value;
    OnnxfuseDlpack *d = &e->dlpack;
    *d = (OnnxfuseDlpack){.version = {1, type->code > 6}, /* 8-bit floats came with 1.1 */
                          .manager = e,
                          .deleter = delete_exported};
    if (value_is_read_only(value)) d->flags = DLPACK_READ_ONLY;
    d->tensor.data = t->data;
    d->tensor.device.type = value->on_device ? DL_CUDA : DL_CPU;
    d->tensor.device.id = value->on_device ? value->ordinal : 0;
    d->tensor.rank = t->rank;
    d->tensor.dtype.code = type->code;
    d->tensor.dtype.bits = type->bits;
    d->tensor.dtype.lanes = 1;
    d->tensor.shape = e->shape;
    d->tensor.strides = e->strides;
    int64_t stride = 1;
    for (int i = t->rank - 1; i >= 0; i--) {
        e->shape[i] = t->dims[i];
        e->strides[i] = stride;
        stride *= t->dims[i];
    }
    *out_dlpack = d;
    return NULL;
}
