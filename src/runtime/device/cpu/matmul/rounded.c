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

/* A block's numbers in the order in which the weight's meet them. */
static void put_block(const WeightForm *form, RoundedHead head, const int8_t *bytes, char *to) {
    memcpy(to, &head, sizeof head);
    if (in_words(form))
        to_words(bytes, form->block, (int16_t *)(void *)(to + sizeof head));
    else
        to_quads(bytes, form->block, weight_word(form->kind), (int8_t *)to + sizeof head);
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
        put_block(form, head, bytes, at);
    }
}

/* The digits of the nearest whole numbers to x * up * inverse, which are less than 2^22, and each one's sum. */
VECTORISED static void digits_of_some(const float *x, int64_t count, float up, float inverse, int8_t *low,
                                      int8_t *middle, int8_t *high, int32_t sums[ROW_DIGITS]) {
    const float shift = 0x1.8p23f; /* as round_some's */
    int32_t all[ROW_DIGITS] = {0};
    for (int64_t i = 0; i < count; i++) {
        int32_t whole = (int32_t)(x[i] * up * inverse + shift - shift), first = (int8_t)whole;
        int32_t rest = (whole - first) >> 8, second = (int8_t)rest, third = (rest - second) >> 8;
        low[i] = (int8_t)first, middle[i] = (int8_t)second, high[i] = (int8_t)third;
        all[0] += first, all[1] += second, all[2] += third;
    }
    memcpy(sums, all, sizeof all);
}

void digits_row(const WeightForm *form, const float *row, int64_t depth, void *to) {
    enum { DIGITS_BITS = 22, TINY = -100, LEAST = -149 + DIGITS_BITS }; /* the least scale is the least f32 */
    const int64_t bytes = rounded_block_bytes(form->block, in_words(form));
    int8_t digits[ROW_DIGITS][MOST_BLOCK];
    char *at = to;
    for (int64_t k = 0; k < depth; k += form->block) {
        int64_t count = depth - k < form->block ? depth - k : form->block;
        uint32_t bits = largest_bits(row + k, count);
        int32_t sums[ROW_DIGITS] = {0};
        int above = 0; /* all are less than 2^above */
        float most;
        memcpy(&most, &bits, sizeof most);
        const bool finite = isfinite(most);
        for (int d = 0; d < ROW_DIGITS; d++) memset(digits[d], 0, (size_t)form->block);
        if (finite && most > 0) {
            frexpf(most, &above);
            if (above < LEAST) above = LEAST;
            const int up = above < TINY ? -TINY : 0; /* 2^(DIGITS_BITS - above) alone is not finite */
            digits_of_some(row + k, count, ldexpf(1, up), ldexpf(1, DIGITS_BITS - above - up), digits[0], digits[1],
                           digits[2], sums);
        }
        for (int d = 0; d < ROW_DIGITS; d++, at += bytes) {
            float scale = !finite ? NAN : most > 0 ? ldexpf(1, above - DIGITS_BITS + 8 * d) : 0;
            put_block(form, (RoundedHead){scale, -weight_zero(form->kind) * sums[d]}, digits[d], at);
        }
    }
}

/* ---- parts of bf16 ---- */

/* An odd number of lines: neighbouring rows are not in the same sets of a cache. */
int64_t parts_row_bytes(const WeightForm *form, int64_t depth) {
    enum { LINE = 64 };
    const int64_t bytes = (depth + form->block - 1) / form->block * parts_block_bytes(form);
    return ((bytes + LINE - 1) / LINE | 1) * LINE;
}

/* The bits of so many numbers, eight a part, each at the upper end of its word. */
VECTORISED static void parts_of_some(const float *x, int64_t count, uint32_t *high, uint32_t *middle, uint32_t *low) {
    const uint32_t upper = 0xffff0000, infinite = 0x7f800000, quiet = 0x400000;
    for (int64_t i = 0; i < count; i++) {
        uint32_t bits, first, second, third;
        float one, two, rest;
        memcpy(&bits, x + i, sizeof bits);
        first = bits & upper;
        memcpy(&one, &first, sizeof one);
        rest = x[i] - one;
        memcpy(&second, &rest, sizeof second);
        second &= upper;
        memcpy(&two, &second, sizeof two);
        rest -= two;
        memcpy(&third, &rest, sizeof third);
        const bool finite = (bits & infinite) != infinite, nan = (bits & ~(1u << 31)) > infinite;
        high[i] = nan ? first | quiet : first;
        middle[i] = finite ? second : 0;
        low[i] = finite ? third & upper : 0;
    }
}

/* The depths of the halves of words in turn. */
#define PUT_PAIRS(half)                                                                                                \
    for (int64_t k = 0; k < count; k += 2 * (half))                                                                    \
        for (int64_t i = 0; i < (half); i++) to[k / 2 + i] = bits[k + i] >> 16 | bits[k + (half) + i]

VECTORISED static void put_pairs(const uint32_t *bits, int64_t count, int half, uint32_t *to) {
    if (half == 2) {
        PUT_PAIRS(2);
    } else if (half == 4) {
        PUT_PAIRS(4);
    } else {
        PUT_PAIRS(8);
    }
}

void parts_row(const WeightForm *form, const float *row, int64_t depth, void *to) {
    const int64_t block = form->block, bytes = parts_block_bytes(form);
    uint32_t parts[ROW_PARTS][MOST_BLOCK];
    char *at = to;
    for (int64_t k = 0; k < depth; k += block, at += bytes) {
        const int64_t count = depth - k < block ? depth - k : block;
        double sum = 0;
        parts_of_some(row + k, count, parts[0], parts[1], parts[2]);
        for (int p = 0; p < ROW_PARTS; p++) {
            memset(parts[p] + count, 0, (size_t)(block - count) * sizeof parts[p][0]);
            put_pairs(parts[p], block, weight_word(form->kind) / 2, (uint32_t *)(void *)(at + p * block * 2));
        }
        if (!form->zeros) continue;
        for (int64_t i = 0; i < count; i++) sum += (double)row[k + i];
        const float rounded = (float)sum;
        memcpy(at + parts_sum_at(block), &rounded, sizeof rounded);
    }
}
