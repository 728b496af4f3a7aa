/* SPDX-License-Identifier: Apache-2.0 */
/* Attention as the formula of the standard: products, masks and softmax of 4 axes [batch, heads, sequence, size]. */
#include "optimize/convert.h"

#include <math.h>

enum { FORM = 13 };

typedef struct Attention {
    Convert *c;
    Node *node;
    DType dtype;
    Value *q, *k, *v; /* of 4 axes */
    int64_t q_heads, kv_heads, size;
    Value *past; /* number of keys before the first query's own, a vector of one; NULL: none */
} Attention;

static Value *op(Attention *a, const char *name, Value *x, Value *y) {
    return convert_add(a->c, a->node, name, FORM, x, y, NULL);
}

static Value *number(Attention *a, DType dtype, double value) {
    return convert_number_value(a->c, a->node, dtype, value);
}

/* --- heads --- */

/* [batch, sequence, heads * size] -> [batch, heads, sequence, size] */
static Value *split_heads(Attention *a, Value *x, int64_t heads) {
    static const int64_t perm[] = {0, 2, 1, 3};
    const int64_t shape[] = {0, 0, heads, -1};
    if (convert_rank(a->c, x) == 4) return x;
    return convert_transpose(a->c, a->node, convert_reshape(a->c, a->node, x, shape, 4), perm, 4);
}

static Value *join_past(Attention *a, Value *past, Value *x) {
    if (!past) return x;
    Value *joined = op(a, "Concat", past, x);
    node_set_int(joined->producer, "axis", 2);
    return joined;
}

/* Keys and values of a head that several query heads share, once for each of these. */
static Value *repeat_heads(Attention *a, Value *x) {
    if (a->q_heads == a->kv_heads) return x;
    const int64_t times[] = {1, 1, a->q_heads / a->kv_heads, 1, 1};
    Convert *c = a->c;
    Value *wide = convert_typed(c, op(a, "Unsqueeze", x, convert_int_value(c, a->node, 2)), a->dtype, 5);
    wide = convert_typed(c, op(a, "Expand", wide, convert_ints_value(c, a->node, times, 5)), a->dtype, 5);
    /* [batch, kv, group, sequence, size] -> [batch, kv * group, sequence, size] */
    Value *shape = convert_typed(c, op(a, "Shape", x, NULL), DT_I64, 1);
    Value *tail = convert_add(c, a->node, "Slice", FORM, shape, convert_int_value(c, a->node, 2),
                              convert_int_value(c, a->node, 4));
    const int64_t head[] = {0, a->q_heads};
    Value *target = op(a, "Concat", convert_ints_value(c, a->node, head, 2), tail);
    node_set_int(target->producer, "axis", 0);
    return convert_typed(c, op(a, "Reshape", wide, convert_typed(c, target, DT_I64, 1)), a->dtype, 4);
}

/* --- scores --- */

static Value *length(Attention *a, Value *x) {
    Convert *c = a->c;
    Value *shape = convert_typed(c, op(a, "Shape", x, NULL), DT_I64, 1);
    return convert_add(c, a->node, "Slice", FORM, shape, convert_int_value(c, a->node, 2),
                       convert_int_value(c, a->node, 3));
}

/* 0, 1, ... up to a length, a vector. */
static Value *positions(Attention *a, Value *count) {
    Convert *c = a->c;
    Value *end = convert_typed(c, op(a, "Squeeze", count, convert_int_value(c, a->node, 0)), DT_I64, 0);
    Value *made = convert_add(c, a->node, "Range", 11, number(a, DT_I64, 0), end, number(a, DT_I64, 1));
    return convert_typed(c, made, DT_I64, 1);
}

/* Query i sees key j <= i + past. */
static Value *causal(Attention *a, Value *scores) {
    Convert *c = a->c;
    Value *rows = positions(a, length(a, a->q)), *columns = positions(a, length(a, a->k));
    if (a->past) rows = op(a, "Add", rows, a->past);
    rows = convert_typed(c, op(a, "Unsqueeze", rows, convert_int_value(c, a->node, 1)), DT_I64, 2);
    Value *hidden = convert_typed(c, op(a, "Greater", columns, rows), DT_BOOL, 2);
    DType dtype = convert_type(c, scores).dtype;
    Value *made = convert_add(c, a->node, "Where", 9, hidden, number(a, dtype, -INFINITY), scores);
    return convert_typed(c, made, dtype, 4);
}

static Value *masked(Attention *a, Value *scores, Value *mask) {
    Convert *c = a->c;
    DType dtype = convert_type(c, scores).dtype;
    if (!mask) return scores;
    if (convert_type(c, mask).dtype != DT_BOOL) return op(a, "Add", scores, convert_cast(c, a->node, mask, dtype));
    Value *made = convert_add(c, a->node, "Where", 9, mask, scores, number(a, dtype, -INFINITY));
    return convert_typed(c, made, dtype, 4);
}

/* A row of which nothing is to be seen gives zeros. */
static Value *softmax(Attention *a, Value *scores, bool may_be_empty) {
    static const int64_t last = 3;
    Convert *c = a->c;
    DType dtype = convert_type(c, scores).dtype;
    Value *soft = op(a, "Softmax", scores, NULL);
    node_set_int(soft->producer, "axis", 3);
    if (!may_be_empty) return soft;
    Value *top = convert_reduce(c, a->node, "ReduceMax", scores, &last, 1, true);
    Value *empty = convert_typed(c, op(a, "Equal", top, number(a, dtype, -INFINITY)), DT_BOOL, 4);
    Value *made = convert_add(c, a->node, "Where", 9, empty, number(a, dtype, 0), soft);
    return convert_typed(c, made, dtype, 4);
}

static Value *capped(Attention *a, Value *scores) {
    double cap = attr_float(a->node, "softcap", 0);
    if (cap <= 0) return scores;
    Value *limit = number(a, convert_type(a->c, scores).dtype, cap);
    return op(a, "Mul", op(a, "Tanh", op(a, "Div", scores, limit), NULL), limit);
}

/* scale Q K^T, half of the scale on either side, so that narrow types stay in range. */
static Value *product(Attention *a) {
    static const int64_t perm[] = {0, 1, 3, 2};
    double scale = attr_float(a->node, "scale", 0);
    Value *root = number(a, a->dtype, sqrt(scale != 0 ? scale : 1 / sqrt((double)a->size)));
    Value *keys = convert_transpose(a->c, a->node, repeat_heads(a, a->k), perm, 4);
    return op(a, "MatMul", op(a, "Mul", a->q, root), op(a, "Mul", keys, root));
}

static const char *read(Attention *a) {
    Convert *c = a->c;
    Node *n = a->node;
    Value *q = node_in(n, 0), *k = node_in(n, 1);
    int rank = convert_rank(c, q);
    a->dtype = convert_type(c, q).dtype;
    a->q_heads = attr_int(n, "q_num_heads", 0);
    a->kv_heads = attr_int(n, "kv_num_heads", 0);
    if (a->dtype == DT_NONE || (rank != 3 && rank != 4)) return "the type of its input is not known";
    if (rank != convert_rank(c, k) || rank != convert_rank(c, node_in(n, 2))) return "its inputs differ in rank";
    if (attr_float(n, "scale", 0) < 0) return "its scale is negative";
    if (!convert_size(c, q, rank - 1, &a->size)) return "the size of its heads is not known";
    if (rank == 4 && (!convert_size(c, q, 1, &a->q_heads) || !convert_size(c, k, 1, &a->kv_heads)))
        return "its numbers of heads are not known";
    if (a->q_heads < 1 || a->kv_heads < 1 || a->q_heads % a->kv_heads) return "its numbers of heads do not fit";
    if (rank == 3) a->size /= a->q_heads;
    return NULL;
}

/* A mask may be shorter than the keys; then what it leaves out is hidden. */
static bool mask_is_whole(const Convert *c, const Node *n) {
    const Value *mask = node_in(n, 3);
    int64_t width, keys, before = 0;
    int rank = convert_rank(c, mask), kept = convert_rank(c, node_in(n, 1));
    if (!mask) return true;
    if (rank < 1 || kept < 2) return false;
    if (!convert_size(c, mask, rank - 1, &width)) return true; /* sizes of models that change: of all keys */
    if (!convert_size(c, node_in(n, 1), kept - 2, &keys)) return true;
    if (node_in(n, 4) && !convert_size(c, node_in(n, 4), 2, &before)) return true;
    return width == keys + before || width == 1;
}

/* Narrow types are computed in 32 bits, so that nothing is rounded on the way. */
static void widen(Attention *a) {
    Value **all[] = {&a->q, &a->k, &a->v};
    for (int i = 0; i < 3; i++) *all[i] = convert_cast(a->c, a->node, *all[i], DT_F32);
    a->dtype = DT_F32;
}

static const char *attention(Convert *c, Node *n) {
    static const int64_t perm[] = {0, 2, 1, 3}, flat[] = {0, 0, -1};
    Attention a = {.c = c, .node = n};
    const char *reason = read(&a);
    DType inside = attr_dtype(n, "softmax_precision", DT_NONE);
    Value *past_k = node_in(n, 4), *past_v = node_in(n, 5);
    bool is_flat = convert_rank(c, node_in(n, 0)) == 3;
    int64_t mode = attr_int(n, "qk_matmul_output_mode", 0);
    if (reason) return reason;
    if (!mask_is_whole(c, n)) return "its mask is shorter than its keys";
    a.q = split_heads(&a, node_in(n, 0), a.q_heads);
    a.k = join_past(&a, past_k, split_heads(&a, node_in(n, 1), a.kv_heads));
    a.v = join_past(&a, past_v, split_heads(&a, node_in(n, 2), a.kv_heads));
    if (past_k) a.past = length(&a, past_k);
    Value *present_k = a.k, *present_v = a.v;
    DType dtype = a.dtype;
    if (dtype_size(dtype) < 4) widen(&a);
    bool is_causal = attr_int(n, "is_causal", 0) != 0;
    Value *steps[4]; /* [qk_matmul_output_mode] */
    steps[0] = product(&a);
    steps[1] = capped(&a, steps[0]);
    steps[2] = masked(&a, steps[1], node_in(n, 3));
    if (is_causal) steps[2] = causal(&a, steps[2]);
    Value *scores = inside == DT_NONE ? steps[2] : convert_cast(c, n, steps[2], inside);
    steps[3] = convert_cast(c, n, softmax(&a, scores, node_in(n, 3) || is_causal), a.dtype);
    Value *y = convert_cast(c, n, op(&a, "MatMul", steps[3], repeat_heads(&a, a.v)), dtype);
    convert_give(c, n, 1, present_k);
    convert_give(c, n, 2, present_v);
    if (mode >= 0 && mode < 4) convert_give(c, n, 3, convert_cast(c, n, steps[mode], dtype));
    n->output_count = 1;
    if (is_flat) {
        convert_become(n, "Reshape", FORM, convert_transpose(c, n, y, perm, 4), convert_ints_value(c, n, flat, 3),
                       NULL);
        return NULL;
    }
    convert_become(n, "Identity", FORM, y, NULL, NULL);
    return NULL;
}

/* Without lengths of its own the cache is as before. */
static const char *no_lengths(Convert *c, Node *n) {
    (void)c;
    return node_in(n, 6) ? "it has numbers of keys, which older versions have not" : NULL;
}

const ConvertRule convert_attention[] = {
    {"Attention", 24, NULL, no_lengths},
    {"Attention", 23, NULL, attention},
    {0},
};
