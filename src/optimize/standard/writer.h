/* SPDX-License-Identifier: Apache-2.0 */
/* The builder with which primitives are told in ONNX nodes. As the lowering's, it keeps the first error, and every call behind one
 * returns NULL. */
#ifndef ONNXFUSE_OPTIMIZE_STANDARD_WRITER_H
#define ONNXFUSE_OPTIMIZE_STANDARD_WRITER_H

#include "graph/graph.h"

typedef struct Writer {
    Arena *arena;
    DimTable *table;
    Graph *target;
    Node *place; /* in target; new nodes go before it. NULL: to the end */
    int opset;
    const Node *node; /* the lowered node that is being written */
    Map forms;        /* Value * of the lowered graph -> Value * of the target */
    Map constants;    /* Tensor * -> Value * of the target */
    Map numbers;      /* hash of a constant that was made here -> Value *, the first of that hash */
    Map found;        /* 1 + symbol's number -> Source * */
    Map sizes;        /* Dim * -> Value *: an i64 vector of one */
    Map shapes;       /* hash of a list of Dim * -> Shape * */
    Map symbols; /* 1 + symbol's number -> Source *: where a run finds it, of which `found` says the one that is used */
    struct Writer *outer;  /* of the graph around the target, where that is a body; else NULL */
    Map captured;          /* of a lowered body: Value *, an input -> Value * of the lowered graph around it */
    Map inner;             /* Value * of the outer target -> Value * of this one */
    VEC(Value *) captures; /* the first of these */
    bool keeps_names;      /* values are called as in the lowered graph */
    bool sizing;           /* what is made now computes a size, which others read too */
    Value *made;           /* the last one */
    Status *error;         /* the first, of the bodies too; owned */
} Writer;

/* A symbol is the size of `value` (of the lowered graph) along `axis`, or, where `is_element`, its element of that number. */
typedef struct Source {
    const Value *value;
    int axis;
    bool is_element, binds; /* binds: in the lowered graph, it is from there that a run has it */
    struct Source *next;
} Source;

Writer writer_make(Graph *target, int opset);
/* Of a new body of a node that the outer writer is about to write. Sizes and values from outside are captured. */
Writer writer_of_body(Writer *outer, const char *name);
/* A value of the outer target, as the body reads it. */
Value *capture(Writer *w, Value *outside);
/* The target's value that holds what this value of the lowered graph does. */
Value *form_of(Writer *w, const Value *lowered);
/* `value` is it from now on; its type is said, and where it was made for this it is called alike. */
void set_form(Writer *w, const Value *lowered, Value *value);
/* STATUS_UNSUPPORTED that names the node being written. */
void refuse(Writer *w, const char *format, ...) STATUS_FORMAT(2, 3);

/* --- nodes --- */
static inline Attr int_attr(const char *name, int64_t value) {
    return (Attr){.name = name, .kind = ATTR_INT, .i = value};
}
static inline Attr ints_attr(const char *name, const int64_t *values, int count) { /* borrowed */
    return (Attr){.name = name, .kind = ATTR_INTS, .ints = values, .count = count};
}
static inline Attr text_attr(const char *name, const char *text) { /* borrowed */
    return (Attr){.name = name, .kind = ATTR_STRING, .s = {text, strlen(text)}};
}
/* A node of the standard's operator `op` whose result is of type `result`. Inputs (NULL: left out) of a type that the operator
 * does not take, or that ONNX Runtime has no kernel for, are cast to one that holds all its values, and the result back, which
 * is the same to the bit for integers. */
Value *apply(Writer *w, const char *op, DType result, Value *const *inputs, int count, const Attr *attrs,
             int attr_count);
/* The same of an operator whose result is a sequence or an optional. */
Value *apply_to_items(Writer *w, const char *op, ValueKind kind, DType result, Value *const *inputs, int count,
                      const Attr *attrs, int attr_count);
Value *apply1(Writer *w, const char *op, Value *a);            /* of a's type */
Value *apply2(Writer *w, const char *op, Value *a, Value *b);  /* likewise */
Value *compare(Writer *w, const char *op, Value *a, Value *b); /* bool */
Value *choose(Writer *w, Value *condition, Value *then, Value *otherwise);
/* Of the node `op` that made `first`, which may have been cast since, the next result. */
Value *further_result(Value *first, const char *op, const char *name, DType dtype);
Value *convert(Writer *w, Value *a, DType to); /* a itself when it is of that type */
/* Of a transposition made here, one of what that reads. */
Value *transpose(Writer *w, Value *a, const int64_t *perm, int rank);
Value *reshape_to(Writer *w, Value *a, const Dim *const *dims, int rank);
Value *shape_of(Writer *w, Value *a);       /* an i64 vector, by a Shape */
Value *no_elements(Writer *w, DType dtype); /* a sequence of such tensors */
Value *to_scalar(Writer *w, Value *a);      /* of one element; a itself where it has no axes */
Value *copied(Writer *w, Value *a);
/* A node and its next result, as they are given. */
Node *write_new_node(Writer *w, const char *op, Value *const *inputs, int count);
Value *write_new_result(Writer *w, Node *node, DType dtype);

/* --- constants and sizes --- */
Value *number(Writer *w, DType dtype, double value); /* of no axes */
Value *whole(Writer *w, DType dtype, int64_t value);
Value *small_constant(Writer *w, Tensor *tensor); /* a small one; equal ones are made once */
Value *ints_value(Writer *w, const int64_t *values, int count);
Value *vector_of(Writer *w, int64_t value); /* i64, of one element */
/* Vectors one behind the other, of the first one's type, and one element of a vector as a vector; NULL of NULL. */
Value *join_vectors(Writer *w, Value *const *parts, int count);
Value *vector_element(Writer *w, Value *vector, int64_t at);
Value *shape_value(Writer *w, const Dim *const *dims, int count); /* an i64 vector */
Value *size_number(Writer *w, const Dim *dim);                    /* i64, of no axes */

/* --- anchors.c --- */
/* From channels at the end to channels behind the batch, and back. */
Value *channels_second(Writer *w, Value *x, int rank);
Value *channels_last(Writer *w, Value *x, int rank);
/* The transposed convolution of x [N, C, spatial...], of whose whole result `cut` [2 * spatial] is cut off before and behind each axis; where
 * that is negative, zeros are added. */
Value *spread_windows(Writer *w, Value *x, Value *weight, const Dim *const *cut, int spatial, const int64_t *strides,
                      const int64_t *dilations, int64_t group);

/* --- bodies.c --- */
/* A node of control flow: its own inputs, then what the bodies capture, whose inputs are completed by that. It has no outputs yet. */
Node *add_flow_node(Writer *w, const char *op, Value *const *own, int own_count, Writer *const *bodies, int count);
/* The node's next result, of the type and kind of `like`. */
Value *add_flow_result(Writer *w, Node *node, const Value *like);
/* The body's next output. */
void add_result(Writer *body, Value *value);
/* An input of the body's own. like: has its type; the shape of a tensor may be another in each run of the body where `any_shape`. */
Value *add_body_input(Writer *body, const Value *like, bool any_shape);
/* A Loop over `times` (i64, of no axes) that carries one value. */
typedef struct Repeat {
    Writer body;
    Value *number; /* of the step */
    Value *carried;
    Value *start, *times;
} Repeat;
Repeat *begin_repeat(Writer *w, Value *times, Value *start);
/* The carried value behind the last step. */
Value *end_repeat(Writer *w, Repeat *repeat, Value *next);

/* --- rows.c, anchors.c, steps.c --- */
/* These write a node: its results get forms. In windows.c and sequences.c: false: it is none of theirs. */
bool write_window(Writer *w, const Node *n);
bool write_sequence(Writer *w, const Node *n);
/* In resize.c; in: the node's inputs. */
void write_resize(Writer *w, const Node *n, Value *const *in);
void write_resize_gradient(Writer *w, const Node *n, Value *const *in);
/* In flow.c: of an If that lowering has put into a branch which fails when it is taken. */
void write_refusal(Writer *w, const Node *n);
const char *prim_operator(Prim prim); /* of one node: a reduction */
void write_prim(Writer *w, const Node *n);
void write_anchor(Writer *w, const Node *n);
void write_host(Writer *w, const Node *n);

#endif
