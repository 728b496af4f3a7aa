/* SPDX-License-Identifier: Apache-2.0 */
/* One inference on its way: from a request's bytes to the parts of its answer. */
#ifndef SERVE_JOB_H
#define SERVE_JOB_H

#include <sys/uio.h>
#include "model.h"

/* What a run has made; shared by the answers of its jobs, whose parts point into it. */
typedef struct Results {
    atomic_int users;
    int count;
    OnnxfuseValue *values[]; /* [count] */
} Results;
Results *results_create(int count); /* for one user; NULL: out of memory */
void results_release(Results *results);

typedef struct Reply {
    int status;          /* HTTP's */
    bool retry;          /* it may be tried again after a second */
    Text head;           /* JSON */
    bool binary;         /* tensor data follow the JSON */
    struct iovec *parts; /* [part_count]: binary tensor data, in results and in texts */
    int part_count;
    Text *texts; /* [part_count]: strings as binary tensor data */
    Results *results;
} Reply;
void reply_free(Reply *reply);
void reply_error(Reply *reply, int status, const char *message); /* replaces what was there */

typedef struct Job {
    struct Job *next;
    struct Job *before; /* in the line; `next` is there the one after it */
    struct Line *line;  /* that it waits in (queue.h) */
    uint64_t number;    /* of its arrival among the parsed */
    int place;          /* in the heap of deadlines */
    Model *model;
    char *body; /* as request_parse takes it */
    size_t size, json_size;
    bool raw; /* the body is the data of the model's only input */
    Request request;
    const Tensor **inputs;          /* [model's input_count]; NULL: an optional one that is left out */
    int64_t rows;                   /* the first dim of all inputs; -1: it differs */
    uint64_t shape;                 /* hash of which inputs there are and of their dims but the first */
    double timeout_ms;              /* of the server or the request's header; 0: none */
    int64_t deadline;               /* ns; 0: none. From when the request's header was there */
    int64_t begun, queued, started; /* ns: header there, body there, run begun */
    Reply reply;
    void (*done)(struct Job *job);          /* from any thread; the job is its maker's again */
    bool (*is_gone)(const struct Job *job); /* nobody waits for the answer any more */
} Job;

int64_t now_ns(void);
/* Parses the body and fits it to the model; on failure the reply is set. */
bool job_prepare(Job *job);
/* An order of a model's jobs in which those are equal that can run together, where both have rows. */
int job_compare(const Job *a, const Job *b);
/* Rows row..row + job->rows of the results, or all of them with row -1. Takes a share of the results. */
void job_answer(Job *job, Results *results, int64_t row);
void job_free(Job *job); /* all but the body */

#endif
