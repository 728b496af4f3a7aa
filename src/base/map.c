/* SPDX-License-Identifier: Apache-2.0 */
/* Linear probing; a map is used with string keys or with numeric ones, never with both. */
#include "base/map.h"

typedef struct MapEntry {
    uint64_t hash;   /* the key itself in numeric maps */
    const char *key; /* NULL: the entry is free; in numeric maps NUMERIC */
    void *value;
} MapEntry;

static const char NUMERIC[] = "";

Map map_make(Arena *arena) { return (Map){.arena = arena}; }

/* Eight bytes at a time, multiplied and folded so that each bit reaches all others; the size tells a short tail from
 * zeros. */
uint64_t hash_bytes(const void *data, size_t size, uint64_t seed) {
    const unsigned char *at = data;
    uint64_t hash = 0xcbf29ce484222325u ^ seed ^ (uint64_t)size * 0x9e3779b97f4a7c15u;
    for (size_t left = size; left;) {
        uint64_t word = 0;
        size_t taken = left < sizeof word ? left : sizeof word;
        if (taken == sizeof word)
            memcpy(&word, at, sizeof word);
        else
            memcpy(&word, at, taken);
        hash = (hash ^ word) * 0xff51afd7ed558ccdu;
        hash ^= hash >> 32;
        at += taken;
        left -= taken;
    }
    hash *= 0x9e3779b97f4a7c15u;
    return hash ^ hash >> 29;
}

static uint64_t mix(uint64_t key) {
    key *= 0x9e3779b97f4a7c15u;
    return key ^ key >> 32;
}

static MapEntry *find(const Map *map, uint64_t hash, const char *key) {
    for (uint64_t i = (key ? hash : mix(hash));; i++) {
        MapEntry *e = &map->entries[i & (uint64_t)(map->capacity - 1)];
        if (!e->key || (e->hash == hash && (!key || strcmp(e->key, key) == 0))) return e;
    }
}

static void grow(Map *map, int capacity) {
    Map grown = {map->arena, NULL, map->count, capacity};
    grown.entries = ARENA_ARRAY(map->arena, MapEntry, capacity);
    for (int i = 0; i < map->capacity; i++) {
        const MapEntry *e = &map->entries[i];
        if (e->key) *find(&grown, e->hash, e->key == NUMERIC ? NULL : e->key) = *e;
    }
    if (map->capacity) arena_free_large(map->arena, map->entries, (size_t)map->capacity * sizeof *map->entries);
    *map = grown;
}

static bool is_full(int count, int capacity) { return count >= capacity / 4 * 3; }

void map_reserve(Map *map, int count) {
    int capacity = 8;
    while (capacity < 1 << 28 && is_full(count, capacity)) capacity *= 2;
    if (capacity > map->capacity) grow(map, capacity);
}

static void insert(Map *map, uint64_t hash, const char *key, void *value) {
    if (is_full(map->count, map->capacity)) grow(map, map->capacity ? map->capacity * 2 : 8);
    MapEntry *e = find(map, hash, key);
    if (!e->key) map->count++;
    *e = (MapEntry){hash, key ? key : NUMERIC, value};
}

void *map_get(const Map *map, const char *key) {
    return map->count ? find(map, hash_bytes(key, strlen(key), 0), key)->value : NULL;
}

void map_set(Map *map, const char *key, void *value) { insert(map, hash_bytes(key, strlen(key), 0), key, value); }

void *map_get_id(const Map *map, uint64_t key) { return map->count ? find(map, key, NULL)->value : NULL; }

void map_set_id(Map *map, uint64_t key, void *value) { insert(map, key, NULL, value); }
