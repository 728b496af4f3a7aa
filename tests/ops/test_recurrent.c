/* SPDX-License-Identifier: Apache-2.0 */
/* Recurrent nets: the vectorised kernel against the plain one (the same net in f64), and numbers worked out by hand.
 *
 * How far f32 may be off follows from the net itself: a sum of n products in any order is the exact one of factors that
 * are each changed by gamma(n) at most (rounding.h), so that rounding does to a result what a change of all weights and
 * of x does, which the plain net tells: its results with all of them changed by CHANGE, up or down. */
#include <criterion/criterion.h>

#include <math.h>

#include "autodiff/autodiff.h"
#include "interpret.h"
#include "lowering/ops.h"
#include "rounding.h"

/* A net; its weights are drawn. batch of 9 is two blocks of rows and one row more, of 7 one, two and one; hidden of 70 is
 * two panels and a part, of 300 more than one step in one thread. */
typedef struct Net {
    const char *name, *op, *direction;
    int gates, time, batch, input, hidden;
    bool bias, lengths, initial, peepholes;
    const char *attribute; /* an int attribute set to 1, or NULL */
    double clip;
} Net;

static const Net nets[] = {
    {"rnn", "RNN", "forward", 1, 3, 2, 4, 5, .bias = true},
    {"rnn: both directions, sequences of several lengths", "RNN", "bidirectional", 1, 5, 9, 3, 70, .bias = true,
     .lengths = true},
    {"gru: the reset gate before the product", "GRU", "forward", 3, 4, 3, 4, 64, .bias = true, .initial = true},
    {"gru: and after it", "GRU", "reverse", 3, 4, 5, 4, 17, .bias = true, .initial = true,
     .attribute = "linear_before_reset"},
    {"gru: without biases", "GRU", "bidirectional", 3, 2, 9, 4, 3, .attribute = "linear_before_reset"},
    {"lstm: one step of one row", "LSTM", "forward", 4, 1, 1, 8, 128, .bias = true, .initial = true},
    {"lstm: lengths in both directions", "LSTM", "bidirectional", 4, 6, 9, 4, 70, .bias = true, .lengths = true,
     .initial = true},
    {"lstm: many rows", "LSTM", "bidirectional", 4, 5, 75, 4, 33, .bias = true, .initial = true, .lengths = true},
    {"gru: many rows", "GRU", "forward", 3, 4, 71, 4, 40, .bias = true, .lengths = true},
    {"lstm: peepholes", "LSTM", "reverse", 4, 3, 2, 4, 6, .bias = true, .initial = true, .peepholes = true},
    {"lstm: coupled gates", "LSTM", "forward", 4, 3, 2, 4, 6, .bias = true, .attribute = "input_forget"},
    {"lstm: clipped gates", "LSTM", "forward", 4, 3, 2, 4, 6, .bias = true, .clip = 0.3},
    {"lstm: batch first", "LSTM", "bidirectional", 4, 3, 2, 4, 6, .bias = true, .initial = true, .attribute = "layout"},
    {"lstm: wide", "LSTM", "forward", 4, 3, 1, 4, 300, .bias = true, .initial = true},
    {"lstm: wide, some rows", "LSTM", "bidirectional", 4, 3, 7, 4, 300, .bias = true, .lengths = true},
    {"gru: wide", "GRU", "forward", 3, 3, 1, 4, 300, .bias = true, .initial = true},
    {"gru: wide, reset after", "GRU", "forward", 3, 3, 3, 4, 300, .bias = true, .attribute = "linear_before_reset"},
    {"rnn: wide", "RNN", "reverse", 1, 2, 7, 4, 600, .bias = true},
    {"lstm: no time steps", "LSTM", "forward", 4, 0, 2, 4, 6, .initial = true},
};

enum { DRAWS = 8 };
static const double CHANGE = 0x1p-16;

/* What a graph is made of: its type, and which of the drawn changes its numbers have (0: none). */
typedef struct Make {
    DType dtype;
    int change;
    bool gradients; /* of half the sum of the squares of all outputs, with respect to all inputs, are what comes out */
} Make;

enum { MOST_RESULTS = 8 };

/* Multiples of 2^-23 in [-0.5, 0.5): the same in both types, before a change. */
static Tensor *drawn(Arena *arena, Make make, int rank, const int64_t *dims, uint64_t seed) {
    Tensor *tensor = tensor_new(arena, make.dtype, rank, dims);
    for (int64_t i = 0; i < tensor_count(tensor); i++) {
        double x = (philox_u32(seed, (uint64_t)i) >> 9) / 8388608.0 - 0.5;
        if (make.change) x *= philox_u32(seed + 100 * (uint64_t)make.change, (uint64_t)i) & 1 ? 1 + CHANGE : 1 - CHANGE;
        dtype_store_double(make.dtype, tensor->data, i, x);
    }
    return tensor;
}

static Value *given(Graph *graph, Make make, int rank, const int64_t *dims, uint64_t seed) {
    return graph_add_constant(graph, NULL, drawn(graph->arena, make, rank, dims, seed));
}

static Value *input_of(Graph *graph, DType dtype, const int64_t *dims) {
    const Dim *sizes[3];
    for (int i = 0; i < 3; i++) sizes[i] = dim_const(graph->dims, dims[i]);
    return graph_add_input(graph, "x", dtype, 3, sizes);
}

static void give_gradients(Graph *graph, const Node *node, DType dtype) {
    Value *loss = NULL, *xs[MOST_RESULTS];
    StringView names[MOST_RESULTS];
    int count = 0;
    Tensor *half = tensor_new(graph->arena, dtype, 0, NULL);
    dtype_store_double(dtype, half->data, 0, 0.5);
    for (int i = 0; i < node->output_count; i++) {
        Value *y = node->outputs[i], *factors[] = {y, y}, *parts[] = {NULL, loss};
        Node *square = graph_add_node(graph, NULL, NODE_ONNX, "Mul", factors, 2);
        Value *squared = node_add_output(square, NULL, DT_NONE, -1, NULL);
        Node *sum = graph_add_node(graph, NULL, NODE_ONNX, "ReduceSum", &squared, 1);
        node_set_int(sum, "keepdims", 0);
        parts[0] = node_add_output(sum, NULL, DT_NONE, -1, NULL);
        Node *all = graph_add_node(graph, NULL, NODE_ONNX, "Sum", parts, loss ? 2 : 1);
        loss = node_add_output(all, NULL, DT_NONE, -1, NULL);
        square->opset = sum->opset = all->opset = 22;
    }
    Value *factors[] = {loss, graph_add_constant(graph, NULL, half)};
    Node *halved = graph_add_node(graph, NULL, NODE_ONNX, "Mul", factors, 2);
    halved->opset = 22;
    loss = node_add_output(halved, NULL, DT_NONE, -1, NULL);
    for (int i = 0; i < node->input_count; i++)
        if (node->inputs[i] && dtype_is_float(node->inputs[i]->dtype)) xs[count++] = node->inputs[i];
    for (int i = 0; i < count; i++) names[i] = (StringView){xs[i]->name, strlen(xs[i]->name)};
    Node *gradient = graph_add_node(graph, NULL, NODE_ONNX, "Gradient", xs, count);
    gradient->domain = TRAINING_DOMAIN;
    gradient->opset = 1;
    node_set_attr(gradient, (Attr){.name = "xs",
                                   .kind = ATTR_STRINGS,
                                   .count = count,
                                   .strings = arena_copy(graph->arena, names, sizeof names)});
    node_set_string(gradient, "y", loss->name);
    for (int i = 0; i < count; i++) graph_add_output(graph, node_add_output(gradient, NULL, DT_NONE, -1, NULL));
}

/* How many results the graph has. */
static int results_of(const Net *net, bool gradients) {
    int outputs = net->gates == 4 ? 3 : 2;
    return gradients ? 3 + net->bias + net->initial * (outputs - 1) + net->peepholes : outputs;
}

static Graph *make_graph(const Net *net, Make make, Tensor **out_x) {
    Graph *graph = graph_create(0);
    bool batch_first = net->attribute && strcmp(net->attribute, "layout") == 0, lstm = net->gates == 4;
    int64_t d = strcmp(net->direction, "bidirectional") == 0 ? 2 : 1, g = net->gates, h = net->hidden;
    int64_t x[] = {net->time, net->batch, net->input}, turned[] = {net->batch, net->time, net->input};
    int64_t w[] = {d, g * h, net->input}, r[] = {d, g * h, h}, b[] = {d, 2 * g * h}, p[] = {d, 3 * h},
            batch = net->batch;
    int64_t state[] = {d, batch, h}, turned_state[] = {batch, d, h};
    *out_x = drawn(graph->arena, make, 3, batch_first ? turned : x, 1);
    Value *inputs[8] = {input_of(graph, make.dtype, batch_first ? turned : x), given(graph, make, 3, w, 2),
                        given(graph, make, 3, r, 3)};
    if (net->bias) inputs[3] = given(graph, make, 2, b, 4);
    if (net->lengths) {
        Tensor *lengths = tensor_new(graph->arena, DT_I32, 1, &batch);
        for (int64_t i = 0; i < batch; i++) ((int32_t *)lengths->data)[i] = (int32_t)(i % (net->time + 1));
        inputs[4] = graph_add_constant(graph, NULL, lengths);
    }
    if (net->initial) inputs[5] = given(graph, make, 3, batch_first ? turned_state : state, 5);
    if (net->initial && lstm) inputs[6] = given(graph, make, 3, batch_first ? turned_state : state, 6);
    if (net->peepholes) inputs[7] = given(graph, make, 2, p, 7);
    Node *node = graph_add_node(graph, NULL, NODE_ONNX, net->op, inputs, lstm ? 8 : 6);
    node->opset = 22;
    node_set_string(node, "direction", net->direction);
    node_set_int(node, "hidden_size", h);
    if (net->attribute) node_set_int(node, net->attribute, 1);
    if (net->clip > 0) node_set_float(node, "clip", net->clip);
    for (int i = 0; i < (lstm ? 3 : 2); i++) node_add_output(node, NULL, DT_NONE, -1, NULL);
    for (int i = 0; !make.gradients && i < node->output_count; i++) graph_add_output(graph, node->outputs[i]);
    if (make.gradients) give_gradients(graph, node, make.dtype);
    return graph;
}

static Status run(Graph *graph, const Tensor *x, Arena *arena, Item *outputs) {
    Policy policy = {0};
    TRY(prepare_gradients(graph, &policy));
    TRY(lower_graph(graph, &policy));
    TRY(expand_gradients(graph, &policy));
    TRY(graph_verify(graph, LEVEL_PRIM));
    Item item = {.kind = ITEM_TENSOR, .tensor = *x};
    return interpret(graph, &item, arena, outputs);
}

static void compare(const char *name, const Tensor *a, const Tensor *b, const double *bounds) {
    cr_expect(tensor_same_shape(a, b), "%s: the shapes differ", name);
    for (int64_t i = 0; tensor_same_shape(a, b) && i < tensor_count(a); i++) {
        double x = dtype_load_double(a->dtype, a->data, i), y = dtype_load_double(b->dtype, b->data, i);
        cr_expect(rounding_agrees(a->dtype, x, y, bounds ? bounds[i] : 0), "%s: element %lld is %.9g instead of %.9g",
                  name, (long long)i, x, y);
    }
}

static void run_net(const Net *net, Make make, Arena *arena, Item *outputs) {
    Tensor *x;
    Graph *graph = make_graph(net, make, &x);
    Status status = run(graph, x, arena, outputs);
    cr_assert(!status, "%s: %s", net->name, status_message(status));
    graph_destroy(graph);
}

/* Terms: a row of weights, a row of the recurrence, both biases, and the roundings of a gate: activations may be off by
 * some units each. The last step's own are those of its result. Gradients add a product by the gates, and sums over
 * steps and rows, whose parts may be as large as the tensor's largest element where they cancel. */
static double *bounds_of(const Net *net, Arena *arena, const Tensor *exact, const Tensor *changed[DRAWS],
                         bool gradients) {
    int64_t terms = net->input + net->hidden + 16, back = net->gates * net->hidden + net->time * net->batch + 16;
    double *bounds = ARENA_ARRAY(arena, double, tensor_count(exact) + 1),
           gamma = rounding_gamma(DT_F32, gradients ? terms + back : terms);
    double largest = 0;
    for (int64_t i = 0; gradients && i < tensor_count(exact); i++)
        largest = fmax(largest, fabs(((double *)exact->data)[i]));
    for (int64_t i = 0; i < tensor_count(exact); i++) {
        double y = fmax(fabs(((double *)exact->data)[i]), largest), x = ((double *)exact->data)[i], squares = 0;
        for (int d = 0; d < DRAWS; d++) squares += pow(((double *)changed[d]->data)[i] - x, 2);
        bounds[i] = gamma / CHANGE * sqrt(squares / DRAWS) + 8 * rounding_unit(DT_F32) * y;
    }
    return bounds;
}

static void check_fast(const Net *net, bool gradients) {
    Arena *arena = arena_create(0);
    Item fast[MOST_RESULTS] = {0}, plain[MOST_RESULTS] = {0}, changed[DRAWS][MOST_RESULTS] = {0};
    run_net(net, (Make){DT_F32, 0, gradients}, arena, fast);
    run_net(net, (Make){DT_F64, 0, gradients}, arena, plain);
    for (int d = 0; d < DRAWS; d++) run_net(net, (Make){DT_F64, d + 1, gradients}, arena, changed[d]);
    for (int o = 0; o < results_of(net, gradients); o++) {
        const Tensor *of_output[DRAWS];
        for (int d = 0; d < DRAWS; d++) of_output[d] = &changed[d][o].tensor;
        compare(net->name, &fast[o].tensor, &plain[o].tensor,
                bounds_of(net, arena, &plain[o].tensor, of_output, gradients));
    }
    arena_destroy(arena);
}

Test(recurrent, fast_is_plain) {
    for (size_t i = 0; i < sizeof nets / sizeof *nets; i++) check_fast(&nets[i], false);
}

Test(recurrent, fast_gradients_are_plain_ones) {
    for (size_t i = 0; i < sizeof nets / sizeof *nets; i++) check_fast(&nets[i], true);
}

/* How many threads take part changes no bit. */
static void check_threads(const Net *net, bool gradients) {
    static const int counts[] = {1, 2, 16};
    Arena *arena = arena_create(0);
    Item outputs[3][MOST_RESULTS] = {0};
    for (int k = 0; k < 3; k++) {
        Pool *pool;
        Status status = pool_create(counts[k], &pool);
        cr_assert(!status);
        interpret_on(pool);
        run_net(net, (Make){DT_F32, 0, gradients}, arena, outputs[k]);
        for (int o = 0; k && o < results_of(net, gradients); o++) {
            const Tensor *a = &outputs[0][o].tensor, *b = &outputs[k][o].tensor;
            cr_expect(!tensor_bytes(a) || memcmp(a->data, b->data, tensor_bytes(a)) == 0,
                      "%s: output %d differs with %d threads", net->name, o, counts[k]);
        }
        interpret_on(NULL);
        pool_destroy(pool);
    }
    arena_destroy(arena);
}

Test(recurrent, threads_change_nothing) {
    for (size_t i = 0; i < sizeof nets / sizeof *nets; i++)
        for (int gradients = 0; gradients < 2; gradients++) check_threads(&nets[i], gradients);
}

/* Graphs whose first output must equal their second. */
static const struct {
    const char *name, *body;
} values[] = {
    {"rnn with Relu: sums of what came before",
     "x = constant f32[3, 1, 1] {1, -3, 5}\nw = constant f32[1, 1, 1] {1}\nr = constant f32[1, 1, 1] {1}\n"
     "y, _ = onnx RNN@14 x, w, r {hidden_size = 1, activations = [\"Relu\"]}\nwant = constant f32[3, 1, 1, 1] {1, 0, "
     "5}"},
    {"reverse: from the end of each sequence, and zeros behind it",
     "x = constant f32[3, 2, 1] {1, 10, 2, 20, 3, 30}\nw = constant f32[1, 1, 1] {1}\nr = constant f32[1, 1, 1] {1}\n"
     "n = constant i32[2] {2, 3}\ny, _ = onnx RNN@14 x, w, r, _, n {hidden_size = 1, direction = \"reverse\", "
     "activations = "
     "[\"Relu\"]}\nwant = constant f32[3, 1, 2, 1] {3, 60, 2, 50, 0, 30}"},
    {"affine activations take their factors in order",
     "x = constant f32[1, 1, 1] {2}\nw = constant f32[1, 1, 1] {1}\nr = constant f32[1, 1, 1] {0}\n"
     "y, _ = onnx RNN@14 x, w, r {hidden_size = 1, activations = [\"Affine\"], activation_alpha = [3.0], "
     "activation_beta = [4.0]}\n"
     "want = constant f32[1, 1, 1, 1] {10}"},
};

Test(recurrent, values) {
    for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
        Arena *arena = arena_create(0);
        Graph *graph = NULL;
        Policy policy = {0};
        Item outputs[2] = {0};
        Status status = graph_parse(arena_format(arena, "graph () -> (y, want) {\n%s\n}\n", values[i].body), &graph);
        if (!status) status = lower_graph(graph, &policy);
        if (!status) status = interpret(graph, NULL, arena, outputs);
        cr_expect(!status, "%s: %s", values[i].name, status_message(status));
        if (!status) compare(values[i].name, &outputs[0].tensor, &outputs[1].tensor, NULL);
        status_free(status);
        graph_destroy(graph);
        arena_destroy(arena);
    }
}
