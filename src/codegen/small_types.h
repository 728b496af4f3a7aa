/* SPDX-License-Identifier: Apache-2.0 */
/* Floats of 8 and 4 bits and integers of 4 and 2 as kernel instructions. A kernel holds them as memory does, as codes in bytes
 * (dtype_of_code), which loads, stores and movement leave alone; a cast converts them. Since that is integer arithmetic like any
 * other, neither renderers nor devices know of these types. */
#ifndef ONNXFUSE_CODEGEN_SMALL_TYPES_H
#define ONNXFUSE_CODEGEN_SMALL_TYPES_H

#include "codegen/emit.h"

/* The number, in f32, of a code of one of the floats. All bits are those of small_float_to_f32. */
int small_to_f32(Emit *e, DType from, int code);
/* The code of a number of any type that kernels compute in. Floats: as f32_to_small_float, rounded once whatever the type.
 * Integers: what is a float is cut and saturates, other integers wrap. */
int small_from(Emit *e, DType to, int number, bool saturate);

#endif
