/* SPDX-License-Identifier: Apache-2.0 */
/* The graph's edits. Every change of an edge goes through node_set_input or value_replace, which keep the use lists; a
 * use is found again through its node's use_slots, so that no edit costs more than the edges it touches. */
#include "graph/graph.h"

#include <setjmp.h>
#include <stdio.h>

/* ---- graphs ---- */

static void init_graph(Graph *graph, Arena *arena, const char *name) {
    graph->arena = arena;
    graph->name = arena_string(arena, name ? name : "");
    graph->names = map_make(arena);
    graph->suffixes = map_make(arena);
}

Graph *graph_create(size_t arena_limit) {
    Arena *arena = arena_create(arena_limit);
    if (!arena) return NULL;
    jmp_buf guard;
    if (setjmp(guard)) {
        arena_destroy(arena);
        return NULL;
    }
    arena_guard(arena, &guard);
    Graph *graph = ARENA_NEW(arena, Graph);
    init_graph(graph, arena, "");
    graph->dims = dim_table_create(arena);
    graph->info = ARENA_NEW(arena, ModelInfo);
    graph->info->producer = graph->info->doc = "";
    arena_guard(arena, NULL);
    return graph;
}

void graph_destroy(Graph *graph) {
    if (graph) arena_destroy(graph->arena);
}

Graph *graph_sub(Graph *parent, const char *name) {
    Graph *graph = ARENA_NEW(parent->arena, Graph);
    init_graph(graph, parent->arena, name);
    graph->dims = parent->dims;
    graph->info = parent->info;
    graph->parent = parent;
    return graph;
}

/* ---- values ---- */

/* Most values are named so, and printf takes ten times as long. */
static void number_name(char *out, uint64_t number) {
    char digits[24];
    int count = 0;
    do digits[count++] = (char)('0' + number % 10);
    while (number /= 10);
    *out++ = 'v';
    while (count) *out++ = digits[--count];
    *out = '\0';
}

/* A free name: NAME itself, NAME_1, NAME_2, ...; v0, v1, ... for NULL. */
static char *fresh_name(Graph *graph, const char *name) {
    Arena *arena = graph->arena;
    if (name && !map_get(&graph->names, name)) return arena_string(arena, name);
    char short_name[32];
    if (!name) {
        do number_name(short_name, graph->info->next_name++);
        while (map_get(&graph->names, short_name));
        return arena_string(arena, short_name);
    }
    uintptr_t suffix = (uintptr_t)map_get(&graph->suffixes, name);
    char *made;
    do made = arena_format(arena, "%s_%llu", name, (unsigned long long)++suffix);
    while (map_get(&graph->names, made));
    map_set(&graph->suffixes, arena_string(arena, name), (void *)suffix);
    return made;
}

static const Dim **copy_dims(Arena *arena, const Dim *const *dims, int count) {
    return count > 0 ? arena_copy(arena, dims, (size_t)count * sizeof *dims) : NULL;
}

Value *graph_add_value(Graph *graph, const char *name, DType dtype, int rank, const Dim *const *dims) {
    Value *value = ARENA_NEW(graph->arena, Value);
    value->name = fresh_name(graph, name);
    value->dtype = dtype;
    value->rank = rank;
    value->dims = copy_dims(graph->arena, dims, rank);
    VEC_PUSH(graph->arena, graph->values, value);
    map_set(&graph->names, value->name, value);
    return value;
}

Value *graph_add_input(Graph *graph, const char *name, DType dtype, int rank, const Dim *const *dims) {
    Value *value = graph_add_value(graph, name, dtype, rank, dims);
    VEC_PUSH(graph->arena, graph->inputs, value);
    return value;
}

void graph_add_named_output(Graph *graph, Value *value, const char *name) {
    VEC_PUSH(graph->arena, graph->outputs, value);
    VEC_PUSH(graph->arena, graph->output_names, arena_string(graph->arena, name));
    VEC_PUSH(graph->arena, graph->next_output, value->first_output);
    value->first_output = graph->outputs.count;
}

/* Each value's list begins with its latest output, so what goes stands at the heads. */
void graph_truncate_outputs(Graph *graph, int count) {
    for (int i = graph->outputs.count - 1; i >= count; i--)
        graph->outputs.items[i]->first_output = graph->next_output.items[i];
    graph->outputs.count = graph->output_names.count = graph->next_output.count = count;
}

const char *kept_form_name(KeptForm form) {
    static const char *const names[] = {"whole", "room", "appended"};
    return names[form];
}

void graph_add_output(Graph *graph, Value *value) { graph_add_named_output(graph, value, value->name); }

enum { MAX_CONTENT = 64 }; /* elements; shapes, axes, pads and the like are shorter */

static const Dim **constant_content(Graph *graph, const Tensor *tensor) {
    if ((tensor->dtype != DT_I64 && tensor->dtype != DT_I32) || tensor->rank > 1) return NULL;
    int64_t count = tensor_count(tensor);
    if (count < 0 || count > MAX_CONTENT) return NULL;
    const Dim **content = ARENA_ARRAY(graph->arena, const Dim *, count ? count : 1);
    for (int64_t i = 0; i < count; i++)
        content[i] = dim_const(graph->dims, dtype_load_int(tensor->dtype, tensor->data, i));
    return content;
}

Value *graph_add_constant(Graph *graph, const char *name, Tensor *tensor) {
    const Dim *dims[MAX_RANK];
    for (int i = 0; i < tensor->rank; i++) dims[i] = dim_const(graph->dims, tensor->dims[i]);
    Value *value = graph_add_value(graph, name, tensor->dtype, tensor->rank, dims);
    value->constant = tensor;
    value->content = constant_content(graph, tensor);
    return value;
}

void graph_forget(const Graph *graph, const Tensor *constant) {
    const ModelInfo *info = graph->info;
    size_t bytes = tensor_bytes(constant);
    if (!constant->data || constant->dtype == DT_STRING) return;
    for (int i = 0; i < info->mapped.count; i++)
        if (mapped_file_holds(&info->mapped.items[i], constant->data, bytes)) tensor_forget(constant);
}

const Dim *value_elements_between(const Graph *graph, const Value *value, int from, int to) {
    return to > from ? dim_product(graph->dims, value->dims + from, to - from) : dim_const(graph->dims, 1);
}

const Dim *value_elements(const Graph *graph, const Value *value) {
    return value_elements_between(graph, value, 0, value->rank);
}

bool value_same_shape(const Value *a, const Value *b) {
    if (a->rank != b->rank) return false;
    for (int i = 0; i < a->rank; i++)
        if (a->dims[i] != b->dims[i]) return false;
    return true;
}

bool value_scalar(const Value *value, double *out) {
    if (!value->constant || tensor_count(value->constant) != 1) return false;
    *out = dtype_load_double(value->dtype, value->constant->data, 0);
    return true;
}

/* ---- edges ---- */

static void add_use(Node *node, int index) {
    Value *value = node->inputs[index];
    if (!value) return;
    node->use_slots[index] = value->uses.count;
    VEC_PUSH(node->graph->arena, value->uses, (Use){node, index});
}

static int find_use(const Node *node, int index) {
    const Value *value = node->inputs[index];
    int slot = node->use_slots[index];
    if (slot >= 0 && slot < value->uses.count && value->uses.items[slot].node == node &&
        value->uses.items[slot].index == index)
        return slot;
    for (slot = value->uses.count - 1; slot >= 0; slot--)
        if (value->uses.items[slot].node == node && value->uses.items[slot].index == index) break;
    return slot;
}

static void drop_use(Node *node, int index) {
    Value *value = node->inputs[index];
    if (!value) return;
    int slot = find_use(node, index);
    if (slot < 0) return;
    Use last = value->uses.items[--value->uses.count];
    if (slot == value->uses.count) return;
    value->uses.items[slot] = last;
    last.node->use_slots[last.index] = slot;
}

void node_set_input(Node *node, int index, Value *value) {
    if (node->inputs[index] == value) return;
    drop_use(node, index);
    node->inputs[index] = value;
    add_use(node, index);
}

void node_append_input(Node *node, Value *value) {
    if (node->input_count == node->input_capacity) {
        int capacity = node->input_capacity;
        node->inputs = vec_grow(node->graph->arena, node->inputs, &node->input_capacity, sizeof *node->inputs);
        node->use_slots = vec_grow(node->graph->arena, node->use_slots, &capacity, sizeof *node->use_slots);
    }
    node->inputs[node->input_count++] = value;
    add_use(node, node->input_count - 1);
}

/* Joins the lists of outputs, the latest first. */
static void hand_outputs_on(Graph *graph, Value *from, Value *to) {
    int *link = &to->first_output, left = from->first_output;
    from->first_output = 0;
    while (left) {
        graph->outputs.items[left - 1] = to;
        while (*link > left) link = &graph->next_output.items[*link - 1];
        int *next = &graph->next_output.items[left - 1], rest = *next;
        *next = *link;
        *link = left;
        left = rest;
    }
}

void value_replace(Graph *graph, Value *from, Value *to) {
    if (from == to) return;
    for (int i = 0; i < from->uses.count; i++) {
        Use use = from->uses.items[i];
        use.node->inputs[use.index] = to;
        add_use(use.node, use.index);
    }
    from->uses.count = 0;
    hand_outputs_on(graph, from, to);
    value_hand_on(graph, from, to, NULL);
}

/* ---- what values stand for ---- */

void graph_name_results(Graph *graph) {
    FOR_EACH_NODE(node, graph) {
        for (int o = 0; o < node->output_count; o++) {
            Value *v = node->outputs[o];
            if (!v) continue;
            ModelValue *self = ARENA_NEW(graph->arena, ModelValue);
            *self = (ModelValue){.name = v->name, .node = node_origin_name(node), .op = node->op};
            v->stands_for = self;
        }
        for (int s = 0; s < node->subgraph_count; s++) graph_name_results(node->subgraphs[s]);
    }
}

static const int8_t *joined_perm(Arena *arena, const int8_t *outer, const int64_t *inner, int rank) {
    if (!inner) return outer;
    int8_t *perm = ARENA_ARRAY(arena, int8_t, rank + 1);
    bool identity = true;
    for (int i = 0; i < rank; i++) {
        perm[i] = (int8_t)inner[outer ? outer[i] : i];
        identity &= perm[i] == i;
    }
    return identity ? NULL : perm;
}

/* Among the latest: a value that stands for thousands is not asked for each of them. A name that is listed twice does no
 * harm. */
static bool is_listed(const ModelValue *list, const char *name) {
    enum { LATEST = 64 };
    for (int i = 0; list && i < LATEST; list = list->next, i++)
        if (list->name == name || strcmp(list->name, name) == 0) return true;
    return false;
}

void value_hand_on(Graph *graph, Value *from, Value *to, const int64_t *perm) {
    if (!to->stands_for && !perm) {
        to->stands_for = from->stands_for;
        return;
    }
    for (const ModelValue *m = from->stands_for; m; m = m->next) {
        if (is_listed(to->stands_for, m->name)) continue;
        ModelValue *copy = ARENA_NEW(graph->arena, ModelValue);
        *copy = *m;
        copy->perm = joined_perm(graph->arena, m->perm, perm, to->rank);
        copy->next = to->stands_for;
        to->stands_for = copy;
    }
}

/* ---- nodes ---- */

static void link_before(Graph *graph, Node *node, Node *before) {
    node->next = before;
    node->prev = before ? before->prev : graph->last;
    *(node->prev ? &node->prev->next : &graph->first) = node;
    *(before ? &before->prev : &graph->last) = node;
}

static void unlink_node(Graph *graph, Node *node) {
    *(node->prev ? &node->prev->next : &graph->first) = node->next;
    *(node->next ? &node->next->prev : &graph->last) = node->prev;
    node->prev = node->next = NULL;
}

static Node *add_node(Graph *graph, Node *before, NodeKind kind, const char *op, Value *const *inputs,
                      int input_count) {
    Node *node = ARENA_NEW(graph->arena, Node);
    node->kind = kind;
    node->op = op;
    node->graph = graph;
    node->domain = kind == NODE_ONNX || kind == NODE_HOST ? "" : NULL;
    node->inputs = ARENA_ARRAY(graph->arena, Value *, input_count);
    node->use_slots = ARENA_ARRAY(graph->arena, int, input_count);
    node->input_count = node->input_capacity = input_count;
    for (int i = 0; i < input_count; i++) {
        node->inputs[i] = inputs[i];
        add_use(node, i);
    }
    link_before(graph, node, before);
    graph->node_count++;
    return node;
}

Node *graph_add_prim(Graph *graph, Node *before, Prim prim, Value *const *inputs, int input_count) {
    Node *node = add_node(graph, before, NODE_PRIM, prim_info(prim)->name, inputs, input_count);
    node->prim = prim;
    return node;
}

Node *graph_add_node(Graph *graph, Node *before, NodeKind kind, const char *op, Value *const *inputs, int input_count) {
    if (kind == NODE_PRIM) return graph_add_prim(graph, before, prim_from_name(op), inputs, input_count);
    return add_node(graph, before, kind, arena_string(graph->arena, op), inputs, input_count);
}

void node_attach_output(Node *node, Value *value_or_null) {
    if (node->output_count == node->output_capacity)
        node->outputs = vec_grow(node->graph->arena, node->outputs, &node->output_capacity, sizeof *node->outputs);
    if (value_or_null) {
        value_or_null->producer = node;
        value_or_null->output_index = node->output_count;
    }
    node->outputs[node->output_count++] = value_or_null;
}

Value *node_add_output(Node *node, const char *name, DType dtype, int rank, const Dim *const *dims) {
    Value *value = graph_add_value(node->graph, name, dtype, rank, dims);
    node_attach_output(node, value);
    return value;
}

Value *node_output_at(Node *node, int index, DType dtype, int rank, const Dim *const *dims) {
    while (node->output_count <= index) node_attach_output(node, NULL);
    if (node->outputs[index]) return node->outputs[index];
    Value *value = graph_add_value(node->graph, NULL, dtype, rank, dims);
    value->producer = node;
    value->output_index = index;
    return node->outputs[index] = value;
}

void node_add_subgraph(Node *node, Graph *subgraph) {
    Graph **grown = ARENA_ARRAY(node->graph->arena, Graph *, node->subgraph_count + 1);
    if (node->subgraph_count) memcpy(grown, node->subgraphs, (size_t)node->subgraph_count * sizeof *grown);
    grown[node->subgraph_count++] = subgraph;
    node->subgraphs = grown;
}

void graph_remove_node(Graph *graph, Node *node) {
    for (int i = 0; i < node->input_count; i++) {
        drop_use(node, i);
        node->inputs[i] = NULL;
    }
    unlink_node(graph, node);
    graph->node_count--;
}

void graph_move_before(Graph *graph, Node *node, Node *before) {
    if (node == before || (before && node->next == before)) return;
    unlink_node(graph, node);
    link_before(graph, node, before);
}

/* ---- attributes ---- */

const Attr *node_attr(const Node *node, const char *name) {
    for (int i = 0; i < node->attrs.count; i++)
        if (strcmp(node->attrs.items[i].name, name) == 0) return &node->attrs.items[i];
    return NULL;
}

const void *attr_data(const Attr *attr, size_t *out_size) {
    size_t count = (size_t)attr->count;
    switch (attr->kind) {
    case ATTR_INT: *out_size = sizeof attr->i; return &attr->i;
    case ATTR_FLOAT: *out_size = sizeof attr->f; return &attr->f;
    case ATTR_TYPE: *out_size = sizeof attr->dtype; return &attr->dtype;
    case ATTR_STRING: *out_size = attr->s.size; return attr->s.data;
    case ATTR_INTS: *out_size = count * sizeof *attr->ints; return attr->ints;
    case ATTR_FLOATS: *out_size = count * sizeof *attr->floats; return attr->floats;
    case ATTR_DIMS: *out_size = count * sizeof *attr->dims; return attr->dims;
    case ATTR_TENSOR: *out_size = sizeof attr->tensor; return &attr->tensor;
    case ATTR_TENSORS: *out_size = count * sizeof *attr->tensors; return attr->tensors;
    case ATTR_STRINGS: *out_size = 0; return NULL;
    }
    *out_size = 0;
    return NULL;
}

static bool same_strings(const Attr *a, const Attr *b) {
    for (int i = 0; i < a->count; i++)
        if (a->strings[i].size != b->strings[i].size ||
            (a->strings[i].size && memcmp(a->strings[i].data, b->strings[i].data, a->strings[i].size) != 0))
            return false;
    return true;
}

bool attr_equal(const Attr *a, const Attr *b) {
    size_t size_a, size_b;
    const void *data_a = attr_data(a, &size_a), *data_b = attr_data(b, &size_b);
    if (a->kind != b->kind || a->count != b->count || size_a != size_b) return false;
    if (a->kind == ATTR_STRINGS) return same_strings(a, b);
    return !size_a || memcmp(data_a, data_b, size_a) == 0;
}

bool node_same_attrs(const Node *a, const Node *b) {
    if (a->attrs.count != b->attrs.count) return false;
    for (int i = 0; i < a->attrs.count; i++) {
        const Attr *other = node_attr(b, a->attrs.items[i].name);
        if (!other || !attr_equal(&a->attrs.items[i], other)) return false;
    }
    return true;
}

int64_t attr_int(const Node *node, const char *name, int64_t otherwise) {
    const Attr *attr = node_attr(node, name);
    return attr && attr->kind == ATTR_INT ? attr->i : otherwise;
}

double attr_float(const Node *node, const char *name, double otherwise) {
    const Attr *attr = node_attr(node, name);
    if (attr && attr->kind == ATTR_INT) return (double)attr->i;
    return attr && attr->kind == ATTR_FLOAT ? (double)attr->f : otherwise;
}

const char *attr_string(const Node *node, const char *name, const char *otherwise) {
    const Attr *attr = node_attr(node, name);
    return attr && attr->kind == ATTR_STRING ? attr->s.data : otherwise;
}

DType attr_dtype(const Node *node, const char *name, DType otherwise) {
    const Attr *attr = node_attr(node, name);
    if (attr && attr->kind == ATTR_INT) return attr->i > 0 && attr->i < DTYPE_COUNT ? (DType)attr->i : DT_NONE;
    return attr && attr->kind == ATTR_TYPE ? attr->dtype : otherwise;
}

const int64_t *attr_ints(const Node *node, const char *name, int *out_count) {
    const Attr *attr = node_attr(node, name);
    bool found = attr && attr->kind == ATTR_INTS;
    *out_count = found ? attr->count : 0;
    return found ? attr->ints : NULL;
}

const Dim *const *attr_dims(const Node *node, const char *name, int *out_count) {
    const Attr *attr = node_attr(node, name);
    bool found = attr && attr->kind == ATTR_DIMS;
    *out_count = found ? attr->count : 0;
    return found ? attr->dims : NULL;
}

void node_set_attr(Node *node, Attr attr) {
    Attr *old = (Attr *)node_attr(node, attr.name);
    if (old)
        *old = attr;
    else
        VEC_PUSH(node->graph->arena, node->attrs, attr);
}

void node_set_int(Node *node, const char *name, int64_t value) {
    node_set_attr(node, (Attr){.name = name, .kind = ATTR_INT, .i = value});
}

void node_set_float(Node *node, const char *name, double value) {
    node_set_attr(node, (Attr){.name = name, .kind = ATTR_FLOAT, .f = (float)value});
}

void node_set_string(Node *node, const char *name, const char *value) {
    StringView copy = {arena_string(node->graph->arena, value), strlen(value)};
    node_set_attr(node, (Attr){.name = name, .kind = ATTR_STRING, .s = copy});
}

void node_set_ints(Node *node, const char *name, const int64_t *values, int count) {
    const int64_t *copy = arena_copy(node->graph->arena, values, (size_t)count * sizeof *values);
    node_set_attr(node, (Attr){.name = name, .kind = ATTR_INTS, .count = count, .ints = copy});
}

void node_set_dims(Node *node, const char *name, const Dim *const *values, int count) {
    const Dim *const *copy = arena_copy(node->graph->arena, values, (size_t)count * sizeof *values);
    node_set_attr(node, (Attr){.name = name, .kind = ATTR_DIMS, .count = count, .dims = copy});
}

void node_set_dtype(Node *node, const char *name, DType dtype) {
    node_set_attr(node, (Attr){.name = name, .kind = ATTR_TYPE, .dtype = dtype});
}

/* ---- origins ---- */

enum { FEW_ORIGINS = 16 }; /* up to here comparing all pairs is cheaper than a map */

static bool among(const char *const *names, int count, const char *name) {
    for (int i = 0; i < count; i++)
        if (names[i] == name || strcmp(names[i], name) == 0) return true;
    return false;
}

Origin origin_merge(Arena *arena, const Origin *origins, int count) {
    int total = 0, nonempty = 0, last = 0;
    for (int i = 0; i < count; i++) {
        total += origins[i].count;
        if (origins[i].count) nonempty++, last = i;
    }
    if (nonempty <= 1) return count ? origins[last] : (Origin){0};
    const char **names = ARENA_ARRAY(arena, const char *, total);
    Map seen = map_make(arena);
    int kept = 0;
    for (int i = 0; i < count; i++) {
        for (int k = 0; k < origins[i].count; k++) {
            const char *name = origins[i].names[k];
            if (total <= FEW_ORIGINS ? among(names, kept, name) : map_get(&seen, name) != NULL) continue;
            if (total > FEW_ORIGINS) map_set(&seen, name, (void *)name);
            names[kept++] = name;
        }
    }
    return (Origin){names, kept};
}

void node_add_origin(Node *node, Origin origin) {
    node->origin = origin_merge(node->graph->arena, (Origin[]){node->origin, origin}, 2);
}

const char *node_origin_name(const Node *node) { return node->origin.count ? node->origin.names[0] : node->op; }
