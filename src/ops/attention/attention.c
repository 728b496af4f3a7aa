/* SPDX-License-Identifier: Apache-2.0 */
/* Attention, RotaryEmbedding, FlexAttention, CausalConvWithState: the standard's composites of attention models, told
 * as matmul, softmax and primitives. */
#include "ops/attention/attention.h"

#include <math.h>

#include "ops/attention/linear_attention.h"
#include "lowering/subgraph.h"
#include "ops/families.h"

/* ---- heads ---- */

static const Dim *divided(Lowering *l, const Dim *size, int64_t parts, const char *what) {
    const Dim *quotient = NULL;
    if (parts < 1) return invalid(l, "%s is %lld", what, (long long)parts), NULL;
    if (dim_divides(l->dims, size, dim_const(l->dims, parts), &quotient)) return quotient;
    if (dim_is_const(size, NULL))
        return invalid(l, "a size is not divisible by %s = %lld", what, (long long)parts), NULL;
    return dim_div(l->dims, size, dim_const(l->dims, parts));
}

Value *split_heads(Lowering *l, Value *x, int64_t heads) {
    if (l->error || !x) return NULL;
    if (x->rank != 3) return invalid(l, "\"%s\" has %d axes where 3 are needed", x->name, x->rank), NULL;
    const Dim *size = divided(l, x->dims[2], heads, "the number of heads");
    if (!size) return NULL;
    const Dim *dims[] = {x->dims[0], x->dims[1], dim_const(l->dims, heads), size};
    return permute(l, reshape(l, x, dims, 4), (int[]){0, 2, 1, 3});
}

Value *merge_heads(Lowering *l, Value *x) { return flatten_to(l, permute(l, x, (int[]){0, 2, 1, 3}), 2, 4); }

/* ---- scores ---- */

/* [B, Hq, S, X] -> [B, Hkv, G * S, X]: all queries of a key head in one matrix, so that its keys are read once. */
static Value *grouped(Lowering *l, Value *x, const Dim *kv_heads) {
    if (l->error || !x || x->dims[1] == kv_heads) return x;
    const Dim *group = NULL;
    if (!dim_divides(l->dims, x->dims[1], kv_heads, &group)) {
        if (dim_is_const(x->dims[1], NULL) && dim_is_const(kv_heads, NULL))
            return invalid(l, "the query heads are no multiple of the key heads"), NULL;
        group = dim_div(l->dims, x->dims[1], kv_heads);
    }
    const Dim *dims[] = {x->dims[0], kv_heads, dim_mul(l->dims, group, x->dims[2]), x->dims[3]};
    return reshape(l, x, dims, 4);
}

static Value *ungrouped(Lowering *l, Value *x, const Value *q) {
    if (l->error || !x) return NULL;
    const Dim *dims[] = {x->dims[0], q->dims[1], q->dims[2], x->dims[3]};
    return reshape(l, x, dims, 4);
}

/* The scale as a scalar of x's dtype, to the power `power`. */
static Value *scale_of(Lowering *l, const Attend *a, Value *x, double power) {
    int64_t size;
    double scale = a->scale;
    if (scale == 0 && dim_is_const(a->q->dims[3], &size) && size > 0) scale = 1 / sqrt((double)size);
    if (scale != 0) return like(l, x, power == 1 ? scale : pow(scale, power));
    Value *head = cast(l, dim_scalar(l, a->q->dims[3]), DT_F64);
    return cast_like(l, binary(l, PRIM_POW, head, like(l, head, -0.5 * power)), x);
}

/* scale * Q K^T. Narrow floats are scaled on both sides beforehand, so that the product stays in range. */
static Value *scaled_scores(Lowering *l, const Attend *a) {
    Value *q = a->q, *k = a->k;
    bool narrow = dtype_size(q->dtype) < 4 && a->scale >= 0;
    if (narrow) {
        Value *root = scale_of(l, a, q, 0.5);
        q = mul(l, q, root);
        k = mul(l, k, root);
    }
    Value *scores = ungrouped(l, matmul(l, grouped(l, q, k ? k->dims[1] : NULL), swap_last(l, k)), a->q);
    return narrow || !scores ? scores : mul(l, scores, scale_of(l, a, scores, 1));
}

/* Hidden keys get -inf whatever their score, so that a NaN there stays hidden as well. */
static Value *mask_scores(Lowering *l, const Attend *a, Value *scores) {
    if (l->error || !scores) return NULL;
    Value *hidden = like(l, scores, -INFINITY), *allowed = a->allowed;
    if (a->bias) {
        Value *bias = cast_like(l, a->bias, scores);
        if (a->may_be_empty) allowed = both(l, allowed, binary(l, PRIM_NE, bias, hidden));
        scores = add(l, scores, bias);
    }
    return allowed ? where(l, allowed, scores, hidden) : scores;
}

/* Softmax over the keys; a row of -inf alone gives zeros. */
static Value *guarded_softmax(Lowering *l, Value *x) {
    int axis = 3;
    Value *top = reduce(l, PRIM_REDUCE_MAX, x, &axis, 1, true);
    if (!top) return NULL;
    Value *zero = like(l, x, 0), *safe = where(l, binary(l, PRIM_EQ, top, like(l, x, -INFINITY)), zero, top);
    Value *e = unary(l, PRIM_EXP, sub(l, x, safe)), *sum = reduce(l, PRIM_REDUCE_SUM, e, &axis, 1, true);
    return divide(l, e, where(l, binary(l, PRIM_EQ, sum, zero), like(l, x, 1), sum));
}

/* softmax(x) beside one score more, whose own share is left out. */
static Value *softmax_beside(Lowering *l, Value *x, Value *sink) {
    int last = 3;
    Value *wide = widen(l, x);
    sink = cast_like(l, sink, wide);
    Value *most = maximum(l, reduce(l, PRIM_REDUCE_MAX, wide, &last, 1, true), sink);
    Value *e = unary(l, PRIM_EXP, sub(l, wide, most));
    Value *sum = add(l, reduce(l, PRIM_REDUCE_SUM, e, &last, 1, true), unary(l, PRIM_EXP, sub(l, sink, most)));
    return cast_like(l, divide(l, e, sum), x);
}

static Value *probabilities(Lowering *l, const Attend *a, Value *x) {
    if (!x) return NULL;
    if (a->sink) return softmax_beside(l, x, a->sink);
    return a->may_be_empty ? cast_like(l, guarded_softmax(l, widen(l, x)), x) : softmax(l, x, 3);
}

Value *attend(Lowering *l, Attend *a) {
    if (l->error || !a->q || !a->k || !a->v) return NULL;
    if (a->q->rank != 4 || a->k->rank != 4 || a->v->rank != 4) return invalid(l, "Q, K and V need 4 axes"), NULL;
    DType dtype = a->q->dtype;
    if (dtype == DT_F16) { /* the devices' libraries compute it in f32 anyway, and so nothing is rounded on the way */
        a->q = cast(l, a->q, DT_F32);
        a->k = cast(l, a->k, DT_F32);
        a->v = cast(l, a->v, DT_F32);
        if (l->error) return NULL;
    }
    a->scores = a->capped = scaled_scores(l, a);
    if (a->softcap > 0 && a->scores) {
        Value *cap = like(l, a->scores, a->softcap);
        a->capped = mul(l, unary(l, PRIM_TANH, divide(l, a->scores, cap)), cap);
    }
    a->masked = mask_scores(l, a, a->capped);
    Value *x = a->masked;
    if (a->precision != DT_NONE && x) x = cast(l, x, a->precision);
    if (a->score_mod && x) x = a->score_mod(l, a->context, x);
    a->probabilities = probabilities(l, a, x);
    if (a->prob_mod && a->probabilities) a->probabilities = a->prob_mod(l, a->context, a->probabilities);
    if (l->error || !a->probabilities) return NULL;
    Value *p = grouped(l, cast_like(l, a->probabilities, a->q), a->v->dims[1]);
    Value *y = ungrouped(l, matmul(l, p, a->v), a->q);
    return y ? cast(l, y, dtype) : NULL;
}

/* ---- positions ---- */

Value *query_positions(Lowering *l, const Dim *count, Value *offset) {
    const Dim *dims[] = {count, dim_const(l->dims, 1)};
    Value *index = iota(l, dims, 2, 0, DT_I32);
    return offset ? add(l, index, cast(l, offset, DT_I32)) : index;
}

Value *key_positions(Lowering *l, const Dim *count) {
    const Dim *dims[] = {dim_const(l->dims, 1), count};
    return iota(l, dims, 2, 1, DT_I32);
}

Value *both(Lowering *l, Value *a, Value *b) { return a && b ? binary(l, PRIM_AND, a, b) : a ? a : b; }

Value *per_batch(Lowering *l, Value *x) {
    if (l->error || !x) return NULL;
    const Dim *one = dim_const(l->dims, 1), *dims[] = {value_elements(l->graph, x), one, one, one};
    return reshape(l, cast(l, x, DT_I32), dims, 4);
}

/* ---- Attention ---- */

/* A mask whose last axis is shorter than the keys hides the rest. */
static Value *padded_mask(Lowering *l, Value *mask, const Dim *keys) {
    if (l->error || !mask) return NULL;
    if (mask->rank < 1 || mask->rank > 4) return invalid(l, "the mask has %d axes", mask->rank), NULL;
    const Dim *zero = dim_const(l->dims, 0),
              *missing = dim_max(l->dims, zero, dim_sub(l->dims, keys, mask->dims[mask->rank - 1]));
    if (dim_equals(missing, 0)) return mask;
    const Dim *before[] = {zero, zero, zero, zero}, *after[] = {zero, zero, zero, zero};
    after[mask->rank - 1] = missing;
    Value *fill = mask->dtype == DT_BOOL ? scalar_int(l, DT_BOOL, 0) : like(l, mask, -INFINITY);
    return pad(l, mask, before, after, fill);
}

/* The keys seen by is_causal, the windows and nonpad_kv_seqlen. Query i stands at position i + offset. */
static Value *seen_keys(Lowering *l, const Node *n, const Value *q, const Value *k, const Value *past, Value *lengths) {
    bool causal = attr_int(n, "is_causal", 0) != 0;
    int64_t left = attr_int(n, "left_window_size", -1), right = attr_int(n, "right_window_size", -1);
    Value *keys = key_positions(l, k->dims[2]), *allowed = NULL;
    if (causal || left >= 0 || right >= 0) {
        Value *offset = past ? dim_scalar(l, past->dims[2]) : NULL;
        if (!past && lengths) offset = sub(l, lengths, cast(l, dim_scalar(l, q->dims[2]), DT_I32));
        Value *at = query_positions(l, q->dims[2], offset);
        if (causal) allowed = binary(l, PRIM_LE, keys, at);
        if (left >= 0) allowed = both(l, allowed, binary(l, PRIM_GE, keys, sub(l, at, scalar_int(l, DT_I32, left))));
        if (right >= 0) allowed = both(l, allowed, binary(l, PRIM_LE, keys, add(l, at, scalar_int(l, DT_I32, right))));
    }
    return lengths ? both(l, allowed, binary(l, PRIM_LT, keys, lengths)) : allowed;
}

static Value *heads_in(Lowering *l, const Node *n, int index, const char *heads) {
    Value *x = in(l, n, index);
    return x && x->rank == 3 ? split_heads(l, x, attr_int(n, heads, 0)) : x;
}

Value *aligned_past(Lowering *l, Value *past, const Value *now) {
    if (l->error || !past || !now) return NULL;
    if (past->rank != 4 || now->rank != 4) return invalid(l, "past keys and values need 4 axes"), NULL;
    const Dim *dims[] = {now->dims[0], now->dims[1], past->dims[2], now->dims[3]};
    return expand(l, past, dims, 4);
}

Value *after_past(Lowering *l, Value *past, Value *now) {
    if (!past || !now) return now;
    past = aligned_past(l, past, now);
    return l->error ? NULL : concat(l, (Value *const[]){past, now}, 2, 2);
}

static Status lower_attention(Lowering *l, const Node *n) {
    Value *q = heads_in(l, n, 0, "q_num_heads"), *k = heads_in(l, n, 1, "kv_num_heads"),
          *v = heads_in(l, n, 2, "kv_num_heads");
    Value *past_k = optional_in(l, n, 4), *past_v = optional_in(l, n, 5), *lengths = optional_in(l, n, 6);
    if (l->error) return l->error;
    bool flat = n->inputs[0]->rank == 3;
    if (!past_k != !past_v) return invalid(l, "past_key and past_value go together");
    if (past_k && past_k->rank != 4) return invalid(l, "past_key has %d axes where 4 are needed", past_k->rank);
    k = after_past(l, past_k, k);
    v = after_past(l, past_v, v);
    if (lengths) lengths = per_batch(l, lengths);
    if (l->error) return l->error;
    if (q->rank != 4 || k->rank != 4) return invalid(l, "Q, K and V need 3 or 4 axes");
    Value *mask = optional_in(l, n, 3);
    if (mask) mask = padded_mask(l, mask, k->dims[2]);
    if (l->error) return l->error;
    Attend a = {.q = q, .k = k, .v = v, .scale = attr_float(n, "scale", 0), .softcap = attr_float(n, "softcap", 0)};
    a.allowed = seen_keys(l, n, q, k, past_k, lengths);
    bool boolean = mask && mask->dtype == DT_BOOL;
    if (boolean) a.allowed = both(l, a.allowed, mask);
    a.bias = boolean ? NULL : mask;
    a.may_be_empty =
        mask || lengths || attr_int(n, "left_window_size", -1) >= 0 || attr_int(n, "right_window_size", -1) >= 0;
    a.precision = attr_dtype(n, "softmax_precision", DT_NONE);
    Value *y = attend(l, &a);
    Value *shown[] = {a.scores, a.capped, a.masked, a.probabilities};
    int64_t mode = attr_int(n, "qk_matmul_output_mode", 0);
    if (mode < 0 || mode > 3) return invalid(l, "qk_matmul_output_mode is %lld", (long long)mode);
    out(l, n, 0, flat ? merge_heads(l, y) : y);
    out(l, n, 1, k);
    out(l, n, 2, v);
    if (wants_output(n, 3)) out(l, n, 3, cast_like(l, shown[mode], q));
    return l->error;
}

/* ---- RotaryEmbedding ---- */

static Value *last_part(Lowering *l, Value *x, const Dim *start, const Dim *size) {
    return slice_axis(l, x, x->rank - 1, start, size);
}

/* cos a - sin b beside sin a + cos b: cos [a, b] + sin [-b, a]. */
static Value *rotated_halves(Lowering *l, Value *x, Value *cos, Value *sin, const Dim *half) {
    int rank = x->rank, apart[] = {rank - 1};
    const Dim *dims[MAX_RANK];
    if (rank == MAX_RANK) return unsupported(l, "%d axes", rank), NULL;
    for (int i = 0; i < rank - 1; i++) dims[i] = x->dims[i];
    dims[rank - 1] = dim_const(l->dims, 2);
    dims[rank] = half;
    cos = unsqueeze(l, cos, apart, 1);
    sin = unsqueeze(l, sin, apart, 1);
    Value *turned = mul(l, sin, turn_halves(l, x, rank - 1, half, (const bool[]){true, false}));
    Value *y = add(l, mul(l, cos, reshape(l, x, dims, rank + 1)), turned);
    return l->error ? NULL : reshape(l, y, (const Dim *const *)x->dims, rank);
}

static Value *rotated_pairs(Lowering *l, Value *x, Value *cos, Value *sin, const Dim *half) {
    const Dim *dims[MAX_RANK];
    int rank = x->rank, last[] = {rank};
    if (rank + 1 > MAX_RANK) return unsupported(l, "%d axes", rank), NULL;
    for (int i = 0; i < rank - 1; i++) dims[i] = x->dims[i];
    dims[rank - 1] = half;
    dims[rank] = dim_const(l->dims, 2);
    Value *pairs = reshape(l, x, dims, rank + 1);
    if (!pairs) return NULL;
    const Dim *one = dim_const(l->dims, 1);
    Value *a = squeeze(l, last_part(l, pairs, dim_const(l->dims, 0), one), last, 1);
    Value *b = squeeze(l, last_part(l, pairs, one, one), last, 1);
    Value *turned[] = {unsqueeze(l, sub(l, mul(l, cos, a), mul(l, sin, b)), last, 1),
                       unsqueeze(l, add(l, mul(l, sin, a), mul(l, cos, b)), last, 1)};
    return l->error ? NULL : reshape(l, concat(l, turned, 2, rank), (const Dim *const *)x->dims, rank);
}

Value *rotate(Lowering *l, Value *x, Value *cos, Value *sin, int64_t size, bool interleaved) {
    if (l->error || !x || !cos || !sin) return NULL;
    const Dim *whole = x->dims[x->rank - 1], *turned = size > 0 ? dim_const(l->dims, size) : whole;
    const Dim *half = divided(l, turned, 2, "2"), *zero = dim_const(l->dims, 0);
    if (!half) return NULL;
    Value *part = turned == whole ? x : last_part(l, x, zero, turned), *wide = widen(l, part);
    cos = cast_like(l, cos, wide);
    sin = cast_like(l, sin, wide);
    if (l->error) return NULL;
    Value *y =
        cast_like(l, interleaved ? rotated_pairs(l, wide, cos, sin, half) : rotated_halves(l, wide, cos, sin, half), x);
    if (turned == whole || !y) return y;
    Value *parts[] = {y, last_part(l, x, turned, dim_sub(l->dims, whole, turned))};
    return l->error ? NULL : concat(l, parts, 2, x->rank - 1);
}

static Status lower_rotary(Lowering *l, const Node *n) {
    Value *x = in(l, n, 0), *cos = in(l, n, 1), *sin = in(l, n, 2), *positions = optional_in(l, n, 3);
    if (l->error) return l->error;
    if (positions) cos = gather(l, cos, positions, 0), sin = gather(l, sin, positions, 0);
    if (l->error) return l->error;
    if (x->rank != 3 && x->rank != 4) return invalid(l, "X has %d axes where 3 or 4 are needed", x->rank);
    if (cos->rank != 3 || sin->rank != 3) return invalid(l, "the angles need the shape [batch, sequence, size]");
    bool flat = x->rank == 3;
    int heads_axis = flat ? 2 : 1;
    Value *heads = x;
    if (flat) {
        int64_t count = attr_int(n, "num_heads", 0);
        const Dim *size = divided(l, x->dims[2], count, "num_heads");
        if (!size) return l->error;
        heads = reshape(l, x, (const Dim *const[]){x->dims[0], x->dims[1], dim_const(l->dims, count), size}, 4);
    }
    cos = unsqueeze(l, cos, &heads_axis, 1);
    sin = unsqueeze(l, sin, &heads_axis, 1);
    Value *y = rotate(l, heads, cos, sin, attr_int(n, "rotary_embedding_dim", 0), attr_int(n, "interleaved", 0) != 0);
    return out(l, n, 0, flat ? reshape(l, y, (const Dim *const *)x->dims, 3) : y);
}

/* ---- FlexAttention ---- */

typedef struct Modifiers {
    const Node *node;
    Graph *score_mod, *prob_mod;
} Modifiers;

/* Lowers a modifier for its input's type and puts it in place. */
static Value *modified(Lowering *l, const Node *n, Graph *body, Value *x) {
    if (body->inputs.count != 1 + n->captures || body->outputs.count != 1)
        return invalid(l, "a modifier takes one tensor and gives one"), NULL;
    Value **inputs = ARENA_ARRAY(l->arena, Value *, body->inputs.count);
    for (int i = 0; i < body->inputs.count; i++) {
        Value *outer = i ? n->inputs[n->input_count - n->captures + i - 1] : x, *inner = body->inputs.items[i];
        pass_type(inner, outer);
        inputs[i] = outer;
    }
    Status status = lower_subgraph(l, body);
    if (status) {
        if (!l->error) l->error = status;
        return NULL;
    }
    Value *result;
    inline_graph(l, body, inputs, &result);
    if (result && (result->rank != x->rank || result->dtype != x->dtype))
        return invalid(l, "a modifier changes the type of its tensor"), NULL;
    return result;
}

static Value *apply_score_mod(Lowering *l, void *context, Value *x) {
    const Modifiers *m = context;
    return modified(l, m->node, m->score_mod, x);
}

static Value *apply_prob_mod(Lowering *l, void *context, Value *x) {
    const Modifiers *m = context;
    return modified(l, m->node, m->prob_mod, x);
}

static Status lower_flex_attention(Lowering *l, const Node *n) {
    Value *q = in(l, n, 0);
    if (l->error) return l->error;
    int64_t score = attr_int(n, "score_mod_graph", -1), prob = attr_int(n, "prob_mod_graph", -1);
    Modifiers m = {n, score >= 0 && score < n->subgraph_count ? n->subgraphs[score] : NULL,
                   prob >= 0 && prob < n->subgraph_count ? n->subgraphs[prob] : NULL};
    if (!m.score_mod != (score < 0) || !m.prob_mod != (prob < 0) || !!m.score_mod + !!m.prob_mod != n->subgraph_count)
        return unsupported(l, "its modifiers");
    DType precision = attr_dtype(n, "softmax_precision", q->dtype == DT_F64 ? DT_F64 : DT_F32);
    Attend a = {.q = q,
                .k = in(l, n, 1),
                .v = in(l, n, 2),
                .scale = attr_float(n, "scale", 0),
                .precision = precision,
                .may_be_empty = m.score_mod != NULL,
                .context = &m};
    if (m.score_mod) a.score_mod = apply_score_mod;
    if (m.prob_mod) a.prob_mod = apply_prob_mod;
    return out(l, n, 0, attend(l, &a));
}

/* ---- CausalConvWithState ---- */

/* Depthwise convolution over [past_state, input] (zeros when there is none); the state is its last kernel-1 positions.
 */
static Status lower_causal_conv(Lowering *l, const Node *n) {
    Value *x = in(l, n, 0), *w = in(l, n, 1), *bias = optional_in(l, n, 2), *past = optional_in(l, n, 3);
    int64_t channels;
    if (l->error) return l->error;
    if (x->rank != 3 || w->rank != 3 || (past && past->rank != 3))
        return invalid(l, "input, weight and past_state need 3 axes");
    if (!dim_is_const(w->dims[0], &channels)) return unsupported(l, "a number of channels known only at run time");
    const char *activation = attr_string(n, "activation", "none");
    bool silu = strcmp(activation, "silu") == 0 || strcmp(activation, "swish") == 0;
    if (!silu && strcmp(activation, "none") != 0) return invalid(l, "activation \"%s\"", activation);
    const Dim *zero = dim_const(l->dims, 0), *keep = dim_sub(l->dims, w->dims[2], dim_const(l->dims, 1));
    const Dim *before[] = {zero, zero, keep}, *none[] = {zero, zero, zero};
    Value *whole = past ? concat(l, (Value *const[]){past, x}, 2, 2) : pad(l, x, before, none, like(l, x, 0));
    if (!whole) return l->error;
    int64_t one = 1;
    const Dim *pads[] = {zero, zero};
    ConvAttrs attrs = {.spatial = 1, .strides = &one, .dilations = &one, .pads = pads, .group = channels};
    Value *y = from_channels_last(l, conv(l, to_channels_last(l, whole), w, bias, &attrs));
    if (silu && y) {
        Value *wide = widen(l, y);
        y = cast_like(l, mul(l, wide, unary(l, PRIM_SIGMOID, wide)), x);
    }
    out(l, n, 0, y);
    if (wants_output(n, 1)) out(l, n, 1, slice_axis(l, whole, 2, dim_sub(l->dims, whole->dims[2], keep), keep));
    return l->error;
}

const OpRow ops_attention[] = {
    {"", "Attention", 23, 0, lower_attention, NULL, 0},
    {"", "RotaryEmbedding", 23, 0, lower_rotary, NULL, 0},
    {"", "LinearAttention", 27, 0, lower_linear_attention, host_linear_attention, 0},
    {"", "CausalConvWithState", 27, 0, lower_causal_conv, NULL, 0},
    {"ai.onnx.preview", "FlexAttention", 1, 0, lower_flex_attention, NULL, 0},
    {0},
};

const HostRow hosts_attention[] = {
    {"LinearAttention", host_linear_attention, back_linear_attention},
    {"LinearAttentionGradient", host_linear_attention_gradient, NULL},
    {0},
};
