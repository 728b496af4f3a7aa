/* SPDX-License-Identifier: Apache-2.0 */
/* Compiling and launching: through OpenCL itself, and through CUDA's driver table. */
#include "machine.h"

#include <stdio.h>
#include <stdlib.h>

#include "runtime/device/cuda/driver.h"
#include "runtime/device/opencl/driver.h"

Status machine_open(const Proof *proof, Machine **out_machine) {
    Machine *m = *out_machine = calloc(1, sizeof **out_machine);
    if (!m) return status_out_of_memory();
    bool cuda = proof->cases->policy.device == DEVICE_CUDA;
    m->dialect = cuda ? GPU_CUDA : GPU_OPENCL;
    m->driver = cuda ? &cuda_driver : &opencl_driver;
    TRY(m->driver->open(&proof->cases->policy, &m->context));
    return m->driver->stream_create(m->context, &m->stream);
}

void machine_close(Machine *m) {
    if (!m) return;
    if (m->stream) m->driver->stream_destroy(m->context, m->stream);
    if (m->context) m->driver->close(m->context);
    free(m);
}

/* --- OpenCL ---------------------------------------------------------------------------------------------------- */
/* Not optimised: the compiler's time is most of a proof's. */
static Status compile_opencl(Machine *m, const char *source, cl_program *out_program) {
    const OpenClLibrary *cl = m->context->cl;
    cl_device_id device = m->context->device.id;
    char options[256], log[1024] = "";
    cl_int error;
    *out_program = cl->clCreateProgramWithSource(m->context->context, 1, &source, NULL, &error);
    TRY(opencl_check(error, "clCreateProgramWithSource"));
    snprintf(options, sizeof options, "%s -cl-opt-disable", m->context->options);
    error = cl->clBuildProgram(*out_program, 1, &device, options, NULL, NULL);
    if (error != CL_SUCCESS)
        cl->clGetProgramBuildInfo(*out_program, device, CL_PROGRAM_BUILD_LOG, sizeof log - 1, log, NULL);
    return opencl_check(error, "does not compile: %s", log);
}

static cl_int set_numbers(const OpenClLibrary *cl, cl_kernel kernel, cl_uint *at, const int64_t *values, int count) {
    cl_int error = CL_SUCCESS;
    for (int i = 0; i < count && !error; i++) error = cl->clSetKernelArg(kernel, (*at)++, sizeof *values, &values[i]);
    return error;
}

static Status launch_one(Machine *m, cl_kernel kernel, const Kernel *k, const Place *places, const int64_t *params,
                         const GpuLaunch *launch) {
    const OpenClLibrary *cl = m->context->cl;
    cl_int error = CL_SUCCESS;
    cl_uint at = 0;
    for (int b = 0; b <= k->buffers.count && !error; b++) {
        cl_long offset = (cl_long)places[b].offset;
        error = cl->clSetKernelArg(kernel, at++, sizeof places[b].memory, &places[b].memory);
        if (!error) error = cl->clSetKernelArg(kernel, at++, sizeof offset, &offset);
    }
    if (!error) error = set_numbers(cl, kernel, &at, params, k->param_count);
    if (!error) error = set_numbers(cl, kernel, &at, launch->extra, launch->extra_count);
    size_t block = (size_t)launch->block, threads = (size_t)launch->grid * block;
    if (!error) error = cl->clEnqueueNDRangeKernel(m->stream->queue, kernel, 1, NULL, &threads, &block, 0, NULL, NULL);
    if (!error) error = cl->clFinish(m->stream->queue);
    return opencl_check(error, "launch of %zu threads in blocks of %zu", threads, block);
}

Status machine_launch_places(Machine *m, const Program *program, const char *name, const Kernel *k, const Place *places,
                             const int64_t *params, const GpuLaunches *launches) {
    for (int l = 0; l < launches->count; l++) {
        char full[128];
        cl_int error;
        snprintf(full, sizeof full, "%s%s", name, launches->items[l].suffix);
        cl_kernel kernel = m->context->cl->clCreateKernel(program->opencl, full, &error);
        TRY(opencl_check(error, "function %s", full));
        Status status = launch_one(m, kernel, k, places, params, &launches->items[l]);
        m->context->cl->clReleaseKernel(kernel);
        TRY(status_at(status, "%s", full));
    }
    return NULL;
}

static Status launch_opencl(Machine *m, const Program *program, const char *name, const Kernel *k,
                            void *const *addresses, const int64_t *params, const GpuLaunches *launches) {
    Place *places = calloc((size_t)k->buffers.count + 1, sizeof *places);
    Status status = places ? NULL : status_out_of_memory();
    for (int b = 0; b <= k->buffers.count && !status; b++) status = opencl_find(m->context, addresses[b], &places[b]);
    if (!status) status = machine_launch_places(m, program, name, k, places, params, launches);
    free(places);
    return status;
}

/* --- CUDA ------------------------------------------------------------------------------------------------------- */
static Status compile_cuda(Machine *m, const char *source, GpuModule **out_module) {
    void *binary;
    size_t size;
    TRY(m->driver->compile(m->context, source, &binary, &size));
    Status status = m->driver->load(m->context, binary, size, out_module);
    free(binary);
    return status;
}

static void add_numbers(GpuArgument *arguments, int *count, const int64_t *values, int value_count) {
    for (int i = 0; i < value_count; i++) arguments[(*count)++] = (GpuArgument){.kind = GPU_ARG_I64, .i64 = values[i]};
}

static Status launch_cuda(Machine *m, const Program *program, const char *name, const Kernel *k, void *const *addresses,
                          const int64_t *params, const GpuLaunches *launches) {
    int most = k->buffers.count + 1 + k->param_count + GPU_MAX_EXTRA;
    GpuArgument *arguments = calloc((size_t)most, sizeof *arguments);
    Status status = arguments ? NULL : status_out_of_memory();
    for (int l = 0; l < launches->count && !status; l++) {
        const GpuLaunch *launch = &launches->items[l];
        const GpuFunction *function;
        char full[128];
        int count = 0;
        for (int b = 0; b <= k->buffers.count; b++)
            arguments[count++] = (GpuArgument){.kind = GPU_ARG_BUFFER, .buffer = addresses[b]};
        add_numbers(arguments, &count, params, k->param_count);
        add_numbers(arguments, &count, launch->extra, launch->extra_count);
        snprintf(full, sizeof full, "%s%s", name, launch->suffix);
        status = m->driver->function(m->context, program->module, full, &function);
        if (!status)
            status = m->driver->launch(m->context, m->stream, function, launch->grid, launch->block, arguments, count);
    }
    free(arguments);
    return status ? status : m->driver->synchronize(m->context, m->stream);
}

/* --- either ------------------------------------------------------------------------------------------------------ */
Status machine_compile(Machine *m, const char *source, Program *out_program) {
    *out_program = (Program){NULL, NULL};
    return m->dialect == GPU_CUDA ? compile_cuda(m, source, &out_program->module)
                                  : compile_opencl(m, source, &out_program->opencl);
}

void machine_unload(Machine *m, Program *program) {
    if (program->opencl) m->context->cl->clReleaseProgram(program->opencl);
    if (program->module) m->driver->unload(m->context, program->module);
}

Status machine_launch(Machine *m, const Program *program, const char *name, const Kernel *k, void *const *addresses,
                      const int64_t *params, const GpuLaunches *launches) {
    return (m->dialect == GPU_CUDA ? launch_cuda : launch_opencl)(m, program, name, k, addresses, params, launches);
}
