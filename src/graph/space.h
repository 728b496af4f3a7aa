/* SPDX-License-Identifier: Apache-2.0 */
/* The iteration space that a set of primitives shares: the rule by which the partition fuses, and the first step of
 * lowering a region.
 *
 * Every axis of every value is told as an ordered list of space axes. Elementwise primitives make the axes of inputs
 * and output the same (a constant size 1 has none), permute reorders them, reshape splits or merges whole axes where
 * the sizes match from left to right (in blocks one-to-many or many-to-one), expand of a constant size 1 adds an axis
 * that the input lacks, a reduction marks its axes reduced. Slice, and expands and permutes, directly on an external
 * input (or on a chain of such) are part of the load: other strides and an offset.
 *
 * The set fits one space when all this agrees, all reductions reduce the same set of space axes, and no value that
 * keeps those axes differs from them. A value behind a reduction lacks the reduced axes and may meet values that have
 * them (broadcast back).
 *
 * A sum of floats that nothing in the set reads may instead reduce exactly the axes that the other reductions keep: a sum
 * of columns beside reductions of rows. */
#ifndef ONNXFUSE_GRAPH_SPACE_H
#define ONNXFUSE_GRAPH_SPACE_H

#include "base/map.h"
#include "graph/graph.h"

enum { SPACE_MAX_AXES = 12 };

typedef struct SpaceAxis {
    const Dim *size;
    bool reduced;
} SpaceAxis;

/* How a value is laid out over the space: for each of its own axes, which space axes it consists of, outermost first.
 */
typedef struct SpaceValue {
    const Value *value;
    bool column;              /* a sum of columns */
    int axis_count[MAX_RANK]; /* space axes of value axis i; 0 where its size is 1 (or all its space axes are) */
    signed char axes[MAX_RANK][SPACE_MAX_AXES];
} SpaceValue;

/* An external input as it is read: element index = offset + sum over space axes of stride * index. Strides and offset
 * are in elements of the row-major tensor; a space axis that is missing has stride 0. One per (external value, chain of
 * load-side movement). */
typedef struct SpaceLoad {
    const Value *source; /* the external value */
    const Value *value;  /* what is loaded: source, or the result of the movement chain */
    const Dim *offset;   /* constant 0 mostly */
    const Dim *stride[SPACE_MAX_AXES];
} SpaceLoad;

typedef struct Space {
    int axis_count;
    SpaceAxis
        axes[SPACE_MAX_AXES]; /* ordered as in the value of highest rank (the order of its memory), outermost first */
    VEC(SpaceValue) values;   /* results inside the set and what is loaded; not the middle of a load's movement chain */
    VEC(SpaceLoad) loads;
    Map by_value; /* Value -> SpaceValue, behind space_value */
} Space;

/* A primitive on at most this many elements is evaluated at run time faster than a kernel for it is compiled: it stays
 * outside regions. */
enum { TINY_ELEMENTS = 16 };
bool is_tiny(const Node *node); /* all its values have constant sizes of at most TINY_ELEMENTS elements */

/* Primitives that can stand in a region at all: elementwise, reductions, iota, philox, reshape, permute, expand, slice,
 * over dtypes f32, f64, f16, bf16, bool and the 8- to 64-bit integers, none of a constant size 0; expand only of
 * constant sizes 1. Small types (dtype_is_small) are moved, selected and cast. */
bool space_accepts(const Node *node);

/* Analyses `nodes` (topologically ordered). NULL when they do not fit one space; *out_why (may be NULL) then says why,
 * for debugging. columns: whether there may be sums of columns beside reductions of rows. All memory comes from `arena`. */
Space *space_analyse(Arena *arena, DimTable *dims, Node *const *nodes, int count, bool columns, const char **out_why);
const SpaceValue *space_value(const Space *space, const Value *value); /* NULL when it is not part of it */
/* Whether the value varies along every axis that is not reduced, or is a sum of columns. What leaves a region must: a value
 * that lacks one would be stored again for each element of that axis (and never, where the axis is empty). */
bool space_covers(const Space *space, const Value *value);

#endif
