/* SPDX-License-Identifier: Apache-2.0 */
/* The driver's table. */
#include "runtime/device/opencl/driver.h"

#include "runtime/device/opencl/clblast.h"
#include "runtime/device/opencl/context.h"

static void close_context(GpuContext *context) { opencl_close(context, clblast_forget); }

const GpuDriver opencl_driver = {
    .dialect = GPU_OPENCL,
    .describe = opencl_describe,
    .open = opencl_open,
    .close = close_context,
    .limits = opencl_limits,
    .target = opencl_target,
    .compile = opencl_compile,
    .load = opencl_load,
    .unload = opencl_unload,
    .function = opencl_function,
    .stream_create = opencl_stream_create,
    .stream_destroy = opencl_stream_destroy,
    .synchronize = opencl_synchronize,
    .allocate = opencl_allocate,
    .release = opencl_release,
    .free_memory = opencl_free_memory,
    .copy = opencl_copy,
    .fill_zero = opencl_fill_zero,
    .launch = opencl_launch,
    .gemm_supports = clblast_supports,
    .gemm = clblast_gemm,
    .gemm_name = "clblast",
};
