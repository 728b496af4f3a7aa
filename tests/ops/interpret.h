/* SPDX-License-Identifier: Apache-2.0 */
/* A plain interpreter of lowered graphs for the tests of operators: primitives and anchors by their evaluators, host
 * kernels by calling them, control flow by running the bodies as ops/control/control.c says. */
#ifndef ONNXFUSE_TESTS_OPS_INTERPRET_H
#define ONNXFUSE_TESTS_OPS_INTERPRET_H

#include "base/pool.h"
#include "graph/graph.h"

/* inputs and outputs in the graph's order; outputs live in the arena or where the inputs do. */
Status interpret(const Graph *graph, const Item *inputs, Arena *arena, Item *outputs);
/* From now on host kernels get this pool; NULL, as at first: none. */
void interpret_on(Pool *pool);

#endif
