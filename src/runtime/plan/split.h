/* SPDX-License-Identifier: Apache-2.0 */
/* How a step on the CPU is shared out among threads, without running it. */
#ifndef ONNXFUSE_RUNTIME_PLAN_SPLIT_H
#define ONNXFUSE_RUNTIME_PLAN_SPLIT_H

#include "runtime/plan/plan.h"

/* Counts the loops that a run of the step at these sizes would begin on the threads of its device, by the code that would
 * run it. A step that begins none is done by one thread. False: not known, as of host kernels, whose loops depend on what
 * they read, and of steps on other devices. symbols: as dim_eval takes them. */
bool step_split(const Plan *plan, const Step *step, const int64_t *symbols, PoolCount *out_count);

#endif
