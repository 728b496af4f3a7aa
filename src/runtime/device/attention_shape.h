/* SPDX-License-Identifier: Apache-2.0 */
/* The sizes and strides of the anchor "attention" (lowering/anchors.h), from its node's permutes and its tensors' actual
 * shapes: the same on all devices. Comes in: the node, the tensors of a run; goes out: AttentionShape, or what does not
 * fit. */
#ifndef ONNXFUSE_RUNTIME_DEVICE_ATTENTION_SHAPE_H
#define ONNXFUSE_RUNTIME_DEVICE_ATTENTION_SHAPE_H

#include "graph/graph.h"
#include "lowering/anchors.h"

enum { ATTENTION_LEAD = ATTENTION_RANK - 2, ATTENTION_HEADS = ATTENTION_LEAD - 1 }; /* leading axes; the last one */

/* Elements; 0 where the tensor is repeated. */
typedef struct AttentionStrides {
    int64_t lead[ATTENTION_LEAD]; /* the last: from one head (of its own) to the next */
    int64_t row, column;          /* q: query, element; k, v: key, element; steps: query, key */
} AttentionStrides;

typedef struct AttentionShape {
    int64_t lead[ATTENTION_LEAD];  /* of the result, missing ones of size 1 */
    int64_t k_heads, v_heads;      /* of k' and v': each divides the result's */
    int64_t queries, keys;         /* s_q, s_k */
    int64_t size, width;           /* d, d_v */
    int64_t offset;                /* of SCORE_CAUSAL */
    int64_t at[ATTENTION_INPUTS];  /* of q, k and v: the first element, where the tensor has more heads */
    AttentionStrides q, k, v, out; /* out: query, element of the result before perm_out */
    AttentionStrides steps[ATTENTION_STEPS];
} AttentionShape;

/* The inputs of a run's node. q, k and v that are parts begin with the first element that the operand has: what is left of the
 * tensor, as a vector. Holds addresses of its own: not to be copied. */
typedef struct AttentionInputs {
    const Tensor *all[ATTENTION_BACKWARD_INPUTS + ATTENTION_STEPS];
    Tensor moved[ATTENTION_INPUTS];
} AttentionInputs;

/* A step of the node, with its numbers and the index of the input that it reads (-1: none). */
typedef struct AttentionStep {
    ScoreStep kind;
    float alpha, beta;
    int input;
} AttentionStep;

/* steps: [ATTENTION_STEPS]. False where the node's attributes and inputs do not fit each other. */
bool attention_steps(const Node *node, AttentionStep *out_steps, int *out_count);

/* STATUS_INVALID where the tensors do not fit each other or the result (of "attention_backward": its gradient). symbols: as dim_eval takes them. */
Status attention_shape(const Node *node, const Tensor *const *inputs, const int64_t *symbols, const Tensor *output,
                       AttentionShape *out_shape);

/* inputs: the node's [count], borrowed by *out. */
void attention_inputs(const AttentionShape *shape, const Tensor *const *inputs, int count, AttentionInputs *out);

#endif
