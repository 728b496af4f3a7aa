/* SPDX-License-Identifier: Apache-2.0 */
/* How gradients meet at a value: un-broadcasting and adding up. */
#include "lowering/gradient.h"

#include <string.h>
#include "lowering/item_type.h"
#include "lowering/sizes.h"

bool is_trained(const Graph *graph) {
    FOR_EACH_NODE(node, graph) {
        if (node->domain && strcmp(node->domain, TRAINING_DOMAIN) == 0) return true;
        for (int i = 0; i < node->subgraph_count; i++)
            if (is_trained(node->subgraphs[i])) return true;
    }
    return false;
}

bool lowers_trained(const Lowering *l) {
    const Graph *outermost = l->graph;
    while (outermost->parent) outermost = outermost->parent;
    return is_trained(outermost);
}

Value *full_like(Lowering *l, const Value *x, double number) {
    if (!present(l, (Value *const *)&x, 1)) return NULL;
    return expand(l, like(l, x, number), x->dims, x->rank);
}

Value *result_like(Lowering *l, Node *host, const Value *x) {
    ItemType type = item_type_of(x);
    return x->kind == VALUE_TENSOR ? host_result_like(l, host, x) : item_result(l, host, &type);
}

Node *sequence_step(Graph *graph, Node *before, const char *op, Value *const *inputs, int count) {
    Node *node = graph_add_node(graph, before, NODE_HOST, op, inputs, count);
    node->host = ops_host_named(op);
    node->domain = "";
    return node;
}

static Node *step_backwards(Lowering *l, const char *op, Value *const *inputs, int count) {
    for (int i = 0; i < count; i++)
        if (!inputs[i]) return NULL;
    if (l->error) return NULL;
    Node *node = sequence_step(l->graph, builder_place(l), op, inputs, count);
    if (l->node) node->origin = l->node->origin;
    node->backward = l->elsewhere;
    return node;
}

Value *backward_step(Lowering *l, const char *op, const Value *x, Value *const *inputs, int count) {
    Node *node = step_backwards(l, op, inputs, count);
    return node ? result_like(l, node, x) : NULL;
}

Value *backward_step_of(Lowering *l, const char *op, DType dtype, Value *const *inputs, int count) {
    Node *node = step_backwards(l, op, inputs, count);
    return node ? host_result(l, node, dtype, 0, NULL) : NULL;
}

static Value *length_of(Lowering *l, const Value *sequence) {
    return backward_step_of(l, "SequenceLength", DT_I64, (Value *const[]){(Value *)sequence}, 1);
}

Value *zeros_like(Lowering *l, const Value *x) {
    if (x->kind == VALUE_TENSOR) return full_like(l, x, 0);
    if (value_kind_is_optional(x->kind)) return backward_step(l, "Optional", x, NULL, 0);
    Value *length = length_of(l, x);
    return backward_step(l, "SequenceZeros", x, &length, 1);
}

Value *gradient_as(Lowering *l, Value *gradient, const Value *x) {
    if (!gradient || value_kind_is_optional(gradient->kind) == value_kind_is_optional(x->kind)) return gradient;
    if (value_kind_is_optional(x->kind)) return backward_step(l, "Optional", x, &gradient, 1);
    if (x->kind == VALUE_TENSOR && !present(l, (Value *const *)&x, 1)) return NULL;
    Value *sizes = x->kind == VALUE_TENSOR ? dims_value(l, (const Dim *const *)x->dims, x->rank) : length_of(l, x);
    return backward_step(l, "OptionalElementOrZeros", x, (Value *const[]){gradient, sizes}, 2);
}

Node *backward_host(Backward *w, const Node *n, const char *op, HostFn host, Value *const *inputs, int count) {
    Node *node = host_node(w->l, n, host, inputs, count);
    if (node) node->op = op;
    return node;
}

Value *places_of(Lowering *l, const Value *x) {
    const Dim *count = value_elements(l->graph, x);
    return reshape(l, iota(l, &count, 1, 0, DT_I64), x->dims, x->rank);
}

Value *added_at(Lowering *l, const Value *x, Value *places, Value *updates) {
    if (!present(l, &places, 1) || !present(l, &updates, 1)) return NULL;
    const Dim *count = value_elements(l->graph, x), *tuples[] = {value_elements(l->graph, places), size_const(l, 1)};
    Value *sums = scatter_nd(l, expand(l, like(l, x, 0), &count, 1), reshape(l, places, tuples, 2),
                             reshape(l, updates, tuples, 1), "add");
    return sums ? reshape(l, sums, x->dims, x->rank) : NULL;
}

bool has_dy(const Backward *w, const Node *n, int output) {
    const Value *y = output < n->output_count ? n->outputs[output] : NULL;
    return y && map_get_id(&w->gradients, MAP_POINTER_KEY(y));
}

Value *dy(Backward *w, const Node *n, int output) {
    const Value *y = n->outputs[output];
    Value *gradient = map_get_id(&w->gradients, MAP_POINTER_KEY(y));
    return gradient ? gradient : zeros_like(w->l, y);
}

static bool depends(const Backward *w, const Value *x) { return x && map_get_id(&w->depends, MAP_POINTER_KEY(x)); }

bool wants(const Backward *w, const Node *n, int input) {
    return input < n->input_count && depends(w, n->inputs[input]);
}

Value *sum_to(Lowering *l, Value *g, const Value *x) {
    if (!present(l, &g, 1)) return NULL;
    int axes[MAX_RANK], count = 0, lead = g->rank - x->rank;
    for (int i = 0; i < g->rank; i++) {
        bool repeated = i < lead || (dim_equals(x->dims[i - lead], 1) && !dim_equals(g->dims[i], 1));
        if (repeated) axes[count++] = i;
    }
    if (count) g = reduce(l, PRIM_REDUCE_SUM, g, axes, count, true);
    return g ? reshape(l, g, x->dims, x->rank) : NULL;
}

/* Element i of the axis goes to the last of `size` where that is nearer, so all go to one, or each to its own. */
static Value *sum_axis_if_repeated(Lowering *l, Value *g, int axis, const Dim *size) {
    if (!present(l, &g, 1)) return NULL;
    const Dim *dims[MAX_RANK];
    for (int i = 0; i < g->rank; i++) dims[i] = i == axis ? size : g->dims[i];
    Value *last = dim_scalar(l, size_sub(l, size, size_const(l, 1)));
    Value *place = minimum(l, iota(l, g->dims, g->rank, axis, DT_I64), last);
    return scatter_elements(l, expand(l, like(l, g, 0), dims, g->rank), place, g, axis, "add");
}

Value *sum_if_repeated(Lowering *l, Value *g, const Value *x, int axes) {
    for (int i = 0; g && i < axes; i++) {
        int axis = g->rank - x->rank + i;
        if (x->dims[i] != g->dims[axis] && !dim_equals(x->dims[i], 1)) g = sum_axis_if_repeated(l, g, axis, x->dims[i]);
    }
    return g;
}

/* Whether v is zeros around what it pads along `axis` (-1: along any, which is set), and nowhere else. */
static bool is_piece(const Value *v, int *axis) {
    const Node *n = v->producer;
    double fill;
    if (!n || n->kind != NODE_PRIM || n->prim != PRIM_PAD || !value_scalar(n->inputs[1], &fill) || fill != 0)
        return false;
    int count;
    const Dim *const *before = attr_dims(n, "before", &count), *const *after = attr_dims(n, "after", &count);
    for (int i = 0; i < count; i++) {
        if (dim_equals(before[i], 0) && dim_equals(after[i], 0)) continue;
        if (*axis >= 0 && *axis != i) return false;
        *axis = i;
    }
    return *axis >= 0;
}

/* The parts of what v pads, to out_parts if not NULL; how many. */
static int parts_of(const Value *v, int axis, Value **out_parts) {
    Value *inside = v->producer->inputs[0];
    const Node *n = inside->producer;
    bool joined = n && n->kind == NODE_PRIM && n->prim == PRIM_CONCAT && attr_int(n, "axis", 0) == axis;
    int count = joined ? n->input_count : 1;
    for (int i = 0; out_parts && i < count; i++) out_parts[i] = joined ? n->inputs[i] : inside;
    return count;
}

/* The sum of two pieces, of which the second begins where the first ends, as gradients of a Split's results do: they are moved
 * once, where each would become zeros of the whole size to be added. NULL: they are no such pieces. */
static Value *joined_pieces(Lowering *l, const Value *first, const Value *second) {
    int axis = -1, count;
    if (!is_piece(first, &axis) || !is_piece(second, &axis)) return NULL;
    const Node *a = first->producer, *b = second->producer;
    const Dim *const *a_before = attr_dims(a, "before", &count), *const *b_before = attr_dims(b, "before", &count);
    const Dim *const *b_after = attr_dims(b, "after", &count);
    if (size_add(l, a_before[axis], a->inputs[0]->dims[axis]) != b_before[axis]) return NULL;
    int in_first = parts_of(first, axis, NULL), in_second = parts_of(second, axis, NULL);
    Value **parts = ARENA_ARRAY(l->arena, Value *, in_first + in_second);
    parts_of(first, axis, parts);
    parts_of(second, axis, parts + in_first);
    return pad(l, concat(l, parts, in_first + in_second, axis), a_before, b_after, a->inputs[1]);
}

static Value *sum(Lowering *l, Value *a, Value *b) {
    Value *joined = joined_pieces(l, a, b);
    if (!joined) joined = joined_pieces(l, b, a);
    return joined || l->error ? joined : add(l, a, b);
}

void give_value(Backward *w, Value *value, Value *gradient) {
    Lowering *l = w->l;
    if (!depends(w, value)) return;
    gradient = gradient_as(l, gradient, value);
    if (!gradient) return;
    Value *before = map_get_id(&w->gradients, MAP_POINTER_KEY(value));
    if (value->kind != VALUE_TENSOR) {
        if (before) gradient = backward_step(l, "SequenceSum", value, (Value *const[]){before, gradient}, 2);
        if (gradient) map_set_id(&w->gradients, MAP_POINTER_KEY(value), gradient);
        return;
    }
    if (!present(l, &gradient, 1)) return;
    if (gradient->rank < value->rank) gradient = expand(l, gradient, value->dims, value->rank);
    gradient = cast_like(l, sum_to(l, gradient, value), value);
    if (gradient && !value_same_shape(gradient, value)) gradient = expand(l, gradient, value->dims, value->rank);
    if (before && gradient) gradient = sum(l, before, gradient);
    if (gradient) map_set_id(&w->gradients, MAP_POINTER_KEY(value), gradient);
}

void give(Backward *w, const Node *n, int input, Value *gradient) {
    if (wants(w, n, input)) give_value(w, n->inputs[input], gradient);
}

Value *take_gradient(Backward *w, const Node *n, int input) {
    uint64_t key = MAP_POINTER_KEY(n->inputs[input]);
    Value *gradient = map_get_id(&w->gradients, key);
    map_set_id(&w->gradients, key, NULL);
    return gradient ? gradient : zeros_like(w->l, n->inputs[input]);
}
