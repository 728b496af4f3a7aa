/* SPDX-License-Identifier: Apache-2.0 */
/* The products of tile_quads_amx.c likewise (amx_plain.c): the set tile_quads_amx_plain. */
#if defined(__x86_64__)
#define ISA amx_plain
#define ISA_TARGET "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c"
#define VECTOR_BYTES 64
#define REGISTERS 32
#define QUAD_DOT DOT_AMX
#define TILE_AMX_PLAIN
#include "runtime/device/cpu/tiles/quads/tile_quads.h"
#endif
typedef int amx_plain_quads_is_for_x86_64;
