/* SPDX-License-Identifier: Apache-2.0 */
/* How the builder makes a node: equal nodes are made once, constants are folded, integer data that only computes sizes
 * becomes symbolic content. What is left is put before the node being lowered. */
#include "lowering/build_internal.h"

#include "graph/eval/eval.h"
#include "graph/constants/unread.h"

/* --- descriptions ------------------------------------------------------------------------------------------------ */

static void spec_add(NodeSpec *spec, Attr attr) { spec->attrs[spec->attr_count++] = attr; }

void spec_int(NodeSpec *spec, const char *name, int64_t value) {
    spec_add(spec, (Attr){.name = name, .kind = ATTR_INT, .i = value});
}

void spec_ints(NodeSpec *spec, const char *name, const int64_t *values, int count) {
    spec_add(spec, (Attr){.name = name, .kind = ATTR_INTS, .count = count, .ints = values});
}

void spec_dims(NodeSpec *spec, const char *name, const Dim *const *values, int count) {
    spec_add(spec, (Attr){.name = name, .kind = ATTR_DIMS, .count = count, .dims = values});
}

void spec_dtype(NodeSpec *spec, const char *name, DType dtype) {
    spec_add(spec, (Attr){.name = name, .kind = ATTR_TYPE, .dtype = dtype});
}

void spec_string(NodeSpec *spec, const char *name, const char *value) {
    spec_add(spec, (Attr){.name = name, .kind = ATTR_STRING, .s = {value, strlen(value)}});
}

void spec_shape(NodeSpec *spec, int rank, const Dim *const *dims) {
    spec->rank = rank;
    if (rank > 0) memcpy(spec->dims, dims, (size_t)rank * sizeof *dims);
}

/* --- what has been made already ------------------------------------------------------------------------------- */

typedef struct Seen {
    struct Seen *next; /* of the same hash */
    Value *value;
    int group; /* of the node: what is to be one kernel shares nothing with its surroundings */
    int16_t prim;
    uint8_t dtype, rank;
    int input_count, attr_count;
    Value **inputs;
    Attr attrs[];
} Seen;

/* Constants and sizes are no part of a kernel. */
static int group_of(const Lowering *l, const NodeSpec *spec) {
    return l->node && spec->prim != PRIM_NONE && spec->prim != PRIM_DIMS ? l->node->group : 0;
}

static Arena *scratch(const Lowering *l) { return l->scratch ? l->scratch : l->arena; }

/* The lowering's maps, made on first use: nodes by hash, sizes that stand as dims, symbols bound from a value,
 * what is made of constants alone. */
enum { MAP_NODES, MAP_SIZES, MAP_BOUND, MAP_CONSTANT, MAP_COUNT };

static Map *map_of(Lowering *l, int which) {
    if (!l->seen) {
        l->seen = ARENA_ARRAY(scratch(l), Map, MAP_COUNT);
        for (int i = 0; i < MAP_COUNT; i++) l->seen[i] = map_make(scratch(l));
    }
    return &l->seen[which];
}

void note_size(Lowering *l, const Dim *size) {
    if (!dim_is_const(size, NULL)) map_set_id(map_of(l, MAP_SIZES), MAP_POINTER_KEY(size), l->graph);
}

bool size_is_natural(Lowering *l, const Dim *size) {
    int64_t number;
    if (dim_is_const(size, &number)) return number >= 0;
    return dim_symbol_index(size) >= 0 || map_get_id(map_of(l, MAP_SIZES), MAP_POINTER_KEY(size)) ||
           dim_max(l->dims, size, dim_const(l->dims, 0)) == size;
}

const Dim *const *bound_sizes(Lowering *l, const Value *value) {
    return map_get_id(map_of(l, MAP_BOUND), MAP_POINTER_KEY(value));
}

void note_bound_sizes(Lowering *l, const Value *value, const Dim *const *symbols) {
    map_set_id(map_of(l, MAP_BOUND), MAP_POINTER_KEY(value), (void *)symbols);
}

static bool same_spec(const Seen *a, const NodeSpec *b) {
    if (a->prim != (int)b->prim || a->input_count != b->input_count || a->attr_count != b->attr_count ||
        a->dtype != b->dtype || a->rank != b->rank)
        return false;
    for (int i = 0; i < a->input_count; i++)
        if (a->inputs[i] != b->inputs[i]) return false;
    for (int i = 0; i < a->attr_count; i++)
        if (strcmp(a->attrs[i].name, b->attrs[i].name) != 0 || !attr_equal(&a->attrs[i], &b->attrs[i])) return false;
    return true;
}

static uint64_t hash_spec(const NodeSpec *spec) {
    uint64_t hash = (uint64_t)spec->prim * 64 + spec->dtype;
    if (spec->input_count) hash = hash_bytes(spec->inputs, (size_t)spec->input_count * sizeof *spec->inputs, hash);
    for (int i = 0; i < spec->attr_count; i++) {
        size_t size;
        const void *data = attr_data(&spec->attrs[i], &size);
        if (size) hash = hash_bytes(data, size, hash);
    }
    return hash;
}

static Attr copy_attr(Arena *arena, const Attr *attr) {
    Attr copy = *attr;
    size_t size;
    const void *data = attr_data(attr, &size);
    switch (attr->kind) {
    case ATTR_STRING: copy.s.data = arena_string_n(arena, attr->s.data, size); break;
    case ATTR_INTS: copy.ints = arena_copy(arena, data, size); break;
    case ATTR_FLOATS: copy.floats = arena_copy(arena, data, size); break;
    case ATTR_DIMS: copy.dims = arena_copy(arena, data, size); break;
    default: break;
    }
    return copy;
}

static void remember(Lowering *l, const NodeSpec *spec, uint64_t hash, Value *value) {
    size_t inputs = (size_t)spec->input_count * sizeof *spec->inputs;
    Seen *seen = arena_alloc_struct(scratch(l), sizeof *seen + (size_t)spec->attr_count * sizeof *spec->attrs + inputs);
    *seen = (Seen){.next = map_get_id(map_of(l, MAP_NODES), hash),
                   .value = value,
                   .group = group_of(l, spec),
                   .prim = (int16_t)spec->prim,
                   .dtype = (uint8_t)spec->dtype,
                   .rank = (uint8_t)spec->rank,
                   .input_count = spec->input_count,
                   .attr_count = spec->attr_count};
    for (int i = 0; i < spec->attr_count; i++) seen->attrs[i] = copy_attr(scratch(l), &spec->attrs[i]);
    seen->inputs = (Value **)(void *)&seen->attrs[spec->attr_count];
    if (inputs) memcpy(seen->inputs, spec->inputs, inputs);
    map_set_id(map_of(l, MAP_NODES), hash, seen);
}

static Value *find_seen(Lowering *l, const NodeSpec *spec, uint64_t hash) {
    for (Seen *seen = map_get_id(map_of(l, MAP_NODES), hash); seen; seen = seen->next)
        if (seen->group == group_of(l, spec) && !seen->value->gone && same_spec(seen, spec)) return seen->value;
    return NULL;
}

/* --- constants ----------------------------------------------------------------------------------------------- */

enum { INTERNED_BYTES = 512 }; /* constants up to here are compared by their bytes, so that equal ones are one value */

/* The interned constant is described as a node without inputs whose attribute holds the bytes. */
Value *constant(Lowering *l, Tensor *tensor) {
    if (l->error) return NULL;
    size_t bytes = tensor_bytes(tensor);
    if (bytes > INTERNED_BYTES || tensor->dtype == DT_STRING) return graph_add_constant(l->graph, NULL, tensor);
    NodeSpec spec = {.dtype = tensor->dtype, .rank = tensor->rank};
    spec_ints(&spec, "dims", tensor->dims, tensor->rank);
    spec_add(&spec, (Attr){.name = "data", .kind = ATTR_STRING, .s = {tensor->data, bytes}});
    uint64_t hash = hash_spec(&spec);
    Value *value = find_seen(l, &spec, hash);
    if (value) return value;
    value = graph_add_constant(l->graph, NULL, tensor);
    remember(l, &spec, hash, value);
    return value;
}

static bool dims_are_const(const Dim *const *dims, int count, int64_t *out_values) {
    for (int i = 0; i < count; i++)
        if (!dim_is_const(dims[i], out_values ? &out_values[i] : NULL)) return false;
    return true;
}

static bool attrs_are_const(const NodeSpec *spec) {
    for (int i = 0; i < spec->attr_count; i++)
        if (spec->attrs[i].kind == ATTR_DIMS && !dims_are_const(spec->attrs[i].dims, spec->attrs[i].count, NULL))
            return false;
    return true;
}

/* A constant is stored when it is small or no larger than what it is computed from; else it is cheaper to compute it
 * where it is used. */
static bool worth_storing(const NodeSpec *spec, int64_t count, size_t bytes) {
    const bool gathers = spec->prim == PRIM_GATHER || spec->prim == PRIM_GATHER_ELEMENTS;
    if (bytes <= (gathers ? GATHER_LIMIT : GROWTH_LIMIT)) return true;
    if (bytes > FOLD_LIMIT) return false;
    int64_t read = 0;
    for (int i = 0; i < spec->input_count; i++) read += tensor_count(spec->inputs[i]->constant);
    return count <= (spec->prim == PRIM_PAD ? 4 * read : read);
}

static Value *fold_reshape(Lowering *l, const NodeSpec *spec, const int64_t *dims) {
    Tensor *tensor = ARENA_NEW(l->arena, Tensor);
    *tensor = (Tensor){.dtype = spec->dtype, .rank = spec->rank, .data = spec->inputs[0]->constant->data};
    if (spec->rank) memcpy(tensor->dims, dims, (size_t)spec->rank * sizeof *dims);
    return constant(l, tensor);
}

Tensor *aligned_constant(Lowering *l, const Value *value) {
    Tensor *tensor = value->constant;
    if (tensor_is_aligned(tensor)) return tensor;
    tensor = arena_copy(scratch(l), tensor, sizeof *tensor);
    tensor_align(scratch(l), tensor);
    return tensor;
}

void release_aligned(Lowering *l, const Value *value, const Tensor *aligned) {
    if (aligned != value->constant) arena_free_large(scratch(l), aligned->data, tensor_bytes(aligned));
}

/* Whether the evaluator reads its operands at any address. */
static bool takes_unaligned(const NodeSpec *spec) {
    PrimClass klass = prim_info(spec->prim)->klass;
    return klass == PRIM_CLASS_UNARY || klass == PRIM_CLASS_BINARY;
}

/* For work that is worth other threads; NULL: none. */
static Pool *pool_for_work(const Lowering *l, size_t bytes) {
    enum { LARGE = 1 << 18 };
    Pool *pool = NULL;
    if (bytes >= LARGE && l->policy) status_free(policy_pool(l->policy, &pool)); /* without one: in this thread */
    return pool;
}

/* One number throughout, computed once and repeated: of inputs that are too large for a stored result. NULL: they are not
 * such, or fold() computes it as well. */
static Value *fold_splats(Lowering *l, const NodeSpec *spec) {
    double number;
    Value *inputs[3];
    if (!prim_is_elementwise(spec->prim) || spec->rank == 0 || spec->input_count > 3) return NULL;
    for (int i = 0; i < spec->input_count; i++)
        if (!is_splat(spec->inputs[i], &number)) return NULL;
    for (int i = 0; i < spec->input_count; i++) {
        const Tensor *whole = spec->inputs[i]->constant;
        Tensor *first = tensor_new_unset(l->arena, whole->dtype, 0, NULL);
        memcpy(first->data, whole->data, dtype_size(whole->dtype));
        inputs[i] = constant(l, first);
    }
    NodeSpec one = *spec;
    one.inputs = inputs;
    one.rank = 0;
    return expand(l, emit(l, &one), spec->dims, spec->rank);
}

Value *fold(Lowering *l, const NodeSpec *spec) {
    if (spec->prim == PRIM_PHILOX || spec->prim == PRIM_DIMS) return NULL;
    for (int i = 0; i < spec->input_count; i++)
        if (!spec->inputs[i]->constant) return NULL;
    int64_t dims[MAX_RANK], count;
    size_t bytes;
    if (!dims_are_const(spec->dims, spec->rank, dims) || !attrs_are_const(spec)) return NULL;
    Status status = tensor_size_of(spec->dtype, spec->rank, dims, &count, &bytes);
    if (status) {
        status_free(status);
        return NULL;
    }
    if (spec->prim == PRIM_RESHAPE) return fold_reshape(l, spec, dims);
    if (!worth_storing(spec, count, bytes)) return fold_splats(l, spec);
    Value result = {.name = "", .dtype = spec->dtype, .rank = spec->rank, .dims = (const Dim **)spec->dims};
    Value *outputs[] = {&result};
    Node node = {.kind = NODE_PRIM,
                 .prim = spec->prim,
                 .op = prim_info(spec->prim)->name,
                 .inputs = (Value **)spec->inputs,
                 .input_count = spec->input_count,
                 .outputs = outputs,
                 .output_count = 1,
                 .graph = l->graph};
    result.producer = &node;
    node.attrs.items = (Attr *)spec->attrs;
    node.attrs.count = node.attrs.capacity = spec->attr_count;
    if (l->node) node.origin = l->node->origin;
    Tensor *tensor = NULL, **inputs = ARENA_ARRAY(scratch(l), Tensor *, spec->input_count);
    for (int i = 0; i < spec->input_count; i++)
        inputs[i] = takes_unaligned(spec) ? spec->inputs[i]->constant : aligned_constant(l, spec->inputs[i]);
    Arena *arena = l->chain && bytes > INTERNED_BYTES ? l->chain : l->arena;
    l->error = eval_prim_on(pool_for_work(l, bytes), &node, inputs, NULL, arena, &tensor);
    for (int i = 0; i < spec->input_count; i++) {
        release_aligned(l, spec->inputs[i], inputs[i]);
        /* Mostly it was read for this alone, and would be held beside what has become of it. */
        graph_forget(l->graph, spec->inputs[i]->constant);
    }
    if (l->error) return NULL;
    if (arena == l->graph->arena) graph_note_made(l->graph, tensor);
    return constant(l, tensor);
}

void chain_begin(Lowering *l) {
    l->chain = arena_create_inside(l->graph->arena);
    l->chain_first = l->graph->values.count;
}

Value *chain_end(Lowering *l, Value *result) {
    Arena *chain = l->chain;
    l->chain = NULL;
    for (int i = l->chain_first; i < l->graph->values.count; i++) {
        Value *value = l->graph->values.items[i];
        const Tensor *made = value->constant;
        if (!made || !arena_holds(chain, made->data)) continue;
        value->constant = NULL;
        if (value != result && !value_is_read(value)) continue;
        value->constant = arena_copy(l->arena, made, sizeof *made);
        value->constant->data = arena_copy(l->graph->arena, made->data, tensor_bytes(made));
        graph_note_made(l->graph, value->constant);
    }
    arena_destroy(chain);
    return result;
}

/* --- sizes known without running anything -------------------------------------------------------------------- */

bool is_of_constants(Lowering *l, const Value *value) {
    return value->constant || map_get_id(map_of(l, MAP_CONSTANT), MAP_POINTER_KEY(value));
}

/* Noted as values are made, inputs before results, so that nobody has to search. */
static Value *note_constant(Lowering *l, const NodeSpec *spec, Value *value) {
    bool all = spec->input_count > 0;
    for (int i = 0; all && i < spec->input_count; i++) all = is_of_constants(l, spec->inputs[i]);
    if (all) map_set_id(map_of(l, MAP_CONSTANT), MAP_POINTER_KEY(value), value);
    return value;
}

static Value *emit_node(Lowering *l, const NodeSpec *spec) {
    Node *node = graph_add_prim(l->graph, builder_place(l), spec->prim, spec->inputs, spec->input_count);
    for (int i = 0; i < spec->attr_count; i++) node_set_attr(node, copy_attr(l->arena, &spec->attrs[i]));
    if (l->node) node->origin = l->node->origin;
    if (l->node) node_follow_rules(node, l->node);
    node->backward |= l->elsewhere;
    for (int i = 0; i < spec->rank; i++) note_size(l, spec->dims[i]);
    return note_constant(l, spec, node_add_output(node, NULL, spec->dtype, spec->rank, spec->dims));
}

static Value *emit_once(Lowering *l, const NodeSpec *spec) {
    uint64_t hash = hash_spec(spec);
    Value *value = find_seen(l, spec, hash);
    if (value) return value;
    value = emit_node(l, spec);
    remember(l, spec, hash, value);
    return value;
}

static Value *with_content(Lowering *l, Value *value, const Dim *const *content, int count) {
    if (!value->content && !value->constant)
        value->content = arena_copy(l->arena, content, (size_t)(count ? count : 1) * sizeof *content);
    return value;
}

Value *emit_content(Lowering *l, const Dim *const *content, int count, int rank, DType dtype) {
    int64_t numbers[MAX_CONTENT];
    if (count <= MAX_CONTENT && dims_are_const(content, count, numbers)) {
        Tensor *tensor = tensor_new(l->arena, dtype, rank, (const int64_t[]){count});
        for (int i = 0; i < count; i++) dtype_store_int(dtype, tensor->data, i, numbers[i]);
        return constant(l, tensor);
    }
    NodeSpec spec = {.prim = PRIM_DIMS, .dtype = DT_I64, .rank = 1, .dims = {dim_const(l->dims, count)}};
    spec_dims(&spec, "shape", content, count);
    Value *value = with_content(l, emit_once(l, &spec), content, count);
    if (rank == 0) {
        NodeSpec scalar_spec = {.prim = PRIM_RESHAPE, .inputs = &value, .input_count = 1, .dtype = DT_I64};
        spec_dims(&scalar_spec, "shape", NULL, 0);
        value = with_content(l, emit_once(l, &scalar_spec), content, count);
    }
    if (dtype != DT_I64) {
        NodeSpec cast_spec = {.prim = PRIM_CAST, .inputs = &value, .input_count = 1, .dtype = dtype};
        spec_shape(&cast_spec, value->rank, value->dims);
        spec_dtype(&cast_spec, "to", dtype);
        value = with_content(l, emit_once(l, &cast_spec), content, count);
    }
    return value;
}

static bool may_have_content(const NodeSpec *spec, int64_t *out_count) {
    *out_count = 1;
    return spec->prim != PRIM_DIMS && (spec->dtype == DT_I64 || spec->dtype == DT_I32) && spec->rank <= 1 &&
           (spec->rank == 0 || dim_is_const(spec->dims[0], out_count)) && *out_count <= MAX_CONTENT;
}

static Value *known_result(Lowering *l, const NodeSpec *spec) {
    int64_t count;
    const Dim *content[MAX_CONTENT];
    if (may_have_content(spec, &count))
        return infer_content(l, spec, content) ? emit_content(l, content, (int)count, spec->rank, spec->dtype) : NULL;
    bool results[MAX_CONTENT];
    if (prim_info(spec->prim)->klass != PRIM_CLASS_COMPARE || spec->rank > 1 || !infer_comparison(l, spec, results))
        return NULL;
    int64_t dims[1];
    dims_are_const(spec->dims, spec->rank, dims);
    Tensor *tensor = tensor_new(l->arena, DT_BOOL, spec->rank, dims);
    memcpy(tensor->data, results, (size_t)tensor_count(tensor));
    return constant(l, tensor);
}

static bool sizes_are_valid(Lowering *l, const NodeSpec *spec) {
    int64_t size;
    for (int i = 0; i < spec->rank; i++)
        if (dim_is_const(spec->dims[i], &size) && size < 0) {
            invalid(l, "the result would have a negative size: %s", shape_text(l, spec->dims, spec->rank));
            return false;
        }
    return true;
}

Value *emit(Lowering *l, const NodeSpec *spec) {
    if (l->error || !present(l, spec->inputs, spec->input_count) || !sizes_are_valid(l, spec)) return NULL;
    uint64_t hash = hash_spec(spec);
    Value *value = find_seen(l, spec, hash);
    if (value) return value;
    value = fold(l, spec);
    if (!value && !l->error) value = known_result(l, spec);
    if (l->error) return NULL;
    if (!value) value = emit_node(l, spec);
    if (!l->chain || !value->constant) remember(l, spec, hash, value); /* it may not be there for long */
    return value;
}
