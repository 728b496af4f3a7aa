/* SPDX-License-Identifier: Apache-2.0 */
/* Every rule against central differences in f64: each row is a graph whose floating-point inputs are drawn from [low, high); the gradient of
 * the sum of weighted outputs must be the limit of differences at each element, and so must the gradient of a weighted sum of these gradients. */
#include <criterion/criterion.h>

#include "autodiff/autodiff.h"
#include "interpret.h"

#include <math.h>
#include <stdio.h>

typedef struct Row {
    const char *name, *inputs, *body; /* the body computes y */
    double low, high;
    bool only_once; /* the gradient is not smooth enough for differences of its own, or grows beyond their accuracy */
} Row;

#define UNARY(name, low, high)                                                                                         \
    { name, "x: f64[2, 3]", "y: f64[2, 3] = " name " x", low, high, false }

static const Row rows[] = {
    UNARY("neg", -2, 2),
    UNARY("abs", -2, -0.1),
    UNARY("sign", 0.1, 2),
    UNARY("floor", 0.1, 0.9),
    UNARY("ceil", 0.1, 0.9),
    UNARY("round", 0.6, 1.4),
    UNARY("trunc", 0.1, 0.9),
    UNARY("sqrt", 0.5, 2),
    UNARY("reciprocal", 0.5, 2),
    UNARY("exp", -2, 2),
    UNARY("log", 0.5, 2),
    UNARY("log1p", -0.5, 2),
    UNARY("expm1", -2, 2),
    UNARY("sin", -2, 2),
    UNARY("cos", -2, 2),
    UNARY("tan", -1, 1),
    UNARY("asin", -0.8, 0.8),
    UNARY("acos", -0.8, 0.8),
    UNARY("atan", -2, 2),
    UNARY("sinh", -2, 2),
    UNARY("cosh", -2, 2),
    UNARY("tanh", -2, 2),
    UNARY("asinh", -2, 2),
    UNARY("acosh", 1.5, 3),
    UNARY("atanh", -0.8, 0.8),
    UNARY("erf", -2, 2),
    UNARY("sigmoid", -2, 2),
    {"add broadcasts a row", "a: f64[2, 3], b: f64[3]", "y: f64[2, 3] = add a, b", -2, 2, false},
    {"sub broadcasts a column", "a: f64[2, 1], b: f64[2, 3]", "y: f64[2, 3] = sub a, b", -2, 2, false},
    {"mul of a value by itself", "a: f64[2, 3]", "y: f64[2, 3] = mul a, a", -2, 2, false},
    {"mul by a scalar and a batch", "a: f64[], b: f64[n, 2, 3]", "y: f64[n, 2, 3] = mul a, b", -2, 2, false},
    {"div broadcasts both ways", "a: f64[2, 1], b: f64[3]", "y: f64[2, 3] = div a, b", 0.5, 2, false},
    {"mod", "a: f64[2, 3], b: f64[2, 3]", "c = constant f64[] 3.3\nd: f64[2, 3] = mul a, c\ny: f64[2, 3] = mod d, b",
     1.0, 1.05, false},
    {"fmod of a negative dividend", "a: f64[2, 3], b: f64[2, 3]",
     "c = constant f64[] -3.3\nd: f64[2, 3] = mul a, c\ny: f64[2, 3] = fmod d, b", 1.0, 1.05, false},
    {"pow", "a: f64[2, 3], b: f64[3]", "y: f64[2, 3] = pow a, b", 0.5, 2, false},
    {"pow of a negative base by a whole number", "a: f64[2, 3]", "b = constant f64[] 4\ny: f64[2, 3] = pow a, b", -2,
     -0.5, false},
    {"min and max", "a: f64[2, 3], b: f64[2, 3]",
     "c: f64[2, 3] = max a, b\nd = constant f64[3] {0.1, 0.2, 0.3}\ny: f64[2, 3] = min c, d", -2, 2, false},
    {"where broadcasts its branches", "a: f64[2, 3], b: f64[3]",
     "c = constant bool[2, 1] {true, false}\ny: f64[2, 3] = where c, a, b", -2, 2, false},
    {"cast there and back", "a: f64[2, 3]", "b: f64[2, 3] = mul a, a\ny: f64[2, 3] = cast b {to = f64}", -2, 2, false},
    {"reduce_sum", "x: f64[2, 3, 2]", "s: f64[2, 1, 2] = reduce_sum x {axes = [1]}\ny: f64[2, 1, 2] = mul s, s", -2, 2,
     false},
    {"reduce_prod", "x: f64[2, 3]", "y: f64[2, 1] = reduce_prod x {axes = [1]}", -2, 2, false},
    {"reduce_max and reduce_min", "x: f64[2, 3]",
     "a: f64[2, 1] = reduce_max x {axes = [1]}\nb: f64[1, 3] = reduce_min x {axes = [0]}\ny: f64[2, 3] = mul a, b", -2,
     2, false},
    {"softmax with its maximum", "x: f64[2, 3]",
     "m: f64[2, 1] = reduce_max x {axes = [1]}\nd: f64[2, 3] = sub x, m\ne: f64[2, 3] = exp d\ns: f64[2, 1] = "
     "reduce_sum e "
     "{axes = [1]}\ny: f64[2, 3] = div e, s",
     -2, 2, false},
    {"log_softmax with its maximum", "x: f64[2, 3]",
     "m: f64[2, 1] = reduce_max x {axes = [1]}\nd: f64[2, 3] = sub x, m\ne: f64[2, 3] = exp d\ns: f64[2, 1] = "
     "reduce_sum e "
     "{axes = [1]}\nt: f64[2, 1] = log s\ny: f64[2, 3] = sub d, t",
     -2, 2, false},
    {"logarithm of a sum, the maximum added again", "x: f64[2, 3]",
     "m: f64[2, 1] = reduce_max x {axes = [1]}\nd: f64[2, 3] = sub x, m\ne: f64[2, 3] = exp d\ns: f64[2, 1] = "
     "reduce_sum e "
     "{axes = [1]}\nt: f64[2, 1] = log s\ny: f64[2, 1] = add t, m",
     -2, 2, false},
    {"a maximum that does not cancel", "x: f64[2, 3]",
     "m: f64[2, 1] = reduce_max x {axes = [1]}\nd: f64[2, 3] = sub x, m\ny: f64[2, 3] = exp d", -2, 2, false},
    {"a maximum over other axes than the sum", "x: f64[2, 3]",
     "m: f64[1, 3] = reduce_max x {axes = [0]}\nd: f64[2, 3] = sub x, m\ne: f64[2, 3] = exp d\ns: f64[2, 1] = "
     "reduce_sum e "
     "{axes = [1]}\ny: f64[2, 3] = div e, s",
     -2, 2, false},
    {"reshape and permute", "x: f64[2, 3]",
     "a: f64[3, 2] = permute x {perm = [1, 0]}\nb: f64[6] = reshape a {shape = (6)}\ny: f64[6] = mul b, b", -2, 2,
     false},
    {"permute of three axes", "x: f64[2, 3, 4]",
     "a: f64[4, 2, 3] = permute x {perm = [2, 0, 1]}\ny: f64[4, 2, 3] = mul a, a", -2, 2, false},
    {"expand", "x: f64[2, 1]", "a: f64[2, 3] = expand x {shape = (2, 3)}\ny: f64[2, 3] = mul a, a", -2, 2, false},
    {"expand that repeats nothing at this size", "x: f64[n], z: f64[m]",
     "a: f64[max(n, m)] = expand x {shape = (max(n, m))}\ny: f64[max(n, m)] = mul a, a", -2, 2, false},
    {"expand of what is 1 at this size", "x: f64[one], z: f64[m]",
     "a: f64[max(one, m)] = expand x {shape = (max(one, m))}\ny: f64[max(one, m)] = mul a, a", -2, 2, false},
    {"slice", "x: f64[5, 3]",
     "a: f64[2, 3] = slice x {shape = (2, 3), start = (1, 0), step = [1, 1]}\ny: f64[2, 3] = mul a, a", -2, 2, false},
    {"slice in steps, backwards", "x: f64[7, 3]",
     "a: f64[3, 2] = slice x {shape = (3, 2), start = (6, 0), step = [-3, 2]}\ny: f64[3, 2] = mul a, a", -2, 2, false},
    {"slice of a symbolic size", "x: f64[n, 2]",
     "a: f64[n - 1, 2] = slice x {shape = (n - 1, 2), start = (1, 0), step = [1, 1]}\ny: f64[n - 1, 2] = mul a, a", -2,
     2, false},
    {"slice of nothing", "x: f64[3, 2]", "y: f64[0, 2] = slice x {shape = (0, 2), start = (1, 0), step = [1, 1]}", -2,
     2, false},
    {"pad", "x: f64[2, 3], f: f64[]",
     "a: f64[5, 4] = pad x, f {before = (1, 0), after = (2, 1)}\ny: f64[5, 4] = mul a, a", -2, 2, false},
    {"pad that cuts off", "x: f64[4, 3], f: f64[]",
     "a: f64[4, 2] = pad x, f {before = (-1, 0), after = (1, -1)}\ny: f64[4, 2] = mul a, a", -2, 2, false},
    {"concat, one part twice", "a: f64[2, 1], b: f64[2, 3]",
     "c: f64[2, 5] = concat a, b, a {axis = 1}\ny: f64[2, 5] = mul c, c", -2, 2, false},
    {"gather of rows, one twice, one from the end", "x: f64[4, 2]",
     "i = constant i64[3] {1, -1, 1}\na: f64[3, 2] = gather x, i {axis = 0}\ny: f64[3, 2] = mul a, a", -2, 2, false},
    {"gather in the middle by a matrix", "x: f64[2, 4, 3]",
     "i = constant i64[2, 2] {1, 0, 3, 1}\na: f64[2, 2, 2, 3] = gather x, i {axis = 1}\ny: f64[2, 2, 2, 3] = mul a, a",
     -2, 2, false},
    {"gather of one", "x: f64[2, 4]", "i = constant i64[] 2\na: f64[2] = gather x, i {axis = 1}\ny: f64[2] = mul a, a",
     -2, 2, false},
    {"gather_elements", "x: f64[3, 2]",
     "i = constant i64[2, 2] {1, 0, 1, -1}\na: f64[2, 2] = gather_elements x, i {axis = 0}\ny: f64[2, 2] = mul a, a",
     -2, 2, false},
    {"scatter_elements replaces", "x: f64[3, 2], u: f64[2, 2]",
     "i = constant i64[2, 2] {1, 0, 2, 1}\na: f64[3, 2] = scatter_elements x, i, u {axis = 0, reduction = "
     "\"none\"}\ny: f64[3, "
     "2] = mul a, a",
     -2, 2, false},
    {"scatter_elements adds, one place twice", "x: f64[3, 2], u: f64[2, 2]",
     "i = constant i64[2, 2] {1, 0, 1, 1}\na: f64[3, 2] = scatter_elements x, i, u {axis = 0, reduction = \"add\"}\ny: "
     "f64[3, "
     "2] = mul a, a",
     -2, 2, false},
    {"scatter_elements multiplies", "x: f64[3, 2], u: f64[2, 2]",
     "i = constant i64[2, 2] {1, 0, 1, 1}\na: f64[3, 2] = scatter_elements x, i, u {axis = 0, reduction = \"mul\"}\ny: "
     "f64[3, "
     "2] = mul a, a",
     0.5, 2, false},
    {"scatter_elements takes the larger", "x: f64[3, 2], u: f64[2, 2]",
     "i = constant i64[2, 2] {1, 0, 1, 1}\na: f64[3, 2] = scatter_elements x, i, u {axis = 0, reduction = \"max\"}\ny: "
     "f64[3, "
     "2] = mul a, a",
     -2, 2, false},
    {"scatter_nd replaces rows", "x: f64[4, 2], u: f64[2, 2]",
     "i = constant i64[2, 1] {3, 0}\na: f64[4, 2] = scatter_nd x, i, u {reduction = \"none\"}\ny: f64[4, 2] = mul a, a",
     -2, 2, false},
    {"scatter_nd adds elements", "x: f64[4, 2], u: f64[3]",
     "i = constant i64[3, 2] {3, 0, 1, 1, 3, 0}\na: f64[4, 2] = scatter_nd x, i, u {reduction = \"add\"}\ny: f64[4, 2] "
     "= mul a, a",
     -2, 2, false},
    {"scatter_nd multiplies", "x: f64[4, 2], u: f64[3, 2]",
     "i = constant i64[3, 1] {3, 1, 3}\na: f64[4, 2] = scatter_nd x, i, u {reduction = \"mul\"}\ny: f64[4, 2] = mul a, "
     "a",
     0.5, 2, false},
    {"scatter_nd takes the smaller", "x: f64[4, 2], u: f64[3, 2]",
     "i = constant i64[3, 1] {3, 1, 3}\na: f64[4, 2] = scatter_nd x, i, u {reduction = \"min\"}\ny: f64[4, 2] = mul a, "
     "a",
     -2, 2, false},
    {"matmul", "a: f64[2, 3], b: f64[3, 4]", "y: f64[2, 4] = anchor matmul a, b", -2, 2, false},
    {"matmul of a batch by one matrix", "a: f64[n, 2, 3], b: f64[3, 4]", "y: f64[n, 2, 4] = anchor matmul a, b", -2, 2,
     false},
    {"matmul of batches that repeat", "a: f64[2, 1, 2, 3], b: f64[3, 3, 2]", "y: f64[2, 3, 2, 2] = anchor matmul a, b",
     -2, 2, false},
    {"matmul of one matrix by a batch", "a: f64[2, 3], b: f64[2, 3, 2]", "y: f64[2, 2, 2] = anchor matmul a, b", -2, 2,
     false},
    {"matmul through permutes, scaled", "a: f64[3, 2, 2], b: f64[4, 3]",
     "y: f64[4, 2, 2] = anchor matmul a, b {perm_a = [1, 2, 0], perm_b = [1, 0], perm_out = [2, 0, 1], alpha = 0.5}",
     -2, 2, false},
    {"matmul without rows", "a: f64[0, 3], b: f64[3, 4]", "y: f64[0, 4] = anchor matmul a, b", -2, 2, false},
    {"conv", "x: f64[2, 5, 4, 3], w: f64[2, 3, 3, 2]",
     "y: f64[2, 3, 3, 2] = anchor conv x, w {strides = [1, 1], dilations = [1, 1], pads = (0, 0, 0, 0), group = 1}", -2,
     2, false},
    {"conv with strides, dilations, pads and groups", "x: f64[1, 7, 6, 4], w: f64[6, 2, 3, 2]",
     "y: f64[1, 4, 3, 6] = anchor conv x, w {strides = [2, 2], dilations = [1, 2], pads = (1, 0, 2, 1), group = 2}", -2,
     2, false},
    {"conv that leaves a row unread", "x: f64[1, 6, 1], w: f64[1, 1, 3]",
     "y: f64[1, 2, 1] = anchor conv x, w {strides = [2], dilations = [1], pads = (0, 0), group = 1}", -2, 2, false},
    {"conv, depthwise", "x: f64[n, 4, 5, 3], w: f64[3, 1, 3, 3]",
     "y: f64[n, 4, 5, 3] = anchor conv x, w {strides = [1, 1], dilations = [1, 1], pads = (1, 1, 1, 1), group = 3}", -2,
     2, false},
    {"conv_transpose", "x: f64[1, 3, 2, 4], w: f64[4, 2, 3, 2]",
     "y: f64[1, 7, 5, 4] = anchor conv_transpose x, w {strides = [2, 3], dilations = [1, 1], pads = (0, 0, 0, 0), "
     "group = 2}",
     -2, 2, false},
    {"an integer path gives nothing", "x: f64[3], k: f64[3]",
     "i: i64[3] = cast k {to = i64}\nj: f64[3] = cast i {to = f64}\ny: f64[3] = mul x, j", 0.1, 0.9, false},
};

/* --- running ------------------------------------------------------------------------------------------------------- */

enum { MOST_INPUTS = 4, MOST_ELEMENTS = 256 };

static double drawn(uint64_t seed, int64_t i) { return (double)philox_u32(seed, (uint64_t)i) * 0x1p-32; }

static int64_t size_of(const Graph *graph, const Dim *dim) {
    int64_t size;
    if (dim_is_const(dim, &size)) return size;
    int symbol = dim_symbol_index(dim);
    return symbol >= 0 && strcmp(dim_symbol_name(graph->dims, symbol), "one") == 0 ? 1 : 3;
}

static Tensor *input_of(const Graph *graph, int number, const Row *row) {
    const Value *value = graph->inputs.items[number];
    int64_t dims[MAX_RANK];
    for (int i = 0; i < value->rank; i++) dims[i] = size_of(graph, value->dims[i]);
    Tensor *tensor = tensor_new(graph->arena, value->dtype, value->rank, dims);
    double *data = tensor->data;
    for (int64_t i = 0; i < tensor_count(tensor); i++)
        data[i] = row->low + (row->high - row->low) * drawn((uint64_t)number + 7, i);
    return tensor;
}

static void run(const Row *row, const Graph *graph, Tensor *const *inputs, Item *outputs) {
    Item items[MOST_INPUTS];
    for (int i = 0; i < graph->inputs.count; i++) items[i] = (Item){.kind = ITEM_TENSOR, .tensor = *inputs[i]};
    Status status = interpret(graph, items, graph->arena, outputs);
    cr_assert_null(status, "%s: %s", row->name, status_message(status));
}

/* The sum of the output's elements, weighted. */
static double weighted(const Item *item) {
    const double *data = item->tensor.data;
    double sum = 0;
    for (int64_t i = 0; i < tensor_count(&item->tensor); i++) sum += (drawn(99, i) + 0.5) * data[i];
    return sum;
}

/* The weights as a value of y's shape: numbers of a short ramp would be simpler, but equal weights hide errors. */
static Value *weights_of(Lowering *l, const Value *y) {
    const Dim *count = value_elements(l->graph, y);
    int64_t numbers[1] = {MOST_ELEMENTS};
    Tensor *tensor = tensor_new(l->arena, DT_F64, 1, numbers);
    for (int64_t i = 0; i < MOST_ELEMENTS; i++) ((double *)tensor->data)[i] = drawn(99, i) + 0.5;
    Value *line = slice_axis(l, constant(l, tensor), 0, dim_const(l->dims, 0), count);
    return reshape(l, line, y->dims, y->rank);
}

static void check_row(const Row *row, const Graph *graph, Tensor *const *inputs, int gradients_at, int output) {
    Item outputs[3 * MOST_INPUTS + 3], moved[3 * MOST_INPUTS + 3];
    run(row, graph, inputs, outputs);
    for (int i = 0; i < graph->inputs.count; i++) {
        const Tensor *gradient = &outputs[gradients_at + i].tensor;
        double *data = inputs[i]->data;
        cr_assert_eq(tensor_count(gradient), tensor_count(inputs[i]), "%s", row->name);
        for (int64_t k = 0; k < tensor_count(inputs[i]); k++) {
            double kept = data[k], h = 1e-5 * fmax(1, fabs(kept)), up, down;
            data[k] = kept + h;
            run(row, graph, inputs, moved);
            up = weighted(&moved[output]);
            data[k] = kept - h;
            run(row, graph, inputs, moved);
            down = weighted(&moved[output]);
            data[k] = kept;
            double want = (up - down) / (2 * h), have = ((double *)gradient->data)[k];
            /* differences: h^2 of the third derivative, and rounding of the sum over h */
            cr_expect(fabs(want - have) <= 2e-7 * fmax(1, fabs(want)),
                      "%s, input %d, element %lld: %.12g, differences say %.12g", row->name, i, (long long)k, have,
                      want);
        }
    }
}

Test(rules, are_the_limits_of_differences) {
    for (size_t r = 0; r < sizeof rows / sizeof *rows; r++) {
        const Row *row = &rows[r];
        char source[2048];
        snprintf(source, sizeof source, "graph (%s) -> (y) {\n%s\n}\n", row->inputs, row->body);
        Graph *graph = NULL;
        Status status = graph_parse(source, &graph);
        cr_assert_null(status, "%s: %s", row->name, status_message(status));
        Lowering l = {.graph = graph, .arena = graph->arena, .dims = graph->dims, .elsewhere = true};
        int count = graph->inputs.count;
        Value *first[MOST_INPUTS], *second[MOST_INPUTS], *y = graph->outputs.items[0];
        status = differentiate(&l, y, weights_of(&l, y), graph->inputs.items, count, first);
        cr_assert_null(status, "%s: %s", row->name, status_message(status));
        Value *sum = NULL; /* of all elements of all gradients, weighted */
        for (int i = 0; i < count; i++) {
            graph_add_named_output(graph, first[i], "gradient");
            cr_expect(value_same_shape(first[i], graph->inputs.items[i]),
                      "%s: the gradient of input %d has another shape", row->name, i);
            Value *part = mul(&l, first[i], weights_of(&l, first[i]));
            part = flatten_to(&l, part, 0, part->rank);
            part = reduce(&l, PRIM_REDUCE_SUM, part, (int[]){0}, 1, false);
            sum = sum ? add(&l, sum, part) : part;
        }
        status =
            row->only_once ? NULL : differentiate(&l, sum, weights_of(&l, sum), graph->inputs.items, count, second);
        cr_assert_null(status, "%s, again: %s", row->name, status_message(status));
        if (!row->only_once) {
            graph_add_named_output(graph, sum, "sum");
            for (int i = 0; i < count; i++) graph_add_named_output(graph, second[i], "second");
        }
        status = graph_verify(graph, LEVEL_PRIM);
        cr_assert_null(status, "%s: %s", row->name, status_message(status));
        Tensor *inputs[MOST_INPUTS];
        for (int i = 0; i < count; i++) inputs[i] = input_of(graph, i, row);
        check_row(row, graph, inputs, 1, 0);
        if (!row->only_once) check_row(row, graph, inputs, 2 + count, 1 + count);
        graph_destroy(graph);
    }
}
