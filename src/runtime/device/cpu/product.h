/* SPDX-License-Identifier: Apache-2.0 */
/* Products: rows, found through pointers, times a packed weight, sliced over threads and cut into tiles (tile.h), with
 * an epilogue. All anchors are lists of these. */
#ifndef ONNXFUSE_RUNTIME_DEVICE_CPU_PRODUCT_H
#define ONNXFUSE_RUNTIME_DEVICE_CPU_PRODUCT_H

#include "base/pool.h"
#include "graph/graph.h"
#include "lowering/anchor/weight_blocks.h"
#include "runtime/device/cpu/finish.h"
#include "runtime/device/cpu/scratch.h"
#include "runtime/device/cpu/tiles/tile.h"

/* ---- epilogues ---- */

/* What is done to sums, with this run's tensors in the work type. Bias, addend and bounds are part of the tiles' loops;
 * all else is a kernel, which then does these too. */
typedef struct BoundEpilogue {
    const void *bias;   /* by column, readable PANEL_SLACK elements beyond its end; NULL: none */
    const void *addend; /* laid out as the result; NULL: none */
    Bounds bounds;
    const void *result;   /* where the result begins */
    const Finish *finish; /* not NULL: the kernel, called on each block of raw results; the result is not memory */
} BoundEpilogue;

/* ---- weights ---- */

/* Elements that may be read beyond a bias: less than a vector. */
enum { PANEL_SLACK = 64 };

enum { RESIDENT_WEIGHT_BYTES = 16384 }; /* of a weight that stays in the first-level cache beside a block of results */

/* Columns in panels as wide as the widest tile, each [taps][depth][width] in memory or in a narrow form of that
 * (WeightForm), the last of a group narrower: whole vectors, filled up with zeros. */
typedef struct Weight {
    const TileSet *set;
    WeightForm
        form; /* not WEIGHT_WORK: of f32 weights alone; in blocks of another size than NARROW_BLOCK or with zero points:
                                one group, one tap */
    int64_t groups, columns; /* columns: of a group */
    int64_t taps, depth;
    void *data;
    /* Not 0: it is not packed, and this many elements lie between the rows of columns, [taps][depth], of its one group; the columns are whole
     * vectors. */
    int64_t row;
} Weight;

/* Where a weight's elements stand: data[g * group + c * column + k * depth + taps[t]], in the work type or in f16. */
typedef struct WeightSource {
    const void *data;
    bool halves; /* f16, which is widened as it is packed */
    int64_t group, column, depth;
    const int64_t *taps;        /* [taps] */
    double scale;               /* floats only */
    const WeightBlocks *blocks; /* not NULL: this instead, of the weight's form (blocks_form) */
} WeightSource;

Status weight_bytes(const Weight *weight, size_t *out_bytes); /* STATUS_INVALID when beyond all memory */
int64_t weight_panels(const Weight *weight);

typedef struct Panel {
    int64_t group, first; /* its columns are [first, first + columns) of the group */
    int columns, vectors;
    size_t at; /* bytes from weight->data */
} Panel;

Panel weight_panel(const Weight *weight, int64_t index);
void panel_pack(const Weight *weight, const WeightSource *source, const Panel *panel, void *data);
Status weight_pack(const Weight *weight, const WeightSource *source, Pool *pool); /* to weight->data */

/* Bytes of a panel's column of `length` depths. */
size_t narrow_column_bytes(const WeightForm *form, int64_t length);
/* panel [length][width], of finite numbers, to a form without zero points in blocks of NARROW_BLOCK (narrow.c has the
 * rounding). `out` is aligned to 4 bytes. */
void narrow_panel(WeightKind kind, const float *panel, int64_t length, int64_t width, void *out);
/* The form that holds weights as they came. */
WeightForm blocks_form(const WeightBlocks *blocks);
/* Columns [first, first + columns) of them as a panel of `width`. */
void blocks_panel(const WeightForm *form, const WeightBlocks *blocks, int64_t first, int columns, int64_t width,
                  void *out);

/* ---- products ---- */

enum { NARROW_ROWS = 8 }; /* up to so many, narrow weights are widened in registers, by each tile again */

/* Rows at the edge that the same taps reach; all other taps would add zeros. */
typedef struct EdgeRun {
    int first, count;
    int64_t first_tap, end_tap;
} EdgeRun;

/* Some rows of a product, in any order: interior ones from the front, which have one pointer to which the taps' offsets
 * are added, and edge ones from the back, which have one a tap. */
typedef struct RowBlock {
    const void **rows; /* rows[i], or rows[t * capacity + i] */
    void **results;    /* [count] */
    int64_t capacity;
    int count, interior, edges; /* the last two: how many are there so far */
    EdgeRun *runs;              /* [count] */
    int run_count;
} RowBlock;

/* Room for `count` more rows: the index of the first. */
int row_block_interior(RowBlock *block, int count);
int row_block_edges(RowBlock *block, int count, int64_t first_tap, int64_t end_tap);
/* `count` pointers, `step` bytes apart. */
void point_rows(const void *at, int64_t step, int64_t count, const void **to);

/* Makes rows [first, first + count) of a product's depth, one after the other from `to` on, on a worker of the pool. */
typedef struct RowMaker {
    void (*make)(const void *context, int64_t first, int64_t count, void *to, int worker);
    const void *context;
} RowMaker;

typedef enum ProductRows {
    ROWS_AS_GIVEN, /* in the type that is computed in, or narrower */
    ROWS_ROUNDED,  /* of i8 in blocks (RoundedHead), and so is the weight */
    ROWS_DIGITS,   /* likewise, and the one row is ROW_DIGITS blocks for each (TileBlocks) */
    ROWS_PARTS,    /* as parts of bf16 in blocks, of a weight in blocks */
} ProductRows;

typedef struct Product {
    int64_t rows;
    int64_t line;                                                      /* chunks of rows are best multiples of it */
    void (*fill)(const void *context, int64_t first, RowBlock *block); /* block->count rows from `first` on */
    const void *context;
    /* Not NULL: f16, [halves, halves_end), which rows point into and have no gaps between their elements (wide_rows.h); there is a tap
     * at least. */
    const char *halves, *halves_end;
    /* What `count` rows from `first` on read: of several taps of f16. Pointers elsewhere lead to one row of padding. */
    void (*reach)(const void *context, int64_t first, int64_t count, const char **out_begin, const char **out_end);
    /* Not NULL: the rows are in no memory, this makes them (product_makes_rows); `fill` says where results are alone. All are interior,
     * of one tap and one group, of f32. */
    const RowMaker *maker;
    const Weight *weight;
    const WeightSource *
        source; /* not NULL: the weight is not packed yet (one group); each slice packs what it needs, of blocks in their form */
    const int64_t *offsets; /* [taps] of interior rows */
    const int64_t *zeros;   /* [taps] of 0 */
    int64_t merged; /* interior rows: so many taps in a row are neighbours in memory and taken as one; divides taps */
    const int64_t *merged_offsets; /* [taps / merged] */
    int64_t depth_gap;             /* of merged taps of one depth: elements of a row between one and the next */
    bool inside;                   /* all rows are interior */
    /* Not NULL: [taps], how many taps from this one on follow each other in memory in all rows, none of which is interior: they are
     * multiplied as one, and such runs of taps add up in memory. There is a tap at least. */
    const int64_t *follows;
    ProductRows row_kind;
    const TileBlocks *blocks; /* that multiply rows that are not as given */
    bool scales;              /* of pairs: sums are multiplied by `scale` */
    float scale;
    const BoundEpilogue *epilogue;
} Product;

/* Whether rows of so many bytes, best taken `line` at a time, are made by the product that reads them: each once, and enough at a time. */
bool product_makes_rows(int64_t rows, int64_t line, int64_t row_bytes, const Pool *pool);

/* Runs them all, in no order. */
Status product_run(const Product *products, int64_t count, Pool *pool, Scratch *scratch);

#endif
