/* SPDX-License-Identifier: Apache-2.0 */
/* The sum of convolutions of one input is one convolution, by the sum of their kernels, each padded with zeros to where it
 * reaches. The input itself, and a factor and a summand a channel (a batch normalisation), are a kernel of one tap. Nets are
 * trained with such branches and mostly exported with them: X. Ding et al., "RepVGG: Making VGG-style ConvNets Great Again", 2021. */
#include "passes/simplify.h"

#include "graph/constants/unread.h"

enum { MOST_SPATIAL = 3 };

/* One side of the sum: conv(x) + bias, or x * factor + bias. */
typedef struct Term {
    Value *x;
    Node *conv;           /* NULL: none */
    Value *factor, *bias; /* a number a channel; NULL: 1, and none */
    Node *nodes[3];       /* that nothing else needs, the last first */
    int node_count;
} Term;

/* Where a kernel's taps are along one axis, in elements of the input from where a result's position is. */
typedef struct Taps {
    int64_t first, step, count;
} Taps;

static bool takes_part(const Value *v, const Node *sum) {
    const Node *n = v->producer;
    return n && value_only_user(v) && n->fence == sum->fence && n->backward == sum->backward &&
           n->repeats == sum->repeats && v->dtype == DT_F32 && value_same_shape(v, sum->outputs[0]);
}

/* v is prim(x, a constant of a number a channel): takes the node, and v becomes x. */
static Value *take_step(Term *t, Prim prim, Value **v, const Node *sum) {
    Node *n = (*v)->producer;
    if (!takes_part(*v, sum) || n->kind != NODE_PRIM || n->prim != prim) return NULL;
    int other = n->inputs[0]->constant ? 0 : 1;
    if (!is_channel_vector(n->inputs[other], *v) || !value_same_shape(n->inputs[1 - other], *v)) return NULL;
    t->nodes[t->node_count++] = n;
    *v = n->inputs[1 - other];
    return n->inputs[other];
}

static bool is_plain_convolution(const Node *n) {
    if (n->kind != NODE_ANCHOR || strcmp(n->op, "conv") != 0 || n->input_count != 2 || n->subgraph_count) return false;
    const Value *w = n->inputs[1];
    return w->constant && w->dtype == DT_F32 && !w->wider && n->inputs[0]->dtype == DT_F32 &&
           w->rank - 2 <= MOST_SPATIAL && !node_attr(n, "perm_x") && !node_attr(n, "perm_w");
}

static Term term_of(Value *v, const Node *sum) {
    Term t = {0};
    t.bias = take_step(&t, PRIM_ADD, &v, sum);
    if (takes_part(v, sum) && is_plain_convolution(v->producer)) {
        t.conv = t.nodes[t.node_count++] = v->producer;
        t.x = t.conv->inputs[0];
        return t;
    }
    t.factor = take_step(&t, PRIM_MUL, &v, sum);
    t.x = v;
    return t;
}

/* Whether both may be one node: of one input, by the same steps and rules. b may be no convolution. */
static bool go_together(const Term *a, const Term *b) {
    if (!a->conv || a->x != b->x) return false;
    if (!b->conv) {
        int count;
        const int64_t *strides = attr_ints(a->conv, "strides", &count);
        for (int i = 0; i < count; i++)
            if (strides[i] != 1) return false;
        return value_same_shape(a->x, a->conv->outputs[0]);
    }
    static const char *const same[] = {"group", "winograd", "weight_precision"};
    for (size_t i = 0; i < sizeof same / sizeof *same; i++)
        if (attr_int(a->conv, same[i], 1) != attr_int(b->conv, same[i], 1)) return false;
    return a->conv->attrs.count == b->conv->attrs.count &&
           attr_equal(node_attr(a->conv, "strides"), node_attr(b->conv, "strides"));
}

static bool taps_of(const Term *t, int spatial, Taps *taps, int64_t *after) {
    int count;
    for (int i = 0; i < spatial; i++) taps[i] = (Taps){0, 1, 1};
    if (!t->conv) return true;
    const int64_t *dilations = attr_ints(t->conv, "dilations", &count);
    const Dim *const *pads = attr_dims(t->conv, "pads", &count);
    for (int i = 0; i < spatial; i++) {
        if (!dim_is_const(pads[i], &taps[i].first) || !dim_is_const(pads[spatial + i], &after[i])) return false;
        taps[i].first = -taps[i].first;
        taps[i].count = t->conv->inputs[1]->constant->dims[2 + i];
        taps[i].step = taps[i].count > 1 ? dilations[i] : 1;
    }
    return true;
}

static int64_t end_of(const Taps *t) { return t->first + (t->count - 1) * t->step; }

/* The least line of taps that has both; false: there is none. */
static bool unite(const Taps *a, const Taps *b, Taps *out) {
    if (a->count > 1 && b->count > 1 && a->step != b->step) return false;
    out->step = a->count > 1 ? a->step : b->step;
    out->first = a->first < b->first ? a->first : b->first;
    if ((a->first - b->first) % out->step) return false;
    const int64_t end = end_of(a) > end_of(b) ? end_of(a) : end_of(b);
    out->count = (end - out->first) / out->step + 1;
    return true;
}

/* The kernel of a term that is no convolution: a group's channel by itself. */
static Value *channel_kernel(Lowering *l, const Term *t, const Value *like) {
    int64_t dims[MAX_RANK];
    for (int i = 0; i < like->rank; i++) dims[i] = i < 2 ? like->constant->dims[i] : 1;
    Tensor *w = tensor_new(l->arena, DT_F32, like->rank, dims);
    float *to = w->data;
    for (int64_t c = 0; c < dims[0]; c++) to[c * dims[1] + c % dims[1]] = 1;
    graph_note_made(l->graph, w);
    if (!t->factor) return constant(l, w);
    const Dim *shape[MAX_RANK];
    for (int i = 0; i < like->rank; i++) shape[i] = dim_const(l->dims, i ? 1 : dims[0]);
    Value *ones = constant(l, w), *factors = channel_vector(l, t->factor, t->x);
    return mul(l, ones, reshape(l, factors, shape, like->rank));
}

static Value *kernel_of(Lowering *l, const Term *t, const Value *like, const Taps *taps, const Taps *whole) {
    Value *w = t->conv ? t->conv->inputs[1] : channel_kernel(l, t, like);
    const Dim *before[MAX_RANK], *after[MAX_RANK];
    for (int i = 0; i < w->rank; i++) {
        const int64_t first = i < 2 ? 0 : (taps[i - 2].first - whole[i - 2].first) / whole[i - 2].step;
        before[i] = dim_const(l->dims, first);
        after[i] = dim_const(l->dims, i < 2 ? 0 : whole[i - 2].count - taps[i - 2].count - first);
    }
    return pad(l, w, before, after, scalar(l, DT_F32, 0));
}

/* a + b or a - b; NULL is nothing. */
static Value *sum_of(Lowering *l, Value *a, Value *b, bool negative) {
    if (b && negative) b = unary(l, PRIM_NEG, b);
    return !a ? b : !b ? a : add(l, a, b);
}

/* conv by `weight`, with what is left of a's attributes. */
static Node *new_convolution(Lowering *l, Node *sum, const Term *a, Value *weight, const Taps *whole,
                             const int64_t *after) {
    const int spatial = weight->rank - 2;
    int64_t dilations[MOST_SPATIAL];
    const Dim *pads[2 * MOST_SPATIAL];
    for (int i = 0; i < spatial; i++) {
        dilations[i] = whole[i].step;
        pads[i] = dim_const(l->dims, -whole[i].first);
        pads[spatial + i] = dim_const(l->dims, after[i]);
    }
    Node *conv = graph_add_node(l->graph, sum, NODE_ANCHOR, "conv", (Value *[]){a->x, weight}, 2);
    for (int i = 0; i < a->conv->attrs.count; i++) node_set_attr(conv, a->conv->attrs.items[i]);
    node_set_ints(conv, "dilations", dilations, spatial);
    node_set_dims(conv, "pads", pads, 2 * spatial);
    conv->origin = a->conv->origin;
    node_follow_rules(conv, a->conv);
    node_add_origin(conv, sum->origin);
    const Value *y = sum->outputs[0];
    node_add_output(conv, NULL, DT_F32, y->rank, y->dims);
    return conv;
}

static void remove_term(Graph *graph, const Term *t) {
    for (int i = 0; i < t->node_count; i++) graph_remove_node(graph, t->nodes[i]);
}

Status join_sum(Lowering *l, Node *sum, Node **out_conv) {
    Value *y = sum->outputs[0];
    *out_conv = NULL;
    if (y->dtype != DT_F32 || y->rank < 3 || sum->inputs[0] == sum->inputs[1]) return NULL;
    Term a = term_of(sum->inputs[0], sum), b = term_of(sum->inputs[1], sum);
    const Term *of = a.conv ? &a : &b, *other = of == &a ? &b : &a;
    if (!go_together(of, other)) return NULL;
    Value *w = of->conv->inputs[1];
    const int spatial = w->rank - 2;
    Taps mine[MOST_SPATIAL], its[MOST_SPATIAL], whole[MOST_SPATIAL];
    int64_t after[MOST_SPATIAL], unused[MOST_SPATIAL], taps = 1, my_taps = 1, its_taps = other->conv != NULL;
    if (!taps_of(of, spatial, mine, after) || !taps_of(other, spatial, its, unused)) return NULL;
    for (int i = 0; i < spatial; i++) {
        if (!unite(&mine[i], &its[i], &whole[i])) return NULL;
        after[i] += end_of(&whole[i]) - end_of(&mine[i]);
        if (whole[i].first > 0 || after[i] < 0) return NULL;
        taps *= whole[i].count, my_taps *= mine[i].count, its_taps *= its[i].count;
    }
    if (taps > my_taps + its_taps) return NULL;
    Value *kernel_a = kernel_of(l, &a, w, of == &a ? mine : its, whole),
          *kernel_b = kernel_of(l, &b, w, of == &a ? its : mine, whole);
    Value *bias_a = a.bias ? channel_vector(l, a.bias, y) : NULL,
          *bias_b = b.bias ? channel_vector(l, b.bias, y) : NULL;
    if (l->error) return l->error;
    const bool negative = sum->prim == PRIM_SUB;
    Value *weight = sum_of(l, kernel_a, kernel_b, negative), *bias = sum_of(l, bias_a, bias_b, negative);
    if (l->error) return l->error;
    if (!weight->constant || (bias && !bias->constant)) return NULL;
    Node *conv = new_convolution(l, sum, of, weight, whole, after);
    Value *result = conv->outputs[0];
    if (bias) result = add(l, result, bias);
    if (l->error) return l->error;
    value_replace(l->graph, y, result);
    graph_remove_node(l->graph, sum);
    remove_term(l->graph, &a);
    remove_term(l->graph, &b);
    *out_conv = conv;
    return NULL;
}
