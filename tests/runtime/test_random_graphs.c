/* SPDX-License-Identifier: Apache-2.0 */
/* The oracle test of code generation and runtime: random graphs run as plans of compiled kernels and must give what the
 * plain evaluator gives; whatever the vector width, with and without fusion, on one thread and on several, for one
 * shape after the other. A failure shows the seed and the graph. */
#include <criterion/criterion.h>
#include <criterion/logging.h>
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

#include "passes/passes.h"
#include "random_graph.h"
#include "runtime/plan/plan.h"
#include "runtime/api/devices.h"
#include "runtime/run/run.h"
#include "skip.h"

enum { ROUNDS = 3, MOST_OUTPUTS = 256 };

typedef struct Variant {
    const char *name, *level;
    bool fusion;
    int threads;
    DeviceKind device; /* DEVICE_AUTO: the CPU */
} Variant;

/* --- a crash names its seed ------------------------------------------------------------------------------ */
static char now_running[128];

static void tell_seed(int number) {
    if (write(STDERR_FILENO, now_running, strlen(now_running)) < 0) _exit(1);
    signal(number, SIG_DFL);
    raise(number);
}

static void watch(const char *subject, const char *variant) {
    snprintf(now_running, sizeof now_running, "crashed: %s, %s\n", subject, variant);
    signal(SIGSEGV, tell_seed);
    signal(SIGILL, tell_seed);
    signal(SIGFPE, tell_seed);
    signal(SIGBUS, tell_seed);
    signal(SIGABRT, tell_seed);
}

/* --- a plan of a graph ----------------------------------------------------------------------------------- */
typedef struct Loaded {
    Policy policy;
    Devices devices;
    Plan *plan;
    Memory memory;
    struct RunMemory *buffers;
    atomic_size_t peak;
    uint64_t runs;
} Loaded;

static Status run_passes(Graph *graph, const Policy *policy) {
    for (const Pass *p = pipeline(); p->name; p++) {
        if (strcmp(p->name, "lower") == 0) continue;
        TRY(p->run(graph, policy));
    }
    return graph_verify(graph, LEVEL_PARTITIONED);
}

static Status load(Loaded *l, Graph *graph, const Variant *variant) {
    l->policy = policy_default();
    l->policy.cache.enable = false;
    l->policy.fusion.enable = variant->fusion;
    l->policy.threads = variant->threads;
    l->policy.device = variant->device == DEVICE_AUTO ? DEVICE_CPU : variant->device;
    l->policy.target.level = variant->level;
    TRY(devices_open(&l->policy, graph->arena, &l->devices));
    TRY(run_passes(graph, &l->policy));
    KernelCacheStats stats = {0};
    TRY(plan_create(graph, l->devices.device, l->devices.host, &stats, &l->plan));
    memory_init(&l->memory, 0);
    l->buffers = run_memory_create(l->devices.device, l->devices.host, &l->memory);
    return NULL;
}

static void unload(Loaded *l) {
    run_memory_destroy(l->buffers);
    plan_destroy(l->plan);
    devices_close(&l->devices);
}

static Status run(Loaded *l, Tensor **inputs, Arena *arena, RunOutput *outputs) {
    int count = l->plan->graph->inputs.count;
    Item *items = ARENA_ARRAY(arena, Item, count);
    const Item **pointers = ARENA_ARRAY(arena, const Item *, count);
    for (int i = 0; i < count; i++) {
        items[i] = (Item){.kind = ITEM_TENSOR, .tensor = *inputs[i]};
        pointers[i] = &items[i];
    }
    memset(outputs, 0, sizeof *outputs * (size_t)l->plan->graph->outputs.count);
    Run r = {.memory = &l->memory, .run_number = l->runs++, .buffers = l->buffers, .peak_arena = &l->peak};
    return plan_run(l->plan, &r, NULL, pointers, outputs);
}

/* --- what is run: a graph of a seed, or a text ------------------------------------------------------------ */
typedef struct Subject {
    uint64_t seed;
    RandomOptions options;
    const char *name, *text; /* text: used instead of the seed */
} Subject;

static RandomGraph *make_graph(const Subject *subject) {
    if (!subject->text) return random_graph(subject->seed, subject->options);
    Graph *graph = NULL;
    Status status = graph_parse(subject->text, &graph);
    cr_assert(!status, "%s: %s", subject->name, status_message(status));
    RandomGraph *made = ARENA_NEW(graph->arena, RandomGraph);
    *made = (RandomGraph){.graph = graph};
    made->low = ARENA_ARRAY(graph->arena, double, graph->inputs.count + 1);
    made->high = ARENA_ARRAY(graph->arena, double, graph->inputs.count + 1);
    made->tolerance = ARENA_ARRAY(graph->arena, double, graph->outputs.count + 1);
    for (int i = 0; i < graph->inputs.count; i++) made->low[i] = -1, made->high[i] = 1;
    return made;
}

static const char *subject_name(const Subject *subject, Arena *arena) {
    return subject->text ? subject->name : arena_format(arena, "seed %llu", (unsigned long long)subject->seed);
}

typedef struct Expected {
    int64_t *symbols;
    Tensor **inputs, **outputs;
    Tensor **first; /* what the first variant of this fusion gave: threads must not change a bit */
} Expected;

static const char *check_round(Loaded *l, const RandomGraph *random, Expected *expected, bool same_bits, Arena *arena) {
    RunOutput outputs[MOST_OUTPUTS];
    int count = random->graph->outputs.count;
    Status status = run(l, expected->inputs, arena, outputs);
    if (status) {
        const char *message = arena_string(arena, status_message(status));
        status_free(status);
        return message;
    }
    const char *problem = NULL;
    for (int o = 0; o < count; o++) {
        const Tensor *got = &outputs[o].item.tensor;
        const char *name = random->graph->output_names.items[o];
        const char *difference = tensor_difference(expected->outputs[o], got, random->tolerance[o], arena);
        if (!problem && difference) problem = arena_format(arena, "output %s: %s", name, difference);
        if (!same_bits) {
            expected->first[o] = tensor_new(arena, got->dtype, got->rank, got->dims);
            memcpy(expected->first[o]->data, got->data, tensor_bytes(got));
        } else if (!problem && memcmp(expected->first[o]->data, got->data, tensor_bytes(got))) {
            problem = arena_format(arena, "output %s: more threads give other bits", name);
        }
        item_free(&l->memory, &outputs[o].item);
    }
    return problem;
}

static bool try_variant(const Subject *subject, const Variant *variant, Expected *expected, bool same_bits,
                        Arena *arena) {
    RandomGraph *random = make_graph(subject);
    Loaded l = {0};
    const char *problem = NULL, *before = graph_text(random->graph, arena), *name = subject_name(subject, arena);
    watch(name, variant->name);
    Status status = load(&l, random->graph, variant);
    if (status) problem = arena_string(arena, status_message(status));
    status_free(status);
    for (int r = 0; r < ROUNDS && !problem; r++) {
        problem = check_round(&l, random, &expected[r], same_bits, arena);
        if (problem) problem = arena_format(arena, "round %d: %s", r, problem);
    }
    cr_expect(!problem, "%s, %s: %s\nbefore:\n%s\nafter:\n%s", name, variant->name, problem, before,
              graph_text(random->graph, arena));
    unload(&l);
    size_t left = atomic_load(&l.memory.used);
    cr_expect(!left, "%s, %s: %zu bytes are not freed", name, variant->name, left);
    graph_destroy(random->graph);
    return !problem;
}

static void try_subject(const Subject *subject, const Variant *variants, int count) {
    RandomGraph *random = make_graph(subject);
    Arena *arena = arena_create(0);
    Expected expected[ROUNDS] = {0};
    Status status = NULL;
    cr_assert(random->graph->outputs.count <= MOST_OUTPUTS);
    for (int r = 0; r < ROUNDS && !status; r++) {
        Expected *e = &expected[r];
        e->symbols = random_sizes(random, r, arena);
        e->inputs = random_inputs(random, r, e->symbols, arena);
        e->outputs = ARENA_ARRAY(arena, Tensor *, random->graph->outputs.count);
        e->first = ARENA_ARRAY(arena, Tensor *, random->graph->outputs.count);
        status = evaluate_graph(random->graph, e->inputs, e->symbols, arena, e->outputs);
    }
    cr_assert(!status, "%s: %s", subject_name(subject, arena), status_message(status));
    for (int v = 0; v < count; v++) {
        bool same_bits = v > 0 && variants[v].threads > variants[v - 1].threads;
        if (!try_variant(subject, &variants[v], expected, same_bits, arena)) break;
    }
    arena_destroy(arena);
    graph_destroy(random->graph);
}

static RandomOptions options_of(uint64_t seed) {
    return (RandomOptions){.nodes = seed % 3 == 0 ? 40 : seed % 3 == 1 ? 6 : 16, .anchors = seed % 2 == 0};
}

/* Graphs that went wrong once, and what is rare among random ones. Inputs are multiples of 1/8, so that all is exact. */
static const Subject texts[] = {
    {.name = "no result takes over memory that the same kernel reads in another order through a reshape",
     .text = "graph (x: f32[8, 16]) -> (y) {\n"
             "  e: f32[8, 32] = concat x, x {axis = 1}\n"
             "  r: f32[32, 8] = reshape e {shape = (32, 8)}\n"
             "  p: f32[8, 32] = permute r {perm = [1, 0]}\n"
             "  z: f32[8, 32] = add e, p\n"
             "  y: f32[8, 64] = concat z, z {axis = 1}\n}"},
    {.name = "a plan of empty tensors alone",
     .text = "graph (x: f32[n, 0]) -> (y) {\n"
             "  e: f32[n, 0] = exp x\n  c: f32[n, 0] = concat e, e {axis = 1}\n  y: f32[n, 0] = neg c\n}"},
    {.name = "a reduction of a constant size 0",
     .text = "graph (x: f32[s, 3, 0]) -> (y, z, e) {\n"
             "  e: f32[s, 3, 0] = sinh x\n  y: f32[s, 1, 1] = reduce_prod e {axes = [1, 2]}\n"
             "  z: f32[s, 3, 1] = reduce_max x {axes = [2]}\n}"},
    {.name = "outputs that are an input, a constant, one value twice, and a reshape of another output",
     .text = "graph (x: f32[n, 4]) -> (x, c, y, y, r) {\n"
             "  c = constant f32[2] {1, 2}\n  y: f32[n, 4] = neg x\n  r: f32[n*4] = reshape y {shape = (n*4)}\n}"},
    {.name = "an expand that is resolved at run time",
     .text = "graph (x: f32[n, 1, 3], y: f32[1, n, 1]) -> (z) {\n"
             "  a: f32[n, n, 3] = expand x {shape = (n, n, 3)}\n  z: f32[n, n, 3] = add a, y\n}"},
};

Test(plans_of_random_graphs, texts) {
    static const Variant variants[] = {
        {"fused, 1 thread", "host", true, 1}, {"fused, 2 threads", "host", true, 2}, {"fusion off", "host", false, 2}};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        try_subject(&texts[i], variants, 2);
        try_subject(&texts[i], variants + 2, 1);
    }
}

static void try_seeds(int count, bool large, const Variant *variants, int variant_count) {
    uint64_t first, last;
    random_seeds(count, &first, &last);
    for (uint64_t seed = first; seed <= last; seed++) {
        RandomOptions options = large ? (RandomOptions){.nodes = 9, .large = true} : options_of(seed);
        try_subject(&(Subject){.seed = seed, .options = options}, variants, variant_count);
    }
}

Test(plans_of_random_graphs, large, .timeout = 3600) {
    static const Variant variants[] = {{"fused, 1 thread", "host", true, 1},
                                       {"fused, 2 threads", "host", true, 2},
                                       {"fused, 5 threads", "host", true, 5}};
    try_seeds(200, true, variants, 3);
}

Test(plans_of_random_graphs, fused, .timeout = 3600) {
    static const Variant variants[] = {{"fused, 1 thread", "host", true, 1}, {"fused, 2 threads", "host", true, 2}};
    try_seeds(150, false, variants, 2);
}

Test(plans_of_random_graphs, fusion_off, .timeout = 3600) {
    static const Variant variants[] = {{"fusion off, 1 thread", "host", false, 1},
                                       {"fusion off, 2 threads", "host", false, 2}};
    try_seeds(60, false, variants, 2);
}

#if defined(__x86_64__)
Test(plans_of_random_graphs, vector_widths, .timeout = 3600) {
    static const Variant levels[] = {{"x86-64", "x86-64", true, 2},
                                     {"x86-64-v2", "x86-64-v2", true, 2},
                                     {"x86-64-v3", "x86-64-v3", true, 2},
                                     {"x86-64-v4", "x86-64-v4", true, 2}};
    Arena *arena = arena_create(0);
    for (size_t i = 0; i < sizeof levels / sizeof *levels; i++) {
        Target target = {.device = DEVICE_CPU, .level = levels[i].level};
        Status status = target_resolve(arena, &target);
        if (!status) try_seeds(50, false, &levels[i], 1);
        status_free(status); /* this machine lacks the level */
    }
    arena_destroy(arena);
}
#endif

/* The whole way of a GPU: placement, copies, kernels, products, moves. */
static void need_opencl(void) {
    Policy policy = policy_default();
    policy.device = DEVICE_OPENCL;
    Device *device = NULL;
    skip_without_device(device_open(&policy, &device));
    device->table->close(device);
}

Test(plans_of_random_graphs, opencl, .timeout = 3600) {
    static const Variant fused = {"OpenCL", "host", true, 2, DEVICE_OPENCL},
                         apart = {"OpenCL, fusion off", "host", false, 2, DEVICE_OPENCL};
    need_opencl();
    try_seeds(30, false, &fused, 1);
    try_seeds(6, false, &apart, 1);
    try_seeds(6, true, &fused, 1);
}
