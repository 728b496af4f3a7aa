/* SPDX-License-Identifier: Apache-2.0 */
/* The recurrence in f32 with the usual functions. A step is one pass over the recurrent weights (two for a GRU that resets
 * before the product): once a panel's gates are added up they become the new state of its units, which goes to a second
 * buffer, since the other panels still read the old one. Directions and blocks of batch rows are independent and run in
 * parallel; where there are fewer of them than threads, the panels of each step are shared out. A sum is always added up
 * in the order of k, so results depend on neither. */
#include <string.h>

#include "base/vectors/vector_isa.h"
#include "ops/recurrent/recurrent_parts.h"

/* Weights (elements) that a step reads from which on its panels are shared out among threads: below 1 MiB a step is over
 * sooner than threads are woken. */
enum { SHARED_STEP = 1 << 18 };

const RecurrentIsa *recurrent_isa(void) {
#if defined(__x86_64__)
    VectorIsa isa = vector_isa();
    if (isa != VECTOR_BASE) return isa == VECTOR_AVX512 ? &recurrent_avx512 : &recurrent_avx2;
#endif
    return &recurrent_base;
}

void recurrent_input(const Block *b, int r, int gate, int64_t unit, float *out) {
    const Net *net = b->net;
    int64_t left = net->hidden - unit, count = left < net->units ? left : net->units;
    const float *from = b->row[r].input + gate * net->hidden + unit;
    if (count < net->units) memset(out + count, 0, (size_t)(net->units - count) * sizeof *out);
    memcpy(out, from, (size_t)count * sizeof *out);
}

/* ---- passes over the panels ---- */

typedef struct Pass {
    FinishFn finish;
    int first, count; /* of the panel's gates: which take part */
    bool of_held;     /* the product is of r * h instead of h */
} Pass;

typedef struct Passes {
    Pass items[2];
    int count;
    void (*product)(const PanelProduct *product);
} Passes;

/* Of a step. */
static Passes passes_of(const Net *net) {
    const RecurrentIsa *isa = recurrent_isa();
    Passes p = {.count = 1, .product = isa->product};
    if (net->cell != CELL_GRU) {
        p.items[0] = (Pass){net->cell == CELL_RNN ? isa->rnn : isa->lstm, 0, net->gates, false};
    } else if (net->linear_before_reset) {
        p.items[0] = (Pass){isa->gru_after, 0, 3, false};
    } else {
        p.items[0] = (Pass){isa->gru_gates, 0, 2, false};
        p.items[1] = (Pass){isa->gru, 2, 1, true};
        p.count = 2;
    }
    return p;
}

/* What a panel's sums begin with: the input's part of its gates, and the bias of what GRU resets after the product. The next
 * panel's are fetched meanwhile. */
static void begin_sums(const Block *b, const Pass *pass, int r, int64_t unit, float *sums) {
    enum { LINE = 64 / sizeof(float) };
    const Net *net = b->net;
    for (int gate = pass->first; gate < pass->first + pass->count; gate++, sums += net->units) {
        if (gate == 2 && net->cell == CELL_GRU && net->linear_before_reset) {
            memcpy(sums, b->bias + unit, (size_t)net->units * sizeof *sums);
            continue;
        }
        recurrent_input(b, r, gate, unit, sums);
        int64_t next = unit + (b->backwards ? -net->units : net->units);
        const float *from = b->row[r].input + gate * net->hidden;
        for (int64_t u = next; u >= 0 && u < next + net->units && u < net->hidden; u += LINE)
            __builtin_prefetch(from + u);
    }
}

/* What a pass has made of a panel: gates that are kept, and behind the last one the state. */
static void put_results(const Block *b, const Pass *pass, int r, int64_t unit, const float *sums, bool last) {
    const Net *net = b->net;
    const Row *row = &b->row[r];
    size_t bytes = (size_t)(net->hidden - unit < net->units ? net->hidden - unit : net->units) * sizeof(float);
    if (row->over) return;
    for (int gate = 0; row->gates && gate < pass->count; gate++)
        memcpy(row->gates + (pass->first + gate) * net->hidden + unit, sums + gate * net->units, bytes);
    if (!last) return;
    int64_t at = r * b->width + unit;
    if (row->result) memcpy(row->result + unit, b->next + at, bytes);
    if (row->inner) memcpy(row->inner + unit, (net->cell == CELL_LSTM ? b->c : b->held) + at, bytes);
}

/* Panels [begin, end) for all rows of a block, in the order in which the step goes through them: each begins with what the one
 * before has left in the cache. */
static void run_pass(const Block *b, const Passes *passes, int number, int64_t begin, int64_t end) {
    const Net *net = b->net;
    const Pass *pass = &passes->items[number];
    bool last = number + 1 == passes->count;
    float sums[ROWS][PANEL];
    PanelProduct product = {.sums = sums[0],
                            .sums_stride = PANEL,
                            .h_stride = b->width,
                            .stride = pass->count * net->units,
                            .depth = net->hidden,
                            .columns = pass->count * net->units};
    for (int64_t i = begin; i < end; i++) {
        int64_t panel = b->backwards ? begin + end - 1 - i : i, unit = panel * net->units;
        product.weights = b->weights + (panel * net->gates + pass->first) * net->hidden * net->units;
        for (int row = 0; row < b->rows; row += product.rows) {
            int left = b->rows - row;
            product.rows = left >= ROWS ? ROWS : left >= 2 ? 2 : 1;
            product.h = (pass->of_held ? b->held : b->h) + row * b->width;
            for (int r = 0; r < product.rows; r++) begin_sums(b, pass, row + r, unit, sums[r]);
            passes->product(&product);
            for (int r = 0; r < product.rows; r++) {
                pass->finish(b, row + r, unit, sums[r]);
                put_results(b, pass, row + r, unit, sums[r], last);
            }
        }
    }
}

/* ---- steps ---- */

static float *row_of(const Tensor *tensor, int64_t row, int64_t size) {
    return tensor ? (float *)tensor->data + row * size : NULL;
}

/* Where the rows' inputs and results of a step are. */
static void begin_step(Block *b, int64_t step) {
    const Net *net = b->net;
    b->backwards = step % 2;
    int64_t all = net->gates * net->hidden;
    for (int r = 0; r < b->rows; r++) {
        int64_t at = b->first + r, length = recurrent_length(net, at);
        Row *row = &b->row[r];
        row->over = step >= length;
        int64_t t = row->over ? 0 : recurrent_time(net, b->direction, length, step);
        int64_t place = (t * net->batch + at) * net->directions + b->direction;
        row->input = (const float *)net->projection->data + place * all;
        row->gates = row_of(net->kept_gates, place, all);
        row->inner = row_of(net->kept_inner, place, net->hidden);
        row->result = row_of(net->y, (t * net->directions + b->direction) * net->batch + at, net->hidden);
    }
}

static void end_step(Block *b) {
    float *h = b->h;
    b->h = b->next;
    b->next = h;
}

static int64_t steps_of(const Block *b) {
    int64_t steps = 0;
    for (int r = 0; r < b->rows; r++) {
        int64_t length = recurrent_length(b->net, b->first + r);
        if (length > steps) steps = length;
    }
    return steps;
}

static void run_blocks(void *context, int64_t begin, int64_t end, int worker) {
    (void)worker;
    for (int64_t i = begin; i < end; i++) {
        Block *b = (Block *)context + i;
        Passes passes = passes_of(b->net);
        for (int64_t s = 0, steps = steps_of(b); s < steps && !pool_is_stopped(); s++) {
            begin_step(b, s);
            for (int p = 0; p < passes.count; p++) run_pass(b, &passes, p, 0, b->net->panels);
            end_step(b);
        }
    }
}

typedef struct SharedPass {
    const Block *blocks;
    const Passes *passes;
    int number;
    int64_t panels; /* of a block */
} SharedPass;

static void run_shared(void *context, int64_t begin, int64_t end, int worker) {
    (void)worker;
    const SharedPass *shared = context;
    while (begin < end) {
        int64_t block = begin / shared->panels, first = begin % shared->panels, last = first + end - begin;
        if (last > shared->panels) last = shared->panels;
        run_pass(&shared->blocks[block], shared->passes, shared->number, first, last);
        begin += last - first;
    }
}

/* All blocks together, a step after the other. */
static void run_steps(const Net *net, Block *blocks, int64_t count) {
    Passes passes = passes_of(net);
    int64_t steps = 0;
    for (int64_t i = 0; i < count; i++) {
        int64_t own = steps_of(&blocks[i]);
        if (own > steps) steps = own;
    }
    for (int64_t s = 0; s < steps; s++) {
        for (int64_t i = 0; i < count; i++) begin_step(&blocks[i], s);
        for (int p = 0; p < passes.count; p++)
            pool_for(net->pool, count * net->panels, 1, run_shared, &(SharedPass){blocks, &passes, p, net->panels});
        for (int64_t i = 0; i < count; i++) end_step(&blocks[i]);
    }
}

/* ---- all of it ---- */

static void load_rows(float *to, int64_t width, const Tensor *from, int64_t hidden, int64_t first, int64_t count) {
    for (int64_t i = 0; from && i < count; i++)
        memcpy(to + i * width, (const float *)from->data + (first + i) * hidden, (size_t)hidden * sizeof(float));
}

static void fill_block(const Net *net, Block *b) {
    int64_t width = net->panels * net->units, hidden = net->hidden, state = b->rows * width;
    float *states = ARENA_ARRAY(net->arena, float, 4 * state), *bias = ARENA_ARRAY(net->arena, float, width);
    b->width = width;
    b->limit = (float)net->limit;
    b->weights = (const float *)net->weights->data + b->direction * width * hidden * net->gates;
    b->h = states;
    b->next = states + state;
    b->c = states + 2 * state;
    b->held = states + 3 * state;
    b->bias = bias;
    b->row = ARENA_ARRAY(net->arena, Row, b->rows);
    load_rows(b->h, width, net->h0, hidden, b->direction * net->batch + b->first, b->rows);
    load_rows(b->c, width, net->c0, hidden, b->direction * net->batch + b->first, b->rows);
    load_rows(bias, width, net->bias, hidden, b->direction, 1);
    for (int r = 0; r < b->rows; r++) recurrent_clear_tail(net, b->direction, b->first + r);
    if (!net->peepholes && !net->coupled) return;
    float *peephole = ARENA_ARRAY(net->arena, float, 3 * width);
    load_rows(peephole, width, net->peepholes, hidden, 3 * b->direction, 3);
    b->peephole = peephole;
}

static void store_states(const Block *b) {
    const Net *net = b->net;
    size_t bytes = (size_t)net->hidden * sizeof(float);
    for (int r = 0; r < b->rows; r++) {
        int64_t at = (b->direction * net->batch + b->first + r) * net->hidden;
        if (net->y_h) memcpy((float *)net->y_h->data + at, b->h + r * b->width, bytes);
        if (net->y_c) memcpy((float *)net->y_c->data + at, b->c + r * b->width, bytes);
    }
}

void recurrent_run_fast(const Net *net) {
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
    int64_t a_step = count * net->panels * net->units * net->hidden * net->gates;
    if (count < threads && a_step >= SHARED_STEP)
        run_steps(net, list, count);
    else
        pool_for(count == 1 ? NULL : net->pool, count, 1, run_blocks, list);
    for (int64_t i = 0; i < count; i++) store_states(&list[i]);
}
