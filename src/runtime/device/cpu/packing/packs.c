/* SPDX-License-Identifier: Apache-2.0 */
/* Blocks in a list a bucket, found by the hash of their recipe and compared by all of it. */
#include "runtime/device/cpu/packing/packs.h"

#include <stdlib.h>
#include <string.h>
#include "base/heap.h"
#include "base/map.h"

enum { BUCKETS = 256 };

struct Pack {
    PackStore *store; /* that finds it; NULL: none does */
    Pack *next, **before;
    int references;
    size_t bytes; /* of data */
    void *data;
    Recipe recipe;
};

struct PackStore {
    Pack *buckets[BUCKETS];
};

void recipe_add(Recipe *recipe, int64_t number) {
    if (recipe->count < MAX_RECIPE) recipe->numbers[recipe->count] = number;
    recipe->count++;
}

void recipe_add_all(Recipe *recipe, const int64_t *numbers, int count) {
    for (int i = 0; i < count; i++) recipe_add(recipe, numbers[i]);
}

void recipe_add_place(Recipe *recipe, const void *data) { recipe_add(recipe, (int64_t)(uintptr_t)data); }

void recipe_add_factor(Recipe *recipe, double factor) {
    int64_t bits;
    memcpy(&bits, &factor, sizeof bits);
    recipe_add(recipe, bits);
}

Status pack_store_create(PackStore **out_store) {
    *out_store = calloc(1, sizeof **out_store);
    return *out_store ? NULL : status_out_of_memory();
}

static void unlink_pack(Pack *pack) {
    if (!pack->store) return;
    *pack->before = pack->next;
    if (pack->next) pack->next->before = pack->before;
    pack->store = NULL;
}

void pack_store_destroy(PackStore *store) {
    for (int i = 0; store && i < BUCKETS; i++)
        while (store->buckets[i]) unlink_pack(store->buckets[i]);
    free(store);
}

static size_t recipe_size(const Recipe *recipe) { return (size_t)recipe->count * sizeof *recipe->numbers; }

static Pack **bucket_of(PackStore *store, const Recipe *recipe) {
    return &store->buckets[hash_bytes(recipe->numbers, recipe_size(recipe), 0) % BUCKETS];
}

static Pack *find(PackStore *store, const Recipe *recipe, size_t bytes) {
    for (Pack *pack = *bucket_of(store, recipe); pack; pack = pack->next)
        if (pack->recipe.count == recipe->count && pack->bytes == bytes &&
            memcmp(pack->recipe.numbers, recipe->numbers, recipe_size(recipe)) == 0)
            return pack;
    return NULL;
}

static void link_pack(PackStore *store, const Recipe *recipe, Pack *pack) {
    Pack **bucket = bucket_of(store, recipe);
    pack->recipe = *recipe;
    pack->store = store;
    pack->next = *bucket;
    pack->before = bucket;
    if (pack->next) pack->next->before = &pack->next;
    *bucket = pack;
}

Status pack_take(PackStore *store, const Recipe *recipe, size_t bytes, Pack **out_pack, bool *out_ready) {
    *out_pack = NULL;
    *out_ready = false;
    if (bytes > SIZE_MAX / 2) return status_out_of_memory();
    if (!bytes) bytes = 1;
    bool shared = store && recipe && recipe->count <= MAX_RECIPE;
    Pack *pack = shared ? find(store, recipe, bytes) : NULL;
    if (pack) {
        pack->references++;
        *out_ready = true;
    } else {
        pack = calloc(1, sizeof *pack);
        void *data = pack ? heap_alloc_lasting(bytes) : NULL;
        if (!data) {
            free(pack);
            return status_out_of_memory();
        }
        *pack = (Pack){.references = 1, .bytes = bytes, .data = data};
        if (shared) link_pack(store, recipe, pack);
    }
    *out_pack = pack;
    return NULL;
}

void *pack_data(Pack *pack) { return pack->data; }

void pack_release(Pack *pack) {
    if (!pack || --pack->references) return;
    unlink_pack(pack);
    heap_free_lasting(pack->data, pack->bytes);
    free(pack);
}
