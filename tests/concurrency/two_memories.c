/* SPDX-License-Identifier: Apache-2.0 */
/* One plan over two memories (tests/runtime/two_memories.h) run from several threads at once, with shapes that change
 * from run to run: streams, device arenas and scratch memory change hands while work on them is late. Results are the
 * CPU's to the bit. A plain program, for ThreadSanitizer. */
#include "../runtime/two_memories.c"
#include "runtime/run/run.h"

enum { THREADS = 4, RUNS = 40, SHAPES = 20, MOST_ROWS = 24 };

/* A region, a GEMM, a step that the device refuses, another region: copies both ways in the midst. */
static const char text[] = "graph (x: f32[n, 24], w: f32[24, 40]) -> (y, z) {\n"
                           "  h: f32[n, 24] = tanh x\n"
                           "  a: f32[n, 40] = anchor matmul h, w\n"
                           "  refused: f32[n*2, 40] = concat a, a {axis = 0}\n"
                           "  e: f32[n*2, 40] = exp refused\n"
                           "  s: f32[n*2, 1] = reduce_sum e {axes = [1]}\n"
                           "  y: f32[n*2, 40] = div e, s\n"
                           "  z: f32[n, 48] = concat x, h {axis = 1}\n"
                           "}\n";

static atomic_int failures;
static Loaded cpu, device;

static void fail(const char *what) {
    fprintf(stderr, "FAIL  %s\n", what);
    atomic_fetch_add(&failures, 1);
}

static void open_on(Loaded *l, const TwoMemoriesOptions *options) {
    Graph *graph;
    Status status = graph_parse(text, &graph);
    if (!status) status = loaded_open(l, graph, false, options, 0);
    if (!status) return;
    fprintf(stderr, "FAIL  %s\n", status_message(status));
    exit(1);
}

static void compare_run(int64_t rows, int salt, float *x, float *w, Arena *arena) {
    for (int64_t i = 0; i < rows * 24; i++) x[i] = (float)((i * 37 + salt) % 23) / 16 - 0.5f;
    for (int64_t i = 0; i < 24 * 40; i++) w[i] = (float)((i * 11 + salt) % 19) / 16 - 0.5f;
    Item items[] = {{.kind = ITEM_TENSOR, .tensor = {.dtype = DT_F32, .rank = 2, .dims = {rows, 24}, .data = x}},
                    {.kind = ITEM_TENSOR, .tensor = {.dtype = DT_F32, .rank = 2, .dims = {24, 40}, .data = w}}};
    const Item *inputs[] = {&items[0], &items[1]};
    RunOutput expected[2] = {0}, got[2] = {0};
    Status status = loaded_run(&cpu, inputs, expected), other = loaded_run(&device, inputs, got);
    if (status || other) fail(status_message(status ? status : other));
    for (int o = 0; o < 2 && !status && !other; o++) {
        const char *difference = item_difference(&expected[o].item, &got[o].item, arena);
        if (difference) fail(difference);
    }
    for (int o = 0; o < 2; o++) {
        item_free(&cpu.memory, &expected[o].item);
        item_free(&device.memory, &got[o].item);
    }
    status_free(status);
    status_free(other);
}

static void *work(void *context) {
    int number = *(const int *)context;
    Arena *arena = arena_create(0);
    float *x = ARENA_ARRAY(arena, float, MOST_ROWS * 24), *w = ARENA_ARRAY(arena, float, 24 * 40);
    for (int r = 0; r < RUNS; r++) compare_run(1 + (r * 7 + number * 3) % SHAPES, r + number, x, w, arena);
    arena_destroy(arena);
    return NULL;
}

int main(void) {
    Arena *arena = arena_create(0);
    pthread_t threads[THREADS];
    int numbers[THREADS];
    open_on(&cpu, NULL);
    open_on(&device, &(TwoMemoriesOptions){.seed = 7, .refused = "refused", .early = 30});
    for (int t = 0; t < THREADS; t++) {
        numbers[t] = t;
        if (pthread_create(&threads[t], NULL, work, &numbers[t])) return 1;
    }
    for (int t = 0; t < THREADS; t++) pthread_join(threads[t], NULL);
    Loaded *both[] = {&cpu, &device};
    for (int i = 0; i < 2; i++) {
        const char *left = loaded_close(both[i], arena);
        if (left) fail(left);
        graph_destroy(both[i]->graph);
    }
    arena_destroy(arena);
    printf("%s: %d threads, %d runs each, %d failures\n", failures ? "FAIL" : "ok", THREADS, RUNS, failures);
    return failures != 0;
}
