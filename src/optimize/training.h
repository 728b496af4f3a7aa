/* SPDX-License-Identifier: Apache-2.0 */
/* A model -> the graph of one step of its training: the model, its loss, the operator Gradient, the optimizer's formulas, all as ONNX
 * nodes (LEVEL_ONNX). Weights and the optimizer's states are inputs, and their new values outputs (Graph.states), so that whoever runs the step
 * keeps them. Where gradients of several batches are summed before an update, that is a graph of its own. */
#ifndef ONNXFUSE_OPTIMIZE_TRAINING_H
#define ONNXFUSE_OPTIMIZE_TRAINING_H

#include "graph/graph.h"
#include "policy/policy.h"

typedef enum TrainingGraph { GRAPH_STEP, GRAPH_UPDATE, TRAINING_GRAPHS } TrainingGraph;

/* A tensor that is kept from step to step. */
typedef struct TrainedTensor {
    const char *
        name; /* of the model's weight; of a state "WEIGHT.STATE" (".momentum", ".variance", ".sum", ".gradient"); of the loss's scale "training.loss_scale" and
             "training.steps_at_scale" */
    const Tensor *initial; /* what training begins with, of a narrower type perhaps; NULL: zeros */
    const Value *like;     /* has its type (training_type of a weight's) and shape */
    struct {
        int input, output; /* where it stands among the graph's; -1: not there, not changed there */
    } in[TRAINING_GRAPHS];
    bool is_state;
    bool is_sum; /* of gradients: nothing after an update */
} TrainedTensor;

/* Numbers that change from step to step, inputs: f32 scalars. */
typedef enum TrainingNumber {
    NUMBER_RATE,        /* the learning rate */
    NUMBER_CORRECTION1, /* 1 / (1 - beta1^t), of adam and adamw in step t = 1, 2, ... */
    NUMBER_CORRECTION2, /* 1 / (1 - beta2^t) */
    NUMBER_OLD, /* 0: the batch is the first behind an update, so gradients are not added to what is there; else 1 */
    TRAINING_NUMBERS,
} TrainingNumber;

/* The type in which a weight is kept: a step may be less than what a narrow number can change by. */
static inline DType training_type(DType dtype) { return dtype == DT_F16 || dtype == DT_BF16 ? DT_F32 : dtype; }

typedef struct TrainingStep {
    Graph *update;          /* the caller's to destroy; NULL: the step's own graph updates the weights */
    TrainedTensor *tensors; /* [tensor_count]: weights, then states */
    int tensor_count;
    int numbers[TRAINING_GRAPHS][TRAINING_NUMBERS]; /* inputs of the graphs; -1: it has no such number */
    int finite
        [TRAINING_GRAPHS]; /* f32 output of the graph that updates: 0 where the gradients are not finite, and all stays but the loss's scale;
                                    -1: it has none */
    int data_inputs;    /* the first inputs of the graph: the model's, then what the loss asks for */
    int loss;           /* output */
    int64_t classes;    /* of a loss of cross entropy; -1: another one, or only the run knows */
    int gradients;      /* the first of tensor_count outputs, where these are asked for; else -1 */
    int seeds;          /* TRAIN_APART: the first of the inputs that are outputs' gradients */
    const int *seed_of; /* TRAIN_APART: [gradients] for each output its input, or -1 */
} TrainingStep;

typedef enum TrainingKind {
    TRAIN_STEP,
    TRAIN_GRADIENTS, /* no optimizer: the graph keeps its outputs and weights, and gets the loss and "NAME_grad" for each weight as outputs */
    TRAIN_APART, /* no loss: inputs are the model's, weights, and "NAME_grad" for each output of floats; outputs the model's, and "NAME_grad" for
                        each weight, and for inputs of floats unless it is said what gradients are of */
} TrainingKind;

typedef struct TrainingOptions {
    const struct Training *wanted; /* of a policy */
    TrainingKind kind;
    Graph *twin; /* the same model imported once more: lowered here, to learn types; of no use afterwards */
} TrainingOptions;

/* graph: as imported; changed in place, and of no use after a failure. What the step holds is in the graph's arena. Errors: a loss or weight that is not there
 * (with those that are), STATUS_UNSUPPORTED for an operator set too old for the loss. */
Status training_step(Graph *graph, const TrainingOptions *options, TrainingStep *out_step);

#endif
