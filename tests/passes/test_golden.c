/* SPDX-License-Identifier: Apache-2.0 */
/* What each pass does, as text before and after: tests/passes/PASS.txt holds the cases. A case is
 *
 *     === what must hold [variant]
 *     graph before
 *     ---
 *     graph after
 *
 * Variants change the policy, see `variants`. Names of values do not matter: both sides are compared with their values
 * numbered in order of appearance. Lines that begin with # are comments. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>

#include "autodiff/autodiff.h"
#include "passes/passes.h"

typedef struct Variant {
    const char *name;
    bool fusion;
    int max_region_nodes;
    struct EpilogueLimits epilogue;
} Variant;

static const Variant variants[] = {
    {"", true, 96, {EPILOGUE_OUTPUTS, true}},
    {"[fusion off]", false, 96, {EPILOGUE_OUTPUTS, true}},
    {"[regions of 3]", true, 3, {EPILOGUE_OUTPUTS, true}},
    {"[no epilogues]", true, 96, {0}},
    {"[one result]", true, 96, {1, false}},
};

/* --- graphs without names -------------------------------------------------------------------------------- */
static void number_value(Value *value, Arena *arena, int *next) {
    if (value && value->name[0] != '$') value->name = arena_format(arena, "$%d", (*next)++);
}

static void number_values(Graph *graph, Arena *arena) {
    int next = 0;
    for (int i = 0; i < graph->inputs.count; i++) number_value(graph->inputs.items[i], arena, &next);
    FOR_EACH_NODE(node, graph) {
        for (int i = 0; i < node->input_count; i++) number_value(node->inputs[i], arena, &next);
        for (int i = 0; i < node->subgraph_count; i++) number_values(node->subgraphs[i], arena);
        for (int o = 0; o < node->output_count; o++) number_value(node->outputs[o], arena, &next);
    }
    for (int o = 0; o < graph->outputs.count; o++) {
        number_value(graph->outputs.items[o], arena, &next);
        graph->output_names.items[o] = graph->outputs.items[o]->name;
    }
}

/* Constants are printed where they were made; sorted by their numbers here, since passes make them in any order. */
static void drop_unused_constants(Graph *graph) {
    int kept = 0;
    for (int i = 0; i < graph->values.count; i++) {
        Value *v = graph->values.items[i];
        if (!v->constant || v->uses.count || value_is_output(v)) graph->values.items[kept++] = v;
    }
    graph->values.count = kept;
}

static int by_number(const void *a, const void *b) {
    const Value *x = *(Value *const *)a, *y = *(Value *const *)b;
    int i = x->name[0] == '$' ? atoi(x->name + 1) : -1, j = y->name[0] == '$' ? atoi(y->name + 1) : -1;
    return i != j ? (i < j ? -1 : 1) : 0;
}

static void sort_values(Graph *graph) {
    drop_unused_constants(graph);
    if (graph->values.count) qsort(graph->values.items, (size_t)graph->values.count, sizeof(Value *), by_number);
    FOR_EACH_NODE(node, graph)
    for (int i = 0; i < node->subgraph_count; i++) sort_values(node->subgraphs[i]);
}

static const char *nameless_text(Graph *graph) {
    number_values(graph, graph->arena);
    sort_values(graph);
    Text text = text_make(graph->arena);
    graph_print(&text, graph);
    return text.data;
}

/* --- one case -------------------------------------------------------------------------------------------- */
static Graph *parse(const char *pass, const char *name, const char *text) {
    Graph *graph = NULL;
    Status status = graph_parse(text, &graph);
    cr_assert(!status, "%s: %s: %s", pass, name, status_message(status));
    return graph;
}

static const Variant *variant_of(const char *name) {
    const Variant *found = &variants[0];
    for (size_t i = 1; i < sizeof variants / sizeof *variants; i++)
        if (strstr(name, variants[i].name)) found = &variants[i];
    return found;
}

static void run_case(const Pass *pass, const char *name, const char *before, const char *after) {
    const Variant *variant = variant_of(name);
    Policy policy = policy_default();
    policy.fusion.enable = variant->fusion;
    policy.fusion.max_region_nodes = variant->max_region_nodes;
    policy.target.epilogue = variant->epilogue;
    policy.target.anchors.attention = !strstr(name, "[no attention]");
    policy.target.anchors.attention_backward = policy.target.anchors.attention_drop = policy.target.anchors.attention;
    policy.target.anchors.attention_sink = policy.target.anchors.attention;
    policy.target.anchors.bytes = !strstr(name, "[no bytes]");
    policy.target.anchors.joined_products = true;
    policy.target.anchors.turned_conv = strstr(name, "[turned convolutions]");
    policy.fusion.memory_efficient = strstr(name, "[memory efficient]");
    policy.training.saved_megabytes = strstr(name, "[1 MB]") ? 1 : strstr(name, "[4 MB]") ? 4 : 0;
    static const PolicyState states[] = {{.input = "past*", .output = "now*", .axis = NO_AXIS, .where = "state[0]"}};
    if (pass->run == take_states) policy.states = states, policy.state_count = 1;
    policy.target.device = strstr(name, "[gpu]") ? DEVICE_CUDA : DEVICE_CPU;
    Graph *graph = parse(pass->name, name, before), *wanted = parse(pass->name, name, after);
    GraphLevel level = pass->run == take_quantized ? LEVEL_ONNX : LEVEL_PRIM;
    Status status = graph_verify(graph, level);
    cr_assert(!status, "%s: %s: %s", pass->name, name, status_message(status));
    status = pass->run(graph, &policy);
    if (!status) status = graph_verify(graph, pass->run == partition ? LEVEL_PARTITIONED : level);
    cr_expect(!status, "%s: %s: %s", pass->name, name, status_message(status));
    status_free(status);
    const char *got = nameless_text(graph), *want = nameless_text(wanted);
    cr_expect(strcmp(got, want) == 0, "%s: %s: got\n%s\nexpected\n%s", pass->name, name, got, want);
    graph_destroy(graph);
    graph_destroy(wanted);
}

/* --- the files ------------------------------------------------------------------------------------------- */
static char *read_file(const char *path) {
    FILE *file = fopen(path, "rb");
    cr_assert(file, "%s cannot be opened (run the tests in the source folder)", path);
    static char text[1 << 18];
    size_t size = fread(text, 1, sizeof text - 1, file);
    fclose(file);
    text[size] = 0;
    return text;
}

static void run_cases(const Pass *pass) {
    char path[128];
    snprintf(path, sizeof path, "tests/passes/%s.txt", pass->name);
    int count = 0;
    char *text = read_file(path), *at = strstr(text, "=== ");
    while (at) {
        char *name = at + 4, *next = strstr(name, "\n=== "), *before = strchr(name, '\n');
        if (next) *next++ = 0;
        char *after = before ? strstr(before, "\n---\n") : NULL;
        cr_assert(after, "%s: a case without ---: %.60s", path, name);
        *before++ = 0;
        *after = 0;
        run_case(pass, name, before, after + 5);
        count++;
        at = next;
    }
    cr_assert(count > 0, "%s holds no case", path);
}

Test(golden, layout) { run_cases(&(Pass){"layout", layout}); }
Test(golden, simplify) { run_cases(&(Pass){"simplify", simplify}); }
Test(golden, merge_common) { run_cases(&(Pass){"merge_common", merge_common}); }
Test(golden, join_products) { run_cases(&(Pass){"join_products", join_products}); }
Test(golden, fuse_attention) { run_cases(&(Pass){"fuse_attention", fuse_attention}); }
Test(golden, fuse_trained_attention) { run_cases(&(Pass){"fuse_trained_attention", fuse_trained_attention}); }
Test(golden, choose_saved) { run_cases(&(Pass){"choose_saved", choose_saved}); }
Test(golden, fuse_epilogues) { run_cases(&(Pass){"fuse_epilogues", fuse_epilogues}); }
Test(golden, partition) { run_cases(&(Pass){"partition", partition}); }
Test(golden, take_states) { run_cases(&(Pass){"take_states", take_states}); }
Test(golden, take_quantized) { run_cases(&(Pass){"take_quantized", take_quantized}); }

/* A body's run begins with the sizes that are known around it: that a step inside gives one again holds back nothing that reads it. */
Test(golden, partition_of_a_body) {
    Policy policy = policy_default();
    Graph *graph = parse("partition", "a body",
                         "graph (x: f32[m, 4], t: f32[n], c: bool[]) -> (y) {\n"
                         "  y: f32[n, 4] = host If@13 c, x captures 1 graph \"then\" (u: f32[m, 4]) -> (r) {\n"
                         "    v: f32[n, 4] = reshape u {shape = (n, 4)}\n"
                         "    r: f32[n, 4] = host Foo@1 v\n"
                         "  } graph \"else\" (u: f32[m, 4]) -> (s) {\n"
                         "    s: f32[n, 4] = reshape u {shape = (n, 4)}\n"
                         "  }\n}\n");
    Graph *body = graph->first->subgraphs[0];
    Status status = partition(body, &policy);
    cr_assert(!status, "%s", status_message(status));
    status = graph_verify(graph, LEVEL_PARTITIONED);
    cr_expect(!status, "%s", status_message(status));
    cr_expect(body->first->kind == NODE_PRIM && body->first->prim == PRIM_RESHAPE);
    status_free(status);
    graph_destroy(graph);
}
