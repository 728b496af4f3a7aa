/* SPDX-License-Identifier: Apache-2.0 */
/* com.microsoft's normalisations over the last axis: with a residual, of embeddings, without a mean. */
#include "lowering/build.h"
#include "ops/families.h"

typedef struct Normed {
    Value *y, *mean, *inverse; /* inverse: 1 / sqrt(variance + epsilon) */
} Normed;

/* centred: LayerNormalization; else RMSNormalization. gamma, beta may be NULL. */
static Normed normed(Lowering *l, Value *x, Value *gamma, Value *beta, double epsilon, int axis, bool centred) {
    Normed r = {0};
    Value *wide = widen(l, x);
    if (!wide) return r;
    int axes[MAX_RANK], count = 0;
    for (int i = axis; i < wide->rank; i++) axes[count++] = i;
    Value *d = wide;
    if (centred) {
        r.mean = mean(l, wide, axes, count, true);
        d = sub(l, wide, r.mean);
    }
    Value *variance = mean(l, mul(l, d, d), axes, count, true);
    r.inverse = rsqrt(l, add(l, variance, variance ? like(l, variance, epsilon) : NULL));
    r.y = mul(l, d, r.inverse);
    if (gamma) r.y = mul(l, r.y, cast_like(l, gamma, wide));
    if (beta) r.y = add(l, r.y, cast_like(l, beta, wide));
    r.y = cast_like(l, r.y, x);
    return r;
}

/* Inputs: X, skip, gamma[, beta], [bias]; outputs: Y, mean, inverse deviation, X + skip + bias. */
static Status lower_skip_norm(Lowering *l, const Node *n, bool centred) {
    Value *sum = add(l, in(l, n, 0), in(l, n, 1)), *gamma = in(l, n, 2), *beta = centred ? optional_in(l, n, 3) : NULL;
    sum = with_bias(l, n, sum, centred ? 4 : 3);
    if (!sum) return l->error;
    if (sum->rank < 1) return invalid(l, "X is a scalar");
    Normed r = normed(l, sum, gamma, beta, attr_float(n, "epsilon", 1e-12f), sum->rank - 1, centred);
    out(l, n, 0, r.y);
    if (wants_output(n, 1) && r.mean) out(l, n, 1, r.mean);
    if (wants_output(n, 2)) out(l, n, 2, r.inverse);
    if (wants_output(n, 3)) out(l, n, 3, sum);
    return l->error;
}

static Status lower_skip_layer_norm(Lowering *l, const Node *n) { return lower_skip_norm(l, n, true); }
static Status lower_skip_rms_norm(Lowering *l, const Node *n) { return lower_skip_norm(l, n, false); }

static Status lower_rms_norm(Lowering *l, const Node *n) {
    Value *x = in(l, n, 0), *gamma = in(l, n, 1);
    if (l->error) return l->error;
    int axis = axis_of(l, attr_int(n, "axis", -1), x->rank);
    Normed r = normed(l, x, gamma, NULL, attr_float(n, "epsilon", 1e-5f), axis, false);
    out(l, n, 0, r.y);
    if (wants_output(n, 1)) out(l, n, 1, r.inverse);
    return l->error;
}

/* Inputs: input_ids, segment_ids, word, position and segment embeddings, gamma, beta, mask, position_ids; outputs: Y,
 * mask_index (the number of tokens that the mask keeps), the sum of the embeddings. */
static Status lower_embed_norm(Lowering *l, const Node *n) {
    Value *ids = in(l, n, 0), *segments = optional_in(l, n, 1), *words = in(l, n, 2), *places = in(l, n, 3);
    Value *segment_words = optional_in(l, n, 4), *gamma = in(l, n, 5), *beta = in(l, n, 6),
          *mask = optional_in(l, n, 7);
    Value *positions = optional_in(l, n, 8);
    if (l->error) return l->error;
    if (ids->rank != 2) return invalid(l, "input_ids need the shape [batch, sequence]");
    const Dim *shape[] = {dim_const(l->dims, 1), ids->dims[1]};
    if (!positions) positions = iota(l, shape, 2, 1, DT_I64);
    Value *sum = add(l, gather(l, words, ids, 0), gather(l, places, positions, 0));
    if (segments && segment_words) sum = add(l, sum, gather(l, segment_words, segments, 0));
    if (!sum) return l->error;
    out(l, n, 0, normed(l, sum, gamma, beta, attr_float(n, "epsilon", 1e-12f), 2, true).y);
    int last = 1;
    if (wants_output(n, 1))
        out(l, n, 1,
            mask ? reduce(l, PRIM_REDUCE_SUM, cast(l, mask, DT_I32), &last, 1, false)
                 : expand(l, scalar_int(l, DT_I32, 0), (const Dim *const *)ids->dims, 1));
    if (wants_output(n, 2)) out(l, n, 2, sum);
    return l->error;
}

const OpRow ops_skip_norm[] = {
    {"com.microsoft", "EmbedLayerNormalization", 1, 0, lower_embed_norm},
    {"com.microsoft", "SimplifiedLayerNormalization", 1, 0, lower_rms_norm},
    {"com.microsoft", "SkipLayerNormalization", 1, 0, lower_skip_layer_norm},
    {"com.microsoft", "SkipSimplifiedLayerNormalization", 1, 0, lower_skip_rms_norm},
    {"", "SimplifiedLayerNormalization", 1, 0, lower_rms_norm},
    {0},
};
