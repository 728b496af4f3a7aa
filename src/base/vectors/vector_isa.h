/* SPDX-License-Identifier: Apache-2.0 */
/* The instruction sets for which loops on vectors are compiled, one unit each (vector_math.h), and the one to run. */
#ifndef ONNXFUSE_BASE_VECTORS_VECTOR_ISA_H
#define ONNXFUSE_BASE_VECTORS_VECTOR_ISA_H

#include <stdbool.h>

typedef enum VectorIsa {
    VECTOR_BASE,   /* the architecture's least: SSE2, NEON */
    VECTOR_AVX2,   /* with FMA and F16C */
    VECTOR_AVX512, /* F, BW, DQ, VL */
} VectorIsa;

/* The widest that this machine runs. */
VectorIsa vector_isa(void);

/* Conversions of float16, which VECTOR_AVX2 includes. */
bool vector_has_f16c(void);
/* Sums of four products of bytes: AVX512-VNNI, and AVX-VNNI of processors without AVX-512. */
bool vector_has_vnni(void);
bool vector_has_avx_vnni(void);
/* Of aarch64: sums of four products of bytes, both signed, and of a 2x8 by an 8x2 matrix of them (FEAT_DotProd, FEAT_I8MM). */
bool vector_has_dot_product(void);
bool vector_has_i8mm(void);
/* Sums of products of bf16: AVX512-BF16, FEAT_BF16 of aarch64. */
bool vector_has_bf16(void);
/* AMX, which the system is asked for once, and lets the process use: sums of products of bf16 and of bytes. */
bool vector_has_amx_bf16(void);
bool vector_has_amx_int8(void);

#endif
