/* SPDX-License-Identifier: Apache-2.0 */
/* States that sessions keep between runs (Graph.kept): handed to a run behind what the caller passes, and taken back from it. */
#ifndef ONNXFUSE_RUNTIME_API_STATE_H
#define ONNXFUSE_RUNTIME_API_STATE_H

#include "runtime/api/session.h"

/* Of a session that has just got its plan: describes its states and makes its own. */
Status states_make(OnnxfuseSession *s);
void states_destroy(OnnxfuseSession *s);

typedef struct StateRun {
    OnnxfuseState *state; /* NULL: the model has none */
} StateRun;

/* Takes the state (NULL: the session's own) for a run, and fills in what of `items` and `made` comes behind the caller's. After success
 * state_end is to be called. */
Status state_begin(OnnxfuseSession *s, OnnxfuseState *state, const Item **items, RunOutput *made, StateRun *out_run);
/* The run has ended with this status: its results are the state's from now on, or it stays as it was. */
void state_end(const StateRun *run, Status status, RunOutput *made);

/* A line a state, for `inspect`. */
void states_describe(Text *text, const Plan *plan);

#endif
