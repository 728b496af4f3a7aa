/* SPDX-License-Identifier: Apache-2.0 */
/* The passes in order. A pass runs on a graph and then on the subgraphs of its control flow. */
#include "passes/passes.h"

#include "autodiff/autodiff.h"
#include "base/log.h"
#include "graph/constants/unread.h"
#include "lowering/ops.h"

static const Pass passes[] = {
    {"fuse_custom", fuse_custom},
    {"apply_rules", apply_rules},
    {"take_quantized", take_quantized},
    {"prepare_gradients", prepare_gradients},
    {"lower", lower_graph},
    {"fuse_trained_attention", fuse_trained_attention},
    {"differentiate", expand_gradients},
    {"make_groups", make_groups},
    {"take_states", take_states},
    {"layout", layout},
    {"simplify", simplify},
    {"merge_common", merge_common},
    {"join_products", join_products},
    {"fuse_attention", fuse_attention},
    {"choose_saved", choose_saved},
    {"fuse_epilogues", fuse_epilogues},
    {"partition", partition},
    {NULL, NULL},
};

const Pass *pipeline(void) { return passes; }

/* The passes up to lower_graph descend into subgraphs themselves: before they are lowered they stand in ONNX nodes, and
 * their inputs' types come from the nodes that hold them. */
static Status run_nested(const Pass *pass, Graph *graph, const Policy *policy) {
    TRY(pass->run(graph, policy));
    if (pass->run == fuse_custom || pass->run == apply_rules || pass->run == take_quantized ||
        pass->run == prepare_gradients || pass->run == lower_graph)
        return NULL;
    FOR_EACH_NODE(node, graph)
    if (node->kind == NODE_HOST)
        for (int i = 0; i < node->subgraph_count; i++) TRY(run_nested(pass, node->subgraphs[i], policy));
    return NULL;
}

static Status verify(const Graph *graph, GraphLevel level, const char *stage) {
    return log_verify() ? status_at(graph_verify(graph, level), "internal error after %s", stage) : NULL;
}

Status pipeline_run_changing(Graph *graph, const Policy *policy, void (*after)(void *, const char *, const Graph *),
                             void (*change)(void *, Graph *), void *user) {
    if (after) after(user, "import", graph);
    graph_name_results(graph);
    graph_give_unread_back(graph);
    GraphLevel level = LEVEL_ONNX;
    TRY(verify(graph, level, "importing"));
    for (const Pass *pass = passes; pass->name; pass++) {
        int before = graph->node_count;
        if (change && pass->run == fuse_epilogues) {
            change(user, graph);
            TRY(verify(graph, level, "changing"));
        }
        TRY(run_nested(pass, graph, policy));
        if (pass->run == lower_graph || pass->run == simplify) graph_give_back(graph);
        LOG(1, "pass %s: %d nodes -> %d, %zu MB", pass->name, before, graph->node_count,
            arena_bytes(graph->arena) >> 20);
        level = pass->run == lower_graph ? LEVEL_PRIM : pass->run == partition ? LEVEL_PARTITIONED : level;
        TRY(verify(graph, level, pass->name));
        if (after) after(user, pass->name, graph);
    }
    return NULL;
}

Status pipeline_run(Graph *graph, const Policy *policy, void (*after)(void *, const char *, const Graph *),
                    void *user) {
    return pipeline_run_changing(graph, policy, after, NULL, user);
}
