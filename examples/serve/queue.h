/* SPDX-License-Identifier: Apache-2.0 */
/* Requests that wait, kept so that none of the scheduler's choices looks at all of them. */
#ifndef SERVE_QUEUE_H
#define SERVE_QUEUE_H

#include "job.h"

/* Jobs of a model that can run together, in the order in which they came; a job that can join no other is a line of its own. */
typedef struct Line {
    struct Line *older, *newer; /* by their first jobs */
    Job *first, *last;
} Line;

/* False: out of memory. job->number must grow from call to call. */
bool queue_add(Queue *queue, Job *job);
void queue_remove(Queue *queue, Job *job);

/* Jobs by their deadlines: a binary heap. A job without a deadline is in none. */
typedef struct Deadlines {
    Job **heap; /* [count]: none is later than those at 2 i + 1 and 2 i + 2 */
    int count, capacity;
} Deadlines;

bool deadlines_add(Deadlines *deadlines, Job *job); /* false: out of memory */
void deadlines_remove(Deadlines *deadlines, const Job *job);
Job *deadlines_first(const Deadlines *deadlines); /* NULL: there is none */
void deadlines_free(Deadlines *deadlines);

#endif
