/* SPDX-License-Identifier: Apache-2.0 */
/* Products of rows in blocks for AMX-INT8 and AMX-BF16, with AVX512-VNNI. */
#if defined(__x86_64__)
#define ISA amx
#define ISA_TARGET "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,amx-tile,amx-int8,amx-bf16,avx2,fma,f16c"
#define VECTOR_BYTES 64
#define REGISTERS 32
#define BLOCK_DOT BLOCK_VNNI
#define BLOCK_AMX
#include "runtime/device/cpu/tiles/blocks/tile_blocks.h"
#endif
typedef int tile_blocks_amx_is_for_x86_64;
