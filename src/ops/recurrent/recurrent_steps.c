/* SPDX-License-Identifier: Apache-2.0 */
/* The recurrence as a Scan a direction, whose body is the formulas of the standard (ONNX RNN-14, GRU-14, LSTM-14) in primitives. */
#include "ops/recurrent/recurrent_steps.h"

#include <math.h>

#include "lowering/sizes.h"
#include "lowering/subgraph.h"
#include "ops/math/activation.h"

/* A direction's body under construction. */
typedef struct Step {
    const RecurrentSteps *r;
    const Function *functions;
    ScanBody scan;
    Value *recurrent; /* weights, [hidden, gates * hidden] */
    Value *peepholes; /* [3 * hidden]; NULL: none */
    Value *bias;      /* [hidden]; NULL: none */
} Step;

static Value *unit(Step *s, Value *x, int axis, int index) {
    const Dim *h = size_const(&s->scan.in, s->r->hidden);
    return slice_axis(&s->scan.in, x, axis, size_const(&s->scan.in, index * s->r->hidden), h);
}

/* Function `index` of the direction, of what is clipped before. */
static Value *function(Step *s, int index, Value *x) {
    const Function *f = &s->functions[index];
    return activation(&s->scan.in, recurrent_activation_name(f->kind), x, (double[]){f->alpha, f->beta});
}

static Value *gate(Step *s, int index, Value *x) {
    double limit = s->r->limit;
    if (isfinite(limit) && x) x = clip(&s->scan.in, x, like(&s->scan.in, x, -limit), like(&s->scan.in, x, limit));
    return function(s, index, x);
}

static Value *one_less(Step *s, Value *x) { return x ? sub(&s->scan.in, like(&s->scan.in, x, 1), x) : NULL; }

/* x + P * cell for one of the gates. */
static Value *peeped(Step *s, Value *x, int index, Value *cell) {
    if (!s->peepholes) return x;
    return add(&s->scan.in, x, mul(&s->scan.in, unit(s, s->peepholes, 0, index), cell));
}

static Value *lstm_step(Step *s, Value *input, Value *h, Value **cell) {
    Lowering *l = &s->scan.in;
    Value *gates = add(l, input, matmul(l, h, s->recurrent));
    Value *i = gate(s, 0, peeped(s, unit(s, gates, 1, 0), 0, *cell));
    Value *f = s->r->coupled ? one_less(s, i) : gate(s, 0, peeped(s, unit(s, gates, 1, 2), 2, *cell));
    *cell = add(l, mul(l, f, *cell), mul(l, i, gate(s, 1, unit(s, gates, 1, 3))));
    Value *o = gate(s, 0, peeped(s, unit(s, gates, 1, 1), 1, *cell));
    return mul(l, o, function(s, 2, *cell));
}

static Value *gru_step(Step *s, Value *input, Value *h) {
    Lowering *l = &s->scan.in;
    const Dim *two = size_const(l, 2 * s->r->hidden), *none = size_const(l, 0);
    Value *first = slice_axis(l, s->recurrent, 1, none, two), *third = unit(s, s->recurrent, 1, 2), *recurrent;
    Value *gates = add(l, slice_axis(l, input, 1, none, two), matmul(l, h, first));
    Value *z = gate(s, 0, unit(s, gates, 1, 0)), *r = gate(s, 0, unit(s, gates, 1, 1));
    if (s->r->linear_before_reset) {
        recurrent = matmul(l, h, third);
        if (s->bias) recurrent = add(l, recurrent, s->bias);
        recurrent = mul(l, r, recurrent);
    } else
        recurrent = matmul(l, mul(l, r, h), third);
    Value *x = gate(s, 1, add(l, unit(s, input, 1, 2), recurrent));
    return add(l, mul(l, one_less(s, z), x), mul(l, z, h));
}

static Value *new_state(Step *s, Value *input, Value *h, Value **cell) {
    Lowering *l = &s->scan.in;
    switch (s->r->cell) {
    case CELL_LSTM: return lstm_step(s, input, h, cell);
    case CELL_GRU: return gru_step(s, input, h);
    default: return gate(s, 0, add(l, input, matmul(l, h, s->recurrent)));
    }
}

/* [directions, ...] -> this direction's, of that shape. */
static Value *of_direction(Lowering *l, Value *x, int direction, const Dim *const *dims, int rank) {
    if (!x) return NULL;
    return reshape(l, slice_axis(l, x, 0, size_const(l, direction), size_const(l, 1)), dims, rank);
}

static Value *initial(Lowering *l, const RecurrentSteps *r, Value *given, int direction) {
    const Dim *dims[] = {r->projection->dims[1], size_const(l, r->hidden)};
    if (given) return of_direction(l, given, direction, dims, 2);
    return expand(l, like(l, r->projection, 0), dims, 2);
}

/* Where the row's sequence is over its state stays, and its result is 0. */
static Value *kept(Step *s, Value *goes_on, Value *after, Value *before) {
    return goes_on ? where(&s->scan.in, goes_on, after, before) : after;
}

typedef struct Direction {
    Value *y, *y_h, *y_c; /* [time, batch, hidden], [batch, hidden] */
} Direction;

static Direction scan_of(Lowering *l, const Node *n, const RecurrentSteps *r, int direction) {
    int64_t gates = recurrent_cells[r->cell].gates;
    const Dim *h = size_const(l, r->hidden), *g = size_const(l, gates * r->hidden), *batch = r->projection->dims[1];
    const Dim *column[] = {batch, size_const(l, 1)}, *three = size_const(l, 3 * r->hidden);
    bool has_cell = r->cell == CELL_LSTM;
    Value *h0 = initial(l, r, r->h0, direction), *c0 = has_cell ? initial(l, r, r->c0, direction) : NULL;
    Value *projection = slice_axis(l, r->projection, 2, size_const(l, direction * gates * r->hidden), g);
    Value *times = r->lengths ? iota(l, r->projection->dims, 1, 0, DT_I64) : NULL;
    Value *recurrent = of_direction(l, r->weights, direction, (const Dim *const[]){g, h}, 2);
    Value *peepholes = of_direction(l, r->peepholes, direction, &three, 1);
    Value *bias = of_direction(l, r->bias, direction, &h, 1);
    Value *lengths = r->lengths ? reshape(l, cast(l, r->lengths, DT_I64), column, 2) : NULL, *made[3];
    recurrent = swap_last(l, recurrent);
    if (l->error) return (Direction){NULL};

    Step s = {.r = r, .functions = r->functions + direction * recurrent_cells[r->cell].functions};
    s.scan = scan_begin(l, "step");
    Value *before = scan_state(&s.scan, h0), *cell_before = scan_state(&s.scan, c0);
    Value *input = scan_element(&s.scan, projection), *time = scan_element(&s.scan, times);
    s.recurrent = scan_captured(&s.scan, recurrent);
    s.peepholes = scan_captured(&s.scan, peepholes);
    s.bias = scan_captured(&s.scan, bias);
    Value *ends = scan_captured(&s.scan, lengths), *cell = cell_before;
    Value *goes_on = time ? binary(&s.scan.in, PRIM_LT, time, ends) : NULL;
    Value *after = new_state(&s, input, before, &cell), *results[3];
    int count = 0;
    results[count++] = kept(&s, goes_on, after, before);
    if (has_cell) results[count++] = kept(&s, goes_on, cell, cell_before);
    results[count++] = goes_on && after ? kept(&s, goes_on, after, like(&s.scan.in, after, 0)) : after;
    scan_end(l, n, &s.scan, r->projection->dims[0], direction == 1 || r->reverse_first, results, count, made);
    if (l->error) return (Direction){NULL};
    return (Direction){.y_h = made[0], .y_c = has_cell ? made[1] : NULL, .y = made[count - 1]};
}

void recurrent_as_scans(Lowering *l, const Node *n, const RecurrentSteps *r, Value **out_results) {
    Value *parts[3][2];
    int directions = r->directions;
    for (int d = 0; d < directions; d++) {
        Direction one = scan_of(l, n, r, d);
        if (l->error) return;
        parts[0][d] = unsqueeze(l, one.y, (int[]){1}, 1);
        parts[1][d] = unsqueeze(l, one.y_h, (int[]){0}, 1);
        parts[2][d] = one.y_c ? unsqueeze(l, one.y_c, (int[]){0}, 1) : NULL;
    }
    for (int i = 0; i < (r->cell == CELL_LSTM ? 3 : 2); i++)
        out_results[i] = concat(l, parts[i], directions, i == 0 ? 1 : 0);
}
