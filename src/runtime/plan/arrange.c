/* SPDX-License-Identifier: Apache-2.0 */
/* The order of steps for recordings (replay.h): first what the host does without the device's results, then all that
 * the device computes, then what the host does with it. Where that is possible and the device's part is the same in
 * all runs of the same shapes, the plan is put in this order before lifetimes are used; where not, it stays as it was,
 * and the first step that is in the way is remembered. */
#include <limits.h>

#include "base/log.h"
#include "runtime/plan/planner.h"

typedef enum Part { PART_BEFORE, PART_RECORDED, PART_AFTER, PARTS } Part;

typedef struct Arrangement {
    Plan *plan;
    const bool *late_symbols; /* [symbol_count] */
    bool *used;               /* [symbol_count] */
    bool *late;               /* [exprs.count] */
    Part *parts;              /* [step_count] */
    int *makers;              /* [slot_count] of roots: 1 + the step that has written it last */
    bool binds_after;         /* a step after the device's binds symbols: host steps from there on may need them */
} Arrangement;

/* --- what a recording must not hold --- */
typedef struct SymbolSearch {
    Arrangement *arrangement;
    bool late;
} SymbolSearch;

/* A symbol that a step of the device reads is part of what sizes are remembered by. */
static void look_at_symbol(int symbol, void *context) {
    SymbolSearch *search = context;
    search->late |= search->arrangement->late_symbols[symbol];
    search->arrangement->used[symbol] = true;
}

static bool has_late_attributes(Arrangement *a, const Node *node) {
    SymbolSearch search = {a, false};
    for (int i = 0; i < node->attrs.count; i++) {
        const Attr *attr = &node->attrs.items[i];
        for (int d = 0; attr->kind == ATTR_DIMS && d < attr->count; d++)
            dim_each_symbol(attr->dims[d], look_at_symbol, &search);
    }
    return search.late;
}

static bool has_late_slots(const Plan *plan, const int *slots, int count) {
    for (int i = 0; i < count; i++) {
        const Slot *slot = slots[i] >= 0 ? &plan->slots[slots[i]] : NULL;
        if (slot && (slot->late || slot->dims_expr < 0 || slot->storage == STORE_DYNAMIC)) return true;
    }
    return false;
}

/* Whether anything of a device step differs between two runs of the same shapes: it depends on a size that the run
 * finds, or on the run's number. */
static bool varies(Arrangement *a, const Step *step) {
    if (has_late_slots(a->plan, step->inputs, step->input_count) ||
        has_late_slots(a->plan, step->outputs, step->output_count))
        return true;
    if (step->kind != STEP_KERNEL) return has_late_attributes(a, step->node);
    bool late = a->late[step->work_expr];
    for (int p = 0; p < step->region.kernel->param_count; p++) late |= a->late[step->params_expr + p];
    return late;
}

/* --- the three parts --- */
static const char *refuse(const Arrangement *a, int number, const char *why) {
    const Step *step = &a->plan->steps[number];
    return arena_format(a->plan->arena, "step %d (%s, %s) %s", number, step_name(a->plan, step),
                        node_origin_name(step->node), why);
}

/* An input that is written after the device's part, or -1. */
static int input_from_after(const Arrangement *a, const Step *step) {
    for (int i = 0; i < step->input_count; i++) {
        int maker = step->inputs[i] >= 0 ? a->makers[a->plan->slots[step->inputs[i]].root] - 1 : -1;
        if (maker >= 0 && a->parts[maker] == PART_AFTER) return maker;
    }
    return -1;
}

static Part part_of(const Arrangement *a, const Step *step) {
    bool copy = step->kind == STEP_COPY;
    if (step->place == PLACE_DEVICE && !copy) return PART_RECORDED;
    if (copy && a->plan->slots[step->outputs[0]].place == PLACE_HOST) return PART_AFTER;
    return (a->binds_after && !copy) || input_from_after(a, step) >= 0 ? PART_AFTER : PART_BEFORE;
}

/* Why the plan cannot be recorded, or NULL. */
static const char *choose_parts(Arrangement *a) {
    const Plan *plan = a->plan;
    int recorded = 0;
    for (int s = 0; s < plan->step_count; s++) {
        const Step *step = &plan->steps[s];
        Part part = a->parts[s] = part_of(a, step);
        if (part == PART_RECORDED) {
            int before = input_from_after(a, step), host = before;
            if (before >= 0 && plan->steps[before].kind == STEP_COPY)
                host = a->makers[plan->slots[plan->steps[before].inputs[0]].root] - 1;
            if (before >= 0) return refuse(a, host, "is done on the CPU between steps of the device");
            if (varies(a, step)) return refuse(a, s, "depends on a size or number that only the run finds");
            recorded++;
        }
        a->binds_after |= part == PART_AFTER && (step->kind == STEP_BIND || step->binds || step->kind == STEP_CONTROL);
        for (int o = 0; o < step->output_count; o++)
            if (step->outputs[o] >= 0) a->makers[plan->slots[step->outputs[o]].root] = s + 1;
    }
    return recorded < 2 ? "fewer than two steps are on the device" : NULL;
}

/* --- the new order --- */
static void reorder(const Arrangement *a, Arena *scratch) {
    Plan *plan = a->plan;
    Step *steps = ARENA_ARRAY(scratch, Step, plan->step_count);
    int count = 0, begins[PARTS];
    for (int part = 0; part < PARTS; part++) {
        begins[part] = count;
        for (int s = 0; s < plan->step_count; s++)
            if (a->parts[s] == (Part)part) steps[count++] = plan->steps[s];
    }
    memcpy(plan->steps, steps, sizeof *steps * (size_t)count);
    plan->recorded_first = begins[PART_RECORDED];
    plan->recorded_end = begins[PART_AFTER];
}

void find_lifetimes(Plan *plan) {
    for (int i = 0; i < plan->slot_count; i++) {
        plan->slots[i].first = INT_MAX;
        plan->slots[i].last = -1;
    }
    for (int s = 0; s < plan->step_count; s++) {
        const Step *step = &plan->steps[s];
        for (int i = 0; i < step->input_count; i++)
            if (step->inputs[i] >= 0) slot_touch(plan, step->inputs[i], s);
        for (int o = 0; o < step->output_count; o++)
            if (step->outputs[o] >= 0) slot_touch(plan, step->outputs[o], s);
    }
    for (int o = 0; o < plan->graph->outputs.count; o++) {
        int there = plan->device_outputs[o];
        plan->slots[plan->slots[plan->outputs[o]].root].last = plan->step_count;
        if (there >= 0) plan->slots[plan->slots[there].root].last = plan->step_count;
    }
}

void arrange_for_recording(Plan *plan, const bool *late_symbols, bool *used, Arena *scratch) {
    const Device *device = plan->device;
    if (plan->graph->parent || !device->table->records || !device->table->records(device)) return;
    if (!device->policy->cuda.graphs) {
        plan->not_recorded = "cuda.graphs is false in the policy";
        return;
    }
    Arrangement a = {.plan = plan, .late_symbols = late_symbols, .used = used};
    a.late = ARENA_ARRAY(scratch, bool, plan->exprs.count + 1);
    a.parts = ARENA_ARRAY(scratch, Part, plan->step_count + 1);
    a.makers = ARENA_ARRAY(scratch, int, plan->slot_count + 1);
    for (int i = 0; i < plan->late_exprs.count; i++) a.late[plan->late_exprs.items[i]] = true;
    plan->not_recorded = choose_parts(&a);
    if (plan->not_recorded) {
        LOG(1, "runs are not replayed: %s", plan->not_recorded);
        return;
    }
    reorder(&a, scratch);
    find_lifetimes(plan);
    LOG(1, "runs of known shapes replay steps %d to %d with one call", plan->recorded_first, plan->recorded_end - 1);
}
