/* SPDX-License-Identifier: Apache-2.0 */
/* Rounding of packed f32 weights to a narrow form (WeightForm): to nearest, ties to even, saturating.
 *
 * F16, BF16: the nearest finite number. INT8, INT4: a block of a column has the scale (its largest magnitude) / 127 or
 * / 7, or the one that the model gives, and an element is the whole number nearest to (element / scale), both quotients
 * in f32. */
#include <math.h>
#include <string.h>
#include "runtime/device/cpu/product.h"

enum { MAX_WIDTH = TILE_MAX_VECTORS * 16 }; /* columns of a panel */

static int64_t blocks_of(int64_t length) { return (length + NARROW_BLOCK - 1) / NARROW_BLOCK; }
static int64_t words_of(int64_t length) { return (length + NARROW_WORD - 1) / NARROW_WORD; }

size_t narrow_column_bytes(WeightForm form, int64_t length) {
    size_t scales = (size_t)blocks_of(length) * sizeof(float);
    switch (form) {
    case WEIGHT_F16:
    case WEIGHT_BF16: return (size_t)length * sizeof(uint16_t);
    case WEIGHT_INT8: return scales + (size_t)length;
    case WEIGHT_INT4: return scales + (size_t)words_of(length) * sizeof(uint32_t);
    default: return (size_t)length * sizeof(float);
    }
}

/* ---- halves ---- */

static void round_halves(WeightForm form, const float *panel, int64_t count, uint16_t *out) {
    enum { PIECE = 256 };
    float most = form == WEIGHT_F16 ? 65504.0f : 0x1.fep127f, piece[PIECE];
    for (int64_t at = 0; at < count; at += PIECE) {
        int64_t some = count - at < PIECE ? count - at : PIECE;
        for (int64_t i = 0; i < some; i++) {
            float x = panel[at + i];
            piece[i] = x > most ? most : x < -most ? -most : x;
        }
        (form == WEIGHT_F16 ? tile_isa()->narrow_f16 : tile_isa()->narrow_bf16)(piece, out + at, some);
    }
}

/* ---- blocks ---- */

static void block_scales(const float *rows, int64_t depths, int64_t width, float most, float *scales) {
    for (int64_t j = 0; j < width; j++) scales[j] = 0;
    for (int64_t k = 0; k < depths; k++)
        for (int64_t j = 0; j < width; j++) {
            float x = fabsf(rows[k * width + j]);
            scales[j] = x > scales[j] ? x : scales[j];
        }
    for (int64_t j = 0; j < width; j++) {
        float scale = scales[j] / most;
        scales[j] = isinf(scale * most) ? nextafterf(scale, 0) : scale; /* at the end of the floats' range */
    }
}

/* A row of whole numbers; scales below the least float are 0, and so are their elements. A given scale may use the
 * lowest number too. */
static void round_row(const float *row, const float *scales, int64_t width, float most, int8_t *out) {
    const float shift = 0x1.8p23f; /* rounds what is added to it to a whole number */
    for (int64_t j = 0; j < width; j++) {
        float x = scales[j] != 0 ? row[j] / scales[j] : 0;
        x = x > most ? most : x < -most - 1 ? -most - 1 : x;
        out[j] = (int8_t)((x + shift) - shift);
    }
}

static void *round_int8(const float *rows, int64_t depths, int64_t width, const float *scales, void *out) {
    int8_t *to = out;
    for (int64_t k = 0; k < depths; k++, to += width) round_row(rows + k * width, scales, width, 127, to);
    return to;
}

static void *round_int4(const float *rows, int64_t depths, int64_t width, const float *scales, void *out) {
    uint32_t *to = out;
    int8_t whole[MAX_WIDTH];
    for (int64_t k = 0; k < depths; k++) {
        int shift = (int)(k % NARROW_WORD) * 4;
        round_row(rows + k * width, scales, width, 7, whole);
        for (int64_t j = 0; j < width; j++) to[j] = (shift ? to[j] : 0) | (uint32_t)(whole[j] + 8) << shift;
        if (shift == 28 || k + 1 == depths) to += width;
    }
    return to;
}

void narrow_panel(WeightForm form, const float *panel, const float *given, int64_t length, int64_t width, void *out) {
    if (form == WEIGHT_F16 || form == WEIGHT_BF16) {
        round_halves(form, panel, length * width, out);
        return;
    }
    for (int64_t k = 0; k < length; k += NARROW_BLOCK) {
        const float *rows = panel + k * width;
        float *scales = out;
        int64_t depths = length - k < NARROW_BLOCK ? length - k : NARROW_BLOCK;
        if (given)
            memcpy(scales, given + k / NARROW_BLOCK * width, (size_t)width * sizeof *scales);
        else
            block_scales(rows, depths, width, form == WEIGHT_INT8 ? 127 : 7, scales);
        out = (form == WEIGHT_INT8 ? round_int8 : round_int4)(rows, depths, width, scales, scales + width);
    }
}
