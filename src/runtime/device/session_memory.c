/* SPDX-License-Identifier: Apache-2.0 */
/* Blocks with a header in front; deep copies of items. A string tensor is one block: the views, then all characters. */
#include "runtime/device/session_memory.h"

#include <stdint.h>
#include <unistd.h>

#include "base/heap.h"

typedef struct Header {
    size_t bytes;  /* of the data */
    size_t before; /* from the block's first byte to the data's */
} Header;

enum { HEADER = HEAP_ALIGNMENT };

static Header *header_of(const void *data) { return (Header *)(void *)((char *)(uintptr_t)data - HEADER); }

void memory_init(Memory *memory, int64_t limit_megabytes) {
    atomic_init(&memory->used, 0);
    atomic_init(&memory->peak, 0);
    size_t machine = (size_t)sysconf(_SC_PHYS_PAGES) * (size_t)sysconf(_SC_PAGESIZE);
    size_t limit =
        limit_megabytes > 0 && (uint64_t)limit_megabytes < SIZE_MAX >> 20 ? (size_t)limit_megabytes << 20 : machine;
    memory->limit = limit;
}

static void note_peak(Memory *memory, size_t used) {
    size_t peak = atomic_load_explicit(&memory->peak, memory_order_relaxed);
    while (peak < used && !atomic_compare_exchange_weak_explicit(&memory->peak, &peak, used, memory_order_relaxed,
                                                                 memory_order_relaxed)) {}
}

/* At most, and what is not needed stays behind the data. */
static size_t room_before(size_t bytes) { return bytes < SPREAD_LEAST ? HEADER : HEADER + SPREAD_PAGE; }

Status memory_alloc(Memory *memory, size_t bytes, void **out_data) {
    if (bytes < 64) bytes = 64;
    size_t extra = room_before(bytes);
    size_t before = memory ? atomic_fetch_add(&memory->used, bytes) : 0;
    bool fits = !memory || (bytes <= memory->limit && before <= memory->limit - bytes);
    char *block = fits && bytes < SIZE_MAX / 2 ? heap_alloc(extra + bytes) : NULL;
    if (!block) {
        if (memory) atomic_fetch_sub(&memory->used, bytes);
        if (fits) return status_error(STATUS_FAULT, "out of memory: no %zu bytes", bytes);
        return status_error(STATUS_FAULT, "out of memory: %zu bytes asked for, %zu in use, limit %zu", bytes, before,
                            memory->limit);
    }
    if (memory) note_peak(memory, before + bytes);
    size_t skip = HEADER, first = (uintptr_t)block + HEADER;
    if (bytes >= SPREAD_LEAST) skip += memory_spread(first, (uintptr_t)block / SPREAD_PAGE) - first;
    *out_data = block + skip;
    *header_of(*out_data) = (Header){bytes, skip};
    return NULL;
}

size_t memory_size(const void *data) { return header_of(data)->bytes; }

void memory_free(Memory *memory, void *data) {
    if (!data) return;
    Header header = *header_of(data);
    if (memory) atomic_fetch_sub(&memory->used, header.bytes);
    heap_free((char *)data - header.before, header.bytes + room_before(header.bytes));
}

Status item_new_tensor(Memory *memory, DType dtype, int rank, const int64_t *dims, Item *out_item) {
    size_t bytes;
    TRY(tensor_size_of(dtype, rank, dims, NULL, &bytes));
    void *data;
    TRY(memory_alloc(memory, bytes, &data));
    *out_item = (Item){.kind = ITEM_TENSOR, .tensor = {.dtype = dtype, .rank = rank, .data = data}};
    if (rank) memcpy(out_item->tensor.dims, dims, sizeof *dims * (size_t)rank);
    if (dtype == DT_STRING) memset(data, 0, bytes);
    return NULL;
}

static Status copy_strings(Memory *memory, const Tensor *from, Item *out_item) {
    const StringView *views = from->data;
    int64_t count = tensor_count(from);
    size_t characters = 0;
    for (int64_t i = 0; i < count; i++) characters += views[i].size;
    void *data;
    size_t table = sizeof *views * (size_t)count;
    TRY(memory_alloc(memory, table + characters, &data));
    StringView *copies = data;
    char *at = (char *)data + table;
    for (int64_t i = 0; i < count; i++) {
        if (views[i].size) memcpy(at, views[i].data, views[i].size);
        copies[i] = (StringView){at, views[i].size};
        at += views[i].size;
    }
    *out_item = (Item){.kind = ITEM_TENSOR, .tensor = *from};
    out_item->tensor.data = data;
    return NULL;
}

Status item_copy(Memory *memory, const Item *from, Item *out_item) {
    *out_item = (Item){.kind = ITEM_NONE};
    if (from->kind == ITEM_TENSOR) {
        if (from->tensor.dtype == DT_STRING) return copy_strings(memory, &from->tensor, out_item);
        TRY(item_new_tensor(memory, from->tensor.dtype, from->tensor.rank, from->tensor.dims, out_item));
        size_t bytes = tensor_bytes(&from->tensor);
        if (bytes) memcpy(out_item->tensor.data, from->tensor.data, bytes);
    } else if (item_has_items(from)) {
        void *items;
        TRY(memory_alloc(memory, sizeof(Item) * (size_t)from->count, &items));
        *out_item = (Item){.kind = from->kind, .items = items};
        for (; out_item->count < from->count; out_item->count++) {
            Status status = item_copy(memory, &from->items[out_item->count], &out_item->items[out_item->count]);
            if (status) {
                item_free(memory, out_item);
                return status;
            }
        }
    }
    return NULL;
}

void item_free(Memory *memory, Item *item) {
    if (item->kind == ITEM_TENSOR) memory_free(memory, item->tensor.data);
    if (item_has_items(item)) {
        for (int i = 0; i < item->count; i++) item_free(memory, &item->items[i]);
        memory_free(memory, item->items);
    }
    *item = (Item){.kind = ITEM_NONE};
}
