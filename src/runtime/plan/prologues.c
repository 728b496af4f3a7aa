/* SPDX-License-Identifier: Apache-2.0 */
/* Anchors that may run what makes their first input as their prologue, so that it is not written to memory and read from there: an anchor
 * whose result nobody else reads, some rows at a time; a concat, whose parts are read where they stand by all that read its result. What
 * the prologue reads lives until the last reader is done. Whether it is worth it depends on a run's sizes, and a run that shows its values
 * makes them all: so each of them stays a step. */
#include "runtime/plan/planner.h"

typedef struct Reading {
    int count;  /* how many inputs of steps are the value or a view of it */
    int takers; /* of these, those of anchors that may run its maker as their prologue */
    int maker;  /* 1 + that step; 0: none could be one */
    int last;   /* the last step that reads it */
} Reading;

static bool may_be_prologue(const Plan *plan, const Step *step) {
    bool concat = step->kind == STEP_PRIM && step->node->prim == PRIM_CONCAT;
    if ((step->kind != STEP_ANCHOR && !concat) || step->output_count != 1 || step->outputs[0] < 0) return false;
    const Slot *slot = &plan->slots[step->outputs[0]];
    return slot->storage == STORE_PLANNED && slot->output < 0 && slot->over < 0;
}

static bool may_pair(const Plan *plan, int first, int second) {
    const Step *maker = &plan->steps[first], *reader = &plan->steps[second];
    const DeviceTable *table = maker->on->table;
    return reader->kind == STEP_ANCHOR && reader->on == maker->on && reader->node->fence == maker->node->fence &&
           second < plan->last_writes && table->is_prologue && table->is_prologue(maker->on, maker->node, reader->node);
}

static void read_input(const Plan *plan, Reading *readings, int s, int i) {
    const int slot = plan->steps[s].inputs[i];
    if (slot < 0) return;
    Reading *reading = &readings[plan->slots[slot].root];
    reading->count++;
    reading->last = s;
    if (i == 0 && reading->maker && plan->slots[slot].root == slot) /* no view of it */
        reading->takers += may_pair(plan, reading->maker - 1, s);
}

static Reading *read_all(const Plan *plan, Arena *scratch) {
    Reading *readings = ARENA_ARRAY(scratch, Reading, plan->slot_count + 1); /* of roots */
    for (int s = 0; s < plan->step_count; s++) {
        const Step *step = &plan->steps[s];
        for (int i = 0; i < step->input_count; i++) read_input(plan, readings, s, i);
        if (may_be_prologue(plan, step)) readings[step->outputs[0]].maker = s + 1;
    }
    return readings;
}

void find_prologues(Plan *plan, Arena *scratch) {
    if (!plan->host->policy->fusion.enable) return;
    const Reading *readings = read_all(plan, scratch);
    for (int s = 0; s < plan->step_count; s++) {
        Step *step = &plan->steps[s];
        if (!may_be_prologue(plan, step) || step->prologue >= 0) continue;
        const Reading *reading = &readings[step->outputs[0]];
        if (!reading->takers || reading->takers != reading->count || (step->kind == STEP_ANCHOR && reading->count > 1))
            continue;
        for (int r = s + 1; r <= reading->last; r++)
            if (plan->steps[r].input_count && plan->steps[r].inputs[0] == step->outputs[0]) plan->steps[r].prologue = s;
        step->within = reading->last;
        for (int i = 0; i < step->input_count; i++)
            if (step->inputs[i] >= 0) slot_touch(plan, step->inputs[i], reading->last);
    }
}

const Step *plan_prologue(const Plan *plan, const Step *step, const Tensor *between) {
    if (step->prologue < 0) return NULL;
    const Step *prologue = &plan->steps[step->prologue];
    return step->on->table->takes_prologue(step->on, prologue->node, between) ? prologue : NULL;
}
