/* SPDX-License-Identifier: Apache-2.0 */
/* The OpenCL library: opened once a path and kept, since drivers start threads that outlive any use of them. */
#ifndef ONNXFUSE_RUNTIME_DEVICE_OPENCL_LOADER_H
#define ONNXFUSE_RUNTIME_DEVICE_OPENCL_LOADER_H

#define CL_TARGET_OPENCL_VERSION 120
#include <CL/cl.h>
#include <stdbool.h>
#include "base/status.h"

/* Every function that is used, all of OpenCL 1.2. */
#define OPENCL_FUNCTIONS(X)                                                                                            \
    X(clGetPlatformIDs)                                                                                                \
    X(clGetPlatformInfo)                                                                                               \
    X(clGetDeviceIDs)                                                                                                  \
    X(clGetDeviceInfo)                                                                                                 \
    X(clCreateContext)                                                                                                 \
    X(clReleaseContext)                                                                                                \
    X(clCreateCommandQueue)                                                                                            \
    X(clReleaseCommandQueue)                                                                                           \
    X(clCreateBuffer)                                                                                                  \
    X(clReleaseMemObject)                                                                                              \
    X(clCreateProgramWithSource)                                                                                       \
    X(clCreateProgramWithBinary)                                                                                       \
    X(clBuildProgram)                                                                                                  \
    X(clGetProgramInfo)                                                                                                \
    X(clGetProgramBuildInfo)                                                                                           \
    X(clReleaseProgram)                                                                                                \
    X(clCreateKernel)                                                                                                  \
    X(clGetKernelInfo)                                                                                                 \
    X(clGetKernelWorkGroupInfo)                                                                                        \
    X(clSetKernelArg)                                                                                                  \
    X(clReleaseKernel)                                                                                                 \
    X(clEnqueueNDRangeKernel)                                                                                          \
    X(clEnqueueReadBuffer)                                                                                             \
    X(clEnqueueWriteBuffer)                                                                                            \
    X(clEnqueueCopyBuffer)                                                                                             \
    X(clEnqueueFillBuffer)                                                                                             \
    X(clEnqueueMapBuffer)                                                                                              \
    X(clEnqueueUnmapMemObject)                                                                                         \
    X(clWaitForEvents)                                                                                                 \
    X(clReleaseEvent)                                                                                                  \
    X(clFlush)                                                                                                         \
    X(clFinish)

typedef struct OpenClLibrary {
    const char *path;
    struct OpenClLibrary *next;
#define X(name) __typeof__(name) *name;
    OPENCL_FUNCTIONS(X)
#undef X
} OpenClLibrary;

#define OPENCL_USUAL_LIBRARY "libOpenCL.so.1"

/* path: NULL for the usual one. The library lives until the end of the process. STATUS_USAGE when it cannot be opened.
 */
Status opencl_library(const char *path, const OpenClLibrary **out_library);

const char *opencl_error_name(cl_int error); /* "CL_OUT_OF_RESOURCES" */
/* NULL for CL_SUCCESS; else STATUS_FAULT, the message followed by the error's name. */
Status opencl_check(cl_int error, const char *format, ...) STATUS_FORMAT(2, 3);

#endif
