/* SPDX-License-Identifier: Apache-2.0 */
/* Rows by the matrices of their groups ("matmul_grouped"): against sums in double, the evaluator and themselves on more threads. */
#include <criterion/criterion.h>

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "anchor_cases.h"
#include "anchor_kernel.h"
#include "lowering/anchor/anchor_eval.h"
#include "lowering/anchor/weight_blocks.h"
#include "lowering/anchors.h"
#include "policy/policy.h"
#include "runtime/device/cpu/anchor.h"

typedef enum Spread {
    SPREAD_ANY,    /* each row is of any group */
    SPREAD_ONE,    /* all are of one group */
    SPREAD_SOME,   /* every third group has no rows */
    SPREAD_CHOSEN, /* neighbours along the last axis are of different groups, as a token's experts are */
} Spread;

/* Rows [tokens, chosen], of which a has [tokens, 1 or chosen]. bits 0: floats of `dtype`. */
typedef struct Grouping {
    const char *name;
    int64_t tokens, chosen, groups, depth, columns;
    Spread spread;
    bool repeated, constant, bias; /* repeated: a's axis of those chosen has size 1 */
    DType dtype;
    int bits, block;
    bool zeros, turned; /* turned: b is [G, N, K] with a perm_b, else [G, K, N] */
    int64_t precision;  /* in which floats are held */
} Grouping;

static const Grouping groupings[] = {
    {"one row", 1, 1, 8, 96, 70, SPREAD_ANY, true, true, false, DT_F32, 0, 0, false, true, 0},
    {"one token of two experts", 1, 2, 8, 512, 130, SPREAD_CHOSEN, true, true, true, DT_F32, 0, 0, false, true, 0},
    {"groups without rows", 9, 2, 6, 64, 48, SPREAD_SOME, true, true, true, DT_F32, 0, 0, false, true, 0},
    {"one group has all rows", 150, 2, 5, 64, 80, SPREAD_ONE, true, true, true, DT_F32, 0, 0, false, true, 0},
    {"all groups are chosen", 7, 4, 4, 48, 33, SPREAD_CHOSEN, true, true, true, DT_F32, 0, 0, false, true, 0},
    {"rows of their own", 11, 3, 4, 40, 65, SPREAD_ANY, false, true, true, DT_F32, 0, 0, false, true, 0},
    {"many rows", 300, 2, 8, 130, 129, SPREAD_CHOSEN, true, true, false, DT_F32, 0, 0, false, true, 0},
    {"matrices that are not turned", 20, 2, 4, 50, 64, SPREAD_ANY, true, true, true, DT_F32, 0, 0, false, false, 0},
    {"matrices of the run", 20, 2, 6, 50, 66, SPREAD_SOME, true, false, true, DT_F32, 0, 0, false, true, 0},
    {"matrices of the run, not turned", 5, 2, 4, 50, 64, SPREAD_ANY, false, false, false, DT_F32, 0, 0, false, false,
     0},
    {"one column", 6, 2, 4, 33, 1, SPREAD_ANY, true, true, true, DT_F32, 0, 0, false, true, 0},
    {"no depth", 6, 2, 4, 0, 5, SPREAD_ANY, true, false, true, DT_F32, 0, 0, false, true, 0},
    {"no rows", 0, 2, 4, 16, 5, SPREAD_ANY, true, true, true, DT_F32, 0, 0, false, true, 0},
    {"f64", 13, 2, 5, 70, 41, SPREAD_SOME, true, true, true, DT_F64, 0, 0, false, true, 0},
    {"f64 of the run", 13, 2, 5, 70, 41, SPREAD_ANY, false, false, true, DT_F64, 0, 0, false, true, 0},
    {"a long sum", 1, 2, 4, 3000, 64, SPREAD_CHOSEN, true, true, true, DT_F32, 0, 0, false, true, 0},
    {"4 bits, one token", 1, 2, 8, 512, 130, SPREAD_CHOSEN, true, true, true, DT_F32, 4, 32, true, false, 0},
    {"4 bits, groups without rows", 9, 2, 6, 96, 48, SPREAD_SOME, true, true, false, DT_F32, 4, 32, false, false, 0},
    {"4 bits, one group has all rows", 60, 2, 5, 80, 70, SPREAD_ONE, true, true, true, DT_F32, 4, 16, true, false, 0},
    {"4 bits, many rows", 120, 4, 4, 100, 65, SPREAD_CHOSEN, true, true, true, DT_F32, 4, 32, true, false, 0},
    {"8 bits", 10, 2, 4, 64, 48, SPREAD_ANY, false, true, true, DT_F32, 8, 32, true, false, 0},
    {"2 bits", 10, 2, 4, 64, 33, SPREAD_ANY, true, true, false, DT_F32, 2, 16, true, false, 0},
    {"floats held in f16", 9, 2, 6, 64, 48, SPREAD_SOME, true, true, true, DT_F32, 0, 0, false, true, PRECISION_F16},
};
enum { GROUPINGS = sizeof groupings / sizeof *groupings };

enum { A, B, GROUPS, BIAS };

static double element(const Tensor *t, int64_t index) { return dtype_load_double(t->dtype, t->data, index); }

static void draw_groups(AnchorCase *c, const Grouping *g) {
    int64_t *numbers = c->tensors[GROUPS]->data;
    for (int64_t i = 0; i < g->tokens; i++) {
        int64_t first = anchor_case_below(&c->state, (int)g->groups);
        for (int64_t j = 0; j < g->chosen; j++) {
            int64_t any = anchor_case_below(&c->state, (int)g->groups);
            if (g->spread == SPREAD_ONE) any = g->groups - 2;
            if (g->spread == SPREAD_SOME && any % 3 == 0) any++;
            if (g->spread == SPREAD_CHOSEN) any = (first + 3 * j) % g->groups;
            numbers[i * g->chosen + j] = any;
        }
    }
}

static bool has_rows(const AnchorCase *c, int64_t group) {
    const int64_t *numbers = c->tensors[GROUPS]->data;
    for (int64_t i = 0; i < tensor_count(c->tensors[GROUPS]); i++)
        if (numbers[i] == group) return true;
    return false;
}

static void draw_blocks(AnchorCase *c, const Grouping *g) {
    int64_t blocks = (g->depth + g->block - 1) / g->block, columns = g->groups * g->columns, count = columns * blocks;
    uint8_t *bytes = c->tensors[B]->data;
    for (int64_t i = 0; i < tensor_count(c->tensors[B]); i++) bytes[i] = (uint8_t)anchor_case_bits(&c->state);
    Tensor *scales = tensor_new(c->graph->arena, DT_F32, 1, &count),
           *zeros = tensor_new(c->graph->arena, DT_F32, 1, &count);
    for (int64_t i = 0; i < count; i++) {
        int64_t group = i / (g->columns * blocks);
        ((float *)scales->data)[i] = (float)(anchor_case_below(&c->state, 2000) - 1000) * 1e-3f / (float)(1 << g->bits);
        if (!has_rows(c, group)) ((float *)scales->data)[i] = NAN;
        ((float *)zeros->data)[i] = (float)anchor_case_below(&c->state, 1 << g->bits);
    }
    node_set_attr(c->node, (Attr){.name = WEIGHT_SCALES, .kind = ATTR_TENSOR, .tensor = scales});
    if (g->zeros) node_set_attr(c->node, (Attr){.name = WEIGHT_ZEROS, .kind = ATTR_TENSOR, .tensor = zeros});
    node_set_int(c->node, WEIGHT_BITS, g->bits);
    node_set_int(c->node, WEIGHT_BLOCK, g->block);
    node_set_int(c->node, WEIGHT_DEPTH, g->depth);
}

/* The matrices of groups that have no rows are NaN: they must go into no result. Held narrower than f32 they may not be. */
static void spoil_empty(const AnchorCase *c, const Grouping *g) {
    int64_t each = g->depth * g->columns;
    for (int64_t i = 0; i < g->groups * each && !g->precision; i++)
        if (!has_rows(c, i / each)) dtype_store_double(g->dtype, c->tensors[B]->data, i, (double)NAN);
}

static AnchorCase case_of(const Grouping *g, uint64_t seed) {
    AnchorCase c = anchor_case_new(g->name, seed);
    int64_t a[] = {g->tokens, g->repeated ? 1 : g->chosen, g->depth},
            packed[] = {g->groups, g->columns, g->bits ? (g->depth + g->block - 1) / g->block : 0,
                        (int64_t)g->block * g->bits / 8},
            turned[] = {g->groups, g->columns, g->depth}, straight[] = {g->groups, g->depth, g->columns};
    Value *inputs[4] = {anchor_case_input(&c, g->dtype, 3, a)};
    inputs[B] = g->bits ? anchor_case_input(&c, DT_U8, 4, packed)
                        : anchor_case_input(&c, g->dtype, 3, g->turned ? turned : straight);
    inputs[GROUPS] = anchor_case_input(&c, DT_I64, 2, (int64_t[]){g->tokens, g->chosen});
    if (g->bias) inputs[BIAS] = anchor_case_input(&c, g->dtype, 2, (int64_t[]){g->groups, g->columns});
    c.node = graph_add_node(c.graph, NULL, NODE_ANCHOR, MATMUL_GROUPED, inputs, g->bias ? 4 : 3);
    if (g->turned) node_set_ints(c.node, "perm_b", (int64_t[]){0, 2, 1}, 3);
    if (g->precision) node_set_int(c.node, WEIGHT_PRECISION, g->precision);
    anchor_case_output(&c, g->dtype, 3, (int64_t[]){g->tokens, g->chosen, g->columns});
    draw_groups(&c, g);
    if (g->bits)
        draw_blocks(&c, g);
    else
        spoil_empty(&c, g);
    c.constant[B] = c.constant[BIAS] = g->constant;
    return c;
}

static Tensor *room_of(const AnchorCase *c, const Grouping *g) {
    Tensor *y = tensor_new(c->graph->arena, g->dtype, 3, (int64_t[]){g->tokens, g->chosen, g->columns});
    memset(y->data, 0xa5, tensor_bytes(y));
    return y;
}

static Pool *pool_of(int threads) {
    Pool *pool;
    cr_assert_null(pool_shared(threads, &pool));
    return pool;
}

/* Prepared, packed and restored, and run; what is released has no data in the run. */
static Tensor *run_restored(const AnchorCase *c, const Grouping *g, Pool *pool, bool restored) {
    const Tensor *constants[4] = {0}, *inputs[4] = {0};
    Tensor hidden[4];
    CpuAnchor *anchor, *again = NULL;
    uint32_t released;
    for (int i = 0; i < c->count; i++) {
        inputs[i] = c->tensors[i];
        constants[i] = c->constant[i] ? inputs[i] : NULL;
    }
    Status status = cpu_anchor_prepare(c->node, constants, pool, NULL, &anchor, &released);
    cr_assert_null(status, "%s: %s", c->what, status_message(status));
    for (int i = 0; i < c->count; i++)
        if (released >> i & 1) {
            hidden[i] = *inputs[i];
            hidden[i].data = NULL;
            inputs[i] = &hidden[i];
            if (constants[i]) constants[i] = &hidden[i];
        }
    cr_expect_eq(released >> B & 1, g->constant && g->depth > 0, "%s", c->what);
    if (restored) {
        const Packed *packed;
        int count = cpu_anchor_packed(anchor, &packed, &released);
        status = cpu_anchor_restore(c->node, constants, packed, count, pool, &again, &released);
        cr_assert_null(status, "%s: %s", c->what, status_message(status));
    }
    Tensor *y = room_of(c, g);
    status = anchor_run_once(restored ? again : anchor, c->node, inputs, y, pool);
    cr_assert_null(status, "%s: %s", c->what, status_message(status));
    cpu_anchor_destroy(again);
    cpu_anchor_destroy(anchor);
    return y;
}

/* A column of a group's matrix. */
static double weight_at(const AnchorCase *c, const Grouping *g, const float *unpacked, int64_t group, int64_t k,
                        int64_t n) {
    if (unpacked) return (double)unpacked[(group * g->columns + n) * g->depth + k];
    double w = element(c->tensors[B],
                       g->turned ? (group * g->columns + n) * g->depth + k : (group * g->depth + k) * g->columns + n);
    return g->precision == PRECISION_F16 ? (double)f16_to_f32(f32_to_f16((float)w)) : w;
}

/* y may be off by the roundings of its sum; of whole numbers with a zero point these are of sums as large as the numbers. */
static void expect_sums(const AnchorCase *c, const Grouping *g, const Tensor *y, const char *who) {
    float *unpacked = NULL;
    double epsilon = g->dtype == DT_F64 ? DBL_EPSILON : (double)FLT_EPSILON;
    if (g->bits) {
        WeightBlocks b;
        cr_assert_null(weight_blocks_of(c->node, (const Tensor *const *)c->tensors, &b));
        unpacked = arena_array(c->graph->arena, (size_t)(b.n * b.k), sizeof *unpacked);
        weight_blocks_unpack(&b, unpacked);
    }
    for (int64_t i = 0; i < g->tokens * g->chosen; i++)
        for (int64_t n = 0; n < g->columns; n++) {
            int64_t group = ((int64_t *)c->tensors[GROUPS]->data)[i], row = g->repeated ? i / g->chosen : i;
            double sum = g->bias ? element(c->tensors[BIAS], group * g->columns + n) : 0, size = fabs(sum);
            for (int64_t k = 0; k < g->depth; k++) {
                double a = element(c->tensors[A], row * g->depth + k), w = weight_at(c, g, unpacked, group, k, n);
                sum += a * w;
                size += fabs(a) * (g->bits ? 2.0 : fabs(w)); /* a number less its zero point, scaled, is below 1 */
            }
            double got = element(y, i * g->columns + n), bound = epsilon * ((double)g->depth + 2) * size;
            cr_assert(fabs(got - sum) <= bound, "%s, %s: row %lld, column %lld is %g, not %g", g->name, who,
                      (long long)i, (long long)n, got, sum);
        }
}

/* The same bits on any number of threads, and from what was packed before. */
Test(grouped, rows_meet_the_matrices_of_their_groups) {
    for (int r = 0; r < GROUPINGS; r++) {
        const Grouping *g = &groupings[r];
        AnchorCase c = case_of(g, (uint64_t)r + 1);
        Tensor *got = run_restored(&c, g, NULL, false), *evaluated;
        expect_sums(&c, g, got, "the CPU");
        if (!g->precision) {
            cr_assert_null(eval_anchor(c.node, c.tensors, NULL, c.graph->arena, &evaluated));
            cr_assert(tensor_same_shape(evaluated, got), "%s", g->name);
            expect_sums(&c, g, evaluated, "the evaluator");
        }
        for (int threads = 1; threads <= 3; threads++) {
            Tensor *again = run_restored(&c, g, pool_of(threads), threads == 2);
            cr_expect(!tensor_bytes(got) || memcmp(got->data, again->data, tensor_bytes(got)) == 0, "%s on %d threads",
                      g->name, threads);
        }
        graph_destroy(c.graph);
    }
}

/* Those of the anchor and of the evaluator. */
static void expect_refused(const AnchorCase *c, const Grouping *g, const char *message) {
    const Tensor *inputs[4] = {0}, *constants[4] = {0};
    CpuAnchor *anchor;
    uint32_t released;
    Tensor *evaluated;
    for (int i = 0; i < c->count; i++) inputs[i] = c->tensors[i];
    cr_assert_null(cpu_anchor_prepare(c->node, constants, NULL, NULL, &anchor, &released));
    Status statuses[] = {anchor_run_once(anchor, c->node, inputs, room_of(c, g), NULL),
                         eval_anchor(c->node, c->tensors, NULL, c->graph->arena, &evaluated)};
    for (int i = 0; i < 2; i++) {
        cr_assert(statuses[i] && status_code(statuses[i]) == STATUS_INVALID, "%d: %s", i, message);
        cr_expect(i || strstr(status_message(statuses[i]), message), "%s", status_message(statuses[i]));
        status_free(statuses[i]);
    }
    cpu_anchor_destroy(anchor);
}

static const Grouping small = {"small", 3, 2, 4, 8, 5, SPREAD_ANY, false, false, true, DT_F32, 0, 0, false, true, 0};

Test(grouped, a_group_that_there_is_not_is_refused) {
    static const int64_t wrong[] = {4, -1, INT64_MAX, INT64_MIN};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        AnchorCase c = case_of(&small, 1);
        ((int64_t *)c.tensors[GROUPS]->data)[3] = wrong[i];
        expect_refused(&c, &small, "row 3 is of group");
        graph_destroy(c.graph);
    }
}

Test(grouped, sizes_that_do_not_fit_are_refused) {
    static const struct {
        int input, axis;
    } cuts[] = {{A, 0}, {A, 2}, {B, 1}, {B, 2}, {GROUPS, 0}, {GROUPS, 1}, {BIAS, 0}, {BIAS, 1}};
    for (size_t i = 0; i < sizeof cuts / sizeof *cuts; i++) {
        AnchorCase c = case_of(&small, 1);
        c.tensors[cuts[i].input]->dims[cuts[i].axis] -= 1;
        expect_refused(&c, &small, "");
        graph_destroy(c.graph);
    }
}
