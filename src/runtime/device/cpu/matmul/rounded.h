/* SPDX-License-Identifier: Apache-2.0 */
/* Rows of f32 as products by weights in blocks want them: rounded to i8 in blocks (RoundedHead), as digits of those, or as parts of bf16. */
#ifndef ONNXFUSE_RUNTIME_DEVICE_CPU_ROUNDED_H
#define ONNXFUSE_RUNTIME_DEVICE_CPU_ROUNDED_H

#include "runtime/device/cpu/tiles/tile.h"

/* Bytes of a row of `depth` elements: a multiple of 8. */
int64_t rounded_row_bytes(const WeightForm *form, int64_t depth);
/* row [depth], for a weight of that form and this machine's tile_blocks(), INT8, INT4 or INT2: a block's scale is its largest magnitude / 127, an element the whole number nearest to
 * its quotient by that, ties to even. A block with what is not finite becomes NaN throughout. */
void rounded_row(const WeightForm *form, const float *row, int64_t depth, void *to);
/* As near as f32 adds up: each block is ROW_DIGITS such blocks, the lowest first, whose elements are the digits to the base 256, from -128 on,
 * of whole numbers of up to 2^22; a digit's scale is a power of two. Takes ROW_DIGITS times rounded_row_bytes. */
void digits_row(const WeightForm *form, const float *row, int64_t depth, void *to);

/* Bytes of a row in parts (ROW_PARTS): whole lines of a cache. */
int64_t parts_row_bytes(const WeightForm *form, int64_t depth);
/* The same numbers, exactly, but for what of them is less than the least normal one: a part has the next 8 bits. What is not finite is its first
 * part, beside zeros. */
void parts_row(const WeightForm *form, const float *row, int64_t depth, void *to);

#endif
