/* SPDX-License-Identifier: Apache-2.0 */
/* What a kernel is run on, and how its results are judged. */
#ifndef ONNXFUSE_TESTS_GPU_DATA_H
#define ONNXFUSE_TESTS_GPU_DATA_H

#include "cases.h"

/* The expected outputs of a kernel for one set of sizes. Kernels compute the same bits everywhere but where the order
 * of float sums and products shows: then each element may be as far off as other orders take it. */
typedef struct Trial {
    const KernelCase *c;
    const Binding *binding;
    void **buffers;   /* [buffers] inputs as given, outputs as expected */
    bool exact;       /* no float sums or products */
    void **perturbed; /* [buffers * PERTURBED] of the outputs, when not exact */
    double *usual; /* [buffers] by how much elements are off on the average: where pushes cancel, that much is fair */
} Trial;

enum { PERTURBED = 3 };

/* special: infinities, NaN, denormals and the ends of integer ranges among the inputs. NULL when memory runs out. */
Trial *trial_create(const KernelCase *c, const Binding *binding, uint64_t seed, bool special);
/* The inputs alone; outputs hold garbage. */
Trial *trial_inputs(const KernelCase *c, const Binding *binding, uint64_t seed, bool special);
void trial_free(Trial *trial); /* accepts NULL */
bool kernel_sums_floats(const Kernel *kernel);
/* NULL when the output is right, else the first difference, in `text`'s arena. */
const char *trial_difference(const Trial *trial, int buffer, const void *got, Arena *arena);

#endif
