/* SPDX-License-Identifier: Apache-2.0 */
/* The double of NVRTC: a "binary" is the source behind a tag with the architecture. "#error TEXT" in a source fails. */
#include "books.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct Program {
    Object object;
    char *source, *binary, *log;
    size_t binary_size;
    bool native;
} Program;

#define DECLARE_API(result, field, symbol, parameters) result symbol parameters;
CUDA_NVRTC_FUNCTIONS(DECLARE_API)

#define GIVE(value)                                                                                                    \
    do {                                                                                                               \
        NvrtcResult give_ = (NvrtcResult)(value);                                                                      \
        books_leave();                                                                                                 \
        return give_;                                                                                                  \
    } while (0)
#define ENTER()                                                                                                        \
    int injected = books_enter(NVRTC_INTERNAL);                                                                        \
    if (injected) GIVE(injected);

const char *nvrtcGetErrorString(NvrtcResult result) {
    return result == NVRTC_COMPILATION ? "NVRTC_ERROR_COMPILATION" : "NVRTC_ERROR_OF_DOUBLE";
}

NvrtcResult nvrtcVersion(int *major, int *minor) {
    ENTER();
    *major = 13;
    *minor = 0;
    GIVE(NVRTC_OK);
}

NvrtcResult nvrtcGetNumSupportedArchs(int *count) {
    ENTER();
    *count = 2;
    GIVE(NVRTC_OK);
}

/* The oldest and the newest; the one between is native as well (cuda_compile_target looks for an equal one). */
NvrtcResult nvrtcGetSupportedArchs(int *archs) {
    ENTER();
    int64_t oldest = books_property(DOUBLE_NVRTC_OLDEST), newest = books_property(DOUBLE_NVRTC_NEWEST);
    int64_t arch = books_property(DOUBLE_ARCH);
    archs[0] = (int)oldest;
    archs[1] = (int)(arch >= oldest && arch <= newest ? arch : newest);
    GIVE(NVRTC_OK);
}

NvrtcResult nvrtcCreateProgram(NvrtcProgram *out_program, const char *source, const char *name, int header_count,
                               const char *const *headers, const char *const *header_names) {
    ENTER();
    if (!source || !source[0] || !name || header_count || headers || header_names) {
        books_violation("a program without text, or with headers");
        GIVE(3);
    }
    Program *p = books_new(OBJECT_PROGRAM, sizeof *p, false);
    p->source = strdup(source);
    *out_program = (NvrtcProgram)p;
    GIVE(p->source ? NVRTC_OK : NVRTC_OUT_OF_MEMORY);
}

NvrtcResult nvrtcDestroyProgram(NvrtcProgram *program) {
    int injected = books_enter(NVRTC_INTERNAL);
    Program *p = books_check(*program, OBJECT_PROGRAM, __func__);
    if (!p) GIVE(4);
    free(p->source);
    free(p->binary);
    free(p->log);
    p->source = p->binary = p->log = NULL;
    p->object.alive = false;
    *program = NULL;
    GIVE(injected);
}

static bool fail_to_compile(Program *p) {
    const char *error = strstr(p->source, "#error ");
    if (!error) return false;
    if (asprintf(&p->log, "onnxfuse.cu(1): error: %s\n", error + 7) < 0) p->log = NULL;
    return true;
}

NvrtcResult nvrtcCompileProgram(NvrtcProgram program, int count, const char *const *options) {
    ENTER();
    Program *p = books_check(program, OBJECT_PROGRAM, __func__);
    if (!p) GIVE(4);
    int arch = 0;
    char kind[16] = "";
    bool strict = false;
    for (int i = 0; i < count; i++) {
        if (sscanf(options[i], "--gpu-architecture=%15[a-z]_%d", kind, &arch) == 2) p->native = strcmp(kind, "sm") == 0;
        if (strcmp(options[i], "--fmad=false") == 0) strict = true;
    }
    if (!arch || !strict) books_violation("a compilation without architecture or with contraction");
    if (fail_to_compile(p)) GIVE(NVRTC_COMPILATION);
    int size = asprintf(&p->binary, p->native ? "\177ELF double sm_%d %s%64s" : "double ptx compute_%d %s%64s", arch,
                        p->source, "");
    if (size < 0) p->binary = NULL;
    p->binary_size = (size_t)size + 1;
    GIVE(p->binary ? NVRTC_OK : NVRTC_OUT_OF_MEMORY);
}

static NvrtcResult binary_size(NvrtcProgram program, bool native, size_t *size) {
    ENTER();
    Program *p = books_check(program, OBJECT_PROGRAM, __func__);
    if (!p || !p->binary) GIVE(4);
    *size = p->native || !native ? p->binary_size : 0;
    GIVE(NVRTC_OK);
}

static NvrtcResult binary(NvrtcProgram program, bool native, char *out) {
    ENTER();
    Program *p = books_check(program, OBJECT_PROGRAM, __func__);
    if (!p || !p->binary || (native && !p->native)) GIVE(4);
    memcpy(out, p->binary, p->binary_size);
    GIVE(NVRTC_OK);
}

NvrtcResult nvrtcGetCUBINSize(NvrtcProgram program, size_t *size) { return binary_size(program, true, size); }
NvrtcResult nvrtcGetCUBIN(NvrtcProgram program, char *cubin) { return binary(program, true, cubin); }
NvrtcResult nvrtcGetPTXSize(NvrtcProgram program, size_t *size) { return binary_size(program, false, size); }
NvrtcResult nvrtcGetPTX(NvrtcProgram program, char *ptx) { return binary(program, false, ptx); }

NvrtcResult nvrtcGetProgramLogSize(NvrtcProgram program, size_t *size) {
    ENTER();
    Program *p = books_check(program, OBJECT_PROGRAM, __func__);
    if (!p) GIVE(4);
    *size = p->log ? strlen(p->log) + 1 : 1;
    GIVE(NVRTC_OK);
}

NvrtcResult nvrtcGetProgramLog(NvrtcProgram program, char *log) {
    ENTER();
    Program *p = books_check(program, OBJECT_PROGRAM, __func__);
    if (!p) GIVE(4);
    strcpy(log, p->log ? p->log : "");
    GIVE(NVRTC_OK);
}
