/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the body of an anchor's epilogue as additions, bounds and gates. */
#include "lowering/anchor/plain_epilogue.h"

#include <math.h>
#include "base/math/divide.h"
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

static bool take_sum(const Graph *body, const Value *raw, const Value *other, bool takes_addend, PlainEpilogue *p) {
    int input = input_of(body, other);
    if (input < 0 || p->bounds.clamp) return false;
    bool row = broadcast_is_row(other) && broadcast_keeps_last(other);
    bool whole = takes_addend && value_same_shape(other, raw);
    int *which = row && p->bias < 0 ? &p->bias : whole && p->addend < 0 ? &p->addend : NULL;
    if (which) *which = input;
    return which != NULL;
}

/* A p and its 2^-40th part are p, and where p is infinite or NaN that is, too. */
static const Bounds no_bounds = {.low = -(double)INFINITY,
                                 .high = (double)INFINITY,
                                 .scale = 1,
                                 .inverse = 1,
                                 .rest = 0x1p-40,
                                 .factor = 1,
                                 .addend = -0.0};

static bool take_scalar(const Value *other, double *out) { return value_scalar(other, out) && !isnan(*out); }

static bool take_bound(const Value *other, bool lower, Bounds *b) {
    double bound;
    if (!take_scalar(other, &bound) || (lower ? b->low != -(double)INFINITY : b->high != (double)INFINITY))
        return false;
    *(lower ? &b->low : &b->high) = bound;
    b->clamp = true;
    return b->low <= b->high;
}

/* What alone is made of v, by this primitive and a scalar, v being the dividend of a quotient; NULL: that is not what is. */
static const Node *take_step(const Value *v, Prim prim, double *out_number) {
    const Node *node = value_only_user(v);
    const Value *other = node && node->kind == NODE_PRIM && node->prim == prim ? other_operand(node, v) : NULL;
    double number;
    if (!other || other->dtype != v->dtype || (prim == PRIM_DIV && node->inputs[0] != v)) return NULL;
    if (!take_scalar(other, &number)) return NULL;
    *out_number = number;
    return node;
}

/* The value up to which a gate's product is divided, multiplied and added to, in this order. */
static const Value *take_end(const Value *product, Bounds *b) {
    const Value *v = product;
    double divisor;
    float inverse, rest;
    const Node *node = take_step(v, PRIM_DIV, &divisor);
    if (node && v->dtype == DT_F32 && inverse_in_parts((float)divisor, &inverse, &rest)) {
        b->inverse = (double)inverse, b->rest = (double)rest;
        v = node->outputs[0];
    }
    if ((node = take_step(v, PRIM_MUL, &b->factor))) v = node->outputs[0];
    if ((node = take_step(v, PRIM_ADD, &b->addend))) v = node->outputs[0];
    b->then = v != product;
    return v;
}

/* The value that `v` and what is made of it alone, by one product, one sum and bounds in this order, are multiplied to; NULL:
 * that is not what its two uses are. */
static const Value *take_gate(const Value *v, Bounds *b) {
    *b = no_bounds;
    if (v->first_output || v->uses.count != 2 || !dtype_is_float(v->dtype)) return NULL;
    for (int i = 0; i < 2; i++) {
        const Value *gate = v;
        bool scaled = false, shifted = false;
        Bounds found = no_bounds;
        for (const Node *node = v->uses.items[i].node; node; node = value_only_user(gate)) {
            const Value *other = node->kind == NODE_PRIM ? other_operand(node, gate) : NULL;
            if (!other || other->dtype != v->dtype) break;
            if (other == v && gate != v && node->prim == PRIM_MUL && found.clamp) {
                found.gate = true;
                *b = found;
                return take_end(node->outputs[0], b);
            }
            bool taken = false;
            if (node->prim == PRIM_MUL && !scaled && !shifted && !found.clamp)
                taken = scaled = take_scalar(other, &found.scale);
            else if (node->prim == PRIM_ADD && !shifted && !found.clamp)
                taken = shifted = take_scalar(other, &found.shift);
            else if (node->prim == PRIM_MAX || node->prim == PRIM_MIN)
                taken = take_bound(other, node->prim == PRIM_MAX, &found);
            if (!taken) break;
            gate = node->outputs[0];
        }
    }
    return NULL;
}

/* Between bf16 and f32, without rounding: bf16 is computed in f32. */
static bool is_no_step(const Node *node) {
    if (node->kind != NODE_PRIM || node->prim != PRIM_CAST) return false;
    DType from = node->inputs[0]->dtype, to = node->outputs[0]->dtype;
    return (from == DT_BF16 && to == DT_F32) || (from == DT_F32 && to == DT_BF16 && attr_int(node, "loose", 0));
}

/* The value up to which sums and bounds go. */
static const Value *take_chain(const Graph *body, int forms, PlainEpilogue *out) {
    const Value *raw = body->inputs.items[0], *v = raw;
    for (const Node *node; (node = value_only_user(v)); v = node->outputs[0]) {
        if ((forms & PLAIN_OF_BF16) && is_no_step(node)) continue;
        const Value *other = node->kind == NODE_PRIM ? other_operand(node, v) : NULL;
        PlainEpilogue longer = *out;
        if (!other || other->dtype != v->dtype) break;
        bool bound = (node->prim == PRIM_MAX || node->prim == PRIM_MIN) && dtype_is_float(raw->dtype);
        if (node->prim == PRIM_ADD ? !take_sum(body, raw, other, forms & PLAIN_ADDEND, &longer)
                                   : !bound || !take_bound(other, node->prim == PRIM_MAX, &longer.bounds))
            break;
        *out = longer;
    }
    return v;
}

void plain_epilogue_of(const Node *anchor, int forms, PlainEpilogue *out) {
    *out = (PlainEpilogue){.whole = true, .bias = -1, .addend = -1, .bounds = no_bounds};
    if (!anchor->subgraph_count) return;
    const Graph *body = anchor->subgraphs[0];
    const Value *result = body->outputs.count == 1 ? body->outputs.items[0] : NULL;
    Bounds gate;
    out->end = forms ? take_chain(body, forms, out) : body->inputs.items[0];
    const Value *gated = (forms & PLAIN_GATE) && !out->bounds.clamp ? take_gate(out->end, &gate) : NULL;
    if (gated) out->bounds = gate, out->end = gated;
    out->whole = result == out->end;
    if ((forms & PLAIN_OF_BF16) && out->whole)
        out->whole = result->dtype == DT_BF16 && (out->addend < 0 || anchor->inputs[out->addend]->dtype == DT_BF16);
}
