/* SPDX-License-Identifier: Apache-2.0 */
/* The builder's frame: a node's inputs and outputs, errors in the user's words, constants, sizes that are known while
 * lowering or are bound at run time, host steps. */
#include "lowering/build_internal.h"
#include "base/plain.h"

#include <math.h>
#include <stdio.h>

/* --- errors ---------------------------------------------------------------------------------------------------- */

enum { MESSAGE_SIZE = 1024 };

static Status fail(Lowering *l, StatusCode code, const char *format, va_list args) {
    if (l->error) return l->error;
    char text[MESSAGE_SIZE];
    plain_vprint(text, sizeof text, format, args);
    const Node *n = l->node;
    if (!n) return l->error = status_error(code, "%s", text);
    bool standard = !n->domain || !*n->domain;
    return l->error = status_error(code, "node \"%s\" (%s%s%s, opset %d): %s", node_origin_name(n),
                                   standard ? "" : n->domain, standard ? "" : ".", n->op, n->opset, text);
}

Status unsupported(Lowering *l, const char *format, ...) {
    va_list args;
    va_start(args, format);
    Status status = fail(l, STATUS_UNSUPPORTED, format, args);
    va_end(args);
    return status;
}

static bool asks_for_nothing(const Attr *attr, const Unfollowed *at) {
    switch (attr->kind) {
    case ATTR_INT: return (double)attr->i == at->number;
    case ATTR_FLOAT: return attr->f == at->number;
    case ATTR_STRING: return at->text && strcmp(attr->s.data, at->text) == 0;
    default: return false;
    }
}

bool follows_all(Lowering *l, const Node *n, const Unfollowed *list, int inputs) {
    for (const Unfollowed *at = list; at->name; at++) {
        const Attr *attr = node_attr(n, at->name);
        if (attr && !asks_for_nothing(attr, at)) unsupported(l, "this value of attribute %s", at->name);
    }
    for (int i = inputs; i < n->input_count; i++)
        if (optional_in(l, n, i)) unsupported(l, "input %d", i);
    return !l->error;
}

Status invalid(Lowering *l, const char *format, ...) {
    va_list args;
    va_start(args, format);
    Status status = fail(l, STATUS_INVALID, format, args);
    va_end(args);
    return status;
}

const char *shape_text(Lowering *l, const Dim *const *dims, int rank) {
    Text text = text_make(l->arena);
    text_add(&text, "[");
    for (int i = 0; i < rank; i++) {
        if (i) text_add(&text, ", ");
        dim_print(&text, dims[i]);
    }
    text_add(&text, "]");
    return text.data;
}

bool present(Lowering *l, Value *const *values, int count) {
    for (int i = 0; i < count; i++) {
        if (l->error) return false;
        if (!values[i])
            invalid(l, "an input that it needs is missing");
        else if (values[i]->kind != VALUE_TENSOR)
            invalid(l, "\"%s\" is not a tensor", values[i]->name);
        else if (values[i]->rank < 0)
            unsupported(l, "the number of axes of \"%s\" is not known", values[i]->name);
        else if (values[i]->dtype == DT_NONE)
            unsupported(l, "the element type of \"%s\" is not known", values[i]->name);
    }
    return !l->error;
}

/* --- inputs and outputs ---------------------------------------------------------------------------------------- */

Value *optional_in(Lowering *l, const Node *n, int index) {
    return !l->error && index < n->input_count - n->captures ? n->inputs[index] : NULL;
}

Value *in(Lowering *l, const Node *n, int index) {
    Value *value = optional_in(l, n, index);
    if (!value) invalid(l, "input %d is missing", index);
    return value;
}

bool wants_output(const Node *n, int index) { return index < n->output_count && n->outputs[index]; }

static bool has_made_up_name(const Value *value) {
    const char *c = value->name;
    if (*c++ != 'v' || !*c) return false;
    while (plain_is_digit(*c)) c++;
    return !*c;
}

/* A value that this node made is called as the model calls the output. */
static void hand_name_on(Lowering *l, Value *from, Value *to) {
    if (!to->producer || !has_made_up_name(to) || to->producer->origin.names != l->node->origin.names) return;
    char *name = from->name;
    from->name = to->name;
    to->name = name;
    map_set(&l->graph->names, from->name, from);
    map_set(&l->graph->names, to->name, to);
}

Status out(Lowering *l, const Node *n, int index, Value *value) {
    if (l->error) return l->error;
    if (!value) return invalid(l, "output %d could not be built", index);
    if (!wants_output(n, index)) return NULL;
    if (l->restores != DT_NONE && !(value = restore_precision(l, index, value))) return l->error;
    Value *old = n->outputs[index];
    if (l->node) hand_name_on(l, old, value);
    value_replace(l->graph, old, value);
    return NULL;
}

/* --- constants ----------------------------------------------------------------------------------------------- */

Value *scalar(Lowering *l, DType dtype, double value) {
    return l->error ? NULL : constant(l, tensor_scalar_double(l->arena, dtype, value));
}

Value *scalar_int(Lowering *l, DType dtype, int64_t value) {
    return l->error ? NULL : constant(l, tensor_scalar_int(l->arena, dtype, value));
}

Value *like(Lowering *l, const Value *x, double value) {
    if (!present(l, (Value *const *)&x, 1)) return NULL;
    return dtype_is_float(x->dtype) ? scalar(l, x->dtype, value) : scalar_int(l, x->dtype, (int64_t)value);
}

Value *vector_i64(Lowering *l, const int64_t *values, int count) {
    if (l->error) return NULL;
    Tensor *tensor = tensor_new(l->arena, DT_I64, 1, (const int64_t[]){count});
    if (count) memcpy(tensor->data, values, (size_t)count * sizeof *values);
    return constant(l, tensor);
}

Value *dims_value(Lowering *l, const Dim *const *dims, int count) {
    return l->error ? NULL : emit_content(l, dims, count, 1, DT_I64);
}

Value *dim_scalar(Lowering *l, const Dim *dim) { return l->error ? NULL : emit_content(l, &dim, 1, 0, DT_I64); }

bool is_splat(const Value *value, double *out_number) {
    const Tensor *tensor = value ? value->constant : NULL;
    int64_t count = tensor ? tensor_count(tensor) : 0;
    if (count < 1 || dtype_class(tensor->dtype) == DTYPE_OTHER) return false;
    *out_number = dtype_load_double(tensor->dtype, tensor->data, 0);
    size_t size = dtype_size(tensor->dtype);
    const char *data = tensor->data;
    for (int64_t i = 1; i < count; i++)
        if (memcmp(data, data + (size_t)i * size, size) != 0) return false;
    return true;
}

/* --- sizes ------------------------------------------------------------------------------------------------------- */

const Tensor *constant_of(const Value *value) { return value ? value->constant : NULL; }

/* Elements of a vector or scalar; -1 (and an error) when that is not known. */
static int vector_length(Lowering *l, const Value *value) {
    int64_t count = 1;
    if (value->rank > 1) {
        invalid(l, "\"%s\" must have one axis, it has %d", value->name, value->rank);
        return -1;
    }
    if (value->rank == 1 && !dim_is_const(value->dims[0], &count)) {
        unsupported(l, "the length of \"%s\" is not known", value->name);
        return -1;
    }
    if (count < 0 || count > 1 << 20) {
        invalid(l, "\"%s\" has %lld elements", value->name, (long long)count);
        return -1;
    }
    return (int)count;
}

/* A constant's elements as sizes, also beyond MAX_CONTENT of them. */
static const Dim **constant_sizes(Lowering *l, const Tensor *tensor, int count) {
    const Dim **sizes = ARENA_ARRAY(l->arena, const Dim *, count ? count : 1);
    for (int i = 0; i < count; i++) sizes[i] = dim_const(l->dims, dtype_load_int(tensor->dtype, tensor->data, i));
    return sizes;
}

/* A vector or scalar whose elements are those of another from `at` on. */
typedef struct Piece {
    const Value *value;
    int at, count;
} Piece;

typedef VEC(Piece) Pieces;

/* Fills in what is known of a piece's elements, or adds the pieces that it is made of: through joins, reshapes and casts
 * between the index types. */
static void look_into(Arena *arena, Pieces *pieces, Piece piece, const Dim **elements) {
    const Value *value = piece.value;
    const Node *maker = value->producer;
    int64_t length = 1;
    if (value->rank > 1 || (value->rank == 1 && !dim_is_const(value->dims[0], &length)) || length != piece.count)
        return;
    if (value->content) {
        for (int i = 0; i < piece.count; i++) elements[piece.at + i] = value->content[i];
    } else if (maker && maker->kind == NODE_PRIM && maker->prim == PRIM_CONCAT) {
        for (int i = 0, at = piece.at; i < maker->input_count; i++, at += (int)length) {
            if (!dim_is_const(maker->inputs[i]->dims[0], &length)) return;
            VEC_PUSH(arena, *pieces, (Piece){maker->inputs[i], at, (int)length});
        }
    } else if (maker && maker->kind == NODE_PRIM && (maker->prim == PRIM_RESHAPE || maker->prim == PRIM_CAST)) {
        DType from = maker->inputs[0]->dtype;
        if (from == DT_I64 || from == DT_I32)
            VEC_PUSH(arena, *pieces, (Piece){maker->inputs[0], piece.at, piece.count});
    }
}

const Dim **known_elements(Lowering *l, const Value *value, int count) {
    const Dim **elements = ARENA_ARRAY(l->arena, const Dim *, count ? count : 1);
    Arena *scratch = arena_create_inside(l->arena);
    Pieces pieces = {0}; /* a stack of our own: chains of joins are as long as the model */
    VEC_PUSH(scratch, pieces, (Piece){value, 0, count});
    while (pieces.count) look_into(scratch, &pieces, pieces.items[--pieces.count], elements);
    arena_destroy(scratch);
    return elements;
}

/* Elements that are not known become symbols bound at run time. */
static const Dim *const *bind_unknown(Lowering *l, Value *value, const char *hint, int count) {
    const Dim *const *bound = bind_sizes(l, value, hint, count);
    const Dim **elements = known_elements(l, value, count);
    for (int i = 0; bound && i < count; i++)
        if (!elements[i]) elements[i] = bound[i];
    return bound ? elements : NULL;
}

const Dim *const *sizes_of(Lowering *l, Value *value, const char *hint, int *out_count) {
    *out_count = 0;
    if (!present(l, &value, 1)) return NULL;
    int count = vector_length(l, value);
    if (count < 0) return NULL;
    if (!dtype_is_integer(value->dtype)) {
        invalid(l, "\"%s\" must hold integers, not %s", value->name, dtype_name(value->dtype));
        return NULL;
    }
    *out_count = count;
    if (value->content) return value->content;
    if (value->constant) return constant_sizes(l, value->constant, count);
    return bind_unknown(l, value, hint, count);
}

bool constant_ints(Lowering *l, const Value *value, const int64_t **out_values, int *out_count) {
    int64_t count = 1;
    *out_count = 0;
    *out_values = NULL;
    if (!value || value->kind != VALUE_TENSOR || value->rank < 0 || value->rank > 1 ||
        !dtype_is_integer(value->dtype) || (value->rank == 1 && !dim_is_const(value->dims[0], &count)) ||
        count > 1 << 20 || (!value->content && !value->constant))
        return false;
    int64_t *values = ARENA_ARRAY(l->arena, int64_t, count ? count : 1);
    for (int64_t i = 0; i < count; i++) {
        if (value->constant)
            values[i] = dtype_load_int(value->dtype, value->constant->data, i);
        else if (!dim_is_const(value->content[i], &values[i]))
            return false;
    }
    *out_values = values;
    *out_count = (int)count;
    return true;
}

const Dim *const *bind_sizes(Lowering *l, Value *value, const char *hint, int count) {
    if (!present(l, &value, 1)) return NULL;
    value = cast(l, value, DT_I64);
    if (l->error) return NULL;
    const Dim *const *known = bound_sizes(l, value);
    if (known) return known;
    const Dim **symbols = ARENA_ARRAY(l->arena, const Dim *, count ? count : 1);
    for (int i = 0; i < count; i++) symbols[i] = dim_fresh(l->dims, hint);
    if (count == 0) return symbols;
    Node *bind = graph_add_node(l->graph, builder_place(l), NODE_HOST, "bind_sizes", &value, 1);
    node_set_dims(bind, "symbols", symbols, count);
    if (l->node) {
        bind->origin = l->node->origin;
        bind->opset = l->node->opset;
    }
    note_bound_sizes(l, value, symbols);
    return symbols;
}

const int64_t *attr_or_input_ints(Lowering *l, const Node *n, const char *name, int index, int *out_count) {
    const int64_t *values = NULL;
    *out_count = -1;
    const Attr *attr = name ? node_attr(n, name) : NULL;
    if (attr && attr->kind == ATTR_INT) {
        *out_count = 1;
        return &attr->i;
    }
    if (attr && attr->kind == ATTR_INTS) {
        *out_count = attr->count;
        return attr->ints;
    }
    Value *input = index >= 0 ? optional_in(l, n, index) : NULL;
    if (input && !constant_ints(l, input, &values, out_count)) {
        *out_count = -1;
        unsupported(l, "input %d (\"%s\") must be a constant", index, input->name);
    }
    return values;
}

int axis_of(Lowering *l, int64_t axis, int rank) {
    if (axis < -rank || axis >= rank) {
        invalid(l, "axis %lld is out of range for %d axes", (long long)axis, rank);
        return 0;
    }
    return (int)(axis < 0 ? axis + rank : axis);
}

int *axes_of(Lowering *l, const int64_t *axes, int count, int rank, bool none_is_all, int *out_count) {
    bool chosen[MAX_RANK] = {false};
    int *sorted = ARENA_ARRAY(l->arena, int, rank > 0 ? rank : 1), filled = 0;
    *out_count = 0;
    for (int i = 0; i < count; i++) {
        int axis = axis_of(l, axes[i], rank);
        if (l->error) return NULL;
        chosen[axis] = true;
    }
    for (int i = 0; i < rank; i++)
        if (chosen[i] || (count <= 0 && none_is_all)) sorted[filled++] = i;
    *out_count = filled;
    return sorted;
}

/* --- host steps ------------------------------------------------------------------------------------------------- */

Node *host_node(Lowering *l, const Node *n, HostFn host, Value *const *inputs, int count) {
    if (l->error) return NULL;
    Node *node = graph_add_node(l->graph, builder_place(l), NODE_HOST, n->op, inputs, count);
    node->host = host;
    node->custom = n->custom;
    node->domain = n->domain ? n->domain : "";
    node->opset = n->opset;
    node->origin = n->origin;
    node_follow_rules(node, n);
    node->backward |= l->elsewhere;
    for (int i = 0; i < n->attrs.count; i++) node_set_attr(node, n->attrs.items[i]);
    return node;
}

Value *host_result(Lowering *l, Node *host, DType dtype, int rank, const Dim *const *dims) {
    if (l->error || !host) return NULL;
    for (int i = 0; i < rank; i++) note_size(l, dims[i]);
    return node_add_output(host, NULL, dtype, rank, dims);
}

Value *host_result_like(Lowering *l, Node *host, const Value *model) {
    if (!present(l, (Value *const *)&model, 1)) return NULL;
    return host_result(l, host, model->dtype, model->rank, model->dims);
}
