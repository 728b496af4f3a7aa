/* SPDX-License-Identifier: Apache-2.0 */
/* The recurrence in double precision, a number at a time, with any activation functions. */
#include <math.h>

#include "ops/recurrent/recurrent.h"

double recurrent_apply(const Function *f, double x) {
    switch (f->kind) {
    case ACT_RELU: return x > 0 ? x : x != x ? x : 0;
    case ACT_TANH: return tanh(x);
    case ACT_SIGMOID: return 1 / (1 + exp(-x));
    case ACT_AFFINE: return f->alpha * x + f->beta;
    case ACT_LEAKY_RELU: return x >= 0 ? x : f->alpha * x;
    case ACT_THRESHOLDED_RELU: return x > f->alpha ? x : 0;
    case ACT_SCALED_TANH: return f->alpha * tanh(f->beta * x);
    case ACT_HARD_SIGMOID: return fmin(fmax(f->alpha * x + f->beta, 0), 1);
    case ACT_ELU: return x >= 0 ? x : f->alpha * expm1(x);
    case ACT_SOFTSIGN: return x / (1 + fabs(x));
    case ACT_SOFTPLUS: return fmax(x, 0) + log1p(exp(-fabs(x)));
    case ACT_COUNT: break;
    }
    return x;
}

double *recurrent_doubles(Arena *arena, const Tensor *tensor) {
    if (!tensor) return NULL;
    int64_t count = tensor_count(tensor);
    double *values = ARENA_ARRAY(arena, double, count);
    for (int64_t i = 0; i < count; i++) values[i] = dtype_load_double(tensor->dtype, tensor->data, i);
    return values;
}

typedef struct Plain {
    const Net *net;
    const double *projection, *weights, *h0, *c0, *peepholes, *bias; /* as the tensors; NULL where those are */
    double *gates, *h, *c, *inner;                                   /* [gates * hidden], [hidden], ... */
} Plain;

static double recurrent_dot(const Plain *p, int direction, int gate, int64_t row, const double *h) {
    const Net *net = p->net;
    bool first = gate < net->first_gates;
    int64_t stride = (first ? net->first_gates : net->gates - net->first_gates) * net->units;
    const double *panel =
        p->weights + (direction * net->panels + row / net->units) * net->hidden * net->gates * net->units;
    panel += row % net->units +
             (first ? gate * net->units : (net->first_gates * net->hidden + gate - net->first_gates) * net->units);
    double sum = 0;
    for (int64_t k = 0; k < net->hidden; k++) sum += h[k] * panel[k * stride];
    return sum;
}

static double clipped(const Net *net, double x) {
    return x > net->limit ? net->limit : x < -net->limit ? -net->limit : x;
}

static void plain_lstm(const Plain *p, int direction, const Function *f) {
    const Net *net = p->net;
    int64_t n = net->hidden;
    const double *hole = p->peepholes ? p->peepholes + direction * 3 * n : NULL;
    for (int64_t j = 0; j < n; j++) {
        double cell = p->c[j];
        double i = recurrent_apply(&f[0], clipped(net, p->gates[j] + (hole ? hole[j] * cell : 0)));
        double forget = recurrent_apply(&f[0], clipped(net, p->gates[2 * n + j] + (hole ? hole[2 * n + j] * cell : 0)));
        if (net->coupled) forget = 1 - i;
        cell = forget * cell + i * recurrent_apply(&f[1], clipped(net, p->gates[3 * n + j]));
        p->c[j] = cell;
        double o = recurrent_apply(&f[0], clipped(net, p->gates[n + j] + (hole ? hole[n + j] * cell : 0)));
        p->inner[j] = o * recurrent_apply(&f[2], cell);
    }
    memcpy(p->h, p->inner, (size_t)n * sizeof *p->h);
}

static void plain_gru(const Plain *p, int direction, const Function *f) {
    const Net *net = p->net;
    int64_t n = net->hidden;
    double *z = p->gates, *r = p->gates + n, *x = p->gates + 2 * n;
    for (int64_t j = 0; j < n; j++) {
        z[j] = recurrent_apply(&f[0], clipped(net, z[j]));
        r[j] = recurrent_apply(&f[0], clipped(net, r[j]));
        p->inner[j] = r[j] * p->h[j];
    }
    for (int64_t j = 0; j < n; j++) {
        double recurrent = recurrent_dot(p, direction, 2, j, net->linear_before_reset ? p->h : p->inner);
        if (net->linear_before_reset) recurrent = r[j] * (recurrent + (p->bias ? p->bias[direction * n + j] : 0));
        x[j] = recurrent_apply(&f[1], clipped(net, x[j] + recurrent));
    }
    for (int64_t j = 0; j < n; j++) p->h[j] = (1 - z[j]) * x[j] + z[j] * p->h[j];
}

static void plain_step(const Plain *p, int direction, int64_t row, int64_t t) {
    const Net *net = p->net;
    int64_t n = net->hidden;
    const double *x = p->projection + ((t * net->batch + row) * net->directions + direction) * net->gates * n;
    const Function *f = net->functions + direction * recurrent_cells[net->cell].functions;
    int recurrent = net->cell == CELL_GRU ? 2 : net->gates;
    for (int g = 0; g < net->gates; g++)
        for (int64_t j = 0; j < n; j++)
            p->gates[g * n + j] = x[g * n + j] + (g < recurrent ? recurrent_dot(p, direction, g, j, p->h) : 0);
    if (net->cell == CELL_LSTM)
        plain_lstm(p, direction, f);
    else if (net->cell == CELL_GRU)
        plain_gru(p, direction, f);
    else
        for (int64_t j = 0; j < n; j++) p->h[j] = recurrent_apply(&f[0], clipped(net, p->gates[j]));
    for (int64_t j = 0; net->y && j < n; j++)
        dtype_store_double(net->dtype, net->y->data, ((t * net->directions + direction) * net->batch + row) * n + j,
                           p->h[j]);
}

void recurrent_run_plain(const Net *net) {
    int64_t n = net->hidden;
    Plain p = {net,
               recurrent_doubles(net->arena, net->projection),
               recurrent_doubles(net->arena, net->weights),
               recurrent_doubles(net->arena, net->h0),
               recurrent_doubles(net->arena, net->c0),
               recurrent_doubles(net->arena, net->peepholes),
               recurrent_doubles(net->arena, net->bias),
               ARENA_ARRAY(net->arena, double, net->gates *n),
               ARENA_ARRAY(net->arena, double, n),
               ARENA_ARRAY(net->arena, double, n),
               ARENA_ARRAY(net->arena, double, n)};
    for (int direction = 0; direction < net->directions; direction++)
        for (int64_t row = 0; row < net->batch; row++) {
            int64_t at = (direction * net->batch + row) * n, length = recurrent_length(net, row);
            for (int64_t j = 0; j < n; j++) p.h[j] = p.h0 ? p.h0[at + j] : 0, p.c[j] = p.c0 ? p.c0[at + j] : 0;
            recurrent_clear_tail(net, direction, row);
            for (int64_t s = 0; s < length; s++)
                plain_step(&p, direction, row, recurrent_time(net, direction, length, s));
            for (int64_t j = 0; j < n; j++) {
                if (net->y_h) dtype_store_double(net->dtype, net->y_h->data, at + j, p.h[j]);
                if (net->y_c) dtype_store_double(net->dtype, net->y_c->data, at + j, p.c[j]);
            }
        }
}
