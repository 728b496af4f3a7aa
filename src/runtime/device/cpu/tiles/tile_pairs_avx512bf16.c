/* SPDX-License-Identifier: Apache-2.0 */
/* Products of pairs for AVX512-BF16. */
#if defined(__x86_64__)
#define ISA avx512bf16
#define ISA_TARGET "avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,avx2,fma,f16c"
#define VECTOR_BYTES 64
#define REGISTERS 32
#define PAIR_DOT 1
#define PAIR_AMX 0
#include "runtime/device/cpu/tiles/tile_pairs.h"
#endif
typedef int tile_pairs_avx512bf16_is_for_x86_64;
