/* SPDX-License-Identifier: Apache-2.0 */
/* Replays (runtime/run/replay.h) on a device of two memories that computes for real: runs that are replayed give what the
 * CPU gives, to the bit, with other values each time, for shapes in turn, from several threads, with inputs and outputs
 * in device memory; what cannot be replayed says why; each call may fail, and nothing is lost. */
#include <criterion/criterion.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "importer/importer.h"
#include "models.h"
#include "random_graph.h"
#include "two_memories.h"
#include "runtime/inspect/report.h"
#include "runtime/run/run.h"

enum { MOST_OUTPUTS = 256, MOST_SYMBOLS = 64 };

static const TwoMemoriesOptions records = {.seed = 5, .early = 20, .records = true};

typedef struct Row {
    const char *name, *model;
    const char *reason; /* part of why runs are not replayed; NULL: they are */
    bool may_fail;      /* indices may be out of range: both fail alike */
} Row;

static const Row rows[] = {
    {"a chain of regions and a GEMM",
     "graph (x: f32[n, 20], w: f32[20, 24]) -> (y, m) {\n"
     "t = onnx Tanh@21 x\na = onnx MatMul@21 t, w\ns = onnx Softmax@21 a {axis = 1}\n"
     "m = onnx ReduceMax@21 s {keepdims = 0}\ny = onnx Sub@21 s, a\n}",
     NULL, false},
    {"an input that is read last, outputs that are ready early",
     "graph (x: f32[n, 16], w: f32[16, 16], z: f32[n, 16]) -> (a, b, c) {\n"
     "a = onnx Softmax@21 x {axis = 1}\nb = onnx MatMul@21 a, w\ns = onnx Softmax@21 b {axis = 1}\n"
     "t = onnx MatMul@21 s, w\nu = onnx Softmax@21 t {axis = 1}\nv = onnx MatMul@21 u, w\nc = onnx Mul@21 v, z\n}",
     NULL, false},
    {"views, a value twice, an input and a constant as outputs",
     "graph (x: f32[n, 4]) -> (x, c, y, y, r, z) {\n"
     "c = constant f32[2] {1, 2}\ny = onnx Softmax@21 x {axis = 0}\nd = constant i64[1] {-1}\n"
     "r = onnx Reshape@21 y, d\nz = onnx Concat@21 y, x {axis = 1}\n}",
     NULL, false},
    {"a step of the CPU after those of the device",
     "graph (x: f32[n, 6], w: f32[6, 6]) -> (y, i) {\n"
     "a = onnx MatMul@21 x, w\ns = onnx Softmax@21 a {axis = 1}\ny = onnx MatMul@21 s, w\n"
     "r = onnx Relu@21 a\ni = onnx NonZero@21 r\n}",
     NULL, false},
    {"a step of the CPU before them",
     "graph (x: f32[n, 6], q: f32[30]) -> (y, z, i) {\n"
     "a = onnx Softmax@21 x {axis = 0}\ni = onnx NonZero@21 q\ny = onnx Concat@21 a, x {axis = 1}\n"
     "z = onnx ReduceSum@21 y {keepdims = 0}\n}",
     NULL, false},
    {"random numbers that differ in every run",
     "graph (x: f32[n, 64]) -> (y, s) {\n"
     "r = onnx RandomNormalLike@21 x\ny = onnx Add@21 x, r\ns = onnx Softmax@21 y {axis = 1}\n}",
     "", false},
    {"indices that may be out of range",
     "graph (x: f32[n, 30], i: i64[m]) -> (y) {\n"
     "e = onnx Softmax@21 x {axis = 0}\ng = onnx Gather@21 e, i {axis = 1}\ny = onnx Softmax@21 g {axis = 0}\n}",
     NULL, true},
    {"sizes that only a step of the CPU knows",
     "graph (x: f32[n]) -> (g, s) {\n"
     "r = onnx Relu@21 x\ni = onnx NonZero@21 r\none = constant i64[1] {0}\nf = onnx Squeeze@21 i, one\n"
     "g = onnx Gather@21 r, f\nq = onnx Mul@21 g, g\ns = onnx ReduceSum@21 q {keepdims = 0}\n}",
     "NonZero", false},
    {"a shape that is given as data",
     "graph (x: f32[n, 6], k: i64[2]) -> (z, s) {\n"
     "e = onnx Softmax@21 x {axis = 0}\nz = onnx Expand@21 e, k\ns = onnx ReduceSum@21 z {keepdims = 0}\n}",
     "that only the run finds", false},
    {"one step alone", "graph (x: f32[n, 40]) -> (y) {\ny = onnx Exp@21 x\n}", "fewer than two", false},
};
enum { ROWS = sizeof rows / sizeof *rows };

/* --- models and their inputs --- */
static Graph *graph_of(const char *text) {
    size_t size;
    void *bytes = model_bytes(text, &size);
    ImportOptions options = {0};
    Graph *graph = NULL;
    Status status = import_memory(bytes, size, NULL, &options, &graph);
    cr_assert(!status, "%s\n%s", status_message(status), text);
    free(bytes);
    return graph;
}

static uint32_t drawn(uint64_t at) {
    at = (at + 1) * 0x9E3779B97F4A7C15u;
    at = (at ^ (at >> 32)) * 0xD6E8FEB86659FD93u;
    return (uint32_t)(at >> 33);
}

/* Every symbol is 2 + shape; values are of the round. An i64[2] is a shape that x of [n, 6] expands to. */
static const Item *const *inputs_of(const Graph *graph, int shape, int round, Arena *arena) {
    int64_t symbols[MOST_SYMBOLS];
    for (int i = 0; i < MOST_SYMBOLS; i++) symbols[i] = 2 + shape;
    const Item **pointers = ARENA_ARRAY(arena, const Item *, graph->inputs.count);
    for (int i = 0; i < graph->inputs.count; i++) {
        const Value *v = graph->inputs.items[i];
        int64_t dims[MAX_RANK];
        for (int d = 0; d < v->rank; d++) dims[d] = dim_eval(v->dims[d], symbols);
        Tensor *t = tensor_new(arena, v->dtype, v->rank, dims);
        bool is_shape = v->dtype == DT_I64 && dims[0] == 2 && strcmp(v->name, "k") == 0;
        for (int64_t e = 0; e < tensor_count(t); e++) {
            uint32_t x = drawn((uint64_t)(round * 31 + i) * 100003 + (uint64_t)e);
            if (v->dtype == DT_F32) ((float *)t->data)[e] = (float)(int)(x % 4001) / 1000 - 2;
            if (v->dtype == DT_I64) ((int64_t *)t->data)[e] = x % 100 == 0 ? 30 : (int64_t)(x % 30);
            if (is_shape) ((int64_t *)t->data)[e] = e ? 6 : 2 + shape;
        }
        Item *item = ARENA_NEW(arena, Item);
        *item = (Item){.kind = ITEM_TENSOR, .tensor = *t};
        pointers[i] = item;
    }
    return pointers;
}

static void free_outputs(Loaded *l, RunOutput *outputs) {
    for (int o = 0; o < l->graph->outputs.count; o++)
        if (!outputs[o].given) item_free(&l->memory, &outputs[o].item);
}

static const char *message_of(Status status, Arena *arena) {
    const char *message = arena_string(arena, status_message(status));
    status_free(status);
    return message;
}

static const char *outputs_difference(const Loaded *l, const RunOutput *expected, const RunOutput *got, Arena *arena) {
    for (int o = 0; o < l->graph->outputs.count; o++) {
        const char *difference = item_difference(&expected[o].item, &got[o].item, arena);
        if (difference) return arena_format(arena, "output %d: %s", o, difference);
    }
    return NULL;
}

static const char *compare(Loaded *cpu, Loaded *two, const Item *const *inputs, Arena *arena) {
    RunOutput expected[MOST_OUTPUTS] = {0}, got[MOST_OUTPUTS] = {0};
    Status status = loaded_run(cpu, inputs, expected), other = loaded_run(two, inputs, got);
    const char *problem = NULL;
    if (status || other) {
        const char *want = message_of(status, arena), *have = message_of(other, arena);
        if (strcmp(want, have)) problem = arena_format(arena, "\"%s\", expected \"%s\"", have, want);
    } else {
        problem = outputs_difference(cpu, expected, got, arena);
    }
    if (!problem && two->two->pending) problem = "work is left when the run returns";
    free_outputs(cpu, expected);
    free_outputs(two, got);
    return problem;
}

typedef struct Pair {
    Arena *arena;
    Graph *graphs[2];
    Loaded cpu, two;
} Pair;

static void open_pair(Pair *p, Graph *a, Graph *b, bool lower, TwoMemoriesOptions options) {
    *p = (Pair){.arena = arena_create(0), .graphs = {a, b}};
    Status status = loaded_open(&p->cpu, a, lower, NULL, 0);
    if (!status) status = loaded_open(&p->two, b, lower, &options, 0);
    cr_assert(!status, "%s", status_message(status));
}

static void close_pair(Pair *p, const char *name, const char *problem) {
    Text text = text_make(p->arena);
    plan_print(&text, p->two.plan, 0);
    const char *left = loaded_close(&p->two, p->arena);
    if (!problem) problem = left;
    cr_expect(!problem, "%s: %s\n%s", name, problem, text.data);
    left = loaded_close(&p->cpu, p->arena);
    cr_expect(!left, "%s: %s", name, left);
    for (int i = 0; i < 2; i++) graph_destroy(p->graphs[i]);
    arena_destroy(p->arena);
}

static void open_row(Pair *p, const Row *row) {
    open_pair(p, graph_of(row->model), graph_of(row->model), true, records);
}

/* --- the same results --- */
Test(replay, runs_give_what_the_cpu_gives, .timeout = 600) {
    static const int shapes[] = {0, 0, 0, 1, 0, 1, 1, 1, 2, 0, 2, 1, 2, 2, 0, 0, 1};
    for (int i = 0; i < ROWS; i++) {
        Pair p;
        open_row(&p, &rows[i]);
        const char *problem = NULL;
        for (size_t r = 0; r < sizeof shapes / sizeof *shapes && !problem; r++)
            problem = compare(&p.cpu, &p.two, inputs_of(p.cpu.graph, 5 * shapes[r], (int)r, p.arena), p.arena);
        const char *reason = p.two.plan->not_recorded, *wanted = rows[i].reason;
        if (!problem && !wanted && p.two.two->replays < (rows[i].may_fail ? 1 : 8))
            problem = arena_format(p.arena, "%d replays: %s", p.two.two->replays, reason ? reason : "");
        if (!problem && wanted && *wanted && (p.two.two->replays || !reason || !strstr(reason, wanted)))
            problem = arena_format(p.arena, "%d replays, reason %s", p.two.two->replays, reason ? reason : "none");
        close_pair(&p, rows[i].name, problem);
    }
}

/* Draws of a run depend on its number, whether it is replayed or not. */
Test(replay, random_numbers_are_drawn_afresh) {
    Pair p;
    open_row(&p, &rows[5]);
    RunOutput last[2] = {0};
    const Item *const *inputs = inputs_of(p.cpu.graph, 0, 1, p.arena);
    for (int r = 0; r < 6; r++) {
        RunOutput now[2] = {0};
        cr_assert(!loaded_run(&p.two, inputs, now));
        cr_expect(!r || outputs_difference(&p.two, last, now, p.arena), "run %d draws what the one before drew", r);
        free_outputs(&p.two, last);
        memcpy(last, now, sizeof last);
    }
    free_outputs(&p.two, last);
    close_pair(&p, rows[5].name, NULL);
}

static RandomOptions options_of(uint64_t seed) {
    return (RandomOptions){.nodes = 4 + (int)(seed % 40), .anchors = seed % 3 != 0, .no_symbols = seed % 5 == 0};
}

static int try_seed(uint64_t seed) {
    Pair p;
    RandomGraph *a = random_graph(seed, options_of(seed)), *b = random_graph(seed, options_of(seed));
    TwoMemoriesOptions options = records;
    options.seed = seed;
    options.early = (int)(seed % 4) * 30;
    options.refuses = seed % 3 == 0 ? 15 : 0;
    open_pair(&p, a->graph, b->graph, false, options);
    const char *problem = NULL;
    for (int r = 0; r < 9 && !problem; r++) {
        int64_t *symbols = random_sizes(a, r % 2, p.arena);
        Tensor **tensors = random_inputs(a, r, symbols, p.arena);
        const Item **inputs = ARENA_ARRAY(p.arena, const Item *, a->graph->inputs.count);
        for (int i = 0; i < a->graph->inputs.count; i++) {
            Item *item = ARENA_NEW(p.arena, Item);
            *item = (Item){.kind = ITEM_TENSOR, .tensor = *tensors[i]};
            inputs[i] = item;
        }
        problem = compare(&p.cpu, &p.two, inputs, p.arena);
    }
    int replays = p.two.two->replays;
    close_pair(&p, arena_format(a->graph->arena, "seed %llu", (unsigned long long)seed), problem);
    return replays;
}

Test(replay, random_graphs, .timeout = 3600) {
    uint64_t first, last;
    int replays = 0, count = 0;
    random_seeds(120, &first, &last);
    for (uint64_t seed = first; seed <= last; seed++, count++) replays += try_seed(seed);
    cr_expect(count < 20 || replays > count, "%d replays of %d graphs", replays, count);
}

Test(replay, models, .timeout = 600) {
    static const char *const folders[] = {"tests/models/classifier", "tests/models/names"};
    for (int i = 0; i < 2; i++) {
        Pair p;
        Graph *graphs[2] = {0};
        for (int g = 0; g < 2; g++) {
            char path[256];
            snprintf(path, sizeof path, "%s/model.onnx", folders[i]);
            cr_assert(!import_file(path, NULL, &graphs[g]));
        }
        open_pair(&p, graphs[0], graphs[1], true, records);
        const char *problem = NULL;
        for (int r = 0; r < 8 && !problem; r++)
            problem = compare(&p.cpu, &p.two, inputs_of(graphs[0], r % 3, r, p.arena), p.arena);
        close_pair(&p, folders[i], problem);
    }
}

/* --- bounds --- */
Test(replay, more_shapes_than_are_kept, .timeout = 600) {
    Pair p;
    open_row(&p, &rows[0]);
    const char *problem = NULL;
    int blocks = 0;
    for (int r = 0; r < 200 && !problem; r++) {
        problem = compare(&p.cpu, &p.two, inputs_of(p.cpu.graph, r < 100 ? r / 4 : r % 14, r, p.arena), p.arena);
        if (!problem && p.two.two->recordings > 16) problem = "too many recordings are kept";
        if (blocks < p.two.two->blocks) blocks = p.two.two->blocks;
    }
    cr_expect(p.two.two->replays > 100, "%d replays", p.two.two->replays);
    cr_expect(blocks < 100, "%d blocks of device memory", blocks);
    close_pair(&p, "25 shapes", problem);
}

/* What the host asks of the device in one replayed run. */
static int calls_of_a_replay(int layers) {
    Arena *arena = arena_create(0);
    Text text = text_make(arena);
    text_add(&text, "graph (x: f32[n, 8], w: f32[8, 8]) -> (y) {\nv0 = onnx Identity@21 x\n");
    for (int i = 0; i < layers; i++)
        text_add(&text, "m%d = onnx MatMul@21 v%d, w\nv%d = onnx Softmax@21 m%d {axis = 1}\n", i, i, i + 1, i);
    text_add(&text, "y = onnx Neg@21 v%d\n}", layers);
    Row row = {.name = "layers", .model = text.data};
    Pair p;
    open_row(&p, &row);
    const char *problem = NULL;
    int calls = 0, launches = 0;
    for (int r = 0; r < 5 && !problem; r++) {
        calls = p.two.two->calls;
        launches = p.two.two->launches;
        problem = compare(&p.cpu, &p.two, inputs_of(p.cpu.graph, 3, r, p.arena), p.arena);
    }
    calls = p.two.two->calls - calls;
    cr_expect(p.two.two->launches == launches, "%d launches", p.two.two->launches - launches);
    close_pair(&p, "layers", problem);
    arena_destroy(arena);
    return calls;
}

Test(replay, calls_do_not_grow_with_the_steps) {
    int few = calls_of_a_replay(2), many = calls_of_a_replay(30);
    cr_expect(few == many && few == 5, "%d calls, %d", few, many); /* two in, replay, one out, wait */
}

/* --- several threads --- */
enum { THREADS = 4, RUNS = 40, SHAPES = 3 };

typedef struct Worker {
    Loaded *l;
    const Item *const *inputs[SHAPES];
    RunOutput expected[SHAPES][4];
    int number;
    const char *problem;
    Arena *arena;
} Worker;

static void *work(void *context) {
    Worker *w = context;
    for (int r = 0; r < RUNS && !w->problem; r++) {
        int shape = r < RUNS / 2 ? 0 : (r + w->number) % SHAPES;
        RunOutput got[4] = {0};
        Status status = loaded_run(w->l, w->inputs[shape], got);
        w->problem =
            status ? message_of(status, w->arena) : outputs_difference(w->l, w->expected[shape], got, w->arena);
        free_outputs(w->l, got);
    }
    return NULL;
}

Test(replay, threads, .timeout = 600) {
    static const int with[] = {0, 1, 3};
    for (int i = 0; i < 3; i++) {
        Pair p;
        Worker workers[THREADS] = {0};
        pthread_t threads[THREADS];
        open_row(&p, &rows[with[i]]);
        for (int s = 0; s < SHAPES; s++) {
            workers[0].inputs[s] = inputs_of(p.cpu.graph, s, s, p.arena);
            cr_assert(!loaded_run(&p.cpu, workers[0].inputs[s], workers[0].expected[s]));
        }
        for (int t = 0; t < THREADS; t++) {
            workers[t] = workers[0];
            workers[t].l = &p.two;
            workers[t].number = t;
            workers[t].arena = arena_create(0);
        }
        for (int t = 0; t < THREADS; t++) pthread_create(&threads[t], NULL, work, &workers[t]);
        for (int t = 0; t < THREADS; t++) {
            pthread_join(threads[t], NULL);
            cr_expect(!workers[t].problem, "%s", workers[t].problem);
            arena_destroy(workers[t].arena);
        }
        cr_expect(p.two.two->replays > RUNS && p.two.two->recordings <= 2 * SHAPES, "%d replays of %d recordings",
                  p.two.two->replays, p.two.two->recordings);
        for (int s = 0; s < SHAPES; s++) free_outputs(&p.cpu, workers[0].expected[s]);
        close_pair(&p, rows[with[i]].name, NULL);
    }
}

/* --- the caller's device memory --- */
static void *device_memory(TwoMemories *d, size_t bytes) {
    void *data;
    cr_assert(!d->base.table->allocate(&d->base, NULL, NULL, bytes + 1, &data));
    return data;
}

static void move(TwoMemories *d, CopyKind kind, void *to, const void *from, size_t bytes) {
    const DeviceTable *table = d->base.table;
    Stream *stream;
    cr_assert(!table->stream_create(&d->base, &stream));
    cr_assert(!table->copy(&d->base, stream, kind, to, from, bytes));
    cr_assert(!table->synchronize(&d->base, stream));
    table->stream_destroy(&d->base, stream);
}

/* x and y of the first row on the device, at x_at and y_at. */
static const char *run_there(Pair *p, void *x_at, void *y_at, int round) {
    static const bool in[] = {true, false}, out[] = {true, false};
    const Item *const *inputs = inputs_of(p->cpu.graph, 4, round, p->arena);
    RunOutput expected[2] = {0}, got[2] = {0};
    cr_assert(!loaded_run(&p->cpu, inputs, expected));
    Item x = *inputs[0];
    const Item *given[] = {&x, inputs[1]};
    move(p->two.two, COPY_IN, x_at, x.tensor.data, tensor_bytes(&x.tensor));
    x.tensor.data = x_at;
    got[0] = (RunOutput){.given = true, .item = expected[0].item};
    got[0].item.tensor.data = y_at;
    Status status = loaded_run_on_device(&p->two, given, got, in, out);
    const char *problem = status ? message_of(status, p->arena) : NULL;
    size_t bytes = tensor_bytes(&got[0].item.tensor);
    got[0].item.tensor.data = arena_alloc(p->arena, bytes);
    move(p->two.two, COPY_OUT, got[0].item.tensor.data, y_at, bytes);
    if (!problem) problem = outputs_difference(&p->cpu, expected, got, p->arena);
    free_outputs(&p->cpu, expected);
    free_outputs(&p->two, got);
    return problem;
}

Test(replay, the_callers_device_memory) {
    enum { PLACES_TRIED = 6, BYTES = 4096 };
    Pair p;
    void *x[PLACES_TRIED], *y[PLACES_TRIED];
    const char *problem = NULL;
    int round = 0;
    open_row(&p, &rows[0]);
    TwoMemories *d = p.two.two;
    for (int i = 0; i < PLACES_TRIED; i++) x[i] = device_memory(d, BYTES), y[i] = device_memory(d, BYTES);
    for (int r = 0; r < 3 * PLACES_TRIED && !problem; r++)
        problem = run_there(&p, x[r % PLACES_TRIED], y[r % PLACES_TRIED], round++);
    cr_expect(!d->replays && !d->recordings, "other memory in each run: %d replays", d->replays);
    for (int r = 0; r < 10 && !problem; r++) problem = run_there(&p, x[0], y[0], round++);
    cr_expect(d->replays == 8, "the same memory ten times: %d replays", d->replays);
    for (int r = 0; r < 4 && !problem; r++) problem = run_there(&p, x[0], y[1], round++);
    cr_expect(d->replays == 8 + 2, "an output elsewhere: %d replays", d->replays - 8);
    for (int r = 0; r < 4 && !problem; r++)
        problem = compare(&p.cpu, &p.two, inputs_of(p.cpu.graph, 4, round++, p.arena), p.arena);
    cr_expect(d->recordings == 2, "%d recordings for one shape", d->recordings);
    for (int i = 0; i < PLACES_TRIED; i++) {
        d->base.table->release(&d->base, NULL, NULL, x[i]);
        d->base.table->release(&d->base, NULL, NULL, y[i]);
    }
    close_pair(&p, "device memory", problem);
}

/* --- each call fails in turn --- */
enum { TRIES = 6 };

/* Runs several times with a call that fails; at most one run does, and the others are right. True once no call is left
 * to fail. */
static bool try_failure(const Row *row, int fail_at, int *unharmed) {
    Arena *arena = arena_create(0);
    Graph *graph = graph_of(row->model), *plain = graph_of(row->model);
    Loaded l, cpu;
    Status status = loaded_open(&cpu, plain, true, NULL, 0);
    cr_assert(!status);
    status = loaded_open(&l, graph, true, &records, fail_at);
    bool opened = !status, done = false;
    int failed = !opened;
    status_free(status);
    for (int r = 0; r < TRIES && opened; r++) {
        const Item *const *inputs = inputs_of(graph, r == 3, r, arena);
        RunOutput expected[MOST_OUTPUTS] = {0}, got[MOST_OUTPUTS] = {0};
        cr_assert(!loaded_run(&cpu, inputs, expected));
        status = loaded_run(&l, inputs, got);
        bool injected = status && strstr(status_message(status), "injected");
        cr_expect(!status || injected, "%s, call %d, run %d: %s", row->name, fail_at, r, status_message(status));
        const char *difference = status ? NULL : outputs_difference(&l, expected, got, arena);
        cr_expect(!difference, "%s, call %d, run %d: %s", row->name, fail_at, r, difference);
        failed += status != NULL;
        status_free(status);
        free_outputs(&l, got);
        free_outputs(&cpu, expected);
    }
    if (opened) done = l.two->calls < fail_at;
    cr_expect(failed <= 1, "%s, call %d: %d runs failed", row->name, fail_at, failed);
    *unharmed += !failed && !done;
    const char *left = loaded_close(&l, arena);
    cr_expect(!left, "%s, call %d: %s", row->name, fail_at, left);
    left = loaded_close(&cpu, arena);
    cr_expect(!left, "%s", left);
    graph_destroy(graph);
    graph_destroy(plain);
    arena_destroy(arena);
    return done;
}

Test(replay, each_call_fails, .timeout = 600) {
    static const int with[] = {0, 1, 3, 4};
    for (int i = 0; i < 4; i++) {
        int call = 1, unharmed = 0;
        while (call < 1000 && !try_failure(&rows[with[i]], call, &unharmed)) call++;
        cr_expect(call > 20 && call < 1000, "%s: %d calls", rows[with[i]].name, call);
        /* Begin, end and each step of a recording, and what a Replay is made of. */
        cr_expect(unharmed >= 4, "%s: %d failures of recordings", rows[with[i]].name, unharmed);
    }
}
