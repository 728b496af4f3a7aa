/* SPDX-License-Identifier: Apache-2.0 */
/* A model's nodes and a plan's steps, from the session's report: who makes a value, what it reads, what stands beside
 * it. */
#ifndef ONNXFUSE_CLI_REPORT_TOPOLOGY_H
#define ONNXFUSE_CLI_REPORT_TOPOLOGY_H

#include <cjson/cJSON.h>
#include <stdbool.h>
#include "cli/base/problem.h"

typedef struct ModelNode {
    const char *name, *op, *domain; /* the report's */
    const cJSON *inputs;            /* names; null where left out */
    int outermost; /* the place, in topological order, of the node of the model itself that it stands in, or is */
    int place;     /* among all nodes, those of subgraphs before the node that holds them */
} ModelNode;

typedef struct Maker {
    const char *value;
    int node;
} Maker;

typedef struct Topology {
    cJSON *report;
    ModelNode *nodes;
    int count;
    Maker *makers; /* sorted by value */
    int maker_count;
} Topology;

Problem *topology_read(OnnxfuseSession *session, Topology *out_topology);
void topology_free(Topology *topology);
/* NULL: an input, a constant, or a value that the report does not know. */
const ModelNode *topology_maker(const Topology *topology, const char *value);
/* The plan that has the step which stores the value, and the step's number there; NULL: none does. */
const cJSON *topology_step(const Topology *topology, const char *value, int *out_step);
/* "12 kernel: Add, Mul (cpu)"; in new memory. */
char *topology_step_text(const cJSON *plan, int step);

#endif
