/* SPDX-License-Identifier: Apache-2.0 */
/* Formulas that the standard has an operator for: layer normalisation (LayerNormalization-17), GELU
 * (Gelu-20), hard sigmoid and swish (HardSigmoid-6, HardSwish-14), quotients; as exporters write them out. */
#include "optimize/rewrite.h"

#include <math.h>

enum { LAYER_NORMALIZATION_SINCE = 17, GELU_SINCE = 20, HARD_SWISH_SINCE = 14 };

static double number_in(const Node *node, int index) {
    const Value *value = node_in(node, index);
    const Tensor *tensor = value ? value->constant : NULL;
    if (!tensor || tensor->dtype != DT_F32 || tensor_count(tensor) != 1) return NAN;
    return dtype_load_double(tensor->dtype, tensor->data, 0);
}

/* Constants in files are rounded to few digits at times. */
static bool is_about(double number, double expected) { return fabs(number - expected) <= 1e-4 * fabs(expected); }

/* The input of a sum or product with one number; which number through out_number. NULL when there is none. */
static Value *beside_number(const Node *node, double *out_number, int *out_index) {
    for (int i = 0; i < 2; i++) {
        *out_number = number_in(node, 1 - i);
        *out_index = i;
        if (!isnan(*out_number)) return node_in(node, i);
    }
    return NULL;
}

/* Of a version that has the operator, though the node may be of an older one. */
static void become(Node *node, const char *op, int since) {
    node->op = op;
    node->attrs.count = 0;
    if (node->opset < since) node->opset = since;
}

static void keep_one_input(Node *node, Value *x) {
    for (int i = 1; i < node->input_count; i++) node_set_input(node, i, NULL);
    node_set_input(node, 0, x);
    node->input_count = 1;
}

/* --- layer normalisation --- */

/* Whether it is a mean over the last axis that keeps it. */
static bool is_mean_of_rows(const Rewrite *r, const Node *mean) {
    const Value *fact = fact_of(r, node_in(mean, 0));
    int count = 0;
    const int64_t *axes = attr_ints(mean, "axes", &count);
    const Value *given = node_in(mean, 1);
    if (given && given->constant && given->constant->dtype == DT_I64) {
        axes = given->constant->data;
        count = (int)tensor_count(given->constant);
    }
    return fact && fact->dtype == DT_F32 && axes && count == 1 && attr_int(mean, "keepdims", 1) &&
           (axes[0] == -1 || axes[0] == fact->rank - 1);
}

/* d = x - mean(x); the node is the one that makes d. NULL when it is not that. */
static Value *centred(const Rewrite *r, const Node *sub) {
    const Node *mean = sole_producer(sub, 1, "ReduceMean");
    return mean && is_mean_of_rows(r, mean) && node_in(mean, 0) == node_in(sub, 0) ? node_in(sub, 0) : NULL;
}

/* mean(d * d) + epsilon, as the root's input. */
static bool is_variance_of(const Rewrite *r, const Node *root, const Value *d, double *out_epsilon) {
    const Node *sum = sole_producer(root, 0, "Add");
    int index;
    if (!sum || !beside_number(sum, out_epsilon, &index)) return false;
    const Node *mean = sole_producer(sum, index, "ReduceMean");
    if (!mean || !is_mean_of_rows(r, mean)) return false;
    const Node *power = sole_producer(mean, 0, "Pow"), *product = sole_producer(mean, 0, "Mul");
    if (power) return d->uses.count == 2 && node_in(power, 0) == d && number_in(power, 1) == 2;
    return product && d->uses.count == 3 && node_in(product, 0) == d && node_in(product, 1) == d;
}

static bool is_row(const Rewrite *r, const Value *value, const Value *x) {
    const Value *fact = fact_of(r, value), *rows = fact_of(r, x);
    int64_t size, length;
    return fact && rows && fact->dtype == DT_F32 && fact->rank == 1 && rows->rank > 0 &&
           dim_is_const(fact->dims[0], &size) && dim_is_const(rows->dims[rows->rank - 1], &length) && size == length;
}

/* d / sqrt(mean(d * d) + epsilon) * scale; the node is the product. */
static bool layer_normalization(Rewrite *r, Node *node) {
    for (int i = 0; i < 2; i++) {
        const Node *quotient = sole_producer(node, i, "Div");
        const Node *root = quotient ? sole_producer(quotient, 1, "Sqrt") : NULL;
        const Value *d = root ? node_in(quotient, 0) : NULL;
        double epsilon;
        if (!d || !d->producer || !is_standard(d->producer, "Sub") || value_is_output(d)) continue;
        Value *x = centred(r, d->producer), *scale = node_in(node, 1 - i);
        if (!x || !is_variance_of(r, root, d, &epsilon) || !is_row(r, scale, x)) continue;
        become(node, "LayerNormalization", LAYER_NORMALIZATION_SINCE);
        node_set_int(node, "axis", -1);
        node_set_float(node, "epsilon", epsilon);
        node_set_input(node, 0, x);
        node_set_input(node, 1, scale);
        return true;
    }
    return false;
}

static bool layer_normalization_bias(Rewrite *r, Node *add) {
    for (int i = 0; i < 2; i++) {
        Node *before = sole_producer(add, i, "LayerNormalization");
        Value *bias = node_in(add, 1 - i);
        if (!before || node_in(before, 2) || before->output_count > 1 || attr_int(before, "axis", -1) != -1) continue;
        if (!is_row(r, bias, node_in(before, 0)) || !is_row(r, node_in(before, 1), node_in(before, 0))) continue;
        become(add, before->op, before->opset);
        for (int k = 0; k < before->attrs.count; k++) node_set_attr(add, before->attrs.items[k]);
        node_set_input(add, 0, node_in(before, 0));
        node_set_input(add, 1, node_in(before, 1));
        node_put_input(add, 2, bias);
        return true;
    }
    return false;
}

/* --- GELU --- */

/* The factors of a product of products. */
typedef struct Factors {
    Value *values[3];
    int count;
    int products; /* that are gone into: three have four factors */
} Factors;

static bool collect(const Node *product, Factors *f) {
    if (++f->products > 2) return false;
    for (int i = 0; i < 2; i++) {
        const Node *inner = sole_producer(product, i, "Mul");
        if (inner && f->count < 2) {
            if (!collect(inner, f)) return false;
        } else if (f->count == 3) {
            return false;
        } else {
            f->values[f->count++] = node_in(product, i);
        }
    }
    return true;
}

/* erf(x / sqrt(2)) */
static bool is_erf_of(const Node *erf, const Value *x) {
    const Node *quotient = sole_producer(erf, 0, "Div"), *product = sole_producer(erf, 0, "Mul");
    double number;
    int index;
    if (quotient) return node_in(quotient, 0) == x && is_about(number_in(quotient, 1), sqrt(2));
    return product && beside_number(product, &number, &index) == x && is_about(number, sqrt(0.5));
}

static bool is_cube_of(const Node *node, int input, const Value *x) {
    const Node *power = sole_producer(node, input, "Pow"), *product = sole_producer(node, input, "Mul");
    if (power) return node_in(power, 0) == x && number_in(power, 1) == 3;
    for (int i = 0; product && i < 2; i++) {
        const Node *square = sole_producer(product, i, "Mul"), *two = sole_producer(product, i, "Pow");
        if (node_in(product, 1 - i) != x) continue;
        if (square && node_in(square, 0) == x && node_in(square, 1) == x) return true;
        if (two && node_in(two, 0) == x && number_in(two, 1) == 2) return true;
    }
    return false;
}

/* tanh(sqrt(2 / pi) * (x + 0.044715 * x^3)) */
static bool is_tanh_of(const Node *tanh, const Value *x) {
    const Node *scaled = sole_producer(tanh, 0, "Mul");
    double number;
    int index;
    if (!scaled || !beside_number(scaled, &number, &index) || !is_about(number, sqrt(2 / M_PI))) return false;
    const Node *sum = sole_producer(scaled, index, "Add");
    for (int i = 0; sum && i < 2; i++) {
        const Node *cubic = sole_producer(sum, i, "Mul");
        if (!cubic || node_in(sum, 1 - i) != x || !beside_number(cubic, &number, &index)) continue;
        if (is_about(number, 0.044715) && is_cube_of(cubic, index, x)) return true;
    }
    return false;
}

/* x * 0.5 * (1 + f), in any order. */
static bool gelu(Rewrite *r, Node *node) {
    Factors f = {0};
    if (!may_become(r, node, GELU_SINCE) || !collect(node, &f) || f.count != 3) return false;
    for (int half = 0; half < 3; half++) {
        const Tensor *number = f.values[half] ? f.values[half]->constant : NULL;
        if (!number || number->dtype != DT_F32 || tensor_count(number) != 1 || *(const float *)number->data != 0.5F)
            continue;
        for (int k = 0; k < 2; k++) {
            Value *x = f.values[(half + 1 + k) % 3], *factor = f.values[(half + 2 - k) % 3];
            const Value *fact = fact_of(r, x), *result = fact_of(r, node->outputs[0]);
            const Node *sum = factor ? factor->producer : NULL;
            double one;
            int index;
            if (!fact || !result || fact->dtype != DT_F32 || fact->rank != result->rank) continue;
            if (!sum || !is_standard(sum, "Add") || factor->uses.count != 1 || value_is_output(factor)) continue;
            if (!beside_number(sum, &one, &index) || one != 1) continue;
            const Node *erf = sole_producer(sum, index, "Erf"), *tanh = sole_producer(sum, index, "Tanh");
            if (!(erf && is_erf_of(erf, x)) && !(tanh && is_tanh_of(tanh, x))) continue;
            become(node, "Gelu", GELU_SINCE);
            node_set_string(node, "approximate", erf ? "none" : "tanh");
            keep_one_input(node, x);
            return true;
        }
    }
    return false;
}

/* --- hard sigmoid and hard swish
 * -------------------------------------------------------------------------------------- */

static double bound_of(const Node *clip, int input, const char *attr) {
    return clip->opset < 11 ? attr_float(clip, attr, NAN) : number_in(clip, input);
}

/* clip(x + 3, 0, 6), six times a hard sigmoid; the x. */
static Value *clipped(const Node *clip) {
    double number;
    int index;
    const Node *sum = sole_producer(clip, 0, "Add");
    if (!sum || bound_of(clip, 1, "min") != 0 || bound_of(clip, 2, "max") != 6) return NULL;
    Value *x = beside_number(sum, &number, &index);
    return x && number == 3 ? x : NULL;
}

static void become_hard_sigmoid(Node *node, Value *x) {
    node->op = "HardSigmoid";
    node->attrs.count = 0;
    node_set_float(node, "alpha", 1.0 / 6);
    node_set_float(node, "beta", 0.5);
    keep_one_input(node, x);
}

static bool become_hard_swish(const Rewrite *r, Node *node, Node *clip, Value *x) {
    node->attrs.count = 0;
    if (may_become(r, node, HARD_SWISH_SINCE)) {
        become(node, "HardSwish", HARD_SWISH_SINCE);
        keep_one_input(node, x);
        return true;
    }
    become_hard_sigmoid(clip, x);
    node->op = "Mul";
    node_set_input(node, 0, x);
    node_set_input(node, 1, clip->outputs[0]);
    return true;
}

/* A sixth of clip(x + 3, 0, 6), or of x times that. */
static bool hard(Rewrite *r, Node *node) {
    double number;
    int index = 0;
    if (is_standard(node, "Div"))
        number = 1 / number_in(node, 1);
    else if (!beside_number(node, &number, &index))
        return false;
    const Value *result = fact_of(r, node->outputs[0]);
    if (!(fabs(number - 1.0 / 6) < 1e-7) || !result || result->dtype != DT_F32) return false;
    Node *clip = sole_producer(node, index, "Clip");
    const Node *product = sole_producer(node, index, "Mul");
    Value *x = clip ? clipped(clip) : NULL;
    const Value *fact = fact_of(r, x);
    if (x && fact && fact->rank == result->rank) {
        become_hard_sigmoid(node, x);
        return true;
    }
    for (int i = 0; product && i < 2; i++) {
        clip = sole_producer(product, i, "Clip");
        x = clip ? clipped(clip) : NULL;
        fact = fact_of(r, x);
        if (x && x == node_in(product, 1 - i) && fact && fact->rank == result->rank)
            return become_hard_swish(r, node, clip, x);
    }
    return false;
}

/* x * (1 / v) */
static bool quotient(Node *node) {
    for (int i = 0; i < 2; i++) {
        const Node *reciprocal = sole_producer(node, i, "Reciprocal");
        if (!reciprocal || !node_in(reciprocal, 0) || !node_in(node, 1 - i)) continue;
        node->op = "Div";
        node_set_input(node, 0, node_in(node, 1 - i));
        node_set_input(node, 1, node_in(reciprocal, 0));
        return true;
    }
    return false;
}

bool rewrite_formula(Rewrite *r, Node *node) {
    bool product = is_standard(node, "Mul");
    if ((product || is_standard(node, "Div")) && node->opset >= 7 && hard(r, node)) return true;
    if (product && node->opset >= 7 && quotient(node)) return true;
    if (!may_become(r, node, LAYER_NORMALIZATION_SINCE)) return false;
    if (product) return layer_normalization(r, node) || gelu(r, node);
    return is_standard(node, "Add") && layer_normalization_bias(r, node);
}
