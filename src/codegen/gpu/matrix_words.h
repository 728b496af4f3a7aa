/* SPDX-License-Identifier: Apache-2.0 */
/* Words beside those of dialect.h for programs that use NVIDIA's matrix units (compute capability 8.0 and up): products of
 * 16-bit fragments, fragments from shared memory, copies to shared memory under way. The layouts are PTX's ("Matrix
 * fragments for mma.m16n8k16", "ldmatrix", "cp.async"). In OpenCL they are imitated through local memory, where barriers
 * stand in for a warp's lockstep: it shows on any device that a text is right. */
/* clang-format off
 *
 * A fragment word holds two neighbouring 16-bit elements, the first in the low half. Lane l: g = l / 4, i = l % 4. All
 * threads of the block execute these words together. The program defines THREADS, the threads of a block, before them.
 *
 * MATRIX_MEMORY                declares shared memory for the imitation, among the SHARED declarations of a kernel
 * EXCHANGE                     for SHUFFLE_XOR_<t>
 * PLACE                        type of addresses in shared memory; adding to one counts bytes
 * PLACE_OF(pointer)            from a SHARED_POINTER
 * LOAD_MATRIX(r, place)        four matrices of 8 x 8 elements to u32 r[4]. Lane l gives the place of row l % 8 of matrix
 *                              l / 8, a multiple of 16; r[n] of lane l: row g of matrix n, elements 2 i and 2 i + 1
 * LOAD_MATRIX_ACROSS(r, place) the same with each matrix transposed: rows 2 i and 2 i + 1, element g
 * MULTIPLY_f16(c, a, b0, b1)   f32 c[4] += u32 a[4], 16 x 16, times 16 x 8. a[r]: row g + 8 (r % 2), elements 2 i, 2 i + 1 +
 *                              8 (r / 2); b of n: column g, elements 2 i, 2 i + 1 + 8 n; c[e]: row g + 8 (e / 2), column 2 i + e % 2
 * MULTIPLY_bf16(c, a, b0, b1)
 * PACK_f16(x, y) PACK_bf16     two f32 as a fragment word, to nearest even
 * COPY_16(place, from, there)  begins a copy of 16 bytes from global memory, both addresses multiples of 16; zeros where not
 *                              `there`, which reads nothing
 * COPY_COMMIT                  ends a group of copies. Statement, with ;
 * COPY_WAIT(n)                 until at most the last n groups of this thread are under way; others see them behind a BARRIER
 *
 * clang-format on */
#ifndef ONNXFUSE_CODEGEN_GPU_MATRIX_WORDS_H
#define ONNXFUSE_CODEGEN_GPU_MATRIX_WORDS_H

#include "codegen/gpu/gpu.h"

/* Behind the prelude. */
const char *gpu_fragment_words(GpuDialect dialect);

#endif
