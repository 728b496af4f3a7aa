/* SPDX-License-Identifier: Apache-2.0 */
/* One primitive, or a graph of them, on actual tensors: checks what all primitives share and hands each to its class.
 */
#include "graph/eval/eval_kernels.h"

/* ---- sizes ---- */

Status bind_dims(const DimTable *table, const Value *value, int rank, const int64_t *actual, int64_t *symbols) {
    (void)table;
    if (value->rank < 0) return NULL;
    if (rank != value->rank)
        return status_error(STATUS_INVALID, "\"%s\" has rank %d, but rank %d is declared", value->name, rank,
                            value->rank);
    for (int i = 0; i < rank; i++) {
        int symbol = dim_symbol_index(value->dims[i]);
        if (symbol >= 0 && actual[i] > LARGEST_SIZE)
            return status_error(STATUS_UNSUPPORTED, "\"%s\" has size %lld in axis %d (at most %d are supported)",
                                value->name, (long long)actual[i], i, LARGEST_SIZE);
        if (symbol >= 0 && symbols[symbol] == UNBOUND_DIM) symbols[symbol] = actual[i];
    }
    for (int i = 0; i < rank; i++) {
        int64_t expected = dim_eval(value->dims[i], symbols);
        if (expected == UNBOUND_DIM || expected == actual[i]) continue;
        Arena *arena = arena_create(0);
        if (!arena) return status_out_of_memory();
        Status volatile status = status_out_of_memory();
        jmp_buf guard;
        if (!setjmp(guard)) {
            arena_guard(arena, &guard);
            Text text = text_make(arena);
            if (!dim_is_const(value->dims[i], &expected)) {
                dim_print(&text, value->dims[i]);
                text_add(&text, " = ");
            }
            status = status_error(STATUS_INVALID, "\"%s\" has size %lld in axis %d, but %s%lld is declared",
                                  value->name, (long long)actual[i], i, text.data, (long long)expected);
        }
        arena_destroy(arena);
        return status;
    }
    return NULL;
}

Status eval_sizes(const Eval *e, const char *attr, int *out_count, int64_t out_sizes[MAX_RANK]) {
    const Dim *const *dims = attr_dims(e->node, attr, out_count);
    const Attr *found = node_attr(e->node, attr);
    if (!found || found->kind != ATTR_DIMS) return status_error(STATUS_INVALID, "no attribute %s", attr);
    if (*out_count > MAX_RANK) return status_error(STATUS_INVALID, "%s has %d elements", attr, *out_count);
    for (int i = 0; i < *out_count; i++) {
        out_sizes[i] = UNBOUND_DIM;
        if (!dim_is_const(dims[i], &out_sizes[i]) && e->symbols) out_sizes[i] = dim_eval(dims[i], e->symbols);
        if (out_sizes[i] == UNBOUND_DIM) return status_error(STATUS_INVALID, "element %d of %s is not known", i, attr);
    }
    return NULL;
}

Status eval_axis(const Eval *e, int rank, int *out_axis) {
    int64_t axis = attr_int(e->node, "axis", -1);
    if (axis < 0 || axis >= rank) return status_error(STATUS_INVALID, "axis %lld of rank %d", (long long)axis, rank);
    *out_axis = (int)axis;
    return NULL;
}

Status eval_output(Eval *e, DType dtype, int rank, const int64_t *dims) {
    if (rank > MAX_RANK) return status_error(STATUS_INVALID, "a result of rank %d", rank);
    TRY(tensor_size_of(dtype, rank, dims, NULL, NULL));
    e->out = tensor_new(e->arena, dtype, rank, dims);
    return NULL;
}

/* ---- one node ---- */

static Status check_inputs(const Eval *e) {
    int wanted = prim_info(e->node->prim)->inputs, count = e->node->input_count;
    if (wanted < 0 ? count < 1 : count != wanted)
        return status_error(STATUS_INVALID, "%d inputs, not %d", count, wanted < 0 ? 1 : wanted);
    for (int i = 0; i < count; i++)
        if (!e->inputs[i] || e->inputs[i]->dtype == DT_NONE)
            return status_error(STATUS_INVALID, "input %d is missing", i);
    return NULL;
}

static Status dispatch(Eval *e) {
    TRY(check_inputs(e));
    switch (prim_info(e->node->prim)->klass) {
    case PRIM_CLASS_NONE: return status_error(STATUS_FAULT, "not a primitive");
    case PRIM_CLASS_GENERATE: return eval_generate(e);
    case PRIM_CLASS_REDUCE: return eval_reduce(e);
    case PRIM_CLASS_MOVE: return eval_move(e);
    case PRIM_CLASS_INDEXED: return eval_indexed(e);
    default: return eval_elementwise(e);
    }
}

Status eval_prim(const Node *node, Tensor *const *inputs, const int64_t *symbols, Arena *arena, Tensor **out_result) {
    return eval_prim_on(NULL, node, inputs, symbols, arena, out_result);
}

Status eval_prim_on(Pool *pool, const Node *node, Tensor *const *inputs, const int64_t *symbols, Arena *arena,
                    Tensor **out_result) {
    Eval e = {node, inputs, symbols, arena, NULL, pool};
    Status status = dispatch(&e);
    if (status && node->origin.count)
        return status_at(status, "%s (%s)", node_origin_name(node), attr_string(node, "labels", node->op));
    if (status) return status_at(status, "%s", attr_string(node, "labels", node->op));
    *out_result = e.out;
    return NULL;
}

/* ---- a whole graph ---- */

static Status bind_inputs(const Graph *graph, Tensor *const *inputs, int64_t *symbols) {
    for (int round = 0; round < 2; round++) /* the second one checks expressions of symbols bound by later inputs */
        for (int i = 0; i < graph->inputs.count; i++)
            TRY(bind_dims(graph->dims, graph->inputs.items[i], inputs[i]->rank, inputs[i]->dims, symbols));
    return NULL;
}

static Tensor *lookup(const Map *tensors, const Value *value) {
    if (!value) return NULL;
    return value->constant ? value->constant : map_get_id(tensors, MAP_POINTER_KEY(value));
}

static Status run_node(const Node *node, int64_t *symbols, Arena *arena, Map *tensors) {
    Tensor **inputs = ARENA_ARRAY(arena, Tensor *, node->input_count);
    Tensor **outputs = ARENA_ARRAY(arena, Tensor *, node->output_count + 1);
    for (int i = 0; i < node->input_count; i++) {
        inputs[i] = lookup(tensors, node->inputs[i]);
        if (!inputs[i]) return status_error(STATUS_FAULT, "%s: input %d has no value", node_origin_name(node), i);
    }
    if (node->kind == NODE_PRIM) {
        if (node->output_count != 1) return status_error(STATUS_FAULT, "%s: not one output", node_origin_name(node));
        TRY(eval_prim(node, inputs, symbols, arena, outputs));
    } else if (node->kind == NODE_REGION && node->subgraph_count == 1) {
        const Graph *body = node->subgraphs[0];
        if (body->inputs.count != node->input_count || body->outputs.count != node->output_count)
            return status_error(STATUS_FAULT, "%s: a region that does not fit its body", node_origin_name(node));
        TRY(eval_graph(body, inputs, symbols, arena, outputs));
    } else {
        return status_error(STATUS_FAULT, "%s: %s is not a primitive", node_origin_name(node), node->op);
    }
    for (int i = 0; i < node->output_count; i++)
        if (node->outputs[i]) map_set_id(tensors, MAP_POINTER_KEY(node->outputs[i]), outputs[i]);
    return NULL;
}

Status eval_graph(const Graph *graph, Tensor *const *inputs, int64_t *symbols, Arena *arena, Tensor **out_outputs) {
    Map tensors = map_make(arena);
    TRY(bind_inputs(graph, inputs, symbols));
    for (int i = 0; i < graph->inputs.count; i++)
        map_set_id(&tensors, MAP_POINTER_KEY(graph->inputs.items[i]), inputs[i]);
    FOR_EACH_NODE(node, graph) TRY(run_node(node, symbols, arena, &tensors));
    for (int i = 0; i < graph->outputs.count; i++) {
        out_outputs[i] = lookup(&tensors, graph->outputs.items[i]);
        if (!out_outputs[i])
            return status_error(STATUS_FAULT, "output \"%s\" has no value", graph->output_names.items[i]);
    }
    return NULL;
}
