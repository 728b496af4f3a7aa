/* SPDX-License-Identifier: Apache-2.0 */
/* Steps of a recipe to a body of primitives and the anchor's inputs. */
#include "anchor_body.h"

#include <string.h>

typedef struct Body {
    AnchorCase *c;
    Graph *graph;
    DType dtype;
    int rank;
    const Dim *const *sizes; /* of the result */
    Value *now;

} Body;

static Value *constant(Body *b, DType dtype, double value) {
    Tensor *t = dtype_is_float(dtype) ? tensor_scalar_double(b->c->graph->arena, dtype, value)
                                      : tensor_scalar_int(b->c->graph->arena, dtype, (int64_t)value);
    return graph_add_constant(b->graph, NULL, t);
}

static Value *number(Body *b, double value) { return constant(b, b->dtype, value); }

static Value *result_of(Body *b, Node *node, DType dtype) {
    return node_add_output(node, NULL, dtype, b->rank, b->sizes);
}

static Value *one(Body *b, Prim prim, Value *x) {
    return result_of(b, graph_add_prim(b->graph, NULL, prim, &x, 1), b->dtype);
}

static Value *two(Body *b, Prim prim, Value *x, Value *y) {
    DType dtype = prim == PRIM_LT ? DT_BOOL : b->dtype;
    return result_of(b, graph_add_prim(b->graph, NULL, prim, (Value *[]){x, y}, 2), dtype);
}

static Value *choice(Body *b, Value *condition, Value *x, Value *y) {
    return result_of(b, graph_add_prim(b->graph, NULL, PRIM_WHERE, (Value *[]){condition, x, y}, 3), b->dtype);
}

/* An input of the anchor and of the body: the result's sizes on axes of `kept` (bit k: the k-th), 1 on others; without
 * its leading axes when `row`. */
static Value *operand(Body *b, unsigned kept, bool row) {
    const Dim *sizes[MAX_RANK];
    int64_t dims[MAX_RANK];
    int skip = row ? b->rank - 1 : 0;
    for (int i = skip; i < b->rank; i++) {
        sizes[i] = kept >> i & 1 ? b->sizes[i] : dim_const(b->c->graph->dims, 1);
        if (!dim_is_const(sizes[i], &dims[i])) dims[i] = 1;
    }
    node_append_input(b->c->node, anchor_case_input(b->c, b->dtype, b->rank - skip, dims + skip));
    return graph_add_input(b->graph, NULL, b->dtype, b->rank - skip, sizes + skip);
}

/* Elements are numbered over the whole result. */
static Value *dropped(Body *b) {
    Value *seed = constant(b, DT_U64, 42), *most = constant(b, DT_U32, 3435973837.0);
    Node *drawing = graph_add_prim(b->graph, NULL, PRIM_PHILOX, &seed, 1);
    node_set_dims(drawing, "shape", b->sizes, b->rank);
    node_set_int(drawing, "halves", 1);
    return choice(b, two(b, PRIM_LT, result_of(b, drawing, DT_U32), most), b->now, number(b, 0));
}

static Value *gelu(Body *b) {
    Value *x = b->now, *erf = one(b, PRIM_ERF, two(b, PRIM_MUL, x, number(b, 0.7071067811865476)));
    return two(b, PRIM_MUL, two(b, PRIM_MUL, x, two(b, PRIM_ADD, erf, number(b, 1))), number(b, 0.5));
}

static Value *hard_swish(Body *b) {
    Value *x = b->now, *gate = two(b, PRIM_ADD, two(b, PRIM_MUL, number(b, 0.16666667), x), number(b, 0.5));
    return two(b, PRIM_MUL, x, two(b, PRIM_MAX, number(b, 0), two(b, PRIM_MIN, number(b, 1), gate)));
}

static Value *hard_swish_written_out(Body *b) {
    Value *x = b->now, *gate = two(b, PRIM_ADD, number(b, 3), x), *six = number(b, 6);
    gate = two(b, PRIM_MUL, two(b, PRIM_MIN, six, two(b, PRIM_MAX, gate, number(b, 0))), x);
    gate = two(b, PRIM_DIV, gate, six);
    return two(b, PRIM_ADD, two(b, PRIM_MUL, gate, number(b, 0.75)), number(b, -0.125));
}

static Value *cast(Body *b, DType to) {
    Node *node = graph_add_prim(b->graph, NULL, PRIM_CAST, &b->now, 1);
    node_set_dtype(node, "to", to);
    return result_of(b, node, to);
}

static Value *widened_hard_swish(Body *b) {
    DType narrow = b->dtype;
    if (dtype_size(narrow) > 2) return hard_swish(b);
    b->now = cast(b, b->dtype = DT_F32);
    b->now = hard_swish(b);
    return cast(b, b->dtype = narrow);
}

static void add_result(Body *b, Value *v) {
    if (!value_is_output(v) && b->graph->outputs.count < EPILOGUE_OUTPUTS) graph_add_output(b->graph, v);
}

static void add_cast(Body *b) { add_result(b, cast(b, b->dtype == DT_F16 ? DT_F32 : DT_F16)); }

static void add_step(Body *b, AnchorStep step) {
    unsigned last = 1u << (b->rank - 1), all = (last << 1) - 1;
    switch (step) {
    case ANCHOR_BIAS: b->now = two(b, PRIM_ADD, b->now, operand(b, last, true)); break;
    case ANCHOR_ADD: b->now = two(b, PRIM_ADD, operand(b, all, false), b->now); break;
    case ANCHOR_RELU: b->now = two(b, PRIM_MAX, b->now, number(b, 0)); break;
    case ANCHOR_ROWS: b->now = two(b, PRIM_MUL, b->now, operand(b, all & ~last, false)); break;
    case ANCHOR_CHANNELS: b->now = two(b, PRIM_MUL, b->now, operand(b, last | 1, false)); break;
    case ANCHOR_SCALAR: b->now = two(b, PRIM_MUL, operand(b, 0, true), b->now); break;
    case ANCHOR_BOUNDS: b->now = two(b, PRIM_MIN, two(b, PRIM_MAX, b->now, number(b, -0.5)), number(b, 0.75)); break;
    case ANCHOR_GELU: b->now = gelu(b); break;
    case ANCHOR_HARD_SWISH: b->now = hard_swish(b); break;
    case ANCHOR_WRITTEN_OUT: b->now = hard_swish_written_out(b); break;
    case ANCHOR_SWISH: b->now = two(b, PRIM_MUL, b->now, one(b, PRIM_SIGMOID, b->now)); break;
    case ANCHOR_TANH: b->now = one(b, PRIM_TANH, b->now); break;
    case ANCHOR_LEAKY:
        b->now = choice(b, two(b, PRIM_LT, b->now, number(b, 0)), two(b, PRIM_MUL, b->now, number(b, 0.2)), b->now);
        break;
    case ANCHOR_DROPOUT: b->now = dropped(b); break;
    case ANCHOR_WIDENED: b->now = widened_hard_swish(b); break;
    case ANCHOR_OUTPUT: add_result(b, b->now); break;
    case ANCHOR_CAST: add_cast(b); break;
    default: break;
    }
}

static void make_body(AnchorCase *c, DType dtype, int rank, const Dim *const *sizes, const AnchorStep *steps,
                      int count) {
    Body b = {.c = c, .graph = graph_sub(c->graph, "epilogue"), .dtype = dtype, .rank = rank, .sizes = sizes};
    b.now = graph_add_input(b.graph, NULL, dtype, rank, sizes);
    for (int i = 0; i < count; i++) add_step(&b, steps[i]);
    add_result(&b, b.now);
    node_add_subgraph(c->node, b.graph);
    for (int o = 0; o < b.graph->outputs.count; o++)
        node_add_output(c->node, NULL, b.graph->outputs.items[o]->dtype, rank, sizes);
}

void anchor_case_results(AnchorCase *c, DType dtype, int rank, const Dim *const *sizes, const AnchorStep *steps,
                         int count) {
    if (count)
        make_body(c, dtype, rank, sizes, steps, count);
    else
        node_add_output(c->node, NULL, dtype, rank, sizes);
}

int anchor_draw_steps(uint64_t number, DType dtype, AnchorDraw draw, AnchorStep *out_steps) {
    uint64_t state = number;
    int kinds = !dtype_is_float(dtype)      ? ANCHOR_RELU + 1
                : draw == ANCHOR_ONE_RESULT ? ANCHOR_ONE_RESULT_STEPS
                                            : ANCHOR_STEPS;
    int count = anchor_case_below(&state, ANCHOR_MOST_STEPS + 1);
    for (int i = 0; i < count; i++) out_steps[i] = (AnchorStep)anchor_case_below(&state, kinds);
    while (count && out_steps[count - 1] == ANCHOR_OUTPUT) count--; /* it is a result anyway */
    return count;
}
