/* SPDX-License-Identifier: Apache-2.0 */
/* Any bytes as a model: what can be imported can be written as a model again, and that imports as the same graph, which
 * writes the same bytes. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "importer/importer.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { ARENA_LIMIT = 64 << 20 };

static void fail(const char *what, Status status) {
    fprintf(stderr, "%s: %s\n", what, status_message(status));
    abort();
}

/* Identity does not count: the writer adds one for an output that is an input, a constant or an output already. */
static int nodes_of(const Graph *graph) {
    int count = 0;
    FOR_EACH_NODE(node, graph) {
        count += strcmp(node->op, "Identity") != 0;
        for (int i = 0; i < node->subgraph_count; i++) count += nodes_of(node->subgraphs[i]);
    }
    return count;
}

/* False where the graph asks for what a model of one file cannot hold. */
static bool save(const Graph *graph, Arena *arena, void **out_bytes, size_t *out_size) {
    Status status = export_model(graph, arena, out_bytes, out_size);
    if (status && status_code(status) != STATUS_UNSUPPORTED && status != status_out_of_memory())
        fail("an imported model cannot be written", status);
    status_free(status);
    return !status;
}

static void compare(const Graph *a, const Graph *b) {
    if (a->inputs.count != b->inputs.count || a->outputs.count != b->outputs.count)
        fail("the written model has other inputs or outputs", NULL);
    for (int i = 0; i < a->inputs.count; i++)
        if (strcmp(a->inputs.items[i]->name, b->inputs.items[i]->name) ||
            a->inputs.items[i]->dtype != b->inputs.items[i]->dtype ||
            a->inputs.items[i]->rank != b->inputs.items[i]->rank)
            fail("the written model has another input", NULL);
    if (nodes_of(a) != nodes_of(b)) fail("the written model has another number of nodes", NULL);
}

static void round_trip(const Graph *graph, Arena *arena) {
    jmp_buf guard;
    if (setjmp(guard)) return;
    arena_guard(arena, &guard);
    void *bytes, *again;
    size_t written, rewritten;
    if (!save(graph, arena, &bytes, &written)) return;
    Graph *read = NULL;
    ImportOptions options = {.arena_limit = 4 * (size_t)ARENA_LIMIT};
    Status status = import_memory(bytes, written, NULL, &options, &read);
    if (status == status_out_of_memory()) return;
    if (status) fail("the written model cannot be read", status);
    status = graph_verify(read, LEVEL_ONNX);
    if (status) fail("the written model's graph is not valid", status);
    compare(graph, read);
    if (save(read, arena, &again, &rewritten) && (rewritten != written || memcmp(bytes, again, written)))
        fail("the written model is written otherwise when it has been read", NULL);
    graph_destroy(read);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    Graph *graph;
    ImportOptions options = {.arena_limit = ARENA_LIMIT};
    Status status = import_memory(data, size, NULL, &options, &graph);
    if (!status) {
        Arena *arena = arena_create(ARENA_LIMIT);
        if (arena) round_trip(graph, arena);
        arena_destroy(arena);
    }
    status_free(status);
    graph_destroy(graph);
    return 0;
}
