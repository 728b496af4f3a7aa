/* SPDX-License-Identifier: Apache-2.0 */
/* CUDA C to a binary for one architecture. Needs no GPU and no driver. */
#ifndef ONNXFUSE_RUNTIME_DEVICE_CUDA_NVRTC_H
#define ONNXFUSE_RUNTIME_DEVICE_CUDA_NVRTC_H

#include <stdbool.h>
#include "base/status.h"
#include "runtime/device/cuda/api.h"

/* The options of every compilation beside the architecture: numbers as on the CPU, no contraction. Part of the kernel
 * cache's key. */
#define CUDA_COMPILE_OPTIONS                                                                                           \
    "--fmad=false", "--prec-div=true", "--prec-sqrt=true", "--ftz=false", "-default-device", "-std=c++17"

/* libraries: folder in which NVRTC is looked for first, or NULL. arch: 10 * major + minor of the compute capability
 * (80, 90, 100). The binary (malloc'ed, the caller's) is a cubin; PTX with its closing zero byte where NVRTC is older
 * than the architecture. out_log: NULL, or the compiler's messages (malloc'ed, NULL when there are none), also on
 * failure; the Status has the first lines of them. STATUS_USAGE when NVRTC is not there or too new for the
 * architecture. Thread-safe. */
Status cuda_compile(const char *libraries, int arch, const char *source, void **out_binary, size_t *out_size,
                    char **out_log);
/* The same with an opened NVRTC. */
Status cuda_compile_with(const CudaNvrtc *nvrtc, int arch, const char *source, void **out_binary, size_t *out_size,
                         char **out_log);

/* How NVRTC serves an architecture: compiles for it (`native`), or as PTX of the newest older one (*out_arch). */
Status cuda_compile_target(const CudaNvrtc *nvrtc, int arch, int *out_arch, bool *out_native);

/* What the compiler is told to compile for, as cuda_compile_target says: "sm_90a", "compute_80". */
enum { CUDA_TARGET_NAME = 24 };
void cuda_target_name(const CudaNvrtc *nvrtc, int arch, bool native, char out_name[CUDA_TARGET_NAME]);

/* Whether binaries for this architecture may have products of warpgroups (codegen/gpu/warpgroup.h). */
bool cuda_target_has_groups(const CudaNvrtc *nvrtc, int arch);

#endif
