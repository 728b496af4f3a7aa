/* SPDX-License-Identifier: Apache-2.0 */
/* Transforms of scores, and labels. */
#include "ops/ml/class_scores.h"

#include <math.h>

bool post_transform_from_name(const char *name, PostTransform *out_transform) {
    static const char *const names[] = {"NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT"};
    for (int i = 0; i < 5; i++)
        if (strcmp(names[i], name) == 0) return *out_transform = (PostTransform)i, true;
    return false;
}

PostTransform read_post_transform(Lowering *l, const Node *n) {
    PostTransform transform = POST_NONE;
    const char *name = attr_string(n, "post_transform", "NONE");
    if (!post_transform_from_name(name, &transform)) invalid(l, "post_transform \"%s\"", name);
    return transform;
}

static double logistic(double x) {
    double y = 1 / (1 + exp(-fabs(x)));
    return x < 0 ? 1 - y : y;
}

/* The inverse of erf: S. Winitzki, "A handy approximation for the error function and its inverse", 2008. */
static double inverse_erf(double x) {
    double sign = x < 0 ? -1 : 1, log_part = log((1 - x) * (1 + x));
    double v = 2 / (M_PI * 0.147) + 0.5 * log_part;
    return sign * sqrt(-v + sqrt(v * v - log_part / 0.147));
}

static double largest(const double *scores, int64_t count) {
    double most = scores[0];
    for (int64_t i = 1; i < count; i++)
        if (scores[i] > most) most = scores[i];
    return most;
}

/* Scores of zero stay (near) zero with `keep_zeros`. */
static void softmax_scores(double *scores, int64_t count, bool keep_zeros) {
    double most = largest(scores, count), sum = 0;
    for (int64_t i = 0; i < count; i++) {
        bool zero = keep_zeros && fabs(scores[i]) <= 1e-7;
        scores[i] = zero ? scores[i] * exp(-most) : exp(scores[i] - most);
        sum += scores[i];
    }
    for (int64_t i = 0; i < count; i++) scores[i] = sum == 0 ? 0.5 : scores[i] / sum;
}

void apply_post_transform(PostTransform transform, double *scores, int64_t count) {
    if (count == 0) return;
    switch (transform) {
    case POST_NONE: break;
    case POST_SOFTMAX: softmax_scores(scores, count, false); break;
    case POST_SOFTMAX_ZERO: softmax_scores(scores, count, true); break;
    case POST_LOGISTIC:
        for (int64_t i = 0; i < count; i++) scores[i] = logistic(scores[i]);
        break;
    case POST_PROBIT:
        for (int64_t i = 0; i < count; i++) scores[i] = M_SQRT2 * inverse_erf(2 * scores[i] - 1);
        break;
    }
}

void write_binary_scores(PostTransform transform, bool complement, double score, double *out_scores) {
    out_scores[1] = score;
    out_scores[0] = complement ? 1 - score : -score;
    if (transform == POST_LOGISTIC) {
        out_scores[1] = logistic(score);
        out_scores[0] = 1 - out_scores[1];
    } else if (transform == POST_PROBIT) {
        apply_post_transform(transform, &score, 1);
        out_scores[0] = score;
        out_scores[1] = 0;
    }
}

Labels read_labels(const Node *n) {
    Labels labels = {0};
    const Attr *strings = node_attr(n, "classlabels_strings");
    if (strings && strings->kind == ATTR_STRINGS && strings->count) {
        labels.strings = strings->strings;
        labels.count = strings->count;
        return labels;
    }
    labels.ints = attr_ints(n, "classlabels_ints", &labels.count);
    if (!labels.count) labels.ints = attr_ints(n, "classlabels_int64s", &labels.count);
    return labels;
}

void store_label(const Labels *labels, Tensor *to, int64_t at, int64_t index) {
    if (!to) return;
    bool known = index >= 0 && index < labels->count;
    if (labels->strings)
        ((StringView *)to->data)[at] = known ? labels->strings[index] : (StringView){"", 0};
    else
        ((int64_t *)to->data)[at] = known ? labels->ints[index] : index;
}

const float *attr_floats(const Node *n, const char *name, int *out_count) {
    const Attr *attr = node_attr(n, name);
    bool found = attr && attr->kind == ATTR_FLOATS;
    *out_count = found ? attr->count : 0;
    return found ? attr->floats : NULL;
}

Status feature_rows(const HostCall *call, const Tensor *x, int64_t *out_rows, int64_t *out_features) {
    if (!x || x->rank < 1 || x->rank > 2 || dtype_class(x->dtype) == DTYPE_OTHER)
        return host_error(call, "expected numbers of shape [N, features]");
    *out_rows = x->rank == 2 ? x->dims[0] : 1;
    *out_features = x->dims[x->rank - 1];
    return NULL;
}

const Dim *feature_row_dim(Lowering *l, const Value *x) {
    if (l->error) return NULL;
    if (x->rank == 2) return x->dims[0];
    if (x->rank == 1) return dim_const(l->dims, 1);
    invalid(l, "X has %d axes where 1 or 2 are needed", x->rank);
    return NULL;
}
