/* SPDX-License-Identifier: Apache-2.0 */
/* Steps for who reads a plan: their names. */
#include "runtime/plan/plan.h"

const char *step_kind_name(StepKind kind) {
    static const char *const names[] = {"kernel", "anchor",  "host",    "move", "dims",
                                        "bind",   "resolve", "control", "copy", "device"};
    return names[kind];
}

const char *step_name(const Plan *plan, const Step *step) {
    if (step->kind == STEP_COPY) return plan->slots[step->inputs[0]].value->name;
    return attr_string(step->node, "fusion", step->node->op);
}
