/* SPDX-License-Identifier: Apache-2.0 */
/* The passes, in the order in which pipeline.c runs them. Each leaves the graph valid for LEVEL_PRIM, the last one for
 * LEVEL_PARTITIONED. */
#ifndef ONNXFUSE_PASSES_PASSES_H
#define ONNXFUSE_PASSES_PASSES_H

#include "graph/graph.h"
#include "policy/policy.h"

typedef Status (*PassFn)(Graph *graph, const Policy *policy);

typedef struct Pass {
    const char *name;
    PassFn run;
} Pass;

/* Ends with a row without a name. */
const Pass *pipeline(void);
/* Runs every pass on the graph and its subgraphs. after (may be NULL) is called with "import" before the first pass and
 * with each pass's name after it. */
Status pipeline_run(Graph *graph, const Policy *policy, void (*after)(void *user, const char *pass, const Graph *graph),
                    void *user);
/* As pipeline_run, with a change to the graph when it is simplified, and what is saved for the backward pass is chosen,
 * but no region is made (before "fuse_epilogues"). */
Status pipeline_run_changing(Graph *graph, const Policy *policy,
                             void (*after)(void *user, const char *pass, const Graph *graph),
                             void (*change)(void *user, Graph *graph), void *user);

/* custom.c: before "lower", on LEVEL_ONNX, bodies included: the places of the fusions that the policy uses become nodes
 * of a custom operator, or get a group number (Node.group). Whatever name of fusion.custom_kernels is not there is
 * STATUS_INVALID. */
Status fuse_custom(Graph *graph, const Policy *policy);
/* rules.c: before "lower", on LEVEL_ONNX, bodies included: which nodes the policy's rules match, and what is wanted of
 * them (Node.wanted, fence, on_host; attribute weight_precision). A rule that matches none is STATUS_INVALID. */
Status apply_rules(Graph *graph, const Policy *policy);
/* take_quantized.c: before "lower", on LEVEL_ONNX, bodies included: products of dequantized tensors take the bytes and their
 * scales, where the device multiplies bytes (policy.target.anchors.bytes). */
Status take_quantized(Graph *graph, const Policy *policy);
/* groups.c: right behind "lower": what the nodes of a group have become is taken into a region of its own, which no
 * later pass enters. */
Status make_groups(Graph *graph, const Policy *policy);
/* take_states.c: behind "make_groups", of the outermost graph alone: the policy's states become its last inputs and outputs
 * (Graph.kept), and those that a Concat grows are turned so that it grows them where they are. */
Status take_states(Graph *graph, const Policy *policy);
/* lower: lowering/lower.c's lower_graph; every operator becomes primitives, anchors and host steps; constants are folded,
 * data that only computes shapes dies. */
/* layout.c: moves permutes towards the outputs so that they meet and cancel, and lets GEMMs read and write through
 * them. */
Status layout(Graph *graph, const Policy *policy);
/* simplify.c: algebra: scales into GEMMs, batch normalisation into convolutions, identities. */
Status simplify(Graph *graph, const Policy *policy);
/* cse.c: equal nodes become one; nodes without uses go. */
Status merge_common(Graph *graph, const Policy *policy);
/* join_products.c: products of one input become one where the device is faster so (policy.target.anchors.joined_products). */
Status join_products(Graph *graph, const Policy *policy);
/* attention.c: softmax(q k^T) v becomes one anchor where the device has it (policy.target.anchors.attention). */
Status fuse_attention(Graph *graph, const Policy *policy);
/* The same in a graph that asks for gradients, before "differentiate": as far as the anchor has one that the device runs
 * (policy.target.anchors.attention_backward). */
Status fuse_trained_attention(Graph *graph, const Policy *policy);
/* epilogue.c: small consumers of an anchor move into it where the device's library takes them. */
Status fuse_epilogues(Graph *graph, const Policy *policy);
/* partition.c: primitives become regions. */
Status partition(Graph *graph, const Policy *policy);

#endif
