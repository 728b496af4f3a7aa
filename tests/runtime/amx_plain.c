/* SPDX-License-Identifier: Apache-2.0 */
/* The products of tile_pairs_amx.c with AMX's registers in plain memory: the set tile_pairs_amx_plain, for machines with
 * AVX-512. */
#if defined(__x86_64__)
#define ISA amx_plain
#define ISA_TARGET "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c"
#define VECTOR_BYTES 64
#define REGISTERS 32
#define PAIR_DOT 0
#define PAIR_AMX 1
#define TILE_AMX_PLAIN
#include "runtime/device/cpu/tiles/tile_pairs.h"
#endif
typedef int amx_plain_is_for_x86_64;
