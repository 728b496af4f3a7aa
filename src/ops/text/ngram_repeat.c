/* SPDX-License-Identifier: Apache-2.0 */
/* NGramRepeatBlock (com.microsoft): tokens that would repeat an n-gram get the score minus infinity. */
#include <math.h>

#include "lowering/build.h"
#include "ops/families.h"

enum { LONGEST_NGRAM = 256 }; /* a comparison each */

/* ids[:, start : start + size] of two axes. */
static Value *columns(Lowering *l, Value *ids, const Dim *start, const Dim *size) {
    return slice_axis(l, ids, 1, start, size);
}

/* [batch, windows]: whether the first n - 1 tokens of a window of n are the last n - 1 of the row. */
static Value *windows_that_repeat(Lowering *l, Value *ids, const Dim *windows, int64_t n) {
    DimTable *d = l->dims;
    const Dim *zero = dim_const(d, 0), *before[] = {zero, dim_const(d, n - 1)}, *after[] = {zero, zero};
    /* With n - 1 columns in front, the last tokens are there for rows of any length. */
    const Dim *length = ids->dims[1];
    Value *padded = n > 1 ? pad(l, ids, before, after, like(l, ids, 0)) : ids, *same = NULL;
    for (int64_t k = 0; k < n - 1; k++) {
        Value *window = columns(l, ids, dim_min(d, dim_const(d, k), length), windows);
        Value *last = columns(l, padded, dim_add(d, length, dim_const(d, k)), dim_const(d, 1));
        Value *equal = binary(l, PRIM_EQ, window, last);
        same = same ? binary(l, PRIM_AND, same, equal) : equal;
    }
    return same;
}

/* Inputs: input_ids [batch, sequence], scores [batch, vocabulary]. The score of each token that would end an n-gram
 * that the row has already is minus infinity. A mask is made first, so that a score of any value is replaced. */
static Status lower_ngram_repeat(Lowering *l, const Node *n) {
    Value *ids = in(l, n, 0), *scores = in(l, n, 1);
    int64_t size = attr_int(n, "ngram_size", 0);
    if (!present(l, (Value *const[]){ids, scores}, 2)) return l->error;
    if (ids->rank != 2 || scores->rank != 2) return invalid(l, "input_ids and scores need 2 axes");
    if (size < 1) return invalid(l, "an ngram_size of %lld", (long long)size);
    if (size > LONGEST_NGRAM)
        return unsupported(l, "an ngram_size of %lld (at most %d are)", (long long)size, LONGEST_NGRAM);
    DimTable *d = l->dims;
    const Dim *shape[] = {scores->dims[0], ids->dims[1]}, *zero = dim_const(d, 0);
    ids = expand(l, cast(l, ids, DT_I64), shape, 2);
    if (!ids) return l->error;
    const Dim *windows = dim_max(d, zero, dim_sub(d, ids->dims[1], dim_const(d, size - 1)));
    Value *token = columns(l, ids, dim_min(d, dim_const(d, size - 1), ids->dims[1]), windows);
    /* No token is negative; as an index it would count from the end. */
    Value *none = scalar_int(l, DT_I64, 0), *never = scalar_int(l, DT_I64, INT64_MAX);
    token = where(l, binary(l, PRIM_LT, token, none), never, token);
    Value *repeats = size > 1 ? windows_that_repeat(l, ids, windows, size) : NULL;
    if (repeats) token = where(l, repeats, token, none);
    Value *one = scalar_int(l, DT_U8, 1),
          *mask = expand(l, scalar_int(l, DT_U8, 0), (const Dim *const *)scores->dims, 2);
    Value *marks = repeats ? cast(l, repeats, DT_U8)
                   : token ? expand(l, one, (const Dim *const *)token->dims, 2)
                           : NULL;
    mask = scatter_elements(l, mask, token, marks, 1, "max");
    return out(l, n, 0, where(l, mask ? binary(l, PRIM_EQ, mask, one) : NULL, like(l, scores, -INFINITY), scores));
}

const OpRow ops_ngram_repeat[] = {
    {"com.microsoft", "NGramRepeatBlock", 1, 0, lower_ngram_repeat},
    {0},
};
