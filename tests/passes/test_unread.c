/* SPDX-License-Identifier: Apache-2.0 */
/* Large constants that folding has made go back when nothing reads them, and what is read keeps its data, whoever shares it (graph/constants/unread.h). */
#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

#include "graph/constants/unread.h"
#include "lowering/ops.h"
#include "passes/passes.h"

enum { ROWS = 512, COLUMNS = 1024 };

static Tensor *bytes_of_weights(Arena *arena) {
    Tensor *t = tensor_new(arena, DT_U8, 2, (int64_t[]){ROWS, COLUMNS});
    for (int i = 0; i < ROWS * COLUMNS; i++) ((uint8_t *)t->data)[i] = (uint8_t)(i * 7 % 251);
    return t;
}

/* y = x + ((w - 3) * .5 as DequantizeLinear, then twice that, less 1), all of which but the last is folded away. */
static Graph *quantized_sum(void) {
    Graph *graph = NULL;
    cr_assert_null(
        graph_parse("graph (x: f32[512, 1024]) -> (y) {\n"
                    "  w = constant u8[1, 1] {0}\n  s = constant f32[] 0.5\n  z = constant u8[] 3\n"
                    "  two = constant f32[] 2\n  one = constant f32[] 1\n"
                    "  a = onnx DequantizeLinear@19 w, s, z\n  b = onnx Mul@14 a, two\n  c = onnx Sub@14 b, one\n"
                    "  y = onnx Add@14 x, c\n}\n",
                    &graph));
    for (int i = 0; i < graph->values.count; i++) {
        Value *w = graph->values.items[i];
        if (strcmp(w->name, "w") != 0) continue;
        w->constant = bytes_of_weights(graph->arena);
        w->dims[0] = dim_const(graph->dims, ROWS);
        w->dims[1] = dim_const(graph->dims, COLUMNS);
    }
    return graph;
}

static const Tensor *large_constant_of(const Graph *graph) {
    const Tensor *found = NULL;
    for (int i = 0; i < graph->values.count; i++) {
        const Value *v = graph->values.items[i];
        if (!v->constant || !value_is_read(v) || tensor_count(v->constant) < ROWS * COLUMNS) continue;
        cr_assert(!found || found->data == v->constant->data);
        found = v->constant;
    }
    return found;
}

Test(unread, what_became_another_constant_goes_back) {
    Graph *graph = quantized_sum();
    Policy policy = policy_default();
    Status status = pipeline_run(graph, &policy, NULL, NULL);
    cr_assert(!status, "%s", status_message(status));
    const Tensor *t = large_constant_of(graph);
    cr_assert(t && t->dtype == DT_F32);
    cr_expect_eq(graph->info->made.count, 1);
    cr_expect_eq((void *)graph->info->made.items[0].data, t->data);
    for (int i = 0; i < ROWS * COLUMNS; i++) {
        float expected = ((float)(i * 7 % 251) - 3) * .5f * 2 - 1;
        float found = ((const float *)t->data)[i];
        cr_assert(found == expected, "element %d is %g, not %g", i, (double)found, (double)expected);
    }
    graph_destroy(graph);
}

Test(unread, without_the_passes_all_stays) {
    Graph *graph = quantized_sum();
    Policy policy = policy_default();
    Status status = lower_graph(graph, &policy);
    cr_assert(!status, "%s", status_message(status));
    int count = graph->info->made.count;
    cr_expect_gt(count, 1);
    graph_give_back(graph);
    cr_expect_eq(graph->info->made.count, count);
    graph_destroy(graph);
}

static Value *noted(Graph *graph, const char *name) {
    Tensor *t = tensor_new(graph->arena, DT_F32, 2, (int64_t[]){ROWS, COLUMNS});
    ((float *)t->data)[ROWS * COLUMNS - 1] = 7;
    graph_note_made(graph, t);
    return graph_add_constant(graph, name, t);
}

static bool is_made(const Graph *graph, const void *data) {
    for (int i = 0; i < graph->info->made.count; i++)
        if (graph->info->made.items[i].data == data) return true;
    return false;
}

/* What reads a constant: a node, an attribute, the unrounded form, a part of it, a body. */
Test(unread, readers) {
    Graph *graph = graph_create(0), *body = graph_sub(graph, "body");
    graph_give_unread_back(graph);
    const Dim *dims[] = {dim_const(graph->dims, ROWS), dim_const(graph->dims, COLUMNS)};
    Value *x = graph_add_input(graph, "x", DT_F32, 2, dims), *by_node = noted(graph, "by_node"),
          *by_attr = noted(graph, "by_attr"), *as_wider = noted(graph, "as_wider"), *in_part = noted(graph, "in_part"),
          *inside = noted(graph, "inside"), *unread = noted(graph, "unread"), *small = noted(graph, "small");
    Tensor *narrow = tensor_new(graph->arena, DT_BF16, 2, (int64_t[]){1, 1}), part = *in_part->constant,
           same = *inside->constant;
    Value *rounded = graph_add_constant(graph, "rounded", narrow);
    rounded->wider = as_wider->constant;
    part.dims[0] = 1;
    part.data = (float *)part.data + (ROWS - 1) * COLUMNS;
    Value *row = graph_add_constant(graph, "row", &part);
    Node *node = graph_add_prim(graph, NULL, PRIM_ADD, (Value *[]){x, by_node}, 2);
    Value *y = node_add_output(node, "y", DT_F32, 2, dims);
    node_set_attr(node, (Attr){.name = "held", .kind = ATTR_TENSOR, .tensor = by_attr->constant});
    Node *others = graph_add_node(graph, NULL, NODE_HOST, "Several", (Value *[]){rounded, row, y}, 3);
    graph_add_output(graph, node_add_output(others, "z", DT_F32, 2, dims));
    others->subgraphs = ARENA_ARRAY(graph->arena, Graph *, 1);
    others->subgraphs[others->subgraph_count++] = body;
    graph_add_output(body, graph_add_constant(body, "inner", &same));
    void *data = unread->constant->data;
    (void)small;
    graph_give_back(graph);
    cr_expect_eq(graph->info->made.count, 5);
    Value *const kept[] = {by_node, by_attr, as_wider, in_part, inside};
    for (size_t i = 0; i < sizeof kept / sizeof *kept; i++) {
        cr_assert(kept[i]->constant && !kept[i]->gone, "%s", kept[i]->name);
        cr_expect(is_made(graph, kept[i]->constant->data) &&
                      ((float *)kept[i]->constant->data)[ROWS * COLUMNS - 1] == 7,
                  "%s", kept[i]->name);
    }
    cr_expect(unread->gone && !unread->constant && !is_made(graph, data));
    node_set_input(others, 0, y); /* what had been rounded is read no more */
    graph_give_back(graph);
    cr_expect(as_wider->gone && !rounded->wider && rounded->constant);
    cr_expect_eq(graph->info->made.count, 4);
    graph_destroy(graph);
}
