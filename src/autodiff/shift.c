/* SPDX-License-Identifier: Apache-2.0 */
/* Softmax, its logarithm and the logarithm of a sum of exponentials subtract the largest element first, so that nothing overflows. What
 * they give does not depend on it, so no gradient flows through it, however an exporter has written them.
 *
 * A value that depends on the maximum m is followed with its degree k: as m grows by c, the value grows by k c (a sum) or
 * becomes exp(k c) times as large (a product). Where all paths come to degree 0, m cancels. */
#include "autodiff/autodiff.h"

enum { MOST_STEPS = 64 }; /* nodes looked at; softmax takes 4 */

typedef struct Degree {
    enum { FREE, SUM, PRODUCT, UNKNOWN } form; /* FREE: does not depend on m */
    int k;
} Degree;

typedef struct Shift {
    const int64_t *axes; /* [axis_count]; m is the same along these */
    int axis_count;
    const Value *values[MOST_STEPS];
    Degree degrees[MOST_STEPS];
    int count;
} Shift;

static Degree degree_of(const Shift *s, const Value *value) {
    for (int i = 0; i < s->count; i++)
        if (s->values[i] == value) return s->degrees[i];
    return (Degree){FREE, 0};
}

static Degree reduced(Degree d) { return d.form != UNKNOWN && d.k == 0 ? (Degree){FREE, 0} : d; }

static Degree of_sum(Degree a, Degree b, int sign) {
    if (a.form == PRODUCT || b.form == PRODUCT) return a.form == b.form && a.k == b.k ? a : (Degree){UNKNOWN, 0};
    return reduced((Degree){SUM, a.k + sign * b.k});
}

static Degree of_product(Degree a, Degree b, int sign) {
    if (a.form == SUM || b.form == SUM) return (Degree){UNKNOWN, 0};
    return reduced((Degree){PRODUCT, a.k + sign * b.k});
}

static bool over_same_axes(const Shift *s, const Node *node) {
    int count;
    const int64_t *axes = attr_ints(node, "axes", &count);
    return count == s->axis_count && memcmp(axes, s->axes, (size_t)count * sizeof *axes) == 0;
}

static bool is_free(const Shift *s, const Node *node) {
    for (int i = 0; i < node->input_count; i++)
        if (node->inputs[i] && degree_of(s, node->inputs[i]).form != FREE) return false;
    return true;
}

static Degree degree_made(const Shift *s, const Node *node) {
    const Degree unknown = {UNKNOWN, 0};
    if (is_free(s, node)) return (Degree){FREE, 0}; /* m has cancelled before */
    if (node->kind != NODE_PRIM) return unknown;
    Degree a = degree_of(s, node->inputs[0]), b = node->input_count > 1 ? degree_of(s, node->inputs[1]) : (Degree){0};
    if (a.form == UNKNOWN || b.form == UNKNOWN) return unknown;
    switch (node->prim) {
    case PRIM_ADD: return of_sum(a, b, 1);
    case PRIM_SUB: return of_sum(a, b, -1);
    case PRIM_NEG: return a.form == SUM ? (Degree){SUM, -a.k} : a;
    case PRIM_MUL: return of_product(a, b, 1);
    case PRIM_DIV: return of_product(a, b, -1);
    case PRIM_RECIPROCAL: return of_product((Degree){FREE, 0}, a, -1);
    case PRIM_EXP: return a.form == SUM ? (Degree){PRODUCT, a.k} : unknown;
    case PRIM_LOG: return a.form == PRODUCT ? (Degree){SUM, a.k} : unknown;
    case PRIM_CAST: return dtype_is_float(node->outputs[0]->dtype) ? a : unknown;
    case PRIM_REDUCE_SUM: return a.form == PRODUCT && over_same_axes(s, node) ? a : unknown;
    default: return unknown;
    }
}

/* Notes a value's degree; false: it had that already. */
static bool set_degree(Shift *s, const Value *value, Degree degree) {
    for (int i = 0; i < s->count; i++) {
        if (s->values[i] != value) continue;
        bool same = s->degrees[i].form == degree.form && s->degrees[i].k == degree.k;
        s->degrees[i] = degree;
        return !same;
    }
    if (degree.form == FREE) return false;
    s->values[s->count] = value;
    s->degrees[s->count++] = degree;
    return true;
}

/* Values are followed again when an argument's degree changes, so that the order does not matter; those of unknown degree are not. */
bool shift_cancels(const Node *maximum, const Value *y) {
    const Value *m = maximum->outputs[0], *open[4 * MOST_STEPS];
    Shift s = {.count = 0};
    s.axes = attr_ints(maximum, "axes", &s.axis_count);
    int open_count = 0, looked = 0;
    set_degree(&s, m, (Degree){SUM, 1});
    open[open_count++] = m;
    while (open_count) {
        const Value *value = open[--open_count];
        for (int i = 0; i < value->uses.count; i++) {
            const Node *user = value->uses.items[i].node;
            if (user->output_count != 1 || ++looked > MOST_STEPS || s.count == MOST_STEPS) return false;
            Degree made = degree_made(&s, user);
            if (set_degree(&s, user->outputs[0], made) && made.form != UNKNOWN) open[open_count++] = user->outputs[0];
        }
    }
    for (int i = 0; i < s.count; i++)
        if (s.degrees[i].form == UNKNOWN || (s.degrees[i].form != FREE && s.values[i] == y)) return false;
    return true;
}
