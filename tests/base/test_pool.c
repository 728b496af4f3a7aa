/* SPDX-License-Identifier: Apache-2.0 */
/* Parallel loops: every element once, worker numbers that can index scratch memory, nesting, several callers. */
#include <criterion/criterion.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/pool.h"

enum { MOST_THREADS = 8 };

typedef struct Loop {
    Pool *pool;
    int64_t count, grain;
    int *hits;                        /* [count] */
    atomic_int running[MOST_THREADS]; /* pieces under way of each worker number */
    atomic_int faults;
    bool nested;
} Loop;

static void expect(Loop *loop, bool holds) {
    if (!holds) atomic_fetch_add(&loop->faults, 1);
}

typedef struct Inner {
    Loop *loop;
    int worker;
    pthread_t thread;
    int64_t sum;
} Inner;

static void inner_body(void *context, int64_t begin, int64_t end, int worker) {
    Inner *inner = context;
    expect(inner->loop, worker == inner->worker && pthread_equal(pthread_self(), inner->thread));
    inner->sum += end - begin;
}

static void body(void *context, int64_t begin, int64_t end, int worker) {
    Loop *loop = context;
    expect(loop, worker >= 0 && worker < pool_threads(loop->pool));
    expect(loop, begin % loop->grain == 0 && begin < end && end <= loop->count);
    expect(loop, end == loop->count || end % loop->grain == 0);
    expect(loop, atomic_fetch_add(&loop->running[worker], 1) == 0);
    for (int64_t i = begin; i < end; i++) loop->hits[i]++;
    if (loop->nested) {
        Inner inner = {loop, worker, pthread_self(), 0};
        pool_for(loop->pool, 100, 3, inner_body, &inner);
        expect(loop, inner.sum == 100);
    }
    atomic_fetch_sub(&loop->running[worker], 1);
}

/* The number of faults. */
static int run_loop(Pool *pool, int64_t count, int64_t grain, bool nested) {
    Loop loop = {.pool = pool, .count = count, .grain = grain, .nested = nested};
    loop.hits = calloc((size_t)count + 1, sizeof *loop.hits);
    pool_for(pool, count, grain, body, &loop);
    for (int64_t i = 0; i < count; i++) expect(&loop, loop.hits[i] == 1);
    free(loop.hits);
    return atomic_load(&loop.faults);
}

static Pool *make_pool(int threads) {
    Pool *pool = NULL;
    Status status = pool_create(threads, &pool);
    cr_assert(!status, "%s", status_message(status));
    return pool;
}

Test(pool, every_element_once) {
    static const int64_t counts[] = {0, 1, 2, 7, 8, 100, 1001}, grains[] = {1, 3, 8, 64, 5000};
    for (int threads = 0; threads <= MOST_THREADS; threads++) {
        Pool *pool = threads ? make_pool(threads) : NULL;
        cr_expect_eq(pool_threads(pool), threads ? threads : 1);
        for (size_t c = 0; c < sizeof counts / sizeof *counts; c++)
            for (size_t g = 0; g < sizeof grains / sizeof *grains; g++)
                for (int repeat = 0; repeat < 5; repeat++)
                    cr_expect_eq(run_loop(pool, counts[c], grains[g], repeat == 0), 0, "%d threads, %d of %d", threads,
                                 (int)counts[c], (int)grains[g]);
        pool_destroy(pool);
    }
}

static void add_range(void *context, int64_t begin, int64_t end, int worker) {
    (void)worker;
    atomic_fetch_add((_Atomic uint64_t *)context, (uint64_t)end - (uint64_t)begin);
}

Test(pool, the_largest_counts_do_not_overflow) {
    Pool *pool = make_pool(3);
    static const int64_t grains[] = {1, 1000, INT64_MAX / 2, INT64_MAX};
    for (int i = 0; i < 4; i++) {
        _Atomic uint64_t sum = 0;
        pool_for(pool, INT64_MAX, grains[i], add_range, &sum);
        cr_expect_eq(atomic_load(&sum), (uint64_t)INT64_MAX, "grain %d", i);
    }
    pool_destroy(pool);
}

typedef struct Caller {
    Pool *pool;
    unsigned seed;
    int faults;
} Caller;

static void *call_often(void *context) {
    Caller *caller = context;
    for (int i = 0; i < 400; i++) {
        int64_t count = rand_r(&caller->seed) % 500, grain = 1 + rand_r(&caller->seed) % 20;
        caller->faults += run_loop(caller->pool, count, grain, i % 4 == 0);
        if (i % 100 == 0) usleep(300); /* long enough for the workers to fall asleep */
    }
    return NULL;
}

/* 80 are more than there are slots: some run their loops alone. */
Test(pool, several_callers_share_the_workers, .timeout = 120) {
    static const int counts[] = {2, 6, 80};
    for (int c = 0; c < 3; c++) {
        Pool *pool = make_pool(4);
        Caller callers[80];
        pthread_t threads[80];
        for (int i = 0; i < counts[c]; i++) {
            callers[i] = (Caller){pool, (unsigned)i, 0};
            cr_assert_eq(pthread_create(&threads[i], NULL, call_often, &callers[i]), 0);
        }
        for (int i = 0; i < counts[c]; i++) {
            pthread_join(threads[i], NULL);
            cr_expect_eq(callers[i].faults, 0, "caller %d of %d", i, counts[c]);
        }
        pool_destroy(pool);
    }
}

typedef struct Meeting {
    int pieces;
    atomic_int arrived;
} Meeting;

static void arrive(void *context, int64_t begin, int64_t end, int worker) {
    (void)begin, (void)end, (void)worker;
    Meeting *meeting = context;
    atomic_fetch_add(&meeting->arrived, 1);
    while (atomic_load(&meeting->arrived) < meeting->pieces) sched_yield();
}

/* Pieces that wait for each other end only when as many threads run them at once. */
static void meet(Pool *pool, int pieces) {
    Meeting meeting = {.pieces = pieces};
    pool_for(pool, pieces, 1, arrive, &meeting);
}

Test(pool, workers_help_awake_or_asleep, .timeout = 20) {
    Pool *pool = make_pool(2);
    for (int i = 0; i < 50; i++) {
        meet(pool, 2);
        if (i % 2) usleep(1000);
    }
    pool_destroy(pool);
}

static void check_signals(void *context, int64_t begin, int64_t end, int worker) {
    sigset_t blocked;
    pthread_sigmask(SIG_SETMASK, NULL, &blocked);
    if (worker > 0 && !sigismember(&blocked, SIGUSR1)) atomic_store((atomic_int *)context, 1);
    (void)begin, (void)end;
}

Test(pool, workers_take_no_signals) {
    Pool *pool = make_pool(4);
    atomic_int open = 0;
    for (int i = 0; i < 200; i++) pool_for(pool, 4, 1, check_signals, &open);
    cr_expect_eq(atomic_load(&open), 0);
    sigset_t blocked;
    pthread_sigmask(SIG_SETMASK, NULL, &blocked);
    cr_expect_not(sigismember(&blocked, SIGUSR1), "the creator's mask is restored");
    pool_destroy(pool);
}

Test(pool, shared_pools_are_one_a_size) {
    Pool *two = NULL, *again = NULL, *three = NULL, *all = NULL, *none = (Pool *)&two;
    cr_assert(!pool_shared(2, &two) && !pool_shared(2, &again) && !pool_shared(3, &three) && !pool_shared(0, &all));
    cr_expect(two == again && two != three && pool_threads(three) == 3 && pool_threads(all) >= 1);
    static const int wrong[] = {-1, 1 << 20};
    for (int i = 0; i < 2; i++) {
        Status status = pool_shared(wrong[i], &none);
        cr_expect_eq(status_code(status), STATUS_USAGE, "%d threads", wrong[i]);
        cr_expect_null(none);
        status_free(status);
    }
}

static int in_child(Pool *pool) {
    alarm(60); /* a child that hangs ends as one that failed */
    Pool *own = NULL;
    int faults = run_loop(pool, 1000, 1, true);
    meet(pool, 2);
    Status status = pool_create(3, &own);
    if (status) return 99;
    faults += run_loop(own, 1000, 7, false);
    meet(own, 2);
    pool_destroy(own);
    pool_destroy(pool);
    return faults;
}

Test(pool, a_forked_child_has_workers_of_its_own) {
    Pool *pool = make_pool(4);
    cr_assert_eq(run_loop(pool, 1000, 1, false), 0);
    /* All workers are there: of one that is just starting, a child may inherit the lock of AddressSanitizer's allocator. */
    meet(pool, 4);
    pid_t child = fork();
    if (!child) _exit(in_child(pool));
    int state = 1;
    waitpid(child, &state, 0);
    cr_expect_eq(state, 0, "status %x", (unsigned)state);
    cr_expect_eq(run_loop(pool, 1000, 1, false), 0, "the parent goes on");
    pool_destroy(pool);
}
