/* SPDX-License-Identifier: Apache-2.0 */
/* The binary form of graphs (store.h). Writer and reader of each thing stand side by side and must agree. */
#include "graph/store.h"
#include "base/plain.h"

#include <stdio.h>

enum {
    INSIDE = 256,      /* most bytes of a tensor's data that stand in the graph itself */
    MOST_SIZES = 65,   /* in each other, */
    MOST_TERMS = 64,   /* of a size, and */
    MOST_FACTORS = 32, /* of a term: as dim.c makes them */
    MOST_ATTRS = 4096,
};

/* --- numbers, bytes ---------------------------------------------------------------------------------------------- */
StoreWriter store_writer(Arena *arena, const DimTable *table, Text *out) {
    return (StoreWriter){
        .arena = arena, .out = out, .table = table, .dims = map_make(arena), .strings = map_make(arena)};
}

StoreReader store_reader(Graph *graph, const void *bytes, size_t size) {
    return (StoreReader){.at = bytes, .end = (const uint8_t *)bytes + size, .graph = graph};
}

bool store_failed(const StoreReader *r) { return r->error != NULL; }

bool store_wrong(StoreReader *r, const char *format, ...) {
    char message[256];
    va_list args;
    va_start(args, format);
    plain_vprint(message, sizeof message, format, args);
    va_end(args);
    if (!r->error) r->error = status_error(STATUS_INVALID, "%s", message);
    r->at = r->end;
    return false;
}

static bool is_cut(StoreReader *r) { return store_wrong(r, "it ends too early"); }

void store_number(StoreWriter *w, uint64_t number) {
    char bytes[10];
    size_t count = 0;
    for (; number >= 0x80; number >>= 7) bytes[count++] = (char)(number | 0x80);
    bytes[count++] = (char)number;
    text_add_bytes(w->out, bytes, count);
}

uint64_t restore_number(StoreReader *r) {
    uint64_t number = 0;
    for (int shift = 0; shift < 64; shift += 7) {
        if (r->at == r->end) return is_cut(r);
        uint8_t byte = *r->at++;
        number |= (uint64_t)(byte & 0x7f) << shift;
        if (!(byte & 0x80)) return number;
    }
    return store_wrong(r, "a number is too long");
}

void store_signed(StoreWriter *w, int64_t number) { store_number(w, (uint64_t)number << 1 ^ (uint64_t)(number >> 63)); }

int64_t restore_signed(StoreReader *r) {
    uint64_t number = restore_number(r);
    return (int64_t)(number >> 1 ^ (~(number & 1) + 1));
}

int restore_int(StoreReader *r, int most) {
    uint64_t number = restore_number(r);
    if (number <= (uint64_t)most) return (int)number;
    return store_wrong(r, "a number is out of range");
}

int restore_count(StoreReader *r, int each) {
    uint64_t number = restore_number(r);
    if (number <= INT32_MAX && number <= (uint64_t)(r->end - r->at) / (uint64_t)each) return (int)number;
    return is_cut(r);
}

void store_bytes(StoreWriter *w, const void *bytes, size_t size) {
    store_number(w, size);
    text_add_bytes(w->out, bytes, size);
}

const void *restore_bytes(StoreReader *r, size_t *out_size) {
    uint64_t size = restore_number(r);
    *out_size = 0;
    if (size > (uint64_t)(r->end - r->at)) is_cut(r);
    if (r->error) return NULL;
    const void *bytes = r->at;
    r->at += size;
    *out_size = (size_t)size;
    return bytes;
}

/* --- strings ----------------------------------------------------------------------------------------------------- */
/* 0: NULL; 1: a new one follows, with its end; 2 + its number. */
void store_string(StoreWriter *w, const char *text) {
    uintptr_t known = text ? (uintptr_t)map_get(&w->strings, text) : 0;
    store_number(w, text && !known ? 1 : known);
    if (!text || known) return;
    map_set(&w->strings, text, (void *)(uintptr_t)(2 + w->string_count++));
    store_bytes(w, text, strlen(text) + 1);
}

/* -1: NULL, or a mistake. */
static int restore_string_number(StoreReader *r) {
    int number = restore_int(r, r->strings.count + 1) - 2;
    if (number != -1) return number < 0 ? -1 : number;
    size_t size;
    const char *text = restore_bytes(r, &size);
    if (!r->error && (!size || memchr(text, 0, size) != text + size - 1)) store_wrong(r, "a string has no end");
    if (r->error) return -1;
    VEC_PUSH(r->graph->arena, r->strings, text);
    VEC_PUSH(r->graph->arena, r->prims, -1);
    return r->strings.count - 1;
}

const char *restore_string(StoreReader *r) {
    int number = restore_string_number(r);
    return number < 0 ? NULL : r->strings.items[number];
}

/* Where one must be. */
static const char *restore_name(StoreReader *r) {
    const char *name = restore_string(r);
    if (!name) store_wrong(r, "a name is missing");
    return name ? name : "";
}

/* --- sizes ------------------------------------------------------------------------------------------------------- */
/* Numbered as strings are. A new one: its terms, each a coefficient and factors, which are a function's number and a
 * symbol's name or two sizes; those have their numbers before it. */
static void store_factor(StoreWriter *w, DimFactor factor) {
    store_number(w, factor.function);
    if (factor.function == DIM_SYMBOL) {
        store_string(w, dim_symbol_name(w->table, factor.symbol));
    } else {
        store_dim(w, factor.a);
        store_dim(w, factor.b);
    }
}

void store_dim(StoreWriter *w, const Dim *dim) {
    uintptr_t known = dim ? (uintptr_t)map_get_id(&w->dims, MAP_POINTER_KEY(dim)) : 0;
    store_number(w, dim && !known ? 1 : known);
    if (!dim || known) return;
    int terms = dim_term_count(dim), factors;
    store_number(w, (uint64_t)terms);
    for (int t = 0; t < terms; t++) {
        store_signed(w, dim_term(dim, t, &factors));
        store_number(w, (uint64_t)factors);
        for (int f = 0; f < factors; f++) store_factor(w, dim_factor(dim, t, f));
    }
    map_set_id(&w->dims, MAP_POINTER_KEY(dim), (void *)(uintptr_t)(2 + w->dim_count++));
}

static const Dim *restore_factor(StoreReader *r) {
    DimTable *table = r->graph->dims;
    DimFunction function = (DimFunction)restore_int(r, DIM_MUL);
    if (function == DIM_SYMBOL) return dim_symbol(table, restore_name(r));
    const Dim *a = restore_dim(r), *b = restore_dim(r);
    if (!a || !b) store_wrong(r, "a part of a size is missing");
    return r->error ? dim_const(table, 1) : dim_apply(table, function, a, b);
}

static const Dim *restore_terms(StoreReader *r) {
    DimTable *table = r->graph->dims;
    const Dim *total = dim_const(table, 0);
    int terms = restore_int(r, MOST_TERMS);
    for (int t = 0; t < terms && !r->error; t++) {
        const Dim *product = dim_const(table, restore_signed(r));
        int factors = restore_int(r, MOST_FACTORS);
        for (int f = 0; f < factors && !r->error; f++) product = dim_mul(table, product, restore_factor(r));
        total = dim_add(table, total, product);
    }
    return total;
}

const Dim *restore_dim(StoreReader *r) {
    int number = restore_int(r, r->dims.count + 1) - 2;
    if (number >= 0) return r->dims.items[number];
    if (number == -2) return NULL;
    if (++r->sizes > MOST_SIZES) store_wrong(r, "sizes in sizes, more than %d deep", MOST_SIZES);
    const Dim *dim = r->error ? NULL : restore_terms(r);
    r->sizes--;
    if (r->error) return NULL;
    VEC_PUSH(r->graph->arena, r->dims, dim);
    return dim;
}

void store_dims(StoreWriter *w, const Dim *const *dims, int count) {
    for (int i = 0; i < count; i++) store_dim(w, dims[i]);
}

const Dim *const *restore_dims(StoreReader *r, int count) {
    const Dim **dims = ARENA_ARRAY(r->graph->arena, const Dim *, count > 0 ? count : 1);
    for (int i = 0; i < count && !r->error; i++)
        if (!(dims[i] = restore_dim(r))) store_wrong(r, "a size is missing");
    return dims;
}

/* --- tensors ------------------------------------------------------------------------------------------------------ */
typedef enum Where { DATA_INSIDE, DATA_ELSEWHERE, DATA_LEFT_OUT } Where;

static void store_strings(StoreWriter *w, const StringView *strings, int64_t count) {
    for (int64_t i = 0; i < count; i++) store_bytes(w, strings[i].data, strings[i].size);
}

static void store_tensor(StoreWriter *w, const Tensor *tensor) {
    size_t bytes = tensor_bytes(tensor);
    store_number(w, tensor->dtype);
    store_number(w, (uint64_t)tensor->rank);
    for (int i = 0; i < tensor->rank; i++) store_number(w, (uint64_t)tensor->dims[i]);
    if (tensor->dtype == DT_STRING) {
        store_strings(w, tensor->data, tensor_count(tensor));
    } else if (bytes <= INSIDE || !w->put_data) {
        store_number(w, DATA_INSIDE);
        store_bytes(w, tensor->data, bytes);
    } else {
        uint64_t place;
        bool kept = w->put_data(w->user, tensor, &place);
        store_number(w, kept ? DATA_ELSEWHERE : DATA_LEFT_OUT);
        if (kept) store_number(w, place);
    }
}

static StringView *restore_strings(StoreReader *r, int64_t count) {
    if (count > r->end - r->at) {
        is_cut(r);
        count = 0;
    }
    StringView *strings = ARENA_ARRAY(r->graph->arena, StringView, count ? count : 1);
    for (int64_t i = 0; i < count && !r->error; i++) {
        size_t size;
        const char *bytes = restore_bytes(r, &size); /* readers of attributes expect an end */
        strings[i] = (StringView){arena_string_n(r->graph->arena, bytes ? bytes : "", size), size};
    }
    return strings;
}

static void *restore_data(StoreReader *r, size_t bytes, Where last) {
    Where where = (Where)restore_int(r, (int)last);
    if (where == DATA_LEFT_OUT && (bytes <= INSIDE || bytes > r->most_left_out))
        store_wrong(r, "a constant of %zu bytes without data", bytes);
    if (where == DATA_LEFT_OUT || r->error) return NULL;
    const void *data = NULL;
    if (where == DATA_ELSEWHERE) {
        uint64_t place = restore_number(r);
        if (!r->error && r->data) data = r->data(r->user, place, bytes);
        if (!data) store_wrong(r, "the data of a constant is not there");
        return (void *)(uintptr_t)data;
    }
    size_t size;
    data = restore_bytes(r, &size);
    if (!r->error && size != bytes) store_wrong(r, "the data of a constant has another size than its shape");
    return r->error ? NULL : arena_copy(r->graph->arena, size ? data : "", size ? size : 1);
}

/* last: DATA_LEFT_OUT where the data may be missing. */
static Tensor *restore_tensor(StoreReader *r, Where last) {
    Tensor *tensor = ARENA_NEW(r->graph->arena, Tensor);
    int64_t count = 0;
    size_t bytes = 0;
    tensor->dtype = (DType)restore_int(r, DTYPE_COUNT - 1);
    tensor->rank = restore_int(r, MAX_RANK);
    for (int i = 0; i < tensor->rank; i++) tensor->dims[i] = (int64_t)restore_number(r);
    Status status = r->error ? NULL : tensor_size_of(tensor->dtype, tensor->rank, tensor->dims, &count, &bytes);
    if (status || (!r->error && tensor->dtype == DT_NONE)) store_wrong(r, "a constant has an impossible shape");
    status_free(status);
    if (r->error) return tensor;
    tensor->data = tensor->dtype == DT_STRING ? restore_strings(r, count) : restore_data(r, bytes, last);
    return tensor;
}

/* --- attributes --- */
static void store_attr(StoreWriter *w, const Attr *attr) {
    store_string(w, attr->name);
    store_number(w, attr->kind);
    if (attr->kind == ATTR_INTS || attr->kind == ATTR_FLOATS || attr->kind == ATTR_STRINGS || attr->kind == ATTR_DIMS ||
        attr->kind == ATTR_TENSORS)
        store_number(w, (uint64_t)attr->count);
    switch (attr->kind) {
    case ATTR_INT: store_signed(w, attr->i); break;
    case ATTR_FLOAT: text_add_bytes(w->out, (const char *)&attr->f, sizeof attr->f); break;
    case ATTR_STRING: store_strings(w, &attr->s, 1); break;
    case ATTR_INTS:
        for (int i = 0; i < attr->count; i++) store_signed(w, attr->ints[i]);
        break;
    case ATTR_FLOATS:
        if (attr->count) text_add_bytes(w->out, (const char *)attr->floats, (size_t)attr->count * sizeof(float));
        break;
    case ATTR_STRINGS: store_strings(w, attr->strings, attr->count); break;
    case ATTR_TENSOR: store_tensor(w, attr->tensor); break;
    case ATTR_DIMS: store_dims(w, attr->dims, attr->count); break;
    case ATTR_TYPE: store_number(w, attr->dtype); break;
    case ATTR_TENSORS:
        for (int i = 0; i < attr->count; i++) store_tensor(w, attr->tensors[i]);
        break;
    }
}

static const float *restore_floats(StoreReader *r, int count) {
    size_t bytes = (size_t)count * sizeof(float);
    if (bytes > (size_t)(r->end - r->at)) is_cut(r);
    if (r->error || !count) return ARENA_ARRAY(r->graph->arena, float, 1);
    r->at += bytes;
    return arena_copy(r->graph->arena, r->at - bytes, bytes);
}

static const int64_t *restore_ints(StoreReader *r, int count) {
    int64_t *ints = ARENA_ARRAY(r->graph->arena, int64_t, count ? count : 1);
    for (int i = 0; i < count && !r->error; i++) ints[i] = restore_signed(r);
    return ints;
}

static const Tensor *const *restore_tensors(StoreReader *r, int count) {
    const Tensor **tensors = ARENA_ARRAY(r->graph->arena, const Tensor *, count ? count : 1);
    for (int i = 0; i < count && !r->error; i++) tensors[i] = restore_tensor(r, DATA_ELSEWHERE);
    return tensors;
}

static Attr restore_attr(StoreReader *r) {
    Attr attr = {.name = restore_name(r)};
    attr.kind = (AttrKind)restore_int(r, ATTR_TENSORS);
    if (r->error) return attr;
    switch (attr.kind) {
    case ATTR_INT: attr.i = restore_signed(r); break;
    case ATTR_FLOAT: attr.f = *restore_floats(r, 1); break;
    case ATTR_STRING: attr.s = *restore_strings(r, 1); break;
    case ATTR_INTS: attr.ints = restore_ints(r, attr.count = restore_count(r, 1)); break;
    case ATTR_FLOATS: attr.floats = restore_floats(r, attr.count = restore_count(r, sizeof(float))); break;
    case ATTR_STRINGS: attr.strings = restore_strings(r, attr.count = restore_count(r, 1)); break;
    case ATTR_TENSOR: attr.tensor = restore_tensor(r, DATA_ELSEWHERE); break;
    case ATTR_DIMS: attr.dims = restore_dims(r, attr.count = restore_count(r, 1)); break;
    case ATTR_TYPE: attr.dtype = (DType)restore_int(r, DTYPE_COUNT - 1); break;
    case ATTR_TENSORS: attr.tensors = restore_tensors(r, attr.count = restore_count(r, 1)); break;
    }
    return attr;
}

/* --- values --- */
/* Ranks begin at -2. Content: 0, or 1 + how many sizes. */
static int content_count(const Value *value) {
    int64_t count = 1;
    if (!value->content || value->rank > 1 || value->rank < 0) return -1;
    if (value->rank && !dim_is_const(value->dims[0], &count)) return -1;
    return (int)count;
}

static void store_value(StoreWriter *w, const Value *value) {
    int content = content_count(value);
    store_string(w, value->name);
    store_number(w, value->kind);
    store_number(w, value->dtype);
    store_number(w, value->key);
    store_number(w, (uint64_t)(value->rank + 2));
    store_dims(w, value->dims, value->rank);
    store_number(w, (uint64_t)(content + 1));
    store_dims(w, value->content, content);
}

static Value *restore_value(StoreReader *r, Graph *graph) {
    const char *name = restore_name(r);
    ValueKind kind = (ValueKind)restore_int(r, VALUE_MAP_SEQUENCE);
    DType dtype = (DType)restore_int(r, DTYPE_COUNT - 1), key = (DType)restore_int(r, DTYPE_COUNT - 1);
    int rank = restore_int(r, MAX_RANK + 2) - 2;
    const Dim *const *dims = restore_dims(r, rank);
    int64_t content = restore_count(r, 1) - 1, expected = 1;
    if (r->error) rank = 0;
    Value *value = graph_add_value(graph, name, dtype, rank, dims);
    value->kind = kind;
    value->key = key;
    if (content < 0 || r->error) return value;
    const Dim *const *sizes = restore_dims(r, (int)content);
    if (rank < 0 || rank > 1 || (rank && !dim_is_const(dims[0], &expected)) || content != expected)
        store_wrong(r, "elements that do not fit their type");
    if (!r->error) value->content = arena_copy(r->graph->arena, sizes, (size_t)(content ? content : 1) * sizeof *sizes);
    return value;
}

/* --- graphs --- */
/* A graph's values are numbered as they are written: inputs, constants, outputs of nodes. Operands are 1 + the number,
 * 0 where there is none. */
typedef struct Written {
    StoreWriter *w;
    const Graph *graph;
    Map numbers; /* value -> 1 + its number */
    int count;
} Written;

static void number_value(Written *g, const Value *value) {
    map_set_id(&g->numbers, MAP_POINTER_KEY(value), (void *)(uintptr_t)++g->count);
}

static void store_operand(Written *g, const Value *value) {
    store_number(g->w, value ? (uintptr_t)map_get_id(&g->numbers, MAP_POINTER_KEY(value)) : 0);
}

static bool is_used_constant(const Value *value) { return value->constant && !value->producer && value_is_read(value); }

static void store_constants(Written *g) {
    int count = 0;
    for (int i = 0; i < g->graph->values.count; i++) count += is_used_constant(g->graph->values.items[i]);
    store_number(g->w, (uint64_t)count);
    for (int i = 0; i < g->graph->values.count; i++) {
        const Value *value = g->graph->values.items[i];
        if (!is_used_constant(value)) continue;
        store_string(g->w, value->name);
        store_tensor(g->w, value->constant);
        number_value(g, value);
    }
}

static Status store_nodes(StoreWriter *w, const Graph *graph);

static Status store_host(StoreWriter *w, const Node *node) {
    const char *name = NULL;
    if (node->kind == NODE_HOST && node->host) {
        name = w->host_name ? w->host_name(w->user, node) : NULL;
        if (!name)
            return status_error(STATUS_UNSUPPORTED, "node \"%s\" (%s): its kernel has no name that could be written",
                                node_origin_name(node), node->op);
    }
    store_string(w, name);
    return NULL;
}

static Status store_node(Written *g, const Node *node) {
    StoreWriter *w = g->w;
    store_number(w, node->kind);
    store_string(w, node->op);
    store_string(w, node->domain);
    store_number(w, (uint64_t)node->opset);
    TRY(store_host(w, node));
    store_number(w, (uint64_t)node->input_count);
    for (int i = 0; i < node->input_count; i++) store_operand(g, node->inputs[i]);
    store_number(w, (uint64_t)node->captures);
    store_number(w, node->on_host);
    store_number(w, (uint64_t)node->attrs.count);
    for (int i = 0; i < node->attrs.count; i++) store_attr(w, &node->attrs.items[i]);
    store_number(w, (uint64_t)node->origin.count);
    for (int i = 0; i < node->origin.count; i++) store_string(w, node->origin.names[i]);
    store_number(w, (uint64_t)node->subgraph_count);
    for (int i = 0; i < node->subgraph_count; i++) TRY(store_nodes(w, node->subgraphs[i]));
    store_number(w, (uint64_t)node->output_count);
    for (int i = 0; i < node->output_count; i++) {
        store_number(w, node->outputs[i] != NULL);
        if (!node->outputs[i]) continue;
        store_value(w, node->outputs[i]);
        number_value(g, node->outputs[i]);
    }
    return NULL;
}

static Status store_nodes(StoreWriter *w, const Graph *graph) {
    Written g = {.w = w, .graph = graph, .numbers = map_make(w->arena)};
    store_string(w, graph->name);
    store_number(w, (uint64_t)graph->inputs.count);
    for (int i = 0; i < graph->inputs.count; i++) {
        store_value(w, graph->inputs.items[i]);
        number_value(&g, graph->inputs.items[i]);
    }
    store_constants(&g);
    store_number(w, (uint64_t)graph->node_count);
    FOR_EACH_NODE(node, graph) TRY(store_node(&g, node));
    store_number(w, (uint64_t)graph->outputs.count);
    for (int i = 0; i < graph->outputs.count; i++) {
        store_operand(&g, graph->outputs.items[i]);
        store_string(w, graph->output_names.items[i]);
    }
    store_number(w, (uint64_t)graph->kept.count);
    for (int i = 0; i < graph->kept.count; i++) {
        store_number(w, graph->kept.items[i].form);
        store_number(w, (uint64_t)(graph->kept.items[i].axis + 1));
        store_signed(w, graph->kept.items[i].capacity);
    }
    return NULL;
}

typedef struct Restored {
    Graph *graph;
    VEC(Value *) values;
} Restored;

static void keep(Restored *g, Value *value) { VEC_PUSH(g->graph->arena, g->values, value); }

static Value *restore_operand(StoreReader *r, const Restored *g) {
    int number = restore_int(r, g->values.count);
    return number ? g->values.items[number - 1] : NULL;
}

static bool restore_nodes(StoreReader *r, Graph *graph);

static void restore_constants(StoreReader *r, Restored *g) {
    int count = restore_count(r, 4);
    for (int i = 0; i < count && !r->error; i++) {
        const char *name = restore_name(r);
        Tensor *tensor = restore_tensor(r, DATA_LEFT_OUT);
        if (!r->error) keep(g, graph_add_constant(g->graph, name, tensor));
    }
}

static Prim restored_prim(StoreReader *r, int name) {
    signed char *known = &r->prims.items[name];
    if (*known < 0) *known = (signed char)prim_from_name(r->strings.items[name]);
    return (Prim)*known;
}

/* Its kind, operator and inputs. */
static Node *restore_head(StoreReader *r, Restored *g) {
    NodeKind kind = (NodeKind)restore_int(r, NODE_REGION);
    int op = restore_string_number(r);
    const char *domain = restore_string(r);
    int opset = restore_int(r, INT32_MAX);
    const char *host = restore_string(r);
    int count = restore_count(r, 1);
    Value **inputs = ARENA_ARRAY(g->graph->arena, Value *, count ? count : 1);
    for (int i = 0; i < count; i++) inputs[i] = restore_operand(r, g);
    if (r->error || op < 0) return store_wrong(r, "a node without an operator"), NULL;
    Prim prim = kind == NODE_PRIM ? restored_prim(r, op) : PRIM_NONE;
    const char *name = r->strings.items[op];
    if (kind == NODE_PRIM && prim == PRIM_NONE) return store_wrong(r, "no primitive is called %.60s", name), NULL;
    Node *node = kind == NODE_PRIM ? graph_add_prim(g->graph, NULL, prim, inputs, count)
                                   : graph_add_node(g->graph, NULL, kind, name, inputs, count);
    node->domain = domain;
    node->opset = opset;
    if ((kind == NODE_HOST || kind == NODE_ONNX) != (domain != NULL)) store_wrong(r, "a node of no domain");
    if (host && (kind != NODE_HOST || !r->host || !(node->host = r->host(r->user, host, node))))
        store_wrong(r, "there is no kernel \"%.100s\"", host);
    return node;
}

static void restore_rest(StoreReader *r, Restored *g, Node *node) {
    node->captures = restore_int(r, node->input_count);
    node->on_host = restore_int(r, 1) != 0;
    int attrs = restore_count(r, 2);
    if (attrs > MOST_ATTRS) store_wrong(r, "more than %d attributes", MOST_ATTRS);
    for (int i = 0; i < attrs && !r->error; i++) {
        Attr attr = restore_attr(r);
        if (!r->error) VEC_PUSH(g->graph->arena, node->attrs, attr);
    }
    int origins = restore_count(r, 1);
    const char **names = ARENA_ARRAY(g->graph->arena, const char *, origins ? origins : 1);
    for (int i = 0; i < origins && !r->error; i++) names[i] = restore_name(r);
    node->origin = (Origin){names, origins};
    int subgraphs = restore_count(r, 1);
    for (int i = 0; i < subgraphs && !r->error; i++) {
        Graph *inner = graph_sub(g->graph, "");
        restore_nodes(r, inner);
        node_add_subgraph(node, inner);
    }
    int outputs = restore_count(r, 1);
    for (int i = 0; i < outputs && !r->error; i++) {
        Value *value = restore_int(r, 1) ? restore_value(r, g->graph) : NULL;
        node_attach_output(node, value);
        if (value) keep(g, value);
    }
}

static bool restore_nodes(StoreReader *r, Graph *graph) {
    Restored g = {.graph = graph};
    if (++r->nesting > GRAPH_MOST_NESTING) return store_wrong(r, "graphs nested more than %d deep", GRAPH_MOST_NESTING);
    graph->name = restore_name(r);
    int inputs = restore_count(r, 4);
    for (int i = 0; i < inputs && !r->error; i++) {
        Value *value = restore_value(r, graph);
        VEC_PUSH(graph->arena, graph->inputs, value);
        keep(&g, value);
    }
    restore_constants(r, &g);
    int nodes = restore_count(r, 8);
    for (int i = 0; i < nodes && !r->error; i++) {
        Node *node = restore_head(r, &g);
        if (!r->error) restore_rest(r, &g, node);
    }
    int outputs = restore_count(r, 2);
    for (int i = 0; i < outputs && !r->error; i++) {
        Value *value = restore_operand(r, &g);
        const char *name = restore_name(r);
        if (!value) store_wrong(r, "an output is missing");
        if (!r->error) graph_add_named_output(graph, value, name);
    }
    int kept = restore_count(r, 3);
    if (kept > graph->inputs.count || kept > graph->outputs.count) store_wrong(r, "more states than inputs or outputs");
    for (int i = 0; i < kept && !r->error; i++) {
        GraphKept k = {.input = graph->inputs.count - kept + i, .output = graph->outputs.count - kept + i};
        k.form = (KeptForm)restore_int(r, KEPT_APPENDED);
        k.axis = restore_int(r, MAX_RANK) - 1;
        k.capacity = restore_signed(r);
        VEC_PUSH(graph->arena, graph->kept, k);
    }
    r->nesting--;
    return !r->error;
}

/* --- the model --- */
Status store_graph(StoreWriter *w, const Graph *graph) {
    const ModelInfo *info = graph->info;
    store_signed(w, info->ir_version);
    store_string(w, info->producer);
    store_string(w, info->doc);
    store_number(w, (uint64_t)info->opsets.count);
    for (int i = 0; i < info->opsets.count; i++) {
        store_string(w, info->opsets.items[i].domain);
        store_signed(w, info->opsets.items[i].version);
    }
    store_number(w, (uint64_t)info->metadata.count);
    for (int i = 0; i < info->metadata.count; i++) {
        store_string(w, info->metadata.items[i].key);
        store_string(w, info->metadata.items[i].value);
    }
    return store_nodes(w, graph);
}

static void restore_info(StoreReader *r, ModelInfo *info) {
    Arena *arena = r->graph->arena;
    info->ir_version = restore_signed(r);
    info->producer = restore_name(r);
    info->doc = restore_name(r);
    int opsets = restore_count(r, 2);
    for (int i = 0; i < opsets && !r->error; i++) {
        OpsetImport import = {.domain = restore_name(r)};
        import.version = restore_signed(r);
        VEC_PUSH(arena, info->opsets, import);
    }
    int metadata = restore_count(r, 2);
    for (int i = 0; i < metadata && !r->error; i++) {
        Metadata entry = {.key = restore_name(r)};
        entry.value = restore_name(r);
        VEC_PUSH(arena, info->metadata, entry);
    }
}

Status restore_graph(StoreReader *r) {
    restore_info(r, r->graph->info);
    restore_nodes(r, r->graph);
    Status status = r->error;
    r->error = NULL;
    return status;
}
