/* SPDX-License-Identifier: Apache-2.0 */
/* Rows of f16 that a slice of a product widens into a worker's memory, once for all of its panels, so that no tensor is widened as a whole and
 * the tiles meet floats in the caches. */
#ifndef ONNXFUSE_RUNTIME_DEVICE_CPU_WIDE_ROWS_H
#define ONNXFUSE_RUNTIME_DEVICE_CPU_WIDE_ROWS_H

#include "runtime/device/cpu/product.h"

/* Elements of four bytes that the chunks of so many rows take at most, widened or made (Product.maker); 0 where they stay where they are. */
int64_t wide_rows_room(const Product *product, int64_t chunk);
/* Depths [first_depth, end_depth) of the block's rows, from the product's row `first` on, to `to`, which the block's pointers
 * then lead to. held: they are there already. */
void wide_rows_take(const Product *product, int64_t first, int64_t first_depth, int64_t end_depth, bool held,
                    RowBlock *block, float *to);

#endif
