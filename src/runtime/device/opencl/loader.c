/* SPDX-License-Identifier: Apache-2.0 */
/* libOpenCL.so.1 (or the policy's library), opened at run time; the names of OpenCL's errors. */
#include "runtime/device/opencl/loader.h"
#include "base/plain.h"
#include "base/plugin.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct {
    pthread_mutex_t lock;
    OpenClLibrary *first;
} libraries = {PTHREAD_MUTEX_INITIALIZER, NULL};

static Status open_failure(const char *path, bool usual, const char *why) {
    if (usual)
        return status_error(STATUS_USAGE,
                            OPENCL_USUAL_LIBRARY " was not found: install ocl-icd-libopencl1 and a driver such as "
                                                 "pocl-opencl-icd (a CPU) or your GPU's own");
    return status_error(STATUS_USAGE, "opencl.library \"%s\" cannot be opened: %s", path, why);
}

static Status open_library(const char *path, bool usual, OpenClLibrary **out_library) {
    char why[512];
    void *handle = library_open(path, why, sizeof why);
    if (!handle) return open_failure(path, usual, why);
    size_t length = strlen(path) + 1;
    OpenClLibrary *library = calloc(1, sizeof *library + length);
    if (!library) return dlclose(handle), status_out_of_memory();
    library->path = memcpy(library + 1, path, length);
    struct Symbol {
        const char *name;
        void *into;
    } symbols[] = {
#define X(function) {#function, &library->function},
        OPENCL_FUNCTIONS(X)
#undef X
    };
    for (size_t i = 0; i < sizeof symbols / sizeof *symbols; i++) {
        void *address = dlsym(handle, symbols[i].name);
        if (!address) {
            free(library);
            dlclose(handle);
            return status_error(STATUS_USAGE, "%s lacks the function %s: a loader of OpenCL 1.2 or later is needed",
                                path, symbols[i].name);
        }
        memcpy(symbols[i].into, &address, sizeof address);
    }
    *out_library = library;
    return NULL;
}

Status opencl_library(const char *path, const OpenClLibrary **out_library) {
    bool usual = !path || !*path;
    if (usual) path = OPENCL_USUAL_LIBRARY;
    pthread_mutex_lock(&libraries.lock);
    OpenClLibrary *library = libraries.first;
    while (library && strcmp(library->path, path) != 0) library = library->next;
    Status status = NULL;
    if (!library) {
        status = open_library(path, usual, &library);
        if (!status) {
            library->next = libraries.first;
            libraries.first = library;
        }
    }
    pthread_mutex_unlock(&libraries.lock);
    if (!status) *out_library = library;
    return status;
}

static const struct ErrorName {
    cl_int error;
    const char *name;
} error_names[] = {
#define X(name)                                                                                                        \
    { name, #name }
    X(CL_DEVICE_NOT_FOUND),
    X(CL_DEVICE_NOT_AVAILABLE),
    X(CL_COMPILER_NOT_AVAILABLE),
    X(CL_MEM_OBJECT_ALLOCATION_FAILURE),
    X(CL_OUT_OF_RESOURCES),
    X(CL_OUT_OF_HOST_MEMORY),
    X(CL_PROFILING_INFO_NOT_AVAILABLE),
    X(CL_MEM_COPY_OVERLAP),
    X(CL_IMAGE_FORMAT_MISMATCH),
    X(CL_IMAGE_FORMAT_NOT_SUPPORTED),
    X(CL_BUILD_PROGRAM_FAILURE),
    X(CL_MAP_FAILURE),
    X(CL_MISALIGNED_SUB_BUFFER_OFFSET),
    X(CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST),
    X(CL_COMPILE_PROGRAM_FAILURE),
    X(CL_LINKER_NOT_AVAILABLE),
    X(CL_LINK_PROGRAM_FAILURE),
    X(CL_DEVICE_PARTITION_FAILED),
    X(CL_KERNEL_ARG_INFO_NOT_AVAILABLE),
    X(CL_INVALID_VALUE),
    X(CL_INVALID_DEVICE_TYPE),
    X(CL_INVALID_PLATFORM),
    X(CL_INVALID_DEVICE),
    X(CL_INVALID_CONTEXT),
    X(CL_INVALID_QUEUE_PROPERTIES),
    X(CL_INVALID_COMMAND_QUEUE),
    X(CL_INVALID_HOST_PTR),
    X(CL_INVALID_MEM_OBJECT),
    X(CL_INVALID_IMAGE_FORMAT_DESCRIPTOR),
    X(CL_INVALID_IMAGE_SIZE),
    X(CL_INVALID_SAMPLER),
    X(CL_INVALID_BINARY),
    X(CL_INVALID_BUILD_OPTIONS),
    X(CL_INVALID_PROGRAM),
    X(CL_INVALID_PROGRAM_EXECUTABLE),
    X(CL_INVALID_KERNEL_NAME),
    X(CL_INVALID_KERNEL_DEFINITION),
    X(CL_INVALID_KERNEL),
    X(CL_INVALID_ARG_INDEX),
    X(CL_INVALID_ARG_VALUE),
    X(CL_INVALID_ARG_SIZE),
    X(CL_INVALID_KERNEL_ARGS),
    X(CL_INVALID_WORK_DIMENSION),
    X(CL_INVALID_WORK_GROUP_SIZE),
    X(CL_INVALID_WORK_ITEM_SIZE),
    X(CL_INVALID_GLOBAL_OFFSET),
    X(CL_INVALID_EVENT_WAIT_LIST),
    X(CL_INVALID_EVENT),
    X(CL_INVALID_OPERATION),
    X(CL_INVALID_GL_OBJECT),
    X(CL_INVALID_BUFFER_SIZE),
    X(CL_INVALID_MIP_LEVEL),
    X(CL_INVALID_GLOBAL_WORK_SIZE),
    X(CL_INVALID_PROPERTY),
    X(CL_INVALID_IMAGE_DESCRIPTOR),
    X(CL_INVALID_COMPILER_OPTIONS),
    X(CL_INVALID_LINKER_OPTIONS),
    X(CL_INVALID_DEVICE_PARTITION_COUNT),
#undef X
    {-1001, "CL_PLATFORM_NOT_FOUND_KHR"}, /* extension cl_khr_icd */
};

const char *opencl_error_name(cl_int error) {
    for (size_t i = 0; i < sizeof error_names / sizeof *error_names; i++)
        if (error_names[i].error == error) return error_names[i].name;
    return "an error of the driver's own";
}

Status opencl_check(cl_int error, const char *format, ...) {
    if (error == CL_SUCCESS) return NULL;
    char message[512];
    va_list arguments;
    va_start(arguments, format);
    plain_vprint(message, sizeof message, format, arguments);
    va_end(arguments);
    return status_error(STATUS_FAULT, "%s: %s (%d)", message, opencl_error_name(error), (int)error);
}
