/* SPDX-License-Identifier: Apache-2.0 */
/* Back through the steps of a recurrent net: each batch row of each direction is run again, its gates and states are kept, and then the chain
 * rule is followed from the last step to the first (Hochreiter and Schmidhuber, "Long Short-Term Memory", 1997; Cho et al., "Learning
 * Phrase Representations using RNN Encoder-Decoder", 2014; the formulas are ONNX LSTM-22's, GRU-22's and RNN-22's). In double precision,
 * with any activation functions; rows are dealt to the threads. In f32 with the usual ones recurrent_back.c does the same on vectors. */
#include "ops/recurrent/recurrent.h"

#include <math.h>

#include "lowering/sizes.h"

typedef struct Back {
    const Net *net;
    int64_t width;                                                   /* of all gates */
    const double *projection, *weights, *h0, *c0, *peepholes, *bias; /* weights: [D][width][hidden]; NULL as in Net */
    const double *dy, *dy_h, *dy_c;                                  /* NULL: zeros */
    Tensor *results[7]; /* in the order of the outputs; NULL: not asked for */
    double *scratch;    /* [workers][scratch_size] */
    int64_t scratch_size;
} Back;

/* A row of a direction. Steps are counted as they are taken. */
typedef struct Line {
    const Back *b;
    int direction;
    int64_t row, length;
    const Function *functions;
    const double *weights, *holes; /* of the direction */
    double *before, *gates; /* [T][width]: what goes into the activation functions, before clipping, and comes out */
    double *h, *c;          /* [T + 1][hidden], the first is the initial one */
    double
        *inner; /* [T][hidden]: LSTM's activation of c; GRU: the third gate's product, or r * h where it resets first */
    double *dh, *dc, *next; /* [hidden]: of the state behind the step; next: before it */
    double *d, *product;    /* [width]: of `before`, and of the products by the weights */
    double *dholes;         /* [3 * hidden] */
} Line;

enum { LANES = 8 };

/* Sums in lanes, so that the order is the same whatever the vectors. */
VECTORISED static double dot(const double *a, const double *b, int64_t n) {
    double lanes[LANES] = {0}, sum = 0;
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (int k = 0; k < LANES; k++) lanes[k] += a[i + k] * b[i + k];
    for (; i < n; i++) sum += a[i] * b[i];
    for (int k = 0; k < LANES; k++) sum += lanes[k];
    return sum;
}

VECTORISED static void add_scaled(double *y, const double *x, double factor, int64_t n) {
    for (int64_t i = 0; i < n; i++) y[i] += factor * x[i];
}

static double clipped(const Net *net, double x) {
    return x > net->limit ? net->limit : x < -net->limit ? -net->limit : x;
}

/* The derivative at x, where the function is y. At kinks, as the primitives' rules have it: none of what is bounded there. */
static double slope(const Function *f, double x, double y) {
    double e;
    switch (f->kind) {
    case ACT_RELU: return x > 0;
    case ACT_TANH: return 1 - y * y;
    case ACT_SIGMOID: return y * (1 - y);
    case ACT_AFFINE: return f->alpha;
    case ACT_LEAKY_RELU: return x >= 0 ? 1 : f->alpha;
    case ACT_THRESHOLDED_RELU: return x > f->alpha;
    case ACT_SCALED_TANH: return e = tanh(f->beta * x), f->alpha * f->beta * (1 - e * e);
    case ACT_HARD_SIGMOID: return y > 0 && y < 1 ? f->alpha : 0;
    case ACT_ELU: return x >= 0 ? 1 : f->alpha * exp(x);
    case ACT_SOFTSIGN: return e = 1 + fabs(x), 1 / (e * e);
    case ACT_SOFTPLUS: return 1 / (1 + exp(-x));
    case ACT_COUNT: break;
    }
    return 1;
}

/* The derivative of a gate of step s, through the clip. */
static double gate_slope(const Line *p, const Function *f, int64_t s, int64_t i) {
    double x = p->before[s * p->b->width + i];
    bool inside = x <= p->b->net->limit && x >= -p->b->net->limit;
    return inside ? slope(f, x, p->gates[s * p->b->width + i]) : 0;
}

static int64_t time_of(const Line *p, int64_t s) { return recurrent_time(p->b->net, p->direction, p->length, s); }

/* ---- forwards ---- */

static void apply_gate(const Line *p, const Function *f, int64_t s, int64_t i) {
    p->gates[s * p->b->width + i] = recurrent_apply(f, clipped(p->b->net, p->before[s * p->b->width + i]));
}

static void run_lstm(const Line *p, int64_t s) {
    const Net *net = p->b->net;
    int64_t n = net->hidden;
    double *x = p->before + s * p->b->width, *g = p->gates + s * p->b->width;
    const double *c = p->c + s * n;
    for (int64_t j = 0; j < n; j++) {
        if (p->holes) x[j] += p->holes[j] * c[j], x[2 * n + j] += p->holes[2 * n + j] * c[j];
        apply_gate(p, &p->functions[0], s, j);
        apply_gate(p, &p->functions[0], s, 2 * n + j);
        apply_gate(p, &p->functions[1], s, 3 * n + j);
        if (net->coupled) g[2 * n + j] = 1 - g[j];
        double cell = g[2 * n + j] * c[j] + g[j] * g[3 * n + j];
        if (p->holes) x[n + j] += p->holes[n + j] * cell;
        apply_gate(p, &p->functions[0], s, n + j);
        p->c[(s + 1) * n + j] = cell;
        p->inner[s * n + j] = recurrent_apply(&p->functions[2], cell);
        p->h[(s + 1) * n + j] = g[n + j] * p->inner[s * n + j];
    }
}

static void run_gru(const Line *p, int64_t s) {
    const Net *net = p->b->net;
    int64_t n = net->hidden;
    double *x = p->before + s * p->b->width, *g = p->gates + s * p->b->width, *inner = p->inner + s * n;
    const double *h = p->h + s * n, *third = p->weights + 2 * n * n;
    for (int64_t j = 0; j < 2 * n; j++) apply_gate(p, &p->functions[0], s, j);
    for (int64_t j = 0; j < n; j++) {
        if (net->linear_before_reset)
            inner[j] = dot(third + j * n, h, n) + (p->b->bias ? p->b->bias[p->direction * n + j] : 0);
        else
            inner[j] = g[n + j] * h[j];
    }
    for (int64_t j = 0; j < n; j++) {
        x[2 * n + j] += net->linear_before_reset ? g[n + j] * inner[j] : dot(third + j * n, inner, n);
        apply_gate(p, &p->functions[1], s, 2 * n + j);
        p->h[(s + 1) * n + j] = (1 - g[j]) * g[2 * n + j] + g[j] * h[j];
    }
}

static void run_step(const Line *p, int64_t s) {
    const Net *net = p->b->net;
    int64_t n = net->hidden, width = p->b->width, products = net->cell == CELL_GRU ? 2 * n : width;
    const double *x =
        p->b->projection + ((time_of(p, s) * net->batch + p->row) * net->directions + p->direction) * width;
    double *before = p->before + s * width;
    for (int64_t i = 0; i < width; i++)
        before[i] = x[i] + (i < products ? dot(p->weights + i * n, p->h + s * n, n) : 0);
    if (net->cell == CELL_LSTM) {
        run_lstm(p, s);
    } else if (net->cell == CELL_GRU) {
        run_gru(p, s);
    } else {
        for (int64_t j = 0; j < n; j++) {
            apply_gate(p, &p->functions[0], s, j);
            p->h[(s + 1) * n + j] = p->gates[s * n + j];
        }
    }
}

/* ---- backwards: from dh and dc behind a step to `next` and dc before it ---- */

static void back_lstm(const Line *p, int64_t s) {
    const Net *net = p->b->net;
    int64_t n = net->hidden;
    const double *g = p->gates + s * p->b->width, *c = p->c + s * n;
    for (int64_t j = 0; j < n; j++) {
        double cell = c[n + j], i = g[j], forget = g[2 * n + j];
        double out = p->dh[j] * p->inner[s * n + j] * gate_slope(p, &p->functions[0], s, n + j);
        double dc = p->dc[j] + p->dh[j] * g[n + j] * slope(&p->functions[2], cell, p->inner[s * n + j]);
        if (p->holes) dc += out * p->holes[n + j];
        double df = dc * c[j], di = dc * g[3 * n + j] - (net->coupled ? df : 0);
        di *= gate_slope(p, &p->functions[0], s, j);
        df = net->coupled ? 0 : df * gate_slope(p, &p->functions[0], s, 2 * n + j);
        p->d[j] = di;
        p->d[n + j] = out;
        p->d[2 * n + j] = df;
        p->d[3 * n + j] = dc * i * gate_slope(p, &p->functions[1], s, 3 * n + j);
        p->dc[j] = dc * forget;
        if (!p->holes) continue;
        p->dc[j] += di * p->holes[j] + df * p->holes[2 * n + j];
        p->dholes[j] += di * c[j];
        p->dholes[n + j] += out * cell;
        p->dholes[2 * n + j] += df * c[j];
    }
    memcpy(p->product, p->d, (size_t)p->b->width * sizeof *p->d);
}

static void back_gru(const Line *p, int64_t s) {
    const Net *net = p->b->net;
    int64_t n = net->hidden;
    const double *g = p->gates + s * p->b->width, *h = p->h + s * n, *third = p->weights + 2 * n * n;
    bool after = net->linear_before_reset;
    double *of_reset = p->dc; /* [hidden]: the gradient of r * h, of which a GRU has no other use */
    for (int64_t j = 0; j < n; j++) {
        double dx = p->dh[j] * (1 - g[j]) * gate_slope(p, &p->functions[1], s, 2 * n + j);
        p->d[2 * n + j] = dx;
        p->product[2 * n + j] = after ? dx * g[n + j] : dx;
        p->d[j] = p->dh[j] * (h[j] - g[2 * n + j]) * gate_slope(p, &p->functions[0], s, j);
        p->next[j] += p->dh[j] * g[j];
        of_reset[j] = 0;
    }
    for (int64_t j = 0; !after && j < n; j++) add_scaled(of_reset, third + j * n, p->d[2 * n + j], n);
    for (int64_t j = 0; j < n; j++) {
        double dr = after ? p->d[2 * n + j] * p->inner[s * n + j] : of_reset[j] * h[j];
        p->d[n + j] = dr * gate_slope(p, &p->functions[0], s, n + j);
        if (!after) p->next[j] += of_reset[j] * g[n + j];
    }
    memcpy(p->product, p->d, (size_t)(2 * n) * sizeof *p->d);
}

static void store(const Line *p, int result, int64_t at, const double *from, int64_t count) {
    Tensor *to = p->b->results[result];
    for (int64_t i = 0; to && i < count; i++) dtype_store_double(to->dtype, to->data, at * count + i, from[i]);
}

static void back_step(const Line *p, int64_t s) {
    const Net *net = p->b->net;
    int64_t n = net->hidden, width = p->b->width, t = time_of(p, s);
    bool resets = net->cell == CELL_GRU && !net->linear_before_reset;
    for (int64_t j = 0; j < n; j++) {
        int64_t at = ((t * net->directions + p->direction) * net->batch + p->row) * n + j;
        p->dh[j] += p->b->dy ? p->b->dy[at] : 0;
        p->next[j] = 0;
    }
    if (net->cell == CELL_LSTM) {
        back_lstm(p, s);
    } else if (net->cell == CELL_GRU) {
        back_gru(p, s);
    } else {
        for (int64_t j = 0; j < n; j++) p->d[j] = p->product[j] = p->dh[j] * gate_slope(p, &p->functions[0], s, j);
    }
    for (int64_t i = 0; i < (resets ? 2 * n : width); i++) add_scaled(p->next, p->weights + i * n, p->product[i], n);
    memcpy(p->dh, p->next, (size_t)n * sizeof *p->dh);
    int64_t place = (t * net->batch + p->row) * net->directions + p->direction;
    store(p, 0, place, p->d, width);
    store(p, 1, place, p->product, width);
    store(p, 2, place, p->h + s * n, n);
    store(p, 3, place, p->inner + s * n, n);
}

/* ---- lines ---- */

static void start_from(double *to, const double *from, int64_t at, int64_t count) {
    for (int64_t i = 0; i < count; i++) to[i] = from ? from[at * count + i] : 0;
}

static void run_line(const Line *p) {
    const Back *b = p->b;
    int64_t n = b->net->hidden, at = p->direction * b->net->batch + p->row;
    start_from(p->h, b->h0, at, n);
    start_from(p->c, b->c0, at, n);
    for (int64_t s = 0; s < p->length; s++) run_step(p, s);
    start_from(p->dh, b->dy_h, at, n);
    start_from(p->dc, b->dy_c, at, n);
    start_from(p->dholes, NULL, 0, 3 * n);
    for (int64_t s = p->length - 1; s >= 0; s--) back_step(p, s);
    store(p, 4, at, p->dh, n);
    store(p, 5, at, p->dc, n);
    store(p, 6, at, p->dholes, 3 * n);
}

static int64_t scratch_size(const Net *net, int64_t width) {
    return 2 * net->time * width + (3 * net->time + 2) * net->hidden + 6 * net->hidden + 2 * width;
}

static void run_lines(void *context, int64_t begin, int64_t end, int worker) {
    const Back *b = context;
    const Net *net = b->net;
    int64_t n = net->hidden;
    double *at = b->scratch + worker * b->scratch_size;
    Line p = {.b = b, .before = at, .gates = at + net->time * b->width};
    p.h = p.gates + net->time * b->width;
    p.c = p.h + (net->time + 1) * n;
    p.inner = p.c + (net->time + 1) * n;
    p.dh = p.inner + net->time * n;
    p.dc = p.dh + n;
    p.next = p.dc + n;
    p.dholes = p.next + n;
    p.d = p.dholes + 3 * n;
    p.product = p.d + b->width;
    for (int64_t i = begin; i < end; i++) {
        p.direction = (int)(i / net->batch);
        p.row = i % net->batch;
        p.length = recurrent_length(net, p.row);
        p.functions = net->functions + p.direction * recurrent_cells[net->cell].functions;
        p.weights = b->weights + p.direction * b->width * n;
        p.holes = b->peepholes ? b->peepholes + p.direction * 3 * n : NULL;
        run_line(&p);
    }
}

int64_t recurrent_packed_row(const Net *net, int64_t row, int64_t *out_stride) {
    int64_t n = net->hidden, units = net->units, width = net->gates * n, gate = row % width / n, unit = row % n;
    bool first = gate < net->first_gates;
    int64_t panel = (row / width * net->panels + unit / units) * n * net->gates * units + unit % units;
    *out_stride = (first ? net->first_gates : net->gates - net->first_gates) * units;
    return panel + (first ? gate * units : (net->first_gates * n + gate - net->first_gates) * units);
}

/* The weights as R has them, [D][gates * hidden][hidden]. */
static double *unpacked(const Net *net, int64_t width) {
    int64_t n = net->hidden, stride;
    const double *packed = recurrent_doubles(net->arena, net->weights);
    double *plain = ARENA_ARRAY(net->arena, double, net->directions *width *n);
    for (int64_t row = 0; row < net->directions * width; row++) {
        const double *from = packed + recurrent_packed_row(net, row, &stride);
        for (int64_t k = 0; k < n; k++) plain[row * n + k] = from[k * stride];
    }
    return plain;
}

Status host_recurrent_gradient(HostCall *call) {
    Net net = {.pool = call->pool, .arena = call->arena};
    TRY(recurrent_read(call, &net));
    int64_t width = net.gates * net.hidden, d = net.directions, n = net.hidden;
    int64_t steps[] = {net.time, net.batch, d * width}, states[] = {net.time, net.batch, d * n};
    int64_t initial[] = {d, net.batch, n}, holes[] = {d, net.batch, 3 * n};
    const int64_t *dims[] = {steps, steps, states, states, initial, initial, holes};
    const Tensor *given[3], *y = call->node->input_count > 10 ? host_input(call, 10) : NULL;
    Back b = {.net = &net, .width = width, .scratch_size = scratch_size(&net, width)};
    for (int i = 0; i < 3; i++) {
        given[i] = host_input(call, 7 + i);
        int64_t count = net.directions * net.batch * n * (i ? 1 : net.time);
        if (given[i] && (given[i]->dtype != net.dtype || tensor_count(given[i]) != count))
            return host_error(call, "the gradient of output %d does not fit", i);
    }
    for (int i = 0; i < 7; i++) {
        TRY(host_output(call, i, net.dtype, 3, dims[i], &b.results[i]));
        if (b.results[i]) memset(b.results[i]->data, 0, tensor_bytes(b.results[i]));
    }
    if (net.batch == 0) return NULL;
    if (y) {
        recurrent_back_fast(&net, given, y, host_input(call, 11), b.results);
        return NULL;
    }
    b.weights = unpacked(&net, width);
    b.projection = recurrent_doubles(call->arena, net.projection);
    b.h0 = recurrent_doubles(call->arena, net.h0);
    b.c0 = recurrent_doubles(call->arena, net.c0);
    b.peepholes = recurrent_doubles(call->arena, net.peepholes);
    b.bias = recurrent_doubles(call->arena, net.bias);
    b.dy = recurrent_doubles(call->arena, given[0]);
    b.dy_h = recurrent_doubles(call->arena, given[1]);
    b.dy_c = recurrent_doubles(call->arena, given[2]);
    b.scratch =
        arena_array(call->arena, (size_t)pool_threads(call->pool), (size_t)b.scratch_size * sizeof *b.scratch + 1);
    pool_for(call->pool, d * net.batch, 1, run_lines, &b);
    return NULL;
}
