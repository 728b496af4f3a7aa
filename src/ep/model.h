/* SPDX-License-Identifier: Apache-2.0 */
/* A set of a graph's nodes as an ONNX model of their own. */
#ifndef ONNXFUSE_EP_MODEL_H
#define ONNXFUSE_EP_MODEL_H

#include "ep/graph_view.h"
#include "ep/wire.h"

/* Initializers that a model refers to instead of holding their bytes. */
typedef struct Weights {
    struct Weight {
        const void *data; /* the runtime's */
        size_t size;
    } * items;
    int count, capacity;
} Weights; /* zero-initialise */

/* OnnxfuseOptions.external_data; user is the Weights. */
const void *weights_find(void *user, const char *location, size_t *out_size);

typedef struct ModelRequest {
    const GraphView *view;
    const int *nodes; /* numbers, ascending */
    int node_count;
    const int *outputs; /* numbers of values */
    int output_count;
    Weights *weights;  /* NULL: the model holds all bytes itself */
    bool number_nodes; /* top-level nodes are named by their numbers instead of their names */
} ModelRequest;

/* Inputs are the values that the nodes read and neither make nor find constant, in the order in which they are first
 * read. */
OrtStatus *model_write(const ModelRequest *request, Wire *out_model);

/* Whether model_write can tell the node's attributes. */
OrtStatus *model_can_hold(const Ort *ort, Scratch *scratch, const OrtNode *node, bool *out_can);

#endif
