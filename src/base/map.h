/* SPDX-License-Identifier: Apache-2.0 */
/* Hash maps in an arena: string keys, and 64-bit keys (also pointers). A missing key gives NULL. */
#ifndef ONNXFUSE_BASE_MAP_H
#define ONNXFUSE_BASE_MAP_H

#include <stdint.h>
#include "base/arena.h"

typedef struct Map {
    Arena *arena;
    struct MapEntry *entries; /* open addressing, a power of two */
    int count, capacity;
} Map;

Map map_make(Arena *arena);
void map_reserve(Map *map, int count); /* that it holds so many entries without growing; a hint */
void *map_get(const Map *map, const char *key);
void map_set(Map *map, const char *key, void *value); /* keeps the key's pointer: it must outlive the map */
void *map_get_id(const Map *map, uint64_t key);
void map_set_id(Map *map, uint64_t key, void *value);
#define MAP_POINTER_KEY(pointer) ((uint64_t)(uintptr_t)(pointer))

uint64_t hash_bytes(const void *data, size_t size, uint64_t seed);

#endif
