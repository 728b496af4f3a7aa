/* SPDX-License-Identifier: Apache-2.0 */
/* Linear operators that stand in files of their own. */
#ifndef ONNXFUSE_OPS_LINEAR_LINEAR_H
#define ONNXFUSE_OPS_LINEAR_LINEAR_H

#include "lowering/anchor/weight_blocks.h"
#include "lowering/ops.h"

Status lower_einsum(Lowering *l, const Node *n);
Status lower_deform_conv(Lowering *l, const Node *n);
Status host_deform_columns(HostCall *call);
Status host_deform_columns_gradient(HostCall *call);
void back_deform_columns(Backward *w, const Node *n);
Status lower_det(Lowering *l, const Node *n);
Status host_det(HostCall *call);
Status lower_inverse(Lowering *l, const Node *n);
Status host_inverse(HostCall *call);
void back_inverse(Backward *w, const Node *n);
Status host_cofactors(HostCall *call); /* of matrices: what the gradient of Det is made of */
void back_det(Backward *w, const Node *n);

static inline bool is_byte(const Value *x) { return x->dtype == DT_U8 || x->dtype == DT_I8; }

/* Whether the tensor stands (it may be NULL) and all its elements are this. */
bool is_all(const Tensor *t, double value);

/* For the quantized forms (quantize.c). Convolution of channels-first x (i32 with its zero point taken off, or a float)
 * as node n's attributes say; bias may be NULL. */
Value *conv_as(Lowering *l, const Node *n, Value *x, Value *w, Value *bias);
/* The same with bytes for padding: x is u8 and w i8, the result i32; bias likewise. */
Value *conv_padded(Lowering *l, const Node *n, Value *x, Value *w, Value *bias, int64_t pad_value);
/* a: u8, b: i8, of at least two axes; the result is i32. Where the device has the anchor (AnchorLimits.bytes). */
Value *bytes_matmul(Lowering *l, Value *a, Value *b);
/* a: f32, of at least two axes; b: u8, constant, what `blocks` is about. Where the device has the anchor (AnchorLimits.bits). */
Value *bits_matmul(Lowering *l, Value *a, Value *b, const WeightBlocks *blocks);
/* The same where b [N, blocks, bytes], scales and zeros (NULL: the middle; shapes as weight_blocks.h has them) come with the run, as none of the tensors of
 * `blocks` then do. Nothing asks for its gradient. */
Value *blocks_matmul(Lowering *l, Value *a, Value *b, Value *scales, Value *zeros, const WeightBlocks *blocks);
/* Each row of a by its group's matrix alone, [groups' axes..., N]; a [lead..., K], whose leading axes broadcast to those of groups, and
 * bias [G, N] (NULL: none) are f32 or f64. b is [G, N, K] of their type; or blocks is not NULL, and b u8, constant, of axes [G, N, ...],
 * what `blocks` is about with the columns of all groups. Where the device has the anchor (AnchorLimits.grouped), whose gradient nothing asks for. */
Value *grouped_matmul(Lowering *l, Value *a, Value *b, Value *groups, Value *bias, const WeightBlocks *blocks);
/* x as i32 less its zero point, which may be NULL, a scalar, or a vector along `axis` of x (or already of x's rank). */
Value *centred(Lowering *l, Value *x, Value *zero_point, int axis);
/* Products of 8-bit tensors less their zero points (which may be NULL), exact; the result is i32, or f32 holding whole
 * numbers below 2^24. Convolution as node n's attributes say; bias is i32 or NULL. */
Value *integer_matmul(Lowering *l, Value *a, Value *a_zero, Value *b, Value *b_zero);
Value *integer_conv(Lowering *l, const Node *n, Value *x, Value *x_zero, Value *w, Value *w_zero, Value *bias);
/* The same where the device multiplies bytes and the types allow it; else NULL without an error. */
Value *byte_matmul(Lowering *l, Value *a, Value *a_zero, Value *b, Value *b_zero);
Value *byte_conv(Lowering *l, const Node *n, Value *x, Value *x_zero, Value *w, Value *w_zero, Value *bias);
/* A scalar or a vector along `axis` of a tensor of `rank` axes, made to broadcast with it; other shapes stay. */
Value *along_axis(Lowering *l, Value *v, int axis, int rank);

#endif
