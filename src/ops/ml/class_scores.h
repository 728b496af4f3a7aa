/* SPDX-License-Identifier: Apache-2.0 */
/* What the classifiers and regressors of ai.onnx.ml share: post_transform, class labels, list attributes. */
#ifndef ONNXFUSE_OPS_ML_CLASS_SCORES_H
#define ONNXFUSE_OPS_ML_CLASS_SCORES_H

#include "lowering/build.h"

/* In the order of TreeEnsemble's numbers. */
typedef enum PostTransform { POST_NONE, POST_SOFTMAX, POST_LOGISTIC, POST_SOFTMAX_ZERO, POST_PROBIT } PostTransform;

/* False for a name that is none. */
bool post_transform_from_name(const char *name, PostTransform *out_transform);
/* The attribute post_transform, NONE when missing; an error in the lowering's words. */
PostTransform read_post_transform(Lowering *l, const Node *n);
void apply_post_transform(PostTransform transform, double *scores, int64_t count);

/* The score of the one class that a binary model computes, written as two as ONNX Runtime does: LOGISTIC [1 - p, p],
 * PROBIT [probit(s), 0], else [1 - s, s] (complement) or [-s, s]. */
void write_binary_scores(PostTransform transform, bool complement, double score, double *out_scores);

/* Class labels: ints (any name of the two attributes) or strings; count 0 when neither is given. */
typedef struct Labels {
    const int64_t *ints;
    const StringView *strings;
    int count;
} Labels;
Labels read_labels(const Node *n);
static inline DType labels_dtype(const Labels *labels) { return labels->strings ? DT_STRING : DT_I64; }
/* Stores label `index` as element `at` (the index itself where there are no labels). */
void store_label(const Labels *labels, Tensor *to, int64_t at, int64_t index);

const float *attr_floats(const Node *n, const char *name, int *out_count); /* NULL and 0 when missing */
/* Row-major [rows, features] numbers of a rank 1 (one row) or rank 2 tensor. */
Status feature_rows(const HostCall *call, const Tensor *x, int64_t *out_rows, int64_t *out_features);
/* The row dim of an input of rank 1 or 2; NULL (and an error) for other ranks. */
const Dim *feature_row_dim(Lowering *l, const Value *x);

#endif
