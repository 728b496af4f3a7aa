/* SPDX-License-Identifier: Apache-2.0 */
/* Gradients against central differences: each row is a graph whose floating-point inputs are drawn from [low, high); the gradient of
 * the sum of weighted outputs must be the limit of differences at each element, and so must the gradient of a weighted sum of these gradients. */
#ifndef ONNXFUSE_TESTS_AUTODIFF_DIFFERENCES_H
#define ONNXFUSE_TESTS_AUTODIFF_DIFFERENCES_H

#include <stdbool.h>
#include <stddef.h>

typedef struct Row {
    const char *name, *inputs, *body; /* the body computes y; ONNX nodes in it are lowered first */
    double low, high;
    bool
        only_once; /* the gradient is not smooth enough for differences of its own, grows beyond their accuracy, or has no gradient */
    bool narrow; /* what is on the way is rounded to f32 */
} Row;

void check_differences(const Row *rows, size_t count);

#endif
