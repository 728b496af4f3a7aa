/* SPDX-License-Identifier: Apache-2.0 */
/* The contexts of the process's devices. */
#ifndef ONNXFUSE_RUNTIME_DEVICE_CUDA_CONTEXT_H
#define ONNXFUSE_RUNTIME_DEVICE_CUDA_CONTEXT_H

#include "runtime/device/cuda/state.h"

Status cuda_describe(const Policy *policy, Text *text);
Status cuda_context_open(const Policy *policy, CudaContext **out_context);
void cuda_context_close(CudaContext *context);
Status cuda_module_load(CudaContext *context, const void *binary, size_t size, CuModule *out_module);

#endif
