/* SPDX-License-Identifier: Apache-2.0 */
/* Any bytes as the choices by which a random graph is built: each pass leaves it valid and meaning what it meant, attention
 * and epilogues included. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "passes/passes.h"
#include "random_graph.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { ROUNDS = 2, MOST_NODES = 12 };

static void fail(const RandomGraph *random, const char *pass, const char *before, const char *what, Arena *arena) {
    fprintf(stderr, "%s: %s\nbefore:\n%s\nafter:\n%s\n", pass, what, before, graph_text(random->graph, arena));
    abort();
}

static void run_passes(const RandomGraph *random, const Policy *policy, Arena *arena) {
    int outputs = random->graph->outputs.count;
    int64_t *symbols[ROUNDS];
    Tensor **inputs[ROUNDS], **want = ARENA_ARRAY(arena, Tensor *, ROUNDS * outputs + 1),
                             **got = ARENA_ARRAY(arena, Tensor *, outputs + 1);
    const char *before = graph_text(random->graph, arena);
    for (int r = 0; r < ROUNDS; r++) {
        symbols[r] = random_sizes(random, r, arena);
        inputs[r] = random_inputs(random, r, symbols[r], arena);
        Status status = evaluate_graph(random->graph, inputs[r], symbols[r], arena, want + r * outputs);
        if (status) fail(random, "no pass", before, status_message(status), arena);
    }
    for (const Pass *p = pipeline(); p->name; p++) {
        if (strcmp(p->name, "lower") == 0) continue; /* the graph is of primitives */
        Status status = p->run(random->graph, policy);
        if (!status) status = graph_verify(random->graph, p[1].name ? LEVEL_PRIM : LEVEL_PARTITIONED);
        if (status) fail(random, p->name, before, status_message(status), arena);
        for (int r = 0; r < ROUNDS; r++) {
            status = evaluate_graph(random->graph, inputs[r], symbols[r], arena, got);
            if (status) fail(random, p->name, before, status_message(status), arena);
            for (int o = 0; o < outputs; o++) {
                const char *what = tensor_difference(want[r * outputs + o], got[o], random->tolerance[o], arena);
                if (what) fail(random, p->name, before, what, arena);
            }
        }
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size < 2) return 0;
    RandomOptions options = {.nodes = 1 + data[0] % MOST_NODES,
                             .anchors = data[1] & 1,
                             .no_symbols = data[1] & 2,
                             .choices = data + 2,
                             .choice_count = size - 2};
    Policy policy = policy_default();
    if (data[1] & 4)
        policy.target.epilogue =
            data[1] & 8 ? (struct EpilogueLimits){1, false} : (struct EpilogueLimits){EPILOGUE_OUTPUTS, true};
    struct AnchorLimits *anchors = &policy.target.anchors;
    anchors->attention = anchors->attention_backward = anchors->attention_drop = anchors->attention_sink = data[1] & 8;
    policy.fusion.enable = !(data[1] & 16);
    Arena *arena = arena_create(0);
    RandomGraph *random = random_graph(1, options);
    if (!arena || !random) abort();
    run_passes(random, &policy, arena);
    graph_destroy(random->graph);
    arena_destroy(arena);
    return 0;
}
