/* SPDX-License-Identifier: Apache-2.0 */
/* Reshape, Flatten, Squeeze, Unsqueeze, Transpose: computed shapes become constants, chains become one node. */
#include "optimize/rewrite.h"

/* The second input of a Reshape from sizes to sizes: constants, 0 where the input's size at that place stays, and at
 * most one -1. */
static bool reshape_spec(const Value *from, const Value *to, int64_t *spec) {
    int inferred = 0;
    for (int i = 0; i < to->rank; i++) {
        if (dim_is_const(to->dims[i], &spec[i])) {
            if (spec[i] == 0) return false; /* which means something else */
        } else if (i < from->rank && from->dims[i] == to->dims[i]) {
            spec[i] = 0;
        } else {
            spec[i] = -1;
            inferred++;
        }
    }
    return inferred <= 1;
}

static bool is_reshape(const Node *node) {
    static const char *const names[] = {"Reshape", "Flatten", "Squeeze", "Unsqueeze"};
    for (int i = 0; i < 4; i++)
        if (is_standard(node, names[i])) return true;
    return false;
}

static bool make_reshape(Rewrite *r, Node *node, Value *input) {
    enum { FIRST_WITH_INPUT = 5 }; /* before, the shape is an attribute */
    const Value *from = fact_of(r, input), *to = fact_of(r, node->outputs[0]);
    int64_t spec[MAX_RANK];
    if (node->opset < FIRST_WITH_INPUT || !from || !to || !reshape_spec(from, to, spec)) return false;
    Value *shape = add_ints(r, node->graph, arena_format(r->arena, "%s_shape", node->outputs[0]->name), spec, to->rank);
    node->op = "Reshape";
    node->attrs.count = 0;
    node_set_input(node, 0, input);
    node_put_input(node, 1, shape);
    return true;
}

/* A Reshape whose shape is computed, or whose input only changes the shape as well. */
static bool reshape(Rewrite *r, Node *node) {
    Value *input = node_in(node, 0), *shape = node_in(node, 1);
    if (!input) return false;
    Node *before = input->producer;
    bool chained = before && is_reshape(before) && input->uses.count == 1 && !value_is_output(input);
    if (chained && node_in(before, 0) && make_reshape(r, node, node_in(before, 0))) return true;
    return is_standard(node, "Reshape") && shape && !shape->constant && make_reshape(r, node, input);
}

static bool permutation(const Rewrite *r, const Node *node, int64_t *out_perm, int *out_rank) {
    const Value *fact = fact_of(r, node->outputs[0]);
    const int64_t *perm = attr_ints(node, "perm", out_rank);
    if (!perm && !fact) return false;
    if (!perm) *out_rank = fact->rank;
    if (*out_rank > MAX_RANK) return false;
    for (int i = 0; i < *out_rank; i++) {
        out_perm[i] = perm ? perm[i] : *out_rank - 1 - i;
        if (out_perm[i] < 0 || out_perm[i] >= *out_rank) return false;
    }
    return true;
}

static bool transpose(Rewrite *r, Node *node) {
    Value *input = node_in(node, 0);
    Node *before = input ? input->producer : NULL;
    int64_t outer[MAX_RANK], inner[MAX_RANK], both[MAX_RANK];
    int rank, inner_rank;
    if (!before || !is_standard(before, "Transpose") || !node_in(before, 0)) return false;
    if (!permutation(r, node, outer, &rank) || !permutation(r, before, inner, &inner_rank) || rank != inner_rank)
        return false;
    for (int i = 0; i < rank; i++) both[i] = inner[outer[i]];
    node_set_ints(node, "perm", both, rank);
    node_set_input(node, 0, node_in(before, 0));
    return true;
}

bool rewrite_shape(Rewrite *r, Node *node) {
    if (is_reshape(node)) return reshape(r, node);
    return is_standard(node, "Transpose") && transpose(r, node);
}
