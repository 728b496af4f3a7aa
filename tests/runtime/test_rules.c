/* SPDX-License-Identifier: Apache-2.0 */
/* The policy's rules on small models: what they touch, what that does, and which mistakes are refused. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "importer/importer.h"
#include "models.h"
#include "passes/passes.h"

/* --- what is done to which node --------------------------------------------------------------------------------- */
static const char *const chain = "graph (x: f32[n, 4]) -> (y) {\n"
                                 "w = constant f32[4, 4] {1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1}\n"
                                 "a = onnx MatMul@21 x, w\n"
                                 "b = onnx Relu@21 a\n"
                                 "c = onnx Exp@21 b\n"
                                 "d = onnx Add@21 c, x\n"
                                 "y = onnx Softmax@21 d {axis = -1}\n"
                                 "}\n";
static const char *const half = "graph (x: f16[n, 4]) -> (y) {\n"
                                "a = onnx Exp@21 x\n"
                                "b = onnx Add@21 a, x\n"
                                "y = onnx Softmax@21 b {axis = -1}\n"
                                "}\n";
static const char *const branches = "graph (p: bool[], x: f32[400]) -> (y) {\n"
                                    "a = onnx Exp@21 x\n"
                                    "y = onnx If@21 p, a captures 1 graph \"then\" (a: f32[400]) -> (t) {\n"
                                    "t = onnx Log@21 a\n} graph \"else\" (a: f32[400]) -> (e) {\n"
                                    "e = onnx Neg@21 a\n}\n}\n";

typedef struct Doing {
    const char *name, *const *model, *policy;
    const char *applied; /* "what @ node", one behind the other */
    int casts;           /* after lowering */
    int regions, anchors;
} Doing;

static const Doing doings[] = {
    {"no rules", &chain, "{}", "", 0, 1, 1},
    {"a whole model in f16 is turned at its edges alone", &chain, "{\"precision\": \"f16\"}",
     "precision: precision f16 @ MatMul#0; precision: precision f16 @ Relu#1; precision: precision f16 @ Exp#2; "
     "precision: precision f16 @ Add#3; precision: precision f16 @ Softmax#4; ",
     4, 2, 1}, /* two of them are Softmax's own, which computes in f32 */
    {"a node alone is turned around", &chain,
     "{\"rules\": [{\"match\": {\"operator\": \"Add\"}, \"precision\": \"bf16\"}]}",
     "rules[0]: precision bf16 @ Add#3; ", 3, 1, 1},
    {"the later rule holds", &chain,
     "{\"precision\": \"f16\", \"rules\": [{\"match\": {\"name\": \"*#[0-2]\"}, \"precision\": \"f32\"}]}",
     "rules[0]: precision f32 @ MatMul#0; rules[0]: precision f32 @ Relu#1; rules[0]: precision f32 @ Exp#2; "
     "precision: precision f16 @ Add#3; precision: precision f16 @ Softmax#4; ",
     5, 1, 1},
    {"f32 inside an f16 model", &half, "{\"precision\": \"f32\"}",
     "precision: precision f32 @ Exp#0; precision: precision f32 @ Add#1; precision: precision f32 @ Softmax#2; ", 2, 1,
     0},
    {"weights", &chain, "{\"weights\": \"int8\"}", "weights: weights int8 @ MatMul#0; ", 0, 1, 1},
    {"weights that a later rule leaves", &chain,
     "{\"weights\": \"int8\", \"rules\": [{\"match\": {\"operator\": \"MatMul\"}, \"weights\": \"f32\"}]}",
     "rules[0]: weights f32 @ MatMul#0; ", 0, 1, 1},
    {"a step of its own for a node in the middle", &chain,
     "{\"rules\": [{\"match\": {\"operator\": \"Add\"}, \"fuse\": false}]}", "rules[0]: fuse false @ Add#3; ", 0, 3, 1},
    {"a step of its own for each node", &chain, "{\"rules\": [{\"match\": {\"name\": \"*\"}, \"fuse\": false}]}",
     "rules[0]: fuse false @ MatMul#0; rules[0]: fuse false @ Relu#1; rules[0]: fuse false @ Exp#2; "
     "rules[0]: fuse false @ Add#3; rules[0]: fuse false @ Softmax#4; ",
     0, 4, 1},
    {"a later rule fuses again", &chain,
     "{\"rules\": [{\"match\": {\"operator\": \"Add\"}, \"fuse\": false}, {\"match\": {\"domain\": \"\"}, \"fuse\": "
     "true}]}",
     "", 0, 1, 1},
    {"nodes of a pattern", &chain,
     "{\"rules\": [{\"match\": {\"pattern\": \"(x) -> (y) { h = Relu(x)  y = Exp(h) }\"}, \"fuse\": false}]}",
     "rules[0]: fuse false @ Relu#1; rules[0]: fuse false @ Exp#2; ", 0, 3, 1},
    {"nodes of a pattern that another condition chooses from", &chain,
     "{\"rules\": [{\"match\": {\"operator\": \"Exp\", \"pattern\": \"(x) -> (y) { h = Relu(x)  y = Exp(h) }\"}, "
     "\"fuse\": false}]}",
     "rules[0]: fuse false @ Exp#2; ", 0, 3, 1},
    {"a rule that need not match", &chain,
     "{\"rules\": [{\"match\": {\"operator\": \"Conv\"}, \"weights\": \"int8\", \"optional\": true}]}", "", 0, 1, 1},
    {"nodes of branches", &branches, "{\"rules\": [{\"match\": {\"operator\": \"Log\"}, \"precision\": \"f16\"}]}",
     "rules[0]: precision f16 @ Log#0; ", 2, 3, 0},
    {"on the CPU, where the device is the CPU", &chain,
     "{\"rules\": [{\"match\": {\"operator\": \"Softmax\"}, \"device\": \"cpu\"}]}",
     "rules[0]: device cpu @ Softmax#4; ", 0, 2, 1},
};

static int count(const Graph *graph, NodeKind kind, Prim prim) {
    int found = 0;
    FOR_EACH_NODE(node, graph) {
        found += node->kind == kind && (kind != NODE_PRIM || node->prim == prim);
        for (int i = 0; node->kind != NODE_REGION && i < node->subgraph_count; i++)
            found += count(node->subgraphs[i], kind, prim);
    }
    return found;
}

static void after_pass(void *casts, const char *pass, const Graph *graph) {
    if (strcmp(pass, "lower") == 0) *(int *)casts = count(graph, NODE_PRIM, PRIM_CAST);
}

static Graph *imported(const char *text) {
    size_t size;
    void *bytes = model_bytes(text, &size);
    Graph *graph = NULL;
    Status status = import_memory(bytes, size, NULL, NULL, &graph);
    cr_assert(!status, "%s", status_message(status));
    free(bytes);
    return graph;
}

static const char *applied_text(const Graph *graph, Arena *arena) {
    Text text = text_make(arena);
    for (int i = 0; i < graph->info->applied.count; i++)
        text_add(&text, "%s @ %s; ", graph->info->applied.items[i].what, graph->info->applied.items[i].node);
    return text.data;
}

static void do_one(const Doing *row) {
    Arena *arena = arena_create(0);
    Policy policy = policy_default();
    policy.target.epilogue.outputs = 0; /* so that regions show what is fused */
    Status status = policy_parse(row->policy, strlen(row->policy), "p", arena, &policy);
    cr_assert(!status, "%s: %s", row->name, status_message(status));
    Graph *graph = imported(*row->model);
    int casts = -1;
    status = pipeline_run(graph, &policy, after_pass, &casts);
    cr_assert(!status, "%s: %s", row->name, status_message(status));
    cr_expect_str_eq(applied_text(graph, arena), row->applied, "%s: %s", row->name, applied_text(graph, arena));
    cr_expect_eq(casts, row->casts, "%s: %d casts", row->name, casts);
    cr_expect_eq(count(graph, NODE_REGION, PRIM_NONE), row->regions, "%s: %d regions", row->name,
                 count(graph, NODE_REGION, PRIM_NONE));
    cr_expect_eq(count(graph, NODE_ANCHOR, PRIM_NONE), row->anchors, "%s", row->name);
    graph_destroy(graph);
    arena_destroy(arena);
}

Test(rules, what_they_do) {
    for (size_t i = 0; i < sizeof doings / sizeof *doings; i++) do_one(&doings[i]);
}

/* --- epilogues, permutes and factors stay outside a fence --------------------------------------------------------- */
static const char *const product = "graph (x: f32[n, 4], r: f32[n, 4]) -> (y) {\n"
                                   "w = constant f32[4, 4] {1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1}\n"
                                   "two = constant f32[] 2\n"
                                   "a = onnx Mul@21 x, two\n"
                                   "b = onnx MatMul@21 a, w\n"
                                   "c = onnx Add@21 b, r\n"
                                   "y = onnx Relu@21 c\n"
                                   "}\n";

static OnnxfuseSession *open_with(const char *text, const char *policy, const char *message) {
    OnnxfuseSession *session = NULL;
    OnnxfuseOptions options = {.policy_json = policy};
    OnnxfuseStatus status = open_text(text, &options, &session);
    if (!message) {
        cr_assert(!status, "%s: %s", policy, onnxfuse_status_message(status));
    } else {
        cr_expect(status && strstr(onnxfuse_status_message(status), message), "%s: \"%s\", expected \"%s\"", policy,
                  status ? onnxfuse_status_message(status) : "opened", message);
        onnxfuse_status_free(status);
    }
    return session;
}

static int steps_with(const char *text, const char *policy) {
    OnnxfuseSession *session = open_with(text, policy, NULL);
    OnnxfuseStats stats;
    onnxfuse_session_stats(session, &stats, sizeof stats);
    onnxfuse_session_close(session);
    return stats.regions + stats.anchors;
}

Test(rules, fences_hold_around_anchors) {
    cr_expect_eq(steps_with(product, "{}"), 1);
    cr_expect_eq(steps_with(product, "{\"rules\": [{\"match\": {\"operator\": \"MatMul\"}, \"fuse\": false}]}"), 3);
    cr_expect_eq(steps_with(product, "{\"rules\": [{\"match\": {\"operator\": \"Relu\"}, \"fuse\": false}]}"), 2);
    cr_expect_eq(steps_with(product, "{\"rules\": [{\"match\": {\"name\": \"*\"}, \"fuse\": false}]}"), 4);
}

/* --- numbers ------------------------------------------------------------------------------------------------------ */
typedef struct Number {
    const char *name, *model, *policy, *input, *output;
} Number;

static const Number numbers[] = {
    {"f16 rounds", "graph (x: f32[2]) -> (y) {\ny = onnx Neg@21 x\n}\n", "{\"precision\": \"f16\"}",
     "f32[2] {1.0001, 2049}", "f32[2] {-1, -2048}"},
    {"bf16 rounds", "graph (x: f32[2]) -> (y) {\ny = onnx Neg@21 x\n}\n", "{\"precision\": \"bf16\"}",
     "f32[2] {1.001, 257}", "f32[2] {-1, -256}"},
    {"integers stay", "graph (x: i64[2]) -> (y) {\ny = onnx Neg@21 x\n}\n", "{\"precision\": \"f16\"}",
     "i64[2] {100001, 3}", "i64[2] {-100001, -3}"},
    {"f64 stays", "graph (x: f64[2]) -> (y) {\ny = onnx Neg@21 x\n}\n", "{\"precision\": \"f16\"}",
     "f64[2] {1.0001, 2049}", "f64[2] {-1.0001, -2049}"},
    {"between two f32 nodes of an f16 model nothing is rounded",
     "graph (x: f16[1]) -> (y) {\nk = constant f16[] 1024\na = onnx Mul@21 x, k\nb = onnx Mul@21 a, k\n"
     "y = onnx Div@21 b, k\n}\n",
     "{\"precision\": \"f32\"}", "f16[1] {60}", "f16[1] {61440}"},
    {"constants beyond f16 stay finite",
     "graph (x: f32[2]) -> (y) {\nk = constant f32[2] {-1e38, 1e-12}\na = onnx Sub@21 k, k\ny = onnx Add@21 a, x\n}\n",
     "{\"precision\": \"f16\"}", "f32[2] {1, 2}", "f32[2] {1, 2}"},
    {"an epsilon stays above zero",
     "graph (x: f32[1]) -> (y) {\nk = constant f32[1] {1e-12}\na = onnx Add@21 x, k\ny = onnx Div@21 x, a\n}\n",
     "{\"precision\": \"f16\"}", "f32[1] {0}", "f32[1] {0}"},
    {"a cast keeps its type", "graph (x: f32[1]) -> (y) {\na = onnx Cast@21 x {to = 10}\ny = onnx Neg@21 a\n}\n",
     "{\"precision\": \"f32\"}", "f32[1] {1.0001}", "f16[1] {-1}"},
};

Test(rules, numbers) {
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        OnnxfuseSession *session = open_with(numbers[i].model, numbers[i].policy, NULL);
        char *wrong =
            run_and_compare(session, (const char *const[]){numbers[i].input}, (const char *const[]){numbers[i].output});
        cr_expect(!wrong, "%s: %s", numbers[i].name, wrong);
        free(wrong);
        onnxfuse_session_close(session);
    }
}

/* --- mistakes --- */
static const struct {
    const char *policy, *message;
} mistakes[] = {
    {"{\"rules\": [{\"match\": {\"operator\": \"Conv\"}, \"fuse\": false}]}",
     "policy: rules[0].match: no node of the model matches"},
    {"{\"rules\": [{\"match\": {\"name\": \"softmax*\"}, \"fuse\": false}]}",
     "policy: rules[0].match: no node of the model matches"},
    {"{\"rules\": [{\"match\": {\"operator\": \"Exp\", \"domain\": \"com.microsoft\"}, \"fuse\": false}]}",
     "policy: rules[0].match: no node of the model matches"},
    {"{\"rules\": [{\"match\": {\"operator\": \"Exp\"}, \"fuse\": false}, {\"match\": {\"name\": \"*\"}, \"weights\": "
     "\"int8\"}]}",
     "policy: rules[1].weights: node \"Relu#1\" (Relu) has no constant matrix"},
    {"{\"rules\": [{\"match\": {\"pattern\": \"(x) -> (y) { y = Conv(x) }\"}, \"fuse\": false}]}",
     "policy: rules[0].match: no node of the model matches"},
    {"{\"rules\": [{\"match\": {\"pattern\": \"(x) -> (y) y = Exp(x)\"}, \"fuse\": false}]}",
     "policy: rules[0].match.pattern: line 1, column"},
};

Test(rules, mistakes) {
    for (size_t i = 0; i < sizeof mistakes / sizeof *mistakes; i++)
        open_with(chain, mistakes[i].policy, mistakes[i].message);
    open_with("graph (x: i64[2]) -> (y) {\ny = onnx Cast@21 x {to = 1}\n}\n",
              "{\"rules\": [{\"match\": {\"operator\": \"Cast\"}, \"precision\": \"f16\"}]}",
              "policy: rules[0].precision: no node that matches computes in a floating-point type");
}
