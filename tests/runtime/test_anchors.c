/* SPDX-License-Identifier: Apache-2.0 */
/* Anchors against the plain evaluator: many random configurations a row, the same anchor again with other sizes, and
 * two threads on one anchor. */
#include <criterion/criterion.h>

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include "../base/share.h"
#include "anchor_body.h"
#include "anchor_kernel.h"
#include "lowering/anchor/anchor_eval.h"
#include "rounding.h"
#include "runtime/device/cpu/anchor.h"
#include "runtime/device/cpu/tiles/tile.h"

static void check(AnchorCase c, Pool *pool) {
    AnchorCase *s = &c;
    const Tensor *constants[ANCHOR_CASE_INPUTS], *inputs[ANCHOR_CASE_INPUTS];
    Tensor hidden[ANCHOR_CASE_INPUTS], *want[EPILOGUE_OUTPUTS], *got;
    CpuAnchor *anchor;
    uint32_t released;
    for (int i = 0; i < s->count; i++) constants[i] = s->constant[i] ? s->tensors[i] : NULL;
    Status status = cpu_anchor_prepare(s->node, constants, pool, NULL, &anchor, &released);
    cr_assert_null(status, "%s, seed %llu: %s", s->what, (unsigned long long)s->seed, status_message(status));
    for (int i = 0; i < s->count; i++) {
        hidden[i] = *s->tensors[i];
        cr_assert(!(released >> i & 1) || s->constant[i]);
        if (released >> i & 1) hidden[i].data = NULL;
        inputs[i] = &hidden[i];
    }
    status = eval_anchor(s->node, s->tensors, NULL, s->graph->arena, want);
    cr_assert_null(status, "%s, seed %llu: %s", s->what, (unsigned long long)s->seed, status_message(status));
    got = anchor_case_room(s, s->graph->arena, want[0]);
    status = anchor_run_once(anchor, s->node, inputs, got, pool);
    cr_assert_null(status, "%s, seed %llu: %s", s->what, (unsigned long long)s->seed, status_message(status));
    anchor_case_expect(s, s->tensors, got);
    for (int o = 0; o < s->node->output_count; o++) got[o] = *want[o];
    anchor_case_expect(s, s->tensors, got); /* it is what other tests compare with, and runs types that devices lack */
    cpu_anchor_destroy(anchor);
    graph_destroy(s->graph);
}

static Pool *pool_of(int threads) {
    Pool *pool;
    cr_assert_null(pool_shared(threads, &pool));
    return pool;
}

Test(anchors, matmuls_agree_with_the_evaluator) {
    for (uint64_t seed = 0; seed < 1500; seed += share_step())
        check(anchor_case_matmul(seed, ANCHOR_ANY), pool_of(1 + (int)(seed % 3)));
}

Test(anchors, convolutions_agree_with_the_evaluator) {
    for (uint64_t seed = 0; seed < 800; seed += share_step())
        check(anchor_case_conv(seed, false, ANCHOR_ANY), pool_of(1 + (int)(seed % 3)));
}

Test(anchors, transposed_convolutions_agree_with_the_evaluator) {
    for (uint64_t seed = 0; seed < 600; seed += share_step())
        check(anchor_case_conv(seed, true, ANCHOR_ANY), pool_of(1 + (int)(seed % 3)));
}

Test(anchors, of_f16_agree_with_the_evaluator) {
    for (uint64_t seed = 0; seed < 600; seed += share_step()) {
        Pool *pool = pool_of(1 + (int)(seed % 3));
        check(seed % 2 ? anchor_case_conv(seed, seed % 3 == 0, ANCHOR_HALVES) : anchor_case_matmul(seed, ANCHOR_HALVES),
              pool);
    }
}

/* ---- the ends of what f16 holds ---- */

typedef struct HalfProduct {
    double x, w, result; /* all other factors are 0 */
} HalfProduct;

static const HalfProduct half_products[] = {
    {65504, 1, 65504},       {65504, 2, INFINITY},        {-65504, 2, -INFINITY},       {152, 431, 65504}, /* 65512 */
    {65, 1008, INFINITY}, /* 65520, halfway to what would be next */
    {INFINITY, 1, INFINITY}, {1, -INFINITY, -INFINITY},   {INFINITY, 0, NAN},           {NAN, 1, NAN},
    {1, NAN, NAN},           {0x1p-24, 1, 0x1p-24},       {0x3p-24, -1, -0x3p-24},      {0x1p-24, 0x1p10, 0x1p-14},
    {0x1p-12, 0x1p-13, 0},   {0x3p-13, 0x1p-13, 0x1p-24}, {0x1p-24, 65504, 0x1.ffcp-9},
};

/* One product in the midst of zeros: rows so few that weights are widened in registers, and so many that there are several chunks;
 * of constant weights and of a run's; a channel of a 3x3 convolution, where it is the middle one of nine taps. */
static void check_half_product(const HalfProduct *p, bool convolution, int64_t rows, bool constant) {
    enum { DEPTH = 70, COLUMNS = 90, AT = 33, COLUMN = 61 };
    AnchorCase c = anchor_case_new(convolution ? "conv" : "matmul", 1);
    const int64_t row = rows / 2, x_dims[] = {1, rows, 3, DEPTH}, w_dims[] = {COLUMNS, DEPTH, 3, 3},
                  y_dims[] = {1, rows, 3, COLUMNS};
    const int64_t width = convolution ? 3 : 1;
    Value *x = anchor_case_input(&c, DT_F16, convolution ? 4 : 2, convolution ? x_dims : (int64_t[]){rows, DEPTH});
    Value *w = anchor_case_input(&c, DT_F16, convolution ? 4 : 2, convolution ? w_dims : (int64_t[]){DEPTH, COLUMNS});
    c.node = graph_add_node(c.graph, NULL, NODE_ANCHOR, c.what, (Value *[]){x, w}, 2);
    if (convolution) {
        const Dim *one = dim_const(c.graph->dims, 1), *const pads[] = {one, one, one, one};
        node_set_ints(c.node, "strides", (int64_t[]){1, 1}, 2);
        node_set_ints(c.node, "dilations", (int64_t[]){1, 1}, 2);
        node_set_dims(c.node, "pads", pads, 4);
        node_set_int(c.node, "winograd", 0); /* which lets infinities reach neighbours */
    }
    anchor_case_output(&c, DT_F16, convolution ? 4 : 2, convolution ? y_dims : (int64_t[]){rows, COLUMNS});
    for (int i = 0; i < 2; i++) memset(c.tensors[i]->data, 0, tensor_bytes(c.tensors[i]));
    dtype_store_double(DT_F16, c.tensors[0]->data, (row * width + width / 2) * DEPTH + AT, p->x);
    dtype_store_double(DT_F16, c.tensors[1]->data, convolution ? (COLUMN * DEPTH + AT) * 9 + 4 : AT * COLUMNS + COLUMN,
                       p->w);
    CpuAnchor *anchor;
    uint32_t released;
    Tensor *y =
        tensor_new(c.graph->arena, DT_F16, convolution ? 4 : 2, convolution ? y_dims : (int64_t[]){rows, COLUMNS});
    const Tensor *inputs[] = {c.tensors[0], c.tensors[1]}, *constants[] = {NULL, constant ? c.tensors[1] : NULL};
    cr_assert_null(cpu_anchor_prepare(c.node, constants, pool_of(2), NULL, &anchor, &released));
    cr_expect_str_eq(cpu_anchor_how(anchor), constant ? "packed, weights f16" : "packed at run");
    const int64_t whole = (COLUMNS + TILE_MAX_LANES - 1) / TILE_MAX_LANES * TILE_MAX_LANES;
    size_t most_bytes = (size_t)(tensor_count(c.tensors[1]) / COLUMNS * whole * 2 + 64);
    if (constant) cr_expect_leq(cpu_anchor_bytes(anchor), most_bytes);
    cr_assert_null(anchor_run_once(anchor, c.node, inputs, y, pool_of(2)));
    double got = dtype_load_double(DT_F16, y->data, (row * width + width / 2) * COLUMNS + COLUMN);
    cr_expect(isnan(p->result) ? isnan(got) : got == p->result, "%s of %lld rows, %g * %g: %g for %g", c.what,
              (long long)rows, p->x, p->w, got, p->result);
    if (isfinite(p->x)) cr_expect_eq(dtype_load_double(DT_F16, y->data, 0), 0); /* whose other taps are 0, too */
    cpu_anchor_destroy(anchor);
    graph_destroy(c.graph);
}

Test(anchors, products_of_f16_at_the_ends_of_its_range) {
    static const int64_t rows[] = {3, 20, 500};
    for (size_t i = 0; i < sizeof half_products / sizeof *half_products; i++)
        for (int r = 0; r < 3; r++)
            for (int which = 0; which < 4; which++)
                check_half_product(&half_products[i], which & 1, rows[r], which & 2);
}

/* ---- one anchor, many sizes, several threads ---- */

typedef struct Shared {
    Graph *graph;
    Node *node;
    Tensor *weight, *bias;
    CpuAnchor *anchor;
    AnchorKernel kernel;
    Pool *pool;
    uint64_t seed;
    char failure[200];
} Shared;

static const char *run_rows(const Shared *s, Arena *arena, uint64_t *state, int64_t rows) {
    Tensor *x = anchor_case_tensor(arena, state, DT_F32, 2, (int64_t[]){rows, 96});
    Tensor hidden_weight = *s->weight, hidden_bias = *s->bias,
           *y = tensor_new(arena, DT_F32, 2, (int64_t[]){rows, 150});
    hidden_weight.data = hidden_bias.data = NULL;
    if (anchor_kernel_run(s->anchor, &s->kernel, (const Tensor *[]){x, &hidden_weight, &hidden_bias}, y, s->pool))
        return "the run failed";
    AnchorCase c = {.node = s->node, .terms = 96};
    return anchor_difference(&c, (Tensor *[]){x, s->weight, s->bias}, y, arena);
}

static void *run_many_sizes(void *context) {
    Shared *s = context;
    uint64_t state = s->seed;
    for (int i = 0; i < 60 && !*s->failure; i++) {
        Arena *arena = arena_create(0);
        const char *failure = run_rows(s, arena, &state, 1 + anchor_case_below(&state, 200));
        if (failure) snprintf(s->failure, sizeof s->failure, "%s", failure);
        arena_destroy(arena);
    }
    return NULL;
}

Test(anchors, one_anchor_runs_any_number_of_rows_from_two_threads_at_once) {
    uint32_t released;
    AnchorCase c = anchor_case_new("matmul", 1);
    const Dim *rows = dim_symbol(c.graph->dims, "rows"), *k = dim_const(c.graph->dims, 96),
              *n = dim_const(c.graph->dims, 150);
    Value *x = graph_add_input(c.graph, NULL, DT_F32, 2, (const Dim *[]){rows, k});
    c.count = 1;
    Value *w = anchor_case_input(&c, DT_F32, 2, (int64_t[]){96, 150});
    c.node = graph_add_node(c.graph, NULL, NODE_ANCHOR, "matmul", (Value *[]){x, w}, 2);
    anchor_case_results(&c, DT_F32, 2, (const Dim *[]){rows, n}, (AnchorStep[]){ANCHOR_BIAS, ANCHOR_GELU}, 2);
    Shared s = {.graph = c.graph, .node = c.node, .weight = c.tensors[1], .bias = c.tensors[2], .pool = pool_of(2)};
    s.kernel = anchor_kernel(c.graph->arena, c.node);
    cr_assert_not_null(s.kernel.code);
    cr_assert_null(
        cpu_anchor_prepare(s.node, (const Tensor *[]){NULL, s.weight, s.bias}, s.pool, NULL, &s.anchor, &released));
    cr_assert_eq(released, 6u);
    Shared shared[2] = {s, s};
    pthread_t threads[2];
    for (int i = 0; i < 2; i++) {
        shared[i].seed = (uint64_t)i;
        pthread_create(&threads[i], NULL, run_many_sizes, &shared[i]);
    }
    for (int i = 0; i < 2; i++) {
        pthread_join(threads[i], NULL);
        cr_expect_str_empty(shared[i].failure);
    }
    anchor_kernel_release(&s.kernel);
    cpu_anchor_destroy(s.anchor);
    graph_destroy(s.graph);
}

/* ---- what the comparison tells apart ---- */

/* Units in the last place of the largest element that are refused: of f16 and bf16 ten, since the error of their sums in
 * f32 is below one; of f32 and f64 so many that they are more than the roundings of short sums and their epilogues. */
static bool refused_error(const AnchorCase *c, const Tensor *result, int64_t at, double *out_error) {
    DType dtype = result->dtype;
    if (!dtype_is_float(dtype) || !tensor_count(result)) return false;
    bool is_stored = rounding_work_type(dtype) != dtype;
    if (c->terms > (is_stored ? 1500 : 3)) return false;
    double size = fmax(fabs(dtype_load_double(dtype, result->data, at)), is_stored ? 1 : (double)c->terms + 3);
    *out_error = (is_stored ? 10 : 32) * 2 * rounding_unit(dtype) * size;
    return true;
}

static int64_t largest_element(const Tensor *t) {
    int64_t largest = 0;
    for (int64_t i = 0; i < tensor_count(t) && dtype_is_float(t->dtype); i++)
        if (fabs(dtype_load_double(t->dtype, t->data, i)) > fabs(dtype_load_double(t->dtype, t->data, largest)))
            largest = i;
    return largest;
}

static void check_refused(const AnchorCase *c, const Tensor *results, int output, int64_t at, double error) {
    const Tensor *t = &results[output];
    double x = dtype_load_double(t->dtype, t->data, at);
    dtype_store_double(t->dtype, t->data, at, x + error);
    cr_assert(anchor_difference(c, c->tensors, results, c->graph->arena), "%s of %s, seed %llu: %g passes for %g",
              c->what, dtype_name(t->dtype), (unsigned long long)c->seed, x + error, x);
    dtype_store_double(t->dtype, t->data, at, x);
}

static Tensor *evaluated(const AnchorCase *c) {
    Tensor *made[EPILOGUE_OUTPUTS];
    cr_assert_null(eval_anchor(c->node, c->tensors, NULL, c->graph->arena, made));
    Tensor *results = anchor_case_room(c, c->graph->arena, made[0]);
    for (int o = 0; o < c->node->output_count; o++) results[o] = *made[o];
    return results;
}

Test(anchors, a_result_that_is_a_few_units_off_is_refused) {
    static const DType types[] = {DT_F32, DT_F64, DT_F16, DT_BF16};
    int checked[DTYPE_COUNT] = {0};
    for (uint64_t seed = 0; seed < 4000; seed++) {
        AnchorCase c = seed % 2 ? anchor_case_conv(seed, false, ANCHOR_ANY) : anchor_case_matmul(seed, ANCHOR_ANY);
        double error;
        if (!c.node->subgraph_count) {
            Tensor *results = evaluated(&c);
            int64_t at = largest_element(results);
            if (refused_error(&c, results, at, &error)) {
                check_refused(&c, results, 0, at, error);
                checked[results->dtype]++;
            }
        }
        graph_destroy(c.graph);
    }
    for (int i = 0; i < 4; i++) cr_expect_geq(checked[types[i]], 10, "%s: %d", dtype_name(types[i]), checked[types[i]]);
}

/* A formula that is off by so much, of numbers around 1, is another formula: GELU by tanh is off by 5e-4 from that by
 * erf. In all results of all epilogues; of f16 and bf16 as many units as the body has steps, and eight more. */
Test(anchors, an_epilogue_of_another_formula_is_refused) {
    static const DType types[] = {DT_F32, DT_F64, DT_F16, DT_BF16};
    int checked[DTYPE_COUNT] = {0};
    for (uint64_t seed = 0; seed < 1200; seed++) {
        AnchorCase c = seed % 2 ? anchor_case_conv(seed, false, ANCHOR_ANY) : anchor_case_matmul(seed, ANCHOR_ANY);
        DType dtype = c.tensors[0]->dtype;
        if (c.node->subgraph_count && dtype_is_float(dtype) && c.terms < 200) {
            Tensor *results = evaluated(&c);
            double steps = c.node->subgraphs[0]->node_count;
            double share = dtype == DT_F64 ? 1e-12 : dtype == DT_F32 ? 1e-4 : 4 * (steps + 8) * rounding_unit(dtype);
            for (int o = 0; o < c.node->output_count; o++) {
                if (results[o].dtype != dtype || !tensor_count(&results[o])) continue;
                int64_t at = anchor_case_below(&c.state, (int)tensor_count(&results[o]));
                double size = fabs(dtype_load_double(dtype, results[o].data, at)) + sqrt((double)c.terms + 1);
                check_refused(&c, results, o, at, share * size);
                checked[dtype]++;
            }
        }
        graph_destroy(c.graph);
    }
    for (int i = 0; i < 4; i++) cr_expect_geq(checked[types[i]], 10, "%s: %d", dtype_name(types[i]), checked[types[i]]);
}

/* ---- sizes that do not fit ---- */

Test(anchors, sizes_that_do_not_fit_are_refused) {
    for (int i = 0; i < anchor_misfit_count; i++) {
        const AnchorMisfit *m = &anchor_misfits[i];
        AnchorCase s = anchor_case_misfit(m);
        CpuAnchor *anchor;
        uint32_t released;
        cr_assert_null(
            cpu_anchor_prepare(s.node, (const Tensor *[]){NULL, s.tensors[1]}, NULL, NULL, &anchor, &released));
        Tensor *y = tensor_new(s.graph->arena, DT_F32, 4, m->y);
        Status status = anchor_run_once(anchor, s.node, (const Tensor *[]){s.tensors[0], s.tensors[1]}, y, NULL);
        cr_expect_eq(status_code(status), STATUS_INVALID, "%s", m->name);
        status_free(status);
        cpu_anchor_destroy(anchor);
        graph_destroy(s.graph);
    }
}
