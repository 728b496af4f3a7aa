/* SPDX-License-Identifier: Apache-2.0 */
/* Any bytes as a recorded tensor, sequence, optional or map (the first byte says which): what can be read can be written,
 * and the written bytes read back. */
#include "importer/importer.h"

#include <stdint.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { ARENA_LIMIT = 512 << 20 };

static void round_trip(Arena *arena, const uint8_t *data, size_t size, ValueKind kind) {
    jmp_buf guard;
    if (setjmp(guard)) return;
    arena_guard(arena, &guard);
    Item item, again;
    const char *name;
    void *bytes;
    size_t written;
    Status status = item_from_memory(arena, data, size, kind, &item, &name);
    if (!status) {
        if (item_to_memory(arena, &item, kind, name, &bytes, &written)) abort();
        if (item_from_memory(arena, bytes, written, kind, &again, NULL)) abort();
        if (again.kind != item.kind || again.count != item.count) abort();
    }
    status_free(status);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (!size) return 0;
    Arena *arena = arena_create(ARENA_LIMIT);
    if (arena) round_trip(arena, data + 1, size - 1, (ValueKind)(data[0] % (VALUE_MAP + 1)));
    arena_destroy(arena);
    return 0;
}
