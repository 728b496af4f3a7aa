/* SPDX-License-Identifier: Apache-2.0 */
#include "random_attention.h"

#include <math.h>

#include "lowering/build.h"
#include "passes/passes.h"
#include "random_graph.h"
#include "rounding.h"

static _Thread_local uint64_t state;
static _Thread_local const unsigned char *choices;
static _Thread_local size_t choice_count;

static int below(int count) {
    if (choice_count) return choice_count--, *choices++ % count;
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (int)((state >> 33) % (uint64_t)count);
}

static bool chance(int percent) { return below(100) < percent; }
static double number(void) { return (double)below(1 << 20) * 0x1p-19 - 1; }

typedef struct Setup {
    Lowering l;
    DType dtype;
    const Dim *batch, *heads, *kv_heads, *queries, *keys, *size, *width;
    int64_t symbols[3];
    bool
        biased; /* a causal bias is the only mask: in float16 two of them overflow, and a row that sees nothing loses its scores */
    bool joined;   /* queries, keys and values are parts of one product */
    bool capped;   /* once: a cap takes three of the attention's steps (ATTENTION_STEPS) */
    Value *scores; /* after their steps */
} Setup;

enum { SEQUENCE, PAST, BATCH }; /* symbols */

static const Dim *one(Setup *s) { return dim_const(s->l.dims, 1); }

static Value *input(Setup *s, DType dtype, int rank, const Dim *const *dims) {
    return graph_add_input(s->l.graph, NULL, dtype, rank, dims);
}

/* [batch, heads, rows, size], stored as it is or with the heads behind the rows. */
static Value *operand(Setup *s, const Dim *heads, const Dim *rows, const Dim *size) {
    if (chance(50)) return input(s, s->dtype, 4, (const Dim *const[]){s->batch, heads, rows, size});
    Value *x = input(s, s->dtype, 4, (const Dim *const[]){s->batch, rows, heads, size});
    return permute(&s->l, x, (const int[]){0, 2, 1, 3});
}

/* Each head for all queries of its group. */
static Value *repeated(Setup *s, Value *x, const Dim *size) {
    const Dim *group;
    if (s->heads == s->kv_heads) return x;
    dim_divides(s->l.dims, s->heads, s->kv_heads, &group);
    const Dim *apart[] = {s->batch, s->kv_heads, one(s), s->keys, size},
              *copies[] = {s->batch, s->kv_heads, group, s->keys, size},
              *joined[] = {s->batch, s->heads, s->keys, size};
    return reshape(&s->l, expand(&s->l, reshape(&s->l, x, apart, 5), copies, 5), joined, 4);
}

static Value *mask_input(Setup *s, DType dtype) {
    const Dim *forms[][4] = {{s->batch, s->heads, s->queries, s->keys},
                             {s->batch, one(s), one(s), s->keys},
                             {one(s), one(s), s->queries, s->keys},
                             {s->batch, s->heads, s->queries, one(s)}};
    int form = below(4), drop = form == 2 ? 2 : 0;
    return input(s, dtype, 4 - drop, forms[form] + drop);
}

/* sees_itself: each query the key at its place, so that no row is empty. */
static Value *causal_mask(Setup *s, bool sees_itself) {
    Lowering *l = &s->l;
    Value *rows = iota(l, (const Dim *const[]){s->queries, one(s)}, 2, 0, DT_I64);
    Value *keys = iota(l, (const Dim *const[]){s->keys}, 1, 0, DT_I64);
    if (chance(50)) rows = add(l, rows, dim_scalar(l, dim_sub(l->dims, s->keys, s->queries)));
    return chance(50) ? binary(l, PRIM_LE, keys, rows)
                      : unary(l, PRIM_NOT, binary(l, sees_itself || chance(50) ? PRIM_LT : PRIM_LE, rows, keys));
}

/* Added where keys are hidden: the type's lowest number as exporters write it, or minus infinity. */
static Value *causal_bias(Setup *s, const Value *x) {
    Lowering *l = &s->l;
    double lowest = x->dtype == DT_F16 ? -65504 : -3.3e38;
    return where(l, causal_mask(s, true), like(l, x, 0), like(l, x, chance(70) ? lowest : -(double)INFINITY));
}

static Value *with_step(Setup *s, Value *x) {
    Lowering *l = &s->l;
    double hidden = chance(50) ? -1e9 : -(double)INFINITY;
    int kind = s->biased ? 5 + below(2) : below(7);
    if (kind == 5 && s->capped) kind = 6;
    switch (kind) {
    case 0: return add(l, x, cast_like(l, mask_input(s, s->dtype), x));
    case 1: return add(l, mask_input(s, x->dtype), x);
    case 2: return where(l, mask_input(s, DT_BOOL), x, like(l, x, hidden));
    case 3: return where(l, mask_input(s, DT_BOOL), like(l, x, hidden), x);
    case 4: return where(l, causal_mask(s, false), x, like(l, x, hidden));
    case 5: s->capped = true; return mul(l, unary(l, PRIM_TANH, mul(l, x, like(l, x, 0.25))), like(l, x, 4));
    default: return clip(l, x, like(l, x, -2), chance(50) ? like(l, x, 3) : NULL);
    }
}

static Value *guarded_softmax(Lowering *l, Value *x) {
    int axis = 3;
    Value *top = reduce(l, PRIM_REDUCE_MAX, x, &axis, 1, true), *zero = like(l, x, 0);
    Value *safe = where(l, binary(l, PRIM_EQ, top, like(l, x, -(double)INFINITY)), zero, top);
    Value *e = unary(l, PRIM_EXP, sub(l, x, safe)), *sum = reduce(l, PRIM_REDUCE_SUM, e, &axis, 1, true);
    return divide(l, e, where(l, binary(l, PRIM_EQ, sum, zero), like(l, x, 1), sum));
}

static Value *probabilities(Setup *s, Value *x) {
    Lowering *l = &s->l;
    s->scores = x;
    Value *wide = chance(50) ? widen(l, x) : x, *p;
    if (chance(40)) return cast_like(l, guarded_softmax(l, wide), x);
    p = softmax(l, wide, 3);
    if (chance(40)) p = where(l, unary(l, PRIM_ISNAN, p), like(l, p, 0), p);
    return cast_like(l, p, x);
}

/* As a Dropout becomes. */
static Value *with_dropout(Lowering *l, Value *p) {
    if (l->error) return NULL;
    Value *word = random_choices(l, (const Dim *const *)p->dims, p->rank, true, 42), *wide = widen(l, p);
    Value *top = binary(l, PRIM_SHR, word, scalar_int(l, DT_U32, 8));
    Value *keeps = binary(l, PRIM_GE, top, scalar_int(l, DT_U32, 1 << 22));
    return cast_like(l, where(l, keeps, mul(l, wide, like(l, wide, 4.0 / 3)), like(l, wide, 0)), p);
}

/* Queries, keys and values as parts of one product. */
static void parts_of_product(Setup *s, Value *out[3]) {
    Lowering *l = &s->l;
    enum { DEPTH = 3 };
    int64_t heads, size;
    dim_is_const(s->heads, &heads);
    dim_is_const(s->size, &size);
    int64_t width = heads * size;
    Tensor *w = tensor_new(l->arena, s->dtype, 2, (const int64_t[]){DEPTH, 3 * width});
    for (int64_t i = 0; i < tensor_count(w); i++) dtype_store_double(s->dtype, w->data, i, number());
    Value *x = input(s, s->dtype, 3, (const Dim *const[]){s->batch, s->queries, dim_const(l->dims, DEPTH)});
    x = matmul(l, x, constant(l, w));
    const Dim *apart[] = {s->batch, s->queries, dim_const(l->dims, 3), s->heads, s->size},
              *own[] = {s->batch, s->queries, s->heads, s->size};
    bool early = chance(50), turned = chance(50);
    for (int i = 0; i < 3; i++) {
        int64_t count = early ? 1 : width;
        Value *part = early ? reshape(l, x, apart, 5) : x;
        part = slice_axis(l, part, 2, dim_const(l->dims, i * count), dim_const(l->dims, count));
        if (early && turned)
            out[i] = squeeze(l, permute(l, part, (const int[]){2, 0, 3, 1, 4}), (const int[]){0}, 1);
        else
            out[i] = permute(l, reshape(l, part, own, 4), (const int[]){0, 2, 1, 3});
    }
}

static void build(Setup *s, uint64_t seed) {
    static const DType dtypes[] = {DT_F32, DT_F32, DT_F16, DT_BF16};
    Graph *graph = graph_create(0);
    DimTable *dims = graph->dims;
    state = seed * 0x9e3779b97f4a7c15u;
    *s = (Setup){.l = {.graph = graph, .arena = graph->arena, .dims = dims}, .dtype = dtypes[below(4)]};
    const Dim *sequence = dim_symbol(dims, "s"), *past = dim_symbol(dims, "p"), *batch = dim_symbol(dims, "b");
    int kv = 1 + below(3);
    for (int i = 0; i < 3; i++) s->symbols[i] = 1 + below(6);
    s->batch = chance(50) ? batch : dim_const(dims, 2);
    s->kv_heads = dim_const(dims, kv);
    s->heads = dim_const(dims, kv * (1 + below(3)));
    s->queries = chance(70) ? sequence : dim_const(dims, 5);
    s->keys = chance(50) ? dim_add(dims, past, s->queries) : s->queries;
    s->size = dim_const(dims, 1 + below(9));
    s->width = dim_const(dims, 1 + below(9));
    Lowering *l = &s->l;
    Value *operands[3];
    s->joined = s->heads == s->kv_heads && chance(50);
    if (s->joined) {
        s->keys = s->queries;
        s->width = s->size;
        parts_of_product(s, operands);
    } else {
        operands[0] = operand(s, s->heads, s->queries, s->size);
        operands[1] = operand(s, s->kv_heads, s->keys, s->size);
        operands[2] = operand(s, s->kv_heads, s->keys, s->width);
    }
    Value *q = operands[0], *k = operands[1], *v = operands[2];
    bool rows = s->heads != s->kv_heads && chance(40); /* the queries of a key head as rows of one matrix */
    const Dim *scores[] = {s->batch, s->heads, s->queries, s->keys};
    if (rows) {
        const Dim *per = NULL;
        dim_divides(dims, s->heads, s->kv_heads, &per);
        const Dim *folded[] = {s->batch, s->kv_heads, dim_mul(dims, per, s->queries), s->size};
        q = reshape(l, q, folded, 4);
    } else {
        k = repeated(s, k, s->size);
        v = repeated(s, v, s->width);
    }
    if (chance(30)) q = mul(l, q, like(l, q, 0.5));
    Value *x = matmul(l, q, swap_last(l, k));
    if (rows) x = reshape(l, x, scores, 4);
    if (chance(60)) x = chance(50) ? mul(l, x, like(l, x, 0.5)) : divide(l, x, like(l, x, 2));
    s->biased = chance(25);
    bool drops = chance(25); /* which is a step, too */
    for (int steps = below(drops || s->biased ? 3 : 4); steps > 0; steps--) x = with_step(s, x);
    if (s->biased) x = add(l, x, causal_bias(s, x));
    Value *p = probabilities(s, x);
    if (drops) p = with_dropout(l, p);
    const Dim *product[] = {s->batch, s->kv_heads, dim_div(dims, dim_mul(dims, s->heads, s->queries), s->kv_heads),
                            s->keys};
    const Dim *whole[] = {s->batch, s->heads, s->queries, s->width};
    Value *y = matmul(l, rows ? reshape(l, p, product, 4) : p, v);
    if (rows) y = reshape(l, y, whole, 4);
    if (chance(50)) y = permute(l, y, (const int[]){0, 2, 1, 3});
    if (y) graph_add_output(graph, y);
}

static Tensor *random_input(const Setup *s, const Value *v, const int64_t *symbols, Arena *arena) {
    int64_t sizes[MAX_RANK];
    (void)s;
    for (int i = 0; i < v->rank; i++) sizes[i] = dim_eval(v->dims[i], symbols);
    Tensor *t = tensor_new(arena, v->dtype, v->rank, sizes);
    for (int64_t i = 0; i < tensor_count(t); i++) {
        if (v->dtype == DT_BOOL)
            ((uint8_t *)t->data)[i] = chance(60);
        else
            dtype_store_double(v->dtype, t->data, i, number());
    }
    return t;
}

static int anchors(const Graph *graph, const char *op) {
    int count = 0;
    FOR_EACH_NODE(node, graph) count += node->kind == NODE_ANCHOR && strcmp(node->op, op) == 0;
    return count;
}

/* The greatest magnitude of a score that counts: a rounding of it is one of what e^score is multiplied by. */
static Status largest_score(Graph *graph, Value *scores, Tensor *const *inputs, const int64_t *symbols, Arena *arena,
                            double *out_largest) {
    Value *result = graph->outputs.items[0];
    Tensor *t;
    *out_largest = 0;
    graph->outputs.items[0] = scores;
    Status status = evaluate_graph(graph, inputs, symbols, arena, &t);
    graph->outputs.items[0] = result;
    for (int64_t i = 0; !status && i < tensor_count(t); i++) {
        double x = fabs(dtype_load_double(t->dtype, t->data, i));
        if (x > *out_largest && x < 1e6) *out_largest = x; /* beyond, it hides */
    }
    return status;
}

const char *check_random_attention(uint64_t seed, const unsigned char *first_choices, size_t count, Arena *arena) {
    Setup s;
    choices = first_choices;
    choice_count = count;
    build(&s, seed);
    Graph *graph = s.l.graph;
    Policy policy = policy_default();
    policy.target.anchors.attention = policy.target.anchors.attention_drop = true;
    int64_t *symbols = ARENA_ARRAY(arena, int64_t, dim_symbol_count(graph->dims) + 1);
    for (int i = 0; i < dim_symbol_count(graph->dims); i++) symbols[i] = s.symbols[i % 3];
    Tensor **inputs = ARENA_ARRAY(arena, Tensor *, graph->inputs.count + 1), *before, *after;
    for (int i = 0; i < graph->inputs.count; i++) inputs[i] = random_input(&s, graph->inputs.items[i], symbols, arena);
    const Pass passes[] = {{"layout", layout}, {"simplify", simplify}, {"merge_common", merge_common}};
    const char *was = "", *wrong = NULL;
    Status status = s.l.error;
    double largest = 0;
    if (!status) status = evaluate_graph(graph, inputs, symbols, arena, &before);
    if (!status) status = largest_score(graph, s.scores, inputs, symbols, arena, &largest);
    for (size_t i = 0; i < 3 && !status; i++) status = passes[i].run(graph, &policy);
    if (!status) was = graph_text(graph, arena);
    if (!status) status = fuse_attention(graph, &policy);
    if (!status) status = graph_verify(graph, LEVEL_PRIM);
    if (!status) status = evaluate_graph(graph, inputs, symbols, arena, &after);
    double tolerance = (s.dtype == DT_F32 ? 32 + 2 * largest : 8) * rounding_unit(s.dtype);
    if (status)
        wrong = status_message(status);
    else if (anchors(graph, "attention") != 1 || anchors(graph, "matmul") != s.joined)
        wrong = "is not fused";
    else
        wrong = tensor_difference(before, after, tolerance, arena);
    if (wrong) wrong = arena_format(arena, "%s\n%s\nbecame\n%s", wrong, was, graph_text(graph, arena));
    graph_destroy(graph);
    return wrong;
}
