/* SPDX-License-Identifier: Apache-2.0 */
/* Products of rows in blocks for AVX2. */
#if defined(__x86_64__)
#define ISA avx2
#define ISA_TARGET "avx2,fma,f16c"
#define VECTOR_BYTES 32
#define REGISTERS 16
#define BLOCK_DOT BLOCK_PAIRS
#include "runtime/device/cpu/tiles/blocks/tile_blocks.h"
#endif
typedef int tile_blocks_avx2_is_for_x86_64;
