/* SPDX-License-Identifier: Apache-2.0 */
/* Our own threads. One process-wide pool is made on first use; sessions share it. A parallel loop is run by the calling
 * thread and by whichever workers are idle, so several requests at once share the workers and a lone one gets them all.
 * Workers spin for a moment after the last loop, then sleep. */
#ifndef ONNXFUSE_BASE_POOL_H
#define ONNXFUSE_BASE_POOL_H

#include <stdint.h>
#include "base/status.h"
#include "base/stop.h"

typedef struct Pool Pool;

/* threads: how many take part in a loop, the caller included; 0 means the cores this process may run on. */
Status pool_create(int threads, Pool **out_pool);
void pool_destroy(Pool *pool);      /* no loop may be running; accepts NULL */
int pool_threads(const Pool *pool); /* 1 for NULL */
int pool_cores(void);               /* that this process may run on */

/* The embedder's threads. parallel_for calls task(context, index) once for each index in [0, count), on any threads,
 * the caller's among them, in any order, and returns when all have returned. */
typedef struct PoolHost {
    void (*parallel_for)(void *user, int count, void (*task)(void *context, int index), void *context);
    void *user;
} PoolHost;
/* A pool without threads of its own; `threads` is how many of the host's take part in a loop at most. */
Status pool_create_over(PoolHost host, int threads, Pool **out_pool);
/* The shared pool with `threads` threads (0: all cores), made on first use, one a distinct size; never freed before
 * exit. */
Status pool_shared(int threads, Pool **out_pool);

/* From now on loops that this thread begins leave out the pieces that are not begun when `stop` is reached, and are cut
 * finer; NULL: none do. Returns what was set before. What follows such a loop must not take its results for sizes or
 * places, and its caller asks for stop_status before it hands them on. */
Stop *pool_stop_with(Stop *stop);
/* For bodies whose pieces are long: whether the loop that this thread is in is to end. */
bool pool_is_stopped(void);

/* body(context, begin, end, worker): a piece of [0, count); worker is in [0, pool_threads) and unique among the pieces
 * of this loop running at the same moment, so it can index scratch memory that belongs to the loop or to its request:
 * two loops that run at once, from two threads, use the same numbers. The caller is number 0. A body returns: it must
 * not jump out (arena guards). */
typedef void (*PoolBody)(void *context, int64_t begin, int64_t end, int worker);
/* Calls body over [0, count) in pieces that begin at multiples of `grain` and are multiples of it (the last may be
 * smaller); returns when all are done. pool may be NULL: then the caller does it all. A loop started inside a body runs
 * in the thread that starts it, as its own worker number (0 when it is a loop of another pool). */
void pool_for(Pool *pool, int64_t count, int64_t grain, PoolBody body, void *context);

/* How loops were shared out, by count: the blocks (of `grain`) that the thread with most of them would get. */
typedef struct PoolCount {
    int loops;
    int64_t blocks; /* of the loop of most work; 1 where one thread does them all */
    double work;    /* of all loops, in multiply-adds or what takes as long; 1 a loop that does not tell */
    double alone;   /* the part of it in loops that one thread does */
    double longest; /* the work of the thread with most, summed over the loops */
    double next;    /* the work of the next loop; 0: not told */
    double largest; /* of a loop */
} PoolCount;
/* Until the next call, with NULL, the loops that this thread begins are counted and their bodies left out, as though each
 * loop were ended before its first piece: the same holds of what follows them as with a Stop. */
void pool_count(PoolCount *count);
/* For who counts: how much work the next loop of this thread is. Costs next to nothing otherwise. */
void pool_tell(double work);
#endif
