/* SPDX-License-Identifier: Apache-2.0 */
/* Steps for who reads a plan: their names, what they move and compute. */
#include "runtime/plan/plan.h"

const char *step_kind_name(StepKind kind) {
    static const char *const names[] = {"kernel", "anchor",  "host",    "move", "dims",
                                        "bind",   "resolve", "control", "copy", "device"};
    return names[kind];
}

const char *step_name(const Plan *plan, const Step *step) {
    if (step->kind == STEP_COPY) return plan->slots[step->inputs[0]].value->name;
    return attr_string(step->node, "fusion", step->node->op);
}

/* --- bytes --- */
static int64_t slot_bytes(const Plan *plan, int number, const int64_t *values) {
    const Slot *slot = number < 0 ? NULL : &plan->slots[number];
    int64_t bytes = slot && slot->bytes_expr >= 0 ? values[slot->bytes_expr] : 0;
    return bytes == UNBOUND_DIM ? 0 : bytes;
}

static bool is_first_use(const Step *step, int input) {
    for (int i = 0; i < input; i++)
        if (step->inputs[i] == step->inputs[input]) return false;
    return true;
}

int64_t step_bytes(const Plan *plan, const Step *step, const int64_t *values) {
    if (step->kind == STEP_KERNEL) return values[step->moved_expr] == UNBOUND_DIM ? 0 : values[step->moved_expr];
    if (step->kind == STEP_COPY) return slot_bytes(plan, step->outputs[0], values);
    if (step->kind == STEP_CONTROL || step->kind == STEP_BIND || step->kind == STEP_DIMS) return 0;
    int64_t bytes = 0;
    for (int i = 0; i < step->input_count; i++)
        if (is_first_use(step, i)) bytes += slot_bytes(plan, step->inputs[i], values);
    for (int o = 0; o < step->output_count; o++) bytes += slot_bytes(plan, step->outputs[o], values);
    return bytes;
}

/* --- work --- */
typedef struct Operand {
    int rank;
    const int64_t *dims;
    const int64_t *perm; /* NULL: the identity */
} Operand;

static bool operand(const Plan *plan, int number, const Node *node, const char *perm, const int64_t *values,
                    Operand *out) {
    const Slot *slot = number < 0 ? NULL : &plan->slots[number];
    int count;
    if (!slot || slot->dims_expr < 0) return false;
    *out = (Operand){slot->value->rank, values + slot->dims_expr, perm ? attr_ints(node, perm, &count) : NULL};
    for (int d = 0; d < out->rank; d++)
        if (out->dims[d] == UNBOUND_DIM) return false;
    return true;
}

/* The size of an axis, counted from the last, behind the permute. */
static double size_at(const Operand *o, int from_last) {
    int axis = o->rank - 1 - from_last;
    if (axis < 0) return 1;
    return (double)o->dims[o->perm ? o->perm[axis] : axis];
}

static double elements(const Operand *o, int first) {
    double count = 1;
    for (int d = first; d < o->rank; d++) count *= (double)o->dims[d];
    return count;
}

static double anchor_work(const Plan *plan, const Step *step, const int64_t *values) {
    const Node *node = step->node;
    Operand a, b, y;
    if (step->input_count < 2 || !operand(plan, step->outputs[0], node, NULL, values, &y)) return 0;
    if (strcmp(node->op, "matmul") == 0)
        return operand(plan, step->inputs[0], node, "perm_a", values, &a) ? 2 * elements(&y, 0) * size_at(&a, 0) : 0;
    if (strcmp(node->op, "conv") == 0)
        return operand(plan, step->inputs[1], node, NULL, values, &b) ? 2 * elements(&y, 0) * elements(&b, 1) : 0;
    if (strcmp(node->op, "conv_transpose") == 0) {
        bool known = operand(plan, step->inputs[0], node, NULL, values, &a) &&
                     operand(plan, step->inputs[1], node, NULL, values, &b);
        return known ? 2 * elements(&a, 0) * elements(&b, 1) : 0;
    }
    if (strcmp(node->op, "attention") == 0) {
        Operand v;
        bool known = operand(plan, step->inputs[0], node, "perm_q", values, &a) &&
                     operand(plan, step->inputs[1], node, "perm_k", values, &b) &&
                     operand(plan, step->inputs[2], node, "perm_v", values, &v);
        double head = known ? size_at(&v, 0) : 0, rows = head > 0 ? elements(&y, 0) / head : 0;
        return known ? 2 * rows * size_at(&b, 1) * (size_at(&a, 0) + head) : 0;
    }
    return 0;
}

int64_t step_work(const Plan *plan, const Step *step, const int64_t *values) {
    if (step->kind == STEP_KERNEL) return values[step->work_expr] == UNBOUND_DIM ? 0 : values[step->work_expr];
    double work = step->kind == STEP_ANCHOR ? anchor_work(plan, step, values) : 0;
    return work < 0x1p62 ? (int64_t)work : INT64_MAX;
}
