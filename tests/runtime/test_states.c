/* SPDX-License-Identifier: Apache-2.0 */
/* States (graph/graph.h): a run that is given one memory for a state's old and new value gives what one with memory for each gives, on the
 * CPU and on a device of its own memory; what can be written over the old value is. */
#include <criterion/criterion.h>
#include <stdio.h>

#include "two_memories.h"

enum { ELEMENTS = 600, STATES = 2, ROUNDS = 4 };

typedef struct Row {
    const char *name, *results, *nodes; /* of a graph (w: f32[20, 30], m: f32[20, 30], g: f32[20, 30], x: f32[n, 20]) */
    int in_place;                       /* of the states */
} Row;

static const Row rows[] = {
    {"an update", "l, a over w, b over m",
     "h = constant f32[] 0.5\nk: f32[20, 30] = mul m, h\nb: f32[20, 30] = add k, g\na: f32[20, 30] = sub w, b\nl: "
     "f32[20, 30] = neg g\n",
     2},
    {"the old value is read by a node behind the update", "y, a over w, m over m",
     "a: f32[20, 30] = sub w, g\ny: f32[n, 30] = anchor matmul x, w\n", 1},
    {"an update in the epilogue of a product", "y, a over w, b over m",
     "y: f32[n, 30] = anchor matmul x, w\nt: f32[20, n] = permute x {perm = [1, 0]}\nd: f32[20, 30] = anchor matmul t, "
     "y\n"
     "a: f32[20, 30] = sub w, d\nb: f32[20, 30] = add m, g\n",
     1},
    {"the old value is read elsewhere, too", "l, a over w, b over m",
     "r: f32[600] = reshape w {shape = (600)}\ns: f32[600] = slice r {shape = (600), start = (599), step = [-1]}\n"
     "q: f32[20, 30] = reshape s {shape = (20, 30)}\na: f32[20, 30] = add w, q\nb: f32[20, 30] = add m, g\nl: f32[20, "
     "30] = neg g\n",
     1},
    {"the new value is read again", "y, a over w, b over m",
     "a: f32[20, 30] = sub w, g\ny: f32[n, 30] = anchor matmul x, a\nb: f32[20, 30] = add m, g\n", 1},
    {"two that read each other", "l, a over w, b over m",
     "a: f32[20, 30] = sub w, m\nb: f32[20, 30] = add m, w\nl: f32[20, 30] = neg g\n", 1},
    {"one new value for two", "l, a over w, a over m", "a: f32[20, 30] = sub w, g\nl: f32[20, 30] = neg m\n", 1},
    {"the new value is an output besides", "a, a over w, m over m", "a: f32[20, 30] = sub w, g\n", 0},
};

static const TwoMemoriesOptions device = {.records = true};

static void fill(float *data, int count, int from) {
    for (int i = 0; i < count; i++) data[i] = (float)((i * 37 + from) % 101 - 50) / 64;
}

static Graph *graph_of(const Row *row) {
    static char text[2048];
    Graph *graph;
    snprintf(text, sizeof text,
             "graph (w: f32[20, 30], m: f32[20, 30], g: f32[20, 30], x: f32[n, 20]) -> (%s) {\n%s}\n", row->results,
             row->nodes);
    Status status = graph_parse(text, &graph);
    cr_assert(!status, "%s: %s", row->name, status_message(status));
    return graph;
}

/* Some rounds; states[i] of the one run are the inputs of the next. */
static void run_rounds(const Row *row, const TwoMemoriesOptions *options, bool shared, float states[STATES][ELEMENTS],
                       int *out_in_place) {
    Loaded l;
    Graph *graph = graph_of(row);
    Status status = loaded_open(&l, graph, false, options, 0);
    cr_assert(!status, "%s: %s", row->name, status_message(status));
    *out_in_place = 0;
    for (int i = 0; i < l.plan->slot_count; i++) *out_in_place += l.plan->slots[i].over >= 0;
    float g[ELEMENTS], x[60], made[STATES][ELEMENTS];
    for (int i = 0; i < STATES; i++) fill(states[i], ELEMENTS, 7 * i);
    for (int round = 0; round < ROUNDS; round++) {
        fill(g, ELEMENTS, 3 + round);
        fill(x, 60, round);
        Item items[4] = {
            [3] = {.kind = ITEM_TENSOR, .tensor = {.dtype = DT_F32, .rank = 2, .dims = {3, 20}, .data = x}}};
        RunOutput outputs[1 + STATES] = {0};
        for (int i = 0; i < 3; i++)
            items[i] =
                (Item){.kind = ITEM_TENSOR,
                       .tensor = {.dtype = DT_F32, .rank = 2, .dims = {20, 30}, .data = i < STATES ? states[i] : g}};
        for (int i = 0; i < STATES; i++) {
            outputs[1 + i] = (RunOutput){.given = true, .item = items[i]};
            if (!shared) outputs[1 + i].item.tensor.data = made[i];
        }
        status = loaded_run(&l, (const Item *const[]){&items[0], &items[1], &items[2], &items[3]}, outputs);
        cr_assert(!status, "%s: %s", row->name, status_message(status));
        if (!shared) memcpy(states, made, sizeof made);
        item_free(&l.memory, &outputs[0].item);
    }
    const char *left = loaded_close(&l, graph->arena);
    cr_expect(!left, "%s: %s", row->name, left);
    graph_destroy(graph);
}

Test(states, one_memory_for_both, .timeout = 120) {
    for (size_t r = 0; r < sizeof rows / sizeof *rows; r++) {
        static float apart[STATES][ELEMENTS], here[STATES][ELEMENTS], there[STATES][ELEMENTS];
        int in_place, on_device;
        run_rounds(&rows[r], NULL, false, apart, &in_place);
        run_rounds(&rows[r], NULL, true, here, &in_place);
        run_rounds(&rows[r], &device, true, there, &on_device);
        cr_expect_eq(in_place, rows[r].in_place, "%s: %d states are written over", rows[r].name, in_place);
        cr_expect_eq(on_device, rows[r].in_place, "%s: %d states are written over on the device", rows[r].name,
                     on_device);
        cr_expect(memcmp(apart, here, sizeof apart) == 0, "%s: the new values differ", rows[r].name);
        cr_expect(memcmp(apart, there, sizeof apart) == 0, "%s: the new values differ on the device", rows[r].name);
    }
}

Test(states, text) {
    Graph *graph = graph_of(&rows[0]);
    Text text = text_make(graph->arena);
    graph_print(&text, graph);
    cr_expect(strstr(text.data, "-> (l, a over w, b over m)"), "%s", text.data);
    graph_destroy(graph);
    Status status = graph_parse("graph (x: f32[2]) -> (y over z) {\n y: f32[2] = neg x\n}\n", &graph);
    cr_assert(status && strstr(status_message(status), "z is no input"), "%s", status_message(status));
    status_free(status);
}
