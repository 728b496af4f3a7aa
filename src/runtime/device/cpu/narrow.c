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

size_t narrow_column_bytes(const WeightForm *form, int64_t length) {
    if (form->kind == WEIGHT_F16 || form->kind == WEIGHT_BF16) return (size_t)length * sizeof(uint16_t);
    int64_t blocks = (length + form->block - 1) / form->block, word = weight_word(form->kind);
    size_t before = (size_t)blocks * (1 + form->zeros) * sizeof(float);
    return before +
           (form->kind == WEIGHT_INT8 ? (size_t)length : (size_t)((length + word - 1) / word) * sizeof(uint32_t));
}

/* ---- halves ---- */

static void round_halves(WeightKind form, const float *panel, int64_t count, uint16_t *out) {
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

/* A row of whole numbers; scales below the least float are 0, and so are their elements. */
static void round_row(const float *row, const float *scales, int64_t width, float most, int8_t *out) {
    const float shift = 0x1.8p23f; /* rounds what is added to it to a whole number */
    for (int64_t j = 0; j < width; j++) {
        float x = scales[j] != 0 ? row[j] / scales[j] : 0;
        x = x > most ? most : x < -most ? -most : x;
        out[j] = (int8_t)((x + shift) - shift);
    }
}

static void *round_int8(const float *rows, int64_t depths, int64_t width, const float *scales, void *out) {
    int8_t *to = out;
    for (int64_t k = 0; k < depths; k++, to += width) round_row(rows + k * width, scales, width, 127, to);
    return to;
}

enum { WORD = 8 }; /* depths */

static void *round_int4(const float *rows, int64_t depths, int64_t width, const float *scales, void *out) {
    uint32_t *to = out;
    int8_t whole[MAX_WIDTH];
    for (int64_t k = 0; k < depths; k++) {
        int shift = (int)(k % WORD) * 4;
        round_row(rows + k * width, scales, width, 7, whole);
        for (int64_t j = 0; j < width; j++) to[j] = (shift ? to[j] : 0) | (uint32_t)(whole[j] + 8) << shift;
        if (shift == 28 || k + 1 == depths) to += width;
    }
    return to;
}

void narrow_panel(WeightKind kind, const float *panel, int64_t length, int64_t width, void *out) {
    if (kind == WEIGHT_F16 || kind == WEIGHT_BF16) {
        round_halves(kind, panel, length * width, out);
        return;
    }
    for (int64_t k = 0; k < length; k += NARROW_BLOCK) {
        const float *rows = panel + k * width;
        float *scales = out;
        int64_t depths = length - k < NARROW_BLOCK ? length - k : NARROW_BLOCK;
        block_scales(rows, depths, width, kind == WEIGHT_INT8 ? 127 : 7, scales);
        out = (kind == WEIGHT_INT8 ? round_int8 : round_int4)(rows, depths, width, scales, scales + width);
    }
}

/* ---- blocks as they came ---- */

/* A block of the source is one or several of the form's, whose size tiles can begin at. */
WeightForm blocks_form(const WeightBlocks *blocks) {
    int block = MOST_BLOCK;
    while (blocks->block % block) block /= 2;
    static const WeightKind kinds[] = {[2] = WEIGHT_INT2, [3] = WEIGHT_INT4, [4] = WEIGHT_INT4, [8] = WEIGHT_INT8};
    return (WeightForm){kinds[blocks->bits], block, blocks->zeros != NULL};
}

/* `words` words of a column's depths from `first` on. Those of 2 and 4 bits lie in the file as they do here; those of 3 bits
 * become 4 of them. */
static void take_words(const WeightBlocks *b, int64_t column, int64_t first, int64_t words, uint32_t *to,
                       int64_t width) {
    if (b->bits != 3) {
        const uint8_t *from = weight_block_bits(b, column, first / b->block) + first % b->block * b->bits / 8;
        for (int64_t i = 0; i < words; i++) memcpy(to + i * width, from + i * 4, 4);
        return;
    }
    const uint8_t *from = weight_block_bits(b, column, first / b->block);
    for (int64_t i = 0; i < words; i++) {
        uint32_t word = 0;
        for (int64_t k = 0; k < WORD; k++)
            word |= (uint32_t)(weight_bits(from, first % b->block + i * WORD + k, 3) + 4) << 4 * k;
        to[i * width] = word;
    }
}

void blocks_panel(const WeightForm *form, const WeightBlocks *b, int64_t first, int columns, int64_t width, void *out) {
    char *to = out;
    int64_t word = weight_word(form->kind);
    if (columns < width) memset(to, 0, narrow_column_bytes(form, b->k) * (size_t)width);
    for (int64_t k = 0; k < b->k; k += form->block) {
        int64_t depths = b->k - k < form->block ? b->k - k : form->block, block = k / b->block;
        for (int64_t c = 0; c < columns; c++) ((float *)(void *)to)[c] = (float)weight_block_scale(b, first + c, block);
        to += width * (int64_t)sizeof(float);
        for (int64_t c = 0; form->zeros && c < columns; c++)
            ((float *)(void *)to)[c] = (float)(weight_block_zero(b, first + c, block) - weight_middle(b));
        if (form->zeros) to += width * (int64_t)sizeof(float);
        if (form->kind == WEIGHT_INT8) {
            for (int64_t c = 0; c < columns; c++) {
                const uint8_t *from = weight_block_bits(b, first + c, block) + k % b->block;
                for (int64_t i = 0; i < depths; i++) to[i * width + c] = (char)(from[i] ^ 0x80);
            }
            to += depths * width;
            continue;
        }
        int64_t words = (depths + word - 1) / word;
        for (int64_t c = 0; c < columns; c++) take_words(b, first + c, k, words, (uint32_t *)(void *)to + c, width);
        to += words * width * (int64_t)sizeof(uint32_t);
    }
}
