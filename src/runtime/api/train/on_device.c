/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/api/train/on_device.h"

bool session_has_memory(const OnnxfuseSession *s) { return s->devices.device->table->separate_memory; }

Status device_tensor_new(OnnxfuseSession *s, const OnnxfuseValue *like, OnnxfuseValue **out_value) {
    Device *device = s->devices.device;
    const Tensor *t = &like->item.tensor;
    size_t bytes = tensor_bytes(t);
    void *data;
    TRY(device->table->allocate(device, NULL, NULL, bytes ? bytes : 1, &data));
    Status status = onnxfuse_value_tensor_on_device((OnnxfuseDType)t->dtype, t->rank, t->dims, data, out_value);
    if (status) device->table->release(device, NULL, NULL, data);
    return status;
}

void device_tensor_free(OnnxfuseSession *s, OnnxfuseValue *value) {
    if (!value) return;
    Status refused = session_check_fork(s);
    if (!refused) s->devices.device->table->release(s->devices.device, NULL, NULL, value->item.tensor.data);
    status_free(refused);
    onnxfuse_value_free(value);
}

Status device_tensor_copy(OnnxfuseSession *s, CopyKind kind, OnnxfuseValue *there, OnnxfuseValue *here) {
    Device *device = s->devices.device;
    const DeviceTable *table = device->table;
    size_t bytes = tensor_bytes(&here->item.tensor);
    void *on_device = there->item.tensor.data, *on_host = here->item.tensor.data;
    Stream *stream = NULL;
    if (!bytes) return NULL;
    TRY(session_check_fork(s));
    if (table->stream_create) TRY(table->stream_create(device, &stream));
    Status status = kind == COPY_IN ? table->copy(device, stream, kind, on_device, on_host, bytes)
                                    : table->copy(device, stream, kind, on_host, on_device, bytes);
    if (!status) status = table->synchronize(device, stream);
    if (table->stream_destroy) table->stream_destroy(device, stream);
    return status;
}
