/* SPDX-License-Identifier: Apache-2.0 */
/* Products of quads for AVX2. */
#if defined(__x86_64__)
#define ISA avx2
#define ISA_TARGET "avx2,fma,f16c"
#define VECTOR_BYTES 32
#define REGISTERS 16
#define QUAD_DOT DOT_PAIRS
#include "runtime/device/cpu/tiles/quads/tile_quads.h"
#endif
typedef int tile_quads_avx2_is_for_x86_64;
