/* SPDX-License-Identifier: Apache-2.0 */
/* The verifier between the passes, which the environment turns on in any build. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "lowering/ops.h"
#include "passes/passes.h"

/* A pass that leaves a node before the one that makes its input: what the graph looks like after an error of ours. */
static Graph *disordered(void) {
    Graph *graph = NULL;
    cr_assert_null(graph_parse("graph (x: f32[2]) -> (z) {\n  y: f32[2] = neg x\n  z: f32[2] = abs y\n}\n", &graph));
    graph_move_before(graph, graph->last, graph->first);
    return graph;
}

static Status run_with(const char *wanted) {
    if (wanted)
        setenv("ONNXFUSE_VERIFY", wanted, 1); /* each test is a process of its own, and reads it once */
    else
        unsetenv("ONNXFUSE_VERIFY");
    Graph *graph = disordered();
    Policy policy = policy_default();
    Status status = pipeline_run(graph, &policy, NULL, NULL);
    graph_destroy(graph);
    return status;
}

Test(pipeline, an_error_of_ours_is_told_as_such_where_it_is_first_seen) {
    Status status = run_with("1");
    cr_assert(status);
    cr_expect_eq(status_code(status), STATUS_FAULT);
    cr_expect(strstr(status_message(status), "internal error after importing: "), "%s", status_message(status));
    status_free(status);
}

Test(pipeline, the_verifier_runs_where_it_is_wanted_alone) {
    Status status = run_with("0");
    cr_expect(!status || !strstr(status_message(status), "internal error"), "%s", status_message(status));
    status_free(status);
}

/* A rule keeps one of two equal nodes to itself: they stay two. */
Test(pipeline, equal_nodes_of_different_fences_are_not_merged) {
    for (int fence = 0; fence < 2; fence++) {
        Graph *graph = NULL;
        cr_assert_null(
            graph_parse("graph (x: f32[2]) -> (y, z) {\n  y: f32[2] = neg x\n  z: f32[2] = neg x\n}\n", &graph));
        graph->last->fence = fence;
        Policy policy = policy_default();
        cr_assert_null(merge_common(graph, &policy));
        cr_expect_eq(graph->node_count, 1 + fence, "fence %d: %d nodes", fence, graph->node_count);
        graph_destroy(graph);
    }
}
