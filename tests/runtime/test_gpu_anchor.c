/* SPDX-License-Identifier: Apache-2.0 */
/* Matrix products and convolutions of the GPU device, through OpenCL on whatever device the machine has, against the
 * plain evaluator: random configurations, the same anchor with other sizes, and nothing written beyond the result.
 * Without any OpenCL device the tests say so and are skipped. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "../base/share.h"
#include "gpu_bench.h"
#include "anchor_body.h"
#include "codegen/gpu/product/product.h"
#include "lowering/anchor/anchor_eval.h"
#include "lowering/anchors.h"
#include "runtime/device/gpu/gpu.h"

/* A device that can be made to look otherwise, so that all tiles and splits come up. */
static void anchor_bench_open(Bench *b) {
    bench_open(b);
    gpu_device(b->device)->limits = &b->limits;
}

/* Runs the anchor on inputs of the case; lead: how far tensors stand behind multiples of 256 bytes. */
static void run_case(Bench *b, const AnchorCase *c, DeviceAnchor *anchor, uint32_t released, size_t lead) {
    Tensor *want, got; /* GPUs' anchors have one result */
    Placed placed[ANCHOR_CASE_INPUTS + 1];
    const Tensor *inputs[ANCHOR_CASE_INPUTS];
    Tensor hidden[ANCHOR_CASE_INPUTS];
    Arena *arena = c->graph->arena;
    DONE(eval_anchor(c->node, c->tensors, NULL, arena, &want));
    for (int i = 0; i < c->count; i++) {
        placed[i] = place(b, arena, c->tensors[i], true, lead);
        hidden[i] = placed[i].tensor;
        if (released >> i & 1) hidden[i].data = NULL;
        inputs[i] = &hidden[i];
    }
    Placed *out = &placed[c->count];
    *out = place(b, arena, want, false, lead);
    Status status = gpu_anchor_run(b->device, b->stream, anchor, NULL, inputs, NULL, &out->tensor);
    cr_assert_null(status, "%s, seed %llu: %s", c->what, (unsigned long long)c->seed, status_message(status));
    unsigned char *back = arena_alloc(arena, out->bytes);
    DONE(gpu_copy(b->device, b->stream, COPY_OUT, back, out->block, out->bytes));
    DONE(gpu_synchronize(b->device, b->stream));
    for (int i = 0; i <= c->count; i++) gpu_release(b->device, b->stream, NULL, placed[i].block);
    size_t begin = GUARD + lead, bytes = tensor_bytes(want);
    cr_assert(unchanged(back, begin) && unchanged(back + begin + bytes, out->bytes - begin - bytes),
              "%s, seed %llu: writes beyond its result", c->what, (unsigned long long)c->seed);
    got = *want;
    got.data = back + begin;
    anchor_case_expect(c, c->tensors, &got);
}

static void check(Bench *b, AnchorCase c, size_t lead) {
    const Tensor *constants[ANCHOR_CASE_INPUTS];
    DeviceAnchor *anchor;
    uint32_t released;
    if (!gpu_anchor_runs(b->device, c.node))
        cr_assert(c.tensors[0]->dtype == DT_U8 || (c.tensors[0]->dtype == DT_F64 && !b->limits.fp64));
    else {
        for (int i = 0; i < c.count; i++) constants[i] = c.constant[i] ? c.tensors[i] : NULL;
        Status status = gpu_anchor_prepare(b->device, c.node, constants, &anchor, &released);
        cr_assert_null(status, "%s, seed %llu: %s", c.what, (unsigned long long)c.seed, status_message(status));
        for (int i = 0; i < c.count; i++) cr_assert(!(released >> i & 1) || c.constant[i]);
        run_case(b, &c, anchor, released, lead);
        gpu_anchor_release(b->device, anchor);
    }
    graph_destroy(c.graph);
}

/* Devices of 1, 2 and 64 multiprocessors: the first two take large tiles, the last splits depths. */
static size_t look_like_another(Bench *b, uint64_t seed) {
    static const int multiprocessors[] = {2, 64, 1};
    b->limits.multiprocessors = multiprocessors[seed % 3];
    return seed % 5 == 4 ? 8 : 0;
}

/* ONNXFUSE_TEST_SEEDS=COUNT or FIRST-END: as many, and which, as wanted. */
static void seeds(uint64_t count, uint64_t *out_first, uint64_t *out_end) {
    const char *given = getenv("ONNXFUSE_TEST_SEEDS");
    unsigned long long first = 0, end = count;
    if (given && sscanf(given, "%llu-%llu", &first, &end) == 1) end = first, first = 0;
    *out_first = first;
    *out_end = end;
}

static void check_seeds(uint64_t count, AnchorCase (*make)(uint64_t seed)) {
    Bench b;
    uint64_t seed, end;
    anchor_bench_open(&b);
    for (seeds(count, &seed, &end); seed < end; seed++) {
        if (!share_turn()) continue;
        size_t lead = look_like_another(&b, seed);
        check(&b, make(seed), lead);
    }
    bench_close(&b);
}

static AnchorCase any_matmul(uint64_t seed) { return anchor_case_matmul(seed, ANCHOR_ONE_RESULT); }
static AnchorCase any_conv(uint64_t seed) { return anchor_case_conv(seed, false, ANCHOR_ONE_RESULT); }
static AnchorCase any_transposed(uint64_t seed) { return anchor_case_conv(seed, true, ANCHOR_ONE_RESULT); }
static AnchorCase plain_matmul(uint64_t seed) { return anchor_case_matmul(seed, ANCHOR_PLAIN); }
static AnchorCase plain_conv(uint64_t seed) { return anchor_case_conv(seed, false, ANCHOR_PLAIN); }
static AnchorCase plain_transposed(uint64_t seed) { return anchor_case_conv(seed, true, ANCHOR_PLAIN); }

/* Any type and epilogue: nearly each case compiles programs of its own. */
Test(gpu_anchor, matmuls_of_all_types_agree_with_the_evaluator) { check_seeds(8, any_matmul); }
Test(gpu_anchor, convolutions_of_all_types_agree_with_the_evaluator) { check_seeds(5, any_conv); }
Test(gpu_anchor, transposed_convolutions_of_all_types_agree_with_the_evaluator) { check_seeds(5, any_transposed); }

/* One type and epilogue: many sizes and layouts. */
Test(gpu_anchor, matmuls_of_all_layouts_agree_with_the_evaluator) { check_seeds(100, plain_matmul); }
Test(gpu_anchor, convolutions_of_all_layouts_agree_with_the_evaluator) { check_seeds(50, plain_conv); }
Test(gpu_anchor, transposed_convolutions_of_all_layouts_agree_with_the_evaluator) { check_seeds(40, plain_transposed); }

/* ---- matrix units ---- */

/* Devices without such units imitate them. */
static void check_units(uint64_t count, bool tf32, AnchorCase (*make)(uint64_t seed)) {
    Bench b;
    uint64_t seed, end;
    anchor_bench_open(&b);
    b.limits.matrix = true;
    b.limits.tf32 = tf32;
    for (seeds(count, &seed, &end); seed < end; seed++) {
        if (!share_turn()) continue;
        size_t lead = look_like_another(&b, seed);
        check(&b, make(seed), lead);
    }
    bench_close(&b);
}

static AnchorCase unit_matmul(uint64_t seed) { return anchor_case_matmul(seed, ANCHOR_UNITS); }
static AnchorCase unit_conv(uint64_t seed) { return anchor_case_conv(seed, false, ANCHOR_UNITS); }
static AnchorCase unit_transposed(uint64_t seed) { return anchor_case_conv(seed, true, ANCHOR_UNITS); }
static AnchorCase tf32_matmul(uint64_t seed) { return anchor_case_matmul(seed, ANCHOR_TF32); }
static AnchorCase tf32_conv(uint64_t seed) { return anchor_case_conv(seed, seed & 1, ANCHOR_TF32); }

Test(gpu_anchor, matmuls_on_matrix_units_agree_with_the_evaluator) { check_units(24, false, unit_matmul); }
Test(gpu_anchor, convolutions_on_matrix_units_agree_with_the_evaluator) { check_units(24, false, unit_conv); }
Test(gpu_anchor, transposed_convolutions_on_matrix_units_agree_with_the_evaluator) {
    check_units(10, false, unit_transposed);
}
Test(gpu_anchor, matmuls_of_tf32_agree_with_the_evaluator) { check_units(12, true, tf32_matmul); }
Test(gpu_anchor, convolutions_of_tf32_agree_with_the_evaluator) { check_units(10, true, tf32_conv); }

Test(gpu_anchor, matmuls_of_f32_by_copies_ahead_agree_with_the_evaluator) { check_units(16, false, tf32_matmul); }
Test(gpu_anchor, convolutions_of_f32_by_copies_ahead_agree_with_the_evaluator) { check_units(12, false, tf32_conv); }

/* ---- the driver's library ---- */

/* A library of products that is a plain loop on the host, so that what is asked of one is proven without it. */
typedef struct Library {
    GpuDriver driver;
    bool bare; /* takes no bias and no activation */
    int calls, fused;
    int longer; /* calls of columns that fill whole 16 bytes */
} Library;

static Library library;

static bool library_supports(GpuContext *context, const GpuGemm *g) {
    (void)context;
    return !library.bare || (!g->bias && g->activation == GPU_ACTIVATION_NONE);
}

/* A matrix of `lines` lines and what follows it in a batch, on the host. */
static void *fetched(GpuContext *context, Stream *stream, const GpuGemm *g, const void *data, int64_t lines,
                     int64_t width, int64_t line, int64_t step, Arena *arena, size_t *out_bytes) {
    cr_assert(line >= width, "lines of %lld elements begin every %lld", (long long)width, (long long)line);
    *out_bytes = (size_t)((g->batch - 1) * step + (lines - 1) * line + width) * dtype_size(g->dtype);
    void *host = arena_alloc(arena, *out_bytes);
    DONE(library.driver.copy(context, stream, COPY_OUT, host, data, *out_bytes));
    DONE(library.driver.synchronize(context, stream));
    return host;
}

static double activated(double x, GpuActivation activation) {
    if (activation == GPU_ACTIVATION_RELU) return x < 0 ? 0 : x;
    return activation == GPU_ACTIVATION_NONE
               ? x
               : 0.5 * x * (1 + tanh(M_2_SQRTPI * M_SQRT1_2 * (x + 0.044715 * x * x * x)));
}

enum { LIBRARY_WORKSPACE = 100000 };

static Status library_gemm(GpuContext *context, Stream *stream, const GpuGemm *g, size_t *out_workspace) {
    *out_workspace = g->workspace_bytes < LIBRARY_WORKSPACE ? LIBRARY_WORKSPACE : 0;
    if (*out_workspace) return NULL;
    cr_assert(g->workspace && (uintptr_t)g->workspace % 256 == 0);
    Arena *arena = arena_create(0);
    size_t bytes;
    GpuGemm one = *g;
    one.batch = 1;
    bool ta = g->transpose_a, tb = g->transpose_b;
    const void *a = fetched(context, stream, g, g->a, ta ? g->k : g->m, ta ? g->m : g->k, g->lda, g->stride_a, arena,
                            &bytes),
               *b = fetched(context, stream, g, g->b, tb ? g->n : g->k, tb ? g->k : g->n, g->ldb, g->stride_b, arena,
                            &bytes),
               *c = g->c ? fetched(context, stream, g, g->c, g->m, g->n, g->ldc, g->stride_c, arena, &bytes) : NULL,
               *bias = g->bias ? fetched(context, stream, &one, g->bias, 1, g->n, g->n, 0, arena, &bytes) : NULL;
    void *d = fetched(context, stream, g, g->d, g->m, g->n, g->ldc, g->stride_c, arena, &bytes);
    cr_assert(g->beta == 0 || g->c);
    for (int64_t i = 0; i < g->batch * g->m * g->n; i++) {
        int64_t batch = i / (g->m * g->n), row = i / g->n % g->m, column = i % g->n;
        double sum = 0;
        for (int64_t k = 0; k < g->k; k++)
            sum +=
                dtype_load_double(g->dtype, a, batch * g->stride_a + (ta ? k * g->lda + row : row * g->lda + k)) *
                dtype_load_double(g->dtype, b, batch * g->stride_b + (tb ? column * g->ldb + k : k * g->ldb + column));
        int64_t at = batch * g->stride_c + row * g->ldc + column;
        sum = (double)g->alpha * sum + (c ? (double)g->beta * dtype_load_double(g->dtype, c, at) : 0) +
              (bias ? dtype_load_double(g->dtype, bias, column) : 0);
        dtype_store_double(g->dtype, d, at, activated(sum, g->activation));
    }
    DONE(library.driver.copy(context, stream, COPY_IN, (void *)(uintptr_t)g->d, d, bytes));
    DONE(library.driver.synchronize(context, stream));
    arena_destroy(arena);
    library.calls++;
    library.longer += g->n % 8 == 0 && g->ldc == g->n;
    library.fused += c || bias || g->activation != GPU_ACTIVATION_NONE;
    return NULL;
}

static void use_library(Bench *b, bool bare) {
    library = (Library){.driver = *gpu_device(b->device)->driver, .bare = bare};
    library.driver.gemm = library_gemm;
    library.driver.gemm_supports = library_supports;
    library.driver.gemm_name = "library";
    gpu_device(b->device)->driver = &library.driver;
}

static void check_library(bool bare) {
    Bench b;
    int count = 0;
    uint64_t seed, end;
    anchor_bench_open(&b);
    use_library(&b, bare);
    for (seeds(80, &seed, &end); seed < end; seed++, count++) {
        check(&b, anchor_case_matmul(seed, seed % 8 ? ANCHOR_PLAIN : ANCHOR_ONE_RESULT), 0);
    }
    cr_assert_gt(library.calls, count / 3);
    cr_assert(bare ? library.fused < library.calls : library.fused > count / 4);
    bench_close(&b);
}

Test(gpu_anchor, a_library_with_epilogues_is_asked_for_the_products_of_all_layouts) { check_library(false); }
Test(gpu_anchor, a_library_without_epilogues_is_asked_for_the_products_of_all_layouts) { check_library(true); }

/* Results of f16 whose columns do not fill whole 16 bytes: by several calls, each with columns of zeros to scratch memory. */
static AnchorCase odd_columns(const AnchorStep *steps, int count, bool deep) {
    AnchorCase c = anchor_case_new("matmul", 1);
    const int64_t a[] = {2, 1300, 256}, b[] = {deep ? 205 : 256, deep ? 256 : 205}, y[] = {2, 1300, 205};
    const Dim *sizes[3];
    Value *inputs[] = {anchor_case_input(&c, DT_F16, 3, a), anchor_case_input(&c, DT_F16, 2, b)};
    for (int i = 0; i < 3; i++) sizes[i] = dim_const(c.graph->dims, y[i]);
    c.node = graph_add_node(c.graph, NULL, NODE_ANCHOR, c.what, inputs, 2);
    if (deep) node_set_ints(c.node, "perm_b", (const int64_t[]){1, 0}, 2);
    anchor_case_results(&c, DT_F16, 3, sizes, steps, count);
    c.constant[1] = c.constant[2] = true;
    c.terms = 256;
    return c;
}

Test(gpu_anchor, results_of_odd_columns_are_computed_with_more_of_them) {
    static const AnchorStep steps[] = {ANCHOR_BIAS, ANCHOR_ADD, ANCHOR_RELU};
    Bench b;
    anchor_bench_open(&b);
    b.limits.multiprocessors = 2;
    use_library(&b, false);
    for (int deep = 0; deep < 2; deep++) {
        library.calls = library.longer = 0;
        check(&b, odd_columns(NULL, 0, deep), 0);
        cr_assert(library.calls == 2 && library.longer == 2);
        check(&b, odd_columns(steps, 3, deep), 2);
        cr_assert(library.calls == 4 && library.longer == 4);
    }
    bench_close(&b);
}

/* ---- convolutions of one tap ---- */

static AnchorCase pointwise(uint64_t seed, bool constant) {
    static const AnchorStep steps[] = {ANCHOR_BIAS, ANCHOR_ADD, ANCHOR_RELU};
    AnchorCase c = anchor_case_new(seed & 1 ? "conv_transpose" : "conv", seed);
    const int64_t x[] = {2, 9, 11, 37}, y[] = {2, 9, 11, 70}, w[] = {seed & 1 ? 37 : 70, seed & 1 ? 70 : 37, 1, 1};
    Value *inputs[] = {anchor_case_input(&c, DT_F32, 4, x), anchor_case_input(&c, DT_F32, 4, w)};
    const Dim *sizes[4];
    for (int i = 0; i < 4; i++) sizes[i] = dim_const(c.graph->dims, y[i]);
    const Dim *zero = dim_const(c.graph->dims, 0);
    c.node = graph_add_node(c.graph, NULL, NODE_ANCHOR, c.what, inputs, 2);
    node_set_ints(c.node, "strides", (int64_t[]){1, 1}, 2);
    node_set_ints(c.node, "dilations", (int64_t[]){1, 1}, 2);
    node_set_dims(c.node, "pads", (const Dim *[]){zero, zero, zero, zero}, 4);
    anchor_case_results(&c, DT_F32, 4, sizes, steps, 3);
    c.constant[1] = c.constant[2] = constant;
    c.terms = 37;
    return c;
}

Test(gpu_anchor, convolutions_of_one_tap_are_products) {
    Bench b;
    anchor_bench_open(&b);
    for (uint64_t seed = 0; seed < 4; seed++) check(&b, pointwise(seed, seed & 2), 0);
    use_library(&b, false);
    for (uint64_t seed = 0; seed < 4; seed++) check(&b, pointwise(seed, seed & 2), 0);
    cr_assert_eq(library.calls, 4);
    bench_close(&b);
}

/* ---- depthwise convolutions of known taps ---- */

typedef struct Depthwise {
    const char *name;
    DType dtype;
    int64_t images, in[2], channels, kernel, stride, pads[4];
    bool constant; /* the weight and bias */
    int skipped;   /* of bias, sum and ReLU: so many of the first are left out */
} Depthwise;

static const Depthwise depthwises[] = {
    {"3x3, lines and columns that patches do not divide", DT_F32, 2, {9, 11}, 20, 3, 1, {1, 1, 1, 1}, true},
    {"3x3, many blocks", DT_F32, 2, {41, 77}, 68, 3, 1, {1, 1, 1, 1}, true},
    {"3x3, by strides", DT_F32, 2, {14, 23}, 24, 3, 2, {1, 1, 1, 1}, true},
    {"3x3, by strides, padded at the end alone", DT_F32, 1, {16, 16}, 8, 3, 2, {0, 0, 1, 1}, true},
    {"3x3, no padding", DT_F32, 1, {3, 3}, 4, 3, 1, {0, 0, 0, 0}, true},
    {"3x3, more padding than taps", DT_F32, 1, {2, 5}, 16, 3, 1, {4, 5, 3, 2}, true},
    {"3x3, less than none", DT_F32, 1, {9, 9}, 16, 3, 1, {-1, -2, 1, -1}, true},
    {"5x5", DT_F32, 1, {13, 13}, 32, 5, 1, {2, 2, 2, 2}, true},
    {"5x5, by strides", DT_F32, 1, {13, 18}, 12, 5, 2, {2, 2, 2, 2}, true},
    {"7x7", DT_F32, 1, {10, 9}, 12, 7, 1, {3, 3, 3, 3}, true},
    {"7x7, by strides", DT_F32, 1, {10, 9}, 12, 7, 2, {3, 3, 3, 3}, true},
    {"3x3 of f16", DT_F16, 2, {9, 11}, 40, 3, 1, {1, 1, 1, 1}, true},
    {"3x3 of f16, by strides, bare", DT_F16, 2, {9, 11}, 40, 3, 2, {1, 1, 1, 1}, true, 3},
    {"3x3 of f16, by strides of 3, ReLU alone", DT_F16, 2, {9, 11}, 40, 3, 3, {1, 1, 1, 1}, true, 2},
    {"5x5 of f16", DT_F16, 1, {9, 11}, 24, 5, 1, {2, 2, 2, 2}, true, 3},
    {"5x5 of bf16, by strides", DT_BF16, 2, {9, 11}, 24, 5, 2, {2, 1, 2, 1}, true},
    {"3x3 of f64", DT_F64, 1, {9, 11}, 6, 3, 1, {1, 1, 1, 1}, true},
    {"a weight that comes with a run", DT_F32, 1, {9, 11}, 16, 3, 1, {1, 1, 1, 1}, false},
    {"channels that packs do not divide", DT_F32, 1, {9, 11}, 18, 3, 1, {1, 1, 1, 1}, true},
};

static AnchorCase depthwise_case(const Depthwise *d, uint64_t seed) {
    static const AnchorStep steps[] = {ANCHOR_BIAS, ANCHOR_ADD, ANCHOR_RELU};
    AnchorCase c = anchor_case_new("conv", seed);
    const int64_t x[] = {d->images, d->in[0], d->in[1], d->channels}, w[] = {d->channels, 1, d->kernel, d->kernel};
    Value *inputs[] = {anchor_case_input(&c, d->dtype, 4, x), anchor_case_input(&c, d->dtype, 4, w)};
    const Dim *sizes[4], *pads[4];
    for (int i = 0; i < 4; i++) sizes[i] = dim_const(c.graph->dims, x[i]);
    for (int i = 0; i < 4; i++) pads[i] = dim_const(c.graph->dims, d->pads[i]);
    for (int i = 0; i < 2; i++)
        sizes[1 + i] = dim_const(c.graph->dims, (d->in[i] + d->pads[i] + d->pads[2 + i] - d->kernel) / d->stride + 1);
    c.node = graph_add_node(c.graph, NULL, NODE_ANCHOR, c.what, inputs, 2);
    node_set_ints(c.node, "strides", (int64_t[]){d->stride, d->stride}, 2);
    node_set_ints(c.node, "dilations", (int64_t[]){1, 1}, 2);
    node_set_int(c.node, "group", d->channels);
    node_set_dims(c.node, "pads", pads, 4);
    anchor_case_results(&c, d->dtype, 4, sizes, steps + d->skipped, 3 - d->skipped);
    c.constant[1] = c.constant[2] = d->constant;
    c.terms = d->kernel * d->kernel;
    c.what = d->name;
    return c;
}

/* In memory that begins at multiples of a pack, and between two of them. */
Test(gpu_anchor, depthwise_convolutions_of_known_taps_agree_with_the_evaluator) {
    Bench b;
    anchor_bench_open(&b);
    for (size_t i = 0; i < sizeof depthwises / sizeof *depthwises; i++) {
        check(&b, depthwise_case(&depthwises[i], i), 0);
        if (i % 4 == 0) check(&b, depthwise_case(&depthwises[i], i), 8);
    }
    bench_close(&b);
}

/* ---- one anchor, many sizes ---- */

Test(gpu_anchor, one_anchor_runs_any_number_of_rows_and_compiles_nothing_more) {
    static const int64_t rows[] = {1, 2, 16, 17, 64, 65, 128, 129, 200, 1};
    Bench b;
    anchor_bench_open(&b);
    b.limits.multiprocessors = 4;
    AnchorCase c = anchor_case_new("matmul", 7);
    const Dim *dims[] = {dim_symbol(c.graph->dims, "rows"), dim_const(c.graph->dims, 96)};
    Value *x = graph_add_input(c.graph, NULL, DT_F32, 2, dims);
    c.count = 1;
    Value *w = anchor_case_input(&c, DT_F32, 2, (int64_t[]){96, 150});
    c.node = graph_add_node(c.graph, NULL, NODE_ANCHOR, "matmul", (Value *[]){x, w}, 2);
    dims[1] = dim_const(c.graph->dims, 150);
    anchor_case_results(&c, DT_F32, 2, dims, (AnchorStep[]){ANCHOR_BIAS, ANCHOR_GELU}, 2);
    c.terms = 96;
    DeviceAnchor *anchor;
    uint32_t released;
    DONE(
        gpu_anchor_prepare(b.device, c.node, (const Tensor *[]){NULL, c.tensors[1], c.tensors[2]}, &anchor, &released));
    cr_assert_eq(released, 6u);
    cr_assert_geq(gpu_anchor_bytes(anchor), (size_t)(96 * 150 + 150) * 4);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        c.tensors[0] = anchor_case_tensor(c.graph->arena, &c.state, DT_F32, 2, (int64_t[]){rows[i], 96});
        run_case(&b, &c, anchor, released, 0);
    }
    gpu_anchor_release(b.device, anchor);
    graph_destroy(c.graph);
    bench_close(&b);
}

/* ---- sizes that do not fit ---- */

Test(gpu_anchor, sizes_that_do_not_fit_are_refused) {
    Bench b;
    anchor_bench_open(&b);
    for (int i = 0; i < anchor_misfit_count; i++) {
        AnchorCase c = anchor_case_misfit(&anchor_misfits[i]);
        DeviceAnchor *anchor;
        uint32_t released;
        DONE(gpu_anchor_prepare(b.device, c.node, (const Tensor *[]){NULL, c.tensors[1]}, &anchor, &released));
        Placed x = place(&b, c.graph->arena, c.tensors[0], true, 0),
               w = place(&b, c.graph->arena, c.tensors[1], true, 0),
               y = place(&b, c.graph->arena, tensor_new(c.graph->arena, DT_F32, 4, anchor_misfits[i].y), false, 0);
        Status status =
            gpu_anchor_run(b.device, b.stream, anchor, NULL, (const Tensor *[]){&x.tensor, &w.tensor}, NULL, &y.tensor);
        cr_expect_eq(status_code(status), STATUS_INVALID, "%s", anchor_misfits[i].name);
        status_free(status);
        gpu_release(b.device, b.stream, NULL, x.block);
        gpu_release(b.device, b.stream, NULL, w.block);
        gpu_release(b.device, b.stream, NULL, y.block);
        gpu_anchor_release(b.device, anchor);
        graph_destroy(c.graph);
    }
    bench_close(&b);
}
