/* SPDX-License-Identifier: Apache-2.0 */
/* What the parts of the importer share while a model becomes a graph. */
#ifndef ONNXFUSE_IMPORTER_BUILD_H
#define ONNXFUSE_IMPORTER_BUILD_H

#include "graph/graph.h"
#include "importer/importer.h"
#include "importer/tensor_proto.h"

/* A call of a model-local function while its nodes take the call's place. */
typedef struct Frame {
    const struct Frame *caller; /* the function that the call stands in, NULL: none */
    const Onnx__FunctionProto *function;
    const char *prefix; /* of the names of the function's own values */
    Map attributes;     /* name -> AttributeProto of the call, or the function's default */
    Map outputs;        /* formal output -> the name the call gives it */
    Origin origin;      /* the calls, outermost first */
} Frame;

/* Where a name is looked up: a graph, a subgraph, or a function's body (which stands in the caller's graph). */
typedef struct Scope {
    struct Scope *outer; /* of a subgraph: where its node stands; else NULL */
    Graph *graph;
    const Frame *frame;         /* NULL outside functions */
    Map names;                  /* name -> Value *, or LEFT_OUT */
    VEC(const char *) captured; /* names found outside, as the subgraph's values hold them: */
    VEC(Value *) captured_outer;
    VEC(Value *) captured_inner;
    bool
        shapes_hold; /* of a subgraph: its inputs have the shapes that they declare, which is not so for control flow */
} Scope;

typedef struct Importer {
    Arena *arena;   /* the graph's */
    Arena *scratch; /* until the import ends */
    Graph *graph;
    const Onnx__ModelProto *model;
    TensorReader tensors;
    bool unaligned_weights; /* as ImportOptions */
    Map functions;          /* domain, name and overload -> FunctionProto * */
    Map opsets;             /* FunctionProto * or ModelProto * -> its Map of domain -> version */
    Map read; /* TensorProto * or SparseTensorProto * -> Tensor *, so that a function called twice shares its tensors */
    Map orders;     /* NodeProto ** of a list -> the order of its nodes */
    int64_t budget; /* bytes, about, that calls of functions may still add */
    int depth;      /* of subgraphs and calls around the current node */
} Importer;

/* "ai.onnx", "" and NULL are the same. */
const char *domain_of(const char *name);
/* A name as messages show it: without control characters, not too long. */
const char *shown(Importer *im, const char *name);
/* The node's own name, else "Op#index". */
const char *node_name(Importer *im, const Onnx__NodeProto *proto, int index);

/* order.c: *out_order[i] is the index of the node that comes i-th; NULL when the list is in order as it stands. A cycle
 * is an error that names a node on it. */
Status order_nodes(Importer *im, Onnx__NodeProto *const *nodes, size_t count, const int **out_order);

/* types.c: what a declared type says. *out_dtype is DT_NONE and *out_rank -1 where it says nothing. Unknown dims get a
 * symbol "NAME_AXIS". type may be NULL. */
typedef struct DeclaredType {
    ValueKind kind;
    DType dtype;
    DType key; /* as Value.key */
    int rank;
    const Dim *dims[MAX_RANK];
} DeclaredType;
Status read_type(Importer *im, const Onnx__TypeProto *type, const char *name, DeclaredType *out_type);
/* Makes the symbols of named dims, so that no unknown dim takes the name of one. */
void declare_dims(Importer *im, const Onnx__TypeProto *type);

/* attributes.c. The tensors and lists of attributes are borrowed from the message; names and strings are terminated. */
/* The attribute that `proto` stands for: itself, or in a function what the call gives for its reference; NULL: left
 * out. */
Status resolve_attribute(Importer *im, const Frame *frame, const Onnx__AttributeProto *proto,
                         const Onnx__AttributeProto **out_proto);
int attribute_type(const Onnx__AttributeProto *proto); /* also of files that leave the type out */
/* Every kind but graphs. `proto` is resolved; `name` is the attribute's name on the node. */
Status set_attribute(Importer *im, Node *node, const char *name, const Onnx__AttributeProto *proto);
/* The value of a Constant node. */
Status read_constant(Importer *im, const Frame *frame, const Onnx__NodeProto *node, Tensor **out_tensor);
Status read_tensor(Importer *im, const Onnx__TensorProto *proto, Tensor **out_tensor);
Status read_sparse(Importer *im, const Onnx__SparseTensorProto *proto, Tensor **out_tensor);

/* The names of an operator's graph attributes in their order, NULL after the last; NULL for operators that have no
 * fixed ones. */
const char *const *subgraph_names(const char *domain, const char *op);

/* build.c */
Status charge(Importer *im, const Frame *frame,
              size_t bytes);      /* what inlining adds; fails when the budget is used up */
Status build_graph(Importer *im); /* fills im->graph from im->model */

#endif
