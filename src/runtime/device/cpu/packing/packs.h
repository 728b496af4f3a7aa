/* SPDX-License-Identifier: Apache-2.0 */
/* What anchors have packed of constants. A weight that several nodes use is packed once: anchors of one device that ask
 * for a block of the same recipe get the same block, which goes when the last of them does.
 *
 * A recipe is all that a block's bytes depend on: where the constant's data stands, which does not change while a plan
 * that reads it lives, and how it is laid out. One thread at a time makes and destroys the anchors of a device. */
#ifndef ONNXFUSE_RUNTIME_DEVICE_CPU_PACKING_PACKS_H
#define ONNXFUSE_RUNTIME_DEVICE_CPU_PACKING_PACKS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "base/status.h"

enum { MAX_RECIPE = 64 };

typedef struct Recipe {
    int count;
    int64_t numbers[MAX_RECIPE];
} Recipe;

/* A recipe that has become too long is the same as no other. */
void recipe_add(Recipe *recipe, int64_t number);
void recipe_add_all(Recipe *recipe, const int64_t *numbers, int count);
void recipe_add_place(Recipe *recipe, const void *data);
void recipe_add_factor(Recipe *recipe, double factor);

typedef struct Pack Pack;
typedef struct PackStore PackStore;

Status pack_store_create(PackStore **out_store);
void pack_store_destroy(PackStore *store); /* its packs live on; accepts NULL */

/* The caller's reference to a block; *out_ready: it is filled already, and only read. store, recipe NULL: a block that nobody
 * else gets. */
Status pack_take(PackStore *store, const Recipe *recipe, size_t bytes, Pack **out_pack, bool *out_ready);
void *pack_data(Pack *pack); /* 64-byte aligned, not zeroed */
void pack_release(Pack *pack);

#endif
