/* SPDX-License-Identifier: Apache-2.0 */
/* Attention on GPUs: softmax(steps(scale * q k^T)) v, block by block, so that neither scores nor probabilities are
 * stored.
 *
 * A block of 128 threads has a tile of rows (queries of one key head; heads that share keys are rows too) in shared
 * memory and takes tiles of 32 keys in turn: scores, their steps, the running maximum and sum of each row (Milakov and
 * Gimelshein, "Online normalizer calculation for softmax", 2018), and the weighted values, which are scaled whenever
 * the maximum grows (Dao et al., "FlashAttention", 2022). Keys that a causal mask hides from all rows of a tile are not
 * read. There are functions for tiles of 128, of up to 64, of 16, and of 4 rows; few rows are those of a decoder's step,
 * for which there are functions of their own where keys and values are read by 16 bytes (attention_stream.c). Where
 * there are fewer tiles than the device has room for, the keys are split over blocks: each leaves maximum, sum and
 * weighted values in scratch memory, and a second launch joins them in order, so that results are the same each time.
 *
 * All sizes and strides are arguments. f16 and bf16 are computed in f32; long and tall tiles of them run on matrix units
 * where the device has such (attention_matrix.c, attention_groups.c). */
#ifndef ONNXFUSE_CODEGEN_GPU_ATTENTION_ATTENTION_H
#define ONNXFUSE_CODEGEN_GPU_ATTENTION_ATTENTION_H

#include "codegen/gpu/gpu.h"

/* Keep the order of ScoreStep in lowering/anchors.h, which says what they mean. */
typedef enum GpuScoreKind {
    GPU_SCORE_SCALE,
    GPU_SCORE_TANH,
    GPU_SCORE_CLIP,
    GPU_SCORE_ADD,
    GPU_SCORE_ADD_HIDING,
    GPU_SCORE_KEEP,
    GPU_SCORE_HIDE,
    GPU_SCORE_CAUSAL,
    GPU_SCORE_CAUSAL_ADD,
    GPU_SCORE_COUNT,
} GpuScoreKind;

static inline bool gpu_score_reads(GpuScoreKind kind) { return kind >= GPU_SCORE_ADD && kind <= GPU_SCORE_HIDE; }

typedef struct GpuScore {
    GpuScoreKind kind;
    float alpha, beta;
    DType dtype; /* of its tensor: f32, f16, bf16, bool */
} GpuScore;

/* Keep the order of AttentionEmpty in lowering/anchors.h. */
typedef enum GpuEmpty { GPU_EMPTY_NAN, GPU_EMPTY_ZERO, GPU_EMPTY_NAN_ZERO } GpuEmpty;

enum { GPU_ATTENTION_STEPS = 8, GPU_ATTENTION_LEAD = 3, GPU_ATTENTION_HEAD = 256, GPU_ATTENTION_ARGUMENTS = 80 };

/* What a program's text depends on. */
typedef struct GpuAttentionText {
    DType dtype;         /* of q, k, v and the result: f32, f16, bf16 */
    int size, width;     /* elements of a key and of a value: 1 to GPU_ATTENTION_HEAD */
    size_t shared_bytes; /* of GpuLimits, as `shared_most`, `matrix` and `groups` */
    size_t shared_most;
    bool matrix;
    bool groups;
    bool positive; /* the scale is */
    GpuEmpty empty;
    int step_count;
    GpuScore steps[GPU_ATTENTION_STEPS];
} GpuAttentionText;

/* Whether the tiles fit the device's shared memory and blocks. */
bool gpu_attention_fits(const GpuAttentionText *attention, const GpuLimits *limits);

/* The function `<name><suffix>` of one of gpu_attention_suffixes; all of them: NULL. Complete: nothing is included. */
void gpu_attention_render(Text *text, const GpuAttentionText *attention, GpuDialect dialect, const char *name,
                          const char *suffix);
/* "_long" where there is one, "_tall", "_short", "_few", "_stream" and "_one" where there are such, "_join":
 * how many. */
enum { GPU_ATTENTION_FUNCTIONS = 7 };
int gpu_attention_suffixes(const GpuAttentionText *attention, const char *out_suffixes[GPU_ATTENTION_FUNCTIONS]);

/* Strides in elements; 0 where the tensor is repeated. */
typedef struct GpuAttentionStrides {
    int64_t lead[GPU_ATTENTION_LEAD]; /* the last: from one head (of its own) to the next */
    int64_t row, column;              /* q: query, element; k, v: key, element; steps: query, key */
} GpuAttentionStrides;

/* One run's sizes. */
typedef struct GpuAttentionRun {
    int64_t lead[GPU_ATTENTION_LEAD]; /* of the result; the last: heads; 1 where missing */
    int64_t kv_heads;                 /* groups of heads that have keys and values in common; divides the heads */
    int64_t k_share, v_share;         /* so many groups in a row have the same keys, and values; divide kv_heads */
    int64_t queries, keys;
    int64_t offset;                                               /* of the causal step */
    GpuAttentionStrides q, k, v, out, steps[GPU_ATTENTION_STEPS]; /* steps: by step */
    bool q_aligned, k_aligned, v_aligned;                         /* addresses divisible by 16 */
    bool out_aligned;                                             /* address divisible by two elements */
} GpuAttentionRun;

/* Arguments in order: buffers q, k, v, result, scratch, the steps' tensors; the scale as f32; then the i64; shared memory
 * if there is any to give. `join`: only buffers result and scratch, and its own i64. */
typedef struct GpuAttentionLaunch {
    const char *suffix;
    int64_t grid;
    int block;
    bool join;
    size_t shared_bytes; /* to give; 0: there is no such argument */
    int count;
    int64_t arguments[GPU_ATTENTION_ARGUMENTS];
} GpuAttentionLaunch;

typedef struct GpuAttentionLaunches {
    int count; /* 0: there is nothing to compute */
    GpuAttentionLaunch items[2];
    size_t scratch_bytes;
} GpuAttentionLaunches;

/* False when the sizes are beyond what one launch can do. */
bool gpu_attention_launches(const GpuAttentionText *text, const GpuAttentionRun *run, const GpuLimits *limits,
                            GpuAttentionLaunches *out_launches);

#endif
