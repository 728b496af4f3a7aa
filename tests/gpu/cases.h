/* SPDX-License-Identifier: Apache-2.0 */
/* The kernels that models need on GPUs, each once, with sizes to run them at. What the runtime compiles for a model is
 * found the way the runtime finds it: importer, passes, codegen_region. */
#ifndef ONNXFUSE_TESTS_GPU_CASES_H
#define ONNXFUSE_TESTS_GPU_CASES_H

#include "base/map.h"
#include "codegen/codegen.h"
#include "policy/policy.h"

/* One set of run-time sizes. */
typedef struct Binding {
    int64_t *params;   /* [kernel->param_count] */
    int64_t *elements; /* [buffers] that each buffer must have */
    int64_t work;      /* points of the space times instructions */
} Binding;

typedef struct KernelCase {
    const Kernel *kernel;
    bool program;       /* no kernel of a region but a complete program (programs.h), which `text` is */
    const char *text;   /* kernel_print's */
    const char *origin; /* the first model and region that need it */
    int *inplace;       /* [buffers] for outputs: the input buffer that may be the same memory, or -1 */
    VEC(Binding) bindings;
    bool too_large; /* no set of sizes was within the budget */
} KernelCase;

struct ProgramRecorder;
typedef struct Cases {
    Arena *arena;
    struct ProgramRecorder *recorder; /* NULL: kernels of regions alone are collected */
    Policy policy;                    /* device and target as the runtime has them */
    int64_t most_work;
    Map by_text;
    VEC(KernelCase *) items;
    int models, regions, refused; /* refused: models that do not import or lower */
} Cases;

/* device: DEVICE_OPENCL, DEVICE_CUDA, or DEVICE_CPU to prove the proof itself. */
Status cases_create(DeviceKind device, int64_t most_work, Cases **out_cases);
void cases_destroy(Cases *cases);
/* A model (.onnx), a graph of primitives as text (.graph), or a folder: every such file in it. sizes: the values of the
 * model's symbols ("n=4096,m=64"); NULL: sizes of many kinds are tried. */
Status cases_add(Cases *cases, const char *path, const char *sizes);
/* Random graphs (tests/passes/random_graph.h) of seeds 1 to count. */
Status cases_add_random(Cases *cases, int count);

int64_t kernel_axis_size(const Kernel *kernel, int axis, const int64_t *params);
size_t binding_bytes(const KernelCase *c, const Binding *binding, int buffer);

#endif
