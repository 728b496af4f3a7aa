/* SPDX-License-Identifier: Apache-2.0 */
/* The tiles for what every machine of the architecture has: SSE2, NEON, or whatever the compiler makes of 16-byte
 * vectors. */
#define ISA base
#define VECTOR_BYTES 16
#if defined(__aarch64__)
#define REGISTERS 32
#else
#define REGISTERS 16
#endif
#include "runtime/device/cpu/tiles/tile_isa.h"
