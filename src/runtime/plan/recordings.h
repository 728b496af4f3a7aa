/* SPDX-License-Identifier: Apache-2.0 */
/* Recordings of what the device does in a run of known shapes (run/replay.h makes and uses them): the set that a plan keeps, by the sizes
 * that each holds for. */
#ifndef ONNXFUSE_RUNTIME_PLAN_RECORDINGS_H
#define ONNXFUSE_RUNTIME_PLAN_RECORDINGS_H

#include "runtime/plan/plan.h"

typedef struct Position {
    int slot;
    void *data;
} Position;

typedef struct Recording {
    uint64_t sizes; /* id of the sizes that it holds for */
    uint64_t age;   /* of the latest use */
    size_t bytes;   /* of the arena */
    bool busy, doomed;
    Stream *stream;
    Block arena, scratch;
    DeviceRecording *recording; /* NULL: none yet */
    Position *positions;        /* [position_count] of the device slots that the steps around the recording need */
    int position_count;
    void **given; /* [inputs + outputs] the caller's device memory; NULL: none */
} Recording;

struct Recordings *recordings_create(void);                             /* NULL when there is no memory */
void recordings_destroy(struct Recordings *recordings, Device *device); /* accepts NULL; no run is under way */
/* Frees those that no run uses; whether there were any; accepts NULL. */
bool recordings_trim(struct Recordings *recordings, Device *device);
/* The sizes of that id are forgotten. recordings may be NULL. */
void recordings_forget(struct Recordings *recordings, Device *device, uint64_t sizes);

/* An idle one for these sizes and the caller's device memory (given [count]; NULL: none), busy from now on; NULL: there is none. */
Recording *recordings_take(struct Recordings *recordings, uint64_t sizes, void *const *given, int count);
/* Enters `made`, which is busy, where the bounds allow it; others may be freed for it. */
bool recordings_enter(struct Recordings *recordings, Device *device, Sizes *sizes, Recording *made);
/* After a run that used r: kept if it is sound, else freed. */
void recordings_give(struct Recordings *recordings, Device *device, Recording *r, bool sound);
/* Takes r out and frees it. */
void recordings_drop(struct Recordings *recordings, Device *device, Recording *r);
void recording_destroy(Recording *r, Device *device); /* one that is in no set; accepts NULL */

#endif
