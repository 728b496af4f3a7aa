/* SPDX-License-Identifier: Apache-2.0 */
/* The device "cuda": the shared GPU device over CUDA's driver. */
#include "runtime/device/cuda/driver.h"

#include "runtime/device/gpu/gpu.h"

static Status open_device(const Policy *policy, Device **out_device) {
    return gpu_open(&cuda_device, &cuda_driver, policy, out_device);
}

static Status describe(const Policy *policy, Text *text) { return cuda_driver.describe(policy, text); }

const DeviceTable cuda_device = {
    .kind = DEVICE_CUDA, .name = "cuda", .describe = describe, .open = open_device, GPU_DEVICE_FUNCTIONS};
