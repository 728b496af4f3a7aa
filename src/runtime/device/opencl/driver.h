/* SPDX-License-Identifier: Apache-2.0 */
/* GPUs (and CPUs) through OpenCL 1.2, for the device in runtime/gpu. Nothing is linked: the loader of OpenCL drivers is
 * opened when the device is asked for.
 *   loader.c   libOpenCL and its functions; errors by name
 *   choose.c   which device, and what it can do
 *   context.c  the process-wide context of a device
 *   memory.c   addresses for OpenCL's buffers; copies
 *   stream.c   command queues
 *   program.c  compiling, loading, launching
 *   clblast.c  matrix products by CLBlast */
#ifndef ONNXFUSE_RUNTIME_DEVICE_OPENCL_DRIVER_H
#define ONNXFUSE_RUNTIME_DEVICE_OPENCL_DRIVER_H

#include "runtime/device/gpu/driver.h"

extern const GpuDriver opencl_driver;

#endif
