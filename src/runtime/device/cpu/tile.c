/* SPDX-License-Identifier: Apache-2.0 */
/* The choice among the instruction sets for which the tiles are compiled. */
#include "runtime/device/cpu/tile.h"

#if defined(__x86_64__)
#include <cpuid.h>

/* Not all compilers know the name. */
static bool has_f16c(void) {
    unsigned a, b, c, d;
    return __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C);
}
#endif

const TileIsa *tile_isa(void) {
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
        __builtin_cpu_supports("avx512vl"))
        return &tile_avx512;
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && has_f16c()) return &tile_avx2;
#endif
    return &tile_base;
}

const TileSet *tile_set(DType type) {
    const TileIsa *isa = tile_isa();
    return type == DT_F32 ? &isa->f32 : type == DT_F64 ? &isa->f64 : type == DT_U32 ? &isa->u32 : &isa->u64;
}
