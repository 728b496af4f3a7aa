/* SPDX-License-Identifier: Apache-2.0 */
/* The anchor "attention" on the CPU: softmax(steps(scale * q k^T)) v, blockwise, so that neither scores nor
 * probabilities are stored. Comes in: the anchor's node and a run's tensors; goes out: its result.
 *
 * A run is cut into tasks (attention.h) that share nothing. Where there are few rows the keys are split as well, by their
 * number alone: each task leaves its greatest scores, sums and weighted values, which are then joined in order. So a
 * result is the same on any number of threads. */
#include <math.h>
#include <string.h>
#include "base/integer.h"

#include "runtime/device/cpu/attention/attention.h"

enum {
    SPLIT_KEYS = 512,  /* least keys of a split, of all matrices: 256 kB of keys and values of 64 elements */
    LEAST_TASKS = 16,  /* rows are cut finer until there are so many */
    SPLIT_TASKS = 64,  /* keys are split until there are so many tasks */
    JOIN_WORK = 16384, /* floats that a piece of the joining reads */
    ATTENTION_ZEROS = 64,
    TOGETHER_KEYS = 512,    /* least keys of matrices that share a task: of fewer, tasks were too few */
    TOGETHER_BYTES = 2048,  /* of a key of all these at most: block.c's steps stay in the first-level cache */
    PACKED_ROW = 1024,      /* least bytes from a value to the next one of those that are copied */
    PACKED_TASKS = 4,       /* least tasks of a matrix that share the copy */
    PACKED_BYTES = 1 << 20, /* of the copy at most */
};

/* ---- places ---- */

static int64_t lead_offset(const AttentionRun *run, const AttentionStrides *s, int64_t matrix, int64_t *out_head) {
    const int64_t *lead = run->shape.lead;
    int64_t groups = lead[ATTENTION_HEADS] / run->group, rest = matrix / groups, offset = 0;
    *out_head = matrix % groups * run->group;
    for (int i = ATTENTION_HEADS - 1; i >= 0; i--) {
        offset += rest % lead[i] * s->lead[i];
        rest /= lead[i];
    }
    return offset;
}

static void rows_of_matrix(const AttentionRun *run, const AttentionStrides *s, int64_t matrix, int64_t first,
                           int64_t count, int64_t *offsets) {
    int64_t queries = run->shape.queries, head, offset = lead_offset(run, s, matrix, &head), query = first % queries;
    head += first / queries;
    for (int64_t i = 0; i < count; head++, query = 0) {
        int64_t at = offset + head * s->lead[ATTENTION_HEADS] + query * s->row;
        for (; query < queries && i < count; query++, at += s->row) offsets[i++] = at;
    }
}

void attention_rows(const AttentionRun *run, const AttentionStrides *s, int64_t matrix, int64_t first, int count,
                    int64_t *offsets) {
    for (int64_t done = 0, here; done < count; done += here, first = 0) {
        here = run->rows - first < count - done ? run->rows - first : count - done;
        rows_of_matrix(run, s, matrix++, first, here, offsets + done);
    }
}

int64_t attention_matrix(const AttentionRun *run, const AttentionStrides *s, int64_t own_heads, int64_t matrix) {
    int64_t head, offset = lead_offset(run, s, matrix, &head);
    return offset + head / (run->shape.lead[ATTENTION_HEADS] / own_heads) * s->lead[ATTENTION_HEADS];
}

/* ---- results ---- */

void attention_scatter(DType dtype, void *data, int64_t first, int64_t step, int64_t count, const float *values) {
    if (dtype == DT_F32) {
        float *to = (float *)data + first;
        if (step == 1)
            memcpy(to, values, (size_t)count * sizeof *to);
        else
            for (int64_t i = 0; i < count; i++) to[i * step] = values[i];
        return;
    }
    uint16_t *to = (uint16_t *)data + first;
    if (step == 1)
        (dtype == DT_F16 ? tile_isa()->narrow_f16 : tile_isa()->narrow_bf16)(values, to, count);
    else
        for (int64_t i = 0; i < count; i++) dtype_store_double(dtype, to, i * step, (double)values[i]);
}

float attention_whole_sum(const AttentionRun *run, int64_t row, float top, float sum) {
    if (!run->sink || top == -INFINITY) return sum;
    const Tensor *sinks = run->inputs[run->sink->input];
    int64_t at;
    attention_rows(run, &run->shape.steps[run->sink - run->steps], row / run->rows, row % run->rows, 1, &at);
    return sum + expf((float)dtype_load_double(sinks->dtype, sinks->data, at) - top);
}

void attention_store(const AttentionRun *run, int64_t offset, const float *values, float sum, float top, int64_t row) {
    static const float zeros[ATTENTION_ZEROS];
    int64_t width = run->shape.width, step = run->shape.out.column;
    bool nothing = run->empty != EMPTY_NAN && sum == 0;
    bool zero = nothing || !run->shape.keys || (run->empty == EMPTY_NAN_ZERO && isnan(sum));
    for (int64_t i = 0; i < (zero ? width : 0); i += ATTENTION_ZEROS) {
        int64_t some = width - i < ATTENTION_ZEROS ? width - i : ATTENTION_ZEROS;
        attention_scatter(run->dtype, run->output, offset + i * step, step, some, zeros);
    }
    if (!zero) attention_scatter(run->dtype, run->output, offset, step, width, values);
    if (run->logarithms) run->logarithms[row] = zero ? INFINITY : top + logf(sum);
}

/* ---- what a causal step hides ---- */

/* Whether what the step makes -inf stays so. */
static bool stays_hidden(const AttentionRun *run, int causal) {
    for (int i = causal + 1; i < run->step_count; i++) {
        const AttentionStep *s = &run->steps[i];
        bool hides = (s->kind == SCORE_KEEP || s->kind == SCORE_HIDE) && s->alpha == -INFINITY;
        bool adds = s->kind == SCORE_ADD || s->kind == SCORE_ADD_HIDING;
        if (!hides && !adds && !(s->kind == SCORE_SCALE && s->alpha > 0)) return false;
    }
    return true;
}

/* A step that hides by a finite number does so for certain where every query sees the first key, no other step changes a
 * score, and the number outweighs all scores (seen_keys). */
static void find_causal(AttentionRun *run) {
    run->causal = -1;
    for (int i = 0; i < run->step_count; i++) {
        const AttentionStep *s = &run->steps[i];
        if (!score_step_is_causal(s->kind)) continue;
        bool never = s->alpha == -INFINITY && stays_hidden(run, i);
        if (never || (run->step_count == 1 && s->alpha < 0 && run->shape.offset >= 0)) run->causal = i;
    }
}

static bool hides_by_number(const AttentionRun *run) {
    return run->causal >= 0 && run->steps[run->causal].alpha != -INFINITY;
}

/* The length of the longest of these rows; infinity where one is no number. */
static float longest(const Tensor *t, int64_t at, const AttentionStrides *s, int64_t rows, int64_t size, float *row) {
    float most = 0;
    for (int64_t i = 0; i < rows; i++) {
        float square;
        attention_gather(t->dtype, t->data, at + i * s->row, s->column, size, row);
        tile_isa()->dot(row, row, size, size, &square, 1);
        if (isnan(square)) return INFINITY;
        most = square > most ? square : most;
    }
    return sqrtf(most);
}

typedef struct BoundLoop {
    const AttentionRun *run;
    float *bounds, *rows; /* [matrices]; [threads][size] */
    int64_t row_step;
} BoundLoop;

/* What the scores of a matrix are at most, whatever their sign: |q k| <= |q| |k|. */
static void bound_scores(void *context, int64_t begin, int64_t end, int worker) {
    const BoundLoop *loop = context;
    const AttentionRun *run = loop->run;
    const AttentionShape *s = &run->shape;
    float *row = loop->rows + worker * loop->row_step;
    for (int64_t m = begin; m < end; m++) {
        float q = 0,
              k = longest(run->inputs[1], attention_matrix(run, &s->k, s->k_heads, m), &s->k, s->keys, s->size, row);
        for (int64_t g = 0; g < run->group; g++) {
            int64_t at;
            attention_rows(run, &s->q, m, g * s->queries, 1, &at);
            float head = longest(run->inputs[0], at, &s->q, s->queries, s->size, row);
            q = head > q ? head : q;
        }
        loop->bounds[m] = q * k * fabsf(run->scale);
    }
}

static Status measure(AnchorRun *anchor_run, AttentionRun *run) {
    BoundLoop loop = {.run = run, .row_step = (run->shape.size + 15) / 16 * 16};
    void *memory;
    int64_t floats = run->matrices + loop.row_step * pool_threads(anchor_run->pool);
    TRY(scratch_take(&anchor_run->scratch, (size_t)floats * sizeof(float), &memory));
    loop.bounds = memory;
    loop.rows = loop.bounds + run->matrices;
    pool_for(anchor_run->pool, run->matrices, 1, bound_scores, &loop);
    run->bounds = loop.bounds;
    return NULL;
}

/* Scores are at most `bound`, so that a hidden one is 2 bound + alpha below the seen at least: e^-100 is lost in a sum
 * of which one is 1. */
bool attention_outweighs(const AttentionRun *run, int64_t matrix) {
    return !run->bounds || 2 * run->bounds[matrix] * 1.01f + run->steps[run->causal].alpha < -100;
}

/* Keys from this one on are hidden from all of rows [first, first + count). */
static int64_t seen_keys(const AttentionRun *run, int64_t matrix, int64_t first, int64_t count) {
    int64_t queries = run->shape.queries, last = (first + count - 1) % queries;
    if (run->causal < 0) return run->shape.keys;
    for (int64_t m = matrix; m <= matrix + (first + count - 1) / run->rows; m++)
        if (!attention_outweighs(run, m)) return run->shape.keys;
    if (first / queries != (first + count - 1) / queries) last = queries - 1;
    int64_t seen = last + run->shape.offset + 1;
    return seen < 0 ? 0 : seen < run->shape.keys ? seen : run->shape.keys;
}

/* ---- what bools hide ---- */

/* Bools from one key to the next that hide, and what they are then; NULL: this step leaves keys unseen by no bools. */
static const uint8_t *hiding_bools(const AttentionRun *run, int step, uint8_t *out_hidden) {
    const AttentionStep *s = &run->steps[step];
    const Tensor *t = s->input < 0 ? NULL : run->inputs[s->input];
    if (!t || t->dtype != DT_BOOL || s->alpha != -INFINITY || !stays_hidden(run, step)) return NULL;
    if (run->shape.steps[step].column != 1 || (s->kind != SCORE_KEEP && s->kind != SCORE_HIDE)) return NULL;
    *out_hidden = s->kind == SCORE_HIDE;
    return t->data;
}

/* Elements at the front, or the back, of [begin, end) that are all `value` (0 or 1). */
static int64_t alike_front(const uint8_t *begin, const uint8_t *end, uint8_t value) {
    const uint8_t *at = begin;
    uint64_t same = value * UINT64_C(0x0101010101010101), word;
    for (; end - at >= 8 && (memcpy(&word, at, 8), word == same);) at += 8;
    while (at < end && *at == value) at++;
    return at - begin;
}

static int64_t alike_back(const uint8_t *begin, const uint8_t *end, uint8_t value) {
    const uint8_t *at = end;
    uint64_t same = value * UINT64_C(0x0101010101010101), word;
    for (; at - begin >= 8 && (memcpy(&word, at - 8, 8), word == same);) at -= 8;
    while (at > begin && at[-1] == value) at--;
    return end - at;
}

/* Keys that a bool hides from all rows of a task, before the first and behind the last that one of them sees, are not
 * read: what a cache holds there is no part of the model, and a window is as long as it is. */
void attention_leave_hidden(const AttentionRun *run, AttentionTask *task) {
    int64_t offsets[ATTENTION_ROWS], seen = seen_keys(run, task->matrix, task->first_row, task->rows);
    if (seen < task->end_key) task->end_key = seen > task->first_key ? seen : task->first_key;
    for (int i = 0; i < run->step_count; i++) {
        const AttentionStrides *s = &run->shape.steps[i];
        uint8_t hidden;
        const uint8_t *bools = hiding_bools(run, i, &hidden);
        int64_t first = task->end_key, end = task->first_key;
        if (!bools) continue;
        attention_rows(run, s, task->matrix, task->first_row, task->rows, offsets);
        for (int r = 0; r < task->rows; r++) {
            const uint8_t *row = bools + offsets[r];
            if (r && offsets[r] == offsets[r - 1]) continue;
            first = task->first_key + alike_front(row + task->first_key, row + first, hidden);
            end = task->end_key - alike_back(row + end, row + task->end_key, hidden);
        }
        task->first_key = first;
        task->end_key = end > first ? end : first;
    }
}

/* ---- tasks ---- */

typedef struct TaskLoop {
    AttentionRun run;
    int block;              /* rows of a task */
    int64_t blocks, splits; /* of run.together matrices; of a block's keys */
    char *memory;
    size_t worker_bytes;
    float *partial; /* [matrices * rows][splits][2 + width] */
} TaskLoop;

static void run_tasks(void *context, int64_t begin, int64_t end, int worker) {
    const TaskLoop *loop = context;
    const AttentionRun *run = &loop->run;
    const int64_t rows = run->rows * run->together, unit = attention_block_keys(run);
    for (int64_t i = begin; i < end && !pool_is_stopped(); i++) {
        int64_t split = i % loop->splits, block = i / loop->splits % loop->blocks;
        AttentionTask task = {.first_row = block * loop->block};
        int64_t left = rows - task.first_row;
        task.matrix = i / loop->splits / loop->blocks * run->together;
        task.rows = (int)(left < loop->block ? left : loop->block);
        task.end_key = run->shape.keys;
        attention_leave_hidden(run, &task);
        int64_t first = task.first_key, keys = task.end_key - first, units = ceil_div(keys, unit);
        task.first_key = first + split * units / loop->splits * unit;
        task.end_key = first + (split + 1 == loop->splits ? keys : (split + 1) * units / loop->splits * unit);
        if (loop->splits > 1) {
            int64_t floats = run->shape.width + 2, row = task.matrix * run->rows + task.first_row;
            task.partial = loop->partial + (row * loop->splits + split) * floats;
            task.partial_stride = loop->splits * floats;
        }
        attention_task(run, &task, loop->memory + loop->worker_bytes * (size_t)worker);
    }
}

static void join_rows(void *context, int64_t begin, int64_t end, int worker) {
    (void)worker;
    const TaskLoop *loop = context;
    const AttentionRun *run = &loop->run;
    int64_t width = run->shape.width, floats = width + 2;
    for (int64_t i = begin; i < end; i++) {
        float *parts = loop->partial + i * loop->splits * floats, *whole = parts + 2;
        float top = -INFINITY, sum = 0;
        for (int64_t s = 0; s < loop->splits; s++) top = parts[s * floats] > top ? parts[s * floats] : top;
        for (int64_t s = 0; s < loop->splits; s++) {
            const float *part = parts + s * floats;
            float factor = top == -INFINITY ? 1 : expf(part[0] - top);
            sum += part[1] * factor;
            for (int64_t k = 0; k < width; k++) whole[k] = part[2 + k] * factor + (s ? whole[k] : 0);
        }
        sum = attention_whole_sum(run, i, top, sum);
        int64_t at;
        attention_rows(run, &run->shape.out, i / run->rows, i % run->rows, 1, &at);
        for (int64_t k = 0; k < width; k++) whole[k] /= sum;
        attention_store(run, at, whole, sum, top, i);
    }
}

/* Rows of a task: fewer where there would be few tasks, by sizes alone. */
static int rows_of_tasks(const AttentionRun *run) {
    if (run->together > 1) return (int)(run->rows * run->together);
    int64_t rows = ATTENTION_ROWS, lanes = tile_set(DT_F32)->lanes;
    while (rows > lanes && run->matrices * ceil_div(run->rows, rows) < LEAST_TASKS) rows /= 2;
    return (int)(rows < run->rows ? rows : run->rows);
}

/* By sizes alone. */
static int64_t splits_of(const AttentionRun *run) {
    int64_t tasks = run->matrices / run->together * ceil_div(run->rows, ATTENTION_ROWS);
    int64_t most = run->shape.keys * run->together / SPLIT_KEYS;
    int64_t wanted = ceil_div(SPLIT_TASKS, tasks);
    return most < 2 || wanted < 2 ? 1 : most < wanted ? most : wanted;
}

/* A key is read in whole vectors where queries are rows. */
static bool is_contiguous(const AttentionStrides *s) { return s->column <= 1; }

/* Whether a key of one head lies beside the same key of the next one. */
static bool is_interleaved(const AttentionStrides *s) {
    return s->lead[ATTENTION_HEADS] && s->lead[ATTENTION_HEADS] < s->row;
}

/* Of heads whose keys are interleaved, a task that reads one alone takes small pieces far from each other. So several
 * share a task, as many as lie in TOGETHER_BYTES of memory; by sizes and strides alone. */
static int64_t matrices_together(const AttentionRun *run) {
    const AttentionShape *s = &run->shape;
    int64_t heads = s->lead[ATTENTION_HEADS] / run->group, together = 1;
    if (!run->few || s->keys < TOGETHER_KEYS || (!is_interleaved(&s->k) && !is_interleaved(&s->v))) return 1;
    int64_t bytes = (s->size > s->width ? s->size : s->width) * (int64_t)dtype_size(run->dtype);
    for (int64_t i = 2; i <= heads && i * run->rows <= ATTENTION_ROWS && i * bytes <= TOGETHER_BYTES; i++)
        if (heads % i == 0) together = i;
    return together;
}

/* Whether values are copied into panels, by sizes and strides alone: where each key's lie on a page of its own or nearly so, all rows of
 * a tile meet the pages again, and enough tasks share a copy. The product took .88 to .93 of the time (heads of 64 in rows of 768, one
 * thread of an AMD EPYC of family 25, November 2026). */
static bool packs_values(const AttentionRun *run) {
    const AttentionShape *s = &run->shape;
    const int64_t size = (int64_t)sizeof(float);
    return !run->few && run->inputs[2]->dtype == DT_F32 && s->v.column == 1 && s->v.row * size >= PACKED_ROW &&
           run->rows >= PACKED_TASKS * ATTENTION_ROWS && s->keys <= PACKED_BYTES / size / most(1, s->width);
}

static void describe(AttentionRun *run) {
    const AttentionShape *s = &run->shape;
    int64_t heads = s->lead[ATTENTION_HEADS];
    run->group = common_divisor(heads / s->k_heads, heads / s->v_heads);
    run->rows = run->group * s->queries;
    run->matrices = dims_product(s->lead, 0, ATTENTION_LEAD) / run->group;
    run->few = run->rows <= ATTENTION_FEW && is_contiguous(&s->k) && is_contiguous(&s->v);
    run->together = matrices_together(run);
    run->packs = packs_values(run);
    find_causal(run);
}

Status attention_describe(AnchorRun *anchor_run, const Tensor *result, AttentionRun *run) {
    const CpuAnchor *anchor = anchor_run->anchor;
    const Node *node = anchor->node;
    *run = (AttentionRun){.dtype = anchor->dtype,
                          .output = anchor_run->output->data,
                          .scale = (float)attr_float(node, "scale", 1),
                          .empty = (AttentionEmpty)attr_int(node, "empty", EMPTY_NAN)};
    TRY(attention_shape(node, anchor_run->inputs, anchor_run->symbols, result, &run->shape));
    attention_inputs(&run->shape, anchor_run->inputs, node->input_count, &run->operands);
    run->inputs = run->operands.all;
    if (!attention_steps(node, run->steps, &run->step_count)) return anchor_wrong(anchor, "its steps");
    if (attention_drops(node)) {
        run->drop = &run->steps[--run->step_count];
        memcpy(&run->seed, run->inputs[run->drop->input]->data, sizeof run->seed);
    }
    if (attention_has_sink(node)) run->sink = &run->steps[--run->step_count];
    if (!tensor_count(result)) return NULL;
    describe(run);
    return hides_by_number(run) ? measure(anchor_run, run) : NULL;
}

static Status attention_run(AnchorRun *anchor_run) {
    TaskLoop loop = {0};
    AttentionRun *run = &loop.run;
    TRY(attention_describe(anchor_run, anchor_run->output, run));
    if (!tensor_count(anchor_run->output)) return NULL;
    if (anchor_run->anchor->node->output_count > 1) run->logarithms = anchor_run->output[1].data;
    void *memory;
    loop.block = rows_of_tasks(run);
    loop.blocks = ceil_div(run->rows * run->together, loop.block);
    loop.splits = splits_of(run);
    if (loop.splits > 1) {
        int64_t floats = run->matrices * run->rows * loop.splits * (run->shape.width + 2);
        TRY(scratch_take(&anchor_run->scratch, (size_t)floats * sizeof(float), &memory));
        loop.partial = memory;
    }
    loop.worker_bytes = attention_task_bytes(run, loop.block);
    TRY(scratch_take(&anchor_run->scratch, loop.worker_bytes * (size_t)pool_threads(anchor_run->pool), &memory));
    loop.memory = memory;
    for (int i = 0; i < pool_threads(anchor_run->pool); i++)
        attention_task_begin(run, loop.memory + loop.worker_bytes * (size_t)i);
    int64_t tasks = run->matrices / run->together * loop.blocks * loop.splits;
    pool_for(anchor_run->pool, tasks, 1, run_tasks, &loop);
    if (loop.splits == 1 || pool_is_stopped()) return NULL;
    int64_t grain = JOIN_WORK / (loop.splits * (run->shape.width + 2));
    pool_for(anchor_run->pool, run->matrices * run->rows, grain < 1 ? 1 : grain, join_rows, &loop);
    return NULL;
}

/* ---- the anchor ---- */

/* A seed, and a limit of 24 bits. */
static bool draws(const AttentionStep *s, const Value *seed) {
    return seed->dtype == DT_U64 && seed->rank == 0 && s->alpha >= 0 && s->alpha <= 0x1p24f;
}

static bool is_taken(DType dtype) { return dtype == DT_F32 || dtype == DT_F16 || dtype == DT_BF16; }

Status attention_prepare(CpuAnchor *anchor, const Tensor *const *constants, Pool *pool) {
    (void)constants, (void)pool;
    AttentionStep steps[ATTENTION_STEPS];
    int count;
    bool taken = is_taken(anchor->dtype) && attention_steps(anchor->node, steps, &count);
    for (int i = 0; taken && i < count; i++) {
        const Value *input = steps[i].input < 0 ? NULL : anchor->node->inputs[steps[i].input];
        if (steps[i].kind == SCORE_DROP)
            taken = draws(&steps[i], input);
        else
            taken = !input || is_taken(input->dtype) || (input->dtype == DT_BOOL && steps[i].kind != SCORE_SINK);
    }
    if (!taken) return status_error(STATUS_FAULT, "an attention that the CPU does not run");
    anchor->how = "blockwise";
    return NULL;
}

static Status attention_check(const CpuAnchor *anchor, const Tensor *const *inputs, const int64_t *symbols,
                              const Tensor *output) {
    AttentionShape shape;
    TRY(attention_shape(anchor->node, inputs, symbols, output, &shape));
    bool fits = anchor->node->output_count < 2 ||
                tensor_count(&output[1]) == dims_product(shape.lead, 0, ATTENTION_LEAD) * shape.queries;
    return fits ? NULL : anchor_wrong(anchor, "the logarithms are not one a row");
}

const AnchorKind attention_kind = {"attention", attention_prepare, attention_check, attention_run, .alone = true};
