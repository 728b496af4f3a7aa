/* SPDX-License-Identifier: Apache-2.0 */
/* SVMRegressor and SVMClassifier: host kernels in double precision, after LIBSVM (C. Chang, C. Lin, "LIBSVM: a library
 * for support vector machines", 2011) and LIBLINEAR, whose models they are. */
#include "ops/ml/svm.h"

#include <math.h>

#include "ops/ml/class_scores.h"

typedef enum Kernel { KERNEL_LINEAR, KERNEL_POLY, KERNEL_RBF, KERNEL_SIGMOID } Kernel;

typedef struct Machine {
    Kernel kernel;
    double gamma, coef0, degree;
    const float *vectors, *coefficients, *rho, *prob_a, *prob_b;
    int vector_values, coefficient_count, rho_count, prob_a_count, prob_b_count;
    const int64_t *per_class;
    int per_class_count;
    int64_t vector_count, features; /* vector_count 0: a linear model, one row of coefficients a class */
    PostTransform post;
} Machine;

static Status read_kernel(const HostCall *call, Machine *m) {
    static const char *const names[] = {"LINEAR", "POLY", "RBF", "SIGMOID"};
    const char *name = attr_string(call->node, "kernel_type", "LINEAR");
    int k = 0, count;
    while (k < 4 && strcmp(names[k], name) != 0) k++;
    if (k == 4) return host_error(call, "kernel_type \"%s\"", name);
    m->kernel = (Kernel)k;
    const float *params = attr_floats(call->node, "kernel_params", &count);
    m->gamma = count > 0 ? params[0] : 0;
    m->coef0 = count > 1 ? params[1] : 0;
    m->degree = count > 2 ? params[2] : 0;
    return NULL;
}

static Status read_machine(const HostCall *call, int64_t features, int64_t vector_count, Machine *m) {
    const Node *n = call->node;
    TRY(read_kernel(call, m));
    m->features = features;
    m->vector_count = vector_count;
    m->vectors = attr_floats(n, "support_vectors", &m->vector_values);
    m->coefficients = attr_floats(n, "coefficients", &m->coefficient_count);
    m->rho = attr_floats(n, "rho", &m->rho_count);
    m->prob_a = attr_floats(n, "prob_a", &m->prob_a_count);
    m->prob_b = attr_floats(n, "prob_b", &m->prob_b_count);
    if (!post_transform_from_name(attr_string(n, "post_transform", "NONE"), &m->post))
        return host_error(call, "a bad post_transform");
    if (m->rho_count < 1) return host_error(call, "rho is missing");
    int64_t needed;
    if (__builtin_mul_overflow(vector_count, features, &needed) || m->vector_values != needed)
        return host_error(call, "%d numbers of support vectors where %lld vectors of %lld are needed", m->vector_values,
                          (long long)vector_count, (long long)features);
    if (vector_count == 0) m->kernel = KERNEL_LINEAR;
    return NULL;
}

static double kernel_of(const Machine *m, const double *x, const float *vector) {
    double dot = 0;
    for (int64_t i = 0; i < m->features; i++) {
        double d = x[i] - vector[i];
        dot += m->kernel == KERNEL_RBF ? d * d : x[i] * vector[i];
    }
    switch (m->kernel) {
    case KERNEL_LINEAR: return dot;
    case KERNEL_POLY: return pow(m->gamma * dot + m->coef0, m->degree);
    case KERNEL_RBF: return exp(-m->gamma * dot);
    case KERNEL_SIGMOID: return tanh(m->gamma * dot + m->coef0);
    }
    return dot;
}

static void load_row(const Tensor *x, int64_t row, int64_t features, double *out) {
    for (int64_t i = 0; i < features; i++) out[i] = dtype_load_double(x->dtype, x->data, row * features + i);
}

/* ---- regression ---- */

Status host_svm_regressor(HostCall *call) {
    const Tensor *x = host_input(call, 0);
    int64_t rows, features, supports = attr_int(call->node, "n_supports", 0);
    Machine m = {0};
    TRY(feature_rows(call, x, &rows, &features));
    if (supports < 0) return host_error(call, "n_supports is %lld", (long long)supports);
    TRY(read_machine(call, features, supports, &m));
    if (m.coefficient_count != (supports ? supports : features))
        return host_error(call, "%d coefficients", m.coefficient_count);
    bool one_class = attr_int(call->node, "one_class", 0) != 0;
    double *row = ARENA_ARRAY(call->arena, double, features);
    int64_t dims[] = {rows, 1};
    Tensor *y;
    TRY(host_output(call, 0, DT_F32, 2, dims, &y));
    for (int64_t r = 0; y && r < rows; r++) {
        load_row(x, r, features, row);
        double sum = m.rho[0];
        for (int64_t j = 0; j < supports; j++) sum += m.coefficients[j] * kernel_of(&m, row, m.vectors + j * features);
        if (!supports) sum += kernel_of(&m, row, m.coefficients);
        if (one_class) sum = sum > 0 ? 1 : -1;
        apply_post_transform(m.post, &sum, 1);
        ((float *)y->data)[r] = (float)sum;
    }
    return NULL;
}

Status lower_svm_regressor(Lowering *l, const Node *n) {
    Value *x = in(l, n, 0);
    const Dim *rows = x ? feature_row_dim(l, x) : NULL;
    if (!rows) return l->error;
    const Dim *dims[] = {rows, dim_const(l->dims, 1)};
    Node *host = host_node(l, n, host_svm_regressor, &x, 1);
    return host ? out(l, n, 0, host_result(l, host, DT_F32, 2, dims)) : l->error;
}

/* ---- classification ---- */

/* One against one: a decision for each pair of classes i < j, and the votes that they come to. */
static void decide_pairs(const Machine *m, int64_t classes, const double *kernels, double *decisions, double *votes) {
    int64_t pair = 0, start_i = 0;
    for (int64_t i = 0; i < classes; i++) votes[i] = 0;
    for (int64_t i = 0; i < classes; start_i += m->per_class[i++]) {
        int64_t start_j = start_i + m->per_class[i];
        for (int64_t j = i + 1; j < classes; start_j += m->per_class[j++], pair++) {
            double sum = m->rho[pair];
            for (int64_t k = 0; k < m->per_class[i]; k++)
                sum += m->coefficients[(j - 1) * m->vector_count + start_i + k] * kernels[start_i + k];
            for (int64_t k = 0; k < m->per_class[j]; k++)
                sum += m->coefficients[i * m->vector_count + start_j + k] * kernels[start_j + k];
            decisions[pair] = sum;
            votes[sum > 0 ? i : j]++;
        }
    }
}

/* Class probabilities from those of the pairs, p[i][j]: Wu, Lin, Weng, "Probability estimates for multi-class
 * classification by pairwise coupling", 2004, second approach. q, qp: scratch of classes^2 and classes. */
static void couple_pairs(int64_t k, const double *p, double *q, double *qp, double *out) {
    double epsilon = 0.005 / (double)k;
    for (int64_t t = 0; t < k; t++) {
        out[t] = 1.0 / (double)k;
        q[t * k + t] = 0;
        for (int64_t j = 0; j < k; j++) {
            if (j == t) continue;
            q[t * k + t] += p[j * k + t] * p[j * k + t];
            q[t * k + j] = -p[j * k + t] * p[t * k + j];
        }
    }
    for (int round = 0; round < (k > 100 ? k : 100); round++) {
        double total = 0, error = 0;
        for (int64_t t = 0; t < k; t++) {
            qp[t] = 0;
            for (int64_t j = 0; j < k; j++) qp[t] += q[t * k + j] * out[j];
            total += out[t] * qp[t];
        }
        for (int64_t t = 0; t < k; t++) error = fmax(error, fabs(qp[t] - total));
        if (error < epsilon) break;
        for (int64_t t = 0; t < k; t++) {
            double diff = (total - qp[t]) / q[t * k + t];
            out[t] += diff;
            total = (total + diff * (diff * q[t * k + t] + 2 * qp[t])) / ((1 + diff) * (1 + diff));
            for (int64_t j = 0; j < k; j++) {
                qp[j] = (qp[j] + diff * q[t * k + j]) / (1 + diff);
                out[j] /= 1 + diff;
            }
        }
    }
}

static void probabilities(const Machine *m, int64_t classes, const double *decisions, double *pairs, double *scratch,
                          double *out) {
    int64_t pair = 0;
    for (int64_t i = 0; i < classes; i++)
        for (int64_t j = i + 1; j < classes; j++, pair++) {
            double p = 1 / (1 + exp(decisions[pair] * m->prob_a[pair] + m->prob_b[pair]));
            p = fmin(fmax(p, 1e-7), 1 - 1e-7);
            pairs[i * classes + j] = p;
            pairs[j * classes + i] = 1 - p;
        }
    couple_pairs(classes, pairs, scratch, scratch + classes * classes, out);
}

typedef struct Classes {
    Labels labels;
    int64_t count, pairs;
    bool linear, has_probabilities;
} Classes;

static Status read_classes(const HostCall *call, int64_t features, Machine *m, Classes *c) {
    c->labels = read_labels(call->node);
    c->count = c->labels.count > 1 ? c->labels.count : 1;
    m->per_class = attr_ints(call->node, "vectors_per_class", &m->per_class_count);
    int64_t vectors = 0;
    for (int i = 0; i < m->per_class_count; i++)
        if (m->per_class[i] < 0 || __builtin_add_overflow(vectors, m->per_class[i], &vectors))
            return host_error(call, "vectors_per_class holds %lld", (long long)m->per_class[i]);
    TRY(read_machine(call, features, vectors, m));
    c->linear = vectors == 0;
    c->pairs = c->count * (c->count - 1) / 2;
    c->has_probabilities = !c->linear && m->prob_a_count > 0;
    int64_t needed = c->linear ? c->count * features : (c->count - 1) * vectors;
    if (m->coefficient_count < needed)
        return host_error(call, "%d coefficients where %lld are needed", m->coefficient_count, (long long)needed);
    if (!c->linear && (m->per_class_count != c->count || m->rho_count < c->pairs))
        return host_error(call, "its lists do not fit %lld classes", (long long)c->count);
    if (c->has_probabilities && (m->prob_a_count < c->pairs || m->prob_b_count < c->pairs))
        return host_error(call, "prob_a and prob_b are too short");
    return NULL;
}

/* Columns of the scores: the classes' probabilities or linear scores, or the pairs' decisions; one of two classes is
 * written as two. */
static int64_t score_columns(const Classes *c) {
    int64_t raw = c->linear || c->has_probabilities ? c->count : c->pairs;
    return raw == 1 && c->labels.count == 2 ? 2 : raw;
}

/* The class of a row, by votes or by scores; with one score and no two labels its sign. */
static int64_t choose_class(const Classes *c, const Machine *m, const double *scores, int64_t raw,
                            const double *votes) {
    const double *by = votes ? votes : scores;
    int64_t count = votes ? c->count : raw, best = 0;
    for (int64_t i = 1; i < count; i++)
        if (by[i] > by[best]) best = i;
    if (m->rho_count != 1 || c->labels.count == 2) return best;
    return by[best] > 0 ? 1 : 0;
}

Status host_svm_classifier(HostCall *call) {
    const Tensor *x = host_input(call, 0);
    int64_t rows, features;
    Machine m = {0};
    Classes c = {0};
    TRY(feature_rows(call, x, &rows, &features));
    TRY(read_classes(call, features, &m, &c));
    int64_t columns = score_columns(&c), widest = c.pairs > c.count ? c.pairs : c.count, dims[] = {rows, columns};
    double *row = ARENA_ARRAY(call->arena, double, features),
           *kernels = ARENA_ARRAY(call->arena, double, m.vector_count);
    double *decisions = ARENA_ARRAY(call->arena, double, widest + 1),
           *votes = ARENA_ARRAY(call->arena, double, c.count);
    double *classes = ARENA_ARRAY(call->arena, double, c.count + 1),
           *pairs = ARENA_ARRAY(call->arena, double, c.count *c.count);
    double *scratch = ARENA_ARRAY(call->arena, double, c.count *(c.count + 1));
    Tensor *labels, *scores;
    TRY(host_output(call, 0, labels_dtype(&c.labels), 1, dims, &labels));
    TRY(host_output(call, 1, DT_F32, 2, dims, &scores));
    for (int64_t r = 0; r < rows; r++) {
        load_row(x, r, features, row);
        double *raw = decisions;
        int64_t raw_count = c.linear ? c.count : c.pairs;
        for (int64_t k = 0; c.linear && k < c.count; k++)
            decisions[k] = m.rho[0] + kernel_of(&m, row, m.coefficients + k * features);
        for (int64_t j = 0; j < m.vector_count; j++) kernels[j] = kernel_of(&m, row, m.vectors + j * features);
        if (!c.linear) decide_pairs(&m, c.count, kernels, decisions, votes);
        if (c.has_probabilities) {
            probabilities(&m, c.count, decisions, pairs, scratch, classes);
            raw = classes;
            raw_count = c.count;
        }
        store_label(&c.labels, labels, r, choose_class(&c, &m, raw, raw_count, c.linear ? NULL : votes));
        if (columns != raw_count)
            write_binary_scores(m.post, m.post != POST_NONE, raw[0], raw);
        else
            apply_post_transform(m.post, raw, raw_count);
        for (int64_t i = 0; scores && i < columns; i++) ((float *)scores->data)[r * columns + i] = (float)raw[i];
    }
    return NULL;
}

Status lower_svm_classifier(Lowering *l, const Node *n) {
    Value *x = in(l, n, 0);
    const Dim *rows = x ? feature_row_dim(l, x) : NULL;
    if (!rows) return l->error;
    Classes c = {.labels = read_labels(n)};
    int per_class, probabilities_given;
    const int64_t *counts = attr_ints(n, "vectors_per_class", &per_class);
    attr_floats(n, "prob_a", &probabilities_given);
    c.linear = true;
    for (int i = 0; i < per_class; i++) c.linear &= counts[i] == 0;
    c.count = c.labels.count > 1 ? c.labels.count : 1;
    c.pairs = c.count * (c.count - 1) / 2;
    c.has_probabilities = !c.linear && probabilities_given > 0;
    read_post_transform(l, n);
    const Dim *dims[] = {rows, dim_const(l->dims, score_columns(&c))};
    Node *host = host_node(l, n, host_svm_classifier, &x, 1);
    if (!host) return l->error;
    Value *results[] = {host_result(l, host, labels_dtype(&c.labels), 1, dims), host_result(l, host, DT_F32, 2, dims)};
    for (int i = 0; i < 2; i++)
        if (wants_output(n, i)) TRY(out(l, n, i, results[i]));
    return l->error;
}
