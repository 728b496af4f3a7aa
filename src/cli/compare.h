/* Are these outputs the recorded ones? |got - expected| <= atol + rtol * |expected|, as numpy's allclose has it. */
#ifndef ONNXFUSE_CLI_COMPARE_H
#define ONNXFUSE_CLI_COMPARE_H

#include <stdbool.h>
#include "problem.h"

typedef struct Tolerance {
    double rtol, atol;
} Tolerance;

/* NULL when they agree, else a problem of code ONNXFUSE_DIFFERENT that names the first difference. types_only: compares
 * element types and shapes (of outputs that depend on random numbers). */
Problem *compare_values(const OnnxfuseValue *got, const OnnxfuseValue *expected, Tolerance tolerance, bool types_only);

#endif
