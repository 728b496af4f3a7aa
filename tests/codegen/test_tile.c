/* SPDX-License-Identifier: Apache-2.0 */
/* Epilogues as kernels in tile form: the text of a few, and which share one. */
#include <criterion/criterion.h>
#include <string.h>

#include "codegen/codegen.h"
#include "codegen/kernel_store.h"

static Graph *parsed(const char *text) {
    Graph *graph = NULL;
    Status status = graph_parse(text, &graph);
    cr_assert(!status, "%s\n%s", status_message(status), text);
    return graph;
}

/* As GELU reads its sum twice, without the polynomial of erf. */
#define GATE "c: f32[n, 24] = add r, b\nz = constant f32[] 0\nd: f32[n, 24] = max c, z\nv: f32[n, 24] = mul c, d\n"

/* begin: the value of the body that is read instead of the raw result. */
static const struct {
    const char *name, *operand, *body, *begin, *kernel;
} texts[] = {
    {"bias and a gate", "f32[24]", GATE, NULL,
     "kernel params 4 stages 1 lane_block 1048576\naxis task p0\naxis lane p1\nbuffer f32 in\nbuffer f32 in\nbuffer "
     "f32 out\n%0 = load f32 b0[p2 1]\n%1 = load f32 b1[0 1]\n%2 = add f32 %0 %1\n%3 = const f32 0\n%4 = max f32 %3 "
     "%2\n%5 = mul f32 %2 %4\nstore b2[p3 1] %5\n"},
    {"a gate behind a bias that is done", "f32[24]", GATE, "c",
     "kernel params 4 stages 1 lane_block 1048576\naxis task p0\naxis lane p1\nbuffer f32 in\nbuffer f32 out\n%0 = "
     "load f32 b0[p2 1]\n%1 = const f32 0\n%2 = max f32 %1 %0\n%3 = mul f32 %0 %2\nstore b1[p3 1] %3\n"},
    {"a column of rows", "f32[n, 1]", "v: f32[n, 24] = mul r, b\n", NULL,
     "kernel params 5 stages 1 lane_block 1048576\naxis task p0\naxis lane p1\nbuffer f32 in\nbuffer f32 in\nbuffer "
     "f32 out\n%0 = load f32 b0[p2 1]\n%1 = load f32 b1[p3 0]\n%2 = mul f32 %0 %1\nstore b2[p4 1] %2\n"},
    {"random bits by the place in the whole result", "f32[24]",
     "s = constant u64[] 42\np: u32[n, 24] = philox s {shape = (n, 24)}\nh = constant u32[] 2147483648\nk: bool[n, 24] "
     "= lt p, h\nv: f32[n, 24] = where k, r, b\n",
     NULL,
     "kernel params 6 stages 1 lane_block 1048576\naxis task p0\naxis lane p1\nbuffer f32 in\nbuffer f32 in\nbuffer "
     "f32 out\n%0 = const u64 42\n%1 = param i64 p2\n%2 = index i64 axis 0\n%3 = param i64 p3\n%4 = mul i64 %2 %3\n%5 "
     "= add i64 %1 %4\n%6 = index i64 axis 1\n%7 = add i64 %5 %6\n%8 = cast u64 %7\n%9 = random u32 %0 %8\n%10 = const "
     "u32 2147483648\n%11 = lt bool %9 %10\n%12 = load f32 b0[p4 1]\n%13 = load f32 b1[0 1]\n%14 = select f32 %11 %12 "
     "%13\nstore b2[p5 1] %14\n"},
};

Test(tile, texts) {
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        Arena *arena = arena_create(0);
        RegionKernel made;
        Target target = {0};
        Graph *graph = parsed(arena_format(arena,
                                           "graph (x: f32[n, 8], w: f32[8, 24], b: %s) -> (y) {\ny: f32[n, 24] = "
                                           "anchor matmul x, w, b graph (r: f32[n, 24], b: %s) -> (v) {\n%s}\n}\n",
                                           texts[i].operand, texts[i].operand, texts[i].body));
        const Value *begin = texts[i].begin ? map_get(&graph->last->subgraphs[0]->names, texts[i].begin) : NULL;
        cr_assert(!texts[i].begin || begin);
        Status status = codegen_tile(arena, graph->last, begin, DT_F32, &target, &made);
        cr_assert(!status, "%s: %s", texts[i].name, status_message(status));
        cr_expect_str_eq(kernel_text(arena, made.kernel), texts[i].kernel, "%s:\n%s", texts[i].name,
                         kernel_text(arena, made.kernel));
        graph_destroy(graph);
        arena_destroy(arena);
    }
}

/* Other sizes, other ranks, another kind of anchor: one kernel. Another body or another kind of operand: another. */
static const struct {
    const char *name, *node;
    bool shared;
} anchors[] = {
    {"a product",
     "y: f32[n, 24] = anchor matmul x, w, b graph (r: f32[n, 24], b: f32[24]) -> (d) {\n c: f32[n, 24] = add "
     "r, b\n d: f32[n, 24] = tanh c\n}",
     true},
    {"a product of other sizes and names",
     "y: f32[m, 96] = anchor matmul x, w, b graph (p: f32[m, 96], q: f32[96]) -> (u) {\n t: f32[m, 96] = add p, q\n u: "
     "f32[m, 96] = tanh t\n}",
     true},
    {"a convolution",
     "y: f32[n, h, h, 24] = anchor conv x, w, b graph (r: f32[n, h, h, 24], b: f32[24]) -> (d) {\n c: "
     "f32[n, h, h, 24] = add r, b\n d: f32[n, h, h, 24] = tanh c\n}",
     true},
    {"a bias of more axes",
     "y: f32[n, 24] = anchor matmul x, w, b graph (r: f32[n, 24], b: f32[1, 24]) -> (d) {\n c: "
     "f32[n, 24] = add r, b\n d: f32[n, 24] = tanh c\n}",
     true},
    {"another function",
     "y: f32[n, 24] = anchor matmul x, w, b graph (r: f32[n, 24], b: f32[24]) -> (d) {\n c: f32[n, 24] "
     "= add r, b\n d: f32[n, 24] = exp c\n}",
     false},
    {"a column of rows",
     "y: f32[n, 24] = anchor matmul x, w, b graph (r: f32[n, 24], b: f32[n, 1]) -> (d) {\n c: f32[n, 24] "
     "= add r, b\n d: f32[n, 24] = tanh c\n}",
     false},
    {"a whole residual",
     "y: f32[n, 24] = anchor matmul x, w, b graph (r: f32[n, 24], b: f32[n, 24]) -> (d) {\n c: f32[n, "
     "24] = add r, b\n d: f32[n, 24] = tanh c\n}",
     false},
};

Test(tile, equal_bodies_of_different_anchors_share_a_kernel) {
    Arena *arena = arena_create(0);
    KernelPool pool = kernel_pool(arena);
    Target target = {0};
    const Kernel *first = NULL;
    for (size_t i = 0; i < sizeof anchors / sizeof *anchors; i++) {
        RegionKernel made;
        Graph *graph =
            parsed(arena_format(arena, "graph (x: f32[*], w: f32[*], b: f32[*]) -> (y) {\n%s\n}\n", anchors[i].node));
        Status status = codegen_tile_pooled(&pool, graph->last, NULL, DT_F32, &target, &made);
        cr_assert(!status, "%s: %s", anchors[i].name, status_message(status));
        if (!first) first = made.kernel;
        cr_expect_eq(made.kernel == first, anchors[i].shared, "%s:\n%s", anchors[i].name,
                     kernel_text(arena, made.kernel));
        cr_expect(made.tile && !made.params && made.tile[0].kind == TILE_PARAM_ROWS &&
                      made.tile[1].kind == TILE_PARAM_COLUMNS,
                  "%s", anchors[i].name);
        graph_destroy(graph);
    }
    arena_destroy(arena);
}

/* A kernel of QuantizeLinear, whatever its scale and zero point, also where they are equal: these are what parameters are set to. */
Test(tile, scales_and_zero_points_are_parameters) {
    static const float numbers[][2] = {{0.3f, 117}, {0.07f, 128}, {100, 100}};
    Arena *arena = arena_create(0);
    KernelPool pool = kernel_pool(arena);
    Target target = {0};
    const Kernel *first = NULL;
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        RegionKernel made;
        Graph *graph = parsed(arena_format(
            arena,
            "graph (x: f32[*], w: f32[*], b: f32[*]) -> (y) {\ny: f32[n, 24] = anchor matmul x, w, b graph (r: f32[n, "
            "24], b: f32[24]) -> (v) {\n s = constant f32[] %.9g\n z = constant f32[] %.9g\n l = constant f32[] 0\n h "
            "= "
            "constant f32[] 255\n q: f32[n, 24] = div r, s\n o: f32[n, 24] = round q\n m: f32[n, 24] = add o, z\n e: "
            "f32[n, 24] = max m, l\n f: f32[n, 24] = min e, h\n d: u8[n, 24] = cast f {to = u8}\n g: f32[n, 24] = cast "
            "d "
            "{to = f32}\n k: f32[n, 24] = sub g, z\n v: f32[n, 24] = mul k, s\n}\n}\n",
            (double)numbers[i][0], (double)numbers[i][1]));
        Status status = codegen_tile_pooled(&pool, graph->last, NULL, DT_F32, &target, &made);
        cr_assert(!status, "%s", status_message(status));
        if (!first) first = made.kernel;
        cr_expect_eq(made.kernel, first, "%s", kernel_text(arena, made.kernel));
        for (int p = 0, seen = 0; p < made.kernel->param_count; p++)
            if (made.tile[p].kind == TILE_PARAM_NUMBER)
                cr_expect_eq(made.tile[p].number, kernel_param_of_number(numbers[i][seen++]), "%zu", i);
        graph_destroy(graph);
    }
    arena_destroy(arena);
}

/* ---- from a compiled model ---- */

#define ROWS                                                                                                           \
    { TILE_PARAM_ROWS, 0 }
#define COLUMNS                                                                                                        \
    { TILE_PARAM_COLUMNS, 0 }
#define STRIDE(buffer)                                                                                                 \
    { TILE_PARAM_ROW_STRIDE, buffer }
#define STEP                                                                                                           \
    { TILE_PARAM_INDEX_STEP, 0 }
#define START                                                                                                          \
    { TILE_PARAM_INDEX_START, 0 }

/* What parameters are set to, of a kernel that adds a bias (buffer 1) to the raw result (0) and drops some of it. */
static const struct {
    const char *must;
    TileParam params[6];
    const char *error; /* NULL: it is as it was written */
} stored[] = {
    {"as it was made", {ROWS, COLUMNS, START, STEP, STRIDE(0), STRIDE(2)}, NULL},
    {"rows and columns change places",
     {COLUMNS, ROWS, START, STEP, STRIDE(0), STRIDE(2)},
     "an epilogue's kernel is called in another way than it works"},
    {"a stride is another buffer's",
     {ROWS, COLUMNS, START, STEP, STRIDE(1), STRIDE(2)},
     "an epilogue's kernel is called in another way than it works"},
    {"a stride is a number of rows",
     {ROWS, COLUMNS, START, STEP, ROWS, STRIDE(2)},
     "an epilogue's kernel is called in another way than it works"},
    {"a number of elements is a stride",
     {ROWS, COLUMNS, STRIDE(0), STEP, STRIDE(0), STRIDE(2)},
     "an epilogue's kernel is called in another way than it works"},
    {"a stride is a scale",
     {ROWS, COLUMNS, START, STEP, {TILE_PARAM_NUMBER, .number = 1}, STRIDE(2)},
     "an epilogue's kernel is called in another way than it works"},
    {"a number of elements is a scale",
     {ROWS, COLUMNS, {TILE_PARAM_NUMBER, .number = 1}, STEP, STRIDE(0), STRIDE(2)},
     "an epilogue's kernel is called in another way than it works"},
    {"a stride of no buffer", {ROWS, COLUMNS, START, STEP, STRIDE(0), STRIDE(3)}, "a stride of no buffer"},
    {"a stride of a buffer far away",
     {ROWS, COLUMNS, START, STEP, STRIDE(0), STRIDE(1 << 20)},
     "a number is out of range"},
    {"a kind that there is not",
     {ROWS, COLUMNS, START, STEP, STRIDE(0), {TILE_PARAM_KINDS, 2}},
     "a number is out of range"},
};

Test(tile, damaged_parameters_of_a_compiled_model_are_refused) {
    for (size_t i = 0; i < sizeof stored / sizeof *stored; i++) {
        Arena *arena = arena_create(0);
        RegionKernel made, read = {0};
        Target target = {0};
        Graph *graph =
                  parsed("graph (x: f32[n, 8], w: f32[8, 24], b: f32[24]) -> (y) {\ny: f32[n, 24] = anchor matmul x, "
                         "w, b graph (r: f32[n, 24], b: f32[24]) -> (v) {\ns = constant u64[] 42\np: u32[n, 24] = "
                         "philox s {shape = (n, 24)}\nh = constant u32[] 2147483648\nk: bool[n, 24] = lt p, h\nv: "
                         "f32[n, 24] = where k, r, b\n}\n}\n"),
              *copy = graph_create(0);
        Status status = codegen_tile(arena, graph->last, NULL, DT_F32, &target, &made);
        cr_assert(!status, "%s", status_message(status));
        made.tile = stored[i].params;
        Text bytes = text_make(arena);
        StoreWriter w = store_writer(arena, graph->dims, &bytes);
        store_kernel(&w, made.kernel);
        store_region(&w, graph->last, &made);
        StoreReader r = store_reader(copy, bytes.data, bytes.size);
        read.kernel = restore_kernel(&r);
        cr_assert(read.kernel, "%s", status_message(r.error));
        restore_region(&r, graph->last, &read);
        const char *got = r.error ? status_message(r.error) : NULL;
        cr_expect(!got == !stored[i].error && (!got || strstr(got, stored[i].error)), "%s: %s", stored[i].must,
                  got ? got : "no error");
        status_free(r.error);
        graph_destroy(copy);
        graph_destroy(graph);
        arena_destroy(arena);
    }
}
