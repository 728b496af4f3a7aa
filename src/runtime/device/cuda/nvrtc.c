/* SPDX-License-Identifier: Apache-2.0 */
/* See nvrtc.h. */
#include "runtime/device/cuda/nvrtc.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/log.h"
#include "runtime/device/cuda/loader.h"

enum { MOST_ARCHS = 128, MOST_LOG_LINES = 4, MOST_LOG_TEXT = 800 };

static Status failure(const CudaNvrtc *nvrtc, NvrtcResult result, const char *what) {
    if (result == NVRTC_OUT_OF_MEMORY) return status_out_of_memory();
    return status_error(STATUS_FAULT, "NVRTC: %s: %s", what, nvrtc->error_text(result));
}

Status cuda_compile_target(const CudaNvrtc *nvrtc, int arch, int *out_arch, bool *out_native) {
    int count = 0, archs[MOST_ARCHS], older = 0, oldest = 0, major = 0, minor = 0;
    NvrtcResult result = nvrtc->arch_count(&count);
    if (!result && (count <= 0 || count > MOST_ARCHS)) result = NVRTC_INTERNAL;
    if (!result) result = nvrtc->archs(archs);
    if (result) return failure(nvrtc, result, "the architectures it compiles for");
    *out_native = false;
    for (int i = 0; i < count; i++) {
        if (archs[i] == arch) *out_native = true;
        if (archs[i] <= arch && archs[i] > older) older = archs[i];
        if (!oldest || archs[i] < oldest) oldest = archs[i];
    }
    *out_arch = older;
    if (older) return NULL;
    nvrtc->version(&major, &minor);
    return status_error(STATUS_USAGE,
                        "NVRTC %d.%d compiles for sm_%d and newer, the GPU is an sm_%d: install NVRTC of an older CUDA "
                        "toolkit and name its folder in the policy (cuda.libraries)",
                        major, minor, oldest, arch);
}

/* Programs for sm_90a run on sm_90 alone, and may use what no later architecture has (wgmma); CUDA 12 is the first to know
 * it. */
void cuda_target_name(const CudaNvrtc *nvrtc, int arch, bool native, char out_name[CUDA_TARGET_NAME]) {
    snprintf(out_name, CUDA_TARGET_NAME, "%s_%d%s", native ? "sm" : "compute", arch,
             native && cuda_target_has_groups(nvrtc, arch) ? "a" : "");
}

bool cuda_target_has_groups(const CudaNvrtc *nvrtc, int arch) {
    int major = 0, minor;
    nvrtc->version(&major, &minor);
    return arch == 90 && major >= 12;
}

/* The messages, or NULL. */
static char *read_log(const CudaNvrtc *nvrtc, NvrtcProgram program) {
    size_t size = 0;
    if (nvrtc->log_size(program, &size) || size <= 1) return NULL;
    char *log = calloc(size + 1, 1);
    if (log && nvrtc->log(program, log)) {
        free(log);
        return NULL;
    }
    return log;
}

/* Where the first few lines of a log end. */
static int first_lines(const char *log) {
    const char *at = log;
    for (int lines = 0; *at && at - log < MOST_LOG_TEXT; at++)
        if (*at == '\n' && ++lines == MOST_LOG_LINES) break;
    while (at > log && (at[-1] == '\n' || at[-1] == ' ')) at--;
    return (int)(at - log);
}

static Status run_compiler(const CudaNvrtc *nvrtc, NvrtcProgram program, int arch, bool native, char **out_log) {
    char target[48], name[CUDA_TARGET_NAME];
    cuda_target_name(nvrtc, arch, native, name);
    snprintf(target, sizeof target, "--gpu-architecture=%s", name);
    const char *options[] = {target, CUDA_COMPILE_OPTIONS};
    NvrtcResult result = nvrtc->compile(program, (int)(sizeof options / sizeof *options), options);
    char *log = read_log(nvrtc, program);
    Status status = NULL;
    if (result && log && result != NVRTC_OUT_OF_MEMORY)
        status = status_error(STATUS_FAULT, "NVRTC does not compile a kernel: %.*s", first_lines(log), log);
    else if (result)
        status = failure(nvrtc, result, "a kernel is not compiled");
    else if (log)
        LOG(2, "NVRTC: %s", log);
    *out_log = log;
    return status;
}

static Status read_binary(const CudaNvrtc *nvrtc, NvrtcProgram program, bool native, void **out_binary,
                          size_t *out_size) {
    size_t size = 0;
    NvrtcResult result = native ? nvrtc->cubin_size(program, &size) : nvrtc->ptx_size(program, &size);
    if (!result && size == 0) result = NVRTC_INTERNAL;
    if (result) return failure(nvrtc, result, "the size of a compiled kernel");
    char *binary = malloc(size);
    if (!binary) return status_out_of_memory();
    result = native ? nvrtc->cubin(program, binary) : nvrtc->ptx(program, binary);
    if (result) {
        free(binary);
        return failure(nvrtc, result, "a compiled kernel");
    }
    *out_binary = binary;
    *out_size = size;
    return NULL;
}

Status cuda_compile_with(const CudaNvrtc *nvrtc, int arch, const char *source, void **out_binary, size_t *out_size,
                         char **out_log) {
    int compiled_arch;
    bool native;
    NvrtcProgram program = NULL;
    char *log = NULL;
    if (out_log) *out_log = NULL;
    TRY(cuda_compile_target(nvrtc, arch, &compiled_arch, &native));
    NvrtcResult result = nvrtc->create(&program, source, "onnxfuse.cu", 0, NULL, NULL);
    if (result) return failure(nvrtc, result, "a kernel's text is not accepted");
    Status status = run_compiler(nvrtc, program, compiled_arch, native, &log);
    if (!status) status = read_binary(nvrtc, program, native, out_binary, out_size);
    nvrtc->destroy(&program);
    if (out_log)
        *out_log = log;
    else
        free(log);
    return status;
}

Status cuda_compile(const char *libraries, int arch, const char *source, void **out_binary, size_t *out_size,
                    char **out_log) {
    const CudaNvrtc *nvrtc;
    if (out_log) *out_log = NULL;
    TRY(cuda_load_nvrtc(libraries, 0, &nvrtc));
    return cuda_compile_with(nvrtc, arch, source, out_binary, out_size, out_log);
}
