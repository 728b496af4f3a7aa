/* SPDX-License-Identifier: Apache-2.0 */
/* Products of rows in blocks for the architecture's least. */
#define ISA base
#define VECTOR_BYTES 16
#if defined(__aarch64__)
#define REGISTERS 32
#else
#define REGISTERS 16
#endif
#define BLOCK_DOT BLOCK_PLAIN
#include "runtime/device/cpu/tiles/blocks/tile_blocks.h"
