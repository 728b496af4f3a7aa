/* SPDX-License-Identifier: Apache-2.0 */
/* A plain interpreter of the kernel IR: the meaning of kernel.h without LLVM. */
#ifndef ONNXFUSE_TESTS_KERNEL_EVAL_H
#define ONNXFUSE_TESTS_KERNEL_EVAL_H

#include "codegen/kernel.h"

/* Runs the whole launch. buffers: in the kernel's order. */
void kernel_eval(const Kernel *kernel, void *const *buffers, const int64_t *params);

/* As above with sums and products of floats in double, each result then off by up to about (8 + sqrt(n)) roundings of
 * its n terms' magnitudes, in a direction drawn from `seed`; 0: not off. What the outputs differ by over a few seeds is
 * how far another order of the terms may take them. */
void kernel_eval_perturbed(const Kernel *kernel, void *const *buffers, const int64_t *params, uint64_t seed);

#endif
