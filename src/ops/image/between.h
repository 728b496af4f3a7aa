/* SPDX-License-Identifier: Apache-2.0 */
/* Values between the elements of an image, in primitives, for what is written in operators that have no gradient (lowers_to_standard). Along each
 * spatial axis a position reads some elements, its taps. What it reads of the image are their combinations, with the products of their weights. */
#ifndef ONNXFUSE_OPS_IMAGE_BETWEEN_H
#define ONNXFUSE_OPS_IMAGE_BETWEEN_H

#include "lowering/build.h"

enum { MOST_TAPS = 4 }; /* that are neighbours */

/* What is read where an image has no elements. */
typedef enum Outside { OUTSIDE_ZEROS, OUTSIDE_BORDER, OUTSIDE_REFLECTION } Outside;

typedef struct ImageAxis {
    const Dim *size;
    Outside outside;
    double edge; /* how far the axis goes on beyond the middle of its first and last element: there it is mirrored */
} ImageAxis;

/* Each [positions..., taps], where an axis of positions may be 1. */
typedef struct Taps {
    Value *index;  /* i64, of elements that the axis has */
    Value *weight; /* of a float */
    Value *inside; /* bool: whether what is read counts. NULL: all does */
} Taps;

/* Of all axes: [positions..., taps of the first axis, ...]. */
typedef struct Between {
    int first, axes;        /* axes of taps: the first one, and how many */
    Value *rows;            /* the image [elements, channels] */
    Value *place;           /* i64, of rows */
    Value *weight, *inside; /* as of an axis */
} Between;

/* Numbers of elements along an axis are f64 here, those between them not whole. */
Value *axis_end(Lowering *l, const Dim *size); /* of the last one */
/* One that the run gives, made one that has whole neighbours: not NaN, nor beyond 1e9 either way. */
Value *bounded_position(Lowering *l, Value *x);
/* x within the axis' edges. */
Value *mirrored(Lowering *l, Value *x, const ImageAxis *axis);
/* From `first` [positions...] on, a whole number, `count` elements with these weights [positions...], made `dtype`. */
Taps neighbours(Lowering *l, Value *first, Value *const *weights, int count, const ImageAxis *axis, DType dtype);
/* The two around x [positions...], weighed by how near they are. */
Taps linear_taps(Lowering *l, Value *x, const ImageAxis *axis, DType dtype);

/* x [images, spatial..., C]; image: i64 [positions...], which one is read. */
Between between(Lowering *l, Value *x, Value *image, const Taps *taps);
/* What is read times its weight, `otherwise` where it does not count: [positions..., taps..., C]. */
Value *weighed(Lowering *l, const Between *b, double otherwise);
/* Its sum over the taps: [positions..., C]. */
Value *blended(Lowering *l, const Between *b);
/* The gradient of x: zeros, to which each element's part [positions..., taps..., C] is added where it was read. */
Value *added_to_rows(Lowering *l, const Value *x, const Between *b, Value *parts);

#endif
