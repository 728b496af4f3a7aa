/* SPDX-License-Identifier: Apache-2.0 */
/* com.microsoft's normalisations: over the last axis with a residual, of embeddings, without a mean; over groups of channels. */
#include <math.h>

#include "lowering/sizes.h"
#include "ops/families.h"
#include "ops/quantize/quantize.h"

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

/* ---- embeddings ---- */

/* Rows of a table, of any type: what is gathered is dequantized, where it has a scale. */
static Value *looked_up(Lowering *l, Quantized table, Value *ids) {
    table.x = gather(l, table.x, ids, 0);
    return table.scale ? dequantized(l, table) : table.x;
}

typedef struct Embedding {
    Quantized words, places, kinds, gamma, beta; /* without scales: floats */
    Value *ids, *kind_ids, *positions, *mask;    /* the last three may be NULL */
} Embedding;

/* Outputs: Y, mask_index (the number of tokens that the mask keeps), the sum of the embeddings. */
static Status out_embedded(Lowering *l, const Node *n, const Embedding *e) {
    if (l->error) return l->error;
    if (e->ids->rank != 2) return invalid(l, "input_ids need the shape [batch, sequence]");
    const Dim *shape[] = {dim_const(l->dims, 1), e->ids->dims[1]};
    Value *positions = e->positions ? e->positions : iota(l, shape, 2, 1, DT_I64);
    Value *sum = add(l, looked_up(l, e->words, e->ids), looked_up(l, e->places, positions));
    if (e->kind_ids && e->kinds.x) sum = add(l, sum, looked_up(l, e->kinds, e->kind_ids));
    Value *gamma = e->gamma.scale ? dequantized(l, e->gamma) : e->gamma.x,
          *beta = e->beta.scale ? dequantized(l, e->beta) : e->beta.x;
    if (!sum) return l->error;
    out(l, n, 0, normed(l, sum, gamma, beta, attr_float(n, "epsilon", 1e-12f), 2, true).y);
    int last = 1;
    if (wants_output(n, 1))
        out(l, n, 1,
            e->mask ? reduce(l, PRIM_REDUCE_SUM, cast(l, e->mask, DT_I32), &last, 1, false)
                    : expand(l, scalar_int(l, DT_I32, 0), (const Dim *const *)e->ids->dims, 1));
    if (wants_output(n, 2)) out(l, n, 2, sum);
    return l->error;
}

/* Inputs: input_ids, segment_ids, word, position and segment embeddings, gamma, beta, mask, position_ids. */
static Status lower_embed_norm(Lowering *l, const Node *n) {
    Embedding e = {.words = {in(l, n, 2)},
                   .places = {in(l, n, 3)},
                   .kinds = {optional_in(l, n, 4)},
                   .gamma = {in(l, n, 5)},
                   .beta = {in(l, n, 6)},
                   .ids = in(l, n, 0),
                   .kind_ids = optional_in(l, n, 1),
                   .positions = optional_in(l, n, 8),
                   .mask = optional_in(l, n, 7)};
    return out_embedded(l, n, &e);
}

/* Inputs: as above to the mask, then the scales of all five tables, then their zero points. */
static Status lower_quantized_embed_norm(Lowering *l, const Node *n) {
    Embedding e = {.ids = in(l, n, 0), .kind_ids = optional_in(l, n, 1), .mask = optional_in(l, n, 7)};
    Quantized *tables[] = {&e.words, &e.places, &e.kinds, &e.gamma, &e.beta};
    for (int i = 0; i < 5; i++)
        *tables[i] = i != 2 || optional_in(l, n, 4)
                         ? (Quantized){in(l, n, 2 + i), in(l, n, 8 + i), optional_in(l, n, 13 + i)}
                         : (Quantized){NULL};
    return out_embedded(l, n, &e);
}

/* ---- groups of channels ---- */

/* gamma (x - mean) / deviation + beta over groups of the last axis and all between it and the first; then x sigmoid(x), where asked
 * for. */
static Value *group_normed(Lowering *l, const Node *n, Value *x, Value *gamma, Value *beta) {
    int64_t groups = attr_int(n, "groups", 0), activation = attr_int(n, "activation", 0);
    if (l->error || !x) return NULL;
    const Dim *dims[MAX_RANK], *count = dim_const(l->dims, groups), *in_group = NULL;
    int rank = x->rank, axes[MAX_RANK], reduced = 0;
    if (groups < 1 || rank < 3 || rank == MAX_RANK)
        return invalid(l, "%lld groups on %d axes", (long long)groups, rank), NULL;
    if (activation != 0 && activation != 1) return unsupported(l, "activation %lld", (long long)activation), NULL;
    if (!dim_divides(l->dims, x->dims[rank - 1], count, &in_group)) {
        if (dim_is_const(x->dims[rank - 1], NULL))
            return invalid(l, "the channels do not divide into %lld groups", (long long)groups), NULL;
        in_group = dim_div(l->dims, x->dims[rank - 1], count);
    }
    for (int i = 0; i < rank - 1; i++) dims[i] = x->dims[i];
    dims[rank - 1] = count;
    dims[rank] = in_group;
    for (int i = 1; i <= rank; i++)
        if (i != rank - 1) axes[reduced++] = i;
    Value *wide = widen(l, x), *split = reshape(l, wide, dims, rank + 1);
    Value *d = sub(l, split, mean(l, split, axes, reduced, true));
    Value *variance = mean(l, mul(l, d, d), axes, reduced, true);
    Value *y =
        mul(l, d, rsqrt(l, add(l, variance, variance ? like(l, variance, attr_float(n, "epsilon", 1e-5f)) : NULL)));
    y = y ? reshape(l, y, x->dims, rank) : NULL;
    y = add(l, mul(l, y, cast_like(l, gamma, wide)), cast_like(l, beta, wide));
    if (activation) y = mul(l, y, unary(l, PRIM_SIGMOID, y));
    return cast_like(l, y, x);
}

static Value *last_in(Lowering *l, const Node *n, Value *x) {
    return attr_int(n, "channels_last", 1) || !x ? x : to_channels_last(l, x);
}

static Value *last_out(Lowering *l, const Node *n, Value *x) {
    return attr_int(n, "channels_last", 1) || !x ? x : from_channels_last(l, x);
}

static Status lower_group_norm(Lowering *l, const Node *n) {
    Value *x = last_in(l, n, in(l, n, 0));
    return out(l, n, 0, last_out(l, n, group_normed(l, n, x, in(l, n, 1), in(l, n, 2))));
}

/* The skip is as the data, [N, 1, 1, C] or [N, C]. */
static Status lower_skip_group_norm(Lowering *l, const Node *n) {
    Value *x = last_in(l, n, in(l, n, 0)), *skip = in(l, n, 3), *bias = optional_in(l, n, 4);
    if (l->error) return l->error;
    if (skip->rank == 2 && x->rank == 4)
        skip = unsqueeze(l, skip, (int[]){1, 2}, 2);
    else
        skip = last_in(l, n, skip);
    Value *sum = add(l, x, skip);
    if (bias) sum = add(l, sum, bias);
    out(l, n, 0, last_out(l, n, group_normed(l, n, sum, in(l, n, 1), in(l, n, 2))));
    return wants_output(n, 1) ? out(l, n, 1, last_out(l, n, sum)) : l->error;
}

/* ---- with a gate, a branch a group ---- */

/* The last axis in rows of `size`. */
static Value *in_rows(Lowering *l, Value *x, const Dim *size) {
    const Dim *dims[MAX_RANK], *count = NULL;
    if (l->error || !x) return NULL;
    if (x->rank < 1 || x->rank == MAX_RANK) return unsupported(l, "%d axes", x->rank), NULL;
    if (!dim_divides(l->dims, x->dims[x->rank - 1], size, &count)) {
        if (dim_is_const(x->dims[x->rank - 1], NULL) && dim_is_const(size, NULL))
            return invalid(l, "the last axis does not divide into the scale's length"), NULL;
        count = dim_div(l->dims, x->dims[x->rank - 1], size);
    }
    for (int i = 0; i < x->rank - 1; i++) dims[i] = x->dims[i];
    dims[x->rank - 1] = count;
    dims[x->rank] = size;
    return reshape(l, x, dims, x->rank + 1);
}

/* X / sqrt(mean(X^2) + epsilon) * scale * f(gate), each row of scale's length; f: z sigmoid(z), or sigmoid(z). */
static Status lower_gated_rms_norm(Lowering *l, const Node *n) {
    Value *x = in(l, n, 0), *scale = in(l, n, 1), *gate = in(l, n, 2), *z, *g;
    const char *f = attr_string(n, "activation", "silu");
    if (l->error) return l->error;
    bool silu = strcmp(f, "silu") == 0 || strcmp(f, "swish") == 0;
    if (!silu && strcmp(f, "sigmoid") != 0) return unsupported(l, "activation \"%s\"", f);
    if (scale->rank != 1) return invalid(l, "the scale has %d axes", scale->rank);
    Value *y = root_mean_square(l, in_rows(l, widen(l, x), scale->dims[0]), attr_float(n, "epsilon", 1e-5f));
    y = mul(l, y, widen(l, scale));
    z = in_rows(l, widen(l, gate), scale->dims[0]);
    g = unary(l, PRIM_SIGMOID, z);
    y = mul(l, y, silu ? mul(l, z, g) : g);
    return out(l, n, 0, y ? cast_like(l, reshape(l, y, x->dims, x->rank), x) : NULL);
}

/* Each branch by itself: the rows of [..., C, H], or C = num_branches of them in one. */
static Status lower_branchwise_rms_norm(Lowering *l, const Node *n) {
    Value *x = in(l, n, 0), *scale = optional_in(l, n, 1), *split;
    int64_t branches = attr_int(n, "num_branches", 0);
    if (l->error) return l->error;
    if (x->rank < 1 || branches < 0) return invalid(l, "%lld branches of %d axes", (long long)branches, x->rank);
    split = widen(l, x);
    if (branches) {
        const Dim *size = dim_div(l->dims, x->dims[x->rank - 1], dim_const(l->dims, branches));
        split = in_rows(l, split, size);
    }
    Value *y = root_mean_square(l, split, attr_float(n, "epsilon", 1e-5f));
    if (!y) return l->error;
    if (scale && scale->rank == 1 && y->rank > 1 && scale->dims[0] != y->dims[y->rank - 1]) {
        const Dim *both = dim_mul(l->dims, y->dims[y->rank - 2], y->dims[y->rank - 1]);
        if (scale->dims[0] != both && !branches) return unsupported(l, "a scale whose size the model leaves open");
        scale = reshape(l, scale, y->dims + y->rank - 2, 2);
    }
    if (scale) y = mul(l, y, cast_like(l, scale, y));
    return out(l, n, 0, y ? cast_like(l, reshape(l, y, x->dims, x->rank), x) : NULL);
}

/* ---- streams beside each other (Zhu et al., "Hyper-Connections", 2024) ---- */

/* [..., C, H] of streams, or of C = num_branches in one axis. */
static Value *streams_of(Lowering *l, const Node *n, Value *x) {
    int64_t branches = attr_int(n, "num_branches", 0);
    if (!present(l, &x, 1)) return NULL;
    if (branches < 0 || x->rank < (branches ? 1 : 2))
        return invalid(l, "%lld branches of %d axes", (long long)branches, x->rank), NULL;
    x = widen(l, x);
    return branches ? in_rows(l, x, dim_div(l->dims, x->dims[x->rank - 1], dim_const(l->dims, branches))) : x;
}

/* Weights of such streams x: one a stream, with an axis behind it or not, or one an element. */
static Value *stream_weights(Lowering *l, Value *w, const Value *x) {
    if (!present(l, &w, 1) || !x) return NULL;
    int last = w->rank;
    w = widen(l, w);
    if (w->rank == x->rank) return w;
    if (w->rank != x->rank - 1) return invalid(l, "weights of %d axes for streams of %d", w->rank, x->rank), NULL;
    const Dim *found = w->dims[w->rank - 1], *streams = x->dims[x->rank - 2];
    int64_t a, b;
    bool other = found != streams && dim_is_const(found, &a) && dim_is_const(streams, &b) && a != b;
    return other ? in_rows(l, w, x->dims[x->rank - 1]) : unsqueeze(l, w, &last, 1);
}

/* Y[h] = reduction_scale * sum over c of X[c, h] * pre_mix[c, h] */
static Status lower_streams_in(Lowering *l, const Node *n) {
    Value *x = streams_of(l, n, in(l, n, 0)), *y = mul(l, x, stream_weights(l, in(l, n, 1), x));
    int at = x ? x->rank - 2 : 0;
    y = y ? mul(l, reduce(l, PRIM_REDUCE_SUM, y, &at, 1, false), like(l, y, attr_float(n, "reduction_scale", 1)))
          : NULL;
    return out(l, n, 0, cast_like(l, y, in(l, n, 0)));
}

/* Y[k, h] = sum over c of stream_mix[c, k] * X[c, h] (X[k, h] without it) + post_mix[k, h] * block_output[h] */
static Status lower_streams_out(Lowering *l, const Node *n) {
    Value *given = in(l, n, 0), *x = streams_of(l, n, given), *block = in(l, n, 1), *mix = optional_in(l, n, 3);
    if (!present(l, (Value *[]){x, block}, 2)) return l->error;
    int at = block->rank - 1;
    Value *y = mul(l, stream_weights(l, in(l, n, 2), x), unsqueeze(l, widen(l, block), &at, 1));
    y = add(l, mix ? matmul(l, swap_last(l, widen(l, mix)), x) : x, y);
    return out(l, n, 0, y ? cast_like(l, reshape(l, y, given->dims, given->rank), given) : NULL);
}

/* g = sigmoid(sign(d) * sqrt(max(|d|, 1e-6))), d = sum(rms(key) * rms(query)) / sqrt(H); g * value, and that normalized (DeepSeek, "Engram",
 * 2026, as ONNX Runtime's documentation tells it). */
static Status lower_engram_gate(Lowering *l, const Node *n) {
    double epsilon = attr_float(n, "epsilon", 1e-5f), size;
    Value *key = in(l, n, 0), *query = in(l, n, 1), *value = in(l, n, 2), *d, *y;
    if (!present(l, (Value *[]){key, query, value}, 3)) return l->error;
    int last = key->rank - 1, streams = value->rank - 1;
    int64_t count;
    if (key->rank != 4 || value->rank != 3) return invalid(l, "key needs 4 axes, value 3");
    if (!dim_is_const(key->dims[3], &count) && !dim_is_const(value->dims[2], &count))
        return unsupported(l, "a hidden size known only at run time");
    size = sqrt((double)count);
    d = mul(l, mul(l, root_mean_square(l, widen(l, key), epsilon), widen(l, in(l, n, 3))),
            mul(l, root_mean_square(l, widen(l, query), epsilon), widen(l, in(l, n, 4))));
    if (!d) return l->error;
    d = divide(l, reduce(l, PRIM_REDUCE_SUM, d, &last, 1, true), like(l, d, size));
    y = unary(l, PRIM_SQRT, maximum(l, unary(l, PRIM_ABS, d), d ? like(l, d, 1e-6) : NULL));
    y = unary(l, PRIM_SIGMOID, mul(l, unary(l, PRIM_SIGN, d), y));
    y = mul(l, y, unsqueeze(l, widen(l, value), &streams, 1));
    TRY(out(l, n, 0, cast_like(l, y, value)));
    if (!wants_output(n, 1)) return NULL;
    return out(l, n, 1, cast_like(l, mul(l, root_mean_square(l, y, epsilon), widen(l, in(l, n, 5))), value));
}

const OpRow ops_skip_norm[] = {
    {"com.microsoft", "BranchwiseRMSNorm", 1, 0, lower_branchwise_rms_norm},
    {"com.microsoft", "EmbedLayerNormalization", 1, 0, lower_embed_norm},
    {"com.microsoft", "EngramGate", 1, 0, lower_engram_gate},
    {"com.microsoft", "GatedRMSNorm", 1, 0, lower_gated_rms_norm},
    {"com.microsoft", "GroupNorm", 1, 0, lower_group_norm},
    {"com.microsoft", "HyperConnectionPostMix", 1, 0, lower_streams_out},
    {"com.microsoft", "HyperConnectionPreMix", 1, 0, lower_streams_in},
    {"com.microsoft", "QEmbedLayerNormalization", 1, 0, lower_quantized_embed_norm},
    {"com.microsoft", "SimplifiedLayerNormalization", 1, 0, lower_rms_norm},
    {"com.microsoft", "SkipGroupNorm", 1, 0, lower_skip_group_norm},
    {"com.microsoft", "SkipLayerNormalization", 1, 0, lower_skip_layer_norm},
    {"com.microsoft", "SkipSimplifiedLayerNormalization", 1, 0, lower_skip_rms_norm},
    {"", "SimplifiedLayerNormalization", 1, 0, lower_rms_norm},
    {0},
};
