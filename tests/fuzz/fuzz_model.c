/* SPDX-License-Identifier: Apache-2.0 */
/* Any bytes as a model: a graph that the verifier accepts and that prints, or an error; never a crash, a leak or a
 * hang. */
#include "importer/importer.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { ARENA_LIMIT = 64 << 20 };

static void print(Graph *graph) {
    jmp_buf guard;
    if (setjmp(guard)) return;
    arena_guard(graph->arena, &guard);
    Text text = text_make(graph->arena);
    graph_print(&text, graph);
}

static void verify(Graph *graph) {
    Status status = graph_verify(graph, LEVEL_ONNX);
    if (!status) return;
    fprintf(stderr, "the importer's graph is not valid: %s\n", status_message(status));
    abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    Graph *graph;
    ImportOptions options = {.arena_limit = ARENA_LIMIT};
    Status status = import_memory(data, size, NULL, &options, &graph);
    if (!status) {
        verify(graph);
        print(graph);
    } else if (status_code(status) != STATUS_INVALID && status_code(status) != STATUS_UNSUPPORTED &&
               status != status_out_of_memory())
        abort();
    status_free(status);
    graph_destroy(graph);
    return 0;
}
