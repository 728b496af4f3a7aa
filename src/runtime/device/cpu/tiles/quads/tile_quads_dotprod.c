/* SPDX-License-Identifier: Apache-2.0 */
/* Products of quads for aarch64's FEAT_DotProd. */
#if defined(__aarch64__)
#define ISA dotprod
#define ISA_TARGET "arch=armv8.2-a+dotprod"
#define VECTOR_BYTES 16
#define REGISTERS 32
#define QUAD_DOT DOT_SIGNED
#include "runtime/device/cpu/tiles/quads/tile_quads.h"
#endif
typedef int tile_quads_dotprod_is_for_aarch64;
