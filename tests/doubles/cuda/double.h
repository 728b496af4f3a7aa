/* SPDX-License-Identifier: Apache-2.0 */
/* Doubles of libcuda, NVRTC and cuBLASLt for tests without a GPU. They keep exact books of every object and every byte,
 * run copies, fills and products for real, and only when somebody waits for them, so that a missing wait or a buffer
 * used too late shows. A test opens libcuda's double with dlopen and takes these functions from it.
 *
 * Device addresses are no host addresses: following one faults. Launches are checked against what the kernel's text
 * says (kernel.h): how many parameters of which sizes, launch bounds, shared memory, and what its accesses ask of
 * addresses. Kernels are not run, except for two that tests name:
 *   add(float *data, long long n, float x)   data[i] += x
 *   fault()                                  an illegal address: the context is lost at the next wait */
#ifndef ONNXFUSE_TESTS_CUDA_DOUBLE_H
#define ONNXFUSE_TESTS_CUDA_DOUBLE_H

#include <stddef.h>
#include <stdint.h>

typedef enum DoubleProperty {                        /* default */
                              DOUBLE_DRIVER_VERSION, /* 13000 */
                              DOUBLE_DEVICES,        /* 1 */
                              DOUBLE_ARCH,           /* 90 */
                              DOUBLE_POOLS,          /* 1 */
                              DOUBLE_MEMORY,         /* bytes of the device; 1 << 30 */
                              DOUBLE_POOL_KEEPS,     /* 0; 1: released memory is of no use to anybody until the pool is
                                                        trimmed */
                              DOUBLE_LOST_AFTER,     /* calls until the device is lost; 0: never */
                              DOUBLE_INIT_RESULT,    /* of cuInit */
                              DOUBLE_LOAD_RESULT,    /* of cuModuleLoadData */
                              DOUBLE_NVRTC_OLDEST,   /* 75: architectures that it compiles for */
                              DOUBLE_NVRTC_NEWEST,   /* 120 */
                              DOUBLE_BLAS_CREATE,    /* result of cublasLtCreate */
                              DOUBLE_BLAS_WORKSPACE, /* bytes that each product needs; 4096 */
                              DOUBLE_BLAS_REFUSES,   /* 1: no algorithm is found */
                              DOUBLE_BLAS_MATMUL,    /* result of cublasLtMatmul before anything is done */
                              DOUBLE_BLAS_LOADS, /* 1: a product's first run loads a kernel, which a strict recording
                                                    forbids */
                              DOUBLE_PROPERTIES,
} DoubleProperty;

typedef struct DoubleLaunch {
    char name[64];
    unsigned grid, block;
    int count;
    uint64_t values[16]; /* of the first arguments, as they were at the launch */
} DoubleLaunch;

/* X(result, name, parameters) */
#define DOUBLE_FUNCTIONS(X)                                                                                            \
    /* Forgets everything, properties and counters too. */                                                             \
    X(void, double_reset, (void))                                                                                      \
    X(void, double_set_property, (DoubleProperty property, int64_t value))                                             \
    /* The n-th call from now on (1: the next) of any function that can fail does so; 0: none. A call that releases */ \
    /* something does so all the same, as the real ones, which then report what happened before. */                    \
    X(void, double_fail_at, (int n))                                                                                   \
    X(int, double_calls, (void))       /* calls that can fail, since the reset or double_fail_at */                    \
    X(int, double_outstanding, (void)) /* objects and references that nobody released */                               \
    X(const char *, double_first_outstanding, (void))                                                                  \
    X(int, double_violations, (void))                                                                                  \
    X(const char *, double_first_violation, (void)) /* "" when there is none */                                        \
    X(size_t, double_memory_used, (void))                                                                              \
    X(size_t, double_memory_held, (void))        /* and what pools keep of the device */                               \
    X(int, double_made, (const char *kind))      /* objects of a kind ("stream", "pinned") since the reset */          \
    X(void *, double_foreign_context, (void))    /* one of an embedder's; not counted */                               \
    X(void, double_set_context, (void *context)) /* of the thread, no call that can fail */                            \
    X(void *, double_current_context, (void))                                                                          \
    X(int, double_launch_count, (void))                                                                                \
    X(const DoubleLaunch *, double_launch, (int index))                                                                \
    X(int, double_replay_count, (void))                                                                                \
    X(int, double_heuristic_calls, (void))                                                                             \
    X(int, double_reduction_mask, (void)) /* of the last heuristic */                                                  \
    X(int, double_compute_type, (void))   /* of the last product */                                                    \
    X(int, double_stream_waits, (void))   /* calls of cuStreamSynchronize */

#endif
