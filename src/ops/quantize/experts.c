/* SPDX-License-Identifier: Apache-2.0 */
/* Mixtures of experts (com.microsoft's MoE and QMoE): each token goes through the k networks that its router rates highest, and their
 * results are added up by weights that the router gives. A row of a layer is a token with one of its experts, the anchor "matmul_grouped" a
 * layer. Devices that have no such anchor, and graphs that are differentiated, show all tokens to all experts, and those that are not
 * chosen have the weight 0. */
#include <math.h>
#include <string.h>

#include "lowering/anchors.h"
#include "lowering/gradient.h"
#include "lowering/sizes.h"
#include "ops/families.h"
#include "ops/linear/linear.h"
#include "ops/quantize/quantize.h"

/* One layer of all experts: inputs by their numbers, -1 for those that the operator has not. */
typedef struct Layer {
    int weights, scales, bias, zeros;
    int bits; /* 0: weights are floats */
} Layer;

/* Whether experts see the rows that are theirs alone; else all experts see all. What has a gradient is the latter. */
static bool is_sparse(const Lowering *l) {
    return l->policy && l->policy->target.anchors.grouped && !lowers_trained(l);
}

/* Zero points [experts * columns] that are packed across an expert's columns, each in a byte of its own. */
static Tensor *zero_a_column(Lowering *l, const Tensor *zeros, int64_t experts, int64_t columns, int bits) {
    int64_t bytes = (columns * bits + 7) / 8, all = experts * columns;
    Tensor *apart = tensor_new(l->arena, DT_U8, 1, &all);
    for (int64_t i = 0; i < all; i++)
        ((uint8_t *)apart->data)[i] =
            (uint8_t)weight_bits((const uint8_t *)zeros->data + i / columns * bytes, i % columns, bits);
    return apart;
}

/* The constant weights as they came: [experts, columns, blocks, bytes], and what they stand for. NULL without an error: that does not
 * go. */
static Value *narrow_weights(Lowering *l, const Node *n, const Layer *layer, int64_t block, WeightBlocks *b) {
    const Tensor *w = constant_of(in(l, n, layer->weights)), *s = constant_of(in(l, n, layer->scales)),
                 *z = constant_of(optional_in(l, n, layer->zeros));
    bool allowed = is_sparse(l) && l->policy->target.anchors.bits && block % 16 == 0;
    if (!w || !s || (!z && optional_in(l, n, layer->zeros)) || !allowed) return NULL;
    int64_t experts = w->dims[0], columns = w->dims[1], depth = w->dims[2] * 8 / layer->bits, count = depth / block;
    bool by_column = z && z->rank == 2 && depth == block;
    int64_t bytes_of_zeros =
        by_column ? experts * ((columns * layer->bits + 7) / 8) : experts * columns * ((count * layer->bits + 7) / 8);
    if (tensor_count(s) != experts * columns * count || (z && (z->dtype != DT_U8 || tensor_count(z) != bytes_of_zeros)))
        return invalid(l, "scales or zero points are not one a block of %lld", (long long)block), NULL;
    Tensor *packed = ARENA_NEW(l->arena, Tensor);
    *packed = (Tensor){.dtype = w->dtype, .rank = 4, .dims = {experts, columns, count, block * layer->bits / 8}};
    packed->data = w->data;
    *b = (WeightBlocks){.packed = packed, .scales = s, .zeros = z, .n = experts * columns, .k = depth};
    b->block = block, b->bits = layer->bits;
    if (by_column) b->zeros = zero_a_column(l, z, experts, columns, layer->bits);
    const char *wrong = weight_blocks_check(b);
    return wrong ? (invalid(l, "%s", wrong), NULL) : constant(l, packed);
}

/* Weights in bits as f32 [E, columns, depth]. */
static Value *widened_weights(Lowering *l, const Node *n, const Layer *layer, int64_t block, bool in_blocks) {
    Value *w = in(l, n, layer->weights), *s = in(l, n, layer->scales), *z = optional_in(l, n, layer->zeros);
    if (l->error) return NULL;
    int last = 2;
    w = unpacked_last(l, w, layer->bits);
    z = z ? unpacked_last(l, z, layer->bits) : NULL;
    if (!in_blocks) {
        s = unsqueeze(l, s, &last, 1);
        z = z ? unsqueeze(l, z, &last, 1) : NULL;
    }
    if (z && s) z = slice(l, z, (const Dim *[]){size_const(l, 0), size_const(l, 0), size_const(l, 0)}, s->dims, NULL);
    return dequantized_blocks(l, w, s, z, 1 << (layer->bits - 1), 2, block);
}

/* x through the layer: [T, 1 or k, depth] by the expert of each row, to [T, k, columns]; or, where chosen is NULL, [1 or E, T, depth] by
 * all experts, to [E, T, columns]. */
static Value *through(Lowering *l, const Node *n, const Layer *layer, Value *x, Value *chosen) {
    Value *w = in(l, n, layer->weights), *bias = optional_in(l, n, layer->bias), *narrow = NULL;
    WeightBlocks blocks;
    if (!present(l, (Value *[]){w, x}, 2)) return NULL;
    if (w->rank != 3) return invalid(l, "input %d has %d axes where 3 are needed", layer->weights, w->rank), NULL;
    if (layer->bits) {
        int64_t bytes, block = attr_int(n, "block_size", -1);
        bool in_blocks = block > 0;
        if (w->dtype != DT_U8 || !dim_is_const(w->dims[2], &bytes))
            return unsupported(l, "weights that are no bytes, or whose size a run says"), NULL;
        int64_t depth = bytes * 8 / layer->bits;
        if (!in_blocks) block = depth;
        if (block < 1 || depth % block) return invalid(l, "%lld is no multiple of block_size", (long long)depth), NULL;
        narrow = narrow_weights(l, n, layer, block, &blocks);
        w = narrow || l->error ? narrow : widened_weights(l, n, layer, block, in_blocks);
    }
    if (!narrow && w) w = widen(l, w);
    if (bias) bias = widen(l, bias);
    if (chosen) return grouped_matmul(l, x, w, chosen, bias, narrow ? &blocks : NULL);
    Value *y = matmul(l, x, swap_last(l, w));
    int middle = 1;
    return bias ? add(l, y, unsqueeze(l, bias, &middle, 1)) : y;
}

enum { MOST_CHOSEN = 64 };

/* The k experts that are rated highest, the best one first. */
typedef struct Choice {
    int64_t k;
    Value *rates;                /* f32 [T, E] */
    Value *numbers[MOST_CHOSEN]; /* i64 [T, 1] */
    Value *hot[MOST_CHOSEN];     /* bool [T, E] */
    Value *left[MOST_CHOSEN];    /* rates, but -inf of those chosen before */
} Choice;

static Status choose(Lowering *l, const Node *n, Choice *c) {
    Value *rates = in(l, n, 1);
    int64_t k = attr_int(n, "k", 1), experts;
    if (!present(l, &rates, 1)) return l->error;
    if (rates->rank != 2) return invalid(l, "router_probs is no matrix");
    if (!dim_is_const(rates->dims[1], &experts)) experts = MOST_CHOSEN;
    if (k < 1 || k > experts || k > MOST_CHOSEN)
        return invalid(l, "k = %lld of %lld experts", (long long)k, (long long)experts);
    rates = widen(l, rates);
    Value *numbers = iota(l, rates->dims, 2, 1, DT_I64), *least = like(l, rates, -INFINITY), *left = rates;
    *c = (Choice){.k = k, .rates = rates};
    for (int64_t i = 0; i < k; i++) {
        c->left[i] = left;
        c->numbers[i] = arg_reduce(l, PRIM_ARGMAX, left, 1, true, false);
        c->hot[i] = binary(l, PRIM_EQ, numbers, c->numbers[i]);
        left = where(l, c->hot[i], least, left);
    }
    return l->error;
}

/* Weights [T, E] of those chosen, 0 for the others. normal: they add up to 1. */
static Value *shares_of_all(Lowering *l, const Choice *c, bool normal) {
    Value *chosen = c->hot[0];
    for (int64_t i = 1; i < c->k; i++) chosen = binary(l, PRIM_OR, chosen, c->hot[i]);
    if (normal) return softmax(l, where(l, chosen, c->rates, like(l, c->rates, -INFINITY)), 1);
    Value *all = softmax(l, c->rates, 1);
    return where(l, chosen, all, all ? like(l, all, 0) : NULL);
}

/* Weights [T, k] of those chosen alone. Where fewer than k experts are rated above -inf one is chosen twice, and its second rate, which
 * is -inf, weighs nothing. */
static Value *shares_of_chosen(Lowering *l, const Choice *c, bool normal) {
    Value *rates[MOST_CHOSEN];
    int last = 1;
    for (int64_t i = 0; i < c->k; i++) rates[i] = reduce(l, PRIM_REDUCE_MAX, c->left[i], &last, 1, true);
    Value *chosen = concat(l, rates, (int)c->k, 1);
    if (normal) return softmax(l, chosen, 1);
    Value *all = unary(l, PRIM_EXP, sub(l, c->rates, rates[0])), *own = unary(l, PRIM_EXP, sub(l, chosen, rates[0]));
    return divide(l, own, reduce(l, PRIM_REDUCE_SUM, all, &last, 1, true));
}

/* Of gate and what it gates (NULL: nothing), as the operator's documentation has it. */
static Value *activated(Lowering *l, const Node *n, const char *kind, Value *gate, Value *up) {
    if (!gate) return NULL;
    if (strcmp(kind, "swiglu") == 0) {
        float limit = attr_float(n, "swiglu_limit", INFINITY), alpha = attr_float(n, "activation_alpha", 1);
        float beta = attr_float(n, "activation_beta", 0);
        if (isfinite(limit)) {
            gate = minimum(l, gate, like(l, gate, (double)limit));
            up = clip(l, up, up ? like(l, up, -(double)limit) : NULL, up ? like(l, up, (double)limit) : NULL);
        }
        Value *steep = alpha == 1 ? gate : mul(l, gate, like(l, gate, (double)alpha));
        if (beta != 0) up = up ? add(l, up, like(l, up, (double)beta)) : NULL;
        return mul(l, mul(l, gate, unary(l, PRIM_SIGMOID, steep)), up);
    }
    Value *y = gate;
    if (strcmp(kind, "relu") == 0)
        y = maximum(l, gate, like(l, gate, 0));
    else if (strcmp(kind, "gelu") == 0)
        y = gelu(l, gate, true);
    else if (strcmp(kind, "silu") == 0)
        y = mul(l, gate, unary(l, PRIM_SIGMOID, gate));
    else if (strcmp(kind, "identity") != 0)
        return unsupported(l, "activation_type \"%s\"", kind), NULL;
    return up ? mul(l, y, up) : y;
}

/* Every second column, or a half of them: gates first. */
static Value *fused_part(Lowering *l, Value *h, bool interleaved, int part) {
    int64_t columns;
    if (!present(l, &h, 1)) return NULL;
    if (dim_is_const(h->dims[2], &columns) && columns % 2)
        return invalid(l, "an odd number of gates and what they gate"), NULL;
    const Dim *half = dim_div(l->dims, h->dims[2], size_const(l, 2)), *none = size_const(l, 0);
    const Dim *start[] = {none, none, interleaved ? size_const(l, part) : size_mul(l, half, size_const(l, part))};
    return slice(l, h, start, (const Dim *[]){h->dims[0], h->dims[1], half}, (int64_t[]){1, 1, interleaved ? 2 : 1});
}

static Status mix(Lowering *l, const Node *n, const Layer layers[3], bool normal) {
    const char *kind = attr_string(n, "activation_type", "relu");
    int64_t fusion = attr_int(n, "swiglu_fusion", 0);
    bool sparse = is_sparse(l);
    Choice choice;
    TRY(choose(l, n, &choice));
    Value *x = in(l, n, 0), *third = optional_in(l, n, layers[2].weights), *chosen = NULL, *shares;
    if (sparse) chosen = concat(l, choice.numbers, (int)choice.k, 1);
    shares = sparse ? shares_of_chosen(l, &choice, normal) : shares_of_all(l, &choice, normal);
    if (!present(l, (Value *[]){x, shares}, 2)) return l->error;
    if (x->rank != 2 && x->rank != 3) return invalid(l, "the input has %d axes", x->rank);
    Value *rows = widen(l, x->rank == 3 ? flatten_to(l, x, 0, 2) : x);
    int each = sparse ? 1 : 0, last = 2; /* the axis of a row's experts */
    rows = rows ? unsqueeze(l, rows, &each, 1) : NULL;
    for (int i = 0; i < 3; i++) {
        Value *w = optional_in(l, n, layers[i].weights);
        if (w && w->rank > 0 && !sizes_agree(w->dims[0], choice.rates->dims[1]))
            return invalid(l, "the router rates another number of experts than there are");
    }
    Value *gate = through(l, n, &layers[0], rows, chosen), *up = third ? through(l, n, &layers[2], rows, chosen) : NULL;
    if (l->error) return l->error;
    if (strcmp(kind, "swiglu") == 0 && !third) {
        if (fusion != 1 && fusion != 2)
            return invalid(l, "swiglu without a third layer and with swiglu_fusion %lld", (long long)fusion);
        up = fused_part(l, gate, fusion == 1, 1);
        gate = fused_part(l, gate, fusion == 1, 0);
    }
    Value *y = through(l, n, &layers[1], activated(l, n, kind, gate, up), chosen);
    if (!sparse) shares = permute(l, shares, (int[]){1, 0});
    y = reduce(l, PRIM_REDUCE_SUM, mul(l, y, unsqueeze(l, shares, &last, 1)), &each, 1, false);
    if (y) y = reshape(l, y, x->dims, x->rank);
    return out(l, n, 0, cast_like(l, y, x));
}

static Status lower_experts(Lowering *l, const Node *n) {
    static const Layer layers[3] = {{2, -1, 3, -1, 0}, {4, -1, 5, -1, 0}, {6, -1, 7, -1, 0}};
    static const Unfollowed unfollowed[] = {{"use_sparse_mixer"}, {"swiglu_limit_after_activation"}, {0}};
    if (!follows_all(l, n, unfollowed, 8)) return l->error;
    return mix(l, n, layers, attr_int(n, "normalize_routing_weights", 0));
}

static Status lower_narrow_experts(Lowering *l, const Node *n) {
    Layer layers[3] = {{2, 3, 4, 11, 0}, {5, 6, 7, 12, 0}, {8, 9, 10, 13, 0}};
    static const char *const widths[] = {"fc1_expert_weight_bits", "fc2_expert_weight_bits", "fc3_expert_weight_bits"};
    static const Unfollowed unfollowed[] = {
        {"use_sparse_mixer"}, {"swiglu_limit_after_activation"}, {"quant_type", "int"}, {0}};
    if (!follows_all(l, n, unfollowed, 14)) return l->error;
    if (attr_int(n, "weights_prepacked", -1) > 0) return unsupported(l, "weights packed for another library");
    for (int i = 0; i < 3; i++) {
        int64_t bits = attr_int(n, widths[i], attr_int(n, "expert_weight_bits", 4));
        if (bits != 2 && bits != 4 && bits != 8) return unsupported(l, "%lld bits", (long long)bits);
        layers[i].bits = (int)bits;
    }
    return mix(l, n, layers, true); /* as ONNX Runtime's on CPUs, whatever normalize_routing_weights says */
}

const OpRow ops_experts[] = {
    {"com.microsoft", "MoE", 1, 0, lower_experts, NULL, 0},
    {"com.microsoft", "QMoE", 1, 0, lower_narrow_experts, NULL, 0},
    {0},
};
