/* SPDX-License-Identifier: Apache-2.0 */
/* "fallback.steps": "forbid": no step of a plan runs on the CPU for want of the device. */
#include "runtime/plan/planner.h"

typedef struct Missing {
    Text names;
    int count;
} Missing;

enum { MOST_NAMED = 8 };

static void find_missing(Missing *m, const Plan *plan) {
    for (int s = 0; s < plan->step_count; s++) {
        const Step *step = &plan->steps[s];
        for (int n = 0; n < step->nested_count; n++) find_missing(m, step->nested[n]);
        if (step->place != PLACE_HOST || !placement_is_forced(plan->device, step)) continue;
        if (m->count++ < MOST_NAMED)
            text_add(&m->names, "%s\"%s\" (%s)", m->count > 1 ? ", " : "", node_origin_name(step->node),
                     step->node->op);
    }
}

Status check_fallback(const Plan *plan, const Policy *policy, Arena *scratch) {
    if (plan->device == plan->host || policy->fallback.steps != FALLBACK_STEPS_FORBID) return NULL;
    Missing missing = {.names = text_make(scratch)};
    find_missing(&missing, plan);
    if (!missing.count) return NULL;
    return status_error(STATUS_UNSUPPORTED,
                        "%s: fallback.steps forbids steps on the CPU, but %s has none for %d node%s: %s%s",
                        policy_source(policy), plan->device->table->name, missing.count, missing.count == 1 ? "" : "s",
                        missing.names.data, missing.count > MOST_NAMED ? ", ..." : "");
}
