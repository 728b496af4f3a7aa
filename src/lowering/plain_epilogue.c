/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the body of an anchor's epilogue as additions and bounds. */
#include "lowering/plain_epilogue.h"

#include <math.h>
#include "graph/broadcast.h"

/* The operand of a binary node that is not x; NULL when both are, or neither. */
static const Value *other_operand(const Node *node, const Value *x) {
    if (node->input_count != 2 || (node->inputs[0] == x) == (node->inputs[1] == x)) return NULL;
    return node->inputs[0] == x ? node->inputs[1] : node->inputs[0];
}

/* The anchor's input that is the body's value; -1: none is. */
static int input_of(const Graph *body, const Value *v) {
    for (int i = 1; i < body->inputs.count; i++)
        if (body->inputs.items[i] == v) return i + 1;
    return -1;
}

static bool take_sum(const Graph *body, const Value *raw, const Value *other, PlainEpilogue *p) {
    int input = input_of(body, other);
    if (input < 0 || p->clamp) return false;
    bool row = broadcast_is_row(other) && broadcast_keeps_last(other);
    int *which = row && p->bias < 0 ? &p->bias : value_same_shape(other, raw) && p->addend < 0 ? &p->addend : NULL;
    if (which) *which = input;
    return which != NULL;
}

static bool take_bound(const Value *other, bool lower, PlainEpilogue *p) {
    if (!other->constant || tensor_count(other->constant) != 1) return false;
    double bound = dtype_load_double(other->dtype, other->constant->data, 0);
    if (isnan(bound) || (lower ? p->low != -(double)INFINITY : p->high != (double)INFINITY)) return false;
    *(lower ? &p->low : &p->high) = bound;
    p->clamp = true;
    return p->low <= p->high;
}

bool plain_epilogue_of(const Node *anchor, PlainEpilogue *out) {
    *out = (PlainEpilogue){.bias = -1, .addend = -1, .low = -(double)INFINITY, .high = (double)INFINITY};
    if (!anchor->subgraph_count) return true;
    const Graph *body = anchor->subgraphs[0];
    const Value *raw = body->inputs.items[0], *v = raw;
    if (body->outputs.count != 1) return false;
    FOR_EACH_NODE(node, body) {
        const Value *other = node->kind == NODE_PRIM ? other_operand(node, v) : NULL;
        if (!other || other->dtype != raw->dtype) return false;
        bool taken = node->prim == PRIM_ADD ? take_sum(body, raw, other, out)
                     : (node->prim == PRIM_MAX || node->prim == PRIM_MIN) && dtype_is_float(raw->dtype)
                         ? take_bound(other, node->prim == PRIM_MAX, out)
                         : false;
        if (!taken) return false;
        v = node->outputs[0];
    }
    return body->outputs.items[0] == v;
}
