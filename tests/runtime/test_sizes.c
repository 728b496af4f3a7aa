/* SPDX-License-Identifier: Apache-2.0 */
/* Memory planning: what lives at the same moment never overlaps, whatever the plan and the shape; sizes are remembered.
 * Lifetimes are found here again from the steps, independently of the planner. */
#include <criterion/criterion.h>
#include <stdlib.h>

#include "passes/passes.h"
#include "random_graph.h"
#include "runtime/plan/plan.h"
#include "runtime/api/devices.h"
#include "runtime/inspect/report.h"

typedef struct Made {
    RandomGraph *random;
    Policy policy;
    Device *device;
    Plan *plan;
} Made;

static Made make(uint64_t seed, bool fusion) {
    Made made = {.random = random_graph(seed, (RandomOptions){.nodes = 10 + (int)(seed % 40), .anchors = true})};
    Graph *graph = made.random->graph;
    made.policy = policy_default();
    made.policy.cache.enable = false;
    made.policy.fusion.enable = fusion;
    made.policy.threads = 1;
    made.policy.device = DEVICE_CPU;
    Status status = target_resolve(graph->arena, &made.policy.target);
    for (const Pass *p = pipeline(); p->name && !status; p++)
        if (strcmp(p->name, "lower")) status = p->run(graph, &made.policy);
    if (!status) status = device_open(&made.policy, &made.device);
    cr_assert(!status, "seed %llu: %s", (unsigned long long)seed, status_message(status));
    return made;
}

static void make_plan(Made *made) {
    KernelCacheStats stats = {0};
    made->device->policy = &made->policy;
    Status status = plan_create(made->random->graph, made->device, made->device, &stats, &made->plan);
    cr_assert(!status, "%s", status_message(status));
}

static void release(Made *made) {
    plan_destroy(made->plan);
    made->device->table->close(made->device);
    graph_destroy(made->random->graph);
}

/* --- lifetimes, from the steps alone -------------------------------------------------------------------------- */
typedef struct Life {
    int first, last; /* steps; last is the step count for what outlives the run */
} Life;

static int root_of(const Plan *plan, int slot) {
    while (plan->slots[slot].root != slot) slot = plan->slots[slot].root;
    return slot;
}

static void note(Life *lives, int slot, int step) {
    if (lives[slot].first < 0 || step < lives[slot].first) lives[slot].first = step;
    if (step > lives[slot].last) lives[slot].last = step;
}

static Life *find_lives(const Plan *plan, Arena *arena) {
    Life *lives = ARENA_ARRAY(arena, Life, plan->slot_count + 1);
    for (int i = 0; i < plan->slot_count; i++) lives[i] = (Life){-1, -1};
    for (int s = 0; s < plan->step_count; s++) {
        const Step *step = &plan->steps[s];
        for (int i = 0; i < step->node->input_count; i++)
            if (step->inputs[i] >= 0) note(lives, root_of(plan, step->inputs[i]), s);
        for (int o = 0; o < step->node->output_count; o++)
            if (step->outputs[o] >= 0) note(lives, root_of(plan, step->outputs[o]), s);
    }
    for (int o = 0; o < plan->graph->outputs.count; o++) note(lives, root_of(plan, plan->outputs[o]), plan->step_count);
    for (int s = plan->step_count - 1; s >= 0; s--) { /* a resolved expand may be its input's memory */
        const Step *step = &plan->steps[s];
        if (step->kind == STEP_RESOLVE)
            note(lives, root_of(plan, step->inputs[0]), lives[root_of(plan, step->outputs[0])].last);
    }
    return lives;
}

static bool in_arena(const Plan *plan, int slot) {
    const Slot *s = &plan->slots[slot];
    return s->root == slot && s->storage == STORE_PLANNED && s->output < 0;
}

/* b takes over a's memory in the step that reads a for the last time and writes b. */
static bool takes_over(const Plan *plan, const Life *lives, int a, int b) {
    return plan->slots[b].inplace == a && lives[a].last == lives[b].first;
}

static const char *overlap(const Plan *plan, const Sizes *sizes, Arena *arena) {
    Life *lives = find_lives(plan, arena);
    for (int a = 0; a < plan->slot_count; a++)
        for (int b = a + 1; b < plan->slot_count; b++) {
            if (!in_arena(plan, a) || !in_arena(plan, b)) continue;
            size_t a_size = (size_t)sizes->values[plan->slots[a].bytes_expr],
                   b_size = (size_t)sizes->values[plan->slots[b].bytes_expr];
            bool together = lives[a].first <= lives[b].last && lives[b].first <= lives[a].last;
            bool apart = sizes->offsets[a] + a_size <= sizes->offsets[b] ||
                         sizes->offsets[b] + b_size <= sizes->offsets[a] || !a_size || !b_size;
            if (together && !apart && !takes_over(plan, lives, a, b) && !takes_over(plan, lives, b, a))
                return arena_format(arena, "%s and %s overlap", plan->slots[a].value->name, plan->slots[b].value->name);
        }
    for (int a = 0; a < plan->slot_count; a++) {
        if (!in_arena(plan, a)) continue;
        size_t end = sizes->offsets[a] + (size_t)sizes->values[plan->slots[a].bytes_expr];
        if (end > sizes->arena_bytes[PLACE_HOST])
            return arena_format(arena, "%s lies outside", plan->slots[a].value->name);
        if (sizes->offsets[a] % 64) return arena_format(arena, "%s is not aligned", plan->slots[a].value->name);
    }
    return NULL;
}

/* The result of a resolved expand may be its input's memory at one shape and not at another: what takes over either in
 * place may write over what the same step still reads through the other. */
static const char *taken_over(const Plan *plan, int *out_resolved, Arena *arena) {
    for (int s = 0; s < plan->step_count; s++) {
        const Step *step = &plan->steps[s];
        if (step->kind != STEP_RESOLVE) continue;
        ++*out_resolved;
        int shared[] = {root_of(plan, step->inputs[0]), step->outputs[0]};
        for (int slot = 0; slot < plan->slot_count; slot++)
            for (int i = 0; i < 2; i++)
                if (plan->slots[slot].inplace == shared[i])
                    return arena_format(arena, "%s takes over %s, which may be shared", plan->slots[slot].value->name,
                                        plan->slots[shared[i]].value->name);
    }
    return NULL;
}

Test(sizes, nothing_takes_over_memory_that_a_resolved_expand_may_share, .timeout = 600) {
    uint64_t first, last;
    int resolved = 0;
    random_seeds(60, &first, &last);
    for (uint64_t seed = first; seed <= last; seed++) {
        Made made = make(seed, seed % 2);
        make_plan(&made);
        Arena *arena = arena_create(0);
        const char *problem = taken_over(made.plan, &resolved, arena);
        cr_expect(!problem, "seed %llu: %s", (unsigned long long)seed, problem);
        arena_destroy(arena);
        release(&made);
    }
    cr_expect(resolved > 0 || last < 60, "no graph has an expand that is resolved");
}

Test(sizes, nothing_overlaps, .timeout = 600) {
    uint64_t first, last;
    random_seeds(60, &first, &last);
    for (uint64_t seed = first; seed <= last; seed++) {
        Made made = make(seed, seed % 2);
        make_plan(&made);
        Arena *arena = arena_create(0);
        for (int round = 0; round < 4; round++) {
            const Sizes *sizes;
            Status status = sizes_get(made.plan, random_sizes(made.random, round, arena), &sizes);
            cr_assert(!status, "seed %llu: %s", (unsigned long long)seed, status_message(status));
            const char *problem = overlap(made.plan, sizes, arena);
            Text text = text_make(arena);
            if (problem) plan_print(&text, made.plan, 0);
            cr_expect(!problem, "seed %llu, round %d: %s\n%s", (unsigned long long)seed, round, problem, text.data);
            sizes_release(made.plan, sizes);
        }
        arena_destroy(arena);
        release(&made);
    }
}

/* --- remembering ---------------------------------------------------------------------------------------------- */
static const char chain[] = "graph (x: f32[n, 64], y: f32[m]) -> (z) {\n"
                            "  a: f32[n, 64] = concat x {axis = 0}\n"
                            "  b: f32[n, 64] = concat a {axis = 1}\n"
                            "  z: f32[n, 64] = concat b {axis = 0}\n}";

static Made make_chain(void) {
    Made made = {0};
    Graph *graph = NULL;
    Status status = graph_parse(chain, &graph);
    cr_assert(!status, "%s", status_message(status));
    made.random = ARENA_NEW(graph->arena, RandomGraph);
    made.random->graph = graph;
    made.policy = policy_default();
    made.policy.device = DEVICE_CPU;
    status = target_resolve(made.random->graph->arena, &made.policy.target);
    if (!status) status = device_open(&made.policy, &made.device);
    cr_assert(!status, "%s", status_message(status));
    return made;
}

static const Sizes *sizes_of(const Made *made, int64_t n, int64_t m) {
    DimTable *dims = made->random->graph->dims;
    int64_t symbols[16];
    const Sizes *sizes = NULL;
    for (int i = 0; i < 16; i++) symbols[i] = UNBOUND_DIM;
    symbols[dim_symbol_index(dim_symbol(dims, "n"))] = n;
    symbols[dim_symbol_index(dim_symbol(dims, "m"))] = m;
    Status status = sizes_get(made->plan, symbols, &sizes);
    status_free(status);
    return sizes;
}

Test(sizes, remembered) {
    Made made = make_chain();
    make_plan(&made);
    const Sizes *first = sizes_of(&made, 10, 1);
    sizes_release(made.plan, first);
    cr_expect(sizes_of(&made, 10, 1) == first, "the same shape again is found");
    cr_expect(sizes_of(&made, 10, 2) == first || made.plan->input_symbols.count == 2,
              "a symbol that no size of the plan depends on is no part of the key, or all are");
    const Sizes *held[40];
    for (int i = 0; i < 40; i++) held[i] = sizes_of(&made, 100 + i, 1);
    for (int i = 0; i < 40; i++)
        for (int k = 0; k < i; k++) cr_assert(held[i] != held[k], "sizes in use are not given away");
    for (int i = 0; i < 40; i++) {
        cr_expect(held[i]->arena_bytes[PLACE_HOST] >= (size_t)(100 + i) * 256);
        sizes_release(made.plan, held[i]);
    }
    const Sizes *again = sizes_of(&made, 10, 1);
    cr_expect(again->arena_bytes[PLACE_HOST] == first->arena_bytes[PLACE_HOST], "what is in use is kept");
    release(&made);
}

Test(sizes, a_chain_takes_two_places) {
    Made made = make_chain();
    make_plan(&made);
    const Sizes *sizes = sizes_of(&made, 16, 1);
    cr_expect(sizes->arena_bytes[PLACE_HOST] == 2 * 16 * 256, "%zu", sizes->arena_bytes[PLACE_HOST]);
    sizes_release(made.plan, sizes);
    release(&made);
}

Test(sizes, absurd_ones_are_errors) {
    Made made = make_chain();
    make_plan(&made);
    cr_expect(!sizes_of(&made, INT64_MAX / 2, 1));
    cr_expect(!sizes_of(&made, (int64_t)1 << 53, 1));
    cr_expect(!sizes_of(&made, -1, 1));
    release(&made);
}
