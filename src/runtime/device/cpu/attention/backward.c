/* SPDX-License-Identifier: Apache-2.0 */
/* The anchor "attention_backward" on the CPU (Dao, "FlashAttention-2: Faster Attention with Better Parallelism and Work Partitioning",
 * 2023, section 3.1): scores are computed again, block after block, so that nothing of the size [s_q, s_k] is ever stored.
 *
 * A task is some keys of a matrix (attention.h): their gradients are its own, summed up in its worker's memory over blocks of queries.
 * As in block.c a query is a column of the scores: they and the probabilities' gradients are products of keys and values, read where
 * they are, with queries and the result's gradient, turned; what comes of them are products whose rows are rows, or
 * columns, of these blocks. Gradients of queries are sums over the tasks of a matrix: where there are several, each leaves
 * its own, which are then added in order. Tasks are cut by sizes alone, so a result has the same bits on any number of threads. */
#include <math.h>
#include <string.h>

#include "runtime/device/cpu/attention/block.h"

enum {
    BACKWARD_TASKS = 32, /* the keys of a matrix are split until there are so many tasks */
    ADD_WORK = 16384,    /* floats that a piece of the adding reads */
    G = 3,
    L = 4,
    D = 5, /* inputs */
};

typedef struct Gradients {
    AttentionRun run;
    const Tensor *g, *l, *d;
    Tensor *outputs;            /* dq, dk, dv */
    int64_t splits, unit_count; /* tasks of a matrix; blocks of keys */
    bool in_place;              /* dq is summed up in its own memory */
    float *partial;             /* else here: [splits][rows of all matrices][size] */
    char *memory;
    size_t worker_bytes;
} Gradients;

/* One task's memory. */
typedef struct Worker {
    Block b;
    const Gradients *all;
    bool slopes;            /* of this matrix's scores: some step's is not 1 where it counts */
    float *turned_g;        /* [width][columns], times the scale */
    float *q_rows, *g_rows; /* [rows][size], [rows][width] */
    float *dp, *slope;      /* [keys][columns] */
    float *k_rows;          /* a block of keys, where they are not read in place */
    float *dk, *dv;         /* [keys][size], [keys][width] */
    float *l, *d;           /* [columns] */
    void **dp_rows, **dq_rows;
    const float *k; /* the block's keys: k[key * k_step] */
    int64_t k_step;
} Worker;

static Worker make_worker(const Gradients *all, char **memory) {
    const AttentionRun *run = &all->run;
    const int64_t size = (int64_t)sizeof(float);
    Worker w = {.b = block_make(run, (int)least(ATTENTION_ROWS, run->rows), memory), .all = all};
    const Block *b = &w.b;
    w.turned_g = block_take(memory, b->width * b->columns * size);
    w.q_rows = block_take(memory, b->rows * b->size * size);
    w.g_rows = block_take(memory, b->rows * b->width * size);
    w.dp = block_take(memory, b->keys * b->columns * size);
    w.slope = block_take(memory, b->keys * b->columns * size);
    w.k_rows = block_take(memory, b->keys * b->size * size);
    w.dk = block_take(memory, b->keys * b->size * size);
    w.dv = block_take(memory, b->keys * b->width * size);
    w.l = block_take(memory, b->columns * size);
    w.d = block_take(memory, b->columns * size);
    w.dp_rows = block_take(memory, b->keys * (int64_t)sizeof(void *));
    w.dq_rows = block_take(memory, b->rows * (int64_t)sizeof(void *));
    return w;
}

/* ---- steps ---- */

/* Whether the step's slope is not 1 where the probability is not 0. */
static bool has_slope(const AttentionRun *run, int index, int64_t matrix) {
    const AttentionStep *s = &run->steps[index];
    switch (s->kind) {
    case SCORE_SCALE:
    case SCORE_TANH:
    case SCORE_CLIP: return true;
    case SCORE_KEEP:
    case SCORE_HIDE: return s->alpha != -INFINITY;
    case SCORE_CAUSAL: return s->alpha != -INFINITY && !(index == run->causal && attention_outweighs(run, matrix));
    default: return false;
    }
}

/* The step's slope at scores x, before it is taken, and y, after it, to the product of slopes. */
static void multiply_slope(const Worker *w, const AttentionStep *step, int index, const float *y, int64_t first,
                           int64_t count) {
    const Block *b = &w->b;
    AttentionStep hides = *step;
    hides.alpha = 0;
    switch (step->kind) {
    case SCORE_TANH:
        for (int64_t i = 0; i < count * b->columns; i++) w->slope[i] *= 1 - y[i] * y[i];
        break;
    case SCORE_SCALE: block_step(b, step, index, w->slope, first, count); break;
    case SCORE_KEEP:
    case SCORE_HIDE:
    case SCORE_CAUSAL: block_step(b, &hides, index, w->slope, first, count); break;
    default: break;
    }
}

static void take_steps(const Worker *w, int64_t first, int64_t count) {
    const Block *b = &w->b;
    const AttentionRun *run = b->run;
    const int64_t scores = count * b->columns;
    for (int64_t i = 0; w->slopes && i < scores; i++) w->slope[i] = 1;
    for (int s = 0; s < run->step_count; s++) {
        const AttentionStep *step = &run->steps[s];
        for (int64_t i = 0; step->kind == SCORE_CLIP && i < scores; i++)
            w->slope[i] = b->scores[i] > step->alpha && b->scores[i] < step->beta ? w->slope[i] : 0;
        block_step(b, step, s, b->scores, first, count);
        if (w->slopes) multiply_slope(w, step, s, b->scores, first, count);
    }
}

/* ---- rows ---- */

/* The task's rows, dense, whole vectors long: what is beyond `length` is zero. */
static void gather_rows(const Block *b, const Tensor *t, const AttentionStrides *s, int64_t length, int64_t step,
                        float *to) {
    const int64_t *offsets = block_find_rows(b, s);
    for (int r = 0; r < b->rows; r++, to += step) {
        attention_gather(t->dtype, t->data, offsets[r], s->column, length, to);
        memset(to + length, 0, (size_t)(step - length) * sizeof *to);
    }
}

/* As the scale of the scores is a factor of their gradients, it is one of both factors of these. */
static void scale_rows(const Block *b, float *rows, int64_t count) {
    ScoreCall call = {.x = rows, .kind = SCORE_SCALE, .rows = count, .columns = b->columns, .stride = b->columns};
    call.alpha = b->run->scale;
    b->isa->score_step(&call);
}

/* Queries, and what belongs to them. Columns beyond the rows come to nothing. */
static void take_rows(const Worker *w) {
    const Block *b = &w->b;
    const Gradients *all = w->all;
    const AttentionRun *run = b->run;
    const AttentionShape *s = &run->shape;
    int64_t first = b->task->matrix * run->rows + b->task->first_row;
    gather_rows(b, run->inputs[0], &s->q, s->size, b->size, w->q_rows);
    gather_rows(b, all->g, &s->out, s->width, b->width, w->g_rows);
    block_turn_rows(b, run->inputs[0], &s->q, 0, s->size, b->queries);
    block_turn_rows(b, all->g, &s->out, 0, s->width, w->turned_g);
    scale_rows(b, b->queries, s->size);
    scale_rows(b, w->turned_g, s->width);
    for (int r = 0; r < b->columns; r++) {
        w->l[r] = r < b->rows ? ((const float *)all->l->data)[first + r] : INFINITY;
        w->d[r] = r < b->rows ? ((const float *)all->d->data)[first + r] * run->scale : 0;
    }
}

static void find_dq(const Worker *w, int64_t split) {
    const Gradients *all = w->all;
    const AttentionRun *run = &all->run;
    int64_t size = run->shape.size, first = w->b.task->matrix * run->rows + w->b.task->first_row;
    if (all->in_place) {
        const int64_t *offsets = block_find_rows(&w->b, &run->shape.q);
        for (int r = 0; r < w->b.rows; r++) w->dq_rows[r] = (float *)all->outputs[0].data + offsets[r];
    } else {
        float *rows = all->partial + (split * run->matrices * run->rows + first) * size;
        for (int r = 0; r < w->b.rows; r++) w->dq_rows[r] = rows + r * size;
    }
}

/* ---- blocks ---- */

/* A block of keys as floats whose rows are read in whole vectors, and where it is so already, in place. */
static void take_keys(Worker *w, int64_t matrix, int64_t first, int64_t count) {
    const Block *b = &w->b;
    const AttentionShape *s = &b->run->shape;
    const Tensor *k = b->run->inputs[1];
    int64_t at = attention_matrix(b->run, &s->k, s->k_heads, matrix) + first * s->k.row;
    w->k = (const float *)k->data + at;
    w->k_step = s->k.row;
    if (k->dtype == DT_F32 && s->k.column == 1 && s->size == b->size && s->k.row) return;
    w->k = w->k_rows;
    w->k_step = b->size;
    for (int64_t i = 0; i < count; i++) {
        float *row = w->k_rows + i * b->size;
        attention_gather(k->dtype, k->data, at + i * s->k.row, s->k.column, s->size, row);
        memset(row + s->size, 0, (size_t)(b->size - s->size) * sizeof *row);
    }
}

/* Values likewise; no whole vectors of them are read. */
static Side take_values(const Worker *w, int64_t matrix, int64_t first, int64_t count) {
    const Block *b = &w->b;
    const AttentionShape *s = &b->run->shape;
    const Tensor *v = b->run->inputs[2];
    int64_t at = attention_matrix(b->run, &s->v, s->v_heads, matrix) + first * s->v.row;
    if (v->dtype == DT_F32) return (Side){(const float *)v->data + at, s->v.row, s->v.column};
    for (int64_t i = 0; i < count; i++)
        attention_gather(v->dtype, v->data, at + i * s->v.row, s->v.column, s->width, b->v + i * b->width);
    return (Side){b->v, b->width, 1};
}

/* to[key] += the sum over queries of block[key][query] * rows[query]: step is a row's length. */
static void add_to_keys(const Worker *w, const float *block, int64_t count, const float *rows, int64_t step,
                        float *to) {
    const Block *b = &w->b;
    TileCall call = {.depth = b->rows, .weight_stride = step, .has_addend = true};
    for (int64_t i = 0; i < count; i++) {
        b->read_rows[i] = block + i * b->columns;
        b->result_rows[i] = to + i * step;
    }
    block_multiply(b, &call, b->read_rows, b->result_rows, count, rows, step);
}

/* What keys [first, first + count) and the task's rows give each other; block_first: of w->k. */
static void add_block(Worker *w, int64_t block_first, int64_t first, int64_t count) {
    const Block *b = &w->b;
    const AttentionRun *run = b->run;
    int64_t shift = first - block_first;
    const float *k_rows = w->k + shift * w->k_step;
    Side k = {k_rows, w->k_step, 1}, v = take_values(w, b->task->matrix, first, count);
    block_score_keys(b, &k, 0, count);
    TileCall call = {.depth = run->shape.width, .depth_gap = v.column - 1, .weight_stride = b->columns};
    if (run->shape.width == 1) call.depth_gap = 0;
    for (int64_t i = 0; i < count; i++) b->read_rows[i] = v.data + i * v.row;
    block_multiply(b, &call, b->read_rows, w->dp_rows, count, w->turned_g, b->columns);
    take_steps(w, first, count);
    if (run->drop) {
        block_draw(b, first, count);
        block_drop(b, w->dp, count);
    }
    b->isa->score_gradient(
        &(ScoreGradient){b->scores, w->dp, w->slopes ? w->slope : NULL, count, b->columns, w->l, w->d});
    if (run->drop) block_drop(b, b->scores, count);
    add_to_keys(w, b->scores, count, w->g_rows, b->width, w->dv + shift * b->width);
    add_to_keys(w, w->dp, count, w->q_rows, b->size, w->dk + shift * b->size);
    TileCall queries = {.depth = count, .weight_stride = w->k_step, .has_addend = true};
    queries.depth_gap = count > 1 ? b->columns - 1 : 0;
    for (int r = 0; r < b->rows; r++) b->read_rows[r] = w->dp + r;
    block_multiply(b, &queries, b->read_rows, w->dq_rows, b->rows, k_rows, run->shape.size);
}

static void store_keys(const Worker *w, int output, const AttentionStrides *s, int64_t own_heads, int64_t matrix,
                       int64_t first, int64_t count, const float *rows, int64_t step, int64_t length) {
    const Tensor *to = &w->all->outputs[output];
    int64_t at = attention_matrix(&w->all->run, s, own_heads, matrix) + first * s->row;
    for (int64_t i = 0; i < count; i++)
        attention_scatter(to->dtype, to->data, at + i * s->row, length == 1 ? 1 : s->column, length, rows + i * step);
}

/* ---- tasks ---- */

static void run_keys(Worker *w, int64_t matrix, int64_t split, int64_t first, int64_t count) {
    Block *b = &w->b;
    const AttentionRun *run = b->run;
    const AttentionShape *s = &run->shape;
    memset(w->dk, 0, (size_t)(count * b->size) * sizeof *w->dk);
    memset(w->dv, 0, (size_t)(count * b->width) * sizeof *w->dv);
    take_keys(w, matrix, first, count);
    for (int64_t row = 0; row < run->rows && !pool_is_stopped(); row += ATTENTION_ROWS) {
        AttentionTask task = {matrix, row, (int)least(ATTENTION_ROWS, run->rows - row), first, first + count, NULL, 0};
        attention_leave_hidden(run, &task);
        if (task.first_key >= task.end_key) continue;
        b->task = &task;
        b->rows = task.rows;
        take_rows(w);
        find_dq(w, split);
        add_block(w, first, task.first_key, task.end_key - task.first_key);
    }
    store_keys(w, 1, &s->k, s->k_heads, matrix, first, count, w->dk, b->size, s->size);
    store_keys(w, 2, &s->v, s->v_heads, matrix, first, count, w->dv, b->width, s->width);
}

static void clear_dq(Worker *w, int64_t matrix, int64_t split) {
    const AttentionRun *run = w->b.run;
    for (int64_t row = 0; row < run->rows; row += ATTENTION_ROWS) {
        AttentionTask task = {matrix, row, (int)least(ATTENTION_ROWS, run->rows - row), 0, 0, NULL, 0};
        w->b.task = &task;
        w->b.rows = task.rows;
        find_dq(w, split);
        for (int r = 0; r < task.rows; r++) memset(w->dq_rows[r], 0, (size_t)run->shape.size * sizeof(float));
    }
}

static void run_tasks(void *context, int64_t begin, int64_t end, int worker) {
    const Gradients *all = context;
    const AttentionRun *run = &all->run;
    char *memory = all->memory + all->worker_bytes * (size_t)worker;
    Worker w = make_worker(all, &memory);
    for (int64_t i = 0; i < w.b.keys; i++) {
        w.b.score_rows[i] = w.b.scores + i * w.b.columns;
        w.dp_rows[i] = w.dp + i * w.b.columns;
    }
    for (int64_t i = begin; i < end && !pool_is_stopped(); i++) {
        int64_t matrix = i / all->splits, split = i % all->splits;
        w.slopes = false;
        for (int s = 0; s < run->step_count; s++) w.slopes |= has_slope(run, s, matrix);
        clear_dq(&w, matrix, split);
        int64_t unit = split * all->unit_count / all->splits, units = (split + 1) * all->unit_count / all->splits;
        for (; unit < units && !pool_is_stopped(); unit++) {
            int64_t first = unit * w.b.keys;
            run_keys(&w, matrix, split, first, least(w.b.keys, run->shape.keys - first));
        }
    }
}

static void add_queries(void *context, int64_t begin, int64_t end, int worker) {
    (void)worker;
    const Gradients *all = context;
    const AttentionRun *run = &all->run;
    int64_t size = run->shape.size, step = run->matrices * run->rows * size, at;
    const Tensor *dq = &all->outputs[0];
    for (int64_t i = begin; i < end; i++) {
        float *sum = all->partial + i * size;
        for (int64_t s = 1; s < all->splits; s++)
            for (int64_t k = 0; k < size; k++) sum[k] += sum[s * step + k];
        attention_rows(run, &run->shape.q, i / run->rows, i % run->rows, 1, &at);
        attention_scatter(dq->dtype, dq->data, at, size == 1 ? 1 : run->shape.q.column, size, sum);
    }
}

static Status take_memory(AnchorRun *anchor_run, Gradients *all) {
    const AttentionRun *run = &all->run;
    char *end = NULL;
    void *memory;
    make_worker(all, &end);
    all->worker_bytes = (size_t)(uintptr_t)end;
    TRY(scratch_take(&anchor_run->scratch, all->worker_bytes * (size_t)pool_threads(anchor_run->pool), &memory));
    all->memory = memory;
    all->in_place = all->splits == 1 && run->dtype == DT_F32 && run->shape.q.column <= 1;
    if (all->in_place) return NULL;
    int64_t floats = all->splits * run->matrices * run->rows * run->shape.size;
    TRY(scratch_take(&anchor_run->scratch, (size_t)floats * sizeof(float), &memory));
    all->partial = memory;
    return NULL;
}

static Status run_backward(AnchorRun *anchor_run) {
    const Tensor *const *inputs = anchor_run->inputs;
    Gradients all = {.g = inputs[G], .l = inputs[L], .d = inputs[D], .outputs = anchor_run->output};
    AttentionRun *run = &all.run;
    TRY(attention_describe(anchor_run, all.g, run));
    if (!tensor_count(all.g) || !run->shape.keys) {
        for (int i = 0; i < 3; i++) memset(all.outputs[i].data, 0, tensor_bytes(&all.outputs[i]));
        return NULL;
    }
    run->few = false;
    all.unit_count = ceil_div(run->shape.keys, ATTENTION_KEYS);
    all.splits = least(all.unit_count, ceil_div(BACKWARD_TASKS, run->matrices));
    TRY(take_memory(anchor_run, &all));
    pool_for(anchor_run->pool, run->matrices * all.splits, 1, run_tasks, &all);
    if (all.in_place || pool_is_stopped()) return NULL;
    int64_t grain = ADD_WORK / (all.splits * run->shape.size);
    pool_for(anchor_run->pool, run->matrices * run->rows, grain < 1 ? 1 : grain, add_queries, &all);
    return NULL;
}

static Status check_backward(const CpuAnchor *anchor, const Tensor *const *inputs, const int64_t *symbols,
                             const Tensor *output) {
    AttentionShape s;
    TRY(attention_shape(anchor->node, inputs, symbols, inputs[G], &s));
    for (int i = 0; i < 3; i++)
        if (!tensor_same_shape(inputs[i], &output[i]))
            return anchor_wrong(anchor, "a gradient has another shape than its input");
    int64_t matrices = dims_product(s.lead, 0, ATTENTION_LEAD), rows = matrices * s.queries;
    int64_t heads = s.lead[ATTENTION_HEADS], shared = heads ? matrices / heads * s.k_heads * s.keys : 0;
    bool fits =
        s.k_heads == s.v_heads && tensor_count(inputs[0]) == rows * s.size &&
        (!heads || (tensor_count(inputs[1]) == shared * s.size && tensor_count(inputs[2]) == shared * s.width)) &&
        tensor_count(inputs[L]) == rows && tensor_count(inputs[D]) == rows;
    return fits ? NULL : anchor_wrong(anchor, "queries, keys or values are repeated, or numbers a row are missing");
}

const AnchorKind attention_backward_kind = {ATTENTION_BACKWARD, attention_prepare, check_backward, run_backward,
                                            .alone = true};
