/* SPDX-License-Identifier: Apache-2.0 */
/* The complete programs that the CUDA device compiles beside its kernels of regions: products, convolutions, attention,
 * movements, pools and resizes. */
#ifndef ONNXFUSE_TESTS_GPU_PROGRAMS_H
#define ONNXFUSE_TESTS_GPU_PROGRAMS_H

#include "cases.h"

/* Adds every program text of every kind: all types, tiles, heads, units, masks and epilogue steps. */
void programs_add_all(Cases *cases);

/* A GPU device that only takes down what it is asked to compile, so that the runtime itself says which programs a model
 * needs. */
typedef struct ProgramRecorder ProgramRecorder;
Status program_recorder_open(Cases *cases, ProgramRecorder **out_recorder);
/* Adds what the runtime compiles for a node of a partitioned graph before its first run; where: the model's name. */
Status program_recorder_add(ProgramRecorder *recorder, const Node *node, const char *where);
void program_recorder_close(ProgramRecorder *recorder); /* accepts NULL */

#endif
