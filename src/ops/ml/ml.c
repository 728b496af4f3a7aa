/* SPDX-License-Identifier: Apache-2.0 */
/* ai.onnx.ml. What is arithmetic is told in primitives; look-ups, labels, trees and support vectors are host kernels. */
#include "ops/families.h"

#include <math.h>

#include "ops/ml/class_scores.h"
#include "ops/ml/forest.h"
#include "ops/ml/maps.h"
#include "ops/ml/svm.h"

/* ---- arithmetic ---- */

static Value *floats_value(Lowering *l, const float *values, int count) {
    Tensor *tensor = tensor_new(l->arena, DT_F32, 1, (const int64_t[]){count});
    if (count) memcpy(tensor->data, values, (size_t)count * sizeof *values);
    return constant(l, tensor);
}

/* Y = X > threshold ? 1 : 0 in X's type. */
static Status lower_binarizer(Lowering *l, const Node *n) {
    Value *x = in(l, n, 0);
    if (!x) return l->error;
    Value *limit = scalar(l, DT_F32, attr_float(n, "threshold", 0)),
          *above = binary(l, PRIM_GT, cast(l, x, DT_F32), limit);
    if (x->dtype == DT_F64) above = binary(l, PRIM_GT, x, cast(l, limit, DT_F64));
    return out(l, n, 0, cast_like(l, above, x));
}

/* Y = (X - offset) * scale; one number for all features, or one each. */
static Status lower_scaler(Lowering *l, const Node *n) {
    int offsets, scales;
    const float *offset = attr_floats(n, "offset", &offsets), *scale = attr_floats(n, "scale", &scales);
    Value *x = in(l, n, 0), *y = x ? cast(l, x, DT_F32) : NULL;
    if (offsets) y = sub(l, y, floats_value(l, offset, offsets));
    if (scales) y = mul(l, y, floats_value(l, scale, scales));
    return out(l, n, 0, y);
}

/* Each row divided by its largest magnitude, its sum of magnitudes, or its length. */
static Status lower_normalizer(Lowering *l, const Node *n) {
    Value *x = in(l, n, 0), *size;
    if (!x) return l->error;
    if (x->rank < 1 || x->rank > 2) return invalid(l, "X has %d axes where 1 or 2 are needed", x->rank);
    const char *norm = attr_string(n, "norm", "MAX");
    int axis = x->rank - 1;
    x = cast(l, x, DT_F32);
    if (strcmp(norm, "MAX") == 0)
        size = reduce(l, PRIM_REDUCE_MAX, unary(l, PRIM_ABS, x), &axis, 1, true);
    else if (strcmp(norm, "L1") == 0)
        size = reduce(l, PRIM_REDUCE_SUM, unary(l, PRIM_ABS, x), &axis, 1, true);
    else if (strcmp(norm, "L2") == 0)
        size = unary(l, PRIM_SQRT, reduce(l, PRIM_REDUCE_SUM, mul(l, x, x), &axis, 1, true));
    else
        return invalid(l, "norm \"%s\"", norm);
    return out(l, n, 0, divide(l, x, maximum(l, size, scalar(l, DT_F32, 1e-30))));
}

/* Elements equal to the replaced value (NaN: those that are NaN) become the imputed one of their feature. */
static Status lower_imputer(Lowering *l, const Node *n) {
    int floats, ints;
    const float *imputed = attr_floats(n, "imputed_value_floats", &floats);
    const int64_t *imputed_ints = attr_ints(n, "imputed_value_int64s", &ints);
    Value *x = in(l, n, 0), *missing, *values;
    if (!x) return l->error;
    if (floats) {
        double replaced = attr_float(n, "replaced_value_float", 0);
        values = cast_like(l, floats_value(l, imputed, floats), x);
        missing = isnan(replaced) ? unary(l, PRIM_ISNAN, x) : binary(l, PRIM_EQ, x, like(l, x, replaced));
    } else if (ints) {
        values = cast_like(l, vector_i64(l, imputed_ints, ints), x);
        missing = binary(l, PRIM_EQ, x, cast_like(l, scalar_int(l, DT_I64, attr_int(n, "replaced_value_int64", 0)), x));
    } else {
        return invalid(l, "the imputed values are missing");
    }
    return out(l, n, 0, where(l, missing, values, x));
}

/* The features (last axis) at the given indices; a vector is a matrix of one row. */
static Status lower_feature_extractor(Lowering *l, const Node *n) {
    Value *x = in(l, n, 0), *indices = in(l, n, 1);
    if (l->error) return l->error;
    if (x->rank < 1) return invalid(l, "X is a scalar");
    int first = 0;
    if (x->rank == 1) x = unsqueeze(l, x, &first, 1);
    const Dim *count = value_elements(l->graph, indices);
    Value *list = reshape(l, indices, &count, 1);
    return x && list ? out(l, n, 0, gather(l, x, list, x->rank - 1)) : l->error;
}

/* The inputs side by side, each cut or padded with zeros to its number of features. */
static Status lower_feature_vectorizer(Lowering *l, const Node *n) {
    int count;
    const int64_t *sizes = attr_ints(n, "inputdimensions", &count);
    if (count != n->input_count || !count)
        return invalid(l, "inputdimensions has %d elements where %d are needed", count, n->input_count);
    Value **parts = ARENA_ARRAY(l->arena, Value *, count);
    const Dim *zero = dim_const(l->dims, 0);
    for (int i = 0; i < count; i++) {
        Value *x = in(l, n, i);
        int last = 1;
        if (!x) return l->error;
        if (x->rank == 1) x = unsqueeze(l, x, &last, 1);
        if (!x || x->rank != 2 || sizes[i] < 0) return invalid(l, "input %d has no shape [N, features]", i);
        const Dim *none[] = {zero, zero}, *after[] = {zero, dim_sub(l->dims, dim_const(l->dims, sizes[i]), x->dims[1])};
        x = cast(l, x, DT_F32);
        parts[i] = dim_equals(after[1], 0) ? x : pad(l, x, none, after, scalar(l, DT_F32, 0));
    }
    return l->error ? l->error : out(l, n, 0, concat(l, parts, count, 1));
}

/* ---- linear models ---- */

/* X * coefficients^T + intercepts, coefficients [targets, features]. */
static Value *linear_scores(Lowering *l, const Node *n, Value *x, int64_t targets) {
    int count, intercepts;
    const float *coefficients = attr_floats(n, "coefficients", &count),
                *intercept = attr_floats(n, "intercepts", &intercepts);
    if (!x || !feature_row_dim(l, x)) return NULL;
    if (targets < 1 || count < 1 || count % targets)
        return invalid(l, "%d coefficients for %lld targets", count, (long long)targets), NULL;
    int first = 0;
    if (x->rank == 1) x = unsqueeze(l, x, &first, 1);
    const Dim *dims[] = {dim_const(l->dims, targets), dim_const(l->dims, count / targets)};
    Value *w = reshape(l, floats_value(l, coefficients, count), dims, 2),
          *y = matmul(l, cast(l, x, DT_F32), swap_last(l, w));
    return intercepts ? add(l, y, floats_value(l, intercept, intercepts)) : y;
}

static Status host_transform(HostCall *call) {
    const Tensor *x = host_input(call, 0);
    Tensor *y;
    if (!x || x->rank != 2 || x->dtype != DT_F32) return host_error(call, "expected scores of shape [N, targets]");
    TRY(host_output(call, 0, DT_F32, 2, x->dims, &y));
    double *scores = ARENA_ARRAY(call->arena, double, x->dims[1]);
    PostTransform post = (PostTransform)attr_int(call->node, "transform", 0);
    for (int64_t r = 0; y && r < x->dims[0]; r++) {
        for (int64_t i = 0; i < x->dims[1]; i++) scores[i] = ((const float *)x->data)[r * x->dims[1] + i];
        apply_post_transform(post, scores, x->dims[1]);
        for (int64_t i = 0; i < x->dims[1]; i++) ((float *)y->data)[r * x->dims[1] + i] = (float)scores[i];
    }
    return NULL;
}

static Value *transformed(Lowering *l, const Node *n, Value *scores) {
    PostTransform post = read_post_transform(l, n);
    if (l->error || !scores || post == POST_NONE) return scores;
    if (post == POST_SOFTMAX) return softmax(l, scores, 1);
    if (post == POST_LOGISTIC) return unary(l, PRIM_SIGMOID, scores);
    Node *host = host_node(l, n, host_transform, &scores, 1);
    if (host) node_set_int(host, "transform", post);
    return host_result_like(l, host, scores);
}

static Status lower_linear_regressor(Lowering *l, const Node *n) {
    return out(l, n, 0, transformed(l, n, linear_scores(l, n, in(l, n, 0), attr_int(n, "targets", 1))));
}

/* Inputs: raw scores [N, columns]. Outputs: labels (the largest score; of a single column its sign) and the scores
 * transformed, those of one column and two labels as two. */
static Status host_choose(HostCall *call) {
    const Tensor *x = host_input(call, 0);
    if (!x || x->rank != 2 || x->dtype != DT_F32 || x->dims[1] < 1)
        return host_error(call, "expected scores of shape [N, classes]");
    Labels labels = read_labels(call->node);
    PostTransform post = (PostTransform)attr_int(call->node, "transform", 0);
    int64_t columns = x->dims[1];
    bool lone = columns == 1, doubled = lone && labels.count == 2;
    int64_t dims[] = {x->dims[0], doubled ? 2 : columns};
    Tensor *label, *y;
    TRY(host_output(call, 0, labels_dtype(&labels), 1, dims, &label));
    TRY(host_output(call, 1, DT_F32, 2, dims, &y));
    double *scores = ARENA_ARRAY(call->arena, double, columns + 1);
    for (int64_t r = 0; r < x->dims[0]; r++) {
        int64_t best = 0;
        for (int64_t i = 0; i < columns; i++) {
            scores[i] = ((const float *)x->data)[r * columns + i];
            if (scores[i] > scores[best]) best = i;
        }
        /* One label: that class, or none. */
        store_label(&labels, label, r, doubled ? scores[0] > 0 : lone && scores[0] <= 0 ? labels.count : best);
        if (lone && labels.count == 1 && labels.ints && label && scores[0] <= 0) ((int64_t *)label->data)[r] = 0;
        if (doubled)
            write_binary_scores(post, true, scores[0], scores);
        else
            apply_post_transform(post, scores, columns);
        for (int64_t i = 0; y && i < dims[1]; i++) ((float *)y->data)[r * dims[1] + i] = (float)scores[i];
    }
    return NULL;
}

static Status lower_linear_classifier(Lowering *l, const Node *n) {
    Labels labels = read_labels(n);
    Value *x = in(l, n, 0);
    if (!x || !feature_row_dim(l, x)) return l->error;
    /* The rows of coefficients: as many as the features leave, or as there are intercepts. */
    int64_t features, targets;
    int count, intercepts;
    attr_floats(n, "coefficients", &count);
    attr_floats(n, "intercepts", &intercepts);
    targets = dim_is_const(x->dims[x->rank - 1], &features) && features > 0 ? count / features : intercepts;
    if (targets < 1) return invalid(l, "%d coefficients", count);
    PostTransform post = read_post_transform(l, n);
    Value *scores = linear_scores(l, n, x, targets);
    Node *host = l->error ? NULL : host_node(l, n, host_choose, &scores, 1);
    if (!host) return l->error;
    node_set_int(host, "transform", post);
    const Dim *dims[] = {scores->dims[0], dim_const(l->dims, targets == 1 && labels.count == 2 ? 2 : targets)};
    Value *results[] = {host_result(l, host, labels_dtype(&labels), 1, dims), host_result(l, host, DT_F32, 2, dims)};
    for (int i = 0; i < 2; i++)
        if (wants_output(n, i)) TRY(out(l, n, i, results[i]));
    return NULL;
}

/* ---- look-ups ---- */

/* A list of strings, i64, or numbers kept as double; one of the three is given. */
typedef struct Column {
    const StringView *strings;
    const int64_t *ints;
    const float *floats;
    const Tensor *tensor;
    DType dtype;
    int64_t count;
} Column;

static Column tensor_column(const Tensor *t) {
    Column c = {.tensor = t, .dtype = t->dtype, .count = tensor_count(t)};
    if (t->dtype == DT_STRING) c.strings = t->data;
    return c;
}

/* The attribute PREFIX_strings, _int64s, _floats or _tensor; count 0 when there is none. */
static Column column_of(const Node *n, const char *const names[4]) {
    const Attr *attr;
    if ((attr = node_attr(n, names[0])) && attr->kind == ATTR_STRINGS && attr->count)
        return (Column){.strings = attr->strings, .dtype = DT_STRING, .count = attr->count};
    if ((attr = node_attr(n, names[1])) && attr->kind == ATTR_INTS && attr->count)
        return (Column){.ints = attr->ints, .dtype = DT_I64, .count = attr->count};
    if ((attr = node_attr(n, names[2])) && attr->kind == ATTR_FLOATS && attr->count)
        return (Column){.floats = attr->floats, .dtype = DT_F32, .count = attr->count};
    if ((attr = names[3] ? node_attr(n, names[3]) : NULL) && attr->kind == ATTR_TENSOR)
        return tensor_column(attr->tensor);
    return (Column){0};
}

static uint64_t hash_double(double value) {
    if (value != value) value = NAN;
    if (value == 0) value = 0;
    return hash_bytes(&value, sizeof value, 0);
}

/* The key at `index` of a column or tensor: text or number; integers beyond 2^53 keep their bits in `number_bits`. */
typedef struct Key {
    StringView text;
    double number;
    int64_t integer;
    bool is_text, is_integer;
} Key;

static Key key_of_tensor(const Tensor *t, int64_t i) {
    if (t->dtype == DT_STRING) return (Key){.text = ((const StringView *)t->data)[i], .is_text = true};
    if (dtype_is_float(t->dtype)) return (Key){.number = dtype_load_double(t->dtype, t->data, i)};
    return (Key){.integer = dtype_load_int(t->dtype, t->data, i), .is_integer = true};
}

static Key key_at(const Column *c, int64_t i) {
    if (c->strings) return (Key){.text = c->strings[i], .is_text = true};
    if (c->ints) return (Key){.integer = c->ints[i], .is_integer = true};
    if (c->floats) return (Key){.number = c->floats[i]};
    return key_of_tensor(c->tensor, i);
}

static uint64_t hash_key(const Key *k) {
    if (k->is_text) return hash_bytes(k->text.data, k->text.size, 0);
    return k->is_integer ? hash_bytes(&k->integer, sizeof k->integer, 0) : hash_double(k->number);
}

static bool same_key(const Key *a, const Key *b) {
    if (a->is_text != b->is_text || a->is_integer != b->is_integer) return false;
    if (a->is_text)
        return a->text.size == b->text.size && (!a->text.size || memcmp(a->text.data, b->text.data, a->text.size) == 0);
    if (a->is_integer) return a->integer == b->integer;
    return a->number == b->number || (a->number != a->number && b->number != b->number);
}

typedef struct Index {
    Column keys;
    int64_t *slots; /* key number + 1 */
    uint64_t size;  /* a power of two */
} Index;

static Index index_keys(Arena *arena, Column keys) {
    Index index = {keys, NULL, 16};
    while (index.size < 2 * (uint64_t)keys.count) index.size *= 2;
    index.slots = ARENA_ARRAY(arena, int64_t, index.size);
    for (int64_t i = 0; i < keys.count; i++) {
        Key key = key_at(&keys, i);
        uint64_t at = hash_key(&key) & (index.size - 1);
        for (; index.slots[at]; at = (at + 1) & (index.size - 1)) {
            Key other = key_at(&keys, index.slots[at] - 1);
            if (same_key(&key, &other)) break;
        }
        index.slots[at] = i + 1; /* the last of equal keys counts */
    }
    return index;
}

static int64_t find_key(const Index *index, const Key *key) {
    for (uint64_t at = hash_key(key) & (index->size - 1); index->slots[at]; at = (at + 1) & (index->size - 1)) {
        Key other = key_at(&index->keys, index->slots[at] - 1);
        if (same_key(key, &other)) return index->slots[at] - 1;
    }
    return -1;
}

static const char *const key_names[] = {"keys_strings", "keys_int64s", "keys_floats", "keys_tensor"};
static const char *const value_names[] = {"values_strings", "values_int64s", "values_floats", "values_tensor"};

static void store_value(const Column *values, int64_t from, Tensor *y, int64_t at) {
    if (values->strings)
        ((StringView *)y->data)[at] = values->strings[from];
    else if (values->ints)
        ((int64_t *)y->data)[at] = values->ints[from];
    else if (values->floats)
        ((float *)y->data)[at] = values->floats[from];
    else
        memcpy((char *)y->data + (size_t)at * dtype_size(y->dtype),
               (const char *)values->tensor->data + (size_t)from * dtype_size(y->dtype), dtype_size(y->dtype));
}

static void store_default(const Node *n, Tensor *y, int64_t at) {
    const Attr *tensor = node_attr(n, "default_tensor"), *text = node_attr(n, "default_string");
    if (tensor && tensor->kind == ATTR_TENSOR && tensor->tensor->dtype == y->dtype &&
        tensor_count(tensor->tensor) > 0) {
        Column c = tensor_column(tensor->tensor);
        store_value(&c, 0, y, at);
    } else if (y->dtype == DT_STRING) {
        ((StringView *)y->data)[at] = text && text->kind == ATTR_STRING ? text->s : (StringView){"_Unused", 7};
    } else if (dtype_is_float(y->dtype)) {
        dtype_store_double(y->dtype, y->data, at, attr_float(n, "default_float", -0.0));
    } else {
        dtype_store_int(y->dtype, y->data, at, attr_int(n, "default_int64", -1));
    }
}

/* ai.onnx.ml 1 has one list of strings, and maps strings to their places and back. */
static bool old_label_encoder(const Node *n, const Tensor *x, Column *keys, Column *values, Arena *arena) {
    const Attr *classes = node_attr(n, "classes_strings");
    if (!classes || classes->kind != ATTR_STRINGS) return false;
    int64_t *places = ARENA_ARRAY(arena, int64_t, classes->count);
    for (int i = 0; i < classes->count; i++) places[i] = i;
    Column text = {.strings = classes->strings, .dtype = DT_STRING, .count = classes->count};
    Column numbers = {.ints = places, .dtype = DT_I64, .count = classes->count};
    *keys = x->dtype == DT_STRING ? text : numbers;
    *values = x->dtype == DT_STRING ? numbers : text;
    return true;
}

/* CategoryMapper: two parallel lists, in the direction of the input. */
static bool category_mapper(const Node *n, const Tensor *x, Column *keys, Column *values) {
    const Attr *text = node_attr(n, "cats_strings"), *numbers = node_attr(n, "cats_int64s");
    if (!text || !numbers || text->kind != ATTR_STRINGS || numbers->kind != ATTR_INTS || text->count != numbers->count)
        return false;
    Column a = {.strings = text->strings, .dtype = DT_STRING, .count = text->count};
    Column b = {.ints = numbers->ints, .dtype = DT_I64, .count = numbers->count};
    *keys = x->dtype == DT_STRING ? a : b;
    *values = x->dtype == DT_STRING ? b : a;
    return true;
}

static Status host_look_up(HostCall *call) {
    const Node *n = call->node;
    const Tensor *x = host_input(call, 0);
    if (!x) return host_error(call, "the input is no tensor");
    Column keys = column_of(n, key_names), values = column_of(n, value_names);
    bool known = keys.count && values.count;
    if (!known) known = old_label_encoder(n, x, &keys, &values, call->arena) || category_mapper(n, x, &keys, &values);
    if (!known || keys.count > values.count || keys.count > INT32_MAX)
        return host_error(call, "its keys and values do not fit each other");
    if ((keys.dtype == DT_STRING) != (x->dtype == DT_STRING) || dtype_is_float(keys.dtype) != dtype_is_float(x->dtype))
        return host_error(call, "the keys are %s, the input is %s", dtype_name(keys.dtype), dtype_name(x->dtype));
    Index index = index_keys(call->arena, keys);
    Tensor *y;
    TRY(host_output(call, 0, values.dtype, x->rank, x->dims, &y));
    int64_t count = y ? tensor_count(y) : 0;
    for (int64_t i = 0; i < count; i++) {
        Key key = key_of_tensor(x, i);
        int64_t found = find_key(&index, &key);
        if (found >= 0)
            store_value(&values, found, y, i);
        else
            store_default(n, y, i);
    }
    return NULL;
}

static Status look_up(Lowering *l, const Node *n, DType result) {
    Value *x = in(l, n, 0);
    Node *host = x ? host_node(l, n, host_look_up, &x, 1) : NULL;
    return host ? out(l, n, 0, host_result(l, host, result, x->rank, (const Dim *const *)x->dims)) : l->error;
}

static Status lower_label_encoder(Lowering *l, const Node *n) {
    Column values = column_of(n, value_names);
    Value *x = in(l, n, 0);
    if (!x) return l->error;
    if (node_attr(n, "classes_strings")) return look_up(l, n, x->dtype == DT_STRING ? DT_I64 : DT_STRING);
    if (!values.count || !column_of(n, key_names).count) return invalid(l, "keys or values are missing");
    return look_up(l, n, values.dtype);
}

static Status lower_category_mapper(Lowering *l, const Node *n) {
    Value *x = in(l, n, 0);
    return x ? look_up(l, n, x->dtype == DT_STRING ? DT_I64 : DT_STRING) : l->error;
}

static const char *const category_names[] = {"cats_strings", "cats_int64s", "", NULL};

static Status host_one_hot(HostCall *call) {
    const Tensor *x = host_input(call, 0);
    Column categories = column_of(call->node, category_names);
    if (!x || x->rank >= MAX_RANK || !categories.count)
        return host_error(call, "the input or the categories are missing");
    if ((categories.dtype == DT_STRING) != (x->dtype == DT_STRING))
        return host_error(call, "the categories have another type than the input");
    Index index = index_keys(call->arena, categories);
    int64_t dims[MAX_RANK] = {0};
    memcpy(dims, x->dims, (size_t)x->rank * sizeof *dims);
    dims[x->rank] = categories.count;
    Tensor *y;
    TRY(host_output(call, 0, DT_F32, x->rank + 1, dims, &y));
    if (!y) return NULL;
    if (tensor_bytes(y)) memset(y->data, 0, tensor_bytes(y));
    for (int64_t i = 0, count = tensor_count(x); i < count; i++) {
        Key key = key_of_tensor(x, i);
        if (!key.is_text && !key.is_integer) key = (Key){.integer = (int64_t)key.number, .is_integer = true};
        int64_t found = find_key(&index, &key);
        if (found >= 0)
            ((float *)y->data)[i * categories.count + found] = 1;
        else if (!attr_int(call->node, "zeros", 1))
            return host_error(call, "element %lld is none of the categories", (long long)i);
    }
    return NULL;
}

static Status lower_one_hot(Lowering *l, const Node *n) {
    Value *x = in(l, n, 0);
    if (!x) return l->error;
    int64_t count = column_of(n, category_names).count;
    if (!count) return invalid(l, "the categories are missing");
    if (x->rank >= MAX_RANK) return unsupported(l, "%d axes", x->rank);
    const Dim **dims = ARENA_ARRAY(l->arena, const Dim *, x->rank + 1);
    for (int i = 0; i < x->rank; i++) dims[i] = x->dims[i];
    dims[x->rank] = dim_const(l->dims, count);
    Node *host = host_node(l, n, host_one_hot, &x, 1);
    return host ? out(l, n, 0, host_result(l, host, DT_F32, x->rank + 1, dims)) : l->error;
}

#define ML "ai.onnx.ml"

const OpRow ops_ml[] = {
    {ML, "ArrayFeatureExtractor", 1, 0, lower_feature_extractor, NULL, 0},
    {ML, "Binarizer", 1, 0, lower_binarizer, NULL, 0},
    {ML, "CastMap", 1, 0, lower_cast_map, host_cast_map, 0},
    {ML, "CategoryMapper", 1, 0, lower_category_mapper, host_look_up, 0},
    {ML, "DictVectorizer", 1, 0, lower_dict_vectorizer, host_dict_vectorizer, 0},
    {ML, "FeatureVectorizer", 1, 0, lower_feature_vectorizer, NULL, 0},
    {ML, "Imputer", 1, 0, lower_imputer, NULL, 0},
    {ML, "LabelEncoder", 1, 0, lower_label_encoder, host_look_up, 0},
    {ML, "LinearClassifier", 1, 0, lower_linear_classifier, host_choose, 0},
    {ML, "LinearRegressor", 1, 0, lower_linear_regressor, host_transform, 0},
    {ML, "Normalizer", 1, 0, lower_normalizer, NULL, 0},
    {ML, "OneHotEncoder", 1, 0, lower_one_hot, host_one_hot, 0},
    {ML, "SVMClassifier", 1, 0, lower_svm_classifier, host_svm_classifier, 0},
    {ML, "SVMRegressor", 1, 0, lower_svm_regressor, host_svm_regressor, 0},
    {ML, "Scaler", 1, 0, lower_scaler, NULL, 0},
    {ML, "TreeEnsemble", 5, 0, lower_tree_ensemble, host_forest, 0},
    {ML, "TreeEnsembleClassifier", 1, 0, lower_tree_classifier, host_forest_classifier, 0},
    {ML, "TreeEnsembleRegressor", 1, 0, lower_tree_regressor, host_forest, 0},
    {ML, "ZipMap", 1, 0, lower_zip_map, host_zip_map, 0},
    {0},
};
