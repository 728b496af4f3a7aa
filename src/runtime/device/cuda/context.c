/* SPDX-License-Identifier: Apache-2.0 */
/* The primary context of a device, retained once for all sessions with the same settings and given back with the last;
 * what the device is; programs. */
#include "runtime/device/cuda/context.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "codegen/cache/disk.h"
#include "runtime/device/cuda/blas.h"
#include "runtime/device/cuda/loader.h"
#include "runtime/device/cuda/memory.h"
#include "runtime/device/cuda/nvrtc.h"
#include "runtime/device/cuda/stream.h"

enum { OLDEST_DRIVER = 11040 }; /* 1000 * major + 10 * minor: graphs, pools and all functions of api.h */

/* --- the device ------------------------------------------------------------------------------------------------------
 */

static Status start_driver(const Policy *policy, const CudaDriver **out_api, int *out_version) {
    const CudaDriver *api;
    TRY(cuda_load_driver(policy->cuda.libraries, &api));
    CuResult result = api->init(0);
    if (result == CU_NO_DEVICE) return status_error(STATUS_USAGE, "no NVIDIA GPU was found");
    if (result == CU_STUB_LIBRARY)
        return status_error(STATUS_USAGE,
                            "no NVIDIA driver: the libcuda.so.1 found is the toolkit's stub; install the driver");
    if (result == CU_SYSTEM_DRIVER_MISMATCH)
        return status_error(STATUS_USAGE, "the NVIDIA driver's kernel module is of another version than libcuda.so.1; "
                                          "restart the machine after the driver's update");
    if (result) return cuda_error(api, STATUS_USAGE, result, "the NVIDIA driver does not start");
    result = api->driver_version(out_version);
    if (result) return cuda_error(api, STATUS_FAULT, result, "the driver's version");
    if (*out_version < OLDEST_DRIVER)
        return status_error(
            STATUS_USAGE, "the NVIDIA driver is too old: it is for CUDA %d.%d, one for CUDA %d.%d or newer is needed",
            *out_version / 1000, *out_version % 1000 / 10, OLDEST_DRIVER / 1000, OLDEST_DRIVER % 1000 / 10);
    *out_api = api;
    return NULL;
}

static Status find_device(const CudaDriver *api, int ordinal, CuDevice *out_device) {
    int count = 0;
    CuResult result = api->device_count(&count);
    if (result == CU_NO_DEVICE || (!result && count == 0)) return status_error(STATUS_USAGE, "no NVIDIA GPU was found");
    if (result) return cuda_error(api, STATUS_FAULT, result, "the number of GPUs");
    if (ordinal < 0 || ordinal >= count)
        return status_error(STATUS_USAGE, "cuda.device is %d, but there %s %d GPU%s, counted from 0", ordinal,
                            count == 1 ? "is" : "are", count, count == 1 ? "" : "s");
    result = api->device_get(out_device, ordinal);
    return result ? cuda_error(api, STATUS_FAULT, result, "the GPU cannot be opened") : NULL;
}

/* What the driver says of the device; fills name, arch, limits, pools. */
static Status read_device(CudaContext *c) {
    int major = 0, minor = 0, shared = 0, shared_most = 0, pools = 0;
    const struct {
        CuDeviceAttribute attribute;
        int *value;
    } wanted[] = {
        {CU_CAPABILITY_MAJOR, &major},
        {CU_CAPABILITY_MINOR, &minor},
        {CU_MULTIPROCESSOR_COUNT, &c->limits.multiprocessors},
        {CU_MAX_THREADS_PER_BLOCK, &c->limits.block_threads},
        {CU_MAX_SHARED_MEMORY_PER_BLOCK, &shared},
        {CU_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, &shared_most},
        {CU_MEMORY_POOLS_SUPPORTED, &pools},
    };
    CuResult result = c->api->device_name(c->name, (int)sizeof c->name, c->device);
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted && !result; i++)
        result = c->api->device_attribute(wanted[i].value, wanted[i].attribute, c->device);
    if (result) return cuda_error(c->api, STATUS_FAULT, result, "the GPU's properties");
    c->name[sizeof c->name - 1] = 0;
    c->arch = 10 * major + minor;
    c->has_pools = pools != 0;
    c->limits.shared_bytes = (size_t)shared;
    c->limits.shared_most = (size_t)(shared_most > shared ? shared_most : shared);
    c->limits.fp64 = true; /* of every GPU that NVRTC still compiles for */
    c->limits.matrix = c->arch >= 80;
    c->limits.tf32 = c->limits.matrix && c->tf32;
    return NULL;
}

/* Driver, device and compiler; no context yet. */
static Status inspect_device(const Policy *policy, CudaContext *c) {
    TRY(start_driver(policy, &c->api, &c->driver_version));
    TRY(find_device(c->api, policy->cuda.device, &c->device));
    TRY(read_device(c));
    TRY(cuda_load_nvrtc(policy->cuda.libraries, c->driver_version / 1000, &c->nvrtc));
    NvrtcResult result = c->nvrtc->version(&c->nvrtc_version[0], &c->nvrtc_version[1]);
    if (result) return status_error(STATUS_FAULT, "NVRTC: its version: %s", c->nvrtc->error_text(result));
    c->limits.groups = cuda_target_has_groups(c->nvrtc, c->arch);
    return NULL;
}

/* cuBLAS counts 10000 * major + 100 * minor + patch; before version 12 otherwise. */
static void version_text(size_t version, char *out, size_t size) {
    if (version >= 100000)
        snprintf(out, size, "%zu.%zu.%zu", version / 10000, version % 10000 / 100, version % 100);
    else
        snprintf(out, size, "%zu", version);
}

Status cuda_describe(const Policy *policy, Text *text) {
    CudaContext c = {0};
    TRY(inspect_device(policy, &c));
    size_t memory = 0;
    const CudaBlasApi *blas;
    char version[48] = "";
    CuResult result = c.api->device_memory(&memory, c.device);
    if (result) return cuda_error(c.api, STATUS_FAULT, result, "the GPU's memory");
    Status no_blas = cuda_load_blas(policy->cuda.libraries, c.driver_version / 1000, &blas);
    if (!no_blas) version_text(blas->version(), version, sizeof version);
    char reason[400];
    snprintf(reason, sizeof reason, "%s", status_message(no_blas));
    status_free(no_blas);
    text_add(text, "%s, compute capability %d.%d, %d multiprocessors, %zu MiB; driver for CUDA %d.%d, NVRTC %d.%d, ",
             c.name, c.arch / 10, c.arch % 10, c.limits.multiprocessors, memory >> 20, c.driver_version / 1000,
             c.driver_version % 1000 / 10, c.nvrtc_version[0], c.nvrtc_version[1]);
    if (*reason)
        text_add(text, "matrix products on onnxfuse's own kernels: %s", reason);
    else
        text_add(text, "cuBLASLt %s", version);
    return NULL;
}

/* --- contexts --- */

static pthread_mutex_t contexts_lock = PTHREAD_MUTEX_INITIALIZER;
static CudaContext *contexts;

static bool same_text(const char *a, const char *b) { return a && b ? strcmp(a, b) == 0 : a == b; }

/* Products depend on tf32 and deterministic: sessions that differ in them do not share a context of ours. The driver's
 * primary context below is one a device in any case. */
static bool serves(const CudaContext *c, const Policy *policy) {
    const char *folder = policy->cuda.libraries && policy->cuda.libraries[0] ? policy->cuda.libraries : NULL;
    return c->ordinal == policy->cuda.device && same_text(c->folder, folder) && c->tf32 == policy->cuda.tf32 &&
           c->deterministic == policy->deterministic;
}

static Status write_target(CudaContext *c) {
    int compiled;
    bool native;
    TRY(cuda_compile_target(c->nvrtc, c->arch, &compiled, &native));
    static const char *const options[] = {CUDA_COMPILE_OPTIONS};
    char name[CUDA_TARGET_NAME];
    cuda_target_name(c->nvrtc, compiled, native, name);
    int size =
        snprintf(c->target, sizeof c->target, "cuda %s nvrtc %d.%d", name, c->nvrtc_version[0], c->nvrtc_version[1]);
    for (size_t i = 0; i < sizeof options / sizeof *options; i++)
        size += snprintf(c->target + size, sizeof c->target - (size_t)size, " %s", options[i]);
    return NULL;
}

static Status find_cache(CudaContext *c, const Policy *policy) {
    Arena *arena = arena_create(0);
    if (!arena) return status_out_of_memory();
    jmp_buf guard;
    if (setjmp(guard)) {
        arena_destroy(arena);
        return status_out_of_memory();
    }
    arena_guard(arena, &guard);
    const char *directory = disk_directory(arena, policy);
    char *copy = directory ? strdup(directory) : NULL;
    bool failed = directory && !copy;
    arena_destroy(arena);
    c->cache_directory = copy;
    return failed ? status_out_of_memory() : NULL;
}

static Status enter_new(CudaContext *c) {
    CuResult result = c->api->context_retain(&c->handle, c->device);
    if (result) c->handle = NULL;
    if (result == CU_DEVICE_UNAVAILABLE)
        return status_error(STATUS_USAGE, "the GPU %s is in the exclusive use of another process", c->name);
    TRY(cuda_check(c, result, "the GPU cannot be used"));
    TRY(cuda_check(c, c->api->context_set(c->handle), "the GPU's context cannot be used"));
    TRY(cuda_pool_open(c));
    return cuda_stream_open(c, &c->own);
}

static void context_free(CudaContext *c) {
    if (c->handle) {
        CuContext previous = NULL;
        CuResult result = c->api->context_get(&previous);
        c->api->context_set(c->handle);
        cuda_blas_close(c);
        cuda_stream_close(c, &c->own);
        cuda_pool_close(c);
        c->api->context_set(result ? NULL : previous);
        c->api->context_release(c->device);
    }
    pthread_mutex_destroy(&c->blas_lock);
    free(c->folder);
    free(c->cache_directory);
    free(c);
}

static Status context_new(const Policy *policy, CudaContext **out_context) {
    CudaContext *c = calloc(1, sizeof *c);
    if (!c) return status_out_of_memory();
    pthread_mutex_init(&c->blas_lock, NULL);
    c->ordinal = policy->cuda.device;
    c->tf32 = policy->cuda.tf32;
    c->deterministic = policy->deterministic;
    CuContext previous = NULL;
    bool named = policy->cuda.libraries && policy->cuda.libraries[0];
    if (named) c->folder = strdup(policy->cuda.libraries);
    Status status = named && !c->folder ? status_out_of_memory() : inspect_device(policy, c);
    if (!status) status = write_target(c);
    if (!status) status = find_cache(c, policy);
    if (!status) status = cuda_check(c, c->api->context_get(&previous), "the thread's context");
    if (!status) {
        status = enter_new(c);
        c->api->context_set(previous);
    }
    if (status)
        context_free(c);
    else
        *out_context = c;
    return status;
}

Status cuda_context_open(const Policy *policy, CudaContext **out_context) {
    pthread_mutex_lock(&contexts_lock);
    CudaContext *c = contexts;
    while (c && !serves(c, policy)) c = c->next;
    Status status = c ? cuda_lost(c) : context_new(policy, &c);
    if (!status) {
        if (c->users++ == 0) {
            c->next = contexts;
            contexts = c;
        }
        *out_context = c;
    }
    pthread_mutex_unlock(&contexts_lock);
    return status;
}

void cuda_context_close(CudaContext *c) {
    pthread_mutex_lock(&contexts_lock);
    if (--c->users == 0) {
        CudaContext **at = &contexts;
        while (*at != c) at = &(*at)->next;
        *at = c->next;
        context_free(c);
    }
    pthread_mutex_unlock(&contexts_lock);
}

/* --- programs --------------------------------------------------------------------------------------------------------
 */

static Status image_refused(CudaContext *c, CuResult result) {
    int driver_major = c->driver_version / 1000, driver_minor = c->driver_version % 1000 / 10;
    bool newer = c->nvrtc_version[0] > driver_major ||
                 (c->nvrtc_version[0] == driver_major && c->nvrtc_version[1] > driver_minor);
    switch (result) {
    case CU_UNSUPPORTED_PTX_VERSION:
    case CU_INVALID_IMAGE:
    case CU_INVALID_PTX:
    case CU_NO_BINARY_FOR_GPU:
        if (!newer) break;
        return status_error(
            STATUS_USAGE,
            "the NVIDIA driver (for CUDA %d.%d) does not load programs of NVRTC %d.%d: update the driver, or install "
            "NVRTC of CUDA %d and name its folder in the policy (cuda.libraries)",
            driver_major, driver_minor, c->nvrtc_version[0], c->nvrtc_version[1], driver_major);
    case CU_JIT_COMPILER_NOT_FOUND:
        return status_error(STATUS_USAGE,
                            "NVRTC %d.%d does not know the GPU (sm_%d), and the driver's own compiler, "
                            "libnvidia-ptxjitcompiler, is missing: install a newer NVRTC or the whole driver",
                            c->nvrtc_version[0], c->nvrtc_version[1], c->arch);
    default: break;
    }
    if (result == CU_NO_BINARY_FOR_GPU)
        return status_error(STATUS_FAULT, "CUDA: a program is not for this GPU (%s, sm_%d)", c->name, c->arch);
    return cuda_check(c, result, "a program cannot be loaded");
}

Status cuda_module_load(CudaContext *c, const void *binary, size_t size, CuModule *out_module) {
    /* The driver takes no size: an ELF file says it itself, PTX ends with a zero byte. */
    static const char elf[] = {0x7f, 'E', 'L', 'F'};
    const char *bytes = binary;
    bool is_elf = size >= 64 && memcmp(bytes, elf, sizeof elf) == 0;
    if (!is_elf && (size == 0 || bytes[size - 1] != 0))
        return status_error(STATUS_INVALID, "CUDA: a stored program is damaged");
    CuResult result = c->api->module_load(out_module, binary);
    return result ? image_refused(c, result) : NULL;
}
