/* SPDX-License-Identifier: Apache-2.0 */
/* Products of quads for aarch64's FEAT_I8MM. */
#if defined(__aarch64__)
#define ISA i8mm
#define ISA_TARGET "arch=armv8.2-a+i8mm"
#define VECTOR_BYTES 16
#define REGISTERS 32
#define QUAD_DOT DOT_SQUARES
#include "runtime/device/cpu/tiles/quads/tile_quads.h"
#endif
typedef int tile_quads_i8mm_is_for_aarch64;
