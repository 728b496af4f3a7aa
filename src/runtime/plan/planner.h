/* SPDX-License-Identifier: Apache-2.0 */
/* The parts of planning. Internal to the plan.
 *   placement.c  which node runs where
 *   plan.c       slots, steps, copies, lifetimes
 *   states.c     what is written over its old value comes last
 *   arrange.c    the order in which device steps can be recorded
 *   prologues.c  anchors that run within those that read them
 *   prepare.c    anchors, constants on the device, kernels
 *   listing.c    counts and text */
#ifndef ONNXFUSE_RUNTIME_PLAN_PLANNER_H
#define ONNXFUSE_RUNTIME_PLAN_PLANNER_H

#include "runtime/plan/plan.h"

/* --- placement.c --- */
StepKind step_kind_of(const Node *node);
/* A reshape: no step, but another view of its input's memory. */
bool node_is_alias(const Node *node);
/* Sets every node's tag to its Place; an alias is where its input is. */
void placement_choose(const Graph *graph, const Device *device, Arena *scratch);

/* Whether the step is on the host since the device cannot do it, and not for speed's sake or by the policy's wish. */
bool placement_is_forced(const Device *device, const Step *step);

/* --- plan.c --- */
/* A step that writes or reads the memory of a slot. */
void slot_touch(Plan *plan, int slot, int step);

/* Whether a result of the step may be in the memory of one of its inputs, that nothing reads afterwards. */
bool step_may_share(const Plan *plan, const Step *step, int output, int input);

/* What is known of the step's node beforehand; NULL: nothing. */
const NodeGiven *given_of(const Plan *plan, const Step *step);

/* --- states.c --- */
/* Once all steps stand: puts those that write states last (`states_order`); once they stand in the order in which they
 * run and their lifetimes are known, sets plan->last_writes (`states_settle`). */
void states_order(Plan *plan, Arena *scratch);
void states_settle(Plan *plan);

/* --- arrange.c --- */
/* The first and last steps of all slots, anew. */
void find_lifetimes(Plan *plan);

/* Once all steps stand. late_symbols: bound by a step, or "$run"; used: what sizes are remembered by, completed. Sets
 * the plan's recorded_first, recorded_end and not_recorded. */
void arrange_for_recording(Plan *plan, const bool *late_symbols, bool *used, Arena *scratch);

/* --- prologues.c --- */
/* Once the order of steps and their lifetimes stand: finds anchors that may run within the one that reads them. */
void find_prologues(Plan *plan, Arena *scratch);

/* --- prepare.c --- */
/* What a plan shares with those nested in it. */
typedef struct Shared {
    KernelPool kernels;
} Shared;

/* Anchors pack their weights, and what device steps still read of the constants goes to the device. holders: data of
 * constants -> how many of the plans' graphs read it. */
Status prepare_constants(Plan *plan, const Map *holders, Arena *scratch);
/* Before holders are counted: aligns what some step reads by its C type. */
void align_constants(const Plan *plan);
/* Counts the holders of a graph's constants and of those of its subgraphs. */
void count_holders(const Graph *graph, Map *holders);
/* What the device compiles for primitives outside regions. */
Status prepare_prims(Plan *plan, KernelCacheStats *stats);
/* Kernels of all nested plans at once. */
Status prepare_kernels(Plan *plan, Arena *scratch, KernelCacheStats *stats);

#endif
