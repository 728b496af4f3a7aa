/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/device/cpu/row_parts.h"

#include "base/integer.h"

/* Pieces of 8 took 1.06 of the time of a copy and one tap (128 columns, 40 x 40 positions), of 16 as long, of 32 .95, beside fewer columns
 * less (AMD EPYC of family 25, one thread, least of 6 runs in turn, November 2026: bench's table of steps). */
enum { LEAST_PIECE = 16 };

/* Pieces as long as LONG_PIECE are taps of one call. Of shorter ones, of parts that are LONG_PART in the mean, each part is a call, whose
 * sums add up in memory: parts of 256, 160, 160 and 160 to 512 columns, pieces of 32, took .93 of the time (medians .88) so, parts of 64,
 * 128, 128 and 128, pieces of 64, 1.04 (.96) (AMD EPYC of family 25, one thread, least of 8 runs in turn). */
enum { LONG_PIECE = 64, LONG_PART = 128 };

typedef struct RowPart {
    const char *at; /* of its first row */
    int64_t step;   /* bytes from a row to the next */
    int64_t pieces;
} RowPart;

typedef struct RowParts {
    int count;
    RowPart parts[MOST_ROW_PARTS];
    int64_t pieces, piece_bytes;
    char *result;
    int64_t result_step;
} RowParts;

int64_t row_parts_piece(const int64_t *lengths, int count) {
    int64_t piece = 0;
    for (int i = 0; i < count; i++) piece = common_divisor(lengths[i], piece);
    return count <= MOST_ROW_PARTS && piece >= LEAST_PIECE ? piece : 0;
}

/* A pointer for each piece of each row: where the next one stands differs from part to part. */
static void fill_parts(const void *context, int64_t first, RowBlock *block) {
    const RowParts *p = context;
    const int at = row_block_edges(block, block->count, 0, p->pieces);
    const void **rows = block->rows + at;
    for (int i = 0; i < p->count; i++)
        for (int64_t k = 0; k < p->parts[i].pieces; k++, rows += block->capacity)
            point_rows(p->parts[i].at + first * p->parts[i].step + k * p->piece_bytes, p->parts[i].step, block->count,
                       rows);
    point_rows(p->result + first * p->result_step, p->result_step, block->count, (const void **)block->results + at);
}

Status row_parts_read(const Tensor *const *parts, int count, void *result, Scratch *scratch, Product *product) {
    const Weight *w = product->weight;
    const int64_t size = (int64_t)w->set->size;
    int64_t lengths[MOST_ROW_PARTS], depth = 0;
    bool fits = count <= MOST_ROW_PARTS && w->taps == 1 && w->groups == 1;
    for (int i = 0; fits && i < count; i++) {
        depth += lengths[i] = parts[i]->rank ? parts[i]->dims[parts[i]->rank - 1] : 0;
        fits = tensor_count(parts[i]) == lengths[i] * product->rows;
    }
    const int64_t piece = fits && depth == w->depth ? row_parts_piece(lengths, count) : 0;
    if (!piece) return status_error(STATUS_FAULT, "%d parts of rows that do not fit the product", count);
    void *memory;
    const int64_t pieces = depth / piece;
    TRY(scratch_take(scratch, sizeof(RowParts) + sizeof(Weight) + 2 * (size_t)pieces * sizeof(int64_t), &memory));
    RowParts *p = memory;
    Weight *cut = (Weight *)(p + 1);
    int64_t *zeros = (int64_t *)(cut + 1), *follows = zeros + pieces;
    *p = (RowParts){.count = count,
                    .pieces = pieces,
                    .piece_bytes = piece * size,
                    .result = result,
                    .result_step = w->columns * size};
    for (int64_t i = 0, t = 0; i < count; i++) {
        p->parts[i] = (RowPart){parts[i]->data, lengths[i] * size, lengths[i] / piece};
        for (int64_t left = p->parts[i].pieces; left > 0; left--) follows[t++] = left;
    }
    *cut = *w;
    cut->taps = p->pieces;
    cut->depth = piece;
    for (int64_t t = 0; t < p->pieces; t++) zeros[t] = 0;
    product->weight = cut;
    product->fill = fill_parts;
    product->context = p;
    product->offsets = product->zeros = zeros;
    product->follows = piece < LONG_PIECE && depth >= count * LONG_PART ? follows : NULL;
    product->inside = false;
    return NULL;
}
