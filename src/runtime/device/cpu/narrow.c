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
    return before + (size_t)((length + word - 1) / word) * sizeof(uint32_t);
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

static void *round_words(WeightKind kind, const float *rows, int64_t depths, int64_t width, const float *scales,
                         void *out) {
    const int word = weight_word(kind), zero = weight_zero(kind);
    uint32_t *to = out;
    int8_t whole[MAX_WIDTH];
    for (int64_t k = 0; k < depths; k++) {
        int in = (int)(k % word), shift = in * 32 / word;
        round_row(rows + k * width, scales, width, (float)(zero - 1), whole);
        for (int64_t j = 0; j < width; j++) to[j] = (in ? to[j] : 0) | (uint32_t)(whole[j] + zero) << shift;
        if (in + 1 == word || k + 1 == depths) to += width;
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
        block_scales(rows, depths, width, (float)(weight_zero(kind) - 1), scales);
        out = round_words(kind, rows, depths, width, scales, scales + width);
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

/* Where a panel's numbers stand. */
typedef struct PanelBlocks {
    char *to;
    int64_t row;    /* bytes: of the scales, of a word of each column */
    int64_t before; /* bytes of a block's scales and zero points */
    int64_t each;   /* bytes of a whole block */
    int64_t words;  /* in a whole block */
} PanelBlocks;

static PanelBlocks blocks_in_panel(const WeightForm *form, int64_t width, void *out) {
    PanelBlocks p = {.to = out, .row = width * (int64_t)sizeof(float), .words = form->block / weight_word(form->kind)};
    p.before = p.row * (1 + form->zeros);
    p.each = p.before + p.words * p.row;
    return p;
}

static char *word_in_panel(const PanelBlocks *p, int64_t word) {
    return p->to + word / p->words * p->each + p->before + word % p->words * p->row;
}

/* Scales, and where there are some zero points, of a column's blocks. */
static void take_scales(const WeightForm *form, const WeightBlocks *b, int64_t column, const PanelBlocks *p, char *to) {
    const bool floats = b->scales->dtype == DT_F32;
    const char *scales = (const char *)b->scales->data + (b->first + column) * b->count * (int64_t)sizeof(float);
    int64_t k = 0;
    for (int64_t block = 0; block < b->count; block++) { /* which is one or several of the form's */
        float scale, zero = 0;
        if (floats)
            memcpy(&scale, scales + block * (int64_t)sizeof scale, sizeof scale);
        else
            scale = (float)weight_block_scale(b, column, block);
        if (form->zeros) zero = (float)(weight_block_zero(b, column, block) - weight_middle(b));
        for (int64_t end = k + b->block; k < end && k < b->k; k += form->block, to += p->each) {
            memcpy(to, &scale, sizeof scale);
            if (form->zeros) memcpy(to + p->row, &zero, sizeof zero);
        }
    }
}

enum { WORD = 8 }; /* depths of what was of 3 bits and is held in 4 of them */

/* Words [first, end) of a column. Those of 2, 4 and 8 bits lie in the file as they do here. */
static void take_words(const WeightBlocks *b, int64_t column, int64_t first, int64_t end, const PanelBlocks *p,
                       int64_t place) {
    const uint8_t *from = weight_block_bits(b, column, 0);
    for (int64_t q = first; q < end; q++) {
        char *to = word_in_panel(p, q) + place * (int64_t)sizeof(uint32_t);
        if (b->bits != 3) {
            memcpy(to, from + q * (int64_t)sizeof(uint32_t), sizeof(uint32_t));
            continue;
        }
        const uint8_t *bits = from + q * WORD / b->block * b->block_bytes;
        uint32_t word = 0;
        for (int64_t k = 0; k < WORD; k++)
            word |= (uint32_t)(weight_bits(bits, q * WORD % b->block + k, 3) + 4) << 4 * k;
        memcpy(to, &word, sizeof word);
    }
}

/* All words of so many columns; squares of them are turned in registers. */
static void take_all_words(const WeightForm *form, const WeightBlocks *b, int64_t first, int columns,
                           const PanelBlocks *p) {
    const TileSet *set = &tile_isa()->f32;
    const int lanes = set->lanes;
    const int64_t word = weight_word(form->kind), words = (b->k + word - 1) / word;
    void *to[TILE_MAX_LANES];
    int64_t turned = b->bits == 3 ? 0 : words / lanes * lanes;
    int squares = columns / lanes * lanes;
    for (int64_t q = 0; q < turned; q += lanes)
        for (int c = 0; c < squares; c += lanes) {
            for (int i = 0; i < lanes; i++)
                to[i] = c ? (char *)to[i] + lanes * (int64_t)sizeof(uint32_t) : word_in_panel(p, q + i);
            set->transpose(weight_block_bits(b, first + c, 0) + q * (int64_t)sizeof(uint32_t),
                           b->count * b->block_bytes / (int64_t)sizeof(uint32_t), to);
        }
    for (int c = 0; c < columns; c++) take_words(b, first + c, c < squares ? turned : 0, words, p, c);
}

void blocks_panel(const WeightForm *form, const WeightBlocks *b, int64_t first, int columns, int64_t width, void *out) {
    const PanelBlocks p = blocks_in_panel(form, width, out);
    if (columns < width) memset(out, 0, narrow_column_bytes(form, b->k) * (size_t)width);
    for (int c = 0; c < columns; c++) take_scales(form, b, first + c, &p, p.to + c * (int64_t)sizeof(float));
    take_all_words(form, b, first, columns, &p);
}
