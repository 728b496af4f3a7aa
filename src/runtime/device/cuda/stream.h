/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ONNXFUSE_RUNTIME_DEVICE_CUDA_STREAM_H
#define ONNXFUSE_RUNTIME_DEVICE_CUDA_STREAM_H

#include "runtime/device/cuda/state.h"

Status cuda_stream_open(CudaContext *context, CudaStream *stream);
void cuda_stream_close(CudaContext *context, CudaStream *stream); /* waits; accepts what was opened in part, zeroed */

#endif
