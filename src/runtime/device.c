/* The list of devices, and the choice among them. */
#include "runtime/device.h"

const DeviceTable *const *device_tables(void) {
    static const DeviceTable *const tables[] = {&cpu_device, NULL};
    return tables;
}

static bool is_wanted(const Policy *policy, const DeviceTable *table) {
    return policy->device == DEVICE_AUTO || policy->device == table->kind;
}

int device_epilogue_kinds(const Policy *policy) {
    for (const DeviceTable *const *t = device_tables(); *t; t++)
        if (is_wanted(policy, *t)) return (*t)->epilogue_kinds;
    return 0;
}

Status device_open(const Policy *policy, Device **out_device) {
    Status reason = NULL;
    for (const DeviceTable *const *t = device_tables(); *t; t++) {
        if (!is_wanted(policy, *t)) continue;
        status_free(reason);
        reason = (*t)->open(policy, out_device);
        if (!reason) return NULL;
    }
    if (reason) return reason;
    return status_error(STATUS_USAGE, "device \"%s\" is not available: this build runs on the CPU alone",
                        device_name(policy->device));
}
