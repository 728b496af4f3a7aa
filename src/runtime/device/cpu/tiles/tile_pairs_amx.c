/* SPDX-License-Identifier: Apache-2.0 */
/* Products of pairs for AMX-BF16. */
#if defined(__x86_64__)
#define ISA amx
#define ISA_TARGET "avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,amx-tile,amx-bf16,avx2,fma,f16c"
#define VECTOR_BYTES 64
#define REGISTERS 32
#define PAIR_DOT 0
#define PAIR_AMX 1
#include "runtime/device/cpu/tiles/tile_pairs.h"
#endif
typedef int tile_pairs_amx_is_for_x86_64;
