/* SPDX-License-Identifier: Apache-2.0 */
/* The binary form: what was written reads back with the same print, and whatever else the bytes are, they do no harm.
 */
#include <criterion/criterion.h>
#include <setjmp.h>
#include <stdio.h>

#include "graph/store.h"
#include "passes/passes.h"
#include "random_graph.h"

enum { SEEDS = 150, ARENA_LIMIT = 64 << 20 };

static const char *const texts[] = {
    "graph (x: f32[b, floor(s/2), min(s, 3*b) + 1]) -> (y as result) {\n"
    "  c = constant f32[] 0.5\n"
    "  y: f32[b, floor(s/2), min(s, 3*b) + 1] = add x, c  # from first, second\n"
    "}\n",
    /* sequences, optionals, maps, strings, values that are sizes, outputs that are not asked for */
    "opset 21\nopset \"ai.onnx.ml\" 3\n"
    "graph \"all kinds\" (q: seq(f32[*]), o: opt(i64[n]), t: string[n], z: i64[2]<b, 7>, m: map(i64, string[*]), r: "
    "mapseq(string, f32[*])) -> (a, t as same, k) {\n"
    "  k = constant string[2] {\"one\", \"\\x00two\"}\n"
    "  a: f32[u], _, d: string[3] = host \"my.domain\" Thing@4 q, _, t {names = [\"x\", \"\"], value = tensor f64[2] "
    "{1, "
    "inf}, n = -5, f = 0.25, some = [1, -2, 3], reals = [0.5, 1e+30], sizes = (n, mod(n, 3), 7), to = bf16, none = "
    "floats[], more = [tensor i8[] 1, tensor bool[1] {true}]}  # from \"a, b\"\n"
    "}\n",
    /* graphs in graphs, with captures */
    "graph (c: bool[], x: f32[2]) -> (y) {\n"
    "  y: f32[2] = host If@16 c, x captures 1 graph \"then\" (x: f32[2]) -> (r) {\n"
    "    r: f32[2] = neg x\n"
    "  } graph \"else\" (x: f32[2]) -> (x) {\n"
    "  }\n"
    "}\n",
};
enum { TEXTS = sizeof texts / sizeof *texts };

static const void *data_at(void *user, uint64_t place, size_t bytes) {
    (void)bytes;
    return *(const void *const *)user == NULL ? NULL : (const void *)(uintptr_t)place;
}

static bool keep_data(void *user, const Tensor *tensor, uint64_t *out_place) {
    (void)user;
    *out_place = (uint64_t)(uintptr_t)tensor->data;
    return true;
}

static Text written(const Graph *graph, Arena *arena) {
    Text bytes = text_make(arena);
    StoreWriter w = store_writer(arena, graph->dims, &bytes);
    w.put_data = keep_data;
    Status status = store_graph(&w, graph);
    cr_assert(status == NULL, "%s", status_message(status));
    return bytes;
}

/* Under the guard of the new graph, as every reader must be. */
static Status read_back(const void *bytes, size_t size, const void *data, Graph **out_graph) {
    Graph *volatile graph = graph_create(ARENA_LIMIT);
    jmp_buf guard;
    Status status;
    if (setjmp(guard)) {
        status = status_out_of_memory();
    } else {
        arena_guard(graph->arena, &guard);
        StoreReader r = store_reader(graph, bytes, size);
        r.data = data_at;
        r.user = &data;
        status = restore_graph(&r);
        arena_guard(graph->arena, NULL);
    }
    *out_graph = graph;
    if (status) graph_destroy(graph);
    return status;
}

static void check_same(const Graph *graph, const char *name) {
    Arena *arena = arena_create(0);
    Graph *copy;
    Text bytes = written(graph, arena);
    Status status = read_back(bytes.data, bytes.size, bytes.data, &copy);
    cr_assert(status == NULL, "%s: %s", name, status_message(status));
    cr_assert_str_eq(graph_text(graph, arena), graph_text(copy, arena), "%s", name);
    graph_destroy(copy);
    arena_destroy(arena);
}

Test(store, texts_read_back) {
    for (int i = 0; i < TEXTS; i++) {
        Graph *graph;
        Status status = graph_parse(texts[i], &graph);
        cr_assert(status == NULL, "%d: %s", i, status_message(status));
        check_same(graph, texts[i]);
        graph_destroy(graph);
    }
}

Test(store, random_graphs_read_back) {
    uint64_t first, last;
    Policy policy = policy_default();
    policy.target.epilogue = (struct EpilogueLimits){EPILOGUE_OUTPUTS, true};
    random_seeds(SEEDS, &first, &last);
    for (uint64_t seed = first; seed <= last; seed++) {
        RandomGraph *random = random_graph(seed, (RandomOptions){.nodes = 40, .anchors = seed % 2});
        char name[32];
        snprintf(name, sizeof name, "seed %llu", (unsigned long long)seed);
        check_same(random->graph, name);
        Status status = merge_common(random->graph, &policy);
        if (!status) status = partition(random->graph, &policy);
        cr_assert(status == NULL, "%s: %s", name, status_message(status));
        check_same(random->graph, name);
        graph_destroy(random->graph);
    }
}

static Status nameless(HostCall *call) {
    (void)call;
    return NULL;
}

/* Sizes in sizes, as deep as there are any: beyond that they are sizes that nothing is known of. */
Test(store, sizes_in_sizes) {
    Graph *graph = graph_create(0), *copy;
    const Dim *dim = dim_symbol(graph->dims, "n"), *p = dim_symbol(graph->dims, "p"), *q = dim_symbol(graph->dims, "q");
    for (int i = 0; i < 200; i++) {
        dim = dim_mod(graph->dims, dim_add(graph->dims, dim, p), q);
        Value *x = graph_add_input(graph, arena_format(graph->arena, "x%d", i), DT_F32, 1, &dim);
        if (i == 199) graph_add_output(graph, x);
    }
    Arena *arena = arena_create(0);
    Text bytes = written(graph, arena), before = text_make(arena), after = text_make(arena);
    Status status = read_back(bytes.data, bytes.size, NULL, &copy);
    cr_assert(!status, "%s", status_message(status));
    graph_print(&before, graph);
    graph_print(&after, copy);
    cr_expect_str_eq(before.data, after.data);
    graph_destroy(copy);
    graph_destroy(graph);
    arena_destroy(arena);
}

Test(store, a_host_kernel_without_a_name_is_told) {
    Graph *graph;
    Arena *arena = arena_create(0);
    cr_assert(graph_parse("graph () -> (a) {\n  a: f32[2] = host Thing@1\n}\n", &graph) == NULL);
    graph->first->host = nameless;
    Text bytes = text_make(arena);
    StoreWriter w = store_writer(arena, graph->dims, &bytes);
    Status status = store_graph(&w, graph);
    cr_assert_eq(status_code(status), STATUS_UNSUPPORTED);
    cr_assert(strstr(status_message(status), "Thing"));
    status_free(status);
    graph_destroy(graph);
    arena_destroy(arena);
}

/* Cut anywhere, it is refused; with a bit turned, refused or read as something else. What reads is verified: that must
 * not fall over either. */
static void damage(const Graph *graph) {
    Arena *arena = arena_create(0);
    Graph *copy;
    Text bytes = written(graph, arena);
    for (size_t size = 0; size < bytes.size; size++) {
        char *cut = malloc(size + 1);
        memcpy(cut, bytes.data, size);
        Status status = read_back(cut, size, NULL, &copy);
        cr_assert_neq(status_code(status), STATUS_OK, "cut to %zu of %zu bytes", size, bytes.size);
        status_free(status);
        free(cut);
    }
    for (size_t at = 0; at < bytes.size; at++)
        for (int bit = 0; bit < 8; bit += 1 + (int)(at % 3)) {
            bytes.data[at] ^= (char)(1 << bit);
            Status status = read_back(bytes.data, bytes.size, NULL, &copy);
            if (!status) {
                status = graph_verify(copy, LEVEL_PARTITIONED);
                graph_destroy(copy);
            }
            status_free(status);
            bytes.data[at] ^= (char)(1 << bit);
        }
    arena_destroy(arena);
}

Test(store, damaged_bytes_do_no_harm) {
    Policy policy = policy_default();
    for (int i = 0; i < TEXTS; i++) {
        Graph *graph;
        cr_assert(graph_parse(texts[i], &graph) == NULL);
        damage(graph);
        graph_destroy(graph);
    }
    for (uint64_t seed = 1; seed <= 4; seed++) {
        RandomGraph *random = random_graph(seed, (RandomOptions){.nodes = 12, .anchors = true});
        Status status = partition(random->graph, &policy);
        cr_assert(status == NULL);
        damage(random->graph);
        graph_destroy(random->graph);
    }
}
