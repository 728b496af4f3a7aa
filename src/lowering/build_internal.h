/* SPDX-License-Identifier: Apache-2.0 */
/* What the builder's own files share: the description of one node to be made, and the way it is made. Not for the
 * operators. */
#ifndef ONNXFUSE_LOWERING_BUILD_INTERNAL_H
#define ONNXFUSE_LOWERING_BUILD_INTERNAL_H

#include "lowering/build.h"

enum {
    MAX_CONTENT = 64,        /* elements of a value whose elements are followed as sizes */
    GROWTH_LIMIT = 64 << 10, /* bytes up to which a constant that is larger than what it is made of is still stored */
    /* Likewise where elements are gathered, which takes a run longer than reading them: biases by relative places. */
    GATHER_LIMIT = 4 << 20,
};

/* A node that is about to be made: attributes and dims are borrowed until then. */
typedef struct NodeSpec {
    Prim prim; /* PRIM_NONE: an interned constant */
    Value *const *inputs;
    int input_count;
    Attr attrs[5];
    int attr_count;
    DType dtype; /* of the result */
    int rank;
    const Dim *dims[MAX_RANK];
} NodeSpec;

void spec_int(NodeSpec *spec, const char *name, int64_t value);
void spec_ints(NodeSpec *spec, const char *name, const int64_t *values, int count);
void spec_dims(NodeSpec *spec, const char *name, const Dim *const *values, int count);
void spec_dtype(NodeSpec *spec, const char *name, DType dtype);
void spec_string(NodeSpec *spec, const char *name, const char *value);
void spec_shape(NodeSpec *spec, int rank, const Dim *const *dims);

/* The node's result: an equal earlier one, a folded constant, known sizes, or a new node. NULL after an error. */
Value *emit(Lowering *l, const NodeSpec *spec);
/* The value whose elements are these sizes: a constant, or a `dims` primitive. */
Value *emit_content(Lowering *l, const Dim *const *content, int count, int rank, DType dtype);
/* Sizes that hold by the inputs' contents for the result of `spec`; false when they are not known. content:
 * [MAX_CONTENT] */
bool infer_content(Lowering *l, const NodeSpec *spec, const Dim **content);
/* The constants of a comparison of known sizes; false when undecided. */
bool infer_comparison(Lowering *l, const NodeSpec *spec, bool *results);
/* Evaluates the primitive when all it reads is constant; NULL (and perhaps an error) otherwise. */
Value *fold(Lowering *l, const NodeSpec *spec);

void note_size(Lowering *l, const Dim *size);
/* The elements of an i64 or i32 vector of `count` elements as far as they are known; NULL for the others. */
const Dim **known_elements(Lowering *l, const Value *value, int count);
/* The symbols that a value was bound to earlier; NULL when it was not. */
const Dim *const *bound_sizes(Lowering *l, const Value *value);
void note_bound_sizes(Lowering *l, const Value *value, const Dim *const *symbols);

static inline bool is_made_by(const Value *x, Prim prim) {
    return x->producer && x->producer->kind == NODE_PRIM && x->producer->prim == prim;
}
static inline bool has_dims(const Value *x, const Dim *const *dims, int rank) {
    if (x->rank != rank) return false;
    for (int i = 0; i < rank; i++)
        if (x->dims[i] != dims[i]) return false;
    return true;
}
bool rank_is_supported(Lowering *l, int rank); /* reports when it is not */
/* An expand whose axes are all either kept or the constant 1: it adds nothing where another input has the full shape.
 */
bool is_static_expand(const Value *x);
/* numpy's broadcast of all inputs; false after an error. */
bool broadcast_dims(Lowering *l, Value *const *inputs, int count, const Dim **dims, int *out_rank);
/* x with every axis that is not the constant 1 taken to the (right-aligned) dims: an expand resolved at run time where
 * they differ. */
Value *align_to(Lowering *l, Value *x, const Dim *const *dims, int rank);
/* True when the constant holds one number throughout. */
bool is_splat(const Value *value, double *out_number);

/* Further draws of one random node: `draw` numbers them from 0. */
Value *random_draw(Lowering *l, const Dim *const *shape, int rank, uint64_t base, int draw);
/* The base of a node's draws; counts the model's streams when there is no seed. */
uint64_t random_base(Lowering *l, bool has_seed, float seed);

#endif
