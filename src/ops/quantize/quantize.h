/* SPDX-License-Identifier: Apache-2.0 */
/* Quantized tensors as operators are given them. */
#ifndef ONNXFUSE_OPS_QUANTIZE_QUANTIZE_H
#define ONNXFUSE_OPS_QUANTIZE_QUANTIZE_H

#include "lowering/build.h"

typedef struct Quantized {
    Value *x, *scale, *zero_point; /* as given: data, scale (f32), zero point (may be NULL) */
} Quantized;

/* Inputs first to first + 2. */
Quantized quantized_in(Lowering *l, const Node *n, int first);
/* Of the f32 x, as DynamicQuantizeLinear does it. */
Quantized dynamically_quantized(Lowering *l, Value *x);

/* The zero point as f32, or NULL when there is none or all of it is known to be 0. */
Value *zero_point_f32(Lowering *l, Value *zero_point);
/* y = (x - x_zero_point) * x_scale in f32 (ONNX DequantizeLinear-25). zero: f32, or i32 where x is; NULL: 0. It and the f32 scale broadcast
 * with x. */
Value *dequantized_levels(Lowering *l, Value *x, Value *zero, Value *scale);
/* saturate(round(q) + zero_point) of the f32 quotient q; zero_point is f32 or NULL. */
Value *quantized(Lowering *l, Value *q, Value *zero_point, DType to, bool saturate);
/* x in f32; of one scale. */
Value *dequantized(Lowering *l, Quantized q);
/* A product in i32, scaled to f32, plus a bias (may be NULL). b's scale and zero point may be one a column. */
Value *scaled_product(Lowering *l, Quantized a, Quantized b, Value *bias);

/* Numbers of 2, 4 or 8 bits, packed along the last axis, the first in the low bits: as i32, or the bytes as they are. */
Value *unpacked_last(Lowering *l, Value *bytes, int bits);
/* (levels - zeros) * scales in f32: scales and zeros (NULL: `middle`) are as long along the axis as there are blocks of so many levels, or 1. */
Value *dequantized_blocks(Lowering *l, Value *levels, Value *scales, Value *zeros, double middle, int axis,
                          int64_t block);

#endif
