/* SPDX-License-Identifier: Apache-2.0 */
/* A plan as counts and as text. */
#include "runtime/inspect/report.h"
#include "autodiff/autodiff.h"
#include "runtime/plan/planner.h"

typedef struct Counting {
    PlanCounts *counts;
    Map kernels, packed; /* what is counted already */
} Counting;

/* What several anchors share is counted once. */
static int64_t packed_bytes(Counting *c, const Step *step) {
    const DeviceTable *table = step->on->table;
    const Packed *packed;
    uint32_t released;
    int64_t bytes = 0;
    if (!table->anchor_packed) return (int64_t)table->anchor_bytes(step->anchor);
    for (int i = 0, count = table->anchor_packed(step->anchor, &packed, &released); i < count; i++) {
        uint64_t key = MAP_POINTER_KEY(packed[i].data);
        if (!map_get_id(&c->packed, key)) bytes += (int64_t)packed[i].bytes;
        map_set_id(&c->packed, key, c);
    }
    return bytes;
}

static void count_into(const Plan *plan, Counting *c) {
    PlanCounts *counts = c->counts;
    counts->weight_bytes += (int64_t)plan->constant_bytes;
    for (int s = 0; s < plan->step_count; s++) {
        const Step *step = &plan->steps[s];
        counts->steps++;
        counts->on_device += step->place == PLACE_DEVICE && step->kind != STEP_COPY;
        if (step->region.kernel && !map_get_id(&c->kernels, MAP_POINTER_KEY(step->region.kernel))) {
            map_set_id(&c->kernels, MAP_POINTER_KEY(step->region.kernel), (void *)step);
            counts->kernels++;
        }
        if (step->kind == STEP_KERNEL) {
            counts->regions++;
        } else if (step->kind == STEP_ANCHOR) {
            counts->anchors++;
            counts->weight_bytes += packed_bytes(c, step);
        } else if (step->kind == STEP_COPY) {
            counts->copies++;
        } else {
            counts->host_steps++;
        }
        for (int n = 0; n < step->nested_count; n++) count_into(step->nested[n], c);
    }
}

void plan_print_saved(Text *text, const Plan *plan) {
    const Policy *policy = plan->device->policy;
    Saved saved = saved_by(plan->graph, policy, text->arena);
    double most = (double)policy->training.saved_megabytes;
    if (!saved.any) return;
    text_add(text, "%.1f MB in %d values kept from forward to backward, %d computations repeated\n", saved.bytes / 1e6,
             saved.values, saved.repeated);
    if (most > 0 && saved.bytes > most * 1e6)
        text_add(text, "training.saved_megabytes: %.0f is less than what cannot be computed again cheaply\n", most);
}

void plan_print_orders(Text *text, const Plan *plan) {
    if (plan->graph->not_greedy)
        text_add(text, "%d nodes in one graph are too many for the greedy order: memory may be more than with it\n",
                 plan->graph->not_greedy);
    for (int s = 0; s < plan->step_count; s++)
        for (int n = 0; n < plan->steps[s].nested_count; n++) plan_print_orders(text, plan->steps[s].nested[n]);
}

void plan_count(const Plan *plan, PlanCounts *counts) {
    *counts = (PlanCounts){0};
    Arena *scratch = arena_create(0);
    if (!scratch) return;
    jmp_buf guard;
    if (!setjmp(guard)) { /* else: what was counted by then */
        arena_guard(scratch, &guard);
        count_into(plan, &(Counting){counts, map_make(scratch), map_make(scratch)});
    }
    arena_destroy(scratch);
}

static void print_slot(Text *text, const Plan *plan, int number) {
    static const char *const storages[] = {"unused", "input", "constant", "planned", "dynamic", "alias", "item"};
    if (number < 0) {
        text_add(text, " _");
        return;
    }
    const Slot *slot = &plan->slots[number];
    text_add(text, " %s", slot->value->name);
    if (slot->root != number) text_add(text, "=%s", plan->slots[slot->root].value->name);
    text_add(text, ":%s", slot->output >= 0 ? "output" : storages[slot->storage]);
    int shared = slot->over >= 0 ? slot->over : slot->inplace;
    if (shared >= 0) text_add(text, "@%s", plan->slots[shared].value->name);
}

static void print_copy(Text *text, const Plan *plan, const Step *step) {
    const Slot *from = &plan->slots[step->inputs[0]];
    text_add(text, "copy %s, ", from->place == PLACE_HOST ? "host to device" : "device to host");
    dim_print(text, plan->exprs.items[from->bytes_expr]);
    text_add(text, " bytes:");
}

static void print_place(Text *text, const Plan *plan, const Step *step) {
    if (plan->device == plan->host) return;
    text_add(text, "[%s%s] ", step->on->table->name, step->waits ? ", waits" : "");
}

void plan_print_recorded(Text *text, const Plan *plan) {
    if (plan->not_recorded) text_add(text, "# runs are not replayed: %s\n", plan->not_recorded);
    if (plan->recorded_end)
        text_add(text, "# runs of known shapes replay steps %d to %d with one call\n", plan->recorded_first,
                 plan->recorded_end - 1);
}

void plan_print(Text *text, const Plan *plan, int indent) {
    plan_print_recorded(text, plan);
    for (int s = 0; s < plan->step_count; s++) {
        const Step *step = &plan->steps[s];
        text_add(text, "%*s%d ", indent, "", s);
        if (step->kind == STEP_COPY) {
            print_copy(text, plan, step);
        } else {
            print_place(text, plan, step);
            const char *fusion = attr_string(step->node, "fusion", NULL);
            text_add(text, "%s %s%s%s", step_kind_name(step->kind), step->node->op, fusion ? " " : "",
                     fusion ? fusion : "");
        }
        if (step->anchor) text_add(text, " (%s)", step->on->table->anchor_how(step->anchor));
        if (step->within >= 0) text_add(text, " within %d", step->within);
        for (int i = 0; i < step->input_count; i++) print_slot(text, plan, step->inputs[i]);
        text_add(text, " ->");
        for (int o = 0; o < step->output_count; o++) print_slot(text, plan, step->outputs[o]);
        text_add(text, "  # %s\n", node_origin_name(step->node));
        for (int n = 0; n < step->nested_count; n++) {
            text_add(text, "%*s  plan %d:\n", indent, "", n);
            plan_print(text, step->nested[n], indent + 4);
        }
    }
}
