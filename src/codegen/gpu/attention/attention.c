/* SPDX-License-Identifier: Apache-2.0 */
/* Attention on GPUs: the tiles for a head size, and the launches for a run's sizes. */
#include <math.h>

#include "base/integer.h"
#include "codegen/gpu/attention/attention_parts.h"
#include "codegen/gpu/warpgroup.h"

static int padded(int x) { return (x + 31) / 32 * 32; }

enum {
    MOST_SHARED = 48 << 10, /* what every CUDA device gives a block without asking */
    MOST_SUMS = 64,         /* a thread's weighted values in registers, of up to 255 */
    MOST_MATRIX_SUMS = 128, /* on matrix units, where a thread has half a row's width of them a band */
    MOST_MASKED_SUMS = 64,  /* the same where steps read tensors */
    BAND = 64,              /* rows of a block for each 16 of a warp */
    GROUP_ROWS = 64,        /* of a warpgroup */
};

/* Bytes of shared memory of a tile; rows are 4 elements longer than their data. */
static size_t shared_bytes(const AttentionTile *tile, const AttentionPlan *plan) {
    int rows = tile_rows(tile),
        elements = rows * (plan->size + 4) + ATTENTION_KEYS * (tile->chunk + 4) + rows * (ATTENTION_KEYS + 4);
    return (size_t)elements * sizeof(float) + 2 * (size_t)rows * sizeof(int32_t);
}

static bool divides_both(int chunk, const AttentionPlan *plan) {
    return plan->size % chunk == 0 && plan->width % chunk == 0;
}

/* Whether addresses of steps' tensors take registers. */
static bool reads_tensor(const GpuAttentionText *text) {
    bool reads = false;
    for (int i = 0; i < text->step_count; i++) reads |= gpu_score_reads(text->steps[i].kind);
    return reads;
}

/* The longest tiles of keys for which queries, keys and values fit shared memory as 16-bit floats. */
static void plan_matrix(const GpuAttentionText *text, const AttentionPlan *plan, int bands, AttentionTile *tile) {
    size_t most = text->shared_most > text->shared_bytes ? text->shared_most : text->shared_bytes;
    int sums = bands * plan->width / 2, most_sums = reads_tensor(text) ? MOST_MASKED_SUMS / bands : MOST_MATRIX_SUMS;
    if (!text->matrix || dtype_size(text->dtype) != 2 || sums > most_sums) return;
    for (int keys = 64; keys >= 32; keys /= 2) {
        size_t elements = (size_t)(bands * BAND * (plan->size + 8) + keys * (plan->size + plan->width + 16)),
               bytes = elements * sizeof(uint16_t), places = 4 * (size_t)(bands * BAND) * sizeof(int32_t);
        if (bytes + places > most) continue;
        *tile = (AttentionTile){.suffix = tile->suffix,
                                .form = FORM_MATRIX,
                                .down = BAND,
                                .rows = bands,
                                .keys = keys,
                                .threads = ATTENTION_THREADS,
                                .given_bytes = bytes,
                                .wide = bands > 1};
        return;
    }
}

/* Two warpgroups; of heads of up to 64 two such blocks fit a multiprocessor, of others one with longer tiles of keys is
 * faster. */
static void plan_groups(const GpuAttentionText *text, const AttentionPlan *plan, AttentionTile *tile) {
    size_t most = text->shared_most > text->shared_bytes ? text->shared_most : text->shared_bytes;
    int rows = 2 * GROUP_ROWS, keys = plan->size > 64 || plan->width > 64 ? 128 : 64;
    if (reads_tensor(text)) keys = 64;
    size_t elements = (size_t)(rows * plan->size + 2 * keys * (plan->size + plan->width)),
           bytes = elements * sizeof(uint16_t) + GROUP_ALIGNMENT, places = 4 * (size_t)rows * sizeof(int32_t);
    bool whole = plan->size % 64 == 0 && plan->width % 64 == 0 && plan->size <= 128 && plan->width <= 128;
    if (!text->groups || !whole || dtype_size(text->dtype) != 2 || bytes + places > most) return;
    *tile = (AttentionTile){.suffix = tile->suffix,
                            .form = FORM_GROUPS,
                            .down = rows,
                            .rows = 1,
                            .keys = keys,
                            .threads = 2 * rows,
                            .given_bytes = bytes,
                            .wide = true};
}

/* Rows of whole quads that a block's threads share out evenly; 64 weighted values a thread. */
static void plan_squares(const GpuAttentionText *text, const AttentionPlan *plan, AttentionTile *tile) {
    enum { DOWN = 16, ROWS = 8, KEYS = 64 };
    size_t most = text->shared_most > text->shared_bytes ? text->shared_most : text->shared_bytes;
    int across = plan->width > 64 || reads_tensor(text) ? 16 : 8, rows = DOWN * ROWS;
    size_t elements = (size_t)((rows + KEYS) * plan->size + KEYS * plan->width + rows * KEYS),
           bytes = elements * sizeof(float), places = 4 * (size_t)rows * sizeof(int32_t);
    bool even = across * DOWN % (plan->size / 4) == 0 && across * DOWN % (plan->width / 4) == 0 &&
                plan->width / across % 4 == 0;
    if (!text->matrix || text->dtype != DT_F32 || !even || plan->width > 128 || bytes + places > most) return;
    *tile = (AttentionTile){.suffix = tile->suffix,
                            .across = across,
                            .down = DOWN,
                            .rows = ROWS,
                            .form = FORM_SQUARES,
                            .keys = KEYS,
                            .threads = across * DOWN,
                            .given_bytes = bytes,
                            .wide = true};
}

/* Up to 4 rows, of at most 64 weighted values a thread, for 8 would spill; about four loads of keys and as many of
 * values are under way at once. */
static void plan_stream(const GpuAttentionText *text, bool one, AttentionTile *tile) {
    enum { LANES = 8, LOADS = 4, SUMS = 64, ROWS = 4 };
    int wide = 16 / (int)dtype_size(text->dtype), size = text->size, width = text->width;
    if (size % wide || width % wide) return;
    int larger = size > width ? size : width, chunks = (larger + LANES * wide - 1) / (LANES * wide);
    int rows = SUMS / (chunks * wide), steps = chunks < LOADS ? LOADS / chunks : 1;
    *tile = (AttentionTile){.suffix = tile->suffix,
                            .across = steps,
                            .down = 1,
                            .rows = one           ? 1
                                    : rows < ROWS ? rows
                                                  : ROWS,
                            .form = FORM_STREAM,
                            .keys = ATTENTION_THREADS / LANES * steps,
                            .threads = ATTENTION_THREADS,
                            .wide = true};
}

/* 8 rows a thread where shared memory and registers suffice: two loads from shared memory then serve 16 to 32
 * multiplications, less than the units can do at once. Few rows wait for memory: their tiles of keys are as long as
 * they can be, so that more is under way between two barriers. */
AttentionPlan attention_plan(const GpuAttentionText *text) {
    AttentionPlan plan = {
        .size = padded(text->size),
        .width = padded(text->width),
        .tiles = {{"_long"},
                  {"_tall", 16, 8, 8, 64, FORM_PLAIN, ATTENTION_KEYS, ATTENTION_THREADS},
                  {"_short", 16, 8, 2, 64, FORM_PLAIN, ATTENTION_KEYS, ATTENTION_THREADS},
                  {"_few", 32, 4, 1, 128, FORM_PLAIN, ATTENTION_KEYS, ATTENTION_THREADS},
                  {"_stream"},
                  {"_one"}},
    };
    size_t most = text->shared_bytes < MOST_SHARED ? text->shared_bytes : MOST_SHARED;
    plan_matrix(text, &plan, 1, &plan.tiles[TILE_TALL]);
    plan_matrix(text, &plan, 2, &plan.tiles[TILE_LONG]);
    plan_groups(text, &plan, &plan.tiles[TILE_LONG]);
    plan_squares(text, &plan, &plan.tiles[TILE_LONG]);
    plan_stream(text, false, &plan.tiles[TILE_STREAM]);
    plan_stream(text, true, &plan.tiles[TILE_ONE]);
    for (int i = 0; i < TILE_COUNT; i++) {
        AttentionTile *tile = &plan.tiles[i];
        if (tile->form != FORM_PLAIN) continue;
        while (tile->chunk > 32 && (!divides_both(tile->chunk, &plan) || shared_bytes(tile, &plan) > most))
            tile->chunk -= 32;
        while (tile->rows > 1 &&
               (shared_bytes(tile, &plan) > most || tile->rows * plan.width / tile->across > MOST_SUMS))
            tile->rows /= 2;
    }
    return plan;
}

bool gpu_attention_fits(const GpuAttentionText *text, const GpuLimits *limits) {
    AttentionPlan plan = attention_plan(text);
    bool fits = limits->block_threads >= ATTENTION_THREADS;
    for (int i = 0; i < TILE_COUNT; i++)
        fits &= plan.tiles[i].form != FORM_PLAIN || shared_bytes(&plan.tiles[i], &plan) <= limits->shared_bytes;
    return fits;
}

/* Later steps must leave -inf what it is. A finite number hides the same when the first key is always seen and no
 * tensor changes what is seen. */
int attention_skips(const GpuAttentionText *text, int64_t *out_least_offset) {
    int at = 0, tensors = 0;
    while (at < text->step_count && text->steps[at].kind != GPU_SCORE_CAUSAL &&
           text->steps[at].kind != GPU_SCORE_CAUSAL_ADD)
        at++;
    if (at == text->step_count) return -1;
    for (int i = 0; i < text->step_count; i++) {
        const GpuScore *s = &text->steps[i];
        bool hides = (s->kind == GPU_SCORE_KEEP || s->kind == GPU_SCORE_HIDE) && s->alpha == -INFINITY;
        tensors += gpu_score_reads(s->kind);
        if (i > at && !hides && s->kind != GPU_SCORE_ADD && s->kind != GPU_SCORE_ADD_HIDING &&
            !(s->kind == GPU_SCORE_SCALE && s->alpha > 0))
            return -1;
    }
    bool none = text->steps[at].alpha == -INFINITY;
    *out_least_offset = none ? INT64_MIN : 0;
    return none || (text->steps[at].alpha <= -1e30F && !tensors) ? at : -1;
}

bool attention_keeps_order(const GpuAttentionText *text) {
    bool keeps = text->positive;
    for (int i = 0; i < text->step_count; i++) {
        GpuScoreKind kind = text->steps[i].kind;
        bool hides = kind == GPU_SCORE_KEEP || kind == GPU_SCORE_HIDE || kind == GPU_SCORE_CAUSAL;
        keeps &= hides && text->steps[i].alpha == -INFINITY;
    }
    return keeps;
}

int gpu_attention_suffixes(const GpuAttentionText *text, const char *out[GPU_ATTENTION_FUNCTIONS]) {
    AttentionPlan plan = attention_plan(text);
    int count = 0;
    for (int i = 0; i < TILE_COUNT; i++)
        if (plan.tiles[i].form != FORM_NONE) out[count++] = plan.tiles[i].suffix;
    out[count++] = "_join";
    return count;
}

/* ---- launches ---- */

static void push_strides(GpuAttentionLaunch *launch, const GpuAttentionStrides *s) {
    const int64_t all[] = {s->lead[0], s->lead[1], s->lead[2], s->row, s->column};
    for (int i = 0; i < 5; i++) launch->arguments[launch->count++] = all[i];
}

/* How a tile of q, k or v is read. */
static int64_t read_mode(const GpuAttentionStrides *s, bool aligned, DType dtype, int size) {
    int wide = 16 / (int)dtype_size(dtype);
    bool whole = s->column == 1 && size % wide == 0 && s->row % wide == 0;
    for (int i = 0; i < GPU_ATTENTION_LEAD; i++) whole &= s->lead[i] % wide == 0;
    if (aligned && whole) return READ_WIDE;
    return s->row == 1 && s->column != 1 ? READ_KEYS : READ_ELEMENTS;
}

static bool reads_wide(const GpuAttentionText *text, const GpuAttentionRun *a) {
    return read_mode(&a->q, a->q_aligned, text->dtype, text->size) == READ_WIDE &&
           read_mode(&a->k, a->k_aligned, text->dtype, text->size) == READ_WIDE &&
           read_mode(&a->v, a->v_aligned, text->dtype, text->width) == READ_WIDE;
}

static bool writes_pairs(const GpuAttentionRun *a, int width) {
    bool even = a->out_aligned && a->out.column == 1 && width % 2 == 0 && a->out.row % 2 == 0;
    for (int i = 0; i < GPU_ATTENTION_LEAD; i++) even &= a->out.lead[i] % 2 == 0;
    return even;
}

enum {
    BLOCKS_EACH = 4, /* blocks that a multiprocessor runs at once, about */
    LONG_EACH = 2,   /* of long tiles; one is as good where keys are not many */
    MANY_KEYS = 2048,
    MOST_COLUMN = INT32_MAX / 64, /* elements from one key to the next: within a tile they are counted in 32 bits */
    SPAN_UNIT = 128,              /* a multiple of every tile's keys */
    MOST_STREAMED = 8,            /* rows of a key head; the others' tiles have more */
    LEAST_SPAN = 128,             /* keys of a split: below it the second launch costs more than it saves */
};

/* The longest tile that still gives three of four multiprocessors a block and is well filled, or the tall one that has matrix
 * units; few rows take what they fill. */
static int choose_tile(const AttentionPlan *plan, int64_t rows, int64_t heads, bool wide, const GpuLimits *limits) {
    const AttentionTile *tall = &plan->tiles[TILE_TALL], *longest = &plan->tiles[TILE_LONG];
    bool streamed = wide && plan->tiles[TILE_STREAM].form != FORM_NONE;
    if (streamed && rows <= MOST_STREAMED) return rows == 1 ? TILE_ONE : TILE_STREAM;
    if (rows <= tile_rows(&plan->tiles[TILE_FEW])) return TILE_FEW;
    if (rows <= tile_rows(&plan->tiles[TILE_SHORT])) return TILE_SHORT;
    int64_t tall_tiles = ceil_div(rows, tile_rows(tall));
    if (longest->form != FORM_NONE && (wide || !longest->wide)) {
        int64_t tiles = ceil_div(rows, tile_rows(longest));
        bool filled = tiles * tile_rows(longest) * 4 <= tall_tiles * tile_rows(tall) * 5;
        if (filled && heads * tiles * 4 >= (int64_t)limits->multiprocessors * 3) return TILE_LONG;
    }
    return tall->form == FORM_MATRIX || heads * tall_tiles >= limits->multiprocessors ? TILE_TALL : TILE_SHORT;
}

static int64_t choose_splits(int64_t blocks, int each, int64_t keys, const GpuLimits *limits) {
    int64_t room = (int64_t)limits->multiprocessors * each / (blocks ? blocks : 1), most = keys / LEAST_SPAN;
    int64_t splits = room < most ? room : most;
    return splits < 1 ? 1 : splits;
}

static void fill_tiles(const GpuAttentionText *text, const GpuAttentionRun *a, const AttentionTile *tile,
                       int64_t blocks, int64_t row_tiles, int64_t splits, int64_t tile_span,
                       GpuAttentionLaunch *launch) {
    int64_t least = 0;
    int skips = attention_skips(text, &least);
    int64_t lead1 = a->lead[1], kv_heads = a->kv_heads, group = a->lead[2] / kv_heads, queries = a->queries,
            keys = a->keys, size = text->size, width = text->width, offset = a->offset,
            skip = skips >= 0 && a->offset >= least, span = tile_span,
            k_mode = read_mode(&a->k, a->k_aligned, text->dtype, text->size),
            v_mode = read_mode(&a->v, a->v_aligned, text->dtype, text->width), k_share = a->k_share,
            v_share = a->v_share, q_mode = read_mode(&a->q, a->q_aligned, text->dtype, text->size),
            pairs = writes_pairs(a, text->width);
    *launch = (GpuAttentionLaunch){
        .suffix = tile->suffix, .grid = blocks * splits, .block = tile->threads, .shared_bytes = tile->given_bytes};
#define PUSH_ARGUMENT(name) launch->arguments[launch->count++] = name;
    ATTENTION_ARGUMENTS(PUSH_ARGUMENT)
    push_strides(launch, &a->q);
    push_strides(launch, &a->k);
    push_strides(launch, &a->v);
    push_strides(launch, &a->out);
    for (int i = 0; i < text->step_count; i++)
        if (gpu_score_reads(text->steps[i].kind)) push_strides(launch, &a->steps[i]);
}

static void fill_join(const GpuAttentionText *text, const GpuAttentionRun *a, int64_t splits, int64_t elements,
                      GpuAttentionLaunch *launch) {
    int64_t lead1 = a->lead[1], kv_heads = a->kv_heads, group = a->lead[2] / kv_heads, queries = a->queries,
            keys = a->keys;
    *launch = (GpuAttentionLaunch){.suffix = "_join",
                                   .grid = ceil_div(elements / attention_join_step(text), ATTENTION_THREADS),
                                   .block = ATTENTION_THREADS,
                                   .join = true};
    ATTENTION_JOIN_ARGUMENTS(PUSH_ARGUMENT)
    push_strides(launch, &a->out);
}

/* Keys, rows and blocks are counted in 32 bits by the kernels. */
bool gpu_attention_launches(const GpuAttentionText *text, const GpuAttentionRun *a, const GpuLimits *limits,
                            GpuAttentionLaunches *out) {
    *out = (GpuAttentionLaunches){0};
    AttentionPlan plan = attention_plan(text);
    int64_t rows, heads, row_tiles, blocks, elements;
    if (!a->lead[0] || !a->lead[1] || !a->lead[2] || !a->queries) return true;
    for (int i = 0; i < text->step_count; i++)
        if (gpu_score_reads(text->steps[i].kind) && a->steps[i].column > MOST_COLUMN) return false;
    if (a->kv_heads < 1 || a->lead[2] % a->kv_heads || a->k_share < 1 || a->v_share < 1) return false;
    if (__builtin_mul_overflow(a->lead[2] / a->kv_heads, a->queries, &rows) || rows > INT32_MAX / 2) return false;
    if (__builtin_mul_overflow(a->lead[0] * a->lead[1], a->kv_heads, &heads) || a->keys > INT32_MAX / 2) return false;
    const AttentionTile *tile = &plan.tiles[choose_tile(&plan, rows, heads, reads_wide(text, a), limits)];
    row_tiles = ceil_div(rows, tile_rows(tile));
    if (__builtin_mul_overflow(heads, row_tiles, &blocks) || blocks > INT32_MAX) return false;
    if (__builtin_mul_overflow(heads * rows, (int64_t)text->width, &elements)) return false;
    int long_each = a->keys >= MANY_KEYS ? LONG_EACH : 1,
        each = tile == &plan.tiles[TILE_LONG] ? long_each : BLOCKS_EACH;
    int64_t splits = choose_splits(blocks, each, a->keys, limits),
            span = ceil_div(ceil_div(a->keys, splits), SPAN_UNIT);
    span = (span ? span : 1) * SPAN_UNIT;
    splits = a->keys ? ceil_div(a->keys, span) : 1;
    fill_tiles(text, a, tile, blocks, row_tiles, splits, span, &out->items[out->count++]);
    if (splits == 1) return true;
    if (ceil_div(elements, ATTENTION_THREADS) > INT32_MAX) return false; /* at most so many blocks */
    fill_join(text, a, splits, elements, &out->items[out->count++]);
    out->scratch_bytes = (size_t)(heads * rows * splits * (text->width + 2)) * sizeof(float);
    return true;
}
