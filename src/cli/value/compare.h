/* SPDX-License-Identifier: Apache-2.0 */
/* Are two values the same, and how far are they apart? Floating-point numbers are the same where
 * |got - expected| <= atol + rtol * |expected|, as numpy's allclose has it. Integers, bools and strings must be equal;
 * of integers a distance may be allowed, for results that were rounded to a step of a quantization. Maps must have equal
 * keys. */
#ifndef ONNXFUSE_CLI_COMMAND_COMPARE_H
#define ONNXFUSE_CLI_COMMAND_COMPARE_H

#include <stdbool.h>
#include "cli/base/problem.h"

typedef struct Tolerance {
    double rtol, atol;
    double step; /* how far integers may be apart: 0 but where a case says so */
} Tolerance;

/* What a value is judged by; a sequence's items, and a map's keys and values, may differ. */
enum { RULE_CLOSE = 1, RULE_BFLOAT16 = 2, RULE_EXACT = 4, RULE_STEP = 8, RULE_TYPE = 16 };

/* NULL when they agree, else a problem of code ONNXFUSE_DIFFERENT that names the first difference. types_only: compares
 * element types and shapes (of outputs that depend on random numbers). */
Problem *compare_values(const OnnxfuseValue *got, const OnnxfuseValue *expected, Tolerance tolerance, bool types_only);

/* RULE_*, as compare_values judges. */
unsigned compare_rules(const OnnxfuseValue *expected, Tolerance tolerance, bool types_only);
/* "within 1e-07 + 0.001 |expected|, exact" */
void print_rules(FILE *out, unsigned rules, Tolerance tolerance);

/* Of two tensors, or of the first items of two sequences that differ; of two maps, of their keys or values. */
typedef struct Difference {
    bool comparable;                     /* same kinds, types and shapes: else nothing below is set */
    const OnnxfuseValue *got, *expected; /* the tensors; of a sequence the items */
    int item;                            /* of a sequence; -1 */
    int64_t count, different;            /* elements, and those beyond their bound */
    int64_t worst;                       /* the element that is furthest from where it should be; -1: all are equal */
    double distance;                     /* of that: |got - expected| */
    double ulps;                         /* of that: representable numbers between the two, NaN where there are none */
    double excess; /* of that: distance / bound; infinite where a non-finite number or a string differs */
} Difference;

Difference compare_measure(const OnnxfuseValue *got, const OnnxfuseValue *expected, Tolerance tolerance);
/* The root of the mean square of a tensor's finite elements; 0 where they are no floating-point numbers. */
double compare_scale(const OnnxfuseValue *tensor);
/* "[0, 3, 5]" */
void print_index(FILE *out, const OnnxfuseValue *tensor, int64_t index);
/* "float32[1, 3]", "a sequence of 3", "a map of 3" */
void print_kind(FILE *out, const OnnxfuseValue *value);

#endif
