/* SPDX-License-Identifier: Apache-2.0 */
/* Elements of tensors: numbers stored as an element type, and drawn. */
#ifndef ONNXFUSE_CLI_VALUE_NUMBERS_H
#define ONNXFUSE_CLI_VALUE_NUMBERS_H

#include <stdbool.h>
#include "cli/value/npy.h"

/* Element i becomes the value: rounded to the nearest number of a float type; a whole one from 0 to 255 for integers.
 * False: elements of that type are no plain numbers (strings, complex numbers, floats of 8 bits, integers of 4). */
bool number_store(OnnxfuseDType dtype, void *data, int64_t i, double value);

/* Fills the tensor, the same for the same seed: floats evenly distributed in -1..1, integers and booleans 0 or 1, so
 * that they are safe as indices, the first of each row 1, so that a mask leaves something to attend to; strings words
 * of up to eight letters. */
Problem *numbers_draw(uint64_t seed, Loaded *tensor);

#endif
