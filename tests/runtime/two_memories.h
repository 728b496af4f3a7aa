/* SPDX-License-Identifier: Apache-2.0 */
/* A device of its own memory that needs none: the CPU's functions behind addresses that the host cannot follow, and
 * streams that do their work as late as they may. What a plan does wrong between two memories shows:
 *   - the host follows a device address: a crash, since no such address is mapped
 *   - a device call is given a host address, or memory that was given back: `complaint` says so
 *   - the host reads what a copy brings before it has waited: it finds 0xA5
 *   - something is done on a stream that a recording must not hold, or a recording's memory is gone: `complaint`
 *   - something is not given back: `blocks`, `streams`, `kernels`, `anchors`, `recordings` are not 0 */
#ifndef ONNXFUSE_TESTS_TWO_MEMORIES_H
#define ONNXFUSE_TESTS_TWO_MEMORIES_H

#include <pthread.h>

#include "runtime/plan/plan.h"
#include "runtime/run/run.h"

typedef struct TwoMemoriesOptions {
    uint64_t seed;       /* of all that is drawn */
    int refuses;         /* of 100 nodes, chosen by the names of their first outputs */
    const char *refused; /* also nodes that make values whose names begin with this; NULL: none */
    int early;           /* of 100 calls: work that is waiting is begun */
    bool records;        /* it records and replays */
} TwoMemoriesOptions;

typedef struct TwoMemories {
    Device base;
    TwoMemoriesOptions options;
    Device *cpu;
    pthread_mutex_t lock;
    struct TwoBlock *allocated;
    char complaint[256]; /* the first; "" for none */
    /* Counts; those of what exists go down again. */
    atomic_int blocks, streams, kernels, anchors, pending; /* pending: work that waits, but for what only frees */
    atomic_int calls, copies[3], waits, launches;
    atomic_int recordings, replays; /* recordings: that exist */
    int fail_at;                    /* the call (of those that can fail, from 1) that fails; 0: none */
} TwoMemories;

TwoMemories *two_memories_open(const Policy *policy, TwoMemoriesOptions options);
/* What is wrong with the device now that nothing runs and nothing should exist, or NULL; closes it. */
const char *two_memories_close(TwoMemories *device, Arena *arena);

/* A graph on this device, or on the CPU alone. */
typedef struct Loaded {
    Policy policy;
    TwoMemories *two; /* NULL: the CPU */
    Device *host;
    Graph *graph; /* not owned */
    Plan *plan;
    Memory memory;
    struct RunMemory *buffers;
    atomic_size_t peak;
    atomic_ullong runs;
} Loaded;

/* lower: a graph of ONNX nodes; else of primitives. options NULL: the CPU. fail_at: of the device. To be unloaded also
 * after a failure. */
Status loaded_open(Loaded *l, Graph *graph, bool lower, const TwoMemoriesOptions *options, int fail_at);
Status loaded_run(Loaded *l, const Item *const *inputs, RunOutput *outputs);
/* Where the inputs' and outputs' data is; given on the device where the flags say so (NULL: nowhere). */
Status loaded_run_on_device(Loaded *l, const Item *const *inputs, RunOutput *outputs, const bool *input_on_device,
                            const bool *output_on_device);
/* What is left allocated or went wrong, or NULL. */
const char *loaded_close(Loaded *l, Arena *arena);

/* NULL when both are the same to the bit. */
const char *item_difference(const Item *expected, const Item *got, Arena *arena);

#endif
