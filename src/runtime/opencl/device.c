/* The device "opencl": the shared GPU device over OpenCL's driver. */
#include "runtime/opencl/driver.h"

#include "runtime/gpu/gpu.h"

static Status open_device(const Policy *policy, Device **out_device) {
    return gpu_open(&opencl_device, &opencl_driver, policy, out_device);
}

static Status describe(const Policy *policy, Text *text) { return opencl_driver.describe(policy, text); }

const DeviceTable opencl_device = {
    .kind = DEVICE_OPENCL, .name = "opencl", .describe = describe, .open = open_device, GPU_DEVICE_FUNCTIONS};
