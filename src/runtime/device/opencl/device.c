/* SPDX-License-Identifier: Apache-2.0 */
/* The device "opencl": the shared GPU device over OpenCL's driver. */
#include "runtime/device/opencl/driver.h"

#include "runtime/device/gpu/gpu.h"
#include "runtime/device/opencl/choose.h"

/* Nobody who asks for the best device means the host's cores through OpenCL. */
static Status check_gpu(const Policy *policy) {
    OpenClDevice device;
    TRY(opencl_choose(policy, &device));
    if (device.type & CL_DEVICE_TYPE_GPU) return NULL;
    return status_error(STATUS_USAGE, "\"%s\" is no GPU: OpenCL on it is for those who ask for it", device.name);
}

static Status open_device(const Policy *policy, Device **out_device) {
    if (policy->device == DEVICE_AUTO) TRY(check_gpu(policy));
    return gpu_open(&opencl_device, &opencl_driver, policy, out_device);
}

static Status describe(const Policy *policy, Text *text) { return opencl_driver.describe(policy, text); }

const DeviceTable opencl_device = {
    .kind = DEVICE_OPENCL, .name = "opencl", .describe = describe, .open = open_device, GPU_DEVICE_FUNCTIONS};
