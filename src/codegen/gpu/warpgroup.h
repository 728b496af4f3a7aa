/* SPDX-License-Identifier: Apache-2.0 */
/* Words of device code for products of a warpgroup, four warps beginning at a multiple of four, whose right factors, and
 * left ones if wanted, lie in shared memory, and which run beside what the warps do meanwhile: PTX's wgmma of compute
 * capability 9.0. In OpenCL they are imitated, and done at once. Behind those of matrix.h, which they use, for f16 and
 * bf16. */
/* clang-format off
 *
 * A tile is of SHARED u128: `lines` rows, a multiple of 8, of a multiple of 64 elements. Chunk c (of 8 elements) of row r is
 * tile[SWIZZLED(lines, r, c)], so that a warp that reads or writes 8 rows' or 8 neighbours' chunks meets all banks.
 *
 * HAS_GROUPS                     1 where the others may be used, else 0: for the preprocessor
 * GROUP_ALIGNED(tile)            where a tile may begin in shared memory: at most GROUP_ALIGNMENT bytes behind `tile`
 * GROUP_PLACE                    the type of a place in a tile, as products take it. A number of chunks may be added: so
 *                                many times 8 rows of the tile
 * GROUP_PLACE_OF(tile, lines)    where a tile begins
 * GROUP_TIMES_ROWS(n, d, a, a_lines, b, b_lines, c, add)
 *                                d (+)= A B^T, f32 d[n / 8][4]: 64 rows from place a on, n rows from place b on, of both
 *                                elements 16 c to 16 c + 15; added if `add`
 * GROUP_TIMES_TURNED(n, d, a, b, b_lines, c)   d += A B, u32 a[4]: rows 16 c to 16 c + 15 of tile b, its first n elements
 *                                A warp has 16 rows of d and a; a lane of it what MULTIPLY_MATRICES of matrix.h says,
 *                                d[j] being columns 8 j to 8 j + 7. n: 64 or 128
 * GROUP_BEGIN                    before the first product of a group: what registers hold for it is there. Statement, with ;
 * GROUP_END                      ends a group of products. Statement, with ;
 * GROUP_WAIT(count)              waits for all groups but the last `count`, a constant. Statement, with ;
 * GROUP_HELD(n, d)               behind a wait: d is there (the compiler may not look at it before)
 * GROUP_SEES                     what this thread wrote to shared memory will be seen by products behind a barrier. Statement, with ;
 *
 * clang-format on */
#ifndef ONNXFUSE_CODEGEN_GPU_WARPGROUP_H
#define ONNXFUSE_CODEGEN_GPU_WARPGROUP_H

#include "codegen/gpu/gpu.h"

enum { GROUP_ALIGNMENT = 1024 };

/* dtype: f16 or bf16. */
void gpu_warpgroup_words(Text *text, DType dtype, GpuDialect dialect);

#endif
