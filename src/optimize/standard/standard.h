/* SPDX-License-Identifier: Apache-2.0 */
/* A lowered graph as a graph of the standard's operators, to be written to a file again (importer.h): the way back from
 * primitives, products and convolutions to ONNX nodes. Sizes that only a run knows are computed from the Shape of what has
 * them. */
#ifndef ONNXFUSE_OPTIMIZE_STANDARD_STANDARD_H
#define ONNXFUSE_OPTIMIZE_STANDARD_STANDARD_H

#include "graph/graph.h"
#include "policy/policy.h"

enum { STANDARD_OPSET = 21 }; /* of what is written: the oldest that has all that rows.c needs */

/* What a graph is lowered with that is to be written: as little as can be is a step of its own that the standard has not. */
Policy standard_policy(const Policy *policy);

/* A graph of nodes of STANDARD_OPSET (or of the model's version, where that is newer) that computes what `lowered` does:
 * LEVEL_PRIM, before layout, without epilogues and "attention". Inputs, outputs and constants keep their names; arena, sizes
 * and data are those of `lowered`, whose imported versions are changed. STATUS_UNSUPPORTED names the node that the standard
 * has no operators for. */
Status standard_form(Graph *lowered, Graph **out_graph);

/* The place of each node Gradient (ai.onnx.preview.training) of a graph of ONNX nodes, all of one version from STANDARD_OPSET on, is
 * taken by nodes that compute its results. What the graph computes itself before that place is read there: the forward part
 * stays as it is, and what it draws is drawn once. policy: what the graph is lowered with to find the gradients. */
Status standard_gradients(Graph *graph, const Policy *policy);

#endif
