/* SPDX-License-Identifier: Apache-2.0 */
/* Whether a model can be run, without making anything that runs: what embedders ask that leave the rest of a graph to
 * others. */
#include "runtime/api/session.h"

#include <stdlib.h>

#include "importer/importer.h"
#include "lowering/ops.h"
#include "base/fork.h"

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
    const OnnxfuseOptions *options;
    Arena *arena; /* of the policy */
    Graph *graph;
} Check;

static Status check(Check *c, const void *bytes, size_t size, const char *folder, char **out_node) {
    Policy policy;
    TRY(session_policy(c->options, NULL, c->arena, &policy));
    ImportOptions import = {.borrow_bytes = true,
                            .external_data = c->options ? c->options->external_data : NULL,
                            .external_data_user = c->options ? c->options->external_data_user : NULL};
    TRY(import_memory(bytes, size, folder, &import, &c->graph));
    jmp_buf guard;
    if (setjmp(guard)) return status_out_of_memory();
    arena_guard(c->graph->arena, &guard);
    Status status = lower_graph(c->graph, &policy);
    if (status && out_node) *out_node = first_left(c->graph);
    return status;
}

OnnxfuseStatus onnxfuse_check_memory(const void *bytes, size_t size, const char *folder, const OnnxfuseOptions *options,
                                     char **out_node) {
    if (out_node) *out_node = NULL;
    TRY(fork_enter());
    Check c = {options, arena_create(0), NULL};
    jmp_buf guard;
    Status status;
    if (!c.arena || setjmp(guard)) {
        status = status_out_of_memory();
    } else {
        arena_guard(c.arena, &guard);
        status = check(&c, bytes, size, folder, out_node);
    }
    graph_destroy(c.graph);
    arena_destroy(c.arena);
    fork_leave();
    return status;
}
