/* SPDX-License-Identifier: Apache-2.0 */
/* Making maps, and finding things in them. */
#include "graph/maps/map_value.h"

#include <stdlib.h>
#include <string.h>

typedef struct Key {
    StringView text;
    int64_t number, at; /* at: where it stands among the keys */
} Key;

bool map_takes_key(DType dtype) { return dtype == DT_I64 || dtype == DT_STRING; }

bool map_takes_value(DType dtype) {
    return dtype == DT_F32 || dtype == DT_F64 || dtype == DT_I64 || dtype == DT_STRING;
}

static Key key_at(const Tensor *keys, int64_t at) {
    if (keys->dtype == DT_STRING) return (Key){.text = ((const StringView *)keys->data)[at], .at = at};
    return (Key){.number = ((const int64_t *)keys->data)[at], .at = at};
}

/* Text in the order of its bytes, what another begins with before it. */
static int compare_keys(const Key *a, const Key *b) {
    size_t common = a->text.size < b->text.size ? a->text.size : b->text.size;
    int order = common ? memcmp(a->text.data, b->text.data, common) : 0;
    if (order) return order;
    if (a->text.size != b->text.size) return a->text.size < b->text.size ? -1 : 1;
    return a->number < b->number ? -1 : a->number > b->number;
}

static int compare_places(const void *a, const void *b) {
    const Key *x = a, *y = b;
    int order = compare_keys(x, y);
    return order ? order : x->at < y->at ? -1 : x->at > y->at;
}

const int64_t *map_order(Arena *arena, const Tensor *keys, int64_t *out_count) {
    int64_t count = tensor_count(keys), entries = 0;
    Key *sorted = ARENA_ARRAY(arena, Key, count);
    int64_t *order = ARENA_ARRAY(arena, int64_t, count);
    for (int64_t i = 0; i < count; i++) sorted[i] = key_at(keys, i);
    if (count) qsort(sorted, (size_t)count, sizeof *sorted, compare_places);
    for (int64_t i = 0; i < count; i++)
        if (i + 1 == count || compare_keys(&sorted[i], &sorted[i + 1]) != 0) order[entries++] = sorted[i].at;
    *out_count = entries;
    return order;
}

const Tensor *map_pick(Arena *arena, const Tensor *from, const int64_t *order, int64_t count) {
    Tensor *to = tensor_new_unset(arena, from->dtype, 1, &count);
    size_t size = dtype_size(from->dtype);
    for (int64_t i = 0; i < count; i++)
        memcpy((char *)to->data + (size_t)i * size, (const char *)from->data + (size_t)order[i] * size, size);
    return to;
}

Item map_of(Arena *arena, const Tensor *keys, const Tensor *values) {
    Item *parts = ARENA_ARRAY(arena, Item, 2);
    parts[0] = (Item){.kind = ITEM_TENSOR, .tensor = *keys};
    parts[1] = (Item){.kind = ITEM_TENSOR, .tensor = *values};
    return (Item){.kind = ITEM_MAP, .items = parts, .count = 2};
}

static Status key_twice(Arena *arena, const int64_t *order, int64_t entries) {
    bool *taken = ARENA_ARRAY(arena, bool, entries + 1);
    int64_t at = 0;
    for (int64_t i = 0; i < entries; i++)
        if (order[i] <= entries) taken[order[i]] = true;
    while (taken[at]) at++;
    return status_error(STATUS_INVALID, "a map has the key at position %lld twice", (long long)at);
}

Status map_make_item(Arena *arena, const Tensor *keys, const Tensor *values, Item *out_map) {
    if (!map_takes_key(keys->dtype) || !map_takes_value(values->dtype))
        return status_error(STATUS_UNSUPPORTED, "maps from %s to %s are not supported", dtype_onnx_name(keys->dtype),
                            dtype_onnx_name(values->dtype));
    if (keys->rank != 1 || values->rank != 1 || keys->dims[0] != values->dims[0])
        return status_error(STATUS_INVALID, "a map's keys and values are no two lists of the same length");
    int64_t count;
    const int64_t *order = map_order(arena, keys, &count);
    if (count != keys->dims[0]) return key_twice(arena, order, count);
    *out_map = map_of(arena, map_pick(arena, keys, order, count), map_pick(arena, values, order, count));
    return NULL;
}

int64_t map_find(const Item *map, const Tensor *keys, int64_t index) {
    const Tensor *own = map_keys(map);
    Key key = key_at(keys, index);
    for (int64_t low = 0, high = own->dims[0]; low < high;) {
        int64_t middle = low + (high - low) / 2;
        Key other = key_at(own, middle);
        int order = compare_keys(&key, &other);
        if (order == 0) return middle;
        if (order < 0)
            high = middle;
        else
            low = middle + 1;
    }
    return -1;
}
