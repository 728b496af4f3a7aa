/* SPDX-License-Identifier: Apache-2.0 */
/* The products of tile_blocks_amx.c with AMX's registers in plain memory and any machine's vectors: the set tile_blocks_amx_plain. */
#define ISA amx_plain
#define VECTOR_BYTES 16
#define REGISTERS 16
#define BLOCK_DOT BLOCK_PLAIN
#define BLOCK_AMX
#define TILE_AMX_PLAIN
#include "runtime/device/cpu/tiles/blocks/tile_blocks.h"
