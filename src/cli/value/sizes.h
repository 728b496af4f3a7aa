/* SPDX-License-Identifier: Apache-2.0 */
/* The sizes that a model leaves free ("batch"), and what they are: as --size, --shape and the inputs that are given say, in this
 * order; else as the policy's first shape hint says; else 224 where it is a side of a picture, and 1 elsewhere. */
#ifndef ONNXFUSE_CLI_VALUE_SIZES_H
#define ONNXFUSE_CLI_VALUE_SIZES_H

#include "cli/base/flags.h"

typedef struct Shape {
    char *name; /* of the input */
    int rank;
    int64_t dims[ONNXFUSE_MAX_RANK]; /* -1: free */
} Shape;

typedef struct Shapes {
    Shape *items;
    int count;
} Shapes;

/* "NAME=1x3x224x224"; "NAME=" is a scalar. */
Problem *shapes_parse(const TextList *arguments, Shapes *out_shapes);
/* "NAME=8", or several with commas between: shapes of rank 1, named like the size. */
Problem *shapes_parse_sizes(const TextList *arguments, Shapes *out_sizes);
Problem *shapes_add(Shapes *shapes, const Shape *shape); /* copies the name */
const Shape *shapes_find(const Shapes *shapes, const char *name);
void shapes_free(Shapes *shapes);

typedef enum SizeOrigin { SIZE_FREE, SIZE_OF_FLAG, SIZE_OF_INPUT, SIZE_HINTED, SIZE_ASSUMED } SizeOrigin;

typedef struct Size {
    const char *symbol; /* as the session prints it */
    char *name;         /* as the model has it */
    int64_t value;      /* -1: free */
    SizeOrigin origin;
    bool used; /* an input was made with it */
} Size;

typedef struct Sizes {
    const OnnxfuseSession *session;
    Size *items;
    int count;
} Sizes;

/* All free sizes of the session's inputs, with those that --size and --shape say. */
Problem *sizes_begin(const OnnxfuseSession *session, const Shapes *size_flags, const Shapes *shapes, Sizes *out_sizes);
/* A value is given for an input: what is free becomes as it has it. ONNXFUSE_USAGE when --size says otherwise. */
Problem *sizes_take(Sizes *sizes, const OnnxfuseValueInfo *info, const OnnxfuseValue *value);
/* What is still free becomes hinted, a picture's side, or 1. */
void sizes_settle(Sizes *sizes);
/* The dims of a declared input as far as they are known, which counts as use. */
Shape sizes_shape(Sizes *sizes, const OnnxfuseValueInfo *info);
bool size_is_in(const Sizes *sizes, const Size *size, const OnnxfuseValueInfo *info);
bool size_is_guessed(const Size *size); /* used, and nothing on the command line says it */
void sizes_free(Sizes *sizes);

#endif
