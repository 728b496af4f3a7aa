/* SPDX-License-Identifier: Apache-2.0 */
/* Regions as kernels: the text of a few, and what all of them compute, against the evaluator of primitives, run by the
 * interpreter of the IR. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include "codegen/codegen.h"
#include "rounding.h"
#include "graph/eval/eval.h"
#include "graph/space.h"
#include "kernel_eval.h"

static Status lower(Graph *body, RegionKernel *out) {
    Node region = {.kind = NODE_REGION, .op = "region", .subgraphs = &body, .subgraph_count = 1};
    Target target = {0};
    return codegen_region(body->arena, body->dims, &region, &target, out);
}

/* ---- texts ---- */

static const struct {
    const char *name, *text, *kernel;
} texts[] = {
    {"elementwise axes run together; a known divisor of the size is a fact",
     "graph (x: f32[b, s, 96], y: f32[b, s, 96]) -> (v) {\n v: f32[b, s, 96] = add x, y\n}",
     "kernel params 1 stages 1 lane_block 1024\naxis lane p0 multiple 32\nbuffer f32 in\nbuffer f32 in\nbuffer f32 "
     "out\n"
     "%0 = load f32 b0[1]\n%1 = load f32 b1[1]\n%2 = add f32 %0 %1\nstore b2[1] %2\n"},
    {"the order of inputs does not matter", "graph (y: f32[n], x: f32[m, n]) -> (v) {\n v: f32[m, n] = sub x, y\n}",
     "kernel params 2 stages 1 lane_block 1024\naxis task p0\naxis lane p1\nbuffer f32 in\nbuffer f32 in\nbuffer f32 "
     "out\n"
     "%0 = load f32 b0[p1 1]\n%1 = load f32 b1[0 1]\n%2 = sub f32 %0 %1\nstore b2[p1 1] %2\n"},
    {"a scalar has one lane", "graph (x: i64[]) -> (v) {\n v: i64[] = neg x\n}",
     "kernel params 0 stages 1 lane_block 1024\naxis lane 1\nbuffer i64 in\nbuffer i64 out\n%0 = load i64 b0[0]\n%1 = "
     "neg i64 %0\n"
     "store b1[0] %1\n"},
    {"f16 is computed in f32 and rounded by the store",
     "graph (x: f16[n]) -> (v) {\n f: f32[n] = cast x {to = f32}\n g: f32[n] = mul f, f\n v: f16[n] = cast g {to = "
     "f16}\n}",
     "kernel params 1 stages 1 lane_block 1024\naxis lane p0\nbuffer f16 in\nbuffer f16 out\n%0 = load f32 b0[1]\n%1 = "
     "mul f32 %0 %0\n"
     "store b1[1] %1\n"},
    {"floats of 8 bits are bytes, whose numbers are put together where they are cast; their scale is a parameter",
     "graph (x: f8e5m2[n]) -> (v) {\n s = constant f32[] 0.3\n f: f32[n] = cast x {to = f32}\n v: f32[n] = mul f, s\n}",
     "kernel params 2 stages 1 lane_block 1024\naxis lane p0\nbuffer u8 in\nbuffer f32 out\n%0 = load u8 b0[1]\n%1 = "
     "cast i32 %0\n%2 = const i32 127\n%3 = and i32 %1 %2\n%4 = const i32 123\n%5 = gt bool %3 %4\n%6 = const i32 "
     "124\n%7 = eq bool %3 %6\n%8 = const i32 2139095040\n%9 = const i32 2143289344\n%10 = select i32 %7 %8 %9\n%11 = "
     "const i32 4\n%12 = lt bool %3 %11\n%13 = cast f32 %3\n%14 = const f32 1.52587890625e-05\n%15 = mul f32 %13 "
     "%14\n%16 = bitcast i32 %15\n%17 = const i32 21\n%18 = shl i32 %3 %17\n%19 = const i32 939524096\n%20 = add i32 "
     "%18 %19\n%21 = select i32 %12 %16 %20\n%22 = select i32 %5 %10 %21\n%23 = const i32 128\n%24 = and i32 %1 "
     "%23\n%25 = const i32 24\n%26 = shl i32 %24 %25\n%27 = or i32 %22 %26\n%28 = bitcast f32 %27\n%29 = param f32 "
     "p1\n%30 = mul f32 %28 %29\nstore b1[1] %30\n"},
    {"those of f8e8m0 are powers of two", "graph (x: f32[n]) -> (v) {\n v: f8e8m0[n] = cast x {to = f8e8m0}\n}",
     "kernel params 1 stages 1 lane_block 1024\naxis lane p0\nbuffer f32 in\nbuffer u8 out\n%0 = load f32 b0[1]\n%1 = "
     "bitcast i32 %0\n%2 = const i32 2147483647\n%3 = and i32 %1 %2\n%4 = const i32 2139095040\n%5 = ge bool %3 %4\n%6 "
     "= const i32 255\n%7 = const i32 8388607\n%8 = add i32 %3 %7\n%9 = const i32 23\n%10 = shr i32 %8 %9\n%11 = ge "
     "bool %10 %6\n%12 = const i32 254\n%13 = select i32 %11 %12 %10\n%14 = select i32 %5 %6 %13\n%15 = cast u8 "
     "%14\nstore b1[1] %15\n"},
    {"integers of 4 bits are bytes", "graph (x: f32[n]) -> (v) {\n v: i4[n] = cast x {to = i4}\n}",
     "kernel params 1 stages 1 lane_block 1024\naxis lane p0\nbuffer f32 in\nbuffer i8 out\n%0 = load f32 b0[1]\n%1 = "
     "cast i8 %0\n%2 = const i8 7\n%3 = min i8 %1 %2\n%4 = const i8 -8\n%5 = max i8 %3 %4\nstore b1[1] %5\n"},
    {"rows are reduced along lanes, and read again in the next stage",
     "graph (x: f32[b, s, n]) -> (v) {\n m: f32[b, s, 1] = reduce_max x {axes = [2]}\n v: f32[b, s, n] = sub x, m\n}",
     "kernel params 2 stages 2\naxis task p0\naxis reduce_lane p1\nbuffer f32 in\nbuffer f32 out\n%0 = load f32 b0[p1 "
     "1]\n"
     "%1 = reduce_max f32 %0\n%2 = sub f32 %0 %1 @1\nstore b1[p1 1] %2 @1\n"},
    {"columns are summed up beside rows",
     "graph (x: f32[m, n]) -> (v, c) {\n a: f32[m, 1] = reduce_max x {axes = [1]}\n c: f32[1, n] = reduce_sum x {axes "
     "= [0]}\n"
     " v: f32[m, n] = sub x, a\n}",
     "kernel params 2 stages 2 band 64\naxis task p0\naxis reduce_lane p1\nbuffer f32 in\nbuffer f32 out\nbuffer f32 "
     "out\n"
     "%0 = load f32 b0[p1 1]\n%1 = reduce_max f32 %0\n%2 = sub f32 %0 %1 @1\nstore b1[p1 1] %2 @1\nstore b2[0 1] %0 "
     "sum\n"},
    {"columns are reduced in lanes", "graph (x: f32[m, n]) -> (v) {\n v: f32[1, n] = reduce_sum x {axes = [0]}\n}",
     "kernel params 2 stages 2 lane_block 256 band 64\naxis lane p0\naxis reduce p1\nbuffer f32 in\nbuffer f32 out\n"
     "%0 = load f32 b0[1 p0]\n"
     "%1 = reduce_sum f32 %0\nstore b1[1 0] %1 @1\n"},
    {"the middle of a tensor", "graph (x: f32[b, s, n]) -> (v) {\n v: f32[b, 1, n] = reduce_prod x {axes = [1]}\n}",
     "kernel params 4 stages 2 lane_block 256 band 64\naxis task p0\naxis lane p1\naxis reduce p2\nbuffer f32 in\n"
     "buffer f32 out\n"
     "%0 = load f32 b0[p3 1 p1]\n%1 = reduce_prod f32 %0\nstore b1[p1 1 0] %1 @1\n"},
    {"a transpose is cut into tiles", "graph (x: f32[m, n]) -> (v) {\n v: f32[n, m] = permute x {perm = [1, 0]}\n}",
     "kernel params 2 stages 1 lane_block 128 tile 0:256\naxis task p0\naxis lane p1\nbuffer f32 in\nbuffer f32 "
     "out\n%0 "
     "= load f32 b0[1 p0]\n"
     "store b1[p1 1] %0\n"},
    {"offsets and strides of a slice are parameters",
     "graph (x: f32[b, 96]) -> (v) {\n s: f32[b, 32] = slice x {shape = (b, 32), start = (0, 64), step = [1, 1]}\n v: "
     "f32[b, 32] = abs s\n}",
     "kernel params 4 stages 1 lane_block 1024\naxis task p0\naxis lane 32 multiple 32\nbuffer f32 in\nbuffer f32 out\n"
     "%0 = load f32 b0[p1 1 + p2]\n%1 = abs f32 %0\nstore b1[p3 1] %1\n"},
    {"min keeps NaN: against a number, it is the second operand that is handed on",
     "graph (x: f32[n], y: f32[n]) -> (v, w) {\n c = constant f32[] 6\n v: f32[n] = min x, c\n w: f32[n] = min x, y\n}",
     "kernel params 1 stages 1 lane_block 1024\naxis lane p0\nbuffer f32 in\nbuffer f32 in\nbuffer f32 out\nbuffer f32 "
     "out\n"
     "%0 = const f32 6\n%1 = load f32 b0[1]\n%2 = min f32 %0 %1\n%3 = ne bool %1 %1\n%4 = load f32 b1[1]\n%5 = min f32 "
     "%1 %4\n"
     "%6 = select f32 %3 %1 %5\nstore b2[1] %2\nstore b3[1] %6\n"},
    {"scales and zero points are parameters, one a rounding",
     "graph (x: u8[n]) -> (y) {\n s = constant f32[] 0.25\n z = constant f32[] 128\n l = constant f32[] 0\n h = "
     "constant "
     "f32[] 255\n a: f32[n] = cast x {to = f32}\n b: f32[n] = sub a, z\n c: f32[n] = mul b, s\n d: f32[n] = abs c\n t "
     "= "
     "constant f32[] 0.3\n e: f32[n] = div d, t\n r: f32[n] = round e\n f: f32[n] = add r, z\n g: f32[n] = max f, l\n "
     "i: f32[n] = min g, h\n y: u8[n] = cast i {to = u8}\n}",
     "kernel params 5 stages 1 lane_block 1024\naxis lane p0\nbuffer u8 in\nbuffer u8 out\n%0 = load u8 b0[1]\n%1 = "
     "cast "
     "f32 %0\n%2 = param f32 p1\n%3 = sub f32 %1 %2\n%4 = param f32 p2\n%5 = mul f32 %3 %4\n%6 = abs f32 %5\n%7 = "
     "param "
     "f32 p3\n%8 = div f32 %6 %7 by_row\n%9 = rint f32 %8\n%10 = param f32 p4\n%11 = add f32 %9 %10\n%12 = cast u8 "
     "%11\nstore b1[1] %12\n"},
    {"casts round to narrow floats, but for those of a policy's precision",
     "graph (x: f32[n]) -> (y, z) {\n a: bf16[n] = cast x {to = bf16}\n y: f32[n] = cast a {to = f32}\n b: bf16[n] = "
     "cast x "
     "{to = bf16, loose = 1}\n c: bf16[n] = add b, b\n z: f32[n] = cast c {to = f32}\n}",
     "kernel params 1 stages 1 lane_block 1024\naxis lane p0\nbuffer f32 in\nbuffer f32 out\nbuffer f32 out\n%0 = load "
     "f32 "
     "b0[1]\n%1 = round_bf16 f32 %0\n%2 = add f32 %0 %0\nstore b1[1] %1\nstore b2[1] %2\n"},
    {"a quantization and its inverse are bounds, with the parameters of one rounding",
     "graph (x: f32[n]) -> (y) {\n s = constant f32[] 0.3\n z = constant f32[] 7\n l = constant f32[] 0\n h = constant "
     "f32[] 255\n e: f32[n] = div x, s\n r: f32[n] = round e\n f: f32[n] = add r, z\n g: f32[n] = max f, l\n "
     "i: f32[n] = min g, h\n u: u8[n] = cast i {to = u8}\n a: f32[n] = cast u {to = f32}\n b: f32[n] = sub a, z\n "
     "y: f32[n] = mul b, s\n}",
     "kernel params 3 stages 1 lane_block 1024\naxis lane p0\nbuffer f32 in\nbuffer f32 out\n%0 = const f32 255\n%1 = "
     "load f32 b0[1]\n%2 = param f32 p1\n%3 = div f32 %1 %2 by_row\n%4 = rint f32 %3\n%5 = param f32 p2\n%6 = add f32 "
     "%4 %5\n%7 = const f32 0\n%8 = max f32 %6 %7\n%9 = min f32 %0 %8\n%10 = sub f32 %9 %5\n%11 = mul f32 %10 "
     "%2\nstore b1[1] %11\n"},
};

Test(lower, texts) {
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        Graph *body = NULL;
        RegionKernel k;
        Status status = graph_parse(texts[i].text, &body);
        cr_assert(!status, "%s: %s", texts[i].name, status_message(status));
        status = lower(body, &k);
        cr_assert(!status, "%s: %s", texts[i].name, status_message(status));
        cr_expect_str_eq(kernel_text(body->arena, k.kernel), texts[i].kernel, "%s:\n%s", texts[i].name,
                         kernel_text(body->arena, k.kernel));
        graph_destroy(body);
    }
}

/* ---- regions of one plan ---- */

#define REGION(result, inputs, a, b, constant, sum)                                                                    \
    " " result ": f32[n, 8] = region " inputs " graph \"region\" (" a ": f32[n, 8], " b                                \
    ": f32[n, 8]) -> (v) {\n k = constant f32[] " constant "\n u: f32[n, 8] = mul " a ", k\n v: f32[n, 8] = " sum      \
    "\n }\n"

Test(lower, equal_regions_are_lowered_once_and_no_others) {
    static const char *const text = "graph (x: f32[n, 8], y: f32[n, 8]) -> (c, d, e, f, g) {\n" REGION(
        "c", "x, y", "x", "y", "2", "add u, y")        /* the first */
        REGION("d", "y, c", "p", "q", "2", "add u, q") /* equal to it */
        REGION("e", "x, y", "x", "y", "3", "add u, y") /* another constant */
        REGION("f", "x, y", "x", "y", "2", "add u, x") /* another operand */
        REGION("g", "x, y", "x", "y", "2", "sub u, y") /* another primitive */
        "}\n";
    Graph *graph = NULL;
    Status status = graph_parse(text, &graph);
    cr_assert(!status, "%s", status_message(status));
    KernelPool pool = kernel_pool(graph->arena);
    Target target = {0};
    RegionKernel first = {0};
    FOR_EACH_NODE(region, graph) {
        RegionKernel made, alone;
        const char *name = region->outputs[0]->name;
        status = codegen_region_pooled(&pool, graph->dims, region, &target, &made);
        if (!status) status = codegen_region(graph->arena, graph->dims, region, &target, &alone);
        cr_assert(!status, "%s: %s", name, status_message(status));
        cr_expect_str_eq(kernel_text(graph->arena, made.kernel), kernel_text(graph->arena, alone.kernel), "%s", name);
        cr_assert_eq(made.buffer_count, alone.buffer_count, "%s", name);
        for (int b = 0; b < made.buffer_count; b++) {
            cr_expect_eq(made.buffer_input[b], alone.buffer_input[b], "%s, buffer %d", name, b);
            cr_expect_eq(made.buffer_output[b], alone.buffer_output[b], "%s, buffer %d", name, b);
        }
        if (!first.kernel) first = made;
        cr_expect_eq(made.params == first.params, strchr("cd", name[0]) != NULL, "%s", name);
    }
    graph_destroy(graph);
}

/* ---- inputs ---- */

static uint64_t state;
static uint64_t random_bits(void) {
    state ^= state << 13;
    state ^= state >> 7;
    return state ^= state << 17;
}
static int below(int n) { return (int)(random_bits() % (uint64_t)n); }

static const double special[] = {0.0, -0.0, HUGE_VAL, -HUGE_VAL, (double)NAN};
static bool specials; /* also these */

static Tensor *random_tensor(Arena *arena, const Value *value, const int64_t *symbols) {
    int64_t dims[MAX_RANK];
    for (int i = 0; i < value->rank; i++) dims[i] = dim_eval(value->dims[i], symbols);
    Tensor *t = tensor_new(arena, value->dtype, value->rank, dims);
    for (int64_t i = 0, count = tensor_count(t); i < count; i++) {
        if (dtype_is_float(t->dtype))
            dtype_store_double(t->dtype, t->data, i,
                               specials && !below(8) ? special[below(5)] : (below(4001) - 2000) / 1000.0);
        else
            dtype_store_int(t->dtype, t->data, i,
                            t->dtype == DT_BOOL ? below(2) : below(201) - (t->dtype == DT_U8 ? 0 : 100));
    }
    return t;
}

/* ---- comparison ---- */

static void *run_kernel(Arena *arena, const RegionKernel *k, const Graph *body, Tensor *const *inputs,
                        Tensor *const *expected, const int64_t *symbols, Tensor **outputs) {
    void **buffers = ARENA_ARRAY(arena, void *, k->buffer_count + 1);
    int64_t *params = ARENA_ARRAY(arena, int64_t, k->kernel->param_count + 1);
    for (int i = 0; i < k->kernel->param_count; i++) params[i] = dim_eval(k->params[i], symbols);
    for (int i = 0; i < body->outputs.count; i++)
        outputs[i] = tensor_new(arena, expected[i]->dtype, expected[i]->rank, expected[i]->dims);
    for (int i = 0; i < k->buffer_count; i++)
        buffers[i] = k->buffer_input[i] >= 0 ? inputs[k->buffer_input[i]]->data : outputs[k->buffer_output[i]]->data;
    kernel_eval(k->kernel, buffers, params);
    return buffers;
}

static void compare(const char *name, const Graph *body, const RegionKernel *k, Tensor *const *expected,
                    Tensor *const *got) {
    for (int o = 0; o < body->outputs.count; o++) {
        DType t = expected[o]->dtype;
        /* What is stored as f16 and bf16 is computed in f32; sums there are in another order. */
        double tolerance = (t == DT_F16 || t == DT_BF16 ? 4 : 128) * rounding_unit(t);
        for (int64_t i = 0; i < tensor_count(expected[o]); i++) {
            double a = dtype_load_double(t, expected[o]->data, i), b = dtype_load_double(t, got[o]->data, i);
            bool same = a == b || (a != a && b != b) || (dtype_is_float(t) && fabs(a - b) <= tolerance * (1 + fabs(a)));
            if (same) continue;
            Text text = text_make(body->arena);
            graph_print(&text, body);
            cr_assert(false, "%s: output %d[%lld] is %g, not %g\n%s\n%s", name, o, (long long)i, b, a, text.data,
                      kernel_text(body->arena, k->kernel));
        }
    }
}

static void check(const char *name, Graph *body, int64_t *symbols) {
    Arena *arena = body->arena;
    RegionKernel k;
    Status status = lower(body, &k);
    cr_assert(!status, "%s: %s", name, status_message(status));
    status = kernel_verify(k.kernel);
    cr_assert(!status, "%s: %s\n%s", name, status_message(status), kernel_text(body->arena, k.kernel));
    Tensor **inputs = ARENA_ARRAY(arena, Tensor *, body->inputs.count + 1);
    Tensor **expected = ARENA_ARRAY(arena, Tensor *, body->outputs.count + 1);
    Tensor **got = ARENA_ARRAY(arena, Tensor *, body->outputs.count + 1);
    for (int i = 0; i < body->inputs.count; i++) inputs[i] = random_tensor(arena, body->inputs.items[i], symbols);
    status = eval_graph(body, inputs, symbols, arena, expected);
    if (status && strstr(status_message(status), "is empty")) { /* argmax of nothing */
        status_free(status);
        return;
    }
    cr_assert(!status, "%s: %s", name, status_message(status));
    run_kernel(arena, &k, body, inputs, expected, symbols, got);
    compare(name, body, &k, expected, got);
    /* once more with the outputs in the memory of the inputs that they may overwrite */
    void **buffers = ARENA_ARRAY(arena, void *, k.buffer_count + 1);
    int64_t *params = ARENA_ARRAY(arena, int64_t, k.kernel->param_count + 1);
    for (int i = 0; i < k.kernel->param_count; i++) params[i] = dim_eval(k.params[i], symbols);
    uint64_t taken = 0;
    for (int o = 0; o < body->outputs.count; o++) {
        uint64_t free = k.inplace[o] & ~taken, own = free & -free;
        taken |= own;
        for (int i = 0; i < body->inputs.count && i < 64; i++)
            if (own >> i & 1) got[o]->data = inputs[i]->data;
    }
    for (int i = 0; i < k.buffer_count; i++)
        buffers[i] = k.buffer_input[i] >= 0 ? inputs[k.buffer_input[i]]->data : got[k.buffer_output[i]]->data;
    kernel_eval(k.kernel, buffers, params);
    compare("in place", body, &k, expected, got);
}

/* Sizes of the symbols, by their numbers. */
static int64_t *sizes(const Graph *body, int round) {
    static const int64_t rounds[][5] = {{2, 3, 5, 7, 4}, {1, 4, 1, 3, 2}, {3, 300, 2, 1, 5}, {2, 0, 3, 4, 1}};
    int count = dim_symbol_count(body->dims);
    int64_t *symbols = ARENA_ARRAY(body->arena, int64_t, count + 1);
    for (int i = 0; i < count; i++) symbols[i] = rounds[round % 4][i % 5];
    return symbols;
}

/* ---- given bodies ---- */

static const struct {
    const char *name, *text;
} bodies[] = {
    {"layer normalization", "graph (x: f32[b, s, 24], r: f32[b, s, 24], g: f32[24]) -> (y, a, m) {\n n = constant "
                            "f32[] 24\n e = constant f32[] 1e-05\n"
                            " a: f32[b, s, 24] = add x, r\n s1: f32[b, s, 1] = reduce_sum a {axes = [2]}\n m: f32[b, "
                            "s, 1] = div s1, n\n d: f32[b, s, 24] = sub a, m\n"
                            " q: f32[b, s, 24] = mul d, d\n s2: f32[b, s, 1] = reduce_sum q {axes = [2]}\n v: f32[b, "
                            "s, 1] = div s2, n\n w: f32[b, s, 1] = add v, e\n"
                            " t: f32[b, s, 1] = sqrt w\n i: f32[b, s, 1] = reciprocal t\n z: f32[b, s, 24] = mul d, "
                            "i\n y: f32[b, s, 24] = mul z, g\n}"},
    {"softmax over the middle axis, in f16",
     "graph (x: f16[b, s, n]) -> (y) {\n w: f32[b, s, n] = cast x {to = f32}\n a: f32[b, 1, n] = reduce_max w {axes = "
     "[1]}\n d: f32[b, s, n] = sub w, a\n"
     " e: f32[b, s, n] = exp d\n t: f32[b, 1, n] = reduce_sum e {axes = [1]}\n v: f32[b, s, n] = div e, t\n y: f16[b, "
     "s, n] = cast v {to = f16}\n}"},
    {"a causal mask by indices",
     "graph (x: f32[b, s, n]) -> (y) {\n i: i64[b, s, n] = iota {shape = (b, s, n), axis = 1, dtype = i64}\n"
     " j: i64[b, s, n] = iota {shape = (b, s, n), axis = 2, dtype = i64}\n c: bool[b, s, n] = le j, i\n z = constant "
     "f32[] 0\n"
     " y: f32[b, s, n] = where c, x, z\n}"},
    {"halves of random words, beside what is permuted",
     "graph (k: u64[], x: u32[b, s, n]) -> (y, r) {\n p: u32[b, s, n] = philox k {shape = (b, s, n), halves = 1}\n"
     " r: u32[n, b, s] = permute p {perm = [2, 0, 1]}\n y: u32[b, s, n] = xor x, p\n}"},
    {"random bits, permuted and masked", "graph (k: u64[], x: f32[n, b, s]) -> (y, r) {\n p: u32[b, s, n] = philox k "
                                         "{shape = (b, s, n)}\n r: u32[n, b, s] = permute p {perm = [2, 0, 1]}\n"
                                         " h = constant u32[] 2147483648\n c: bool[n, b, s] = lt r, h\n z = constant "
                                         "f32[] 0\n y: f32[n, b, s] = where c, x, z\n}"},
    {"an index through a reshape", "graph (x: i64[b, s*6]) -> (y) {\n i: i64[b, s, 6] = iota {shape = (b, s, 6), axis "
                                   "= 1, dtype = i64}\n r: i64[b, s*6] = reshape i {shape = (b, s*6)}\n"
                                   " y: i64[b, s*6] = add x, r\n}"},
    {"the largest and where it is, with a neighbour",
     "graph (x: f32[b, s, n]) -> (i, m, j) {\n i: i64[b, 1, n] = argmax x {axes = [1], last = 1}\n m: f32[b, 1, n] = "
     "reduce_max x {axes = [1]}\n"
     " j: i64[b, 1, n] = argmin x {axes = [1]}\n}"},
    {"any and all of bool", "graph (x: bool[b, s]) -> (a, o) {\n a: bool[b, 1] = reduce_min x {axes = [1]}\n o: "
                            "bool[b, 1] = reduce_max x {axes = [1]}\n}"},
    {"integers wrap, divide toward zero and keep the divisor's sign",
     "graph (x: i8[n], y: i8[n]) -> (a, b, c, d, e) {\n a: i8[n] = mul x, y\n b: i8[n] = div x, y\n c: i8[n] = mod x, "
     "y\n d: i8[n] = fmod x, y\n e: i8[n] = pow x, y\n}"},
    {"float remainders", "graph (x: f32[n], y: f32[n]) -> (a, b, s) {\n a: f32[n] = mod x, y\n b: f32[n] = fmod x, y\n "
                         "s: f32[n] = sign x\n}"},
    {"unsigned bytes", "graph (x: u8[n], y: u8[n]) -> (a, b, c, d) {\n a: u8[n] = shr x, y\n b: u8[n] = sub x, y\n c: "
                       "u8[n] = max x, y\n d: u8[n] = sign x\n}"},
    {"casts saturate", "graph (x: f32[n]) -> (a, b, c) {\n h = constant f32[] 1000\n z: f32[n] = mul x, h\n a: i8[n] = "
                       "cast z {to = i8}\n b: u8[n] = cast z {to = u8}\n c: bool[n] = cast x {to = bool}\n}"},
    {"casts to narrow integers and back, of whole numbers and others, within bounds and not",
     "graph (x: f32[n]) -> (i, s, b, t, y, j) {\n h = constant f32[] 1000\n z = constant f32[] 128\n l = constant "
     "f32[] "
     "0\n m = constant f32[] 255\n k = constant f32[] 254\n one = constant f32[] 1\n c: f32[n] = mul x, h\n r: f32[n] "
     "= round c\n q: f32[n] = add r, z\n d: f32[n] = max q, l\n e: f32[n] = min d, m\n u: u8[n] = cast e {to = u8}\n "
     "f: f32[n] = cast u {to = f32}\n i: f32[n] = div one, f\n v: i8[n] = cast r {to = i8}\n s: f32[n] = cast v {to = "
     "f32}\n w: u16[n] = cast r {to = u16}\n g: f32[n] = cast w {to = f32}\n b: f32[n] = div one, g\n a: u8[n] = cast "
     "x "
     "{to = u8}\n t: f32[n] = cast a {to = f32}\n o: f32[n] = min d, k\n y: u8[n] = cast o {to = u8}\n p: f32[n] = max "
     "r, l\n ab: f32[n] = min p, m\n j: i8[n] = cast ab {to = i8}\n}"},
    {"powers with plain exponents", "graph (x: f32[n]) -> (a, b, c, d) {\n two = constant f32[] 2\n half = constant "
                                    "f32[] 0.5\n three = constant f32[] 3\n inv = constant f32[] -1\n"
                                    " m: f32[n] = abs x\n a: f32[n] = pow x, two\n b: f32[n] = pow m, half\n c: f32[n] "
                                    "= pow x, three\n d: f32[n] = pow x, inv\n}"},
    {"two reductions of all axes",
     "graph (x: f32[b, s]) -> (m) {\n t: f32[1, 1] = reduce_sum x {axes = [0, 1]}\n c: f32[b, s] = sub x, t\n q: "
     "f32[b, s] = mul c, c\n u: f32[1, 1] = reduce_sum q {axes = [0, 1]}\n m: f32[] = reshape u {shape = ()}\n}"},
    {"a size given as a tensor", "graph (x: f32[b, s], n: i64[]) -> (m) {\n t: f32[b, 1] = reduce_sum x {axes = [1]}\n "
                                 "f: f32[] = cast n {to = f32}\n m: f32[b, 1] = mul t, f\n}"},
    {"a kept value read twice", "graph (x: f32[b, s], y: f32[b, s], z: f32[b, s]) -> (v) {\n a: f32[b, s] = add x, y\n "
                                "c: f32[b, s] = mul a, z\n m: f32[b, 1] = reduce_sum c {axes = [1]}\n"
                                " d: f32[b, s] = sub c, m\n q: f32[b, s] = mul d, d\n w: f32[b, 1] = reduce_sum q "
                                "{axes = [1]}\n v: f32[b, s] = mul d, w\n}"},
    {"a reversed and transposed input", "graph (x: f32[b, s, 6]) -> (y) {\n r: f32[b, s, 3] = slice x {shape = (b, s, "
                                        "3), start = (0, 0, 5), step = [1, 1, -2]}\n"
                                        " p: f32[3, s, b] = permute r {perm = [2, 1, 0]}\n q: f32[3, s*b] = reshape p "
                                        "{shape = (3, s*b)}\n y: f32[3, s*b] = neg q\n}"},
};

Test(lower, bodies_compute_what_their_primitives_say) {
    for (size_t i = 0; i < sizeof bodies / sizeof *bodies; i++)
        for (int round = 0; round < 4; round++) {
            Graph *body = NULL;
            state = 1 + i * 4 + (uint64_t)round;
            Status status = graph_parse(bodies[i].text, &body);
            cr_assert(!status, "%s: %s", bodies[i].name, status_message(status));
            check(bodies[i].name, body, sizes(body, round));
            graph_destroy(body);
        }
}

/* Bits that a shift drops decide no comparison of unsigned numbers: it is made without the shift, where the bound can be shifted. */
Test(lower, comparisons_without_shifts) {
    static const struct {
        const char *type, *shift, *bound;
        bool shifts; /* all the same */
    } rows[] = {
        {"u32", "8", "1677722", false}, {"u32", "8", "16777215", false}, {"u32", "8", "16777216", true},
        {"u32", "8", "0", false},       {"u32", "31", "1", false},       {"u32", "31", "2", true},
        {"u32", "1", "3000000", false}, {"i32", "8", "1000", true},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        Graph *body = NULL;
        RegionKernel k;
        Arena *arena = arena_create(0);
        state = 1 + i;
        Status status = graph_parse(
            arena_format(
                arena,
                "graph (seed: u64[]) -> (y, z) {\n n = constant %s[] %s\n k = constant %s[] %s\n w: u32[300] = "
                "philox seed {shape = (300)}\n v: %s[300] = cast w {to = %s}\n h: %s[300] = shr v, n\n y: "
                "bool[300] = ge h, k\n z: bool[300] = lt h, k\n}",
                rows[i].type, rows[i].shift, rows[i].type, rows[i].bound, rows[i].type, rows[i].type, rows[i].type),
            &body);
        cr_assert(!status, "%s", status_message(status));
        check(rows[i].bound, body, sizes(body, 0));
        status = lower(body, &k);
        cr_assert(!status, "%s", status_message(status));
        cr_expect_eq(strstr(kernel_text(arena, k.kernel), " shr ") != NULL, rows[i].shifts, "%s >> %s, %s",
                     rows[i].type, rows[i].shift, rows[i].bound);
        graph_destroy(body);
        arena_destroy(arena);
    }
}

/* Every elementwise primitive on every type it takes. */
static void check_elementwise(Prim prim, DType dtype, DType to) {
    const PrimInfo *info = prim_info(prim);
    if (prim == PRIM_BITCAST && (dtype_size(dtype) != dtype_size(to) || dtype_size(dtype) == 2)) return;
    if (prim == PRIM_BITCAST && (dtype == DT_BOOL || to == DT_BOOL || dtype_is_float(to))) return;
    Graph *body = graph_create(0);
    const Dim *n = dim_symbol(body->dims, "n");
    Value *inputs[3];
    for (int i = 0; i < info->inputs; i++)
        inputs[i] = graph_add_input(body, NULL, info->klass == PRIM_CLASS_SELECT && i == 0 ? DT_BOOL : dtype, 1, &n);
    Node *node = graph_add_prim(body, NULL, prim, inputs, info->inputs);
    bool logical = info->klass == PRIM_CLASS_COMPARE || info->klass == PRIM_CLASS_TEST;
    if (info->klass == PRIM_CLASS_CAST) node_set_dtype(node, "to", to);
    graph_add_output(body, node_add_output(node, NULL,
                                           info->klass == PRIM_CLASS_CAST ? to
                                           : logical                      ? DT_BOOL
                                                                          : dtype,
                                           1, &n));
    int64_t size = 400;
    state = 77;
    check(info->name, body, &size);
    graph_destroy(body);
}

Test(lower, every_elementwise_primitive_on_every_type) {
    static const DType types[] = {DT_F32, DT_F64, DT_F16, DT_BF16, DT_BOOL, DT_I8, DT_U8,
                                  DT_I16, DT_U16, DT_I32, DT_U32,  DT_I64,  DT_U64};
    enum { TYPES = sizeof types / sizeof *types };
    for (int p = 1; p < PRIM_COUNT; p++) {
        if (!prim_is_elementwise((Prim)p)) continue;
        for (int t = 0; t < TYPES; t++) {
            if (!prim_accepts((Prim)p, types[t])) continue;
            bool casts = prim_info((Prim)p)->klass == PRIM_CLASS_CAST;
            specials = true;
            for (int to = 0; to < (casts ? TYPES : 1); to++) check_elementwise((Prim)p, types[t], types[to]);
        }
    }
}

/* ---- random bodies ---- */

typedef struct Maker {
    Graph *g;
    Value *values[64];
    int count;
    const Dim *dims[4]; /* b, s, 6, 1 */
} Maker;

static Value *any(const Maker *m, DType dtype) {
    for (int tries = 0; tries < 50; tries++) {
        Value *v = m->values[below(m->count)];
        if (v->dtype == dtype) return v;
    }
    return NULL;
}

/* The broadcast shape of two values of rank 3; false when there is none. */
static bool broadcast(const Maker *m, const Value *a, const Value *b, const Dim **out) {
    for (int i = 0; i < 3; i++) {
        if (a->rank != 3 || b->rank != 3) return false;
        out[i] = a->dims[i] == m->dims[3] ? b->dims[i] : a->dims[i];
        if (b->dims[i] != m->dims[3] && b->dims[i] != out[i]) return false;
    }
    return true;
}

static Node *node_of(Maker *m, Prim prim, Value *a, Value *b) {
    return graph_add_prim(m->g, NULL, prim, (Value *[]){a, b}, b ? 2 : 1);
}

static Node *random_elementwise(Maker *m) {
    static const Prim unaries[] = {PRIM_NEG, PRIM_ABS, PRIM_TANH, PRIM_SIGMOID, PRIM_ERF, PRIM_ATAN};
    static const Prim binaries[] = {PRIM_ADD, PRIM_SUB, PRIM_MUL, PRIM_MAX, PRIM_MIN};
    Value *a = any(m, DT_F32), *b = below(3) ? any(m, DT_F32) : NULL;
    const Dim *dims[3];
    if (!a || a->rank != 3) return NULL;
    if (!b) {
        Node *node = node_of(m, unaries[below(6)], a, NULL);
        node_add_output(node, NULL, DT_F32, 3, a->dims);
        return node;
    }
    if (!broadcast(m, a, b, dims)) return NULL;
    Node *node = node_of(m, binaries[below(5)], a, b);
    node_add_output(node, NULL, DT_F32, 3, dims);
    return node;
}

static Node *random_reduce(Maker *m, int axis) {
    static const Prim prims[] = {PRIM_REDUCE_SUM, PRIM_REDUCE_MAX, PRIM_REDUCE_MIN, PRIM_ARGMAX};
    Value *a = any(m, DT_F32);
    if (!a || a->rank != 3) return NULL;
    const Dim *dims[3] = {a->dims[0], a->dims[1], a->dims[2]};
    int64_t axes = below(5) ? axis : below(3);
    dims[axes] = m->dims[3];
    int which = below(a->producer ? 3 : 4); /* positions of exact values alone */
    Node *node = node_of(m, prims[which], a, NULL);
    node_set_ints(node, "axes", &axes, 1);
    node_add_output(node, NULL, which == 3 ? DT_I64 : DT_F32, 3, dims);
    return node;
}

static Node *random_move(Maker *m) {
    static const int64_t perms[][3] = {{1, 0, 2}, {0, 2, 1}, {2, 1, 0}, {2, 0, 1}};
    Value *a = any(m, DT_F32);
    if (!a || a->rank != 3) return NULL;
    const Dim *dims[3];
    if (below(2)) {
        const int64_t *perm = perms[below(4)];
        for (int i = 0; i < 3; i++) dims[i] = a->dims[perm[i]];
        Node *node = node_of(m, PRIM_PERMUTE, a, NULL);
        node_set_ints(node, "perm", perm, 3);
        node_add_output(node, NULL, DT_F32, 3, dims);
        return node;
    }
    for (int i = 0; i < 3; i++) dims[i] = a->dims[i] == m->dims[3] && below(2) ? m->dims[below(3)] : a->dims[i];
    Node *node = node_of(m, PRIM_EXPAND, a, NULL);
    node_set_dims(node, "shape", dims, 3);
    node_add_output(node, NULL, DT_F32, 3, dims);
    return node;
}

/* Two axes become one, and are taken apart again. */
static Node *random_reshape(Maker *m) {
    Value *a = any(m, DT_F32);
    if (!a || a->rank != 3) return NULL;
    int at = below(2);
    const Dim *flat[2];
    flat[at] = dim_mul(m->g->dims, a->dims[at], a->dims[at + 1]);
    flat[1 - at] = a->dims[at ? 0 : 2];
    Node *node = node_of(m, PRIM_RESHAPE, a, NULL);
    node_set_dims(node, "shape", flat, 2);
    Value *merged = node_add_output(node, NULL, DT_F32, 2, flat);
    node = node_of(m, PRIM_NEG, merged, NULL);
    merged = node_add_output(node, NULL, DT_F32, 2, flat);
    node = node_of(m, PRIM_RESHAPE, merged, NULL);
    node_set_dims(node, "shape", a->dims, 3);
    node_add_output(node, NULL, DT_F32, 3, a->dims);
    return node;
}

static Space *space_of(Graph *g) {
    Node *nodes[128];
    int count = 0;
    FOR_EACH_NODE(node, g) nodes[count++] = node;
    const char *why;
    return space_analyse(g->arena, g->dims, nodes, count, true, &why);
}

/* Whether something runs over all of the space: sets whose parts share no axis are not fused. */
static bool is_connected(const Graph *g, const Space *space) {
    if (!space) return false;
    FOR_EACH_NODE(node, g)
    if (space_covers(space, node->outputs[0])) return true;
    return false;
}

static void try_one(Maker *m, int axis) {
    Node *before = m->g->last, *node;
    switch (below(6)) {
    case 0: node = random_reduce(m, axis); break;
    case 1: node = random_move(m); break;
    case 2: node = random_reshape(m); break;
    default: node = random_elementwise(m);
    }
    if (!node) return;
    if (is_connected(m->g, space_of(m->g))) {
        m->values[m->count++] = node->outputs[0];
        return;
    }
    while (m->g->last != before) graph_remove_node(m->g, m->g->last);
}

static Graph *random_body(uint64_t seed) {
    Graph *g = graph_create(0);
    Maker m = {.g = g};
    state = seed * 2654435761u + 1;
    m.dims[0] = dim_symbol(g->dims, "b");
    m.dims[1] = dim_symbol(g->dims, "s");
    m.dims[2] = dim_const(g->dims, 6);
    m.dims[3] = dim_const(g->dims, 1);
    for (int i = 0; i < 3; i++) {
        const Dim *dims[3];
        for (int k = 0; k < 3; k++) dims[k] = m.dims[i && below(3) == 0 ? 3 : k];
        m.values[m.count++] = graph_add_input(g, NULL, DT_F32, 3, dims);
    }
    int axis = below(3);
    for (int i = 0; i < 24; i++) try_one(&m, axis);
    const Space *space = space_of(g);
    FOR_EACH_NODE(node, g) {
        Value *v = node->outputs[0];
        if (space_value(space, v) && space_covers(space, v) && (!v->uses.count || below(6) == 0))
            graph_add_output(g, v);
    }
    return g;
}

Test(lower, random_bodies_compute_what_their_primitives_say) {
    int most = getenv("ONNXFUSE_TEST_SEEDS") ? atoi(getenv("ONNXFUSE_TEST_SEEDS")) : 400, ran = 0;
    for (int seed = 1; seed <= most; seed++) {
        Graph *body = random_body((uint64_t)seed);
        char name[32];
        snprintf(name, sizeof name, "seed %d", seed);
        if (body->outputs.count) {
            int64_t *symbols = sizes(body, seed);
            check(name, body, symbols);
            ran++;
        }
        graph_destroy(body);
    }
    cr_expect_gt(ran * 2, most, "%d of %d bodies have outputs", ran, most);
}
