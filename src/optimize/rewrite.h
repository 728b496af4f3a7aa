/* SPDX-License-Identifier: Apache-2.0 */
/* Simplifies a graph of ONNX nodes and leaves it a graph of ONNX nodes, to be written to a file again: what
 * `onnxfuse optimize` does between import and export.
 *
 * What is known of a value comes from lowering: a twin of the graph is lowered, and each value of the graph is paired
 * with what the twin's value became. A value that became a constant is one; two values that became the same one are
 * equal, which finds casts, reshapes, transposes, slices, dropouts that do nothing and common subexpressions alike; and
 * the twin's types and symbolic sizes are the graph's. */
#ifndef ONNXFUSE_OPTIMIZE_REWRITE_H
#define ONNXFUSE_OPTIMIZE_REWRITE_H

#include "passes/passes.h"

typedef struct Rewrite {
    Arena *arena;   /* the graph's */
    Map facts;      /* Value * of the graph -> Value * of the lowered twin: dtype, sizes, constant, content */
    int opset;      /* version of the standard's operator set that the graph will be in; 0: each node's own */
    int64_t growth; /* bytes that folded constants may still add to the file */
    int changes;    /* rules that have held */
} Rewrite;

/* The twin is the same model imported a second time. It is lowered as far as its operators are supported; its data is
 * used by the graph, so it must live as long. opset: the version of the standard's operator set that all nodes are then
 * written in (convert.h); 0: that which the model imports, though its functions may have others. rounds.c. */
Status rewrite_onnx(Graph *graph, Graph *twin, const Policy *policy, int opset);

/* Writes all nodes in the version that the model imports, or in `oldest` where that is older; r->facts are the graph's. */
Status rewrite_version(Rewrite *r, Graph *graph, int oldest);

/* extract.c: cuts the graph down to what makes some values from others, "INPUTS:OUTPUTS" with commas between names. The
 * twin is lowered for their types, which they declare then. */
Status extract_graph(Graph *graph, Graph *twin, const Policy *policy, const char *from_to);

/* --- what the rules share (rewrite.c) --- */
/* rewrite_facts.c: lowers the twin and fills r->facts. */
Status rewrite_facts(Rewrite *r, Graph *graph, Graph *twin, const Policy *policy);
/* The twin's value, NULL where its type is not known or it is no tensor. */
const Value *fact_of(const Rewrite *r, const Value *value);
/* The same of sequences, optionals and maps, too. */
const Value *typed_fact_of(const Rewrite *r, const Value *value);

/* Its elements where they are known, though it may be computed; NULL: they are not. */
Tensor *rewrite_constant(const Rewrite *r, const Value *fact);

/* Lets everything read `to` instead of `from`, if the graph's outputs stay what they are called; whether it did. */
bool rewrite_replace(Rewrite *r, Graph *graph, Value *from, Value *to);
/* The node that makes an input for this node alone; NULL when it is not of that operator. */
Node *sole_producer(const Node *node, int input, const char *op);
Value *node_in(const Node *node, int index); /* NULL when left out */
bool is_standard(const Node *node, const char *op);
/* Whether an operator that the standard has since this version may take the node's place. */
bool may_become(const Rewrite *r, const Node *node, int since);
void node_put_input(Node *node, int index, Value *value); /* appends where it has fewer */
Value *add_ints(Rewrite *r, Graph *graph, const char *name, const int64_t *values, int count);

/* A rule changes the node or takes its place, and says whether it did; what nothing reads any more is taken out later.
 * Each rule that holds makes the graph smaller or turns a computed input into a constant. */
typedef bool (*RewriteRule)(Rewrite *r, Node *node);
bool rewrite_shape(Rewrite *r, Node *node);     /* rewrite_shape.c: Reshape and its like, Transpose */
bool rewrite_weights(Rewrite *r, Node *node);   /* rewrite_weights.c: factors and summands into weights and biases */
bool rewrite_neighbour(Rewrite *r, Node *node); /* rewrite_weights.c: Pad into Conv, MatMul and Add to Gemm */
bool rewrite_formula(Rewrite *r, Node *node);   /* rewrite_fuse.c: LayerNormalization, Gelu */

#endif
