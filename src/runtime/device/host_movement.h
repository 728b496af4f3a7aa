/* SPDX-License-Identifier: Apache-2.0 */
/* Primitives outside regions on the CPU: movement in whole rows, and the evaluator for the rest. */
#ifndef ONNXFUSE_RUNTIME_DEVICE_HOST_MOVEMENT_H
#define ONNXFUSE_RUNTIME_DEVICE_HOST_MOVEMENT_H

#include "base/pool.h"
#include "graph/graph.h"

/* Computes a primitive node on dense tensors into output, whose dims and memory are given. scratch: freed by the
 * caller. */
Status move_prim(const Node *node, const Tensor *const *inputs, const int64_t *symbols, Tensor *output, Pool *pool,
                 Arena *scratch);
/* numpy broadcast of `from` to the shape of `to`; STATUS_INVALID when it does not fit. */
Status move_broadcast(const Tensor *from, Tensor *to, Pool *pool);

#endif
