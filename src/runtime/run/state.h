/* SPDX-License-Identifier: Apache-2.0 */
/* A plan that is being run. Internal to the run.
 *   run.c         binding, the steps one after the other, the frame around them
 *   slots.c       memory of slots, sizes known late
 *   host_steps.c  host kernels and nested plans
 *   replay.c      device steps that were recorded
 *   observe.c     handing the model's values to who watches
 *   transfer.c    copies between host and device, waiting, the caller's device memory */
#ifndef ONNXFUSE_RUNTIME_RUN_STATE_H
#define ONNXFUSE_RUNTIME_RUN_STATE_H

#include "runtime/run/run.h"

typedef struct State {
    const Plan *plan;
    Run *run;
    const Sizes *sizes;
    int64_t *symbols;      /* [symbol_count] */
    const int64_t *values; /* of plan->exprs: the sizes', or an own copy where some are late */
    int64_t *own_values;   /* that copy, or NULL */
    void **data;           /* [slot_count]: memory of tensor slots, NULL where not there yet */
    const Item **items;    /* [slot_count]: of STORE_ITEM and item inputs */
    Item *owned;           /* [slot_count]: what STORE_ITEM slots own; NULL where there are none */
    Item *const *given_up; /* [graph inputs]: run.h's; NULL: none */
    Block arenas[PLACES];
    Block scratch[PLACES]; /* of kernels; on a device one after the other, so they share it */
    VEC(Block) outgrown;   /* device scratch that launches may still use */
    RunOutput *outputs;
    struct Watch *watch; /* NULL: nobody does */
    Arena *memory;       /* of this structure, freed after the run */
    /* The caller's device memory; the outermost plan alone has any. */
    const bool *input_on_device, *output_on_device; /* NULL: none */
    void **given;                                   /* [slot_count] of inputs; NULL: none */
    VEC(void *) staged;                             /* host memory that stands in for it where the host reads */
    struct Recording *replay;                       /* replay.c: what this run uses; NULL: none */
    bool recorded;                                  /* the device's steps are in it */
    Stream *plain_stream;                           /* the run's own stream, while it uses a Recording's */
} State;

static inline const Slot *slot_at(const State *s, int number) { return &s->plan->slots[number]; }
static inline bool is_tensor_slot(const Slot *slot) { return slot->dims_expr >= 0; }
static inline const int64_t *dims_of(const State *s, int number) { return s->values + slot_at(s, number)->dims_expr; }
static inline Stream *stream_of(const State *s, const Step *step) {
    return step->place == PLACE_DEVICE ? s->run->stream : NULL;
}
void tensor_at(const State *s, int number, Tensor *out_tensor);

/* --- run.c --- */
Status take_steps(State *s, int first, int end);
/* A block for the run; Replays that no run uses give way. */
Status take_block(State *s, Place place, size_t bytes, Block *out_block);

/* --- slots.c --- */
/* Evaluates the expressions that have become known. */
void update_late(State *s);
/* Memory for a result whose dims are known by now. */
Status ensure_data(State *s, int number);
/* Before the steps: the arena's part, or the caller's memory, of a STORE_PLANNED slot. */
Status place_planned(State *s, int number);
Status allocate_output(State *s, int root, int rank, const int64_t *dims);
/* An alias gets its pointer when it is read, since its root may be allocated late. */
Status ready(State *s, int number);
void free_slot(State *s, int root);
/* NULL for an item that is absent. */
const Item *item_at(State *s, int number, Item *storage);
/* The item that is the run's own to change, since no step after this one and no other input of it reads the slot; else
 * NULL. */
Item *dying_item(const State *s, const Step *step, int number);
/* The same once all steps are taken, of what one output of the plan hands out. */
Item *dying_output(const State *s, int number);
/* Strings leave a call's scratch memory for a block of their own. */
Status keep_strings(State *s, int number, const Item *made);

/* --- host_steps.c --- */
Status run_host_step(State *s, const Step *step, Arena *arena);
Status run_nested_step(State *s, const Step *step, Arena *arena);

/* --- observe.c --- */
/* Finds out which slots are to be shown; the outermost plan's run->observer is set. */
void watch_begin(State *s);
/* Shows what is a view of an input. */
Status watch_inputs(State *s);
/* Shows what the step has made. */
Status watch_step(State *s, const Step *step);

/* --- transfer.c --- */
Status run_copy(State *s, const Step *step);
/* What a slot of the device holds, in host memory; waits. */
Status copy_out(State *s, int number, void *to, size_t bytes);
/* Until all work on the run's stream is done. */
Status wait_for_device(State *s);
/* An input whose data is in device memory; the host's copy of it is there after wait_for_device. */
Status bind_device_input(State *s, int number, const Item *input);
/* The caller's device memory for a slot of the device, or NULL. */
const Tensor *given_output(const State *s, const Slot *slot);
/* Whether an output of the graph is to be written to the caller's device memory. */
static inline bool is_device_output(const State *s, int output) {
    return s->output_on_device && s->output_on_device[output];
}
/* Host memory in place of an output that the caller wants on the device. */
Status stage_output(State *s, int root, size_t bytes);
/* Writes such an output where no step has done it. */
Status finish_device_output(State *s, int output);
void free_staged(State *s);

#endif
