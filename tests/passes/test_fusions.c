/* SPDX-License-Identifier: Apache-2.0 */
/* Fusions by pattern in graphs: as text after fuse_custom, with the names of the groups' nodes, and after all passes.
 */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>

#include "lowering/custom.h"
#include "passes/passes.h"

static const CustomOperator doubler = {.domain = "own", .name = "Double", .since = 1};
static const char *const double_patterns[] = {"(a) -> (r) { r = Add(a, a) }", "(a) -> (r) { r = Mul(a, 2) }", NULL};
static const CustomFusion double_fusion = {
    .name = "Double", .phase = FUSION_FORWARD, .patterns = double_patterns, .kernel = &doubler};
static const CustomOperator affine = {.domain = "own", .name = "Affine", .since = 1};
static const char *const affine_patterns[] = {"(a, b) -> (r, p) { p = Mul(a, $factor) r = Add(p, b) }",
                                              "(a, _) -> (r, p) { p = Mul(a, $factor) r = Add(p, $summand) }", NULL};
static const CustomFusion affine_fusion = {
    .name = "Affine", .phase = FUSION_BACKWARD, .patterns = affine_patterns, .kernel = &affine};

static const CustomFusion *double_list[] = {&double_fusion}, *affine_list[] = {&affine_fusion};
static const Registry double_registry = {.fusions = {double_list, 1, 1}},
                      affine_registry = {.fusions = {affine_list, 1, 1}};

static const char *const square_patterns[] = {"(a) -> (r) { t = Mul(a, a) r = Sqrt(t) }", NULL};
static const char *const norm_patterns[] = {"(a) -> (r) { t = ReduceMean(a) r = Sub(a, t) }", NULL};
static const char *const matmul_patterns[] = {"(a, b) -> (r) { t = MatMul(a, b) r = Relu(t) }", NULL};
static const char *const crossed_patterns[] = {"(a, b) -> (r, p) { p = Relu(a) r = Add(p, b) }", NULL};
static const PolicyFusion square = {"Square", 1, square_patterns, "fusions[0]"};
static const PolicyFusion norm = {"Norm", 1, norm_patterns, "fusions[0]"};
static const PolicyFusion product = {"Product", 1, matmul_patterns, "fusions[0]"};
static const PolicyFusion crossed = {"Crossed", 1, crossed_patterns, "fusions[0]"};

/* --- after fuse_custom --- */
typedef struct Fused {
    const char *name;
    const Registry *registry;
    const PolicyFusion *fusion;
    const char *before, *after;
} Fused;

static const Fused fused[] = {
    {"an operator in the place of one node", &double_registry, NULL,
     "graph (x: f32[8]) -> (y) {\n  t = onnx Add@17 x, x # from a\n  y = onnx Relu@17 t # from b\n}\n",
     "graph (x: f32[8]) -> (y) {\n  t = onnx \"own\" Double@1 x  # from a\n  y = onnx Relu@17 t  # from b\n}\n"},
    {"the second pattern", &double_registry, NULL,
     "graph (x: f32[8]) -> (y) {\n  c = constant f32[] 2\n  y = onnx Mul@17 c, x # from a\n}\n",
     "graph (x: f32[8]) -> (y) {\n  c = constant f32[] 2\n  y = onnx \"own\" Double@1 x  # from a\n}\n"},
    {"attributes, an output that is read, origins", &affine_registry, NULL,
     "graph (x: f32[8], w: f32[8]) -> (y) {\n  c = constant f32[] 3\n  p = onnx Mul@17 x, c # from a\n"
     "  q = onnx Add@17 w, p # from b\n  y = onnx Sub@17 p, q # from c\n}\n",
     "graph (x: f32[8], w: f32[8]) -> (y) {\n  c = constant f32[] 3\n"
     "  q, p = onnx \"own\" Affine@1 x, w {factor = 3.0}  # from b, a\n  y = onnx Sub@17 p, q  # from c\n}\n"},
    {"an input that the pattern lacks, an output that nothing reads", &affine_registry, NULL,
     "graph (x: f32[8]) -> (y) {\n  c = constant f32[] 3\n  d = constant f32[1] {0.5}\n  p = onnx Mul@17 x, c\n"
     "  y = onnx Add@17 d, p\n}\n",
     "graph (x: f32[8]) -> (y) {\n  c = constant f32[] 3\n  d = constant f32[1] {0.5}\n"
     "  y, _ = onnx \"own\" Affine@1 x, d {factor = 3.0}\n}\n"},
    {"a place that would wait for itself is none", &affine_registry, NULL,
     "graph (x: f32[8]) -> (y) {\n  c = constant f32[] 3\n  p = onnx Mul@17 x, c\n  q = onnx Relu@17 p\n"
     "  y = onnx Add@17 p, q\n}\n",
     "graph (x: f32[8]) -> (y) {\n  c = constant f32[] 3\n  p = onnx Mul@17 x, c\n  q = onnx Relu@17 p\n"
     "  y = onnx Add@17 p, q\n}\n"},
    {"what reads an output goes behind the place", &affine_registry, NULL,
     "graph (x: f32[8], w: f32[8]) -> (y, s) {\n  c = constant f32[] 3\n  p = onnx Mul@17 x, c\n"
     "  s = onnx Relu@17 p\n  v = onnx Abs@17 w\n  y = onnx Add@17 p, v\n}\n",
     "graph (x: f32[8], w: f32[8]) -> (y, s) {\n  c = constant f32[] 3\n  v = onnx Abs@17 w\n"
     "  y, p = onnx \"own\" Affine@1 x, v {factor = 3.0}\n  s = onnx Relu@17 p\n}\n"},
    {"in the bodies of control flow", &double_registry, NULL,
     "graph (x: f32[8], c: bool[]) -> (y) {\n  y = onnx If@17 c, x captures 1 graph (u: f32[8]) -> (v) {\n"
     "    v = onnx Add@17 u, u\n  } graph (u: f32[8]) -> (u) {\n  }\n}\n",
     "graph (x: f32[8], c: bool[]) -> (y) {\n  y = onnx If@17 c, x captures 1 graph (u: f32[8]) -> (v) {\n"
     "    v = onnx \"own\" Double@1 u\n  } graph (u: f32[8]) -> (u) {\n  }\n}\n"},
    {"a place of nodes for one region is put together", NULL, &square,
     "graph (x: f32[8], w: f32[8]) -> (y, z) {\n  t = onnx Mul@17 x, x\n  z = onnx Abs@17 w\n  y = onnx Sqrt@17 t\n}\n",
     "graph (x: f32[8], w: f32[8]) -> (y, z) {\n  z = onnx Abs@17 w\n  t = onnx Mul@17 x, x\n  y = onnx Sqrt@17 "
     "t\n}\n"},
    /* Each place is all right alone, but together each would wait for the other: the first is made. */
    {"two places that wait for each other", NULL, &crossed,
     "graph (x: f32[8], w: f32[8]) -> (r, s) {\n  p = onnx Relu@17 x\n  q = onnx Relu@17 w\n  u = onnx Abs@17 p\n"
     "  v = onnx Abs@17 q\n  r = onnx Add@17 p, v\n  s = onnx Add@17 q, u\n}\n",
     "graph (x: f32[8], w: f32[8]) -> (r, s) {\n  q = onnx Relu@17 w\n  v = onnx Abs@17 q\n  p = onnx Relu@17 x\n"
     "  r = onnx Add@17 p, v\n  u = onnx Abs@17 p\n  s = onnx Add@17 q, u\n}\n"},
};

static Graph *parsed(const char *name, const char *text) {
    Graph *graph;
    Status status = graph_parse(text, &graph);
    cr_assert_null(status, "%s: %s", name, status_message(status));
    return graph;
}

static const char *printed(Graph *graph) {
    Text text = text_make(graph->arena);
    graph_print(&text, graph);
    return text.data;
}

static Policy policy_with(const Registry *registry, const PolicyFusion *fusion) {
    Policy policy = policy_default();
    policy.registry = registry;
    policy.fusions = fusion;
    policy.fusion_count = fusion != NULL;
    return policy;
}

Test(fusions, places) {
    for (size_t i = 0; i < sizeof fused / sizeof *fused; i++) {
        const Fused *c = &fused[i];
        Graph *graph = parsed(c->name, c->before), *after = parsed(c->name, c->after);
        Policy policy = policy_with(c->registry, c->fusion);
        Status status = fuse_custom(graph, &policy);
        cr_assert_null(status, "%s: %s", c->name, status_message(status));
        cr_assert_null(graph_verify(graph, LEVEL_ONNX), "%s: not valid", c->name);
        cr_expect_str_eq(printed(graph), printed(after), "%s: became\n%snot\n%s", c->name, printed(graph),
                         printed(after));
        graph_destroy(graph);
        graph_destroy(after);
    }
}

/* --- after all passes ------------------------------------------------------------------------------------------- */
static int count_regions(const Graph *graph, const char *fusion) {
    int count = 0;
    FOR_EACH_NODE(node, graph) {
        for (int i = 0; node->kind != NODE_REGION && i < node->subgraph_count; i++)
            count += count_regions(node->subgraphs[i], fusion);
        if (node->kind != NODE_REGION) continue;
        const char *name = attr_string(node, "fusion", "");
        count += strcmp(name, fusion) == 0;
    }
    return count;
}

typedef struct Lowered {
    const char *name;
    const PolicyFusion *fusion;
    bool enable;
    const char *graph;
    int named, others; /* regions */
} Lowered;

static const Lowered lowered[] = {
    {"a region of its own among others", &square, true,
     "graph (x: f32[b, 800]) -> (y) {\n  u = onnx Abs@17 x\n  t = onnx Mul@17 u, u\n  s = onnx Sqrt@17 t\n"
     "  y = onnx Relu@17 s\n}\n",
     1, 2},
    {"with fusion off a step a node but for it", &square, false,
     "graph (x: f32[b, 800]) -> (y) {\n  u = onnx Abs@17 x\n  t = onnx Mul@17 u, u\n  s = onnx Sqrt@17 t\n"
     "  r = onnx Relu@17 s\n  y = onnx Exp@17 r\n}\n",
     1, 3},
    {"each place is a region", &square, true,
     "graph (x: f32[b, 800]) -> (y) {\n  t = onnx Mul@17 x, x\n  s = onnx Sqrt@17 t\n  v = onnx Mul@17 s, s\n"
     "  y = onnx Sqrt@17 v\n}\n",
     2, 0},
    {"of few elements too", &square, true,
     "graph (x: f32[2]) -> (y) {\n  t = onnx Mul@17 x, x\n  y = onnx Sqrt@17 t\n}\n", 1, 0},
    {"equal values outside are not shared", &square, true,
     "graph (x: f32[b, 800]) -> (y, z) {\n  z = onnx Mul@17 x, x\n  t = onnx Mul@17 x, x\n  y = onnx Sqrt@17 t\n}\n", 1,
     1},
    {"a mean over a size that only a run knows", &norm, true,
     "graph (x: f32[a, b]) -> (y) {\n  t = onnx ReduceMean@17 x {axes = [1]}\n  y = onnx Sub@17 x, t\n}\n", 1, 0},
    {"constants are computed beforehand", &square, true,
     "graph (x: f32[8]) -> (y) {\n  c = constant f32[1] {4}\n  t = onnx Mul@17 c, c\n  s = onnx Sqrt@17 t\n"
     "  y = onnx Add@17 x, s\n}\n",
     0, 0},
    {"a body that stands twice", &square, true,
     "graph (x: f32[b, 800]) -> (y) {\n  yes = constant bool[] true\n"
     "  s = onnx If@17 yes, x captures 1 graph (u: f32[b, 800]) -> (v) {\n    t = onnx Mul@17 u, u\n"
     "    v = onnx Sqrt@17 t\n  } graph (u: f32[b, 800]) -> (u) {\n  }\n  y = onnx Relu@17 s\n}\n",
     1, 1},
};

static void check_lowered(const Lowered *c) {
    Graph *graph = parsed(c->name, c->graph);
    Policy policy = policy_with(NULL, c->fusion);
    policy.fusion.enable = c->enable;
    Status status = pipeline_run(graph, &policy, NULL, NULL);
    cr_assert_null(status, "%s: %s", c->name, status_message(status));
    cr_assert_null(graph_verify(graph, LEVEL_PARTITIONED), "%s: not valid", c->name);
    cr_expect_eq(count_regions(graph, c->fusion->name), c->named, "%s: became\n%s", c->name, printed(graph));
    if (c->others) cr_expect_eq(count_regions(graph, ""), c->others, "%s: became\n%s", c->name, printed(graph));
    graph_destroy(graph);
}

Test(fusions, regions) {
    for (size_t i = 0; i < sizeof lowered / sizeof *lowered; i++) check_lowered(&lowered[i]);
}

Test(fusions, what_was_done_is_noted) {
    Graph *graph = parsed("noted", "graph (x: f32[8]) -> (y) {\n  t = onnx Mul@17 x, x # from one\n"
                                   "  y = onnx Sqrt@17 t # from two\n}\n");
    Policy policy = policy_with(NULL, &square);
    cr_assert_null(fuse_custom(graph, &policy));
    cr_assert_eq(graph->info->applied.count, 2);
    cr_expect_str_eq(graph->info->applied.items[0].what, "fusion Square");
    cr_expect_str_eq(graph->info->applied.items[0].node, "one");
    cr_expect_str_eq(graph->info->applied.items[1].node, "two");
    graph_destroy(graph);
}

/* --- errors --- */
static void expect_error(const char *name, const char *text, const Policy *policy, const char *message) {
    Graph *graph = parsed(name, text);
    Status status = pipeline_run(graph, policy, NULL, NULL);
    cr_assert(status, "%s: no error", name);
    cr_expect_str_eq(status_message(status), message, "%s: %s", name, status_message(status));
    status_free(status);
    graph_destroy(graph);
}

static const char plain[] = "graph (x: f32[8]) -> (y) {\n  y = onnx Relu@17 x\n}\n";

Test(fusions, what_cannot_be_one_kernel) {
    Policy policy = policy_with(NULL, &product);
    expect_error(
        "a product",
        "graph (x: f32[8, 8], w: f32[8, 8]) -> (y) {\n  t = onnx MatMul@17 x, w # from one\n"
        "  y = onnx Relu@17 t # from two\n}\n",
        &policy,
        "fusion Product, node \"two\": it cannot be one kernel: matmul of node \"one\" is computed by no kernel "
        "that others can join");
}

/* As above, but nobody insists: the nodes go their usual ways, and the record says why. */
Test(fusions, built_in_ones_are_left_out) {
    Policy policy = policy_with(NULL, NULL);
    const CustomFusion fusion = {.name = "Product", .phase = FUSION_FORWARD, .patterns = matmul_patterns},
                       *list = &fusion;
    const Registry builtins = {.fusions = {&list, 1, 1}};
    const char *names[] = {"Product", NULL};
    policy.builtins = &builtins;
    policy.fusion.custom_kernels = names;
    Graph *graph =
        parsed("left out", "graph (x: f32[8, 8], w: f32[8, 8]) -> (y) {\n  t = onnx MatMul@17 x, w # from one\n"
                           "  y = onnx Relu@17 t # from two\n}\n");
    Status status = pipeline_run(graph, &policy, NULL, NULL);
    cr_assert_null(status, "%s", status_message(status));
    cr_expect_str_eq(graph->info->applied.items[0].what,
                     "fusion Product, not made: matmul of node \"one\" is computed by no kernel that others can join");
    cr_expect_not_null(graph->info->groups.items[0].reason);
    graph_destroy(graph);
    graph =
        parsed("left out of a body",
               "graph (m: i64[], x: f32[8, 8]) -> (y) {\n  y = onnx Loop@17 m, _, x captures 0 graph (i: i64[], c: "
               "bool[], v: f32[8, 8]) -> (c, u) {\n    t = onnx MatMul@17 v, v # from one\n    u = onnx Relu@17 t\n  "
               "}\n}\n");
    status = pipeline_run(graph, &policy, NULL, NULL);
    cr_assert_null(status, "%s", status_message(status));
    cr_expect_str_eq(graph->info->applied.items[0].what,
                     "fusion Product, not made: matmul of node \"one\" is computed by no kernel that others can join");
    graph_destroy(graph);
}

Test(fusions, names_that_are_not_there) {
    Policy policy = policy_with(&double_registry, &square);
    const char *unknown[] = {"Square", "Sqare", NULL}, *backward[] = {"Square.backward", NULL},
               *right[] = {"Double", NULL};
    policy.fusion.custom_kernels = unknown;
    expect_error("unknown", plain, &policy,
                 "policy: fusion.custom_kernels[1]: there is no fusion \"Sqare\" (there are Double.forward, "
                 "Square.forward)");
    policy.fusion.custom_kernels = backward;
    expect_error("no backward", plain, &policy,
                 "policy: fusion.custom_kernels[0]: there is no fusion \"Square.backward\" (there are Double.forward, "
                 "Square.forward)");
    policy.fusion.custom_kernels = right;
    Graph *graph = parsed("one of two", "graph (x: f32[8]) -> (y) {\n  t = onnx Mul@17 x, x\n  u = onnx Sqrt@17 t\n"
                                        "  y = onnx Add@17 u, u\n}\n");
    cr_assert_null(fuse_custom(graph, &policy));
    cr_expect_eq(graph->info->groups.count, 0);
    cr_expect_eq(graph->info->applied.count, 1);
    graph_destroy(graph);
}

Test(fusions, patterns_that_are_wrong) {
    static const char *const wrong[] = {"(a) -> (r) {\n  r = Relu(b)\n}", NULL};
    static const char *const uneven[] = {"(a) -> (r) { r = Relu(a) }", "(a, b) -> (r) { r = Add(a, b) }", NULL};
    PolicyFusion fusion = {"Wrong", 1, wrong, "fusions[0]"};
    Policy policy = policy_with(NULL, &fusion);
    expect_error("a pattern", plain, &policy,
                 "policy: fusions[0], fusion Wrong, pattern 1: line 2, column 12: \"b\" is neither an input nor made "
                 "before");
    fusion.patterns = uneven;
    expect_error(
        "patterns that differ", plain, &policy,
        "policy: fusions[0], fusion Wrong, pattern 2: 2 inputs and 1 outputs, but pattern 1 has 1 and 1 (\"_\" "
        "stands for one that a pattern lacks)");
    fusion = (PolicyFusion){"Double", 1, square_patterns, "fusions[0]"};
    policy.registry = &double_registry;
    expect_error("a name twice", plain, &policy,
                 "policy: fusions[0], fusion Double: there is another fusion of this name and phase already");
}
