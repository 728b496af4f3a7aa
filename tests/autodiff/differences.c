/* SPDX-License-Identifier: Apache-2.0 */
#include "differences.h"

#include <criterion/criterion.h>

#include "autodiff/autodiff.h"
#include "interpret.h"

#include <math.h>
#include <stdio.h>

enum { MOST_INPUTS = 8, MOST_ELEMENTS = 256 };

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
            double kept = data[k], h = (row->narrow ? 2e-3 : 1e-5) * fmax(1, fabs(kept)), up, down;
            data[k] = kept + h;
            run(row, graph, inputs, moved);
            up = weighted(&moved[output]);
            data[k] = kept - h;
            run(row, graph, inputs, moved);
            down = weighted(&moved[output]);
            data[k] = kept;
            double want = (up - down) / (2 * h), have = ((double *)gradient->data)[k];
            /* differences: h^2 of the third derivative, and rounding of the sum over h */
            cr_expect(fabs(want - have) <= (row->narrow ? 2e-3 : 2e-7) * fmax(1, fabs(want)),
                      "%s, input %d, element %lld: %.12g, differences say %.12g", row->name, i, (long long)k, have,
                      want);
        }
    }
}

void check_differences(const Row *rows, size_t row_count) {
    for (size_t r = 0; r < row_count; r++) {
        const Row *row = &rows[r];
        char source[4096];
        snprintf(source, sizeof source, "graph (%s) -> (y) {\n%s\n}\n", row->inputs, row->body);
        Graph *graph = NULL;
        Status status = graph_parse(source, &graph);
        cr_assert_null(status, "%s: %s", row->name, status_message(status));
        Policy policy = {0};
        if (strstr(row->body, "onnx ")) status = lower_graph(graph, &policy);
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
