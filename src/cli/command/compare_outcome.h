/* SPDX-License-Identifier: Apache-2.0 */
/* What a comparison has found, and telling it. */
#ifndef ONNXFUSE_CLI_COMMAND_COMPARE_OUTCOME_H
#define ONNXFUSE_CLI_COMMAND_COMPARE_OUTCOME_H

#include "cli/value/inputs.h"
#include "cli/value/recording.h"
#include "cli/report/topology.h"

typedef struct Ranked {
    const Entry *entry;
    const ModelNode *node; /* NULL: not known */
    bool output;
} Ranked;

typedef struct Outcome {
    Ranked *ranked; /* those compared, in the model's order */
    int count, different, skipped;
} Outcome;

/* What the nodes of a fused step come to when each is a step of its own. */
typedef struct Inside {
    bool looked;
    int nodes, compared;
    char *node, *op, *value; /* the first that differs then; NULL: none does */
} Inside;

typedef struct Verdict {
    const char *got, *expected; /* who was compared with whom */
    Closeness closeness;
    const Recording *recording;
    const Topology *topology;
    const Inputs *inputs;
    Outcome outcome;
    Inside inside;
} Verdict;

bool finding_differs(const Finding *finding);
const char *ranked_node(const Ranked *ranked); /* the node's name */
/* To be freed: out_outcome->ranked. */
Problem *outcome_make(const Recording *recording, const Topology *topology, Outcome *out_outcome);
const Ranked *outcome_first(const Outcome *outcome); /* that differs; NULL: none does */
/* As text, and as the last line in JSON. Sorts the outcome by size. */
void verdict_tell(Verdict *verdict, bool json);
void verdict_free(Verdict *verdict);

#endif
