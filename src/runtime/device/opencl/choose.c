/* SPDX-License-Identifier: Apache-2.0 */
/* Goes through the platforms and their devices: reads what each can do, leaves out those that cannot run our kernels,
 * takes the best of the others. */
#include "runtime/device/opencl/choose.h"

#include "base/plain.h"

#include <stdio.h>
#include <string.h>

enum { MAX_PLATFORMS = 32, MAX_DEVICES = 64, LEAST_BLOCK = 256 };

/* ---- what a device tells ---- */

static void end_text(char *text, size_t size) {
    text[size - 1] = 0;
    size_t length = strlen(text);
    while (length && (text[length - 1] == ' ' || text[length - 1] == '\n')) text[--length] = 0;
    char *first = text + strspn(text, " \n"); /* some drivers pad the name on the left */
    memmove(text, first, strlen(first) + 1);
}

/* The call fails when the room is too small, so long texts go through a larger room. */
static void platform_text(const OpenClLibrary *cl, cl_platform_id platform, cl_platform_info what, char *text,
                          size_t size) {
    char room[2048] = "";
    if (cl->clGetPlatformInfo(platform, what, sizeof room - 1, room, NULL) != CL_SUCCESS) room[0] = 0;
    end_text(room, sizeof room);
    snprintf(text, size, "%.*s", (int)size - 1, room);
}

static void device_text(const OpenClDevice *d, cl_device_info what, char *text, size_t size) {
    char room[2048] = "";
    if (d->cl->clGetDeviceInfo(d->id, what, sizeof room - 1, room, NULL) != CL_SUCCESS) room[0] = 0;
    end_text(room, sizeof room);
    snprintf(text, size, "%.*s", (int)size - 1, room);
}

static cl_ulong device_number(const OpenClDevice *d, cl_device_info what, size_t size) {
    union {
        cl_uint word;
        cl_ulong number;
    } value = {.number = 0};
    if (d->cl->clGetDeviceInfo(d->id, what, size, &value, NULL) != CL_SUCCESS) return 0;
    return size == sizeof value.word ? value.word : value.number;
}

static size_t block_threads(const OpenClDevice *d) {
    size_t sizes[16] = {0}; /* work-items in each dimension; three at least */
    size_t most = (size_t)device_number(d, CL_DEVICE_MAX_WORK_GROUP_SIZE, sizeof(size_t));
    if (d->cl->clGetDeviceInfo(d->id, CL_DEVICE_MAX_WORK_ITEM_SIZES, sizeof sizes, sizes, NULL) != CL_SUCCESS)
        return most;
    return sizes[0] < most ? sizes[0] : most;
}

static void read_device(OpenClDevice *d) {
    device_text(d, CL_DEVICE_NAME, d->name, sizeof d->name);
    device_text(d, CL_DEVICE_VENDOR, d->vendor, sizeof d->vendor);
    device_text(d, CL_DEVICE_VERSION, d->version, sizeof d->version);
    device_text(d, CL_DRIVER_VERSION, d->driver, sizeof d->driver);
    platform_text(d->cl, d->platform, CL_PLATFORM_NAME, d->platform_name, sizeof d->platform_name);
    platform_text(d->cl, d->platform, CL_PLATFORM_VERSION, d->platform_version, sizeof d->platform_version);
    if (sscanf(d->version, "OpenCL %d.%d", &d->major, &d->minor) != 2) d->major = d->minor = 0;
    d->type = device_number(d, CL_DEVICE_TYPE, sizeof(cl_device_type));
    d->units = (cl_uint)device_number(d, CL_DEVICE_MAX_COMPUTE_UNITS, sizeof(cl_uint));
    d->block_threads = block_threads(d);
    d->argument_bytes = (size_t)device_number(d, CL_DEVICE_MAX_PARAMETER_SIZE, sizeof(size_t));
    d->memory = device_number(d, CL_DEVICE_GLOBAL_MEM_SIZE, sizeof(cl_ulong));
    d->largest = device_number(d, CL_DEVICE_MAX_MEM_ALLOC_SIZE, sizeof(cl_ulong));
    d->shared = device_number(d, CL_DEVICE_LOCAL_MEM_SIZE, sizeof(cl_ulong));
    d->fp64 = device_number(d, CL_DEVICE_DOUBLE_FP_CONFIG, sizeof(cl_device_fp_config)) != 0;
    d->rounded_divide = (device_number(d, CL_DEVICE_SINGLE_FP_CONFIG, sizeof(cl_device_fp_config)) &
                         CL_FP_CORRECTLY_ROUNDED_DIVIDE_SQRT) != 0;
}

/* Why the device cannot be used; false when it can. */
static bool falls_short(const OpenClDevice *d, char *why, size_t size) {
    char profile[64];
    device_text(d, CL_DEVICE_PROFILE, profile, sizeof profile);
    if (d->major * 10 + d->minor < 12)
        snprintf(why, size, "it offers \"%s\", and OpenCL 1.2 is needed", d->version);
    else if (!device_number(d, CL_DEVICE_AVAILABLE, sizeof(cl_bool)))
        snprintf(why, size, "its driver says that it is not available");
    else if (!device_number(d, CL_DEVICE_COMPILER_AVAILABLE, sizeof(cl_bool)))
        snprintf(why, size, "its driver has no compiler");
    else if (strcmp(profile, "FULL_PROFILE") != 0)
        snprintf(why, size, "it offers the embedded profile, and the full profile is needed");
    else if (!device_number(d, CL_DEVICE_ENDIAN_LITTLE, sizeof(cl_bool)))
        snprintf(why, size, "its bytes are in big-endian order");
    else if (d->block_threads < LEAST_BLOCK)
        snprintf(why, size, "its work-groups have at most %zu work-items, and %d are needed", d->block_threads,
                 LEAST_BLOCK);
    else
        return false;
    return true;
}

/* ---- the choice ---- */

typedef struct Search {
    const char *wanted; /* NULL: any */
    OpenClDevice best;
    int rank;         /* of best; RANKS when there is none */
    char reason[512]; /* why the first unfit device was left out */
    char others[512]; /* names of devices that were not wanted */
    int seen;
} Search;

enum { RANKS = 4 };

static int rank_of(cl_device_type type) {
    return type & CL_DEVICE_TYPE_GPU ? 0 : type & CL_DEVICE_TYPE_ACCELERATOR ? 1 : type & CL_DEVICE_TYPE_CPU ? 2 : 3;
}

static void consider(Search *s, OpenClDevice *d) {
    char why[320];
    read_device(d);
    s->seen++;
    if (s->wanted && !plain_contains(d->name, s->wanted) && !plain_contains(d->platform_name, s->wanted)) {
        size_t used = strlen(s->others);
        snprintf(s->others + used, sizeof s->others - used, "%s\"%s\" (%s)", used ? ", " : "", d->name,
                 d->platform_name);
    } else if (falls_short(d, why, sizeof why)) {
        if (!s->reason[0]) snprintf(s->reason, sizeof s->reason, "\"%s\" cannot be used: %s", d->name, why);
    } else if (rank_of(d->type) < s->rank) {
        s->best = *d;
        s->rank = rank_of(d->type);
    }
}

static void search_platform(Search *s, const OpenClLibrary *cl, cl_platform_id platform) {
    cl_device_id devices[MAX_DEVICES];
    cl_uint count = 0;
    if (cl->clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, MAX_DEVICES, devices, &count) != CL_SUCCESS) return;
    for (cl_uint i = 0; i < count && i < MAX_DEVICES; i++) {
        OpenClDevice device = {.cl = cl, .platform = platform, .id = devices[i]};
        consider(s, &device);
    }
}

static Status nothing_found(const Search *s, cl_uint platforms) {
    if (s->reason[0]) return status_error(STATUS_USAGE, "%s", s->reason);
    if (s->seen)
        return status_error(STATUS_USAGE, "no OpenCL device or platform has \"%s\" in its name; there are %s",
                            s->wanted, s->others);
    if (platforms)
        return status_error(STATUS_USAGE,
                            "the OpenCL drivers here have no device: check that the GPU is visible and that "
                            "you may use it (the groups video and render), or install pocl-opencl-icd");
    return status_error(STATUS_USAGE,
                        "no OpenCL driver is installed: install your GPU's own, or pocl-opencl-icd (a CPU)");
}

Status opencl_choose(const Policy *policy, OpenClDevice *out_device) {
    const OpenClLibrary *cl;
    TRY(opencl_library(policy->opencl.library, &cl));
    cl_platform_id platforms[MAX_PLATFORMS];
    cl_uint count = 0;
    if (cl->clGetPlatformIDs(MAX_PLATFORMS, platforms, &count) != CL_SUCCESS) count = 0;
    if (count > MAX_PLATFORMS) count = MAX_PLATFORMS;
    const char *wanted = policy->opencl.device;
    Search search = {.wanted = wanted && *wanted ? wanted : NULL, .rank = RANKS};
    for (cl_uint i = 0; i < count; i++) search_platform(&search, cl, platforms[i]);
    if (search.rank == RANKS) return nothing_found(&search, count);
    *out_device = search.best;
    return NULL;
}
