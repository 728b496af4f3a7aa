/* SPDX-License-Identifier: Apache-2.0 */
/* The device that kernels are run on: OpenCL, or CUDA where there is a GPU. */
#ifndef ONNXFUSE_TESTS_GPU_MACHINE_H
#define ONNXFUSE_TESTS_GPU_MACHINE_H

#include "proof.h"

#include "codegen/gpu/gpu.h"
#include "runtime/device/gpu/driver.h"
#include "runtime/device/opencl/context.h"

/* OpenCL programs are compiled and launched past the runtime's driver: that also makes a binary to keep, for which PoCL
 * compiles every function once more. */
typedef struct Machine {
    GpuDialect dialect;
    const GpuDriver *driver;
    GpuContext *context;
    Stream *stream;
    bool broken; /* a launch failed: CUDA wants a new context after that */
} Machine;

typedef struct Program { /* one of the two */
    cl_program opencl;
    GpuModule *module;
} Program;

Status machine_open(const Proof *proof, Machine **out_machine);
void machine_close(Machine *machine); /* accepts NULL */
Status machine_compile(Machine *machine, const char *source, Program *out_program);
void machine_unload(Machine *machine, Program *program);
/* addresses [buffers + 1]: device memory, the last is scratch. Waits. */
Status machine_launch(Machine *machine, const Program *program, const char *name, const Kernel *kernel,
                      void *const *addresses, const int64_t *params, const GpuLaunches *launches);
/* OpenCL alone: buffers that the driver does not know. */
Status machine_launch_places(Machine *machine, const Program *program, const char *name, const Kernel *kernel,
                             const Place *places, const int64_t *params, const GpuLaunches *launches);

#endif
