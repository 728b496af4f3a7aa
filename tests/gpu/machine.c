/* Compiling and launching on the OpenCL device. */
#include "machine.h"

#include <stdio.h>
#include <stdlib.h>

Status machine_open(const Proof *proof, Machine **out_machine) {
    Machine *m = *out_machine = calloc(1, sizeof **out_machine);
    if (!m) return status_out_of_memory();
    m->driver = &opencl_driver;
    TRY(m->driver->open(&proof->cases->policy, &m->context));
    return m->driver->stream_create(m->context, &m->stream);
}

void machine_close(Machine *m) {
    if (!m) return;
    if (m->stream) m->driver->stream_destroy(m->context, m->stream);
    if (m->context) m->driver->close(m->context);
    free(m);
}

/* Not optimised: the compiler's time is most of a proof's. */
Status machine_compile(Machine *m, const char *source, cl_program *out_program) {
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

Status machine_launch(Machine *m, cl_program program, const char *name, const Kernel *k, const Place *places,
                      const int64_t *params, const GpuLaunches *launches) {
    for (int l = 0; l < launches->count; l++) {
        char full[128];
        cl_int error;
        snprintf(full, sizeof full, "%s%s", name, launches->items[l].suffix);
        cl_kernel kernel = m->context->cl->clCreateKernel(program, full, &error);
        TRY(opencl_check(error, "function %s", full));
        Status status = launch_one(m, kernel, k, places, params, &launches->items[l]);
        m->context->cl->clReleaseKernel(kernel);
        TRY(status_at(status, "%s", full));
    }
    return NULL;
}
