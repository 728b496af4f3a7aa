/* SPDX-License-Identifier: Apache-2.0 */
/* Whether a model can be run, without making anything that runs: what embedders ask that leave the rest of a graph to
 * others. */
#include "runtime/api/session.h"

#include <stdlib.h>

#include "importer/importer.h"
#include "lowering/ops.h"

bool onnxfuse_has_operator(const char *domain, const char *name, int opset) {
    return ops_find(domain, name, opset) != NULL;
}

/* Lowering takes each node out that it has replaced, so that the first one left is the one that failed. */
static char *first_left(const Graph *graph) {
    FOR_EACH_NODE(node, graph)
    if (node->kind == NODE_ONNX) return strdup(node_origin_name(node));
    return NULL;
}

typedef struct Check {
    const void *bytes;
    size_t size;
    const char *folder;
    const OnnxfuseOptions *options;
    Graph *graph;
    char **out_node; /* or NULL */
} Check;

static Status check(Arena *arena, void *context) {
    Check *c = context;
    Policy policy;
    TRY(session_policy(c->options, NULL, arena, &policy));
    ImportOptions import = {.borrow_bytes = true,
                            .external_data = c->options ? c->options->external_data : NULL,
                            .external_data_user = c->options ? c->options->external_data_user : NULL};
    TRY(import_memory(c->bytes, c->size, c->folder, &import, &c->graph));
    jmp_buf guard;
    if (setjmp(guard)) return status_out_of_memory();
    arena_guard(c->graph->arena, &guard);
    Status status = lower_graph(c->graph, &policy);
    if (status && c->out_node) *c->out_node = first_left(c->graph);
    return status;
}

OnnxfuseStatus onnxfuse_check_memory(const void *bytes, size_t size, const char *folder, const OnnxfuseOptions *options,
                                     char **out_node) {
    if (out_node) *out_node = NULL;
    Check c = {bytes, size, folder, options, NULL, out_node};
    Status status = call_with_arena(check, &c);
    graph_destroy(c.graph);
    return status;
}
