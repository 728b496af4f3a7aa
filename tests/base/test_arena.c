/* SPDX-License-Identifier: Apache-2.0 */
/* Arenas: alignment, zeroed memory, limits, and the order of release. */
#include <criterion/criterion.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/heap.h"
#include "base/map.h"

Test(arena, memory_is_zeroed_aligned_and_apart) {
    static const size_t sizes[] = {0, 1, 15, 16, 63, 64, 65, 1000, 4096, 5000, 70000, 1 << 20, 3 << 20};
    enum { COUNT = sizeof sizes / sizeof *sizes };
    Arena *arena = arena_create(0);
    char *blocks[4 * COUNT];
    for (int i = 0; i < 4 * COUNT; i++) {
        size_t size = sizes[i % COUNT];
        blocks[i] = arena_alloc(arena, size);
        cr_expect_eq((uintptr_t)blocks[i] % (size >= 64 ? 64 : 16), 0, "%zu bytes", size);
        for (size_t k = 0; k < size; k++) cr_assert_eq(blocks[i][k], 0, "byte %zu of %zu", k, size);
        memset(blocks[i], i + 1, size);
    }
    for (int i = 0; i < 4 * COUNT; i++)
        for (size_t k = 0; k < sizes[i % COUNT]; k++) cr_assert_eq(blocks[i][k], i + 1, "block %d", i);
    arena_destroy(arena);
}

static void *take_all(Arena *arena) {
    for (int i = 0; i < 1000; i++) arena_alloc(arena, 100000);
    return NULL;
}
static void *take_huge(Arena *arena) { return arena_alloc(arena, SIZE_MAX - 8); }
static void *take_overflow(Arena *arena) { return arena_array(arena, SIZE_MAX / 4, 8); }

static bool unwinds(Arena *arena, void *(*take)(Arena *)) {
    jmp_buf guard;
    if (setjmp(guard)) return true;
    arena_guard(arena, &guard);
    take(arena);
    return false;
}

Test(arena, exhaustion_unwinds_to_the_guard) {
    static void *(*const takes[])(Arena *) = {take_all, take_huge, take_overflow};
    for (int i = 0; i < 3; i++) {
        Arena *arena = arena_create(10 << 20);
        cr_expect(unwinds(arena, takes[i]), "case %d", i);
        cr_expect_leq(arena_bytes(arena), 10 << 20, "case %d", i);
        arena_destroy(arena);
    }
}

static int order[3], released;
static void release(void *what) { order[released++] = *(int *)what; }

Test(arena, deferred_calls_run_last_first) {
    Arena *arena = arena_create(0);
    static int numbers[] = {1, 2, 3};
    for (int i = 0; i < 3; i++) arena_defer(arena, release, &numbers[i]);
    arena_destroy(arena);
    cr_expect(released == 3 && order[0] == 3 && order[1] == 2 && order[2] == 1);
    arena_destroy(NULL);
}

Test(arena, strings_and_arrays_grow) {
    Arena *arena = arena_create(0);
    cr_expect_null(arena_string(arena, NULL));
    cr_expect_str_eq(arena_string_n(arena, "ab\0c", 2), "ab");
    cr_expect_str_eq(arena_format(arena, "%s_%d", "x", 7), "x_7");
    VEC(int) numbers = {0};
    for (int i = 0; i < 1000; i++) VEC_PUSH(arena, numbers, i);
    for (int i = 0; i < 1000; i++) cr_assert_eq(numbers.items[i], i);
    arena_destroy(arena);
}

/* What a map grew out of goes at once: its tables together would take twice what it needs. */
Test(arena, large_memory_goes_before_the_arena) {
    Arena *arena = arena_create(0);
    for (int small = 0; small < 2; small++) {
        if (small) arena_alloc(arena, 100000);
        size_t before = arena_bytes(arena);
        void *first = arena_alloc(arena, ARENA_LARGE + 1), *second = arena_alloc(arena, 8 * ARENA_LARGE);
        cr_expect_gt(arena_bytes(arena), before + 9 * ARENA_LARGE);
        arena_free_large(arena, first, ARENA_LARGE + 1);
        char *between = arena_alloc(arena, 64);
        arena_free_large(arena, second, 8 * ARENA_LARGE);
        cr_expect_lt(arena_bytes(arena), before + 17 * ARENA_LARGE); /* a block for small ones at most, 16 */
        memset(between, 1, 64);
    }
    arena_destroy(arena);
    arena = arena_create(0);
    Map map = map_make(arena);
    enum { ENTRIES = 100000 };
    for (uint64_t i = 0; i < ENTRIES; i++) map_set_id(&map, i * 64, arena);
    for (uint64_t i = 0; i < ENTRIES; i++) cr_assert(map_get_id(&map, i * 64) && !map_get_id(&map, i * 64 + 1));
    cr_expect_lt(arena_bytes(arena), (size_t)80 * ENTRIES, "%zu bytes", arena_bytes(arena));
    arena_destroy(arena);
}

/* Blocks of every size, in and beyond what shares mappings, freed in another order than they were taken. */
Test(arena, lasting_memory_is_aligned_and_apart) {
    static const size_t sizes[] = {
        0, 1, 100, 5000, 70000, LASTING_PLAIN - 1, LASTING_PLAIN, 3 * LASTING_PLAIN + 1, (size_t)17 * LASTING_PLAIN};
    enum { COUNT = sizeof sizes / sizeof *sizes, BLOCKS = 3 * COUNT };
    unsigned char *blocks[BLOCKS] = {0};
    for (int step = 0; step < 4 * BLOCKS; step++) {
        int i = step * 7 % BLOCKS;
        size_t size = sizes[i % COUNT];
        if (blocks[i]) {
            for (size_t k = 0; k < size; k += k < 4096 ? 1 : 511)
                cr_assert_eq(blocks[i][k], i + 1, "byte %zu of %d", k, i);
            heap_free_lasting(blocks[i], size);
            blocks[i] = NULL;
        } else {
            blocks[i] = heap_alloc_lasting(size);
            cr_assert_not_null(blocks[i]);
            cr_expect_eq((uintptr_t)blocks[i] % HEAP_ALIGNMENT, 0);
            for (size_t k = 0; k < size; k += k < 4096 ? 1 : 511) blocks[i][k] = (unsigned char)(i + 1);
        }
        Status status = heap_set_host((HeapHost){0});
        bool none = true;
        for (int b = 0; b < BLOCKS; b++) none &= !blocks[b];
        cr_expect_eq(!status, none, "step %d", step); /* every block is counted until it is freed */
        status_free(status);
    }
    for (int b = 0; b < BLOCKS; b++) cr_assert_null(blocks[b]);
    cr_expect_null(heap_alloc_lasting(SIZE_MAX - 8));
}
