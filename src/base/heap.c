/* SPDX-License-Identifier: Apache-2.0 */
/* Blocks from the C library or the embedder; lasting ones from mappings of our own. */
#include "base/heap.h"

#include <malloc.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

/* Tools that watch blocks one by one are given each of them. */
#if defined __SANITIZE_ADDRESS__
static const bool is_watched = true;
#else
static const bool is_watched = false;
#endif

static HeapHost host;
static atomic_size_t blocks_in_use;

Status heap_set_host(HeapHost given) {
    size_t blocks = atomic_load(&blocks_in_use);
    if (blocks)
        return status_error(STATUS_USAGE,
                            "the allocator can be set only before the first session, value or other object is made, "
                            "or when all are freed: %zu blocks of memory are in use",
                            blocks);
    host = given;
    return NULL;
}

/* ---- huge pages ---- */

/* Zeroing a huge page takes .05 to .1 ms. One that the system has to gather first, or whose memory a virtual machine has
 * handed to its host, took 2.7 to 5 ms, more than 512 small pages that lie at hand: after one that is slow nothing is
 * put into huge pages for a while. */
enum { HUGE_PAGE = 2 << 20, HUGE_LEAST = 2 * HUGE_PAGE, SLOW_NANOSECONDS = 1000000, WHILE_SECONDS = 10 };
static _Atomic int64_t small_before; /* until then they are slow */

static int64_t nanoseconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static bool huge_are_slow(void) {
    int64_t until = atomic_load_explicit(&small_before, memory_order_relaxed);
    return until && nanoseconds() < until;
}

static size_t round_up(size_t bytes, size_t to) { return (bytes + to - 1) / to * to; }

/* Whether that was slow. */
static bool touch_huge(char *page) {
    int64_t before = nanoseconds();
    *(volatile char *)page = 0;
    int64_t now = nanoseconds();
    if (now - before <= SLOW_NANOSECONDS) return false;
    atomic_store_explicit(&small_before, now + WHILE_SECONDS * (int64_t)1000000000, memory_order_relaxed);
    return true;
}

/* For the pages wholly inside, unless one of a few shows that they are slow: a system that has handed most of its free memory to a host
 * may have some huge pages at hand. They are ever farther apart: a block may be a reserve of which most is never touched. */
static void advise_huge(char *memory, size_t bytes) {
    size_t page = (size_t)sysconf(_SC_PAGESIZE), before = round_up((uintptr_t)memory, page) - (uintptr_t)memory;
    size_t size = (bytes - before) / page * page, at = round_up((uintptr_t)memory, HUGE_PAGE) - (uintptr_t)memory;
    madvise(memory + before, size, MADV_HUGEPAGE);
    for (size_t step = HUGE_PAGE; at + HUGE_PAGE <= bytes; at += step, step *= 2) {
        if (!touch_huge(memory + at)) continue;
        madvise(memory + before, size, MADV_NOHUGEPAGE);
        return;
    }
}

/* ---- blocks ---- */

void *heap_alloc(size_t bytes) {
    if (bytes > SIZE_MAX / 2) return NULL;
    size_t rounded = round_up(bytes, HEAP_ALIGNMENT);
    void *memory = host.allocate ? host.allocate(host.user, bytes) : aligned_alloc(HEAP_ALIGNMENT, rounded);
    if (memory && !host.allocate && bytes >= HUGE_LEAST && !huge_are_slow()) advise_huge(memory, bytes);
    if (memory) atomic_fetch_add_explicit(&blocks_in_use, 1, memory_order_relaxed);
    return memory;
}

void heap_free(void *memory, size_t bytes) {
    if (!memory) return;
    if (host.allocate)
        host.release(host.user, memory, bytes);
    else
        free(memory);
    atomic_fetch_sub_explicit(&blocks_in_use, 1, memory_order_release);
}

/* ---- lasting blocks ---- */

enum { MAPPING = 16 * HUGE_PAGE };

/* One block after the other; what no block has reached takes no memory. */
typedef struct Mapping {
    struct Mapping *next;
    char *memory;
    size_t size, used, blocks;
} Mapping;

static struct {
    pthread_mutex_t lock;
    Mapping *mappings;
    size_t plain; /* bytes of lasting blocks that are not in them */
} lasting = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* Aligned to HUGE_PAGE; NULL when there is no room. */
static char *map_huge(size_t size) {
    char *memory = mmap(NULL, size + HUGE_PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) return NULL;
    size_t before = round_up((uintptr_t)memory, HUGE_PAGE) - (uintptr_t)memory;
    if (before) munmap(memory, before);
    munmap(memory + before + size, HUGE_PAGE - before);
    madvise(memory + before, size, MADV_HUGEPAGE);
    return memory + before;
}

static Mapping *mapping_with(size_t bytes) {
    Mapping *m = lasting.mappings;
    while (m && m->size - m->used < bytes) m = m->next;
    if (m || !(m = malloc(sizeof *m))) return m;
    size_t size = round_up(bytes > MAPPING ? bytes : MAPPING, HUGE_PAGE);
    *m = (Mapping){.next = lasting.mappings, .memory = map_huge(size), .size = size};
    if (m->memory) return lasting.mappings = m;
    free(m);
    return NULL;
}

/* Huge pages that [used, to) is the first to reach. */
static void reach(Mapping *m, size_t to) {
    for (size_t at = round_up(m->used, HUGE_PAGE); at < to; at += HUGE_PAGE) {
        if (!touch_huge(m->memory + at)) continue;
        madvise(m->memory + at + HUGE_PAGE, m->size - at - HUGE_PAGE, MADV_NOHUGEPAGE);
        break;
    }
    m->used = to;
}

void *heap_alloc_lasting(size_t bytes) {
    if (bytes > SIZE_MAX / 2) return NULL;
    size_t rounded = round_up(bytes ? bytes : 1, HEAP_ALIGNMENT);
    char *memory = NULL;
    pthread_mutex_lock(&lasting.lock);
    bool plain = is_watched || host.allocate || lasting.plain + rounded <= LASTING_PLAIN || huge_are_slow();
    Mapping *m = plain ? NULL : mapping_with(rounded);
    if (m) {
        memory = m->memory + m->used;
        reach(m, m->used + rounded);
        m->blocks++;
        atomic_fetch_add_explicit(&blocks_in_use, 1, memory_order_relaxed);
    } else if ((memory = heap_alloc(bytes))) {
        lasting.plain += rounded;
    }
    pthread_mutex_unlock(&lasting.lock);
    return memory;
}

static Mapping **mapping_of(const char *memory) {
    Mapping **at = &lasting.mappings;
    while (*at && !(memory >= (*at)->memory && memory < (*at)->memory + (*at)->size)) at = &(*at)->next;
    return at;
}

/* Its pages, and the mapping with the last of its blocks, go back to the system. */
static void give_back(Mapping **at, char *memory, size_t bytes) {
    Mapping *m = *at;
    if (--m->blocks == 0) {
        *at = m->next;
        munmap(m->memory, m->size);
        free(m);
        return;
    }
    if (memory + bytes == m->memory + m->used) m->used -= bytes;
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    size_t first = round_up((size_t)(memory - m->memory), page), end = (size_t)(memory - m->memory) + bytes;
    if (end >= first + page) madvise(m->memory + first, (end - first) / page * page, MADV_DONTNEED);
}

void heap_free_lasting(void *memory, size_t bytes) {
    if (!memory) return;
    size_t rounded = round_up(bytes ? bytes : 1, HEAP_ALIGNMENT);
    pthread_mutex_lock(&lasting.lock);
    Mapping **at = mapping_of(memory);
    bool plain = !*at;
    if (plain)
        lasting.plain -= rounded;
    else
        give_back(at, memory, rounded);
    pthread_mutex_unlock(&lasting.lock);
    if (plain)
        heap_free(memory, bytes);
    else
        atomic_fetch_sub_explicit(&blocks_in_use, 1, memory_order_release);
}

void heap_trim(void) {
#ifdef __GLIBC__
    if (!host.allocate) malloc_trim(0);
#endif
}

void bytes_forget(const void *bytes, size_t size) {
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), from = ((uintptr_t)bytes + page - 1) / page * page,
              to = ((uintptr_t)bytes + size) / page * page;
    if (to > from) madvise((void *)from, to - from, MADV_DONTNEED);
}
