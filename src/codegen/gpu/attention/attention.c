/* SPDX-License-Identifier: Apache-2.0 */
/* Attention on GPUs: the tiles for a head size, and the launches for a run's sizes. */
#include <math.h>

#include "codegen/gpu/attention/attention_parts.h"

static int padded(int x) { return (x + 31) / 32 * 32; }

enum {
    MOST_SHARED = 48 << 10,  /* what every CUDA device gives a block without asking */
    MOST_SUMS = 64,          /* a thread's weighted values in registers, of up to 255 */
    MOST_MATRIX_WIDTH = 128, /* on matrix units a thread has half a row's width of them */
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

/* Keys a tile for which queries, keys and values fit shared memory on matrix units, as 16-bit floats; 0: none do. */
static int matrix_keys(const GpuAttentionText *text, const AttentionPlan *plan, size_t most) {
    int rows = tile_rows(&plan->tiles[TILE_TALL]);
    if (!text->matrix || dtype_size(text->dtype) != 2 || plan->width > MOST_MATRIX_WIDTH) return 0;
    for (int keys = 64; keys >= 32; keys /= 2) {
        size_t elements = (size_t)(rows * (plan->size + 8) + keys * (plan->size + plan->width + 16));
        if (elements * sizeof(uint16_t) + 2 * (size_t)rows * sizeof(int32_t) <= most) return keys;
    }
    return 0;
}

/* 8 rows a thread where shared memory and registers suffice: two loads from shared memory then serve 16 to 32
 * multiplications, less than the units can do at once. Few rows wait for memory: their tiles of keys are as long as
 * they can be, so that more is under way between two barriers. */
AttentionPlan attention_plan(const GpuAttentionText *text) {
    AttentionPlan plan = {
        .size = padded(text->size),
        .width = padded(text->width),
        .tiles = {{"_tall", 16, 8, 8, 64}, {"_short", 16, 8, 2, 64}, {"_few", 32, 4, 1, 128}},
    };
    size_t most = text->shared_bytes < MOST_SHARED ? text->shared_bytes : MOST_SHARED;
    plan.matrix_keys = matrix_keys(text, &plan, most);
    for (int i = plan.matrix_keys ? TILE_SHORT : TILE_TALL; i < TILE_COUNT; i++) {
        AttentionTile *tile = &plan.tiles[i];
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
    for (int i = plan.matrix_keys ? TILE_SHORT : TILE_TALL; i < TILE_COUNT; i++)
        fits &= shared_bytes(&plan.tiles[i], &plan) <= limits->shared_bytes;
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

const char *const *gpu_attention_suffixes(void) {
    static const char *const suffixes[] = {"_tall", "_short", "_few", "_join", NULL};
    return suffixes;
}

/* ---- launches ---- */

static void push_strides(GpuAttentionLaunch *launch, const GpuAttentionStrides *s) {
    const int64_t all[] = {s->lead[0], s->lead[1], s->lead[2], s->row, s->column};
    for (int i = 0; i < 5; i++) launch->arguments[launch->count++] = all[i];
}

/* How a tile of k or v is read. */
static int64_t read_mode(const GpuAttentionStrides *s, bool aligned, DType dtype, int size) {
    int wide = 16 / (int)dtype_size(dtype);
    bool whole = s->column == 1 && size % wide == 0 && s->row % wide == 0;
    for (int i = 0; i < GPU_ATTENTION_LEAD; i++) whole &= s->lead[i] % wide == 0;
    if (aligned && whole) return READ_WIDE;
    return s->row == 1 && s->column != 1 ? READ_KEYS : READ_ELEMENTS;
}

static int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

enum {
    BLOCKS_EACH = 4,  /* blocks that a multiprocessor runs at once, about */
    SPAN_UNIT = 64,   /* a multiple of every tile's keys */
    LEAST_SPAN = 128, /* keys of a split: below it the second launch costs more than it saves */
};

/* The tallest tile that still gives every multiprocessor a block, or has matrix units; few rows take what they fill. */
static int choose_tile(const AttentionPlan *plan, int64_t rows, int64_t heads, const GpuLimits *limits) {
    if (rows <= tile_rows(&plan->tiles[TILE_FEW])) return TILE_FEW;
    const AttentionTile *tall = &plan->tiles[TILE_TALL];
    bool filled = plan->matrix_keys || heads * ceil_div(rows, tile_rows(tall)) >= limits->multiprocessors;
    return rows > tile_rows(&plan->tiles[TILE_SHORT]) && filled ? TILE_TALL : TILE_SHORT;
}

static int64_t choose_splits(int64_t blocks, int64_t keys, const GpuLimits *limits) {
    int64_t room = (int64_t)limits->multiprocessors * BLOCKS_EACH / (blocks ? blocks : 1), most = keys / LEAST_SPAN;
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
            v_mode = read_mode(&a->v, a->v_aligned, text->dtype, text->width);
    *launch = (GpuAttentionLaunch){.suffix = tile->suffix, .grid = blocks * splits, .block = ATTENTION_THREADS};
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
            keys = a->keys, width = text->width;
    *launch = (GpuAttentionLaunch){
        .suffix = "_join", .grid = ceil_div(elements, ATTENTION_THREADS), .block = ATTENTION_THREADS, .join = true};
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
    if (a->kv_heads < 1 || a->lead[2] % a->kv_heads) return false;
    if (__builtin_mul_overflow(a->lead[2] / a->kv_heads, a->queries, &rows) || rows > INT32_MAX / 2) return false;
    if (__builtin_mul_overflow(a->lead[0] * a->lead[1], a->kv_heads, &heads) || a->keys > INT32_MAX / 2) return false;
    const AttentionTile *tile = &plan.tiles[choose_tile(&plan, rows, heads, limits)];
    row_tiles = ceil_div(rows, tile_rows(tile));
    if (__builtin_mul_overflow(heads, row_tiles, &blocks) || blocks > INT32_MAX) return false;
    if (__builtin_mul_overflow(heads * rows, (int64_t)text->width, &elements)) return false;
    int64_t splits = choose_splits(blocks, a->keys, limits), span = ceil_div(ceil_div(a->keys, splits), SPAN_UNIT);
    span = (span ? span : 1) * SPAN_UNIT;
    splits = a->keys ? ceil_div(a->keys, span) : 1;
    fill_tiles(text, a, tile, blocks, row_tiles, splits, span, &out->items[out->count++]);
    if (splits == 1) return true;
    if (ceil_div(elements, ATTENTION_THREADS) > INT32_MAX) return false;
    fill_join(text, a, splits, elements, &out->items[out->count++]);
    out->scratch_bytes = (size_t)(heads * rows * splits * (text->width + 2)) * sizeof(float);
    return true;
}
