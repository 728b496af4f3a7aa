/* SPDX-License-Identifier: Apache-2.0 */
/* The plain evaluator of primitives: loops, no speed. Folds constants, and is the oracle for generated kernels. */
#ifndef ONNXFUSE_GRAPH_EVAL_EVAL_H
#define ONNXFUSE_GRAPH_EVAL_EVAL_H

#include "base/pool.h"
#include "graph/graph.h"

/* Computes one primitive node on dense tensors. symbols: bindings for the node's dims attributes (may be NULL when all
 * are constant). Outputs are new tensors in `arena`. Errors: STATUS_INVALID for an index out of range or shapes that do
 * not fit, naming the node's origin. */
Status eval_prim(const Node *node, Tensor *const *inputs, const int64_t *symbols, Arena *arena, Tensor **out_result);
/* As eval_prim; large elementwise work is shared by the pool's threads (NULL: none), with the same results. */
Status eval_prim_on(Pool *pool, const Node *node, Tensor *const *inputs, const int64_t *symbols, Arena *arena,
                    Tensor **out_result);
/* An index that is out of range for `size`, told in terms of the node: of a loss where its attribute "labels" names one. indices, at: where it
 * stands; NULL: not known. */
Status eval_index_error(const Node *node, int64_t index, int64_t size, const Tensor *indices, int64_t at);
/* A scatter whose result's memory holds its data already: what the indices tell is placed. It may be done in parts,
 * [0, parts), at once and in any order: each element is one part's, which takes its updates in their order. */
Status eval_scatter_into(const Node *node, Tensor *const *inputs, int part, int parts, Tensor *out);
/* Runs a whole graph of primitives (also a region's body). inputs/outputs in the graph's order; symbols are bound from
 * the inputs' shapes where symbols[i] is UNBOUND_DIM. symbols: [dim_symbol_count], updated. */
Status eval_graph(const Graph *graph, Tensor *const *inputs, int64_t *symbols, Arena *arena, Tensor **out_outputs);
/* Binds the symbols of an input's declared dims from an actual shape; STATUS_INVALID with name and dims when they do
 * not fit. A dim that is an unbound lone symbol is bound; any other expression is checked once its symbols are known.
 */
Status bind_dims(const DimTable *table, const Value *value, int rank, const int64_t *actual, int64_t *symbols);

#endif
