/* SPDX-License-Identifier: Apache-2.0 */
/* The operator Gradient: each row is a graph of ONNX nodes whose output g must be `want`, where x = [1, 2, 3] and z = [4, 5, 6]; and graphs that
 * must be refused. */
#include <criterion/criterion.h>

#include "autodiff/autodiff.h"
#include "interpret.h"
#include "lowering/ops.h"

#include <math.h>
#include <stdio.h>

#define GRADIENT "onnx \"ai.onnx.preview.training\" Gradient@1 "

static const struct {
    const char *name, *body;
    double want[3];
} rows[] = {
    {"with respect to an input", "y = onnx Mul@14 x, x\ng = " GRADIENT "x {xs = [\"x\"], y = \"y\"}", {2, 4, 6}},
    {"zs stay as they are",
     "y = onnx Mul@14 x, z\ng = " GRADIENT "x, z {xs = [\"x\"], zs = [\"z\"], y = \"y\"}",
     {4, 5, 6}},
    {"with respect to an initializer",
     "w = constant f64[3] {7, 8, 9}\ns = onnx Mul@14 w, w\ny = onnx Mul@14 x, s\ng = " GRADIENT
     "w {xs = [\"w\"], y = \"y\"}",
     {14, 32, 54}},
    {"with respect to a result that its reader undoes",
     "a = onnx Neg@13 x\nb = onnx Neg@13 a\ny = onnx Mul@14 b, z\ng = " GRADIENT "a {xs = [\"a\"], y = \"y\"}",
     {-4, -5, -6}},
    {"of what x itself is", "y = onnx Neg@13 x\ng = " GRADIENT "y {xs = [\"y\"], y = \"y\"}", {1, 1, 1}},
    {"of what does not depend on x", "y = onnx Mul@14 z, z\ng = " GRADIENT "x {xs = [\"x\"], y = \"y\"}", {0, 0, 0}},
    {"before what it differentiates",
     "h = " GRADIENT "x {xs = [\"x\"], y = \"y\"}\ng = onnx Neg@13 h\ny = onnx Mul@14 x, x",
     {-2, -4, -6}},
    {"at another place", "y = onnx Mul@14 x, x\ng = " GRADIENT "z {xs = [\"x\"], y = \"y\"}", {8, 10, 12}},
    {"at another place, z changed too",
     "k = constant f64[3] {10, 20, 30}\np = onnx Mul@14 x, z\ny = onnx Mul@14 p, x\ng = " GRADIENT
     "z, k {xs = [\"x\"], zs = [\"z\"], y = \"y\"}",
     {80, 200, 360}},
    {"at another place, of a result inside",
     "a = onnx Mul@14 x, x\ny = onnx Mul@14 a, a\ng = " GRADIENT "z {xs = [\"a\"], y = \"y\"}",
     {8, 10, 12}},
    {"of a gradient",
     "c = onnx Mul@14 x, x\ny = onnx Mul@14 c, x\nd = " GRADIENT "x {xs = [\"x\"], y = \"y\"}\ng = " GRADIENT
     "x {xs = [\"x\"], y = \"d\"}",
     {6, 12, 18}},
    {"two of the same x",
     "w = constant f64[3] {7, 8, 9}\ny = onnx Mul@14 x, w\ns = onnx Mul@14 w, w\nd = " GRADIENT
     "w {xs = [\"w\"], y = \"y\"}\ne = " GRADIENT "w {xs = [\"w\"], y = \"s\"}\ng = onnx Add@14 d, e",
     {15, 18, 21}},
};

static const struct {
    const char *name, *body, *message;
} refused[] = {
    {"an unknown name", "y = onnx Mul@14 x, x\ng = " GRADIENT "x {xs = [\"k\"], y = \"y\"}", "xs names \"k\""},
    {"an unknown y", "g = " GRADIENT "x {xs = [\"x\"], y = \"q\"}", "y names \"q\""},
    {"no y", "g = " GRADIENT "x {xs = [\"x\"]}", "attributes xs (strings), y (a string) are missing"},
    {"an input too many", "y = onnx Mul@14 x, x\ng = " GRADIENT "x, z {xs = [\"x\"], y = \"y\"}",
     "2 inputs and 1 outputs"},
    {"y of its own results", "g = " GRADIENT "x {xs = [\"x\"], y = \"y\"}\ny = onnx Neg@13 g",
     "is computed of its results"},
    {"integers", "i = onnx Cast@13 x {to = i64}\ny = onnx Mul@14 x, x\ng = " GRADIENT "i {xs = [\"i\"], y = \"y\"}",
     "is no tensor of floats"},
};

static Status build(const char *body, Graph **out_graph) {
    char source[2048];
    snprintf(source, sizeof source,
             "opset 17\nopset \"ai.onnx.preview.training\" 1\ngraph (x: f64[3], z: f64[3]) -> (g) {\n%s\n}\n", body);
    Status status = graph_parse(source, out_graph);
    cr_assert_null(status, "%s: %s", body, status_message(status));
    Policy policy = policy_default();
    TRY(prepare_gradients(*out_graph, &policy));
    TRY(lower_graph(*out_graph, &policy));
    TRY(expand_gradients(*out_graph, &policy));
    return graph_verify(*out_graph, LEVEL_PRIM);
}

Test(gradient_operator, is_the_derivative) {
    for (size_t r = 0; r < sizeof rows / sizeof *rows; r++) {
        Graph *graph = NULL;
        Status status = build(rows[r].body, &graph);
        cr_assert_null(status, "%s: %s", rows[r].name, status_message(status));
        double x[] = {1, 2, 3}, z[] = {4, 5, 6};
        Item inputs[] = {{.kind = ITEM_TENSOR, .tensor = {.dtype = DT_F64, .rank = 1, .dims = {3}, .data = x}},
                         {.kind = ITEM_TENSOR, .tensor = {.dtype = DT_F64, .rank = 1, .dims = {3}, .data = z}}};
        Item output;
        status = interpret(graph, inputs, graph->arena, &output);
        cr_assert_null(status, "%s: %s", rows[r].name, status_message(status));
        for (int i = 0; i < 3; i++)
            cr_expect_eq(((double *)output.tensor.data)[i], rows[r].want[i], "%s: element %d is %g", rows[r].name, i,
                         ((double *)output.tensor.data)[i]);
        graph_destroy(graph);
    }
}

Test(gradient_operator, says_what_is_wrong) {
    for (size_t r = 0; r < sizeof refused / sizeof *refused; r++) {
        Graph *graph = NULL;
        Status status = build(refused[r].body, &graph);
        cr_assert(status, "%s was taken", refused[r].name);
        cr_expect(strstr(status_message(status), refused[r].message), "%s: %s", refused[r].name,
                  status_message(status));
        status_free(status);
        graph_destroy(graph);
    }
}
