/* SPDX-License-Identifier: Apache-2.0 */
/* States (GraphState): a new value may be given the memory of the old one. So the steps that write them come last, when all
 * that may fail or be stopped is done and nobody else reads the old values: a run that fails leaves these as they were.
 * A new value that cannot be written that way (its kernel reads the old one elsewhere than it writes, or something reads
 * the new one) has memory of its own, and is copied when the run ends.
 *
 * Any other output may be given an input's memory, too, where nothing reads that behind the step that writes it: a cache that new
 * rows are scattered into grows where it is. Such steps stay where they are, and a run that fails may leave the input changed. */
#include "runtime/plan/planner.h"

typedef struct Reader {
    int step;
    const struct Reader *next;
} Reader;

typedef struct States {
    Plan *plan;
    const Reader **readers; /* [slot_count] of roots */
    int *makers;            /* [slot_count] of roots: 1 + the step that writes it */
    bool *last;             /* [step_count] */
    bool *in_place;         /* [graph states] */
} States;

/* The slot of a state's new value, where it is made. */
static int new_slot(const Plan *plan, int state) {
    int output = plan->graph->states.items[state].output, there = plan->device_outputs[output];
    return there >= 0 ? there : plan->outputs[output];
}

/* The slot that steps in the same place read its old value from, or -1. */
static int old_slot(const Plan *plan, int state) {
    int input = plan->inputs[plan->graph->states.items[state].input];
    return plan->slots[new_slot(plan, state)].place == PLACE_HOST ? input : plan->slots[input].twin;
}

static void list_readers(States *s, Arena *scratch) {
    for (int n = 0; n < s->plan->step_count; n++) {
        const Step *step = &s->plan->steps[n];
        for (int i = 0; i < step->input_count; i++) {
            if (step->inputs[i] < 0) continue;
            const Reader **list = &s->readers[s->plan->slots[step->inputs[i]].root];
            const Reader reader = {n, *list};
            *list = arena_copy(scratch, &reader, sizeof reader);
        }
        for (int o = 0; o < step->output_count; o++)
            if (step->outputs[o] >= 0) s->makers[s->plan->slots[step->outputs[o]].root] = n + 1;
    }
}

/* Whether the step that makes the new value may write it over the old one. In one sweep: such a kernel needs no scratch
 * memory, so that nothing is left that can fail. */
static bool may_write_over(const States *s, int state) {
    const Plan *plan = s->plan;
    int new = new_slot(plan, state), old = old_slot(plan, state), maker = s->makers[new] - 1;
    const Slot *slot = &plan->slots[new];
    int output = slot->place == PLACE_HOST ? slot->output : slot->device_output;
    if (slot->root != new || slot->storage != STORE_PLANNED || output != plan->graph->states.items[state].output ||
        old < 0 || maker < 0)
        return false;
    const Step *step = &plan->steps[maker];
    if (step->kind != STEP_KERNEL || step->region.kernel->stage_count > 1) return false;
    for (int o = 0; o < step->output_count; o++)
        for (int i = 0; i < step->input_count && step->outputs[o] == new; i++)
            if (step->inputs[i] == old) return step_may_share(plan, step, o, i);
    return false;
}

/* What is made last is read by what comes last alone. */
static bool is_read_early(const States *s, const Step *step) {
    for (int o = 0; o < step->output_count; o++) {
        int root = step->outputs[o] < 0 ? -1 : s->plan->slots[step->outputs[o]].root;
        for (const Reader *r = root < 0 ? NULL : s->readers[root]; r; r = r->next)
            if (!s->last[r->step]) return true;
    }
    return false;
}

/* Whether the old value is read by a step that comes after the one that writes over it. */
static bool is_read_late(const States *s, int state) {
    int maker = s->makers[new_slot(s->plan, state)] - 1;
    for (const Reader *r = s->readers[s->plan->slots[old_slot(s->plan, state)].root]; r; r = r->next)
        if (s->last[r->step] && r->step > maker) return true;
    return false;
}

/* A result for the caller alone is copied out of the device's memory. */
static bool is_copy_out(const States *s, const Step *step) {
    const Slot *to = step->kind == STEP_COPY ? &s->plan->slots[step->outputs[0]] : NULL;
    return to && to->place == PLACE_HOST && !s->readers[to->root];
}

/* Steps are last while each writes a state over its old value; results of the device are copied out behind them. */
static void choose_last(States *s) {
    const Plan *plan = s->plan;
    int count = plan->graph->states.count;
    for (int i = 0; i < count; i++) s->in_place[i] = may_write_over(s, i);
    for (bool changed = true; changed;) {
        changed = false;
        memset(s->last, 0, (size_t)plan->step_count * sizeof *s->last);
        for (int i = 0; i < count; i++)
            if (s->in_place[i]) s->last[s->makers[new_slot(plan, i)] - 1] = true;
        for (int n = 0; n < plan->step_count; n++) s->last[n] |= is_copy_out(s, &plan->steps[n]);
        for (int i = 0; i < count; i++) {
            const Step *maker = &plan->steps[s->makers[new_slot(plan, i)] - 1];
            if (!s->in_place[i] || (!is_read_early(s, maker) && !is_read_late(s, i))) continue;
            s->in_place[i] = false;
            changed = true;
        }
    }
}

/* Its new value has memory of its own. */
static void keep_apart(Plan *plan, int state) {
    int output = plan->graph->states.items[state].output, new = new_slot(plan, state), here = plan->outputs[output];
    Slot *slot = &plan->slots[plan->slots[new].root];
    if (plan->slots[new].over == old_slot(plan, state)) plan->slots[new].over = -1;
    if (slot->place == PLACE_DEVICE && slot->device_output == output) slot->device_output = -1;
    if (slot->place == PLACE_HOST && slot->output == output && plan->slots[here].root == slot->root) slot->output = -1;
}

void states_order(Plan *plan, Arena *scratch) {
    int states = plan->graph->states.count, count = 0;
    if (!states) return;
    States s = {.plan = plan};
    s.readers = ARENA_ARRAY(scratch, const Reader *, plan->slot_count + 1);
    s.makers = ARENA_ARRAY(scratch, int, plan->slot_count + 1);
    s.last = ARENA_ARRAY(scratch, bool, plan->step_count + 1);
    s.in_place = ARENA_ARRAY(scratch, bool, states);
    list_readers(&s, scratch);
    choose_last(&s);
    for (int i = 0; i < states; i++) {
        if (s.in_place[i])
            plan->slots[new_slot(plan, i)].over = old_slot(plan, i);
        else
            keep_apart(plan, i);
    }
    Step *steps = ARENA_ARRAY(scratch, Step, plan->step_count);
    for (int last = 0; last < 2; last++)
        for (int n = 0; n < plan->step_count; n++)
            if (s.last[n] == (last == 1)) steps[count++] = plan->steps[n];
    memcpy(plan->steps, steps, sizeof *steps * (size_t)count);
    find_lifetimes(plan);
}

static bool writes_over(const Plan *plan, const Step *step) {
    for (int o = 0; o < step->output_count; o++)
        if (step->outputs[o] >= 0 && plan->slots[step->outputs[o]].over >= 0) return true;
    return false;
}

void states_settle(Plan *plan) {
    int first = 0;
    while (first < plan->step_count && !writes_over(plan, &plan->steps[first])) first++;
    plan->last_writes = first;
    bool may_fail = false; /* recordings have put steps of the host behind those of the device */
    for (int n = first; n < plan->step_count; n++)
        may_fail |= plan->steps[n].kind != STEP_COPY && !writes_over(plan, &plan->steps[n]);
    if (!may_fail) return;
    for (int i = 0; i < plan->graph->states.count; i++) keep_apart(plan, i);
    plan->last_writes = plan->step_count;
}

/* The slot of the graph's input that this one may be the memory of, through steps that hand their input on; else -1. */
static int input_behind(const Plan *plan, int slot) {
    for (;;) {
        slot = plan->slots[slot].root;
        if (plan->slots[slot].storage == STORE_INPUT) return slot;
        int maker = plan->slots[slot].first;
        if (maker >= plan->step_count || plan->steps[maker].kind != STEP_RESOLVE) return -1;
        slot = plan->steps[maker].inputs[0];
    }
}

bool plan_writes_over(const Plan *plan, int input, int output) {
    for (int i = 0; i < plan->graph->states.count; i++)
        if (plan->graph->states.items[i].input == input && plan->graph->states.items[i].output == output) return true;
    int to = plan->slots[plan->outputs[output]].root, from = plan->inputs[input], maker = plan->slots[to].first;
    if (plan->slots[to].output != output || maker >= plan->step_count || plan->slots[from].last != maker) return false;
    const Step *step = &plan->steps[maker];
    for (int o = 0; o < step->output_count; o++)
        for (int i = 0; i < step->input_count && step->outputs[o] == to; i++)
            if (step_may_share(plan, step, o, i) && input_behind(plan, step->inputs[i]) == from) return true;
    return false;
}

bool plan_appends(const Plan *plan, int input, int output) {
    int to = plan->slots[plan->outputs[output]].root, maker = plan->slots[to].first;
    if (plan->slots[to].output != output || plan->slots[to].storage != STORE_PLANNED || maker >= plan->step_count)
        return false;
    const Step *step = &plan->steps[maker];
    return step->kind == STEP_PRIM && step->place == PLACE_HOST && step->node->prim == PRIM_CONCAT &&
           attr_int(step->node, "axis", 0) == 0 && step->inputs[0] == plan->inputs[input];
}
