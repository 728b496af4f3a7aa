/* SPDX-License-Identifier: Apache-2.0 */
/* Recurrent nets: RNN, GRU, LSTM. The projection of all time steps, X * W^T with every bias that does not depend on the
 * state, is a matmul; the recurrence is a host kernel over the packed recurrent weights.
 *
 * Packed weights: [direction, gate, panel, hidden, PANEL], panel p of a gate holding its rows p*PANEL .. of R, so that
 * one step reads them front to back: gates[p] += h[k] * panel[k] for k = 0 .. hidden-1. Gates, states and biases in
 * scratch memory are padded to whole panels with zeros.
 *
 * The kernel's inputs: projection [T, B, D * G * H], packed weights, sequence_lens [B], initial h [D, B, H], initial c,
 * peepholes [D, 3 * H] (LSTM), recurrent bias of the hidden gate [D, H] (GRU with linear_before_reset); all but the
 * first two may be NULL. Outputs: Y [T, D, B, H], Y_h [D, B, H], Y_c [D, B, H]. Directions and batch rows are
 * independent and run in parallel; a lone one of large weights shares out the panels of each step. */
#include "ops/families.h"

#include <math.h>

#include "lowering/build.h"
#include "base/plain.h"

enum {
    PANEL = 64, /* columns of a panel: four vectors of 16 floats, enough independent sums to hide the latency of FMA */
    LANES = 16,
    ROWS = 4, /* batch rows that share one reading of a panel */
    /* Weights (elements) of one step from which its panels are shared out among threads: below 1 MiB a step is over
     * sooner than threads are woken. */
    SHARED_STEP = 1 << 18,
    MOST_FUNCTIONS = 6,
};

typedef enum Cell { CELL_RNN, CELL_GRU, CELL_LSTM } Cell;

static const struct CellInfo {
    const char *name;
    int gates, functions; /* gates of W and R; activation functions a direction */
} cells[] = {{"RNN", 1, 1}, {"GRU", 3, 2}, {"LSTM", 4, 3}};

/* ---- activation functions ---- */

typedef enum Activation {
    ACT_RELU,
    ACT_TANH,
    ACT_SIGMOID,
    ACT_AFFINE,
    ACT_LEAKY_RELU,
    ACT_THRESHOLDED_RELU,
    ACT_SCALED_TANH,
    ACT_HARD_SIGMOID,
    ACT_ELU,
    ACT_SOFTSIGN,
    ACT_SOFTPLUS,
    ACT_COUNT,
} Activation;

/* In the order of Activation: name, how many of alpha and beta it takes from the lists, and their defaults. */
static const struct ActivationInfo {
    const char *name;
    int alphas, betas;
    double alpha, beta;
} activations[ACT_COUNT] = {
    {"Relu", 0, 0, 0, 0},         {"Tanh", 0, 0, 0, 0},
    {"Sigmoid", 0, 0, 0, 0},      {"Affine", 1, 1, 1, 0},
    {"LeakyRelu", 1, 0, 0.01, 0}, {"ThresholdedRelu", 1, 0, 1, 0},
    {"ScaledTanh", 1, 1, 1, 1},   {"HardSigmoid", 1, 1, 0.2, 0.5},
    {"Elu", 1, 0, 1, 0},          {"Softsign", 0, 0, 0, 0},
    {"Softplus", 0, 0, 0, 0},
};

typedef struct Function {
    Activation kind;
    double alpha, beta;
} Function;

static double apply(const Function *f, double x) {
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

static bool find_activation(StringView name, Activation *out_kind) {
    for (int i = 0; i < ACT_COUNT; i++) {
        if (!plain_equal(name.data, name.size, activations[i].name)) continue;
        *out_kind = (Activation)i;
        return true;
    }
    return false;
}

/* ---- one step of the recurrence in f32 ---- */

#if defined(__x86_64__) && defined(__GLIBC__) && !defined(__clang__) && !defined(__SANITIZE_ADDRESS__) &&              \
    !defined(__SANITIZE_THREAD__)
#define FOR_EACH_ISA __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define FOR_EACH_ISA
#endif

typedef float Lanes __attribute__((vector_size(64)));
typedef float LanesAt __attribute__((vector_size(64), aligned(4), may_alias)); /* in memory */

#define LOAD(at) (*(const LanesAt *)(at))
#define STORE(at, value) (*(LanesAt *)(at) = (value))
#ifdef __clang__
#define UNROLLED _Pragma("clang loop unroll(full)")
#else
#define UNROLLED _Pragma("GCC unroll 8")
#endif

/* gates[r][0 .. PANEL) += sum over k of h[r][k] * panel[k][0 .. PANEL) for `rows` (a constant) rows; the sums stay in
 * registers. */
#define PANEL_STEP(rows)                                                                                               \
    do {                                                                                                               \
        Lanes sum[rows][PANEL / LANES];                                                                                \
        UNROLLED for (int r = 0; r < (rows); r++) UNROLLED for (int v = 0; v < PANEL / LANES; v++) sum[r][v] =         \
            LOAD(gates + r * gate_stride + v * LANES);                                                                 \
        for (int64_t k = 0; k < hidden; k++) UNROLLED for (int v = 0; v < PANEL / LANES; v++) {                        \
                Lanes weight = LOAD(panel + k * PANEL + v * LANES);                                                    \
                UNROLLED for (int r = 0; r < (rows); r++) sum[r][v] += h[r * h_stride + k] * weight;                   \
            }                                                                                                          \
        UNROLLED for (int r = 0; r < (rows); r++) UNROLLED for (int v = 0; v < PANEL / LANES; v++)                     \
            STORE(gates + r * gate_stride + v * LANES, sum[r][v]);                                                     \
    } while (0)

FOR_EACH_ISA static void panel_rows(float *gates, int64_t gate_stride, const float *h, int64_t h_stride, int rows,
                                    const float *panel, int64_t hidden) {
    for (; rows >= ROWS; rows -= ROWS, gates += ROWS * gate_stride, h += ROWS * h_stride) PANEL_STEP(ROWS);
    for (; rows >= 1; rows--, gates += gate_stride, h += h_stride) PANEL_STEP(1);
}

typedef struct StepGemm {
    float *gates;
    const float *h, *panels;
    int64_t gate_stride, h_stride, hidden;
    int rows;
} StepGemm;

static void step_panels(void *context, int64_t begin, int64_t end, int worker) {
    (void)worker;
    const StepGemm *g = context;
    for (int64_t p = begin; p < end; p++)
        panel_rows(g->gates + p * PANEL, g->gate_stride, g->h, g->h_stride, g->rows, g->panels + p * PANEL * g->hidden,
                   g->hidden);
}

/* The functions below have no branch and no call, so that loops over them are vectorised. */
#define INLINE static inline __attribute__((always_inline))

/* 2^n * exp(r), |r| <= ln 2 / 2, by a polynomial of degree 5 (coefficients of Cephes' expf, S. Moshier). */
INLINE float quick_exp(float x) {
    x = x > 88.0f ? 88.0f : x;
    x = x < -87.0f ? -87.0f : x;
    float n = (x * 1.44269504088896341f + 12582912.0f) - 12582912.0f; /* rounded: the bits below 1 fall off */
    float r = x - n * 0.693359375f + n * 2.12194440e-4f;
    float p = r * 1.9875691500e-4f + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = p * r * r + r + 1.0f;
    union {
        int32_t bits;
        float value;
    } power = {(int32_t)((uint32_t)((int32_t)n + 127) << 23)};
    return p * power.value;
}

INLINE float quick_sigmoid(float x) { return 1.0f / (1.0f + quick_exp(-x)); }

/* An odd polynomial near zero (coefficients of Cephes' tanhf), else 1 - 2 / (exp(2x) + 1). */
INLINE float quick_tanh(float x) {
    float square = x * x, far = 1.0f - 2.0f / (quick_exp(2.0f * x) + 1.0f);
    float near = square * -5.70498872745e-3f + 2.06390887954e-2f;
    near = near * square - 5.37397155531e-2f;
    near = near * square + 1.33314422036e-1f;
    near = near * square - 3.33332819422e-1f;
    near = near * square * x + x;
    return square < 0.390625f ? near : far;
}

INLINE float quick_clip(float x, float limit) {
    x = x > limit ? limit : x;
    return x < -limit ? -limit : x;
}

/* i, o, f, c = gates; the state's formulas are ONNX LSTM's with f = sigmoid, g = h = tanh. Without peepholes and
 * coupled gates: */
FOR_EACH_ISA static void lstm_row(const float *restrict gates, float *restrict h, float *restrict c, int64_t width,
                                  float limit) {
    const float *restrict i = gates, *restrict o = gates + width, *restrict f = gates + 2 * width,
                          *restrict g = gates + 3 * width;
    for (int64_t j = 0; j < width; j++)
        c[j] = quick_sigmoid(quick_clip(f[j], limit)) * c[j] +
               quick_sigmoid(quick_clip(i[j], limit)) * quick_tanh(quick_clip(g[j], limit));
    for (int64_t j = 0; j < width; j++) h[j] = quick_sigmoid(quick_clip(o[j], limit)) * quick_tanh(c[j]);
}

/* With them; peepholes [3 * width] in the order i, o, f, zeros where there are none. */
FOR_EACH_ISA static void lstm_row_full(const float *restrict gates, float *restrict h, float *restrict c,
                                       const float *restrict peepholes, int64_t width, float limit, bool coupled) {
    const float *restrict i = gates, *restrict o = gates + width, *restrict f = gates + 2 * width,
                          *restrict g = gates + 3 * width;
    for (int64_t j = 0; j < width; j++) {
        float open = quick_sigmoid(quick_clip(i[j] + peepholes[j] * c[j], limit));
        float keep = quick_sigmoid(quick_clip(f[j] + peepholes[2 * width + j] * c[j], limit));
        keep = coupled ? 1.0f - open : keep;
        c[j] = keep * c[j] + open * quick_tanh(quick_clip(g[j], limit));
    }
    for (int64_t j = 0; j < width; j++)
        h[j] = quick_sigmoid(quick_clip(o[j] + peepholes[width + j] * c[j], limit)) * quick_tanh(c[j]);
}

/* a = sigmoid(a). */
FOR_EACH_ISA static void sigmoid_row(float *a, int64_t width, float limit) {
    for (int64_t j = 0; j < width; j++) a[j] = quick_sigmoid(quick_clip(a[j], limit));
}

FOR_EACH_ISA static void product_row(const float *restrict a, const float *restrict b, float *restrict out,
                                     int64_t width) {
    for (int64_t j = 0; j < width; j++) out[j] = a[j] * b[j];
}

/* h = (1 - z) * tanh(x) + z * h. */
FOR_EACH_ISA static void gru_row(const float *restrict z, const float *restrict x, float *restrict h, int64_t width,
                                 float limit) {
    for (int64_t j = 0; j < width; j++) h[j] = (1.0f - z[j]) * quick_tanh(quick_clip(x[j], limit)) + z[j] * h[j];
}

/* h = (1 - z) * tanh(x + r * inner) + z * h. */
FOR_EACH_ISA static void gru_row_after(const float *restrict z, const float *restrict r, const float *restrict x,
                                       const float *restrict inner, float *restrict h, int64_t width, float limit) {
    for (int64_t j = 0; j < width; j++)
        h[j] = (1.0f - z[j]) * quick_tanh(quick_clip(x[j] + r[j] * inner[j], limit)) + z[j] * h[j];
}

FOR_EACH_ISA static void tanh_row(const float *restrict x, float *restrict h, int64_t width, float limit) {
    for (int64_t j = 0; j < width; j++) h[j] = quick_tanh(quick_clip(x[j], limit));
}

/* ---- the kernel's view of its inputs ---- */

typedef struct Net {
    Cell cell;
    DType dtype;                        /* f32 or f64 */
    int64_t time, batch, hidden, width; /* width: hidden in whole panels */
    int gates, directions;
    bool reverse[2];
    bool coupled, linear_before_reset;
    double limit;                       /* of clip; infinite when there is none */
    Function functions[MOST_FUNCTIONS]; /* [directions][cells.functions] */
    bool usual;                         /* the default activation functions */
    const Tensor *projection, *weights, *lengths, *h0, *c0, *peepholes, *bias;
    Tensor *y, *y_h, *y_c;
    Pool *pool;
    Arena *arena;
} Net;

static int64_t length_of(const Net *net, int64_t b) {
    return net->lengths ? dtype_load_int(net->lengths->dtype, net->lengths->data, b) : net->time;
}

static int64_t time_at(const Net *net, int direction, int64_t length, int64_t step) {
    return net->reverse[direction] ? length - 1 - step : step;
}

/* One direction of a block of batch rows, in f32 with the usual functions. */
typedef struct Block {
    const Net *net;
    int direction;
    int64_t first; /* batch row */
    int rows;
    float *gates;     /* [rows][gates * width] */
    float *inner;     /* [rows][width]: GRU: r * h, or R_h h + bias */
    float *h, *c;     /* [rows][width] */
    float *peepholes; /* [3 * width]; NULL without peepholes and coupled gates */
    float *bias;      /* [width] */
} Block;

static void step_gemm(const Block *b, float *gates, int64_t gate_stride, const float *h, int first_gate,
                      int gates_count) {
    const Net *net = b->net;
    int64_t per_gate = net->width * net->hidden, panels = gates_count * net->width / PANEL;
    const float *weights = (const float *)net->weights->data + (b->direction * net->gates + first_gate) * per_gate;
    StepGemm gemm = {gates, h, weights, gate_stride, net->width, net->hidden, b->rows};
    if (gates_count * per_gate >= SHARED_STEP)
        pool_for(net->pool, panels, 1, step_panels, &gemm);
    else
        step_panels(&gemm, 0, panels, 0);
}

/* The projections of this step's input into the gates of the rows that are still running. */
static void load_projection(const Block *b, int64_t step) {
    const Net *net = b->net;
    int64_t all = net->directions * net->gates * net->hidden;
    for (int r = 0; r < b->rows; r++) {
        int64_t length = length_of(net, b->first + r);
        if (step >= length) continue;
        int64_t t = time_at(net, b->direction, length, step);
        const float *from = (const float *)net->projection->data + (t * net->batch + b->first + r) * all +
                            (int64_t)b->direction * net->gates * net->hidden;
        for (int g = 0; g < net->gates; g++)
            memcpy(b->gates + (r * net->gates + g) * net->width, from + g * net->hidden,
                   (size_t)net->hidden * sizeof(float));
    }
}

static void store_state(const Block *b, int row, int64_t t) {
    const Net *net = b->net;
    if (!net->y) return;
    float *y =
        (float *)net->y->data + ((t * net->directions + b->direction) * net->batch + b->first + row) * net->hidden;
    memcpy(y, b->h + row * net->width, (size_t)net->hidden * sizeof *y);
}

static void run_step(const Block *b, int64_t step) {
    const Net *net = b->net;
    int64_t width = net->width, stride = net->gates * width;
    float limit = (float)net->limit;
    load_projection(b, step);
    bool gru = net->cell == CELL_GRU, before = net->linear_before_reset;
    step_gemm(b, b->gates, stride, b->h, 0, gru ? 2 : net->gates);
    if (gru && before) {
        for (int r = 0; r < b->rows; r++) memcpy(b->inner + r * width, b->bias, (size_t)width * sizeof(float));
        step_gemm(b, b->inner, width, b->h, 2, 1);
    }
    for (int r = 0; gru && r < b->rows; r++) {
        float *row = b->gates + r * stride;
        sigmoid_row(row, 2 * width, limit);
        if (!before) product_row(row + width, b->h + r * width, b->inner + r * width, width);
    }
    if (gru && !before) step_gemm(b, b->gates + 2 * width, stride, b->inner, 2, 1);
    for (int r = 0; r < b->rows; r++) {
        int64_t length = length_of(net, b->first + r);
        if (step >= length) continue;
        float *row = b->gates + r * stride, *h = b->h + r * width;
        if (net->cell == CELL_RNN)
            tanh_row(row, h, width, limit);
        else if (gru && before)
            gru_row_after(row, row + width, row + 2 * width, b->inner + r * width, h, width, limit);
        else if (gru)
            gru_row(row, row + 2 * width, h, width, limit);
        else if (b->peepholes)
            lstm_row_full(row, h, b->c + r * width, b->peepholes, width, limit, net->coupled);
        else
            lstm_row(row, h, b->c + r * width, width, limit);
        store_state(b, r, time_at(net, b->direction, length, step));
    }
}

/* Y is zero after a sequence's end. */
static void clear_tail(const Net *net, int direction, int64_t row) {
    size_t bytes = (size_t)net->hidden * dtype_size(net->dtype);
    for (int64_t t = length_of(net, row); net->y && t < net->time; t++)
        memset((char *)net->y->data + (size_t)((t * net->directions + direction) * net->batch + row) * bytes, 0, bytes);
}

static void run_blocks(void *context, int64_t begin, int64_t end, int worker) {
    (void)worker;
    for (int64_t i = begin; i < end; i++) {
        const Block *b = (const Block *)context + i;
        const Net *net = b->net;
        int64_t steps = 0;
        for (int r = 0; r < b->rows; r++) {
            int64_t length = length_of(net, b->first + r);
            if (length > steps) steps = length;
            clear_tail(net, b->direction, b->first + r);
        }
        for (int64_t s = 0; s < steps && !pool_is_stopped(); s++) run_step(b, s);
        size_t bytes = (size_t)net->hidden * sizeof(float);
        for (int r = 0; r < b->rows; r++) {
            int64_t at = (b->direction * net->batch + b->first + r) * net->hidden;
            if (net->y_h) memcpy((float *)net->y_h->data + at, b->h + r * net->width, bytes);
            if (net->y_c) memcpy((float *)net->y_c->data + at, b->c + r * net->width, bytes);
        }
    }
}

static void load_rows(float *to, const Net *net, const Tensor *from, int64_t first, int64_t count) {
    for (int64_t i = 0; from && i < count; i++)
        memcpy(to + i * net->width, (const float *)from->data + (first + i) * net->hidden,
               (size_t)net->hidden * sizeof(float));
}

static void fill_block(const Net *net, Block *b) {
    int64_t width = net->width;
    b->gates = ARENA_ARRAY(net->arena, float, b->rows * net->gates * width);
    b->inner = net->cell == CELL_GRU ? ARENA_ARRAY(net->arena, float, b->rows *width) : NULL;
    b->h = ARENA_ARRAY(net->arena, float, b->rows *width);
    b->c = ARENA_ARRAY(net->arena, float, b->rows *width);
    b->bias = ARENA_ARRAY(net->arena, float, width);
    load_rows(b->h, net, net->h0, b->direction * net->batch + b->first, b->rows);
    load_rows(b->c, net, net->c0, b->direction * net->batch + b->first, b->rows);
    load_rows(b->bias, net, net->bias, b->direction, 1);
    if (!net->peepholes && !net->coupled) return;
    b->peepholes = ARENA_ARRAY(net->arena, float, 3 * width);
    load_rows(b->peepholes, net, net->peepholes, 3 * b->direction, 3);
}

static void run_usual(const Net *net) {
    int64_t threads = pool_threads(net->pool), rows = (net->batch * net->directions + threads - 1) / threads;
    rows = (rows + ROWS - 1) / ROWS * ROWS;
    int64_t blocks = (net->batch + rows - 1) / rows, count = blocks * net->directions;
    Block *list = ARENA_ARRAY(net->arena, Block, count);
    for (int64_t i = 0; i < count; i++) {
        int64_t first = i % blocks * rows, left = net->batch - first;
        list[i] = (Block){
            .net = net, .direction = (int)(i / blocks), .first = first, .rows = (int)(left < rows ? left : rows)};
        fill_block(net, &list[i]);
    }
    if (count == 1)
        run_blocks(list, 0, 1, 0);
    else
        pool_for(net->pool, count, 1, run_blocks, list);
}

/* ---- the same in double precision, for f64 and for other activation functions: plain loops ---- */

static double *doubles_of(const Net *net, const Tensor *tensor) {
    if (!tensor) return NULL;
    int64_t count = tensor_count(tensor);
    double *values = ARENA_ARRAY(net->arena, double, count);
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
    const double *panel = p->weights + (direction * net->gates + gate) * net->width * net->hidden +
                          row / PANEL * PANEL * net->hidden + row % PANEL;
    double sum = 0;
    for (int64_t k = 0; k < net->hidden; k++) sum += h[k] * panel[k * PANEL];
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
        double i = apply(&f[0], clipped(net, p->gates[j] + (hole ? hole[j] * cell : 0)));
        double forget = apply(&f[0], clipped(net, p->gates[2 * n + j] + (hole ? hole[2 * n + j] * cell : 0)));
        if (net->coupled) forget = 1 - i;
        cell = forget * cell + i * apply(&f[1], clipped(net, p->gates[3 * n + j]));
        p->c[j] = cell;
        double o = apply(&f[0], clipped(net, p->gates[n + j] + (hole ? hole[n + j] * cell : 0)));
        p->inner[j] = o * apply(&f[2], cell);
    }
    memcpy(p->h, p->inner, (size_t)n * sizeof *p->h);
}

static void plain_gru(const Plain *p, int direction, const Function *f) {
    const Net *net = p->net;
    int64_t n = net->hidden;
    double *z = p->gates, *r = p->gates + n, *x = p->gates + 2 * n;
    for (int64_t j = 0; j < n; j++) {
        z[j] = apply(&f[0], clipped(net, z[j]));
        r[j] = apply(&f[0], clipped(net, r[j]));
        p->inner[j] = r[j] * p->h[j];
    }
    for (int64_t j = 0; j < n; j++) {
        double recurrent = recurrent_dot(p, direction, 2, j, net->linear_before_reset ? p->h : p->inner);
        if (net->linear_before_reset) recurrent = r[j] * (recurrent + (p->bias ? p->bias[direction * n + j] : 0));
        x[j] = apply(&f[1], clipped(net, x[j] + recurrent));
    }
    for (int64_t j = 0; j < n; j++) p->h[j] = (1 - z[j]) * x[j] + z[j] * p->h[j];
}

static void plain_step(const Plain *p, int direction, int64_t row, int64_t t) {
    const Net *net = p->net;
    int64_t n = net->hidden;
    const double *x = p->projection + ((t * net->batch + row) * net->directions + direction) * net->gates * n;
    const Function *f = net->functions + direction * cells[net->cell].functions;
    int recurrent = net->cell == CELL_GRU ? 2 : net->gates;
    for (int g = 0; g < net->gates; g++)
        for (int64_t j = 0; j < n; j++)
            p->gates[g * n + j] = x[g * n + j] + (g < recurrent ? recurrent_dot(p, direction, g, j, p->h) : 0);
    if (net->cell == CELL_LSTM)
        plain_lstm(p, direction, f);
    else if (net->cell == CELL_GRU)
        plain_gru(p, direction, f);
    else
        for (int64_t j = 0; j < n; j++) p->h[j] = apply(&f[0], clipped(net, p->gates[j]));
    for (int64_t j = 0; net->y && j < n; j++)
        dtype_store_double(net->dtype, net->y->data, ((t * net->directions + direction) * net->batch + row) * n + j,
                           p->h[j]);
}

static void run_plain(const Net *net) {
    int64_t n = net->hidden;
    Plain p = {net,
               doubles_of(net, net->projection),
               doubles_of(net, net->weights),
               doubles_of(net, net->h0),
               doubles_of(net, net->c0),
               doubles_of(net, net->peepholes),
               doubles_of(net, net->bias),
               ARENA_ARRAY(net->arena, double, net->gates *n),
               ARENA_ARRAY(net->arena, double, n),
               ARENA_ARRAY(net->arena, double, n),
               ARENA_ARRAY(net->arena, double, n)};
    for (int direction = 0; direction < net->directions; direction++)
        for (int64_t row = 0; row < net->batch; row++) {
            int64_t at = (direction * net->batch + row) * n, length = length_of(net, row);
            for (int64_t j = 0; j < n; j++) p.h[j] = p.h0 ? p.h0[at + j] : 0, p.c[j] = p.c0 ? p.c0[at + j] : 0;
            clear_tail(net, direction, row);
            for (int64_t s = 0; s < length; s++) plain_step(&p, direction, row, time_at(net, direction, length, s));
            for (int64_t j = 0; j < n; j++) {
                if (net->y_h) dtype_store_double(net->dtype, net->y_h->data, at + j, p.h[j]);
                if (net->y_c) dtype_store_double(net->dtype, net->y_c->data, at + j, p.c[j]);
            }
        }
}

/* ---- the host kernel ---- */

static Status check_shape(const HostCall *call, const Tensor *tensor, const char *name, DType dtype, int rank,
                          const int64_t *dims) {
    bool fits = !tensor || (tensor->rank == rank && tensor->dtype == dtype);
    for (int i = 0; tensor && fits && i < rank; i++) fits = tensor->dims[i] == dims[i];
    return fits ? NULL : host_error(call, "%s does not have the shape or type that the other inputs ask for", name);
}

static void read_functions(const Node *node, Net *net) {
    int count;
    const int64_t *kinds = attr_ints(node, "function_kinds", &count);
    const Attr *scales = node_attr(node, "function_scales");
    net->usual = net->dtype == DT_F32;
    for (int i = 0; i < count && i < MOST_FUNCTIONS; i++) {
        net->functions[i] = (Function){(Activation)kinds[i], scales->floats[2 * i], scales->floats[2 * i + 1]};
        bool gate = net->cell != CELL_RNN && i % cells[net->cell].functions == 0;
        net->usual &= net->functions[i].kind == (gate ? ACT_SIGMOID : ACT_TANH);
    }
}

static Status read_net(HostCall *call, Net *net) {
    const Node *node = call->node;
    net->cell = (Cell)attr_int(node, "cell", 0);
    net->gates = cells[net->cell].gates;
    net->hidden = attr_int(node, "hidden_size", 0);
    net->directions = (int)attr_int(node, "directions", 1);
    net->reverse[0] = attr_int(node, "reverse_first", 0) != 0;
    net->reverse[1] = true;
    net->width = (net->hidden + PANEL - 1) / PANEL * PANEL;
    double clip_at = attr_float(node, "clip", 0);
    net->limit = clip_at > 0 ? clip_at : INFINITY;
    net->coupled = attr_int(node, "input_forget", 0) != 0;
    net->linear_before_reset = attr_int(node, "linear_before_reset", 0) != 0;
    net->projection = host_input(call, 0);
    net->weights = host_input(call, 1);
    net->lengths = host_input(call, 2);
    net->h0 = host_input(call, 3);
    net->c0 = host_input(call, 4);
    net->peepholes = host_input(call, 5);
    net->bias = host_input(call, 6);
    if (!net->projection || net->projection->rank != 3 || !net->weights) return host_error(call, "inputs are missing");
    net->dtype = net->projection->dtype;
    net->time = net->projection->dims[0];
    net->batch = net->projection->dims[1];
    int64_t d = net->directions, hidden = net->hidden, state[] = {d, net->batch, hidden}, holes[] = {d, 3 * hidden};
    int64_t packed[] = {d, net->gates, net->width / PANEL, hidden, PANEL}, bias[] = {d, hidden};
    int64_t projected[] = {net->time, net->batch, d * net->gates * hidden};
    TRY(check_shape(call, net->projection, "W", net->dtype, 3, projected));
    TRY(check_shape(call, net->weights, "R", net->dtype, 5, packed));
    TRY(check_shape(call, net->h0, "initial_h", net->dtype, 3, state));
    TRY(check_shape(call, net->c0, "initial_c", net->dtype, 3, state));
    TRY(check_shape(call, net->peepholes, "P", net->dtype, 2, holes));
    TRY(check_shape(call, net->bias, "B", net->dtype, 2, bias));
    TRY(check_shape(call, net->lengths, "sequence_lens", DT_I32, 1, &net->batch));
    for (int64_t b = 0; net->lengths && b < net->batch; b++)
        if (length_of(net, b) < 0 || length_of(net, b) > net->time)
            return host_error(call, "sequence_lens[%lld] is %lld, and there are %lld time steps", (long long)b,
                              (long long)length_of(net, b), (long long)net->time);
    read_functions(node, net);
    return NULL;
}

static Status host_recurrent(HostCall *call) {
    Net net = {.pool = call->pool, .arena = call->arena};
    TRY(read_net(call, &net));
    int64_t all[] = {net.time, net.directions, net.batch, net.hidden};
    TRY(host_output(call, 0, net.dtype, 4, all, &net.y));
    TRY(host_output(call, 1, net.dtype, 3, all + 1, &net.y_h));
    if (net.cell == CELL_LSTM) TRY(host_output(call, 2, net.dtype, 3, all + 1, &net.y_c));
    if (net.batch == 0) return NULL;
    if (net.usual)
        run_usual(&net);
    else
        run_plain(&net);
    return NULL;
}

/* ---- lowering ---- */

static Status set_functions(Lowering *l, const Node *n, Node *host, Cell cell, int directions) {
    int count = cells[cell].functions * directions, alpha_at = 0, beta_at = 0;
    const Attr *names = node_attr(n, "activations"), *alphas = node_attr(n, "activation_alpha"),
               *betas = node_attr(n, "activation_beta");
    if (names && names->count == 0) names = NULL;
    if (names && (names->kind != ATTR_STRINGS || names->count != count))
        return invalid(l, "activations has %d names where %d are needed", names->count, count);
    int64_t *kinds = ARENA_ARRAY(l->arena, int64_t, count);
    float *scales = ARENA_ARRAY(l->arena, float, 2 * count);
    for (int i = 0; i < count; i++) {
        bool gate = cell != CELL_RNN && i % cells[cell].functions == 0;
        Activation kind = gate ? ACT_SIGMOID : ACT_TANH;
        if (names && !find_activation(names->strings[i], &kind))
            return unsupported(l, "activation function \"%.*s\"", (int)names->strings[i].size, names->strings[i].data);
        const struct ActivationInfo *info = &activations[kind];
        bool has_alpha = info->alphas && alphas && alphas->kind == ATTR_FLOATS && alpha_at < alphas->count;
        bool has_beta = info->betas && betas && betas->kind == ATTR_FLOATS && beta_at < betas->count;
        kinds[i] = kind;
        scales[2 * i] = has_alpha ? alphas->floats[alpha_at++] : (float)info->alpha;
        scales[2 * i + 1] = has_beta ? betas->floats[beta_at++] : (float)info->beta;
    }
    node_set_ints(host, "function_kinds", kinds, count);
    node_set_attr(host, (Attr){.name = "function_scales", .kind = ATTR_FLOATS, .count = 2 * count, .floats = scales});
    return NULL;
}

/* [D, G * H, H] -> [D, G, H padded / PANEL, H, PANEL]. */
static Value *pack_weights(Lowering *l, Value *r, int64_t directions, int64_t gates, int64_t hidden) {
    int64_t width = (hidden + PANEL - 1) / PANEL * PANEL;
    const Dim *zero = dim_const(l->dims, 0), *d = dim_const(l->dims, directions), *g = dim_const(l->dims, gates);
    const Dim *h = dim_const(l->dims, hidden), *none[] = {zero, zero, zero, zero};
    r = reshape(l, r, (const Dim *const[]){d, g, h, h}, 4);
    r = permute(l, r, (int[]){0, 1, 3, 2});
    const Dim *after[] = {zero, zero, zero, dim_const(l->dims, width - hidden)};
    if (width > hidden) r = pad(l, r, none, after, r ? like(l, r, 0) : NULL);
    const Dim *split[] = {d, g, h, dim_const(l->dims, width / PANEL), dim_const(l->dims, PANEL)};
    return permute(l, reshape(l, r, split, 5), (int[]){0, 1, 3, 2, 4});
}

static Value *part(Lowering *l, Value *x, int axis, int64_t start, int64_t size) {
    return slice_axis(l, x, axis, dim_const(l->dims, start), dim_const(l->dims, size));
}

/* B is [D, Wb, Rb], G * H each. The sum of what does not depend on the state, [D * G * H]; GRU with linear_before_reset
 * keeps the hidden gate's recurrent bias apart, [D, H]. */
static Value *input_bias(Lowering *l, Value *b, int64_t directions, int64_t gates, int64_t hidden, Value **apart) {
    int64_t size = gates * hidden;
    Value *w = part(l, b, 1, 0, size), *r = part(l, b, 1, size, size);
    if (apart) {
        *apart = part(l, r, 1, 2 * hidden, hidden);
        const Dim *zero = dim_const(l->dims, 0), *none[] = {zero, zero}, *after[] = {zero, dim_const(l->dims, hidden)};
        r = pad(l, part(l, r, 1, 0, 2 * hidden), none, after, r ? like(l, r, 0) : NULL);
    }
    const Dim *flat = dim_const(l->dims, directions * size);
    return reshape(l, add(l, w, r), &flat, 1);
}

/* Asked for, and read by something. */
static bool is_needed(const Node *n, int index) { return wants_output(n, index) && value_is_read(n->outputs[index]); }

static Value *widened(Lowering *l, const Node *n, int index) {
    Value *x = optional_in(l, n, index);
    return x ? widen(l, x) : NULL;
}

/* initial_h and initial_c: [B, D, H] with layout 1. */
static Value *initial_state(Lowering *l, const Node *n, int index, bool batch_first) {
    Value *x = widened(l, n, index);
    if (!x || !batch_first) return x;
    if (x->rank != 3) {
        invalid(l, "input %d has %d axes where 3 are needed", index, x->rank);
        return NULL;
    }
    return permute(l, x, (int[]){1, 0, 2});
}

static Status lower_recurrent(Lowering *l, const Node *n, Cell cell) {
    const char *direction = attr_string(n, "direction", "forward");
    size_t length = strlen(direction);
    bool both = plain_equal(direction, length, "bidirectional"), reverse = plain_equal(direction, length, "reverse");
    if (!both && !reverse && !plain_equal(direction, length, "forward"))
        return invalid(l, "direction \"%s\"", direction);
    bool batch_first = attr_int(n, "layout", 0) != 0;
    int64_t directions = both ? 2 : 1, gates = cells[cell].gates, hidden;
    Value *x = in(l, n, 0), *w = in(l, n, 1), *r = in(l, n, 2);
    if (l->error) return l->error;
    if (x->rank != 3 || w->rank != 3 || r->rank != 3) return invalid(l, "X, W and R need 3 axes");
    if (!dim_is_const(r->dims[2], &hidden) && (hidden = attr_int(n, "hidden_size", 0)) <= 0)
        return unsupported(l, "a hidden size known only at run time");
    if (hidden <= 0 || hidden > (1 << 24)) return invalid(l, "hidden size %lld", (long long)hidden);
    const Dim *rows = dim_const(l->dims, directions * gates * hidden);

    x = widen(l, x);
    if (batch_first) x = permute(l, x, (int[]){1, 0, 2});
    w = reshape(l, widen(l, w), (const Dim *const[]){rows, w->dims[2]}, 2);
    Value *projection = matmul(l, x, swap_last(l, w)), *bias = widened(l, n, 3), *apart = NULL;
    bool keep_apart = cell == CELL_GRU && attr_int(n, "linear_before_reset", 0) != 0;
    if (bias)
        projection = add(l, projection, input_bias(l, bias, directions, gates, hidden, keep_apart ? &apart : NULL));
    Value *inputs[] = {projection,
                       pack_weights(l, widen(l, r), directions, gates, hidden),
                       optional_in(l, n, 4),
                       initial_state(l, n, 5, batch_first),
                       cell == CELL_LSTM ? initial_state(l, n, 6, batch_first) : NULL,
                       cell == CELL_LSTM ? widened(l, n, 7) : NULL,
                       apart};
    if (l->error) return l->error;

    Node *host = host_node(l, n, host_recurrent, inputs, 7);
    if (!host) return l->error;
    node_set_int(host, "cell", cell);
    node_set_int(host, "hidden_size", hidden);
    node_set_int(host, "directions", directions);
    node_set_int(host, "reverse_first", reverse);
    TRY(set_functions(l, n, host, cell, (int)directions));
    DType dtype = projection->dtype;
    const Dim *all[] = {projection->dims[0], dim_const(l->dims, directions), projection->dims[1],
                        dim_const(l->dims, hidden)};
    for (int i = 0; i < (cell == CELL_LSTM ? 3 : 2); i++) {
        if (!is_needed(n, i)) {
            node_attach_output(host, NULL);
            continue;
        }
        Value *y = i == 0 ? host_result(l, host, dtype, 4, all) : host_result(l, host, dtype, 3, all + 1);
        if (batch_first) y = permute(l, y, i == 0 ? (int[]){2, 0, 1, 3} : (int[]){1, 0, 2});
        TRY(out(l, n, i, cast_like(l, y, n->inputs[0])));
    }
    return NULL;
}

static Status lower_rnn(Lowering *l, const Node *n) { return lower_recurrent(l, n, CELL_RNN); }
static Status lower_gru(Lowering *l, const Node *n) { return lower_recurrent(l, n, CELL_GRU); }
static Status lower_lstm(Lowering *l, const Node *n) { return lower_recurrent(l, n, CELL_LSTM); }

const OpRow ops_recurrent[] = {
    {"", "RNN", 1, 0, lower_rnn, host_recurrent, 0},
    {"", "GRU", 1, 0, lower_gru, host_recurrent, 0},
    {"", "LSTM", 1, 0, lower_lstm, host_recurrent, 0},
    {0},
};
