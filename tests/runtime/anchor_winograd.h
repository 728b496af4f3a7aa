/* SPDX-License-Identifier: Apache-2.0 */
/* What rounding may do to a convolution by Winograd's algorithm F(4x4, 3x3) at the points 0, +-3/4, +-3/2 and infinity:
 * its matrices, worked out from the points, and the sums of magnitudes that errors are in proportion to. */
#ifndef ONNXFUSE_TESTS_RUNTIME_ANCHOR_WINOGRAD_H
#define ONNXFUSE_TESTS_RUNTIME_ANCHOR_WINOGRAD_H

#include "anchor_cases.h"

typedef struct WinogradMatrices {
    double input[6][6]; /* B^T */
    double kernel[6][3];
    double output[4][6]; /* A^T */
} WinogradMatrices;

WinogradMatrices winograd_matrices(void);

/* Of the case's raw result, x and w as it has them, paddings before: |A^T| [(|G| |w| |G^T|) * (|B^T| |x| |B|)] |A|,
 * summed over channels. */
const double *winograd_magnitudes(const AnchorCase *c, const int64_t *pads, const int64_t *result, Arena *arena);

#endif
