/* SPDX-License-Identifier: Apache-2.0 */
/* Memory with one lifetime: what a stage allocates is freed at once. Not thread-safe; one arena a graph, plan or run.
 * Allocation never returns NULL: when memory (or the arena's limit) is exhausted, control unwinds to the arena's guard:
 *
 *     jmp_buf guard;
 *     if (setjmp(guard)) return status_out_of_memory();   // the caller destroys the arena as on any failure
 *     arena_guard(arena, &guard);
 *
 * Everything that must be released on that way (mapped files, handles) is therefore registered with arena_defer. */
#ifndef ONNXFUSE_BASE_ARENA_H
#define ONNXFUSE_BASE_ARENA_H

#include <setjmp.h>
#include <stddef.h>
#include <stdbool.h>
#include <string.h>
#include "base/status.h"

typedef struct Arena Arena;

/* limit: most bytes the arena may take, 0 for no limit. NULL when there is no memory. */
Arena *arena_create(size_t limit);
/* For a part of the parent's work: running out of memory, here too, unwinds to the parent's guard unless the arena has
 * one of its own, and what was not destroyed by then is destroyed with the parent. */
Arena *arena_create_inside(Arena *parent);
/* Runs the deferred calls, last first; accepts NULL. The outermost arena keeps the memory of one inside it for the next. */
void arena_destroy(Arena *arena);
void arena_drop_spare(Arena *arena); /* gives back what an outermost arena keeps so */
void arena_reset(Arena *arena);      /* frees all that was allocated; deferred calls must be none */
/* As new, for the next piece of work of this kind: what was deferred is done, and one block has room for all that was taken. Of an arena that
 * is inside no other. */
void arena_recycle(Arena *arena);
jmp_buf *arena_guard(Arena *arena, jmp_buf *guard); /* returns the one before */
/* Zeroed, 64-byte aligned for sizes of 64 and more, else 16. */
void *arena_alloc(Arena *arena, size_t size);
void *arena_alloc_struct(Arena *arena, size_t size); /* zeroed, 16-byte aligned */
void *arena_alloc_unset(Arena *arena, size_t size);  /* as arena_alloc, but not zeroed: the caller writes all of it */
/* count * size with overflow treated as exhaustion. */
void *arena_array(Arena *arena, size_t count, size_t size);
void *arena_copy(Arena *arena, const void *data, size_t size);
char *arena_string(Arena *arena, const char *text);                /* a copy; NULL stays NULL */
char *arena_string_n(Arena *arena, const char *text, size_t size); /* a terminated copy of `size` bytes */
char *arena_format(Arena *arena, const char *format, ...) STATUS_FORMAT(2, 3);
void arena_defer(Arena *arena, void (*release)(void *), void *what);
size_t arena_bytes(const Arena *arena);
/* What is larger than this may be freed before the arena is. */
enum { ARENA_LARGE = 1 << 16 };
void arena_free_large(Arena *arena, void *memory, size_t size); /* size: as allocated */
bool arena_holds(const Arena *arena, const void *memory);       /* not by arenas inside it */

#define ARENA_NEW(arena, type) ((type *)arena_alloc_struct(arena, sizeof(type)))
#define ARENA_ARRAY(arena, type, count) ((type *)arena_array(arena, (size_t)(count), sizeof(type)))

/* A growing array in an arena: `VEC(Node *) nodes = {0}; VEC_PUSH(arena, nodes, node);` */
#define VEC(type)                                                                                                      \
    struct {                                                                                                           \
        type *items;                                                                                                   \
        int count, capacity;                                                                                           \
    }
#define VEC_PUSH(arena, vec, ...)                                                                                      \
    do {                                                                                                               \
        if ((vec).count == (vec).capacity)                                                                             \
            (vec).items = vec_grow(arena, (vec).items, &(vec).capacity, sizeof *(vec).items);                          \
        (vec).items[(vec).count++] = (__VA_ARGS__);                                                                    \
    } while (0)
void *vec_grow(Arena *arena, void *items, int *capacity, size_t size);

#endif
