/* Linear probing; a map is used with string keys or with numeric ones, never with both. */
#include "base/map.h"

typedef struct MapEntry {
    uint64_t hash; /* the key itself in numeric maps */
    const char *key;
    void *value;
    bool used;
} MapEntry;

Map map_make(Arena *arena) { return (Map){.arena = arena}; }

/* FNV-1a, then a finalizer so that the low bits are usable as an index. */
uint64_t hash_bytes(const void *data, size_t size, uint64_t seed) {
    uint64_t hash = 0xcbf29ce484222325u ^ seed;
    for (size_t i = 0; i < size; i++) hash = (hash ^ ((const unsigned char *)data)[i]) * 0x100000001b3u;
    hash ^= hash >> 32;
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
        if (!e->used || (e->hash == hash && (!key || strcmp(e->key, key) == 0))) return e;
    }
}

static void insert(Map *map, uint64_t hash, const char *key, void *value) {
    if (map->count * 2 >= map->capacity) {
        Map grown = {map->arena, NULL, 0, map->capacity ? map->capacity * 2 : 16};
        grown.entries = ARENA_ARRAY(map->arena, MapEntry, grown.capacity);
        for (int i = 0; i < map->capacity; i++)
            if (map->entries[i].used) *find(&grown, map->entries[i].hash, map->entries[i].key) = map->entries[i];
        grown.count = map->count;
        *map = grown;
    }
    MapEntry *e = find(map, hash, key);
    if (!e->used) map->count++;
    *e = (MapEntry){hash, key, value, true};
}

void *map_get(const Map *map, const char *key) {
    return map->count ? find(map, hash_bytes(key, strlen(key), 0), key)->value : NULL;
}

void map_set(Map *map, const char *key, void *value) { insert(map, hash_bytes(key, strlen(key), 0), key, value); }

void *map_get_id(const Map *map, uint64_t key) { return map->count ? find(map, key, NULL)->value : NULL; }

void map_set_id(Map *map, uint64_t key, void *value) { insert(map, key, NULL, value); }
