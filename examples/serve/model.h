/* SPDX-License-Identifier: Apache-2.0 */
/* A model that is served: its session, its name, and what clients are told of it. */
#ifndef SERVE_MODEL_H
#define SERVE_MODEL_H

#include <onnxfuse.h>
#include "metrics.h"
#include "request.h"

/* Requests of a model that wait (queue.h). */
typedef struct Queue {
    struct Line *oldest, *newest;
    void *lines; /* those that others can join, by shape: a tree of <search.h> */
} Queue;

typedef struct Model {
    char *name;
    OnnxfuseSession *session;
    const OnnxfuseValueInfo **inputs, **outputs; /* [count], of the session */
    int input_count, output_count;
    _Atomic(const char *) unbatched; /* why requests cannot be put together; NULL: they can */
    Text metadata;                   /* JSON */
    ModelMetrics metrics;
    /* The scheduler's, under its lock. */
    Queue ready; /* requests that are parsed */
    int running;
    uint64_t *running_shapes; /* [running]: Job.shape of the runs that are going on */
} Model;

/* argument: PATH or NAME=PATH; without a name it is the file's, or of a file "model" its folder's. */
OnnxfuseStatus model_open(const char *argument, const OnnxfuseOptions *options, Model *out_model);
void model_close(Model *model);
bool model_wants_tensor(const OnnxfuseValueInfo *info); /* not an optional */
/* "[batch, 4]" */
void model_write_shape(Text *out, const OnnxfuseValueInfo *info);

#endif
