/* SPDX-License-Identifier: Apache-2.0 */
/* Any text as a graph: it is refused with a line, or what it says can be printed, and the print is read as the same. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "graph/graph.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void fail(const char *what, const char *text, Status status) {
    fprintf(stderr, "%s: %s\n%s\n", what, status_message(status), text);
    abort();
}

static const char *print(const Graph *graph, Arena *arena) {
    Text text = text_make(arena);
    graph_print(&text, graph);
    return text.data;
}

static void print_and_read(const Graph *graph, Arena *arena) {
    Graph *again = NULL;
    const char *first = print(graph, arena);
    Status status = graph_parse(first, &again);
    if (status) fail("what a graph prints is not read", first, status);
    const char *second = print(again, arena);
    if (strcmp(first, second))
        fail("what a graph prints is read as another", first, status_error(STATUS_FAULT, "%s", second));
    graph_destroy(again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    char *text = malloc(size + 1);
    Arena *arena = arena_create(0);
    if (!text || !arena) abort();
    memcpy(text, data, size);
    text[size] = 0;
    Graph *graph = NULL;
    Status status = graph_parse(text, &graph);
    if (!status)
        print_and_read(graph, arena);
    else if (!*status_message(status))
        abort();
    for (int level = LEVEL_ONNX; !status && level <= LEVEL_PARTITIONED; level++)
        status_free(graph_verify(graph, (GraphLevel)level)); /* refuses what is not valid, whatever the text says */
    status_free(status);
    graph_destroy(graph);
    arena_destroy(arena);
    free(text);
    return 0;
}
