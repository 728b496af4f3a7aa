/* SPDX-License-Identifier: Apache-2.0 */
/* Words of device code for matrix units, beside those of dialect.h: products of small matrices that a warp holds in its
 * registers, loads of these from shared memory, and copies that arrive later. In CUDA C they are PTX's mma.sync, ldmatrix
 * and cp.async (compute capability 8.0 and up); in OpenCL they are imitated through local memory after PTX's
 * documentation, so that any device shows that a text is right. All of them are for blocks of THREADS threads, all of
 * which take part. */
/* clang-format off
 *
 * MATRIX_MEMORY                     what the words need, declared at the top of a kernel's body
 * EXCHANGE                          for SHUFFLE_XOR_<t> of dialect.h, in a kernel with MATRIX_MEMORY
 * COPIES_ARG COPIES                 the last of a function's parameters, and what a kernel gives it, where the function copies
 *                                   late; no comma before them
 * MATRIX_DEPTH                      elements along the depth of one product: 32 bytes, 16 elements of f16 and bf16, 8 of tf32
 * MULTIPLY_MATRICES(c, a, b0, b1)   c += a b, f32 c[4], u32 a[4], b0, b1: 16 x MATRIX_DEPTH by MATRIX_DEPTH x 8 elements
 *                                   (mma.m16n8k16; m16n8k8 of tf32). Lane l of the warp: g = l / 4, i = l % 4. A word is 2
 *                                   elements of 16 bits or one of tf32; a[r]: row g + 8 (r % 2), word i + 4 (r / 2) of
 *                                   its depth; b of r: column g, word i + 4 r; c[e]: row g + 8 (e / 2), column 2 i + e % 2
 * LOAD_MATRICES(r, tile, at, more)  u32 r[4]: four matrices of 8 rows of 16 bytes (ldmatrix.x4). tile[at + more], of SHARED
 *                                   u128, is row l % 8 of matrix l / 8; `at` is the lane's own, `more` a constant, tile is
 *                                   the warp's. r[m]: word l % 4 of row l / 4 of matrix m
 * LOAD_TURNED(r, tile, at, more)    the same of 8 x 8 elements of 16 bits each, turned: r[m] has elements l / 4 of rows
 *                                   2 (l % 4) and the next
 * ROUND_TO_MATRIX(word)             tf32: the bits of a f32, rounded to it; else the word itself
 * FORGET(x)                         the compiler forgets what it knows of a u32 variable's value, so that what is made of it is
 *                                   made again rather than kept in registers. Statement, with ;
 * COPY_LATER(tile, at, more, from, bytes)   16 bytes from GLOBAL memory, a multiple of 16, to tile[at + more], which are as above;
 *                                   `bytes` (0 to 16) of them taken and the rest zeros. None of 0 bytes are looked at. They
 *                                   may arrive at once, and have arrived, for the thread itself, when COPY_WAIT says so
 * COPY_GROUP                        ends a group of copies, which may be empty. Statement, with ;
 * COPY_WAIT(n)                      waits for all groups but the last n, a constant. Statement, with ;
 *
 * clang-format on */
#ifndef ONNXFUSE_CODEGEN_GPU_MATRIX_H
#define ONNXFUSE_CODEGEN_GPU_MATRIX_H

#include "codegen/gpu/gpu.h"

/* dtype: f16, bf16, or f32 for tf32. Behind the prelude, which they use. */
void gpu_matrix_words(Text *text, DType dtype, GpuDialect dialect);

#endif
