/* SPDX-License-Identifier: Apache-2.0 */
/* Matrix products by CLBlast, where it is installed: libclblast.so.1, opened on first use. */
#ifndef ONNXFUSE_RUNTIME_DEVICE_OPENCL_CLBLAST_H
#define ONNXFUSE_RUNTIME_DEVICE_OPENCL_CLBLAST_H

#include "runtime/device/opencl/context.h"

/* False on CPUs: CLBlast compiles many kernels for the device in each process, which takes PoCL seconds. */
bool clblast_supports(GpuContext *context, const GpuGemm *gemm);
/* On any device. STATUS_UNSUPPORTED with what CLBlast said: our own kernel may run instead. */
Status clblast_gemm(GpuContext *context, Stream *stream, const GpuGemm *gemm, size_t *out_workspace);
/* Before a context ends: CLBlast keeps programs by context, and another may come to stand at the same address. */
void clblast_forget(void);

#endif
