/* SPDX-License-Identifier: Apache-2.0 */
/* What a CUDA binary says of its kernels, read from the ELF file itself: no toolkit is needed. */
#ifndef ONNXFUSE_TESTS_GPU_CUBIN_H
#define ONNXFUSE_TESTS_GPU_CUBIN_H

#include <stdbool.h>
#include <stddef.h>

typedef struct CubinKernel {
    char name[128];
    int registers; /* a thread; 0: not told */
    int stack;     /* bytes of local memory a thread: spills, and arrays whose index is not known */
    int shared;    /* bytes of shared memory a block */
    int threads;   /* most threads a block, as its launch bounds say; 0: not told */
    bool calls;    /* has functions of the compiler's own beside it: the slow ways of divisions */
} CubinKernel;

enum { CUBIN_KERNELS = 256 };
typedef struct Cubin {
    int count;
    CubinKernel kernels[CUBIN_KERNELS];
} Cubin;

/* False when the bytes are no cubin. */
bool cubin_read(const void *bytes, size_t size, Cubin *out_cubin);

#endif
