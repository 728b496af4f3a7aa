/* SPDX-License-Identifier: Apache-2.0 */
/* Rows of products that a slice widens into a worker's memory, once for all of its panels: of f16, so that no tensor is widened as a whole and
 * the tiles meet floats in the caches; of quads to words of 16 bits, where the set multiplies these (TileSet.widen_words). */
#ifndef ONNXFUSE_RUNTIME_DEVICE_CPU_WIDE_ROWS_H
#define ONNXFUSE_RUNTIME_DEVICE_CPU_WIDE_ROWS_H

#include "runtime/device/cpu/product.h"

/* Elements of four bytes that the chunks of so many rows take at most, widened or made (Product.maker); 0 where they stay where they are. */
int64_t wide_rows_room(const Product *product, int64_t chunk);
/* Depths [first_depth, end_depth) of the block's rows, from the product's row `first` on, to `to`, which the block's pointers
 * then lead to. held: they are there already. */
void wide_rows_take(const Product *product, int64_t first, int64_t first_depth, int64_t end_depth, bool held,
                    RowBlock *block, float *to);
/* At most so many of `rows` rows a chunk, that they are widened to words if the set has those. */
int64_t wide_rows_chunk(const Product *product, int64_t rows);
/* All depths of the block's rows, from the product's row `first` on, as words, likewise: what is odd of them is so many elements behind
 * what is even; 0: they stay as they are. `to` has room for chunks of `chunk` rows, or none. */
int64_t wide_rows_take_words(const Product *product, int64_t first, int64_t chunk, bool held, RowBlock *block,
                             void *to);

#endif
