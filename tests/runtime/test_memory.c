/* SPDX-License-Identifier: Apache-2.0 */
/* A session's memory: counted, limited, given back; items that own what they hold. */
#include <criterion/criterion.h>
#include <stdint.h>

#include "runtime/device/session_memory.h"

static size_t used(Memory *memory) { return atomic_load(&memory->used); }

Test(memory, counts_and_aligns) {
    Memory memory;
    memory_init(&memory, 1);
    static const size_t sizes[] = {0, 1, 63, 64, 65, 4096, 100000};
    void *data[7];
    for (int i = 0; i < 7; i++) {
        cr_assert(!memory_alloc(&memory, sizes[i], &data[i]));
        cr_expect((uintptr_t)data[i] % 64 == 0);
        cr_expect(memory_size(data[i]) >= sizes[i] && memory_size(data[i]) >= 64);
        memset(data[i], 1, memory_size(data[i]));
    }
    cr_expect(used(&memory) >= 100000 + 4096);
    for (int i = 0; i < 7; i++) memory_free(&memory, data[i]);
    memory_free(&memory, NULL);
    cr_expect(used(&memory) == 0);
}

Test(memory, refuses_what_is_beyond_the_limit) {
    Memory memory;
    void *data, *more = NULL;
    memory_init(&memory, 1);
    cr_assert(!memory_alloc(&memory, 1 << 20, &data));
    static const size_t sizes[] = {1, 1 << 20, SIZE_MAX, SIZE_MAX - 64, SIZE_MAX / 2};
    for (int i = 0; i < 5; i++) {
        Status status = memory_alloc(&memory, sizes[i], &more);
        cr_expect(status_code(status) == STATUS_FAULT && strstr(status_message(status), "out of memory"));
        status_free(status);
    }
    cr_expect(used(&memory) == 1 << 20, "what was refused is not counted");
    memory_free(&memory, data);
    for (int i = 2; i < 5; i++) {
        Status status = memory_alloc(NULL, sizes[i], &more);
        cr_expect(status_code(status) == STATUS_FAULT, "also where nothing is counted");
        status_free(status);
    }
}

static Item strings(void) {
    static StringView views[] = {{"ab", 2}, {"", 0}, {"\0c", 2}};
    return (Item){.kind = ITEM_TENSOR, .tensor = {.dtype = DT_STRING, .rank = 1, .dims = {3}, .data = views}};
}

static Item numbers(void) {
    static float values[] = {1, 2, 3, 4, 5, 6};
    return (Item){.kind = ITEM_TENSOR, .tensor = {.dtype = DT_F32, .rank = 2, .dims = {2, 3}, .data = values}};
}

static bool same_item(const Item *a, const Item *b) {
    if (a->kind != b->kind) return false;
    if (a->kind != b->kind) return false;
    if (item_has_items(a)) {
        bool same = a->count == b->count;
        for (int i = 0; same && i < a->count; i++) same = same_item(&a->items[i], &b->items[i]);
        return same;
    }
    if (a->kind == ITEM_NONE) return true;
    if (a->tensor.dtype != b->tensor.dtype || !tensor_same_shape(&a->tensor, &b->tensor)) return false;
    size_t bytes = tensor_bytes(&a->tensor);
    if (!bytes) return true;
    if (a->tensor.dtype != DT_STRING)
        return !tensor_count(&a->tensor) ||
               (a->tensor.data != b->tensor.data && !memcmp(a->tensor.data, b->tensor.data, tensor_bytes(&a->tensor)));
    for (int64_t i = 0; i < tensor_count(&a->tensor); i++) {
        const StringView *x = (StringView *)a->tensor.data + i, *y = (StringView *)b->tensor.data + i;
        if (x->size != y->size || (x->size && (x->data == y->data || memcmp(x->data, y->data, x->size)))) return false;
    }
    return true;
}

Test(memory, copies_are_deep) {
    Item parts[] = {numbers(), strings(), {.kind = ITEM_NONE}};
    Item entries[] = {strings(), strings()};
    Item maps[] = {{.kind = ITEM_MAP, .items = entries, .count = 2}, {.kind = ITEM_MAP, .items = entries, .count = 2}};
    Item cases[] = {parts[0],
                    parts[1],
                    parts[2],
                    {.kind = ITEM_SEQUENCE, .items = parts, .count = 3},
                    {.kind = ITEM_SEQUENCE},
                    {.kind = ITEM_MAP, .items = entries, .count = 2},
                    {.kind = ITEM_SEQUENCE, .items = maps, .count = 2},
                    {.kind = ITEM_TENSOR, .tensor = {.dtype = DT_I64, .rank = 2, .dims = {0, 5}}}};
    Memory memory;
    memory_init(&memory, 1);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        Item copy;
        cr_assert(!item_copy(&memory, &cases[i], &copy));
        cr_expect(same_item(&cases[i], &copy), "case %zu", i);
        item_free(&memory, &copy);
        cr_expect(copy.kind == ITEM_NONE && used(&memory) == 0, "case %zu", i);
    }
}

/* A copy that fails half-way leaves nothing behind. */
Test(memory, failed_copies_are_undone) {
    static float large[1 << 18];
    Item tensor = {.kind = ITEM_TENSOR,
                   .tensor = {.dtype = DT_F32, .rank = 1, .dims = {(1 << 18) - 64}, .data = large}};
    Item parts[] = {numbers(), strings(), tensor, tensor}, copy;
    Item sequence = {.kind = ITEM_SEQUENCE, .items = parts, .count = 4};
    Memory memory;
    memory_init(&memory, 1);
    Status status = item_copy(&memory, &sequence, &copy);
    cr_expect(status_code(status) == STATUS_FAULT);
    cr_expect(used(&memory) == 0, "%zu bytes are left", used(&memory));
    status_free(status);
}

Test(memory, absurd_tensors_are_errors) {
    Item item;
    static const int64_t dims[][2] = {{INT64_MAX, 2}, {-1, 4}, {(int64_t)1 << 32, (int64_t)1 << 32}};
    for (int i = 0; i < 3; i++) {
        Status status = item_new_tensor(NULL, DT_F64, 2, dims[i], &item);
        cr_expect(status_code(status) == STATUS_INVALID, "%d: %s", i, status_message(status));
        status_free(status);
    }
}
