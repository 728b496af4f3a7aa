/* SPDX-License-Identifier: Apache-2.0 */
/* The numbers of quantization: ranges of activations, and weights as integers or narrow floats with their scales. */
#ifndef ONNXFUSE_OPTIMIZE_QUANTIZE_FORMULAS_H
#define ONNXFUSE_OPTIMIZE_QUANTIZE_FORMULAS_H

#include "graph/tensor.h"

/* y = (q - zero_point) * scale, q in u8. */
typedef struct Levels {
    float scale;
    int zero_point;
} Levels;

/* [low, high] with 0 in it over 0..255, as ONNX's DynamicQuantizeLinear-11 does it. */
Levels levels_of(double low, double high);

enum { HISTOGRAM_BINS = 2048 };

/* Where |x| is best cut off, given how often it lies in each of HISTOGRAM_BINS equal parts of [0, largest]; zeros, which are
 * exact in any case, are not counted. The cut at which the distribution that `levels` equal steps can tell differs least from
 * that of x, by the Kullback-Leibler divergence: Migacz, "8-bit Inference with TensorRT", GTC 2017. */
double entropy_cut(const double *histogram, double largest, int levels);

/* A weight as it is to be stored: data, scale, and a zero point of zeros where that is not NULL. */
typedef struct Stored {
    Tensor *data, *scale, *zero_point;
    double noise, signal, worst; /* against the weight: sums of squares, largest difference */
} Stored;

/* i8, one scale for each index of `axis`: scale = max |w| / 127, q = round(w / scale) in -127..127 (Jacob et al.,
 * "Quantization and Training of Neural Networks for Efficient Integer-Arithmetic-Only Inference", 2018, with the symmetric range
 * of weights). least: [size of the axis] the least that each scale may be, or NULL. */
Stored weight_as_i8(Arena *arena, const Tensor *w, int axis, const float *least);
/* i4, a scale for each `block` elements along `axis`: scale = w_m / -8 for the element w_m of the largest magnitude, q =
 * round(w / scale) in -8..7, so that all sixteen levels are used (the format Q4_0 of llama.cpp). */
Stored weight_as_i4(Arena *arena, const Tensor *w, int axis, int64_t block);
/* Rounded to nearest even; no scale. */
Stored weight_as_bf16(Arena *arena, const Tensor *w);

#endif
