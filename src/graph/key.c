/* SPDX-License-Identifier: Apache-2.0 */
#include "graph/key.h"

typedef struct Answer {
    struct Answer *next; /* of the same hash */
    const int64_t *words;
    int count;
    const void *answer;
} Answer;

void graph_key_bytes(GraphKey *key, const void *data, size_t size) {
    graph_key_add(key, (int64_t)size);
    for (size_t at = 0; at < size; at += sizeof(int64_t)) {
        int64_t word = 0;
        memcpy(&word, (const char *)data + at, size - at < sizeof word ? size - at : sizeof word);
        graph_key_add(key, word);
    }
}

/* Sizes are interned: equal ones are one pointer. */
void graph_key_type(GraphKey *key, const Value *v) {
    graph_key_add(key, v->dtype | (int64_t)v->rank << 8);
    for (int d = 0; d < v->rank; d++) graph_key_add(key, (int64_t)(uintptr_t)v->dims[d]);
}

void graph_key_attr(GraphKey *key, const Attr *a) {
    graph_key_add(key, (int64_t)a->kind | (int64_t)a->count << 8);
    graph_key_bytes(key, a->name, strlen(a->name));
    if (a->kind == ATTR_INTS)
        graph_key_bytes(key, a->ints, (size_t)a->count * sizeof *a->ints);
    else if (a->kind == ATTR_DIMS)
        graph_key_bytes(key, a->dims, (size_t)a->count * sizeof(const Dim *));
    else if (a->kind == ATTR_FLOAT)
        graph_key_bytes(key, &a->f, sizeof a->f);
    else if (a->kind == ATTR_TYPE)
        graph_key_add(key, a->dtype);
    else /* what is longer counts as equal where it is the same */
        graph_key_add(key, a->kind == ATTR_INT ? a->i : (int64_t)(uintptr_t)a->tensor);
}

GraphKeyTable graph_key_table(Arena *arena) { return (GraphKeyTable){arena, map_make(arena), 0}; }

static size_t bytes_of(const GraphKey *key) { return (size_t)key->words.count * sizeof *key->words.items; }
static uint64_t hash_of(const GraphKey *key) { return hash_bytes(key->words.items, bytes_of(key), 0); }

bool graph_key_find(const GraphKeyTable *table, const GraphKey *key, const void **out_answer) {
    for (const Answer *a = map_get_id(&table->answers, hash_of(key)); a; a = a->next)
        if (a->count == key->words.count && memcmp(a->words, key->words.items, bytes_of(key)) == 0) {
            *out_answer = a->answer;
            return true;
        }
    return false;
}

void graph_key_keep(GraphKeyTable *table, const GraphKey *key, const void *answer) {
    enum { MOST_KEPT = 4 << 20 }; /* bytes: a graph whose parts all differ would keep many */
    uint64_t hash = hash_of(key);
    if (table->kept + bytes_of(key) > MOST_KEPT) return;
    table->kept += bytes_of(key);
    Answer *a = ARENA_NEW(table->arena, Answer);
    *a = (Answer){map_get_id(&table->answers, hash), arena_copy(table->arena, key->words.items, bytes_of(key)),
                  key->words.count, answer};
    map_set_id(&table->answers, hash, a);
}
