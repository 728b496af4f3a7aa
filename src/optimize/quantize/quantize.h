/* SPDX-License-Identifier: Apache-2.0 */
/* Quantizes a graph of ONNX nodes, and leaves it one of the standard's operators:
 *
 *     find the layers -> watch what they read -> choose ranges -> try each layer beside itself -> put the new ones in place
 *
 * Watching and trying add outputs to the graph, which a session computes for recorded inputs, and take them out again; what
 * runs the sessions stands above (runtime/api/model/quantize.c). A layer is a MatMul, Gemm or Conv with a constant weight, of bf16 also a
 * ConvTranspose or Gather; those of subgraphs stay as they are. */
#ifndef ONNXFUSE_OPTIMIZE_QUANTIZE_QUANTIZE_H
#define ONNXFUSE_OPTIMIZE_QUANTIZE_QUANTIZE_H

#include "graph/graph.h"
#include "optimize/quantize/formulas.h"

typedef enum QuantForm {
    QUANT_INT8, /* weights in i8, a scale a channel; activations in u8 */
    QUANT_INT4, /* weights in i4, a scale a block */
    QUANT_BF16, /* weights in bf16 */
} QuantForm;

/* A tensor that becomes bytes, for layers to read. */
typedef struct Activation {
    Value *value;
    double low, high;       /* what was seen */
    double *histogram;      /* [HISTOGRAM_BINS] of |x|; NULL: the range is what was seen */
    Levels levels;          /* chosen by quantize_weights */
    Value *bytes_as_floats; /* DequantizeLinear(QuantizeLinear(value)), once it is there */
} Activation;

typedef struct Layer {
    Node *node;
    const char *name, *weight_name;
    int weight;                 /* the input that is one */
    int axis;                   /* of the weight: int8: of its outputs; int4: along which blocks lie */
    Activation *input, *result; /* of int8; result: what becomes bytes behind the layer, or NULL */
    Stored stored;
    Tensor *bias, *bias_scale;   /* in i32, or NULL: as it is */
    double noise, signal, worst; /* of its output, against the layer as it was: sums of squares, largest difference */
    int64_t bytes_before, bytes_after; /* of the weight, with its scales */
    bool left_alone;
} Layer;

typedef struct Quantization {
    Graph *graph;
    QuantForm form;
    int64_t block; /* of int4 */
    int opset;     /* of the standard's operators in the graph */
    VEC(Layer *) layers;
    VEC(Activation *) activations;
    int own_outputs; /* of the model */
} Quantization;

/* The version of the standard's operator set that the form needs. */
int quantize_opset(QuantForm form);
/* An error where there is no layer. */
Status quantize_find(Quantization *q, Graph *graph, QuantForm form, int64_t block);
/* Further outputs, for each activation in turn: its least and its largest element; or |x| where histograms is set. */
void quantize_watch(Quantization *q, bool histograms);
/* Weights in their new form. Ranges are known by now. */
void quantize_weights(Quantization *q);
/* Further outputs, for each layer in turn: the sum of squares of the difference that quantizing this layer alone makes to its
 * output, that of the output itself, and the largest difference. */
void quantize_try(Quantization *q);
/* Takes these outputs out again. */
void quantize_restore(Quantization *q);
/* The layers that are not left alone, in their new form. */
void quantize_apply(Quantization *q);

#endif
