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

/* What the policy has rounded to bf16 is rounded once, behind a factor of the channel: 1.01 * 1.01 to 1.0234375, where 1.01 in bf16
 * would give 1.015625. A weight that came in bf16 keeps its factor apart. */
Test(pipeline, factors_go_into_weights_before_the_policy_rounds_them) {
    for (int known = 0; known < 2; known++) {
        Graph *graph = NULL;
        cr_assert_null(graph_parse("graph (x: bf16[1, 3, 3, 1]) -> (z) {\n"
                                   "  w = constant bf16[2, 1, 1, 1] {1.0078125, -3}\n"
                                   "  scale = constant f32[2] {1.01, 2}\n"
                                   "  y: bf16[1, 3, 3, 2] = anchor conv x, w {strides = [1, 1], dilations = [1, 1], "
                                   "pads = (0, 0, 0, 0), group = 1}\n"
                                   "  u: f32[1, 3, 3, 2] = cast y {to = f32}\n  v: f32[1, 3, 3, 2] = mul u, scale\n"
                                   "  z: bf16[1, 3, 3, 2] = cast v {to = bf16, loose = 1}\n}\n",
                                   &graph));
        Value *w = graph->first->inputs[1];
        Tensor *wide = tensor_new(graph->arena, DT_F32, 4, w->constant->dims);
        memcpy(wide->data, (float[]){1.01f, -3}, 2 * sizeof(float));
        if (known) w->wider = wide;
        Policy policy = policy_default();
        cr_assert_null(simplify(graph, &policy));
        const Tensor *got = graph->first->inputs[1]->constant;
        cr_expect_eq(graph->node_count, known ? 3 : 4);
        cr_expect_eq(dtype_load_double(DT_BF16, got->data, 0), known ? 1.0234375 : 1.0078125);
        cr_expect_eq(dtype_load_double(DT_BF16, got->data, 1), known ? -6.0 : -3.0);
        graph_destroy(graph);
    }
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
