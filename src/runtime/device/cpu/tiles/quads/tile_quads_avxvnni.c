/* SPDX-License-Identifier: Apache-2.0 */
/* Products of quads for AVX-VNNI: processors without AVX-512. */
#if defined(__x86_64__)
#define ISA avxvnni
#define ISA_TARGET "avx2,fma,f16c,avxvnni"
#define VECTOR_BYTES 32
#define REGISTERS 16
#define QUAD_DOT DOT_VNNI
#include "runtime/device/cpu/tiles/quads/tile_quads.h"
#endif
typedef int tile_quads_avxvnni_is_for_x86_64;
