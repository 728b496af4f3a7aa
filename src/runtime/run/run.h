/* SPDX-License-Identifier: Apache-2.0 */
/* Running a plan: what a run is given and gives back, and the memory that is kept between runs. */
#ifndef ONNXFUSE_RUNTIME_RUN_RUN_H
#define ONNXFUSE_RUNTIME_RUN_RUN_H

#include "runtime/plan/plan.h"
#include "runtime/run/profile.h"

/* Who is shown the model's values during a run (observe.c). What is handed over does not outlive the call; a status
 * ends the run. */
typedef struct Observer {
    Status (*see)(void *user, const ModelValue *what, const Item *item);
    void *user;
} Observer;

/* What all plans of one run share. */
typedef struct Run {
    Memory *memory;
    Profile *profile;          /* NULL: off */
    Stop *stop;                /* NULL: the run goes on to its end */
    const Observer *observer;  /* NULL: none */
    uint64_t run_number;       /* of the session, from 0; "$run" is made of it */
    uint64_t plans_run;        /* plans begun in this run */
    struct RunMemory *buffers; /* arenas, scratch and streams, kept between runs */
    int depth;                 /* of nested plans */
    atomic_size_t *peak_arena; /* of both places together */
    /* The outermost graph's inputs and outputs whose data is in the device's memory; NULL: none. Such outputs are
     * given. */
    const bool *input_on_device, *output_on_device;
    /* Kept by plan_run. */
    Stream *stream;                /* of the device; NULL on the CPU and before the outermost plan begins */
    bool busy;                     /* work was put on the stream since the last wait */
    struct Recordings *recordings; /* of the outermost plan; NULL: none */
} Run;

/* An output: given by the caller (item.tensor.data not NULL; dims must fit), or filled with an item that owns its
 * memory. */
typedef struct RunOutput {
    bool given;
    Item item;
} RunOutput;

/* Returns when the work is done, also on failure. outer: bindings of the symbols of the plan around this one, NULL for
 * none. inputs [graph inputs]: borrowed; NULL for an absent optional. */
Status plan_run(const Plan *plan, Run *run, const int64_t *outer, const Item *const *inputs, RunOutput *outputs);
/* given_up [graph inputs]: NULL, or the same item as in `inputs` where it is the plan's to take, from `run`'s memory:
 * then it is ITEM_NONE afterwards, else the caller's still. */
Status plan_run_taking(const Plan *plan, Run *run, const int64_t *outer, const Item *const *inputs,
                       Item *const *given_up, RunOutput *outputs);

/* control_flow.c: a STEP_CONTROL. given_up [inputs]: as above. */
Status run_control(const Step *step, Run *run, const int64_t *symbols, const Item *const *inputs, Item *const *given_up,
                   RunOutput *outputs);

/* --- run memory (buffers.c): arenas, scratch and streams of past runs, ready for the next ------------------------ */
struct RunMemory *run_memory_create(Device *device, Device *host, Memory *memory);
void run_memory_destroy(struct RunMemory *buffers);
/* Frees what no run uses. */
void run_memory_trim(struct RunMemory *buffers);
Status run_memory_take(struct RunMemory *buffers, Place place, size_t bytes, Block *out_block);
/* No work on the block may be going on; accepts an empty one. */
void run_memory_give(struct RunMemory *buffers, Place place, Block block);
/* An arena for a run or a step, with the memory of one before; NULL: there is none. Given back as it is; accepts NULL. */
Arena *run_memory_take_arena(struct RunMemory *buffers);
void run_memory_give_arena(struct RunMemory *buffers, Arena *arena);
/* A stream of the device; NULL on devices that have none. */
Status run_memory_take_stream(struct RunMemory *buffers, Stream **out_stream);
void run_memory_give_stream(struct RunMemory *buffers, Stream *stream, bool sound); /* sound: may be used again */

#endif
