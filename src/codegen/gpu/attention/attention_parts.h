/* SPDX-License-Identifier: Apache-2.0 */
/* What attention.c (sizes, launches) and attention_source.c (text) share. */
#ifndef ONNXFUSE_CODEGEN_GPU_ATTENTION_ATTENTION_PARTS_H
#define ONNXFUSE_CODEGEN_GPU_ATTENTION_ATTENTION_PARTS_H

#include "codegen/gpu/attention/attention.h"

enum { ATTENTION_THREADS = 128, ATTENTION_KEYS = 32 }; /* threads a block, keys a tile */

typedef enum AttentionForm {
    FORM_NONE,    /* there is no such function */
    FORM_PLAIN,   /* attention_source.c */
    FORM_MATRIX,  /* attention_matrix.c: on matrix units */
    FORM_GROUPS,  /* attention_groups.c: on those of warpgroups */
    FORM_SQUARES, /* attention_squares.c: f32, squares of scores a thread */
    FORM_STREAM,  /* attention_stream.c: few rows, keys by 16 bytes to registers */
} AttentionForm;

/* A function's tile: across x down threads, each with `rows` rows, `down` apart, and every across-th key; on matrix units
 * `rows` bands of `down` rows, of warpgroups one. STREAM: all threads have all rows, and `across` keys in turn each. */
typedef struct AttentionTile {
    const char *suffix;
    int across, down, rows;
    int chunk; /* elements of keys and values in shared memory at once */
    AttentionForm form;
    int keys;           /* a tile; PLAIN: ATTENTION_KEYS */
    int threads;        /* a block */
    size_t given_bytes; /* of shared memory, by the launch */
    bool wide;          /* takes only queries, keys and values that are read by 16 bytes */
} AttentionTile;

enum { TILE_LONG, TILE_TALL, TILE_SHORT, TILE_FEW, TILE_STREAM, TILE_ONE, TILE_COUNT };

typedef struct AttentionPlan {
    int size, width; /* padded to multiples of 32 */
    AttentionTile tiles[TILE_COUNT];
} AttentionPlan;

AttentionPlan attention_plan(const GpuAttentionText *text);
static inline int tile_rows(const AttentionTile *tile) { return tile->down * tile->rows; }

/* What a function calls that depends on its tile, then its body in order; NULL: none. `scores` begins the loop over tiles
 * of keys, `values` ends it. `rows`, `keys`, `end`: the loops over the thread's rows and keys around the steps on `score` of key `own` + `at`; they stand there
 * once, or once for tiles at the edge and once for the others. */
typedef struct AttentionParts {
    const char *words, *memory, *places, *scores, *rows, *keys, *at, *end, *weights, *values, *result;
} AttentionParts;

/* What a block knows of each row's result, or of its part; nowhere: -1. Later, registers are scarce. */
extern const char attention_places[];

/* attention_matrix.c: what functions on matrix units call, and their parts; both need the words of matrix.h. */
void attention_matrix_words(Text *text);
extern const AttentionParts attention_matrix_parts;

/* attention_groups.c: likewise, behind those of attention_matrix.c and the words of warpgroup.h. */
AttentionParts attention_groups_parts(void);

/* attention_squares.c: likewise. */
extern const AttentionParts attention_squares_parts;

/* attention_stream.c: likewise, without those words. */
void attention_stream_words(Text *text);
extern const AttentionParts attention_stream_parts;

/* The causal step whose hidden keys need not be read, when the offset is at least *out_least_offset; -1: none. */
int attention_skips(const GpuAttentionText *text, int64_t *out_least_offset);

/* Elements of a row that a thread joins. */
static inline int attention_join_step(const GpuAttentionText *text) { return text->width % 4 ? 1 : 4; }

/* The i64 arguments in order; those of the steps follow, five each, for steps that read a tensor. */
#define ATTENTION_ARGUMENTS(X)                                                                                         \
    X(lead1)                                                                                                           \
    X(kv_heads)                                                                                                        \
    X(group)                                                                                                           \
    X(queries)                                                                                                         \
    X(keys)                                                                                                            \
    X(size)                                                                                                            \
    X(width)                                                                                                           \
    X(offset) X(skip) X(row_tiles) X(splits) X(span) X(q_mode) X(k_mode) X(v_mode) X(pairs) X(k_share) X(v_share)
#define ATTENTION_JOIN_ARGUMENTS(X) X(lead1) X(kv_heads) X(group) X(queries) X(keys) X(splits) X(elements)
/* Of each operand: <name>_lead0, <name>_lead1, <name>_head, <name>_row, <name>_column. */

/* Whether only the order of scores and what is hidden matters before the softmax, so that they need not be scaled. */
bool attention_keeps_order(const GpuAttentionText *text);

/* How a tile of queries, keys or values is read: element by element along the elements or along the keys, or by 16 bytes. */
enum { READ_ELEMENTS, READ_KEYS, READ_WIDE };

#endif
