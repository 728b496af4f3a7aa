/* SPDX-License-Identifier: Apache-2.0 */
/* What the double knows of a program's kernels: what a compiled kernel's own list of parameters, its launch bounds and
 * its shared memory say, read from the source behind the C preprocessor. */
#ifndef ONNXFUSE_TESTS_CUDA_KERNEL_H
#define ONNXFUSE_TESTS_CUDA_KERNEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { KERNEL_MOST_PARAMS = 160, KERNEL_MOST = 8 };

typedef struct KernelParam {
    char name[48];
    char kind;     /* 'p' pointer, 'f' float, 'i' integer */
    int size;      /* bytes */
    int alignment; /* pointers: of the widest access that the kernel's body itself makes, which no condition guards */
} KernelParam;

typedef struct SourceKernel {
    char name[64];
    int most_threads;  /* launch bounds; 0: none are given */
    size_t shared;     /* bytes of static shared memory */
    bool shared_given; /* by the launch, beside it */
    int pack; /* bytes of a pack of neighbours that helper functions access where the host allows it; 0: none do */
    int param_count;
    KernelParam params[KERNEL_MOST_PARAMS];
} SourceKernel;

typedef struct SourceKernels {
    int count;
    SourceKernel items[KERNEL_MOST];
} SourceKernels;

/* Kept for the process: equal sources are read once. Ends the process with a message where there is no preprocessor or
 * the text is not understood, since a test that checks nothing would pass. */
const SourceKernels *kernels_of_source(const char *source);

#endif
