/* SPDX-License-Identifier: Apache-2.0 */
/* Tensors in the memory of a session's device, that it keeps from run to run. */
#ifndef ONNXFUSE_RUNTIME_API_TRAIN_ON_DEVICE_H
#define ONNXFUSE_RUNTIME_API_TRAIN_ON_DEVICE_H

#include "runtime/api/session.h"

/* Whether the session's device has memory of its own. */
bool session_has_memory(const OnnxfuseSession *session);
/* Of the type and shape of a tensor in the host's memory; its elements are not set. */
Status device_tensor_new(OnnxfuseSession *session, const OnnxfuseValue *like, OnnxfuseValue **out_value);
void device_tensor_free(OnnxfuseSession *session, OnnxfuseValue *value); /* accepts NULL */
/* COPY_IN: from the host's; COPY_OUT: to it. Returns when it is done. */
Status device_tensor_copy(OnnxfuseSession *session, CopyKind kind, OnnxfuseValue *there, OnnxfuseValue *here);

#endif
