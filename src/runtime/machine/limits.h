/* SPDX-License-Identifier: Apache-2.0 */
/* What this machine's cores can do at most: how fast they read and write, from memory and from caches, and multiply and
 * add. Measured once, in less than a second, and remembered in the cache's folder. */
#ifndef ONNXFUSE_RUNTIME_MACHINE_LIMITS_H
#define ONNXFUSE_RUNTIME_MACHINE_LIMITS_H

#include "base/pool.h"
#include "graph/cost.h"
#include "policy/policy.h"

enum { MOST_BANDWIDTHS = 8 };

/* Bytes a second over a working set, each thread in a part of its own, again and again. */
typedef struct Bandwidth {
    double bytes;             /* the working set, of all threads together */
    double read, write, copy; /* copy: what is read and what is written, half each, counted together */
} Bandwidth;

typedef struct MachineLimits {
    int threads; /* that measured together */
    int count;
    Bandwidth bandwidths[MOST_BANDWIDTHS]; /* by rising size; the last is larger than most caches */
    double products[WORK_TYPES];           /* of Cost.products a second: multiply-adds, two each; 0: not measured */
} MachineLimits;

/* measure.c: on the pool's threads. */
Status machine_measure(Pool *pool, MachineLimits *out_limits);

/* The limits for the pool's threads, or, where these are more than the cores, for as many as those. Remembered by
 * processor, cores and threads in the policy's cache folder; what is damaged there, or of another machine, is measured
 * anew, and a folder that cannot be used costs a measurement each time. again: measured in any case. */
Status machine_limits(const Policy *policy, Pool *pool, bool again, MachineLimits *out_limits);
/* "AMD EPYC 9R14, 2 cores, 2 threads": what they are remembered by. */
const char *machine_key(Arena *arena, int threads);

/* The same as text and back (limits_text.c); false: damaged, or not of this key. */
void limits_print(Text *text, const char *key, const MachineLimits *limits);
bool limits_parse(const char *text, size_t size, const char *key, MachineLimits *out_limits);

/* --- what a cost comes to --- */
typedef struct LeastTime {
    double memory, arithmetic; /* seconds: bytes over the bandwidth for as many; work over its rate */
} LeastTime;
/* run: bytes that a run touches, which decide what its weights are read from; what steps hand to each other is taken to
 * lie in the nearest cache that holds a step's bytes. scale: how many times as fast a machine is that has more of the same
 * cores; 1 for this one. */
LeastTime limits_least_time(const MachineLimits *limits, const Cost *cost, double run, double scale);
static inline double least_seconds(LeastTime t) { return t.memory > t.arithmetic ? t.memory : t.arithmetic; }

#endif
