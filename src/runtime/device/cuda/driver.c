/* SPDX-License-Identifier: Apache-2.0 */
/* The table. Every call makes the context current on its thread and puts back what was current before, since the thread
 * may be the embedder's; takes the stream, or the context's own, which is waited for before the call returns; and calls
 * what state.h lists. */
#include "runtime/device/cuda/driver.h"

#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "lowering/anchors.h"
#include "runtime/device/cuda/blas.h"
#include "runtime/device/cuda/context.h"
#include "runtime/device/cuda/graph.h"
#include "runtime/device/cuda/memory.h"
#include "runtime/device/cuda/nvrtc.h"
#include "runtime/device/cuda/stream.h"

/* CUDA's limits of a launch. */
enum { MOST_ARGUMENTS = 512, MOST_BLOCK = 1024 };
static const int64_t most_grid = INT32_MAX;

static CudaContext *cuda_of(const GpuContext *context) { return (CudaContext *)(uintptr_t)context; }

typedef struct Call {
    CudaContext *context;
    CuContext previous; /* of the thread; NULL: it had none */
    CudaStream *stream; /* NULL: the call needs none */
    bool own;           /* it is the context's own, and `leave` waits for it */
} Call;

static Status enter(GpuContext *context, Call *out_call) {
    CudaContext *c = cuda_of(context);
    *out_call = (Call){.context = c};
    TRY(cuda_lost(c));
    TRY(cuda_check(c, c->api->context_get(&out_call->previous), "the thread's context"));
    CuResult result = c->api->context_set(c->handle);
    if (result && out_call->previous != c->handle) c->api->context_set(out_call->previous);
    return cuda_check(c, result, "the GPU's context cannot be used");
}

/* For calls that must clean up in a context that failed, too. */
static void enter_for_cleanup(GpuContext *context, Call *out_call) {
    CudaContext *c = cuda_of(context);
    *out_call = (Call){.context = c};
    if (c->api->context_get(&out_call->previous)) out_call->previous = NULL; /* better none than ours */
    c->api->context_set(c->handle);
}

static void take_stream(Call *call, Stream *stream) {
    call->own = !stream;
    call->stream = stream ? (CudaStream *)stream : &call->context->own;
    pthread_mutex_lock(&call->stream->lock);
}

static Status enter_stream(GpuContext *context, Stream *stream, Call *out_call) {
    TRY(enter(context, out_call));
    take_stream(out_call, stream);
    return NULL;
}

static Status leave(Call *call, Status status) {
    CudaContext *c = call->context;
    if (call->stream) {
        Status waited = call->own ? cuda_synchronize(c, call->stream) : NULL;
        if (status)
            status_free(waited);
        else
            status = waited;
        pthread_mutex_unlock(&call->stream->lock);
    }
    if (call->previous != c->handle) c->api->context_set(call->previous);
    return status;
}

/* --- the context --- */

/* With cuda.strict a library that cannot be used is no reason to compute products otherwise. */
static Status require_blas(GpuContext *context) {
    Call call;
    TRY(enter(context, &call));
    return leave(&call, cuda_blas_required(call.context));
}

static Status table_open(const Policy *policy, GpuContext **out_context) {
    CudaContext *c;
    TRY(cuda_context_open(policy, &c));
    Status status = policy->cuda.strict ? require_blas((GpuContext *)c) : NULL;
    if (status)
        cuda_context_close(c);
    else
        *out_context = (GpuContext *)c;
    return status;
}

static void table_close(GpuContext *context) { cuda_context_close(cuda_of(context)); }

static const GpuLimits *table_limits(const GpuContext *context) { return &cuda_of(context)->limits; }

static const char *table_target(const GpuContext *context) { return cuda_of(context)->target; }

/* --- programs --- */

static Status table_compile(GpuContext *context, const char *source, void **out_binary, size_t *out_size) {
    const CudaContext *c = cuda_of(context);
    return cuda_compile_with(c->nvrtc, c->arch, source, out_binary, out_size, NULL);
}

static Status table_load(GpuContext *context, const void *binary, size_t size, GpuModule **out_module) {
    Call call;
    CuModule module;
    TRY(enter(context, &call));
    Status status = cuda_module_load(call.context, binary, size, &module);
    if (!status) *out_module = (GpuModule *)module;
    return leave(&call, status);
}

static void table_unload(GpuContext *context, GpuModule *module) {
    Call call;
    enter_for_cleanup(context, &call);
    call.context->api->module_unload((CuModule)module);
    status_free(leave(&call, NULL));
}

static Status table_function(GpuContext *context, GpuModule *module, const char *name,
                             const GpuFunction **out_function) {
    Call call;
    CuFunction function;
    TRY(enter(context, &call));
    CuResult result = call.context->api->module_function(&function, (CuModule)module, name);
    Status status = result == CU_NOT_FOUND ? status_error(STATUS_FAULT, "CUDA: the program has no kernel \"%s\"", name)
                                           : cuda_check(call.context, result, "the kernel \"%s\" cannot be used", name);
    if (!status) *out_function = (const GpuFunction *)function;
    return leave(&call, status);
}

/* The function's launches may ask for so much shared memory: more than 48 KB with what it declares is an error else. */
static Status allow_shared(const Call *call, CuFunction function, int64_t bytes) {
    if (bytes > (int64_t)call->context->limits.shared_most)
        return status_error(STATUS_UNSUPPORTED, "CUDA: a block has no %lld bytes of shared memory", (long long)bytes);
    return cuda_check(call->context,
                      call->context->api->function_set(function, CU_FUNCTION_MAX_DYNAMIC_SHARED, (int)bytes),
                      "a kernel cannot have %lld bytes of shared memory", (long long)bytes);
}

static Status launch(const Call *call, const GpuFunction *gpu_function, int64_t grid, int block,
                     const GpuArgument *arguments, int count) {
    void *places[MOST_ARGUMENTS + 1];
    CuFunction function = (CuFunction)(uintptr_t)gpu_function;
    int taken = 0;
    int64_t shared = 0;
    if (grid > most_grid || block <= 0 || block > MOST_BLOCK || count < 0 || count > MOST_ARGUMENTS)
        return status_error(STATUS_UNSUPPORTED,
                            "CUDA: a launch of %lld blocks of %d threads with %d arguments is too large",
                            (long long)grid, block, count);
    for (int i = 0; i < count; i++) {
        const GpuArgument *a = &arguments[i];
        const void *place = a->kind == GPU_ARG_BUFFER ? (const void *)&a->buffer
                            : a->kind == GPU_ARG_I64  ? (const void *)&a->i64
                                                      : (const void *)&a->f32;
        if (a->kind == GPU_ARG_SHARED)
            shared += a->i64; /* no parameter of the kernel */
        else
            places[taken++] = (void *)(uintptr_t)place; /* read by the call, before it returns */
    }
    places[taken] = NULL; /* the driver takes no count: a kernel that wants one more finds nothing */
    if (shared) TRY(allow_shared(call, function, shared));
    return cuda_check(call->context,
                      call->context->api->launch(function, (unsigned)grid, 1, 1, (unsigned)block, 1, 1,
                                                 (unsigned)shared, call->stream->handle, places, NULL),
                      "cannot launch a kernel of %lld blocks of %d threads", (long long)grid, block);
}

static Status table_launch(GpuContext *context, Stream *stream, const GpuFunction *function, int64_t grid, int block,
                           const GpuArgument *arguments, int count) {
    Call call;
    if (grid <= 0) return NULL; /* nothing to do, which CUDA calls an error */
    TRY(enter_stream(context, stream, &call));
    return leave(&call, launch(&call, function, grid, block, arguments, count));
}

/* --- streams --- */

static Status table_stream_create(GpuContext *context, Stream **out_stream) {
    Call call;
    TRY(enter(context, &call));
    CudaStream *s = calloc(1, sizeof *s);
    Status status = s ? cuda_stream_open(call.context, s) : status_out_of_memory();
    if (status)
        free(s);
    else
        *out_stream = (Stream *)s;
    return leave(&call, status);
}

static void table_stream_destroy(GpuContext *context, Stream *stream) {
    Call call;
    if (!stream) return;
    enter_for_cleanup(context, &call);
    cuda_stream_close(call.context, (CudaStream *)stream);
    free(stream);
    status_free(leave(&call, NULL));
}

static Status table_synchronize(GpuContext *context, Stream *stream) {
    Call call;
    TRY(enter_stream(context, stream, &call));
    return leave(&call, call.own ? NULL : cuda_synchronize(call.context, call.stream));
}

/* --- memory --- */

static Status table_allocate(GpuContext *context, Stream *stream, size_t bytes, void **out_data) {
    Call call;
    CuDevicePointer data = 0;
    TRY(enter_stream(context, stream, &call));
    Status status = cuda_allocate(call.context, call.stream, bytes, &data);
    if (!status && call.own) {
        status = cuda_synchronize(call.context, call.stream); /* it is there for all streams */
        if (status) cuda_release(call.context, call.stream, data);
        call.own = false;
    }
    status = leave(&call, status);
    if (!status) *out_data = (void *)(uintptr_t)data;
    return status;
}

static void table_release(GpuContext *context, Stream *stream, void *data) {
    Call call;
    if (!data) return;
    enter_for_cleanup(context, &call);
    take_stream(&call, stream);
    cuda_release(call.context, call.stream, (CuDevicePointer)(uintptr_t)data);
    call.own = false; /* what is released needs no wait */
    status_free(leave(&call, NULL));
}

static size_t table_free_memory(GpuContext *context) {
    Call call;
    Status status = enter(context, &call);
    size_t bytes = status ? 0 : cuda_free_memory(call.context);
    if (status)
        status_free(status);
    else
        status_free(leave(&call, NULL));
    return bytes;
}

static void table_trim(GpuContext *context) {
    Call call;
    Status status = enter_stream(context, NULL, &call);
    if (!status) {
        status = cuda_memory_trim(call.context);
        call.own = false; /* it has waited */
        status = leave(&call, status);
    }
    if (status) LOG(1, "%s", status_message(status));
    status_free(status);
}

static Status table_copy(GpuContext *context, Stream *stream, CopyKind kind, void *to, const void *from, size_t bytes) {
    Call call;
    if (!bytes) return NULL;
    TRY(enter_stream(context, stream, &call));
    return leave(&call, cuda_copy(call.context, call.stream, kind, to, from, bytes));
}

static Status table_fill_zero(GpuContext *context, Stream *stream, void *data, size_t bytes) {
    Call call;
    if (!bytes) return NULL;
    TRY(enter_stream(context, stream, &call));
    CuResult result = call.context->api->fill((CuDevicePointer)(uintptr_t)data, 0, bytes, call.stream->handle);
    return leave(&call, cuda_check(call.context, result, "cannot fill %zu bytes", bytes));
}

/* --- products and recordings --- */

static bool table_gemm_supports(GpuContext *context, const GpuGemm *gemm) {
    CudaContext *c = cuda_of(context);
    Call call;
    if (!cuda_gemm_possible(gemm)) return false;
    if (atomic_load(&c->blas)) return true;
    Status status = enter(context, &call);
    if (status) {
        status_free(status);
        return false;
    }
    bool there = cuda_blas(c) != NULL;
    status_free(leave(&call, NULL));
    return there;
}

static Status table_gemm(GpuContext *context, Stream *stream, const GpuGemm *gemm, size_t *out_workspace) {
    Call call;
    TRY(enter_stream(context, stream, &call));
    return leave(&call, cuda_gemm(call.context, call.stream, gemm, out_workspace));
}

static Status no_stream(void) { return status_error(STATUS_FAULT, "CUDA: a recording needs a stream"); }

static Status table_record_begin(GpuContext *context, Stream *stream) {
    Call call;
    if (!stream) return no_stream();
    TRY(enter_stream(context, stream, &call));
    return leave(&call, cuda_record_begin(call.context, call.stream));
}

static Status table_record_end(GpuContext *context, Stream *stream, void **out_recording) {
    Call call;
    if (!stream) return no_stream();
    enter_for_cleanup(context, &call); /* the capture ends in any case */
    take_stream(&call, stream);
    return leave(&call, cuda_record_end(call.context, call.stream, out_recording));
}

static Status table_record_abandon(GpuContext *context, Stream *stream) {
    Call call;
    if (!stream) return no_stream();
    enter_for_cleanup(context, &call);
    take_stream(&call, stream);
    return leave(&call, cuda_record_abandon(call.context, call.stream));
}

static Status table_replay(GpuContext *context, Stream *stream, void *recording) {
    Call call;
    TRY(enter_stream(context, stream, &call));
    return leave(&call, cuda_replay(call.context, call.stream, recording));
}

static void table_record_free(GpuContext *context, void *recording) {
    Call call;
    if (!recording) return;
    enter_for_cleanup(context, &call);
    cuda_record_free(call.context, recording);
    status_free(leave(&call, NULL));
}

const GpuDriver cuda_driver = {
    .dialect = GPU_CUDA,
    .describe = cuda_describe,
    .open = table_open,
    .close = table_close,
    .limits = table_limits,
    .target = table_target,
    .compile = table_compile,
    .load = table_load,
    .unload = table_unload,
    .function = table_function,
    .stream_create = table_stream_create,
    .stream_destroy = table_stream_destroy,
    .synchronize = table_synchronize,
    .allocate = table_allocate,
    .release = table_release,
    .free_memory = table_free_memory,
    .trim = table_trim,
    .copy = table_copy,
    .fill_zero = table_fill_zero,
    .launch = table_launch,
    .gemm_supports = table_gemm_supports,
    .gemm = table_gemm,
    .gemm_name = "cublasLt",
    .record_begin = table_record_begin,
    .record_end = table_record_end,
    .record_abandon = table_record_abandon,
    .replay = table_replay,
    .record_free = table_record_free,
};
