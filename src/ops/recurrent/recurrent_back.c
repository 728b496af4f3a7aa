/* SPDX-License-Identifier: Apache-2.0 */
/* Back through the steps in f32, with the usual functions: what recurrent_gradient.c computes, on vectors, of the gates and states that the
 * forward pass has kept. A few batch rows of a direction go together; each step is a product of what their gates get by the recurrent weights,
 * with the tile of the forward recurrence. Sums run in the order of k, so results depend on no other row and on no thread. */
#include <math.h>
#include <string.h>

#include "lowering/sizes.h"
#include "ops/recurrent/recurrent_parts.h"

enum { MOST_ROWS = 64 }; /* that go together: all of a thread's share one reading of the weights */
/* Of the weights in panels below: columns, whole pieces, and rows that are multiplied at a time, 16 KiB. */
enum { COLUMNS = 64, DEPTH = 64 };

typedef struct Fast {
    const Net *net;
    const RecurrentIsa *isa;
    int64_t rows;                         /* a block, but for the last of a direction; a multiple of ROWS */
    int64_t n, width, n_room, width_room; /* hidden; all gates; the same in whole pieces */
    const float *gates, *y, *inner, *h0, *c0;
    const float *weights;  /* [D][width][n_room], in panels of COLUMNS: [panel][width][COLUMNS] of a direction */
    const float *given[3]; /* of the gradients; NULL: zeros */
    Tensor *const *results;
    float *scratch; /* [workers][scratch_size] */
    int64_t scratch_size;
} Fast;

/* Rows of a direction. */
typedef struct Rows {
    const Fast *f;
    int direction, count;
    int64_t first, steps;
    int64_t lengths[MOST_ROWS];
    const float *weights; /* of the direction */
    const float *none;    /* [n_room]: zeros */
    /* [rows][n_room]; active: tanh of an LSTM's cell; r * h of a GRU that resets first */
    float *dh, *dc, *next, *reset, *active;
    /* [rows][width_room]: of what goes into the functions, and of the products by the weights, where that is another */
    float *d, *product;
} Rows;

static int64_t whole_pieces(int64_t n) { return (n + PIECE - 1) / PIECE * PIECE; }

/* sums [rows][n_room] += x [rows][width_room] by rows [from, to) of the weights. A part of a panel that the first-level cache holds is multiplied
 * by all rows before the next. */
static void add_product(const Rows *r, float *sums, const float *x, int64_t from, int64_t to) {
    const Fast *f = r->f;
    for (int64_t at = 0; at < f->n_room; at += COLUMNS) {
        int columns = (int)(f->n_room - at < COLUMNS ? f->n_room - at : COLUMNS);
        for (int64_t k = from; k < to; k += DEPTH) {
            PanelProduct m = {.sums_stride = f->n_room,
                              .h_stride = f->width_room,
                              .weights = r->weights + at * f->width + k * columns,
                              .stride = columns,
                              .depth = to - k < DEPTH ? to - k : DEPTH,
                              .columns = columns};
            for (int row = 0; row < r->count; row += m.rows) {
                m.rows = r->count - row >= ROWS ? ROWS : r->count - row >= 2 ? 2 : 1;
                m.sums = sums + row * f->n_room + at;
                m.h = x + row * f->width_room + k;
                f->isa->product(&m);
            }
        }
    }
}

static bool is_over(const Rows *r, int row, int64_t s) { return s >= r->lengths[row]; }

/* Numbers of rows: in gates [T, B, D, width] and inner [T, B, D, hidden]; in Y [T, D, B, hidden]; in states [D, B, hidden]. */
static int64_t of_state(const Rows *r, int row) { return r->direction * r->f->net->batch + r->first + row; }

static int64_t place_of(const Rows *r, int row, int64_t s) {
    const Net *net = r->f->net;
    int64_t t = recurrent_time(net, r->direction, r->lengths[row], s);
    return (t * net->batch + r->first + row) * net->directions + r->direction;
}

static int64_t of_y(const Rows *r, int row, int64_t s) {
    const Net *net = r->f->net;
    return recurrent_time(net, r->direction, r->lengths[row], s) * net->directions * net->batch + of_state(r, row);
}

/* The state before step s, and an LSTM's cell. */
static const float *initial(const Rows *r, int row, const float *states) {
    return states ? states + of_state(r, row) * r->f->n : r->none;
}

static const float *state_before(const Rows *r, int row, int64_t s) {
    return s ? r->f->y + of_y(r, row, s - 1) * r->f->n : initial(r, row, r->f->h0);
}

static const float *cell_before(const Rows *r, int row, int64_t s) {
    return s ? r->f->inner + place_of(r, row, s - 1) * r->f->n : initial(r, row, r->f->c0);
}

VECTORISED static void multiply(const float *a, const float *b, float *y, int64_t n) {
    for (int64_t j = 0; j < n; j++) y[j] = a[j] * b[j];
}

VECTORISED static void add_multiple(const float *a, const float *b, float *y, int64_t n) {
    for (int64_t j = 0; j < n; j++) y[j] += a[j] * b[j];
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
    memset(r->reset, 0, (size_t)(f->rows * room) * sizeof(float));
    if (!after) add_product(r, r->reset, r->d, 2 * n, 3 * n);
    for (int i = 0; i < r->count; i++) {
        if (is_over(r, i, s)) continue;
        int64_t place = place_of(r, i, s);
        const float *g = f->gates + place * f->width, *h = state_before(r, i, s);
        float *d = r->d + i * wide, *product = r->product + i * wide, *reset = r->reset + i * room;
        back_reset(g + n, after ? d + 2 * n : reset, after ? f->inner + place * n : h, d + n, n);
        if (after) {
            memcpy(product, d, (size_t)(2 * n) * sizeof(float));
            multiply(d + 2 * n, g + n, product + 2 * n, n);
        } else {
            add_multiple(reset, g + n, r->next + i * room, n);
            multiply(g + n, h, r->active + i * room, n);
        }
    }
}

static void back_row(const Rows *r, int64_t s, int i) {
    const Fast *f = r->f;
    int64_t n = f->n, at = i * f->n_room, place = place_of(r, i, s);
    const float *g = f->gates + place * f->width;
    float *dh = r->dh + at, *d = r->d + i * f->width_room;
    if (f->given[0]) add_row(dh, f->given[0] + of_y(r, i, s) * n, n);
    if (f->net->cell == CELL_LSTM) {
        memcpy(r->active + at, f->inner + place * n, (size_t)n * sizeof(float));
        f->isa->tanhs(r->active + at, n);
        back_lstm(g, cell_before(r, i, s), r->active + at, dh, r->dc + at, d, n);
    } else if (f->net->cell == CELL_GRU) {
        back_gru(g, state_before(r, i, s), dh, d, r->next + at, n);
    } else {
        back_rnn(g, dh, d, n);
    }
}

static void back_step(const Rows *r, int64_t s) {
    const Fast *f = r->f;
    int64_t n = f->n, wide = f->width_room, room = f->n_room;
    bool gru = f->net->cell == CELL_GRU, after = gru && f->net->linear_before_reset;
    const float *product = after ? r->product : r->d;
    memset(r->next, 0, (size_t)(f->rows * room) * sizeof(float));
    for (int i = 0; i < r->count; i++) {
        if (!is_over(r, i, s)) {
            back_row(r, s, i);
            continue;
        }
        memset(r->d + i * wide, 0, (size_t)wide * sizeof(float));
        memset(r->product + i * wide, 0, (size_t)wide * sizeof(float));
        memcpy(r->next + i * room, r->dh + i * room, (size_t)n * sizeof(float));
    }
    if (gru) back_third_gate(r, s);
    add_product(r, r->next, product, 0, gru && !after ? 2 * n : f->width);
    memcpy(r->dh, r->next, (size_t)(f->rows * room) * sizeof(float));
    for (int i = 0; i < r->count; i++) {
        if (is_over(r, i, s)) continue;
        int64_t place = place_of(r, i, s);
        store(r, 0, place, r->d + i * wide, f->width);
        store(r, 1, place, product + i * wide, f->width);
        store(r, 2, place, state_before(r, i, s), n);
        store(r, 3, place, r->active + i * room, n);
    }
}

/* ---- rows ---- */

static void start_from(const Rows *r, float *to, const float *from) {
    memset(to, 0, (size_t)(r->f->rows * r->f->n_room) * sizeof(float));
    for (int i = 0; from && i < r->count; i++)
        memcpy(to + i * r->f->n_room, initial(r, i, from), (size_t)r->f->n * sizeof(float));
}

static int64_t scratch_size(const Fast *f) { return f->rows * (2 * f->width_room + 5 * f->n_room) + f->n_room; }

static void run_rows(void *context, int64_t begin, int64_t end, int worker) {
    const Fast *f = context;
    const Net *net = f->net;
    int64_t blocks = (net->batch + f->rows - 1) / f->rows, state = f->rows * f->n_room;
    Rows r = {.f = f, .d = f->scratch + worker * f->scratch_size};
    r.product = r.d + f->rows * f->width_room;
    r.dh = r.product + f->rows * f->width_room;
    r.dc = r.dh + state;
    r.next = r.dc + state;
    r.reset = r.next + state;
    r.active = r.reset + state;
    r.none = r.active + state;
    for (int64_t b = begin; b < end && !pool_is_stopped(); b++) {
        r.direction = (int)(b / blocks);
        r.first = b % blocks * f->rows;
        r.count = (int)(net->batch - r.first < f->rows ? net->batch - r.first : f->rows);
        r.steps = 0;
        for (int i = 0; i < r.count; i++) {
            r.lengths[i] = recurrent_length(net, r.first + i);
            if (r.lengths[i] > r.steps) r.steps = r.lengths[i];
        }
        r.weights = f->weights + r.direction * f->width * f->n_room;
        start_from(&r, r.dh, f->given[1]);
        start_from(&r, r.dc, f->given[2]);
        for (int64_t s = r.steps - 1; s >= 0; s--) back_step(&r, s);
        for (int i = 0; i < r.count; i++) {
            store(&r, 4, of_state(&r, i), r.dh + i * f->n_room, f->n);
            store(&r, 5, of_state(&r, i), r.dc + i * f->n_room, f->n);
        }
    }
}

/* ---- all of it ---- */

static const float *floats(const Tensor *tensor) { return tensor ? tensor->data : NULL; }

static const float *laid_out(const Fast *f) {
    float *weights = ARENA_ARRAY(f->net->arena, float, f->net->directions * f->width * f->n_room);
    for (int64_t row = 0; row < f->net->directions * f->width; row++) {
        int64_t stride, from = recurrent_packed_row(f->net, row, &stride);
        const float *packed = (const float *)f->net->weights->data + from;
        float *direction = weights + row / f->width * f->width * f->n_room;
        for (int64_t k = 0; k < f->n; k++) {
            int64_t at = k / COLUMNS * COLUMNS, columns = f->n_room - at < COLUMNS ? f->n_room - at : COLUMNS;
            direction[at * f->width + row % f->width * columns + k - at] = packed[k * stride];
        }
    }
    return weights;
}

static int64_t rows_of(const Net *net) {
    int64_t threads = pool_threads(net->pool), share = (net->batch * net->directions + threads - 1) / threads;
    return share > MOST_ROWS ? MOST_ROWS : (share + ROWS - 1) / ROWS * ROWS;
}

void recurrent_back_fast(const Net *net, const Tensor *const *given, const Tensor *y, const Tensor *inner,
                         Tensor *const *results) {
    int64_t n = net->hidden, width = net->gates * n;
    Fast f = {.net = net,
              .isa = recurrent_isa(),
              .rows = rows_of(net),
              .n = n,
              .width = width,
              .n_room = whole_pieces(n),
              .width_room = whole_pieces(width),
              .gates = floats(net->projection),
              .y = floats(y),
              .inner = floats(inner),
              .h0 = floats(net->h0),
              .c0 = floats(net->c0),
              .given = {floats(given[0]), floats(given[1]), floats(given[2])},
              .results = results};
    f.weights = laid_out(&f);
    f.scratch_size = scratch_size(&f);
    f.scratch = arena_array(net->arena, (size_t)pool_threads(net->pool), (size_t)f.scratch_size * sizeof(float));
    pool_for(net->pool, net->directions * ((net->batch + f.rows - 1) / f.rows), 1, run_rows, &f);
}
