/* SPDX-License-Identifier: Apache-2.0 */
/* Replays: what the device does in a run of known shapes, recorded once and then put on a stream with one call, so that
 * the host's cost of a run does not grow with the number of its steps.
 *
 * A Recording has a stream, an arena and scratch memory of its own, since their addresses are part of the recording. Runs
 * of the plan's other steps (copies in before, copies out after) are as always. One run at a time uses a Recording. What a
 * run finds in the caller's device memory is read and written there, so such a run needs the addresses that were
 * recorded. The first run with a new Recording does its work plainly and records afterwards: by then everything that is
 * made on first use is there, and a recording that fails fails no run. */
#ifndef ONNXFUSE_RUNTIME_RUN_REPLAY_H
#define ONNXFUSE_RUNTIME_RUN_REPLAY_H

#include "runtime/run/state.h"

/* Once the sizes are known and nothing is on the run's stream: takes a Recording for the run where there is one or it is
 * worth making. The run's stream, device arena and scratch are then the Recording's. */
void replay_choose(State *s);
static inline bool replay_is_recorded(const State *s) { return s->replay && s->recorded; }
/* The device slots that the other steps read and write: where they were when it was recorded. */
Status replay_places(State *s);
/* All steps of a run that has a Recording. */
Status replay_steps(State *s);
/* After a run that went well and was waited for: records what a new Recording is to hold. */
void replay_record(State *s);
/* Before the run's memory is released. failure: the run's, or NULL. */
void replay_give_back(State *s, Status failure);

#endif
