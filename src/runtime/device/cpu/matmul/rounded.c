/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/device/cpu/matmul/rounded.h"

#include <math.h>
#include <string.h>
#include "lowering/sizes.h"

static bool in_words(const WeightForm *form) { return form->kind == WEIGHT_INT8 && tile_blocks()->words; }

int64_t rounded_row_bytes(const WeightForm *form, int64_t depth) {
    return (depth + form->block - 1) / form->block * rounded_block_bytes(form->block, in_words(form));
}

/* The bits of the largest magnitude: those of what is not finite are the largest. */
VECTORISED static uint32_t largest_bits(const float *x, int64_t count) {
    uint32_t most = 0;
    for (int64_t i = 0; i < count; i++) {
        uint32_t bits;
        memcpy(&bits, x + i, sizeof bits);
        bits &= 0x7fffffff;
        most = bits > most ? bits : most;
    }
    return most;
}

/* The nearest whole numbers to x * up * inverse, and their sum. */
VECTORISED static int32_t round_some(const float *x, int64_t count, float up, float inverse, int8_t *to) {
    const float shift = 0x1.8p23f; /* rounds what is added to it to a whole number */
    int32_t sum = 0;
    for (int64_t i = 0; i < count; i++) {
        int32_t whole = (int32_t)(x[i] * up * inverse + shift - shift);
        to[i] = (int8_t)whole;
        sum += whole;
    }
    return sum;
}

/* Eight bytes a word: those at even places, then those at odd ones. Neighbouring bytes change places, and then pairs of them (Hacker's
 * Delight, 7-2). */
VECTORISED static void to_two_quads(const int8_t *from, int64_t count, int8_t *to) {
    for (int64_t k = 0; k < count; k += 8) {
        uint64_t x, differ;
        memcpy(&x, from + k, sizeof x);
        differ = (x ^ x >> 8) & 0x0000ff000000ff00;
        x ^= differ ^ differ << 8;
        differ = (x ^ x >> 16) & 0x00000000ffff0000;
        x ^= differ ^ differ << 16;
        memcpy(to + k, &x, sizeof x);
    }
}

/* A block's bytes in the order of the weight's words, of `word` depths. */
static void to_quads(const int8_t *from, int64_t count, int word, int8_t *to) {
    const int quads = word / 4;
    if (quads == 1) memcpy(to, from, (size_t)count);
    if (quads == 2) to_two_quads(from, count, to);
    for (int64_t k = 0; quads > 2 && k < count; k += word)
        for (int q = 0; q < quads; q++)
            for (int b = 0; b < 4; b++) to[k + 4 * q + b] = from[k + b * quads + q];
}

static void to_words(const int8_t *from, int64_t count, int16_t *to) {
    for (int64_t k = 0; k < count; k += 4)
        for (int b = 0; b < 4; b++) to[k + b % 2 * 2 + b / 2] = from[k + b];
}

void rounded_row(const WeightForm *form, const float *row, int64_t depth, void *to) {
    const float tiny = 0x1p-60f, large = 0x1p60f; /* quotients by less are not finite */
    const bool words = in_words(form);
    int8_t bytes[MOST_BLOCK];
    char *at = to;
    for (int64_t k = 0; k < depth; k += form->block, at += rounded_block_bytes(form->block, words)) {
        int64_t count = depth - k < form->block ? depth - k : form->block;
        uint32_t bits = largest_bits(row + k, count);
        float most;
        memcpy(&most, &bits, sizeof most);
        RoundedHead head = {.scale = most / 127};
        memset(bytes, 0, (size_t)form->block);
        if (!isfinite(most))
            head.scale = NAN;
        else if (most > 0)
            head.start = -weight_zero(form->kind) * round_some(row + k, count, most < tiny ? large : 1,
                                                               127 / (most < tiny ? most * large : most), bytes);
        memcpy(at, &head, sizeof head);
        if (words)
            to_words(bytes, form->block, (int16_t *)(void *)(at + sizeof head));
        else
            to_quads(bytes, form->block, weight_word(form->kind), (int8_t *)at + sizeof head);
    }
}
