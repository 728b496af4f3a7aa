/* SPDX-License-Identifier: Apache-2.0 */
/* Products of pairs for aarch64's FEAT_BF16. */
#if defined(__aarch64__)
#define ISA bf16
#define ISA_TARGET "arch=armv8.2-a+bf16"
#define VECTOR_BYTES 16
#define REGISTERS 32
#define PAIR_DOT 1
#define PAIR_AMX 0
#include "runtime/device/cpu/tiles/tile_pairs.h"
#endif
typedef int tile_pairs_bf16_is_for_aarch64;
