/* SPDX-License-Identifier: Apache-2.0 */
/* Products of pairs for AVX2. */
#if defined(__x86_64__)
#define ISA avx2
#define ISA_TARGET "avx2,fma,f16c"
#define VECTOR_BYTES 32
#define REGISTERS 16
#define PAIR_DOT 0
#define PAIR_AMX 0
#include "runtime/device/cpu/tiles/tile_pairs.h"
#endif
typedef int tile_pairs_avx2_is_for_x86_64;
