/* SPDX-License-Identifier: Apache-2.0 */
/* Parts by stages: along every edge the stage stays the same between two nodes that are both taken or both left, and
 * grows otherwise. So a path that leaves a stage never comes back to it: all taken nodes of one stage are one convex
 * part, and no partition into convex parts has fewer. */
#include "ep/partition.h"

#include <string.h>

#include "ep/model.h"

enum { MOST_NESTING = 64 };

/* --- what there are operators for -------------------------------------------------------------------------------- */
static OrtStatus *has_operator(const GraphView *model, const GraphView *view, const ViewNode *n, int depth,
                               bool *out_has) {
    const Ort *ort = view->ort;
    *out_has = depth < MOST_NESTING && onnxfuse_has_operator(n->domain, n->op, view_opset(model, n->domain));
    if (*out_has) TRY(model_can_hold(ort, view->scratch, n->node, out_has));
    for (int g = 0; g < n->subgraph_count && *out_has; g++) {
        GraphView body;
        TRY(view_graph(ort, view->scratch, n->subgraphs[g], &body));
        for (int i = 0; i < body.node_count && *out_has; i++)
            TRY(has_operator(model, &body, &body.nodes[i], depth + 1, out_has));
    }
    return NULL;
}

OrtStatus *partition_has_operator(const GraphView *view, const ViewNode *node, bool *out_has) {
    return has_operator(view, view, node, 0, out_has);
}

OrtStatus *partition_begin(const GraphView *view, Partition *out_partition) {
    Partition *p = out_partition;
    *p = (Partition){.view = view,
                     .taken = SCRATCH_ARRAY(view->scratch, bool, view->node_count),
                     .part = SCRATCH_ARRAY(view->scratch, int, view->node_count)};
    NEED(view->ort, p->taken && p->part);
    for (int n = 0; n < view->node_count; n++) {
        const char *owner = NULL;
        TRY(ORT(view->ort, Node_GetEpName)(view->nodes[n].node, &owner));
        if (!owner || !*owner) TRY(partition_has_operator(view, &view->nodes[n], &p->taken[n]));
    }
    return NULL;
}

/* --- stages ------------------------------------------------------------------------------------------------------ */
/* Taken nodes get even stages, the others odd ones. Nodes come in topological order. */
static OrtStatus *find_stages(Partition *p) {
    const GraphView *view = p->view;
    int last = -1;
    for (int n = 0; n < view->node_count; n++) {
        int stage = p->taken[n] ? 0 : 1;
        for (int i = 0; i < view->nodes[n].input_count; i++) {
            int input = view->nodes[n].inputs[i], producer = input < 0 ? -1 : view->values[input].producer;
            if (producer < 0) continue;
            if (producer >= n) return ep_error(view->ort, ORT_EP_FAIL, "the graph's nodes are not in order");
            int after = p->part[producer] + (p->taken[producer] != p->taken[n]);
            if (after > stage) stage = after;
        }
        p->part[n] = stage;
        if (p->taken[n] && stage > last) last = stage;
    }
    p->part_count = 0;
    int *numbers = SCRATCH_ARRAY(view->scratch, int, last + 1); /* of stages, from 1 */
    NEED(view->ort, numbers);
    for (int n = 0; n < view->node_count; n++) {
        int stage = p->part[n];
        if (p->taken[n] && !numbers[stage]) numbers[stage] = ++p->part_count;
        p->part[n] = p->taken[n] ? numbers[stage] - 1 : -1;
    }
    return NULL;
}

/* --- borders ----------------------------------------------------------------------------------------------------- */
/* Elements of less than a byte are packed in the runtime and are not in onnxfuse; sequences and optionals have no place
 * in a kernel's context. */
static bool can_cross(const TensorType *type) {
    switch (type->dtype) {
    case ONNXFUSE_NONE:
    case ONNXFUSE_UINT4:
    case ONNXFUSE_INT4:
    case ONNXFUSE_FLOAT4E2M1:
    case ONNXFUSE_UINT2:
    case ONNXFUSE_INT2: return false;
    default: return type->rank <= ONNXFUSE_MAX_RANK;
    }
}

enum { OUTSIDE = -1 };

/* Marks the values that cross a border: where[v] is the part of the value's nodes, crosses[v] whether there are others.
 */
static void find_crossing(const Partition *p, int *where, bool *crosses) {
    const GraphView *view = p->view;
    for (int v = 0; v < view->value_count; v++) {
        int producer = view->values[v].producer;
        where[v] = producer < 0 ? OUTSIDE : p->part[producer];
        crosses[v] = view->values[v].is_output && where[v] != OUTSIDE;
    }
    for (int n = 0; n < view->node_count; n++)
        for (int i = 0; i < view->nodes[n].input_count; i++) {
            int v = view->nodes[n].inputs[i];
            if (v >= 0 && where[v] != p->part[n] && !(view->values[v].is_constant && where[v] == OUTSIDE))
                crosses[v] = true;
        }
}

/* Whether the node's subgraphs read a value that only they bring into the part. */
static bool captures(const Partition *p, int n, const int *where) {
    const ViewNode *node = &p->view->nodes[n];
    for (int i = node->explicit_count; i < node->input_count; i++)
        if (node->inputs[i] >= 0 && where[node->inputs[i]] != p->part[n] &&
            !p->view->values[node->inputs[i]].is_constant)
            return true;
    return false;
}

static bool touches(const ViewNode *n, const bool *values) {
    for (int i = 0; i < n->input_count; i++)
        if (n->inputs[i] >= 0 && values[n->inputs[i]]) return true;
    for (int o = 0; o < n->output_count; o++)
        if (n->outputs[o] >= 0 && values[n->outputs[o]]) return true;
    return false;
}

static OrtStatus *give_up_borders(Partition *p, const int *where, bool *crosses, bool *out_changed) {
    const GraphView *view = p->view;
    *out_changed = false;
    for (int v = 0; v < view->value_count; v++) {
        TensorType type;
        if (!crosses[v]) continue;
        TRY(view_type(view->ort, view->scratch, view->values[v].info, &type));
        crosses[v] = !can_cross(&type);
    }
    for (int n = 0; n < view->node_count; n++) {
        bool wrong = touches(&view->nodes[n], crosses) || (view->ort->weak_subgraphs && captures(p, n, where));
        if (!p->taken[n] || !wrong) continue;
        p->taken[n] = false;
        *out_changed = true;
    }
    return NULL;
}

/* --- parts ------------------------------------------------------------------------------------------------------- */
static OrtStatus *fill_parts(Partition *p, const int *where, const bool *crosses) {
    const GraphView *view = p->view;
    Scratch *scratch = view->scratch;
    p->parts = SCRATCH_ARRAY(scratch, Part, p->part_count);
    NEED(view->ort, p->parts);
    for (int n = 0; n < view->node_count; n++)
        if (p->part[n] >= 0) p->parts[p->part[n]].node_count++;
    for (int v = 0; v < view->value_count; v++)
        if (where[v] >= 0 && crosses[v]) p->parts[where[v]].output_count++;
    for (int i = 0; i < p->part_count; i++) {
        Part *part = &p->parts[i];
        part->nodes = SCRATCH_ARRAY(scratch, int, part->node_count);
        part->outputs = SCRATCH_ARRAY(scratch, int, part->output_count);
        NEED(view->ort, part->nodes && part->outputs);
        part->node_count = part->output_count = 0;
    }
    for (int n = 0; n < view->node_count; n++) {
        Part *part = p->part[n] < 0 ? NULL : &p->parts[p->part[n]];
        if (part) part->nodes[part->node_count++] = n;
    }
    for (int v = 0; v < view->value_count; v++) {
        Part *part = where[v] >= 0 && crosses[v] ? &p->parts[where[v]] : NULL;
        if (part) part->outputs[part->output_count++] = v;
    }
    return NULL;
}

OrtStatus *partition_make(Partition *p) {
    const GraphView *view = p->view;
    int *where = SCRATCH_ARRAY(view->scratch, int, view->value_count);
    bool *crosses = SCRATCH_ARRAY(view->scratch, bool, view->value_count),
         *wrong = SCRATCH_ARRAY(view->scratch, bool, view->value_count);
    NEED(view->ort, where && crosses && wrong);
    for (bool changed = true; changed;) {
        TRY(find_stages(p));
        find_crossing(p, where, crosses);
        memcpy(wrong, crosses, (size_t)view->value_count * sizeof *wrong);
        TRY(give_up_borders(p, where, wrong, &changed));
    }
    return fill_parts(p, where, crosses);
}
