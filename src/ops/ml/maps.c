/* SPDX-License-Identifier: Apache-2.0 */
/* ZipMap, DictVectorizer and CastMap: the ways from tensors to maps and back. Where the standard leaves a result open, it
 * is ONNX Runtime's. */
#include "ops/ml/maps.h"

#include "graph/maps/map_value.h"
#include "lowering/item_type.h"
#include "ops/math/elementwise.h"

/* The list of one of two attributes as a tensor [count]; count 0 where it is empty or missing. */
static Tensor list_of(const Node *n, const char *strings, const char *ints, DType dtype) {
    const Attr *attr = node_attr(n, dtype == DT_STRING ? strings : ints);
    Tensor list = {.dtype = dtype, .rank = 1};
    if (!attr || attr->kind != (dtype == DT_STRING ? ATTR_STRINGS : ATTR_INTS)) return list;
    list.dims[0] = attr->count;
    list.data = dtype == DT_STRING ? (void *)(uintptr_t)attr->strings : (void *)(uintptr_t)attr->ints;
    return list;
}

static const Item *map_in(const HostCall *call) {
    const Item *item = call->inputs[0];
    return item && item->kind == ITEM_MAP ? item : NULL;
}

/* Not that of the map's values, which a map without entries does not tell. */
static DType result_type(const HostCall *call) { return call->node->outputs[0]->dtype; }

static Value *map_value_in(Lowering *l, const Node *n) {
    Value *x = in(l, n, 0);
    if (x && x->kind != VALUE_MAP) {
        invalid(l, "input 0 is no map");
        return NULL;
    }
    return x;
}

/* ---- ZipMap: a map of labels to scores for each row ---- */

static Tensor class_labels(const Node *n) {
    Tensor text = list_of(n, "classlabels_strings", "classlabels_int64s", DT_STRING);
    return text.dims[0] ? text : list_of(n, "classlabels_strings", "classlabels_int64s", DT_I64);
}

Status host_zip_map(HostCall *call) {
    const Tensor *x = host_input(call, 0);
    Tensor labels = class_labels(call->node);
    if (!x || x->dtype != DT_F32 || x->rank < 1 || x->rank > 2) return host_error(call, "expected scores [N, classes]");
    int64_t classes = x->dims[x->rank - 1], rows = x->rank == 2 ? x->dims[0] : 1, entries;
    if (classes != labels.dims[0])
        return host_error(call, "%lld class labels for %lld columns", (long long)labels.dims[0], (long long)classes);
    if (rows > INT32_MAX) return host_error(call, "%lld rows", (long long)rows);
    const int64_t *order = map_order(call->arena, &labels, &entries);
    const Tensor *keys = map_pick(call->arena, &labels, order, entries);
    Item *maps = ARENA_ARRAY(call->arena, Item, rows);
    for (int64_t r = 0; r < rows; r++) {
        Tensor scores = {.dtype = DT_F32, .rank = 1, .dims = {classes}, .data = (float *)x->data + r * classes};
        maps[r] = map_of(call->arena, keys, map_pick(call->arena, &scores, order, entries));
    }
    if (call->outputs[0]) *call->outputs[0] = (Item){.kind = ITEM_SEQUENCE, .items = maps, .count = (int)rows};
    return NULL;
}

Status lower_zip_map(Lowering *l, const Node *n) {
    Value *x = in(l, n, 0);
    if (!present(l, &x, 1)) return l->error;
    Tensor text = list_of(n, "classlabels_strings", "classlabels_int64s", DT_STRING),
           labels = list_of(n, "classlabels_strings", "classlabels_int64s", DT_I64);
    if ((text.dims[0] != 0) == (labels.dims[0] != 0))
        return invalid(l, "it needs either classlabels_strings or classlabels_int64s");
    if (text.dims[0]) labels = text;
    if (x->rank < 1 || x->rank > 2) return invalid(l, "X has %d axes where 1 or 2 are needed", x->rank);
    if (!dtype_is_float(x->dtype) || x->dtype == DT_F64)
        return invalid(l, "X is %s where float32 is needed", dtype_onnx_name(x->dtype));
    int64_t classes;
    if (dim_is_const(x->dims[x->rank - 1], &classes) && classes != labels.dims[0])
        return invalid(l, "%lld class labels for %lld columns", (long long)labels.dims[0], (long long)classes);
    x = cast(l, x, DT_F32); /* where a policy has had it narrower */
    Node *host = x ? host_node(l, n, host_zip_map, &x, 1) : NULL;
    ItemType type = {VALUE_MAP_SEQUENCE, DT_F32, RANK_ANY, NULL, labels.dtype};
    return host ? out(l, n, 0, item_result(l, host, &type)) : l->error;
}

/* ---- DictVectorizer: the values of the vocabulary's keys; zero, or no text, of those that the map has not ---- */

static Tensor vocabulary(const Node *n, DType key) { return list_of(n, "string_vocabulary", "int64_vocabulary", key); }

Status host_dict_vectorizer(HostCall *call) {
    const Item *map = map_in(call);
    if (!map) return host_error(call, "input 0 is no map");
    const Tensor *values = map_values(map);
    Tensor words = vocabulary(call->node, map_keys(map)->dtype), *y;
    TRY(host_output(call, 0, result_type(call), 2, (const int64_t[]){1, words.dims[0]}, &y));
    size_t size = dtype_size(result_type(call));
    for (int64_t i = 0; y && i < words.dims[0]; i++) {
        int64_t at = map_find(map, &words, i);
        char *to = (char *)y->data + (size_t)i * size;
        if (at >= 0)
            memcpy(to, (const char *)values->data + (size_t)at * size, size);
        else
            memset(to, 0, size);
    }
    return NULL;
}

Status lower_dict_vectorizer(Lowering *l, const Node *n) {
    Value *x = map_value_in(l, n);
    if (!x) return l->error;
    int64_t count = vocabulary(n, x->key).dims[0];
    if (!count)
        return invalid(l, "%s is missing, the map's keys are %s",
                       x->key == DT_STRING ? "string_vocabulary" : "int64_vocabulary", dtype_onnx_name(x->key));
    const Dim *dims[] = {dim_const(l->dims, 1), dim_const(l->dims, count)};
    Node *host = host_node(l, n, host_dict_vectorizer, &x, 1);
    return host ? out(l, n, 0, host_result(l, host, x->dtype, 2, dims)) : l->error;
}

/* ---- CastMap: the values in the order of their keys (dense), or each at its key (sparse) ---- */

static bool is_sparse(const Node *n) { return strcmp(attr_string(n, "map_form", "DENSE"), "SPARSE") == 0; }

/* Numbers as text as C++'s to_string gives them, whose bytes ONNX Runtime's results have. */
static StringView number_text(Arena *arena, float number) {
    const char *text = arena_format(arena, "%f", (double)number);
    return (StringView){text, strlen(text)};
}

static void store_entry(Arena *arena, const Tensor *values, int64_t from, Tensor *y, int64_t to) {
    size_t size = dtype_size(y->dtype);
    if (y->dtype == DT_STRING && values->dtype == DT_F32)
        ((StringView *)y->data)[to] = number_text(arena, ((const float *)values->data)[from]);
    else
        memcpy((char *)y->data + (size_t)to * size, (const char *)values->data + (size_t)from * size, size);
}

/* What a sparse result has where there is no key; text that is to become a number likewise. */
static void fill_gaps(Tensor *y, const char *text) {
    for (int64_t i = 0; i < y->dims[1]; i++)
        if (y->dtype == DT_STRING)
            ((StringView *)y->data)[i] = (StringView){text, strlen(text)};
        else
            ((float *)y->data)[i] = 0;
}

/* Its result has the map's type, or is text where that is what is asked for. */
Status host_cast_map(HostCall *call) {
    const Node *n = call->node;
    const Item *map = map_in(call);
    if (!map || map_keys(map)->dtype != DT_I64) return host_error(call, "input 0 is no map with int64 keys");
    const Tensor *values = map_values(map);
    const int64_t *keys = map_keys(map)->data;
    bool sparse = is_sparse(n), text = strcmp(attr_string(n, "cast_to", "TO_FLOAT"), "TO_STRING") == 0;
    int64_t entries = values->dims[0], count = sparse ? attr_int(n, "max_map", 1) : entries;
    for (int64_t i = 0; sparse && i < entries; i++)
        if (keys[i] < 0 || keys[i] >= count)
            return host_error(call, "key %lld is not below max_map, %lld", (long long)keys[i], (long long)count);
    Tensor *y;
    TRY(host_output(call, 0, result_type(call), 2, (const int64_t[]){1, count}, &y));
    if (y && sparse) fill_gaps(y, text ? "0.f" : "0");
    for (int64_t i = 0; y && i < entries; i++) store_entry(call->arena, values, i, y, sparse ? keys[i] : i);
    return NULL;
}

Status lower_cast_map(Lowering *l, const Node *n) {
    static const struct {
        const char *name;
        DType dtype;
    } results[] = {{"TO_FLOAT", DT_F32}, {"TO_INT64", DT_I64}, {"TO_STRING", DT_STRING}};
    Value *x = map_value_in(l, n);
    if (!x) return l->error;
    if (x->key != DT_I64 || (x->dtype != DT_F32 && x->dtype != DT_STRING))
        return invalid(l, "the map is from %s to %s where one from int64 to float32 or strings is needed",
                       dtype_onnx_name(x->key), dtype_onnx_name(x->dtype));
    const char *cast_to = attr_string(n, "cast_to", "TO_FLOAT"), *form = attr_string(n, "map_form", "DENSE");
    DType to = DT_NONE;
    for (size_t i = 0; i < sizeof results / sizeof *results; i++)
        if (strcmp(cast_to, results[i].name) == 0) to = results[i].dtype;
    if (to == DT_NONE) return invalid(l, "cast_to \"%s\"", cast_to);
    if (!is_sparse(n) && strcmp(form, "DENSE") != 0) return invalid(l, "map_form \"%s\"", form);
    int64_t most = attr_int(n, "max_map", 1);
    if (is_sparse(n) && most < 1) return invalid(l, "max_map is %lld", (long long)most);
    const Dim *dims[] = {dim_const(l->dims, 1),
                         is_sparse(n) ? dim_const(l->dims, most) : dim_fresh(l->dims, "entries")};
    Node *host = host_node(l, n, host_cast_map, &x, 1);
    DType packed = to == DT_STRING ? DT_STRING : x->dtype;
    Value *y = host ? host_result(l, host, packed, 2, dims) : NULL;
    if (!y) return l->error;
    return out(l, n, 0, packed == DT_STRING && to != DT_STRING ? cast_strings(l, n, y, to) : cast(l, y, to));
}
