/* SPDX-License-Identifier: Apache-2.0 */
/* Pairs of anchors of which the second reads the first one's result, its first input, and nobody else does: the second
 * may run the first as its prologue, some rows at a time, so that what stands between them is not written to memory and
 * read from there. What the first reads lives until the second is done. Whether that is worth it depends on a run's
 * sizes, and a run that shows its values makes them all: so each of the two stays a step. */
#include "runtime/plan/planner.h"

typedef struct Reading {
    int count, step; /* how many inputs of steps are the value or a view of it; of which step the last is */
} Reading;

static bool may_pair(const Plan *plan, int first, int second) {
    const Step *maker = &plan->steps[first], *reader = &plan->steps[second];
    const DeviceTable *table = maker->on->table;
    return reader->kind == STEP_ANCHOR && reader->on == maker->on && reader->inputs[0] == maker->outputs[0] &&
           reader->node->fence == maker->node->fence && second < plan->last_writes && reader->prologue < 0 &&
           maker->prologue < 0 && table->is_prologue && table->is_prologue(maker->on, maker->node, reader->node);
}

void find_prologues(Plan *plan, Arena *scratch) {
    if (!plan->host->policy->fusion.enable) return;
    Reading *readings = ARENA_ARRAY(scratch, Reading, plan->slot_count + 1); /* of roots */
    for (int s = 0; s < plan->step_count; s++)
        for (int i = 0; i < plan->steps[s].input_count; i++) {
            int slot = plan->steps[s].inputs[i];
            if (slot < 0) continue;
            Reading *reading = &readings[plan->slots[slot].root];
            reading->count++;
            reading->step = s;
        }
    for (int s = 0; s < plan->step_count; s++) {
        Step *step = &plan->steps[s];
        if (step->kind != STEP_ANCHOR || step->output_count != 1 || step->outputs[0] < 0) continue;
        const Slot *between = &plan->slots[step->outputs[0]];
        const Reading *reading = &readings[step->outputs[0]];
        if (between->storage != STORE_PLANNED || between->output >= 0 || between->over >= 0 || reading->count != 1 ||
            !may_pair(plan, s, reading->step))
            continue;
        step->within = reading->step;
        plan->steps[reading->step].prologue = s;
        for (int i = 0; i < step->input_count; i++)
            if (step->inputs[i] >= 0) slot_touch(plan, step->inputs[i], reading->step);
    }
}

const Step *plan_prologue(const Plan *plan, const Step *step, const Tensor *between) {
    bool taken = step->prologue >= 0 && step->on->table->takes_prologue(step->on, between);
    return taken ? &plan->steps[step->prologue] : NULL;
}
