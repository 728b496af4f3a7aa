/* A plain interpreter of the kernel IR: the meaning of kernel.h without LLVM. */
#ifndef ONNXFUSE_TESTS_KERNEL_EVAL_H
#define ONNXFUSE_TESTS_KERNEL_EVAL_H

#include "codegen/kernel.h"

/* Runs the whole launch. buffers: in the kernel's order. */
void kernel_eval(const Kernel *kernel, void *const *buffers, const int64_t *params);

#endif
