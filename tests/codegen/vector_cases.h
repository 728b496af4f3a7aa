/* SPDX-License-Identifier: Apache-2.0 */
/* The functions of base/vectors over arrays, for each instruction set: a unit that defines ISA and what vector_math.h
 * wants, and includes this, defines vectors_<ISA>. */
#ifndef ONNXFUSE_TESTS_VECTOR_CASES_H
#define ONNXFUSE_TESTS_VECTOR_CASES_H

#include <stdint.h>

typedef struct VectorCases {
    void (*tanh)(const float *x, float *y, int64_t count); /* count: a multiple of 16 */
    void (*sigmoid)(const float *x, float *y, int64_t count);
    void (*exp_below)(const float *x, float *y, int64_t count);
} VectorCases;

extern const VectorCases vectors_base;
#if defined(__x86_64__)
extern const VectorCases vectors_avx2, vectors_avx512;
#endif

#endif

#ifdef ISA
#include "base/vectors/vector_math.h" /* last: what follows is compiled for the set */

#define EACH(name)                                                                                                     \
    static void name##_each(const float *x, float *y, int64_t count) {                                                 \
        for (int64_t i = 0; i < count; i += VECTOR_BYTES / 4)                                                          \
            *(VFLoose *)(y + i) = name##_vector(*(const VFLoose *)(x + i));                                            \
    }
EACH(tanh)
EACH(sigmoid)

static void exp_below_each(const float *x, float *y, int64_t count) {
    enum { LANES = VECTOR_BYTES / 4, TOGETHER = 4 };
    VF v[TOGETHER];
    int64_t i = 0;
    for (; i + TOGETHER * LANES <= count; i += TOGETHER * LANES) {
        for (int k = 0; k < TOGETHER; k++) v[k] = *(const VFLoose *)(x + i + k * LANES);
        exp_below_vectors(v, TOGETHER);
        for (int k = 0; k < TOGETHER; k++) *(VFLoose *)(y + i + k * LANES) = v[k];
    }
    for (; i < count; i += LANES) {
        v[0] = *(const VFLoose *)(x + i);
        exp_below_vectors(v, 1);
        *(VFLoose *)(y + i) = v[0];
    }
}

#define JOIN_(a, b) a##_##b
#define JOIN(a, b) JOIN_(a, b)
const VectorCases JOIN(vectors, ISA) = {tanh_each, sigmoid_each, exp_below_each};

VECTOR_END
#endif
