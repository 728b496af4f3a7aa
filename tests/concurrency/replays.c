/* SPDX-License-Identifier: Apache-2.0 */
/* One plan on a device that records, run from several threads at once: few shapes, so that recordings are shared out
 * and a second one is made for the same shapes; then so many that sizes and recordings are evicted while others are in
 * use. A plain program, for ThreadSanitizer; it checks every result. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "two_memories.h"
#include "runtime/run/run.h"

enum { THREADS = 4, RUNS = 240, FEW = 2, MANY = 24, COLUMNS = 24, WIDTH = 16 };

static const char text[] = "graph (x: f32[n, 24], w: f32[24, 16]) -> (y) {\n"
                           "  h: f32[n, 24] = tanh x\n"
                           "  a: f32[n, 16] = anchor matmul h, w\n"
                           "  m: f32[n, 1] = reduce_max a {axes = [1]}\n"
                           "  d: f32[n, 16] = sub a, m\n"
                           "  e: f32[n, 16] = exp d\n"
                           "  s: f32[n, 1] = reduce_sum e {axes = [1]}\n"
                           "  p: f32[n, 16] = div e, s\n"
                           "  y: f32[n*2, 16] = concat p, p {axis = 0}\n"
                           "}\n";

static atomic_int failures;

static void require(Status status, const char *what) {
    if (!status) return;
    fprintf(stderr, "FAIL  %s: %s\n", what, status_message(status));
    exit(1);
}

static Graph *graph_of(void) {
    Graph *graph = NULL;
    require(graph_parse(text, &graph), "parse");
    return graph;
}

typedef struct Worker {
    Loaded *cpu, *two;
    int number;
} Worker;

static void run_shape(Worker *w, int rows, int round) {
    float x[MANY * COLUMNS], weights[COLUMNS * WIDTH];
    for (int i = 0; i < rows * COLUMNS; i++) x[i] = (float)((i * 7 + round * 13) % 31) / 16 - 1;
    for (int i = 0; i < COLUMNS * WIDTH; i++) weights[i] = (float)((i * 5 + round) % 29) / 16 - 1;
    Item a = {.kind = ITEM_TENSOR, .tensor = {.dtype = DT_F32, .rank = 2, .dims = {rows, COLUMNS}, .data = x}};
    Item b = {.kind = ITEM_TENSOR, .tensor = {.dtype = DT_F32, .rank = 2, .dims = {COLUMNS, WIDTH}, .data = weights}};
    const Item *inputs[] = {&a, &b};
    RunOutput expected = {0}, got = {0};
    Arena *arena = arena_create(0);
    require(loaded_run(w->cpu, inputs, &expected), "CPU");
    require(loaded_run(w->two, inputs, &got), "two memories");
    const char *difference = item_difference(&expected.item, &got.item, arena);
    if (difference) {
        fprintf(stderr, "FAIL  %d rows, round %d: %s\n", rows, round, difference);
        atomic_fetch_add(&failures, 1);
    }
    arena_destroy(arena);
    item_free(&w->cpu->memory, &expected.item);
    item_free(&w->two->memory, &got.item);
}

static void *work(void *context) {
    Worker *w = context;
    for (int r = 0; r < RUNS; r++)
        run_shape(w, 1 + (r < RUNS / 2 ? r % FEW : (r / 3 * 7 + w->number) % MANY), r * THREADS + w->number);
    return NULL;
}

int main(void) {
    const TwoMemoriesOptions records = {.seed = 3, .early = 30, .records = true};
    Loaded cpu, two;
    Worker workers[THREADS];
    pthread_t threads[THREADS];
    Graph *graphs[] = {graph_of(), graph_of()};
    require(loaded_open(&cpu, graphs[0], false, NULL, 0), "open");
    require(loaded_open(&two, graphs[1], false, &records, 0), "open");
    for (int t = 0; t < THREADS; t++) {
        workers[t] = (Worker){&cpu, &two, t};
        pthread_create(&threads[t], NULL, work, &workers[t]);
    }
    for (int t = 0; t < THREADS; t++) pthread_join(threads[t], NULL);
    printf("%d replays, %d recordings are kept\n", two.two->replays, two.two->recordings);
    if (two.two->replays < RUNS) atomic_fetch_add(&failures, 1);
    Arena *arena = arena_create(0);
    const char *left[] = {loaded_close(&two, arena), loaded_close(&cpu, arena)};
    for (int i = 0; i < 2; i++)
        if (left[i]) {
            fprintf(stderr, "FAIL  %s\n", left[i]);
            atomic_fetch_add(&failures, 1);
        }
    for (int i = 0; i < 2; i++) graph_destroy(graphs[i]);
    arena_destroy(arena);
    return failures ? 1 : 0;
}
