/* SPDX-License-Identifier: Apache-2.0 */
/* How far a result may be from the exact one, where nothing but rounding has happened to it: from the number format and
 * the length of the sum, an element each. All tests that compare floating-point results of sums ask here.
 *
 * The bound is the standard one of forward error analysis (Higham, Accuracy and Stability of Numerical Algorithms,
 * 2nd edition, section 3.1): a sum of n products, in any order and with or without fused multiply-add, is off by at most
 *
 *     gamma(n) * sum |a_i| |b_i|,  gamma(n) = n u / (1 - n u).
 *
 * Rounding errors of random data have either sign, so that those of long sums grow as the root of n: with
 * n > 64 roundings the bound is that of Higham and Mary (A new approach to probabilistic rounding error analysis, SIAM
 * J. Sci. Comput. 41, 2019), 8 sqrt(n) in the place of n, which a result exceeds with a probability below 2 n exp(-32).
 * u is the unit roundoff of the type that is summed in: f32 for f16 and bf16, which are rounded once more when stored. */
#ifndef ONNXFUSE_TESTS_NUMERIC_ROUNDING_H
#define ONNXFUSE_TESTS_NUMERIC_ROUNDING_H

#include "graph/tensor.h"

/* Half the distance between 1 and the next larger number. */
double rounding_unit(DType dtype);
/* What f16 and bf16 are computed in; others in themselves. */
DType rounding_work_type(DType dtype);
/* gamma(n) of the work type of `dtype`. */
double rounding_gamma(DType dtype, double roundings);

/* Of a value that is `exact`, computed in the work type up to `error` and stored as `dtype`. */
double rounding_stored(DType dtype, double exact, double error);
/* Of a sum of products stored as `dtype`: exact = sum a_i b_i, magnitude = sum |a_i| |b_i|, of so many terms. */
double rounding_of_sum(DType dtype, double exact, double magnitude, double terms);

/* got is within `bound` of exact; not-a-number is where it should be, and so is infinity. A finite number may overflow
 * where its bound reaches beyond the largest of `dtype`. */
bool rounding_agrees(DType dtype, double got, double exact, double bound);

#endif
