/* SPDX-License-Identifier: Apache-2.0 */
/* Which OpenCL device the policy means, and what is known of it. */
#ifndef ONNXFUSE_RUNTIME_DEVICE_OPENCL_CHOOSE_H
#define ONNXFUSE_RUNTIME_DEVICE_OPENCL_CHOOSE_H

#include <stdbool.h>
#include "policy/policy.h"
#include "runtime/device/opencl/loader.h"

typedef struct OpenClDevice {
    const OpenClLibrary *cl;
    cl_platform_id platform;
    cl_device_id id;
    cl_device_type type;
    char name[128], vendor[128], version[192], driver[128]; /* cut where the driver tells more */
    char platform_name[128], platform_version[192];
    int major, minor; /* the version of OpenCL that it offers */
    cl_uint units;
    size_t block_threads;             /* most work-items a work-group, in one dimension */
    size_t argument_bytes;            /* most that a kernel's arguments take */
    cl_ulong memory, largest, shared; /* bytes: global memory, the largest buffer, local memory of a work-group */
    bool fp64, rounded_divide;        /* rounded_divide: can round division and square root correctly */
} OpenClDevice;

/* A device whose name or whose platform's name contains policy->opencl.device (upper and lower case are the same), or
 * any; of several the first GPU, else the first accelerator, else the first CPU. STATUS_USAGE says what is missing. */
Status opencl_choose(const Policy *policy, OpenClDevice *out_device);

#endif
