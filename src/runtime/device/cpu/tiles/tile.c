/* SPDX-License-Identifier: Apache-2.0 */
/* The choice among the instruction sets for which the tiles are compiled. */
#include "runtime/device/cpu/tiles/tile.h"

#include "base/vectors/vector_isa.h"

const TileIsa *tile_isa(void) {
#if defined(__x86_64__)
    VectorIsa isa = vector_isa();
    if (isa != VECTOR_BASE) return isa == VECTOR_AVX512 ? &tile_avx512 : &tile_avx2;
#endif
    return &tile_base;
}

const TileSet *tile_set(DType type) {
    const TileIsa *isa = tile_isa();
    return type == DT_F32 ? &isa->f32 : type == DT_F64 ? &isa->f64 : type == DT_U32 ? &isa->u32 : &isa->u64;
}
