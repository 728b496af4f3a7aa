/* SPDX-License-Identifier: Apache-2.0 */
/* What the parts of the evaluator share: strided iteration, blocks of elements widened to one of three lane types, and
 * one function a class of primitives. */
#ifndef ONNXFUSE_GRAPH_EVAL_EVAL_KERNELS_H
#define ONNXFUSE_GRAPH_EVAL_EVAL_KERNELS_H

#include "graph/eval/eval.h"

/* One evaluation of a node; the class functions set `out`. */
typedef struct Eval {
    const Node *node;
    Tensor *const *inputs;
    const int64_t *symbols; /* may be NULL */
    Arena *arena;
    Tensor *out;
    Pool *pool;      /* for large work; may be NULL */
    int part, parts; /* of a scatter (eval_scatter_into); parts 0: it is done as a whole */
} Eval;

Status eval_elementwise(Eval *e); /* eval_elementwise.c: UNARY, TEST, BINARY, COMPARE, SELECT, CAST */
Status eval_generate(Eval *e);    /* eval_move.c */
Status eval_move(Eval *e);
Status eval_reduce(Eval *e);  /* eval_reduce.c */
Status eval_indexed(Eval *e); /* eval_indexed.c */

/* Makes e->out. */
Status eval_output(Eval *e, DType dtype, int rank, const int64_t *dims);
/* The numbers of a dims attribute. */
Status eval_sizes(const Eval *e, const char *attr, int *out_count, int64_t out_sizes[MAX_RANK]);
Status eval_axis(const Eval *e, int rank, int *out_axis); /* attr int axis, in [0, rank) */

/* ---- strided iteration over up to four operands ---- */

enum { WALK_OPERANDS = 4 };

typedef struct Walk {
    int operands, rank;
    int64_t dims[MAX_RANK];
    int64_t strides[WALK_OPERANDS][MAX_RANK]; /* in elements */
    int64_t index[MAX_RANK];
    int64_t offsets[WALK_OPERANDS]; /* of the current run */
    int64_t length;                 /* of a run: the innermost axis, where operand k moves by step[k] */
    int64_t step[WALK_OPERANDS];
} Walk;

/* `for (bool more = walk_begin(&w); more; more = walk_next(&w))` visits every run in row-major order; dims, strides,
 * offsets, rank and operands are set beforehand. walk_begin merges axes where all operands allow it; false when there
 * is nothing to visit. */
bool walk_begin(Walk *walk);
bool walk_next(Walk *walk);
void dense_strides(int rank, const int64_t *dims, int64_t *out_strides);
/* Copies the elements of a box; operand 0 of the walk is the destination, 1 the source. */
void copy_strided(Walk *walk, size_t element, void *to, const void *from);

/* ---- lanes: blocks of elements in one of three wide types ---- */

enum { LANES = 512 };

typedef union Lane {
    double f;
    int64_t i;
    uint64_t u; /* unsigned integers; bool as 0 and 1 */
} Lane;

typedef enum LaneClass { LANE_FLOAT, LANE_SIGNED, LANE_UNSIGNED } LaneClass;

LaneClass lane_class(DType dtype);
/* Reads `count` elements from element `offset` on, `stride` apart. */
void lanes_load(Lane *lanes, DType dtype, const void *data, int64_t offset, int64_t stride, int64_t count);
/* Converts as the primitive `cast` does: integers wrap, floats to integers saturate; `saturate` is for the f8 types. */
void lanes_store(const Lane *lanes, LaneClass from, DType to, bool saturate, void *data, int64_t offset, int64_t count);
/* r = a prim b (b unused for unary ones), lane by lane. Comparisons and tests give LANE_UNSIGNED. */
void lanes_apply(Prim prim, DType dtype, const Lane *a, const Lane *b, Lane *r, int64_t count);

#endif
