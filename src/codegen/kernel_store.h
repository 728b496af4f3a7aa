/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels as bytes, in the words of graph/store.h: what a compiled model holds of its regions. */
#ifndef ONNXFUSE_CODEGEN_KERNEL_STORE_H
#define ONNXFUSE_CODEGEN_KERNEL_STORE_H

#include "codegen/codegen.h"
#include "graph/store.h"

void store_kernel(StoreWriter *w, const Kernel *kernel);
/* In the graph's arena, verified; NULL after a mistake. */
const Kernel *restore_kernel(StoreReader *r);

/* How a region calls its kernel: all of RegionKernel but kernel and code. */
void store_region(StoreWriter *w, const Node *region, const RegionKernel *kernel);
/* region: the kernel stands already. What it says fits the node and the kernel, else there is a mistake. */
void restore_region(StoreReader *r, const Node *node, RegionKernel *region);

#endif
