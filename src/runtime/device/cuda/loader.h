/* SPDX-License-Identifier: Apache-2.0 */
/* Finds and opens the CUDA libraries: first in the policy's folder, then where the system's loader looks, then in the
 * usual places of toolkit, driver and Python wheels. What was opened stays open for the process. Thread-safe. */
#ifndef ONNXFUSE_RUNTIME_DEVICE_CUDA_LOADER_H
#define ONNXFUSE_RUNTIME_DEVICE_CUDA_LOADER_H

#include <stdbool.h>
#include "base/status.h"
#include "runtime/device/cuda/api.h"

/* folder may be NULL. driver_major: CUDA version of the driver, 0 when unknown; a library of the same major version is
 * preferred to newer ones, which that driver may not run. Failures: STATUS_USAGE, naming what to install. */
Status cuda_load_driver(const char *folder, const CudaDriver **out_driver);
Status cuda_load_nvrtc(const char *folder, int driver_major, const CudaNvrtc **out_nvrtc);
Status cuda_load_blas(const char *folder, int driver_major, const CudaBlasApi **out_blas);

/* For tests: only the given folder is searched from now on. */
void cuda_load_only_from_folder(bool only);

#endif
