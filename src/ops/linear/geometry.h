/* SPDX-License-Identifier: Apache-2.0 */
/* Where sliding windows lie: the attributes that convolutions and pooling share, with auto_pad resolved for symbolic
 * sizes. */
#ifndef ONNXFUSE_OPS_LINEAR_GEOMETRY_H
#define ONNXFUSE_OPS_LINEAR_GEOMETRY_H

#include "lowering/sizes.h"

enum { MAX_SPATIAL = MAX_RANK - 2 };

/* WINDOW_TRANSPOSED: the windows lie in the result, whose sizes the caller works out, as well as the pads of SAME. */
typedef enum WindowKind { WINDOW_CONV, WINDOW_POOL, WINDOW_TRANSPOSED } WindowKind;

typedef struct Geometry {
    int spatial; /* number of spatial axes */
    int64_t strides[MAX_SPATIAL], dilations[MAX_SPATIAL];
    const Dim *kernel[MAX_SPATIAL];
    const Dim *pads[2 * MAX_SPATIAL]; /* all befores, then all afters */
    const Dim *size[MAX_SPATIAL];     /* the result's spatial sizes */
} Geometry;

/* strides, dilations, pads, auto_pad and, for pooling, ceil_mode of n over inputs of sizes in[spatial]. */
Status geometry_of(Lowering *l, const Node *n, int spatial, const Dim *const *in, const Dim *const *kernel,
                   WindowKind kind, Geometry *out);
/* The attribute kernel_shape as sizes; invalid when it is missing or not of `spatial` elements. */
Status kernel_shape_of(Lowering *l, const Node *n, int spatial, const Dim **out_kernel);
/* (kernel - 1) * dilation + 1. */
const Dim *window_extent(const Lowering *l, const Dim *kernel, int64_t dilation);
/* Attribute `name` as `count` ints in [least, INT32_MAX]; `otherwise` each when missing. */
Status spatial_ints(Lowering *l, const Node *n, const char *name, int count, int64_t least, int64_t otherwise,
                    int64_t *out);

#endif
