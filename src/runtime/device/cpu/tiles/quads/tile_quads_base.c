/* SPDX-License-Identifier: Apache-2.0 */
/* Products of quads for the architecture's least. */
#define ISA base
#define VECTOR_BYTES 16
#if defined(__aarch64__)
#define REGISTERS 32
#else
#define REGISTERS 16
#endif
#define QUAD_DOT DOT_PLAIN
#include "runtime/device/cpu/tiles/quads/tile_quads.h"
