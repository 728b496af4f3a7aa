/* SPDX-License-Identifier: Apache-2.0 */
/* Included once an instruction set: defines the RecurrentIsa recurrent_<ISA>. Wants ISA, ISA_TARGET, VECTOR_BYTES and
 * REGISTERS, as the tiles of products do. */
#include "ops/recurrent/recurrent_parts.h"

#include "base/vectors/vector_math.h" /* last: what follows is compiled for the set */

#define JOIN_(a, b) a##_##b
#define JOIN(a, b) JOIN_(a, b)
#define LOAD(at) (*(const VFLoose *)(at))
#define STORE(at, value) (*(VFLoose *)(at) = (value))

enum { LANES = VECTOR_BYTES / 4 };

/* ---- products: vectors [from, from + vectors) of the columns, in registers from the first k to the last ---- */

VECTOR_INLINE void add_up(const PanelProduct *m, int from, const int rows, const int vectors) {
    VF sums[ROWS][12];
    VECTOR_UNROLL
    for (int r = 0; r < rows; r++) {
        VECTOR_UNROLL
        for (int v = 0; v < vectors; v++) sums[r][v] = LOAD(m->sums + r * m->sums_stride + (from + v) * LANES);
    }
    const float *weights = m->weights + from * LANES, *h = m->h;
    int64_t h_stride = m->h_stride;
    for (int64_t k = 0; k < m->depth; k++, weights += m->stride) {
        VECTOR_UNROLL
        for (int v = 0; v < vectors; v++) {
            VF weight = LOAD(weights + v * LANES);
            VECTOR_UNROLL
            for (int r = 0; r < rows; r++) sums[r][v] += h[r * h_stride + k] * weight;
        }
    }
    VECTOR_UNROLL
    for (int r = 0; r < rows; r++) {
        VECTOR_UNROLL
        for (int v = 0; v < vectors; v++) STORE(m->sums + r * m->sums_stride + (from + v) * LANES, sums[r][v]);
    }
}

/* As many vectors as give a lone row eight sums or more, which hide the latency of FMA, and as registers hold; best the
 * whole panel, whose weights are then read one after the other. */
#define SLICES(rows, vectors)                                                                                          \
    for (; left >= (vectors); left -= (vectors), from += (vectors)) add_up(m, from, rows, vectors)

static void product(const PanelProduct *m) {
    int from = 0, left = m->columns / LANES;
    if (m->rows == 4) {
#if VECTOR_BYTES == 64
        if (left % 6 == 0) SLICES(4, 6);
#endif
#if REGISTERS == 32
        SLICES(4, 4);
#endif
        SLICES(4, 2);
    } else if (m->rows == 2) {
#if REGISTERS == 32
        SLICES(2, 8);
#endif
        SLICES(2, 4);
        SLICES(2, 2);
    } else {
#if VECTOR_BYTES == 64
        SLICES(1, 12);
#endif
        SLICES(1, 8);
        SLICES(1, 4);
        SLICES(1, 2);
    }
}

/* ---- states ---- */

VECTOR_INLINE VF clipped(const Block *b, VF x) { return f32_clamp(x, splat(-b->limit), splat(b->limit)); }
VECTOR_INLINE VF sigmoid_of(const Block *b, VF x) { return sigmoid_vector(clipped(b, x)); }
VECTOR_INLINE VF tanh_of(const Block *b, VF x) { return tanh_vector(clipped(b, x)); }

/* A row whose sequence is over keeps its state. */
VECTOR_INLINE void put_state(const Block *b, int r, int64_t unit, VF h) {
    int64_t at = r * b->width + unit;
    if (b->row[r].over) h = LOAD(b->h + at);
    STORE(b->next + at, h);
}

static void rnn_state(const Block *b, int r, int64_t unit, float *sums) {
    for (int u = 0; u < RNN_UNITS; u += LANES) {
        VF h = tanh_of(b, LOAD(sums + u));
        if (b->row[r].gates) STORE(sums + u, h);
        put_state(b, r, unit + u, h);
    }
}

/* i, o, f, g = gates; the state's formulas are ONNX LSTM's with f = sigmoid, g = h = tanh. */
VECTOR_INLINE void lstm_lanes(const Block *b, int r, int64_t unit, float *gates, const bool full) {
    int64_t at = r * b->width + unit;
    const float *hole = full ? b->peephole + unit : NULL;
    VF i = LOAD(gates), o = LOAD(gates + LSTM_UNITS), f = LOAD(gates + 2 * LSTM_UNITS), c = LOAD(b->c + at);
    if (full) {
        i += LOAD(hole) * c;
        f += LOAD(hole + 2 * b->width) * c;
    }
    i = sigmoid_of(b, i);
    f = full && b->net->coupled ? splat(1) - i : sigmoid_of(b, f);
    VF x = tanh_of(b, LOAD(gates + 3 * LSTM_UNITS));
    c = f * c + i * x;
    if (full) o += LOAD(hole + b->width) * c;
    o = sigmoid_of(b, o);
    if (b->row[r].gates) {
        STORE(gates, i);
        STORE(gates + LSTM_UNITS, o);
        STORE(gates + 2 * LSTM_UNITS, f);
        STORE(gates + 3 * LSTM_UNITS, x);
    }
    if (!b->row[r].over) STORE(b->c + at, c);
    put_state(b, r, unit, o * tanh_vector(c));
}

static void lstm_state(const Block *b, int r, int64_t unit, float *gates) {
    if (b->peephole)
        for (int u = 0; u < LSTM_UNITS; u += LANES) lstm_lanes(b, r, unit + u, gates + u, true);
    else
        for (int u = 0; u < LSTM_UNITS; u += LANES) lstm_lanes(b, r, unit + u, gates + u, false);
}

VECTOR_INLINE void gru_lanes(const Block *b, int r, int64_t unit, VF z, VF x) {
    put_state(b, r, unit, (splat(1) - z) * x + z * LOAD(b->h + r * b->width + unit));
}

/* z, r, inner = gates: h = (1 - z) * tanh(x + r * inner) + z * h with inner = R h + bias. */
static void gru_state_after(const Block *b, int r, int64_t unit, float *gates) {
    float input[GRU_UNITS];
    recurrent_input(b, r, 2, unit, input);
    for (int u = 0; u < GRU_UNITS; u += LANES) {
        VF z = sigmoid_of(b, LOAD(gates + u)), reset = sigmoid_of(b, LOAD(gates + GRU_UNITS + u)),
           inner = LOAD(gates + 2 * GRU_UNITS + u), x = tanh_of(b, LOAD(input + u) + reset * inner);
        gru_lanes(b, r, unit + u, z, x);
        if (!b->row[r].gates) continue;
        STORE(b->held + r * b->width + unit + u, inner);
        STORE(gates + u, z);
        STORE(gates + GRU_UNITS + u, reset);
        STORE(gates + 2 * GRU_UNITS + u, x);
    }
}

/* The same with inner = R (r * h), in two passes: z and r * h first. */
static void gru_gates(const Block *b, int r, int64_t unit, float *gates) {
    int64_t at = r * b->width + unit;
    for (int u = 0; u < GRU_UNITS; u += LANES) {
        VF z = sigmoid_of(b, LOAD(gates + u)), reset = sigmoid_of(b, LOAD(gates + GRU_UNITS + u));
        STORE(b->c + at + u, z);
        STORE(b->held + at + u, reset * LOAD(b->h + at + u));
        if (!b->row[r].gates) continue;
        STORE(gates + u, z);
        STORE(gates + GRU_UNITS + u, reset);
    }
}

static void gru_state(const Block *b, int r, int64_t unit, float *gates) {
    for (int u = 0; u < GRU_UNITS; u += LANES) {
        VF x = tanh_of(b, LOAD(gates + u));
        if (b->row[r].gates) STORE(gates + u, x);
        gru_lanes(b, r, unit + u, LOAD(b->c + r * b->width + unit + u), x);
    }
}

/* ---- functions ---- */

#define IN_PLACE(name, function)                                                                                       \
    static void name(float *x, int64_t count) {                                                                        \
        float last[LANES] = {0};                                                                                       \
        int64_t at = 0;                                                                                                \
        for (; at + LANES <= count; at += LANES) STORE(x + at, function(LOAD(x + at)));                                \
        for (int64_t i = at; i < count; i++) last[i - at] = x[i];                                                      \
        STORE(last, function(LOAD(last)));                                                                             \
        for (int64_t i = at; i < count; i++) x[i] = last[i - at];                                                      \
    }

IN_PLACE(sigmoids, sigmoid_vector)
IN_PLACE(tanhs, tanh_vector)

const RecurrentIsa JOIN(recurrent, ISA) = {
    product, rnn_state, lstm_state, gru_state_after, gru_gates, gru_state, sigmoids, tanhs,
};

VECTOR_END
