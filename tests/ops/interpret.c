/* SPDX-License-Identifier: Apache-2.0 */
/* Nodes one after the other, every value kept. */
#include "interpret.h"

#include "graph/eval/eval.h"
#include "lowering/anchor/anchor_eval.h"
#include "lowering/ops.h"

typedef struct Frame {
    const Graph *graph;
    Arena *arena;
    Map items;        /* Value * -> Item * */
    int64_t *symbols; /* [symbol_count] */
    int symbol_count;
} Frame;

static Status run_graph(const Graph *graph, const Item *inputs, const Frame *outer, Arena *arena, Item *outputs);

static Item *tensor_item(Arena *arena, const Tensor *tensor) {
    Item *item = ARENA_NEW(arena, Item);
    item->kind = ITEM_TENSOR;
    item->tensor = *tensor;
    return item;
}

static Item *item_of(Frame *f, const Value *value) {
    if (!value) return NULL;
    Item *item = map_get_id(&f->items, MAP_POINTER_KEY(value));
    return item ? item : value->constant ? tensor_item(f->arena, value->constant) : NULL;
}

static Status bind(Frame *f, const Value *value, const Item *item) {
    if (value->kind != VALUE_TENSOR || value->rank < 0 || item->kind != ITEM_TENSOR) return NULL;
    return bind_dims(f->graph->dims, value, item->tensor.rank, item->tensor.dims, f->symbols);
}

static Status store(Frame *f, const Value *value, Item *item) {
    if (!value) return NULL;
    map_set_id(&f->items, MAP_POINTER_KEY(value), item);
    return bind(f, value, item);
}

static int64_t one_integer(const Item *item) { return dtype_load_int(item->tensor.dtype, item->tensor.data, 0); }

/* ---- host kernels ---- */

static Pool *pool_of_kernels;

void interpret_on(Pool *pool) { pool_of_kernels = pool; }

static Status allocate(HostCall *call, int index, DType dtype, int rank, const int64_t *dims, void **out_data) {
    (void)index;
    *out_data = tensor_new(call->arena, dtype, rank, dims)->data;
    return NULL;
}

static Status bind_vector(Frame *f, const Node *node, const Item *item) {
    int count;
    const Dim *const *symbols = attr_dims(node, "symbols", &count);
    for (int i = 0; i < count; i++)
        f->symbols[dim_symbol_index(symbols[i])] = dtype_load_int(item->tensor.dtype, item->tensor.data, i);
    return NULL;
}

static Status call_host(Frame *f, const Node *node, Item **inputs) {
    if (strcmp(node->op, "bind_sizes") == 0) return bind_vector(f, node, inputs[0]);
    Item **outputs = ARENA_ARRAY(f->arena, Item *, node->output_count);
    for (int i = 0; i < node->output_count; i++) outputs[i] = node->outputs[i] ? ARENA_NEW(f->arena, Item) : NULL;
    HostCall call = {.node = node,
                     .inputs = (const Item *const *)inputs,
                     .outputs = outputs,
                     .symbols = f->symbols,
                     .pool = pool_of_kernels,
                     .arena = f->arena,
                     .allocate = allocate};
    TRY(node->host(&call));
    for (int i = 0; i < node->output_count; i++) TRY(store(f, node->outputs[i], outputs[i]));
    return NULL;
}

/* ---- control flow ---- */

/* All elements of sequences, one behind the other. */
static Item *join(Frame *f, const Item *parts, int count) {
    Item *whole = ARENA_NEW(f->arena, Item);
    whole->kind = ITEM_SEQUENCE;
    for (int i = 0; i < count; i++) whole->count += parts[i].count;
    whole->items = ARENA_ARRAY(f->arena, Item, whole->count + 1);
    for (int i = 0, at = 0; i < count; i++)
        for (int k = 0; k < parts[i].count; k++) whole->items[at++] = parts[i].items[k];
    return whole;
}

/* Results of all iterations, stacked along a new axis. */
static Item *stack(Frame *f, const Value *like, const Item *parts, int count, int axis, bool backward) {
    if (like->kind == VALUE_SEQUENCE) return join(f, parts, count);
    Tensor first = count ? parts[0].tensor : (Tensor){.dtype = like->dtype, .rank = like->rank};
    for (int i = 0; !count && i < like->rank; i++) {
        int64_t size = dim_eval(like->dims[i], f->symbols);
        first.dims[i] = size > 0 ? size : 0;
    }
    int64_t dims[MAX_RANK], outer = 1;
    size_t inner = dtype_size(first.dtype);
    for (int i = 0, from = 0; i <= first.rank; i++) dims[i] = i == axis ? count : first.dims[from++];
    for (int i = 0; i < axis; i++) outer *= dims[i];
    for (int i = axis + 1; i <= first.rank; i++) inner *= (size_t)dims[i];
    Tensor *whole = tensor_new(f->arena, first.dtype, first.rank + 1, dims);
    for (int i = 0; i < count; i++)
        for (int64_t o = 0; o < outer && inner; o++)
            memcpy((char *)whole->data + (size_t)(o * count + (backward ? count - 1 - i : i)) * inner,
                   (const char *)parts[i].tensor.data + (size_t)o * inner, inner);
    return tensor_item(f->arena, whole);
}

/* Index t along an axis, which goes. */
static Item slice_at(Frame *f, const Item *whole, int axis, int64_t t) {
    const Tensor *from = &whole->tensor;
    int64_t dims[MAX_RANK], outer = 1;
    size_t inner = dtype_size(from->dtype);
    for (int i = 0, to = 0; i < from->rank; i++)
        if (i != axis) dims[to++] = from->dims[i];
    for (int i = 0; i < axis; i++) outer *= from->dims[i];
    for (int i = axis + 1; i < from->rank; i++) inner *= (size_t)from->dims[i];
    Tensor *part = tensor_new(f->arena, from->dtype, from->rank - 1, dims);
    for (int64_t o = 0; o < outer && inner; o++)
        memcpy((char *)part->data + (size_t)o * inner,
               (const char *)from->data + (size_t)(o * from->dims[axis] + t) * inner, inner);
    return *tensor_item(f->arena, part);
}

/* The body's inputs: `own` of them free, then the captures. */
static Item *body_inputs(Frame *f, const Node *node, Item **inputs, int own) {
    Item *list = ARENA_ARRAY(f->arena, Item, own + node->captures);
    for (int i = 0; i < node->captures; i++) list[own + i] = *inputs[node->input_count - node->captures + i];
    return list;
}

static Status run_if(Frame *f, const Node *node, Item **inputs) {
    const Graph *branch = node->subgraphs[one_integer(inputs[0]) ? 0 : 1];
    Item *results = ARENA_ARRAY(f->arena, Item, branch->outputs.count);
    TRY(run_graph(branch, body_inputs(f, node, inputs, 0), f, f->arena, results));
    for (int i = 0; i < node->output_count; i++) TRY(store(f, node->outputs[i], &results[i]));
    return NULL;
}

static Status store_stacked(Frame *f, const Node *node, const Graph *body, int first, Item **parts, int count,
                            const int64_t *axes, const int64_t *directions) {
    for (int k = first; k < node->output_count; k++) {
        const Value *like = body->outputs.items[k + (strcmp(node->op, "Loop") == 0)];
        if (!node->outputs[k]) continue;
        int at = k - first;
        TRY(store(f, node->outputs[k],
                  stack(f, like, parts[at], count, axes ? (int)axes[at] : 0, directions && directions[at])));
    }
    return NULL;
}

enum { MOST_ITERATIONS = 10000 };

static Status run_loop(Frame *f, const Node *node, Item **inputs) {
    const Graph *body = node->subgraphs[0];
    int carried = (int)attr_int(node, "carried", 0), scans = body->outputs.count - 1 - carried, count = 0;
    int64_t trips = inputs[0] ? one_integer(inputs[0]) : INT64_MAX;
    bool go_on = inputs[1] ? one_integer(inputs[1]) != 0 : true;
    Item *state = ARENA_ARRAY(f->arena, Item, carried), **parts = ARENA_ARRAY(f->arena, Item *, scans + 1);
    for (int k = 0; k < scans; k++) parts[k] = ARENA_ARRAY(f->arena, Item, MOST_ITERATIONS);
    for (int i = 0; i < carried; i++) state[i] = *inputs[2 + i];
    for (; count < trips && go_on && count < MOST_ITERATIONS; count++) {
        Item *given = body_inputs(f, node, inputs, 2 + carried),
             *results = ARENA_ARRAY(f->arena, Item, body->outputs.count);
        given[0] = *tensor_item(f->arena, tensor_scalar_int(f->arena, DT_I64, count));
        given[1] = *tensor_item(f->arena, tensor_scalar_int(f->arena, DT_BOOL, go_on));
        for (int i = 0; i < carried; i++) given[2 + i] = state[i];
        TRY(run_graph(body, given, f, f->arena, results));
        go_on = one_integer(&results[0]) != 0;
        for (int i = 0; i < carried; i++) state[i] = results[1 + i];
        for (int k = 0; k < scans; k++) parts[k][count] = results[1 + carried + k];
    }
    for (int i = 0; i < carried && i < node->output_count; i++) TRY(store(f, node->outputs[i], &state[i]));
    return store_stacked(f, node, body, carried, parts, count, NULL, NULL);
}

static Status run_scan(Frame *f, const Node *node, Item **inputs) {
    const Graph *body = node->subgraphs[0];
    int scanned = (int)attr_int(node, "num_scan_inputs", 0), states = node->input_count - node->captures - scanned,
        unused;
    int scans = body->outputs.count - states;
    const int64_t *axes = attr_ints(node, "scan_input_axes", &unused),
                  *backward = attr_ints(node, "scan_input_directions", &unused);
    int64_t length = inputs[states]->tensor.dims[axes[0]];
    Item *state = ARENA_ARRAY(f->arena, Item, states), **parts = ARENA_ARRAY(f->arena, Item *, scans + 1);
    for (int k = 0; k < scans; k++) parts[k] = ARENA_ARRAY(f->arena, Item, length + 1);
    for (int i = 0; i < states; i++) state[i] = *inputs[i];
    for (int64_t t = 0; t < length; t++) {
        Item *given = body_inputs(f, node, inputs, states + scanned),
             *results = ARENA_ARRAY(f->arena, Item, body->outputs.count);
        for (int i = 0; i < states; i++) given[i] = state[i];
        for (int i = 0; i < scanned; i++)
            given[states + i] = slice_at(f, inputs[states + i], (int)axes[i], backward[i] ? length - 1 - t : t);
        TRY(run_graph(body, given, f, f->arena, results));
        for (int i = 0; i < states; i++) state[i] = results[i];
        for (int k = 0; k < scans; k++) parts[k][t] = results[states + k];
    }
    for (int i = 0; i < states && i < node->output_count; i++) TRY(store(f, node->outputs[i], &state[i]));
    return store_stacked(f, node, body, states, parts, (int)length, attr_ints(node, "scan_output_axes", &unused),
                         attr_ints(node, "scan_output_directions", &unused));
}

static Status run_map(Frame *f, const Node *node, Item **inputs) {
    const Graph *body = node->subgraphs[0];
    int own = node->input_count - node->captures, count = inputs[0]->count;
    Item *outputs = ARENA_ARRAY(f->arena, Item, node->output_count);
    for (int k = 0; k < node->output_count; k++)
        outputs[k] = (Item){.kind = ITEM_SEQUENCE, .items = ARENA_ARRAY(f->arena, Item, count + 1), .count = count};
    for (int e = 0; e < count; e++) {
        Item *given = body_inputs(f, node, inputs, own), *results = ARENA_ARRAY(f->arena, Item, body->outputs.count);
        for (int i = 0; i < own; i++) given[i] = inputs[i]->kind == ITEM_SEQUENCE ? inputs[i]->items[e] : *inputs[i];
        TRY(run_graph(body, given, f, f->arena, results));
        for (int k = 0; k < node->output_count; k++) outputs[k].items[e] = results[k];
    }
    for (int k = 0; k < node->output_count; k++) TRY(store(f, node->outputs[k], &outputs[k]));
    return NULL;
}

static Status run_flow(Frame *f, const Node *node, Item **inputs) {
    static const struct {
        const char *op;
        Status (*run)(Frame *f, const Node *node, Item **inputs);
    } flows[] = {{"If", run_if}, {"Loop", run_loop}, {"Scan", run_scan}, {"SequenceMap", run_map}};
    for (size_t i = 0; i < sizeof flows / sizeof *flows; i++)
        if (strcmp(node->op, flows[i].op) == 0) return flows[i].run(f, node, inputs);
    return status_error(STATUS_FAULT, "host node %s without a function", node->op);
}

/* ---- graphs ---- */

static Status run_node(Frame *f, const Node *node) {
    Item **inputs = ARENA_ARRAY(f->arena, Item *, node->input_count + 1);
    Tensor **tensors = ARENA_ARRAY(f->arena, Tensor *, node->input_count + 1);
    Tensor **results = ARENA_ARRAY(f->arena, Tensor *, node->output_count + 1);
    for (int i = 0; i < node->input_count; i++) {
        inputs[i] = item_of(f, node->inputs[i]);
        if (node->inputs[i] && !inputs[i])
            return status_error(STATUS_FAULT, "%s reads \"%s\" before it is computed", node->op, node->inputs[i]->name);
        tensors[i] = inputs[i] ? &inputs[i]->tensor : NULL;
    }
    if (node->kind == NODE_HOST)
        return node->host || !node->subgraph_count ? call_host(f, node, inputs) : run_flow(f, node, inputs);
    TRY(node->kind == NODE_PRIM ? eval_prim(node, tensors, f->symbols, f->arena, results)
                                : eval_anchor(node, tensors, f->symbols, f->arena, results));
    for (int i = 0; i < node->output_count; i++)
        if (node->outputs[i]) TRY(store(f, node->outputs[i], tensor_item(f->arena, results[i])));
    return NULL;
}

static Status run_graph(const Graph *graph, const Item *inputs, const Frame *outer, Arena *arena, Item *outputs) {
    Frame f = {graph, arena, map_make(arena), NULL, dim_symbol_count(graph->dims)};
    f.symbols = ARENA_ARRAY(arena, int64_t, f.symbol_count + 1);
    for (int i = 0; i < f.symbol_count; i++) f.symbols[i] = outer ? outer->symbols[i] : UNBOUND_DIM;
    if (!outer)
        for (int i = 0; i < f.symbol_count; i++)
            if (strcmp(dim_symbol_name(graph->dims, i), "$run") == 0) f.symbols[i] = 1;
    for (int i = 0; i < graph->inputs.count; i++)
        TRY(store(&f, graph->inputs.items[i], arena_copy(arena, &inputs[i], sizeof *inputs)));
    FOR_EACH_NODE(node, graph) TRY(run_node(&f, node));
    for (int i = 0; i < graph->outputs.count; i++) {
        Item *item = item_of(&f, graph->outputs.items[i]);
        if (!item) return status_error(STATUS_FAULT, "output \"%s\" is not computed", graph->output_names.items[i]);
        outputs[i] = *item;
    }
    return NULL;
}

Status interpret(const Graph *graph, const Item *inputs, Arena *arena, Item *outputs) {
    return run_graph(graph, inputs, NULL, arena, outputs);
}
