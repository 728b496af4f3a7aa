/* SPDX-License-Identifier: Apache-2.0 */
/* Primitives outside regions: each must give, bit for bit, what the evaluator gives, on one thread and on several, for
 * random shapes and element types; movement must not read or write beyond its buffers, whatever the indices say. */
#include <criterion/criterion.h>
#include <stdlib.h>

#include "graph/eval/eval.h"
#include "random_graph.h"
#include "runtime/device/host_movement.h"

/* A buffer between two guards that are checked afterwards. */
enum { GUARD = 64 };

static Tensor guarded(Arena *arena, const Tensor *like) {
    Tensor t = *like;
    char *block = arena_alloc(arena, tensor_bytes(like) + 2 * GUARD);
    memset(block, 0xA5, tensor_bytes(like) + 2 * GUARD);
    t.data = block + GUARD;
    return t;
}

static bool guards_hold(const Tensor *t) {
    const unsigned char *from = t->data, *to = from + tensor_bytes(t);
    for (int i = 0; i < GUARD; i++)
        if (from[-1 - i] != 0xA5 || to[i] != 0xA5) return false;
    return true;
}

static const char *check_node(const Node *node, Tensor **inputs, const int64_t *symbols, Pool *pool, Arena *arena) {
    Tensor *expected, got;
    Status status = eval_prim(node, inputs, symbols, arena, &expected);
    if (status) return status_message(status);
    got = guarded(arena, expected);
    status = move_prim(node, (const Tensor *const *)inputs, symbols, &got, pool, arena);
    if (status) return status_message(status);
    if (!guards_hold(&got)) return "writes beyond its buffer";
    if (memcmp(expected->data, got.data, tensor_bytes(expected))) return "another result than the evaluator's";
    return NULL;
}

static const char *check_graph(const RandomGraph *random, int round, Pool *pool, Arena *arena) {
    const Graph *graph = random->graph;
    const int64_t *symbols = random_sizes(random, round, arena);
    Tensor **given = random_inputs(random, round, symbols, arena);
    Map tensors = map_make(arena);
    for (int i = 0; i < graph->inputs.count; i++)
        map_set_id(&tensors, MAP_POINTER_KEY(graph->inputs.items[i]), given[i]);
    FOR_EACH_NODE(node, graph) {
        Tensor **in = ARENA_ARRAY(arena, Tensor *, node->input_count + 1), *result;
        for (int i = 0; i < node->input_count; i++) {
            Value *v = node->inputs[i];
            in[i] = v->constant ? v->constant : map_get_id(&tensors, MAP_POINTER_KEY(v));
        }
        PrimClass klass = prim_info(node->prim)->klass;
        if (node->prim != PRIM_RESHAPE && (klass == PRIM_CLASS_MOVE || klass == PRIM_CLASS_INDEXED)) {
            const char *problem = check_node(node, in, symbols, pool, arena);
            if (problem) return arena_format(arena, "%s -> %s: %s", node->op, node->outputs[0]->name, problem);
        }
        Status status = eval_prim(node, in, symbols, arena, &result);
        if (status) return status_message(status);
        map_set_id(&tensors, MAP_POINTER_KEY(node->outputs[0]), result);
    }
    return NULL;
}

Test(movement, random, .timeout = 300) {
    uint64_t first, last;
    Pool *pool;
    cr_assert(!pool_create(3, &pool));
    random_seeds(400, &first, &last);
    for (uint64_t seed = first; seed <= last; seed++)
        for (int round = 0; round < 2; round++) {
            RandomGraph *random = random_graph(seed, (RandomOptions){.nodes = 40});
            Arena *arena = arena_create(0);
            const char *problem = check_graph(random, round, round ? pool : NULL, arena);
            cr_expect(!problem, "seed %llu: %s\n%s", (unsigned long long)seed, problem,
                      graph_text(random->graph, arena));
            arena_destroy(arena);
            graph_destroy(random->graph);
        }
    pool_destroy(pool);
}

/* --- tables ------------------------------------------------------------------------------------------------------ */
/* Bodies that compute y from constants; large ones cross the size from which several threads share the work. */
static const struct {
    const char *name, *body;
} rows[] = {
    {"a large transpose", "x: i32[300, 500] = iota {shape = (300, 500), axis = 1, dtype = i32}\n"
                          "y: i32[500, 300] = permute x {perm = [1, 0]}"},
    {"a large permute of f64", "x: f64[7, 50, 60, 3] = iota {shape = (7, 50, 60, 3), axis = 2, dtype = f64}\n"
                               "y: f64[3, 60, 7, 50] = permute x {perm = [3, 2, 0, 1]}"},
    {"bytes backwards", "x: u8[1000, 97] = iota {shape = (1000, 97), axis = 1, dtype = u8}\n"
                        "y: u8[500, 97] = slice x {shape = (500, 97), start = (999, 96), step = [-2, -1]}"},
    {"a large expand", "x: i16[1, 70, 1] = iota {shape = (1, 70, 1), axis = 1, dtype = i16}\n"
                       "y: i16[40, 70, 50] = expand x {shape = (40, 70, 50)}"},
    {"a pad that crops and fills", "f = constant i64[] -1\n"
                                   "x: i64[100, 120] = iota {shape = (100, 120), axis = 0, dtype = i64}\n"
                                   "y: i64[95, 150] = pad x, f {before = (-10, 20), after = (5, 10)}"},
    {"a pad that leaves nothing of its input", "f = constant i8[] 7\n"
                                               "x: i8[3] = iota {shape = (3), axis = 0, dtype = i8}\n"
                                               "y: i8[4] = pad x, f {before = (-3), after = (4)}"},
    {"a concat of uneven parts", "x: i32[200, 3] = iota {shape = (200, 3), axis = 0, dtype = i32}\n"
                                 "z: i32[200, 0] = iota {shape = (200, 0), axis = 0, dtype = i32}\n"
                                 "w: i32[200, 500] = iota {shape = (200, 500), axis = 1, dtype = i32}\n"
                                 "y: i32[200, 503] = concat x, z, w {axis = 1}"},
    {"a gather of rows", "x: i32[50, 400] = iota {shape = (50, 400), axis = 0, dtype = i32}\n"
                         "i: i64[9, 30] = iota {shape = (9, 30), axis = 1, dtype = i64}\n"
                         "y: i32[9, 30, 400] = gather x, i {axis = 0}"},
    {"a scatter of rows, as a cache takes new keys",
     "x: f32[2, 3, 700, 64] = iota {shape = (2, 3, 700, 64), axis = 2, dtype = f32}\n"
     "u: f32[2, 3, 5, 64] = iota {shape = (2, 3, 5, 64), axis = 3, dtype = f32}\n"
     "r: i32[2, 3, 5, 64] = iota {shape = (2, 3, 5, 64), axis = 2, dtype = i32}\n"
     "c = constant i32[] 300\ni: i32[2, 3, 5, 64] = add r, c\n"
     "y: f32[2, 3, 700, 64] = scatter_elements x, i, u {axis = 2}"},
    {"a scatter whose indices differ from element to element",
     "x: i32[90, 400] = iota {shape = (90, 400), axis = 1, dtype = i32}\n"
     "u: i32[90, 7] = iota {shape = (90, 7), axis = 0, dtype = i32}\n"
     "i: i64[90, 7] = iota {shape = (90, 7), axis = 1, dtype = i64}\n"
     "y: i32[90, 400] = scatter_elements x, i, u {axis = 1, reduction = \"add\"}"},
    {"a scatter that adds long rows, many of them to the same one",
     "x: f32[300, 600] = iota {shape = (300, 600), axis = 1, dtype = f32}\n"
     "r: f32[500, 600] = iota {shape = (500, 600), axis = 0, dtype = f32}\nu: f32[500, 600] = sin r\n"
     "k: i64[500, 1] = iota {shape = (500, 1), axis = 0, dtype = i64}\nc = constant i64[] 7\nm: i64[500, 1] = mod k, "
     "c\n"
     "y: f32[300, 600] = scatter_nd x, m, u {reduction = \"add\"}"},
    {"a scatter that adds single elements, many of them to the same one",
     "x: f32[2000] = iota {shape = (2000), axis = 0, dtype = f32}\n"
     "r: f32[200000] = iota {shape = (200000), axis = 0, dtype = f32}\nu: f32[200000] = sin r\n"
     "k: i64[200000, 1] = iota {shape = (200000, 1), axis = 0, dtype = i64}\nc = constant i64[] 1999\n"
     "m: i64[200000, 1] = mod k, c\ny: f32[2000] = scatter_nd x, m, u {reduction = \"add\"}"},
    {"a scatter that replaces rows several times, the last one stays",
     "x: i16[5, 70, 40] = iota {shape = (5, 70, 40), axis = 2, dtype = i16}\n"
     "u: i16[3000, 40] = iota {shape = (3000, 40), axis = 0, dtype = i16}\n"
     "k: i64[3000, 2] = iota {shape = (3000, 2), axis = 0, dtype = i64}\nc = constant i64[2] {5, 70}\n"
     "m: i64[3000, 2] = mod k, c\ny: i16[5, 70, 40] = scatter_nd x, m, u"},
    {"a pad by nothing", "f = constant i32[] -1\n"
                         "x: i32[100, 997] = iota {shape = (100, 997), axis = 1, dtype = i32}\n"
                         "y: i32[100, 997] = pad x, f {before = (0, 0), after = (0, 0)}"},
    {"a gather of no rows",
     "x: i32[50, 4] = iota {shape = (50, 4), axis = 0, dtype = i32}\n"
     "i: i64[0] = iota {shape = (0), axis = 0, dtype = i64}\ny: i32[0, 4] = gather x, i {axis = 0}"},
    {"a gather by a scalar", "x: f16[50, 4] = iota {shape = (50, 4), axis = 0, dtype = f16}\n"
                             "i = constant i32[] -1\ny: f16[50] = gather x, i {axis = 1}"},
    {"complex numbers", "x = constant c64[2, 2] {(1, 0), (2, 0), (3, 0), (4, 1)}\n"
                        "y: c64[2, 2] = permute x {perm = [1, 0]}"},
    {"a permute of 8 axes",
     "x: u16[2, 3, 1, 4, 2, 1, 3, 2] = iota {shape = (2, 3, 1, 4, 2, 1, 3, 2), axis = 3, dtype = u16}\n"
     "y: u16[2, 2, 1, 3, 4, 1, 3, 2] = permute x {perm = [7, 0, 2, 6, 3, 5, 1, 4]}"},
};

Test(movement, rows) {
    Pool *pool;
    cr_assert(!pool_create(4, &pool));
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        Arena *arena = arena_create(0);
        RandomGraph random = {0};
        Status status = graph_parse(arena_format(arena, "graph () -> (y) {\n%s\n}", rows[i].body), &random.graph);
        if (!status) status = graph_verify(random.graph, LEVEL_PRIM);
        cr_assert(!status, "%s: %s", rows[i].name, status_message(status));
        const char *problem = check_graph(&random, 0, pool, arena);
        cr_expect(!problem, "%s: %s", rows[i].name, problem);
        arena_destroy(arena);
        graph_destroy(random.graph);
    }
    pool_destroy(pool);
}

static const struct {
    const char *name, *body, *part;
} failures[] = {
    {"gather beyond the axis",
     "x = constant i32[2] {1, 2}\ni = constant i64[1] {2}\ny: i32[1] = gather x, i {axis = 0}", "out of range"},
    {"gather before the axis",
     "x = constant i32[2] {1, 2}\ni = constant i64[1] {-3}\ny: i32[1] = gather x, i {axis = 0}", "out of range"},
    {"gather_elements beyond",
     "x = constant i32[2] {1, 2}\ni = constant i64[1] {5}\ny: i32[1] = gather_elements x, i {axis = 0}",
     "out of range"},
    {"scatter_elements beyond",
     "x = constant i32[2] {1, 2}\ni = constant i64[1] {-9}\nu = constant i32[1] {5}\ny: i32[2] = scatter_elements x, "
     "i, "
     "u {axis = 0, reduction = \"none\"}",
     "out of range"},
    {"scatter_nd beyond",
     "x = constant i32[2] {1, 2}\ni = constant i64[1, 1] {2}\nu = constant i32[1] {5}\ny: i32[2] = scatter_nd x, i, u "
     "{reduction = \"none\"}",
     "out of range"},
};

Test(movement, failures) {
    for (size_t i = 0; i < sizeof failures / sizeof *failures; i++) {
        Arena *arena = arena_create(0);
        Graph *graph = NULL;
        Status status = graph_parse(arena_format(arena, "graph () -> (y) {\n%s\n}", failures[i].body), &graph);
        cr_assert(!status, "%s: %s", failures[i].name, status_message(status));
        Node *node = graph->last;
        const Tensor *in[3] = {NULL};
        for (int k = 0; k < node->input_count; k++) in[k] = node->inputs[k]->constant;
        int64_t dims[MAX_RANK] = {0};
        for (int d = 0; d < node->outputs[0]->rank; d++) dim_is_const(node->outputs[0]->dims[d], &dims[d]);
        Tensor *out = tensor_new(arena, node->outputs[0]->dtype, node->outputs[0]->rank, dims);
        status = move_prim(node, in, NULL, out, NULL, arena);
        cr_expect(status_code(status) == STATUS_INVALID && strstr(status_message(status), failures[i].part), "%s: %s",
                  failures[i].name, status_message(status));
        status_free(status);
        arena_destroy(arena);
        graph_destroy(graph);
    }
}

Test(movement, broadcast_refuses_what_does_not_fit) {
    float from_data[2] = {1, 2}, to_data[6];
    Tensor from = {DT_F32, 1, {2}, from_data}, to = {DT_F32, 2, {2, 3}, to_data};
    Status status = move_broadcast(&from, &to, NULL);
    cr_expect(status_code(status) == STATUS_INVALID);
    status_free(status);
}
