/* SPDX-License-Identifier: Apache-2.0 */
/* Included once an instruction set: defines the TileSet tile_pairs_<ISA>, products of pairs of bf16
 * (runtime/device/cpu/quads.h), summed in f32. Wants
 *   ISA, ISA_TARGET, VECTOR_BYTES, REGISTERS   as tile_isa.h
 *   PAIR_DOT      1: the instruction for it adds both products and takes subnormal numbers for 0 (what it reads and what it makes), on
 *                 x86-64 to nearest; on aarch64 to odd, their sum and what it is added to, and as a product of matrices (tile_squares.h);
 *                 0: both are widened in registers and added one after the other, as f32 are
 *   PAIR_AMX      1: AMX does it (tile_amx.h); VECTOR_BYTES is 64 then */
#include <math.h>
#include <string.h>
#include "runtime/device/cpu/tiles/tile_unit.h"

#define T float
#define NAME(word) TILE_JOIN(pairs, word)
#define IS_FLOAT 1
#define IS_F32 0
#define WIDE (REGISTERS == 32)
#define TILE_WITHOUT_LINES
#define TILE_SCALES
#if PAIR_AMX
#define TILE_WITHOUT_PRODUCTS
#endif

TILE_INLINE VF pairs_clamp(VF x, VF low, VF high) { return f32_clamp(x, low, high); }

/* The bits of a pair are no number: they stay as they are. */
TILE_INLINE VF pairs_spread(const float *x) {
    typedef uint32_t Bits __attribute__((may_alias));
    return (VF)(*(const Bits *)x - (VU){0});
}

/* sum + x[0] w[0] + x[1] w[1] in each lane. */
TILE_INLINE VF pairs_add_product(VF sum, VF x, VF w) {
#if PAIR_DOT && defined(__aarch64__)
    return (VF)vbfdotq_laneq_f32((float32x4_t)sum, (bfloat16x8_t)w, (bfloat16x8_t)x, 0);
#elif PAIR_DOT
    return (VF)_mm512_dpbf16_ps((__m512)sum, (__m512bh)x, (__m512bh)w);
#else
    sum += (VF)((VU)x << 16) * (VF)((VU)w << 16);
    return sum + (VF)((VU)x & 0xffff0000) * (VF)((VU)w & 0xffff0000);
#endif
}

/* To nearest even. x86's instruction takes subnormal numbers for 0. */
typedef uint16_t PairsRounded __attribute__((vector_size(VECTOR_BYTES / 2)));
TILE_INLINE PairsRounded pairs_round(VF x) {
#if PAIR_DOT && defined(__aarch64__)
    return (PairsRounded)vcvt_bf16_f32((float32x4_t)x);
#elif PAIR_DOT
    return (PairsRounded)_mm512_cvtneps_pbh((__m512)x);
#else
    VU bits = (VU)x, rounded = (bits + 0x7fff + (bits >> 16 & 1)) >> 16, nan = (VU)(x != x);
    return __builtin_convertvector((nan & (bits >> 16 | 0x40)) | (~nan & rounded), PairsRounded);
#endif
}

#if PAIR_DOT && defined(__aarch64__)
#define TILE_ADD_SQUARE(sum, x, w) (VF) vbfmmlaq_f32((float32x4_t)(sum), (bfloat16x8_t)(x), (bfloat16x8_t)(w))
#endif
#define TILE_ENDS pairs_round
#define TILE_ADD_PRODUCT pairs_add_product
#define TILE_SPREAD pairs_spread
#include "runtime/device/cpu/tiles/tile_type.h"
#undef TILE_ADD_PRODUCT
#undef TILE_ADD_SQUARE
#undef TILE_SPREAD
#undef TILE_SCALES
#undef TILE_ENDS
#undef TILE_WITHOUT_LINES
#undef TILE_WITHOUT_PRODUCTS

#if PAIR_AMX
#define AMX_SET pairs
#define AMX_SUM float
#define AMX_BOUND pairs_bound_row
#define AMX_PRODUCT(c, a, b) AMX_DOT_PAIRS(c, a, b)
#define amx_add_product amx_add_pairs
#include "runtime/device/cpu/tiles/tile_amx.h"
#else
const TileSet TILE_JOIN(tile_pairs, ISA) = SET_WITHOUT_LINES(pairs, float, NULL, pairs_bound_row);
#endif

VECTOR_END
