/* SPDX-License-Identifier: Apache-2.0 */
/* Devices: looked for, chosen, opened. */
#include "runtime/api/devices.h"

#include <stdatomic.h>
#include <unistd.h>

#include "base/fork.h"
#include "base/log.h"

const DeviceTable *const *device_tables(void) {
    static const DeviceTable *const tables[] = {&cuda_device, &opencl_device, &cpu_device, NULL};
    return tables;
}

/* Whether the kernel has a GPU: NVIDIA's, AMD's, any other's, or Windows' under WSL. Asking the drivers instead loads
 * whatever of them is installed: PoCL, for one, takes 65 ms to say that there is only the CPU. */
static bool may_have_gpu(void) {
    static const char *const nodes[] = {"/dev/nvidiactl", "/dev/kfd", "/dev/dri", "/dev/dxg"};
    for (size_t i = 0; i < sizeof nodes / sizeof *nodes; i++)
        if (access(nodes[i], F_OK) == 0) return true;
    return false;
}

static bool is_wanted(const Policy *policy, const DeviceTable *table) {
    if (policy->device != DEVICE_AUTO) return policy->device == table->kind;
    return table->kind == DEVICE_CPU || may_have_gpu();
}

/* By DeviceKind: 1 + fork_count() when the driver was first used; 0: it was not. */
static atomic_uint first_use[DEVICE_OPENCL + 1];

static bool is_of_parent(const DeviceTable *table, unsigned first) {
    return table->kind != DEVICE_CPU && first && first != fork_count() + 1;
}

bool device_is_inherited(const DeviceTable *table) { return is_of_parent(table, atomic_load(&first_use[table->kind])); }

Status device_claim(const DeviceTable *table) {
    unsigned first = 0;
    atomic_compare_exchange_strong(&first_use[table->kind], &first, fork_count() + 1);
    if (!is_of_parent(table, first)) return NULL;
    return status_error(
        STATUS_USAGE,
        "device \"%s\" was used before the process was forked, and its driver does not work in a child: "
        "use it in the parent alone, or in children alone, or start the child as a program of its own",
        table->name);
}

Status device_open(const Policy *policy, Device **out_device) {
    Status reason = NULL;
    for (const DeviceTable *const *t = device_tables(); *t; t++) {
        if (!is_wanted(policy, *t)) continue;
        status_free(reason);
        reason = device_claim(*t);
        if (!reason) reason = (*t)->open(policy, out_device);
        if (!reason) return NULL;
    }
    if (reason) return reason;
    return status_error(STATUS_USAGE, "device \"%s\" is not available: this build runs on the CPU alone",
                        device_name(policy->device));
}

/* Where the policy's device is not there and the policy allows it, the CPU. */
static Status open_or_fall_back(Policy *policy, Device **out_device) {
    Status status = device_open(policy, out_device);
    if (!status || policy->fallback.device != FALLBACK_DEVICE_CPU || policy->device == DEVICE_CPU) return status;
    LOG(1, "device %s is not there, the CPU takes its place: %s", device_name(policy->device), status_message(status));
    status_free(status);
    policy->fallback.instead_of = policy->device;
    policy->device = DEVICE_CPU;
    return device_open(policy, out_device);
}

/* The CPU beside another device: its kernels are compiled for this machine, its anchors take any epilogue. */
static Status open_host(const Policy *policy, Arena *arena, Devices *devices) {
    Policy *host = &devices->host_policy;
    *host = *policy;
    host->device = DEVICE_CPU;
    host->target.device = DEVICE_CPU;
    host->target.epilogue = cpu_device.epilogue;
    host->target.anchors = cpu_device.anchors;
    TRY(target_resolve(arena, &host->target));
    return cpu_device.open(host, &devices->host);
}

Status devices_open(Policy *policy, Arena *arena, Devices *out_devices) {
    *out_devices = (Devices){0};
    TRY(open_or_fall_back(policy, &out_devices->device));
    const DeviceTable *table = out_devices->device->table;
    if (!policy->target.level) policy->target.level = "host";
    policy->target.device = table->kind;
    policy->target.epilogue = table->epilogue;
    policy->target.anchors = table->anchors;
    Status status = target_resolve(arena, &policy->target);
    if (!table->separate_memory)
        out_devices->host = out_devices->device;
    else if (!status)
        status = open_host(policy, arena, out_devices);
    if (status) devices_close(out_devices);
    return status;
}

void devices_close(Devices *devices) {
    Device *device = devices->device, *host = devices->host;
    if (host && host != device) host->table->close(host);
    if (device) device->table->close(device);
    devices->device = devices->host = NULL;
}
