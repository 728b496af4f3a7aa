/* SPDX-License-Identifier: Apache-2.0 */
/* Products of rows in blocks for aarch64's FEAT_DotProd. */
#if defined(__aarch64__)
#define ISA dotprod
#define ISA_TARGET "arch=armv8.2-a+dotprod"
#define VECTOR_BYTES 16
#define REGISTERS 32
#define BLOCK_DOT BLOCK_SIGNED
#include "runtime/device/cpu/tiles/blocks/tile_blocks.h"
#endif
typedef int tile_blocks_dotprod_is_for_aarch64;
