/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/plan/cost.h"

#include "lowering/anchor/anchor_cost.h"

static bool value_bytes(const Value *value, const int64_t *symbols, double *out_bytes) {
    double count;
    if (value->kind != VALUE_TENSOR || value->dtype == DT_STRING || !value_count(value, symbols, &count)) return false;
    *out_bytes = count * (double)dtype_size(value->dtype);
    return true;
}

static bool is_first_use(const Node *node, int input) {
    for (int i = 0; i < input; i++)
        if (node->inputs[i] == node->inputs[input]) return false;
    return true;
}

static bool host_cost(const Node *node, const int64_t *symbols, Cost *cost) {
    double bytes;
    for (int i = 0; i < node->input_count; i++) {
        if (!node->inputs[i] || !is_first_use(node, i)) continue;
        if (!value_bytes(node->inputs[i], symbols, &bytes)) return false;
        cost_add_read(cost, node->inputs[i], bytes);
    }
    for (int o = 0; o < node->output_count; o++) {
        if (!node->outputs[o]) continue;
        if (!value_bytes(node->outputs[o], symbols, &bytes)) return false;
        cost->written += bytes;
    }
    return true;
}

static bool copy_cost(const Plan *plan, const Step *step, const int64_t *symbols, Cost *cost) {
    const Value *value = plan->slots[step->inputs[0]].value;
    if (!value_bytes(value, symbols, &cost->written)) return false;
    cost_add_read(cost, value, cost->written);
    return true;
}

static bool own_cost(const Plan *plan, const Step *step, const int64_t *symbols, Cost *out_cost) {
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

/* The step that runs within this one at these sizes, and the bytes that stand between the two. */
static const Step *prologue_at(const Plan *plan, const Step *step, const int64_t *symbols, double *out_bytes) {
    const Value *value = step->prologue < 0 ? NULL : step->node->inputs[0];
    Tensor between = {.dtype = value ? value->dtype : DT_NONE, .rank = value ? value->rank : 0};
    for (int d = 0; d < between.rank; d++)
        if ((between.dims[d] = dim_eval(value->dims[d], symbols)) == UNBOUND_DIM) return NULL;
    *out_bytes = value ? (double)tensor_bytes(&between) : 0;
    return value ? plan_prologue(plan, step, &between) : NULL;
}

bool step_cost(const Plan *plan, const Step *step, const int64_t *symbols, Cost *out_cost) {
    double between;
    Cost before;
    const Step *prologue = prologue_at(plan, step, symbols, &between);
    bool known = own_cost(plan, step, symbols, out_cost);
    if (step->within >= 0 && prologue_at(plan, &plan->steps[step->within], symbols, &between)) *out_cost = (Cost){0};
    if (!known || !prologue || !own_cost(plan, prologue, symbols, &before)) return known;
    before.written -= between;
    out_cost->read -= between;
    cost_add(out_cost, &before);
    return true;
}
