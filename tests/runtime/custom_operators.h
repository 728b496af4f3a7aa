/* SPDX-License-Identifier: Apache-2.0 */
/* Operators of an application, for tests; all of domain "test", version 1, unless custom_operators.c says more. */
#ifndef ONNXFUSE_TESTS_RUNTIME_OWN_OPERATORS_H
#define ONNXFUSE_TESTS_RUNTIME_OWN_OPERATORS_H

#include "onnxfuse.h"

/* "Scale": y = attribute factor * x + optional input 1 (a scalar); optional output 1: the number of elements. In place.
 * "Join": two matrices one after the other; infer adds the sizes.
 * "Positive": the elements above 0; how many is known after it has run.
 * "Any": a copy, of whatever type and rank.
 * "Text": each number as a string.
 * "Total": the sum of all elements of a sequence.
 * "Draw": numbers that are no others'; random.
 * "Fill": attributes ints dims, a constant input for the value.
 * "Relu" of the standard: gives 7 for what is negative.
 * "Bad": does what attribute string how says, which is wrong. */
OnnxfuseRegistry *custom_operators(void);

#endif
