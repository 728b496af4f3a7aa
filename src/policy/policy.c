/* SPDX-License-Identifier: Apache-2.0 */
/* A policy's defaults, and the names of what it holds. */
#include "policy/reader.h"

#include <string.h>

Policy policy_default(void) {
    return (Policy){
        .fusion = {.enable = true, .max_region_nodes = 96},
        .cache = {.enable = true, .max_megabytes = 256},
        .winograd = true,
        .cuda = {.graphs = true},
        .training = {.accumulation = 1,
                     .rate = 1e-3,
                     .momentum = 0.9,
                     .beta1 = 0.9,
                     .beta2 = 0.999,
                     .epsilon = 1e-8,
                     .loss_scale = 65536,
                     .loss_scale_steps = 2000},
        .target = {.device = DEVICE_CPU, .level = "host"},
    };
}

const char *policy_source(const Policy *policy) { return policy->name ? policy->name : "policy"; }

Status policy_pool(const Policy *policy, Pool **out_pool) {
    *out_pool = policy->pool;
    return policy->pool ? NULL : pool_shared(policy->threads, out_pool);
}

const char *const device_names[] = {"auto", "cpu", "cuda", "opencl"};
_Static_assert(sizeof device_names / sizeof *device_names == DEVICE_NAMES, "a name a device");

const char *device_name(DeviceKind device) { return device_names[device]; }

Status device_from_name(const char *name, DeviceKind *out_device) {
    for (int i = 0; i < DEVICE_NAMES; i++)
        if (strcmp(name, device_names[i]) == 0) {
            *out_device = (DeviceKind)i;
            return NULL;
        }
    return status_error(STATUS_USAGE, "there is no device \"%s\" (auto, cpu, cuda and opencl are known)", name);
}

const char *const precision_names[] = {"f32", "f16", "bf16", "int8", "int4"};

const char *precision_name(Precision precision) {
    return precision == PRECISION_AS_IS ? "as is" : precision_names[precision - PRECISION_F32];
}
