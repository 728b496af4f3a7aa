/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ONNXFUSE_RUNTIME_DEVICE_CUDA_MEMORY_H
#define ONNXFUSE_RUNTIME_DEVICE_CUDA_MEMORY_H

#include "runtime/device/cuda/state.h"

/* A pool that nobody else in the process allocates from. It keeps what is released for the next run, until
 * cuda_memory_trim or cuda_pool_close. */
Status cuda_pool_open(CudaContext *context);
void cuda_pool_close(CudaContext *context); /* all memory of it was released; accepts none */
/* Gives the device and the host back what is kept for coming calls: the pool's free memory, and the pinned memory of the
 * context's own stream, whose lock is held. */
Status cuda_memory_trim(CudaContext *context);

Status cuda_allocate(CudaContext *context, CudaStream *stream, size_t bytes, CuDevicePointer *out_data);
void cuda_release(CudaContext *context, CudaStream *stream, CuDevicePointer data); /* accepts 0 */
size_t cuda_free_memory(CudaContext *context);
Status cuda_copy(CudaContext *context, CudaStream *stream, CopyKind kind, void *to, const void *from, size_t bytes);
Status cuda_synchronize(CudaContext *context, CudaStream *stream);
/* Gives the pinned memory back; copies to the host that were not waited for are dropped. The stream is idle. */
void cuda_staging_free(CudaContext *context, CudaStream *stream);

#endif
