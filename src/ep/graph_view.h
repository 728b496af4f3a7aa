/* SPDX-License-Identifier: Apache-2.0 */
/* A runtime's graph as plain data: nodes in topological order, values by number. Everything is borrowed from the
 * runtime's graph or in the scratch. */
#ifndef ONNXFUSE_EP_GRAPH_VIEW_H
#define ONNXFUSE_EP_GRAPH_VIEW_H

#include "ep/common.h"

typedef struct ViewNode {
    const OrtNode *node;
    const char *op, *domain, *name;
    int *inputs; /* [input_count] numbers of values, -1: left out; then what its subgraphs read from outside */
    int *outputs;
    int input_count, explicit_count, output_count;
    const OrtGraph **subgraphs;
    const char **subgraph_names; /* the attributes that hold them */
    int subgraph_count;
} ViewNode;

typedef struct ViewValue {
    const char *name;
    const OrtValueInfo *info;
    int producer;     /* number of a node, -1: comes from outside */
    bool is_constant; /* an initializer that no caller can override, also one of an outer graph */
    bool is_output;   /* of the graph */
} ViewValue;

typedef struct GraphView {
    const Ort *ort;
    Scratch *scratch;
    const OrtGraph *graph;
    const char *folder; /* of the model's file; NULL: it has none */
    int64_t ir_version;
    const char **domains; /* [opset_count] */
    int64_t *opsets;
    int opset_count;
    ViewNode *nodes;
    ViewValue *values;
    int node_count, value_count, value_capacity;
    Names names; /* of values */
} GraphView;

OrtStatus *view_graph(const Ort *ort, Scratch *scratch, const OrtGraph *graph, GraphView *out_view);
/* A node's names, inputs, outputs and subgraphs, its values added to the view's. */
OrtStatus *view_node(GraphView *view, const OrtNode *node, ViewNode *out_node);
int view_opset(const GraphView *view, const char *domain); /* 0: none */

/* What a tensor value is, as far as the runtime knows. */
typedef struct TensorType {
    int dtype;            /* ONNXFUSE_NONE: not a tensor, or not known */
    int rank;             /* -1: not known */
    const int64_t *dims;  /* -1: not a constant */
    const char **symbols; /* "" where a dim has no name */
} TensorType;
OrtStatus *view_type(const Ort *ort, Scratch *scratch, const OrtValueInfo *info, TensorType *out_type);

#endif
