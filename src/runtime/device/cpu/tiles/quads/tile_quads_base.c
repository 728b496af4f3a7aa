/* SPDX-License-Identifier: Apache-2.0 */
/* Products of quads for the architecture's least. */
#define ISA base
#define VECTOR_BYTES 16
#if defined(__aarch64__)
#define REGISTERS 32
#else
#define REGISTERS 16
#endif
#define DOT_PLAIN 0
#define DOT_PAIRS 1
#define DOT_VNNI 2
#define DOT_AMX 3
#define DOT_SIGNED 4
#define DOT_SQUARES 5
#define QUAD_DOT DOT_PLAIN
#include "runtime/device/cpu/tiles/quads/tile_quads.h"
