/* SPDX-License-Identifier: Apache-2.0 */
/* Writes the nodes of a graph in another version of the standard's operator set. A node goes from version to version of
 * its operator; at each, a rule changes what must be written differently, and attributes are kept, dropped or spelt out
 * by their defaults. What comes out is checked against the standard's schemas (schema.h).
 *
 * Rules may leave nodes of other operators, which then are converted in their turn: so an operator that an older
 * version lacks becomes a formula of others. */
#ifndef ONNXFUSE_OPTIMIZE_CONVERT_H
#define ONNXFUSE_OPTIMIZE_CONVERT_H

#include "optimize/rewrite.h"

typedef struct ValueType {
    ValueKind kind;
    DType dtype; /* DT_NONE: not known */
    int rank;    /* -1: not known */
} ValueType;

typedef struct Convert {
    Rewrite *rewrite; /* facts */
    Arena *arena;     /* the graph's */
    int target;
    Map types;    /* Value * -> ValueType *, where lowering has not said it */
    Map names;    /* of nodes -> any of that name */
    Status first; /* what could not be converted first */
    int nearest;  /* the version at which all that could not be converted stands; 0: none known */
    bool gone;    /* the rule has put others into its node's place, which it left without outputs */
} Convert;

/* Changes the node from the version before a change to the version of the change, or back: NULL, or why it cannot be. A
 * formula leaves nodes of whatever version it is written in. */
typedef const char *(*ConvertFn)(Convert *c, Node *node);

typedef struct ConvertRule {
    const char *op;
    int since; /* the version of the change */
    ConvertFn up, down;
} ConvertRule;
/* Each list ends with a row without a name. */
extern const ConvertRule convert_rules[];     /* convert_rules.c: the same operator, written differently */
extern const ConvertRule convert_images[];    /* convert_image.c: resizing, padding, sampling, transforms */
extern const ConvertRule convert_formulas[];  /* convert_formulas.c: operators that become others */
extern const ConvertRule convert_attention[]; /* convert_attention.c */

/* --- what rules ask --- */
ValueType convert_type(const Convert *c, const Value *value);
int convert_rank(const Convert *c, const Value *value); /* -1: not known */
bool convert_size(const Convert *c, const Value *value, int axis, int64_t *out_size);
const Tensor *convert_constant(const Convert *c, const Value *value); /* NULL: computed, or left out */
/* The elements of a constant vector or number; false where it is computed, or longer than 64. */
bool convert_ints(const Convert *c, const Value *value, int64_t *out_values, int *out_count);
bool convert_number(const Convert *c, const Value *value, double *out_number); /* of one element */
bool convert_is_used(const Node *node, int output);
/* The axis counted from the front; false where that takes a rank which is not known. */
bool convert_axis(const Convert *c, const Value *value, int64_t *axis);

/* --- what rules do --- */
void convert_drop_attr(Node *node, const char *name);
void convert_drop_input(Node *node, int index);
void convert_attr_to_input(Convert *c, Node *node, const char *name, int input); /* integers */
const char *convert_input_to_attr(Convert *c, Node *node, int input, const char *name);

/* Nodes before `at`, in the forms of opset `form`; the type of the result is that of `a`. Inputs may be NULL. */
Value *convert_add(Convert *c, Node *at, const char *op, int form, Value *a, Value *b, Value *d);
Value *convert_cast(Convert *c, Node *at, Value *a, DType to); /* `a` itself when it is of that type */
Value *convert_typed(Convert *c, Value *value, DType dtype, int rank);
Value *convert_ints_value(Convert *c, Node *at, const int64_t *values, int count);
Value *convert_int_value(Convert *c, Node *at, int64_t value);                /* a vector of one */
Value *convert_number_value(Convert *c, Node *at, DType dtype, double value); /* of no axes */
Value *convert_transpose(Convert *c, Node *at, Value *a, const int64_t *perm, int rank);
Value *convert_reduce(Convert *c, Node *at, const char *op, Value *a, const int64_t *axes, int count, bool keep);
Value *convert_reshape(Convert *c, Node *at, Value *a, const int64_t *shape, int rank);
/* The node becomes this operator, without attributes. */
void convert_become(Node *node, const char *op, int form, Value *a, Value *b, Value *d);
/* An output is what `value` is. Where it is the first one, the node itself must become something else. */
void convert_give(Convert *c, Node *node, int output, Value *value);
/* A node of the same operator, inputs and attributes before it, with outputs of their own. */
Node *convert_copy(Convert *c, Node *node);

/* convert_types.c: types of the graph's values, its subgraphs' included. */
void convert_infer(Convert *c, Graph *graph);

/* Converts all nodes of the standard's domain. */
Status convert_opset(Rewrite *r, Graph *graph, int target);

#endif
