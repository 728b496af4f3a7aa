/* SPDX-License-Identifier: Apache-2.0 */
/* The anchor "attention" (lowering/anchors.h) on the GPU device. anchor.c hands nodes of this op to these functions. */
#ifndef ONNXFUSE_RUNTIME_DEVICE_GPU_ANCHOR_ATTENTION_H
#define ONNXFUSE_RUNTIME_DEVICE_GPU_ANCHOR_ATTENTION_H

#include "runtime/device/gpu/gpu.h"

typedef struct GpuAttention GpuAttention; /* immutable once prepared; runs from several threads at once */

bool gpu_attention_runs(const GpuDevice *device, const Node *node);
/* Compiles the kernels. Constant inputs stay the caller's: they come with every run, in device memory. */
Status gpu_attention_prepare(GpuDevice *device, const Node *node, GpuAttention **out_attention);
void gpu_attention_release(GpuAttention *attention); /* accepts NULL */
const char *gpu_attention_how(const GpuAttention *attention);
/* As run_anchor of a DeviceTable: inputs and output in device memory. */
Status gpu_attention_run(GpuDevice *device, Stream *stream, GpuAttention *attention, const Tensor *const *inputs,
                         const int64_t *symbols, Tensor *output);

#endif
