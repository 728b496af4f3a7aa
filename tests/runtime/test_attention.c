/* SPDX-License-Identifier: Apache-2.0 */
/* The anchor "attention" on the CPU against the plain evaluator: sizes around those of blocks and vectors, all masks,
 * types and layouts, rows that see nothing, numbers that are none; and the same bits on any number of threads. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../base/share.h"
#include "attention_cases.h"
#include "lowering/anchor/anchor_eval.h"
#include "runtime/device/cpu/anchor.h"

static const int thread_counts[] = {1, 2, 16};
enum { POOLS = sizeof thread_counts / sizeof *thread_counts, GUARD = 256 };
static Pool *pools[POOLS];

static void open_pools(void) {
    for (int i = 0; i < POOLS; i++) cr_assert_null(pool_create(thread_counts[i], &pools[i]));
}

static void close_pools(void) {
    for (int i = 0; i < POOLS; i++) pool_destroy(pools[i]);
}

/* The result between two guards, which nothing may write. */
static Tensor run_on(const AttentionCase *c, const AttentionSetup *s, CpuAnchor *anchor, const Tensor *like,
                     Pool *pool) {
    size_t bytes = tensor_bytes(like);
    unsigned char *memory = arena_alloc(s->arena, bytes + 2 * GUARD);
    memset(memory, 0xa5, bytes + 2 * GUARD);
    Tensor out = *like;
    out.data = memory + GUARD;
    Status status = cpu_anchor_run(anchor, NULL, NULL, (const Tensor *const *)s->inputs, NULL, &out, pool);
    cr_assert(!status, "%s: %s", c->name, status ? status_message(status) : "");
    for (size_t i = 0; i < GUARD; i++)
        cr_assert(memory[i] == 0xa5 && memory[GUARD + bytes + i] == 0xa5, "%s: writes beyond its buffer", c->name);
    return out;
}

/* Inputs in blocks of exactly their size, beyond which an address sanitizer lets nothing be read. */
static void place_inputs(AttentionSetup *s) {
    for (int i = 0; i < s->count; i++) {
        size_t bytes = tensor_bytes(s->inputs[i]);
        void *block = malloc(bytes ? bytes : 1);
        cr_assert(block);
        memcpy(block, s->inputs[i]->data, bytes);
        s->inputs[i]->data = block;
    }
}

static void check(const AttentionCase *c) {
    Arena *arena = arena_create(0);
    AttentionSetup s = attention_case_setup(c, arena);
    Tensor *want;
    CpuAnchor *anchor;
    uint32_t released;
    const Tensor *constants[3 + ATTENTION_STEPS] = {NULL};
    cr_assert_null(graph_verify(s.graph, LEVEL_PRIM));
    cr_assert_null(eval_anchor(s.node, s.inputs, NULL, arena, &want));
    cr_assert_null(cpu_anchor_prepare(s.node, constants, pools[0], NULL, &anchor, &released));
    cr_expect_str_eq(cpu_anchor_how(anchor), "blockwise");
    Tensor first = {0};
    place_inputs(&s);
    for (int i = 0; i < POOLS; i++) {
        Tensor got = run_on(c, &s, anchor, want, pools[i]);
        if (!i) {
            first = got;
            attention_case_compare(c, want, &got);
        }
        cr_assert(!memcmp(first.data, got.data, tensor_bytes(&got)), "%s: %d threads give other bits than one", c->name,
                  thread_counts[i]);
    }
    for (int i = 0; i < s.count; i++) free(s.inputs[i]->data);
    cpu_anchor_destroy(anchor);
    graph_destroy(s.graph);
    arena_destroy(arena);
}

static const AttentionCase cases[] = {
    {"one query, one key", DT_F32, 1, 1, 1, 1, 1, 64, 64, MASK_NONE},
    {"a head of one element", DT_F32, 1, 2, 2, 3, 5, 1, 1, MASK_BIAS},
    {"a head of one element, many queries", DT_F32, 1, 2, 2, 30, 5, 1, 1, MASK_BIAS, .permuted = true},
    {"a head of 7", DT_F32, 2, 3, 3, 33, 47, 7, 7, MASK_BIAS},
    {"a head of 7, few queries", DT_F32, 2, 3, 3, 5, 47, 7, 7, MASK_KEEP},
    {"a head of 80", DT_F32, 1, 2, 2, 64, 100, 80, 80, MASK_HIDE},
    {"parts of heads", DT_F32, 2, 4, 2, 70, 150, 64, 64, MASK_BIAS, .parts = true},
    {"parts of heads between sequence and size", DT_F32, 1, 3, 3, 300, 300, 64, 64, MASK_CAUSAL, .permuted = true,
     .parts = true},
    {"parts of heads, one query", DT_F16, 2, 4, 2, 1, 300, 64, 64, MASK_NONE, .permuted = true, .parts = true},
    {"parts of heads, one head", DT_BF16, 2, 1, 1, 40, 65, 32, 32, MASK_HIDE, .parts = true},
    {"a head of 128", DT_F32, 1, 2, 1, 65, 130, 128, 128, MASK_CAUSAL},
    {"a head of 256", DT_F32, 1, 1, 1, 40, 50, 256, 256, MASK_NONE, .permuted = true},
    {"a head of 300", DT_F32, 1, 2, 2, 20, 400, 300, 300, MASK_BIAS},
    {"a head of 300, one query", DT_F32, 1, 2, 2, 1, 700, 300, 300, MASK_BIAS},
    {"values wider than keys", DT_F32, 1, 2, 2, 20, 64, 96, 192, MASK_CAPPED},
    {"values narrower than keys", DT_F32, 1, 2, 2, 4, 64, 96, 20, MASK_CAPPED},
    {"a block of keys", DT_F32, 1, 1, 1, 64, 384, 16, 16, MASK_HIDING},
    {"a key more than a block", DT_F32, 1, 1, 1, 64, 385, 16, 16, MASK_HIDING, .empty = EMPTY_ZERO},
    {"a key less than a block", DT_F32, 1, 1, 1, 65, 383, 16, 16, MASK_HIDING},
    {"many queries and keys", DT_F32, 2, 3, 3, 150, 800, 32, 32, MASK_BIAS},
    {"heads between sequence and size", DT_F32, 2, 3, 3, 70, 75, 64, 64, MASK_BIAS, .permuted = true},
    {"values in panels", DT_F32, 2, 4, 4, 260, 400, 40, 72, MASK_BIAS, .permuted = true},
    {"values in panels, causal", DT_F32, 1, 4, 2, 300, 500, 64, 128, MASK_CAUSAL, 100, .permuted = true},
    {"values in panels, a window of keys", DT_F32, 1, 8, 8, 300, 900, 32, 36, MASK_WINDOW, 310, .permuted = true},
    {"values in panels, numbers that are none", DT_F32, 1, 4, 4, 256, 385, 24, 64, MASK_BIAS, .permuted = true,
     .poisoned = true},
    {"scores that rise", DT_F32, 2, 3, 3, 70, 800, 32, 32, MASK_RISING},
    {"scores that rise, few queries", DT_F32, 1, 2, 2, 5, 1200, 32, 32, MASK_RISING},
    {"scores that rise, bf16", DT_BF16, 1, 2, 2, 70, 500, 64, 64, MASK_RISING},
    {"elements apart", DT_F32, 2, 2, 2, 70, 395, 40, 64, MASK_BIAS, .apart = true},
    {"odd elements apart", DT_F32, 1, 3, 3, 33, 77, 19, 21, MASK_HIDE, .apart = true},
    {"few queries, elements apart", DT_F32, 1, 2, 2, 3, 77, 20, 24, MASK_NONE, .apart = true},
    {"f16, elements apart", DT_F16, 1, 2, 2, 40, 70, 24, 20, MASK_BIAS, .apart = true},
    {"f16", DT_F16, 2, 2, 2, 65, 64, 64, 64, MASK_BIAS},
    {"f16, few queries", DT_F16, 2, 4, 2, 2, 600, 64, 64, MASK_BIAS},
    {"f16, keys last", DT_F16, 2, 4, 2, 2, 600, 64, 72, MASK_BIAS, .permuted = true},
    {"bf16 with odd sizes", DT_BF16, 1, 2, 1, 33, 47, 20, 36, MASK_KEEP, .permuted = true},
    {"bf16, a key more than a block", DT_BF16, 1, 2, 2, 70, 385, 64, 64, MASK_BIAS},
    {"bf16, heads between sequence and size", DT_BF16, 2, 4, 2, 70, 75, 64, 48, MASK_CAUSAL, .permuted = true},
    {"bf16 of odd heads", DT_BF16, 1, 2, 2, 70, 90, 25, 33, MASK_BIAS},
    {"bf16, one key", DT_BF16, 2, 2, 2, 50, 1, 64, 64, MASK_NONE},
    {"bf16, split keys", DT_BF16, 1, 1, 1, 80, 1501, 20, 20, MASK_KEEP},
    {"bf16, numbers that are none", DT_BF16, 1, 2, 2, 70, 91, 24, 24, MASK_BIAS, .poisoned = true},
    {"causal", DT_F32, 1, 4, 2, 200, 200, 24, 24, MASK_CAUSAL},
    {"causal behind a past", DT_F32, 1, 4, 4, 30, 90, 64, 64, MASK_CAUSAL, 60, .permuted = true},
    {"causal by a finite number", DT_F32, 1, 4, 2, 200, 200, 24, 24, MASK_CAUSAL_ADD},
    {"causal by a number that scores outweigh", DT_F32, 1, 4, 2, 200, 200, 24, 24, MASK_CAUSAL_ADD, .spread = 2e4f},
    {"causal by a finite number, first queries see nothing", DT_F32, 1, 2, 2, 80, 90, 24, 24, MASK_CAUSAL_ADD, -20},
    {"queries that see nothing are NaN", DT_F32, 1, 2, 2, 70, 70, 64, 64, MASK_CAUSAL, -3},
    {"queries that see nothing are zero", DT_F16, 1, 2, 2, 70, 70, 24, 24, MASK_CAUSAL, -3, EMPTY_ZERO},
    {"few queries that see nothing are zero", DT_F32, 1, 2, 2, 5, 70, 24, 24, MASK_CAUSAL, -3, EMPTY_ZERO},
    {"no query sees a key", DT_F32, 1, 4, 2, 100, 70, 64, 64, MASK_CAUSAL, -200, EMPTY_ZERO},
    {"a decoder's step", DT_F32, 2, 8, 2, 1, 700, 64, 64, MASK_NONE},
    {"a decoder's step of 8 heads a key head", DT_F32, 1, 8, 1, 1, 700, 64, 64, MASK_BIAS},
    {"a decoder's step of 9 heads a key head", DT_F32, 1, 9, 1, 1, 700, 64, 64, MASK_BIAS},
    {"a decoder's step with a mask", DT_BF16, 1, 4, 4, 1, 2000, 80, 48, MASK_HIDING, 0, EMPTY_NAN_ZERO},
    {"a decoder's step, split keys, causal", DT_F32, 1, 2, 2, 1, 3000, 64, 64, MASK_CAUSAL, 2000},
    {"a few queries", DT_F16, 1, 2, 1, 7, 1100, 64, 64, MASK_BIAS, .permuted = true},
    {"a causal mask over split keys", DT_F32, 1, 1, 1, 12, 3000, 64, 64, MASK_CAUSAL, 1500},
    {"split keys that nothing sees", DT_F32, 1, 1, 1, 12, 3000, 64, 64, MASK_CAUSAL, -5, EMPTY_ZERO},
    {"a bool over split keys", DT_F32, 1, 1, 1, 80, 1500, 20, 20, MASK_KEEP},
    {"one key", DT_F32, 2, 2, 2, 5, 1, 128, 128, MASK_HIDE, 0, EMPTY_ZERO},
    {"one key, many queries", DT_F32, 2, 2, 2, 50, 1, 128, 128, MASK_HIDE, 0, EMPTY_ZERO, .permuted = true},
    {"no keys", DT_F32, 2, 2, 2, 5, 0, 64, 64, MASK_NONE},
    {"no keys, many queries", DT_F16, 2, 2, 2, 50, 0, 64, 64, MASK_NONE, .permuted = true},
    {"no queries", DT_F32, 2, 2, 2, 0, 5, 64, 64, MASK_NONE},
    {"numbers that are none", DT_F32, 1, 2, 2, 70, 90, 24, 24, MASK_BIAS, .poisoned = true},
    {"numbers that are none, few queries", DT_F32, 2, 4, 4, 4, 90, 24, 24, MASK_BIAS, .poisoned = true},
    {"numbers that are none are zero", DT_F32, 1, 2, 2, 70, 90, 24, 24, MASK_BIAS, 0, EMPTY_NAN_ZERO, .poisoned = true},
    {"numbers that are none, hidden", DT_F32, 1, 2, 2, 70, 90, 24, 24, MASK_CAUSAL, .poisoned = true},
    {"numbers that are none outweigh any other", DT_F32, 1, 2, 2, 70, 90, 24, 24, MASK_CAUSAL_ADD, .poisoned = true},
};

Test(attention, cases, .init = open_pools, .fini = close_pools) {
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) check(&cases[i]);
}

/* What a cache holds where no query of a task sees it is no part of the result: keys and values that are no numbers. */
Test(attention, keys_that_bools_hide_are_not_read, .init = open_pools, .fini = close_pools) {
    static const int64_t sizes[][3] = {{1, 900, 700},   {5, 2000, 1300}, {40, 900, 100},
                                       {100, 700, 500}, {1, 900, 700},   {5, 2000, 1300}};
    for (int i = 0; i < 6; i++) {
        AttentionCase c = {"a window", DT_F32, 1,           2,           2,          sizes[i][0],         sizes[i][1],
                           20,         20,     MASK_WINDOW, sizes[i][2], EMPTY_ZERO, .interleaved = i > 3};
        check(&c);
        Arena *arena = arena_create(0);
        AttentionSetup s = attention_case_setup(&c, arena);
        CpuAnchor *anchor;
        uint32_t released;
        const Tensor *constants[3 + ATTENTION_STEPS] = {NULL};
        Tensor *like = tensor_new(arena, DT_F32, 4, (const int64_t[]){1, 2, c.queries, 20});
        cr_assert_null(cpu_anchor_prepare(s.node, constants, pools[0], NULL, &anchor, &released));
        Tensor whole = run_on(&c, &s, anchor, like, pools[0]);
        for (int64_t at = 0; at < 2 * c.keys; at++) {
            int64_t key = c.interleaved ? at / 2 : at % c.keys;
            if (key >= c.offset && key < c.offset + c.queries + 8) continue;
            for (int64_t e = 0; e < 20; e++)
                for (int t = 1; t < 3; t++) ((float *)s.inputs[t]->data)[at * 20 + e] = NAN;
        }
        Tensor part = run_on(&c, &s, anchor, like, pools[1]);
        cr_expect(!memcmp(whole.data, part.data, tensor_bytes(&whole)), "%d queries read what they do not see",
                  (int)c.queries);
        cpu_anchor_destroy(anchor);
        graph_destroy(s.graph);
        arena_destroy(arena);
    }
}

/* Each mask with each layout and way of cutting: queries as rows and as columns, whole and split keys; of these pairs a share (base/share.h). */
Test(attention, masks, .init = open_pools, .fini = close_pools) {
    static const int64_t sizes[][2] = {{1, 40}, {3, 1200}, {20, 40}, {40, 1200}, {70, 500}};
    static const DType types[] = {DT_F32, DT_F16, DT_BF16};
    for (int mask = 0; mask <= MASK_SINK; mask++)
        for (int i = 0; i < 5; i++)
            for (int form = 0; form < 6; form++) {
                if (!share_pair((unsigned long)form, (unsigned long)(5 * mask + i))) continue;
                char name[80];
                snprintf(name, sizeof name, "mask %d, %d queries, %d keys, form %d", mask, (int)sizes[i][0],
                         (int)sizes[i][1], form);
                AttentionCase c = {name,
                                   types[form / 2],
                                   2,
                                   4,
                                   1 + mask % 2,
                                   sizes[i][0],
                                   sizes[i][1],
                                   20,
                                   36,
                                   (AttentionMask)mask,
                                   (mask + i) % 3 * 7,
                                   (AttentionEmpty)(i % 3),
                                   form % 2};
                if (c.kv_heads == 2 && form % 2) c.kv_heads = 4;
                check(&c);
            }
}

/* Few queries of heads whose keys lie beside each other: tasks of several heads, in blocks of fewer keys; of many heads, of
 * long rows and of many queries some of the heads, or one. */
Test(attention, heads_beside_each_other, .init = open_pools, .fini = close_pools) {
    static const int64_t sizes[][5] = {/* heads, of keys, queries, keys, size */
                                       {16, 4, 1, 1501, 64}, {6, 3, 3, 1200, 20}, {8, 8, 1, 512, 7},
                                       {24, 24, 1, 600, 40}, {4, 2, 4, 700, 300}, {9, 3, 2, 2100, 8},
                                       {6, 3, 20, 600, 20},  {4, 4, 2, 511, 20}};
    static const DType types[] = {DT_F32, DT_F16, DT_BF16};
    for (int mask = 0; mask <= MASK_SINK; mask++)
        for (int i = 0; i < 8; i++) {
            if (!share_pair((unsigned long)i, (unsigned long)mask)) continue;
            char name[80];
            snprintf(name, sizeof name, "mask %d, %d heads beside each other, %d keys of %d", mask, (int)sizes[i][0],
                     (int)sizes[i][3], (int)sizes[i][4]);
            AttentionCase c = {name, types[(mask + i) % 3], 1 + i % 2, sizes[i][0], sizes[i][1], sizes[i][2]};
            c.keys = sizes[i][3];
            c.size = sizes[i][4];
            c.width = i % 3 ? c.size : c.size + 12;
            c.mask = (AttentionMask)mask;
            c.offset = mask == MASK_WINDOW ? 300 : (int64_t[]){0, 300, c.keys - 3}[(mask + i) % 3];
            c.empty = (AttentionEmpty)(i % 3);
            c.interleaved = true;
            c.parts = (mask + i) % 2;
            c.poisoned = mask == MASK_BIAS;
            check(&c);
        }
}

/* ---- gradients ---- */

static Tensor *drawn(Arena *arena, const Tensor *like) {
    static uint64_t state = 5;
    Tensor *t = tensor_new(arena, like->dtype, like->rank, like->dims);
    for (int64_t i = 0; i < tensor_count(t); i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        dtype_store_double(t->dtype, t->data, i, (double)(state >> 33) * 0x1p-30 - 1);
    }
    return t;
}

/* The sum over each row of g times the result, in the rows' order. */
static Tensor *sums_of(Arena *arena, const AttentionCase *c, const Tensor *g, const Tensor *r, const Tensor *like) {
    Tensor *sums = tensor_new(arena, DT_F32, like->rank, like->dims);
    for (int64_t i = 0; i < tensor_count(like); i++) {
        int64_t query = i % c->queries, head = i / c->queries % c->heads, batch = i / c->queries / c->heads;
        int64_t row = c->permuted ? (batch * c->queries + query) * c->heads + head : i;
        double sum = 0;
        for (int64_t e = row * c->width; e < (row + 1) * c->width; e++)
            sum += dtype_load_double(g->dtype, g->data, e) * dtype_load_double(r->dtype, r->data, e);
        ((float *)sums->data)[i] = (float)sum;
    }
    return sums;
}

/* Sums of rounded numbers: by the largest gradient. */
static void compare_gradients(const AttentionCase *c, int which, const Tensor *want, const Tensor *got) {
    double most = 1, unit = c->dtype == DT_F32 ? 2e-6 : c->dtype == DT_F16 ? 2e-3 : 2e-2;
    for (int64_t i = 0; i < tensor_count(want); i++)
        most = fmax(most, fabs(dtype_load_double(want->dtype, want->data, i)));
    for (int64_t i = 0; i < tensor_count(want); i++) {
        double x = dtype_load_double(want->dtype, want->data, i), y = dtype_load_double(got->dtype, got->data, i);
        cr_assert(fabs(x - y) <= unit * most, "%s, gradient %d: element %lld is %.9g, not %.9g", c->name, which,
                  (long long)i, y, x);
    }
}

/* Both anchors: the first with its logarithms. */
static void check_gradients(const AttentionCase *c) {
    Arena *arena = arena_create(0);
    AttentionSetup s = attention_case_setup(c, arena);
    Node *node = graph_add_node(s.graph, NULL, NODE_ANCHOR, ATTENTION_BACKWARD, s.node->inputs, 3);
    const Dim *rows[3];
    const int64_t sizes[] = {c->batch, c->heads, c->queries};
    for (int i = 0; i < 3; i++) rows[i] = dim_const(s.graph->dims, sizes[i]);
    Value *r = s.node->outputs[0];
    node_append_input(node, graph_add_input(s.graph, NULL, c->dtype, r->rank, (const Dim *const *)r->dims));
    node_append_input(node, node_add_output(s.node, NULL, DT_F32, 3, rows));
    node_append_input(node, graph_add_input(s.graph, NULL, DT_F32, 3, rows));
    for (int i = 3; i < s.node->input_count; i++) node_append_input(node, s.node->inputs[i]);
    for (int i = 0; i < s.node->attrs.count; i++) node_set_attr(node, s.node->attrs.items[i]);
    for (int i = 0; i < 3; i++) {
        const Value *x = s.node->inputs[i];
        node_add_output(node, NULL, x->dtype, x->rank, (const Dim *const *)x->dims);
    }
    cr_assert_null(graph_verify(s.graph, LEVEL_PRIM));
    Tensor *forward[2], *want[3], *inputs[ATTENTION_BACKWARD_INPUTS + ATTENTION_STEPS];
    CpuAnchor *anchor, *backward;
    uint32_t released;
    const Tensor *constants[ATTENTION_BACKWARD_INPUTS + ATTENTION_STEPS] = {NULL};
    cr_assert_null(eval_anchor(s.node, s.inputs, NULL, arena, forward));
    Tensor given[2] = {*tensor_new(arena, forward[0]->dtype, 4, forward[0]->dims),
                       *tensor_new(arena, DT_F32, 3, forward[1]->dims)};
    cr_assert_null(cpu_anchor_prepare(s.node, constants, pools[0], NULL, &anchor, &released));
    cr_assert_null(cpu_anchor_run(anchor, NULL, NULL, (const Tensor *const *)s.inputs, NULL, given, pools[1]));
    for (int64_t i = 0; i < tensor_count(forward[1]); i++) {
        float x = ((float *)forward[1]->data)[i], y = ((float *)given[1].data)[i];
        cr_assert(x == y || fabsf(x - y) <= 1e-5f * fmaxf(1, fabsf(x)), "%s: logarithm %lld is %.9g, not %.9g", c->name,
                  (long long)i, (double)y, (double)x);
    }
    memcpy(inputs, s.inputs, 3 * sizeof *inputs);
    inputs[3] = drawn(arena, forward[0]);
    inputs[4] = forward[1];
    inputs[5] = sums_of(arena, c, inputs[3], forward[0], forward[1]);
    for (int i = 3; i < s.count; i++) inputs[i + 3] = s.inputs[i];
    cr_assert_null(eval_anchor(node, inputs, NULL, arena, want));
    cr_assert_null(cpu_anchor_prepare(node, constants, pools[0], NULL, &backward, &released));
    s.count += 3;
    memcpy(s.inputs, inputs, (size_t)s.count * sizeof *inputs);
    place_inputs(&s);
    Tensor first[3];
    for (int p = 0; p < POOLS; p++) {
        Tensor got[3];
        for (int i = 0; i < 3; i++) {
            got[i] = *want[i];
            got[i].data = malloc(tensor_bytes(want[i]) + 1);
            memset(got[i].data, 0x7f, tensor_bytes(want[i]));
        }
        Status status = cpu_anchor_run(backward, NULL, NULL, (const Tensor *const *)s.inputs, NULL, got, pools[p]);
        cr_assert(!status, "%s: %s", c->name, status ? status_message(status) : "");
        for (int i = 0; i < 3; i++) {
            if (!p) first[i] = got[i];
            if (!p) compare_gradients(c, i, want[i], &got[i]);
            cr_assert(!memcmp(first[i].data, got[i].data, tensor_bytes(&got[i])),
                      "%s: %d threads give other bits than one", c->name, thread_counts[p]);
            if (p) free(got[i].data);
        }
    }
    for (int i = 0; i < 3; i++) free(first[i].data);
    for (int i = 0; i < s.count; i++) free(s.inputs[i]->data);
    cpu_anchor_destroy(anchor);
    cpu_anchor_destroy(backward);
    graph_destroy(s.graph);
    arena_destroy(arena);
}

static const AttentionCase gradient_cases[] = {
    {"one query, one key", DT_F32, 1, 1, 1, 1, 1, 64, 64, MASK_NONE},
    {"a head of one element", DT_F32, 1, 2, 2, 30, 5, 1, 1, MASK_BIAS},
    {"a head of one element, turned", DT_F32, 1, 2, 2, 30, 5, 1, 1, MASK_BIAS, .permuted = true},
    {"a head of 7", DT_F32, 2, 3, 3, 33, 47, 7, 7, MASK_BIAS},
    {"a head of 256", DT_F32, 1, 1, 1, 40, 50, 256, 256, MASK_NONE, .permuted = true},
    {"values wider than keys", DT_F32, 1, 2, 2, 20, 64, 96, 192, MASK_CAPPED},
    {"values narrower than keys", DT_F32, 1, 2, 2, 66, 64, 96, 20, MASK_CAPPED},
    {"a block of keys", DT_F32, 1, 1, 1, 64, 384, 16, 16, MASK_HIDING, .empty = EMPTY_ZERO},
    {"a key more than a block", DT_F32, 1, 1, 1, 65, 385, 16, 16, MASK_HIDING, .empty = EMPTY_ZERO},
    {"many queries and keys", DT_F32, 2, 4, 2, 150, 900, 32, 32, MASK_BIAS},
    {"heads between sequence and size", DT_F32, 2, 3, 3, 70, 75, 64, 64, MASK_BIAS, .permuted = true},
    {"8 heads a key head", DT_F32, 1, 8, 1, 40, 90, 16, 16, MASK_KEEP},
    {"many matrices", DT_F32, 10, 4, 4, 70, 400, 8, 8, MASK_CAUSAL},
    {"f16", DT_F16, 2, 2, 2, 65, 64, 64, 64, MASK_BIAS},
    {"f16, keys last", DT_F16, 2, 4, 4, 70, 600, 64, 72, MASK_BIAS, .permuted = true},
    {"bf16 with odd sizes", DT_BF16, 1, 2, 1, 33, 47, 20, 36, MASK_KEEP},
    {"bf16, a key more than a block", DT_BF16, 1, 2, 2, 70, 385, 64, 64, MASK_BIAS},
    {"causal", DT_F32, 1, 4, 2, 200, 200, 24, 24, MASK_CAUSAL},
    {"causal behind a past", DT_F32, 1, 4, 4, 30, 90, 64, 64, MASK_CAUSAL, 60, .permuted = true},
    {"causal by a finite number", DT_F32, 1, 4, 2, 200, 200, 24, 24, MASK_CAUSAL_ADD},
    {"causal by a finite number, first queries see nothing", DT_F32, 1, 2, 2, 80, 90, 24, 24, MASK_CAUSAL_ADD, -20},
    {"queries that see nothing are zero", DT_F32, 1, 2, 2, 70, 70, 24, 24, MASK_CAUSAL, -3, EMPTY_ZERO},
    {"no query sees a key", DT_F32, 1, 4, 2, 100, 70, 64, 64, MASK_CAUSAL, -200, EMPTY_ZERO},
    {"a window", DT_F32, 1, 2, 2, 300, 900, 20, 20, MASK_WINDOW, 500, EMPTY_ZERO},
    {"one key", DT_F32, 2, 2, 2, 50, 1, 128, 128, MASK_HIDE, 0, EMPTY_ZERO, .permuted = true},
    {"no keys", DT_F32, 2, 2, 2, 5, 0, 64, 64, MASK_NONE, 0, EMPTY_ZERO},
    {"no queries", DT_F32, 2, 2, 2, 0, 5, 64, 64, MASK_NONE},
    {"dropped", DT_F32, 2, 3, 3, 70, 75, 64, 64, MASK_DROP, .permuted = true},
    {"dropped, a key more than a block", DT_F32, 1, 2, 2, 65, 385, 16, 16, MASK_DROP},
    {"dropped, heads that share keys", DT_F32, 2, 4, 2, 9, 130, 16, 20, MASK_DROP},
    {"dropped, bf16", DT_BF16, 1, 2, 2, 70, 90, 32, 32, MASK_DROP},
    {"a sink", DT_F32, 2, 4, 2, 70, 400, 20, 20, MASK_SINK, 0, EMPTY_ZERO},
    {"a sink, few queries", DT_F32, 1, 2, 2, 3, 40, 24, 24, MASK_SINK, 0, EMPTY_ZERO, .permuted = true},
};

Test(attention, gradients, .init = open_pools, .fini = close_pools) {
    for (size_t i = 0; i < sizeof gradient_cases / sizeof *gradient_cases; i++) check_gradients(&gradient_cases[i]);
}

/* ---- what is refused ---- */

Test(attention, tensors_that_do_not_fit_are_refused, .init = open_pools, .fini = close_pools) {
    static const struct {
        int input, axis;
        int64_t size;
        AttentionMask mask;
    } misfits[] = {{0, 3, 63, MASK_BIAS}, {1, 2, 29, MASK_BIAS}, {1, 1, 3, MASK_BIAS},
                   {2, 0, 3, MASK_BIAS},  {2, 3, 65, MASK_BIAS}, {3, 3, 31, MASK_BIAS},
                   {4, 2, 39, MASK_BIAS}, {4, 2, 30, MASK_SINK}, {4, 0, 3, MASK_SINK}};
    for (size_t i = 0; i < sizeof misfits / sizeof *misfits; i++) {
        AttentionCase c = {"a misfit", DT_F32, 2, 4, 4, 40, 30, 64, 64, misfits[i].mask};
        Arena *arena = arena_create(0);
        AttentionSetup s = attention_case_setup(&c, arena);
        CpuAnchor *anchor;
        uint32_t released;
        const Tensor *constants[3 + ATTENTION_STEPS] = {NULL};
        Tensor *out = tensor_new(arena, DT_F32, 4, (const int64_t[]){2, 4, 40, 64});
        cr_assert_null(cpu_anchor_prepare(s.node, constants, pools[0], NULL, &anchor, &released));
        s.inputs[misfits[i].input]->dims[misfits[i].axis] = misfits[i].size;
        Status status = cpu_anchor_run(anchor, NULL, NULL, (const Tensor *const *)s.inputs, NULL, out, pools[1]);
        cr_expect(status && status_code(status) == STATUS_INVALID, "misfit %d is taken", (int)i);
        status_free(status);
        cpu_anchor_destroy(anchor);
        graph_destroy(s.graph);
        arena_destroy(arena);
    }
}
