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

extern const TileSet tile_quads_base, tile_pairs_base;
#if defined(__x86_64__)
extern const TileSet tile_quads_avx2, tile_quads_avxvnni, tile_quads_avx512vnni;
extern const TileSet tile_pairs_avx2, tile_pairs_avx512, tile_pairs_avx512bf16, tile_pairs_amx;
#endif

int tile_sets_of_quads(const TileSet *out_sets[4]) {
    int count = 0;
#if defined(__x86_64__)
    VectorIsa isa = vector_isa();
    if (isa == VECTOR_AVX512 && vector_has_vnni()) out_sets[count++] = &tile_quads_avx512vnni;
    if (isa != VECTOR_BASE && vector_has_avx_vnni()) out_sets[count++] = &tile_quads_avxvnni;
    if (isa != VECTOR_BASE) out_sets[count++] = &tile_quads_avx2;
#endif
    out_sets[count++] = &tile_quads_base;
    return count;
}

const TileSet *tile_set_quads(void) {
    const TileSet *sets[4];
    tile_sets_of_quads(sets);
    return sets[0];
}

int tile_sets_of_pairs(const TileSet *out_sets[5]) {
    int count = 0;
#if defined(__x86_64__)
    VectorIsa isa = vector_isa();
    if (isa == VECTOR_AVX512 && vector_has_amx_bf16()) out_sets[count++] = &tile_pairs_amx;
    if (isa == VECTOR_AVX512 && vector_has_bf16()) out_sets[count++] = &tile_pairs_avx512bf16;
    if (isa == VECTOR_AVX512) out_sets[count++] = &tile_pairs_avx512;
    if (isa != VECTOR_BASE) out_sets[count++] = &tile_pairs_avx2;
#endif
    out_sets[count++] = &tile_pairs_base;
    return count;
}

const TileSet *tile_set_pairs(void) {
    const TileSet *sets[5];
    tile_sets_of_pairs(sets);
    return sets[0];
}
