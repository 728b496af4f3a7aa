/* The composites of com.microsoft that ONNX Runtime's optimizer and exporters write, told as the standard's operators
 * are. */
#include "ops/families.h"

#include <math.h>

#include "lowering/anchors.h"
#include "ops/attention/attention.h"

/* ---- activations ---- */

static Value *with_bias(Lowering *l, const Node *n, Value *x, int index) {
    Value *bias = optional_in(l, n, index);
    return bias ? add(l, x, bias) : x;
}

static Status lower_gelu(Lowering *l, const Node *n) { return out(l, n, 0, gelu(l, in(l, n, 0), false)); }

static Status lower_bias_gelu(Lowering *l, const Node *n) {
    return out(l, n, 0, gelu(l, add(l, in(l, n, 0), in(l, n, 1)), false));
}

static Status lower_fast_gelu(Lowering *l, const Node *n) {
    return out(l, n, 0, gelu(l, with_bias(l, n, in(l, n, 0), 1), true));
}

/* x * sigmoid(alpha * x). */
static Status lower_quick_gelu(Lowering *l, const Node *n) {
    Value *x = in(l, n, 0), *wide = widen(l, x);
    Value *y = mul(l, wide, unary(l, PRIM_SIGMOID, mul(l, wide, like(l, wide, attr_float(n, "alpha", 1.702f)))));
    return out(l, n, 0, cast_like(l, y, x));
}

/* The two halves of x + bias along the last axis: first * gelu(second). */
static Status lower_bias_split_gelu(Lowering *l, const Node *n) {
    Value *x = add(l, in(l, n, 0), in(l, n, 1));
    if (!x) return l->error;
    if (x->rank < 1) return invalid(l, "X is a scalar");
    const Dim *half = dim_div(l->dims, x->dims[x->rank - 1], dim_const(l->dims, 2)), *zero = dim_const(l->dims, 0);
    Value *first = slice_axis(l, x, x->rank - 1, zero, half), *second = slice_axis(l, x, x->rank - 1, half, half);
    return out(l, n, 0, mul(l, first, gelu(l, second, false)));
}

/* ---- normalisations over the last axis ---- */

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

/* ---- matrices and dropout ---- */

static Status lower_fused_matmul(Lowering *l, const Node *n) {
    Value *a = in(l, n, 0), *b = in(l, n, 1);
    if (attr_int(n, "transBatchA", 0) || attr_int(n, "transBatchB", 0))
        return unsupported(l, "transBatchA and transBatchB");
    if (a && attr_int(n, "transA", 0) && a->rank > 1) a = swap_last(l, a);
    if (b && attr_int(n, "transB", 0) && b->rank > 1) b = swap_last(l, b);
    Value *y = matmul(l, a, b);
    double alpha = attr_float(n, "alpha", 1);
    return out(l, n, 0, alpha == 1 || !y ? y : mul(l, y, like(l, y, alpha)));
}

/* ---- MatMulNBits ---- */

/* Blockwise quantized weights: row n of the transposed matrix [N, K] is cut into blocks of K; each has a scale and a
 * zero point. */
typedef struct Blocks {
    const Tensor *packed, *scales,
        *zeros; /* u8 [N, blocks, block * bits / 8], [N * blocks], u8 [N * ceil(blocks * bits / 8)] or like scales */
    int64_t n, k, block, count, bits; /* count: blocks a row */
} Blocks;

static int bits_at(const uint8_t *bytes, int64_t index, int64_t bits) {
    return bits == 8 ? bytes[index] : bytes[index / 2] >> (index % 2 * 4) & 15;
}

static double zero_point(const Blocks *b, int64_t row, int64_t block) {
    if (!b->zeros) return 1 << (b->bits - 1);
    if (b->zeros->dtype != DT_U8) return dtype_load_double(b->zeros->dtype, b->zeros->data, row * b->count + block);
    int64_t row_bytes = (b->count * b->bits + 7) / 8;
    return bits_at((const uint8_t *)b->zeros->data + row * row_bytes, block, b->bits);
}

static Tensor *unpack_blocks(Lowering *l, const Blocks *b) {
    Tensor *w = tensor_new(l->arena, DT_F32, 2, (const int64_t[]){b->n, b->k});
    int64_t block_bytes = b->block * b->bits / 8;
    for (int64_t row = 0; row < b->n; row++)
        for (int64_t at = 0; at < b->k; at++) {
            int64_t block = at / b->block;
            const uint8_t *bytes = (const uint8_t *)b->packed->data + (row * b->count + block) * block_bytes;
            double scale = dtype_load_double(b->scales->dtype, b->scales->data, row * b->count + block);
            ((float *)w->data)[row * b->k + at] =
                (float)((bits_at(bytes, at % b->block, b->bits) - zero_point(b, row, block)) * scale);
        }
    return w;
}

static Status read_blocks(Lowering *l, const Node *n, Blocks *b) {
    b->packed = constant_of(optional_in(l, n, 1));
    b->scales = constant_of(optional_in(l, n, 2));
    b->zeros = constant_of(optional_in(l, n, 3));
    b->k = attr_int(n, "K", 0), b->n = attr_int(n, "N", 0);
    b->bits = attr_int(n, "bits", 4), b->block = attr_int(n, "block_size", 32);
    if (!b->packed || !b->scales || (optional_in(l, n, 3) && !b->zeros))
        return unsupported(l, "weights that are no constants");
    if (optional_in(l, n, 4)) return unsupported(l, "g_idx");
    if (b->bits != 4 && b->bits != 8) return unsupported(l, "%lld bits", (long long)b->bits);
    if (b->k < 1 || b->n < 1 || b->block < 16 || b->k > INT32_MAX || b->n > INT32_MAX || b->block > INT32_MAX ||
        b->block % 2)
        return invalid(l, "K, N or block_size is out of range");
    b->count = (b->k + b->block - 1) / b->block;
    bool fits = b->packed->dtype == DT_U8 && tensor_count(b->packed) == b->n * b->count * (b->block * b->bits / 8) &&
                dtype_is_float(b->scales->dtype) && tensor_count(b->scales) == b->n * b->count;
    if (b->zeros) {
        int64_t needed = b->zeros->dtype == DT_U8 ? b->n * ((b->count * b->bits + 7) / 8) : b->n * b->count;
        fits &= (b->zeros->dtype == DT_U8 || dtype_is_float(b->zeros->dtype)) && tensor_count(b->zeros) == needed;
    }
    return fits ? NULL : invalid(l, "the weights do not have the size that K, N and block_size ask for");
}

/* The product may be held as it came. */
static void keep_scales(Lowering *l, const Blocks *b, Value *y) {
    Node *product = y ? y->producer : NULL;
    if (!product || product->kind != NODE_ANCHOR) return;
    Tensor *scales = tensor_new(l->arena, DT_F32, 2, (const int64_t[]){b->n, b->count});
    for (int64_t i = 0; i < b->n * b->count; i++)
        ((float *)scales->data)[i] = (float)dtype_load_double(b->scales->dtype, b->scales->data, i);
    node_set_attr(product, (Attr){.name = WEIGHT_SCALES, .kind = ATTR_TENSOR, .tensor = scales});
    node_set_int(product, WEIGHT_BLOCK, b->block);
}

/* A * dequantized(B)^T + bias; the weights are unpacked to f32 once, at load. */
static Status lower_matmul_bits(Lowering *l, const Node *n) {
    Blocks b = {0};
    Value *a = in(l, n, 0);
    if (!a) return l->error;
    TRY(read_blocks(l, n, &b));
    Value *y = matmul(l, widen(l, a), swap_last(l, constant(l, unpack_blocks(l, &b))));
    keep_scales(l, &b, y);
    if (optional_in(l, n, 5)) y = add(l, y, cast_like(l, optional_in(l, n, 5), y));
    return out(l, n, 0, cast_like(l, y, a));
}

/* data + bias + residual; dropout does nothing outside training. */
static Status lower_bias_dropout(Lowering *l, const Node *n) {
    const Tensor *training = constant_of(optional_in(l, n, 4));
    if (optional_in(l, n, 4) &&
        (!training || tensor_count(training) != 1 || dtype_load_int(training->dtype, training->data, 0)))
        return unsupported(l, "training mode");
    Value *y = with_bias(l, n, add(l, in(l, n, 0), in(l, n, 1)), 2);
    out(l, n, 0, y);
    if (wants_output(n, 1) && y)
        out(l, n, 1, expand(l, scalar_int(l, DT_BOOL, 1), (const Dim *const *)y->dims, y->rank));
    return l->error;
}

/* ---- attention: masks ---- */

/* The keys that a mask of com.microsoft's operators keeps, as a bool that broadcasts to [B, H, S, T]: [B] or [2B]
 * numbers of keys (the latter: ends, then starts), or [B, T], [B, S, T] of zeros and ones. */
static Value *kept_keys(Lowering *l, Value *mask, const Dim *batch, const Dim *keys) {
    if (l->error || !mask) return NULL;
    const Dim *one = dim_const(l->dims, 1), *zero = dim_const(l->dims, 0);
    if (mask->rank == 1) {
        bool starts = mask->dims[0] != batch && mask->dims[0] == dim_mul(l->dims, batch, dim_const(l->dims, 2));
        if (!starts && dim_is_const(mask->dims[0], NULL) && dim_is_const(batch, NULL) && mask->dims[0] != batch)
            return unsupported(l, "a mask of this shape"), NULL;
        Value *at = key_positions(l, keys), *ends = starts ? slice_axis(l, mask, 0, zero, batch) : mask;
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

/* Attention: input, weights [in, q+k+v], bias, mask_index, past [2, B, H, P, D], attention_bias. */
static Status lower_ms_attention(Lowering *l, const Node *n) {
    Value *x = in(l, n, 0), *w = in(l, n, 1), *bias = optional_in(l, n, 2), *mask = optional_in(l, n, 3);
    Value *past = optional_in(l, n, 4), *extra = optional_in(l, n, 5);
    int64_t heads = attr_int(n, "num_heads", 0);
    if (l->error) return l->error;
    if (attr_int(n, "do_rotary", 0) || optional_in(l, n, 6))
        return unsupported(l, "do_rotary and past_sequence_length");
    if (x->rank != 3 || w->rank != 2) return invalid(l, "input and weights need 3 and 2 axes");
    Value *all = matmul(l, x, w);
    if (bias) all = add(l, all, bias);
    int count;
    const int64_t *sizes = attr_ints(n, "qkv_hidden_sizes", &count);
    const Dim *third = dim_div(l->dims, w->dims[1], dim_const(l->dims, 3)), *start = dim_const(l->dims, 0);
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
    a.bias = sum_of(l, filter_bias(l, n, kept_keys(l, mask, x->dims[0], k->dims[2]), a.q), extra);
    out(l, n, 0, merge_heads(l, attend(l, &a)));
    if (wants_output(n, 1)) {
        Value *both_parts[] = {unsqueeze(l, k, &first, 1), unsqueeze(l, v, &first, 1)};
        if (!l->error) out(l, n, 1, concat(l, both_parts, 2, 0));
    }
    return l->error;
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

/* Q, K, V of MultiHeadAttention from what it is given: [B, S, H*D] each, K and V of [B, H, T, D], or packed in one
 * tensor. */
static Heads heads_of(Lowering *l, const Node *n, int64_t heads) {
    Value *q = in(l, n, 0), *k = optional_in(l, n, 1), *v = optional_in(l, n, 2), *bias = optional_in(l, n, 3);
    Heads r = {0};
    if (l->error) return r;
    if (q->rank == 5) return (Heads){packed_part(l, q, 0), packed_part(l, q, 1), packed_part(l, q, 2)};
    if (q->rank != 3 || !k) return invalid(l, "query needs 3 axes and a key beside it, or 5"), r;
    const Dim *zero = dim_const(l->dims, 0), *size = q->dims[2];
    if (bias) q = add(l, q, last_slice(l, bias, zero, size));
    r.q = split_heads(l, q, heads);
    if (k->rank == 5) {
        r.k = packed_part(l, k, 0);
        r.v = packed_part(l, k, 1);
    } else if (k->rank == 4 && v && v->rank == 4) {
        r.k = k;
        r.v = v;
    } else if (k->rank == 3 && v && v->rank == 3) {
        if (bias) k = add(l, k, last_slice(l, bias, size, size));
        if (bias) v = add(l, v, last_slice(l, bias, dim_add(l->dims, size, size), v->dims[2]));
        r.k = split_heads(l, k, heads);
        r.v = split_heads(l, v, heads);
    } else {
        unsupported(l, "key and value of these shapes");
    }
    return r;
}

static Status lower_multi_head(Lowering *l, const Node *n) {
    Heads h = heads_of(l, n, attr_int(n, "num_heads", 0));
    Value *mask = optional_in(l, n, 4), *extra = optional_in(l, n, 5), *past_k = optional_in(l, n, 6),
          *past_v = optional_in(l, n, 7);
    if (l->error) return l->error;
    if (optional_in(l, n, 8)) return unsupported(l, "past_sequence_length");
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
    if (wants_output(n, 3)) out(l, n, 3, a.scores);
    return l->error;
}

/* cos or sin at the positions: cache [most, R/2], positions [B, S] -> [B, 1, S, R/2]. */
static Value *angles(Lowering *l, Value *cache, Value *positions) {
    int heads = 1;
    return unsqueeze(l, gather(l, cache, positions, 0), &heads, 1);
}

/* RotaryEmbedding: X [B, S, H*D] or [B, H, S, D], position_ids [1] (of the first token) or [B, S], cos and sin caches.
 */
static Status lower_ms_rotary(Lowering *l, const Node *n) {
    Value *x = in(l, n, 0), *positions = in(l, n, 1), *cos = in(l, n, 2), *sin = in(l, n, 3);
    if (l->error) return l->error;
    bool flat = x->rank == 3;
    if ((!flat && x->rank != 4) || cos->rank != 2 || sin->rank != 2)
        return invalid(l, "X needs 3 or 4 axes, the caches 2");
    int64_t size = attr_int(n, "rotary_embedding_dim", 0), heads = attr_int(n, "num_heads", 0), hidden, half;
    if (flat && heads == 0 && dim_is_const(x->dims[2], &hidden) && dim_is_const(cos->dims[1], &half) && half > 0)
        heads = hidden / (2 * half);
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

/* Inputs: query, key, value, past_key, past_value, seqlens_k [B] (number of keys less one), total_sequence_length,
 * cos_cache, sin_cache, position_ids, attention_bias. Token i of sequence b stands at position seqlens_k[b] + 1 - S + i
 * (not below i). */
static Status lower_grouped_query(Lowering *l, const Node *n) {
    int64_t heads = attr_int(n, "num_heads", 0), kv_heads = attr_int(n, "kv_num_heads", 0),
            window = attr_int(n, "local_window_size", -1);
    Heads h = grouped_heads(l, n, heads, kv_heads);
    Value *past_k = optional_in(l, n, 3), *past_v = optional_in(l, n, 4), *lengths = in(l, n, 5), *total = in(l, n, 6);
    Value *positions = optional_in(l, n, 9), *extra = optional_in(l, n, 10);
    if (l->error) return l->error;
    if (optional_in(l, n, 11) || attr_int(n, "smooth_softmax", 0))
        return unsupported(l, "smooth softmax and head sinks");
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
                .bias = extra};
    Value *at = query_positions(l, tokens, c.first), *keys = key_positions(l, k->dims[2]);
    a.allowed = binary(l, PRIM_LE, keys, at);
    if (window > 0) a.allowed = both(l, a.allowed, binary(l, PRIM_GT, keys, sub(l, at, scalar_int(l, DT_I32, window))));
    out(l, n, 0, merge_heads(l, attend(l, &a)));
    if (wants_output(n, 1)) out(l, n, 1, k);
    if (wants_output(n, 2)) out(l, n, 2, v);
    return l->error;
}

/* ---- NGramRepeatBlock ---- */

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

#define MS "com.microsoft"

const OpRow ops_contrib[] = {
    {MS, "Attention", 1, 0, lower_ms_attention, NULL, 0},
    {MS, "BiasDropout", 1, 0, lower_bias_dropout, NULL, 0},
    {MS, "BiasGelu", 1, 0, lower_bias_gelu, NULL, 0},
    {MS, "BiasSplitGelu", 1, 0, lower_bias_split_gelu, NULL, 0},
    {MS, "EmbedLayerNormalization", 1, 0, lower_embed_norm, NULL, 0},
    {MS, "FastGelu", 1, 0, lower_fast_gelu, NULL, 0},
    {MS, "FusedMatMul", 1, 0, lower_fused_matmul, NULL, 0},
    {MS, "Gelu", 1, 0, lower_gelu, NULL, 0},
    {MS, "GroupQueryAttention", 1, 0, lower_grouped_query, NULL, 0},
    {MS, "MatMulNBits", 1, 0, lower_matmul_bits, NULL, 0},
    {MS, "MultiHeadAttention", 1, 0, lower_multi_head, NULL, 0},
    {MS, "NGramRepeatBlock", 1, 0, lower_ngram_repeat, NULL, 0},
    {MS, "QuickGelu", 1, 0, lower_quick_gelu, NULL, 0},
    {MS, "RotaryEmbedding", 1, 0, lower_ms_rotary, NULL, 0},
    {MS, "SimplifiedLayerNormalization", 1, 0, lower_rms_norm, NULL, 0},
    {MS, "SkipLayerNormalization", 1, 0, lower_skip_layer_norm, NULL, 0},
    {MS, "SkipSimplifiedLayerNormalization", 1, 0, lower_skip_rms_norm, NULL, 0},
    {"", "SimplifiedLayerNormalization", 1, 0, lower_rms_norm, NULL, 0},
    {0},
};
