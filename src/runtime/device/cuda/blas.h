/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ONNXFUSE_RUNTIME_DEVICE_CUDA_BLAS_H
#define ONNXFUSE_RUNTIME_DEVICE_CUDA_BLAS_H

#include "runtime/device/cuda/state.h"

enum { CUDA_WORKSPACE_BYTES = 32 << 20 }; /* at most; what NVIDIA recommends for its largest GPUs */

bool cuda_gemm_possible(const GpuGemm *gemm);    /* types, sizes, alignment; asks no library */
CudaBlas *cuda_blas(CudaContext *context);       /* opens the library on first use; NULL: not there */
Status cuda_blas_required(CudaContext *context); /* STATUS_USAGE with the reason when it is not */
/* As GpuDriver.gemm. */
Status cuda_gemm(CudaContext *context, CudaStream *stream, const GpuGemm *gemm, size_t *out_workspace);
void cuda_blas_close(CudaContext *context);

#endif
