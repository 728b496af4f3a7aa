/* SPDX-License-Identifier: Apache-2.0 */
/* Sizes of outputs, computed from the inputs' before a run. */
#ifndef ONNXFUSE_EP_SIZES_H
#define ONNXFUSE_EP_SIZES_H

#include "ep/common.h"

/* One dimension as a program over a stack. */
typedef struct SizeProgram {
    struct SizeStep *steps; /* in the scratch; NULL: not known before a run */
    int count;
} SizeProgram;

/* Compiles the expression of an output's dimension (OnnxfuseValueInfo.symbols), in which the names are those of input
 * dimensions; steps stay NULL where it has others. False when there is no memory. */
bool size_compile(Scratch *scratch, const OnnxfuseSession *session, const char *expression, SizeProgram *out_program);
/* dims [input_count]: of the inputs as given. False: overflow, or a division by zero. */
bool size_evaluate(const SizeProgram *program, const int64_t *const *dims, int64_t *out_size);

#endif
