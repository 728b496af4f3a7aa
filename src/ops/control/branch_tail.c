/* SPDX-License-Identifier: Apache-2.0 */
/* The nodes behind an If, as a tail of both its branches: each is then lowered for the ranks that it has there. */
#include "ops/control/branch_tail.h"

#include "lowering/subgraph.h"

typedef struct Follower {
    Node *node;
    int distance; /* nodes from an open output, itself included; FAR where only other outputs or what is outside feed it */
    bool inside; /* of the tail */
} Follower;

enum { FAR = INT32_MAX };

typedef struct Tail {
    Lowering *l;
    const Node *n;
    const bool *open;        /* [n->output_count] */
    VEC(Follower) followers; /* what n feeds, in the order of the graph */
    Map numbers;             /* Node -> 1 + its number among them */
    VEC(Value *) captured;   /* by the tail: values of the graph that n does not feed */
    VEC(Value *) kept;       /* outputs of n and of the tail that are read outside */
} Tail;

static Follower *follower_of(const Tail *t, const Node *node) {
    intptr_t number = node ? (intptr_t)map_get_id(&t->numbers, MAP_POINTER_KEY(node)) : 0;
    return number ? &t->followers.items[number - 1] : NULL;
}

static bool is_inside(const Tail *t, const Node *node) {
    const Follower *follower = follower_of(t, node);
    return follower && follower->inside;
}

/* 0: n does not feed the node. */
static int distance_of(const Tail *t, const Node *node) {
    int least = 0;
    for (int i = 0; i < node->input_count; i++) {
        const Value *in = node->inputs[i];
        const Follower *before = in ? follower_of(t, in->producer) : NULL;
        int distance = 0;
        if (before) distance = before->inside ? before->distance + 1 : FAR;
        if (in && in->producer == t->n) distance = t->open[in->output_index] ? 1 : FAR;
        if (distance && (!least || distance < least)) least = distance;
    }
    return least;
}

static void find_followers(Tail *t, int reach) {
    for (Node *node = t->n->next; node; node = node->next) {
        int distance = distance_of(t, node);
        if (!distance) continue;
        Follower made = {node, distance, distance <= reach};
        VEC_PUSH(t->l->arena, t->followers, made);
        map_set_id(&t->numbers, MAP_POINTER_KEY(node), (void *)(intptr_t)t->followers.count);
    }
}

/* What lies between n and the tail is of the tail, or the two would wait for each other. */
static void close_gaps(Tail *t) {
    for (int i = t->followers.count - 1; i >= 0; i--) {
        Follower *follower = &t->followers.items[i];
        for (int o = 0; o < follower->node->output_count; o++) {
            const Value *value = follower->node->outputs[o];
            for (int u = 0; value && u < value->uses.count; u++)
                follower->inside |= is_inside(t, value->uses.items[u].node);
        }
    }
}

static bool is_read_outside(const Tail *t, const Value *value) {
    for (int u = 0; u < value->uses.count; u++)
        if (!is_inside(t, value->uses.items[u].node)) return true;
    return value_is_output(value);
}

static void find_edges(Tail *t) {
    Map seen = map_make(t->l->arena);
    for (int o = 0; o < t->n->output_count; o++)
        if (t->n->outputs[o] && is_read_outside(t, t->n->outputs[o])) VEC_PUSH(t->l->arena, t->kept, t->n->outputs[o]);
    for (int f = 0; f < t->followers.count; f++) {
        const Follower *follower = &t->followers.items[f];
        if (!follower->inside) continue;
        for (int i = 0; i < follower->node->input_count; i++) {
            Value *in = follower->node->inputs[i];
            bool made = !in || in->producer == t->n || is_inside(t, in->producer);
            if (made || map_get_id(&seen, MAP_POINTER_KEY(in))) continue;
            map_set_id(&seen, MAP_POINTER_KEY(in), in);
            VEC_PUSH(t->l->arena, t->captured, in);
        }
        for (int o = 0; o < follower->node->output_count; o++) {
            Value *made = follower->node->outputs[o];
            if (made && is_read_outside(t, made)) VEC_PUSH(t->l->arena, t->kept, made);
        }
    }
}

static void extend_branch(const Tail *t, Graph *branch) {
    Map values = map_make(t->l->arena);
    for (int o = 0; o < t->n->output_count; o++)
        if (t->n->outputs[o]) map_set_id(&values, MAP_POINTER_KEY(t->n->outputs[o]), branch->outputs.items[o]);
    for (int i = 0; i < t->captured.count; i++) {
        Value *outer = t->captured.items[i];
        map_set_id(&values, MAP_POINTER_KEY(outer), graph_add_input(branch, outer->name, DT_NONE, -1, NULL));
    }
    for (int f = 0; f < t->followers.count; f++)
        if (t->followers.items[f].inside) copy_node_to(branch, NULL, t->followers.items[f].node, &values);
    graph_truncate_outputs(branch, 0);
    for (int i = 0; i < t->kept.count; i++)
        graph_add_output(branch, map_get_id(&values, MAP_POINTER_KEY(t->kept.items[i])));
}

/* At the end of the graph. */
static Node *add_tailed(const Tail *t, Graph *const *branches, int reach) {
    const Node *n = t->n;
    int count = n->input_count + t->captured.count;
    Value **inputs = ARENA_ARRAY(t->l->arena, Value *, count);
    for (int i = 0; i < n->input_count; i++) inputs[i] = n->inputs[i];
    for (int i = 0; i < t->captured.count; i++) inputs[n->input_count + i] = t->captured.items[i];
    Node *made = graph_add_node(t->l->graph, NULL, NODE_ONNX, n->op, inputs, count);
    made->domain = n->domain;
    made->opset = n->opset;
    made->captures = n->captures + t->captured.count;
    made->origin = n->origin;
    node_follow_rules(made, n);
    node_set_int(made, "tail", reach);
    for (int b = 0; b < 2; b++) {
        extend_branch(t, branches[b]);
        node_add_subgraph(made, branches[b]);
    }
    return made;
}

void replace_by_tailed(Lowering *l, const Node *n, Graph *const *branches, const bool *open, int reach) {
    Tail t = {.l = l, .n = n, .open = open, .numbers = map_make(l->arena)};
    find_followers(&t, reach);
    close_gaps(&t);
    find_edges(&t);
    Node *made = add_tailed(&t, branches, reach);
    for (int i = 0; i < t.kept.count; i++)
        value_replace(l->graph, t.kept.items[i], node_add_output(made, NULL, DT_NONE, -1, NULL));
    for (int f = t.followers.count - 1; f >= 0; f--)
        if (t.followers.items[f].inside) graph_remove_node(l->graph, t.followers.items[f].node);
    for (int f = 0; f < t.followers.count; f++)
        if (!t.followers.items[f].inside) graph_move_before(l->graph, t.followers.items[f].node, NULL);
}
