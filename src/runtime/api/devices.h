/* SPDX-License-Identifier: Apache-2.0 */
/* The list of devices, the choice among them, and what a session opens. */
#ifndef ONNXFUSE_RUNTIME_API_DEVICES_H
#define ONNXFUSE_RUNTIME_API_DEVICES_H

#include "runtime/device/device.h"

/* The devices in the order in which "auto" tries them; NULL-terminated. */
const DeviceTable *const *device_tables(void);
/* Whether a parent of this process has used the device's driver, which a forked child cannot: its threads and its connection to
 * the device are the parent's. */
bool device_is_inherited(const DeviceTable *table);
/* Notes that the driver is used from now on. STATUS_USAGE where it is inherited. */
Status device_claim(const DeviceTable *table);
/* The device of the policy; DEVICE_AUTO takes the first that opens. STATUS_USAGE with the device's own reason. */
Status device_open(const Policy *policy, Device **out_device);

/* What a session runs on: the policy's device, and the CPU for what that cannot do. Both are the same object where the
 * device is the CPU. Not moved once open: `host` reads host_policy. */
typedef struct Devices {
    Device *device, *host;
    Policy host_policy; /* the policy as it is for the CPU alone */
} Devices;

/* Also completes policy->target, for the passes and codegen, by the device that was opened; strings in the arena. */
Status devices_open(Policy *policy, Arena *arena, Devices *out_devices);
void devices_close(Devices *devices); /* accepts what was never opened, zeroed */

#endif
