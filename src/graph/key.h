/* SPDX-License-Identifier: Apache-2.0 */
/* What a computation depends on, as words: of equal parts of a graph (equal layers) one is computed, the others are found. */
#ifndef ONNXFUSE_GRAPH_KEY_H
#define ONNXFUSE_GRAPH_KEY_H

#include "base/map.h"
#include "graph/graph.h"

typedef struct GraphKey {
    Arena *arena;
    VEC(int64_t) words;
} GraphKey;

static inline void graph_key_add(GraphKey *key, int64_t word) { VEC_PUSH(key->arena, key->words, word); }
void graph_key_bytes(GraphKey *key, const void *data, size_t size);
void graph_key_type(GraphKey *key, const Value *v); /* element type and sizes */
void graph_key_attr(GraphKey *key, const Attr *a);

/* What is known by its key. */
typedef struct GraphKeyTable {
    Arena *arena;
    Map answers;
    size_t kept; /* bytes of keys */
} GraphKeyTable;

GraphKeyTable graph_key_table(Arena *arena);
bool graph_key_find(const GraphKeyTable *table, const GraphKey *key, const void **out_answer); /* whether it is there */
void graph_key_keep(GraphKeyTable *table, const GraphKey *key, const void *answer); /* may forget at once, see key.c */

#endif
