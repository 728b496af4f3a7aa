/* SPDX-License-Identifier: Apache-2.0 */
/* Products of few rows by columns whose depths follow each other in memory: such a column is multiplied where it lies, as packing it
 * would cost more than the product. */
#ifndef ONNXFUSE_RUNTIME_DEVICE_CPU_DOTS_H
#define ONNXFUSE_RUNTIME_DEVICE_CPU_DOTS_H

#include "runtime/device/cpu/parts.h"
#include "runtime/device/matmul_shape.h"

/* f32, b transposed in memory. */
bool dots_take(const MatmulShape *shape);
/* a, b: of f32, or with `halves` both of f16. */
Status dots_run(AnchorRun *run, const MatmulShape *shape, const void *a, const void *b, bool halves, void *result,
                float alpha);

/* Weights in blocks as they came, which stand for b. */
bool dots_take_blocks(const MatmulShape *shape, const WeightBlocks *blocks);
Status dots_run_blocks(AnchorRun *run, const MatmulShape *shape, const float *a, const WeightBlocks *blocks,
                       void *result, float alpha);

#endif
