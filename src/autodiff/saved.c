/* SPDX-License-Identifier: Apache-2.0 */
/* What a partitioned graph keeps from its forward pass for its backward one. A step is of the backward pass where all it computes is. */
#include "autodiff/autodiff.h"

#include "graph/cost.h"
#include "lowering/sizes.h"

static Value *stored_as(Value *v) { /* a reshape shares its input's memory */
    while (v->producer && v->producer->kind == NODE_PRIM && v->producer->prim == PRIM_RESHAPE)
        v = v->producer->inputs[0];
    return v;
}

/* Of a region's or an epilogue's results each by what computes it. */
bool is_of_forward_pass(const Value *v) {
    const Node *node = v->producer;
    if (!node) return false; /* the caller's, or a constant */
    if (!node_has_body(node)) return !node->backward;
    const Node *inner = node->subgraphs[0]->outputs.items[v->output_index]->producer;
    return inner ? !inner->backward : !node->backward;
}

static int count_repeated(const Graph *body) {
    int count = 0;
    FOR_EACH_NODE(node, body) count += node->repeats;
    return count;
}

Saved saved_by(const Graph *graph, const Policy *policy, Arena *arena) {
    Saved saved = {0};
    Map seen = map_make(arena);
    const int64_t *sizes = hinted_sizes(graph, policy, arena);
    FOR_EACH_NODE(node, graph) {
        saved.repeated += node->repeats;
        if (node_has_body(node)) saved.repeated += count_repeated(node->subgraphs[0]);
        if (!node->backward) continue;
        saved.any = true;
        for (int i = 0; i < node->input_count; i++) {
            Value *v = node->inputs[i] ? stored_as(node->inputs[i]) : NULL;
            double count;
            if (!v || !is_of_forward_pass(v) || value_is_output(v) || map_get_id(&seen, MAP_POINTER_KEY(v))) continue;
            map_set_id(&seen, MAP_POINTER_KEY(v), v);
            if (value_count(v, sizes, &count)) saved.bytes += count * (double)dtype_size(v->dtype);
            saved.values++;
        }
    }
    return saved;
}
