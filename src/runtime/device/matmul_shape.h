/* SPDX-License-Identifier: Apache-2.0 */
/* A matrix product's sizes and strides, from its node's permutes (lowering/anchors.h) and its factors' actual shapes: the
 * same on all devices. */
#ifndef ONNXFUSE_RUNTIME_DEVICE_MATMUL_SHAPE_H
#define ONNXFUSE_RUNTIME_DEVICE_MATMUL_SHAPE_H

#include "graph/graph.h"

/* Axes from outermost to innermost are the batch axes (all of the result's; broadcast ones have stride 0), then rows
 * and columns. Strides in elements. */
typedef struct MatmulShape {
    int batch_rank;
    int64_t batch[MAX_RANK], a_batch[MAX_RANK], b_batch[MAX_RANK], out_batch[MAX_RANK];
    int64_t rows, columns, depth, batches; /* batches: the product of batch[] */
    int64_t a_row, a_depth, b_depth, b_column, out_row, out_column;
} MatmulShape;

/* b_strides: of b's permuted axes where it is not dense in memory, else NULL. out_dims [the greater rank of a and b]:
 * the result's, permuted. STATUS_INVALID when the factors do not fit each other. */
Status matmul_shape(const Node *node, const Tensor *a, const Tensor *b, const int64_t *b_strides,
                    MatmulShape *out_shape, int64_t *out_dims);

/* dims and strides of permute(t, the node's attribute attr), t dense of these dims. */
Status matmul_permuted(const Node *node, const char *attr, int rank, const int64_t *dims, int64_t *out_dims,
                       int64_t *out_strides);
/* The offset of flat batch index `flat` by such strides. */
int64_t matmul_batch_offset(const MatmulShape *s, const int64_t *strides, int64_t flat);
void matmul_strides(int rank, const int64_t *dims, int64_t *out_strides); /* row-major, in elements */

#endif
