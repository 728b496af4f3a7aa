/* SPDX-License-Identifier: Apache-2.0 */
/* Tiles: the innermost loops of all anchors. A tile is a few rows by a few vectors of a result, held in registers while
 *
 *     result[i][column + j] = sum over taps t, depths k of row(i, t)[k] * weight[t][k][j] + bias[column + j] + addend
 *
 * is added up. Rows are pointers, so a matrix product (one tap), a convolution (a tap an element of its kernel) and a
 * transposed one are the same loop over different pointers: no row is ever copied, any stride, padding and batch works,
 * and a new size compiles nothing.
 *
 * Measured on a Xeon with AMX at [504,K] x [K,N], one thread, of 215 GFLOP/s peak: 6 rows x 64 columns 200-210, 8 x 48
 * 200-210, 12 x 32 187-204; oneDNN 2.6's brgemm 196-212 there. */
#ifndef ONNXFUSE_RUNTIME_DEVICE_CPU_TILE_H
#define ONNXFUSE_RUNTIME_DEVICE_CPU_TILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "graph/dtype.h"
#include "lowering/anchor/plain_epilogue.h"
#include "lowering/anchors.h"

/* TILE_MAX_ROWS: in vectors' registers; TILE_MOST_ROWS: in any, AMX's too. */
enum { TILE_MAX_ROWS = 12, TILE_MOST_ROWS = 32, TILE_MAX_VECTORS = 4, TILE_MAX_LANES = 16 };

/* Forms of f32 weights in memory. Of a panel of `length` depths (all taps one after the other) by `width` columns:
 *   WORK              [length][width] in the work type
 *   F16, BF16         [length][width]
 *   INT8, INT4, INT2  blocks of `block` depths, the last one shorter: float scales [width], where there are zero points these,
 *                     float [width], then uint32_t [words][width], a word 4, 8 or 16 depths of a column from its lowest bits
 *                     on, 8, 4 or 2 bits each, that hold the value plus 128, 8 or 2.
 *                     An element is (value - zero point) * scale, a difference and a product of floats. */
typedef enum WeightKind {
    WEIGHT_WORK,
    WEIGHT_F16,
    WEIGHT_BF16,
    WEIGHT_INT8,
    WEIGHT_INT4,
    WEIGHT_INT2,
    WEIGHT_KINDS
} WeightKind;

typedef struct WeightForm {
    WeightKind kind;
    int block; /* INT8 and behind: a multiple of 16 that divides MOST_BLOCK */
    bool zeros;
} WeightForm;

/* NARROW_BLOCK: of what is rounded here. */
enum { NARROW_BLOCK = 32, MOST_BLOCK = 1024, NARROW_TILE_ROWS = 4 };

static inline bool weight_in_blocks(const WeightForm *form) { return form->kind >= WEIGHT_INT8; }
/* What stands for 0 in a word. */
static inline int weight_zero(WeightKind kind) { return kind == WEIGHT_INT2 ? 2 : kind == WEIGHT_INT4 ? 8 : 128; }
/* Depths in a word. */
static inline int weight_word(WeightKind kind) { return kind == WEIGHT_INT2 ? 16 : kind == WEIGHT_INT4 ? 8 : 4; }
/* Few rows are multiplied by weights of 4 and 2 bits that are neither moved to the end of their word, but to one of four places there, nor
 * less what stands for 0: depth `index` is this power of two too large, by which the rows' elements are divided, and then weight_excess
 * too large. Rounding errors are those of sums of such numbers. */
static inline float weight_up(WeightKind kind, int index) {
    return kind == WEIGHT_INT8 ? 1 : (float)(1u << (32 / weight_word(kind) * (index % 4)));
}
static inline float weight_excess(WeightKind kind) { return kind == WEIGHT_INT8 ? 0 : (float)weight_zero(kind); }

/* How sums of f32 become bf16: bias and addend are added, in this order, the bounds hold, and what comes out is rounded. Results are
 * known by where f32 would stand: one at address a goes to `to` + a / 2. */
typedef struct TileEnds {
    char *to;
    const float *bias;  /* by column, as TileCall's; NULL: none */
    const char *addend; /* of bf16, likewise; NULL: none */
    Bounds bounds;
} TileEnds;

typedef struct TileCall {
    const void *const
        *rows; /* row i at tap t begins at rows[t * row_stride + i], and then `offset` + offsets[t] elements further */
    int row_count;          /* the tile's height */
    int tiles;              /* of that height, one behind the other; 0 is 1, and all that `narrow` takes */
    int64_t row_stride;     /* 0: one pointer a row serves all taps */
    const int64_t *offsets; /* [taps] */
    int64_t offset;
    int64_t taps, depth;
    int64_t depth_gap;      /* elements of a row between one depth and the next */
    const void *weight;     /* [taps][depth][weight_stride] */
    int64_t weight_stride;  /* elements; of a narrow form: the panel's width */
    const WeightForm *form; /* of a weight that is widened in registers */
    const char *
        ahead; /* what is read after these tiles: asked for meanwhile, ahead_step bytes a depth, by tiles of 3 to 8 rows */
    int64_t ahead_step;   /* 0: nothing is */
    void *const *results; /* row i of the result; written from `column` on */
    int64_t column;
    int columns;      /* of them; the last vector may be partial */
    const void *bias; /* added to the sums, indexed by column and readable to the end of the last vector; NULL: none */
    bool has_addend;  /* then what lies addend_shift bytes beyond the result is (0: the result so far) */
    intptr_t addend_shift;
    Bounds bounds;        /* at the end (floats only) */
    const TileEnds *ends; /* not NULL: instead of bias, addend and bounds; products of pairs only */
    bool scales;          /* products of pairs only: the sums are multiplied by this, before all else */
    float scale;
} TileCall;

typedef void (*TileFunction)(const TileCall *call);

/* Rows of f32 that were rounded to i8 in blocks as long as those of the weight that they meet. A block is its head, and its depths
 * a byte each, filled up with zeros: behind each other those that a word of the weight holds (weight_word), as quads: the one with what
 * lies lowest in each of the word's four bytes first. An element is its byte times the scale. */
typedef struct RoundedHead {
    float scale;
    int32_t start; /* where its sums begin: the bytes' sum times what stands for 0 in the weight, negative */
} RoundedHead;

/* ROUNDED_STEP: depths after which sums of narrower numbers are widened. TILE_BLOCK_ROWS: most whose sums are in vector registers;
 * TILE_BLOCKS_MOST: in any. */
enum { ROUNDED_STEP = 32, TILE_BLOCK_ROWS = 8, TILE_BLOCKS_MOST = 32, ROW_DIGITS = 3, ROW_PARTS = 3 };

/* words: as TileBlocks has them. */
static inline int64_t rounded_block_bytes(int64_t block, bool words) {
    return (int64_t)sizeof(RoundedHead) + block * (1 + words);
}

/* Or rows of f32 as parts of bf16 that add up to them, the greatest first, in as long blocks: all depths of the first part, filled up with zeros, then
 * those of the others, and the sum of the block's elements, as f32. Of the depths that a word of the weight holds, the two
 * halves of it are taken in turn: 0, 4, 1, 5, 2, 6, 3, 7. */
static inline int64_t parts_sum_at(int64_t block) { return block * ROW_PARTS * (int64_t)sizeof(uint16_t); }
/* Whole lines of a cache, where a block of the parts is that. */
static inline int64_t parts_block_bytes(const WeightForm *form) {
    enum { LINE = 64 };
    return parts_sum_at(form->block) + (form->zeros ? LINE : 0);
}

/* Products of such rows by weights in blocks. In a TileCall `rows` are such, `offset` is a multiple of the block, there is one
 * tap, and columns are those of the whole panel. */
typedef struct TileBlocks {
    int rows; /* most */
    /* By INT8 rows are words of 16 bits, two in the place of each quad: its first and third byte, then its second and fourth. */
    bool words;
    TileFunction products[WEIGHT_KINDS][TILE_BLOCKS_MOST + 1]; /* [kind][rows]; of INT8, INT4 and INT2 */
    TileFunction digits[WEIGHT_KINDS]; /* one row of ROW_DIGITS blocks for each; of INT4 and INT2; NULL: none */
    TileFunction parts[WEIGHT_KINDS];  /* up to `rows` rows in parts; of all three or none */
} TileBlocks;

/* A row of a depthwise kernel and the line of the input that it meets. */
typedef struct LineRow {
    const void *x; /* where the line begins, at channel 0 */
    int64_t tap;   /* the row's first among all taps */
} LineRow;

/* Positions [0, count) of a line of a depthwise convolution's result:
 *
 *     result[i][column + j] = sum over rows r, taps t of
 *         x(r)[first + i * position_step + t * tap_step + column + j] * weight[tap(r) + t][j] + bias[column + j] + addend
 *
 * without the taps whose place first + ... is not in [0, limit): the padding. Of groups of g channels each product is a sum over those of
 * column + j's, k, by weight[(tap(r) + t) g + k][j]. */
typedef struct LinesCall {
    TileCall
        ends; /* its results ([count]), columns, bias, addend, bounds, weight, weight_stride (between taps), taps */
    const LineRow *rows;
    int row_count;
    int64_t first, limit, position_step, tap_step; /* elements */
    int64_t count;
} LinesCall;

/* How taps and positions lie: taps of a row by positions' distance in taps; or, with any of them, groups of 2, 4 or, where that
 * is a vector of AVX2, 8 channels, of f32 alone. */
typedef enum LineKind {
    LINE_ANY,
    LINE_3X1,
    LINE_3X2,
    LINE_5X1,
    LINE_5X2,
    LINE_7X1,
    LINE_PAIRS,
    LINE_FOURS,
    LINE_EIGHTS,
    LINE_KINDS
} LineKind;

/* LINE_TILE: the most positions of a tile; LINE_LOW: the fewest that a line of as many is cut into.
 * LINE_SPREAD_LANES: the widest groups whose channels are spread in registers. */
enum { LINE_TILE = 8, LINE_LOW = 4, LINE_TAPS = 7, LINE_VECTORS = 2, LINE_SPREAD_LANES = 4 };

typedef void (*LinesFunction)(const LinesCall *call);

/* Depths [first, end) of a panel in a narrow form as floats [end - first][width]. */
typedef struct WidenCall {
    const WeightForm *form;
    const void *panel;
    int64_t width, first, end;
    float *to;
} WidenCall;

/* A few rows by a transposed matrix: results[i * result_stride + j] = sum over k < depth of rows[i * row_stride + k] *
 * weight[j * stride + k], j < columns. */
typedef struct Dots {
    const float *rows, *weight;
    float *results;
    int64_t row_stride, stride, result_stride, depth, columns;
    int row_count;
} Dots;

/* Few rows by columns of weights in blocks, of 8, 4 or 2 bits, as a model has them: nothing is packed. A column is words of 32 bits, depths from
 * their lowest bits on; a group is as many of them as a vector has lanes.
 *
 *     results[i][c] = sum over blocks of scales[c][block] * (the block's sum of row i by the column - zeros[c][block] * sums[i][block])
 */
typedef struct BlockDots {
    const float *const *rows; /* as tile_arrange_row leaves them */
    const float *const *sums; /* of a row's blocks; with zero points only */
    const char *const *weights,
        *const *scales;        /* [columns]; of any alignment. Scales are f32; a vector's are readable behind them */
    const float *const *zeros; /* less what stands for 0; NULL: there are none */
    int64_t words, block_words, blocks; /* block_words: a power of two */
    int64_t ahead;                      /* bytes behind what is read, from where more is asked for meanwhile */
    float *const *results;
    int columns;
} BlockDots;

enum { BLOCK_DOT_COLUMNS = 4 }; /* that are computed at a time, at most */

/* A row of `depth` elements as BlockDots meets it, for vectors of `lanes`: of each group [1 + depths in a word][words], with 0 where the row
 * has ended: elements by weight_up, and before a word's what its sum begins with, so that there is no weight_excess. */
void tile_arrange_row(WeightKind kind, int lanes, const float *row, int64_t depth, float *to);
/* Its floats. */
int64_t tile_arranged(WeightKind kind, int lanes, int64_t depth);

/* A block of scores, x[i * stride + j] for i < rows, j < columns, through a step of attention (ScoreStep, not CAUSAL). */
typedef struct ScoreCall {
    float *x;
    int64_t rows, columns, stride; /* columns are taken in whole vectors */
    ScoreStep kind;
    float alpha, beta;
    const float *values; /* of a step that reads: values[i * value_row + j * value_column], as whole vectors */
    int64_t value_row, value_column; /* the latter 0 or 1 */
} ScoreCall;

/* A block of scores of some queries becomes exponentials, e^(x - top), with `top` the greatest so far; or, of columns, what is less by
 * SCORE_SLACK at most, since a greater one costs a pass over all that there is so far (so FlashAttention-4 does). By columns:
 * x[key * stride + query]; by rows: x[query * stride + key], as whole vectors. */
enum { SCORE_SLACK = 8 };
typedef struct ScoreBlock {
    float *x;
    /* Of columns: so many keys right before x are exponentials already, which are multiplied by the factors, too. */
    int64_t earlier;
    int64_t keys, columns, stride; /* columns: queries; of whole vectors where they are columns */
    float *top, *sum;              /* a query's: so far, of all blocks; from -inf and 0 on */
    float *factor; /* by which sums and results of earlier blocks were too large: e^(top before - top) */
} ScoreBlock;

/* A block of scores and of the probabilities' gradients, both [key][query], becomes the probabilities p = e^(x - l) and the scores'
 * gradients p (g - d), by the scores' own slopes. */
typedef struct ScoreGradient {
    float *x, *g;        /* [keys][columns] */
    const float *slopes; /* likewise; NULL: ones */
    int64_t keys, columns;
    const float *l, *d; /* [columns]; l infinite: all of the column is 0 */
} ScoreGradient;

/* Winograd's convolution F(4x4, 3x3) (conv/winograd.c): 6x6 pixels of f32 become the factors of 36 products. Of bytes it is
 * F(2x2, 3x3) (TileWinograd); these are the most. */
enum { WINOGRAD_RESULTS = 4, WINOGRAD_PIXELS = 6, WINOGRAD_PRODUCTS = 36 };

typedef struct WinogradInput {
    const void *x;          /* the first pixel, which may lie outside the input */
    int64_t line, pixel;    /* elements from one line and one pixel to the next */
    uint32_t lines, pixels; /* bits: which of the six are inside; the others are 0, or quads of `padding` */
    int64_t channels;       /* quads of bytes */
    void *to; /* [products][stride]: the channels, of bytes as words, a quad two elements; written in whole vectors */
    int64_t stride;
    bool halves; /* x is of f16 */
    uint32_t padding;
} WinogradInput;

/* 4x4 pixels of the result from as many products. */
typedef struct WinogradOutput {
    const void *from; /* [products][stride]: the columns, read in whole vectors */
    int64_t stride;
    TileCall ends; /* its results (4x4; NULL: outside the result), column, columns, bias, addend and bounds */
} WinogradOutput;

/* The loops of one element type. */
typedef struct TileSet {
    size_t size;                    /* bytes an element */
    DType sums;                     /* what results are: as tile_set's type */
    int lanes;                      /* elements a vector */
    int vectors;                    /* most in a tile */
    int rows[TILE_MAX_VECTORS + 1]; /* most, by the number of vectors */
    /* [vectors][rows] */
    TileFunction products[TILE_MAX_VECTORS + 1][TILE_MOST_ROWS + 1];
    /* [kind][vectors]; NULL: LINE_ANY's */
    LinesFunction lines[LINE_KINDS][LINE_VECTORS + 1];
    int line_vectors;                                              /* most */
    void (*bound)(void *row, int64_t count, const Bounds *bounds); /* as products end; floats only */
    /* Of sums in memory, whose row would begin at `result`; pairs only. */
    void (*end_row)(const TileEnds *ends, const float *sums, const void *result, int64_t column, int64_t count);
    /* rows[i][j] for i, j < lanes to columns[j][i]; NULL where elements are 8 bytes. Rows may stand unaligned */
    void (*transpose)(const void *rows, int64_t row_stride, void *const *columns);
} TileSet;

/* The loops for one instruction set. */
typedef struct TileIsa {
    const char *name;
    TileSet f32, f64, u32, u64;
    /* [kind][vectors][rows]: f32 products of one tap whose weight begins at a block and is widened in registers. The sums of
     * a block are multiplied by its scale, and not each weight. */
    TileFunction narrow[WEIGHT_KINDS][TILE_MAX_VECTORS + 1][NARROW_TILE_ROWS + 1];
    void (*widen)(const WidenCall *call);
    void (*winograd_input)(const WinogradInput *in);
    void (*winograd_output)(const WinogradOutput *out);
    /* sum over k < depth of row[k] * columns[j * stride + k], to result[j] for j < count: products by a transposed
     * matrix with few rows */
    void (*dot)(const float *row, const float *columns, int64_t stride, int64_t depth, float *result, int64_t count);
    /* The same bits for each row. */
    void (*dots)(const Dots *call);
    /* [kind][rows]; of INT8, INT4 and INT2 */
    void (*block_dots[WEIGHT_KINDS][NARROW_TILE_ROWS + 1])(const BlockDots *call);
    void (*score_step)(const ScoreCall *call);
    /* Row i is a key that column j sees where i <= last[j]; hidden: alpha, or x + alpha. */
    void (*score_limit)(const ScoreCall *call, const int32_t *last, bool adds);
    /* Whether a factor is not 1. */
    bool (*score_softmax_columns)(const ScoreBlock *block);
    bool (*score_softmax_rows)(const ScoreBlock *block);
    void (*score_gradient)(const ScoreGradient *block);
    /* Of elements [128 group, 128 group + 128) of philox_half_u32 (graph/prim.h): `kept` where the word's upper 24 bits are at least `limit`, else 0. */
    void (*score_draw)(uint64_t seed, uint64_t group, uint32_t limit, float kept, float *to);
    /* to[i][j] = factor[i] * row i's element j, j < columns: rows are dense, of whole vectors. to: `rows` itself, or other memory. */
    void (*score_scale)(const float *rows, int64_t count, int64_t columns, const float *factor, void *const *to);
    void (*widen_f16)(const void *from, float *to, int64_t count); /* from: of any alignment */
    void (*narrow_f16)(const float *from, uint16_t *to, int64_t count);
    void (*widen_bf16)(const void *from, float *to, int64_t count); /* likewise */
    void (*narrow_bf16)(const float *from, uint16_t *to, int64_t count);
} TileIsa;

/* Winograd's convolution of one element type: results and pixels of a tile along either axis; pixels * pixels products. */
typedef struct TileWinograd {
    int results, pixels;
    const TileSet *set; /* of the products; NULL: there is none */
    void (*input)(const WinogradInput *in);
    void (*output)(const WinogradOutput *out);
} TileWinograd;

/* type: DT_F32, or DT_U8, whose products are of words of 16 bits: AVX2 alone. */
TileWinograd tile_winograd(DType type);

/* call->rows and results [count] as tiles that are as high as each other, but for one row: a low one has fewer sums than products
 * in flight, and reads as much weight as a high one. What stands at `next`, so many bytes, is asked for meanwhile. */
void tile_products(const TileSet *set, int vectors, int count, TileCall *call, const void *next, int64_t bytes);

extern const TileIsa tile_base; /* the architecture's least: SSE2, NEON */
#if defined(__x86_64__)
extern const TileIsa tile_avx2, tile_avx512;
#endif

/* The widest that this machine runs. */
const TileIsa *tile_isa(void);
/* Products of quads of u8 by quads of i8 (quads.h): rows and weights are quads, results 32-bit sums. Those for the
 * instructions that this machine has; and all that it runs, for tests: [out_count]. */
const TileSet *tile_set_quads(void);
/* Whether it multiplies pairs, for want of an instruction for quads (AVX2). */
bool tile_quads_in_pairs(void);
int tile_sets_of_quads(const TileSet *out_sets[5]);
/* Likewise, products of pairs of bf16, whose results are f32. */
const TileSet *tile_set_pairs(void);
int tile_sets_of_pairs(const TileSet *out_sets[5]);
/* Likewise, products of rows in blocks: [out_count]. */
const TileBlocks *tile_blocks(void);
int tile_sets_of_blocks(const TileBlocks *out_sets[5]);
/* Whether a set of quads, of pairs or of blocks gives what plain C gives, on some numbers whose sums are exact. */
bool tile_quads_agree(const TileSet *set);
bool tile_pairs_agree(const TileSet *set);
bool tile_blocks_agree(const TileBlocks *set);
/* type: DT_F32, DT_F64, DT_U32 or DT_U64 */
const TileSet *tile_set(DType type);

#endif
