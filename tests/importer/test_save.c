/* SPDX-License-Identifier: Apache-2.0 */
/* Graph -> model -> graph gives the same graph. */
#include "messages.h"

#include <criterion/criterion.h>

static const float ones[2] = {1, 1};

static const char *printed(Arena *arena, const Graph *graph) {
    Text text = text_make(arena);
    graph_print(&text, graph);
    return text.data;
}

/* A loop around a branch, both reading outer values; a constant used outside and inside; an output that is an input. */
static Model *model_with_subgraphs(void) {
    Model *m = make_model(10, "=21");
    add_input(m->graph, "x", DT_F32, "N, 2");
    add_input(m->graph, "go", DT_BOOL, "");
    add_initializer(m->graph, make_floats("k", "2", ones, 2));
    GraphMessage *body = make_graph("body"), *yes = make_graph("yes"), *no = make_graph("no");
    add_input(body, "i", DT_I64, "");
    add_input(body, "more", DT_BOOL, "");
    add_input(body, "s", DT_F32, NULL);
    add_node(yes, "Add", "s, k", "a");
    add_output(yes, "a");
    add_node(no, "Mul", "t, x", "b");
    add_output(no, "b");
    NodeMessage *branch = add_node(body, "If", "more", "r");
    add_branch(branch, "then_branch", yes);
    add_branch(branch, "else_branch", no);
    add_node(body, "Identity", "more", "again");
    add_output(body, "again, r");
    add_node(m->graph, "Mul", "x, k", "t");
    add_branch(add_node(m->graph, "Loop", ", go, x", "y"), "body", body);
    Attribute *axes = add_attribute(add_node(m->graph, "Foo", "y, , t", "z, , w"), "axes", 0);
    axes->n_ints = 2;
    axes->ints = arena_copy(test_arena, (int64_t[]){-1, 5}, 2 * sizeof(int64_t));
    add_output(m->graph, "y, z, x, w");
    return m;
}

/* An operator that is not control flow, with two graphs that have the same names: one makes its output, one gives back its input. */
static Model *model_with_named_graphs(void) {
    Model *m = make_model(10, "=21");
    GraphMessage *first = make_graph("first"), *second = make_graph("second");
    add_input(m->graph, "x", DT_F32, "N, 2");
    add_input(first, "x", DT_F32, "N, 2");
    add_node(first, "Identity", "x", "y");
    add_output(first, "y, x");
    add_input(second, "x", DT_F32, "N, 2");
    add_input(second, "y", DT_F32, "N, 2");
    add_output(second, "y, x");
    NodeMessage *node = add_node(m->graph, "Bar", "x", "z");
    add_branch(node, "encoder", first);
    add_branch(node, "decoder", second);
    add_output(m->graph, "z");
    return m;
}

/* Maps as inputs, one of which is an output as it is, in a branch's captures and as a node's result. */
static Model *model_with_maps(void) {
    Model *m = make_model(10, "=21, ai.onnx.ml=1");
    GraphMessage *yes = make_graph("yes"), *no = make_graph("no");
    add_input(m->graph, "go", DT_BOOL, "");
    add_map_input(m->graph, "m", DT_I64, DT_F32, false);
    add_map_input(m->graph, "s", DT_STRING, DT_STRING, true);
    add_node(yes, "ai.onnx.ml:DictVectorizer", "m", "a");
    add_output(yes, "a");
    add_node(no, "ai.onnx.ml:CastMap", "m", "b");
    add_output(no, "b");
    NodeMessage *branch = add_node(m->graph, "If", "go", "x");
    add_branch(branch, "then_branch", yes);
    add_branch(branch, "else_branch", no);
    add_node(m->graph, "ai.onnx.ml:ZipMap", "x", "z");
    add_output(m->graph, "s, z, m");
    return m;
}

static void check_saved_is_as_it_was(const Model *m) {
    size_t size, saved_size;
    void *saved;
    Graph *graph, *again;
    const void *bytes = pack(&m->base, &size);
    cr_assert_null(import_memory(bytes, size, NULL, NULL, &graph));
    cr_assert_null(export_model(graph, test_arena, &saved, &saved_size));
    cr_assert_null(import_memory(saved, saved_size, NULL, NULL, &again));
    cr_expect_str_eq(printed(test_arena, again), printed(test_arena, graph));
    cr_expect_null(graph_verify(again, LEVEL_ONNX));
    graph_destroy(graph);
    graph_destroy(again);
}

Test(importer, a_saved_graph_loads_as_it_was) {
    test_arena = arena_create(0);
    check_saved_is_as_it_was(model_with_subgraphs());
    check_saved_is_as_it_was(model_with_named_graphs());
    check_saved_is_as_it_was(model_with_maps());
    arena_destroy(test_arena);
}
