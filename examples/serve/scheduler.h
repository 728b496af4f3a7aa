/* SPDX-License-Identifier: Apache-2.0 */
/* Who computes what when: worker threads that parse requests, put those of equal shapes together, run the model and
 * split the results. Idle workers sleep. */
#ifndef SERVE_SCHEDULER_H
#define SERVE_SCHEDULER_H

#include "job.h"

typedef struct SchedulerOptions {
    int runs;      /* most runs at once, of all models */
    int max_rows;  /* of requests that are put together; 1: none are */
    int64_t delay; /* ns that a request waits for others at most */
    int queue;     /* most requests of a model that wait */
    int64_t idle;  /* ns without a run after which memory that is kept for runs is given back */
    void (*log)(const char *message);
} SchedulerOptions;

typedef struct Scheduler Scheduler;
/* The models must outlive it. NULL: out of memory or threads. */
Scheduler *scheduler_create(const SchedulerOptions *options, Model *models, int model_count);
bool scheduler_has_room(Scheduler *scheduler, const Model *model);
/* job->done is called, sooner or later. False: the model's queue is full, and it is not. */
bool scheduler_submit(Scheduler *scheduler, Job *job);
void scheduler_cancel(Scheduler *scheduler);  /* ends all runs, those that come too */
void scheduler_destroy(Scheduler *scheduler); /* no job may be left; accepts NULL */

#endif
