/* SPDX-License-Identifier: Apache-2.0 */
/* Epilogues as kernels in tile form: which share one. */
#include <criterion/criterion.h>

#include "codegen/codegen.h"

static Graph *parsed(const char *text) {
    Graph *graph = NULL;
    Status status = graph_parse(text, &graph);
    cr_assert(!status, "%s\n%s", status_message(status), text);
    return graph;
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
