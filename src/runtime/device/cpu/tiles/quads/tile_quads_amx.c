/* SPDX-License-Identifier: Apache-2.0 */
/* Products of quads for AMX-INT8. */
#if defined(__x86_64__)
#define ISA amx
#define ISA_TARGET "avx512f,avx512bw,avx512dq,avx512vl,amx-tile,amx-int8,avx2,fma,f16c"
#define VECTOR_BYTES 64
#define REGISTERS 32
#define QUAD_DOT DOT_AMX
#include "runtime/device/cpu/tiles/quads/tile_quads.h"
#endif
typedef int tile_quads_amx_is_for_x86_64;
