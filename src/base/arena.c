/* SPDX-License-Identifier: Apache-2.0 */
/* Chained blocks, each twice the one before up to a bound; large requests get a block of their own. */
#include "base/arena.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include "base/heap.h"
#include "base/plain.h"

enum { FIRST_BLOCK = 4096, LARGEST_BLOCK = 16 * ARENA_LARGE };

typedef struct Block {
    struct Block *next, *before;
    size_t used, size; /* bytes after the header */
} Block;

typedef struct Deferred {
    struct Deferred *next;
    void (*release)(void *);
    void *what;
} Deferred;

struct Arena {
    Block *blocks; /* the current one first */
    Deferred *deferred;
    jmp_buf *guard;
    size_t bytes, limit;
    Block *spare; /* of arenas that were inside this one: fresh pages cost more than what most of them were used for */
    Arena *parent, *inside, *next; /* inside: the first of those made inside this one; next: of the parent's */
};

/* Header size that keeps the data of a block aligned. */
enum { HEADER = HEAP_ALIGNMENT };

Arena *arena_create(size_t limit) {
    Arena *arena = calloc(1, sizeof *arena);
    if (arena) arena->limit = limit;
    return arena;
}

static void leave_parent(Arena *arena) {
    if (!arena->parent) return;
    Arena **at = &arena->parent->inside;
    while (*at != arena) at = &(*at)->next;
    *at = arena->next;
}

static Arena *outermost(Arena *arena) {
    while (arena->parent) arena = arena->parent;
    return arena;
}

/* Large ones are many together, which small pages would make slow; an arena's first ones are too small to tell. */
static void *take_block(size_t size) {
    return size >= LARGEST_BLOCK ? heap_alloc_lasting(HEADER + size) : heap_alloc(HEADER + size);
}

static void free_block(Block *block) {
    if (block->size >= LARGEST_BLOCK)
        heap_free_lasting(block, HEADER + block->size);
    else
        heap_free(block, HEADER + block->size);
}

static void free_blocks(Block *blocks) {
    for (Block *b = blocks, *next; b; b = next) {
        next = b->next;
        free_block(b);
    }
}

/* For the next arena inside the outermost one. */
static void keep_blocks(Arena *outer, Block *blocks) {
    for (Block *b = blocks, *next; b; b = next) {
        next = b->next;
        bool grown = b->size >= FIRST_BLOCK && b->size <= LARGEST_BLOCK && (b->size & (b->size - 1)) == 0;
        if (!grown) { /* nobody asks for its size again */
            free_block(b);
            continue;
        }
        b->next = outer->spare;
        outer->spare = b;
    }
}

static Block *take_spare(Arena *arena, size_t size) {
    if (!arena->parent) return NULL;
    for (Block **at = &outermost(arena)->spare; *at; at = &(*at)->next)
        if ((*at)->size == size) {
            Block *found = *at;
            *at = found->next;
            return found;
        }
    return NULL;
}

void arena_destroy(Arena *arena) {
    if (!arena) return;
    while (arena->inside) arena_destroy(arena->inside);
    for (Deferred *d = arena->deferred; d; d = d->next) d->release(d->what);
    if (arena->parent)
        keep_blocks(outermost(arena), arena->blocks);
    else
        free_blocks(arena->blocks);
    leave_parent(arena);
    arena_drop_spare(arena);
    free(arena);
}

void arena_drop_spare(Arena *arena) {
    free_blocks(arena->spare);
    arena->spare = NULL;
}

void arena_reset(Arena *arena) {
    Block *kept = arena->blocks;
    if (!kept) return;
    keep_blocks(outermost(arena), kept->next);
    *kept = (Block){.size = kept->size};
    arena->bytes = kept->size;
}

void arena_recycle(Arena *arena) {
    enum { MOST = 1 << 20 }; /* bytes; more is a rare piece of work's */
    size_t all = 0, grown = FIRST_BLOCK;
    while (arena->inside) arena_destroy(arena->inside);
    for (Deferred *d = arena->deferred; d; d = d->next) d->release(d->what);
    arena->deferred = NULL;
    arena->guard = NULL;
    arena_drop_spare(arena);
    Block *first = arena->blocks;
    for (const Block *b = first; b; b = b->next) all += b->used + HEAP_ALIGNMENT;
    if (first && !first->next) {
        first->used = 0;
        return;
    }
    free_blocks(first);
    arena->blocks = NULL;
    arena->bytes = 0;
    while (grown < all) grown *= 2;
    Block *block = all && grown <= MOST ? heap_alloc(HEADER + grown) : NULL;
    if (!block) return;
    *block = (Block){.size = grown};
    arena->blocks = block;
    arena->bytes = grown;
}

jmp_buf *arena_guard(Arena *arena, jmp_buf *guard) {
    jmp_buf *before = arena->guard;
    arena->guard = guard;
    return before;
}

static _Noreturn void exhausted(Arena *arena) {
    for (; arena; arena = arena->parent)
        if (arena->guard) longjmp(*arena->guard, 1);
    fputs("onnxfuse: out of memory outside a guarded call\n", stderr);
    abort();
}

Arena *arena_create_inside(Arena *parent) {
    Arena *arena = arena_create(0);
    if (!arena) exhausted(parent);
    arena->parent = parent;
    arena->next = parent->inside;
    return parent->inside = arena;
}

static Block *add_block(Arena *arena, size_t size) {
    if (size > SIZE_MAX / 2 || (arena->limit && size > arena->limit - arena->bytes)) exhausted(arena);
    Block *block = take_spare(arena, size);
    if (!block) block = take_block(size);
    if (!block) exhausted(arena);
    *block = (Block){.size = size};
    arena->bytes += size;
    return block;
}

static void link_blocks(Block *before, Block *next) {
    before->next = next;
    if (next) next->before = before;
}

/* Its bytes are not set. */
static void *take(Arena *arena, size_t size, size_t align) {
    Block *block = arena->blocks;
    size_t at = block ? (block->used + align - 1) / align * align : 0;
    if (!block || size > ARENA_LARGE || at + size > block->size) {
        size_t grown = block ? block->size * 2 : FIRST_BLOCK;
        if (grown > LARGEST_BLOCK) grown = LARGEST_BLOCK;
        if (size > ARENA_LARGE || size > grown / 4) { /* its own block, behind the current one, which keeps its room */
            Block *own = add_block(arena, size ? size : 1);
            if (block) {
                link_blocks(own, block->next);
                link_blocks(block, own);
            } else {
                arena->blocks = own;
            }
            own->used = own->size;
            return (char *)own + HEADER;
        }
        Block *fresh = add_block(arena, grown);
        link_blocks(fresh, block);
        arena->blocks = block = fresh;
        at = 0;
    }
    block->used = at + size;
    return (char *)block + HEADER + at;
}

void *arena_alloc_unset(Arena *arena, size_t size) { return take(arena, size, size >= 64 ? 64 : 16); }

void *arena_alloc(Arena *arena, size_t size) { return memset(arena_alloc_unset(arena, size), 0, size); }

void *arena_alloc_struct(Arena *arena, size_t size) { return memset(take(arena, size, 16), 0, size); }

/* It has a block of its own. */
void arena_free_large(Arena *arena, void *memory, size_t size) {
    if (size <= ARENA_LARGE) return;
    Block *block = (Block *)(void *)((char *)memory - HEADER);
    if (block->next) block->next->before = block->before;
    *(block->before ? &block->before->next : &arena->blocks) = block->next;
    arena->bytes -= block->size;
    free_block(block);
}

bool arena_holds(const Arena *arena, const void *memory) {
    for (const Block *block = arena->blocks; block; block = block->next)
        if ((const char *)memory >= (const char *)block &&
            (const char *)memory < (const char *)block + HEADER + block->size)
            return true;
    return false;
}

void *arena_array(Arena *arena, size_t count, size_t size) {
    size_t bytes;
    if (__builtin_mul_overflow(count, size, &bytes)) exhausted(arena);
    return arena_alloc(arena, bytes);
}

void *arena_copy(Arena *arena, const void *data, size_t size) {
    void *copy = arena_alloc_unset(arena, size);
    if (size) memcpy(copy, data, size);
    return copy;
}

char *arena_string_n(Arena *arena, const char *text, size_t size) {
    char *copy = arena_alloc_unset(arena, size + 1);
    if (size) memcpy(copy, text, size);
    copy[size] = '\0';
    return copy;
}

char *arena_string(Arena *arena, const char *text) { return text ? arena_string_n(arena, text, strlen(text)) : NULL; }

char *arena_format(Arena *arena, const char *format, ...) {
    char room[256]; /* for most of them */
    va_list args, again;
    va_start(args, format);
    va_copy(again, args);
    int length = plain_vprint(room, sizeof room, format, again);
    va_end(again);
    if (length < 0) length = 0, room[0] = '\0';
    char *text = arena_alloc_unset(arena, (size_t)length + 1);
    if ((size_t)length < sizeof room)
        memcpy(text, room, (size_t)length + 1);
    else
        plain_vprint(text, (size_t)length + 1, format, args);
    va_end(args);
    return text;
}

void arena_defer(Arena *arena, void (*release)(void *), void *what) {
    Deferred *d = arena_alloc(arena, sizeof *d);
    *d = (Deferred){arena->deferred, release, what};
    arena->deferred = d;
}

size_t arena_bytes(const Arena *arena) { return arena->bytes; }

void *vec_grow(Arena *arena, void *items, int *capacity, size_t size) {
    enum { FIRST = 16 }; /* bytes: most lists of a graph have one element or two */
    int grown = *capacity ? *capacity * 2 : size < FIRST ? (int)(FIRST / size) : 1;
    size_t bytes, held = (size_t)*capacity * size;
    if (__builtin_mul_overflow((size_t)grown, size, &bytes)) exhausted(arena);
    char *copy = arena_alloc_unset(arena, bytes);
    if (held) memcpy(copy, items, held);
    memset(copy + held, 0, bytes - held);
    *capacity = grown;
    return copy;
}
