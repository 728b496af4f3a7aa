/* SPDX-License-Identifier: Apache-2.0 */
/* Rows of a product that no memory holds as a whole: each is joined of a row of every one of several tensors, and read
 * where those stand. All are cut into pieces of one length, which is a divisor of each tensor's rows; a piece is a tap. Where
 * pieces are short, those of one tensor are multiplied as one (Product.follows). */
#ifndef ONNXFUSE_RUNTIME_DEVICE_CPU_ROW_PARTS_H
#define ONNXFUSE_RUNTIME_DEVICE_CPU_ROW_PARTS_H

#include "runtime/device/cpu/product.h"

enum { MOST_ROW_PARTS = 8 };

/* Elements of a piece of rows of these lengths; 0: a piece would be so short that joined copies cost less. */
int64_t row_parts_piece(const int64_t *lengths, int count);

/* Makes `product`, of one tap and one group, whose results are dense from `result` on, read its rows so. parts: [count], as the
 * weight's elements, of as many rows each. STATUS_FAULT where they do not make up its depth. */
Status row_parts_read(const Tensor *const *parts, int count, void *result, Scratch *scratch, Product *product);

#endif
