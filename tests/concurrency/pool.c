/* SPDX-License-Identifier: Apache-2.0 */
/* The thread pool under stress: several callers' loops at once, loops in loops, pools made and destroyed meanwhile.
 * Every element must be visited once, and what the loop wrote must be there when it returns. A plain program, for
 * ThreadSanitizer. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/pool.h"

enum { CALLERS = 4, LOOPS = 2000, LARGEST = 3000 };

static atomic_int failures;

static void fail(const char *what) {
    fprintf(stderr, "FAIL  %s\n", what);
    atomic_fetch_add(&failures, 1);
}

typedef struct Loop {
    Pool *pool;
    int *visits;        /* not atomic: each element belongs to one piece */
    int64_t *by_worker; /* [threads] not atomic: a worker number belongs to one piece at a time */
    bool nested;
} Loop;

static void count_inner(void *context, int64_t begin, int64_t end, int worker) {
    (void)worker;
    for (int64_t i = begin; i < end; i++) ((int *)context)[i]++;
}

static void visit(void *context, int64_t begin, int64_t end, int worker) {
    Loop *loop = context;
    for (int64_t i = begin; i < end; i++) loop->visits[i]++;
    loop->by_worker[worker] += end - begin;
    if (!loop->nested) return;
    int inner[64] = {0};
    pool_for(loop->pool, 64, 5, count_inner, inner);
    for (int i = 0; i < 64; i++)
        if (inner[i] != 1) fail("an element of an inner loop is not visited once");
}

static void run_loop(Pool *pool, int64_t count, int64_t grain, bool nested) {
    int threads = pool_threads(pool);
    Loop loop = {.pool = pool, .visits = calloc((size_t)count + 1, sizeof(int)), .nested = nested};
    loop.by_worker = calloc((size_t)threads, sizeof *loop.by_worker);
    if (!loop.visits || !loop.by_worker) exit(1);
    pool_for(pool, count, grain, visit, &loop);
    int64_t total = 0;
    for (int64_t i = 0; i < count; i++)
        if (loop.visits[i] != 1) fail("an element is not visited once");
    for (int t = 0; t < threads; t++) total += loop.by_worker[t];
    if (total != count) fail("workers' counts do not add up");
    free(loop.visits);
    free(loop.by_worker);
}

typedef struct Caller {
    Pool *pool; /* NULL: makes its own */
    unsigned seed;
} Caller;

static void *call(void *given) {
    Caller *caller = given;
    unsigned seed = caller->seed;
    for (int i = 0; i < LOOPS; i++) {
        int64_t count = rand_r(&seed) % LARGEST, grain = 1 + rand_r(&seed) % 50;
        Pool *pool = caller->pool;
        if (!pool && pool_create(1 + i % 4, &pool)) exit(1);
        run_loop(pool, count, grain, i % 8 == 0);
        if (!caller->pool) pool_destroy(pool);
        if (!caller->pool) i += 9;
    }
    return NULL;
}

static void *call_shared(void *given) {
    unsigned seed = ((Caller *)given)->seed;
    for (int i = 0; i < LOOPS / 4; i++) {
        Pool *pool, *again;
        int threads = 1 + rand_r(&seed) % 4;
        if (pool_shared(threads, &pool) || pool_shared(threads, &again)) exit(1);
        if (pool != again || pool_threads(pool) != threads) fail("a size has one shared pool");
        run_loop(pool, 500, 3, false);
    }
    return NULL;
}

static void run_threads(void *(*body)(void *), Pool *pool) {
    pthread_t threads[CALLERS];
    Caller callers[CALLERS];
    for (int t = 0; t < CALLERS; t++) {
        callers[t] = (Caller){pool, (unsigned)t * 77 + 1};
        if (pthread_create(&threads[t], NULL, body, &callers[t])) exit(1);
    }
    for (int t = 0; t < CALLERS; t++) pthread_join(threads[t], NULL);
}

int main(void) {
    Pool *pool;
    if (pool_create(3, &pool)) return 1;
    run_threads(call, pool);
    run_threads(call, NULL);
    run_threads(call_shared, NULL);
    pool_destroy(pool);
    printf("%d failures\n", atomic_load(&failures));
    return atomic_load(&failures) != 0;
}
