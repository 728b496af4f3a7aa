/* The OpenCL device that kernels are run on. Programs are compiled and launched through OpenCL itself: the runtime's
 * driver also makes a binary to keep, for which PoCL compiles every function once more. */
#ifndef ONNXFUSE_TESTS_GPU_MACHINE_H
#define ONNXFUSE_TESTS_GPU_MACHINE_H

#include "proof.h"

#include "codegen/gpu/gpu.h"
#include "runtime/opencl/context.h"
#include "runtime/opencl/driver.h"

typedef struct Machine {
    const GpuDriver *driver;
    GpuContext *context;
    Stream *stream;
} Machine;

Status machine_open(const Proof *proof, Machine **out_machine);
void machine_close(Machine *machine); /* accepts NULL */
Status machine_compile(Machine *machine, const char *source, cl_program *out_program);
/* places [buffers + 1]: the last is scratch. Waits. */
Status machine_launch(Machine *machine, cl_program program, const char *name, const Kernel *kernel, const Place *places,
                      const int64_t *params, const GpuLaunches *launches);

#endif
