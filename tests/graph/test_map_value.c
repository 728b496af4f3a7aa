/* SPDX-License-Identifier: Apache-2.0 */
/* Maps as values: however their entries are given, they stand in the order of their keys, each once. */
#include "graph/maps/map_value.h"

#include <criterion/criterion.h>

#include "graph/graph.h"

static Tensor numbers(int64_t *data, int count) {
    return (Tensor){.dtype = DT_I64, .rank = 1, .dims = {count}, .data = data};
}

static Tensor strings(StringView *data, int count) {
    return (Tensor){.dtype = DT_STRING, .rank = 1, .dims = {count}, .data = data};
}

#define VIEW(text) ((StringView){text, sizeof text - 1})

static const char *printed(Arena *arena, const Item *map) {
    Text text = text_make(arena);
    tensor_print(&text, map_keys(map), 99);
    text_add(&text, " to ");
    tensor_print(&text, map_values(map), 99);
    return text.data;
}

static int64_t ascending[] = {0, 1, 2, 3}, mixed[] = {7, INT64_MIN, INT64_MAX, -1}, twice[] = {3, 1, 3, 0},
               all_twice[] = {2, 2, 1, 1};
static StringView words[] = {VIEW("b"), VIEW(""), VIEW("ab"), VIEW("a\0b")};

Test(map_value, keys_ascend) {
    Arena *arena = arena_create(0);
    const struct {
        Tensor keys;
        const char *wanted;
    } rows[] = {
        {numbers(ascending, 4), "[0, 1, 2, 3] to [0, 1, 2, 3]"},
        {numbers(mixed, 4), "[-9223372036854775808, -1, 7, 9223372036854775807] to [1, 3, 0, 2]"},
        {strings(words, 4), "[\"\", \"a\\x00b\", \"ab\", \"b\"] to [1, 3, 2, 0]"},
        {numbers(NULL, 0), "[] to []"},
        {strings(NULL, 0), "[] to []"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        Item map;
        Tensor values = numbers(ascending, (int)rows[i].keys.dims[0]);
        Status status = map_make_item(arena, &rows[i].keys, &values, &map);
        cr_assert_null(status, "%zu: %s", i, status_message(status));
        cr_expect_eq(map.kind, ITEM_MAP);
        cr_expect_str_eq(printed(arena, &map), rows[i].wanted);
        for (int64_t k = 0; k < values.dims[0]; k++) {
            int64_t at = map_find(&map, &rows[i].keys, k);
            cr_expect(at >= 0 && ((int64_t *)map_values(&map)->data)[at] == k, "%zu: key %d is found", i, (int)k);
        }
    }
    arena_destroy(arena);
}

Test(map_value, of_equal_keys_the_last_is_taken) {
    Arena *arena = arena_create(0);
    const struct {
        int64_t *keys;
        const char *wanted;
    } rows[] = {{twice, "[3, 1, 2]"}, {all_twice, "[3, 1]"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        int64_t count;
        Tensor keys = numbers(rows[i].keys, 4);
        const int64_t *order = map_order(arena, &keys, &count);
        Tensor taken = numbers((int64_t *)(uintptr_t)order, (int)count);
        Text text = text_make(arena);
        tensor_print(&text, &taken, 99);
        cr_expect_str_eq(text.data, rows[i].wanted);
    }
    arena_destroy(arena);
}

Test(map_value, what_is_not_there_is_not_found) {
    Arena *arena = arena_create(0);
    Item map;
    Tensor keys = strings(words, 4), values = numbers(ascending, 4);
    StringView others[] = {VIEW("a"), VIEW("a\0"), VIEW("c"), VIEW("ba")};
    Tensor absent = strings(others, 4);
    cr_assert_null(map_make_item(arena, &keys, &values, &map));
    for (int i = 0; i < 4; i++) cr_expect_eq(map_find(&map, &absent, i), -1, "%d", i);
    arena_destroy(arena);
}

Test(map_value, what_makes_no_map_is_refused) {
    Arena *arena = arena_create(0);
    static float floats[4];
    Tensor good = numbers(ascending, 4), three = numbers(ascending, 3), matrix = good,
           real = {.dtype = DT_F32, .rank = 1, .dims = {4}, .data = floats}, half = real;
    matrix.rank = 2;
    matrix.dims[1] = 1;
    half.dtype = DT_F16;
    const struct {
        Tensor keys, values;
        StatusCode code;
        const char *message;
    } rows[] = {
        {numbers(twice, 4), good, STATUS_INVALID, "the key at position 0 twice"},
        {numbers(all_twice, 4), good, STATUS_INVALID, "the key at position 0 twice"},
        {good, three, STATUS_INVALID, "no two lists of the same length"},
        {matrix, good, STATUS_INVALID, "no two lists of the same length"},
        {good, matrix, STATUS_INVALID, "no two lists of the same length"},
        {real, good, STATUS_UNSUPPORTED, "maps from float32 to int64"},
        {good, half, STATUS_UNSUPPORTED, "maps from int64 to float16"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        Item map;
        Status status = map_make_item(arena, &rows[i].keys, &rows[i].values, &map);
        cr_expect_eq(status_code(status), rows[i].code, "%zu", i);
        cr_expect(status && strstr(status_message(status), rows[i].message), "%zu: %s", i, status_message(status));
        status_free(status);
    }
    arena_destroy(arena);
}
