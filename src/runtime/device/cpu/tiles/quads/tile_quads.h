/* SPDX-License-Identifier: Apache-2.0 */
/* Included once an instruction set that multiplies bytes: defines the TileSet tile_quads_<ISA>, products of quads
 * (runtime/device/cpu/quads.h) of u8 by quads of i8, summed in 32 bits. Wants
 *   ISA, ISA_TARGET, VECTOR_BYTES, REGISTERS   as tile_isa.h
 *   QUAD_DOT      how four products are added: DOT_PLAIN, any vectors; DOT_PAIRS, AVX2's products of pairs, of words, and of
 *                 bytes where these do not saturate (tile_bytes.h); DOT_VNNI, the instruction for it; DOT_AMX, AMX's (tile_amx.h);
 *                 VECTOR_BYTES is 64 then; DOT_SIGNED, aarch64's of bytes that are both signed (SDOT): 128 is taken off those of a row,
 *                 and 128 times the column's sum added; DOT_SQUARES, aarch64's products of matrices (tile_squares.h) */
#define DOT_PLAIN 0
#define DOT_PAIRS 1
#define DOT_VNNI 2
#define DOT_AMX 3
#define DOT_SIGNED 4
#define DOT_SQUARES 5

#include <string.h>
#include "runtime/device/cpu/tiles/tile_unit.h"

#define T uint32_t
#define NAME(word) TILE_JOIN(quads, word)
#define IS_FLOAT 0
#define IS_F32 0
#define WIDE (REGISTERS == 32)
#define TILE_WITHOUT_LINES
#if QUAD_DOT == DOT_AMX
#define TILE_WITHOUT_PRODUCTS
#elif QUAD_DOT == DOT_PAIRS
#define TILE_BYTES
#elif QUAD_DOT == DOT_SIGNED
#define SET_1_ROWS 0, 12, 12, 8, 5 /* a vector of weights has a register more */
#endif

/* One quad of a row in all lanes. */
TILE_INLINE VU quads_spread(const uint32_t *x) {
    typedef uint32_t Bits __attribute__((may_alias));
    VU value = *(const Bits *)x - (VU){0};
#if QUAD_DOT == DOT_PAIRS
    TILE_HOLD(value); /* else GCC splits it in general registers and moves both halves over */
#elif QUAD_DOT == DOT_SIGNED
    value ^= 0x80808080;
#endif
    return value;
}

/* sum + x[0] w[0] + ... + x[3] w[3] in each lane. */
TILE_INLINE VU quads_add_product(VU sum, VU x, VU w) {
#if QUAD_DOT == DOT_VNNI && VECTOR_BYTES == 64
    return (VU)_mm512_dpbusd_epi32((__m512i)sum, (__m512i)x, (__m512i)w);
#elif QUAD_DOT == DOT_VNNI
    return (VU)_mm256_dpbusd_avx_epi32((__m256i)sum, (__m256i)x, (__m256i)w);
#elif QUAD_DOT == DOT_SIGNED
    return (VU)vdotq_laneq_s32((int32x4_t)sum, (int8x16_t)w, (int8x16_t)x, 0);
#elif QUAD_DOT == DOT_SQUARES
    return (VU)vsudotq_laneq_s32((int32x4_t)sum, (int8x16_t)w, (uint8x16_t)x, 0);
#elif QUAD_DOT == DOT_PAIRS
    typedef int16_t Words __attribute__((vector_size(VECTOR_BYTES)));
    typedef uint16_t Bare __attribute__((vector_size(VECTOR_BYTES)));
    Words even = (Words)w << 8 >> 8, odd = (Words)w >> 8;
    VU low = x & 0x00ff00ff, high = (VU)((Bare)x >> 8);
    return sum + (VU)_mm256_madd_epi16((__m256i)low, (__m256i)even) +
           (VU)_mm256_madd_epi16((__m256i)high, (__m256i)odd);
#else
    VI wide = (VI)w;
    sum += (x & 255) * (VU)(wide << 24 >> 24);
    sum += (x >> 8 & 255) * (VU)(wide << 16 >> 24);
    sum += (x >> 16 & 255) * (VU)(wide << 8 >> 24);
    return sum + (x >> 24) * (VU)(wide >> 24);
#endif
}

#if QUAD_DOT == DOT_SIGNED
/* -128 times the weights: what is taken off a column's sums for its rows' 128. */
TILE_INLINE VU quads_add_weight(VU sum, VU w) { return (VU)vdotq_s32((int32x4_t)sum, (int8x16_t)w, vdupq_n_s8(-128)); }
#define TILE_ADD_WEIGHT quads_add_weight
#elif QUAD_DOT == DOT_SQUARES
#define TILE_ADD_SQUARE(sum, x, w) (VU) vusmmlaq_s32((int32x4_t)(sum), (uint8x16_t)(x), (int8x16_t)(w))
#endif

#define TILE_ADD_PRODUCT quads_add_product
#define TILE_SPREAD quads_spread
#include "runtime/device/cpu/tiles/tile_type.h"
#undef TILE_ADD_PRODUCT
#undef TILE_SPREAD
#undef TILE_WITHOUT_LINES
#undef TILE_WITHOUT_PRODUCTS
#undef TILE_BYTES
#undef TILE_ADD_WEIGHT
#undef TILE_ADD_SQUARE

#if QUAD_DOT == DOT_AMX
#ifdef TILE_AMX_PLAIN
static void amx_add_product(uint32_t *sum, const uint32_t *row, const uint32_t *column) {
    for (int k = 0; k < 16; k++)
        for (int b = 0; b < 32; b += 8)
            *sum += (uint32_t)((int)(row[k] >> b & 255) * (int8_t)(uint8_t)(column[k] >> b & 255));
}
#endif
#define AMX_SET quads
#define AMX_SUM uint32_t
#define AMX_BOUND NULL
#define AMX_PRODUCT(c, a, b) _tile_dpbusd(c, a, b)
#include "runtime/device/cpu/tiles/tile_amx.h"
#else
const TileSet TILE_JOIN(tile_quads, ISA) = SET_WITHOUT_LINES(quads, uint32_t, NULL, NULL);
#endif

VECTOR_END
