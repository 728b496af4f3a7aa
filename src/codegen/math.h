/* SPDX-License-Identifier: Apache-2.0 */
/* Transcendental primitives as kernel instructions: no branches, the same on every device but for erf (math.c). */
#ifndef ONNXFUSE_CODEGEN_MATH_H
#define ONNXFUSE_CODEGEN_MATH_H

#include "codegen/emit.h"
#include "graph/prim.h"

/* Whether math_expand knows the primitive (floats only). */
bool math_expands(Prim prim);
/* Whether it computes in f64 on f32 too. */
bool math_through_double(Prim prim);
/* prim(x), or prim(x, y) for pow, on f32 or f64. Returns the result's instruction. f32: within 2 units in the last
 * place of the exact result, subnormal ones included; f64: within 4. */
int math_expand(Emit *e, Prim prim, int x, int y);
/* 1 + tanh(x). */
int math_one_plus_tanh(Emit *e, int x);

#endif
