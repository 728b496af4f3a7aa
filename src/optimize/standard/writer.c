/* SPDX-License-Identifier: Apache-2.0 */
/* Nodes, constants and sizes of the target. */
#include "optimize/standard/writer.h"

#include "base/plain.h"
#include "optimize/schema.h"

Writer writer_make(Graph *target, int opset) {
    Arena *a = target->arena;
    return (Writer){.arena = a,
                    .table = target->dims,
                    .target = target,
                    .opset = opset,
                    .forms = map_make(a),
                    .constants = map_make(a),
                    .numbers = map_make(a),
                    .found = map_make(a),
                    .sizes = map_make(a),
                    .shapes = map_make(a),
                    .symbols = map_make(a),
                    .captured = map_make(a),
                    .inner = map_make(a),
                    .error = ARENA_NEW(a, Status)};
}

void refuse(Writer *w, const char *format, ...) {
    if (*w->error) return;
    char text[512];
    va_list args;
    va_start(args, format);
    plain_vprint(text, sizeof text, format, args);
    va_end(args);
    *w->error = w->node ? status_error(STATUS_UNSUPPORTED, "node \"%s\"%s: %s", node_origin_name(w->node),
                                       w->node->backward ? " (its gradient)" : "", text)
                        : status_error(STATUS_UNSUPPORTED, "%s", text);
}

/* --- nodes --------------------------------------------------------------------------------------------------------------- */

/* What a result is called: as in the lowered graph, or by the node whose gradient it is a part of. */
static const char *hint_of(const Writer *w) {
    if (w->sizing) return "size";    /* everyone's */
    if (!w->node) return "gradient"; /* one that something else is already */
    if (w->node->backward) return arena_format(w->arena, "%s_grad", node_origin_name(w->node));
    return w->node->output_count && w->node->outputs[0] ? w->node->outputs[0]->name : NULL;
}

Node *write_new_node(Writer *w, const char *op, Value *const *inputs, int count) {
    Node *node = graph_add_node(w->target, w->place, NODE_ONNX, op, inputs, count);
    node->opset = w->opset;
    return node;
}

Value *write_new_result(Writer *w, Node *node, DType dtype) {
    Value *value = node_add_output(node, hint_of(w), dtype, -1, NULL);
    if (node->output_count == 1) {
        const char **name = ARENA_NEW(w->arena, const char *);
        *name = value->name;
        node->origin = (Origin){name, 1};
    }
    return w->made = value;
}

static Value *add(Writer *w, const char *op, DType result, Value *const *inputs, int count, const Attr *attrs,
                  int attr_count) {
    Node *node = write_new_node(w, op, inputs, count);
    for (int i = 0; i < attr_count; i++) {
        Attr attr = attrs[i];
        if (attr.kind == ATTR_INTS)
            node_set_ints(node, attr.name, attr.ints, attr.count);
        else if (attr.kind == ATTR_STRING)
            node_set_string(node, attr.name, attr.s.data);
        else
            node_set_attr(node, attr);
    }
    return write_new_result(w, node, result);
}

/* Types of which ONNX Runtime has kernels where the standard allows more: ONNX Runtime's documentation, docs/OperatorKernels.md,
 * version 1.22, its CPU provider. Operators that are not listed have them all, or are met in none of the others. */
#define BIT(type) (1u << (type))
#define WIDE (BIT(DT_F32) | BIT(DT_F64) | BIT(DT_I32) | BIT(DT_I64))
static const struct {
    const char *op;
    uint32_t types;
} kernels[] = {
    {"CumSum", WIDE},
    {"TopK", WIDE},
    {"Where", WIDE | BIT(DT_U8) | BIT(DT_STRING)},
    {"ReduceSum", WIDE},
    {"ReduceProd", WIDE},
    {"ReduceMax", WIDE | BIT(DT_I8) | BIT(DT_U8) | BIT(DT_BOOL)},
    {"ReduceMin", WIDE | BIT(DT_I8) | BIT(DT_U8) | BIT(DT_BOOL)},
};

static bool has_kernel(const char *op, DType dtype) {
    for (size_t i = 0; i < sizeof kernels / sizeof *kernels; i++)
        if (strcmp(kernels[i].op, op) == 0) return kernels[i].types & BIT(dtype);
    return true;
}

static bool takes(const Schema *schema, int input, DType dtype) {
    return schema_allows(schema_input(schema, input), VALUE_TENSOR, dtype);
}

/* The narrowest type that holds all values of `dtype` and that the operator takes; DT_NONE: there is none. */
static DType wider(const Schema *schema, const char *op, int input, DType dtype) {
    static const DType floats[] = {DT_F32, DT_F64, DT_NONE}, wholes[] = {DT_I32, DT_I64, DT_NONE},
                       bools[] = {DT_U8, DT_I32, DT_NONE};
    const DType *types = dtype_is_float(dtype) ? floats : dtype == DT_BOOL ? bools : wholes;
    for (; *types; types++)
        if ((dtype == DT_BOOL || dtype_size(*types) > dtype_size(dtype)) && takes(schema, input, *types) &&
            has_kernel(op, *types))
            return *types;
    return DT_NONE;
}

Value *convert(Writer *w, Value *a, DType to) {
    if (!a || a->dtype == to || *w->error) return a;
    Attr attr = int_attr("to", to);
    return add(w, "Cast", to, &a, 1, &attr, 1);
}

/* In which type the operator gets that input; DT_NONE: in none. */
static DType taken_as(const Schema *schema, const char *op, int input, const Value *value, bool is_of_result) {
    DType dtype = value->dtype;
    bool allowed = schema_allows(schema_input(schema, input), value->kind, dtype);
    if (value->kind != VALUE_TENSOR) return allowed ? dtype : DT_NONE;
    if (allowed && (!is_of_result || has_kernel(op, dtype))) return dtype;
    DType other = wider(schema, op, input, dtype);
    if (other == DT_NONE && allowed && dtype == DT_U64 && strcmp(op, "Where") == 0) return DT_I64; /* bits are moved */
    return other || !allowed ? other : dtype;
}

Value *apply(Writer *w, const char *op, DType result, Value *const *inputs, int count, const Attr *attrs,
             int attr_count) {
    const Schema *schema = schema_find(op, w->opset);
    if (*w->error) return NULL;
    if (!schema) return refuse(w, "version %d of the operator set has no %s", w->opset, op), NULL;
    const SchemaValue *first = schema_output(schema, 0);
    Value **taken = ARENA_ARRAY(w->arena, Value *, count);
    DType made = result;
    for (int i = 0; i < count; i++) {
        if (!inputs[i]) continue;
        const SchemaValue *input = schema_input(schema, i);
        bool is_of_result = input && input->variable >= 0 && input->variable == first->variable;
        DType to = input ? taken_as(schema, op, i, inputs[i], is_of_result) : DT_NONE;
        if (to == DT_NONE)
            return refuse(w, "%s of the standard takes no %s%s", op,
                          inputs[i]->kind == VALUE_TENSOR ? "" : "sequences or optionals of ",
                          dtype_onnx_name(inputs[i]->dtype)),
                   NULL;
        taken[i] = convert(w, inputs[i], to);
        if (is_of_result) made = to;
    }
    return convert(w, add(w, op, made, taken, count, attrs, attr_count), result);
}

Value *apply_to_items(Writer *w, const char *op, ValueKind kind, DType result, Value *const *inputs, int count,
                      const Attr *attrs, int attr_count) {
    Value *value = apply(w, op, result, inputs, count, attrs, attr_count);
    if (value) value->kind = kind;
    return value;
}

Value *further_result(Value *first, const char *op, const char *name, DType dtype) {
    Node *node = first->producer;
    while (strcmp(node->op, op) != 0) node = node->inputs[0]->producer;
    return node_add_output(node, name, dtype, -1, NULL);
}

Value *copied(Writer *w, Value *a) {
    if (!a || *w->error) return NULL;
    Value *copy = apply_to_items(w, "Identity", a->kind, a->dtype, &a, 1, NULL, 0);
    if (copy) {
        copy->rank = a->rank;
        copy->dims = a->dims;
    }
    return copy;
}

/* NULL stands for a value that could not be made. */
static Value *apply_all(Writer *w, const char *op, DType result, Value *const *inputs, int count) {
    for (int i = 0; i < count; i++)
        if (!inputs[i]) return NULL;
    return apply(w, op, result, inputs, count, NULL, 0);
}

Value *apply1(Writer *w, const char *op, Value *a) { return a ? apply_all(w, op, a->dtype, &a, 1) : NULL; }

Value *apply2(Writer *w, const char *op, Value *a, Value *b) {
    return a ? apply_all(w, op, a->dtype, (Value *[]){a, b}, 2) : NULL;
}

Value *compare(Writer *w, const char *op, Value *a, Value *b) {
    return apply_all(w, op, DT_BOOL, (Value *[]){a, b}, 2);
}

Value *choose(Writer *w, Value *condition, Value *then, Value *otherwise) {
    return then ? apply_all(w, "Where", then->dtype, (Value *[]){condition, then, otherwise}, 3) : NULL;
}

/* The transposition that has made the value here, where it may be read past. */
static const Node *transposition(const Writer *w, const Value *a) {
    const Node *node = a->producer;
    return node && node->opset == w->opset && !*node->domain && strcmp(node->op, "Transpose") == 0 ? node : NULL;
}

Value *transpose(Writer *w, Value *a, const int64_t *perm, int rank) {
    if (!a || *w->error) return NULL;
    int64_t joined[MAX_RANK];
    int count = 0;
    bool identity = true;
    const Node *before = transposition(w, a);
    const int64_t *inner = before ? attr_ints(before, "perm", &count) : NULL;
    for (int i = 0; i < rank; i++) {
        joined[i] = inner ? inner[perm[i]] : perm[i];
        identity &= joined[i] == i;
    }
    if (inner) {
        before->inputs[0]->dtype = a->dtype;
        a = before->inputs[0];
    }
    if (identity) return a;
    Attr attr = ints_attr("perm", joined, rank);
    return apply(w, "Transpose", a->dtype, &a, 1, &attr, 1);
}

/* At most one size is left to the operator, where no size is 0; else 0 stands for 0. */
Value *reshape_to(Writer *w, Value *a, const Dim *const *dims, int rank) {
    if (!a || *w->error) return NULL;
    int64_t sizes[MAX_RANK];
    int open = 0;
    bool zero = false;
    for (int i = 0; i < rank; i++) {
        if (!dim_is_const(dims[i], &sizes[i])) sizes[i] = -1, open++;
        zero |= sizes[i] == 0;
    }
    bool known = !open || (open == 1 && !zero);
    Value *shape = known ? ints_value(w, sizes, rank) : shape_value(w, dims, rank);
    Attr attr = int_attr("allowzero", 1);
    return shape ? apply(w, "Reshape", a->dtype, (Value *[]){a, shape}, 2, &attr, !known || zero) : NULL;
}

Value *shape_of(Writer *w, Value *a) { return a ? apply(w, "Shape", DT_I64, &a, 1, NULL, 0) : NULL; }

Value *to_scalar(Writer *w, Value *a) { return a && a->rank == 0 ? a : reshape_to(w, a, NULL, 0); }

/* --- constants ------------------------------------------------------------------------------------------------------------ */

static uint64_t hash_tensor(const Tensor *tensor) {
    uint64_t hash = hash_bytes(tensor->dims, (size_t)tensor->rank * sizeof *tensor->dims, (uint64_t)tensor->dtype);
    return hash_bytes(tensor->data, tensor_bytes(tensor), hash);
}

static bool same_tensor(const Tensor *a, const Tensor *b) {
    return a->dtype == b->dtype && tensor_same_shape(a, b) && memcmp(a->data, b->data, tensor_bytes(a)) == 0;
}

Value *small_constant(Writer *w, Tensor *tensor) {
    if (*w->error) return NULL;
    uint64_t hash = hash_tensor(tensor);
    Value *known = map_get_id(&w->numbers, hash);
    if (known && same_tensor(known->constant, tensor)) return known;
    Value *value = graph_add_constant(w->target, "constant", tensor);
    if (!known) map_set_id(&w->numbers, hash, value);
    return value;
}

Value *number(Writer *w, DType dtype, double value) {
    return small_constant(w, tensor_scalar_double(w->arena, dtype, value));
}

Value *whole(Writer *w, DType dtype, int64_t value) {
    return small_constant(w, tensor_scalar_int(w->arena, dtype, value));
}

Value *ints_value(Writer *w, const int64_t *values, int count) {
    Tensor *tensor = tensor_new(w->arena, DT_I64, 1, (const int64_t[]){count});
    if (count) memcpy(tensor->data, values, (size_t)count * sizeof *values);
    return small_constant(w, tensor);
}

static Value *constant_like(Writer *w, const Value *other) {
    Value *value = map_get_id(&w->constants, MAP_POINTER_KEY(other->constant));
    if (value) return value;
    value = graph_add_constant(w->target, other->name, other->constant);
    map_set_id(&w->constants, MAP_POINTER_KEY(other->constant), value);
    return value;
}

Value *form_of(Writer *w, const Value *lowered) {
    if (!lowered || *w->error) return NULL;
    Value *form = map_get_id(&w->forms, MAP_POINTER_KEY(lowered));
    const Value *outside = form ? NULL : map_get_id(&w->captured, MAP_POINTER_KEY(lowered));
    if (!form && lowered->constant) return constant_like(w, lowered);
    if (outside) return capture(w, form_of(w->outer, outside));
    if (!form) *w->error = status_error(STATUS_FAULT, "\"%s\" was not written", lowered->name);
    return form;
}

Value *capture(Writer *w, Value *outside) {
    if (*w->error || !outside) return NULL;
    if (outside->constant && !outside->producer) return constant_like(w, outside);
    Value *inner = map_get_id(&w->inner, MAP_POINTER_KEY(outside));
    if (inner) return inner;
    inner = graph_add_value(w->target, outside->name, outside->dtype, outside->rank, (const Dim *const *)outside->dims);
    inner->kind = outside->kind;
    inner->key = outside->key;
    map_set_id(&w->inner, MAP_POINTER_KEY(outside), inner);
    VEC_PUSH(w->arena, w->captures, outside);
    return inner;
}

static void take_name(Graph *graph, Value *value, char *name) {
    Value *other = map_get(&graph->names, name);
    if (other == value) return;
    if (other) {
        other->name = value->name;
        map_set(&graph->names, other->name, other);
    }
    value->name = name;
    map_set(&graph->names, name, value);
}

void set_form(Writer *w, const Value *lowered, Value *value) {
    if (*w->error || !value) return;
    map_set_id(&w->forms, MAP_POINTER_KEY(lowered), value);
    if (value->rank < 0 && lowered->kind == VALUE_TENSOR) {
        value->rank = lowered->rank;
        value->dims = lowered->dims;
    }
    if (!w->keeps_names || value != w->made) return;
    Value *other = map_get(&w->target->names, lowered->name);
    bool is_free = !other || (other->producer && other->rank < 0); /* or a part of this is called so */
    if (is_free) take_name(w->target, value, lowered->name);
}

/* --- sizes ---------------------------------------------------------------------------------------------------------------- */

static Value *size_value(Writer *w, const Dim *dim);

typedef struct Inside {
    const Writer *w;
    bool any;
} Inside;

static void note_found(int symbol, void *context) {
    Inside *inside = context;
    inside->any |= map_get_id(&inside->w->found, (uint64_t)symbol + 1) != NULL;
}

/* Whether the size of a body is one that is known around it. */
static bool is_outside(const Writer *w, const Dim *dim) {
    Inside inside = {w, false};
    if (w->outer) dim_each_symbol(dim, note_found, &inside);
    return w->outer && !inside.any;
}

static bool all_outside(const Writer *w, const Dim *const *dims, int count) {
    bool all = true, any = false;
    for (int i = 0; i < count; i++) {
        all &= is_outside(w, dims[i]);
        any |= !dim_is_const(dims[i], NULL);
    }
    return all && any;
}

static Value *symbol_value(Writer *w, int symbol) {
    const Source *source = map_get_id(&w->found, (uint64_t)symbol + 1);
    if (!source && w->outer)
        return capture(w, size_value(w->outer, dim_symbol(w->table, dim_symbol_name(w->table, symbol))));
    if (strcmp(dim_symbol_name(w->table, symbol), "$run") == 0)
        return refuse(w, "the standard has no operator that draws its random numbers"), NULL;
    if (!source) return refuse(w, "the size %s is found in no tensor", dim_symbol_name(w->table, symbol)), NULL;
    Value *value = form_of(w, source->value);
    if (!value) return NULL;
    if (source->is_element) {
        int64_t at = source->axis;
        value = convert(w, value, DT_I64);
        return source->value->rank ? apply2(w, "Gather", value, ints_value(w, &at, 1))
                                   : reshape_to(w, value, (const Dim *[]){dim_const(w->table, 1)}, 1);
    }
    Attr attrs[] = {int_attr("start", source->axis), int_attr("end", source->axis + 1)};
    return apply(w, "Shape", DT_I64, &value, 1, attrs, 2);
}

Value *vector_of(Writer *w, int64_t value) { return ints_value(w, &value, 1); }

Value *join_vectors(Writer *w, Value *const *parts, int count) {
    Attr axis = int_attr("axis", 0);
    for (int i = 0; i < count; i++)
        if (!parts[i]) return NULL;
    return apply(w, "Concat", parts[0]->dtype, parts, count, &axis, 1);
}

Value *vector_element(Writer *w, Value *vector, int64_t at) {
    return vector ? apply(w, "Gather", vector->dtype, (Value *[]){vector, vector_of(w, at)}, 2, NULL, 0) : NULL;
}

/* Integer Mod has the sign of the divisor, so a - a mod b is a multiple of b, below a. */
static Value *factor_value(Writer *w, DimFactor factor) {
    if (factor.function == DIM_SYMBOL) return symbol_value(w, factor.symbol);
    Value *a = size_value(w, factor.a), *b = size_value(w, factor.b);
    switch (factor.function) {
    case DIM_MIN: return apply2(w, "Min", a, b);
    case DIM_MAX: return apply2(w, "Max", a, b);
    case DIM_BROADCAST: /* max(a, b), and 0 where one of both is */
        return apply2(w, "Mul", apply2(w, "Max", a, b), apply2(w, "Min", apply2(w, "Min", a, b), vector_of(w, 1)));
    case DIM_ADD: return apply2(w, "Add", a, b);
    case DIM_MUL: return apply2(w, "Mul", a, b);
    case DIM_MOD: return apply2(w, "Mod", a, b);
    default: return apply2(w, "Div", apply2(w, "Sub", a, apply2(w, "Mod", a, b)), b);
    }
}

static Value *term_value(Writer *w, const Dim *dim, int term) {
    int factors;
    int64_t coefficient = dim_term(dim, term, &factors);
    Value *value = coefficient != 1 || !factors ? vector_of(w, coefficient) : NULL;
    for (int i = 0; i < factors; i++) {
        Value *factor = factor_value(w, dim_factor(dim, term, i));
        value = i || coefficient != 1 ? apply2(w, "Mul", value, factor) : factor;
    }
    return value;
}

/* A vector of one. */
static Value *size_value(Writer *w, const Dim *dim) {
    int64_t size;
    if (*w->error) return NULL;
    if (dim_is_const(dim, &size)) return vector_of(w, size);
    Value *value = map_get_id(&w->sizes, MAP_POINTER_KEY(dim));
    if (value) return value;
    if (is_outside(w, dim)) return capture(w, size_value(w->outer, dim));
    bool sizing = w->sizing;
    w->sizing = true;
    for (int i = 0; i < dim_term_count(dim); i++) {
        Value *term = term_value(w, dim, i);
        value = i ? apply2(w, "Add", value, term) : term;
    }
    w->sizing = sizing;
    if (value) map_set_id(&w->sizes, MAP_POINTER_KEY(dim), value);
    return value;
}

Value *size_number(Writer *w, const Dim *dim) {
    int64_t size;
    return dim_is_const(dim, &size) ? whole(w, DT_I64, size) : reshape_to(w, size_value(w, dim), NULL, 0);
}

typedef struct Shape {
    const Dim *const *dims;
    int count;
    Value *value;
} Shape;

/* Neighbours that are known are one part. */
static Value *join_sizes(Writer *w, const Dim *const *dims, int count) {
    VEC(Value *) parts = {0};
    int64_t known[MAX_RANK * 4];
    int run = 0;
    for (int i = 0; i <= count; i++) {
        bool is_known = i < count && run < MAX_RANK * 4 && dim_is_const(dims[i], &known[run]);
        if (is_known) {
            run++;
            continue;
        }
        if (run) VEC_PUSH(w->arena, parts, ints_value(w, known, run));
        run = 0;
        if (i < count) VEC_PUSH(w->arena, parts, size_value(w, dims[i]));
    }
    if (*w->error) return NULL;
    if (!parts.count) return ints_value(w, NULL, 0);
    return parts.count == 1 ? parts.items[0] : join_vectors(w, parts.items, parts.count);
}

Value *shape_value(Writer *w, const Dim *const *dims, int count) {
    uint64_t hash = hash_bytes(dims, (size_t)count * sizeof *dims, (uint64_t)count);
    Shape *known = map_get_id(&w->shapes, hash);
    if (known && known->count == count && (!count || memcmp(known->dims, dims, (size_t)count * sizeof *dims) == 0))
        return known->value;
    if (all_outside(w, dims, count)) return capture(w, shape_value(w->outer, dims, count));
    bool sizing = w->sizing;
    w->sizing = true;
    Value *value = join_sizes(w, dims, count);
    w->sizing = sizing;
    if (!value) return NULL;
    Shape *shape = ARENA_NEW(w->arena, Shape);
    *shape = (Shape){arena_copy(w->arena, dims, (size_t)count * sizeof *dims), count, value};
    map_set_id(&w->shapes, hash, shape);
    return value;
}
