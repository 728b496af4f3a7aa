/* SPDX-License-Identifier: Apache-2.0 */
/* Programs: source to binary, binary to functions, functions to the queue.
 *
 * A binary is the driver's, behind a header that proves it whole: drivers take a damaged one for good, and some end the
 * process on it. */
#include "runtime/device/opencl/context.h"

#include <stdlib.h>
#include <string.h>
#include "base/log.h"
#include "base/map.h"

/* ---- compiling ---- */

typedef struct BinaryHeader {
    char magic[8];
    uint64_t size, hash; /* of what follows */
} BinaryHeader;

static const char binary_magic[8] = "ofclbin";

enum { LOG_LINES = 8, LOG_BYTES = 1200 };

/* The first error of a compiler's log and the lines after it; the log's begin when nothing says "error". */
static void first_lines(const char *log, char out[LOG_BYTES]) {
    const char *error = strstr(log, "error"), *from = error ? error : log;
    while (from > log && from[-1] != '\n') from--;
    size_t size = 0;
    for (int line = 0; *from && line < LOG_LINES && size < LOG_BYTES - 1; from++) {
        out[size++] = *from;
        line += *from == '\n';
    }
    while (size && (out[size - 1] == '\n' || out[size - 1] == ' ')) size--;
    out[size] = 0;
}

static char *build_log(GpuContext *context, cl_program program) {
    size_t size = 0;
    cl_device_id id = context->device.id;
    if (context->cl->clGetProgramBuildInfo(program, id, CL_PROGRAM_BUILD_LOG, 0, NULL, &size) != CL_SUCCESS)
        return NULL;
    char *log = calloc(1, size + 1);
    if (log && size &&
        context->cl->clGetProgramBuildInfo(program, id, CL_PROGRAM_BUILD_LOG, size, log, NULL) != CL_SUCCESS)
        log[0] = 0;
    return log;
}

static Status build(GpuContext *context, cl_program program, const char *what) {
    const OpenClDevice *d = &context->device;
    cl_int error = context->cl->clBuildProgram(program, 1, &d->id, context->options, NULL, NULL);
    if (error == CL_SUCCESS && log_level() < 3) return NULL;
    char *log = build_log(context, program), lines[LOG_BYTES] = "";
    if (log) first_lines(log, lines);
    free(log);
    if (error == CL_SUCCESS) {
        if (lines[0]) LOG(3, "OpenCL: %s", lines);
        return NULL;
    }
    return status_error(STATUS_FAULT, "OpenCL device \"%s\" %s: %s%s%s", d->name, what, opencl_error_name(error),
                        lines[0] ? "\n" : "", lines);
}

static Status take_binary(GpuContext *context, cl_program program, void **out_binary, size_t *out_size) {
    const OpenClLibrary *cl = context->cl;
    const char *device = context->device.name;
    size_t size = 0;
    TRY(opencl_check(cl->clGetProgramInfo(program, CL_PROGRAM_BINARY_SIZES, sizeof size, &size, NULL),
                     "OpenCL device \"%s\" gives no binary", device));
    if (!size) return status_error(STATUS_FAULT, "OpenCL device \"%s\" gives an empty binary", device);
    char *binary = malloc(sizeof(BinaryHeader) + size);
    if (!binary) return status_out_of_memory();
    unsigned char *data = (unsigned char *)binary + sizeof(BinaryHeader);
    Status status = opencl_check(cl->clGetProgramInfo(program, CL_PROGRAM_BINARIES, sizeof data, &data, NULL),
                                 "OpenCL device \"%s\" gives no binary", device);
    if (status) {
        free(binary);
        return status;
    }
    BinaryHeader header = {.size = size, .hash = hash_bytes(data, size, 0)};
    memcpy(header.magic, binary_magic, sizeof header.magic);
    memcpy(binary, &header, sizeof header);
    *out_binary = binary;
    *out_size = sizeof header + size;
    return NULL;
}

Status opencl_compile(GpuContext *context, const char *source, void **out_binary, size_t *out_size) {
    cl_int error;
    cl_program program = context->cl->clCreateProgramWithSource(context->context, 1, &source, NULL, &error);
    TRY(opencl_check(error, "OpenCL device \"%s\" takes no program", context->device.name));
    Status status = build(context, program, "does not compile a program");
    if (!status) status = take_binary(context, program, out_binary, out_size);
    context->cl->clReleaseProgram(program);
    return status;
}

/* ---- loading ---- */

/* A kernel object holds the arguments of one launch, so launches at the same moment need one each: idle ones wait in a
 * list, and as many are made as there were launches at once. */
enum { IDLE_KERNELS = 16 };
typedef struct Kernels {
    pthread_mutex_t lock;
    cl_kernel idle[IDLE_KERNELS];
    int count;
} Kernels;

struct GpuFunction {
    GpuModule *module;
    char *name;
    int arguments;        /* that the kernel has */
    size_t block_threads; /* most that its registers and local memory allow */
    Kernels *kernels;
    GpuFunction *next;
};

struct GpuModule {
    cl_program program;
    pthread_mutex_t lock;
    GpuFunction *functions;
};

/* The driver's part of a binary; NULL when it is not whole. */
static const unsigned char *binary_content(const void *binary, size_t size, size_t *out_size) {
    BinaryHeader header;
    if (size < sizeof header) return NULL;
    memcpy(&header, binary, sizeof header);
    const unsigned char *content = (const unsigned char *)binary + sizeof header;
    *out_size = size - sizeof header;
    if (memcmp(header.magic, binary_magic, sizeof header.magic) != 0 || header.size != *out_size ||
        header.hash != hash_bytes(content, *out_size, 0))
        return NULL;
    return content;
}

static Status load_program(GpuContext *context, const void *binary, size_t size, cl_program *out_program) {
    const OpenClLibrary *cl = context->cl;
    const OpenClDevice *d = &context->device;
    size_t content_size;
    const unsigned char *content = binary_content(binary, size, &content_size);
    if (!content) return status_error(STATUS_INVALID, "a kept program for OpenCL device \"%s\" is damaged", d->name);
    cl_int error = CL_SUCCESS, taken = CL_SUCCESS;
    cl_program program =
        cl->clCreateProgramWithBinary(context->context, 1, &d->id, &content_size, &content, &taken, &error);
    if (error == CL_SUCCESS && taken != CL_SUCCESS) {
        cl->clReleaseProgram(program);
        error = taken;
    }
    TRY(opencl_check(error, "OpenCL device \"%s\" refuses a kept program", d->name));
    Status status = build(context, program, "refuses a kept program");
    if (status)
        cl->clReleaseProgram(program);
    else
        *out_program = program;
    return status;
}

Status opencl_load(GpuContext *context, const void *binary, size_t size, GpuModule **out_module) {
    GpuModule *module = calloc(1, sizeof *module);
    if (!module) return status_out_of_memory();
    Status status = load_program(context, binary, size, &module->program);
    if (status) {
        free(module);
        return status;
    }
    pthread_mutex_init(&module->lock, NULL);
    *out_module = module;
    return NULL;
}

static void free_function(GpuContext *context, GpuFunction *function) {
    Kernels *kernels = function->kernels;
    if (kernels) {
        for (int i = 0; i < kernels->count; i++) context->cl->clReleaseKernel(kernels->idle[i]);
        pthread_mutex_destroy(&kernels->lock);
    }
    free(kernels);
    free(function->name);
    free(function);
}

void opencl_unload(GpuContext *context, GpuModule *module) {
    if (!module) return;
    for (GpuFunction *function = module->functions, *next; function; function = next) {
        next = function->next;
        free_function(context, function);
    }
    pthread_mutex_destroy(&module->lock);
    context->cl->clReleaseProgram(module->program);
    free(module);
}

static Status create_kernel(GpuContext *context, const GpuFunction *function, cl_kernel *out_kernel) {
    cl_int error;
    *out_kernel = context->cl->clCreateKernel(function->module->program, function->name, &error);
    return opencl_check(error, "kernel \"%s\" on OpenCL device \"%s\"", function->name, context->device.name);
}

static Status read_kernel(GpuContext *context, GpuFunction *function, cl_kernel kernel) {
    const OpenClLibrary *cl = context->cl;
    cl_uint arguments = 0;
    cl_int error = cl->clGetKernelInfo(kernel, CL_KERNEL_NUM_ARGS, sizeof arguments, &arguments, NULL);
    if (error == CL_SUCCESS)
        error = cl->clGetKernelWorkGroupInfo(kernel, context->device.id, CL_KERNEL_WORK_GROUP_SIZE,
                                             sizeof function->block_threads, &function->block_threads, NULL);
    function->arguments = (int)arguments;
    return opencl_check(error, "kernel \"%s\" on OpenCL device \"%s\"", function->name, context->device.name);
}

static Status make_function(GpuContext *context, GpuModule *module, const char *name, GpuFunction **out_function) {
    GpuFunction *function = calloc(1, sizeof *function);
    if (!function) return status_out_of_memory();
    *function = (GpuFunction){.module = module, .name = strdup(name), .kernels = calloc(1, sizeof *function->kernels)};
    if (function->kernels) pthread_mutex_init(&function->kernels->lock, NULL);
    cl_kernel kernel;
    Status status =
        function->name && function->kernels ? create_kernel(context, function, &kernel) : status_out_of_memory();
    if (!status) {
        function->kernels->idle[function->kernels->count++] = kernel;
        status = read_kernel(context, function, kernel);
    }
    if (status)
        free_function(context, function);
    else
        *out_function = function;
    return status;
}

Status opencl_function(GpuContext *context, GpuModule *module, const char *name, const GpuFunction **out_function) {
    Status status = NULL;
    pthread_mutex_lock(&module->lock);
    GpuFunction *function = module->functions;
    while (function && strcmp(function->name, name) != 0) function = function->next;
    if (!function) {
        status = make_function(context, module, name, &function);
        if (!status) {
            function->next = module->functions;
            module->functions = function;
        }
    }
    pthread_mutex_unlock(&module->lock);
    if (!status) *out_function = function;
    return status;
}

/* ---- launching ---- */

static Status take_kernel(GpuContext *context, const GpuFunction *function, cl_kernel *out_kernel) {
    Kernels *kernels = function->kernels;
    pthread_mutex_lock(&kernels->lock);
    bool found = kernels->count > 0;
    if (found) *out_kernel = kernels->idle[--kernels->count];
    pthread_mutex_unlock(&kernels->lock);
    return found ? NULL : create_kernel(context, function, out_kernel);
}

static void give_kernel(GpuContext *context, const GpuFunction *function, cl_kernel kernel) {
    Kernels *kernels = function->kernels;
    pthread_mutex_lock(&kernels->lock);
    bool kept = kernels->count < IDLE_KERNELS;
    if (kept) kernels->idle[kernels->count++] = kernel;
    pthread_mutex_unlock(&kernels->lock);
    if (!kept) context->cl->clReleaseKernel(kernel);
}

/* A buffer is two arguments, see BUFFER_ARG (codegen/gpu/dialect.h). */
static int arguments_of(const GpuArgument *arguments, int count) {
    int result = count;
    for (int i = 0; i < count; i++) result += arguments[i].kind == GPU_ARG_BUFFER;
    return result;
}

static Status set_buffer(GpuContext *context, cl_kernel kernel, cl_uint at, const void *buffer, cl_int *out_error) {
    Place place = {0};
    if (buffer) TRY(opencl_find_locked(context, buffer, &place));
    cl_long offset = (cl_long)place.offset;
    *out_error = context->cl->clSetKernelArg(kernel, at, sizeof place.memory, &place.memory);
    if (*out_error == CL_SUCCESS) *out_error = context->cl->clSetKernelArg(kernel, at + 1, sizeof offset, &offset);
    return NULL;
}

static Status set_argument(GpuContext *context, cl_kernel kernel, const GpuArgument *argument, cl_uint *at) {
    const OpenClLibrary *cl = context->cl;
    cl_int error = CL_SUCCESS;
    switch (argument->kind) {
    case GPU_ARG_BUFFER:
        TRY(set_buffer(context, kernel, *at, argument->buffer, &error));
        *at += 2;
        break;
    case GPU_ARG_I64: error = cl->clSetKernelArg(kernel, (*at)++, sizeof argument->i64, &argument->i64); break;
    case GPU_ARG_F32: error = cl->clSetKernelArg(kernel, (*at)++, sizeof argument->f32, &argument->f32); break;
    case GPU_ARG_SHARED: error = cl->clSetKernelArg(kernel, (*at)++, (size_t)argument->i64, NULL); break;
    }
    return opencl_check(error, "argument %u", (unsigned)*at - 1);
}

static Status set_arguments(GpuContext *context, cl_kernel kernel, const GpuArgument *arguments, int count) {
    Status status = NULL;
    cl_uint at = 0;
    pthread_rwlock_rdlock(&context->allocations.lock);
    for (int i = 0; !status && i < count; i++) status = set_argument(context, kernel, &arguments[i], &at);
    pthread_rwlock_unlock(&context->allocations.lock);
    return status;
}

static Status enqueue(GpuContext *context, Stream *stream, const GpuFunction *function, cl_kernel kernel, int64_t grid,
                      int block) {
    size_t local = (size_t)block, global = (size_t)grid * local;
    cl_int error = context->cl->clEnqueueNDRangeKernel(stream->queue, kernel, 1, NULL, &global, &local, 0, NULL, NULL);
    return opencl_check(error, "%lld work-groups of %d on OpenCL device \"%s\", where it may have %zu", (long long)grid,
                        block, context->device.name, function->block_threads);
}

Status opencl_launch(GpuContext *context, Stream *stream, const GpuFunction *function, int64_t grid, int block,
                     const GpuArgument *arguments, int count) {
    if (grid == 0) return NULL;
    if (grid < 0 || block < 1 || grid > INT64_MAX / block)
        return status_error(STATUS_FAULT, "kernel \"%s\": a grid of %lld blocks of %d", function->name, (long long)grid,
                            block);
    if (arguments_of(arguments, count) != function->arguments)
        return status_error(STATUS_FAULT, "kernel \"%s\" has %d arguments and is given %d", function->name,
                            function->arguments, arguments_of(arguments, count));
    cl_kernel kernel;
    TRY(take_kernel(context, function, &kernel));
    Status status = set_arguments(context, kernel, arguments, count);
    if (!status) status = enqueue(context, stream, function, kernel, grid, block);
    give_kernel(context, function, kernel);
    if (status) return status_at(status, "kernel \"%s\"", function->name);
    return opencl_submitted(context, stream);
}
