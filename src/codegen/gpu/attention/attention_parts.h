/* SPDX-License-Identifier: Apache-2.0 */
/* What attention.c (sizes, launches) and attention_source.c (text) share. */
#ifndef ONNXFUSE_CODEGEN_GPU_ATTENTION_ATTENTION_PARTS_H
#define ONNXFUSE_CODEGEN_GPU_ATTENTION_ATTENTION_PARTS_H

#include "codegen/gpu/attention/attention.h"

enum { ATTENTION_THREADS = 128, ATTENTION_KEYS = 32 }; /* threads a block, keys a tile */

/* A function's tile: across x down threads, each with `rows` rows, `down` apart, and every across-th key. */
typedef struct AttentionTile {
    const char *suffix;
    int across, down, rows;
    int chunk; /* elements of keys and values in shared memory at once */
} AttentionTile;

enum { TILE_TALL, TILE_SHORT, TILE_FEW, TILE_COUNT };

typedef struct AttentionPlan {
    int size, width; /* padded to multiples of 32 */
    AttentionTile tiles[TILE_COUNT];
    int matrix_keys; /* keys a tile of the tall function on matrix units; 0: it does not run there */
} AttentionPlan;

AttentionPlan attention_plan(const GpuAttentionText *text);
static inline int tile_rows(const AttentionTile *tile) { return tile->down * tile->rows; }

/* attention_matrix.c: the parts of the tall function on matrix units: what it calls, its shared memory, its body up to
 * the steps and behind them. */
void attention_matrix_words(Text *text, const AttentionPlan *plan, DType dtype, GpuDialect dialect);
extern const char attention_matrix_memory[], attention_matrix_scores[], attention_matrix_values[];

/* The causal step whose hidden keys need not be read, when the offset is at least *out_least_offset; -1: none. */
int attention_skips(const GpuAttentionText *text, int64_t *out_least_offset);

/* The i64 arguments in order; those of the steps follow, five each, for steps that read a tensor. */
#define ATTENTION_ARGUMENTS(X)                                                                                         \
    X(lead1)                                                                                                           \
    X(kv_heads)                                                                                                        \
    X(group) X(queries) X(keys) X(size) X(width) X(offset) X(skip) X(row_tiles) X(splits) X(span) X(k_mode) X(v_mode)
#define ATTENTION_JOIN_ARGUMENTS(X) X(lead1) X(kv_heads) X(group) X(queries) X(keys) X(width) X(splits) X(elements)
/* Of each operand: <name>_lead0, <name>_lead1, <name>_head, <name>_row, <name>_column. */

/* How a tile of keys or values is read: element by element along the elements or along the keys, or by 16 bytes. */
enum { READ_ELEMENTS, READ_KEYS, READ_WIDE };

#endif
