/* SPDX-License-Identifier: Apache-2.0 */
/* ONNX operators to primitives, anchors and host kernels: one sweep in topological order, each node replaced by what
 * its row in the table builds; then what nothing reads any more is taken out. */
#include "graph/constants/unread.h"
#include "lowering/build.h"
#include "lowering/prune.h"
#include "lowering/custom.h"
#include "base/plain.h"

#include <limits.h>
#include <stdio.h>

/* --- host kernels' side ------------------------------------------------------------------------------------------ */

Status host_output(HostCall *call, int index, DType dtype, int rank, const int64_t *dims, Tensor **out_tensor) {
    *out_tensor = NULL;
    if (index >= call->node->output_count || !call->outputs[index]) return NULL;
    if (rank < 0 || rank > MAX_RANK) return host_error(call, "output %d would have %d axes", index, rank);
    Status status = tensor_size_of(dtype, rank, dims, NULL, NULL);
    if (status) return status_at(status, "node \"%s\" (%s)", node_origin_name(call->node), call->node->op);
    void *data = NULL;
    TRY(call->allocate(call, index, dtype, rank, dims, &data));
    Item *item = call->outputs[index];
    item->kind = ITEM_TENSOR;
    item->tensor = (Tensor){.dtype = dtype, .rank = rank, .data = data};
    if (rank) memcpy(item->tensor.dims, dims, (size_t)rank * sizeof *dims);
    *out_tensor = &item->tensor;
    return NULL;
}

Status host_error(const HostCall *call, const char *format, ...) {
    char text[1024];
    va_list args;
    va_start(args, format);
    plain_vprint(text, sizeof text, format, args);
    va_end(args);
    return status_error(STATUS_INVALID, "node \"%s\" (%s): %s", node_origin_name(call->node), call->node->op, text);
}

/* --- the sweep ---------------------------------------------------------------------------------------------------- */

static Status unknown_operator(const Node *n) {
    const char *domain = n->domain && *n->domain ? n->domain : "ai.onnx", *name = node_origin_name(n);
    const OpRow *near = ops_find_any(n->domain ? n->domain : "", n->op);
    if (!near)
        return status_error(STATUS_UNSUPPORTED, "node \"%s\": operator %s of domain %s in opset %d is not supported",
                            name, n->op, domain, n->opset);
    if (near->until)
        return status_error(STATUS_UNSUPPORTED,
                            "node \"%s\": operator %s of domain %s in opset %d is not supported (opsets %d to %d are)",
                            name, n->op, domain, n->opset, near->since, near->until);
    return status_error(STATUS_UNSUPPORTED,
                        "node \"%s\": operator %s of domain %s in opset %d is not supported (opsets from %d are)", name,
                        n->op, domain, n->opset, near->since);
}

static Status check_replaced(const Node *n) {
    for (int i = 0; i < n->output_count; i++)
        if (n->outputs[i] && value_is_read(n->outputs[i]))
            return status_error(STATUS_UNSUPPORTED, "node \"%s\" (%s, opset %d): output %d is not supported",
                                node_origin_name(n), n->op, n->opset, i);
    return NULL;
}

/* What a node of a group becomes is of the group. It stands before the node by now; `before`: what stood there. */
static void hand_group_on(const Lowering *l, const Node *n, const Node *before) {
    if (!n->group) return;
    for (Node *made = before ? before->next : l->graph->first; made != n; made = made->next) made->group = n->group;
}

/* Of the operators that this model has asked for: the search for one reads all rows. */
typedef struct KnownRow {
    const char *domain, *name;
    int opset;
    const OpRow *row;
} KnownRow;

static const OpRow *row_of(Lowering *l, const char *domain, const Node *n) {
    enum { KNOWN = 128 };
    if (!l->rows) l->rows = ARENA_ARRAY(l->scratch, KnownRow, KNOWN);
    KnownRow *k = &l->rows[hash_bytes(n->op, strlen(n->op), 0) % KNOWN];
    if (!k->name || strcmp(k->name, n->op) != 0 || strcmp(k->domain, domain) != 0 || k->opset != n->opset)
        *k = (KnownRow){domain, n->op, n->opset, ops_find(domain, n->op, n->opset)};
    return k->row;
}

/* *out_next: what stands behind it when it is lowered; an If may move what follows it. */
static Status lower_node(Lowering *l, Node *n, Node **out_next) {
    const char *domain = n->domain ? n->domain : "";
    const CustomOperator *own =
        n->custom ? n->custom : registry_find(policy_registry(l->policy), domain, n->op, n->opset);
    const OpRow *row = own ? NULL : row_of(l, domain, n);
    if (!own && !row) return unknown_operator(n);
    l->node = n;
    const Node *before = n->prev;
    l->restores = DT_NONE;
    Status status = row && n->wanted ? take_precision(l, n) : NULL;
    if (!status) status = own ? lower_custom(l, n, own) : row->lower(l, n);
    l->node = NULL;
    if (l->error && status != l->error) {
        status_free(status);
        status = l->error;
    } else if (status && !l->error) {
        status = status_at(status, "node \"%s\" (%s, opset %d)", node_origin_name(n), n->op, n->opset);
    }
    l->error = NULL;
    TRY(status);
    TRY(check_replaced(n));
    hand_group_on(l, n, before);
    *out_next = n->next;
    graph_remove_node(l->graph, n);
    return NULL;
}

static Status lower_nodes(Lowering *l, Graph *graph) {
    for (Node *node = graph->first, *next; node; node = next) {
        next = node->next;
        if (node->kind != NODE_ONNX) continue;
        TRY(lower_node(l, node, &next));
        if (!graph->parent) graph_give_back_many(graph);
    }
    return NULL;
}

static Status sweep(Graph *graph, const Policy *policy, const LowerTrace *trace, int tails) {
    graph_prune(graph);
    Lowering l = {.graph = graph,
                  .arena = graph->arena,
                  .scratch = arena_create_inside(graph->arena),
                  .dims = graph->dims,
                  .policy = policy,
                  .trace = trace,
                  .tails = tails};
    if (trace) trace->before(trace->user, graph);
    Status status = lower_nodes(&l, graph);
    arena_destroy(l.scratch);
    if (trace) trace->after(trace->user, graph);
    TRY(status);
    graph_prune(graph);
    return NULL;
}

Status lower_graph(Graph *graph, const Policy *policy) { return sweep(graph, policy, NULL, 0); }

Status lower_graph_traced(Graph *graph, const Policy *policy, const LowerTrace *trace) {
    return sweep(graph, policy, trace, 0);
}

Status lower_subgraph(Lowering *l, Graph *body) { return sweep(body, l->policy, l->trace, l->tails); }
