/* SPDX-License-Identifier: Apache-2.0 */
/* The text of GPU kernels, one of each kind, against tests/codegen/gpu/NAME.txt (what follows the prelude, which is the
 * same for both dialects), and the launches that they take. ONNXFUSE_WRITE_GOLDEN=1 writes the files instead. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include "codegen/codegen.h"
#include "codegen/gpu/dialect.h"
#include "codegen/gpu/gpu.h"

typedef struct Case {
    const char *name, *graph;
    GpuSchedule schedule;
} Case;

static const Case cases[] = {
    {"pointwise",
     "graph (x: f16[b, s, 96], y: f16[96]) -> (v) {\n a: f16[b, s, 96] = add x, y\n v: f16[b, s, 96] = neg a\n}",
     {GPU_POINTWISE, 8, 1, 0, 0}},
    {"pointwise_unaligned", "graph (x: f32[m, n]) -> (v) {\n v: f32[m, n] = neg x\n}", {GPU_POINTWISE, 1, 1, 0, 0}},
    {"slice_of_rows",
     "graph (x: f32[b, 96]) -> (v) {\n s: f32[b, 32] = slice x {shape = (b, 32), start = (0, 64), step = [1, 1]}\n v: "
     "f32[b, 32] = abs s\n}",
     {GPU_POINTWISE, 4, 1, 0, 0}},
    {"softmax",
     "graph (x: f32[b, 1024]) -> (v) {\n m: f32[b, 1] = reduce_max x {axes = [1]}\n d: f32[b, 1024] = sub x, m\n"
     " q: f32[b, 1024] = mul d, d\n s: f32[b, 1] = reduce_sum q {axes = [1]}\n v: f32[b, 1024] = div q, s\n}",
     {GPU_INNER, 4, 1, 4, 0}},
    {"sum_of_columns",
     "graph (x: f32[m, 64]) -> (v) {\n v: f32[1, 64] = reduce_sum x {axes = [0]}\n}",
     {GPU_OUTER, 4, 1, 4, 0}},
    {"argmax", "graph (x: i32[b, n]) -> (v) {\n v: i64[b, 1] = argmax x {axes = [1]}\n}", {GPU_INNER, 1, 1, 4, 0}},
    {"transpose",
     "graph (x: f32[m, n]) -> (v) {\n v: f32[n, m] = permute x {perm = [1, 0]}\n}",
     {GPU_TRANSPOSE, 1, 1, 16, 64}},
    {"random",
     "graph (x: f32[b, 64], seed: u64[]) -> (v) {\n r: u32[b, 64] = philox seed {shape = (b, 64)}\n c: f32[b, 64] = "
     "cast r {to = "
     "f32}\n v: f32[b, 64] = mul x, c\n}",
     {GPU_POINTWISE, 4, 16, 0, 0}},
    {"random_halves",
     "graph (x: u32[b, 64], seed: u64[]) -> (v) {\n r: u32[b, 64] = philox seed {shape = (b, 64), halves = 1}\n"
     " v: u32[b, 64] = xor x, r\n}",
     {GPU_POINTWISE, 8, 16, 0, 0}},
};
enum { CASES = sizeof cases / sizeof *cases };

static const Kernel *kernel_of(const Case *c, Graph **out_body) {
    static const Target target = {.device = DEVICE_CUDA};
    Status status = graph_parse(c->graph, out_body);
    cr_assert(!status, "%s: %s", c->name, status_message(status));
    Node region = {.kind = NODE_REGION, .op = "region", .subgraphs = out_body, .subgraph_count = 1};
    RegionKernel k;
    status = codegen_region((*out_body)->arena, (*out_body)->dims, &region, &target, &k);
    cr_assert(!status, "%s: %s", c->name, status_message(status));
    return k.kernel;
}

static char *read_golden(Arena *arena, const char *path) {
    FILE *file = fopen(path, "rb");
    cr_assert_not_null(file, "%s: the tests run in the project's folder", path);
    char *text = ARENA_ARRAY(arena, char, 1 << 18);
    text[fread(text, 1, (1 << 18) - 1, file)] = 0;
    fclose(file);
    return text;
}

static void check_golden(Arena *arena, const char *path, const char *text) {
    if (getenv("ONNXFUSE_WRITE_GOLDEN")) {
        FILE *file = fopen(path, "wb");
        cr_assert_not_null(file);
        fputs(text, file);
        fclose(file);
        return;
    }
    cr_expect_str_eq(text, read_golden(arena, path), "%s is another text:\n%s", path, text);
}

Test(gpu_render, texts) {
    for (int i = 0; i < CASES; i++) {
        Graph *body;
        const Kernel *kernel = kernel_of(&cases[i], &body);
        GpuSchedule got = gpu_schedule(kernel), want = cases[i].schedule;
        cr_expect(got.class == want.class && got.vector == want.vector && got.step == want.step &&
                      got.hold == want.hold && got.tile == want.tile,
                  "%s: class %d vector %d step %d hold %d tile %d", cases[i].name, (int)got.class, got.vector, got.step,
                  got.hold, got.tile);
        Text cuda = text_make(body->arena), opencl = text_make(body->arena);
        gpu_render(&cuda, kernel, GPU_CUDA, "kernel");
        gpu_render(&opencl, kernel, GPU_OPENCL, "kernel");
        const char *tail = cuda.data + strlen(gpu_prelude(GPU_CUDA));
        cr_expect_str_eq(tail, opencl.data + strlen(gpu_prelude(GPU_OPENCL)), "%s: one text for both dialects",
                         cases[i].name);
        check_golden(body->arena, arena_format(body->arena, "tests/codegen/gpu/%s.txt", cases[i].name), tail);
        graph_destroy(body);
    }
}

/* --- launches --- */
typedef struct LaunchCase {
    const char *what, *kernel; /* a name of `cases` */
    int64_t params[4];
    int count; /* of launches */
    const char *suffix;
    int64_t grid;
    int block;
    int64_t extra0, extra1, splits; /* splits 0: no such argument */
    int64_t last_grid;              /* of a stage that only stores results; 0: as the others */
} LaunchCase;

static const LaunchCase launches[] = {
    {"nothing to compute takes no launch", "pointwise_unaligned", {0}, 0, "", 0, 0, 0, 0, 0},
    {"a row in a warp's part, several rows a block", "softmax", {10000, 1024}, 1, "_held", 2500, 256, 10000, 64, 0},
    {"few rows: more threads each", "softmax", {4, 1024}, 1, "_held", 4, 256, 4, 256, 0},
    {"a row too long for registers: several blocks, a launch a stage",
     "argmax",
     {1, (1 << 24) + 1},
     2,
     "_long",
     256,
     256,
     1,
     256,
     256,
     1},
    {"many long rows: a block each", "argmax", {100000, 5001}, 1, "_long", 100000, 256, 100000, 256, 1},
    {"rows of whole vectors", "argmax", {100000, 5000}, 1, "_even_held", 100000, 512, 100000, 512, 0},
    {"whole vectors, longer than registers", "argmax", {100000, 50000}, 1, "_even_long", 100000, 256, 100000, 256, 1},
    {"short columns stay in registers", "sum_of_columns", {20}, 1, "_held", 1, 256, 16, 16, 0},
    {"long columns are split", "sum_of_columns", {1 << 20}, 2, "_long", 256, 256, 16, 16, 256, 1},
    {"a tile a block", "transpose", {100, 70}, 1, "", 4, 256, 0, 0, 0},
};

Test(gpu_render, launches) {
    static const GpuLimits limits = {
        .multiprocessors = 132, .block_threads = 1024, .shared_bytes = 48 << 10, .fp64 = true};
    for (size_t i = 0; i < sizeof launches / sizeof *launches; i++) {
        const LaunchCase *l = &launches[i];
        Graph *body;
        int c = 0;
        while (strcmp(cases[c].name, l->kernel) != 0) c++;
        const Kernel *kernel = kernel_of(&cases[c], &body);
        GpuSchedule schedule = gpu_schedule(kernel);
        GpuLaunches got;
        gpu_launches(kernel, &schedule, &limits, l->params, &got);
        cr_expect_eq(got.count, l->count, "%s: %d launches", l->what, got.count);
        for (int n = 0; n < got.count; n++) {
            const GpuLaunch *g = &got.items[n];
            int64_t grid = l->last_grid && n == got.count - 1 ? l->last_grid : l->grid;
            cr_expect(strcmp(g->suffix, l->suffix) == 0 && g->grid == grid && g->block == l->block,
                      "%s: %s, %lld blocks of %d", l->what, g->suffix, (long long)g->grid, g->block);
            cr_expect(!l->extra0 || (g->extra[0] == l->extra0 && g->extra[1] == l->extra1), "%s: %lld %lld", l->what,
                      (long long)g->extra[0], (long long)g->extra[1]);
            if (l->splits)
                cr_expect(g->extra[2] == l->splits && g->extra[3] == n, "%s: %lld splits", l->what,
                          (long long)g->extra[2]);
        }
        cr_expect_eq(got.scratch_bytes > 0, l->splits > 1, "%s: scratch %zu", l->what, got.scratch_bytes);
        graph_destroy(body);
    }
}
