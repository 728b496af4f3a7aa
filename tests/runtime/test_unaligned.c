/* SPDX-License-Identifier: Apache-2.0 */
/* Weights as they lie in a model's file: whatever their alignment there, results have the same bits. */
#include <criterion/criterion.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "graph/graph.h"
#include "importer/importer.h"
#include "models.h"

typedef struct Row {
    const char *name;
    const char *inputs, *outputs; /* of the graph */
    int64_t dims[4];              /* of x */
    int rank;
    const char *weights[2]; /* shapes of w and v */
    const char *nodes;
    int kept; /* weights that stay where they are, where they are unaligned */
    const char *policy;
    bool by_nodes; /* weights are the results of Constant nodes, not initializers */
} Row;

static const Row rows[] = {
    {"a product", "x: f32[3, 36]", "y", {3, 36}, 2, {"36, 40"}, "y = onnx MatMul@21 x, w\n", 1},
    {"one weight of two products and a table",
     "x: f32[3, 40], i: i64[2]",
     "y, z, t",
     {3, 40},
     2,
     {"40, 40"},
     "a = onnx MatMul@21 x, w\ny = onnx MatMul@21 a, w\nz = onnx Relu@21 y\nt = onnx Gather@21 w, i\n",
     1},
    {"a product with a node's constant",
     "x: f32[3, 36]",
     "y",
     {3, 36},
     2,
     {"36, 40"},
     "y = onnx MatMul@21 x, w\n",
     1,
     NULL,
     true},
    {"a node's constant that is added",
     "x: f32[36, 40]",
     "y",
     {36, 40},
     2,
     {"36, 40"},
     "y = onnx Add@21 x, w\n",
     0,
     NULL,
     true},
    {"a turned factor",
     "x: f32[3, 36]",
     "y",
     {3, 36},
     2,
     {"40, 36", "40"},
     "y = onnx Gemm@21 x, w, v {transB = 1}\n",
     1},
    {"factors of channels",
     "x: f32[3, 36]",
     "y",
     {3, 36},
     2,
     {"36, 40", "40"},
     "a = onnx MatMul@21 x, w\nb = onnx Mul@21 a, v\ny = onnx Add@21 b, v\n",
     1},
    {"a convolution with factors of channels",
     "x: f32[1, 32, 5, 5]",
     "y",
     {1, 32, 5, 5},
     4,
     {"40, 32, 1, 1", "40, 1, 1"},
     "a = onnx Conv@21 x, w\nb = onnx Mul@21 a, v\ny = onnx Add@21 b, v\n",
     1},
    {"a convolution of 3x3",
     "x: f32[1, 32, 24, 24]",
     "y",
     {1, 32, 24, 24},
     4,
     {"32, 32, 3, 3"},
     "y = onnx Conv@21 x, w\n",
     1},
    {"a convolution of 5x3", "x: f32[1, 8, 9, 9]", "y", {1, 8, 9, 9}, 4, {"20, 8, 5, 3"}, "y = onnx Conv@21 x, w\n", 1},
    {"a depthwise convolution",
     "x: f32[1, 128, 9, 9]",
     "y",
     {1, 128, 9, 9},
     4,
     {"128, 1, 3, 3"},
     "y = onnx Conv@21 x, w {group = 128}\n",
     1},
    {"a transposed convolution whose kernel is its stride",
     "x: f32[1, 16, 5, 5]",
     "y",
     {1, 16, 5, 5},
     4,
     {"16, 32, 2, 2"},
     "y = onnx ConvTranspose@21 x, w {strides = [2, 2]}\n",
     1},
    {"a transposed convolution",
     "x: f32[1, 16, 5, 5]",
     "y",
     {1, 16, 5, 5},
     4,
     {"16, 16, 3, 3"},
     "y = onnx ConvTranspose@21 x, w {strides = [2, 2]}\n",
     1},
    {"what a convolution of four axes computes plainly",
     "x: f32[1, 8, 3, 3, 3, 3]",
     "y",
     {0},
     0,
     {"10, 8, 2, 2, 2, 2"},
     "y = onnx Conv@21 x, w\n",
     1},
    {"a table", "i: i64[2]", "y", {0}, 0, {"36, 40"}, "y = onnx Gather@21 w, i {axis = 1}\n", 1},
    {"a product of constants",
     "x: f32[3, 40]",
     "y",
     {3, 40},
     2,
     {"40, 40", "40, 40"},
     "a = onnx MatMul@21 w, v\ny = onnx MatMul@21 x, a\n",
     1},
    {"a weight that is also an output",
     "x: f32[3, 36]",
     "y, w",
     {3, 36},
     2,
     {"36, 40"},
     "y = onnx MatMul@21 x, w\n",
     0},
    {"a weight that is added, too",
     "x: f32[36, 36]",
     "y",
     {36, 36},
     2,
     {"36, 36"},
     "a = onnx MatMul@21 x, w\ny = onnx Add@21 a, w\n",
     0},
    {"scales of blocks",
     "x: f32[3, 32]",
     "y",
     {3, 32},
     2,
     {"1024"},
     "s = constant i64[3] {1024, 1, 16}\nq = onnx ConstantOfShape@21 s {value = tensor u8[1] {147}}\n"
     "y = onnx \"com.microsoft\" MatMulNBits@1 x, q, w {K = 32, N = 1024, bits = 4, block_size = 32}\n",
     1},
    {"scales of blocks that are multiplied, too",
     "x: f32[3, 32]",
     "y, z",
     {3, 32},
     2,
     {"1024"},
     "s = constant i64[3] {1024, 1, 16}\nq = onnx ConstantOfShape@21 s {value = tensor u8[1] {147}}\n"
     "y = onnx \"com.microsoft\" MatMulNBits@1 x, q, w {K = 32, N = 1024, bits = 4, block_size = 32}\nz = onnx Mul@21 "
     "y, "
     "w\n",
     0},
    {"a weight held in 8 bits",
     "x: f32[3, 64]",
     "y",
     {3, 64},
     2,
     {"64, 40"},
     "y = onnx MatMul@21 x, w\n",
     1,
     "\"rules\": [{\"match\": {\"operator\": \"MatMul\"}, \"weights\": \"int8\"}], "},
};

static int64_t elements_of(const char *shape) {
    int64_t count = 1;
    for (const char *at = shape; *at; at += strspn(at, ", ")) count *= strtoll(at, (char **)(uintptr_t)&at, 10);
    return count;
}

/* pad: bytes by which the weights move in the file. */
static void *bytes_of(const Row *row, int pad, size_t *out_size) {
    Arena *arena = arena_create(0);
    Text text = text_make(arena);
    text_add(&text, "opset 21\nopset \"com.microsoft\" 1\ngraph \"%.*s\" (%s) -> (%s) {\n", pad, "____", row->inputs,
             row->outputs);
    for (int w = 0; w < 2 && row->weights[w]; w++) {
        text_add(&text, row->by_nodes ? "%c = onnx Constant@21 {value = tensor f32[%s] {" : "%c = constant f32[%s] {",
                 'w' - w, row->weights[w]);
        for (int64_t i = 0, count = elements_of(row->weights[w]); i < count; i++)
            text_add(&text, "%s%d.%d", i ? ", " : "", (int)(i * 7 % 5 - 2), (int)(i * 13 % 97));
        text_add(&text, row->by_nodes ? "}}\n" : "}\n");
    }
    text_add(&text, "%s}\n", row->nodes);
    void *bytes = model_bytes(text.data, out_size);
    arena_destroy(arena);
    return bytes;
}

/* Float weights that import has left unaligned. */
static int unaligned_weights(const void *bytes, size_t size) {
    Graph *graph;
    ImportOptions options = {.unaligned_weights = true};
    int count = 0;
    cr_assert_null(import_memory(bytes, size, NULL, &options, &graph));
    for (int i = 0; i < graph->values.count; i++) {
        const Tensor *t = graph->values.items[i]->constant;
        count += t && !tensor_is_aligned(t);
    }
    graph_destroy(graph);
    return count;
}

static OnnxfuseValue *input_of(const OnnxfuseValueInfo *info) {
    OnnxfuseValue *value;
    int64_t count = 1;
    cr_assert_null(onnxfuse_value_tensor(info->dtype, info->rank, info->dims, NULL, &value));
    for (int d = 0; d < info->rank; d++) count *= info->dims[d];
    for (int64_t i = 0; i < count; i++)
        if (info->dtype == ONNXFUSE_INT64)
            ((int64_t *)onnxfuse_value_data(value))[i] = i * 5;
        else
            ((float *)onnxfuse_value_data(value))[i] = (float)(i * 11 % 17) - 8;
    return value;
}

static char *results_of(const Row *row, const void *bytes, size_t size) {
    char policy[256];
    snprintf(policy, sizeof policy, "{%s\"cache\": {\"enable\": false}}", row->policy ? row->policy : "");
    OnnxfuseOptions options = {.size = sizeof options, .policy_json = policy, .threads = 2};
    OnnxfuseSession *session;
    OnnxfuseStatus status = onnxfuse_session_open_memory(bytes, size, NULL, &options, &session);
    cr_assert_null(status, "%s: %s", row->name, status ? onnxfuse_status_message(status) : "");
    OnnxfuseValue *inputs[2] = {0}, *outputs[3] = {0};
    for (int i = 0; i < onnxfuse_session_input_count(session); i++)
        inputs[i] = input_of(onnxfuse_session_input(session, i));
    status = onnxfuse_session_run(session, (const OnnxfuseValue *const *)inputs, outputs);
    cr_assert_null(status, "%s: %s", row->name, status ? onnxfuse_status_message(status) : "");
    Arena *arena = arena_create(0);
    Text text = text_make(arena);
    for (int o = 0; o < onnxfuse_session_output_count(session); o++) {
        char *one = value_text(outputs[o]);
        text_add(&text, "%s\n", one);
        free(one);
        onnxfuse_value_free(outputs[o]);
    }
    char *copy = strdup(text.data);
    arena_destroy(arena);
    for (int i = 0; i < 2; i++) onnxfuse_value_free(inputs[i]);
    onnxfuse_session_close(session);
    return copy;
}

Test(unaligned, results_do_not_depend_on_where_a_weight_lies) {
    for (size_t r = 0; r < sizeof rows / sizeof *rows; r++) {
        char *want = NULL;
        int most = 0;
        for (int pad = 0; pad < 4; pad++) {
            size_t size;
            void *bytes = bytes_of(&rows[r], pad, &size);
            int unaligned = unaligned_weights(bytes, size);
            most = unaligned > most ? unaligned : most;
            char *got = results_of(&rows[r], bytes, size);
            if (want)
                cr_expect_str_eq(got, want, "%s, moved by %d", rows[r].name, pad);
            else
                want = strdup(got);
            free(got);
            free(bytes);
        }
        cr_expect_eq(most > 0, rows[r].kept, "%s: %d weights stay unaligned", rows[r].name, most);
        free(want);
    }
}
