/* SPDX-License-Identifier: Apache-2.0 */
/* Anchors on the CPU with the kernels of their epilogues, as a plan prepares and runs them. */
#ifndef ONNXFUSE_TESTS_RUNTIME_ANCHOR_KERNEL_H
#define ONNXFUSE_TESTS_RUNTIME_ANCHOR_KERNEL_H

#include "runtime/device/cpu/anchor.h"

/* An anchor's epilogue compiled, where it needs that. */
typedef struct AnchorKernel {
    RegionKernel region;
    KernelCode *code; /* NULL: none is needed */
} AnchorKernel;

AnchorKernel anchor_kernel(Arena *arena, const Node *node);
void anchor_kernel_release(AnchorKernel *kernel);
/* cpu_anchor_run with it. */
Status anchor_kernel_run(CpuAnchor *anchor, const AnchorKernel *kernel, const Tensor *const *inputs, Tensor *outputs,
                         Pool *pool);
/* The same, of an anchor that is compiled for this run. */
Status anchor_run_once(CpuAnchor *anchor, const Node *node, const Tensor *const *inputs, Tensor *outputs, Pool *pool);

#endif
