/* SPDX-License-Identifier: Apache-2.0 */
/* Primitives outside regions on a GPU, through OpenCL on whatever device the machine has: each must give, bit for bit,
 * what the evaluator gives, for random shapes and element types, and must not write beyond its buffer, whatever the
 * indices say. Without any OpenCL device the tests say so and are skipped. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>

#include "gpu_bench.h"
#include "graph/eval/eval.h"
#include "random_graph.h"
#include "runtime/device/gpu/gpu.h"

/* --- one node --- */

/* NULL, or what is wrong. `lead`: how far inputs and output stand behind multiples of 256 bytes. */
static const char *check_node(Bench *b, const Node *node, Tensor **inputs, const int64_t *symbols, size_t lead,
                              Arena *arena) {
    Tensor *expected;
    const Tensor **in = ARENA_ARRAY(arena, const Tensor *, node->input_count);
    Placed *placed = ARENA_ARRAY(arena, Placed, node->input_count + 1);
    Status status = eval_prim(node, inputs, symbols, arena, &expected);
    if (status) return status_message(status);
    if (!gpu_prim_runs(b->device, node)) return NULL;
    for (int i = 0; i < node->input_count; i++) {
        placed[i] = place(b, arena, inputs[i], true, lead);
        in[i] = &placed[i].tensor;
    }
    Placed *out = &placed[node->input_count];
    *out = place(b, arena, expected, false, lead);
    status = gpu_prim_prepare(b->device, node, NULL);
    if (!status) status = gpu_prim_run(b->device, b->stream, node, in, symbols, &out->tensor, arena);
    unsigned char *back = arena_alloc(arena, out->bytes);
    if (!status) status = gpu_copy(b->device, b->stream, COPY_OUT, back, out->block, out->bytes);
    if (!status) status = gpu_synchronize(b->device, b->stream);
    for (int i = 0; i <= node->input_count; i++) gpu_release(b->device, b->stream, NULL, placed[i].block);
    if (status) return status_message(status);
    size_t begin = GUARD + lead, bytes = tensor_bytes(expected);
    if (!unchanged(back, begin) || !unchanged(back + begin + bytes, out->bytes - begin - bytes))
        return "writes beyond its buffer";
    if (bytes && memcmp(expected->data, back + begin, bytes)) return "another result than the evaluator's";
    return NULL;
}

/* --- random nodes --- */

static uint64_t state;
static int64_t draw(int64_t from, int64_t to) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return from + (int64_t)((state >> 33) % (uint64_t)(to - from + 1));
}

/* Element types; arithmetic is drawn for the first `COMBINED` of them alone, for each takes programs of its own. */
static const DType dtypes[] = {DT_F32, DT_F16, DT_I64, DT_I8,  DT_BOOL, DT_BF16, DT_U8,  DT_C128,
                               DT_F64, DT_I32, DT_U16, DT_I16, DT_U32,  DT_U64,  DT_C64, DT_F8E5M2};
enum { COMBINED = 5 };

typedef struct Drawing {
    Arena *arena;
    Graph *graph;
    Tensor *inputs[16];
    int count;
} Drawing;

/* Small whole numbers: every order of adding and multiplying few of them is exact in all types but i8, which wraps. */
static Tensor *draw_tensor(Drawing *g, DType dtype, int rank, const int64_t *dims) {
    Tensor *t = tensor_new(g->arena, dtype, rank, dims);
    int64_t count = tensor_count(t);
    bool counts = dtype != DT_C64 && dtype != DT_C128 && dtype_size(dtype) > 0 && dtype != DT_F8E5M2;
    for (int64_t i = 0; counts && i < count; i++)
        dtype_store_int(dtype, t->data, i, dtype == DT_BOOL ? draw(0, 1) : draw(-3, 3));
    for (size_t i = 0; !counts && i < tensor_bytes(t); i++) ((char *)t->data)[i] = (char)draw(0, 255);
    return t;
}

static Value *add_tensor(Drawing *g, Tensor *t) {
    g->inputs[g->count++] = t;
    return graph_add_constant(g->graph, NULL, t);
}

static int draw_dims(int most_rank, int64_t *dims) {
    int rank = (int)draw(1, most_rank);
    int64_t most = rank <= 2 ? 70 : rank <= 4 ? 12 : rank <= 6 ? 5 : 3;
    for (int d = 0; d < rank; d++) dims[d] = draw(0, 40) ? draw(1, most) : draw(0, 1);
    if (rank && rank <= 4 && draw(0, 1)) dims[rank - 1] = 16 * draw(1, 6);
    return rank;
}

static const Dim **const_dims(Drawing *g, int rank, const int64_t *dims) {
    const Dim **made = ARENA_ARRAY(g->arena, const Dim *, rank + 1);
    for (int d = 0; d < rank; d++) made[d] = dim_const(g->graph->dims, dims[d]);
    return made;
}

static Node *draw_node(Drawing *g, Prim prim, Value **inputs, int count, DType dtype, int rank, const int64_t *dims) {
    Node *node = graph_add_prim(g->graph, NULL, prim, inputs, count);
    node_add_output(node, NULL, dtype, rank, const_dims(g, rank, dims));
    return node;
}

static Node *draw_permute(Drawing *g, DType dtype) {
    int64_t dims[MAX_RANK], perm[MAX_RANK], out[MAX_RANK];
    int rank = draw_dims(8, dims);
    for (int d = 0; d < rank; d++) {
        int64_t at = draw(0, d);
        perm[d] = perm[at];
        perm[at] = d;
    }
    for (int d = 0; d < rank; d++) out[d] = dims[perm[d]];
    Value *x = add_tensor(g, draw_tensor(g, dtype, rank, dims));
    Node *node = draw_node(g, PRIM_PERMUTE, &x, 1, dtype, rank, out);
    node_set_ints(node, "perm", perm, rank);
    return node;
}

static Node *draw_slice(Drawing *g, DType dtype) {
    int64_t dims[MAX_RANK], start[MAX_RANK], step[MAX_RANK], out[MAX_RANK];
    int rank = draw_dims(6, dims);
    for (int d = 0; d < rank; d++) {
        step[d] = draw(0, 2) ? 1 : draw(-3, 2);
        if (!step[d]) step[d] = 1;
        int64_t most = dims[d] ? 1 + (dims[d] - 1) / (step[d] < 0 ? -step[d] : step[d]) : 0;
        out[d] = draw(0, 3) ? most : draw(0, most);
        int64_t reach = out[d] ? (out[d] - 1) * step[d] : 0;
        start[d] = dims[d] ? draw(reach < 0 ? -reach : 0, dims[d] - 1 - (reach > 0 ? reach : 0)) : 0;
    }
    Value *x = add_tensor(g, draw_tensor(g, dtype, rank, dims));
    Node *node = draw_node(g, PRIM_SLICE, &x, 1, dtype, rank, out);
    node_set_dims(node, "shape", const_dims(g, rank, out), rank);
    node_set_dims(node, "start", const_dims(g, rank, start), rank);
    node_set_ints(node, "step", step, rank);
    return node;
}

static Node *draw_expand(Drawing *g, DType dtype) {
    int64_t dims[MAX_RANK], out[MAX_RANK];
    int rank = draw_dims(6, out);
    for (int d = 0; d < rank; d++) dims[d] = draw(0, 1) ? out[d] : 1;
    Value *x = add_tensor(g, draw_tensor(g, dtype, rank, dims));
    Node *node = draw_node(g, PRIM_EXPAND, &x, 1, dtype, rank, out);
    node_set_dims(node, "shape", const_dims(g, rank, out), rank);
    return node;
}

static Node *draw_pad(Drawing *g, DType dtype) {
    int64_t dims[MAX_RANK], before[MAX_RANK], after[MAX_RANK], out[MAX_RANK];
    int rank = draw_dims(6, dims);
    for (int d = 0; d < rank; d++) {
        int64_t by = draw(0, 3) ? 1 : 16;
        before[d] = draw(0, 1) ? 0 : by * draw(-1, 3);
        after[d] = draw(0, 1) ? 0 : by * draw(-1, 3);
        out[d] = dims[d] + before[d] + after[d];
        if (out[d] < 0) after[d] -= out[d], out[d] = 0;
    }
    Value *in[2];
    in[0] = add_tensor(g, draw_tensor(g, dtype, rank, dims));
    in[1] = add_tensor(g, draw_tensor(g, dtype, 0, dims));
    Node *node = draw_node(g, PRIM_PAD, in, 2, dtype, rank, out);
    node_set_dims(node, "before", const_dims(g, rank, before), rank);
    node_set_dims(node, "after", const_dims(g, rank, after), rank);
    return node;
}

static Node *draw_concat(Drawing *g, DType dtype) {
    int64_t dims[MAX_RANK];
    int rank = draw_dims(5, dims), axis = (int)draw(0, rank - 1), count = (int)draw(1, draw(0, 1) ? 3 : 12);
    Value *in[12];
    int64_t all = 0, by = draw(0, 1) ? 16 : 1;
    for (int i = 0; i < count; i++) {
        dims[axis] = by * draw(0, 5);
        all += dims[axis];
        in[i] = add_tensor(g, draw_tensor(g, dtype, rank, dims));
    }
    dims[axis] = all;
    Node *node = draw_node(g, PRIM_CONCAT, in, count, dtype, rank, dims);
    node_set_int(node, "axis", axis);
    return node;
}

/* Indices within [-size, size). */
static Tensor *draw_indices(Drawing *g, int rank, const int64_t *dims, int64_t size) {
    Tensor *t = tensor_new(g->arena, draw(0, 1) ? DT_I32 : DT_I64, rank, dims);
    for (int64_t i = 0; i < tensor_count(t); i++) dtype_store_int(t->dtype, t->data, i, draw(-size, size - 1));
    return t;
}

static Node *draw_gather(Drawing *g, DType dtype) {
    int64_t dims[MAX_RANK], some[MAX_RANK], out[2 * MAX_RANK];
    int rank = draw_dims(4, dims), axis = (int)draw(0, rank - 1), more = (int)draw(0, 2);
    if (!dims[axis]) dims[axis] = 1;
    for (int d = 0; d < more; d++) some[d] = draw(0, 20);
    memcpy(out, dims, (size_t)axis * sizeof *dims);
    memcpy(out + axis, some, (size_t)more * sizeof *dims);
    memcpy(out + axis + more, dims + axis + 1, (size_t)(rank - axis - 1) * sizeof *dims);
    Value *in[2];
    in[0] = add_tensor(g, draw_tensor(g, dtype, rank, dims));
    in[1] = add_tensor(g, draw_indices(g, more, some, dims[axis]));
    Node *node = draw_node(g, PRIM_GATHER, in, 2, dtype, rank - 1 + more, out);
    node_set_int(node, "axis", axis);
    return node;
}

/* A shape that fits into dims but along the axis, which may be long. */
static void draw_inner(int rank, const int64_t *dims, int axis, int64_t *inner) {
    for (int d = 0; d < rank; d++) inner[d] = draw(0, 2) ? dims[d] : draw(0, dims[d]);
    inner[axis] = draw(0, 1) ? draw(0, 12) : draw(64, 700);
}

static Node *draw_gather_elements(Drawing *g, DType dtype) {
    int64_t dims[MAX_RANK], inner[MAX_RANK];
    int rank = draw_dims(6, dims), axis = (int)draw(0, rank - 1);
    if (!dims[axis]) dims[axis] = 1;
    draw_inner(rank, dims, axis, inner);
    Value *in[2];
    in[0] = add_tensor(g, draw_tensor(g, dtype, rank, dims));
    in[1] = add_tensor(g, draw_indices(g, rank, inner, dims[axis]));
    Node *node = draw_node(g, PRIM_GATHER_ELEMENTS, in, 2, dtype, rank, inner);
    node_set_int(node, "axis", axis);
    return node;
}

static const char *draw_reduction(DType dtype) {
    static const char *const names[] = {"add", "mul", "min", "max"};
    bool combined = false;
    for (int i = 0; i < COMBINED; i++) combined = combined || dtypes[i] == dtype;
    if (!combined || draw(0, 2) == 0) return "none";
    return names[draw(dtype == DT_BOOL ? 2 : 0, 3)];
}

static Node *draw_scatter_elements(Drawing *g, DType dtype) {
    int64_t dims[MAX_RANK], inner[MAX_RANK];
    int rank = draw_dims(6, dims), axis = (int)draw(0, rank - 1);
    if (!dims[axis]) dims[axis] = 1;
    draw_inner(rank, dims, axis, inner);
    Value *in[3];
    in[0] = add_tensor(g, draw_tensor(g, dtype, rank, dims));
    in[1] = add_tensor(g, draw_indices(g, rank, inner, dims[axis]));
    in[2] = add_tensor(g, draw_tensor(g, dtype, rank, inner));
    Node *node = draw_node(g, PRIM_SCATTER_ELEMENTS, in, 3, dtype, rank, dims);
    node_set_int(node, "axis", axis);
    node_set_string(node, "reduction", draw_reduction(dtype));
    return node;
}

static Node *draw_scatter_nd(Drawing *g, DType dtype) {
    int64_t dims[MAX_RANK], index[MAX_RANK], update[MAX_RANK];
    int rank = draw_dims(6, dims), depth = (int)draw(0, rank), more = (int)draw(0, 2);
    for (int d = 0; d < rank; d++) dims[d] += !dims[d];
    for (int d = 0; d < more; d++) index[d] = draw(0, draw(0, 1) ? 4 : 30);
    index[more] = depth;
    memcpy(update, index, (size_t)more * sizeof *index);
    memcpy(update + more, dims + depth, (size_t)(rank - depth) * sizeof *dims);
    Tensor *indices = tensor_new(g->arena, draw(0, 1) ? DT_I32 : DT_I64, more + 1, index);
    bool rising = depth == 1 && draw(0, 1);
    for (int64_t i = 0; i < tensor_count(indices); i++) {
        int64_t size = dims[i % depth];
        dtype_store_int(indices->dtype, indices->data, i, rising && i < size ? i : draw(-size, size - 1));
    }
    Value *in[3];
    in[0] = add_tensor(g, draw_tensor(g, dtype, rank, dims));
    in[1] = add_tensor(g, indices);
    in[2] = add_tensor(g, draw_tensor(g, dtype, more + rank - depth, update));
    Node *node = draw_node(g, PRIM_SCATTER_ND, in, 3, dtype, rank, dims);
    node_set_string(node, "reduction", draw_reduction(dtype));
    return node;
}

static Node *(*const drawers[])(Drawing *, DType) = {
    draw_permute, draw_slice,           draw_expand,           draw_pad,       draw_concat,
    draw_gather,  draw_gather_elements, draw_scatter_elements, draw_scatter_nd};
enum { DRAWERS = sizeof drawers / sizeof *drawers };

Test(gpu_movement, random_nodes, .timeout = 900) {
    Bench b;
    uint64_t first, last;
    bench_open(&b);
    random_seeds(900, &first, &last);
    for (uint64_t seed = first; seed <= last; seed++) {
        Drawing g = {.arena = arena_create(0), .graph = graph_create(0)};
        state = seed * 0x9E3779B97F4A7C15u;
        DType dtype = dtypes[draw(0, sizeof dtypes / sizeof *dtypes - 1)];
        Node *node = drawers[seed % DRAWERS](&g, dtype);
        graph_add_named_output(g.graph, node->outputs[0], "y");
        size_t lead = draw(0, 2) ? 0 : dtype_size(dtype) * (size_t)draw(0, 16 / (int64_t)dtype_size(dtype));
        if (dtype_size(dtype) < 8 && prim_info(node->prim)->klass == PRIM_CLASS_INDEXED) lead = 0;
        const char *problem = check_node(&b, node, g.inputs, NULL, lead, g.arena);
        Text text = text_make(g.arena);
        if (problem) graph_print(&text, g.graph);
        cr_expect(!problem, "seed %llu: %s %s: %s\n%.2000s", (unsigned long long)seed, node->op, dtype_name(dtype),
                  problem, text.data);
        arena_destroy(g.arena);
        graph_destroy(g.graph);
    }
    bench_close(&b);
}

/* --- what random graphs hold outside regions --- */

static const char *check_graph(Bench *b, const RandomGraph *random, Arena *arena) {
    const int64_t *symbols = random_sizes(random, 1, arena);
    Tensor **given = random_inputs(random, 1, symbols, arena);
    Map tensors = map_make(arena);
    for (int i = 0; i < random->graph->inputs.count; i++)
        map_set_id(&tensors, MAP_POINTER_KEY(random->graph->inputs.items[i]), given[i]);
    FOR_EACH_NODE(node, random->graph) {
        Tensor **in = ARENA_ARRAY(arena, Tensor *, node->input_count + 1), *result;
        for (int i = 0; i < node->input_count; i++) {
            Value *v = node->inputs[i];
            in[i] = v->constant ? v->constant : map_get_id(&tensors, MAP_POINTER_KEY(v));
        }
        const char *problem = gpu_prim_runs(b->device, node) ? check_node(b, node, in, symbols, 0, arena) : NULL;
        if (problem) return arena_format(arena, "%s -> %s: %s", node->op, node->outputs[0]->name, problem);
        Status status = eval_prim(node, in, symbols, arena, &result);
        if (status) return status_message(status);
        map_set_id(&tensors, MAP_POINTER_KEY(node->outputs[0]), result);
    }
    return NULL;
}

Test(gpu_movement, random_graphs, .timeout = 900) {
    Bench b;
    uint64_t first, last;
    bench_open(&b);
    random_seeds(20, &first, &last);
    for (uint64_t seed = first; seed <= last; seed++) {
        RandomGraph *random = random_graph(seed, (RandomOptions){.nodes = 40});
        Arena *arena = arena_create(0);
        const char *problem = check_graph(&b, random, arena);
        cr_expect(!problem, "seed %llu: %s", (unsigned long long)seed, problem);
        arena_destroy(arena);
        graph_destroy(random->graph);
    }
    bench_close(&b);
}

/* --- tables --- */

static const struct {
    const char *name, *body;
} rows[] = {
    {"a permute of 16 axes, none of which merge",
     "x: u16[2, 2, 1, 2, 2, 1, 3, 2, 2, 1, 2, 2, 1, 2, 1, 2] = iota {shape = (2, 2, 1, 2, 2, 1, 3, 2, 2, 1, 2, 2, 1, "
     "2, 1, 2), axis = 3, dtype = u16}\n"
     "y: u16[2, 1, 2, 1, 2, 2, 1, 2, 2, 3, 1, 2, 2, 1, 2, 2] = permute x {perm = [15, 14, 13, 12, 11, 10, 9, 8, 7, 6, "
     "5, 4, 3, 2, 1, 0]}"},
    {"a large transpose", "x: i32[300, 500] = iota {shape = (300, 500), axis = 1, dtype = i32}\n"
                          "y: i32[500, 300] = permute x {perm = [1, 0]}"},
    {"a pad that leaves nothing of its input", "f = constant i8[] 7\n"
                                               "x: i8[3] = iota {shape = (3), axis = 0, dtype = i8}\n"
                                               "y: i8[4] = pad x, f {before = (-3), after = (4)}"},
    {"a pad of rows of 16 bytes", "f = constant f16[] 7\n"
                                  "x: f16[5, 6, 8] = iota {shape = (5, 6, 8), axis = 1, dtype = f16}\n"
                                  "y: f16[8, 8, 8] = pad x, f {before = (1, 1, 0), after = (2, 1, 0)}"},
    {"an expand to no elements", "x: i8[1, 3] = iota {shape = (1, 3), axis = 1, dtype = i8}\n"
                                 "y: i8[0, 3] = expand x {shape = (0, 3)}"},
    {"a slice that is one run", "x: f32[40, 9] = iota {shape = (40, 9), axis = 0, dtype = f32}\n"
                                "y: f32[7, 9] = slice x {shape = (7, 9), start = (13, 0), step = [1, 1]}"},
    {"a gather by a scalar", "x: f16[50, 4] = iota {shape = (50, 4), axis = 0, dtype = f16}\n"
                             "i = constant i32[] -1\ny: f16[50] = gather x, i {axis = 1}"},
    {"a gather of no rows",
     "x: i32[50, 4] = iota {shape = (50, 4), axis = 0, dtype = i32}\n"
     "i: i64[0] = iota {shape = (0), axis = 0, dtype = i64}\ny: i32[0, 4] = gather x, i {axis = 0}"},
    {"the last of many updates of one element",
     "x: i32[3] = iota {shape = (3), axis = 0, dtype = i32}\ni: i64[2000] = expand o {shape = (2000)}\n"
     "u: i32[2000] = iota {shape = (2000), axis = 0, dtype = i32}\n"
     "y: i32[3] = scatter_elements x, i, u {axis = 0, reduction = \"none\"}"},
    {"updates of f32 in their order",
     "x: f32[3] = iota {shape = (3), axis = 0, dtype = f32}\ni: i64[2000] = expand o {shape = (2000)}\n"
     "a: f32[2000] = iota {shape = (2000), axis = 0, dtype = f32}\n"
     "u: f32[2000] = sin a\n"
     "y: f32[3] = scatter_elements x, i, u {axis = 0, reduction = \"add\"}"},
    {"rows added in their order",
     "x: f16[3, 40] = iota {shape = (3, 40), axis = 1, dtype = f16}\nk: i64[300, 1] = expand o2 {shape = (300, 1)}\n"
     "a: f16[300, 40] = iota {shape = (300, 40), axis = 0, dtype = f16}\n"
     "u: f16[300, 40] = sin a\n"
     "y: f16[3, 40] = scatter_nd x, k, u {reduction = \"add\"}"},
};

Test(gpu_movement, rows) {
    Bench b;
    bench_open(&b);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        Arena *arena = arena_create(0);
        RandomGraph random = {0};
        const char *text = arena_format(
            arena, "graph () -> (y) {\no = constant i64[1] {2}\no2 = constant i64[1, 1] {-1}\n%s\n}", rows[i].body);
        Status status = graph_parse(text, &random.graph);
        cr_assert(!status, "%s: %s", rows[i].name, status_message(status));
        const char *problem = check_graph(&b, &random, arena);
        cr_expect(!problem, "%s: %s", rows[i].name, problem);
        arena_destroy(arena);
        graph_destroy(random.graph);
    }
    bench_close(&b);
}

/* Indices out of range: nothing is written for them, the rest is, and the next synchronize tells. */
static const struct {
    const char *name, *body;
} faults[] = {
    {"gather beyond the axis", "y: i32[2] = gather x, i {axis = 0}"},
    {"gather_elements beyond", "y: i32[2] = gather_elements x, i {axis = 0}"},
    {"scatter_elements beyond", "y: i32[4] = scatter_elements x, i, u {axis = 0, reduction = \"none\"}"},
    {"scatter_nd beyond", "y: i32[4] = scatter_nd x, k, u {reduction = \"add\"}"},
};

Test(gpu_movement, indices_out_of_range) {
    static const char given[] = "x = constant i32[4] {1, 2, 3, 4}\ni = constant i64[2] {-5, 3}\n"
                                "k = constant i64[2, 1] {-5, 3}\nu = constant i32[2] {7, 8}";
    Bench b;
    bench_open(&b);
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) {
        Arena *arena = arena_create(0);
        Graph *graph = NULL;
        DONE(graph_parse(arena_format(arena, "graph () -> (y) {\n%s\n%s\n}", given, faults[i].body), &graph));
        Node *node = graph->last;
        Placed placed[4];
        const Tensor *in[3];
        int64_t dims[1];
        for (int k = 0; k < node->input_count; k++) {
            placed[k] = place(&b, arena, node->inputs[k]->constant, true, 0);
            in[k] = &placed[k].tensor;
        }
        dim_is_const(node->outputs[0]->dims[0], &dims[0]);
        Tensor *like = tensor_new(arena, DT_I32, 1, dims);
        placed[3] = place(&b, arena, like, false, 0);
        DONE(gpu_prim_prepare(b.device, node, NULL));
        DONE(gpu_prim_run(b.device, b.stream, node, in, NULL, &placed[3].tensor, arena));
        Status status = gpu_synchronize(b.device, b.stream);
        cr_expect(status_code(status) == STATUS_INVALID && strstr(status_message(status), "index -5 is out of range") &&
                      strstr(status_message(status), "size 4"),
                  "%s: %s", faults[i].name, status ? status_message(status) : "no error");
        status_free(status);
        unsigned char back[4 * 4 + 2 * GUARD];
        DONE(gpu_copy(b.device, b.stream, COPY_OUT, back, placed[3].block, placed[3].bytes));
        DONE(gpu_synchronize(b.device, b.stream));
        int32_t last;
        memcpy(&last, back + GUARD + (dims[0] - 1) * 4, 4);
        cr_expect(last == (node->prim == PRIM_SCATTER_ELEMENTS ? 8
                           : node->prim == PRIM_SCATTER_ND     ? 12
                                                               : 4),
                  "%s: %d", faults[i].name, last);
        cr_expect(unchanged(back, GUARD) && unchanged(back + placed[3].bytes - GUARD, GUARD), "%s", faults[i].name);
        for (int k = 0; k < node->input_count; k++) gpu_release(b.device, b.stream, NULL, placed[k].block);
        gpu_release(b.device, b.stream, NULL, placed[3].block);
        arena_destroy(arena);
        graph_destroy(graph);
    }
    bench_close(&b);
}
