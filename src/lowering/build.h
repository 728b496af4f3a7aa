/* SPDX-License-Identifier: Apache-2.0 */
/* The builder with which operators are told in primitives. Every function takes the Lowering first and returns a Value.
 * The first error is kept in the Lowering and every later call returns NULL, so a formula needs no check a line;
 * `return out(l, n, 0, value)` (or l->error) hands it on. Passing NULL where a value is required is an error that names
 * the node.
 *
 * Broadcasting is numpy's. Where two symbolic dims differ and neither is 1, the result's dim is max(a, b) and both
 * sides go through an expand that is resolved at run time. Constants are folded as they are built (results up to
 * FOLD_LIMIT bytes); integer values whose elements are known sizes carry `content` and become `dims` primitives, so
 * data that only computes shapes dies. */
#ifndef ONNXFUSE_LOWERING_BUILD_H
#define ONNXFUSE_LOWERING_BUILD_H

#include "lowering/ops.h"

enum { FOLD_LIMIT = 256 << 20 }; /* bytes of one folded constant */

struct Lowering {
    Graph *graph;
    Arena *arena;   /* the graph's */
    Arena *scratch; /* freed when the graph is lowered; NULL: arena */
    DimTable *dims;
    const Policy *policy;
    const Node *node; /* being lowered; new nodes go before it, unless it is elsewhere, and take its origin */
    bool elsewhere;   /* new nodes go before `place` (NULL: to the end) and are backward ones */
    Node *place;
    Status error;            /* the first; owned */
    const LowerTrace *trace; /* who watches; NULL: nobody */
    /* How often the graph is copied, as a power of two: by Ifs around it that hold a copy of what follows them
     * (ops/control/branch_tail.h), by bodies for elements of several ranks (sequence_map.c beside it). */
    int tails;
    Map *seen;      /* common subexpressions of this graph while lowering; private to build.c */
    DType restores; /* type of the node's results that it computes in another (precision.c); DT_NONE: none */
    struct Precisions *precisions; /* private to precision.c */
    struct KnownRow *rows;         /* private to lower.c */
    Arena *chain;                  /* not NULL: where large constants are folded to (chain_begin) */
    int chain_first;               /* the first value since then */
};

static inline Node *builder_place(const Lowering *l) { return l->elsewhere ? l->place : (Node *)l->node; }

/* Whether what has no gradient in the standard's operators is told without kernels of ours (Target.standard). */
static inline bool lowers_to_standard(const Lowering *l) { return l->policy && l->policy->target.standard; }

/* Between the two calls constants are folded into memory of their own; then `result` (NULL: there is none) and what nodes read of it is kept, and
 * all else goes back. For a formula of large constants, of which nothing holds a tensor but by its value. Returns result. */
void chain_begin(Lowering *l);
Value *chain_end(Lowering *l, Value *result);

/* --- inputs, outputs, errors ------------------------------------------------------------------------------- */
Value *in(Lowering *l, const Node *n, int index);          /* NULL and an error when left out */
Value *optional_in(Lowering *l, const Node *n, int index); /* NULL when left out */
bool wants_output(const Node *n, int index);
/* Makes value the node's output `index`; returns l->error. A NULL value with no error is an error. */
Status out(Lowering *l, const Node *n, int index, Value *value);
/* STATUS_UNSUPPORTED / STATUS_INVALID naming operator, opset and node; kept as the first error and returned. */
Status unsupported(Lowering *l, const char *format, ...) STATUS_FORMAT(2, 3);
Status invalid(Lowering *l, const char *format, ...) STATUS_FORMAT(2, 3);
/* Attributes that an operator's rows do not follow, each with the one value that asks for nothing (text: of a string). A row
 * without a name ends the list. */
typedef struct Unfollowed {
    const char *name, *text;
    double number;
} Unfollowed;
/* Refuses a node that gives such an attribute another value, or an input from `inputs` on: com.microsoft's operators take new
 * ones without a new version, and what is not followed must not be ignored. False: refused. */
bool follows_all(Lowering *l, const Node *n, const Unfollowed *list, int inputs);
/* Whether all values stand and are tensors of known type and rank; reports the first that is not. After it their fields
 * may be read. */
bool present(Lowering *l, Value *const *values, int count);
const char *shape_text(Lowering *l, const Dim *const *dims, int rank); /* "[n, 3, 4]", for messages */

/* --- constants ----------------------------------------------------------------------------------------------- */
Value *scalar(Lowering *l, DType dtype, double value);      /* rank 0 */
Value *scalar_int(Lowering *l, DType dtype, int64_t value); /* rank 0, exact for 64-bit integers */
Value *like(Lowering *l, const Value *x, double value);     /* a scalar of x's dtype */
/* A constant, or primitives on constants that were too large to fold; of values of this lowering. */
bool is_of_constants(Lowering *l, const Value *value);
Value *constant(Lowering *l, Tensor *tensor); /* data in l->arena or living as long */
Value *vector_i64(Lowering *l, const int64_t *values, int count);
Value *dims_value(Lowering *l, const Dim *const *dims, int count); /* an i64 vector of sizes (with content) */
Value *dim_scalar(Lowering *l, const Dim *dim);                    /* rank 0, i64 */

/* --- data that must or may be known while lowering -------------------------------------------------------- */
/* A constant's tensor, or for one that is not aligned (ImportOptions) a copy that is, until it is released or the lowering
 * ends. */
Tensor *aligned_constant(Lowering *l, const Value *value);
void release_aligned(Lowering *l, const Value *value, const Tensor *aligned);
const Tensor *constant_of(const Value *value); /* NULL when not constant (or value NULL) */
/* A 1-D (or scalar) integer input as sizes: its content where known; else fresh symbols that a `bind` host step reads
 * from the tensor at run time. count comes from its shape, which must be known. hint names fresh symbols. NULL on
 * error. */
const Dim *const *sizes_of(Lowering *l, Value *value, const char *hint, int *out_count);
/* The same when every element must be a constant; false (no error set) when it is not. */
bool constant_ints(Lowering *l, const Value *value, const int64_t **out_values, int *out_count);
/* Whether the size can be taken as >= 0: it is so by form, or stands as a dim of a value. */
bool size_is_natural(Lowering *l, const Dim *size);
/* Fresh symbols [count] bound at run time from a 1-D i64 value of `count` elements. */
const Dim *const *bind_sizes(Lowering *l, Value *value, const char *hint, int count);
/* ints from attribute `name`, or, when missing, from the constant input `index` (axes, perm, ...). *out_count -1 when
 * neither is given. Not constant: unsupported. */
const int64_t *attr_or_input_ints(Lowering *l, const Node *n, const char *name, int index, int *out_count);
/* Normalises an axis that may be negative; error when out of range. */
int axis_of(Lowering *l, int64_t axis, int rank);
/* Sorted, unique, non-negative; from attr_or_input_ints' list; all axes when count <= 0 and none_is_all. */
int *axes_of(Lowering *l, const int64_t *axes, int count, int rank, bool none_is_all, int *out_count);

/* --- primitives ------------------------------------------------------------------------------------------------ */
Value *unary(Lowering *l, Prim prim, Value *x);
Value *binary(Lowering *l, Prim prim, Value *a, Value *b); /* same dtype required; broadcasts; comparisons give bool */
Value *where(Lowering *l, Value *condition, Value *then, Value *otherwise);
Value *cast(Lowering *l, Value *x, DType to); /* x itself when it has that dtype */
Value *cast_saturate(Lowering *l, Value *x, DType to, bool saturate);
Value *cast_as(Lowering *l, Value *x, const Node *cast); /* as that node does */
Value *cast_like(Lowering *l, Value *x, const Value *model);
Value *bitcast(Lowering *l, Value *x, DType to);
static inline Value *add(Lowering *l, Value *a, Value *b) { return binary(l, PRIM_ADD, a, b); }
static inline Value *sub(Lowering *l, Value *a, Value *b) { return binary(l, PRIM_SUB, a, b); }
static inline Value *mul(Lowering *l, Value *a, Value *b) { return binary(l, PRIM_MUL, a, b); }
static inline Value *divide(Lowering *l, Value *a, Value *b) { return binary(l, PRIM_DIV, a, b); }
static inline Value *minimum(Lowering *l, Value *a, Value *b) { return binary(l, PRIM_MIN, a, b); }
static inline Value *maximum(Lowering *l, Value *a, Value *b) { return binary(l, PRIM_MAX, a, b); }
static inline Value *rsqrt(Lowering *l, Value *x) { return unary(l, PRIM_RECIPROCAL, unary(l, PRIM_SQRT, x)); }
/* f16, bf16 and narrower become f32 for the inside of a composite; other types stay. */
Value *widen(Lowering *l, Value *x);

Value *iota(Lowering *l, const Dim *const *shape, int rank, int axis, DType dtype);
/* u32 bits for a tensor of this shape, to be compared with a bound and for nothing else (philox_half_u32 of
 * graph/prim.h); stream: the ONNX node's own number (ModelInfo.next_seed), has_seed/seed its attribute. The seed also
 * depends on the policy's seed and on the reserved symbol "$run", which the session counts up, so each run draws afresh. */
Value *random_choices(Lowering *l, const Dim *const *shape, int rank, bool has_seed, float seed);

/* keepdims as ONNX: without it the axes are dropped by a reshape. axes sorted and non-negative. */
Value *reduce(Lowering *l, Prim prim, Value *x, const int *axes, int count, bool keepdims);
Value *mean(Lowering *l, Value *x, const int *axes, int count, bool keepdims);
Value *root_mean_square(Lowering *l, Value *x, double epsilon); /* x / sqrt(mean(x^2) + epsilon) over the last axis */
Value *arg_reduce(Lowering *l, Prim prim, Value *x, int axis, bool keepdims, bool last);

Value *reshape(Lowering *l, Value *x, const Dim *const *shape, int rank); /* x itself when the shape is the same */
Value *permute(Lowering *l, Value *x, const int *perm);
Value *swap_last(Lowering *l, Value *x); /* the last two axes */
Value *expand(Lowering *l, Value *x, const Dim *const *shape,
              int rank);                                             /* numpy broadcast_to, also adding leading axes */
Value *unsqueeze(Lowering *l, Value *x, const int *axes, int count); /* axes of the result, sorted */
Value *squeeze(Lowering *l, Value *x, const int *axes, int count);
Value *flatten_to(Lowering *l, Value *x, int from, int to); /* merges axes [from, to) into one */
/* start and size per axis [rank]; step NULL for ones. */
Value *slice(Lowering *l, Value *x, const Dim *const *start, const Dim *const *size, const int64_t *step);
Value *slice_axis(Lowering *l, Value *x, int axis, const Dim *start, const Dim *size);
/* Whether a slice takes a range of one axis, element by element, from a known element on, and all of the others. */
bool is_range(const Node *slice, int *out_axis, int64_t *out_start);
/* [..., 2, half, ...]: the axis, of twice the size `half`, as two halves, the second before the first; negative[i]: the negative
 * of the result's half i. */
Value *turn_halves(Lowering *l, Value *x, int axis, const Dim *half, const bool negative[2]);
Value *pad(Lowering *l, Value *x, const Dim *const *before, const Dim *const *after, Value *fill);
Value *concat(Lowering *l, Value *const *parts, int count, int axis);
Value *gather(Lowering *l, Value *data, Value *indices, int axis);
Value *gather_elements(Lowering *l, Value *data, Value *indices, int axis);
/* The same at a loss's labels [samples, places...]: one out of range is told in terms of that operator. Those below 0 have come as far below the
 * classes. */
Value *gather_at_labels(Lowering *l, Value *data, Value *labels, int axis, const char *loss);
Value *gather_elements_at_labels(Lowering *l, Value *data, Value *labels, int axis, const char *loss);
/* ONNX GatherND-13; `indices` hold tuples along their last axis, whose length is known. */
Value *gather_nd(Lowering *l, Value *data, Value *indices, int batch_dims);
Value *scatter_elements(Lowering *l, Value *data, Value *indices, Value *updates, int axis, const char *reduction);
Value *scatter_nd(Lowering *l, Value *data, Value *indices, Value *updates, const char *reduction);

/* --- composites used by several operators ----------------------------------------------------------------- */
Value *softmax(Lowering *l, Value *x, int axis); /* computed in f32 for narrow floats, result in x's dtype */
Value *log_softmax(Lowering *l, Value *x, int axis);
Value *gelu(Lowering *l, Value *x, bool tanh_form);
Value *with_bias(Lowering *l, const Node *n, Value *x,
                 int index); /* x plus the node's input `index`; x where that is left out */
Value *clip(Lowering *l, Value *x, Value *low, Value *high); /* either may be NULL */

/* --- anchors (anchors.h says what the nodes mean) --------------------------------------------------------- */
Value *matmul(Lowering *l, Value *a, Value *b); /* numpy.matmul, ranks 1 and up */
/* x: channels last [N, spatial..., C]; w: [O, C/group, kernel...]; bias [O] or NULL. */
typedef struct ConvAttrs {
    int spatial;                        /* number of spatial axes */
    const int64_t *strides, *dilations; /* [spatial] */
    const Dim *const *pads;             /* [2 * spatial]: all befores, then all afters */
    int64_t group;
    int64_t pad_value; /* of a u8 input: what its padding holds */
} ConvAttrs;
Value *conv(Lowering *l, Value *x, Value *w, Value *bias, const ConvAttrs *attrs);
/* w: [C, O/group, kernel...]; size: the result's spatial dims. pads as in conv (befores used). */
Value *conv_transpose(Lowering *l, Value *x, Value *w, Value *bias, const ConvAttrs *attrs, const Dim *const *size);
Value *to_channels_last(Lowering *l, Value *x); /* [N, C, spatial...] -> [N, spatial..., C] */
Value *from_channels_last(Lowering *l, Value *x);

/* --- precision of the policy's rules (precision.c) --------------------------------------------------------------- */
/* Whether `wanted` can hold of the operator: its floating-point results have the type of its floating-point inputs. */
bool op_has_precision(const char *domain, const char *op, int opset);
/* Turns the inputs of n, which is about to be lowered, into n->wanted's type, and sets l->restores. */
Status take_precision(Lowering *l, Node *n);
/* A result as the model has it. */
Value *restore_precision(Lowering *l, int output, Value *value);

/* --- host kernels ------------------------------------------------------------------------------------------------ */
/* A host step: op name as given, attributes copied from n (also others set by the caller afterwards with node_set_*).
 */
Node *host_node(Lowering *l, const Node *n, HostFn host, Value *const *inputs, int count);
/* Adds its next output; a dim may be a fresh symbol (dim_fresh), which the runtime binds from the actual shape after
 * the step. */
Value *host_result(Lowering *l, Node *host, DType dtype, int rank, const Dim *const *dims);
Value *host_result_like(Lowering *l, Node *host, const Value *model);

#endif
