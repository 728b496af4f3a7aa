/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ONNXFUSE_RUNTIME_DEVICE_CUDA_GRAPH_H
#define ONNXFUSE_RUNTIME_DEVICE_CUDA_GRAPH_H

#include "runtime/device/cuda/state.h"

Status cuda_record_begin(CudaContext *context, CudaStream *stream);
Status cuda_record_end(CudaContext *context, CudaStream *stream, void **out_recording);
Status cuda_record_abandon(CudaContext *context, CudaStream *stream);
Status cuda_replay(CudaContext *context, CudaStream *stream, void *recording);
void cuda_record_free(CudaContext *context, void *recording);

#endif
