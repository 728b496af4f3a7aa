/* SPDX-License-Identifier: Apache-2.0 */
/* What steps of a plan cost: regions and primitives (graph/cost.h), anchors (lowering/anchor/anchor_cost.h) and the rest, for
 * profiles, reports and estimates. */
#ifndef ONNXFUSE_RUNTIME_PLAN_COST_H
#define ONNXFUSE_RUNTIME_PLAN_COST_H

#include "graph/cost.h"
#include "runtime/plan/plan.h"

/* symbols: as dim_eval takes them. False: not known at these sizes, and *out_cost is zero. Of host kernels the arithmetic
 * is not known, their bytes are those of all inputs and outputs; what control flow costs is that of its plans' steps.
 * What runs within another step costs nothing by itself, and what stands between the two is not moved. */
bool step_cost(const Plan *plan, const Step *step, const int64_t *symbols, Cost *out_cost);

#endif
