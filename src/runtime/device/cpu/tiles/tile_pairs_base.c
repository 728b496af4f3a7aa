/* SPDX-License-Identifier: Apache-2.0 */
/* Products of pairs for the architecture's least. */
#define ISA base
#define VECTOR_BYTES 16
#if defined(__aarch64__)
#define REGISTERS 32
#else
#define REGISTERS 16
#endif
#define PAIR_DOT 0
#define PAIR_AMX 0
#include "runtime/device/cpu/tiles/tile_pairs.h"
