/* SPDX-License-Identifier: Apache-2.0 */
/* Threads that share parallel loops. A loop is cut into pieces; each thread owns a contiguous share of them, takes its
 * own from the front and, when done, others' from the back. Loops stand in a fixed number of slots; a worker looks
 * through the slots whenever `epoch` says that a loop was begun, so several callers' loops share the workers.
 *
 * A slot's memory outlives its loops: a worker that is late finds no pieces left, and the caller need not wait for it.
 * In a pool over the embedder's threads a loop is one task a thread, and each takes pieces in the same way.
 *
 * Waiting is by futex (Linux). A forked child has no workers: the first loop starts its own.
 */
#include "base/fork.h"
#include "base/pool.h"
#include "base/plain.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdalign.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum {
    MAX_THREADS = 4096,
    MAX_LOOPS = 64,        /* at once; a caller that finds no slot runs its loop alone */
    LINE = 64,             /* what threads write is kept this many bytes apart */
    STACK_BYTES = 2 << 20, /* generated kernels and library code run on it */
    /* More pieces than threads, so that a thread that is descheduled or on a slower core leaves work that others can
       take, and what is left at the end is a small part of a loop; a piece costs 0.1 us. */
    PIECES_A_THREAD = 16,
    /* Of a loop that may be ended between pieces: a step of a second is left within 30 ms a thread, and a piece costs
       0.1 us. */
    PIECES_WITH_A_STOP = 32,
    /* Steps take 5 to 100 us, and a loop that finds its worker asleep takes 25 us longer than one that finds it
     * spinning (2-core Xeon, a 157 us loop: 105 against 80 us), so spinning about three times as long as waking costs
     * bridges most gaps between steps. */
    SPIN_NS = 80000,
    CROWDED_SPIN_NS = 2000, /* while more threads are awake than there are cores, which then have better to do */
    CHECKS_A_CLOCK = 32,    /* looks at what is waited for between two looks at the clock (22 ns): 0.4 us */
    /* 2 us between yields (0.2 us). With one core taken by another process, the loop above took 157 us, without yields
       235. */
    ROUNDS_A_YIELD = 4,
};

/* state: FREE; CLAIMED while its owner fills it; OPEN | users while it runs; users alone until the last worker has
 * left. */
enum { SLOT_FREE = 0, SLOT_OPEN = 1 << 30, SLOT_CLAIMED = 1 << 29 };

typedef struct Share {
    alignas(LINE) _Atomic uint64_t pieces; /* the next one in the high, the end in the low 32 bits */
} Share;

typedef struct Loop {
    PoolBody body;
    void *context;
    int64_t count, grain;
    int64_t blocks; /* of `grain` elements; a piece is a whole number of them */
    uint32_t pieces;
    Stop *stop; /* NULL: none */
} Loop;

typedef struct Slot {
    alignas(LINE) _Atomic uint32_t state;
    alignas(LINE) _Atomic uint32_t remaining; /* pieces not finished; a futex */
    _Atomic uint32_t waiting;                 /* the caller sleeps on it */
    alignas(LINE) Loop loop;                  /* written by the owner while claimed */
    Share *shares;                            /* [threads], made when the slot is first used */
} Slot;

struct Pool {
    int threads;
    PoolHost host; /* parallel_for NULL: the pool has workers */
    int started;   /* workers */
    pthread_t *handles;
    struct Worker *workers;
    alignas(LINE) _Atomic uint32_t epoch; /* loops begun; a futex */
    _Atomic uint32_t sleepers;            /* workers that wait on it, or are about to */
    _Atomic bool stop;
    _Atomic unsigned born;                /* fork_count() when its workers were started */
    alignas(LINE) _Atomic int slots_used; /* slots from here on were never used */
    Slot slots[MAX_LOOPS];
};

typedef struct Worker {
    Pool *pool;
    int number;
} Worker;

/* What the thread is doing: the outermost body it runs. */
typedef struct Current {
    bool inside;
    const Pool *pool;
    int worker;
} Current;
static _Thread_local Current current;
static _Thread_local Stop *current_stop; /* of the loops that the thread begins */
static _Thread_local PoolCount *current_count;

static atomic_int awake_workers; /* of all pools */

/* Cores, time, waiting. */

int pool_cores(void) {
    static atomic_int known;
    int cores = atomic_load_explicit(&known, memory_order_relaxed);
    if (cores) return cores;
    cpu_set_t set;
    long online = sysconf(_SC_NPROCESSORS_ONLN);
    cores = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : (int)online;
    if (cores < 1) cores = 1;
    if (cores > MAX_THREADS) cores = MAX_THREADS;
    atomic_store_explicit(&known, cores, memory_order_relaxed);
    return cores;
}

static int64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static inline void pause_core(void) {
#if defined __x86_64__ || defined __i386__
    __builtin_ia32_pause();
#elif defined __aarch64__
    __asm__ volatile("yield");
#endif
}

static void futex_wait(_Atomic uint32_t *word, uint32_t value) {
    syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, value, NULL, NULL, 0);
}

static void futex_wake(_Atomic uint32_t *word, int threads) {
    syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, threads, NULL, NULL, 0);
}

/* Awake workers and callers inside a loop, against the cores. */
static bool is_crowded(Pool *pool) {
    int threads = atomic_load_explicit(&awake_workers, memory_order_relaxed);
    int used = atomic_load_explicit(&pool->slots_used, memory_order_relaxed);
    for (int i = 0; i < used; i++)
        threads += (atomic_load_explicit(&pool->slots[i].state, memory_order_relaxed) & SLOT_OPEN) != 0;
    return threads > pool_cores();
}

/* Spins while *word is `value`, for a moment; false when it still is. It yields now and then, because what it waits for
 * may be a thread that the kernel has put on the same core: a worker that is woken beside its caller would spin its
 * caller off the core. */
static bool spin_while(Pool *pool, _Atomic uint32_t *word, uint32_t value) {
    int64_t start = now_ns();
    for (int round = 1;; round++) {
        for (int i = 0; i < CHECKS_A_CLOCK; i++) {
            if (atomic_load_explicit(word, memory_order_acquire) != value) return true;
            pause_core();
        }
        if (now_ns() - start >= (is_crowded(pool) ? CROWDED_SPIN_NS : SPIN_NS)) return false;
        if (round % ROUNDS_A_YIELD == 0) sched_yield();
    }
}

/* Pieces. */

static uint64_t pack(uint32_t next, uint32_t end) { return (uint64_t)next << 32 | end; }

/* Where part `index` of `parts` begins, among `total`. The sizes of parts differ by 1 at most, and so do those of runs of
 * as many parts: what a thread owns is as much as what others do. The first is among the larger. */
static int64_t part_begin(int64_t total, int64_t parts, int64_t index) {
    int64_t size = total / parts, larger = total % parts; /* below the number of pieces, as index is: no overflow */
    return index * size + (larger * index + parts - 1) / parts;
}

static void part_of(int64_t total, int64_t parts, int64_t index, int64_t *out_begin, int64_t *out_end) {
    *out_begin = part_begin(total, parts, index);
    *out_end = part_begin(total, parts, index + 1);
}

static bool take_piece(Share *share, bool own, uint32_t *out_piece) {
    uint64_t pieces = atomic_load_explicit(&share->pieces, memory_order_relaxed);
    for (;;) {
        uint32_t next = (uint32_t)(pieces >> 32), end = (uint32_t)pieces;
        if (next >= end) return false;
        uint64_t rest = own ? pack(next + 1, end) : pack(next, end - 1);
        *out_piece = own ? next : end - 1;
        if (atomic_compare_exchange_weak_explicit(&share->pieces, &pieces, rest, memory_order_relaxed,
                                                  memory_order_relaxed))
            return true;
    }
}

static void run_piece(const Loop *loop, uint32_t piece, int worker) {
    int64_t begin, end;
    if (loop->stop && stop_is_reached(loop->stop)) return;
    part_of(loop->blocks, loop->pieces, piece, &begin, &end);
    Stop *before = current_stop; /* of another run where a thread of the embedder's waits inside that */
    current_stop = loop->stop;
    loop->body(loop->context, begin * loop->grain, end == loop->blocks ? loop->count : end * loop->grain, worker);
    current_stop = before;
}

/* Runs pieces until none is left to take; true when there were any. */
static bool take_part(Pool *pool, Slot *slot, int worker) {
    uint32_t piece, done = 0;
    for (int i = 0; i < pool->threads; i++) {
        int owner = worker + i < pool->threads ? worker + i : worker + i - pool->threads;
        while (take_piece(&slot->shares[owner], i == 0, &piece)) {
            run_piece(&slot->loop, piece, worker);
            done++;
        }
    }
    if (done && atomic_fetch_sub(&slot->remaining, done) == done && atomic_load(&slot->waiting))
        futex_wake(&slot->remaining, 1);
    return done > 0;
}

/* Workers. */

static bool join_loop(Slot *slot) {
    uint32_t state = atomic_load_explicit(&slot->state, memory_order_relaxed);
    while (state & SLOT_OPEN)
        if (atomic_compare_exchange_weak_explicit(&slot->state, &state, state + 1, memory_order_acquire,
                                                  memory_order_relaxed))
            return true;
    return false;
}

/* One look through the slots, beginning with a different one for each worker where there are several. */
static bool help(Pool *pool, int worker) {
    int used = atomic_load_explicit(&pool->slots_used, memory_order_acquire);
    bool helped = false;
    for (int i = 0; i < used; i++) {
        Slot *slot = &pool->slots[(worker + i) % used];
        if (!join_loop(slot)) continue;
        helped |= take_part(pool, slot, worker);
        atomic_fetch_sub_explicit(&slot->state, 1, memory_order_release);
    }
    return helped;
}

/* `sleepers` is raised before `epoch` is read, and the other way round where a loop begins, all in one order: one of
 * the two sees the other. */
static void sleep_until_called(Pool *pool, uint32_t seen) {
    atomic_fetch_sub_explicit(&awake_workers, 1, memory_order_relaxed);
    atomic_fetch_add(&pool->sleepers, 1);
    if (atomic_load(&pool->epoch) == seen) futex_wait(&pool->epoch, seen);
    atomic_fetch_sub(&pool->sleepers, 1);
    atomic_fetch_add_explicit(&awake_workers, 1, memory_order_relaxed);
}

static void *run_worker(void *argument) {
    const Worker *worker = argument;
    Pool *pool = worker->pool;
    current.inside = true;
    current.pool = pool;
    current.worker = worker->number;
    atomic_fetch_add_explicit(&awake_workers, 1, memory_order_relaxed);
    for (;;) {
        uint32_t seen = atomic_load_explicit(&pool->epoch, memory_order_acquire);
        if (atomic_load_explicit(&pool->stop, memory_order_relaxed)) break;
        if (help(pool, worker->number)) continue;
        if (!spin_while(pool, &pool->epoch, seen)) sleep_until_called(pool, seen);
    }
    atomic_fetch_sub_explicit(&awake_workers, 1, memory_order_relaxed);
    return NULL;
}

/* Callers. */

static Slot *claim_slot(Pool *pool) {
    for (int i = 0; i < MAX_LOOPS; i++) {
        Slot *slot = &pool->slots[i];
        uint32_t state = SLOT_FREE;
        if (atomic_load_explicit(&slot->state, memory_order_relaxed) != SLOT_FREE ||
            !atomic_compare_exchange_strong_explicit(&slot->state, &state, SLOT_CLAIMED, memory_order_acquire,
                                                     memory_order_relaxed))
            continue;
        if (!slot->shares) slot->shares = aligned_alloc(LINE, (size_t)pool->threads * sizeof(Share));
        if (slot->shares) return slot;
        atomic_store_explicit(&slot->state, SLOT_FREE, memory_order_release);
        return NULL;
    }
    return NULL;
}

static void fill_slot(Pool *pool, Slot *slot, const Loop *loop) {
    slot->loop = *loop;
    for (int i = 0; i < pool->threads; i++) {
        int64_t begin, end;
        part_of(loop->pieces, pool->threads, i, &begin, &end);
        atomic_store_explicit(&slot->shares[i].pieces, pack((uint32_t)begin, (uint32_t)end), memory_order_relaxed);
    }
    atomic_store_explicit(&slot->remaining, loop->pieces, memory_order_relaxed);
    atomic_store_explicit(&slot->waiting, 0, memory_order_relaxed);
}

static void open_slot(Pool *pool, Slot *slot, const Loop *loop) {
    fill_slot(pool, slot, loop);
    atomic_store_explicit(&slot->state, SLOT_OPEN, memory_order_release);
    int used = atomic_load_explicit(&pool->slots_used, memory_order_relaxed), index = (int)(slot - pool->slots);
    while (used <= index && !atomic_compare_exchange_weak_explicit(&pool->slots_used, &used, index + 1,
                                                                   memory_order_release, memory_order_relaxed)) {}
    atomic_fetch_add(&pool->epoch, 1);
    uint32_t sleepers = atomic_load(&pool->sleepers), wanted = loop->pieces - 1;
    if (sleepers) futex_wake(&pool->epoch, (int)(sleepers < wanted ? sleepers : wanted));
}

static void wait_for_pieces(Pool *pool, Slot *slot) {
    uint32_t left;
    while ((left = atomic_load_explicit(&slot->remaining, memory_order_acquire))) {
        if (spin_while(pool, &slot->remaining, left)) continue;
        atomic_store(&slot->waiting, 1);
        left = atomic_load(&slot->remaining);
        if (left) futex_wait(&slot->remaining, left);
    }
}

/* Inside a body the thread keeps the number it has there; in a loop of another pool, the only thread of that loop is
 * number 0. */
static void run_alone(Pool *pool, const Loop *loop) {
    bool outermost = !current.inside;
    int worker = !outermost && current.pool == pool ? current.worker : 0;
    if (outermost) {
        current.inside = true;
        current.pool = pool;
        current.worker = 0;
    }
    for (uint32_t piece = 0; piece < loop->pieces; piece++) run_piece(loop, piece, worker);
    if (outermost) current.inside = false;
}

typedef struct HostLoop {
    Pool *pool;
    Slot *slot;
} HostLoop;

/* The index of a task is its worker's number. A thread of the embedder's may take a task while it waits inside another
 * one of ours. */
static void run_host_task(void *context, int index) {
    const HostLoop *loop = context;
    Current before = current;
    current = (Current){true, loop->pool, index};
    take_part(loop->pool, loop->slot, index);
    current = before;
}

static void run_on_host(Pool *pool, Slot *slot, const Loop *loop) {
    fill_slot(pool, slot, loop);
    HostLoop context = {pool, slot};
    int most = loop->pieces > INT_MAX ? INT_MAX : (int)loop->pieces;
    int tasks = most < pool->threads ? most : pool->threads;
    pool->host.parallel_for(pool->host.user, tasks, run_host_task, &context);
    run_host_task(&context, 0); /* nothing is left, but for a host that has called no task */
    atomic_store_explicit(&slot->state, SLOT_FREE, memory_order_release);
}

/* Workers are born with all signals blocked: the embedder's handlers run on its own threads. */
static int start_workers(Pool *pool) {
    pthread_attr_t attributes;
    int error = pthread_attr_init(&attributes);
    if (error) return error;
    pthread_attr_setstacksize(&attributes, STACK_BYTES);
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    for (int i = 0; i < pool->threads - 1 && !error; i++) {
        pool->workers[i] = (Worker){pool, i + 1};
        error = pthread_create(&pool->handles[i], &attributes, run_worker, &pool->workers[i]);
        if (error) break;
        pool->started++;
        char name[16]; /* the kernel's limit */
        snprintf(name, sizeof name, "onnxfuse %u", (unsigned)(i + 1) % 10000u);
        pthread_setname_np(pool->handles[i], name);
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attributes);
    return error;
}

/* In a forked child: whatever the parent's threads were doing goes on there alone. Without room for as many workers there are
 * fewer. */
static void start_again(Pool *pool, unsigned forks) {
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static unsigned counted; /* the fork after which awake_workers was put right */
    pthread_mutex_lock(&lock);
    if (counted != forks) atomic_store(&awake_workers, 0);
    counted = forks;
    if (atomic_load(&pool->born) != forks) {
        for (int i = 0; i < MAX_LOOPS; i++) atomic_store(&pool->slots[i].state, SLOT_FREE);
        atomic_store(&pool->sleepers, 0);
        pool->started = 0;
        if (!pool->host.parallel_for) start_workers(pool);
        atomic_store(&pool->born, forks);
    }
    pthread_mutex_unlock(&lock);
}

static void run_loop(Pool *pool, const Loop *loop) {
    unsigned forks = fork_count();
    if (pool && !current.inside && atomic_load_explicit(&pool->born, memory_order_acquire) != forks)
        start_again(pool, forks);
    Slot *slot = pool && pool->threads > 1 && loop->pieces > 1 && !current.inside ? claim_slot(pool) : NULL;
    if (!slot) {
        run_alone(pool, loop);
        return;
    }
    if (pool->host.parallel_for) {
        run_on_host(pool, slot, loop);
        return;
    }
    open_slot(pool, slot, loop);
    current.inside = true;
    current.pool = pool;
    current.worker = 0;
    take_part(pool, slot, 0);
    current.inside = false;
    wait_for_pieces(pool, slot);
    atomic_fetch_and_explicit(&slot->state, ~(uint32_t)SLOT_OPEN, memory_order_release);
}

/* Blocks of the thread whose own pieces have most; stealing takes from them while others are late alone. */
static int64_t most_blocks(const Loop *loop, int threads) {
    int64_t most = 0;
    for (int i = 0; i < threads; i++) {
        int64_t begin, end, first, last, unused;
        part_of(loop->pieces, threads, i, &begin, &end);
        if (begin == end) continue;
        part_of(loop->blocks, loop->pieces, begin, &first, &unused);
        part_of(loop->blocks, loop->pieces, end - 1, &unused, &last);
        if (last - first > most) most = last - first;
    }
    return most;
}

static void count_loop(PoolCount *count, const Loop *loop, int threads) {
    double work = count->next > 0 ? count->next : 1;
    int64_t most = loop->pieces > 1 ? most_blocks(loop, threads) : loop->blocks;
    count->loops++;
    count->work += work;
    count->longest += work * (double)most / (double)loop->blocks;
    if (most == loop->blocks) count->alone += work;
    if (work > count->largest) count->largest = work, count->blocks = most < loop->blocks ? loop->blocks : 1;
    count->next = 0;
}

void pool_for(Pool *pool, int64_t count, int64_t grain, PoolBody body, void *context) {
    if (count <= 0) return;
    if (grain < 1) grain = 1;
    Loop loop = {body, context, count, grain, (count - 1) / grain + 1, 1, current_stop};
    int64_t most =
        current.inside ? 1 : (int64_t)pool_threads(pool) * (loop.stop ? PIECES_WITH_A_STOP : PIECES_A_THREAD);
    if (pool_threads(pool) > 1 || loop.stop) loop.pieces = (uint32_t)(loop.blocks < most ? loop.blocks : most);
    if (current_count)
        count_loop(current_count, &loop, pool_threads(pool));
    else
        run_loop(pool, &loop);
}

void pool_count(PoolCount *count) { current_count = count; }

void pool_tell(double work) {
    if (current_count) current_count->next = work;
}

bool pool_is_stopped(void) { return current_stop && stop_is_reached(current_stop); }

Stop *pool_stop_with(Stop *stop) {
    Stop *before = current_stop;
    current_stop = stop;
    return before;
}

/* Creation. */

int pool_threads(const Pool *pool) { return pool ? pool->threads : 1; }

static Status new_pool(int threads, Pool **out_pool) {
    Pool *pool = aligned_alloc(LINE, sizeof *pool);
    if (!pool) return status_out_of_memory();
    memset(pool, 0, sizeof *pool);
    pool->threads = threads;
    pool->born = fork_count();
    pool->handles = calloc((size_t)threads, sizeof *pool->handles);
    pool->workers = calloc((size_t)threads, sizeof *pool->workers);
    if (!pool->handles || !pool->workers) {
        pool_destroy(pool);
        return status_out_of_memory();
    }
    *out_pool = pool;
    return NULL;
}

Status pool_create(int threads, Pool **out_pool) {
    *out_pool = NULL;
    if (threads < 0 || threads > MAX_THREADS)
        return status_error(STATUS_USAGE, "%d threads: must be 1 to %d, or 0 for all cores", threads, MAX_THREADS);
    if (threads == 0) threads = pool_cores();
    TRY(new_pool(threads, out_pool));
    int error = start_workers(*out_pool);
    if (!error) return NULL;
    Status status = status_error(STATUS_FAULT, "cannot start thread %d of %d: %s", (*out_pool)->started + 2, threads,
                                 plain_error(error));
    pool_destroy(*out_pool);
    *out_pool = NULL;
    return status;
}

Status pool_create_over(PoolHost host, int threads, Pool **out_pool) {
    *out_pool = NULL;
    if (threads < 1 || threads > MAX_THREADS || !host.parallel_for)
        return status_error(STATUS_USAGE, "a thread pool of %d threads: 1 to %d are possible, and a parallel_for",
                            threads, MAX_THREADS);
    TRY(new_pool(threads, out_pool));
    (*out_pool)->host = host;
    return NULL;
}

void pool_destroy(Pool *pool) {
    if (!pool) return;
    atomic_store(&pool->stop, true);
    atomic_fetch_add(&pool->epoch, 1);
    futex_wake(&pool->epoch, INT_MAX);
    for (int i = 0; i < pool->started && pool->born == fork_count(); i++) pthread_join(pool->handles[i], NULL);
    for (int i = 0; i < MAX_LOOPS; i++) free(pool->slots[i].shares);
    free(pool->handles);
    free(pool->workers);
    free(pool);
}

Status pool_shared(int threads, Pool **out_pool) {
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static Pool *pools[MAX_THREADS + 1];
    *out_pool = NULL;
    if (threads == 0) threads = pool_cores();
    Status status = NULL;
    pthread_mutex_lock(&lock);
    bool valid = threads > 0 && threads <= MAX_THREADS;
    if (!valid || !pools[threads])
        status = pool_create(threads, out_pool);
    else
        *out_pool = pools[threads];
    if (valid) pools[threads] = *out_pool;
    pthread_mutex_unlock(&lock);
    return status;
}
