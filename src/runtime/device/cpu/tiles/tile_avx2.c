/* SPDX-License-Identifier: Apache-2.0 */
/* The tiles for AVX2 with FMA and F16C. */
#if defined(__x86_64__)
#define ISA avx2
#define ISA_TARGET "avx2,fma,f16c"
#define VECTOR_BYTES 32
#define REGISTERS 16
#include "runtime/device/cpu/tiles/tile_isa.h"
#endif
typedef int tile_avx2_is_for_x86_64;
