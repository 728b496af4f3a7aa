/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/plan/cost.h"

#include "lowering/anchor/anchor_cost.h"

static bool add_value(const Value *value, const int64_t *symbols, double *bytes) {
    double count;
    if (value->kind != VALUE_TENSOR || value->dtype == DT_STRING || !value_count(value, symbols, &count)) return false;
    *bytes += count * (double)dtype_size(value->dtype);
    return true;
}

static bool is_first_use(const Node *node, int input) {
    for (int i = 0; i < input; i++)
        if (node->inputs[i] == node->inputs[input]) return false;
    return true;
}

static bool host_cost(const Node *node, const int64_t *symbols, Cost *cost) {
    bool known = true;
    for (int i = 0; i < node->input_count; i++)
        if (node->inputs[i] && is_first_use(node, i)) known &= add_value(node->inputs[i], symbols, &cost->read);
    for (int o = 0; o < node->output_count; o++)
        if (node->outputs[o]) known &= add_value(node->outputs[o], symbols, &cost->written);
    return known;
}

static bool copy_cost(const Plan *plan, const Step *step, const int64_t *symbols, Cost *cost) {
    if (!add_value(plan->slots[step->inputs[0]].value, symbols, &cost->read)) return false;
    cost->written = cost->read;
    return true;
}

bool step_cost(const Plan *plan, const Step *step, const int64_t *symbols, Cost *out_cost) {
    bool known = true;
    *out_cost = (Cost){0};
    switch (step->kind) {
    case STEP_KERNEL: known = region_cost(step->node, symbols, out_cost); break;
    case STEP_ANCHOR:
        known = anchor_cost(step->node, symbols, (double)step->on->table->anchor_bytes(step->anchor), out_cost);
        break;
    case STEP_PRIM: known = prim_cost(step->node, symbols, out_cost); break;
    case STEP_COPY: known = copy_cost(plan, step, symbols, out_cost); break;
    case STEP_HOST:
    case STEP_DEVICE:
    case STEP_RESOLVE: known = host_cost(step->node, symbols, out_cost); break;
    default: break; /* sizes, and what nested plans do themselves */
    }
    if (!known) *out_cost = (Cost){0};
    return known;
}
