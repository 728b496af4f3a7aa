/* SPDX-License-Identifier: Apache-2.0 */
/* The device that tests of device code run on, and tensors on it between guards: OpenCL's, whatever the machine has, or
 * the one that ONNXFUSE_TEST_DEVICE names. On an NVIDIA GPU products run on our own kernels, unless
 * ONNXFUSE_TEST_LIBRARY is set. */
#ifndef ONNXFUSE_TESTS_GPU_BENCH_H
#define ONNXFUSE_TESTS_GPU_BENCH_H

#include <criterion/criterion.h>

#include "runtime/device/gpu/gpu.h"

enum { GUARD = 256 }; /* bytes on each side of a tensor */

typedef struct Bench {
    Policy policy;
    Device *device;
    Stream *stream;
    GpuLimits limits; /* the device's, for tests that make it look otherwise */
} Bench;

#define DONE(call)                                                                                                     \
    do {                                                                                                               \
        Status status_ = (call);                                                                                       \
        cr_assert(!status_, "%s: %s", #call, status_message(status_));                                                 \
    } while (0)

/* The test ends as skipped where the machine has no OpenCL (skip.h); a device that ONNXFUSE_TEST_DEVICE names must be
 * there. */
void bench_open(Bench *bench);
void bench_close(Bench *bench);

/* A copy on the device, `lead` bytes behind a multiple of 256; guards of GUARD_BYTE around it. */
enum { GUARD_BYTE = 0xA5 };
typedef struct Placed {
    char *block;
    size_t bytes;
    Tensor tensor;
} Placed;

Placed place(Bench *bench, Arena *arena, const Tensor *t, bool filled, size_t lead);
bool unchanged(const unsigned char *bytes, size_t count); /* all GUARD_BYTE */

#endif
