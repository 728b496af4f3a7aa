/* SPDX-License-Identifier: Apache-2.0 */
/* One context a device and library for the whole process: made by the first open, ended by the last close. */
#include "runtime/device/opencl/context.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/log.h"

enum { MOST_THREADS = 1024 }; /* that a block of ours has */

static struct {
    pthread_mutex_t lock;
    GpuContext *first;
} contexts = {PTHREAD_MUTEX_INITIALIZER, NULL};

Status opencl_describe(const Policy *policy, Text *text) {
    OpenClDevice d;
    TRY(opencl_choose(policy, &d));
    text_add(text, "%s%s%s (%s, %s), OpenCL %d.%d, %u compute units, %.1f GiB", d.name, d.vendor[0] ? " of " : "",
             d.vendor,
             d.type & CL_DEVICE_TYPE_CPU   ? "a CPU"
             : d.type & CL_DEVICE_TYPE_GPU ? "a GPU"
                                           : "an accelerator",
             d.platform_name, d.major, d.minor, (unsigned)d.units, (double)d.memory / (1 << 30));
    return NULL;
}

/* What a driver says beyond its error codes. */
static void CL_CALLBACK on_notice(const char *message, const void *data, size_t size, void *user) {
    (void)data, (void)size, (void)user;
    LOG(1, "OpenCL: %s", message);
}

static char *target_text(const OpenClDevice *d, const char *options) {
    char *text;
    int size = asprintf(&text, "opencl; %s; %s; %s; %s; %s; %s", d->platform_name, d->platform_version, d->name,
                        d->version, d->driver, options);
    return size < 0 ? NULL : text;
}

/* To the bits of the CPU where the device can: no option that allows less than IEEE arithmetic. */
static const char *build_options(const OpenClDevice *d) {
    return d->rounded_divide ? "-cl-std=CL1.2 -cl-fp32-correctly-rounded-divide-sqrt" : "-cl-std=CL1.2";
}

static GpuLimits limits_of(const OpenClDevice *d) {
    return (GpuLimits){
        .multiprocessors = d->units ? (int)d->units : 1,
        .block_threads = d->block_threads < MOST_THREADS ? (int)d->block_threads : MOST_THREADS,
        .shared_bytes = (size_t)d->shared,
        .shared_most = (size_t)d->shared,
        .fp64 = d->fp64,
        .argument_bytes = d->argument_bytes < INT_MAX ? (int)d->argument_bytes : INT_MAX,
    };
}

static void free_context(GpuContext *context) {
    const OpenClLibrary *cl = context->cl;
    for (size_t i = 0; i < context->allocations.count; i++)
        cl->clReleaseMemObject(context->allocations.items[i].memory);
    if (context->service) cl->clReleaseCommandQueue(context->service);
    if (context->context) cl->clReleaseContext(context->context);
    pthread_rwlock_destroy(&context->allocations.lock);
    free(context->allocations.items);
    free(context->target);
    free(context);
}

static Status make_context(const OpenClDevice *device, GpuContext **out_context) {
    const OpenClLibrary *cl = device->cl;
    GpuContext *context = calloc(1, sizeof *context);
    if (!context) return status_out_of_memory();
    *context = (GpuContext){.cl = cl, .device = *device, .limits = limits_of(device), .options = build_options(device)};
    pthread_rwlock_init(&context->allocations.lock, NULL);
    cl_context_properties properties[] = {CL_CONTEXT_PLATFORM, (cl_context_properties)device->platform, 0};
    cl_int error;
    context->context = cl->clCreateContext(properties, 1, &device->id, on_notice, NULL, &error);
    Status status = opencl_check(error, "OpenCL device \"%s\" cannot be opened", device->name);
    if (!status) {
        context->service = cl->clCreateCommandQueue(context->context, device->id, 0, &error);
        status = opencl_check(error, "OpenCL device \"%s\" gives no command queue", device->name);
    }
    if (!status && !(context->target = target_text(device, context->options))) status = status_out_of_memory();
    if (status)
        free_context(context);
    else
        *out_context = context;
    return status;
}

Status opencl_open(const Policy *policy, GpuContext **out_context) {
    OpenClDevice device;
    pthread_mutex_lock(&contexts.lock);
    Status status = opencl_choose(policy, &device);
    GpuContext *context = contexts.first;
    while (!status && context && (context->cl != device.cl || context->device.id != device.id)) context = context->next;
    if (!status && !context) {
        status = make_context(&device, &context);
        if (!status) {
            context->next = contexts.first;
            contexts.first = context;
        }
    }
    if (!status) {
        context->references++;
        *out_context = context;
    }
    pthread_mutex_unlock(&contexts.lock);
    return status;
}

void opencl_close(GpuContext *context, void (*before_last)(void)) {
    pthread_mutex_lock(&contexts.lock);
    bool last = --context->references == 0;
    if (last) {
        GpuContext **link = &contexts.first;
        while (*link != context) link = &(*link)->next;
        *link = context->next;
    }
    pthread_mutex_unlock(&contexts.lock);
    if (!last) return;
    before_last();
    free_context(context);
}

const GpuLimits *opencl_limits(const GpuContext *context) { return &context->limits; }

const char *opencl_target(const GpuContext *context) { return context->target; }
