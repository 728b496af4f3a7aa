/* SPDX-License-Identifier: Apache-2.0 */
/* com.microsoft's attention over heads: Attention, MultiHeadAttention, GroupQueryAttention and their RotaryEmbedding. */
#include <math.h>

#include "ops/attention/attention.h"
#include "ops/families.h"
#include "ops/quantize/quantize.h"

/* ---- attention: masks ---- */

/* The keys that a mask of com.microsoft's operators keeps, as a bool that broadcasts to [B, H, S, T]: [B], [2B] or
 * [3B + 2] integers, of which the first B are the ends of the keys, or [B, T], [B, S, T] of zeros and ones. Those of [2B] go
 * on with the keys' starts, those of [3B + 2] with what packed kernels count by. */
static Value *kept_keys(Lowering *l, Value *mask, const Dim *batch, const Dim *keys) {
    if (l->error || !mask) return NULL;
    const Dim *one = dim_const(l->dims, 1), *zero = dim_const(l->dims, 0);
    if (mask->rank == 1) {
        const Dim *twice = dim_mul(l->dims, batch, dim_const(l->dims, 2)), *size = mask->dims[0];
        bool starts = size != batch && size == twice,
             counts = size == dim_add(l->dims, dim_add(l->dims, twice, batch), dim_const(l->dims, 2));
        Value *at = key_positions(l, keys),
              *ends = starts || counts ? slice_axis(l, mask, 0, zero, batch) : expand(l, mask, &batch, 1);
        Value *kept = binary(l, PRIM_LT, at, per_batch(l, ends));
        return starts ? both(l, kept, binary(l, PRIM_GE, at, per_batch(l, slice_axis(l, mask, 0, batch, batch))))
                      : kept;
    }
    if (mask->rank != 2 && mask->rank != 3) return unsupported(l, "a mask of %d axes", mask->rank), NULL;
    const Dim *dims[] = {mask->dims[0], one, mask->rank == 3 ? mask->dims[1] : one, mask->dims[mask->rank - 1]};
    Value *shaped = reshape(l, mask, dims, 4);
    return cast(l, shaped, DT_BOOL);
}

/* The mask as an addition to the scores: 0, or mask_filter_value where a key is hidden. */
static Value *filter_bias(Lowering *l, const Node *n, Value *kept, const Value *q) {
    if (!kept) return NULL;
    return where(l, kept, like(l, q, 0), like(l, q, attr_float(n, "mask_filter_value", -10000)));
}

static Value *sum_of(Lowering *l, Value *a, Value *b) { return a && b ? add(l, a, b) : a ? a : b; }

static Value *causal(Lowering *l, const Node *n, const Value *q, const Value *k, Value *past) {
    if (!attr_int(n, "unidirectional", 0)) return NULL;
    Value *offset = past ? dim_scalar(l, past->dims[2]) : NULL;
    return binary(l, PRIM_LE, key_positions(l, k->dims[2]), query_positions(l, q->dims[2], offset));
}

/* Part `index` of `count` equal ones (or of the given sizes) along the last axis. */
static Value *last_slice(Lowering *l, Value *x, const Dim *start, const Dim *size) {
    return x ? slice_axis(l, x, x->rank - 1, start, size) : NULL;
}

/* ---- attention: operators ---- */

static const Unfollowed not_of_projected[] = {{"do_rotary"}, {"past_present_share_buffer"}, {0}};

/* Attention over the projected input [B, S, q + k + v]; mask, past [2, B, H, P, D] and bias may be NULL. */
static Status out_projected(Lowering *l, const Node *n, Value *all, Value *mask, Value *past, Value *bias) {
    int64_t heads = attr_int(n, "num_heads", 0);
    if (l->error || !all) return l->error;
    if (all->rank != 3) return invalid(l, "the input needs 3 axes");
    int count;
    const int64_t *sizes = attr_ints(n, "qkv_hidden_sizes", &count);
    const Dim *third = dim_div(l->dims, all->dims[2], dim_const(l->dims, 3)), *start = dim_const(l->dims, 0);
    Value *parts[3];
    for (int i = 0; i < 3; i++) {
        const Dim *size = count == 3 ? dim_const(l->dims, sizes[i]) : third;
        parts[i] = split_heads(l, last_slice(l, all, start, size), heads);
        start = dim_add(l->dims, start, size);
    }
    Value *past_parts[2] = {NULL, NULL};
    int first = 0;
    for (int i = 0; i < 2 && past; i++)
        past_parts[i] = squeeze(l, slice_axis(l, past, 0, dim_const(l->dims, i), dim_const(l->dims, 1)), &first, 1);
    Value *k = after_past(l, past_parts[0], parts[1]), *v = after_past(l, past_parts[1], parts[2]);
    if (l->error) return l->error;
    Attend a = {.q = parts[0], .k = k, .v = v, .scale = attr_float(n, "scale", 0)};
    a.allowed = causal(l, n, a.q, k, past_parts[0]);
    a.bias = sum_of(l, filter_bias(l, n, kept_keys(l, mask, all->dims[0], k->dims[2]), a.q), bias);
    out(l, n, 0, merge_heads(l, attend(l, &a)));
    if (wants_output(n, 1)) {
        Value *both_parts[] = {unsqueeze(l, k, &first, 1), unsqueeze(l, v, &first, 1)};
        if (!l->error) out(l, n, 1, concat(l, both_parts, 2, 0));
    }
    return l->error;
}

/* Attention: input, weights [in, q+k+v], bias, mask_index, past, attention_bias. */
static Status lower_ms_attention(Lowering *l, const Node *n) {
    Value *x = in(l, n, 0), *w = in(l, n, 1), *bias = optional_in(l, n, 2);
    if (l->error || !follows_all(l, n, not_of_projected, 6)) return l->error;
    if (x->rank != 3 || w->rank != 2) return invalid(l, "input and weights need 3 and 2 axes");
    Value *all = matmul(l, x, w);
    if (bias) all = add(l, all, bias);
    return out_projected(l, n, all, optional_in(l, n, 3), optional_in(l, n, 4), optional_in(l, n, 5));
}

/* QAttention: input, weights, bias, the scales of both, mask_index, the zero points of both, past. */
static Status lower_quantized_attention(Lowering *l, const Node *n) {
    Quantized x = {in(l, n, 0), in(l, n, 3), optional_in(l, n, 6)},
              w = {in(l, n, 1), in(l, n, 4), optional_in(l, n, 7)};
    if (!follows_all(l, n, not_of_projected, 9)) return l->error;
    Value *all = scaled_product(l, x, w, in(l, n, 2));
    return out_projected(l, n, all, optional_in(l, n, 5), optional_in(l, n, 8), NULL);
}

/* Slice `index` of axis 3 of [B, S, H, parts, D], as [B, H, S, D]. */
static Value *packed_part(Lowering *l, Value *x, int index) {
    int axis = 3;
    Value *part = squeeze(l, slice_axis(l, x, 3, dim_const(l->dims, index), dim_const(l->dims, 1)), &axis, 1);
    return permute(l, part, (int[]){0, 2, 1, 3});
}

typedef struct Heads {
    Value *q, *k, *v;
} Heads;

/* Adds to [B, H, S, D] the elements of the bias from `start` on, H * D of them. */
static Value *with_head_bias(Lowering *l, Value *x, Value *bias, const Dim *start) {
    if (l->error || !x || !bias) return x;
    const Dim *one = dim_const(l->dims, 1), *dims[] = {x->dims[1], one, x->dims[3]};
    Value *part = last_slice(l, bias, start, dim_mul(l->dims, x->dims[1], x->dims[3]));
    return add(l, x, reshape(l, part, dims, 3));
}

/* Q, K, V of MultiHeadAttention from what it is given: [B, S, H*D] each, K and V of [B, H, T, D], or packed in one
 * tensor. */
static Heads heads_of(Lowering *l, const Node *n, int64_t heads) {
    Value *q = in(l, n, 0), *k = optional_in(l, n, 1), *v = optional_in(l, n, 2), *bias = optional_in(l, n, 3);
    Heads r = {0};
    if (l->error) return r;
    if (bias && bias->rank != 1) return invalid(l, "the bias has %d axes", bias->rank), r;
    if (q->rank == 5 && (k || v)) return invalid(l, "a key or a value beside a query that holds them"), r;
    if (q->rank != 5 && (q->rank != 3 || !k)) return invalid(l, "query needs 3 axes and a key beside it, or 5"), r;
    r.q = q->rank == 5 ? packed_part(l, q, 0) : split_heads(l, q, heads);
    if (q->rank == 5 || (k->rank == 5 && !v)) {
        Value *packed = q->rank == 5 ? q : k;
        r.k = packed_part(l, packed, q->rank == 5);
        r.v = packed_part(l, packed, 1 + (q->rank == 5));
    } else if (k->rank == 4 && v && v->rank == 4) { /* projected, and with their bias, when the cross attention began */
        r.k = k;
        r.v = v;
    } else if (k->rank == 3 && v && v->rank == 3) {
        r.k = split_heads(l, k, heads);
        r.v = split_heads(l, v, heads);
    } else {
        unsupported(l, "key and value of these shapes");
    }
    if (l->error || !r.q || !bias) return r;
    const Dim *size = dim_mul(l->dims, r.q->dims[1], r.q->dims[3]);
    r.q = with_head_bias(l, r.q, bias, dim_const(l->dims, 0));
    if (r.k == k) return r;
    r.k = with_head_bias(l, r.k, bias, size);
    r.v = with_head_bias(l, r.v, bias, dim_add(l->dims, size, size));
    return r;
}

static Status lower_multi_head(Lowering *l, const Node *n) {
    Heads h = heads_of(l, n, attr_int(n, "num_heads", 0));
    Value *mask = optional_in(l, n, 4), *extra = optional_in(l, n, 5), *past_k = optional_in(l, n, 6),
          *past_v = optional_in(l, n, 7);
    static const Unfollowed none[] = {{0}};
    if (l->error || !follows_all(l, n, none, 8)) return l->error;
    if (!past_k != !past_v) return invalid(l, "past_key and past_value go together");
    h.k = after_past(l, past_k, h.k);
    h.v = after_past(l, past_v, h.v);
    if (l->error) return l->error;
    Attend a = {.q = h.q, .k = h.k, .v = h.v, .scale = attr_float(n, "scale", 0)};
    a.allowed = causal(l, n, h.q, h.k, past_k);
    a.bias = sum_of(l, filter_bias(l, n, kept_keys(l, mask, h.q->dims[0], h.k->dims[2]), h.q), extra);
    out(l, n, 0, merge_heads(l, attend(l, &a)));
    if (wants_output(n, 1)) out(l, n, 1, h.k);
    if (wants_output(n, 2)) out(l, n, 2, h.v);
    if (wants_output(n, 3)) out(l, n, 3, cast_like(l, a.masked, h.q));
    return l->error;
}

/* cos or sin at the positions: cache [most, R/2], positions [B, S] -> [B, 1, S, R/2]. */
static Value *angles(Lowering *l, Value *cache, Value *positions) {
    int heads = 1;
    return unsqueeze(l, gather(l, cache, positions, 0), &heads, 1);
}

/* RotaryEmbedding: X [B, S, H*D] or [B, H, S, D], position_ids [1] (of the first token) or [B, S], cos and sin caches. ONNX Runtime does
 * not use `scale`; where sequences are packed into one (is_packed_batching), positions repeat. */
static Status lower_ms_rotary(Lowering *l, const Node *n) {
    Value *x = in(l, n, 0), *positions = in(l, n, 1), *cos = in(l, n, 2), *sin = in(l, n, 3);
    static const Unfollowed none[] = {{0}};
    if (l->error || !follows_all(l, n, none, 4)) return l->error;
    bool flat = x->rank == 3;
    if ((!flat && x->rank != 4) || cos->rank != 2 || sin->rank != 2)
        return invalid(l, "X needs 3 or 4 axes, the caches 2");
    int64_t size = attr_int(n, "rotary_embedding_dim", 0), heads = attr_int(n, "num_heads", 0), hidden, half;
    if (flat && heads == 0 && dim_is_const(x->dims[2], &hidden) && dim_is_const(cos->dims[1], &half) && half > 0)
        heads = hidden / (2 * half);
    if (flat && heads == 0) return unsupported(l, "a number of heads that the model leaves open");
    Value *split = flat ? split_heads(l, x, heads) : x;
    if (!split) return l->error;
    if (positions->rank <= 1) {
        const Dim *dims[] = {dim_const(l->dims, 1), split->dims[2]}, *one[] = {dims[0], dims[0]};
        positions = add(l, iota(l, dims, 2, 1, DT_I64), reshape(l, cast(l, positions, DT_I64), one, 2));
    }
    Value *y = rotate(l, split, angles(l, cos, positions), angles(l, sin, positions), size,
                      attr_int(n, "interleaved", 0) != 0);
    return out(l, n, 0, flat ? merge_heads(l, y) : y);
}

/* ---- GroupQueryAttention ---- */

typedef struct Cache {
    const Dim *total; /* keys of the longest sequence, new ones included */
    Value *first;     /* i32 [B, 1, 1, 1]: position of the first new token of each sequence */
} Cache;

/* The cache with the new rows at their positions: past [B, H, P, D] (NULL: none), now [B, H, S, D] -> [B, H, max(P,
 * total), D]. */
static Value *updated_cache(Lowering *l, const Cache *c, Value *past, Value *now) {
    if (l->error || !past || dim_equals(past->dims[2], 0)) return now;
    past = aligned_past(l, past, now);
    if (!past) return NULL;
    const Dim *zero = dim_const(l->dims, 0), *one = dim_const(l->dims, 1), *none[] = {zero, zero, zero, zero};
    const Dim *grown = dim_max(l->dims, zero, dim_sub(l->dims, c->total, past->dims[2])),
              *after[] = {zero, zero, grown, zero};
    Value *room = dim_equals(grown, 0) ? past : pad(l, past, none, after, like(l, past, 0));
    const Dim *rows[] = {one, one, now->dims[2], one};
    Value *at = add(l, iota(l, rows, 4, 2, DT_I32), c->first);
    return scatter_elements(l, room, expand(l, at, (const Dim *const *)now->dims, 4), now, 2, "none");
}

static Value *packed_heads(Lowering *l, Value *x, int64_t from, int64_t heads, const Dim *head_size) {
    const Dim *start = dim_mul(l->dims, dim_const(l->dims, from), head_size),
              *size = dim_mul(l->dims, dim_const(l->dims, heads), head_size);
    return split_heads(l, last_slice(l, x, start, size), heads);
}

static Heads grouped_heads(Lowering *l, const Node *n, int64_t heads, int64_t kv_heads) {
    Value *q = in(l, n, 0), *k = optional_in(l, n, 1), *v = optional_in(l, n, 2);
    if (l->error) return (Heads){0};
    if (q->rank != 3 || heads < 1 || kv_heads < 1 || heads % kv_heads)
        return invalid(l, "the query needs 3 axes, the heads must divide"), (Heads){0};
    if (k && v) return (Heads){split_heads(l, q, heads), split_heads(l, k, kv_heads), split_heads(l, v, kv_heads)};
    const Dim *size = dim_div(l->dims, q->dims[2], dim_const(l->dims, heads + 2 * kv_heads));
    return (Heads){packed_heads(l, q, 0, heads, size), packed_heads(l, q, heads, kv_heads, size),
                   packed_heads(l, q, heads + kv_heads, kv_heads, size)};
}

/* Each head x / sqrt(mean(x^2) + epsilon) * weight [D]. */
static Value *normed_heads(Lowering *l, const Node *n, Value *x, Value *weight) {
    if (l->error || !weight) return x;
    Value *wide = widen(l, x);
    return cast_like(
        l, mul(l, root_mean_square(l, wide, attr_float(n, "qk_norm_epsilon", 1e-6f)), cast_like(l, weight, wide)), x);
}

/* The scores, one a head, that a softmax has beside those of the keys; 0 for all where the model only says that there is one. */
static Value *sink_of(Lowering *l, const Node *n, const Value *q) {
    Value *given = optional_in(l, n, 11);
    if (!given) return attr_int(n, "smooth_softmax", -1) == 1 ? like(l, q, 0) : NULL;
    const Dim *one = dim_const(l->dims, 1), *dims[] = {q->dims[1], one, one};
    return reshape(l, given, dims, 3);
}

/* Inputs: query, key, value, past_key, past_value, seqlens_k [B] (number of keys less one), total_sequence_length,
 * cos_cache, sin_cache, position_ids, attention_bias, head_sink, two scales of a quantized cache, weights of normalisations of q and k. Token i of sequence b stands at position seqlens_k[b] + 1 - S + i
 * (not below i). */
static Status lower_grouped_query(Lowering *l, const Node *n) {
    int64_t heads = attr_int(n, "num_heads", 0), kv_heads = attr_int(n, "kv_num_heads", 0),
            window = attr_int(n, "local_window_size", -1);
    Heads h = grouped_heads(l, n, heads, kv_heads);
    Value *past_k = optional_in(l, n, 3), *past_v = optional_in(l, n, 4), *lengths = in(l, n, 5), *total = in(l, n, 6);
    Value *positions = optional_in(l, n, 9), *extra = optional_in(l, n, 10);
    static const Unfollowed unfollowed[] = {
        {"causal", .number = 1},          {"sliding_window_cache"},         {"qk_output"},
        {"k_quant_type", .text = "NONE"}, {"v_quant_type", .text = "NONE"}, {0},
    };
    Value *q_weight = optional_in(l, n, 14), *k_weight = optional_in(l, n, 15);
    if (l->error || !follows_all(l, n, unfollowed, 16)) return l->error;
    if (optional_in(l, n, 12) || optional_in(l, n, 13)) return unsupported(l, "scales of a quantized cache");
    if (!q_weight != !k_weight) return invalid(l, "q_norm_weight and k_norm_weight go together");
    h.q = normed_heads(l, n, h.q, q_weight);
    h.k = normed_heads(l, n, h.k, k_weight);
    int count;
    const Dim *const *totals = sizes_of(l, total, "total", &count);
    if (l->error) return l->error;
    if (count != 1) return invalid(l, "total_sequence_length is not one number");
    const Dim *tokens = h.q->dims[2];
    Value *new_first =
        sub(l, add(l, per_batch(l, lengths), scalar_int(l, DT_I32, 1)), cast(l, dim_scalar(l, tokens), DT_I32));
    Cache c = {totals[0], maximum(l, new_first, scalar_int(l, DT_I32, 0))};
    if (attr_int(n, "do_rotary", 0)) {
        const Dim *one = dim_const(l->dims, 1), *row[] = {one, tokens};
        Value *cos = in(l, n, 7), *sin = in(l, n, 8);
        if (l->error) return l->error;
        if (!positions) {
            const Dim *flat[] = {h.q->dims[0], one};
            positions = add(l, iota(l, row, 2, 1, DT_I32), reshape(l, c.first, flat, 2));
        }
        bool pairs = attr_int(n, "rotary_interleaved", 0) != 0;
        int64_t half = 0;
        dim_is_const(cos->dims[cos->rank - 1], &half);
        Value *c_at = angles(l, cos, positions), *s_at = angles(l, sin, positions);
        h.q = rotate(l, h.q, c_at, s_at, 2 * half, pairs);
        h.k = rotate(l, h.k, c_at, s_at, 2 * half, pairs);
    }
    Value *k = updated_cache(l, &c, past_k, h.k), *v = updated_cache(l, &c, past_v, h.v);
    if (l->error) return l->error;
    Attend a = {.q = h.q,
                .k = k,
                .v = v,
                .scale = attr_float(n, "scale", 0),
                .softcap = attr_float(n, "softcap", 0),
                .bias = extra,
                .sink = sink_of(l, n, h.q)};
    Value *at = query_positions(l, tokens, c.first), *keys = key_positions(l, k->dims[2]);
    a.allowed = binary(l, PRIM_LE, keys, at);
    if (window > 0) a.allowed = both(l, a.allowed, binary(l, PRIM_GT, keys, sub(l, at, scalar_int(l, DT_I32, window))));
    out(l, n, 0, merge_heads(l, attend(l, &a)));
    if (wants_output(n, 1)) out(l, n, 1, k);
    if (wants_output(n, 2)) out(l, n, 2, v);
    return l->error;
}

const OpRow ops_multi_head[] = {
    {"com.microsoft", "Attention", 1, 0, lower_ms_attention, NULL, OP_WEIGHTED},
    {"com.microsoft", "GroupQueryAttention", 1, 0, lower_grouped_query},
    {"com.microsoft", "MultiHeadAttention", 1, 0, lower_multi_head},
    {"com.microsoft", "QAttention", 1, 0, lower_quantized_attention},
    {"com.microsoft", "RotaryEmbedding", 1, 0, lower_ms_rotary},
    {0},
};
