/* SPDX-License-Identifier: Apache-2.0 */
/* Moves an anchor's small consumers into it, where the device's library applies them while the result is still in
 * registers: bias, activation, clip, residual.
 *
 * What a region behind the anchor would do anyway costs nothing there, so a chain is folded past the bias only as far
 * as that leaves no work: activations always (they would be a pass of their own over memory, or come free in the
 * region), residuals only when the sum feeds no fusible primitive.
 *
 * In and out: LEVEL_PRIM. */
#include "lowering/anchors.h"
#include "lowering/prune.h"
#include "passes/passes.h"

typedef struct Epilogue {
    VEC(int64_t) kinds;
    VEC(float) alpha, beta;
} Epilogue;

/* One recognised step: the nodes from the anchor's result to `last` compute it. */
typedef struct Match {
    EpilogueKind kind;
    float alpha, beta;
    Value *input; /* bias or residual */
    Node *last;
} Match;

static bool is_prim(const Node *node, Prim prim) { return node && node->kind == NODE_PRIM && node->prim == prim; }

/* The operand of a binary node that is not x; NULL when both are, or neither. */
static Value *other_operand(const Node *node, const Value *x) {
    if (node->inputs[0] == x) return node->inputs[1] == x ? NULL : node->inputs[1];
    return node->inputs[1] == x ? node->inputs[0] : NULL;
}

static bool scalar_operand(const Node *node, const Value *x, double *out_value) {
    const Value *other = other_operand(node, x);
    if (!other || !other->constant || tensor_count(other->constant) != 1) return false;
    *out_value = dtype_load_double(other->dtype, other->constant->data, 0);
    return true;
}

/* The other user of x beside `node`, when there are exactly two uses. */
static Node *second_user(const Value *x, const Node *node) {
    if (x->uses.count != 2 || value_is_output(x)) return NULL;
    return x->uses.items[0].node == node ? x->uses.items[1].node : x->uses.items[0].node;
}

/* max(min(x, high), low) in either order, starting at user; *last is where it ends. */
static bool match_clip(const Value *x, Node *user, double *low, double *high, Node **last) {
    double first, second;
    bool starts_low = is_prim(user, PRIM_MAX);
    if ((!starts_low && !is_prim(user, PRIM_MIN)) || !scalar_operand(user, x, &first)) return false;
    Node *next = value_only_user(user->outputs[0]);
    if (!is_prim(next, starts_low ? PRIM_MIN : PRIM_MAX) || !scalar_operand(next, user->outputs[0], &second))
        return false;
    *low = starts_low ? first : second;
    *high = starts_low ? second : first;
    *last = next;
    return *low <= *high;
}

/* v * c or v / c for a constant scalar c; factor is what v is multiplied by. */
static bool match_factor(const Node *node, const Value *v, double *out_factor) {
    if (!is_prim(node, PRIM_MUL) && !(is_prim(node, PRIM_DIV) && node->inputs[0] == v)) return false;
    if (!scalar_operand(node, v, out_factor)) return false;
    if (node->prim == PRIM_DIV) *out_factor = 1 / *out_factor;
    return true;
}

/* The gate clip(a * x + b, 0, high), starting at user; its last node. */
typedef struct Gate {
    double a, b, high;
    Node *last;
} Gate;

static bool match_gate(const Value *x, Node *user, Gate *gate) {
    double low;
    const Value *v = x;
    *gate = (Gate){.a = 1};
    if (match_factor(user, v, &gate->a)) {
        v = user->outputs[0];
        user = value_only_user(v);
    }
    if (is_prim(user, PRIM_ADD) && scalar_operand(user, v, &gate->b)) {
        v = user->outputs[0];
        user = value_only_user(v);
    }
    if (!user || !match_clip(v, user, &low, &gate->high, &gate->last) || low != 0 || gate->high <= 0) return false;
    return true;
}

/* Takes a factor that follows into the gate; true when the gate then ends at 1, as the hard sigmoid does. */
static bool normalise_gate(Gate *gate, Node **last) {
    double c;
    Node *next = value_only_user((*last)->outputs[0]);
    if (gate->high != 1 && match_factor(next, (*last)->outputs[0], &c)) {
        gate->a *= c, gate->b *= c, gate->high *= c;
        *last = next;
    }
    return gate->high > 1 - 1e-5 && gate->high < 1 + 1e-5;
}

/* x * sigmoid(x), and x * clip(a * x + b, 0, high) * c with high * c = 1, the factor standing before or behind the
 * product. */
static bool match_gated(const Value *x, Match *m) {
    for (int i = 0; i < 2; i++) {
        Node *first = x->uses.items[i].node, *product = second_user(x, first), *last;
        Gate gate = {0};
        if (!is_prim(product, PRIM_MUL)) continue;
        bool swish = is_prim(first, PRIM_SIGMOID);
        if (!swish && !match_gate(x, first, &gate)) continue;
        last = swish ? first : gate.last;
        bool normal = swish || (value_only_user(last->outputs[0]) != product && normalise_gate(&gate, &last));
        if (value_only_user(last->outputs[0]) != product || other_operand(product, x) != last->outputs[0]) continue;
        last = product;
        if (!normal && !normalise_gate(&gate, &last)) continue;
        *m = (Match){.kind = swish ? EPILOGUE_SWISH : EPILOGUE_HARD_SWISH,
                     .alpha = swish ? 1 : (float)gate.a,
                     .beta = (float)gate.b,
                     .last = last};
        return true;
    }
    return false;
}

/* alpha * x + beta with constant scalars, either part of it. */
static bool match_linear(const Value *x, Match *m) {
    double a = 1, b = 0;
    Node *user = value_only_user(x), *last = NULL;
    const Value *v = x;
    if (match_factor(user, v, &a)) {
        last = user;
        v = user->outputs[0];
        user = value_only_user(v);
    }
    if (is_prim(user, PRIM_ADD) && scalar_operand(user, v, &b) && value_same_shape(user->outputs[0], v)) last = user;
    if (!last || !value_same_shape(last->outputs[0], x)) return false;
    *m = (Match){.kind = EPILOGUE_LINEAR, .alpha = (float)a, .beta = (float)b, .last = last};
    return true;
}

static bool match_activation(const Value *x, Match *m) {
    *m = (Match){0};
    if (value_is_output(x)) return false;
    if (x->uses.count == 2) return match_gated(x, m);
    Node *user = value_only_user(x), *last;
    double low, high;
    if (!user || user->kind != NODE_PRIM) return false;
    if (is_prim(user, PRIM_SIGMOID) || is_prim(user, PRIM_TANH)) {
        *m = (Match){.kind = user->prim == PRIM_TANH ? EPILOGUE_TANH : EPILOGUE_SIGMOID, .last = user};
        return true;
    }
    if (match_clip(x, user, &low, &high, &last)) {
        *m = (Match){.kind = EPILOGUE_CLIP, .alpha = (float)low, .beta = (float)high, .last = last};
        return true;
    }
    if (is_prim(user, PRIM_MAX) && scalar_operand(user, x, &low) && low == 0) {
        *m = (Match){.kind = EPILOGUE_RELU, .last = user};
        return true;
    }
    Gate gate;
    if (match_gate(x, user, &gate)) {
        last = gate.last;
        if (normalise_gate(&gate, &last)) {
            *m = (Match){.kind = EPILOGUE_HARD_SIGMOID, .alpha = (float)gate.a, .beta = (float)gate.b, .last = last};
            return true;
        }
    }
    return match_linear(x, m);
}

static bool is_identity(const Node *anchor, const char *name) {
    int count;
    const int64_t *perm = attr_ints(anchor, name, &count);
    for (int i = 0; i < count; i++)
        if (perm[i] != i) return false;
    return true;
}

static bool match_bias(const Value *x, Match *m) {
    Node *user = value_only_user(x);
    if (!is_prim(user, PRIM_ADD) || !value_same_shape(user->outputs[0], x)) return false;
    Value *other = other_operand(user, x);
    if (!other || other->rank != 1 || other->dims[0] != x->dims[x->rank - 1] || (other->producer && !other->constant))
        return false;
    *m = (Match){.kind = EPILOGUE_BIAS, .input = other, .last = user};
    return true;
}

static bool feeds_primitive(const Value *v) {
    for (int i = 0; i < v->uses.count; i++) {
        const Node *n = v->uses.items[i].node;
        if (n->kind == NODE_PRIM && (prim_is_elementwise(n->prim) || prim_info(n->prim)->klass == PRIM_CLASS_REDUCE))
            return true;
    }
    return false;
}

/* The residual must be there before the anchor runs: tag numbers the nodes in their order. */
static bool match_add(const Node *anchor, const Value *x, Match *m) {
    Node *user = value_only_user(x);
    if (!is_prim(user, PRIM_ADD) || !is_identity(anchor, "perm_out")) return false;
    Value *other = other_operand(user, x);
    if (!other || !value_same_shape(other, x)) return false;
    if (other->producer && other->producer->tag >= anchor->tag) return false;
    Match after;
    if (feeds_primitive(user->outputs[0]) && !match_activation(user->outputs[0], &after)) return false;
    *m = (Match){.kind = EPILOGUE_ADD, .input = other, .last = user};
    return true;
}

/* Whether `node` and what is between the anchor and it may be one step with the anchor. The nodes of a match stand
 * behind the anchor, and few lie between. */
static bool within_fence(const Node *anchor, const Node *node, int depth) {
    if (node == anchor) return true;
    if (node->kind != NODE_PRIM || node->tag < anchor->tag) return true; /* an operand, not part of the match */
    if (node->fence != anchor->fence) return false;
    for (int i = 0; depth && i < node->input_count; i++)
        if (node->inputs[i]->producer && !within_fence(anchor, node->inputs[i]->producer, depth - 1)) return false;
    return true;
}

/* Everything from the anchor's result to m->last becomes part of the anchor. */
static void take(Graph *graph, Node *anchor, Epilogue *e, const Match *m) {
    Arena *arena = graph->arena;
    VEC_PUSH(arena, e->kinds, (int64_t)m->kind);
    VEC_PUSH(arena, e->alpha, m->alpha);
    VEC_PUSH(arena, e->beta, m->beta);
    if (m->input) node_append_input(anchor, m->input);
    node_add_origin(anchor, m->last->origin);
    Value *result = m->last->outputs[0];
    Value *y = anchor->outputs[0];
    y->stands_for = NULL;
    value_replace(graph, result, y);
    /* The chain's own uses of y come back when the dead nodes are removed. */
    graph_remove_node(graph, m->last);
}

static bool is_dead(const Node *node) {
    bool dead = node && node->kind == NODE_PRIM;
    for (int o = 0; dead && o < node->output_count; o++) dead = !value_is_read(node->outputs[o]);
    return dead;
}

/* Takes a dead node out, and what is dead without it; each becomes so once, with its last reader. */
static void remove_chain(Graph *graph, Node *from) {
    Arena *scratch = arena_create_inside(graph->arena);
    VEC(Node *) left = {0};
    if (is_dead(from)) VEC_PUSH(scratch, left, from);
    while (left.count) {
        Node *node = left.items[--left.count], **producers = ARENA_ARRAY(scratch, Node *, node->input_count);
        int count = 0;
        for (int i = 0; i < node->input_count; i++) {
            Node *producer = node->inputs[i]->producer;
            bool known = !producer;
            for (int k = 0; k < count; k++) known |= producers[k] == producer;
            if (!known) producers[count++] = producer;
        }
        graph_remove_node(graph, node);
        for (int i = 0; i < count; i++)
            if (is_dead(producers[i])) VEC_PUSH(scratch, left, producers[i]);
    }
    arena_destroy(scratch);
}

static void fuse(Graph *graph, const Policy *policy, Node *anchor) {
    Epilogue e = {0};
    int count;
    const int64_t *kinds = attr_ints(anchor, "epilogue", &count);
    for (int i = 0; i < count; i++) {
        VEC_PUSH(graph->arena, e.kinds, kinds[i]);
        VEC_PUSH(graph->arena, e.alpha, 0);
        VEC_PUSH(graph->arena, e.beta, 0);
    }
    if (count && (count > 1 || kinds[0] != EPILOGUE_BIAS)) return;
    for (int steps = 0; steps < 6; steps++) {
        Value *y = anchor->outputs[0];
        Match m;
        bool found = (!e.kinds.count && match_bias(y, &m)) || match_add(anchor, y, &m) || match_activation(y, &m);
        enum { LONGEST = 6 }; /* nodes of a match, one behind the other */
        if (!found || !(policy->target.epilogue_kinds >> m.kind & 1) || !within_fence(anchor, m.last, LONGEST)) break;
        Node *chain[2] = {m.last->inputs[0]->producer, m.last->input_count > 1 ? m.last->inputs[1]->producer : NULL};
        take(graph, anchor, &e, &m);
        for (int i = 0; i < 2; i++)
            if (chain[i] && chain[i] != anchor && !(i && chain[1] == chain[0])) remove_chain(graph, chain[i]);
    }
    if (e.kinds.count == count) return;
    node_set_ints(anchor, "epilogue", e.kinds.items, e.kinds.count);
    node_set_attr(
        anchor, (Attr){.name = "epilogue_alpha", .kind = ATTR_FLOATS, .count = e.alpha.count, .floats = e.alpha.items});
    node_set_attr(anchor,
                  (Attr){.name = "epilogue_beta", .kind = ATTR_FLOATS, .count = e.beta.count, .floats = e.beta.items});
}

/* Not f64: an epilogue's numbers are f32. */
static bool takes_epilogue(const Node *anchor) {
    DType t = anchor->outputs[0]->dtype;
    return dtype_is_float(t) && t != DT_F64;
}

Status fuse_epilogues(Graph *graph, const Policy *policy) {
    if (!policy->fusion.enable) return NULL;
    uint64_t number = 0;
    FOR_EACH_NODE(node, graph) node->tag = number++;
    for (Node *node = graph->first; node; node = node->next) /* `next` is read after the anchor's consumers are gone */
        if (node->kind == NODE_ANCHOR && takes_epilogue(node)) fuse(graph, policy, node);
    graph_prune(graph);
    return NULL;
}
