/* SPDX-License-Identifier: Apache-2.0 */
/* Maps as values (ONNX's type map, of ai.onnx.ml): an Item of kind ITEM_MAP has two items, tensors [entries]: its keys,
 * ascending and each once, and beside each key its value. So maps of the same entries are the same, whoever made them. */
#ifndef ONNXFUSE_GRAPH_MAP_VALUE_H
#define ONNXFUSE_GRAPH_MAP_VALUE_H

#include "graph/tensor.h"

static inline const Tensor *map_keys(const Item *map) { return &map->items[0].tensor; }
static inline const Tensor *map_values(const Item *map) { return &map->items[1].tensor; }

bool map_takes_key(DType dtype);   /* i64, strings */
bool map_takes_value(DType dtype); /* f32, f64, i64, strings */

/* Where a map's keys stand in `keys` [n], in their order; of equal ones the last is taken. *out_count: entries. */
const int64_t *map_order(Arena *arena, const Tensor *keys, int64_t *out_count);
/* [count]: the elements of `from` at order[0], order[1], ...; in the arena, but for strings' characters. */
const Tensor *map_pick(Arena *arena, const Tensor *from, const int64_t *order, int64_t count);
/* Of keys in their order, and values beside them. The map's parts are in the arena, the tensors' data stays where it is. */
Item map_of(Arena *arena, const Tensor *keys, const Tensor *values);
/* From keys [n] and values [n] in any order, whose ranks are 1; STATUS_INVALID where they make no map, as where a key is
 * there twice. Memory as of map_pick and map_of. */
Status map_make_item(Arena *arena, const Tensor *keys, const Tensor *values, Item *out_map);
/* Where the element of `keys` at `index` is among the map's entries; -1: it is none of its keys. */
int64_t map_find(const Item *map, const Tensor *keys, int64_t index);

#endif
