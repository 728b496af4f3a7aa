/* SPDX-License-Identifier: Apache-2.0 */
/* Back through the steps in f32, with the usual functions: what recurrent_gradient.c computes, on vectors. A few batch rows of a direction go
 * together: they are run again, their gates and states are kept, and the chain rule is followed from the last step to the first. Each step is a
 * product of these rows by the recurrent weights forwards and one backwards, with the tile of the forward recurrence. Sums
 * run in the order of k, so results depend on no other row and on no thread. */
#include <math.h>
#include <string.h>

#include "lowering/sizes.h"
#include "ops/recurrent/recurrent_parts.h"

/* Batch rows that go together: all of a thread's share one reading of the weights, as far as what is kept of their steps stays within so many
 * bytes; ROWS at least. */
enum { MOST_ROWS = 32, KEPT_BYTES = 4 << 20 };

typedef struct Fast {
    const Net *net;
    const RecurrentIsa *isa;
    int64_t rows; /* a block, but for the last of a direction; a multiple of ROWS */
    int64_t n, width, n_room, width_room,
        first_room; /* hidden; all gates; the same and the gates of the first product in whole pieces */
    const float *projection, *h0, *c0, *bias;
    /* The recurrent weights: turned, those that multiply h first, [D][hidden][first_room], and a GRU's third gate's, [D][hidden][n_room], else
     * NULL; and as they are, [D][width][n_room]. */
    const float *forward, *third, *backward;
    const float *given[3]; /* of the gradients; NULL: zeros */
    Tensor *const *results;
    float *scratch; /* [workers][scratch_size] */
    int64_t scratch_size;
} Fast;

/* Rows of a direction. A step of all of them is one behind the other: [T][rows][...]. */
typedef struct Rows {
    const Fast *f;
    int direction, count;
    int64_t first, steps;
    int64_t lengths[MOST_ROWS];
    const float *forward, *third, *backward; /* of the direction */
    float *gates;                            /* [T][rows][width_room] */
    float *h, *c;                            /* [T + 1][rows][n_room], the first is the initial one */
    float *inner;                            /* [T][rows][n_room]: as in recurrent_gradient.c */
    float *dh, *dc, *next;                   /* [rows][n_room] */
    float *d, *product; /* [rows][width_room]: of what goes into the functions, and of the products by the weights */
} Rows;

static int64_t whole_pieces(int64_t n) { return (n + PIECE - 1) / PIECE * PIECE; }

/* sums [rows][room] += x [rows][x_room] by weights [depth][stride], of their first `count` columns, whole pieces. */
static void add_product(const Rows *r, float *sums, int64_t room, const float *x, int64_t x_room, const float *weights,
                        int64_t stride, int64_t depth, int64_t count) {
    float part[ROWS][PANEL];
    for (int64_t at = 0; at < count; at += PANEL) {
        int columns = (int)(count - at < PANEL ? count - at : PANEL);
        for (int row = 0, rows; row < r->count; row += rows) {
            rows = r->count - row >= ROWS ? ROWS : r->count - row >= 2 ? 2 : 1;
            for (int i = 0; i < rows; i++)
                memcpy(part[i], sums + (row + i) * room + at, (size_t)columns * sizeof(float));
            r->f->isa->product(
                &(PanelProduct){part[0], x + row * x_room, x_room, weights + at, stride, depth, rows, columns});
            for (int i = 0; i < rows; i++)
                memcpy(sums + (row + i) * room + at, part[i], (size_t)columns * sizeof(float));
        }
    }
}

static bool is_over(const Rows *r, int row, int64_t s) { return s >= r->lengths[row]; }

static int64_t time_of(const Rows *r, int row, int64_t s) {
    return recurrent_time(r->f->net, r->direction, r->lengths[row], s);
}

/* In gates [T, B, D * width] and states [T, B, D * hidden], and in Y [T, D, B, hidden], in numbers of rows. */
static int64_t place_of(const Rows *r, int row, int64_t s) {
    const Net *net = r->f->net;
    return (time_of(r, row, s) * net->batch + r->first + row) * net->directions + r->direction;
}

static int64_t of_state(const Rows *r, int row, int64_t s) {
    const Net *net = r->f->net;
    return (time_of(r, row, s) * net->directions + r->direction) * net->batch + r->first + row;
}

/* ---- forwards ---- */

VECTORISED static void lstm_cell(const float *gates, const float *c, float *cell, int64_t n) {
    for (int64_t j = 0; j < n; j++) cell[j] = gates[2 * n + j] * c[j] + gates[j] * gates[3 * n + j];
}

VECTORISED static void multiply(const float *a, const float *b, float *y, int64_t n) {
    for (int64_t j = 0; j < n; j++) y[j] = a[j] * b[j];
}

VECTORISED static void add_multiple(const float *a, const float *b, float *y, int64_t n) {
    for (int64_t j = 0; j < n; j++) y[j] += a[j] * b[j];
}

VECTORISED static void gru_state(const float *gates, const float *h, float *next, int64_t n) {
    for (int64_t j = 0; j < n; j++) next[j] = (1 - gates[j]) * gates[2 * n + j] + gates[j] * h[j];
}

static void finish_lstm(const Rows *r, int64_t s, int i) {
    const Fast *f = r->f;
    int64_t n = f->n, at = (s * f->rows + i) * f->n_room, next = at + f->rows * f->n_room;
    float *gates = r->gates + (s * f->rows + i) * f->width_room;
    f->isa->sigmoids(gates, 3 * n);
    f->isa->tanhs(gates + 3 * n, n);
    lstm_cell(gates, r->c + at, r->c + next, n);
    memcpy(r->inner + at, r->c + next, (size_t)n * sizeof(float));
    f->isa->tanhs(r->inner + at, n);
    multiply(gates + n, r->inner + at, r->h + next, n);
}

/* The third gate of a GRU, whose product is of h, and is reset then, or of what was reset. */
static void run_third_gate(const Rows *r, int64_t s) {
    const Fast *f = r->f;
    int64_t n = f->n, wide = f->width_room, room = f->n_room;
    bool after = f->net->linear_before_reset;
    float *gates = r->gates + s * f->rows * wide, *h = r->h + s * f->rows * room,
          *inner = r->inner + s * f->rows * room;
    for (int i = 0; i < r->count; i++) {
        f->isa->sigmoids(gates + i * wide, 2 * n);
        if (!after) multiply(gates + i * wide + n, h + i * room, inner + i * room, n);
        memset(r->product + i * room, 0, (size_t)room * sizeof(float));
        if (after && f->bias) memcpy(r->product + i * room, f->bias + r->direction * n, (size_t)n * sizeof(float));
    }
    add_product(r, r->product, room, after ? h : inner, room, r->third, room, n, room);
    for (int i = 0; i < r->count; i++) {
        float *x = gates + i * wide + 2 * n;
        if (after) {
            memcpy(inner + i * room, r->product + i * room, (size_t)n * sizeof(float));
            add_multiple(gates + i * wide + n, inner + i * room, x, n);
        } else {
            for (int64_t j = 0; j < n; j++) x[j] += r->product[i * room + j];
        }
        f->isa->tanhs(x, n);
        gru_state(gates + i * wide, h + i * room, h + (f->rows + i) * room, n);
    }
}

static void keep_state(const Rows *r, int64_t s, int i) {
    const Fast *f = r->f;
    int64_t room = f->n_room, at = (s * f->rows + i) * room;
    memcpy(r->h + at + f->rows * room, r->h + at, (size_t)room * sizeof(float));
    memcpy(r->c + at + f->rows * room, r->c + at, (size_t)room * sizeof(float));
}

static void run_step(const Rows *r, int64_t s) {
    const Fast *f = r->f;
    int64_t n = f->n, wide = f->width_room;
    float *gates = r->gates + s * f->rows * wide, *h = r->h + s * f->rows * f->n_room;
    for (int i = 0; i < r->count; i++) {
        memset(gates + i * wide, 0, (size_t)wide * sizeof(float));
        if (!is_over(r, i, s))
            memcpy(gates + i * wide, f->projection + place_of(r, i, s) * f->width, (size_t)f->width * sizeof(float));
    }
    add_product(r, gates, wide, h, f->n_room, r->forward, f->first_room, n, f->first_room);
    if (f->net->cell == CELL_GRU) run_third_gate(r, s);
    for (int i = 0; i < r->count; i++) {
        if (f->net->cell == CELL_LSTM) finish_lstm(r, s, i);
        if (f->net->cell == CELL_RNN) {
            f->isa->tanhs(gates + i * wide, n);
            memcpy(h + (f->rows + i) * f->n_room, gates + i * wide, (size_t)n * sizeof(float));
        }
        if (is_over(r, i, s)) keep_state(r, s, i);
    }
}

/* ---- backwards: from dh and dc behind a step to those before it; next: what no product adds to dh ---- */

VECTORISED static void back_lstm(const float *g, const float *c, const float *inner, const float *dh, float *dc,
                                 float *d, int64_t n) {
    for (int64_t j = 0; j < n; j++) {
        float i = g[j], o = g[n + j], forget = g[2 * n + j], x = g[3 * n + j], t = inner[j];
        float cell = dc[j] + dh[j] * o * (1 - t * t);
        d[j] = cell * x * (i * (1 - i));
        d[n + j] = dh[j] * t * (o * (1 - o));
        d[2 * n + j] = cell * c[j] * (forget * (1 - forget));
        d[3 * n + j] = cell * i * (1 - x * x);
        dc[j] = cell * forget;
    }
}

/* d of z and the third gate. */
VECTORISED static void back_gru(const float *g, const float *h, const float *dh, float *d, float *next, int64_t n) {
    for (int64_t j = 0; j < n; j++) {
        float z = g[j], x = g[2 * n + j];
        d[2 * n + j] = dh[j] * (1 - z) * (1 - x * x);
        d[j] = dh[j] * (h[j] - x) * (z * (1 - z));
        next[j] = dh[j] * z;
    }
}

/* d of r, where `of_reset` is the gradient of what it was multiplied by, `by`. */
VECTORISED static void back_reset(const float *reset, const float *of_reset, const float *by, float *d, int64_t n) {
    for (int64_t j = 0; j < n; j++) d[j] = of_reset[j] * by[j] * (reset[j] * (1 - reset[j]));
}

VECTORISED static void back_rnn(const float *g, const float *dh, float *d, int64_t n) {
    for (int64_t j = 0; j < n; j++) d[j] = dh[j] * (1 - g[j] * g[j]);
}

static void add_row(float *to, const float *from, int64_t n) {
    for (int64_t j = 0; j < n; j++) to[j] += from[j];
}

static void store(const Rows *r, int result, int64_t place, const float *from, int64_t count) {
    Tensor *to = r->f->results[result];
    if (to) memcpy((float *)to->data + place * count, from, (size_t)count * sizeof(float));
}

/* What a GRU's third gate hands to its reset gate and to the state. */
static void back_third_gate(const Rows *r, int64_t s) {
    const Fast *f = r->f;
    int64_t n = f->n, wide = f->width_room, room = f->n_room;
    bool after = f->net->linear_before_reset;
    const float *gates = r->gates + s * f->rows * wide, *h = r->h + s * f->rows * room,
                *inner = r->inner + s * f->rows * room;
    float *of_reset = r->dc; /* a GRU has no other use of it */
    memset(of_reset, 0, (size_t)(f->rows * room) * sizeof(float));
    if (!after) add_product(r, of_reset, room, r->d + 2 * n, wide, r->backward + 2 * n * room, room, n, room);
    for (int i = 0; i < r->count; i++) {
        const float *g = gates + i * wide;
        float *d = r->d + i * wide, *product = r->product + i * wide;
        back_reset(g + n, after ? d + 2 * n : of_reset + i * room, after ? inner + i * room : h + i * room, d + n, n);
        memcpy(product, d, (size_t)f->width * sizeof(float));
        if (after)
            multiply(d + 2 * n, g + n, product + 2 * n, n);
        else
            add_multiple(of_reset + i * room, g + n, r->next + i * room, n);
    }
}

static void back_step(const Rows *r, int64_t s) {
    const Fast *f = r->f;
    int64_t n = f->n, wide = f->width_room, room = f->n_room;
    Cell cell = f->net->cell;
    bool resets = cell == CELL_GRU && !f->net->linear_before_reset;
    memset(r->next, 0, (size_t)(f->rows * room) * sizeof(float));
    memset(r->d, 0, (size_t)(f->rows * wide) * sizeof(float));
    for (int i = 0; i < r->count; i++) {
        const float *g = r->gates + (s * f->rows + i) * wide, *h = r->h + (s * f->rows + i) * room;
        float *dh = r->dh + i * room, *d = r->d + i * wide;
        if (is_over(r, i, s)) {
            memcpy(r->next + i * room, dh, (size_t)n * sizeof(float));
            continue;
        }
        if (f->given[0]) add_row(dh, f->given[0] + of_state(r, i, s) * n, n);
        if (cell == CELL_LSTM)
            back_lstm(g, r->c + (s * f->rows + i) * room, r->inner + (s * f->rows + i) * room, dh, r->dc + i * room, d,
                      n);
        else if (cell == CELL_GRU)
            back_gru(g, h, dh, d, r->next + i * room, n);
        else
            back_rnn(g, dh, d, n);
    }
    if (cell == CELL_GRU) back_third_gate(r, s);
    const float *product = cell == CELL_GRU ? r->product : r->d;
    add_product(r, r->next, room, product, wide, r->backward, room, resets ? 2 * n : f->width, room);
    memcpy(r->dh, r->next, (size_t)(f->rows * room) * sizeof(float));
    for (int i = 0; i < r->count; i++) {
        if (is_over(r, i, s)) continue;
        int64_t place = place_of(r, i, s);
        store(r, 0, place, r->d + i * wide, f->width);
        store(r, 1, place, product + i * wide, f->width);
        store(r, 2, place, r->h + (s * f->rows + i) * room, n);
        store(r, 3, place, r->inner + (s * f->rows + i) * room, n);
    }
}

/* ---- rows ---- */

static void start_from(const Rows *r, float *to, const float *from) {
    const Fast *f = r->f;
    memset(to, 0, (size_t)(f->rows * f->n_room) * sizeof(float));
    for (int i = 0; from && i < r->count; i++)
        memcpy(to + i * f->n_room, from + (r->direction * f->net->batch + r->first + i) * f->n,
               (size_t)f->n * sizeof(float));
}

static int64_t scratch_size(const Fast *f) {
    return f->net->time * f->rows * f->width_room + (3 * f->net->time + 5) * f->rows * f->n_room +
           2 * f->rows * f->width_room;
}

static void run_rows(void *context, int64_t begin, int64_t end, int worker) {
    const Fast *f = context;
    const Net *net = f->net;
    int64_t blocks = (net->batch + f->rows - 1) / f->rows, state = f->rows * f->n_room;
    Rows r = {.f = f, .gates = f->scratch + worker * f->scratch_size};
    r.h = r.gates + net->time * f->rows * f->width_room;
    r.c = r.h + (net->time + 1) * state;
    r.inner = r.c + (net->time + 1) * state;
    r.dh = r.inner + net->time * state;
    r.dc = r.dh + state;
    r.next = r.dc + state;
    r.d = r.next + state;
    r.product = r.d + f->rows * f->width_room;
    for (int64_t b = begin; b < end && !pool_is_stopped(); b++) {
        r.direction = (int)(b / blocks);
        r.first = b % blocks * f->rows;
        r.count = (int)(net->batch - r.first < f->rows ? net->batch - r.first : f->rows);
        r.steps = 0;
        for (int i = 0; i < r.count; i++) {
            r.lengths[i] = recurrent_length(net, r.first + i);
            if (r.lengths[i] > r.steps) r.steps = r.lengths[i];
        }
        r.forward = f->forward + r.direction * f->n * f->first_room;
        r.third = f->third ? f->third + r.direction * f->n * f->n_room : NULL;
        r.backward = f->backward + r.direction * f->width * f->n_room;
        start_from(&r, r.h, f->h0);
        start_from(&r, r.c, f->c0);
        for (int64_t s = 0; s < r.steps; s++) run_step(&r, s);
        start_from(&r, r.dh, f->given[1]);
        start_from(&r, r.dc, f->given[2]);
        for (int64_t s = r.steps - 1; s >= 0; s--) back_step(&r, s);
        for (int i = 0; i < r.count; i++) {
            store(&r, 4, r.direction * net->batch + r.first + i, r.dh + i * f->n_room, f->n);
            store(&r, 5, r.direction * net->batch + r.first + i, r.dc + i * f->n_room, f->n);
        }
    }
}

/* ---- all of it ---- */

static const float *floats(const Tensor *tensor) { return tensor ? tensor->data : NULL; }

/* plain: [D][width][hidden], as R has them. */
static void lay_out(Fast *f, const double *plain) {
    int64_t n = f->n, first = f->net->cell == CELL_GRU ? 2 * n : f->width, directions = f->net->directions;
    float *forward = ARENA_ARRAY(f->net->arena, float, directions *n * f->first_room);
    float *third = first < f->width ? ARENA_ARRAY(f->net->arena, float, directions *n * f->n_room) : NULL;
    float *backward = ARENA_ARRAY(f->net->arena, float, directions * f->width * f->n_room);
    for (int64_t row = 0; row < directions * f->width; row++) {
        int64_t direction = row / f->width, gate = row % f->width;
        float *to = gate < first ? forward + direction * n * f->first_room + gate
                                 : third + direction * n * f->n_room + gate - first;
        int64_t stride = gate < first ? f->first_room : f->n_room;
        for (int64_t k = 0; k < n; k++) to[k * stride] = backward[row * f->n_room + k] = (float)plain[row * n + k];
    }
    f->forward = forward;
    f->third = third;
    f->backward = backward;
}

static int64_t rows_of(Fast *f) {
    int64_t threads = pool_threads(f->net->pool), share = (f->net->batch * f->net->directions + threads - 1) / threads;
    f->rows = ROWS;
    int64_t fitting = KEPT_BYTES / (int64_t)sizeof(float) / scratch_size(f), most = fitting * ROWS;
    if (share > MOST_ROWS) share = MOST_ROWS;
    share = (share + ROWS - 1) / ROWS * ROWS;
    return most < ROWS ? ROWS : share < most ? share : most;
}

bool recurrent_back_is_fast(const Net *net) {
    return net->dtype == DT_F32 && net->usual && !net->coupled && !net->peepholes && net->limit == INFINITY;
}

void recurrent_back_fast(const Net *net, const double *weights, const Tensor *const *given, Tensor *const *results) {
    int64_t n = net->hidden, width = net->gates * n;
    Fast f = {.net = net,
              .isa = recurrent_isa(),
              .n = n,
              .width = width,
              .n_room = whole_pieces(n),
              .width_room = whole_pieces(width),
              .first_room = whole_pieces(net->cell == CELL_GRU ? 2 * n : width),
              .projection = floats(net->projection),
              .h0 = floats(net->h0),
              .c0 = floats(net->c0),
              .bias = floats(net->bias),
              .given = {floats(given[0]), floats(given[1]), floats(given[2])},
              .results = results};
    lay_out(&f, weights);
    f.rows = rows_of(&f);
    f.scratch_size = scratch_size(&f);
    f.scratch = arena_array(net->arena, (size_t)pool_threads(net->pool), (size_t)f.scratch_size * sizeof(float) + 1);
    pool_for(net->pool, net->directions * ((net->batch + f.rows - 1) / f.rows), 1, run_rows, &f);
}
