/* SPDX-License-Identifier: Apache-2.0 */
/* The discrete Fourier transform of one line of complex numbers. */
#ifndef ONNXFUSE_OPS_SIGNAL_TRANSFORM_H
#define ONNXFUSE_OPS_SIGNAL_TRANSFORM_H

#include <stdbool.h>
#include <stdint.h>
#include "base/arena.h"

enum { MAX_TRANSFORM = 1 << 28, MAX_FACTORS = 32 };

typedef struct Transform Transform;

/* Tables for length n in [1, MAX_TRANSFORM]; wide: in f64, else in f32. */
Transform *transform_make(Arena *arena, int64_t n, bool wide);
/* Bytes of scratch memory that a run needs. */
size_t transform_scratch(const Transform *t);
/* x [n][2], f64 where wide, else f32, becomes its transform; the inverse is divided by n. */
void transform_run(const Transform *t, bool inverse, void *x, void *scratch);

#endif
