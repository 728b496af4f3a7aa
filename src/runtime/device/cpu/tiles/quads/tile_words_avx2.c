/* SPDX-License-Identifier: Apache-2.0 */
/* Winograd's convolution F(2x2, 3x3) of bytes for AVX2 (conv/winograd.c): its transforms, and the products of pairs of 16-bit words
 * (vpmaddwd) between them, summed in 32 bits. All is exact: transformed pixels are within 4 * 255 and transformed kernels, which are four times what
 * they would be, within 9 * 128, and sums wrap around where the result, a quarter of what they add up to, does not (winograd.c sees to it). */
#if defined(__x86_64__)
#define ISA avx2
#define ISA_TARGET "avx2,fma,f16c"
#define VECTOR_BYTES 32
#define REGISTERS 16
#include <string.h>
#include "runtime/device/cpu/tiles/tile_unit.h"

#define T uint32_t
#define NAME(word) TILE_JOIN(words, word)
#define IS_FLOAT 0
#define IS_F32 0
#define WIDE 0
#define TILE_WITHOUT_LINES

/* One pair of a row in all lanes. */
TILE_INLINE VU words_spread(const uint32_t *x) {
    typedef uint32_t Bits __attribute__((may_alias));
    return *(const Bits *)x - (VU){0};
}

TILE_INLINE VU words_add_product(VU sum, VU x, VU w) { return sum + (VU)_mm256_madd_epi16((__m256i)x, (__m256i)w); }

#define TILE_ADD_PRODUCT words_add_product
#define TILE_SPREAD words_spread
#include "runtime/device/cpu/tiles/tile_type.h"

static const TileSet words_set = SET_WITHOUT_LINES(words, uint32_t, NULL, NULL);

typedef int16_t Words __attribute__((vector_size(VECTOR_BYTES)));
typedef Words LooseWords __attribute__((aligned(2), may_alias));
typedef VU LooseSums __attribute__((aligned(4), may_alias));

enum { PIXELS = 4, RESULTS = 2, QUADS = VECTOR_BYTES / 2 / 4 }; /* QUADS: whose words fill a vector */

/* B^T d */
TILE_INLINE void words_forward(const Words d[PIXELS], Words t[PIXELS]) {
    t[0] = d[0] - d[2];
    t[1] = d[1] + d[2];
    t[2] = d[2] - d[1];
    t[3] = d[1] - d[3];
}

/* `count` quads of a pixel; nothing behind them is read. */
TILE_INLINE Words words_pixel(const uint32_t *from, int count) {
    uint32_t part[QUADS] = {0};
    if (count >= QUADS) return (Words)_mm256_cvtepu8_epi16(_mm_loadu_si128((const __m128i *)(const void *)from));
    memcpy(part, from, (size_t)count * sizeof *part);
    return (Words)_mm256_cvtepu8_epi16(_mm_loadu_si128((const __m128i *)(const void *)part));
}

/* A vector of words from quad `first` on; whole: all pixels are inside. */
TILE_INLINE void words_input_vector(const WinogradInput *in, int64_t first, const bool whole, Words padding) {
    Words columns[PIXELS][PIXELS], d[PIXELS], t[PIXELS];
    const int count = in->channels - first < QUADS ? (int)(in->channels - first) : QUADS;
    TILE_UNROLL
    for (int x = 0; x < PIXELS; x++) {
        TILE_UNROLL
        for (int y = 0; y < PIXELS; y++) {
            bool inside = whole || ((in->lines >> y & 1) && (in->pixels >> x & 1));
            /* the first pixel may lie outside the input */
            uintptr_t at = (uintptr_t)in->x + (uintptr_t)(y * in->line + x * in->pixel + first) * sizeof(uint32_t);
            d[y] = inside ? words_pixel((const uint32_t *)at, count) : padding;
        }
        words_forward(d, columns[x]);
    }
    TILE_UNROLL
    for (int y = 0; y < PIXELS; y++) {
        TILE_UNROLL
        for (int x = 0; x < PIXELS; x++) d[x] = columns[x][y];
        words_forward(d, t);
        TILE_UNROLL
        for (int x = 0; x < PIXELS; x++)
            *(LooseWords *)((uint32_t *)in->to + (y * PIXELS + x) * in->stride + first * 2) = t[x];
    }
}

static void words_winograd_input(const WinogradInput *in) {
    const Words padding = (int16_t)(in->padding & 255) - (Words){0};
    const bool whole = in->lines == 15 && in->pixels == 15;
    int64_t quad = 0;
    for (; whole && quad + QUADS <= in->channels; quad += QUADS) words_input_vector(in, quad, true, padding);
    for (; quad < in->channels; quad += QUADS) words_input_vector(in, quad, false, padding);
}

/* A^T m */
TILE_INLINE void words_backward(const VU m[PIXELS], VU y[RESULTS]) {
    y[0] = m[0] + m[1] + m[2];
    y[1] = m[1] - m[2] - m[3];
}

static void words_winograd_output(const WinogradOutput *out) {
    const TileCall *ends = &out->ends;
    const uint32_t *from = (const uint32_t *)out->from;
    for (int64_t first = 0; first < ends->columns; first += (int)(VECTOR_BYTES / sizeof(uint32_t))) {
        VU columns[PIXELS][RESULTS], m[PIXELS], line[RESULTS];
        TILE_UNROLL
        for (int x = 0; x < PIXELS; x++) {
            TILE_UNROLL
            for (int y = 0; y < PIXELS; y++) m[y] = *(const LooseSums *)(from + (y * PIXELS + x) * out->stride + first);
            words_backward(m, columns[x]);
        }
        VU sums[TILE_MAX_ROWS][TILE_MAX_VECTORS];
        void *results[RESULTS * RESULTS];
        int count = 0;
        TILE_UNROLL
        for (int y = 0; y < RESULTS; y++) {
            TILE_UNROLL
            for (int x = 0; x < PIXELS; x++) m[x] = columns[x][y];
            words_backward(m, line);
            for (int x = 0; x < RESULTS; x++) {
                if (!ends->results[y * RESULTS + x]) continue;
                results[count] = ends->results[y * RESULTS + x];
                sums[count++][0] = (VU)((VI)line[x] >> 2);
            }
        }
        const int lanes = (int)(VECTOR_BYTES / sizeof(uint32_t)),
                  last = ends->columns - first < lanes ? (int)(ends->columns - first) : lanes;
        for (int i = 0; i < count; i++)
            words_finish(ends, NULL, results + i, ends->column + first, sums + i, 1, 1, last);
    }
}

const TileWinograd tile_winograd_words_avx2 = {RESULTS, PIXELS, &words_set, words_winograd_input,
                                               words_winograd_output};

VECTOR_END
#endif
typedef int tile_words_avx2_is_for_x86_64;
