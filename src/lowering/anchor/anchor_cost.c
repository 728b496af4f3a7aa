/* SPDX-License-Identifier: Apache-2.0 */
#include "lowering/anchor/anchor_cost.h"

#include <string.h>
#include "lowering/anchors.h"

typedef struct Operand {
    int rank;
    double dims[MAX_RANK]; /* behind the permute */
} Operand;

static bool operand(const Value *value, const Node *node, const char *perm, const int64_t *symbols, Operand *out) {
    int count = 0;
    const int64_t *order = perm ? attr_ints(node, perm, &count) : NULL;
    if (!value || value->rank < 0 || (order && count != value->rank)) return false;
    out->rank = value->rank;
    for (int d = 0; d < value->rank; d++) {
        int64_t size = dim_eval(value->dims[order ? order[d] : d], symbols);
        if (size == UNBOUND_DIM) return false;
        out->dims[d] = (double)size;
    }
    return true;
}

static double size_at(const Operand *o, int from_last) {
    int axis = o->rank - 1 - from_last;
    return axis < 0 ? 1 : o->dims[axis];
}

static double product(const Operand *o, int first) {
    double count = 1;
    for (int d = first; d < o->rank; d++) count *= o->dims[d];
    return count;
}

/* Additions and multiplications of the products themselves. */
static bool products_of(const Node *node, const int64_t *symbols, double *out_work) {
    Operand a, b, v, y;
    if (node->input_count < 2 || !operand(node->outputs[0], node, NULL, symbols, &y)) return false;
    if (strcmp(node->op, "matmul") == 0 || strcmp(node->op, MATMUL_BITS) == 0 || strcmp(node->op, MATMUL_BLOCKS) == 0 ||
        strcmp(node->op, MATMUL_GROUPED) == 0) {
        if (!operand(node->inputs[0], node, "perm_a", symbols, &a)) return false;
        *out_work = 2 * product(&y, 0) * size_at(&a, 0);
        return true;
    }
    bool backward = strcmp(node->op, ATTENTION_BACKWARD) == 0;
    if (backward || strcmp(node->op, ATTENTION) == 0) {
        if (node->input_count < 3 || !operand(node->inputs[0], node, "perm_q", symbols, &a) ||
            !operand(node->inputs[1], node, "perm_k", symbols, &b) ||
            !operand(node->inputs[2], node, "perm_v", symbols, &v))
            return false;
        double head = size_at(backward ? &a : &v, 0), rows = head > 0 ? product(&y, 0) / head : 0;
        /* scores and the result; scores again, their gradient, and three more */
        *out_work =
            2 * rows * size_at(&b, 1) * ((backward ? 3 : 1) * size_at(&a, 0) + (backward ? 2 : 1) * size_at(&v, 0));
        return true;
    }
    bool transposed = strcmp(node->op, "conv_transpose") == 0;
    if (!operand(node->inputs[0], node, "perm_x", symbols, &a) ||
        !operand(node->inputs[1], node, "perm_w", symbols, &b))
        return false;
    *out_work = 2 * product(transposed ? &a : &y, 0) * product(&b, 1);
    return true;
}

/* The part of a convolution's input that some tap meets: strides beyond the kernel leave positions out. */
static double part_met(const Node *node, const int64_t *symbols) {
    Operand x, w, y;
    double part = 1;
    if (strcmp(node->op, "conv") != 0 || !operand(node->inputs[0], node, "perm_x", symbols, &x) ||
        !operand(node->inputs[1], node, "perm_w", symbols, &w) || !operand(node->outputs[0], node, NULL, symbols, &y))
        return 1;
    for (int d = 1; d + 1 < x.rank; d++) {
        double met = y.dims[d] * w.dims[d + 1];
        if (met < x.dims[d]) part *= met / x.dims[d];
    }
    return part;
}

/* The part of a weight that is read: of matrices in groups no more than there are rows. */
static double part_of_weight(const Node *node, const int64_t *symbols) {
    Operand b, rows;
    if (strcmp(node->op, MATMUL_GROUPED) != 0 || !operand(node->inputs[1], node, NULL, symbols, &b) ||
        !operand(node->inputs[2], node, NULL, symbols, &rows))
        return 1;
    double count = product(&rows, 0);
    return count < b.dims[0] ? count / b.dims[0] : 1;
}

static double bytes_of(const Value *value, double count) { return count * (double)dtype_size(value->dtype); }

bool anchor_cost(const Node *node, const int64_t *symbols, double weight_bytes, Cost *out_cost) {
    double work, count;
    *out_cost = (Cost){0};
    if (!products_of(node, symbols, &work)) return false;
    for (int i = 0; i < node->input_count; i++) {
        bool again = false;
        for (int k = 0; k < i; k++) again |= node->inputs[k] == node->inputs[i];
        if (again || !node->inputs[i]) continue;
        if (!value_count(node->inputs[i], symbols, &count)) return false;
        double bytes = bytes_of(node->inputs[i], count);
        if (i == 0) bytes *= part_met(node, symbols);
        if (i == 1 && weight_bytes > 0 && weight_bytes < bytes) bytes = weight_bytes;
        if (i == 1) bytes *= part_of_weight(node, symbols);
        cost_add_read(out_cost, node->inputs[i], bytes);
    }
    for (int o = 0; o < node->output_count; o++) {
        if (!node->outputs[o]) continue;
        if (!value_count(node->outputs[o], symbols, &count)) return false;
        out_cost->written += bytes_of(node->outputs[o], count);
    }
    out_cost->products[product_type(node->inputs[0]->dtype)] = work;
    return !node_has_body(node) || body_work(node->subgraphs[0], symbols, out_cost);
}
