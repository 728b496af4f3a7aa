/* SPDX-License-Identifier: Apache-2.0 */
/* Whatever the graph, a pass leaves it valid and meaning what it meant: random graphs are evaluated before and after.
 */
#include <criterion/criterion.h>

#include "autodiff/autodiff.h"
#include "passes/passes.h"
#include "random_graph.h"

enum { ROUNDS = 2 };

typedef struct Recorded {
    int64_t *symbols;
    Tensor **inputs, **outputs;
} Recorded;

static Status record(const RandomGraph *random, Arena *arena, Recorded *recorded) {
    for (int r = 0; r < ROUNDS; r++) {
        Recorded *now = &recorded[r];
        now->symbols = random_sizes(random, r, arena);
        now->inputs = random_inputs(random, r, now->symbols, arena);
        now->outputs = ARENA_ARRAY(arena, Tensor *, random->graph->outputs.count);
        TRY(evaluate_graph(random->graph, now->inputs, now->symbols, arena, now->outputs));
    }
    return NULL;
}

static const char *compare(const RandomGraph *random, const Recorded *recorded, Arena *arena) {
    for (int r = 0; r < ROUNDS; r++) {
        const Recorded *was = &recorded[r];
        Tensor **got = ARENA_ARRAY(arena, Tensor *, random->graph->outputs.count);
        Status status = evaluate_graph(random->graph, was->inputs, was->symbols, arena, got);
        const char *problem = status ? arena_format(arena, "round %d: %s", r, status_message(status)) : NULL;
        status_free(status);
        for (int o = 0; !problem && o < random->graph->outputs.count; o++) {
            const char *difference = tensor_difference(was->outputs[o], got[o], random->tolerance[o], arena);
            if (difference)
                problem =
                    arena_format(arena, "round %d: output %s: %s", r, random->graph->output_names.items[o], difference);
        }
        if (problem) return problem;
    }
    return NULL;
}

/* NULL, or what is wrong. */
static const char *try_pass(PassFn pass, const char *name, const Policy *policy, const RandomGraph *random,
                            const Recorded *recorded, Arena *arena) {
    const char *before = graph_text(random->graph, arena);
    Status status = status_at(pass(random->graph, policy), "%s", name);
    if (!status)
        status = status_at(graph_verify(random->graph, pass == partition ? LEVEL_PARTITIONED : LEVEL_PRIM), "after %s",
                           name);
    const char *problem = status ? arena_string(arena, status_message(status)) : compare(random, recorded, arena);
    status_free(status);
    if (!problem) return NULL;
    return arena_format(arena, "%s: %s\nbefore:\n%s\nafter:\n%s", name, problem, before,
                        graph_text(random->graph, arena));
}

static const Pass all[] = {{"merge_common", merge_common},   {"layout", layout},
                           {"simplify", simplify},           {"merge_common", merge_common},
                           {"join_products", join_products}, {"fuse_epilogues", fuse_epilogues},
                           {"partition", partition},         {NULL, NULL}};

static void try_graph(RandomGraph *random, const Pass *passes, const Policy *policy) {
    Arena *arena = arena_create(0);
    Recorded recorded[ROUNDS] = {0};
    Status status = graph_verify(random->graph, LEVEL_PRIM);
    if (!status) status = record(random, arena, recorded);
    cr_assert(!status, "seed %llu: %s\n%s", (unsigned long long)random->seed, status_message(status),
              graph_text(random->graph, arena));
    const char *problem = NULL;
    for (const Pass *p = passes; p->name && !problem; p++)
        problem = try_pass(p->run, p->name, policy, random, recorded, arena);
    cr_expect(!problem, "seed %llu, %d nodes: %s", (unsigned long long)random->seed, random->options.nodes, problem);
    arena_destroy(arena);
    graph_destroy(random->graph);
}

static void try_seed(uint64_t seed, const Pass *passes, const Policy *policy, RandomOptions options) {
    try_graph(random_graph(seed, options), passes, policy);
}

/* Small graphs first: what fails there is read soonest. */
static RandomOptions options_of(uint64_t seed) {
    return (RandomOptions){.nodes = seed % 3 == 0 ? 40 : seed % 3 == 1 ? 6 : 16, .anchors = true};
}

static Policy test_policy(void) {
    Policy policy = policy_default();
    policy.target.epilogue = (struct EpilogueLimits){EPILOGUE_OUTPUTS, true};
    policy.target.anchors.joined_products = true;
    return policy;
}

Test(random_graphs, each_pass_alone) {
    static const Pass alone[][2] = {{{"merge_common", merge_common}},
                                    {{"layout", layout}},
                                    {{"simplify", simplify}},
                                    {{"join_products", join_products}},
                                    {{"fuse_epilogues", fuse_epilogues}},
                                    {{"partition", partition}}};
    Policy policy = test_policy();
    uint64_t first, last;
    random_seeds(300, &first, &last);
    for (uint64_t seed = first; seed <= last; seed++)
        for (size_t i = 0; i < sizeof alone / sizeof *alone; i++) try_seed(seed, alone[i], &policy, options_of(seed));
}

Test(random_graphs, all_passes) {
    Policy policy = test_policy();
    uint64_t first, last;
    random_seeds(600, &first, &last);
    for (uint64_t seed = first; seed <= last; seed++) try_seed(seed, all, &policy, options_of(seed));
}

Test(random_graphs, fusion_off) {
    Policy policy = test_policy();
    policy.fusion.enable = false;
    uint64_t first, last;
    random_seeds(100, &first, &last);
    for (uint64_t seed = first; seed <= last; seed++) try_seed(seed, all, &policy, options_of(seed));
}

Test(random_graphs, small_regions) {
    Policy policy = test_policy();
    policy.fusion.max_region_nodes = 3;
    uint64_t first, last;
    random_seeds(100, &first, &last);
    for (uint64_t seed = first; seed <= last; seed++) try_seed(seed, all, &policy, options_of(seed));
}

/* Whatever is called backward, with forward nodes behind it too, values stay to the bit. */
static void tag_backward(RandomGraph *random) {
    int number = 0, from = random->graph->node_count / 3,
        to = (int)(random->seed % 4) ? random->graph->node_count : 2 * from;
    FOR_EACH_NODE(node, random->graph) {
        node->backward = number >= from && number < to;
        number++;
    }
    for (int o = 0; o < random->graph->outputs.count; o++) random->tolerance[o] = 0;
}

Test(random_graphs, what_is_computed_again_is_the_same) {
    static const Pass passes[] = {
        {"choose_saved", choose_saved}, {"fuse_epilogues", fuse_epilogues}, {"partition", partition}, {NULL, NULL}};
    Policy policy = test_policy();
    uint64_t first, last;
    int repeated = 0;
    random_seeds(400, &first, &last);
    for (uint64_t seed = first; seed <= last; seed++) {
        policy.fusion.memory_efficient = seed % 2;
        RandomGraph *random = random_graph(seed, options_of(seed));
        tag_backward(random);
        try_graph(random, passes, &policy);
        random = random_graph(seed, options_of(seed));
        tag_backward(random);
        cr_assert_null(choose_saved(random->graph, &policy));
        FOR_EACH_NODE(node, random->graph) repeated += node->repeats;
        graph_destroy(random->graph);
    }
    cr_expect_geq(repeated, (int)(last - first) / 4, "%d nodes were repeated: too few to test much", repeated);
}
