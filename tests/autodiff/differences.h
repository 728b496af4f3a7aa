/* SPDX-License-Identifier: Apache-2.0 */
/* Gradients against central differences: each row is a graph whose floating-point inputs are drawn from [low, high); the gradient of
 * the sum of weighted outputs must be the limit of differences at each element, and so must the gradient of a weighted sum of these gradients. */
#ifndef ONNXFUSE_TESTS_AUTODIFF_DIFFERENCES_H
#define ONNXFUSE_TESTS_AUTODIFF_DIFFERENCES_H

#include <stdbool.h>
#include <stddef.h>

/* Lines of bodies over an input x. one: 1, which no pass can tell; also as i64[] numbers: zero, two, three, four, five, as far as the row uses them. */
#define NUMBERS                                                                                                        \
    "nothing = constant f64[] 0\nnone = onnx Mul@14 x, nothing\nsum = onnx ReduceSum@13 none {keepdims = 0}\nwhole = " \
    "onnx Cast@13 sum {to = 7}\nunit = constant i64[] 1\none = onnx Add@14 whole, unit\nzero = onnx Sub@14 one, "      \
    "unit\nlast = onnx Neg@13 one\ntwo = onnx Add@14 one, one\nthree = onnx Add@14 two, one\nfour = onnx Add@14 two, " \
    "two\nfive = onnx Add@14 four, one\nempty = onnx SequenceEmpty@11 {dtype = 11}\nfirst = onnx "                     \
    "SequenceConstruct@11 x\n"

typedef struct Row {
    const char *name, *inputs, *body; /* the body computes y; ONNX nodes in it are lowered first */
    double low, high;
    bool
        only_once; /* the gradient is not smooth enough for differences of its own, grows beyond their accuracy, or has no gradient */
    bool narrow; /* what is on the way is rounded to f32 */
} Row;

void check_differences(const Row *rows, size_t count);

#endif
