/* SPDX-License-Identifier: Apache-2.0 */
/* Loops on an embedder's threads, whatever order it runs the tasks in; loops that are ended before all pieces have run;
 * an embedder's memory. */
#include <criterion/criterion.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/heap.h"
#include "base/pool.h"

enum { MOST_THREADS = 8, COUNT = 1001 };

typedef void (*Task)(void *context, int index);

static void in_order(void *user, int count, Task task, void *context) {
    (void)user;
    for (int i = 0; i < count; i++) task(context, i);
}

static void backwards(void *user, int count, Task task, void *context) {
    (void)user;
    for (int i = count; i-- > 0;) task(context, i);
}

/* Breaks its promise; the loop must be complete nevertheless. */
static void not_at_all(void *user, int count, Task task, void *context) {
    (void)user, (void)count, (void)task, (void)context;
}

typedef struct Thread {
    Task task;
    void *context;
    int index;
} Thread;

static void *run_thread(void *argument) {
    const Thread *thread = argument;
    thread->task(thread->context, thread->index);
    return NULL;
}

static void a_thread_each(void *user, int count, Task task, void *context) {
    (void)user;
    pthread_t handles[MOST_THREADS];
    Thread threads[MOST_THREADS];
    for (int i = 0; i < count; i++) {
        threads[i] = (Thread){task, context, i};
        cr_assert_eq(pthread_create(&handles[i], NULL, run_thread, &threads[i]), 0);
    }
    for (int i = 0; i < count; i++) pthread_join(handles[i], NULL);
}

typedef struct Loop {
    Pool *pool;
    atomic_int hits[COUNT], running[MOST_THREADS], faults, inner;
    bool nested;
} Loop;

static void count_inner(void *context, int64_t begin, int64_t end, int worker) {
    (void)worker;
    atomic_fetch_add((atomic_int *)context, (int)(end - begin));
}

static void body(void *context, int64_t begin, int64_t end, int worker) {
    Loop *loop = context;
    if (worker < 0 || worker >= pool_threads(loop->pool) || atomic_fetch_add(&loop->running[worker], 1))
        atomic_fetch_add(&loop->faults, 1);
    for (int64_t i = begin; i < end; i++) atomic_fetch_add(&loop->hits[i], 1);
    if (loop->nested) pool_for(loop->pool, 10, 1, count_inner, &loop->inner);
    atomic_fetch_sub(&loop->running[worker], 1);
}

Test(pool_host, every_element_once_with_numbers_of_its_own) {
    static void (*const hosts[])(void *, int, Task, void *) = {in_order, backwards, not_at_all, a_thread_each};
    for (size_t h = 0; h < sizeof hosts / sizeof *hosts; h++)
        for (int threads = 1; threads <= MOST_THREADS; threads++) {
            Pool *pool;
            cr_assert_null(pool_create_over((PoolHost){hosts[h], NULL}, threads, &pool));
            cr_expect_eq(pool_threads(pool), threads);
            for (int64_t grain = 1; grain < 2000; grain *= 7) {
                static Loop loop;
                loop = (Loop){.pool = pool, .nested = grain == 49};
                pool_for(pool, COUNT, grain, body, &loop);
                for (int i = 0; i < COUNT; i++) cr_assert_eq(atomic_load(&loop.hits[i]), 1, "element %d", i);
                cr_expect_eq(atomic_load(&loop.faults), 0);
                cr_expect(!loop.nested || atomic_load(&loop.inner) % 10 == 0);
            }
            pool_destroy(pool);
        }
}

Test(pool_host, what_cannot_be_a_pool) {
    Pool *pool = (Pool *)&pool;
    static const int threads[] = {0, -1, 1 << 20};
    for (int i = 0; i < 3; i++) {
        Status status = pool_create_over((PoolHost){in_order, NULL}, threads[i], &pool);
        cr_expect(status_code(status) == STATUS_USAGE && !pool);
        status_free(status);
    }
    Status status = pool_create_over((PoolHost){0}, 2, &pool);
    cr_expect_eq(status_code(status), STATUS_USAGE);
    status_free(status);
}

/* --- loops that are ended */
typedef struct Ended {
    atomic_int cancelled;
    atomic_llong elements;
    atomic_int begun_after; /* pieces that were begun with the flag up */
    atomic_llong largest;   /* piece */
    int64_t after;          /* elements after which the flag is raised */
} Ended;

static void count_and_cancel(void *context, int64_t begin, int64_t end, int worker) {
    (void)worker;
    Ended *ended = context;
    long long largest = atomic_load(&ended->largest);
    while (end - begin > largest && !atomic_compare_exchange_weak(&ended->largest, &largest, end - begin)) {}
    atomic_fetch_add(&ended->begun_after, atomic_load(&ended->cancelled));
    if (atomic_fetch_add(&ended->elements, end - begin) + end - begin >= ended->after)
        atomic_store(&ended->cancelled, 1);
}

Test(stop, pieces_that_are_not_begun_are_left_out) {
    for (int threads = 0; threads <= 4; threads++) {
        Pool *pool = NULL;
        if (threads) cr_assert_null(pool_create(threads, &pool));
        Ended ended = {.after = 100000};
        Stop stop = {.cancelled = &ended.cancelled};
        cr_assert_null(pool_stop_with(&stop));
        cr_expect_null(stop_status(&stop));
        pool_for(pool, 1000000, 1, count_and_cancel, &ended);
        cr_expect_eq(pool_stop_with(NULL), &stop);
        /* a thread that has just seen the flag down may begin one piece */
        cr_expect_leq(atomic_load(&ended.begun_after), threads > 1 ? threads - 1 : 0, "%d threads", threads);
        cr_expect_lt(atomic_load(&ended.elements), 1000000, "%d threads: nothing is left out", threads);
        cr_expect_leq(30 * atomic_load(&ended.largest), 1000000, "%d threads: a piece of %lld", threads,
                      atomic_load(&ended.largest));
        Status status = stop_status(&stop);
        cr_expect_eq(status_code(status), STATUS_CANCELLED);
        status_free(status);
        atomic_store(&ended.cancelled, 0);
        cr_expect(stop_is_reached(&stop), "what was reached stays so");
        atomic_store(&ended.elements, 0);
        pool_for(pool, 1000000, 1, count_and_cancel, &ended);
        cr_expect_eq(atomic_load(&ended.elements), 1000000, "loops without a stop are complete");
        pool_destroy(pool);
    }
}

Test(stop, a_deadline_is_reached_by_itself) {
    Stop stop = {.deadline_ns = stop_deadline(20), .timeout_ms = 20};
    usleep(30000);
    Status status = stop_status(&stop);
    cr_expect_eq(status_code(status), STATUS_DEADLINE);
    cr_expect_str_eq(status_message(status), "the run did not end within 20 ms");
    status_free(status);
    Stop far = {.deadline_ns = stop_deadline(1e300)};
    cr_expect_not(stop_is_reached(&far));
}

/* --- memory */
typedef struct Books {
    size_t blocks, bytes, allocations;
    bool broken;
} Books;

static void *take(void *user, size_t bytes) {
    Books *books = user;
    if (books->broken) return NULL;
    books->blocks++;
    books->bytes += bytes;
    books->allocations++;
    return aligned_alloc(HEAP_ALIGNMENT, (bytes + HEAP_ALIGNMENT - 1) / HEAP_ALIGNMENT * HEAP_ALIGNMENT);
}

static void give(void *user, void *memory, size_t bytes) {
    Books *books = user;
    books->blocks--;
    books->bytes -= bytes;
    free(memory);
}

Test(heap, an_embedders_memory_is_given_back_by_size) {
    Books books = {0};
    cr_assert_null(heap_set_host((HeapHost){take, give, &books}));
    Arena *arena = arena_create(0);
    for (size_t size = 1; size < 3000000; size *= 3) arena_alloc(arena, size);
    cr_expect_gt(books.bytes, 2000000);
    Status status = heap_set_host((HeapHost){0});
    cr_expect_eq(status_code(status), STATUS_USAGE, "not while blocks are in use");
    status_free(status);
    arena_destroy(arena);
    cr_expect(books.blocks == 0 && books.bytes == 0 && books.allocations > 5);
    books.broken = true;
    cr_expect_null(heap_alloc(1));
    cr_expect_null(heap_set_host((HeapHost){0}));
    heap_free(heap_alloc(100), 100);
}
