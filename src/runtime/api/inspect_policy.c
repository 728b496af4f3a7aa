/* SPDX-License-Identifier: Apache-2.0 */
/* What a policy comes to for a model: the value of each key and where it is from, which nodes each rule and fusion has
 * touched, and the steps that fusions have become. */
#include "runtime/api/session.h"

#include "runtime/api/buckets.h"
#include "runtime/api/state.h"

/* Rows of ModelInfo.applied with the same `what`, each node once. */
typedef struct Effect {
    const char *what;
    VEC(const char *) nodes;
    Map seen;
} Effect;

typedef struct Effects {
    Arena *arena;
    VEC(Effect *) list; /* in the order in which they were first had */
    Map by_name;
} Effects;

static Effects collect(Arena *arena, const ModelInfo *info) {
    Effects e = {.arena = arena, .by_name = map_make(arena)};
    for (int i = 0; i < info->applied.count; i++) {
        const Applied *row = &info->applied.items[i];
        Effect *effect = map_get(&e.by_name, row->what);
        if (!effect) {
            effect = ARENA_NEW(arena, Effect);
            *effect = (Effect){.what = row->what, .seen = map_make(arena)};
            map_set(&e.by_name, row->what, effect);
            VEC_PUSH(arena, e.list, effect);
        }
        if (map_get(&effect->seen, row->node)) continue;
        map_set(&effect->seen, row->node, effect);
        VEC_PUSH(arena, effect->nodes, row->node);
    }
    return e;
}

static bool begins_with(const char *text, const char *start, const char *after) {
    size_t length = strlen(start);
    return strncmp(text, start, length) == 0 && (!text[length] || strchr(after, text[length]));
}

/* An effect is called "rules[2]: precision f16", "fusion NAME" or "fusion NAME.backward", perhaps with more behind. */
static void print_effects(Text *text, const Effects *e, const char *start, const char *after) {
    int found = 0;
    for (int i = 0; i < e->list.count; i++) {
        const Effect *effect = e->list.items[i];
        if (!begins_with(effect->what, start, after)) continue;
        found++;
        text_add(text, "%s: %d node%s\n", effect->what, effect->nodes.count, effect->nodes.count == 1 ? "" : "s");
        for (int n = 0; n < effect->nodes.count; n++) text_add(text, "    %s\n", effect->nodes.items[n]);
    }
    if (!found) text_add(text, "%s: no node\n", start);
}

static void print_steps(Text *text, const Plan *plan, const char *indent) {
    for (int s = 0; s < plan->step_count; s++) {
        const Node *node = plan->steps[s].node;
        const char *fusion = attr_string(node, "fusion", NULL);
        if (fusion || node->custom)
            text_add(text, "%sstep %d: %s, %s\n", indent, s, fusion ? fusion : node->op,
                     fusion ? "one kernel" : "an operator of its own");
        for (int n = 0; n < plan->steps[s].nested_count; n++)
            print_steps(text, plan->steps[s].nested[n], arena_format(text->arena, "%s    ", indent));
    }
}

/* The planned memory of a run, for the shapes that are known. */
static Status print_memory(Text *text, const Policy *policy, const Plan *plan) {
    int64_t bytes;
    bool constant = true;
    for (int i = 0; i < plan->graph->inputs.count; i++)
        for (int d = 0; d < plan->graph->inputs.items[i]->rank; d++)
            constant &= dim_is_const(plan->graph->inputs.items[i]->dims[d], NULL);
    if (constant) {
        TRY(hint_arena(plan, NULL, 0, &bytes));
        text_add(text, "# planned memory of a run: %lld bytes\n", (long long)bytes);
    }
    for (int h = 0; !constant && h < policy->shapes.hint_count; h++) {
        TRY(hint_arena(plan, &policy->shapes.hints[h], h, &bytes));
        text_add(text, "# planned memory of a run of shapes.hints[%d]: %lld bytes\n", h, (long long)bytes);
    }
    return NULL;
}

static bool uses_fusions(const Policy *policy) {
    return policy->fusion.custom_kernels || policy->fusion_count || policy->registry;
}

Status inspect_policy(Text *text, const Policy *policy, const Plan *plan) {
    const ModelInfo *info = plan->graph->info;
    Effects effects = collect(text->arena, info);
    policy_print(text, policy);
    text_add(text, "\n# it runs on: %s\n", plan->device->table->name);
    TRY(print_memory(text, policy, plan));
    if (plan->graph->kept.count) text_add(text, "\n# states\n");
    states_describe(text, plan);
    if (policy->rule_count) text_add(text, "\n# nodes that rules touched\n");
    for (int i = 0; i < policy->rule_count; i++) print_effects(text, &effects, policy->rules[i].where, ":");
    if (!uses_fusions(policy)) return NULL;
    text_add(text, "\n# nodes that fusions took\n");
    const char *const *names = policy->fusion.custom_kernels;
    for (int i = 0; names && names[i]; i++)
        print_effects(text, &effects, arena_format(text->arena, "fusion %s", names[i]), ".,: ");
    if (!names) print_effects(text, &effects, "fusion", " ");
    text_add(text, "\n# steps that fusions have become\n");
    print_steps(text, plan, "");
    return NULL;
}
