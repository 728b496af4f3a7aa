/* SPDX-License-Identifier: Apache-2.0 */
/* Scaled dot-product attention, shared by the standard's operators and com.microsoft's. */
#ifndef ONNXFUSE_OPS_ATTENTION_ATTENTION_H
#define ONNXFUSE_OPS_ATTENTION_ATTENTION_H

#include "lowering/build.h"

/* Y = softmax(mask(softcap(scale * Q K^T))) V. Query heads [g*h, g*(h+1)) share key head h, g = Hq / Hkv. */
typedef struct Attend {
    Value *q, *k, *v;  /* [B, Hq, S, D], [B, Hkv, T, D], [B, Hkv, T, Dv] */
    double scale;      /* 0: 1 / sqrt(D) */
    double softcap;    /* 0: none */
    Value *bias;       /* floats added to the scores, broadcasts to [B, Hq, S, T]; -inf hides a key; NULL */
    Value *allowed;    /* bool, likewise: the keys that are seen; NULL: all */
    Value *sink;       /* scores of a key without a value, broadcasts to [B, Hq, S, 1]; NULL: none */
    bool may_be_empty; /* a query may see no key: its row of Y is zero */
    DType precision;   /* of the softmax; DT_NONE: f32, f64 for f64 */
    Value *(*score_mod)(Lowering *l, void *context, Value *scores);
    Value *(*prob_mod)(Lowering *l, void *context, Value *probabilities);
    void *context;
    /* results besides Y, [B, Hq, S, T] */
    Value *scores, *capped, *masked, *probabilities;
} Attend;

Value *attend(Lowering *l, Attend *a); /* Y: [B, Hq, S, Dv] in q's dtype */

Value *split_heads(Lowering *l, Value *x, int64_t heads); /* [B, S, H * D] -> [B, H, S, D] */
Value *merge_heads(Lowering *l, Value *x);                /* [B, H, S, D] -> [B, S, H * D] */
/* The first `size` elements of each head (the last axis; 0: all) turned by the angles of cos and sin, which broadcast
 * to x's shape with size / 2 last. Pairs are (i, i + size/2), or (2i, 2i + 1) when interleaved. (Su et al., "RoFormer",
 * 2021) */
Value *rotate(Lowering *l, Value *x, Value *cos, Value *sin, int64_t size, bool interleaved);

/* past [B, H, P, D] before now [B, H, S, D], checked at run time where the sizes are not known; now alone when past is
 * NULL. */
Value *after_past(Lowering *l, Value *past, Value *now);
/* past with now's batch, heads and size; checked likewise. */
Value *aligned_past(Lowering *l, Value *past, const Value *now);

/* Positions of queries, i32 [S, 1], and of keys, [1, T]; offset (NULL: 0) is added, a scalar or [B, 1, 1, 1]. */
Value *query_positions(Lowering *l, const Dim *count, Value *offset);
Value *key_positions(Lowering *l, const Dim *count);
Value *both(Lowering *l, Value *a, Value *b); /* logical and; either may be NULL */
/* [B] integers as i32 [B, 1, 1, 1]. */
Value *per_batch(Lowering *l, Value *x);

#endif
