/* SPDX-License-Identifier: Apache-2.0 */
/* A model's inputs, from what the command line says: files, pictures, text, bytes, or numbers drawn for a shape. */
#ifndef ONNXFUSE_CLI_INPUT_INPUTS_H
#define ONNXFUSE_CLI_INPUT_INPUTS_H

#include <cjson/cJSON.h>
#include "cli/value/npy.h"
#include "cli/value/sizes.h"

/* The first member of the options of commands that run a model on inputs. */
typedef struct InputOptions {
    Options common;
    TextList inputs, shapes, sizes;
} InputOptions;

extern const Flag input_flags[];

/* The flags, read. */
typedef struct InputRequest {
    const TextList *files; /* each "NAME=WHAT" */
    Shapes shapes, sizes;
    bool shapes_only; /* contents do not matter: zeros, and nothing is drawn */
} InputRequest;

Problem *request_read(const InputOptions *options, InputRequest *out_request);
void request_free(InputRequest *request);

typedef struct Inputs {
    const OnnxfuseValue **values; /* [count], in the model's order; NULL: an optional input left out */
    Loaded *loaded;
    bool *drawn; /* [count] at random, without being asked for */
    int count;
    Sizes sizes;
} Inputs;

/* What no file gives is drawn at random; standard error tells what was, and the sizes that nothing says. recorded
 * [count]: values to take where no file gives one, which moves them; or NULL. */
Problem *inputs_make(const OnnxfuseSession *session, const InputRequest *request, Loaded *recorded, Inputs *out_inputs);
void inputs_free(Inputs *inputs);
/* A failed run's problem, with the sizes and numbers that nothing on the command line says, since they may be the
 * reason. Takes it over; passes NULL through. */
Problem *inputs_explain(const Inputs *inputs, Problem *found);
/* "assumed_sizes": {"batch": 1}, "random_inputs": ["x"] */
void inputs_json(const Inputs *inputs, cJSON *object);

/* "float32[1, 3, h, w]" */
void print_type(FILE *out, const OnnxfuseValueInfo *info);
void print_inputs_help(FILE *out); /* what WHAT may be */

#endif
