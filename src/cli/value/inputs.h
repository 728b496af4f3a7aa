/* A model's inputs, from what the command line says: files, text, bytes, or numbers drawn for a shape. */
#ifndef ONNXFUSE_CLI_INPUT_INPUTS_H
#define ONNXFUSE_CLI_INPUT_INPUTS_H

#include "cli/base/flags.h"
#include "cli/value/npy.h"

typedef struct Shape {
    char *name; /* of the input */
    int rank;
    int64_t dims[ONNXFUSE_MAX_RANK];
} Shape;

typedef struct Shapes {
    Shape *items;
    int count;
} Shapes;

/* "NAME=1x3x224x224"; "NAME=" is a scalar. */
Problem *shapes_parse(const TextList *arguments, Shapes *out_shapes);
Problem *shapes_add(Shapes *shapes, const Shape *shape); /* copies the name */
void shapes_free(Shapes *shapes);

typedef struct Inputs {
    const OnnxfuseValue **values; /* [count], in the model's order; NULL: an optional input left out */
    Loaded *loaded;
    int count;
} Inputs;

/* files: each "NAME=WHAT"; inputs that it does not name are drawn at random when their dims are known, from the model
 * or from `shapes`. */
Problem *inputs_make(const OnnxfuseSession *session, const TextList *files, const Shapes *shapes, Inputs *out_inputs);
void inputs_free(Inputs *inputs);

/* "float32[1, 3, h, w]" */
void print_type(FILE *out, const OnnxfuseValueInfo *info);
extern const char inputs_help[]; /* what WHAT may be */

#endif
